//! Joint commits: several stores, each in a world of its own, and one clock for all. A group of each commits together
//! with those of the others.
//!
//! At every event of any world a crash hits all. Then the stores are opened, in one order or another, and:
//!
//! 1. All open: none waits for another in vain.
//! 2. All have their group, or none; all once the commit had returned, none before it began. What had committed before
//!    is there.
//! 3. A crash during these opens, and opens after it, change nothing about that, once one store has said which it is.
//! 4. When each has been opened once more and closed, home is as served, and nothing is left of the joint commit.
//! 5. The second one opened where the others cannot be found, and released, has its group, or had none, or has it among
//!    the parked ones: what was prepared is not lost. From then on it opens by itself.
//!
//! 6. One that is opened while the others are away waits for the first one, or serves what all have in the end.
//!
//! The same where a call of the joint commit fails: then neither ever has its group, unless it is the sync of the
//! decision that failed. And where the stores write their groups back as part of the commit
//! ([`Options::at_once`]): `refused.rs` has what their hosts refuse then.
//!
//! Images of the world in which the event happened are combined with none, all and one more of those of the others:
//! what is pending in these was judged at their own events.

mod refused;
mod worlds;

use std::ops::ControlFlow;

use rustix::io::Errno;
use wholly::site::{
    JOINT_BEGIN_SYNC, JOINT_DECIDE, JOINT_DECIDE_SYNC, JOINT_PREPARE, JOINT_PREPARE_SYNC, PARK_SYNC, UNDO_RENAME,
    UNDO_SYNC,
};
use wholly::{Group, Options, Store};
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Explorer, History, Image, Mutation, MutationKind, Random, Trace, World};

use crate::coverage::is_joint;
use crate::look::{at_home, served, tree};
use crate::mutants::applicable;
use crate::script::workload;
use crate::setting::Setting;
use crate::store::in_group;
use crate::taken_back::keep;
use crate::tree::State;
use crate::workload::{Op, Step, Workload};
pub use refused::{Refusals, refused};
use worlds::Worlds;

/// What the stores do, as [scripts](crate::script): groups that commit, the last of each together with those of the
/// others. What committed before is in the log when the joint commit begins.
pub const ALL: &[&[&str]] = &[
    &["bare,write-A/foo", "bare,append-A/foo"],
    &[
        "bare,append-A/foo,create-foo+fill-foo,write-A/foo+append-foo",
        "bare,create-foo+fill-foo,rename-A/foo-bar+write-foo",
    ],
    &["bare,write-A/foo", "bare,append-A/foo,unlink-A/foo+mkdir-B", "dirs,create-foo+fill-foo,rename-foo-bar+chmod-B"],
    &["bare,create-foo+fill-foo+rename-A/foo-bar", "dirs,unlink-A/foo+rmdir-A/C+mkdir-C+chmod-B"],
    &["bare.staged,create-foo+fill-foo+link-foo-bar", "bare.staged,fill-A/foo+more-A/foo"],
    &["dirs,rename-A-B/foo+tag-B", "bare,symlink-foo-bar+cut-A/foo"],
];

/// What was gone through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Crash points.
    pub points: u64,
    /// Combinations of images, one of each world, that were judged.
    pub images: u64,
    /// Those that only a crash during recovery led to.
    pub nested: u64,
}

/// What identifies the stores.
const VOLUME_IDS: [[u8; 16]; 3] = [*b"crash explorer.1", *b"crash explorer.2", *b"crash explorer.3"];

/// Images of a world in which nothing has just happened.
const FEW: usize = 3;

/// Which of the two sides a crash may leave: before the joint commit, and after it.
type Allowed = [bool; 2];

/// How much is explored.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Images of one world at one point.
    pub states: ExploreLimits,
    /// The most of them that are combined with images of the other world, drawn where there are more.
    pub most: usize,
    /// One in so many crashes is followed by crashes during recovery.
    pub nested_one_in: u64,
}

