//! Several worlds with one clock, and a store in each.

use std::ops::Deref;
use std::sync::Arc;

use rustix::io::Errno;
use wholly::{Neighbours, Options, Store};
use wholly_host::HostFs;
use wholly_media::Error;
use wholly_sim::{Machine, World};

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
pub(super) struct Worlds(Machine);

impl Deref for Worlds {
    type Target = Machine;
    fn deref(&self) -> &Machine {
        &self.0
    }
}

impl Worlds {
    pub fn of(worlds: Vec<Arc<World>>) -> Worlds {
        Worlds(Machine::of(worlds))
    }

    /// Opens a store, perhaps where the others are away.
    pub fn open(&self, which: usize, is_away: bool, options: Options) -> wholly::Result<Store> {
        self.open_on((which, self[which].host()), is_away, options)
    }

    /// The same, through this host.
    pub fn open_on(
        &self,
        (which, host): (usize, Arc<dyn HostFs>),
        is_away: bool,
        options: Options,
    ) -> wholly::Result<Store> {
        let beside = Beside { own: which, worlds: self.to_vec(), is_away };
        Store::open_among(self[which].log(), host, options, None, Some(Arc::new(beside)))
    }
}
