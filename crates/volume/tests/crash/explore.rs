//! Recording a script, and going through the states that a crash may leave.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use wholly::vfs::{Context, Ino, OFlags, Timestamp, Vfs};
use wholly_media::{PersistenceDomain, Site};
use wholly_posix::Tree;
use wholly_sim::{
    Choice, CountingRegion, Counts, Event, ExploreLimits, Explorer, Image, Medium, Mutation, Pick, PmemMode, Random,
    SimConfig, Trace, World,
};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

use crate::groups::Move;
use crate::scripts::{Script, Step};
use crate::tree::Seen;

/// Blocks of a volume.
pub const BLOCKS: u64 = 128;

thread_local!(static THREAD: Cell<u64> = const { Cell::new(0) });

/// Steps are made by two threads in turn, so that no fence covers what the other one stored.
fn thread() -> u64 {
    THREAD.get()
}

/// What a script is tried on.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub engine: EngineKind,
    pub blocks: u64,
    /// The time of changes.
    pub clock: Option<fn() -> Timestamp>,
}

impl Subject {
    pub const FINE_GRAINED_WAL: Subject = Subject { engine: EngineKind::FineGrainedWal, blocks: BLOCKS, clock: None };

    fn options(self) -> VolumeOptions {
        let VolumeOptions { clock, .. } = VolumeOptions::default();
        let clock = self.clock.unwrap_or(clock);
        VolumeOptions { cache_bytes: 1 << 20, engine: self.engine, clock, ..VolumeOptions::default() }
    }
}

fn options() -> VolumeOptions {
    Subject::FINE_GRAINED_WAL.options()
}

fn config(blocks: u64, x86: bool, mutations: &[Mutation]) -> Arc<SimConfig> {
    let mode = if x86 { PmemMode::X86 } else { PmemMode::Adversarial };
    Arc::new(SimConfig {
        log: Medium::Pmem { domain: PersistenceDomain::MemoryController, mode },
        log_len: blocks * 4096,
        mutations: mutations.to_vec(),
        thread,
        ..SimConfig::pmem()
    })
}

/// How many states are tried.
#[derive(Clone, Debug)]
pub struct Limits {
    /// All states of a point with at most two to the power of this many.
    pub exhaustive_bits: u32,
    /// Samples of a point with more.
    pub samples: u64,
    /// Words of such a point that are tried alone, and left out alone.
    pub singles: usize,
    /// In one of so many states recovery crashes, too.
    pub nested_every: u64,
    /// Points of a recovery that are tried.
    pub nested_points: u64,
    pub seed: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { exhaustive_bits: 5, samples: 6, singles: 24, nested_every: 40, nested_points: 6, seed: 42 }
    }
}

/// What was tried.
#[derive(Debug, Default)]
pub struct Outcome {
    pub states: u64,
    pub nested: u64,
    pub points: u64,
    pub crashed_at: BTreeSet<&'static str>,
    pub violation: Option<String>,
}

impl Outcome {
    pub fn add(&mut self, other: Outcome) {
        self.states += other.states;
        self.nested += other.nested;
        self.points += other.points;
        self.crashed_at.extend(other.crashed_at);
    }
}

/// A script that was carried out once.
pub struct Recorded {
    trace: Trace,
    /// The points at which each step ended; the first is that before all.
    ends: Vec<u64>,
    /// What there is at these points.
    seen: Vec<Seen>,
    incarnation: ([u8; 16], u64),
    config: Arc<SimConfig>,
    /// What the steps of a script did to the medium.
    pub counts: Counts,
}

fn see(image: &Image, config: &Arc<SimConfig>) -> Result<Seen, String> {
    let world = World::from_image(image, config.clone());
    let volume = Volume::open_region(world.log(), &options()).map_err(|error| format!("open: {error}"))?;
    let vfs = VolumeVfs::new(&volume);
    Seen::of(&vfs).map_err(|errno| format!("read all: {errno}"))
}

