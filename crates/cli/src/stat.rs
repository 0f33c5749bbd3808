//! `wholly stat`: how a store is doing, read from outside.
//!
//! It opens nothing: an open would recover the store, raise its incarnation and keep its own program out for that moment, which nobody
//! expects of a verb that shows something.

use crate::args::StatArgs;
use crate::error::{Exit, Failure};
use crate::output::{Ui, count, size};
use crate::support::{self, Support};
use crate::survey::Survey;
use serde::Serialize;
use std::path::PathBuf;
use wholly_media::HostFs;
use wholly_media::host::{HostDir, HostOptions};

#[derive(Serialize)]
struct Stat {
    dir: PathBuf,
    file_system: String,
    support: Support,
    medium: String,
    emulated: bool,
    /// Whether a process has the store open.
    in_use: bool,
    /// That process, as it knows itself.
    owner_pid: Option<u32>,
    volume_id: Option<String>,
    /// How often the store was opened.
    incarnation: Option<u64>,
    log: Log,
    pending: Pending,
    /// What does not fit.
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Log {
    bytes: u64,
    segment_bytes: Option<u64>,
    segments: u64,
    segments_in_use: u64,
    segments_free: u64,
}

#[derive(Serialize)]
struct Pending {
    groups: u64,
    files: u64,
    blocks: u64,
    bytes: u64,
}

/// Shows a store.
pub fn run(args: &StatArgs, ui: &Ui) -> Result<Exit, Failure> {
    let survey = Survey::of(&args.dir, "stat")?;
    let superblock = survey.superblock();
    let pending = survey.pending();
    let (segments, segments_in_use) = (survey.segments.len() as u64, survey.segments_in_use());
    let host = HostDir::open(&args.dir, HostOptions::default())
        .map_err(|error| Failure::of_media(format!("stat {}", args.dir.display()), error))?;
    let stat = Stat {
        dir: args.dir.canonicalize().unwrap_or_else(|_| args.dir.clone()),
        file_system: survey.file_system.to_string(),
        support: support::of(survey.file_system, host.guarantees()),
        medium: survey.medium.clone(),
        emulated: survey.emulated,
        in_use: survey.owner.is_some(),
        owner_pid: survey.owner.and_then(|owner| owner.pid),
        volume_id: superblock.map(|s| s.volume_id.iter().map(|byte| format!("{byte:02x}")).collect()),
        incarnation: superblock.map(|s| s.incarnation),
        log: Log {
            bytes: survey.log_bytes,
            segment_bytes: superblock.map(|s| s.segment_bytes),
            segments,
            segments_in_use,
            segments_free: segments - segments_in_use,
        },
        pending: Pending { groups: pending.groups, files: pending.files, blocks: pending.blocks, bytes: pending.bytes },
        faults: survey.faults(),
    };
    ui.emit("stat", &stat, text)?;
    Ok(if stat.faults.is_empty() { Exit::Done } else { Exit::Damaged })
}

fn text(stat: &Stat) -> String {
    let emulated = if stat.emulated && !stat.medium.contains("emulated") { " (emulated)" } else { "" };
    let mut text = format!(
        "{}\n  file system  {}: {}\n  medium       {}{emulated}\n",
        stat.dir.display(),
        stat.file_system,
        stat.support.line(),
        stat.medium
    );
    let user = match (stat.in_use, stat.owner_pid) {
        (false, _) => "nobody".into(),
        (true, Some(pid)) => format!("process {pid}; what follows is of this moment"),
        (true, None) => "a process; what follows is of this moment".into(),
    };
    text += &format!("  in use by    {user}\n");
    if let Some(incarnation) = stat.incarnation {
        text += &format!("  opened       {}\n", count(incarnation, "time"));
    }
    let log = &stat.log;
    text += &format!(
        "  log          {}, {} of {}: {} in use, {} free\n",
        size(log.bytes),
        count(log.segments, "segment"),
        log.segment_bytes.map_or("unknown size".into(), size),
        log.segments_in_use,
        log.segments_free
    );
    let pending = &stat.pending;
    text += &match (pending.groups, stat.in_use) {
        (0, _) => "  not home     nothing: all files are current\n".to_string(),
        (groups, in_use) => format!(
            "  not home     {}: {} in {} of {}; {}\n",
            count(groups, "committed group"),
            size(pending.bytes),
            count(pending.blocks, "block"),
            count(pending.files, "file"),
            if in_use {
                "their program takes them home by and by"
            } else {
                "the next open serves them, `wholly recover` takes them home"
            }
        ),
    };
    for fault in &stat.faults {
        text += &format!("  damaged      {fault}\n");
    }
    text
}
