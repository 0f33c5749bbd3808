//! The suite `fcfs`: the microbenchmark of FCFS (figure 1 and section VI-C of the paper) on volumes, by each engine.
//!
//! A group overwrites bytes in each of two files, at random. `two_files` writes 1 byte to 16 KiB at any byte in each,
//! `size_64` to `size_16k` so many, aligned. The systems are the engines of a volume: those with explicit groups run
//! one group, `none` runs two calls.
//!
//! # Counts
//!
//! Each case is run first by one thread on a region that counts ([`CountingRegion`](wholly_sim::CountingRegion)):
//! calls, bytes, lines of 64 bytes and fences of each group, by phase:
//!
//! | phase | what is counted |
//! |---|---|
//! | `call` | until the last write of the group has returned |
//! | `commit` | from then on, until the commit has returned |
//! | `checkpoint` | what brings content home, whenever it is stored: by the sites in `counts.rs` |
//!
//! The counts of each group are compared with those of the engine's formula (`formula.rs`), to the line. Checkpoints of
//! `hybrid_log` have no formula: they depend on which versions meet. They are counted in the steady state, after as
//! many groups as fill the volume.
//!
//! The clock of the volume goes on by a second at each reading, so that each group changes the times of its files, and
//! each the same words of them. With the volume's usual clock, groups within one tick of the kernel change no times.
//!
//! # Model time
//!
//! Lines x delay, and [`FENCE_NS`] for each fence: the emulator of the paper (section VI-A) without the processor. It
//! is the same on each machine and at any load. Bounds hold for model time; wall time is printed beside.
//!
//! - *deferred*: without checkpoints, where the engine can leave them to times without load. `fine_grained_wal` cannot:
//!   its checkpoint is a part of each commit.
//! - *steady*: with them, as if the calling threads had to wait for all of them.
//!
//! # Runs in virtual time
//!
//! What several threads do at once, no sum of counts says. So the engines run, with their locks and their checkpoints,
//! in threads whose clock is that of the model (`runs.rs`, package `wholly-sync-events`): each thread owes one medium
//! of the paper's bandwidth the lines that it stores (`timed.rs`). The paper's figures 7 to 10 are drawn from these
//! runs.
//!
//! # Recovery
//!
//! The case `recovery` mounts volumes after the death of a process that has left a log (`recovery.rs`), of systems that
//! leave one. Its counts are of the mount, divided by the groups in the log.
//!
//! # Wall time
//!
//! Then the systems take turns, as in the suite `groups`, with one, two and six threads, each on files of its own. The
//! clock is the volume's usual one. `hybrid_log_deferred` writes everything back between turns, by an unmount.

pub(crate) mod counts;
mod figures;
pub(crate) mod formula;
#[cfg(test)]
mod longest;
mod recovery;
mod runs;
pub(crate) mod subject;
mod timed;
mod wall;

use crate::harness::Plan;
use crate::report::{Bound, CountRow, Report, Skipped};
use crate::system::System;
use crate::{Error, Result};
use std::path::Path;
use subject::Subject;
use wholly_media::pmem::Emulation;

/// Nanoseconds of a fence in model time. The emulator of the paper adds nothing to a fence; this is what the
/// instruction takes by itself, about.
pub const FENCE_NS: f64 = 20.0;

/// Files of a case unless `--files` says otherwise: a twentieth of the paper's. Counts for a group are the same.
pub(crate) const FILES: u32 = 50;

/// Threads of the wall clock's passes.
const THREADS: [u32; 3] = [1, 2, 6];

/// The systems of the paper's figures.
const NONE: &str = "none";
const WAL: &str = "fine_grained_wal";
const SHADOW: &str = "shadow";
const PAGES: &str = "page_cache_wal";
const HYBRID: &str = "hybrid_log";

/// Runs the cases of `plan`, with those systems that `chosen` names or all of them, and those of `peers` that have
/// groups on persistent memory. Writes the paper's figures into the directory `figures`, if there is one.
///
/// # Errors
/// The first failure of a system. What a medium or a system cannot do is no failure; the report says it under
/// `skipped`.
pub fn run(
    plan: &Plan,
    chosen: &[String],
    peers: Vec<Box<dyn System>>,
    figures: Option<&Path>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let settings = &mut report.machine.settings;
    settings.insert("fcfs.fence_ns".into(), FENCE_NS.to_string());
    let model = Model::of(plan.emulation);
    settings.insert("fcfs.delay_ns".into(), model.delay_ns.to_string());
    for case in &plan.cases {
        for medium in &plan.media {
            if case.name == recovery::CASE {
                recovery::run(plan, chosen, (case, medium), &model, report, progress)?;
                continue;
            }
            let label = format!("{}/{} on {}", case.suite, case.name, medium.name());
            let is_wanted = |subject: &Subject| subject.runs(case) && is_chosen(chosen, subject.name, &plan.base);
            for subject in subject::all().filter(is_wanted) {
                progress(&format!("{label}: counting {}", subject.name));
                let failed = |e: Error| Error::from(format!("{}, {label}: {e}", subject.name));
                let place = match medium.make(case, 2) {
                    Ok(place) => place,
                    Err(e) => {
                        report.skipped.push(skip(case.name, &medium.name(), None, e.to_string()));
                        break;
                    }
                };
                match counts::count(plan, case, &subject, &place, &model).map_err(failed)? {
                    Ok(row) => report.counts.push(row),
                    Err(why) => report.skipped.push(skip(case.name, &medium.name(), Some(subject.name), why)),
                }
            }
        }
    }
    runs::run(plan, chosen, &model, report, progress)?;
    wall::run(plan, chosen, peers, report, progress)?;
    let of_runs = figures::bounds(&figures::Runs::new(&report.runs, model));
    let bounds = bounds(&report.counts, &model).into_iter().chain(of_runs).chain(recovery::bounds(report));
    report.bounds = bounds.chain(wall::bounds(plan, report)).collect();
    if let Some(dir) = figures {
        figures::write(report, model, dir)?;
    }
    Ok(())
}

