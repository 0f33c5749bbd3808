//! Payload of `Name`: what a name stands for, before and after.

use wholly_vfs::NAME_MAX;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::is_component;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawValue {
    before: U64,
    after: U64,
}
const _: () = assert!(size_of::<RawValue>() == 16);

/// A name that is set; the entry tells the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The object that it stood for, 0: nothing.
    pub before: u64,
    /// The object that it stands for from here on, 0: nothing.
    pub after: u64,
    /// The name.
    pub name: Vec<u8>,
}

impl Value {
    /// Bytes of the longest payload.
    pub const LARGEST: usize = size_of::<RawValue>() + NAME_MAX;

    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let raw = RawValue { before: U64::new(self.before), after: U64::new(self.after) };
        let bytes = [raw.as_bytes(), &self.name].concat();
        debug_assert_eq!(Self::checked(&bytes).as_ref(), Some(self));
        bytes
    }

    /// Checks a payload; `None` if it is impossible.
    pub fn checked(bytes: &[u8]) -> Option<Value> {
        let (raw, name) = RawValue::read_from_prefix(bytes).ok()?;
        is_component(name).then(|| Value { before: raw.before.get(), after: raw.after.get(), name: name.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::name;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_stand_where_the_format_has_them() {
        let bytes = Value { before: 1, after: 2, name: b"n".to_vec() }.to_bytes();
        assert_eq!(bytes, [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, b'n']);
    }

    #[test]
    fn impossible_ones_are_refused() {
        assert_eq!(Value::checked(&[1; 15]), None);
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert_eq!(Value::checked(&[&[1; 16], name].concat()), None, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn a_payload_reads_back(before in any::<u64>(), after in any::<u64>(), name in name()) {
            let value = Value { before, after, name };
            prop_assert_eq!(Value::checked(&value.to_bytes()), Some(value));
        }
    }
}
