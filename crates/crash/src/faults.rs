//! What media do beyond a crash: rot, read errors, misdirected writes, lost flushes. Whatever it is, a store must not serve what never was,
//! and must not panic: it reports the place, or is not affected.
//!
//! One thing cannot be told from a crash: rot in the last group looks like a group that was torn. So the state before the last commit is
//! allowed too. Home files are ordinary files: rot in them is the host's.

use std::fmt;

use wholly::Error;
use wholly::site;
use wholly_media::sim::{Choice, Image, Mutation, MutationKind, Pick, Place, World};

use crate::explore::Violation;
use crate::run::{Run, open, run};
use crate::setting::Setting;
use crate::workload::{EXISTING, NAMES, Promise, Workload, mix};

/// Bytes that go wrong together.
const UNIT: u64 = 512;

/// What a fault did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// An error told of it.
    Reported,
    /// Everything is as it should be.
    None,
    /// The last group is gone, as if it had been torn.
    LastLost,
    /// Groups before the last are gone without a word; each file is as some group left it.
    Stale,
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
    /// Taken for a torn last group.
    pub last_lost: u64,
    /// Groups before the last were gone without a word: names of the faults.
    pub stale: Vec<String>,
    /// Something that never was is served, or a panic.
    pub violations: Vec<Violation>,
}

impl FaultOutcome {
    fn add(&mut self, name: String, effect: Result<Effect, String>) {
        self.tried += 1;
        match effect {
            Ok(Effect::Reported) => self.reported += 1,
            Ok(Effect::None) => self.harmless += 1,
            Ok(Effect::LastLost) => self.last_lost += 1,
            Ok(Effect::Stale) => self.stale.push(name),
            Err(what) => self.violations.push(Violation { replay: name, what }),
        }
    }

    /// Adds another outcome.
    pub fn merge(&mut self, other: FaultOutcome) {
        self.tried += other.tried;
        self.reported += other.reported;
        self.harmless += other.harmless;
        self.last_lost += other.last_lost;
        self.stale.extend(other.stale);
        self.violations.extend(other.violations);
    }
}

impl fmt::Display for FaultOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} faults: {} reported, {} without effect, {} taken for a torn last group, {} lost more than that without a word; {} violations",
            self.tried,
            self.reported,
            self.harmless,
            self.last_lost,
            self.stale.len(),
            self.violations.len()
        )
    }
}

/// Tries every fault on the log as each commit and each checkpoint leaves it. `pairs` bounds the misdirected writes of one moment.
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
        let mut attempt = |what: String, broken: &Image| {
            outcome.add(format!("{base} + {what}"), judge(workload, setting, broken, &states));
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
                    attempt(format!("bit {} of byte {offset} flipped", bit % 8), &broken);
                }
            }
            let mut broken = image.clone();
            broken.fail_reads(&Place::Log, unit * UNIT..(unit + 1) * UNIT);
            attempt(format!("bytes {} to {} unreadable", unit * UNIT, (unit + 1) * UNIT), &broken);
        }
        for n in 0..pairs.min(units.len() as u64 * (units.len() as u64 - 1)) {
            let from = units[(mix(n * 2) % units.len() as u64) as usize] * UNIT;
            let to = units[(mix(n * 2 + 1) % units.len() as u64) as usize] * UNIT;
            if from == to {
                continue;
            }
            let mut broken = image.clone();
            broken.misdirect((&Place::Log, from), (&Place::Log, to), UNIT);
            attempt(format!("bytes at {from} stand at {to} too"), &broken);
            let mut broken = image.clone();
            broken.swap((&Place::Log, from), (&Place::Log, to), UNIT);
            attempt(format!("bytes at {from} and {to} swapped"), &broken);
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
            if run.trace.events.iter().all(|event| event.fate == wholly_media::sim::Fate::Normal) {
                break;
            }
            for operation in run.operations.iter().filter(|operation| operation.end != u64::MAX) {
                let point = operation.end;
                let image = run.trace.image_of(&Choice { point, pick: Pick::None });
                let states = last_states(&run, point);
                let name = format!("{}:{}:p{point}:none + {} {nth} lost", workload.name, setting.name, site.0);
                outcome.add(name, judge(workload, setting, &image, &states));
            }
        }
    }
    outcome
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
            Err(error) => return told(&error).map(|()| Effect::Reported),
        };
        let mut reported = !store.recovery().conflicts.is_empty();
        let mut possible: Vec<usize> = (0..states.len().min(2)).collect();
        for (number, name) in NAMES.iter().enumerate().take(workload.files()) {
            let content = match store.open_file(name) {
                Err(Error::NotFound(_)) => None,
                Err(error) => return told(&error).map(|()| Effect::Reported),
                Ok(file) => {
                    let mut content = vec![0; file.len() as usize];
                    match file.read_at(0, &mut content) {
                        Ok(_) => Some(content),
                        Err(error) => {
                            told(&error)?;
                            reported = true;
                            continue;
                        }
                    }
                }
            };
            possible.retain(|state| states[*state].0[number].as_deref() == content.as_deref());
            // A created file may have its name at home already, and nothing else.
            let named = number >= EXISTING && content.as_ref().is_some_and(Vec::is_empty);
            let was = states.iter().any(|state| state.0[number].as_deref() == content.as_deref());
            if !was && !named && !reported {
                let has = content.map_or("is missing".into(), |content| format!("has {} bytes", content.len()));
                return Err(format!("served without a word: {name} {has} that never were"));
            }
        }
        // Whatever it says, it must not panic.
        let closed = store.close();
        reported |= closed.is_err();
        Ok(match possible.first() {
            _ if reported => Effect::Reported,
            Some(0) => Effect::None,
            Some(_) => Effect::LastLost,
            None => Effect::Stale,
        })
    })
    .unwrap_or_else(|panic| Err(format!("panic: {panic}")))
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
