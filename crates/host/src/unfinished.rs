//! Folders of stores that are being made or unmade: their names, and who may remove what an interruption has left.
//!
//! There are a few known names, so that nobody has to read a directory of many files to find such folders. Who makes or
//! unmakes a store takes the first name that is free, and has the folder's lock for as long as it bears that name. One
//! whose lock nobody has, or that has none yet or no more, is nobody's: whoever comes by removes it, and a maker who
//! finds that his is gone takes another one.

use super::HostDir;
use super::home::{DEPTH, FOLDER, UNFINISHED, each_entry, remove_folder};
use super::owner::OwnerLock;
use crate::sys::{self, OrFail, show};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use wholly_media::Result;

/// As many makers and unmakers have a known name; who comes when all are taken, by whomever, gets a drawn one, which is
/// found by who tidies the store.
const PLACES: u32 = 16;

/// Names for such folders, in the order in which they are tried.
pub(super) fn names() -> Result<impl Iterator<Item = String>> {
    Ok(known().chain([sys::random_name(UNFINISHED)?]))
}

fn known() -> impl Iterator<Item = String> {
    (1..=PLACES).map(|place| format!("{UNFINISHED}{place}"))
}

/// Removes folders with known names that are nobody's.
pub(super) fn clear(dir: &HostDir) -> Result<()> {
    known().try_for_each(|name| clear_one(dir, name.as_bytes()))
}

/// The same, whatever such a folder is called: also one of a version that chose its names otherwise. Returns how many
/// are gone.
pub(super) fn clear_all(dir: &HostDir) -> Result<u64> {
    let mut names = Vec::new();
    let root = dir.open_fd(b"", OFlags::RDONLY | OFlags::DIRECTORY)?;
    each_entry(root.as_fd(), |name, _| {
        if name.starts_with(UNFINISHED.as_bytes()) {
            names.push(name.to_vec());
        }
    })
    .or_fail("read directory", || ".")?;
    let mut cleared = 0;
    for name in names {
        clear_one(dir, &name)?;
        let left = rustix::fs::statat(dir.as_fd(), &*name, AtFlags::SYMLINK_NOFOLLOW);
        cleared += u64::from(left.is_err_and(|errno| errno == Errno::NOENT));
    }
    Ok(cleared)
}

/// Removes the folder of this name, if there is one and it is nobody's. Those of other users stay: what is in them the
/// superuser could remove, and they perhaps not.
pub(super) fn clear_one(dir: &HostDir, name: &[u8]) -> Result<()> {
    let Ok(folder) = dir.open_fd(name, FOLDER) else { return Ok(()) };
    if super::file::stat(folder.as_fd()).or_fail("statx", || show(name))?.uid != geteuid().as_raw() {
        return Ok(());
    }
    match OwnerLock::take(folder.as_fd(), false) {
        // Ours now, and with it the name: unless its owner has just given both up, and somebody else has taken the
        // name.
        Ok(Ok(_lock)) if is_named(dir, folder.as_fd(), name) => {
            remove_folder(dir.as_fd(), name, folder.as_fd(), DEPTH).or_fail("remove", || show(name))
        }
        Ok(_) => Ok(()),
        // Its maker has not come to the lock, or its remover has removed that first. An empty one goes.
        Err(_) => {
            let _ = rustix::fs::unlinkat(dir.as_fd(), name, AtFlags::REMOVEDIR);
            Ok(())
        }
    }
}

/// Whether a folder that we have the lock of still has this name.
fn is_named(dir: &HostDir, folder: BorrowedFd<'_>, name: &[u8]) -> bool {
    let ours = super::file::stat(folder);
    let named = dir.open_fd(name, FOLDER).map(|named| super::file::stat(named.as_fd()));
    matches!((ours, named), (Ok(ours), Ok(Ok(named))) if (ours.ino, ours.btime_ns) == (named.ino, named.btime_ns))
}
