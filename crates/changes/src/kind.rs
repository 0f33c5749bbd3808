//! Kinds of objects.

use wholly_vfs::rules::{DIRECTORY, REGULAR, SYMLINK, TYPE};

/// What an object is. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file with bytes.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO, a socket or a device.
    Special,
}

impl Kind {
    /// By the type bits of a mode.
    pub fn of(mode: u32) -> Kind {
        match mode & TYPE {
            REGULAR => Kind::Regular,
            DIRECTORY => Kind::Directory,
            SYMLINK => Kind::Symlink,
            _ => Kind::Special,
        }
    }

    /// The type bits; of special files only that they are none of the others.
    pub fn bits(self) -> u32 {
        match self {
            Kind::Regular => REGULAR,
            Kind::Directory => DIRECTORY,
            Kind::Symlink => SYMLINK,
            Kind::Special => 0o010_000,
        }
    }
}
