//! Payload of `Space`: how long the range is, and what becomes of it.

use wholly_vfs::Fallocate;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const ZEROES: u32 = 1;
const RESERVES: u32 = 2;
const EXTENDS: u32 = 4;

/// What there is, and how it is told.
const FLAGS: [(Fallocate, u32); 5] = [
    (Fallocate::Keep, RESERVES),
    (Fallocate::Extend, RESERVES | EXTENDS),
    (Fallocate::Punch, ZEROES),
    (Fallocate::Zero, ZEROES | RESERVES),
    (Fallocate::ZeroExtend, ZEROES | RESERVES | EXTENDS),
];

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawSpace {
    length: U64,
    flags: U32,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<RawSpace>() == 16);

/// What becomes of a range of a file; the entry tells the file and the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// How many bytes, one at least.
    pub length: u64,
    /// What becomes of them.
    pub how: Fallocate,
}

impl Space {
    /// The payload.
    pub fn to_bytes(self) -> [u8; size_of::<RawSpace>()] {
        let flags = FLAGS.iter().find(|(how, _)| *how == self.how).map_or(0, |(_, flags)| *flags);
        let raw = RawSpace { length: U64::new(self.length), flags: U32::new(flags), reserved: [0; 4] };
        let bytes: [u8; size_of::<RawSpace>()] = zerocopy::transmute!(raw);
        debug_assert_eq!(Self::checked(&bytes), Some(self));
        bytes
    }

    /// Checks a payload; `None` if it is impossible.
    pub fn checked(bytes: &[u8]) -> Option<Space> {
        let raw = RawSpace::read_from_bytes(bytes).ok()?;
        let how = FLAGS.iter().find(|(_, flags)| *flags == raw.flags.get())?.0;
        let sound = raw.length.get() > 0 && raw.reserved == [0; 4];
        sound.then_some(Space { length: raw.length.get(), how })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::with;
    use super::*;

    #[test]
    fn fields_stand_where_the_format_has_them() {
        let bytes = Space { length: 0x0102, how: Fallocate::ZeroExtend }.to_bytes();
        assert_eq!(bytes, [2, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_payload_reads_back() {
        for (how, flags) in FLAGS {
            let bits = [(how.zeroes(), ZEROES), (how.reserves(), RESERVES), (how.extends(), EXTENDS)];
            assert_eq!(flags, bits.iter().map(|(is_set, bit)| u32::from(*is_set) * bit).sum::<u32>());
            for length in [1, 4096, u64::MAX] {
                let space = Space { length, how };
                assert_eq!(Space::checked(&space.to_bytes()), Some(space));
            }
        }
    }

    #[test]
    fn impossible_ones_are_refused() {
        let good = Space { length: 1, how: Fallocate::Punch }.to_bytes();
        // A hole that makes the file grow, growth without space, nothing at all, a flag that nobody knows, no bytes, a
        // reserved byte.
        for (at, byte) in [(8, 5), (8, 4), (8, 0), (8, 9), (0, 0), (12, 1), (15, 1)] {
            assert_eq!(Space::checked(&with(&good, at, &[byte])), None, "{at}: {byte}");
        }
        assert_eq!(Space::checked(&good[..15]), None);
        assert_eq!(Space::checked(&[&good[..], &[0]].concat()), None);
    }
}
