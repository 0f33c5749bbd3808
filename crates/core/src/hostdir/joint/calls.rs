//! Calls on joint commits.

use std::sync::Arc;

use super::commit::{check_apart, commit};
use crate::error::{Error, Result};
use crate::hostdir::parked::ParkedId;
use crate::hostdir::running::Running;
use crate::hostdir::undo_store::{KeepUndo, Undoing, Undone};
use crate::hostdir::{Group, Store, StoreInner, StoreVfs};
use wholly_vfs::GroupId;

impl Store {
    /// Commits groups of several stores of this process together. After a crash all of them are there, or none. When
    /// this returns, all of them survive a power failure.
    ///
    /// The store of the first group that changes anything is the coordinator. If the process dies half-way, each other
    /// store asks it for the decision when it is next opened; that open fails with [`Error::Busy`] if the coordinator
    /// cannot be found (see [`Options::release`](crate::Options::release)). What the groups write is written once more
    /// than by separate commits, so that it survives before the decision. Stores with
    /// [`Options::at_once`](crate::Options::at_once) write their groups back before the decision.
    ///
    /// # Errors
    /// [`Error::Invalid`] if two groups are of one store; those of [`Group::park`] and [`Group::commit`]. All groups
    /// are then aborted. After [`Error::Poisoned`] it is unknown whether they survive until the poisoned stores are
    /// opened again: then all groups are committed, or none. The stores that are not poisoned show which already.
    ///
    /// # Example
    /// ```
    /// # fn main() -> wholly::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("wholly-doc-joint-{}", std::process::id()));
    /// # let (music, index) = (dir.join("music"), dir.join("index"));
    /// # for dir in [&music, &index] {
    /// #     std::fs::create_dir_all(dir).unwrap();
    /// #     wholly::Store::init(dir, &wholly::Options::default())?;
    /// # }
    /// let (music, index) = (wholly::Store::open(&music)?, wholly::Store::open(&index)?);
    /// let (mut songs, mut titles) = (music.begin(), index.begin());
    /// let song = songs.create("0001.ogg", 0o644)?;
    /// songs.append(&song, b"...")?;
    /// let title = titles.create("0001.txt", 0o644)?;
    /// titles.append(&title, b"So What")?;
    /// wholly::Store::commit_together([songs, titles])?;
    /// # (music.close()?, index.close()?);
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit_together(groups: impl IntoIterator<Item = Group<'static>>) -> Result<()> {
        commit_all(groups.into_iter().map(Group::into_running).collect::<Result<_>>()?)
    }

    /// Applies parked groups of several stores together, as [`apply`](Store::apply) does with one: one group of each
    /// store. After a crash all of them are committed, or all are still parked. For a command that was run over several
    /// directories and parked.
    ///
    /// # Errors
    /// - [`Error::ChangedMeanwhile`] of the first group whose base has changed: nothing has changed, and all groups
    ///   stay parked. [`changed_meanwhile`](Store::changed_meanwhile) lists the differences of the others.
    /// - [`Error::Invalid`] for no groups, and if two are of one store.
    /// - Those of [`Store::apply`] and [`commit_together`](Self::commit_together).
    pub fn apply_together<'s>(parked: impl IntoIterator<Item = (&'s Store, ParkedId)>) -> Result<()> {
        together(parked, |store, id| {
            let (running, mismatches) = store.do_parked(id)?;
            match mismatches.is_empty() {
                true => Ok(running),
                false => Err(Error::ChangedMeanwhile(id, mismatches.into())),
            }
        })
    }

    /// Takes back groups of several stores together, as [`undo_some`](Store::undo_some) does with one: one group of
    /// each store. After a crash all of it is taken back, or nothing. For a command that was run over several
    /// directories.
    ///
    /// # Errors
    /// - [`Error::ChangedMeanwhile`] for the first group whose changes were changed since: nothing is taken back.
    /// - [`Error::Invalid`] for no groups, and if two are of one store.
    /// - Those of [`Store::undo_some`] and [`commit_together`](Self::commit_together).
    pub fn undo_together<'s>(
        kept: impl IntoIterator<Item = (&'s Store, ParkedId, Undoing)>,
        keep: &KeepUndo,
    ) -> Result<Vec<Undone>> {
        let (mut groups, mut hows) = (Vec::new(), Vec::new());
        for (store, id, how) in kept {
            groups.push((store, id));
            hows.push(how);
        }
        let (mut hows, mut undone, mut parts) = (hows.into_iter(), Vec::new(), Vec::new());
        let done = together(groups, |store, id| {
            let how = hows.next().expect("one for each");
            let (running, one, part) = store.contrary_of(id, keep, &how)?.prepare()?;
            parts.extend(part.map(|part| (store.clone(), id, part)));
            undone.push(one);
            Ok(running)
        });
        match done {
            Ok(()) => Ok(undone),
            Err(error) => {
                // If a store has failed, its next open finds out whether its part is taken.
                if !matches!(error, Error::Poisoned(_)) {
                    parts.iter().for_each(|(store, id, part)| store.withdraw_part(id.0, *part));
                }
                Err(error)
            }
        }
    }
}

