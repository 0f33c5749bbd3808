//! Walking over the crash points of runs, and over the states of each: two workers, one count.
//!
//! A state is judged once: images are told apart by their hash, together with what they owe. States are counted by what recovery and the
//! reading of all files looked at (the *fingerprint*), so that two images which differ where nobody looks count once.

use std::collections::HashSet;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wholly_media::sim::{Choice, Coverage, Exploration, ExploreLimits, Explorer, Image, Pick, Point, Tally};

use crate::life::{Extent, Life, live};
use crate::mutants::{Breakable, breakable};
use crate::run::{Allowed, Run, run};
use crate::setting::Setting;
use crate::workload::{Workload, mix};

/// How far everything is gone through.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The states of a point.
    pub states: ExploreLimits,
    /// Points with more pending units than this are sampled only: not each unit by itself, nor all but it.
    pub single_units: usize,
    /// One in so many states is crashed inside of its recovery, at `nested_points` points.
    pub nested_one_in: u64,
    /// Points of a recovery, drawn.
    pub nested_points: u64,
    /// States of a point inside of recovery that are drawn, besides none and all.
    pub nested_samples: u64,
    /// One in so many states lives on after recovery, and as many recover twice.
    pub go_on_one_in: u64,
    /// Threads that share the points.
    pub workers: usize,
    /// Violations after which a job is given up.
    pub violations: usize,
}

impl Limits {
    /// What `make test` does: some minutes.
    pub fn quick() -> Limits {
        Limits {
            states: ExploreLimits { exhaustive_bits: 11, pair_units: 24, samples: 1500, ..ExploreLimits::default() },
            single_units: 300,
            nested_one_in: 16,
            nested_points: 2,
            nested_samples: 2,
            go_on_one_in: 4,
            workers: 2,
            violations: 3,
        }
    }

    /// What `make crash` does.
    pub fn thorough() -> Limits {
        let quick = Limits::quick();
        let states = ExploreLimits { samples: 10_000, ..ExploreLimits::default() };
        Limits { states, single_units: usize::MAX, ..quick }
    }

    /// Only enough to see whether something is broken.
    pub fn hunt() -> Limits {
        let quick = Limits::quick();
        Limits {
            states: ExploreLimits { exhaustive_bits: 6, pair_units: 0, samples: 40, ..ExploreLimits::default() },
            nested_one_in: 8,
            nested_points: 3,
            violations: 1,
            ..quick
        }
    }
}

/// A state in which something is wrong.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Rebuilds the state: see [`replay`](crate::replay()).
    pub replay: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n    wholly crash --replay '{}'", self.what, self.replay)
    }
}

/// What was gone through.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Runs of a workload in a world.
    pub runs: u64,
    /// Points and images, with every cap that was hit.
    pub tally: Tally,
    /// Points at which not even each unit by itself was tried.
    pub single_capped_points: u64,
    /// Images that had been judged before.
    pub duplicates: u64,
    /// Recoveries that were judged, nested ones included.
    pub recoveries: u64,
    /// States that differ in what recovery looked at, nested ones included.
    pub distinct: u64,
    /// Those that only a crash inside of a recovery led to.
    pub nested: u64,
    /// Deaths of the process among the states.
    pub kills: u64,
    /// Sites, and which were crash points.
    pub coverage: Coverage,
    /// What can be broken in what was passed.
    pub(crate) breakable: Breakable,
    /// What is wrong.
    pub violations: Vec<Violation>,
}

impl Outcome {
    /// Adds another outcome.
    pub fn merge(&mut self, other: Outcome) {
        self.runs += other.runs;
        self.tally.merge(&other.tally);
        self.single_capped_points += other.single_capped_points;
        self.duplicates += other.duplicates;
        self.recoveries += other.recoveries;
        self.distinct += other.distinct;
        self.nested += other.nested;
        self.kills += other.kills;
        self.coverage.merge(&other.coverage);
        self.breakable.extend(other.breakable);
        self.violations.extend(other.violations);
    }

    /// # Panics
    /// If there is a violation; says all of them.
    pub fn assert_clean(&self) {
        let lines: Vec<String> = self.violations.iter().map(ToString::to_string).collect();
        assert!(lines.is_empty(), "{} violations:\n{}", lines.len(), lines.join("\n"));
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs: {}", self.runs, self.tally)?;
        if self.single_capped_points > 0 {
            writeln!(f, "single units capped at {} points", self.single_capped_points)?;
        }
        write!(
            f,
            "{} recoveries, {} images seen before; {} distinct states, {} of them inside of recoveries; {} deaths of the process; {} violations",
            self.recoveries,
            self.duplicates,
            self.distinct,
            self.nested,
            self.kills,
            self.violations.len()
        )
    }
}

