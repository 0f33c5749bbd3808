//! The log as a device with transactions: the commands of [`TxDevice`] over any [`Region`]. With
//! [`Batch`](crate::batch::Batch) over it, every disk has [`TxBlocks`](crate::TxBlocks).
//!
//! # Terms
//!
//! - *held*: a page of a running transaction in memory. *Stored*: a fresh block that went straight home, as those
//!   beyond a few do. *Dirty*: a committed page that is not at home.
//!
//! # The commit
//!
//! | step | what is done | on the medium |
//! |---|---|---|
//! | 1 | stored blocks, and plain writes before, are made durable, if there are any | `log.before.fence` |
//! | 2 | the record: head, and the last held page of each block | one synchronous write: the *commit point* |
//! | 3 | held pages become dirty | |
//!
//! Writing back, when the ring is half full, or full: dirty pages in the order of their blocks, adjacent ones by one
//! write (`log.home`), a fence (`log.home.fence`), and the header (`log.tail`).
//!
//! # Invariants
//!
//! 1. One thread at a time commits, writes back, or stores plainly where an image is live. No lock that a reader takes
//!    is held while the medium works.
//! 2. A page becomes dirty after its record is durable, so whatever goes home is in the log, whole.
//! 3. A fresh block is stored, and a block is written plainly, only when the log has no live image of it: else it is
//!    written back first.
//! 4. All that is held fits into one record: a write beyond that says `NoSpace`, a commit never does.
//! 5. On persistent memory a thread fences what it stores at once: a later fence of another thread would not cover it.
//!
//! Not covered: blocks at home have no checksums; of discarded blocks the home keeps what it had.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sync::{Mutex, MutexGuard};
use wholly_error::{Error, Result};
use wholly_media::disk::AlignedBuf;
use wholly_media::{Region, Site};

use super::{Records, Ring, RingSeed, head_blocks, read};
use crate::runs::Runs;
use crate::{BLOCK, Counters, DeviceGuarantees, Lba, Page, Placement, Run, Tag, TxDevice, Txid};

const BEFORE_FENCE: Site = Site("log.before.fence");
const HOME: Site = Site("log.home");
const HOME_FENCE: Site = Site("log.home.fence");
const TAIL: Site = Site("log.tail");
const RECOVER_PROOF: Site = Site("log.recover.proof");
const RECOVER: Site = Site("log.recover");
const RECOVER_FENCE: Site = Site("log.recover.fence");

/// Where the device stores by itself. All else is at its callers' sites.
pub const SITES: &[Site] = &[BEFORE_FENCE, HOME, HOME_FENCE, TAIL, RECOVER_PROOF, RECOVER, RECOVER_FENCE];

/// Fresh blocks of running transactions that are held; those beyond are stored.
const FEW: u64 = 16;
/// Blocks that are written home by one call, at most.
const AT_ONCE: usize = 256;

/// Brings the blocks home that committed records of an incarnation have. They are durable on return; then the caller
/// raises the incarnation, durably, before it opens the log with it.
///
/// # Errors
/// If the log is damaged; the medium's.
pub fn recover(region: &dyn Region, area: Run, seed: RingSeed) -> Result<()> {
    let found = read(region, &Ring::of(area), seed)?;
    let Some(proof) = found.proof else { return Ok(()) };
    if region.guarantees().is_pmem() {
        for block in proof.blocks() {
            let mut bytes = [0; BLOCK];
            region.read(block.byte(), &mut bytes)?;
            region.write(RECOVER_PROOF, block.byte(), &bytes)?;
        }
    }
    region.fence(RECOVER_FENCE)?;
    for (home, at) in &found.images {
        region.write_from(RECOVER, home.byte(), region, at.byte(), BLOCK)?;
    }
    Ok(region.fence(RECOVER_FENCE)?)
}

/// What a running transaction has of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Held,
    Stored,
    Discarded,
}

#[derive(Default)]
struct Active {
    blocks: Runs<At>,
    held: BTreeMap<u64, Page>,
    /// How many of those are fresh.
    fresh: u64,
}

