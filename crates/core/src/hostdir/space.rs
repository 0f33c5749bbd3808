//! What calls want of the space of a file's blocks, until it is so at home: which blocks read as zeros whatever home
//! has, and which are to have space.
//!
//! # Terms
//!
//! - *wish*: that a range of whole blocks be *zeroed*, be *reserved*, or both. A range that is zeroed and not reserved
//!   becomes a hole.
//! - *due*: a wish of groups below a pass's target.
//!
//! # Invariants
//!
//! 1. Home bytes of a block that is to be zeroed do not count: they read as zero. That ends only right after the pass
//!    has made them zeros.
//! 2. A pass makes wishes come true before it writes bytes of the same groups, or of later ones.
//! 3. A version at [`HOLE`](super::memory::HOLE) stands only above blocks whose home bytes are zeros, or do not count:
//!    it needs not go home.
//! 4. A file with wishes is in the list of dirty ones, in a lot, or in the hands of a pass, as one whose size has
//!    changed.
//! 5. A wish is one entry, however long its range is; beyond that a call costs a version of each block of the range
//!    that has some.

use std::collections::BTreeMap;
use std::ops::Range;
use wholly_changes::records::LARGEST_FILE;
use wholly_vfs::Fallocate;

use index::BLOCK;
use sync::{AtomicU64, Mutex, Ordering};

/// The first byte of the last block of the largest file.
const LAST_BLOCK: u64 = LARGEST_FILE - BLOCK;

/// In the place of a stamp: it is not wished.
const NOT: u64 = 0;

/// What is wished of blocks: the sequences of the groups that did. Who zeroes says also whether there is to be space;
/// so it is reserved by the same group, by a later one, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    zeroed: u64,
    reserved: u64,
}

impl Wish {
    /// Whether blocks read as zeros.
    pub fn zeroes(self) -> bool {
        self.zeroed != NOT
    }

    /// Whether blocks are to have space.
    pub fn reserves(self) -> bool {
        self.reserved != NOT
    }

    fn is_due(self, target: u64) -> bool {
        (self.zeroes() && self.zeroed < target) || (self.reserves() && self.reserved < target)
    }

    /// What the host is asked for, where it is due.
    fn at_home(self, target: u64) -> Fallocate {
        match (self.zeroes() && self.zeroed < target, self.reserves()) {
            (true, true) => Fallocate::Zero,
            (true, false) => Fallocate::Punch,
            (false, _) => Fallocate::Keep,
        }
    }
}

/// Wishes by ranges of blocks, which do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    /// By the first block: the one behind the last, and what is wished.
    ranges: BTreeMap<u64, (u64, Wish)>,
}

impl Wishes {
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// All of them that touch `blocks`, cut to that range, in order.
    pub fn in_range(&self, blocks: Range<u64>) -> impl Iterator<Item = (Range<u64>, Wish)> {
        let before = self.ranges.range(..blocks.start).next_back();
        let inside = self.ranges.range(blocks.start..blocks.end.max(blocks.start));
        before.into_iter().chain(inside).filter_map(move |(first, (end, wish))| {
            let part = *first.max(&blocks.start)..*end.min(&blocks.end);
            (part.start < part.end).then_some((part, *wish))
        })
    }

    /// How many blocks from `block` on are to have space.
    pub fn reserved_from(&self, block: u64) -> u64 {
        let reserved = self.in_range(block..u64::MAX).filter(|(_, wish)| wish.reserves());
        reserved.map(|(blocks, _)| blocks.end - blocks.start).sum()
    }

    /// The first block at or behind `block` that is zeroed, and where that ends.
    pub fn next_zeroed(&self, block: u64) -> Option<Range<u64>> {
        self.in_range(block..u64::MAX).find(|(_, wish)| wish.zeroes()).map(|(blocks, _)| blocks)
    }

    /// Makes zeros of those bytes from `offset` of the file on which are zeroed.
    pub fn zero_bytes(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        for (blocks, _) in self.in_range(offset / BLOCK..end.div_ceil(BLOCK)).filter(|(_, wish)| wish.zeroes()) {
            let (from, to) = ((blocks.start * BLOCK).max(offset), (blocks.end * BLOCK).min(end));
            buf[(from - offset) as usize..(to - offset) as usize].fill(0);
        }
    }

    /// A group with this sequence wishes that blocks be zeroed, and have no space unless somebody reserves it from now
    /// on.
    pub fn zero(&mut self, blocks: Range<u64>, sequence: u64) {
        self.change(blocks, |_| Wish { zeroed: sequence, reserved: NOT });
    }

    /// A group with this sequence wishes that blocks have space.
    pub fn reserve(&mut self, blocks: Range<u64>, sequence: u64) {
        self.change(blocks, |old| Wish { reserved: sequence, ..old });
    }

