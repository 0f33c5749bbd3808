//! Payloads of `Identify` and `Create` entries: which host file a number in the log stands for.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use super::records::Baseline;

/// Size and times are those of the file as it lay at home when it was first touched.
const FLAG_BASELINE: u32 = 1;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawIdentity {
    ino: U64,
    btime_ns: I64,
    size: U64,
    mtime_ns: I64,
    ctime_ns: I64,
    mode: U32,
    flags: U32,
    path_length: U32,
    reserved: [u8; 12],
}
const _: () = assert!(size_of::<RawIdentity>() == 64);

/// Which host file is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Inode number.
    pub ino: u64,
    /// Time of birth in ns; with the inode number it names the file for ever.
    pub btime_ns: i64,
    /// Permission bits, for a file that has to be made again.
    pub mode: u32,
    /// How it lay at home, unless a checkpoint was at work.
    pub baseline: Option<Baseline>,
    /// Path below the store's directory.
    pub path: Vec<u8>,
}

impl Identity {
    /// The payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        let baseline = self.baseline.unwrap_or(Baseline { size: 0, mtime_ns: 0, ctime_ns: 0 });
        let raw = RawIdentity {
            ino: U64::new(self.ino),
            btime_ns: I64::new(self.btime_ns),
            size: U64::new(baseline.size),
            mtime_ns: I64::new(baseline.mtime_ns),
            ctime_ns: I64::new(baseline.ctime_ns),
            mode: U32::new(self.mode),
            flags: U32::new(if self.baseline.is_some() { FLAG_BASELINE } else { 0 }),
            path_length: U32::new(self.path.len() as u32),
            reserved: [0; 12],
        };
        [raw.as_bytes(), &self.path].concat()
    }

    /// Checks a payload; `None` if it is impossible.
    pub fn checked(bytes: &[u8]) -> Option<Identity> {
        let (raw, path) = RawIdentity::read_from_prefix(bytes).ok()?;
        let sound = path.len() == raw.path_length.get() as usize
            && !path.is_empty()
            && path.split(|&byte| byte == b'/').all(|part| !part.is_empty() && part != b"." && part != b"..")
            && !path.contains(&0)
            && raw.flags.get() & !FLAG_BASELINE == 0
            && raw.reserved == [0; 12];
        sound.then(|| Identity {
            ino: raw.ino.get(),
            btime_ns: raw.btime_ns.get(),
            mode: raw.mode.get(),
            baseline: (raw.flags.get() & FLAG_BASELINE != 0).then(|| Baseline {
                size: raw.size.get(),
                mtime_ns: raw.mtime_ns.get(),
                ctime_ns: raw.ctime_ns.get(),
            }),
            path: path.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_reads_back_and_impossible_ones_are_refused() {
        let identity = Identity {
            ino: 7,
            btime_ns: -1,
            mode: 0o640,
            baseline: Some(Baseline { size: 3, mtime_ns: 4, ctime_ns: 5 }),
            path: b"a/b".to_vec(),
        };
        assert_eq!(Identity::checked(&identity.to_bytes()), Some(identity.clone()));
        for path in [&b""[..], b"/a", b"a/", b"a//b", b"../a", b"a/./b", b"a\0"] {
            let foul = Identity { path: path.to_vec(), ..identity.clone() };
            assert_eq!(Identity::checked(&foul.to_bytes()), None, "{path:?}");
        }
        assert_eq!(Identity::checked(&identity.to_bytes()[..63]), None);
    }
}
