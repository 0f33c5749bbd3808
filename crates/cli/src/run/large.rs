//! Whether an overlay would have to copy a large file before the command could write to it.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes of disk space from which on a file is large: copying as much takes a quarter of a second or more.
const LARGE: u64 = 256 << 20;

/// Names that are looked at: this takes some milliseconds, however large the directory is.
const MOST_NAMES: usize = 1000;

/// Whether the first names of a directory, those nearest to it first, are of a large file that somebody may write to,
/// in a file system whose files cannot share blocks. `false` where that cannot be found out.
pub fn has_large_file(dir: &Path) -> bool {
    let Ok(dir) = openat(CWD, dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) else { return false };
    let Ok(device) = fstat(&dir).map(|stat| stat.st_dev) else { return false };
    let (mut todo, mut names) = (VecDeque::from([dir]), 0);
    while let Some(dir) = todo.pop_front() {
        let Ok(entries) = Dir::read_from(&dir) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if [c".", c"..", c".wholly"].contains(&name) {
                continue;
            }
            names += 1;
            if names > MOST_NAMES {
                return false;
            }
            let Ok(stat) = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if stat.st_dev == device => {
                    todo.extend(openat(&dir, name, flags | OFlags::DIRECTORY, Mode::empty()));
                }
                FileType::RegularFile if is_large(&stat) => {
                    let file = openat(&dir, name, flags | OFlags::NONBLOCK, Mode::empty());
                    return file.is_ok_and(|file| copies(&dir, &file));
                }
                _ => {}
            }
        }
    }
    false
}

fn is_large(stat: &Stat) -> bool {
    stat.st_blocks as u64 * 512 >= LARGE && stat.st_mode & 0o222 != 0
}

/// Whether a new file cannot share the blocks of this one.
fn copies(dir: &OwnedFd, file: &OwnedFd) -> bool {
    let share = || {
        let new = openat(dir, ".", OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR)?;
        rustix::fs::ioctl_ficlone(new, file)
    };
    share().is_err()
}
