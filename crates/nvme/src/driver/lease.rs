//! Leases: who has one writes transactions on its queue, and nobody else does.

use std::sync::Arc;

use wholly_blocks::{Lba, Txid};
use wholly_error::{Error, Result};

use super::Shared;
use super::pages::DmaPage;
use super::queue::{Queue, Write};

/// The right to write transactions on one queue. Having it is the proof that a transaction stays on its queue, whatever
/// thread goes on with it (ccNVMe, section 4.5, asks that a thread does not move to another core). It is given back
/// when it is dropped; what was written and not committed is forgotten, and nothing of it has reached the device.
pub struct Lease {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<Queue>,
    pub(super) writes: Vec<Write>,
}

/// A transaction that was committed: [`Controller::wait`](super::Controller::wait) waits until it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    pub(crate) queue: u16,
    pub(crate) number: u64,
}

impl Ticket {
    /// The queue, among those that were started, from 0 on.
    pub fn queue(self) -> u16 {
        self.queue
    }
}

impl Lease {
    /// The queue, among those that were started, from 0 on.
    pub fn queue(&self) -> u16 {
        self.queue.index
    }

    /// Entries that a transaction may have: each is a command, of blocks that lie next to each other.
    pub fn most_entries(&self) -> usize {
        self.queue.most_entries()
    }

    /// Adds blocks to the transaction. Nothing is handed to the device before [`commit`](Self::commit). Blocks that
    /// follow those of the call before become one command with them, up to what the controller transfers at once. Two
    /// transactions that are not finished must not write the same block: the device may write them in either order.
    ///
    /// # Errors
    /// `Invalid` if there are no pages, or blocks lie beyond the end; `NoSpace` if the transaction has as many entries
    /// as it may. Nothing is added then.
    pub fn write(&mut self, at: Lba, pages: &[DmaPage]) -> Result<()> {
        let count = pages.len() as u64;
        if count == 0 || at.0.checked_add(count).is_none_or(|end| end > self.shared.info.blocks) {
            let text = format!("blocks {}+{count}: the device has {}", at.0, self.shared.info.blocks);
            return Err(Error::Invalid(text));
        }
        let most = self.shared.most_pages;
        let before = self.writes.len();
        let mut rest = pages;
        let mut at = at;
        if let Some(last) = self.writes.last_mut().filter(|_| self.shared.options.merge)
            && last.at.0 + last.pages.len() as u64 == at.0
        {
            let (joined, others) = rest.split_at(rest.len().min(most - last.pages.len()));
            if before + others.len().div_ceil(most) > self.queue.most_entries() {
                return Err(self.is_too_large());
            }
            last.pages.extend_from_slice(joined);
            (at, rest) = (Lba(at.0 + joined.len() as u64), others);
        }
        let most = if self.shared.options.merge { most } else { 1 };
        if before + rest.len().div_ceil(most) > self.queue.most_entries() {
            return Err(self.is_too_large());
        }
        for part in rest.chunks(most) {
            self.writes.push(Write { at, pages: part.to_vec() });
            at = Lba(at.0 + part.len() as u64);
        }
        Ok(())
    }

    fn is_too_large(&self) -> Error {
        let most = self.queue.most_entries();
        Error::NoSpace(format!("a transaction of more than {most} commands on queue {}", self.queue.index))
    }

    /// Adds the last blocks, and hands the transaction to the device by two stores over PCIe: its entries, and the
    /// doorbell. On return it is *atomic*: after a crash it is on the medium wholly, or the window
    /// ([`Window`](super::Window)) tells that it may not be. It is durable when its ticket has been waited for. Waits
    /// while the queue has no slots.
    ///
    /// Where the device has a volatile write cache and the transaction has more than one command and more than
    /// [`Options::most_forced`](super::Options::most_forced) bytes, the call waits for all but the last command, and
    /// for a flush.
    ///
    /// # Errors
    /// As [`write`](Self::write), and then the transaction is as it was; `Invalid` for a number that is not greater
    /// than that of the transaction before on this queue; `Media` (`EIO`) if the queue has failed. The transaction is
    /// forgotten then.
    pub fn commit(&mut self, txid: Txid, at: Lba, pages: &[DmaPage]) -> Result<Ticket> {
        self.queue.check()?;
        self.write(at, pages)?;
        let number = self.queue.commit(txid, std::mem::take(&mut self.writes))?;
        Ok(Ticket { queue: self.queue.index, number })
    }

    /// Forgets what was written and not committed.
    pub fn cancel(&mut self) {
        self.writes.clear();
    }

    /// How many transactions of this queue are finished, in the order of their commits: a ticket is finished if its
    /// number is below that.
    ///
    /// # Errors
    /// `Media` (`EIO`).
    pub fn poll(&self) -> Result<u64> {
        self.queue.poll()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.shared.link.leased.lock().unwrap()[usize::from(self.queue.index)] = false;
        self.shared.link.returned.notify_all();
    }
}
