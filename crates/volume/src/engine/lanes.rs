//! Lanes of a log: who writes to which, and where the next entry goes.
//!
//! A group takes a lane with its first entry and gives it back when it has ended, so that a lane has at most one
//! running group. Groups of a lane are numbered from 1 in each incarnation and use its halves in turn: the last
//! committed group stays whole until the next one is committed. Lanes are taken in turn, or the one that was given back
//! last. After a commit that failed, by an error or a panic, no group gets a lane any more: what that group has logged
//! is for the next recovery. An explicit group takes a lane for its commit only: until then its data entries go to a
//! chain of its own.

use std::collections::VecDeque;

use sync::{AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, Ordering};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use super::Allocate;
use super::draft::Draft;
use super::logging::ZEROS;
use crate::format::log::{self, ENTRIES, Entry, LINE, LaneSeed, LogArea, LogSeed, OLD_MAX, payload_lines};
use crate::format::{BLOCK, Lba, Run};

/// A lane, while a group has it.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    number: u32,
    /// The last group that was committed in it.
    committed: u64,
}

/// Lanes that no group has.
#[derive(Default)]
struct Free {
    lanes: VecDeque<Lane>,
    /// How many groups wait for one.
    waiting: u32,
}

/// All lanes of a volume.
pub struct Lanes {
    pub area: LogArea,
    seed: AtomicU64,
    free: Mutex<Free>,
    /// Whether a commit has failed. Set with the lock of the free lanes.
    failed: AtomicBool,
    given: Condvar,
    /// Whether lanes are taken in turn.
    in_turn: bool,
    /// Lanes with greater numbers were never taken in this incarnation.
    used: AtomicU32,
}

impl Lanes {
    pub fn new(area: LogArea, seed: LogSeed, in_turn: bool) -> Lanes {
        let (free, given, used) = (Mutex::default(), Condvar::new(), AtomicU32::new(0));
        let failed = AtomicBool::new(false);
        let lanes = Lanes { area, seed: AtomicU64::new(seed.0), free, failed, given, in_turn, used };
        lanes.start(seed);
        lanes
    }

    /// Begins a new incarnation: all entries so far are void.
    pub fn start(&self, seed: LogSeed) {
        self.seed.store(seed.0, Ordering::Release);
        self.failed.store(false, Ordering::Release);
        let lanes = (0..self.area.lanes).map(|number| Lane { number, committed: 0 });
        self.free.lock().unwrap().lanes = lanes.collect();
    }

    pub fn seed(&self) -> LogSeed {
        LogSeed(self.seed.load(Ordering::Acquire))
    }

    /// That no commit has failed.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if one has.
    pub fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => Err(Error::Poisoned("an earlier commit of the volume failed".into())),
            false => Ok(()),
        }
    }

    /// A lane for a group; waits for one.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn take(&self) -> Result<Cursor> {
        let seed = self.seed();
        let mut free = self.free.lock().unwrap();
        let lane = loop {
            self.check()?;
            if let Some(lane) = free.lanes.pop_front() {
                break lane;
            }
            free.waiting += 1;
            free = self.given.wait(free).unwrap();
            free.waiting -= 1;
        };
        if lane.number >= self.used() {
            self.used.store(lane.number + 1, Ordering::Relaxed);
        }
        drop(free);
        let sequence = lane.committed + 1;
        let half = self.area.half(lane.number, sequence);
        let (at, end) = (half.start.byte() + ENTRIES, half.start.byte() + half.count * BLOCK as u64);
        let seed = seed.lane(lane.number);
        let entries = Entries { seed, sequence, at, end, number: 0, sum: 0, redo: Vec::new() };
        Ok(Cursor { lane, half, entries })
    }

    /// Lanes from this one on have had no group whose commit the caller knows of.
    pub fn used(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    fn give(&self, lane: Lane) {
        let mut free = self.free.lock().unwrap();
        match self.in_turn {
            true => free.lanes.push_back(lane),
            false => free.lanes.push_front(lane),
        }
        // Without anybody who waits, it would be a system call for nothing.
        if free.waiting > 0 {
            self.given.notify_one();
        }
    }

    /// Takes the lane of a group back that is aborted before its commit has begun.
    pub fn abort(&self, cursor: &Cursor) {
        self.give(cursor.lane);
    }

    /// Begins a commit.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn commit(&self) -> Result<Committing<'_>> {
        self.check()?;
        Ok(Committing(self))
    }

    /// The chain of an explicit group, which begins in this run.
    pub fn chain(&self, group: GroupId, run: Run) -> Chain {
        let (at, end) = (run.start.byte(), run.start.byte() + run.count * BLOCK as u64);
        let (seed, sequence) = (self.seed().chains(), group.0);
        let entries = Entries { seed, sequence, at, end, number: 0, sum: 0, redo: Vec::new() };
        Chain { start: run.start, entries }
    }

    /// Blocks that so many bytes of data take in a chain, in any pieces of at least a block but for the ends, and so
    /// many entries without data.
    pub fn blocks_in_chain(bytes: u64, zeros: u64) -> u64 {
        let lines = if bytes == 0 { 0 } else { lines_for(bytes) } + zeros;
        if lines == 0 { 0 } else { lines.div_ceil(log::lines_of(1) - 3) + 1 }
    }

    /// Blocks that a group needs besides its lane, for so many entries of metadata and pieces of data.
    pub fn blocks_for(&self, undo: u64, bytes: u64) -> u64 {
        let data = if bytes == 0 { 0 } else { lines_for(bytes) };
        // The last line of each run of blocks is kept for a link.
        let in_half = log::lines_of(self.area.half_blocks.into()) - ENTRIES / LINE as u64 - 2;
        // Blocks that are not consecutive have a link each, and cut a piece in two.
        (undo + data).saturating_sub(in_half).div_ceil(log::lines_of(1) - 3)
    }
}

