//! The suite `mqfs`: the figures of MQFS (Liao and others, SOSP 2021, sections 7.3 to 7.5) through a volume with the
//! engine `multi_queue`, on a model of a controller. No figure is one of hardware: times are those of profiles of the
//! paper's SSDs, unless a row says that its clock is the real one.
//!
//! All systems are the same engine over the same journal, with options of the ablation, at the same place of the stack
//! and with the same merging ([`systems`], [`ordinary`]).
//!
//! | system | in the paper | a transaction that changes N blocks |
//! |---|---|---|
//! | `mqfs` | MQFS | N and a description, on a queue in the region; one wait |
//! | `mqfs_atomic` | MQFS-atomic | the same; `fdataatomic`: no wait |
//! | `classic` | Ext4 | N and a description on an ordinary queue, a wait, a commit block, a wait |
//! | `classic_thread` | the same by one journal thread | the same; that thread gathers what comes meanwhile |
//! | `horae` | HoraeFS | N + 2 at once, one wait |
//! | `none_serial` | Ext4-NJ | N, each when the one before is complete. Not crash consistent |
//! | `none_parallel` | Ext4-NJ, at its best | N at once, one wait. Not crash consistent |
//! | `classic_locked`, `horae_locked` | Ext4, HoraeFS with one journal | one area and queue for all threads; whoever changes a page of metadata keeps others from changing it until it is durable |
//! | `ccnvme` | +ccNVMe | `mqfs`, with one area and queue, and locked pages |
//! | `areas` | +MQJournal | with locked pages alone |
//! | `one_area` | | with one area and queue alone |
//!
//! # Counts
//!
//! `table1`: MMIO, entries by DMA, commands and interrupts are those of the formula, exactly, with merging off
//! ([`counts`]). Of each other run the device must have seen, to the block, what the journal says that was written.
//! Dependencies between queues are counted by the journal.
//!
//! # Time
//!
//! Threads run in virtual time ([`runs`]), each with a processor of its own, which takes no time but for what it does
//! over PCIe. So more threads than this machine has processors are a shape, and no scalability of processors is in it.
//! The ratios say what follows from counts and from what waits for what; they are the same on each machine. Of
//! `fig14`, the stages of the processor are by the real clock ([`stages`]).

mod counts;
mod device;
mod figures;
mod ordinary;
mod runs;
mod stages;
mod systems;
#[cfg(test)]
mod tests;
mod watched;

use std::path::Path;

use nvme_events::model::Profile;
use volume_events::Holds;

use crate::Result;
use crate::harness::Plan;
use crate::report::{QueueRow, Report};
use runs::{Load, Setting};
use systems::{
    AREAS, CCNVME, CLASSIC, CLASSIC_LOCKED, CLASSIC_THREAD, HORAE, HORAE_LOCKED, MQFS, MQFS_ATOMIC, NONE_PARALLEL,
    NONE_SERIAL, ONE_AREA, System,
};

/// Profiles, from the slowest to the fastest: their latency, 20, 10 and 5 us.
const PROFILES: [&str; 3] = ["750", "905p", "p5800x"];
/// Threads of figures 2, 11 and 13.
const THREADS: [u16; 5] = [1, 2, 4, 12, 24];
/// Threads of figure 12: the two of the bounds, and Filebench's default and the paper's number for RocksDB.
const VARMAIL_THREADS: [u16; 3] = [1, 2, 16];
const KV_THREADS: [u16; 3] = [1, 2, 24];
/// KiB of the appends of figures 11a and 11b.
const SIZES: [u64; 5] = [4, 8, 16, 32, 64];

const ALL_OF_11: [System; 7] = [MQFS, MQFS_ATOMIC, CLASSIC, CLASSIC_THREAD, HORAE, NONE_SERIAL, NONE_PARALLEL];
const ALL_OF_2: [System; 5] = [MQFS, CLASSIC, HORAE, NONE_SERIAL, NONE_PARALLEL];
const ALL_OF_12: [System; 7] = [MQFS, CLASSIC, HORAE, CLASSIC_LOCKED, HORAE_LOCKED, NONE_SERIAL, NONE_PARALLEL];
const ALL_OF_13: [System; 4] = [CLASSIC_LOCKED, CCNVME, AREAS, MQFS];

/// The fastest of them, if only its latency counted: then a queue can be what threads wait for.
const UNLIMITED: &str = "p5800x, any bandwidth";

fn profile(name: &str) -> Profile {
    if name == UNLIMITED {
        return Profile { name: UNLIMITED, bytes_per_s: 1 << 60, writes_per_s: 1 << 30, ..profile("p5800x") };
    }
    Profile::named(name).expect("it is one of the paper's")
}

