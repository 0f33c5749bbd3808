//! What a running group has made of metadata: lines that are not on the medium yet.
//!
//! Blocks that the group itself took are not in it: nobody else can reach them, so they are stored at once. Only the
//! group reads its draft; locks of the core keep others from the bytes that it is about.

use std::collections::{BTreeMap, BTreeSet};

use wholly_error::Result;
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use super::hybrid_log::Pended;
use super::lanes::{Chain, Cursor, Redo};
use super::page_cache_wal::Paged;
use super::{Allocate, CommitSequence, Load, StorageView, read_within};
use crate::format::log::LINE;
use crate::format::{BLOCK, Lba, Run};

/// Lines of log that one change of a line adds, at most, but where old bytes were zeros: the line, and two heads.
const MOST_LOGGED: u64 = 3;
/// Changes after which it does not pay to count the lines of log.
const FEW: u64 = 16;

/// A line that a group changes.
#[derive(Clone, Debug)]
pub struct Changed {
    /// As it is on the medium.
    pub old: [u8; LINE],
    /// As it is going to be.
    pub new: [u8; LINE],
    /// The place in the code that changed it last.
    pub site: Site,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Draft {
    /// By number of the line in the volume.
    lines: BTreeMap<u64, Changed>,
    /// Blocks that the group took for metadata.
    pub(super) fresh: BTreeSet<Lba>,
    /// Where the group logs, once it does.
    pub(super) cursor: Option<Cursor>,
    /// Whether something was stored early. Of an explicit group: by the call that runs.
    pub(super) stored: bool,
    /// Content that it has written elsewhere.
    pub(super) pended: Pended,
    /// What it has in a page cache.
    pub(super) paged: Paged,
    /// The number of an explicit group.
    pub(super) group: Option<GroupId>,
    /// The log of an explicit group's data, once it has one.
    pub(super) chain: Option<Chain>,
    /// Of an explicit group: the newest data of each byte that is logged, by the first byte of each piece.
    data: BTreeMap<u64, Redo>,
    /// Content of fresh blocks that is not on the medium yet.
    pub(super) images: BTreeMap<Lba, Box<[u8; BLOCK]>>,
    /// Blocks of the inode file of which it has lines, where those have no place before the commit.
    pub(super) inode_blocks: BTreeSet<u64>,
    /// What changes of the blocks of the inode file.
    pub(super) inode_file: Option<InodeFileChange>,
    /// How often a line has changed.
    changes: u64,
    /// The lines of log are counted again once it has so many changes.
    count_at: u64,
    /// With an engine that orders: groups that are not durable, and changed what this one changes. It comes after them,
    /// also where they share no block.
    pub after: Vec<CommitSequence>,
}

/// A structure change of the inode file that waits for the commit.
#[derive(Debug)]
pub(super) enum InodeFileChange {
    /// It gets blocks: the first one, and how many.
    Grow(u64, u64),
    /// It gives back runs of blocks; with the highest generation in such.
    GiveBack(Vec<(u64, u64)>, u32),
}

/// The lines of a range, the range of bytes of each, and where they are in the range.
fn lines(at: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (line, end) = (LINE as u64, at + len as u64);
    (at / line..end.div_ceil(line)).map(move |number| {
        let (from, to) = (at.max(number * line), end.min((number + 1) * line));
        let (inside, here) = ((from - number * line) as usize, (from - at) as usize);
        let len = (to - from) as usize;
        (number, inside..inside + len, here..here + len)
    })
}

/// The part of a range that is whole lines, and what is left before and behind it; all is before it if the range is
/// inside of one line.
pub(super) fn whole_lines(range: std::ops::Range<usize>) -> (std::ops::Range<usize>, [std::ops::Range<usize>; 2]) {
    let (start, end) = (range.start.next_multiple_of(LINE), range.end / LINE * LINE);
    if start > end {
        (start..start, [range.clone(), range.end..range.end])
    } else {
        (start..end, [range.start..start, end..range.end])
    }
}

/// The lines of a block.
pub(super) fn lines_of(at: Lba) -> std::ops::Range<u64> {
    let first = at.byte() / LINE as u64;
    first..first + (BLOCK / LINE) as u64
}

impl Redo {
    /// What of it is at `at` and beyond.
    fn tail(self, at: u64) -> Redo {
        let by = at - self.at;
        Redo { from: self.from.map(|from| from + by), at, len: self.len - by }
    }
}

impl Draft {
    /// That of an explicit group.
    pub fn of_group(group: GroupId) -> Draft {
        Draft { group: Some(group), ..Draft::default() }
    }