/// Commits together what `make` makes of groups that are set aside, one of each store.
fn together<'s>(
    groups: impl IntoIterator<Item = (&'s Store, ParkedId)>,
    mut make: impl FnMut(&Arc<StoreInner>, ParkedId) -> Result<Running>,
) -> Result<()> {
    let (mut stores, mut ids) = (Vec::new(), Vec::new());
    for (store, id) in groups {
        // As this process has it. A group that is claimed before it expires does not expire.
        stores.push(store.used(|inner| inner.discard_expired().map(|()| inner.clone()))?);
        ids.push(id);
    }
    if stores.is_empty() {
        return Err(Error::invalid("no groups"));
    }
    let is_twice = |i: usize| stores[..i].iter().any(|other| Arc::ptr_eq(other, &stores[i]));
    if (0..stores.len()).any(is_twice) {
        return Err(Error::invalid("two groups of one store: take one after the other"));
    }
    in_all(&stores, || {
        let all = || stores.iter().zip(&ids);
        // Nobody discards them meanwhile, and they do not expire.
        let mine: Result<Vec<_>> = all().map(|(store, id)| store.work_on_parked(*id)).collect();
        let _mine = mine?;
        commit(all().map(|(store, id)| make(store, *id)).collect::<Result<_>>()?)?;
        // They are committed, whatever becomes of the files: the logs go on telling, and the next passes try again.
        stores.iter().for_each(|store| _ = store.remove_applied(u64::MAX));
        Ok(())
    })
}

impl StoreVfs {
    /// Like [`Store::commit_together`], for groups whose calls go through a [`StoreVfs`].
    ///
    /// # Errors
    /// Those of [`Store::commit_together`]; [`Error::Invalid`] if there is no such running group.
    pub fn commit_together(groups: &[(&StoreVfs, GroupId)]) -> Result<()> {
        // All are taken, so that none goes on where another one cannot be had.
        let taken: Vec<Result<Running>> = groups.iter().map(|(view, group)| view.take_group(*group)).collect();
        commit_all(taken.into_iter().collect::<Result<_>>()?)
    }
}

fn commit_all(groups: Vec<Running>) -> Result<()> {
    if groups.is_empty() {
        return Err(Error::invalid("a joint commit of no groups"));
    }
    check_apart(&groups)?;
    let stores: Vec<_> = groups.iter().map(|running| running.store.clone()).collect();
    in_all(&stores, || commit(groups))
}

/// One use of each store spans all steps: a fork comes before the first or behind the last.
fn in_all<T>(stores: &[Arc<StoreInner>], steps: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut uses = Vec::new();
    let mut refused = None;
    for store in stores {
        match store.enter() {
            Ok(used) => uses.push(used),
            Err(why) => {
                refused = Some(store.refused(why));
                break;
            }
        }
    }
    let result = match refused {
        Some(error) => Err(error),
        None => {
            let _callers: Vec<_> = stores.iter().map(|store| store.names.caller()).collect();
            steps()
        }
    };
    for (store, used) in stores.iter().zip(uses) {
        store.leave(used);
    }
    result
}
