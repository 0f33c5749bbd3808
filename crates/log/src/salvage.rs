//! What can still be read of a log that recovery refuses, and a new log of what of it was proven.
//!
//! Recovery stops at the first thing that does not fit. Here every segment is read to its end: a record proves itself
//! by its checksum, whatever stands before it. Where the superblock is gone, segments are found by their headers, whose
//! checksums tell the seed of their volume, and the seed of a segment is what a record in it tells. Nothing is judged
//! here but single groups: whether what a group builds on is there, and what is lost between them, is told to the
//! caller.

use std::collections::{BTreeMap, HashMap};

use wholly_media::Region;
use zerocopy::{FromBytes, IntoBytes};

use super::checksum::{claimed_seed, payload_checksum, record_seed, segment_seed};
use super::layout::{
    ENTRY, Entry, FLAG_BATCH_START, HEAD, Head, Kept, LINE, LogPart, MAX_SEGMENT, MIN_SEGMENT, Previous,
    RawSegmentHeader, RecordKind, SEGMENTS_START, SUPERBLOCK_SLOT, SegmentHeader, Superblock, first_line, tail_lines,
};
use super::read::{Record, SegmentReader, claimed_segment, proven_record, starts_batch};
use super::verify::holds;
use super::{ClientKind, ClientPart, volume_seed};
use wholly_error::{Error, Result};

/// A group whose commit record proves itself.
pub struct Group<K> {
    /// Its parts, in order.
    pub parts: Vec<Record<K>>,
    /// Its commit record.
    pub commit: Record<K>,
    /// Why it does not hold by itself.
    pub fault: Option<Fault>,
}

impl<K: ClientKind> Group<K> {
    /// Its place in commit order.
    pub fn sequence(&self) -> u64 {
        self.commit.head.sequence
    }

    /// All of its records, the commit record last.
    pub fn records(&self) -> impl Iterator<Item = &Record<K>> {
        self.parts.iter().chain([&self.commit])
    }
}

/// Why a group does not hold by itself.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Its payload is not there, and it is the last of its lane: its commit had not returned.
    Torn,
    /// In words.
    Rot(String),
}

/// Sequences strictly between which groups may be lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// A sequence that is not lost.
    pub above: u64,
    /// The next one that is not lost.
    pub below: u64,
}

/// All that was read.
pub struct Collected<K> {
    /// In order of their sequences, those that are known to be home left out.
    pub groups: Vec<Group<K>>,
    /// Where groups may be lost.
    pub lost: Vec<Lost>,
    /// Places that do not fit, and what is wrong there.
    pub places: Vec<(String, String)>,
    /// Groups below are home; where nobody knows, the lowest sequence that was found.
    pub tail: u64,
    /// Homes of groups below may have been touched.
    pub checkpointing: u64,
    /// Whether that is known.
    pub is_certain: bool,
    /// The last life that was found.
    pub incarnation: u64,
    /// Bytes of a segment that has room for each record.
    pub segment_bytes: u64,
    /// Records begin at multiples of this.
    pub block: u64,
}

/// A segment, and what is in it.
struct Segment<K> {
    start: u64,
    header: Option<SegmentHeader>,
    seed: Option<u64>,
    records: Vec<Record<K>>,
    /// Gaps: where they begin, and which record ends them.
    gaps: Vec<(u64, usize)>,
}

impl<K: ClientKind> Segment<K> {
    fn commits(&self) -> impl DoubleEndedIterator<Item = &Record<K>> {
        self.records.iter().filter(|record| record.head.kind == RecordKind::Commit)
    }

    fn life(&self) -> (u64, u64) {
        self.header.map_or((0, 0), |header| (header.incarnation, header.sequence))
    }
}

