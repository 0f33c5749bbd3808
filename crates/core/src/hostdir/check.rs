//! Finding what is wrong with a store, without changing a byte of it.
//!
//! It is recovery that looks: the log is scanned and its groups are replayed as at an open, but from a region that
//! drops what is written to it, with home files that are only looked at. What recovery would refuse is noted, and the
//! scan goes on with what is left; payloads, which an open leaves to their first read, are all verified.

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;

use wholly_host::{HostFile, HostFs};
use wholly_media::{Guarantees, Region, Site};

use super::homes::Looking;
use super::names::{ANCHOR_FOLDER, BLANK_FOLDER, UNDO_FOLDER};
use super::published::Published;
use super::recover::{Here, Replay};
use super::room;
use super::shadow::{SHADOW_FOLDER, Shadows};
use crate::error::{Error, Result};
use crate::log::fit::{as_made, made_for};
use crate::log::layout::{Entry, EntryKind, LINE, SEGMENTS_START, StorePart, Superblock, SuperblockFault};
use crate::log::scan::{self, CommittedGroup, RecordView, SegmentReader};
use crate::log::verify::holds;
use crate::log::{Geometry, Slot, StoreClient, in_force, read_slots};

/// What a finding is about, and what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// One of the two copies of the superblock is damaged. If the other one is intact, the store opens and writes this
    /// one again.
    Superblock,
    /// Segments, records or groups of the log contradict each other. The store does not open.
    Log,
    /// The payload of a committed group does not match its checksum. The store opens; reads of those bytes fail.
    Payload,
    /// The store is a copy, and its log is not empty. It does not open until the copy is accepted
    /// ([`Options::accept_copy`](crate::Options::accept_copy)).
    Copy,
    /// A file was changed or removed while the log held updates for it. The store opens, and writes nothing back.
    File,
    /// The file system has less free space than it takes to write the log back. The store opens, and keeps it in the
    /// log.
    Space,
    /// Other users can read the store's folder, or its owner cannot. [`tidy`](crate::tidy) corrects it.
    Mode,
    /// A store that was half made or half removed here left this. [`tidy`](crate::tidy) removes it.
    Leftover,
    /// The store's folder contains something that no store puts there.
    Stranger,
    /// The store's folder lacks a file without which the store cannot be opened.
    Missing,
    /// A parked group is damaged. It cannot be applied; nothing else depends on it.
    Parked,
    /// What a joint commit needs is damaged. Either the store does not open unless
    /// [`Options::release`](crate::Options::release) is set, or it cannot tell other stores its decision.
    Joint,
    /// A crash left this of groups whose commit had not returned. It is not a fault; the next open removes it.
    Torn,
}

/// One thing that a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// A place in the log, or a path relative to the store's directory.
    pub place: OsString,
    /// What is wrong there.
    pub what: String,
}

impl Finding {
    pub(crate) fn new(kind: FindingKind, place: impl Into<OsString>, what: impl Into<String>) -> Self {
        Finding { kind, place: place.into(), what: what.into() }
    }

    /// Whether something is wrong. What a crash leaves is not.
    pub fn is_fault(&self) -> bool {
        self.kind != FindingKind::Torn
    }
}

/// The result of a [`check`](crate::check).
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The findings, in the order in which an open would meet them.
    pub findings: Vec<Finding>,
    /// The number of segments that are in use.
    pub segments: u32,
    /// The number of committed groups that are not written back yet.
    pub groups: u64,
    /// Bytes of payload of these groups. All of it was verified.
    pub payload_bytes: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        !self.findings.iter().any(Finding::is_fault)
    }
}

/// Checks the log in the file `log`, and the ordinary files in `host` that it has updates for: a part of
/// [`check`](crate::check). No process may write to the log during the call.
///
/// # Errors
/// [`Error::Unsupported`] if another version of Wholly wrote the log; errors of the medium. Damage is not an error but
/// a finding.
pub fn check_on(log: Arc<dyn HostFile>, host: Arc<dyn HostFs>) -> Result<Report> {
    let len = log.stat()?.size;
    let block = if len < SEGMENTS_START { None } else { in_force(&slots_of(&log)?).map(|superblock| superblock.block) };
    check_log(Arc::new(ReadOnly::new(log, len, block.unwrap_or(LINE as u32))), host)
}

/// The same for a log on any medium, to which nothing is written.
pub fn check_region(log: Arc<dyn Region>, host: Arc<dyn HostFs>) -> Result<Report> {
    let (log, _) = as_made::<StorePart>(log)?;
    let (len, guarantees) = (log.len(), log.guarantees().clone());
    check_log(Arc::new(ReadOnly { source: Source::Region(log), len, guarantees }), host)
}

