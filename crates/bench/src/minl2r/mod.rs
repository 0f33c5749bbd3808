//! The suite `minl2r`: the benchmarks of MinL2R (section 4 of the paper) on volumes, beside a real ext4.
//!
//! One thread overwrites *records* of a file of 16 MiB. IOzone is not used: its pattern is a case of ours.
//!
//! | case | records | figure |
//! |---|---|---|
//! | `fio` | 1 to 32 KiB, at random | 6 |
//! | `iozone` | 1 to 512 KiB: in order, at random, and in order through a buffer of 4 KiB (`fwrite`) | 7 |
//! | `threshold` | 64 bytes to 4 KiB, inside of a block: by `undo` with thresholds of 10 to 90 % of a block | 5 |
//! | `backup` | 1 to 512 KiB, at random: what is logged or copied beside the new bytes | 8 |
//!
//! | system | in the paper |
//! |---|---|
//! | `none` | ramfs |
//! | `undo` | MinL2R, durable when a call returns |
//! | `undo:shared` | MinL2R as the paper has it, under the policy `shared`: nothing is durable before the sync at the end |
//! | `shadow` | BPFS |
//! | `shortcut_jfs` | Shortcut-JFS |
//! | `ext4:journal`, `ext4:ordered` | the same: ext4 on a loop device over a file in the memory; each record is followed by an `fsync` |
//!
//! # Counts
//!
//! Records are counted one by one, on a region that counts, and compared with the formula of the engine (`formula.rs`)
//! to the line. New bytes differ from old ones in each word, and none is zero. The clock of the volume goes on by a
//! second with each reading, so that each record has new times. Of `undo:shared` the counts are those of all records
//! and the sync. Of ext4, lines are what the device was told to write in the turns of the clock, checkpoints of the
//! journal with it: as many records as fill the journal several times.
//!
//! Model time is that of the suite [`fcfs`](crate::fcfs): lines x 150 ns, and 20 ns for each fence. Of ext4, it has no
//! work of the kernel, and no fence.
//!
//! # Wall time
//!
//! Of `fio` and `iozone` the systems take turns, at the speed of memory, as in the paper: those in process by calls of
//! the trait, ext4 by system calls.

mod figures;
mod formula;
mod subject;

use crate::fcfs::counts::ticking;
use crate::fcfs::{FENCE_NS, Model, is_chosen, skip};
use crate::harness::{Plan, cpu_ns};
use crate::place::{Medium, Place};
use crate::report::{Bound, CountRow, PhaseCount, Report};
use crate::tasks::{Figures, Sample, add, rows};
use crate::workload::Case;
use crate::{Error, Result};
use formula::{ByWrite, Cost};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use subject::{Bytes, OnExt4, OnVolume, SHARED, Subject, Writer};
use wholly_media::Region;
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_sim::{Count, CountingRegion, Random};
use wholly_volume::EngineKind;

const BLOCK: u64 = 4096;
/// Journal modes of ext4, and the systems.
const EXT4: [(&str, &str); 2] = [("journal", "ext4:journal"), ("ordered", "ext4:ordered")];
/// Thresholds, in percent of a block.
const PERCENT: [u32; 9] = [10, 20, 30, 40, 50, 60, 70, 80, 90];
/// Records that are counted; of `threshold`, those of each threshold.
const COUNTED: u64 = 256;
const COUNTED_BY_THRESHOLD: u64 = 4096;
/// Bytes that ext4 is to write in a turn at least: more than its journal has.
const EXT4_TURN: u64 = 24 << 20;
/// Sites at which `undo` stores backup.
const BACKUP: [&str; 3] = ["undo.entry", "undo.head", "undo.payload"];

/// In which order records come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Random,
    Sequential,
    /// In order, through a buffer of a block.
    Buffered,
    /// At random, of any number of lines, inside of a block.
    InBlock,
}

/// Records of a case.
#[derive(Clone, Debug)]
struct Pattern {
    /// The case of its rows.
    name: String,
    order: Order,
    record: u64,
}

