//! Counting what groups store.

use super::Model;
use super::formula::{Cost, Formula};
use super::subject::{Open, Subject};
use crate::Result;
use crate::harness::Plan;
use crate::place::Place;
use crate::report::{CountRow, PhaseCount};
use crate::workload::{Case, Payload, Sequence, Size};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use wholly_media::Region;
use wholly_sim::{Count, CountingRegion, Counts};
use wholly_vfs::Timestamp;
use wholly_volume::VolumeOptions;

/// Sites of stores and fences that bring content home, or make room for others once it is there.
const CHECKPOINT: [&str; 10] = [
    "wal.home",
    "wal.home.fence",
    "wal.settle",
    "wal.settle.fence",
    "hybrid.home",
    "hybrid.home.fence",
    "hybrid.swap",
    "hybrid.swap.fence",
    "hybrid.wipe",
    "hybrid.wipe.fence",
];
/// Those by which a checkpoint copies content.
const COPIES: [&str; 2] = ["wal.home", "hybrid.home"];

/// What is said of counts that are those of the formula.
const EQUAL: &str = "equal to the line";

/// Of what a volume has free at first, so many times as much is written before the counts begin, and so many times
/// meanwhile.
const FILLS: [u64; 2] = [1, 3];

/// A clock that goes on by a second at each reading.
pub(crate) fn ticking() -> Timestamp {
    /// Not a time that the files had before.
    static NOW: AtomicI64 = AtomicI64::new(4_000_000_000);
    Timestamp { sec: NOW.fetch_add(1, Ordering::Relaxed), nsec: 0 }
}

/// Blocks that a group writes to, on average.
fn blocks_of_group(case: &Case) -> u64 {
    let of_update = match case.size {
        Size::Aligned(bytes) => u64::from(bytes).div_ceil(4096),
        Size::Uniform(..) => case.size.mean_bytes() / 4096 + 1,
    };
    of_update * case.updates as u64
}

/// Groups that fill the volume of a case once.
pub(super) fn groups_of_fill(case: &Case, free_blocks: u64) -> u64 {
    (free_blocks / blocks_of_group(case)).max(1)
}

impl Cost {
    fn add(&mut self, counts: &Counts, has_called: bool) {
        for (site, count) in counts {
            let phase = match (CHECKPOINT.contains(&site.0), has_called) {
                (true, _) => &mut self.checkpoint,
                // A checkpoint settles groups that are in doubt.
                (false, false) if site.0 == "hybrid.settle" => &mut self.checkpoint,
                (false, false) => &mut self.call,
                (false, true) => &mut self.commit,
            };
            *phase += *count;
        }
    }
}

/// Runs the groups of a case, and counts. The inner error says why the system cannot run them.
///
/// # Errors
/// Those of the volume.
pub(super) fn count(
    plan: &Plan,
    case: &Case,
    subject: &Subject,
    place: &Place,
    model: &Model,
) -> Result<Result<CountRow, String>> {
    let region: Arc<dyn Region> = Arc::new(Subject::region(case, place, false)?);
    subject.make(&region, case)?;
    let formula = Formula::of(subject.engine, &*region, case)?;
    let counting = CountingRegion::new(region);
    let options = VolumeOptions { clock: ticking, ..subject.options() };
    let open = Open::new(counting.clone(), &options, case)?;
    if !open.files.has_groups && subject.promises_groups() {
        open.close()?;
        return Ok(Err("it has no explicit groups yet".into()));
    }
    let fill = groups_of_fill(case, open.free_blocks());
    let [warm, counted] = FILLS.map(|fills| fill * fills);
    let all = (warm + counted) as usize;
    let sequence = Sequence::new(case, plan.seed, 0, all);
    let payload = Payload::new(plan.seed);
    counting.take();
    let (mut total, mut copied, mut verdict) = (Cost::default(), Count::default(), None);
    for (number, group) in sequence.groups(all).enumerate() {
        let mut cost = Cost::default();
        let mut copies = Count::default();
        let mut note = |cost: &mut Cost, has_called| {
            let counts = counting.take();
            cost.add(&counts, has_called);
            counts.iter().filter(|(site, _)| COPIES.contains(&site.0)).for_each(|(_, count)| copies += *count);
        };
        open.files.run_group(group, &payload, || note(&mut cost, false))?;
        note(&mut cost, true);
        if let Some(expected) = formula.of_group(group) {
            let stored = if subject.defers { Cost { checkpoint: expected.checkpoint, ..cost } } else { cost };
            let verdict = verdict.get_or_insert_with(|| EQUAL.to_owned());
            if stored != expected && verdict == EQUAL {
                *verdict = format!("group {number} stored {stored:?}, and by the formula {expected:?}");
            }
        }
        if number as u64 >= warm {
            total.call += cost.call;
            total.commit += cost.commit;
            total.checkpoint += cost.checkpoint;
            copied += copies;
        }
    }
    open.close()?;
    let mean = |count: Count| PhaseCount {
        calls: count.calls as f64 / counted as f64,
        bytes: count.bytes as f64 / counted as f64,
        lines: count.lines as f64 / counted as f64,
        fences: count.fences as f64 / counted as f64,
    };
    let phases = [("call", total.call), ("commit", total.commit), ("checkpoint", total.checkpoint)];
    let phases: BTreeMap<String, PhaseCount> = phases.map(|(name, count)| (name.to_owned(), mean(count))).into();
    let ns = |phase: &PhaseCount| model.ns(phase.lines, phase.fences);
    let all: f64 = phases.values().map(ns).sum();
    let deferred = if subject.defers { all - ns(&phases["checkpoint"]) } else { all };
    Ok(Ok(CountRow {
        suite: case.suite.into(),
        case: case.name.into(),
        system: subject.name.into(),
        value_bytes: case.size.mean_bytes(),
        groups: counted,
        copied_lines: mean(copied).lines,
        phases,
        model_ns_deferred: deferred,
        model_ns: all,
        formula: verdict.unwrap_or_else(|| "none is stated".into()),
    }))
}
