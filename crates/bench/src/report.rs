//! Machine and rows, as JSON and as a table.

use crate::place::Medium;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Version of the JSON output. Raised when a field changes its meaning or goes.
pub const OUTPUT_VERSION: u32 = 1;

/// What a run prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`OUTPUT_VERSION`].
    pub output_version: u32,
    /// What it was measured on.
    pub machine: Machine,
    /// One row for each case, medium and system.
    pub rows: Vec<Row>,
    /// What was not measured, and why.
    pub skipped: Vec<Skipped>,
}

/// What the rows were measured on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// The media.
    pub media: Vec<MediumFacts>,
    /// The emulator of persistent memory's speed, `null` where memory is as fast as it is.
    pub emulator: Option<String>,
    /// Settings of the run and, as `system.setting`, of the systems.
    pub settings: BTreeMap<String, String>,
}

/// What is known of a medium.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MediumFacts {
    /// As in the rows.
    pub name: String,
    /// A line for people.
    pub description: String,
    /// Whether it stands in for something else.
    pub emulated: bool,
}

/// One system's figures for one case on one medium. `None` (`null`) where a field has no meaning or the system cannot
/// tell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The suite.
    pub suite: String,
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// The medium, as in [`Machine::media`].
    pub medium: String,
    /// Threads that run groups.
    pub threads: u32,
    /// Mean bytes of one update; a group has one or more.
    pub value_bytes: u64,
    /// Groups in all turns together.
    pub groups: u64,
    /// Median over turns of wall time per group. NaN (`null`) where there is none.
    #[serde(deserialize_with = "number_or_null")]
    pub ns_per_group: f64,
    /// 99th percentile of a group, from turns of their own.
    pub p99_ns: Option<f64>,
    /// Bytes written to the medium; on disks what the block device was told to write.
    pub bytes_written_per_group: Option<f64>,
    /// Fences with stores before them.
    pub fences_per_group: Option<f64>,
    /// System calls that wait for a device.
    pub syncs_per_group: Option<f64>,
    /// Median over turns of processor time of all threads. NaN (`null`) where there is no group.
    #[serde(deserialize_with = "number_or_null")]
    pub cpu_ns_per_group: f64,
    /// Median of [`ns_per_group`](Self::ns_per_group) over that of the base; `None` for a medium that the base did not
    /// run on.
    pub ratio: Option<f64>,
    /// The system that [`ratio`](Self::ratio) refers to.
    pub base: String,
    /// Whether checkpoints are left for a time outside the clock.
    pub deferred: bool,
    /// Suite `open`: median time of an open until the first read could be served.
    pub open_ns: Option<f64>,
    /// Suite `open`: median time of a close.
    pub close_ns: Option<f64>,
    /// Suite `open`: anonymous memory that the open took. Suite `store`: by how much the largest resident set exceeded
    /// the first.
    pub memory_bytes: Option<u64>,
    /// Suite `open`: what the store's own folder takes on its medium.
    pub disk_bytes: Option<u64>,
}

impl Row {
    /// Whether its suite's cases have bases of their own.
    fn is_of_tasks(&self) -> bool {
        matches!(self.suite.as_str(), "store" | "run" | "mount" | "volume")
    }
}

/// Not a number is written as `null`, and is read back from it.
fn number_or_null<'de, D: serde::Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(input)?.unwrap_or(f64::NAN))
}

/// Something that was not measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Skipped {
    /// The case.
    pub case: String,
    /// The medium.
    pub medium: String,
    /// The system, `None` for all of them.
    pub system: Option<String>,
    /// Why.
    pub reason: String,
}

impl Machine {
    /// The facts of this machine.
    pub fn this(media: &[Medium]) -> Machine {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split(": ").nth(1));
        Machine {
            cpu: model.unwrap_or("unknown").trim().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            media: media
                .iter()
                .map(|m| MediumFacts { name: m.name(), description: m.description(), emulated: m.emulated() })
                .collect(),
            emulator: None,
            settings: BTreeMap::new(),
        }
    }
}

