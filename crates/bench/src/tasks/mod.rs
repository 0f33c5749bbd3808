//! The suite `store`: whole tasks of programs, through a store and as they do them without one.
//!
//! Each task is one group, or one call. Systems take turns on the same file system; the figure is the ratio to the
//! median of the case's own base, in the same run.
//!
//! | case | base | other rows |
//! |---|---|---|
//! | `create_10k` | `plain_syncfs`: the same calls without a group, then one `syncfs` | `store_deferred`, `store`, `fsync_each` |
//! | `replace` | `rename`: create, write, `fsync`, `rename`, `fsync` of the directory | `store_deferred`, `store` |
//! | `overwrite` | the same | `store_deferred`, `store`: the bytes are overwritten in place |
//! | `rewrite_1g` | `new_file`: another file of the same size is written, and it and its directory are synced | `store_deferred`, `store` |
//! | `write_64k` to `write_1g` | `new_file`: each file is written, and it and its directory are synced | `staged_deferred`, `staged`, `logged_deferred`, `logged`: a group for each file, whose bytes go to the file system or to the log |
//! | `over_256k` to `over_16m` | the same, of new files | the same, of files that are there |
//! | `read_4k`, `read_64k` | `pread` of the same file by a descriptor of its own | `store` |
//! | `epoch_same_4k` to `epoch_fsync_4k` | `raw`: non-temporal stores to a mapped file; where each call is synced, each with a fence | `store_deferred` under `per-sync`; `hybrid_log` and `none`, volumes by a `PolicyVfs` and without one |
//! | `read_clean_128`, `read_clean_4k` | `mapping`: copies from another mapping of the store's file | `store_deferred` |
//!
//! # What is inside the clock, and what is durable when it stops
//!
//! - `store_deferred`: until the last commit has returned. All of it survives a crash, by the log; nothing of it need
//!   be home.
//! - `store`: until it is home, and survives without the log. In `create_10k`, `rewrite_1g`, `write_` and `over_` that
//!   is the same turn, stopped a second time after a checkpoint; in `replace` and `overwrite` a store of its own whose
//!   turn writes three times what its log holds, with the checkpoint in the background and what it leaves drained.
//! - `epoch_`, `read_clean_`: the calls of one thread. Before the next turn, outside of the clock, the epoch is
//!   committed and written back. So nothing of a turn is durable when its clock stops, but in `epoch_fsync_4k`.
//! - Peers: until their last sync has returned.
//! - Opening, preparing and removing are outside. Every turn of `create_10k` begins in an empty directory, with a new
//!   store.
//! - `memory_bytes`: by how much the largest resident set of the turn (`VmHWM`) exceeds the one before it (`VmRSS`),
//!   the most of all turns. The page cache is not in it. The buffer that a task writes from is there before.

mod create;
mod epochs;
mod read;
mod replace;
mod rewrite;
mod write;

pub(crate) use epochs::count;

use crate::harness::{Plan, cpu_ns};
use crate::place::{Medium, Place};
use crate::report::{LogUse, Report, Row, Skipped};
use crate::stats::{median, ratio};
use crate::workload::Case;
use crate::{Error, Result};
use std::path::Path;
use std::time::Instant;
use wholly::{Options, Store};
use wholly_host::{HostMedium, HostOptions};

/// One stop of the clock. Counts are of the whole turn until then.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub ns: f64,
    pub cpu_ns: f64,
    pub device_bytes: Option<u64>,
    pub fences: Option<u64>,
    pub syncs: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Groups, or calls where there are none.
    pub groups: u64,
}

/// What one system showed in a case.
pub(crate) struct Figures {
    pub system: &'static str,
    deferred: bool,
    pub samples: Vec<Sample>,
    log: Option<LogUse>,
}

impl Figures {
    pub fn of(systems: &[&'static str]) -> Vec<Figures> {
        let figures = |&system: &&'static str| Figures {
            system,
            deferred: system.ends_with("_deferred"),
            samples: Vec::new(),
            log: None,
        };
        systems.iter().map(figures).collect()
    }
}

