//! A queue whose submission ring stands in the persistent memory region, with its tail and its head.
//!
//! # Terms
//!
//! - *count*: of an entry, how many were stored before it in this life, modulo 2^32. Its *slot* is the count modulo the
//!   depth. *Tail*: the count behind the last entry that was published (P-SQDB). *Head*: the count behind the last
//!   entry of the last finished transaction (P-SQ-head).
//! - *ticket*: of a transaction, how many were committed before it on this queue in this life.
//! - *complete*: of a command, its completion has come, and says success. *Finished*: of a transaction, all of its
//!   commands are complete, and so are all transactions before it on the queue.
//! - *chain*: transactions that became finished by the same look at the completion queue.
//!
//! # Invariants
//!
//! 1. The doorbell of the submission queue is written only when the entries and the tail are durable: entries, order,
//!    tail, order, barrier, doorbell. So whatever the device may have begun is in the window.
//! 2. An entry is stored into a slot only if a *durable* head has passed the entry that was there, and one slot stays
//!    free. So the window shows the entries it is about, and before it stands the last of a finished transaction.
//! 3. The head passes whole transactions only, in their order, once they are finished. So a transaction that is not in
//!    the window is on the medium wholly, or none of it is.
//! 4. For each chain the head is stored once, and after that the doorbell of the completion queue is written once. The
//!    completion queue has as many slots as the submission queue, so it does not need more.
//! 5. Numbers of transactions increase.
//! 6. When a command has failed, its transaction never finishes, nor does anything behind it: the head stays. So the
//!    next life finds them.
//! 7. Where the device has a volatile write cache, a transaction is finished only when it is on the medium: each of its
//!    commands is forced, or the last one is and a flush came between it and the others' completion.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sync::Mutex;
use wholly_blocks::{BLOCK, Lba, Txid};
use wholly_error::{Error, Result};
use wholly_media::Site;
use zerocopy::IntoBytes;

use super::layout::Layout;
use super::link::Link;
use super::pages::{DmaPage, PagePool, describe};
use super::rings::{CompletionRing, PlainQueue};
use super::{Acknowledge, Mistake};
use crate::site;
use crate::spec::{Command, PmrCapabilities, doorbell, io};
use crate::transport::PersistentRegion;

/// What a transaction writes to consecutive blocks.
pub(super) struct Write {
    pub at: Lba,
    pub pages: Vec<DmaPage>,
}

pub(super) struct Queue {
    /// Among the queues in the region, from 0 on.
    pub index: u16,
    /// The controller's number.
    pub id: u16,
    pub interrupt: u16,
    pub link: Arc<Link>,
    pub pool: Arc<PagePool>,
    /// For flushes.
    pub plain: Arc<PlainQueue>,
    pub layout: Layout,
    pub region: PmrCapabilities,
    pub namespace: u32,
    pub has_write_cache: bool,
    pub acknowledge: Acknowledge,
    /// Up to so many bytes all writes of a transaction are forced; beyond, one flush costs less.
    pub most_forced: usize,
    pub state: Mutex<State>,
}

pub(super) struct State {
    completions: CompletionRing,
    /// Behind the last entry that was stored and published.
    tail: u32,
    /// As it was stored last, and ordered.
    head: u32,
    /// As it is certain to be durable.
    durable_head: u32,
    slots: Vec<Option<InFlight>>,
    /// Those that are not finished.
    transactions: VecDeque<Transaction>,
    /// Tickets that are finished.
    finished: u64,
    /// When the last completion came, or the first command after that was handed over.
    progressed: Duration,
    last_txid: u64,
    failed: Option<Error>,
}

/// A command that is not complete.
struct InFlight {
    count: u32,
    ticket: u64,
    /// The transfer needs them so long.
    _pages: Vec<DmaPage>,
}

struct Transaction {
    txid: Txid,
    /// Behind its last entry; none as long as its commit is not published.
    end: Option<u32>,
    /// Commands that are not complete.
    left: u32,
}

impl State {
    /// With entries that are counted from `first` on.
    pub fn new(completions: CompletionRing, depth: u32, first: u32) -> State {
        State {
            completions,
            tail: first,
            head: first,
            durable_head: first,
            slots: (0..depth).map(|_| None).collect(),
            transactions: VecDeque::new(),
            finished: 0,
            progressed: Duration::ZERO,
            last_txid: 0,
            failed: None,
        }
    }
}

impl Queue {
    fn memory(&self) -> &dyn PersistentRegion {
        self.link.transport.region()
    }

    /// Entries that a transaction may have.
    pub fn most_entries(&self) -> usize {
        self.layout.depth as usize - 1
    }

    /// # Errors
    /// Why nothing completes on this queue any more.
    pub fn check(&self) -> Result<()> {
        self.link.check()?;
        self.state.lock().unwrap().failed.clone().map_or(Ok(()), Err)
    }

