//! The index of a volume: from a block's number to its slot, where blocks with versions may be far from each other.
//!
//! In the tree of a file a block that is alone has a leaf of 64 slots for itself, and farther from others nodes of 64
//! pointers, too. Here a *place* stands for a range of blocks. It has slots for the first four blocks of the range that
//! get versions. Only the fifth makes a node: eight smaller places, or 64 slots for the 64 blocks of the smallest one.
//!
//! The largest places have 4096 blocks. They are the leaves of a [`Radix`] tree.
//!
//! # Memory
//!
//! With the places and nodes around it, a slot takes 9 bytes where blocks with versions are neighbours, and 120 at most
//! wherever they are. Each GiB of the volume with such a block takes 4 KiB more, each 64 GiB 1.5 KiB.
//!
//! # Invariants
//!
//! 1. The tags of a place say which blocks have its slots. They are set in order, and never change. If all of them are
//!    set for others, a block has its slot below, for all that look for it: so it has one. Tags order nothing else:
//!    slots are made with their place, and the node below is found by its pointer.
//! 2. As in all of the index, slots stay where they are, and nodes are only added: finding a slot takes no lock.

use super::radix::Radix;
use super::slot::Slot;
use sync::{AtomicU64, OnceLock, Ordering};

/// Blocks of a range that have slots of the place itself.
const ALONE: u32 = 4;
/// Bits of a tag.
const TAG: u32 = u64::BITS / ALONE;
/// A tag of 1 for each.
const ONES: u64 = u64::MAX / ((1 << TAG) - 1);

/// Slots of `1 << BITS` blocks. Of a block's number only the lowest bits count.
trait Slots {
    const BITS: u32;

    fn empty() -> Box<Self>;

    fn get(&self, block: u64) -> Option<&Slot>;

    fn get_or_make(&self, block: u64, memory: &AtomicU64) -> &Slot;

    /// `first`: the number of the first block.
    fn for_each<'a>(&'a self, first: u64, f: &mut dyn FnMut(u64, &'a Slot));
}

impl Slots for [Slot; 64] {
    const BITS: u32 = 6;

    fn empty() -> Box<Self> {
        Box::new(std::array::from_fn(|_| Slot::new()))
    }

    #[inline]
    fn get(&self, block: u64) -> Option<&Slot> {
        Some(&self[block as usize % 64])
    }

    fn get_or_make(&self, block: u64, _memory: &AtomicU64) -> &Slot {
        &self[block as usize % 64]
    }

    fn for_each<'a>(&'a self, first: u64, f: &mut dyn FnMut(u64, &'a Slot)) {
        self.iter().zip(first..).for_each(|(slot, block)| f(block, slot));
    }
}

impl<S: Slots> Slots for [Place<S>; 8] {
    const BITS: u32 = S::BITS + 3;

    fn empty() -> Box<Self> {
        Box::new(std::array::from_fn(|_| Place::default()))
    }

    #[inline]
    fn get(&self, block: u64) -> Option<&Slot> {
        self[(block >> S::BITS) as usize % 8].get(block)
    }

    fn get_or_make(&self, block: u64, memory: &AtomicU64) -> &Slot {
        self[(block >> S::BITS) as usize % 8].get_or_make(block, memory)
    }

    fn for_each<'a>(&'a self, first: u64, f: &mut dyn FnMut(u64, &'a Slot)) {
        self.iter().zip(0..).for_each(|(place, i)| place.for_each(first + (i << S::BITS), f));
    }
}

/// A cache line, so that finding a slot reads one for each place on the way.
#[repr(align(64))]
struct Place<S> {
    /// For each of `alone`: the number of its block in the range, and 1; 0 if it has none yet. The first in the lowest
    /// bits.
    tags: AtomicU64,
    more: OnceLock<Box<S>>,
    alone: [Slot; ALONE as usize],
}

impl<S> Default for Place<S> {
    fn default() -> Self {
        let alone = std::array::from_fn(|_| Slot::new());
        Place { tags: AtomicU64::new(0), more: OnceLock::new(), alone }
    }
}

/// Which of some tags is this one.
#[inline]
fn position(tags: u64, tag: u64) -> Option<usize> {
    let differ = tags ^ (tag * ONES);
    // The lowest tag that is 0 borrows from its highest bit.
    let equal = differ.wrapping_sub(ONES) & !differ & (ONES << (TAG - 1));
    (equal != 0).then_some((equal.trailing_zeros() / TAG) as usize)
}

/// How many tags are set.
#[inline]
fn count(tags: u64) -> u32 {
    ALONE - tags.leading_zeros() / TAG
}

impl<S: Slots> Place<S> {
    #[inline]
    fn tag(block: u64) -> u64 {
        const { assert!(S::BITS < TAG - 1) };
        (block & ((1 << S::BITS) - 1)) + 1
    }

    #[inline]
    fn get(&self, block: u64) -> Option<&Slot> {
        let tags = self.tags.load(Ordering::Relaxed);
        match position(tags, Self::tag(block)) {
            Some(i) => Some(&self.alone[i]),
            None if count(tags) < ALONE => None,
            None => self.more.get()?.get(block),
        }
    }

