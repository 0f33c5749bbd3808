//! Groups that are taken back, and done again: a crash at any moment from the first commit on.
//!
//! 1. The group, what takes it back, and what does it again leave the directory with the group, without it, with it.
//! 2. After a crash at any moment the directory has the group, or it has not; and where either is a change that was
//!    made, its undo is kept: by that the directory is the other one again.
//! 3. Where the crash came after a commit had returned, there is an undo.
//! 4. Where a group is taken back in parts, the directory is after a crash as it was between two of them, and what is
//!    left can be taken back under the group's id.
//! 5. Where the host refuses any call of what takes the group back, the directory is as it was, and it can be taken
//!    back after that; or it is taken back. If the store has failed, once it is opened again, as after a crash.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use wholly::{Error, Group, IfChanged, KeepUndo, Options, Store, UndoFate, Undoing};
use wholly_host::HostFs;
use wholly_sim::{ExploreLimits, Explorer, Image, World};

use crate::bystanders::perform;
use crate::look::served;
use crate::refused::{Refusing, fill_layer, goes_on};
use crate::script::workload;
use crate::setting::Setting;
use crate::store::format;
use crate::tree::State;
use crate::workload::{Step, Workload};

/// How many images were judged, and the sites after which crashes came.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Images of crashes.
    pub images: u64,
    /// How many of them had an undo.
    pub undone: u64,
    /// Sites of the calls after which there were crashes.
    pub sites: BTreeSet<&'static str>,
}

/// Any undo is kept, for long.
pub(crate) fn keep() -> KeepUndo {
    KeepUndo { note: "a group".into(), expires: Duration::from_secs(1 << 30), most_bytes: u64::MAX }
}

/// Explores the group in `script`, with crashes at every point.
///
/// # Errors
/// What is wrong, in words.
pub fn explore(script: &str, setting: &Setting, limits: &ExploreLimits) -> Result<Judged, String> {
    let (workload, world) = begin(script, setting)?;
    let store = open(&world, world.host(), &workload, setting)?;
    let (group, before, after) = run(&world, &workload, &store)?;
    let from = world.now() + 1;
    group.commit().map_err(failed("commit"))?;
    let committed = world.now();
    let is = |store: &Store, state: &State, what: &str| is(state, &world, (store, &workload), what);
    is(&store, &after, "committed")?;
    for (state, what) in [(&before, "taken back"), (&after, "done again"), (&before, "taken back again")] {
        if !matches!(store.undo_fate(), Some(UndoFate::Kept(_))) {
            return Err(format!("before it is {what}: {:?}", store.undo_fate()));
        }
        take_back(&store).map_err(failed(what))?;
        is(&store, state, what)?;
    }
    store.close().map_err(failed("close"))?;
    let survives = |image: &Image, point| survives(image, (&workload, setting), [&before, &after], point >= committed);
    crash_everywhere(script, (&world, from), limits, survives)
}

/// Explores the group in `script`, which is taken back in parts: what is at each of these paths, and then the rest.
///
/// # Errors
/// What is wrong, in words.
pub fn explore_parts(
    script: &str,
    paths: &[&str],
    setting: &Setting,
    limits: &ExploreLimits,
) -> Result<Judged, String> {
    let (workload, world) = begin(script, setting)?;
    let store = open(&world, world.host(), &workload, setting)?;
    let (group, before, after) = run(&world, &workload, &store)?;
    group.commit().map_err(failed("commit"))?;
    let from = world.now() + 1;
    let Some(UndoFate::Kept(id)) = store.undo_fate() else { return Err(format!("{:?}", store.undo_fate())) };
    let mut states = vec![after];
    for path in paths {
        let how = Undoing { paths: vec![path.into()], ..Undoing::default() };
        let undone = store.undo_some(id, &keep(), &how, |_| true).map_err(failed(path))?;
        if !undone.is_part {
            return Err(format!("{path} is all of it"));
        }
        states.push(served(&world, &store, &workload)?);
    }
    store.undo(id, &keep(), |_| true).map_err(failed("the rest"))?;
    is(&before, &world, (&store, &workload), "taken back in parts")?;
    store.close().map_err(failed("close"))?;
    let survives = |image: &Image, _| {
        let world = World::from_image(image, setting.sim.clone());
        let store = open(&world, world.host(), &workload, setting)?;
        let home = served(&world, &store, &workload)?;
        let is_kept = store.undos().map_err(failed("undos"))?.iter().any(|undo| undo.id == id);
        match states.iter().position(|state| state.difference(&home).is_none()) {
            Some(_) if is_kept => {
                store.undo(id, &keep(), |_| true).map_err(failed("the rest after a crash")).map(drop)?
            }
            Some(part) => return Err(format!("{part} parts are taken back, and the rest cannot be")),
            None if is_kept => return Err("the directory is not as between two parts".into()),
            None => {}
        }
        is(&before, &world, (&store, &workload), "after a crash")?;
        store.close().map_err(failed("close after a crash"))?;
        Ok(is_kept)
    };
    crash_everywhere(script, (&world, from), limits, survives)
}

