//! The bytes of a volume. `docs/volume-format.md` describes them in prose.
//!
//! Everything is little-endian. Bytes from the medium are untrusted until a `decode` function has turned them into a
//! native type. Every structure proves itself by a checksum whose seed names the volume and the structure's place, so
//! that rot and misdirected writes are detected.
//!
//! | file | structure |
//! |---|---|
//! | `superblock.rs` | the root of everything: three copies |
//! | `inode.rs` | 256 bytes in four checked lines |
//! | `pointer.rs` | block pointers that prove themselves; the arithmetic of maps |
//! | `dir.rs` | directory leaves and entries |
//! | `xattr.rs` | the extended attributes of an inode, as one run of bytes |
//! | `log.rs` | the log: lanes, and entries of one line. (That of whole blocks: the crate `wholly-blocks`.) |
//! | `head.rs` | which lines of content are in pending blocks |
//! | `bitmap.rs` | which blocks and inodes are in use, kept in step |
//! | `saved.rs` | the allocators as a clean unmount saves them |
//! | `repair.rs` | what a repair is going to store |
//! | `by_number.rs` | no bytes: maps in memory, by the numbers of blocks and inodes |

pub mod bitmap;
pub mod by_number;
pub mod dir;
pub mod head;
pub mod inode;
pub mod log;
pub mod pointer;
pub mod repair;
pub mod saved;
pub mod superblock;
pub mod xattr;

use twox_hash::XxHash3_64;

pub use wholly_blocks::log::mix;
pub use wholly_blocks::{BLOCK, Lba, Run};

/// The seed of all checksums of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The seed of the volume with this id.
    pub fn of(volume_id: &[u8; 16]) -> Seed {
        Seed(XxHash3_64::oneshot_with_seed(0x574c_5956_4f4c_554d, volume_id))
    }

    /// The seed of everything that hangs on one stream of an inode.
    #[inline]
    pub fn stream(self, ino: u64, generation: u32, stream: Stream) -> u64 {
        mix(self.0 ^ ino, u64::from(generation) << 8 | stream as u64)
    }

    /// The checksum of bytes at a place that `place` and `part` name.
    #[inline]
    pub fn sum(self, place: u64, part: u64, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(mix(self.0 ^ place, part), bytes)
    }

    /// The checksum of an inode's extended attributes.
    pub fn xattr_sum(self, ino: u64, generation: u32, bytes: &[u8]) -> u32 {
        self.sum(ino, u64::from(generation) << 8 | 6, bytes) as u32
    }

    /// The checksum of a symbolic link's long target.
    pub fn target_sum(self, ino: u64, generation: u32, target: &[u8]) -> u32 {
        self.sum(ino, u64::from(generation) << 8 | 7, target) as u32
    }
}

/// What an inode has a map for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    /// Content: of a regular file, a directory, a long symbolic link, the inode file.
    Data = 0,
    /// Extended attributes.
    Xattr = 1,
}

/// What is wrong with bytes from the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault(pub &'static str);
