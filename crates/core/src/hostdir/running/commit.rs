//! How a running group ends: its record, the fence behind it, and what everybody sees from then on; or nothing.

use std::sync::Arc;

use super::{Joined, MANY, Running, Sharing};
use crate::error::{Error, Result};
use crate::hostdir::StoreInner;
use crate::hostdir::clock::{Mtime, is_near};
use crate::hostdir::lanes::Seat;
use crate::hostdir::memory::ZEROS;
use crate::hostdir::names::Private;
use crate::hostdir::overlay::{Overlay, Place, PrivateWrite};
use crate::hostdir::parked::Provisional;
use crate::hostdir::published::{Prepared, Stock, Written};
use crate::log::batch::{Outcome, Request, record_bytes};
use crate::site;
use sync::Ordering;

/// How often a group identifies what it speaks of beside checkpoints: each that begins meanwhile has it do so again.
const BESIDE_PASSES: usize = 2;

impl Running {
    /// See [`Group::commit`](crate::Group::commit).
    #[inline(always)]
    pub(in crate::hostdir) fn commit(&mut self) -> Result<()> {
        let is_straight = self.plain && !self.store.options.at_once && self.commit_straight();
        if is_straight { Ok(()) } else { self.commit_any() }
    }

    #[inline(never)]
    fn commit_any(&mut self) -> Result<()> {
        match self.store.options.at_once && !self.implicit {
            true => self.commit_at_once(),
            false => self.commit_to_log(),
        }
    }

    /// Commits the group. It is written back later.
    pub(in crate::hostdir) fn commit_to_log(&mut self) -> Result<()> {
        if !self.lasts {
            return self.commit_identified(|_| ());
        }
        self.seat_mut().lane.keep_free(0);
        // Where there is no room the group goes on.
        self.commit_identified(|_| ()).inspect_err(|_| {
            if !self.has_ended() {
                self.keep_room_for_commit();
                self.keep_to_memory();
            }
        })
    }

    /// The straight path: commits a plain group, if the log has already told which files it changes and when. This does
    /// what [`commit_identified`](Self::commit_identified) does, in the same order, without what a plain group cannot
    /// have. Returns whether the group has committed. If not, `commit_identified` commits it, or says why it cannot.
    #[inline(never)]
    fn commit_straight(&mut self) -> bool {
        let store = &*self.store;
        let Some(seat) = &self.seat else { return false };
        debug_assert!(self.in_lane && self.sharing == Sharing::Own && seat.gathered.is_empty());
        debug_assert!(self.broken.is_none() && self.by_number.is_none() && self.names.is_none());
        debug_assert!(self.shadows.is_none() && self.brought.is_none());
        debug_assert!(seat.files.iter().all(|file| !file.created && file.staged.is_none() && !file.is_cut()));
        if store.check_usable().is_err() || seat.lane.is_clean() {
            return false;
        }
        let announced = store.log.announced_tail();
        let (mut builds_on, mut earliest, mut latest) = (0, i64::MAX, i64::MIN);
        for file in &seat.files {
            let Mtime::Changed(ns) = file.mtime else { return false };
            let identified = file.inner.identified.load(Ordering::Acquire);
            if identified < announced || self.sequence <= identified {
                return false;
            }
            builds_on = file.last.max(builds_on);
            (earliest, latest) = (ns.min(earliest), ns.max(latest));
        }
        if self.sequence <= builds_on {
            return false;
        }
        let Some(time) = store.clock.at(announced, self.sequence) else { return false };
        if !is_near(earliest, time, self.grain_ns) || !is_near(latest, time, self.grain_ns) {
            return false;
        }
        self.time = (time, false);
        // After an error the store is poisoned, and every later call says so.
        matches!(self.commit_lane::<true>(announced, builds_on), Ok(true))
    }

