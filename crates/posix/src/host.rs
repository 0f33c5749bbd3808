//! A directory of the host as a [`Vfs`]: what the suite is proven on, and what others are compared with.
//!
//! Every call is the kernel's own on descriptors: an inode is one opened with `O_PATH`, which keeps its number from
//! being given again. Calls that know no such descriptor go through `/proc/self/fd`, which leads to the very inode, be
//! it a symbolic link.

mod acting;
mod inodes;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, RawDir, SeekFrom, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::ReadWriteFlags;
use wholly_vfs::{
    Access, Attr, Context, Errno, Fallocate, FileType, Handle, Handles, Ino, Listed, Mode, OFlags, Rename, Result,
    Seek, SetAttr, SetTime, SetXattr, StatFs, Vfs,
};

use acting::{Acting, with_umask};
use inodes::Inodes;

/// What `open` may be asked for.
const OPEN: OFlags = OFlags::ACCMODE
    .union(OFlags::APPEND)
    .union(OFlags::TRUNC)
    .union(OFlags::DSYNC)
    .union(OFlags::SYNC)
    .union(OFlags::NOATIME)
    .union(OFlags::DIRECTORY);

/// Neither waits for the other end of a FIFO nor takes a terminal.
const CALM: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A directory of the host. No other file system may be mounted below it, and nobody else may move directories out of
/// it.
///
/// A superuser's process makes each call as the user of its context; any other only calls as itself, and the rest fail
/// with `EPERM`. [`setattr`](Vfs::setattr) with several attributes is several calls of the kernel here, not one.
pub struct HostVfs {
    inodes: Inodes,
    handles: Handles,
    /// Keeps two appends on one handle from reading each other's position.
    appending: Mutex<()>,
}

impl HostVfs {
    /// Opens a directory.
    ///
    /// # Errors
    /// Those of `openat`.
    pub fn open(path: &Path) -> Result<HostVfs> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        HostVfs::of(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
    }

    /// Takes an open directory.
    ///
    /// # Errors
    /// Those of `statx`.
    pub fn of(root: OwnedFd) -> Result<HostVfs> {
        Ok(HostVfs { inodes: Inodes::new(root)?, handles: Handles::from(1), appending: Mutex::default() })
    }

    /// The directory, for calls that know nothing of the trait.
    pub fn root(&self) -> Arc<OwnedFd> {
        self.inodes.root()
    }

    /// How many references and handles there are: none, once all were given back.
    pub fn held(&self) -> (u64, usize) {
        (self.inodes.references(), self.handles.count())
    }

