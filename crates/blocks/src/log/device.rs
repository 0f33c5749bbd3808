//! The log as a device with transactions: the commands of [`TxDevice`] over any [`Region`]. With
//! [`Batch`](crate::batch::Batch) over it, every disk has [`TxBlocks`](crate::TxBlocks).
//!
//! # Terms
//!
//! - *held*: a page of a running transaction in memory. *Stored*: a fresh block that went straight home, as all of a
//!   transaction do that has more than a few. *Spilled*: a page in a *lent* block: one that was trimmed, and that
//!   nobody has written since. *Dirty*: a committed page that is not at home. *Going*: a block that is being written
//!   home.
//!
//! # The commit
//!
//! | step | what is done | on the medium |
//! |---|---|---|
//! | 1 | fresh pages go home, if they are many; other pages of a transaction that has spilled some are spilled | writes |
//! | 2 | what was stored or spilled, and plain writes before, are made durable, if there are any | one fence |
//! | 3 | the record: head, and the last held page of each block | one synchronous write: the *commit point* |
//! | 4 | its pages become dirty; the transactions end | |
//! | 5 | if there are spilled ones among them: writing back | as below |
//!
//! Writing back, when the ring or the memory is half full, at the begin of some transaction; and in a commit, if the
//! ring is full: dirty pages in the order of their blocks, adjacent ones by one write (`home`), a fence (`home_fence`),
//! and the header (`tail`). Some blocks go home alone, each durably before the next one ([`LogOptions::apart`]).
//!
//! # Invariants
//!
//! 1. One thread at a time commits, spills, or stores plainly (`working`); one at a time writes back (`homing`), beside
//!    it. No lock that a reader takes is held while the medium works.
//! 2. A page becomes dirty after its record is durable, so whatever goes home is in the log, whole. It stops being
//!    dirty when it is home and has not changed meanwhile. What is going is the medium's copy: a commit puts the next
//!    version beside it without waiting.
//! 3. A header names a record only after all that was dirty when that was the next one is at home, durably.
//! 4. A fresh block is stored only when it is not going, and is not dirty any more. If records that count have images
//!    of it, it is void in the record of its transaction. A block is written plainly only when the log has no image of
//!    it: else that is brought home first.
//! 5. All that is held over others fits into one record, with the names of all that is spilled, and of all blocks of
//!    the ring, which may be void: a write beyond that says `NoSpace`, a commit never does. Fresh pages need no place
//!    in it: they can go home.
//! 6. A lent block has an image until its transaction is at home, durably: only then is it free. If its owner writes it
//!    before, because the transaction is another's, its image goes elsewhere first.
//! 7. A transaction ends when its pages are dirty, in one step: until then its versions are read by its number.
//! 8. On persistent memory a thread fences what it stores at once: a later fence of another thread would not cover it.
//! 9. A reader of the home looks once more whether the block was written home meanwhile.
//!
//! Not covered: blocks at home have no checksums, spilled ones have (T9); of discarded blocks the home keeps what it
//! had.

use std::collections::BTreeMap;
use std::sync::Arc;

use sync::{Condvar, Mutex, MutexGuard};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use super::ring::Entry;
use super::spare::Spare;
use super::state::{Active, At, Dirty, Held, Place, State};
use super::{Records, Recovered, Ring, RingSeed, head_blocks, image_sum, read};
use crate::{BLOCK, Counters, DeviceGuarantees, Lba, Page, Placement, Run, Tag, TxDevice, Txid};

const RECOVER_PROOF: Site = Site("log.recover.proof");
const RECOVER: Site = Site("log.recover");
const RECOVER_FENCE: Site = Site("log.recover.fence");

/// Where the device stores by itself. All else is at its callers' sites.
#[derive(Clone, Copy, Debug)]
pub struct LogSites {
    /// What was stored before the record is made durable.
    pub before_fence: Site,
    /// The same on persistent memory, by each thread.
    pub own_fence: Site,
    /// Pages go to lent blocks.
    pub spill: Site,
    /// These are made durable, with all else that was stored before the record.
    pub spill_fence: Site,
    /// Dirty pages go home.
    pub home: Site,
    /// That is made durable.
    pub home_fence: Site,
    /// The header is written.
    pub tail: Site,
}