impl Recorded {
    /// Carries a script out, something of it broken on purpose.
    pub fn of(script: &Script, x86: bool, mutations: &[Mutation]) -> Recorded {
        Recorded::on(Subject::FINE_GRAINED_WAL, script, x86, mutations)
    }

    /// The same with any engine.
    pub fn on(subject: Subject, script: &Script, x86: bool, mutations: &[Mutation]) -> Recorded {
        let moves: Vec<Move> = script.steps.iter().map(|step| Move::Out(*step)).collect();
        Self::of_moves(subject, (script.name, script.before), &moves, x86, mutations)
    }

    /// The same of calls in and outside of explicit groups.
    pub fn of_moves(
        subject: Subject,
        (name, before): (&str, Step),
        moves: &[Move],
        x86: bool,
        mutations: &[Mutation],
    ) -> Recorded {
        let sound = config(subject.blocks, x86, &[]);
        let world = World::new(sound.clone());
        Volume::format_region(&*world.log(), &subject.options()).expect("make a volume");
        let volume = Volume::open_region(world.log(), &subject.options()).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        before(&Tree::new(&vfs, Ino::ROOT)).expect("what is there before");
        drop(vfs);
        volume.close().expect("close it");

        let config = config(subject.blocks, x86, mutations);
        let world = World::from_image(&world.latest(), config.clone());
        let region = CountingRegion::new(world.log());
        let volume = Volume::open_region(region.clone(), &subject.options()).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        region.take();
        let (mut ends, mut seen) = (vec![world.now()], vec![see(&world.latest(), &sound).expect("before")]);
        let mut groups = [None; 2];
        for (number, step) in moves.iter().enumerate() {
            THREAD.set(number as u64 % 2);
            let done = match *step {
                Move::Out(step) => step(&tree),
                Move::Begin(group) => vfs.begin_group().map(|id| groups[group] = Some(id)),
                Move::In(group, step) => {
                    step(&Tree { ctx: Context { group: groups[group], ..tree.ctx.clone() }, ..tree.clone() })
                }
                Move::Commit(group) => vfs.commit_group(groups[group].expect("it runs")),
                Move::Abort(group) => vfs.abort_group(groups[group].expect("it runs")),
            };
            done.unwrap_or_else(|errno| panic!("{name} step {number}: {errno}"));
            ends.push(world.now());
            let now = see(&world.latest(), &sound).expect("without a crash, all is there");
            let changes = seen.last() != Some(&now);
            match step {
                Move::Out(_) => assert!(changes, "{name} step {number} changes nothing"),
                Move::Begin(_) | Move::In(..) | Move::Abort(_) => assert!(!changes, "{name} step {number} is seen"),
                Move::Commit(_) => {}
            }
            seen.push(now);
        }
        THREAD.set(0);
        let (trace, counts) = (world.trace(), region.take());
        let stat = volume.stat();
        let incarnation = (stat.volume_id, stat.incarnation);
        // Not unmounted: that is no part of it.
        drop(tree);
        std::mem::forget((vfs, volume));
        Recorded { trace, ends, seen, incarnation, config, counts }
    }

    /// Makes a volume smaller and larger again. Nothing of what there is changes.
    pub fn of_resizing(subject: Subject, x86: bool) -> Recorded {
        let config = config(subject.blocks, x86, &[]);
        let world = World::new(config.clone());
        Volume::format_region(&*world.log(), &subject.options()).expect("make a volume");
        let volume = Volume::open_region(world.log(), &subject.options()).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        Tree::new(&vfs, Ino::ROOT).file("a", 0o644, &[1; 9000]).expect("make a file");
        drop(vfs);
        let stat = volume.stat();
        volume.close().expect("close it");
        let world = World::from_image(&world.latest(), config.clone());
        let seen = see(&world.latest(), &config).expect("it opens");
        for blocks in [subject.blocks - 20, subject.blocks] {
            Volume::resize_region(&*world.log(), blocks * 4096).expect("give it another size");
        }
        assert_eq!(seen, see(&world.latest(), &config).expect("it opens"));
        let incarnation = (stat.volume_id, stat.incarnation);
        Recorded { trace: world.trace(), ends: vec![0], seen: vec![seen], incarnation, config, counts: Counts::new() }
    }

