//! The page engine: a page cache that steals, over transactions of blocks. The engines `page_cache_wal` and `op_log`
//! are made of it.
//!
//! It runs over transactions of blocks ([`TxBlocks`]): a group's commit is one. On a disk these are made of the log
//! ([`LogDevice`]) and of the layer that gathers transactions ([`Batch`]); the heads of these modules have the rest of
//! the commit, of writing back, and of the crash.
//!
//! # Terms
//!
//! - *page*, *fresh*, *sent*, *newest*: of the cache (`engine/page_cache.rs`). *Fresh*: of a block that a running group
//!   took, or that was reserved and has no content: nobody else can reach it.
//! - *private page*: a running group's version of a block of content that others see. *Draft*: the lines of metadata
//!   that it has changed (`engine/draft.rs`). Neither is in the page cache.
//! - *home*: the block to which the map of a file points. *Moved*: content that a group writes over goes to a fresh
//!   block, and the pointer changes.
//! - *record*, *image*, *ring*, *void*, *dirty*, *write back*: of the log (`wholly_blocks::log`). *Ordered*, *durable*,
//!   *admitted*, *lent*: of transactions of blocks (`wholly_blocks`).
//! - *stolen*: a fresh page that the group's transaction gets before the commit, to make room: the log stores it home.
//! - *late*: content of a running group that has a number and no block (rule 12 of the trait). Its page is fresh.
//!
//! # The commit
//!
//! | step | what is done | locks | on the medium |
//! |---|---|---|---|
//! | 1 | a group that took more than a few blocks, or some of which were stolen: its transaction gets all of them | | home, `pages.fresh` |
//! | 2 | the transaction is admitted for all other pages | `turn`, shared | |
//! | 3 | it gets the private pages, the fresh ones, and the freed blocks, as discards | `turn` | |
//! | 4 | it gets copies of the newest pages with the lines of the draft over them and its bits changed, and is ordered | `newest` | |
//! | 5 | the group waits: one thread leads, and writes one record for all that are ordered | | `pages.fresh.fence` after 1; one synchronous write, `pages.commit`: the *commit point* |
//!
//! So a small group costs one synchronous write, and groups that commit at the same time share it: a block that several
//! of them change has one image in their record. A *large* group has more pages than are admitted together. It takes
//! `turn` alone, so that no other one has room that it may wait for, and writes without being admitted. If it has more
//! pages than the log takes, it lends as many free blocks: the images go there (`pages.spill`, `pages.spill.fence`),
//! the record has the head only, and is written back before the commit returns.
//!
//! Writing back is done at the begin of some group, when the ring or the cache is half full; in a commit, when the ring
//! is full; and at the unmount. Steps: pages home (`pages.home`, `pages.home.fence`), the header (`pages.tail`).
//!
//! What a crash leaves, one instruction before each:
//! - commit, 1: any part of blocks that are free then, or reserved and without content.
//! - commit, 5: the record whole, or not valid: none of its groups is there.
//! - commit, spilled images: any part of free blocks.
//! - write back, pages: any part of them, torn anywhere: recovery stores all of them again, from the record.
//! - write back, header: the older header, and all records from there on.
//!
//! What a medium leaves that refuses (`EIO`, or `ENOSPC` of a file with holes): the engine has failed, and so has the
//! log. Nothing is committed, read from the medium, or written back from then on, so all that is live stays so. The
//! next mount recovers it.
//!
//! # Invariants
//!
//! 1. The cache has nothing of a running group in a committed page: drafts and private pages belong to the group, and
//!    become the newest pages when its transaction is ordered. What is stolen is in blocks that nobody else can reach.
//! 2. A page that is ordered is the newest one with the lines of the group, and of no other that runs: lines of two
//!    running groups differ (rule 8 of the trait), and one thread at a time makes pages and orders (`newest`). Bits of
//!    bitmaps, which may be in the same lines, are changed then and not before (rule 11). So the order of groups that
//!    share a block is the order of their pages.
//! 3. Pages that are dirty are in memory once: the log has them, and the cache as far as it has room. So the cache can
//!    drop any page but fresh ones, and reads it again from below: the version that is ordered, wherever it is.
//! 4. The cache has a bound; dirty pages are at most as many as the ring has blocks. A group has a bounded number of
//!    private pages and of fresh ones: beyond that, content that it writes over is moved, and fresh pages are stolen in
//!    the order of their blocks.
//! 5. Others get a freed block after the record is durable in which it is void.
//! 6. Blocks that are lent, and those of moved content, are reserved at the calls: a commit never meets `ENOSPC`.
//! 7. Who waits for room holds no lock but `turn`, shared; and room is given back by the commits of transactions that
//!    are ordered, which need no lock of the engine.
//! 8. A copy of the superblock goes home alone, and durably before the next one does: not all of them are in doubt.
//! 9. Recovery reads the records from the newest header on, makes durable what it believes (its writer may have died
//!    before the write was), stores the last image of each block that is not void, and fences; then the core raises the
//!    incarnation, which makes all records void. It can be interrupted anywhere, and repeated.
//!
//! Not covered: a record that was never read again and rots is found by the next recovery only, and then as damage, or,
//! if it is the last one, as a group that was not committed. Recovery looks for later records in all of the ring: a
//! damaged head does not tell where the next one stands.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the engine: calls of groups |
//! | `below.rs` | what transactions are made of: a log, queues, or the medium's own |
//! | `commit.rs` | a group becomes a transaction |
//! | `replay.rs` | the list of operations, as CFS has it |
//! | `recover.rs` | what a crash has left |

mod below;
mod commit;
mod recover;
mod replay;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock};
use wholly_blocks::batch::Batch;
use wholly_blocks::log::{LogDevice, LogFault, LogOptions, LogSites, Ring};
use wholly_blocks::{Order, Page, Placement, Runs, Sequence, Tag, TxBlocks, Txid};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use below::OnLog;
pub use below::{Below, OnMedium};
use replay::List;

