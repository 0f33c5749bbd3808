//! The same program on simulated media, and power failures at random points of its run.
//!
//! Cutting the power for real takes hardware. Instead the program runs over a simulated disk or persistent memory,
//! which records every write, flush and sync. A power failure is a point of that record and a choice: of everything
//! that no flush had covered by then, a random part is kept and the rest is lost, sector by sector (on persistent
//! memory: eight bytes by eight bytes). The store is opened on what is left, and every file compared. `wholly crash`
//! does the same for all points and choices of small programs.

use crate::kills::text;
use crate::scene::{Stop, Tree};
use crate::work::{Contents, Program, Work, read};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wholly::{Options, Store};
use wholly_bench::{Error, Result};
use wholly_sim::{Choice, Explorer, Pick, Random, SimConfig, Trace, World};

/// Groups of a run: some go home on the way.
const GROUPS: u64 = 48;
const CHECKPOINT_EVERY: u64 = 12;
/// States that are made at a point.
const STATES: u64 = 4;
const THREADS: u64 = 2;

/// What was gone through.
#[derive(Default)]
pub struct Failures {
    /// Power failures.
    pub failures: u64,
    /// Of these, how often the group in flight was there all the same.
    pub there: u64,
}

/// A recorded run.
struct Run {
    trace: Trace,
    /// For each group, when it began and when its commit had returned.
    groups: Vec<(u64, u64)>,
    /// When the store was there.
    made: u64,
}

/// Fails the power for as long as `duration`.
pub fn run(
    tree: &Tree,
    config: SimConfig,
    seed: u64,
    duration: Duration,
    bar: &ProgressBar,
    stop: &Stop,
) -> Result<Failures> {
    let work = Work::new(tree.files.0.keys().cloned().collect(), seed);
    let run = record(tree, &work, config).map_err(text)?;
    // What each group changes, and every state that some point may owe.
    let mut states = vec![tree.files.clone()];
    let mut changes: Vec<BTreeMap<String, Vec<u8>>> = Vec::new();
    for number in 0..GROUPS {
        let mut state = states[number as usize].clone();
        let changed = state.after(&work, number);
        state.0.extend(changed.clone());
        changes.push(changed);
        states.push(state);
    }
    changes.push(BTreeMap::new());
    let start = Instant::now();
    let (failures, there) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let worker = |thread: u64| {
            let (run, states, changes, failures, there) = (&run, &states, &changes, &failures, &there);
            move || -> Result<()> {
                let mut random = Random(seed ^ thread << 56);
                while start.elapsed() < duration {
                    // A walk over the record, so that none of it is gone through twice.
                    let mut points: Vec<u64> = (0..64).map(|_| run.draw(&mut random)).collect();
                    points.sort_unstable();
                    let mut explorer = Explorer::new(&run.trace);
                    for index in points {
                        explorer.seek(index);
                        let point = explorer.point();
                        for _ in 0..STATES {
                            stop.check()?;
                            if start.elapsed() >= duration {
                                return Ok(());
                            }
                            let choice = Choice { point: index, pick: Pick::Seed(seed, random.draw() >> 1) };
                            let world = World::from_image(&point.image_of(&choice), run.trace.config.clone());
                            let returned = run.returned(index);
                            let is_there = judge(&world, &states[returned], &changes[returned])
                                .map_err(|wrong| format!("power failure {choice} (seed {seed}): {wrong}"))?;
                            there.fetch_add(u64::from(is_there), Ordering::Relaxed);
                            failures.fetch_add(1, Ordering::Relaxed);
                            bar.set_position(start.elapsed().min(duration).as_millis() as u64);
                        }
                    }
                }
                Ok(())
            }
        };
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(worker(thread))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| Err(Error::from("a panic"))))
    })?;
    Ok(Failures { failures: failures.into_inner(), there: there.into_inner() })
}

impl Run {
    /// A random point after the store was made.
    fn draw(&self, random: &mut Random) -> u64 {
        self.made + random.below(self.trace.events.len() as u64 - self.made + 1)
    }

    /// How many groups had returned by then.
    fn returned(&self, point: u64) -> usize {
        self.groups.iter().filter(|(_, returned)| *returned <= point).count()
    }
}

fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        log_min_bytes: 512 << 10,
        log_max_bytes: 2 << 20,
        background: false,
        ..Options::default()
    }
}

fn record(tree: &Tree, work: &Work, config: SimConfig) -> wholly::Result<Run> {
    let world = World::new(SimConfig { log_len: 0, ..config });
    for dir in tree.dirs() {
        world.add_dir(dir);
    }
    for (name, content) in &tree.files.0 {
        world.add_file(name, content);
    }
    Store::format_on(&*world.log(), &options(), *b"a demonstration\0")?;
    let made = world.now();
    let store = Store::open_on(world.log(), world.host(), options(), None)?;
    let mut program = Program::new(work, store);
    let mut groups = Vec::new();
    for number in 0..GROUPS {
        let begun = world.now();
        program.run(number)?;
        groups.push((begun, world.now()));
        if number % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1 {
            program.store().checkpoint()?;
        }
    }
    Ok(Run { trace: world.trace(), groups, made })
}

/// Recovers, and compares everything; whether the group in flight is there.
fn judge(
    world: &std::sync::Arc<World>,
    committed: &Contents,
    changed: &BTreeMap<String, Vec<u8>>,
) -> Result<bool, String> {
    let store = Store::open_on(world.log(), world.host(), options(), None).map_err(|error| error.to_string())?;
    if let Some((path, change)) = store.recovery().conflicts.first() {
        return Err(format!("{} is said to have been changed by another program: {change}", path.display()));
    }
    committed.judge(changed, |name| read(&store, name))
}
