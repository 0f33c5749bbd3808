//! What engines that log on persistent memory have in common: lanes, numbers of groups, and stores to blocks that
//! nobody but the running group can reach.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use sync::{AtomicU64, Ordering};
use wholly_error::Result;
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use super::draft::whole_lines;
use super::lanes::Lanes;
use super::{CommitSequence, DataAt, Part, Placed, check_within, read_within};
use crate::format::log::{LINE, LogArea, LogSeed, lines_of};
use crate::format::{BLOCK, Lba, Seed};

/// Undo entries of inodes and names that any group may have: a rename that exchanges two names of five slots has 40.
const FEW: u64 = 64;

pub static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// From so many changed bytes on a block is moved, by engines that move blocks: half of one (MinL2R, section 4.2).
pub const MOVE_FROM: usize = BLOCK / 2;

/// Blocks, at most, to which so many bytes are moved that are written over others.
pub fn most_moved(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.div_ceil(BLOCK as u64) + 1 }
}

/// See the module.
pub struct Logging {
    pub region: Arc<dyn Region>,
    pub lanes: Lanes,
    pub volume: Seed,
    groups: CachePadded<AtomicU64>,
    commits: CachePadded<AtomicU64>,
    /// Where it stores to blocks of running groups.
    fresh: Site,
}

impl Logging {
    /// Over a region on persistent memory, with the log that its superblock names.
    pub fn new(region: Arc<dyn Region>, area: LogArea, (volume, incarnation): (Seed, u64), fresh: Site) -> Logging {
        Self::with(region, (area, true), (volume, incarnation), fresh)
    }

    /// The same; `in_turn`: whether groups take lanes in turn.
    pub fn with(
        region: Arc<dyn Region>,
        (area, in_turn): (LogArea, bool),
        (volume, incarnation): (Seed, u64),
        fresh: Site,
    ) -> Logging {
        let first = || CachePadded::new(AtomicU64::new(1));
        let lanes = Lanes::new(area, LogSeed::of(volume, incarnation), in_turn);
        Logging { region, lanes, volume, groups: first(), commits: first(), fresh }
    }

    /// A new incarnation is durable.
    pub fn start(&self, incarnation: u64) {
        self.lanes.start(LogSeed::of(self.volume, incarnation));
    }

    /// The number of a new group.
    pub fn begin(&self) -> GroupId {
        GroupId(self.groups.fetch_add(1, Ordering::Relaxed))
    }

    /// The next place in commit order.
    pub fn next_order(&self) -> u64 {
        self.commits.fetch_add(1, Ordering::Relaxed)
    }

    /// How many places in commit order were given out.
    pub fn committed(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Places in commit order come after this one.
    pub fn go_on_after(&self, order: u64) {
        self.commits.fetch_max(order.saturating_add(1), Ordering::Relaxed);
    }

    /// Lines of one of so many parts of the log.
    pub fn lines_of_part(&self, parts: u64) -> u64 {
        lines_of(self.lanes.area.run().count) / parts
    }

    #[inline]
    pub fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        read_within(&*self.region, at.byte() + offset as u64, buf)
    }

    /// Undo entries, at most, of an implicit group that changes so many pointers.
    pub fn most_undo(pointers: u64) -> u64 {
        // Four pointers in an entry; at the ends of each of a few runs, fewer.
        FEW + pointers.div_ceil(4)
    }

    /// Stores to a block that nobody else can reach before the commit.
    ///
    /// # Errors
    /// The medium's.
    pub fn store(&self, part: &mut Part<'_>, site: Site, at: u64, bytes: &[u8]) -> Result<()> {
        part.draft.stored = true;
        check_within(&*self.region, at, bytes.len())?;
        Ok(self.region.write(site, at, bytes)?)
    }

    /// Writes to blocks that have no content yet: what `data` does not cover becomes zeros.
    fn store_fresh(&self, part: &mut Part<'_>, home: Lba, offset: usize, data: &[u8]) -> Result<()> {
        let (begin, end) = (home.byte() + offset as u64, (offset + data.len()) % BLOCK);
        if offset > 0 {
            self.store(part, self.fresh, home.byte(), &ZEROS[..offset])?;
        }
        self.store(part, self.fresh, begin, data)?;
        if end > 0 {
            self.store(part, self.fresh, begin + data.len() as u64, &ZEROS[end..])?;
        }
        Ok(())
    }