#[derive(Default)]
struct State {
    active: HashMap<Txid, Active>,
    begun: u64,
    /// Pages that running transactions hold, and how many of them are fresh.
    held: u64,
    fresh: u64,
    dirty: BTreeMap<u64, Page>,
    /// Whether something was stored plainly since the last fence.
    has_plain: bool,
    poisoned: Option<String>,
    counters: Counters,
}

impl State {
    fn check(&self) -> Result<()> {
        self.poisoned.as_ref().map_or(Ok(()), |why| Err(Error::Poisoned(why.clone())))
    }

    fn get(&mut self, tx: Txid) -> Result<&mut Active> {
        self.active.get_mut(&tx).ok_or_else(|| Error::Invalid(format!("transaction {:#x} does not run", tx.0)))
    }

    /// That no running transaction has written some blocks.
    fn check_plain(&self, run: Run) -> Result<()> {
        let blocks = run.start.0..run.start.0 + run.count;
        match self.active.values().find_map(|of| of.blocks.within(blocks.clone()).next()) {
            None => Ok(()),
            Some((found, _)) => {
                Err(Error::Busy(format!("block {}", found.start), "a running transaction has written it".into()))
            }
        }
    }

    /// Drops the held pages of some blocks.
    fn drop_held(&mut self, tx: Txid, run: Run) -> Result<()> {
        let active = self.get(tx)?;
        let held: Vec<u64> = active.held.range(run.start.0..run.start.0 + run.count).map(|(at, _)| *at).collect();
        held.iter().for_each(|at| _ = active.held.remove(at));
        self.held -= held.len() as u64;
        Ok(())
    }
}

/// See the module.
pub struct LogDevice {
    region: Arc<dyn Region>,
    records: Records,
    guarantees: DeviceGuarantees,
    incarnation: u64,
    state: Mutex<State>,
    /// Held by who commits or writes back (invariant 1).
    working: Mutex<()>,
}

impl LogDevice {
    /// Over the first `blocks` blocks of a region. Its log is in an area that is beyond them, or in blocks that callers
    /// never write. What an earlier incarnation has left was [recovered](recover), and no other has had this seed and
    /// incarnation. A test may allow fewer `overwrites` at once than the log has room for.
    pub fn new(
        region: Arc<dyn Region>,
        blocks: u64,
        area: Run,
        (seed, incarnation): (RingSeed, u64),
        overwrites: Option<u64>,
    ) -> LogDevice {
        let ring = Ring::of(area);
        let most = (0..=ring.blocks).rev().find(|images| ring.fits(*images)).unwrap_or(0);
        let of = region.guarantees();
        let guarantees = DeviceGuarantees {
            blocks,
            most_pages: None,
            sure_overwrites: overwrites.unwrap_or(u64::MAX).min(most.saturating_sub(FEW)),
            free_blocks_help: false,
            zeroes_discarded: false,
            plain_unit: of.atomic_unit.min(BLOCK as u32),
            checks_blocks: false,
            emulated: of.emulated,
            description: format!("{}, with a log of whole blocks", of.description),
        };
        let (records, state) = (Records::new(ring, seed), Mutex::default());
        LogDevice { region, records, guarantees, incarnation, state, working: Mutex::default() }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap();
        state.check()?;
        Ok(state)
    }

