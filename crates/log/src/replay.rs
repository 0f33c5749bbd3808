//! Giving the committed groups of all lanes in commit order, reading each segment once.
//!
//! # Terms
//!
//! - *cursor*: a lane's segment of which records are being given. The cursor with the lowest commit sequence is the
//!   next.
//! - *ahead*: segments that cursors will need soon. Where there is much to read a second thread reads them, and so does
//!   the first while it would otherwise wait. Only volatile lists are made ahead: whatever changes the medium is done
//!   by the thread that opens the store, whose fence must cover it.
//!
//! # Bounds
//!
//! A lane has one segment under its cursor and at most [`AHEAD`] ahead, so that what is in memory of the log at any
//! time does not depend on the log's length.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use wholly_media::Region;

use super::ClientKind;
use super::layout::{Entry, Head, LINE, LogPart, RecordKind, SEGMENTS_START};
use super::read::{Record, RecordView, Records, SegmentReader, claimed_place};
use super::scan::{Found, is_committed};
use sync::{Condvar, Mutex, beside};
use wholly_error::{Error, Result};

/// Segments of a lane that are read ahead of its cursor.
const AHEAD: usize = 2;
/// From so many bytes of log on a second thread is worth its start.
const TWO_THREADS: u64 = 8 << 20;
/// How many records before its turn the processor is asked for a record: another core may have it in its cache.
const FETCHED: usize = 64;
/// How many records before its turn a record comes [soon](Replay::soon).
const SOON: usize = 24;
/// How many records before its turn a record comes very soon.
const VERY_SOON: usize = 12;

/// A committed group, with its pieces in order.
pub struct CommittedGroup<'a, K> {
    /// Its place in commit order.
    pub sequence: u64,
    /// Its parts.
    pub parts: &'a [Record<K>],
    /// Its commit record.
    pub commit: RecordView<'a, K>,
}

/// Who is given the groups.
pub trait Replay {
    /// What entries ask for.
    type Kind: ClientKind;

    /// The next group in commit order.
    ///
    /// # Errors
    /// End the recovery.
    fn group(&mut self, group: &CommittedGroup<'_, Self::Kind>) -> Result<()>;

    /// A record with these entries is likely to come soon, or `very` soon: time to ask the processor for what it needs.
    /// Each is told first the one and then the other, where it is told at all.
    fn soon(&mut self, entries: &[Entry<Self::Kind>], very: bool) {
        let _ = (entries, very);
    }

    /// The log is corrupt. Recovery ends with that; who only looks returns `Ok`, and is told of whatever else there is.
    ///
    /// # Errors
    /// End the recovery.
    fn refuse(&mut self, error: Error) -> Result<()> {
        Err(error)
    }
}

/// How a segment ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct End {
    /// Behind its last record.
    pub end: u64,
    /// The highest sequence of a group that has bytes in it; 0 if none.
    pub last_sequence: u64,
    /// Behind its last commit record; 0 if it has none. A part behind that may be of a group that never committed, and
    /// not be durable.
    pub commits: u64,
}

/// What was read of all segments.
pub(super) struct Replayed {
    /// Groups that are not home.
    pub groups: u64,
    /// How each segment of each chain ends.
    pub ends: Vec<Vec<End>>,
    /// Whether the group that the superblock names was met.
    pub named: bool,
}

/// Gives the groups that are not home in commit order by reading all lanes in step. A part stands in its lane behind
/// records of lower sequences only, so that it has been met when its commit record is.
pub(super) fn replay<T: Replay>(
    region: &dyn Region,
    superblock: &LogPart,
    chains: &[Vec<Found>],
    to: &mut T,
    coming: &(dyn Fn(usize) + Sync),
) -> Result<Replayed> {
    let ahead = Ahead { segments: VecDeque::new(), spare: Vec::new(), helped: false };
    let source = Source { region, superblock, chains, ahead: Mutex::new(ahead), changed: Condvar::new() };
    let segments = chains.iter().flatten().filter(|found| !found.is_home(superblock)).count() as u64;
    if segments * superblock.segment_bytes < TWO_THREADS {
        return merge(&source, to);
    }
    source.ahead.lock().unwrap().helped = true;
    beside(
        || {
            let _leave = Leave(&source);
            source.help(coming);
        },
        || {
            // Also if it panics: nobody waits for the other for ever.
            let _leave = Leave(&source);
            merge(&source, to)
        },
    )
}

