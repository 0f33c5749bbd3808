//! The inode file gets blocks when numbers are needed, and gives back those without inodes in use when blocks are.
//!
//! # Terms
//!
//! - *block*: here, one of the inode file, with 16 numbers. *Hole*: a block that was given back. Its numbers count as
//!   used until the file gets a block there again.
//! - *idle*: a block without inodes in use, behind the first ones, which stay.
//!
//! # Invariants
//!
//! 1. A number is used from the call that takes it on until the group that frees it has committed, or the one that made
//!    it has aborted. So no running group has changed anything in an idle block, and nobody reads it.
//! 2. Both changes are structure changes, one at a time (`Core::growth`). The numbers of a block are taken before it is
//!    given back, and given out after it is there.
//! 3. Before a block is given back, the generation floor is at least each generation in it, durably with the hole; a
//!    number without a record gets a generation above the floor. So no inode has the number and the generation of an
//!    earlier one.
//! 4. With bitmaps, each of the first threads that make inodes has a *zone* of the file to itself, whose numbers are in
//!    one bitmap block: so files of different threads share no block of inodes and no bitmap block. The file then has
//!    holes before its end. It gets blocks in the zone of the thread that needs numbers, as long as there is space.
//! 5. To give back takes no more than what is kept for calls that make space. It begins only groups of its own, and
//!    never waits for a lock but `growth`: any call may do it before it is refused for want of space. The growth of the
//!    file itself does not: it would wait for itself, and without free numbers no block is idle.

use std::ops::Range;

use sync::{AtomicU64, Ordering, thread_token};
use wholly_error::{Error, Result};

use super::Core;
use super::group::{Group, Need};
use super::mount::FIRST_INODE_BLOCKS;
use crate::engine::{InodeFile, Kind, Logged, Operation, Structure};
use crate::format::BLOCK;
use crate::format::bitmap::UNITS;
use crate::format::inode::{INODE, LINE, Line, Owned, PER_BLOCK};
use crate::format::pointer::{FANOUT, MAX_DEPTH, depth_for, nodes_for};

/// What the inode file does not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// Idle blocks.
    pub blocks: u64,
    /// Nodes of its map that lead to nothing else.
    pub nodes: u64,
}

impl Idle {
    pub fn total(self) -> u64 {
        self.blocks + self.nodes
    }
}

/// The blocks of the inode file whose numbers are in one bitmap block.
fn blocks_of(zone: u64) -> Range<u64> {
    zone * UNITS / PER_BLOCK..(zone + 1) * UNITS / PER_BLOCK
}

/// Which thread has which zone.
#[derive(Default)]
pub struct ThreadZones([AtomicU64; 4]);