/// Lines of pieces of data: each has a head and a last line that is not full, and is at least a block long but for the
/// ends.
fn lines_for(bytes: u64) -> u64 {
    bytes / LINE as u64 + 2 * (bytes / BLOCK as u64 + 2)
}

/// Lines of the entry of a run of old bytes.
fn lines_of_old(old: &[u8]) -> u64 {
    if old.len() <= OLD_MAX || is_zeros(old) { 1 } else { 1 + payload_lines(old.len() as u64) }
}

/// Lines that [`Entries::undo_all`] stores, but for links.
pub(super) fn lines_of_all(draft: &Draft) -> u64 {
    draft.changes().map(|(_, line)| line.runs(OLD_MAX).count() as u64).sum()
}

/// Lines that [`Entries::undo_runs`] stores, but for links and what these cut in two.
pub(super) fn lines_of_runs(draft: &Draft) -> u64 {
    let mut lines = 0;
    let counted = draft.each_old_run(|_, old| {
        lines += lines_of_old(old);
        Ok(())
    });
    counted.map_or(0, |()| lines)
}

pub(super) fn is_zeros(bytes: &[u8]) -> bool {
    bytes.chunks(BLOCK).all(|part| *part == ZEROS[..part.len()])
}

/// A commit that has begun. If it is dropped before its end, it has failed.
pub struct Committing<'l>(&'l Lanes);

impl Committing<'_> {
    /// The group is committed, and has nothing left to do: its lane is free.
    pub fn end(self, cursor: &Cursor) {
        self.0.give(Lane { number: cursor.lane.number, committed: cursor.entries.sequence });
        std::mem::forget(self);
    }
}

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        let free = self.0.free.lock().unwrap();
        self.0.failed.store(true, Ordering::Release);
        drop(free);
        self.0.given.notify_all();
    }
}

/// Something that is to be made when the group is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redo {
    /// The byte of the log at which its bytes are; `None`: zeros.
    pub from: Option<u64>,
    pub at: u64,
    pub len: u64,
}

/// What a group writes in its lane.
#[derive(Debug)]
pub struct Cursor {
    lane: Lane,
    /// The half that the group uses.
    half: Run,
    pub entries: Entries,
}

/// The data entries of an explicit group.
#[derive(Debug)]
pub struct Chain {
    start: Lba,
    pub entries: Entries,
}

impl Chain {
    /// The entry of the lane that leads to it.
    pub fn head(&self) -> Entry {
        let Entries { sequence, number, sum, .. } = self.entries;
        Entry::Chain { group: sequence, start: self.start, entries: number, sum }
    }
}