    /// Hands a transaction to the device. When this returns, the transaction is atomic: after a crash the window has
    /// it, unless it is finished. Returns its ticket.
    ///
    /// # Errors
    /// `Invalid` for a number that is not greater than the last one of this queue, which changes nothing; `Media`.
    pub fn commit(&self, txid: Txid, mut writes: Vec<Write>) -> Result<u64> {
        assert!(!writes.is_empty() && writes.len() <= self.most_entries(), "the lease sees to it");
        let bytes = writes.iter().map(|write| write.pages.len() * BLOCK).sum::<usize>();
        let last = writes.pop().expect("there is one");
        let is_forced = self.has_write_cache && !self.link.makes(Mistake::FlushInBatch);
        if !is_forced || bytes <= self.most_forced || writes.is_empty() {
            let count = writes.len() + 1;
            let mut commands = self.commands(txid, writes, is_forced, false)?;
            if self.has_write_cache && !is_forced {
                commands.push((Command::new(io::FLUSH, self.namespace), Vec::new()));
            }
            commands.extend(self.commands(txid, vec![last], self.has_write_cache, true)?);
            return self.publish(txid, commands, count as u32, true);
        }
        // Parts first; they are on the medium before the commit is handed over.
        let count = writes.len() as u32 + 1;
        let commands = self.commands(txid, writes, false, false)?;
        let ticket = self.publish(txid, commands, count, false)?;
        // From here on the window has it: without its commit nothing on this queue finishes any more.
        self.commit_parts(ticket, txid, last).inspect_err(|error| {
            self.state.lock().unwrap().failed.get_or_insert_with(|| error.clone());
        })
    }

    /// The parts of a transaction are handed over: waits for them, flushes, and hands over the commit.
    fn commit_parts(&self, ticket: u64, txid: Txid, last: Write) -> Result<u64> {
        self.look_until(|state| {
            let at = ticket - state.finished;
            Ok((state.transactions[at as usize].left == 1).then_some(()))
        })?;
        self.plain.execute(Command::new(io::FLUSH, self.namespace), Vec::new(), "a flush")?;
        let commands = self.commands(txid, vec![last], true, true)?;
        self.publish(txid, commands, 0, true)
    }

    fn commands(
        &self,
        txid: Txid,
        writes: Vec<Write>,
        is_forced: bool,
        is_commit: bool,
    ) -> Result<Vec<(Command, Vec<DmaPage>)>> {
        let ratio = BLOCK as u64 / u64::from(self.layout.lba_bytes);
        let command = |Write { at, mut pages }: Write| {
            let (start, count) = (at.0 * ratio, pages.len() as u64 * ratio);
            let mut command = Command::transfer(io::WRITE, self.namespace, start, count as u32);
            command = command.of_transaction(txid, is_commit);
            if is_forced {
                command = command.forced();
            }
            describe(&mut command, &mut pages, &self.pool)?;
            Ok((command, pages))
        };
        writes.into_iter().map(command).collect()
    }

    /// Stores entries, publishes them, and rings. A transaction of `count` commands begins with them, unless that is 0.
    fn publish(&self, txid: Txid, commands: Vec<(Command, Vec<DmaPage>)>, count: u32, is_commit: bool) -> Result<u64> {
        let needed = commands.len() as u32;
        let mut commands = Some(commands);
        self.look_until(|state| {
            // What is handed over now would never finish.
            self.link.check()?;
            state.failed.clone().map_or(Ok(()), Err)?;
            if count > 0 && txid.0 <= state.last_txid {
                let text = format!("transaction {:#x} comes after {:#x} on a queue", txid.0, state.last_txid);
                return Err(Error::Invalid(text));
            }
            let free = |state: &State| {
                let reused = if self.link.makes(Mistake::SlotsOfFinished) { state.head } else { state.durable_head };
                self.layout.depth - 1 - state.tail.wrapping_sub(reused)
            };
            if free(state) < needed && state.head != state.durable_head {
                self.persist_head(state)?;
            }
            if free(state) < needed {
                return Ok(None);
            }
            let commands = commands.take().expect("this is done once");
            self.store(state, txid, commands, count, is_commit).map(Some).inspect_err(|error| {
                state.failed.get_or_insert_with(|| error.clone());
            })
        })
    }

