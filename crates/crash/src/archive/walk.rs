//! Walking over the crash points of a large group, and over some states of each: two workers, one count.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use wholly_sim::{Choice, EventKind, Exploration, Explorer, Fate, Image, Pick, Point, Random};

use super::Archive;
use super::judge::{Allowed, Life, live, recovery, view};
use super::unpack::{FILES, Recorded, record};
use crate::explore::{Outcome, Violation};
use crate::replay::{BadName, Crash, Replay, check, timeline};
use crate::seen::Seen;
use crate::setting::Setting;
use crate::workload::mix;

/// Events that a replay's table ends with: of all of them there are too many to look at.
const SHOWN: u64 = 60;

/// How far it is gone through.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One in so many events is a crash point.
    pub every: u64,
    /// So many points before and behind each event that orders are, too.
    pub near: u64,
    /// At most so many of the events that order count, spread over all of them.
    pub orders: usize,
    /// Samples of each point; of the units drawn one by one, as many.
    pub samples: u64,
    /// Where something is broken in the run: only from there on.
    pub from_break: bool,
    /// One state in so many lives on after recovery.
    pub go_on_one_in: u64,
    /// One in so many of those is crashed again, inside of its recovery and of what follows.
    pub nested_one_in: u64,
    /// At so many points.
    pub nested_points: u64,
    /// Threads that share the points.
    pub workers: usize,
    /// Violations after which it is given up.
    pub violations: usize,
}

impl Limits {
    /// What `make test` does: less than a minute.
    pub fn quick() -> Limits {
        Limits {
            every: 48_000,
            near: 0,
            orders: 3,
            samples: 1,
            from_break: false,
            go_on_one_in: 8,
            nested_one_in: 4,
            nested_points: 2,
            workers: 2,
            violations: 3,
        }
    }

    /// What `make crash` does.
    pub fn thorough() -> Limits {
        Limits {
            every: 200,
            near: 3,
            orders: usize::MAX,
            samples: 3,
            go_on_one_in: 4,
            nested_points: 8,
            ..Limits::quick()
        }
    }

    /// Only enough to see whether something is broken: where the commit and the pass end.
    pub fn hunt() -> Limits {
        Limits { every: u64::MAX, orders: 1, from_break: true, violations: 1, ..Limits::quick() }
    }
}

/// Explores the commit of 10,000 new files, and the pass that takes them home, in one world.
pub fn explore(archive: Archive, setting: &Setting, seen: &Seen, limits: &Limits) -> Outcome {
    let recorded = record(archive, setting);
    let mut total = Outcome { runs: 1, ..Outcome::default() };
    if let Some(failure) = &recorded.failure {
        let replay = format!("{}:{}:run", archive.name(), setting.name);
        total.violations.push(Violation { replay, what: format!("without a crash: {failure}") });
    }
    let before = (seen.distinct(), seen.nested());
    let points = points(&recorded, limits);
    let shared = Shared {
        archive,
        recorded: &recorded,
        setting,
        limits,
        seen,
        points: &points,
        next: AtomicUsize::new(0),
        found: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let found: Vec<Outcome> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..limits.workers).map(|_| scope.spawn(|| shared.work())).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    found.into_iter().for_each(|outcome| total.merge(outcome));
    total.distinct = seen.distinct() - before.0;
    total.nested = seen.nested().saturating_sub(before.1);
    total.violations.sort_by_key(|violation| (violation.replay.len(), violation.replay.clone()));
    total
}

/// Whether an event orders others, or is one side of a call that does.
fn orders(kind: &EventKind) -> bool {
    use EventKind::{Done, Fence, LogLen, Sync, SyncAll, SyncDir, Through};
    matches!(kind, Done { .. } | Fence { .. } | LogLen { .. } | Sync { .. } | SyncAll | SyncDir { .. } | Through { .. })
}

