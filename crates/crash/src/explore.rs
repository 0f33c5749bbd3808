//! Walking over the crash points of runs, and over the states of each: two workers, one count.
//!
//! A state is judged once: images are told apart by their hash, together with what they owe. States are counted by what
//! recovery and the reading of all files looked at (the *fingerprint*), so that two images which differ where nobody
//! looks count once.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wholly::site;
use wholly_media::Site;
use wholly_sim::{Choice, Coverage, ExploreLimits, Explorer, Fate, Image, Pick, Point, Tally};

use crate::life::{Extent, Life, live, reads_of};
use crate::mutants::{Breakable, breakable};
use crate::run::{Allowed, Run, run};
use crate::seen::Seen;
use crate::setting::Setting;
use crate::subject::Subject;
use crate::workload::{Workload, mix};

/// How far everything is gone through.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The states of a point.
    pub states: ExploreLimits,
    /// One in so many states is crashed inside of its recovery, at `nested_points` points.
    pub nested_one_in: u64,
    /// Of states that keep all or nothing of what is pending, and of deaths of the process, one in so many is crashed
    /// at every point of recovery, and where each later operation returns.
    pub whole_one_in: u64,
    /// Points of a recovery and of what follows it, drawn.
    pub nested_points: u64,
    /// States of a point inside of recovery that are drawn, besides none, all, and all but what one of the last events
    /// wrote.
    pub nested_samples: u64,
    /// One in so many states lives on after recovery, and as many recover twice.
    pub go_on_one_in: u64,
    /// Where something is broken in the run: only from there on.
    pub from_break: bool,
    /// So many operations that a run begins with are not crashed: other programs begin with the same.
    pub skipped: usize,
    /// Whether each recovery that comes by a rare site is crashed from there on, and not only some of them.
    pub every_rare: bool,
    /// Threads that share the points.
    pub workers: usize,
    /// Violations after which a job is given up.
    pub violations: usize,
}

impl Limits {
    /// What `make test` does: some minutes.
    pub fn quick() -> Limits {
        let states = ExploreLimits {
            exhaustive_bits: 11,
            single_units: 300,
            pair_units: 24,
            samples: 600,
            focus_bits: 6,
            ..ExploreLimits::default()
        };
        Limits {
            states,
            nested_one_in: 16,
            whole_one_in: 1,
            nested_points: 2,
            nested_samples: 2,
            go_on_one_in: 4,
            from_break: false,
            skipped: 0,
            every_rare: false,
            workers: 2,
            violations: 3,
        }
    }

    /// What `make crash` does.
    pub fn thorough() -> Limits {
        Limits { states: ExploreLimits { focus_bits: 10, ..ExploreLimits::default() }, ..Limits::quick() }
    }

    /// Only enough to see whether something is broken.
    pub fn hunt() -> Limits {
        let states = ExploreLimits {
            exhaustive_bits: 6,
            single_units: 300,
            pair_units: 0,
            samples: 40,
            focus_bits: 4,
            ..ExploreLimits::default()
        };
        Limits { states, nested_one_in: 8, nested_points: 3, violations: 1, ..Limits::quick() }
    }

    /// Of very many small programs, a little each.
    pub fn sweep() -> Limits {
        let states =
            ExploreLimits { exhaustive_bits: 2, single_units: 0, samples: 3, focus_bits: 0, ..Limits::hunt().states };
        Limits { states, nested_one_in: 64, whole_one_in: 64, nested_points: 2, nested_samples: 1, ..Limits::hunt() }
    }

