//! Pages that leave memory before their transaction is committed: fresh ones go home, others to lent blocks.

use sync::MutexGuard;
use wholly_error::{Error, Result};
use wholly_media::Site;

use super::device::{AT_ONCE, LogDevice};
use super::state::{At, Held, Place};
use crate::{BLOCK, Lba, Page, Run, Txid};

impl LogDevice {
    /// Writes pages to blocks that ascend; adjacent ones by one write.
    pub(super) fn write_pages(&self, pages: &[(u64, Site, Page)]) -> Result<()> {
        for run in pages.chunk_by(|(one, ..), (next, ..)| one + 1 == *next).flat_map(|run| run.chunks(AT_ONCE)) {
            let (first, site, _) = &run[0];
            self.buffer.with(run.len() * BLOCK, |bytes| {
                bytes.chunks_exact_mut(BLOCK).zip(run).for_each(|(to, (.., page))| to.copy_from_slice(&page[..]));
                self.region.write(*site, Lba(*first).byte(), bytes)
            })?;
        }
        Ok(())
    }

    /// On persistent memory the fence of another thread does not cover what this one has stored.
    pub(super) fn fence_own(&self) -> Result<()> {
        match self.region.guarantees().is_pmem() {
            true => Ok(self.region.fence(self.options.sites.own_fence)?),
            false => Ok(()),
        }
    }

    /// Stores the fresh pages that a running transaction holds.
    pub(super) fn store_fresh(&self, tx: Txid) -> Result<()> {
        let held: Vec<(u64, Site, Page)> = {
            let mut state = self.lock()?;
            let fresh = state.get(tx)?.held.iter().filter(|(_, held)| held.is_fresh);
            fresh.map(|(at, held)| (*at, held.site, held.page.clone())).collect()
        };
        self.store(&held)?;
        self.failing(self.fence_own())?;
        let mut state = self.lock()?;
        for (at, ..) in &held {
            state.let_go(tx, *at)?;
            state.get(tx)?.blocks.set(*at..at + 1, At::Stored);
        }
        state.get(tx)?.is_stored = true;
        Ok(())
    }

    /// Stores pages at home. The committed versions there are not needed: the transaction's record makes their images
    /// void.
    pub(super) fn store(&self, pages: &[(u64, Site, Page)]) -> Result<()> {
        let mut state = self.lock()?;
        while state.is_going(pages.iter().map(|(at, ..)| *at)) {
            state = self.wait(state)?;
        }
        pages.iter().for_each(|(at, ..)| _ = state.dirty.remove(at));
        drop(state);
        self.failing(self.write_pages(pages))
    }

    /// Whether so many pages in memory fit into a record, with the names of so many that are not.
    pub(super) fn fits(&self, overs: u64, spilled: u64) -> bool {
        let ring = &self.records.ring;
        let head = super::head_blocks(overs.saturating_add(spilled).saturating_add(ring.blocks));
        overs <= self.options.overwrites.unwrap_or(u64::MAX) && overs.saturating_add(head) <= ring.blocks
    }

    /// Writes pages that a transaction holds, and that are not fresh, to free blocks, as far as there are any. Its own
    /// thread calls it, or who commits it.
    pub(super) fn spill(&self, tx: Txid, _working: &MutexGuard<'_, ()>) -> Result<()> {
        loop {
            let (places, held) = {
                let mut state = self.lock()?;
                let over = state.get(tx)?.held.iter().filter(|(_, held)| !held.is_fresh).take(AT_ONCE);
                let held: Vec<(u64, Page)> = over.map(|(at, held)| (*at, held.page.clone())).collect();
                let places = state.take_free(held.len() as u64);
                places.clone().zip(&held).for_each(|(at, (home, _))| _ = state.placed.insert(at, (tx, *home)));
                (places, held)
            };
            if places.is_empty() {
                return Ok(());
            }
            let site = self.options.sites.spill;
            let pages: Vec<_> = places.clone().zip(&held).map(|(at, (_, page))| (at, site, page.clone())).collect();
            self.failing(self.write_pages(&pages))?;
            self.failing(self.fence_own())?;
            let mut state = self.lock()?;
            for (at, (home, page)) in places.zip(&held) {
                state.let_go(tx, *home)?;
                let active = state.get(tx)?;
                active.blocks.set(*home..home + 1, At::Spilled);
                active.spilled.insert(*home, Place { at, sum: self.sum(*home, &page[..]) });
                state.spilled += 1;
            }
        }
    }

