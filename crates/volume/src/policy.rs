//! A volume whose calls outside of explicit groups are grouped by a policy: a [`Vfs`] over another one, in which each
//! call is a group of its own. The crate `epochs` has the rules. Here an epoch is an explicit group, and calls on a
//! dirty file are made in its context.
//!
//! # Invariants
//!
//! 1. A commit of an epoch is that of an explicit group, and its commit point is the engine's. If it fails, so has the
//!    volume, or the epoch is aborted.
//! 2. A name call is a group of its own, committed after the content of the files that it names. It holds the slots of
//!    those that were dirty. If another one becomes dirty meanwhile, the name call comes first, or gets `EBUSY` from
//!    the volume, and is made again with all of them held.
//! 3. What is copied from another file is committed first under `per-sync`: a call is in one epoch.
//! 4. Memory: under `shared` an epoch has a bounded number of pieces, each of up to 300 bytes of memory. The epoch of a
//!    file under `per-sync` takes what an explicit group takes: it is not divided for its size.
//! 5. Log: under `shared` an epoch is committed once it would fill a quarter of the engine's log, in bytes that its
//!    commit logs. That is the checkpoint of MinL2R (section 3.4).

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use epochs::{Below, MOST_DIRTY, Policies};
use sync::{Condvar, Mutex, Ordering, Spawned, spawn};
use wholly_vfs::{
    Attr, Committed, Context, Errno, GroupId, Groups, Handle, Ino, OFlags, Policy, Result, Seen, SetAttr, Ticket, Vfs,
};

use crate::Volume;
use crate::fork::{Guarded, OverVolume, guard};
use crate::open::Mounted;
use crate::vfs::{COPIED, UnguardedVfs};

/// What an inode keeps.
type Mark = epochs::Mark<GroupId>;

/// Bytes of a piece of an epoch.
const PIECE: usize = 4096;
/// An epoch under `shared` has one of so many parts of the log.
const PARTS_OF_LOG: u64 = 4;

/// A volume whose calls outside of explicit groups are grouped by a policy.
///
/// All that use it see each change at once. Calls on the [`Volume`] itself see what is committed, and get `EBUSY` where
/// they would change a file with changes that are not.
///
/// Under [`Policy::PerSync`] a file's changes are committed when the program asks for it, and at no other time: a call
/// for which there is no space fails with `ENOSPC`, and so does one that would give a 65,537th file pending changes.
/// What was written before can be synced then.
///
/// Drop it before [`Volume::close`]: the drop commits what is pending, a close aborts it.
pub struct PolicyVfs(Guarded<Policed>);

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
        Self::with_most_dirty(volume, policy, MOST_DIRTY)
    }

    /// The same, with another limit of files that have pending changes under `per-sync`: for tests.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    #[doc(hidden)]
    pub fn with_most_dirty(volume: &Volume, policy: Policy, most: u64) -> Result<PolicyVfs> {
        let opened = volume.opened().current()?;
        let policed = opened.used(|_| Policed::new(&opened.mounted, policy, most))?;
        Ok(PolicyVfs(Guarded::new(policed, opened)))
    }

    /// How often the group under [`Policy::Shared`] was committed without a sync or the timer: for want of space, or
    /// because it had become very large.
    pub fn early_commits(&self) -> u64 {
        self.0.used(None, |policed| Ok::<_, Errno>(policed.epochs.early_commits())).unwrap_or_default()
    }

    /// How many files have pending changes.
    pub fn pending_files(&self) -> u64 {
        self.0.used(None, |policed| Ok::<_, Errno>(policed.epochs.dirty_files())).unwrap_or_default()
    }

    /// As [`VolumeVfs::held`](crate::VolumeVfs::held), of what callers hold.
    #[doc(hidden)]
    pub fn held(&self) -> (u64, usize) {
        self.0.used(None, |policed| Ok::<_, Errno>(policed.vfs.held())).unwrap_or_default()
    }
}

guard!(PolicyVfs);

impl Below for UnguardedVfs {
    type File = Mark;
    type Epoch = GroupId;

    fn mark(file: &Mark) -> &Mark {
        file
    }

    fn begin(&self) -> wholly_error::Result<(u64, GroupId)> {
        Groups::begin(self).map(|group| (group.0, group))
    }

