//! The inodes that somebody refers to, each with a descriptor.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp};
use wholly_vfs::{Attr, Errno, FileType, Ino, Mode, Result, Timestamp};

struct Inode {
    fd: Arc<OwnedFd>,
    references: u64,
}

/// By the host's numbers, except that the root's changes places with whatever the host calls 1.
pub(super) struct Inodes {
    root: Arc<OwnedFd>,
    host_root: u64,
    known: Mutex<HashMap<Ino, Inode>>,
}

impl Inodes {
    pub fn new(root: OwnedFd) -> Result<Inodes> {
        let host_root = rustix::fs::fstat(&root)?.st_ino;
        Ok(Inodes { root: Arc::new(root), host_root, known: Mutex::default() })
    }

    pub fn root(&self) -> Arc<OwnedFd> {
        self.root.clone()
    }

    /// What the host calls the root.
    pub fn host_root(&self) -> u64 {
        self.host_root
    }

    /// The number of what the host calls `host`.
    pub fn number(&self, host: u64) -> Ino {
        match host {
            host if host == self.host_root => Ino::ROOT,
            1 => Ino(self.host_root),
            host => Ino(host),
        }
    }

    /// The descriptor of an inode: the root's can be read from, the others only name.
    pub fn get(&self, ino: Ino) -> Result<Arc<OwnedFd>> {
        if ino == Ino::ROOT {
            return Ok(self.root.clone());
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&ino).map(|inode| inode.fd.clone()).ok_or(Errno::STALE)
    }

    pub fn attr(&self, ino: Ino) -> Result<Attr> {
        let mut attr = attr_of(&*self.get(ino)?)?;
        attr.ino = ino;
        Ok(attr)
    }

    /// One reference more to what a new descriptor names.
    pub fn adopt(&self, fd: OwnedFd) -> Result<Attr> {
        let mut attr = attr_of(&fd)?;
        attr.ino = self.number(attr.ino.0);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(attr.ino).or_insert_with(|| Inode { fd: Arc::new(fd), references: 0 }).references += 1;
        Ok(attr)
    }

    pub fn forget(&self, ino: Ino, references: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let inode = known.get_mut(&ino).expect("who forgets has referred to it");
        inode.references = inode.references.checked_sub(references).expect("no more is forgotten than was given");
        if inode.references == 0 {
            known.remove(&ino);
        }
    }

    pub fn references(&self) -> u64 {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).values().map(|inode| inode.references).sum()
    }
}

fn attr_of(fd: &OwnedFd) -> Result<Attr> {
    let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let time = |time: StatxTimestamp| Timestamp { sec: time.tv_sec, nsec: time.tv_nsec };
    Ok(Attr {
        ino: Ino(stat.stx_ino),
        kind: FileType::from_raw_mode(stat.stx_mode.into()),
        mode: Mode::from_raw_mode(stat.stx_mode.into()),
        nlink: stat.stx_nlink.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        blksize: stat.stx_blksize,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
    })
}
