//! Groups that are ordered, and durable later: what their calls wait for, and what they have freed.
//!
//! With an engine that orders ([`Engine::orders`](crate::engine::Engine::orders)), a commit works in memory: its locks
//! end at the order, not at the device.
//!
//! # Invariants
//!
//! 1. A call that has ordered something returns when that is durable: it *owes* a wait, which it makes once it has let
//!    go of all locks ([`Core::settle`]), or tells of: as a ticket, or by `fatomic` ([`Core::take_told`]). Nobody waits
//!    for a time of access, nor for a free at the last reference ([`Core::unawaited`]). After an order that was told
//!    and not waited for, [`Core::settle`] makes room for other threads.
//! 2. Others get blocks and inode numbers that a group has freed when it is durable. Before that a crash would bring
//!    back who had them. Whoever finds no space waits for these first.
//! 3. A group is ordered after those that have changed the same inodes, the shape of the tree if it moves a directory
//!    to another parent, or that of the inode file: also on a medium whose order is not total, and where they share no
//!    block. A sync of a file waits for the last that has changed it.
//! 4. After an error of a wait the volume has failed: what others have read may be gone after the next open.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use sync::{AtomicU64, Mutex, Ordering, thread_token};
use wholly_error::{Error, Result};

use super::Core;
use crate::engine::{CommitSequence, INODE_FILE};
use crate::format::Run;

/// What the call of a thread owes before it returns.
#[derive(Default)]
struct Owed {
    /// It waits for these.
    waits: Vec<CommitSequence>,
    /// It tells of these: it hands them over, and makes room for others.
    told: Vec<CommitSequence>,
}

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

/// How far callers were told of groups as committed that may not be durable, and how far they are. Two words, so that a
/// child can look after `fork`.
#[derive(Default)]
pub struct KeptBack {
    told: AtomicU64,
    durable: AtomicU64,
}

impl KeptBack {
    /// Whether memory alone has something that a call has returned for.
    pub fn any(&self) -> bool {
        self.told.load(Ordering::Acquire) > self.durable.load(Ordering::Acquire)
    }
}

pub struct Ordered {
    /// Whether the engine orders.
    is_used: bool,
    changed: Mutex<Changed>,
    kept_back: Arc<KeptBack>,
    /// In commit order.
    freed: Mutex<VecDeque<Freed>>,
    /// By thread.
    owed: Mutex<HashMap<u64, Owed>>,
}

fn only_once(changed: &mut Vec<u64>) {
    changed.sort_unstable();
    changed.dedup();
}

impl Ordered {
    pub fn new(is_used: bool) -> Ordered {
        Ordered {
            is_used,
            changed: Mutex::default(),
            kept_back: Arc::default(),
            freed: Mutex::default(),
            owed: Mutex::default(),
        }
    }

    /// Notes what a group changes. It takes no more memory than twice that.
    #[inline]
    pub(super) fn note<const N: usize>(&self, inodes: [Option<u64>; N], changed: &mut Vec<u64>) {
        if !self.is_used {
            return;
        }
        for ino in inodes.into_iter().flatten() {
            if changed.last() == Some(&ino) {
                continue;
            }
            if changed.len() == changed.capacity() {
                only_once(changed);
            }
            changed.push(ino);
        }
    }

    /// The places of the groups that changed the same, as far as they may not be durable. The caller has the locks.
    pub(super) fn after(&self, changed: &mut Vec<u64>) -> Vec<CommitSequence> {
        if !self.is_used {
            return Vec::new();
        }
        only_once(changed);
        let known = self.changed.lock().unwrap();
        let mut after: Vec<_> =
            changed.iter().chain([&INODE_FILE]).filter_map(|ino| known.last.get(ino)).copied().collect();
        after.sort_unstable();
        after.dedup();
        after
    }

