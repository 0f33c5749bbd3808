//! `wholly check`: what is wrong with a store, where, and what to do about it.

use crate::args::CheckArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count, size};
use serde::Serialize;
use std::time::Instant;
use wholly::{FindingKind, Report};

#[derive(Serialize)]
struct Checked {
    dir: Name,
    /// Whether nothing is wrong now.
    sound: bool,
    /// Committed groups that are not home.
    groups: u64,
    /// Whether these are all: the log could be read to its end.
    readable: bool,
    /// Bytes that they write, all of which were verified.
    payload_bytes: u64,
    findings: Vec<Finding>,
    seconds: f64,
}

#[derive(Serialize)]
struct Finding {
    kind: &'static str,
    place: Name,
    what: Name,
    /// What to do about it; null for what was put right.
    advice: Option<&'static str>,
    /// Whether something is wrong: traces of a crash are not.
    fault: bool,
    /// Whether it was put right.
    repaired: bool,
}

/// Checks a store.
pub fn run(args: &CheckArgs, ui: &Ui) -> Result<Exit, Failure> {
    let failed = |error| Failure::of_store("check", &args.dir, error);
    let start = Instant::now();
    let look = || {
        let spinner = ui.spinner("reading the log");
        let report = wholly::check(&args.dir);
        spinner.finish_and_clear();
        report.map_err(failed)
    };
    let mut report = look()?;
    let mut repaired = Vec::new();
    let can_repair = |f: &wholly::Finding| matches!(f.kind, FindingKind::Mode | FindingKind::Leftover);
    if args.repair && report.findings.iter().any(can_repair) {
        wholly::tidy(&args.dir).map_err(failed)?;
        let after = look()?;
        repaired = report.findings;
        repaired.retain(|finding| !after.findings.contains(finding));
        report = after;
    }
    let Report { groups, payload_bytes, .. } = report;
    let mut checked = Checked {
        dir: Name::of_dir(&args.dir),
        sound: report.is_sound(),
        groups,
        readable: is_readable(&report),
        payload_bytes,
        findings: report.findings.iter().map(|f| finding(f, false)).collect(),
        seconds: start.elapsed().as_secs_f64(),
    };
    checked.findings.extend(repaired.iter().map(|f| finding(f, true)));
    ui.emit("check", &checked, text)?;
    Ok(match (checked.sound, repaired.is_empty()) {
        (true, true) => Exit::DONE,
        (true, false) => Exit::REPAIRED,
        (false, true) => Exit::DAMAGED,
        (false, false) => Exit::REPAIRED | Exit::DAMAGED,
    })
}

/// Whether the log could be read to its end.
pub fn is_readable(report: &Report) -> bool {
    let of = |kind| report.findings.iter().filter(move |finding| finding.kind == kind).count();
    // One superblock is enough. Of a log that has room for none there is one finding.
    let has_superblock = of(FindingKind::Superblock) < 2 && report.findings.iter().all(|f| f.place != "superblock");
    of(FindingKind::Log) + of(FindingKind::Missing) == 0 && has_superblock
}

/// A word for what a finding is about.
pub fn kind(kind: FindingKind) -> &'static str {
    about(kind).0
}

fn finding(found: &wholly::Finding, repaired: bool) -> Finding {
    let (kind, advice) = about(found.kind);
    Finding {
        kind,
        place: Name::from(&*found.place),
        what: Name::from(&*found.what),
        advice: (!repaired).then_some(advice),
        fault: found.is_fault(),
        repaired,
    }
}

/// A word for it, and what to do.
fn about(kind: FindingKind) -> (&'static str, &'static str) {
    match kind {
        FindingKind::Superblock => (
            "superblock",
            "if the other copy is valid, `wholly recover` rewrites this one; if none is, use `wholly salvage DIR OUT`",
        ),
        FindingKind::Log => (
            "log",
            "the store does not open: `wholly salvage DIR OUT` copies the files and all that can be proven to OUT",
        ),
        FindingKind::Payload => ("payload", "these bytes are lost: write them again, or `wholly salvage DIR OUT`"),
        FindingKind::Copy => ("copy", "open the original, or accept the copy: `wholly recover --accept-copy`"),
        FindingKind::File => (
            "file",
            "neither version is lost (the store's is in its log, see `wholly dump`): restore the file, with its times",
        ),
        FindingKind::Space => (
            "space",
            "make room on the file system, then `wholly recover`: until then the log has what is not written back",
        ),
        FindingKind::Mode => ("mode", "`wholly check --repair` corrects it; others may have read the log meanwhile"),
        FindingKind::Leftover => ("leftover", "it is not needed: `wholly check --repair` removes it"),
        FindingKind::Stranger => ("stranger", "move it elsewhere: `wholly deinit` removes all that is in the folder"),
        FindingKind::Missing => (
            "missing",
            "restore it from a backup of the directory (`lock` may be an empty file), or `wholly salvage DIR OUT`",
        ),
        FindingKind::Parked => {
            ("parked", "it cannot be applied; `wholly discard` removes it, nothing else depends on it")
        }
        FindingKind::Joint => (
            "joint",
            "restore it from a backup of the whole directory, or open the store without it: `wholly recover --release` \
             parks the waiting group",
        ),
        FindingKind::Torn => ("torn", "nothing: a crash has left it, and the next open removes it"),
        _ => ("other", "keep a copy of .wholly"),
    }
}

fn text(checked: &Checked) -> String {
    let mut text = String::new();
    for finding in &checked.findings {
        text += &format!(
            "{}: {}: {}; {}\n",
            finding.kind,
            finding.place,
            finding.what,
            finding.advice.unwrap_or("repaired")
        );
    }
    let faults = checked.findings.iter().filter(|finding| finding.fault && !finding.repaired).count() as u64;
    let verdict = if checked.sound { "nothing is wrong".into() } else { format!("{} wrong", count(faults, "thing")) };
    let waiting = match checked.groups {
        _ if !checked.readable => "the log cannot be read: it is unknown what is not written back".into(),
        0 => "the log is empty".into(),
        groups => format!(
            "{} of {} not written back, each byte verified",
            count(groups, "committed group"),
            size(checked.payload_bytes)
        ),
    };
    text + &format!("{}: {verdict}; {waiting}\n", checked.dir)
}
