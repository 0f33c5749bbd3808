//! Power failures at every program, erase and wait, over the simulator's region, whose slots tear.
//!
//! The oracle: a commit that has returned is there, one in flight is there or not, as a whole (T1); what ran is gone
//! (T5); a plain write is there from the next flush or commit on, and each page by itself before (T12). Recovery is
//! crashed as well, and ends as it would have ended. What is served is right by its checksums. Afterwards the device
//! works.
//!
//! `WHOLLY_LONG=1` goes through more states of each point. No verdict depends on time.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use wholly_blocks::xftl::{OverRegion, Ppn, Read, SLOT, Trial, check, site};
use wholly_error::Error;
use wholly_sim::{Choice, ExploreLimits, Explorer, Image, Medium, Mutation, SimConfig, World};

/// What a crash may leave: for each page the durable value, and values that may have become so.
#[derive(Clone, PartialEq)]
struct State {
    durable: Vec<u64>,
    maybe: Vec<Vec<u64>>,
}

impl State {
    fn allows(&self, seen: &[u64]) -> bool {
        (0..seen.len()).all(|lpn| seen[lpn] == self.durable[lpn] || self.maybe[lpn].contains(&seen[lpn]))
    }
}

/// An operation, by the events that it made.
struct Step {
    from: u64,
    to: u64,
    /// What a crash inside may leave, each of these.
    inside: Vec<State>,
    after: State,
}

/// Drives a device in a world, and notes what a crash may leave.
pub struct Driver {
    world: Arc<World>,
    trial: Trial,
    device: Device,
    logical: u32,
    latest: Vec<u64>,
    state: State,
    steps: Vec<Step>,
    running: Vec<(Txid, Vec<(u32, u64)>)>,
    next: u64,
}

fn open(world: &Arc<World>, is_watched: bool, trial: Trial) -> Result<Device> {
    let flash: Arc<dyn Flash> = OverRegion::open(world.log())?;
    let flash: Arc<dyn Flash> = if is_watched { Rules::new(flash)? } else { flash };
    Device::open_trial(flash, trial)
}

/// The value of a page that has rotted: reading it is an error that names it.
const LOST: u64 = u64::MAX;

fn all_values(device: &Device, logical: u32) -> Result<Vec<u64>> {
    let served = |lpn| match value(device, None, lpn) {
        Err(Error::Corrupt { place, .. })
            if place.contains(&format!("logical page {lpn} of the flash disk, flash")) =>
        {
            Ok(LOST)
        }
        served => served,
    };
    (0..logical).map(served).collect()
}

/// All flash pages that hold a value.
fn places(world: &Arc<World>, value: u64) -> Vec<Ppn> {
    let flash = OverRegion::open(world.log()).unwrap();
    let holds = |at: &Ppn| matches!(flash.read(*at).unwrap(), Read::Programmed(_, found) if found == page(value));
    (0..flash.geometry().all() as u32).map(Ppn).filter(holds).collect()
}

impl Driver {
    fn step<R>(&mut self, call: impl FnOnce(&mut Self) -> R, after: impl FnOnce(&mut Self) -> Vec<State>) -> R {
        let from = self.world.now();
        let result = call(self);
        let inside = after(self);
        self.steps.push(Step { from, to: self.world.now(), inside, after: self.state.clone() });
        result
    }

    pub fn begin(&mut self) -> usize {
        let tx = self.device.begin().unwrap();
        self.running.push((tx, Vec::new()));
        self.running.len() - 1
    }

    pub fn write(&mut self, tx: usize, lpn: u32) {
        self.next += 1;
        let value = self.next;
        let number = self.running[tx].0;
        self.step(|own| write(&own.device, number, lpn, value).unwrap(), |own| vec![own.state.clone()]);
        self.running[tx].1.push((lpn, value));
    }

    pub fn discard(&mut self, tx: usize, lpn: u32, count: u32) {
        let number = self.running[tx].0;
        self.step(|own| own.device.discard(SITE, number, run(lpn, count)).unwrap(), |own| vec![own.state.clone()]);
        self.running[tx].1.extend((lpn..lpn + count).map(|lpn| (lpn, 0)));
    }

    pub fn abort(&mut self, tx: usize) {
        let number = self.running[tx].0;
        self.step(|own| own.device.abort(SITE, number).unwrap(), |own| vec![own.state.clone()]);
    }

