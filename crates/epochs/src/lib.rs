//! Which calls outside of explicit groups are one group, and when it begins and ends: for a store and for a volume.
//!
//! Nothing here knows what such a group is: [`Below`] begins it and commits it, and the caller makes the calls in it.
//!
//! # Terms
//!
//! - *content call*: writes to a file, appends, copies, allocates, or sets a size. *Name call*: any other call that
//!   changes something: names and attributes.
//! - *epoch*: a running group of content calls: of one file under `per-sync`, of all files under `shared`. Everybody
//!   sees its changes.
//! - *dirty*: a file that a running epoch has changed, or claimed.
//! - *mark*: what a file keeps for policies ([`Mark`]): whether it is dirty, and its epoch.
//! - *slot* of a file: the mark that has the epoch of the calls on it: its own under `per-sync`, the policy's under
//!   `shared`.
//!
//! | | under `per-sync` | under `shared` |
//! |---|---|---|
//! | `fsync`, `fdatasync`, `fatomic`, a write with `O_SYNC` | commits the file's epoch, by `fdatasync` perhaps without times | commits the epoch |
//! | the last close of a file | commits the file's epoch | nothing, unless nobody is left who could sync |
//! | `fsync` of a directory | nothing is pending | commits the epoch |
//! | `sync`, the end | commits all epochs | commits the epoch |
//! | no space | the call fails | commits the epoch, and makes the call once more |
//! | a name call, a call of an explicit group | commits the epochs of the files that it names | commits the epoch if one of these files is dirty |
//! | a content call on one file more than may be dirty | the call fails with `ENOSPC` | |
//! | the timer, too many pieces, a full log | nothing | commits the epoch |
//!
//! Nothing else here makes anything durable: a crash before a commit takes all of the epoch away, as if it had been
//! aborted. Under the policy `per-op` no file is dirty; its calls do not come here.
//!
//! # Invariants
//!
//! 1. Epochs have content calls only, and a dirty file is in one epoch. So a crash brings a file back as it was at its
//!    last commit.
//! 2. An epoch begins and ends while its slot is held for writing. The call that begins it holds the slot so, any other
//!    call in it holds the slot for reading. So the epoch that a call finds lasts until the call returns, and a sync
//!    waits for the calls in the epoch that it commits and for no others.
//! 3. A call that looks at a clean file holds nothing: it sees what was committed last, as if it had come before the
//!    calls that make the file dirty meanwhile. A file becomes dirty before the first call on it returns, and clean
//!    once everybody sees what the epoch has committed.
//! 4. Slots are taken in the order of their numbers, and nothing is held here that is taken after them, but for a
//!    moment the shard of the table of dirty files. Under `per-sync`, calls on different files have nothing else in
//!    common.
//! 5. Under `per-sync` no epoch is committed but by the calls in the table: not for space, size or number.
//!
//! # States of a file
//!
//! ```text
//! clean --- content call ---> dirty --- commit ---> clean
//! ```
//! If a commit fails, the epoch is aborted, or [goes on](Below::commit).

#![warn(missing_docs)]

use std::array;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sync::{AtomicU64, Mutex, Ordering, RwLock, RwLockWriteGuard};
use wholly_error::{Error, Result};
use wholly_vfs::{Errno, Policy};

/// Files that are dirty at the same time under `per-sync`.
pub const MOST_DIRTY: u64 = 1 << 16;

/// Pieces of an epoch under `shared`, where they are counted.
const MOST_PIECES: u64 = 1 << 16;

/// Shards of the table of dirty files.
const SHARDS: usize = 64;

/// A store or volume, as far as epochs need one.
pub trait Below {
    /// A file.
    type File;
    /// A running group.
    type Epoch;

    /// The mark of a file.
    fn mark(file: &Self::File) -> &Mark<Self::Epoch>;

    /// Begins an epoch. Gives its number, too, which no other epoch ever has, nor a policy over the same files; not 0.
    ///
    /// # Errors
    /// If it cannot be used.
    fn begin(&self) -> Result<(u64, Self::Epoch)>;

    /// Whether an epoch has changed a file, or claimed it.
    fn has(&self, epoch: &Self::Epoch, file: &Arc<Self::File>) -> bool;

    /// Whether an epoch under `shared` is to be committed now, as it would fill too much of a log.
    fn fills_log(&self, epoch: &Self::Epoch) -> bool {
        let _ = epoch;
        false
    }

