//! Calls on a volume by path, for the user of the calling process: what a `Store` and its groups
//! offer, by the same names. Errors are those of the system calls of these names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::process::{getegid, geteuid, getgroups};
use wholly_error::{Error, Result};
use wholly_host::DirEntry;
use wholly_vfs::{
    Access, Attr, Context, Errno, Fallocate, FileType, GroupId, Groups, Handle, Ino, Mode, OFlags, Paths, Rename,
    SetAttr, SetTime, SetXattr, Stat, Timestamp, Vfs,
};

use crate::engine::InoGen;
use crate::fork::begun_before_fork;
use crate::{Volume, VolumeVfs};

/// Calls by path: of a [`Volume`] outside of groups, or of a [`VolumeGroup`](crate::VolumeGroup), as it sees the
/// volume.
#[derive(Clone, Debug)]
pub struct VolumeCalls {
    vfs: Arc<VolumeVfs>,
    /// The group that they belong to; why there is none, if one was asked for.
    group: Result<Option<GroupId>>,
}

impl std::ops::Deref for Volume {
    type Target = VolumeCalls;

    fn deref(&self) -> &VolumeCalls {
        self.calls()
    }
}

/// An open regular file of a volume. A child after `fork` that takes the volume over opens it again by its path.
pub struct VolumeFile {
    vfs: Arc<VolumeVfs>,
    id: InoGen,
    handle: Handle,
    /// As it was opened.
    path: Box<[u8]>,
    /// In a child that took the volume over: the same file, opened again.
    heir: OnceLock<Box<VolumeFile>>,
}

impl std::fmt::Debug for VolumeFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VolumeFile").field("ino", &self.id.ino).finish_non_exhaustive()
    }
}

/// The user of the calling process, in no group. The superuser's further groups decide nothing.
fn me() -> Context {
    let user = geteuid();
    let groups = if user.is_root() { Vec::new() } else { getgroups().unwrap_or_default() };
    let groups = groups.iter().map(|group| group.as_raw()).collect();
    Context { groups, umask: Mode::empty(), ..Context::of(user.as_raw(), getegid().as_raw()) }
}

