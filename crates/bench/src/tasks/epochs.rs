//! `epoch_` and `read_clean_`: calls on one file under the policy `per-sync`, on persistent memory, beside copies of as
//! many bytes. Volumes run beside them without a bound.

use super::{Figures, Sample, Setting, add, failed};
use crate::harness::{Plan, cpu_ns};
use crate::instructions::Counter;
use crate::place::{Medium, Place};
use crate::report::{Bound, InstructionRow, LogUse, Report};
use crate::workload::{Case, Payload, Sequence, Update};
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use wholly::{File, Options, Policy, Store};
use wholly_host::{HostMedium, HostOptions};
use wholly_media::{
    Region, Site,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_vfs::{Context, Handle, Ino, Vfs};
use wholly_volume::{EngineKind, PolicyVfs, Volume, VolumeOptions, VolumeVfs};

/// The bases: non-temporal stores to a mapped file, and copies from a mapping of the store's own file.
const RAW: &str = "raw";
const MAPPING: &str = "mapping";
/// Ours. Its log holds an epoch, and is written back between turns.
const STORE: &str = "store_deferred";
/// Volumes: by policy, and the one whose engine has no groups.
const HYBRID_LOG: &str = "hybrid_log";
const NONE: &str = "none";

const FILE: &str = "file";
const SITE: Site = Site("bench.epoch");
/// Bytes of the store's log.
const LOG_BYTES: u64 = 1 << 30;
/// Calls of a turn.
const CALLS: usize = 1 << 17;
/// The same where each ends with a sync, and in a tiny run.
const SYNCED_CALLS: usize = 1 << 14;
const TINY_CALLS: usize = 64;
/// Calls between two looks at the log.
const LOOK_EVERY: usize = 64;
/// The log of an epoch may hold twice the distinct bytes, and so much more.
const LOG_SLACK: u64 = 8 << 20;
const PIECE: usize = 1 << 20;

/// The most times as long as its base that a call of [`STORE`] may take.
const RATIOS: [(&str, f64); 4] =
    [("epoch_same_4k", 2.0), ("epoch_random_4k", 2.5), ("read_clean_128", 3.0), ("read_clean_4k", 1.2)];
/// The most instructions of a call of [`STORE`].
const INSTRUCTIONS: [(&str, f64); 2] = [("read_clean_128", 200.0), ("epoch_same_128", 450.0)];
/// Calls before the first one whose instructions are counted.
const WARM_UP: usize = 1 << 15;

/// Whether the case is one of these.
pub(super) fn is_one(case: &Case) -> bool {
    is_read(case) || case.name.starts_with("epoch_")
}

fn is_read(case: &Case) -> bool {
    case.name.starts_with("read_clean_")
}

/// What calls of the case are compared with.
pub(super) fn base(case: &Case) -> &'static str {
    if is_read(case) { MAPPING } else { RAW }
}

/// The systems beside the base.
pub(super) fn others(case: &Case) -> &'static [&'static str] {
    match case.name {
        name if name.starts_with("read_clean_") => &[STORE],
        // Volumes would need as much memory again.
        "epoch_1g" => &[STORE],
        _ => &[STORE, HYBRID_LOG, NONE],
    }
}

/// What the calls of turn `turn` write or read.
fn updates(case: &Case, seed: u64, turn: u64, calls: usize) -> Vec<Update> {
    let sequence = Sequence::new(case, seed, turn, calls);
    let mut updates: Vec<Update> = sequence.groups(calls).map(|group| group[0]).collect();
    for (update, number) in updates.iter_mut().zip(0..) {
        let half = u64::from(update.len / 2);
        match case.name {
            "epoch_same_4k" => update.offset = 0,
            // The last byte of a word and the first of another.
            "epoch_same_128" => update.offset = 4096 + 77,
            "epoch_half" => update.offset = number * half % (case.file_bytes - half),
            _ => {}
        }
    }
    updates
}

/// Bytes of the file's blocks of 4 KiB that any of the updates touches.
fn distinct_bytes(updates: &[Update]) -> u64 {
    let blocks = |u: &Update| (u.offset / 4096 * 4096, (u.offset + u64::from(u.len)).next_multiple_of(4096));
    let mut ranges: Vec<(u64, u64)> = updates.iter().map(blocks).collect();
    ranges.sort_unstable();
    let (mut bytes, mut end) = (0, 0);
    for (from, to) in ranges {
        bytes += to.saturating_sub(end.max(from));
        end = end.max(to);
    }
    bytes
}