/// Reads all that proves itself. `superblock` is the one in force, where there is one.
pub fn collect<K: ClientKind>(region: &dyn Region, superblock: Option<&LogPart>) -> Result<Collected<K>> {
    let mut places = Vec::new();
    let mut segments = Vec::new();
    let found = match superblock {
        Some(superblock) => segments_of(region, superblock)?,
        None => segments_by_header(region)?,
    };
    for (start, bytes, header) in found {
        let seed = superblock.and_then(|superblock| {
            header.map(|header| segment_seed(&superblock.volume_id, header.incarnation, header.sequence))
        });
        let first = start + superblock.map_or(LINE, |superblock| u64::from(superblock.block));
        segments.push(read_segment(region, (start, bytes), first, (header, seed, superblock.is_some()), &mut places)?);
    }

    let headers = || segments.iter().filter_map(|segment| segment.header);
    let incarnation = headers().map(|header| header.incarnation).chain(superblock.map(|s| s.incarnation)).max();
    let is_certain = superblock.is_some_and(|superblock| {
        headers()
            .all(|header| header.generation <= superblock.generation && header.incarnation <= superblock.incarnation)
    });
    let lowest = segments.iter().flat_map(Segment::commits).map(|record| record.head.sequence).min().unwrap_or(1);
    let tail = superblock.map_or(lowest, |superblock| superblock.tail);
    if let Some(superblock) = superblock.filter(|_| !is_certain) {
        let what = format!(
            "one newer than generation {} is gone: it is unknown which groups are written back",
            superblock.generation
        );
        places.push(("superblock".into(), what));
    }

    let mut lost = find_lost(&segments, superblock, tail, &mut places);
    if let Some(superblock) = superblock.filter(|superblock| region.len() < superblock.log_bytes()) {
        let (len, told) = (region.len(), superblock.log_bytes());
        places.push((
            format!("log, byte {len}"),
            format!("the log was cut off: it has {len} bytes and must have {told}"),
        ));
        // On a disk one lane has all commit records, so that only later ones can be in what is gone.
        let last = segments.iter().flat_map(Segment::commits).map(|record| record.head.sequence).max();
        let above = if u64::from(superblock.block) == LINE { tail.saturating_sub(1) } else { last.unwrap_or(tail) };
        lost.push(Lost { above, below: u64::MAX });
    }
    let torn = last_batches(&segments, incarnation.unwrap_or(0));
    let groups = assemble(region, &segments, tail, &torn)?;
    let largest = groups.iter().flat_map(Group::records).map(|record| u64::from(record.head.lines) * LINE).max();
    let block = superblock.map_or(LINE, |superblock| u64::from(superblock.block));
    let needed = (largest.unwrap_or(0) + block).next_power_of_two().clamp(MIN_SEGMENT.max(block * 2), MAX_SEGMENT);
    Ok(Collected {
        groups,
        lost,
        places,
        tail,
        checkpointing: superblock.filter(|_| is_certain).map_or(tail, |superblock| superblock.checkpointing),
        is_certain,
        incarnation: incarnation.unwrap_or(0),
        segment_bytes: superblock.map_or(needed, |superblock| superblock.segment_bytes),
        block,
    })
}

type Place = (u64, u64, Option<SegmentHeader>);

fn read_header(region: &dyn Region, start: u64) -> Result<RawSegmentHeader> {
    let mut line = [0u8; LINE as usize];
    region.read(start, &mut line)?;
    Ok(RawSegmentHeader::read_from_bytes(&line).expect("a header's bytes"))
}

/// All segments of which the medium has something, a part at its end too.
fn segments_of(region: &dyn Region, superblock: &LogPart) -> Result<Vec<Place>> {
    let seed = volume_seed(&superblock.volume_id);
    let starts = (SEGMENTS_START..region.len()).step_by(superblock.segment_bytes as usize);
    let place = |start| {
        let header = SegmentHeader::checked(&read_header(region, start)?, seed, start);
        Ok((start, superblock.segment_bytes, header))
    };
    starts.map(place).collect()
}

/// The segments whose headers tell of the volume of which most of them tell.
fn segments_by_header(region: &dyn Region) -> Result<Vec<Place>> {
    let mut claims: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    for start in (SEGMENTS_START..region.len()).step_by(MIN_SEGMENT as usize) {
        let raw = read_header(region, start)?;
        let bytes = raw.as_bytes();
        let sum = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        let seed = record_seed(claimed_seed(sum, &bytes[8..]), start);
        if let Some(header) = SegmentHeader::checked(&raw, seed, start) {
            claims.entry(seed).or_default().push((start, 0, Some(header)));
        }
    }
    let mut places = claims.into_values().max_by_key(Vec::len).unwrap_or_default();
    let ends: Vec<u64> = places.iter().skip(1).map(|place| place.0).chain([region.len()]).collect();
    for (place, end) in places.iter_mut().zip(ends) {
        place.1 = (end - place.0).min(MAX_SEGMENT) / LINE * LINE;
    }
    Ok(places)
}

