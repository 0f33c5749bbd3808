//! Groups that are ordered, and durable later: what their calls wait for, and what they have freed.
//!
//! With an engine that orders ([`Engine::orders`](crate::engine::Engine::orders)), a commit works in memory: its locks
//! end at the order, not at the device.
//!
//! # Invariants
//!
//! 1. A call that has ordered something returns when that is durable: it *owes* a wait, which it makes once it has let
//!    go of all locks ([`Core::settle`]), or hands out as a ticket ([`Core::take_owed`]). Nobody waits for a time of
//!    access, for a free at the last reference, nor for what `fatomic` orders ([`Core::unawaited`]).
//! 2. Others get blocks and inode numbers that a group has freed when it is durable. Before that a crash would bring
//!    back who had them. Whoever finds no space waits for these first.
//! 3. A group is ordered after those that have changed the same inodes, the shape of the tree if it moves a directory to
//!    another parent, or that of the inode file: also on a medium whose order is not total, and where they share no
//!    block. A sync of a file waits for the last that has changed it.
//! 4. After an error of a wait the volume has failed: what others have read may be gone after the next open.

use std::collections::{BTreeSet, HashMap, VecDeque};

use sync::{Mutex, thread_token};
use wholly_error::{Error, Result};

use super::Core;
use crate::engine::{CommitSequence, INODE_FILE};
use crate::format::Run;

/// What a group has freed.
struct Freed {
    by: CommitSequence,
    blocks: Vec<Run>,
    inodes: Vec<u64>,
}

/// What was changed by groups that may not be durable: the last of them, by inode.
#[derive(Default)]
struct Changed {
    last: HashMap<u64, CommitSequence>,
    /// So many are looked through for those that are durable.
    most: usize,
}

pub struct Ordered {
    /// Whether the engine orders.
    is_used: bool,
    changed: Mutex<Changed>,
    /// In commit order.
    freed: Mutex<VecDeque<Freed>>,
    /// What the calls of threads wait for before they return.
    owed: Mutex<HashMap<u64, CommitSequence>>,
}

impl Ordered {
    pub fn new(is_used: bool) -> Ordered {
        Ordered { is_used, changed: Mutex::default(), freed: Mutex::default(), owed: Mutex::default() }
    }

    /// Notes what a group changes.
    #[inline]
    pub(super) fn note<const N: usize>(&self, inodes: [Option<u64>; N], changed: &mut BTreeSet<u64>) {
        if self.is_used {
            changed.extend(inodes.into_iter().flatten());
        }
    }

    /// The places of the groups that changed the same, as far as they may not be durable. The caller has the locks.
    pub(super) fn after(&self, changed: &BTreeSet<u64>) -> Vec<CommitSequence> {
        if !self.is_used {
            return Vec::new();
        }
        let known = self.changed.lock().unwrap();
        let mut after: Vec<_> =
            changed.iter().chain([&INODE_FILE]).filter_map(|ino| known.last.get(ino)).copied().collect();
        after.sort_unstable();
        after.dedup();
        after
    }

    /// A group has changed these.
    fn have_changed(&self, by: CommitSequence, inodes: &BTreeSet<u64>, durable: impl FnOnce() -> CommitSequence) {
        let mut changed = self.changed.lock().unwrap();
        // Of two threads the later one in commit order may come first.
        let newest = |last: &mut CommitSequence| *last = by.max(*last);
        inodes.iter().for_each(|ino| newest(changed.last.entry(*ino).or_insert(by)));
        if changed.last.len() >= changed.most {
            let durable = durable();
            changed.last.retain(|_, by| *by > durable);
            changed.most = 2 * changed.last.len() + 64;
        }
    }
}

