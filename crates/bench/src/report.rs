//! Machine and rows, as JSON and as a table.

use crate::place::Medium;
use crate::stats::median;
use crate::workload::Case;
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
    /// Suite `fcfs`: what groups store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<CountRow>,
    /// Suite `fcfs`: runs in virtual time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunRow>,
    /// Suites `groups` and `store` with `--instructions`: how many instructions groups execute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<InstructionRow>,
    /// Suite `ccnvme`: what transactions move over PCIe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<TransferRow>,
    /// Suite `ccnvme`: how fast transactions are by the times of a profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<RateRow>,
    /// Suite `journal`: transactions of blocks on a disk.
    #[serde(default)]
    pub journals: Vec<JournalRow>,
    /// Suite `mqfs`: workloads by the model's clock.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueRow>,
    /// Suite `mqfs`: stages of a sync.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageRow>,
    /// Suites `fcfs`, `store`, `ccnvme` and `mqfs`, and `groups` with `--instructions`: bounds, met or missed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Bound>,
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
    /// Suite `store`: what an epoch takes of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogUse>,
}

/// What a group takes of the log while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogUse {
    /// The most bytes of segments that were not free.
    pub peak_bytes: u64,
    /// Bytes of the file that the group has written, each counted once.
    pub distinct_bytes: u64,
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

/// What one system stores for a group of a case: means over groups. The same on each machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountRow {
    /// The suite.
    pub suite: String,
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// Mean bytes of one update.
    pub value_bytes: u64,
    /// Groups that were counted.
    pub groups: u64,
    /// By phase: `call`, `commit`, `checkpoint`.
    pub phases: BTreeMap<String, PhaseCount>,
    /// Lines that checkpoints copy.
    pub copied_lines: f64,
    /// Time by the model, without checkpoints that can be left for later.
    pub model_ns_deferred: f64,
    /// Time by the model.
    pub model_ns: f64,
    /// Whether the counts of each group are those of the engine's formula.
    pub formula: String,
}

impl CountRow {
    /// A sum over phases.
    pub fn all(&self, of: fn(&PhaseCount) -> f64) -> f64 {
        self.phases.values().map(of).sum()
    }
}

/// What a group does to the medium in one phase, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseCount {
    /// Stores and fences.
    pub calls: f64,
    /// Bytes stored.
    pub bytes: f64,
    /// Lines of 64 bytes that were stored to, a line once for each store.
    pub lines: f64,
    /// Fences.
    pub fences: f64,
}

/// A run of one system in virtual time: see [`fcfs`](crate::fcfs). The same on each machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRow {
    /// The suite.
    pub suite: String,
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// Threads that run groups.
    pub threads: u32,
    /// The part of its time for which each of them is idle, in percent.
    pub idle_percent: u32,
    /// Delay of a line.
    pub delay_ns: f64,
    /// Mean bytes of one update.
    pub value_bytes: u64,
    /// Groups in all threads together.
    pub groups: u64,
    /// Virtual time over groups.
    pub ns_per_group: f64,
    /// How long a group takes its thread, on average; it is not idle then.
    pub busy_ns: f64,
    /// Lines of 64 bytes that were stored to, by any thread, over groups.
    pub lines_per_group: f64,
    /// Bytes stored, over groups.
    pub bytes_per_group: f64,
    /// The part of the medium's bandwidth that was used.
    pub bandwidth_used: f64,
}

/// How many instructions the groups of one system execute in a case: see [`instructions`](crate::instructions).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InstructionRow {
    /// The suite.
    pub suite: String,
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// The medium, as in [`Machine::media`].
    pub medium: String,
    /// Groups that were counted.
    pub groups: u64,
    /// The median over them.
    pub instructions_per_group: f64,
    /// The group with the fewest.
    pub fewest: f64,
    /// The group with the most.
    pub most: f64,
}

