//! Implicit groups of several calls: a [`Vfs`] over another one, in which each call is a group of its own.
//!
//! Nothing here knows what is below: [`Epochs`] says what a policy asks of that.
//!
//! # Terms
//!
//! - *content call*: writes to an open file, appends, copies, allocates, or sets a size, also by path or by `O_TRUNC`.
//!   *Name call*: any other call that changes something: names and attributes.
//! - *epoch*: an explicit group that belongs to the policy: of one file under `per-sync`, of all files under `shared`.
//!   Everybody sees its changes.
//! - *dirty*: a file with changes in a running epoch. Calls on it are made in the context of that group.
//! - *mark*: what an inode keeps for a policy: the epoch that it is dirty in, with the file's lock ([`Marked`]).
//! - *gate*: the lock of the epoch under `shared`.
//!
//! | | under `per-sync` | under `shared` |
//! |---|---|---|
//! | `fsync`, `fdatasync`, a write with `O_SYNC` | commits the file's epoch | commits the epoch |
//! | a close | commits the file's epoch | nothing |
//! | `fsync` of a directory | nothing is pending | commits the epoch |
//! | a copy from another file | commits that file's epoch | nothing: both files are in the epoch |
//! | `sync`, drop | commits all epochs | commits the epoch |
//! | no space | the call fails | commits the epoch, and makes the call once more |
//! | a name call, a call of an explicit group | commits the epochs of the files that it names | commits the epoch if one of these files is dirty |
//! | a content call on one file more than [`MOST_DIRTY`] | the call fails with `ENOSPC` | |
//! | the timer, too many pieces | nothing | commits the epoch |
//!
//! A commit is that of an explicit group, and its commit point is the engine's. Nothing else here makes anything
//! durable: a crash before it takes all of the epoch away, as if it had been aborted.
//!
//! # Invariants
//!
//! 1. Epochs have content calls only, and a dirty file is in one epoch. So an epoch claims files only, and a crash
//!    brings a file back as it was at its last commit.
//! 2. A file becomes dirty while its lock is held for writing. Its epoch ends while the lock is held for writing
//!    (`per-sync`) or the gate is (`shared`). A call that is made in an epoch holds the same lock for reading. So the
//!    epoch that a call finds lasts until the call returns, and a sync waits for the calls in the epoch that it commits
//!    and for no others.
//! 3. A call that looks at a clean file holds nothing: it sees what was committed last, as if it had come before the
//!    calls that make the file dirty meanwhile.
//! 4. A name call is a group of its own, committed after the content of the files that it names. It holds the locks of
//!    these files, so that they stay clean. Where no file at all is dirty it holds none: if a file becomes dirty
//!    meanwhile, the name call comes first, or gets `EBUSY` from below and is made again.
//! 5. Locks are taken in this order: the gate, then those of files by the numbers of their inodes. A call below is made
//!    with them held, and takes none of them. Under `per-sync`, calls on different files have no lock in common here,
//!    but for a moment when a file becomes dirty or clean (a shard of the table of dirty files).
//! 6. Under `per-sync` no epoch is committed but by the calls in the table: not for space, size or number.
//! 7. Memory: at most [`MOST_DIRTY`] files are dirty under `per-sync`, and under `shared` the epoch has at most
//!    [`MOST_PIECES`] pieces. The epoch of a file under `per-sync` takes what an explicit group takes: it is not
//!    divided for its size.
//! 8. The end commits all epochs. The death of the process leaves what a power failure leaves.
//!
//! # States of a file
//!
//! ```text
//! clean --- content call ---> dirty --- commit ---> clean
//! ```
//! If a commit fails, so has what is below, or the epoch is aborted.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sync::{
    AtomicU64, Condvar, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, Spawned, spawn,
};
use wholly_vfs::{
    Access, Attr, Committed, Context, Errno, Fallocate, FileType, GroupId, Groups, Handle, Ino, Listed, Mode, OFlags,
    Policy, Rename, Result, Seek, Seen, SetAttr, SetTime, SetXattr, StatFs, Ticket, Vfs,
};

/// Files that are dirty at the same time under `per-sync`.
pub const MOST_DIRTY: u64 = 1 << 16;

/// Content calls of the epoch under `shared`, and whole pieces of [`PIECE`] bytes in them: each takes up to 300 bytes
/// of memory.
const MOST_PIECES: u64 = 1 << 16;
const PIECE: usize = 4096;

