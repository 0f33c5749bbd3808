//! The figures of the paper as CSV and SVG, from the counts and rows of a run, with the paper's claims beside ours.
//!
//! Time is model time, as in [`bounds`](super::bounds), but for figure 11, which is wall time. What the model takes for
//! granted beyond that:
//!
//! - *Threads* (7c): n threads run n groups at a time. Checkpoints of `hybrid_log` are shared by the threads; those of
//!   SOC are made by one thread, so that no more groups can commit than it brings home.
//! - *Idle time* (9): one thread commits, and then waits for the idle part of its time. Checkpoints go on meanwhile, by
//!   as many workers as the emulator admits beside that thread, of SOC by one. SYNC writes back inside of the group.
//!
//! The emulator admits as many writers at a time as its bandwidth carries: bytes/s x delay / 64.

use super::recovery::CASE as RECOVERY;
use super::subject::{SOC, SYNC};
use super::{BY_SIZE, FENCE_NS, Model};
use crate::Result;
use crate::figures::{self, Claim, Figure};
use crate::report::{CountRow, Report};
use std::collections::BTreeMap;
use std::path::Path;
use wholly_media::pmem::Emulation;

/// Delays of figure 10, in nanoseconds.
const DELAYS: [u32; 6] = [50, 100, 200, 400, 800, 1600];
/// Idle parts of the time of figure 9, in percent.
const IDLE: [u32; 6] = [0, 10, 30, 50, 70, 90];
/// Threads of figure 7c.
const THREADS: [u32; 4] = [1, 2, 4, 6];
const NONE: &str = "none";
const WAL: &str = "fine_grained_wal";
const SHADOW: &str = "shadow";
const PAGES: &str = "page_cache_wal";
const HYBRID: &str = "hybrid_log";

/// What a system's groups of a case take.
struct Counted<'r> {
    rows: &'r [CountRow],
    model: Model,
}

impl Counted<'_> {
    fn row(&self, case: &str, system: &str) -> Result<&CountRow, String> {
        let found = self.rows.iter().find(|row| row.case == case && row.system == system);
        found.ok_or_else(|| format!("{system} was not counted in {case}"))
    }

    /// Nanoseconds of a group without checkpoints that can be left for later, and of its checkpoints.
    fn parts(&self, case: &str, system: &str) -> Result<(f64, f64), String> {
        let row = self.row(case, system)?;
        Ok((row.model_ns_deferred, row.model_ns - row.model_ns_deferred))
    }

    fn ns(&self, case: &str, system: &str) -> Result<f64, String> {
        Ok(self.parts(case, system)?.0)
    }

    /// The same with another delay.
    fn ns_with(&self, delay_ns: f64, system: &str) -> Result<f64, String> {
        let row = self.row("two_files", system)?;
        let has_all = (row.model_ns_deferred - row.model_ns).abs() < 1e-6;
        let is_counted = |phase: &&String| has_all || *phase != "checkpoint";
        let phases = row.phases.iter().filter(|(name, _)| is_counted(name)).map(|(_, phase)| phase);
        Ok(phases.map(|phase| phase.lines * delay_ns + phase.fences * FENCE_NS).sum())
    }

    fn bytes(&self, system: &str) -> Result<f64, String> {
        Ok(self.row("two_files", system)?.all(|phase| phase.bytes))
    }

    fn writers(&self) -> f64 {
        let Emulation::Paper { bandwidth, .. } = Emulation::PAPER else { return f64::INFINITY };
        (bandwidth * self.model.delay_ns * 1e-9 / 64.0).max(1.0)
    }

    /// Groups a second with so many threads.
    fn with_threads(&self, threads: u32, system: &str) -> Result<f64, String> {
        let (group, checkpoint) = self.parts("two_files", system)?;
        let at_once = f64::from(threads).min(self.writers());
        let by_all = at_once / (group + checkpoint);
        let rate = if system == SOC { (at_once / group).min(1.0 / checkpoint) } else { by_all };
        Ok(rate * 1e9)
    }

    /// Groups a second of one thread that is idle for so many percent of its time.
    fn with_idle(&self, percent: u32, system: &str) -> Result<f64, String> {
        let (group, checkpoint) = self.parts("two_files", system)?;
        let idle = group * f64::from(percent) / f64::from(100 - percent);
        let period = match system {
            SYNC => group + checkpoint + idle,
            SOC => (group + idle).max(checkpoint),
            _ => (group + idle).max(checkpoint / (self.writers() - 1.0).max(1.0)),
        };
        Ok(1e9 / period)
    }
}

