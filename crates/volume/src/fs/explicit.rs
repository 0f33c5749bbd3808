//! Explicit groups: what one has of inodes, what it keeps others from, its commit and its abort.
//!
//! | file | idea |
//! |---|---|
//! | `explicit.rs` | running groups, their calls and twins |
//! | `explicit/claims.rs` | what they keep others from |
//! | `explicit/ending.rs` | commit and abort |
//!
//! # Terms
//!
//! - *shared*: an inode as everybody sees it. *Twin*: the same as a running group sees it, made when the group first
//!   changes something of it. Calls of the group work on twins, all others on shared inodes.
//! - *claim*: what a running group keeps others from, at the shared inode ([`Claims`]).
//! - *changes*: what a group has done to a directory that was there before ([`Changes`]). All else that it has changed
//!   is in its draft (`engine/draft.rs`).
//! - *unborn*: an inode that a running group has made. For others there is none.
//! - *room*: slots of a leaf that are kept for a name that a group is going to enter.
//!
//! # Invariants
//!
//! 1. Everything but a directory belongs to one running group alone, once that changes it; so do directories that it
//!    makes, removes and moves. Nobody else changes anything of these, and a group's twin of one is all that it has.
//! 2. Other directories are shared by any number of groups. A name belongs to one running group that changes it, and so
//!    do the attributes. Changes are recorded inside of the commit, with the shared directory locked: nothing of them
//!    is in a draft before, but extended attributes, whose lines nobody else writes to.
//! 3. A group that changes a name in a directory keeps it from being removed and moved; one that moves a directory, all
//!    directories above the new place, so that no two moves close a circle together.
//! 4. Room for each name is kept at the call: leaves are split then, by structure changes of their own. Whoever splits
//!    a leaf places the rooms in it anew. Its halves have room for all: entries are moved together.
//! 5. The commit locks all shared inodes that it changes, directories before others, ancestors first, then by number,
//!    and holds the rename lock if they are several directories. What it changes in place nobody reads before it is
//!    committed.
//! 6. Calls of one group come one at a time, and so do its commit and abort. They never wait for a lock of a shared
//!    inode while they hold one, but for commits. So a lock of a twin is never waited for.
//! 7. What a call has claimed it gives back at its end, unless it has changed something or was asked for the claim.
//! 8. A group has one reference to each shared inode of which it has a twin. An inode that has lost its last name is
//!    freed when it has no references, by a group of its own.

mod claims;
mod ending;

pub use claims::{Claims, What};

use std::collections::BTreeMap;
use std::sync::Arc;

use sync::{AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard};
use wholly_vfs::{Context, Errno, GroupId, Result};

use super::dir::Place;
use super::group::{Body, Group, Need, Sight};
use super::known::Leaves;
use super::storage::Record;
use super::table::{Held, Inode, State};
use super::{Core, DIRECTORY};
use crate::engine::{Fields, Kind, Logged};
use crate::format::by_number::ByNumber;
use crate::format::dir::TWIN_BITS;
use crate::format::inode::{Time, Times};
use claims::{Fresh, Named};

/// The running explicit groups, in shards by their numbers: each call in a group looks for it.
#[derive(Default)]
pub struct Running([Mutex<ByNumber<Arc<Explicit>>>; 16]);

impl Running {
    fn of(&self, id: GroupId) -> &Mutex<ByNumber<Arc<Explicit>>> {
        &self.0[(id.0 % self.0.len() as u64) as usize]
    }
}

/// A running explicit group.
pub struct Explicit {
    pub id: GroupId,
    body: Mutex<Body>,
    calls: Mutex<Calls>,
    returned: Condvar,
}

/// The calls of a group, and what they have of inodes.
struct Calls {
    /// Whether one runs.
    runs: bool,
    /// How many wait for it.
    waiting: u32,
    /// What it has claimed.
    fresh: Vec<(Arc<Inode>, Fresh)>,
    /// By the numbers of the inodes; `None` once the group has ended.
    twins: Option<ByNumber<Arc<Inode>>>,
}

