//! A group that has not ended: where its updates are, what it sees, and (`commit.rs`) how it ends. Explicit groups are
//! one of these, and so is every implicit one.

mod acls;
mod adopt;
mod apply;
mod apply_over;
mod attributes;
mod busy_wait;
mod claims;
mod commit;
mod glance;
mod identify;
mod left;
mod look;
mod names;
mod objects;
mod overtaken;
mod own;
mod park;
mod remove_tree;
mod replaced;
mod shadow;
mod space;
mod stage;
mod swapped;
mod taken_back;
mod times;
mod undo;
mod xattrs;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::StoreInner;
use super::clock::{GRAIN_NS, Mtime};
use super::file::{File as Inner, IMPLICIT};
use super::lanes::Seat;
use super::names::Private;
use super::overlay::{Place, PrivateWrite};
use super::room::Promise;
use super::undo_store::Keeping;
use super::writer::Recent;
use crate::error::{Error, Result};
use crate::log::lane::AppendError;
use crate::log::layout::EntryKind;
use crate::log::{Gathered, Lane};
use index::BLOCK;
use sync::{Backoff, Mutex, Ordering};
use wholly_vfs::rules::permit::Who;

use adopt::Brought;
use busy_wait::Patience;
use glance::Glance;
use shadow::{InARow, Shadows};

pub(super) use attributes::Wish;
pub(super) use names::At;
pub(super) use space::OwnWishes;
pub(super) use stage::Staged;
pub(crate) use xattrs::Spaces;

impl Drop for Running {
    fn drop(&mut self) {
        if self.store.forked.is_inherited() {
            // It is the parent's, and lives there.
            std::mem::forget((self.seat.take(), self.parked.take(), self.recent.take()));
            wholly_host::keep_for_ever(&self.store);
            return;
        }
        self.abort();
        if let Some(seat) = self.parked.take() {
            self.store.seats.give_back(seat, &self.store.index);
        }
    }
}

/// How a group uses files.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Alone: explicit groups, and calls that change a size.
    Own,
    /// Beside other calls.
    Share,
}

impl Sharing {
    /// Gives a file up that `owner` uses.
    #[inline]
    fn leave(self, inner: &Inner, owner: u64) {
        match self {
            Sharing::Own => inner.disown(owner),
            Sharing::Share => inner.unshare(),
        }
    }
}

/// A file that a group changes.
pub(crate) struct Joined {
    pub(super) inner: Arc<Inner>,
    /// Size in bytes, as the group sees it.
    pub(super) size: u64,
    /// Committed bytes from here on do not count for the group.
    limit: u64,
    /// What it wants of the file's blocks. Committed bytes of those that it zeroes do not count for it either.
    wishes: OwnWishes,
    /// Whether the group created it.
    pub(super) created: bool,
    /// Where its bytes are, if the log does not have them.
    pub(super) staged: Option<Box<Staged>>,
    /// The highest sequence of a group that had changed it when it was joined.
    last: u64,
    /// Whether an entry speaks of it.
    touched: bool,
    /// Bytes that the group wrote to it, those of a staged file excepted.
    written: u64,
    /// Whether the group has made it longer than what it wrote.
    has_holes: bool,
    /// Blocks that the host is to have for it.
    promised_blocks: u64,
    in_a_row: InARow,
    /// Whether some are in a shadow.
    is_shadowed: bool,
    /// When the group changed its content.
    pub(super) mtime: Mtime,
    /// The announced tail for which the file was identified in this group's record; 0 if it was not.
    identified_for: u64,
}

impl Joined {
    /// Whether the group has changed the content of the file, or has made it with some.
    fn has_content(&self) -> bool {
        let is_written = self.written > 0 || self.limit != u64::MAX || self.wishes.is_some() || self.staged.is_some();
        is_written
            || self.promised_blocks > 0
            || self.has_holes
            || self.is_shadowed
            || self.size != self.inner.size.load(Ordering::Acquire)
    }