    /// The same. `between` comes after the group has identified what it speaks of, and before it commits.
    #[inline(always)]
    fn commit_identified(&mut self, mut between: impl FnMut(&StoreInner)) -> Result<()> {
        self.store.check_usable()?;
        self.check_whole()?;
        self.end_run()?;
        self.swap_in()?;
        let seat = self.seat();
        if seat.gathered.is_empty() && seat.lane.is_clean() {
            self.abort();
            return Ok(());
        }
        if self.brought.is_some() {
            self.settle_adopted()?;
        }
        if self.seat().files.iter().any(|file| file.staged.is_some()) {
            self.settle_stages()?;
        }
        if self.shadows.is_some() {
            self.settle_shadows()?;
        }
        if self.store.log.is_pmem() && !self.in_lane {
            self.spill()?;
        }
        if self.in_lane && self.seat().lane.has_given_up() {
            self.tell_first()?;
        }
        for _ in 0..BESIDE_PASSES {
            if self.try_commit(&mut between)? {
                return Ok(());
            }
        }
        self.commit_between_passes(&mut between)
    }

    /// Identifies what the group speaks of, and commits it. `Ok(false)`: a checkpoint was announced meanwhile.
    #[inline(always)]
    fn try_commit(&mut self, between: &mut impl FnMut(&StoreInner)) -> Result<bool> {
        let announced = self.identify()?;
        between(&self.store);
        if self.store.log.is_pmem() {
            let builds_on = after(&self.seat().files, self.names.as_deref());
            return self.commit_lane::<false>(announced, builds_on);
        }
        if !self.in_lane {
            let bytes = record_bytes(&self.seat().gathered, self.store.log.block());
            if bytes > self.store.log.record_capacity() {
                self.spill()?;
            }
        }
        self.commit_batch(announced)
    }

    /// Commits a group that takes longer to identify what it speaks of than the log takes to fill, which asks for the
    /// next checkpoint: none begins before it has committed.
    #[cold]
    fn commit_between_passes(&mut self, between: &mut impl FnMut(&StoreInner)) -> Result<()> {
        let store = self.store.clone();
        let committed = store.with_room_between_passes(|| self.try_commit(between))?;
        assert!(committed, "nobody else announces a checkpoint meanwhile");
        Ok(())
    }

    /// Tells in the log which host files the group's numbers stand for, where no group above the announced tail does
    /// (invariant 4). Returns the tail that was announced.
    #[inline]
    fn identify(&mut self) -> Result<u64> {
        // What it builds on may have gained a higher sequence since the group claimed it, by a group that needs no such
        // claim. It takes its own anew before the log is told times and identities for it (invariant 7 of the log).
        if after(&self.seat().files, self.names.as_deref()) >= self.sequence {
            self.sequence = self.store.log.take_sequence();
        }
        let announced = self.store.log.announced_tail();
        self.tell_time(announced)?;
        for i in 0..self.seat().files.len() {
            let file = &self.seat().files[i];
            // By a group that is replayed before this one.
            let identified = file.inner.identified.load(Ordering::Acquire);
            let known = file.created
                || file.identified_for == announced
                || (announced <= identified && identified < self.sequence);
            if !known {
                self.identify_file(i, announced)?;
            }
        }
        if self.names.is_some() {
            self.identify_objects(announced)?;
        }
        Ok(announced)
    }