/// A workload in a world.
#[derive(Clone, Debug)]
pub struct Job {
    /// What is done.
    pub workload: Workload,
    /// Where.
    pub setting: Setting,
}

/// Sets of hashes that workers share.
pub struct Seen {
    images: Vec<Mutex<HashSet<u64, Already>>>,
    states: Vec<Mutex<HashSet<u64, Already>>>,
}

const SHARDS: usize = 64;

impl Default for Seen {
    fn default() -> Self {
        let sets = || (0..SHARDS).map(|_| Mutex::default()).collect();
        Seen { images: sets(), states: sets() }
    }
}

/// The hash of what is a hash already.
#[derive(Clone, Copy, Default)]
pub struct Already(u64);

impl std::hash::BuildHasher for Already {
    type Hasher = Already;
    fn build_hasher(&self) -> Already {
        Already(0)
    }
}

impl std::hash::Hasher for Already {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

fn insert(sets: &[Mutex<HashSet<u64, Already>>], hash: u64) -> bool {
    sets[(hash >> 58) as usize % SHARDS].lock().expect("no panic under this lock").insert(hash)
}

/// Explores one workload in one world.
pub fn explore(workload: &Workload, setting: &Setting, limits: &Limits) -> Outcome {
    explore_all(&[Job { workload: workload.clone(), setting: setting.clone() }], limits)
}

/// Explores many. Points are shared by the workers; what is found does not depend on who takes which.
pub fn explore_all(jobs: &[Job], limits: &Limits) -> Outcome {
    let seen = Seen::default();
    let mut total = Outcome::default();
    let mut prepared = Vec::new();
    for job in jobs {
        let run = run(&job.workload, &job.setting);
        total.runs += 1;
        if let Some(failure) = &run.failure {
            let replay = format!("{}:{}:run", job.workload.name, job.setting.name);
            total.violations.push(Violation { replay, what: format!("without a crash: {failure}") });
        }
        prepared.push(Prepared {
            job,
            run,
            next: AtomicU64::new(0),
            found: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
    }
    let work = || {
        let mut worker = Worker { limits, seen: &seen, outcome: Outcome::default() };
        prepared.iter().for_each(|prepared| worker.job(prepared));
        worker.outcome
    };
    let found: Vec<Outcome> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..limits.workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    found.into_iter().for_each(|outcome| total.merge(outcome));
    total.violations.sort_by_key(|violation| (violation.replay.len(), violation.replay.clone()));
    total
}

struct Prepared<'j> {
    job: &'j Job,
    run: Run,
    next: AtomicU64,
    found: AtomicU64,
    stop: AtomicBool,
}

struct Worker<'a> {
    limits: &'a Limits,
    seen: &'a Seen,
    outcome: Outcome,
}

/// A state on its way to the judge.
struct Case<'c> {
    job: &'c Job,
    allowed: &'c Allowed,
    /// Choices so far, each inside of the recovery from the one before.
    path: &'c str,
    /// What the state owes, as a number.
    owes: u64,
    depth: u32,
}

