//! Appending to a lane.
//!
//! On persistent memory payloads go to their place in the log while the group runs, one line at its head commits it,
//! one fence makes it survive. On a disk only groups come here that are too large for memory, and their commit record
//! goes elsewhere: a lane holds what it appends, and writes a segment by one call of whole blocks when it leaves it. So
//! a segment has one record there.
//!
//! A lane is owned by one group, or one call, at a time; owning the [`Lane`] value is the proof.
//!
//! # Groups that write over their own bytes
//!
//! A group that [goes on for long](Lane::open_to_overwrite) may change what it has appended, as long as it is not
//! committed. Terms: its *open* records are the one that is being filled and, on persistent memory, its *kept* parts:
//! those whose entries are in memory, and whose first line is not stored.
//!
//! 1. A kept part becomes a record when the group commits or aborts, or gives the part up. So before that nothing in
//!    its place proves itself, whatever is stored there in whatever order (invariant 1 of the log).
//! 2. An entry's checksum is that of the payload as it is stored when its record is. Where a part of a payload was
//!    written over, the entry is *stale*: its checksum is computed anew from what is stored, right before the record.
//! 3. A part that is [given up](Lane::give_up_oldest) becomes a part of a group that nobody commits, where there are
//!    other records in its segment: those behind it are found by way of it, and if there are groups before it, the
//!    header of the next segment tells where it ends (invariant 8 of the log). It is durable before the next commit
//!    record of the lane, and holds its segment until then.
//! 4. Parts are given up from the oldest on. What is left of the group replays as if it had begun later, but that cuts
//!    and zeros in parts that are gone are gone with them: the client tells them again in [the first
//!    part](Lane::store_commit).
//!
//! Libnvmmio writes over the log entry of a block in place, too (section 3.1).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use wholly_media::disk::AlignedBuf;
use zerocopy::IntoBytes;

use super::checksum::{PIECE, fold, payload_checksum, payload_seed, record_seed};
use super::layout::{ENTRY, Entry, FLAG_BATCH_START, Head, LINE, RecordKind, SegmentHeader, first_line, tail_lines};
use super::site;
use super::{Client, ClientKind, Counters, Log};
use sync::thread_token;
use wholly_error::Result;

/// Entries of one record at most; more make a part.
const MAX_ENTRIES: usize = 4096;

/// Parts of one group: their numbers have 16 bits.
const MOST_PARTS: u16 = u16::MAX - 1;

/// The number of the first part of a group that [gives parts up](Lane::give_up_oldest), where parts are not kept: lower
/// ones are for what it tells before all others.
const FIRST_PARTS: u16 = 1 << 12;

/// The lane has no room and no segment is free: make room and call again; nothing was changed.
#[derive(Debug)]
pub struct NeedRoom;

/// What an append can meet.
#[derive(Debug)]
pub enum AppendError {
    /// See [`NeedRoom`].
    NeedRoom,
    /// The group has more parts than can be counted; nothing was changed.
    TooManyParts,
    /// The medium failed.
    Failed(wholly_error::Error),
}

impl From<NeedRoom> for AppendError {
    fn from(_: NeedRoom) -> Self {
        AppendError::NeedRoom
    }
}

impl<E: Into<wholly_error::Error>> From<E> for AppendError {
    fn from(error: E) -> Self {
        AppendError::Failed(error.into())
    }
}

/// The place where one group at a time appends. Positions are bytes from the start of the log.
pub struct Lane<C: Client> {
    number: u32,
    segment: Option<u32>,
    segment_sequence: u64,
    seed: u64,
    end: u64,
    /// The group that the open record belongs to.
    group: u64,
    /// The sequence of the last group that it has committed.
    last: u64,
    /// The open record: its first line, and where the next payload goes.
    start: u64,
    at: u64,
    entries: Vec<Entry<C::Kind>>,
    stale: Stale,
    /// The oldest first.
    parts: VecDeque<Part<C::Kind>>,
    /// The number of the next part. Numbers ascend, and have gaps where parts were given up.
    next_part: u16,
    /// Whether the open group writes over its own bytes.
    writes_over: bool,
    /// See [`keep_free`](Self::keep_free).
    kept_free: u64,
    /// Where kept parts begin, and how many parts were closed before each.
    kept: BTreeMap<u64, u64>,
    /// Parts of the open group that were given up.
    given_up: u64,
    /// Bytes of its parts.
    closed: u64,
    /// Parts that were given up, and are not durable as such: segment, first byte, and the one behind the last.
    unfenced: Vec<(u32, u64, u64)>,
    /// How many parts come before all others.
    first_parts: usize,
    /// While these are told: how many others there are, and the number of the next of these.
    others: Option<(usize, u16)>,
    /// On a disk, while there is a segment: what it is to hold, from its first byte to `at`.
    held: Option<AlignedBuf>,
    /// The thread whose stores are not fenced yet: `NOBODY` if all are, `SEVERAL` where there are more.
    storer: u64,
    counters: Arc<Counters>,
}

