//! Recovery: the next mount after the death of a process that has left a log of a given size.
//!
//! The log is made by the groups of the case, by one thread, on a volume so large that no checkpoint is due for want of
//! space. Its size is that of the blocks that wait to be written back, each with the line that says what it is. Files
//! have two bytes for five of the log, at least: a block with more than five versions would be written back.
//!
//! The clock runs from the call of open until the volume can be used, at the speed of memory: it includes the rebuild
//! of the allocators. Recovery leaves the log as it is, so that one log is recovered in each turn; the median counts.
//! `hybrid_log:instant-recovery` writes everything back before it can be used, and has one turn. Another log, made in
//! the same way, is recovered on a region that counts.

use super::subject::{Open, Subject, all, failed};
use super::{Model, is_chosen, skip};
use crate::harness::Plan;
use crate::place::{Medium, Place};
use crate::report::{Bound, CountRow, PhaseCount, Report, Row};
use crate::stats::median;
use crate::workload::{Case, Payload, Sequence};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Instant;
use wholly_media::Region;
use wholly_sim::{Count, CountingRegion};
use wholly_volume::{Volume, VolumeOptions};

/// The name of the case.
pub(super) const CASE: &str = "recovery";
/// Logs of these parts of the largest, so that it shows whether time grows with the log.
const PARTS: [u64; 4] = [4, 3, 2, 1];
/// The variants of a system that defers: by the suffix of its name, whether all is written back at once.
const VARIANTS: [(&str, bool); 2] = [("", false), (":instant-recovery", true)];
/// A pending block, with its line.
const PENDING_BYTES: u64 = 4096 + 64;
/// The log of the paper.
const PAPER_LOG: u64 = 5 << 30;

/// A volume with a log, as the death of its process left it.
struct Left {
    region: Arc<dyn Region>,
    groups: u64,
    log_bytes: u64,
}

impl Left {
    fn new(plan: &Plan, case: &Case, subject: &Subject, place: &Place, log_bytes: u64) -> Result<Left> {
        // Less than a tenth free would bring a checkpoint.
        let bytes = (case.data_bytes() + log_bytes) / 6 * 7 + (8 << 20);
        let region: Arc<dyn Region> = Arc::new(Subject::region_of(place, bytes, true)?);
        subject.make(&region, case)?;
        let open = Open::new(region.clone(), &subject.options(), case)?;
        let payload = Payload::new(plan.seed);
        let pending = || open.pending_blocks() * PENDING_BYTES;
        let mut groups = 0;
        let sequence = Sequence::new(case, plan.seed, 0, Sequence::MAX_GROUPS.min((log_bytes / 4096) as usize + 1));
        for group in sequence.groups(usize::MAX) {
            if pending() >= log_bytes {
                break;
            }
            open.files.run_group(group, &payload, || ())?;
            groups += 1;
        }
        let log_bytes = pending();
        open.abandon();
        Ok(Left { region, groups: groups as u64, log_bytes })
    }
}

