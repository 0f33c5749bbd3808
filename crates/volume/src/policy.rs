//! Implicit groups of several calls: a [`Vfs`] over a volume's, in which each call is a group of its own.
//!
//! # Terms
//!
//! - *content call*: writes to an open file, appends, copies, allocates, or sets a size, also by path or by `O_TRUNC`.
//!   *Name call*: any other call that changes something: names and attributes.
//! - *epoch*: an explicit group that belongs to the policy: of one file under `per-sync`, of all files under `shared`.
//!   Everybody sees its changes.
//! - *dirty*: a file with changes in a running epoch. Calls on it are made in the context of that group.
//!
//! | | under `per-sync` | under `shared` |
//! |---|---|---|
//! | `fsync`, `fdatasync`, a write with `O_SYNC` | commits the file's epoch | commits the epoch |
//! | a close | commits the file's epoch | nothing |
//! | `fsync` of a directory | nothing is pending | commits the epoch |
//! | a copy from another file | commits that file's epoch | commits the epoch |
//! | `sync`, drop, no space, too many files | commits all epochs | commits the epoch |
//! | a name call, a call of an explicit group | commits the epochs of the files that it names | commits the epoch if one of these files is dirty |
//! | the timer, too many blocks | nothing | commits the epoch |
//!
//! A commit is that of an explicit group, and its commit point is the engine's. Nothing else here makes anything
//! durable: a crash before it takes all of the epoch away, as if it had been aborted.
//!
//! # Invariants
//!
//! 1. Epochs have content calls only, and a dirty file is in one epoch. So an epoch claims files only, and a crash
//!    brings a file back as it was at its last commit.
//! 2. A file becomes dirty, and an epoch ends, while the gate is shut. All other calls that may meet an epoch hold the
//!    gate open. So the epoch that a call finds lasts until the call returns, and a file that a name call finds clean
//!    stays clean during the call.
//! 3. A name call is a group of its own, committed after the content of the files that it names.
//! 4. Memory: at most [`MOST_DIRTY`] files are dirty, and under `shared` the epoch has at most [`MOST_PIECES`] pieces.
//!    The epoch of a file under `per-sync` takes what an explicit group takes: it is not divided for its size.
//! 5. Drop commits all epochs. The death of the process leaves what a power failure leaves.
//! 6. A call without space has the epochs committed, which frees what they have written over, and is made once more.
//!
//! # States of a file
//!
//! ```text
//! clean --- content call ---> dirty --- commit ---> clean
//! ```
//! If a commit fails, so has the volume.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use sync::{AtomicU64, Condvar, Mutex, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard, Spawned, spawn};
use wholly_vfs::{
    Access, Attr, Committed, Context, Errno, Fallocate, FileType, GroupId, Groups, Handle, Ino, Listed, Mode, OFlags,
    Policy, Rename, Result, Seek, Seen, SetAttr, SetTime, SetXattr, StatFs, Ticket, Vfs,
};

use crate::Volume;
use crate::fork::{Guarded, OverVolume, guard};
use crate::format::BLOCK;
use crate::fs::table::ByNumber;
use crate::open::Mounted;
use crate::vfs::of_file;
use crate::vfs::{COPIED, UnguardedVfs};

/// Files that are dirty at the same time.
const MOST_DIRTY: usize = 1024;

/// Content calls of the epoch under `shared`, and whole blocks in them: each takes up to 300 bytes of memory.
const MOST_PIECES: u64 = 1 << 16;

/// The epochs of dirty files, by the numbers of their inodes.
type Dirty = ByNumber<GroupId>;

/// The gate is shut.
type Shut<'g> = RwLockWriteGuard<'g, Dirty>;

/// A volume whose calls outside of explicit groups are grouped by a policy.
///
/// All that use it see each change at once. Calls on the [`Volume`] itself see what is committed, and get `EBUSY` where
/// they would change a file with changes that are not.
///
/// Drop it before [`Volume::close`]: the drop commits what is pending, a close aborts it.
pub struct PolicyVfs(Guarded<Policed>);

/// The same, without regard to forks.
struct Policed {
    inner: Arc<Inner>,
    timer: Mutex<Option<(Arc<Stop>, Spawned)>>,
}

struct Inner {
    vfs: UnguardedVfs,
    policy: Policy,
    gate: RwLock<Dirty>,
    /// Of the epoch under `shared`: see [`MOST_PIECES`].
    pieces: AtomicU64,
}

/// Tells the timer to end.
#[derive(Default)]
struct Stop {
    is_told: Mutex<bool>,
    told: Condvar,
}

