//! Reading a log after a crash: what is there, what of it can be torn, and in which order it was committed.
//!
//! Recovery runs [`open`]: it reads the headers of all segments, verifies what invariant 2 says can be torn, wipes what
//! it rejects, makes durable what it accepts, raises the incarnation, and gives the committed groups in commit order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;

use wholly_media::Region;
use zerocopy::FromBytes;

use super::checksum::{checksum, record_seed, segment_seed};
use super::lane::rewrite;
use super::layout::{
    ENTRY, Entry, EntryKind, FLAG_BATCH_START, HEAD, Head, LINE, RawEntry, RawHead, RawSegmentHeader, RawSuperblock,
    RecordKind, SEGMENTS_START, SegmentHeader, Superblock, seal,
};
use super::verify::holds;
use super::{Geometry, Log, first_of, read_superblock, segments_in, volume_seed, write_superblock};
use crate::error::{Error, Result};
use crate::site;

/// A record whose checksum holds.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its first byte in the log.
    pub position: u64,
    /// Its head.
    pub head: Head,
    /// Its entries, checked.
    pub entries: Vec<Entry>,
    /// The seed of its segment.
    pub segment_seed: u64,
}

impl Record {
    /// The byte behind it.
    pub fn end(&self) -> u64 {
        self.position + u64::from(self.head.lines) * LINE
    }

    /// What its group is known by: the id that its parts carry, or for a group of one record its sequence.
    pub fn group(&self) -> u64 {
        let parts =
            self.entries.iter().find(|entry| entry.kind == EntryKind::Parts && self.head.kind == RecordKind::Commit);
        parts.map_or(self.head.sequence, |entry| entry.offset)
    }

    /// Whether it is a commit record that says that all before it in its lane was durable.
    fn starts_batch(&self) -> bool {
        self.head.kind == RecordKind::Commit && self.head.flags & FLAG_BATCH_START != 0
    }
}

/// A committed group, with its pieces in order.
pub struct CommittedGroup {
    /// Its place in commit order.
    pub sequence: u64,
    /// Its parts, then its commit record.
    pub records: Vec<Record>,
}

/// What recovery found and did, for reports.
#[derive(Clone, Debug, Default)]
pub struct ScanReport {
    /// Segments with a header of this volume.
    pub segments: u32,
    /// Committed groups that are not home yet.
    pub groups: u64,
    /// Records that were torn by the crash and are gone.
    pub rejected: u32,
}

/// Reads one segment: in place on persistent memory, all at once and past the page cache on a disk.
pub struct SegmentReader<'a> {
    region: &'a dyn Region,
    start: u64,
    bytes: u64,
    copy: Vec<u8>,
}

impl<'a> SegmentReader<'a> {
    /// A reader of the `bytes` bytes from `start`.
    pub fn new(region: &'a dyn Region, start: u64, bytes: u64) -> Self {
        SegmentReader { region, start, bytes, copy: Vec::new() }
    }

    /// Copies bytes of the segment.
    pub fn read(&mut self, position: u64, buf: &mut [u8]) -> Result<()> {
        debug_assert!(position >= self.start && position + buf.len() as u64 <= self.start + self.bytes);
        if self.region.guarantees().is_pmem() {
            self.region.read(position, buf)?;
            return Ok(());
        }
        if self.copy.is_empty() {
            self.copy.resize(self.bytes as usize, 0);
            self.region.read_uncached(self.start, &mut self.copy)?;
        }
        let at = (position - self.start) as usize;
        buf.copy_from_slice(&self.copy[at..at + buf.len()]);
        Ok(())
    }