    pub fn commit(&mut self, txs: &[usize]) {
        let numbers: Vec<Txid> = txs.iter().map(|tx| self.running[*tx].0).collect();
        let before = self.state.clone();
        for tx in txs {
            for (lpn, value) in std::mem::take(&mut self.running[*tx].1) {
                self.latest[lpn as usize] = value;
            }
        }
        self.step(
            |own| own.device.commit(SITE, &numbers).unwrap(),
            |own| {
                own.settle();
                vec![before, own.state.clone()]
            },
        );
    }

    fn settle(&mut self) {
        let maybe = vec![Vec::new(); self.logical as usize];
        self.state = State { durable: self.latest.clone(), maybe };
    }

    pub fn plain(&mut self, lpn: u32) {
        self.next += 1;
        let value = self.next;
        self.latest[lpn as usize] = value;
        self.state.maybe[lpn as usize].push(value);
        self.step(|own| plain(&own.device, lpn, value).unwrap(), |own| vec![own.state.clone()]);
    }

    pub fn trim(&mut self, lpn: u32, count: u32) {
        for lpn in lpn..lpn + count {
            self.latest[lpn as usize] = 0;
            self.state.maybe[lpn as usize].push(0);
        }
        self.step(|own| own.device.trim(SITE, run(lpn, count)).unwrap(), |own| vec![own.state.clone()]);
    }

    pub fn flush(&mut self) {
        let before = self.state.clone();
        self.step(
            |own| own.device.flush(SITE).unwrap(),
            |own| {
                own.settle();
                vec![before]
            },
        );
    }

    pub fn checkpoint(&mut self) {
        let before = self.state.clone();
        self.step(
            |own| own.device.checkpoint().unwrap(),
            |own| {
                own.settle();
                vec![before]
            },
        );
    }

    /// All that the flash has of a value rots, durably.
    fn rot_value(&mut self, value: u64) {
        let places = places(&self.world, value);
        assert!(!places.is_empty(), "{value} is in the buffer");
        for at in places {
            self.world.log().write(SITE, OverRegion::offset(at) + 5000, &[1]).unwrap();
        }
        self.world.log().fence(SITE).unwrap();
    }

    /// What was committed of a page rots.
    pub fn rot(&mut self, lpn: u32) {
        let value = std::mem::replace(&mut self.latest[lpn as usize], LOST);
        let mut before = self.state.clone();
        before.maybe[lpn as usize].push(LOST);
        self.state.durable[lpn as usize] = LOST;
        self.step(|own| own.rot_value(value), |_| vec![before]);
    }

    /// What a running transaction has written of a page rots.
    pub fn rot_running(&mut self, tx: usize, lpn: u32) {
        let written = self.running[tx].1.iter_mut().rfind(|written| written.0 == lpn).unwrap();
        let value = std::mem::replace(&mut written.1, LOST);
        self.step(|own| own.rot_value(value), |own| vec![own.state.clone()]);
    }

    /// The next life, without a crash. Nothing plain is in the buffer.
    pub fn reopen(&mut self) {
        self.flush();
        self.step(|own| own.device = open(&own.world, true, own.trial).unwrap(), |own| vec![own.state.clone()]);
        self.running.clear();
        assert_eq!(all_values(&self.device, self.logical).unwrap(), self.latest);
    }

    /// What a crash at a point may leave.
    fn allowed(&self, point: u64) -> Vec<&State> {
        let done = self.steps.partition_point(|step| step.to <= point);
        let mut allowed: Vec<&State> = vec![&self.steps[done - 1].after];
        if let Some(step) = self.steps.get(done).filter(|step| step.from < point) {
            allowed = step.inside.iter().collect();
        }
        allowed
    }
}

/// A workload, and the device that it runs on.
pub struct Subject {
    pub name: &'static str,
    pub channels: u32,
    pub pages: u32,
    pub logical: u32,
    pub data_blocks: u32,
    pub buffer: u32,
    pub run: fn(&mut Driver),
}

/// How far states are gone through.
#[derive(Clone, Copy)]
pub struct Depth {
    bits: u32,
    samples: u64,
    /// Of so many states one has its recovery crashed as well.
    nested: u64,
}

