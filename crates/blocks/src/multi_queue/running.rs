//! Transactions that run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sync::{AtomicU64, Mutex, Ordering};
use wholly_error::{Error, Result};

use crate::runs::Runs;
use crate::{Lba, Page, Placement, Txid};

/// So many locks.
const SHARDS: usize = 16;

/// A running transaction.
#[derive(Default)]
pub struct Running {
    /// Blocks of room that it has, by area. The first one is of the queue that it goes to.
    pub rooms: Vec<(u16, u64)>,
    /// Pages of room that was admitted, and is not used yet.
    pub admitted: u64,
    /// Written, in memory.
    pub pages: BTreeMap<u64, (Page, Placement)>,
    /// Fresh, and at home already.
    pub stored: Runs<()>,
    /// Those of them that may have older images above the tail: these must not come home after a crash.
    pub revoked: Runs<()>,
    pub discarded: Runs<()>,
    /// Blocks that it was lent.
    pub lent: Runs<()>,
    /// Those of them that it has not used.
    pub unused: Vec<u64>,
    /// Written over, and stored in lent blocks: where, and their checksums.
    pub spilled: BTreeMap<u64, (Lba, u64)>,
    /// Blocks that it writes over.
    pub overwrites: u64,
    /// Fresh pages in memory.
    pub fresh: u64,
    /// Its number, by the mistake of that name.
    pub early: Option<u64>,
}

impl Running {
    /// Entries that it has.
    pub fn entries(&self) -> u64 {
        let runs = [&self.revoked, &self.discarded, &self.lent].map(|runs| runs.iter().count());
        (self.pages.len() + self.spilled.len() + runs.iter().sum::<usize>()) as u64
    }

    /// It has so much room more.
    pub fn has_room(&mut self, number: u16, blocks: u64) {
        match self.rooms.iter_mut().find(|(own, _)| *own == number) {
            Some((_, own)) => *own += blocks,
            None => self.rooms.push((number, blocks)),
        }
    }

    /// Whether it has written or discarded anything.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.stored.is_empty() && self.spilled.is_empty() && self.discarded.is_empty()
    }

    /// What it has claimed, but for runs.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().chain(self.spilled.keys()).copied().chain(self.stored.iter().flat_map(|(run, ())| run))
    }
}

/// All of them, by number.
pub struct AllRunning {
    shards: [Mutex<HashMap<Txid, Arc<Mutex<Running>>>>; SHARDS],
    count: AtomicU64,
}

impl AllRunning {
    pub fn new() -> AllRunning {
        AllRunning { shards: std::array::from_fn(|_| Mutex::default()), count: AtomicU64::new(0) }
    }

    fn shard(&self, tx: Txid) -> &Mutex<HashMap<Txid, Arc<Mutex<Running>>>> {
        &self.shards[tx.0 as usize % SHARDS]
    }

    /// Begins one.
    pub fn begin(&self, incarnation: u64) -> Txid {
        let tx = Txid::new(incarnation, self.count.fetch_add(1, Ordering::Relaxed) + 1);
        self.shard(tx).lock().unwrap().insert(tx, Arc::default());
        tx
    }

    /// # Errors
    /// `Invalid` if it does not run.
    pub fn get(&self, tx: Txid) -> Result<Arc<Mutex<Running>>> {
        let found = self.shard(tx).lock().unwrap().get(&tx).cloned();
        found.ok_or_else(|| Error::Invalid(format!("transaction {:#x} does not run", tx.0)))
    }

    /// It runs no longer.
    pub fn end(&self, tx: Txid) {
        self.shard(tx).lock().unwrap().remove(&tx);
    }
}
