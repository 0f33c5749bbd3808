//! Turns, clocks and counters; from them the rows.

use crate::place::{Medium, Place};
use crate::report::{Report, Row, Skipped};
use crate::stats::{median, ratio};
use crate::system::{Counters, Prepared, Ready, System, Turn};
use crate::workload::{Case, Payload, Sequence};
use crate::{Error, Result};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use wholly_media::pmem::Emulation;

/// How to run a suite.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cases.
    pub cases: Vec<Case>,
    /// The media.
    pub media: Vec<Medium>,
    /// Turns of each system whose duration counts.
    pub turns: usize,
    /// Aimed duration of a turn; a log of which three capacities must be written may make it longer.
    pub turn: Duration,
    /// Seed of the random sequence.
    pub seed: u64,
    /// The system that ratios refer to.
    pub base: String,
    /// What persistent memory is slowed down to.
    pub emulation: Emulation,
    /// Suite `fcfs`: bytes of the largest log that is recovered.
    pub log_bytes: u64,
    /// Only to see that everything works: turns of a few groups.
    pub tiny: bool,
}

/// Groups of a turn in a tiny run.
const TINY_GROUPS: usize = 8;

/// Longer groups count as this long in the latencies.
const LONGEST_GROUP_NS: u64 = 100_000_000_000;

/// One turn's figures per group.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    ns: f64,
    cpu_ns: f64,
    bytes: Option<f64>,
    fences: Option<f64>,
    syncs: Option<f64>,
}

/// A system in the middle of a case.
struct Entrant<'a> {
    system: &'a mut dyn System,
    place: Place,
    ready: Ready,
    groups: usize,
    samples: Vec<Sample>,
    latencies: Histogram<u64>,
}

/// Runs `plan` with `systems`, telling `progress` what it is about to do.
///
/// # Errors
/// The first failure of a system. What a medium or a system cannot do is no failure; the report says it under
/// `skipped`.
pub fn run(plan: &Plan, systems: &mut [Box<dyn System>], progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut report = empty_report(plan);
    for case in &plan.cases {
        for medium in plan.media.iter().filter(|medium| medium.is_pmem() || case.on_disk) {
            run_case(plan, case, medium, systems, &mut report, progress)?;
        }
    }
    Ok(report)
}

/// A report without rows: the machine, and the settings of the run.
pub(crate) fn empty_report(plan: &Plan) -> Report {
    let mut report = Report::new(&plan.media);
    report.machine.emulator = plan.emulation.describe();
    let settings = &mut report.machine.settings;
    settings.insert("turns".into(), plan.turns.to_string());
    settings.insert("turn_ms".into(), plan.turn.as_millis().to_string());
    settings.insert("seed".into(), plan.seed.to_string());
    for case in &plan.cases {
        settings.insert(format!("{}.files", case.name), format!("{} of {} B", case.files, case.file_bytes));
    }
    report
}

