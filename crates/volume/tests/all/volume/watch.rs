//! Transactions of blocks, and devices below them, that tell a test what is done.

use std::sync::Arc;

use wholly_blocks::{
    BlockGuarantees, Counters, DeviceGuarantees, Lba, Page, Placement, Run, Sequence, Tag, TxBlocks, TxDevice, Txid,
};
use wholly_media::{Region, Site};

const B: usize = wholly_blocks::BLOCK;

/// What a test is told, before it is done.
pub trait Watch: Send + Sync {
    /// A transaction has begun: this alone is told afterwards.
    fn begun(&self, tx: Txid) {
        let _ = tx;
    }

    /// A block is written.
    fn writes(&self, tx: Txid, at: Lba, page: &Page, how: Placement, tag: Tag) {
        let _ = (tx, at, page, how, tag);
    }

    /// Transactions are ordered; by a device, committed.
    fn ends(&self, txs: &[Txid]) {
        let _ = txs;
    }
}

/// See the module.
pub struct Watched<M: ?Sized, W> {
    pub inner: Arc<M>,
    pub watch: W,
}

impl<W: Watch> TxBlocks for Watched<dyn TxBlocks, W> {
    fn guarantees(&self) -> &BlockGuarantees {
        self.inner.guarantees()
    }

    fn begin(&self) -> wholly::Result<Txid> {
        self.inner.begin().inspect(|tx| self.watch.begun(*tx))
    }

    fn admit(&self, tx: Txid, pages: u64) -> wholly::Result<()> {
        self.inner.admit(tx, pages)
    }

    fn make_room(&self, site: Site) -> wholly::Result<()> {
        self.inner.make_room(site)
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: Page, how: Placement, tag: Tag) -> wholly::Result<()> {
        self.watch.writes(tx, at, &page, how, tag);
        self.inner.write(site, tx, at, page, how, tag)
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; B]) -> wholly::Result<()> {
        self.inner.read(tx, at, bytes)
    }

    fn discard(&self, site: Site, tx: Txid, run: Run) -> wholly::Result<()> {
        self.inner.discard(site, tx, run)
    }

    fn lend(&self, tx: Txid, run: Run) -> wholly::Result<()> {
        self.inner.lend(tx, run)
    }

    fn abort(&self, site: Site, tx: Txid) -> wholly::Result<()> {
        self.inner.abort(site, tx)
    }

    fn order(&self, site: Site, txs: &[Txid], after: &[Sequence]) -> wholly::Result<Sequence> {
        self.watch.ends(txs);
        self.inner.order(site, txs, after)
    }

    fn send(&self, site: Site, upto: Sequence) -> wholly::Result<()> {
        self.inner.send(site, upto)
    }

    fn wait(&self, site: Site, upto: Sequence) -> wholly::Result<()> {
        self.inner.wait(site, upto)
    }

    fn durable(&self) -> Sequence {
        self.inner.durable()
    }

    fn plain(&self) -> Arc<dyn Region> {
        self.inner.plain()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

impl<W: Watch> TxDevice for Watched<dyn TxDevice, W> {
    fn guarantees(&self) -> &DeviceGuarantees {
        self.inner.guarantees()
    }

    fn begin(&self) -> wholly::Result<Txid> {
        self.inner.begin().inspect(|tx| self.watch.begun(*tx))
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: &Page, how: Placement, tag: Tag) -> wholly::Result<()> {
        self.watch.writes(tx, at, page, how, tag);
        self.inner.write(site, tx, at, page, how, tag)
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; B]) -> wholly::Result<()> {
        self.inner.read(tx, at, bytes)
    }

    fn discard(&self, site: Site, tx: Txid, run: Run) -> wholly::Result<()> {
        self.inner.discard(site, tx, run)
    }

    fn abort(&self, site: Site, tx: Txid) -> wholly::Result<()> {
        self.inner.abort(site, tx)
    }

    fn commit(&self, site: Site, txs: &[Txid]) -> wholly::Result<()> {
        self.watch.ends(txs);
        self.inner.commit(site, txs)
    }

    fn plain_write(&self, site: Site, at: Lba, page: &Page) -> wholly::Result<()> {
        self.inner.plain_write(site, at, page)
    }

    fn flush(&self, site: Site) -> wholly::Result<()> {
        self.inner.flush(site)
    }

    fn trim(&self, site: Site, run: Run) -> wholly::Result<()> {
        self.inner.trim(site, run)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
