//! Requests of the kernel as calls of a [`Vfs`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenAccMode, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use wholly::vfs::{
    Attr, Context, Errno, FallocateFlags, FileType, GroupId, Handle, Mode, OFlags, RenameFlags, Result, Seek, SetAttr,
    SetTime, Vfs, XattrFlags,
};

use crate::convert::{attr, device, errno, ino, kind, nothing, set_time};
use crate::identity::Identity;

/// The inode numbers of a store mean one thing as long as somebody refers to them, so that they need no generations.
const GENERATION: Generation = Generation(0);

/// The most bytes that one write, or one read, brings.
const LARGEST: u32 = 1 << 20;

/// Bytes that one call may write to a file, at any offset, so that they are one request where
/// [`MountOptions::whole_writes`](crate::MountOptions::whole_writes) asks for that.
pub const LARGEST_WRITE: usize = (LARGEST as usize) - 4096;

/// Serves one mount.
pub(crate) struct Adapter {
    pub vfs: Arc<dyn Vfs>,
    /// How long the kernel believes what it was told.
    pub valid: Duration,
    /// Whether closing a file is to make it durable.
    pub syncs_on_close: bool,
    /// The explicit group that all calls belong to, if they do.
    pub group: Option<GroupId>,
    /// Whether what one call writes is to come in one request.
    pub whole_writes: bool,
    /// Whose numbers the kernel speaks of.
    pub identity: Identity,
}

/// What the kernel does not know the meaning of, or deals with alone: a handle of ours neither appends nor syncs by itself.
fn flags(open: OpenFlags) -> OFlags {
    OFlags::from_bits_retain(open.0 as u32) - (OFlags::APPEND | OFlags::SYNC | OFlags::DSYNC | OFlags::DIRECT)
}

fn handle(fh: FileHandle) -> Handle {
    Handle(fh.0)
}

