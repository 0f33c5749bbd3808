//! Erase blocks: what they are for, what is valid in them, and where the next page goes.

use std::collections::{BTreeMap, BTreeSet};

use super::flash::{Geometry, Ppn};
use super::map;
use super::profile::Config;

/// Blocks of the ring of roots: the first ones.
pub(super) const RING: u32 = 2;

/// Who names a flash page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Nobody,
    /// The map, for this logical page.
    Map(u32),
    /// A running transaction, by its slot, for this logical page.
    Running(u32, u32),
    /// A directory page, for this table.
    Table(u32),
    /// The root, for this directory page.
    Directory(u32),
    /// It is a page of a chain that is not in the map on flash.
    Chain,
}

const SLOTS: u32 = 24;

impl Owner {
    fn pack(self) -> u64 {
        match self {
            Owner::Nobody => 0,
            Owner::Map(lpn) => 1 << 60 | u64::from(lpn),
            Owner::Running(slot, lpn) => {
                assert!(slot < 1 << SLOTS, "no more transactions can run at once");
                2 << 60 | u64::from(slot) << 32 | u64::from(lpn)
            }
            Owner::Table(table) => 3 << 60 | u64::from(table),
            Owner::Directory(directory) => 4 << 60 | u64::from(directory),
            Owner::Chain => 5 << 60,
        }
    }

    fn unpack(packed: u64) -> Owner {
        let index = packed as u32;
        match packed >> 60 {
            1 => Owner::Map(index),
            2 => Owner::Running((packed >> 32) as u32 & ((1 << SLOTS) - 1), index),
            3 => Owner::Table(index),
            4 => Owner::Directory(index),
            5 => Owner::Chain,
            _ => Owner::Nobody,
        }
    }
}

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Erased.
    Free,
    /// Content of logical pages.
    Data,
    /// Table, directory and chain pages.
    System,
    /// Nothing in it is valid; it waits for a root.
    Waiting,
    /// Roots.
    Ring,
}

/// For what pages are programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Data,
    System,
}

/// How the blocks are divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub data: u32,
    /// For table, directory and chain pages; what of it is not in use is kept free.
    pub system: u32,
    /// Blocks with table and directory pages from which on a checkpoint stores all of them anew.
    pub tables: u32,
    /// Pages of chains between two checkpoints.
    pub chain: u64,
}

impl Budget {
    pub fn of(config: &Config, geometry: &Geometry) -> Budget {
        let Geometry { channels, blocks, pages } = *geometry;
        let (tables, _) = Budget::table_blocks(config, blocks, channels, pages);
        Budget {
            data: config.data_blocks,
            system: Budget::system_for(config, blocks, channels, pages),
            tables,
            chain: u64::from(config.chain_blocks) * u64::from(pages),
        }
    }

    /// Blocks from which on all tables are stored anew, and blocks that this takes. Each channel has one that is not
    /// full.
    fn table_blocks(config: &Config, blocks: u32, channels: u32, pages: u32) -> (u32, u32) {
        let (tables, directories) = map::counts(config.logical, blocks);
        let all = (tables + directories).div_ceil(pages as usize) as u32 + channels;
        (all + 1, all)
    }

    fn system_for(config: &Config, blocks: u32, channels: u32, pages: u32) -> u32 {
        let (tables, all) = Budget::table_blocks(config, blocks, channels, pages);
        // Just below the bound, what one checkpoint adds, and what the next one does that stores all anew.
        tables + 2 * all + config.chain_blocks
    }

    /// Data blocks that there may be while there is to be room for so many pages of chains: beyond their own blocks,
    /// chains take some of these.
    pub fn data_blocks(&self, geometry: &Geometry, chain: u64) -> u32 {
        let beyond = chain.saturating_sub(self.chain).div_ceil(u64::from(geometry.pages));
        self.data.saturating_sub(beyond as u32)
    }

    /// The most pages of content that data blocks may hold then. Those that are not full may have no valid page.
    pub fn room(&self, geometry: &Geometry, chain: u64) -> u64 {
        let full = self.data_blocks(geometry, chain).saturating_sub(geometry.channels + 1);
        u64::from(full) * u64::from(geometry.pages)
    }