impl Pattern {
    /// The write that a record makes, if it does.
    fn write(&self, case: &Case, number: u64) -> Option<(u64, u64)> {
        let mut random = Random(Random(number).draw());
        let in_order = number * self.record % case.file_bytes;
        match self.order {
            Order::Random => Some((random.below(case.file_bytes / self.record) * self.record, self.record)),
            Order::Buffered if self.record < BLOCK => {
                let end = in_order + self.record;
                end.is_multiple_of(BLOCK).then(|| (end - BLOCK, BLOCK))
            }
            Order::Sequential | Order::Buffered => Some((in_order, self.record)),
            Order::InBlock => {
                let lines = 1 + random.below(64);
                let (block, line) = (random.below(case.file_bytes / BLOCK), random.below(64 - lines + 1));
                Some((block * BLOCK + line * 64, lines * 64))
            }
        }
    }
}

fn sizes(upto: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(1), |kib| Some(kib * 2)).take_while(move |kib| *kib <= upto)
}

/// The patterns of a case.
fn patterns(case: &Case) -> Vec<Pattern> {
    let of = |prefix: &str, order, upto| {
        let pattern = |kib| Pattern { name: format!("{prefix}_{kib}k"), order, record: kib << 10 };
        sizes(upto).map(pattern).collect::<Vec<_>>()
    };
    match case.name {
        "fio" => of("fio", Order::Random, 32),
        "iozone" => [
            of("iozone_in_order", Order::Sequential, 512),
            of("iozone_random", Order::Random, 512),
            of("iozone_fwrite", Order::Buffered, 512),
        ]
        .concat(),
        "threshold" => {
            let pattern =
                |percent| Pattern { name: format!("threshold_{percent}"), order: Order::InBlock, record: 2080 };
            PERCENT.map(pattern).to_vec()
        }
        _ => of("backup", Order::Random, 512),
    }
}

/// The systems of a pattern, but for ext4.
fn subjects(case: &Case, pattern: &Pattern) -> Vec<Subject> {
    let all = subject::all();
    match case.name {
        "threshold" => {
            let percent = pattern.name.rsplit('_').next().and_then(|percent| percent.parse::<usize>().ok());
            let move_from = percent.map(|percent| (BLOCK as usize * percent).div_ceil(100));
            all[1..2].iter().map(|undo| Subject { move_from, ..*undo }).collect()
        }
        "backup" => all[1..3].to_vec(),
        _ => all.to_vec(),
    }
}

/// Runs the cases of `plan`, with those systems that `chosen` names or all of them. Writes the paper's figures into the
/// directory `figures`, if there is one.
///
/// # Errors
/// The first failure of a system. What cannot be measured here is no failure; the report says it under `skipped`.
pub fn run(
    plan: &Plan,
    chosen: &[String],
    figures: Option<&Path>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let settings = &mut report.machine.settings;
    settings.insert("minl2r.fence_ns".into(), FENCE_NS.to_string());
    let model = Model::of(plan.emulation);
    for case in &plan.cases {
        for medium in &plan.media {
            // Each volume is three times as large as its file, and each system has one.
            let place = match medium.make(case, 3 * subject::all().len()) {
                Ok(place) => place.emulating(plan.emulation),
                Err(e) => {
                    report.skipped.push(skip(case.name, &medium.name(), None, e.to_string()));
                    continue;
                }
            };
            let setting = Setting { plan, case, medium, place: &place, chosen, model: &model };
            for (number, pattern) in patterns(case).iter().enumerate() {
                progress(&format!("{}/{} on {}: counting", case.suite, pattern.name, medium.name()));
                for subject in subjects(case, pattern).iter().filter(|it| is_chosen(chosen, it.name, &plan.base)) {
                    let failed = |e: Error| Error::from(format!("{}, {}: {e}", subject.name, pattern.name));
                    let row = count(&setting, pattern, subject, number as u64).map_err(failed)?;
                    report.counts.push(row);
                }
            }
            if matches!(case.name, "fio" | "iozone") {
                wall(&setting, report, progress)?;
            }
        }
    }
    report.bounds = bounds(&report.counts);
    if let Some(dir) = figures {
        figures::write(report, dir)?;
    }
    Ok(())
}

struct Setting<'a> {
    plan: &'a Plan,
    case: &'a Case,
    medium: &'a Medium,
    place: &'a Place,
    chosen: &'a [String],
    model: &'a Model,
}

