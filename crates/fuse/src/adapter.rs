//! Requests of the kernel as calls of a [`Vfs`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, FopenFlags, Generation, INodeNo, IoctlFlags, KernelConfig, LockOwner,
    OpenAccMode, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use wholly_host::mount::{FATOMIC, FDATAATOMIC};
use wholly_vfs::{
    Attr, Context, Errno, Fallocate, FileType, Groups, Handle, OFlags, Rename, Result, Seek, SetAttr, SetXattr,
};

use crate::answers::{ask, data, done, mode, takes_set_id, value, without_set_id, written};
use crate::convert::{attr, device, errno, ino, kind, nothing, set_time, unknown};
use crate::groups::{Belonging, Call, Look, Touches};
use crate::identity::Identity;
use crate::lost::Lost;
use crate::open::OpenFiles;
use crate::points::Points;
use crate::untold::Untold;

/// The inode numbers of a store mean one thing as long as somebody refers to them, so that they need no generations.
const GENERATION: Generation = Generation(0);

/// Serves one mount.
pub(crate) struct Adapter {
    pub vfs: Arc<dyn Groups>,
    /// How long the kernel believes what it was told.
    pub valid: Duration,
    /// Whether closing a file is to make it durable.
    pub syncs_on_close: bool,
    /// To which explicit groups calls belong, if to any.
    pub groups: Arc<Belonging>,
    /// Whether what one call writes is to come in one request.
    pub whole_writes: bool,
    /// Whether the kernel sees all changes of content.
    pub owns_content: bool,
    /// How many threads may answer.
    pub threads: usize,
    /// Whose numbers the kernel speaks of.
    pub identity: Identity,
    /// Access lists that it could not be told.
    pub untold: Untold,
    /// Where programs see other file systems.
    pub points: Points,
    /// What nobody may hear of.
    pub lost: Lost,
    /// What is open.
    pub open: OpenFiles,
}

/// What the kernel does not know the meaning of, or deals with alone: a handle of ours neither appends nor syncs by
/// itself.
fn flags(open: OpenFlags) -> OFlags {
    OFlags::from_bits_retain(open.0 as u32) - (OFlags::APPEND | OFlags::SYNC | OFlags::DSYNC | OFlags::DIRECT)
}

/// A value; where there is none, the error is the reply.
macro_rules! had {
    ($value:expr, $reply:ident) => {
        match $value {
            Ok(value) => value,
            Err(error) => return $reply.error(errno(error)),
        }
    };
}