    fn segment_end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The record at `position`, if one proves itself there.
pub fn record_at(reader: &mut SegmentReader<'_>, seed: u64, position: u64) -> Result<Option<Record>> {
    if position + LINE > reader.segment_end() {
        return Ok(None);
    }
    let mut line = [0u8; LINE as usize];
    reader.read(position, &mut line)?;
    let raw = RawHead::read_from_bytes(&line[..HEAD]).expect("a head's bytes");
    let Some(head) = Head::parse(&raw, (reader.segment_end() - position) / LINE) else { return Ok(None) };
    let mut tail = vec![0u8; (head.tail_lines() * LINE) as usize];
    if tail.is_empty() {
        // The common record is told apart from stale bytes without a second look.
        if checksum(record_seed(seed, position), &line[8..]) != raw.checksum.get() {
            return Ok(None);
        }
    } else {
        reader.read(position + head.tail_offset(), &mut tail)?;
        if seal(record_seed(seed, position), &line, &tail) != raw.checksum.get() {
            return Ok(None);
        }
    }
    let mut entries = Vec::with_capacity(usize::from(head.entries));
    let first = std::iter::once(&line[HEAD..]);
    for bytes in first.chain(tail.chunks(ENTRY)).take(usize::from(head.entries)) {
        let raw = RawEntry::read_from_bytes(bytes).expect("an entry's bytes");
        let Some(entry) = Entry::checked(&raw, &head) else {
            return Err(Error::corrupt(format!("log, byte {position}"), "an entry of a valid record is impossible"));
        };
        entries.push(entry);
    }
    Ok(Some(Record { position, head, entries, segment_seed: seed }))
}

/// The records from `position` up to `end`, or to the first place where none proves itself.
pub fn records(reader: &mut SegmentReader<'_>, seed: u64, mut position: u64, end: u64) -> Result<Vec<Record>> {
    let mut found = Vec::new();
    while position < end
        && let Some(record) = record_at(reader, seed, position)?
    {
        position = record.end();
        found.push(record);
    }
    Ok(found)
}

/// A segment with a header of this volume.
#[derive(Clone, Debug)]
struct Found {
    index: u32,
    start: u64,
    records_start: u64,
    header: SegmentHeader,
    seed: u64,
    /// End of its valid records, 0 before they were read.
    end: u64,
    last_sequence: u64,
    commits: bool,
}

/// The last batch of a lane, which invariant 2 says can be torn.
struct TornEnd {
    /// Where its segment starts.
    segment: u64,
    /// What is whole.
    accepted: Vec<Record>,
    /// Where the first record stands that is not.
    rejected: Option<u64>,
}

struct Scanner<'a> {
    region: &'a dyn Region,
    superblock: &'a Superblock,
}