/// Writes the figures and the claims of a report into a directory, which is made if it is not there. Gives the names of
/// the files.
///
/// # Errors
/// Those of the file system.
pub(super) fn write(report: &Report, model: Model, dir: &Path) -> Result<Vec<String>> {
    let counted = Counted { rows: &report.counts, model };
    let recovery = recovery(report);
    figures::write("fcfs", &figures(&counted, &recovery), &claims(&counted, &recovery), dir)
}

/// Wall time of recoveries in ms, by system: of logs in GiB.
fn recovery(report: &Report) -> BTreeMap<String, Vec<(f64, f64)>> {
    let mut found = BTreeMap::<String, Vec<(f64, f64)>>::new();
    for row in report.rows.iter().filter(|row| row.case == RECOVERY) {
        let point = row.disk_bytes.zip(row.open_ns).map(|(log, ns)| (log as f64 / (1u64 << 30) as f64, ns / 1e6));
        found.entry(row.system.clone()).or_default().extend(point);
    }
    found.values_mut().for_each(|points| points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    found
}

fn figures(counted: &Counted<'_>, recovery: &BTreeMap<String, Vec<(f64, f64)>>) -> Vec<Figure> {
    let systems = [NONE, HYBRID, WAL, SHADOW, PAGES];
    // A system that was not counted has no points.
    let line = |system: &str, points: &mut dyn Iterator<Item = (f64, Result<f64, String>)>| {
        let points: Vec<(f64, f64)> = points.filter_map(|(x, y)| Some((x, y.ok()?))).collect();
        (system.to_owned(), points)
    };
    let alone = |of: &dyn Fn(&str) -> Result<f64, String>| {
        (0..).zip(systems).map(|(at, system)| line(system, &mut [(f64::from(at), of(system))].into_iter())).collect()
    };
    let over = |points: &[f64], systems: &[&str], of: &dyn Fn(usize, &str) -> Result<f64, String>| {
        let one = |system: &&str| line(system, &mut points.iter().enumerate().map(|(at, x)| (*x, of(at, system))));
        systems.iter().map(one).collect::<Vec<_>>()
    };
    let numbers = |numbers: &[u32]| numbers.iter().map(|number| f64::from(*number)).collect::<Vec<_>>();
    let relative = |case: &str, system: &str| Ok(counted.ns(case, NONE)? / counted.ns(case, system)?);
    vec![
        Figure {
            name: "7a",
            title: "Latency of a group, one thread (model time)",
            x: "system",
            y: "us",
            lines: alone(&|system| Ok(counted.ns("two_files", system)? / 1e3)),
        },
        Figure {
            name: "7b",
            title: "Bytes written, over those of none",
            x: "system",
            y: "ratio",
            lines: alone(&|system| Ok(counted.bytes(system)? / counted.bytes(NONE)?)),
        },
        Figure {
            name: "7c",
            title: "Groups a second by threads (model time)",
            x: "threads",
            y: "groups/s",
            lines: over(&numbers(&THREADS), &[NONE, HYBRID, SOC, WAL, SHADOW, PAGES], &|at, system| {
                counted.with_threads(THREADS[at], system)
            }),
        },
        Figure {
            name: "8",
            title: "Groups a second by bytes of a value, over none (model time)",
            x: "log2 of bytes",
            y: "ratio",
            lines: over(&[6.0, 8.0, 10.0, 12.0, 14.0], &systems, &|at, system| relative(BY_SIZE[at].0, system)),
        },
        Figure {
            name: "9",
            title: "Groups a second by idle time (model time)",
            x: "percent idle",
            y: "groups/s",
            lines: over(&numbers(&IDLE), &[NONE, HYBRID, SOC, SYNC], &|at, system| counted.with_idle(IDLE[at], system)),
        },
        Figure {
            name: "10",
            title: "Groups a second by delay of a line, over none (model time)",
            x: "ns",
            y: "ratio",
            lines: over(&numbers(&DELAYS), &systems, &|at, system| {
                let delay = f64::from(DELAYS[at]);
                Ok(counted.ns_with(delay, NONE)? / counted.ns_with(delay, system)?)
            }),
        },
        Figure {
            name: "11",
            title: "Recovery by size of the log (wall time)",
            x: "GiB",
            y: "ms",
            lines: recovery.clone().into_iter().collect(),
        },
    ]
}

fn claims(counted: &Counted<'_>, recovery: &BTreeMap<String, Vec<(f64, f64)>>) -> Vec<Claim> {
    let ratio = |of: &dyn Fn(&str) -> Result<f64, String>, one: &str, other: &str| Ok(of(one)? / of(other)?);
    let latency = |system: &str| counted.ns("two_files", system);
    let bytes = |system: &str| counted.bytes(system);
    let six = |system: &str| counted.with_threads(6, system);
    let idle = |percent: u32| move |system: &str| counted.with_idle(percent, system);
    let of_size = |size: usize| move |system: &str| counted.ns(BY_SIZE[size].0, system);
    let nearer = || {
        let of = |delay: f64| ratio(&|system| counted.ns_with(delay, system), NONE, HYBRID);
        Ok(of(1600.0)? / of(50.0)?)
    };
    let of_soc = || Ok(counted.with_threads(6, SOC)? / counted.with_threads(4, SOC)?);
    let largest = |system: &str| {
        let last = recovery.get(system).and_then(|points| points.last());
        last.copied().ok_or_else(|| format!("{system} was not recovered"))
    };
    let of_5g = |system: &str| match largest(system)? {
        (log, ms) if log > 4.9 => Ok(ms),
        (log, _) => Err(format!("the largest log was {log:.2} GiB (--log-size 5G)")),
    };
    let instantly = format!("{HYBRID}:instant-recovery");
    vec![
        Claim::at_least("7a", "fine_grained_wal / hybrid_log, latency", 1.96, ratio(&latency, WAL, HYBRID)),
        Claim::at_least("7a", "shadow / hybrid_log, latency", 4.55, ratio(&latency, SHADOW, HYBRID)),
        Claim::at_least("7a", "page_cache_wal / hybrid_log, latency", 10.0, ratio(&latency, PAGES, HYBRID)),
        Claim::at_most("7a", "hybrid_log / none, latency", 1.06, ratio(&latency, HYBRID, NONE)),
        Claim::at_least("7b", "fine_grained_wal / hybrid_log, bytes", 1.67, ratio(&bytes, WAL, HYBRID)),
        Claim::at_least("7b", "shadow / hybrid_log, bytes", 3.67, ratio(&bytes, SHADOW, HYBRID)),
        Claim::at_least("7b", "page_cache_wal / hybrid_log, bytes", 3.47, ratio(&bytes, PAGES, HYBRID)),
        Claim::at_least("7c", "hybrid_log / fine_grained_wal, six threads", 1.74, ratio(&six, HYBRID, WAL)),
        Claim::at_least("7c", "hybrid_log / shadow, six threads", 3.76, ratio(&six, HYBRID, SHADOW)),
        Claim::at_most("7c", "SOC with six threads / with four", 1.05, of_soc()),
        Claim::at_least("8", "fine_grained_wal / hybrid_log, 64 B", 1.035, ratio(&of_size(0), WAL, HYBRID)),
        Claim::at_least("8", "fine_grained_wal / hybrid_log, 4 KiB", 1.9, ratio(&of_size(3), WAL, HYBRID)),
        Claim::at_least("8", "fine_grained_wal / hybrid_log, 16 KiB", 1.9, ratio(&of_size(4), WAL, HYBRID)),
        Claim::at_least("9", "hybrid_log / SYNC, half of the time idle", 1.34, ratio(&idle(50), HYBRID, SYNC)),
        Claim::at_least("9", "SYNC / SOC, never idle", 2.13, ratio(&idle(0), SYNC, SOC)),
        Claim::at_least("9", "hybrid_log / SYNC, never idle", 1.0, ratio(&idle(0), HYBRID, SYNC)),
        Claim::at_least("10", "hybrid_log over none, at 1600 ns / at 50 ns", 1.0, nearer()),
        Claim::at_most("11", "hybrid_log, ms for 5 GiB", 406.0, of_5g(HYBRID)),
        Claim::at_least(
            "11",
            "instant-recovery / hybrid_log, the largest log",
            32.0,
            largest(&instantly).and_then(|(_, ms)| Ok(ms / largest(HYBRID)?.1)),
        ),
    ]
}
