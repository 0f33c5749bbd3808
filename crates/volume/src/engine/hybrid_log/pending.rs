//! Pending blocks, and the index over them: reading and writing lines of content.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::collections::BTreeSet;
use std::ops::Range;

use index::{NO_VERSION, latest_lines};
use wholly_error::Result;
use wholly_media::Region;
use wholly_media::lines::LineSums;

use super::{HybridLog, PENDING};
use crate::engine::draft::whole_lines;
use crate::engine::{Allocate, DataAt, InoGen, Part, check_within, read_within};
use crate::format::by_number::ByNumber;
use crate::format::head::runs;
use crate::format::log::LINE;
use crate::format::{BLOCK, Lba, Run};

/// What a running group does to content.
#[derive(Debug, Default)]
pub struct Pended {
    pub(super) blocks: Tentatives,
    /// Homes with versions that have no content any more once it is committed.
    pub(super) left: BTreeSet<u64>,
    /// Whether it frees any block.
    pub(super) releases: bool,
}

/// A pending block of a running group.
#[derive(Clone, Copy, Debug)]
pub struct Tentative {
    pub at: Lba,
    pub lines: u64,
    /// Of these lines as they were written: what rots before the commit is not signed as right.
    pub sums: LineSums,
    pub file: InoGen,
    pub block: u64,
}

/// The pending blocks of a running group, and their homes, in the order in which it took them.
#[derive(Debug, Default)]
pub struct Tentatives {
    all: Vec<(u64, Tentative)>,
    /// Where the block of a home is among them, if they are more than [`FEW`].
    places: ByNumber<usize>,
}

/// So many are looked through as fast as a map is.
const FEW: usize = 8;

impl Tentatives {
    fn place(&self, home: u64) -> Option<usize> {
        match self.all.len() <= FEW {
            true => self.all.iter().rposition(|(of, _)| *of == home),
            false => self.places.get(&home).copied(),
        }
    }

    pub fn get(&self, home: u64) -> Option<&Tentative> {
        Some(&self.all[self.place(home)?].1)
    }

    fn get_or_make(&mut self, home: u64, make: impl FnOnce() -> Tentative) -> &mut Tentative {
        let place = self.place(home).unwrap_or_else(|| {
            self.all.push((home, make()));
            let last = self.all.len() - 1;
            match last.cmp(&FEW) {
                Less => {}
                Equal => self.places = self.all.iter().enumerate().map(|(place, (home, _))| (*home, place)).collect(),
                Greater => _ = self.places.insert(home, last),
            }
            last
        });
        &mut self.all[place].1
    }