    /// A group has changed these.
    fn have_changed(&self, by: CommitSequence, inodes: &[u64], durable: impl FnOnce() -> CommitSequence) {
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
    pub(super) fn is_ordered(&self, by: CommitSequence, changed: &[u64], blocks: Vec<Run>, inodes: Vec<u64>) {
        if !self.ordered.is_used {
            return self.give(blocks, inodes);
        }
        // One that has changed nothing, after others that are durable, has no place.
        if by > CommitSequence(0) {
            self.ordered.have_changed(by, changed, || self.engine.durable());
            self.owe(by);
        }
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
        inodes.iter().for_each(|ino| {
            self.has_left(*ino);
            self.inodes.give(*ino, 1);
        });
    }

    /// Something has become durable.
    fn is_durable(&self) {
        if self.ordered.is_used {
            self.ordered.kept_back.durable.fetch_max(self.engine.durable().0, Ordering::AcqRel);
        }
        self.give_durable();
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

    /// What the calling thread has ordered last: its call returns without a wait.
    pub fn take_told(&self) -> Option<CommitSequence> {
        let waits = std::mem::take(&mut self.ordered.owed.lock().unwrap().get_mut(&thread_token())?.waits);
        let told = self.joined(&waits)?;
        if let Some(owed) = self.ordered.owed.lock().unwrap().get_mut(&thread_token()) {
            owed.told.push(told);
        }
        self.ordered.kept_back.told.fetch_max(told.0, Ordering::AcqRel);
        Some(told)
    }

    /// A place that is durable when all of these are.
    fn joined(&self, all: &[CommitSequence]) -> Option<CommitSequence> {
        // An engine that cannot join them has failed: whoever waits is told.
        let last = all.iter().copied().max()?;
        Some(self.engine.join(all).unwrap_or(last))
    }

    /// The same, of what has changed an inode, too.
    pub fn tells_of(&self, ino: u64) {
        self.relies_on(ino);
        self.take_told();
    }

    /// What callers were told of.
    pub fn kept_back(&self) -> Arc<KeptBack> {
        self.ordered.kept_back.clone()
    }

    /// The calling thread's call relies on what has changed an inode.
    pub fn relies_on(&self, ino: u64) {
        if let Some(last) = self.last_change(ino) {
            self.owe(last);
        }
    }

    fn owe(&self, upto: CommitSequence) {
        let mut owed = self.ordered.owed.lock().unwrap();
        let waits = &mut owed.entry(thread_token()).or_default().waits;
        if self.engine.is_total() {
            let last = waits.pop().map_or(upto, |last| upto.max(last));
            waits.push(last);
        } else if !waits.contains(&upto) {
            waits.push(upto);
        }
    }

    /// The last group that has changed an inode, if it may not be durable.
    fn last_change(&self, ino: u64) -> Option<CommitSequence> {
        match self.ordered.is_used {
            true => self.ordered.changed.lock().unwrap().last.get(&ino).copied(),
            false => None,
        }
    }

    /// What the calling thread has ordered last, and not waited for.
    #[inline]
    fn take_owed(&self) -> Option<Owed> {
        if self.ordered.is_used { self.ordered.owed.lock().unwrap().remove(&thread_token()) } else { None }
    }

    /// Nobody waits for what is ordered by this.
    pub fn unawaited<T>(&self, work: impl FnOnce() -> T) -> T {
        let owed = self.take_owed();
        let done = work();
        self.take_owed();
        if let Some(owed) = owed {
            self.ordered.owed.lock().unwrap().insert(thread_token(), owed);
        }
        done
    }

    /// Waits for what the calling thread owes. The thread holds no locks of the core.
    ///
    /// # Errors
    /// The medium's: the volume has failed then.
    #[inline]
    pub fn settle(&self) -> Result<()> {
        let Some(Owed { waits, told }) = self.take_owed() else { return Ok(()) };
        if let Some(told) = self.joined(&told) {
            self.check_usable()?;
            self.engine.send(told).inspect_err(|error| self.fail(error))?;
        }
        waits.into_iter().try_for_each(|at| self.wait(at))
    }

    /// Returns when this group is durable, and what it depends on.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn wait(&self, upto: CommitSequence) -> Result<()> {
        if upto.0 > self.ordered.kept_back.durable.load(Ordering::Acquire) {
            self.check_usable()?;
            self.engine.wait_for(upto).inspect_err(|error| {
                // A number that was not given out says nothing of the medium.
                if !matches!(error, Error::Invalid(_)) {
                    self.fail(error);
                }
            })?;
        }
        self.is_durable();
        Ok(())
    }

    /// Makes everything durable that was committed.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn sync(&self) -> Result<()> {
        self.check_usable()?;
        self.engine.sync().inspect_err(|error| self.fail(error))?;
        self.is_durable();
        Ok(())
    }

    /// Makes durable what has changed an inode.
    ///
    /// # Errors
    /// As [`settle`](Self::settle).
    pub fn sync_inode(&self, ino: u64) -> Result<()> {
        self.check_usable()?;
        if self.ordered.is_used { self.wait_for_inode(ino) } else { self.sync() }
    }

    /// Waits for what has changed an inode, if the engine orders.
    ///
    /// # Errors
    /// As [`settle`](Self::settle), if there is something to wait for.
    pub fn wait_for_inode(&self, ino: u64) -> Result<()> {
        self.last_change(ino).map_or(Ok(()), |last| self.wait(last))
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
        let Some(last) = last else { return false };
        // Also what it does not depend on: then it is free.
        let waited = self.check_usable().and_then(|()| self.engine.wait(last).inspect_err(|error| self.fail(error)));
        self.is_durable();
        waited.is_ok()
    }
}
