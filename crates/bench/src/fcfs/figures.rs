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
use crate::report::{CountRow, Report};
use crate::{Error, Result};
use plotters::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use wholly_media::pmem::Emulation;

/// Delays of figure 10, in nanoseconds.
const DELAYS: [u32; 6] = [50, 100, 200, 400, 800, 1600];
/// Idle parts of the time of figure 9, in percent.
const IDLE: [u32; 6] = [0, 10, 30, 50, 70, 90];
/// Threads of figure 7c.
const THREADS: [u32; 4] = [1, 2, 4, 6];
/// A claim about how many times as good something is holds from this part of the paper's value on.
const HOLDS_FROM: f64 = 0.9;

const NONE: &str = "none";
const WAL: &str = "fine_grained_wal";
const SHADOW: &str = "shadow";
const PAGES: &str = "page_cache_wal";
const HYBRID: &str = "hybrid_log";

/// A figure: points of systems.
struct Figure {
    name: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    /// By system, in the order in which they are drawn.
    lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Figure {
    /// Whether each system has a bar, and no line.
    fn is_bars(&self) -> bool {
        self.x == "system"
    }
}

/// What the paper says of a figure.
struct Claim {
    figure: &'static str,
    what: String,
    /// As the paper has it.
    paper: f64,
    /// As it is here.
    ours: Result<f64, String>,
    /// Whether less is better.
    is_upper: bool,
}

impl Claim {
    fn at_least(figure: &'static str, what: impl Into<String>, paper: f64, ours: Result<f64, String>) -> Claim {
        Claim { figure, what: what.into(), paper, ours, is_upper: false }
    }

    fn at_most(figure: &'static str, what: impl Into<String>, paper: f64, ours: Result<f64, String>) -> Claim {
        Claim { figure, what: what.into(), paper, ours, is_upper: true }
    }

    fn verdict(&self) -> &'static str {
        match self.ours {
            Err(_) => "not measured",
            Ok(ours) if self.is_upper && ours * HOLDS_FROM <= self.paper => "held",
            Ok(ours) if !self.is_upper && ours >= self.paper * HOLDS_FROM => "held",
            Ok(_) => "refuted",
        }
    }
}

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
    std::fs::create_dir_all(dir)?;
    let counted = Counted { rows: &report.counts, model };
    let recovery = recovery(report);
    let mut written = Vec::new();
    for figure in figures(&counted, &recovery) {
        let name = format!("fcfs-{}", figure.name);
        std::fs::write(dir.join(format!("{name}.csv")), csv(&figure))?;
        draw(&figure, &dir.join(format!("{name}.svg")))?;
        written.extend([format!("{name}.csv"), format!("{name}.svg")]);
    }
    std::fs::write(dir.join("fcfs-claims.csv"), table(&claims(&counted, &recovery)))?;
    written.push("fcfs-claims.csv".into());
    Ok(written)
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

fn csv(figure: &Figure) -> String {
    let Figure { x, y, .. } = figure;
    // By system alone, the place on the axis says nothing.
    let is_bars = figure.is_bars();
    let mut out = if is_bars { format!("system,{y}\n") } else { format!("system,{x},{y}\n") };
    for (system, points) in &figure.lines {
        for (x, y) in points {
            _ = if is_bars { writeln!(out, "{system},{y}") } else { writeln!(out, "{system},{x},{y}") };
        }
    }
    out
}

fn table(claims: &[Claim]) -> String {
    let mut out = "figure,claim,paper,ours,verdict\n".to_owned();
    for claim in claims {
        let Claim { figure, what, paper, ours, .. } = claim;
        let ours = ours.as_ref().map_or_else(ToString::to_string, |ours| format!("{ours:.3}"));
        _ = writeln!(out, "{figure},\"{what}\",{paper},\"{ours}\",{}", claim.verdict());
    }
    out
}

/// The bounds of some numbers, with room beyond the largest.
fn range(numbers: impl Iterator<Item = f64>, from_zero: bool) -> std::ops::Range<f64> {
    let (low, high) = numbers.fold((f64::INFINITY, 0.0f64), |(low, high), n| (low.min(n), high.max(n)));
    let low = if from_zero || !low.is_finite() { 0.0 } else { low };
    low..if high > low { high + (high - low) / 20.0 } else { low + 1.0 }
}

fn draw(figure: &Figure, path: &Path) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::from(format!("{}: {error}", path.display()));
    let points = || figure.lines.iter().flat_map(|(_, points)| points);
    let is_bars = figure.is_bars();
    let xs = match is_bars {
        true => -0.5..figure.lines.len() as f64 - 0.5,
        false => range(points().map(|point| point.0), false),
    };
    let root = SVGBackend::new(path, (800, 500)).into_drawing_area();
    let drawn = || -> std::result::Result<(), DrawingAreaErrorKind<_>> {
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(figure.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(xs, range(points().map(|point| point.1), true))?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(figure.x).y_desc(figure.y);
        if is_bars {
            mesh.x_labels(0);
        }
        mesh.draw()?;
        for (at, (system, points)) in figure.lines.iter().enumerate() {
            let color = Palette99::pick(at).to_rgba();
            let drawn = match is_bars {
                true => chart.draw_series(
                    points.iter().map(|(x, y)| Rectangle::new([(x - 0.3, 0.0), (x + 0.3, *y)], color.filled())),
                )?,
                false => {
                    chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
                    chart.draw_series(LineSeries::new(points.iter().copied(), color.stroke_width(2)))?
                }
            };
            let mark = move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], color.filled());
            drawn.label(system.as_str()).legend(mark);
        }
        let mut labels = chart.configure_series_labels();
        labels.background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
        root.present()
    };
    drawn().map_err(|error| failed(&error))
}