    fn failing<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            self.state.lock().unwrap().poisoned.get_or_insert_with(|| error.to_string());
        })
    }

    fn check_run(&self, run: Run) -> Result<()> {
        match run.start.0.checked_add(run.count) {
            Some(end) if end <= self.guarantees.blocks => Ok(()),
            _ => Err(Error::Invalid(format!("blocks {}+{} of {}", run.start.0, run.count, self.guarantees.blocks))),
        }
    }

    fn is_imaged(&self, run: Run) -> bool {
        let mut found = Vec::new();
        self.records.imaged(&[run], &mut found);
        !found.is_empty()
    }

    /// Stores at home, where no image is live.
    fn store(&self, site: Site, at: Lba, page: &Page) -> Result<()> {
        self.region.write(site, at.byte(), &page[..])?;
        if self.region.guarantees().is_pmem() {
            self.region.fence(BEFORE_FENCE)?;
        }
        Ok(())
    }

    /// Brings all that is dirty home. Then no record is live.
    fn write_back(&self, _working: &MutexGuard<'_, ()>) -> Result<()> {
        if self.records.used() == 0 {
            return Ok(());
        }
        let dirty: Vec<(u64, Page)> = self.lock()?.dirty.iter().map(|(at, page)| (*at, page.clone())).collect();
        self.failing(self.write_home(&dirty))?;
        let target = self.records.next();
        let (block, header) = self.records.header(target);
        self.failing(self.region.write_through(TAIL, block.byte(), &header).map_err(Error::from))?;
        self.records.release(target);
        // No commit adds dirty blocks meanwhile.
        self.lock()?.dirty.clear();
        Ok(())
    }

    fn write_home(&self, dirty: &[(u64, Page)]) -> Result<()> {
        let mut bytes = AlignedBuf::zeroed(AT_ONCE.min(dirty.len()) * BLOCK);
        for run in dirty.chunk_by(|(one, _), (next, _)| one + 1 == *next).flat_map(|run| run.chunks(AT_ONCE)) {
            let bytes = &mut bytes[..run.len() * BLOCK];
            bytes.chunks_exact_mut(BLOCK).zip(run).for_each(|(to, (_, page))| to.copy_from_slice(&page[..]));
            self.region.write(HOME, Lba(run[0].0).byte(), bytes)?;
        }
        Ok(self.region.fence(HOME_FENCE)?)
    }

    /// Writes the record of transactions, in their order.
    fn write_record(&self, site: Site, txs: Vec<Active>, working: &MutexGuard<'_, ()>) -> Result<()> {
        let (mut images, mut void) = (BTreeMap::new(), Vec::new());
        let mut stores = std::mem::take(&mut self.lock()?.has_plain);
        for mut active in txs {
            for (run, at) in active.blocks.iter() {
                if at == At::Held {
                    continue;
                }
                stores |= at == At::Stored;
                let over: Vec<u64> = images.range(run.clone()).map(|(at, _)| *at).collect();
                over.iter().for_each(|at| _ = images.remove(at));
                self.records.imaged(&[Run { start: Lba(run.start), count: run.end - run.start }], &mut void);
            }
            images.append(&mut active.held);
        }
        if stores {
            self.region.fence(BEFORE_FENCE)?;
        }
        if images.is_empty() && void.is_empty() {
            return Ok(());
        }
        let blocks = head_blocks((images.len() + void.len()) as u64) + images.len() as u64;
        let at = match self.records.place(blocks) {
            Some(at) => at,
            None => {
                self.write_back(working)?;
                self.records.place(blocks).expect("what is held fits into an empty log")
            }
        };
        let mut bytes = AlignedBuf::zeroed(blocks as usize * BLOCK);
        let of = images.iter().map(|(home, page)| (Lba(*home), &**page));
        self.records.fill(of, void.clone(), at, &mut bytes);
        self.region.write_through(site, self.records.ring.block(at).byte(), &bytes)?;
        let mut state = self.lock()?;
        void.iter().for_each(|at| _ = state.dirty.remove(at));
        self.records.append(at, blocks, images.keys().copied());
        state.dirty.append(&mut images);
        Ok(())
    }
}