    /// `Ok(false)`: a checkpoint was announced meanwhile; identify again. `PLAIN` leaves out what a plain group does
    /// not have.
    #[inline(always)]
    fn commit_lane<const PLAIN: bool>(&mut self, announced: u64, builds_on: u64) -> Result<bool> {
        let store = &*self.store;
        if self.sequence < announced {
            self.sequence = store.log.take_sequence();
        }
        let (sequence, claimer) = (self.sequence, self.claimer());
        let seat = self.seat.as_mut().expect("the group has not ended");
        let in_flight = store.log.in_flight();
        let slot = match seat.place {
            Some(own) => {
                in_flight.enter_own(own, sequence);
                own
            }
            None => in_flight.enter(sequence),
        };
        if store.log.announced_tail() != announced {
            in_flight.leave(slot);
            return Ok(false);
        }
        let Seat { lane, files, writes, stock, .. } = &mut **seat;
        let mut prepared = Prepared::default();
        let mut first = FirstToPublish::default();
        let failed = |error| {
            in_flight.leave(slot);
            store.poison(&error)
        };
        lane.store_commit(&store.log, sequence, builds_on).map_err(failed)?;
        // While the fence would wait for memory.
        if PLAIN || (self.sharing == Sharing::Own && !files.iter().any(Joined::is_cut)) {
            first = match writes.list() {
                Some(writes) => prepare(store, files, writes.iter(), stock, sequence, &mut prepared),
                None => prepare_many(store, files, writes, stock, sequence, &mut prepared),
            };
        }
        lane.fence_commit(&store.log).map_err(failed)?;
        store.index.link(&prepared, stock);
        if let Some(shadows) = self.shadows.as_ref().filter(|_| !PLAIN) {
            shadows.publish(store, &seat.files, sequence);
        }
        let names = self.names.as_deref_mut().filter(|_| !PLAIN).map(|names| (names, claimer));
        publish::<PLAIN>(store, seat, names, self.sharing, (sequence, self.time), &[], first);
        seat.lane.finish(&store.log, sequence);
        in_flight.leave(slot);
        self.end::<PLAIN>();
        Ok(true)
    }

    /// `Ok(false)`: a checkpoint was announced meanwhile; identify again.
    fn commit_batch(&mut self, announced: u64) -> Result<bool> {
        let (store, claimer) = (self.store.clone(), self.claimer());
        let seat = self.seat.as_mut().expect("the group has not ended");
        let mut parts = 0;
        if self.in_lane {
            let closed = seat.lane.close(&store.log).and_then(|parts| {
                store.log.region().fence(site::SPILL_SYNC)?;
                store.log.count_barrier();
                Ok(parts)
            });
            parts = closed.map_err(|error| store.poison(&error))?;
        }
        // A copy of the references: where there is no room the group is still whole.
        let entries = seat.gathered.clone();
        let kept: Vec<Arc<[u8]>> = entries.iter().map(|entry| entry.data.clone()).collect();
        let request = Request {
            group: seat.lane.group(),
            entries,
            parts,
            after: after(&seat.files, self.names.as_deref()),
            announced,
        };
        let outcome = store.batch.commit(&store.log, request, || store.make_room());
        // Of `make_room` nothing is lost but the group; a failed write leaves nobody knowing.
        let outcome = outcome.map_err(|error| match error {
            Error::Poisoned(_) => store.poison(&error),
            error => error,
        });
        match outcome? {
            Outcome::Announced => Ok(false),
            Outcome::Committed(sequence, ticket) => {
                let positions: Vec<u64> = kept.into_iter().map(|data| store.memory.keep(sequence, data)).collect();
                let names = self.names.as_deref_mut().map(|names| (names, claimer));
                if let Some(shadows) = &self.shadows {
                    shadows.publish(&store, &seat.files, sequence);
                }
                publish::<false>(
                    &store,
                    seat,
                    names,
                    self.sharing,
                    (sequence, self.time),
                    &positions,
                    FirstToPublish::default(),
                );
                seat.lane.retire(&store.log, sequence);
                self.end::<false>();
                drop(ticket);
                Ok(true)
            }
        }
    }

    /// The group has been published, or undone: gives up its files and its seat.
    #[inline(always)]
    fn end<const PLAIN: bool>(&mut self) {
        if self.lasts {
            self.leave_swap();
        }
        let Some(mut seat) = self.seat.take() else { return };
        self.store.room.end(std::mem::take(&mut self.promised));
        let owner = self.owner();
        let many = seat.files.len() > MANY;
        while let Some(Joined { inner, .. }) = seat.files.pop() {
            self.sharing.leave(&inner, owner);
            match &mut self.recent {
                Some(recent) => recent.put(inner),
                None if many && !PLAIN => self.store.retire(&inner),
                None => {}
            }
        }
        if PLAIN {
            seat.writes.clear();
        } else {
            if self.names.is_some() {
                self.release_names();
            }
            seat.clear();
            self.shadows = None;
            self.brought = None;
            self.plain = false;
        }
        if self.recent.is_some() && seat.place.is_some() {
            self.parked = Some(seat);
        } else {
            self.store.seats.give_back(seat, &self.store.index);
        }
    }