/// Shards of the table of dirty files.
const SHARDS: u64 = 64;

/// How often a name call is made again because one of its files has become dirty meanwhile.
const TRIES: u32 = 8;

/// What a policy asks of a store or volume, besides groups.
///
/// An epoch is begun by [`begin`](Groups::begin) and ended by [`commit`](Groups::commit). It need not be visible to
/// others below: all calls on its file that go through the policy are made in its context.
pub trait Epochs: Groups {
    /// The most bytes that one copy changes.
    const COPIED: usize;

    /// The mark of an open file, and how it was opened. An inode has one mark as long as it has references, open
    /// handles, or changes in a running group.
    ///
    /// # Errors
    /// `EBADF`.
    fn marked(&self, handle: Handle) -> Result<(Arc<Marked>, OFlags)>;

    /// The mark of an inode, if that is in memory.
    fn marked_inode(&self, ino: Ino) -> Option<Arc<Marked>>;

    /// Whether a running group has changed an inode.
    fn has_changed(&self, group: GroupId, ino: Ino) -> bool;

    /// Works in the background, where nobody keeps what is below from being closed. False: it is another process's now.
    fn in_background(&self, work: &mut dyn FnMut()) -> bool;
}

/// The mark of an inode. It is there whether or not a policy is.
#[derive(Debug)]
pub struct Marked {
    ino: Ino,
    epoch: RwLock<Option<Epoch>>,
}

/// The epoch that a file is dirty in. Under `shared` that has perhaps ended since.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Which policy's: another one, over the same inodes, has nothing to do with it.
    policy: GroupId,
    group: GroupId,
}

impl Marked {
    /// The mark of a clean file.
    pub fn new(ino: Ino) -> Marked {
        Marked { ino, epoch: RwLock::new(None) }
    }
}

/// A file's lock, held.
type Open<'f> = RwLockReadGuard<'f, Option<Epoch>>;
type Shut<'f> = RwLockWriteGuard<'f, Option<Epoch>>;

/// Calls outside of explicit groups, grouped by a policy.
pub struct Policed<V: Epochs> {
    inner: Arc<Inner<V>>,
    timer: Mutex<Option<(Arc<Stop>, Spawned)>>,
}

struct Inner<V> {
    vfs: V,
    policy: Policy,
    /// Marks the epochs of this policy: no other has the same number.
    number: GroupId,
    most_dirty: u64,
    /// How many files are dirty, or about to be.
    dirty: AtomicU64,
    /// Under `per-sync`: the dirty files, for a sync of all.
    files: Vec<Mutex<BTreeMap<u64, Arc<Marked>>>>,
    /// Under `shared`: the running epoch.
    gate: RwLock<Option<GroupId>>,
    /// The same for who has not the gate; 0 if none runs.
    running: AtomicU64,
    /// Of that epoch: see [`MOST_PIECES`].
    pieces: AtomicU64,
    /// How often it was committed for space or for its size.
    early: AtomicU64,
}

/// Tells the timer to end.
#[derive(Default)]
struct Stop {
    is_told: Mutex<bool>,
    told: Condvar,
}

/// Files that stay clean as long as this is held.
#[derive(Default)]
struct Clean<'f> {
    _open: Vec<Open<'f>>,
    _shut: Vec<Shut<'f>>,
}