impl LogSites {
    /// The names that a log has by itself.
    pub const LOG: LogSites = LogSites {
        before_fence: Site("log.before.fence"),
        own_fence: Site("log.own.fence"),
        spill: Site("log.spill"),
        spill_fence: Site("log.spill.fence"),
        home: Site("log.home"),
        home_fence: Site("log.home.fence"),
        tail: Site("log.tail"),
    };
}

/// All sites of a log by itself, and of its recovery.
pub const SITES: &[Site] = &[
    LogSites::LOG.before_fence,
    LogSites::LOG.own_fence,
    LogSites::LOG.spill,
    LogSites::LOG.spill_fence,
    LogSites::LOG.home,
    LogSites::LOG.home_fence,
    LogSites::LOG.tail,
    RECOVER_PROOF,
    RECOVER,
    RECOVER_FENCE,
];

/// Mistakes that tests plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFault {
    /// Pages go home before their record is durable.
    HomeBeforeLog,
    /// A record does not say which blocks are void.
    NoVoid,
    /// Lent blocks are free before their images are at home.
    LentTooEarly,
}

/// How a log is used.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Fewer pages that are written over at once than the ring has room for.
    pub overwrites: Option<u64>,
    /// Pages that may be dirty: writing back is due when half as many are.
    pub memory: u64,
    /// Blocks that go home alone, and durably before the next one: not all of them are in doubt.
    pub apart: Vec<Lba>,
    /// Blocks of the ring that are used, if it has more.
    pub ring: Option<u64>,
    /// Where it stores.
    pub sites: LogSites,
    /// What is wrong with it.
    pub fault: Option<LogFault>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions { overwrites: None, memory: 8192, apart: Vec::new(), ring: None, sites: LogSites::LOG, fault: None }
    }
}

/// Fresh blocks of a transaction that are in its record, at most; if it has more, all go home.
const FEW: u64 = 16;
/// Fresh pages of a transaction that are held before they go home, at most.
const MOST_FRESH: u64 = 256;
/// Blocks that are written by one call, at most.
pub(super) const AT_ONCE: usize = 256;
/// So many lent blocks take the room of one page in the record, by their entries in the head.
const LENT_BY_OVERWRITE: u64 = 128;

/// What a crash has left in a log: what [`recover`] would store. Only reads.
///
/// # Errors
/// If the log is damaged; the medium's.
pub fn left(region: &dyn Region, area: Run, seed: RingSeed) -> Result<Recovered> {
    read(region, &Ring::of(area), seed)
}

/// Brings the blocks home that committed records of an incarnation have. They are durable on return; then the caller
/// raises the incarnation, durably, before it opens the log with it. Until the return all of these blocks are in doubt
/// together; who has some that must not be ([`LogOptions::apart`]) stores what is [`left`] by itself.
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

/// See the module.
pub struct LogDevice {
    pub(super) region: Arc<dyn Region>,
    pub(super) records: Records,
    pub(super) options: LogOptions,
    guarantees: DeviceGuarantees,
    pub(super) state: Mutex<State>,
    /// Something is not going any more.
    changed: Condvar,
    /// Held by who commits (invariant 1).
    pub(super) working: Mutex<()>,
    /// Held by who writes back.
    pub(super) homing: Mutex<()>,
    /// Of records, and of what is stored before them.
    pub(super) buffer: Spare,
    pub(super) home_buffer: Spare,
}

/// What transactions change, in their order.
#[derive(Default)]
struct Gathered {
    images: BTreeMap<u64, Dirty>,
    /// How many of them are in the record.
    inside: u64,
    /// Fresh pages that go home.
    store: BTreeMap<u64, (Site, Page)>,
    /// Blocks whose earlier images do not count.
    void: Vec<u64>,
    stores: bool,
    spills: bool,
}