    /// The same wishes, by a group with this sequence, behind those that there are.
    pub fn take_in(&mut self, wishes: &Wishes, sequence: u64) {
        for (blocks, wish) in wishes.in_range(0..u64::MAX) {
            if wish.zeroes() {
                self.zero(blocks.clone(), sequence);
            }
            if wish.reserves() {
                self.reserve(blocks, sequence);
            }
        }
    }

    /// The file is cut to `block` blocks: what was wished of others is forgotten.
    pub fn cut(&mut self, block: u64) {
        self.change(block..u64::MAX, |_| Wish::default());
    }

    /// What is due has become so.
    pub fn done(&mut self, blocks: Range<u64>, target: u64) {
        let still = |stamp: u64| if stamp < target { NOT } else { stamp };
        self.change(blocks, |old| Wish { zeroed: still(old.zeroed), reserved: still(old.reserved) });
    }

    /// All of them, in order: the bytes, and the call by which they are wished again.
    pub fn as_calls(&self) -> impl Iterator<Item = (Range<u64>, Fallocate)> {
        self.in_range(0..u64::MAX).map(|(blocks, wish)| {
            let how = match (wish.zeroes(), wish.reserves()) {
                (true, true) => Fallocate::Zero,
                (true, false) => Fallocate::Punch,
                (false, _) => Fallocate::Keep,
            };
            (blocks.start * BLOCK..blocks.end.saturating_mul(BLOCK), how)
        })
    }

    /// What is due, in order, and what the host is to be asked for: ranges that touch each other are one, whoever
    /// wished them.
    pub fn due(&self, target: u64) -> Vec<(Range<u64>, Fallocate)> {
        let mut all: Vec<(Range<u64>, Fallocate)> = Vec::new();
        for (blocks, wish) in self.in_range(0..u64::MAX).filter(|(_, wish)| wish.is_due(target)) {
            let how = wish.at_home(target);
            match all.last_mut() {
                Some((last, same)) if last.end == blocks.start && *same == how => last.end = blocks.end,
                _ => all.push((blocks, how)),
            }
        }
        all
    }

    /// Gives each part of a range another wish.
    fn change(&mut self, blocks: Range<u64>, change: impl Fn(Wish) -> Wish) {
        if blocks.is_empty() {
            return;
        }
        let mut parts: Vec<(Range<u64>, Wish)> = Vec::new();
        let mut at = blocks.start;
        // What is between counts, too.
        for (part, wish) in self.in_range(blocks.clone()) {
            if at < part.start {
                parts.push((at..part.start, Wish::default()));
            }
            at = part.end;
            parts.push((part, wish));
        }
        if at < blocks.end {
            parts.push((at..blocks.end, Wish::default()));
        }
        self.clear(blocks);
        for (part, wish) in parts {
            let wish = change(wish);
            debug_assert!(!wish.reserves() || wish.reserved >= wish.zeroed, "who zeroes says whether there is space");
            self.put(part, wish);
        }
    }

    /// Takes a range out.
    fn clear(&mut self, blocks: Range<u64>) {
        if let Some((&first, &(end, wish))) = self.ranges.range(..blocks.start).next_back()
            && end > blocks.start
        {
            self.ranges.insert(first, (blocks.start, wish));
            if end > blocks.end {
                self.ranges.insert(blocks.end, (end, wish));
            }
        }
        while let Some((&first, &(end, wish))) = self.ranges.range(blocks.clone()).next() {
            self.ranges.remove(&first);
            if end > blocks.end {
                self.ranges.insert(blocks.end, (end, wish));
            }
        }
    }

    /// Puts a range where there is none; neighbours of which the same is wished become one.
    fn put(&mut self, mut blocks: Range<u64>, wish: Wish) {
        if wish == Wish::default() {
            return;
        }
        if let Some((&first, &(end, before))) = self.ranges.range(..blocks.start).next_back()
            && end == blocks.start
            && before == wish
        {
            blocks.start = first;
        }
        if let Some(&(end, behind)) = self.ranges.get(&blocks.end)
            && behind == wish
        {
            self.ranges.remove(&blocks.end);
            blocks.end = end;
        }
        self.ranges.insert(blocks.start, (blocks.end, wish));
    }
}

/// The wishes of committed groups for one file.
#[derive(Default)]
pub(crate) struct FileSpace {
    /// Twice how often something was wished or taken back, and one more while there is any wish.
    state: AtomicU64,
    wishes: Mutex<Wishes>,
}

impl FileSpace {
    /// Changes with whatever makes other home bytes count. A reader who finds it as before has read bytes of one
    /// moment.
    #[inline]
    pub fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// Whether there is any wish.
    #[inline]
    pub fn any(&self) -> bool {
        Self::is_any(self.state())
    }

