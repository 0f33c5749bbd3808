//! Versions, kept in an arena and named by 32-bit numbers: 24 bytes each for runs, 32 for lines.

use super::pieces::cover;
use sync::{AtomicU64, Mutex, OnceLock, Ordering};

/// The end of a list.
pub const NO_VERSION: u32 = 0;

/// Chunks have this many cells at first; each row of [`CHUNKS_IN_ROW`] has chunks twice as large as the row before, so
/// that never much more than a thirty-second of the arena has not been used yet.
const FIRST_CHUNK: u32 = 64;
const CHUNKS_IN_ROW_BITS: u32 = 5;
const CHUNKS_IN_ROW: u32 = 1 << CHUNKS_IN_ROW_BITS;
const CHUNKS: usize = chunk_of(u32::MAX).0 + 1;
pub(super) const POSITION_BITS: u32 = 48;
const LENGTH_BITS: u32 = 13;
const LENGTH_SHIFT: u32 = 32;
const BEFORE_THINNING_SHIFT: u32 = LENGTH_SHIFT + LENGTH_BITS;

/// Versions that come onto a list before it is [thinned](VersionArena::thin) for the first time.
pub(super) const BEFORE_THINNING: u16 = 64;

/// What one write has made of a block, and its place in the block's list. The kind decides how finely:
/// [`RunVersion`] by the byte, [`LinesVersion`](super::LinesVersion) by the cache line. Lists and the arena are
/// the same for both.
pub trait Version: Copy + std::fmt::Debug + PartialEq {
    /// As the arena keeps it. Words are atomic only to be shared; what orders them is the slot's lock.
    type Cell: Default + Send + Sync;
    /// The part of a block that no version has covered yet, while a list is walked from its newest version.
    type Open;

    /// Reads a cell.
    fn get(cell: &Self::Cell) -> Self;

    /// Writes a cell.
    fn set(&self, cell: &Self::Cell);

    /// Asks the processor for a cell.
    fn prefetch(cell: &Self::Cell);

    /// The sequence of the group that wrote it.
    fn stamp(&self) -> u64;

    /// The version before it in the block's list, or [`NO_VERSION`].
    fn next(&self) -> u32;

    /// How many more may come onto the list before it is [thinned](VersionArena::thin).
    fn before_thinning(&self) -> u16;

    /// The same version at another place in a list.
    fn linked(self, next: u32, before_thinning: u16) -> Self;

    /// Whether nothing of `older` shows below it.
    fn covers(&self, older: &Self) -> bool;

    /// Whether it covers all of its block.
    fn is_whole(&self) -> bool;

    /// All of a block.
    fn open() -> Self::Open;

    /// Takes what it covers out of `open`. Whether there was any.
    fn cover(&self, open: &mut Self::Open) -> bool;

    /// The same version, before another one.
    #[inline]
    fn before(self, next: u32) -> Self {
        self.linked(next, self.before_thinning())
    }
}

/// A run of bytes of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunVersion {
    /// Where its bytes are, as the store understands it.
    pub position: u64,
    /// The sequence of the group that wrote it.
    pub stamp: u64,
    /// Its first byte in the block.
    pub start: u16,
    /// Its length in bytes, up to 4096.
    pub length: u16,
    /// The version before it in the block's list, or [`NO_VERSION`].
    pub next: u32,
    /// How many more may come onto the list before it is [thinned](VersionArena::thin).
    pub before_thinning: u16,
}

impl RunVersion {
    /// The byte of the block after its last.
    #[inline]
    pub fn end(&self) -> u16 {
        self.start + self.length
    }
}

/// A run as it is kept.
#[derive(Default)]
pub struct RunCell {
    /// Position below bit 48, first byte above.
    place: AtomicU64,
    stamp: AtomicU64,
    /// Next below bit 32, length above, from bit 45 on what may come before the list is thinned.
    link: AtomicU64,
}

impl Version for RunVersion {
    type Cell = RunCell;
    type Open = Vec<(u16, u16)>;