impl Adapter {
    fn entry(&self, reply: ReplyEntry, made: Result<Attr>) {
        match made {
            Ok(made) => reply.entry(&self.valid, &attr(&self.identity.shown(&made)), GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn attr(&self, reply: ReplyAttr, found: Result<Attr>) {
        match found {
            Ok(found) => reply.attr(&self.valid, &attr(&self.identity.shown(&found))),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// The pages of a file change by calls that the kernel sees, and otherwise with its times: they are good for who opens it next. But what is
    /// written through them comes page by page.
    fn open_flags(&self, open: OpenFlags) -> FopenFlags {
        match self.whole_writes && open.acc_mode() != OpenAccMode::O_RDONLY {
            true => FopenFlags::FOPEN_DIRECT_IO,
            false => FopenFlags::FOPEN_KEEP_CACHE,
        }
    }

    fn opened(reply: ReplyOpen, opened: Result<Handle>, flags: FopenFlags) {
        match opened {
            Ok(handle) => reply.opened(FileHandle(handle.0), flags),
            Err(error) => reply.error(errno(error)),
        }
    }
}

fn done(reply: ReplyEmpty, result: Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

fn data(reply: ReplyData, result: Result<Vec<u8>>) {
    match result {
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(errno(error)),
    }
}

fn written(reply: ReplyWrite, result: Result<usize>) {
    match result {
        Ok(bytes) => reply.written(bytes as u32),
        Err(error) => reply.error(errno(error)),
    }
}

/// A value, or how long it is, as was asked.
fn value(reply: ReplyXattr, size: u32, result: Result<Vec<u8>>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Errno::RANGE)),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits & 0o7777)
}

/// Whether a change of attributes costs a file its set-id bits, beside one of its owner, of which the store knows. A new size does, unless it is the superuser's: of
/// the request's flags the crate does not tell the one that says so. And so does a request that asks for nothing: the kernel makes one for a `chown` that
/// gives no new owner, and before a change of content that takes the bits.
fn takes_set_id(req: &Request, change: &SetAttr) -> bool {
    let SetAttr { mode, uid, gid, size, atime, mtime } = change;
    let nothing = (mode, uid, gid, size) == (&None, &None, &None, &None);
    (size.is_some() && req.uid() != 0) || (nothing && [atime, mtime].iter().all(|time| matches!(time, SetTime::Omit)))
}

/// What is left of a file's mode without them, where that is another one.
fn without_set_id(found: &Attr) -> Option<Mode> {
    let group = if found.mode.contains(Mode::XGRP) { Mode::SGID } else { Mode::empty() };
    let left = found.mode - (Mode::SUID | group);
    Some(left).filter(|left| found.kind != FileType::Directory && *left != found.mode)
}

/// Asks the kernel for what a mount wants to have of it. What is measured beside ours asks for the same.
#[doc(hidden)]
pub fn ask(config: &mut KernelConfig) {
    let wanted = [
        InitFlags::FUSE_ASYNC_READ,
        // Default access lists say what becomes of a mode, and only the store knows them.
        InitFlags::FUSE_DONT_MASK,
        InitFlags::FUSE_POSIX_ACL,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_READDIRPLUS_AUTO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        // What a bystander has done to a file is seen once its attributes are asked for again.
        InitFlags::FUSE_AUTO_INVAL_DATA,
        // Also what is open for writing may be mapped, where whole writes are wanted.
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        // Set-id bits go here when content or owner change ([`takes_set_id`]): else the kernel would ask for a file's attributes before each
        // `chown`, and for its capabilities before each write.
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    ];
    for flag in wanted {
        // What the kernel cannot do it does without.
        let _ = config.add_capabilities(flag);
    }
    let _ = config.set_max_write(LARGEST);
    let _ = config.set_max_readahead(LARGEST);
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        ask(config);
        Ok(())
    }

    fn destroy(&mut self) {
        let _ = self.vfs.sync(&Context::superuser());
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.vfs.lookup(&self.permitted(req), ino(parent), name.as_bytes()) {
            // That there is no such name the kernel keeps too, and for as long: whoever makes it does so through the kernel, but for bystanders.
            Err(Errno::NOENT) => reply.entry(&self.valid, &nothing(), GENERATION),
            found => self.entry(reply, found),
        }
    }

    fn forget(&self, _req: &Request, node: INodeNo, references: u64) {
        self.vfs.forget(ino(node), references);
    }

    fn getattr(&self, req: &Request, node: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(reply, self.vfs.getattr(&self.permitted(req), ino(node)));
    }

    fn setattr(
        &self,
        req: &Request,
        node: INodeNo,
        bits: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (set_time(atime), set_time(mtime));
        let mut change = SetAttr { mode: bits.map(mode), uid, gid, size, atime, mtime };
        let fh = fh.filter(|_| size.is_some()).map(handle);
        let ctx = self.permitted(req);
        if takes_set_id(req, &change) {
            match self.vfs.getattr(&ctx, ino(node)) {
                Ok(found) => change.mode = without_set_id(&found),
                Err(error) => return reply.error(errno(error)),
            }
        }
        self.attr(reply, self.vfs.setattr(&ctx, ino(node), fh, &change));
    }

    fn readlink(&self, req: &Request, node: INodeNo, reply: ReplyData) {
        data(reply, self.vfs.readlink(&self.permitted(req), ino(node)));
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, bits: u32, umask: u32, rdev: u32, reply: ReplyEntry) {
        let (ctx, kind) = (self.with_umask(req, umask), FileType::from_raw_mode(bits));
        self.entry(reply, self.vfs.mknod(&ctx, ino(parent), name.as_bytes(), kind, mode(bits), device(rdev)));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, bits: u32, umask: u32, reply: ReplyEntry) {
        let ctx = self.with_umask(req, umask);
        self.entry(reply, self.vfs.mkdir(&ctx, ino(parent), name.as_bytes(), mode(bits)));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.vfs.unlink(&self.permitted(req), ino(parent), name.as_bytes()));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.vfs.rmdir(&self.permitted(req), ino(parent), name.as_bytes()));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        self.entry(reply, self.vfs.symlink(&self.permitted(req), ino(parent), name.as_bytes(), target));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = RenameFlags::from_bits_retain(flags.bits());
        let ctx = self.permitted(req);
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        done(reply, self.vfs.rename(&ctx, ino(parent), name, ino(new_parent), new_name, flags));
    }

    fn link(&self, req: &Request, node: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let ctx = self.permitted(req);
        self.entry(reply, self.vfs.link(&ctx, ino(node), ino(new_parent), new_name.as_bytes()));
    }

    fn open(&self, req: &Request, node: INodeNo, open: OpenFlags, reply: ReplyOpen) {
        Self::opened(reply, self.vfs.open(&self.permitted(req), ino(node), flags(open)), self.open_flags(open));
    }

    fn read(
        &self,
        req: &Request,
        _node: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let read = self.vfs.read(&self.permitted(req), handle(fh), offset, &mut bytes);
        data(
            reply,
            read.map(|length| {
                bytes.truncate(length);
                bytes
            }),
        );
    }