    fn get_or_make(&self, block: u64, memory: &AtomicU64) -> &Slot {
        let (tag, mut tags) = (Self::tag(block), self.tags.load(Ordering::Relaxed));
        loop {
            if let Some(i) = position(tags, tag) {
                return &self.alone[i];
            }
            let set = count(tags);
            if set == ALONE {
                break;
            }
            let more = tags | tag << (set * TAG);
            match self.tags.compare_exchange(tags, more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return &self.alone[set as usize],
                Err(now) => tags = now,
            }
        }
        let make = || {
            memory.fetch_add(size_of::<S>() as u64, Ordering::Relaxed);
            S::empty()
        };
        self.more.get_or_init(make).get_or_make(block, memory)
    }

    fn for_each<'a>(&'a self, first: u64, f: &mut dyn FnMut(u64, &'a Slot)) {
        let tags = self.tags.load(Ordering::Relaxed);
        for (slot, i) in self.alone.iter().zip(0..count(tags)) {
            f(first + (tags >> (i * TAG) & ((1 << TAG) - 1)) - 1, slot);
        }
        if let Some(more) = self.more.get() {
            more.for_each(first, f);
        }
    }
}

type Smallest = Place<[Slot; 64]>;
/// Of the largest places.
type Whole = [Place<[Smallest; 8]>; 8];
const BITS: u32 = <Whole as Slots>::BITS;

/// See the module.
#[derive(Default)]
pub struct SparseIndex {
    places: Radix<Place<Whole>>,
    memory: AtomicU64,
}

impl SparseIndex {
    /// The slot of `block`, if it ever had a version.
    #[inline]
    pub fn get(&self, block: u64) -> Option<&Slot> {
        self.places.get(block >> BITS)?.get(block)
    }

    /// The slot of `block`; nodes on the way are made.
    #[inline]
    pub fn get_or_make(&self, block: u64) -> &Slot {
        match self.get(block) {
            Some(slot) => slot,
            None => self.make(block),
        }
    }

    #[cold]
    fn make(&self, block: u64) -> &Slot {
        self.places.get_or_make(block >> BITS).get_or_make(block, &self.memory)
    }

    /// Calls `f` for every slot of a block from `first` on that exists, in no order. Some blocks have two: that which
    /// [`get`](Self::get) does not find is empty.
    pub fn for_each_from<'a>(&'a self, first: u64, f: &mut dyn FnMut(u64, &'a Slot)) {
        let mut from_first = |block, slot| {
            if block >= first {
                f(block, slot);
            }
        };
        self.places.for_each_from(first >> BITS, &mut |i, place| place.for_each(i << BITS, &mut from_first));
    }

    /// Bytes of memory that places and nodes take.
    pub fn memory_bytes(&self) -> u64 {
        self.places.memory_bytes() + self.memory.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::BLOCK;

    proptest! {
        #[test]
        fn every_block_has_its_own_slot_and_is_visited_once(
            blocks in proptest::collection::vec((0u64..40, 0u32..40), 1..200),
            first in 0u64..1 << 20,
        ) {
            let (index, mut slots) = (SparseIndex::default(), BTreeMap::new());
            for block in blocks.into_iter().map(|(block, by)| block << by) {
                if !slots.contains_key(&block) {
                    prop_assert!(index.get(block).is_none_or(|slot| slots.values().all(|other| !std::ptr::eq(slot, *other))));
                }
                let slot: *const Slot = index.get_or_make(block);
                prop_assert!(slots.insert(block, slot).is_none_or(|before| before == slot));
                prop_assert!(slots.iter().all(|(block, slot)| std::ptr::eq(index.get(*block).unwrap(), *slot)));
            }
            prop_assert_eq!(slots.values().collect::<BTreeSet<_>>().len(), slots.len());
            // A leaf has slots that no block has, too.
            let (mut seen, mut found, mut twice) = (BTreeSet::new(), BTreeSet::new(), false);
            index.for_each_from(first, &mut |block, slot| {
                twice |= !seen.insert(slot as *const Slot);
                if index.get(block).is_some_and(|other| std::ptr::eq(slot, other)) {
                    twice |= !found.insert(block);
                }
            });
            prop_assert!(!twice && found.iter().all(|block| *block >= first));
            prop_assert!(slots.range(first..).all(|(block, _)| found.contains(block)));
        }
    }

    /// Bytes of memory for each byte of blocks that have a version, in hundredths of a percent, with the version.
    fn share(blocks: impl Iterator<Item = u64>) -> u64 {
        let (index, mut count) = (SparseIndex::default(), 0);
        for block in blocks {
            index.get_or_make(block);
            count += 1;
        }
        // The arena has a 32nd more than it uses.
        (index.memory_bytes() + 33 * count) * 10_000 / (count * BLOCK)
    }

    #[test]
    fn a_block_that_is_alone_takes_little() {
        // By their distance, from a leaf of the other tree on up to what a whole tree of places has.
        let apart: Vec<u64> = (64..=4096).step_by(7).map(|by| share((0..5000).map(|i| i * by))).collect();
        let most = apart.iter().max().unwrap();
        // At random: one of so many.
        let mut state = 7u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let at_random: Vec<u64> = [16, 32, 64, 100, 200, 400, 800, 1600, 3200]
            .map(|of| {
                let blocks: BTreeSet<u64> = (0..5000).map(|_| below(5000 * of)).collect();
                share(blocks.into_iter())
            })
            .into();
        let together = share(0..100_000);
        println!("apart: {} to {most}; at random: {at_random:?}; together: {together}", apart.iter().min().unwrap());
        assert!(*most <= 400 && at_random.iter().all(|share| *share <= 400) && together <= 150);
    }
}
