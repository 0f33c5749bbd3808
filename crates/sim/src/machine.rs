//! Any number of worlds under one clock, and what happened in them.
//!
//! Each world is a device and a directory, of which a program may use one alone. A crash hits all of them at one tick.

use super::event::Trace;
use super::explore::Explorer;
use super::image::Image;
use super::world::World;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// See the head of this file.
pub struct Machine {
    worlds: Vec<Arc<World>>,
    clock: Arc<AtomicU64>,
}

impl Deref for Machine {
    type Target = [Arc<World>];
    fn deref(&self) -> &[Arc<World>] {
        &self.worlds
    }
}

impl Machine {
    /// Worlds in which nothing has happened yet.
    ///
    /// # Panics
    /// If something has.
    pub fn of(worlds: Vec<Arc<World>>) -> Machine {
        let clock = Arc::new(AtomicU64::new(0));
        worlds.iter().for_each(|world| world.share(clock.clone()));
        Machine { worlds, clock }
    }

    /// The number of events so far, of all worlds.
    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// What has happened until now.
    pub fn history(&self) -> History {
        History {
            traces: self.worlds.iter().map(|world| world.trace()).collect(),
            ticks: self.worlds.iter().map(|world| world.ticks()).collect(),
        }
    }
}

/// What happened in several worlds.
pub struct History {
    /// That of each.
    pub traces: Vec<Trace>,
    ticks: Vec<Vec<u64>>,
}

impl History {
    /// How many events each world has seen when the clock shows `tick`.
    pub fn points(&self, tick: u64) -> Vec<u64> {
        self.ticks.iter().map(|ticks| ticks.partition_point(|other| *other <= tick) as u64).collect()
    }

    /// The world whose event is that tick; the first, where none has happened.
    pub fn moved(&self, tick: u64) -> usize {
        self.ticks.iter().position(|ticks| ticks.binary_search(&tick).is_ok()).unwrap_or(0)
    }

    /// What the death of the process at a tick leaves.
    pub fn killed(&self, tick: u64) -> Vec<Image> {
        let killed = |(trace, point): (&Trace, u64)| {
            let mut explorer = Explorer::new(trace);
            explorer.seek(point);
            explorer.kill_image()
        };
        self.traces.iter().zip(self.points(tick)).map(killed).collect()
    }

    /// The last tick.
    pub fn last(&self) -> u64 {
        self.ticks.iter().filter_map(|ticks| ticks.last()).copied().max().unwrap_or(0)
    }
}