/// Runs the suite; with a directory, writes the figures there.
///
/// # Errors
/// An unknown system; a run whose counts are not those that they must be.
pub fn run(
    plan: &Plan,
    chosen: &[String],
    figures: Option<&Path>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    if let Some(unknown) = chosen.iter().find(|name| System::named(name).is_none()) {
        return Err(format!("no system {unknown:?} in the suite mqfs").into());
    }
    let wanted = |systems: &[System]| {
        let is_chosen = |system: &System| chosen.is_empty() || chosen.iter().any(|name| name == system.name);
        systems.iter().copied().filter(is_chosen).collect::<Vec<_>>()
    };
    let few = |threads: &[u16]| threads.iter().copied().filter(|count| !plan.tiny || *count <= 2).collect::<Vec<_>>();
    let some = |names: &'static [&'static str]| &names[..if plan.tiny { 1 } else { names.len() }];
    let is_asked = |name: &str| plan.cases.iter().any(|case| case.name == name);
    if is_asked("table1") {
        progress("table1");
        for n in counts::TABLE_1.into_iter().filter(|n| !plan.tiny || *n <= 4) {
            for system in wanted(&[CLASSIC, HORAE, MQFS, MQFS_ATOMIC]) {
                report.transfers.extend(counts::table_1(&system, n)?);
            }
        }
    }
    let mut queue = |setting: Setting, systems: &[System], notes: bool| -> Result<()> {
        for system in wanted(systems) {
            progress(&format!("{}: {}, {} threads", setting.case, system.name, setting.threads));
            let holds: Option<&'static Holds> = if notes { Some(Box::leak(Box::default())) } else { None };
            report.queues.push(runs::run(&setting, &system, holds)?);
        }
        Ok(())
    };
    let setting = |case, load, name: &str, threads| Setting::new(case, load, profile(name), threads, plan.tiny);
    if is_asked("fig2") {
        for name in some(&PROFILES) {
            for threads in few(&THREADS) {
                queue(setting("fig2", Load::Append(4096), name, threads), &ALL_OF_2, false)?;
            }
        }
    }
    if is_asked("fig11") {
        for kib in SIZES.into_iter().filter(|kib| !plan.tiny || *kib <= 4) {
            queue(setting(figures::of_size(kib), Load::Append(kib << 10), "905p", 1), &ALL_OF_11, false)?;
        }
        for threads in few(&THREADS) {
            queue(setting("fig11cd", Load::Append(4096), "905p", threads), &ALL_OF_11, false)?;
        }
    }
    for (case, load, threads) in [("fig12a", Load::Varmail, &VARMAIL_THREADS), ("fig12b", Load::KeyValue, &KV_THREADS)]
    {
        if is_asked(case) {
            for name in some(&PROFILES[1..]) {
                for threads in few(threads) {
                    queue(setting(case, load, name, threads), &ALL_OF_12, false)?;
                }
            }
        }
    }
    if is_asked("fig13") {
        for name in some(&PROFILES[1..]) {
            for threads in few(&THREADS) {
                queue(setting("fig13", Load::Overwrite, name, threads), &ALL_OF_13, true)?;
                queue(setting("fig13_beside", Load::OverwriteBeside, name, threads), &ALL_OF_13, true)?;
            }
        }
        for threads in few(&THREADS) {
            queue(setting("fig13_queues", Load::Overwrite, UNLIMITED, threads), &[ONE_AREA, MQFS], false)?;
        }
    }
    if is_asked("fig14") {
        for name in some(&PROFILES[1..]) {
            for system in wanted(&[MQFS, MQFS_ATOMIC, NONE_SERIAL, NONE_PARALLEL]) {
                progress(&format!("fig14: {}", system.name));
                report.stages.push(stages::row(&system, profile(name), plan.tiny)?);
            }
        }
    }
    // Figures of a tiny run are none, and of systems that were not asked for there is none.
    if !plan.tiny {
        report.bounds = bounds(report).into_iter().filter(|bound| bound.why.is_none()).collect();
    }
    if let Some(dir) = figures {
        figures::write(report, dir)?;
    }
    Ok(())
}

/// A row.
fn found<'r>(
    report: &'r Report,
    (case, name): (&str, &str),
    threads: u16,
    system: System,
) -> Result<&'r QueueRow, String> {
    let is_it = |row: &&QueueRow| {
        row.case == case && row.profile == name && row.threads == u32::from(threads) && row.system == system.name
    };
    report.queues.iter().find(is_it).ok_or_else(|| format!("{} was not measured in {case}", system.name))
}

