//! The commit and the abort of a group.

use std::sync::Arc;

use sync::{Ordering, RwLockWriteGuard};
use wholly_vfs::{Context, Errno, GroupId, Result};

use super::{Change, Changes, Entered, Explicit};
use crate::engine::Fields;
use crate::fs::dir::Place;
use crate::fs::group::{Group, Times};
use crate::fs::table::{Inode, State};
use crate::fs::{Core, DIRECTORY, REGULAR};

type Twins = Vec<Arc<Inode>>;

fn shared(twin: &Inode) -> &Arc<Inode> {
    &twin.twin.as_ref().expect("it is a twin").shared
}

impl Core {
    /// Ends a group: no call of it comes any more. `last` runs as its last call.
    fn end_group(&self, id: GroupId, last: impl FnOnce(&Explicit)) -> Result<(Arc<Explicit>, Twins)> {
        let explicit = self.groups.of(id).lock().unwrap().remove(&id.0).ok_or(Errno::INVAL)?;
        let entered = Entered::new(self, explicit.clone(), None)?;
        last(&explicit);
        let twins = explicit.calls().twins.take().ok_or(Errno::INVAL)?;
        drop(entered);
        Ok((explicit, twins.into_values().collect()))
    }

    /// Commits a group. With `data_only` it leaves out the inode of a file if only its times have changed
    /// ([`store_times`](Self::store_times)). The caller waits until it is durable, if it must be.
    ///
    /// # Errors
    /// `EINVAL` if there is no such running group; else the volume has failed, or had before.
    pub fn commit_group(&self, id: GroupId, data_only: bool) -> Result<()> {
        let _gate = self.gate.try_read().ok_or(Errno::IO)?;
        let mut prepared = Ok(());
        let (explicit, mut twins) = self.end_group(id, |explicit| {
            prepared = self.place_late(explicit, None).and_then(|()| explicit.body().prepare(self));
        })?;
        let committed = prepared.and_then(|()| self.commit_twins(&explicit, &mut twins, data_only));
        if committed.is_err() {
            self.abort_twins(&explicit, &twins);
        }
        self.part_with(twins);
        Ok(committed?)
    }

    /// Aborts a group.
    ///
    /// # Errors
    /// `EINVAL` if there is no such running group.
    pub fn abort_group(&self, id: GroupId) -> Result<()> {
        // An unmount that has begun aborts it, before it saves what is free.
        let _gate = self.gate.try_read().ok_or(Errno::IO)?;
        self.abort_running(id)
    }

    fn abort_running(&self, id: GroupId) -> Result<()> {
        let (explicit, twins) = self.end_group(id, |_| {})?;
        self.abort_twins(&explicit, &twins);
        self.part_with(twins);
        Ok(())
    }

    /// Aborts all groups, whose calls are over.
    pub fn abort_groups(&self) {
        let ids: Vec<u64> = self.groups.0.iter().flat_map(|shard| shard.lock().unwrap().clone().into_keys()).collect();
        for id in ids {
            let _ = self.abort_running(GroupId(id));
        }
    }

    fn part_with(&self, twins: Twins) {
        for twin in twins {
            let shared = twin.twin.as_ref().map(|twin| twin.shared.clone());
            drop(twin);
            if let Some(shared) = shared {
                if shared.opens.load(Ordering::Relaxed) == 0 {
                    // Its last close came while the group had it.
                    let _ = self.unawaited(|| self.store_times(&shared));
                }
                self.forget(&shared, 1);
            }
        }
    }

