//! A store's log as it stands on media, read without owning the store and without changing a byte.
//!
//! A program that has the store open goes on meanwhile: what is read then is a snapshot with blurred edges. Records
//! prove themselves, so nothing false is ever shown; what was appended or freed during the reading may be missing.

mod medium;
mod told;

use crate::error::Failure;
use crate::output::Name;
pub use medium::{medium_of, volume_id, volume_id_of};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use told::Places;
pub use told::{Told, below};
use wholly::hostdir::ReadOnly;
use wholly::log::checksum::{payload_checksum, segment_seed};
use wholly::log::layout::{
    Entry, EntryKind, LINE, RawSegmentHeader, RecordKind, SEGMENTS_START, SegmentHeader, Superblock,
};
use wholly::log::scan::{Record, SegmentReader, record_at};
use wholly::log::{Slot, read_slots, refuse_unsupported, segments_in, volume_seed};
use wholly_host::{Busy, HostDir, HostFile, HostFs, HostOptions, StoreHome};
use wholly_media::Region;
use zerocopy::FromBytes;

/// Where the log is, below the store's directory.
const LOG: &[u8] = b".wholly/log";

/// All that can be seen of a store from outside.
pub struct Survey {
    /// What the directory is on, in words.
    pub medium: String,
    /// Whether that stands in for something else.
    pub emulated: bool,
    /// Who has the store open.
    pub owner: Option<Busy>,
    /// Bytes of the log.
    pub log_bytes: u64,
    /// The two superblock slots.
    pub slots: [Slot; 2],
    /// The slot in force.
    pub in_force: Option<usize>,
    /// Every segment, empty where no superblock is valid.
    pub segments: Vec<Segment>,
    /// The paths of objects by their ids, the latest that the log tells.
    pub paths: HashMap<u64, Vec<u8>>,
    /// Everything that does not fit, in words.
    pub faults: Vec<String>,
}

/// A segment.
pub struct Segment {
    /// Its number.
    pub index: u32,
    /// Its first byte.
    pub start: u64,
    /// Who opened it; none where nobody ever did.
    pub header: Option<SegmentHeader>,
    /// Its records.
    pub records: Vec<Seen>,
    /// Where they end.
    pub end: u64,
    /// Where reading it had to stop.
    pub fault: Option<String>,
}

/// A record, and what it is worth.
pub struct Seen {
    /// The record.
    pub record: Record,
    /// What has become of its group.
    pub fate: Fate,
    /// For each entry, whether its payload holds; none where it has no payload.
    pub payloads: Vec<Option<bool>>,
    /// For each entry, what its payload tells where it holds.
    pub told: Vec<Option<Box<Told>>>,
}

/// What has become of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Committed, and not home yet.
    Pending,
    /// Committed, and home: the record is not needed any more.
    Home,
    /// No commit record: the group is running, or was aborted, or a crash came before its commit.
    Uncommitted,
}

impl Fate {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Fate::Pending => "pending",
            Fate::Home => "written-back",
            Fate::Uncommitted => "uncommitted",
        }
    }
}

/// What of a store is not home yet.
pub struct Pending {
    /// Committed groups.
    pub groups: u64,
    /// Files that they change.
    pub files: u64,
    /// Blocks of 4 KiB that they touch.
    pub blocks: u64,
    /// Bytes that they write.
    pub bytes: u64,
    /// The files by their paths.
    pub paths: Vec<PendingFile>,
}

/// What of a file is not home yet.
#[derive(Serialize)]
pub struct PendingFile {
    /// Its path below the store's directory.
    pub path: Name,
    /// Blocks of 4 KiB that groups touch.
    pub blocks: u64,
    /// Bytes that they write.
    pub bytes: u64,
}

impl Survey {
    /// Looks at the store in `dir`, for `verb`.
    pub fn of(dir: &Path, verb: &str) -> Result<Survey, Failure> {
        /// How often a store in use is looked at again where something does not fit.
        const AGAIN: u32 = 4;
        let mut survey = Self::look(dir, verb)?;
        survey.faults = survey.find_faults();
        for _ in 0..AGAIN {
            if survey.owner.is_none() || survey.faults.is_empty() {
                break;
            }
            // A segment that is written, or used again, while it is read looks like rot. Rot stays where it is.
            std::thread::sleep(Duration::from_millis(20));
            let mut again = Self::look(dir, verb)?;
            again.faults = again.find_faults();
            again.faults.retain(|fault| survey.faults.contains(fault));
            survey = again;
        }
        Ok(survey)
    }

