//! Calls on parked groups.

use std::sync::Arc;
use std::time::Duration;

use super::super::joint::Neighbour;
use super::super::running::{Running, Sharing};
use super::super::{Group, Store, StoreInner, StoreVfs};
use super::{Finder, Mismatch, Parked, ParkedId, Review};
use crate::error::{Error, Result};
use crate::vfs::GroupId;

/// Groups that are set aside. A parked group survives by itself, until somebody applies or discards it, or it expires. Nothing waits for it:
/// what it would change anybody may change meanwhile, and then it is not applied.
impl Group<'_> {
    /// Parks the group instead of committing it, with a note of up to 1024 bytes for people. With `keep` it is discarded when so much time has
    /// passed: at the next open after that, in the background, or when somebody next looks at what is parked.
    ///
    /// On return it survives a crash, and the group has given up all that it had claimed; files that it made are gone for who has them open.
    /// What it builds on and is not home yet is taken home first.
    ///
    /// # Errors
    /// [`Error::Conflict`] where what it builds on cannot go home: then nothing does before that is settled, and the group is committed behind it, so that the
    /// log keeps both. [`Error::Invalid`] where it has changed nothing; those of [`Store::checkpoint`]; [`Error::NoSpace`]. Then the group is aborted.
    pub fn park(mut self, note: &str, keep: Option<Duration>) -> Result<ParkedId> {
        self.call_by_name(|running| running.park(note, keep))
    }

    /// Commits the group, unless something that it builds on has been changed, since the group first touched it, by a program that bypasses the
    /// store: a name that it sets, the bytes of a file that it writes to or removes, an attribute that it sets, what is in a directory that it
    /// removes, or where a directory lies. Then the group is [parked](Self::park), with `note` and `keep`, and nothing is overwritten.
    ///
    /// What a bystander does after the look is a conflict, found by the checkpoint, as after any commit; so is what the log holds already and this
    /// group builds on: where that keeps the group from being parked, it is committed behind it.
    ///
    /// # Errors
    /// [`Error::Overtaken`] with the id of the parked group, and each path with what is otherwise; those of [`commit`](Self::commit) and
    /// [`park`](Self::park): then the group is aborted.
    pub fn commit_or_park(mut self, note: &str, keep: Option<Duration>) -> Result<()> {
        self.call_by_name(|running| running.commit_or_park(note, keep))
    }

    /// What the group would change, as of now.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; of the host file system.
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
    /// What is parked, in the order in which the groups began. What has expired is discarded first.
    ///
    /// # Errors
    /// [`Error::Poisoned`]; of the host file system. One that cannot be read is no error: see [`Parked::damage`].
    pub fn parked(&self) -> Result<Vec<Parked>> {
        self.used(|inner| inner.parked_groups())
    }

    /// What a parked group would change.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is none of this name; [`Error::Corrupt`].
    pub fn review(&self, id: ParkedId) -> Result<Review<'static>> {
        self.used(|inner| Ok(Review::of_parked(inner, inner.read_parked(id)?)))
    }

    /// Commits a parked group, if all that it relies on is as it was: names, the bytes of files that it changes or removes, attributes that it
    /// sets. Objects go by their inodes, wherever they are by now. On return it survives as any group that has committed, everybody
    /// sees it, and it is parked no more. After a crash before that it is either committed or parked still.
    ///
    /// # Errors
    /// [`Error::Overtaken`] with all that is otherwise: then nothing has changed, and the group stays parked. [`Error::Busy`] where a running group has
    /// something that it changes; [`Error::NotFound`]; [`Error::Corrupt`]; those of [`Group::commit`].
    pub fn apply(&self, id: ParkedId) -> Result<()> {
        self.used(|inner| inner.apply_parked(id))
    }

    /// What a parked group relies on and is not so any more, as of now: nothing, where it could be applied.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply), but for [`Error::Overtaken`].
    pub fn overtaken(&self, id: ParkedId) -> Result<Vec<Mismatch>> {
        self.used(|inner| {
            inner.discard_expired()?;
            let _mine = inner.work_on_parked(id)?;
            let _caller = inner.names.caller();
            inner.do_parked(id).map(|(_, mismatches)| mismatches)
        })
    }

    /// Removes a parked group. It does not come back after a crash when this has returned.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is none of this name.
    pub fn discard(&self, id: ParkedId) -> Result<()> {
        self.used(|inner| inner.discard_parked(id))
    }
}

/// The same for groups whose calls go through a view of the store.
impl StoreVfs {
    /// Parks a group: see [`Group::park`](crate::Group::park).
    ///
    /// # Errors
    /// Those of [`Group::park`](crate::Group::park); [`Error::Invalid`] where no such group runs.
    pub fn park(&self, group: GroupId, note: &str, keep: Option<Duration>) -> Result<ParkedId> {
        let mut running = self.take_group(group)?;
        self.used_by_name(|| running.park(note, keep))
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
    /// Those of [`Group::commit_or_park`](crate::Group::commit_or_park); [`Error::Invalid`] where no such group runs.
    pub fn commit_or_park(&self, group: GroupId, note: &str, keep: Option<Duration>) -> Result<()> {
        let mut running = self.take_group(group)?;
        self.used_by_name(|| running.commit_or_park(note, keep))
    }

    /// What a group builds on and programs that bypass the store have changed since it first touched it, by path; its calls wait meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no such group runs; of the host file system.
    pub fn overtaken(&self, group: GroupId) -> Result<Vec<Mismatch>> {
        self.with_group(group, |running| self.used_by_name(|| running.overtaken()))
    }

    /// Looks at what a group would change, as of now; its calls wait meanwhile.
    ///
    /// # Errors
    /// Those of [`Group::review`](crate::Group::review); [`Error::Invalid`] where no such group runs.
    pub fn review<T>(&self, group: GroupId, look: impl FnOnce(&Review<'_>) -> T) -> Result<T> {
        self.with_group(group, |running| {
            let summary = self.used_by_name(|| running.review())?;
            Ok(look(&Review::of_group(running, summary)))
        })
    }
}

impl StoreInner {
    fn apply_parked(self: &Arc<Self>, id: ParkedId) -> Result<()> {
        // Who has come in time keeps it from expiring.
        self.discard_expired()?;
        let _mine = self.work_on_parked(id)?;
        let _caller = self.names.caller();
        let (mut running, mismatches) = self.do_parked(id)?;
        if !mismatches.is_empty() {
            return Err(Error::Overtaken(id, mismatches.into()));
        }
        running.commit()?;
        // It is committed, whatever becomes of the file: the log goes on telling, and the next pass tries again.
        let _ = self.remove_applied(u64::MAX);
        Ok(())
    }

    /// A group that does what a parked one would, and what is in its way: if anything is, it is only fit to be aborted. Called by who works on that.
    pub(in crate::hostdir) fn do_parked(self: &Arc<Self>, id: ParkedId) -> Result<(Running, Vec<Mismatch>)> {
        let parked = self.read_parked(id)?;
        let mut running = Running::new(self.clone(), Sharing::Own);
        let mismatches = running.apply(&parked, &mut Finder::new(self.clone()))?;
        Ok((running, mismatches))
    }
}
