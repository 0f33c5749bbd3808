//! What memory keeps of where names and blocks are, to spare looks at the medium: most of the time of a call on a name
//! goes into reading a leaf, and much of that of a small read into reading a map node.
//!
//! It belongs to an inode in memory, goes with it, and changes under its lock. All of a volume takes at most a
//! [`Budget`]. Whoever changes leaves or maps by other ways than `dir.rs` and [`Core::reload`](super::Core) must clear
//! it.

use std::sync::Arc;

use sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering};

use crate::by_number::ByNumber;
use crate::format::Lba;
use crate::format::dir::SLOTS;

/// Bytes that may be taken yet.
pub struct Budget(AtomicUsize);

impl Budget {
    pub fn new(bytes: usize) -> Arc<Budget> {
        Arc::new(Budget(AtomicUsize::new(bytes)))
    }

    fn take(&self, bytes: usize) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The print of a slot without an entry, of the further slots of an entry, and of one that is kept for an entry to
/// come.
pub const FREE: u8 = 0;
pub const MORE: u8 = 1;
pub const KEPT: u8 = 2;
/// What a leaf takes in memory, about.
const LEAF_BYTES: usize = 128;

/// The print of an entry, by the hash of its name. Leaves are told apart by the first bits of hashes, prints by the
/// last.
pub fn print(hash: u64) -> u8 {
    (hash as u8).max(KEPT + 1)
}

/// A leaf in short.
#[derive(Clone, Copy)]
pub struct KnownLeaf {
    pub lba: Lba,
    /// One for each slot.
    pub prints: [u8; SLOTS],
}

/// Leaves of a directory, by number.
pub struct Leaves {
    budget: Arc<Budget>,
    known: Mutex<ByNumber<KnownLeaf>>,
}

impl Leaves {
    pub fn new(budget: Arc<Budget>) -> Leaves {
        Leaves { budget, known: Mutex::default() }
    }

    pub fn get(&self, number: u64) -> Option<KnownLeaf> {
        self.known.lock().unwrap().get(&number).copied()
    }

    /// Adds a leaf. Where there is no room for it, all others of the directory go.
    pub fn add(&self, number: u64, leaf: KnownLeaf) {
        let mut known = self.known.lock().unwrap();
        if !known.contains_key(&number) && !self.budget.take(LEAF_BYTES) {
            let count = known.len();
            *known = ByNumber::default();
            self.budget.give(count * LEAF_BYTES);
            if !self.budget.take(LEAF_BYTES) {
                return;
            }
        }
        known.insert(number, leaf);
    }

    /// Enters or removes an entry of so many slots.
    pub fn set(&self, number: u64, slot: usize, count: usize, print: u8) {
        if let Some(leaf) = self.known.lock().unwrap().get_mut(&number) {
            leaf.prints[slot..slot + count].fill(if print == FREE { FREE } else { MORE });
            leaf.prints[slot] = print;
        }
    }

