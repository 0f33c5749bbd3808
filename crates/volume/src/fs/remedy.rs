//! What puts each fault that a check finds right. `repair.rs` carries it out.
//!
//! Remedies are carried out by [rank](Remedy::rank): those of a higher rank rely on what those of a lower one have made
//! sound. In particular, blocks are taken only when all maps can be walked, so that it is known which are free.

use std::fmt;

use crate::format::Lba;
use crate::format::bitmap::{BitmapAt, Bits};

/// One of the maps of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapOf {
    InodeFile,
    Content(u64),
    Xattrs(u64),
}

impl fmt::Display for MapOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapOf::InodeFile => f.write_str("inode file"),
            MapOf::Content(ino) => write!(f, "content of inode {ino}"),
            MapOf::Xattrs(ino) => write!(f, "extended attributes of inode {ino}"),
        }
    }
}

/// How many ranks there are.
pub const RANKS: usize = 8;

/// See the module. Places are a block and a slot of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// That of another fault is enough.
    Other,
    /// All copies of the superblock are written again.
    Superblocks,
    /// An inode goes, with all that it has.
    Inode(u64),
    /// New times.
    Times(u64),
    /// Line 2 without extended attributes.
    More(u64),
    /// Line 3 without a target, of an inode that has none.
    Target(u64),
    /// An inode loses its extended attributes.
    Xattrs(u64),
    /// A pointer becomes a hole.
    Cut { of: MapOf, level: u8, index: u64 },
    /// The same, of a block that is another's.
    Twice { of: MapOf, level: u8, index: u64 },
    /// The same, of a block of content whose owner is not known.
    Unowned { ino: u64, index: u64 },
    /// A block of content that several files have which the same users may read: each gets a copy.
    Copy { ino: u64, index: u64 },
    /// Of these files, the one that keeps the block.
    Keep { ino: u64, index: u64 },
    /// The number of blocks of a map.
    Blocks { of: MapOf, count: u64 },
    /// Blocks without inodes for those that the inode file lacks, and how many there are.
    InodeFile,
    /// An entry of a directory goes, or what looks like one.
    Entry { at: (Lba, usize) },
    /// The first word of a slot becomes zeros.
    Slot { at: (Lba, usize) },
    /// A new root directory, without names.
    Root,
    /// Leaves without names for those that a directory lacks.
    Leaves(u64),
    /// An entry that leads nowhere goes.
    Name { at: (Lba, usize) },
    /// An entry of a directory that has no name itself goes.
    Stray { at: (Lba, usize) },
    /// The number of names of an inode.
    Links { ino: u64, names: u32 },
    /// The parent of a directory.
    Parent { ino: u64, parent: u64 },
    /// A name for an inode that has none.
    Attach { ino: u64, kind: u8 },
    /// A bitmap block is written anew, by what all maps and inodes say.
    Bitmap { at: BitmapAt, bits: Bits },
}

impl Remedy {
    /// Remedies of a rank are carried out when there are none of a lower one.
    pub fn rank(&self) -> usize {
        match self {
            Remedy::Inode(_)
            | Remedy::Times(_)
            | Remedy::More(_)
            | Remedy::Target(_)
            | Remedy::Xattrs(_)
            | Remedy::Cut { .. } => 0,
            Remedy::Twice { .. }
            | Remedy::Unowned { .. }
            | Remedy::Copy { .. }
            | Remedy::Keep { .. }
            | Remedy::Blocks { .. }
            | Remedy::InodeFile => 1,
            Remedy::Entry { .. } | Remedy::Slot { .. } | Remedy::Root | Remedy::Leaves(_) => 2,
            Remedy::Name { .. } | Remedy::Links { .. } | Remedy::Parent { .. } | Remedy::Superblocks => 3,
            // It may have a name, and only the count is wrong.
            Remedy::Stray { .. } => 4,
            Remedy::Attach { .. } => 5,
            Remedy::Bitmap { .. } => 6,
            Remedy::Other => RANKS - 1,
        }
    }

    /// Whether nothing is lost by it, and nothing is a matter of opinion.
    pub fn is_safe(&self) -> bool {
        matches!(
            self,
            Remedy::Superblocks
                | Remedy::Blocks { .. }
                | Remedy::Slot { .. }
                | Remedy::Links { .. }
                | Remedy::Bitmap { .. }
                | Remedy::Other
        )
    }

    /// What was done, for people.
    pub fn done(&self) -> String {
        match self {
            Remedy::Other => "put right with the rest".into(),
            Remedy::Superblocks => "written again".into(),
            Remedy::Inode(ino) => format!("inode {ino} and its content are lost"),
            Remedy::Times(_) => "its times are lost: set to now".into(),
            Remedy::More(_) | Remedy::Xattrs(_) => {
                "its extended attributes are lost; as an access control list may have been among them, group and \
                 others may not use it any more"
                    .into()
            }
            Remedy::Target(_) => "written again".into(),
            Remedy::Cut { of: MapOf::InodeFile, level: 0, index } => {
                format!("inodes {} to {} are lost", index * 16, index * 16 + 15)
            }
            Remedy::Cut { of: MapOf::InodeFile, level, index } => {
                let count = 16u128 << (9 * u32::from(*level));
                let first = u128::from(*index) * count;
                format!("inodes {first} to {} are lost", first + count - 1)
            }
            Remedy::Cut { level, index, .. } => format!("{} of it are lost", bytes(*level, *index)),
            Remedy::Twice { of: MapOf::Content(_), level, index } => {
                format!("{} of it are lost: the block is another's", bytes(*level, *index))
            }
            Remedy::Twice { .. } => "lost here: the block is another's".into(),
            Remedy::Unowned { index, .. } => {
                format!("{} of it are lost: nothing says whose they are", bytes(0, *index))
            }
            Remedy::Copy { index, .. } | Remedy::Keep { index, .. } => {
                format!("{} may be those of another file: each has a copy", bytes(0, *index))
            }
            Remedy::Blocks { count, .. } => format!("set to {count}"),
            Remedy::InodeFile => "filled up with free inodes".into(),
            Remedy::Entry { .. } => "the entry is removed".into(),
            Remedy::Slot { .. } => "cleared".into(),
            Remedy::Root => "a new one is made".into(),
            Remedy::Leaves(_) => "filled up with empty ones".into(),
            Remedy::Name { .. } | Remedy::Stray { .. } => "the name is removed".into(),
            Remedy::Links { names, .. } => format!("set to {names}"),
            Remedy::Parent { parent, .. } => format!("set to {parent}"),
            Remedy::Bitmap { .. } => "written anew".into(),
            Remedy::Attach { ino, .. } => format!("named \"#{ino}\" in the directory lost+found"),
        }
    }
}

/// The bytes of a file that the pointer at `index` of `level` leads to.
fn bytes(level: u8, index: u64) -> String {
    let count = 4096u128 << (9 * u32::from(level));
    let first = u128::from(index) * count;
    format!("bytes {first} to {}", first + count - 1)
}