/// Where the next entry of a group goes.
#[derive(Debug)]
pub struct Entries {
    seed: LaneSeed,
    sequence: u64,
    at: u64,
    end: u64,
    number: u32,
    sum: u64,
    pub redo: Vec<Redo>,
}

/// Where entries are stored.
pub struct Sites {
    pub undo: Site,
    pub head: Site,
    pub payload: Site,
    pub link: Site,
}

impl Entries {
    /// Lines before the one that is kept for a link.
    fn room(&self) -> u64 {
        (self.end - self.at) / LINE as u64 - 1
    }

    fn entry(&mut self, region: &dyn Region, site: Site, entry: &Entry) -> Result<()> {
        let (line, check) = log::encode(self.seed, self.at, (self.sequence, self.number), entry);
        region.write(site, self.at, &line)?;
        self.at += LINE as u64;
        self.number += 1;
        self.sum = self.sum.wrapping_add(check);
        Ok(())
    }

    /// Sees to it that there is room for `need` lines. `want` says how many there are to come, if there is none.
    fn make_room(
        &mut self,
        region: &dyn Region,
        link: Site,
        space: &mut dyn Allocate,
        (need, want): (u64, impl FnOnce() -> u64),
    ) -> Result<()> {
        if self.room() >= need {
            return Ok(());
        }
        let run = space.take((want() + 1).div_ceil(log::lines_of(1)));
        self.entry(region, link, &Entry::Link(run))?;
        // Free again when the group has ended.
        space.release(run);
        (self.at, self.end) = (run.start.byte(), run.start.byte() + run.count * BLOCK as u64);
        Ok(())
    }

    /// Notes old bytes. `left` says how many lines follow.
    fn undo(
        &mut self,
        region: &dyn Region,
        sites: &Sites,
        space: &mut dyn Allocate,
        (at, bytes): (u64, &[u8]),
        left: impl FnOnce() -> u64,
    ) -> Result<()> {
        self.make_room(region, sites.link, space, (1, || left() + 1))?;
        let mut old = [0; OLD_MAX];
        old[..bytes.len()].copy_from_slice(bytes);
        self.entry(region, sites.undo, &Entry::Undo { at, len: bytes.len() as u8, old })
    }

    /// Notes the old bytes of all that a draft changes. Whether there is anything.
    pub fn undo_all(
        &mut self,
        region: &dyn Region,
        sites: &Sites,
        space: &mut dyn Allocate,
        draft: &Draft,
    ) -> Result<bool> {
        let mut done = 0;
        for (at, line) in draft.changes() {
            for run in line.runs(OLD_MAX) {
                done += 1;
                let old = (at + run.start as u64, &line.old[run]);
                self.undo(region, sites, space, old, || lines_of_all(draft) - done)?;
            }
        }
        Ok(done > 0)
    }

    /// The same, with one entry for each run of changed words, however long it is.
    pub fn undo_runs(
        &mut self,
        region: &dyn Region,
        sites: &Sites,
        space: &mut dyn Allocate,
        draft: &Draft,
    ) -> Result<()> {
        let mut done = 0;
        draft.each_old_run(|at, old| {
            done += lines_of_old(old);
            let left = || lines_of_runs(draft) - done;
            if old.len() <= OLD_MAX {
                return self.undo(region, sites, space, (at, old), left);
            }
            if is_zeros(old) {
                self.make_room(region, sites.link, space, (1, || left() + 1))?;
                return self.entry(region, sites.undo, &Entry::OldZeros { at, len: old.len() as u64 });
            }
            self.with_payload(region, sites, space, ((at, old), left), |at, len, sum| Entry::Old { at, len, sum })
        })
    }

    /// Notes new bytes.
    pub fn data(
        &mut self,
        region: &dyn Region,
        sites: &Sites,
        space: &mut dyn Allocate,
        data: (u64, &[u8]),
    ) -> Result<()> {
        self.with_payload(region, sites, space, (data, || 0), |at, len, sum| Entry::Data { at, len, sum })
    }

