//! The contract of a device with transactions.

use wholly_error::{Error, Result};
use wholly_media::Site;

use crate::{BLOCK, Counters, DeviceGuarantees, Lba, Page, Run, Tag};

/// Names a transaction. The upper 24 bits are the incarnation of the medium, the lower 40 bits a count: no number is
/// used twice, over all lives of the medium (T5). 0 names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Txid(pub u64);

impl Txid {
    /// The `count`th transaction, from 1 on, of an incarnation.
    ///
    /// # Panics
    /// If the incarnation does not fit into 24 bits, or the count into 40.
    pub fn new(incarnation: u64, count: u64) -> Txid {
        assert!(incarnation < 1 << 24 && (1..1 << 40).contains(&count), "no number is left for a transaction");
        Txid(incarnation << 40 | count)
    }
}

/// Calls `read` for each of some consecutive blocks.
pub(crate) fn each_block(
    at: Lba,
    bytes: &mut [u8],
    mut read: impl FnMut(Lba, &mut [u8; BLOCK]) -> Result<()>,
) -> Result<()> {
    let (blocks, rest) = bytes.as_chunks_mut::<BLOCK>();
    if !rest.is_empty() {
        return Err(Error::Invalid(format!("{} bytes: read whole blocks", blocks.len() * BLOCK + rest.len())));
    }
    blocks.iter_mut().zip(at.0..).try_for_each(|(block, at)| read(Lba(at), block))
}

/// What a writer knows of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Its committed version is read by others, and must survive if the transaction does not.
    Overwrite,
    /// The block's committed version is not needed any more: no other transaction reads or writes the block before this
    /// one is ordered. The device may store over that version at once.
    Fresh,
}

/// A device that writes many blocks wholly or not at all: the commands of X-FTL, and no more.
///
/// Several threads call it. Calls on one transaction, and plain calls on one block, are made one after the other by the
/// caller. The rules T1 to T12 are in the head of the crate.
pub trait TxDevice: Send + Sync {
    /// What the device promises.
    fn guarantees(&self) -> &DeviceGuarantees;

    /// Begins a transaction. Nothing is stored by it.
    ///
    /// # Errors
    /// `Poisoned` (T8).
    fn begin(&self) -> Result<Txid>;

    /// Writes a block in a transaction. Only the transaction reads it until it is committed (T2); a later write of the
    /// same block takes its place. Nothing is durable on return. The device may keep the page in a volatile buffer.
    ///
    /// # Errors
    /// `NoSpace` if the device is full, which is not before [`DeviceGuarantees::sure_overwrites`] is passed, or if the
    /// transaction has as many blocks as it may (T7, T10); `Invalid` for a number that names no running transaction, or
    /// a block beyond the end; `Poisoned`; the medium's.
    fn write(&self, site: Site, tx: Txid, at: Lba, page: &Page, how: Placement, tag: Tag) -> Result<()>;

    /// Copies the version of a block that the transaction has written, else the committed one; the committed one if no
    /// transaction is named.
    ///
    /// # Errors
    /// `Corrupt` for a block that reads otherwise than it was written (T9); `Invalid`; `Poisoned`; the medium's.
    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()>;

    /// As so many [`read`](Self::read)s of consecutive blocks. A device may make them one transfer.
    ///
    /// # Errors
    /// As [`read`](Self::read). `Invalid` if the bytes are not those of whole blocks.
    fn read_run(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8]) -> Result<()> {
        each_block(at, bytes, |at, block| self.read(tx, at, block))
    }

    /// Makes blocks read as zeros, for the transaction now and for all once it is committed (T11).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn discard(&self, site: Site, tx: Txid, run: Run) -> Result<()>;

    /// Ends a transaction, and drops all that it has written (T3). Nothing is stored by it.
    ///
    /// # Errors
    /// `Invalid` for a number that names no running transaction; `Poisoned`.
    fn abort(&self, site: Site, tx: Txid) -> Result<()>;

    /// Ends transactions: what they have written becomes the committed version, all or nothing (T1, T6). If several of
    /// them have written or discarded one block, the last of the list counts. Durable on return, as is every plain
    /// write and trim before it: a commit counts as one flush. With no transactions it does nothing.
    ///
    /// # Errors
    /// `Invalid`, which changes nothing; `Poisoned`; the medium's, after which the device is poisoned (T8). Never
    /// `NoSpace` (T7).
    fn commit(&self, site: Site, txs: &[Txid]) -> Result<()>;

    /// Writes a block's committed version, in no transaction. Not durable before a [`flush`](Self::flush) or a commit
    /// has returned; until then a crash keeps this or an older version, of each block by itself (T12).
    ///
    /// # Errors
    /// `Busy` if a transaction that is not ended has written or discarded the block; `NoSpace`; `Invalid`; `Poisoned`;
    /// the medium's.
    fn plain_write(&self, site: Site, at: Lba, page: &Page) -> Result<()>;

    /// Makes plain writes and trims that had returned durable.
    ///
    /// # Errors
    /// `Poisoned`; the medium's, after which the device is poisoned.
    fn flush(&self, site: Site) -> Result<()>;

    /// Makes blocks read as zeros, in no transaction. As [`plain_write`](Self::plain_write) in all respects, but that
    /// it needs no space.
    ///
    /// # Errors
    /// As [`plain_write`](Self::plain_write).
    fn trim(&self, site: Site, run: Run) -> Result<()>;

    /// What was done since the device was opened.
    fn counters(&self) -> Counters;
}
