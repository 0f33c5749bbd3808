//! The wall clock: the systems in turns.

use super::counts::{groups_of_fill, ticking};
use super::recovery::CASE;
use super::subject::{Open, Subject, all};
use super::{THREADS, is_chosen};
use crate::Result;
use crate::harness::{self, Plan};
use crate::place::Place;
use crate::report::{Bound, Report, Row};
use crate::system::{Counters, Prepared, Ready, System, Turn, run_alone};
use crate::systems::Raw;
use crate::workload::{Case, Payload, Sequence, Update};
use std::sync::Arc;
use wholly_media::Region;
use wholly_media::pmem::Emulation;
use wholly_volume::VolumeOptions;

/// Peers that have groups on persistent memory.
const PEERS: [&str; 1] = ["libpmemobj"];

/// A volume in turns.
struct VolumeSystem {
    name: &'static str,
    subject: Subject,
    threads: u32,
    /// Whether everything is written back between turns.
    deferred: bool,
    case: Option<Case>,
    region: Option<Arc<dyn Region>>,
    open: Option<Open>,
}

impl VolumeSystem {
    fn boxed(subject: Subject, name: &'static str, threads: u32, deferred: bool) -> Box<dyn System> {
        Box::new(VolumeSystem { name, subject, threads, deferred, case: None, region: None, open: None })
    }

    fn opened(&self) -> &Open {
        self.open.as_ref().expect("prepared")
    }

    fn reopen(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            open.close()?;
        }
        let region = self.region.clone().expect("prepared");
        let case = self.case.as_ref().expect("prepared");
        // Each call changes the times of its file, as it does where calls are further apart than here.
        let options = VolumeOptions { clock: ticking, ..self.subject.options() };
        self.open = Some(Open::new(region, &options, case)?);
        Ok(())
    }
}

impl System for VolumeSystem {
    fn name(&self) -> &'static str {
        self.name
    }

    fn threads(&self) -> u32 {
        self.threads
    }

    fn prepare(&mut self, case: &Case, place: &Place) -> Result<Prepared> {
        if !self.subject.runs(case) || case.files < self.threads * case.updates as u32 {
            return Ok(Prepared::Inapplicable);
        }
        // It is made at the speed of memory.
        let region = Arc::new(Subject::region(case, place, true)?);
        let made: Arc<dyn Region> = region.clone();
        self.subject.make(&made, case)?;
        drop(made);
        let region = Arc::into_inner(region).expect("the volume is unmounted");
        self.region = Some(place.slow_down(region));
        self.case = Some(*case);
        self.reopen()?;
        let open = self.opened();
        if !open.files.has_groups && self.subject.promises_groups() {
            return Ok(Prepared::Skipped("it has no explicit groups yet".into()));
        }
        let fill = groups_of_fill(case, open.free_blocks());
        let settings = vec![
            ("groups".into(), if open.files.has_groups { "explicit" } else { "none: two calls" }.into()),
            ("checkpoint".into(), if self.deferred { "between turns" } else { "inside the clock" }.into()),
        ];
        if !self.subject.defers {
            return Ok(Prepared::Ready(Ready { settings, ..Ready::default() }));
        }
        if self.deferred {
            // A checkpoint begins when a tenth of the volume is free: of a third, that is after two of three parts.
            return Ok(Prepared::Ready(Ready {
                max_groups: (fill / 2).max(1),
                deferred: true,
                settings,
                ..Ready::default()
            }));
        }
        // The steady state begins when the volume is full.
        let (sequence, payload) = (Sequence::new(case, 0, u64::MAX - 1, fill as usize), Payload::new(0));
        for group in sequence.groups(fill as usize) {
            open.files.run_group(group, &payload, || ())?;
        }
        // Each checkpoint makes a twentieth of the volume free, of the third that is not files: a turn has three.
        Ok(Prepared::Ready(Ready { groups_per_log: (fill / 6).max(1), settings, ..Ready::default() }))
    }

    fn run_group(&mut self, group: &[Update], payload: &Payload) -> Result<()> {
        self.opened().files.run_group(group, payload, || ())
    }

    fn run_turn(&mut self, turn: &mut Turn<'_>) -> Result<()> {
        if self.threads == 1 {
            return run_alone(self, turn);
        }
        let (open, threads) = (self.opened(), self.threads);
        let files = self.case.expect("prepared").files;
        let turn = &*turn;
        std::thread::scope(|scope| {
            let run = move |group: &[Update]| open.files.run_group(group, turn.payload, || ());
            let running: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || turn.run_share(files, thread, threads, run))).collect();
            running.into_iter().try_for_each(|thread| thread.join().expect("a thread of the benchmark"))
        })
    }

    fn rest(&mut self) -> Result<()> {
        // It stays open, as the systems do that defer nothing: what it has in memory is no part of what is deferred.
        if self.deferred { self.opened().write_back() } else { Ok(()) }
    }

    fn counters(&self) -> Counters {
        // The counts of a group are those of `CountRow`.
        Counters { syncs: Some(0), ..Counters::default() }
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(open) = self.open.take() {
            open.close()?;
        }
        self.region = None;
        Ok(())
    }
}

