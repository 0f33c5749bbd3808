//! What memory keeps of where names and blocks are, to spare looks at the medium: most of the time of a call on a name
//! goes into reading a leaf, and much of that of a small read into reading a map node.
//!
//! It belongs to an inode in memory, goes with it, and changes under its lock. All of a volume takes at most a
//! [`Budget`]. Whoever changes leaves or maps by other ways than `dir.rs` and [`Core::reload`](super::Core) must clear
//! it.

use std::sync::Arc;

use sync::{AtomicU32, AtomicU64, AtomicUsize, Mutex, OnceLock, Ordering};

use crate::format::Lba;
use crate::format::by_number::ByNumber;
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
/// A piece of which nothing is known, and one whose blocks are known one by one.
const UNKNOWN: u64 = 0;
const SCATTERED: u64 = 1;
/// So many looks at a map that does not change are made before pieces are kept.
const LOOKS: u32 = 64;
/// The most pieces of a file that are kept: those of its first 16 GiB.
const MOST_PIECES: u64 = 1 << 16;

/// Where blocks of a file are that have content.
#[derive(Default)]
pub struct Pieces {
    looks: AtomicU32,
    kept: OnceLock<Option<Kept>>,
}

struct Kept {
    budget: Arc<Budget>,
    pieces: Box<[Piece]>,
}

/// Where the blocks of one piece are.
#[derive(Default)]
struct Piece {
    /// Where the first block is, if all have content and are consecutive.
    start: AtomicU64,
    /// Where each is, if they are not; [`UNKNOWN`] too where there is none.
    each: OnceLock<Option<Box<Each>>>,
}

type Each = [AtomicU64; PIECE as usize];

impl Piece {
    /// The words of its blocks, made from a function of their places in it if there are none.
    fn scatter(&self, budget: &Budget, word: impl Fn(u64) -> u64) -> Option<&Each> {
        let make = || {
            let taken = budget.take(size_of::<Each>());
            taken.then(|| Box::new(std::array::from_fn(|i| AtomicU64::new(word(i as u64)))))
        };
        let each = self.each.get_or_init(make).as_deref();
        self.start.store(SCATTERED, Ordering::Relaxed);
        each
    }

    /// Where a block is, and for how many blocks of the piece it goes on at least.
    #[inline]
    fn get(&self, within: u64) -> (u64, u64) {
        match self.start.load(Ordering::Relaxed) {
            UNKNOWN => (UNKNOWN, 0),
            SCATTERED => {
                let each = self.each.get().and_then(Option::as_deref);
                (each.map_or(UNKNOWN, |each| each[within as usize].load(Ordering::Relaxed)), 1)
            }
            start => (start + within, PIECE - within),
        }
    }
}

impl Kept {
    fn new(budget: &Arc<Budget>, blocks: u64) -> Option<Kept> {
        let count = blocks.div_ceil(PIECE).min(MOST_PIECES) as usize;
        let taken = budget.take(count * size_of::<Piece>());
        taken.then(|| Kept { budget: budget.clone(), pieces: (0..count).map(|_| Piece::default()).collect() })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let scattered = self.pieces.iter().filter(|piece| matches!(piece.each.get(), Some(Some(_)))).count();
        self.budget.give(self.pieces.len() * size_of::<Piece>() + scattered * size_of::<Each>());
    }
}

impl Pieces {
    /// Where a block is, and how many of the `most` blocks from it on are consecutive, if that is known.
    #[inline]
    pub fn get(&self, block: u64, most: u64) -> Option<(Lba, u64)> {
        let pieces = &self.kept.get()?.as_ref()?.pieces;
        let at = |block: u64| {
            let found = pieces.get((block / PIECE) as usize)?.get(block % PIECE);
            Some(found).filter(|(lba, _)| *lba != UNKNOWN)
        };
        let (first, mut count) = at(block)?;
        while count < most {
            match at(block + count)? {
                (next, more) if next == first + count => count += more,
                _ => break,
            }
        }
        Some((Lba(first), count.min(most)))
    }