/// What a call holds: the gate stays open, or shut, until it returns.
#[derive(Default)]
struct Gate<'g> {
    _open: Option<RwLockReadGuard<'g, Dirty>>,
    _shut: Option<Shut<'g>>,
}

impl std::fmt::Debug for PolicyVfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PolicyVfs").finish_non_exhaustive()
    }
}

impl PolicyVfs {
    /// Groups the calls of `volume`, which stays open as long as this does.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for any policy but `per-op` if the volume's engine has no groups.
    pub fn new(volume: &Volume, policy: Policy) -> Result<PolicyVfs> {
        let opened = volume.opened().current()?;
        let policed = opened.used(|_| Policed::new(&opened.mounted, policy))?;
        Ok(PolicyVfs(Guarded::new(policed, opened)))
    }

    /// As [`VolumeVfs::held`](crate::VolumeVfs::held), of what callers hold.
    #[doc(hidden)]
    pub fn held(&self) -> (u64, usize) {
        self.0.used(None, |policed| Ok::<_, Errno>(policed.inner.vfs.held())).unwrap_or_default()
    }
}

guard!(PolicyVfs);

impl Policed {
    /// See [`UnguardedVfs::identity`].
    pub fn identity(&self, handle: Handle) -> Result<(u64, u64)> {
        self.inner.vfs.identity(handle)
    }

    fn new(volume: &Arc<Mounted>, policy: Policy) -> Result<Policed> {
        let vfs = UnguardedVfs::over(volume.clone());
        if policy != Policy::PerOp {
            vfs.begin().and_then(|group| vfs.abort(group))?;
        }
        let inner = Arc::new(Inner { vfs, policy, gate: RwLock::default(), pieces: AtomicU64::new(0) });
        let timer = match policy {
            Policy::Shared { interval } => Some(inner.clone().commit_every(interval)?),
            _ => None,
        };
        Ok(Policed { inner, timer: Mutex::new(timer) })
    }
}

impl Policed {
    /// What `O_TRUNC` does.
    fn truncate(&self, ctx: &Context, ino: Ino) -> Result<Attr> {
        self.setattr(ctx, ino, None, &SetAttr { size: Some(0), ..SetAttr::default() })
    }
}

impl OverVolume for Policed {
    fn again(&self, volume: &Arc<Mounted>) -> Result<Policed> {
        Policed::new(volume, self.inner.policy)
    }

    fn end(&self) {
        if let Some((stop, timer)) = self.timer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            *stop.is_told.lock().unwrap_or_else(PoisonError::into_inner) = true;
            stop.told.notify_all();
            timer.join();
        }
        // Without a caller: if it fails, so does the unmount. A call that panicked may have left anything.
        if let Ok(mut dirty) = self.inner.gate.write() {
            let _ = self.inner.commit_each(&mut dirty);
        }
        self.inner.vfs.end();
    }
}

impl Inner {
    fn commit_every(self: Arc<Self>, interval: Duration) -> Result<(Arc<Stop>, Spawned)> {
        let stop = Arc::new(Stop::default());
        let waits = stop.clone();
        let timer = move || {
            let mut is_told = waits.is_told.lock().unwrap();
            while !*is_told {
                is_told = waits.told.wait_timeout(is_told, interval).unwrap().0;
                let volume = self.vfs.mounted();
                let _alone = volume.background.lock().unwrap();
                // A child has the volume now.
                let Ok(used) = volume.forked.enter_background() else { return };
                // If it fails, so has the volume: the next call says so.
                let _ = self.commit_all();
                volume.forked.leave(used);
            }
        };
        Ok((stop, spawn(timer)?))
    }

