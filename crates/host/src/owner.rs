//! One process owns a store.

use super::claim::Claim;
use super::resolve::open_beneath;
use crate::sys::{self, Lock, OrFail};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use std::sync::Arc;
use wholly_media::Result;

/// The name of the lock file in a store's folder.
pub(super) const LOCK: &str = "lock";

/// Somebody else owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The process that took ownership, as it knows itself (another container may number it differently). `None` where
    /// it has not written its number yet.
    pub pid: Option<u32>,
}

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "owned by process {pid}"),
            None => f.write_str("owned by another process"),
        }
    }
}

/// Ownership of a store, held until it is dropped or the process ends, however that ends.
///
/// It is a lock of the *open file description* (`F_OFD_SETLK`) on the file `lock` in the store's folder; the file holds
/// the owner's process id, for others to read. After `fork` parent and child share the description and with it the
/// lock: [`Claim`] tells which of the two goes on, and [`inherit`](Self::inherit) is how a child does. The lock is free
/// once the owner gives it up; where the owner dies without, once each process that shares the description has closed
/// it, has called `exec` or has ended.
#[derive(Debug)]
pub struct OwnerLock {
    fd: OwnedFd,
    claim: Arc<Claim>,
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // Other processes may have copies of the descriptor, and with it the lock: released here, the store is free at
        // once. Whoever has it no more, or never had, lets go of its copy only.
        self.claim.release(|| {
            let _ = sys::unlock(self.fd.as_fd());
        });
    }
}

impl OwnerLock {
    /// Takes ownership through the existing file `lock` in `folder`, or makes the file where `create` is set (then it
    /// must not exist).
    pub(super) fn take(folder: BorrowedFd<'_>, create: bool) -> Result<Result<OwnerLock, Busy>> {
        let flags = if create { OFlags::CREATE | OFlags::EXCL } else { OFlags::empty() };
        let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = open_beneath(folder, LOCK.as_bytes(), flags).or_fail("open", || LOCK)?;
        match sys::try_lock(fd.as_fd()).or_fail("lock", || LOCK)? {
            Lock::Taken => Self::own(fd).map(Ok),
            Lock::Busy => Ok(Err(Busy { pid: read_pid(fd.as_fd())? })),
        }
    }

    /// Who has ownership at this moment, without asking for it: the answer may be out of date when it is given.
    pub(super) fn holder(folder: BorrowedFd<'_>) -> Result<Option<Busy>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = open_beneath(folder, LOCK.as_bytes(), flags).or_fail("open", || LOCK)?;
        match sys::is_locked(fd.as_fd()).or_fail("lock", || LOCK)? {
            true => Ok(Some(Busy { pid: read_pid(fd.as_fd())? })),
            false => Ok(None),
        }
    }

    /// Which of the processes that have the lock by `fork` goes on with it.
    pub fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Takes over what the calling process has by `fork`: the parent has it no more when this returns. It is called by
    /// one thread at a time.
    ///
    /// # Errors
    /// [`Busy`] names who came first; the copy that was inherited is then of no use, and keeps others out until it is
    /// dropped.
    pub(super) fn inherit(&self) -> Result<Result<OwnerLock, Busy>> {
        if let Err(busy) = self.claim.seize() {
            return Ok(Err(busy));
        }
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0).or_fail("dup", || LOCK)?;
        // The description has it, unless the parent gave it up; then anybody may.
        match sys::try_lock(fd.as_fd()).or_fail("lock", || LOCK)? {
            Lock::Taken => Self::own(fd).map(Ok),
            Lock::Busy => Ok(Err(Busy { pid: read_pid(fd.as_fd())? })),
        }
    }

    /// The lock was taken: writes the calling process's id down as the owner's.
    fn own(fd: OwnedFd) -> Result<OwnerLock> {
        let pid = rustix::process::getpid().as_raw_nonzero();
        // Padded to one length: a reader meets the old number or the new one, not the beginning of one with the end of
        // the other.
        sys::write_all_at(&fd, format!("{pid:<10}\n").as_bytes(), 0).or_fail("write", || LOCK)?;
        Ok(OwnerLock { fd, claim: Arc::new(Claim::new()?) })
    }
}

fn read_pid(fd: BorrowedFd<'_>) -> Result<Option<u32>> {
    let mut text = [0; 16];
    let len = sys::read_full_at(fd, &mut text, 0).or_fail("read", || LOCK)?;
    Ok(std::str::from_utf8(&text[..len]).ok().and_then(|text| text.trim().parse().ok()))
}
