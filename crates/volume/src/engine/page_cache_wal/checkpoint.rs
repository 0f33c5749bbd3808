//! Writing back: dirty pages go home, and records do not count any more.

use std::collections::BTreeMap;

use wholly_error::Result;

use super::pages::Bytes;
use super::{HOME, HOME_FENCE, PageCacheWal, TAIL};

impl PageCacheWal {
    /// Whether the log or the cache is half full of what is not at home.
    pub(super) fn has_much(&self) -> bool {
        self.log.used() > self.log.ring.blocks / 2 || self.pages.dirty() > self.pages.total() / 2
    }

    /// Writes back what is due, unless another thread does.
    pub(super) fn write_back_due(&self) -> Result<()> {
        match self.writing_back.try_lock() {
            Ok(_one) if self.has_much() => self.write_back_alone(),
            _ => Ok(()),
        }
    }

    /// Writes back all that is published now.
    pub(super) fn write_back(&self) -> Result<()> {
        let _one = self.writing_back.lock().unwrap();
        self.write_back_alone()
    }

    fn write_back_alone(&self) -> Result<()> {
        self.check()?;
        if self.log.used() == 0 {
            return Ok(());
        }
        self.failing(self.write_back_all())
    }

    fn write_back_all(&self) -> Result<()> {
        let target = self.log.next();
        self.write_home(&self.pages.dirty_before(target), target)?;
        self.region.fence(HOME_FENCE)?;
        let (block, header) = self.log.header(target);
        self.region.write_through(TAIL, block.byte(), &header)?;
        self.log.release(target);
        Ok(())
    }

    /// Writes dirty pages home, with content of records before this one. Of the copies of the superblock, one at a time
    /// is in doubt.
    pub(super) fn write_home(&self, blocks: &[u64], before: u64) -> Result<()> {
        let roots = self.pages.roots().map(|root| root.0);
        for root in roots.iter().filter(|root| blocks.contains(root)) {
            self.pages.write_dirty(HOME, &[*root], before)?;
            self.region.fence(HOME_FENCE)?;
        }
        Ok(self.pages.write_dirty(HOME, blocks, before)?)
    }

    /// A mistake that tests plant: pages go home before their record is durable.
    pub(super) fn publish_home(&self, images: &BTreeMap<u64, Bytes>, sequence: u64) -> Result<()> {
        images.iter().for_each(|(block, image)| self.pages.publish(*block, image.clone(), sequence));
        let homes: Vec<u64> = images.keys().copied().collect();
        Ok(self.pages.write_dirty(HOME, &homes, sequence + 1)?)
    }
}