    /// A look at the map of a file of `blocks` blocks has found consecutive blocks with content: `block` and the ones
    /// behind it. If it is time to keep its piece, `find` is asked where that begins; `None`: it is scattered.
    pub fn looked(
        &self,
        budget: &Arc<Budget>,
        (block, count): (u64, u64),
        lba: Lba,
        blocks: u64,
        find: impl FnOnce(u64) -> Option<Lba>,
    ) {
        if self.looks.load(Ordering::Relaxed) < LOOKS {
            self.looks.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Some(kept) = self.kept.get_or_init(|| Kept::new(budget, blocks)) else { return };
        let Some(piece) = kept.pieces.get((block / PIECE) as usize) else { return };
        match piece.start.load(Ordering::Relaxed) {
            SCATTERED => {}
            UNKNOWN => {
                if let Some(start) = find(block / PIECE * PIECE) {
                    return piece.start.store(start.0, Ordering::Relaxed);
                }
            }
            // Another thread has looked.
            _ => return,
        }
        let Some(each) = piece.scatter(budget, |_| UNKNOWN) else { return };
        let within = block % PIECE;
        let words = each[within as usize..].iter().take(count as usize);
        words.zip(lba.0..).for_each(|(word, lba)| word.store(lba, Ordering::Relaxed));
    }

    /// A block is elsewhere now.
    pub fn moved(&mut self, block: u64, to: Lba) {
        let Some(Some(kept)) = self.kept.get() else { return };
        let Some(piece) = kept.pieces.get((block / PIECE) as usize) else { return };
        if piece.start.load(Ordering::Relaxed) == UNKNOWN {
            return;
        }
        let words = std::array::from_fn::<u64, { PIECE as usize }, _>(|i| piece.get(i as u64).0);
        if let Some(each) = piece.scatter(&kept.budget, |i| words[i as usize]) {
            each[(block % PIECE) as usize].store(to.0, Ordering::Relaxed);
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

        // Room for the pieces of a file, and for none that is scattered: words are larger where a scheduler has them.
        let room = 1000_u64.div_ceil(PIECE) as usize * size_of::<Piece>();
        let (budget, mut pieces) = (Budget::new(room), Pieces::default());
        let looked = |pieces: &Pieces, blocks| {
            (0..2 * LOOKS).for_each(|_| pieces.looked(&budget, (0, 1), Lba(100), blocks, |_| Some(Lba(100))));
        };
        looked(&pieces, 1000);
        assert_eq!((pieces.get(3, 61), pieces.get(3, 62)), (Some((Lba(103), 61)), None));
        assert_eq!(left(&budget), 0);
        pieces.moved(5, Lba(7));
        assert_eq!(pieces.get(5, 1), None, "there is no room for a scattered piece");
        pieces.clear();
        assert_eq!((pieces.get(3, 1), left(&budget)), (None, room));
        looked(&pieces, u64::MAX / 2);
        assert_eq!(pieces.get(0, 1), None, "there is no room");
    }

    /// Pieces tell what the map has told them, wherever blocks are, and after blocks have moved.
    #[test]
    fn pieces_know_where_blocks_are() {
        let (budget, mut pieces) = (Budget::new(1 << 20), Pieces::default());
        // The second piece is scattered: its blocks are in runs of eight.
        let mut map: Vec<u64> = (0..PIECE).map(|i| 1000 + i).collect();
        map.extend((0..PIECE).map(|i| 2000 + i + i / 8 * 100));
        map.extend((0..PIECE).map(|i| 5000 + i));
        let run = |map: &[u64], block: usize| {
            let next = |count: &usize| map.get(block + count) == Some(&(map[block] + *count as u64));
            (1..).take_while(next).count() as u64 + 1
        };
        let mut random = wholly_sim::Random(3);
        for round in 0..4000 {
            let (block, most) = (random.below(3 * PIECE), 1 + random.below(80));
            let (lba, count) = (Lba(map[block as usize]), run(&map, block as usize).min(most));
            match pieces.get(block, most) {
                Some(known) => assert_eq!(known, (lba, count)),
                None => pieces.looked(&budget, (block, count), lba, 3 * PIECE, |first| {
                    (run(&map, first as usize) >= PIECE).then_some(Lba(map[first as usize]))
                }),
            }
            if round % 100 == 99 {
                let (moved, to) = (random.below(3 * PIECE), 10_000 + random.below(1000));
                pieces.moved(moved, Lba(to));
                map[moved as usize] = to;
            }
        }
        assert!((0..3 * PIECE).all(|block| pieces.get(block, 1) == Some((Lba(map[block as usize]), 1))));
        drop(pieces);
        assert_eq!(left(&budget), 1 << 20);
    }
}
