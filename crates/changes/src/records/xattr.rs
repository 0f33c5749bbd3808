//! Payload of `Xattr`: an extended attribute that is set or removed.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{LONGEST_XATTR, is_name};

const FLAG_REMOVE: u16 = 1;
const FLAG_BEFORE: u16 = 2;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawXattr {
    name_length: U16,
    flags: U16,
    value_length: U32,
    before: U64,
}
const _: () = assert!(size_of::<RawXattr>() == 16);

/// An extended attribute that is set or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Its name, with the namespace.
    pub name: Vec<u8>,
    /// Its value, or none to remove it.
    pub value: Option<Vec<u8>>,
    /// The checksum of the value before, if there was one.
    pub before: Option<u64>,
}

impl Xattr {
    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let value = self.value.as_deref().unwrap_or_default();
        let remove = if self.value.is_none() { FLAG_REMOVE } else { 0 };
        let before = if self.before.is_some() { FLAG_BEFORE } else { 0 };
        let raw = RawXattr {
            name_length: U16::new(self.name.len() as u16),
            flags: U16::new(remove | before),
            value_length: U32::new(value.len() as u32),
            before: U64::new(self.before.unwrap_or(0)),
        };
        let bytes = [raw.as_bytes(), &self.name, value].concat();
        debug_assert_eq!(Self::checked(&bytes).as_ref(), Some(self));
        bytes
    }

    /// Checks a payload; `None` if it is impossible.
    pub fn checked(bytes: &[u8]) -> Option<Xattr> {
        let (raw, rest) = RawXattr::read_from_prefix(bytes).ok()?;
        let (name, value) = rest.split_at_checked(usize::from(raw.name_length.get()))?;
        let flags = raw.flags.get();
        let (removes, had_one) = (flags & FLAG_REMOVE != 0, flags & FLAG_BEFORE != 0);
        let sound = is_name(name)
            && value.len() == raw.value_length.get() as usize
            && value.len() <= LONGEST_XATTR
            && (!removes || value.is_empty())
            && (had_one || raw.before.get() == 0)
            && flags & !(FLAG_REMOVE | FLAG_BEFORE) == 0;
        sound.then(|| Xattr {
            name: name.to_vec(),
            value: (!removes).then(|| value.to_vec()),
            before: had_one.then(|| raw.before.get()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::with;
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Xattr {
        Xattr { name: b"user.a".to_vec(), value: Some(b"xyz".to_vec()), before: Some(7) }
    }

    #[test]
    fn fields_stand_where_the_format_has_them() {
        let bytes = sample().to_bytes();
        assert_eq!(bytes[..16], [6, 0, 2, 0, 3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[16..], b"user.axyz");
        let removed = Xattr { value: None, before: None, ..sample() }.to_bytes();
        assert_eq!(removed[..4], [6, 0, 1, 0]);
    }

    #[test]
    fn impossible_ones_are_refused() {
        let bytes = sample().to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Xattr::checked(&bytes[..length]), None, "{length} bytes");
        }
        let long = LONGEST_XATTR as u32 + 1;
        let foul = [
            ("no name", with(&bytes, 0, &[0, 0, 2, 0, 9])),
            ("a zero in the name", with(&bytes, 17, &[0])),
            ("a name beyond the end", with(&bytes, 0, &[200])),
            ("a value to be removed", with(&bytes, 2, &[3])),
            ("a value before that is said not to be", with(&bytes, 2, &[0])),
            ("a flag of later days", with(&bytes, 2, &[6])),
            (
                "a value that is too long",
                [&with(&bytes, 4, &long.to_le_bytes())[..22], &vec![1; long as usize]].concat(),
            ),
        ];
        for (what, bytes) in foul {
            assert_eq!(Xattr::checked(&bytes), None, "{what}");
        }
    }

    proptest! {
        #[test]
        fn a_payload_reads_back(
            name in proptest::collection::vec(1u8.., 1..=255),
            value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300)),
            before in any::<Option<u64>>(),
        ) {
            let xattr = Xattr { name, value, before };
            prop_assert_eq!(Xattr::checked(&xattr.to_bytes()), Some(xattr));
        }
    }
}
