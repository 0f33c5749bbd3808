//! Appending to a lane.
//!
//! On persistent memory payloads go to their place in the log while the group runs, one line at its head commits it,
//! one fence makes it survive. On a disk only groups come here that are too large for memory, and their commit record
//! goes elsewhere: a lane holds what it appends, and writes a segment by one call of whole blocks when it leaves it. So
//! a segment has one record there.
//!
//! A lane is owned by one group, or one call, at a time; owning the [`Lane`] value is the proof.

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
    parts: Vec<Part>,
    /// On a disk, while there is a segment: what it is to hold, from its first byte to `at`.
    held: Option<AlignedBuf>,
    /// The thread whose stores are not fenced yet: `NOBODY` if all are, `SEVERAL` where there are more.
    storer: u64,
    counters: Arc<Counters>,
}

/// A piece of the open group in a segment that the lane has left. Positions are bytes from the start of the log.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    segment: u32,
    start: u64,
    end: u64,
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
            parts: Vec::new(),
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
    }

    /// Bytes of payload that still fit into the open record as one more entry; `None` where not even an empty one fits.
    #[inline]
    pub fn room(&self) -> Option<u64> {
        if self.entries.len() >= MAX_ENTRIES {
            return None;
        }
        self.end.checked_sub(self.at + tail_lines(self.entries.len() + 1) * LINE)
    }

    /// Makes room for one more entry with `bytes` bytes of payload, which is not more than fits into a segment.
    #[inline]
    pub fn reserve(&mut self, log: &Log<C>, bytes: u64) -> Result<(), AppendError> {
        debug_assert!(bytes <= log.record_capacity());
        if self.room().is_some_and(|room| room >= bytes) { Ok(()) } else { self.next_segment(log) }
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
        if !self.parts.is_empty() {
            self.fence(log, site::LANE_PARTS_FENCE)?;
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
        if let Some(segment) = self.segment.take() {
            log.segment(segment).seal(self.start);
        }
        self.held = None;
        self.end = 0;
        Ok(self.parts.len() as u16)
    }

    /// The lane is free for the next group. The one before was committed, and has been published.
    #[inline]
    pub fn finish(&mut self, log: &Log<C>, sequence: u64) {
        if !self.parts.is_empty() {
            self.retire(log, sequence);
        }
        self.start = self.at;
    }

    /// Forgets the open group. Its bytes are dead: the next record takes the place of the open one. Parts in segments
    /// that the lane has left are made durable all the same, because the header of the segment after them tells where
    /// they end (invariant 8).
    pub fn abort(&mut self, log: &Log<C>) -> Result<()> {
        self.entries.clear();
        // On a disk no commit record follows in this lane, so that nobody asks where the segment ends.
        let fence = !self.parts.is_empty() && log.is_pmem();
        let fenced =
            if fence { self.own_stores(log).and_then(|_| self.fence(log, site::LANE_PARTS_FENCE)) } else { Ok(()) };
        self.retire(log, 0);
        fenced
    }

    /// Ends the parts of the open group: with its sequence, or 0 if it was aborted.
    pub fn retire(&mut self, log: &Log<C>, sequence: u64) {
        for part in self.parts.drain(..) {
            log.segment(part.segment).end_part(sequence);
        }
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
        if self.parts.len() >= usize::from(u16::MAX) - 1 {
            return Err(AppendError::TooManyParts);
        }
        let next = log.acquire_segment().ok_or(AppendError::NeedRoom)?;
        if !self.entries.is_empty() {
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
        self.write_record(log, self.group, 0, RecordKind::Part)?;
        self.note_store();
        log.segment(segment).add_part();
        self.parts.push(Part { segment, start, end: self.at });
        self.start = self.at;
        // What follows may be the commit record, which tells whose parts belong to it.
        self.entries.push(parts_of(self.group));
        Ok(())
    }

    /// Writes the head and the entries of the open record, and moves past its end. The caller says whose store it was.
    #[inline(always)]
    fn write_record(&mut self, log: &Log<C>, sequence: u64, after: u64, kind: RecordKind) -> Result<()> {
        let (mut short, mut long);
        let tail: &[u8] = match tail_lines(self.entries.len()) as usize {
            0 => &[],
            lines @ 1..=2 => {
                short = [0u8; 2 * LINE as usize];
                self.fill_tail(&mut short);
                &short[..lines * LINE as usize]
            }
            lines => {
                long = vec![0; lines * LINE as usize];
                self.fill_tail(&mut long);
                &long
            }
        };
        let end = self.at + tail.len() as u64;
        let head = Head {
            sequence,
            after,
            lines: ((end - self.start) / LINE) as u16,
            entries: self.entries.len() as u16,
            part: self.parts.len() as u16,
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

    /// Puts the entries after the first together.
    #[inline]
    fn fill_tail(&self, tail: &mut [u8]) {
        for (entry, place) in self.entries[1..].iter().zip(tail.chunks_exact_mut(ENTRY)) {
            place.copy_from_slice(entry.to_words().as_bytes());
        }
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
        let open = Part { segment, start: self.start, end: self.at };
        for part in self.parts.iter().chain(std::iter::once(&open)) {
            let header = log.segment_start(part.segment);
            rewrite(log.region(), site::SEGMENT_HEADER, header, header + LINE)?;
            rewrite(log.region(), site::LANE_PAYLOAD, part.start, part.end)?;
        }
        Ok(())
    }
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