    /// How many versions of running transactions there is room for beside all logical pages, even if each is of another
    /// transaction, with a chain of its own.
    pub fn sure_overwrites(&self, config: &Config, geometry: &Geometry) -> u64 {
        let logical = u64::from(config.logical);
        let (mut sure, mut not) = (0, self.room(geometry, 0).saturating_sub(logical) + 1);
        while not - sure > 1 {
            let half = sure.midpoint(not);
            // One more for what was trimmed, and one for the entries that a write may add by dividing a run.
            match logical + half <= self.room(geometry, half + 2) {
                true => sure = half,
                false => not = half,
            }
        }
        sure
    }

    /// System blocks of a device whose blocks are not yet counted.
    pub fn system_blocks(config: &Config, channels: u32, pages: u32) -> u32 {
        let mut blocks = 0;
        loop {
            let system = Budget::system_for(config, blocks, channels, pages);
            let all = RING + config.data_blocks + 1 + config.reserve + system + channels;
            if all <= blocks {
                return system;
            }
            blocks = all;
        }
    }
}

/// A block that is not full.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    next: u32,
}

/// All erase blocks.
pub(super) struct Space {
    geometry: Geometry,
    owners: Vec<u64>,
    valid: Vec<u32>,
    uses: Vec<Use>,
    /// Blocks from which the medium did not read a page that is valid, and that page: they are not collected while
    /// anything in them is valid, in this life.
    stuck: BTreeMap<u32, Ppn>,
    /// Erased blocks of each channel, the one with the fewest erases first.
    free: Vec<BTreeSet<(u32, u32)>>,
    open: [Vec<Option<Open>>; 2],
    turn: [usize; 2],
    counts: [u32; 5],
}

fn number(of: Use) -> usize {
    match of {
        Use::Free => 0,
        Use::Data => 1,
        Use::System => 2,
        Use::Waiting => 3,
        Use::Ring => 4,
    }
}

impl Space {
    /// With no block in use.
    pub fn new(geometry: Geometry) -> Space {
        let blocks = geometry.blocks as usize;
        let channels = geometry.channels as usize;
        let mut space = Space {
            geometry,
            owners: vec![0; geometry.all() as usize],
            valid: vec![0; blocks],
            uses: vec![Use::Waiting; blocks],
            stuck: BTreeMap::new(),
            free: vec![BTreeSet::new(); channels],
            open: [vec![None; channels], vec![None; channels]],
            turn: [0; 2],
            counts: [0, 0, 0, geometry.blocks, 0],
        };
        (0..RING).for_each(|block| space.set_use(block, Use::Ring));
        space
    }

    /// How many blocks are for this.
    pub fn count(&self, of: Use) -> u32 {
        self.counts[number(of)]
    }

    pub fn set_use(&mut self, block: u32, to: Use) {
        let old = std::mem::replace(&mut self.uses[block as usize], to);
        self.counts[number(old)] -= 1;
        self.counts[number(to)] += 1;
    }

    /// A block was erased.
    pub fn release(&mut self, block: u32, erases: u32) {
        assert_eq!(self.valid[block as usize], 0, "a block with valid pages was erased");
        self.set_use(block, Use::Free);
        self.stuck.remove(&block);
        self.free[self.geometry.channel_of(block)].insert((erases, block));
    }

    pub fn owner(&self, at: Ppn) -> Owner {
        Owner::unpack(self.owners[at.0 as usize])
    }

    pub fn valid(&self, block: u32) -> u32 {
        self.valid[block as usize]
    }

    /// Says who names a page.
    pub fn set_owner(&mut self, at: Ppn, owner: Owner) {
        let packed = &mut self.owners[at.0 as usize];
        let valid = &mut self.valid[at.0 as usize / self.geometry.pages as usize];
        *valid -= u32::from(*packed != 0);
        *packed = owner.pack();
        *valid += u32::from(*packed != 0);
    }

    /// The block of a page that the medium does not read is not to be collected.
    pub fn stick(&mut self, at: Ppn) {
        self.stuck.insert(self.geometry.block_of(at), at);
    }

    /// How many blocks cannot be collected, and a page that the medium did not read.
    pub fn stuck(&self) -> Option<(usize, Ppn)> {
        let stuck = || self.stuck.iter().filter(|(block, _)| self.valid[**block as usize] > 0);
        stuck().next().map(|(_, at)| (stuck().count(), *at))
    }

    /// Invalid pages that cannot be collected.
    pub fn stuck_pages(&self) -> u64 {
        self.stuck.keys().map(|block| u64::from(self.geometry.pages - self.valid[*block as usize])).sum()
    }