use super::draft::{Draft, Drafting};
use super::kind::{Left, Logs};
use super::logging::{ZEROS, commit_each};
use super::page_cache::PageCache;
use super::{
    CommitSequence, DataAt, Durability, Engine, Holds, INODE_FILE, Kind, Later, Load, Logged, Maps, Mistake, Operation,
    Part, Placed, Reclaim, Replay, StorageView, Toggled, Trial, View, Waiting, check_within, is_late, patch,
    read_within,
};
use crate::format::bitmap::{Bitmap, BitmapAt};
use crate::format::log::{ForLog, LINE, LogArea, LogSeed};
use crate::format::pointer::{FANOUT, MAX_DEPTH};
use crate::format::superblock::copies;
use crate::format::{BLOCK, Lba, Run, Seed};

const FRESH: Site = Site("pages.fresh");
const FRESH_FENCE: Site = Site("pages.fresh.fence");
const STEAL: Site = Site("pages.steal");
const STEAL_FENCE: Site = Site("pages.steal.fence");
const SPILL: Site = Site("pages.spill");
const SPILL_FENCE: Site = Site("pages.spill.fence");
const COMMIT: Site = Site("pages.commit");
const HOME: Site = Site("pages.home");
const HOME_FENCE: Site = Site("pages.home.fence");
const TAIL: Site = Site("pages.tail");
const RECOVER_COMMIT: Site = Site("pages.recover.commit");
const RECOVER: Site = Site("pages.recover");
const RECOVER_FENCE: Site = Site("pages.recover.fence");

/// Where it stores.
pub const SITES: &[Site] = &[
    FRESH,
    FRESH_FENCE,
    STEAL,
    STEAL_FENCE,
    SPILL,
    SPILL_FENCE,
    COMMIT,
    HOME,
    HOME_FENCE,
    TAIL,
    RECOVER_COMMIT,
    RECOVER,
    RECOVER_FENCE,
];

/// The same over a medium's own transactions, or over queues.
pub const OWN_SITES: &[Site] = &[FRESH, STEAL, COMMIT];

/// What the log below stores, by the names of this engine.
const LOG_SITES: LogSites = LogSites {
    before_fence: FRESH_FENCE,
    own_fence: STEAL_FENCE,
    spill: SPILL,
    spill_fence: SPILL_FENCE,
    home: HOME,
    home_fence: HOME_FENCE,
    tail: TAIL,
};

/// What the log of a volume that was not unmounted has to store yet.
pub fn left(region: &dyn Region, logs: &Logs<'_>) -> Left {
    Left::of(recover::patches(region, logs.area, logs.seed().ring()))
}

/// Where recovery stores.
const RECOVERY: patch::Sites = patch::Sites { proof: RECOVER_COMMIT, patch: RECOVER, fence: RECOVER_FENCE };

/// The log of a new volume.
pub fn area(start: Lba, ForLog { blocks, .. }: ForLog) -> LogArea {
    LogArea { start, half_blocks: Ring::area_of(blocks).div_ceil(2) as u32, lanes: 1 }
}

/// The ring of a log.
fn ring_of(area: &LogArea) -> Ring {
    Ring::of(area.run())
}

/// Blocks with inodes and names that one call changes, at most: a rename that exchanges two names has six.
const FEW: u64 = 12;
/// Nodes on the ways to the ends of a range of pointers.
const PATHS: u64 = 2 * (MAX_DEPTH as u64 + 1);
/// Blocks of a range that a write does not cover.
const ENDS: u64 = 2;

/// Pages that all committers together have in memory before they are ordered, and that wait to be durable.
pub const ROOM: u64 = 512;
/// Fresh pages of a group that are handed over while others are excluded from committing, at most.
const SMALL: u64 = 16;

/// What a running group has besides its lines of metadata.
#[derive(Debug, Default)]
pub struct Paged {
    /// Its private pages, by the number of the block.
    pages: BTreeMap<u64, Page>,
    /// Blocks that it took and wrote to, since it was last stolen from, and late numbers.
    fresh: BTreeSet<u64>,
    /// How many of these are late.
    late: u64,
    /// Of those that it gave up again: their pages are still in the cache.
    dead: Vec<u64>,
    /// Its transaction, once it has one.
    tx: Option<Txid>,
    /// Blocks that its transaction has: their pages were stolen.
    stolen: Runs<()>,
    /// Blocks with lines that it has changed.
    changed: BTreeSet<u64>,
    /// Blocks that it frees.
    freed: Vec<Run>,
    /// What it changes of bitmaps: made in its commit.
    toggles: Vec<Toggle>,
    /// With `op_log:replay`: what it has recorded.
    list: Option<List>,
}

/// A change of a bitmap block ([`Operation::Toggle`]).
#[derive(Debug)]
struct Toggle {
    bitmap: BitmapAt,
    at: Lba,
    bits: Vec<Toggled>,
}

/// [`Paged`], made when it first changes.
#[derive(Debug, Default)]
pub struct Boxed(Option<Box<Paged>>);

static NOTHING: Paged = Paged {
    pages: BTreeMap::new(),
    fresh: BTreeSet::new(),
    late: 0,
    dead: Vec::new(),
    tx: None,
    stolen: Runs::new(),
    changed: BTreeSet::new(),
    freed: Vec::new(),
    toggles: Vec::new(),
    list: None,
};

impl Deref for Boxed {
    type Target = Paged;

