//! Groups: what one call changes, with the space that it has reserved (invariants 2 and 3).

use wholly::vfs::GroupId;
use wholly::{Error, Result};

use super::Core;
use crate::engine::{Allocate, DataAt, Durability, Kind, Operation, Part, Placed};
use crate::format::{Lba, Run};

/// Whether a group may use the blocks that are kept for calls that make space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It takes space.
    Ordinary,
    /// It makes space, or its caller cannot go on without.
    Vital,
}

/// Blocks that ordinary groups leave free.
pub const KEPT: u64 = 8;

/// A running group. Without a commit it is dropped: only before its first operation.
pub struct Group<'c> {
    core: &'c Core,
    id: GroupId,
    space: Reserved<'c>,
}

struct Reserved<'c> {
    core: &'c Core,
    blocks: u64,
    freed: Vec<Run>,
    freed_inodes: Vec<u64>,
}

impl Allocate for Reserved<'_> {
    fn take(&mut self, count: u64) -> Run {
        assert!(self.blocks > 0, "a group takes more blocks than it has reserved");
        let (start, count) = self.core.blocks.take(count.min(self.blocks));
        self.blocks -= count;
        Run { start: Lba(start), count }
    }

    fn release(&mut self, run: Run) {
        match self.freed.last_mut() {
            Some(last) if last.start.0 + last.count == run.start.0 => last.count += run.count,
            _ => self.freed.push(run),
        }
    }
}

impl<'c> Group<'c> {
    /// Begins a group that takes at most `blocks` blocks.
    ///
    /// # Errors
    /// `ENOSPC`; if the volume has failed.
    pub fn begin(core: &'c Core, kind: Kind, blocks: u64, need: Need) -> Result<Group<'c>> {
        core.check_usable()?;
        if !core.blocks.reserve(blocks, if need == Need::Vital { 0 } else { KEPT }) {
            return Err(Error::NoSpace(format!("{blocks} blocks")));
        }
        let space = Reserved { core, blocks, freed: Vec::new(), freed_inodes: Vec::new() };
        Ok(Group { core, id: core.engine.begin(kind), space })
    }

    /// Takes up to `count` consecutive blocks of the reservation.
    pub fn take(&mut self, count: u64) -> Run {
        self.space.take(count)
    }

    /// Gives an inode number back at the end.
    pub fn release_inode(&mut self, ino: u64) {
        self.space.freed_inodes.push(ino);
    }

    fn part(&mut self) -> Part<'_> {
        Part { group: self.id, space: &mut self.space }
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn record(&mut self, operation: &Operation<'_>) -> Result<()> {
        let core = self.core;
        core.engine.record(&mut self.part(), operation, &core.storage).inspect_err(|error| core.fail(error))
    }

    /// Writes data.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn write(&mut self, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        let core = self.core;
        core.engine.write(&mut self.part(), at, offset, data).inspect_err(|error| core.fail(error))
    }

    /// Zeros a part of a block.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn zero(&mut self, at: &DataAt, offset: usize, len: usize) -> Result<()> {
        let core = self.core;
        core.engine.zero(&mut self.part(), at, offset, len).inspect_err(|error| core.fail(error))
    }

    /// Commits.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn commit(mut self) -> Result<()> {
        let core = self.core;
        let committed = core.engine.commit(&mut [self.part()], Durability::Durable, &core.storage);
        committed.inspect_err(|error| core.fail(error))?;
        self.settle();
        Ok(())
    }

    /// What the group freed can be given out.
    fn settle(&mut self) {
        for run in std::mem::take(&mut self.space.freed) {
            self.core.blocks.give(run.start.0, run.count);
        }
        for ino in std::mem::take(&mut self.space.freed_inodes) {
            self.core.inodes.give(ino, 1);
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.core.blocks.unreserve(self.blocks);
    }
}
