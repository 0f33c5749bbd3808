//! The figures of the paper as CSV and SVG, from the counts and rows of a run, with the paper's claims beside ours.
//!
//! Figures 7 to 10 are of runs in virtual time (`runs.rs`), figure 11 has wall time.

use super::recovery::CASE as RECOVERY;
use super::runs::{DELAYS, IDLE, MANY, THREADS};
use super::subject::{SOC, SYNC};
use super::{BY_SIZE, HYBRID, Model, NONE, PAGES, SHADOW, WAL};
use crate::Result;
use crate::figures::{self, Axis, Claim, Figure};
use crate::report::{Bound, Report, Row, RunRow};
use std::collections::BTreeMap;
use std::path::Path;

/// Runs, by what is varied.
pub(super) struct Runs<'r> {
    rows: &'r [RunRow],
    delay_ns: f64,
}

impl Runs<'_> {
    pub fn new(rows: &[RunRow], model: Model) -> Runs<'_> {
        Runs { rows, delay_ns: model.delay_ns }
    }

    fn row(&self, case: &str, system: &str, (threads, idle, delay_ns): (u32, u32, f64)) -> Result<&RunRow, String> {
        let is_it = |row: &&RunRow| {
            (row.case == case && row.system == system)
                && (row.threads, row.idle_percent, row.delay_ns) == (threads, idle, delay_ns)
        };
        self.rows.iter().find(is_it).ok_or_else(|| {
            format!("{system} was not run in {case} by {threads} threads, {idle} % idle, with {delay_ns} ns")
        })
    }

    /// Nanoseconds of a group of one thread.
    pub fn ns(&self, case: &str, system: &str) -> Result<f64, String> {
        Ok(self.row(case, system, (1, 0, self.delay_ns))?.ns_per_group)
    }

    pub fn bytes(&self, system: &str) -> Result<f64, String> {
        Ok(self.row("two_files", system, (1, 0, self.delay_ns))?.bytes_per_group)
    }

    /// Groups a second by so many threads.
    pub fn by_threads(&self, threads: u32, system: &str) -> Result<f64, String> {
        Ok(1e9 / self.row("two_files", system, (threads, 0, self.delay_ns))?.ns_per_group)
    }

    /// Groups a second by threads that are idle for so many percent of their time.
    pub fn by_idle(&self, percent: u32, system: &str) -> Result<f64, String> {
        Ok(1e9 / self.row("two_files", system, (MANY, percent, self.delay_ns))?.ns_per_group)
    }

    /// Groups a second of one thread with another delay.
    fn by_delay(&self, delay_ns: f64, system: &str) -> Result<f64, String> {
        Ok(1e9 / self.row("two_files", system, (1, 0, delay_ns))?.ns_per_group)
    }
}