    /// Notes bytes of any length. `left` says how many lines follow.
    fn with_payload(
        &mut self,
        region: &dyn Region,
        sites: &Sites,
        space: &mut dyn Allocate,
        ((mut at, mut bytes), left): ((u64, &[u8]), impl Fn() -> u64),
        entry: fn(u64, u64, u64) -> Entry,
    ) -> Result<()> {
        while !bytes.is_empty() {
            let lines = 1 + payload_lines(bytes.len() as u64);
            self.make_room(region, sites.link, space, (2, || lines + left()))?;
            let most = (self.room() - 1) as usize * LINE;
            let (part, rest) = bytes.split_at(bytes.len().min(most));
            let len = part.len() as u64;
            let entry = entry(at, len, self.seed.payload_sum(self.at, part));
            self.entry(region, sites.head, &entry)?;
            region.write(sites.payload, self.at, part)?;
            if let Entry::Data { .. } = entry {
                self.redo.push(Redo { from: Some(self.at), at, len });
            }
            self.at += payload_lines(len) * LINE as u64;
            (at, bytes) = (at + len, rest);
        }
        Ok(())
    }

    /// Notes zeros.
    pub fn zero(
        &mut self,
        region: &dyn Region,
        sites: &Sites,
        space: &mut dyn Allocate,
        (at, len): (u64, u64),
    ) -> Result<()> {
        self.make_room(region, sites.link, space, (1, || 1))?;
        self.redo.push(Redo { from: None, at, len });
        self.entry(region, sites.head, &Entry::Zero { at, len })
    }

    /// Notes where the data of the group is. The first entry in its lane.
    pub fn chain(&mut self, region: &dyn Region, sites: &Sites, chain: &Chain) -> Result<()> {
        self.entry(region, sites.link, &chain.head())
    }
}

impl Cursor {
    /// A commit entry of the engine's own making, where it goes, and its check.
    pub fn commit_line(&self, entry: &Entry) -> (u64, [u8; LINE], u64) {
        let at = self.half.start.byte();
        let (line, check) = log::encode(self.entries.seed, at, (self.entries.sequence, 0), entry);
        (at, line, check)
    }

    /// The lane, and the number of the group in it.
    pub fn group(&self) -> (u32, u64) {
        (self.lane.number, self.entries.sequence)
    }

    /// How many entries there are, and the sum of their checks.
    pub fn total(&self) -> (u32, u64) {
        (self.entries.number, self.entries.sum)
    }

    /// Whether entries are in other blocks than those of the lane.
    pub fn has_links(&self) -> bool {
        self.entries.end != self.half.start.byte() + self.half.count * BLOCK as u64
    }

    /// The commit entry, and where it goes. `redo`: whether there is data.
    pub fn commit_entry(&self, order: u64, redo: bool) -> (u64, [u8; LINE], u64) {
        let at = self.half.start.byte();
        let Entries { seed, sequence, number, sum, .. } = self.entries;
        let (line, check) = log::encode(seed, at, (sequence, 0), &Entry::Commit { entries: number, sum, redo, order });
        (at, line, check)
    }
}

/// What recovery finds in a lane.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// To be made, in this order, because the group is committed.
    pub redo: Vec<Redo>,
    /// Where the commit entry stands that says so.
    pub commit: Option<u64>,
    /// To be undone, in the reverse of this order, because it is not.
    pub undo: Vec<(u64, Vec<u8>)>,
}

/// Reads a lane.
///
/// # Errors
/// If the entries of a committed group are damaged; the medium's.
pub fn read_lane(region: &dyn Region, area: &LogArea, seed: LogSeed, lane: u32) -> Result<Found> {
    let last = last_commit(region, area, seed, lane)?;
    let (chains, seed) = (seed.chains(), seed.lane(lane));
    let mut found = Found::default();
    let committed = last.map_or(0, |(read, _)| read.sequence);
    if let Some((read, half)) = last
        && let Entry::Commit { entries, sum, redo: true, .. } = read.entry
    {
        let mut settled = [0; 8];
        super::read_within(region, half.start.byte() + log::SETTLED, &mut settled)?;
        if settled != read.check.to_le_bytes() {
            found.commit = Some(half.start.byte());
            let from = half.start.byte() + ENTRIES;
            let chain = read_redo(region, (seed, from, committed), (entries, sum), &mut found.redo)?;
            if let Some(Entry::Chain { group, start, entries, sum }) = chain {
                let from = start.0.saturating_mul(BLOCK as u64);
                if read_redo(region, (chains, from, group), (entries, sum), &mut found.redo)?.is_some() {
                    return Err(damaged());
                }
            }
        }
    }
    walk(region, running(area, seed, lane, committed), &mut |_, read| {
        if let Entry::Undo { at, len, old } = read.entry {
            found.undo.push((at, old[..usize::from(len)].to_vec()));
        }
        Ok(true)
    })?;
    Ok(found)
}