impl Report {
    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let machine = &self.machine;
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}, {} cores, Linux {}", machine.cpu, machine.cores, machine.kernel);
        for medium in &machine.media {
            let emulated = if medium.emulated { " (emulated)" } else { "" };
            let _ = writeln!(out, "{}: {}{emulated}", medium.name, medium.description);
        }
        let mut before = ("", "");
        let of_groups = |row: &&Row| row.open_ns.is_none() && !row.is_of_tasks();
        for row in self.rows.iter().filter(of_groups) {
            if before != (&row.case, &row.medium) {
                before = (&row.case, &row.medium);
                let _ = writeln!(
                    out,
                    "\n{} / {} on {}: {} B an update\n{:<16}{:>12}{:>9}{:>12}{:>12}{:>11}{:>8}{:>7}",
                    row.suite,
                    row.case,
                    row.medium,
                    row.value_bytes,
                    "",
                    "ns/group",
                    format!("/{}", row.base),
                    "p99 ns",
                    "cpu ns",
                    "bytes",
                    "fences",
                    "syncs"
                );
            }
            let _ = writeln!(
                out,
                "{:<16}{:>12.0}{:>9}{:>12}{:>12.0}{:>11}{:>8}{:>7}{}",
                row.system,
                row.ns_per_group,
                cell(row.ratio, 2),
                cell(row.p99_ns, 0),
                row.cpu_ns_per_group,
                cell(row.bytes_written_per_group, 0),
                cell(row.fences_per_group, 2),
                cell(row.syncs_per_group, 2),
                if row.deferred { "  deferred" } else { "" }
            );
        }
        self.openings(&mut out);
        self.tasks(&mut out);
        for skipped in &self.skipped {
            let system = skipped.system.as_deref().unwrap_or("all systems");
            let _ = writeln!(out, "\nskipped {} on {}, {system}: {}", skipped.case, skipped.medium, skipped.reason);
        }
        out
    }

    /// The rows of suites whose cases have bases of their own.
    fn tasks(&self, out: &mut String) {
        let mut before = ("", "");
        for row in self.rows.iter().filter(|row| row.is_of_tasks()) {
            if before != (&row.case, &row.medium) {
                before = (&row.case, &row.medium);
                let _ = writeln!(
                    out,
                    "\n{} / {} on {}: ratios to {}\n{:<16}{:>14}{:>9}{:>14}{:>12}{:>12}{:>9}{:>12}",
                    row.suite,
                    row.case,
                    row.medium,
                    row.base,
                    "",
                    "us/group",
                    "ratio",
                    "us more",
                    "cpu us",
                    "KiB",
                    "syncs",
                    "memory KiB"
                );
            }
            let _ = writeln!(
                out,
                "{:<16}{:>14.1}{:>9}{:>14}{:>12.1}{:>12}{:>9}{:>12}{}",
                row.system,
                row.ns_per_group / 1e3,
                cell(row.ratio, 3),
                cell(self.more_than_base(row).map(|ns| ns / 1e3), 1),
                row.cpu_ns_per_group / 1e3,
                cell(row.bytes_written_per_group.map(|bytes| bytes / 1024.0), 1),
                cell(row.syncs_per_group, 2),
                cell(row.memory_bytes.map(|bytes| bytes as f64 / 1024.0), 0),
                if row.deferred { "  deferred" } else { "" }
            );
        }
    }

    /// By how much a row's time exceeds that of its base.
    fn more_than_base(&self, row: &Row) -> Option<f64> {
        let is_base = |other: &&Row| other.system == row.base && other.case == row.case && other.medium == row.medium;
        Some(row.ns_per_group - self.rows.iter().find(is_base)?.ns_per_group)
    }

    /// The rows of the suite `open`.
    fn openings(&self, out: &mut String) {
        let mut before = ("", "");
        for row in self.rows.iter().filter(|row| row.open_ns.is_some()) {
            if before != (&row.case, &row.medium) {
                before = (&row.case, &row.medium);
                let _ = writeln!(
                    out,
                    "\n{} / {} on {}: {} groups\n{:<16}{:>10}{:>9}{:>10}{:>10}{:>10}{:>12}{:>10}",
                    row.suite,
                    row.case,
                    row.medium,
                    row.groups,
                    "",
                    "open ms",
                    format!("/{}", row.base),
                    "ns/group",
                    "cpu ns",
                    "close ms",
                    "memory KiB",
                    "disk KiB"
                );
            }
            let per_group = |value: f64| cell((!value.is_nan()).then_some(value), 1);
            let kib = |bytes: Option<u64>| cell(bytes.map(|bytes| bytes as f64 / 1024.0), 0);
            let ms = |ns: Option<f64>| cell(ns.map(|ns| ns / 1e6), 2);
            let _ = writeln!(
                out,
                "{:<16}{:>10}{:>9}{:>10}{:>10}{:>10}{:>12}{:>10}",
                row.system,
                ms(row.open_ns),
                cell(row.ratio, 2),
                per_group(row.ns_per_group),
                per_group(row.cpu_ns_per_group),
                ms(row.close_ns),
                kib(row.memory_bytes),
                kib(row.disk_bytes)
            );
        }
    }
}

fn cell(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}
