//! The bytes, lengths and names of a world at one moment: shared until written, hashed as it changes.

use super::hash::{Place, term};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// Unit of sharing between states, and block of the host file system, in bytes.
pub(super) const PAGE: usize = 4096;

/// Pages in one node of an object's page table.
const CHUNK: usize = 64;

/// Index of an object: the log, a directory or a file. On the host it is the inode number.
pub(super) type ObjId = u32;

/// The log region.
pub(super) const LOG: ObjId = 0;

/// The host directory.
pub(super) const ROOT: ObjId = 1;

pub(super) type Page = [u8; PAGE];

fn zero_page() -> Arc<Page> {
    static ZERO: OnceLock<Arc<Page>> = OnceLock::new();
    ZERO.get_or_init(|| Arc::new([0; PAGE])).clone()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjKind {
    Log,
    Dir,
    File,
    /// A file that no name reached when the power failed.
    Gone,
}

const LEN: u64 = 0;
const MODE: u64 = 1;
const MTIME: u64 = 2;
const CTIME: u64 = 3;

#[derive(Clone)]
pub(super) struct Obj {
    pub kind: ObjKind,
    pub len: u64,
    pub mode: u32,
    pub nlink: u32,
    pub btime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub entries: BTreeMap<Arc<[u8]>, ObjId>,
    /// Whether bytes beyond `len` may have been written: on a medium they can be there before the length is.
    pub beyond: bool,
    chunks: Vec<Arc<Vec<Option<Arc<Page>>>>>,
    id: ObjId,
    hash: u64,
}

impl Obj {
    fn new(id: ObjId, kind: ObjKind, mode: u32, time_ns: i64) -> Obj {
        let mut obj = Obj {
            kind,
            len: 0,
            mode,
            nlink: 0,
            btime_ns: time_ns,
            mtime_ns: 0,
            ctime_ns: 0,
            entries: BTreeMap::new(),
            beyond: false,
            chunks: Vec::new(),
            id,
            hash: term(Place::attr(id, MODE), u64::from(mode)),
        };
        obj.set_times(time_ns, time_ns);
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

    fn put(&mut self, mut offset: u64, mut data: &[u8]) {
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
    fn put_known(&mut self, mut offset: u64, mut data: &[u8], hash: u64) {
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
    fn allocate_page(&mut self, n: u64) -> u64 {
        let counted = self.kind == ObjKind::File;
        let id = self.id;
        let slot = self.slot(n);
        if slot.is_some() {
            return 0;
        }
        *slot = Some(zero_page());
        if counted { term(Place::alloc(id, n), 1) } else { 0 }
    }

    fn attr(&mut self, which: u64, old: u64, new: u64) {
        let place = Place::attr(self.id, which);
        self.hash = self.hash.wrapping_sub(term(place, old)).wrapping_add(term(place, new));
    }

    fn set_times(&mut self, mtime_ns: i64, ctime_ns: i64) {
        self.attr(MTIME, self.mtime_ns as u64, mtime_ns as u64);
        self.attr(CTIME, self.ctime_ns as u64, ctime_ns as u64);
        (self.mtime_ns, self.ctime_ns) = (mtime_ns, ctime_ns);
    }

    fn set_len(&mut self, len: u64) {
        self.attr(LEN, self.len, len);
        self.len = len;
    }

    /// Takes away every byte beyond the length. Blocks that hold only what `allocate` put there stay where
    /// `keep_allocated` says so.
    fn cut(&mut self, keep_allocated: bool) {
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
            let base = n * (PAGE as u64 / 8);
            let mut hash = if self.kind == ObjKind::File { term(Place::alloc(self.id, n), 1) } else { 0 };
            for (i, word) in page.chunks_exact(8).enumerate() {
                let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
                hash = hash.wrapping_add(term(Place::word(self.id, base + i as u64), word));
            }
            self.hash = self.hash.wrapping_sub(hash);
            *self.slot(n) = None;
        }
    }
}

/// Everything at one moment. Cloning shares all of it.
#[derive(Clone)]
pub(super) struct State {
    objs: Vec<Arc<Obj>>,
    hash: u64,
}

impl State {
    /// A log of `log_len` zero bytes and an empty directory.
    pub fn new(log_len: u64) -> State {
        let mut state = State { objs: Vec::new(), hash: 0 };
        state.create(ObjKind::Log, 0, 0);
        state.set_len(LOG, log_len);
        state.create(ObjKind::Dir, 0o040_755, 0);
        state.change(ROOT, |dir| dir.nlink = 2);
        state
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn obj(&self, id: ObjId) -> &Obj {
        &self.objs[id as usize]
    }

    pub fn objs(&self) -> impl Iterator<Item = (ObjId, &Obj)> {
        self.objs.iter().enumerate().map(|(id, obj)| (id as ObjId, &**obj))
    }

    fn change<R>(&mut self, id: ObjId, f: impl FnOnce(&mut Obj) -> R) -> R {
        let obj = Arc::make_mut(&mut self.objs[id as usize]);
        let before = obj.hash;
        let result = f(obj);
        self.hash = self.hash.wrapping_sub(before).wrapping_add(obj.hash);
        result
    }

    /// A new object without a name.
    pub fn create(&mut self, kind: ObjKind, mode: u32, time_ns: i64) -> ObjId {
        let id = self.objs.len() as ObjId;
        let obj = Obj::new(id, kind, mode, time_ns);
        self.hash = self.hash.wrapping_add(obj.hash);
        self.objs.push(Arc::new(obj));
        id
    }

    /// Writes bytes, whatever the length says.
    pub fn put(&mut self, id: ObjId, offset: u64, data: &[u8]) {
        self.change(id, |obj| obj.put(offset, data));
    }

    /// Writes bytes, adding `hash` to the hash: what [`put`](Self::put) of them would add for their words.
    pub fn put_known(&mut self, id: ObjId, offset: u64, data: &[u8], hash: u64) {
        self.change(id, |obj| obj.put_known(offset, data, hash));
    }

    /// Sets the length; where that takes bytes away, they are gone.
    pub fn set_len(&mut self, id: ObjId, len: u64) {
        self.change(id, |obj| {
            let shrinks = len < obj.len;
            obj.set_len(len);
            if shrinks {
                obj.cut(false);
            }
        });
    }

    pub fn set_times(&mut self, id: ObjId, mtime_ns: i64, ctime_ns: i64) {
        self.change(id, |obj| obj.set_times(mtime_ns, ctime_ns));
    }

    /// Allocates the blocks of a range.
    pub fn allocate(&mut self, id: ObjId, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        self.change(id, |obj| {
            for n in offset / PAGE as u64..=(offset + len - 1) / PAGE as u64 {
                let hash = obj.allocate_page(n);
                obj.hash = obj.hash.wrapping_add(hash);
            }
        });
    }

    /// Takes away what lies beyond an object's length.
    pub fn cut(&mut self, id: ObjId) {
        if self.obj(id).beyond {
            self.change(id, |obj| obj.cut(true));
        }
    }

    pub fn link(&mut self, dir: ObjId, name: &Arc<[u8]>, id: ObjId) {
        self.change(dir, |dir| {
            let place = Place::name(dir.id, name);
            if let Some(old) = dir.entries.insert(name.clone(), id) {
                dir.hash = dir.hash.wrapping_sub(term(place, u64::from(old)));
            }
            dir.hash = dir.hash.wrapping_add(term(place, u64::from(id)));
        });
        self.change(id, |obj| obj.nlink += 1);
    }

    /// Forgets an object that nothing names.
    pub fn forget(&mut self, id: ObjId) {
        self.hash = self.hash.wrapping_sub(self.objs[id as usize].hash);
        let mut gone = Obj::new(id, ObjKind::Gone, 0, 0);
        gone.hash = 0;
        self.objs[id as usize] = Arc::new(gone);
    }

    /// What `path` names.
    pub fn resolve(&self, path: &[u8]) -> Result<ObjId, Errno> {
        if path.is_empty() {
            return Ok(ROOT);
        }
        let mut at = ROOT;
        for part in path.split(|b| *b == b'/') {
            match part {
                b".." => return Err(Errno::XDEV),
                b"" | b"." => return Err(Errno::INVAL),
                _ => {}
            }
            let obj = self.obj(at);
            if obj.kind != ObjKind::Dir {
                return Err(Errno::NOTDIR);
            }
            at = *obj.entries.get(part).ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    /// The directory and the last part of `path`.
    pub fn resolve_parent<'p>(&self, path: &'p [u8]) -> Result<(ObjId, &'p [u8]), Errno> {
        let (parent, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], path),
        };
        match name {
            b".." => return Err(Errno::XDEV),
            b"" | b"." => return Err(Errno::INVAL),
            _ => {}
        }
        let dir = self.resolve(parent)?;
        if self.obj(dir).kind != ObjKind::Dir {
            return Err(Errno::NOTDIR);
        }
        Ok((dir, name))
    }

    /// The first path of every object below the root, the root and the log not included, in order.
    pub fn paths(&self) -> BTreeMap<Vec<u8>, ObjId> {
        let mut found = BTreeMap::new();
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((prefix, dir)) = todo.pop() {
            for (name, id) in &self.obj(dir).entries {
                let mut path: Vec<u8> = prefix.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name);
                if self.obj(*id).kind == ObjKind::Dir {
                    todo.push((path.clone(), *id));
                }
                found.insert(path, *id);
            }
        }
        found
    }

    /// The hash, computed from the contents.
    #[cfg(test)]
    pub fn hashed_anew(&self) -> u64 {
        let mut sum = 0u64;
        let mut add = |place, value| sum = sum.wrapping_add(term(place, value));
        for (id, obj) in self.objs().filter(|(_, obj)| obj.kind != ObjKind::Gone) {
            for n in (0..(obj.chunks.len() * CHUNK) as u64).filter(|n| obj.has_page(*n)) {
                let words = PAGE as u64 / 8;
                (n * words..(n + 1) * words).for_each(|w| add(Place::word(id, w), obj.word(w)));
                add(Place::alloc(id, n), u64::from(obj.kind == ObjKind::File));
            }
            add(Place::attr(id, LEN), obj.len);
            add(Place::attr(id, MODE), u64::from(obj.mode));
            add(Place::attr(id, MTIME), obj.mtime_ns as u64);
            add(Place::attr(id, CTIME), obj.ctime_ns as u64);
            obj.entries.iter().for_each(|(name, of)| add(Place::name(id, name), u64::from(*of)));
        }
        sum
    }
}