/// The commit entry of the last committed group of a lane, and the half with it.
///
/// # Errors
/// The medium's.
pub(super) fn last_commit(
    region: &dyn Region,
    area: &LogArea,
    seed: LogSeed,
    lane: u32,
) -> Result<Option<(log::Read, Run)>> {
    let mut last: Option<(log::Read, Run)> = None;
    for parity in 0..2 {
        let half = area.half(lane, parity);
        let mut line = [0; LINE];
        super::read_within(region, half.start.byte(), &mut line)?;
        let read = log::decode(seed.lane(lane), half.start.byte(), &line);
        let is_commit = |read: &log::Read| matches!(read.entry, Entry::Commit { .. }) && read.sequence % 2 == parity;
        if let Some(read) = read.filter(is_commit)
            && last.is_none_or(|(last, _)| read.sequence > last.sequence)
        {
            last = Some((read, half));
        }
    }
    Ok(last)
}

/// Where the group after the last committed one of a lane has its entries.
pub(super) fn running(area: &LogArea, seed: LaneSeed, lane: u32, committed: u64) -> (LaneSeed, u64, u64) {
    let sequence = committed + 1;
    (seed, area.half(lane, sequence).start.byte() + ENTRIES, sequence)
}

fn damaged() -> Error {
    super::corrupt("the log", crate::format::Fault("a committed group is damaged"))
}

/// Reads what the entries of a committed group say is to be made: so many entries, whose checks have this sum. Returns
/// the entry that leads to the group's chain, if there is one.
fn read_redo(
    region: &dyn Region,
    (seed, from, sequence): (LaneSeed, u64, u64),
    (entries, sum): (u32, u64),
    redo: &mut Vec<Redo>,
) -> Result<Option<Entry>> {
    let (mut count, mut total, mut chain) = (0, 0u64, None);
    walk(region, (seed, from, sequence), &mut |at, read| {
        (count, total) = (count + 1, total.wrapping_add(read.check));
        match read.entry {
            Entry::Data { at: to, len, sum } => {
                if len > region.len() {
                    return Err(damaged());
                }
                let mut bytes = vec![0; len as usize];
                super::read_within(region, at + LINE as u64, &mut bytes)?;
                if seed.payload_sum(at, &bytes) != sum {
                    return Err(damaged());
                }
                redo.push(Redo { from: Some(at + LINE as u64), at: to, len });
            }
            Entry::Zero { at, len } if len <= BLOCK as u64 => redo.push(Redo { from: None, at, len }),
            Entry::Chain { .. } => chain = Some(read.entry),
            Entry::Undo { .. } | Entry::Old { .. } | Entry::OldZeros { .. } | Entry::Link(_) => {}
            Entry::Commit { .. } | Entry::Root(_) | Entry::Zero { .. } => return Err(damaged()),
        }
        Ok(count < entries)
    })?;
    if (count, total) == (entries, sum) { Ok(chain) } else { Err(damaged()) }
}

/// Calls `each` with the entries of a group from a byte on, and where they stand, until it returns `false` or there are
/// no more.
pub(super) fn walk(
    region: &dyn Region,
    (seed, from, sequence): (LaneSeed, u64, u64),
    each: &mut dyn FnMut(u64, log::Read) -> Result<bool>,
) -> Result<()> {
    let (mut at, mut number) = (from, 0);
    // Numbers grow, so that damaged links cannot go round.
    while at.checked_add(LINE as u64).is_some_and(|end| end <= region.len()) {
        let mut line = [0; LINE];
        region.read(at, &mut line)?;
        let Some(read) = log::decode(seed, at, &line) else { break };
        if (read.sequence, read.number) != (sequence, number) || !each(at, read)? {
            break;
        }
        number += 1;
        at += LINE as u64;
        match read.entry {
            Entry::Link(Run { start: Lba(start), .. }) => at = start.saturating_mul(BLOCK as u64),
            Entry::Data { len, .. } | Entry::Old { len, .. } => {
                at = at.saturating_add(payload_lines(len).saturating_mul(LINE as u64))
            }
            _ => {}
        }
    }
    Ok(())
}
