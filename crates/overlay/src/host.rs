//! Reading a directory tree of the host by paths that cannot leave it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags, makedev, openat, openat2,
    statx,
};
use rustix::io::Errno;
use wholly_host::FileHandle;
use wholly_vfs::Timestamp;

use crate::error::{OnHost, Result};

/// Bytes of a path that are looked up at once: the kernel takes fewer than 4096 (`PATH_MAX`).
const AT_ONCE: usize = 4000;

/// A path below a directory: names with `/` between them, nothing for the directory itself.
pub(crate) type Path = Vec<u8>;

/// The path of a name in a directory.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Path {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// The directory and the last name of a path that has one.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// How many names a path has.
pub(crate) fn depth(path: &[u8]) -> usize {
    if path.is_empty() { 0 } else { 1 + path.iter().filter(|byte| **byte == b'/').count() }
}

/// What `statx` tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub kind: FileType,
    /// Permissions, with set-user-id, set-group-id and sticky.
    pub mode: Mode,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub ino: u64,
    pub nlink: u32,
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// 1970 where the file system has none.
    pub btime: Timestamp,
}

impl Stat {
    pub fn is_dir(&self) -> bool {
        self.kind == FileType::Directory
    }
}

/// Nanoseconds since 1970, as far as they can be told.
pub(crate) fn ns(time: Timestamp) -> i64 {
    time.sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nsec))
}

/// An open directory whose names are looked at one by one.
pub(crate) struct OpenDir {
    fd: OwnedFd,
    path: Path,
}

/// A directory of the host, with all that is below it.
pub(crate) struct Tree<'d> {
    root: BorrowedFd<'d>,
    /// Its own path in messages.
    shown: &'static [u8],
}

impl<'d> Tree<'d> {
    pub fn new(root: BorrowedFd<'d>, shown: &'static [u8]) -> Self {
        Tree { root, shown }
    }

    fn shown(&self, path: &[u8]) -> Path {
        if path.is_empty() { self.shown.to_vec() } else { join(self.shown, path) }
    }

    fn open(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        // What else is mounted there is no part of it.
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let (mut rest, mut at): (&[u8], Option<OwnedFd>) = (path, None);
        while rest.len() > AT_ONCE {
            let cut = rest[..AT_ONCE].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NAMETOOLONG)?;
            let from = at.as_ref().map_or(self.root, |at| at.as_fd());
            let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = Some(openat2(from, &rest[..cut], through, Mode::empty(), resolve)?);
            rest = &rest[cut + 1..];
        }
        let from = at.as_ref().map_or(self.root, |at| at.as_fd());
        let rest = if rest.is_empty() { b"." } else { rest };
        openat2(from, rest, flags, Mode::empty(), resolve)
    }

    /// Opens a directory; `None` where there is none.
    pub fn dir(&self, path: &[u8]) -> Result<Option<OpenDir>> {
        match self.open(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => Ok(Some(OpenDir { fd, path: self.shown(path) })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(errno) => Err(errno).on("open", &self.shown(path)),
        }
    }

    /// Opens the directory that a path lies in.
    pub fn above(&self, path: &[u8]) -> Result<Option<OpenDir>> {
        self.dir(split(path).0)
    }

    /// What lies at a path: `None` for nothing.
    pub fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        // A name in the directory that is open.
        if !path.is_empty() && !path.contains(&b'/') {
            return match stat_in(self.root, path) {
                Err(Errno::NOENT) => Ok(None),
                found => found.on("statx", &self.shown(path)),
            };
        }
        match self.place(path)? {
            Some(fd) => stat(fd.as_fd(), b"").on("statx", &self.shown(path)).map(Some),
            None => Ok(None),
        }
    }

    /// The handle of what lies at a path, with what it is.
    pub fn identify(&self, path: &[u8]) -> Result<Option<(Stat, Option<FileHandle>)>> {
        let Some(fd) = self.place(path)? else { return Ok(None) };
        let stat = stat(fd.as_fd(), b"").on("statx", &self.shown(path))?;
        let handle = wholly_host::file_handle(fd.as_fd()).on("name_to_handle_at", &self.shown(path))?;
        Ok(Some((stat, handle)))
    }

    fn place(&self, path: &[u8]) -> Result<Option<OwnedFd>> {
        match self.open(path, OFlags::PATH) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(errno) => Err(errno).on("open", &self.shown(path)),
        }
    }

    /// Calls `each` with all that is below a directory, by paths of the tree, each directory before what is in it. It
    /// gives whether to look into a directory.
    pub fn walk(&self, path: &[u8], each: &mut dyn FnMut(&[u8], &Stat) -> Result<bool>) -> Result<()> {
        let mut todo = vec![path.to_vec()];
        while let Some(at) = todo.pop() {
            let Some(dir) = self.dir(&at)? else { continue };
            for (name, _) in dir.names()? {
                // Somebody may have removed it since.
                let Some(stat) = dir.stat(&name)? else { continue };
                let path = join(&at, &name);
                if each(&path, &stat)? && stat.is_dir() {
                    todo.push(path);
                }
            }
        }
        Ok(())
    }
}

