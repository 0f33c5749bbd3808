//! What the layer has in memory. All of it is under one lock, over which no device works.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wholly_error::{Error, Result};
use wholly_media::Site;

use super::busy;
use crate::runs::Runs;
use crate::{Counters, Page, Placement, Sequence, Tag, Txid};

/// Where a version of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// In memory.
    Held,
    /// On the device, in its transaction.
    Sent,
    /// Nowhere: it was discarded.
    Zeros,
}

/// A page that the device does not have yet, and how it was written.
#[derive(Clone)]
pub struct Image {
    pub page: Page,
    pub site: Site,
    pub how: Placement,
    pub tag: Tag,
}

/// A running transaction.
#[derive(Default)]
pub struct Running {
    pub written: Runs<At>,
    pub held: BTreeMap<u64, Image>,
    /// Pages that were admitted, and not written yet.
    pub room: u64,
    /// Versions that it has written over committed ones; what was admitted among them.
    pub overs: u64,
    /// Blocks that it was lent.
    pub lent: u64,
    /// Of [`State::charges`].
    charged: u64,
}

impl Running {
    /// See the head of the module.
    pub fn charge(&self) -> u64 {
        self.charged
    }
}

/// A batch.
#[derive(Default)]
pub struct Group {
    /// In their order, with what they have written.
    pub txs: Vec<(Txid, Runs<At>)>,
    pub images: BTreeMap<u64, (Txid, Image)>,
    charges: u64,
    lent: u64,
    /// The last sequence in it.
    pub last: Sequence,
}

/// The writer of blocks that are written plainly.
pub const PLAIN: u64 = 0;

/// See the module.
#[derive(Default)]
pub struct State {
    running: HashMap<Txid, Running>,
    /// Which running transaction has written a block.
    pub writers: Runs<u64>,
    pub open: Group,
    pub committing: Option<Arc<Group>>,
    /// Whether a thread sends or commits what is ordered.
    pub works: bool,
    /// Which ordered transaction that is not durable has written a block last.
    pub live: Runs<(Txid, At)>,
    /// The last one that was ordered.
    pub last: Sequence,
    pub durable: Sequence,
    /// Pages that are held or admitted.
    pub room: u64,
    /// Of all transactions that are not durable.
    pub charges: u64,
    /// Blocks that they were lent.
    pub lent: u64,
    pub counters: Counters,
    /// Threads that wait until something has ended, but for followers.
    pub waiting: u64,
    /// Batches that were taken to be committed.
    pub batches: u64,
    /// Threads that sleep at each bell.
    pub followers: [u64; 2],
    /// See the head of the module.
    pub company: u64,
    /// How long the open batch waits for them.
    pub gather_until: Option<Duration>,
    /// Whether a thread does.
    pub is_gathering: bool,
    poisoned: Option<String>,
}

/// Takes the entries of some blocks out.
pub fn take_range<T>(of: &mut BTreeMap<u64, T>, blocks: &Range<u64>) -> Vec<T> {
    let keys: Vec<u64> = of.range(blocks.clone()).map(|(block, _)| *block).collect();
    keys.iter().filter_map(|block| of.remove(block)).collect()
}

impl State {
    /// That nothing has failed.
    pub fn check(&self) -> Result<()> {
        self.poisoned.as_ref().map_or(Ok(()), |why| Err(Error::Poisoned(why.clone())))
    }

    pub fn poison(&mut self, why: &Error) {
        self.poisoned.get_or_insert_with(|| why.to_string());
    }

    /// That a sequence was given out.
    pub fn check_given(&self, sequence: Sequence) -> Result<()> {
        match sequence <= self.last {
            true => Ok(()),
            false => Err(Error::Invalid(format!("nothing was ordered as {}", sequence.0))),
        }
    }

    pub fn get(&self, tx: Txid) -> Result<&Running> {
        self.running.get(&tx).ok_or_else(|| Error::Invalid(format!("transaction {:#x} does not run", tx.0)))
    }

    pub fn running(&mut self, tx: Txid) -> Result<&mut Running> {
        self.running.get_mut(&tx).ok_or_else(|| Error::Invalid(format!("transaction {:#x} does not run", tx.0)))
    }

