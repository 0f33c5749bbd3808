//! Several worlds with one clock, a store in each, and what happened in them.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use wholly::{Neighbours, Options, Store};
use wholly_host::HostFs;
use wholly_media::Error;
use wholly_sim::{Explorer, Image, Trace, World};

/// Where the stores are, as they know each other.
const ADDRESSES: [&[u8]; 3] = [b"/one", b"/two", b"/three"];

/// How a store of a world finds those of the others.
struct Beside {
    own: usize,
    worlds: Vec<Arc<World>>,
    /// Whether the others cannot be found.
    is_away: bool,
}

impl Neighbours for Beside {
    fn address(&self) -> wholly_media::Result<Vec<u8>> {
        Ok(ADDRESSES[self.own].to_vec())
    }

    fn at(&self, address: &[u8]) -> wholly_media::Result<Arc<dyn HostFs>> {
        let which = ADDRESSES.iter().position(|known| *known == address);
        let found = which.filter(|which| *which == self.own || !self.is_away).and_then(|which| self.worlds.get(which));
        let place = || String::from_utf8_lossy(address);
        found.map(World::host).ok_or_else(|| Error::new("open", place(), Errno::NOENT))
    }
}

/// See the head of this file.
pub(super) struct Worlds {
    worlds: Vec<Arc<World>>,
    clock: Arc<AtomicU64>,
}

impl Deref for Worlds {
    type Target = [Arc<World>];
    fn deref(&self) -> &[Arc<World>] {
        &self.worlds
    }
}

impl Worlds {
    pub fn of(worlds: Vec<Arc<World>>) -> Worlds {
        let clock = Arc::new(AtomicU64::new(0));
        worlds.iter().for_each(|world| world.share(clock.clone()));
        Worlds { worlds, clock }
    }

    /// Opens a store, perhaps where the others are away.
    pub fn open(&self, which: usize, is_away: bool, options: Options) -> wholly::Result<Store> {
        self.open_on((which, self.worlds[which].host()), is_away, options)
    }

    /// The same, through this host.
    pub fn open_on(
        &self,
        (which, host): (usize, Arc<dyn HostFs>),
        is_away: bool,
        options: Options,
    ) -> wholly::Result<Store> {
        let beside = Beside { own: which, worlds: self.worlds.clone(), is_away };
        Store::open_among(self.worlds[which].log(), host, options, None, Some(Arc::new(beside)))
    }

    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub fn recorded(&self) -> Recorded {
        Recorded {
            traces: self.worlds.iter().map(|world| world.trace()).collect(),
            ticks: self.worlds.iter().map(|world| world.ticks()).collect(),
        }
    }
}

/// What happened in several worlds.
pub(super) struct Recorded {
    pub traces: Vec<Trace>,
    ticks: Vec<Vec<u64>>,
}

impl Recorded {
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

    pub fn last(&self) -> u64 {
        self.ticks.iter().filter_map(|ticks| ticks.last()).copied().max().unwrap_or(0)
    }
}
