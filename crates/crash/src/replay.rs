//! Rebuilding one state from its name: `WORKLOAD:WORLD:CHOICE`, with `/CHOICE` for each crash inside of the recovery
//! before it. Before it stands the subject, where that is no store: `volume:ENGINE:`, `blocks:IMPLEMENTATION:`,
//! `ccnvme:`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use wholly_sim::{Choice, Image, Pick, Place, Timeline, Trace, World};

use crate::archive::{self, Archive};
use crate::blocks::{self, OnBlocks};
use crate::catalogue;
use crate::ccnvme::{self, OnQueues};
use crate::life::{Extent, live};
use crate::run::{Run, run};
use crate::setting::Setting;
use crate::subject::Subject;
use crate::view::{History, Version, View};
use crate::volume::{self, Calls, OnVolume};
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
    /// What it may leave: what had returned and, if there is a second one, that with what was in flight.
    pub allowed: Vec<View>,
    /// What files hold by themselves after it, where they are files of the host.
    pub files: Vec<Version>,
    /// What comes after it.
    pub recovery: Recovery,
}

/// The first open after a crash.
pub struct Recovery {
    /// What it read of what the crash had left.
    pub reads: Vec<Read>,
    /// What it stored.
    pub timeline: Timeline,
    /// What a reader sees after it; else what is wrong.
    pub serves: Result<View, String>,
}

/// Bytes that were read.
pub struct Read {
    /// The log or the path of a file, as in a [`Timeline`].
    pub place: String,
    /// Which bytes, in whole words.
    pub range: Range<u64>,
}

impl Recovery {
    /// Recovers an image, besides the judging of it, and looks at what it did; at its last `most` events.
    pub(crate) fn of<T>(
        image: &Image,
        setting: &Setting,
        most: u64,
        open: impl FnOnce(&Arc<World>) -> Result<T, String>,
        view: impl FnOnce(&Arc<World>, &T) -> Result<View, String>,
    ) -> Recovery {
        let world = World::from_image(image, setting.sim.clone());
        world.track_reads();
        let panicked = |panic: String| format!("panic: {panic}");
        let opened = crate::quiet::catch(|| open(&world)).map_err(panicked).flatten();
        let (read, trace) = (world.stop_reads(), world.trace());
        let serves =
            opened.and_then(|open| crate::quiet::catch(|| view(&world, &{ open })).map_err(panicked).flatten());
        let end = trace.events.len() as u64;
        let shown = end.saturating_sub(most)..end;
        let place = |place| match place {
            Place::Log => "log".into(),
            Place::File(path) => String::from_utf8_lossy(&path).into_owned(),
        };
        let reads = image.ranges_read(&read).into_iter().map(|(at, range)| Read { place: place(at), range });
        Recovery { reads: reads.collect(), timeline: trace.timeline(shown, None), serves }
    }
}

