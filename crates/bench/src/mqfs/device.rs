//! The model of a controller in virtual time: what a thread does over PCIe takes that thread's time, commands complete
//! at the times of a profile, and a thread that waits is woken by the interrupt of its queue.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nvme_events::model::{Config, InMemory, Model, Profile};
use nvme_events::spec::{PmrStatus, ReadBarrier};
use nvme_events::{Counts, Memory, PersistentRegion, Transport};
use sync_events::{now, thread};
use wholly_media::Site;

use crate::Result;

/// Bytes of the persistent memory region: queues of 32 threads fit in.
const REGION: u64 = 1 << 20;

/// The most queues.
pub(super) const MOST_QUEUES: u16 = 32;

/// A controller in memory. It has no volatile write cache, as the paper's SSDs have none.
pub(super) fn model(bytes: u64, profile: Option<Profile>) -> Result<Arc<Model>> {
    let config = Config {
        lba_bytes: 4096,
        has_write_cache: false,
        queues: MOST_QUEUES + 1,
        interrupts: MOST_QUEUES + 2,
        is_driven: profile.is_some(),
        profile,
        ..Config::default()
    };
    Ok(Model::new("model", Arc::new(InMemory::new(bytes, REGION)), config)?)
}

/// See the module. It is part of a run.
pub(super) struct Timed {
    model: Arc<Model>,
    profile: Profile,
    heard: Mutex<Heard>,
}

/// Interrupts, by number.
#[derive(Default)]
struct Heard {
    /// How many there were.
    count: HashMap<u16, u64>,
    /// Those that no thread has taken.
    pending: Vec<u16>,
}

impl Timed {
    pub fn new(bytes: u64, profile: Profile) -> Result<Arc<Timed>> {
        Ok(Arc::new(Timed { model: model(bytes, Some(profile))?, profile, heard: Mutex::default() }))
    }

    fn spend(&self, ns: u64) {
        thread::sleep(Duration::from_nanos(ns));
        self.go_on();
    }

    /// The device does what is due. When it does something next.
    fn go_on(&self) -> Option<Duration> {
        let (interrupts, due) = self.model.advance(now());
        let mut heard = self.heard();
        for interrupt in interrupts {
            *heard.count.entry(interrupt).or_default() += 1;
            if !heard.pending.contains(&interrupt) {
                heard.pending.push(interrupt);
            }
        }
        due
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Done<T> = wholly::Result<T>;

impl Transport for Timed {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn read32(&self, register: u32) -> Done<u32> {
        self.spend(self.profile.read_ns);
        self.model.read32(register)
    }

    fn write32(&self, site: Site, register: u32, value: u32) -> Done<()> {
        self.spend(self.profile.posted_ns);
        self.model.write32(site, register, value)?;
        // Commands are served in the order of their doorbells.
        self.go_on();
        Ok(())
    }

    fn region(&self) -> &dyn PersistentRegion {
        self
    }

    fn memory(&self, pages: usize) -> Done<Arc<dyn Memory>> {
        self.model.memory(pages)
    }

    fn interrupts(&self) -> u16 {
        self.model.interrupts()
    }

    fn pause(&self, interrupt: u16, until: Duration) -> Done<()> {
        let waits = until > now();
        let before = self.heard().count.get(&interrupt).copied();
        loop {
            let due = self.go_on();
            let mut heard = self.heard();
            let pending = heard.pending.iter().position(|number| *number == interrupt);
            // Several threads may wait for one queue.
            let is_heard = pending.is_some() || heard.count.get(&interrupt).copied() != before;
            pending.map(|at| heard.pending.swap_remove(at));
            drop(heard);
            if is_heard && waits {
                self.spend(self.profile.interrupt_ns);
            }
            if is_heard || now() >= until {
                return Ok(());
            }
            thread::sleep(due.map_or(until, |due| due.min(until)).saturating_sub(now()));
        }
    }

    fn now(&self) -> Duration {
        now()
    }

    fn counts(&self) -> Counts {
        self.model.counts()
    }
}

impl PersistentRegion for Timed {
    fn len(&self) -> u64 {
        self.model.region().len()
    }

    fn address(&self) -> u64 {
        self.model.region().address()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Done<()> {
        self.spend(self.profile.read_ns);
        self.model.region().read(offset, bytes)
    }

    fn store(&self, site: Site, offset: u64, bytes: &[u8]) -> Done<()> {
        self.spend(self.profile.posted_ns * bytes.len().div_ceil(64) as u64);
        self.model.region().store(site, offset, bytes)
    }

    fn order(&self, site: Site) {
        self.model.region().order(site);
    }

    fn barrier(&self, site: Site, by: ReadBarrier) -> Done<Option<PmrStatus>> {
        self.spend(self.profile.read_ns);
        self.model.region().barrier(site, by)
    }
}
