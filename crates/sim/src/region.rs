//! The log, and files mapped from persistent memory, as [`Region`]s.

use super::event::EventKind;
use super::state::{LOG, ObjId};
use super::world::{Call, LateStep, Live, World};
use rustix::io::Errno;
use std::sync::Arc;
use wholly_media::{Error, Guarantees, Region, Result, Site};

/// A region of a simulated world.
pub(super) struct SimRegion {
    world: Arc<World>,
    obj: ObjId,
    /// The length that a mapping was asked for; none for the log, whose length is its own.
    mapped: Option<u64>,
    writable: bool,
}

impl Drop for SimRegion {
    fn drop(&mut self) {
        if self.mapped.is_some() {
            self.world.live().closed(&self.world.config, self.obj);
        }
    }
}

impl SimRegion {
    pub fn log(world: Arc<World>) -> Self {
        SimRegion { world, obj: LOG, mapped: None, writable: true }
    }

    pub fn mapping(world: Arc<World>, obj: ObjId, len: u64, writable: bool) -> Self {
        world.live().opened(obj);
        SimRegion { world, obj, mapped: Some(len), writable }
    }

    fn place(&self, offset: u64, len: usize) -> String {
        match self.mapped {
            None => format!("log {offset}+{len}"),
            Some(_) => format!("mapping of inode {} {offset}+{len}", self.obj),
        }
    }

    /// # Panics
    /// If the range is not inside the region, or not inside the file that is mapped.
    fn check(&self, live: &Live, offset: u64, len: usize) {
        let end = offset.checked_add(len as u64).expect("offset and length overflow");
        let size = live.latest.obj(self.obj).len;
        match self.mapped {
            None => assert!(end <= size, "{} lies outside of the log of {size} bytes", self.place(offset, len)),
            Some(mapped) => {
                assert!(end <= mapped, "{} lies outside of the {mapped} bytes mapped", self.place(offset, len));
                assert!(
                    end <= size,
                    "SIGBUS: {} touches bytes beyond the end of the file ({size} bytes)",
                    self.place(offset, len)
                );
            }
        }
    }

    /// # Panics
    /// If a mapping would be stored into where the file has no blocks: that can fail with SIGBUS for want of space.
    fn check_store(&self, live: &Live, offset: u64, len: usize) {
        self.check(live, offset, len);
        assert!(self.writable, "SIGSEGV: {} is mapped for reading only", self.place(offset, len));
        if self.mapped.is_some() {
            assert!(
                live.latest.obj(self.obj).is_allocated(offset, len as u64),
                "SIGBUS: {} stores into a hole; `allocate` comes before a store into a mapping",
                self.place(offset, len)
            );
        }
    }

    /// The steps of a store: one, or the halves of what the medium keeps wholly or not at all.
    fn steps<'d>(&self, call: &Call, offset: u64, data: &'d [u8]) -> Vec<(u64, &'d [u8])> {
        if !call.is_split() {
            return vec![(offset, data)];
        }
        let half = u64::from(self.guarantees().atomic_unit) / 2;
        let (mut at, mut rest, mut steps) = (offset, data, Vec::new());
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.len().min((half - at % half) as usize));
            steps.push((at, part));
            (at, rest) = (at + part.len() as u64, after);
        }
        steps
    }

    fn store(&self, live: &mut Live, call: &Call, offset: u64, data: &[u8]) {
        self.steps(call, offset, data).into_iter().for_each(|(at, part)| live.store(call, self.obj, at, part.into()));
        live.late_fences(call);
    }

    fn order(&self, site: Site, kind: EventKind) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        let call = self.call(&mut live, thread, site, kind.name(), 0, 0)?;
        super::names::catch_up(&self.world, &mut live);
        // Two fences in a row do not change places.
        live.late_fences(&call);
        match call.is_late() {
            true => live.late_steps.push((call, LateStep::Order(kind))),
            false => _ = live.record(&call, kind),
        }
        live.late_stores(&call);
        Ok(())
    }

    fn call<'w>(
        &self,
        live: &mut std::sync::MutexGuard<'w, Live>,
        thread: u64,
        site: Site,
        operation: &'static str,
        offset: u64,
        len: usize,
    ) -> Result<Call> {
        live.call(&self.world.config, thread, site, operation, || self.place(offset, len))
    }
}

impl Region for SimRegion {
    fn guarantees(&self) -> &Guarantees {
        if self.obj == LOG { &self.world.log_guarantees } else { &self.world.host_guarantees }
    }

    fn len(&self) -> u64 {
        self.mapped.unwrap_or_else(|| self.world.live().len(LOG))
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut live = self.world.live();
        self.check(&live, offset, buf.len());
        live.read(self.obj, offset, buf).map_err(|e| Error::new("read", self.place(offset, buf.len()), e))
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.guarantees().is_pmem() {
            return self.read(offset, buf);
        }
        let mut live = self.world.live();
        self.check(&live, offset, buf.len());
        live.read_durable(&self.world.config, self.obj, offset, buf)
            .map_err(|e| Error::new("read", self.place(offset, buf.len()), e))
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        self.check_store(&live, offset, data.len());
        let call = self.call(&mut live, thread, site, "write", offset, data.len())?;
        match call.is_late() {
            true => live.late_steps.push((call, LateStep::Store(self.obj, offset, data.into()))),
            false => self.store(&mut live, &call, offset, data),
        }
        Ok(())
    }

    fn fence(&self, site: Site) -> Result<()> {
        self.order(site, EventKind::Fence { obj: self.obj })
    }

    fn hand_over(&self, site: Site) -> Result<()> {
        match self.guarantees().is_pmem() {
            true => self.order(site, EventKind::HandOver { obj: self.obj }),
            false => self.fence(site),
        }
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        let thread = self.world.thread();
        let mut live = self.world.live();
        self.check_store(&live, offset, data.len());
        let pmem = self.guarantees().is_pmem();
        let block = u64::from(self.guarantees().block);
        assert!(
            pmem || (offset.is_multiple_of(block) && (data.len() as u64).is_multiple_of(block)),
            "write_through of {} is not in blocks of {block} bytes",
            self.place(offset, data.len())
        );
        let call = self.call(&mut live, thread, site, "write_through", offset, data.len())?;
        if pmem {
            match call.is_late() {
                true => live.late_steps.push((call, LateStep::Store(self.obj, offset, data.into()))),
                false => self.store(&mut live, &call, offset, data),
            }
            live.record(&call, EventKind::Fence { obj: self.obj });
            live.late_stores(&call);
            return Ok(());
        }
        if call.is_late() {
            live.late_steps.push((call, LateStep::Through(offset, data.into())));
            return Ok(());
        }
        self.steps(&call, offset, data).into_iter().for_each(|(at, part)| live.store_through(&call, at, part.into()));
        live.late_fences(&call);
        Ok(())
    }

    fn set_len(&self, site: Site, len: u64) -> Result<()> {
        if self.mapped.is_some() {
            return Err(Error::new("set_len", self.place(0, 0), Errno::OPNOTSUPP));
        }
        let thread = self.world.thread();
        let mut live = self.world.live();
        let call = self.call(&mut live, thread, site, "set_len", 0, 0)?;
        let old = live.log_len();
        if !call.is_dropped() {
            live.latest.set_len(LOG, len);
        }
        let begun = live.record(&call, EventKind::LogLen { old, new: len });
        live.record(&call, EventKind::Done { begun });
        Ok(())
    }
}