    #[inline]
    fn get(cell: &RunCell) -> RunVersion {
        let (place, link) = (cell.place.load(Ordering::Relaxed), cell.link.load(Ordering::Relaxed));
        RunVersion {
            position: place & ((1 << POSITION_BITS) - 1),
            stamp: cell.stamp.load(Ordering::Relaxed),
            start: (place >> POSITION_BITS) as u16,
            length: (link >> LENGTH_SHIFT) as u16 & ((1 << LENGTH_BITS) - 1),
            next: link as u32,
            before_thinning: (link >> BEFORE_THINNING_SHIFT) as u16,
        }
    }

    #[inline]
    fn set(&self, cell: &RunCell) {
        debug_assert!(self.position < 1 << POSITION_BITS && self.length > 0);
        debug_assert!(self.length < 1 << LENGTH_BITS && u64::from(self.end()) <= super::BLOCK);
        cell.place.store(self.position | u64::from(self.start) << POSITION_BITS, Ordering::Relaxed);
        cell.stamp.store(self.stamp, Ordering::Relaxed);
        let link = u64::from(self.next)
            | u64::from(self.length) << LENGTH_SHIFT
            | u64::from(self.before_thinning) << BEFORE_THINNING_SHIFT;
        cell.link.store(link, Ordering::Relaxed);
    }

    #[inline]
    fn prefetch(cell: &RunCell) {
        // It may lie across two lines.
        wholly_media::prefetch(&cell.place);
        wholly_media::prefetch(&cell.link);
    }

    #[inline]
    fn stamp(&self) -> u64 {
        self.stamp
    }

    #[inline]
    fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    fn before_thinning(&self) -> u16 {
        self.before_thinning
    }

    #[inline]
    fn linked(self, next: u32, before_thinning: u16) -> RunVersion {
        RunVersion { next, before_thinning, ..self }
    }

    #[inline]
    fn covers(&self, older: &RunVersion) -> bool {
        self.start <= older.start && older.end() <= self.end()
    }

    #[inline]
    fn is_whole(&self) -> bool {
        u64::from(self.length) == super::BLOCK
    }

    fn open() -> Self::Open {
        vec![(0, super::BLOCK as u16)]
    }

    fn cover(&self, open: &mut Self::Open) -> bool {
        cover(open, self.start, self.end(), |_, _| {})
    }
}

/// Made when the first of its versions is.
type Chunk<V> = OnceLock<Box<[<V as Version>::Cell]>>;

/// Where all versions of a store live.
pub struct VersionArena<V: Version = RunVersion> {
    chunks: Box<[Chunk<V>]>,
    free: Mutex<Free>,
}

struct Free {
    list: Vec<u32>,
    /// Never used yet.
    fresh: u32,
}

/// The chunk that has version `number`, and its place there.
#[inline]
const fn chunk_of(number: u32) -> (usize, usize) {
    // Counted from the first row on, row `r` begins at `1 << r`, in units of a first row.
    let shifted = number as u64 + (FIRST_CHUNK * CHUNKS_IN_ROW) as u64;
    let row = shifted.ilog2() - (FIRST_CHUNK * CHUNKS_IN_ROW).ilog2();
    let cells_bits = FIRST_CHUNK.ilog2() + row;
    let in_row = (shifted >> cells_bits) as u32 & (CHUNKS_IN_ROW - 1);
    ((row << CHUNKS_IN_ROW_BITS | in_row) as usize, (shifted & ((1 << cells_bits) - 1)) as usize)
}

/// How many cells a chunk has.
fn cells_of(chunk: usize) -> usize {
    (FIRST_CHUNK as usize) << (chunk >> CHUNKS_IN_ROW_BITS)
}

impl<V: Version> VersionArena<V> {
    /// An empty arena.
    pub fn new() -> Self {
        VersionArena {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            free: Mutex::new(Free { list: Vec::new(), fresh: NO_VERSION + 1 }),
        }
    }

    /// Puts `count` unused numbers into `spare`.
    #[inline]
    pub fn refill(&self, spare: &mut Vec<u32>, count: usize) {
        let mut free = self.free.lock().unwrap();
        let reused = count.min(free.list.len());
        let from = free.list.len() - reused;
        spare.extend(free.list.drain(from..));
        if reused < count {
            let first = free.fresh;
            let end = first.checked_add((count - reused) as u32).expect("fewer than 2^32 versions");
            free.fresh = end;
            self.make_chunks(first, end);
            spare.extend(first..end);
        }
    }

