//! `wholly stat`: how a store is doing, read from outside.
//!
//! It opens nothing: an open would recover the store, raise its incarnation and keep its own program out for that
//! moment, which nobody expects of a verb that shows something.

use crate::args::StatArgs;
use crate::check::is_readable;
use crate::error::{Exit, Failure};
use crate::init::verdict;
use crate::list::{Parked, parked};
use crate::mounted::{Group, group_of};
use crate::output::{Name, Ui, count, size};
use crate::survey::{PendingFile, Survey, medium_of, volume_id};
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use wholly::FindingKind;
use wholly_host::{HostDir, HostFs, HostOptions, Support};

#[derive(Serialize)]
struct Stat {
    dir: Name,
    file_system: String,
    /// `supported`, `degraded` or `refused`, as far as that can be told without a change.
    support: String,
    reasons: Vec<&'static str>,
    medium: String,
    emulated: bool,
    /// Whether a process has the store open.
    in_use: bool,
    /// When the store was made, in seconds since 1970, where the file system knows.
    made: Option<i64>,
    /// When somebody last opened it.
    last_opened: Option<i64>,
    /// That process, as it knows itself.
    owner_pid: Option<u32>,
    /// The group that a program has on a mount of the store.
    group: Option<Group>,
    volume_id: Option<String>,
    /// How often the store was opened.
    opens: Option<u64>,
    log: Log,
    pending: Pending,
    /// Whether that is all: the log could be read to its end.
    readable: bool,
    /// Groups that are parked.
    parked: Vec<Parked>,
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
    /// The files that wait for them.
    paths: Vec<PendingFile>,
}

/// Shows a store.
pub fn run(args: &StatArgs, ui: &Ui) -> Result<Exit, Failure> {
    let survey = Survey::of(&args.dir, "stat")?;
    let superblock = survey.superblock();
    let pending = survey.pending();
    let (segments, segments_in_use) = (survey.segments.len() as u64, survey.segments_in_use());
    let options = HostOptions {
        medium: medium_of(&args.dir, &format!("stat {}", args.dir.display()))?,
        ..HostOptions::default()
    };
    let host = HostDir::open(&args.dir, options)
        .map_err(|error| Failure::of_media(format!("stat {}", args.dir.display()), error))?;
    let time = |path: &[u8], of: fn(&wholly_vfs::Stat) -> i64| {
        host.stat(path).ok().map(|stat| of(&stat) / 1_000_000_000).filter(|&seconds| seconds > 0)
    };
    let Support { file_system, level, reasons } = Support::look(&host);
    let mut faults = survey.faults.clone();
    let mut readable = superblock.is_some();
    // If no process writes to the log, it can be judged as an open would judge it.
    if survey.owner.is_none()
        && let Ok(report) = wholly::check(&args.dir)
    {
        readable &= is_readable(&report);
        let in_log = |f: &&wholly::Finding| matches!(f.kind, FindingKind::Log | FindingKind::Missing);
        faults.extend(report.findings.iter().filter(in_log).map(|f| format!("{}: {}", f.place.display(), f.what)));
    }
    let stat = Stat {
        dir: Name::of_dir(&args.dir),
        file_system,
        support: level.to_string(),
        reasons,
        medium: survey.medium.clone(),
        emulated: survey.emulated,
        in_use: survey.owner.is_some(),
        made: time(b".wholly/log", |stat| stat.btime_ns),
        // Each owner writes its number there.
        last_opened: time(b".wholly/lock", |stat| stat.mtime_ns)
            .filter(|_| superblock.is_some_and(|s| s.incarnation > 0)),
        owner_pid: survey.owner.and_then(|owner| owner.pid),
        group: group_of(&args.dir),
        volume_id: superblock.map(volume_id),
        opens: superblock.map(|s| s.incarnation),
        log: Log {
            bytes: survey.log_bytes,
            segment_bytes: superblock.map(|s| s.segment_bytes),
            segments,
            segments_in_use,
            segments_free: segments - segments_in_use,
        },
        pending: Pending {
            groups: pending.groups,
            files: pending.files,
            blocks: pending.blocks,
            bytes: pending.bytes,
            paths: pending.paths,
        },
        readable,
        parked: parked(&args.dir, "stat")?,
        faults,
    };
    ui.emit("stat", &stat, text)?;
    Ok(if stat.faults.is_empty() { Exit::DONE } else { Exit::DAMAGED })
}