/// The error of a call on a volume at a path.
fn named(vfs: &VolumeVfs, path: &[u8], errno: Errno) -> Error {
    if errno == Errno::BUSY
        && let Some(error) = vfs.guarded().opened().lost()
    {
        return error;
    }
    Error::of(String::from_utf8_lossy(path), errno)
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

fn stat_of(attr: &Attr) -> Stat {
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

impl VolumeCalls {
    pub(crate) fn new(vfs: Arc<VolumeVfs>, group: Result<Option<GroupId>>) -> VolumeCalls {
        VolumeCalls { vfs, group }
    }

    pub(crate) fn vfs(&self) -> &Arc<VolumeVfs> {
        &self.vfs
    }

    pub(crate) fn group(&self) -> Result<Option<GroupId>> {
        self.group.clone()
    }

    /// The group that they belong to, if this process has begun it.
    pub(crate) fn own_group(&self) -> Result<Option<GroupId>> {
        let group = self.group()?;
        let vfs = self.vfs.guarded();
        match group {
            Some(group) if vfs.opened().is_inherited() && !vfs.has_given(group.0) => Err(begun_before_fork()),
            group => Ok(group),
        }
    }

    pub(crate) fn named(&self, place: &[u8], errno: Errno) -> Error {
        named(&self.vfs, place, errno)
    }

    /// Makes a call by a path that begins at the root.
    fn by<T>(
        &self,
        path: &Path,
        call: impl FnOnce(&Paths<'_, VolumeVfs>, &Context, &[u8]) -> std::result::Result<T, Errno>,
    ) -> Result<T> {
        let path = path.as_os_str().as_bytes();
        let path = if path.is_empty() { b"." } else { path };
        let ctx = Context { group: self.own_group()?, ..me() };
        call(&Paths(&*self.vfs), &ctx, path).map_err(|errno| self.named(path, errno))
    }

    pub(crate) fn opened(&self, path: &Path, flags: OFlags, mode: u32) -> Result<VolumeFile> {
        self.by(path, |_, ctx, path| self.opened_as(ctx, path, flags, mode))
    }

    fn opened_as(
        &self,
        ctx: &Context,
        path: &[u8],
        flags: OFlags,
        mode: u32,
    ) -> std::result::Result<VolumeFile, Errno> {
        let (_, handle) = Paths(&*self.vfs).open(ctx, Ino::ROOT, path, flags, Mode::from_raw_mode(mode))?;
        let id = self.vfs.guarded().used(None, |vfs| vfs.id_of(handle))?;
        Ok(VolumeFile { vfs: self.vfs.clone(), id, handle, path: path.into(), heir: OnceLock::new() })
    }

    /// Opens an existing regular file for reading and writing. A symbolic link at the end of the path is followed.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<VolumeFile> {
        self.opened(path.as_ref(), OFlags::RDWR, 0)
    }

    /// Creates a regular file with the permission bits `mode`, whatever the umask.
    ///
    /// # Errors
    /// [`Error::Exists`]; those of `open`.
    pub fn create_file(&self, path: impl AsRef<Path>, mode: u32) -> Result<VolumeFile> {
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
            let listed = self.vfs.readdir(ctx, dir, 0, &mut |entry| {
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

/// Calls on an open file, in a group or outside.
pub(crate) struct FileCalls<'f> {
    file: &'f VolumeFile,
    ctx: Context,
}

impl FileCalls<'_> {
    fn done<T>(&self, result: std::result::Result<T, Errno>) -> Result<T> {
        let file = self.file;
        result.map_err(|errno| named(&file.vfs, format!("inode {}", file.id.ino).as_bytes(), errno))
    }

    pub fn metadata(&self) -> Result<Stat> {
        self.done(self.file.vfs.getattr(&self.ctx, Ino(self.file.id.ino)).map(|attr| stat_of(&attr)))
    }

    pub fn add(&self) -> Result<()> {
        let group = self.ctx.group.ok_or_else(|| Error::Invalid("there is no group to add a file to".into()))?;
        self.file.vfs.add(group, self.file.handle)
    }

    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let ctx = Context { group: self.ctx.group, ..Context::superuser() };
        self.done(self.file.vfs.read(&ctx, self.file.handle, offset, buf))
    }

    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.done(self.file.vfs.write(&self.ctx, self.file.handle, offset, data))?;
        self.all((), written, data)
    }

    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let (offset, written) = self.done(self.file.vfs.append(&self.ctx, self.file.handle, data))?;
        self.all(offset, written, data)
    }

    pub fn sync(&self) -> Result<()> {
        self.done(self.file.vfs.fsync(&self.ctx, self.file.handle))
    }

    fn all<T>(&self, value: T, written: usize, data: &[u8]) -> Result<T> {
        match data.len() - written {
            0 => Ok(value),
            left => Err(Error::NoSpace(format!("{left} bytes of {}", data.len()))),
        }
    }

    pub fn set_len(&self, length: u64) -> Result<()> {
        let change = SetAttr { size: Some(length), ..SetAttr::default() };
        self.done(self.file.vfs.setattr(&self.ctx, Ino(self.file.id.ino), Some(self.file.handle), &change).map(drop))
    }

    pub fn fallocate(&self, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.done(self.file.vfs.fallocate(&self.ctx, self.file.handle, how, offset, length))
    }
}

impl VolumeFile {
    /// Calls on the file in a group.
    pub(crate) fn within(&self, calls: &VolumeCalls) -> Result<FileCalls<'_>> {
        let group = calls.own_group()?;
        if !Arc::ptr_eq(&self.vfs, &calls.vfs) {
            return Err(Error::Invalid("the file is another volume's".into()));
        }
        Ok(FileCalls { file: self.here()?, ctx: Context { group, ..me() } })
    }

    fn alone(&self) -> Result<FileCalls<'_>> {
        Ok(FileCalls { file: self.here()?, ctx: me() })
    }

    /// The file as this process has it open.
    fn here(&self) -> Result<&VolumeFile> {
        let vfs = self.vfs.guarded();
        if !vfs.opened().is_inherited() || vfs.has_given(self.handle.0) {
            return Ok(self);
        }
        if let Some(heir) = self.heir.get() {
            return heir.here();
        }
        // Whether it may be opened was asked before the fork.
        let calls = VolumeCalls::new(self.vfs.clone(), Ok(None));
        let again = match calls.opened_as(&Context::superuser(), &self.path, OFlags::RDWR, 0) {
            Ok(again) if again.id == self.id => again,
            Ok(_) | Err(Errno::NOENT) => {
                let path = String::from_utf8_lossy(&self.path);
                return Err(Error::NotFound(format!("{path}: the file that was opened there before a fork")));
            }
            Err(errno) => return Err(calls.named(&self.path, errno)),
        };
        self.heir.get_or_init(|| Box::new(again)).here()
    }

    /// What is known of the file.
    ///
    /// # Errors
    /// If its metadata is damaged.
    pub fn metadata(&self) -> Result<Stat> {
        self.alone()?.metadata()
    }

    /// Reads up to `buf.len()` bytes at `offset`. Returns how many; fewer only at the end of the file.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.alone()?.read_at(offset, buf)
    }

    /// Writes `data` at the byte `offset`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if not all of it could be written; those of `pwrite`.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.alone()?.write_at(offset, data)
    }

    /// Writes `data` at the end of the file. Returns the offset at which the data begins.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.alone()?.append(data)
    }

    /// Sets the length of the file to `length` bytes.
    ///
    /// # Errors
    /// Those of `ftruncate`.
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.alone()?.set_len(length)
    }

    /// Changes the space of a range.
    ///
    /// # Errors
    /// Those of `fallocate`.
    pub fn fallocate(&self, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.alone()?.fallocate(how, offset, length)
    }

    /// Makes the file durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed.
    pub fn sync(&self) -> Result<()> {
        self.alone()?.sync()
    }
}

impl Drop for VolumeFile {
    fn drop(&mut self) {
        let _ = self.vfs.release(&me(), self.handle);
    }
}