    /// `count` numbers in a row that were never used, or as many as there are; for who needs very many.
    #[inline]
    pub fn take_fresh(&self, count: u32) -> std::ops::Range<u32> {
        let mut free = self.free.lock().unwrap();
        let first = free.fresh;
        let end = first.saturating_add(count);
        assert!(first < end, "fewer than 2^32 versions");
        free.fresh = end;
        self.make_chunks(first, end);
        first..end
    }

    /// Makes room for the versions from `first` up to `end`.
    #[inline]
    fn make_chunks(&self, first: u32, end: u32) {
        for chunk in chunk_of(first).0..=chunk_of(end - 1).0 {
            self.make_chunk(chunk);
        }
    }

    /// Makes room for the next `count` versions, so that whoever asks for them need not.
    #[inline]
    pub fn prepare(&self, count: usize) {
        let fresh = self.free.lock().unwrap().fresh;
        let last = u64::from(fresh) + count as u64;
        for chunk in chunk_of(fresh).0..=chunk_of(last.min(u64::from(u32::MAX)) as u32).0 {
            self.make_chunk(chunk);
        }
    }

    #[inline]
    fn make_chunk(&self, chunk: usize) {
        self.chunks[chunk].get_or_init(|| (0..cells_of(chunk)).map(|_| V::Cell::default()).collect());
    }

    /// Takes back numbers that no list holds any more. They are handed out again in ascending order, so that versions
    /// which are made one after the other lie side by side.
    #[inline]
    pub fn give_back(&self, numbers: &mut Vec<u32>) {
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        self.free.lock().unwrap().list.append(numbers);
    }

    /// Number of versions in use or spare.
    pub fn in_use(&self) -> u64 {
        let free = self.free.lock().unwrap();
        u64::from(free.fresh - 1) - free.list.len() as u64
    }

    /// Bytes of memory that the arena takes.
    pub fn memory_bytes(&self) -> u64 {
        let cells: usize = self.chunks.iter().filter_map(|chunk| chunk.get()).map(|chunk| chunk.len()).sum();
        (cells * size_of::<V::Cell>()) as u64
    }

    #[inline]
    fn cell(&self, number: u32) -> &V::Cell {
        debug_assert_ne!(number, NO_VERSION);
        let (chunk, place) = chunk_of(number);
        &self.chunks[chunk].get().expect("a version of this arena")[place]
    }

    /// Asks the processor for version `number`, if it is one.
    #[inline]
    pub fn prefetch(&self, number: u32) {
        if number != NO_VERSION {
            V::prefetch(self.cell(number));
        }
    }

    /// Reads version `number`.
    #[inline]
    pub fn get(&self, number: u32) -> V {
        V::get(self.cell(number))
    }

    /// Writes version `number`, which no other thread can reach or whose slot is held exclusively.
    #[inline]
    pub fn set(&self, number: u32, version: V) {
        version.set(self.cell(number));
    }
}

