//! One object of a world: its bytes, attributes and names, hashed as they change.

use super::hash::{Place, bytes, term};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Unit of sharing between states, and block of the host file system, in bytes.
pub(super) const PAGE: usize = 4096;

/// Pages in one node of an object's page table.
const CHUNK: usize = 16;

/// Index of an object: the log, a directory or a file. No two objects of a world ever have the same.
pub(super) type ObjId = u32;

/// The log region.
pub(super) const LOG: ObjId = 0;

/// The host directory.
pub(super) const ROOT: ObjId = 1;

/// The persistent memory region of a device, in worlds that have one.
pub(super) const REGION: ObjId = 2;

pub(super) type Page = [u8; PAGE];

fn zero_page() -> Arc<Page> {
    static ZERO: OnceLock<Arc<Page>> = OnceLock::new();
    ZERO.get_or_init(|| Arc::new([0; PAGE])).clone()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjKind {
    Log,
    Region,
    Dir,
    File,
    Symlink,
    /// A FIFO, a socket or a device.
    Special,
    /// What no name reached when the power failed.
    Gone,
}

impl ObjKind {
    /// By the type bits of `st_mode`.
    pub fn of_mode(mode: u32) -> ObjKind {
        match mode & 0o170_000 {
            0o040_000 => ObjKind::Dir,
            0o100_000 => ObjKind::File,
            0o120_000 => ObjKind::Symlink,
            _ => ObjKind::Special,
        }
    }
}

const LEN: u64 = 0;
const MODE: u64 = 1;
const MTIME: u64 = 2;
const CTIME: u64 = 3;
const ATIME: u64 = 4;
const OWNER: u64 = 5;
const RDEV: u64 = 6;
const TARGET: u64 = 7;
const INODE: u64 = 8;

/// What an object is from its birth on.
#[derive(Clone)]
pub(super) struct Birth {
    /// Type and permission bits.
    pub mode: u32,
    pub rdev: u64,
    /// What a symbolic link holds.
    pub target: Arc<[u8]>,
    pub time_ns: i64,
    /// The inode number of an object that is gone, where it gets that; else its own index.
    pub inode: Option<ObjId>,
}

impl Birth {
    /// Of what is neither a link nor a device.
    pub fn plain(mode: u32, time_ns: i64) -> Birth {
        Birth { mode, rdev: 0, target: Arc::from([]), time_ns, inode: None }
    }
}

#[derive(Clone)]
pub(super) struct Obj {
    pub kind: ObjKind,
    pub len: u64,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub target: Arc<[u8]>,
    pub xattrs: BTreeMap<Arc<[u8]>, Arc<[u8]>>,
    pub btime_ns: i64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub entries: BTreeMap<Arc<[u8]>, ObjId>,
    /// Whether bytes beyond `len` may have been written: on a medium they can be there before the length is.
    pub beyond: bool,
    chunks: Vec<Arc<Vec<Option<Arc<Page>>>>>,
    id: ObjId,
    inode: ObjId,
    hash: u64,
}

impl Obj {
    pub fn new(id: ObjId, kind: ObjKind, birth: &Birth) -> Obj {
        let Birth { mode, rdev, ref target, time_ns, inode } = *birth;
        let mut obj = Obj {
            kind,
            len: 0,
            mode,
            // A directory names itself, and its parent names it.
            nlink: if kind == ObjKind::Dir { 2 } else { 0 },
            uid: 0,
            gid: 0,
            rdev,
            target: target.clone(),
            xattrs: BTreeMap::new(),
            btime_ns: time_ns,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            entries: BTreeMap::new(),
            beyond: false,
            chunks: Vec::new(),
            id,
            inode: inode.unwrap_or(id),
            hash: term(Place::attr(id, MODE), u64::from(mode)),
        };
        obj.attr(RDEV, 0, rdev);
        obj.attr(INODE, 0, inode.map_or(0, u64::from));
        obj.attr(TARGET, 0, if target.is_empty() { 0 } else { bytes(target) });
        obj.set_len(target.len() as u64);
        obj.set_times(time_ns, time_ns);
        obj.set_atime(time_ns);
        obj
    }

    fn page(&self, n: u64) -> Option<&Arc<Page>> {
        let n = n as usize;
        self.chunks.get(n / CHUNK)?.get(n % CHUNK)?.as_ref()
    }

    fn slot(&mut self, n: u64) -> &mut Option<Arc<Page>> {
        let (chunk, slot) = (n as usize / CHUNK, n as usize % CHUNK);
        while self.chunks.len() <= chunk {
            self.chunks.push(Arc::new(Vec::new()));
        }
        let chunk = Arc::make_mut(&mut self.chunks[chunk]);
        if chunk.len() <= slot {
            chunk.resize(slot + 1, None);
        }
        &mut chunk[slot]
    }

    /// Whether every block of the range is allocated.
    pub fn is_allocated(&self, offset: u64, len: u64) -> bool {
        len == 0 || (offset / PAGE as u64..=(offset + len - 1) / PAGE as u64).all(|n| self.page(n).is_some())
    }

    /// Whether block `n` is allocated.
    pub fn has_page(&self, n: u64) -> bool {
        self.page(n).is_some()
    }

    /// Whether block `n` has been written to since it was allocated.
    pub fn is_written(&self, n: u64) -> bool {
        self.page(n).is_some_and(|page| !Arc::ptr_eq(page, &zero_page()))
    }

    /// No block from this one on is allocated.
    pub fn pages_end(&self) -> u64 {
        (self.chunks.len() * CHUNK) as u64
    }

    /// Bytes allocated.
    pub fn allocated(&self) -> u64 {
        self.chunks.iter().map(|c| c.iter().flatten().count() as u64).sum::<u64>() * PAGE as u64
    }

    /// Copies bytes; what was never written is zero.
    pub fn read(&self, mut offset: u64, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            let at = offset as usize % PAGE;
            let n = buf.len().min(PAGE - at);
            let (head, rest) = buf.split_at_mut(n);
            match self.page(offset / PAGE as u64) {
                Some(page) => head.copy_from_slice(&page[at..at + n]),
                None => head.fill(0),
            }
            offset += n as u64;
            buf = rest;
        }
    }

    /// The 8 bytes of word `n`.
    pub fn word(&self, n: u64) -> u64 {
        let at = n as usize * 8 % PAGE;
        self.page(n * 8 / PAGE as u64)
            .map_or(0, |page| u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes")))
    }

    pub fn put(&mut self, mut offset: u64, mut data: &[u8]) {
        if offset + data.len() as u64 > self.len {
            self.beyond = true;
        }
        while !data.is_empty() {
            let at = offset as usize % PAGE;
            let (head, rest) = data.split_at(data.len().min(PAGE - at));
            let first = offset / PAGE as u64 * (PAGE as u64 / 8);
            let id = self.id;
            let mut hash = self.allocate_page(offset / PAGE as u64);
            let page = Arc::make_mut(self.slot(offset / PAGE as u64).as_mut().expect("just allocated"));
            let end = at + head.len();
            let mut from = at;
            while from < end {
                let word = from / 8;
                let to = end.min(word * 8 + 8);
                let bytes = &mut page[word * 8..word * 8 + 8];
                let old = u64::from_le_bytes((&*bytes).try_into().expect("eight bytes"));
                bytes[from - word * 8..to - word * 8].copy_from_slice(&head[from - at..to - at]);
                let new = u64::from_le_bytes((&*bytes).try_into().expect("eight bytes"));
                if new != old {
                    let place = Place::word(id, first + word as u64);
                    hash = hash.wrapping_add(term(place, new)).wrapping_sub(term(place, old));
                }
                from = to;
            }
            self.hash = self.hash.wrapping_add(hash);
            offset += head.len() as u64;
            data = rest;
        }
    }

    /// Writes bytes of which the caller knows what they add to the hash.
    pub fn put_known(&mut self, mut offset: u64, mut data: &[u8], hash: u64) {
        if offset + data.len() as u64 > self.len {
            self.beyond = true;
        }
        self.hash = self.hash.wrapping_add(hash);
        while !data.is_empty() {
            let at = offset as usize % PAGE;
            let (head, rest) = data.split_at(data.len().min(PAGE - at));
            let allocated = self.allocate_page(offset / PAGE as u64);
            self.hash = self.hash.wrapping_add(allocated);
            let page = Arc::make_mut(self.slot(offset / PAGE as u64).as_mut().expect("just allocated"));
            page[at..at + head.len()].copy_from_slice(head);
            offset += head.len() as u64;
            data = rest;
        }
    }

    /// Allocates block `n` and returns what that adds to the hash.
    pub fn allocate_page(&mut self, n: u64) -> u64 {
        let counted = self.kind == ObjKind::File;
        let id = self.id;
        let slot = self.slot(n);
        if slot.is_some() {
            return 0;
        }
        *slot = Some(zero_page());
        if counted { term(Place::alloc(id, n), 1) } else { 0 }
    }

    /// Allocates the blocks of a range.
    pub fn allocate(&mut self, offset: u64, len: u64) {
        let end = if len == 0 { 0 } else { (offset + len).div_ceil(PAGE as u64) };
        for n in offset / PAGE as u64..end {
            let hash = self.allocate_page(n);
            self.add_hash(hash);
        }
    }

    fn attr(&mut self, which: u64, old: u64, new: u64) {
        let place = Place::attr(self.id, which);
        self.hash = self.hash.wrapping_sub(term(place, old)).wrapping_add(term(place, new));
    }

    pub fn set_times(&mut self, mtime_ns: i64, ctime_ns: i64) {
        self.attr(MTIME, self.mtime_ns as u64, mtime_ns as u64);
        self.attr(CTIME, self.ctime_ns as u64, ctime_ns as u64);
        (self.mtime_ns, self.ctime_ns) = (mtime_ns, ctime_ns);
    }

    /// What an object leaves that nothing names.
    pub fn gone(id: ObjId) -> Obj {
        let mut gone = Obj::new(id, ObjKind::Gone, &Birth::plain(0, 0));
        gone.hash = 0;
        gone
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn id(&self) -> ObjId {
        self.id
    }

    /// Its inode number, which another object has had before it where that is gone.
    pub fn inode(&self) -> ObjId {
        self.inode
    }

    pub fn add_hash(&mut self, more: u64) {
        self.hash = self.hash.wrapping_add(more);
    }

    pub fn set_atime(&mut self, atime_ns: i64) {
        self.attr(ATIME, self.atime_ns as u64, atime_ns as u64);
        self.atime_ns = atime_ns;
    }

    fn owner(&self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.gid)
    }

    pub fn set_len(&mut self, len: u64) {
        self.attr(LEN, self.len, len);
        self.len = len;
    }

    /// Takes away every byte beyond the length. Blocks that hold only what `allocate` put there stay where
    /// `keep_allocated` says so.
    pub fn cut(&mut self, keep_allocated: bool) {
        self.beyond = false;
        let tail = self.len as usize % PAGE;
        let mut first = self.len / PAGE as u64;
        if tail != 0 {
            if self.has_page(first) {
                self.put(self.len, &[0; PAGE][tail..]);
            }
            first += 1;
            self.beyond = false;
        }
        let pages = self.chunks.iter().map(|c| c.len()).sum::<usize>() as u64;
        let pages = pages.max((self.chunks.len() * CHUNK) as u64);
        for n in first..pages {
            let Some(page) = self.page(n) else { continue };
            if keep_allocated && Arc::ptr_eq(page, &zero_page()) {
                continue;
            }
            self.free_page(n);
        }
    }

    /// Gives block `n` back.
    pub fn free_page(&mut self, n: u64) {
        let Some(page) = self.page(n) else { return };
        let base = n * (PAGE as u64 / 8);
        let mut hash = if self.kind == ObjKind::File { term(Place::alloc(self.id, n), 1) } else { 0 };
        for (i, word) in page.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            hash = hash.wrapping_add(term(Place::word(self.id, base + i as u64), word));
        }
        self.hash = self.hash.wrapping_sub(hash);
        *self.slot(n) = None;
    }

    pub fn set_mode(&mut self, mode: u32) {
        let mode = self.mode & 0o170_000 | mode & 0o7777;
        self.attr(MODE, u64::from(self.mode), u64::from(mode));
        self.mode = mode;
    }

    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        let old = self.owner();
        (self.uid, self.gid) = (uid, gid);
        self.attr(OWNER, old, self.owner());
    }

    pub fn set_xattr(&mut self, name: &Arc<[u8]>, value: Option<&Arc<[u8]>>) {
        let place = Place::xattr(self.id, name);
        let old = match value {
            Some(value) => self.xattrs.insert(name.clone(), value.clone()),
            None => self.xattrs.remove(name),
        };
        let known = |value: Option<&Arc<[u8]>>| value.map_or(0, |value| term(place, bytes(value) | 1));
        self.hash = self.hash.wrapping_sub(known(old.as_ref())).wrapping_add(known(value));
    }

    /// The hash, computed from the content.
    #[cfg(test)]
    pub fn hashed_anew(&self) -> u64 {
        let id = self.id;
        let mut sum = 0u64;
        let mut add = |place, value| sum = sum.wrapping_add(term(place, value));
        if self.kind == ObjKind::Gone {
            return 0;
        }
        for n in (0..(self.chunks.len() * CHUNK) as u64).filter(|n| self.has_page(*n)) {
            let words = PAGE as u64 / 8;
            (n * words..(n + 1) * words).for_each(|w| add(Place::word(id, w), self.word(w)));
            add(Place::alloc(id, n), u64::from(self.kind == ObjKind::File));
        }
        add(Place::attr(id, LEN), self.len);
        add(Place::attr(id, MODE), u64::from(self.mode));
        add(Place::attr(id, MTIME), self.mtime_ns as u64);
        add(Place::attr(id, CTIME), self.ctime_ns as u64);
        add(Place::attr(id, ATIME), self.atime_ns as u64);
        add(Place::attr(id, OWNER), self.owner());
        add(Place::attr(id, RDEV), self.rdev);
        add(Place::attr(id, INODE), if self.inode == id { 0 } else { self.inode.into() });
        add(Place::attr(id, TARGET), if self.target.is_empty() { 0 } else { bytes(&self.target) });
        self.xattrs.iter().for_each(|(name, value)| add(Place::xattr(id, name), bytes(value) | 1));
        self.entries.iter().for_each(|(name, of)| add(Place::name(id, name), u64::from(*of)));
        sum
    }
}
