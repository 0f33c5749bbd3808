//! The table of segments: which are free, which are open, and from when on a used one can be freed.

use sync::{AtomicU8, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering};
use wholly_error::Result;

/// Chunk `k` holds `FIRST_CHUNK << k` segments, so that a small log costs little and a large one few chunks.
const FIRST_CHUNK: u32 = 16;
const CHUNKS: usize = 24;

#[inline]
fn chunk_of(index: u32) -> (usize, usize) {
    let shifted = index / FIRST_CHUNK + 1;
    let chunk = shifted.ilog2();
    (chunk as usize, (index - ((1 << chunk) - 1) * FIRST_CHUNK) as usize)
}

/// Where a segment is in its life; see the head of [`log`](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentState {
    /// Nothing in it counts.
    Free = 0,
    /// A lane appends to it.
    Open = 1,
    /// Full, or left.
    Sealed = 2,
}

/// What is known of one segment. All of it is volatile and rebuilt by recovery. Each group changes that of its own
/// segment, which is often the neighbour of another lane's: they share no line, nor two lines that are fetched
/// together.
#[repr(align(128))]
pub struct Segment {
    state: AtomicU8,
    verified: AtomicU8,
    /// Parts in it whose group is still running.
    live_parts: AtomicU32,
    /// End of the records that count, in bytes from the log's start.
    end: AtomicU64,
    /// The highest sequence of a group that has bytes in it; 0 if none.
    last_sequence: AtomicU64,
    /// The seed of its records, for segments that recovery found.
    seed: AtomicU64,
}

impl Default for Segment {
    fn default() -> Self {
        Segment {
            state: AtomicU8::new(SegmentState::Free as u8),
            verified: AtomicU8::new(1),
            live_parts: AtomicU32::new(0),
            end: AtomicU64::new(0),
            last_sequence: AtomicU64::new(0),
            seed: AtomicU64::new(0),
        }
    }
}

impl Segment {
    /// Where it is in its life.
    #[inline]
    pub fn state(&self) -> SegmentState {
        match self.state.load(Ordering::Acquire) {
            0 => SegmentState::Free,
            1 => SegmentState::Open,
            _ => SegmentState::Sealed,
        }
    }

    /// End of the records that count, in bytes from the log's start.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Records that records up to `end` count. The lane's owner calls it after the group has been published.
    #[inline]
    pub(super) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// Notes that the group with this sequence has bytes here, in a segment that the caller's lane appends to: nobody
    /// else notes any.
    #[inline]
    pub(super) fn note_sequence_alone(&self, sequence: u64) {
        if self.last_sequence.load(Ordering::Relaxed) < sequence {
            self.last_sequence.store(sequence, Ordering::Release);
        }
    }

    /// Notes that the group with this sequence has bytes here.
    #[inline]
    pub(super) fn note_sequence(&self, sequence: u64) {
        if self.last_sequence.load(Ordering::Acquire) < sequence {
            self.last_sequence.fetch_max(sequence, Ordering::AcqRel);
        }
    }

    pub(super) fn add_part(&self) {
        self.live_parts.fetch_add(1, Ordering::AcqRel);
    }

    /// A part's group has ended: with the sequence that it got, or 0 if it was aborted.
    pub(super) fn end_part(&self, sequence: u64) {
        self.note_sequence(sequence);
        let before = self.live_parts.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "a part ends once");
    }

    /// Whether all that was ever put into it are so many parts whose groups have not ended.
    pub(super) fn has_only_parts(&self, parts: u32) -> bool {
        self.last_sequence() == 0 && self.live_parts.load(Ordering::Acquire) == parts
    }

    /// Whether neither a lane nor a running group holds it.
    fn is_left(&self) -> bool {
        self.state() == SegmentState::Sealed && self.live_parts.load(Ordering::Acquire) == 0
    }

    pub(super) fn seal(&self, end: u64) {
        self.set_end(end);
        self.state.store(SegmentState::Sealed as u8, Ordering::Release);
    }

    /// Takes over a segment that recovery found in use. Its payloads have not been verified.
    pub(super) fn adopt(&self, seed: u64, end: u64, last_sequence: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        self.last_sequence.store(last_sequence, Ordering::Relaxed);
        self.verified.store(0, Ordering::Relaxed);
        self.seal(end);
    }

    /// The seed of its records, for segments that recovery found.
    #[inline]
    pub(super) fn seed(&self) -> u64 {
        self.seed.load(Ordering::Relaxed)
    }

    /// The highest sequence of a group that has bytes in it; 0 if none.
    #[inline]
    pub(super) fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Ordering::Acquire)
    }

    /// Whether its payloads were written in this life, or have been verified in it.
    #[inline]
    pub fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Acquire) != 0
    }

    /// Its payloads are intact.
    pub fn set_verified(&self) {
        self.verified.store(1, Ordering::Release);
    }

    fn open(&self) {
        debug_assert_eq!(self.state(), SegmentState::Free);
        self.end.store(0, Ordering::Relaxed);
        self.last_sequence.store(0, Ordering::Relaxed);
        self.verified.store(1, Ordering::Relaxed);
        self.state.store(SegmentState::Open as u8, Ordering::Release);
    }
}

struct FreeList {
    count: u32,
    /// Free segments, the lowest last, so that the log's end empties first.
    free: Vec<u32>,
    initialised: bool,
    /// Whether the last free segment may be taken: see [`SegmentTable::keep_one`].
    takes_last: bool,
}

impl FreeList {
    /// The fewest segments of which one is kept: of fewer none can be spared.
    const KEEPS_FROM: u32 = 4;

