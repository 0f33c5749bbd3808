//! Space that the engine holds for committed content which is not at home: it counts as free, and becomes free when a
//! group needs it.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::Entry;

use sync::{Mutex, thread};
use wholly_error::Result;

use super::checkpointers::Why;
use super::table::Held;
use super::{Core, map};
use crate::engine::{InoGen, Maps, Reclaim};
use crate::format::by_number::ByNumber;
use crate::format::log::LINE;
use crate::format::{BLOCK, Lba, Run};

/// Content is written back when less than so many percent of the blocks are free.
const LOW: u64 = 10;
/// And then until so many percent are, cheapest lists of versions first.
const ENOUGH: u64 = 15;
/// Lines that a thread in the background stores before it looks up.
pub const A_LITTLE: u64 = 128;

/// Locks for swaps: one for each file, or for a few.
pub type Swapping = [Mutex<()>; 16];

/// What one thread of a checkpoint gets from the core.
struct Checkpoint<'c> {
    core: &'c Core,
    wanted: &'c dyn Fn() -> u64,
    /// Lines that it may store yet, and whether it was not asked yet.
    left: Cell<(u64, bool)>,
    freed: Cell<u64>,
    /// Files whose blocks it has moved, by inode number: those of the lot, and files without a name to which nothing
    /// else refers.
    held: RefCell<ByNumber<Held<'c>>>,
}

impl<'c> Checkpoint<'c> {
    /// The inode of a file, held until the lot has ended; none if it is gone, or going.
    fn inode<'h>(&self, held: &'h mut ByNumber<Held<'c>>, file: InoGen) -> Option<&'h mut Held<'c>> {
        let inode = match held.entry(file.ino) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.core.noted(file.ino)?),
        };
        (inode.id == file).then_some(inode)
    }
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
        let Some(inode) = self.inode(&mut held, file) else { return Ok(false) };
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
        store(at, word)?;
        state.pieces.moved(block, to);
        Ok(true)
    }

    fn may_swap(&self, file: InoGen) -> bool {
        let mut held = self.held.borrow_mut();
        let inode = self.inode(&mut held, file);
        inode.is_some_and(|inode| inode.state.try_read().is_ok_and(|state| !state.is_claimed()))
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

    fn allows(&self, lines: u64) -> bool {
        let (left, is_first) = self.left.get();
        // One block at least, whatever it costs: else one could wait for ever.
        let allows = lines <= left || is_first;
        if allows {
            self.left.set((left.saturating_sub(lines), false));
        }
        allows
    }

    fn reclaim(&self, freed: Run) {
        self.freed.set(self.freed.get() + freed.count);
        self.core.blocks.give(freed.start.0, freed.count);
    }
}

impl Core {
    /// Blocks that are free, or can be.
    pub fn free_blocks(&self) -> u64 {
        // In this order: what becomes free meanwhile is counted twice rather than not at all.
        self.blocks_freed() + self.engine.pending_blocks() + self.blocks.free()
    }

    /// Lets the engine write back until no more blocks are `wanted`, it has stored `most` lines, or it has no more but
    /// what other threads are writing back. It may be called with any locks of the core held. Returns how many blocks
    /// have become free.
    ///
    /// # Errors
    /// The medium's: the volume has failed then.
    pub fn checkpoint(&self, wanted: &dyn Fn() -> u64, most: u64) -> Result<u64> {
        // Files are let go when the engine has finished: that may free one, in a group of its own.
        self.check_usable()?;
        let (left, freed) = (Cell::new((most, true)), Cell::new(0));
        let checkpoint = Checkpoint { core: self, wanted, left, freed, held: RefCell::default() };
        let _counted = self.accounts.read().unwrap();
        self.engine.checkpoint(&checkpoint, &checkpoint).inspect_err(|error| self.fail(error))?;
        Ok(checkpoint.freed.get())
    }

    /// Waits for what other threads are writing back now.
    pub fn await_checkpoints(&self) {
        drop(self.accounts.write().unwrap());
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
            // The host is asked for space only if that may do.
            let may_do = |free: u64| free + self.backing.missing() >= enough;
            let is_asked = may_do(self.free_blocks());
            if is_asked && self.back(missing()) || self.wait_for_freed() {
                continue;
            }
            if self.checkpoint(&missing, u64::MAX).is_err() {
                return false;
            }
            if missing() > 0 {
                // Blocks that other threads are making free are in no account.
                let _alone = self.accounts.write().unwrap();
                let free = self.free_blocks();
                if free < enough && (is_asked || !may_do(free)) {
                    return false;
                }
            }
            thread::yield_now();
        }
        true
    }

    /// How many blocks are to become free, if less than so many percent are.
    fn missing_below(&self, percents: u64) -> u64 {
        let percent = |percents: u64| self.blocks.units() * percents / 100;
        let free = self.blocks.free() + self.backing.missing();
        if free < percent(percents) { percent(ENOUGH) - free } else { 0 }
    }

    /// Before a call that writes so many bytes: writes back what is due, and where space is short and no other thread
    /// makes some, a share: as many lines as are twice the call's own, and a block more.
    pub fn make_space(&self, bytes: usize) -> Result<()> {
        let is_due = self.engine.is_due();
        if self.engine.pending_blocks() == 0 && !is_due {
            return Ok(());
        }
        let _admitted = self.admit()?;
        let mut low = LOW;
        if self.checkpointers.are_there() {
            if self.missing_below(LOW) > 0 {
                self.checkpointers.hurry();
            }
            low = LOW / 2;
        }
        let is_low = self.missing_below(low) > 0;
        if is_low || is_due {
            // Its content, a head for each block, and what commits it.
            let own = (bytes / LINE + bytes / BLOCK) as u64 + 3;
            let wanted = || if is_low { self.missing_below(ENOUGH) } else { 0 };
            self.checkpoint(&wanted, 2 * own + (BLOCK / LINE) as u64)?;
        }
        Ok(())
    }

    /// What a thread does at a time in the background: it stores `most` lines, or writes one block of content back if
    /// that takes more. Returns whether there may be more to do.
    ///
    /// # Errors
    /// The medium's: the volume has failed then. If it is being closed.
    pub fn checkpoint_a_little(&self, why: Why, most: u64) -> Result<bool> {
        let _admitted = self.admit()?;
        let wanted = || match why {
            Why::IsIdle => self.engine.pending_blocks(),
            Why::IsLow => self.missing_below(ENOUGH),
        };
        Ok(wanted() > 0 && self.checkpoint(&wanted, most)? > 0)
    }

    pub(super) fn is_low(&self) -> bool {
        self.engine.pending_blocks() > 0 && self.missing_below(LOW) > 0
    }
}