impl<V: Epochs + 'static> Policed<V> {
    /// Groups the calls on `vfs`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for any policy but `per-op` if it has no groups.
    pub fn new(vfs: V, policy: Policy, most_dirty: u64) -> Result<Policed<V>> {
        let mut number = GroupId(0);
        if policy != Policy::PerOp {
            number = vfs.begin()?;
            vfs.abort(number)?;
        }
        let inner = Arc::new(Inner {
            vfs,
            policy,
            number,
            most_dirty,
            dirty: AtomicU64::new(0),
            files: (0..SHARDS).map(|_| Mutex::default()).collect(),
            gate: RwLock::default(),
            running: AtomicU64::new(0),
            pieces: AtomicU64::new(0),
            early: AtomicU64::new(0),
        });
        let timer = match policy {
            Policy::Shared { interval } => Some(inner.clone().commit_every(interval)?),
            _ => None,
        };
        Ok(Policed { inner, timer: Mutex::new(timer) })
    }

    /// What is below.
    pub fn below(&self) -> &V {
        &self.inner.vfs
    }

    /// The policy, and the most files that may be dirty.
    pub fn kind(&self) -> (Policy, u64) {
        (self.inner.policy, self.inner.most_dirty)
    }

    /// How often the epoch under `shared` was committed for want of space, or for its size.
    pub fn early_commits(&self) -> u64 {
        self.inner.early.load(Ordering::Relaxed)
    }

    /// How many files are dirty.
    pub fn dirty_files(&self) -> u64 {
        self.inner.dirty.load(Ordering::Relaxed)
    }

    /// Commits all epochs: nobody makes calls any more. If it fails, so does what comes after it.
    pub fn end_all(&self) {
        if let Some((stop, timer)) = self.timer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            *stop.is_told.lock().unwrap_or_else(PoisonError::into_inner) = true;
            stop.told.notify_all();
            timer.join();
        }
        let inner = &self.inner;
        // A call that panicked may have left anything of its file, or of the epoch.
        for file in inner.dirty_files() {
            if let Ok(mut epoch) = file.epoch.write() {
                let _ = inner.commit_file(&file, &mut epoch);
            }
        }
        if let Ok(mut gate) = inner.gate.write() {
            let _ = inner.commit_shared(&mut gate);
            if let Some(unused) = gate.take() {
                let _ = inner.vfs.abort(unused);
            }
        }
    }

    /// What `O_TRUNC` does.
    fn truncate(&self, ctx: &Context, ino: Ino) -> Result<Attr> {
        self.setattr(ctx, ino, None, &SetAttr { size: Some(0), ..SetAttr::default() })
    }
}

impl<V: Epochs + 'static> Inner<V> {
    fn commit_every(self: Arc<Self>, interval: Duration) -> Result<(Arc<Stop>, Spawned)> {
        let stop = Arc::new(Stop::default());
        let waits = stop.clone();
        let timer = move || {
            let mut is_told = waits.is_told.lock().unwrap();
            while !*is_told {
                is_told = waits.told.wait_timeout(is_told, interval).unwrap().0;
                // If it fails, so has what is below: the next call says so.
                if !self.vfs.in_background(&mut || _ = self.commit_all()) {
                    return;
                }
            }
        };
        Ok((stop, spawn(timer)?))
    }
}

impl<V: Epochs> Inner<V> {
    fn is_shared(&self) -> bool {
        matches!(self.policy, Policy::Shared { .. })
    }

    /// The running epoch of this policy that a mark tells of. Under `shared` it lasts as long as the gate is held.
    fn running(&self, epoch: &Option<Epoch>) -> Option<GroupId> {
        let Epoch { policy, group } = (*epoch)?;
        let runs = !self.is_shared() || group.0 == self.running.load(Ordering::SeqCst);
        (policy == self.number && runs).then_some(group)
    }

    fn is_dirty(&self, file: &Marked) -> bool {
        self.running(&file.epoch.read().unwrap()).is_some()
    }

    /// Whether no file is dirty, or about to be.
    fn is_clean(&self) -> bool {
        self.dirty.load(Ordering::SeqCst) == 0
    }