/// Writes the figures and the claims of a report into a directory, which is made if it is not there. Gives the names of
/// the files.
///
/// # Errors
/// Those of the file system.
pub(super) fn write(report: &Report, model: Model, dir: &Path) -> Result<Vec<String>> {
    let runs = Runs::new(&report.runs, model);
    let recovery = recovery(report);
    figures::write("fcfs", &figures(&runs, &recovery), &claims(&runs, &recovery, &Wall(report)), dir)
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

/// The paper's names of the systems.
const NAMES: [(&str, &str); 8] = [
    (NONE, "NC"),
    (HYBRID, "FCFS"),
    (WAL, "FG-WAL"),
    (SHADOW, "SCSP"),
    (PAGES, "Valor"),
    (SOC, "FCFS-SOC"),
    (SYNC, "FCFS-SYNC"),
    (INSTANTLY, "FCFS-IR"),
];
const INSTANTLY: &str = "hybrid_log:instant-recovery";
const SIZES: [f64; 5] = [64.0, 256.0, 1024.0, 4096.0, 16384.0];

fn figures(runs: &Runs<'_>, recovery: &BTreeMap<String, Vec<(f64, f64)>>) -> Vec<Figure> {
    let systems = [NONE, HYBRID, WAL, SHADOW, PAGES];
    // A system that was not run has no points.
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
    let relative = |case: &str, system: &str| Ok(runs.ns(case, NONE)? / runs.ns(case, system)?);
    let latency = |system: &str| Ok(runs.ns("two_files", system)? / 1e3);
    let bytes = |system: &str| Ok(runs.bytes(system)? / runs.bytes(NONE)?);
    // The paper's text has ratios: what they make of a value of ours.
    let marks = |of: &[(&'static str, f64, Result<f64, String>, f64)]| {
        let mark = |(system, x, base, times): &(_, f64, Result<f64, String>, f64)| {
            Some((*system, *x, base.as_ref().ok()? * times))
        };
        of.iter().filter_map(mark).collect::<Vec<_>>()
    };
    let (six, of_fcfs) = (runs.by_threads(6, HYBRID), bytes(HYBRID));
    let of_size = |at: usize| relative(BY_SIZE[at].0, HYBRID);
    let figure = Figure {
        name: "",
        title: "",
        about: "",
        x: None,
        y: Axis::linear("groups/s"),
        lines: Vec::new(),
        marks: Vec::new(),
        marked: "",
        names: &NAMES,
    };
    vec![
        Figure {
            name: "7a",
            title: "FCFS, figure 7a: latency of a group, one thread (virtual time)",
            about: "The paper: FCFS takes 6 % longer than NC; its latency is 49 %, 78 % and 90 % below that of FG-WAL, \
                    SCSP and Valor.",
            y: Axis::linear("latency, us"),
            lines: alone(&latency),
            marks: marks(&[
                (HYBRID, 1.0, latency(NONE), 1.06),
                (WAL, 2.0, latency(NONE), 1.06 / 0.51),
                (SHADOW, 3.0, latency(NONE), 1.06 / 0.22),
                (PAGES, 4.0, latency(NONE), 1.06 / 0.10),
            ]),
            marked: "the paper's ratio, times our NC",
            ..figure.clone()
        },
        Figure {
            name: "7b",
            title: "FCFS, figure 7b: bytes written, one thread (counted)",
            about: "The paper: FG-WAL, SCSP and Valor write 67 %, 267 % and 247 % more than FCFS.",
            y: Axis::linear("bytes, those of NC = 1"),
            lines: alone(&bytes),
            marks: marks(&[
                (WAL, 2.0, of_fcfs.clone(), 1.67),
                (SHADOW, 3.0, of_fcfs.clone(), 3.67),
                (PAGES, 4.0, of_fcfs, 3.47),
            ]),
            marked: "the paper's ratio, times our FCFS",
            ..figure.clone()
        },
        Figure {
            name: "7c",
            title: "FCFS, figure 7c: throughput by threads (virtual time)",
            about: "The paper: FCFS rises, Valor stays constant, FCFS-SOC nearly so from 4 to 6 threads; with 6, FCFS is \
                    74 % above FG-WAL and 276 % above SCSP; the gap to NC grows.",
            x: Some(Axis::linear("threads")),
            lines: over(&numbers(&THREADS), &[NONE, HYBRID, SOC, WAL, SHADOW, PAGES], &|at, system| {
                runs.by_threads(THREADS[at], system)
            }),
            marks: marks(&[
                (WAL, 6.0, six.clone(), 1.0 / 1.74),
                (SHADOW, 6.0, six, 1.0 / 3.76),
                (SOC, 6.0, runs.by_threads(4, SOC), 1.0),
                (PAGES, 6.0, runs.by_threads(1, PAGES), 1.0),
            ]),
            marked: "the paper's ratio to FCFS with 6 threads; of SOC and Valor, to themselves with 4 and 1",
            ..figure.clone()
        },
        Figure {
            name: "8",
            title: "FCFS, figure 8: throughput by size of the values, one thread (virtual time)",
            about: "The paper: FCFS is 3.5 % above FG-WAL at 64 B, more than 90 % from 4 KiB on; the gain rises and the \
                    loss to NC falls with the size.",
            x: Some(Axis::log("bytes of a value")),
            y: Axis::linear("throughput, that of NC = 1"),
            lines: over(&SIZES, &systems, &|at, system| relative(BY_SIZE[at].0, system)),
            marks: marks(&[
                (WAL, SIZES[0], of_size(0), 1.0 / 1.035),
                (WAL, SIZES[3], of_size(3), 1.0 / 1.9),
                (WAL, SIZES[4], of_size(4), 1.0 / 1.9),
            ]),
            marked: "FG-WAL by the paper's ratio to FCFS",
            ..figure.clone()
        },
        Figure {
            name: "9",
            title: "FCFS, figure 9: throughput by idle time, six threads (virtual time)",
            about: "The paper: half of the time idle, FCFS and FCFS-SOC are 34 to 36 % above FCFS-SYNC; never idle, \
                    FCFS-SOC is 53 % below it; FCFS is always above both.",
            x: Some(Axis::linear("idle part of a thread's own time, percent")),
            lines: over(&numbers(&IDLE), &[NONE, HYBRID, SOC, SYNC], &|at, system| runs.by_idle(IDLE[at], system)),
            marks: marks(&[(HYBRID, 50.0, runs.by_idle(50, SYNC), 1.34), (SOC, 0.0, runs.by_idle(0, SYNC), 0.47)]),
            marked: "the paper's ratio to FCFS-SYNC",
            ..figure.clone()
        },
        Figure {
            name: "10",
            title: "FCFS, figure 10: throughput by delay of a line, one thread (virtual time)",
            about: "The paper: FCFS comes nearer to NC the longer the delay is.",
            x: Some(Axis::log("delay, ns")),
            y: Axis::linear("throughput, that of NC = 1"),
            lines: over(&numbers(&DELAYS), &systems, &|at, system| {
                let delay = f64::from(DELAYS[at]);
                Ok(runs.by_delay(delay, system)? / runs.by_delay(delay, NONE)?)
            }),
            ..figure.clone()
        },
        Figure {
            name: "11",
            title: "FCFS, figure 11: recovery by size of the log (wall time at the speed of memory)",
            about: "The paper: 406 ms for 5 GiB, and close to 13 s where all is written back first.",
            x: Some(Axis::linear("log, GiB")),
            y: Axis::log("time, ms"),
            lines: [HYBRID, INSTANTLY]
                .map(|system| (system.to_owned(), recovery.get(system).cloned().unwrap_or_default()))
                .into(),
            marks: vec![(HYBRID, 5.0, 406.0), (INSTANTLY, 5.0, 13_000.0)],
            marked: "the paper's value",
            ..figure
        },
    ]
}

/// Rows of the wall clock.
struct Wall<'r>(&'r Report);

impl Wall<'_> {
    fn ns(&self, system: &str, threads: u32) -> Option<f64> {
        let is_it =
            |row: &&Row| (&*row.case, &*row.system, row.threads) == ("two_files", system, threads) && !row.deferred;
        self.0.rows.iter().find(is_it).map(|row| row.ns_per_group)
    }

    /// How many times as long one system takes as another, by so many threads; where they are more than the machine
    /// has processors, that this says nothing, and the same by two.
    fn ratio(&self, one: &str, other: &str, threads: u32) -> String {
        let of = |threads| Some(self.ns(one, threads)? / self.ns(other, threads)?);
        let cores = self.0.machine.cores;
        match (of(threads), of(2)) {
            (Some(ratio), _) if cores >= threads as usize => format!("{ratio:.2}"),
            (_, Some(ratio)) if threads > 1 => {
                format!("{ratio:.2} with two threads; {threads} say nothing on {cores} processors")
            }
            _ => "not measured".into(),
        }
    }
}