    /// Whether committed bytes of it do not count for the group.
    fn is_cut(&self) -> bool {
        self.limit != u64::MAX || self.wishes.is_some()
    }

    /// Whether the group has not told any time of it.
    fn is_as_found(&self) -> bool {
        self.mtime == Mtime::Kept
    }
}

/// A group that has not ended.
pub(crate) struct Running {
    pub(super) store: Arc<StoreInner>,
    pub(super) id: u64,
    /// Its place in commit order, if it commits from a lane; see invariant 7 of the log.
    sequence: u64,
    sharing: Sharing,
    /// Whether updates go to the lane of the seat; otherwise they are gathered in memory.
    in_lane: bool,
    /// Whether it holds calls outside of explicit groups.
    implicit: bool,
    /// Whether it holds several of them, until a sync: then it writes over its own bytes.
    lasts: bool,
    /// Bytes of its lane when dead ones were last looked for.
    reclaimed: u64,
    /// Bytes that it has told the [swap](super::swap) to be in memory.
    in_memory: u64,
    /// Whether it is one such call on names: others of its kind wait for it.
    single: bool,
    /// How long its calls wait for other groups to end.
    pub(super) busy_timeout: Duration,
    /// Why the group can only be aborted: a call failed half-way.
    broken: Option<Box<Error>>,
    /// Gone when the group has ended.
    seat: Option<Box<Seat>>,
    /// What stays from group to group, where they are begun by a [`Writer`](super::Writer).
    recent: Option<Recent>,
    /// The seat between two groups of a writer, if it is one of the pool.
    parked: Option<Box<Seat>>,
    /// By file number, once there are many.
    by_number: Option<HashMap<u32, usize>>,
    /// Number of its files at which it looks for those that it need not keep.
    looks_at: usize,
    /// What it did to names and attributes, and which objects its records speak of, if any.
    names: Option<Box<Private>>,
    /// Where it wrote much, if it did.
    shadows: Option<Box<Shadows>>,
    /// What it has by somebody else, who made its changes in the layer, if it has.
    brought: Option<Box<Brought>>,
    /// How its undo is to be kept, if it is.
    keep: Option<Box<Keeping>>,
    /// How exact the times of its changes are, in ns.
    grain_ns: i64,
    /// What it has seen on the host, where it looks once only.
    glance: Mutex<Option<Arc<Glance>>>,
    /// What it will take of the host.
    promised: Promise,
    /// On whose behalf its calls on names are made.
    who: Who,
    /// The time of its changes, told to the log by it or by a group before it, and whether it was told by it.
    time: (i64, bool),
    /// Whether it has nothing but writes to a few files that it found, all in the open record of its lane. Then it
    /// [commits straight](Self::commit_straight), and `broken`, `by_number`, `names`, `shadows` and `brought` are none.
    plain: bool,
}

const MANY: usize = 8;

/// Parts of the log that a group on a disk keeps for its commit.
const PARTS_LEFT: u16 = 1 << 12;

/// The first value of [`Running::looks_at`]; it doubles with what is kept.
const FIRST_LOOK: usize = 32;

impl Running {
    /// A group that has begun.
    pub(super) fn new(store: Arc<StoreInner>, sharing: Sharing) -> Self {
        let mut running = Self::ended(store, sharing, None);
        running.begin();
        running
    }

    /// The groups of a writer, one after the other; none has begun.
    pub(super) fn of_writer(store: Arc<StoreInner>) -> Self {
        Self::ended(store, Sharing::Own, Some(Recent::new()))
    }

    fn ended(store: Arc<StoreInner>, sharing: Sharing, recent: Option<Recent>) -> Self {
        Running {
            store,
            id: 0,
            sequence: 0,
            sharing,
            in_lane: false,
            implicit: false,
            lasts: false,
            reclaimed: 0,
            in_memory: 0,
            single: false,
            busy_timeout: Duration::ZERO,
            broken: None,
            seat: None,
            recent,
            parked: None,
            by_number: None,
            looks_at: FIRST_LOOK,
            names: None,
            shadows: None,
            brought: None,
            keep: None,
            grain_ns: GRAIN_NS,
            glance: Mutex::default(),
            promised: Promise::default(),
            who: Who::Process,
            time: (0, false),
            plain: false,
        }
    }