impl InstructionRow {
    /// The row of these counts.
    pub(crate) fn of(case: &Case, system: &str, medium: String, counts: &[f64]) -> InstructionRow {
        InstructionRow {
            suite: case.suite.to_owned(),
            case: case.name.to_owned(),
            system: system.to_owned(),
            medium,
            groups: counts.len() as u64,
            instructions_per_group: median(counts).unwrap_or(f64::NAN),
            fewest: counts.iter().copied().fold(f64::INFINITY, f64::min),
            most: counts.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// What one transaction moves over PCIe: see [`ccnvme`](crate::ccnvme).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransferRow {
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// Device that counted: the model, or QEMU.
    pub device: String,
    /// Blocks of data in the transaction.
    pub n: u64,
    /// Stores and doorbells, as the paper counts them: the tail in the region and its doorbell are one.
    pub mmio: u64,
    /// All of them.
    pub mmio_raw: u64,
    /// Reads that make stores arrive.
    pub barriers: u64,
    /// Bytes stored to the region.
    pub region_bytes: u64,
    /// Entries of queues, by DMA.
    pub dma_queue: u64,
    /// Commands that move blocks.
    pub block_ios: u64,
    /// Interrupts.
    pub interrupts: u64,
    /// What the formula of the system says of `mmio`, `dma_queue`, `block_ios` and `interrupts`.
    pub formula: [u64; 4],
    /// Whether it is so; of QEMU's interrupts, whether there are some, and not more.
    pub is_formula: bool,
}

/// How fast one system is by the times of a profile. The same on each machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RateRow {
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// The profile: times are its parameters, not those of hardware.
    pub profile: String,
    /// Blocks of data in a transaction.
    pub n: u64,
    /// Time from one transaction to the next.
    pub ns_per_transaction: f64,
    /// The part of the device's bandwidth that is used.
    pub bandwidth_used: f64,
}

/// How fast one system of the suite `journal` is: see [`journal`](crate::journal).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournalRow {
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// The medium.
    pub medium: String,
    /// Blocks of data in a transaction.
    pub n: u64,
    /// Threads.
    pub threads: u64,
    /// Time from one transaction of all threads to the next: the median of turns.
    pub ns_per_transaction: f64,
    /// Synchronous writes and flushes.
    pub writes_per_transaction: f64,
}

/// How fast one system of the suite `mqfs` is, by the model's clock: see [`mqfs`](crate::mqfs). The same on each
/// machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QueueRow {
    /// The suite.
    pub suite: String,
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// The profile: times are its parameters, not those of hardware.
    pub profile: String,
    /// Whose time it is: that of the `model`.
    pub clock: String,
    /// Threads, each with a processor of its own.
    pub threads: u32,
    /// Calls of all threads.
    pub calls: u64,
    /// Time over calls.
    pub ns_per_call: f64,
    /// How long a call takes, on average.
    pub latency_ns: f64,
    /// Transactions.
    pub transactions_per_call: f64,
    /// Blocks that the device reads or writes.
    pub blocks_per_call: f64,
    /// Commands.
    pub commands_per_call: f64,
    /// Stores over PCIe, as the paper counts them.
    pub mmio_per_call: f64,
    /// Transactions of all calls that depend on others, on other queues, that were not durable.
    pub depending: u64,
    /// How long a commit keeps others from changing its pages, on average.
    pub held_ns: Option<f64>,
}

/// The stages of a new file that is synced, of one system: see [`mqfs`](crate::mqfs).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageRow {
    /// The suite.
    pub suite: String,
    /// The case.
    pub case: String,
    /// The system.
    pub system: String,
    /// The profile of the model's time.
    pub profile: String,
    /// Whose time it is.
    pub clock: String,
    /// S-iD: content.
    pub data_ns: f64,
    /// S-iM: metadata of the file.
    pub metadata_ns: f64,
    /// S-pM: of its directory.
    pub parent_ns: f64,
    /// S-JH: the description, and handing over.
    pub description_ns: f64,
    /// W-x: the device.
    pub wait_ns: f64,
    /// All of them.
    pub all_ns: f64,
    /// What `fatomic` takes of the processor, of a system that has it.
    pub told_ns: Option<f64>,
}

/// A bound on a figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bound {
    /// The figure.
    pub what: String,
    /// The most or the least that it may be.
    pub bound: f64,
    /// Whether the bound is the most.
    pub is_upper: bool,
    /// What it is, if it was measured.
    pub value: Option<f64>,
    /// Whether the bound is met, if it was measured.
    pub met: Option<bool>,
    /// Why it was not measured.
    pub why: Option<String>,
}

impl Bound {
    /// One on a figure that may be this much at most.
    pub fn at_most(what: impl Into<String>, bound: f64, value: Result<f64, String>) -> Bound {
        Bound::new(what.into(), bound, true, value)
    }

    /// One on a figure that must be this much at least.
    pub fn at_least(what: impl Into<String>, bound: f64, value: Result<f64, String>) -> Bound {
        Bound::new(what.into(), bound, false, value)
    }