/// How many times as fast one system is as another.
fn over(report: &Report, of: (&str, &str), threads: u16, [fast, slow]: [System; 2]) -> Result<f64, String> {
    Ok(found(report, of, threads, slow)?.ns_per_call / found(report, of, threads, fast)?.ns_per_call)
}

/// The mean of that over sizes, as the paper has it.
fn over_sizes(report: &Report, systems: [System; 2]) -> Result<f64, String> {
    let ratios: Result<Vec<f64>, String> =
        SIZES.iter().map(|kib| over(report, (figures::of_size(*kib), "905p"), 1, systems)).collect();
    ratios.map(|ratios| ratios.iter().sum::<f64>() / ratios.len() as f64)
}

fn bounds(report: &Report) -> Vec<crate::report::Bound> {
    use crate::report::Bound;
    let mut bounds = Vec::new();
    let first = (figures::of_size(4), "905p");
    for (slow, bound, paper) in
        [(CLASSIC, 1.8, "2.1"), (HORAE, 1.5, "1.9"), (NONE_SERIAL, 1.1, "1.2"), (NONE_PARALLEL, 0.75, "none")]
    {
        let what = format!("fig11a, model time of 905p, 4 KiB: mqfs over {} (paper: {paper})", slow.name);
        bounds.push(Bound::at_least(what, bound, over(report, first, 1, [MQFS, slow])));
    }
    for name in &PROFILES[1..] {
        for (slow, bound, paper) in [
            (CLASSIC_LOCKED, 2.0, "2.4, 2.6"),
            (CLASSIC, 2.0, "2.4, 2.6"),
            (HORAE_LOCKED, 1.05, "1.2, 1.1"),
            (HORAE, 1.05, "1.2, 1.1"),
        ] {
            let ratio = over(report, ("fig12a", name), 2, [MQFS, slow]);
            let what = format!("fig12a, model time of {name}, 2 threads: mqfs over {} (paper: {paper})", slow.name);
            bounds.push(Bound::at_least(what, bound, ratio));
        }
    }
    for (name, threads) in [("905p", 2), ("905p", 24), ("p5800x", 2), ("p5800x", 24)] {
        for (slow, bound, paper) in [
            (CLASSIC_LOCKED, 1.4, "1.66 on B"),
            (CLASSIC, 1.4, "1.66 on B"),
            (HORAE_LOCKED, 1.2, "1.4, 1.36"),
            (HORAE, 1.2, "1.4, 1.36"),
        ] {
            let ratio = over(report, ("fig12b", name), threads, [MQFS, slow]);
            let slow = slow.name;
            let what = format!("fig12b, model time of {name}, {threads} threads: mqfs over {slow} (paper: {paper})");
            bounds.push(Bound::at_least(what, bound, ratio));
        }
    }
    for case in ["fig13", "fig13_beside"] {
        for (step, bound, paper) in [(1, 1.3, "1.4"), (2, 1.05, "1.47"), (3, 1.05, "1.23")] {
            let ratio = over(report, (case, "905p"), 2, [ALL_OF_13[step], ALL_OF_13[step - 1]]);
            let what = format!("{case}, model time of 905p, 2 threads: step {} (paper: {paper})", ALL_OF_13[step].name);
            bounds.push(Bound::at_least(what, bound, ratio));
        }
    }
    let stages = |name: &str, system: System| {
        let found = report.stages.iter().find(|row| row.profile == name && row.system == system.name);
        found.ok_or_else(|| format!("{} was not measured in fig14", system.name))
    };
    for name in ["905p", "p5800x"] {
        let part = stages(name, MQFS).and_then(|mqfs| Ok(mqfs.all_ns / stages(name, NONE_SERIAL)?.all_ns));
        let what = format!("fig14, real and model time of {name}: mqfs / none_serial (paper: 0.58)");
        bounds.push(Bound::at_most(what, 0.7, part));
    }
    let told = stages("p5800x", MQFS_ATOMIC)
        .and_then(|row| row.told_ns.map(|ns| ns / 1e3).ok_or_else(|| "it was not measured".into()));
    bounds.push(Bound::at_most("fig14, real time: fatomic, us of the processor (paper: about 10)", 15.0, told));
    for case in [("fig2", "905p"), ("fig11cd", "905p")] {
        let depending = found(report, case, 4, MQFS).map(|row| row.depending as f64);
        let what = format!("{}: transactions of 4 threads with private files that depend on others", case.0);
        bounds.push(Bound::at_most(what, 0.0, depending));
    }
    bounds
}