    fn look(dir: &Path, verb: &str) -> Result<Survey, Failure> {
        let what = || format!("{verb} {}", dir.display());
        let failed = |error| Failure::of_media(what(), error);
        let options = HostOptions { medium: medium_of(dir, &what())?, ..HostOptions::default() };
        let host = HostDir::open(dir, options).and_then(|host| StoreHome::look(&host)).map_err(failed)?;
        let owner = StoreHome::holder(&host).map_err(failed)?;
        let region = region_of(host.open(LOG, false).map_err(failed)?).map_err(failed)?;
        let slots = read_slots(&region).and_then(|slots| refuse_unsupported(&slots).map(|()| slots));
        let slots = slots.map_err(|error| Failure::of_store(verb, dir, error))?;
        let generation = |slot: usize| slots[slot].as_ref().ok().map(|superblock| superblock.generation);
        let in_force = (0..2).filter(|&slot| generation(slot).is_some()).max_by_key(|&slot| generation(slot));
        let mut survey = Survey {
            medium: host.guarantees().description.clone(),
            emulated: host.guarantees().emulated,
            owner,
            log_bytes: region.len(),
            slots,
            in_force,
            segments: Vec::new(),
            paths: HashMap::new(),
            faults: Vec::new(),
        };
        if let Some(superblock) = survey.superblock().cloned() {
            survey.read_segments(&region, &superblock).map_err(failed)?;
        }
        Ok(survey)
    }

    /// The superblock in force.
    pub fn superblock(&self) -> Option<&Superblock> {
        self.in_force.and_then(|slot| self.slots[slot].as_ref().ok())
    }

    fn read_segments(&mut self, region: &ReadOnly, superblock: &Superblock) -> Result<(), wholly_media::Error> {
        for index in 0..segments_in(region, superblock.segment_bytes) {
            let segment = self.read_segment(region, superblock, index)?;
            self.segments.push(segment);
        }
        let mut fates: HashMap<u64, Fate> = HashMap::new();
        let all = || self.segments.iter().flat_map(|segment| &segment.records);
        for record in all().map(|seen| &seen.record).filter(|record| record.head.kind == RecordKind::Commit) {
            let fate = if record.head.sequence >= superblock.tail { Fate::Pending } else { Fate::Home };
            fates.insert(record.view().group(), fate);
        }
        for seen in self.segments.iter_mut().flat_map(|segment| &mut segment.records) {
            seen.fate = fates.get(&seen.record.view().group()).copied().unwrap_or(Fate::Uncommitted);
        }
        self.learn_paths();
        Ok(())
    }

    /// Learns the paths in commit order: the last that is told of an object counts. Those of groups without a commit
    /// record come first.
    fn learn_paths(&mut self) {
        let is_commit = |seen: &Seen| seen.record.head.kind == RecordKind::Commit;
        let commits = self.seen().filter(|seen| is_commit(seen));
        let order: HashMap<u64, u64> =
            commits.map(|seen| (seen.record.view().group(), seen.record.head.sequence)).collect();
        let mut telling: Vec<&Seen> = self.seen().filter(|seen| seen.told.iter().any(Option::is_some)).collect();
        telling.sort_by_key(|seen| {
            (order.get(&seen.record.view().group()).copied(), is_commit(seen), seen.record.head.part)
        });
        let mut places = Places::default();
        for seen in telling {
            for (entry, told) in seen.record.entries.iter().zip(&seen.told) {
                told.iter().for_each(|told| places.learn(entry.file, told));
            }
        }
        self.paths = places.into_paths();
    }

    fn read_segment(
        &self,
        region: &ReadOnly,
        superblock: &Superblock,
        index: u32,
    ) -> Result<Segment, wholly_media::Error> {
        let start = SEGMENTS_START + u64::from(index) * superblock.segment_bytes;
        let mut line = [0u8; LINE as usize];
        region.read(start, &mut line)?;
        let raw = RawSegmentHeader::read_from_bytes(&line).expect("a header's bytes");
        let header = SegmentHeader::checked(&raw, volume_seed(&superblock.volume_id), start);
        let mut segment = Segment { index, start, header, records: Vec::new(), end: start, fault: None };
        let Some(header) = header else { return Ok(segment) };
        let seed = segment_seed(&superblock.volume_id, header.incarnation, header.sequence);
        let mut reader = SegmentReader::new(region, start, superblock.segment_bytes);
        segment.end = start + u64::from(superblock.block);
        loop {
            match record_at(&mut reader, seed, segment.end) {
                Ok(Some(record)) => {
                    segment.end = record.end();
                    let entries = record.entries.iter();
                    let (payloads, told) = entries.map(|entry| payload(&mut reader, &record, entry)).unzip();
                    segment.records.push(Seen { record, fate: Fate::Uncommitted, payloads, told });
                }
                Ok(None) => return Ok(segment),
                Err(error) => {
                    segment.fault = Some(error.to_string());
                    return Ok(segment);
                }
            }
        }
    }