    fn write(
        &self,
        req: &Request,
        _node: INodeNo,
        fh: FileHandle,
        offset: u64,
        bytes: &[u8],
        how: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Where the kernel keeps no pages of it, it leaves the set-id bits to us.
        let ctx = match how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            true => self.as_they_are(req),
            false => self.permitted(req),
        };
        written(reply, self.vfs.write(&ctx, handle(fh), offset, bytes));
    }

    fn flush(&self, req: &Request, _node: INodeNo, fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        match self.syncs_on_close {
            // The kernel does not wait for `release`.
            true => done(reply, self.vfs.fsync(&self.permitted(req), handle(fh))),
            // There is nothing to do at any close, and this answer the kernel keeps: it does not ask again. It writes what is dirty in its pages
            // all the same.
            false => reply.error(errno(Errno::NOSYS)),
        }
    }

    fn release(
        &self,
        req: &Request,
        _node: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        done(reply, self.vfs.release(&self.permitted(req), handle(fh)));
    }

    fn fsync(&self, req: &Request, _node: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let ctx = self.permitted(req);
        done(reply, if datasync { self.vfs.fdatasync(&ctx, handle(fh)) } else { self.vfs.fsync(&ctx, handle(fh)) });
    }

    fn opendir(&self, req: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        Self::opened(reply, self.vfs.opendir(&self.permitted(req), ino(node)), FopenFlags::empty());
    }

    fn readdir(&self, req: &Request, _node: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.vfs.readdir(&self.permitted(req), handle(fh), offset, &mut |entry| {
            !reply.add(INodeNo(entry.ino.0), entry.next, kind(entry.kind), OsStr::from_bytes(entry.name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(&self, req: &Request, node: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let ctx = self.permitted(req);
        let listed = self.vfs.readdir(&ctx, handle(fh), offset, &mut |entry| {
            let found = match self.vfs.lookup(&ctx, ino(node), entry.name) {
                Ok(found) => found,
                // It has gone since the list was made; or it cannot be looked at, as what another file system covers: a listing without attributes
                // has its name.
                Err(_) => return true,
            };
            let name = OsStr::from_bytes(entry.name);
            let full = reply.add(
                INodeNo(found.ino.0),
                entry.next,
                name,
                &self.valid,
                &attr(&self.identity.shown(&found)),
                GENERATION,
            );
            // The kernel counts no reference for these two.
            if full || entry.name == b"." || entry.name == b".." {
                self.vfs.forget(found.ino, 1);
            }
            !full
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn releasedir(&self, req: &Request, _node: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        done(reply, self.vfs.releasedir(&self.permitted(req), handle(fh)));
    }

    fn fsyncdir(&self, req: &Request, _node: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, self.vfs.fsyncdir(&self.permitted(req), handle(fh)));
    }

    fn statfs(&self, req: &Request, node: INodeNo, reply: ReplyStatfs) {
        match self.vfs.statfs(&self.permitted(req), ino(node)) {
            Ok(is) => {
                let block = u32::try_from(is.block_size).unwrap_or(u32::MAX);
                let (free, available, name_max) = (is.free_blocks, is.available_blocks, is.name_max as u32);
                reply.statfs(is.blocks, free, available, is.inodes, is.free_inodes, block, name_max, block);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        done(reply, self.vfs.setxattr(&self.permitted(req), ino(node), name.as_bytes(), value, flags));
    }

    fn getxattr(&self, req: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        value(reply, size, self.vfs.getxattr(&self.permitted(req), ino(node), name.as_bytes()));
    }

    fn listxattr(&self, req: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        // Which of them a user may see the kernel leaves to us.
        value(reply, size, self.vfs.listxattr(&self.as_they_are(req), ino(node)));
    }

    fn removexattr(&self, req: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.vfs.removexattr(&self.permitted(req), ino(node), name.as_bytes()));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        bits: u32,
        umask: u32,
        open: i32,
        reply: ReplyCreate,
    ) {
        let ctx = self.with_umask(req, umask);
        match self.vfs.create(&ctx, ino(parent), name.as_bytes(), flags(OpenFlags(open)), mode(bits)) {
            Ok((made, handle)) => {
                let flags = self.open_flags(OpenFlags(open));
                reply.created(&self.valid, &attr(&self.identity.shown(&made)), GENERATION, FileHandle(handle.0), flags);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        _node: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        how: i32,
        reply: ReplyEmpty,
    ) {
        let how = FallocateFlags::from_bits_retain(how as u32);
        done(reply, self.vfs.fallocate(&self.permitted(req), handle(fh), how, offset, length));
    }

    fn lseek(&self, req: &Request, _node: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let seek = match (whence, u64::try_from(offset)) {
            (SEEK_DATA, Ok(offset)) => Seek::Data(offset),
            (SEEK_HOLE, Ok(offset)) => Seek::Hole(offset),
            (SEEK_DATA | SEEK_HOLE, Err(_)) => return reply.error(errno(Errno::NXIO)),
            _ => return reply.error(errno(Errno::INVAL)),
        };
        match self.vfs.seek(&self.permitted(req), handle(fh), seek) {
            Ok(offset) => reply.offset(offset as i64),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _node: INodeNo,
        fh: FileHandle,
        offset: u64,
        _node_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // How many were copied is told in 32 bits.
        let length = length.min(1 << 30) as usize;
        let (from, to) = (handle(fh), handle(fh_out));
        written(reply, self.vfs.copy_file_range(&self.permitted(req), from, offset, to, offset_out, length));
    }
}