    fn commit_twins(&self, explicit: &Arc<Explicit>, twins: &mut Twins, data_only: bool) -> wholly_error::Result<()> {
        // Of several directories it has to be known which are above which. Where they are stays as it is then.
        let dirs = twins.iter().filter(|twin| twin.kind == DIRECTORY).count();
        let _still = (dirs > 1).then(|| self.rename.lock().unwrap());
        let depth = |shared: &Inode| match shared.kind == DIRECTORY && !shared.unborn.load(Ordering::Acquire) {
            true if dirs > 1 => self.line_of(&Context::superuser(), shared).map_or(usize::MAX, |line| line.len()),
            _ => usize::MAX,
        };
        let order = |twin: &Arc<Inode>| (shared(twin).kind != DIRECTORY, depth(shared(twin)), shared(twin).id.ino);
        match dirs {
            0 | 1 => twins.sort_unstable_by_key(order),
            _ => twins.sort_by_cached_key(order),
        }
        let mut states: Vec<RwLockWriteGuard<'_, State>> =
            twins.iter().map(|twin| shared(twin).state.write().unwrap()).collect();
        // All places are looked up first: what is read now is as others know it, and damage that is met changes
        // nothing.
        let mut places = Vec::new();
        for (twin, state) in twins.iter().zip(&states) {
            let Some((shared, changes)) = twin.changes() else { continue };
            for (key, change) in &changes.names {
                places.push((*key, self.find(shared, state, &change.name)?));
            }
        }
        let mut places = places.into_iter();
        let mut group = Group::within(self, explicit)?;
        for (twin, state) in twins.iter().zip(&mut states) {
            let Some((shared, changes)) = twin.changes() else { continue };
            self.record_changes(&mut group, (shared, state), &changes, &mut places)?;
        }
        // Files whose times are left out now, or were before.
        let mut times: Vec<(&Arc<Inode>, Times)> = Vec::new();
        for twin in twins.iter().filter(|twin| twin.kind == REGULAR) {
            let shared = shared(twin);
            let keeps_back = data_only && !shared.unborn.load(Ordering::Acquire);
            if keeps_back || shared.keeps_times.load(Ordering::Relaxed) {
                times.extend(group.times_of(twin.id, keeps_back)?.map(|times| (shared, times)));
            }
        }
        group.commit_all()?;
        for (shared, times) in times {
            shared.keeps_times.store(times == Times::KeptBack, Ordering::Relaxed);
        }
        for (twin, state) in twins.iter().zip(&mut states) {
            let shared = shared(twin);
            if twin.changed().is_some() {
                self.reload(&*self.engine, shared, state)?;
                state.subdirs = None;
            } else {
                let mut own = twin.state.write().unwrap();
                state.record = own.record;
                (state.subdirs, state.nameable) = (own.subdirs, own.nameable);
                state.pieces = std::mem::take(&mut own.pieces);
                shared.unborn.store(false, Ordering::Release);
            }
            state.release(explicit.id);
        }
        for (twin, state) in twins.iter().zip(&mut states) {
            let Some((shared, changes)) = twin.changes() else { continue };
            for change in changes.names.values().filter(|change| change.to.is_none()) {
                // The group is committed: a leaf that stays empty is none the worse for it.
                if let Ok(Some(place)) = self.find(shared, state, &change.name) {
                    let _ = self.tidy(shared, state, &place);
                }
            }
        }
        Ok(())
    }

    /// Records what a group has changed in a directory, which is locked.
    fn record_changes(
        &self,
        group: &mut Group<'_>,
        (shared, state): (&Inode, &mut State),
        changes: &Changes,
        places: &mut dyn Iterator<Item = (u64, Option<Place>)>,
    ) -> wholly_error::Result<()> {
        for (key, Change { name, to }) in &changes.names {
            let (found_for, place) = places.next().expect("each name has been looked up");
            assert_eq!(found_for, *key);
            match (place, *to) {
                (Some(place), Some(to)) if place.found.is_some() => {
                    if place.found.is_some_and(|found| found.head.ino != to.0) {
                        self.replace(group, shared, &place, to, name)?;
                    }
                }
                (Some(place), None) if place.found.is_some() => {
                    self.remove(group, shared, &place, name)?;
                }
                (Some(place), Some(to)) => {
                    let room = state.claims.as_ref().and_then(|claims| claims.rooms.get(key));
                    let (slot, _) = *room.expect("room for each new name is kept");
                    self.insert(group, shared, &place.at(slot, *key), name, to)?;
                }
                (_, None) => {}
                (None, Some(_)) => unreachable!("a directory with room for a name has a leaf"),
            }
        }
        let fields = changes.fields_over(&state.record.times);
        if fields != Fields::default() {
            self.assign(group, shared, state, &fields)?;
        }
        Ok(())
    }

    fn abort_twins(&self, explicit: &Explicit, twins: &Twins) {
        explicit.body().abort(self);
        for twin in twins {
            let shared = shared(twin);
            let mut state = shared.state.write().unwrap();
            state.release(explicit.id);
            if shared.unborn.load(Ordering::Acquire) {
                state.record.owned.links = 0;
            }
        }
    }
}