    /// Undoes the group, unless it has ended, or a child has the store: then the places that it would undo are the
    /// child's.
    #[inline]
    pub(in crate::hostdir) fn abort(&mut self) {
        if self.seat.is_some() && !self.store.forked.is_inherited() && !self.store.forked.is_seized() {
            self.undo();
        }
    }

    #[cold]
    fn undo(&mut self) {
        self.remove_stages();
        self.give_back();
        self.remove_shadows();
        let Some(seat) = self.seat.as_mut() else { return };
        if let Err(error) = seat.lane.abort(&self.store.log) {
            self.store.poison(&error);
        }
        if !self.store.log.is_pmem() {
            // Whatever it spilled is not gone on with.
            seat.lane.leave(&self.store.log);
        }
        self.end::<false>();
    }
}

/// See [`Head::after`](crate::log::layout::Head::after).
#[inline]
fn after(files: &[Joined], names: Option<&Private>) -> u64 {
    let files = files.iter().filter(|file| file.touched).map(|file| file.last).max().unwrap_or(0);
    names.map_or(files, |names| files.max(names.after))
}

/// What of a group's writes was not [prepared](prepare).
#[derive(Clone, Copy, Default)]
struct FirstToPublish {
    write: usize,
    /// Its first bytes were.
    bytes: u64,
}

/// Prepares to publish the writes of a group that owns its files, and neither cuts nor zeroes any: all that can be done
/// before it is durable.
#[inline(always)]
fn prepare<'f>(
    store: &StoreInner,
    files: &'f [Joined],
    writes: impl Iterator<Item = &'f PrivateWrite>,
    stock: &mut Stock,
    sequence: u64,
    prepared: &mut Prepared<'f>,
) -> FirstToPublish {
    let mut count = 0;
    for write in writes {
        let written = written(write, sequence, &[]);
        let bytes = store.index.prepare(&files[write.file as usize].inner, written, stock, prepared);
        if bytes < written.length {
            return FirstToPublish { write: count, bytes };
        }
        count += 1;
    }
    FirstToPublish { write: count, bytes: 0 }
}

/// The same of more writes than are in a list.
#[cold]
fn prepare_many<'f>(
    store: &StoreInner,
    files: &'f [Joined],
    writes: &'f Overlay,
    stock: &mut Stock,
    sequence: u64,
    prepared: &mut Prepared<'f>,
) -> FirstToPublish {
    prepare(store, files, writes.iter(), stock, sequence, prepared)
}

#[inline]
fn written(write: &PrivateWrite, sequence: u64, kept: &[u64]) -> Written {
    let position = match write.place {
        Place::Log(position, _) | Place::Shadow(position) => position,
        Place::Gathered(entry, at) => kept[entry] + u64::from(at),
        Place::Zeros => ZEROS,
    };
    Written { offset: write.offset, length: u64::from(write.length), position, stamp: sequence }
}

