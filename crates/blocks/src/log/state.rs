//! What the device has in memory. All of it is under one lock, over which the medium does not work.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use wholly_error::{Error, Result};
use wholly_media::Site;

use crate::runs::Runs;
use crate::{Counters, Page, Run, Txid};

/// What a running transaction has of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Held,
    Stored,
    Spilled,
    Discarded,
}

/// A page in memory.
#[derive(Clone)]
pub struct Held {
    pub page: Page,
    pub site: Site,
    pub is_fresh: bool,
}

/// Where a spilled page is: the block, and the checksum of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub at: u64,
    pub sum: u64,
}

/// A running transaction.
#[derive(Default)]
pub struct Active {
    pub blocks: Runs<At>,
    pub held: BTreeMap<u64, Held>,
    /// How many of those are fresh.
    pub fresh: u64,
    /// Whether it has stored some.
    pub is_stored: bool,
    pub spilled: BTreeMap<u64, Place>,
}

/// A committed page that is not at home.
#[derive(Clone, PartialEq)]
pub enum Dirty {
    Page(Page),
    At(Place),
}

#[derive(Default)]
pub struct State {
    pub incarnation: u64,
    pub active: HashMap<Txid, Active>,
    pub begun: u64,
    /// Held pages that are written over others, of transactions that are not committed.
    pub overs: u64,
    /// Those that are fresh.
    pub fresh: u64,
    /// Spilled ones.
    pub spilled: u64,
    pub dirty: BTreeMap<u64, Dirty>,
    /// Blocks that were trimmed and are not used since.
    pub free: Runs<()>,
    /// The others of them: those with pages that were spilled, and whose.
    pub placed: BTreeMap<u64, (Txid, u64)>,
    /// Blocks that are being written home.
    pub going: Range<u64>,
    /// How often some were.
    pub runs: u64,
    /// Whether something was stored plainly since the last fence.
    pub has_plain: bool,
    /// Threads that wait until something is not going any more.
    pub waiting: u64,
    pub poisoned: Option<String>,
    pub counters: Counters,
}

fn range(run: Run) -> Range<u64> {
    run.start.0..run.start.0 + run.count
}

impl State {
    pub fn check(&self) -> Result<()> {
        self.poisoned.as_ref().map_or(Ok(()), |why| Err(Error::Poisoned(why.clone())))
    }

    pub fn get(&mut self, tx: Txid) -> Result<&mut Active> {
        self.active.get_mut(&tx).ok_or_else(|| Error::Invalid(format!("transaction {:#x} does not run", tx.0)))
    }

    /// That no running transaction has written some blocks.
    pub fn check_plain(&self, run: Run) -> Result<()> {
        match self.active.values().find_map(|of| of.blocks.within(range(run)).next()) {
            None => Ok(()),
            Some((found, _)) => {
                Err(Error::Busy(format!("block {}", found.start), "a running transaction has written it".into()))
            }
        }
    }

    /// A transaction holds one page more.
    pub fn hold(&mut self, tx: Txid, at: u64, held: Held) -> Result<()> {
        let is_fresh = held.is_fresh;
        let active = self.get(tx)?;
        active.blocks.set(at..at + 1, At::Held);
        active.fresh += u64::from(is_fresh);
        active.held.insert(at, held);
        *(if is_fresh { &mut self.fresh } else { &mut self.overs }) += 1;
        Ok(())
    }

    /// It does not hold a page any more. What has become of the block is the caller's to say.
    pub fn let_go(&mut self, tx: Txid, at: u64) -> Result<()> {
        let active = self.get(tx)?;
        let Some(held) = active.held.remove(&at) else { return Ok(()) };
        active.fresh -= u64::from(held.is_fresh);
        *(if held.is_fresh { &mut self.fresh } else { &mut self.overs }) -= 1;
        Ok(())
    }

    /// The same for a page that was spilled.
    pub fn take_back(&mut self, tx: Txid, at: u64) -> Result<()> {
        let Some(place) = self.get(tx)?.spilled.remove(&at) else { return Ok(()) };
        self.spilled -= 1;
        self.vacate(place.at);
        Ok(())
    }

    /// A block with a spilled page is free again.
    pub fn vacate(&mut self, at: u64) {
        if self.placed.remove(&at).is_some() {
            self.free.set(at..at + 1, ());
        }
    }

    /// Drops what a transaction has of some blocks.
    pub fn drop_own(&mut self, tx: Txid, run: Run) -> Result<()> {
        let active = self.get(tx)?;
        let held: Vec<u64> = active.held.range(range(run)).map(|(at, _)| *at).collect();
        let spilled: Vec<u64> = active.spilled.range(range(run)).map(|(at, _)| *at).collect();
        held.into_iter().try_for_each(|at| self.let_go(tx, at))?;
        spilled.into_iter().try_for_each(|at| self.take_back(tx, at))
    }

    /// A transaction has ended. Where its spilled pages are is for the caller to free.
    pub fn end(&mut self, tx: Txid) -> Option<Active> {
        let active = self.active.remove(&tx)?;
        self.fresh -= active.fresh;
        self.overs -= active.held.len() as u64 - active.fresh;
        self.spilled -= active.spilled.len() as u64;
        Some(active)
    }

    /// Takes up to so many consecutive free blocks. An empty range: there are none.
    pub fn take_free(&mut self, most: u64) -> Range<u64> {
        let Some((first, ())) = self.free.iter().next() else { return 0..0 };
        let taken = first.start..first.end.min(first.start + most);
        self.free.clear(taken.clone());
        taken
    }

    /// Whether one of these blocks is being written home.
    pub fn is_going(&self, blocks: impl IntoIterator<Item = u64>) -> bool {
        !self.going.is_empty() && blocks.into_iter().any(|block| self.going.contains(&block))
    }
}