    fn has(&self, epoch: &GroupId, file: &Arc<Mark>) -> bool {
        self.mounted().core.has_changed(*epoch, file.number())
    }

    fn fills_log(&self, epoch: &GroupId) -> bool {
        self.mounted().core.fills_log(*epoch, PARTS_OF_LOG)
    }

    /// Who calls waits until it is durable, once it has let go of the epochs.
    fn commit(&self, epoch: &mut Option<GroupId>, data_only: bool) -> wholly_error::Result<()> {
        epoch.take().map_or(Ok(()), |group| self.commit_ordered(group, data_only))
    }
}

/// Without regard to forks.
struct Policed {
    vfs: Arc<UnguardedVfs>,
    epochs: Arc<Policies<UnguardedVfs>>,
    timer: Mutex<Option<(Stop, Spawned)>>,
}

/// Tells the timer to end.
type Stop = Arc<(Mutex<bool>, Condvar)>;

/// Starts the timer of a policy that has one.
fn start_timer(
    vfs: Arc<UnguardedVfs>,
    epochs: Arc<Policies<UnguardedVfs>>,
    interval: Duration,
) -> Result<(Stop, Spawned)> {
    // In the background, where nobody keeps the volume from being closed.
    let commit_old = move || {
        let volume = vfs.mounted();
        let committed = volume.forked.in_background(|| {
            let left = epochs.commit_old(&vfs);
            // With what was ordered before it, and nobody waits for. If that fails, so does what comes after it.
            let _ = if volume.core.engine.orders() { volume.core.sync() } else { vfs.settle() };
            left
        });
        // If not, a child has the volume now.
        committed.ok()
    };
    let stop = Stop::default();
    let waits = stop.clone();
    let timer = move || {
        let (mut is_told, mut left) = (waits.0.lock().unwrap(), Some(interval));
        while let (false, Some(wait)) = (*is_told, left) {
            is_told = waits.1.wait_timeout(is_told, wait).unwrap().0;
            left = if *is_told { None } else { commit_old() };
        }
    };
    Ok((stop, spawn(timer)?))
}

impl OverVolume for Policed {
    fn settle(&self) -> wholly_error::Result<()> {
        self.vfs.settle()
    }

    fn again(&self, volume: &Arc<Mounted>) -> Result<Self> {
        Policed::new(volume, self.epochs.policy, self.epochs.most_dirty)
    }

    fn end(&self) {
        if let Some((stop, timer)) = self.timer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            *stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            stop.1.notify_all();
            timer.join();
        }
        self.epochs.end_all(Some(&self.vfs));
        let _ = self.vfs.settle();
        self.vfs.end();
    }
}

impl Policed {
    fn new(volume: &Arc<Mounted>, policy: Policy, most_dirty: u64) -> Result<Policed> {
        let vfs = Arc::new(UnguardedVfs::over(volume.clone()));
        let mut number = GroupId(0);
        if policy != Policy::PerOp {
            number = Groups::begin(&*vfs)?;
            Groups::abort(&*vfs, number)?;
        }
        let epochs = Arc::new(Policies::new(policy, number.0, most_dirty));
        let timer = match policy {
            Policy::Shared { interval } => Some(start_timer(vfs.clone(), epochs.clone(), interval)?),
            _ => None,
        };
        Ok(Policed { vfs, epochs, timer: Mutex::new(timer) })
    }

    /// See [`UnguardedVfs::identity`].
    fn identity(&self, handle: &Handle) -> Result<(u64, u64)> {
        self.vfs.identity(handle)
    }

    /// What `O_TRUNC` does.
    fn truncate(&self, ctx: &Context, ino: Ino) -> Result<Attr> {
        self.setattr(ctx, ino, None, &SetAttr { size: Some(0), ..SetAttr::default() })
    }

    fn is_clean(&self) -> bool {
        self.epochs.dirty_files() == 0
    }

    /// The mark of an open file, and how it was opened. An inode has one mark as long as it has references, open
    /// handles, or changes in a running group.
    fn opened(&self, handle: &Handle) -> Result<(Arc<Mark>, OFlags)> {
        self.vfs.of_handle(handle).map(|(inode, flags)| (inode.mark().clone(), flags))
    }