impl LogDevice {
    /// Over the first `blocks` blocks of a region. Its log is in an area that is beyond them, or in blocks that callers
    /// never write. What an earlier incarnation has left was [recovered](recover), and no other has had this seed and
    /// incarnation.
    pub fn new(
        region: Arc<dyn Region>,
        blocks: u64,
        area: Run,
        (seed, incarnation): (RingSeed, u64),
        options: LogOptions,
    ) -> LogDevice {
        let mut ring = Ring::of(area);
        ring.blocks = ring.blocks.min(options.ring.unwrap_or(u64::MAX));
        // One of them is for the entries of lent blocks.
        let most = (0..=ring.blocks).rev().find(|images| ring.fits(*images)).unwrap_or(0).saturating_sub(1);
        let of = region.guarantees();
        let guarantees = DeviceGuarantees {
            blocks,
            most_pages: None,
            sure_overwrites: options.overwrites.unwrap_or(u64::MAX).min(most),
            free_blocks_help: true,
            lent_by_overwrite: LENT_BY_OVERWRITE,
            zeroes_discarded: false,
            plain_unit: of.atomic_unit.min(BLOCK as u32),
            checks_blocks: false,
            emulated: of.emulated,
            description: format!("{}, with a log of whole blocks", of.description),
        };
        LogDevice {
            region,
            records: Records::new(ring, seed),
            options,
            guarantees,
            state: Mutex::new(State { incarnation, ..State::default() }),
            changed: Condvar::new(),
            working: Mutex::default(),
            homing: Mutex::default(),
            buffer: Spare::default(),
            home_buffer: Spare::default(),
        }
    }

    /// Begins a new incarnation, which is durable. No transaction runs, and what was committed is at home.
    pub fn start(&self, seed: RingSeed, incarnation: u64) {
        self.records.start(seed);
        *self.state.lock().unwrap() = State { incarnation, ..State::default() };
    }

    /// The seed of this incarnation.
    pub fn seed(&self) -> RingSeed {
        self.records.seed()
    }

    /// Blocks of the ring with records that count.
    pub fn used(&self) -> u64 {
        self.records.used()
    }

    /// Pages of transactions that are not committed, in memory.
    pub fn held(&self) -> u64 {
        let state = self.state.lock().unwrap();
        state.overs + state.fresh
    }

    /// Pages that are not at home.
    pub fn dirty(&self) -> u64 {
        self.state.lock().unwrap().dirty.len() as u64
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap();
        state.check()?;
        Ok(state)
    }