/// A turn of these calls.
fn turn(updates: &[Update], mut call: impl FnMut(&Update) -> Result<()>) -> Result<Sample> {
    let (cpu, start) = (cpu_ns(), Instant::now());
    updates.iter().try_for_each(&mut call)?;
    let ns = start.elapsed().as_nanos() as f64;
    let groups = updates.len() as u64;
    Ok(Sample { ns, cpu_ns: (cpu_ns() - cpu) as f64, fences: None, groups, ..Sample::default() })
}

/// A store with one file, all of it at home.
struct Opened {
    store: Store,
    file: File,
    /// Another mapping of the file.
    mapping: PmemRegion,
}

impl Opened {
    fn new(case: &Case, place: &Place, log_bytes: u64) -> Result<Opened> {
        let host = HostOptions {
            medium: HostMedium::Pmem,
            emulator: place.emulator.clone(),
            clock: place.clock,
            ..HostOptions::default()
        };
        let options = Options {
            policy: Policy::PerSync,
            // All of it from the start, so that no turn pays for growth.
            log_min_bytes: log_bytes,
            log_max_bytes: log_bytes,
            background: false,
            ..Options::default()
        };
        std::fs::write(place.dir.join(FILE), vec![7; case.file_bytes as usize])?;
        Store::init_with(&place.dir, &options, host.clone()).map_err(failed)?;
        let store = Store::open_with(&place.dir, options, host).map_err(failed)?;
        let file = store.open_file(FILE).map_err(failed)?;
        let mapped = std::fs::File::open(place.dir.join(FILE))?;
        let how = PmemOptions { writable: false, prefault: true, reserve: case.file_bytes, ..PmemOptions::default() };
        let mapping = PmemRegion::open(mapped.into(), how)?;
        // Every page of every mapping is there before the clock runs.
        let mut page = [0; 4096];
        for at in (0..case.file_bytes).step_by(page.len()) {
            file.read_at(at, &mut page).map_err(failed)?;
        }
        Ok(Opened { store, file, mapping })
    }

    /// Ends the epoch and writes it back.
    fn rest(&self) -> Result<()> {
        self.file.sync().map_err(failed)?;
        self.store.checkpoint().map_err(failed).map(drop)
    }

    /// Bytes of the segments that are not free.
    fn log_bytes(&self) -> u64 {
        let log = self.store.log();
        let (segments, free) = log.segments();
        u64::from(segments - free) * log.segment_bytes()
    }

    /// Makes the calls as one epoch, and looks at the log meanwhile.
    fn log_use(&self, updates: &[Update], payload: &Payload) -> Result<LogUse> {
        let mut peak_bytes = self.log_bytes();
        for some in updates.chunks(LOOK_EVERY) {
            let write = |update: &Update| self.file.write_at(update.offset, payload.of(update)).map_err(failed);
            some.iter().try_for_each(write)?;
            peak_bytes = peak_bytes.max(self.log_bytes());
        }
        self.rest()?;
        Ok(LogUse { peak_bytes, distinct_bytes: distinct_bytes(updates) })
    }

    fn close(self) -> Result<()> {
        drop(self.file);
        self.store.close().map_err(failed)
    }
}

/// A mapped file of so many bytes, all of them there.
fn raw(case: &Case, place: &Place) -> Result<Arc<dyn Region>> {
    let path = place.dir.join(RAW);
    std::fs::write(&path, vec![7; case.file_bytes as usize])?;
    let file = std::fs::File::options().read(true).write(true).open(&path)?;
    let how = PmemOptions { prefault: true, reserve: case.file_bytes, ..PmemOptions::default() };
    Ok(place.slow_down(PmemRegion::open(file.into(), how)?))
}

/// A volume with one file.
struct OnVolume {
    // Before the volume: it keeps that open.
    vfs: Box<dyn Vfs>,
    ino: Ino,
    file: Handle,
    volume: Volume,
}

impl OnVolume {
    fn new(case: &Case, place: &Place, engine: EngineKind) -> Result<OnVolume> {
        let options = VolumeOptions { engine: Some(engine), cache_bytes: 256 << 20, ..VolumeOptions::default() };
        // Room for a file of new bytes beside the old ones.
        let bytes = case.file_bytes * 3 + (64 << 20);
        let how = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let image = rustix::fs::open(place.dir.join(engine.name()), how, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&image, bytes)?;
        let region = PmemRegion::open(image, PmemOptions { prefault: true, ..PmemOptions::default() })?;
        let region = place.slow_down(region);
        Volume::format_region(&*region, &options).map_err(failed)?;
        let volume = Volume::open_region(region, &options).map_err(failed)?;
        let vfs: Box<dyn Vfs> = match engine {
            EngineKind::None => Box::new(VolumeVfs::new(&volume)),
            _ => Box::new(PolicyVfs::new(&volume, Policy::PerSync)?),
        };
        let ctx = Context::superuser();
        let (made, file) = vfs.create(&ctx, Ino::ROOT, FILE.as_bytes(), OFlags::RDWR, Mode::RUSR | Mode::WUSR)?;
        let piece = vec![7; PIECE.min(case.file_bytes as usize)];
        for at in (0..case.file_bytes).step_by(piece.len()) {
            vfs.write(&ctx, &file, at, &piece)?;
        }
        let on_volume = OnVolume { vfs, ino: made.ino, file, volume };
        on_volume.rest()?;
        Ok(on_volume)
    }

