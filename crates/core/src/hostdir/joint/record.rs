//! Records of joint commits on media: see `docs/format.md`.

use wholly_changes::Neighbour;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::log::checksum::checksum;

const MAGIC: [u8; 8] = *b"WHOLLYJT";
const VERSION: u32 = 1;

/// Participants of the largest joint commit.
pub const MOST: usize = 1024;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawRecord {
    checksum: U64,
    magic: [u8; 8],
    version: U32,
    participants: U32,
    volume_id: [u8; 16],
    id: U64,
    reserved: [u8; 16],
}
const HEAD: usize = 64;
const _: () = assert!(size_of::<RawRecord>() == HEAD);
const _: () = assert!(std::mem::offset_of!(RawRecord, volume_id) == 24);

/// Who takes part in a joint commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The coordinator.
    pub volume_id: [u8; 16],
    /// The number of the joint commit: the id of the coordinator's own group.
    pub id: u64,
    /// The coordinator is among them.
    pub participants: Vec<Neighbour>,
}

/// What is wrong with a record that is sound, but has a version that is not known here.
pub const LATER: &str = "a later version of Wholly wrote it: use that";

impl Record {
    pub fn to_bytes(&self) -> Vec<u8> {
        let raw = RawRecord {
            checksum: U64::new(0),
            magic: MAGIC,
            version: U32::new(VERSION),
            participants: U32::new(self.participants.len() as u32),
            volume_id: self.volume_id,
            id: U64::new(self.id),
            reserved: [0; 16],
        };
        let mut bytes = raw.as_bytes().to_vec();
        self.participants.iter().for_each(|participant| bytes.extend(participant.to_bytes()));
        let sum = checksum(0, &bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// # Errors
    /// What does not fit, in words.
    pub fn checked(bytes: &[u8]) -> Result<Record, &'static str> {
        let (raw, mut rest) = RawRecord::read_from_prefix(bytes).map_err(|_| "it is too short")?;
        if raw.magic != MAGIC {
            return Err("not a record of a joint commit");
        }
        if raw.checksum.get() != checksum(0, &bytes[8..]) {
            return Err("it does not match its checksum");
        }
        if raw.version.get() != VERSION {
            return Err(LATER);
        }
        const IMPOSSIBLE: &str = "its content is invalid";
        let count = raw.participants.get() as usize;
        if raw.reserved != [0; 16] || raw.id.get() == 0 || count > MOST {
            return Err(IMPOSSIBLE);
        }
        let mut participants = Vec::new();
        for _ in 0..count {
            let (participant, behind) = Neighbour::first(rest).ok_or(IMPOSSIBLE)?;
            participants.push(participant);
            rest = behind;
        }
        match rest.is_empty() {
            true => Ok(Record { volume_id: raw.volume_id, id: raw.id.get(), participants }),
            false => Err(IMPOSSIBLE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let neighbour = |number, absolute: &str, relative: &str| Neighbour {
            volume_id: [number as u8; 16],
            number,
            inode: (7, -8),
            absolute: absolute.into(),
            relative: relative.into(),
        };
        let participants = vec![neighbour(3, "/srv/a", ""), neighbour(4, "/srv/other", "../other")];
        Record { volume_id: [3; 16], id: 3, participants }
    }

    #[test]
    fn fields_stand_where_the_format_has_them() {
        let bytes = record().to_bytes();
        assert_eq!(
            (&bytes[8..16], bytes[16], bytes[20], &bytes[24..40], bytes[40]),
            (&MAGIC[..], 1, 2, &[3; 16][..], 3)
        );
        let first = &bytes[HEAD..];
        assert_eq!((&first[..16], first[16], first[24], first[40], first[42]), (&[3; 16][..], 3, 7, 6, 0));
        assert_eq!(&first[48..56], b"/srv/a\0\0");
        assert_eq!(first[32..40], (-8i64).to_le_bytes());
        assert_eq!(bytes.len(), HEAD + 56 + 48 + 24);
    }

    #[test]
    fn it_reads_back_and_has_one_reading() {
        let bytes = record().to_bytes();
        assert_eq!(Record::checked(&bytes), Ok(record()));
        for length in 0..bytes.len() {
            assert!(Record::checked(&bytes[..length]).is_err(), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut foul = bytes.clone();
            foul[at] ^= 1;
            assert!(Record::checked(&foul).is_err(), "byte {at}");
            // Also where the checksum is right.
            let sum = checksum(0, &foul[8..]);
            foul[..8].copy_from_slice(&sum.to_le_bytes());
            if let Ok(read) = Record::checked(&foul) {
                assert_eq!(read.to_bytes(), foul, "byte {at}");
            }
        }
    }
}
