//! Trying a program in many schedules, and crashes after each.
//!
//! An execution is known by its program, its world, the scheduler with its seed, and its number with that seed:
//! `own-files:pmem:pct3-17:4`. A crash of it has the choice behind: `own-files:pmem:pct3-17:4:p120:none`.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use wholly_crash::{Allowed, Extent, Promise, Setting, State, live};
use wholly_sim::{Choice, Explorer, Image, Pick};

use crate::program::{self, Program};
use crate::sync::{Mistake, make};
use crate::{Performance, Policy, perform, volume};

/// Executions in a row with one seed. (A PCT scheduler learns from one how long the next will be.)
const ROW: u64 = 40;

/// Points of an execution at which crashes are tried, besides those after each return.
const POINTS: u64 = 10;

/// Switches of an execution after which it hangs.
const MOST_STEPS: usize = 400_000;

/// What threads do, and to what: a program over a store or a volume.
pub trait Threaded: Clone + Send + Sync + 'static {
    /// Who lives on after a crash, without a scheduler.
    type After: wholly_crash::Subject;

    /// Its name.
    fn name(&self) -> &str;

    /// The world with this name.
    fn setting(name: &str) -> Option<Setting>;

    /// The same, as it is performed in rows with this seed.
    fn in_row(&self, seed: u64) -> Self;

    /// Which calls survive together.
    fn policy(&self) -> Policy;

    /// What is there before.
    fn initial(&self, setting: &Setting) -> State;

    /// See the type.
    fn after(&self) -> Self::After;

    /// Performs it. To be called in an execution of the scheduler.
    fn perform(&self, setting: &Setting) -> Performance;
}

impl Threaded for Program {
    type After = wholly_crash::Workload;

    fn name(&self) -> &str {
        self.name
    }

    fn setting(name: &str) -> Option<Setting> {
        Setting::find(name)
    }

    /// In every second row host files are closed as soon as may be, and groups commit on the general path.
    fn in_row(&self, seed: u64) -> Program {
        Program { open_files: if seed.is_multiple_of(2) { 256 } else { 0 }, ..self.clone() }
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn initial(&self, _setting: &Setting) -> State {
        Program::initial(self)
    }

    fn after(&self) -> wholly_crash::Workload {
        self.workload()
    }

    fn perform(&self, setting: &Setting) -> Performance {
        perform::perform(self, setting)
    }
}

/// Who decides which thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chooser {
    /// Any thread at any time.
    Random,
    /// The one of the highest priority; priorities change at so many times less one.
    Pct(usize),
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows of executions of each program in each world with each scheduler.
    pub rows: u64,
    /// Mistakes are made in all of them.
    pub mistake: Option<Mistake>,
    /// States that a crash may leave of each point, drawn, besides none and all of what is pending.
    pub samples: u64,
}

/// What was tried.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Executions.
    pub executions: u64,
    /// Executions that stored other bytes, or in another order, than all before of the same program and world.
    pub distinct: u64,
    /// Recoveries of states that differ.
    pub recoveries: u64,
    /// What is wrong.
    pub violations: Vec<String>,
}

impl Outcome {
    /// Adds another outcome.
    pub fn merge(&mut self, other: Outcome) {
        self.executions += other.executions;
        self.distinct += other.distinct;
        self.recoveries += other.recoveries;
        self.violations.extend(other.violations);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { executions, distinct, recoveries, violations } = self;
        write!(
            f,
            "{executions} executions, {distinct} of them distinct, {recoveries} recoveries, {} violations",
            violations.len()
        )?;
        violations.iter().try_for_each(|violation| write!(f, "\n{violation}"))
    }
}

/// Tries `program` in the world `setting` with each of `choosers`; gives up at the first violation.
pub fn explore(program: &impl Threaded, setting: &str, choosers: &[Chooser], limits: &Limits) -> Outcome {
    let mut judge = Judge::new(program, setting, limits);
    for chooser in choosers {
        for seed in 0..limits.rows {
            judge = judge.row(*chooser, seed, ROW, None);
            if !judge.outcome.violations.is_empty() {
                return judge.outcome;
            }
        }
    }
    judge.outcome
}

/// Tries `program` in one row only.
pub fn explore_row(program: &impl Threaded, setting: &str, chooser: Chooser, seed: u64) -> Outcome {
    let limits = Limits { rows: 1, mistake: None, samples: 2 };
    Judge::new(program, setting, &limits).row(chooser, seed, ROW, None).outcome
}

