//! Objects of an ordinary directory.

/// Which inode something is: its number, and its time of birth in ns since the epoch, 0 where the file system has none.
pub type Inode = (u64, i64);

/// What is known of a host object: its identity, and what a bystander's change would alter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stat {
    /// Inode number.
    pub ino: u64,
    /// Time of birth in ns since the epoch, 0 where the file system has none. With `ino` it names the file for ever.
    pub btime_ns: i64,
    /// Size in bytes.
    pub size: u64,
    /// Bytes allocated to the file.
    pub allocated: u64,
    /// Time of the last access in ns since the epoch.
    pub atime_ns: i64,
    /// Time of the last change of content in ns since the epoch.
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes in ns since the epoch.
    pub ctime_ns: i64,
    /// Type and permission bits as in `st_mode`.
    pub mode: u32,
    /// Number of names; of a directory as the file system counts.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device, its number.
    pub rdev: u64,
    /// Whether nobody may change it, its names or its attributes (`chattr +i`).
    pub is_immutable: bool,
    /// Whether a file may only be appended to, and a directory may only get names (`chattr +a`).
    pub is_append_only: bool,
}

impl Stat {
    /// Which inode it is.
    pub fn inode(&self) -> Inode {
        (self.ino, self.btime_ns)
    }

    /// Whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// One name of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Inode number of what has it.
    pub ino: u64,
    /// The type bits of its `st_mode`; 0 where the file system does not tell them here.
    pub kind: u32,
}