impl Worker<'_> {
    fn job(&mut self, prepared: &Prepared<'_>) {
        let run = &prepared.run;
        let points = run.trace.events.len() as u64 + 1;
        let mut explorer = Explorer::new(&run.trace);
        self.note_breakable(run);
        loop {
            let point = prepared.next.fetch_add(1, Ordering::Relaxed);
            if point >= points || prepared.stop.load(Ordering::Relaxed) {
                break;
            }
            explorer.seek(point);
            let allowed = run.allowed(point);
            let owes = mix(allowed.key);
            let path = format!("{}:{}", prepared.job.workload.name, prepared.job.setting.name);
            let case = Case { job: prepared.job, allowed: &allowed, path: &path, owes, depth: 0 };
            self.kill(prepared, &case, &explorer, run);
            let limits = self.limits.states.clone();
            let at = explorer.point();
            if at.units() > self.limits.single_units {
                self.sample(prepared, &case, &explorer, run, &at);
            } else {
                explorer.for_each_image(&limits, |choice, image| self.visit(prepared, &case, run, choice, image));
            }
        }
        self.outcome.tally.merge(explorer.tally());
        self.outcome.coverage.merge(explorer.coverage());
    }

    /// None, all and samples of a point with very many units.
    fn sample(&mut self, prepared: &Prepared<'_>, case: &Case<'_>, explorer: &Explorer<'_>, run: &Run, at: &Point) {
        let limits = &self.limits.states;
        let (samples, seed) = (limits.samples, limits.seed);
        let picks = [Pick::None, Pick::All].into_iter().chain((0..samples).map(|n| Pick::Seed(seed, n)));
        let mut images = 0;
        for pick in picks {
            let choice = Choice { point: at.index(), pick };
            images += 1;
            if self.visit(prepared, case, run, &choice, &at.image_of(&choice)).is_break() {
                break;
            }
        }
        self.outcome.single_capped_points += 1;
        self.outcome.tally.add(&Exploration { images, samples, units: at.units(), ..Exploration::default() });
        if let Some(site) = explorer.event().and_then(|event| event.site) {
            let seen = self.outcome.coverage.sites.entry(site).or_default();
            seen.points += 1;
            seen.images += images;
        }
    }

    fn note_breakable(&mut self, run: &Run) {
        for event in &run.trace.events {
            breakable(event.site, &event.kind, &mut self.outcome.breakable);
        }
    }

    fn kill(&mut self, prepared: &Prepared<'_>, case: &Case<'_>, explorer: &Explorer<'_>, run: &Run) {
        let choice = Choice { point: explorer.index(), pick: Pick::Kill };
        self.outcome.kills += 1;
        let _ = self.visit(prepared, case, run, &choice, &explorer.kill_image());
    }

    fn visit(
        &mut self,
        prepared: &Prepared<'_>,
        case: &Case<'_>,
        run: &Run,
        choice: &Choice,
        image: &Image,
    ) -> ControlFlow<()> {
        let hash = mix(image.hash() ^ case.owes);
        if !insert(&self.seen.images, hash) {
            self.outcome.duplicates += 1;
            return ControlFlow::Continue(());
        }
        self.outcome.recoveries += 1;
        let whole = matches!(choice.pick, Pick::All | Pick::None | Pick::Kill);
        let sampled = |one_in: u64, salt: u64| one_in > 0 && mix(hash ^ salt).is_multiple_of(one_in);
        let nested = case.depth == 0 && (whole || sampled(self.limits.nested_one_in, 1));
        let extent = Extent {
            twice: whole || sampled(self.limits.go_on_one_in, 2),
            go_on: whole || nested || sampled(self.limits.go_on_one_in, 3),
        };
        match live(&case.job.workload, &case.job.setting, image, case.allowed, extent) {
            Ok(life) => {
                if insert(&self.seen.states, mix(life.fingerprint)) {
                    self.outcome.distinct += 1;
                    self.outcome.nested += u64::from(case.depth > 0);
                }
                if nested && life.served.is_some() {
                    self.nested(prepared, case, choice, life, hash, whole);
                }
            }
            Err(what) => {
                let replay = format!("{}{}{choice}", case.path, if case.depth == 0 { ":" } else { "/" });
                let what = format!("{what} ({})", run.moment(choice.point));
                self.outcome.violations.push(Violation { replay, what });
                let found = prepared.found.fetch_add(1, Ordering::Relaxed) + 1;
                if found as usize >= self.limits.violations {
                    prepared.stop.store(true, Ordering::Relaxed);
                }
            }
        }
        if prepared.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Crashes inside of a recovery and of what followed it.
    fn nested(
        &mut self,
        prepared: &Prepared<'_>,
        case: &Case<'_>,
        choice: &Choice,
        life: Life,
        hash: u64,
        whole: bool,
    ) {
        let served = life.served.unwrap_or_default() as u64;
        let run = Run {
            trace: life.world.trace(),
            before: case.allowed.states.clone(),
            unmade: case.allowed.unmade,
            operations: life.operations,
            failure: None,
        };
        drop(life.world);
        self.note_breakable(&run);
        let path = format!("{}:{choice}", case.path);
        let mut explorer = Explorer::new(&run.trace);
        let points = run.trace.events.len() as u64 + 1;
        let mut chosen: Vec<u64> = if whole {
            (0..points).collect()
        } else {
            (0..self.limits.nested_points).map(|i| mix(hash ^ (i << 8 | 7)) % points).collect()
        };
        chosen.sort_unstable();
        chosen.dedup();
        for point in chosen {
            explorer.seek(point);
            let allowed = run.allowed(point);
            let owes = mix(case.owes ^ mix(allowed.key * 4 + served + 1000));
            let case = Case { job: case.job, allowed: &allowed, path: &path, owes, depth: case.depth + 1 };
            self.kill(prepared, &case, &explorer, &run);
            // Not all that a point allows, nor each unit by itself: that is what points of runs are for.
            let at = explorer.point();
            if let Some(site) = explorer.event().and_then(|event| event.site) {
                let seen = self.outcome.coverage.sites.entry(site).or_default();
                seen.events += 1;
                seen.points += 1;
                seen.images += 2 + self.limits.nested_samples;
            }
            let seeds = (0..self.limits.nested_samples).map(|n| Pick::Seed(hash, n));
            for pick in [Pick::None, Pick::All].into_iter().chain(seeds) {
                let choice = Choice { point, pick };
                if self.visit(prepared, &case, &run, &choice, &at.image_of(&choice)).is_break() {
                    return;
                }
                if at.units() == 0 {
                    break;
                }
            }
        }
    }
}