/// What makes an inode a twin.
pub struct Twin {
    pub group: Arc<Explicit>,
    pub shared: Arc<Inode>,
    /// Of a directory that was there before the group.
    pub changes: Option<Box<Mutex<Changes>>>,
}

/// What a group has done to a directory.
#[derive(Default)]
pub struct Changes {
    /// By key.
    names: BTreeMap<u64, Change>,
    fields: Fields,
    /// Times as others had them when the call began that runs.
    seen: Times,
    /// Of the times in `fields`, those of access, modification and change that the group has changed.
    times: [Option<ChangedTime>; 3],
}

/// A time that a group has changed.
#[derive(Clone, Copy)]
struct ChangedTime {
    /// What others had then.
    base: Time,
    /// When, if it was set to another time than that.
    set_at: Option<Time>,
}

impl ChangedTime {
    /// The latest of the group's change and those of others, whoever commits first.
    fn latest(self, own: Time, others: Time) -> Time {
        match self.set_at {
            _ if others == self.base => own,
            Some(at) if others <= at => own,
            Some(_) => others,
            None => own.max(others),
        }
    }
}

/// What a name has become.
struct Change {
    name: Vec<u8>,
    /// Inode and type.
    to: Option<(u64, u32)>,
}

impl Changes {
    /// What a name has become, if the group has changed it, and its key.
    pub fn get(&self, hash: u64, name: &[u8]) -> Option<(u64, Option<(u64, u32)>)> {
        let keys = hash << TWIN_BITS..(hash + 1) << TWIN_BITS;
        self.names.range(keys).find(|(_, change)| change.name == name).map(|(key, change)| (*key, change.to))
    }

    pub fn set(&mut self, group: &mut Group<'_>, key: u64, name: &[u8], to: Option<(u64, u32)>) {
        let mut is_new = false;
        let change = self.names.entry(key).or_insert_with(|| {
            is_new = true;
            Change { name: name.to_vec(), to: None }
        });
        assert!(change.name == name, "two names have one key");
        change.to = to;
        group.record_later(u64::from(is_new), 0);
    }

    /// Sets fields of the directory, whose times were others.
    pub fn assign(&mut self, group: &mut Group<'_>, before: &Times, fields: &Fields) {
        group.record_later(0, u64::from(self.fields == Fields::default()));
        self.fields.merge(fields);
        let Some(times) = &fields.times else { return };
        let pairs = [(before.atime, times.atime), (before.mtime, times.mtime), (before.ctime, times.ctime)];
        let seen = [self.seen.atime, self.seen.mtime, self.seen.ctime];
        for ((changed, base), (before, now)) in self.times.iter_mut().zip(seen).zip(pairs) {
            if before != now {
                *changed = Some(ChangedTime { base, set_at: None });
            }
        }
    }

    /// Of the times that were just assigned, those of access and of modification were set, to any time.
    pub fn has_set(&mut self, which: [bool; 2], now: Time) {
        let seen = [self.seen.atime, self.seen.mtime];
        for ((changed, base), _) in self.times.iter_mut().zip(seen).zip(which).filter(|(_, is_set)| *is_set) {
            *changed = Some(ChangedTime { base, set_at: Some(now) });
        }
    }

    /// The fields that it has changed, where others may have changed them since.
    fn fields_over(&self, others: &Times) -> Fields {
        let mut fields = self.fields.clone();
        let Some(times) = &mut fields.times else { return fields };
        let over = |changed: Option<ChangedTime>, own, others| changed.map_or(others, |it| it.latest(own, others));
        let [atime, mtime, ctime] = self.times;
        times.atime = over(atime, times.atime, others.atime);
        times.mtime = over(mtime, times.mtime, others.mtime);
        times.ctime = over(ctime, times.ctime, others.ctime);
        fields
    }

    pub fn has(&self, key: u64) -> bool {
        self.names.contains_key(&key)
    }