    fn remove(&mut self, home: u64) -> Option<Tentative> {
        let place = self.place(home)?;
        let (_, removed) = self.all.swap_remove(place);
        self.places.remove(&home);
        if let Some((moved, _)) = self.all.get(place).filter(|_| self.all.len() > FEW) {
            self.places.insert(*moved, place);
        }
        Some(removed)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &Tentative)> {
        self.all.iter().map(|(home, tentative)| (*home, tentative))
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// The blocks of a range of bytes that begins in the first of them: the number of each, the first byte in it, and which
/// bytes of the range are in it.
pub fn blocks(offset: usize, len: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    (0..(offset + len).div_ceil(BLOCK)).map(move |i| {
        let (from, to) = (offset.max(i * BLOCK), (offset + len).min((i + 1) * BLOCK));
        (i as u64, from - i * BLOCK, from - offset..to - offset)
    })
}

/// The lines of some bytes of a block, as bits.
fn lines_of(offset: usize, len: usize) -> u64 {
    let (first, end) = (offset / LINE, (offset + len).div_ceil(LINE));
    u64::MAX >> (64 - (end - first)) << first
}

/// Reads those bytes of a range of a block that are in some lines of it.
fn read_lines(region: &dyn Region, from: Lba, lines: u64, offset: usize, buf: &mut [u8]) -> Result<()> {
    for (first, end) in runs(lines) {
        let (start, stop) = ((first * LINE).max(offset), (end * LINE).min(offset + buf.len()));
        read_within(region, from.byte() + start as u64, &mut buf[start - offset..stop - offset])?;
    }
    Ok(())
}

/// Blocks that a write needs, taken as few times as there are runs of free ones.
pub(super) struct Spare {
    needed: u64,
    taken: Run,
}

impl Spare {
    fn take(&mut self, space: &mut dyn Allocate) -> Lba {
        if self.taken.count == 0 {
            self.taken = space.take(self.needed);
        }
        let Run { start, count } = self.taken;
        self.taken = Run { start: Lba(start.0 + 1), count: count - 1 };
        self.needed -= 1;
        start
    }
}

impl Pended {
    /// For a write over the blocks from a home on.
    pub(super) fn spare(&self, home: Lba, offset: usize, len: usize) -> Spare {
        let is_new = |i: &u64| self.blocks.get(home.0 + i).is_none();
        let needed = blocks(offset, len).map(|(i, ..)| i).filter(is_new).count() as u64;
        Spare { needed, taken: Run { start: home, count: 0 } }
    }

    /// Puts the group's own lines over the committed bytes of a home.
    pub(super) fn overlay(&self, region: &dyn Region, home: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        match self.blocks.get(home.0) {
            Some(own) if !buf.is_empty() => {
                read_lines(region, own.at, own.lines & lines_of(offset, buf.len()), offset, buf)
            }
            _ => Ok(()),
        }
    }
}

impl HybridLog {
    /// Reads the latest committed bytes of a home.
    pub(super) fn read_block(&self, home: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        let region = &*self.base.region;
        let guard = self.index.get(home.0).map(|slot| slot.read());
        let newest = guard.as_ref().map_or(NO_VERSION, |guard| guard.newest());
        if newest == NO_VERSION || buf.is_empty() {
            return read_within(region, home.byte() + offset as u64, buf);
        }
        let mut failed = Ok(());
        let at_home = latest_lines(self.arena.list(newest), lines_of(offset, buf.len()), |version, lines| {
            let at = Lba(version.position);
            let read = self.verify(at).and_then(|()| read_lines(region, at, lines, offset, buf));
            failed = std::mem::replace(&mut failed, Ok(())).and(read);
        });
        failed?;
        read_lines(region, home, at_home, offset, buf)
    }

    /// Writes bytes over others, inside of one block, to a pending block of the group.
    pub(super) fn pend(
        &self,
        part: &mut Part<'_>,
        spare: &mut Spare,
        at: &DataAt,
        offset: usize,
        data: &[u8],
    ) -> Result<()> {
        let region = &*self.base.region;
        let home = at.home.expect("only what has a home is written over");
        check_within(region, home.byte(), BLOCK)?;
        part.draft.stored = true;
        let tentative = part.draft.pended.blocks.get_or_make(home.0, || Tentative {
            at: spare.take(part.space),
            lines: 0,
            sums: LineSums::default(),
            file: at.file,
            block: at.block,
        });
        let lines = lines_of(offset, data.len());
        let seed = &self.line_seed;
        // Lines that it has already are written over.
        for (first, end) in runs(tentative.lines & lines) {
            let mut old = [0; BLOCK];
            let old = &mut old[..(end - first) * LINE];
            region.read(tentative.at.byte() + (first * LINE) as u64, old)?;
            seed.take(&mut tentative.sums, tentative.at, first, old);
        }
        let mut store = |line: usize, bytes: &[u8]| {
            seed.add(&mut tentative.sums, tentative.at, line, bytes);
            region.write(PENDING, tentative.at.byte() + (line * LINE) as u64, bytes)
        };
        // Whole lines first: meanwhile what is left of the others is on its way from the medium.
        let (whole, ends) = whole_lines(offset..offset + data.len());
        if !whole.is_empty() {
            store(whole.start / LINE, &data[whole.start - offset..whole.end - offset])?;
        }
        for range in ends.into_iter().filter(|range| !range.is_empty()) {
            let (line, mut merged) = (range.start / LINE, [0; LINE]);
            match tentative.lines >> line & 1 != 0 {
                true => region.read(tentative.at.byte() + (line * LINE) as u64, &mut merged)?,
                false => self.read_block(home, line * LINE, &mut merged)?,
            }
            let part = &data[range.start - offset..range.end - offset];
            merged[range.start - line * LINE..][..part.len()].copy_from_slice(part);
            store(line, &merged)?;
        }
        tentative.lines |= lines;
        Ok(())
    }

    /// A block has no content any more once the group is committed: what the group has written there goes, too.
    pub(super) fn leave(&self, pended: &mut Pended, space: &mut dyn Allocate, home: Lba) {
        if let Some(own) = pended.blocks.remove(home.0) {
            // Free again when the group has ended.
            space.release(Run { start: own.at, count: 1 });
        }
        if self.index.get(home.0).is_some_and(|slot| !slot.is_empty()) {
            pended.left.insert(home.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few or many, in any order of calls, they are those of a map.
    #[test]
    fn tentative_blocks_are_those_of_a_map() {
        let mut random = wholly_sim::Random(7);
        let (mut blocks, mut model) = (Tentatives::default(), std::collections::BTreeMap::new());
        for n in 0..4000 {
            let home = random.below(if n % 1000 < 500 { 40 } else { 9 });
            if random.below(3) > 0 {
                let file = InoGen { ino: 0, generation: 0 };
                let make = || Tentative { at: Lba(n), lines: 0, sums: LineSums::default(), file, block: 0 };
                blocks.get_or_make(home, make).lines += 1;
                model.entry(home).or_insert((n, 0)).1 += 1;
            } else {
                let removed = blocks.remove(home).map(|gone| (gone.at.0, gone.lines));
                assert_eq!(removed, model.remove(&home));
            }
            for home in 0..40 {
                assert_eq!(blocks.get(home).map(|own| (own.at.0, own.lines)), model.get(&home).copied());
            }
            assert_eq!(blocks.iter().len(), model.len());
        }
    }

    #[test]
    fn ranges_are_cut_into_blocks_and_lines() {
        let cut: Vec<_> = blocks(4000, 4300).collect();
        assert_eq!(cut, [(0, 4000, 0..96), (1, 0, 96..4192), (2, 0, 4192..4300)]);
        assert_eq!(blocks(0, 4096).collect::<Vec<_>>(), [(0, 0, 0..4096)]);
        assert_eq!([lines_of(0, 1), lines_of(63, 2), lines_of(4095, 1), lines_of(0, 4096)], [1, 3, 1 << 63, u64::MAX]);
    }
}