    fn store(
        &self,
        state: &mut State,
        txid: Txid,
        commands: Vec<(Command, Vec<DmaPage>)>,
        count: u32,
        is_commit: bool,
    ) -> Result<u64> {
        if count > 0 {
            state.last_txid = txid.0;
            let left = count + commands.iter().filter(|(command, _)| command.opcode == io::FLUSH).count() as u32;
            state.transactions.push_back(Transaction { txid, end: None, left });
        }
        let ticket = state.finished + state.transactions.len() as u64 - 1;
        if state.slots.iter().all(Option::is_none) {
            state.progressed = self.link.transport.now();
        }
        for (mut command, pages) in commands {
            let count = state.tail;
            command.id = (count as u16).into();
            self.memory().store(site::ENTRIES, self.layout.entry(self.index, count), command.as_bytes())?;
            let slot = (count & (self.layout.depth - 1)) as usize;
            state.slots[slot] = Some(InFlight { count, ticket, _pages: pages });
            state.tail = count.wrapping_add(1);
        }
        if is_commit {
            state.transactions.back_mut().expect("it began").end = Some(state.tail);
        }
        let ring = |state: &State| {
            let number = doorbell(self.id, false, self.link.stride);
            self.link.transport.write32(site::RING, number, state.tail & (self.layout.depth - 1))
        };
        let order = |site| {
            if !self.link.makes(Mistake::NoOrder) {
                self.memory().order(site);
            }
        };
        order(site::ENTRIES_ORDER);
        self.memory().store(site::TAIL, self.layout.tail(self.index), &state.tail.to_le_bytes())?;
        order(site::TAIL_ORDER);
        if self.link.makes(Mistake::RingBeforeBarrier) {
            ring(state)?;
        }
        if !self.link.makes(Mistake::NoBarrier) {
            self.barrier(state, site::COMMIT_BARRIER)?;
        }
        if !self.link.makes(Mistake::RingBeforeBarrier) {
            ring(state)?;
        }
        Ok(ticket)
    }

    /// Makes durable what has been ordered: the head, too.
    fn barrier(&self, state: &mut State, site: Site) -> Result<()> {
        self.link.barrier(self.id, self.region, site)?;
        state.durable_head = state.head;
        Ok(())
    }

    fn persist_head(&self, state: &mut State) -> Result<()> {
        self.barrier(state, site::HEAD_BARRIER)
    }

    /// Waits until a transaction is finished.
    ///
    /// # Errors
    /// `Media` (`EIO`) if it, or one before it on the queue, has failed.
    pub fn wait(&self, ticket: u64) -> Result<()> {
        self.look_until(|state| {
            if ticket >= state.finished + state.transactions.len() as u64 {
                return Err(Error::Invalid(format!("queue {} has not given ticket {ticket}", self.index)));
            }
            if state.finished <= ticket {
                return Ok(None);
            }
            if self.acknowledge == Acknowledge::HeadDurable && state.head != state.durable_head {
                self.persist_head(state)?;
            }
            Ok(Some(()))
        })
    }

    /// How many transactions are finished.
    pub fn poll(&self) -> Result<u64> {
        self.link.transport.pause(self.interrupt, std::time::Duration::ZERO)?;
        let state = &mut *self.state.lock().unwrap();
        self.reap(state)?;
        Ok(state.finished)
    }

    /// Waits until all that was committed is finished, and the head says so durably.
    pub fn drain(&self) -> Result<()> {
        self.look_until(|state| match state.transactions.is_empty() {
            true if state.head == state.durable_head => Ok(Some(())),
            true => self.persist_head(state).map(Some),
            false => Ok(None),
        })
    }

    /// Takes completions and calls `look`, until it finds something.
    fn look_until<T>(&self, mut look: impl FnMut(&mut State) -> Result<Option<T>>) -> Result<T> {
        let progressed = || Some(self.state.lock().unwrap().progressed);
        self.link.wait_for(self.interrupt, progressed, || {
            let state = &mut *self.state.lock().unwrap();
            self.reap(state)?;
            if let Some(found) = look(state)? {
                return Ok(Some(found));
            }
            // What was finished before the failure has been found.
            self.link.check()?;
            state.failed.clone().map_or(Ok(None), Err)
        })
    }

    /// Takes what the device has completed.
    fn reap(&self, state: &mut State) -> Result<()> {
        while let Some(completion) = state.completions.next() {
            state.progressed = self.link.transport.now();
            let id = completion.id.get();
            let slot = &mut state.slots[usize::from(id) & (self.layout.depth as usize - 1)];
            let Some(command) = slot.take_if(|command| command.count as u16 == id) else {
                let error = self.link.error(self.id, "a completion", &format!("command {id} is not in flight"));
                state.failed.get_or_insert(error);
                continue;
            };
            let at = (command.ticket - state.finished) as usize;
            let transaction = &mut state.transactions[at];
            if completion.status().is_success() {
                transaction.left -= 1;
            } else {
                let what = format!("transaction {:#x}", transaction.txid.0);
                let error = self.link.error(self.id, &what, &completion.status().to_string());
                state.failed.get_or_insert(error);
            }
            if self.link.makes(Mistake::HeadByCommand) {
                let head = command.count.wrapping_add(1);
                self.store_head(state, head)?;
            }
        }
        let before = state.finished;
        let mut head = state.head;
        while let Some(Transaction { end: Some(end), left: 0, .. }) = state.transactions.front() {
            head = *end;
            state.transactions.pop_front();
            state.finished += 1;
        }
        if state.finished > before {
            self.store_head(state, head)?;
            let number = doorbell(self.id, true, self.link.stride);
            self.link.transport.write32(site::COMPLETE, number, state.completions.head())?;
        }
        Ok(())
    }

    fn store_head(&self, state: &mut State, head: u32) -> Result<()> {
        self.memory().store(site::HEAD, self.layout.head(self.index), &head.to_le_bytes())?;
        self.memory().order(site::HEAD_ORDER);
        state.head = head;
        Ok(())
    }
}
