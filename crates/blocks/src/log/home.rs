//! Writing back: dirty pages go home, and records do not count any more. Commits go on meanwhile.

use sync::MutexGuard;
use wholly_error::{Error, Result};

use super::device::{AT_ONCE, LogDevice};
use super::state::{Dirty, Place};
use crate::{BLOCK, Lba, Page};

impl LogDevice {
    /// Whether the ring or the memory is half full of what is not at home.
    pub fn has_much(&self) -> bool {
        self.records.used() > self.records.ring.blocks / 2
            || self.state.lock().unwrap().dirty.len() as u64 > self.options.memory / 2
    }

    /// Writes back what is due, unless another thread does.
    ///
    /// # Errors
    /// `Poisoned`; the medium's, after which the device is poisoned.
    pub fn write_back_due(&self) -> Result<()> {
        match self.homing.try_lock() {
            Ok(homing) if self.has_much() => self.write_back_alone(&homing),
            _ => Ok(()),
        }
    }

    /// Brings all that was committed before the call home.
    ///
    /// # Errors
    /// As [`write_back_due`](Self::write_back_due).
    pub fn write_back(&self) -> Result<()> {
        self.write_back_alone(&self.homing.lock().unwrap())
    }

    fn write_back_alone(&self, _homing: &MutexGuard<'_, ()>) -> Result<()> {
        let (target, due) = {
            let state = self.lock()?;
            // Both are of one moment: a record is live from when its pages are dirty.
            (self.records.next(), state.dirty.keys().copied().collect::<Vec<u64>>())
        };
        if self.records.used() == 0 {
            return Ok(());
        }
        self.failing(self.bring_home(target, &due))
    }

    fn bring_home(&self, target: u64, due: &[u64]) -> Result<()> {
        for apart in self.options.apart.iter().filter(|apart| due.binary_search(&apart.0).is_ok()) {
            self.write_dirty(&[apart.0])?;
            self.region.fence(self.options.sites.home_fence)?;
        }
        // One of those that has changed meanwhile waits for the next time.
        let is_other = |block: &u64| !self.options.apart.contains(&Lba(*block));
        let due: Vec<u64> = due.iter().copied().filter(is_other).collect();
        for run in due.chunk_by(|one, next| one + 1 == *next).flat_map(|run| run.chunks(AT_ONCE)) {
            self.write_dirty(run)?;
        }
        self.region.fence(self.options.sites.home_fence)?;
        let (block, header) = self.records.header(target);
        self.region.write_through(self.options.sites.tail, block.byte(), &header)?;
        self.records.release(target);
        Ok(())
    }

    /// Writes those of some consecutive blocks that are dirty still. A page that changes meanwhile stays dirty.
    fn write_dirty(&self, blocks: &[u64]) -> Result<()> {
        let end = blocks[blocks.len() - 1] + 1;
        let mut next = blocks[0];
        while next < end {
            let mut pages: Vec<Dirty> = Vec::new();
            let run = {
                let mut state = self.lock()?;
                let Some((first, _)) = state.dirty.range(next..end).next() else { return Ok(()) };
                let first = *first;
                for (at, page) in state.dirty.range(first..end) {
                    if *at != first + pages.len() as u64 {
                        break;
                    }
                    pages.push(page.clone());
                }
                state.going = first..first + pages.len() as u64;
                state.runs += 1;
                state.going.clone()
            };
            let written = self.home_buffer.with(pages.len() * BLOCK, |bytes| -> Result<()> {
                for ((to, page), home) in bytes.chunks_exact_mut(BLOCK).zip(&pages).zip(run.clone()) {
                    match page {
                        Dirty::Page(page) => to.copy_from_slice(&page[..]),
                        Dirty::At(place) => to.copy_from_slice(&self.spilled_page(home, *place)?[..]),
                    }
                }
                Ok(self.region.write(self.options.sites.home, Lba(run.start).byte(), bytes)?)
            });
            let mut state = self.state.lock().unwrap();
            if written.is_ok() {
                for (at, page) in run.clone().zip(&pages) {
                    let is_same = match (state.dirty.get(&at), page) {
                        (Some(Dirty::Page(now)), Dirty::Page(then)) => now.is_same(then),
                        (Some(now), then) => now == then,
                        (None, _) => false,
                    };
                    if is_same {
                        state.dirty.remove(&at);
                    }
                }
            }
            state.going = 0..0;
            self.tell(&state);
            drop(state);
            written?;
            next = run.end;
        }
        Ok(())
    }

    /// A page that was spilled (T9).
    pub(super) fn spilled_page(&self, home: u64, place: Place) -> Result<Page> {
        let mut bytes = [0; BLOCK];
        self.region.read(Lba(place.at).byte(), &mut bytes)?;
        match self.sum(home, &bytes) == place.sum {
            true => Ok(Page::new(&bytes)),
            false => Err(Error::corrupt(format!("block {home}"), "its image in a lent block is damaged")),
        }
    }
}
