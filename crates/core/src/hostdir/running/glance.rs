//! Looks at the host that serve more than one question. Most calls ask several things of an object, and each of these
//! would look again: resolve the path, and ask for what is there.
//!
//! # Invariants
//!
//! 1. What was seen is used by the piece of work in which it was seen, and only while no pass has begun since. Nothing
//!    else of the store changes what the host has at home.
//! 2. What others change meanwhile counts as changed later than it was seen: a group that builds on it is compared with
//!    what was seen.

use std::collections::HashMap;
use std::sync::Arc;

use wholly_vfs::Stat;

use super::Running;
use sync::Mutex;

/// What the host has shown of objects, by their ids.
#[derive(Debug, Default)]
pub(in crate::hostdir) struct Glance {
    stats: Mutex<HashMap<u64, Seen>>,
    /// The names of their extended attributes.
    xattrs: Mutex<HashMap<u64, Listed>>,
}

/// Names, and how many passes had begun and ended.
type Listed = (Vec<Vec<u8>>, u64);

impl Glance {
    /// What was seen when so many passes had begun and ended.
    fn seen(&self, id: u64, turns: u64) -> Option<Seen> {
        self.stats.lock().unwrap().get(&id).copied().filter(|seen| seen.turns == turns)
    }
}

/// How an object lies on the host.
#[derive(Clone, Copy, Debug)]
struct Seen {
    stat: Stat,
    /// How many passes had begun and ended.
    turns: u64,
    /// How many passes were over.
    passes: u64,
}

/// As long as it lives, a group looks once at each object.
pub(in crate::hostdir) struct Glancing<'r>(Option<&'r Running>);

impl Drop for Glancing<'_> {
    fn drop(&mut self) {
        if let Some(running) = self.0 {
            *running.glance.lock().unwrap() = None;
        }
    }
}

impl Running {
    /// From here on, and until the result is dropped, the group looks once at each object. Within another one it does
    /// nothing.
    pub(in crate::hostdir) fn glancing(&self) -> Glancing<'_> {
        let mut glance = self.glance.lock().unwrap();
        let is_first = glance.is_none();
        glance.get_or_insert_default();
        Glancing(is_first.then_some(self))
    }

    /// The same, without an end.
    pub(in crate::hostdir) fn glance(&self, begins: bool) {
        *self.glance.lock().unwrap() = begins.then(Arc::default);
    }

    /// Another piece of work begins.
    pub(super) fn look_anew(&self) {
        if let Some(glance) = &*self.glance.lock().unwrap() {
            glance.stats.lock().unwrap().clear();
            glance.xattrs.lock().unwrap().clear();
        }
    }

    /// A look at what everybody sees, with what this group has seen on the host.
    pub(super) fn everybody(&self) -> Running {
        let everybody = Running::looking(self.store.clone());
        *everybody.glance.lock().unwrap() = self.glance.lock().unwrap().clone();
        everybody
    }

    /// What the host has at the place of an object.
    pub(super) fn stat_at_home(&self, id: u64, place: &[u8]) -> wholly_media::Result<Stat> {
        let Some(glance) = self.glance.lock().unwrap().clone() else { return self.store.host.stat(place) };
        if let Some(seen) = glance.seen(id, self.store.checkpointer.turns()) {
            return Ok(seen.stat);
        }
        let turns = self.store.checkpointer.turns();
        let passes = self.store.names.with(|state| state.passes());
        let stat = self.store.host.stat(place)?;
        self.note_seen(id, stat, turns, passes);
        Ok(stat)
    }

    /// Notes what the host had of an object when so many passes had begun and ended.
    pub(super) fn note_seen(&self, id: u64, stat: Stat, turns: u64, passes: u64) {
        if let Some(glance) = &*self.glance.lock().unwrap()
            && turns.is_multiple_of(2)
        {
            glance.stats.lock().unwrap().insert(id, Seen { stat, turns, passes });
        }
    }

    /// The names of the extended attributes that the host has at the place of an object.
    pub(super) fn list_at_home(&self, id: u64, place: &[u8]) -> wholly_media::Result<Vec<Vec<u8>>> {
        let Some(glance) = self.glance.lock().unwrap().clone() else { return self.store.host.list_xattrs(place) };
        let turns = self.store.checkpointer.turns();
        let names = self.store.host.list_xattrs(place)?;
        if turns.is_multiple_of(2) {
            glance.xattrs.lock().unwrap().insert(id, (names.clone(), turns));
        }
        Ok(names)
    }

    /// Whether the host was seen not to have an extended attribute of an object.
    pub(super) fn has_not(&self, id: u64, name: &[u8]) -> bool {
        let Some(glance) = self.glance.lock().unwrap().clone() else { return false };
        let xattrs = glance.xattrs.lock().unwrap();
        let seen = xattrs.get(&id).filter(|(_, turns)| *turns == self.store.checkpointer.turns());
        seen.is_some_and(|(names, _)| names.iter().all(|had| had != name))
    }

    /// How an object lies on the host, and how many passes had ended by then, where that was seen.
    pub(super) fn glanced(&self, id: u64) -> Option<(Stat, u64)> {
        let glance = self.glance.lock().unwrap().clone()?;
        glance.seen(id, self.store.checkpointer.turns()).map(|seen| (seen.stat, seen.passes))
    }
}
