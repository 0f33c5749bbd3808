//! Payload of `Identify`: which inode of the host an object is, and where it hangs.

use wholly_vfs::Stat;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{is_component, is_mode};

/// Size and times are those of the object as it lay at home when it was first touched.
const FLAG_BASELINE: u32 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawIdentity {
    ino: U64,
    btime_ns: I64,
    handle: U64,
    size: U64,
    mtime_ns: I64,
    ctime_ns: I64,
    parent: U64,
    mode: U32,
    uid: U32,
    gid: U32,
    nlink: U32,
    flags: U32,
    name_length: U32,
    reserved: [u8; 16],
}
const _: () = assert!(size_of::<RawIdentity>() == 96);
const _: () = assert!(std::mem::offset_of!(RawIdentity, parent) == 48);
const _: () = assert!(std::mem::offset_of!(RawIdentity, flags) == 72);

/// What a bystander's write to a file would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Size at home in bytes.
    pub size: u64,
    /// Time of the last change of content in ns.
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes in ns.
    pub ctime_ns: i64,
}

impl Baseline {
    /// The baseline of a file that looks like `stat`.
    pub fn of(stat: &Stat) -> Self {
        Baseline { size: stat.size, mtime_ns: stat.mtime_ns, ctime_ns: stat.ctime_ns }
    }

    /// What differs, in words.
    pub fn difference(&self, now: &Baseline) -> Option<String> {
        if self.size != now.size {
            Some(format!("its size was {} and is {}", self.size, now.size))
        } else if self.mtime_ns != now.mtime_ns {
            Some("its time of modification differs".into())
        } else if self.ctime_ns != now.ctime_ns {
            Some("its time of change differs".into())
        } else {
            None
        }
    }
}

/// Which inode an object is, and its place among the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Inode number; 0: the object has no inode yet.
    pub ino: u64,
    /// Time of birth in ns; with the inode number it names the object for ever.
    pub btime_ns: i64,
    /// Checksum of the host's file handle, 0: none.
    pub handle: u64,
    /// How it lay at home, unless a checkpoint was at work.
    pub baseline: Option<Baseline>,
    /// The object that is its directory, 0: it has no name. The store's directory has none.
    pub parent: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Its name in that directory.
    pub name: Vec<u8>,
}

impl Identity {
    /// Of what has no inode and no name.
    pub fn of_nothing(mode: u32) -> Identity {
        Identity {
            ino: 0,
            btime_ns: 0,
            handle: 0,
            baseline: None,
            parent: 0,
            mode,
            uid: 0,
            gid: 0,
            nlink: 0,
            name: Vec::new(),
        }
    }