fn read_segment<K: ClientKind>(
    region: &dyn Region,
    (start, bytes): (u64, u64),
    first: u64,
    (header, seed, is_first_known): (Option<SegmentHeader>, Option<u64>, bool),
    places: &mut Vec<(String, String)>,
) -> Result<Segment<K>> {
    let mut reader = SegmentReader::new(region, start, bytes);
    let mut segment = Segment { start, header, seed, records: Vec::new(), gaps: Vec::new() };
    let (mut at, mut expected) = (first, first);
    while at + LINE <= start + bytes {
        if segment.seed.is_none() {
            segment.seed = claimed_segment::<K>(&mut reader, at)?;
        }
        let record = match segment.seed {
            Some(seed) => proven_record(&mut reader, seed, at),
            None => Ok(None),
        };
        match record {
            Ok(Some(record)) => {
                if at != expected && (is_first_known || !segment.records.is_empty()) {
                    segment.gaps.push((expected, segment.records.len()));
                    let what = format!("no valid record, although one follows at byte {at}");
                    places.push((format!("log, byte {expected}"), what));
                }
                at = record.end();
                expected = at;
                segment.records.push(record);
            }
            Ok(None) => at += LINE,
            Err(Error::Corrupt { place, fault }) => {
                places.push((place, fault));
                at += LINE;
            }
            Err(error) => return Err(error),
        }
    }
    if header.is_none() && !segment.records.is_empty() {
        places.push((format!("log, byte {start}"), "not the header of the records that follow it".into()));
    }
    Ok(segment)
}

/// Where groups may be lost: in gaps, and in segments of which those that follow them in their lanes tell more than
/// there is.
fn find_lost<K: ClientKind>(
    segments: &[Segment<K>],
    superblock: Option<&LogPart>,
    tail: u64,
    places: &mut Vec<(String, String)>,
) -> Vec<Lost> {
    let home = tail.saturating_sub(1);
    let mut lost = Vec::new();
    for segment in segments {
        let before = segment.header.and_then(|header| header.previous).map_or(home, |previous| previous.last);
        for (_, next) in &segment.gaps {
            let last =
                |records: &[Record<K>]| records.iter().rev().find(|r| r.head.kind == RecordKind::Commit).cloned();
            let above = last(&segment.records[..*next]).map_or(before, |record| record.head.sequence).max(home);
            let later = segment.records[*next..].iter().find(|record| record.head.kind == RecordKind::Commit);
            lost.push(Lost { above, below: later.map_or(u64::MAX, |record| record.head.sequence) });
        }
        let Some((header, previous)) = segment.header.and_then(|header| Some((header, header.previous?))) else {
            continue;
        };
        if previous.last < tail {
            continue;
        }
        let seed =
            superblock.map(|superblock| segment_seed(&superblock.volume_id, header.incarnation, previous.sequence));
        let is_previous = |other: &&Segment<K>| {
            seed.is_some() && other.seed == seed || other.life() == (header.incarnation, previous.sequence)
        };
        let found = segments.iter().find(is_previous);
        let last = found.and_then(|found| found.commits().next_back()).map_or(0, |record| record.head.sequence);
        if last < previous.last {
            let what = format!("groups up to {:#x} of the segment before it in its lane are gone", previous.last);
            places.push((format!("log, before byte {}", segment.start), what));
            lost.push(Lost { above: last.max(home), below: previous.last.saturating_add(1) });
        }
    }
    lost
}