    fn deref(&self) -> &Paged {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Boxed {
    fn deref_mut(&mut self) -> &mut Paged {
        self.0.get_or_insert_default()
    }
}

impl Paged {
    /// With `op_log:replay`: how many operations it has recorded, and the bytes that these take.
    #[cfg(test)]
    pub(super) fn list(&self) -> Option<(usize, usize)> {
        self.list.as_ref().map(List::size)
    }

    fn free(&mut self, at: Lba) {
        self.pages.remove(&at.0);
        self.changed.remove(&at.0);
        if self.fresh.remove(&at.0) {
            self.late -= u64::from(is_late(at));
            self.dead.push(at.0);
        }
        if is_late(at) {
            return;
        }
        match self.freed.last_mut() {
            Some(last) if last.start.0 + last.count == at.0 => last.count += 1,
            _ => self.freed.push(Run { start: at, count: 1 }),
        }
    }

    /// Puts private pages over bytes that were read from `at` on.
    fn overlay(&self, at: u64, buf: &mut [u8]) {
        let (block, end) = (BLOCK as u64, at + buf.len() as u64);
        for (number, page) in self.pages.range(at / block..end.div_ceil(block)) {
            let (from, to) = (at.max(number * block), end.min((number + 1) * block));
            let part = &page[(from - number * block) as usize..(to - number * block) as usize];
            buf[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
        }
    }
}

/// Which engine it is.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    /// Its name.
    pub name: &'static str,
    /// Whether it keeps bitmaps in step.
    pub keeps_bitmaps: bool,
    /// Whether content gets its place late.
    pub places_late: bool,
    /// Whether new content is journaled, too, as far as an eighth of what the journal has room for.
    pub journals_content: bool,
}

/// See the module.
pub struct PageEngine {
    region: Arc<dyn Region>,
    blocks: Arc<dyn TxBlocks>,
    /// What the transactions are made of.
    below: Box<dyn Below>,
    pages: PageCache,
    groups: AtomicU64,
    failed: AtomicBool,
    /// Held by those that commit, and alone by who commits a large group.
    turn: RwLock<()>,
    /// Held while pages of committed blocks get their next version.
    newest: Mutex<()>,
    /// The most private pages of a group.
    most_private: usize,
    /// The most fresh pages that are handed over with its other pages.
    small: u64,
    /// Whether a commit waits for the medium, with the locks of the core held.
    is_locked: bool,
    /// With [`Trial::locks_pages`], the pages that are locked: by whom, and since when.
    locked: Option<Mutex<BTreeMap<u64, (Sequence, Duration)>>>,
    holds: Option<&'static Holds>,
    /// Whether groups keep lists of operations.
    replays: bool,
    /// Whether it keeps bitmaps in step.
    keeps_bitmaps: bool,
    places_late: bool,
    name: &'static str,
    mistake: Option<Mistake>,
    /// Lines of groups that run, for one of the mistakes.
    planted: Mutex<Vec<(u64, [u8; LINE])>>,
    /// Pages as they were at calls of groups, for another one.
    planted_pages: Mutex<Vec<(GroupId, u64, Page)>>,
}

impl PageEngine {
    /// Over a region, with the log that the superblock of a volume of so many blocks names, and a cache of so many
    /// bytes.
    pub fn on_disk(
        region: Arc<dyn Region>,
        (area, blocks): (LogArea, u64),
        (volume, incarnation): (Seed, u64),
        (cache_bytes, trial): (usize, Trial),
        which: Of,
    ) -> Self {
        let fault = match trial.mistake {
            Some(Mistake::HomeBeforeLog) => Some(LogFault::HomeBeforeLog),
            Some(Mistake::NoVoid) => Some(LogFault::NoVoid),
            _ => None,
        };
        let pages = trial.pages.unwrap_or(cache_bytes / BLOCK);
        let options = LogOptions {
            memory: (pages as u64).max(4),
            apart: copies(blocks).to_vec(),
            ring: trial.ring,
            sites: LOG_SITES,
            fault,
            ..LogOptions::default()
        };
        let (of, seed) = (region.len() / BLOCK as u64, LogSeed::of(volume, incarnation).ring());
        let log = Arc::new(LogDevice::new(region.clone(), of, area.run(), (seed, incarnation), options));
        let blocks = Arc::new(Batch::new(log.clone(), ROOM));
        let below = Box::new(OnLog { region: region.clone(), log, area, volume });
        Self::new(region, blocks, below, (pages, trial), which)
    }

    /// Over transactions of blocks, with a cache of so many pages.
    pub fn new(
        region: Arc<dyn Region>,
        blocks: Arc<dyn TxBlocks>,
        below: Box<dyn Below>,
        (pages, trial): (usize, Trial),
        Of { name, keeps_bitmaps, places_late, journals_content }: Of,
    ) -> Self {
        let most = blocks.guarantees().most_overwrites.unwrap_or(u64::MAX);
        let pages = PageCache::new(blocks.clone(), pages);
        PageEngine {
            most_private: (pages.total() / 8).min(most / 8).clamp(1, 64) as usize,
            small: if journals_content { most / 8 } else { (most / 8).min(SMALL) },
            region,
            blocks,
            below,
            pages,
            groups: AtomicU64::new(1),
            failed: AtomicBool::new(false),
            turn: RwLock::default(),
            newest: Mutex::default(),
            is_locked: trial.is_locked,
            locked: trial.locks_pages.then(Mutex::default),
            holds: trial.holds,
            replays: trial.replays && keeps_bitmaps,
            keeps_bitmaps,
            places_late,
            name,
            mistake: trial.mistake,
            planted: Mutex::default(),
            planted_pages: Mutex::default(),
        }
    }

    /// That nothing has failed.
    fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Poisoned("an earlier write of the volume failed".into())),
        }
    }

    /// That a place was given out.
    fn check_given(&self, at: CommitSequence) -> Result<()> {
        let last = self.failing(self.blocks.order(COMMIT, &[], &[]))?;
        match at.0 > last.0 {
            false => Ok(()),
            true => Err(Error::Invalid(format!("nothing was committed as {}", at.0))),
        }
    }

    /// Nothing is committed after an error.
    fn failing<T, E: Into<Error>>(&self, result: std::result::Result<T, E>) -> Result<T> {
        result.map_err(|error| {
            self.failed.store(true, Ordering::Relaxed);
            error.into()
        })
    }

    /// The transaction of a group.
    fn transaction(&self, paged: &mut Paged) -> Result<Txid> {
        if let Some(tx) = paged.tx {
            return Ok(tx);
        }
        let tx = self.blocks.begin()?;
        paged.tx = Some(tx);
        Ok(tx)
    }

    /// Hands the group's fresh pages to its transaction.
    fn hand_over(&self, site: Site, paged: &mut Paged) -> Result<()> {
        let tx = self.transaction(paged)?;
        while let Some(block) = paged.fresh.first().copied().filter(|block| !is_late(Lba(*block))) {
            if let Some(page) = self.pages.fresh_page(block) {
                self.blocks.write(site, tx, Lba(block), page, Placement::Fresh, Tag::Data)?;
            }
            paged.fresh.pop_first();
            self.pages.sent(block, Some(tx));
            paged.stolen.set(block..block + 1, ());
        }
        Ok(())
    }

    /// Writes to blocks of a running group.
    fn write_fresh(&self, part: &mut Part<'_>, at: u64, data: &[u8]) -> Result<()> {
        let block = BLOCK as u64;
        if !is_late(Lba(at / block)) {
            check_within(&*self.region, at, data.len())?;
        }
        self.failing(self.pages.write(FRESH, at, data))?;
        let paged = &mut *part.draft.paged;
        for block in at / block..(at + data.len() as u64).div_ceil(block) {
            let is_new = paged.fresh.insert(block);
            paged.late += u64::from(is_new && is_late(Lba(block)));
        }
        self.steal(part.draft)
    }

    /// Steals the group's fresh pages if they are many.
    fn steal(&self, draft: &mut Draft) -> Result<()> {
        let (own, all) = (draft.paged.fresh.len() as u64 - draft.paged.late, self.pages.fresh());
        if own == 0 || own <= (self.pages.total() / 4).min(256) && all <= self.pages.total() / 2 {
            return Ok(());
        }
        match self.hand_over(STEAL, &mut draft.paged) {
            // It cannot go straight home yet, and others have all room for images. It stays in memory.
            Err(Error::NoSpace(_)) => Ok(()),
            handed_over => self.failing(handed_over),
        }
    }

    /// Takes blocks for content that goes elsewhere, or late numbers.
    fn take(&self, part: &mut Part<'_>, at: &DataAt, count: u64) -> Run {
        if !(self.places_late && at.late) {
            return part.space.take(count);
        }
        part.space.take_late(count)
    }

    /// Writes to blocks without content: what `data` does not cover becomes zeros.
    fn fill(&self, part: &mut Part<'_>, home: Lba, offset: usize, data: &[u8]) -> Result<()> {
        let (block, end) = (BLOCK as u64, offset + data.len());
        let (first, last) = (home.byte(), home.byte() + (end / BLOCK) as u64 * block);
        // Whole pages, so that nothing is read.
        if offset > 0 || end < BLOCK {
            self.write_fresh(part, first, &ZEROS[..BLOCK])?;
        }
        if end % BLOCK > 0 && last > first {
            self.write_fresh(part, last, &ZEROS[..BLOCK])?;
        }
        self.write_fresh(part, first + offset as u64, data)
    }

    /// Puts data over as much of some blocks as the group may have private pages of. Returns how many bytes.
    fn put(&self, part: &mut Part<'_>, home: Lba, offset: usize, data: &[u8]) -> Result<usize> {
        let pages = &mut part.draft.paged.pages;
        let mut done = 0;
        while done < data.len() {
            let block = home.0 + ((offset + done) / BLOCK) as u64;
            let inside = (offset + done) % BLOCK;
            let len = (BLOCK - inside).min(data.len() - done);
            if !pages.contains_key(&block) {
                if pages.len() >= self.most_private {
                    break;
                }
                let old = if len == BLOCK { Page::zeros() } else { self.pages.get(block)? };
                pages.insert(block, old);
            }
            let page = pages.get_mut(&block).expect("it is there now");
            page.put(inside, &data[done..done + len]);
            done += len;
        }
        Ok(done)
    }

    /// Writes content to other blocks than those where it was, as far as none of them has a private page: the first has
    /// none.
    fn write_moved(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Run> {
        let home = at.home.expect("content is moved from its home");
        // What lies in a private page stays there: the old content does not have it.
        let blocks = home.0..home.0 + (offset + data.len()).div_ceil(BLOCK) as u64;
        let private = part.draft.paged.pages.range(blocks.clone()).next().map_or(blocks.end, |(block, _)| *block);
        let run = self.take(part, at, private - home.0);
        let end = (run.count as usize * BLOCK - offset).min(data.len());
        let mut done = 0;
        while done < end {
            let (i, inside) = ((offset + done) / BLOCK, (offset + done) % BLOCK);
            let len = (BLOCK - inside).min(end - done);
            let to = Lba(run.start.0 + i as u64);
            if len < BLOCK {
                let old = self.pages.get(home.0 + i as u64)?;
                self.write_fresh(part, to.byte(), &old[..])?;
            }
            self.write_fresh(part, to.byte() + inside as u64, &data[done..done + len])?;
            done += len;
        }
        Ok(run)
    }

    /// Blocks that a commit with so many images needs.
    fn spilled(&self, images: u64) -> u64 {
        let of = self.blocks.guarantees();
        match of.most_overwrites {
            Some(most) if images <= most => 0,
            None => 0,
            Some(most) if of.takes_lent && images / of.lent_by_overwrite < most => images,
            // No space helps: what names its blocks does not fit.
            Some(_) => u64::MAX / 4,
        }
    }

    /// Blocks that so many bytes of content are in, which are written over others.
    fn blocks_of(bytes: u64) -> u64 {
        if bytes == 0 { 0 } else { bytes.div_ceil(BLOCK as u64) + 1 }
    }
}