impl Core {
    /// A group has its place in commit order. The caller has the locks of what it has changed.
    pub(super) fn is_ordered(&self, by: CommitSequence, changed: &BTreeSet<u64>, blocks: Vec<Run>, inodes: Vec<u64>) {
        if !self.ordered.is_used {
            return self.give(blocks, inodes);
        }
        self.ordered.have_changed(by, changed, || self.engine.durable());
        let mut owed = self.ordered.owed.lock().unwrap();
        // A group that has changed nothing has no place.
        let last = owed.entry(thread_token()).or_insert(by);
        *last = by.max(*last);
        drop(owed);
        if !blocks.is_empty() || !inodes.is_empty() {
            let mut freed = self.ordered.freed.lock().unwrap();
            // Of two threads the later one in commit order may come first.
            let at = freed.partition_point(|of| of.by <= by);
            freed.insert(at, Freed { by, blocks, inodes });
        }
        self.give_durable();
    }

    fn give(&self, blocks: Vec<Run>, inodes: Vec<u64>) {
        blocks.iter().for_each(|run| self.blocks.give(run.start.0, run.count));
        inodes.iter().for_each(|ino| self.inodes.give(*ino, 1));
    }

    /// Gives out what groups have freed that are durable.
    fn give_durable(&self) {
        let mut freed = self.ordered.freed.lock().unwrap();
        if freed.is_empty() {
            return;
        }
        let durable = self.engine.durable();
        // With the lock held: whoever finds nothing here finds it free.
        let last = freed.partition_point(|of| of.by <= durable);
        freed.drain(..last).for_each(|Freed { blocks, inodes, .. }| self.give(blocks, inodes));
    }

    /// What the calling thread has ordered last, and not waited for.
    pub fn take_owed(&self) -> Option<CommitSequence> {
        match self.ordered.is_used {
            true => self.ordered.owed.lock().unwrap().remove(&thread_token()),
            false => None,
        }
    }

    /// Nobody waits for what is ordered by this.
    pub fn unawaited<T>(&self, work: impl FnOnce() -> T) -> T {
        let owed = self.take_owed();
        let done = work();
        self.take_owed();
        owed.inspect(|upto| _ = self.ordered.owed.lock().unwrap().insert(thread_token(), *upto));
        done
    }

    /// Waits for what the calling thread has ordered. It holds no locks of the core.
    ///
    /// # Errors
    /// The medium's: the volume has failed then.
    pub fn settle(&self) -> Result<()> {
        self.take_owed().map_or(Ok(()), |upto| self.wait(upto))
    }

    /// Returns when the groups up to this one are durable.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn wait(&self, upto: CommitSequence) -> Result<()> {
        self.engine.wait(upto).inspect_err(|error| {
            // A number that was not given out says nothing of the medium.
            if !matches!(error, Error::Invalid(_)) {
                self.fail(error);
            }
        })?;
        self.give_durable();
        Ok(())
    }

    /// Makes everything durable that was committed.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn sync(&self) -> Result<()> {
        self.check_usable()?;
        self.engine.sync().inspect_err(|error| self.fail(error))?;
        self.give_durable();
        Ok(())
    }

    /// Makes durable what has changed an inode.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn sync_inode(&self, ino: u64) -> Result<()> {
        if !self.ordered.is_used {
            return self.sync();
        }
        self.check_usable()?;
        let last = self.ordered.changed.lock().unwrap().last.get(&ino).copied();
        last.map_or(Ok(()), |last| self.wait(last))
    }

    /// Blocks that groups have freed that are not durable.
    pub(super) fn blocks_freed(&self) -> u64 {
        self.ordered.freed.lock().unwrap().iter().flat_map(|of| &of.blocks).map(|run| run.count).sum()
    }

    /// Inode numbers that are free, or will be.
    pub fn free_inodes(&self) -> u64 {
        let freed = self.ordered.freed.lock().unwrap().iter().map(|of| of.inodes.len() as u64).sum::<u64>();
        self.inodes.free() + freed
    }

    /// Waits for what groups have freed that are not durable. Returns whether there was something.
    pub(super) fn wait_for_freed(&self) -> bool {
        let last = self.ordered.freed.lock().unwrap().back().map(|of| of.by);
        last.is_some_and(|last| self.wait(last).is_ok())
    }
}
