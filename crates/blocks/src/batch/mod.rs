//! Makes [`TxBlocks`] of a [`TxDevice`]: transactions are gathered in an *open batch* while one batch is committed.
//!
//! # Terms
//!
//! - *batch*: ordered transactions that one commit of the device makes durable. The *open* one takes those that are
//!   ordered now. *Leader*: the thread that commits a batch; others that wait are its *followers*.
//! - *held*: a page in memory, which the device does not have. *Sent*: the device has it, in the transaction that wrote
//!   it. *Image*: what a batch holds of a block.
//! - *room*: pages that are held, or admitted. *Charge*: of a transaction, the versions written over that its lent
//!   blocks do not carry.
//! - *live*: of a block, the version of the last ordered transaction, until it is durable.
//! - *company*: threads that waited for the last batch when it ended, or for the open one. They are likely to come
//!   again.
//! - *bell*: where who waits for a sequence sleeps. The batch that is being committed has one, and the open batch the
//!   other. Who waits for anything else sleeps apart.
//!
//! # The way of a transaction
//!
//! | step | what is done | the device |
//! |---|---|---|
//! | write | sent | write |
//! | write, admitted | held | |
//! | order | its held pages become images of the open batch; images of the same blocks by earlier ones are dropped | |
//! | make room | who does not wait for what it has ordered waits until half of the room is free | write, commit |
//! | send | images of the open batch are sent | write |
//! | wait | if others are likely to come, the first one waits for them, as long as the last commit took | |
//! | | one thread leads: takes the open batch, sends its images, commits its transactions in their order | write, commit |
//! | | live versions that are the batch's end; followers go on | |
//!
//! # Invariants
//!
//! 1. One thread at a time sends or commits what is ordered. It holds no lock while the device works; `order` takes the
//!    lock of the state alone, which nobody holds over a call of the device.
//! 2. A batch has one image of a block, the last one's. Where an earlier one was sent, the commit names the later
//!    transaction later, so that its version counts (T4).
//! 3. A live version ends after the device has committed it: a reader finds it there, or the device's committed one is
//!    as new. A reader of a sent version that the device commits meanwhile takes the committed one.
//! 4. Transactions hold room only until they are ordered, and none waits for room while it holds some. A batch gives
//!    its room back when it is durable, so that room is always made.
//! 5. The charges of all transactions that are not durable are at most
//!    [`sure_overwrites`](crate::DeviceGuarantees::sure_overwrites), admitted pages counted before they are written:
//!    the device has space for all that is held (T7). Lent blocks are trimmed, so that their pages are free.
//! 6. A transaction that wrote nothing is aborted on the device, not committed.
//! 7. A commit that ends wakes the followers of its batch, and one of those who wait for the open batch, which leads. A
//!    thread that is woken and finds another one leading sleeps again: that one's end wakes it, whichever batch it
//!    took.
//! 8. After an error of a commit, or of a write of what was accepted before, everything fails (T8).
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the contract's calls |
//! | `state.rs` | what is in memory, under one lock |
//! | `plain.rs` | the plain view (T12) |

mod plain;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sync::{Condvar, Mutex, MutexGuard};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use crate::plain::Plain;
use crate::{
    BLOCK, BlockGuarantees, Counters, Lba, Order, Page, Placement, Run, Sequence, Tag, TxBlocks, TxDevice, Txid,
};
use state::{At, Group, Image, Running, State};

/// Lent blocks are trimmed.
const LEND: Site = Site("batch.lend");
/// A commit that makes room for others.
const ROOM: Site = Site("batch.room");

/// The longest that a thread waits for others to come, whatever the device takes.
const PATIENCE: Duration = Duration::from_millis(5);

/// The persistence sites of this layer. All others are its callers'.
pub const SITES: &[Site] = &[LEND, ROOM];

/// See the module.
pub struct Batch(Arc<Shared>);