impl Depth {
    pub const fn of(bits: u32, samples: u64, nested: u64) -> Depth {
        Depth { bits, samples, nested }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub points: u64,
    pub states: u64,
    pub nested: u64,
    /// Pages that collection has moved.
    pub moved: u64,
    pub sites: HashSet<&'static str>,
}

fn config_of(subject: &Subject, mutations: &[Mutation]) -> SimConfig {
    let (geometry, _) = sizes(subject.channels, subject.pages, subject.logical, subject.data_blocks);
    let medium = Medium::Disk { sector: SLOT as u32 };
    SimConfig {
        log: medium,
        home: medium,
        log_len: OverRegion::bytes(&geometry),
        tearing: true,
        mutations: mutations.to_vec(),
        ..SimConfig::disk()
    }
}

/// Runs a workload, then crashes it everywhere.
pub fn explore(subject: &Subject, trial: Trial, mutations: &[Mutation], depth: Depth) -> Result<Seen, String> {
    let quiet = catch_unwind(AssertUnwindSafe(|| explore_inner(subject, trial, mutations, depth)));
    quiet.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}

fn limits(depth: Depth, seed: u64) -> ExploreLimits {
    ExploreLimits {
        exhaustive_bits: depth.bits,
        single_units: 12,
        pair_units: 0,
        samples: depth.samples,
        seed,
        ..ExploreLimits::default()
    }
}

fn explore_inner(subject: &Subject, trial: Trial, mutations: &[Mutation], depth: Depth) -> Result<Seen, String> {
    let (geometry, config) = sizes(subject.channels, subject.pages, subject.logical, subject.data_blocks);
    let config = Config { buffer: subject.buffer, ..config };
    let clean = Arc::new(config_of(subject, &[]));
    // The device is made in a world of its own: the workload begins with all of that durable.
    let made = World::new(clean.clone());
    let flash: Arc<dyn Flash> = OverRegion::create(made.log(), geometry, ID).unwrap();
    Device::format(&flash, &config, ID).unwrap();
    let mutated = Arc::new(config_of(subject, mutations));
    let world = World::from_image(&made.latest(), mutated.clone());
    let zeros = vec![0; subject.logical as usize];
    let state = State { durable: zeros.clone(), maybe: vec![Vec::new(); zeros.len()] };
    let device = open(&world, true, trial).unwrap();
    let first = Step { from: 0, to: world.now(), inside: vec![state.clone()], after: state.clone() };
    let none = Step { from: 0, to: 0, inside: vec![state.clone()], after: state.clone() };
    let mut driver = Driver {
        world: world.clone(),
        trial,
        device,
        logical: subject.logical,
        latest: zeros,
        state,
        steps: vec![none, first],
        running: Vec::new(),
        next: 1,
    };
    (subject.run)(&mut driver);
    let trace = world.trace();
    let (mut seen, mut hashes) = (Seen::default(), HashSet::new());
    seen.moved = driver.device.programs().collection;
    seen.sites.extend(trace.events.iter().filter_map(|event| event.site).map(|site| site.0));
    let mut explorer = Explorer::new(&trace);
    let mut violation = None;
    let kills = trace.events.len() < 80;
    loop {
        seen.points += 1;
        let point = explorer.index();
        let allowed = driver.allowed(point);
        let mut judge = |choice: String, image: &Image| {
            if !hashes.insert((point, image.hash())) {
                return ControlFlow::Continue(());
            }
            seen.states += 1;
            let is_drawn = image.hash().is_multiple_of(depth.nested);
            let is_nested = is_drawn || image.is_pending() && (point.is_multiple_of(48) || kills);
            match recover(subject, trial, (&mutated, &clean), image, &allowed, is_nested, depth) {
                Ok(nested) => {
                    seen.nested += nested;
                    ControlFlow::Continue(())
                }
                Err(fault) => {
                    violation = Some(format!("{}, {choice}: {fault}", subject.name));
                    ControlFlow::Break(())
                }
            }
        };
        let done =
            explorer.for_each_image(&limits(depth, point), |choice: &Choice, image| judge(choice.to_string(), image));
        let killed = explorer.kill_image();
        if !done.stopped && killed.is_pending() {
            let _ = judge(format!("p{point}:kill"), &killed);
        }
        if let Some(violation) = violation {
            return Err(violation);
        }
        if !explorer.advance() {
            return Ok(seen);
        }
    }
}

/// Opens what a crash has left, with what is broken on purpose, and tells whether it is allowed. Returns how many
/// states of the recovery were opened.
fn recover(
    subject: &Subject,
    trial: Trial,
    (mutated, clean): (&Arc<SimConfig>, &Arc<SimConfig>),
    image: &Image,
    allowed: &[&State],
    is_nested: bool,
    depth: Depth,
) -> Result<u64, String> {
    let world = World::from_image(image, mutated.clone());
    let device = open(&world, is_nested, trial).map_err(|error| format!("it does not open: {error}"))?;
    if let Some(damage) = device.damage().first() {
        return Err(format!("it is damaged: {damage}"));
    }
    let opened = world.now();
    let found = all_values(&device, subject.logical).map_err(|error| format!("a page is not served: {error}"))?;
    if !allowed.iter().any(|state| state.allows(&found)) {
        return Err(format!(
            "{found:?} is not one of {:?}",
            allowed.iter().map(|s| (&s.durable, &s.maybe)).collect::<Vec<_>>()
        ));
    }
    // It works.
    let tx = device.begin().map_err(|error| error.to_string())?;
    let mut then = found.clone();
    for lpn in 0..subject.logical.min(3) {
        write(&device, tx, lpn, 1 << 40).map_err(|error| format!("a write: {error}"))?;
        then[lpn as usize] = 1 << 40;
    }
    let committing = world.now();
    device.commit(SITE, &[tx]).map_err(|error| format!("a commit: {error}"))?;
    if all_values(&device, subject.logical).ok().as_ref() != Some(&then) {
        return Err("what was committed after the recovery is not read".into());
    }
    let committed = world.now();
    drop(device);
    if !is_nested {
        return Ok(0);
    }
    let report = check(OverRegion::open(world.log()).map_err(|error| error.to_string())?);
    let report = report.map_err(|error| format!("a check: {error}"))?;
    if report.faults.len() != then.iter().filter(|value| **value == LOST).count() {
        return Err(format!("a check finds {:?} in {then:?}", report.faults));
    }
    // Crashes of the recovery, and of the commit after it.
    let trace = world.trace();
    let mut explorer = Explorer::new(&trace);
    let (mut count, mut violation) = (0, None);
    loop {
        let point = explorer.index();
        explorer.for_each_image(&limits(Depth { bits: 3, samples: 3, ..depth }, point), |choice, image| {
            count += 1;
            let world = World::from_image(image, clean.clone());
            let seen = open(&world, false, trial).and_then(|device| match device.damage().first() {
                Some(damage) => Err(wholly_error::Error::Invalid(damage.to_string())),
                None => all_values(&device, subject.logical),
            });
            let is_right = match &seen {
                Err(_) => false,
                Ok(seen) if point < opened => match trace.initial.is_pending() {
                    // What the dead process had not made durable may be lost until the recovery has.
                    true => allowed.iter().any(|state| state.allows(seen)),
                    false => *seen == found,
                },
                Ok(seen) if point <= committing => *seen == found,
                Ok(seen) if point < committed => *seen == found || *seen == then,
                Ok(seen) => *seen == then,
            };
            match is_right {
                true => ControlFlow::Continue(()),
                false => {
                    violation =
                        Some(format!("then {choice} of the recovery (opened at {opened}): {seen:?}, not {found:?}"));
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(violation) = violation {
            return Err(violation);
        }
        if !explorer.advance() {
            return Ok(count);
        }
    }
}

/// Overlapping transactions, an abort between, several in one commit that have written the same pages.
fn overlaps(d: &mut Driver) {
    let (a, b, c) = (d.begin(), d.begin(), d.begin());
    d.write(a, 0);
    d.write(b, 0);
    d.write(c, 1);
    d.write(a, 1);
    d.abort(c);
    d.write(b, 2);
    d.commit(&[a, b]);
    let (e, f) = (d.begin(), d.begin());
    d.write(e, 0);
    d.write(f, 3);
    d.discard(e, 2, 2);
    d.commit(&[e]);
    d.write(f, 2);
    d.commit(&[f]);
}

/// Plain writes, flushes and trims, with commits between.
fn plainly(d: &mut Driver) {
    d.plain(0);
    d.plain(1);
    d.flush();
    d.plain(0);
    let a = d.begin();
    d.write(a, 2);
    d.commit(&[a]);
    d.plain(2);
    d.plain(1);
    d.trim(0, 2);
    d.flush();
    d.plain(0);
    d.trim(2, 1);
    let b = d.begin();
    d.write(b, 1);
    d.commit(&[b]);
    d.plain(1);
}

/// Collection runs while transactions do, over several checkpoints and around the ring.
fn collection(d: &mut Driver) {
    for round in 0..6 {
        let (a, b) = (d.begin(), d.begin());
        for lpn in 0..4 {
            d.write(a, (lpn * 3 + round) % 9);
        }
        d.write(b, (round + 1) % 4);
        d.plain(9);
        d.commit(&[a]);
        if round % 3 == 2 {
            d.abort(b);
        } else {
            d.write(b, 7);
            d.commit(&[b]);
        }
    }
}

/// Plain writes over others that were durable, in whole blocks: whoever recovers after the death of the process makes
/// the new ones durable before it erases the old ones.
fn rewrites(d: &mut Driver) {
    (0..4).for_each(|lpn| d.plain(lpn));
    d.flush();
    (0..5).for_each(|lpn| d.plain(lpn));
}

/// Checkpoints alone: whoever recovers after the death of the process makes the last root durable before it erases what
/// the one before names.
fn checkpoints(d: &mut Driver) {
    for lpn in 0..5 {
        d.plain(lpn);
        d.checkpoint();
    }
}

/// A transaction that runs while others fill the device: collection moves its pages (X7).
fn long(d: &mut Driver) {
    let a = d.begin();
    for round in 0..14 {
        if round < 5 {
            d.write(a, round);
        }
        let b = d.begin();
        (6..9).for_each(|lpn| d.write(b, lpn));
        d.commit(&[b]);
    }
    d.commit(&[a]);
}

/// Pages rot, of what is committed and of what runs, and their blocks are collected again and again (X8). They are
/// mended by a transaction, by a plain write, and by a trim; not by what is aborted.
fn rot(d: &mut Driver) {
    // Each erase block has a page or two that stay.
    let churn = |d: &mut Driver, rounds: std::ops::Range<u32>| {
        for round in rounds {
            let b = d.begin();
            d.write(b, [2, 8, 13, 3, 9][round as usize % 5]);
            d.write(b, [10, 7, 17, 11][round as usize % 4]);
            d.commit(&[b]);
        }
    };
    let a = d.begin();
    [0, 2, 1, 3, 6, 7, 4, 8, 9, 10, 11].into_iter().chain(12..d.logical).for_each(|lpn| d.write(a, lpn));
    d.commit(&[a]);
    let r = d.begin();
    d.write(r, 5);
    churn(d, 0..2);
    d.rot(1);
    d.rot_running(r, 5);
    churn(d, 2..12);
    d.commit(&[r]);
    let c = d.begin();
    d.write(c, 1);
    d.rot(6);
    churn(d, 12..18);
    d.abort(c);
    churn(d, 18..20);
    d.plain(5);
    let e = d.begin();
    d.write(e, 1);
    d.commit(&[e]);
    d.trim(6, 1);
    d.flush();
    d.rot(1);
    churn(d, 20..28);
}

/// Single pages in a device that is nearly full: each erase block that is collected has valid pages.
fn churn(d: &mut Driver) {
    for first in (0..d.logical).step_by(4) {
        let a = d.begin();
        (first..first + 4).for_each(|lpn| d.write(a, lpn));
        d.commit(&[a]);
    }
    for round in 0..14 {
        let b = d.begin();
        d.write(b, round * 14 % d.logical + round % 2);
        d.write(b, (round * 14 + 7) % d.logical);
        d.commit(&[b]);
    }
}

/// Two lives, with transactions of the first that the second must not adopt.
fn lives(d: &mut Driver) {
    let a = d.begin();
    (0..4).for_each(|lpn| d.write(a, lpn));
    d.commit(&[a]);
    let b = d.begin();
    (0..4).for_each(|lpn| d.write(b, lpn));
    d.plain(5);
    d.reopen();
    let a = d.begin();
    (1..5).for_each(|lpn| d.write(a, lpn));
    d.commit(&[a]);
    let b = d.begin();
    (0..2).for_each(|lpn| d.write(b, lpn));
    d.reopen();
    let a = d.begin();
    d.write(a, 0);
    d.commit(&[a]);
}

/// Chains of two and of three pages: many runs of zeros.
fn chains(d: &mut Driver) {
    let a = d.begin();
    (0..6).for_each(|lpn| d.write(a, lpn * 2));
    d.commit(&[a]);
    let b = d.begin();
    d.write(b, 1);
    (1..170).for_each(|n| d.discard(b, n * 2, 1));
    d.commit(&[b]);
    let c = d.begin();
    (0..3).for_each(|lpn| d.write(c, lpn));
    (2..337).for_each(|n| d.discard(c, n * 2, 1));
    d.commit(&[c]);
}

/// A transaction that fills the device, one that is refused, and room again.
fn full(d: &mut Driver) {
    let a = d.begin();
    (0..d.logical).for_each(|lpn| d.write(a, lpn));
    d.commit(&[a]);
    let b = d.begin();
    let mut written = 0;
    for lpn in 0..d.logical {
        let number = d.running[b].0;
        d.next += 1;
        let value = d.next;
        let done = d.step(|own| write(&own.device, number, lpn, value), |own| vec![own.state.clone()]);
        match done {
            Ok(()) => d.running[b].1.push((lpn, value)),
            Err(_) => break,
        }
        written += 1;
    }
    assert!(written < d.logical, "there is room for all of it twice");
    d.discard(b, 6, 6);
    d.commit(&[b]);
    let c = d.begin();
    (0..4).for_each(|lpn| d.write(c, lpn));
    d.commit(&[c]);
}

pub const SUBJECTS: [Subject; 11] = [
    Subject { name: "checkpoints", channels: 1, pages: 4, logical: 12, data_blocks: 7, buffer: 1, run: checkpoints },
    Subject { name: "rewrites", channels: 1, pages: 4, logical: 12, data_blocks: 7, buffer: 1, run: rewrites },
    Subject { name: "overlaps", channels: 2, pages: 4, logical: 12, data_blocks: 9, buffer: 2, run: overlaps },
    Subject { name: "plainly", channels: 2, pages: 4, logical: 12, data_blocks: 9, buffer: 2, run: plainly },
    Subject { name: "lives", channels: 2, pages: 4, logical: 12, data_blocks: 9, buffer: 1, run: lives },
    Subject { name: "full", channels: 1, pages: 4, logical: 12, data_blocks: 6, buffer: 1, run: full },
    Subject { name: "churn", channels: 1, pages: 4, logical: 36, data_blocks: 12, buffer: 1, run: churn },
    Subject { name: "collection", channels: 1, pages: 4, logical: 12, data_blocks: 7, buffer: 1, run: collection },
    Subject { name: "long", channels: 1, pages: 4, logical: 12, data_blocks: 6, buffer: 1, run: long },
    Subject { name: "rot", channels: 1, pages: 4, logical: 20, data_blocks: 8, buffer: 1, run: rot },
    Subject { name: "chains", channels: 1, pages: 16, logical: 680, data_blocks: 48, buffer: 2, run: chains },
];

fn depth() -> Depth {
    match std::env::var_os("WHOLLY_LONG") {
        Some(_) => Depth { bits: 12, samples: 2000, nested: 64 },
        None => Depth { bits: 5, samples: 24, nested: 600 },
    }
}

#[test]
fn every_crash_leaves_what_was_committed() {
    let (mut sites, mut all, mut moved) = (HashSet::new(), (0, 0), 0);
    for subject in &SUBJECTS {
        let started = std::time::Instant::now();
        let seen = explore(subject, Trial::default(), &[], depth()).unwrap_or_else(|fault| panic!("{fault}"));
        println!(
            "{}: {} points, {} states, {} of recoveries, {} moved, {:?}",
            subject.name,
            seen.points,
            seen.states,
            seen.nested,
            seen.moved,
            started.elapsed()
        );
        sites.extend(seen.sites);
        all = (all.0 + seen.states, all.1 + seen.nested);
        moved += seen.moved;
    }
    println!("{} states of workloads, {} of recoveries; {moved} pages moved", all.0, all.1);
    assert!(moved > 10, "collection moves pages");
    assert!(all.1 * 10 > all.0, "recoveries are crashed too seldom");
    let missing: Vec<_> =
        site::ALL.iter().filter(|site| !site.0.starts_with("xftl.format") && !sites.contains(site.0)).collect();
    assert!(missing.is_empty(), "no workload programs, erases or waits at {missing:?}");
}
