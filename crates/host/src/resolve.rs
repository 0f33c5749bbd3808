//! Paths that cannot leave their directory, and lead through directories alone.
//!
//! # Terms
//!
//! - *ours*: the directory that a store cares for. Directories below it may belong to anybody, who may exchange what is
//!   in them at any time.
//! - *stored path*: names joined by the store, of directories that it has looked at. Where a program itself named a
//!   symbolic link, the store has followed it, once, before the path was stored.
//! - *pinned*: a directory that is open, and was found to be the inode that the call was made for
//!   ([`At::dir`](crate::At)).
//!
//! # Invariants
//!
//! 1. A stored path leads through directories only: a symbolic link on the way is no directory (`ENOTDIR`), wherever it
//!    leads; a file system that is mounted below is refused (`EXDEV`).
//! 2. A name is made, linked, moved or removed in a pinned directory. Whoever exchanges a directory on the way gets an
//!    error (`ESTALE`), or the change in the directory that it was meant for, wherever that is by now.
//! 3. Attributes, and further names, are given through a descriptor of the object, whose identity was compared
//!    ([`At::inode`](crate::At)).
//! 4. What is in a store's folder is reached from the descriptor of the folder that was checked
//!    ([`StoreHome`](crate::StoreHome)): whoever owns the directory can exchange the folder, and nothing in it.
//! 5. What is moved, removed or replaced by its name can be another object by then, so it is first moved to where
//!    nobody else can exchange it, and compared there. That is the caller's (`checkpoint/names` of the store).
//! 5. A tree of which nothing is there yet is made where nobody else can go, and moved to its place (`fill.rs`).

use crate::sys::show;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use wholly_media::Result;

/// Bytes of a path that the kernel takes at once.
const LONGEST: usize = 4095;

/// Opens `path` beneath `root`.
///
/// The kernel resolves the whole path in one call, or a very long one in several, and refuses with `EXDEV` a `..` that
/// leaves `root`, an absolute path, and a file system mounted below. There is no moment between a check and a use.
/// Symbolic links are not followed: on the way, or where a directory is wanted, they are none (`ENOTDIR`); at the end
/// `ELOOP`, unless `flags` has `PATH` and `NOFOLLOW`. What is made has mode 0600.
pub(super) fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    open_beneath_with(root, path, flags, Mode::RUSR | Mode::WUSR)
}

/// The same; what is made has the bits of `mode` that the umask, or a default ACL, leaves it.
pub(super) fn open_beneath_with(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    // Longer than the kernel takes at once: part by part.
    if path.len() > LONGEST {
        let slash = path[..LONGEST].iter().rposition(|&byte| byte == b'/').ok_or(Errno::NAMETOOLONG)?;
        let dir = open_beneath(root, &path[..slash], OFlags::PATH | OFlags::DIRECTORY)?;
        return open_beneath_with(dir.as_fd(), &path[slash + 1..], flags, mode);
    }
    // The kernel gives EAGAIN where a rename anywhere on the system meets a `..`. Somebody who renames without end must
    // not hold us for ever.
    const TRIES: u32 = 1000;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let path = if path.is_empty() { b"." } else { path };
    let makes = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    // The kernel refuses a mode where nothing is made.
    let mode = if makes { mode } else { Mode::empty() };
    for _ in 0..TRIES {
        match openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::LOOP) if !is_link(root, path, flags) => return Err(Errno::NOTDIR),
            result => return result,
        }
    }
    Err(Errno::AGAIN)
}

/// Whether a symbolic link that kept `path` from being opened so stands at the end of it.
fn is_link(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> bool {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let itself = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    !flags.contains(OFlags::DIRECTORY) && openat2(root, path, itself, Mode::empty(), resolve).is_ok()
}

/// The path of the directory that holds `path`'s last part, and that part.
///
/// # Errors
/// `EINVAL` for a path whose last part is empty, `.` or `..`.
pub(super) fn split(path: &[u8]) -> Result<(&[u8], &[u8])> {
    let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
        // An absolute path stays one, for the kernel to refuse.
        Some(0) => (&path[..1], &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], path),
    };
    match name {
        b"" | b"." | b".." => Err(wholly_media::Error::new("resolve", show(path), Errno::INVAL)),
        name => Ok((parent, name)),
    }
}