struct Shared {
    device: Arc<dyn TxDevice>,
    guarantees: BlockGuarantees,
    /// The most blocks of a transaction on the device.
    most_pages: u64,
    /// The most charges of all transactions.
    sure: u64,
    state: Mutex<State>,
    /// Something has ended: a commit, a transaction, a plain write.
    changed: Condvar,
    /// A batch has ended, by its bell.
    ends: [Condvar; 2],
}

impl Batch {
    /// Over a device, with room for so many pages in memory.
    pub fn new(device: Arc<dyn TxDevice>, room: u64) -> Batch {
        let of = device.guarantees();
        let sure = of.sure_overwrites;
        let bound = of.most_pages.unwrap_or(u64::MAX).min(sure);
        let guarantees = BlockGuarantees {
            blocks: of.blocks,
            order: Order::Total,
            steals_overwrites: true,
            most_overwrites: (bound < u64::MAX).then_some(bound),
            room: room.clamp(1, sure.max(1)),
            takes_lent: of.free_blocks_help,
            lent_by_overwrite: of.lent_by_overwrite,
            zeroes_discarded: of.zeroes_discarded,
            checks_blocks: of.checks_blocks,
            emulated: of.emulated,
            description: format!("{}, commits in batches", of.description),
        };
        let most_pages = of.most_pages.unwrap_or(u64::MAX);
        let (state, changed) = (Mutex::new(State::default()), Condvar::new());
        let ends = [Condvar::new(), Condvar::new()];
        Batch(Arc::new(Shared { device, guarantees, most_pages, sure, state, changed, ends }))
    }
}

type Locked<'a> = MutexGuard<'a, State>;

fn busy(at: u64) -> Error {
    Error::Busy(format!("block {at}"), "a running transaction has written it; end that one first".into())
}

