//! Space that the engine holds for committed content which is not at home: it counts as free, and becomes free when a
//! group needs it.

use std::cell::RefCell;

use wholly::Result;

use super::table::Held;
use super::{Core, map};
use crate::engine::{InoGen, Maps};
use crate::format::Lba;

/// Content is written back when less than one in so many blocks is free.
const LOW: u64 = 10;
/// And then until one in so many is, cheapest lists of versions first.
const ENOUGH: u64 = 6;

/// Files of which pointers are swapped at a time, at most.
const MOST_HELD: usize = 1024;

/// Files whose blocks a checkpoint moves.
struct Files<'c> {
    core: &'c Core,
    held: RefCell<Vec<Held<'c>>>,
}

impl Maps for Files<'_> {
    fn swap(
        &self,
        (file, block): (InoGen, u64),
        (from, to): (Lba, Lba),
        store: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<bool> {
        let core = self.core;
        let mut held = self.held.borrow_mut();
        if held.last().is_none_or(|last| last.id.ino != file.ino) {
            if held.len() == MOST_HELD {
                return Ok(false);
            }
            // Another one must not be read from the medium: this one may be about to be freed.
            let Some(found) = core.in_memory(file.ino) else { return Ok(false) };
            held.push(found);
        }
        let Some(inode) = held.last().filter(|inode| inode.id == file) else { return Ok(false) };
        let Ok(mut state) = inode.state.try_write() else { return Ok(false) };
        // A running group has the pointers in its draft, and what it has written is about their homes.
        if state.is_claimed() {
            return Ok(false);
        }
        let (seed, tree) = (core.storage.data_seed(file), state.record.owned.tree);
        core.check_usable()?;
        // Damage is told to those who read the file.
        let found = map::swapped(&*core.engine, seed, &tree, block, (from, to)).ok().flatten();
        let Some((at, word)) = found else { return Ok(false) };
        state.pieces.clear();
        store(at, word)?;
        Ok(true)
    }
}

impl Core {
    /// Blocks that are free, or can be.
    pub fn free_blocks(&self) -> u64 {
        self.blocks.free() + self.engine.pending_blocks()
    }

    /// Lets the engine write back so much that `wanted` blocks become free, or all that it has. It may be called with
    /// any locks of the core held.
    ///
    /// # Errors
    /// The medium's: the volume has failed then.
    pub fn checkpoint(&self, wanted: u64) -> Result<()> {
        // Files are let go when the engine has finished: that may free one, in a group of its own.
        self.check_usable()?;
        let files = Files { core: self, held: RefCell::default() };
        // Nobody takes blocks that are in no account for a lack of space.
        let _alone = self.accounts.lock().unwrap();
        let runs = self.engine.checkpoint(wanted, &files).inspect_err(|error| self.fail(error))?;
        runs.into_iter().for_each(|run| self.blocks.give(run.start.0, run.count));
        Ok(())
    }

    /// Sets blocks aside, if `keep` others stay free. What the engine holds becomes free for that.
    pub fn set_aside(&self, blocks: u64, keep: u64) -> bool {
        while !self.blocks.reserve(blocks, keep) {
            let missing = blocks.saturating_add(keep).saturating_sub(self.blocks.free());
            let held = self.engine.pending_blocks();
            if held == 0 || self.checkpoint(missing.max(1)).is_err() || self.engine.pending_blocks() >= held {
                let _alone = self.accounts.lock().unwrap();
                return self.blocks.reserve(blocks, keep);
            }
        }
        true
    }

    /// Before a call that writes: writes back what is due.
    pub fn make_space(&self) -> Result<()> {
        if self.engine.pending_blocks() == 0 {
            return Ok(());
        }
        let _admitted = self.admit()?;
        if self.engine.is_due() {
            self.checkpoint(0)?;
        }
        let (free, blocks) = (self.blocks.free(), self.blocks.units());
        if free < blocks / LOW && self.engine.pending_blocks() > 0 {
            self.checkpoint(blocks / ENOUGH - free)?;
        }
        Ok(())
    }
}