    /// Whether there was any wish in this [state](Self::state).
    #[inline]
    pub fn is_any(state: u64) -> bool {
        state & 1 != 0
    }

    /// Looks at the wishes.
    pub fn with<T>(&self, look: impl FnOnce(&Wishes) -> T) -> T {
        look(&self.wishes.lock().unwrap())
    }

    /// Changes them. Whether any is left.
    pub fn change(&self, change: impl FnOnce(&mut Wishes)) -> bool {
        let mut wishes = self.wishes.lock().unwrap();
        change(&mut wishes);
        let any = !wishes.is_empty();
        let state = (self.state.load(Ordering::Relaxed) | 1) + 1 + u64::from(any);
        self.state.store(state, Ordering::Release);
        any
    }
}

/// What a call wants of a range of bytes, in blocks and what is no whole block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes that become zeros, each range in one block of which others stay.
    pub edges: [Range<u64>; 2],
    /// Blocks that become zeros.
    pub zeroed: Range<u64>,
    /// Blocks that are to have space.
    pub reserved: Range<u64>,
}

impl Shape {
    /// Of the bytes `from..to`.
    pub fn new(how: Fallocate, from: u64, to: u64) -> Self {
        let mut shape = Shape { edges: [from..from, to..to], zeroed: 0..0, reserved: 0..0 };
        if how.reserves() {
            shape.reserved = from / BLOCK..to.div_ceil(BLOCK);
        }
        if how.zeroes() {
            let (first, end) = (from.div_ceil(BLOCK), to / BLOCK);
            let head = from..(first * BLOCK).min(to);
            shape.edges = [head.clone(), (end * BLOCK).max(head.end)..to];
            shape.zeroed = first..end.max(first);
        }
        shape
    }

    /// The edges that there are.
    pub fn edges(&self) -> impl Iterator<Item = Range<u64>> {
        self.edges.clone().into_iter().filter(|edge| !edge.is_empty())
    }

    /// Adds what it wants of blocks to wishes.
    pub fn wish(&self, wishes: &mut Wishes, sequence: u64) {
        wishes.zero(self.zeroed.clone(), sequence);
        wishes.reserve(self.reserved.clone(), sequence);
    }
}

