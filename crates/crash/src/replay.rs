//! Rebuilding one state from its name: `WORKLOAD:WORLD:CHOICE`, with `/CHOICE` for each crash inside of the recovery
//! before it.

use std::fmt;

use wholly_sim::{Choice, Pick, Timeline, Trace};

use crate::archive::{self, Archive};
use crate::catalogue;
use crate::life::{Extent, live};
use crate::run::{Run, run};
use crate::setting::Setting;
use crate::subject::Subject;
use crate::workload::Workload;

/// What a state turned out to be.
pub struct Replay {
    /// The state's name.
    pub name: String,
    /// One for each crash, the outermost first: when it came, and what led to it.
    pub crashes: Vec<Crash>,
    /// What is wrong; none if nothing is.
    pub violation: Option<String>,
}

/// One crash of a replayed state.
pub struct Crash {
    /// The operation during which it came, in words.
    pub moment: String,
    /// The choice.
    pub choice: Choice,
    /// Stores, flushes and fences up to it, and what became of each.
    pub timeline: Timeline,
}

/// The name is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: expected a state such as two-files:pmem:p26:set:0,3")]
pub struct BadName(pub(crate) String);

/// Rebuilds and judges a state.
///
/// # Errors
/// Where the name has no meaning, or none any more: it is from another version of the program.
pub fn replay(name: &str) -> Result<Replay, BadName> {
    let (workload, setting, path) = parse(name)?;
    let workload = match workload {
        Recorded::Archive(archive) => return archive::replay(archive, name, &setting, path),
        Recorded::Workload(workload) => workload,
    };
    replay_of(&workload, name, &setting, path)
}

/// Rebuilds and judges a state of a subject in a world; `path` is what follows both in the state's name.
///
/// # Errors
/// As [`replay`].
pub fn replay_of<S: Subject>(subject: &S, name: &str, setting: &Setting, path: &str) -> Result<Replay, BadName> {
    let mut at = run(subject, setting);
    let mut done = Replay { name: name.into(), crashes: Vec::new(), violation: None };
    if path == "run" {
        done.violation = at.wrong(subject);
        return Ok(done);
    }
    for choice in path.split('/') {
        let choice: Choice = choice.parse().map_err(|error| BadName(format!("{name}: {error}")))?;
        check(name, &at.trace, &choice)?;
        let allowed = at.allowed(choice.point);
        let image = at.trace.image_of(&choice);
        let timeline = timeline(&at.trace, &choice);
        done.crashes.push(Crash { moment: at.moment(choice.point), choice, timeline });
        match live(subject, setting, &image, &allowed, Extent::WHOLE) {
            Ok(life) => {
                at = Run {
                    trace: life.world.trace(),
                    before: allowed.states,
                    unmade: allowed.unmade,
                    operations: life.operations,
                    busy: 0,
                    failure: None,
                };
            }
            Err(what) => {
                done.violation = Some(what);
                break;
            }
        }
    }
    Ok(done)
}

/// That a trace has such a choice.
pub(crate) fn check(name: &str, trace: &Trace, choice: &Choice) -> Result<(), BadName> {
    let points = trace.events.len() as u64 + 1;
    match choice.point {
        point if point >= points => Err(BadName(format!("{name}: there are only {points} points"))),
        _ if trace.has(choice) => Ok(()),
        point => {
            let units = trace.point(point).units();
            Err(BadName(format!("{name}: at this point there is no such choice, of {units} that are pending")))
        }
    }
}

pub(crate) fn timeline(trace: &Trace, choice: &Choice) -> Timeline {
    let choice_of_units = (choice.pick != Pick::Kill).then_some(choice);
    trace.timeline(choice.point, choice_of_units)
}

/// What a state is one of.
enum Recorded {
    Workload(Workload),
    Archive(Archive),
}

/// What was recorded, the world and the choices.
fn parse(name: &str) -> Result<(Recorded, Setting, &str), BadName> {
    let bad = || BadName(name.into());
    let (workload, rest) = name.split_once(':').ok_or_else(bad)?;
    let (setting, path) = rest.split_once(':').ok_or_else(bad)?;
    let workload = match (Archive::named(workload), catalogue::find(workload)) {
        (Some(archive), _) => Recorded::Archive(archive),
        (None, Some(workload)) => Recorded::Workload(workload),
        (None, None) => return Err(BadName(format!("{name}: no workload {workload:?}"))),
    };
    let setting = Setting::find(setting).ok_or_else(|| BadName(format!("{name}: no world {setting:?}")))?;
    Ok((workload, setting, path))
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "state {}", self.name)?;
        for crash in &self.crashes {
            writeln!(f, "\ncrash {} ({})\n{}", crash.choice, crash.moment, crash.timeline.table(150))?;
        }
        match &self.violation {
            Some(what) => write!(f, "VIOLATION: {what}"),
            None => write!(f, "recovered as it should"),
        }
    }
}