fn merge<T: Replay>(source: &Source<'_, T::Kind>, to: &mut T) -> Result<Replayed> {
    let (tail, limit) = (source.superblock.tail, super::first_of(source.superblock.incarnation + 1));
    let mut parts = Parts(HashMap::new());
    let mut ends: Vec<_> = source.chains.iter().map(|chain| vec![End::default(); chain.len()]).collect();
    let mut owners: HashMap<u64, u64> = HashMap::new();
    let (mut groups, mut last, mut named) = (0, 0, false);
    let mut cursors: Vec<_> = (0..source.chains.len()).map(Cursor::new).collect();
    let mut heap = BinaryHeap::new();
    for cursor in &mut cursors {
        let next = cursor.next(source, &mut parts, &mut ends, to)?;
        heap.extend(next.map(|sequence| Reverse((sequence, cursor.lane))));
    }
    while let Some(Reverse((mut sequence, lane))) = heap.pop() {
        let cursor = &mut cursors[lane];
        // Another lane's turn comes when this one is past its next group.
        let turn = heap.peek().map_or(u64::MAX, |Reverse((sequence, _))| *sequence);
        loop {
            let commit = cursor.records.get(cursor.at).expect("the cursor stands at a commit record");
            if sequence <= last {
                to.refuse(Error::corrupt(
                    format!("log, byte {}", commit.position),
                    format!("group {sequence:#x} follows group {last:#x} in its lane"),
                ))?;
            }
            if sequence >= limit {
                to.refuse(Error::corrupt(
                    format!("log, byte {}", commit.position),
                    format!("group {sequence:#x} has a higher sequence than this log can have given"),
                ))?;
            }
            last = sequence;
            let own = parts.of(&commit);
            if sequence >= tail {
                if own.len() != usize::from(commit.head.part) {
                    to.refuse(Error::corrupt(
                        format!("log, byte {}", commit.position),
                        format!("a group was committed in {} parts and {} are left", commit.head.part, own.len()),
                    ))?;
                }
                for part in &own {
                    let last = owners.entry(source.segment_start(part.position)).or_insert(0);
                    *last = (*last).max(sequence);
                }
                groups += 1;
                named |= sequence == source.superblock.committed;
                cursor.records.prefetch(cursor.at, FETCHED);
                if let Some(later) = cursor.records.get(cursor.at + SOON) {
                    to.soon(later.entries, false);
                }
                if let Some(later) = cursor.records.get(cursor.at + VERY_SOON) {
                    to.soon(later.entries, true);
                }
                to.group(&CommittedGroup { sequence, parts: &own, commit })?;
            }
            cursor.at += 1;
            match cursor.next(source, &mut parts, &mut ends, to)? {
                Some(next) if next < turn => sequence = next,
                Some(next) => {
                    heap.push(Reverse((next, lane)));
                    break;
                }
                None => break,
            }
        }
    }
    for (chain, ends) in source.chains.iter().zip(&mut ends) {
        for (found, end) in chain.iter().zip(ends) {
            end.last_sequence = end.last_sequence.max(owners.get(&found.start).copied().unwrap_or(0));
        }
    }
    Ok(Replayed { groups, ends, named })
}

/// Parts whose commit record has not been met, by group.
struct Parts<K>(HashMap<u64, Vec<Record<K>>>);

impl<K: ClientKind> Parts<K> {
    fn put(&mut self, part: &RecordView<'_, K>) {
        self.0.entry(part.head.sequence).or_default().push(part.to_record());
    }

    /// Takes those of the group that `commit` commits, in order.
    #[inline]
    fn of(&mut self, commit: &RecordView<'_, K>) -> Vec<Record<K>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let mut parts = self.0.remove(&commit.group()).unwrap_or_default();
        parts.sort_by_key(|part| part.head.part);
        parts
    }
}

/// One lane, being read in step with the others.
struct Cursor<K> {
    lane: usize,
    /// The segment after the one under the cursor, in the lane's chain.
    next_place: usize,
    /// The place of the one under the cursor.
    place: Option<usize>,
    records: Records<K>,
    at: usize,
}

impl<K: ClientKind> Cursor<K> {
    fn new(lane: usize) -> Self {
        Cursor { lane, next_place: 0, place: None, records: Records::default(), at: 0 }
    }

