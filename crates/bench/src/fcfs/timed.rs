//! Persistent memory in virtual time: the emulator of the paper (section VI-A), without a processor.
//!
//! A thread owes the delay of each line that it stores to, and pays at its next fence: then it waits until the medium
//! has taken them. All threads share the medium's bandwidth. One alone has what the delay leaves it, as many as
//! bandwidth x delay / 64 bytes are not in each other's way, and more than that get equal parts.

use super::FENCE_NS;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use sync_events::Medium;
use wholly_media::{Guarantees, Region, Result, Site};

/// Bytes of a line.
const LINE: u64 = 64;

std::thread_local! {
    /// Lines that this thread has stored to since its last fence. A thread is part of one run.
    static OWED: Cell<u64> = const { Cell::new(0) };
}

/// A region whose stores and fences take virtual time. It is part of a run.
pub(super) struct TimedRegion {
    inner: Arc<dyn Region>,
    speed: Mutex<Speed>,
    lines: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Clone, Debug)]
struct Speed {
    delay_ns: f64,
    medium: Medium,
}

impl Speed {
    fn new(delay_ns: f64, bytes_per_s: f64) -> Speed {
        Speed { delay_ns, medium: Medium::new((bytes_per_s * delay_ns * 1e-9 / LINE as f64).max(1.0)) }
    }
}

impl TimedRegion {
    /// A region of the calling thread's run.
    pub fn new(inner: Arc<dyn Region>, delay_ns: f64, bytes_per_s: f64) -> Arc<TimedRegion> {
        OWED.set(0);
        let speed = Mutex::new(Speed::new(delay_ns, bytes_per_s));
        Arc::new(TimedRegion { inner, speed, lines: AtomicU64::new(0), bytes: AtomicU64::new(0) })
    }

    /// From now on it has another delay.
    pub fn set_speed(&self, delay_ns: f64, bytes_per_s: f64) {
        *self.speed.lock().unwrap() = Speed::new(delay_ns, bytes_per_s);
    }

    /// Lines and bytes that were stored so far.
    pub fn stored(&self) -> (u64, u64) {
        (self.lines.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Waits for the lines that the calling thread owes.
    pub fn pay(&self) {
        let owed = OWED.take();
        if owed > 0 {
            let Speed { delay_ns, medium } = self.speed.lock().unwrap().clone();
            medium.spend((owed as f64 * delay_ns) as u64);
        }
    }

    fn store(&self, offset: u64, bytes: u64) {
        if bytes > 0 {
            let lines = (offset + bytes - 1) / LINE - offset / LINE + 1;
            OWED.set(OWED.get() + lines);
            self.lines.fetch_add(lines, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn fenced(&self) {
        self.pay();
        sync_events::thread::sleep(Duration::from_nanos(FENCE_NS as u64));
    }
}

impl Region for TimedRegion {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buf)
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_uncached(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.store(offset, data.len() as u64);
        self.inner.write(site, offset, data)
    }

    fn write_from(&self, site: Site, offset: u64, source: &dyn Region, from: u64, len: usize) -> Result<()> {
        self.store(offset, len as u64);
        self.inner.write_from(site, offset, source, from, len)
    }

    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        self.inner.address(offset, len)
    }

    fn fence(&self, site: Site) -> Result<()> {
        self.inner.fence(site)?;
        self.fenced();
        Ok(())
    }

    /// The lock that follows waits for the stores, as a fence does.
    fn hand_over(&self, site: Site) -> Result<()> {
        self.inner.hand_over(site)?;
        self.pay();
        Ok(())
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.store(offset, data.len() as u64);
        self.inner.write_through(site, offset, data)?;
        self.fenced();
        Ok(())
    }

    fn set_len(&self, site: Site, len: u64) -> Result<()> {
        self.inner.set_len(site, len)?;
        self.fenced();
        Ok(())
    }

    fn extend(&self, site: Site, len: u64) -> Result<()> {
        self.inner.extend(site, len)?;
        self.fenced();
        Ok(())
    }

    fn prefetch(&self, offset: u64) {
        self.inner.prefetch(offset);
    }

    fn prefetch_range(&self, offset: u64, len: usize) {
        self.inner.prefetch_range(offset, len);
    }
}