fn check_log(region: Arc<dyn Region>, host: Arc<dyn HostFs>) -> Result<Report> {
    let mut report = Report::default();
    if region.len() < SEGMENTS_START {
        let what = format!("the log is only {} bytes long", region.len());
        report.findings.push(Finding::new(FindingKind::Superblock, "superblock", what));
        return Ok(report);
    }
    let slots = read_slots(&*region)?;
    let superblock = in_force(&slots).cloned();
    for (slot, fault) in slots.iter().enumerate().filter_map(|(slot, checked)| Some((slot, checked.as_ref().err()?))) {
        report.findings.extend(slot_finding(slot, *fault, superblock.as_ref())?);
    }
    let Some(superblock) = superblock else { return Ok(report) };

    let here = Here::of(&*host)?;
    let homes = Looking(host);
    let (index, shadows) = (Published::new(), Shadows::new());
    let geometry = Geometry {
        segment_bytes: superblock.segment_bytes,
        min_segments: superblock.min_segments,
        max_segments: superblock.min_segments,
    };
    let mut judge = Judge {
        replay: Replay::new(region.clone(), &homes, (&index, &shadows), &superblock).may_adopt(),
        reader: SegmentReader::new(&*region, SEGMENTS_START, superblock.segment_bytes),
        start: SEGMENTS_START,
        region: &*region,
        superblock: &superblock,
        scratch: Vec::new(),
        places: HashSet::new(),
        report: &mut report,
    };
    let take_over = |part: &mut StorePart, groups| here.refuse_copy(part.origin, groups);
    let (_, scan) = scan::open::<StoreClient>(region.clone(), geometry, take_over, &mut judge, &|_| ())?;
    judge.replay.settle()?;
    let mut conflicts: Vec<_> = judge.replay.conflicts().cloned().collect();
    conflicts.sort();
    for (path, change) in conflicts {
        judge.note(Finding::new(FindingKind::File, path, change));
    }
    for path in judge.replay.strange() {
        let what =
            "another program's object, which was exchanged for one of the store's: open the store to give it back";
        judge.note(Finding::new(FindingKind::File, path, what));
    }
    let (promised, free) = (judge.replay.promised(), room::free_on(&*homes.0)?);
    if promised.bytes > free.bytes || promised.inodes > free.inodes {
        let what = format!(
            "to write the log back takes {} bytes and {} inodes, and {} and {} are free",
            promised.bytes, promised.inodes, free.bytes, free.inodes
        );
        judge.note(Finding::new(FindingKind::Space, "file system", what));
    }
    (report.segments, report.groups) = (scan.segments, scan.groups);
    report.findings.append(&mut super::parked::folder::check(&*homes.0, &superblock.volume_id)?);
    report.findings.append(&mut super::joint::folder::check(&*homes.0, &superblock.volume_id)?);
    if scan.rejected > 0 {
        let what = format!("{} whose payload is not there: their commit had not returned", scan.rejected);
        report.findings.push(Finding::new(FindingKind::Torn, "log, last records", what));
    }
    Ok(report)
}

/// Whether `path`, relative to the store's directory, is one of the folders that the store keeps its own files in.
pub fn is_own_folder(path: &[u8]) -> bool {
    [
        ANCHOR_FOLDER,
        BLANK_FOLDER,
        UNDO_FOLDER,
        SHADOW_FOLDER,
        super::layer::FOLDER,
        wholly_changes::FOLDER,
        super::joint::FOLDER,
    ]
    .contains(&path)
}

/// Returns the contents of the two superblock slots of the file `log`, each checked.
///
/// # Errors
/// Errors of the medium.
pub fn slots_of(log: &Arc<dyn HostFile>) -> Result<[Slot; 2]> {
    read_slots(&ReadOnly::new(log.clone(), SEGMENTS_START, LINE as u32))
}

fn slot_finding(slot: usize, fault: SuperblockFault, in_force: Option<&Superblock>) -> Result<Option<Finding>> {
    if let (None, Some(what)) = (in_force, Superblock::unsupported(fault)) {
        return Err(Error::unsupported(what));
    }
    let what = match (fault, in_force) {
        // The first superblock has the second slot; the first one is written by the first open.
        (SuperblockFault::Foreign, Some(superblock)) if superblock.generation == 1 => return Ok(None),
        (SuperblockFault::Foreign, _) => "it is gone",
        (SuperblockFault::Checksum, _) => "its checksum does not match",
        _ => "it is not what was written there last",
    };
    // A crash may come while one is written, which is never the valid one.
    let is_torn = fault == SuperblockFault::Checksum && in_force.is_some();
    let kind = if is_torn { FindingKind::Torn } else { FindingKind::Superblock };
    Ok(Some(Finding::new(kind, format!("superblock {slot}, byte {}", slot * 4096), what)))
}