/// See [`Lane::oldest`].
pub struct Oldest<'a, K> {
    /// Where it is: the position of its first byte, and the one behind its last.
    pub bytes: (u64, u64),
    /// What it tells.
    pub entries: &'a [Entry<K>],
}

/// A piece of the open group. Positions are bytes from the start of the log.
struct Part<K> {
    segment: u32,
    start: u64,
    end: u64,
    /// The seed of its segment.
    seed: u64,
    /// Its entries, where the group writes over its own bytes.
    entries: Vec<Entry<K>>,
    stale: Stale,
    /// Whether its first line is not stored.
    is_kept: bool,
}

impl<K: ClientKind> Part<K> {
    /// Stores what makes a record of a kept part.
    #[cold]
    fn store<C: Client<Kind = K>>(&mut self, log: &Log<C>, group: u64, number: u16) -> Result<()> {
        let Part { segment, start, end, seed, .. } = *self;
        self.stale.renew(log, seed, start, &mut self.entries, None)?;
        let mut tail = vec![0; (tail_lines(self.entries.len()) * LINE) as usize];
        fill_tail(&self.entries, &mut tail);
        let head = Head {
            sequence: group,
            after: 0,
            lines: ((end - start) / LINE) as u16,
            entries: self.entries.len() as u16,
            part: number,
            kind: RecordKind::Part,
            flags: FLAG_BATCH_START,
        };
        let lines_left = (log.segment_start(segment) + log.segment_bytes() - start) / LINE;
        assert!(head.is_sound(lines_left), "a record that nobody can read: {head:?}");
        if !tail.is_empty() {
            log.region().write(site::LANE_ENTRIES, end - tail.len() as u64, &tail)?;
        }
        let mut line = [0; LINE as usize / 8];
        first_line(&mut line, record_seed(seed, start), head, self.entries.first(), &tail);
        self.is_kept = false;
        Ok(log.region().write(site::LANE_PART, start, line.as_bytes())?)
    }
}

/// Which entries of a record are stale. Most records have none.
#[derive(Default)]
struct Stale(Option<Box<[u64; MAX_ENTRIES / 64]>>);

impl Stale {
    fn add(&mut self, entry: usize) {
        self.0.get_or_insert_with(|| Box::new([0; MAX_ENTRIES / 64]))[entry / 64] |= 1 << (entry % 64);
    }

    fn remove(&mut self, entry: usize) {
        if let Some(bits) = &mut self.0 {
            bits[entry / 64] &= !(1 << (entry % 64));
        }
    }

    /// Computes the checksums of stale entries of the record at `start`: of what is stored, or held. None is stale
    /// afterwards.
    #[cold]
    fn renew<C: Client>(
        &mut self,
        log: &Log<C>,
        seed: u64,
        start: u64,
        entries: &mut [Entry<C::Kind>],
        held: Option<&[u8]>,
    ) -> Result<()> {
        let Some(bits) = self.0.take() else { return Ok(()) };
        let mut payload = Vec::new();
        for (_, entry) in entries.iter_mut().enumerate().filter(|(i, _)| bits[i / 64] >> (i % 64) & 1 != 0) {
            let position = start + u64::from(entry.line) * LINE;
            let length = entry.length as usize;
            let payload = match held {
                Some(held) => &held[(position - log.start_around(position)) as usize..][..length],
                None => {
                    payload.resize(length, 0);
                    log.region().read(position, &mut payload)?;
                    &payload[..]
                }
            };
            entry.payload_checksum = payload_checksum(seed, position, payload);
        }
        Ok(())
    }
}

/// The entry of a record from `start` on whose payload holds a byte of the log, if one does. Often it is the `likely`
/// one.
#[inline]
fn entry_of<K: ClientKind>(entries: &[Entry<K>], start: u64, position: u64, likely: u16) -> Option<usize> {
    let likely = usize::from(likely);
    let has_it = |entry: &Entry<K>| {
        let begin = start + u64::from(entry.line) * LINE;
        (begin..begin + u64::from(entry.length)).contains(&position)
    };
    if entries.get(likely).is_some_and(has_it) { Some(likely) } else { find_entry(entries, start, position) }
}

#[cold]
fn find_entry<K: ClientKind>(entries: &[Entry<K>], start: u64, position: u64) -> Option<usize> {
    let begin = |entry: &Entry<K>| start + u64::from(entry.line) * LINE;
    let (mut low, mut high) = (0, entries.len());
    // Those without a payload tell no line.
    while low < high {
        let middle = (low + high) / 2;
        let told = (low..=middle).rev().find(|&i| entries[i].length > 0);
        match told {
            Some(told) if begin(&entries[told]) > position => high = told,
            _ => low = middle + 1,
        }
    }
    let found = (0..low).rev().find(|&i| entries[i].length > 0)?;
    (position < begin(&entries[found]) + u64::from(entries[found].length)).then_some(found)
}