    /// What is tried first of a hunt: less than enough, but most of what is broken shows.
    pub fn glance() -> Limits {
        let states =
            ExploreLimits { exhaustive_bits: 3, single_units: 24, samples: 8, focus_bits: 3, ..Limits::hunt().states };
        Limits {
            states,
            nested_one_in: 32,
            whole_one_in: 3,
            nested_points: 2,
            nested_samples: 1,
            from_break: true,
            ..Limits::hunt()
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
    /// Groups in runs that were given up because another one was in the way.
    pub busy: u64,
    /// Points and images, with every cap that was hit.
    pub tally: Tally,
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
        self.busy += other.busy;
        self.tally.merge(&other.tally);
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
        write!(
            f,
            "{} runs, {} groups in the way of others: {}\n{} recoveries, {} images seen before; {} distinct states, {} of them inside of recoveries; {} deaths of the process; {} violations",
            self.runs,
            self.busy,
            self.tally,
            self.recoveries,
            self.duplicates,
            self.distinct,
            self.nested,
            self.kills,
            self.violations.len()
        )
    }
}

/// A subject, with its program, in a world.
#[derive(Clone, Debug)]
pub struct Job<S = Workload> {
    /// What is explored.
    pub subject: S,
    /// Where.
    pub setting: Setting,
}

/// Explores one subject in one world.
pub fn explore<S: Subject + Clone>(subject: &S, setting: &Setting, limits: &Limits) -> Outcome {
    explore_all(&[Job { subject: subject.clone(), setting: setting.clone() }], limits)
}

/// Explores many, counting a state once.
pub fn explore_all<S: Subject>(jobs: &[Job<S>], limits: &Limits) -> Outcome {
    explore_into(&Seen::default(), jobs, limits)
}

/// Explores many, leaving out what was seen before. Points are shared by the workers; what is found does not depend on
/// who takes which.
pub fn explore_into<S: Subject>(seen: &Seen, jobs: &[Job<S>], limits: &Limits) -> Outcome {
    let mut total = Outcome::default();
    let mut prepared = Vec::new();
    for job in jobs {
        let run = run(&job.subject, &job.setting);
        total.runs += 1;
        total.busy += run.busy;
        if let Some(what) = run.wrong(&job.subject) {
            let replay = format!("{}:{}:run", job.subject.name(), job.setting.name);
            total.violations.push(Violation { replay, what });
        }
        prepared.push(Prepared::new(job, run, limits));
    }
    let work = || {
        let mut worker = Worker { limits, seen, outcome: Outcome::default() };
        prepared.iter().for_each(|prepared| worker.job(prepared));
        worker.outcome
    };
    let before = (seen.distinct(), seen.nested());
    if limits.workers == 1 {
        total.merge(work());
    } else {
        let found: Vec<Outcome> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..limits.workers).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
        });
        found.into_iter().for_each(|outcome| total.merge(outcome));
    }
    total.distinct = seen.distinct() - before.0;
    total.nested = seen.nested().saturating_sub(before.1);
    total.violations.sort_by_key(|violation| (violation.replay.len(), violation.replay.clone()));
    total
}

struct Prepared<'j, S> {
    job: &'j Job<S>,
    run: Run,
    /// Of the world: a state is one of its world.
    world: u64,
    /// Of all that matters to what comes after a crash, but the image and what is allowed.
    rules: u64,
    next: AtomicU64,
    found: AtomicU64,
    stop: AtomicBool,
}

impl<'j, S: Subject> Prepared<'j, S> {
    fn new(job: &'j Job<S>, run: Run, limits: &Limits) -> Self {
        let rules = format!("{} {}", job.setting.name, job.subject.rules());
        let broken = run.trace.events.iter().position(|event| event.fate != Fate::Normal);
        let broken = if limits.from_break { broken.unwrap_or(0) as u64 } else { 0 };
        let skipped = limits.skipped.checked_sub(1).and_then(|last| run.operations.get(last));
        let first = skipped.map_or(0, |operation| operation.end).max(broken);
        Prepared {
            job,
            world: hash_of(&job.setting.name),
            rules: hash_of(&rules),
            run,
            next: AtomicU64::new(first),
            found: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }
}

fn hash_of(text: &str) -> u64 {
    text.bytes().fold(0, |h, byte| mix(h ^ u64::from(byte)))
}

/// Sites from which on to its end every recovery that is crashed inside is crashed.
pub(crate) const RARE: [Site; 3] = [site::RECOVER_WIPE, Site("wal.recover.commit"), Site("wal.recover")];

/// Whether an engine of volumes passes the site in recovery only.
pub(crate) fn is_in_recovery(site: Site) -> bool {
    site.0.contains(".recover")
}

/// At a point inside of recovery, so many of the last events are lost in turn.
const NESTED_EVENTS: usize = 4;

struct Worker<'a> {
    limits: &'a Limits,
    seen: &'a Seen,
    outcome: Outcome,
}

/// A state on its way to the judge.
struct Case<'c, S> {
    job: &'c Job<S>,
    allowed: &'c Allowed,
    /// Choices so far, each inside of the recovery from the one before.
    path: &'c str,
    /// What the state owes, as a number.
    owes: u64,
    depth: u32,
}