    fn shut(&self) -> Shut<'_> {
        self.gate.write().unwrap()
    }

    fn is_shared(&self) -> bool {
        matches!(self.policy, Policy::Shared { .. })
    }

    /// Commits the epochs of these files.
    fn commit(&self, dirty: &mut Dirty, files: &[u64]) -> Result<()> {
        let epochs: BTreeSet<u64> = files.iter().filter_map(|ino| Some(dirty.get(ino)?.0)).collect();
        dirty.retain(|_, epoch| !epochs.contains(&epoch.0));
        self.pieces.store(0, Ordering::Relaxed);
        epochs.into_iter().try_for_each(|epoch| Ok(self.vfs.commit(GroupId(epoch))?))
    }

    fn commit_each(&self, dirty: &mut Dirty) -> Result<()> {
        let all: Vec<u64> = dirty.keys().copied().collect();
        self.commit(dirty, &all)
    }

    fn commit_all(&self) -> Result<()> {
        self.commit_each(&mut self.shut())
    }

    /// Commits what a sync of a file makes durable.
    fn sync_file(&self, ino: u64) -> Result<()> {
        if self.is_shared() {
            return self.commit_all();
        }
        let is_dirty = self.gate.read().unwrap().contains_key(&ino);
        if is_dirty { self.commit(&mut self.shut(), &[ino]) } else { Ok(()) }
    }

    /// Sees to it that none of these files is dirty, as long as the gate is held.
    fn clean(&self, files: impl Fn() -> Vec<u64>) -> Result<Gate<'_>> {
        let open = self.gate.read().unwrap();
        if open.is_empty() || !files().iter().any(|ino| open.contains_key(ino)) {
            return Ok(Gate { _open: Some(open), ..Gate::default() });
        }
        drop(open);
        let mut dirty = self.shut();
        self.commit(&mut dirty, &files())?;
        Ok(Gate { _shut: Some(dirty), ..Gate::default() })
    }

    /// The file that a name is of, if it may be dirty.
    fn named(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Option<u64> {
        let found = self.vfs.lookup(ctx, dir, name).ok()?;
        self.vfs.forget(found.ino, 1);
        Some(found.ino.0)
    }

    /// Makes a call that names these files.
    fn naming<T>(&self, files: impl Fn() -> Vec<u64>, call: impl Fn(&UnguardedVfs) -> Result<T>) -> Result<T> {
        let done = self.clean(&files).and_then(|_gate| call(&self.vfs));
        match done {
            // What epochs have freed is free once they are committed.
            Err(Errno::NOSPC) if !self.gate.read().unwrap().is_empty() => {
                self.commit_all()?;
                self.clean(&files).and_then(|_gate| call(&self.vfs))
            }
            done => done,
        }
    }

    /// Makes a call that looks at a file.
    fn looking<T>(
        &self,
        ctx: &Context,
        ino: u64,
        call: impl FnOnce(&UnguardedVfs, &Context) -> Result<T>,
    ) -> Result<T> {
        if ctx.group.is_some() {
            let _gate = self.clean(|| vec![ino])?;
            return call(&self.vfs, ctx);
        }
        let open = self.gate.read().unwrap();
        match open.get(&ino) {
            Some(epoch) => call(&self.vfs, &Context { group: Some(*epoch), ..ctx.clone() }),
            None => call(&self.vfs, ctx),
        }
    }

    /// Attributes of what was found without regard to epochs.
    fn looked(&self, ctx: &Context, found: Attr) -> Result<Attr> {
        let is_clean = self.gate.read().unwrap().get(&found.ino.0).is_none();
        if is_clean {
            return Ok(found);
        }
        let attr = self.looking(ctx, found.ino.0, |vfs, ctx| vfs.getattr(ctx, found.ino));
        attr.inspect_err(|_| self.vfs.forget(found.ino, 1))
    }

    /// Makes a content call on a file, which changes at most `bytes` bytes by themselves.
    fn writing<T>(
        &self,
        ctx: &Context,
        (ino, flags): (u64, OFlags),
        bytes: usize,
        call: impl Fn(&UnguardedVfs, &Context) -> Result<T>,
    ) -> Result<T> {
        if ctx.group.is_some() || self.policy == Policy::PerOp {
            return self.naming(|| vec![ino], |vfs| call(vfs, ctx));
        }
        let done = match self.write_once(ctx, ino, &call) {
            // What epochs have freed is free once they are committed.
            Err(Errno::NOSPC) => {
                self.commit_all()?;
                self.write_once(ctx, ino, &call)?
            }
            done => done?,
        };
        let more = 1 + (bytes / BLOCK) as u64;
        let is_large = self.is_shared() && self.pieces.fetch_add(more, Ordering::Relaxed) + more > MOST_PIECES;
        if is_large || flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            self.sync_file(ino)?;
        }
        Ok(done)
    }

    fn write_once<T>(&self, ctx: &Context, ino: u64, call: impl Fn(&UnguardedVfs, &Context) -> Result<T>) -> Result<T> {
        let within = |epoch| Context { group: Some(epoch), ..ctx.clone() };
        let open = self.gate.read().unwrap();
        if let Some(epoch) = open.get(&ino) {
            return call(&self.vfs, &within(*epoch));
        }
        drop(open);
        let mut dirty = self.shut();
        if let Some(epoch) = dirty.get(&ino) {
            return call(&self.vfs, &within(*epoch));
        }
        if dirty.len() >= MOST_DIRTY {
            self.commit_each(&mut dirty)?;
        }
        let running = dirty.values().next().filter(|_| self.is_shared()).copied();
        let epoch = match running {
            Some(epoch) => epoch,
            None => self.vfs.begin()?,
        };
        let done = call(&self.vfs, &within(epoch));
        // A call that fails may have changed something before that, and one that does not, nothing.
        if self.vfs.has_changed(epoch, ino) {
            dirty.insert(ino, epoch);
        } else if running.is_none() {
            self.vfs.abort(epoch)?;
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
            self.inner.looking(ctx, ino.0, |vfs, ctx| vfs.$name(ctx, ino, $($arg),*))
        })*
    };
}

