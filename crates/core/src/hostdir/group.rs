//! Groups: what is written together survives together.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::file::File as Inner;
use super::handle::File;
use super::identity::Identity;
use super::published::{SPARE, Written};
use super::table::{host_error, store_path};
use super::{Store, StoreInner};
use crate::error::{Error, Result};
use crate::log::batch::{Gathered, Outcome, Request, record_bytes};
use crate::log::lane::{AppendError, Lane};
use crate::log::layout::EntryKind;
use crate::site;
use crate::sync::Ordering;

/// An explicit group: updates of any number of files that survive a crash wholly or not at all.
///
/// Nobody else sees them before [`commit`](Self::commit) returns; calls on the group itself do. The files that it changes are its own
/// until it ends. Dropping the group aborts it.
///
/// # Example
/// ```
/// # fn main() -> wholly::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("wholly-doc-group-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # wholly::Store::init(&dir, &wholly::Options::default())?;
/// let store = wholly::Store::open(&dir)?;
/// let mut group = store.begin();
/// let accounts = group.create("accounts", 0o644)?;
/// let journal = group.create("journal", 0o644)?;
/// group.write_at(&accounts, 0, b"alice 70, bob 30")?;
/// group.append(&journal, b"alice gave bob 30\n")?;
/// group.commit()?;
/// # store.close()?;
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Group {
    running: Running,
}

impl Group {
    pub(super) fn explicit(store: &Store) -> Self {
        Group { running: Running::new(store.inner.clone(), Sharing::Own) }
    }

    /// The group's id, which no other group of the store ever has.
    pub fn id(&self) -> u64 {
        self.running.id
    }

    /// Opens an existing regular file, as this group sees the directory.
    ///
    /// # Errors
    /// Those of [`Store::open_file`].
    pub fn open_file(&mut self, path: impl AsRef<Path>) -> Result<File> {
        let running = &self.running;
        running.store.check_usable()?;
        let path = store_path(path.as_ref())?;
        let created = running.files.iter().find(|file| file.created && file.inner.path == path);
        let inner = match created {
            Some(file) => file.inner.clone(),
            None => running.store.open_path(&path)?,
        };
        Ok(File::of(running.store.clone(), inner))
    }

    /// Creates a regular file with the permission bits `mode`, whatever the umask. It appears with the group, and vanishes with it.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Busy`] where another group has taken the name; [`Error::NotFound`] where its directory does not exist.
    pub fn create(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<File> {
        let path = store_path(path.as_ref())?;
        let inner = self.running.create(path, mode)?;
        Ok(File::of(self.running.store.clone(), inner))
    }

    /// Writes `data` at `offset`. The file grows where that lies beyond its end; a gap reads as zeros.
    ///
    /// # Errors
    /// [`Error::Busy`] where another group changes the file.
    pub fn write_at(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        self.running.write(file.inner(), offset, data)
    }

    /// Writes `data` at the end of the file, as the group sees it. Returns the offset at which it stands.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&mut self, file: &File, data: &[u8]) -> Result<u64> {
        let file_number = self.running.join(file.inner())?;
        let offset = self.running.files[file_number].size;
        self.running.write(file.inner(), offset, data)?;
        Ok(offset)
    }

