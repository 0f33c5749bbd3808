//! Group commit on a disk: whoever finds nobody writing writes for all who wait, in one synchronous write.
//!
//! Records begin at block boundaries and a batch is never added to, so that no commit rewrites a sector of a committed
//! record.

use std::collections::VecDeque;
use std::sync::Arc;

use zerocopy::IntoBytes;

use super::checksum::{payload_checksum, record_seed};
use super::in_flight::Ticket;
use super::lane::parts_of;
use super::layout::{ENTRY, Entry, FLAG_BATCH_START, Head, LINE, RecordKind, SegmentHeader, first_line, tail_lines};
use super::site;
use super::{Client, ClientKind, Log};
use sync::{Condvar, Mutex};
use wholly_error::{Error, Result};

/// A batch is not made longer than this by records that wait; one record may be.
const MAX_BATCH: u64 = 1 << 20;

/// The number of the lane that committers share.
pub(super) const BATCH_LANE: u32 = 0;

/// An operation of a group that is gathered in memory.
#[derive(Clone, Debug)]
pub struct Gathered<K> {
    /// What is asked for.
    pub kind: K,
    /// Of which file.
    pub file: u64,
    /// Offset in the file in bytes, or the new size.
    pub offset: u64,
    /// The payload.
    pub data: Arc<[u8]>,
}

/// A group that asks to be committed.
pub struct Request<K> {
    /// Its id.
    pub group: u64,
    /// What is not in parts.
    pub entries: Vec<Gathered<K>>,
    /// Number of its parts, all durable.
    pub parts: u16,
    /// As in [`Head::after`].
    pub after: u64,
    /// [`Log::announced_tail`] when the group decided which files to identify.
    pub announced: u64,
}

/// What became of a request.
pub enum Outcome {
    /// The group survives. It is in flight until the ticket is dropped, which is after it was published.
    Committed(u64, Arc<Ticket>),
    /// A checkpoint was announced since the group decided which files to identify: decide again.
    Announced,
}

/// Bytes that a record with these entries takes in the log.
pub fn record_bytes<K>(entries: &[Gathered<K>], block: u64) -> u64 {
    let payload: u64 = entries.iter().map(|entry| (entry.data.len() as u64).next_multiple_of(LINE)).sum();
    // One entry more, if it has parts.
    (LINE + payload + tail_lines(entries.len() + 1) * LINE).next_multiple_of(block)
}

/// The lane that committers on a disk share.
pub struct BatchLane<C: Client> {
    state: Mutex<State<C::Kind>>,
    changed: Condvar,
}

struct State<K> {
    /// Taken by the one who writes.
    writer: Option<Box<Writer>>,
    waiting: VecDeque<(u64, Request<K>)>,
    done: Vec<(u64, Result<Outcome>)>,
    next_turn: u64,
    /// A write has failed: nothing may follow it.
    failed: Option<Error>,
}

#[derive(Default)]
struct Writer {
    segment: Option<u32>,
    segment_sequence: u64,
    seed: u64,
    at: u64,
    end: u64,
    /// The header of a segment in which nothing was written yet.
    header: Option<SegmentHeader>,
    batch: Vec<u8>,
}