/// Where the last batch of each lane begins and its segment ends: only in those can a crash have torn something.
fn last_batches<K: ClientKind>(segments: &[Segment<K>], incarnation: u64) -> Vec<std::ops::Range<u64>> {
    let mut lanes: HashMap<u32, &Segment<K>> = HashMap::new();
    for segment in segments.iter().filter(|segment| !segment.records.is_empty()) {
        let Some(header) = segment.header.filter(|header| header.incarnation == incarnation) else { continue };
        let last = lanes.entry(header.lane).or_insert(segment);
        if last.life() < segment.life() {
            *last = segment;
        }
    }
    let range = |segment: &Segment<K>| {
        let begin = segment.records.iter().rev().find(|record| starts_batch(&record.head))?;
        Some(begin.position..segment.records.last()?.end())
    };
    lanes.into_values().filter_map(range).collect()
}

fn assemble<K: ClientKind>(
    region: &dyn Region,
    segments: &[Segment<K>],
    tail: u64,
    torn: &[std::ops::Range<u64>],
) -> Result<Vec<Group<K>>> {
    let mut parts: HashMap<u64, Vec<Record<K>>> = HashMap::new();
    for record in segments.iter().flat_map(|segment| &segment.records) {
        if record.head.kind == RecordKind::Part {
            parts.entry(record.head.sequence).or_default().push(record.clone());
        }
    }
    let mut groups: BTreeMap<u64, Group<K>> = BTreeMap::new();
    let mut payload = Vec::new();
    for segment in segments {
        for commit in segment.commits().filter(|commit| commit.head.sequence >= tail) {
            let mut own = parts.remove(&commit.group()).unwrap_or_default();
            own.sort_by_key(|part| part.head.part);
            let is_whole = own.len() == usize::from(commit.head.part)
                && own.windows(2).all(|parts| parts[0].head.part < parts[1].head.part);
            let mut group = Group { parts: own, commit: commit.clone(), fault: None };
            if !is_whole {
                let what = format!("it was committed in {} parts and {} are left", commit.head.part, group.parts.len());
                group.fault = Some(Fault::Rot(what));
            }
            for record in group.parts.iter().chain([&group.commit]) {
                // A record is shorter than what this reads at once, wherever its segment ends.
                let mut reader = SegmentReader::new(region, record.position, u64::from(record.head.lines) * LINE);
                for entry in &record.entries {
                    if group.fault.is_none()
                        && !holds(&mut reader, record.segment_seed, record.position, entry, &mut payload)?
                    {
                        let at = record.position + u64::from(entry.line) * LINE;
                        let may_be_torn = torn.iter().any(|range| range.contains(&commit.position));
                        group.fault = Some(match may_be_torn {
                            true => Fault::Torn,
                            false => Fault::Rot(format!(
                                "the {} bytes at byte {at} of the log do not match their checksum",
                                entry.length
                            )),
                        });
                    }
                }
            }
            groups.entry(commit.head.sequence).or_insert(group);
        }
    }
    Ok(groups.into_values().collect())
}

/// The payload of an entry; it was verified.
pub fn payload_of<K>(region: &dyn Region, record: &Record<K>, entry: &Entry<K>) -> Result<Vec<u8>> {
    let mut payload = vec![0; entry.length as usize];
    region.read(record.position + u64::from(entry.line) * LINE, &mut payload)?;
    Ok(payload)
}

/// A log of groups that have been proven, as one lane of the life in which they were collected.
pub struct Rebuilt<'a> {
    put: &'a mut dyn FnMut(u64, &[u8]) -> Result<()>,
    from: &'a dyn Region,
    volume_id: [u8; 16],
    incarnation: u64,
    segment_bytes: u64,
    block: u64,
    /// The segment that is being filled, its number, and how far it is full.
    bytes: Vec<u8>,
    index: u32,
    end: usize,
    last: u64,
    previous: Option<Previous>,
}

impl<'a> Rebuilt<'a> {
    /// An empty log, whose bytes are given to `put`; the records come from `from`.
    pub fn new<K>(
        from: &'a dyn Region,
        collected: &Collected<K>,
        volume_id: [u8; 16],
        put: &'a mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Self {
        let &Collected { incarnation, segment_bytes, block, .. } = collected;
        let (bytes, end) = (vec![0; segment_bytes as usize], block as usize);
        let (index, last, previous) = (0, 0, None);
        Rebuilt { put, from, volume_id, incarnation, segment_bytes, block, bytes, index, end, last, previous }
    }