impl Scanner<'_> {
    fn reader(&self, found: &Found) -> SegmentReader<'_> {
        SegmentReader::new(self.region, found.start, self.superblock.segment_bytes)
    }

    /// The chains of segments, each in the order in which it was filled.
    fn lanes(&self) -> Result<BTreeMap<u32, Vec<Found>>> {
        let seed = volume_seed(&self.superblock.volume_id);
        let mut lanes: BTreeMap<u32, Vec<Found>> = BTreeMap::new();
        let mut headless = Vec::new();
        for index in 0..segments_in(self.region, self.superblock.segment_bytes) {
            let start = SEGMENTS_START + u64::from(index) * self.superblock.segment_bytes;
            let mut line = [0u8; LINE as usize];
            self.region.read_uncached(start, &mut line)?;
            let raw = RawSegmentHeader::read_from_bytes(&line).expect("a header's bytes");
            let Some(header) = SegmentHeader::checked(&raw, seed, start) else {
                headless.push(start);
                continue;
            };
            if header.incarnation > self.superblock.incarnation {
                return Err(Error::corrupt(
                    format!("log, byte {start}"),
                    format!(
                        "a segment of incarnation {} in incarnation {}",
                        header.incarnation, self.superblock.incarnation
                    ),
                ));
            }
            if header.generation > self.superblock.generation {
                return Err(Error::corrupt(
                    "superblock",
                    format!(
                        "generation {} is gone, which the segment at byte {start} names: {} is the latest there is",
                        header.generation, self.superblock.generation
                    ),
                ));
            }
            lanes.entry(header.lane).or_default().push(Found {
                index,
                start,
                records_start: start + u64::from(self.superblock.block),
                header,
                seed: segment_seed(&self.superblock.volume_id, header.incarnation, header.sequence),
                end: 0,
                last_sequence: 0,
                commits: false,
            });
        }
        for chain in lanes.values_mut() {
            chain.sort_by_key(|found| (found.header.incarnation, found.header.sequence));
        }
        self.check_headless(&headless, &lanes)?;
        Ok(lanes)
    }

    /// A segment whose header does not prove itself was never used, or its header was torn with its first batch; then no second batch
    /// follows. If one does, the header has rotted. Which header it was is guessed from those that are there.
    fn check_headless(&self, starts: &[u64], lanes: &BTreeMap<u32, Vec<Found>>) -> Result<()> {
        /// Segments that may have been opened after the last one whose header is there.
        const BEYOND: u64 = 64;
        let mut lives = BTreeMap::from([(self.superblock.incarnation, 0)]);
        for found in lanes.values().flatten() {
            let highest = lives.entry(found.header.incarnation).or_insert(0);
            *highest = (*highest).max(found.header.sequence);
        }
        for &start in starts {
            let mut reader = SegmentReader::new(self.region, start, self.superblock.segment_bytes);
            let position = start + u64::from(self.superblock.block);
            let mut raw = [0u8; HEAD];
            reader.read(position, &mut raw)?;
            let raw = RawHead::read_from_bytes(&raw).expect("a head's bytes");
            if Head::parse(&raw, (reader.segment_end() - position) / LINE).is_none() {
                continue;
            }
            for (&incarnation, &highest) in &lives {
                for sequence in 1..=highest + BEYOND {
                    let seed = segment_seed(&self.superblock.volume_id, incarnation, sequence);
                    let end = reader.segment_end();
                    let batches = records(&mut reader, seed, position, end)?
                        .iter()
                        .filter(|record| record.starts_batch() && record.head.sequence >= self.superblock.tail)
                        .count();
                    if batches > 1 {
                        return Err(Error::corrupt(
                            format!("log, byte {start}"),
                            "the header of a segment that holds committed groups is not valid",
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// The last batch of a lane, if it was written in the last incarnation.
    fn torn_end(&self, chain: &[Found]) -> Result<TornEnd> {
        for found in chain.iter().rev().take_while(|found| found.header.incarnation == self.superblock.incarnation) {
            let mut reader = self.reader(found);
            let end = reader.segment_end();
            let mut batch = records(&mut reader, found.seed, found.records_start, end)?;
            let starts =
                |record: &Record| record.head.kind == RecordKind::Commit && record.head.flags & FLAG_BATCH_START != 0;
            let Some(begin) = batch.iter().rposition(starts) else { continue };
            batch.drain(..begin);
            let mut payload = Vec::new();
            for i in 0..batch.len() {
                for entry in &batch[i].entries {
                    if !holds(&mut reader, found.seed, batch[i].position, entry, &mut payload)? {
                        let rejected = Some(batch[i].position);
                        batch.truncate(i);
                        return Ok(TornEnd { segment: found.start, accepted: batch, rejected });
                    }
                }
            }
            return Ok(TornEnd { segment: found.start, accepted: batch, rejected: None });
        }
        Ok(TornEnd { segment: 0, accepted: Vec::new(), rejected: None })
    }

    /// Invariant 8: reads every segment to its end and refuses a gap before what is known to have been durable.
    fn check_gaps(&self, chain: &mut [Found]) -> Result<()> {
        for found in chain.iter_mut() {
            let mut reader = self.reader(found);
            let mut position = found.records_start;
            while let Some(record) = record_at(&mut reader, found.seed, position)? {
                if record.head.kind == RecordKind::Commit {
                    found.commits = true;
                    found.last_sequence = found.last_sequence.max(record.head.sequence);
                }
                position = record.end();
            }
            found.end = position;
            self.check_beyond(found, &mut reader)?;
        }
        for after in chain.iter().filter(|found| found.commits) {
            let Some(previous) = after.header.previous.filter(|previous| previous.last >= self.superblock.tail) else {
                continue;
            };
            let before = chain.iter().find(|found| {
                found.header.incarnation == after.header.incarnation && found.header.sequence == previous.sequence
            });
            let Some(before) = before else {
                return Err(Error::corrupt(
                    format!("log, before byte {}", after.start),
                    format!("segment {} of its lane is missing, and its groups are not home", previous.sequence),
                ));
            };
            if before.end < before.start + u64::from(previous.end) {
                return Err(Error::corrupt(
                    format!("log, byte {}", before.end),
                    format!(
                        "no valid record, although records follow up to byte {}",
                        before.start + u64::from(previous.end)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// No batch may begin behind the place where records end: it would say that there is none missing before it.
    fn check_beyond(&self, found: &Found, reader: &mut SegmentReader<'_>) -> Result<()> {
        let mut position = found.end + LINE;
        while position + LINE <= reader.segment_end() {
            if let Some(record) = record_at(reader, found.seed, position)?
                && record.starts_batch()
                && record.head.sequence >= self.superblock.tail
            {
                return Err(Error::corrupt(
                    format!("log, byte {}", found.end),
                    format!("no valid record, although a committed one follows at byte {position}"),
                ));
            }
            position += LINE;
        }
        Ok(())
    }
}

/// Opens the log in `region`: see the head of this module. `each` gets the committed groups that are not home yet, in commit order,
/// after everything accepted is durable.
///
/// # Errors
/// [`Error::NotAStore`], [`Error::Unsupported`], [`Error::Corrupt`] naming the place; or what `each` returns.
pub fn open(
    region: Arc<dyn Region>,
    geometry: Geometry,
    each: impl FnMut(&Log, CommittedGroup) -> Result<()>,
) -> Result<(Log, ScanReport)> {
    let superblock = read_superblock(&*region)?;
    let mut report = ScanReport::default();
    let mut lanes = {
        let scanner = Scanner { region: &*region, superblock: &superblock };
        let mut lanes = scanner.lanes()?;
        for chain in lanes.values_mut() {
            let end = scanner.torn_end(chain)?;
            if let Some(position) = end.rejected {
                report.rejected += 1;
                let zeros = vec![0u8; superblock.block as usize];
                region.write_through(site::RECOVER_WIPE, position, &zeros)?;
            }
            if region.guarantees().is_pmem() && !end.accepted.is_empty() {
                rewrite(&*region, site::RECOVER_REWRITE, end.segment, end.segment + LINE)?;
                for record in &end.accepted {
                    rewrite(&*region, site::RECOVER_REWRITE, record.position, record.end())?;
                }
            }
            scanner.check_gaps(chain)?;
            report.segments += chain.len() as u32;
        }
        lanes
    };
    if region.guarantees().is_pmem() {
        // The other slot is about to be overwritten, so this one must not depend on a fence that its writer never reached.
        let slot = superblock.slot_offset();
        rewrite(&*region, site::RECOVER_REWRITE, slot, slot + size_of::<RawSuperblock>() as u64)?;
        region.fence(site::RECOVER_FENCE)?;
    }

    let mut next = superblock.clone();
    next.generation += 1;
    next.incarnation += 1;
    if lanes.values().flatten().all(|found| found.last_sequence < superblock.tail) {
        next.tail = first_of(next.incarnation);
        next.checkpointing = next.tail;
    }
    if next.incarnation >= 1 << 22 {
        return Err(Error::unsupported("a log opened four million times; take its files home and make a new one"));
    }
    write_superblock(&*region, site::RECOVER_INCARNATION, &next)?;

    let log = Log::new(region.clone(), geometry, next);
    report.groups = replay(&log, &superblock, &mut lanes, each)?;
    for found in lanes.values().flatten() {
        if found.last_sequence >= superblock.tail {
            log.segment(found.index).adopt(found.seed, found.end, found.last_sequence);
        }
    }
    Ok((log, report))
}

/// One lane, being read in step with the others.
struct Cursor<'a> {
    reader: SegmentReader<'a>,
    segments: std::vec::IntoIter<(u64, u64, u64)>,
    seed: u64,
    at: u64,
    end: u64,
}

impl Cursor<'_> {
    /// The next commit record; parts on the way are put aside.
    fn next(&mut self, parts: &mut HashMap<u64, Vec<Record>>) -> Result<Option<Record>> {
        loop {
            while self.at < self.end {
                let Some(record) = record_at(&mut self.reader, self.seed, self.at)? else { break };
                self.at = record.end();
                match record.head.kind {
                    RecordKind::Commit => return Ok(Some(record)),
                    RecordKind::Part => parts.entry(record.head.sequence).or_default().push(record),
                }
            }
            let Some((seed, at, end)) = self.segments.next() else { return Ok(None) };
            let start = SEGMENTS_START + (at - SEGMENTS_START) / self.reader.bytes * self.reader.bytes;
            self.reader = SegmentReader::new(self.reader.region, start, self.reader.bytes);
            (self.seed, self.at, self.end) = (seed, at, end);
        }
    }
}

/// Gives the groups in commit order by reading all lanes in step. A part stands in its lane behind records of lower sequences
/// only, so that it has been met when its commit record is.
fn replay(
    log: &Log,
    superblock: &Superblock,
    lanes: &mut BTreeMap<u32, Vec<Found>>,
    mut each: impl FnMut(&Log, CommittedGroup) -> Result<()>,
) -> Result<u64> {
    let mut owners: HashMap<u32, usize> = HashMap::new();
    let mut chains: Vec<Vec<Found>> = std::mem::take(lanes).into_values().collect();
    let mut parts: HashMap<u64, Vec<Record>> = HashMap::new();
    let mut groups = 0;
    {
        let mut cursors: Vec<Cursor<'_>> = chains
            .iter()
            .map(|chain| Cursor {
                reader: SegmentReader::new(log.region(), SEGMENTS_START, superblock.segment_bytes),
                segments: chain
                    .iter()
                    .map(|found| (found.seed, found.records_start, found.end))
                    .collect::<Vec<_>>()
                    .into_iter(),
                seed: 0,
                at: 0,
                end: 0,
            })
            .collect();
        let mut heads: Vec<Option<Record>> = Vec::with_capacity(cursors.len());
        let mut heap = BinaryHeap::new();
        for (i, cursor) in cursors.iter_mut().enumerate() {
            let head = cursor.next(&mut parts)?;
            heap.extend(head.as_ref().map(|record| Reverse((record.head.sequence, i))));
            heads.push(head);
        }
        while let Some(Reverse((sequence, i))) = heap.pop() {
            let record = heads[i].take().expect("the heap names cursors with a record");
            let mut records = parts.remove(&record.group()).unwrap_or_default();
            let missing = records.len() != usize::from(record.head.part);
            records.sort_by_key(|part| part.head.part);
            if sequence >= superblock.tail {
                if missing {
                    return Err(Error::corrupt(
                        format!("log, byte {}", record.position),
                        format!("a group was committed in {} parts and {} are left", record.head.part, records.len()),
                    ));
                }
                for part in &records {
                    owners.entry(log.segment_of(part.position)).or_insert(0);
                    let last = owners.get_mut(&log.segment_of(part.position)).expect("it was just put there");
                    *last = (*last).max(sequence as usize);
                }
                records.push(record);
                groups += 1;
                each(log, CommittedGroup { sequence, records })?;
            }
            let head = cursors[i].next(&mut parts)?;
            heap.extend(head.as_ref().map(|record| Reverse((record.head.sequence, i))));
            heads[i] = head;
        }
    }
    for found in chains.iter_mut().flatten() {
        if let Some(&last) = owners.get(&found.index) {
            found.last_sequence = found.last_sequence.max(last as u64);
        }
    }
    for (i, chain) in chains.into_iter().enumerate() {
        lanes.insert(i as u32, chain);
    }
    Ok(groups)
}
