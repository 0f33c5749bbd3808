//! Names and attributes of a host directory.

use super::HostDir;
use super::dir::Place;
use super::file::{OrdinaryFile, stat, stat_in};
use super::resolve::open_beneath;
use crate::sys::{self, OrFail, show};
use crate::{At, FileHandle, HostFile, HostFs, HostNames};
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::sync::Arc;
use wholly_media::{Result, Site};
use wholly_vfs::{DirEntry, Rename, SetXattr, Stat};

/// Times that values of attributes, or lists of their names, may have grown between two calls before that is an error.
const TRIES: u32 = 16;

/// What a descriptor is open on, whatever its name is by now: for calls that take no descriptor of that kind.
pub(super) fn itself(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Sets the times of what a descriptor is open on.
pub(super) fn touch(fd: BorrowedFd<'_>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> rustix::io::Result<()> {
    let times = timestamps(fd, atime_ns, mtime_ns)?;
    rustix::fs::utimensat(fd, "", &times, AtFlags::EMPTY_PATH)
}

/// Gives what a descriptor is open on a name in `parent`.
pub(super) fn link_itself(fd: BorrowedFd<'_>, parent: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::linkat(fd, "", parent, name, AtFlags::EMPTY_PATH) {
        // Before Linux 6.10 this needs a capability, and says ENOENT without.
        Err(Errno::NOENT | Errno::PERM | Errno::INVAL) => {
            rustix::fs::linkat(CWD, itself(fd), parent, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

/// Gives the new object `name` in `parent` exactly these bits: the umask, or a default ACL, may have had a say.
fn set_exact_mode(parent: BorrowedFd<'_>, name: &[u8], mode: u32) -> rustix::io::Result<()> {
    let fd = open_beneath(parent, name, OFlags::PATH | OFlags::NOFOLLOW)?;
    rustix::fs::chmodat(CWD, itself(fd.as_fd()), permissions(mode), AtFlags::empty())
}

/// Times to be set: what is not given is as it is. Both are set, since programs that serve a file system by the FUSE
/// library's second version take no notice of one alone.
pub(super) fn timestamps(
    fd: BorrowedFd<'_>,
    atime_ns: Option<i64>,
    mtime_ns: Option<i64>,
) -> rustix::io::Result<Timestamps> {
    let now = match (atime_ns, mtime_ns) {
        (Some(_), Some(_)) => Stat::default(),
        _ => stat(fd)?,
    };
    let timespec = |ns: i64| {
        const SECOND: i64 = 1_000_000_000;
        Timespec { tv_sec: ns.div_euclid(SECOND), tv_nsec: ns.rem_euclid(SECOND) as _ }
    };
    Ok(Timestamps {
        last_access: timespec(atime_ns.unwrap_or(now.atime_ns)),
        last_modification: timespec(mtime_ns.unwrap_or(now.mtime_ns)),
    })
}

impl HostNames for HostDir {
    fn create_at(&self, _site: Site, at: At<'_>, mode: u32) -> Result<Arc<dyn HostFile>> {
        // Set-id bits never by the making: the kernel may take them without a word.
        let fd = self.make_fd(at, permissions(mode & 0o777))?;
        let made = stat(fd.as_fd()).or_fail("statx", || show(at.path))?;
        if made.mode & 0o7777 != mode & 0o7777 {
            rustix::fs::fchmod(&fd, permissions(mode)).or_fail("fchmod", || show(at.path))?;
        }
        Ok(Arc::new(OrdinaryFile::new(fd, at.path, true, self.pmem().cloned(), None)))
    }

    fn mkdir_at(&self, _site: Site, at: At<'_>, mode: u32) -> Result<()> {
        let (parent, name) = self.pin(at)?;
        rustix::fs::mkdirat(&parent, name, Mode::RWXU).or_fail("mkdir", || show(at.path))?;
        set_exact_mode(parent.as_fd(), name, mode).or_fail("chmod", || show(at.path))
    }

    fn mknod_at(&self, _site: Site, at: At<'_>, mode: u32, rdev: u64) -> Result<()> {
        let (parent, name) = self.pin(at)?;
        let kind = FileType::from_raw_mode(mode);
        rustix::fs::mknodat(&parent, name, kind, Mode::RUSR | Mode::WUSR, rdev).or_fail("mknod", || show(at.path))?;
        set_exact_mode(parent.as_fd(), name, mode).or_fail("chmod", || show(at.path))
    }

    fn symlink_at(&self, _site: Site, target: &[u8], at: At<'_>) -> Result<()> {
        let (parent, name) = self.pin(at)?;
        rustix::fs::symlinkat(target, &parent, name).or_fail("symlink", || show(at.path))
    }

    fn hard_link_at(&self, _site: Site, from: At<'_>, to: At<'_>) -> Result<()> {
        let linked = match from.inode {
            Some(_) => {
                let itself = self.find(from)?;
                let (parent, name) = self.pin(to)?;
                link_itself(itself.as_fd(), parent.as_fd(), name)
            }
            None => {
                let (old_parent, old) = self.pin(from)?;
                let (parent, name) = self.pin(to)?;
                rustix::fs::linkat(&old_parent, old, &parent, name, AtFlags::empty())
            }
        };
        linked.or_fail("link", || format!("{} to {}", show(from.path), show(to.path)))
    }

    fn rename_at(&self, _site: Site, from: At<'_>, to: At<'_>, how: Rename) -> Result<()> {
        let (old_parent, old) = self.pin(from)?;
        let (parent, name) = self.pin(to)?;
        move_name((old_parent.as_fd(), old), (parent.as_fd(), name), how)
            .or_fail("rename", || format!("{} to {}", show(from.path), show(to.path)))
    }

    fn unlink_at(&self, _site: Site, at: At<'_>) -> Result<()> {
        let (parent, name) = self.pin(at)?;
        rustix::fs::unlinkat(&parent, name, AtFlags::empty()).or_fail("unlink", || show(at.path))
    }

    fn rmdir_at(&self, _site: Site, at: At<'_>) -> Result<()> {
        let (parent, name) = self.pin(at)?;
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).or_fail("rmdir", || show(at.path))
    }

    fn stat_at(&self, at: At<'_>) -> Result<Stat> {
        stat(self.find(at)?.as_fd()).or_fail("statx", || show(at.path))
    }

    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>> {
        let fd = self.place(path)?;
        match rustix::fs::readlinkat(&fd, "", Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            // What the kernel says of an empty path to anything but a link.
            Err(Errno::NOENT) => Err(wholly_media::Error::new("readlink", show(path), Errno::INVAL)),
            Err(errno) => Err(wholly_media::Error::new("readlink", show(path), errno)),
        }
    }

    fn read_dir(&self, path: &[u8]) -> Result<Vec<DirEntry>> {
        let fd = self.open_fd(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        let mut buf = Vec::with_capacity(32 << 10);
        let mut raw = RawDir::new(&fd, buf.spare_capacity_mut());
        let mut entries = Vec::new();
        while let Some(entry) = raw.next() {
            let entry = entry.or_fail("getdents", || show(path))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = match entry.file_type() {
                    FileType::Unknown => 0,
                    kind => kind.as_raw_mode(),
                };
                entries.push(DirEntry { name: name.to_vec(), ino: entry.ino(), kind });
            }
        }
        Ok(entries)
    }

    fn stat_all(&self, path: &[u8], look: &mut dyn FnMut(&[u8], &Stat) -> bool) -> Result<()> {
        let fd = self.open_fd(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
        let mut buf = Vec::with_capacity(32 << 10);
        let mut raw = RawDir::new(&fd, buf.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = entry.or_fail("getdents", || show(path))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let at = || if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
            let stat = match stat_in(fd.as_fd(), self.device(), entry.file_name()).or_fail("statx", || show(&at()))? {
                Some(stat) => stat,
                None => HostFs::stat(self, &at())?,
            };
            if !look(name, &stat) {
                break;
            }
        }
        Ok(())
    }

    fn set_mode_at(&self, _site: Site, at: At<'_>, mode: u32) -> Result<()> {
        let fd = self.find(at)?;
        rustix::fs::chmodat(CWD, itself(fd.as_fd()), permissions(mode), AtFlags::empty())
            .or_fail("chmod", || show(at.path))
    }

    fn set_owner_at(&self, _site: Site, at: At<'_>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let fd = self.find(at)?;
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        rustix::fs::chownat(&fd, "", uid, gid, AtFlags::EMPTY_PATH).or_fail("chown", || show(at.path))
    }

    fn set_times_at(&self, _site: Site, at: At<'_>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        let fd = self.find(at)?;
        touch(fd.as_fd(), atime_ns, mtime_ns).or_fail("utimensat", || show(at.path))
    }

    fn get_xattr(&self, path: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = match self.place(path)? {
            Place::Itself(dir) => grown(
                || rustix::fs::fgetxattr_query(dir, name),
                |value| rustix::fs::fgetxattr(dir, name, spare_capacity(value)),
            ),
            Place::Opened(fd) => {
                let place = itself(fd.as_fd());
                let get = |value: &mut Vec<u8>| rustix::fs::getxattr(&place, name, spare_capacity(value));
                grown(|| rustix::fs::getxattr_query(&place, name), get)
            }
        };
        match value {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(wholly_media::Error::new("getxattr", show(path), errno)),
        }
    }

    fn list_xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let fd = self.place(path)?;
        let place = itself(fd.as_fd());
        let list = |names: &mut Vec<u8>| rustix::fs::listxattr(&place, spare_capacity(names));
        let names = grown(|| rustix::fs::listxattr_query(&place), list).or_fail("listxattr", || show(path))?;
        Ok(names.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn set_xattr_at(&self, _site: Site, at: At<'_>, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let fd = self.find(at)?;
        let flags = XattrFlags::from_bits_retain(how.flags());
        rustix::fs::setxattr(itself(fd.as_fd()), name, value, flags).or_fail("setxattr", || show(at.path))
    }

    fn remove_xattr_at(&self, _site: Site, at: At<'_>, name: &[u8]) -> Result<()> {
        let fd = self.find(at)?;
        rustix::fs::removexattr(itself(fd.as_fd()), name).or_fail("removexattr", || show(at.path))
    }

    fn handle(&self, path: &[u8]) -> Result<Option<FileHandle>> {
        let fd = self.place(path)?;
        sys::file_handle(fd.as_fd()).or_fail("name_to_handle_at", || show(path))
    }
}

/// Asks for the size of something that may be growing, then for its bytes.
pub(super) fn grown(
    size: impl Fn() -> rustix::io::Result<usize>,
    fill: impl Fn(&mut Vec<u8>) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    for _ in 0..TRIES {
        let mut bytes = Vec::with_capacity(size()?.max(1));
        match fill(&mut bytes) {
            Ok(_) => return Ok(bytes),
            Err(Errno::RANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::RANGE)
}

/// Moves a name between two directories that are open.
pub(super) fn move_name(
    (old_parent, old): (BorrowedFd<'_>, &[u8]),
    (parent, name): (BorrowedFd<'_>, &[u8]),
    how: Rename,
) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(old_parent, old, parent, name, RenameFlags::from_bits_retain(how.flags())) {
        // Many a file system in user space knows no flags.
        Err(Errno::INVAL) if how == Rename::NoReplace => rename_to_nothing((old_parent, old), (parent, name)),
        renamed => renamed,
    }
}

/// `RENAME_NOREPLACE` where the file system does not have it. What cannot be linked could replace what somebody makes
/// at this very moment.
fn rename_to_nothing(
    (old_parent, old): (BorrowedFd<'_>, &[u8]),
    (parent, name): (BorrowedFd<'_>, &[u8]),
) -> rustix::io::Result<()> {
    match rustix::fs::linkat(old_parent, old, parent, name, AtFlags::empty()) {
        Ok(()) => {
            rustix::fs::unlinkat(old_parent, old, AtFlags::empty())?;
            // The kernel counts two names of it until it asks the program that serves the file system again.
            let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
            let _ = rustix::fs::statx(parent, name, how, StatxFlags::NLINK);
            Ok(())
        }
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => rustix::fs::renameat(old_parent, old, parent, name),
                Err(errno) => Err(errno),
            }
        }
        Err(errno) => Err(errno),
    }
}