impl Setting<'_> {
    /// The region of a new volume.
    fn region(&self, name: &str) -> Result<PmemRegion> {
        let file = File::options().read(true).write(true).create_new(true).open(self.place.dir.join(name))?;
        file.set_len(self.case.file_bytes * 3 + (8 << 20))?;
        Ok(PmemRegion::open(file.into(), PmemOptions { prefault: true, ..PmemOptions::default() })?)
    }
}

/// Counts the records of a pattern, one by one.
fn count(setting: &Setting<'_>, pattern: &Pattern, subject: &Subject, number: u64) -> Result<CountRow> {
    let Setting { plan, case, model, .. } = setting;
    let records = match (plan.tiny, case.name) {
        (true, _) => 16,
        (_, "threshold") => COUNTED_BY_THRESHOLD,
        _ => COUNTED,
    };
    let name = format!("counted-{}-{number}", subject.name);
    let region: Arc<dyn Region> = Arc::new(setting.region(&name)?);
    subject.make(&region, case)?;
    let formula = ByWrite::of(subject.engine, subject.move_from, &*region, case)?;
    let counting = CountingRegion::new(region);
    let open = subject.open(counting.clone(), Some(ticking))?;
    let bytes = Bytes::new(plan.seed);
    counting.take();
    let (mut total, mut backup) = (Count::default(), 0);
    let mut verdict = if subject.is_shared { NOT_DURABLE } else { EQUAL }.to_owned();
    for number in 0..records {
        pattern.run(case, &open, &bytes, number, 1)?;
        if subject.is_shared {
            continue;
        }
        let (count, logged) = taken(&counting, subject, pattern.write(case, number).map_or(0, |(_, len)| len));
        total += count;
        backup += logged.unwrap_or(0);
        let stored = Cost { lines: count.lines, fences: count.fences, backup: logged };
        let expected = pattern
            .write(case, number)
            .map_or(Cost { backup: logged, ..Cost::default() }, |(at, len)| formula.cost(at, len));
        if stored != expected && verdict == EQUAL {
            verdict = format!("record {number} stored {stored:?}, and by the formula {expected:?}");
        }
    }
    if subject.is_shared {
        open.sync()?;
        total = taken(&counting, subject, 0).0;
    }
    open.close()?;
    std::fs::remove_file(setting.place.dir.join(name))?;
    let mean = |count: u64| count as f64 / records as f64;
    let all = PhaseCount {
        calls: mean(total.calls),
        bytes: mean(total.bytes),
        lines: mean(total.lines),
        fences: mean(total.fences),
    };
    let phases = match case.name {
        // Of a volume's bytes: backup, and all others.
        "backup" => {
            let backup = PhaseCount { bytes: mean(backup), lines: mean(backup) / 64.0, ..PhaseCount::default() };
            let others = PhaseCount { bytes: all.bytes - backup.bytes, lines: all.lines - backup.lines, ..all };
            vec![("backup", backup), ("others", others)]
        }
        _ => vec![("call", all)],
    };
    Ok(row(case, pattern, (subject.name, records, verdict), phases, model.ns(all.lines, all.fences)))
}

/// What is said of counts.
const EQUAL: &str = "equal to the line";
const NOT_DURABLE: &str = "none is stated: nothing is durable before a sync";
const OF_DEVICE: &str = "none is stated: lines of the device";

fn row(
    case: &Case,
    pattern: &Pattern,
    (system, records, formula): (&str, u64, String),
    phases: Vec<(&str, PhaseCount)>,
    model_ns: f64,
) -> CountRow {
    CountRow {
        suite: case.suite.into(),
        case: pattern.name.clone(),
        system: system.into(),
        value_bytes: pattern.record,
        groups: records,
        phases: phases.into_iter().map(|(name, count)| (name.to_owned(), count)).collect::<BTreeMap<_, _>>(),
        copied_lines: 0.0,
        model_ns_deferred: model_ns,
        model_ns,
        formula,
    }
}