impl TxDevice for LogDevice {
    fn guarantees(&self) -> &DeviceGuarantees {
        &self.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        if self.records.used() > self.records.ring.blocks / 2
            && let Ok(working) = self.working.try_lock()
        {
            self.write_back(&working)?;
        }
        let mut state = self.lock()?;
        state.begun += 1;
        let tx = Txid::new(self.incarnation, state.begun);
        state.active.insert(tx, Active::default());
        Ok(tx)
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: &Page, how: Placement, _: Tag) -> Result<()> {
        let run = Run { start: at, count: 1 };
        self.check_run(run)?;
        let blocks = at.0..at.0 + 1;
        let mut state = self.lock()?;
        let (held, most, fresh) = (state.held, self.guarantees.sure_overwrites + FEW, state.fresh);
        let active = state.get(tx)?;
        let is_held = active.blocks.get(at.0) == Some(At::Held);
        let is_fresh = how == Placement::Fresh || active.blocks.get(at.0) == Some(At::Stored);
        if !is_held && is_fresh && (fresh >= FEW || held >= most) {
            drop(state);
            if self.is_imaged(run) {
                self.write_back(&self.working.lock().unwrap())?;
            }
            self.store(site, at, page)?;
            state = self.lock()?;
            state.get(tx)?.blocks.set(blocks, At::Stored);
        } else {
            if !is_held && held >= most {
                return Err(Error::NoSpace("blocks in the log that running transactions write over".into()));
            }
            let more = u64::from(!is_held && is_fresh);
            active.fresh += more;
            active.held.insert(at.0, page.clone());
            active.blocks.set(blocks, At::Held);
            state.fresh += more;
            state.held += u64::from(!is_held);
        }
        state.counters.writes += 1;
        Ok(())
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.check_run(Run { start: at, count: 1 })?;
        let mut state = self.lock()?;
        state.counters.reads += 1;
        let own = match tx {
            None => None,
            Some(tx) => state.get(tx)?.blocks.get(at.0),
        };
        let page = match (own, tx) {
            (Some(At::Discarded), _) => Some(Page::zeros()),
            (Some(At::Held), Some(tx)) => state.get(tx)?.held.get(&at.0).cloned(),
            (Some(At::Stored), _) => None,
            _ => state.dirty.get(&at.0).cloned(),
        };
        drop(state);
        match page {
            Some(page) => bytes.copy_from_slice(&page[..]),
            None => self.region.read(at.byte(), bytes)?,
        }
        Ok(())
    }

    fn discard(&self, _: Site, tx: Txid, run: Run) -> Result<()> {
        self.check_run(run)?;
        let mut state = self.lock()?;
        state.drop_held(tx, run)?;
        state.get(tx)?.blocks.set(run.start.0..run.start.0 + run.count, At::Discarded);
        state.counters.discards += run.count;
        Ok(())
    }

    fn abort(&self, _: Site, tx: Txid) -> Result<()> {
        let mut state = self.lock()?;
        state.get(tx)?;
        if let Some(active) = state.active.remove(&tx) {
            state.held -= active.held.len() as u64;
            state.fresh -= active.fresh;
        }
        state.counters.aborts += 1;
        Ok(())
    }

    fn commit(&self, site: Site, txs: &[Txid]) -> Result<()> {
        let working = self.working.lock().unwrap();
        let mut state = self.lock()?;
        txs.iter().try_for_each(|tx| state.get(*tx).map(drop))?;
        let ended: Vec<Active> = txs.iter().filter_map(|tx| state.active.remove(tx)).collect();
        let held: usize = ended.iter().map(|active| active.held.len()).sum();
        let fresh: u64 = ended.iter().map(|active| active.fresh).sum();
        drop(state);
        self.failing(self.write_record(site, ended, &working))?;
        let mut state = self.lock()?;
        state.held -= held as u64;
        state.fresh -= fresh;
        state.counters.commits += 1;
        state.counters.committed += txs.len() as u64;
        Ok(())
    }

    fn plain_write(&self, site: Site, at: Lba, page: &Page) -> Result<()> {
        let run = Run { start: at, count: 1 };
        self.check_run(run)?;
        let working = self.working.lock().unwrap();
        self.lock()?.check_plain(run)?;
        if self.is_imaged(run) {
            self.write_back(&working)?;
        }
        self.store(site, at, page)?;
        let mut state = self.lock()?;
        state.has_plain = true;
        state.counters.plain_writes += 1;
        Ok(())
    }

    fn flush(&self, site: Site) -> Result<()> {
        self.lock()?.has_plain = false;
        self.failing(self.region.fence(site).map_err(Error::from))?;
        self.lock()?.counters.plain_flushes += 1;
        Ok(())
    }

    fn trim(&self, _: Site, run: Run) -> Result<()> {
        self.check_run(run)?;
        let working = self.working.lock().unwrap();
        self.lock()?.check_plain(run)?;
        if self.is_imaged(run) {
            self.write_back(&working)?;
        }
        self.lock()?.counters.trims += run.count;
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.state.lock().unwrap().counters
    }
}
