//! Commands and calls on a mount of a volume and on one that passes a directory through, in turns.

use super::{PASSTHROUGH, Setting, VOLUME};
use crate::commands::{jobs, run_in};
use crate::harness::{Plan, Whose, cpu_ns, ticks_ns};
use crate::mounts::{Calls, Server, calls_of_a_turn, write_file};
use crate::tasks::{Figures, Sample, add, sync_file_system};
use crate::workload::Case;
use crate::{Result, mounts};
use std::path::Path;
use std::time::Instant;

/// Calls of a turn in a tiny run.
const TINY_CALLS: u64 = 8;

/// What is not here of what a case takes.
pub(super) fn missing(case: &str, program: &Path) -> Option<String> {
    mounts::missing(program).or_else(|| match case {
        "tar_10k" | "git_clone" | "rm_rf" => jobs::missing(case),
        _ => None,
    })
}

/// What runs on a mount.
enum Work {
    Command(jobs::Job),
    Calls(Calls),
}

/// A mount that is ready for its turns. What uses it goes before it ends.
struct Entrant {
    work: Work,
    server: Server,
}

impl Entrant {
    fn new(setting: &Setting<'_>, system: &str) -> Result<Entrant> {
        let Setting { case, place, program, .. } = setting;
        let (own, point) = (place.child(system)?, place.child(&format!("{system}-point"))?.dir);
        let server = Server::start(program, system, &own.dir, &point)?;
        let work = if is_command(case) {
            let scratch = place.child(&format!("{system}-source"))?.dir;
            Work::Command(jobs::job(case, &scratch, &point.join("turn"))?)
        } else {
            write_file(&point, case.file_bytes)?;
            Work::Calls(Calls::of(case, &point)?)
        };
        Ok(Entrant { work, server })
    }

    fn cpu_ns(&self) -> Result<i128> {
        let others = ticks_ns(&self.server.process.id().to_string(), Whose::Own)? + ticks_ns("self", Whose::Children)?;
        Ok(cpu_ns() + i128::from(others))
    }

    fn turn(&mut self, setting: &Setting<'_>, calls: u64, number: usize) -> Result<Sample> {
        if let Work::Command(job) = &self.work {
            (job.prepare)()?;
        }
        sync_file_system(&setting.place.dir)?;
        let (cpu, device) = (self.cpu_ns()?, setting.place.device_bytes_written());
        let start = Instant::now();
        let groups = match &mut self.work {
            Work::Command(job) => run_in(&job.dir, &job.words()).map(|()| 1)?,
            Work::Calls(all) => all.make(calls, setting.plan.seed ^ number as u64).map(|()| calls)?,
        };
        let ns = start.elapsed().as_nanos() as f64;
        let cpu_ns = (self.cpu_ns()? - cpu) as f64;
        let device_bytes = setting.place.device_bytes_written().zip(device).map(|(now, then)| now - then);
        if let Work::Command(job) = &self.work {
            (job.judge)()?;
        }
        Ok(Sample { ns, cpu_ns, device_bytes, groups, ..Sample::default() })
    }
}

fn is_command(case: &Case) -> bool {
    matches!(case.name, "tar_10k" | "git_clone" | "rm_rf")
}

pub(super) fn run(setting: &Setting<'_>, figures: &mut [Figures]) -> Result<()> {
    let systems: Vec<&'static str> = figures.iter().map(|figures| figures.system).collect();
    let mut entrants = Vec::new();
    for system in &systems {
        debug_assert!([PASSTHROUGH, VOLUME].contains(system));
        entrants.push(Entrant::new(setting, system).map_err(|e| format!("{system}: {e}"))?);
    }
    let calls = calls(setting.plan, &mut entrants[0])?;
    for number in 0..setting.plan.turns {
        for i in 0..systems.len() {
            let at = (number + i) % systems.len();
            let sample = entrants[at].turn(setting, calls, number).map_err(|e| format!("{}: {e}", systems[at]))?;
            add(figures, systems[at], sample);
        }
    }
    Ok(())
}

/// The calls of a turn.
fn calls(plan: &Plan, base: &mut Entrant) -> Result<u64> {
    match &mut base.work {
        Work::Command(_) => Ok(1),
        Work::Calls(_) if plan.tiny => Ok(TINY_CALLS),
        Work::Calls(calls) => calls_of_a_turn(plan, calls),
    }
}
