//! Whether a file system has a journal.

use crate::sys::mounts::read;
use rustix::fd::BorrowedFd;
use rustix::fs::{CWD, readlinkat};

/// Whether the ext2, ext3 or ext4 that `fd` is open on has a journal; `None` where the kernel does not tell.
pub(super) fn has_journal(fd: BorrowedFd<'_>) -> Option<bool> {
    let device = rustix::fs::fstat(fd).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = readlinkat(CWD, format!("/sys/dev/block/{major}:{minor}"), Vec::new()).ok()?;
    let name = path.to_str().ok()?.rsplit('/').next()?;
    let task = read(&format!("/sys/fs/ext4/{name}/journal_task")).ok()?;
    Some(task.trim_ascii() != b"<none>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use wholly_scratch::TestDir;

    #[test]
    fn a_tmpfs_is_on_no_device() {
        let Some(dir) = TestDir::on_tmpfs() else { return };
        assert_eq!(has_journal(dir.file("a").as_fd()), None);
    }
}
