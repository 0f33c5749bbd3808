//! Taking committed data home.
//!
//! A pass takes one lot home: it visits the blocks of the lot, writes home the fewest bytes (of each block only the
//! latest committed ones, and nothing twice), and when all of it is durable the tail moves to the lot's target, in one
//! write (FCFS III-E; a store cannot choose another permanent block, so home is always the one).
//!
//! # Terms
//!
//! - *lot*: a target that was announced, and the blocks that had versions when it was. Lots are made whenever a quarter
//!   of the log has been written, and wait in a queue; a pass takes the oldest home and leaves versions at or above its
//!   target where they are. Hence a pass frees a part of the log while groups fill another, and what waits in the queue
//!   goes home only once however often it is overwritten. Smaller lots would cost more: each touched file is looked at
//!   twice a pass and identified once a lot.
//! - *worker*: the thread that makes passes in the background. It begins when five eighths of the log are taken, so
//!   that groups find free segments while it works.
//!
//! # Invariants
//!
//! 1. Whoever holds [`Checkpointer::queue`] makes the pass; nobody else announces, touches home bytes or moves the
//!    tail.
//! 2. Each pass announces a target after it is seen to run and before it touches home, and the superblock tells that
//!    one: groups at or above it do not identify files by times that the pass is about to change.
//! 3. A block that has versions is in the list of dirty ones, in a lot, or in the hands of the pass.
//! 4. A lot's versions are dropped from the index as they are copied; the tail passes them only after this thread's
//!    fence and the syncs. Where a pass fails half-way, what it copied is fenced and synced all the same, or the store
//!    is poisoned.

mod copy_back;
mod names;
mod pass;
mod worker;

use std::collections::VecDeque;
use std::sync::Arc;

use super::StoreInner;
use super::dirty::DirtyBlock;
use super::table::is_taken_away;
use crate::error::{Error, Result};
use pass::Pass;
use sync::{AtomicU8, AtomicU64, Mutex, Ordering};
pub(super) use worker::start_worker;

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointReport {
    /// The number of files that it wrote to.
    pub files: u64,
    /// The number of 4 KiB blocks that it wrote back.
    pub blocks: u64,
    /// Bytes that it wrote back.
    pub bytes: u64,
    /// The number of log segments that it freed.
    pub segments_freed: u64,
}

/// The state of checkpointing.
pub(crate) struct Checkpointer {
    /// Held during a pass.
    queue: Mutex<Queue>,
    /// How many passes have begun and ended: odd during a pass.
    turns: AtomicU64,
    /// 1 if programs see the same times of change after a checkpoint as before it.
    keeps_ctimes: AtomicU8,
    /// Why nothing more can be taken home, after recovery found that a bystander was there.
    blocked: Mutex<Option<Error>>,
    /// 1 while no pass may run, and the log grows instead.
    held: AtomicU8,
    /// 1 once the store's folders for names are durable.
    has_folders: AtomicU8,
    /// 1 until the first pass over names after an open has made durable what it found.
    inherited: AtomicU8,
    /// 1 when a pass has written a record of its own.
    knew: AtomicU8,
    home_bytes: AtomicU64,
    home_names: AtomicU64,
    /// Bytes of files that groups have staged since a pass last took all home.
    staged: AtomicU64,
    worker: Arc<worker::Worker>,
}

/// What was dirty when a target was announced.
struct Lot {
    /// All groups below it are published, and go home with the lot.
    target: u64,
    blocks: Vec<DirtyBlock>,
    /// Whether names waited to go home.
    names: bool,
}

/// Lots in the order of their targets.
#[derive(Default)]
struct Queue {
    lots: VecDeque<Lot>,
    /// Bytes written to the log at which the next lot is due.
    due_at: u64,
}

impl Checkpointer {
    pub fn new() -> Self {
        Checkpointer {
            queue: Mutex::default(),
            turns: AtomicU64::new(0),
            keeps_ctimes: AtomicU8::new(0),
            blocked: Mutex::new(None),
            held: AtomicU8::new(0),
            has_folders: AtomicU8::new(0),
            inherited: AtomicU8::new(1),
            knew: AtomicU8::new(0),
            home_bytes: AtomicU64::new(0),
            home_names: AtomicU64::new(0),
            staged: AtomicU64::new(0),
            worker: Arc::default(),
        }
    }

