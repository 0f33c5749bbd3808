//! The radix tree of one file: from a block's number to its slot. A [`SparseIndex`](super::SparseIndex) has such a tree
//! with something else in its leaves.
//!
//! Blocks below 64 stand in the tree of depth 0, blocks below 64² in that of depth 1, and so on: the number itself
//! tells the depth, no unused upper level is walked, and a growing file only adds a tree. Nodes are set once and live
//! as long as the index.

use std::ops::Range;

use super::slot::Slot;
use sync::{AtomicU64, OnceLock, Ordering};

const BITS: u32 = 6;
const FANOUT: usize = 1 << BITS;
/// 64^9 blocks are more than a file can have.
const DEPTHS: usize = 9;

enum Node<T> {
    Leaf(Box<[T; FANOUT]>),
    Inner(Box<[OnceLock<Node<T>>; FANOUT]>),
}

impl<T: Default> Node<T> {
    fn new(depth: usize, memory: &AtomicU64) -> Self {
        if depth == 0 {
            memory.fetch_add(size_of::<[T; FANOUT]>() as u64, Ordering::Relaxed);
            Node::Leaf(Box::new(std::array::from_fn(|_| T::default())))
        } else {
            memory.fetch_add(size_of::<[OnceLock<Node<T>>; FANOUT]>() as u64, Ordering::Relaxed);
            Node::Inner(Box::new(std::array::from_fn(|_| OnceLock::new())))
        }
    }
}

/// The slots of one file's blocks.
pub type FileIndex = Radix<Slot>;

/// What belongs to numbers: to those of a file's blocks their slots.
#[derive(Default)]
pub struct Radix<T> {
    /// Of the first numbers: most files have no others.
    first: OnceLock<Node<T>>,
    /// The roots of the other depths.
    more: OnceLock<Box<[OnceLock<Node<T>>; DEPTHS - 1]>>,
    memory: AtomicU64,
}

#[inline]
fn depth_of(block: u64) -> usize {
    if block == 0 { 0 } else { (block.ilog2() / BITS) as usize }
}

#[inline]
fn digit(block: u64, depth: usize) -> usize {
    (block >> (BITS * depth as u32)) as usize % FANOUT
}

impl<T: Default> Radix<T> {
    #[inline]
    fn root(&self, depth: usize) -> Option<&Node<T>> {
        match depth {
            0 => self.first.get(),
            _ => self.more.get()?[depth - 1].get(),
        }
    }

    /// The slot of `block`, if it ever had a version.
    #[inline]
    pub fn get(&self, block: u64) -> Option<&T> {
        let mut depth = depth_of(block);
        let mut node = self.root(depth)?;
        loop {
            match node {
                Node::Leaf(slots) => return Some(&slots[digit(block, 0)]),
                Node::Inner(children) => {
                    node = children[digit(block, depth)].get()?;
                    depth -= 1;
                }
            }
        }
    }

    /// The slot of `block`; nodes on the way are made.
    #[inline]
    pub fn get_or_make(&self, block: u64) -> &T {
        match self.get(block) {
            Some(slot) => slot,
            None => self.make(block),
        }
    }

    #[cold]
    fn make(&self, block: u64) -> &T {
        let mut depth = depth_of(block);
        let root = match depth {
            0 => &self.first,
            _ => &self.more.get_or_init(|| Box::new(std::array::from_fn(|_| OnceLock::new())))[depth - 1],
        };
        let mut node = root.get_or_init(|| Node::new(depth, &self.memory));
        loop {
            match node {
                Node::Leaf(slots) => return &slots[digit(block, 0)],
                Node::Inner(children) => {
                    let child = &children[digit(block, depth)];
                    depth -= 1;
                    node = child.get_or_init(|| Node::new(depth, &self.memory));
                }
            }
        }
    }

    /// Calls `f` for every slot of a block from `first` on that exists, in order.
    pub fn for_each_from<'a>(&'a self, first: u64, f: &mut dyn FnMut(u64, &'a T)) {
        self.for_each_in(first..u64::MAX, f);
    }

    /// Calls `f` for every slot of some blocks that exists, in order: it costs as many nodes as there are, however many
    /// blocks that are.
    pub fn for_each_in<'a>(&'a self, blocks: Range<u64>, f: &mut dyn FnMut(u64, &'a T)) {
        let mut all = |block, slot| {
            f(block, slot);
            false
        };
        for depth in 0..DEPTHS {
            if let Some(root) = self.root(depth) {
                visit(root, depth, 0, &blocks, &mut all);
            }
        }
    }

    /// The first block from `first` on whose slot exists and is one that is `wanted`.
    pub fn first_from(&self, first: u64, wanted: &dyn Fn(&T) -> bool) -> Option<u64> {
        let mut found = None;
        let mut is_found = |block, slot: &T| {
            found = wanted(slot).then_some(block);
            found.is_some()
        };
        for depth in 0..DEPTHS {
            if let Some(root) = self.root(depth)
                && visit(root, depth, 0, &(first..u64::MAX), &mut is_found)
            {
                break;
            }
        }
        found
    }

    /// Bytes of memory that the nodes take.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }
}

/// Whether `f` has said of a slot that this was the last.
fn visit<'a, T>(
    node: &'a Node<T>,
    depth: usize,
    base: u64,
    blocks: &Range<u64>,
    f: &mut dyn FnMut(u64, &'a T) -> bool,
) -> bool {
    let width = 1u64 << (BITS * depth as u32);
    (0..FANOUT).any(|i| {
        let block = base + i as u64 * width;
        if block + (width - 1) < blocks.start || block >= blocks.end {
            return false;
        }
        match node {
            Node::Leaf(slots) => f(block, &slots[i]),
            Node::Inner(children) => children[i].get().is_some_and(|child| visit(child, depth - 1, block, blocks, f)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_its_own_slot_and_is_visited_in_order() {
        let index = FileIndex::default();
        let blocks = [0, 1, 63, 64, 65, 4095, 4096, 262_143, 262_144, 1 << 40, (1 << 51) - 1];
        for &block in &blocks {
            assert!(index.get(block).is_none_or(|slot| slot.is_empty()));
            let slot: *const Slot = index.get_or_make(block);
            assert!(std::ptr::eq(slot, index.get(block).unwrap()));
        }
        let mut slots: Vec<*const Slot> =
            blocks.iter().map(|&block| index.get(block).unwrap() as *const Slot).collect();
        slots.sort();
        slots.dedup();
        assert_eq!(slots.len(), blocks.len());

        let mut seen = Vec::new();
        index.for_each_from(65, &mut |block, _| seen.push(block));
        assert!(seen.is_sorted());
        assert_eq!(seen[0], 65);
        for block in blocks.iter().filter(|&&block| block >= 65) {
            assert!(seen.contains(block));
        }
        let mut within = Vec::new();
        index.for_each_in(65..262_144, &mut |block, _| within.push(block));
        seen.retain(|block| *block < 262_144);
        assert_eq!(within, seen);

        let wanted = |first: u64, wanted: u64| {
            let slot: *const Slot = index.get(wanted).unwrap();
            index.first_from(first, &|other| std::ptr::eq(slot, other))
        };
        assert_eq!([wanted(0, 64), wanted(64, 64), wanted(65, 64)], [Some(64), Some(64), None]);
        assert_eq!(wanted(0, 1 << 40), Some(1 << 40));
    }
}