/// Files that are named to people; `--json` names all.
const SHOWN: usize = 10;

/// How long ago a time was, in seconds since 1970.
pub fn ago(time: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let seconds = (now - time).max(0) as u64;
    match seconds {
        0..60 => "less than a minute ago".into(),
        60..3600 => format!("{} ago", count(seconds / 60, "minute")),
        3600..86400 => format!("{} ago", count(seconds / 3600, "hour")),
        _ => format!("{} ago", count(seconds / 86400, "day")),
    }
}

/// A time in seconds since 1970 as the user's clock shows it.
pub fn date(time: i64) -> String {
    let zoned = |at: jiff::Timestamp| at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string();
    jiff::Timestamp::from_second(time).map_or_else(|_| "the end of time".into(), zoned)
}

fn text(stat: &Stat) -> String {
    let emulated = if stat.emulated && !stat.medium.contains("emulated") { " (emulated)" } else { "" };
    let mut text = format!(
        "{}\n{}  medium       {}{emulated}\n",
        stat.dir,
        verdict(&stat.file_system, &stat.support, &stat.reasons),
        stat.medium
    );
    let user = match (stat.in_use, stat.owner_pid) {
        (false, _) => "no process".into(),
        (true, Some(pid)) => format!("process {pid}; the figures are of this moment"),
        (true, None) => "a process; the figures are of this moment".into(),
    };
    text += &format!("  in use by    {user}\n");
    if let Some(group) = &stat.group {
        text += &format!("  group        {}\n", group.text());
    }
    if let Some(made) = stat.made {
        text += &format!("  made         {}\n", ago(made));
    }
    if let Some(opens) = stat.opens {
        let last = stat.last_opened.map_or(String::new(), |time| format!(", last {}", ago(time)));
        text += &format!("  opened       {}{last}\n", count(opens, "time"));
    }
    let log = &stat.log;
    let used =
        log.segment_bytes.map_or(String::new(), |bytes| format!(", {} in use", size(log.segments_in_use * bytes)));
    text += &format!("  log          {}{used}\n", size(log.bytes));
    let pending = &stat.pending;
    text += &match (pending.groups, stat.in_use) {
        (groups, _) if !stat.readable => format!(
            "  pending      {} at least: the log cannot be read; see `wholly check`\n",
            count(groups, "committed group")
        ),
        (0, _) => "  pending      nothing: all files are current\n".to_string(),
        (groups, in_use) => format!(
            "  pending      {}: {} in {} of {}; {}\n",
            count(groups, "committed group"),
            size(pending.bytes),
            count(pending.blocks, "block"),
            count(pending.files, "file"),
            if in_use {
                "the program writes them back in the background"
            } else {
                "the next open serves them, `wholly recover` writes them back"
            }
        ),
    };
    for file in pending.paths.iter().take(SHOWN) {
        text += &format!("               {}: {} in {}\n", file.path, size(file.bytes), count(file.blocks, "block"));
    }
    if pending.paths.len() > SHOWN {
        text += &format!("               and {} more\n", pending.paths.len() - SHOWN);
    }
    if !stat.parked.is_empty() {
        let space: u64 = stat.parked.iter().map(|parked| parked.space).sum();
        let (groups, oldest) = (count(stat.parked.len() as u64, "group"), stat.parked[0].parked);
        text += &format!("  parked       {groups}, {}; the first {}: see `wholly list`\n", size(space), ago(oldest));
    }
    for fault in &stat.faults {
        text += &format!("  damaged      {fault}\n");
    }
    text
}