    /// The volume's id, and how often it was mounted.
    pub fn incarnation(&self) -> ([u8; 16], u64) {
        self.incarnation
    }

    /// What was done by the steps.
    pub fn steps(&self) -> &[Event] {
        &self.trace.events[self.ends[0] as usize..]
    }

    /// What the death of the process leaves right behind each store of a site, and the store.
    pub fn deaths_behind(&self, site: &str) -> Vec<(Image, &Event)> {
        let mut explorer = Explorer::new(&self.trace);
        let events = self.trace.events.iter().zip(1..);
        let stores = events.filter(|(event, _)| event.site.is_some_and(|passed| passed.0 == site));
        let death = |(event, behind)| {
            explorer.seek(behind);
            (explorer.kill_image(), event)
        };
        stores.map(death).collect()
    }

    /// A world that begins with an image, and in which nothing is broken.
    pub fn world_of(&self, image: &Image) -> Arc<World> {
        World::from_image(image, SimConfig { mutations: Vec::new(), ..(*self.config).clone() })
    }

    /// What may be there after a crash at a point.
    fn allowed(&self, point: u64) -> Vec<&Seen> {
        let done = self.ends.partition_point(|end| *end <= point);
        match done.checked_sub(1) {
            None => vec![&self.seen[0]],
            Some(last) if self.ends[last] == point => vec![&self.seen[last]],
            Some(last) => self.seen[last..].iter().take(2).collect(),
        }
    }

    /// Goes through the states, until one is wrong.
    pub fn explore(&self, limits: &Limits) -> Outcome {
        let mut outcome = Outcome::default();
        let mut explorer = Explorer::new(&self.trace);
        let mut tried = HashSet::new();
        let explored = ExploreLimits {
            exhaustive_bits: limits.exhaustive_bits,
            single_units: limits.singles,
            pair_units: 0,
            samples: limits.samples,
            seed: limits.seed,
            ..ExploreLimits::default()
        };
        loop {
            let point = explorer.index();
            let allowed = self.allowed(point);
            outcome.points += 1;
            explorer.for_each_image(&explored, |choice, image| {
                // The same state may be right at one point and wrong at another.
                let last = self.ends.partition_point(|end| *end <= point);
                if !tried.insert((image.hash(), last, allowed.len())) {
                    return ControlFlow::Continue(());
                }
                outcome.states += 1;
                let nested = (outcome.states % limits.nested_every == 0).then_some(limits);
                match catch_unwind(AssertUnwindSafe(|| self.judge(image, &allowed, nested))) {
                    Ok(Ok((more, sites))) => {
                        (outcome.nested, outcome.states) = (outcome.nested + more, outcome.states + more);
                        outcome.crashed_at.extend(sites);
                        return ControlFlow::Continue(());
                    }
                    Ok(Err(what)) => outcome.violation = Some(format!("crash at {choice}: {what}")),
                    Err(_) => outcome.violation = Some(format!("crash at {choice}: panic")),
                }
                ControlFlow::Break(())
            });
            // The process dies, and the power stays on: all that it stored is there.
            outcome.states += 1;
            if let Err(what) = self.judge(&explorer.kill_image(), &allowed, None)
                && outcome.violation.is_none()
            {
                outcome.violation = Some(format!("death at p{point}: {what}"));
            }
            outcome.crashed_at.extend(explorer.event().and_then(|event| event.site).map(|site: Site| site.0));
            if outcome.violation.is_some() || !explorer.advance() {
                return outcome;
            }
        }
    }