    fn rest(&self) -> Result<()> {
        self.vfs.fsync(&Context::superuser(), &self.file)?;
        self.volume.checkpoint().map_err(failed)
    }

    fn turn(&self, updates: &[Update], payload: &Payload, is_synced: bool) -> Result<Sample> {
        let (vfs, ctx) = (&*self.vfs, Context::superuser());
        let sample = turn(updates, |update| {
            let bytes = payload.of(update);
            if vfs.write(&ctx, &self.file, update.offset, bytes)? != bytes.len() {
                return Err(Error::from("a volume wrote fewer bytes than it was told to"));
            }
            if is_synced { Ok(vfs.fsync(&ctx, &self.file)?) } else { Ok(()) }
        })?;
        self.rest()?;
        Ok(sample)
    }

    fn close(self) -> Result<()> {
        self.vfs.release(&Context::superuser(), self.file)?;
        self.vfs.forget(self.ino, 1);
        drop(self.vfs);
        self.volume.close().map_err(failed)
    }
}

/// Runs a case. What the log took is said in the row of the store.
pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let Setting { plan, case, place } = setting;
    let is_synced = case.name == "epoch_fsync_4k";
    let calls = match plan.tiny {
        true => TINY_CALLS,
        false if is_synced => SYNCED_CALLS,
        false => CALLS,
    };
    let log_bytes = if plan.tiny { LOG_BYTES >> 4 } else { LOG_BYTES };
    let payload = Payload::new(plan.seed);
    let opened = Opened::new(case, &place.child("store")?, log_bytes)?;
    let Opened { store: _, file, mapping } = &opened;
    let raw = if is_read(case) { None } else { Some(raw(case, place)?) };
    let mut volumes = Vec::new();
    for engine in [EngineKind::HybridLog, EngineKind::None] {
        if figures.iter().any(|figures| figures.system == engine.name()) {
            volumes.push((engine.name(), OnVolume::new(case, place, engine)?));
        }
    }
    let (mut ours, mut theirs) = ([0; 4096], [0; 4096]);
    // The first turn is a warm-up.
    for number in 0..=plan.turns {
        let updates = updates(case, plan.seed, number as u64, calls);
        for i in 0..figures.len() {
            let system = figures[(number + i) % figures.len()].system;
            let sample = match (system, &raw) {
                (MAPPING, _) => turn(&updates, |update| {
                    mapping.read(update.offset, black_box(&mut theirs[..update.len as usize]))?;
                    Ok(())
                })?,
                (RAW, Some(raw)) => {
                    let sample = turn(&updates, |update| {
                        raw.write(SITE, update.offset, payload.of(update))?;
                        if is_synced { Ok(raw.fence(SITE)?) } else { Ok(()) }
                    })?;
                    raw.fence(SITE)?;
                    sample
                }
                (STORE, None) => turn(&updates, |update| {
                    file.read_at(update.offset, black_box(&mut ours[..update.len as usize])).map_err(failed)?;
                    Ok(())
                })?,
                (STORE, Some(_)) => {
                    let sample = turn(&updates, |update| {
                        file.write_at(update.offset, payload.of(update)).map_err(failed)?;
                        if is_synced { file.sync().map_err(failed) } else { Ok(()) }
                    })?;
                    opened.rest()?;
                    sample
                }
                _ => {
                    let volume = volumes.iter().find(|(name, _)| *name == system);
                    let (_, volume) = volume.ok_or("a system that was not prepared")?;
                    volume.turn(&updates, &payload, is_synced)?
                }
            };
            if number > 0 {
                add(figures, system, sample);
            }
        }
    }
    if raw.is_some() && !is_synced {
        let updates = updates(case, plan.seed, plan.turns as u64 + 1, calls);
        let taken = opened.log_use(&updates, &payload)?;
        figures.iter_mut().filter(|figures| figures.system == STORE).for_each(|figures| figures.log = Some(taken));
    }
    volumes.into_iter().try_for_each(|(_, volume)| volume.close())?;
    opened.close()
}

