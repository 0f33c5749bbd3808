//! Runs of the engines in virtual time: what figures 7 to 10 of the paper are drawn from.
//!
//! The volume is the package `wholly-volume-events`: the same sources over threads in virtual time, on a region whose
//! stores and fences take time ([`TimedRegion`]). What the processor does takes none. Threads wait for locks, for each
//! other and for the medium as they do anywhere, so that what cannot happen at once does not.
//!
//! A system has one volume for all its cases. Systems that write back later fill it once before a case begins; then
//! each setting of the case runs several times as many groups as bring a checkpoint. Threads have files of their own.
//! After each group, a thread is idle for a share of the time that this group took it.

use super::counts::{groups_of_fill, ticking};
use super::subject::{Files, SOC, SYNC, Subject, failed};
use super::timed::TimedRegion;
use super::{Model, is_chosen, recovery};
use crate::harness::Plan;
use crate::place::Medium;
use crate::report::{Report, RunRow};
use crate::system::Turn;
use crate::workload::{Case, Payload, Sequence};
use crate::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use sync_events::{now, thread};
use volume_events::{EngineKind, Volume, VolumeOptions, VolumeVfs, WriteBack};
use wholly_media::Region;
use wholly_media::pmem::Emulation;

/// Delays of figure 10, in nanoseconds.
pub(super) const DELAYS: [u32; 6] = [50, 100, 200, 400, 800, 1600];
/// Idle parts of the time of figure 9, in percent.
pub(super) const IDLE: [u32; 6] = [0, 10, 30, 50, 70, 90];
/// Threads of figure 7c.
pub(super) const THREADS: [u32; 4] = [1, 2, 4, 6];
/// Threads of figure 9.
pub(super) const MANY: u32 = 6;

/// Groups of a setting, or as many as fill the volume once: as many for each system, so that all run the same ones.
const MOST: u64 = 10_000;
/// Threads that write back in the background: half of the processors of the paper's machine. SOC has one, and SYNC
/// none.
const CHECKPOINTERS: usize = 6;
const TINY_GROUPS: u64 = 60;

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    threads: u32,
    idle_percent: u32,
    delay_ns: f64,
}

impl Setting {
    /// The number of its random sequence: the same for all systems.
    fn turn(&self) -> u64 {
        u64::from(self.threads) << 40 | u64::from(self.idle_percent) << 32 | self.delay_ns as u64
    }
}

/// The settings of a case, for one system.
fn settings(case: &Case, subject: &Subject, model: &Model) -> Vec<Setting> {
    let one = Setting { threads: 1, idle_percent: 0, delay_ns: model.delay_ns };
    if case.name != "two_files" {
        return vec![one];
    }
    let mut all: Vec<Setting> = THREADS.iter().map(|&threads| Setting { threads, ..one }).collect();
    if [super::NONE, super::HYBRID, SOC, SYNC].contains(&subject.name) {
        let idle = IDLE.iter().filter(|percent| **percent > 0);
        all.extend(idle.map(|&idle_percent| Setting { threads: MANY, idle_percent, ..one }));
    }
    if ![SOC, SYNC].contains(&subject.name) {
        let delays = DELAYS.iter().map(|delay| f64::from(*delay)).filter(|delay| *delay != model.delay_ns);
        all.extend(delays.map(|delay_ns| Setting { delay_ns, ..one }));
    }
    let has_files = |setting: &Setting| case.files >= setting.threads * case.updates as u32;
    all.retain(has_files);
    all
}

fn options(subject: &Subject) -> VolumeOptions {
    VolumeOptions {
        engine: EngineKind::named(subject.engine.name()),
        write_back: match subject.name {
            SOC => WriteBack::CommitOrder,
            SYNC => WriteBack::AtOnce,
            _ => WriteBack::Selective,
        },
        cache_bytes: 256 << 20,
        checkpointers: Some(match subject.name {
            SOC => 1,
            SYNC => 0,
            _ => CHECKPOINTERS,
        }),
        clock: ticking,
        ..VolumeOptions::default()
    }
}

/// An open volume in a run.
struct Running<'p> {
    plan: &'p Plan,
    subject: &'p Subject,
    region: Arc<TimedRegion>,
    files: Files<VolumeVfs>,
    payload: Payload,
    free_blocks: u64,
    bytes_per_s: f64,
}