/// What a state is one of: the part of its name that says so.
///
/// # Errors
/// Where the name has no meaning.
pub fn subject_of(name: &str) -> Result<String, BadName> {
    Ok(match parse(name)?.0 {
        Recorded::Volume(volume) => format!("volume:{}", volume.engine.name()),
        Recorded::Blocks(blocks) => format!("blocks:{}", blocks.kind.name()),
        Recorded::Queues(_) => "ccnvme".into(),
        Recorded::Workload(_) | Recorded::Archive(_) => "store".into(),
    })
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
    let (recorded, setting, path) = parse(name)?;
    match recorded {
        Recorded::Archive(archive) => archive::replay(archive, name, &setting, path),
        Recorded::Workload(workload) => replay_of(&workload, name, &setting, path),
        Recorded::Volume(subject) => replay_of(&subject, name, &setting, path),
        Recorded::Blocks(subject) => replay_of(&subject, name, &setting, path),
        Recorded::Queues(subject) => replay_of(&subject, name, &setting, path),
    }
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
    let mut history = History::default();
    at.before.iter().for_each(|state| history.add("what was there", state));
    for choice in path.split('/') {
        let choice: Choice = choice.parse().map_err(|error| BadName(format!("{name}: {error}")))?;
        check(name, &at.trace, &choice)?;
        let allowed = at.allowed(choice.point);
        let begun = at.operations.iter().take_while(|operation| operation.begin <= choice.point);
        begun.for_each(|operation| history.add(&operation.label, &operation.state));
        let paths = history.that_matter(&allowed.states);
        let image = at.trace.image_of(&choice);
        let open = |world: &_| subject.open(world, setting).map_err(|error| error.to_string());
        let observe = |world: &_, open: &_| Ok(history.view(&subject.observe(world, open)?, &paths));
        done.crashes.push(Crash {
            moment: at.moment(choice.point),
            timeline: timeline(&at.trace, &choice, u64::MAX),
            choice,
            allowed: allowed.states.iter().map(|state| history.view(state, &paths)).collect(),
            files: history.files(&image, &paths),
            recovery: Recovery::of(&image, setting, u64::MAX, open, observe),
        });
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

/// What led to a choice: its last `most` events.
pub(crate) fn timeline(trace: &Trace, choice: &Choice, most: u64) -> Timeline {
    let choice_of_units = (choice.pick != Pick::Kill).then_some(choice);
    trace.timeline(choice.point.saturating_sub(most)..choice.point, choice_of_units)
}

/// What a state is one of.
enum Recorded {
    Workload(Workload),
    Archive(Archive),
    Volume(OnVolume<Calls>),
    Blocks(OnBlocks),
    Queues(OnQueues),
}

/// What was recorded, the world and the choices.
fn parse(name: &str) -> Result<(Recorded, Setting, &str), BadName> {
    let bad = || BadName(name.into());
    let no = |what: &str, name_of: &str| BadName(format!("{name}: no {what} {name_of:?}"));
    if let Some(of_queues) = name.strip_prefix("ccnvme:") {
        let (program, rest) = of_queues.split_once(':').ok_or_else(bad)?;
        let (world, path) = rest.split_once(':').ok_or_else(bad)?;
        let found = ccnvme::named(program).ok_or_else(|| no("workload", program))?;
        let setting = ccnvme::setting(world).ok_or_else(|| no("world", world))?;
        return Ok((Recorded::Queues(OnQueues { program: found, mistake: None }), setting, path));
    }
    let subject = ["volume:", "blocks:"].into_iter().find(|subject| name.starts_with(subject));
    let (of, of_subject) = match subject {
        Some(subject) => name[subject.len()..].split_once(':').ok_or_else(bad)?,
        None => ("", name),
    };
    let (workload, rest) = of_subject.split_once(':').ok_or_else(bad)?;
    let (world, path) = rest.split_once(':').ok_or_else(bad)?;
    if subject == Some("blocks:") {
        let kind = blocks::Kind::named(of).ok_or_else(|| no("implementation", of))?;
        let program = blocks::named(kind, workload).ok_or_else(|| no("workload", workload))?;
        let setting = kind.setting(world).ok_or_else(|| no("world", world))?;
        return Ok((Recorded::Blocks(OnBlocks { kind, program }), setting, path));
    }
    if subject.is_none() {
        let recorded = match (Archive::named(workload), catalogue::find(workload)) {
            (Some(archive), _) => Recorded::Archive(archive),
            (None, Some(workload)) => Recorded::Workload(workload),
            (None, None) => return Err(no("workload", workload)),
        };
        return Ok((recorded, Setting::find(world).ok_or_else(|| no("world", world))?, path));
    }
    let engine = volume::engines().find(|known| known.name() == of).ok_or_else(|| no("engine", of))?;
    let program = Calls::named(workload).ok_or_else(|| no("workload", workload))?;
    let setting = volume::setting_for(engine, world).ok_or_else(|| no("world", world))?;
    Ok((Recorded::Volume(OnVolume { engine, program }), setting, path))
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
