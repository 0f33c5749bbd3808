//! `wholly dump`: the log, record by record, read from outside.

mod operands;

use crate::args::DumpArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, size};
use crate::survey::{Fate, Seen, Segment, Survey, Told, number};
use operands::Operands;
use serde::Serialize;
use std::fmt::Write;
use wholly::log::layout::{Entry, EntryKind, RecordKind, Superblock, SuperblockFault};

#[derive(Serialize)]
struct Dump {
    dir: Name,
    medium: String,
    emulated: bool,
    in_use: bool,
    owner_pid: Option<u32>,
    log_bytes: u64,
    superblocks: Vec<DumpedSlot>,
    segments: Vec<DumpedSegment>,
    /// Segments that were left out, since nothing in them is needed.
    segments_left_out: u64,
    /// Records that were left out, since their groups are home.
    records_left_out: u64,
    faults: Vec<String>,
}

#[derive(Serialize)]
struct DumpedSlot {
    slot: usize,
    current: bool,
    fault: Option<String>,
    generation: Option<u64>,
    incarnation: Option<u64>,
    tail: Option<u64>,
    checkpointing: Option<u64>,
    segment_bytes: Option<u64>,
    block_bytes: Option<u32>,
    volume_id: Option<String>,
    /// The inode that the log was when it was opened last, null where nobody knows.
    log_inode: Option<u64>,
}

#[derive(Serialize)]
struct DumpedSegment {
    segment: u32,
    position: u64,
    /// Where its records end, in bytes of the log.
    end: u64,
    lane: Option<u32>,
    incarnation: Option<u64>,
    sequence: Option<u64>,
    /// The superblock that was in force when it was opened.
    generation: Option<u64>,
    needed: bool,
    records: Vec<DumpedRecord>,
    fault: Option<String>,
}

#[derive(Serialize)]
struct DumpedRecord {
    position: u64,
    bytes: u64,
    kind: &'static str,
    group: u64,
    /// The place in commit order, of a commit record.
    sequence: Option<u64>,
    /// The number of a part, or of the parts before a commit record.
    part: u16,
    begins_batch: bool,
    fate: &'static str,
    entries: Vec<DumpedEntry>,
}

#[derive(Serialize)]
struct DumpedEntry {
    kind: String,
    file: u64,
    path: Option<Name>,
    offset: u64,
    length: u32,
    /// `good`, `bad`, `impossible`, or null where there is no payload.
    payload: Option<&'static str>,
    /// What it asks for beyond that.
    operands: Option<Operands>,
}

/// Prints a log.
pub fn run(args: &DumpArgs, ui: &Ui) -> Result<Exit, Failure> {
    if args.path.is_some() || args.inode.is_some() {
        let why = "PATH and --inode name an object in a volume, and this is a directory";
        return Err(Failure::new(format!("dump {}", args.dir.display()), why).exit(Exit::USAGE));
    }
    let survey = Survey::of(&args.dir, "dump")?;
    let dump = collect(args, &survey)?;
    ui.emit("dump", &dump, text)?;
    Ok(if dump.faults.is_empty() { Exit::DONE } else { Exit::DAMAGED })
}

fn collect(args: &DumpArgs, survey: &Survey) -> Result<Dump, Failure> {
    if let Some(index) = args.segment
        && survey.in_force.is_some()
        && !survey.segments.iter().any(|segment| segment.index == index)
    {
        let last = survey.segments.len().saturating_sub(1);
        let why = format!("there is no segment {index}; they are numbered 0 to {last}");
        return Err(Failure::new(format!("dump {}", args.dir.display()), why).exit(Exit::USAGE));
    }
    let wanted = |segment: &&Segment| match args.segment {
        Some(index) => segment.index == index,
        None => args.all || segment.fault.is_some() || segment.records.iter().any(is_interesting),
    };
    let shown = |seen: &&Seen| args.all || args.segment.is_some() || is_interesting(seen);
    let chosen: Vec<&Segment> = survey.segments.iter().filter(wanted).collect();
    let records = |segments: &[&Segment]| segments.iter().map(|segment| segment.records.len() as u64).sum::<u64>();
    let segments: Vec<DumpedSegment> = chosen
        .iter()
        .map(|segment| DumpedSegment {
            segment: segment.index,
            position: segment.start,
            end: segment.end,
            lane: segment.header.map(|header| header.lane),
            incarnation: segment.header.map(|header| header.incarnation),
            sequence: segment.header.map(|header| header.sequence),
            generation: segment.header.map(|header| header.generation),
            needed: segment.is_needed(),
            records: segment.records.iter().filter(shown).map(|seen| record(survey, seen)).collect(),
            fault: segment.fault.clone(),
        })
        .collect();
    let shown = segments.iter().map(|segment| segment.records.len() as u64).sum::<u64>();
    Ok(Dump {
        dir: Name::of_dir(&args.dir),
        medium: survey.medium.clone(),
        emulated: survey.emulated,
        in_use: survey.owner.is_some(),
        owner_pid: survey.owner.and_then(|owner| owner.pid),
        log_bytes: survey.log_bytes,
        superblocks: (0..2).map(|slot| dumped_slot(survey, slot)).collect(),
        segments_left_out: (survey.segments.len() - segments.len()) as u64,
        records_left_out: records(&chosen) - shown,
        segments,
        faults: survey.faults.clone(),
    })
}