    /// Begins a group where none is running.
    #[inline]
    pub(super) fn begin(&mut self) {
        debug_assert!(self.seat.is_none(), "groups do not nest");
        if let Some(recent) = &mut self.recent {
            recent.forget_closed(&self.store);
        }
        let (mut seat, pooled) = match self.parked.take() {
            Some(seat) => (seat, true),
            None => self.store.seats.take(&self.store.log),
        };
        // All locked instructions come before the first store into the log, which they would wait for.
        let id = self.store.log.take_sequence();
        self.in_lane = pooled && self.store.log.is_pmem();
        if self.in_lane {
            seat.lane.open(id);
        }
        (self.id, self.sequence, self.busy_timeout) = (id, id, Duration::ZERO);
        if !self.plain {
            (self.broken, self.by_number, self.names, self.shadows) = (None, None, None, None);
            self.looks_at = FIRST_LOOK;
        }
        self.plain = self.in_lane && self.sharing == Sharing::Own && self.store.options.straight;
        self.seat = Some(seat);
    }

    /// Makes it a group of calls outside of explicit groups.
    pub(super) fn into_implicit(mut self) -> Self {
        self.implicit = true;
        self
    }

    /// Makes it a group of one call on names.
    pub(super) fn into_single(mut self) -> Self {
        self.single = true;
        self
    }

    #[inline]
    pub(super) fn seat(&self) -> &Seat {
        self.seat.as_ref().expect("the group has not ended")
    }

    pub(super) fn has_ended(&self) -> bool {
        self.seat.is_none()
    }

    #[inline]
    fn seat_mut(&mut self) -> &mut Seat {
        self.seat.as_mut().expect("the group has not ended")
    }

    #[inline]
    pub(super) fn find(&self, inner: &Arc<Inner>) -> Option<usize> {
        match &self.by_number {
            Some(by_number) => by_number.get(&inner.number).copied(),
            None => self.seat.as_ref()?.files.iter().position(|file| Arc::ptr_eq(&file.inner, inner)),
        }
    }

    /// The group's number for a file, given at its first change.
    #[inline(always)]
    pub(super) fn join(&mut self, inner: &Arc<Inner>) -> Result<usize> {
        match self.find(inner) {
            Some(i) => Ok(i),
            None => self.join_first(inner),
        }
    }

    #[inline]
    fn join_first(&mut self, inner: &Arc<Inner>) -> Result<usize> {
        self.store.check_usable()?;
        if inner.is_read_only() {
            return Err(Error::Refused(inner.name(), Errno::ACCESS));
        }
        if !self.implicit {
            self.store.epochs.clean(&self.store, inner)?;
        }
        let mut fresh = inner.identified.load(Ordering::Acquire) < self.store.log.announced_tail();
        if fresh && self.sharing == Sharing::Share {
            inner.refresh_if_unused(&self.store, None)?;
        }
        match self.sharing {
            Sharing::Own => fresh &= self.own(inner)?,
            Sharing::Share => inner.share()?,
        }
        if fresh && self.sharing == Sharing::Own && inner.is_clean() {
            // Bystanders may have changed the file while the log held nothing of it.
            if let Err(error) = self.store.refresh_named(inner) {
                self.sharing.leave(inner, self.owner());
                return Err(error);
            }
        }
        let inner = self.recent.as_mut().map_or_else(|| inner.clone(), |recent| recent.take(inner));
        let born_ns = self.born_at(inner.id);
        Ok(self.add(inner, born_ns))
    }

    /// Only explicit groups are in the way, as long as the group does not wait for them: epochs are committed, and
    /// calls end by themselves. Whether it is new to the group, which may have owned it and not have kept it.
    #[inline(always)]
    fn own(&self, inner: &Arc<Inner>) -> Result<bool> {
        if inner.try_own_at_once(self.owner()) { Ok(true) } else { self.own_patiently(inner) }
    }

