//! The suite `open`: what opening a store costs, in time and in memory.
//!
//! # What is measured
//!
//! - `log_*`: a log of 1 GiB is filled with groups and left as the death of its process leaves it: nothing of it is
//!   home, and the store was never closed. (It is dropped, which writes no more than a kill does.) Each turn puts back
//!   the superblocks of that moment, so that every turn is the first recovery after it. `open_ns` is from the call of
//!   `open` until the first read of a block from the log has been served: mapping the log, recovery, opening the file,
//!   verifying the segment that the read meets.
//! - `memory_bytes`: by how much the anonymous memory of the process (`RssAnon`) has grown when that read was served;
//!   the largest growth of all turns. The allocator first gives back what it kept of earlier turns, which would hide
//!   some of it. Buffers that recovery has freed and the allocator has kept are counted; the mapped log is the medium
//!   and is not.
//! - `idle`: a store whose log is empty is opened (`open_ns`) and closed (`close_ns`). `disk_bytes` is what its folder
//!   takes.
//! - `raw`, the bound: one thread maps the same log and computes the checksum of the first line of each record, whose
//!   places it is told. No recovery that believes checksums can do less on one thread.

use crate::harness::{Plan, cpu_ns};
use crate::place::{Medium, Place};
use crate::report::{Report, Row, Skipped};
use crate::stats::{median, ratio};
use crate::workload::{Case, Payload, Sequence};
use crate::{Error, Result};
use std::path::Path;
use std::time::Instant;
use wholly::log::checksum::checksum;
use wholly::log::layout::{LINE, SEGMENTS_START};
use wholly::{Options, Store};
use wholly_host::{HostMedium, HostOptions};
use wholly_media::{
    Region,
    pmem::{PmemOptions, PmemRegion},
};

/// Bytes of the log that is recovered.
const LOG_BYTES: u64 = 1 << 30;
/// The same in a tiny run, and of its segments.
const TINY: (u64, u64) = (1 << 20, 64 << 10);
/// Opens and closes of an idle store in a turn.
const IDLE_PER_TURN: usize = 10;
/// The case without a log to recover.
const IDLE: &str = "idle";
/// The systems of this suite.
const SYSTEMS: [&str; 2] = ["raw", "store"];

/// What one system showed in a case.
#[derive(Default)]
struct Figures {
    open_ns: Vec<f64>,
    close_ns: Vec<f64>,
    cpu_ns: Vec<f64>,
    memory_bytes: Option<u64>,
    disk_bytes: Option<u64>,
}

/// Runs the cases of `plan`, with those systems that `chosen` names or all of them.
///
/// # Errors
/// The first failure of a system. What a medium cannot do is no failure; the report says it under `skipped`.
pub fn run(plan: &Plan, chosen: &[String], report: &mut Report, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let wanted = |name: &str| chosen.is_empty() || name == plan.base || chosen.iter().any(|c| c == name);
    let systems: Vec<&str> = SYSTEMS.into_iter().filter(|name| wanted(name)).collect();
    for case in &plan.cases {
        for medium in plan.media.iter().filter(|medium| medium.is_pmem() || case.on_disk) {
            progress(&format!("{}/{} on {}", case.suite, case.name, medium.name()));
            let place = match medium.make(case, 1) {
                Ok(place) => place.emulating(plan.emulation),
                Err(e) => {
                    let (case, medium) = (case.name.to_owned(), medium.name());
                    report.skipped.push(Skipped { case, medium, system: None, reason: e.to_string() });
                    continue;
                }
            };
            let run = if case.name == IDLE { idle } else { recovery };
            let (figures, groups) = run(plan, case, &place, &systems)
                .map_err(|e| format!("{}/{} on {}: {e}", case.suite, case.name, medium.name()))?;
            report.rows.extend(rows(plan, case, medium, &figures, groups));
        }
    }
    Ok(())
}