const NOBODY: u64 = u64::MAX;
const SEVERAL: u64 = u64::MAX - 1;

impl<C: Client> Lane<C> {
    /// A lane that has no segment yet.
    pub fn new(log: &Log<C>, number: u32) -> Self {
        Lane {
            number,
            segment: None,
            segment_sequence: 0,
            seed: 0,
            end: 0,
            group: 0,
            last: 0,
            start: 0,
            at: 0,
            entries: Vec::new(),
            stale: Stale::default(),
            parts: VecDeque::new(),
            next_part: 0,
            writes_over: false,
            kept_free: 0,
            kept: BTreeMap::new(),
            given_up: 0,
            closed: 0,
            unfenced: Vec::new(),
            first_parts: 0,
            others: None,
            held: None,
            storer: NOBODY,
            counters: log.new_lane_counters(),
        }
    }

    /// Whether the open group has no entry.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.entries.is_empty() && self.parts.is_empty()
    }

    /// Begins a group.
    #[inline]
    pub fn open(&mut self, group: u64) {
        debug_assert!(self.is_clean(), "a lane carries one group at a time");
        self.group = group;
        self.at = self.start + LINE;
        (self.writes_over, self.kept_free, self.next_part) = (false, 0, 0);
    }

    /// Lets the group that has just begun [write over](Self::write_over) its own bytes, and
    /// [give parts up](Self::give_up_oldest). It takes memory for each of its entries.
    pub fn open_to_overwrite(&mut self) {
        debug_assert!(self.is_clean(), "it has just begun");
        self.writes_over = true;
        self.next_part = FIRST_PARTS;
    }

    /// Bytes of payload that still fit into the open record as one more entry; `None` where not even an empty one fits.
    #[inline]
    pub fn room(&self) -> Option<u64> {
        if self.entries.len() >= MAX_ENTRIES {
            return None;
        }
        self.end.checked_sub(self.at + tail_lines(self.entries.len() + 1) * LINE + self.kept_free)
    }

    /// Keeps so many bytes free in each segment that the open group fills, for what comes with its commit.
    #[inline]
    pub fn keep_free(&mut self, bytes: u64) {
        self.kept_free = bytes.next_multiple_of(LINE);
    }

    /// See [`keep_free`](Self::keep_free).
    #[inline]
    pub fn kept_free(&self) -> u64 {
        self.kept_free
    }

    /// Makes room for one more entry with `bytes` bytes of payload, which is not more than fits into a segment.
    #[inline]
    pub fn reserve(&mut self, log: &Log<C>, bytes: u64) -> Result<(), AppendError> {
        debug_assert!(bytes <= log.record_capacity());
        if self.room().is_some_and(|room| room >= bytes) {
            return Ok(());
        }
        if self.keeps(log) && self.entries.len() >= MAX_ENTRIES {
            // Of small entries a segment holds more than a record.
            self.close_part(log)?;
            if self.room().is_some_and(|room| room >= bytes) {
                return Ok(());
            }
        }
        self.next_segment(log)
    }

    /// Whether parts of the open group are kept.
    #[inline]
    fn keeps(&self, log: &Log<C>) -> bool {
        self.writes_over && log.is_pmem()
    }

    /// Appends one entry whose payload fits into [`room`](Self::room). Nothing survives before
    /// [`fence_commit`](Self::fence_commit). Returns where the payload stands.
    #[inline(always)]
    pub fn append(&mut self, log: &Log<C>, kind: C::Kind, file: u64, offset: u64, data: &[u8]) -> Result<u64> {
        debug_assert!(self.room().is_some_and(|room| room >= data.len() as u64));
        self.note_store();
        let position = self.at;
        let payload_checksum = match &mut self.held {
            None => store_and_hash(log, self.seed, position, data)?,
            Some(held) => hold_and_hash(log, held, self.seed, position, data),
        };
        self.entries.push(Entry {
            payload_checksum,
            offset,
            file,
            length: data.len() as u32,
            line: if data.is_empty() { 0 } else { ((position - self.start) / LINE) as u16 },
            kind,
        });
        self.at += (data.len() as u64).next_multiple_of(LINE);
        Ok(position)
    }

    /// The number of the last entry in its record.
    #[inline]
    pub fn last_entry(&self) -> u16 {
        self.entries.len().saturating_sub(1) as u16
    }

    /// Stores bytes over those that the open group has appended at `position`, where they are found sooner if `entry`
    /// is the number of their entry in its record. Returns whether it did: not where an entry ends before the bytes do,
    /// nor on a disk where the segment was written. They survive as the group does.
    #[inline]
    pub fn write_over(&mut self, log: &Log<C>, position: u64, entry: u16, data: &[u8]) -> Result<bool> {
        if (self.start..self.at).contains(&position) {
            let Some(i) = entry_of(&self.entries, self.start, position, entry) else { return Ok(false) };
            self.note_store();
            let (entry, held) = (&mut self.entries[i], self.held.as_deref_mut());
            return store_over(log, (self.seed, self.start), (entry, i), &mut self.stale, held, position, data);
        }
        self.write_over_part(log, position, entry, data)
    }

    #[inline(never)]
    fn write_over_part(&mut self, log: &Log<C>, position: u64, entry: u16, data: &[u8]) -> Result<bool> {
        let Some((_, closed)) = self.kept.range(..=position).next_back() else { return Ok(false) };
        let part = &mut self.parts[(closed - self.given_up) as usize];
        if position >= part.end {
            return Ok(false);
        }
        let Some(i) = entry_of(&part.entries, part.start, position, entry) else { return Ok(false) };
        let place = (part.seed, part.start);
        let written = store_over(log, place, (&mut part.entries[i], i), &mut part.stale, None, position, data);
        self.note_store();
        written
    }

    /// Whether bytes can be [written over](Self::write_over) that the open group has appended at `position`.
    #[inline]
    pub fn can_write_over(&self, position: u64) -> bool {
        let is_kept = || {
            let part = self.kept.range(..=position).next_back();
            part.is_some_and(|(_, closed)| position < self.parts[(closed - self.given_up) as usize].end)
        };
        (self.start..self.at).contains(&position) || is_kept()
    }

    /// Bytes of the log from the first of the open group on, in all of its parts.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.closed + (self.at - self.start)
    }

    /// Number of parts of the open group.
    #[inline]
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The oldest part of those that can be given up.
    pub fn oldest(&self) -> Option<Oldest<'_, C::Kind>> {
        let oldest = self.parts.front().filter(|_| self.writes_over)?;
        Some(Oldest { bytes: (oldest.start, oldest.end), entries: &oldest.entries })
    }

    /// Whether parts of the open group were given up.
    #[inline]
    pub fn has_given_up(&self) -> bool {
        self.given_up > 0
    }

    /// Gives up the [oldest](Self::oldest) part, whose bytes the group needs no more. A segment that had only such
    /// parts becomes free when [`Log::release_unused`] is called.
    pub fn give_up_oldest(&mut self, log: &Log<C>) -> Result<()> {
        let Some(part) = self.parts.pop_front() else { return Ok(()) };
        self.given_up += 1;
        self.first_parts = self.first_parts.saturating_sub(1);
        self.give_up(log, part)
    }

    fn give_up(&mut self, log: &Log<C>, mut part: Part<C::Kind>) -> Result<()> {
        let (segment, start, end) = (part.segment, part.start, part.end);
        self.closed -= end - start;
        self.kept.remove(&start);
        if !log.is_pmem() {
            // The medium has it as a part of the group. The sync before the commit makes this write durable, whichever
            // thread calls it.
            let mut nothing = AlignedBuf::zeroed(log.block() as usize);
            nothing.fill(0);
            log.region().write(site::SPILL_GIVE_UP, start, &nothing)?;
            log.segment(segment).end_part(0);
            return Ok(());
        }
        let own = 1 + self.unfenced.iter().filter(|given_up| given_up.0 == segment).count() as u32;
        if Some(segment) != self.segment && log.segment(segment).has_only_parts(own) {
            // The segment has no other record, and had no committed group: recovery does not look for one.
            self.unfenced.retain(|given_up| given_up.0 != segment);
            (0..own).for_each(|_| log.segment(segment).end_part(0));
            return Ok(());
        }
        self.unfenced.push((segment, start, end));
        self.note_store();
        part.store(log, log.take_sequence(), 0)
    }

    /// What was given up is durable as such.
    fn end_given_up(&mut self, log: &Log<C>) {
        self.unfenced.drain(..).for_each(|(segment, ..)| log.segment(segment).end_part(0));
    }

    /// Closes the open record, so that what is appended next can become [the first part](Self::end_first_part). After
    /// an error, call [`cancel_first_part`](Self::cancel_first_part).
    pub fn begin_first_part(&mut self, log: &Log<C>) -> Result<()> {
        debug_assert!(self.writes_over, "others tell things in their order");
        // Those of a commit that failed.
        for _ in 0..self.first_parts {
            self.give_up_oldest(log)?;
        }
        self.close_whole(log)?;
        self.others = Some((self.parts.len(), self.next_part));
        self.next_part = 0;
        Ok(())
    }

    /// What was appended since [`begin_first_part`](Self::begin_first_part) comes before all else of the group.
    pub fn end_first_part(&mut self, log: &Log<C>) -> Result<()> {
        self.close_whole(log)?;
        let Some((others, next_part)) = self.others.take() else { return Ok(()) };
        debug_assert!(self.next_part <= FIRST_PARTS, "numbers of others follow");
        self.next_part = next_part;
        self.first_parts = self.parts.len() - others;
        self.parts.rotate_left(others);
        // Nothing is written over between this and the commit.
        self.kept.clear();
        Ok(())
    }

    /// Nothing that was appended since [`begin_first_part`](Self::begin_first_part) counts.
    pub fn cancel_first_part(&mut self, log: &Log<C>) -> Result<()> {
        let Some((others, next_part)) = self.others.take() else { return Ok(()) };
        self.next_part = next_part;
        self.entries.clear();
        self.stale = Stale::default();
        self.at = self.start + LINE;
        if !self.parts.is_empty() {
            self.entries.push(self.told_parts());
        }
        while self.parts.len() > others
            && let Some(part) = self.parts.pop_back()
        {
            self.give_up(log, part)?;
        }
        Ok(())
    }

    /// Closes the open record, if it tells anything. On a disk a segment has one record.
    fn close_whole(&mut self, log: &Log<C>) -> Result<()> {
        if self.entries.iter().any(|entry| entry.kind != C::Kind::PARTS) {
            self.close_part(log)?;
            if !log.is_pmem() {
                self.leave_segment(log);
            }
        }
        Ok(())
    }

    fn leave_segment(&mut self, log: &Log<C>) {
        if let Some(segment) = self.segment.take() {
            log.segment(segment).seal(self.start);
        }
        self.held = None;
        self.end = 0;
    }

    /// What its parts are known by: see [`Request::group`](super::batch::Request::group).
    pub fn group(&self) -> u64 {
        self.group
    }

    /// How many parts more the open group can have, where they are not kept.
    pub fn numbers_left(&self) -> u16 {
        MOST_PARTS - self.next_part.max(self.parts.len() as u16)
    }

    /// Reads back what the open group has appended.
    #[inline]
    pub fn read(&self, log: &Log<C>, position: u64, buf: &mut [u8]) -> Result<()> {
        match &self.held {
            Some(held) if (self.start..self.at).contains(&position) => {
                let at = (position - log.start_around(position)) as usize;
                buf.copy_from_slice(&held[at..at + buf.len()]);
                Ok(())
            }
            _ => log.read_payload(position, buf),
        }
    }

    /// Stores the commit record of the open group, which survives once [`fence_commit`](Self::fence_commit) has
    /// returned. It is in flight with `sequence`; `after` is as in [`Head::after`].
    #[inline(always)]
    pub fn store_commit(&mut self, log: &Log<C>, sequence: u64, after: u64) -> Result<()> {
        let me = self.own_stores(log)?;
        if !self.parts.is_empty() || !self.unfenced.is_empty() {
            self.write_parts(log)?;
            self.fence(log, site::LANE_PARTS_FENCE)?;
            self.end_given_up(log);
        }
        self.write_record(log, sequence, after, RecordKind::Commit)?;
        self.storer = me;
        // Told of a group that may fail yet: a bound that is too high keeps the segment longer, and after a failed
        // fence nothing goes on.
        let segment = log.segment(self.segment.expect("a group that commits has a segment"));
        segment.note_sequence_alone(sequence);
        segment.set_end(self.at);
        Ok(())
    }

    /// Makes the open group survive, whose commit record was [stored](Self::store_commit): it does when this returns.
    /// The fence waits for memory; what needs nothing to survive is best done between the two.
    #[inline(always)]
    pub fn fence_commit(&mut self, log: &Log<C>) -> Result<()> {
        self.fence(log, site::LANE_COMMIT_FENCE)
    }

    /// Closes the open record as a part that is not fenced, and leaves the segment: what is left of the group is
    /// committed elsewhere. Returns the number of parts; [`retire`](Self::retire) ends them.
    pub fn close(&mut self, log: &Log<C>) -> Result<u16> {
        if self.entries.iter().any(|entry| entry.kind != C::Kind::PARTS) {
            self.close_part(log)?;
        }
        self.entries.clear();
        self.leave_segment(log);
        Ok(self.parts.len() as u16)
    }

    /// The lane is free for the next group. The one before was committed, and has been published.
    #[inline]
    pub fn finish(&mut self, log: &Log<C>, sequence: u64) {
        if !self.parts.is_empty() || self.given_up > 0 {
            self.retire(log, sequence);
        }
        self.start = self.at;
    }

    /// Forgets the open group. Its bytes are dead: the next record takes the place of the open one. Parts in segments
    /// that the lane has left are made durable all the same, because the header of the segment after them tells where
    /// they end (invariant 8).
    pub fn abort(&mut self, log: &Log<C>) -> Result<()> {
        self.entries.clear();
        self.stale = Stale::default();
        // On a disk no commit record follows in this lane, so that nobody asks where the segment ends.
        let fence = (!self.parts.is_empty() || !self.unfenced.is_empty()) && log.is_pmem();
        let fenced = if fence { self.make_parts_durable(log) } else { Ok(()) };
        self.retire(log, 0);
        fenced
    }

    fn make_parts_durable(&mut self, log: &Log<C>) -> Result<()> {
        self.own_stores(log)?;
        self.write_parts(log)?;
        self.fence(log, site::LANE_PARTS_FENCE)
    }

    /// Stores what makes records of kept parts.
    fn write_parts(&mut self, log: &Log<C>) -> Result<()> {
        self.kept.clear();
        for (number, part) in self.parts.iter_mut().enumerate().filter(|(_, part)| part.is_kept) {
            part.store(log, self.group, number as u16)?;
        }
        Ok(())
    }

    /// Ends the parts of the open group: with its sequence, or 0 if it was aborted.
    pub fn retire(&mut self, log: &Log<C>, sequence: u64) {
        for part in self.parts.drain(..) {
            log.segment(part.segment).end_part(sequence);
        }
        self.end_given_up(log);
        self.kept.clear();
        (self.closed, self.given_up, self.first_parts, self.others) = (0, 0, 0, None);
    }

    /// Leaves the segment between groups, so that it can be freed.
    pub fn leave(&mut self, log: &Log<C>) {
        assert!(self.is_clean(), "a lane leaves its segment between groups");
        if let Some(segment) = self.segment {
            log.segment(segment).seal(self.start);
        }
        (self.segment, self.held) = (None, None);
        (self.start, self.at, self.end) = (0, 0, 0);
    }

    /// Goes on in a fresh segment; what the open record holds becomes a part.
    #[cold]
    fn next_segment(&mut self, log: &Log<C>) -> Result<(), AppendError> {
        if self.parts.len() >= usize::from(MOST_PARTS) || self.next_part >= MOST_PARTS {
            return Err(AppendError::TooManyParts);
        }
        let next = log.acquire_segment().ok_or(AppendError::NeedRoom)?;
        if self.entries.iter().any(|entry| entry.kind != C::Kind::PARTS) {
            self.close_part(log)?;
        }
        let previous = self.segment.map(|segment| log.seal_segment(segment, self.segment_sequence, self.start));
        self.segment_sequence = log.new_segment_sequence();
        self.seed = log.segment_seed(self.segment_sequence);
        self.segment = Some(next);
        self.start = log.records_start(next);
        self.at = self.start + LINE;
        self.end = log.segment_start(next) + log.segment_bytes();
        // If there is one, it is the one that tells of parts.
        for entry in &mut self.entries {
            entry.payload_checksum = payload_checksum(self.seed, self.at, &[]);
        }
        let header = SegmentHeader {
            lane: self.number,
            incarnation: log.incarnation(),
            sequence: self.segment_sequence,
            generation: log.generation(),
            previous,
        };
        let position = log.segment_start(next);
        log.segment(next).set_end(self.start);
        let raw = header.to_raw(log.volume_seed(), position);
        if log.is_pmem() {
            log.region().write(site::SEGMENT_HEADER, position, raw.as_bytes())?;
        } else {
            let held = self.held.get_or_insert_with(|| AlignedBuf::zeroed(log.segment_bytes() as usize));
            hold(held, 0, raw.as_bytes());
        }
        self.counters.add_alone(LINE, 0);
        self.note_store();
        Ok(())
    }

    fn close_part(&mut self, log: &Log<C>) -> Result<()> {
        let segment = self.segment.expect("an entry has a segment");
        let start = self.start;
        let is_kept = self.keeps(log);
        if is_kept {
            self.at += tail_lines(self.entries.len()) * LINE;
            self.counters.add_alone(self.at - start, 0);
            self.kept.insert(start, self.given_up + self.parts.len() as u64);
        } else {
            let told = if self.writes_over { self.entries.clone() } else { Vec::new() };
            self.write_record(log, self.group, 0, RecordKind::Part)?;
            self.note_store();
            // Those that are kept are counted when they are stored.
            self.next_part += 1;
            self.entries = told;
        }
        log.segment(segment).add_part();
        self.closed += self.at - start;
        let (entries, stale) = (std::mem::take(&mut self.entries), std::mem::take(&mut self.stale));
        self.parts.push_back(Part { segment, start, end: self.at, seed: self.seed, entries, stale, is_kept });
        self.start = self.at;
        self.at = self.start + LINE;
        // What follows may be the commit record, which tells whose parts belong to it.
        self.entries.push(self.told_parts());
        Ok(())
    }

    fn told_parts(&self) -> Entry<C::Kind> {
        Entry { payload_checksum: payload_checksum(self.seed, self.at, &[]), ..parts_of(self.group) }
    }

    /// Writes the head and the entries of the open record, and moves past its end. The caller says whose store it was.
    #[inline(always)]
    fn write_record(&mut self, log: &Log<C>, sequence: u64, after: u64, kind: RecordKind) -> Result<()> {
        if self.stale.0.is_some() {
            self.stale.renew(log, self.seed, self.start, &mut self.entries, self.held.as_deref())?;
        }
        let (mut short, mut long);
        let tail: &[u8] = match tail_lines(self.entries.len()) as usize {
            0 => &[],
            lines @ 1..=2 => {
                short = [0u8; 2 * LINE as usize];
                fill_tail(&self.entries, &mut short);
                &short[..lines * LINE as usize]
            }
            lines => {
                long = vec![0; lines * LINE as usize];
                fill_tail(&self.entries, &mut long);
                &long
            }
        };
        let end = self.at + tail.len() as u64;
        let head = Head {
            sequence,
            after,
            lines: ((end - self.start) / LINE) as u16,
            entries: self.entries.len() as u16,
            part: if kind == RecordKind::Commit { self.parts.len() as u16 } else { self.next_part },
            kind,
            flags: FLAG_BATCH_START,
        };
        self.check(&head);
        if !tail.is_empty() && self.held.is_none() {
            log.region().write(site::LANE_ENTRIES, self.at, tail)?;
        }
        let mut line = [0; LINE as usize / 8];
        first_line(&mut line, record_seed(self.seed, self.start), head, self.entries.first(), tail);
        match &mut self.held {
            None => {
                let at = if kind == RecordKind::Commit { site::LANE_COMMIT } else { site::LANE_PART };
                log.region().write(at, self.start, line.as_bytes())?;
            }
            Some(held) => {
                let segment = log.start_around(self.start);
                hold(held, self.at - segment, tail);
                hold(held, self.start - segment, line.as_bytes());
                let written = ((end - segment) as usize).next_multiple_of(log.block() as usize);
                held[(end - segment) as usize..written].fill(0);
                log.region().write(site::SPILL_WRITE, segment, &held[..written])?;
            }
        }
        self.counters.add_alone(end - self.start, 0);
        self.entries.clear();
        self.at = end;
        Ok(())
    }

    /// What the reader of a record would refuse is never stored (invariant 9 of the log).
    #[inline(always)]
    fn check(&mut self, head: &Head) {
        let lines_left = (self.end - self.start) / LINE;
        assert!(
            head.is_sound(lines_left),
            "a record that nobody can read, {lines_left} lines before its segment ends: {head:?}"
        );
        debug_assert!(self.entries.iter().all(|entry| entry.is_sound(head)), "{head:?}, {:?}", self.entries);
        if head.kind == RecordKind::Commit {
            assert!(head.sequence > self.last, "group {:#x} behind group {:#x} of its lane", head.sequence, self.last);
            self.last = head.sequence;
        }
    }

    #[inline(always)]
    fn fence(&mut self, log: &Log<C>, at: wholly_media::Site) -> Result<()> {
        log.region().fence(at)?;
        self.counters.add_alone(0, 1);
        self.storer = NOBODY;
        Ok(())
    }

    /// This thread has stored, or is about to.
    #[inline]
    fn note_store(&mut self) {
        let me = thread_token();
        if self.storer != me {
            self.storer = if self.storer == NOBODY { me } else { SEVERAL };
        }
    }

    /// A fence drains only the stores of the thread that makes it. Where another thread stored a piece of the group and
    /// has not fenced it, this thread stores the same bytes again, so that its own fence covers them. That is done
    /// once, before the fence, however often threads took turns: those that serve a mount do at every call. Returns the
    /// thread.
    #[inline(always)]
    fn own_stores(&mut self, log: &Log<C>) -> Result<u64> {
        let me = thread_token();
        if self.storer != me && self.storer != NOBODY {
            self.store_again(log)?;
        }
        self.storer = me;
        Ok(me)
    }

    #[cold]
    fn store_again(&mut self, log: &Log<C>) -> Result<()> {
        // A disk's fence covers what any thread has written.
        let Some(segment) = self.segment.filter(|_| log.is_pmem()) else { return Ok(()) };
        let parts = self.parts.iter().map(|part| (part.segment, part.start, part.end));
        let given_up = self.unfenced.iter().copied();
        for (segment, start, end) in parts.chain(given_up).chain([(segment, self.start, self.at)]) {
            let header = log.segment_start(segment);
            rewrite(log.region(), site::SEGMENT_HEADER, header, header + LINE)?;
            rewrite(log.region(), site::LANE_PAYLOAD, start, end)?;
        }
        Ok(())
    }
}