/// Makes a committed group visible, from `first` of its writes on; `time` is that of its changes, and whether it told
/// the log of it. `kept` are the places in memory of what was gathered. With its names comes as whom it claims them.
#[inline(always)]
fn publish<const PLAIN: bool>(
    store: &StoreInner,
    seat: &mut Seat,
    names: Option<(&mut Private, u64)>,
    sharing: Sharing,
    (sequence, (time, told)): (u64, (i64, bool)),
    kept: &[u64],
    first: FirstToPublish,
) {
    if told && !PLAIN {
        store.clock.publish(time, sequence);
    }
    let Seat { files, writes, stock, .. } = seat;
    if !PLAIN {
        for file in files.iter().filter(|file| file.limit != u64::MAX) {
            file.inner.publish_truncate(&store.index, file.limit, &mut stock.freed);
        }
        for file in files.iter() {
            if let Some(wishes) = &file.wishes {
                file.inner.publish_wishes(&store.index, wishes, sequence, stock);
            }
        }
    }
    if first.write < writes.len() {
        let mut begun = first.bytes;
        for write in writes.iter().skip(first.write) {
            let written = written(write, sequence, kept).behind(std::mem::take(&mut begun));
            store.index.publish(&files[write.file as usize].inner, written, sharing == Sharing::Own, stock);
        }
    }
    for (i, file) in files.iter().enumerate() {
        let inner = &*file.inner;
        if let Some(staged) = file.staged.as_ref().filter(|_| !PLAIN) {
            staged.publish(store, inner);
        }
        match sharing {
            _ if PLAIN => inner.publish_size(&store.index, |_| file.size),
            Sharing::Own => inner.publish_size(&store.index, |_| file.size),
            Sharing::Share => {
                let mine = writes.iter().filter(|write| write.file as usize == i);
                let end = mine.map(|write| write.offset + u64::from(write.length)).max().unwrap_or(0);
                inner.publish_size(&store.index, |size| size.max(end));
            }
        }
        // Only what replay sees of the file as well: the next group names it as what it builds on.
        match sharing {
            _ if PLAIN => inner.last_sequence.store(sequence, Ordering::Release),
            _ if !file.touched && !file.created => {}
            Sharing::Own => inner.last_sequence.store(sequence, Ordering::Release),
            Sharing::Share => {
                inner.last_sequence.fetch_max(sequence, Ordering::AcqRel);
            }
        }
        if let Some(ns) = file.mtime.committed(time) {
            inner.set_mtime(ns, sequence);
        }
        if let Mtime::Changed(ns) = file.mtime {
            inner.set_ctime(ns);
            if file.written == 0 && sharing == Sharing::Own && !PLAIN {
                // It was made as long as it was: nothing else makes a pass look at it.
                inner.bring_home(&store.index);
            }
        }
        if !PLAIN && (file.created || file.identified_for != 0) {
            inner.identified.fetch_max(sequence, Ordering::AcqRel);
        }
    }
    if let Some((names, claimer)) = names {
        for &id in &names.applied {
            // Before the group leaves those that are in flight: the pass that takes the tail past it must know.
            store.parked.has_applied(sequence, id);
        }
        if let Some((id, waits)) = names.provisional {
            store.parked.is_provisional(Provisional { id, sequence, applied: names.applied.clone(), waits });
        }
        store.names.publish(sequence, names, claimer, time);
    }
    store.index.settle(stock);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Store};
    use wholly_changes::ROOT;
    use wholly_sim::{SimConfig, World};

    /// However often the log asks for checkpoints while a group identifies what it speaks of, the group commits.
    #[test]
    fn checkpoints_do_not_keep_a_group_from_its_commit() {
        for config in [SimConfig::pmem(), SimConfig::disk()] {
            let world = World::new(config);
            world.add_file("a", b"");
            let options = Options { background: false, ..Options::default() };
            Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
            let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
            let _caller = store.inner.names.caller();
            let mut group = Running::new(store.inner.clone(), Sharing::Own);
            group.unlink(&b"a"[..]).unwrap();
            let mut asked = 0;
            let announce = |store: &StoreInner| {
                asked += 1;
                assert!(asked < 20, "it identifies its objects for ever");
                store.announce_if_nobody_does();
            };
            group.commit_identified(announce).unwrap();
            assert_eq!(asked, BESIDE_PASSES + 1);
            store.checkpoint().unwrap();
            drop(group);
            assert!(store.inner.names.with(|state| state.register(ROOT, b"a").is_none()), "it is home");
            assert!(store.open_file("a").is_err());
        }
    }
}
