//! Reading, and the plain view.

use sync::{Backoff, Ordering};
use wholly_error::Result;
use wholly_media::Site;

use super::tree::{Content, PLAIN, Progress};
use super::{Shared, busy, count};
use crate::plain::PlainBlocks;
use crate::{BLOCK, Lba, Page};

impl Shared {
    pub(super) fn read_committed(&self, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        loop {
            let (homes, from) = {
                let tree = self.trees.of(at.0);
                let version = tree.entries.get(&at.0).and_then(|entry| entry.versions.last());
                let from = match version.map(|version| &version.content) {
                    Some(Content::Journaled(page) | Content::Direct(page)) => {
                        bytes.copy_from_slice(&page[..]);
                        return Ok(());
                    }
                    Some(Content::Zeros) => {
                        bytes.fill(0);
                        return Ok(());
                    }
                    Some(Content::Spilled(image)) => *image,
                    None => at,
                };
                if tree.zeros.get(at.0).is_some_and(|place| !self.is_settled(place)) {
                    bytes.fill(0);
                    return Ok(());
                }
                (tree.homes, from)
            };
            self.device.read(from, bytes)?;
            if self.trees.of(at.0).homes == homes {
                return Ok(());
            }
        }
    }

    /// Reads blocks by one read of the device. Returns whether that was right: no block has a version in memory.
    pub(super) fn read_home(&self, at: Lba, bytes: &mut [u8]) -> Result<bool> {
        let blocks = at.0..at.0 + (bytes.len() / BLOCK) as u64;
        let homes = || -> Option<Vec<u64>> {
            let parts = self.trees.parts(blocks.clone());
            parts.map(|(part, tree)| tree.is_home(part).then_some(tree.homes)).collect()
        };
        let Some(before) = homes() else { return Ok(false) };
        self.device.read_run(at, bytes)?;
        Ok(homes().is_some_and(|after| after == before))
    }
}

impl PlainBlocks for Shared {
    fn read(&self, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.check()?;
        self.read_committed(at, bytes)
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        self.check()?;
        match bytes.len().is_multiple_of(BLOCK) && self.read_home(at, bytes)? {
            true => Ok(()),
            false => crate::device::each_block(at, bytes, |at, block| self.read_committed(at, block)),
        }
    }

    fn write_part(&self, site: Site, at: u64, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check()?;
        // The claim keeps others from writing the block.
        let mut backoff = Backoff::new();
        loop {
            let mut tree = self.trees.of(at);
            match tree.running.get(at) {
                None => break tree.running.set(at..at + 1, PLAIN),
                Some(PLAIN) => {}
                Some(_) => return Err(busy(at)),
            }
            drop(tree);
            backoff.wait();
        }
        let write = || {
            // No image of it may come home after a crash.
            if self.tail.load(Ordering::Acquire) < self.last.load(Ordering::Acquire) {
                self.checkpoint(true)?;
            }
            // What is settled may be in the tree yet.
            let mut tree = self.trees.of(at);
            tree.prune(at, self);
            tree.zeros.clear(at..at + 1);
            drop(tree);
            let mut page = Page::zeros();
            if bytes.len() < BLOCK {
                let mut old = [0; BLOCK];
                self.device.read(Lba(at), &mut old)?;
                page = Page::new(&old);
            }
            page.put(offset, bytes);
            self.write_plainly(site, Lba(at), &[page])
        };
        let written = write();
        self.trees.unclaim(at..at + 1);
        count(&self.counters.plain_writes, u64::from(written.is_ok()));
        written
    }

    fn flush(&self, site: Site) -> Result<()> {
        self.check()?;
        let upto = self.written.load(Ordering::Acquire);
        self.failing(self.device.flush(site))?;
        self.flushed.fetch_max(upto, Ordering::AcqRel);
        count(&self.counters.plain_flushes, 1);
        Ok(())
    }
}