/// Puts the entries after the first together.
#[inline]
fn fill_tail<K: ClientKind>(entries: &[Entry<K>], tail: &mut [u8]) {
    for (entry, place) in entries[1..].iter().zip(tail.chunks_exact_mut(ENTRY)) {
        place.copy_from_slice(entry.to_words().as_bytes());
    }
}

/// Stores bytes over a part of an entry's payload, or all of it. The record begins at `start`, in a segment with this
/// seed.
#[inline]
fn store_over<C: Client>(
    log: &Log<C>,
    (seed, start): (u64, u64),
    (entry, number): (&mut Entry<C::Kind>, usize),
    stale: &mut Stale,
    held: Option<&mut [u8]>,
    position: u64,
    data: &[u8],
) -> Result<bool> {
    let begin = start + u64::from(entry.line) * LINE;
    if position + data.len() as u64 > begin + u64::from(entry.length) {
        return Ok(false);
    }
    let is_whole = position == begin && data.len() == entry.length as usize;
    match held {
        Some(held) => held[(position - log.start_around(position)) as usize..][..data.len()].copy_from_slice(data),
        None if is_whole => {
            entry.payload_checksum = store_and_hash(log, seed, position, data)?;
            stale.remove(number);
            return Ok(true);
        }
        None => log.region().write(site::LANE_PAYLOAD, position, data)?,
    }
    stale.add(number);
    Ok(true)
}