    /// Writes data that nobody else can read before the commit: to blocks without content, or of the group itself.
    /// `None` if others can read what is there.
    ///
    /// # Errors
    /// The medium's.
    pub fn write_unseen(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Option<Placed>> {
        match at.home {
            None => {
                let run = part.space.take((offset + data.len()).div_ceil(BLOCK) as u64);
                let data = &data[..data.len().min(run.count as usize * BLOCK - offset)];
                self.store_fresh(part, run.start, offset, data)?;
                return Ok(Some(Placed::Elsewhere(run)));
            }
            // The pointer says so still: whatever is there reads as zeros.
            Some(home) if !at.valid => self.store_fresh(part, home, offset, data)?,
            Some(home) if at.own => self.store(part, self.fresh, home.byte() + offset as u64, data)?,
            Some(_) => return Ok(None),
        }
        Ok(Some(Placed::Home(data.len())))
    }

    /// Moves blocks: the one into which the first bytes go, with all that the group has of it, and the whole blocks
    /// that follow. Each gets all its content in a block that the group takes.
    ///
    /// # Errors
    /// The medium's.
    pub fn write_moved(
        &self,
        part: &mut Part<'_>,
        site: Site,
        (home, offset): (Lba, usize),
        data: &[u8],
    ) -> Result<Placed> {
        let (first, rest) = data.split_at(data.len().min(BLOCK - offset));
        let run = part.space.take(1 + (rest.len() / BLOCK) as u64);
        let to = run.start.byte();
        if first.len() == BLOCK {
            self.store(part, site, to, first)?;
        } else if part.draft.is_unchanged(home) {
            self.store_over(part, site, (home, run.start), offset, first)?;
        } else {
            let mut block = [0; BLOCK];
            self.load(home, 0, &mut block)?;
            part.draft.overlay(home.byte(), &mut block);
            part.draft.overlay_data(&*self.region, home.byte(), &mut block)?;
            block[offset..offset + first.len()].copy_from_slice(first);
            self.store(part, site, to, &block)?;
        }
        for (block, i) in rest.chunks_exact(BLOCK).zip(1..run.count) {
            self.store(part, site, to + i * BLOCK as u64, block)?;
        }
        Ok(Placed::Elsewhere(run))
    }

    /// Stores bytes that go over those of a block, and what is left of that, to another block.
    fn store_over(
        &self,
        part: &mut Part<'_>,
        site: Site,
        (from, to): (Lba, Lba),
        offset: usize,
        data: &[u8],
    ) -> Result<()> {
        let (region, end) = (&*self.region, offset + data.len());
        let (first, last) = (offset / LINE * LINE, end.next_multiple_of(LINE));
        check_within(region, from.byte(), BLOCK)?;
        for (at, len) in [(0, first), (last, BLOCK - last)].into_iter().filter(|(_, len)| *len > 0) {
            region.write_from(site, to.byte() + at as u64, region, from.byte() + at as u64, len)?;
        }
        let (whole, ends) = whole_lines(offset..end);
        if !whole.is_empty() {
            let bytes = &data[whole.start - offset..whole.end - offset];
            self.store(part, site, to.byte() + whole.start as u64, bytes)?;
        }
        for range in ends.into_iter().filter(|range| !range.is_empty()) {
            let (line, mut merged) = (range.start / LINE * LINE, [0; LINE]);
            region.read(from.byte() + line as u64, &mut merged)?;
            merged[range.start - line..range.end - line]
                .copy_from_slice(&data[range.start - offset..range.end - offset]);
            self.store(part, site, to.byte() + line as u64, &merged)?;
        }
        Ok(())
    }

    /// The end of a call of an explicit group: what it has stored is handed over to the group's next thread.
    ///
    /// # Errors
    /// The medium's.
    pub fn end_call(&self, part: &mut Part<'_>, site: Site) -> Result<()> {
        match std::mem::take(&mut part.draft.stored) {
            true => Ok(self.region.hand_over(site)?),
            false => Ok(()),
        }
    }
}

/// Commits groups, one by one.
pub fn commit_each(
    parts: &mut [Part<'_>],
    mut one: impl FnMut(&mut Part<'_>) -> Result<u64>,
) -> Result<CommitSequence> {
    let mut last = 0;
    for part in parts {
        last = one(part)?;
    }
    Ok(CommitSequence(last))
}