impl<V: Version> VersionArena<V> {
    /// The versions of a list, newest first. The caller reads or claims its slot.
    #[inline]
    pub fn list(&self, newest: u32) -> impl Iterator<Item = V> + '_ {
        let mut at = newest;
        std::iter::from_fn(move || {
            (at != NO_VERSION).then(|| {
                let version = self.get(at);
                at = version.next();
                version
            })
        })
    }

    /// Unlinks the versions of a list that nobody reads of which no byte shows: later ones cover them together. Done
    /// whenever as many have come onto a list as it has left, so that lists do not grow with the number of writes, and
    /// a write pays a constant share of it. (FCFS bounds lists by copying bytes together, III-D; here a list has what
    /// shows, and as much again.)
    pub fn thin(&self, newest: u32, freed: &mut Vec<u32>) {
        let mut open = V::open();
        let (mut last, mut at, mut kept) = (NO_VERSION, newest, 0);
        while at != NO_VERSION {
            let version = self.get(at);
            if version.cover(&mut open) {
                if last != NO_VERSION {
                    self.set(last, self.get(last).before(at));
                }
                (last, kept) = (at, kept + 1);
            } else {
                freed.push(at);
            }
            at = version.next();
        }
        if last != NO_VERSION {
            self.set(last, self.get(last).before(NO_VERSION));
            let first = self.get(newest);
            self.set(newest, first.linked(first.next(), BEFORE_THINNING.max(kept)));
        }
    }

    /// Removes the versions that `out` names from a list. They must be its oldest, and nobody may read the list.
    /// Returns the newest version that stays.
    ///
    /// # Panics
    /// If a version that stays is older than one that goes.
    pub fn drop_tail(&self, newest: u32, out: impl Fn(&V) -> bool, freed: &mut Vec<u32>) -> u32 {
        let (mut last, mut at) = (NO_VERSION, newest);
        while at != NO_VERSION && !out(&self.get(at)) {
            last = at;
            at = self.get(at).next();
        }
        while at != NO_VERSION {
            let version = self.get(at);
            assert!(out(&version), "what is taken home is older than what is not");
            freed.push(at);
            at = version.next();
        }
        if last == NO_VERSION {
            return NO_VERSION;
        }
        self.set(last, self.get(last).before(NO_VERSION));
        newest
    }
}

impl VersionArena<RunVersion> {
    /// Cuts a list that nobody reads to the first `keep` bytes of its block. Returns its new newest version.
    pub fn cut_list(&self, newest: u32, keep: u16, freed: &mut Vec<u32>) -> u32 {
        let (mut first, mut last, mut at) = (NO_VERSION, NO_VERSION, newest);
        while at != NO_VERSION {
            let mut version = self.get(at);
            let next = version.next;
            if version.start >= keep {
                freed.push(at);
            } else {
                version.length = version.length.min(keep - version.start);
                version.next = NO_VERSION;
                self.set(at, version);
                if last == NO_VERSION {
                    first = at;
                } else {
                    self.set(last, self.get(last).before(at));
                }
                last = at;
            }
            at = next;
        }
        first
    }
}

impl<V: Version> Default for VersionArena<V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other() {
        let mut expected = (0, 0);
        for number in 0..100_000 {
            assert_eq!(chunk_of(number), expected);
            expected.1 += 1;
            if expected.1 == cells_of(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    /// Two runs that overlap, over and over: of all that was written only what shows is left.
    #[test]
    fn what_does_not_show_is_thinned_out() {
        let arena = VersionArena::<RunVersion>::new();
        let mut numbers = Vec::new();
        arena.refill(&mut numbers, 1000);
        let mut newest = NO_VERSION;
        for (stamp, &number) in (0..).zip(&numbers) {
            let start = if stamp % 2 == 0 { 0 } else { 50 };
            let before_thinning = BEFORE_THINNING;
            arena.set(number, RunVersion { position: 0, stamp, start, length: 100, next: newest, before_thinning });
            newest = number;
        }
        let shown = crate::pieces(arena.list(newest), 0, 4096);
        let mut freed = Vec::new();
        arena.thin(newest, &mut freed);
        assert_eq!(arena.list(newest).map(|version| version.stamp).collect::<Vec<_>>(), [999, 998]);
        assert_eq!(freed.len(), 998);
        assert_eq!(crate::pieces(arena.list(newest), 0, 4096), shown);
    }

    #[test]
    fn numbers_are_reused_and_versions_kept() {
        let arena = VersionArena::<RunVersion>::new();
        let mut spare = Vec::new();
        arena.refill(&mut spare, 3);
        let version = RunVersion {
            position: (1 << 48) - 1,
            stamp: u64::MAX,
            start: 0,
            length: 4096,
            next: u32::MAX,
            before_thinning: u16::MAX,
        };
        arena.set(spare[0], version);
        assert_eq!(arena.get(spare[0]), version);
        assert_eq!(arena.in_use(), 3);
        let numbers = spare.clone();
        arena.give_back(&mut spare);
        assert_eq!(arena.in_use(), 0);
        arena.refill(&mut spare, 3);
        spare.sort_unstable();
        assert_eq!(spare, numbers);
    }
}