/// Adds a sample to the figures of `system`, if those are wanted.
pub(crate) fn add(figures: &mut [Figures], system: &str, sample: Sample) {
    if let Some(figures) = figures.iter_mut().find(|figures| figures.system == system) {
        figures.samples.push(sample);
    }
}

/// What a case is run with.
struct Setting<'a> {
    plan: &'a Plan,
    case: &'a Case,
    place: &'a Place,
}

/// Runs a case, and adds what it shows to the figures.
type Run = fn(&Setting<'_>, &mut [Figures]) -> Result<()>;

/// A clock with counters.
struct Clock<'a> {
    place: &'a Place,
    start: Instant,
    cpu_ns: i128,
    device_bytes: Option<u64>,
    store: Option<(u64, u64)>,
    resident_bytes: Option<u64>,
}

impl<'a> Clock<'a> {
    /// Starts; with the counters of `store` where it is one.
    fn start(place: &'a Place, store: Option<&Store>) -> Result<Self> {
        Ok(Clock {
            place,
            store: store.map(barriers),
            resident_bytes: None,
            device_bytes: place.device_bytes_written(),
            cpu_ns: cpu_ns(),
            start: Instant::now(),
        })
    }

    /// The same, and looks at memory from here on. The kernel counts pages of each processor by themselves before it
    /// adds them up: a figure is some hundred KiB off.
    fn start_with_memory(place: &'a Place, store: Option<&Store>) -> Result<Self> {
        // Makes the largest resident set what the set is now (proc_pid_clear_refs(5)).
        std::fs::write("/proc/self/clear_refs", "5")?;
        let resident_bytes = Some(status_bytes("VmRSS:")?);
        Ok(Clock { resident_bytes, ..Self::start(place, store)? })
    }

    /// What has happened since the start; the clock goes on.
    fn stop(&self, store: Option<&Store>, groups: u64) -> Result<Sample> {
        let ns = self.start.elapsed().as_nanos() as f64;
        let cpu_ns = (cpu_ns() - self.cpu_ns) as f64;
        let now = store.map(barriers);
        let since = |count: fn((u64, u64)) -> u64| Some(count(now?) - count(self.store?));
        let memory = |before| Ok::<_, Error>(status_bytes("VmHWM:")?.saturating_sub(before));
        Ok(Sample {
            ns,
            cpu_ns,
            device_bytes: self.place.device_bytes_written().zip(self.device_bytes).map(|(now, then)| now - then),
            fences: since(|(fences, _)| fences),
            syncs: since(|(_, syncs)| syncs),
            memory_bytes: self.resident_bytes.map(memory).transpose()?,
            groups,
        })
    }
}

/// Of a peer, which counts its syncs itself.
fn with_syncs(sample: Sample, syncs: u64) -> Sample {
    Sample { syncs: Some(syncs), ..sample }
}

fn barriers(store: &Store) -> (u64, u64) {
    let stat = store.stat();
    (stat.fences, stat.syncs)
}

