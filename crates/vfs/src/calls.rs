//! Calls by path on a store or volume, for the user of the calling process: what a `Store` and its groups offer, by the
//! same names. Errors are those of the system calls of these names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::process::{getegid, geteuid, getgroups};
use wholly_error::{Error, Result};

use super::{
    Access, AcrossForks, Attr, Context, DirEntry, Errno, File, FileType, Group, GroupId, Ino, Mode, OFlags, Paths,
    Rename, SetAttr, SetTime, SetXattr, Stat, Timestamp, begun_before_fork,
};

/// Calls by path: outside of groups, or of a [`Group`], as it sees the store or volume.
///
/// # Example
/// ```
/// use wholly_vfs::{AcrossForks, Calls, Rename};
///
/// /// Puts a new release in the place of the one before, and tells which it is: both, or neither.
/// fn release<V: AcrossForks>(calls: &Calls<V>) -> wholly_error::Result<()> {
///     let mut group = calls.begin();
///     group.rename("release.new", "release", Rename::Exchange)?;
///     let version = group.open_or_create("version", 0o644)?;
///     group.write_at(&version, 0, b"7\n")?;
///     group.commit() // durable when it returns
/// }
/// ```
#[derive(Debug)]
pub struct Calls<V: AcrossForks> {
    vfs: Arc<V>,
    /// The group that they belong to; why there is none, if one was asked for.
    group: Result<Option<GroupId>>,
}

impl<V: AcrossForks> Clone for Calls<V> {
    fn clone(&self) -> Self {
        Calls { vfs: self.vfs.clone(), group: self.group.clone() }
    }
}

/// The user of the calling process, in no group. The superuser's further groups decide nothing.
pub(super) fn me() -> Context {
    let user = geteuid();
    let groups = if user.is_root() { Vec::new() } else { getgroups().unwrap_or_default() };
    let groups = groups.iter().map(|group| group.as_raw()).collect();
    Context { groups, umask: Mode::empty(), ..Context::of(user.as_raw(), getegid().as_raw()) }
}

/// The error of a call at a path.
pub(super) fn named(vfs: &impl AcrossForks, path: &[u8], errno: Errno) -> Error {
    let lost = if errno == Errno::BUSY { vfs.lost() } else { None };
    lost.unwrap_or_else(|| Error::of(String::from_utf8_lossy(path), errno))
}

fn ns(time: Timestamp) -> i64 {
    time.sec.saturating_mul(1_000_000_000).saturating_add(time.nsec.into())
}

fn set_time(ns: Option<i64>) -> SetTime {
    let second = 1_000_000_000;
    ns.map_or(SetTime::Omit, |ns| {
        SetTime::At(Timestamp { sec: ns.div_euclid(second), nsec: ns.rem_euclid(second) as u32 })
    })
}

pub(super) fn stat_of(attr: &Attr) -> Stat {
    Stat {
        ino: attr.ino.0,
        size: attr.size,
        allocated: attr.blocks * 512,
        atime_ns: ns(attr.atime),
        mtime_ns: ns(attr.mtime),
        ctime_ns: ns(attr.ctime),
        mode: attr.kind.as_raw_mode() | attr.mode.as_raw_mode(),
        nlink: attr.nlink as u32,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        ..Stat::default()
    }
}

impl<V: AcrossForks> Calls<V> {
    /// Calls outside of groups.
    pub fn new(vfs: Arc<V>) -> Calls<V> {
        Calls { vfs, group: Ok(None) }
    }

    /// Begins an explicit group. It never fails: if there can be none, the calls on the group say so.
    pub fn begin(&self) -> Group<V> {
        Group::new(Calls { vfs: self.vfs.clone(), group: self.vfs.begin().map(Some) })
    }

    /// The store or volume.
    pub fn vfs(&self) -> &Arc<V> {
        &self.vfs
    }

    pub(super) fn group(&self) -> Result<Option<GroupId>> {
        self.group.clone()
    }

    /// The group that they belong to, if this process has begun it.
    pub(super) fn own_group(&self) -> Result<Option<GroupId>> {
        match self.group()? {
            Some(group) if !self.vfs.has_given(group.0) => Err(begun_before_fork()),
            group => Ok(group),
        }
    }

    pub(super) fn named(&self, place: &[u8], errno: Errno) -> Error {
        named(&*self.vfs, place, errno)
    }

    /// Makes a call by a path that begins at the root.
    fn by<T>(
        &self,
        path: &Path,
        call: impl FnOnce(&Paths<'_, V>, &Context, &[u8]) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let path = path.as_os_str().as_bytes();
        let path = if path.is_empty() { b"." } else { path };
        let ctx = Context { group: self.own_group()?, ..me() };
        call(&Paths(&*self.vfs), &ctx, path).map_err(|errno| self.named(path, errno))
    }

    pub(super) fn opened(&self, path: &Path, flags: OFlags, mode: u32) -> Result<File<V>> {
        self.by(path, |_, ctx, path| File::open(&self.vfs, ctx, path, flags, Mode::from_raw_mode(mode)))
    }

    /// Opens an existing regular file for reading and writing. A symbolic link at the end of the path is followed.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File<V>> {
        self.opened(path.as_ref(), OFlags::RDWR, 0)
    }