    pub(super) fn failing<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            let mut state = self.state.lock().unwrap();
            state.poisoned.get_or_insert_with(|| error.to_string());
            self.tell(&state);
        })
    }

    /// Waits until something is not going any more.
    pub(super) fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        state.waiting += 1;
        state = self.changed.wait(state).unwrap();
        state.waiting -= 1;
        state.check()?;
        Ok(state)
    }

    /// Something is not going any more. A call of the kernel only if somebody waits.
    pub(super) fn tell(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    pub(super) fn sum(&self, home: u64, bytes: &[u8]) -> u64 {
        image_sum(self.records.seed(), Lba(home), bytes)
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

    /// The most fresh pages of a record, by transaction.
    fn few(&self) -> u64 {
        (self.records.ring.blocks / 8).min(FEW)
    }

    /// Gathers what transactions change. Whether all fresh pages go home: they are not to be in the record.
    fn gather(&self, txs: &[Txid], all_go: bool) -> Result<Gathered> {
        let mut state = self.lock()?;
        let (mut of, mut gone) = (Gathered::default(), Vec::new());
        of.stores = state.has_plain;
        for tx in txs {
            let active = state.get(*tx)?;
            let fresh_go = all_go || active.is_stored || active.fresh > self.few();
            for (run, at) in active.blocks.iter().filter(|(_, at)| matches!(at, At::Stored | At::Discarded)) {
                of.stores |= at == At::Stored;
                let over: Vec<u64> = of.images.range(run.clone()).map(|(at, _)| *at).collect();
                over.iter().for_each(|at| _ = of.images.remove(at));
                gone.push(Run { start: Lba(run.start), count: run.end - run.start });
            }
            for (at, held) in &active.held {
                if held.is_fresh && fresh_go {
                    of.images.remove(at);
                    of.store.insert(*at, (held.site, held.page.clone()));
                    gone.push(Run { start: Lba(*at), count: 1 });
                } else {
                    of.images.insert(*at, Dirty::Page(held.page.clone()));
                }
            }
            of.spills |= !active.spilled.is_empty();
            of.images.extend(active.spilled.iter().map(|(at, place)| (*at, Dirty::At(*place))));
        }
        drop(state);
        of.inside = of.images.values().filter(|image| matches!(image, Dirty::Page(_))).count() as u64;
        self.records.imaged(&gone, &mut of.void);
        of.void.sort_unstable();
        of.void.dedup();
        of.stores |= !of.store.is_empty();
        Ok(of)
    }

    fn commit_these(&self, site: Site, txs: &[Txid], working: &MutexGuard<'_, ()>) -> Result<()> {
        for tx in txs {
            let has_spilled = !self.lock()?.get(*tx)?.spilled.is_empty();
            if has_spilled {
                self.spill(*tx, working)?;
            }
        }
        let mut of = self.gather(txs, false)?;
        if self.blocks_of(&of) > self.records.ring.blocks {
            of = self.gather(txs, true)?;
        }
        let store: Vec<(u64, Site, Page)> =
            std::mem::take(&mut of.store).into_iter().map(|(at, (site, page))| (at, site, page)).collect();
        self.store(&store)?;
        if of.stores || of.spills {
            let LogSites { before_fence, spill_fence, .. } = self.options.sites;
            self.region.fence(if of.spills { spill_fence } else { before_fence })?;
            self.lock()?.has_plain = false;
        }
        let record = match of.images.is_empty() && of.void.is_empty() {
            true => None,
            false => Some(self.write_record(site, &of)?),
        };
        let lent = self.publish(txs, of, record)?;
        if !lent.is_empty() {
            // Their images may be written over once it has returned.
            if self.options.fault != Some(LogFault::LentTooEarly) {
                self.write_back()?;
            }
            let mut state = self.lock()?;
            lent.iter().for_each(|place| state.vacate(place.at));
        }
        Ok(())
    }

    /// Blocks of the record.
    fn blocks_of(&self, of: &Gathered) -> u64 {
        head_blocks((of.images.len() + of.void.len()) as u64) + of.inside
    }

    /// Writes the record. Returns where it stands.
    fn write_record(&self, site: Site, of: &Gathered) -> Result<(u64, u64)> {
        let blocks = self.blocks_of(of);
        let at = match self.records.place(blocks) {
            Some(at) => at,
            None => {
                self.write_back()?;
                self.records.place(blocks).expect("what is held fits into an empty log")
            }
        };
        if self.options.fault == Some(LogFault::HomeBeforeLog) {
            let homes = of.images.iter().filter_map(|(home, image)| match image {
                Dirty::Page(page) => Some((*home, self.options.sites.home, page.clone())),
                Dirty::At(_) => None,
            });
            self.write_pages(&homes.collect::<Vec<_>>())?;
        }
        let void = if self.options.fault == Some(LogFault::NoVoid) { &[][..] } else { &of.void };
        let (ring, seed) = (&self.records.ring, self.records.seed());
        self.buffer.with(blocks as usize * BLOCK, |bytes| {
            let head = (blocks - of.inside) as usize * BLOCK;
            let (to_head, to_images) = bytes.split_at_mut(head);
            to_head.fill(0);
            let mut places = to_images.chunks_exact_mut(BLOCK).zip(at + blocks - of.inside..);
            let entry = |(home, image): (&u64, &Dirty)| match image {
                Dirty::Page(page) => {
                    let (to, block) = places.next().expect("as many as there are");
                    to.copy_from_slice(&page[..]);
                    let sum = image_sum(seed, Lba(*home), &page[..]);
                    Entry::Image { home: Lba(*home), at: ring.block(block), sum }
                }
                Dirty::At(place) => Entry::Image { home: Lba(*home), at: Lba(place.at), sum: place.sum },
            };
            let entries: Vec<Entry> = of.images.iter().map(entry).collect();
            self.records.fill_head(entries, void, (at, blocks), to_head);
            self.region.write_through(site, ring.block(at).byte(), bytes)
        })?;
        Ok((at, blocks))
    }

    /// Ends transactions: what they have written is committed. Returns where they had spilled pages.
    fn publish(&self, txs: &[Txid], of: Gathered, record: Option<(u64, u64)>) -> Result<Vec<Place>> {
        let mut state = self.lock()?;
        let ended: Vec<Active> = txs.iter().filter_map(|tx| state.end(*tx)).collect();
        of.void.iter().for_each(|at| _ = state.dirty.remove(at));
        if let Some((at, blocks)) = record {
            self.records.void(&of.void);
            self.records.append(at, blocks, of.images.keys().copied());
        }
        state.dirty.extend(of.images);
        state.counters.commits += 1;
        state.counters.committed += txs.len() as u64;
        Ok(ended.into_iter().flat_map(|active| active.spilled.into_values()).collect())
    }

    /// Makes sure that no image is live of blocks which are going to be stored plainly, and that they are not going.
    fn clear_of_images(&self, run: Run) -> Result<()> {
        if self.is_imaged(run) {
            return self.write_back();
        }
        let mut state = self.lock()?;
        while state.is_going(run.start.0..run.start.0 + run.count) {
            state = self.wait(state)?;
        }
        Ok(())
    }

    /// Writes a block into which no page is spilled.
    fn put(&self, site: Site, tx: Txid, at: Lba, page: &Page, how: Placement) -> Result<()> {
        let most_fresh = (self.options.memory / 4).clamp(self.few(), MOST_FRESH);
        let mut state = self.lock()?;
        let before = state.get(tx)?.blocks.get(at.0);
        match before {
            Some(At::Held) => {
                if let Some(held) = state.get(tx)?.held.get_mut(&at.0) {
                    (held.page, held.site) = (page.clone(), site);
                }
            }
            Some(At::Spilled) => {
                drop(state);
                self.spill_again(tx, at.0, page)?;
            }
            None | Some(At::Stored | At::Discarded) => {
                let is_fresh = how == Placement::Fresh || before == Some(At::Stored);
                state.hold(tx, at.0, Held { page: page.clone(), site, is_fresh })?;
                let (fits, fresh) = (self.fits(state.overs, state.spilled), state.fresh);
                let has_free = state.free.iter().next().is_some();
                let active = state.get(tx)?;
                let own_overs = active.held.len() as u64 - active.fresh;
                if is_fresh && (active.fresh > most_fresh || fresh > 4 * most_fresh) {
                    drop(state);
                    self.store_fresh(tx)?;
                } else if !is_fresh && (!fits || has_free && own_overs > (self.options.memory / 4).max(1)) {
                    drop(state);
                    self.spill(tx, &self.working.lock().unwrap())?;
                    let mut state = self.lock()?;
                    // If it is not held, pages of others are too many, who are about to spill them.
                    let is_held = state.get(tx)?.held.contains_key(&at.0);
                    if is_held && !self.fits(state.overs, state.spilled) {
                        state.let_go(tx, at.0)?;
                        let blocks = &mut state.get(tx)?.blocks;
                        match before {
                            Some(before) => blocks.set(at.0..at.0 + 1, before),
                            None => blocks.clear(at.0..at.0 + 1),
                        }
                        return Err(Error::NoSpace("blocks in the log that running transactions write over".into()));
                    }
                }
            }
        }
        Ok(())
    }

    /// What a reader finds, unless it is at home.
    fn find(&self, tx: Option<Txid>, at: Lba) -> Result<(Option<Dirty>, u64)> {
        let mut state = self.lock()?;
        let own = match tx {
            None => None,
            Some(tx) => state.get(tx)?.blocks.get(at.0),
        };
        let found = match (own, tx) {
            (Some(At::Discarded), _) => Some(Dirty::Page(Page::zeros())),
            (Some(At::Held), Some(tx)) => state.get(tx)?.held.get(&at.0).map(|held| Dirty::Page(held.page.clone())),
            (Some(At::Spilled), Some(tx)) => state.get(tx)?.spilled.get(&at.0).map(|place| Dirty::At(*place)),
            (Some(At::Stored), _) => None,
            _ => state.dirty.get(&at.0).cloned(),
        };
        Ok((found, state.runs))
    }
}

impl TxDevice for LogDevice {
    fn guarantees(&self) -> &DeviceGuarantees {
        &self.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        self.write_back_due()?;
        let mut state = self.lock()?;
        state.begun += 1;
        let tx = Txid::new(state.incarnation, state.begun);
        state.active.insert(tx, Active::default());
        Ok(tx)
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: &Page, how: Placement, _: Tag) -> Result<()> {
        let run = Run { start: at, count: 1 };
        self.check_run(run)?;
        self.claim(run)?;
        self.put(site, tx, at, page, how)?;
        self.lock()?.counters.writes += 1;
        Ok(())
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.check_run(Run { start: at, count: 1 })?;
        self.state.lock().unwrap().counters.reads += 1;
        loop {
            let (found, runs) = self.find(tx, at)?;
            match &found {
                Some(Dirty::Page(page)) => {
                    bytes.copy_from_slice(&page[..]);
                    return Ok(());
                }
                Some(Dirty::At(place)) => match self.spilled_page(at.0, *place) {
                    Ok(page) => bytes.copy_from_slice(&page[..]),
                    // It may have come home meanwhile, and its block is another's.
                    Err(_) if self.find(tx, at)?.0 != found => continue,
                    Err(error) => return Err(error),
                },
                None => self.region.read(at.byte(), bytes)?,
            }
            if (found, runs) == self.find(tx, at)? {
                return Ok(());
            }
        }
    }

    fn read_run(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8]) -> Result<()> {
        let run = Run { start: at, count: (bytes.len() / BLOCK) as u64 };
        self.check_run(run)?;
        let blocks = at.0..at.0 + run.count;
        let is_at_home = || -> Result<Option<u64>> {
            let mut state = self.lock()?;
            let own = tx.map(|tx| state.get(tx).map(|active| active.blocks.within(blocks.clone()).next().is_some()));
            let is_own = own.transpose()?.unwrap_or(false);
            Ok((!is_own && state.dirty.range(blocks.clone()).next().is_none()).then_some(state.runs))
        };
        let before = is_at_home()?;
        if before.is_some() {
            self.region.read(at.byte(), bytes)?;
            if is_at_home()? == before {
                self.state.lock().unwrap().counters.reads += run.count;
                return Ok(());
            }
        }
        crate::device::each_block(at, bytes, |at, block| self.read(tx, at, block))
    }

    fn discard(&self, _: Site, tx: Txid, run: Run) -> Result<()> {
        self.check_run(run)?;
        let mut state = self.lock()?;
        state.drop_own(tx, run)?;
        state.get(tx)?.blocks.set(run.start.0..run.start.0 + run.count, At::Discarded);
        state.counters.discards += run.count;
        Ok(())
    }

    fn abort(&self, _: Site, tx: Txid) -> Result<()> {
        let mut state = self.lock()?;
        state.get(tx)?;
        if let Some(active) = state.end(tx) {
            active.spilled.values().for_each(|place| state.vacate(place.at));
        }
        state.counters.aborts += 1;
        Ok(())
    }

    fn commit(&self, site: Site, txs: &[Txid]) -> Result<()> {
        let working = self.working.lock().unwrap();
        let mut state = self.lock()?;
        txs.iter().try_for_each(|tx| state.get(*tx).map(drop))?;
        drop(state);
        if txs.is_empty() {
            return Ok(());
        }
        self.failing(self.commit_these(site, txs, &working))
    }

    fn plain_write(&self, site: Site, at: Lba, page: &Page) -> Result<()> {
        let run = Run { start: at, count: 1 };
        self.check_run(run)?;
        self.claim(run)?;
        let _working = self.working.lock().unwrap();
        self.lock()?.check_plain(run)?;
        self.clear_of_images(run)?;
        self.region.write(site, at.byte(), &page[..])?;
        self.fence_own()?;
        let mut state = self.lock()?;
        state.has_plain = true;
        state.counters.plain_writes += 1;
        Ok(())
    }

    fn flush(&self, site: Site) -> Result<()> {
        let _working = self.working.lock().unwrap();
        drop(self.lock()?);
        self.failing(self.region.fence(site).map_err(Error::from))?;
        let mut state = self.lock()?;
        state.has_plain = false;
        state.counters.plain_flushes += 1;
        Ok(())
    }

    fn trim(&self, _: Site, run: Run) -> Result<()> {
        self.check_run(run)?;
        let _working = self.working.lock().unwrap();
        self.lock()?.check_plain(run)?;
        self.clear_of_images(run)?;
        let mut state = self.lock()?;
        let blocks = run.start.0..run.start.0 + run.count;
        state.free.set(blocks.clone(), ());
        let placed: Vec<u64> = state.placed.range(blocks).map(|(at, _)| *at).collect();
        placed.into_iter().for_each(|at| state.free.clear(at..at + 1));
        state.counters.trims += run.count;
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.state.lock().unwrap().counters
    }
}
