//! What has a name, found once: it is looked at, read and listed by one descriptor. By its path it could be another
//! object at the next call.

use super::HostDir;
use super::file::{OrdinaryFile, not_a_file, stat};
use super::names::{grown, itself};
use super::resolve::open_beneath;
use crate::sys::{OrFail, show};
use crate::{At, HostNames};
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use wholly_media::{Error, Result, Site};
use wholly_vfs::{SetXattr, Stat};

/// See the head of this file.
#[derive(Debug)]
pub struct Object {
    fd: OwnedFd,
    stat: Stat,
    path: Vec<u8>,
}

impl HostDir {
    /// Finds what has a name, a symbolic link itself. It is in the directory that `at` tells, and is what `at` tells.
    ///
    /// # Errors
    /// `ESTALE` where it is not; `EXDEV` for what another file system is mounted on, and for a subvolume.
    pub fn object(&self, at: At<'_>) -> Result<Object> {
        let found = self.find(at)?;
        // One of its own also of the directory itself.
        let fd = rustix::io::fcntl_dupfd_cloexec(found.as_fd(), 0).or_fail("dup", || show(at.path))?;
        let stat = stat(fd.as_fd()).or_fail("statx", || show(at.path))?;
        Ok(Object { fd, stat, path: at.path.to_vec() })
    }
}

impl Object {
    /// What was known of it when it was found.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Opens it for reading, if it is a regular file: nothing else can be there now, to block or to be changed by that.
    ///
    /// # Errors
    /// Those of `open(2)`; `EISDIR` or `EINVAL` for what is no regular file.
    pub fn open(&self) -> Result<OrdinaryFile> {
        if !self.stat.is_file() {
            return Err(not_a_file(&self.path, self.stat.mode));
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, itself(self.fd.as_fd()), flags, Mode::empty());
        Ok(OrdinaryFile::new(fd.or_fail("open", || show(&self.path))?, &self.path, false, None, None))
    }

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// Those of `readlinkat(2)`.
    pub fn target(&self) -> Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(&self.fd, "", Vec::new());
        target.map(|target| target.into_bytes()).or_fail("readlink", || show(&self.path))
    }

    /// The names in a directory, without `.` and `..`.
    ///
    /// # Errors
    /// Those of `open(2)` and `getdents64(2)`.
    pub fn names(&self) -> Result<Vec<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = open_beneath(self.fd.as_fd(), b"", flags).or_fail("open", || show(&self.path))?;
        let (mut names, mut buf) = (Vec::new(), [MaybeUninit::uninit(); 8192]);
        let mut entries = RawDir::new(dir, &mut buf);
        while let Some(entry) = entries.next() {
            let entry = entry.or_fail("getdents", || show(&self.path))?;
            names.push(entry.file_name().to_bytes().to_vec());
        }
        names.retain(|name| name != b"." && name != b"..");
        Ok(names)
    }

    /// What it is now beside its content and its names.
    ///
    /// # Errors
    /// `ESTALE` where owner or permissions are not those any more with which it was found: what was read of it may have
    /// been written under others.
    pub fn attributes(&self) -> Result<Attributes> {
        let failed = |call, errno| Error::new(call, show(&self.path), errno);
        let place = itself(self.fd.as_fd());
        let list = |names: &mut Vec<u8>| rustix::fs::listxattr(&place, spare_capacity(names));
        let names = match grown(|| rustix::fs::listxattr_query(&place), list) {
            Err(Errno::OPNOTSUPP) => Vec::new(),
            names => names.map_err(|errno| failed("listxattr", errno))?,
        };
        let mut xattrs = Vec::new();
        for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let get = |value: &mut Vec<u8>| rustix::fs::getxattr(&place, name, spare_capacity(value));
            match grown(|| rustix::fs::getxattr_query(&place, name), get) {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                value => xattrs.push((name.to_vec(), value.map_err(|errno| failed("getxattr", errno))?)),
            }
        }
        let stat = stat(self.fd.as_fd()).map_err(|errno| failed("statx", errno))?;
        let rights = |stat: &Stat| (stat.mode, stat.uid, stat.gid);
        match rights(&stat) == rights(&self.stat) {
            // That it was read is no access of its user's.
            true => Ok(Attributes { stat: Stat { atime_ns: self.stat.atime_ns, ..stat }, xattrs }),
            false => Err(failed("read", Errno::STALE)),
        }
    }
}

/// What an object is beside its content and its names.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Type and permission bits, owner, group and times.
    pub stat: Stat,
    /// Names and values of its extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    /// Gives them to an object at a place that nobody else can change: the owner first, with whom the kernel takes
    /// capabilities and set-ID bits; the permissions when nothing but the times is left to do. `refused` hears what
    /// could not be set, and may pass that over. The set-ID bits stay off if it was the owner.
    ///
    /// # Errors
    /// Those of `chmod(2)` and `utimensat(2)`, and what `refused` returns.
    pub fn give(
        &self,
        site: Site,
        to: &dyn HostNames,
        path: &[u8],
        refused: &mut dyn FnMut(&str, Error) -> Result<()>,
    ) -> Result<()> {
        const SET_ID: u32 = 0o6000;
        let wanted = &self.stat;
        let now = to.stat_at(path.into())?;
        let mut mode = wanted.mode & 0o7777;
        if (now.uid, now.gid) != (wanted.uid, wanted.gid)
            && let Err(error) = to.set_owner(site, path, Some(wanted.uid), Some(wanted.gid))
        {
            refused("its owner cannot be set", error)?;
            mode &= !SET_ID;
        }
        for (name, value) in &self.xattrs {
            if let Err(error) = to.set_xattr(site, path, name, value, SetXattr::Any) {
                refused(&format!("its attribute {} cannot be set", String::from_utf8_lossy(name)), error)?;
            }
        }
        let is_link = wanted.mode & 0o170_000 == 0o120_000;
        if !is_link {
            to.set_mode(site, path, mode)?;
        }
        to.set_times(site, path, Some(wanted.atime_ns), Some(wanted.mtime_ns))
    }
}