impl Shared {
    fn lock(&self) -> Result<Locked<'_>> {
        let state = self.state.lock().unwrap();
        state.check()?;
        Ok(state)
    }

    fn wait<'a>(&'a self, mut state: Locked<'a>) -> Result<Locked<'a>> {
        state.waiting += 1;
        state = self.changed.wait(state).unwrap();
        state.waiting -= 1;
        state.check()?;
        Ok(state)
    }

    /// Something has ended. A call of the kernel only if somebody waits.
    fn tell(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Sleeps until a batch has ended. The thread that comes first wakes earlier, when the time for the others is over.
    fn gather<'a>(&'a self, upto: Sequence, mut state: Locked<'a>) -> Result<Locked<'a>> {
        let until = match state.gather_until {
            Some(until) if !state.is_gathering => until,
            _ => return self.follow(upto, state),
        };
        let (batches, (_, open)) = (state.batches, state.bells());
        state.is_gathering = true;
        state.followers[open] += 1;
        state = sync::wait_until(&self.state, &self.ends[open], state, until);
        state.followers[open] -= 1;
        if state.batches == batches {
            // It leads.
            (state.is_gathering, state.company) = (false, 0);
        }
        state.check()?;
        Ok(state)
    }

    /// Sleeps until the work that is under way has ended, or the one after it, whichever makes a sequence durable.
    fn follow<'a>(&'a self, upto: Sequence, mut state: Locked<'a>) -> Result<Locked<'a>> {
        let is_of = |group: &Arc<Group>| upto <= group.last;
        let (last, open) = state.bells();
        let bell = if state.committing.as_ref().is_some_and(is_of) { last } else { open };
        state.followers[bell] += 1;
        state = self.ends[bell].wait(state).unwrap();
        state.followers[bell] -= 1;
        state.check()?;
        Ok(state)
    }

    /// The device works no longer (invariant 7).
    fn end_work(&self, state: &mut State) {
        state.works = false;
        state.committing = None;
        let (last, open) = state.bells();
        if state.followers[last] > 0 {
            self.ends[last].notify_all();
        }
        match state.check() {
            Ok(()) if state.followers[open] > 0 => self.ends[open].notify_one(),
            Ok(()) => {}
            Err(_) => self.ends[open].notify_all(),
        }
        self.tell(state);
    }

    /// That the blocks exist.
    fn check_run(&self, run: Run) -> Result<()> {
        match run.start.0.checked_add(run.count) {
            Some(end) if end <= self.guarantees.blocks => Ok(()),
            _ => Err(Error::Invalid(format!(
                "blocks {}+{} of a medium of {}",
                run.start.0, run.count, self.guarantees.blocks
            ))),
        }
    }

    /// Whatever was accepted is in doubt after this error.
    fn failing<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| {
            let mut state = self.state.lock().unwrap();
            state.poison(error);
            self.ends.iter().for_each(Condvar::notify_all);
            self.tell(&state);
        })
    }

    /// Goes on when another thread has ended something, or this one has committed the open batch.
    ///
    /// # Panics
    /// If no commit is under way and the open batch is empty: the caller would wait for ever.
    fn commit_or_wait<'a>(&'a self, site: Site, state: Locked<'a>) -> Result<Locked<'a>> {
        if state.works { self.wait(state) } else { self.lead(site, state) }
    }

    /// Commits the open batch.
    fn lead<'a>(&'a self, site: Site, mut state: Locked<'a>) -> Result<Locked<'a>> {
        assert!(!state.open.txs.is_empty(), "there is something to commit");
        let group = Arc::new(std::mem::take(&mut state.open));
        (state.works, state.committing) = (true, Some(group.clone()));
        state.batches += 1;
        state.is_gathering = false;
        drop(state);
        let begun = sync::now();
        let done = self.commit(site, &group);
        let ended = sync::now();
        let mut state = self.state.lock().unwrap();
        state.company = 1 + state.followers.iter().sum::<u64>();
        state.gather_until = Some(ended + (ended - begun).min(PATIENCE));
        match done {
            Ok(commits) => state.retire(&group, commits),
            Err(ref error) => state.poison(error),
        }
        self.end_work(&mut state);
        done?;
        state.check()?;
        Ok(state)
    }

    /// Sends what the batch holds, and commits it on the device (invariants 2 and 6). Returns how many commits it took.
    fn commit(&self, site: Site, group: &Group) -> Result<u64> {
        for (block, (tx, image)) in &group.images {
            self.send_one(*tx, *block, image)?;
        }
        let (mut written, mut empty) = (Vec::new(), Vec::new());
        for (tx, of) in &group.txs {
            if of.iter().next().is_some() { written.push(*tx) } else { empty.push(*tx) }
        }
        empty.into_iter().try_for_each(|tx| self.device.abort(site, tx))?;
        if written.is_empty() {
            return Ok(0);
        }
        self.device.commit(site, &written)?;
        Ok(1)
    }

    fn send_one(&self, tx: Txid, block: u64, image: &Image) -> Result<()> {
        self.device.write(image.site, tx, Lba(block), &image.page, image.how, image.tag)
    }

    /// Sends what a running transaction holds, and gives up its room.
    fn send_held<'a>(&'a self, tx: Txid, mut state: Locked<'a>) -> Result<Locked<'a>> {
        let running = state.running(tx)?;
        let (held, room) = (std::mem::take(&mut running.held), std::mem::take(&mut running.room));
        running.overs -= room;
        state.recharge(tx);
        drop(state);
        let all =
            |held: &BTreeMap<u64, Image>| held.iter().try_for_each(|(block, image)| self.send_one(tx, *block, image));
        self.failing(all(&held))?;
        let mut state = self.lock()?;
        state.room -= held.len() as u64 + room;
        let running = state.running(tx)?;
        held.keys().for_each(|block| running.written.set(*block..block + 1, At::Sent));
        self.tell(&state);
        Ok(state)
    }

    /// Whether the space for so many versions more of a transaction is sure (invariant 5).
    fn is_sure(&self, state: &State, running: &Running, more: u64) -> bool {
        self.has_space(state, running, more, 0)
    }

    /// The same with so many blocks lent more.
    fn has_space(&self, state: &State, running: &Running, more: u64, lent: u64) -> bool {
        let now = running.charge();
        let then = (running.overs + more).saturating_sub(running.lent + lent);
        let names = (state.lent + lent) / self.guarantees.lent_by_overwrite;
        (state.charges - now + then).saturating_add(names) <= self.sure
    }

    /// Waits until something is durable that needs space.
    fn wait_for_space<'a>(&'a self, state: Locked<'a>) -> Result<Locked<'a>> {
        if !state.works && state.open.txs.is_empty() {
            let what = "versions of blocks that running transactions write over; commit, abort or lend blocks";
            return Err(Error::NoSpace(what.into()));
        }
        self.commit_or_wait(ROOM, state)
    }

    /// Waits until the space for so many versions more is sure.
    fn ensure<'a>(&'a self, tx: Txid, more: u64, mut state: Locked<'a>) -> Result<Locked<'a>> {
        loop {
            let running = state.get(tx)?;
            if self.is_sure(&state, running, more) {
                return Ok(state);
            }
            state = self.wait_for_space(state)?;
        }
    }

    fn read_committed(&self, state: Locked<'_>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        let Some((tx, version)) = state.live.get(at.0) else {
            drop(state);
            return self.device.read(None, at, bytes);
        };
        match version {
            At::Zeros => bytes.fill(0),
            At::Held => bytes.copy_from_slice(&state.image(tx, at.0)[..]),
            At::Sent => {
                drop(state);
                return match self.device.read(Some(tx), at, bytes) {
                    // Committed meanwhile (invariant 3).
                    Err(Error::Invalid(_)) => self.device.read(None, at, bytes),
                    read => read,
                };
            }
        }
        Ok(())
    }
}