impl Running<'_> {
    /// Runs groups in all threads of a setting. Virtual time of all, and the sum of what each thread was busy.
    fn groups(&self, case: &Case, setting: &Setting, turn: u64, groups: u64) -> Result<(Duration, Duration)> {
        let Setting { threads, idle_percent, .. } = *setting;
        let sequence = Sequence::new(case, self.plan.seed, turn, groups as usize);
        let turn = Turn { groups: groups as usize, sequence: &sequence, payload: &self.payload, latencies: None };
        let work = |number: u32| -> Result<Duration> {
            let mut busy = Duration::ZERO;
            turn.run_share(case.files, number, threads, |group| {
                let begun = now();
                self.files.run_group(group, &self.payload, || ())?;
                let took = now() - begun;
                busy += took;
                if idle_percent > 0 {
                    thread::sleep(took * idle_percent / (100 - idle_percent));
                }
                Ok(())
            })?;
            self.region.pay();
            Ok(busy)
        };
        let begun = now();
        let busy = thread::scope(|scope| {
            let work = &work;
            let running: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
            running
                .into_iter()
                .map(|thread| thread.join().expect("a thread of the benchmark"))
                .sum::<Result<Duration>>()
        })?;
        Ok((now() - begun, busy))
    }

    fn case(&self, case: &Case, model: &Model, rows: &mut Vec<RunRow>) -> Result<()> {
        let fill = groups_of_fill(case, self.free_blocks);
        // A volume is half as large again as its files.
        let other = groups_of_fill(case, case.data_bytes() / 2 / 4096);
        let (warm, counted) = match self.plan.tiny {
            true => (TINY_GROUPS, TINY_GROUPS),
            false => (if self.subject.defers { fill } else { 0 }, MOST.max(other).min(3 * other)),
        };
        let first = settings(case, self.subject, model)[0];
        self.groups(case, &first, u64::MAX, warm)?;
        for setting in settings(case, self.subject, model) {
            self.region.set_speed(setting.delay_ns, self.bytes_per_s);
            let before = self.region.stored();
            let (all, busy) = self.groups(case, &setting, setting.turn(), counted)?;
            let after = self.region.stored();
            let mean = |amount: u64| amount as f64 / counted as f64;
            let (lines, ns) = (mean(after.0 - before.0), all.as_nanos() as f64);
            rows.push(RunRow {
                suite: case.suite.into(),
                case: case.name.into(),
                system: self.subject.name.into(),
                threads: setting.threads,
                idle_percent: setting.idle_percent,
                delay_ns: setting.delay_ns,
                value_bytes: case.size.mean_bytes(),
                groups: counted,
                ns_per_group: ns / counted as f64,
                busy_ns: busy.as_nanos() as f64 / counted as f64,
                lines_per_group: lines,
                bytes_per_group: mean(after.1 - before.1),
                bandwidth_used: lines * 64.0 * counted as f64 * 1e9 / ns / self.bytes_per_s,
            });
        }
        Ok(())
    }
}

/// Runs the cases of `plan`, with those systems that `chosen` names or all of them.
///
/// # Errors
/// The first failure of a system.
pub(super) fn run(
    plan: &Plan,
    chosen: &[String],
    model: &Model,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let Some(medium) = plan.media.first() else { return Ok(()) };
    for subject in super::subject::all().filter(|subject| is_chosen(chosen, subject.name, &plan.base)) {
        let cases = plan.cases.iter().filter(|case| case.name != recovery::CASE && subject.runs(case));
        let cases: Vec<Case> = cases.copied().collect();
        // All have the same files.
        let Some(first) = cases.first() else { continue };
        progress(&format!("{}: {} in virtual time", first.suite, subject.name));
        match of_system(plan, (&subject, &cases), medium, model) {
            Ok(rows) => report.runs.extend(rows),
            Err(e) => return Err(Error::from(format!("{} in virtual time: {e}", subject.name))),
        }
    }
    Ok(())
}

fn of_system(
    plan: &Plan,
    (subject, cases): (&Subject, &[Case]),
    medium: &Medium,
    model: &Model,
) -> Result<Vec<RunRow>> {
    let place = medium.make(&cases[0], 2)?;
    let region: Arc<dyn Region> = Arc::new(Subject::region(&cases[0], &place, true)?);
    subject.make(&region, &cases[0])?;
    let Emulation::Paper { bandwidth, .. } = Emulation::PAPER else { unreachable!("it is the paper's") };
    sync_events::run(move || {
        let region = TimedRegion::new(region, model.delay_ns, bandwidth);
        let volume = Volume::open_region(region.clone(), &options(subject)).map_err(failed)?;
        let mut rows = Vec::new();
        let running = Running {
            plan,
            subject,
            region,
            files: Files::open(VolumeVfs::new(&volume), &cases[0])?,
            payload: Payload::new(plan.seed),
            free_blocks: volume.stat().free_blocks,
            bytes_per_s: bandwidth,
        };
        for case in cases {
            running.case(case, model, &mut rows)?;
        }
        running.files.close()?;
        volume.close().map_err(failed)?;
        Ok(rows)
    })
}