/// The crash points, in order.
fn points(recorded: &Recorded, limits: &Limits) -> Vec<u64> {
    let last = recorded.trace.events.len() as u64;
    let mut points: BTreeSet<u64> =
        (recorded.began..=last).step_by(usize::try_from(limits.every).unwrap_or(usize::MAX)).collect();
    let ordering: Vec<u64> =
        (recorded.began..last).filter(|event| orders(&recorded.trace.events[*event as usize].kind)).collect();
    // Of the last ones all: where the commit and the pass end.
    let step = ordering.len().div_ceil(limits.orders).max(1);
    let ends = [recorded.commit, recorded.committed.saturating_sub(1), recorded.home.saturating_sub(1)];
    for event in ordering.into_iter().rev().step_by(step).chain(ends.into_iter().filter(|end| *end <= last)) {
        points.extend(event.saturating_sub(limits.near).max(recorded.began)..=(event + 1 + limits.near).min(last));
    }
    if limits.from_break {
        let broken = recorded.trace.events.iter().position(|event| event.fate != Fate::Normal);
        points = points.split_off(&(broken.unwrap_or(0) as u64));
    }
    points.into_iter().collect()
}

/// What a crash at a point may leave.
fn allowed(recorded: &Recorded, point: u64) -> Allowed {
    [point < recorded.committed, point > recorded.commit]
}

fn moment(recorded: &Recorded, point: u64) -> &'static str {
    match point {
        _ if point <= recorded.commit => "before the commit",
        _ if point < recorded.committed => "during the commit",
        _ if point < recorded.home => "during the pass",
        _ => "at the end",
    }
}

struct Shared<'s> {
    archive: Archive,
    recorded: &'s Recorded,
    setting: &'s Setting,
    limits: &'s Limits,
    seen: &'s Seen,
    points: &'s [u64],
    next: AtomicUsize,
    found: AtomicU64,
    stop: AtomicBool,
}

/// A state on its way to the judge.
struct Case<'c> {
    /// The choices before this one.
    path: &'c str,
    moment: &'static str,
    allowed: Allowed,
    depth: u32,
}

