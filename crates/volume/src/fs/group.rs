//! Groups: what one call changes, with the space that it has reserved (invariants 2 and 3).

use std::sync::RwLockReadGuard;

use wholly::vfs::GroupId;
use wholly::{Error, Result};

use super::Core;
use crate::engine::draft::Draft;
use crate::engine::{Allocate, DataAt, Durability, Kind, Load, Logged, Operation, Part, Placed};
use crate::format::pointer::{FANOUT, MAX_DEPTH};
use crate::format::{Lba, Run};

/// Whether a group may use the blocks that are kept for calls that make space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It takes space.
    Ordinary,
    /// It makes space, or its caller cannot go on without.
    Vital,
    /// The same, and its caller keeps an unmount waiting, or is one.
    Admitted,
}

/// Blocks that ordinary groups leave free, besides those for what a group may log.
const KEPT: u64 = 8;

impl Core {
    /// Blocks that ordinary groups leave free: enough to punch a hole, at least.
    pub fn kept(&self) -> u64 {
        let pointers = 2 * u64::from(MAX_DEPTH) * FANOUT;
        KEPT + self.engine.log_blocks(Logged { pointers, bytes: 0 })
    }
}

/// A running group. Without a commit it is aborted; after its first operation that poisons the volume, because memory
/// has what the group was to change, and an engine may have stored it. What is read for the group is read through it:
/// it has what the engine has not stored yet.
pub struct Group<'c> {
    core: &'c Core,
    id: GroupId,
    space: Reserved<'c>,
    draft: Draft,
    is_recorded: bool,
    is_committed: bool,
    _admitted: Option<RwLockReadGuard<'c, ()>>,
}

struct Reserved<'c> {
    core: &'c Core,
    blocks: u64,
    taken: Vec<Run>,
    freed: Vec<Run>,
    freed_inodes: Vec<u64>,
}

impl Allocate for Reserved<'_> {
    fn take(&mut self, count: u64) -> Run {
        assert!(self.blocks > 0, "a group takes more blocks than it has reserved");
        let (start, count) = self.core.blocks.take(count.min(self.blocks));
        self.blocks -= count;
        self.taken.push(Run { start: Lba(start), count });
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
    /// `ENOSPC`; if the volume has failed, or is being unmounted.
    pub fn begin(core: &'c Core, kind: Kind, blocks: u64, need: Need) -> Result<Group<'c>> {
        Self::begin_logging(core, kind, blocks, need, Logged::default())
    }

    /// [`begin`](Self::begin) for a group that changes more than a few inodes, names and the pointers of what it takes.
    ///
    /// # Errors
    /// As `begin`.
    pub fn begin_logging(core: &'c Core, kind: Kind, blocks: u64, need: Need, logged: Logged) -> Result<Group<'c>> {
        let admitted = match need {
            Need::Ordinary | Need::Vital => Some(core.admit()?),
            Need::Admitted => core.check_usable().map(|()| None)?,
        };
        // Pointers of what it takes may be far from each other: each is logged by itself.
        let pointers = logged.pointers.saturating_add(blocks.saturating_mul(4));
        let blocks = blocks.saturating_add(core.engine.log_blocks(Logged { pointers, ..logged }));
        if !core.set_aside(blocks, if need == Need::Ordinary { core.kept() } else { 0 }) {
            return Err(Error::NoSpace(format!("{blocks} blocks")));
        }
        let space = Reserved { core, blocks, taken: Vec::new(), freed: Vec::new(), freed_inodes: Vec::new() };
        let (id, draft) = (core.engine.begin(kind), Draft::default());
        Ok(Group { core, id, space, draft, is_recorded: false, is_committed: false, _admitted: admitted })
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
        Part { group: self.id, space: &mut self.space, draft: &mut self.draft }
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// The volume has failed then.
    pub fn record(&mut self, operation: &Operation<'_>) -> Result<()> {
        let core = self.core;
        self.is_recorded = true;
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
    /// The volume has failed then, or had before.
    pub fn commit(mut self) -> Result<()> {
        let core = self.core;
        core.check_usable()?;
        let committed = core.engine.commit(&mut [self.part()], Durability::Durable, &core.storage);
        committed.inspect_err(|error| core.fail(error))?;
        self.is_committed = true;
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

impl Load for Group<'_> {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.core.engine.load(at, offset, buf)?;
        self.draft.overlay(at.byte() + offset as u64, buf);
        Ok(())
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        let core = self.core;
        if self.is_recorded {
            core.end();
        }
        core.engine.abort(&mut self.part());
        // After a failure nobody knows what is in use.
        if core.check_usable().is_ok() {
            let taken = std::mem::take(&mut self.space.taken);
            taken.into_iter().for_each(|run| core.blocks.give(run.start.0, run.count));
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.core.blocks.unreserve(self.blocks);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wholly_sim::{SimConfig, World};

    use super::*;
    use crate::engine::Fields;
    use crate::format::inode::ROOT;
    use crate::{EngineKind, Volume, VolumeOptions};

    /// A group ends without a commit: nothing has happened, or the volume is poisoned.
    #[test]
    fn operations_that_are_not_committed_poison_the_volume() {
        for engine in ["none", "fine_grained_wal", "hybrid_log"].into_iter().filter_map(EngineKind::named) {
            let world = World::new(Arc::new(SimConfig { log_len: 128 * 4096, ..SimConfig::pmem() }));
            let options = VolumeOptions { engine, ..VolumeOptions::default() };
            Volume::format_region(&*world.log(), &options).expect("make a volume");
            let volume = Volume::open_region(world.log(), &options).expect("open it");
            let core = &volume.inner().core;
            let free = core.blocks.free();
            let mut group = Group::begin(core, Kind::Implicit, 2, Need::Ordinary).expect("begin");
            group.take(1);
            drop(group);
            assert_eq!(core.blocks.free(), free, "all of it is free again");
            core.check_usable().expect("nothing was recorded");

            let mut group = Group::begin(core, Kind::Implicit, 0, Need::Ordinary).expect("begin");
            let root = core.named(ROOT).expect("the root");
            let fields = Fields { uid: Some(7), ..Fields::default() };
            group.record(&Operation::Assign { on: root.id, fields: &fields }).expect("record");
            drop(group);
            core.check_usable().expect_err("it is not known what is there");
        }
    }
}