    /// Goes to the next commit record, from the current place on, and returns its sequence; parts on the way are put
    /// aside.
    #[inline(always)]
    fn next(
        &mut self,
        source: &Source<'_, K>,
        parts: &mut Parts<K>,
        ends: &mut [Vec<End>],
        to: &mut impl Replay<Kind = K>,
    ) -> Result<Option<u64>> {
        match self.records.get(self.at) {
            Some(record) if record.head.kind == RecordKind::Commit => Ok(Some(record.head.sequence)),
            _ => self.next_further(source, parts, ends, to),
        }
    }

    #[cold]
    fn next_further(
        &mut self,
        source: &Source<'_, K>,
        parts: &mut Parts<K>,
        ends: &mut [Vec<End>],
        to: &mut impl Replay<Kind = K>,
    ) -> Result<Option<u64>> {
        loop {
            while let Some(record) = self.records.get(self.at) {
                match record.head.kind {
                    RecordKind::Commit => return Ok(Some(record.head.sequence)),
                    RecordKind::Part => parts.put(&record),
                }
                self.at += 1;
            }
            let chain = &source.chains[self.lane];
            if let Some(place) = self.place {
                let is_commit = |head: &Head| head.kind == RecordKind::Commit;
                let sequences = self.records.heads().filter(|head| is_commit(head)).map(|head| head.sequence);
                let last_commit = self.records.heads().rposition(is_commit).and_then(|i| self.records.get(i));
                ends[self.lane][place] = End {
                    end: self.records.end(),
                    last_sequence: sequences.max().unwrap_or(0),
                    commits: last_commit.map_or(0, |commit| commit.end()),
                };
                self.place = None;
            }
            while chain.get(self.next_place).is_some_and(|found| found.is_home(source.superblock)) {
                self.next_place += 1;
            }
            if self.next_place == chain.len() {
                self.records = Records::default();
                return Ok(None);
            }
            let done = std::mem::take(&mut self.records);
            self.records = match source.take(self.lane, self.next_place, done) {
                Ok(records) => records,
                Err(error) => {
                    to.refuse(error)?;
                    // What stands before the fault.
                    source.records(self.lane, self.next_place, Records::default()).unwrap_or_default()
                }
            };
            self.place = Some(self.next_place);
            (self.next_place, self.at) = (self.next_place + 1, 0);
        }
    }
}

/// Where records come from.
struct Source<'a, K> {
    region: &'a dyn Region,
    superblock: &'a LogPart,
    chains: &'a [Vec<Found>],
    ahead: Mutex<Ahead<K>>,
    changed: Condvar,
}

struct Ahead<K> {
    segments: VecDeque<(usize, usize, State<K>)>,
    /// Lists to be used again.
    spare: Vec<Records<K>>,
    /// Whether another thread reads too.
    helped: bool,
}

enum State<K> {
    Wanted,
    /// Somebody reads it.
    Taken,
    Ready(Result<Records<K>>),
}

impl<K: ClientKind> Ahead<K> {
    fn take_wanted(&mut self) -> Option<(usize, usize, Records<K>)> {
        let (lane, place, state) = self.segments.iter_mut().find(|(.., state)| matches!(state, State::Wanted))?;
        *state = State::Taken;
        let spare = self.spare.pop().unwrap_or_default();
        Some((*lane, *place, spare))
    }

    fn find(&mut self, lane: usize, place: usize) -> Option<usize> {
        self.segments.iter().position(|segment| (segment.0, segment.1) == (lane, place))
    }

    /// Operations that were read and that no cursor has taken.
    fn operations(&self) -> usize {
        let ready = self.segments.iter().filter_map(|(.., state)| match state {
            State::Ready(Ok(records)) => Some(records.operations()),
            _ => None,
        });
        ready.sum()
    }

    fn put(&mut self, lane: usize, place: usize, records: Result<Records<K>>) {
        if let Some(i) = self.find(lane, place) {
            self.segments[i].2 = State::Ready(records);
        }
    }
}

/// Tells the other thread, when dropped, that this one is gone.
struct Leave<'a, K>(&'a Source<'a, K>);

impl<K> Drop for Leave<'_, K> {
    fn drop(&mut self) {
        if let Ok(mut ahead) = self.0.ahead.lock() {
            ahead.helped = false;
        }
        self.0.changed.notify_all();
    }
}