    /// A leaf that goes or is another one from here on.
    pub fn forget(&self, number: u64) {
        if self.known.lock().unwrap().remove(&number).is_some() {
            self.budget.give(LEAF_BYTES);
        }
    }
}

impl Drop for Leaves {
    fn drop(&mut self) {
        self.budget.give(self.known.get_mut().unwrap().len() * LEAF_BYTES);
    }
}

/// Blocks of a piece.
pub const PIECE: u64 = 64;
/// A piece that is not consecutive, and one of which nothing is known.
const SCATTERED: u64 = 1;
const UNKNOWN: u64 = 0;
/// So many looks at a map that does not change are made before pieces are kept.
const LOOKS: u32 = 64;
/// The most pieces of a file that are kept: those of its first 16 GiB.
const MOST_PIECES: u64 = 1 << 16;

/// Where pieces of a file are that have consecutive blocks with content.
#[derive(Default)]
pub struct Pieces {
    looks: AtomicU32,
    starts: OnceLock<Option<Starts>>,
}

struct Starts {
    budget: Arc<Budget>,
    starts: Box<[AtomicU64]>,
}

impl Starts {
    fn new(budget: &Arc<Budget>, blocks: u64) -> Option<Starts> {
        let count = blocks.div_ceil(PIECE).min(MOST_PIECES) as usize;
        let taken = budget.take(count * size_of::<AtomicU64>());
        taken.then(|| Starts { budget: budget.clone(), starts: (0..count).map(|_| AtomicU64::new(UNKNOWN)).collect() })
    }
}

impl Drop for Starts {
    fn drop(&mut self) {
        self.budget.give(self.starts.len() * size_of::<AtomicU64>());
    }
}

impl Pieces {
    /// Where the `count` blocks from `block` on are, if that is known and they are in one piece.
    #[inline]
    pub fn get(&self, block: u64, count: u64) -> Option<Lba> {
        let starts = self.starts.get()?.as_ref()?;
        let start = starts.starts.get((block / PIECE) as usize)?.load(Ordering::Relaxed);
        let within = block % PIECE;
        (start > SCATTERED && within + count <= PIECE).then_some(Lba(start + within))
    }

    /// After a look at the map of a file of `blocks` blocks: if it is time to keep the piece of `block`, `find` is
    /// asked where it begins; `None`: it is scattered.
    pub fn looked(&self, budget: &Arc<Budget>, block: u64, blocks: u64, find: impl FnOnce(u64) -> Option<Lba>) {
        if self.looks.load(Ordering::Relaxed) < LOOKS {
            self.looks.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(starts) = self.starts.get_or_init(|| Starts::new(budget, blocks)) else { return };
        let Some(start) = starts.starts.get((block / PIECE) as usize) else { return };
        if start.load(Ordering::Relaxed) == UNKNOWN {
            let found = find(block / PIECE * PIECE);
            start.store(found.map_or(SCATTERED, |lba| lba.0), Ordering::Relaxed);
        }
    }

    /// The map has changed.
    pub fn clear(&mut self) {
        *self = Pieces::default();
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pieces").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(budget: &Budget) -> usize {
        budget.0.load(Ordering::Relaxed)
    }

    /// Memory is bounded, and given back.
    #[test]
    fn the_budget_holds() {
        let budget = Budget::new(3 * LEAF_BYTES);
        let (one, other) = (Leaves::new(budget.clone()), Leaves::new(budget.clone()));
        let leaf = KnownLeaf { lba: Lba(7), prints: [FREE; SLOTS] };
        for number in 1..=3 {
            one.add(number, leaf);
            one.add(number, leaf);
        }
        assert_eq!(left(&budget), 0);
        other.add(1, leaf);
        assert!(other.get(1).is_none(), "there is no room, and it has nothing to give up");
        one.add(4, leaf);
        assert!(one.get(4).is_some() && one.get(1).is_none(), "others of the same directory go");
        one.forget(4);
        one.forget(4);
        assert_eq!(left(&budget), 3 * LEAF_BYTES);
        other.add(1, leaf);
        drop((one, other));
        assert_eq!(left(&budget), 3 * LEAF_BYTES);

        let mut pieces = Pieces::default();
        (0..2 * LOOKS).for_each(|_| pieces.looked(&budget, 0, 1000, |_| Some(Lba(100))));
        assert_eq!((pieces.get(3, 61), pieces.get(3, 62)), (Some(Lba(103)), None));
        assert!(left(&budget) < 3 * LEAF_BYTES);
        pieces.clear();
        assert_eq!((pieces.get(3, 1), left(&budget)), (None, 3 * LEAF_BYTES));
        (0..2 * LOOKS).for_each(|_| pieces.looked(&budget, 0, u64::MAX / 2, |_| Some(Lba(100))));
        assert_eq!(pieces.get(0, 1), None, "there is no room");
    }
}
