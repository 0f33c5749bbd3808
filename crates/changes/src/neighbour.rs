//! How stores name each other on media: see `docs/format.md`.

use zerocopy::little_endian::{I64, U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawNeighbour {
    volume_id: [u8; 16],
    number: U64,
    ino: U64,
    btime_ns: I64,
    absolute_length: U16,
    relative_length: U16,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<RawNeighbour>() == 48);
const _: () = assert!(std::mem::offset_of!(RawNeighbour, number) == 16);
const _: () = assert!(std::mem::offset_of!(RawNeighbour, absolute_length) == 40);

/// How a store names something in the folder of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The other store.
    pub volume_id: [u8; 16],
    /// Of a coordinator the number of the record, of a participant that of the prepared group.
    pub number: u64,
    /// Of a coordinator the inode of the record, of a participant that of its directory.
    pub inode: (u64, i64),
    /// Where its directory was.
    pub absolute: Vec<u8>,
    /// The same, from the directory of who names it: the two may be moved together.
    pub relative: Vec<u8>,
}

impl Neighbour {
    /// The bytes, padded to a multiple of 8.
    pub fn to_bytes(&self) -> Vec<u8> {
        let length = |path: &[u8]| U16::new(u16::try_from(path.len()).expect("paths are shorter"));
        let raw = RawNeighbour {
            volume_id: self.volume_id,
            number: U64::new(self.number),
            ino: U64::new(self.inode.0),
            btime_ns: I64::new(self.inode.1),
            absolute_length: length(&self.absolute),
            relative_length: length(&self.relative),
            reserved: [0; 4],
        };
        let mut bytes = [raw.as_bytes(), &self.absolute, &self.relative].concat();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// What stands at the beginning, and the rest; `None` if it is impossible.
    pub fn first(bytes: &[u8]) -> Option<(Neighbour, &[u8])> {
        let (raw, rest) = RawNeighbour::read_from_prefix(bytes).ok()?;
        let (absolute, relative) = (usize::from(raw.absolute_length.get()), usize::from(raw.relative_length.get()));
        let (paths, rest) = rest.split_at_checked((absolute + relative).next_multiple_of(8))?;
        let (absolute, padded) = paths.split_at(absolute);
        let (relative, padding) = padded.split_at(relative);
        let sound = raw.reserved == [0; 4] && raw.number.get() != 0 && padding.iter().all(|&byte| byte == 0);
        let neighbour = Neighbour {
            volume_id: raw.volume_id,
            number: raw.number.get(),
            inode: (raw.ino.get(), raw.btime_ns.get()),
            absolute: absolute.to_vec(),
            relative: relative.to_vec(),
        };
        sound.then_some((neighbour, rest))
    }

    /// Reads one from bytes that hold nothing else.
    pub fn checked(bytes: &[u8]) -> Option<Neighbour> {
        Self::first(bytes).filter(|(_, rest)| rest.is_empty()).map(|(neighbour, _)| neighbour)
    }

    /// Where it was, for people.
    pub fn place(&self) -> String {
        String::from_utf8_lossy(&self.absolute).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_reads_back() {
        let (absolute, relative) = (b"/srv/other".to_vec(), b"../other".to_vec());
        let neighbour = Neighbour { volume_id: [3; 16], number: 4, inode: (7, -8), absolute, relative };
        let bytes = neighbour.to_bytes();
        assert_eq!((bytes.len(), bytes[16], bytes[24], bytes[40], bytes[42]), (48 + 24, 4, 7, 10, 8));
        assert_eq!((&bytes[48..66], &bytes[66..]), (&b"/srv/other../other"[..], &[0; 6][..]));
        assert_eq!(Neighbour::checked(&bytes), Some(neighbour.clone()));
        assert!((0..bytes.len()).all(|length| Neighbour::checked(&bytes[..length]).is_none()));
        for at in [45, 66, 71] {
            let mut foul = bytes.clone();
            foul[at] = 1;
            assert_eq!(Neighbour::checked(&foul), None, "byte {at}");
        }
        assert_eq!(Neighbour::checked(&Neighbour { number: 0, ..neighbour }.to_bytes()), None);
    }
}
