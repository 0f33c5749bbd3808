//! Trying out what a store needs of a file system.

use super::super::file::{OrdinaryFile, Unnamed, stat};
use super::super::home::StoreHome;
use super::super::owner::OwnerLock;
use super::super::resolve::open_beneath;
use crate::sys;
use crate::sys::OrFail;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use wholly_media::Result;

/// What a file system was found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capabilities {
    /// A lock of an open file description keeps others out.
    pub locks: bool,
    /// Files, and the names in directories, can be synced.
    pub syncs: bool,
    /// A file can be filled before it has its name.
    pub new_files: bool,
    /// A file can have two names, and has one inode number under both.
    pub hard_links: bool,
    /// A rename can refuse to replace what has the new name.
    pub no_replace: bool,
    /// Files have a time of birth.
    pub birth_time: bool,
    /// Times have parts of a second.
    pub fine_times: bool,
    /// Names that differ in case are two names.
    pub case_matters: bool,
    /// Permission bits are kept as they are set.
    pub permissions: bool,
}

impl Capabilities {
    /// One that does all of it.
    pub const ALL: Capabilities = Capabilities {
        locks: true,
        syncs: true,
        new_files: true,
        hard_links: true,
        no_replace: true,
        birth_time: true,
        fine_times: true,
        case_matters: true,
        permissions: true,
    };
}

/// What calls say that a file system does not have.
fn is_missing(errno: Errno) -> bool {
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::PERM, Errno::XDEV, Errno::MLINK, Errno::NOLCK, Errno::NOTTY]
        .contains(&errno)
}

/// Whether a call does its work, or the file system does not have it. Any other error is one: no space is no answer.
fn works<T>(result: rustix::io::Result<T>, call: &'static str) -> Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(errno) if is_missing(errno) => Ok(false),
        Err(errno) => Err(wholly_media::Error::new(call, "a file to try out the file system", errno)),
    }
}

/// Tries all of it in an empty folder, locked by its making, that is nobody else's. Where the file system is known to
/// sync, that is not tried: what is as new as this would wait for the disk.
pub(super) fn capabilities(home: &StoreHome, is_known_to_sync: bool) -> Result<Capabilities> {
    let folder = home.as_fd();
    let locks = OwnerLock::holder(folder)?.is_some();
    let file = new_file(folder)?;
    rustix::fs::fchmod(file.as_fd(), Mode::RUSR | Mode::WUSR | Mode::RGRP).or_fail("fchmod", || "new")?;
    sys::write_all_at(file.as_fd(), b"new", 0).or_fail("write", || "new")?;
    let fine_times = has_fine_times(file.as_fd()).or_fail("utimensat", || "new")?;
    let found = stat(file.as_fd()).or_fail("statx", || "new")?;
    let new_files = works(file.link_into(folder, b"linked"), "link")?;
    let (mut hard_links, mut no_replace, mut case_matters) = (false, false, true);
    if new_files {
        hard_links = works(rustix::fs::linkat(folder, "linked", folder, "second", AtFlags::empty()), "link")?;
        // Some file systems in user space number names, not files: such a number tells nothing of a file.
        hard_links =
            hard_links && ino(folder, "second")? == ino(folder, "linked")? && ino(folder, "linked")? == found.ino;
        let renamed = rustix::fs::renameat_with(folder, "linked", folder, "renamed", RenameFlags::NOREPLACE);
        no_replace = works(renamed, "renameat2")?;
        let name = if no_replace { "RENAMED" } else { "LINKED" };
        case_matters = open_beneath(folder, name.as_bytes(), OFlags::PATH).is_err();
    }
    // One after the other, so that a disk has something to do for the first of them only.
    let syncs = is_known_to_sync
        || works(rustix::fs::fsync(file.as_fd()), "fsync")? & works(rustix::fs::fsync(folder), "fsync of a directory")?;
    Ok(Capabilities {
        locks,
        syncs,
        new_files,
        hard_links,
        no_replace,
        birth_time: found.btime_ns != 0,
        fine_times,
        case_matters,
        permissions: found.mode & 0o777 == 0o640,
    })
}

/// A file without a name, or with one that stands in for that: as [`HostDir`](super::super::HostDir) makes them.
fn new_file(folder: BorrowedFd<'_>) -> Result<OrdinaryFile> {
    let file = |fd: OwnedFd, unnamed| OrdinaryFile::new(fd, b"new", true, None, unnamed);
    match open_beneath(folder, b"", OFlags::TMPFILE | OFlags::RDWR) {
        Ok(fd) => Ok(file(fd, None)),
        Err(errno) if is_missing(errno) || errno == Errno::ISDIR => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
            let fd = open_beneath(folder, b"new", flags).or_fail("create", || "new")?;
            let folder = rustix::io::fcntl_dupfd_cloexec(folder, 0).or_fail("dup", || "new")?;
            Ok(file(fd, Some(Unnamed { folder, name: "new".into(), maker: rustix::process::getpid() })))
        }
        Err(errno) => Err(wholly_media::Error::new("create", "new", errno)),
    }
}

fn ino(folder: BorrowedFd<'_>, name: &str) -> Result<u64> {
    let fd = open_beneath(folder, name.as_bytes(), OFlags::PATH).or_fail("open", || name)?;
    Ok(stat(fd.as_fd()).or_fail("statx", || name)?.ino)
}

/// Whether a time with parts of a second is kept.
fn has_fine_times(file: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: 123_456_789 };
    rustix::fs::futimens(file, &Timestamps { last_access: time, last_modification: time })?;
    Ok(stat(file)?.mtime_ns % 1_000_000_000 != 0)
}