/// A change of names.
fn named<'a>(names: &'a [(INodeNo, &'a OsStr)]) -> Touches<'a> {
    Touches { names, ..Touches::default() }
}

/// A change of a file's content by an open file.
fn content(node: INodeNo, handle: FileHandle) -> Touches<'static> {
    Touches { node: Some(node), content: true, handle: Some(handle), ..Touches::default() }
}

impl Adapter {
    fn entry(&self, reply: ReplyEntry, made: Result<Attr>) {
        match made {
            Ok(made) => reply.entry(&self.valid, &attr(&self.identity.shown(&made)), GENERATION),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// What a call has made.
    fn made(&self, call: &Call, reply: ReplyEntry, made: Result<Attr>) {
        if let Ok(made) = &made {
            call.made(made);
        }
        self.entry(reply, made);
    }

    fn attr(&self, reply: ReplyAttr, found: Result<Attr>) {
        match found {
            Ok(found) => reply.attr(&self.valid, &attr(&self.identity.shown(&found))),
            Err(error) => reply.error(errno(error)),
        }
    }

    /// The pages of a file change by calls that the kernel sees, and otherwise with its times: they are good for who
    /// opens it next. But what is written through them comes page by page.
    fn open_flags(&self, open: OpenFlags) -> FopenFlags {
        match self.whole_writes && open.acc_mode() != OpenAccMode::O_RDONLY {
            true => FopenFlags::FOPEN_DIRECT_IO,
            false => FopenFlags::FOPEN_KEEP_CACHE,
        }
    }

    /// What a call has made and opened.
    fn created(&self, call: &Call, reply: ReplyCreate, made: Result<(Attr, Handle)>, open: OpenFlags) {
        match made {
            Ok((made, handle)) => {
                call.made(&made);
                let (shown, number) = (attr(&self.identity.shown(&made)), self.open.add(handle));
                reply.created(&self.valid, &shown, GENERATION, number, self.open_flags(open));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn opened(&self, reply: ReplyOpen, opened: Result<Handle>, flags: FopenFlags) {
        match opened {
            Ok(handle) => reply.opened(self.open.add(handle), flags),
            Err(error) => reply.error(errno(error)),
        }
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A write past the pages may overtake a read that fills them: then the time of change tells.
        ask(config, self.threads, self.whole_writes || !self.owns_content);
        Ok(())
    }

    fn destroy(&mut self) {
        let _ = self.vfs.sync(&Context::superuser());
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut before = None;
        // It is a call until it is answered: the kernel keeps the answer.
        let (_call, found) = loop {
            let call = self.look_again(req, Look::Name(parent, name), before);
            match self.find(&call.ctx, ino(parent), name) {
                Ok(found) if call.is_to_be_repeated(found.ino.0) => {
                    before = Some(found.ino.0);
                    self.vfs.forget(found.ino, 1);
                }
                found => break (call, found),
            }
        };
        match found {
            // That there is no such name the kernel keeps too, and for as long: whoever makes it does so through the
            // kernel, but for bystanders.
            Err(Errno::NOENT) => reply.entry(&self.valid, &nothing(), GENERATION),
            found => self.entry(reply, found),
        }
    }

    fn forget(&self, _req: &Request, node: INodeNo, references: u64) {
        self.groups.forget(node);
        self.vfs.forget(ino(node), references);
    }

    fn getattr(&self, req: &Request, node: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(reply, self.attr_of(&self.look(req, Look::Node(node)).ctx, ino(node)));
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
        let touches = Touches { node: Some(node), content: size.is_some(), handle: fh, ..Touches::default() };
        let call = had!(self.change(req, &touches), reply);
        let open = fh.filter(|_| size.is_some()).map(|fh| self.open.get(fh)).transpose();
        let open = had!(open, reply);
        if takes_set_id(req, &change) {
            match self.vfs.getattr(&call.ctx, ino(node)) {
                Ok(found) => change.mode = without_set_id(&found),
                Err(error) => return reply.error(errno(error)),
            }
        }
        self.attr(reply, self.vfs.setattr(&call.ctx, ino(node), open.as_ref(), &change));
    }

    fn readlink(&self, req: &Request, node: INodeNo, reply: ReplyData) {
        data(reply, self.vfs.readlink(&self.look(req, Look::Node(node)).ctx, ino(node)));
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, bits: u32, umask: u32, rdev: u32, reply: ReplyEntry) {
        let call = had!(self.make(req, umask, &named(&[(parent, name)])), reply);
        let kind = FileType::from_raw_mode(bits);
        let made = self.vfs.mknod(&call.ctx, ino(parent), name.as_bytes(), kind, mode(bits), device(rdev));
        self.made(&call, reply, made);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, bits: u32, umask: u32, reply: ReplyEntry) {
        let call = had!(self.make(req, umask, &named(&[(parent, name)])), reply);
        self.made(&call, reply, self.vfs.mkdir(&call.ctx, ino(parent), name.as_bytes(), mode(bits)));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = had!(self.change(req, &named(&[(parent, name)])), reply);
        done(reply, self.vfs.unlink(&call.ctx, ino(parent), name.as_bytes()));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = had!(self.change(req, &named(&[(parent, name)])), reply);
        done(reply, self.vfs.rmdir(&call.ctx, ino(parent), name.as_bytes()));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let call = had!(self.change(req, &named(&[(parent, name)])), reply);
        self.made(&call, reply, self.vfs.symlink(&call.ctx, ino(parent), name.as_bytes(), target));
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
        let how = had!(Rename::from_flags(flags.bits()), reply);
        let call = had!(self.change(req, &named(&[(parent, name), (new_parent, new_name)])), reply);
        let (old_name, new_name) = (name.as_bytes(), new_name.as_bytes());
        let (from, to) = ((ino(parent), old_name), (ino(new_parent), new_name));
        let brought = match how == Rename::Replace {
            true => self.untold.bring(&*self.vfs, (req.pid(), &call.ctx), from, to),
            false => Ok(()),
        };
        let renamed = brought.and_then(|()| self.vfs.rename(&call.ctx, from.0, old_name, to.0, new_name, how));
        if renamed.is_ok() && how.parts().1 {
            // The call has made something.
            if let Ok(left) = self.vfs.lookup(&call.ctx, ino(parent), old_name) {
                call.made(&left);
                self.vfs.forget(left.ino, 1);
            }
        }
        done(reply, renamed);
    }

    fn link(&self, req: &Request, node: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let name = [(new_parent, new_name)];
        let call = had!(self.change(req, &Touches { node: Some(node), ..named(&name) }), reply);
        self.entry(reply, self.vfs.link(&call.ctx, ino(node), ino(new_parent), new_name.as_bytes()));
    }

    fn open(&self, req: &Request, node: INodeNo, open: OpenFlags, reply: ReplyOpen) {
        let call = self.look(req, Look::Node(node));
        self.opened(reply, self.vfs.open(&call.ctx, ino(node), flags(open)), self.open_flags(open));
    }

    fn read(
        &self,
        req: &Request,
        node: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        self.groups.note_read(node);
        let open = had!(self.open.get(fh), reply);
        let call = self.look(req, Look::Node(node));
        let read = self.vfs.read(&call.ctx, &open, offset, &mut bytes);
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
        node: INodeNo,
        fh: FileHandle,
        offset: u64,
        bytes: &[u8],
        how: WriteFlags,
        open: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Where the kernel keeps no pages of it, it leaves the set-id bits to us.
        let ctx = match how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            true => self.as_they_are(req),
            false => self.permitted(req),
        };
        let is_page = how.contains(WriteFlags::FUSE_WRITE_CACHE);
        let call = match is_page {
            true => match self.groups.page_write(ctx, node) {
                Some(call) => call,
                None => return reply.written(bytes.len() as u32),
            },
            false => match self.groups.change(req, ctx, &content(node, fh)) {
                Ok(call) => call,
                Err(error) => {
                    self.groups.note_write(node, offset, bytes.len(), 0);
                    return reply.error(errno(error));
                }
            },
        };
        let appends = !is_page && open.0 & OFlags::APPEND.bits() as i32 != 0;
        if appends && self.groups.ends_may_be_stale() {
            let appended = self.open.get(fh).and_then(|open| self.vfs.append(&call.ctx, &open, bytes));
            return match appended {
                Ok(to) => self.groups.appended(node, offset, bytes.len(), to, reply),
                Err(error) => {
                    self.groups.note_write(node, offset, bytes.len(), 0);
                    reply.error(errno(error));
                }
            };
        }
        let result = self.open.get(fh).and_then(|open| self.vfs.write(&call.ctx, &open, offset, bytes));
        match (&result, is_page) {
            (Err(error), true) => self.lost.note(*error),
            (_, true) => {}
            (_, false) => self.groups.note_write(node, offset, bytes.len(), *result.as_ref().unwrap_or(&0)),
        }
        written(reply, result);
    }

    fn flush(&self, req: &Request, _node: INodeNo, fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        match self.syncs_on_close {
            // The kernel does not wait for `release`.
            true => done(reply, self.open.get(fh).and_then(|open| self.vfs.fsync(&self.outside(req).ctx, &open))),
            // There is nothing to do at any close, and this answer the kernel keeps: it does not ask again. It writes
            // what is dirty in its pages all the same.
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
        self.groups.release(fh);
        done(reply, self.open.take(fh).and_then(|open| self.vfs.release(&self.late(req).ctx, open)));
    }

    fn fsync(&self, req: &Request, _node: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let ctx = &self.outside(req).ctx;
        let open = had!(self.open.get(fh), reply);
        done(reply, if datasync { self.vfs.fdatasync(ctx, &open) } else { self.vfs.fsync(ctx, &open) });
    }

    fn opendir(&self, req: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let call = self.look(req, Look::Node(node));
        self.opened(reply, self.vfs.opendir(&call.ctx, ino(node)), FopenFlags::empty());
    }

    fn readdir(&self, req: &Request, node: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let open = had!(self.open.get(fh), reply);
        let call = self.look(req, Look::Node(node));
        let listed = self.vfs.readdir(&call.ctx, &open, offset, &mut |entry| {
            !reply.add(INodeNo(entry.ino.0), entry.next, kind(entry.kind), OsStr::from_bytes(entry.name))
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(&self, req: &Request, node: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let open = had!(self.open.get(fh), reply);
        let mut before = None;
        loop {
            let call = self.look_again(req, Look::Node(node), before);
            // Names that were told, and the inode of the first that cannot be told so: the kernel asks for it next.
            let (mut told, mut other) = (0, None);
            let listed = self.vfs.readdir(&call.ctx, &open, offset, &mut |entry| {
                let name = OsStr::from_bytes(entry.name);
                let found = match self.find(&call.ctx, ino(node), name) {
                    Ok(found) => found,
                    // It has gone since the list was made.
                    Err(Errno::NOENT) => return true,
                    // It cannot be looked at, as what another file system covers that programs do not see. Of the name
                    // the kernel keeps nothing: it asks, and is refused.
                    Err(_) => {
                        let unknown = unknown(entry.ino, entry.kind);
                        let full = reply.add(unknown.ino, entry.next, name, &Duration::ZERO, &unknown, GENERATION);
                        told += usize::from(!full);
                        return !full;
                    }
                };
                // Of these two the kernel keeps nothing, and counts no reference.
                let is_dot = entry.name == b"." || entry.name == b"..";
                if !is_dot && call.is_to_be_repeated(found.ino.0) {
                    self.vfs.forget(found.ino, 1);
                    other = Some(found.ino.0);
                    return false;
                }
                let full = reply.add(
                    INodeNo(found.ino.0),
                    entry.next,
                    name,
                    &self.valid,
                    &attr(&self.identity.shown(&found)),
                    GENERATION,
                );
                if full || is_dot {
                    self.vfs.forget(found.ino, 1);
                }
                told += usize::from(!full);
                !full
            });
            match (listed, other) {
                // Not while the list is made: that may hold what the end of a group needs.
                (Ok(()), Some(_)) if told == 0 => before = other,
                (Ok(()), _) => return reply.ok(),
                (Err(error), _) => return reply.error(errno(error)),
            }
        }
    }

    fn releasedir(&self, req: &Request, _node: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.groups.release(fh);
        done(reply, self.open.take(fh).and_then(|open| self.vfs.releasedir(&self.late(req).ctx, open)));
    }

    fn fsyncdir(&self, req: &Request, _node: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let open = had!(self.open.get(fh), reply);
        done(reply, self.vfs.fsyncdir(&self.outside(req).ctx, &open));
    }

    fn statfs(&self, req: &Request, node: INodeNo, reply: ReplyStatfs) {
        match self.vfs.statfs(&self.look(req, Look::Space).ctx, ino(node)) {
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
        let how = had!(SetXattr::from_flags(flags as u32), reply);
        let call = had!(self.change(req, &Touches { node: Some(node), ..Touches::default() }), reply);
        done(reply, self.vfs.setxattr(&call.ctx, ino(node), name.as_bytes(), value, how));
    }

    fn getxattr(&self, req: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes();
        let call = self.look(req, Look::Node(node));
        let found = self.vfs.getxattr(&call.ctx, ino(node), name);
        let told = found
            .and_then(|found| self.identity.told(name, found).inspect_err(|_| self.untold.note(req.pid(), ino(node))));
        value(reply, size, told);
    }

    fn listxattr(&self, req: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        // Which of them a user may see the kernel leaves to us.
        let call = self.groups.look(req, self.as_they_are(req), Look::Node(node), None);
        value(reply, size, self.vfs.listxattr(&call.ctx, ino(node)));
    }

    fn removexattr(&self, req: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let call = had!(self.change(req, &Touches { node: Some(node), ..Touches::default() }), reply);
        done(reply, self.vfs.removexattr(&call.ctx, ino(node), name.as_bytes()));
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
        let call = had!(self.make(req, umask, &named(&[(parent, name)])), reply);
        let made = self.vfs.create(&call.ctx, ino(parent), name.as_bytes(), flags(OpenFlags(open)), mode(bits));
        self.created(&call, reply, made, OpenFlags(open));
    }

    fn tmpfile(&self, req: &Request, parent: INodeNo, bits: u32, umask: u32, open: i32, reply: ReplyCreate) {
        let call = had!(self.make(req, umask, &Touches::default()), reply);
        // The flag of nameless files has that of directories in it.
        let how = flags(OpenFlags(open)) - OFlags::TMPFILE;
        let made = self.vfs.tmpfile(&call.ctx, ino(parent), how, mode(bits));
        self.created(&call, reply, made, OpenFlags(open));
    }

    fn fallocate(
        &self,
        req: &Request,
        node: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        how: i32,
        reply: ReplyEmpty,
    ) {
        let how = had!(Fallocate::from_flags(how as u32), reply);
        let call = had!(self.change(req, &content(node, fh)), reply);
        let open = had!(self.open.get(fh), reply);
        done(reply, self.vfs.fallocate(&call.ctx, &open, how, offset, length));
    }

    fn lseek(&self, req: &Request, node: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let seek = match (whence, u64::try_from(offset)) {
            (SEEK_DATA, Ok(offset)) => Seek::Data(offset),
            (SEEK_HOLE, Ok(offset)) => Seek::Hole(offset),
            (SEEK_DATA | SEEK_HOLE, Err(_)) => return reply.error(errno(Errno::NXIO)),
            _ => return reply.error(errno(Errno::INVAL)),
        };
        let open = had!(self.open.get(fh), reply);
        match self.vfs.seek(&self.look(req, Look::Node(node)).ctx, &open, seek) {
            Ok(offset) => reply.offset(offset as i64),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        req: &Request,
        node: INodeNo,
        fh: FileHandle,
        offset: u64,
        node_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // How many were copied is told in 32 bits.
        let length = length.min(1 << 30) as usize;
        let (from, to) = (had!(self.open.get(fh), reply), had!(self.open.get(fh_out), reply));
        let touches = Touches { from: Some(node), ..content(node_out, fh_out) };
        let call = had!(self.change(req, &touches), reply);
        written(reply, self.vfs.copy_file_range(&call.ctx, &from, offset, &to, offset_out, length));
    }

    fn ioctl(
        &self,
        req: &Request,
        node: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        what: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let open = self.open.get(fh);
        if !matches!(what, FATOMIC | FDATAATOMIC) {
            return self.groups.request(req, node, (fh, open), what, reply);
        }
        // As an `fsync`: of what is in no group.
        let ctx = &self.outside(req).ctx;
        match open.and_then(|open| self.vfs.fatomic(ctx, &open, what == FDATAATOMIC)) {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(errno(error)),
        }
    }
}