    /// The names that the group has entered, from a key on and below another one: key, name, inode and type.
    pub fn entered(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &[u8], (u64, u32))> {
        let range = if from < to { self.names.range(from..to) } else { self.names.range(0..0) };
        range.filter_map(|(key, change)| Some((*key, &change.name[..], change.to?)))
    }
}

impl Inode {
    /// The group whose twin it is.
    pub fn group(&self) -> Option<&Arc<Explicit>> {
        self.twin.as_ref().map(|twin| &twin.group)
    }

    /// The twin of a directory that was there before its group: what others see of it, and what the group has changed.
    pub fn changes(&self) -> Option<(&Arc<Inode>, MutexGuard<'_, Changes>)> {
        let twin = self.twin.as_ref()?;
        Some((&twin.shared, twin.changes.as_ref()?.lock().unwrap()))
    }

    /// The shared directory, if this is a twin with changes.
    pub fn changed(&self) -> Option<&Arc<Inode>> {
        self.twin.as_ref().filter(|twin| twin.changes.is_some()).map(|twin| &twin.shared)
    }
}

impl Explicit {
    pub fn body(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap()
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap()
    }

    pub fn twin(&self, ino: u64) -> Option<Arc<Inode>> {
        self.calls().twins.as_ref()?.get(&ino).cloned()
    }
}

/// An inode as a call sees it.
pub enum Seen<'i> {
    Shared(&'i Inode),
    Twin(Arc<Inode>),
}

impl std::ops::Deref for Seen<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        match self {
            Seen::Shared(inode) => inode,
            Seen::Twin(inode) => inode,
        }
    }
}

/// A call of a group. When it is dropped, the next one can come. Without a change it has claimed nothing.
pub struct Entered<'c> {
    core: &'c Core,
    explicit: Arc<Explicit>,
    _admitted: Option<RwLockReadGuard<'c, ()>>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // A panic may be on its way: then nothing is known of the group, and a second one would end the process.
        let is_changed = self.explicit.body.lock().map_or(true, |mut body| std::mem::take(&mut body.is_changed));
        let Ok(mut calls) = self.explicit.calls.lock() else { return };
        if is_changed {
            calls.fresh.clear();
        } else if !calls.fresh.is_empty() {
            let fresh = std::mem::take(&mut calls.fresh);
            drop(calls);
            fresh.into_iter().rev().for_each(|(shared, claim)| self.release(&shared, &claim));
            calls = self.explicit.calls();
        }
        calls.runs = false;
        // Without anybody who waits, it would be a system call for nothing.
        if calls.waiting > 0 {
            self.explicit.returned.notify_one();
        }
    }
}

impl<'c> Entered<'c> {
    /// Waits for the call that runs.
    ///
    /// # Errors
    /// `EINVAL` if the group has ended.
    fn new(core: &'c Core, explicit: Arc<Explicit>, admitted: Option<RwLockReadGuard<'c, ()>>) -> Result<Entered<'c>> {
        let mut calls = explicit.calls();
        while calls.runs {
            calls.waiting += 1;
            calls = explicit.returned.wait(calls).unwrap();
            calls.waiting -= 1;
        }
        calls.runs = true;
        let has_ended = calls.twins.is_none();
        drop(calls);
        let entered = Entered { core, explicit, _admitted: admitted };
        if has_ended { Err(Errno::INVAL) } else { Ok(entered) }
    }

    /// The call gives a claim back.
    fn release(&self, shared: &Arc<Inode>, claim: &Fresh) {
        let Ok(mut state) = shared.state.write() else { return };
        state.release_one(self.explicit.id, claim);
        drop(state);
        if matches!(claim, Fresh::Twin) {
            let twin = self.explicit.calls().twins.as_mut().and_then(|twins| twins.remove(&shared.id.ino));
            if twin.is_some() {
                self.core.forget(shared, 1);
            }
        }
    }
}

