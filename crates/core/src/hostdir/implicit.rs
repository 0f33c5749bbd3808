//! Calls outside of explicit groups: which group they belong to, by policy.
//!
//! Under `per-op` each call is a group of its own (FCFS III-G), beside others on the same file. Else the crate `epochs`
//! says: `per-sync` is Libnvmmio's (section 3.3), `shared` CFS's. An epoch is an ordinary running group that owns its
//! files, and writes over its own bytes. It commits before an explicit group joins one of its files.

use std::sync::{Arc, Weak};

use epochs::{Below, Mark, Policies};

use super::StoreInner;
use super::file::File as Inner;
use super::running::{Running, Sharing};
use crate::error::Result;
use sync::{Ordering, RwLock};
use wholly_vfs::Policy;

/// Calls change it one after the other.
pub(crate) type Epoch = Box<RwLock<Running>>;

impl Below for StoreInner {
    type File = Inner;
    type Epoch = Epoch;

    #[inline]
    fn mark(file: &Inner) -> &Mark<Epoch> {
        &file.mark
    }

    fn begin(&self) -> Result<(u64, Epoch)> {
        let store = self.itself.get().and_then(Weak::upgrade).expect("an open store is shared");
        let running = Running::new(store, Sharing::Own).into_implicit().into_lasting();
        Ok((running.id, Box::new(RwLock::new(running))))
    }

    fn has(&self, epoch: &Epoch, file: &Arc<Inner>) -> bool {
        epoch.read().unwrap().find(file).is_some()
    }

    fn commit(&self, epoch: &mut Option<Epoch>, _data_only: bool) -> Result<()> {
        let Some(running) = epoch else { return Ok(()) };
        let mut running = running.write().unwrap();
        let committed = running.commit();
        // Where it fails, for want of space or by a bystander, the group goes on. If half of a call is in it, it never
        // commits: it is undone, and this error tells of it.
        let has_ended = committed.is_ok() || (running.is_broken() && self.check_usable().is_ok());
        drop(running);
        if has_ended {
            *epoch = None;
        }
        committed
    }
}

impl StoreInner {
    /// Looks at the group that has not committed and that everybody sees, with the file's number there, if it has
    /// changed the file.
    #[inline]
    pub(super) fn with_epoch<T>(&self, file: &Arc<Inner>, look: impl FnOnce(Option<(&Running, usize)>) -> T) -> T {
        self.epochs.look(file, |epoch| {
            let running = epoch.map(|epoch| epoch.read().unwrap());
            look(running.as_ref().and_then(|running| Some((&**running, running.find(file)?))))
        })
    }

    /// Reads what everybody sees: committed bytes, and implicit groups that have not committed.
    pub(super) fn read_visible(&self, file: &Arc<Inner>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.with_epoch(file, |epoch| match epoch {
            Some((running, _)) => running.read(file, offset, buf),
            None => file.read(self, offset, buf),
        })
    }

    /// The same while the store is usable, of a file of which nothing is in a group or in the log: see
    /// [`Inner::read_at_once`].
    #[inline]
    pub(super) fn read_at_once(&self, file: &Inner, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let is_clean = !self.epochs.is_dirty(file) && self.poisoned.load(Ordering::Relaxed) == 0;
        if is_clean { file.read_at_once(self, offset, buf) } else { None }
    }

    /// The size that everybody sees.
    pub(super) fn visible_len(&self, file: &Arc<Inner>) -> u64 {
        let pending = self.with_epoch(file, |epoch| Some(epoch?.0.seat().files[epoch?.1].size));
        pending.unwrap_or_else(|| file.size.load(Ordering::Acquire))
    }

    /// Bytes that were written to it and that everybody sees, in a group that has not committed.
    pub(super) fn visible_written(&self, file: &Arc<Inner>) -> u64 {
        self.with_epoch(file, |epoch| epoch.map_or(0, |(running, i)| running.written_to(i)))
    }

    /// When the content changed that everybody sees, where that is not home.
    pub(super) fn visible_mtime(&self, file: &Arc<Inner>) -> Option<i64> {
        let pending = self.with_epoch(file, |epoch| epoch?.0.seat().files[epoch?.1].mtime.seen());
        pending.or_else(|| file.mtime())
    }

    /// Runs a call that changes a file: in a group of its own, or in the one that is running for it. `grows` says
    /// whether the call makes a file of this size grow, and the size is looked at while nobody else can change it.
    pub(super) fn implicit<T>(
        self: &Arc<Self>,
        file: &Arc<Inner>,
        alone: bool,
        grows: impl Fn(u64) -> bool,
        call: impl Fn(&mut Running, u64) -> Result<T>,
    ) -> Result<T> {
        self.check_usable()?;
        if self.options.policy != Policy::PerOp {
            return self.epochs.change(self, file, 0, |epoch| {
                let mut running = epoch.write().unwrap();
                running.reclaim();
                let i = running.join(file)?;
                let size = running.seat().files[i].size;
                call(&mut running, size)
            });
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

    /// Commits what a sync of a file makes durable.
    pub(super) fn sync_file(&self, file: &Arc<Inner>) -> Result<()> {
        self.check_usable()?;
        self.epochs.sync(self, Some(file))
    }

    /// Commits all implicit groups.
    pub(super) fn sync_all(&self) -> Result<()> {
        self.check_usable()?;
        self.epochs.sync_all(self)
    }

    /// The last handle of a file was closed.
    pub(super) fn closed(&self, file: &Arc<Inner>) {
        let is_last = self.handles.load(Ordering::Acquire) == 0;
        // Where this fails the store is poisoned, and every later call says so; or a child has it.
        self.end(|epochs, store| match store {
            // Implicit groups that could not be committed are given up, because they hold the store.
            store if is_last => epochs.end(store, file),
            Some(store) => _ = epochs.close(store, file, || file.handles.load(Ordering::Acquire) == 0),
            None => {}
        });
    }

    /// Ends epochs, in a use of the store if this process has it.
    pub(super) fn end(&self, end: impl FnOnce(&Policies<StoreInner>, Option<&StoreInner>)) {
        let used = self.enter().ok();
        end(&self.epochs, used.as_ref().map(|_| self));
        used.into_iter().for_each(|used| self.leave(used));
    }
}
