//! What the kernel tells of the mount that a directory lies on.

use crate::sys;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, readlinkat, statx};

/// How a file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// Its type as `mount(8)` knows it: `ext3`, `fuse.sshfs`.
    pub kind: String,
    /// The options of the file system, such as `nobarrier`.
    pub options: Vec<String>,
}

impl Mount {
    /// The mount of what `fd` is open on. `None` where the kernel does not tell: without `/proc`, for a mount that was
    /// detached or lies outside of the process's root.
    pub fn of(fd: BorrowedFd<'_>) -> Option<Mount> {
        let found = statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
        let told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        told.then(|| Mount::find(&read("/proc/self/mountinfo")?, found.stx_mnt_id)).flatten()
    }

    /// The mount of that number in the text of `/proc/self/mountinfo`: `ID parent device root point options [more]... -
    /// TYPE source OPTIONS`.
    fn find(mounts: &str, id: u64) -> Option<Mount> {
        let of_id = |line: &&str| line.split(' ').next().and_then(|number| number.parse().ok()) == Some(id);
        let (_, file_system) = mounts.lines().find(of_id)?.split_once(" - ")?;
        let mut words = file_system.split(' ');
        let kind = words.next()?.to_owned();
        let options = words.nth(1).unwrap_or_default().split(',').map(str::to_owned).collect();
        Some(Mount { kind, options })
    }

    /// Whether it is mounted with an option, whatever its value.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }
}

/// Whether the ext2, ext3 or ext4 that `fd` is open on has a journal; `None` where the kernel does not tell.
pub(super) fn has_journal(fd: BorrowedFd<'_>) -> Option<bool> {
    let device = rustix::fs::fstat(fd).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = readlinkat(CWD, format!("/sys/dev/block/{major}:{minor}"), Vec::new()).ok()?;
    let name = path.to_str().ok()?.rsplit('/').next()?;
    Some(read(&format!("/sys/fs/ext4/{name}/journal_task"))?.trim() != "<none>")
}

/// A file of the kernel's. These tell no size.
fn read(path: &str) -> Option<String> {
    /// More mounts than anybody has; an end to the reading.
    const MOST: usize = 16 << 20;
    let fd = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    loop {
        let old = text.len();
        text.resize(old + (64 << 10), 0);
        let read = sys::read_full_at(&fd, &mut text[old..], old as u64).ok()?;
        text.truncate(old + read);
        if read < 64 << 10 || text.len() > MOST {
            return String::from_utf8(text).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;
    use rustix::fd::AsFd;

    #[test]
    fn a_mount_is_found_by_its_number() {
        let text = "2 1 0:5 / /a rw - tmpfs tmpfs rw,size=4k\n\
                    22 1 7:0 /sub /a\\040b rw,noatime shared:3 master:1 - ext3 /dev/loop0 rw,nobarrier,data=ordered\n\
                    3 1 0:9 / /c rw - fuse.sshfs me@there: rw,user_id=0\n";
        let ext3 = Mount::find(text, 22).expect("it is there");
        assert_eq!(ext3.kind, "ext3");
        assert!(ext3.has("nobarrier") && !ext3.has("noatime") && !ext3.has("barrier"));
        assert_eq!(Mount::find(text, 3).map(|mount| mount.kind), Some("fuse.sshfs".to_owned()));
        assert_eq!(Mount::find(text, 1), None);
        assert_eq!(Mount::find("7 nonsense\n", 7), None);
    }

    #[test]
    fn the_kernel_tells_of_its_mounts() {
        let Some(dir) = TestDir::on_tmpfs() else { return };
        let fd = dir.file("a");
        assert_eq!(Mount::of(fd.as_fd()).map(|mount| mount.kind), Some("tmpfs".to_owned()));
        assert_eq!(has_journal(fd.as_fd()), None, "a tmpfs is on no device");
    }
}
