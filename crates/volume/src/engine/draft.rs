//! What a running group has made of metadata: lines that are not on the medium yet.
//!
//! Blocks that the group itself took are not in it: nobody else can reach them, so they are stored at once. Only the
//! group reads its draft; locks of the core keep others from the bytes that it is about.
//!
//! # Lines
//!
//! - *Its lines* are found by block, and in a block by a mask: bit n of it is for line n, and its line stands behind
//!   those of lower bits. So all of them are in the order of the volume.
//! - *Changed words* of a line: the words of 8 bytes in which what it is going to be differs from the medium. They may
//!   be none, because the group has taken a change back.
//! - *Run*: from a first to a last changed word. Old bytes are logged, and new ones stored, by runs.

use std::collections::{BTreeMap, BTreeSet};

use wholly_error::Result;
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use super::hybrid_log::Pended;
use super::lanes::{Chain, Cursor, Redo};
use super::page_engine::Boxed;
use super::{Allocate, CommitSequence, Load, StorageView, read_within};
use crate::format::log::LINE;
use crate::format::{BLOCK, Lba, Run};

/// Lines of log that one change of a line adds, at most, but where old bytes were zeros: the line, and two heads.
const MOST_LOGGED: u64 = 3;
/// Changes after which it does not pay to count the lines of log.
const FEW: u64 = 16;

/// A line that a group changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// As it is on the medium.
    pub old: [u8; LINE],
    /// As it is going to be.
    pub new: [u8; LINE],
    /// The place in the code that changed it last.
    pub site: Site,
    /// Bit n: whether word n changes.
    words: u8,
}