    /// The same of a file that lies so at home. What has no inode has nothing there.
    pub fn lying_as(self, baseline: Option<Baseline>) -> Identity {
        Identity { baseline: baseline.filter(|_| self.ino != 0), ..self }
    }

    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let baseline = self.baseline.unwrap_or(Baseline { size: 0, mtime_ns: 0, ctime_ns: 0 });
        let raw = RawIdentity {
            ino: U64::new(self.ino),
            btime_ns: I64::new(self.btime_ns),
            handle: U64::new(self.handle),
            size: U64::new(baseline.size),
            mtime_ns: I64::new(baseline.mtime_ns),
            ctime_ns: I64::new(baseline.ctime_ns),
            parent: U64::new(self.parent),
            mode: U32::new(self.mode),
            uid: U32::new(self.uid),
            gid: U32::new(self.gid),
            nlink: U32::new(self.nlink),
            flags: U32::new(if self.baseline.is_some() { FLAG_BASELINE } else { 0 }),
            name_length: U32::new(self.name.len() as u32),
            reserved: [0; 16],
        };
        let bytes = [raw.as_bytes(), &self.name].concat();
        debug_assert_eq!(Self::checked(&bytes).as_ref(), Some(self));
        bytes
    }

    /// Checks a payload; `None` if it is impossible.
    pub fn checked(bytes: &[u8]) -> Option<Identity> {
        let (raw, name) = RawIdentity::read_from_prefix(bytes).ok()?;
        let baseline = Baseline { size: raw.size.get(), mtime_ns: raw.mtime_ns.get(), ctime_ns: raw.ctime_ns.get() };
        let has_baseline = raw.flags.get() == FLAG_BASELINE;
        let is_placed = raw.parent.get() != 0;
        let sound = name.len() == raw.name_length.get() as usize
            && (if is_placed { is_component(name) } else { name.is_empty() })
            && is_mode(raw.mode.get())
            && (has_baseline || raw.flags.get() == 0)
            && (has_baseline || baseline == Baseline { size: 0, mtime_ns: 0, ctime_ns: 0 })
            // What has no inode has nothing at home.
            && (raw.ino.get() != 0 || !has_baseline && raw.handle.get() == 0)
            && raw.reserved == [0; 16];
        sound.then(|| Identity {
            ino: raw.ino.get(),
            btime_ns: raw.btime_ns.get(),
            handle: raw.handle.get(),
            baseline: has_baseline.then_some(baseline),
            parent: raw.parent.get(),
            mode: raw.mode.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            nlink: raw.nlink.get(),
            name: name.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{mode, name, with};
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Identity {
        Identity {
            ino: 7,
            btime_ns: -1,
            handle: 9,
            baseline: Some(Baseline { size: 3, mtime_ns: 4, ctime_ns: 5 }),
            parent: 1,
            mode: 0o100640,
            uid: 1000,
            gid: 100,
            nlink: 2,
            name: b"name".to_vec(),
        }
    }

    #[test]
    fn fields_stand_where_the_format_has_them() {
        let bytes = sample().to_bytes();
        assert_eq!(bytes.len(), 100);
        assert_eq!((bytes[0], bytes[8], bytes[16], bytes[24], bytes[32], bytes[40]), (7, 255, 9, 3, 4, 5));
        assert_eq!((bytes[48], &bytes[56..60], bytes[68]), (1, &[0o240, 0o201, 0, 0][..], 2));
        assert_eq!((bytes[72], bytes[76], &bytes[96..]), (1, 4, &b"name"[..]));
    }

    #[test]
    fn impossible_ones_are_refused() {
        let bytes = sample().to_bytes();
        for length in 0..bytes.len() {
            assert_eq!(Identity::checked(&bytes[..length]), None, "{length} bytes");
        }
        let foul = [
            ("a name without a directory", with(&bytes, 48, &[0])),
            ("a path", with(&bytes, 96, b"a/bc")),
            ("a zero in the name", with(&bytes, 96, b"abc\0")),
            ("no type", with(&bytes, 56, &0o640u32.to_le_bytes())),
            ("a type of nothing", with(&bytes, 56, &0o110640u32.to_le_bytes())),
            ("more than a mode", with(&bytes, 59, &[1])),
            ("a flag of later days", with(&bytes, 72, &[3])),
            ("a baseline that is said not to count", with(&bytes, 72, &[0])),
            ("a baseline without an inode", with(&with(&bytes, 0, &[0]), 16, &[0])),
            ("reserved bytes", with(&bytes, 95, &[1])),
        ];
        for (what, bytes) in foul {
            assert_eq!(Identity::checked(&bytes), None, "{what}");
        }
        let nameless = Identity { parent: 0, name: Vec::new(), ..sample() }.to_bytes();
        assert_eq!(Identity::checked(&with(&nameless, 48, &[1])), None, "a directory without a name");
        let bare = Identity { ino: 0, handle: 0, baseline: None, ..sample() }.to_bytes();
        assert_eq!(Identity::checked(&with(&bare, 16, &[1])), None, "a handle without an inode");
    }

    #[test]
    fn what_has_no_inode_lies_nowhere() {
        let (then, unmade) = (sample().baseline, Identity { ino: 0, handle: 0, baseline: None, ..sample() });
        assert!(then.is_some());
        assert_eq!(Identity { baseline: None, ..sample() }.lying_as(then), sample());
        // A checkpoint has made it between the two looks.
        let told = unmade.clone().lying_as(then);
        assert_eq!(told, unmade);
        assert_eq!(Identity::checked(&told.to_bytes()), Some(unmade));
    }

    proptest! {
        #[test]
        fn a_payload_reads_back(
            numbers in any::<[u64; 3]>(),
            baseline in proptest::option::of(any::<(u64, i64, i64)>()),
            place in proptest::option::of((1u64.., name())),
            owner in any::<(i64, u32, u32, u32)>(),
            mode in mode(),
        ) {
            let has_inode = numbers[0] != 0;
            let baseline = baseline.filter(|_| has_inode);
            let (parent, name) = place.unwrap_or_default();
            let identity = Identity {
                ino: numbers[0],
                btime_ns: owner.0,
                handle: if has_inode { numbers[1] } else { 0 },
                baseline: baseline.map(|(size, mtime_ns, ctime_ns)| Baseline { size, mtime_ns, ctime_ns }),
                parent,
                mode,
                uid: owner.1,
                gid: owner.2,
                nlink: owner.3,
                name,
            };
            prop_assert_eq!(Identity::checked(&identity.to_bytes()), Some(identity));
        }

        /// Whatever is taken is what its own bytes say: no payload has two readings.
        #[test]
        fn what_is_taken_would_be_written_the_same(changes in proptest::collection::vec((0usize..100, any::<u8>()), 0..4)) {
            let mut bytes = sample().to_bytes();
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            if let Some(identity) = Identity::checked(&bytes) {
                prop_assert_eq!(identity.to_bytes(), bytes);
            }
        }
    }
}
