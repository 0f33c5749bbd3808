//! Joint commits: two stores, each in a world of its own, and one clock for both. Groups of the two commit together.
//!
//! At every event of either world a crash hits both. Then the stores are opened, in one order or the other, and:
//!
//! 1. Both open: neither waits for the other in vain.
//! 2. Both have their group, or none; both once the commit had returned, none before it began.
//! 3. A crash during these opens, and opens after it, change nothing about that, once one store has said which it is.
//! 4. When each has been opened once more and closed, home is as served, and nothing is left of the joint commit.
//! 5. The second one opened where the first one cannot be found, and released, has its group, or had none, or has it among the parked ones: what
//!    was prepared is not lost. From then on it opens by itself.
//!
//! 6. One that is opened while the other one is away waits for it, or serves what both have in the end.
//!
//! The same where a call of the joint commit fails: then neither ever has its group, unless it is the sync of the decision that failed.
//!
//! Images of the world in which the event happened are combined with none, all and one more of those of the other one: what is pending in that
//! was judged at its own events.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use wholly::site::{JOINT_BEGIN_SYNC, JOINT_DECIDE, JOINT_DECIDE_SYNC, JOINT_PREPARE, JOINT_PREPARE_SYNC, PARK_SYNC};
use wholly::{Neighbours, Options, Store};
use wholly_media::sim::{ExploreLimits, Explorer, Image, Mutation, MutationKind, Random, Trace, World};
use wholly_media::{Error, HostFs, Site};

use crate::coverage::is_joint;
use crate::look::{at_home, served, tree};
use crate::mutants::applicable;
use crate::run::in_group;
use crate::script::workload;
use crate::setting::Setting;
use crate::tree::State;
use crate::workload::{Op, Step, Workload};

/// What the two groups do, as [scripts](crate::script) with one group each.
pub const ALL: &[[&str; 2]] = &[
    ["bare,write-A/foo", "bare,append-A/foo"],
    ["bare,create-foo+fill-foo+rename-A/foo-bar", "dirs,unlink-A/foo+rmdir-A/C+mkdir-C+chmod-B"],
    ["bare.staged,create-foo+fill-foo+link-foo-bar", "bare.staged,fill-A/foo+more-A/foo"],
    ["dirs,rename-A-B/foo+tag-B", "bare,symlink-foo-bar+cut-A/foo"],
];

/// Where the stores are, as they know each other.
const ADDRESSES: [&[u8]; 2] = [b"/one", b"/two"];

/// What was gone through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Crash points.
    pub points: u64,
    /// Pairs of images that were judged.
    pub images: u64,
    /// Those that only a crash during recovery led to.
    pub nested: u64,
}

/// How a store of a world finds that of the other one.
struct Beside {
    own: usize,
    worlds: [Arc<World>; 2],
    /// Whether the other one cannot be found.
    is_away: bool,
}

impl Neighbours for Beside {
    fn address(&self) -> wholly_media::Result<Vec<u8>> {
        Ok(ADDRESSES[self.own].to_vec())
    }

    fn at(&self, address: &[u8]) -> wholly_media::Result<Arc<dyn HostFs>> {
        let which = ADDRESSES.iter().position(|known| *known == address);
        let found = which.filter(|which| *which == self.own || !self.is_away);
        let place = || String::from_utf8_lossy(address);
        found.map(|which| self.worlds[which].host()).ok_or_else(|| Error::new("open", place(), Errno::NOENT))
    }
}

/// Two worlds with one clock.
struct Pair {
    worlds: [Arc<World>; 2],
    clock: Arc<AtomicU64>,
}

impl Pair {
    fn of(worlds: [Arc<World>; 2]) -> Pair {
        let clock = Arc::new(AtomicU64::new(0));
        worlds.iter().for_each(|world| world.share(clock.clone()));
        Pair { worlds, clock }
    }

    fn open(&self, which: usize, joint: &Joint<'_>) -> wholly::Result<Store> {
        self.open_where(which, false, joint)
    }

