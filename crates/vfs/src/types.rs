//! What the calls of [`Vfs`](super::Vfs) take and give.

use rustix::fs::{FileType, Mode};

/// The number of an inode: a regular file, directory, symbolic link or special file, with any number of names. It means
/// the same inode as long as that has a reference (see [`Vfs`](super::Vfs#references)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory. It needs no reference.
    pub const ROOT: Ino = Ino(1);
}

/// A running explicit group: the number that its calls have in their contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub u64);

/// The user for whom a call is made, and the group that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The user. User 0 is the superuser, with the capabilities for files: `CAP_CHOWN`, `CAP_DAC_OVERRIDE`,
    /// `CAP_FOWNER`, `CAP_FSETID`, `CAP_MKNOD`, and `CAP_SYS_ADMIN` for `trusted.*`. Other users have no capabilities.
    pub uid: u32,
    /// The group of users that new files get.
    pub gid: u32,
    /// The other groups of users that the user is in.
    pub groups: Vec<u32>,
    /// Permission bits that new files do not get, unless a default ACL says which they get.
    pub umask: Mode,
    /// Whether permissions were already checked, as the kernel does for a mount. Nothing is then refused for want of
    /// permissions, and bits that a user's change clears are not cleared here.
    pub is_permitted: bool,
    /// The explicit group that the call belongs to. `None`: the policy of the store or volume chooses the group.
    pub group: Option<GroupId>,
    /// The thread that makes the call, and its process, by the kernel's numbers; 0 where that is not known.
    pub thread: u32,
    /// See `thread`.
    pub process: u32,
}

impl Context {
    /// The superuser, with umask 022, in no explicit group.
    pub fn superuser() -> Self {
        Context::of(0, 0)
    }

    /// A user who is in one group of users only, with umask 022, in no explicit group.
    pub fn of(uid: u32, gid: u32) -> Self {
        Context {
            uid,
            gid,
            groups: Vec::new(),
            umask: Mode::WGRP | Mode::WOTH,
            is_permitted: false,
            group: None,
            thread: 0,
            process: 0,
        }
    }
}

/// A point in time, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds to add, less than 10^9.
    pub nsec: u32,
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The number of the inode.
    pub ino: Ino,
    /// The type, which never changes.
    pub kind: FileType,
    /// The permission bits, with set-user-id, set-group-id and sticky.
    pub mode: Mode,
    /// The number of names. A directory counts itself and the `..` of the directories in it, or is always 1.
    pub nlink: u64,
    /// The user who owns it.
    pub uid: u32,
    /// The group of users that owns it.
    pub gid: u32,
    /// The device number of a device, as `makedev` makes it; else 0.
    pub rdev: u64,
    /// Length in bytes; of a symbolic link, the length of its target. Without meaning for a directory.
    pub size: u64,
    /// Disk space that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// The best unit for reads and writes, in bytes.
    pub blksize: u32,
    /// Time of the last access. Like `relatime` or better: a read updates it if it is not later than `mtime` and
    /// `ctime`.
    pub atime: Timestamp,
    /// Time of the last change of content.
    pub mtime: Timestamp,
    /// Time of the last change of anything.
    pub ctime: Timestamp,
}

/// What [`Vfs::setattr`](super::Vfs::setattr) does to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Keep it (`UTIME_OMIT`).
    #[default]
    Omit,
    /// Set it to the current time (`UTIME_NOW`).
    Now,
    /// Set it to this time.
    At(Timestamp),
}

/// What [`Vfs::setattr`](super::Vfs::setattr) changes. A field that is `None` or [`SetTime::Omit`] stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// The permission bits, with set-user-id, set-group-id and sticky.
    pub mode: Option<Mode>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group of users.
    pub gid: Option<u32>,
    /// The size of a regular file, in bytes.
    pub size: Option<u64>,
    /// Time of the last access.
    pub atime: SetTime,
    /// Time of the last change of content.
    pub mtime: SetTime,
}

/// One name that [`Vfs::readdir`](super::Vfs::readdir) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'n> {
    /// The inode that has the name. It comes without a reference.
    pub ino: Ino,
    /// The offset for the next call, to continue after this name. It has no other meaning.
    pub next: u64,
    /// The type of the inode.
    pub kind: FileType,
    /// The name.
    pub name: &'n [u8],
}

/// From where [`Vfs::seek`](super::Vfs::seek) searches, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The first byte at or after this one that is not in a hole (`SEEK_DATA`).
    Data(u64),
    /// The first byte at or after this one that is in a hole; the end of a file counts as one (`SEEK_HOLE`).
    Hole(u64),
}

/// Calls outside of explicit groups that no sync has committed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The number of files that they have changed.
    pub files: u64,
    /// How often such calls were committed without a sync or the timer, for want of space or because they were very
    /// many: under the policy `shared` alone.
    pub early_commits: u64,
}

/// Space and inodes of the whole store or volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of free blocks.
    pub free_blocks: u64,
    /// The number of free blocks that an ordinary user can take.
    pub available_blocks: u64,
    /// The number of inodes that can exist; 0 if the file system does not count them.
    pub inodes: u64,
    /// The number of inodes that can still be made.
    pub free_inodes: u64,
    /// The longest name, in bytes.
    pub name_max: u64,
}