/// Whether a record tells of something that is not over.
fn is_interesting(seen: &Seen) -> bool {
    seen.fate != Fate::Home
}

fn dumped_slot(survey: &Survey, slot: usize) -> DumpedSlot {
    let checked = &survey.slots[slot];
    let field = |f: fn(&Superblock) -> u64| checked.as_ref().ok().map(f);
    let hex = |f: fn(&Superblock) -> [u8; 16]| {
        checked.as_ref().ok().map(|s| f(s).iter().map(|byte| format!("{byte:02x}")).collect())
    };
    DumpedSlot {
        slot,
        current: survey.in_force == Some(slot),
        fault: checked.as_ref().err().map(|fault| match fault {
            SuperblockFault::Foreign => "never written, or not a superblock of Wholly".to_string(),
            SuperblockFault::Checksum => "the checksum does not match: torn or corrupt".into(),
            SuperblockFault::Geometry => "valid checksum, but invalid content".into(),
            SuperblockFault::Version(_) | SuperblockFault::Features(_) => {
                Superblock::unsupported(*fault).unwrap_or_default()
            }
        }),
        generation: field(|s| s.generation),
        incarnation: field(|s| s.incarnation),
        tail: field(|s| s.tail),
        checkpointing: field(|s| s.checkpointing),
        segment_bytes: field(|s| s.segment_bytes),
        block_bytes: checked.as_ref().ok().map(|s| s.block),
        volume_id: hex(|s| s.volume_id),
        log_inode: field(|s| s.client.origin.log.0).filter(|ino| *ino != 0),
    }
}

fn record(survey: &Survey, seen: &Seen) -> DumpedRecord {
    let head = &seen.record.head;
    let entries = seen.record.entries.iter().zip(&seen.payloads).zip(&seen.told);
    let entries = entries.map(|((entry, holds), told)| entry_of(survey, entry, *holds, told.as_deref()));
    DumpedRecord {
        position: seen.record.position,
        bytes: seen.record.end() - seen.record.position,
        kind: if head.kind == RecordKind::Commit { "commit" } else { "part" },
        group: seen.record.view().group(),
        sequence: (head.kind == RecordKind::Commit).then_some(head.sequence),
        part: head.part,
        begins_batch: head.flags & wholly::log::layout::FLAG_BATCH_START != 0,
        fate: seen.fate.word(),
        entries: entries.collect(),
    }
}

fn entry_of(survey: &Survey, entry: &Entry, holds: Option<bool>, told: Option<&Told>) -> DumpedEntry {
    DumpedEntry {
        kind: format!("{:?}", entry.kind).to_lowercase(),
        file: entry.file,
        path: survey.path(entry, told),
        offset: entry.offset,
        length: entry.length,
        payload: match (holds, told) {
            (Some(true), Some(Told::Impossible)) => Some("impossible"),
            (holds, _) => holds.map(|holds| if holds { "good" } else { "bad" }),
        },
        operands: match entry.kind {
            EntryKind::Clock => Some(Operands::Clock { time_ns: entry.offset }),
            EntryKind::Applied | EntryKind::Provisional => {
                Some(Operands::Applied { parked: wholly::ParkedId(entry.offset).to_string() })
            }
            _ => told.and_then(Operands::of),
        },
    }
}