/// What has a name in a directory; `None` where something is mounted there.
fn stat_in(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Option<Stat>> {
    let found = statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, WANTED)?;
    let is_mounted = found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok((!is_mounted).then(|| stat_of(&found)))
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | if name.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    statx(dir, name, flags, WANTED).map(|found| stat_of(&found))
}

fn stat_of(found: &Statx) -> Stat {
    let time = |time: rustix::fs::StatxTimestamp| Timestamp { sec: time.tv_sec, nsec: time.tv_nsec };
    Stat {
        kind: FileType::from_raw_mode(found.stx_mode.into()),
        mode: Mode::from_raw_mode(u32::from(found.stx_mode) & 0o7777),
        uid: found.stx_uid,
        gid: found.stx_gid,
        rdev: makedev(found.stx_rdev_major, found.stx_rdev_minor),
        ino: found.stx_ino,
        nlink: found.stx_nlink,
        size: found.stx_size,
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        btime: time(found.stx_btime),
    }
}

impl OpenDir {
    pub fn path_of(&self, name: &[u8]) -> Path {
        join(&self.path, name)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The names in it but for `.` and `..`, with their types where the file system tells them.
    pub fn names(&self) -> Result<Vec<(Vec<u8>, FileType)>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).on("open", &self.path)? {
            let entry = entry.on("getdents", &self.path)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push((name.to_vec(), entry.file_type()));
            }
        }
        Ok(names)
    }

    /// What a name names, nothing for the directory itself: `None` where there is none.
    pub fn stat(&self, name: &[u8]) -> Result<Option<Stat>> {
        match stat(self.fd(), name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno).on("statx", &self.path_of(name)),
        }
    }

    /// The same with its handle, where the file system has any.
    pub fn identify(&self, name: &[u8]) -> Result<Option<(Stat, Option<FileHandle>)>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno).on("open", &self.path_of(name)),
        };
        let stat = stat(fd.as_fd(), b"").on("statx", &self.path_of(name))?;
        let handle = wholly_host::file_handle(fd.as_fd()).on("name_to_handle_at", &self.path_of(name))?;
        Ok(Some((stat, handle)))
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, name: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOATIME;
        match openat(&self.fd, name, flags, Mode::empty()) {
            Err(Errno::PERM) => openat(&self.fd, name, flags - OFlags::NOATIME, Mode::empty()),
            opened => opened,
        }
        .on("open", &self.path_of(name))
    }

    /// A path by which calls reach a name that take no descriptor: those on extended attributes.
    pub fn link(&self, name: &[u8]) -> Vec<u8> {
        let mut path = format!("/proc/self/fd/{}/", self.fd.as_raw_fd()).into_bytes();
        path.extend_from_slice(if name.is_empty() { b"." } else { name });
        path
    }
}