    /// The most undo entries that its lines need.
    pub fn most_undo(&self) -> u64 {
        2 * self.lines.len() as u64
    }

    /// Whether the commit stores at least so many lines of log, which `count` counts. It counts again only after as
    /// many changes as could make up for what is missing, so that a call costs little.
    pub(super) fn logs(&mut self, enough: u64, count: impl FnOnce(&Draft) -> u64) -> bool {
        if self.changes < self.count_at {
            return false;
        }
        let missing = enough.saturating_sub(count(self));
        self.count_at = self.changes + (missing / MOST_LOGGED).max(FEW);
        missing == 0
    }

    /// Notes data that was logged: it is newer than what was there.
    pub(super) fn log(&mut self, new: Redo) {
        let end = new.at + new.len;
        let before = self.data.range(..new.at).next_back().map(|(_, old)| *old);
        if let Some(old) = before.filter(|old| old.at + old.len > new.at) {
            self.data.insert(old.at, Redo { len: new.at - old.at, ..old });
            if old.at + old.len > end {
                self.data.insert(end, old.tail(end));
            }
        }
        while let Some(old) = self.data.range(new.at..end).next().map(|(_, old)| *old) {
            self.data.remove(&old.at);
            if old.at + old.len > end {
                self.data.insert(end, old.tail(end));
            }
        }
        self.data.insert(new.at, new);
    }

    /// The data that is logged, by the places where it belongs.
    pub(super) fn data(&self) -> impl Iterator<Item = &Redo> {
        self.data.values()
    }

    /// Puts logged data over bytes that were read from `at` on.
    pub(super) fn overlay_data(&self, region: &dyn Region, at: u64, buf: &mut [u8]) -> Result<()> {
        let end = at + buf.len() as u64;
        let first = self.data.range(..=at).next_back().map_or(at, |(first, _)| *first);
        for redo in self.data.range(first..end).map(|(_, redo)| redo) {
            let (from, to) = (redo.at.max(at), (redo.at + redo.len).min(end));
            if from >= to {
                continue;
            }
            let part = &mut buf[(from - at) as usize..(to - at) as usize];
            match redo.tail(from).from {
                Some(logged) => read_within(region, logged, part)?,
                None => part.fill(0),
            }
        }
        Ok(())
    }

    /// Puts the group's version over bytes that were read from the medium.
    #[inline]
    pub fn overlay(&self, at: u64, buf: &mut [u8]) {
        if !self.images.is_empty() {
            self.overlay_images(at, buf);
        }
        if self.lines.is_empty() {
            return;
        }
        let (first, end) = (at / LINE as u64, (at + buf.len() as u64).div_ceil(LINE as u64));
        if self.lines.range(first..end).next().is_none() {
            return;
        }
        for (number, inside, here) in lines(at, buf.len()) {
            if let Some(line) = self.lines.get(&number) {
                buf[here].copy_from_slice(&line.new[inside]);
            }
        }
    }

    fn overlay_images(&self, at: u64, buf: &mut [u8]) {
        let (block, end) = (BLOCK as u64, at + buf.len() as u64);
        for (lba, image) in self.images.range(Lba(at / block)..Lba(end.div_ceil(block))) {
            let (from, to) = (at.max(lba.byte()), end.min(lba.byte() + block));
            let inside = (from - lba.byte()) as usize..(to - lba.byte()) as usize;
            buf[(from - at) as usize..(to - at) as usize].copy_from_slice(&image[inside]);
        }
    }

