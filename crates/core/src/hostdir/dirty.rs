//! Which blocks have versions: what a checkpoint has to visit.
//!
//! Who publishes alone names blocks without a locked instruction: seats of the pool have a shard each, in which only
//! the seat's group writes. A shard is a list behind a lock and, before it, a few places that the seat fills one by
//! one; when they are full it moves them to the list.

use crossbeam_utils::CachePadded;

use crate::log::OWN_SLOTS;
use sync::{AtomicU64, AtomicUsize, Mutex, Ordering};

const BLOCK_BITS: u32 = 40;
/// In the place of a block: the size is to be brought home.
const SIZE: u64 = (1 << BLOCK_BITS) - 1;
/// Blocks that a seat names between two locks.
const RECENT: usize = 64;

/// Something to visit, in 8 bytes: the file's number above, the block's below. Sorted they are by file and block, sizes
/// last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirtyBlock(u64);

impl DirtyBlock {
    pub fn new(file: u32, block: u64) -> Self {
        debug_assert!(block < SIZE && file < 1 << 24);
        DirtyBlock(u64::from(file) << BLOCK_BITS | block)
    }

    /// The size of a file.
    pub fn of_size(file: u32) -> Self {
        DirtyBlock(u64::from(file) << BLOCK_BITS | SIZE)
    }

    /// The file's number.
    pub fn file(self) -> u32 {
        (self.0 >> BLOCK_BITS) as u32
    }

    /// The block, or `None` for the size.
    pub fn block(self) -> Option<u64> {
        let block = self.0 & SIZE;
        (block != SIZE).then_some(block)
    }
}

/// Blocks that went from no version to some, each named once until a checkpoint takes the list.
pub(crate) struct Dirty {
    /// One for each seat of the pool, by its place, and the last for everybody else.
    shards: [CachePadded<Shard>; OWN_SLOTS + 1],
}

struct Shard {
    list: Mutex<List>,
    /// How many of `recent` count. Only the seat stores it.
    count: AtomicUsize,
    recent: [AtomicU64; RECENT],
}

#[derive(Default)]
struct List {
    blocks: Vec<DirtyBlock>,
    /// How many of `recent` a checkpoint has taken.
    taken: usize,
}

impl Shard {
    /// Moves all to the list.
    #[cold]
    fn make_place(&self) -> usize {
        let list = &mut *self.list.lock().unwrap();
        list.blocks.extend(self.untaken(list.taken));
        list.taken = 0;
        self.count.store(0, Ordering::Relaxed);
        0
    }

    /// What has not been taken of the places before the list.
    fn untaken(&self, taken: usize) -> impl Iterator<Item = DirtyBlock> + '_ {
        let count = self.count.load(Ordering::Acquire);
        self.recent[taken..count].iter().map(|block| DirtyBlock(block.load(Ordering::Relaxed)))
    }
}

impl Dirty {
    pub fn new() -> Self {
        let shard = || Shard {
            list: Mutex::default(),
            count: AtomicUsize::new(0),
            recent: [const { AtomicU64::new(0) }; RECENT],
        };
        Dirty { shards: std::array::from_fn(|_| CachePadded::new(shard())) }
    }

    /// Names a block, by the group in the seat of the pool at `place`, or by anybody else. Who takes the list after
    /// that group has published finds it.
    #[inline(always)]
    pub fn push(&self, place: Option<usize>, block: DirtyBlock) {
        let Some(place) = place else {
            self.shards[OWN_SLOTS].list.lock().unwrap().blocks.push(block);
            return;
        };
        let shard = &self.shards[place];
        let mut count = shard.count.load(Ordering::Relaxed);
        if count >= RECENT {
            count = shard.make_place();
        }
        shard.recent[count].store(block.0, Ordering::Relaxed);
        shard.count.store(count + 1, Ordering::Release);
    }

    /// Names the size of a file.
    pub fn push_resize(&self, file: u32) {
        self.push(None, DirtyBlock::of_size(file));
    }

    /// Names blocks again.
    pub fn append(&self, blocks: &mut Vec<DirtyBlock>) {
        if !blocks.is_empty() {
            self.shards[OWN_SLOTS].list.lock().unwrap().blocks.append(blocks);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| {
            let list = shard.list.lock().unwrap();
            list.blocks.is_empty() && shard.untaken(list.taken).next().is_none()
        })
    }

    /// Takes all of them, in no order.
    pub fn take(&self) -> Vec<DirtyBlock> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut list = shard.list.lock().unwrap();
            let before = list.blocks.len();
            let taken = list.taken;
            list.blocks.extend(shard.untaken(taken));
            list.taken = taken + (list.blocks.len() - before);
            let mut blocks = std::mem::take(&mut list.blocks);
            if all.is_empty() {
                all = blocks;
            } else {
                all.append(&mut blocks);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is taken in between, each block is taken once.
    #[test]
    fn every_block_is_taken_once() {
        let dirty = Dirty::new();
        let mut seen = Vec::new();
        for i in 0..1000u64 {
            dirty.push((i % 3 != 0).then_some((i % 2) as usize), DirtyBlock::new(1, i));
            if i % 97 == 0 {
                assert!(!dirty.is_empty());
                seen.extend(dirty.take());
                assert!(dirty.is_empty());
            }
        }
        seen.extend(dirty.take());
        assert!(dirty.is_empty() && dirty.take().is_empty());
        seen.sort_unstable();
        assert!(seen.iter().map(|block| block.block().unwrap()).eq(0..1000));
    }
}
