//! The base of the mounted cases: a directory of the host, passed through. Each request is the host's own call on
//! descriptors, as in libfuse's `passthrough_ll`. Whoever uses it is the superuser.

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, SeekFrom, StatxFlags, StatxTimestamp, Timespec, Timestamps};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

type Answer<T> = std::result::Result<T, rustix::io::Errno>;

/// Numbers are the host's, whose descriptors are kept, so that none is given again.
const GENERATION: Generation = Generation(0);
/// Names only: neither content nor links are followed.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Bytes of entries that are listed at a time.
const LISTED: usize = 32 << 10;

/// See the module.
pub(crate) struct Passthrough {
    /// How long the kernel believes what it was told.
    valid: Duration,
    root: OwnedFd,
    nodes: RwLock<HashMap<u64, Arc<Node>>>,
    handles: RwLock<HashMap<u64, Arc<OwnedFd>>>,
    next: AtomicU64,
}

struct Node {
    place: OwnedFd,
    references: AtomicU64,
}

/// An inode as a descriptor: the root, or one that the kernel refers to.
enum Found<'p> {
    Root(&'p OwnedFd),
    Node(Arc<Node>),
}

impl AsFd for Found<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Found::Root(root) => root.as_fd(),
            Found::Node(node) => node.place.as_fd(),
        }
    }
}

