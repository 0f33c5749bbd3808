//! Programs that change the directory of a store behind its back: contract 9.
//!
//! Groups commit, and nothing of them is home; then somebody else changes what they are about, and what he did is
//! durable. From there on, in this process and after every crash:
//!
//! 1. A checkpoint, and a close, report a conflict.
//! 2. The store serves what its groups committed, and the next group commits.
//! 3. The directory holds what it held before, with what the bystander did to it, and nothing of the store's.
//! 4. Once the bystander's change is out of the way, where that can be, everything goes home, and what he made is still
//!    there.
//!
//! The same, but for what the directory holds, where he comes after a crash in the middle of a checkpoint.

use std::ops::ControlFlow;
use std::sync::Arc;

use wholly::{Error, Group, Store};
use wholly_sim::{ExploreLimits, Explorer, Image, Place, Trace, World};

use crate::look::{at_home, tree};
use crate::script::{op, workload};
use crate::setting::Setting;
use crate::store::{format, in_group, open};
use crate::tree::{Kind, SITE, State, on_host};
use crate::workload::{FRESH, Op, Step, Workload};

/// What somebody does behind a store's back.
#[derive(Clone, Copy, Debug)]
pub struct Bystander {
    /// The groups that commit before, as a [script](crate::script).
    pub groups: &'static str,
    /// What the bystander does.
    pub acts: &'static [&'static str],
    /// What puts it out of the way; nothing where the files' own times tell of it.
    pub undo: &'static [&'static str],
    /// What he keeps then.
    pub left: &'static [&'static str],
    /// Paths of which the store cannot serve everything.
    pub but: &'static [&'static str],
}