    /// The free segments that may be taken.
    #[inline]
    fn usable(&self) -> usize {
        let kept = usize::from(self.count >= Self::KEEPS_FROM && !self.takes_last);
        self.free.len().saturating_sub(kept)
    }
}

/// All segments. Reading one takes no lock.
pub(super) struct SegmentTable {
    chunks: [OnceLock<Box<[Segment]>>; CHUNKS],
    list: Mutex<FreeList>,
}

impl SegmentTable {
    /// A table of `count` segments, all free until recovery adopts some.
    pub(super) fn new(count: u32) -> Self {
        let table = SegmentTable {
            chunks: [const { OnceLock::new() }; CHUNKS],
            list: Mutex::new(FreeList { count, free: Vec::new(), initialised: false, takes_last: false }),
        };
        table.allocate(count);
        table
    }

    fn allocate(&self, count: u32) {
        for (k, chunk) in self.chunks.iter().enumerate().take(chunk_of(count.max(1) - 1).0 + 1) {
            chunk.get_or_init(|| (0..FIRST_CHUNK << k).map(|_| Segment::default()).collect());
        }
    }

    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> &Segment {
        let (chunk, place) = chunk_of(index);
        &self.chunks[chunk].get().expect("a segment of the log")[place]
    }

    /// Rebuilds the free list lazily after recovery has adopted what was in use.
    fn list(&self) -> sync::MutexGuard<'_, FreeList> {
        let mut list = self.list.lock().unwrap();
        if !list.initialised {
            list.free = (0..list.count).rev().filter(|&i| self.get(i).state() == SegmentState::Free).collect();
            list.initialised = true;
        }
        list
    }

    pub(super) fn acquire(&self) -> Option<u32> {
        // Held until it is open: the end of the log is given back where it is free.
        let mut list = self.list();
        if list.usable() == 0 {
            return None;
        }
        let index = list.free.pop()?;
        self.get(index).open();
        Some(index)
    }

    pub(super) fn count(&self) -> (u32, u32) {
        let list = self.list();
        (list.count, list.free.len() as u32)
    }

    /// Number of segments, and how many free ones may be taken.
    #[inline]
    pub(super) fn usable(&self) -> (u32, u32) {
        let list = self.list();
        (list.count, list.usable() as u32)
    }

    /// Whether one free segment is kept for who must not wait.
    pub(super) fn keep_one(&self, keep: bool) {
        self.list().takes_last = !keep;
    }

    /// Whether there is a segment that is freed once the tail has passed its groups.
    pub(super) fn may_free_any(&self) -> bool {
        let list = self.list();
        (0..list.count).any(|index| self.get(index).is_left())
    }

    /// Frees what invariant 6 allows. The tail is durable.
    pub(super) fn release_below(&self, tail: u64) -> usize {
        let mut list = self.list();
        let mut freed = 0;
        for index in (0..list.count).rev() {
            let segment = self.get(index);
            if segment.is_left() && segment.last_sequence() < tail {
                segment.state.store(SegmentState::Free as u8, Ordering::Release);
                list.free.push(index);
                freed += 1;
            }
        }
        list.free.sort_unstable_by(|a, b| b.cmp(a));
        freed
    }

    pub(super) fn grow(&self, seen: u32, segments: u32, extend: impl FnOnce(u32) -> Result<()>) -> Result<()> {
        let mut list = self.list();
        if list.count > seen {
            return Ok(());
        }
        let count = list.count + segments;
        extend(count)?;
        self.allocate(count);
        for index in list.count..count {
            list.free.insert(0, index);
        }
        list.count = count;
        Ok(())
    }

    /// Gives up free segments at the end: `tell` tells how many are left, then `cut` cuts the medium.
    pub(super) fn shrink(
        &self,
        min: u32,
        tell: impl FnOnce(u32) -> Result<()>,
        cut: impl FnOnce(u32) -> Result<()>,
    ) -> Result<()> {
        let mut list = self.list();
        let mut count = list.count;
        while count > min && self.get(count - 1).state() == SegmentState::Free {
            count -= 1;
        }
        if count == list.count {
            return Ok(());
        }
        tell(count)?;
        // From now on they are not there, also where the medium keeps its length.
        list.free.retain(|&index| index < count);
        list.count = count;
        cut(count)
    }
}

#[cfg(test)]
mod tests {
    use super::SegmentTable;

    #[test]
    fn who_sees_the_same_lack_grows_the_log_once() {
        let table = SegmentTable::new(4);
        for _ in 0..3 {
            table.grow(4, 2, |_| Ok(())).unwrap();
        }
        assert_eq!(table.count(), (6, 6));
        table.grow(6, 1, |_| Ok(())).unwrap();
        assert_eq!(table.count(), (7, 7));
    }

    /// A segment is taken while the end of the log is given back: it is in the log as long as it is taken.
    #[test]
    fn a_segment_that_is_taken_is_not_cut_off() {
        let table = SegmentTable::new(1);
        assert_eq!(table.acquire(), Some(0));
        let take = || {
            for round in 0..1_000_000 {
                let Some(index) = table.acquire() else { continue };
                assert!(index < table.count().0, "round {round}");
                table.get(index).seal(0);
                table.release_below(1);
            }
        };
        std::thread::scope(|scope| {
            let taking = scope.spawn(take);
            while !taking.is_finished() {
                table.grow(1, 1, |_| Ok(())).unwrap();
                table.shrink(1, |_| Ok(()), |_| Ok(())).unwrap();
            }
        });
    }
}