/// Does an execution again, by its name, and judges the crash that the name tells, or many. Says what it finds.
///
/// # Errors
/// Where the name has no meaning.
pub fn replay(name: &str, mistake: Option<Mistake>) -> Result<Outcome, String> {
    let bad = || format!("{name}: expected an execution such as own-files:pmem:pct3-17:4");
    let mut parts = name.splitn(5, ':');
    let mut part = || parts.next().ok_or_else(bad);
    let (name, setting) = (part()?, part()?);
    let (chooser, seed) = part()?.split_once('-').ok_or_else(bad)?;
    let chooser = match chooser.strip_prefix("pct") {
        Some(depth) => Chooser::Pct(depth.parse().map_err(|_| bad())?),
        None => Chooser::Random,
    };
    let seed = seed.parse().map_err(|_| bad())?;
    let number: u64 = part()?.parse().map_err(|_| bad())?;
    let choice: Option<Choice> = parts.next().map(|choice| choice.parse().map_err(|_| bad())).transpose()?;
    let limits = Limits { rows: 1, mistake, samples: 50 };
    let only = Some((number, choice));
    fn again<P: Threaded>(program: &P, setting: &str, limits: &Limits) -> Option<Judge<P>> {
        P::setting(setting).map(|_| Judge::new(program, setting, limits))
    }
    let outcome = match (program::find(name), volume::find(name)) {
        (Some(program), _) => {
            again(&program, setting, &limits).map(|judge| judge.row(chooser, seed, number + 1, only).outcome)
        }
        (None, Some(program)) => {
            again(&program, setting, &limits).map(|judge| judge.row(chooser, seed, number + 1, only).outcome)
        }
        (None, None) => None,
    };
    outcome.ok_or_else(bad)
}

impl fmt::Display for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Chooser::Random => write!(f, "random"),
            Chooser::Pct(depth) => write!(f, "pct{depth}"),
        }
    }
}

/// The scheduler of a row, between whose executions the last one is judged.
struct Row<P> {
    scheduler: Box<dyn Scheduler + Send>,
    shared: Arc<Mutex<Judge<P>>>,
    left: u64,
}