/// Calls that change an inode's attributes.
macro_rules! change {
    ($($name:ident(ino: Ino $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self, ctx: &Context, ino: Ino, $($arg: $type),*) -> $result {
            self.inner.naming(|| vec![ino.0], |vfs| vfs.$name(ctx, ino, $($arg),*))
        })*
    };
}

impl Vfs for Policed {
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
        let of = handle.map(|handle| self.inner.vfs.of_handle(handle)).transpose()?;
        let of = of.unwrap_or((ino.0, OFlags::empty()));
        match change.size.is_some() && of.0 == ino.0 && content == *change {
            true => self.inner.writing(ctx, of, 0, |vfs, ctx| vfs.setattr(ctx, ino, handle, change)),
            false => self.inner.naming(|| vec![ino.0], |vfs| vfs.setattr(ctx, ino, handle, change)),
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
        let (ino, _) = self.inner.vfs.of_handle(handle)?;
        self.inner.looking(ctx, ino, |vfs, ctx| vfs.read(ctx, handle, offset, buf))
    }

    fn write(&self, ctx: &Context, handle: Handle, offset: u64, data: &[u8]) -> Result<usize> {
        let of = self.inner.vfs.of_handle(handle)?;
        self.inner.writing(ctx, of, data.len(), |vfs, ctx| vfs.write(ctx, handle, offset, data))
    }

    fn append(&self, ctx: &Context, handle: Handle, data: &[u8]) -> Result<(u64, usize)> {
        let of = self.inner.vfs.of_handle(handle)?;
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
        let ((source, _), of) = (self.inner.vfs.of_handle(from)?, self.inner.vfs.of_handle(to)?);
        // A call is in one epoch.
        if source != of.0 {
            self.inner.sync_file(source)?;
        }
        let copy = |vfs: &UnguardedVfs, ctx: &Context| vfs.copy_file_range(ctx, from, from_offset, to, to_offset, len);
        self.inner.writing(ctx, of, len.min(COPIED), copy)
    }

    fn fallocate(&self, ctx: &Context, handle: Handle, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        let of = self.inner.vfs.of_handle(handle)?;
        self.inner.writing(ctx, of, 0, |vfs, ctx| vfs.fallocate(ctx, handle, how, offset, len))
    }

    fn seek(&self, ctx: &Context, handle: Handle, seek: Seek) -> Result<u64> {
        let (ino, _) = self.inner.vfs.of_handle(handle)?;
        self.inner.looking(ctx, ino, |vfs, ctx| vfs.seek(ctx, handle, seek))
    }

    fn fsync(&self, ctx: &Context, handle: Handle) -> Result<()> {
        let (ino, _) = self.inner.vfs.of_handle(handle)?;
        self.inner.sync_file(ino)?;
        self.inner.vfs.fsync(ctx, handle)
    }

    fn fdatasync(&self, ctx: &Context, handle: Handle) -> Result<()> {
        self.fsync(ctx, handle)
    }

    fn release(&self, ctx: &Context, handle: Handle) -> Result<()> {
        let (ino, _) = self.inner.vfs.of_handle(handle)?;
        let synced = if self.inner.is_shared() { Ok(()) } else { self.inner.sync_file(ino) };
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

impl Groups for Policed {
    fn begin_as(&self, seen: Seen) -> wholly_error::Result<GroupId> {
        self.inner.vfs.begin_as(seen)
    }

    fn add(&self, group: GroupId, handle: Handle) -> wholly_error::Result<()> {
        let (ino, _) = self.inner.vfs.of_handle(handle).map_err(of_file)?;
        self.inner.naming(|| vec![ino], |vfs| vfs.claim(group, handle)).map_err(of_file)
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