    fn shard(&self, file: &Marked) -> MutexGuard<'_, BTreeMap<u64, Arc<Marked>>> {
        self.files[(file.ino.0 % SHARDS) as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dirty_files(&self) -> Vec<Arc<Marked>> {
        let of = |shard: &Mutex<BTreeMap<_, _>>| -> Vec<_> {
            shard.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
        };
        self.files.iter().flat_map(of).collect()
    }

    /// Commits the epoch of a file whose lock is held.
    fn commit_file(&self, file: &Marked, epoch: &mut Option<Epoch>) -> Result<()> {
        let Some(group) = self.running(epoch) else { return Ok(()) };
        let committed = self.vfs.commit(group);
        *epoch = None;
        // Not before: a sync of all that does not find it need not wait for it.
        self.shard(file).remove(&file.ino.0);
        self.dirty.fetch_sub(1, Ordering::SeqCst);
        Ok(committed?)
    }

    /// Commits the epoch of all files.
    fn commit_shared(&self, gate: &mut Option<GroupId>) -> Result<()> {
        if self.is_clean() {
            return Ok(());
        }
        let Some(group) = gate.take() else { return Ok(()) };
        let committed = self.vfs.commit(group);
        // Not before: a call that looks at one of its files would see what was there before it.
        self.running.store(0, Ordering::SeqCst);
        self.dirty.store(0, Ordering::SeqCst);
        self.pieces.store(0, Ordering::Relaxed);
        Ok(committed?)
    }

    fn commit_all(&self) -> Result<()> {
        if self.is_shared() {
            return self.commit_shared(&mut self.gate.write().unwrap());
        }
        let commit = |file: &Arc<Marked>| self.commit_file(file, &mut file.epoch.write().unwrap());
        // One that is aborted keeps none of the others.
        self.dirty_files().iter().map(commit).fold(Ok(()), Result::and)
    }

    /// Commits the epoch before it is asked for, as `shared` may. Whether there was one.
    fn commit_early(&self) -> Result<bool> {
        if !self.is_shared() || self.is_clean() {
            return Ok(false);
        }
        self.early.fetch_add(1, Ordering::Relaxed);
        self.commit_all().map(|()| true)
    }

    /// Commits what a sync of a file makes durable.
    fn sync_file(&self, file: &Marked) -> Result<()> {
        match self.is_shared() {
            true => self.commit_all(),
            false if self.is_dirty(file) => self.commit_file(file, &mut file.epoch.write().unwrap()),
            false => Ok(()),
        }
    }

    /// Sees to it that these files, in the order of their numbers, are clean.
    fn clean<'f>(&self, files: &'f [Arc<Marked>]) -> Result<Clean<'f>> {
        let read = || files.iter().map(|file| file.epoch.read().unwrap()).collect::<Vec<_>>();
        let open = read();
        if !open.iter().any(|epoch| self.running(epoch).is_some()) {
            return Ok(Clean { _open: open, ..Clean::default() });
        }
        drop(open);
        if self.is_shared() {
            let mut gate = self.gate.write().unwrap();
            self.commit_shared(&mut gate)?;
            return Ok(Clean { _open: read(), ..Clean::default() });
        }
        let mut shut: Vec<_> = files.iter().map(|file| file.epoch.write().unwrap()).collect();
        for (file, epoch) in files.iter().zip(&mut shut) {
            self.commit_file(file, epoch)?;
        }
        Ok(Clean { _shut: shut, ..Clean::default() })
    }

    /// The file that a name is of.
    fn named(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Option<Arc<Marked>> {
        let found = self.vfs.lookup(ctx, dir, name).ok()?;
        let file = self.vfs.marked_inode(found.ino);
        self.vfs.forget(found.ino, 1);
        file
    }

    /// Makes a call that names these files.
    fn naming<T>(&self, files: impl Fn() -> Vec<Arc<Marked>>, call: impl Fn(&V) -> Result<T>) -> Result<T> {
        let mut tries = 0..TRIES;
        loop {
            let done = if self.is_clean() {
                call(&self.vfs)
            } else {
                let mut files = files();
                files.sort_by_key(|file| file.ino.0);
                files.dedup_by_key(|file| file.ino.0);
                let _clean = self.clean(&files)?;
                call(&self.vfs)
            };
            let is_again = match &done {
                // A file has become dirty meanwhile, or the name is another file's.
                Err(Errno::BUSY) => files().iter().any(|file| self.is_dirty(file)),
                // What the epoch has freed is free once it is committed.
                Err(Errno::NOSPC) => self.commit_early()?,
                _ => false,
            };
            if !is_again || tries.next().is_none() {
                return done;
            }
        }
    }

    /// The same, of one file.
    fn naming_inode<T>(&self, ino: Ino, call: impl Fn(&V) -> Result<T>) -> Result<T> {
        self.naming(|| self.vfs.marked_inode(ino).into_iter().collect(), call)
    }

    /// Makes a call that looks at a file.
    fn looking<T>(
        &self,
        ctx: &Context,
        file: Option<Arc<Marked>>,
        call: impl FnOnce(&V, &Context) -> Result<T>,
    ) -> Result<T> {
        let Some(file) = file.filter(|_| !self.is_clean()) else { return call(&self.vfs, ctx) };
        if ctx.group.is_some() {
            let _clean = self.clean(std::slice::from_ref(&file))?;
            return call(&self.vfs, ctx);
        }
        if self.is_shared() && !self.is_dirty(&file) {
            return call(&self.vfs, ctx);
        }
        let gate = self.is_shared().then(|| self.gate.read().unwrap());
        let epoch = file.epoch.read().unwrap();
        match self.running(&epoch) {
            Some(group) => call(&self.vfs, &Context { group: Some(group), ..ctx.clone() }),
            None => {
                drop((epoch, gate));
                call(&self.vfs, ctx)
            }
        }
    }

    fn looking_at<T>(&self, ctx: &Context, ino: Ino, call: impl FnOnce(&V, &Context) -> Result<T>) -> Result<T> {
        let file = if self.is_clean() { None } else { self.vfs.marked_inode(ino) };
        self.looking(ctx, file, call)
    }

    /// Attributes of what was found without regard to epochs.
    fn looked(&self, ctx: &Context, found: Attr) -> Result<Attr> {
        let is_dirty = !self.is_clean() && self.vfs.marked_inode(found.ino).is_some_and(|file| self.is_dirty(&file));
        if !is_dirty {
            return Ok(found);
        }
        let attr = self.looking_at(ctx, found.ino, |vfs, ctx| vfs.getattr(ctx, found.ino));
        attr.inspect_err(|_| self.vfs.forget(found.ino, 1))
    }

    /// Makes a content call on a file, which changes at most `bytes` bytes by themselves.
    fn writing<T>(
        &self,
        ctx: &Context,
        (file, flags): (Arc<Marked>, OFlags),
        bytes: usize,
        call: impl Fn(&V, &Context) -> Result<T>,
    ) -> Result<T> {
        if ctx.group.is_some() || self.policy == Policy::PerOp {
            return self.naming(|| vec![file.clone()], |vfs| call(vfs, ctx));
        }
        let mut done = self.write_once(ctx, &file, &call);
        // What the epoch has freed is free once it is committed.
        if matches!(done, Err(Errno::NOSPC)) && self.commit_early()? {
            done = self.write_once(ctx, &file, &call);
        }
        let more = 1 + (bytes / PIECE) as u64;
        if self.is_shared() && self.pieces.fetch_add(more, Ordering::Relaxed) + more > MOST_PIECES {
            self.commit_early()?;
        }
        if done.is_ok() && flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            self.sync_file(&file)?;
        }
        done
    }

    /// The running epoch of all files, which lasts as long as the gate is held.
    fn shared_epoch(&self) -> Result<(RwLockReadGuard<'_, Option<GroupId>>, GroupId)> {
        loop {
            let gate = self.gate.read().unwrap();
            if let Some(group) = *gate {
                return Ok((gate, group));
            }
            drop(gate);
            let mut gate = self.gate.write().unwrap();
            if gate.is_none() {
                let group = self.vfs.begin()?;
                self.running.store(group.0, Ordering::SeqCst);
                *gate = Some(group);
            }
        }
    }

    fn write_once<T>(&self, ctx: &Context, file: &Arc<Marked>, call: impl Fn(&V, &Context) -> Result<T>) -> Result<T> {
        let within = |group| call(&self.vfs, &Context { group: Some(group), ..ctx.clone() });
        let shared = if self.is_shared() { Some(self.shared_epoch()?) } else { None };
        let epoch = file.epoch.read().unwrap();
        if let Some(group) = self.running(&epoch) {
            return within(group);
        }
        drop(epoch);
        let mut epoch = file.epoch.write().unwrap();
        if let Some(group) = self.running(&epoch) {
            return within(group);
        }
        let dirty = self.dirty.fetch_add(1, Ordering::SeqCst);
        let done = match &shared {
            Some((_, group)) => Ok(*group),
            None if dirty >= self.most_dirty => Err(Errno::NOSPC),
            None => self.vfs.begin().map_err(Errno::from),
        };
        let group = done.inspect_err(|_| _ = self.dirty.fetch_sub(1, Ordering::SeqCst))?;
        let done = within(group);
        // A call that fails may have changed something before that, and one that does not, nothing.
        if self.vfs.has_changed(group, file.ino) {
            *epoch = Some(Epoch { policy: self.number, group });
            if shared.is_none() {
                self.shard(file).insert(file.ino.0, file.clone());
            }
        } else {
            self.dirty.fetch_sub(1, Ordering::SeqCst);
            if shared.is_none() {
                self.vfs.abort(group)?;
            }
        }
        done
    }
}