    /// How many passes have begun and ended. While it is even, and stays, the store changes nothing at home.
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }

    /// Whether home files may be changing.
    pub fn is_running(&self) -> bool {
        !self.turns().is_multiple_of(2)
    }

    /// From now on programs see the same times of change after a checkpoint as before it.
    pub fn keep_ctimes(&self) {
        self.keeps_ctimes.store(1, Ordering::Relaxed);
    }

    pub fn keeps_ctimes(&self) -> bool {
        self.keeps_ctimes.load(Ordering::Relaxed) != 0
    }

    pub fn home_bytes(&self) -> u64 {
        self.home_bytes.load(Ordering::Relaxed)
    }

    pub fn home_names(&self) -> u64 {
        self.home_names.load(Ordering::Relaxed)
    }

    /// A pass has set or removed a name.
    fn count_name(&self) {
        self.home_names.fetch_add(1, Ordering::Relaxed);
    }

    /// A group has staged so many bytes.
    pub fn count_staged(&self, bytes: u64) {
        self.staged.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Whether any are staged that no pass has looked at.
    pub fn has_staged(&self) -> bool {
        self.staged.load(Ordering::Relaxed) > 0
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// From now on every pass fails with `error`.
    pub fn block(&self, error: Error) {
        self.blocked.lock().unwrap().get_or_insert(error);
    }
}

impl StoreInner {
    /// Whether the log grows where it is full, and gives out its last segment, rather than wait for a pass.
    pub fn let_grow(&self, held: bool) {
        self.checkpointer.held.store(u8::from(held), Ordering::Relaxed);
        self.log.keep_one(!held);
    }

    /// See [`Store::checkpoint`](super::Store::checkpoint).
    pub fn checkpoint(&self) -> Result<CheckpointReport> {
        let mut queue = self.checkpointer.queue.lock().unwrap();
        let staged = self.checkpointer.staged.swap(0, Ordering::Relaxed);
        let report = self.pass(&mut queue, true).inspect_err(|_| self.checkpointer.count_staged(staged))?;
        if self.checkpointer.knew.swap(0, Ordering::Relaxed) != 0 {
            // The pass has told the log of what it made, behind its own target.
            let last = self.pass(&mut queue, true)?;
            return Ok(CheckpointReport { segments_freed: report.segments_freed + last.segments_freed, ..report });
        }
        Ok(report)
    }

    /// See [`Store::announce_lot`](super::Store::announce_lot).
    pub fn announce_lot(&self) -> Result<()> {
        let mut queue = self.checkpointer.queue.lock().unwrap();
        self.check_usable()?;
        if !self.is_all_home(&queue) {
            self.announce(&mut queue);
        }
        Ok(())
    }

    /// See [`Store::take_lot_home`](super::Store::take_lot_home).
    pub fn take_lot_home(&self) -> Result<CheckpointReport> {
        self.pass(&mut self.checkpointer.queue.lock().unwrap(), false)
    }

    /// Looks at home while no pass changes it.
    pub fn between_passes<T>(&self, look: impl FnOnce() -> T) -> T {
        let _queue = self.checkpointer.queue.lock().unwrap();
        look()
    }

    /// Commits a group while no pass runs and none is announced. A pass makes room in the log before; if the log is
    /// full all the same, it grows, as no pass can make room now.
    pub fn with_room_between_passes<T>(&self, commit: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut queue = self.checkpointer.queue.lock().unwrap();
        // An error shows again in the call that needs the room.
        let _ = self.pass(&mut queue, true);
        self.let_grow(true);
        let committed = commit();
        self.let_grow(false);
        committed
    }

    /// Announces a checkpoint, unless somebody may be making one.
    #[cfg(test)]
    pub fn announce_if_nobody_does(&self) {
        if let Ok(mut queue) = self.checkpointer.queue.try_lock() {
            self.announce(&mut queue);
        }
    }

    /// Takes home the oldest lot, or `all` of them.
    fn pass(&self, queue: &mut Queue, all: bool) -> Result<CheckpointReport> {
        self.checkpointer.turns.fetch_add(1, Ordering::SeqCst);
        let mut result = self.checkpoint_lot(queue, all);
        if result.as_ref().is_err_and(is_taken_away) {
            // A bystander has come in the middle. What he has changed a pass finds at its beginning, and names it as a
            // conflict.
            result = self.checkpoint_lot(queue, all);
        }
        self.checkpointer.turns.fetch_add(1, Ordering::SeqCst);
        self.checkpointer.worker.tell_waiters();
        if matches!(result, Err(Error::NoSpace(_))) {
            self.room.forget();
        }
        let report = result?;
        self.keep_spare();
        // Under the lock of names, by which others come to files that only the table has.
        self.names.with(|_| self.files.sweep(self.log.tail()));
        Ok(report)
    }

    fn checkpoint_lot(&self, queue: &mut Queue, all: bool) -> Result<CheckpointReport> {
        self.check_usable()?;
        if let Some(error) = &*self.checkpointer.blocked.lock().unwrap() {
            return Err(error.clone());
        }
        if self.is_all_home(queue) {
            // What aborted groups held is free all the same.
            let segments_freed = self.log.release_unused() as u64;
            return Ok(CheckpointReport { segments_freed, ..CheckpointReport::default() });
        }
        // Invariant 2. A small lot joins the one before it, unless that is the one to be taken home now.
        let due = self.is_announcement_due(queue);
        self.announce(queue);
        let announced = queue.lots.back().expect("it was just announced").target;
        while queue.lots.len() > 1 && (all || (!due && queue.lots.len() > 2)) {
            let newest = queue.lots.pop_back().expect("there is more than one");
            queue.lots.back_mut().expect("there was more than one").absorb(newest);
            if !all {
                break;
            }
        }
        let lot = queue.lots.pop_front().expect("there is at least one");
        let target = lot.target;
        let mut pass = Pass::new(self, queue, target);
        let result = pass.run(lot, announced);
        let report = pass.end();
        result?;
        if self.parked.waits_below(target) {
            // It is in the directory, and may be undone: the log goes on telling of it.
            return Ok(report);
        }
        self.finish_provisional(target, |group| group.sequence < target)?;
        let segments_freed = self.release_written_back(target)?;
        Ok(CheckpointReport { segments_freed, ..report })
    }

    /// All below `target` is written back, and final: the log and the memory need not have it any more. Gives how many
    /// segments are free now. Only while no other pass runs.
    pub fn release_written_back(&self, target: u64) -> Result<u64> {
        self.remove_applied(target)?;
        let segments_freed = self.log.release_below(target).map_err(|error| self.poison(&error))? as u64;
        self.memory.release_below(target);
        self.remove_shadows_below(target);
        self.names.forget(target);
        Ok(segments_freed)
    }

    /// Whether a pass would find nothing. Then nothing is announced either: groups that wait for room would have to
    /// identify their files again, for which they need more room, and so for ever.
    fn is_all_home(&self, queue: &Queue) -> bool {
        queue.lots.is_empty()
            && self.index.dirty.is_empty()
            && !self.names.is_pending()
            && self.log.highest_sequence() < self.log.tail()
    }

    /// Whether the log has grown enough for another lot.
    fn is_announcement_due(&self, queue: &Queue) -> bool {
        self.log.totals().0 >= queue.due_at
    }

    /// Makes a lot of everything that is dirty and in none.
    fn announce(&self, queue: &mut Queue) {
        const LEAST: u64 = 256 << 10;
        let step = u64::from(self.log.segments().0) * self.log.segment_bytes() / 4;
        queue.due_at = self.log.totals().0 + step.max(LEAST);
        let target = self.log.announce_tail();
        // Everything below the target is published by now, hence in the list.
        let blocks = self.index.dirty.take();
        queue.lots.push_back(Lot { target, blocks, names: self.names.is_pending() });
    }
}

impl Lot {
    /// Whether a pass would take nothing home with it.
    fn is_empty(&self) -> bool {
        self.blocks.is_empty() && !self.names
    }

    /// Takes in the lot that follows.
    fn absorb(&mut self, mut next: Lot) {
        debug_assert!(self.target <= next.target, "lots are in the order of their targets");
        self.target = next.target;
        self.blocks.append(&mut next.blocks);
        self.names |= next.names;
    }
}
