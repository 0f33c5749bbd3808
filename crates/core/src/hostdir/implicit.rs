//! Calls outside of explicit groups: which group they belong to, by policy.
//!
//! - `per-op`: each call is a group of its own (FCFS III-G), beside others on the same file.
//! - `per-sync`: a file's calls between two syncs are one group, an *epoch* (Libnvmmio, section 3.3).
//! - `shared`: all calls on all files are one group until somebody syncs, or a timer does (CFS).
//!
//! An epoch, and the shared group, is an ordinary running group that owns its files and that everybody sees. It commits
//! before an explicit group joins one of its files.

use std::sync::Arc;

use super::StoreInner;
use super::file::File as Inner;
use super::running::{Running, Sharing};
use crate::error::Result;
use sync::{AtomicU8, Ordering, RwLock, RwLockReadGuard};
use wholly_vfs::Policy;

/// The group that implicit calls go to, if it has begun.
#[derive(Default)]
pub(crate) struct Epoch {
    group: RwLock<Option<Box<Running>>>,
    /// 1 while there is a group, else 0, so that a reader of a file without one takes no lock. It changes under the
    /// lock. It becomes 1 before the group's first call, so a reader that has seen a change of the group sees 1. It
    /// becomes 0 after the commit, so a reader that sees 0 also sees what the group has published.
    has_begun: AtomicU8,
}

impl Epoch {
    /// The group as it is while this is looked at.
    #[inline]
    fn look(&self) -> Option<RwLockReadGuard<'_, Option<Box<Running>>>> {
        (self.has_begun.load(Ordering::Acquire) != 0).then(|| self.group.read().unwrap())
    }

    /// Gives the group up.
    fn drop_group(&self) {
        let mut group = self.group.write().unwrap();
        drop(group.take());
        self.has_begun.store(0, Ordering::Release);
    }
}

impl StoreInner {
    /// Where the implicit calls on `file` go; `None` where each is its own group.
    fn epoch<'a>(&'a self, file: &'a Inner) -> Option<&'a Epoch> {
        match self.options.policy {
            Policy::PerOp => None,
            Policy::PerSync => Some(&file.epoch),
            Policy::Shared { .. } => Some(&self.shared),
        }
    }

    /// Reads what everybody sees: committed bytes, and implicit groups that have not committed.
    pub(super) fn read_visible(&self, file: &Arc<Inner>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if let Some(epoch) = self.epoch(file)
            && let Some(running) = epoch.look()
            && let Some(running) = &*running
        {
            return running.read(file, offset, buf);
        }
        file.read(self, offset, buf)
    }

    /// Looks at the group that has not committed and that everybody sees, with the file's number there, if it has
    /// changed the file.
    pub(super) fn with_epoch<T>(&self, file: &Arc<Inner>, look: impl FnOnce(Option<(&Running, usize)>) -> T) -> T {
        let Some(epoch) = self.epoch(file) else { return look(None) };
        let epoch = epoch.look();
        look(
            epoch.as_ref().and_then(|epoch| epoch.as_ref()).and_then(|running| Some((&**running, running.find(file)?))),
        )
    }

    /// The size that everybody sees.
    pub(super) fn visible_len(&self, file: &Arc<Inner>) -> u64 {
        if let Some(epoch) = self.epoch(file)
            && let Some(running) = epoch.look()
            && let Some(running) = &*running
            && let Some(i) = running.find(file)
        {
            return running.seat().files[i].size;
        }
        file.size.load(Ordering::Acquire)
    }

    /// Bytes that were written to it and that everybody sees, in a group that has not committed.
    pub(super) fn visible_written(&self, file: &Arc<Inner>) -> u64 {
        let Some(epoch) = self.epoch(file) else { return 0 };
        let epoch = epoch.look();
        let running = epoch.as_ref().and_then(|epoch| epoch.as_ref());
        running.and_then(|running| Some(running.written_to(running.find(file)?))).unwrap_or(0)
    }

    /// When the content changed that everybody sees, where that is not home.
    pub(super) fn visible_mtime(&self, file: &Arc<Inner>) -> Option<i64> {
        if let Some(epoch) = self.epoch(file)
            && let Some(running) = epoch.look()
            && let Some(running) = &*running
            && let Some(i) = running.find(file)
            && let Some(ns) = running.seat().files[i].mtime.seen()
        {
            return Some(ns);
        }
        file.mtime()
    }