    /// What is not home yet.
    pub fn pending(&self) -> Pending {
        let mut groups = BTreeSet::new();
        let mut files: BTreeMap<Cow<'_, [u8]>, (BTreeSet<u64>, u64)> = BTreeMap::new();
        for seen in self.seen().filter(|seen| seen.fate == Fate::Pending) {
            groups.insert(seen.record.view().group());
            for (entry, told) in seen.record.entries.iter().zip(&seen.told) {
                // A file has another number after each open: it is the path that counts.
                let path = match (entry.kind, told.as_deref()) {
                    (EntryKind::Identify | EntryKind::Parts | EntryKind::Clock | EntryKind::Applied, _) => continue,
                    (EntryKind::Name, Some(Told::Value(value))) => {
                        self.paths.get(&entry.file).map(|directory| Cow::from(below(directory, &value.name)))
                    }
                    _ => self.paths.get(&entry.file).map(Cow::from),
                };
                let path = path.unwrap_or_default();
                let (blocks, bytes) = files.entry(path).or_default();
                let length = match told.as_deref() {
                    Some(Told::Shadow(shadow)) => shadow.length,
                    _ if entry.kind == EntryKind::Write => u64::from(entry.length),
                    _ => 0,
                };
                if length > 0 {
                    *bytes += length;
                    blocks.extend(entry.offset / BLOCK..=(entry.offset + length - 1) / BLOCK);
                }
            }
        }
        let file = |(path, (blocks, bytes)): (Cow<'_, [u8]>, (BTreeSet<u64>, u64))| PendingFile {
            path: Name::from(&*path),
            blocks: blocks.len() as u64,
            bytes,
        };
        let paths: Vec<PendingFile> = files.into_iter().map(file).collect();
        Pending {
            groups: groups.len() as u64,
            files: paths.len() as u64,
            blocks: paths.iter().map(|file| file.blocks).sum(),
            bytes: paths.iter().map(|file| file.bytes).sum(),
            paths,
        }
    }

    /// How many segments hold something that is still needed.
    pub fn segments_in_use(&self) -> u64 {
        self.segments.iter().filter(|segment| segment.is_needed()).count() as u64
    }

    fn find_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.in_force.is_none() {
            faults.push("superblock: neither copy is valid".to_string());
        }
        for segment in &self.segments {
            faults.extend(segment.fault.clone());
            for seen in segment.records.iter().filter(|seen| seen.fate == Fate::Pending) {
                if seen.payloads.contains(&Some(false)) {
                    let at = seen.record.position;
                    faults
                        .push(format!("log, byte {at}: the payload of a committed group does not match its checksum"));
                }
                if seen.told.iter().flatten().any(|told| matches!(**told, Told::Impossible)) {
                    let at = seen.record.position;
                    faults.push(format!("log, byte {at}: the payload of a committed group is invalid"));
                }
            }
        }
        faults
    }

    /// The path of what an entry speaks of: of an object, or of a name.
    pub fn path(&self, entry: &Entry, told: Option<&Told>) -> Option<Name> {
        let path = self.paths.get(&entry.file)?;
        Some(match told {
            Some(Told::Value(value)) => Name::from(&*below(path, &value.name)),
            _ => Name::from(&**path),
        })
    }

    fn seen(&self) -> impl Iterator<Item = &Seen> {
        self.segments.iter().flat_map(|segment| &segment.records)
    }
}

/// Bytes of a block.
const BLOCK: u64 = 4096;

impl Segment {
    /// Whether it holds something that the next open needs.
    pub fn is_needed(&self) -> bool {
        self.records.iter().any(|seen| seen.fate == Fate::Pending)
    }
}

/// The log, for reading. Called a disk whatever it is on, so that readers fetch a segment at once.
fn region_of(file: Arc<dyn HostFile>) -> Result<ReadOnly, wholly_media::Error> {
    let len = file.stat()?.size;
    Ok(ReadOnly::new(file, len, 512))
}

/// Whether an entry's payload holds, and what it tells.
fn payload(reader: &mut SegmentReader<'_>, record: &Record, entry: &Entry) -> (Option<bool>, Option<Box<Told>>) {
    if entry.length == 0 {
        return (None, None);
    }
    let position = record.position + u64::from(entry.line) * LINE;
    let mut payload = vec![0; entry.length as usize];
    let holds = reader.read(position, &mut payload).is_ok()
        && entry.payload_checksum == payload_checksum(record.segment_seed, position, &payload);
    (Some(holds), if holds { Told::of(entry.kind, &payload) } else { None })
}

/// A number of a group, a sequence or an object: the life in which it was given, and which it was.
pub fn number(id: u64) -> String {
    format!("{}.{}", id >> 40, id & ((1 << 40) - 1))
}