/// The volumes that one thread uses, with those names that `chosen` has or all of them.
pub(crate) fn volumes(plan: &Plan, chosen: &[String]) -> Vec<Box<dyn System>> {
    wall::systems(plan, chosen, 1)
}

pub(crate) fn is_chosen(chosen: &[String], name: &str, base: &str) -> bool {
    chosen.is_empty() || name == base || chosen.iter().any(|chosen| chosen == name)
}

pub(crate) fn skip(case: &str, medium: &str, system: Option<&str>, reason: String) -> Skipped {
    Skipped { case: case.into(), medium: medium.into(), system: system.map(Into::into), reason }
}

/// What persistent memory costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    delay_ns: f64,
}

impl Model {
    /// That of an emulator; of the paper's where there is none, or one without delays.
    pub(crate) fn of(emulation: Emulation) -> Model {
        let Emulation::Paper { latency_ns, .. } = emulation else { return Model::of(Emulation::PAPER) };
        Model { delay_ns: latency_ns as f64 }
    }

    pub(crate) fn ns(&self, lines: f64, fences: f64) -> f64 {
        lines * self.delay_ns + fences * FENCE_NS
    }
}

/// Sizes, and how many times `fine_grained_wal`'s time is that of `hybrid_log` by count.
const BY_SIZE: [(&str, f64); 5] =
    [("size_64", 1.36), ("size_256", 1.58), ("size_1k", 1.82), ("size_4k", 1.94), ("size_16k", 1.97)];

/// The bounds on counts and model time.
fn bounds(rows: &[CountRow], model: &Model) -> Vec<Bound> {
    let find = |case: &str, system: &str| rows.iter().find(|row| row.case == case && row.system == system);
    let ratio = |case: &str, one: &str, other: &str, of: &dyn Fn(&CountRow) -> f64| {
        let missing = [one, other].into_iter().find(|system| find(case, system).is_none());
        match (find(case, one), find(case, other)) {
            (Some(one), Some(other)) => Ok(of(one) / of(other)),
            _ => Err(format!("{} was not counted", missing.unwrap_or_default())),
        }
    };
    let deferred = |row: &CountRow| row.model_ns_deferred;
    let bytes = |row: &CountRow| row.all(|phase| phase.bytes);
    let copied = |row: &CountRow| row.copied_lines;
    let (none, wal, hybrid, soc) = (NONE, WAL, HYBRID, subject::SOC);
    let delay = model.delay_ns;
    let mut bounds = vec![
        Bound::at_most(
            format!("two_files: hybrid_log / none, model time deferred ({delay} ns a line)"),
            1.06,
            ratio("two_files", hybrid, none, &deferred),
        ),
        Bound::at_most("two_files: hybrid_log / none, bytes steady", 1.22, ratio("two_files", hybrid, none, &bytes)),
        Bound::at_most(
            "two_files: hybrid_log / hybrid_log:soc, copied lines",
            0.6,
            ratio("two_files", hybrid, soc, &copied),
        ),
        Bound::at_least(
            "two_files: fine_grained_wal / hybrid_log, model time deferred (paper 1.96)",
            1.85,
            ratio("two_files", wal, hybrid, &deferred),
        ),
        Bound::at_least(
            "two_files: shadow / hybrid_log, model time deferred (by count 3.1; paper 4.55)",
            2.8,
            ratio("two_files", SHADOW, hybrid, &deferred),
        ),
    ];
    for (case, by_count) in BY_SIZE {
        let what = format!("{case}: fine_grained_wal / hybrid_log, model time deferred (by count {by_count})");
        bounds.push(Bound::at_least(what, 0.9 * by_count, ratio(case, wal, hybrid, &deferred)));
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_time_is_lines_and_fences() {
        let model = Model::of(Emulation::None);
        assert_eq!(model.ns(10.0, 2.0), 1500.0 + 2.0 * FENCE_NS);
        assert_eq!(Model::of(Emulation::Paper { latency_ns: 50, bandwidth: 4e9 }).ns(2.0, 0.0), 100.0);
    }

    #[test]
    fn a_bound_without_figures_is_neither_met_nor_missed() {
        for bound in bounds(&[], &Model::of(Emulation::PAPER)) {
            assert_eq!((bound.value, bound.met), (None, None));
            assert!(bound.why.is_some_and(|why| why.contains("was not counted")), "{}", bound.what);
        }
    }
}