impl Worker<'_> {
    fn job<S: Subject>(&mut self, prepared: &Prepared<'_, S>) {
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
            let path = format!("{}:{}", prepared.job.subject.name(), prepared.job.setting.name);
            let case = Case { job: prepared.job, allowed: &allowed, path: &path, owes: mix(allowed.hash()), depth: 0 };
            self.kill(prepared, &case, &explorer, run);
            let limits = self.limited(prepared.job, &explorer.point());
            explorer.for_each_image(&limits, |choice, image| self.visit(prepared, &case, run, choice, image));
        }
        self.outcome.tally.merge(explorer.tally());
        self.outcome.coverage.merge(explorer.coverage());
    }

    /// The limits of a point: with the units that recovery reads first, those it looks at where none survives.
    fn limited<S: Subject>(&self, job: &Job<S>, at: &Point) -> ExploreLimits {
        let mut limits = self.limits.states.clone();
        if limits.focus_bits > 0 && at.combinations() > 1 << limits.exhaustive_bits.min(63) {
            let none = at.image_of(&Choice { point: at.index(), pick: Pick::None });
            limits.focus = at.units_read(&reads_of(&job.subject, &job.setting, &none));
        }
        limits
    }

    fn note_breakable(&mut self, run: &Run) {
        for event in &run.trace.events {
            breakable(event.site, &event.kind, &mut self.outcome.breakable);
        }
    }

    fn kill<S: Subject>(&mut self, prepared: &Prepared<'_, S>, case: &Case<'_, S>, explorer: &Explorer<'_>, run: &Run) {
        let choice = Choice { point: explorer.index(), pick: Pick::Kill };
        self.outcome.kills += 1;
        let _ = self.visit(prepared, case, run, &choice, &explorer.kill_image());
    }

    fn visit<S: Subject>(
        &mut self,
        prepared: &Prepared<'_, S>,
        case: &Case<'_, S>,
        run: &Run,
        choice: &Choice,
        image: &Image,
    ) -> ControlFlow<()> {
        let whole = matches!(choice.pick, Pick::All | Pick::None | Pick::Kill);
        // A state inside of a recovery is not crashed again. So it does not matter there whether what a dead process
        // wrote is durable, unless the next process can tell.
        let is_last = case.depth > 0 && !case.job.setting.sim.shows_what_is_durable();
        let image_hash = if is_last { image.hash_as_seen() } else { image.hash() };
        let hash = mix(image_hash ^ case.owes ^ prepared.rules);
        // Whatever comes first, the same is done: more is done to some, and less inside of recoveries.
        if !self.seen.image(hash ^ mix(u64::from(case.depth > 0) * 2 + u64::from(whole))) {
            self.outcome.duplicates += 1;
            return ControlFlow::Continue(());
        }
        self.outcome.recoveries += 1;
        let sampled = |one_in: u64, salt: u64| one_in > 0 && mix(hash ^ salt).is_multiple_of(one_in);
        let whole = whole && case.depth == 0 && sampled(self.limits.whole_one_in, 4);
        let nested = case.depth == 0 && (whole || sampled(self.limits.nested_one_in, 1));
        let extent = Extent {
            // Crashes inside of it are named by its points: replayed, it must be lived in the same way.
            twice: whole || nested || sampled(self.limits.go_on_one_in, 2),
            go_on: whole || nested || sampled(self.limits.go_on_one_in, 3),
        };
        match live(&case.job.subject, &case.job.setting, image, case.allowed, extent) {
            Ok(life) => {
                self.seen.state(mix(life.fingerprint ^ prepared.world), case.depth > 0);
                let every_rare = self.limits.every_rare && case.depth == 0 && !nested;
                if life.served.is_some() && (nested || every_rare) {
                    self.nested(prepared, case, choice, life, hash, (whole, nested));
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
    fn nested<S: Subject>(
        &mut self,
        prepared: &Prepared<'_, S>,
        case: &Case<'_, S>,
        choice: &Choice,
        life: Life,
        hash: u64,
        (whole, nested): (bool, bool),
    ) {
        // What follows the first recovery is not lived by all in the same way.
        let first = life.operations.iter().find(|o| o.label == "recovery").map_or(0, |o| o.end);
        let recovered =
            life.operations.iter().filter(|o| o.label.contains("recovery")).map(|o| o.end).max().unwrap_or(0);
        let run = Run {
            trace: life.world.trace(),
            before: case.allowed.states.clone(),
            unmade: case.allowed.unmade,
            operations: life.operations,
            busy: 0,
            failure: None,
        };
        drop(life.world);
        self.note_breakable(&run);
        let path = format!("{}:{choice}", case.path);
        let mut explorer = Explorer::new(&run.trace);
        let points = run.trace.events.len() as u64 + 1;
        let count = if nested { self.limits.nested_points } else { 0 };
        let mut chosen: Vec<u64> = (0..count).map(|i| mix(hash ^ (i << 8 | 7)) % points).collect();
        // What only torn states come by is not left to chance.
        let every_rare = self.limits.every_rare;
        let is_rare = |site: Site| RARE.contains(&site) || every_rare && is_in_recovery(site);
        let rare = |site: Option<Site>| site.is_some_and(is_rare);
        if let Some(at) = run.trace.events.iter().position(|event| rare(event.site)) {
            chosen.extend(at as u64 + 1..=if nested { recovered } else { first });
        }
        if whole {
            chosen.extend(0..=recovered);
            chosen.extend(run.operations.iter().map(|operation| operation.end));
        }
        chosen.sort_unstable();
        chosen.dedup();
        for point in chosen {
            explorer.seek(point);
            let allowed = run.allowed(point);
            let owes = mix(allowed.hash());
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
            let events = at.pending_events();
            let some = if events.len() > 1 { events.len().min(NESTED_EVENTS) } else { 0 };
            let buts = events[events.len() - some..].iter().map(|event| Pick::But(*event));
            for pick in [Pick::None, Pick::All].into_iter().chain(seeds).chain(buts) {
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