impl ThreadZones {
    /// That of the calling thread, of the first so many. Threads that come later share one.
    fn of_thread(&self, zones: u64) -> u64 {
        let (token, zones) = (thread_token() + 1, zones.min(self.0.len() as u64));
        let owner = |zone: &u64| self.0[*zone as usize].load(Ordering::Relaxed);
        let free = |zone: &u64| {
            let owner = &self.0[*zone as usize];
            owner.compare_exchange(0, token, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        (0..zones).find(|zone| owner(zone) == token).or_else(|| (0..zones).find(free)).unwrap_or(token % zones)
    }
}

impl Core {
    /// A number for a new inode.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn take_inode(&self) -> Result<u64> {
        let zone = self.bitmaps().map(|layout| self.zones.of_thread(layout.pairs()));
        if let Some(zone) = zone.filter(|zone| self.inodes.free_in(*zone) == 0) {
            let _growing = self.growth.lock().unwrap();
            if self.inodes.free_in(zone) == 0 {
                match self.grow_inode_file(Some(zone)) {
                    // A number of another zone will do.
                    Ok(()) | Err(Error::NoSpace(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        while !self.inodes.reserve(1, 0) {
            let _growing = self.growth.lock().unwrap();
            if self.inodes.free() == 0 {
                // One that was freed may have become free meanwhile.
                let grown = self.grow_inode_file(None);
                if self.inodes.free() == 0 {
                    grown?;
                }
            }
        }
        Ok(zone.map_or_else(|| self.inodes.take(1), |zone| self.inodes.take_from(zone, 1)).0)
    }

    /// Gives the file blocks: in a zone, or where there are holes, or at its end.
    fn grow_inode_file(&self, zone: Option<u64>) -> Result<()> {
        let (depth, end) = (self.storage.inode_tree().depth, self.holes.units());
        let wanted = ((end - self.holes.free()) / 8).clamp(4, 256);
        let mut refused = Error::NoSpace("inodes".into());
        for most in [wanted, 1] {
            let holes = self.holes.free().min(most);
            let taken = match (self.holes.reserve(holes, 0) && holes > 0, zone) {
                (true, None) => Some(self.holes.take(holes)),
                (true, Some(zone)) => self.holes.take_within(blocks_of(zone), holes),
                (false, _) => None,
            };
            self.holes.unreserve(holes.saturating_sub(taken.map_or(0, |(_, blocks)| blocks)));
            // Holes stay between the end and a zone behind it.
            let behind = (zone.map_or(end, |zone| blocks_of(zone).start.max(end)), most);
            let (first, blocks) = taken.unwrap_or(behind);
            if zone.is_some_and(|zone| first + blocks > blocks_of(zone).end) {
                refused = Error::NoSpace("inodes of a zone".into());
                continue;
            }
            if self.storage.bitmaps.is_some_and(|it| (first + blocks) * PER_BLOCK > it.most_inodes(self.blocks.units()))
            {
                refused = Error::NoSpace("inodes: the bitmaps have no room for more".into());
                continue;
            }
            let last = first + blocks - 1;
            let nodes = nodes_for(depth, depth_for(last).max(depth), first, last);
            match Group::begin_of_free(self, Kind::Structure, blocks + nodes, Need::Ordinary, Logged::default()) {
                Ok(mut group) => {
                    group.record(&Operation::Structure(Structure::GrowInodes { first, blocks }))?;
                    self.unawaited(|| group.commit())?;
                    self.holes.grow(first + blocks);
                    if first > end {
                        self.holes.give(end, first - end);
                    }
                    self.inodes.grow((first + blocks) * PER_BLOCK);
                    self.inodes.give(first * PER_BLOCK, blocks * PER_BLOCK);
                    return Ok(());
                }
                Err(error) => refused = error,
            }
            if taken.is_some() {
                self.holes.give(first, blocks);
            }
        }
        Err(refused)
    }

    /// What the inode file can give back.
    pub fn idle(&self) -> Idle {
        if self.inodes.free() < PER_BLOCK {
            return Idle::default();
        }
        let (mut idle, mut needed, mut last) = (0, 0, 0);
        // The nodes of the map that are needed, by level, and the one that was counted last.
        let mut nodes = [(0, None); MAX_DEPTH as usize];
        self.each_block(|block, is_idle| {
            if is_idle {
                idle += 1;
                return;
            }
            (needed, last) = (needed + 1, block);
            for ((count, known), level) in nodes.iter_mut().zip(1u32..) {
                let node = Some(block / FANOUT.pow(level));
                *count += u64::from(*known != node);
                *known = node;
            }
        });
        let depth = usize::from(depth_for(last));
        let of_nodes: u64 = nodes[..depth].iter().map(|(count, _)| count).sum();
        let nodes = self.storage.inode_tree().blocks.saturating_sub(idle + needed + of_nodes);
        Idle { blocks: idle, nodes }
    }

    /// Calls `each` with the blocks that are there, and whether they are idle.
    fn each_block(&self, mut each: impl FnMut(u64, bool)) {
        const IN_WORD: u64 = u64::BITS as u64 / PER_BLOCK;
        self.inodes.each_word(|number, word| {
            for i in 0..IN_WORD {
                let (block, used) = (number * IN_WORD + i, word >> (i * PER_BLOCK) as u32 & 0xffff);
                // The numbers of a hole count as used.
                if block < self.holes.units() && (used != 0xffff || self.holes.is_used(block)) {
                    each(block, used == 0 && block >= FIRST_INODE_BLOCKS);
                }
            }
        });
    }

    /// Gives back idle blocks until so many blocks of the volume are free. Returns whether that may be so now: other
    /// threads take some meanwhile, and give some back.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn give_back_for(&self, enough: u64) -> Result<bool> {
        let _growing = self.growth.lock().unwrap();
        if self.blocks.free() >= enough || self.wait_for_freed() {
            return Ok(true);
        }
        if self.free_blocks() + self.idle().total() < enough {
            return Ok(false);
        }
        self.give_back(&|| self.blocks_freed() + self.blocks.free() >= enough)
    }

    /// Gives back all idle blocks for which there is the space to do so. The caller has shut the gate.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn give_back_all(&self) -> Result<()> {
        let _growing = self.growth.lock().unwrap();
        self.give_back(&|| false).map(drop)
    }

    /// The caller has the lock for growth. Returns whether anything was given back.
    fn give_back(&self, is_enough: &dyn Fn() -> bool) -> Result<bool> {
        let mut idle = Vec::new();
        self.each_block(|block, is_idle| {
            if is_idle {
                idle.push(block);
            }
        });
        let mut has_given = false;
        for lot in idle.chunk_by(|one, next| one / FANOUT == next / FANOUT) {
            if is_enough() {
                break;
            }
            has_given |= self.give_back_lot(lot)?;
        }
        Ok(has_given)
    }

    /// Gives back blocks of one node, as far as they are idle still.
    fn give_back_lot(&self, blocks: &[u64]) -> Result<bool> {
        let mut floor = self.storage.map().generation_floor;
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &block in blocks {
            if !self.inodes.reserve(PER_BLOCK, 0) {
                break;
            }
            if !self.inodes.take_all(block * PER_BLOCK, PER_BLOCK) {
                self.inodes.unreserve(PER_BLOCK);
                continue;
            }
            match self.highest_generation(block)? {
                Some(highest) => floor = floor.max(highest),
                None => {
                    self.inodes.give(block * PER_BLOCK, PER_BLOCK);
                    continue;
                }
            }
            match runs.last_mut() {
                Some((first, count)) if *first + *count == block => *count += 1,
                _ => runs.push((block, 1)),
            }
        }
        if runs.is_empty() {
            return Ok(false);
        }
        // At most all pointers of a node change, and those above it.
        let logged = Logged { pointers: FANOUT, ..Logged::default() };
        let begun = Group::begin_of_free(self, Kind::Structure, 0, Need::Admitted, logged);
        let mut group = match begun {
            Ok(group) => group,
            Err(error) => {
                runs.iter().for_each(|(first, count)| self.inodes.give(first * PER_BLOCK, count * PER_BLOCK));
                return if matches!(error, Error::NoSpace(_)) { Ok(false) } else { Err(error) };
            }
        };
        group.record(&Operation::GiveBack { blocks: &runs, generation_floor: floor })?;
        self.unawaited(|| group.commit())?;
        runs.iter().for_each(|(first, count)| self.holes.give(*first, *count));
        Ok(true)
    }

    /// The highest generation of the numbers of a block, at least 1. `None`: it must stay, as a record is damaged, or
    /// no generation is higher.
    fn highest_generation(&self, block: u64) -> Result<Option<u32>> {
        let (lba, _) = self.storage.place(&*self.engine, block * PER_BLOCK)?;
        let mut bytes = [0; BLOCK];
        self.engine.load(lba, 0, &mut bytes)?;
        let mut highest = 1;
        for (raw, ino) in bytes.chunks_exact(INODE).zip(block * PER_BLOCK..) {
            let line = raw[..LINE].try_into().expect("a line");
            match Owned::decode(self.storage.seed, ino, line) {
                Ok(owned) if owned.mode == 0 && owned.generation < u32::MAX => highest = highest.max(owned.generation),
                _ => return Ok(None),
            }
        }
        Ok(Some(highest))
    }
}
