//! The contract that engines use: transactions that are ordered in memory, and durable later.

use std::sync::Arc;

use wholly_error::Result;
use wholly_media::{Region, Site};

use crate::device::each_block;
use crate::{BLOCK, BlockGuarantees, Counters, Lba, Page, Placement, Run, Tag, Txid};

/// The place of transactions in the order, from 1 on in each life of the medium. 0: of none, and durable from the
/// begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sequence(pub u64);

/// Transactions of blocks that are ordered under the caller's locks and become durable without them.
///
/// A transaction's way: [`begin`](Self::begin), writes, [`admit`](Self::admit) without any lock held; then, under the
/// locks of all that it shares with others, the last writes and [`order`](Self::order); then, without locks,
/// [`send`](Self::send) and [`wait`](Self::wait).
///
/// Several threads call it. Calls on one transaction are made one after the other by the caller. The rules T1 to T12
/// are in the head of the crate.
pub trait TxBlocks: Send + Sync {
    /// What is promised.
    fn guarantees(&self) -> &BlockGuarantees;

    /// Begins a transaction. Nothing is stored by it.
    ///
    /// # Errors
    /// `Poisoned` (T8).
    fn begin(&self) -> Result<Txid>;

    /// Waits until there is room for so many pages, and keeps it for the transaction. The next writes of the
    /// transaction, up to this number, neither wait nor make a device work. What is left of the room is given back when
    /// the transaction ends. Called without any lock that another committer may want: room is made by the commits of
    /// others.
    ///
    /// # Errors
    /// `NoSpace` for more than [`BlockGuarantees::room`]: write in more steps, or lend blocks; `Invalid`; `Poisoned`;
    /// the medium's.
    fn admit(&self, tx: Txid, pages: u64) -> Result<()>;

    /// Waits until half of the room is free, or no ordered transaction uses any. A caller that orders without waiting
    /// calls this afterwards, with no lock held. Then others, which hold locks, find room. It promises no durability.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    fn make_room(&self, site: Site) -> Result<()> {
        let _ = site;
        Ok(())
    }

    /// Writes a block in a transaction. Only the transaction reads it until it is ordered (T2). A write that was not
    /// admitted may wait, and make the device work. Nothing is durable on return.
    ///
    /// # Errors
    /// `Busy` if another running transaction has written the block (T4); `NoSpace` (T7, T10); `Invalid`; `Poisoned`;
    /// the medium's.
    fn write(&self, site: Site, tx: Txid, at: Lba, page: Page, how: Placement, tag: Tag) -> Result<()>;

    /// Copies the version of a block that the running transaction has written, else the committed one; the committed
    /// one if no transaction is named.
    ///
    /// # Errors
    /// `Corrupt` (T9); `Invalid`; `Poisoned`; the medium's.
    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()>;

    /// As so many [`read`](Self::read)s of consecutive blocks, each of them by itself.
    ///
    /// # Errors
    /// As [`read`](Self::read). `Invalid` if the bytes are not those of whole blocks.
    fn read_run(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8]) -> Result<()> {
        each_block(at, bytes, |at, block| self.read(tx, at, block))
    }

    /// Makes blocks read as zeros, for the transaction now and for all once it is ordered (T11). Makes no device work.
    /// The next owner of such a block may write it as [`Fresh`](crate::Placement::Fresh) only once this transaction is
    /// durable. Before that, a crash would undo the discard, and the old bytes would be gone.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn discard(&self, site: Site, tx: Txid, run: Run) -> Result<()>;

    /// Gives free blocks to a running transaction, for versions beyond
    /// [`most_overwrites`](BlockGuarantees::most_overwrites). Nobody else may read or write them until the transaction
    /// was aborted, or is durable. What they hold then is unspecified; they are free again.
    ///
    /// # Errors
    /// `Unsupported` if the guarantees say so; `Invalid`; `Busy` if a running transaction, or one that is not durable,
    /// has written one of them; `Poisoned`.
    fn lend(&self, tx: Txid, run: Run) -> Result<()>;

    /// Ends a running transaction, and drops all that it has written (T3).
    ///
    /// # Errors
    /// `Invalid` for a number that names no running transaction; `Poisoned`.
    fn abort(&self, site: Site, tx: Txid) -> Result<()>;

    /// Gives running transactions their place in the order, as one (T6). From now on everybody reads what they have
    /// written, and others may write the same blocks (T4). Nothing is durable on return. The call works in memory only:
    /// it never waits for a device or for room, so the caller holds the locks of all that is shared with transactions
    /// before and after.
    ///
    /// `after` names what the caller has read and relied on without writing it. It matters where the order is
    /// [`Dependent`](crate::Order::Dependent): of these transactions and of those that wrote the same blocks, none is
    /// missing if this one survives.
    ///
    /// With no transactions it does nothing, and returns the place of the last that was ordered.
    ///
    /// # Errors
    /// `Invalid` for a number that names no running transaction, or for a sequence that was not given out: nothing has
    /// changed; `Poisoned`. Never `NoSpace`.
    fn order(&self, site: Site, txs: &[Txid], after: &[Sequence]) -> Result<Sequence>;

    /// Starts to make everything up to this place durable, as far as that can be done without waiting for it. It is
    /// never needed; [`wait`](Self::wait) does what is left.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    fn send(&self, site: Site, upto: Sequence) -> Result<()>;

    /// Returns when the transactions of this place, and all that they depend on, are durable; where the order is
    /// [`Total`](crate::Order::Total), everything up to this place. Threads that wait share the device's commits.
    ///
    /// # Errors
    /// `Invalid` for a sequence that was not given out; `Poisoned`; the medium's, after which all is poisoned (T8):
    /// transactions that were ordered and not durable may survive or not, within what [`Order`](crate::Order) says.
    fn wait(&self, site: Site, upto: Sequence) -> Result<()>;

    /// Everything up to this place is durable. What a transaction has freed may be given to others once its place is
    /// reached.
    fn durable(&self) -> Sequence;

    /// The committed content as a region of bytes, for superblocks, making, checking and repairing volumes (T12). Its
    /// writes are in whole blocks or not; they belong to no transaction, and are durable after its fence.
    fn plain(&self) -> Arc<dyn Region>;

    /// What was done since the medium was opened.
    fn counters(&self) -> Counters;
}
