//! Open files and directories: what handles have.

use std::sync::Arc;

use super::directories::Listing;
use crate::hostdir::handle::File;
use sync::{AtomicU8, AtomicU64, Mutex};
use wholly_vfs::{Errno, Ino, OFlags, Result};

/// A regular file that is open.
pub(super) struct OpenFile {
    pub ino: Ino,
    pub id: u64,
    pub file: File,
    pub flags: OFlags,
    /// The [count of changes](super::StoreVfs) at which the file had no privileges that a write takes away; 0 for none.
    pub plain_at: AtomicU64,
    /// Whether it was read since it was last written to by this handle: that its time of access tells so is seen to.
    pub was_read: AtomicU8,
}

impl OpenFile {
    pub fn new(ino: Ino, id: u64, file: File, flags: OFlags) -> Self {
        OpenFile { ino, id, file, flags, plain_at: AtomicU64::new(0), was_read: AtomicU8::new(0) }
    }

    pub fn reads(&self) -> bool {
        !self.flags.contains(OFlags::WRONLY)
    }

    pub fn writes(&self) -> bool {
        self.flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    }
}

/// A directory that is open.
pub(super) struct OpenDirectory {
    pub ino: Ino,
    pub id: u64,
    /// Its names as they were when somebody last began to read it.
    pub names: Mutex<Option<Arc<Listing>>>,
}

pub(super) enum Open {
    File(OpenFile),
    Directory(OpenDirectory),
}

impl Open {
    pub fn file(&self) -> Result<&OpenFile> {
        match self {
            Open::File(file) => Ok(file),
            Open::Directory(_) => Err(Errno::BADF),
        }
    }

    pub fn directory(&self) -> Result<&OpenDirectory> {
        match self {
            Open::Directory(dir) => Ok(dir),
            Open::File(_) => Err(Errno::BADF),
        }
    }

    pub fn ino(&self) -> Ino {
        match self {
            Open::File(file) => file.ino,
            Open::Directory(dir) => dir.ino,
        }
    }
}
