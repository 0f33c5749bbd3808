//! What a group notes of bits that its commit changes, and of content that gets its place late.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::engine::{Mapped, Operation, Toggled, is_late};
use crate::format::bitmap::{Bitmap, BitmapAt, Layout, UNITS};
use crate::format::inode::PER_BLOCK;
use crate::format::pointer::MAX_BLOCKS;
use crate::format::{Lba, Run};

/// Bitmap blocks that a group has touched: of blocks, and of inodes.
#[derive(Clone, Copy, Default)]
pub struct Touched {
    pub blocks: u64,
    pub inodes: u64,
}

impl Touched {
    /// By any call: bits of a few blocks of directories, and of a few inodes.
    pub const FEW: Touched = Touched { blocks: 16, inodes: 16 };

    pub fn and(self, more: Touched) -> Touched {
        Touched { blocks: self.blocks + more.blocks, inodes: self.inodes + more.inodes }
    }
}

/// What the bitmaps say of an inode: whether it is in use, and whether it has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Life {
    before: (bool, bool),
    now: (bool, bool),
}

/// See the module.
#[derive(Default)]
pub struct Noted {
    /// Late numbers (rule 12 of the engines), and how many: so many blocks are reserved for them.
    pub late: Runs,
    pub late_blocks: u64,
    /// Files with content that has no place yet, and blocks of them between which it is.
    pub late_files: BTreeMap<u64, Range<u64>>,
    /// Sections of blocks that were taken and freed.
    sections: BTreeSet<u64>,
    /// The same of inodes that it has made, freed, or given another number of names.
    inode_sections: BTreeSet<u64>,
    /// What it has done to inodes.
    lives: BTreeMap<u64, Life>,
    /// Numbers that become free inodes, or none.
    places: Vec<(u64, u64, bool)>,
}

impl Noted {
    /// Blocks are taken or freed.
    pub fn touch(&mut self, run: Run) {
        self.sections.extend(run.start.0 / UNITS..=(run.start.0 + run.count - 1) / UNITS);
    }

    /// The most bitmap blocks that change so far. Content that gets its place late may come anywhere.
    pub fn touched(&self) -> Touched {
        // Each number has a bit of its own in two of them.
        Touched { blocks: self.sections.len() as u64 + self.late_blocks, inodes: 2 * self.inode_sections.len() as u64 }
    }

    /// Late numbers are taken.
    pub fn take_late(&mut self, run: Run) {
        self.late.add(run);
        self.late_blocks += run.count;
    }

    /// They are given up.
    pub fn give_late(&mut self, run: Run) {
        // A damaged map may have numbers that the group did not take. They stand for nothing.
        let others = self.late.cut(run);
        self.late_blocks -= run.count - others.iter().map(|run| run.count).sum::<u64>();
        if self.late_blocks == 0 {
            // An empty map keeps a node.
            self.late = Runs::default();
        }
    }

    /// Notes in which blocks of files there may be content that has no place yet.
    pub fn note_late(&mut self, operation: &Operation<'_>) {
        let late = &mut self.late_files;
        match *operation {
            Operation::Map { on, first, count, to: Mapped::Written(at) } if is_late(at) => {
                let range = late.entry(on.ino).or_insert(first..first + count);
                *range = range.start.min(first)..range.end.max(first + count);
            }
            Operation::Shift { on, .. } => _ = late.get_mut(&on.ino).map(|range| *range = 0..MAX_BLOCKS),
            Operation::Free { what } => _ = late.remove(&what.ino),
            _ => {}
        }
    }

    /// Blocks of the inode file come or go.
    pub fn note_place(&mut self, first: u64, count: u64, is_there: bool) {
        let (first, count) = (first * PER_BLOCK, count * PER_BLOCK);
        self.inode_sections.extend(first / UNITS..=(first + count - 1) / UNITS);
        self.places.push((first, count, is_there));
    }

    /// What the bitmaps said of an inode before the group, if that has changed it.
    pub fn before(&self, ino: u64) -> Option<(bool, bool)> {
        self.lives.get(&ino).map(|life| life.before)
    }