impl TxBlocks for Batch {
    fn guarantees(&self) -> &BlockGuarantees {
        &self.0.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        drop(self.0.lock()?);
        let tx = self.0.device.begin()?;
        self.0.lock()?.begin(tx);
        Ok(tx)
    }

    fn admit(&self, tx: Txid, pages: u64) -> Result<()> {
        let shared = &*self.0;
        if pages > shared.guarantees.room {
            return Err(Error::NoSpace(format!(
                "{pages} pages at once: there is room for {}; write in more steps",
                shared.guarantees.room
            )));
        }
        let mut state = shared.lock()?;
        loop {
            let running = state.get(tx)?;
            let (holds, fits) = (running.room > 0 || !running.held.is_empty(), shared.guarantees.room - state.room);
            if pages <= fits && shared.is_sure(&state, running, pages) {
                let running = state.running(tx)?;
                running.room += pages;
                running.overs += pages;
                state.room += pages;
                state.recharge(tx);
                return Ok(());
            }
            state = match holds {
                // It waits with nothing held (invariant 4).
                true => shared.send_held(tx, state)?,
                false if pages <= fits => shared.ensure(tx, pages, state)?,
                false if state.works || !state.open.txs.is_empty() => shared.commit_or_wait(ROOM, state)?,
                // Others that run have the room, and are about to be ordered.
                false => shared.wait(state)?,
            };
        }
    }