impl Limits {
    /// What `make test` does.
    pub fn quick() -> Limits {
        Limits { states: crate::Limits::glance().states, most: 10, nested_one_in: 16 }
    }

    /// What `make test-long` does.
    pub fn long() -> Limits {
        Limits { most: 32, ..Limits::quick() }
    }
}

/// A call that fails, if one does: of which store, and at which site.
pub type Fails = Option<(usize, Site)>;

/// Calls of a joint commit that may fail, before and at its commit point.
pub const FAILING: &[(usize, Site)] = &[
    (1, PARK_SYNC),
    (1, JOINT_PREPARE),
    (1, JOINT_PREPARE_SYNC),
    (0, JOINT_BEGIN_SYNC),
    (0, JOINT_DECIDE),
    (0, JOINT_DECIDE_SYNC),
];

/// Those of stores that write back as part of the commit; one of the first store is to come after it has done so.
pub const FAILING_AT_ONCE: &[(usize, Site)] =
    &[(1, JOINT_PREPARE_SYNC), (1, UNDO_RENAME), (1, UNDO_SYNC), (0, JOINT_DECIDE), (0, JOINT_DECIDE_SYNC)];

/// How a joint commit is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Whether the stores write their groups back as part of their commit.
    pub at_once: bool,
    /// A call that fails, if one does.
    pub fails: Fails,
    /// Whether it is the groups of another one that it takes back ([`Store::undo_together`]).
    pub takes_back: bool,
}

/// A joint commit that is crashed.
struct Joint<'j> {
    setting: &'j Setting,
    limits: &'j Limits,
    how: How,
    workloads: Vec<Workload>,
    /// What each store serves before and after.
    sides: Vec<[State; 2]>,
    outcome: Outcome,
    random: Random,
}

/// Explores the joint commit of a group of each of these scripts, perhaps one in which a call fails.
///
/// # Errors
/// What is wrong, in words, and after which crash.
pub fn explore(scripts: &[&str], how: How, setting: &Setting, limits: &Limits) -> Result<Outcome, String> {
    crate::quiet::catch(|| {
        let mut joint = Joint::of(scripts, setting, limits);
        joint.how = How { fails: None, ..how };
        let (mut recorded, mut begin, mut end) = joint.record()?;
        if how.fails.is_some() {
            joint.how = how;
            (recorded, begin, end) = joint.record()?;
        }
        joint
            .crash(&recorded, begin, end)
            .map_err(|what| format!("{}: {}: {what}", setting.name, scripts.join(" and ")))?;
        Ok(joint.outcome)
    })
    .unwrap_or_else(|panic| Err(format!("panic: {panic}")))
}

/// What can be broken about each site that joint commits pass, and opens after their crashes.
pub fn mutants(setting: &Setting) -> Vec<Mutation> {
    let mut all: Vec<Mutation> = Vec::new();
    let mut add = |traces: &[Trace]| {
        for event in traces.iter().flat_map(|trace| &trace.events) {
            let Some(site) = event.site.filter(|site| is_joint(*site)) else { continue };
            for mutation in applicable(&event.kind).iter().map(|kind| Mutation::new(site, *kind)) {
                if !all.contains(&mutation) {
                    all.push(mutation);
                }
            }
        }
    };
    let limits = Limits { states: few(), ..Limits::quick() };
    for (scripts, at_once) in ALL.iter().flat_map(|scripts| [(scripts, false), (scripts, true)]) {
        let mut joint = Joint::of(scripts, setting, &limits);
        joint.how.at_once = at_once;
        let (recorded, begin, end) = joint.record().expect("nothing is broken");
        add(&recorded.traces);
        for tick in (begin..=end).step_by(3) {
            let images = recorded.killed(tick);
            let (lived, ..) = joint.live(&images, &joint.orders()[1], [true; 2]).expect("nothing is broken");
            add(&lived.traces);
            add(&[joint.live_alone(&images[1], true).expect("nothing is broken")]);
        }
    }
    all
}

