//! Inodes: 256 bytes in four lines, each with a check of its own.
//!
//! Fields of one line change together. What groups share (a directory's times) is in a line of its own, apart from what
//! one group owns. A record of zeros was never used.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::pointer::{MAX_BLOCKS, MAX_DEPTH, MAX_VOLUME_BLOCKS};
use super::{BLOCK, Fault, Seed};

/// Bytes of an inode.
pub const INODE: usize = 256;
/// Bytes of a line.
pub const LINE: usize = 64;
/// Inodes in a block.
pub const PER_BLOCK: u64 = (BLOCK / INODE) as u64;
/// The longest target of a symbolic link that is kept in the inode.
pub const SHORT_TARGET: usize = 56;

/// The root directory.
pub const ROOT: u64 = 1;
/// The file of all inodes. Its own map is in the superblock; its record is empty.
pub const INODE_FILE: u64 = 2;
/// The first inode for others.
pub const FIRST: u64 = 16;

/// Line 0: what the group that changes the inode owns.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawOwned {
    mode: U32,
    uid: U32,
    gid: U32,
    links: U32,
    generation: U32,
    flags: U32,
    size: U64,
    root: U64,
    blocks: U64,
    depth: u8,
    reserved: [u8; 11],
    check: U32,
}
const _: () = assert!(size_of::<RawOwned>() == LINE);
const _: () = assert!(std::mem::offset_of!(RawOwned, check) == LINE - 4);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawTime {
    sec: I64,
    nsec: U32,
}

/// Line 1: times.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawTimes {
    times: [RawTime; 4],
    reserved: [u8; 12],
    check: U32,
}
const _: () = assert!(size_of::<RawTimes>() == LINE);

/// Line 2: what seldom changes.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawMore {
    xattr_root: U64,
    xattr_blocks: U64,
    xattr_bytes: U32,
    xattr_sum: U32,
    parent: U64,
    rdev: U64,
    project: U32,
    xattr_depth: u8,
    reserved: [u8; 15],
    check: U32,
}
const _: () = assert!(size_of::<RawMore>() == LINE);

/// Line 3: the target of a short symbolic link, the checksum of a long one.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawTarget {
    target: [u8; SHORT_TARGET],
    sum: U32,
    check: U32,
}
const _: () = assert!(size_of::<RawTarget>() == LINE);

/// The root of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tree {
    /// The root pointer as it stands on media.
    pub root: u64,
    /// Levels of nodes.
    pub depth: u8,
    /// Blocks that the map has, with its nodes.
    pub blocks: u64,
}

/// What there is of the inode file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InodeMap {
    /// The map. It may have holes.
    pub tree: Tree,
    /// Inodes up to the last block, with those of holes.
    pub inodes: u64,
    /// The highest generation of an inode whose block was given back; 0: none ever was. A number without a record gets
    /// a higher one.
    pub generation_floor: u32,
}

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time {
    /// Seconds since 1970.
    pub sec: i64,
    /// Nanoseconds to add.
    pub nsec: u32,
}

/// Line 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Owned {
    /// Type and permission bits; 0: the inode is free.
    pub mode: u32,
    /// The user who owns it.
    pub uid: u32,
    /// The group of users that owns it.
    pub gid: u32,
    /// Names; of a directory 1, and 0 once it is removed. An inode without names goes at the next mount.
    pub links: u32,
    /// Raised each time the number is used again.
    pub generation: u32,
    /// For later use.
    pub flags: u32,
    /// Length in bytes.
    pub size: u64,
    /// The map of the content.
    pub tree: Tree,
}

/// Line 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Times {
    /// Of the last access.
    pub atime: Time,
    /// Of the last change of content.
    pub mtime: Time,
    /// Of the last change of anything.
    pub ctime: Time,
    /// Of birth.
    pub btime: Time,
}

/// Line 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct More {
    /// The map of the extended attributes.
    pub xattrs: Tree,
    /// Their bytes.
    pub xattr_bytes: u32,
    /// The checksum of these bytes.
    pub xattr_sum: u32,
    /// The directory that a directory is in.
    pub parent: u64,
    /// The number of a device.
    pub rdev: u64,
    /// For quotas, later.
    pub project: u32,
}

/// Line 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The bytes of a short target.
    pub short: [u8; SHORT_TARGET],
    /// The checksum of a long one.
    pub sum: u32,
}

impl Default for Target {
    fn default() -> Self {
        Target { short: [0; SHORT_TARGET], sum: 0 }
    }
}

impl Tree {
    fn is_possible(&self) -> bool {
        self.depth <= MAX_DEPTH && self.blocks < MAX_VOLUME_BLOCKS
    }
}

impl Owned {
    fn is_possible(&self) -> bool {
        self.tree.is_possible() && self.size <= MAX_BLOCKS * BLOCK as u64
    }
}

impl Times {
    fn is_possible(&self) -> bool {
        true
    }
}

impl More {
    fn is_possible(&self) -> bool {
        self.xattrs.is_possible()
    }
}

impl Target {
    fn is_possible(&self) -> bool {
        true
    }
}

/// One line as it stands on media.
pub trait Line: Sized {
    /// Which line of the inode it is.
    const NUMBER: usize;

    /// As it stands on media.
    fn encode(&self, seed: Seed, ino: u64) -> [u8; LINE];

    /// From the medium.
    ///
    /// # Errors
    /// If the check is wrong, or a map or a size is larger than any. A line of zeros is the default.
    fn decode(seed: Seed, ino: u64, raw: &[u8; LINE]) -> Result<Self, Fault>;
}

