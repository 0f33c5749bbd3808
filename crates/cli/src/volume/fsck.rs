//! `wholly fsck`: checking and repairing a volume, with the options and exit codes of fsck(8).

use super::{failure, medium, patiently};
use crate::args::FsckArgs;
use crate::error::{Exit, Failure};
use crate::output::{Name, Ui, count};
use indicatif::ProgressBar;
use rustix::io::Errno;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wholly::Error;
use wholly_volume::{Progress, Repair, Repaired, Volume, VolumeOptions};

#[derive(Serialize)]
struct Report {
    volume: Name,
    clean: bool,
    /// What is wrong.
    findings: Vec<String>,
    /// What was wrong, and what was done.
    repaired: Vec<Done>,
    lost_copies: Vec<String>,
    files: u64,
    directories: u64,
    others: u64,
    orphans: u64,
    blocks: u64,
    used_blocks: u64,
    /// Whether it was passed over, because it was unmounted.
    passed_over: bool,
    /// Why a repair ended before it was done with all.
    ended: Option<String>,
}

#[derive(Serialize)]
struct Done {
    finding: String,
    done: String,
}

/// Shows how far a check is.
enum Shown {
    Bar(ProgressBar),
    /// To a descriptor; and the last one.
    Lines(File, Option<Progress>),
}

impl Shown {
    fn new(args: &FsckArgs, ui: &Ui) -> Result<Shown, Failure> {
        match args.progress {
            // Silent where there is no terminal.
            None | Some(0) => Ok(Shown::Bar(ui.bar("checking", 0))),
            Some(fd) => {
                let path = format!("/dev/fd/{fd}");
                let file = File::options().append(true).open(path);
                let failed = |error| Failure::new(format!("fsck -C{fd}"), error).exit(Exit::USAGE);
                file.map(|file| Shown::Lines(file, None)).map_err(failed)
            }
        }
    }

    fn show(&mut self, progress: Progress, volume: &Path) {
        let Progress { pass, done, total } = progress;
        match self {
            Shown::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            Shown::Lines(file, last) => {
                // Some hundred lines a pass. If their reader has gone, the check goes on.
                if done % (total / 100).max(1) == 0 && *last != Some(progress) {
                    *last = Some(progress);
                    let _ = writeln!(file, "{pass} {done} {total} {}", volume.display());
                }
            }
        }
    }
}

/// Checks a volume that is not mounted, and repairs it if that is asked for.
pub fn fsck(args: &FsckArgs, ui: &Ui) -> Result<Exit, Failure> {
    let options = VolumeOptions { medium: medium(args.medium), ..VolumeOptions::default() };
    let is_cancelled = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, is_cancelled.clone())
            .map_err(|error| failure("fsck", &args.volume, Error::Refused("signals".into(), errno(&error))))?;
    }
    let shown = RefCell::new(Shown::new(args, ui)?);
    let watch = |progress: Progress| {
        shown.borrow_mut().show(progress, &args.volume);
        if is_cancelled.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let how = match (args.automatic, args.yes) {
        (false, false) => None,
        (true, _) => Some(Repair::Safe),
        (false, true) => Some(Repair::All),
    };
    let repaired = patiently(|| match how {
        None => {
            let checked = Volume::check_watched(&args.volume, &mut |progress| watch(progress))?;
            Ok(Repaired { left: checked.findings.clone(), checked, ..Repaired::default() })
        }
        Some(how) => Volume::repair(&args.volume, &options, (how, args.forced), &mut |progress| watch(progress)),
    });
    if let Shown::Bar(bar) = &*shown.borrow() {
        bar.finish_and_clear();
    }
    let failed = |error| match error {
        Error::Refused(_, Errno::INTR) => {
            Failure::new(format!("fsck {}", args.volume.display()), "cancelled").exit(Exit::CANCELLED)
        }
        error => failure("fsck", &args.volume, error),
    };
    let repaired = repaired.map_err(failed)?;
    let report = report(args, how, &repaired);
    ui.emit("fsck", &report, text)?;
    if let Some(failure) = repaired.ended.map(failed) {
        let exit = Exit::REPAIRED | failure.exit;
        return Err(failure.exit(exit));
    }
    let done = if repaired.done.is_empty() { Exit::DONE } else { Exit::REPAIRED };
    if repaired.left.is_empty() {
        return Ok(done);
    }
    if !args.no_changes && how != Some(Repair::All) && !ui.json {
        let advice = "copy out what can be read with `wholly export`, then `wholly fsck -y` repairs everything";
        eprintln!("wholly: {advice}");
    }
    Ok(done | Exit::DAMAGED)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn report(args: &FsckArgs, how: Option<Repair>, repaired: &Repaired) -> Report {
    let Repaired { done, left, checked, ended } = repaired;
    let is_unread = checked.used_blocks == 0 && left.is_empty() && done.is_empty();
    Report {
        volume: Name::from(&*args.volume),
        clean: checked.is_clean,
        findings: left.iter().map(ToString::to_string).collect(),
        repaired: done.iter().map(|it| Done { finding: it.finding.to_string(), done: it.done.clone() }).collect(),
        lost_copies: checked.lost_copies.iter().map(ToString::to_string).collect(),
        files: checked.files,
        directories: checked.directories,
        others: checked.others,
        orphans: checked.orphans,
        blocks: checked.blocks,
        used_blocks: checked.used_blocks,
        passed_over: how == Some(Repair::Safe) && is_unread,
        ended: ended.as_ref().map(ToString::to_string),
    }
}

fn text(report: &Report) -> String {
    let mut text: String = report.repaired.iter().map(|it| format!("{}: {}\n", it.finding, it.done)).collect();
    text.extend(report.findings.iter().map(|finding| format!("{finding}\n")));
    text.extend(report.lost_copies.iter().map(|copy| format!("{copy}; the next mount writes it again\n")));
    if report.passed_over {
        return text + &format!("{}: clean; not checked, as it was unmounted\n", report.volume);
    }
    if report.ended.is_some() {
        return text;
    }
    let state = if report.clean { "clean" } else { "not unmounted" };
    text += &format!(
        "{}: {state}, {}, {}, {}, {} of {} blocks used\n",
        report.volume,
        count(report.files, "file"),
        if report.directories == 1 { "1 directory".into() } else { format!("{} directories", report.directories) },
        if report.findings.is_empty() { "consistent".into() } else { count(report.findings.len() as u64, "fault") },
        report.used_blocks,
        report.blocks,
    );
    text
}