/// Runs one case on one medium.
fn run_case(
    plan: &Plan,
    case: &Case,
    medium: &Medium,
    systems: &mut [Box<dyn System>],
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let label = format!("{}/{} on {}", case.suite, case.name, medium.name());
    let skip = |system: Option<&str>, reason: String| Skipped {
        case: case.name.to_owned(),
        medium: medium.name(),
        system: system.map(str::to_owned),
        reason,
    };
    let place = match medium.make(case, systems.len()) {
        Ok(place) => place.emulating(plan.emulation),
        Err(e) => {
            report.skipped.push(skip(None, e.to_string()));
            return Ok(());
        }
    };
    let payload = Payload::new(plan.seed);
    let mut entrants = Vec::new();
    for system in systems.iter_mut() {
        progress(&format!("{label}: preparing {}", system.name()));
        let name = system.name();
        let failed = |e: Error| Error::from(format!("{name}, {label}: {e}"));
        let place = place.child(&format!("{name}-{}", system.threads()))?;
        let ready = match system.prepare(case, &place).map_err(failed)? {
            Prepared::Ready(ready) => ready,
            Prepared::Inapplicable => continue,
            Prepared::Skipped(reason) => {
                report.skipped.push(skip(Some(name), reason));
                continue;
            }
        };
        for (setting, value) in &ready.settings {
            report.machine.settings.insert(format!("{name}.{setting}"), value.clone());
        }
        let mut entrant = Entrant {
            system: system.as_mut(),
            place,
            ready,
            groups: TINY_GROUPS,
            samples: Vec::new(),
            latencies: Histogram::new_with_max(LONGEST_GROUP_NS, 3)?,
        };
        if !plan.tiny {
            entrant.calibrate(plan, case, &payload).map_err(failed)?;
        }
        entrants.push(entrant);
    }
    let longest = entrants.iter().map(|e| e.groups).max().unwrap_or(0);
    for turn in 0..plan.turns {
        progress(&format!("{label}: turn {} of {}", turn + 1, plan.turns));
        let sequence = Sequence::new(case, plan.seed, turn as u64, longest);
        // Who begins changes from turn to turn, so that nobody always follows the same neighbour's leftovers.
        for i in 0..entrants.len() {
            let at = (turn + i) % entrants.len();
            entrants[at].timed_turn(&sequence, &payload)?;
        }
    }
    progress(&format!("{label}: latencies"));
    let sequence = Sequence::new(case, plan.seed, plan.turns as u64, longest);
    for entrant in &mut entrants {
        let groups = entrant.groups;
        let mut turn = Turn { groups, sequence: &sequence, payload: &payload, latencies: Some(&mut entrant.latencies) };
        entrant.system.rest()?;
        entrant.system.run_turn(&mut turn)?;
    }
    for entrant in &mut entrants {
        entrant.system.finish()?;
    }
    report.rows.extend(rows(plan, case, medium, &entrants));
    Ok(())
}

impl Entrant<'_> {
    /// Finds how many groups fill a turn, warming up on the way.
    fn calibrate(&mut self, plan: &Plan, case: &Case, payload: &Payload) -> Result<()> {
        let at_least = (3 * self.ready.groups_per_log) as usize;
        let most = self.ready.max_groups.min(usize::MAX as u64) as usize;
        // Places of the warm-up are drawn from a turn that is never timed.
        let sequence = Sequence::new(case, plan.seed, u64::MAX, Sequence::MAX_GROUPS >> 4);
        let mut groups = 16;
        loop {
            self.system.rest()?;
            let start = Instant::now();
            self.system.run_turn(&mut Turn { groups, sequence: &sequence, payload, latencies: None })?;
            let elapsed = start.elapsed();
            if elapsed * 4 >= plan.turn {
                let fill = groups as f64 * plan.turn.as_secs_f64() / elapsed.as_secs_f64();
                self.groups = (fill as usize).max(at_least).min(most).max(1);
                return Ok(());
            }
            if groups * 2 > most {
                self.groups = most;
                return Ok(());
            }
            groups *= 2;
        }
    }

    /// Runs a turn whose duration counts.
    fn timed_turn(&mut self, sequence: &Sequence, payload: &Payload) -> Result<()> {
        let mut turn = Turn { groups: self.groups, sequence, payload, latencies: None };
        self.system.rest()?;
        let counters = self.system.counters();
        let device = self.place.device_bytes_written();
        let cpu = cpu_ns();
        let start = Instant::now();
        self.system.run_turn(&mut turn)?;
        let ns = start.elapsed().as_nanos() as f64;
        let cpu_ns = (cpu_ns() - cpu) as f64;
        let device = difference(self.place.device_bytes_written(), device);
        self.samples.push(sample(self.groups, ns, cpu_ns, (counters, self.system.counters()), device));
        Ok(())
    }
}

