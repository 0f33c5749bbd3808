//! Which process has a volume open: its lock says that there is one, and `/proc` which.

use std::sync::Arc;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::{Result, read};
use wholly_host::Claim;

/// Processes whose descriptors are looked at.
const MOST_PROCESSES: usize = 100_000;

/// The lock of a file or device, until it is dropped.
///
/// It belongs to an open file description of its own, which `fork` shares: [`Claim`] tells which of the processes goes
/// on. What the volume's bytes are read and written by is another description. A child leaves that one alone, and it
/// would keep the lock for as long as the child lives.
pub struct Lock {
    fd: OwnedFd,
    claim: Arc<Claim>,
}

impl Lock {
    /// Takes the lock of a file or device, by a descriptor of it; `None` if another process has it.
    pub fn take(fd: OwnedFd, name: &str) -> wholly_media::Result<Option<Lock>> {
        Self::own(wholly_media::lock_file(fd.as_fd(), name)?, fd)
    }

    /// The same for a process that only reads: any number may at once.
    pub fn take_to_read(fd: OwnedFd, name: &str) -> wholly_media::Result<Option<Lock>> {
        Self::own(wholly_media::lock_file_to_read(fd.as_fd(), name)?, fd)
    }

    fn own(is_taken: bool, fd: OwnedFd) -> wholly_media::Result<Option<Lock>> {
        if is_taken { Ok(Some(Lock { fd, claim: Arc::new(Claim::new()?) })) } else { Ok(None) }
    }

    /// Which of the processes that have it by `fork` goes on.
    pub fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// The locked descriptor.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A child process has a copy of the descriptor from its fork to its exec, and the lock lasts as long as any
        // copy. So it is released here. A child does not release the lock of its parent.
        self.claim.release(|| {
            let _ = wholly_media::unlock(self.fd.as_fd());
        });
    }
}

fn open(at: impl AsFd, path: &str) -> Result<OwnedFd> {
    openat(at, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The entries of a directory that are numbers, in order.
fn numbers(dir: &OwnedFd) -> Result<Vec<u32>> {
    let entries = Dir::read_from(dir)?.take(MOST_PROCESSES).filter_map(Result::ok);
    let mut all: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect();
    all.sort_unstable();
    Ok(all)
}

/// The beginning of a small file.
fn text(at: &OwnedFd, path: &str) -> Result<String> {
    let mut bytes = [0; 1024];
    let len = read(open(at, path)?, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// A file, or a device by whichever of its nodes.
#[derive(PartialEq)]
enum Identity {
    File(u64, u64),
    Device(u64),
}

impl Identity {
    fn of(stat: &Stat) -> Identity {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Identity::Device(stat.st_rdev),
            _ => Identity::File(stat.st_dev, stat.st_ino),
        }
    }
}

/// Whether a process has locked the file by one of its descriptors.
fn has_locked(process: &OwnedFd, file: &Identity) -> Result<bool> {
    for number in numbers(&open(process, "fd")?)? {
        let is_it =
            statat(process, format!("fd/{number}"), AtFlags::empty()).is_ok_and(|stat| Identity::of(&stat) == *file);
        if is_it && text(process, &format!("fdinfo/{number}")).is_ok_and(|info| info.contains("OFDLCK")) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn find(file: &OwnedFd) -> Result<Option<(u32, String)>> {
    let file = Identity::of(&fstat(file)?);
    let proc = open(CWD, "/proc")?;
    for pid in numbers(&proc)? {
        // Others come and go, or are not ours to look at.
        let Ok(process) = open(&proc, &pid.to_string()) else { continue };
        if has_locked(&process, &file).unwrap_or(false) {
            let name = text(&process, "comm").unwrap_or_default();
            return Ok(Some((pid, name.trim_end().to_owned())));
        }
    }
    Ok(None)
}

/// Names the process that has locked a file, if `/proc` shows it.
pub fn found(file: &OwnedFd) -> Option<String> {
    let (pid, name) = find(file).ok()??;
    Some(format!("process {pid} ({name})"))
}

/// Names the process that has a volume open.
pub fn of(file: &OwnedFd) -> String {
    format!("{} has the volume open", found(file).as_deref().unwrap_or("another process"))
}