/// The systems that run with so many threads.
pub(super) fn systems(plan: &Plan, chosen: &[String], threads: u32) -> Vec<Box<dyn System>> {
    let mut systems: Vec<Box<dyn System>> = vec![Box::new(Raw::new(threads))];
    for subject in all() {
        systems.push(VolumeSystem::boxed(subject, subject.name, threads, false));
        if let Some(name) = deferred(subject.name) {
            systems.push(VolumeSystem::boxed(subject, name, threads, true));
        }
    }
    systems.retain(|system| is_chosen(chosen, system.name(), &plan.base));
    systems
}

/// The name of a system as it is measured with its checkpoints between turns, if it is.
fn deferred(name: &str) -> Option<&'static str> {
    (name == "hybrid_log").then_some("hybrid_log_deferred")
}

/// Lets the systems take turns, with each number of threads, and adds their rows.
pub(super) fn run(
    plan: &Plan,
    chosen: &[String],
    mut peers: Vec<Box<dyn System>>,
    report: &mut Report,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    peers.retain(|peer| PEERS.contains(&peer.name()) && is_chosen(chosen, peer.name(), &plan.base));
    // More threads are for the paper's figure.
    let is_run = |case: &str, threads: u32| case != CASE && (threads == 1 || case == "two_files");
    for threads in THREADS {
        let mut systems = systems(plan, chosen, threads);
        if threads == 1 {
            systems.append(&mut peers);
        }
        let with_threads = Plan {
            cases: plan.cases.iter().filter(|case| is_run(case.name, threads)).copied().collect(),
            ..plan.clone()
        };
        let passed = harness::run(&with_threads, &mut systems, progress)?;
        report.machine.settings.extend(passed.machine.settings);
        report.skipped.extend(passed.skipped);
        report.rows.extend(passed.rows);
    }
    // With several threads the base is the one with as many.
    let base = |row: &Row, rows: &[Row]| {
        let same = |base: &&Row| {
            (base.system == row.base)
                && (&base.case, &base.medium, base.threads) == (&row.case, &row.medium, row.threads)
        };
        rows.iter().find(same).map(|base| base.ns_per_group)
    };
    let rows = report.rows.clone();
    for row in report.rows.iter_mut().filter(|row| row.threads > 1) {
        row.ratio = base(row, &rows).map(|base| row.ns_per_group / base);
    }
    Ok(())
}

/// The bounds on wall time, which hold without an emulator.
pub(super) fn bounds(plan: &Plan, report: &Report) -> Vec<Bound> {
    if plan.emulation != Emulation::None {
        return Vec::new();
    }
    let find = |system: &str, threads: u32| {
        let is_it =
            |row: &&Row| (row.case.as_str(), row.system.as_str(), row.threads) == ("two_files", system, threads);
        let found = report.rows.iter().find(is_it).map(|row| row.ns_per_group);
        found.ok_or_else(|| format!("{system} was not measured with {threads} threads"))
    };
    let ratio = |one: (&str, u32), other: (&str, u32)| Ok(find(one.0, one.1)? / find(other.0, other.1)?);
    let (none, steady, deferred) = ("none", "hybrid_log", "hybrid_log_deferred");
    vec![
        Bound::at_most(
            "two_files: hybrid_log / none, wall time deferred (aim 1.35)",
            2.0,
            ratio((deferred, 1), (none, 1)),
        ),
        Bound::at_most("two_files: hybrid_log / none, wall time steady (aim 1.25)", 1.5, ratio((steady, 1), (none, 1))),
        Bound::at_least(
            "two_files: libpmemobj / hybrid_log, wall time deferred (aim 3.5)",
            1.5,
            ratio(("libpmemobj", 1), (deferred, 1)),
        ),
        Bound::at_least(
            "two_files: hybrid_log, one thread / two threads, wall time deferred",
            1.6,
            ratio((deferred, 1), (deferred, 2)),
        ),
    ]
}
