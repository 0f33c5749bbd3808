//! What the journal is written against: queues of a device, on each of which transactions finish in their order.

use wholly_error::Result;
use wholly_media::Site;

use crate::{BLOCK, Lba, Page, Txid};

/// What a transaction writes to consecutive blocks.
#[derive(Clone, Debug)]
pub struct Write {
    /// The first block.
    pub at: Lba,
    /// One page for each.
    pub pages: Vec<Page>,
}

/// What the queues belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The volume.
    pub volume: [u8; 16],
    /// How often its journal has been opened.
    pub incarnation: u64,
}

/// What the device tells of the life before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// Of each queue the numbers of transactions that were not finished. All others that were handed over are on the
    /// medium.
    Known {
        /// Of which life that is.
        life: Life,
        /// A list for each queue.
        queues: Vec<Vec<Txid>>,
    },
    /// It does not tell, for this reason.
    Unknown(String),
}

/// What queues promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueGuarantees {
    /// Blocks of the device.
    pub blocks: u64,
    /// How many queues there are.
    pub queues: u16,
    /// The most [`Write`]s of a transaction.
    pub most_writes: usize,
    /// The most pages of a [`Write`].
    pub most_pages: usize,
    /// Whether the device tells what a crash has left unfinished.
    pub tells_unfinished: bool,
    /// Whether a flush is for what this process has written alone: what another one has written, which died, is read,
    /// and may be lost yet.
    pub flushes_own_writes: bool,
    /// What a crash keeps wholly or not at all of a write in no transaction.
    pub plain_unit: u32,
    /// Whether this only stands in for the device: figures must say so.
    pub emulated: bool,
    /// A line for people and reports.
    pub description: String,
}

/// Queues of a device.
///
/// What is handed over by [`commit`](Self::commit) reaches the medium in any order, in part, or not at all, until it is
/// finished. Several threads call it; calls of `commit` on one queue are made one after the other.
pub trait Queues: Send + Sync {
    /// What is promised.
    fn guarantees(&self) -> &QueueGuarantees;

    /// What the life before has left unfinished. Nothing of that life comes any more.
    fn unfinished(&self) -> Unfinished;

    /// Begins a life: what the device told of the one before is gone. The caller has raised its incarnation before,
    /// durably.
    ///
    /// # Errors
    /// The medium's.
    fn start(&self, site: Site, life: Life) -> Result<()>;

    /// Hands a transaction over: the last write is its commit. Numbers increase on a queue. Returns the transaction's
    /// place in the queue, from 1 on. Nothing is durable on return.
    ///
    /// # Errors
    /// The medium's, after which nothing more is finished on the queue.
    fn commit(&self, site: Site, queue: u16, tx: Txid, writes: Vec<Write>) -> Result<u64>;

    /// Returns when the transactions of a queue up to this place are on the medium, durably.
    ///
    /// # Errors
    /// The medium's, if one of them has failed.
    fn wait(&self, site: Site, queue: u16, place: u64) -> Result<()>;

    /// Reads a block.
    ///
    /// # Errors
    /// The medium's.
    fn read(&self, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.read_run(at, bytes)
    }

    /// Reads consecutive blocks.
    ///
    /// # Errors
    /// The medium's; `Invalid` if the bytes are not those of whole blocks.
    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()>;

    /// Writes consecutive blocks, in no transaction. They are durable after a [`flush`](Self::flush).
    ///
    /// # Errors
    /// The medium's.
    fn write(&self, site: Site, at: Lba, pages: &[Page]) -> Result<()>;

    /// Makes durable what was written in no transaction, by any thread.
    ///
    /// # Errors
    /// The medium's.
    fn flush(&self, site: Site) -> Result<()>;

    /// Ends the life: all that was handed over is finished, and the device tells of nothing unfinished.
    ///
    /// # Errors
    /// The medium's.
    fn close(&self, site: Site) -> Result<()>;
}