impl Shared<'_> {
    fn work(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let trace = &self.recorded.trace;
        let mut explorer = Explorer::new(trace);
        while let Some(point) = self.points.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            explorer.seek(*point);
            let allowed = allowed(self.recorded, *point);
            let case = Case { path: "", moment: moment(self.recorded, *point), allowed, depth: 0 };
            self.states(&explorer, &case, self.limits.samples, &mut outcome);
        }
        outcome
    }

    /// Judges some states of the point where the explorer stands.
    fn states(&self, explorer: &Explorer<'_>, case: &Case<'_>, samples: u64, outcome: &mut Outcome) {
        let at = explorer.point();
        let picks = match (at.units(), case.depth) {
            (0, _) => vec![Pick::None],
            (_, 0) => picks(&at, samples),
            // What a run allows is asked at the points of runs.
            _ => vec![Pick::None, Pick::All, Pick::Seed(42, 0)],
        };
        let count = picks.len() as u64;
        let one = |pick| Choice { point: at.index(), pick };
        outcome.kills += 1;
        self.visit(&one(Pick::Kill), &explorer.kill_image(), case, outcome);
        for choice in picks.into_iter().map(one) {
            let image = at.image_of(&choice);
            self.visit(&choice, &image, case, outcome);
        }
        if case.depth == 0 {
            let exhaustive = at.units() == 0;
            let (images, combinations, units) = (count, at.combinations(), at.units());
            let drawn = if exhaustive { 0 } else { samples };
            let left_out = if exhaustive { 0 } else { (units as u64).saturating_sub(samples) };
            outcome.tally.add(&Exploration {
                images,
                combinations,
                units,
                exhaustive,
                samples: drawn,
                singles_left_out: left_out,
                pairs_left_out: (units as u64).saturating_mul((units as u64).saturating_sub(1)),
                ..Exploration::default()
            });
        }
        if let Some(site) = explorer.event().and_then(|event| event.site) {
            let seen = outcome.coverage.sites.entry(site).or_default();
            (seen.events, seen.points, seen.images) = (seen.events + 1, seen.points + 1, seen.images + count);
        }
    }

    fn visit(&self, choice: &Choice, image: &Image, case: &Case<'_>, outcome: &mut Outcome) {
        if self.stop.load(Ordering::Relaxed) {
            return;
        }
        let owes = u64::from(case.allowed[0]) << 1 | u64::from(case.allowed[1]);
        let hash = mix(image.hash() ^ mix(owes) ^ mix(FILES.into()));
        if !self.seen.image(hash ^ mix(u64::from(case.depth > 0))) {
            outcome.duplicates += 1;
            return;
        }
        outcome.recoveries += 1;
        let sampled = |one_in: u64, salt: u64| one_in > 0 && mix(hash ^ salt).is_multiple_of(one_in);
        let go_on = sampled(self.limits.go_on_one_in, 1);
        match live(self.setting, image, &self.recorded.sides, case.allowed, go_on) {
            Ok(life) => {
                self.seen.state(life.fingerprint, case.depth > 0);
                if go_on && case.depth == 0 && sampled(self.limits.nested_one_in, 2) {
                    self.nested(&life, choice, case, hash, outcome);
                }
            }
            Err(what) => {
                let replay = format!("{}:{}:{}{choice}", self.archive.name(), self.setting.name, case.path);
                let what = format!("{what} ({})", case.moment);
                outcome.violations.push(Violation { replay, what });
                let found = self.found.fetch_add(1, Ordering::Relaxed) + 1;
                if found as usize >= self.limits.violations {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Crashes inside of a recovery and of the pass that followed it.
    fn nested(&self, life: &Life, choice: &Choice, case: &Case<'_>, hash: u64, outcome: &mut Outcome) {
        let mut explorer = Explorer::new(&life.trace);
        let count = life.trace.events.len() as u64;
        let draw = |i: u64, below: u64| mix(hash ^ (i << 8 | 7)) % below;
        // Half of them inside of the recovery, of which there is less.
        let points: BTreeSet<u64> = (0..self.limits.nested_points)
            .map(|i| if i % 2 == 0 { draw(i, life.recovered + 1) } else { draw(i, count + 1) })
            .collect();
        let path = format!("{choice}/");
        for point in points {
            explorer.seek(point);
            let (allowed, moment) = life.allowed(point, case.allowed);
            let case = Case { path: &path, moment, allowed, depth: case.depth + 1 };
            self.states(&explorer, &case, 1, outcome);
        }
    }
}

/// The choices of a point: see the module.
fn picks(at: &Point, samples: u64) -> Vec<Pick> {
    let mut picks = vec![Pick::None, Pick::All];
    if let Some(last) = at.last_pending_event() {
        picks.extend([Pick::But(last), Pick::Only(last)]);
    }
    let mut random = Random(at.index());
    for n in 0..samples {
        picks.push(Pick::Seed(42, n));
        let mut unit = || random.below(at.units() as u64) as u32;
        picks.extend([Pick::Not(vec![unit()]), Pick::Set(vec![unit()])]);
    }
    picks
}

/// Rebuilds and judges the state of this name, which is in this world by this path.
///
/// # Errors
/// Where the name has no meaning.
pub(crate) fn replay(archive: Archive, name: &str, setting: &Setting, path: &str) -> Result<Replay, BadName> {
    let recorded = record(archive, setting);
    let mut done = Replay { name: name.into(), crashes: Vec::new(), violation: None };
    if path == "run" {
        done.violation = recorded.failure.map(|failure| format!("without a crash: {failure}"));
        return Ok(done);
    }
    let mut lives: Vec<(Life, Allowed)> = Vec::new();
    for choice in path.split('/') {
        let trace = lives.last().map_or(&recorded.trace, |(life, _)| &life.trace);
        let choice: Choice = choice.parse().map_err(|error| BadName(format!("{name}: {error}")))?;
        check(name, trace, &choice)?;
        let (allowed, moment) = match lives.last() {
            Some((life, allowed)) => life.allowed(choice.point, *allowed),
            None => (allowed(&recorded, choice.point), moment(&recorded, choice.point)),
        };
        let image = trace.image_of(&choice);
        let sides = [0, 1].into_iter().filter(|side| allowed[*side]);
        done.crashes.push(Crash {
            moment: moment.into(),
            timeline: timeline(trace, &choice, SHOWN),
            choice,
            allowed: sides.map(view).collect(),
            files: Vec::new(),
            recovery: recovery(setting, &image, &recorded.sides, SHOWN),
        });
        match live(setting, &image, &recorded.sides, allowed, true) {
            Ok(life) => lives.push((life, allowed)),
            Err(what) => {
                done.violation = Some(what);
                break;
            }
        }
    }
    Ok(done)
}