/// Is given what recovery is given, and goes on where that would refuse.
struct Judge<'a> {
    replay: Replay<'a>,
    region: &'a dyn Region,
    superblock: &'a Superblock,
    /// Of the segment that was read last, which starts here.
    reader: SegmentReader<'a>,
    start: u64,
    scratch: Vec<u8>,
    /// What follows from a fault is often found at the same place again.
    places: HashSet<OsString>,
    report: &'a mut Report,
}

impl Judge<'_> {
    fn note(&mut self, finding: Finding) {
        if self.places.insert(finding.place.clone()) {
            self.report.findings.push(finding);
        }
    }

    fn verify(&mut self, record: &RecordView<'_>, sequence: u64) -> Result<()> {
        let bytes = self.superblock.segment_bytes;
        let start = SEGMENTS_START + (record.position - SEGMENTS_START) / bytes * bytes;
        if start != self.start {
            (self.reader, self.start) = (SegmentReader::new(self.region, start, bytes), start);
        }
        for entry in record.entries {
            self.report.payload_bytes += u64::from(entry.length);
            if !holds(&mut self.reader, record.segment_seed, record.position, entry, &mut self.scratch)? {
                let at = record.position + u64::from(entry.line) * LINE;
                let what = format!("{} of group {sequence:#x} do not match their checksum", self.bytes_of(entry));
                self.note(Finding::new(FindingKind::Payload, format!("log, byte {at}"), what));
            }
        }
        Ok(())
    }

    fn bytes_of(&self, entry: &Entry) -> String {
        let file = self.replay.path(entry.file).unwrap_or_else(|| format!("file {:#x}", entry.file));
        format!("{} bytes for byte {} of {file}", entry.length, entry.offset)
    }
}

impl scan::Replay for Judge<'_> {
    type Kind = EntryKind;

    fn group(&mut self, group: &CommittedGroup<'_>) -> Result<()> {
        if let Err(error) = self.replay.group(group) {
            self.refuse(error)?;
        }
        for part in group.parts {
            self.verify(&part.view(), group.sequence)?;
        }
        self.verify(&group.commit, group.sequence)
    }

    fn refuse(&mut self, error: Error) -> Result<()> {
        if let Error::Copied(holds) = error {
            self.note(Finding::new(FindingKind::Copy, "log", format!("a copy of another store: {holds}")));
            // What else is wrong shows as after an adoption.
            self.replay.adopt();
            return Ok(());
        }
        let Error::Corrupt { place, fault } = error else { return Err(error) };
        self.note(Finding::new(FindingKind::Log, place, fault));
        Ok(())
    }
}

/// A log that drops what recovery writes: it reads nothing of that back.
pub struct ReadOnly {
    source: Source,
    len: u64,
    guarantees: Guarantees,
}

enum Source {
    File(Arc<dyn HostFile>),
    Region(Arc<dyn Region>),
}

impl ReadOnly {
    /// Taken for what the log was made for, whatever it is on: where records are aligned to lines, that is persistent
    /// memory.
    pub fn new(file: Arc<dyn HostFile>, len: u64, block: u32) -> Self {
        ReadOnly { source: Source::File(file), len, guarantees: made_for(block, "a log that is only looked at") }
    }
}

impl Region for ReadOnly {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.len
    }

    /// Zeros stand for what is gone since the check began.
    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        match &self.source {
            Source::File(file) => {
                let read = file.read_at(offset, buf)?;
                buf[read..].fill(0);
                Ok(())
            }
            Source::Region(region) => region.read(offset, buf),
        }
    }

    fn write(&self, _site: Site, _offset: u64, _data: &[u8]) -> wholly_media::Result<()> {
        Ok(())
    }

    fn fence(&self, _site: Site) -> wholly_media::Result<()> {
        Ok(())
    }

    fn write_through(&self, _site: Site, _offset: u64, _data: &[u8]) -> wholly_media::Result<()> {
        Ok(())
    }

    fn set_len(&self, _site: Site, _len: u64) -> wholly_media::Result<()> {
        Ok(())
    }
}
