//! The engine `none`: metadata and data are stored in place, at the call. After a crash nothing is promised; the next
//! mount frees orphans and rebuilds the allocators, and `check` tells what is broken. It is the bound that other
//! engines are measured by.
//!
//! On persistent memory a call ends with one fence: it is durable when it returns. On a disk, blocks are kept in a page
//! cache of bounded size, and are durable after a sync.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the engine |
//! | `pages.rs` | the page cache for disks |

mod pages;

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use sync::{AtomicU64, Ordering};
use wholly_error::Result;
use wholly_media::{Kind as Medium, Region, Site};
use wholly_vfs::GroupId;

use super::kind::{Description, Left};
use super::{
    Allocate, CommitSequence, DataAt, Durability, DurableAt, Engine, Kind, Load, Operation, Part, Placed, Replay,
    StorageView, View, corrupt,
};
use crate::format::{BLOCK, Fault, Lba, Run};
use pages::Pages;

const DATA: Site = Site("none.data");
const FRESH: Site = Site("none.fresh");
const ZERO: Site = Site("none.zero");
const FENCE: Site = Site("none.fence");
const PAGE: Site = Site("none.page");

/// Where this engine stores.
const SITES: &[Site] = &[DATA, FRESH, ZERO, FENCE, PAGE];

/// What is to be known of the engine.
pub const DESCRIPTION: Description = Description {
    name: "none",
    number: 0,
    about: "Nothing but an unmount: after a crash, anything may be lost",
    promises: false,
    takes_disks: true,
    log: None,
    zeroes_log: false,
    make_log: None,
    has_heads: false,
    keeps_bitmaps: false,
    sites: &[SITES],
    open: |opening| Some(Box::new(NoneEngine::new(opening.region, opening.cache_bytes))),
    left: Left::nothing,
};

/// See the module.
pub struct NoneEngine {
    region: Arc<dyn Region>,
    /// On a disk.
    pages: Option<Pages>,
    groups: CachePadded<AtomicU64>,
}

static ZEROS: [u8; BLOCK] = [0; BLOCK];

impl NoneEngine {
    /// Over a region, with a page cache of `cache_bytes` if it is a disk.
    pub fn new(region: Arc<dyn Region>, cache_bytes: usize) -> Self {
        let pages = (region.guarantees().kind == Medium::Disk).then(|| Pages::new(region.clone(), cache_bytes));
        NoneEngine { region, pages, groups: CachePadded::new(AtomicU64::new(1)) }
    }

    /// Blocks come from the medium, or from pointers of it: one beyond its end is damage, not a defect of ours.
    #[inline]
    fn check(&self, at: u64, len: usize) -> Result<()> {
        match at + len as u64 <= self.region.len() {
            true => Ok(()),
            false => Err(corrupt(format!("block {}", at / BLOCK as u64), Fault("it is beyond the end of the medium"))),
        }
    }

    fn store(&self, site: Site, at: u64, bytes: &[u8]) -> Result<()> {
        self.check(at, bytes.len())?;
        match &self.pages {
            None => Ok(self.region.write(site, at, bytes)?),
            Some(pages) => pages.write(at, bytes),
        }
    }

    fn fetch(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.check(at, buf.len())?;
        match &self.pages {
            None => Ok(self.region.read(at, buf)?),
            Some(pages) => pages.read(at, buf),
        }
    }

    /// Zeros what of the blocks from `home` on `data` does not cover.
    fn fill(&self, home: Lba, offset: usize, len: usize) -> Result<()> {
        let end = (offset + len) % BLOCK;
        if offset > 0 {
            self.store(FRESH, home.byte(), &ZEROS[..offset])?;
        }
        if end > 0 {
            self.store(FRESH, home.byte() + (offset + len) as u64, &ZEROS[end..])?;
        }
        Ok(())
    }
}

impl Load for NoneEngine {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.fetch(at.byte() + offset as u64, buf)
    }
}

/// In place.
struct InPlace<'e> {
    engine: &'e NoneEngine,
    space: &'e mut dyn Allocate,
}

impl Load for InPlace<'_> {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.engine.load(at, offset, buf)
    }
}

impl StorageView for InPlace<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        self.engine.store(site, at.byte() + offset as u64, bytes)
    }

    fn fresh(&mut self) -> Lba {
        self.space.take(1).start
    }

    fn release(&mut self, at: Lba) {
        self.space.release(Run { start: at, count: 1 });
    }
}

impl Engine for NoneEngine {
    fn name(&self) -> &'static str {
        "none"
    }

    fn durable_at(&self) -> DurableAt {
        if self.pages.is_none() { DurableAt::Return } else { DurableAt::Sync }
    }

    fn begin(&self, _kind: Kind) -> GroupId {
        GroupId(self.groups.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> Result<()> {
        replay.redo(operation, &mut InPlace { engine: self, space: part.space })
    }

    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        let Some(home) = at.home else {
            let run = part.space.take((offset + data.len()).div_ceil(BLOCK) as u64);
            let data = &data[..data.len().min(run.count as usize * BLOCK - offset)];
            self.fill(run.start, offset, data.len())?;
            self.store(DATA, run.start.byte() + offset as u64, data)?;
            return Ok(Placed::Elsewhere(run));
        };
        if !at.valid {
            self.fill(home, offset, data.len())?;
        }
        self.store(DATA, home.byte() + offset as u64, data)?;
        Ok(Placed::Home(data.len()))
    }

    fn zero(&self, _part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> Result<Placed> {
        let home = at.home.expect("only what has a home is zeroed");
        self.store(ZERO, home.byte() + offset as u64, &ZEROS[..len])?;
        Ok(Placed::Home(len))
    }

    fn read(&self, _view: View<'_>, at: &DataAt, offset: usize, buf: &mut [u8]) -> Result<()> {
        let home = at.home.expect("only what has a home is read");
        self.fetch(home.byte() + offset as u64, buf)
    }

    fn commit(&self, parts: &mut [Part<'_>], _how: Durability, _replay: &dyn Replay) -> Result<CommitSequence> {
        if self.pages.is_none() {
            self.region.fence(FENCE)?;
        }
        Ok(CommitSequence(parts.iter().map(|part| part.group.0).max().unwrap_or(0)))
    }

    fn wait(&self, _upto: CommitSequence) -> Result<()> {
        if self.pages.is_some() { self.sync() } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        if let Some(pages) = &self.pages {
            pages.write_back()?;
        }
        Ok(self.region.fence(FENCE)?)
    }
}