    /// Creates a regular file with the permission bits `mode`, whatever the umask.
    ///
    /// # Errors
    /// [`Error::Exists`]; those of `open`.
    pub fn create_file(&self, path: impl AsRef<Path>, mode: u32) -> Result<File<V>> {
        self.opened(path.as_ref(), OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// Reads all bytes of a regular file, as these calls see it.
    ///
    /// # Errors
    /// Those of `open` and `read`.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let calls = file.within(self)?;
        let mut content = vec![0; calls.metadata()?.size as usize];
        let read = calls.read_at(0, &mut content)?;
        content.truncate(read);
        Ok(content)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of `mkdir`.
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.by(path.as_ref(), |paths, ctx, path| {
            paths.mkdir(ctx, Ino::ROOT, path, Mode::from_raw_mode(mode)).map(drop)
        })
    }

    /// Makes a special file; `mode` has its type.
    ///
    /// # Errors
    /// Those of `mknod`.
    pub fn mknod(&self, path: impl AsRef<Path>, mode: u32, rdev: u64) -> Result<()> {
        let (kind, bits) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
        self.by(path.as_ref(), |paths, ctx, path| paths.mknod(ctx, Ino::ROOT, path, kind, bits, rdev).map(drop))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Those of `symlink`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let target = target.as_ref().as_os_str().as_bytes();
        self.by(path.as_ref(), |paths, ctx, path| paths.symlink(ctx, Ino::ROOT, path, target).map(drop))
    }

    /// Gives an object one more name. A symbolic link is not followed.
    ///
    /// # Errors
    /// Those of `link`.
    pub fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let to = to.as_ref().as_os_str().as_bytes();
        self.by(from.as_ref(), |paths, ctx, from| paths.link(ctx, Ino::ROOT, from, to, false).map(drop))
    }

    /// Removes a name.
    ///
    /// # Errors
    /// Those of `unlink`.
    pub fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        self.by(path.as_ref(), |paths, ctx, path| paths.unlink(ctx, Ino::ROOT, path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `rmdir`.
    pub fn rmdir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.by(path.as_ref(), |paths, ctx, path| paths.rmdir(ctx, Ino::ROOT, path))
    }

    /// Renames an object.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, how: Rename) -> Result<()> {
        let to = to.as_ref().as_os_str().as_bytes();
        self.by(from.as_ref(), |paths, ctx, from| paths.rename(ctx, Ino::ROOT, from, to, how))
    }

    fn set(&self, path: &Path, change: &SetAttr) -> Result<()> {
        self.by(path, |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, false)?;
            self.vfs.setattr(ctx, found.ino(), None, change).map(drop)
        })
    }

    /// Sets permission bits.
    ///
    /// # Errors
    /// Those of `chmod`.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.set(path.as_ref(), &SetAttr { mode: Some(Mode::from_raw_mode(mode)), ..SetAttr::default() })
    }

    /// Sets the owner, the group of users, or both.
    ///
    /// # Errors
    /// Those of `chown`.
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set(path.as_ref(), &SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// Sets times, in ns since 1970.
    ///
    /// # Errors
    /// Those of `utimensat`.
    pub fn set_times(&self, path: impl AsRef<Path>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        let change = SetAttr { atime: set_time(atime_ns), mtime: set_time(mtime_ns), ..SetAttr::default() };
        self.set(path.as_ref(), &change)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// Those of `setxattr`.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.by(path.as_ref(), |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, false)?;
            self.vfs.setxattr(ctx, found.ino(), name.as_ref().as_bytes(), value, how)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of `removexattr`.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.by(path.as_ref(), |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, false)?;
            self.vfs.removexattr(ctx, found.ino(), name.as_ref().as_bytes())
        })
    }

    /// Returns the value of an extended attribute, if there is one.
    ///
    /// # Errors
    /// Those of `getxattr`.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        self.by(path.as_ref(), |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, false)?;
            match self.vfs.getxattr(ctx, found.ino(), name.as_ref().as_bytes()) {
                Err(Errno::NODATA) => Ok(None),
                value => value.map(Some),
            }
        })
    }

    /// Returns the names of the extended attributes.
    ///
    /// # Errors
    /// Those of `listxattr`.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        self.by(path.as_ref(), |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, false)?;
            let names = self.vfs.listxattr(ctx, found.ino())?;
            Ok(names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
        })
    }

    /// Returns what is known of an object. A symbolic link is not followed.
    ///
    /// # Errors
    /// Those of `lstat`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.by(path.as_ref(), |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, false)?;
            Ok(stat_of(&found.attr))
        })
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Those of `readlink`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.by(path.as_ref(), |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, false)?;
            self.vfs.readlink(ctx, found.ino())
        })
    }

    /// Returns the names in a directory, without `.` and `..`.
    ///
    /// # Errors
    /// Those of `open` and `getdents`.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        self.by(path.as_ref(), |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, true)?;
            let dir = self.vfs.opendir(ctx, found.ino())?;
            let mut names = Vec::new();
            let listed = self.vfs.readdir(ctx, &dir, 0, &mut |entry| {
                if !matches!(entry.name, b"." | b"..") {
                    names.push(DirEntry {
                        name: entry.name.to_vec(),
                        ino: entry.ino.0,
                        kind: entry.kind.as_raw_mode(),
                    });
                }
                true
            });
            self.vfs.releasedir(ctx, dir)?;
            listed.map(|()| names)
        })
    }

    /// Whether the calling process may use an object so.
    ///
    /// # Errors
    /// Those of `access`.
    pub fn access(&self, path: impl AsRef<Path>, access: Access) -> Result<()> {
        self.by(path.as_ref(), |paths, ctx, path| {
            let found = paths.resolve(ctx, Ino::ROOT, path, true)?;
            self.vfs.access(ctx, found.ino(), access)
        })
    }
}