/// Calls that no epoch is in the way of.
macro_rules! pass {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, ctx: &Context, $($arg: $type),*) -> $result {
            self.inner.vfs.$name(ctx, $($arg),*)
        })*
    };
}

/// Calls that look at an inode.
macro_rules! look {
    ($($name:ident(ino: Ino $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self, ctx: &Context, ino: Ino, $($arg: $type),*) -> $result {
            self.inner.looking_at(ctx, ino, |vfs, ctx| vfs.$name(ctx, ino, $($arg),*))
        })*
    };
}

/// Calls that change an inode's attributes.
macro_rules! change {
    ($($name:ident(ino: Ino $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self, ctx: &Context, ino: Ino, $($arg: $type),*) -> $result {
            self.inner.naming_inode(ino, |vfs| vfs.$name(ctx, ino, $($arg),*))
        })*
    };
}

impl<V: Epochs + 'static> Vfs for Policed<V> {
    pass! {
        access(ino: Ino, access: Access) -> Result<()>;
        readlink(ino: Ino) -> Result<Vec<u8>>;
        mknod(dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr>;
        mkdir(dir: Ino, name: &[u8], mode: Mode) -> Result<Attr>;
        symlink(dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr>;
        rmdir(dir: Ino, name: &[u8]) -> Result<()>;
        tmpfile(dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)>;
        opendir(dir: Ino) -> Result<Handle>;
        readdir(handle: Handle, offset: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<()>;
        releasedir(handle: Handle) -> Result<()>;
        statfs(ino: Ino) -> Result<StatFs>;
    }

    look! {
        getattr(ino: Ino) -> Result<Attr>;
        getxattr(ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
        listxattr(ino: Ino) -> Result<Vec<u8>>;
    }

    change! {
        link(ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr>;
        setxattr(ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<()>;
        removexattr(ino: Ino, name: &[u8]) -> Result<()>;
    }

    fn forget(&self, ino: Ino, references: u64) {
        self.inner.vfs.forget(ino, references);
    }

    fn lookup(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr> {
        let found = self.inner.vfs.lookup(ctx, dir, name)?;
        self.inner.looked(ctx, found)
    }

    fn setattr(&self, ctx: &Context, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> Result<Attr> {
        // The kernel has the time set by an open with `O_TRUNC`, too.
        let mtime = if change.mtime == SetTime::Now { SetTime::Now } else { SetTime::Omit };
        let content = SetAttr { size: change.size, mtime, ..SetAttr::default() };
        let of = match handle {
            Some(handle) => Some(self.inner.vfs.marked(handle)?),
            None => self.inner.vfs.marked_inode(ino).map(|file| (file, OFlags::empty())),
        };
        match of.filter(|(file, _)| change.size.is_some() && file.ino == ino && content == *change) {
            Some(of) => self.inner.writing(ctx, of, 0, |vfs, ctx| vfs.setattr(ctx, ino, handle, change)),
            None => self.inner.naming_inode(ino, |vfs| vfs.setattr(ctx, ino, handle, change)),
        }
    }

    fn unlink(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
        let named = || self.inner.named(ctx, dir, name).into_iter().collect();
        self.inner.naming(named, |vfs| vfs.unlink(ctx, dir, name))
    }

    fn rename(&self, ctx: &Context, from: Ino, name: &[u8], to: Ino, new_name: &[u8], how: Rename) -> Result<()> {
        let both = || [(from, name), (to, new_name)].iter().filter_map(|(d, n)| self.inner.named(ctx, *d, n)).collect();
        self.inner.naming(both, |vfs| vfs.rename(ctx, from, name, to, new_name, how))
    }

    fn open(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle> {
        let handle = self.inner.vfs.open(ctx, ino, flags - OFlags::TRUNC)?;
        if flags.contains(OFlags::TRUNC) {
            self.truncate(ctx, ino).inspect_err(|_| {
                let _ = self.inner.vfs.release(ctx, handle);
            })?;
        }
        Ok(handle)
    }

    fn create(&self, ctx: &Context, dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
        let named = || self.inner.named(ctx, dir, name).into_iter().collect();
        let (mut attr, handle) =
            self.inner.naming(named, |vfs| vfs.create(ctx, dir, name, flags - OFlags::TRUNC, mode))?;
        // It was there.
        if flags.contains(OFlags::TRUNC) && attr.size > 0 {
            attr = self.truncate(ctx, attr.ino).inspect_err(|_| {
                let _ = self.inner.vfs.release(ctx, handle);
                self.inner.vfs.forget(attr.ino, 1);
            })?;
        }
        Ok((attr, handle))
    }

    fn read(&self, ctx: &Context, handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (file, _) = self.inner.vfs.marked(handle)?;
        self.inner.looking(ctx, Some(file), |vfs, ctx| vfs.read(ctx, handle, offset, buf))
    }

    fn write(&self, ctx: &Context, handle: Handle, offset: u64, data: &[u8]) -> Result<usize> {
        let of = self.inner.vfs.marked(handle)?;
        self.inner.writing(ctx, of, data.len(), |vfs, ctx| vfs.write(ctx, handle, offset, data))
    }

    fn append(&self, ctx: &Context, handle: Handle, data: &[u8]) -> Result<(u64, usize)> {
        let of = self.inner.vfs.marked(handle)?;
        self.inner.writing(ctx, of, data.len(), |vfs, ctx| vfs.append(ctx, handle, data))
    }

    fn copy_file_range(
        &self,
        ctx: &Context,
        from: Handle,
        from_offset: u64,
        to: Handle,
        to_offset: u64,
        len: usize,
    ) -> Result<usize> {
        let ((source, _), of) = (self.inner.vfs.marked(from)?, self.inner.vfs.marked(to)?);
        // A call is in one epoch. What is written to the source from here on is as if it came after the copy.
        if source.ino != of.0.ino && (ctx.group.is_some() || !self.inner.is_shared()) {
            self.inner.sync_file(&source)?;
        }
        let copy = |vfs: &V, ctx: &Context| vfs.copy_file_range(ctx, from, from_offset, to, to_offset, len);
        self.inner.writing(ctx, of, len.min(V::COPIED), copy)
    }

    fn fallocate(&self, ctx: &Context, handle: Handle, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let of = self.inner.vfs.marked(handle)?;
        self.inner.writing(ctx, of, 0, |vfs, ctx| vfs.fallocate(ctx, handle, how, offset, len))
    }

    fn seek(&self, ctx: &Context, handle: Handle, seek: Seek) -> Result<u64> {
        let (file, _) = self.inner.vfs.marked(handle)?;
        self.inner.looking(ctx, Some(file), |vfs, ctx| vfs.seek(ctx, handle, seek))
    }

    fn fsync(&self, ctx: &Context, handle: Handle) -> Result<()> {
        let (file, _) = self.inner.vfs.marked(handle)?;
        self.inner.sync_file(&file)?;
        self.inner.vfs.fsync(ctx, handle)
    }

    fn fdatasync(&self, ctx: &Context, handle: Handle) -> Result<()> {
        self.fsync(ctx, handle)
    }

    fn release(&self, ctx: &Context, handle: Handle) -> Result<()> {
        let (file, _) = self.inner.vfs.marked(handle)?;
        let synced = if self.inner.is_shared() { Ok(()) } else { self.inner.sync_file(&file) };
        self.inner.vfs.release(ctx, handle).and(synced)
    }

    fn fsyncdir(&self, ctx: &Context, handle: Handle) -> Result<()> {
        if self.inner.is_shared() {
            self.inner.commit_all()?;
        }
        self.inner.vfs.fsyncdir(ctx, handle)
    }

    fn sync(&self, ctx: &Context) -> Result<()> {
        self.inner.commit_all()?;
        self.inner.vfs.sync(ctx)
    }
}

impl<V: Epochs + 'static> Groups for Policed<V> {
    fn begin_as(&self, seen: Seen) -> wholly_error::Result<GroupId> {
        self.inner.vfs.begin_as(seen)
    }

    fn add(&self, group: GroupId, handle: Handle) -> wholly_error::Result<()> {
        let refused = |errno| wholly_error::Error::of("an open file", errno);
        let (file, _) = self.inner.vfs.marked(handle).map_err(refused)?;
        self.inner.naming(|| vec![file.clone()], |vfs| Ok(vfs.add(group, handle)?)).map_err(refused)
    }

    fn commit_all(&self, groups: &[GroupId], how: Committed) -> wholly_error::Result<Ticket> {
        self.inner.vfs.commit_all(groups, how)
    }

    fn wait(&self, ticket: Ticket) -> wholly_error::Result<()> {
        self.inner.vfs.wait(ticket)
    }

    fn abort(&self, group: GroupId) -> wholly_error::Result<()> {
        self.inner.vfs.abort(group)
    }
}
