//! What is done to a region, counted by site: the same way for any system and any medium.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use wholly_media::{Guarantees, Region, Result, Site};

/// Bytes of a line.
const LINE: u64 = 64;

/// What the calls of one site, or of several, did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Calls of any kind.
    pub calls: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Lines of 64 bytes that were written, a line once for each call.
    pub lines: u64,
    /// Fences, those of a write through and of a new length among them: on a disk, synchronous writes and syncs.
    pub fences: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.lines += other.lines;
        self.fences += other.fences;
    }
}

/// What was done at each site.
pub type Counts = BTreeMap<Site, Count>;

/// A region that counts what is done to another one. Calls that failed count.
pub struct CountingRegion {
    inner: Arc<dyn Region>,
    counts: Mutex<Counts>,
    watch: Option<Box<Watch>>,
}

/// Sees where something is about to be stored, and how many bytes: none at a fence.
type Watch = dyn Fn(Site, u64, u64) + Send + Sync;

impl CountingRegion {
    /// Nothing was done to `inner` yet.
    pub fn new(inner: Arc<dyn Region>) -> Arc<CountingRegion> {
        Arc::new(CountingRegion { inner, counts: Mutex::default(), watch: None })
    }

    /// The same, and `watch` is called before each store and each fence: it may keep the caller waiting.
    pub fn watched(
        inner: Arc<dyn Region>,
        watch: impl Fn(Site, u64, u64) + Send + Sync + 'static,
    ) -> Arc<CountingRegion> {
        Arc::new(CountingRegion { inner, counts: Mutex::default(), watch: Some(Box::new(watch)) })
    }

    /// What was done since this was called last.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut *self.counts.lock().unwrap())
    }

    fn count(&self, site: Site, offset: u64, bytes: u64, fences: u64) {
        let lines = if bytes == 0 { 0 } else { (offset + bytes - 1) / LINE - offset / LINE + 1 };
        if let Some(watch) = &self.watch {
            watch(site, offset, bytes);
        }
        *self.counts.lock().unwrap().entry(site).or_default() += Count { calls: 1, bytes, lines, fences };
    }
}

impl Region for CountingRegion {
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
        self.count(site, offset, data.len() as u64, 0);
        self.inner.write(site, offset, data)
    }

    fn write_from(&self, site: Site, offset: u64, source: &dyn Region, from: u64, len: usize) -> Result<()> {
        self.count(site, offset, len as u64, 0);
        self.inner.write_from(site, offset, source, from, len)
    }

    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        self.inner.address(offset, len)
    }

    fn fence(&self, site: Site) -> Result<()> {
        self.count(site, 0, 0, 1);
        self.inner.fence(site)
    }

    fn hand_over(&self, site: Site) -> Result<()> {
        self.count(site, 0, 0, 0);
        self.inner.hand_over(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.count(site, offset, data.len() as u64, 1);
        self.inner.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> Result<()> {
        self.count(site, 0, 0, 1);
        self.inner.set_len(site, len)
    }

    fn extend(&self, site: Site, len: u64) -> Result<()> {
        self.count(site, 0, 0, 1);
        self.inner.extend(site, len)
    }

    fn prefetch(&self, offset: u64) {
        self.inner.prefetch(offset);
    }

    fn prefetch_range(&self, offset: u64, len: usize) {
        self.inner.prefetch_range(offset, len);
    }
}