impl Load for PageEngine {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        read_within(&self.pages, at.byte() + offset as u64, buf)
    }
}

/// The view of mutators: the draft, and fresh pages.
struct Mutating<'v>(Drafting<'v>);

impl Load for Mutating<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.0.load(at, offset, buf)
    }
}

impl StorageView for Mutating<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        let draft = &mut *self.0.draft;
        let of = if draft.fresh.contains(&at) { &mut draft.paged.fresh } else { &mut draft.paged.changed };
        of.insert(at.0);
        self.0.update(site, at, offset, bytes)
    }

    fn fresh(&mut self) -> Lba {
        let at = self.0.fresh();
        if let Some(list) = &mut self.0.draft.paged.list {
            list.took(at);
        }
        at
    }

    fn release(&mut self, at: Lba) {
        self.0.draft.paged.free(at);
        self.0.release(at);
    }
}

impl Engine for PageEngine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn keeps_bitmaps(&self) -> bool {
        self.keeps_bitmaps
    }

    fn recover(&self) -> Result<Option<Waiting>> {
        self.below.recover()?;
        Ok(None)
    }

    fn start(&self, incarnation: u64) -> Result<()> {
        self.failing(self.below.start(incarnation))
    }

    fn close(&self) -> Result<()> {
        self.failing(self.below.close())
    }

    fn log_blocks(&self, logged: Logged) -> u64 {
        let data = Self::blocks_of(logged.bytes);
        let moved = if data > self.most_private as u64 { data } else { 0 };
        let nodes = PATHS + logged.pointers.saturating_add(moved) / FANOUT;
        let content = data.min(self.most_private as u64).max(ENDS);
        let images = (FEW + nodes + self.small + content).saturating_add(logged.bitmaps);
        moved.saturating_add(self.spilled(images))
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn blocks_for_call(&self, logged: Logged) -> u64 {
        Self::blocks_of(logged.bytes) + logged.zeros
    }

    fn blocks_for_commit(&self, draft: &Draft, later: Later) -> u64 {
        let changed = draft.paged.changed.len() as u64 + self.most_private as u64 + self.small;
        // Pointers of one call are in runs.
        let nodes = later.pointers.min(PATHS + later.pointers / FANOUT);
        let later = 2 * later.names + later.dirs + later.inodes + nodes + later.bitmaps;
        self.spilled(changed.saturating_add(later))
    }

    fn fills_log(&self, draft: &mut Draft, parts: u64) -> bool {
        let images = (draft.paged.pages.len() + draft.paged.changed.len()) as u64;
        self.below.images().is_some_and(|all| images >= all / parts)
    }

    fn end_call(&self, part: &mut Part<'_>) -> Result<()> {
        if self.mistake == Some(Mistake::MetadataStolen) {
            for (at, line) in part.draft.changes() {
                let block = at / BLOCK as u64;
                let mut page = self.pages.get(block)?;
                page.put((at % BLOCK as u64) as usize, &line.new);
                let tx = self.blocks.begin()?;
                self.blocks.write(STEAL, tx, Lba(block), page.clone(), Placement::Overwrite, Tag::Data)?;
                let sequence = self.blocks.order(STEAL, &[tx], &[])?;
                self.pages.put(block, page);
                self.blocks.wait(STEAL, sequence)?;
            }
        }
        if self.mistake == Some(Mistake::RedoOutOfOrder) {
            let blocks: BTreeSet<u64> = part.draft.changes().map(|(at, _)| at / BLOCK as u64).collect();
            let pages = blocks.into_iter().map(|block| Ok((part.group, block, self.pages.get(block)?)));
            self.planted_pages.lock().unwrap().extend(pages.collect::<Result<Vec<_>>>()?);
        }
        if self.mistake == Some(Mistake::OthersLines) {
            self.planted.lock().unwrap().extend(part.draft.changes().map(|(at, line)| (at, line.new)));
        }
        Ok(())
    }

    fn begin(&self, _kind: Kind) -> GroupId {
        // Whoever commits next is told of an error.
        let _ = self.failing(self.below.write_back_due());
        GroupId(self.groups.fetch_add(1, Ordering::Relaxed))
    }

    fn abort(&self, part: &mut Part<'_>) {
        // Whoever commits next is told of an error.
        let _ = self.failing(self.give_up(&mut part.draft.paged));
    }

    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> Result<()> {
        if let Operation::Toggle { bitmap, at, bits } = *operation {
            let is_kept = |to: bool| match self.mistake {
                Some(Mistake::BitsKept) => bitmap.of == Bitmap::Blocks,
                Some(Mistake::InodeKept) => bitmap.of == Bitmap::Inodes && !to,
                Some(Mistake::OrphanKept) => bitmap.of == Bitmap::Orphans && !to,
                Some(Mistake::OrphanForgotten) => bitmap.of == Bitmap::Orphans && to,
                _ => false,
            };
            let bits = bits.iter().filter(|bits| !is_kept(bits.to)).copied().collect();
            part.draft.paged.toggles.push(Toggle { bitmap, at, bits });
            return Ok(());
        }
        if self.mistake == Some(Mistake::SizeForgotten)
            && matches!(operation, Operation::Assign { fields, .. } if fields.size.is_some() && !fields.born)
        {
            return Ok(());
        }
        if self.replays && !operation.changes().contains(&Some(INODE_FILE)) {
            let list = part.draft.paged.list.get_or_insert_default();
            list.keep(operation);
            if self.mistake == Some(Mistake::RemoveForgotten) && matches!(operation, Operation::Remove { .. }) {
                list.forget_last();
            }
        }
        let drafting = Drafting { region: &self.pages, draft: part.draft, space: part.space };
        self.failing(replay.redo(operation, &mut Mutating(drafting)))?;
        // Blocks that the group gives up: the cache would keep their pages.
        std::mem::take(&mut part.draft.paged.dead).iter().for_each(|block| self.pages.discard(*block..block + 1));
        self.steal(part.draft)
    }

    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        let Some(home) = at.home else {
            let run = self.take(part, at, (offset + data.len()).div_ceil(BLOCK) as u64);
            let data = &data[..data.len().min(run.count as usize * BLOCK - offset)];
            self.fill(part, run.start, offset, data)?;
            return Ok(Placed::Elsewhere(run));
        };
        if at.own {
            self.write_fresh(part, home.byte() + offset as u64, data)?;
            return Ok(Placed::Home(data.len()));
        }
        let count = (offset + data.len()).div_ceil(BLOCK) as u64;
        check_within(&*self.region, home.byte(), count as usize * BLOCK)?;
        if !at.valid {
            self.fill(part, home, offset, data)?;
            return Ok(Placed::Home(data.len()));
        }
        match self.put(part, home, offset, data)? {
            0 => Ok(Placed::Elsewhere(self.write_moved(part, at, offset, data)?)),
            done => Ok(Placed::Home(done)),
        }
    }

    fn is_crowded(&self, draft: &Draft) -> bool {
        let (late, total) = (draft.paged.late, self.pages.total());
        late > 0 && (late >= total / 4 || self.pages.fresh() > total / 2)
    }

    fn place(&self, part: &mut Part<'_>, late: Lba, at: Run) -> Result<()> {
        let paged = &mut *part.draft.paged;
        for (from, to) in (late.0..late.0 + at.count).zip(at.start.0..) {
            assert!(paged.fresh.remove(&from), "what is placed late is fresh");
            if self.mistake != Some(Mistake::PlacedNowhere) {
                self.pages.move_fresh(from, to);
            }
            paged.fresh.insert(to);
        }
        paged.late -= at.count;
        self.steal(part.draft)
    }

    fn zero(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> Result<Placed> {
        self.write(part, at, offset, &ZEROS[..len])
    }

    fn read(&self, view: View<'_>, at: &DataAt, offset: usize, buf: &mut [u8]) -> Result<()> {
        let home = at.home.expect("only what has a home is read");
        match view {
            View::Group(draft) if draft.paged.fresh.contains(&home.0) && is_late(home) => {
                self.pages.read(home.byte() + offset as u64, buf)?;
            }
            _ => self.load(home, offset, buf)?,
        }
        if let View::Group(draft) = view {
            draft.paged.overlay(home.byte() + offset as u64, buf);
        }
        Ok(())
    }

    fn orders(&self) -> bool {
        !self.is_locked
    }

    fn durable(&self) -> CommitSequence {
        match self.mistake {
            Some(Mistake::FreeAtOrder) => CommitSequence(u64::MAX),
            _ => CommitSequence(self.blocks.durable().0),
        }
    }

    fn prepare(&self, part: &mut Part<'_>) -> Result<()> {
        self.check()?;
        self.failing(self.hand_over_many(&mut part.draft.paged))
    }

    fn commit(&self, parts: &mut [Part<'_>], _how: Durability, replay: &dyn Replay) -> Result<CommitSequence> {
        let at = commit_each(parts, |part| self.commit_one(part, replay))?;
        if self.is_locked {
            self.wait(at)?;
        }
        Ok(at)
    }

    fn wait(&self, upto: CommitSequence) -> Result<()> {
        self.check_given(upto)?;
        self.failing(match self.is_total() {
            true => self.blocks.wait(COMMIT, Sequence(upto.0)),
            // What it does not depend on is told one by one.
            false => {
                let is_own = self.mistake == Some(Mistake::WaitsForOwn);
                let first = if is_own { upto.0 } else { self.blocks.durable().0 + 1 };
                (first..=upto.0).try_for_each(|sequence| self.blocks.wait(COMMIT, Sequence(sequence)))
            }
        })
    }

    fn wait_for(&self, at: CommitSequence) -> Result<()> {
        self.check_given(at)?;
        self.failing(self.blocks.wait(COMMIT, Sequence(at.0)))?;
        self.unlock_pages(Sequence(at.0));
        Ok(())
    }

    fn counters(&self) -> Option<wholly_blocks::Counters> {
        Some(self.blocks.counters())
    }

    fn is_total(&self) -> bool {
        self.blocks.guarantees().order == Order::Total
    }

    fn join(&self, all: &[CommitSequence]) -> Result<CommitSequence> {
        if self.is_total() || all.len() < 2 {
            return Ok(all.iter().copied().max().unwrap_or(CommitSequence(0)));
        }
        let after: Vec<Sequence> = all.iter().map(|at| Sequence(at.0)).collect();
        let tx = self.failing(self.blocks.begin())?;
        Ok(CommitSequence(self.failing(self.blocks.order(COMMIT, &[tx], &after))?.0))
    }

    fn send(&self, at: CommitSequence) -> Result<()> {
        if !self.is_total() {
            self.failing(self.blocks.send(COMMIT, Sequence(at.0)))?;
        }
        self.failing(self.blocks.make_room(COMMIT))
    }

    fn sync(&self) -> Result<()> {
        let last = self.failing(self.blocks.order(COMMIT, &[], &[]))?;
        self.wait(CommitSequence(last.0))
    }

    fn is_due(&self) -> bool {
        self.below.has_much()
    }

    fn checkpoint(&self, space: &dyn Reclaim, _maps: &dyn Maps) -> Result<()> {
        // It holds no blocks.
        self.check()?;
        self.failing(if space.wanted() == u64::MAX { self.below.write_back() } else { self.below.write_back_due() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use rustix::io::Errno;
    use wholly_media::Guarantees;
    use wholly_sim::{Mutation, MutationKind, SimConfig, World};

    use super::*;
    use crate::engine::{Allocate, InoGen};

    /// The blocks from 150 on, in turn.
    struct Spare(u64);

    impl Allocate for Spare {
        fn take(&mut self, count: u64) -> Run {
            self.0 += count;
            Run { start: Lba(self.0 - count), count }
        }

        fn take_late(&mut self, _count: u64) -> Run {
            unreachable!("nothing is placed late")
        }

        fn release(&mut self, _run: Run) {}
    }

    impl Replay for Spare {
        fn redo(&self, _operation: &Operation<'_>, _view: &mut dyn StorageView) -> Result<()> {
            unreachable!("no operation is recorded")
        }
    }

    /// Blocks of the medium, but for a longer log.
    const BLOCKS: u64 = 256;

    fn engine(region: Arc<dyn Region>, pages: usize) -> PageEngine {
        engine_with(region, pages, area(Lba(2), ForLog { blocks: BLOCKS, queues: None }))
    }

    fn engine_with(region: Arc<dyn Region>, pages: usize, area: LogArea) -> PageEngine {
        let trial = Trial { pages: Some(pages), ..Trial::default() };
        PageEngine::on_disk(
            region,
            (area, BLOCKS),
            (Seed::of(&[1; 16]), 1),
            (0, trial),
            Of { name: "", keeps_bitmaps: false, places_late: false, journals_content: false },
        )
    }

    fn world(mutations: Vec<Mutation>, blocks: u64) -> Arc<World> {
        World::new(Arc::new(SimConfig { log_len: blocks * 4096, mutations, ..SimConfig::disk() }))
    }

    fn write(engine: &PageEngine, draft: &mut Draft, home: Option<Lba>, data: &[u8]) -> Result<Placed> {
        let at = DataAt {
            file: InoGen { ino: 16, generation: 1 },
            block: 0,
            home,
            valid: home.is_some(),
            own: false,
            late: false,
        };
        engine.write(&mut Part { group: GroupId(0), space: &mut Spare(150), draft }, &at, 0, data)
    }

    fn log(engine: &PageEngine) -> &LogDevice {
        engine.below.log().expect("it is on a disk")
    }

    fn write_back(engine: &PageEngine) -> Result<()> {
        engine.failing(log(engine).write_back())
    }

    fn commit(engine: &PageEngine, draft: &mut Draft) -> Result<CommitSequence> {
        let part = Part { group: GroupId(0), space: &mut Spare(200), draft };
        let at = engine.commit(&mut [part], Durability::Durable, &Spare(0))?;
        engine.wait(at)?;
        Ok(at)
    }

    fn read(engine: &PageEngine, block: u64) -> u8 {
        let mut byte = [0];
        engine.load(Lba(block), 0, &mut byte).expect("read");
        byte[0]
    }

    /// Writes to a ring wait until every thread that has groups to commit has queued.
    struct Held {
        inner: Arc<dyn Region>,
        engine: OnceLock<Arc<PageEngine>>,
        /// Threads that have more groups.
        committers: AtomicU64,
        syncs: AtomicU64,
    }

    impl Region for Held {
        fn guarantees(&self) -> &Guarantees {
            self.inner.guarantees()
        }

        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn read(&self, at: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
            self.inner.read(at, buf)
        }

        fn write(&self, site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
            self.inner.write(site, at, data)
        }

        fn fence(&self, site: Site) -> wholly_media::Result<()> {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            self.inner.fence(site)
        }

        fn write_through(&self, site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            let engine = self.engine.get().expect("it is made");
            while site == COMMIT && {
                let last = engine.blocks.order(COMMIT, &[], &[]).expect("the last one");
                last.0 - engine.blocks.durable().0 < self.committers.load(Ordering::SeqCst)
            } {
                std::thread::yield_now();
            }
            self.inner.write_through(site, at, data)
        }

        fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
            self.inner.set_len(site, len)
        }
    }

    /// While a record is being written, all others queue: 16 committers need two records for each round of theirs. The
    /// log holds them all: checkpoints are not counted.
    #[test]
    fn committers_share_synchronous_writes() {
        const COMMITTERS: u64 = 16;
        const ROUNDS: u64 = 8;
        let log = LogArea { start: Lba(BLOCKS), half_blocks: 256, lanes: 1 };
        let held = Arc::new(Held {
            inner: world(Vec::new(), BLOCKS + 512).log(),
            engine: OnceLock::new(),
            committers: AtomicU64::new(COMMITTERS),
            syncs: AtomicU64::new(0),
        });
        let engine = Arc::new(engine_with(held.clone(), 512, log));
        assert!(held.engine.set(engine.clone()).is_ok());
        std::thread::scope(|scope| {
            for thread in 0..COMMITTERS {
                let (engine, held) = (&engine, &held);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let mut draft = Draft::default();
                        write(engine, &mut draft, Some(Lba(100 + thread)), &[round as u8; 100]).expect("write");
                        commit(engine, &mut draft).expect("commit");
                    }
                    held.committers.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        let (syncs, groups) = (held.syncs.load(Ordering::Relaxed), COMMITTERS * ROUNDS);
        println!("{syncs} synchronous writes and syncs for {groups} groups");
        assert!(syncs * 100 <= groups * 15, "{syncs} for {groups} groups");
        (0..COMMITTERS).for_each(|thread| assert_eq!(read(&engine, 100 + thread), ROUNDS as u8 - 1));
    }

    /// While a block is being written home, a commit puts its next version into the cache without waiting. What is
    /// written then is not taken for that.
    #[test]
    fn a_commit_passes_a_write_home() {
        struct Slow(Arc<dyn Region>, OnceLock<Arc<PageEngine>>);
        impl Region for Slow {
            fn guarantees(&self) -> &Guarantees {
                self.0.guarantees()
            }
            fn len(&self) -> u64 {
                self.0.len()
            }
            fn read(&self, at: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
                self.0.read(at, buf)
            }
            fn write(&self, site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
                // In the middle of the write home, another thread commits.
                if site == HOME && data[0] == 1 {
                    let engine = self.1.get().expect("it is made").clone();
                    let commit = std::thread::spawn(move || {
                        let mut draft = Draft::default();
                        write(&engine, &mut draft, Some(Lba(100)), &[2; 100]).expect("write");
                        super::tests::commit(&engine, &mut draft).expect("commit");
                    });
                    commit.join().expect("it waits for nothing");
                }
                self.0.write(site, at, data)
            }
            fn fence(&self, site: Site) -> wholly_media::Result<()> {
                self.0.fence(site)
            }
            fn write_through(&self, site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
                self.0.write_through(site, at, data)
            }
            fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
                self.0.set_len(site, len)
            }
        }
        let world = world(Vec::new(), BLOCKS);
        let slow = Arc::new(Slow(world.log(), OnceLock::new()));
        let engine = Arc::new(engine(slow.clone(), 64));
        assert!(slow.1.set(engine.clone()).is_ok());
        let mut draft = Draft::default();
        write(&engine, &mut draft, Some(Lba(100)), &[1; 100]).expect("write");
        commit(&engine, &mut draft).expect("commit");
        write_back(&engine).expect("write back");
        let mut home = [0];
        world.log().read(Lba(100).byte(), &mut home).expect("read");
        assert_eq!((home[0], read(&engine, 100), log(&engine).dirty()), (1, 2, 1));
        write_back(&engine).expect("write back");
        world.log().read(Lba(100).byte(), &mut home).expect("read");
        assert_eq!((home[0], log(&engine).dirty(), log(&engine).used()), (2, 0, 0));
    }

    /// Of three records, bytes of the heads and of the images are damaged in turn. Damage is found, but for that of the
    /// last record, which seems not to be there.
    #[test]
    fn damage_of_records_before_the_last_is_found() {
        let world = world(Vec::new(), BLOCKS);
        let engine = engine(world.log(), 64);
        for byte in 1..=3 {
            let mut draft = Draft::default();
            write(&engine, &mut draft, Some(Lba(100)), &[byte; 100]).expect("write");
            commit(&engine, &mut draft).expect("commit");
        }
        let area = area(Lba(2), ForLog { blocks: BLOCKS, queues: None });
        let (ring, seed) = (ring_of(&area), LogSeed::of(Seed::of(&[1; 16]), 1).ring());
        let patches = || recover::patches(&*world.log(), &area, seed);
        let whole = patches().expect("it is sound");
        for (record, part) in (0..3).flat_map(|record| [(record, 0), (record, 1)]) {
            for inside in (0..BLOCK as u64).step_by(61) {
                let at = ring.block(2 * record + part).byte() + inside;
                let mut was = [0];
                world.log().read(at, &mut was).expect("read");
                let put = |byte: u8| world.log().write(Site("test"), at, &[byte]).expect("write");
                put(was[0] ^ 4);
                let found = patches();
                put(was[0]);
                match record {
                    2 => assert_ne!(found.expect("the last one may be torn"), whole, "{inside}"),
                    _ => assert!(matches!(found, Err(Error::Corrupt { .. })), "record {record}, {part}, byte {inside}"),
                }
            }
        }
    }

    /// Whatever the medium refuses, nothing is committed after it, and what was is recovered.
    #[test]
    fn after_a_refusal_nothing_is_committed() {
        let sites = [FRESH, FRESH_FENCE, COMMIT, HOME, HOME_FENCE, TAIL];
        for (site, errno) in sites.into_iter().flat_map(|site| [(site, Errno::IO), (site, Errno::NOSPC)]) {
            let mutation = Mutation { site, kind: MutationKind::Fail(errno), nth: Some(0) };
            let world = world(vec![mutation], BLOCKS);
            let engine = engine(world.log(), 64);
            let small = |byte| {
                let mut draft = Draft::default();
                write(&engine, &mut draft, Some(Lba(100)), &[byte; 100])?;
                commit(&engine, &mut draft)
            };
            let first = small(1);
            assert_eq!(first.is_err(), site == COMMIT, "{site:?}");
            let mut draft = Draft::default();
            write(&engine, &mut draft, None, &[5; 8 * BLOCK]).expect("to the cache");
            // After a commit that failed, nothing is read.
            let written = write(&engine, &mut draft, Some(Lba(101)), &[6; 100]);
            assert_eq!(written.is_err(), site == COMMIT, "to the draft, {written:?}");
            let refusals = [commit(&engine, &mut draft).map(drop), write_back(&engine)];
            let refused = refusals.iter().filter(|refusal| refusal.is_err()).count();
            assert!(refused > 0 || site == COMMIT, "{site:?}: {refusals:?}");
            assert!(matches!(small(7), Err(Error::Poisoned(_))), "{site:?}");
            let area = area(Lba(2), ForLog { blocks: 256, queues: None });
            recover::recover(&*world.log(), &area, LogSeed::of(Seed::of(&[1; 16]), 1).ring()).expect("recover");
            let mut home = [0];
            world.log().read(Lba(100).byte(), &mut home).expect("read");
            assert_eq!(home[0], u8::from(site != COMMIT), "{site:?}");
        }
    }
}