    /// The mark of an inode, if that is in memory.
    fn known(&self, ino: Ino) -> Option<Arc<Mark>> {
        self.vfs.mounted().core.known(ino.0).map(|inode| inode.mark().clone())
    }

    /// The files that names are of.
    fn named(&self, ctx: &Context, names: &[(Ino, &[u8])]) -> Vec<Arc<Mark>> {
        let of = |&(dir, name): &(Ino, &[u8])| {
            let found = self.vfs.lookup(ctx, dir, name).ok()?;
            let file = self.known(found.ino);
            self.vfs.forget(found.ino, 1);
            file
        };
        names.iter().filter_map(of).collect()
    }

    /// Makes a call that names these files.
    fn naming<T>(&self, files: impl Fn() -> Vec<Arc<Mark>>, call: impl Fn(&UnguardedVfs) -> Result<T>) -> Result<T> {
        let in_order = || {
            let mut files = files();
            files.sort_by_key(|file| file.number());
            files.dedup_by_key(|file| file.number());
            files
        };
        let mut files = if self.is_clean() { Vec::new() } else { in_order() };
        files.retain(|file| self.epochs.is_dirty(file));
        let mut may_be_early = true;
        loop {
            let held = self.epochs.shut(&self.vfs, &files)?;
            let done = call(&self.vfs);
            drop(held);
            match &done {
                // A file has become dirty meanwhile, or the name is another file's.
                Err(Errno::BUSY) => {
                    let now = in_order();
                    if now.iter().map(|file| file.number()).eq(files.iter().map(|file| file.number())) {
                        return done;
                    }
                    files = now;
                }
                // What the epoch has freed is free once it is committed.
                Err(Errno::NOSPC) if may_be_early && self.epochs.commit_early(&self.vfs)? => may_be_early = false,
                _ => return done,
            }
        }
    }

    /// The same, of one file.
    fn naming_inode<T>(&self, ino: Ino, call: impl Fn(&UnguardedVfs) -> Result<T>) -> Result<T> {
        self.naming(|| self.known(ino).into_iter().collect(), call)
    }

    /// Commits the epoch that a file is dirty in.
    fn sync_epoch(&self, file: &Arc<Mark>, data_only: bool) -> Result<()> {
        let synced = match data_only {
            true => self.epochs.sync_data(&self.vfs, file),
            false => self.epochs.sync(&self.vfs, Some(file)),
        };
        Ok(synced?)
    }

    /// Makes a call that looks at a file.
    fn looking<T>(
        &self,
        ctx: &Context,
        file: Option<Arc<Mark>>,
        call: impl FnOnce(&UnguardedVfs, &Context) -> Result<T>,
    ) -> Result<T> {
        let Some(file) = file else { return call(&self.vfs, ctx) };
        if ctx.group.is_some() {
            self.epochs.clean(&self.vfs, &file)?;
            return call(&self.vfs, ctx);
        }
        self.epochs.look(&file, |epoch| match epoch {
            Some(group) => call(&self.vfs, &Context { group: Some(*group), ..ctx.clone() }),
            None => call(&self.vfs, ctx),
        })
    }

    /// The mark of an inode that is dirty.
    fn dirty(&self, ino: Ino) -> Option<Arc<Mark>> {
        let file = if self.is_clean() { None } else { self.known(ino) };
        file.filter(|file| self.epochs.is_dirty(file))
    }

    /// Makes a content call on a file, which changes at most `bytes` bytes by themselves.
    fn writing<T>(
        &self,
        ctx: &Context,
        (file, flags): (Arc<Mark>, OFlags),
        bytes: usize,
        call: impl Fn(&UnguardedVfs, &Context) -> Result<T>,
    ) -> Result<T> {
        if ctx.group.is_some() || self.epochs.policy == Policy::PerOp {
            return self.naming(|| vec![file.clone()], |vfs| call(vfs, ctx));
        }
        let within = |group: &GroupId| call(&self.vfs, &Context { group: Some(*group), ..ctx.clone() });
        let done = self.epochs.change(&self.vfs, &file, 1 + (bytes / PIECE) as u64, within)?;
        if flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
            self.sync_epoch(&file, !flags.contains(OFlags::SYNC))?;
            // Another thread may have ordered it, and wait, or have failed.
            self.vfs.mounted().core.sync_inode(file.number())?;
        }
        Ok(done)
    }
}