fn claims(runs: &Runs<'_>, recovery: &BTreeMap<String, Vec<(f64, f64)>>, wall: &Wall<'_>) -> Vec<Claim> {
    type Ratio = Result<f64, String>;
    let ratio = |of: &dyn Fn(&str) -> Ratio, one: &str, other: &str| Ok(of(one)? / of(other)?);
    let latency = |system: &str| runs.ns("two_files", system);
    let bytes = |system: &str| runs.bytes(system);
    let six = |system: &str| runs.by_threads(6, system);
    let growth = |system: &str, from: u32| Ok(runs.by_threads(6, system)? / runs.by_threads(from, system)?);
    let idle = |percent: u32| move |system: &str| runs.by_idle(percent, system);
    let of_size = |size: usize| move |system: &str| runs.ns(BY_SIZE[size].0, system);
    let least = |all: Vec<Ratio>| all.into_iter().try_fold(f64::INFINITY, |least, ratio| Ok(least.min(ratio?)));
    let over_idle = |other: &str| least(IDLE.map(|percent| ratio(&idle(percent), HYBRID, other)).into());
    // The least step of something that is said to rise.
    let steps =
        |of: &dyn Fn(usize) -> Ratio, count: usize| least((1..count).map(|at| Ok(of(at)? / of(at - 1)?)).collect());
    let of_5g = |system: &str| {
        let points = recovery.get(system).ok_or_else(|| format!("{system} was not recovered"))?;
        match points.last() {
            Some((log, ms)) if *log > 4.9 => Ok(*ms),
            _ => Err("no log of 5 GiB was recovered (--log-size 5G)".to_owned()),
        }
    };
    vec![
        Claim::ratio("7a", "latency, fine_grained_wal / hybrid_log", 1.96, ratio(&latency, WAL, HYBRID))
            .beside(wall.ratio(WAL, HYBRID, 1)),
        Claim::ratio("7a", "latency, shadow / hybrid_log", 4.55, ratio(&latency, SHADOW, HYBRID))
            .beside(wall.ratio(SHADOW, HYBRID, 1)),
        Claim::ratio("7a", "latency, page_cache_wal / hybrid_log", 10.0, ratio(&latency, PAGES, HYBRID))
            .beside(wall.ratio(PAGES, HYBRID, 1)),
        Claim::overhead("7a", "latency, hybrid_log / none", 1.06, ratio(&latency, HYBRID, NONE))
            .beside(wall.ratio(HYBRID, NONE, 1)),
        Claim::ratio("7b", "bytes, fine_grained_wal / hybrid_log", 1.67, ratio(&bytes, WAL, HYBRID)),
        Claim::ratio("7b", "bytes, shadow / hybrid_log", 3.67, ratio(&bytes, SHADOW, HYBRID)),
        Claim::ratio("7b", "bytes, page_cache_wal / hybrid_log", 3.47, ratio(&bytes, PAGES, HYBRID)),
        Claim::ratio("7c", "six threads, hybrid_log / fine_grained_wal", 1.74, ratio(&six, HYBRID, WAL))
            .beside(wall.ratio(WAL, HYBRID, 6)),
        Claim::ratio("7c", "six threads, hybrid_log / shadow", 3.76, ratio(&six, HYBRID, SHADOW))
            .beside(wall.ratio(SHADOW, HYBRID, 6)),
        Claim::more(
            "7c",
            "hybrid_log rises with threads: the least step",
            steps(&|at| runs.by_threads(THREADS[at], HYBRID), THREADS.len()),
        ),
        Claim::more(
            "7c",
            "the gap to none grows: none / hybrid_log, six threads over one",
            ratio(&six, NONE, HYBRID).and_then(|many| Ok(many / ratio(&latency, HYBRID, NONE)?)),
        ),
        Claim::constant("7c", "SOC with six threads / with four", growth(SOC, 4)),
        Claim::constant("7c", "page_cache_wal with six threads / with one", growth(PAGES, 1)),
        Claim::ratio("8", "fine_grained_wal / hybrid_log, 64 B", 1.035, ratio(&of_size(0), WAL, HYBRID)),
        Claim::ratio("8", "fine_grained_wal / hybrid_log, 4 KiB", 1.9, ratio(&of_size(3), WAL, HYBRID)),
        Claim::ratio("8", "fine_grained_wal / hybrid_log, 16 KiB", 1.9, ratio(&of_size(4), WAL, HYBRID)),
        Claim::more(
            "8",
            "the gain over fine_grained_wal rises with the size: the least step",
            steps(&|at| ratio(&of_size(at), WAL, HYBRID), BY_SIZE.len()),
        ),
        Claim::more(
            "8",
            "the loss to none falls with the size: the least step",
            steps(&|at| ratio(&of_size(at), NONE, HYBRID), BY_SIZE.len()),
        ),
        Claim::ratio("9", "hybrid_log / SYNC, half of the time idle", 1.34, ratio(&idle(50), HYBRID, SYNC)),
        Claim::ratio("9", "SOC / SYNC, half of the time idle", 1.34, ratio(&idle(50), SOC, SYNC)),
        Claim::ratio("9", "SYNC / SOC, never idle", 2.13, ratio(&idle(0), SYNC, SOC)),
        Claim::more("9", "hybrid_log / SYNC, the least of all shares", over_idle(SYNC)),
        Claim::more("9", "hybrid_log / SOC, the least of all shares", over_idle(SOC)),
        Claim::more(
            "10",
            "hybrid_log over none rises with the delay: the least step",
            steps(&|at| ratio(&|system| runs.by_delay(f64::from(DELAYS[at]), system), HYBRID, NONE), DELAYS.len()),
        ),
        Claim::at_most("11", "hybrid_log, ms for 5 GiB", 406.0, of_5g(HYBRID)),
        Claim::ratio(
            "11",
            "instant-recovery / hybrid_log, 5 GiB",
            32.0,
            of_5g(INSTANTLY).and_then(|ms| Ok(ms / of_5g(HYBRID)?)),
        ),
    ]
}

