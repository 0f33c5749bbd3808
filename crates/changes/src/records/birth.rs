//! Payload of `Create`: all that an object is made with.

use rustix::fs::FileType;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{LONGEST_TARGET, is_mode};
use crate::Kind;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawBirth {
    mode: U32,
    uid: U32,
    gid: U32,
    target_length: U32,
    rdev: U64,
    btime_ns: I64,
    atime_ns: I64,
    mtime_ns: I64,
    reserved: [u8; 16],
}
const _: () = assert!(size_of::<RawBirth>() == 64);
const _: () = assert!(std::mem::offset_of!(RawBirth, rdev) == 16);
const _: () = assert!(std::mem::offset_of!(RawBirth, reserved) == 48);

/// An object as a group creates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device its number, else 0.
    pub rdev: u64,
    /// Time of birth in ns.
    pub btime_ns: i64,
    /// Time of the last access in ns.
    pub atime_ns: i64,
    /// Time of the last change of content in ns.
    pub mtime_ns: i64,
    /// Of a symbolic link its target, else nothing.
    pub target: Vec<u8>,
}

impl Birth {
    /// Whether it stands for a directory that the group has adopted.
    pub fn is_adopted_directory(&self) -> bool {
        self.btime_ns == 1 && Kind::of(self.mode) == Kind::Directory
    }

    /// What an undo has of an object that the group has made or adopted: only its type, and which of the two it is.
    pub fn placeholder(mode: u32, is_adopted: bool) -> Birth {
        let target = if Kind::of(mode) == Kind::Symlink { b".".to_vec() } else { Vec::new() };
        Birth { mode, uid: 0, gid: 0, rdev: 0, btime_ns: i64::from(is_adopted), atime_ns: 0, mtime_ns: 0, target }
    }

    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let raw = RawBirth {
            mode: U32::new(self.mode),
            uid: U32::new(self.uid),
            gid: U32::new(self.gid),
            target_length: U32::new(self.target.len() as u32),
            rdev: U64::new(self.rdev),
            btime_ns: I64::new(self.btime_ns),
            atime_ns: I64::new(self.atime_ns),
            mtime_ns: I64::new(self.mtime_ns),
            reserved: [0; 16],
        };
        let bytes = [raw.as_bytes(), &self.target].concat();
        debug_assert_eq!(Self::checked(&bytes).as_ref(), Some(self));
        bytes
    }

    /// Checks a payload; `None` if it is impossible.
    pub fn checked(bytes: &[u8]) -> Option<Birth> {
        let (raw, target) = RawBirth::read_from_prefix(bytes).ok()?;
        let mode = raw.mode.get();
        let kind = FileType::from_raw_mode(mode);
        let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
        let sound = is_mode(mode)
            && target.len() == raw.target_length.get() as usize
            && target.is_empty() != (kind == FileType::Symlink)
            && target.len() <= LONGEST_TARGET
            && !target.contains(&0)
            && (is_device || raw.rdev.get() == 0)
            && raw.reserved == [0; 16];
        sound.then(|| Birth {
            mode,
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            rdev: raw.rdev.get(),
            btime_ns: raw.btime_ns.get(),
            atime_ns: raw.atime_ns.get(),
            mtime_ns: raw.mtime_ns.get(),
            target: target.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{mode, with};
    use super::*;
    use proptest::prelude::*;

    fn file() -> Birth {
        Birth { mode: 0o100600, uid: 1, gid: 2, rdev: 0, btime_ns: 4, atime_ns: 5, mtime_ns: -6, target: Vec::new() }
    }

    fn link() -> Birth {
        Birth { mode: 0o120777, target: b"../b".to_vec(), ..file() }
    }

    #[test]
    fn fields_stand_where_the_format_has_them() {
        let device = Birth { mode: 0o020600, rdev: 3, ..file() };
        let bytes = device.to_bytes();
        assert_eq!(bytes.len(), 64);
        assert_eq!((&bytes[..4], bytes[4], bytes[8], bytes[12]), (&[0o200, 0o41, 0, 0][..], 1, 2, 0));
        assert_eq!((bytes[16], bytes[24], bytes[32], bytes[40]), (3, 4, 5, 250));
        let bytes = link().to_bytes();
        assert_eq!((bytes[12], &bytes[64..]), (4, &b"../b"[..]));
    }

    #[test]
    fn impossible_ones_are_refused() {
        let bytes = link().to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Birth::checked(&bytes[..length]), None, "{length} bytes");
        }
        let long = [&with(&bytes, 12, &4096u32.to_le_bytes())[..64], &[b'x'; 4096]].concat();
        let foul = [
            ("a file with a target", with(&bytes, 0, &0o100777u32.to_le_bytes())),
            ("a link without one", with(&file().to_bytes(), 0, &0o120777u32.to_le_bytes())),
            ("a zero in the target", with(&bytes, 65, &[0])),
            ("a target that is too long", long),
            ("a file with a device's number", with(&file().to_bytes(), 16, &[1])),
            ("no type", with(&file().to_bytes(), 0, &0o600u32.to_le_bytes())),
            ("reserved bytes", with(&bytes, 48, &[1])),
        ];
        for (what, bytes) in foul {
            assert_eq!(Birth::checked(&bytes), None, "{what}");
        }
    }

    proptest! {
        #[test]
        fn a_payload_reads_back(
            mode in mode(),
            owner in any::<(u32, u32, u64)>(),
            times in any::<[i64; 3]>(),
            target in proptest::collection::vec(1u8.., 1..=LONGEST_TARGET),
        ) {
            let kind = FileType::from_raw_mode(mode);
            let is_device = matches!(kind, FileType::CharacterDevice | FileType::BlockDevice);
            let birth = Birth {
                mode,
                uid: owner.0,
                gid: owner.1,
                rdev: if is_device { owner.2 } else { 0 },
                btime_ns: times[0],
                atime_ns: times[1],
                mtime_ns: times[2],
                target: if kind == FileType::Symlink { target } else { Vec::new() },
            };
            prop_assert_eq!(Birth::checked(&birth.to_bytes()), Some(birth));
        }

        #[test]
        fn what_is_taken_would_be_written_the_same(changes in proptest::collection::vec((0usize..68, any::<u8>()), 0..4)) {
            let mut bytes = link().to_bytes();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Some(birth) = Birth::checked(&bytes) {
                prop_assert_eq!(birth.to_bytes(), bytes);
            }
        }
    }
}