    pub(super) fn put(&mut self, region: &dyn Region, site: Site, at: u64, bytes: &[u8]) -> Result<()> {
        self.put_over(|at, line| read_within(region, at, line), site, at, bytes).map(drop)
    }

    /// Changes bytes over what `read` reads. Returns whether it has more lines then.
    pub(super) fn put_over(
        &mut self,
        read: impl Fn(u64, &mut [u8; LINE]) -> Result<()>,
        site: Site,
        at: u64,
        bytes: &[u8],
    ) -> Result<bool> {
        let before = self.lines.len();
        for (number, inside, here) in lines(at, bytes.len()) {
            let part = &bytes[here];
            if let Some(line) = self.lines.get_mut(&number) {
                if line.new[inside.clone()] != *part {
                    line.new[inside].copy_from_slice(part);
                    line.site = site;
                    self.changes += 1;
                }
                continue;
            }
            let mut old = [0; LINE];
            read(number * LINE as u64, &mut old)?;
            if old[inside.clone()] != *part {
                let mut new = old;
                new[inside].copy_from_slice(part);
                self.lines.insert(number, Changed { old, new, site });
                self.changes += 1;
            }
        }
        Ok(self.lines.len() > before)
    }

    /// Whether a block is as it is on the medium.
    pub(super) fn is_unchanged(&self, at: Lba) -> bool {
        self.data.is_empty() && !self.images.contains_key(&at) && !self.has_lines(lines_of(at))
    }

    /// Whether it has one of some lines.
    pub(super) fn has_lines(&self, lines: std::ops::Range<u64>) -> bool {
        self.lines.range(lines).next().is_some()
    }

    /// How many lines it has.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// A block that the group frees: what it has changed there matters to nobody.
    pub(super) fn forget(&mut self, at: Lba) {
        let of_block = self.lines.range(lines_of(at));
        let changed: Vec<u64> = of_block.map(|(line, _)| *line).collect();
        for line in &changed {
            self.lines.remove(line);
        }
    }

    /// Calls `each` with the old bytes of the runs of changed words in some lines, and where they are. In a line, a run
    /// goes from a first to a last changed word; runs that meet at the end of a line are one.
    pub(super) fn each_old_run(
        &self,
        lines: std::ops::Range<u64>,
        mut each: impl FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (mut at, mut old) = (0, Vec::new());
        for (number, line) in self.lines.range(lines) {
            for run in line.runs(LINE) {
                let from = number * LINE as u64 + run.start as u64;
                if at + old.len() as u64 != from && !old.is_empty() {
                    each(at, &old)?;
                    old.clear();
                }
                at = if old.is_empty() { from } else { at };
                old.extend_from_slice(&line.old[run]);
            }
        }
        if old.is_empty() { Ok(()) } else { each(at, &old) }
    }

    /// Stores what changes.
    pub(super) fn store_in_place(&self, region: &dyn Region) -> Result<()> {
        for (at, line) in self.changes() {
            for run in line.runs(line.new.len()) {
                region.write(line.site, at + run.start as u64, &line.new[run])?;
            }
        }
        Ok(())
    }

    /// The lines that change, by the byte of the volume at which each begins.
    pub fn changes(&self) -> impl Iterator<Item = (u64, &Changed)> {
        self.lines.iter().map(|(number, line)| (number * LINE as u64, line)).filter(|(_, line)| line.old != line.new)
    }
}

impl Changed {
    /// The runs of whole words, at most `most` bytes each, in which it changes: from a first to a last changed word.
    pub fn runs(&self, most: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<'_> {
        let differs = |at: usize| self.old[at..at + 8] != self.new[at..at + 8];
        let mut from = 0;
        std::iter::from_fn(move || {
            let first = (from..LINE).step_by(8).find(|at| differs(*at))?;
            let limit = LINE.min(first + most);
            let last = (first..limit).step_by(8).rev().find(|at| differs(*at)).expect("the first one does");
            from = last + 8;
            Some(first..from)
        })
    }
}

/// The view of mutators that fill a draft.
pub struct Drafting<'d> {
    /// The medium.
    pub region: &'d dyn Region,
    /// The group's draft.
    pub draft: &'d mut Draft,
    /// The group's space.
    pub space: &'d mut dyn Allocate,
}

