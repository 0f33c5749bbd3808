//! What media do beyond a crash: rot, read errors, misdirected writes, lost flushes. Whatever it is, a store must not
//! serve what never was, and must not panic: it reports the place, or is not affected.
//!
//! One thing cannot be told from a crash. Behind the last commit of a lane in the last life may stand anything: what an
//! earlier lap left, or what was torn. So where the end of a lane was destroyed, *all of it* from some commit on, the
//! log is that of another history, in which that commit was never made. Whoever loses groups without a word must have
//! been hit like that, must lose them wholly, and no group that another one builds on: see [`Anatomy::excuses`]. So it
//! is with the end of the life before, where one fault takes the superblock along that the last life began with, and
//! that life has committed nothing yet. There is no other exception. Home files are ordinary files: rot in them is the
//! host's.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use wholly::Error;
use wholly::site;
use wholly_sim::{Choice, Image, Mutation, MutationKind, Pick, Place, World};

use crate::anatomy::Anatomy;
use crate::explore::Violation;
use crate::look::served_but;
use crate::run::{Run, run};
use crate::setting::Setting;
use crate::store::open;
use crate::tree::State;
use crate::workload::{Promise, Start, Workload, mix};

/// Bytes that go wrong together.
const UNIT: u64 = 512;

/// What a fault did.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Effect {
    /// An error told of it.
    Reported,
    /// Everything is as it should be.
    None,
    /// These groups are gone wholly and without a word, by how many that changed something came behind each; the others
    /// are wholly there.
    Lost(BTreeSet<usize>),
}

/// What was tried and what came of it.
#[derive(Clone, Debug, Default)]
pub struct FaultOutcome {
    /// Faults that were tried.
    pub tried: u64,
    /// Reported by an error.
    pub reported: u64,
    /// Without an effect.
    pub harmless: u64,
    /// Destroyed the end of the log, and were taken for a crash before it was written.
    pub end_lost: u64,
    /// Groups were gone without a word, although something was left that was written behind them: names of the faults.
    pub stale: Vec<String>,
    /// Something that never was is served, or a panic.
    pub violations: Vec<Violation>,
}

impl FaultOutcome {
    fn add(&mut self, name: String, anatomy: &Anatomy, hit: &[Range<u64>], effect: Result<Effect, String>) {
        let name = format!("{name} [{}]", anatomy.describe(hit));
        self.tried += 1;
        match effect {
            Ok(Effect::Reported) => self.reported += 1,
            Ok(Effect::None) => self.harmless += 1,
            Ok(Effect::Lost(groups)) if anatomy.excuses(hit, &groups) => self.end_lost += 1,
            Ok(Effect::Lost(groups)) => self.stale.push(format!("{name}: lost are {groups:?} from the end")),
            Err(what) => self.violations.push(Violation { replay: name, what }),
        }
    }

    /// Adds another outcome.
    pub fn merge(&mut self, other: FaultOutcome) {
        self.tried += other.tried;
        self.reported += other.reported;
        self.harmless += other.harmless;
        self.end_lost += other.end_lost;
        self.stale.extend(other.stale);
        self.violations.extend(other.violations);
    }
}

impl fmt::Display for FaultOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} faults: {} reported, {} without effect, {} destroyed the end and were taken for a crash, {} lost more than that without a word; {} violations",
            self.tried,
            self.reported,
            self.harmless,
            self.end_lost,
            self.stale.len(),
            self.violations.len()
        )
    }
}