    /// Commits an epoch; with `data_only`, times of files may stay in memory alone. When this returns, everybody sees
    /// what is durable, or has its place in the order and is durable when the call returns that asked for it. The epoch
    /// has ended if it is taken out; else it goes on after the error, and the next sync tries again.
    ///
    /// # Errors
    /// If the epoch is not durable.
    fn commit(&self, epoch: &mut Option<Self::Epoch>, data_only: bool) -> Result<()>;
}

/// What a file keeps for policies.
#[derive(Debug)]
pub struct Mark<E> {
    /// Names the file among all.
    number: u64,
    /// What [`Policies::number`] is for the policy, and the epoch, in which it is dirty; 0 if none.
    dirty_in: AtomicU64,
    epoch: RwLock<Option<E>>,
}

impl<E> Mark<E> {
    /// The mark of a clean file; `number` names it among all.
    pub fn new(number: u64) -> Mark<E> {
        Mark { number, dirty_in: AtomicU64::new(0), epoch: RwLock::new(None) }
    }

    /// Names the file among all.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// A slot, held.
type Shut<'s, B> = RwLockWriteGuard<'s, Option<<B as Below>::Epoch>>;

type Shard<B> = BTreeMap<u64, Arc<<B as Below>::File>>;

/// The epochs of a policy.
pub struct Policies<B: Below> {
    /// The policy.
    pub policy: Policy,
    /// How many files may be dirty under `per-sync`.
    pub most_dirty: u64,
    number: u64,
    /// How many files are dirty, or about to be.
    dirty: AtomicU64,
    /// Under `per-sync`: the dirty files.
    files: [Mutex<Shard<B>>; SHARDS],
    /// Under `shared`: the slot of all files.
    shared: Mark<B::Epoch>,
    /// When its epoch began.
    began: Mutex<Instant>,
    pieces: AtomicU64,
    early: AtomicU64,
}

impl<B: Below> Policies<B> {
    /// No file is dirty. No other policy over the same files has the same number, nor has an epoch; it is not 0.
    pub fn new(policy: Policy, number: u64, most_dirty: u64) -> Policies<B> {
        Policies {
            policy,
            most_dirty,
            number,
            dirty: AtomicU64::new(0),
            files: array::from_fn(|_| Mutex::default()),
            shared: Mark::new(0),
            began: Mutex::new(Instant::now()),
            pieces: AtomicU64::new(0),
            early: AtomicU64::new(0),
        }
    }

    /// How many files are dirty.
    pub fn dirty_files(&self) -> u64 {
        self.dirty.load(Ordering::Acquire)
    }

    /// How often the epoch under `shared` was committed for want of space, or for its size.
    pub fn early_commits(&self) -> u64 {
        self.early.load(Ordering::Relaxed)
    }

    /// Whether all files have one epoch.
    #[inline]
    pub fn is_shared(&self) -> bool {
        matches!(self.policy, Policy::Shared { .. })
    }

    /// Whether a file is dirty.
    #[inline]
    pub fn is_dirty(&self, file: &B::File) -> bool {
        let dirty_in = B::mark(file).dirty_in.load(Ordering::Acquire);
        dirty_in != 0
            && dirty_in == if self.is_shared() { self.shared.dirty_in.load(Ordering::Acquire) } else { self.number }
    }

    #[inline]
    fn slot<'s>(&'s self, file: &'s B::File) -> &'s Mark<B::Epoch> {
        if self.is_shared() { &self.shared } else { B::mark(file) }
    }

    /// Whether an epoch of this policy is in a slot that is held. (Another policy may have one there.)
    fn runs(&self, slot: &Mark<B::Epoch>) -> bool {
        let dirty_in = slot.dirty_in.load(Ordering::Acquire);
        dirty_in != 0 && (self.is_shared() || dirty_in == self.number)
    }

    fn shard(&self, file: &Mark<B::Epoch>) -> &Mutex<Shard<B>> {
        &self.files[file.number as usize % SHARDS]
    }

    fn files(&self) -> Vec<Arc<B::File>> {
        self.files.iter().flat_map(|shard| shard.lock().unwrap().values().cloned().collect::<Vec<_>>()).collect()
    }

    /// Looks at a file: with its epoch, if it is dirty.
    #[inline]
    pub fn look<T>(&self, file: &B::File, look: impl FnOnce(Option<&B::Epoch>) -> T) -> T {
        if self.is_dirty(file) {
            let held = self.slot(file).epoch.read().unwrap();
            if self.is_dirty(file) {
                return look(held.as_ref());
            }
        }
        look(None)
    }