    /// Opens a store, perhaps where the other one is away.
    fn open_where(&self, which: usize, is_away: bool, joint: &Joint<'_>) -> wholly::Result<Store> {
        let world = &self.worlds[which];
        let beside = Beside { own: which, worlds: self.worlds.clone(), is_away };
        Store::open_among(world.log(), world.host(), joint.options(which), None, Some(Arc::new(beside)))
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    fn recorded(&self) -> Recorded {
        let traces = [0, 1].map(|which| self.worlds[which].trace());
        Recorded { ticks: [0, 1].map(|which| self.worlds[which].ticks()), traces }
    }
}

/// What happened in two worlds.
struct Recorded {
    traces: [Trace; 2],
    ticks: [Vec<u64>; 2],
}

impl Recorded {
    /// How many events each world has seen when the clock shows `tick`.
    fn points(&self, tick: u64) -> [u64; 2] {
        [0, 1].map(|which| self.ticks[which].partition_point(|other| *other <= tick) as u64)
    }

    /// The world whose event is that tick.
    fn moved(&self, tick: u64) -> usize {
        usize::from(self.ticks[1].binary_search(&tick).is_ok())
    }

    /// What the death of the process at a tick leaves.
    fn killed(&self, tick: u64) -> [Image; 2] {
        let points = self.points(tick);
        [0, 1].map(|which| {
            let mut explorer = Explorer::new(&self.traces[which]);
            explorer.seek(points[which]);
            explorer.kill_image()
        })
    }

    fn last(&self) -> u64 {
        self.ticks.iter().filter_map(|ticks| ticks.last()).copied().max().unwrap_or(0)
    }
}

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
        Limits { states: crate::Limits::glance().states, most: 16, nested_one_in: 16 }
    }

    /// For an idle machine.
    pub fn thorough() -> Limits {
        Limits { states: crate::Limits::quick().states, most: 400, nested_one_in: 4 }
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

/// A joint commit that is crashed.
struct Joint<'j> {
    setting: &'j Setting,
    limits: &'j Limits,
    fails: Fails,
    workloads: [Workload; 2],
    /// What each store serves before and after.
    sides: [[State; 2]; 2],
    outcome: Outcome,
    random: Random,
}

