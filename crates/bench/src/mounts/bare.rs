//! The base of the suite `mount`: a file system that only answers. Its files are bytes in memory, in one directory, and
//! belong to the superuser.

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime};

/// No number stands for another file later.
const GENERATION: Generation = Generation(0);
/// What the one directory, and the first file in it, are known by.
const DIRECTORY: u64 = 1;
const FIRST: u64 = 2;

pub(super) struct Bare {
    /// How long the kernel believes what it was told.
    valid: Duration,
    files: RwLock<Files>,
}

struct Files {
    names: HashMap<OsString, u64>,
    nodes: HashMap<u64, Node>,
    next: u64,
}

struct Node {
    attr: FileAttr,
    bytes: Vec<u8>,
}

impl Node {
    fn new(ino: u64, kind: FileType, perm: u16) -> Node {
        let now = SystemTime::now();
        let attr = FileAttr {
            ino: INodeNo(ino),
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        Node { attr, bytes: Vec::new() }
    }

    fn set_length(&mut self, length: usize) {
        self.bytes.resize(length, 0);
        (self.attr.size, self.attr.blocks) = (length as u64, length.div_ceil(512) as u64);
    }
}

impl Bare {
    pub fn new(valid: Duration) -> Bare {
        let nodes = HashMap::from([(DIRECTORY, Node::new(DIRECTORY, FileType::Directory, 0o755))]);
        Bare { valid, files: RwLock::new(Files { names: HashMap::new(), nodes, next: FIRST }) }
    }

    fn look(&self) -> RwLockReadGuard<'_, Files> {
        self.files.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Files> {
        self.files.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fuser::Filesystem for Bare {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        wholly_fuse::ask(config, wholly_fuse::MountOptions::default().threads, true);
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let files = self.look();
        match files.names.get(name).and_then(|ino| files.nodes.get(ino)) {
            Some(node) => reply.entry(&self.valid, &node.attr, GENERATION),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.look().nodes.get(&ino.0) {
            Some(node) => reply.attr(&self.valid, &node.attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.change().nodes.get_mut(&ino.0) {
            Some(node) => {
                if let Some(size) = size {
                    node.set_length(size as usize);
                }
                reply.attr(&self.valid, &node.attr);
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn create(
        &self,
        _req: &Request,
        _parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let mut files = self.change();
        let ino = files.next;
        files.next += 1;
        let node = Node::new(ino, FileType::RegularFile, (mode & !umask & 0o7777) as u16);
        reply.created(&self.valid, &node.attr, GENERATION, FileHandle(ino), FopenFlags::FOPEN_KEEP_CACHE);
        files.names.insert(name.to_owned(), ino);
        files.nodes.insert(ino, node);
    }

    fn unlink(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut files = self.change();
        match files.names.remove(name) {
            // Nobody has it open any more when the suite removes it.
            Some(ino) => {
                files.nodes.remove(&ino);
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(ino.0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let files = self.look();
        let Some(node) = files.nodes.get(&ino.0) else { return reply.error(Errno::ENOENT) };
        let from = node.bytes.len().min(offset as usize);
        let to = node.bytes.len().min(from + size as usize);
        reply.data(&node.bytes[from..to]);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _how: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut files = self.change();
        let Some(node) = files.nodes.get_mut(&ino.0) else { return reply.error(Errno::ENOENT) };
        let end = offset as usize + data.len();
        if node.bytes.len() < end {
            node.set_length(end);
        }
        node.bytes[offset as usize..end].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    // Not to know these two is an answer that the kernel keeps: it asks once.
    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}