impl<P: Threaded> Scheduler for Row<P> {
    fn new_execution(&mut self) -> Option<Schedule> {
        let mut judge = lock(&self.shared);
        judge.judge_last();
        if self.left == 0 || !judge.outcome.violations.is_empty() {
            // It says that it failed where it is not asked to the end.
            while self.scheduler.new_execution().is_some() {}
            return None;
        }
        self.left -= 1;
        judge.number = judge.number.map_or(Some(0), |number| Some(number + 1));
        self.scheduler.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        self.scheduler.next_task(runnable, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.scheduler.next_u64()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Judge<P> {
    program: P,
    setting: Setting,
    limits: Limits,
    outcome: Outcome,
    traces: HashSet<u64>,
    states: HashSet<u64>,
    /// The scheduler and seed of the row, for names.
    row: String,
    /// The number of the execution in the row.
    number: Option<u64>,
    /// What it came to; none while it runs, or after it has panicked.
    last: Option<Performance>,
    /// The only execution, and the only crash, that is asked for.
    only: Option<(u64, Option<Choice>)>,
}

impl<P: Threaded> Judge<P> {
    fn new(program: &P, setting: &str, limits: &Limits) -> Self {
        Judge {
            program: program.clone(),
            setting: P::setting(setting).unwrap_or_else(|| panic!("no world is called {setting:?}")),
            limits: *limits,
            outcome: Outcome::default(),
            traces: HashSet::new(),
            states: HashSet::new(),
            row: String::new(),
            number: None,
            last: None,
            only: None,
        }
    }

    /// Runs the first `executions` of a row.
    fn row(mut self, chooser: Chooser, seed: u64, executions: u64, only: Option<(u64, Option<Choice>)>) -> Self {
        let iterations = executions as usize;
        let scheduler: Box<dyn Scheduler + Send> = match chooser {
            Chooser::Random => Box::new(RandomScheduler::new_from_seed(seed, iterations)),
            Chooser::Pct(depth) => Box::new(PctScheduler::new_from_seed(seed, depth, iterations)),
        };
        (self.row, self.number, self.only) = (format!("{chooser}-{seed}"), None, only);
        let program = self.program.in_row(seed);
        let (setting, mistake) = (self.setting.clone(), self.limits.mistake);
        let shared = Arc::new(Mutex::new(self));
        let row = Row { scheduler, shared: shared.clone(), left: executions };
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
        config.silence_warnings = true;
        make(mistake);
        let performer = shared.clone();
        let run = std::panic::AssertUnwindSafe(|| {
            Runner::new(row, config).run(move || {
                let performance = program.perform(&setting);
                lock(&performer).last = Some(performance);
            })
        });
        let panicked = std::panic::catch_unwind(run).err();
        make(None);
        let mut judge = lock(&shared);
        if let Some(panic) = panicked {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            judge.violate(None, &format!("panic: {}", text.unwrap_or_default()));
        }
        let empty = Judge::new(&judge.program, &judge.setting.name, &judge.limits);
        std::mem::replace(&mut judge, empty)
    }

    fn violate(&mut self, choice: Option<&Choice>, what: &str) {
        let choice = choice.map_or(String::new(), |choice| format!(":{choice}"));
        let (program, setting, row) = (self.program.name(), &self.setting.name, &self.row);
        let number = self.number.unwrap_or_default();
        self.outcome.violations.push(format!(
            "{what}\n    WHOLLY_SCHEDULE='{program}:{setting}:{row}:{number}{choice}' cargo test -p wholly-threads --test all schedules::replay -- --nocapture"
        ));
    }

    fn judge_last(&mut self) {
        let Some(performance) = self.last.take() else { return };
        if self.only.as_ref().is_some_and(|(number, _)| Some(*number) != self.number) {
            return;
        }
        self.outcome.executions += 1;
        if let Some(failure) = &performance.failure {
            return self.violate(None, failure);
        }
        let Performance { history, .. } = &performance;
        let initial = self.program.initial(&self.setting);
        let all = history.allowed(as_seen(), &initial, u64::MAX - 1);
        let served = performance.served.as_ref().expect("nothing failed");
        if !all.iter().any(|state| **state == *served) {
            let what = "no order of what was done explains what was seen and what is served in the end";
            return self.violate(None, &format!("{what}\n{history}"));
        }
        if !self.traces.insert(hash_of(&performance)) && self.only.is_none() {
            return;
        }
        self.outcome.distinct += 1;
        self.crash(&performance, &initial);
    }

    fn crash(&mut self, performance: &Performance, initial: &State) {
        let (trace, history) = (&performance.trace, &performance.history);
        let after = self.program.after();
        let last = trace.events.len() as u64;
        let times = history.times();
        let random = |n: u64| performance.made + mix(hash_of(performance) ^ n) % (last + 1 - performance.made);
        let mut points: Vec<u64> = times.iter().copied().chain((0..POINTS).map(random)).collect();
        if let Some((_, Some(choice))) = &self.only {
            points = vec![choice.point];
        }
        points.sort_unstable();
        points.dedup();
        let mut explorer = Explorer::new(trace);
        let mut allowed: Option<(usize, Allowed)> = None;
        for point in points {
            explorer.seek(point);
            let epoch = times.partition_point(|time| *time <= point);
            if allowed.as_ref().is_none_or(|(of, _)| *of != epoch) {
                let states = history.allowed(self.program.policy(), initial, point);
                assert!(!states.is_empty(), "the state in the end was explained, so this one is");
                let states = states.iter().map(|state| Promise::new((**state).clone())).collect();
                allowed = Some((epoch, Allowed { states, unmade: false }));
            }
            let allowed = &allowed.as_ref().expect("it was just made").1;
            let at = explorer.point();
            let seeds = (0..self.limits.samples).map(|n| Pick::Seed(mix(point ^ allowed.hash()), n));
            let picks = [Pick::None, Pick::All, Pick::Kill].into_iter().chain(seeds);
            let picks: Vec<Choice> = match &self.only {
                Some((_, Some(choice))) => vec![choice.clone()],
                _ => picks.map(|pick| Choice { point, pick }).collect(),
            };
            for choice in picks {
                if at.units() == 0 && matches!(choice.pick, Pick::Seed(..) | Pick::All) && self.only.is_none() {
                    continue;
                }
                let image = match choice.pick {
                    Pick::Kill => explorer.kill_image(),
                    _ => at.image_of(&choice),
                };
                if let Err(what) = self.recover(&after, &image, allowed) {
                    return self.violate(Some(&choice), &what);
                }
            }
        }
    }

    fn recover(&mut self, after: &P::After, image: &Image, allowed: &Allowed) -> Result<(), String> {
        let hash = mix(image.hash() ^ allowed.hash());
        if !self.states.insert(hash) && self.only.is_none() {
            return Ok(());
        }
        self.outcome.recoveries += 1;
        let extent = Extent { twice: hash.is_multiple_of(8), go_on: hash.is_multiple_of(5) };
        live(after, &self.setting, image, allowed, extent).map(drop)
    }
}

/// All that is visible counts, whether or not it survives yet.
fn as_seen() -> Policy {
    Policy::PerOp
}

/// What was stored, by whom and in which order.
fn hash_of(performance: &Performance) -> u64 {
    let events = performance.trace.events.iter();
    events.fold(0, |hash, event| mix(hash ^ hash_bytes(format!("{} {:?}", event.thread, event.kind).as_bytes())))
}

fn hash_bytes(bytes: &[u8]) -> u64 {
    twox_hash::XxHash3_64::oneshot(bytes)
}

fn mix(number: u64) -> u64 {
    hash_bytes(&number.to_le_bytes())
}