const fn aside(groups: &'static str, acts: &'static [&'static str], undo: &'static [&'static str]) -> Bystander {
    Bystander { groups, acts, undo, left: &["baz"], but: &[] }
}

const fn for_good(groups: &'static str, acts: &'static [&'static str], but: &'static [&'static str]) -> Bystander {
    Bystander { groups, acts, undo: &[], left: &[], but }
}

/// All that are tried.
pub const ALL: &[Bystander] = &[
    aside("bare,create-foo+append-foo", &["create-foo", "append-foo"], &["rename-foo-baz"]),
    aside("bare,rename-A/foo-foo,append-foo", &["create-foo", "append-foo"], &["rename-foo-baz"]),
    aside("bare,link-A/foo-foo+unlink-A/foo", &["create-foo", "append-foo"], &["rename-foo-baz"]),
    aside("bare,symlink-A-B,create-foo", &["create-B", "append-B"], &["rename-B-baz"]),
    aside("bare,mkdir-B+create-B/foo+append-B/foo", &["create-B", "append-B"], &["rename-B-baz"]),
    aside("dirs,rmdir-B,chmod-A", &["create-B/foo", "append-B/foo"], &["rename-B/foo-baz"]),
    aside("bare,unlink-A/foo", &["unlink-A/foo", "create-A/foo", "append-A/foo"], &["rename-A/foo-baz"]),
    Bystander {
        groups: "bare,rename-A/foo-foo",
        acts: &["rename-A/foo-baz"],
        undo: &["rename-baz-A/foo"],
        left: &[],
        but: &["foo", "baz"],
    },
    for_good("bare,write-A/foo", &["append-A/foo"], &["A/foo"]),
    for_good("bare,punch-A/foo", &["append-A/foo"], &["A/foo"]),
    for_good("bare,write-A/foo", &["unlink-A/foo", "create-A/foo", "append-A/foo"], &["A/foo"]),
    for_good("bare,tag-A/foo,create-foo", &["tag-A/foo"], &[]),
    for_good("bare,chmod-A,create-foo", &["shut-A"], &[]),
    for_good("bare,tag-A,create-foo", &["tag-A"], &[]),
];

/// A name that only groups after a crash make.
const LATE: &str = "late";

/// The number of the first write of a bystander.
const THEIRS: u64 = 1 << 20;

#[derive(Clone)]
struct Scene {
    bystander: Bystander,
    workload: Workload,
    setting: Setting,
    /// What the directory holds.
    home: State,
}

impl Bystander {
    /// Tries every crash from when the bystander is done until the process ends, and him after every crash in a
    /// checkpoint. Returns how many images were judged, and in how many of the second kind there was still something
    /// for him to do.
    ///
    /// # Errors
    /// What is wrong, in words, and after which crash.
    pub fn explore(&self, setting: &Setting, limits: &ExploreLimits) -> Result<(u64, u64), String> {
        let judged = self.crashed_later(setting, limits)?;
        let (more, done) = self.crashed_before(setting, limits)?;
        Ok((judged + more, done))
    }

    /// Groups have committed, and nothing of them is home.
    fn begin(&self, setting: &Setting) -> Result<(Scene, Arc<World>, Store, State), String> {
        let workload = workload(self.groups).expect("it makes sense");
        let home = workload.initial();
        let scene = Scene { bystander: *self, workload, setting: setting.clone(), home };
        let world = World::new(setting.sim.clone());
        scene.home.put_into(&world);
        format(&world, &scene.workload, setting).map_err(|error| error.to_string())?;
        let store = scene.open(&world)?;
        let mut state = scene.home.clone();
        state.reopen();
        for (number, step) in scene.workload.steps.iter().enumerate() {
            let Step::Group { ops, commit: true } = step else { panic!("{step:?} is no group") };
            group(&store, &mut state, ops, 100 * number as u64)?;
        }
        Ok((scene, world, store, state))
    }

    fn crashed_later(&self, setting: &Setting, limits: &ExploreLimits) -> Result<u64, String> {
        let (mut scene, world, store, mut state) = self.begin(setting)?;
        scene.act(&world, self.acts, THEIRS)?;
        let from = world.now() + 1;
        let before = state.clone();
        scene.check(&world, &store, &[&before], "before any crash")?;
        group(&store, &mut state, &[Op::Create(FRESH), Op::Append { file: FRESH, length: 11 }], 1000)?;
        let committed = world.now() + 1;
        scene.check(&world, &store, &[&state], "before any crash")?;
        conflicts(store.close().err(), "a close")?;
        let trace = world.trace();
        self.each(&trace, from, limits, |point, image| {
            let both = [&before, &state];
            scene.live(image, if point < committed { &both } else { &both[1..] })
        })
    }

    fn crashed_before(&self, setting: &Setting, limits: &ExploreLimits) -> Result<(u64, u64), String> {
        // What he takes away may hang on an anchor by then: nobody loses it, and whether there is a conflict depends on
        // the crash.
        if self.undo.is_empty() || !self.but.is_empty() {
            return Ok((0, 0));
        }
        let (scene, world, store, state) = self.begin(setting)?;
        let from = world.now() + 1;
        store.checkpoint().map_err(|error| format!("checkpoint: {error}"))?;
        drop(store);
        let (trace, mut done) = (world.trace(), 0);
        let judged = self.each(&trace, from, limits, |_, image| {
            done += u64::from(scene.come_late(image, &state)?);
            Ok(())
        })?;
        Ok((judged, done))
    }

    /// Judges what crashes leave from a point on.
    fn each(
        &self,
        trace: &Trace,
        from: u64,
        limits: &ExploreLimits,
        mut judge: impl FnMut(u64, &Image) -> Result<(), String>,
    ) -> Result<u64, String> {
        let (mut explorer, mut judged, mut wrong) = (Explorer::new(trace), 0, None);
        for point in from..=trace.events.len() as u64 {
            explorer.seek(point);
            let mut one = |choice: String, image: &Image| {
                judged += 1;
                let what = crate::quiet::catch(|| judge(point, image)).unwrap_or_else(Err);
                wrong = what.err().map(|what| format!("{}, {:?}, {choice}: {what}", self.groups, self.acts));
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
}

impl Scene {
    fn open(&self, world: &Arc<World>) -> Result<Store, String> {
        open(world, &self.workload, &self.setting).map_err(|error| format!("open: {error}"))
    }

    /// The bystander does something, and it is durable.
    fn act(&mut self, world: &Arc<World>, words: &[&str], from: u64) -> Result<(), String> {
        for (number, word) in (from..).zip(words) {
            let op = op(word).expect("a word");
            let bytes = op.bytes(number).unwrap_or_default();
            self.home.apply(&op, &bytes).map_err(|error| format!("{word}: {error}"))?;
            on_host(&*world.host(), None, &op, &bytes).map_err(|error| format!("{word}: {error}"))?;
        }
        world.host().sync_all(SITE).map_err(|error| error.to_string())
    }

    /// What holds as long as the bystander's change is there.
    fn check(&self, world: &Arc<World>, store: &Store, states: &[&State], when: &str) -> Result<State, String> {
        let served = self.served(store)?;
        let found = states.iter().find(|state| self.without(state) == served);
        let Some(state) = found else {
            let differences: Vec<_> = states.iter().filter_map(|s| self.without(s).difference(&served)).collect();
            return Err(format!("{when}, what is served was never committed: {}", differences.join("; or ")));
        };
        conflicts(store.checkpoint().err(), "a checkpoint")?;
        let home = at_home(&world.latest()).map_err(|error| format!("{when}, at home: {error}"))?;
        match self.home.difference(&home) {
            Some(difference) => Err(format!("{when}, at home, {difference}")),
            None => Ok((*state).clone()),
        }
    }

    fn served(&self, mut store: &Store) -> Result<State, String> {
        let but = self.bystander.but;
        let served = tree(&mut store, &mut |path, error| {
            if but.contains(&path) { Ok(()) } else { Err(format!("{path}: {error}")) }
        })?;
        Ok(self.without(&served))
    }

    /// A state without what the store cannot serve.
    fn without(&self, state: &State) -> State {
        let mut state = state.clone();
        self.bystander.but.iter().for_each(|path| state.lose(path));
        state
    }

    fn live(&self, image: &Image, states: &[&State]) -> Result<(), String> {
        let world = World::from_image(image, self.setting.sim.clone());
        let store = self.open(&world)?;
        let mut state = self.check(&world, &store, states, "after a crash")?;
        state.reopen();
        group(&store, &mut state, &[Op::Create(LATE), Op::Append { file: LATE, length: 9 }], 2000)?;
        drop(store);
        let store = self.open(&world)?;
        self.check(&world, &store, &[&state], "after a group that followed a crash")?;
        drop(store);
        if self.bystander.undo.is_empty() { Ok(()) } else { self.settle(&world, state) }
    }

    /// A crash left this, and then the bystander comes. Whether there is anything for him to do.
    fn come_late(&self, image: &Image, state: &State) -> Result<bool, String> {
        let world = World::from_image(image, self.setting.sim.clone());
        let mut scene = self.clone();
        let first = op(self.bystander.acts[0]).expect("a word");
        if on_host(&*world.host(), None, &first, &first.bytes(THEIRS).unwrap_or_default()).is_err() {
            return Ok(false);
        }
        scene.home.apply(&first, &first.bytes(THEIRS).unwrap_or_default()).map_err(|error| error.to_string())?;
        scene.act(&world, &self.bystander.acts[1..], THEIRS + 1)?;
        let store = scene.open(&world)?;
        let served = scene.served(&store)?;
        if let Some(difference) = scene.without(state).difference(&served) {
            return Err(format!("he came after it, and then {difference}"));
        }
        conflicts(store.checkpoint().err(), "a checkpoint")?;
        conflicts(store.close().err(), "a close")?;
        let latest = world.latest();
        for (path, number) in scene.home.paths() {
            let theirs = self.bystander.acts.iter().filter_map(|act| op(act)).any(|op| op.file() == path);
            if let Kind::File(content) = &scene.home.object(number).kind
                && theirs
                && latest.read(&Place::file(&path)).as_deref() != Some(content)
            {
                return Err(format!("what he has made of {path} is lost"));
            }
        }
        scene.settle(&world, state.clone()).map(|()| true)
    }

    /// What the bystander has done is out of the way.
    fn settle(&self, world: &Arc<World>, mut state: State) -> Result<(), String> {
        let mut scene = self.clone();
        scene.act(world, self.bystander.undo, 2 * THEIRS)?;
        for path in self.bystander.left {
            state.put(path, scene.home.at(path).expect("he keeps it").clone());
        }
        self.open(world)?.close().map_err(|error| format!("close once he is out of the way: {error}"))?;
        let home = at_home(&world.latest()).map_err(|error| format!("once he is out of the way, {error}"))?;
        match state.difference(&home) {
            Some(difference) => Err(format!("once he is out of the way, {difference}")),
            None => Ok(()),
        }
    }
}

/// Commits a group, whose writes have numbers from `number` on.
pub(crate) fn group(store: &Store, state: &mut State, ops: &[Op], number: u64) -> Result<(), String> {
    let mut group = store.begin();
    perform(&mut group, state, ops, number)?;
    group.commit().map_err(|error| format!("commit: {error}"))
}

/// What a group does before it ends.
pub(crate) fn perform(group: &mut Group<'_>, state: &mut State, ops: &[Op], number: u64) -> Result<(), String> {
    let mut made: Vec<(&str, wholly::File)> = Vec::new();
    for (number, op) in (number..).zip(ops) {
        let bytes = op.bytes(number).unwrap_or_default();
        state.apply(op, &bytes).map_err(|error| format!("{op:?}: {error}"))?;
        let file = made.iter().find(|(path, _)| *path == op.file()).map(|(_, file)| file.clone());
        let file = if op.is_of_bytes() { file } else { None };
        let done = in_group(group, file, op, &bytes).map_err(|error| format!("{op:?}: {error}"))?;
        made.extend(done.map(|file| (op.file(), file)));
    }
    Ok(())
}

fn conflicts(error: Option<Error>, what: &str) -> Result<(), String> {
    match error {
        Some(Error::Conflict { .. }) => Ok(()),
        Some(error) => Err(format!("{what} fails otherwise: {error}")),
        None => Err(format!("{what} reports no conflict")),
    }
}