    /// Makes a content call on a file, which adds so many pieces to an epoch, in its epoch.
    ///
    /// # Errors
    /// Those of the call, of [`Below::begin`], and of commits under `shared`; [`Error::NoSpace`] for one file more than
    /// may be dirty.
    pub fn change<T, E: From<Error> + Clone>(
        &self,
        below: &B,
        file: &Arc<B::File>,
        pieces: u64,
        call: impl Fn(&B::Epoch) -> Result<T, E>,
    ) -> Result<T, E>
    where
        Errno: From<E>,
    {
        let mut done = self.change_once(below, file, &call);
        // What the epoch has freed is free once it is committed.
        if done.as_ref().is_err_and(|error| Errno::from(error.clone()) == Errno::NOSPC) && self.commit_early(below)? {
            done = self.change_once(below, file, &call);
        }
        if self.is_shared() {
            let is_large = self.pieces.fetch_add(pieces, Ordering::Relaxed) + pieces > MOST_PIECES;
            if is_large || self.look(file, |epoch| epoch.is_some_and(|epoch| below.fills_log(epoch))) {
                self.commit_early(below)?;
            }
        }
        done
    }

    #[inline]
    fn change_once<T, E: From<Error>>(
        &self,
        below: &B,
        file: &Arc<B::File>,
        call: impl Fn(&B::Epoch) -> Result<T, E>,
    ) -> Result<T, E> {
        let slot = self.slot(file);
        loop {
            let held = slot.epoch.read().unwrap();
            if let Some(epoch) = held.as_ref().filter(|_| self.runs(slot)) {
                let done = call(epoch);
                if !self.is_dirty(file) && below.has(epoch, file) {
                    let number = slot.dirty_in.load(Ordering::Relaxed);
                    let is_first = B::mark(file).dirty_in.swap(number, Ordering::AcqRel) != number;
                    self.dirty.fetch_add(is_first.into(), Ordering::AcqRel);
                }
                return done;
            }
            drop(held);
            let mut held = slot.epoch.write().unwrap();
            if !self.runs(slot) {
                return self.begin(below, file, &mut held, call);
            }
        }
    }

    /// Makes the first call of an epoch.
    fn begin<T, E: From<Error>>(
        &self,
        below: &B,
        file: &Arc<B::File>,
        held: &mut Shut<'_, B>,
        call: impl Fn(&B::Epoch) -> Result<T, E>,
    ) -> Result<T, E> {
        let is_one_more = self.dirty.fetch_add(1, Ordering::AcqRel) >= self.most_dirty && !self.is_shared();
        let too_many = || Error::NoSpace("a file more whose calls are not committed: a sync commits them".into());
        let begun = if is_one_more { Err(too_many()) } else { below.begin() };
        let (mut number, epoch) = begun.inspect_err(|_| _ = self.dirty.fetch_sub(1, Ordering::AcqRel))?;
        let done = call(&epoch);
        // A call that fails may have changed something before that, and one that does not, nothing.
        if !below.has(&epoch, file) {
            self.dirty.fetch_sub(1, Ordering::AcqRel);
            below.commit(&mut Some(epoch), false)?;
            return done;
        }
        let slot = self.slot(file);
        if self.is_shared() {
            *self.began.lock().unwrap() = Instant::now();
        } else {
            number = self.number;
            self.shard(slot).lock().unwrap().insert(slot.number, file.clone());
        }
        **held = Some(epoch);
        B::mark(file).dirty_in.store(number, Ordering::Release);
        slot.dirty_in.store(number, Ordering::Release);
        done
    }

    /// Commits the epoch in a slot that is held.
    fn commit(&self, below: &B, slot: &Mark<B::Epoch>, held: &mut Shut<'_, B>, data_only: bool) -> Result<()> {
        if !self.runs(slot) {
            return Ok(());
        }
        let committed = below.commit(held, data_only);
        if held.is_none() {
            self.has_ended(slot);
        }
        committed
    }

