//! Calls on parked groups.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::super::running::{Running, Sharing};
use super::super::undo_store::{KeepUndo, KeptUndo, UndoFate, Undoing, Undone};
use super::super::{Group, Store, StoreInner, StoreVfs};
use super::{Finder, Mismatch, ParkedId, Review};
use crate::error::{Error, Result};
use wholly_changes::{Head, Neighbour, Parked};
use wholly_vfs::GroupId;

/// Parked groups. A parked group survives by itself until it is applied, discarded or expires. Nothing waits for it:
/// other groups and programs may change what it would change, and then it is not applied.
impl Group<'_> {
    /// Parks the group instead of committing it, with a note of up to [`LONGEST_NOTE`](crate::LONGEST_NOTE) bytes. When
    /// this returns, the parked group survives a power failure, and all that the group had claimed is free. What it
    /// builds on is written back first, if it is not yet. For programs that have a file of the group open, the file is
    /// gone.
    ///
    /// With `keep` the parked group expires after that time. It is then discarded at the next open, by the background
    /// thread, or by the next call that lists, reviews or applies a parked group.
    ///
    /// # Errors
    /// [`Error::Conflict`] where what it builds on cannot go home: then nothing does before that is settled, and the
    /// group is committed behind it, so that the log keeps both. [`Error::Invalid`] where it has changed nothing; those
    /// of [`Store::checkpoint`]; [`Error::NoSpace`]. Then the group is aborted.
    pub fn park(mut self, note: &str, keep: Option<Duration>) -> Result<ParkedId> {
        self.call_by_name(|running| running.park(note, keep))
    }

    /// Commits the group, unless another program has changed something that the group builds on since the group first
    /// touched it. In that case the group is [parked](Self::park), with `note` and `keep`, and nothing is overwritten.
    /// The group builds on: a name that it sets, the bytes of a file that it writes to or removes, an attribute that it
    /// sets, the content of a directory that it removes, and the place of a directory.
    ///
    /// What another program changes after this comparison is a conflict at the checkpoint, as after any commit. So is a
    /// change to what earlier groups have in the log, if this group builds on it; if such a conflict keeps the group
    /// from being parked, it is committed after them.
    ///
    /// # Errors
    /// - [`Error::ChangedMeanwhile`]: the group is parked; the error has its id, and each path with what differs.
    /// - Those of [`commit`](Self::commit) and [`park`](Self::park): the group is aborted.
    pub fn commit_or_park(mut self, note: &str, keep: Option<Duration>) -> Result<()> {
        self.call_by_name(|running| running.commit_or_park(note, keep))
    }

    /// Asks for the undo of the group to be kept, so that [`Store::undo`] can take the group back after its commit.
    /// Only where the store is opened with [`at_once`](crate::Options::at_once); else it has no effect. In a
    /// [joint commit](crate::Store::commit_together) the undo of each part is kept by itself, and names the others
    /// ([`parts`](crate::parts)).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a note that is too long.
    pub fn keep_undo(&mut self, keep: &KeepUndo) -> Result<()> {
        self.call_by_name(|running| running.keep_undo(keep))
    }

    /// Returns what the group would change, as of now.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; errors of the host file system.
    pub fn review(&mut self) -> Result<Review<'_>> {
        let running = self.running_mut()?;
        let used = running.store.enter().map_err(|why| running.store.refused(why))?;
        let caller = running.store.names.caller();
        let summary = running.review();
        drop(caller);
        running.store.leave(used);
        Ok(Review::of_group(running, summary?))
    }
}

impl Store {
    /// Lists the parked groups, in the order in which they began. Groups that have expired are discarded first.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; errors of the host file system. A parked group that cannot be read is no error: see
    /// [`Parked::unreadable`].
    pub fn parked(&self) -> Result<Vec<Parked>> {
        self.used(|inner| inner.parked_groups())
    }