/// Limits that leave out all but none and all.
fn few() -> ExploreLimits {
    ExploreLimits {
        exhaustive_bits: 1,
        single_units: 0,
        pair_units: 0,
        samples: 0,
        focus_bits: 0,
        ..ExploreLimits::default()
    }
}

/// The sites of joint commits.
pub fn sites() -> Vec<Site> {
    wholly::site::ALL.iter().copied().filter(|site| is_joint(*site)).collect()
}

fn failed(what: &'static str) -> impl Fn(wholly::Error) -> String {
    move |error| format!("{what}: {error}")
}

impl<'j> Joint<'j> {
    fn of(scripts: &[&str], setting: &'j Setting, limits: &'j Limits) -> Self {
        let workloads: Vec<_> = scripts.iter().map(|script| workload(script).expect("it makes sense")).collect();
        let (sides, outcome) = (vec![Default::default(); workloads.len()], Outcome::default());
        Joint { setting, limits, how: How::default(), workloads, sides, outcome, random: Random(7) }
    }

    fn options(&self, which: usize) -> Options {
        Options { at_once: self.how.at_once, ..self.workloads[which].options(self.setting.segment_bytes()) }
    }

    /// What the groups of a store do, the last of which is one of the joint commit.
    fn groups(&self, which: usize) -> impl Iterator<Item = &[Op]> {
        self.workloads[which].steps.iter().map(|step| match step {
            Step::Group { ops, commit: true } => &ops[..],
            other => panic!("a group that commits: {other:?}"),
        })
    }

    /// Orders in which the stores are opened: each is the first of one.
    fn orders(&self) -> Vec<Vec<usize>> {
        let count = self.workloads.len();
        (0..count).map(|first| (first..count).chain((0..first).rev()).collect()).collect()
    }

    fn open(&self, worlds: &Worlds, which: usize) -> wholly::Result<Store> {
        worlds.open(which, false, self.options(which))
    }

    /// Runs it. Gives what happened, and between which ticks the joint commit was.
    fn record(&mut self) -> Result<(History, u64, u64), String> {
        let worlds = (0..self.workloads.len()).map(|which| {
            let mut sim = (*self.setting.sim).clone();
            if let Some((_, site)) = self.how.fails.filter(|(failing, _)| *failing == which) {
                sim.mutations.push(Mutation::new(site, MutationKind::Fail(Errno::IO)));
            }
            let world = World::new(sim);
            self.workloads[which].initial().put_into(&world);
            world
        });
        let worlds = Worlds::of(worlds.collect());
        let mut stores = Vec::new();
        for (which, id) in VOLUME_IDS.into_iter().enumerate().take(self.workloads.len()) {
            Store::format_on(&*worlds[which].log(), &self.options(which), id).map_err(failed("making a store"))?;
            stores.push(self.open(&worlds, which).map_err(failed("open"))?);
        }
        let mut groups = self.begin(&worlds, &stores)?;
        let (begin, committed) = if self.how.takes_back {
            groups.iter_mut().try_for_each(|group| group.keep_undo(&keep())).map_err(failed("keep"))?;
            Store::commit_together(groups).map_err(failed("the first commit"))?;
            let mut newest = Vec::new();
            for (which, store) in stores.iter().enumerate() {
                self.sides[which][0] = served(&worlds[which], store, &self.workloads[which])?;
                let kept = store.undos().map_err(failed("what is kept"))?.pop().ok_or("nothing is kept")?;
                newest.push((store, kept.id, wholly::Undoing::default()));
            }
            (worlds.now(), Store::undo_together(newest, &keep()).map(drop))
        } else {
            (worlds.now(), Store::commit_together(groups))
        };
        let end = worlds.now();
        match (&committed, self.how.fails) {
            (Ok(()), None) => {
                for (which, store) in stores.iter().enumerate() {
                    self.sides[which][1] = served(&worlds[which], store, &self.workloads[which])?;
                    assert_ne!(self.sides[which][0], self.sides[which][1], "the group changes something");
                }
            }
            // A store that has failed says so until it is opened again.
            (Err(_), Some(_)) => {
                for (which, store) in stores.iter().enumerate() {
                    if let Ok(serves) = served(&worlds[which], store, &self.workloads[which]) {
                        assert_eq!(self.sides[which][0], serves, "after a joint commit that failed");
                    }
                }
                drop(stores);
                return Ok((worlds.history(), begin, end));
            }
            (done, fails) => return Err(format!("the joint commit, in which {fails:?} fails: {done:?}")),
        }
        stores.into_iter().try_for_each(|store| store.close().map_err(failed("close")))?;
        Ok((worlds.history(), begin, end))
    }

