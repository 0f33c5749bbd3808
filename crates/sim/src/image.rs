//! What a medium holds at a moment: the input of recovery.

use super::pending::Pending;
use super::reads::ReadSet;
use super::state::{LOG, ObjId, ObjKind, State};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A place on the media, for people, oracles and faults.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The log region.
    Log,
    /// The file with this path.
    File(Vec<u8>),
}

impl Place {
    /// The file with this path.
    pub fn file(path: impl AsRef<[u8]>) -> Place {
        Place::File(path.as_ref().to_vec())
    }
}

/// A name in an image, and what has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name, with those of the directories above.
    pub path: Vec<u8>,
    /// Inode number.
    pub ino: u64,
    /// Type and permission bits as in `st_mode`.
    pub mode: u32,
    /// The link count.
    pub nlink: u32,
    /// What a symbolic link holds.
    pub target: Vec<u8>,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Times of the last access and of the last change of content, in ns since the epoch.
    pub times_ns: (i64, i64),
    /// Extended attributes by name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What the media of a world hold: after a power failure, or after the death of the process
/// ([`World::kill`](super::World::kill)), when some of it is still pending. Cloning shares everything.
#[derive(Clone)]
pub struct Image {
    pub(super) state: State,
    /// What a process that died had written and not made durable. Empty after a power failure.
    pub(super) pending: Option<Arc<Pending>>,
    pub(super) faults: Vec<(ObjId, Range<u64>)>,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({:016x})", self.hash())
    }
}

impl Image {
    pub(super) fn new(state: State) -> Image {
        Image { state, pending: None, faults: Vec::new() }
    }

    /// A hash of all bytes, lengths, attributes and names, and of what is pending. Equal for equal images.
    pub fn hash(&self) -> u64 {
        let pending = self.pending.as_ref().map_or(0, |pending| pending.hash());
        self.state.hash().wrapping_add(pending)
    }

    /// The same hash of what the next process sees, whether or not it is durable.
    pub fn hash_as_seen(&self) -> u64 {
        if self.pending.is_none() { self.state.hash() } else { self.seen().hash() }
    }

    /// Whether some of it may still be lost, because the process died and the power has not failed yet.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// What the next process sees: what is durable, with what is pending.
    pub(super) fn seen(&self) -> State {
        match &self.pending {
            Some(pending) => pending.applied_to(&self.state),
            None => self.state.clone(),
        }
    }

    fn find(&self, place: &Place) -> Option<ObjId> {
        match place {
            Place::Log => Some(LOG),
            Place::File(path) => self.state.resolve(path).ok().filter(|id| self.state.obj(*id).kind == ObjKind::File),
        }
    }

    fn must(&self, place: &Place) -> ObjId {
        self.find(place).unwrap_or_else(|| panic!("no file {place:?} in this image"))
    }

    /// The number of bytes at a place; `None` where there is no such file.
    pub fn len(&self, place: &Place) -> Option<u64> {
        self.find(place).map(|id| self.state.obj(id).len)
    }

    /// All bytes at a place as the next process would see them; `None` where there is no such file.
    pub fn read(&self, place: &Place) -> Option<Vec<u8>> {
        let with_pending;
        let seen = match &self.pending {
            // Who reads every file does not copy the whole state for each.
            None => &self.state,
            Some(_) => {
                with_pending = self.seen();
                &with_pending
            }
        };
        let id = match place {
            Place::Log => LOG,
            Place::File(path) => seen.resolve(path).ok().filter(|id| seen.obj(*id).kind == ObjKind::File)?,
        };
        let mut bytes = vec![0; seen.obj(id).len as usize];
        seen.obj(id).read(0, &mut bytes);
        Some(bytes)
    }

    /// Which bytes of the log and of named files a process has read that found this image, as a set of whole words.
    pub fn ranges_read(&self, reads: &ReadSet) -> Vec<(Place, Range<u64>)> {
        let seen = self.seen();
        let mut names: BTreeMap<ObjId, Vec<u8>> = BTreeMap::new();
        for (path, id) in seen.paths() {
            names.entry(id).or_insert(path);
        }
        let place = |id| if id == LOG { Some(Place::Log) } else { names.get(&id).cloned().map(Place::File) };
        let ranges = reads.ranges().into_iter();
        ranges.filter_map(|(id, range)| Some((place(id)?, range.start..range.end.min(seen.obj(id).len)))).collect()
    }

    /// Every path as the next process would see it, and whether it is a directory, in order.
    pub fn paths(&self) -> Vec<(Vec<u8>, bool)> {
        let seen = self.seen();
        seen.paths().into_iter().map(|(path, id)| (path, seen.obj(id).kind == ObjKind::Dir)).collect()
    }

    /// Every name as the next process would see it, in order of the paths.
    pub fn names(&self) -> Vec<Named> {
        let seen = self.seen();
        let named = |(path, id): (Vec<u8>, ObjId)| {
            let obj = seen.obj(id);
            Named {
                path,
                ino: id.into(),
                mode: obj.mode,
                nlink: obj.nlink,
                target: obj.target.to_vec(),
                owner: (obj.uid, obj.gid),
                times_ns: (obj.atime_ns, obj.mtime_ns),
                xattrs: obj.xattrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            }
        };
        seen.paths().into_iter().map(named).collect()
    }

    /// Bit rot: turns one bit over. `bit` is below 8.
    ///
    /// # Panics
    /// If the place does not exist or is shorter.
    pub fn flip_bit(&mut self, place: &Place, offset: u64, bit: u32) {
        let id = self.must(place);
        assert!(offset < self.state.obj(id).len && bit < 8, "bit {bit} of byte {offset} of {place:?}");
        let mut byte = [0];
        self.state.obj(id).read(offset, &mut byte);
        self.state.put(id, offset, &[byte[0] ^ 1 << bit]);
    }

    /// Reads that touch this range fail with `EIO`, until a write covers all of it.
    ///
    /// # Panics
    /// If the place does not exist.
    pub fn fail_reads(&mut self, place: &Place, range: Range<u64>) {
        let id = self.must(place);
        self.faults.push((id, range));
    }

    /// A misdirected write: the `len` bytes at `from` stand at `to` as well, whose own are lost.
    ///
    /// # Panics
    /// If a range is not inside its place.
    pub fn misdirect(&mut self, from: (&Place, u64), to: (&Place, u64), len: u64) {
        let bytes = self.bytes(from, len);
        self.bytes(to, len);
        self.state.put(self.must(to.0), to.1, &bytes);
    }

    /// Two writes that went to each other's places.
    ///
    /// # Panics
    /// If a range is not inside its place.
    pub fn swap(&mut self, a: (&Place, u64), b: (&Place, u64), len: u64) {
        let (at_a, at_b) = (self.bytes(a, len), self.bytes(b, len));
        self.state.put(self.must(a.0), a.1, &at_b);
        self.state.put(self.must(b.0), b.1, &at_a);
    }

    fn bytes(&self, (place, offset): (&Place, u64), len: u64) -> Vec<u8> {
        let obj = self.state.obj(self.must(place));
        assert!(offset + len <= obj.len, "{len} bytes at {offset} of {place:?}");
        let mut bytes = vec![0; len as usize];
        obj.read(offset, &mut bytes);
        bytes
    }

    pub(super) fn check_read(faults: &[(ObjId, Range<u64>)], id: ObjId, range: Range<u64>) -> Result<(), Errno> {
        let hit = |(of, bad): &(ObjId, Range<u64>)| *of == id && bad.start < range.end && range.start < bad.end;
        if faults.iter().any(hit) { Err(Errno::IO) } else { Ok(()) }
    }
}