    /// Makes the file `length` bytes long. What lay beyond is gone; new bytes are zero.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&mut self, file: &File, length: u64) -> Result<()> {
        self.running.set_len(file.inner(), length)
    }

    /// Reads up to `buf.len()` bytes at `offset`, as the group sees the file; fewer only at its end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes have rotted in the log; of the host file system.
    pub fn read_at(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.running.read(file.inner(), offset, buf)
    }

    /// The size of the file in bytes, as the group sees it.
    pub fn len(&self, file: &File) -> u64 {
        self.running.find(file.inner()).map_or_else(|| file.len(), |i| self.running.files[i].size)
    }

    /// Makes the group survive power loss: it does when this returns. From then on everybody sees it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where the medium failed: then nobody knows whether the group survives until the store is opened again.
    /// After any other error the group is aborted.
    pub fn commit(mut self) -> Result<()> {
        self.running.commit()
    }

    /// Makes the group atomic and ordered before later groups on the same files; a later [`commit`](Self::commit) or sync makes it durable.
    /// On every medium that Wholly has today this is `commit`.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_atomic(self) -> Result<()> {
        self.commit()
    }

    /// Undoes the group, in memory and on the medium.
    pub fn abort(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.abort();
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

/// Where a group's updates are before it commits.
enum Sink {
    /// In memory.
    Memory { gathered: Vec<Gathered>, bytes: u64 },
    /// In the log, where they stay.
    Lane(Box<Lane>),
}

/// A file that the group changes.
struct Joined {
    inner: Arc<Inner>,
    size: u64,
    /// Committed bytes from here on do not count for the group.
    limit: u64,
    writes: Vec<PrivateWrite>,
    created: bool,
    /// The announced tail for which the file was identified in this group's record; 0 if it was not.
    identified_for: u64,
}

struct PrivateWrite {
    offset: u64,
    length: u64,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    /// Number of the entry in memory, and the byte in its data.
    Gathered(usize, usize),
    /// Byte of the log.
    Log(u64),
}

/// A group that has not ended.
pub(super) struct Running {
    pub(super) store: Arc<StoreInner>,
    id: u64,
    sharing: Sharing,
    sink: Sink,
    files: Vec<Joined>,
    /// By file number, once there are many.
    by_number: HashMap<u32, usize>,
    ended: bool,
}

const MANY: usize = 8;

impl Running {
    pub(super) fn new(store: Arc<StoreInner>, sharing: Sharing) -> Self {
        let id = store.log.new_group();
        let lane = if store.log.is_pmem() { store.lanes.take() } else { None };
        let sink = match lane {
            Some(mut lane) => {
                lane.open(id);
                Sink::Lane(lane)
            }
            None => Sink::Memory { gathered: Vec::new(), bytes: 0 },
        };
        Running { store, id, sharing, sink, files: Vec::new(), by_number: HashMap::new(), ended: false }
    }

    #[inline]
    fn find(&self, inner: &Arc<Inner>) -> Option<usize> {
        if self.files.len() > MANY {
            return self.by_number.get(&inner.number).copied();
        }
        self.files.iter().position(|file| Arc::ptr_eq(&file.inner, inner))
    }

    /// The group's entry for a file, made at its first change.
    #[inline]
    fn join(&mut self, inner: &Arc<Inner>) -> Result<usize> {
        if let Some(i) = self.find(inner) {
            return Ok(i);
        }
        self.store.check_usable()?;
        match self.sharing {
            Sharing::Own => inner.own(self.id)?,
            Sharing::Share => inner.share()?,
        }
        let fresh = inner.identified.load(Ordering::Acquire) < self.store.log.announced_tail();
        if fresh && self.sharing == Sharing::Own && inner.is_clean() {
            // Bystanders may have changed the file while the log held nothing of it.
            if let Err(error) = inner.refresh() {
                self.leave(inner);
                return Err(error);
            }
        }
        self.add(inner.clone(), false);
        Ok(self.files.len() - 1)
    }

    fn add(&mut self, inner: Arc<Inner>, created: bool) {
        let size = inner.size.load(Ordering::Acquire);
        let number = inner.number;
        self.files.push(Joined { inner, size, limit: u64::MAX, writes: Vec::new(), created, identified_for: 0 });
        if self.files.len() == MANY + 1 {
            self.by_number = self.files.iter().enumerate().map(|(i, file)| (file.inner.number, i)).collect();
        } else if self.files.len() > MANY {
            self.by_number.insert(number, self.files.len() - 1);
        }
    }

    fn leave(&self, inner: &Inner) {
        match self.sharing {
            Sharing::Own => inner.disown(self.id),
            Sharing::Share => inner.unshare(),
        }
    }

    fn create(&mut self, path: Vec<u8>, mode: u32) -> Result<Arc<Inner>> {
        let store = self.store.clone();
        store.check_usable()?;
        if mode & !0o7777 != 0 {
            return Err(Error::invalid(format!("mode {mode:o}: it takes permission bits")));
        }
        store.checkpointer.claim_name(&path, self.id)?;
        let made = (|| {
            match store.host.stat(&path) {
                Ok(_) => return Err(Error::Exists(String::from_utf8_lossy(&path).into_owned())),
                Err(error) if error.errno == rustix::io::Errno::NOENT => {}
                Err(error) => return Err(host_error(error, &path)),
            }
            let parent = path.iter().rposition(|&byte| byte == b'/').map_or(&b""[..], |slash| &path[..slash]);
            let home = store.host.create_unnamed(site::CREATE_FILE, parent, mode).map_err(|e| host_error(e, &path))?;
            let inner = store.add_home(&path, home)?;
            inner.own(self.id)?;
            Ok(inner)
        })();
        let inner = made.inspect_err(|_| store.checkpointer.release_name(&path))?;
        self.add(inner.clone(), true);
        let identity = Identity { mode, ..inner.identity(true) };
        self.entry(EntryKind::Create, inner.id, 0, &identity.to_bytes())?;
        Ok(inner)
    }

    /// Tells the log which host file a created file is now that it was made again.
    pub(super) fn identify_again(&mut self, inner: &Arc<Inner>) -> Result<()> {
        let i = self.join(inner)?;
        self.entry(EntryKind::Identify, inner.id, 0, &inner.identity(true).to_bytes())?;
        self.files[i].identified_for = self.store.log.announced_tail();
        Ok(())
    }

    pub(super) fn write(&mut self, inner: &Arc<Inner>, offset: u64, data: &[u8]) -> Result<()> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Error::invalid("a write beyond the largest offset"));
        }
        if data.is_empty() {
            return Ok(());
        }
        let i = self.join(inner)?;
        let mut done = 0;
        while done < data.len() {
            let take = self.fit(data.len() - done)?;
            let at = offset + done as u64;
            let place = self.entry(EntryKind::Write, inner.id, at, &data[done..done + take])?;
            self.files[i].writes.push(PrivateWrite { offset: at, length: take as u64, place });
            done += take;
        }
        let file = &mut self.files[i];
        file.size = file.size.max(offset + data.len() as u64);
        Ok(())
    }

    pub(super) fn set_len(&mut self, inner: &Arc<Inner>, length: u64) -> Result<()> {
        if length > i64::MAX as u64 {
            return Err(Error::invalid("a length beyond the largest offset"));
        }
        let i = self.join(inner)?;
        self.entry(EntryKind::Truncate, inner.id, length, &[])?;
        let file = &mut self.files[i];
        if length < file.size {
            file.limit = file.limit.min(length);
            file.writes.retain(|write| write.offset < length);
            for write in &mut file.writes {
                write.length = write.length.min(length - write.offset);
            }
        }
        file.size = length;
        Ok(())
    }

    pub(super) fn read(&self, inner: &Arc<Inner>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.store.check_usable()?;
        let Some(i) = self.find(inner) else { return inner.read(&self.store, offset, buf) };
        let file = &self.files[i];
        let length = buf.len().min(file.size.saturating_sub(offset) as usize);
        let buf = &mut buf[..length];
        inner.read_within(&self.store, offset, buf, file.limit)?;
        for write in &file.writes {
            let from = write.offset.max(offset);
            let to = (write.offset + write.length).min(offset + length as u64);
            if from < to {
                let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
                self.read_private(write.place, from - write.offset, part)?;
            }
        }
        Ok(length)
    }

    fn read_private(&self, place: Place, skip: u64, buf: &mut [u8]) -> Result<()> {
        match (place, &self.sink) {
            (Place::Log(position), _) => self.store.log.read_payload(position + skip, buf),
            (Place::Gathered(entry, at), Sink::Memory { gathered, .. }) => {
                let at = at + skip as usize;
                buf.copy_from_slice(&gathered[entry].data[at..at + buf.len()]);
                Ok(())
            }
            (Place::Gathered(..), Sink::Lane(_)) => unreachable!("what was gathered has moved to the lane"),
        }
    }

    /// How many of `wanted` bytes the next entry can take; what was gathered moves to the log where it grows too large.
    #[inline]
    fn fit(&mut self, wanted: usize) -> Result<usize> {
        if let Sink::Memory { bytes, .. } = &self.sink {
            if bytes + wanted as u64 <= self.store.gather_limit() {
                return Ok(wanted);
            }
            self.spill()?;
        }
        let Sink::Lane(lane) = &mut self.sink else { unreachable!("it has spilled") };
        let (room, capacity) = (lane.room().unwrap_or(0), self.store.log.record_capacity());
        // Rather a piece here than a segment left half empty, but no crumbs.
        let take = if room >= wanted as u64 || room >= capacity / 32 { room } else { capacity };
        Ok(take.min(wanted as u64) as usize)
    }

    /// Appends one entry to wherever the group is.
    #[inline]
    fn entry(&mut self, kind: EntryKind, file: u64, offset: u64, data: &[u8]) -> Result<Place> {
        match &mut self.sink {
            Sink::Memory { gathered, bytes } => {
                *bytes += data.len() as u64 + 64;
                gathered.push(Gathered { kind, file, offset, data: Arc::from(data) });
                Ok(Place::Gathered(gathered.len() - 1, 0))
            }
            Sink::Lane(lane) => self.store.append(lane, kind, file, offset, data).map(Place::Log),
        }
    }

    /// Moves what was gathered to a lane.
    fn spill(&mut self) -> Result<()> {
        let mut lane =
            if self.store.log.is_pmem() { self.store.lanes.take_any() } else { self.store.lanes.spill_lane() };
        lane.open(self.id);
        let Sink::Memory { gathered, .. } = &self.sink else { unreachable!("only what was gathered spills") };
        let mut positions = Vec::with_capacity(gathered.len());
        for entry in gathered {
            match self.store.append(&mut lane, entry.kind, entry.file, entry.offset, &entry.data) {
                Ok(position) => positions.push(position),
                Err(error) => {
                    self.store.end_lane(lane)?;
                    return Err(error);
                }
            }
        }
        for write in self.files.iter_mut().flat_map(|file| &mut file.writes) {
            if let Place::Gathered(entry, at) = write.place {
                write.place = Place::Log(positions[entry] + at as u64);
            }
        }
        self.sink = Sink::Lane(lane);
        Ok(())
    }

    /// See [`Group::commit`].
    pub(super) fn commit(&mut self) -> Result<()> {
        self.store.check_usable()?;
        let empty = match &self.sink {
            Sink::Memory { gathered, .. } => gathered.is_empty(),
            Sink::Lane(lane) => lane.is_clean(),
        };
        if empty {
            self.abort();
            return Ok(());
        }
        loop {
            let announced = self.identify()?;
            if let Sink::Memory { gathered, .. } = &self.sink
                && (self.store.log.is_pmem()
                    || record_bytes(gathered, self.store.log.block()) > self.store.log.record_capacity())
            {
                self.spill()?;
            }
            let committed =
                if self.store.log.is_pmem() { self.commit_lane(announced) } else { self.commit_batch(announced) };
            match committed {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(self.store.poison(&error)),
            }
        }
    }

    /// Tells in the log which host files the group's numbers stand for, where no group above the announced tail does
    /// (invariant 4). Returns the tail that was announced.
    #[inline]
    fn identify(&mut self) -> Result<u64> {
        let announced = self.store.log.announced_tail();
        for i in 0..self.files.len() {
            let file = &self.files[i];
            let known = file.created
                || file.identified_for == announced
                || file.inner.identified.load(Ordering::Acquire) >= announced;
            if !known {
                let identity = file.inner.identity(self.store.checkpointer.is_running());
                let id = file.inner.id;
                self.entry(EntryKind::Identify, id, 0, &identity.to_bytes())?;
                self.files[i].identified_for = announced;
            }
        }
        Ok(announced)
    }

    /// `Ok(false)`: a checkpoint was announced meanwhile; identify again.
    fn commit_lane(&mut self, announced: u64) -> Result<bool> {
        let store = self.store.clone();
        let ticket = store.log.in_flight().enter(store.log.sequence_bound());
        if store.log.announced_tail() != announced {
            return Ok(false);
        }
        let sequence = store.log.take_sequence();
        let Sink::Lane(lane) = &mut self.sink else { unreachable!("groups on persistent memory commit from a lane") };
        lane.commit(&store.log, sequence)?;
        let mut spare = std::mem::take(&mut lane.spare_versions);
        self.publish(sequence, &[], &mut spare);
        let Sink::Lane(lane) = &mut self.sink else { unreachable!("the sink has not changed") };
        lane.spare_versions = spare;
        lane.finish(&store.log, sequence);
        drop(ticket);
        let sink = std::mem::replace(&mut self.sink, Sink::Memory { gathered: Vec::new(), bytes: 0 });
        if let Sink::Lane(lane) = sink {
            store.lanes.give_back(lane);
        }
        self.ended = true;
        Ok(true)
    }

    /// `Ok(false)`: a checkpoint was announced meanwhile; identify again.
    fn commit_batch(&mut self, announced: u64) -> Result<bool> {
        let store = self.store.clone();
        let (entries, parts) = match &mut self.sink {
            Sink::Memory { gathered, .. } => (std::mem::take(gathered), 0),
            Sink::Lane(lane) => {
                let parts = lane.close(&store.log)?;
                store.log.region().fence(site::SPILL_SYNC)?;
                store.log.count_barrier();
                (Vec::new(), parts)
            }
        };
        let kept: Vec<Arc<[u8]>> = entries.iter().map(|entry| entry.data.clone()).collect();
        let request = Request { group: self.id, entries, parts, announced };
        match store.batch.commit(&store.log, request, || store.make_room())? {
            Outcome::Announced(request) => {
                if let Sink::Memory { gathered, .. } = &mut self.sink {
                    *gathered = request.entries;
                }
                Ok(false)
            }
            Outcome::Committed(sequence, ticket) => {
                let positions: Vec<u64> = kept.into_iter().map(|data| store.memory.keep(sequence, data)).collect();
                self.publish(sequence, &positions, &mut Vec::new());
                if let Sink::Lane(lane) = &mut self.sink {
                    lane.retire(&store.log, sequence);
                }
                self.sink = Sink::Memory { gathered: Vec::new(), bytes: 0 };
                self.ended = true;
                drop(ticket);
                Ok(true)
            }
        }
    }

    /// Makes the committed group visible. `kept` are the places in memory of what was gathered.
    fn publish(&mut self, sequence: u64, kept: &[u64], spare: &mut Vec<u32>) {
        let store = &*self.store;
        let (mut freed, mut dirty) = (Vec::new(), Vec::new());
        for file in &self.files {
            let inner = &*file.inner;
            if file.limit != u64::MAX {
                inner.publish_truncate(&store.index, file.limit, &mut freed);
            }
            for write in &file.writes {
                let position = match write.place {
                    Place::Log(position) => position,
                    Place::Gathered(entry, at) => kept[entry] + at as u64,
                };
                let written = Written { offset: write.offset, length: write.length, position, stamp: sequence };
                store.index.publish(inner, written, spare, &mut freed, &mut dirty);
            }
            match self.sharing {
                Sharing::Own => inner.publish_size(&store.index, |_| file.size),
                Sharing::Share => {
                    let end = file.writes.iter().map(|write| write.offset + write.length).max().unwrap_or(0);
                    inner.publish_size(&store.index, |size| size.max(end));
                }
            }
            if file.created || file.identified_for != 0 {
                inner.identified.fetch_max(sequence, Ordering::AcqRel);
            }
            if file.created {
                store.checkpointer.add_created(&store.host, file.inner.clone(), sequence);
            }
        }
        store.index.dirty.append(&mut dirty);
        spare.append(&mut freed);
        if spare.len() > 4 * SPARE {
            let mut surplus = spare.split_off(SPARE);
            store.index.arena.give_back(&mut surplus);
        }
        for file in &self.files {
            self.leave(&file.inner);
        }
        self.files.clear();
    }

    fn abort(&mut self) {
        self.ended = true;
        for file in &self.files {
            if file.created {
                self.store.checkpointer.release_name(&file.inner.path);
            }
            self.leave(&file.inner);
        }
        self.files.clear();
        let sink = std::mem::replace(&mut self.sink, Sink::Memory { gathered: Vec::new(), bytes: 0 });
        if let Sink::Lane(lane) = sink
            && let Err(error) = self.store.end_lane(lane)
        {
            self.store.poison(&error);
        }
    }
}

impl StoreInner {
    /// Bytes that a group gathers before it spills: its record must fit into a segment.
    fn gather_limit(&self) -> u64 {
        self.options.gather_bytes.min(self.log.record_capacity() / 2)
    }

    /// Appends an entry to a lane; makes room where there is none.
    #[inline]
    pub(super) fn append(&self, lane: &mut Lane, kind: EntryKind, file: u64, offset: u64, data: &[u8]) -> Result<u64> {
        loop {
            match lane.reserve(&self.log, data.len() as u64) {
                Ok(()) => return lane.append(&self.log, kind, file, offset, data).map_err(|error| self.poison(&error)),
                Err(AppendError::NeedRoom) => self.make_room()?,
                Err(AppendError::Failed(error)) => return Err(self.poison(&error)),
            }
        }
    }

    /// Gives up a lane whose group is aborted.
    fn end_lane(&self, mut lane: Box<Lane>) -> Result<()> {
        lane.abort(&self.log)?;
        if self.log.is_pmem() {
            self.lanes.give_back(lane);
        } else {
            lane.leave(&self.log);
        }
        Ok(())
    }
}