    /// Appends a record with another head, with only these of its entries, and with each payload as `change` leaves it.
    pub fn append<K: ClientKind>(
        &mut self,
        record: &Record<K>,
        head: Head,
        entries: &[Entry<K>],
        mut change: impl FnMut(&Entry<K>, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let lines = usize::from(head.lines) * LINE as usize;
        // Those of disks are whole blocks.
        if self.end + lines > self.bytes.len() {
            self.leave()?;
        }
        let seed = segment_seed(&self.volume_id, self.incarnation, u64::from(self.index) + 1);
        let position = self.start() + self.end as u64;
        let bytes = &mut self.bytes[self.end..self.end + lines];
        let mut tail = Vec::with_capacity(entries.len() * ENTRY);
        let mut first = None;
        for entry in entries {
            let mut payload = payload_of(self.from, record, entry)?;
            let place = record.position + u64::from(entry.line) * LINE;
            if !payload.is_empty() && payload_checksum(record.segment_seed, place, &payload) != entry.payload_checksum {
                return Err(Error::corrupt(format!("log, byte {place}"), "it has changed since it was verified"));
            }
            change(entry, &mut payload)?;
            let at = usize::from(entry.line.max(1)) * LINE as usize;
            let sum = payload_checksum(seed, position + at as u64, &payload);
            if !payload.is_empty() {
                bytes[at..at + payload.len()].copy_from_slice(&payload);
            }
            let entry = Entry { payload_checksum: sum, ..*entry };
            match first {
                None => first = Some(entry),
                Some(_) => tail.extend_from_slice(entry.to_words().as_bytes()),
            }
        }
        tail.resize(tail_lines(entries.len()) as usize * LINE as usize, 0);
        let flags = if head.kind == RecordKind::Commit { FLAG_BATCH_START } else { 0 };
        let head = Head { entries: entries.len() as u16, flags, ..head };
        let mut line = [0u64; LINE as usize / 8];
        first_line(&mut line, record_seed(seed, position), head, first.as_ref(), &tail);
        bytes[head.tail_offset() as usize..][..tail.len()].copy_from_slice(&tail);
        bytes[..HEAD + ENTRY].copy_from_slice(line.as_bytes());
        self.end += lines;
        if head.kind == RecordKind::Commit {
            self.last = head.sequence;
        }
        Ok(())
    }

    fn start(&self) -> u64 {
        SEGMENTS_START + u64::from(self.index) * self.segment_bytes
    }

    fn leave(&mut self) -> Result<()> {
        let sequence = u64::from(self.index) + 1;
        let header =
            SegmentHeader { lane: 0, incarnation: self.incarnation, sequence, generation: 1, previous: self.previous };
        let start = self.start();
        let raw = header.to_raw(volume_seed(&self.volume_id), start);
        self.bytes[..LINE as usize].copy_from_slice(raw.as_bytes());
        (self.put)(start, &self.bytes)?;
        self.bytes.fill(0);
        self.previous = Some(Previous { sequence, last: self.last, end: self.end as u32 });
        (self.index, self.end) = (self.index + 1, self.block as usize);
        Ok(())
    }

    /// Writes what is left, and the superblock last. All of it is to be made durable by the caller.
    pub fn finish<P: ClientPart>(mut self, tail: u64, checkpointing: u64, client: P) -> Result<()> {
        self.leave()?;
        // A log has two segments at least.
        if self.index < 2 {
            let start = self.start();
            (self.put)(start, &self.bytes)?;
            self.index += 1;
        }
        let log = LogPart {
            volume_id: self.volume_id,
            generation: 1,
            incarnation: self.incarnation,
            tail,
            checkpointing,
            segment_bytes: self.segment_bytes,
            segments: Some(self.index),
            min_segments: 2,
            kept: Kept::default(),
            committed: 0,
            block: self.block as u32,
        };
        let superblock = Superblock { log, client };
        let mut slot = vec![0; SUPERBLOCK_SLOT as usize];
        let raw = superblock.to_raw();
        slot[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
        (self.put)(superblock.slot_offset(), &slot)
    }
}
