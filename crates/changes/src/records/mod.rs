//! The payloads of log entries that speak of objects, names and attributes. `docs/format.md` is this folder in prose.
//!
//! Each type here is one that has been checked: its `checked` refuses bytes that no `to_bytes` has made, and `to_bytes`
//! asserts in debug builds that recovery would take what it makes. A payload that is written and then refused would
//! cost the store.

mod attributes;
mod birth;
mod identity;
mod shadow;
mod space;
mod value;
mod xattr;

pub use attributes::{Attributes, AttributesBefore};
pub use birth::Birth;
pub use identity::{Baseline, Identity};
pub use shadow::{LONGEST_SHADOW, Shadow};
pub use space::Space;
pub use value::Value;
pub use xattr::Xattr;

/// The numbers of the kinds of entries that the log of a store and the file of a change-set have both.
pub mod kind {
    /// Bytes of a file.
    pub const WRITE: u8 = 1;
    /// How long a file is.
    pub const TRUNCATE: u8 = 2;
    /// The payload is an [`Identity`](super::Identity).
    pub const IDENTIFY: u8 = 3;
    /// The payload is a [`Space`](super::Space).
    pub const SPACE: u8 = 6;
    /// The payload is a [`Birth`](super::Birth).
    pub const CREATE: u8 = 16;
    /// The payload is a [`Value`](super::Value).
    pub const NAME: u8 = 17;
    /// The payload is [`Attributes`](super::Attributes).
    pub const ATTRIBUTES: u8 = 18;
    /// The payload is a [`Xattr`](super::Xattr).
    pub const XATTR: u8 = 19;
}

use rustix::fs::FileType;
use wholly_vfs::NAME_MAX;
use wholly_vfs::rules::{PERMISSIONS, TYPE};

/// Bytes of a block: the space of files is told in whole ones.
pub const BLOCK: u64 = 4096;
/// Bytes of the largest file: its blocks of 4 KiB can be told apart in 40 bits.
pub const LARGEST_FILE: u64 = ((1 << 40) - 2) * BLOCK;
/// Bytes of the longest target of a symbolic link.
pub const LONGEST_TARGET: usize = 4095;
/// Bytes of the longest value of an extended attribute.
pub const LONGEST_XATTR: usize = 65536;

/// Whether it is the type of an object and its permissions, and nothing else.
fn is_mode(mode: u32) -> bool {
    FileType::from_raw_mode(mode & TYPE) != FileType::Unknown && mode & !(TYPE | PERMISSIONS) == 0
}

/// Whether it is the name of an object in its directory.
fn is_component(name: &[u8]) -> bool {
    is_name(name) && name != b"." && name != b".." && !name.contains(&b'/')
}

/// Whether it is a name that the host can keep.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_parts_of_paths() {
        for name in [&b"a"[..], b"...", b".a", b"\xff\n", &[b'x'; 255]] {
            assert!(is_component(name), "{name:?}");
        }
        for name in [&b""[..], b".", b"..", b"/", b"a/b", b"a/", b"a\0", &[b'x'; 256]] {
            assert!(!is_component(name), "{name:?}");
        }
    }

    #[test]
    fn modes_have_one_of_seven_types() {
        let types: Vec<u32> = (0..16).map(|bits| bits << 12).filter(|&bits| is_mode(bits | 0o7777)).collect();
        assert_eq!(types, [0o010000, 0o020000, 0o040000, 0o060000, 0o100000, 0o120000, 0o140000]);
        assert!(!is_mode(0o1100644));
    }
}

/// What the tests of the payloads share.
#[cfg(test)]
mod samples {
    use proptest::prelude::*;

    /// Modes of all types.
    pub fn mode() -> impl Strategy<Value = u32> {
        let types = [0o010000u32, 0o020000, 0o040000, 0o060000, 0o100000, 0o120000, 0o140000];
        (proptest::sample::select(types.to_vec()), 0u32..0o10000).prop_map(|(kind, permissions)| kind | permissions)
    }

    /// Names of objects.
    pub fn name() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 1..=255).prop_filter("a name", |name| super::is_component(name))
    }

    /// `bytes` with `new` from byte `at` on.
    pub fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        changed[at..at + new.len()].copy_from_slice(new);
        changed
    }
}