/// The lines of one block that a group changes.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Bit n: whether line n is one of them.
    mask: u64,
    /// They, in order, and the byte of the volume at which each begins.
    changed: Vec<(u64, Changed)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Draft {
    /// By number of the block in the volume. A block may have none.
    lines: BTreeMap<u64, Lines>,
    /// How many lines they are.
    len: usize,
    /// Blocks that the group took for metadata.
    pub(super) fresh: BTreeSet<Lba>,
    /// Where the group logs, once it does.
    pub(super) cursor: Option<Cursor>,
    /// Whether something was stored early. Of an explicit group: by the call that runs.
    pub(super) stored: bool,
    /// Content that it has written elsewhere.
    pub(super) pended: Pended,
    /// What it has in a page cache, with the engine that has one: in the others it takes no room.
    pub(super) paged: Boxed,
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

/// Bytes cut where the places that they go to are multiples of `unit`: pieces, and the place of each.
pub(super) fn cut(unit: usize, mut at: u64, mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (piece, rest) = bytes.split_at(bytes.len().min(unit - at as usize % unit));
        let from = at;
        (at, bytes) = (at + piece.len() as u64, rest);
        (!piece.is_empty()).then_some((from, piece))
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

impl Lines {
    /// Whether the line at a byte of the volume is one of them, and how many are before it.
    fn find(&self, at: u64) -> (bool, usize) {
        let line = at as usize % BLOCK / LINE;
        match self.mask >> line {
            0 => (false, self.changed.len()),
            from => (from & 1 != 0, (self.mask & ((1 << line) - 1)).count_ones() as usize),
        }
    }

    /// Changes bytes of the block. Returns how many lines it has more then, and how many changed.
    fn put(
        &mut self,
        read: &impl Fn(u64, &mut [u8; LINE]) -> Result<()>,
        site: Site,
        at: u64,
        bytes: &[u8],
    ) -> Result<(usize, u64)> {
        let (before, mut changes) = (self.changed.len(), 0);
        for (from, part) in cut(LINE, at, bytes) {
            let inside = from as usize % LINE..from as usize % LINE + part.len();
            let (is_there, place) = self.find(from);
            if is_there {
                changes += u64::from(self.changed[place].1.put(site, inside, part));
                continue;
            }
            let (line, mut old) = (from / LINE as u64 * LINE as u64, [0; LINE]);
            read(line, &mut old)?;
            let mut new = old;
            new[inside].copy_from_slice(part);
            let words = changed_words(&old, &new);
            if words != 0 {
                if self.changed.capacity() == 0 {
                    self.changed.reserve((bytes.len() - (from - at) as usize).div_ceil(LINE));
                }
                self.mask |= 1 << (line as usize % BLOCK / LINE);
                self.changed.insert(place, (line, Changed { old, new, site, words }));
                changes += 1;
            }
        }
        Ok((self.changed.len() - before, changes))
    }

    /// Puts the new bytes over those of a range of the block.
    fn overlay(&self, at: u64, buf: &mut [u8]) {
        let (end, (_, first)) = (at + buf.len() as u64, self.find(at));
        for (line, changed) in self.changed[first..].iter().take_while(|(line, _)| *line < end) {
            let (from, to) = (at.max(*line), end.min(line + LINE as u64));
            let inside = (from - line) as usize..(to - line) as usize;
            buf[(from - at) as usize..(to - at) as usize].copy_from_slice(&changed.new[inside]);
        }
    }

    /// Those that change.
    pub(super) fn changes(&self) -> impl Iterator<Item = (u64, &Changed)> {
        self.changed.iter().map(|(at, line)| (*at, line)).filter(|(_, line)| line.words != 0)
    }
}

impl Redo {
    /// What of it is at `at` and beyond.
    fn tail(self, at: u64) -> Redo {
        let by = at - self.at;
        Redo { from: self.from.map(|from| from + by), at, len: self.len - by }
    }
}

/// Notes data that is newer than what was there.
fn note(data: &mut BTreeMap<u64, Redo>, new: Redo) {
    let end = new.at + new.len;
    let before = data.range(..new.at).next_back().map(|(_, old)| *old);
    if let Some(old) = before.filter(|old| old.at + old.len > new.at) {
        data.insert(old.at, Redo { len: new.at - old.at, ..old });
        if old.at + old.len > end {
            data.insert(end, old.tail(end));
        }
    }
    while let Some(old) = data.range(new.at..end).next().map(|(_, old)| *old) {
        data.remove(&old.at);
        if old.at + old.len > end {
            data.insert(end, old.tail(end));
        }
    }
    data.insert(new.at, new);
}

impl Draft {
    /// That of an explicit group.
    pub fn of_group(group: GroupId) -> Draft {
        Draft { group: Some(group), ..Draft::default() }
    }

    /// The most undo entries that its lines need.
    pub fn most_undo(&self) -> u64 {
        2 * self.len as u64
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

    /// Notes the data that was added to its chain.
    pub(super) fn note_logged(&mut self) {
        let chain = self.chain.as_mut().expect("data goes to a chain");
        chain.entries.redo.drain(..).for_each(|redo| note(&mut self.data, redo));
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
        let (mut at, mut buf) = (at, buf);
        while !buf.is_empty() {
            let (part, rest) = buf.split_at_mut(buf.len().min(BLOCK - at as usize % BLOCK));
            if let Some(lines) = self.lines.get(&(at / BLOCK as u64)) {
                lines.overlay(at, part);
            }
            (at, buf) = (at + part.len() as u64, rest);
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
        let before = self.len;
        for (at, part) in cut(BLOCK, at, bytes) {
            let lines = self.lines.entry(at / BLOCK as u64).or_default();
            let (more, changes) = lines.put(&read, site, at, part)?;
            (self.len, self.changes) = (self.len + more, self.changes + changes);
        }
        Ok(self.len > before)
    }

    /// The lines that change, by block: the draft has none from here on.
    pub(super) fn take_changes(&mut self) -> BTreeMap<u64, Lines> {
        self.len = 0;
        let mut lines = std::mem::take(&mut self.lines);
        lines.retain(|_, lines| lines.changes().next().is_some());
        lines
    }

    /// Whether the line at a byte of the volume changes.
    pub fn changes_line(&self, at: u64) -> bool {
        let lines = self.lines.get(&(at / BLOCK as u64));
        lines.is_some_and(|lines| matches!(lines.find(at), (true, place) if lines.changed[place].1.words != 0))
    }

    /// Whether a block is as it is on the medium.
    pub(super) fn is_unchanged(&self, at: Lba) -> bool {
        self.data.is_empty() && !self.images.contains_key(&at) && !self.has_lines(at)
    }

    /// Whether it has lines of a block.
    pub(super) fn has_lines(&self, at: Lba) -> bool {
        self.lines.get(&at.0).is_some_and(|lines| lines.mask != 0)
    }

    /// Bytes that its lines take, and, with `op_log:replay`, operations and the bytes that these take.
    #[cfg(test)]
    pub fn sizes(&self) -> (usize, Option<(usize, usize)>) {
        let list = self.paged.list();
        (self.len * size_of::<(u64, Changed)>() + self.lines.len() * size_of::<(u64, Lines)>(), list)
    }

    /// How many lines it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A block that the group frees: what it has changed there matters to nobody.
    pub(super) fn forget(&mut self, at: Lba) {
        self.len -= self.lines.remove(&at.0).map_or(0, |lines| lines.changed.len());
    }

    /// Calls `each` with the old bytes of all runs, and where they are. Runs that meet at the end of a line are one.
    pub(super) fn each_old_run(&self, each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        each_old_run(self.changes(), each)
    }

    /// The same of one block.
    pub(super) fn each_old_run_of(&self, at: Lba, each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        each_old_run(self.lines.get(&at.0).into_iter().flat_map(Lines::changes), each)
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
        self.lines.values().flat_map(Lines::changes)
    }
}

/// See [`Draft::each_old_run`].
fn each_old_run<'l>(
    lines: impl Iterator<Item = (u64, &'l Changed)>,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    // What is known of a run that goes on in the next line.
    let (mut at, mut old) = (0, Vec::new());
    let mut lines = lines.peekable();
    while let Some((start, line)) = lines.next() {
        let run = line.runs(LINE).next().expect("it changes");
        let (from, end) = (start + run.start as u64, start + LINE as u64);
        let goes_on = run.end == LINE && lines.peek().is_some_and(|(next, line)| *next == end && line.words & 1 != 0);
        if old.is_empty() && !goes_on {
            each(from, &line.old[run])?;
            continue;
        }
        if old.is_empty() {
            at = from;
            old.reserve(BLOCK);
        }
        old.extend_from_slice(&line.old[run]);
        if !goes_on {
            each(at, &old)?;
            old.clear();
        }
    }
    Ok(())
}

/// Bit n: whether word n of a line changes.
fn changed_words(old: &[u8; LINE], new: &[u8; LINE]) -> u8 {
    let words = old.as_chunks::<8>().0.iter().zip(new.as_chunks::<8>().0);
    words.enumerate().fold(0, |words, (n, (old, new))| words | u8::from(old != new) << n)
}

impl Changed {
    /// Changes bytes of it. Whether they were others.
    fn put(&mut self, site: Site, inside: std::ops::Range<usize>, bytes: &[u8]) -> bool {
        if self.new[inside.clone()] == *bytes {
            return false;
        }
        self.new[inside].copy_from_slice(bytes);
        (self.site, self.words) = (site, changed_words(&self.old, &self.new));
        true
    }

    /// The runs of whole words, at most `most` bytes each, in which it changes.
    pub fn runs(&self, most: usize) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let (mut left, most) = (u32::from(self.words), most / 8);
        std::iter::from_fn(move || {
            let first = (left != 0).then(|| left.trailing_zeros())?;
            let run = left & ((1 << most) - 1) << first;
            left ^= run;
            Some(first as usize * 8..(run.ilog2() as usize + 1) * 8)
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
        let bytes: Vec<u8> = (0..70).collect();
        let cut_of = |at, len: usize| cut(LINE, at, &bytes[..len]).collect::<Vec<_>>();
        assert_eq!(cut_of(60, 70), [(60, &bytes[..4]), (64, &bytes[4..68]), (128, &bytes[68..])]);
        assert_eq!(cut_of(128, 64), [(128, &bytes[..64])]);
        assert_eq!(cut_of(70, 0), []);
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
            note(&mut draft.data, Redo { from, at, len });
            model[at as usize..(at + len) as usize].fill(from.map_or(0, |_| byte(piece)));
            let (from, mut read) = (random.below(100), [0; 150]);
            draft.overlay_data(&*region, from, &mut read).expect("read");
            assert_eq!(read, model[from as usize..from as usize + 150]);
        }
        let mut end = 0;
        draft.data().for_each(|redo| end = if redo.at >= end { redo.at + redo.len } else { panic!("overlap") });
    }

    /// The draft as a plain map of lines does all that it does, by whole lines and bytes.
    #[test]
    fn lines_are_those_of_a_plain_map() {
        use wholly_sim::{Random, SimConfig, World};
        const BLOCKS: u64 = 3;
        let (sites, line) = ([Site("one"), Site("two")], LINE as u64);
        let region = World::new(std::sync::Arc::new(SimConfig { log_len: BLOCKS * 4096, ..SimConfig::pmem() })).log();
        let mut random = Random(11);
        let mut content = vec![0u8; BLOCKS as usize * BLOCK];
        // Some words are zeros, and few values are there, so that a change is often taken back.
        content.iter_mut().for_each(|byte| *byte = random.below(2) as u8 * u8::from(random.below(9) > 0));
        region.write(sites[0], 0, &content).expect("write");
        for _ in 0..60 {
            let (mut draft, mut model) = (Draft::default(), BTreeMap::<u64, (Vec<u8>, Vec<u8>, Site)>::new());
            for _ in 0..random.below(60) {
                if random.below(12) == 0 {
                    let block = random.below(BLOCKS);
                    draft.forget(Lba(block));
                    model.retain(|at, _| at / BLOCK as u64 != block);
                    continue;
                }
                let at = random.below(content.len() as u64);
                let most = if random.below(8) == 0 { content.len() as u64 } else { 3 * line };
                let len = (1 + random.below(most)).min(content.len() as u64 - at);
                let bytes: Vec<u8> = match random.below(3) {
                    0 => content[at as usize..(at + len) as usize].to_vec(),
                    _ => (0..len).map(|_| random.below(2) as u8).collect(),
                };
                let (before, site) = (model.len(), sites[random.below(2) as usize]);
                let read = |at, line: &mut [u8; LINE]| read_within(&*region, at, line);
                let has_more = draft.put_over(read, site, at, &bytes).expect("put");
                for start in (at / line * line..at + len).step_by(LINE) {
                    let (from, to) = (at.max(start), (at + len).min(start + line));
                    let part = &bytes[(from - at) as usize..(to - at) as usize];
                    let old = &content[start as usize..][..LINE];
                    let mut changed = model.get(&start).cloned().unwrap_or((old.to_vec(), old.to_vec(), site));
                    let inside = &mut changed.1[(from - start) as usize..(to - start) as usize];
                    if inside != part {
                        inside.copy_from_slice(part);
                        changed.2 = site;
                        model.insert(start, changed);
                    }
                }
                assert_eq!(has_more, model.len() > before);
            }
            let of = |block: u64| block * BLOCK as u64..(block + 1) * BLOCK as u64;
            assert_eq!(draft.len(), model.len());
            (0..BLOCKS).for_each(|n| assert_eq!(draft.has_lines(Lba(n)), model.range(of(n)).next().is_some()));
            let is_changed = |(_, (old, new, _)): &(&u64, &(Vec<u8>, Vec<u8>, Site))| old != new;
            let changes = draft.changes().map(|(at, it)| (at, it.old.to_vec(), it.new.to_vec(), it.site));
            let expected = model.iter().filter(is_changed).map(|(at, it)| (*at, it.0.clone(), it.1.clone(), it.2));
            assert_eq!(changes.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            // Overlays of all lengths.
            for _ in 0..20 {
                let at = random.below(content.len() as u64) as usize;
                let len = random.below((content.len() - at) as u64 + 1) as usize;
                let mut new = content.clone();
                model.iter().for_each(|(at, (_, line, _))| new[*at as usize..][..LINE].copy_from_slice(line));
                let mut read = content[at..at + len].to_vec();
                draft.overlay(at as u64, &mut read);
                assert_eq!(read, new[at..at + len]);
            }
            // Old bytes: of each line those from its first to its last changed word, joined where they meet.
            let runs = |lines: std::ops::Range<u64>| {
                let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
                for (start, (old, new, _)) in model.range(lines).filter(is_changed) {
                    let mut differ = (0..LINE).step_by(8).filter(|at| old[*at..at + 8] != new[*at..at + 8]);
                    let first = differ.next().expect("it changes");
                    let run = first..differ.next_back().unwrap_or(first) + 8;
                    let from = start + run.start as u64;
                    match runs.last_mut().filter(|(at, before)| at + before.len() as u64 == from) {
                        Some((_, before)) => before.extend_from_slice(&old[run]),
                        None => runs.push((from, old[run].to_vec())),
                    }
                }
                runs
            };
            let (mut all, mut of_one) = (Vec::new(), Vec::new());
            let add = |runs: &mut Vec<(u64, Vec<u8>)>, at, old: &[u8]| {
                runs.push((at, old.to_vec()));
                Ok(())
            };
            draft.each_old_run(|at, old| add(&mut all, at, old)).expect("all");
            assert_eq!(all, runs(0..u64::MAX));
            draft.each_old_run_of(Lba(1), |at, old| add(&mut of_one, at, old)).expect("one");
            assert_eq!(of_one, runs(of(1)));
        }
    }

    /// Runs begin and end with a changed word, never overlap, and have all that changed.
    #[test]
    fn runs_have_each_changed_word_once() {
        for words in 1u32..256 {
            let mut line = Changed { old: [0; LINE], new: [0; LINE], site: Site("test"), words: 0 };
            for at in (0..8).filter(|word| words >> word & 1 != 0).map(|word| word * 8 + 3) {
                assert!(line.put(Site("test"), at..at + 1, &[1]));
            }
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