impl Load for Drafting<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        let at = at.byte() + offset as u64;
        read_within(self.region, at, buf)?;
        self.draft.overlay(at, buf);
        Ok(())
    }
}

impl StorageView for Drafting<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = at.byte() + offset as u64;
        if self.draft.fresh.contains(&at) {
            self.draft.stored = true;
            return Ok(self.region.write(site, to, bytes)?);
        }
        self.draft.put(self.region, site, to, bytes)
    }

    fn fresh(&mut self) -> Lba {
        let at = self.space.take(1).start;
        self.draft.fresh.insert(at);
        at
    }

    fn release(&mut self, at: Lba) {
        // It is soon another's.
        self.draft.forget(at);
        self.space.release(Run { start: at, count: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_into_lines() {
        let cut: Vec<_> = lines(60, 70).collect();
        assert_eq!(cut, [(0, 60..64, 0..4), (1, 0..64, 4..68), (2, 0..2, 68..70)]);
        assert_eq!(lines(128, 64).collect::<Vec<_>>(), [(2, 0..64, 0..64)]);
        assert_eq!(whole_lines(60..130), (64..128, [60..64, 128..130]));
        assert_eq!(whole_lines(64..128), (64..128, [64..64, 128..128]));
        assert_eq!(whole_lines(70..80), (128..128, [70..80, 80..80]));
    }

    /// Of overlapping pieces of data, the newest has each byte.
    #[test]
    fn the_newest_data_is_read() {
        use wholly_sim::{SimConfig, World};
        let region = World::new(std::sync::Arc::new(SimConfig { log_len: 4096, ..SimConfig::pmem() })).log();
        let byte = |piece: u64| piece as u8 | 1;
        (0..64).for_each(|piece| region.write(Site("test"), piece * 64, &[byte(piece); 64]).expect("write"));
        let (mut draft, mut model) = (Draft::default(), vec![0u8; 256]);
        let mut random = wholly_sim::Random(5);
        for _ in 0..2000 {
            let (at, piece) = (random.below(200), random.below(64));
            let len = 1 + random.below(56);
            let from = (random.below(4) > 0).then_some(piece * 64);
            draft.log(Redo { from, at, len });
            model[at as usize..(at + len) as usize].fill(from.map_or(0, |_| byte(piece)));
            let (from, mut read) = (random.below(100), [0; 150]);
            draft.overlay_data(&*region, from, &mut read).expect("read");
            assert_eq!(read, model[from as usize..from as usize + 150]);
        }
        let mut end = 0;
        draft.data().for_each(|redo| end = if redo.at >= end { redo.at + redo.len } else { panic!("overlap") });
    }

    /// Runs begin and end with a changed word, never overlap, and have all that changed.
    #[test]
    fn runs_have_each_changed_word_once() {
        for words in 1u32..256 {
            let mut line = Changed { old: [0; LINE], new: [0; LINE], site: Site("test") };
            (0..8).filter(|word| words >> word & 1 != 0).for_each(|word| line.new[word * 8 + 3] = 1);
            let (mut seen, mut end) = (0, 0);
            for run in line.runs(32) {
                assert!(run.start >= end && run.len() <= 32 && run.start % 8 == 0 && run.len() % 8 == 0);
                assert!(words >> (run.start / 8) & 1 == 1 && words >> (run.end / 8 - 1) & 1 == 1);
                end = run.end;
                run.step_by(8).for_each(|at| seen |= 1 << (at / 8));
            }
            assert_eq!(seen & words, words);
            assert!(line.runs(32).count() <= 2);
        }
    }
}