fn sample(groups: usize, ns: f64, cpu_ns: f64, counters: (Counters, Counters), device: Option<u64>) -> Sample {
    let n = groups as f64;
    let (before, after) = counters;
    let per_group = |value: Option<u64>| value.map(|value| value as f64 / n);
    Sample {
        ns: ns / n,
        cpu_ns: cpu_ns / n,
        bytes: per_group(device.or(difference(after.bytes_written, before.bytes_written))),
        fences: per_group(difference(after.fences, before.fences)),
        syncs: per_group(difference(after.syncs, before.syncs)),
    }
}

fn difference(after: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

/// Processor time of all threads of this process, dead ones included.
pub(crate) fn cpu_ns() -> i128 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Whose processor time is asked for.
pub(crate) enum Whose {
    /// That of the process.
    Own,
    /// That of its children that have ended, and of theirs.
    Children,
}

/// Processor time of a process, by its number or `self`, as the kernel counts it in ticks.
pub(crate) fn ticks_ns(process: &str, whose: Whose) -> Result<u64> {
    /// The kernel shows times in hundredths of a second on every architecture (`USER_HZ`).
    const TICK_NS: u64 = 10_000_000;
    let path = format!("/proc/{process}/stat");
    let stat = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    // The fields 14 to 17 (proc_pid_stat(5)), of which the third follows the name, which may hold anything.
    let behind = stat.rsplit_once(')').ok_or("no name in a process's stat")?.1;
    let first = match whose {
        Whose::Own => 11,
        Whose::Children => 13,
    };
    let times: Vec<u64> = behind.split_whitespace().skip(first).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(times.iter().sum::<u64>() * TICK_NS)
}

fn rows(plan: &Plan, case: &Case, medium: &Medium, entrants: &[Entrant<'_>]) -> Vec<Row> {
    let column = |entrant: &Entrant<'_>, field: fn(&Sample) -> Option<f64>| -> Vec<f64> {
        entrant.samples.iter().filter_map(field).collect()
    };
    let base = entrants
        .iter()
        .find(|e| e.system.name() == plan.base && e.system.threads() == 1)
        .map(|e| column(e, |s| Some(s.ns)));
    entrants
        .iter()
        .map(|entrant| {
            let ns = column(entrant, |s| Some(s.ns));
            Row {
                suite: case.suite.to_owned(),
                case: case.name.to_owned(),
                system: entrant.system.name().to_owned(),
                medium: medium.name(),
                threads: entrant.system.threads(),
                value_bytes: case.size.mean_bytes(),
                groups: (entrant.groups * entrant.samples.len()) as u64,
                ns_per_group: median(&ns).unwrap_or(f64::NAN),
                p99_ns: (!entrant.latencies.is_empty()).then(|| entrant.latencies.value_at_quantile(0.99) as f64),
                bytes_written_per_group: median(&column(entrant, |s| s.bytes)),
                fences_per_group: median(&column(entrant, |s| s.fences)),
                syncs_per_group: median(&column(entrant, |s| s.syncs)),
                cpu_ns_per_group: median(&column(entrant, |s| Some(s.cpu_ns))).unwrap_or(f64::NAN),
                ratio: base.as_ref().and_then(|base| ratio(&ns, base)),
                base: plan.base.clone(),
                deferred: entrant.ready.deferred,
                open_ns: None,
                close_ns: None,
                memory_bytes: None,
                disk_bytes: None,
                log: None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_differences_over_groups() {
        let before = Counters { bytes_written: Some(100), fences: Some(1), syncs: None };
        let after = Counters { bytes_written: Some(500), fences: Some(5), syncs: Some(7) };
        let got = sample(4, 800.0, 400.0, (before, after), None);
        assert_eq!(got, Sample { ns: 200.0, cpu_ns: 100.0, bytes: Some(100.0), fences: Some(1.0), syncs: None });
    }

    #[test]
    fn what_the_device_says_goes_before_what_the_system_says() {
        let counters = Counters { bytes_written: Some(0), ..Counters::default() };
        assert_eq!(sample(2, 1.0, 1.0, (counters, counters), Some(8192)).bytes, Some(4096.0));
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let before = cpu_ns();
        let mut x = 1u64;
        while cpu_ns() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(cpu_ns() > before);
    }
}