/// The bounds of a case on a medium, from its rows.
pub(super) fn bounds(case: &Case, medium: &Medium, report: &Report) -> Vec<Bound> {
    let of_case = |row: &&crate::report::Row| row.case == case.name && row.medium == medium.name();
    let Some(row) = report.rows.iter().filter(of_case).find(|row| row.system == STORE) else { return Vec::new() };
    let named = |what: &str| format!("{} on {}: {what}", case.name, row.medium);
    let mut bounds = Vec::new();
    if let Some((_, bound)) = RATIOS.iter().find(|(name, _)| *name == case.name) {
        let ratio = row.ratio.ok_or_else(|| "its base did not run".to_owned());
        bounds.push(Bound::at_most(named(&format!("{STORE} over {}", row.base)), *bound, ratio));
    }
    if let Some(LogUse { peak_bytes, distinct_bytes }) = row.log {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let what = named(&format!("MiB of log in use, of {:.2} MiB of distinct bytes", mib(distinct_bytes)));
        bounds.push(Bound::at_most(what, mib(2 * distinct_bytes + LOG_SLACK), Ok(mib(peak_bytes))));
    }
    bounds
}

/// Counts the instructions of calls, of the cases that have a bound on them.
///
/// # Errors
/// The first failure of a system.
pub(crate) fn count(
    plan: &Plan,
    counter: &mut Counter,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    for (name, bound) in INSTRUCTIONS {
        let Some(case) = plan.cases.iter().find(|case| case.name == name) else { continue };
        for medium in plan.media.iter().filter(|medium| medium.is_pmem()) {
            progress(&format!("{}/{name}", case.suite));
            let place = medium.make(case, 2)?.with_still_clock();
            let opened = Opened::new(case, &place.child("store")?, LOG_BYTES)?;
            let payload = Payload::new(plan.seed);
            let updates = updates(case, plan.seed, 0, WARM_UP + plan.turns);
            let raw = if is_read(case) { None } else { Some(raw(case, &place)?) };
            let mut buffer = [0; 4096];
            let mut of_base = |update: &Update| match &raw {
                None => Ok(opened.mapping.read(update.offset, black_box(&mut buffer[..update.len as usize]))?),
                Some(raw) => Ok(raw.write(SITE, update.offset, payload.of(update))?),
            };
            report.instructions.push(counted(plan, case, medium, base(case), &updates, counter, &mut of_base)?);
            let mut of_store = |update: &Update| match &raw {
                None => {
                    let buffer = black_box(&mut buffer[..update.len as usize]);
                    opened.file.read_at(update.offset, buffer).map_err(failed).map(drop)
                }
                Some(_) => opened.file.write_at(update.offset, payload.of(update)).map_err(failed),
            };
            let row = counted(plan, case, medium, STORE, &updates, counter, &mut of_store)?;
            let what = format!("{name}: instructions of {STORE}");
            report.bounds.push(Bound::at_most(what, bound, Ok(row.instructions_per_group)));
            report.instructions.push(row);
            opened.close()?;
        }
    }
    Ok(())
}

/// The row of one system: its calls run at full speed but for the last ones.
fn counted(
    plan: &Plan,
    case: &Case,
    medium: &Medium,
    system: &str,
    updates: &[Update],
    counter: &mut Counter,
    call: &mut impl FnMut(&Update) -> Result<()>,
) -> Result<InstructionRow> {
    let (before, last) = updates.split_at(updates.len() - plan.turns);
    before.iter().try_for_each(&mut *call)?;
    let counts = last.iter().map(|update| Ok(counter.count(|| call(update))? as f64)).collect::<Result<Vec<f64>>>()?;
    Ok(InstructionRow::of(case, system, medium.name(), &counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_once() {
        let at = |offset, len| Update::at(0, offset, len);
        assert_eq!(distinct_bytes(&[]), 0);
        assert_eq!(distinct_bytes(&[at(10, 5), at(4090, 4), at(8191, 8), at(11, 2)]), 3 * 4096);
    }

    #[test]
    fn ranges_overlap_the_last_one_by_half_and_lie_in_the_file() {
        let case = crate::suites::STORE.iter().find(|case| case.name == "epoch_half").unwrap();
        let case = Case { file_bytes: 1 << 20, ..*case };
        let updates = updates(&case, 1, 0, 2000);
        assert!(updates.iter().all(|update| update.offset + u64::from(update.len) <= case.file_bytes));
        let steps = updates.windows(2).filter(|pair| pair[1].offset == pair[0].offset + 2048).count();
        // It begins again each time that it has come to the end of the file.
        assert_eq!(steps, 1999 - 2000 / 511);
    }
}