fn text(dump: &Dump) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut out, dump);
    out
}

fn write_text(out: &mut String, dump: &Dump) -> std::fmt::Result {
    writeln!(out, "{}: log of {} on {}", dump.dir, size(dump.log_bytes), dump.medium)?;
    if dump.in_use {
        let owner = dump.owner_pid.map_or("a process".into(), |pid| format!("process {pid}"));
        writeln!(out, "{owner} has the store open: this is a snapshot")?;
    }
    for slot in &dump.superblocks {
        write!(out, "superblock {}{}", slot.slot, if slot.current { " (current)" } else { "" })?;
        match (&slot.fault, slot.generation, slot.tail, slot.checkpointing) {
            (None, Some(generation), Some(tail), Some(checkpointing)) => writeln!(
                out,
                "  generation {generation}  incarnation {}  tail {}  checkpointing {}  segments of {}  blocks of {} B",
                slot.incarnation.unwrap_or_default(),
                number(tail),
                number(checkpointing),
                size(slot.segment_bytes.unwrap_or_default()),
                slot.block_bytes.unwrap_or_default()
            )?,
            (fault, ..) => writeln!(out, "  {}", fault.as_deref().unwrap_or("unreadable"))?,
        }
    }
    for segment in &dump.segments {
        write_segment(out, segment)?;
    }
    if dump.segments_left_out + dump.records_left_out > 0 {
        writeln!(
            out,
            "omitted: {} segments and {} records that are no longer needed (--all shows them)",
            dump.segments_left_out, dump.records_left_out
        )?;
    }
    for fault in &dump.faults {
        writeln!(out, "damaged: {fault}")?;
    }
    Ok(())
}

fn write_segment(out: &mut String, segment: &DumpedSegment) -> std::fmt::Result {
    write!(out, "segment {} at byte {}", segment.segment, segment.position)?;
    match (segment.lane, segment.incarnation, segment.sequence.zip(segment.generation)) {
        (Some(lane), Some(incarnation), Some((sequence, generation))) => {
            writeln!(
                out,
                "  lane {lane}  opened as {sequence} of incarnation {incarnation} under superblock {generation}  \
                 records end at {}",
                segment.end
            )?;
        }
        _ => writeln!(out, "  free, never used")?,
    }
    for record in &segment.records {
        let order = match record.sequence {
            Some(sequence) if record.part > 0 => format!("{} after {} parts", number(sequence), record.part),
            Some(sequence) => number(sequence),
            None => format!("number {}", record.part),
        };
        writeln!(
            out,
            "  {:>10}  {} {order}  group {}  {}  {}",
            record.position,
            record.kind,
            number(record.group),
            record.fate,
            size(record.bytes)
        )?;
        for entry in &record.entries {
            write_entry(out, entry)?;
        }
    }
    if let Some(fault) = &segment.fault {
        writeln!(out, "  stopped: {fault}")?;
    }
    Ok(())
}

fn write_entry(out: &mut String, entry: &DumpedEntry) -> std::fmt::Result {
    let id = number(entry.file);
    let about = match (&*entry.kind, &entry.path) {
        ("parts" | "clock", _) => String::new(),
        ("name", None) => format!("a name in object {id}"),
        (_, None) => format!("object {id}"),
        (_, Some(path)) => path.to_string(),
    };
    let what = match (&*entry.kind, &entry.operands) {
        ("write", _) => format!("{} B at {}", entry.length, entry.offset),
        ("truncate", _) => format!("to {} B", entry.offset),
        ("parts", _) => format!("of group {}", number(entry.offset)),
        ("identify" | "create", Some(operands)) => format!("as object {id}: {operands}"),
        ("space", Some(operands)) => format!("{operands}, from {} on", entry.offset),
        (_, Some(operands)) => operands.to_string(),
        _ => format!("as object {id}"),
    };
    let payload = match entry.payload {
        Some("bad") => "  PAYLOAD DOES NOT MATCH ITS CHECKSUM",
        Some("impossible") => "  PAYLOAD IS INVALID",
        _ => "",
    };
    let gap = if about.is_empty() { "" } else { "  " };
    writeln!(out, "              {:<10} {about}{gap}{what}{payload}", entry.kind)
}