    /// What they are to say of it.
    pub fn note_life(&mut self, ino: u64, before: (bool, bool), now: (bool, bool)) {
        self.inode_sections.insert(ino / UNITS);
        self.lives.insert(ino, Life { before, now });
    }

    /// What changes of the bitmaps, by the places of their blocks.
    pub fn toggles(&mut self, layout: Layout, taken: &Runs, freed: &Runs) -> BTreeMap<Lba, (BitmapAt, Vec<Toggled>)> {
        let mut changes: BTreeMap<Lba, (BitmapAt, Vec<Toggled>)> = BTreeMap::new();
        let mut change = |of, mut first: u64, count: u64, to| {
            let end = first + count;
            while first < end {
                let bitmap = BitmapAt { of, index: first / UNITS };
                let (within, count) = (first % UNITS, (end - first).min(UNITS - first % UNITS));
                let (_, bits) = changes.entry(layout.place(bitmap)).or_insert((bitmap, Vec::new()));
                match bits.last_mut().filter(|last| (last.first + last.count, last.to) == (within, to)) {
                    Some(last) => last.count += count,
                    None => bits.push(Toggled { first: within, count, to }),
                }
                first += count;
            }
        };
        taken.iter().for_each(|run| change(Bitmap::Blocks, run.start.0, run.count, true));
        freed.iter().for_each(|run| change(Bitmap::Blocks, run.start.0, run.count, false));
        self.places.drain(..).for_each(|(first, count, is_there)| change(Bitmap::Orphans, first, count, !is_there));
        for (ino, Life { before, now }) in std::mem::take(&mut self.lives) {
            for (of, was, is) in [(Bitmap::Inodes, before.0, now.0), (Bitmap::Orphans, before.1, now.1)] {
                if was != is {
                    change(of, ino, 1, is);
                }
            }
        }
        changes
    }
}

/// Blocks, in runs.
#[derive(Default)]
pub struct Runs(BTreeMap<u64, u64>);

impl Runs {
    pub fn add(&mut self, run: Run) {
        let (first, mut end) = (run.start.0, run.start.0 + run.count);
        if let Some(more) = self.0.remove(&end) {
            end = more;
        }
        match self.0.range_mut(..first).next_back() {
            Some((_, before)) if *before == first => *before = end,
            _ => _ = self.0.insert(first, end),
        }
    }

    /// Takes blocks out. Returns those that were not in.
    pub fn cut(&mut self, run: Run) -> Vec<Run> {
        let (mut at, end, mut others) = (run.start.0, run.start.0 + run.count, Vec::new());
        while at < end {
            let (is_in, count) = self.has(Lba(at), end - at);
            if is_in {
                let (&first, &last) = self.0.range(..=at).next_back().expect("it is in one");
                self.0.remove(&first);
                [(first, at), (at + count, last)].into_iter().filter(|(from, to)| from < to).for_each(|(from, to)| {
                    self.0.insert(from, to);
                });
            } else {
                others.push(Run { start: Lba(at), count });
            }
            at += count;
        }
        others
    }

    pub fn iter(&self) -> impl Iterator<Item = Run> {
        self.0.iter().map(|(first, end)| Run { start: Lba(*first), count: end - first })
    }

    /// Whether a block is one of these, and for how many of the `count` blocks from it on that is the same.
    pub fn has(&self, at: Lba, count: u64) -> (bool, u64) {
        match self.0.range(..=at.0).next_back().filter(|(_, end)| **end > at.0) {
            Some((_, end)) => (true, count.min(end - at.0)),
            None => {
                let next = self.0.range(at.0..).next().map_or(count, |(first, _)| first - at.0);
                (false, count.min(next))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_together() {
        let mut runs = Runs::default();
        for (first, count) in [(10, 2), (14, 2), (12, 2), (20, 1)] {
            runs.add(Run { start: Lba(first), count });
        }
        assert_eq!(runs.0, BTreeMap::from([(10, 16), (20, 21)]));
        assert_eq!(runs.has(Lba(12), 100), (true, 4));
        assert_eq!((runs.has(Lba(16), 100), runs.has(Lba(16), 3)), ((false, 4), (false, 3)));
        assert_eq!((runs.has(Lba(21), 7), runs.has(Lba(9), 7)), ((false, 7), (false, 1)));
    }
}