/// A path to what a descriptor is open on, for calls that take none.
fn itself(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn error(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

fn time(at: StatxTimestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(at.tv_sec.max(0) as u64, at.tv_nsec)
}

fn kind(mode: u32) -> FileType {
    match rustix::fs::FileType::from_raw_mode(mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attr_of(fd: impl AsFd) -> Answer<FileAttr> {
    let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let mode = u32::from(stat.stx_mode);
    Ok(FileAttr {
        ino: INodeNo(stat.stx_ino),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(mode),
        perm: (mode & 0o7777) as u16,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: 0,
        blksize: stat.stx_blksize,
        flags: 0,
    })
}

fn timespec(wanted: Option<TimeOrNow>) -> Timespec {
    match wanted {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(at)) => {
            let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
        }
    }
}

fn permissions(mode: u32, umask: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777 & !umask)
}

fn flags(flags: i32) -> OFlags {
    // Appending and direct access are the kernel's affair.
    (OFlags::from_bits_retain(flags as u32) - (OFlags::APPEND | OFlags::DIRECT)) | OFlags::CLOEXEC
}

impl Passthrough {
    pub fn new(dir: &Path, valid: Duration) -> Answer<Passthrough> {
        // What is made has the mode that is asked for.
        rustix::process::umask(Mode::empty());
        let root = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let (nodes, handles) = (RwLock::default(), RwLock::default());
        Ok(Passthrough { valid, root, nodes, handles, next: AtomicU64::new(1) })
    }

    fn node(&self, ino: INodeNo) -> Answer<Found<'_>> {
        if ino == INodeNo::ROOT {
            return Ok(Found::Root(&self.root));
        }
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(&ino.0).cloned().map(Found::Node).ok_or(rustix::io::Errno::STALE)
    }

    /// One more reference to what a name leads to.
    fn find(&self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        let place = rustix::fs::openat(self.node(parent)?, name, PLACE, Mode::empty())?;
        let attr = attr_of(&place)?;
        if let Some(node) = self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(&attr.ino.0) {
            node.references.fetch_add(1, Ordering::Relaxed);
            return Ok(attr);
        }
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Node { place, references: AtomicU64::new(0) });
        nodes.entry(attr.ino.0).or_insert_with(new).references.fetch_add(1, Ordering::Relaxed);
        Ok(attr)
    }

    fn let_go(&self, ino: u64, references: u64) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let Some(node) = nodes.get(&ino) else { return };
        if node.references.fetch_sub(references, Ordering::Relaxed) == references {
            nodes.remove(&ino);
        }
    }

    fn handle(&self, fh: FileHandle) -> Answer<Arc<OwnedFd>> {
        let handles = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        handles.get(&fh.0).cloned().ok_or(rustix::io::Errno::BADF)
    }

    fn keep(&self, fd: OwnedFd) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.handles.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(fd));
        FileHandle(number)
    }

    fn close(&self, fh: FileHandle, reply: ReplyEmpty) {
        self.handles.write().unwrap_or_else(PoisonError::into_inner).remove(&fh.0);
        reply.ok();
    }

    fn entry(&self, reply: ReplyEntry, found: Answer<FileAttr>) {
        match found {
            Ok(attr) => reply.entry(&self.valid, &attr, GENERATION),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn open_by(&self, ino: INodeNo, flags: OFlags) -> Answer<FileHandle> {
        let fd = rustix::fs::openat(CWD, itself(&self.node(ino)?), flags, Mode::empty())?;
        Ok(self.keep(fd))
    }

    fn change(
        &self,
        ino: INodeNo,
        fh: Option<FileHandle>,
        (mode, uid, gid, size): (Option<u32>, Option<u32>, Option<u32>, Option<u64>),
        (atime, mtime): (Option<TimeOrNow>, Option<TimeOrNow>),
    ) -> Answer<FileAttr> {
        let node = self.node(ino)?;
        if uid.is_some() || gid.is_some() {
            let (uid, gid) = (uid.map(rustix::fs::Uid::from_raw), gid.map(rustix::fs::Gid::from_raw));
            rustix::fs::chownat(&node, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = mode {
            rustix::fs::chmodat(CWD, itself(&node), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
        }
        match (size, fh) {
            (None, _) => {}
            (Some(size), Some(fh)) => rustix::fs::ftruncate(&*self.handle(fh)?, size)?,
            (Some(size), None) => {
                let fd = rustix::fs::openat(CWD, itself(&node), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
                rustix::fs::ftruncate(fd, size)?;
            }
        }
        if atime.is_some() || mtime.is_some() {
            let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
            rustix::fs::utimensat(&node, "", &times, AtFlags::EMPTY_PATH)?;
        }
        attr_of(node)
    }

    /// Calls `each` with the entries of a directory from `offset` on, until it returns `false`: number, offset of the
    /// next one, type, name.
    fn list(
        &self,
        fh: FileHandle,
        offset: u64,
        each: &mut dyn FnMut(u64, u64, FileType, &OsStr) -> bool,
    ) -> Answer<()> {
        let dir = self.handle(fh)?;
        rustix::fs::seek(&*dir, SeekFrom::Start(offset))?;
        let mut buffer = [MaybeUninit::uninit(); LISTED];
        let mut entries = RawDir::new(&*dir, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let (name, kind) = (OsStr::from_bytes(entry.file_name().to_bytes()), kind(entry.file_type().as_raw_mode()));
            if !each(entry.ino(), entry.next_entry_cookie(), kind, name) {
                break;
            }
        }
        Ok(())
    }
}

fn done(reply: ReplyEmpty, result: Answer<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(error(errno)),
    }
}

impl fuser::Filesystem for Passthrough {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // As a volume: nobody else changes the directory while it is measured.
        wholly_fuse::ask(config, wholly_fuse::MountOptions::default().threads, false);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            // As ours: the kernel keeps that a name is not there, too.
            Err(rustix::io::Errno::NOENT) => reply.entry(&self.valid, &nothing(), GENERATION),
            found => self.entry(reply, found),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, references: u64) {
        self.let_go(ino.0, references);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.node(ino).and_then(attr_of) {
            Ok(attr) => reply.attr(&self.valid, &attr),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
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
        match self.change(ino, fh, (mode, uid, gid, size), (atime, mtime)) {
            Ok(attr) => reply.attr(&self.valid, &attr),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.node(ino).and_then(|node| rustix::fs::readlinkat(node, "", Vec::new())) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn mknod(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = rustix::fs::FileType::from_raw_mode(mode);
        let made = self
            .node(parent)
            .and_then(|dir| rustix::fs::mknodat(dir, name, kind, permissions(mode, umask), rdev.into()))
            .and_then(|()| self.find(parent, name));
        self.entry(reply, made);
    }

    fn mkdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let made = self
            .node(parent)
            .and_then(|dir| rustix::fs::mkdirat(dir, name, permissions(mode, umask)))
            .and_then(|()| self.find(parent, name));
        self.entry(reply, made);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.node(parent).and_then(|dir| rustix::fs::unlinkat(dir, name, AtFlags::empty())));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.node(parent).and_then(|dir| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)));
    }

    fn symlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self
            .node(parent)
            .and_then(|dir| rustix::fs::symlinkat(target, dir, name))
            .and_then(|()| self.find(parent, name));
        self.entry(reply, made);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let renamed = self.node(parent).and_then(|from| {
            self.node(new_parent).and_then(|to| rustix::fs::renameat_with(from, name, to, new_name, flags))
        });
        done(reply, renamed);
    }

    fn link(&self, _req: &Request, ino: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let made = self
            .node(ino)
            .and_then(|node| {
                rustix::fs::linkat(CWD, itself(&node), self.node(new_parent)?, new_name, AtFlags::SYMLINK_FOLLOW)
            })
            .and_then(|()| self.find(new_parent, new_name));
        self.entry(reply, made);
    }

    fn open(&self, _req: &Request, ino: INodeNo, open: OpenFlags, reply: ReplyOpen) {
        match self.open_by(ino, flags(open.0)) {
            Ok(fh) => reply.opened(fh, FopenFlags::FOPEN_KEEP_CACHE),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        open: i32,
        reply: ReplyCreate,
    ) {
        let made = self
            .node(parent)
            .and_then(|dir| rustix::fs::openat(dir, name, flags(open) | OFlags::CREATE, permissions(mode, umask)))
            .and_then(|fd| Ok((self.find(parent, name)?, fd)));
        match made {
            Ok((attr, fd)) => {
                reply.created(&self.valid, &attr, GENERATION, self.keep(fd), FopenFlags::FOPEN_KEEP_CACHE)
            }
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self.handle(fh).and_then(|fd| rustix::io::pread(&*fd, &mut bytes[..], offset)) {
            Ok(len) => reply.data(&bytes[..len]),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _how: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.handle(fh).and_then(|fd| rustix::io::pwrite(&*fd, data, offset)) {
            Ok(len) => reply.written(len as u32),
            Err(errno) => reply.error(error(errno)),
        }
    }

    // Not to know it is an answer that the kernel keeps, and ours gives it too.
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close(fh, reply);
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, self.handle(fh).and_then(|fd| rustix::fs::fsync(&*fd)));
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.open_by(ino, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC) {
            Ok(fh) => reply.opened(fh, FopenFlags::empty()),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listed = self.list(fh, offset, &mut |ino, next, kind, name| !reply.add(INodeNo(ino), next, kind, name));
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let listed = self.list(fh, offset, &mut |_, next, _, name| {
            let Ok(attr) = self.find(ino, name) else { return true };
            let full = reply.add(attr.ino, next, name, &self.valid, &attr, GENERATION);
            // The kernel counts no reference for these two.
            if full || name == "." || name == ".." {
                self.let_go(attr.ino.0, 1);
            }
            !full
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.close(fh, reply);
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match rustix::fs::fstatvfs(&self.root) {
            Ok(is) => {
                let block = is.f_frsize as u32;
                reply.statfs(is.f_blocks, is.f_bfree, is.f_bavail, is.f_files, is.f_ffree, block, 255, block);
            }
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let mut value = vec![0; size as usize];
        match self.node(ino).and_then(|node| rustix::fs::getxattr(itself(&node), name, &mut value[..])) {
            Ok(len) if size == 0 => reply.size(len as u32),
            Ok(len) => reply.data(&value[..len]),
            Err(errno) => reply.error(error(errno)),
        }
    }
}

/// What the kernel is told of a name that is not there.
fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: SystemTime::UNIX_EPOCH,
        mtime: SystemTime::UNIX_EPOCH,
        ctime: SystemTime::UNIX_EPOCH,
        crtime: SystemTime::UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}