    #[cold]
    fn own_patiently(&self, inner: &Arc<Inner>) -> Result<bool> {
        let (mut backoff, mut patience) = (Backoff::new(), Patience::new(self.busy_timeout));
        while let Err(owner) = inner.try_own(self.owner()) {
            if Inner::is_owned_by(owner, self.owner()) {
                return Ok(false);
            }
            if self.implicit || !Inner::is_implicit(owner) {
                if patience.wait() {
                    continue;
                }
                return Err(inner.busy(owner));
            }
            self.store.epochs.clean(&self.store, inner)?;
            backoff.wait();
        }
        Ok(true)
    }

    /// As it owns files.
    fn owner(&self) -> u64 {
        if self.implicit { self.id | IMPLICIT } else { self.id }
    }

    /// The time of birth of a file that the group has made.
    #[inline]
    fn born_at(&self, id: u64) -> Option<i64> {
        let private = self.names.as_ref()?;
        if private.is_born(id) { self.store.names.with(|state| state.born_at(id)) } else { None }
    }

    /// `born_ns` is the time of birth of a file that the group has made.
    #[inline(always)]
    fn add(&mut self, inner: Arc<Inner>, born_ns: Option<i64>) -> usize {
        let size = inner.size.load(Ordering::Acquire);
        let last = inner.last_sequence.load(Ordering::Acquire);
        if last > self.sequence {
            self.sequence = self.store.log.take_sequence();
        }
        let number = inner.number;
        let files = &mut self.seat.as_mut().expect("the group has not ended").files;
        files.push(Joined {
            inner,
            size,
            limit: u64::MAX,
            wishes: None,
            created: born_ns.is_some(),
            staged: None,
            last,
            touched: false,
            written: 0,
            has_holes: false,
            promised_blocks: 0,
            in_a_row: InARow::default(),
            is_shadowed: false,
            mtime: born_ns.map_or(Mtime::Kept, Mtime::Told),
            identified_for: 0,
        });
        let i = files.len() - 1;
        if let Some(by_number) = &mut self.by_number {
            by_number.insert(number, i);
        } else if i == MANY {
            self.plain = false;
            self.by_number = Some(files.iter().enumerate().map(|(i, file)| (file.inner.number, i)).collect());
        }
        i
    }

    /// A group that names very many files keeps those only whose content it has changed, or which somebody has open. To
    /// be called where no numbers of files are in hand.
    #[inline]
    fn let_go_of_unused(&mut self) {
        if self.seat().files.len() >= self.looks_at {
            self.look_for_unused();
        }
    }

    #[cold]
    fn look_for_unused(&mut self) {
        debug_assert!(!self.plain, "it has many files");
        let store = self.store.clone();
        let is_plain = self.recent.is_none() && self.shadows.is_none() && !self.implicit && !self.single;
        let owner = self.owner();
        let Running { seat, names, .. } = self;
        let seat = seat.as_mut().expect("the group has not ended");
        if is_plain {
            let private = names.get_or_insert_default();
            let mut numbers = Vec::with_capacity(seat.files.len());
            let mut kept = 0;
            seat.files.retain(|file| {
                let goes = match (file.has_content(), file.created) {
                    (true, _) => false,
                    (false, true) => store.retire_born(&file.inner, file.mtime),
                    (false, false) => file.is_as_found() && store.retire_found(owner, &file.inner, &mut private.held),
                };
                if goes && !file.created && file.touched {
                    private.after = private.after.max(file.last);
                    private.speak_of(file.inner.id);
                }
                let stays = !goes;
                numbers.push(kept);
                kept += usize::from(stays);
                stays
            });
            seat.writes.renumber(|file| numbers[file as usize] as u32);
            seat.open_stages.iter_mut().for_each(|file| *file = numbers[*file]);
        }
        let by_number = seat.files.iter().enumerate().map(|(i, file)| (file.inner.number, i));
        let (by_number, kept) = (by_number.collect(), seat.files.len());
        (self.by_number, self.looks_at) = (Some(by_number), (2 * kept).max(FIRST_LOOK));
    }