    /// The epoch in a slot that is held has ended. Called not before: who finds a file clean sees what the epoch has
    /// committed, and a sync of all that does not find it need not wait for it.
    fn has_ended(&self, slot: &Mark<B::Epoch>) {
        slot.dirty_in.store(0, Ordering::Release);
        if self.is_shared() {
            self.dirty.store(0, Ordering::Release);
            self.pieces.store(0, Ordering::Relaxed);
        } else {
            self.shard(slot).lock().unwrap().remove(&slot.number);
            self.dirty.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Commits the epochs of those of these files, in the order of their numbers, that are dirty. No call changes any
    /// of them as long as the result is held.
    ///
    /// # Errors
    /// Those of [`Below::commit`].
    pub fn shut<'f>(&'f self, below: &B, files: &'f [Arc<B::File>]) -> Result<Vec<Shut<'f, B>>> {
        let mut all: Vec<Shut<'f, B>> = Vec::new();
        for file in files {
            let slot = self.slot(file);
            if all.is_empty() || !self.is_shared() {
                all.push(slot.epoch.write().unwrap());
            }
            if self.is_dirty(file) {
                self.commit(below, slot, all.last_mut().expect("one was just taken"), false)?;
            }
        }
        Ok(all)
    }

    /// Commits the epoch that a file is dirty in: an explicit group is about to look at it, or to change it.
    ///
    /// # Errors
    /// Those of [`Below::commit`].
    #[inline]
    pub fn clean(&self, below: &B, file: &Arc<B::File>) -> Result<()> {
        if self.is_dirty(file) { self.shut(below, std::slice::from_ref(file)).map(drop) } else { Ok(()) }
    }

    /// Commits what a sync of a file makes durable, or one of a directory.
    ///
    /// # Errors
    /// Those of [`Below::commit`].
    pub fn sync(&self, below: &B, file: Option<&Arc<B::File>>) -> Result<()> {
        if self.is_shared() { self.sync_all(below) } else { file.map_or(Ok(()), |file| self.clean(below, file)) }
    }

    /// Commits what a sync of a file's data makes durable: times may stay in memory alone.
    ///
    /// # Errors
    /// Those of [`Below::commit`].
    pub fn sync_data(&self, below: &B, file: &Arc<B::File>) -> Result<()> {
        if self.is_shared() {
            return self.sync_all(below);
        }
        match self.is_dirty(file) {
            true => self.commit(below, self.slot(file), &mut self.slot(file).epoch.write().unwrap(), true),
            false => Ok(()),
        }
    }

    /// Commits all epochs.
    ///
    /// # Errors
    /// The first of [`Below::commit`].
    pub fn sync_all(&self, below: &B) -> Result<()> {
        if self.is_shared() {
            return self.commit(below, &self.shared, &mut self.shared.epoch.write().unwrap(), false);
        }
        // One that is not committed keeps none of the others.
        self.files().iter().map(|file| self.clean(below, file)).fold(Ok(()), Result::and)
    }

    /// Commits what the last close of a file commits. `is_last` is asked while no content call on the file runs: who
    /// has opened it since then may have cut it, and has not asked for that to last.
    ///
    /// # Errors
    /// Those of [`Below::commit`].
    pub fn close(&self, below: &B, file: &Arc<B::File>, is_last: impl FnOnce() -> bool) -> Result<()> {
        if self.is_shared() || !self.is_dirty(file) {
            return Ok(());
        }
        let slot = self.slot(file);
        let mut held = slot.epoch.write().unwrap();
        if is_last() { self.commit(below, slot, &mut held, false) } else { Ok(()) }
    }

    /// Commits the epoch before it is asked for, as `shared` may. Whether there was one.
    ///
    /// # Errors
    /// Those of [`Below::commit`].
    pub fn commit_early(&self, below: &B) -> Result<bool> {
        if !self.is_shared() || self.dirty_files() == 0 {
            return Ok(false);
        }
        self.early.fetch_add(1, Ordering::Relaxed);
        self.sync_all(below).map(|()| true)
    }

    /// Commits the epoch under `shared` if its time has come. If that fails, so does what comes after it. Gives how
    /// long the next look can wait.
    pub fn commit_old(&self, below: &B) -> Duration {
        let Policy::Shared { interval } = self.policy else { return Duration::MAX };
        let began = *self.began.lock().unwrap();
        let left = interval.saturating_sub(began.elapsed());
        if self.dirty_files() > 0 && left.is_zero() {
            let _ = self.sync_all(below);
        }
        if left.is_zero() { interval } else { left }
    }

    /// Nobody is left who could sync a file: commits its epoch, if there is what is below, or gives it up.
    pub fn end(&self, below: Option<&B>, file: &B::File) {
        self.end_slot(below, self.slot(file));
    }

    /// The same of all files.
    pub fn end_all(&self, below: Option<&B>) {
        self.end_slot(below, &self.shared);
        self.files().iter().for_each(|file| self.end(below, file));
    }

    fn end_slot(&self, below: Option<&B>, slot: &Mark<B::Epoch>) {
        // A call that panicked may have left anything of its file, or of the epoch.
        let Ok(mut held) = slot.epoch.write() else { return };
        // If it fails, so does what comes after it.
        let _ = below.map(|below| self.commit(below, slot, &mut held, false));
        if self.runs(slot) && held.take().is_some() {
            self.has_ended(slot);
        }
    }
}

#[cfg(test)]
mod tests;