    /// Returns what a parked group would change.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no parked group of this id; [`Error::Corrupt`].
    pub fn review(&self, id: ParkedId) -> Result<Review<'static>> {
        self.used(|inner| Ok(Review::of_parked(inner, inner.read_parked(id)?)))
    }

    /// Commits a parked group, if everything that it relies on is as it was: names, the bytes of files that it changes
    /// or removes, attributes that it sets. Objects are found by their inodes, even if they were moved. When this
    /// returns, the group survives a power failure, all threads and groups see it, and it is no longer parked. After a
    /// crash before that it is committed or still parked.
    ///
    /// # Errors
    /// - [`Error::ChangedMeanwhile`] with everything that differs: nothing has changed, and the group stays parked.
    /// - [`Error::Busy`]: a running group has claimed something that it changes.
    /// - [`Error::NotFound`]; [`Error::Corrupt`]; those of [`Group::commit`].
    pub fn apply(&self, id: ParkedId) -> Result<()> {
        self.used(|inner| inner.apply_parked(id))
    }

    /// Commits a part of a parked group, as [`apply`](Self::apply) does with all of it: the changes at these paths,
    /// which are relative to the store's directory, and of what is in them, with those that they need; all of it where
    /// none are given. What is at the paths of `but`, and what needs that, is no part. The rest stays
    /// parked. Gives whether there is any. A crash while the rest is being parked leaves the whole group parked,
    /// although the part is committed.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply); [`Error::NotFound`] if there is no change at these paths.
    pub fn apply_part<P: AsRef<Path>>(&self, id: ParkedId, paths: &[P], but: &[P]) -> Result<bool> {
        let [paths, but] = [paths, but].map(bytes_of);
        self.used(|inner| inner.apply_part(id, &paths, &but))
    }

    /// Commits of a parked group what nothing is in the way of, and drops the rest with the group, in one step. Gives
    /// what is in the way of the rest.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply); [`Error::ChangedMeanwhile`] if something is in the way of all of it.
    pub fn apply_free(&self, id: ParkedId) -> Result<Vec<Mismatch>> {
        self.used(|inner| inner.apply_free(id))
    }

    /// Commits a parked group over what others have changed meanwhile: what the group says wins. With paths it does so
    /// with a [part](Self::apply_part). Gives whether a part stays parked, and what was in the way.
    ///
    /// - Names: whatever has one by now is replaced, except a directory that is not empty.
    /// - Attributes that the group sets are set.
    /// - If the group holds all bytes of a file, the file gets them. If it holds some, the file gets these, as long as
    ///   its length is as it was, or others have only appended to it. What they have appended is gone then.
    /// - What was replaced since by something of the same kind: that gets the changes. So does a directory that the
    ///   group makes, if there is one of that name by now.
    /// - A file that is gone is refused.
    ///
    /// With [`Options::keep_undo_of_applied`](crate::Options::keep_undo_of_applied), [`undo`](Self::undo) brings back
    /// what was replaced.
    ///
    /// # Errors
    /// Those of [`apply_part`](Self::apply_part). [`Error::ChangedMeanwhile`] has what cannot be replaced: nothing has
    /// changed.
    pub fn apply_over<P: AsRef<Path>>(&self, id: ParkedId, paths: &[P], but: &[P]) -> Result<(bool, Vec<Mismatch>)> {
        let [paths, but] = [paths, but].map(bytes_of);
        self.used(|inner| inner.apply_over(id, &paths, &but))
    }

    /// Lists what has changed meanwhile of what a parked group relies on, as of now. The list is empty if the group
    /// could be applied.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply), except [`Error::ChangedMeanwhile`].
    pub fn changed_meanwhile(&self, id: ParkedId) -> Result<Vec<Mismatch>> {
        self.used(|inner| {
            inner.discard_expired()?;
            let _mine = inner.work_on_parked(id)?;
            let _caller = inner.names.caller();
            inner.do_parked(id).map(|(_, mismatches)| mismatches)
        })
    }

    /// Lists the groups whose undo is kept, and those that were to keep it, in the order in which they began. This
    /// drops nothing, also what has expired.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; errors of the host file system. An undo that cannot be read is no error: see
    /// [`KeptUndo::unreadable`].
    pub fn undos(&self) -> Result<Vec<KeptUndo>> {
        self.used(|inner| inner.kept_undos())
    }

    /// Returns what has become of the undo of the group that was committed last, of those that
    /// [asked for it](Group::keep_undo) to be kept.
    pub fn undo_fate(&self) -> Option<UndoFate> {
        self.used(|inner| Ok(inner.kept.last())).ok().flatten()
    }

    /// Drops the oldest undo that is kept, so that others have its space. Returns whether there was any.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; errors of the host file system.
    pub fn drop_oldest_undo(&self) -> Result<bool> {
        self.used(|inner| inner.drop_oldest())
    }

    /// Returns the undo that was dropped since the store was opened, because something needed its space. Each is
    /// returned once.
    pub fn take_dropped_undos(&self) -> Vec<KeptUndo> {
        self.used(|inner| Ok(inner.kept.take_untold())).unwrap_or_default()
    }

    /// Takes a group back whose undo is kept, if everything that it has changed is as the group left it; whatever else
    /// has been changed since stays. `decide` is called with what would change; if it returns false, nothing does, and
    /// so does this function. When this returns true, the directory has the change, and it survives a power failure.
    /// The change is a group too, and its own undo is kept, by `keep`: to take that back is to do the first group
    /// again. After a crash the group is taken back, or it is not, and its undo is kept still.
    ///
    /// # Errors
    /// - [`Error::ChangedMeanwhile`] with everything that has been changed since: nothing has changed.
    /// - [`Error::Invalid`] if the store is not opened with [`Options::at_once`](crate::Options::at_once).
    /// - [`Error::NotFound`] if no undo of this id is kept; [`Error::Corrupt`]; those of [`Group::commit`].
    pub fn undo(&self, id: ParkedId, keep: &KeepUndo, decide: impl FnOnce(&Review<'_>) -> bool) -> Result<bool> {
        Ok(self.undo_some(id, keep, &Undoing::default(), decide)?.is_done)
    }

    /// Does as [`undo`](Store::undo) does, with a part of a group, or although something was changed since. What is not
    /// taken back stays kept under the id of the group, also after a crash.
    ///
    /// # Errors
    /// - [`Error::ChangedMeanwhile`] as by [`undo`](Store::undo). With [`IfChanged::Skip`] only where nothing is left
    ///   to be taken back; with [`IfChanged::Replace`] for what cannot be replaced.
    /// - [`Error::NotFound`] if the group has changed nothing at these paths.
    /// - [`Error::NoSpace`] if what is replaced cannot be kept.
    /// - Those of [`undo`](Store::undo).
    pub fn undo_some(
        &self,
        id: ParkedId,
        keep: &KeepUndo,
        how: &Undoing,
        decide: impl FnOnce(&Review<'_>) -> bool,
    ) -> Result<Undone> {
        self.used(|inner| inner.undo_kept(id, keep, how, decide))
    }

    /// Removes a parked group, or the undo of a group. When this returns, it does not come back after a power failure.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no parked group of this id.
    pub fn discard(&self, id: ParkedId) -> Result<()> {
        self.used(|inner| inner.discard_parked(id))
    }
}

/// Parked groups, for groups whose calls go through a [`StoreVfs`].
impl StoreVfs {
    /// Parks a group: see [`Group::park`](crate::Group::park).
    ///
    /// # Errors
    /// Those of [`Group::park`](crate::Group::park); [`Error::Invalid`] if there is no such running group.
    pub fn park(&self, group: GroupId, note: &str, keep: Option<Duration>) -> Result<ParkedId> {
        let mut running = self.take_group(group)?;
        self.used_by_name(|| running.park(note, keep))
    }

    /// Asks for the undo of a group to be kept: see [`Group::keep_undo`](crate::Group::keep_undo).
    ///
    /// # Errors
    /// Those of [`Group::keep_undo`](crate::Group::keep_undo); [`Error::Invalid`] if there is no such running group.
    pub fn keep_undo(&self, group: GroupId, keep: &KeepUndo) -> Result<()> {
        self.change_group(group, |running| running.keep_undo(keep))
    }

    /// Takes a group out, if it has changed anything; else it is aborted.
    pub(in crate::hostdir) fn take_changing(&self, group: GroupId) -> Result<Option<Running>> {
        let mut running = self.take_group(group)?;
        let is_empty = self.used_by_name(|| running.changes_nothing())?;
        if is_empty {
            running.abort();
        }
        Ok(Some(running).filter(|_| !is_empty))
    }

    /// Parks a group that was taken out, as one part of several.
    pub(in crate::hostdir) fn park_taken(
        &self,
        mut running: Running,
        note: &str,
        keep: Option<Duration>,
        others: &[Neighbour],
    ) -> Result<ParkedId> {
        self.used_by_name(|| running.park_with(note, keep, others))
    }

    /// Commits a group, or parks it: see [`Group::commit_or_park`](crate::Group::commit_or_park).
    ///
    /// # Errors
    /// Those of [`Group::commit_or_park`](crate::Group::commit_or_park); [`Error::Invalid`] if there is no such running
    /// group.
    pub fn commit_or_park(&self, group: GroupId, note: &str, keep: Option<Duration>) -> Result<()> {
        let mut running = self.take_group(group)?;
        self.used_by_name(|| running.commit_or_park(note, keep))
    }

    /// Lists what other programs have changed of what a group builds on, since the group first touched it, by path.
    /// Calls of the group wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such running group; errors of the host file system.
    pub fn changed_meanwhile(&self, group: GroupId) -> Result<Vec<Mismatch>> {
        self.with_group(group, |running| self.used_by_name(|| running.changed_meanwhile()))
    }

    /// Calls `look` with what a group would change, as of now. Calls of the group wait meanwhile.
    ///
    /// # Errors
    /// Those of [`Group::review`](crate::Group::review); [`Error::Invalid`] if there is no such running group.
    pub fn review<T>(&self, group: GroupId, look: impl FnOnce(&Review<'_>) -> T) -> Result<T> {
        self.with_group(group, |running| {
            let summary = self.used_by_name(|| running.review())?;
            Ok(look(&Review::of_group(running, summary)))
        })
    }
}

impl StoreInner {
    fn apply_parked(self: &Arc<Self>, id: ParkedId) -> Result<()> {
        // A group that is claimed before it expires does not expire.
        self.discard_expired()?;
        let _mine = self.work_on_parked(id)?;
        let _caller = self.names.caller();
        let (mut running, mismatches) = self.do_parked(id)?;
        if !mismatches.is_empty() {
            return Err(Error::ChangedMeanwhile(id, mismatches.into()));
        }
        running.commit()?;
        // It is committed, whatever becomes of the file: the log goes on telling, and the next pass tries again.
        let _ = self.remove_applied(u64::MAX);
        Ok(())
    }

    /// A group that does what a parked one would, and what is in its way: if anything is, it is only fit to be aborted.
    /// Called by who works on that.
    pub(in crate::hostdir) fn do_parked(self: &Arc<Self>, id: ParkedId) -> Result<(Running, Vec<Mismatch>)> {
        let parked = self.read_own_parked(id)?;
        let mut running = Running::new(self.clone(), Sharing::Own);
        let mismatches = running.apply(&parked, &mut Finder::new(self.clone()))?;
        self.keeps_undo_of(&mut running, &parked.head)?;
        Ok((running, mismatches))
    }

    /// What applies a parked group asks for its undo to be kept, if the options say so.
    pub(super) fn keeps_undo_of(&self, running: &mut Running, parked: &Head) -> Result<()> {
        match &self.options.keep_undo_of_applied {
            Some(keep) => running.keep_undo(&KeepUndo { note: parked.note.clone(), ..keep.clone() }),
            None => Ok(()),
        }
    }
}

fn bytes_of<P: AsRef<Path>>(paths: &[P]) -> Vec<&[u8]> {
    paths.iter().map(|path| path.as_ref().as_os_str().as_bytes()).collect()
}