/// Opens a full log once a turn, the systems in rotation.
fn recovery(
    plan: &Plan,
    case: &Case,
    place: &Place,
    systems: &[&'static str],
) -> Result<(Vec<(&'static str, Figures)>, u64)> {
    let options = options(plan);
    let (groups, block) = fill(plan, case, place, &options)?;
    let record_bytes = LINE + case.size.mean_bytes().next_multiple_of(LINE);
    let log = place.dir.join(".wholly/log");
    let superblocks = read_start(&log)?;
    let mut figures: Vec<_> = systems.iter().map(|&name| (name, Figures::default())).collect();
    for turn in 0..plan.turns {
        for i in 0..figures.len() {
            let (name, figures) = &mut figures[(turn + i) % systems.len()];
            if *name == "raw" {
                raw_pass(&log, record_bytes, &options, figures)?;
                continue;
            }
            write_start(&log, &superblocks)?;
            give_free_memory_back();
            let before = anonymous_memory()?;
            let (cpu, start) = (cpu_ns(), Instant::now());
            let store = Store::open_with(&place.dir, options.clone(), host(place)).map_err(failed)?;
            let file = store.open_file(block.0.to_string()).map_err(failed)?;
            let mut page = [0u8; 4096];
            file.read_at(block.1, &mut page).map_err(failed)?;
            figures.open_ns.push(start.elapsed().as_nanos() as f64);
            figures.cpu_ns.push((cpu_ns() - cpu) as f64);
            let grown = anonymous_memory()?.saturating_sub(before);
            figures.memory_bytes = figures.memory_bytes.max(Some(grown));
            let found = store.recovery().scan.groups;
            if found != groups {
                return Err(format!("{groups} groups were committed and {found} recovered").into());
            }
        }
    }
    Ok((figures, groups))
}

/// Makes a store and fills its log with groups of the case. Returns how many, and a file and offset that the last one
/// wrote.
fn fill(plan: &Plan, case: &Case, place: &Place, options: &Options) -> Result<(u64, (u32, u64))> {
    let zeros = vec![0u8; case.file_bytes as usize];
    for n in 0..case.files {
        std::fs::write(place.dir.join(n.to_string()), &zeros)?;
    }
    drop(zeros);
    let options = Options { background: false, ..options.clone() };
    Store::init_with(&place.dir, &options, host(place)).map_err(failed)?;
    let store = Store::open_with(&place.dir, options, host(place)).map_err(failed)?;
    let files: Vec<_> =
        (0..case.files).map(|n| store.open_file(n.to_string())).collect::<wholly::Result<_>>().map_err(failed)?;
    let payload = Payload::new(plan.seed);
    let sequence = Sequence::new(case, plan.seed, 0, Sequence::MAX_GROUPS);
    let mut groups = 0;
    let mut last = (0, 0);
    // Until the last free segment was begun: what would not fit any more would be taken home first. A segment holds
    // more groups than are made between two looks.
    let look = if plan.tiny { 1 } else { 64 };
    for group in sequence.groups(usize::MAX) {
        if groups % look == 0 && store.stat().free_segments == 0 {
            break;
        }
        let mut updates = store.begin();
        for update in group {
            let file = &files[update.file as usize];
            updates.add(file).map_err(failed)?;
            updates.write_at(file, update.offset, payload.of(update)).map_err(failed)?;
            last = (update.file, update.offset / 4096 * 4096);
        }
        updates.commit().map_err(failed)?;
        groups += 1;
    }
    Ok((groups, last))
}

/// The bound: see the head of this module.
fn raw_pass(log: &Path, record_bytes: u64, options: &Options, figures: &mut Figures) -> Result<()> {
    let (cpu, start) = (cpu_ns(), Instant::now());
    let file = std::fs::File::open(log)?;
    let len = file.metadata()?.len();
    let region =
        PmemRegion::open(file.into(), PmemOptions { reserve: len, writable: false, ..PmemOptions::default() })?;
    let mut sum = 0;
    let mut line = [0u8; LINE as usize];
    for segment in (SEGMENTS_START..len).step_by(options.segment_bytes as usize) {
        let end = segment + options.segment_bytes;
        for position in (segment + LINE..end - record_bytes + 1).step_by(record_bytes as usize) {
            region.prefetch((position + 8 * record_bytes).min(len - LINE));
            region.read(position, &mut line)?;
            sum ^= checksum(position, &line[8..]);
        }
    }
    std::hint::black_box(sum);
    figures.open_ns.push(start.elapsed().as_nanos() as f64);
    figures.cpu_ns.push((cpu_ns() - cpu) as f64);
    Ok(())
}

/// Opens and closes a store that has nothing in its log.
fn idle(
    plan: &Plan,
    case: &Case,
    place: &Place,
    systems: &[&'static str],
) -> Result<(Vec<(&'static str, Figures)>, u64)> {
    let mut figures = Figures::default();
    std::fs::write(place.dir.join("0"), vec![0u8; case.file_bytes as usize])?;
    Store::init_with(&place.dir, &Options::default(), host(place)).map_err(failed)?;
    for _ in 0..plan.turns * IDLE_PER_TURN {
        let (cpu, start) = (cpu_ns(), Instant::now());
        let store = Store::open_with(&place.dir, Options::default(), host(place)).map_err(failed)?;
        figures.open_ns.push(start.elapsed().as_nanos() as f64);
        let start = Instant::now();
        store.close().map_err(failed)?;
        figures.close_ns.push(start.elapsed().as_nanos() as f64);
        figures.cpu_ns.push((cpu_ns() - cpu) as f64);
    }
    figures.disk_bytes = Some(disk_bytes(&place.dir.join(".wholly"))?);
    // There is no bound: nothing needs to be done.
    Ok((systems.iter().filter(|name| **name == "store").map(|&name| (name, std::mem::take(&mut figures))).collect(), 0))
}

fn rows(plan: &Plan, case: &Case, medium: &Medium, figures: &[(&str, Figures)], groups: u64) -> Vec<Row> {
    let base = figures.iter().find(|(name, _)| *name == plan.base).map(|(_, figures)| &figures.open_ns);
    let per_group =
        |values: &[f64]| if groups == 0 { f64::NAN } else { median(values).unwrap_or(f64::NAN) / groups as f64 };
    figures
        .iter()
        .map(|(name, figures)| Row {
            suite: case.suite.to_owned(),
            case: case.name.to_owned(),
            system: (*name).to_owned(),
            medium: medium.name(),
            threads: 1,
            value_bytes: if groups == 0 { 0 } else { case.size.mean_bytes() },
            groups,
            ns_per_group: per_group(&figures.open_ns),
            p99_ns: None,
            bytes_written_per_group: None,
            fences_per_group: None,
            syncs_per_group: None,
            cpu_ns_per_group: per_group(&figures.cpu_ns),
            ratio: base.and_then(|base| ratio(&figures.open_ns, base)),
            base: plan.base.clone(),
            deferred: false,
            open_ns: median(&figures.open_ns),
            close_ns: median(&figures.close_ns),
            memory_bytes: figures.memory_bytes,
            disk_bytes: figures.disk_bytes,
            log: None,
        })
        .collect()
}

fn options(plan: &Plan) -> Options {
    let defaults = Options::default();
    let (log_bytes, segment_bytes) = if plan.tiny { TINY } else { (LOG_BYTES, defaults.segment_bytes) };
    Options { log_min_bytes: log_bytes, log_max_bytes: log_bytes, segment_bytes, ..defaults }
}

fn host(place: &Place) -> HostOptions {
    let medium = if place.medium.is_pmem() { HostMedium::Pmem } else { HostMedium::Disk };
    HostOptions { medium, emulator: place.emulator.clone(), ..HostOptions::default() }
}

fn failed(error: wholly::Error) -> Error {
    error.to_string().into()
}

/// The superblocks of a log.
fn read_start(log: &Path) -> Result<Vec<u8>> {
    let mut bytes = vec![0; SEGMENTS_START as usize];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(log)?, &mut bytes, 0)?;
    Ok(bytes)
}

fn write_start(log: &Path, bytes: &[u8]) -> Result<()> {
    let file = std::fs::File::options().write(true).open(log)?;
    Ok(std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0)?)
}

/// Makes the allocator give all that is free back to the system.
fn give_free_memory_back() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(unsafe_code, reason = "no crate in use names this call")]
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: glibc's function of this name and type (malloc_trim(3)); it touches no memory that is in use.
        #[allow(unsafe_code, reason = "see above")]
        let _ = unsafe { malloc_trim(0) };
    }
}

/// Bytes of anonymous memory of this process that are present.
fn anonymous_memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("no RssAnon in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// What the files of a folder take on their medium.
fn disk_bytes(folder: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?.metadata()?;
        bytes += entry.blocks() * 512;
    }
    Ok(bytes)
}
