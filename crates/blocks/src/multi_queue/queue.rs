//! A queue and its area: what is ordered, sent, complete and settled.

use std::collections::VecDeque;
use std::sync::Arc;

use sync::{AtomicU64, Condvar, Mutex, Ordering};
use wholly_media::Site;

use super::tree::Place;
use crate::{Lba, Page, Run};

/// What a transaction does with a block.
pub enum Payload {
    /// To this block of the journal.
    Journaled(Lba, Page),
    /// Straight home.
    Direct(Page),
    /// It is in this lent block, and has this checksum.
    Spilled(Lba, u64),
}

/// A transaction that is ordered.
pub struct Ordered {
    pub place: Place,
    pub site: Site,
    /// Where its descriptions go.
    pub descriptions: Vec<Lba>,
    /// Where its commit block goes, in [`Form::CommitBlock`](super::Form).
    pub commit_block: Option<Lba>,
    /// What it writes. Taken when it is sent.
    pub payloads: Mutex<Vec<(u64, Payload)>>,
    /// The blocks of these.
    pub blocks: Vec<u64>,
    /// Blocks whose content is at home already.
    pub stored: Vec<Run>,
    /// Those of them whose older images do not count.
    pub revoked: Vec<Run>,
    pub discarded: Vec<Run>,
    /// Blocks that it was lent: they have images until it is home.
    pub lent: Vec<Run>,
    /// Of other queues, up to which place it depends on them.
    pub after: Vec<(u16, u64)>,
    /// Where it ends in areas.
    pub ends: Vec<(u16, u64)>,
    /// How far its description says that the queues are.
    pub marks: Mutex<Vec<u64>>,
}

/// See the module. Places in the queue: `first <= settled <= complete <= sent < first + txs`.
pub struct State {
    /// Of the next block in the area.
    pub head: u64,
    /// The first one that is in use.
    pub tail: u64,
    /// Blocks that running transactions have room for.
    pub reserved: u64,
    /// The place of the first transaction in `txs`.
    pub first: u64,
    /// All that are not below the tail of the journal.
    pub txs: VecDeque<Arc<Ordered>>,
    /// The last that was handed over.
    pub sent: u64,
    /// The last that is on the medium, with all before it.
    pub complete: u64,
    /// The last that is, with all that it and those before it depend on.
    pub settled: u64,
}

pub struct Queue {
    pub state: Mutex<State>,
    /// Held by the thread that hands over: transactions go in their order.
    pub sending: Mutex<()>,
    /// There is more room.
    pub changed: Condvar,
    /// As in the state, without its lock.
    pub complete: AtomicU64,
    pub settled: AtomicU64,
    /// Up to which place a durable description or header says that transactions are complete.
    pub proven: AtomicU64,
}

impl Queue {
    pub fn new() -> Queue {
        let (txs, zero) = (VecDeque::new(), || AtomicU64::new(0));
        let state = State { head: 0, tail: 0, reserved: 0, first: 1, txs, sent: 0, complete: 0, settled: 0 };
        Queue {
            state: Mutex::new(state),
            sending: Mutex::new(()),
            changed: Condvar::new(),
            complete: zero(),
            settled: zero(),
            proven: zero(),
        }
    }

    pub fn prove(&self, place: u64) {
        self.proven.fetch_max(place, Ordering::AcqRel);
    }
}

impl State {
    /// The last place that was given out.
    pub fn last(&self) -> u64 {
        self.first + self.txs.len() as u64 - 1
    }

    /// The transaction at a place.
    pub fn get(&self, place: u64) -> &Arc<Ordered> {
        &self.txs[(place - self.first) as usize]
    }

    /// The place of a sequence in this queue, if it is one of those that are known.
    pub fn find(&self, sequence: u64) -> Option<u64> {
        let at = self.txs.binary_search_by_key(&sequence, |tx| tx.place.sequence).ok()?;
        Some(self.first + at as u64)
    }
}
