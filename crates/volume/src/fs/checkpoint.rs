//! Space that the engine holds for committed content which is not at home: it counts as free, and becomes free when a
//! group needs it.

use std::cell::RefCell;
use std::collections::hash_map::Entry;

use sync::{Mutex, thread};
use wholly_error::Result;

use super::table::{ByNumber, Held};
use super::{Core, map};
use crate::engine::{InoGen, Maps, Reclaim};
use crate::format::{Lba, Run};

/// Content is written back when less than so many percent of the blocks are free.
const LOW: u64 = 10;
/// And then until so many percent are, cheapest lists of versions first.
const ENOUGH: u64 = 15;

/// Locks for swaps: one for each file, or for a few.
pub type Swapping = [Mutex<()>; 16];

/// What one thread of a checkpoint gets from the core.
struct Checkpoint<'c> {
    core: &'c Core,
    wanted: &'c dyn Fn() -> u64,
    /// Files whose blocks it has moved, by inode number: those of the lot, and files without a name to which nothing
    /// else refers.
    held: RefCell<ByNumber<Held<'c>>>,
}

impl Maps for Checkpoint<'_> {
    fn swap(
        &self,
        (file, block): (InoGen, u64),
        (from, to): (Lba, Lba),
        store: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<bool> {
        let core = self.core;
        let mut held = self.held.borrow_mut();
        let inode = match held.entry(file.ino) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match core.noted(file.ino) {
                Some(found) => entry.insert(found),
                None => return Ok(false),
            },
        };
        if inode.id != file {
            return Ok(false);
        }
        // Threads that write the same file back would be in each other's way.
        let _alone = core.swapping[(file.ino % core.swapping.len() as u64) as usize].lock().unwrap();
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

    fn lot_ended(&self) {
        let held = self.held.take();
        let stays = |(ino, held)| self.core.let_go(held).map(|held| (ino, held));
        self.held.replace(held.into_iter().filter_map(stays).collect());
    }
}

impl Reclaim for Checkpoint<'_> {
    fn wanted(&self) -> u64 {
        (self.wanted)()
    }

    fn reclaim(&self, freed: Run) {
        self.core.blocks.give(freed.start.0, freed.count);
    }
}

impl Core {
    /// Blocks that are free, or can be.
    pub fn free_blocks(&self) -> u64 {
        // In this order: what becomes free meanwhile is counted twice rather than not at all.
        self.blocks_freed() + self.engine.pending_blocks() + self.blocks.free()
    }

    /// Lets the engine write back until no more blocks are `wanted`, or it has no more but what other threads are
    /// writing back. It may be called with any locks of the core held.
    ///
    /// # Errors
    /// The medium's: the volume has failed then.
    pub fn checkpoint(&self, wanted: &dyn Fn() -> u64) -> Result<()> {
        // Files are let go when the engine has finished: that may free one, in a group of its own.
        self.check_usable()?;
        let checkpoint = Checkpoint { core: self, wanted, held: RefCell::default() };
        let _counted = self.accounts.read().unwrap();
        self.engine.checkpoint(&checkpoint, &checkpoint).inspect_err(|error| self.fail(error))
    }

    /// Sets blocks aside, if `keep` others stay free. What the engine holds becomes free for that, and what the inode
    /// file does not need.
    pub fn set_aside(&self, blocks: u64, keep: u64) -> bool {
        while !self.set_aside_of_free(blocks, keep) {
            if !matches!(self.give_back_for(blocks.saturating_add(keep)), Ok(true)) {
                return false;
            }
        }
        true
    }

    /// The same, and the inode file gives nothing back.
    pub fn set_aside_of_free(&self, blocks: u64, keep: u64) -> bool {
        let enough = blocks.saturating_add(keep);
        let missing = || enough.saturating_sub(self.blocks.free());
        while !self.blocks.reserve(blocks, keep) {
            if self.back(missing()) || self.wait_for_freed() {
                continue;
            }
            if self.checkpoint(&missing).is_err() {
                return false;
            }
            if missing() > 0 {
                // Blocks that other threads are making free are in no account.
                let _alone = self.accounts.write().unwrap();
                if self.free_blocks() < enough {
                    return false;
                }
            }
            thread::yield_now();
        }
        true
    }

    /// Before a call that writes: writes back what is due. Threads that come while space is short do it together.
    pub fn make_space(&self) -> Result<()> {
        if self.engine.pending_blocks() == 0 && !self.engine.is_due() {
            return Ok(());
        }
        let _admitted = self.admit()?;
        if self.engine.is_due() {
            self.checkpoint(&|| 0)?;
        }
        let percent = |percents: u64| self.blocks.units() * percents / 100;
        let free = || self.blocks.free() + self.backing.missing();
        if free() < percent(LOW) {
            self.checkpoint(&|| percent(ENOUGH).saturating_sub(free()))?;
        }
        Ok(())
    }
}