/// Explores the joint commit of two groups, given as scripts, perhaps one in which a call fails.
///
/// # Errors
/// What is wrong, in words, and after which crash.
pub fn explore(scripts: [&str; 2], fails: Fails, setting: &Setting, limits: &Limits) -> Result<Outcome, String> {
    crate::quiet::catch(|| {
        let mut joint = Joint::of(scripts, setting, limits);
        let (mut recorded, mut begin, mut end) = joint.record()?;
        if fails.is_some() {
            joint.fails = fails;
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
    for scripts in ALL {
        let mut joint = Joint::of(*scripts, setting, &limits);
        let (recorded, begin, end) = joint.record().expect("nothing is broken");
        add(&recorded.traces);
        for tick in (begin..=end).step_by(3) {
            let images = recorded.killed(tick);
            let (lived, ..) = joint.live(&images, [1, 0], [true; 2]).expect("nothing is broken");
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

impl<'j> Joint<'j> {
    fn of(scripts: [&str; 2], setting: &'j Setting, limits: &'j Limits) -> Self {
        let workloads = scripts.map(|script| workload(script).expect("it makes sense"));
        let (sides, outcome) = (Default::default(), Outcome::default());
        Joint { setting, limits, fails: None, workloads, sides, outcome, random: Random(7) }
    }

    fn options(&self, which: usize) -> Options {
        self.workloads[which].options(self.setting.segment_bytes())
    }

    fn ops(&self, which: usize) -> &[Op] {
        match &self.workloads[which].steps[..] {
            [Step::Group { ops, commit: true }] => ops,
            other => panic!("one group that commits: {other:?}"),
        }
    }

    /// Runs it. Gives what happened, and between which ticks the joint commit was.
    fn record(&mut self) -> Result<(Recorded, u64, u64), String> {
        let worlds = [0, 1].map(|which| {
            let mut sim = (*self.setting.sim).clone();
            if let Some((_, site)) = self.fails.filter(|(failing, _)| *failing == which) {
                sim.mutations.push(Mutation::new(site, MutationKind::Fail(Errno::IO)));
            }
            let world = World::new(sim);
            self.workloads[which].initial().put_into(&world);
            world
        });
        let pair = Pair::of(worlds);
        let failed = |what: &'static str| move |error: wholly::Error| format!("{what}: {error}");
        let mut stores = Vec::new();
        for (which, id) in [(0, *b"crash explorer.1"), (1, *b"crash explorer.2")] {
            Store::format_on(&*pair.worlds[which].log(), &self.options(which), id).map_err(failed("making a store"))?;
            let store = pair.open(which, self).map_err(failed("open"))?;
            self.sides[which][0] = served(&pair.worlds[which], &store, &self.workloads[which])?;
            stores.push(store);
        }
        let mut groups = Vec::new();
        for (which, store) in stores.iter().enumerate() {
            let mut group = store.begin();
            for (i, op) in self.ops(which).iter().enumerate() {
                let bytes = op.bytes(100 * which as u64 + i as u64 + 1).unwrap_or_default();
                in_group(&mut group, None, op, &bytes).map_err(failed("in a group"))?;
            }
            groups.push(group);
        }
        let begin = pair.now();
        let committed = Store::commit_together(groups);
        let end = pair.now();
        match (&committed, self.fails) {
            (Ok(()), None) => {
                for (which, store) in stores.iter().enumerate() {
                    self.sides[which][1] = served(&pair.worlds[which], store, &self.workloads[which])?;
                    assert_ne!(self.sides[which][0], self.sides[which][1], "the group changes something");
                }
            }
            // A store that has failed says so until it is opened again.
            (Err(_), Some(_)) => {
                for (which, store) in stores.iter().enumerate() {
                    if let Ok(serves) = served(&pair.worlds[which], store, &self.workloads[which]) {
                        assert_eq!(self.sides[which][0], serves, "after a joint commit that failed");
                    }
                }
                drop(stores);
                return Ok((pair.recorded(), begin, end));
            }
            (done, fails) => return Err(format!("the joint commit, in which {fails:?} fails: {done:?}")),
        }
        stores.into_iter().try_for_each(|store| store.close().map_err(failed("close")))?;
        Ok((pair.recorded(), begin, end))
    }

    fn crash(&mut self, recorded: &Recorded, begin: u64, end: u64) -> Result<(), String> {
        for tick in begin..=recorded.last() {
            let allowed = match self.fails {
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
    fn crash_at(&mut self, recorded: &Recorded, tick: u64, allowed: Allowed, is_first: bool) -> Result<(), String> {
        let (points, moved) = (recorded.points(tick), recorded.moved(tick));
        let mut explorers = [0, 1].map(|which| Explorer::new(&recorded.traces[which]));
        [0, 1].into_iter().for_each(|which| explorers[which].seek(points[which]));
        let killed = [0, 1].map(|which| explorers[which].kill_image());
        self.judge(&killed, allowed, is_first).map_err(|what| format!("by a kill: {what}"))?;
        let [mut mine, mut others] = [moved, 1 - moved].map(|which| {
            let mut all = Vec::new();
            let limits =
                if which == moved { self.limits.states.clone() } else { ExploreLimits { samples: 1, ..few() } };
            explorers[which].for_each_image(&limits, |choice, image| {
                all.push((choice.to_string(), image.clone()));
                ControlFlow::Continue(())
            });
            all
        });
        if !is_first {
            // A few of each: these are many.
            let few = |all: &mut Vec<(String, Image)>| all.truncate(3);
            few(&mut mine);
            few(&mut others);
        }
        others.truncate(3);
        while mine.len() > self.limits.most {
            // None and all stay.
            let one = 2 + self.random.below(mine.len() as u64 - 2) as usize;
            mine.swap_remove(one);
        }
        for (choice, image) in &mine {
            for (other_choice, other) in &others {
                let images = if moved == 0 { [image.clone(), other.clone()] } else { [other.clone(), image.clone()] };
                let go_deeper = is_first && self.random.below(self.limits.nested_one_in) == 0;
                let judged = self.judge(&images, allowed, go_deeper);
                judged.map_err(|what| format!("by {choice} of store {moved}, {other_choice} of the other: {what}"))?;
            }
        }
        Ok(())
    }

    /// Opens the stores after a crash, in both orders, and crashes that, where it is to go deeper.
    fn judge(&mut self, images: &[Image; 2], allowed: Allowed, go_deeper: bool) -> Result<(), String> {
        for order in [[0, 1], [1, 0]] {
            self.outcome.images += 1;
            let (recorded, opened, side) =
                self.live(images, order, allowed).map_err(|what| format!("store {} opened first: {what}", order[0]))?;
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
        let is_kept = |path: &[u8]| path.starts_with(b".wholly/parked/") && !path.ends_with(b".new");
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
                (Some(0), 0) if !is_prepared => {}
                other => return Err(format!("the store serves side {:?} with {} parked groups", other.0, other.1)),
            }
            store.close().map_err(|error| format!("close: {error}"))?;
        }
        Ok(recorded.expect("it was opened"))
    }

    /// The side that a store serves, if it may.
    fn side(&self, pair: &Pair, which: usize, store: &Store, allowed: Allowed) -> Result<usize, String> {
        let serves = served(&pair.worlds[which], store, &self.workloads[which])?;
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

    /// One life after a crash. Gives what happened, at which ticks the two opens had returned, and which side is served.
    fn live(
        &self,
        images: &[Image; 2],
        order: [usize; 2],
        allowed: Allowed,
    ) -> Result<(Recorded, [u64; 2], usize), String> {
        let pair = Pair::of([0, 1].map(|which| World::from_image(&images[which], self.setting.sim.clone())));
        let (mut side, mut opened) = (None, [u64::MAX; 2]);
        match pair.open_where(order[0], true, self) {
            Ok(store) => {
                opened[0] = pair.now();
                side = Some(self.side(&pair, order[0], &store, allowed)?);
            }
            Err(wholly::Error::Busy(..)) => {}
            Err(error) => return Err(format!("open of store {} alone: {error}", order[0])),
        }
        let mut stores = Vec::new();
        for (i, which) in order.into_iter().enumerate() {
            let store = pair.open(which, self).map_err(|error| format!("open of store {which}: {error}"))?;
            if let Some(conflict) = store.recovery().conflicts.first() {
                return Err(format!("store {which} reports a conflict: {conflict:?}"));
            }
            opened[i] = opened[i].min(pair.now());
            let found = self.side(&pair, which, &store, allowed)?;
            if side.is_some_and(|side| side != found) {
                return Err(format!("store {which} serves side {found}, and the other one does not"));
            }
            side = Some(found);
            stores.push(store);
        }
        let side = side.expect("two were opened");
        let recorded = pair.recorded();
        for store in stores {
            store.close().map_err(|error| format!("close: {error}"))?;
        }
        for which in order {
            let store = pair.open(which, self).map_err(|error| format!("second open of store {which}: {error}"))?;
            store.close().map_err(|error| format!("second close of store {which}: {error}"))?;
        }
        for which in order {
            let home =
                at_home(&pair.worlds[which].latest()).map_err(|error| format!("at home in store {which}, {error}"))?;
            if let Some(difference) = self.sides[which][side].difference(&home) {
                return Err(format!("at home in store {which}, {difference}"));
            }
        }
        Ok((recorded, opened, side))
    }
}