/// Judges what a crash leaves at each point of what has happened in a world.
fn crash_everywhere(
    script: &str,
    (world, from): (&World, u64),
    limits: &ExploreLimits,
    survives: impl Fn(&Image, u64) -> Result<bool, String>,
) -> Result<Judged, String> {
    let (trace, end) = (world.trace(), world.now());
    let (mut judged, mut explorer, mut wrong) = (Judged::default(), Explorer::new(&trace), None);
    for point in from..=end.min(trace.events.len() as u64) {
        explorer.seek(point);
        judged.sites.extend(trace.events.get(point as usize - 1).and_then(|event| event.site).map(|site| site.0));
        let mut one = |choice: String, image: &Image| {
            judged.images += 1;
            match crate::quiet::catch(|| survives(image, point)).unwrap_or_else(Err) {
                Ok(undone) => judged.undone += u64::from(undone),
                Err(what) => wrong = Some(format!("{script}, {choice}: {what}")),
            }
            if wrong.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if one(format!("p{point}:kill"), &explorer.kill_image()).is_continue() {
            explorer.for_each_image(limits, |choice, image| one(choice.to_string(), image));
        }
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
    }
    Ok(judged)
}

/// Takes the group in `script` back on a host that refuses one call of that with `errno`: any of them, each time from
/// the beginning. How often that was refused.
///
/// # Errors
/// What is wrong, in words.
pub fn refuse(script: &str, setting: &Setting, errno: Errno, changed: IfChanged) -> Result<u64, String> {
    let mut refusals = 0;
    for call in 1.. {
        let one = crate::quiet::catch(|| refuse_at(script, setting, (errno, call), changed)).unwrap_or_else(Err);
        match one.map_err(|what| format!("{script}, {errno:?} at call {call}: {what}"))? {
            Some(is_refused) => refusals += u64::from(is_refused),
            None => break,
        }
    }
    Ok(refusals)
}

/// Whether that was refused; none where there are fewer calls.
fn refuse_at(
    script: &str,
    setting: &Setting,
    (errno, call): (Errno, u64),
    changed: IfChanged,
) -> Result<Option<bool>, String> {
    let (workload, world) = begin(script, setting)?;
    let host = Refusing::new(world.host(), (errno, false));
    let store = open(&world, host.clone(), &workload, setting)?;
    let (group, before, after) = run(&world, &workload, &store)?;
    group.commit().map_err(failed("commit"))?;
    host.begin(call);
    let done = take_back_if(&store, changed);
    if !host.end() {
        return Ok(None);
    }
    match &done {
        Ok(()) => {
            is(&before, &world, (&store, &workload), "taken back")?;
            if changed == IfChanged::Replace {
                take_back(&store).map_err(failed("done again"))?;
                is(&after, &world, (&store, &workload), "done again")?;
            }
        }
        Err(Error::Poisoned(_)) => {
            drop(store);
            survives(&world.kill(), (&workload, setting), [&before, &after], true)?;
        }
        Err(_) => {
            is(&after, &world, (&store, &workload), "refused")?;
            take_back(&store).map_err(failed("taken back after it was refused"))?;
            is(&before, &world, (&store, &workload), "taken back after it was refused")?;
            for undo in store.undos().map_err(failed("undos"))? {
                store.discard(undo.id).map_err(failed("discard"))?;
            }
            store.remove().map_err(failed("remove"))?;
        }
    }
    Ok(Some(done.is_err()))
}

/// A world with what is there before the group.
fn begin(script: &str, setting: &Setting) -> Result<(Workload, Arc<World>), String> {
    let workload = workload(script).expect("it makes sense");
    let world = World::new(setting.sim.clone());
    workload.initial().put_into(&world);
    format(&world, &workload, setting).map_err(|error| error.to_string())?;
    Ok((workload, world))
}

/// The last group, but for its commit, and the states before and after it. The undo of each group is to be kept.
fn run(world: &Arc<World>, workload: &Workload, store: &Store) -> Result<(Group<'static>, State, State), String> {
    let (mut before, mut after, mut last) = (workload.initial(), workload.initial(), None::<Group<'static>>);
    for step in &workload.steps {
        let Step::Group { ops, commit: true } = step else { panic!("it is no group") };
        if let Some(group) = last.take() {
            group.commit().map_err(failed("the one before"))?;
            before = served(world, store, workload)?;
        }
        fill_layer(world, store, ops)?;
        let mut group = store.begin();
        perform(&mut group, &mut after, ops, 0)?;
        group.keep_undo(&keep()).map_err(failed("keep"))?;
        last = Some(group);
    }
    Ok((last.expect("there is a group"), before, after))
}

fn is(state: &State, world: &Arc<World>, (store, workload): (&Store, &Workload), what: &str) -> Result<(), String> {
    match state.difference(&served(world, store, workload)?) {
        Some(difference) => Err(format!("{what}: {difference}")),
        None => Ok(()),
    }
}

fn failed(what: &str) -> impl Fn(Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

fn open(world: &Arc<World>, host: Arc<dyn HostFs>, workload: &Workload, setting: &Setting) -> Result<Store, String> {
    let options = Options { at_once: true, ..workload.options(setting.segment_bytes()) };
    Store::open_on(world.log(), host, options, None).map_err(|error| format!("open: {error}"))
}

/// Takes the newest group back.
fn take_back(store: &Store) -> wholly::Result<()> {
    take_back_if(store, IfChanged::Refuse)
}

fn take_back_if(store: &Store, changed: IfChanged) -> wholly::Result<()> {
    let all = store.undos()?;
    let newest = all.iter().rev().find(|undo| undo.gone.is_none()).ok_or_else(|| Error::NotFound("an undo".into()))?;
    let how = Undoing { changed, ..Undoing::default() };
    store.undo_some(newest.id, &keep(), &how, |_| true).map(|done| assert!(done.is_done, "nobody is against it"))
}

/// After a crash the directory is one of the two, and the undo makes it the other one. Whether there was one.
fn survives(
    image: &Image,
    (workload, setting): (&Workload, &Setting),
    states: [&State; 2],
    is_kept: bool,
) -> Result<bool, String> {
    let world = World::from_image(image, setting.sim.clone());
    let store = open(&world, world.host(), workload, setting)?;
    let home = served(&world, &store, workload)?;
    let Some(which) = states.iter().position(|state| state.difference(&home).is_none()) else {
        let differences: Vec<_> = states.iter().filter_map(|state| state.difference(&home)).collect();
        return Err(format!("after a crash the directory is neither: {}", differences.join("; or ")));
    };
    goes_on(&store)?;
    store.close().map_err(|error| format!("close after a crash: {error}"))?;
    let store = open(&world, world.host(), workload, setting)?;
    let undos = store.undos().map_err(|error| error.to_string())?;
    if undos.len() < workload.steps.len() {
        let is_right = which == 0 && !is_kept;
        return if is_right { Ok(false) } else { Err(format!("no undo is kept, and the directory is {which}")) };
    }
    take_back(&store).map_err(|error| format!("undo after a crash: {error}"))?;
    let home = served(&world, &store, workload)?;
    if let Some(difference) = states[1 - which].difference(&home) {
        return Err(format!("taken back after a crash: {difference}"));
    }
    store.close().map_err(|error| format!("close: {error}"))?;
    Ok(true)
}
