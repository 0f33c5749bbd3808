//! A device's blocks and its persistent memory region, below the model of its controller
//! ([`Model`](wholly_nvme::model::Model)). The log region has the blocks.
//!
//! A crash keeps of a write that a doorbell has told of any part: sectors, and the newest torn. The process that dies
//! leaves the device running: its writes are there, but they are not durable before a flush. If the next process does
//! not wait until the device is reset, they may come later than that.

use super::event::EventKind;
use super::pending::{Effect, Step};
use super::state::{LOG, REGION};
use super::world::World;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use wholly_error::{Error, Result};
use wholly_media::{Error as MediaError, Site};
use wholly_nvme::model::{Medium, Rung};

/// The device itself, where it makes an event.
const DEVICE: Site = Site("device");

/// See the module.
pub(super) struct SimDevice {
    world: Arc<World>,
    /// Writes of an earlier process that come later: before the second doorbell that tells of writes.
    late: Mutex<Option<(bool, Vec<Step>)>>,
}

impl SimDevice {
    /// # Panics
    /// If the world has no device.
    pub fn new(world: Arc<World>) -> SimDevice {
        assert!(world.config.device.is_some(), "the world has no device");
        let late = world.live().in_flight();
        SimDevice { world, late: Mutex::new((!late.is_empty()).then_some((true, late))) }
    }

    fn call<R>(
        &self,
        site: Site,
        what: &'static str,
        body: impl FnOnce(&mut super::world::Live, super::world::Call) -> R,
    ) -> Result<R> {
        let thread = self.world.thread();
        let live = &mut *self.world.live();
        let call = live.call(&self.world.config, thread, site, what, || "device".into())?;
        Ok(body(live, call))
    }

    /// What the device was told of by a process that died lands now, unless a reset came first.
    fn late_writes(&self) {
        let late = &mut *self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((is_first, _)) = late else { return };
        if std::mem::take(is_first) {
            return;
        }
        for step in late.take().expect("it is there").1 {
            if let Effect::Bytes { offset, data, .. } = &step.effect {
                let _ = self.write(step.command, *offset, data.as_slice());
            }
        }
    }
}

impl Medium for SimDevice {
    fn len(&self) -> u64 {
        self.world.live().log_len()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.world.live().read(LOG, offset, bytes);
        read.map_err(|errno| Error::Media(MediaError::new("read", format!("device {offset}"), errno)))
    }

    fn write(&self, command: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        self.call(DEVICE, "write", |live, call| {
            live.write(LOG, offset, bytes);
            live.record(&call, EventKind::Landed { command, offset, data: bytes.into() });
        })
    }

    fn region_len(&self) -> u64 {
        self.world.config.device.map_or(0, |device| device.region_len)
    }

    fn region_read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.world.live().read(REGION, offset, bytes);
        read.map_err(|errno| Error::Media(MediaError::new("read", format!("region {offset}"), errno)))
    }

    fn region_store(&self, site: Site, offset: u64, bytes: &[u8]) -> Result<()> {
        self.call(site, "store", |live, call| live.store(&call, REGION, offset, bytes.into()))
    }

    fn region_order(&self, site: Site) {
        let _ = self.call(site, "order", |live, call| live.record(&call, EventKind::HandOver { obj: REGION }));
    }

    fn region_barrier(&self, site: Site) {
        let _ = self.call(site, "barrier", |live, call| live.record(&call, EventKind::Fence { obj: REGION }));
    }

    fn rung(&self, site: Site, commands: &[Rung]) {
        self.late_writes();
        let _ = self.call(site, "ring", |live, call| live.record(&call, EventKind::Ring { commands: commands.into() }));
    }

    fn flushed(&self) {
        let _ = self.call(DEVICE, "flush", |live, call| live.record(&call, EventKind::Flush));
    }

    fn reset(&self, site: Site, cached: &BTreeSet<u64>) {
        self.late.lock().unwrap_or_else(PoisonError::into_inner).take();
        let cached = cached.iter().copied().collect();
        let _ = self.call(site, "reset", |live, call| live.record(&call, EventKind::Reset { cached }));
    }
}