impl<C: Client> BatchLane<C> {
    /// A lane without a segment.
    pub fn new() -> Self {
        BatchLane {
            state: Mutex::new(State {
                writer: Some(Box::default()),
                waiting: VecDeque::new(),
                done: Vec::new(),
                next_turn: 0,
                failed: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Commits a group: it survives when this returns [`Outcome::Committed`]. `make_room` is called when no segment is
    /// free, with nothing locked and nothing in flight.
    ///
    /// # Errors
    /// Of the write: then nothing is known of the batch, and the store has failed. Of `make_room`: then nothing was
    /// written.
    pub fn commit(
        &self,
        log: &Log<C>,
        request: Request<C::Kind>,
        mut make_room: impl FnMut() -> Result<()>,
    ) -> Result<Outcome> {
        let mut state = self.state.lock().unwrap();
        let turn = state.next_turn;
        state.next_turn += 1;
        state.waiting.push_back((turn, request));
        loop {
            if let Some(i) = state.done.iter().position(|(done, _)| *done == turn) {
                return state.done.swap_remove(i).1;
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let Some(mut writer) = state.writer.take() else {
                state = self.changed.wait(state).unwrap();
                continue;
            };
            let mut waiting = std::mem::take(&mut state.waiting);
            drop(state);
            let result = writer.write_batch(log, &mut waiting);
            state = self.state.lock().unwrap();
            state.writer = Some(writer);
            while let Some(request) = waiting.pop_back() {
                state.waiting.push_front(request);
            }
            let mut need_room = false;
            match result {
                Ok(done) => state.done.extend(done),
                Err(turns) if turns.is_empty() => need_room = true,
                Err(turns) => {
                    state.failed = turns.iter().find_map(|(_, outcome)| outcome.as_ref().err().cloned());
                    state.done.extend(turns);
                }
            }
            self.changed.notify_all();
            if need_room {
                // Taken out of the queue meanwhile: nobody else writes it, so that it is in no flight which `make_room`
                // waits for.
                let mine = state.waiting.iter().position(|(waiting, _)| *waiting == turn);
                let request = mine.and_then(|i| state.waiting.remove(i)).expect("all requests were put back");
                drop(state);
                make_room()?;
                state = self.state.lock().unwrap();
                state.waiting.push_front(request);
            }
        }
    }

    /// Leaves the segment, so that it can be freed.
    pub fn leave(&self, log: &Log<C>) {
        let mut state = self.state.lock().unwrap();
        while state.writer.is_none() {
            state = self.changed.wait(state).unwrap();
        }
        let writer = state.writer.as_mut().expect("it was waited for");
        if let Some(segment) = writer.segment.take() {
            log.segment(segment).seal(writer.at);
        }
        **writer = Writer::default();
    }
}

impl<C: Client> Default for BatchLane<C> {
    fn default() -> Self {
        Self::new()
    }
}

type Done = Vec<(u64, Result<Outcome>)>;

impl Writer {
    /// Writes as many of the waiting requests as one batch takes. `Err` with nothing inside: no segment is free.
    fn write_batch<C: Client>(
        &mut self,
        log: &Log<C>,
        waiting: &mut VecDeque<(u64, Request<C::Kind>)>,
    ) -> Result<Done, Done> {
        let Some((_, first)) = waiting.front() else { return Ok(Vec::new()) };
        if self.at + record_bytes(&first.entries, log.block()) > self.end {
            self.next_segment(log)?;
        }
        let segment = self.segment.expect("a segment was opened");
        let ticket = Arc::new(log.in_flight().ticket(log.sequence_bound()));
        let mut taken = Vec::new();
        let mut end = self.at;
        while let Some((_, request)) = waiting.front() {
            let bytes = record_bytes(&request.entries, log.block());
            let full = end - self.at + bytes > MAX_BATCH && !taken.is_empty();
            if end + bytes > self.end || full {
                break;
            }
            let (turn, request) = waiting.pop_front().expect("it is at the front");
            taken.push((turn, request, log.take_sequence(), bytes));
            end += bytes;
        }
        // Looked at behind the sequences: whoever does not see a target is below it (invariant 7).
        let announced = log.announced_tail();

        let begin = if self.header.is_some() { log.segment_start(segment) } else { self.at };
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        if let Some(header) = self.header {
            batch.extend_from_slice(header.to_raw(log.volume_seed(), begin).as_bytes());
            batch.resize(log.block() as usize, 0);
        }
        let (mut done, mut last) = (Vec::new(), 0);
        for (turn, request, sequence, bytes) in taken {
            if request.announced != announced {
                done.push((turn, Ok(Outcome::Announced)));
                continue;
            }
            let flags = if last == 0 { FLAG_BATCH_START } else { 0 };
            last = sequence;
            encode(&mut batch, &request, sequence, flags, self.seed, self.at, bytes);
            self.at += bytes;
            done.push((turn, Ok(Outcome::Committed(sequence, ticket.clone()))));
        }
        if last != 0 {
            log.count_bytes(batch.len() as u64);
            log.count_barrier();
            if let Err(error) = log.region().write_through(site::BATCH_WRITE, begin, &batch) {
                let error = Error::Poisoned(error.to_string());
                return Err(done.into_iter().map(|(turn, _)| (turn, Err(error.clone()))).collect());
            }
            // Behind the write: what a segment knows of is durable.
            log.segment(segment).note_sequence(last);
            log.segment(segment).set_end(self.at);
            self.header = None;
        }
        self.batch = batch;
        Ok(done)
    }

    fn next_segment<C: Client>(&mut self, log: &Log<C>) -> Result<(), Done> {
        let next = log.acquire_segment().ok_or_else(Vec::new)?;
        let previous = self.segment.map(|segment| log.seal_segment(segment, self.segment_sequence, self.at));
        self.segment = Some(next);
        self.segment_sequence = log.new_segment_sequence();
        self.seed = log.segment_seed(self.segment_sequence);
        self.at = log.records_start(next);
        self.end = log.segment_start(next) + log.segment_bytes();
        self.header = Some(SegmentHeader {
            lane: BATCH_LANE,
            incarnation: log.incarnation(),
            sequence: self.segment_sequence,
            generation: log.generation(),
            previous,
        });
        log.segment(next).set_end(self.at);
        Ok(())
    }
}

/// Appends the bytes of a commit record that stands at `position` and takes `bytes`.
fn encode<K: ClientKind>(
    batch: &mut Vec<u8>,
    request: &Request<K>,
    sequence: u64,
    flags: u8,
    seed: u64,
    position: u64,
    bytes: u64,
) {
    let start = batch.len();
    batch.resize(start + LINE as usize, 0);
    let mut entries = Vec::with_capacity(request.entries.len() + 1);
    let nothing = || payload_checksum(seed, position + LINE, &[]);
    entries.extend((request.parts > 0).then(|| Entry { payload_checksum: nothing(), ..parts_of(request.group) }));
    for gathered in &request.entries {
        let line = ((batch.len() - start) / LINE as usize) as u16;
        let at = position + (batch.len() - start) as u64;
        batch.extend_from_slice(&gathered.data);
        batch.resize(batch.len().next_multiple_of(LINE as usize), 0);
        entries.push(Entry {
            payload_checksum: payload_checksum(seed, at, &gathered.data),
            offset: gathered.offset,
            file: gathered.file,
            length: gathered.data.len() as u32,
            line: if gathered.data.is_empty() { 0 } else { line },
            kind: gathered.kind,
        });
    }
    let tail = start + bytes as usize - tail_lines(entries.len()) as usize * LINE as usize;
    batch.resize(start + bytes as usize, 0);
    for (entry, place) in entries.iter().skip(1).zip(batch[tail..].chunks_mut(ENTRY)) {
        place.copy_from_slice(entry.to_words().as_bytes());
    }
    let head = Head {
        sequence,
        after: request.after,
        lines: (bytes / LINE) as u16,
        entries: entries.len() as u16,
        part: request.parts,
        kind: RecordKind::Commit,
        flags,
    };
    // What the reader of a record would refuse is never stored (invariant 9 of the log).
    assert!(head.is_sound(bytes / LINE), "a record of {bytes} bytes that nobody can read: {head:?}");
    debug_assert!(entries.iter().all(|entry| entry.is_sound(&head)), "{head:?}, {entries:?}");
    let mut line = [0; LINE as usize / 8];
    first_line(&mut line, record_seed(seed, position), head, entries.first(), &batch[tail..]);
    batch[start..start + LINE as usize].copy_from_slice(line.as_bytes());
}
