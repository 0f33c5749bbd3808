//! What groups tell the log of the objects that their records speak of: which inodes they are, and where they hang
//! (invariant 4 of the store).

use std::collections::HashSet;

use wholly_changes::ROOT;
use wholly_changes::records::{Baseline, Identity};
use wholly_host::host_error;

use super::Running;
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::names::{REGULAR, is_own};
use crate::hostdir::table::is_taken_away;
use crate::log::layout::EntryKind;
use sync::Ordering;

impl Running {
    /// Tells which host file the number of a joined file stands for.
    #[cold]
    pub(super) fn identify_file(&mut self, i: usize, announced: u64) -> Result<()> {
        let store = self.store.clone();
        store.log.wait_for_groups_below(announced);
        let inner = self.seat().files[i].inner.clone();
        store.settle(inner.id)?;
        let is_steady = store.is_steady();
        let identity =
            store.names.with(|state| state.identity(inner.id)).unwrap_or_else(|| Identity::of_nothing(REGULAR));
        let identity = identity.lying_as(is_steady.then(|| inner.baseline()).flatten());
        self.entry(EntryKind::Identify, inner.id, 0, &identity.to_bytes())?;
        let parent = identity.parent;
        let file = &mut self.seat_mut().files[i];
        (file.identified_for, file.touched) = (announced, true);
        if parent != 0 {
            self.names_mut().speak_of(parent);
        }
        Ok(())
    }

    /// Tells what and where the objects are that the group's records speak of, and the directories that they are in.
    #[cold]
    pub(super) fn identify_objects(&mut self, announced: u64) -> Result<()> {
        let store = self.store.clone();
        store.log.wait_for_groups_below(announced);
        let joined: HashSet<u64> = self.seat().files.iter().map(|file| file.inner.id).collect();
        loop {
            let todo = self.names_mut().unidentified(announced);
            if todo.is_empty() {
                return Ok(());
            }
            for id in todo.iter() {
                store.settle(id)?;
                let is_steady = store.is_steady();
                let identity = store.names.with(|state| {
                    let object = state.objects.get(&id)?;
                    let known = announced <= object.identified && object.identified < self.sequence;
                    let left = object.left.as_deref().copied().filter(|_| is_steady);
                    state.identity(id).filter(|_| !known).map(|identity| identity.lying_as(left))
                });
                let is_told = joined.contains(&id) || self.names_mut().is_born(id) || id == ROOT;
                let identity = identity.filter(|_| !is_told);
                self.names_mut().identified(id, announced, identity.is_some());
                if let Some(identity) = identity {
                    self.entry(EntryKind::Identify, id, 0, &identity.to_bytes())?;
                    if identity.parent != 0 {
                        self.names_mut().speak_of(identity.parent);
                    }
                }
            }
        }
    }

    /// Tells the log which inodes objects are: those that a pass made for them, or those that they are in a copy.
    pub(in crate::hostdir) fn know(&mut self, ids: &[u64]) -> Result<()> {
        for &id in ids {
            let store = self.store.clone();
            let is_steady = store.is_steady();
            if let Some((identity, file)) = store.names.with(|state| Some((state.identity(id)?, state.file(id)))) {
                let identity = identity.lying_as(file.filter(|_| is_steady).and_then(|file| file.baseline()));
                self.log_entry(EntryKind::Identify, id, &identity.to_bytes())?;
                self.names_mut().identified(id, 0, true);
            }
        }
        Ok(())
    }
}

impl StoreInner {
    /// Whether which inode an object is, and how it lies at home, go together. To be asked before either is looked at:
    /// a pass that is at work then, or ends meanwhile, may change one of them between the two, and one that begins has
    /// the group identify again.
    fn is_steady(&self) -> bool {
        !self.checkpointer.is_running()
    }

    /// Sees to it that the host does not give an object another inode once the log tells which it is.
    pub(super) fn settle(&self, id: u64) -> Result<()> {
        // First the directories that it is in: they get others with it, and are compared when it is looked for.
        let is_found = |dir: &u64| *dir != ROOT && !is_own(*dir);
        let above = self.names.with(|state| Some(state.objects.get(&id)?.home()?.dir()).filter(is_found));
        if let Some(dir) = above {
            self.settle(dir)?;
        }
        let (_still, tail) = (self.names.keep_homes(), self.log.tail());
        let path = self.names.with(|state| {
            let object = state.objects.get(&id)?;
            let file = object.file.upgrade().map_or(0, |file| file.identified.load(Ordering::Acquire));
            // The log has told already; or it is to be made yet, or we have made it.
            let is_open = object.inode().is_some() && object.known && object.identified.max(file) < tail;
            state.host_path(id).filter(|_| is_open)
        });
        let Some(path) = path else { return Ok(()) };
        let at = self.names.with(|state| state.object_at(id, &path));
        let stat = match self.host.settle(at).map_err(|error| host_error(error, &path)) {
            // It is what the log says of it, and the checkpoint finds that it is not there.
            Err(error) if is_taken_away(&error) || matches!(error, Error::Conflict { .. }) => return Ok(()),
            stat => stat?,
        };
        let Some(stat) = stat else { return Ok(()) };
        let file = self.names.with(|state| {
            state.becomes(id, (stat.ino, stat.btime_ns));
            if let Some(left) = state.objects.get_mut(&id).and_then(|object| object.left.as_deref_mut()) {
                *left = Baseline::of(&stat);
            }
            state.file(id)
        });
        if let Some(file) = file {
            file.settled_as(&stat);
        }
        Ok(())
    }
}