/// Tries every fault on the log as each commit and each checkpoint leaves it. `pairs` bounds the misdirected writes of
/// one moment.
pub fn faults(workload: &Workload, setting: &Setting, pairs: u64) -> FaultOutcome {
    let run = run(workload, setting);
    let mut outcome = FaultOutcome::default();
    let moments: Vec<u64> = run
        .operations
        .iter()
        .filter(|o| ["commit", "checkpoint", "call", "close"].iter().any(|kind| o.label.starts_with(kind)))
        .map(|operation| operation.end)
        .collect();
    for point in moments {
        let image = run.trace.image_of(&Choice { point, pick: Pick::All });
        let states = last_states(&run, point);
        let base = format!("{}:{}:p{point}:all", workload.name, setting.name);
        let anatomy = Anatomy::of(&World::from_image(&image, setting.sim.clone()));
        let mut attempt = |what: String, hit: &[Range<u64>], broken: &Image| {
            let name = format!("{base} ({}) + {what}", run.moment(point));
            outcome.add(name, &anatomy, hit, judge(workload, setting, broken, &states));
        };
        let log = image.read(&Place::Log).expect("the log");
        let units: Vec<u64> =
            (0..log.len() as u64 / UNIT).filter(|unit| unit_of(&log, *unit).iter().any(|byte| *byte != 0)).collect();
        for &unit in &units {
            // A bit of each line that holds anything, and one that makes the first line seem another kind of thing.
            for (line, bytes) in (0u64..).zip(unit_of(&log, unit).chunks(64)) {
                if bytes.iter().all(|byte| *byte == 0) {
                    continue;
                }
                for bit in [mix(unit * 64 + line) % 512, mix(unit * 64 + line + 7777) % 512, 70] {
                    let mut broken = image.clone();
                    let offset = unit * UNIT + line * 64 + bit / 8;
                    broken.flip_bit(&Place::Log, offset, (bit % 8) as u32);
                    attempt(format!("bit {} of byte {offset} flipped", bit % 8), &one(offset..offset + 1), &broken);
                }
            }
            let mut broken = image.clone();
            let range = unit * UNIT..(unit + 1) * UNIT;
            broken.fail_reads(&Place::Log, range.clone());
            // What cannot be read is never taken for anything.
            attempt(format!("bytes {} to {} unreadable", range.start, range.end), &[], &broken);
        }
        for n in 0..pairs.min(units.len() as u64 * (units.len() as u64 - 1)) {
            let from = units[(mix(n * 2) % units.len() as u64) as usize] * UNIT;
            let to = units[(mix(n * 2 + 1) % units.len() as u64) as usize] * UNIT;
            if from == to {
                continue;
            }
            let mut broken = image.clone();
            broken.misdirect((&Place::Log, from), (&Place::Log, to), UNIT);
            attempt(format!("bytes at {from} stand at {to} too"), &one(to..to + UNIT), &broken);
            let mut broken = image.clone();
            broken.swap((&Place::Log, from), (&Place::Log, to), UNIT);
            attempt(format!("bytes at {from} and {to} swapped"), &[from..from + UNIT, to..to + UNIT], &broken);
        }
    }
    outcome
}

/// Loses one flush at a time, and then the power: later records are there, an earlier one is not.
pub fn lost_flushes(workload: &Workload, setting: &Setting) -> FaultOutcome {
    let mut outcome = FaultOutcome::default();
    let flushes = if setting.sim.log.is_pmem() {
        [site::LANE_COMMIT_FENCE, site::LANE_PARTS_FENCE]
    } else {
        [site::BATCH_WRITE, site::SPILL_SYNC]
    };
    for site in flushes {
        for nth in 0..64 {
            let mutation = Mutation { nth: Some(nth), ..Mutation::new(site, MutationKind::DropOrder) };
            let run = run(workload, &setting.broken(mutation));
            if run.trace.events.iter().all(|event| event.fate == wholly_sim::Fate::Normal) {
                break;
            }
            for operation in run.operations.iter().filter(|operation| operation.end != u64::MAX) {
                let point = operation.end;
                let image = run.trace.image_of(&Choice { point, pick: Pick::None });
                let whole = run.trace.image_of(&Choice { point, pick: Pick::All });
                let anatomy = Anatomy::of(&World::from_image(&whole, setting.sim.clone()));
                let hit = differences(&whole, &image);
                let states = last_states(&run, point);
                let moment = run.moment(point);
                let name =
                    format!("{}:{}:p{point}:none ({moment}) + {} {nth} lost", workload.name, setting.name, site.0);
                outcome.add(name, &anatomy, &hit, judge(workload, setting, &image, &states));
            }
        }
    }
    outcome
}

fn one(range: Range<u64>) -> [Range<u64>; 1] {
    [range]
}

/// The lines in which two logs differ.
fn differences(a: &Image, b: &Image) -> Vec<Range<u64>> {
    let [a, b] = [a, b].map(|image| image.read(&Place::Log).expect("the log"));
    let line = |n: usize| n as u64 * 64..(n as u64 + 1) * 64;
    // A log that is shorter ends early.
    let missing = (a.len().min(b.len()) / 64..a.len() / 64).map(line);
    a.chunks(64)
        .zip(b.chunks(64))
        .enumerate()
        .filter(|(_, (a, b))| a != b)
        .map(|(n, _)| line(n))
        .chain(missing)
        .collect()
}

fn unit_of(log: &[u8], unit: u64) -> &[u8] {
    &log[(unit * UNIT) as usize..((unit + 1) * UNIT) as usize]
}