    #[inline(always)]
    pub(super) fn write(&mut self, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<()> {
        if self.lasts && self.write_own(inner, offset, data)? {
            return Ok(());
        }
        if self.plain && self.write_straight(inner, offset, data)? {
            return Ok(());
        }
        let written = self.write_any(inner, offset, data);
        self.keep_to_memory();
        written
    }

    /// What a write does in a plain group that has the file, where it stays within the file and the segment, is too
    /// short for a shadow, and takes no space of the host. Returns whether it was done; else nothing was.
    #[inline(always)]
    fn write_straight(&mut self, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<bool> {
        let Some(seat) = &mut self.seat else { return Ok(false) };
        let Some(i) = seat.files.iter().position(|file| Arc::ptr_eq(&file.inner, inner)) else { return Ok(false) };
        let (file, length) = (&mut seat.files[i], data.len() as u64);
        let takes_space = offset.saturating_add(length) > file.size || file.has_holes || file.inner.is_sparse();
        if takes_space || data.is_empty() || file.inner.may_have_privileges() {
            return Ok(false);
        }
        let has_room = seat.lane.room().is_some_and(|room| room >= length);
        if !has_room || !file.in_a_row.write_below(self.store.options.stage_bytes, offset, length) {
            return Ok(false);
        }
        let position = match seat.lane.append(&self.store.log, EntryKind::Write, file.inner.id, offset, data) {
            Ok(position) => position,
            Err(error) => return Err(self.fail(error)),
        };
        let place = Place::Log(position, seat.lane.last_entry());
        seat.writes.push(PrivateWrite { file: i as u32, length: data.len() as u32, offset, place });
        file.touched = true;
        file.written += length;
        file.mtime = Mtime::Changed(self.store.host.now_ns());
        Ok(true)
    }

    #[inline(never)]
    fn write_any(&mut self, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<()> {
        if i64::try_from(offset).is_err() {
            return Err(Error::invalid("a write beyond 2^63 bytes"));
        }
        self.store.check_length(inner, offset.saturating_add(data.len() as u64))?;
        if data.is_empty() {
            return Ok(());
        }
        self.check_whole()?;
        let i = self.join(inner)?;
        if inner.may_have_privileges() {
            self.content_changes(inner)?;
        }
        if self.seat().files[i].is_to_be_staged(&self.store, data.len()) {
            return self.write_staged(i, offset, data);
        }
        let is_shadowed = self.is_to_be_shadowed(i, offset, data.len()) && self.write_shadow(i, offset, data)?;
        if !is_shadowed {
            self.promise_blocks(i, offset, data.len() as u64)?;
            self.write_to_log(i, inner, offset, data)?;
        }
        let now = self.store.host.now_ns();
        let file = &mut self.seat_mut().files[i];
        file.touched = true;
        file.written += data.len() as u64;
        file.mtime = Mtime::Changed(now);
        file.size = file.size.max(offset + data.len() as u64);
        Ok(())
    }

    /// Blocks that the host is to have for a write to one of the group's files, as far as it has them not.
    #[inline]
    fn promise_blocks(&mut self, i: usize, offset: u64, length: u64) -> Result<()> {
        let file = &mut self.seat_mut().files[i];
        let (end, size) = (offset + length, file.size);
        file.has_holes |= offset > size;
        let has_holes = file.has_holes || file.inner.is_sparse();
        if end <= size && !has_holes {
            return Ok(());
        }
        let first = if has_holes { offset / BLOCK } else { size.div_ceil(BLOCK) };
        // What is written again and again takes its blocks once.
        let most = size.max(end).div_ceil(BLOCK).saturating_sub(file.promised_blocks);
        let blocks = end.div_ceil(BLOCK).saturating_sub(first).min(most);
        if blocks == 0 {
            return Ok(());
        }
        let inner = file.inner.clone();
        self.promise(Promise::bytes(blocks * BLOCK), &inner.path)?;
        self.seat_mut().files[i].promised_blocks += blocks;
        Ok(())
    }

    /// The group is about to take so much of the host; `what` it is for.
    fn promise(&mut self, promise: Promise, what: &[u8]) -> Result<()> {
        // What a group that takes another back needs for names is in the reserve.
        if promise.is_none() || (promise.bytes <= BLOCK && self.takes_back()) {
            return Ok(());
        }
        self.store.promise(promise, what)?;
        self.promised = self.promised.plus(promise);
        Ok(())
    }

    /// The same of a new name.
    fn promise_name(&mut self, name: &[u8]) -> Result<()> {
        self.promise(Promise::name(name), name)
    }

    #[inline(always)]
    fn write_to_log(&mut self, i: usize, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<()> {
        self.end_run()?;
        let seat = self.seat.as_mut().expect("the group has not ended");
        if self.in_lane && seat.lane.room().is_some_and(|room| room >= data.len() as u64) {
            let position = seat.lane.append(&self.store.log, EntryKind::Write, inner.id, offset, data);
            let place = match position {
                Ok(position) => Place::Log(position, seat.lane.last_entry()),
                Err(error) => return Err(self.fail(error)),
            };
            seat.writes.push(PrivateWrite { file: i as u32, length: data.len() as u32, offset, place });
            return Ok(());
        }
        self.write_in_pieces(i, inner, offset, data)
    }

    /// The medium failed in the middle of a call.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        let error = self.store.poison(&error);
        self.break_off(error)
    }

    /// A write that goes to memory, or for which the lane has to go on in another segment.
    fn write_in_pieces(&mut self, i: usize, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<()> {
        self.make_room_for(data.len())?;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let taken = self.fit(at, data.len() - done).and_then(|take| {
                let place = self.entry(EntryKind::Write, inner.id, at, &data[done..done + take])?;
                Ok((take, place))
            });
            // Where the first piece finds no room, nothing of the call is in the group.
            let (take, place) = taken.map_err(|error| if done > 0 { self.break_off(error) } else { error })?;
            self.seat_mut().writes.push(PrivateWrite { file: i as u32, length: take as u32, offset: at, place });
            done += take;
        }
        Ok(())
    }

    pub(super) fn set_len(&mut self, inner: &Arc<Inner>, length: u64) -> Result<()> {
        if i64::try_from(length).is_err() {
            return Err(Error::invalid("a length beyond 2^63 bytes"));
        }
        self.store.check_length(inner, length)?;
        self.check_whole()?;
        let i = self.join(inner)?;
        if inner.may_have_privileges() {
            self.content_changes(inner)?;
        }
        if self.seat().files[i].staged.is_some() {
            return self.cut_staged(i, length);
        }
        self.entry(EntryKind::Truncate, inner.id, length, &[])?;
        let now = self.store.host.now_ns();
        let seat = self.seat_mut();
        let file = &mut seat.files[i];
        file.touched = true;
        file.mtime = Mtime::Changed(now);
        file.has_holes |= length > file.size;
        if length < file.size {
            file.limit = file.limit.min(length);
            seat.writes.cut(i as u32, length);
            if let Some(wishes) = &mut file.wishes {
                wishes.cut(length.div_ceil(BLOCK));
            }
        }
        file.size = length;
        Ok(())
    }

    pub(super) fn read(&self, inner: &Arc<Inner>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.store.check_usable()?;
        let Some(i) = self.find(inner) else {
            return if self.implicit {
                inner.read(&self.store, offset, buf)
            } else {
                self.store.read_visible(inner, offset, buf)
            };
        };
        let file = &self.seat().files[i];
        let length = buf.len().min(file.size.saturating_sub(offset) as usize);
        let buf = &mut buf[..length];
        if file.staged.is_some() {
            return self.read_staged(i, offset, buf).map(|()| length);
        }
        inner.read_within(&self.store, offset, buf, file.limit)?;
        if let Some(wishes) = &file.wishes {
            wishes.zero_bytes(offset, buf);
        }
        self.read_written(i, offset, buf)?;
        Ok(length)
    }

    /// Reads bytes that the group wrote, all of them, wherever they are.
    fn read_own(&self, inner: &Arc<Inner>, offset: u64, buf: &mut [u8]) -> Result<()> {
        let i = self.find(inner).expect("it wrote to the file");
        match self.seat().files[i].staged {
            Some(_) => self.read_staged(i, offset, buf),
            None => self.read_written(i, offset, buf),
        }
    }

    /// Lays what the group wrote to a file over what everybody has there.
    fn read_written(&self, i: usize, offset: u64, buf: &mut [u8]) -> Result<()> {
        for write in self.seat().writes.in_range(i as u32, offset, offset + buf.len() as u64) {
            let part = &mut buf[(write.offset - offset) as usize..][..write.length as usize];
            match write.place {
                Place::Log(position, _) => self.seat().lane.read(&self.store.log, position, part)?,
                Place::Gathered(entry, at) => match self.seat().swapped.get(&entry) {
                    Some(swapped) => self.store.swap.read(&*self.store.host, *swapped, at, part)?,
                    None => part.copy_from_slice(&self.seat().gathered[entry].data[at as usize..][..part.len()]),
                },
                Place::Shadow(position) => self.store.read_position(position, part)?,
                Place::Zeros => part.fill(0),
            }
        }
        Ok(())
    }

    /// Makes room for a write before its first piece, so that it does not fail half-way for want of space.
    #[inline]
    fn make_room_for(&mut self, bytes: usize) -> Result<()> {
        let lane = &self.seat().lane;
        let gathered = !self.in_lane && self.seat().gathered_bytes + bytes as u64 <= self.store.gather_limit();
        if gathered || (self.in_lane && lane.room().is_some_and(|room| room >= bytes as u64)) {
            return Ok(());
        }
        let gathered = self.seat().gathered_bytes;
        let lane = &self.seat().lane;
        if self.lasts && !self.store.log.is_pmem() && lane.numbers_left() < PARTS_LEFT {
            return Err(Error::NoSpace("a group of so many pieces in the log: a sync commits it".into()));
        }
        let capacity = self.store.log.record_capacity() - lane.kept_free();
        // Pieces end with blocks, where that is possible: what is left of a segment then may stay empty.
        let filled = capacity - BLOCK.min(capacity / 2);
        self.store.make_room_for((gathered + bytes as u64) / filled + 1)
    }

    #[inline]
    fn check_whole(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(error) => Err(Error::clone(error)),
        }
    }

    /// How many of `wanted` bytes at `offset` of a file the next entry can take; what was gathered moves to the log
    /// where it grows too large. What a write does to a block is one entry, so that readers see it at once, unless
    /// segments are smaller than blocks.
    #[inline]
    fn fit(&mut self, offset: u64, wanted: usize) -> Result<usize> {
        if !self.in_lane {
            if self.seat().gathered_bytes + wanted as u64 <= self.store.gather_limit() {
                return Ok(wanted);
            }
            let is_compact = self.compact_gathered()?;
            if is_compact && self.seat().gathered_bytes + wanted as u64 <= self.store.gather_limit() {
                return Ok(wanted);
            }
            self.spill()?;
        }
        let capacity = self.store.log.record_capacity() - self.seat().lane.kept_free();
        let room = self.seat().lane.room().unwrap_or(0).min(capacity);
        let wanted = wanted as u64;
        if room >= wanted {
            return Ok(wanted as usize);
        }
        let whole_blocks =
            |bytes: u64| ((offset + bytes) / BLOCK * BLOCK).checked_sub(offset).filter(|&bytes| bytes > 0);
        // Rather a piece here than a segment left half empty, but no crumbs.
        let here = if room >= capacity / 32 { whole_blocks(room) } else { None };
        let take = match here {
            Some(here) => here,
            None if wanted <= capacity => wanted,
            None => whole_blocks(capacity).unwrap_or(capacity),
        };
        Ok(take as usize)
    }

    /// Appends one entry to wherever the group is.
    #[inline]
    fn entry(&mut self, kind: EntryKind, file: u64, offset: u64, data: &[u8]) -> Result<Place> {
        self.end_run()?;
        self.append_entry(kind, file, offset, data)
    }

    #[inline]
    fn append_entry(&mut self, kind: EntryKind, file: u64, offset: u64, data: &[u8]) -> Result<Place> {
        self.plain = false;
        let seat = self.seat.as_mut().expect("the group has not ended");
        if self.in_lane {
            let position = self.store.append(&mut seat.lane, kind, file, offset, data)?;
            return Ok(Place::Log(position, seat.lane.last_entry()));
        }
        seat.gathered_bytes += data.len() as u64 + 64;
        seat.gathered.push(Gathered { kind, file, offset, data: Arc::from(data) });
        Ok(Place::Gathered(seat.gathered.len() - 1, 0))
    }

    /// Moves what was gathered to the lane.
    #[cold]
    fn spill(&mut self) -> Result<()> {
        self.swap_in()?;
        let store = self.store.clone();
        let lasts = self.lasts;
        // Parts of an attempt that failed are of another group.
        let group = store.log.take_sequence();
        let seat = self.seat_mut();
        if seat.place.is_none() && !seat.lane_is_borrowed {
            seat.lane = store.seats.borrow_lane(&store.log);
            seat.lane_is_borrowed = true;
        }
        // A lane's records are in the order of their sequences.
        let sequence = store.log.take_sequence();
        seat.lane.open(group);
        if lasts {
            seat.lane.open_to_overwrite();
            self.keep_room_for_commit();
        }
        let seat = self.seat_mut();
        let mut positions = Vec::with_capacity(seat.gathered.len());
        for entry in &seat.gathered {
            match store.append(&mut seat.lane, entry.kind, entry.file, entry.offset, &entry.data) {
                Ok(position) => positions.push(position),
                Err(error) => {
                    seat.lane.abort(&store.log)?;
                    return Err(error);
                }
            }
        }
        seat.writes.moved_to_log(&positions);
        seat.gathered.clear();
        seat.gathered_bytes = 0;
        self.count_memory();
        self.in_lane = true;
        self.sequence = sequence;
        Ok(())
    }

    /// Whether half of a call is in the group: it must not commit.
    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Half of a call is in the group: it must not commit.
    #[cold]
    fn break_off(&mut self, error: Error) -> Error {
        self.plain = false;
        self.broken.get_or_insert_with(|| Box::new(error.clone()));
        error
    }
}

impl StoreInner {
    /// Bytes that a group gathers before it spills: its record must fit into a segment.
    fn gather_limit(&self) -> u64 {
        self.options.gather_bytes.min(self.log.record_capacity() / 2)
    }

    /// Appends an entry to a lane; makes room where there is none.
    #[inline]
    fn append(&self, lane: &mut Lane, kind: EntryKind, file: u64, offset: u64, data: &[u8]) -> Result<u64> {
        if data.len() as u64 > self.log.record_capacity() {
            return Err(Error::invalid(format!(
                "a path or a value longer than a segment of the log ({} bytes)",
                self.log.segment_bytes()
            )));
        }
        loop {
            match lane.reserve(&self.log, data.len() as u64) {
                Ok(()) => return lane.append(&self.log, kind, file, offset, data).map_err(|error| self.poison(&error)),
                Err(AppendError::NeedRoom) => self.make_room()?,
                Err(AppendError::TooManyParts) => {
                    return Err(Error::invalid("a group of more than 65,535 segments: make segments larger"));
                }
                Err(AppendError::Failed(error)) => return Err(self.poison(&error)),
            }
        }
    }
}