/// The entry by which a commit record tells whose parts belong to it, but for its checksum, which depends on the place.
pub fn parts_of<K: ClientKind>(group: u64) -> Entry<K> {
    Entry { payload_checksum: 0, offset: group, file: 0, length: 0, line: 0, kind: K::PARTS }
}

/// Stores the bytes of a range over themselves, so that this thread's next fence makes them survive.
pub(super) fn rewrite(region: &dyn wholly_media::Region, at: wholly_media::Site, start: u64, end: u64) -> Result<()> {
    let mut line = [0u8; LINE as usize];
    for position in (start..end).step_by(LINE as usize) {
        region.read(position, &mut line)?;
        region.write(at, position, &line)?;
    }
    Ok(())
}

/// Stores a payload and returns its checksum, piece by piece: hashing one costs no time while the stores of the one
/// before it are on their way to memory.
#[inline(always)]
fn store_and_hash<C: Client>(log: &Log<C>, segment_seed: u64, position: u64, data: &[u8]) -> Result<u64> {
    if data.is_empty() {
        return Ok(payload_checksum(segment_seed, position, data));
    }
    let state = payload_seed(segment_seed, position);
    if data.len() <= PIECE {
        store_padded(log, position, data)?;
        return Ok(fold(state, data));
    }
    store_and_hash_pieces(log, state, position, data)
}