    /// Writes a page again that was spilled.
    pub(super) fn spill_again(&self, tx: Txid, home: u64, page: &Page) -> Result<()> {
        let _working = self.working.lock().unwrap();
        let place = {
            let mut state = self.lock()?;
            let active = state.get(tx)?;
            match active.spilled.get(&home) {
                Some(place) => *place,
                // The owner of the block has taken it: the page is in memory again.
                None => return state.hold_again(tx, home, page),
            }
        };
        self.failing(self.write_pages(&[(place.at, self.options.sites.spill, page.clone())]))?;
        self.failing(self.fence_own())?;
        let place = Place { sum: self.sum(home, &page[..]), ..place };
        self.lock()?.get(tx)?.spilled.insert(home, place);
        Ok(())
    }

    /// The owner of blocks is about to write them: they stop being free, and pages that were spilled to them go
    /// elsewhere.
    ///
    /// # Errors
    /// `NoSpace`: there is no place for one of these pages; it stays.
    pub(super) fn claim(&self, run: Run) -> Result<()> {
        let blocks = run.start.0..run.start.0 + run.count;
        let mut working = None;
        loop {
            let found = {
                let mut state = self.lock()?;
                // In each round: a transaction that has dropped its page meanwhile has made the block free again.
                state.free.clear(blocks.clone());
                state.placed.range(blocks.clone()).next().map(|(at, of)| (*at, *of))
            };
            let Some((at, (tx, home))) = found else { return Ok(()) };
            match &working {
                // While no commit is under way, what is spilled is of running transactions, and only grows less.
                None => working = Some(self.working.lock().unwrap()),
                Some(working) => self.move_spilled(at, tx, home, working)?,
            }
        }
    }

    /// Brings a spilled page to another free block, or back into memory, unless its transaction drops it meanwhile.
    fn move_spilled(&self, at: u64, tx: Txid, home: u64, _working: &MutexGuard<'_, ()>) -> Result<()> {
        let (place, to) = {
            let mut state = self.lock()?;
            let Some(place) = state.place_of(tx, home).filter(|place| place.at == at) else {
                state.vacate(at);
                return Ok(());
            };
            let to = state.take_free(1).next();
            to.into_iter().for_each(|to| _ = state.placed.insert(to, (tx, home)));
            (place, to)
        };
        let moved = self.spilled_page(home, place).and_then(|page| {
            if let Some(to) = to {
                self.failing(self.write_pages(&[(to, self.options.sites.spill, page.clone())]))?;
                self.failing(self.fence_own())?;
            }
            Ok(page)
        });
        let mut state = self.lock()?;
        let is_there = state.place_of(tx, home) == Some(place);
        match (moved, to) {
            (Ok(_), Some(to)) if is_there => {
                state.get(tx)?.spilled.insert(home, Place { at: to, ..place });
                state.vacate(at);
            }
            (Ok(page), None) if is_there => {
                if !self.fits(state.overs + 1, state.spilled - 1) {
                    return Err(Error::NoSpace("free blocks for what running transactions have written".into()));
                }
                state.take_back(tx, home)?;
                state.hold(tx, home, Held { page, site: self.options.sites.spill, is_fresh: false })?;
            }
            (moved, to) => {
                to.into_iter().for_each(|to| state.vacate(to));
                return if is_there { moved.map(drop) } else { Ok(()) };
            }
        }
        Ok(())
    }
}

impl super::state::State {
    fn place_of(&self, tx: Txid, home: u64) -> Option<Place> {
        self.active.get(&tx)?.spilled.get(&home).copied()
    }

    fn hold_again(&mut self, tx: Txid, home: u64, page: &Page) -> Result<()> {
        if let Some(held) = self.get(tx)?.held.get_mut(&home) {
            held.page = page.clone();
        }
        Ok(())
    }
}