/// What was done since the last time, and how many bytes of it are backup of a write over `len` bytes.
fn taken(counting: &CountingRegion, subject: &Subject, len: u64) -> (Count, Option<u64>) {
    let (mut all, mut logged, mut of_root) = (Count::default(), 0, 0);
    for (site, count) in counting.take() {
        all += count;
        if BACKUP.contains(&site.0) {
            logged += count.bytes;
        }
        if site.0 == "paging.root" {
            of_root += count.bytes;
        }
    }
    let backup = match subject.engine {
        EngineKind::Undo => Some(logged),
        // Nothing was written, or all that is neither new nor the root.
        EngineKind::Shadow => Some((all.bytes - of_root).saturating_sub(len)),
        _ => None,
    };
    (all, backup)
}

/// A system in its turns.
struct Entrant {
    name: &'static str,
    writer: Written,
    records: u64,
    done: u64,
}

enum Written {
    Volume(OnVolume),
    Ext4(OnExt4),
}

impl Written {
    fn writer(&self) -> &dyn Writer {
        match self {
            Written::Volume(volume) => volume,
            Written::Ext4(file) => file,
        }
    }

    fn device_bytes(&self) -> Option<u64> {
        match self {
            Written::Volume(_) => None,
            Written::Ext4(file) => file.place.device_bytes_written(),
        }
    }
}

/// Lets the systems take turns with each pattern of a case.
fn wall(setting: &Setting<'_>, report: &mut Report, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let Setting { plan, case, medium, place, chosen, model } = setting;
    let mut entrants = Vec::new();
    let wanted = |name: &str| is_chosen(chosen, name, &plan.base);
    for subject in subject::all().into_iter().filter(|it| !it.is_shared && wanted(it.name)) {
        let region = place.slow_down(setting.region(subject.name)?);
        subject.make(&region, case)?;
        let writer = Written::Volume(subject.open(region, None)?);
        entrants.push(Entrant { name: subject.name, writer, records: 0, done: 0 });
    }
    for (data, name) in EXT4.into_iter().filter(|(_, name)| wanted(name)) {
        match OnExt4::new(place, case, data) {
            Ok(file) => entrants.push(Entrant { name, writer: Written::Ext4(file), records: 0, done: 0 }),
            Err(e) => report.skipped.push(skip(case.name, &medium.name(), Some(name), e.to_string())),
        }
    }
    let bytes = Bytes::new(plan.seed);
    for pattern in patterns(case) {
        progress(&format!("{}/{} on {}", case.suite, pattern.name, medium.name()));
        let names: Vec<&'static str> = entrants.iter().map(|entrant| entrant.name).collect();
        let mut figures = Figures::of(&names);
        for entrant in &mut entrants {
            entrant.records = records_of_turn(setting, &pattern, entrant, &bytes)?;
        }
        for turn in 0..plan.turns {
            for i in 0..entrants.len() {
                let at = (turn + i) % names.len();
                let entrant = &mut entrants[at];
                let (cpu, device) = (cpu_ns(), entrant.writer.device_bytes());
                let start = Instant::now();
                let records = entrant.records;
                pattern.run(case, entrant.writer.writer(), &bytes, entrant.done, records)?;
                let ns = start.elapsed().as_nanos() as f64;
                entrant.done += records;
                let device_bytes = entrant.writer.device_bytes().zip(device).map(|(now, then)| now - then);
                let cpu_ns = (cpu_ns() - cpu) as f64;
                add(&mut figures, names[at], Sample { ns, cpu_ns, device_bytes, groups: records, ..Sample::default() });
            }
        }
        for mut measured in rows(case, medium, &plan.base, &figures) {
            measured.case = pattern.name.clone();
            measured.value_bytes = pattern.record;
            if let Some(bytes) = measured.bytes_written_per_group {
                let all = PhaseCount { bytes, lines: bytes / 64.0, ..PhaseCount::default() };
                let said = (&*measured.system, measured.groups, OF_DEVICE.to_owned());
                report.counts.push(row(case, &pattern, said, vec![("call", all)], model.ns(all.lines, 0.0)));
            }
            report.rows.push(measured);
        }
    }
    for entrant in entrants {
        if let Written::Volume(volume) = entrant.writer {
            volume.close()?;
        }
    }
    Ok(())
}