impl<K: ClientKind> Source<'_, K> {
    fn segment_start(&self, position: u64) -> u64 {
        let bytes = self.superblock.segment_bytes;
        SEGMENTS_START + (position - SEGMENTS_START) / bytes * bytes
    }

    /// The records of a segment; `done` are lists that are not needed any more.
    fn take(&self, lane: usize, place: usize, done: Records<K>) -> Result<Records<K>> {
        let mut ahead = self.ahead.lock().unwrap();
        if !ahead.helped {
            drop(ahead);
            return self.read(lane, place, done);
        }
        ahead.spare.push(done);
        for next in place..self.chains[lane].len().min(place + AHEAD) {
            if ahead.find(lane, next).is_none() && !self.chains[lane][next].is_home(self.superblock) {
                ahead.segments.push_back((lane, next, State::Wanted));
            }
        }
        self.changed.notify_all();
        loop {
            let i = ahead.find(lane, place).expect("it was asked for");
            match ahead.segments[i].2 {
                State::Ready(_) => {
                    let Some((.., State::Ready(records))) = ahead.segments.remove(i) else { unreachable!() };
                    return records;
                }
                State::Wanted => {
                    ahead.segments.remove(i);
                    let lists = ahead.spare.pop().unwrap_or_default();
                    drop(ahead);
                    return self.read(lane, place, lists);
                }
                State::Taken if !ahead.helped => panic!("the thread that helped to read the log has failed"),
                State::Taken => match ahead.take_wanted() {
                    Some((lane, place, lists)) => {
                        drop(ahead);
                        let records = self.read(lane, place, lists);
                        ahead = self.ahead.lock().unwrap();
                        ahead.put(lane, place, records);
                    }
                    None => ahead = self.changed.wait(ahead).unwrap(),
                },
            }
        }
    }

    /// Reads ahead until the other thread leaves.
    fn help(&self, coming: &(dyn Fn(usize) + Sync)) {
        let mut ahead = self.ahead.lock().unwrap();
        while ahead.helped {
            let Some((lane, place, lists)) = ahead.take_wanted() else {
                ahead = self.changed.wait(ahead).unwrap();
                continue;
            };
            drop(ahead);
            let records = self.read(lane, place, lists);
            ahead = self.ahead.lock().unwrap();
            ahead.put(lane, place, records);
            self.changed.notify_all();
            let waiting = ahead.operations();
            drop(ahead);
            coming(waiting);
            ahead = self.ahead.lock().unwrap();
        }
    }

    fn records(&self, lane: usize, place: usize, mut records: Records<K>) -> Result<Records<K>> {
        let found = &self.chains[lane][place];
        records.read(&mut self.reader(found), found.seed, found.records_start, found.limit)?;
        Ok(records)
    }

    fn reader(&self, found: &Found) -> SegmentReader<'_> {
        SegmentReader::new(self.region, found.start, self.superblock.segment_bytes)
    }

    fn read(&self, lane: usize, place: usize, mut records: Records<K>) -> Result<Records<K>> {
        let found = &self.chains[lane][place];
        let mut reader = self.reader(found);
        records.read(&mut reader, found.seed, found.records_start, found.limit)?;
        self.check_beyond(found, &mut reader, records.end())?;
        if place + 1 == self.chains[lane].len() {
            self.check_strays(found, &mut reader, records.end())?;
        }
        Ok(records)
    }

    /// On a disk nothing but a write that went astray puts a record of a segment, in this lap of it, elsewhere than
    /// where it belongs: behind the end of a lane there is what an earlier lap left, or a batch that was torn in its
    /// place.
    fn check_strays(&self, found: &Found, reader: &mut SegmentReader<'_>, end: u64) -> Result<()> {
        // Other lanes hold parts, and payload of groups that were aborted, at any line.
        let batches = !self.region.guarantees().is_pmem() && found.is_batches(self.superblock);
        if !batches || end + LINE > reader.segment_end() {
            return Ok(());
        }
        match claimed_place(reader, found.seed, end)? {
            Some(place) if place != end => Err(Error::corrupt(
                format!("log, byte {end}"),
                format!("a record that belongs at byte {place}, instead of another one or of none"),
            )),
            _ => Ok(()),
        }
    }

    /// No batch may begin behind the place where records end: it would say that there is none missing before it, or of
    /// a later lap that the header is.
    fn check_beyond(&self, found: &Found, reader: &mut SegmentReader<'_>, end: u64) -> Result<()> {
        let mut position = end + LINE;
        while position + LINE <= reader.segment_end() {
            if is_committed::<K>(reader, self.superblock, Some(found.seed), position)? {
                return Err(Error::corrupt(
                    format!("log, byte {end}"),
                    format!("no valid record, although a committed one follows at byte {position}"),
                ));
            }
            position += LINE;
        }
        Ok(())
    }
}