/// Runs the cases of `plan`, with those systems that `chosen` names or all of them.
///
/// # Errors
/// The first failure of a system. What a medium cannot do is no failure; the report says it under `skipped`.
pub fn run(plan: &Plan, chosen: &[String], report: &mut Report, progress: &mut dyn FnMut(&str)) -> Result<()> {
    for case in &plan.cases {
        let (base, others, run): (_, &[&'static str], Run) = match case.name {
            "create_10k" => ("plain_syncfs", &["store_deferred", "store", "fsync_each"], create::run),
            "rewrite_1g" => ("new_file", &["store_deferred", "store"], rewrite::run),
            name if name.starts_with("write_") || name.starts_with("over_") => {
                ("new_file", &write::SYSTEMS, write::run)
            }
            _ if epochs::is_one(case) => (epochs::base(case), epochs::others(case), epochs::run),
            "replace" | "overwrite" => ("rename", &["store_deferred", "store"], replace::run),
            _ => ("pread", &["store"], read::run),
        };
        let wanted = |name: &&&'static str| chosen.is_empty() || chosen.iter().any(|c| c == **name);
        let systems: Vec<&'static str> = [&base].into_iter().chain(others.iter().filter(wanted)).copied().collect();
        for medium in plan.media.iter().filter(|medium| medium.is_pmem() != case.on_disk) {
            let label = format!("{}/{} on {}", case.suite, case.name, medium.name());
            progress(&label);
            // Old and new files of each system, and logs that grow; a volume has room for three times its file.
            let copies = if case.on_disk { 3 } else { 2 + 3 * systems.len().saturating_sub(2) };
            let place = match medium.make(case, copies) {
                Ok(place) => place.emulating(plan.emulation),
                Err(e) => {
                    let (case, medium) = (case.name.to_owned(), medium.name());
                    report.skipped.push(Skipped { case, medium, system: None, reason: e.to_string() });
                    continue;
                }
            };
            let mut figures = Figures::of(&systems);
            run(&Setting { plan, case, place: &place }, &mut figures).map_err(|e| format!("{label}: {e}"))?;
            report.rows.extend(rows(case, medium, base, &figures));
            report.bounds.extend(epochs::bounds(case, medium, report));
        }
    }
    Ok(())
}

/// The rows of a case: ratios are to `base`.
pub(crate) fn rows(case: &Case, medium: &Medium, base: &str, figures: &[Figures]) -> Vec<Row> {
    let column = |figures: &Figures, field: fn(&Sample) -> Option<f64>| -> Vec<f64> {
        figures.samples.iter().filter_map(|sample| Some(field(sample)? / sample.groups as f64)).collect()
    };
    let ns = |figures: &Figures| column(figures, |sample| Some(sample.ns));
    let of_base = figures.iter().find(|figures| figures.system == base).map(ns);
    figures
        .iter()
        .map(|figures| Row {
            suite: case.suite.to_owned(),
            case: case.name.to_owned(),
            system: figures.system.to_owned(),
            medium: medium.name(),
            threads: 1,
            value_bytes: case.size.mean_bytes(),
            groups: figures.samples.iter().map(|sample| sample.groups).sum(),
            ns_per_group: median(&ns(figures)).unwrap_or(f64::NAN),
            p99_ns: None,
            bytes_written_per_group: median(&column(figures, |sample| Some(sample.device_bytes? as f64))),
            fences_per_group: median(&column(figures, |sample| Some(sample.fences? as f64))),
            syncs_per_group: median(&column(figures, |sample| Some(sample.syncs? as f64))),
            cpu_ns_per_group: median(&column(figures, |sample| Some(sample.cpu_ns))).unwrap_or(f64::NAN),
            ratio: of_base.as_ref().and_then(|base| ratio(&ns(figures), base)),
            base: base.to_owned(),
            deferred: figures.deferred,
            open_ns: None,
            close_ns: None,
            memory_bytes: figures.samples.iter().filter_map(|sample| sample.memory_bytes).max(),
            disk_bytes: None,
            log: figures.log,
        })
        .collect()
}

/// A new store in `dir`, with a log that is there from the start, so that no turn pays for its growth.
fn new_store(dir: &Path, log_bytes: u64, background: bool) -> Result<Store> {
    let options = Options { log_min_bytes: log_bytes, log_max_bytes: log_bytes, background, ..Options::default() };
    new_store_with(dir, options)
}

fn new_store_with(dir: &Path, options: Options) -> Result<Store> {
    let host = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
    Store::init_with(dir, &options, host.clone()).map_err(failed)?;
    Store::open_with(dir, options, host).map_err(failed)
}

fn failed(error: wholly::Error) -> Error {
    error.to_string().into()
}

/// Makes everything on the file system of `dir` durable.
pub(crate) fn sync_file_system(dir: &Path) -> Result<()> {
    Ok(rustix::fs::syncfs(std::fs::File::open(dir)?)?)
}

/// A size in `/proc/self/status`.
fn status_bytes(field: &str) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such size in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}
