//! What all files' indexes share, and how a write becomes visible.

use super::dirty::{Dirty, DirtyBlock};
use super::file::File;
use crate::index::{BLOCK, Garbage, NO_VERSION, Version, VersionArena};
use crate::sync::{Mutex, Ordering};

/// Versions that are asked of the arena at a time.
const SPARE: usize = 64;

/// The versions of all files, and which blocks have any.
pub(crate) struct Published {
    pub arena: VersionArena,
    pub dirty: Dirty,
    /// What has gathered at seats; invariant 5 of the index.
    garbage: Mutex<Vec<Garbage>>,
}

/// What a publisher has at hand, so that it need not take a lock for each version.
#[derive(Default)]
pub(crate) struct Stock {
    /// Unused numbers of versions.
    pub spare: Vec<u32>,
    /// Numbers of versions that were unlinked, and that nobody looks at.
    pub freed: Vec<u32>,
    garbage: Vec<Garbage>,
    /// The place in the pool of the seat that it belongs to, if there is one.
    place: Option<usize>,
}

impl Stock {
    /// Of the seat at `place` in the pool, or of none.
    pub fn new(place: Option<usize>) -> Self {
        Stock { place, ..Stock::default() }
    }
}

/// A committed write and where its bytes are.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Position of the first.
    pub position: u64,
    /// See [`Version::stamp`].
    pub stamp: u64,
}

impl Published {
    pub fn new() -> Self {
        Published { arena: VersionArena::new(), dirty: Dirty::new(), garbage: Mutex::default() }
    }

    /// Asks the processor for the slots that [`publish`](Self::publish) is going to change.
    #[inline]
    pub fn prefetch_slots(&self, file: &File, offset: u64, length: u64) {
        for_some_blocks(offset, length, |block| {
            if let Some(slot) = file.index.get(block) {
                slot.prefetch();
            }
        });
    }

    /// Asks the processor for the versions that [`publish`](Self::publish) is going to look at. To be called while a fence is waited for anyway.
    #[inline]
    pub fn prefetch_versions(&self, file: &File, offset: u64, length: u64) {
        for_some_blocks(offset, length, |block| {
            if let Some(slot) = file.index.get(block) {
                slot.prefetch_newest(&self.arena);
            }
        });
    }

    /// Publishes a write as a version of each block that it touches. `alone` says that nobody else publishes to the file.
    #[inline]
    pub fn publish(&self, file: &File, written: Written, alone: bool, stock: &mut Stock) {
        // Looked at while the commit is in flight: see invariant 5 of the index.
        let alone = alone && file.visited.load(Ordering::Acquire) == 0;
        let end = written.offset + written.length;
        let mut at = written.offset;
        let mut new = 0;
        while at < end {
            let block = at / BLOCK;
            let take = (end - at).min(BLOCK - at % BLOCK);
            let number = match stock.spare.pop() {
                Some(number) => number,
                None => {
                    self.arena.refill(&mut stock.spare, SPARE);
                    stock.spare.pop().expect("the arena has given some")
                }
            };
            let version = Version {
                position: written.position + (at - written.offset),
                stamp: written.stamp,
                start: (at % BLOCK) as u16,
                length: take as u16,
                next: NO_VERSION,
            };
            let slot = file.index.get_or_make(block);
            let was_empty = if alone {
                slot.push_alone(&self.arena, number, version, &mut stock.garbage)
            } else {
                slot.claim().push(&self.arena, number, version, &mut stock.freed)
            };
            if was_empty {
                new += 1;
                self.dirty.push(stock.place, DirtyBlock::new(file.number, block));
            }
            at += take;
        }
        match new {
            0 => {}
            // A checkpoint counts down where it visits only.
            _ if alone => file.pending.store(file.pending.load(Ordering::Relaxed) + new, Ordering::Release),
            _ => {
                file.pending.fetch_add(new, Ordering::AcqRel);
            }
        }
    }

    /// A group has published all that it wrote: keeps the stock small.
    #[inline]
    pub fn settle(&self, stock: &mut Stock) {
        const MOST_GARBAGE: usize = 256;
        stock.spare.append(&mut stock.freed);
        if stock.spare.len() > 4 * SPARE {
            self.arena.give_back(&mut stock.spare.split_off(SPARE));
        }
        if stock.garbage.len() >= MOST_GARBAGE {
            self.garbage.lock().unwrap().append(&mut stock.garbage);
        }
    }

    /// Takes back a stock that is not used any more.
    pub fn take_back(&self, mut stock: Stock) {
        self.garbage.lock().unwrap().append(&mut stock.garbage);
        stock.spare.append(&mut stock.freed);
        self.arena.give_back(&mut stock.spare);
    }

    /// Every block that had a version below `target` was visited, and its readers have left.
    pub fn free_garbage_below(&self, target: u64, freed: &mut Vec<u32>) {
        let mut garbage = self.garbage.lock().unwrap();
        freed.extend(garbage.extract_if(.., |old| old.stamp < target).map(|old| old.number));
    }
}

impl Published {
    /// What [`publish`](Self::publish) does, for recovery: nobody else can reach the index yet, and groups come in commit order.
    #[inline]
    pub fn publish_recovered(&self, file: &File, written: Written, numbers: &mut Numbers, dirty: &mut Vec<DirtyBlock>) {
        let end = written.offset + written.length;
        let mut at = written.offset;
        while at < end {
            let block = at / BLOCK;
            let take = (end - at).min(BLOCK - at % BLOCK);
            let number = numbers.take(&self.arena);
            let version = Version {
                position: written.position + (at - written.offset),
                stamp: written.stamp,
                start: (at % BLOCK) as u16,
                length: take as u16,
                next: 0,
            };
            if file.index.get_or_make(block).push_recovered(&self.arena, number, version, &mut numbers.freed) {
                file.pending.fetch_add(1, Ordering::Relaxed);
                dirty.push(DirtyBlock::new(file.number, block));
            }
            at += take;
        }
    }
}

/// Numbers of versions for recovery.
#[derive(Default)]
pub(crate) struct Numbers {
    /// Of versions that were unlinked: used again first.
    pub freed: Vec<u32>,
    fresh: std::ops::Range<u32>,
}

impl Numbers {
    #[inline]
    fn take(&mut self, arena: &VersionArena) -> u32 {
        /// Taken at a time: a row, so that versions which follow each other lie side by side.
        const ROW: u32 = 256;
        if let Some(number) = self.freed.pop() {
            return number;
        }
        if self.fresh.is_empty() {
            self.fresh = arena.take_fresh(ROW);
        }
        let number = self.fresh.start;
        self.fresh.start += 1;
        number
    }

    /// Gives back what is left.
    pub fn give_back(mut self, arena: &VersionArena) {
        self.freed.extend(self.fresh);
        arena.give_back(&mut self.freed);
    }
}

/// Calls `f` for the first blocks of a range: a prefetch is worth its while for a few.
#[inline]
fn for_some_blocks(offset: u64, length: u64, mut f: impl FnMut(u64)) {
    const MOST: u64 = 8;
    let first = offset / BLOCK;
    let last = ((offset + length - 1) / BLOCK).min(first + MOST);
    (first..=last).for_each(&mut f);
}