wholly_vfs::pass_on! {
    impl [] Policed;
    // No epoch is in the way of these.
    call |this, ctx, pass| pass(&*this.vfs, ctx);
    bare |this, pass| pass(&*this.vfs);
    {
        fn lookup(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr> {
            let found = self.vfs.lookup(ctx, dir, name)?;
            match self.dirty(found.ino) {
                None => Ok(found),
                Some(_) => self.getattr(ctx, found.ino).inspect_err(|_| self.forget(found.ino, 1)),
            }
        }

        fn getattr(&self, ctx: &Context, ino: Ino) -> Result<Attr> {
            self.looking(ctx, self.dirty(ino), |vfs, ctx| vfs.getattr(ctx, ino))
        }

        fn getxattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
            self.looking(ctx, self.dirty(ino), |vfs, ctx| vfs.getxattr(ctx, ino, name))
        }

        fn listxattr(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>> {
            self.looking(ctx, self.dirty(ino), |vfs, ctx| vfs.listxattr(ctx, ino))
        }

        fn setxattr(&self, ctx: &Context, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
            self.naming_inode(ino, |vfs| vfs.setxattr(ctx, ino, name, value, how))
        }

        fn removexattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<()> {
            self.naming_inode(ino, |vfs| vfs.removexattr(ctx, ino, name))
        }

        fn setattr(&self, ctx: &Context, ino: Ino, handle: Option<&Handle>, change: &SetAttr) -> Result<Attr> {
            // The kernel has the time set by an open with `O_TRUNC`, too.
            let mtime = if change.mtime == SetTime::Now { SetTime::Now } else { SetTime::Omit };
            let content = SetAttr { size: change.size, mtime, ..SetAttr::default() };
            let of = match handle {
                Some(handle) => Some(self.opened(handle)?),
                None => self.known(ino).map(|file| (file, OFlags::empty())),
            };
            match of.filter(|(file, _)| change.size.is_some() && file.number() == ino.0 && content == *change) {
                Some(of) => self.writing(ctx, of, 0, |vfs, ctx| vfs.setattr(ctx, ino, handle, change)),
                None => self.naming_inode(ino, |vfs| vfs.setattr(ctx, ino, handle, change)),
            }
        }

        fn link(&self, ctx: &Context, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr> {
            self.naming_inode(ino, |vfs| vfs.link(ctx, ino, dir, name))
        }

        fn unlink(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()> {
            self.naming(|| self.named(ctx, &[(dir, name)]), |vfs| vfs.unlink(ctx, dir, name))
        }

        fn rename(&self, ctx: &Context, from: Ino, name: &[u8], to: Ino, new_name: &[u8], how: Rename) -> Result<()> {
            let both = [(from, name), (to, new_name)];
            self.naming(|| self.named(ctx, &both), |vfs| vfs.rename(ctx, from, name, to, new_name, how))
        }

        fn open(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle> {
            let handle = self.vfs.open(ctx, ino, flags - OFlags::TRUNC)?;
            if flags.contains(OFlags::TRUNC) {
                self.truncate(ctx, ino).inspect_err(|_| _ = self.vfs.release(ctx, handle.clone()))?;
            }
            Ok(handle)
        }

        fn create(&self, ctx: &Context, dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)> {
            let make = |vfs: &UnguardedVfs| vfs.create(ctx, dir, name, flags - OFlags::TRUNC, mode);
            let (mut attr, handle) = self.naming(|| self.named(ctx, &[(dir, name)]), make)?;
            // It was there.
            if flags.contains(OFlags::TRUNC) && attr.size > 0 {
                attr = self.truncate(ctx, attr.ino).inspect_err(|_| {
                    let _ = self.vfs.release(ctx, handle.clone());
                    self.forget(attr.ino, 1);
                })?;
            }
            Ok((attr, handle))
        }

        fn read(&self, ctx: &Context, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
            self.looking(ctx, Some(self.opened(handle)?.0), |vfs, ctx| vfs.read(ctx, handle, offset, buf))
        }

        fn write(&self, ctx: &Context, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize> {
            let write = |vfs: &UnguardedVfs, ctx: &Context| vfs.write(ctx, handle, offset, data);
            self.writing(ctx, self.opened(handle)?, data.len(), write)
        }

        fn append(&self, ctx: &Context, handle: &Handle, data: &[u8]) -> Result<(u64, usize)> {
            self.writing(ctx, self.opened(handle)?, data.len(), |vfs, ctx| vfs.append(ctx, handle, data))
        }

        fn copy_file_range(
            &self, ctx: &Context, from: &Handle, from_offset: u64, to: &Handle, to_offset: u64, len: usize
        ) -> Result<usize> {
            let ((source, _), of) = (self.opened(from)?, self.opened(to)?);
            // What is written to the source from here on is as if it came after the copy.
            if source.number() != of.0.number() && (ctx.group.is_some() || !self.epochs.is_shared()) {
                self.epochs.clean(&self.vfs, &source)?;
            }
            let copy =
                |vfs: &UnguardedVfs, ctx: &Context| vfs.copy_file_range(ctx, from, from_offset, to, to_offset, len);
            self.writing(ctx, of, len.min(COPIED), copy)
        }

        fn fallocate(&self, ctx: &Context, handle: &Handle, how: Fallocate, offset: u64, len: u64) -> Result<()> {
            self.writing(ctx, self.opened(handle)?, 0, |vfs, ctx| vfs.fallocate(ctx, handle, how, offset, len))
        }

        fn seek(&self, ctx: &Context, handle: &Handle, seek: Seek) -> Result<u64> {
            self.looking(ctx, Some(self.opened(handle)?.0), |vfs, ctx| vfs.seek(ctx, handle, seek))
        }

        fn fsync(&self, ctx: &Context, handle: &Handle) -> Result<()> {
            self.sync_epoch(&self.opened(handle)?.0, false)?;
            self.vfs.fsync(ctx, handle)
        }

        fn fdatasync(&self, ctx: &Context, handle: &Handle) -> Result<()> {
            self.sync_epoch(&self.opened(handle)?.0, true)?;
            self.vfs.fdatasync(ctx, handle)
        }

        fn fatomic(&self, ctx: &Context, handle: &Handle, data_only: bool) -> Result<()> {
            self.sync_epoch(&self.opened(handle)?.0, data_only)?;
            self.vfs.fatomic(ctx, handle, data_only)
        }

        fn release(&self, ctx: &Context, handle: Handle) -> Result<()> {
            let (inode, flags) = self.vfs.of_handle(&handle)?;
            let file = inode.mark().clone();
            let mut closed = self.epochs.close(&self.vfs, &file, || inode.opens.load(Ordering::Relaxed) == 1);
            if self.epochs.policy == Policy::PerSync && flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
                // Another thread may have ordered what was written by it, and wait.
                closed = closed.and_then(|()| self.vfs.mounted().core.wait_for_inode(file.number()));
            }
            self.vfs.release(ctx, handle).and(closed.map_err(Errno::from))
        }

        fn fsyncdir(&self, ctx: &Context, handle: &Handle) -> Result<()> {
            self.epochs.sync(&self.vfs, None)?;
            self.vfs.fsyncdir(ctx, handle)
        }

        fn pending(&self) -> Result<Pending> {
            Ok(Pending { files: self.epochs.dirty_files(), early_commits: self.epochs.early_commits() })
        }

        fn sync(&self, ctx: &Context) -> Result<()> {
            self.epochs.sync_all(&self.vfs)?;
            self.vfs.sync(ctx)
        }
    }
}

impl Groups for Policed {
    fn begin_as(&self, seen: Seen) -> wholly_error::Result<GroupId> {
        self.vfs.begin_as(seen)
    }

    fn add(&self, group: GroupId, handle: &Handle) -> wholly_error::Result<()> {
        let refused = |errno| wholly_error::Error::of("an open file", errno);
        let (file, _) = self.opened(handle).map_err(refused)?;
        self.naming(|| vec![file.clone()], |vfs| Ok(vfs.add(group, handle)?)).map_err(refused)
    }

    fn commit_all(&self, groups: &[GroupId], how: Committed) -> wholly_error::Result<Ticket> {
        self.vfs.commit_all(groups, how)
    }

    fn wait(&self, ticket: Ticket) -> wholly_error::Result<()> {
        self.vfs.wait(ticket)
    }

    fn abort(&self, group: GroupId) -> wholly_error::Result<()> {
        self.vfs.abort(group)
    }
}