    fn new(what: String, bound: f64, is_upper: bool, value: Result<f64, String>) -> Bound {
        let (value, why) = value.map_or_else(|why| (None, Some(why)), |value| (Some(value), None));
        let met = value.map(|value| if is_upper { value <= bound } else { value >= bound });
        Bound { what, bound, is_upper, value, met, why }
    }
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
    /// A report without rows.
    pub(crate) fn new(media: &[Medium]) -> Report {
        Report {
            output_version: OUTPUT_VERSION,
            machine: Machine::this(media),
            rows: Vec::new(),
            skipped: Vec::new(),
            counts: Vec::new(),
            runs: Vec::new(),
            instructions: Vec::new(),
            transfers: Vec::new(),
            rates: Vec::new(),
            journals: Vec::new(),
            queues: Vec::new(),
            stages: Vec::new(),
            bounds: Vec::new(),
        }
    }

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
                    "\n{} / {} on {}: {} B an update\n{:<22}{:>12}{:>9}{:>12}{:>12}{:>11}{:>8}{:>7}",
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
                "{:<22}{:>12.0}{:>9}{:>12}{:>12.0}{:>11}{:>8}{:>7}{}",
                if row.threads > 1 { format!("{} *{}", row.system, row.threads) } else { row.system.clone() },
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
        self.queued(&mut out);
        self.staged(&mut out);
        self.counted(&mut out);
        self.transferred(&mut out);
        for skipped in &self.skipped {
            let system = skipped.system.as_deref().unwrap_or("all systems");
            let _ = writeln!(out, "\nskipped {} on {}, {system}: {}", skipped.case, skipped.medium, skipped.reason);
        }
        out
    }

    /// What transactions move, and how fast they are.
    fn transferred(&self, out: &mut String) {
        let mut before = (0, "");
        for row in &self.transfers {
            if before != (row.n, &row.device) {
                before = (row.n, &row.device);
                let _ = writeln!(
                    out,
                    "\n{}, N = {}, counted by {}\n{:<22}{:>8}{:>8}{:>9}{:>8}{:>8}{:>8}{:>11}",
                    row.case, row.n, row.device, "", "MMIO", "raw", "barriers", "DMA(Q)", "blocks", "IRQ", "by formula"
                );
            }
            let _ = writeln!(
                out,
                "{:<22}{:>8}{:>8}{:>9}{:>8}{:>8}{:>8}{:>11}",
                row.system,
                row.mmio,
                row.mmio_raw,
                row.barriers,
                row.dma_queue,
                row.block_ios,
                row.interrupts,
                if row.is_formula { "yes" } else { "NO" }
            );
        }
        let mut before = ("", 0);
        for row in &self.rates {
            if before != (&row.case, row.n) {
                before = (&row.case, row.n);
                let _ = writeln!(
                    out,
                    "\n{}, {} KiB a transaction, times of {}\n{:<22}{:>16}{:>18}",
                    row.case,
                    4 * row.n,
                    row.profile,
                    "",
                    "ns/transaction",
                    "bandwidth used"
                );
            }
            let _ = writeln!(out, "{:<22}{:>16.0}{:>18.2}", row.system, row.ns_per_transaction, row.bandwidth_used);
        }
        let mut before = ("", 0, 0);
        for row in &self.journals {
            if before != (&row.case, row.n, row.threads) {
                before = (&row.case, row.n, row.threads);
                let (kib, threads) = (4 * row.n, row.threads);
                let _ = writeln!(
                    out,
                    "\n{} / {}: {kib} KiB a transaction, {threads} threads\n{:<22}{:>16}{:>22}",
                    row.case, row.medium, "", "us/transaction", "synchronous writes"
                );
            }
            let us = row.ns_per_transaction / 1e3;
            let _ = writeln!(out, "{:<22}{us:>16.1}{:>22.2}", row.system, row.writes_per_transaction);
        }
    }

    /// Workloads by the model's clock.
    fn queued(&self, out: &mut String) {
        let mut before = ("", "");
        for row in &self.queues {
            if before != (&row.case, &row.profile) {
                before = (&row.case, &row.profile);
                let _ = writeln!(
                    out,
                    "\n{} / {}: {} time, {}\n{:<22}{:>8}{:>12}{:>12}{:>8}{:>9}{:>10}{:>8}{:>10}{:>10}",
                    row.suite,
                    row.case,
                    row.clock,
                    row.profile,
                    "",
                    "threads",
                    "ns/call",
                    "latency",
                    "txs",
                    "blocks",
                    "commands",
                    "MMIO",
                    "depending",
                    "held ns"
                );
            }
            let _ = writeln!(
                out,
                "{:<22}{:>8}{:>12.0}{:>12.0}{:>8.2}{:>9.2}{:>10.2}{:>8.2}{:>10}{:>10}",
                row.system,
                row.threads,
                row.ns_per_call,
                row.latency_ns,
                row.transactions_per_call,
                row.blocks_per_call,
                row.commands_per_call,
                row.mmio_per_call,
                row.depending,
                cell(row.held_ns, 0)
            );
        }
    }

    /// Stages of a sync.
    fn staged(&self, out: &mut String) {
        let mut before = "";
        for row in &self.stages {
            if before != row.profile {
                before = &row.profile;
                let _ = writeln!(
                    out,
                    "\n{} / {}: ns, {} time of {}\n{:<22}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
                    row.suite,
                    row.case,
                    row.clock,
                    row.profile,
                    "",
                    "S-iD",
                    "S-iM",
                    "S-pM",
                    "S-JH",
                    "W-x",
                    "all",
                    "fatomic"
                );
            }
            let StageRow { data_ns, metadata_ns, parent_ns, description_ns, wait_ns, all_ns, .. } = row;
            let _ = writeln!(
                out,
                "{:<22}{data_ns:>9.0}{metadata_ns:>9.0}{parent_ns:>9.0}{description_ns:>9.0}{wait_ns:>9.0}{all_ns:>9.0}{:>9}",
                row.system,
                cell(row.told_ns, 0)
            );
        }
    }

    /// What groups store and execute, and the bounds.
    fn counted(&self, out: &mut String) {
        let mut before = "";
        for row in &self.counts {
            if before != row.case {
                before = &row.case;
                let _ = writeln!(
                    out,
                    "\n{} / {}: counts for a group\n{:<22}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>12}{:>12}  formula",
                    row.suite,
                    row.case,
                    "",
                    "call",
                    "commit",
                    "checkp.",
                    "copied",
                    "bytes",
                    "fences",
                    "model ns",
                    "deferred"
                );
            }
            let lines = |phase: &str| row.phases.get(phase).map_or(0.0, |count| count.lines);
            let _ = writeln!(
                out,
                "{:<22}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.0}{:>8.2}{:>12.0}{:>12.0}  {}",
                row.system,
                lines("call"),
                lines("commit"),
                lines("checkpoint"),
                row.copied_lines,
                row.all(|count| count.bytes),
                row.all(|count| count.fences),
                row.model_ns,
                row.model_ns_deferred,
                row.formula
            );
        }
        let mut before = "";
        for row in &self.runs {
            if before != row.case {
                before = &row.case;
                let _ = writeln!(
                    out,
                    "\n{} / {}: runs in virtual time\n{:<22}{:>8}{:>8}{:>10}{:>12}{:>12}{:>10}{:>10}{:>11}",
                    row.suite,
                    row.case,
                    "",
                    "threads",
                    "idle %",
                    "delay ns",
                    "groups/s",
                    "busy ns",
                    "lines",
                    "bytes",
                    "medium %"
                );
            }
            let _ = writeln!(
                out,
                "{:<22}{:>8}{:>8}{:>10}{:>12.0}{:>12.0}{:>10.2}{:>10.0}{:>11.1}",
                row.system,
                row.threads,
                row.idle_percent,
                row.delay_ns,
                1e9 / row.ns_per_group,
                row.busy_ns,
                row.lines_per_group,
                row.bytes_per_group,
                row.bandwidth_used * 100.0
            );
        }
        let mut before = "";
        for row in &self.instructions {
            if before != row.case {
                before = &row.case;
                let _ = writeln!(
                    out,
                    "\n{} / {}: instructions of a group\n{:<22}{:>10}{:>10}{:>10}",
                    row.suite, row.case, "", "median", "fewest", "most"
                );
            }
            let InstructionRow { system, instructions_per_group: median, fewest, most, .. } = row;
            let _ = writeln!(out, "{system:<22}{median:>10.0}{fewest:>10.0}{most:>10.0}");
        }
        if !self.bounds.is_empty() {
            let _ = writeln!(out, "\nbounds");
        }
        for bound in &self.bounds {
            let sign = if bound.is_upper { "<=" } else { ">=" };
            let verdict = match (bound.met, &bound.why) {
                (Some(true), _) => "met".to_owned(),
                (Some(false), _) => "missed".to_owned(),
                (None, why) => format!("not measured: {}", why.as_deref().unwrap_or_default()),
            };
            let _ = writeln!(out, "{:>8} {sign} {:<6.3} {verdict}: {}", cell(bound.value, 3), bound.bound, bound.what);
        }
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
            // A call of a microsecond is one of a thousand nanoseconds.
            let digits = if row.ns_per_group < 1e5 { 3 } else { 1 };
            let _ = writeln!(
                out,
                "{:<16}{:>14.digits$}{:>9}{:>14}{:>12.digits$}{:>12}{:>9}{:>12}{}",
                row.system,
                row.ns_per_group / 1e3,
                cell(row.ratio, 3),
                cell(self.more_than_base(row).map(|ns| ns / 1e3), digits),
                row.cpu_ns_per_group / 1e3,
                cell(row.bytes_written_per_group.map(|bytes| bytes / 1024.0), 1),
                cell(row.syncs_per_group, 2),
                cell(row.memory_bytes.map(|bytes| bytes as f64 / 1024.0), 0),
                if row.deferred { "  deferred" } else { "" }
            );
            if let Some(log) = &row.log {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                let (peak, distinct) = (mib(log.peak_bytes), mib(log.distinct_bytes));
                let _ = writeln!(out, "{:<16}log in use: {peak:.1} MiB, distinct bytes: {distinct:.2} MiB", "");
            }
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