    /// Recovers from a crash, and looks. Returns how many crashes of the recovery were tried, and where.
    fn judge(
        &self,
        image: &Image,
        allowed: &[&Seen],
        nested: Option<&Limits>,
    ) -> Result<(u64, Vec<&'static str>), String> {
        let world = World::from_image(image, self.config.clone());
        let sound = |when: &str| {
            let checked = Volume::check_region(&*world.log()).map_err(|error| format!("{when}: {error}"))?;
            match checked.findings.first() {
                None => Ok(checked),
                Some(finding) => Err(format!("{when}: {finding}")),
            }
        };
        sound("a check before the mount")?;
        let volume = Volume::open_region(world.log(), &options()).map_err(|error| format!("open: {error}"))?;
        let recovery = nested.map(|limits| (limits, world.trace()));
        let vfs = VolumeVfs::new(&volume);
        let seen = Seen::of(&vfs).map_err(|errno| format!("read all: {errno}"))?;
        if !allowed.contains(&&seen) {
            let differences: Vec<String> = allowed.iter().map(|allowed| allowed.difference(&seen)).collect();
            return Err(format!("the tree is none of those allowed: {}", differences.join("; and ")));
        }
        if nested.is_some() {
            let tree = Tree::new(&vfs, Ino::ROOT);
            self.live_again(&world, &tree).map_err(|what| format!("in its second life, {what}"))?;
            tree.unlink("again").map_err(|errno| format!("remove: {errno}"))?;
        }
        drop(vfs);
        volume.close().map_err(|error| format!("close: {error}"))?;
        let checked = sound("a check after the unmount")?;
        if checked.orphans > 0 || !checked.is_clean {
            return Err(format!("after the unmount: {} orphans, clean {}", checked.orphans, checked.is_clean));
        }
        // The mount and the unmount have written all copies of the superblock.
        if let Some(lost) = checked.lost_copies.first() {
            return Err(format!("after the unmount: {lost}"));
        }
        let Some((limits, trace)) = recovery else { return Ok((0, Vec::new())) };
        self.crash_recovery(&trace, &[&seen], limits)
    }

    /// After a recovery: nothing that the log has of an earlier life counts any more. Each call is there after the next
    /// crash.
    fn live_again(&self, world: &Arc<World>, tree: &Tree<'_>) -> Result<(), String> {
        for round in 0..3u8 {
            let done = match round {
                0 => tree.file("again", 0o644, &[1; 5000]).map(drop),
                _ => tree.open("again", OFlags::RDWR).and_then(|file| file.write_all(10, &[round; 3000])),
            };
            done.map_err(|errno| format!("round {round}: {errno}"))?;
            // What nobody has fenced is lost.
            let trace = world.trace();
            let none = Choice { point: trace.events.len() as u64, pick: Pick::None };
            let now = see(&world.latest(), &self.config)?;
            let after = see(&trace.image_of(&none), &self.config)?;
            if now != after {
                return Err(format!("round {round}: {}", now.difference(&after)));
            }
        }
        Ok(())
    }

    /// Recovery crashes, and the next one must come to the same.
    fn crash_recovery(
        &self,
        trace: &Trace,
        allowed: &[&Seen],
        limits: &Limits,
    ) -> Result<(u64, Vec<&'static str>), String> {
        let mut random = Random(limits.seed ^ trace.events.len() as u64);
        let (mut states, mut sites) = (0, Vec::new());
        let points: BTreeSet<u64> = match trace.events.len() as u64 {
            few if few <= limits.nested_points => (0..=few).collect(),
            many => (0..limits.nested_points).map(|_| random.below(many + 1)).collect(),
        };
        let explored =
            ExploreLimits { exhaustive_bits: 3, single_units: 0, pair_units: 0, samples: 4, ..Default::default() };
        let mut explorer = Explorer::new(trace);
        for point in points {
            explorer.seek(point);
            sites.extend(explorer.event().and_then(|event| event.site).map(|site| site.0));
            let mut violation = None;
            explorer.for_each_image(&explored, |choice, image| {
                states += 1;
                match self.judge(image, allowed, None) {
                    Ok(_) => ControlFlow::Continue(()),
                    Err(what) => {
                        violation = Some(format!("then, in recovery, crash at {choice}: {what}"));
                        ControlFlow::Break(())
                    }
                }
            });
            violation.map_or(Ok(()), Err)?;
        }
        Ok((states, sites))
    }
}