#[inline(never)]
fn store_and_hash_pieces<C: Client>(log: &Log<C>, mut state: u64, position: u64, data: &[u8]) -> Result<u64> {
    let mut at = position;
    for piece in data.chunks(PIECE) {
        store_padded(log, at, piece)?;
        state = fold(state, piece);
        at += piece.len() as u64;
    }
    Ok(state)
}

/// What [`store_and_hash`] does, on a disk.
#[inline(never)]
fn hold_and_hash<C: Client>(log: &Log<C>, held: &mut [u8], segment_seed: u64, position: u64, data: &[u8]) -> u64 {
    hold(held, position - log.start_around(position), data);
    payload_checksum(segment_seed, position, data)
}

/// Copies `data` to where a line begins in what is held of a segment; the rest of its last line becomes zero.
#[inline]
fn hold(held: &mut [u8], at: u64, data: &[u8]) {
    let (bytes, rest) = held[at as usize..].split_at_mut(data.len());
    bytes.copy_from_slice(data);
    rest[..data.len().next_multiple_of(LINE as usize) - data.len()].fill(0);
}

/// Stores `data` from a line's start on; the rest of its last line becomes zero.
#[inline]
fn store_padded<C: Client>(log: &Log<C>, position: u64, data: &[u8]) -> Result<()> {
    let whole = data.len() & !(LINE as usize - 1);
    if whole > 0 {
        log.region().write(site::LANE_PAYLOAD, position, &data[..whole])?;
    }
    if whole < data.len() {
        let mut line = [0u8; LINE as usize];
        line[..data.len() - whole].copy_from_slice(&data[whole..]);
        log.region().write(site::LANE_PAYLOAD, position + whole as u64, &line)?;
    }
    Ok(())
}