    /// Whether a block is open.
    fn is_open(&self, block: u32) -> bool {
        let channel = self.geometry.channel_of(block);
        self.open.iter().any(|open| open[channel].is_some_and(|open| open.block == block))
    }

    /// Blocks that are not full.
    pub fn open_blocks(&self) -> Vec<u32> {
        self.open.iter().flatten().flatten().map(|open| open.block).collect()
    }

    /// A block for the next page, on the channel whose turn it is, or the next one that can. `may_open`: a block may be
    /// opened if the channel's is full. `eager`: rather that than to go to another channel.
    pub fn next(&mut self, stream: Stream, may_open: bool, eager: bool) -> Option<Ppn> {
        let channels = self.geometry.channels as usize;
        let passes: &[(bool, bool)] = match (may_open, eager) {
            (true, true) => &[(true, true)],
            (true, false) => &[(true, false), (false, true)],
            (false, _) => &[(true, false)],
        };
        for (has_room, opens) in passes {
            for step in 0..channels {
                let channel = (self.turn[stream as usize] + step) % channels;
                if *has_room && self.open[stream as usize][channel].is_some()
                    || *opens && self.open_block(stream, channel)
                {
                    self.turn[stream as usize] = (channel + 1) % channels;
                    return Some(self.take(stream, channel));
                }
            }
        }
        None
    }

    /// Whether the next page of host data opens a block, if it stays on its channel.
    pub fn opens_next(&self, stream: Stream) -> bool {
        self.open[stream as usize][self.turn[stream as usize]].is_none()
    }

    fn open_block(&mut self, stream: Stream, channel: usize) -> bool {
        let Some((_, block)) = self.free[channel].pop_first() else { return false };
        self.set_use(block, if stream == Stream::Data { Use::Data } else { Use::System });
        self.open[stream as usize][channel] = Some(Open { block, next: 0 });
        true
    }

    fn take(&mut self, stream: Stream, channel: usize) -> Ppn {
        let open = &mut self.open[stream as usize][channel];
        let Open { block, next } = open.expect("an open block");
        *open = (next + 1 < self.geometry.pages).then_some(Open { block, next: next + 1 });
        self.geometry.page(block, next)
    }

    /// The data block that has the fewest valid pages, of those that are full; of equal ones the first. `None` if all
    /// pages are valid.
    pub fn victim(&self) -> Option<u32> {
        let is_full = |block: &u32| {
            let is_stuck = self.stuck.contains_key(block) && self.valid[*block as usize] > 0;
            self.uses[*block as usize] == Use::Data && !is_stuck && !self.is_open(*block)
        };
        let least = (RING..self.geometry.blocks).filter(is_full).min_by_key(|block| self.valid[*block as usize])?;
        (self.valid[least as usize] < self.geometry.pages).then_some(least)
    }

    /// System blocks, full or not, in which a table or directory page is valid.
    pub fn blocks_of_tables(&self) -> u32 {
        let has_tables = |block: &u32| {
            self.geometry.pages_of(*block).any(|at| matches!(self.owner(at), Owner::Table(_) | Owner::Directory(_)))
        };
        (RING..self.geometry.blocks)
            .filter(|block| self.uses[*block as usize] == Use::System && self.valid[*block as usize] > 0)
            .filter(has_tables)
            .count() as u32
    }

    /// Blocks to be erased after a root: those that waited, and system blocks in which nothing is valid.
    pub fn dead(&self) -> Vec<u32> {
        let is_dead = |block: &u32| match self.uses[*block as usize] {
            Use::Waiting => true,
            Use::System => self.valid[*block as usize] == 0 && !self.is_open(*block),
            _ => false,
        };
        (RING..self.geometry.blocks).filter(is_dead).collect()
    }

    /// Blocks in which pages of running transactions are.
    pub fn blocks_of_running(&self) -> Vec<u32> {
        let runs = |block: &u32| self.geometry.pages_of(*block).any(|at| matches!(self.owner(at), Owner::Running(..)));
        (RING..self.geometry.blocks).filter(|block| self.uses[*block as usize] == Use::Data).filter(runs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_packed_and_unpacked() {
        let owners = [
            Owner::Nobody,
            Owner::Map(0),
            Owner::Map(u32::MAX),
            Owner::Running(0, 0),
            Owner::Running((1 << SLOTS) - 1, u32::MAX),
            Owner::Table(9),
            Owner::Directory(0),
            Owner::Chain,
        ];
        owners.iter().for_each(|owner| assert_eq!(Owner::unpack(owner.pack()), *owner));
    }
}