    /// Commits the groups that come before. Gives those of the joint commit, done but for that.
    fn begin(&mut self, worlds: &Worlds, stores: &[Store]) -> Result<Vec<Group<'static>>, String> {
        let (mut groups, mut before) = (Vec::new(), Vec::new());
        for (which, store) in stores.iter().enumerate() {
            let (mut number, last) = (100 * which as u64, self.workloads[which].steps.len() - 1);
            for (i, ops) in self.groups(which).enumerate() {
                if i == last {
                    before.push(served(&worlds[which], store, &self.workloads[which])?);
                }
                let mut group = store.begin();
                for op in ops {
                    number += 1;
                    let bytes = op.bytes(number).unwrap_or_default();
                    in_group(&mut group, None, op, &bytes).map_err(failed("in a group"))?;
                }
                if i == last {
                    groups.push(group);
                } else {
                    group.commit().map_err(failed("an earlier commit"))?;
                }
            }
        }
        self.sides.iter_mut().zip(before).for_each(|(sides, before)| sides[0] = before);
        Ok(groups)
    }

    fn crash(&mut self, recorded: &History, begin: u64, end: u64) -> Result<(), String> {
        for tick in begin..=recorded.last() {
            let allowed = match self.how.fails {
                None => [tick < end, tick > begin],
                // Whether the decision survives that failed to, nobody knows.
                Some((_, site)) => [true, site == JOINT_DECIDE_SYNC],
            };
            self.outcome.points += 1;
            self.crash_at(recorded, tick, allowed, true)
                .and_then(|()| if tick % 4 == 0 { self.crash_alone(&recorded.killed(tick)[1]) } else { Ok(()) })
                .map_err(|what| format!("crashed at {tick}: {what}"))?;
        }
        Ok(())
    }

    /// Judges what a crash at a tick leaves.
    fn crash_at(&mut self, recorded: &History, tick: u64, allowed: Allowed, is_first: bool) -> Result<(), String> {
        let (points, moved) = (recorded.points(tick), recorded.moved(tick));
        let mut explorers: Vec<Explorer<'_>> = recorded.traces.iter().map(Explorer::new).collect();
        explorers.iter_mut().zip(points).for_each(|(explorer, point)| explorer.seek(point));
        let killed: Vec<Image> = explorers.iter().map(Explorer::kill_image).collect();
        self.judge(&killed, allowed, is_first).map_err(|what| format!("by a kill: {what}"))?;
        let mut all: Vec<Vec<(String, Image)>> = Vec::new();
        for (which, explorer) in explorers.iter_mut().enumerate() {
            let limits =
                if which == moved { self.limits.states.clone() } else { ExploreLimits { samples: 1, ..few() } };
            let mut images = Vec::new();
            explorer.for_each_image(&limits, |choice, image| {
                images.push((choice.to_string(), image.clone()));
                ControlFlow::Continue(())
            });
            // A few of each inside of recoveries: these are many.
            if !is_first || which != moved {
                images.truncate(FEW);
            }
            all.push(images);
        }
        let mut mine = std::mem::take(&mut all[moved]);
        while mine.len() > self.limits.most {
            // None and all stay.
            let one = 2 + self.random.below(mine.len() as u64 - 2) as usize;
            mine.swap_remove(one);
        }
        let rounds = all.iter().map(Vec::len).max().unwrap_or(0);
        for (choice, image) in &mine {
            for round in 0..rounds {
                let (mut images, mut choices) = (Vec::new(), Vec::new());
                for (which, others) in all.iter().enumerate() {
                    // Not of all the same: one has none of what another has all of.
                    let other = others.get((round + which) % rounds).or(others.last());
                    let (choice, image) = other.map_or((choice, image), |(choice, image)| (choice, image));
                    images.push(image.clone());
                    choices.push(choice.as_str());
                }
                let go_deeper = is_first && self.random.below(self.limits.nested_one_in) == 0;
                self.judge(&images, allowed, go_deeper)
                    .map_err(|what| format!("by {}, after an event of store {moved}: {what}", choices.join(" and ")))?;
            }
        }
        Ok(())
    }

    /// Opens the stores after a crash, in several orders, and crashes that, where it is to go deeper.
    fn judge(&mut self, images: &[Image], allowed: Allowed, go_deeper: bool) -> Result<(), String> {
        for order in self.orders() {
            self.outcome.images += 1;
            let (recorded, opened, side) = self
                .live(images, &order, allowed)
                .map_err(|what| format!("store {} opened first: {what}", order[0]))?;
            if !go_deeper {
                continue;
            }
            for tick in 0..=opened[1] {
                if self.random.below(self.limits.nested_one_in.div_ceil(3)) != 0 {
                    continue;
                }
                // What a store has served stays.
                let only = [side == 0, side == 1];
                let before = self.outcome.images;
                let nested = self.crash_at(&recorded, tick, if tick < opened[0] { allowed } else { only }, false);
                self.outcome.nested += self.outcome.images - before;
                nested.map_err(|what| format!("store {} opened first, crashed at {tick}: {what}", order[0]))?;
            }
        }
        Ok(())
    }

    /// Releases the second store after a crash, and crashes that.
    fn crash_alone(&mut self, image: &Image) -> Result<(), String> {
        self.outcome.images += 1;
        let trace = self.live_alone(image, true).map_err(|what| format!("released: {what}"))?;
        let mut explorer = Explorer::new(&trace);
        let last = trace.events.len() as u64;
        for point in 1..=last {
            explorer.seek(point);
            let mut images = vec![explorer.kill_image()];
            explorer.for_each_image(&ExploreLimits { samples: 1, ..few() }, |_, image| {
                images.push(image.clone());
                if images.len() < 4 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            for image in &images {
                self.outcome.images += 1;
                self.outcome.nested += 1;
                // When the open has returned, it needs to be released no more.
                let lived = self.live_alone(image, point < last);
                lived.map_err(|what| format!("released, and crashed at {point} of that: {what}"))?;
            }
        }
        Ok(())
    }

    /// One life of the second store where nobody finds the first one. Gives what happened in the first open.
    fn live_alone(&self, image: &Image, release: bool) -> Result<Trace, String> {
        let world = World::from_image(image, self.setting.sim.clone());
        let is_no_group = |path: &[u8]| path.ends_with(b".new") || path.ends_with(b".undo");
        let is_kept = |path: &[u8]| path.starts_with(b".wholly/parked/") && !is_no_group(path);
        let is_prepared = image.names().iter().any(|it| is_kept(&it.path));
        let mut recorded = None;
        for is_first in [true, false] {
            let options = Options { release: release && is_first, ..self.options(1) };
            let store = Store::open_among(world.log(), world.host(), options, None, None);
            let store = store.map_err(|error| format!("open: {error}"))?;
            recorded.get_or_insert_with(|| world.trace());
            let serves = tree(&mut &store, &mut |path, error| Err(format!("{path}: {error}")))?;
            let parked = store.parked().map_err(|error| format!("what is parked: {error}"))?;
            let side = self.sides[1].iter().rposition(|state| state.difference(&serves).is_none());
            match (side, parked.len()) {
                (Some(1), 0) | (Some(0), 1) => {}
                // Where it was to be taken back, its undo is there still.
                (Some(0), 0) if !is_prepared || self.how.takes_back => {}
                other => return Err(format!("the store serves side {:?} with {} parked groups", other.0, other.1)),
            }
            store.close().map_err(|error| format!("close: {error}"))?;
        }
        Ok(recorded.expect("it was opened"))
    }

    /// The side that a store serves, if it may.
    fn side(&self, worlds: &Worlds, which: usize, store: &Store, allowed: Allowed) -> Result<usize, String> {
        let serves = served(&worlds[which], store, &self.workloads[which])?;
        if self.how.takes_back {
            // Of either side there is a way to the other.
            let undos = store.undos().map_err(|error| format!("what is kept in store {which}: {error}"))?;
            if undos.last().is_none_or(|undo| undo.gone.is_some()) {
                return Err(format!("store {which} has no undo: {undos:?}"));
            }
        }
        match self.sides[which].iter().position(|state| *state == serves) {
            Some(found) if allowed[found] => Ok(found),
            Some(found) => Err(format!("store {which} serves side {found}, which cannot be")),
            None => {
                let difference = self.sides[which].iter().filter_map(|state| state.difference(&serves));
                let difference: Vec<String> = difference.collect();
                Err(format!("store {which} serves what never was: {}", difference.join("; or ")))
            }
        }
    }

    /// One life after a crash. Gives what happened, at which ticks the first open and the last had returned, and which
    /// side is served.
    fn live(&self, images: &[Image], order: &[usize], allowed: Allowed) -> Result<(History, [u64; 2], usize), String> {
        let worlds = images.iter().map(|image| World::from_image(image, self.setting.sim.clone()));
        let worlds = Worlds::of(worlds.collect());
        let (mut side, mut opened) = (None, [u64::MAX; 2]);
        match worlds.open(order[0], true, self.options(order[0])) {
            Ok(store) => {
                opened[0] = worlds.now();
                side = Some(self.side(&worlds, order[0], &store, allowed)?);
            }
            Err(wholly::Error::Busy(..)) => {}
            Err(error) => return Err(format!("open of store {} alone: {error}", order[0])),
        }
        let mut stores = Vec::new();
        for &which in order {
            let store = self.open(&worlds, which).map_err(|error| format!("open of store {which}: {error}"))?;
            if let Some(conflict) = store.recovery().conflicts.first() {
                return Err(format!("store {which} reports a conflict: {conflict:?}"));
            }
            opened[0] = opened[0].min(worlds.now());
            let found = self.side(&worlds, which, &store, allowed)?;
            if side.is_some_and(|side| side != found) {
                return Err(format!("store {which} serves side {found}, and another one does not"));
            }
            side = Some(found);
            stores.push(store);
        }
        opened[1] = worlds.now();
        let side = side.expect("some were opened");
        let recorded = worlds.history();
        for store in stores {
            store.close().map_err(|error| format!("close: {error}"))?;
        }
        for &which in order {
            let store = self.open(&worlds, which).map_err(|error| format!("second open of store {which}: {error}"))?;
            store.close().map_err(|error| format!("second close of store {which}: {error}"))?;
        }
        for &which in order {
            let home =
                at_home(&worlds[which].latest()).map_err(|error| format!("at home in store {which}, {error}"))?;
            if let Some(difference) = self.sides[which][side].difference(&home) {
                return Err(format!("at home in store {which}, {difference}"));
            }
        }
        Ok((recorded, opened, side))
    }
}