fn seal(seed: Seed, ino: u64, line: usize, bytes: &[u8]) -> [u8; LINE] {
    let mut raw = [0; LINE];
    raw.copy_from_slice(bytes);
    let sum = seed.sum(ino, line as u64, &raw[..LINE - 4]) as u32;
    raw[LINE - 4..].copy_from_slice(&sum.to_le_bytes());
    raw
}

fn is_sealed(seed: Seed, ino: u64, line: usize, raw: &[u8; LINE]) -> bool {
    seed.sum(ino, line as u64, &raw[..LINE - 4]) as u32 == u32::from_le_bytes([raw[60], raw[61], raw[62], raw[63]])
}

macro_rules! line {
    ($number:literal, $native:ident, $raw:ident, $what:literal, |$value:ident| $encode:expr, |$read:ident| $decode:expr) => {
        impl Line for $native {
            const NUMBER: usize = $number;

            fn encode(&self, seed: Seed, ino: u64) -> [u8; LINE] {
                let $value = self;
                let raw: $raw = $encode;
                seal(seed, ino, $number, raw.as_bytes())
            }

            fn decode(seed: Seed, ino: u64, raw: &[u8; LINE]) -> Result<Self, Fault> {
                if !is_sealed(seed, ino, $number, raw) {
                    return if *raw == [0; LINE] { Ok(Self::default()) } else { Err(Fault($what)) };
                }
                let $read = $raw::read_from_bytes(raw).map_err(|_| Fault($what))?;
                let line: Self = $decode;
                if line.is_possible() { Ok(line) } else { Err(Fault("an inode that is impossible")) }
            }
        }
    };
}

line!(
    0,
    Owned,
    RawOwned,
    "line 0 of an inode has a wrong check",
    |v| RawOwned {
        mode: v.mode.into(),
        uid: v.uid.into(),
        gid: v.gid.into(),
        links: v.links.into(),
        generation: v.generation.into(),
        flags: v.flags.into(),
        size: v.size.into(),
        root: v.tree.root.into(),
        blocks: v.tree.blocks.into(),
        depth: v.tree.depth,
        ..RawOwned::new_zeroed()
    },
    |r| Owned {
        mode: r.mode.get(),
        uid: r.uid.get(),
        gid: r.gid.get(),
        links: r.links.get(),
        generation: r.generation.get(),
        flags: r.flags.get(),
        size: r.size.get(),
        tree: Tree { root: r.root.get(), depth: r.depth, blocks: r.blocks.get() },
    }
);

line!(
    1,
    Times,
    RawTimes,
    "line 1 of an inode has a wrong check",
    |v| RawTimes {
        times: [v.atime, v.mtime, v.ctime, v.btime].map(|t| RawTime { sec: t.sec.into(), nsec: t.nsec.into() }),
        ..RawTimes::new_zeroed()
    },
    |r| {
        let [atime, mtime, ctime, btime] = r.times.map(|t| Time { sec: t.sec.get(), nsec: t.nsec.get() });
        Times { atime, mtime, ctime, btime }
    }
);

line!(
    2,
    More,
    RawMore,
    "line 2 of an inode has a wrong check",
    |v| RawMore {
        xattr_root: v.xattrs.root.into(),
        xattr_blocks: v.xattrs.blocks.into(),
        xattr_bytes: v.xattr_bytes.into(),
        xattr_sum: v.xattr_sum.into(),
        parent: v.parent.into(),
        rdev: v.rdev.into(),
        project: v.project.into(),
        xattr_depth: v.xattrs.depth,
        ..RawMore::new_zeroed()
    },
    |r| More {
        xattrs: Tree { root: r.xattr_root.get(), depth: r.xattr_depth, blocks: r.xattr_blocks.get() },
        xattr_bytes: r.xattr_bytes.get(),
        xattr_sum: r.xattr_sum.get(),
        parent: r.parent.get(),
        rdev: r.rdev.get(),
        project: r.project.get(),
    }
);

line!(
    3,
    Target,
    RawTarget,
    "line 3 of an inode has a wrong check",
    |v| RawTarget { target: v.short, sum: v.sum.into(), ..RawTarget::new_zeroed() },
    |r| Target { short: r.target, sum: r.sum.get() }
);

#[cfg(test)]
mod tests {
    use super::*;

    fn flips<L: Line + PartialEq + std::fmt::Debug + Default>(line: L) {
        let seed = Seed::of(&[3; 16]);
        let raw = line.encode(seed, 20);
        assert_eq!(L::decode(seed, 20, &raw), Ok(line));
        for bit in 0..LINE * 8 {
            let mut changed = raw;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(L::decode(seed, 20, &changed).is_err(), "line {} bit {bit}", L::NUMBER);
            let mut empty = [0; LINE];
            empty[bit / 8] ^= 1 << (bit % 8);
            assert!(L::decode(seed, 20, &empty).is_err(), "empty line {} bit {bit}", L::NUMBER);
        }
        assert!(L::decode(seed, 21, &raw).is_err(), "another inode's");
        assert!(L::decode(Seed::of(&[4; 16]), 20, &raw).is_err(), "another volume's");
        assert_eq!(L::decode(seed, 20, &[0; LINE]), Ok(L::default()));
    }

    #[test]
    fn each_flipped_bit_of_each_line_is_detected() {
        let tree = Tree { root: 77, depth: 2, blocks: 9 };
        flips(Owned { mode: 0o100_644, uid: 1, gid: 2, links: 3, generation: 4, flags: 0, size: 5, tree });
        let time = |sec| Time { sec, nsec: 999_999_999 };
        flips(Times { atime: time(-1), mtime: time(1 << 40), ctime: time(3), btime: time(4) });
        flips(More { xattrs: tree, xattr_bytes: 70_000, xattr_sum: 5, parent: 1, rdev: 0x103, project: 0 });
        flips(Target { short: [7; SHORT_TARGET], sum: 9 });
    }
}