/// The bounds on runs.
pub(super) fn bounds(runs: &Runs<'_>) -> Vec<Bound> {
    let idle = |percent: u32, one: &str, other: &str| Ok(runs.by_idle(percent, one)? / runs.by_idle(percent, other)?);
    let bytes = || Ok(runs.bytes(HYBRID)? / runs.bytes(NONE)?);
    let time = || Ok(runs.ns("two_files", HYBRID)? / runs.ns("two_files", NONE)?);
    let six = || Ok(runs.by_threads(6, HYBRID)? / runs.by_threads(6, WAL)?);
    vec![
        Bound::at_least(
            "two_files: hybrid_log / fine_grained_wal, groups/s of six threads, virtual time (paper 1.74)",
            1.6,
            six(),
        ),
        Bound::at_least(
            "two_files: hybrid_log / SYNC, groups/s, idle for half of the time, virtual time (paper 1.34)",
            1.2,
            idle(50, HYBRID, SYNC),
        ),
        Bound::at_least("two_files: hybrid_log / SYNC, groups/s, never idle, virtual time", 1.1, idle(0, HYBRID, SYNC)),
        Bound::at_most("two_files: hybrid_log / none, steady, one thread, virtual time", 1.2, time()),
        Bound::at_most("two_files: hybrid_log / none, steady, six threads, virtual time", 1.2, idle(0, NONE, HYBRID)),
        Bound::at_most("two_files: hybrid_log / none, bytes steady, in virtual time", 1.22, bytes()),
    ]
}