/// The entries that a call becomes, each with its range: what is zeroed ends with the file, so that to replay it nobody
/// needs to know how long that was. Where the end of the file is in the range, its last block is zeroed whole.
pub(crate) fn entries(
    how: Fallocate,
    offset: u64,
    end: u64,
    size: u64,
) -> impl Iterator<Item = (Fallocate, Range<u64>)> {
    let zeros_end = if end < size {
        end
    } else if offset.next_multiple_of(BLOCK) < size {
        size.next_multiple_of(BLOCK)
    } else {
        // It begins in the last block.
        size
    };
    let zeros = (how.zeroes() && offset < zeros_end).then(|| {
        let how = if how.reserves() { Fallocate::Zero } else { Fallocate::Punch };
        (how, offset..zeros_end)
    });
    // A hole behind the end is nothing, and takes no space that is reserved there. But the call has its time, which is
    // told of the last block that a file can have.
    let nothing = how == Fallocate::Punch && zeros.is_none() && size <= LAST_BLOCK;
    let zeros = if nothing { Some((how, LAST_BLOCK..LARGEST_FILE)) } else { zeros };
    let space = (how.reserves() && (end > size || !how.zeroes())).then(|| {
        let how = if how.extends() { Fallocate::Extend } else { Fallocate::Keep };
        (how, offset..end)
    });
    zeros.into_iter().chain(space)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Fallocate; 5] =
        [Fallocate::Keep, Fallocate::Extend, Fallocate::Punch, Fallocate::Zero, Fallocate::ZeroExtend];

    #[derive(Clone, Debug)]
    enum Step {
        Zero(Range<u64>),
        Reserve(Range<u64>),
        Cut(u64),
        Done(Range<u64>, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let blocks = (0u64..40, 0u64..20).prop_map(|(first, count)| first..first + count);
        prop_oneof![
            blocks.clone().prop_map(Step::Zero),
            blocks.clone().prop_map(Step::Reserve),
            (0u64..40).prop_map(Step::Cut),
            (blocks, 0u64..30).prop_map(|(blocks, target)| Step::Done(blocks, target)),
        ]
    }

    proptest! {
        /// Against blocks one by one.
        #[test]
        fn as_if_each_block_had_its_own(steps in proptest::collection::vec(step(), 1..30), range in (0u64..60, 0u64..60)) {
            let mut wishes = Wishes::default();
            let mut blocks = [Wish::default(); 60];
            for (sequence, step) in (1..).zip(&steps) {
                match step.clone() {
                    Step::Zero(range) => {
                        wishes.zero(range.clone(), sequence);
                        range.for_each(|block| blocks[block as usize] = Wish { zeroed: sequence, reserved: NOT });
                    }
                    Step::Reserve(range) => {
                        wishes.reserve(range.clone(), sequence);
                        range.for_each(|block| blocks[block as usize].reserved = sequence);
                    }
                    Step::Cut(block) => {
                        wishes.cut(block);
                        blocks[block as usize..].fill(Wish::default());
                    }
                    Step::Done(range, target) => {
                        wishes.done(range.clone(), target);
                        for block in range {
                            let Wish { zeroed, reserved } = &mut blocks[block as usize];
                            [zeroed, reserved].into_iter().filter(|stamp| **stamp < target).for_each(|stamp| *stamp = NOT);
                        }
                    }
                }
            }
            let mut seen = [Wish::default(); 60];
            let mut last: Option<(Range<u64>, Wish)> = None;
            for (range, wish) in wishes.in_range(0..u64::MAX) {
                if let Some((before, same)) = last {
                    prop_assert!(before.end < range.start || (before.end == range.start && same != wish), "in order, and joined");
                }
                range.clone().for_each(|block| seen[block as usize] = wish);
                last = Some((range, wish));
            }
            prop_assert_eq!(seen, blocks);
            prop_assert_eq!(wishes.is_empty(), blocks.iter().all(|wish| *wish == Wish::default()));

            let range = range.0.min(range.1)..range.0.max(range.1);
            let mut seen = [Wish::default(); 60];
            wishes.in_range(range.clone()).for_each(|(part, wish)| part.for_each(|block| seen[block as usize] = wish));
            for block in 0..60 {
                let expected = if range.contains(&block) { blocks[block as usize] } else { Wish::default() };
                prop_assert_eq!(seen[block as usize], expected);
            }
            let zeroed = (range.start..60).find(|block| blocks[*block as usize].zeroes());
            prop_assert_eq!(wishes.next_zeroed(range.start).map(|blocks| blocks.start), zeroed);
        }

        /// What the entries of a call do is what the call does, byte by byte.
        #[test]
        fn entries_are_the_call(
            how in proptest::sample::select(ALL.to_vec()),
            offset in 0u64..12_000,
            length in 1u64..12_000,
            size in 0u64..20_000,
        ) {
            let (end, mut now) = (offset + length, size);
            let mut zeroed = vec![false; 40_000];
            let mut reserved = [false; 10];
            for (how, range) in entries(how, offset, end, size) {
                if range == (LAST_BLOCK..LARGEST_FILE) {
                    prop_assert!(how == Fallocate::Punch && offset >= size);
                    continue;
                }
                let shape = Shape::new(how, range.start, range.end);
                for edge in shape.edges() {
                    prop_assert!(edge.end <= size && edge.start / BLOCK == (edge.end - 1) / BLOCK);
                    zeroed[edge.start as usize..edge.end as usize].fill(true);
                }
                zeroed[(shape.zeroed.start * BLOCK) as usize..(shape.zeroed.end * BLOCK) as usize].fill(true);
                shape.reserved.clone().for_each(|block| reserved[block as usize] = true);
                now = if how.extends() { now.max(range.end) } else { now };
            }
            prop_assert_eq!(now, if how.extends() { size.max(end) } else { size });
            for (byte, is_zeroed) in (0u64..).zip(&zeroed[..size as usize]) {
                prop_assert_eq!(*is_zeroed, how.zeroes() && (offset..end).contains(&byte), "byte {}", byte);
            }
            for (block, is_reserved) in (0u64..).zip(reserved) {
                let in_range = block * BLOCK < end && offset < (block + 1) * BLOCK;
                prop_assert!(is_reserved == (how.reserves() && in_range) || (!in_range && how == Fallocate::Zero), "block {}", block);
            }
            // The last block of a file becomes a hole where its bytes do.
            if how == Fallocate::Punch && offset == 0 && end >= size {
                prop_assert_eq!(entries(how, offset, end, size).count(), 1);
                prop_assert!(zeroed[..size.next_multiple_of(BLOCK) as usize].iter().all(|is_zeroed| *is_zeroed));
            }
        }
    }

    #[test]
    fn whoever_looks_sees_that_something_was_wished() {
        let space = FileSpace::default();
        let mut states = vec![space.state()];
        assert!(!space.any());
        assert!(space.change(|wishes| wishes.zero(1..2, 5)));
        states.push(space.state());
        assert!(space.any() && space.change(|wishes| wishes.reserve(1..2, 6)));
        states.push(space.state());
        assert_eq!(space.with(|wishes| wishes.due(6)), [(1..2, Fallocate::Zero)]);
        assert!(space.change(|wishes| wishes.done(1..2, 6)));
        states.push(space.state());
        assert!(!space.change(|wishes| wishes.done(1..2, 7)) && !space.any());
        states.push(space.state());
        assert!(states.is_sorted() && states.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