    fn handle<'h>(&self, handle: &'h Handle) -> Result<&'h OwnedFd> {
        self.handles.get(handle)
    }

    /// What was just made as `name`.
    fn made(&self, dir: &OwnedFd, name: &[u8]) -> Result<Attr> {
        self.inodes.adopt(rustix::fs::openat(
            dir,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }

    /// A handle on what was just opened, and a reference to it.
    fn opened(&self, fd: OwnedFd) -> Result<(Attr, Handle)> {
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        if kind != FileType::RegularFile {
            return Err(if kind == FileType::Directory { Errno::ISDIR } else { Errno::NXIO });
        }
        let place = rustix::fs::openat(CWD, itself(&fd), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok((self.inodes.adopt(place)?, self.handles.open(fd)))
    }
}

/// A path to what a descriptor is open on.
fn itself(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// A name must not be a path.
fn single(name: &[u8]) -> Result<()> {
    if name.contains(&b'/') { Err(Errno::INVAL) } else { Ok(()) }
}

fn timespec(time: SetTime) -> Timespec {
    match time {
        SetTime::Omit => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::At(at) => Timespec { tv_sec: at.sec, tv_nsec: at.nsec.into() },
    }
}

/// The largest value of an extended attribute, and the largest list of names.
const XATTR_MAX: usize = 1 << 16;

impl Vfs for HostVfs {
    fn lookup(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr> {
        single(name)?;
        let name = if dir == Ino::ROOT && name == b".." { b"." } else { name };
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        self.made(&dir, name)
    }

    fn forget(&self, ino: Ino, references: u64) {
        self.inodes.forget(ino, references);
    }

    fn getattr(&self, _ctx: &Context, ino: Ino) -> Result<Attr> {
        self.inodes.attr(ino)
    }

    fn setattr(&self, ctx: &Context, ino: Ino, handle: Option<&Handle>, change: &SetAttr) -> Result<Attr> {
        let inode = self.inodes.get(ino)?;
        let kind = self.inodes.attr(ino)?.kind;
        let opened = handle.map(|handle| self.handle(handle)).transpose()?;
        let acting = Acting::new(ctx)?;
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(rustix::fs::Uid::from_raw), change.gid.map(rustix::fs::Gid::from_raw));
            rustix::fs::chownat(&inode, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = change.mode {
            rustix::fs::chmodat(CWD, itself(&inode), mode, AtFlags::empty())?;
        }
        match (change.size, opened) {
            (None, _) => {}
            (Some(size), Some(fd)) => rustix::fs::ftruncate(fd, size)?,
            (Some(_), None) if kind == FileType::Directory => return Err(Errno::ISDIR),
            (Some(_), None) if kind != FileType::RegularFile => return Err(Errno::INVAL),
            (Some(size), None) => {
                let fd = rustix::fs::openat(CWD, itself(&inode), OFlags::WRONLY | CALM, Mode::empty())?;
                rustix::fs::ftruncate(fd, size)?;
            }
        }
        if (change.atime, change.mtime) != (SetTime::Omit, SetTime::Omit) {
            let times = Timestamps { last_access: timespec(change.atime), last_modification: timespec(change.mtime) };
            rustix::fs::utimensat(&inode, "", &times, AtFlags::EMPTY_PATH)?;
        }
        drop(acting);
        self.inodes.attr(ino)
    }

    fn access(&self, ctx: &Context, ino: Ino, access: Access) -> Result<()> {
        let (inode, _acting) = (self.inodes.get(ino)?, Acting::new(ctx)?);
        rustix::fs::accessat(CWD, itself(&inode), access, AtFlags::EACCESS)
    }

    fn readlink(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>> {
        if self.inodes.attr(ino)?.kind != FileType::Symlink {
            return Err(Errno::INVAL);
        }
        let (inode, _acting) = (self.inodes.get(ino)?, Acting::new(ctx)?);
        Ok(rustix::fs::readlinkat(&inode, "", Vec::new())?.into_bytes())
    }

    fn mknod(&self, ctx: &Context, dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr> {
        single(name)?;
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        with_umask(ctx, || rustix::fs::mknodat(&dir, name, kind, mode, rdev))?;
        self.made(&dir, name)
    }

    fn mkdir(&self, ctx: &Context, dir: Ino, name: &[u8], mode: Mode) -> Result<Attr> {
        single(name)?;
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        with_umask(ctx, || rustix::fs::mkdirat(&dir, name, mode))?;
        self.made(&dir, name)
    }

    fn symlink(&self, ctx: &Context, dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
        single(name)?;
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        rustix::fs::symlinkat(target, &dir, name)?;
        self.made(&dir, name)
    }

    fn link(&self, ctx: &Context, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
        single(name)?;
        let (inode, dir, _acting) = (self.inodes.get(ino)?, self.inodes.get(dir)?, Acting::new(ctx)?);
        rustix::fs::linkat(CWD, itself(&inode), &dir, name, AtFlags::SYMLINK_FOLLOW)?;
        self.made(&dir, name)
    }

    fn unlink(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
        single(name)?;
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        rustix::fs::unlinkat(&dir, name, AtFlags::empty())
    }

    fn rmdir(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
        single(name)?;
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)
    }

    fn rename(&self, ctx: &Context, from: Ino, name: &[u8], to: Ino, new_name: &[u8], how: Rename) -> Result<()> {
        single(name)?;
        single(new_name)?;
        let (from, to, _acting) = (self.inodes.get(from)?, self.inodes.get(to)?, Acting::new(ctx)?);
        rustix::fs::renameat_with(&from, name, &to, new_name, rustix::fs::RenameFlags::from_bits_retain(how.flags()))
    }

    fn open(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle> {
        let kind = self.inodes.attr(ino)?.kind;
        if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Symlink) {
            return Err(Errno::NXIO);
        }
        let (inode, _acting) = (self.inodes.get(ino)?, Acting::new(ctx)?);
        let fd = rustix::fs::openat(CWD, itself(&inode), flags & OPEN | CALM, Mode::empty())?;
        if kind == FileType::Directory {
            return Err(Errno::ISDIR);
        }
        Ok(self.handles.open(fd))
    }

    fn create(&self, ctx: &Context, dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
        single(name)?;
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        let flags = flags & (OPEN | OFlags::EXCL) | OFlags::CREATE | OFlags::NOFOLLOW | CALM;
        self.opened(with_umask(ctx, || rustix::fs::openat(&dir, name, flags, mode))?)
    }

    fn tmpfile(&self, ctx: &Context, dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        let flags = flags & (OPEN | OFlags::EXCL) | OFlags::TMPFILE | CALM;
        self.opened(with_umask(ctx, || rustix::fs::openat(&dir, ".", flags, mode))?)
    }

    fn read(&self, ctx: &Context, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (file, _acting) = (self.handle(handle)?, Acting::new(ctx)?);
        rustix::io::pread(file, buf, offset)
    }

    fn write(&self, ctx: &Context, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
        let (file, _acting) = (self.handle(handle)?, Acting::new(ctx)?);
        rustix::io::pwrite(file, data, offset)
    }

    fn append(&self, ctx: &Context, handle: &Handle, data: &[u8]) -> Result<(u64, usize)> {
        let (file, _acting) = (self.handle(handle)?, Acting::new(ctx)?);
        let _alone = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        // From the descriptor's own position, which nobody else uses and which ends behind what was written.
        let written = rustix::io::pwritev2(file, &[IoSlice::new(data)], u64::MAX, ReadWriteFlags::APPEND)?;
        let end = rustix::fs::seek(file, if written == 0 { SeekFrom::End(0) } else { SeekFrom::Current(0) })?;
        Ok((end - written as u64, written))
    }

    fn copy_file_range(
        &self,
        ctx: &Context,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        len: usize,
    ) -> Result<usize> {
        let (from, to, _acting) = (self.handle(from)?, self.handle(to)?, Acting::new(ctx)?);
        let (mut from_offset, mut to_offset) = (from_offset, to_offset);
        rustix::fs::copy_file_range(from, Some(&mut from_offset), to, Some(&mut to_offset), len)
    }

    fn fallocate(&self, ctx: &Context, handle: &Handle, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let (file, _acting) = (self.handle(handle)?, Acting::new(ctx)?);
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::from_bits_retain(how.flags()), offset, len)
    }

    fn seek(&self, ctx: &Context, handle: &Handle, seek: Seek) -> Result<u64> {
        let (file, _acting) = (self.handle(handle)?, Acting::new(ctx)?);
        let from = match seek {
            Seek::Data(offset) => SeekFrom::Data(offset),
            Seek::Hole(offset) => SeekFrom::Hole(offset),
        };
        rustix::fs::seek(file, from)
    }

    fn fsync(&self, _ctx: &Context, handle: &Handle) -> Result<()> {
        rustix::fs::fsync(self.handle(handle)?)
    }

    fn fdatasync(&self, _ctx: &Context, handle: &Handle) -> Result<()> {
        rustix::fs::fdatasync(self.handle(handle)?)
    }

    fn release(&self, _ctx: &Context, handle: Handle) -> Result<()> {
        self.handles.close::<OwnedFd>(&handle).map(drop)
    }

    fn opendir(&self, ctx: &Context, dir: Ino) -> Result<Handle> {
        let (dir, _acting) = (self.inodes.get(dir)?, Acting::new(ctx)?);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(self.handles.open(rustix::fs::openat(CWD, itself(&dir), flags, Mode::empty())?))
    }

    fn readdir(
        &self,
        ctx: &Context,
        handle: &Handle,
        offset: u64,
        each: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let dir = self.handle(handle)?;
        let acting = Acting::new(ctx)?;
        rustix::fs::seek(dir, SeekFrom::Start(offset))?;
        let mut buf = [MaybeUninit::uninit(); 8192];
        let mut entries = RawDir::new(dir, &mut buf);
        let is_root = rustix::fs::fstat(dir)?.st_ino == self.inodes.host_root();
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            found.push((
                entry.ino(),
                entry.next_entry_cookie(),
                entry.file_type(),
                entry.file_name().to_bytes().to_vec(),
            ));
        }
        // `each` may make calls of its own.
        drop(acting);
        for (host_ino, next, kind, name) in &found {
            let ino = if is_root && name == b".." { Ino::ROOT } else { self.inodes.number(*host_ino) };
            if !each(Listed { ino, next: *next, kind: *kind, name }) {
                break;
            }
        }
        Ok(())
    }

    fn fsyncdir(&self, _ctx: &Context, handle: &Handle) -> Result<()> {
        rustix::fs::fsync(self.handle(handle)?)
    }

    fn releasedir(&self, _ctx: &Context, handle: Handle) -> Result<()> {
        self.handles.close::<OwnedFd>(&handle).map(drop)
    }

    fn setxattr(&self, ctx: &Context, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        let (inode, _acting) = (self.inodes.get(ino)?, Acting::new(ctx)?);
        rustix::fs::setxattr(itself(&inode), name, value, rustix::fs::XattrFlags::from_bits_retain(how.flags()))
    }

    fn getxattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let (inode, _acting) = (self.inodes.get(ino)?, Acting::new(ctx)?);
        let mut value = vec![0; XATTR_MAX];
        let len = rustix::fs::getxattr(itself(&inode), name, &mut value[..])?;
        value.truncate(len);
        Ok(value)
    }

    fn listxattr(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>> {
        let (inode, _acting) = (self.inodes.get(ino)?, Acting::new(ctx)?);
        let mut names = vec![0; XATTR_MAX];
        let len = rustix::fs::listxattr(itself(&inode), &mut names[..])?;
        names.truncate(len);
        Ok(names)
    }

    fn removexattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<()> {
        let (inode, _acting) = (self.inodes.get(ino)?, Acting::new(ctx)?);
        rustix::fs::removexattr(itself(&inode), name)
    }

    fn statfs(&self, _ctx: &Context, ino: Ino) -> Result<StatFs> {
        let stat = rustix::fs::fstatvfs(self.inodes.get(ino)?)?;
        Ok(StatFs {
            block_size: stat.f_frsize,
            blocks: stat.f_blocks,
            free_blocks: stat.f_bfree,
            available_blocks: stat.f_bavail,
            inodes: stat.f_files,
            free_inodes: stat.f_ffree,
            name_max: stat.f_namemax,
        })
    }

    fn sync(&self, _ctx: &Context) -> Result<()> {
        // Descriptors made with `O_PATH` cannot; the root's is another.
        rustix::fs::syncfs(self.root())
    }
}
