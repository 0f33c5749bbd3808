//! A file or a block device as queues: what a transaction writes to consecutive blocks is one synchronous write, by a
//! thread that waits. Transactions of one queue share writes.
//!
//! A thread that waits *leads* if nobody does: it writes what its queue has been handed. The others wait for it. A
//! leader waits for *company* first, as many transactions as there were when the last leader had ended: those threads
//! are likely to come again. It waits no longer than the last write took, so a commit takes at most twice the time of a
//! write.
//!
//! There are no late writes: a thread that is killed ends after the write that it makes.

use std::sync::Arc;
use std::time::Duration;

use sync::{Condvar, Mutex, MutexGuard};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use super::queues::{Life, QueueGuarantees, Queues, Unfinished, Write};
use crate::{BLOCK, Lba, Page, Txid};

/// The longest that a leader waits for company.
const PATIENCE: Duration = Duration::from_millis(5);

/// See the module.
pub struct DiskQueues {
    region: Arc<dyn Region>,
    guarantees: QueueGuarantees,
    unfinished: Unfinished,
    queues: Vec<OnDisk>,
    /// In persistent memory: between the threads that write and those that flush.
    handed_over: Mutex<()>,
}

/// A queue.
#[derive(Default)]
struct OnDisk {
    state: Mutex<State>,
    /// A leader has ended.
    ended: Condvar,
    /// A transaction was handed over while the leader waits for company.
    came: Condvar,
}

#[derive(Default)]
struct State {
    /// What was handed over and is not written.
    writes: Vec<Write>,
    /// Transactions that were handed over.
    given: u64,
    /// Transactions that are on the medium.
    done: u64,
    /// Whether a thread leads.
    is_led: bool,
    /// Threads that wait, the leader too.
    waiting: u64,
    /// Transactions that a leader waits for.
    company: u64,
    /// How long a leader waits.
    patience: Duration,
    failed: Option<Error>,
}

impl OnDisk {
    /// The leader waits for company.
    fn gather(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap();
        let has_company = |state: &State| state.given - state.done >= state.company;
        if !has_company(&state) {
            let until = sync::now() + state.patience;
            while !has_company(&state) && sync::now() < until {
                state = sync::wait_until(&self.state, &self.came, state, until);
            }
        }
        state
    }
}

impl DiskQueues {
    /// Over a disk, with so many queues. It may be persistent memory.
    pub fn new(region: Arc<dyn Region>, queues: u16) -> DiskQueues {
        let of = region.guarantees();
        let guarantees = QueueGuarantees {
            blocks: region.len() / BLOCK as u64,
            queues,
            most_writes: usize::MAX,
            most_pages: usize::MAX,
            tells_unfinished: false,
            flushes_own_writes: of.is_pmem(),
            plain_unit: of.atomic_unit,
            emulated: of.emulated,
            description: of.description.clone(),
        };
        let unfinished = Unfinished::Unknown("a disk does not tell".into());
        let queues = (0..queues).map(|_| OnDisk::default()).collect();
        DiskQueues { region, guarantees, unfinished, queues, handed_over: Mutex::default() }
    }

    /// Over the blocks of a device with queues, which told this. To look at them: with a region that keeps in memory
    /// what is written, nothing on the device changes.
    pub fn telling(mut self, unfinished: Unfinished) -> DiskQueues {
        self.guarantees.tells_unfinished = matches!(unfinished, Unfinished::Known { .. });
        self.unfinished = unfinished;
        self
    }

    /// One synchronous write for each run of blocks.
    fn write_through(&self, site: Site, mut writes: Vec<Write>) -> Result<()> {
        writes.sort_by_key(|write| write.at);
        let mut bytes: Vec<u8> = Vec::new();
        for run in writes.chunk_by(|one, next| one.at.0 + one.pages.len() as u64 == next.at.0) {
            bytes.clear();
            run.iter().flat_map(|write| &write.pages).for_each(|page| bytes.extend_from_slice(&page[..]));
            self.region.write_through(site, run[0].at.byte(), &bytes)?;
        }
        Ok(())
    }
}

impl Queues for DiskQueues {
    fn guarantees(&self) -> &QueueGuarantees {
        &self.guarantees
    }

    fn unfinished(&self) -> Unfinished {
        self.unfinished.clone()
    }

    fn start(&self, _: Site, _: Life) -> Result<()> {
        Ok(())
    }

    fn commit(&self, _: Site, queue: u16, _: Txid, writes: Vec<Write>) -> Result<u64> {
        let queue = &self.queues[usize::from(queue)];
        let mut state = queue.state.lock().unwrap();
        state.writes.extend(writes);
        state.given += 1;
        if state.is_led {
            queue.came.notify_one();
        }
        Ok(state.given)
    }

    fn wait(&self, site: Site, queue: u16, place: u64) -> Result<()> {
        let queue = &self.queues[usize::from(queue)];
        let mut state = queue.state.lock().unwrap();
        state.waiting += 1;
        let outcome = loop {
            if state.done >= place {
                break Ok(());
            }
            if let Some(error) = &state.failed {
                break Err(error.clone());
            }
            if state.is_led {
                state = queue.ended.wait(state).unwrap();
                continue;
            }
            state.is_led = true;
            drop(state);
            state = queue.gather();
            let (writes, upto) = (std::mem::take(&mut state.writes), state.given);
            drop(state);
            let begun = sync::now();
            let written = self.write_through(site, writes);
            let patience = (sync::now() - begun).min(PATIENCE);
            state = queue.state.lock().unwrap();
            match written {
                Ok(()) => state.done = upto,
                Err(error) => state.failed = Some(error),
            }
            (state.is_led, state.patience) = (false, patience);
            state.company = state.waiting;
            queue.ended.notify_all();
        };
        state.waiting -= 1;
        outcome
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        Ok(self.region.read(at.byte(), bytes)?)
    }

    fn write(&self, site: Site, at: Lba, pages: &[Page]) -> Result<()> {
        let bytes: Vec<u8> = pages.iter().flat_map(|page| &page[..]).copied().collect();
        self.region.write(site, at.byte(), &bytes)?;
        if self.guarantees.flushes_own_writes {
            // Any thread may flush it. It takes the lock that is released here.
            self.region.hand_over(site)?;
            drop(self.handed_over.lock().unwrap());
        }
        Ok(())
    }

    fn flush(&self, site: Site) -> Result<()> {
        drop(self.handed_over.lock().unwrap());
        Ok(self.region.fence(site)?)
    }

    fn close(&self, _: Site) -> Result<()> {
        Ok(())
    }
}