    /// Runs a call that changes a file: in a group of its own, or in the one that is running for it. `grows` says
    /// whether the call makes a file of this size grow, and the size is looked at while nobody else can change it.
    pub(super) fn implicit<T>(
        self: &Arc<Self>,
        file: &Arc<Inner>,
        alone: bool,
        grows: impl Fn(u64) -> bool,
        call: impl FnOnce(&mut Running, u64) -> Result<T>,
    ) -> Result<T> {
        self.check_usable()?;
        if let Some(epoch) = self.epoch(file) {
            let mut group = epoch.group.write().unwrap();
            let running = group.get_or_insert_with(|| {
                Box::new(Running::new(self.clone(), Sharing::Own).into_implicit().into_lasting())
            });
            epoch.has_begun.store(1, Ordering::Release);
            running.reclaim();
            let i = running.join(file)?;
            let size = running.seat().files[i].size;
            return call(running, size);
        }
        if file.may_have_privileges() {
            self.content_changes(file)?;
        }
        // Whoever makes the file grow keeps others from doing so until it is published, so that no gap can survive
        // without what fills it. The group begins after that, and so has a higher sequence than what it builds on.
        let mut append = (alone || grows(file.size.load(Ordering::Acquire))).then(|| file.append.lock().unwrap());
        loop {
            let sharing = if alone { Sharing::Own } else { Sharing::Share };
            let mut running = Running::new(self.clone(), sharing).into_implicit();
            let i = running.join(file)?;
            // An explicit group may have changed the size before the file was joined; none can now.
            let size = running.seat().files[i].size;
            if append.is_none() && grows(size) {
                drop(running);
                append = Some(file.append.lock().unwrap());
                continue;
            }
            let result = call(&mut running, size)?;
            running.commit()?;
            return Ok(result);
        }
    }

    /// A call is about to change the content of a file, perhaps beside others: what goes by that goes in a group of its
    /// own.
    #[cold]
    fn content_changes(self: &Arc<Self>, file: &Arc<Inner>) -> Result<()> {
        // Of calls that own the file there is one at a time.
        let _append = file.append.lock().unwrap();
        if !file.may_have_privileges() {
            return Ok(());
        }
        let mut running = Running::new(self.clone(), Sharing::Own).into_implicit();
        running.join(file)?;
        running.content_changes(file)?;
        running.commit()
    }

    /// Commits the implicit group that `file` belongs to.
    pub(super) fn sync_file(&self, file: &Inner) -> Result<()> {
        self.check_usable()?;
        self.epoch(file).map_or(Ok(()), commit_epoch)
    }

    /// Commits what the last close of a file commits, which is about to come.
    pub(super) fn sync_closed(&self, file: &Inner) -> Result<()> {
        if self.options.policy == Policy::PerSync { self.sync_file(file) } else { Ok(()) }
    }

    /// The last handle of a file was closed.
    pub(super) fn closed(&self, file: &Inner) {
        let ends = match self.options.policy {
            Policy::PerOp => false,
            Policy::PerSync => true,
            // Nobody is left who could sync.
            Policy::Shared { .. } => self.handles.load(Ordering::Acquire) == 0,
        };
        if ends {
            // Where this fails the store is poisoned, and every later call says so; or a child has it.
            let synced = self.enter().is_ok_and(|used| {
                let synced = self.sync_file(file);
                self.leave(used);
                synced.is_ok()
            });
            if !synced && self.handles.load(Ordering::Acquire) == 0 {
                self.drop_epochs();
            }
        }
    }

    /// Commits all implicit groups.
    pub(super) fn sync_all(&self) -> Result<()> {
        self.check_usable()?;
        commit_epoch(&self.shared)?;
        self.files.all().iter().try_for_each(|file| commit_epoch(&file.epoch))
    }
}

impl StoreInner {
    /// Commits the shared group when its time has come. Called now and then in the background.
    pub(super) fn commit_old_epoch(&self) {
        let Policy::Shared { interval } = self.options.policy else { return };
        let shared = self.shared.look();
        let old = shared.as_ref().and_then(|group| group.as_ref()).is_some_and(|running| running.age() >= interval);
        drop(shared);
        if old {
            // An error poisons the store, and every later call says so.
            let _ = commit_epoch(&self.shared);
        }
    }
}

impl StoreInner {
    /// The last handle is gone: implicit groups that could not be committed are given up, because they hold the store.
    pub(super) fn drop_epochs(&self) {
        self.shared.drop_group();
        for file in self.files.all() {
            file.epoch.drop_group();
        }
    }
}

fn commit_epoch(epoch: &Epoch) -> Result<()> {
    let mut group = epoch.group.write().unwrap();
    let Some(running) = &mut *group else { return Ok(()) };
    // Where it fails, for want of space or by a bystander, the group goes on, and the next sync tries again.
    running.commit()?;
    *group = None;
    epoch.has_begun.store(0, Ordering::Release);
    Ok(())
}