    fn make_room(&self, site: Site) -> Result<()> {
        let (room, sure) = (self.0.guarantees.room, self.0.sure);
        let mut state = self.0.lock()?;
        while (state.room > room / 2 || state.charges > sure / 2) && (state.works || !state.open.txs.is_empty()) {
            state = self.0.commit_or_wait(site, state)?;
        }
        Ok(())
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: Page, how: Placement, tag: Tag) -> Result<()> {
        let shared = &*self.0;
        shared.check_run(Run { start: at, count: 1 })?;
        let mut state = shared.lock()?;
        state.claim(tx, at.0..at.0 + 1, shared.most_pages)?;
        let running = state.running(tx)?;
        let before = running.written.get(at.0);
        let blocks = at.0..at.0 + 1;
        if before == Some(At::Held) {
            let image = running.held.get_mut(&at.0).expect("it is held");
            *image = Image { page, site, how: image.how, tag };
        } else if running.room > 0 {
            running.room -= 1;
            running.overs -= u64::from(how == Placement::Fresh || before == Some(At::Sent));
            running.held.insert(at.0, Image { page, site, how, tag });
            running.written.set(blocks.clone(), At::Held);
            state.recharge(tx);
            state.writers.set(blocks, tx.0);
        } else {
            let over = u64::from(how == Placement::Overwrite && before != Some(At::Sent));
            state = shared.ensure(tx, over, state)?;
            // Meanwhile another one may have written it.
            state.claim(tx, blocks.clone(), shared.most_pages)?;
            state.running(tx)?.overs += over;
            state.recharge(tx);
            state.writers.set(blocks.clone(), tx.0);
            drop(state);
            let sent = shared.device.write(site, tx, at, &page, how, tag);
            state = shared.lock()?;
            let running = state.running(tx)?;
            match sent {
                Ok(()) => running.written.set(blocks, At::Sent),
                Err(error) => {
                    running.overs -= over;
                    state.recharge(tx);
                    if before.is_none() {
                        state.writers.clear(blocks);
                    }
                    return Err(error);
                }
            }
        }
        state.counters.writes += 1;
        Ok(())
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        let shared = &*self.0;
        shared.check_run(Run { start: at, count: 1 })?;
        let mut state = shared.lock()?;
        state.counters.reads += 1;
        let Some(tx) = tx else { return shared.read_committed(state, at, bytes) };
        let running = state.get(tx)?;
        match running.written.get(at.0) {
            None => return shared.read_committed(state, at, bytes),
            Some(At::Zeros) => bytes.fill(0),
            Some(At::Held) => bytes.copy_from_slice(&running.held[&at.0].page[..]),
            Some(At::Sent) => {
                drop(state);
                return shared.device.read(Some(tx), at, bytes);
            }
        }
        Ok(())
    }

