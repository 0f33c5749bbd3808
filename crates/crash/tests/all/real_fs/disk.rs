//! Disks as files of a FUSE file system, for loop devices to stand on: in memory, recording what reaches them.
//!
//! A disk is a map of pages; one that is absent reads as zeros. What is pending at an event is what was written since
//! the last flush, in units of a page: the disk that is modelled here has sectors of 4096 bytes, and keeps any subset
//! of them at a power failure.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What a disk holds.
#[derive(Clone, Default)]
pub struct Pages(HashMap<u64, Arc<[u8; PAGE]>>);

impl Pages {
    /// Those of a file.
    pub fn of(content: &[u8]) -> Pages {
        let mut pages = Pages::default();
        for (n, bytes) in content.chunks(PAGE).enumerate() {
            if bytes.iter().any(|byte| *byte != 0) {
                pages.write((n * PAGE) as u64, bytes);
            }
        }
        pages
    }

    fn read(&self, mut offset: u64, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            let at = offset as usize % PAGE;
            let (head, rest) = buf.split_at_mut(buf.len().min(PAGE - at));
            match self.0.get(&(offset / PAGE as u64)) {
                Some(page) => head.copy_from_slice(&page[at..at + head.len()]),
                None => head.fill(0),
            }
            offset += head.len() as u64;
            buf = rest;
        }
    }

    /// Writes bytes.
    pub fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let at = offset as usize % PAGE;
            let (head, rest) = data.split_at(data.len().min(PAGE - at));
            let page = self.0.entry(offset / PAGE as u64).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[at..at + head.len()].copy_from_slice(head);
            offset += head.len() as u64;
            data = rest;
        }
    }
}

/// What happened to the recorded disk, or to the program above it.
#[derive(Clone)]
pub enum Event {
    /// Bytes were written.
    Write { offset: u64, data: Arc<[u8]> },
    /// All of that is durable.
    Flush,
    /// What the program says.
    Mark(String),
}

/// The disks by number, and the record of disk 0.
#[derive(Default)]
pub struct Disks {
    disks: Mutex<HashMap<u64, Pages>>,
    record: Mutex<Vec<Event>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disks {
    /// Puts a disk there.
    pub fn put(&self, number: u64, pages: Pages) {
        locked(&self.disks).insert(number, pages);
    }

    /// Takes a disk away.
    pub fn take(&self, number: u64) -> Pages {
        locked(&self.disks).remove(&number).unwrap_or_default()
    }

    /// Records what a program says.
    pub fn mark(&self, what: &str) {
        locked(&self.record).push(Event::Mark(what.to_owned()));
    }

    /// Takes what was recorded.
    pub fn recorded(&self) -> Vec<Event> {
        std::mem::take(&mut *locked(&self.record))
    }
}

/// The file system: every disk is a file named by its number.
pub struct Served {
    pub disks: Arc<Disks>,
    pub disk_bytes: u64,
}

const FIRST_INODE: u64 = 2;

impl Served {
    fn attributes(&self, inode: u64) -> FileAttr {
        let directory = inode < FIRST_INODE;
        FileAttr {
            ino: INodeNo(inode),
            size: if directory { 0 } else { self.disk_bytes },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            perm: if directory { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE as u32,
            flags: 0,
        }
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        match number.filter(|number| locked(&self.disks.disks).contains_key(number)) {
            Some(number) => reply.entry(&Duration::ZERO, &self.attributes(FIRST_INODE + number), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&Duration::ZERO, &self.attributes(inode.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // What the loop device writes must be seen here before its request ends.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buf = vec![0; u64::from(size).min(self.disk_bytes.saturating_sub(offset)) as usize];
        if let Some(pages) = locked(&self.disks.disks).get(&(inode.0 - FIRST_INODE)) {
            pages.read(offset, &mut buf);
        }
        reply.data(&buf);
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let number = inode.0 - FIRST_INODE;
        if let Some(pages) = locked(&self.disks.disks).get_mut(&number) {
            pages.write(offset, data);
        }
        if number == 0 {
            locked(&self.disks.record).push(Event::Write { offset, data: data.into() });
        }
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if inode.0 == FIRST_INODE {
            locked(&self.disks.record).push(Event::Flush);
        }
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

/// What a power failure after a number of events may leave of a recorded disk.
pub struct Point {
    durable: Pages,
    /// Writes since the last flush, cut into pages.
    pending: Vec<(u64, Arc<[u8]>)>,
}

impl Point {
    /// After these events.
    pub fn after(base: &Pages, events: &[Event]) -> Point {
        let mut point = Point { durable: base.clone(), pending: Vec::new() };
        for event in events {
            match event {
                Event::Write { offset, data } => {
                    let mut from = 0;
                    while from < data.len() {
                        let at = offset + from as u64;
                        let to = data.len().min(from + PAGE - at as usize % PAGE);
                        point.pending.push((at, data[from..to].into()));
                        from = to;
                    }
                }
                Event::Flush => {
                    for (offset, data) in std::mem::take(&mut point.pending) {
                        point.durable.write(offset, &data);
                    }
                }
                Event::Mark(_) => {}
            }
        }
        point
    }

    /// Pages that are pending.
    pub fn units(&self) -> usize {
        self.pending.iter().map(|(offset, _)| offset / PAGE as u64).collect::<BTreeSet<_>>().len()
    }

    /// The image that keeps those pages which `keeps` wants, each in its newest version.
    pub fn image(&self, mut keeps: impl FnMut() -> bool) -> Pages {
        let mut kept: HashMap<u64, bool> = HashMap::new();
        let mut pages = self.durable.clone();
        for (offset, data) in &self.pending {
            if *kept.entry(offset / PAGE as u64).or_insert_with(&mut keeps) {
                pages.write(*offset, data);
            }
        }
        pages
    }
}