    pub fn begin(&mut self, tx: Txid) {
        self.running.insert(tx, Running::default());
    }

    /// Brings the charges up to date with what a transaction has.
    pub fn recharge(&mut self, tx: Txid) {
        let Some(running) = self.running.get_mut(&tx) else { return };
        let charge = running.overs.saturating_sub(running.lent);
        self.charges = self.charges - running.charged + charge;
        running.charged = charge;
    }

    /// That a transaction may write these blocks (T4, T10).
    pub fn claim(&mut self, tx: Txid, blocks: Range<u64>, most: u64) -> Result<()> {
        if let Some((run, _)) = self.writers.within(blocks.clone()).find(|(_, writer)| *writer != tx.0) {
            return Err(busy(run.start));
        }
        let running = self.running(tx)?;
        let len = |(run, _): (Range<u64>, At)| run.end - run.start;
        let new = blocks.end - blocks.start - running.written.within(blocks).map(len).sum::<u64>();
        if most < u64::MAX && running.written.iter().map(len).sum::<u64>() + new > most {
            return Err(Error::NoSpace(format!("more than {most} blocks in one transaction")));
        }
        Ok(())
    }

    /// The bells of the batch that is being committed, or was last, and of the open one.
    pub fn bells(&self) -> (usize, usize) {
        let last = (self.batches % 2) as usize;
        (last, 1 - last)
    }

    /// Whether all who are likely to come wait for the open batch, when the caller does.
    pub fn is_complete(&self) -> bool {
        self.followers[self.bells().1] + 1 >= self.company
    }

    /// Takes a transaction out of the running ones.
    pub fn end(&mut self, tx: Txid) -> Result<Running> {
        self.get(tx)?;
        let running = self.running.remove(&tx).expect("it runs");
        running.written.iter().for_each(|(run, _)| self.writers.clear(run));
        Ok(running)
    }

    /// Puts a running transaction behind all others.
    pub fn order(&mut self, tx: Txid) -> Result<()> {
        // Room that was not needed carries no version.
        let running = self.running(tx)?;
        running.overs -= running.room;
        self.room -= std::mem::take(&mut self.running(tx)?.room);
        self.recharge(tx);
        let mut running = self.end(tx)?;
        for (block, image) in &mut running.held {
            // A version that is not durable yet may be what others read after a crash.
            if self.live.get(*block).is_some() {
                image.how = Placement::Overwrite;
            }
        }
        for (run, at) in running.written.iter() {
            self.room -= take_range(&mut self.open.images, &run).len() as u64;
            self.live.set(run, (tx, at));
        }
        self.open.images.extend(running.held.into_iter().map(|(block, image)| (block, (tx, image))));
        self.open.charges += running.charged;
        self.open.lent += running.lent;
        self.open.txs.push((tx, running.written));
        self.open.last = self.last;
        Ok(())
    }

    /// The page of a live version that is held.
    pub fn image(&self, tx: Txid, block: u64) -> Page {
        let groups = [Some(&self.open), self.committing.as_deref()];
        let found = groups.into_iter().flatten().filter_map(|group| group.images.get(&block));
        found.filter(|(of, _)| *of == tx).map(|(_, image)| image.page.clone()).next().expect("a live version is held")
    }

    /// The device has an image of the open batch, unless a later one has come.
    pub fn sent(&mut self, block: u64, tx: Txid) {
        if self.open.images.get(&block).is_some_and(|(of, _)| *of == tx) {
            self.open.images.remove(&block);
            self.live.set(block..block + 1, (tx, At::Sent));
            self.room -= 1;
        }
    }

    /// A batch is durable.
    pub fn retire(&mut self, group: &Group, commits: u64) {
        for (tx, written) in &group.txs {
            for (run, _) in written.iter() {
                let own: Vec<Range<u64>> =
                    self.live.within(run).filter(|(_, (of, _))| of == tx).map(|(run, _)| run).collect();
                own.into_iter().for_each(|run| self.live.clear(run));
            }
        }
        self.durable = group.last;
        self.room -= group.images.len() as u64;
        self.charges -= group.charges;
        self.lent -= group.lent;
        self.counters.commits += commits;
        self.counters.committed += group.txs.len() as u64;
    }
}