    fn read_run(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8]) -> Result<()> {
        let shared = &*self.0;
        let run = Run { start: at, count: (bytes.len() / BLOCK) as u64 };
        shared.check_run(run)?;
        let blocks = at.0..at.0 + run.count;
        let mut state = shared.lock()?;
        let own =
            tx.map(|tx| state.get(tx).map(|running| running.written.within(blocks.clone()).next())).transpose()?;
        let of = match own.flatten() {
            // All of it is on the device, in the transaction.
            Some((part, At::Sent)) if part == blocks => Some(tx),
            Some(_) => None,
            None => state.live.within(blocks).next().is_none().then_some(None),
        };
        let Some(of) = of else {
            drop(state);
            return crate::device::each_block(at, bytes, |at, block| self.read(tx, at, block));
        };
        state.counters.reads += run.count;
        drop(state);
        shared.device.read_run(of, at, bytes)
    }

    fn discard(&self, site: Site, tx: Txid, run: Run) -> Result<()> {
        let shared = &*self.0;
        shared.check_run(run)?;
        let blocks = run.start.0..run.start.0 + run.count;
        let mut state = shared.lock()?;
        state.claim(tx, blocks.clone(), shared.most_pages)?;
        state.writers.set(blocks.clone(), tx.0);
        let running = state.running(tx)?;
        let dropped = state::take_range(&mut running.held, &blocks).len() as u64;
        running.written.set(blocks, At::Zeros);
        state.room -= dropped;
        state.counters.discards += run.count;
        shared.tell(&state);
        drop(state);
        shared.failing(shared.device.discard(site, tx, run))
    }

    fn lend(&self, tx: Txid, run: Run) -> Result<()> {
        let shared = &*self.0;
        if !shared.guarantees.takes_lent {
            return Err(Error::unsupported("lent blocks: the medium has no use for them"));
        }
        shared.check_run(run)?;
        let blocks = run.start.0..run.start.0 + run.count;
        let mut state = shared.lock()?;
        state.get(tx)?;
        let written = state.writers.within(blocks.clone()).map(|(run, _)| run.start).next();
        if let Some(at) = written.or_else(|| state.live.within(blocks).map(|(run, _)| run.start).next()) {
            return Err(busy(at));
        }
        while !shared.has_space(&state, state.get(tx)?, 0, run.count) {
            state = shared.wait_for_space(state)?;
        }
        state.lent += run.count;
        drop(state);
        let trimmed = shared.device.trim(LEND, run);
        state = shared.state.lock().unwrap();
        match trimmed {
            Ok(()) => state.running(tx)?.lent += run.count,
            Err(error) => {
                state.lent -= run.count;
                return Err(error);
            }
        }
        state.recharge(tx);
        shared.tell(&state);
        Ok(())
    }

    fn abort(&self, site: Site, tx: Txid) -> Result<()> {
        let shared = &*self.0;
        let mut state = shared.lock()?;
        let running = state.end(tx)?;
        state.room -= running.room + running.held.len() as u64;
        state.charges -= running.charge();
        state.lent -= running.lent;
        state.counters.aborts += 1;
        shared.tell(&state);
        drop(state);
        shared.failing(shared.device.abort(site, tx))
    }

    fn order(&self, _: Site, txs: &[Txid], after: &[Sequence]) -> Result<Sequence> {
        let mut state = self.0.lock()?;
        for (i, tx) in txs.iter().enumerate() {
            state.get(*tx)?;
            if txs[..i].contains(tx) {
                return Err(Error::Invalid(format!("transaction {:#x} is named twice", tx.0)));
            }
        }
        if after.iter().any(|after| *after > state.last) {
            return Err(Error::Invalid("a sequence that was not given out".into()));
        }
        if !txs.is_empty() {
            state.last.0 += 1;
            txs.iter().try_for_each(|tx| state.order(*tx))?;
            self.0.tell(&state);
        }
        Ok(state.last)
    }

    fn send(&self, _: Site, upto: Sequence) -> Result<()> {
        let shared = &*self.0;
        let mut state = shared.lock()?;
        state.check_given(upto)?;
        if state.works || upto <= state.durable || state.open.images.is_empty() {
            return Ok(());
        }
        state.works = true;
        let images: Vec<(u64, Txid, Image)> =
            state.open.images.iter().map(|(block, (tx, image))| (*block, *tx, image.clone())).collect();
        drop(state);
        let sent = images.iter().try_for_each(|(block, tx, image)| shared.send_one(*tx, *block, image));
        let mut state = shared.state.lock().unwrap();
        match &sent {
            Ok(()) => images.iter().for_each(|(block, tx, _)| state.sent(*block, *tx)),
            Err(error) => state.poison(error),
        }
        shared.end_work(&mut state);
        sent
    }

    fn wait(&self, site: Site, upto: Sequence) -> Result<()> {
        let mut state = self.0.lock()?;
        state.check_given(upto)?;
        while state.durable < upto {
            state = match () {
                () if state.works => self.0.follow(upto, state)?,
                () if state.is_complete() => self.0.lead(site, state)?,
                () => self.0.gather(upto, state)?,
            };
        }
        Ok(())
    }

    fn durable(&self) -> Sequence {
        self.0.state.lock().unwrap().durable
    }

    fn plain(&self) -> Arc<dyn Region> {
        let unit = self.0.device.guarantees().plain_unit;
        Arc::new(Plain::new(Arc::new(Batch(self.0.clone())), &self.0.guarantees, unit))
    }

    fn counters(&self) -> Counters {
        let dropped = self.0.device.counters().dropped;
        Counters { dropped, ..self.0.state.lock().unwrap().counters }
    }
}