/// What had committed by a point, the latest first.
fn last_states(run: &Run, point: u64) -> Vec<Promise> {
    let mut states: Vec<Promise> = run.before.clone();
    for operation in run.operations.iter().filter(|operation| operation.end <= point) {
        if *states.last().expect("one at least") != operation.state {
            states.push(operation.state.clone());
        }
    }
    states.reverse();
    states
}

fn judge(workload: &Workload, setting: &Setting, image: &Image, states: &[Promise]) -> Result<Effect, String> {
    crate::quiet::catch(|| {
        let world = World::from_image(image, setting.sim.clone());
        let store = match open(&world, workload, setting) {
            Ok(store) => store,
            Err(error) => {
                told(&error)?;
                // What is wrong with it can be found out later, if nobody has tidied it up.
                let [before, after] = [image, &world.latest()].map(|image| image.read(&Place::Log).expect("the log"));
                return if before == after {
                    Ok(Effect::Reported)
                } else {
                    Err(format!("changed, then refused: {error}"))
                };
            }
        };
        let mut reported = !store.recovery().conflicts.is_empty();
        let mut unread = Vec::new();
        let served = served_but(&world, &store, workload, &mut |path, error| {
            unread.push(path.to_string());
            told(&error)
        });
        let served = match served {
            Ok(served) => served,
            // Of what can be read half it may say anything.
            Err(_) if !unread.is_empty() => return Ok(Effect::Reported),
            Err(what) => return Err(what),
        };
        reported |= !unread.is_empty();
        // For each name, the states that have it as it is.
        let paths = paths(workload, states, &served);
        let mut shown: Vec<Vec<usize>> = Vec::new();
        for path in &paths {
            if unread.contains(path) {
                shown.push((0..states.len()).collect());
                continue;
            }
            let shows = served.shows(path);
            // A created file may have its name at home already, and nothing else.
            let named =
                workload.initial().at(path).is_none() && served.content(path).is_some_and(|bytes| bytes.is_empty());
            let is = |state: &usize| {
                let was = states[*state].shows(path);
                was == shows || named && was.is_none()
            };
            shown.push((0..states.len()).filter(is).collect());
            if !reported && shown.last().is_some_and(Vec::is_empty) {
                let is = shows.map_or("is missing".into(), |(object, _)| format!("is {}", object.describe()));
                return Err(format!("served without a word: {path} {is}, as it never was"));
            }
        }
        // Whatever it says, it must not panic.
        let closed = store.close();
        if let Err(error) = &closed {
            told(error)?;
        }
        reported |= closed.is_err();
        if reported {
            return Ok(Effect::Reported);
        }
        match lost(states, &paths, &shown) {
            Some(lost) if lost.is_empty() => Ok(Effect::None),
            Some(lost) => Ok(Effect::Lost(lost)),
            None => Err("served without a word: a group half, or one that builds on what is not there".into()),
        }
    })
    .unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

/// Every path that something is or was at.
fn paths(workload: &Workload, states: &[Promise], served: &State) -> Vec<String> {
    let all = states.iter().map(|state| &**state).chain([served]).flat_map(State::paths).map(|(path, _)| path);
    let all: BTreeSet<String> = match workload.start {
        Start::Files => workload.files().into_iter().map(String::from).collect(),
        _ => all.collect(),
    };
    all.into_iter().collect()
}

/// The fewest groups that must be gone for names to be as in one of the states that `shown` gives for each: by how many
/// came behind them. None if no groups are wholly gone, with all that change the same names later, and the others
/// wholly there.
fn lost(states: &[Promise], paths: &[String], shown: &[Vec<usize>]) -> Option<BTreeSet<usize>> {
    let touches = |group: usize, at: usize| states[group].shows(&paths[at]) != states[group + 1].shows(&paths[at]);
    // Each name has lost the groups that touched it later than this state.
    let mut from = vec![0; shown.len()];
    loop {
        let before = from.clone();
        for (at, allowed) in shown.iter().enumerate() {
            from[at] = *allowed.iter().find(|state| **state >= from[at])?;
        }
        let lost: BTreeSet<usize> =
            (0..shown.len()).flat_map(|at| (0..from[at]).filter(move |group| touches(*group, at))).collect();
        for group in &lost {
            for at in (0..shown.len()).filter(|at| touches(*group, *at)) {
                from[at] = from[at].max(group + 1);
            }
        }
        if from == before {
            return Some(lost);
        }
    }
}

/// An error must name a place.
fn told(error: &Error) -> Result<(), String> {
    match error {
        Error::Corrupt { .. } | Error::Media(_) | Error::NotAStore(_) | Error::Unsupported(_) | Error::Poisoned(_) => {
            Ok(())
        }
        other => Err(format!("reported as something else: {other}")),
    }
}