impl Core {
    /// Begins an explicit group.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the engine has none; if the volume has failed, or is being unmounted.
    pub fn begin_group(&self) -> Result<GroupId> {
        let _admitted = self.admit()?;
        if !self.engine.has_groups() {
            return Err(Errno::OPNOTSUPP);
        }
        let id = GroupId(self.next_group.fetch_add(1, Ordering::Relaxed));
        let calls = Calls { runs: false, waiting: 0, fresh: Vec::new(), twins: Some(ByNumber::default()) };
        let explicit =
            Explicit { id, body: Mutex::new(Body::explicit(self)), calls: Mutex::new(calls), returned: Condvar::new() };
        self.groups.of(id).lock().unwrap().insert(id.0, Arc::new(explicit));
        Ok(id)
    }

    pub(super) fn explicit(&self, id: GroupId) -> Result<Arc<Explicit>> {
        self.groups.of(id).lock().unwrap().get(&id.0).cloned().ok_or(Errno::INVAL)
    }

    /// Begins a call, which may belong to an explicit group.
    ///
    /// # Errors
    /// `EINVAL` if there is no such running group; if the volume has failed, or is being unmounted.
    #[inline]
    pub fn enter(&self, ctx: &Context) -> Result<Option<Entered<'_>>> {
        ctx.group.map(|id| self.enter_group(id)).transpose()
    }

    fn enter_group(&self, id: GroupId) -> Result<Entered<'_>> {
        let admitted = self.admit()?;
        Entered::new(self, self.explicit(id)?, Some(admitted))
    }

    /// Begins a group for a call that changes an inode: in an explicit group if that is a twin.
    pub fn begin<'c>(
        &'c self,
        inode: &'c Inode,
        kind: Kind,
        blocks: u64,
        need: Need,
    ) -> wholly_error::Result<Group<'c>> {
        self.begin_logging(inode, kind, blocks, need, Logged::default())
    }

    pub fn begin_logging<'c>(
        &'c self,
        inode: &'c Inode,
        kind: Kind,
        blocks: u64,
        need: Need,
        logged: Logged,
    ) -> wholly_error::Result<Group<'c>> {
        match inode.group() {
            None => Group::begin_logging(self, kind, blocks, need, logged),
            Some(explicit) => Group::call(self, explicit, blocks, need, logged),
        }
    }

    /// The storage version, as those see it who see this inode.
    #[inline]
    pub fn sight<'c>(&'c self, inode: &'c Inode) -> Sight<'c> {
        Sight::new(self, inode.group().map(|explicit| &**explicit))
    }

    /// The twin of an inode that the group of a call has. `is_first`: the call has no lock yet.
    ///
    /// # Errors
    /// `ESTALE` if it is another group's; `EINVAL` if there is no such running group.
    #[inline]
    pub fn twin(&self, ctx: &Context, shared: &Inode, is_first: bool) -> Result<Option<Arc<Inode>>> {
        let twin = ctx.group.map_or(Ok(None), |id| self.twin_of(id, shared, is_first))?;
        if twin.is_none() && shared.unborn.load(Ordering::Acquire) { Err(Errno::STALE) } else { Ok(twin) }
    }

    fn twin_of(&self, id: GroupId, shared: &Inode, is_first: bool) -> Result<Option<Arc<Inode>>> {
        let twin = self.explicit(id)?.twin(shared.id.ino);
        Ok(twin.inspect(|twin| Self::refresh(twin, is_first)))
    }

    /// Whether a running group has changed an inode, or has claimed it.
    pub fn has_changed(&self, id: GroupId, ino: u64) -> bool {
        self.explicit(id).is_ok_and(|explicit| explicit.twin(ino).is_some())
    }

    /// Whether a running group would fill one of so many parts of the engine's log. Waits for the call that runs.
    pub fn fills_log(&self, id: GroupId, parts: u64) -> bool {
        self.explicit(id).is_ok_and(|explicit| explicit.body().fills_log(self, parts))
    }

    /// An inode as a call sees it.
    ///
    /// # Errors
    /// Those of [`twin`](Self::twin).
    #[inline]
    pub fn view<'i>(&self, ctx: &Context, shared: &'i Inode) -> Result<Seen<'i>> {
        Ok(self.twin(ctx, shared, true)?.map_or(Seen::Shared(shared), Seen::Twin))
    }

    /// Whatever others have changed of a directory since. A call that has locks waits for none: what it misses is being
    /// changed just now.
    fn refresh(twin: &Inode, waits: bool) {
        let Some((shared, mut changes)) = twin.changes() else { return };
        let locked = if waits { Ok(shared.state.read().unwrap()) } else { shared.state.try_read() };
        let (Ok(shared), Ok(mut state)) = (locked, twin.state.try_write()) else { return };
        let Some(me) = twin.group().map(|explicit| explicit.id) else { return };
        let more = if shared.has_attributes(Some(me)) { state.record.more } else { shared.record.more };
        state.record = Record { more, ..shared.record };
        state.record.set(&changes.fields_over(&shared.record.times));
        changes.seen = shared.record.times;
        state.subdirs = None;
    }

    /// What a call is going to change, for it: claimed, and the twin of its group.
    ///
    /// # Errors
    /// `EBUSY`; `EINVAL` if there is no such running group.
    pub fn take<'c>(&'c self, ctx: &Context, mut held: Held<'c>, what: What<'_>) -> Result<Held<'c>> {
        if let Some(id) = ctx.group {
            held.twin = Some(self.claim(&self.explicit(id)?, held.shared(), what)?);
        }
        Ok(held)
    }

    /// The same of an inode that somebody refers to meanwhile.
    #[inline]
    pub fn take_open<'i>(&self, ctx: &Context, shared: &'i Arc<Inode>) -> Result<Seen<'i>> {
        match ctx.group {
            None => self.view(ctx, shared),
            Some(id) => self.claim(&self.explicit(id)?, shared, What::Itself).map(Seen::Twin),
        }
    }

    /// Claims an open file for a group.
    pub fn add_to_group(&self, group: GroupId, shared: &Arc<Inode>) -> Result<()> {
        let entered = Entered::new(self, self.explicit(group)?, Some(self.admit()?))?;
        self.claim(&entered.explicit, shared, What::Itself)?;
        entered.explicit.calls().fresh.clear();
        Ok(())
    }

    /// Sees to it that nobody else changes a name in a directory until the call, or its group, has ended.
    ///
    /// # Errors
    /// `EBUSY`.
    pub fn take_name(&self, dir: &Inode, state: &State, name: &[u8], place: Option<Place>) -> Result<Option<Place>> {
        let Some(twin) = &dir.twin else {
            return state.check_free(dir, None, What::Name(name)).map(|()| place);
        };
        if twin.changes.is_none() {
            return Ok(place);
        }
        self.claim(&twin.group, &twin.shared, What::Name(name))?;
        let again = self.find(dir, state, name)?;
        let ino = |place: &Option<Place>| place.as_ref().and_then(|place| place.found).map(|found| found.head.ino);
        // Somebody was faster.
        if ino(&again) == ino(&place) { Ok(again) } else { Err(Errno::BUSY) }
    }

    fn claim(&self, explicit: &Arc<Explicit>, shared: &Arc<Inode>, what: What<'_>) -> Result<Arc<Inode>> {
        let me = explicit.id;
        let is_dir = shared.kind == DIRECTORY;
        // The group has it alone: nothing is left to be claimed, and it has a reference.
        if !is_dir && let Some(twin) = explicit.twin(shared.id.ino) {
            return Ok(twin);
        }
        // Before the lock: who gives the last reference back waits for it with the shard locked.
        let mut reference = Some(self.held(shared.id.ino)?);
        let mut state = shared.state.write().unwrap();
        if shared.unborn.load(Ordering::Acquire) && explicit.twin(shared.id.ino).is_none() {
            return Err(Errno::STALE);
        }
        state.check_free(shared, Some(me), what)?;
        let twin = match explicit.twin(shared.id.ino) {
            Some(twin) => twin,
            None => {
                let twin = self.make_twin(explicit, shared, &mut state, false)?;
                reference.take().map(Held::keep);
                explicit.calls().fresh.push((shared.clone(), Fresh::Twin));
                twin
            }
        };
        if is_dir && matches!(what, What::Itself | What::Alone) && !state.has_attributes(Some(me)) {
            // From here on those of the twin count. Whoever claims them has not locked it.
            twin.state.try_write().map_err(|_| Errno::BUSY)?.record.more = state.record.more;
        }
        let mut calls = explicit.calls();
        let mut claimed = |claim| calls.fresh.push((shared.clone(), claim));
        if !is_dir || matches!(what, What::Alone) {
            if state.alone.replace(me).is_none() {
                claimed(Fresh::Alone);
            }
        } else if matches!(what, What::Itself) && state.claims().attributes.replace(me).is_none() {
            claimed(Fresh::Attributes);
        }
        if is_dir {
            let claims = state.claims();
            if let What::Name(name) = what
                && !claims.names.contains_key(name)
            {
                claims.names.insert(name.to_vec(), Named { group: me, room: None });
                claimed(Fresh::Name(name.to_vec()));
            }
            if !claims.sharers.contains(&me) {
                claims.sharers.push(me);
                claimed(Fresh::Sharer);
            }
        }
        drop(calls);
        drop(state);
        Self::refresh(&twin, false);
        Ok(twin)
    }

    fn make_twin(
        &self,
        explicit: &Arc<Explicit>,
        shared: &Arc<Inode>,
        state: &mut State,
        is_born: bool,
    ) -> Result<Arc<Inode>> {
        let changes = || Box::new(Mutex::new(Changes { seen: state.record.times, ..Changes::default() }));
        let changes = (shared.kind == DIRECTORY && !is_born).then(changes);
        // Until the commit, which brings it back: nobody else changes the map meanwhile.
        let pieces = std::mem::take(&mut state.pieces);
        let state = State { record: state.record, nameable: state.nameable, pieces, ..State::default() };
        let twin = Arc::new(Inode {
            id: shared.id,
            kind: shared.kind,
            state: RwLock::new(state),
            trie_depth: AtomicU32::new(0),
            leaves: Leaves::new(self.known.clone()),
            refs: AtomicU64::new(0),
            idled: AtomicU32::new(0),
            opens: AtomicU64::new(0),
            keeps_times: AtomicBool::new(false),
            unborn: sync::AtomicBool::new(false),
            twin: Some(Twin { group: explicit.clone(), shared: shared.clone(), changes }),
            mark: sync::OnceLock::new(),
        });
        explicit.calls().twins.as_mut().ok_or(Errno::INVAL)?.insert(shared.id.ino, twin.clone());
        Ok(twin)
    }

    /// An inode that a call in a directory has just made.
    pub fn born_in(&self, dir: &Inode, ino: u64, record: Record, nameable: bool) -> Result<Held<'_>> {
        let mut held = self.born(ino, record, nameable, dir.group().is_some());
        if let Some(explicit) = dir.group() {
            let mut state = held.shared().state.write().unwrap();
            state.alone = Some(explicit.id);
            let twin = self.make_twin(explicit, held.shared(), &mut state, true)?;
            self.held(ino)?.keep();
            drop(state);
            held.twin = Some(twin);
        }
        Ok(held)
    }

    /// Keeps room for a name that the group of a twin is going to enter. The name is claimed. Returns its key.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub fn keep_room(&self, shared: &Inode, name: &[u8]) -> wholly_error::Result<u64> {
        let mut state = shared.state.write().unwrap();
        let named = |state: &State| state.claims.as_ref()?.names.get(name)?.room;
        if let Some(key) = named(&state) {
            return Ok(key);
        }
        let place = self.find(shared, &state, name)?;
        let place = self.make_room(shared, &mut state, name, place)?;
        let (key, slots) = place.kept(name);
        let claims = state.claims.as_mut().expect("the name is claimed");
        claims.rooms.insert(key, slots);
        claims.names.get_mut(name).expect("the name is claimed").room = Some(key);
        Ok(key)
    }
}
