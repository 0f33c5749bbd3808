//! What the calls of [`Vfs`](super::Vfs) take and give.

use rustix::fs::{FileType, Mode};

/// The number of an inode: a regular file, directory, symbolic link or special file, whatever names it has. The same number means the same
/// inode for as long as somebody refers to it (see [`Vfs`](super::Vfs#references)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory. It needs no reference.
    pub const ROOT: Ino = Ino(1);
}

/// An open file or directory, from `open`, `create`, `tmpfile` or `opendir` to its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// A running explicit group, as whoever began it names it to the calls that belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupId(pub u64);

/// On whose behalf a call is made, and into which group it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The user. User 0 is the superuser: it has the capabilities that concern files (`CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_FOWNER`,
    /// `CAP_FSETID`, `CAP_MKNOD`, and `CAP_SYS_ADMIN` for `trusted.*`); nobody else has any.
    pub uid: u32,
    /// The group of users that new files get.
    pub gid: u32,
    /// The other groups that the user is in.
    pub groups: Vec<u32>,
    /// Permission bits that new files do not get, but where a default ACL says which they get.
    pub umask: Mode,
    /// Whether somebody before the call has seen to it that the user may make it: the kernel does, for a mount. Then nothing is refused for
    /// want of permissions, and nothing that the user's change takes away is taken away here.
    pub is_permitted: bool,
    /// The explicit group that the call belongs to; without one, the policy of the store or volume says into which it goes.
    pub group: Option<GroupId>,
}

impl Context {
    /// The superuser, with umask 022, in no explicit group.
    pub fn superuser() -> Self {
        Context::of(0, 0)
    }

    /// A user who is in one group of users only, with umask 022, in no explicit group.
    pub fn of(uid: u32, gid: u32) -> Self {
        Context { uid, gid, groups: Vec::new(), umask: Mode::WGRP | Mode::WOTH, is_permitted: false, group: None }
    }
}

/// A point in time, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds beyond them, less than 10^9.
    pub nsec: u32,
}

/// What is known of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// Its type, which never changes.
    pub kind: FileType,
    /// The permission bits with set-user-id, set-group-id and sticky.
    pub mode: Mode,
    /// How many names it has; a directory counts itself and the `..` of the directories in it, or is always 1.
    pub nlink: u64,
    /// The user who owns it.
    pub uid: u32,
    /// The group of users that owns it.
    pub gid: u32,
    /// Which device a special file is, as `makedev` makes it; 0 for all others.
    pub rdev: u64,
    /// Length in bytes; of a symbolic link that of its target. A directory's says nothing.
    pub size: u64,
    /// Space that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// The best unit for reads and writes, in bytes.
    pub blksize: u32,
    /// Last access. At least as `relatime` has it: a read raises it where it is not above `mtime` and `ctime`.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
}

/// What [`Vfs::setattr`](super::Vfs::setattr) does to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SetTime {
    /// Leaves it (`UTIME_OMIT`).
    #[default]
    Omit,
    /// Sets it to now (`UTIME_NOW`).
    Now,
    /// Sets it to this.
    At(Timestamp),
}

/// What [`Vfs::setattr`](super::Vfs::setattr) changes. What is `None` or [`SetTime::Omit`] stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// The permission bits with set-user-id, set-group-id and sticky.
    pub mode: Option<Mode>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group of users.
    pub gid: Option<u32>,
    /// The size of a regular file, in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the content.
    pub mtime: SetTime,
}

/// One name that [`Vfs::readdir`](super::Vfs::readdir) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'n> {
    /// What it names. No reference comes with it.
    pub ino: Ino,
    /// Where to go on behind it: for the next call. Not a number of anything.
    pub next: u64,
    /// The type of what it names.
    pub kind: FileType,
    /// The name.
    pub name: &'n [u8],
}

/// From where [`Vfs::seek`](super::Vfs::seek) looks, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The first byte at or behind this one that is not in a hole (`SEEK_DATA`).
    Data(u64),
    /// The first byte at or behind this one that is in a hole; the end of a file counts as one (`SEEK_HOLE`).
    Hole(u64),
}

/// The state of the whole store or volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many are free.
    pub free_blocks: u64,
    /// How many are free for who is not the superuser.
    pub available_blocks: u64,
    /// How many inodes there can be; 0 where nobody counts them.
    pub inodes: u64,
    /// How many more there can be.
    pub free_inodes: u64,
    /// The longest name, in bytes.
    pub name_max: u64,
}