/// As many records as take about as long as a turn; of ext4, as fill its journal.
fn records_of_turn(setting: &Setting<'_>, pattern: &Pattern, entrant: &mut Entrant, bytes: &Bytes) -> Result<u64> {
    let Setting { plan, case, .. } = setting;
    // A record through a buffer may make no write.
    let few = BLOCK.div_ceil(pattern.record).max(4);
    if plan.tiny {
        return Ok(few);
    }
    let (mut count, mut done) = (few, entrant.done);
    loop {
        let (start, device) = (Instant::now(), entrant.writer.device_bytes());
        pattern.run(case, entrant.writer.writer(), bytes, done, count)?;
        let (elapsed, written) = (start.elapsed(), entrant.writer.device_bytes().zip(device));
        done += count;
        entrant.done = done;
        if elapsed * 8 >= plan.turn {
            let by_time = count as f64 * plan.turn.as_secs_f64() / elapsed.as_secs_f64();
            let by_bytes = written.map_or(0.0, |(now, then)| (EXT4_TURN * count) as f64 / (now - then).max(1) as f64);
            return Ok((by_time.max(by_bytes) as u64).div_ceil(few) * few);
        }
        count *= 2;
    }
}

/// Lines of `shadow`, `shortcut_jfs` and ext4 with `data=journal` over those of `undo`, by the paper's mechanisms: for
/// sizes of `fio`.
const BY_COUNT: [(&str, &[(&str, f64)]); 3] = [
    ("shadow", &[("1k", 1.83), ("2k", 0.96), ("4k", 0.96), ("8k", 1.46), ("16k", 1.23), ("32k", 1.12)]),
    ("shortcut_jfs", &[("1k", 1.0), ("2k", 1.0), ("4k", 1.0), ("8k", 1.0), ("16k", 1.0), ("32k", 1.01)]),
    ("ext4:journal", &[("1k", 10.7), ("2k", 5.6), ("4k", 5.6), ("32k", 2.5)]),
];

/// The bounds on counts.
fn bounds(rows: &[CountRow]) -> Vec<Bound> {
    let found = |case: &str, system: &str| {
        let row = rows.iter().find(|row| row.case == case && row.system == system);
        row.ok_or_else(|| format!("{system} was not counted in {case}"))
    };
    let mut bounds = Vec::new();
    for (system, by_size) in BY_COUNT {
        for &(size, by_count) in by_size {
            let case = format!("fio_{size}");
            let ratio = found(&case, system).and_then(|it| Ok(it.model_ns / found(&case, "undo")?.model_ns));
            let what = format!("{case}: {system} / undo, model time (by count {by_count})");
            bounds.push(Bound::at_least(what, 0.9 * by_count, ratio));
        }
    }
    let off = figures::best_threshold(rows).map(|percent| (percent - 50.0).abs());
    bounds.push(Bound::at_most("threshold: distance of the one with the fewest bytes from half, percent", 10.0, off));
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::MINL2R;

    /// Records lie in the file, and inside of a block where they are to; through the buffer, all bytes are written.
    #[test]
    fn records_lie_where_they_should() {
        for case in MINL2R {
            for pattern in patterns(&case) {
                let writes: Vec<_> = (0..500).filter_map(|number| pattern.write(&case, number)).collect();
                assert!(writes.iter().all(|(at, len)| *len > 0 && at + len <= case.file_bytes), "{pattern:?}");
                if pattern.order == Order::InBlock {
                    assert!(writes.iter().all(|(at, len)| at / BLOCK == (at + len - 1) / BLOCK), "{pattern:?}");
                }
                if pattern.order == Order::Buffered {
                    let bytes: u64 = writes.iter().map(|(_, len)| len).sum();
                    assert_eq!(bytes, 500 * pattern.record / BLOCK * BLOCK, "{pattern:?}");
                }
            }
        }
    }

    /// Two writes at the same place never have a word in common, and no byte is zero.
    #[test]
    fn bytes_of_writes_differ() {
        let bytes = Bytes::new(1);
        let [one, two] = [7, 8].map(|number| bytes.of(number, 4096));
        assert!(one.chunks(8).zip(two.chunks(8)).all(|(one, two)| one != two));
        assert!(one.iter().all(|byte| *byte != 0));
    }

    #[test]
    fn a_bound_without_figures_is_neither_met_nor_missed() {
        for bound in bounds(&[]) {
            assert_eq!((bound.value, bound.met), (None, None));
        }
    }
}