/// Measures the recovery of logs of up to so many bytes.
pub(super) fn run(
    plan: &Plan,
    chosen: &[String],
    (case, medium): (&Case, &Medium),
    model: &Model,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let is_wanted = |subject: &Subject| subject.defers && subject.runs(case);
    let subjects = all().filter(|subject| is_wanted(subject) && is_chosen(chosen, subject.name, &plan.base));
    for (subject, (suffix, instantly)) in subjects.flat_map(|subject| VARIANTS.map(|variant| (subject, variant))) {
        let name = format!("{}{suffix}", subject.name);
        let options = VolumeOptions { instant_recovery: instantly, ..subject.options() };
        for part in PARTS {
            let log_bytes = plan.log_bytes / part;
            let label = format!("{CASE} of {} KiB by {name} on {}", log_bytes >> 10, medium.name());
            progress(&label);
            let failing = |e: Error| Error::from(format!("{label}: {e}"));
            let files = (log_bytes / 5 * 2).div_ceil(case.file_bytes) as u32;
            let case = Case { files: case.files.max(files), ..*case };
            // As much as the files and the log take.
            let of_place = Case { files: case.files + (2 * log_bytes).div_ceil(case.file_bytes) as u32, ..case };
            let place = match medium.make(&of_place, 1) {
                Ok(place) => place,
                Err(e) => {
                    report.skipped.push(skip(case.name, &medium.name(), Some(&name), e.to_string()));
                    continue;
                }
            };
            let timed = place.child("timed")?;
            let left = Left::new(plan, &case, &subject, &timed, log_bytes).map_err(failing)?;
            let mut times = Vec::new();
            for _ in 0..if instantly { 1 } else { plan.turns } {
                let begun = Instant::now();
                let volume = Volume::open_region(left.region.clone(), &options).map_err(failed)?;
                times.push(begun.elapsed().as_nanos() as f64);
                volume.abandon();
            }
            let open_ns = median(&times).expect("a turn at least");
            drop(left);
            std::fs::remove_dir_all(&timed.dir)?;

            let left = Left::new(plan, &case, &subject, &place.child("counted")?, log_bytes).map_err(failing)?;
            let counting = CountingRegion::new(left.region);
            let volume = Volume::open_region(counting.clone(), &options).map_err(failed)?;
            let mut total = Count::default();
            counting.take().values().for_each(|count| total += *count);
            volume.abandon();
            let mean = |count: u64| count as f64 / left.groups as f64;
            let phase = PhaseCount {
                calls: mean(total.calls),
                bytes: mean(total.bytes),
                lines: mean(total.lines),
                fences: mean(total.fences),
            };
            let ns = model.ns(phase.lines, phase.fences);
            report.counts.push(CountRow {
                suite: case.suite.into(),
                case: format!("{CASE} of {} KiB", left.log_bytes >> 10),
                system: name.clone(),
                value_bytes: case.size.mean_bytes(),
                groups: left.groups,
                phases: [("recovery".into(), phase)].into(),
                copied_lines: phase.lines,
                model_ns_deferred: ns,
                model_ns: ns,
                formula: "none is stated".into(),
            });
            report.rows.push(Row {
                suite: case.suite.into(),
                case: case.name.into(),
                system: name.clone(),
                medium: medium.name(),
                threads: 1,
                value_bytes: case.size.mean_bytes(),
                groups: left.groups,
                ns_per_group: open_ns / left.groups as f64,
                p99_ns: None,
                bytes_written_per_group: Some(phase.bytes),
                fences_per_group: Some(phase.fences),
                syncs_per_group: None,
                cpu_ns_per_group: f64::NAN,
                ratio: None,
                base: plan.base.clone(),
                deferred: false,
                open_ns: Some(open_ns),
                close_ns: None,
                memory_bytes: None,
                disk_bytes: Some(left.log_bytes),
                log: None,
            });
        }
    }
    Ok(())
}

/// The bounds on recovery: its lines grow with the log; and its time, for a log as large as the paper's.
pub(super) fn bounds(report: &Report) -> Vec<Bound> {
    const LAZY: &str = "hybrid_log";
    let points: Vec<(f64, f64)> = report
        .counts
        .iter()
        .filter(|row| row.system == LAZY)
        .filter_map(|row| Some((row.groups as f64, row.phases.get("recovery")?.lines * row.groups as f64)))
        .collect();
    let measured = || report.rows.iter().filter(|row| row.case == CASE && row.system == LAZY);
    let times: Vec<(f64, f64)> = measured().filter_map(|row| Some((row.disk_bytes? as f64, row.open_ns?))).collect();
    let ms = measured().filter(|row| row.disk_bytes >= Some(PAPER_LOG)).filter_map(|row| row.open_ns).next();
    let ms = ms.map(|ns| ns / 1e6).ok_or_else(|| "no log of 5 GiB was recovered (--log-size 5G)".to_owned());
    let linear = ms.clone().and_then(|_| correlation(&times));
    vec![
        Bound::at_least("recovery: correlation of lines with groups in the log", 0.99, correlation(&points)),
        Bound::at_least("recovery: correlation of wall time with the log, up to 5 GiB", 0.99, linear),
        Bound::at_most("recovery of a log of 5 GiB, ms of wall time (paper 406; aim 100)", 200.0, ms),
    ]
}

/// How well points lie on a line that rises: 1 is exactly.
fn correlation(points: &[(f64, f64)]) -> Result<f64, String> {
    if points.len() < 3 {
        return Err("too few logs were recovered".into());
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|point| of(point.0 - x, point.1 - y)).sum::<f64>();
    let spread = (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt();
    if spread == 0.0 { Err("all logs are of one size".into()) } else { Ok(sum(&|x, y| x * y) / spread) }
}

#[cfg(test)]
mod tests {
    use super::correlation;

    #[test]
    fn points_on_a_line_correlate() {
        let on_a_line = correlation(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)]).unwrap();
        assert!((on_a_line - 1.0).abs() < 1e-12);
        assert!(correlation(&[(1.0, 1.0), (2.0, 4.0), (3.0, 1.0), (4.0, 4.0)]).unwrap() < 0.9);
        assert!(correlation(&[(1.0, 1.0), (2.0, 2.0)]).is_err());
        assert!(correlation(&[(1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]).is_err());
    }
}
