//! Payload of `Shadow`: in which shadow the bytes are, and where.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// No shadow is as long: where the positions of one end, those of the next begin.
pub const LONGEST_SHADOW: u64 = 1 << 36;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawShadow {
    number: U64,
    from: U64,
    length: U64,
}
const _: () = assert!(size_of::<RawShadow>() == 24);

/// A run of bytes in a shadow; the entry tells the file, and the first byte there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Of the shadow, which is its name too.
    pub number: u64,
    /// The first byte in the shadow.
    pub from: u64,
    /// How many bytes, one at least.
    pub length: u64,
}

impl Shadow {
    /// The payload.
    pub fn to_bytes(self) -> [u8; size_of::<RawShadow>()] {
        let Shadow { number, from, length } = self;
        let raw = RawShadow { number: U64::new(number), from: U64::new(from), length: U64::new(length) };
        let bytes: [u8; size_of::<RawShadow>()] = zerocopy::transmute!(raw);
        debug_assert_eq!(Self::checked(&bytes), Some(self));
        bytes
    }

    /// Checks a payload; `None` if it is impossible.
    pub fn checked(bytes: &[u8]) -> Option<Shadow> {
        let raw = RawShadow::read_from_bytes(bytes).ok()?;
        let shadow = Shadow { number: raw.number.get(), from: raw.from.get(), length: raw.length.get() };
        let end = shadow.from.checked_add(shadow.length)?;
        (shadow.number > 0 && shadow.length > 0 && end < LONGEST_SHADOW).then_some(shadow)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::with;
    use super::*;

    #[test]
    fn fields_stand_where_the_format_has_them() {
        let bytes = Shadow { number: 0x0102, from: 0x0304, length: 5 }.to_bytes();
        assert_eq!(bytes[..8], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[8..], [4, 3, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_payload_reads_back() {
        for (number, from, length) in [(1, 0, 1), (u64::MAX, 0, LONGEST_SHADOW - 1), (7, LONGEST_SHADOW - 2, 1)] {
            let shadow = Shadow { number, from, length };
            assert_eq!(Shadow::checked(&shadow.to_bytes()), Some(shadow));
        }
    }

    #[test]
    fn impossible_ones_are_refused() {
        let good = Shadow { number: 1, from: 0, length: 1 }.to_bytes();
        // No shadow, no bytes, an end beyond the longest, an end beyond all numbers.
        for (at, bytes) in [(0, [0; 8]), (16, [0; 8]), (8, (LONGEST_SHADOW - 1).to_le_bytes()), (8, [0xff; 8])] {
            assert_eq!(Shadow::checked(&with(&good, at, &bytes)), None, "{at}: {bytes:?}");
        }
        assert_eq!(Shadow::checked(&good[..23]), None);
        assert_eq!(Shadow::checked(&[&good[..], &[0]].concat()), None);
    }
}
