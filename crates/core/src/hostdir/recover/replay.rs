//! The log's committed groups, in commit order, become index and names; then home is looked at. Nothing is written.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_changes::records::{Attributes, Baseline, Birth, Identity, LARGEST_FILE, Shadow, Space, Value, Xattr};
use wholly_changes::{Kind, Set};
use wholly_host::host_error;
use wholly_media::Region;

use crate::error::{Error, Result};
use crate::hostdir::dirty::DirtyBlock;
use crate::hostdir::file::{File, hole};
use crate::hostdir::homes::Homes;
use crate::hostdir::memory::ZEROS;
use crate::hostdir::names::{FoundObject, NameReplay, Strange};
use crate::hostdir::published::{Numbers, Published, Written};
use crate::hostdir::room::{Promise, promised_by_files, promised_by_names};
use crate::hostdir::shadow::{Shadows, fault_of};
use crate::hostdir::space::Shape;
use crate::hostdir::table::FileTable;
use crate::log::checksum::payload_checksum;
use crate::log::layout::{Entry, EntryKind, LINE, Superblock};
use crate::log::scan::{self, CommittedGroup, Record, RecordView};
use index::BLOCK;
use sync::Ordering;

/// A regular file that the log talks about.
pub(super) struct Found {
    pub(super) file: Arc<File>,
    /// Whether some group cut it, so that its size does not depend on home's.
    cut: bool,
    /// A committed group created it: a crash may take times back that the checkpoint gave it.
    created: bool,
    /// The host has bytes of it that nobody else has, although a group created it.
    staged: bool,
    /// How the last identification that tells says that it must lie at home.
    last: Option<Baseline>,
}

/// Rebuilds index and names from the groups in the log.
pub(in crate::hostdir) struct Replay<'a> {
    region: Arc<dyn Region>,
    homes: &'a dyn Homes,
    /// Groups from here on were identified while no checkpoint was at work.
    checkpointing: u64,
    /// Groups below are home: what they build on is not missed.
    tail: u64,
    /// Groups below are home, and are given all the same.
    home_below: u64,
    pub(super) files: FileTable,
    index: &'a Published,
    shadows: &'a Shadows,
    /// What the log speaks of: file, shadow, and how long that has to be.
    shadowed: Vec<(u64, u64, u64)>,
    /// Bytes in all of them.
    pub(super) shadow_bytes: u64,
    pub(super) names: NameReplay,
    pub(super) found: KnownFiles,
    /// By object.
    conflicts: HashMap<u64, (PathBuf, String)>,
    pub(super) numbers: Numbers,
    pub(super) dirty: Vec<DirtyBlock>,
    /// Parked groups that were applied: sequence and id.
    pub(super) applied: Vec<(u64, u64)>,
    /// Groups that are undone unless they are written back, by sequence and id.
    pub(super) provisional: Vec<(u64, u64)>,
    /// The last time that a group told, and its sequence.
    pub(super) clock: Option<(i64, u64)>,
    /// Home files that are kept open.
    open: usize,
    /// Whether a copy of the store is to be served.
    may_adopt: bool,
}

/// Home files that recovery keeps open.
const MOST_OPEN: usize = 256;

/// The files that the log talks about, by the number that it gives them.
#[derive(Default)]
pub(super) struct KnownFiles {
    pub(super) files: Vec<Found>,
    places: HashMap<u64, usize>,
    /// The number and place that were looked up last: mostly the next one's too.
    last: Cell<Option<(u64, usize)>>,
}

impl KnownFiles {
    #[inline]
    fn place(&self, id: u64) -> Option<usize> {
        match self.last.get() {
            Some((last, place)) if last == id => Some(place),
            _ => {
                let place = *self.places.get(&id)?;
                self.last.set(Some((id, place)));
                Some(place)
            }
        }
    }

    #[inline]
    fn get(&self, id: u64) -> Option<&Found> {
        self.place(id).map(|place| &self.files[place])
    }

    fn get_mut(&mut self, id: u64) -> Option<&mut Found> {
        self.place(id).map(|place| &mut self.files[place])
    }

    fn insert(&mut self, id: u64, found: Found) {
        self.places.insert(id, self.files.len());
        self.files.push(found);
    }
}

impl scan::Replay for Replay<'_> {
    type Kind = EntryKind;

    #[inline]
    fn group(&mut self, group: &CommittedGroup<'_>) -> Result<()> {
        if group.sequence < self.home_below {
            self.is_home(group);
            return Ok(());
        }
        if group.parts.is_empty() {
            // Most groups are one write to a file that is known.
            if let [entry] = group.commit.entries
                && entry.kind == EntryKind::Write
                && let Some(found) = self.found.get(entry.file)
                && !self.is_missing(group.commit.head.after, found.file.last_sequence.load(Ordering::Relaxed))
            {
                let file = &*found.file;
                file.last_sequence.store(group.sequence, Ordering::Relaxed);
                let written = written(&group.commit, entry, group.sequence);
                self.index.publish_recovered(file, written, &mut self.numbers, &mut self.dirty);
                file.publish_size(self.index, |size| size.max(entry.offset + u64::from(entry.length)));
                self.changed(file);
                return Ok(());
            }
            return self.records(group.sequence, std::slice::from_ref(&group.commit));
        }
        let records: Vec<_> = group.parts.iter().map(Record::view).chain([group.commit]).collect();
        self.records(group.sequence, &records)
    }

    fn refuse(&mut self, error: Error) -> Result<()> {
        if !self.may_adopt || !matches!(error, Error::Copied(_)) {
            return Err(error);
        }
        self.adopt();
        Ok(())
    }

    #[inline(always)]
    fn soon(&mut self, entries: &[Entry], very: bool) {
        // Of versions that are no whole blocks nobody looks at the older ones.
        if let Some(entry) = entries.first()
            && entry.kind == EntryKind::Write
            && u64::from(entry.length) >= if very { BLOCK } else { 1 }
        {
            self.prefetch(entry, very);
        }
    }
}

/// What the entry of a record wrote.
#[inline]
fn written(record: &RecordView<'_>, entry: &Entry, sequence: u64) -> Written {
    Written {
        offset: entry.offset,
        length: u64::from(entry.length),
        position: record.position + u64::from(entry.line) * LINE,
        stamp: sequence,
    }
}

impl<'a> Replay<'a> {
    pub fn new(
        region: Arc<dyn Region>,
        homes: &'a dyn Homes,
        (index, shadows): (&'a Published, &'a Shadows),
        superblock: &Superblock,
    ) -> Self {
        Replay {
            region,
            homes,
            checkpointing: superblock.checkpointing,
            tail: superblock.tail,
            home_below: 0,
            files: FileTable::default(),
            index,
            shadows,
            shadowed: Vec::new(),
            shadow_bytes: 0,
            found: KnownFiles::default(),
            names: NameReplay::new(),
            conflicts: HashMap::new(),
            numbers: Numbers::default(),
            dirty: Vec::new(),
            applied: Vec::new(),
            provisional: Vec::new(),
            clock: None,
            open: 0,
            may_adopt: false,
        }
    }

    /// Groups below `sequence` are in the directory, although the log tells of them still.
    pub fn with_home_below(mut self, sequence: u64) -> Self {
        self.home_below = sequence;
        self.tail = self.tail.max(sequence);
        self
    }

    /// Of a group that is in the directory only what it says of other groups counts.
    #[cold]
    fn is_home(&mut self, group: &CommittedGroup<'_>) {
        for record in group.parts.iter().map(Record::view).chain([group.commit]) {
            for entry in record.entries {
                match entry.kind {
                    EntryKind::Applied => self.applied.push((group.sequence, entry.offset)),
                    EntryKind::Provisional => self.provisional.push((group.sequence, entry.offset)),
                    _ => {}
                }
            }
        }
    }

    /// Prepared for a copy.
    pub fn may_adopt(mut self) -> Self {
        self.may_adopt = true;
        self.names.may_adopt();
        self
    }

    /// See [`NameReplay::adopt`].
    pub fn adopt(&mut self) {
        self.names.adopt();
    }

    /// Looks for everything that the log speaks of at home, once all groups were given.
    pub fn settle(&mut self) -> Result<()> {
        self.names.search(self.homes.host())?;
        for i in 0..self.found.files.len() {
            self.settle_file(i)?;
        }
        self.settle_shadows()?;
        for (id, path, change) in self.names.conflicts() {
            self.conflicts.entry(id).or_insert((OsString::from_vec(path).into(), change));
        }
        Ok(())
    }

    /// Which files bystanders have changed, and how, once all is settled.
    pub fn conflicts(&self) -> impl Iterator<Item = &(PathBuf, String)> {
        self.conflicts.values()
    }

    /// What lies in the store's own folders and is not its own, by path.
    pub fn strange(&self) -> Vec<OsString> {
        let state = &self.names.state;
        let path = |one: &Strange| state.host_path_of(one.place.0, &one.place.1).unwrap_or_default();
        state.strange.iter().map(|one| OsString::from_vec(path(one))).collect()
    }

    /// What it takes of the host to write back what was replayed.
    pub fn promised(&self) -> Promise {
        promised_by_files(&self.files).plus(promised_by_names(&self.names.state))
    }

    /// The same, by object.
    pub fn conflicting(&self) -> impl Iterator<Item = (u64, &(PathBuf, String))> {
        self.conflicts.iter().map(|(id, conflict)| (*id, conflict))
    }

    /// Opens the home of a file that has something to be taken there.
    fn settle_file(&mut self, i: usize) -> Result<()> {
        let Found { file, cut, created, staged, last } = &self.found.files[i];
        let (file, cut, created, staged, last) = (file.clone(), *cut, *created, *staged, *last);
        let path = match self.names.found(file.id) {
            FoundObject::At(path) => path,
            FoundObject::Nowhere if staged && self.names.has_place(file.id) => {
                return self.conflict(file.id, "what a group has written of it is gone".into());
            }
            FoundObject::Nowhere => {
                file.home_limit.store(0, Ordering::Release);
                return Ok(());
            }
            FoundObject::Lost(change) => return self.conflict(file.id, change),
        };
        if file.is_clean() {
            // Only its names are of interest.
            match self.homes.host().stat(&path) {
                Ok(stat) => file.recovered_as(&stat, cut),
                Err(error) if is_gone(error.errno) => return self.conflict(file.id, "it is gone".into()),
                Err(error) => return Err(host_error(error, &path)),
            }
            return Ok(());
        }
        let (home, forced) = match self.homes.open(&path) {
            Ok(opened) => opened,
            Err(error) if is_gone(error.errno) => return self.conflict(file.id, "it is gone".into()),
            Err(error) if is_in_the_way(error.errno) => {
                return self.conflict(
                    file.id,
                    format!("it cannot be opened for writing: {}", wholly_media::in_words(error.errno)),
                );
            }
            Err(error) => return Err(host_error(error, &path)),
        };
        let stat = home.stat()?;
        // Since it was found somebody may have exchanged it.
        if self.names.state.inode_of(file.id).is_some_and(|inode| inode != stat.inode()) {
            return self.conflict(file.id, "another file has taken its name".into());
        }
        let mut now = Baseline::of(&stat);
        if let Some(last) = last.filter(|_| forced || self.names.is_adopted()) {
            // It has changed by being opened, or by being made.
            now.ctime_ns = last.ctime_ns;
            // A copy has the times of what was copied, or its own.
            now.mtime_ns = if self.names.is_adopted() { last.mtime_ns } else { now.mtime_ns };
        }
        // What a group created is durable at home only once that group is: until then a crash may take its times back.
        if let Some(change) = last.filter(|_| !created).and_then(|last| last.difference(&now)) {
            return self.conflict(file.id, change);
        }
        file.recovered_as(&stat, cut);
        // A process may have only so many descriptors: the rest is opened when it is wanted.
        if self.open < MOST_OPEN {
            self.open += 1;
            file.attach(home, true, forced);
        }
        // Even where home looks as it should: a process that died in a checkpoint may have made it so and not have
        // synced it.
        file.bring_home(self.index);
        Ok(())
    }

    /// Looks whether what lies in shadows is there, where somebody may need it.
    fn settle_shadows(&mut self) -> Result<()> {
        let mut shadowed = std::mem::take(&mut self.shadowed);
        let mut lengths = HashMap::new();
        for (_, number, end) in &shadowed {
            let length = lengths.entry(*number).or_insert(0);
            *length = (*end).max(*length);
        }
        self.shadow_bytes = lengths.values().sum();
        // Of each file and shadow the end that is farthest.
        shadowed.sort_unstable_by(|a, b| b.cmp(a));
        shadowed.dedup_by_key(|(file, number, _)| (*file, *number));
        for (file, number, end) in shadowed {
            let is_wanted = self.found.get(file).is_some_and(|found| !found.file.is_clean());
            if is_wanted && let Some(fault) = fault_of(self.homes.host(), number, end)? {
                self.conflict(file, fault.into())?;
            }
        }
        Ok(())
    }

    /// A group changed the content of a file.
    #[inline(always)]
    fn changed(&self, file: &File) {
        if let Some((time, _)) = self.clock {
            file.set_mtime(time, RECOVERED);
        }
    }

    /// The path of the file that has this number in the log, if some group has told.
    pub fn path(&self, id: u64) -> Option<String> {
        self.names.knows(id).then(|| self.names.state.path(id))
    }

    /// Asks the processor for the slot of the first block of a write, or for its newest version. Where there are more
    /// blocks, the others are a small part of what the write took.
    #[inline(always)]
    fn prefetch(&self, entry: &Entry, version: bool) {
        if let Some(found) = self.found.get(entry.file)
            && let Some(slot) = found.file.index.get(entry.offset / BLOCK)
        {
            match version {
                false => slot.prefetch(),
                true => slot.prefetch_newest(&self.index.arena),
            }
        }
    }

    /// The records of one group, the commit record last.
    fn records(&mut self, sequence: u64, records: &[RecordView<'_>]) -> Result<()> {
        let names = records.iter().any(|record| record.entries.iter().any(|entry| is_of_names(entry.kind)));
        let changes = if names { self.identify_all(sequence, records)? } else { Vec::new() };
        self.check_nothing_missing(sequence, records, &changes)?;
        let mut told = changes.iter().filter_map(|change| match change {
            Change::Attributes(_, attributes) => Some(attributes.mtime_ns),
            _ => None,
        });
        for record in records {
            for entry in record.entries {
                if entry.kind == EntryKind::Attributes
                    && let Some(Some(ns)) = told.next()
                    && let Some(found) = self.found.get(entry.file)
                {
                    found.file.set_mtime(ns, RECOVERED);
                }
                use EntryKind::{Shadow, Space, Staged, Truncate, Write};
                if !matches!(entry.kind, Write | Truncate | Space | Staged | Shadow) {
                    continue;
                }
                let space = if entry.kind == EntryKind::Space { Some(self.space(record, entry)?) } else { None };
                let shadowed = if entry.kind == Shadow { Some(self.shadowed(record, entry, sequence)?) } else { None };
                let Some(found) = self.found.get_mut(entry.file) else {
                    return Err(Error::corrupt(
                        format!("log, byte {}", record.position),
                        format!("file {} was never identified", entry.file),
                    ));
                };
                let file = &*found.file;
                if let Some(space) = space {
                    let file = found.file.clone();
                    self.replay_space(&file, entry.offset, space, sequence);
                    self.changed(&file);
                    continue;
                }
                if entry.kind == EntryKind::Staged {
                    (found.cut, found.staged) = (true, true);
                    file.publish_truncate(self.index, 0, &mut self.numbers.freed);
                    file.home_limit.store(entry.offset, Ordering::Release);
                    file.publish_size(self.index, |_| entry.offset);
                    file.bring_home(self.index);
                    continue;
                }
                if entry.kind == EntryKind::Truncate {
                    // Also where it grows by that, for all that is known: how long home is comes out later.
                    found.cut = true;
                    file.publish_truncate(self.index, entry.offset, &mut self.numbers.freed);
                    file.bring_home(self.index);
                    let file = found.file.clone();
                    self.changed(&file);
                    continue;
                }
                let written = shadowed.unwrap_or_else(|| written(record, entry, sequence));
                let end = written.offset + written.length;
                self.index.publish_recovered(file, written, &mut self.numbers, &mut self.dirty);
                file.publish_size(self.index, |size| size.max(end));
                let file = found.file.clone();
                if shadowed.is_some() {
                    file.shadowed.store(sequence, Ordering::Relaxed);
                }
                self.changed(&file);
            }
        }
        Ok(())
    }

    /// Reads the payload of an entry that has to be known now.
    fn payload(&self, record: &RecordView<'_>, entry: &Entry, of: &str) -> Result<Vec<u8>> {
        let position = record.position + u64::from(entry.line) * LINE;
        let mut payload = vec![0; entry.length as usize];
        self.region.read(position, &mut payload)?;
        if entry.payload_checksum == payload_checksum(record.segment_seed, position, &payload) {
            return Ok(payload);
        }
        Err(foul(record, entry, of))
    }

    /// What a group has written to a shadow.
    #[cold]
    fn shadowed(&mut self, record: &RecordView<'_>, entry: &Entry, sequence: u64) -> Result<Written> {
        let payload = self.payload(record, entry, SHADOW)?;
        let fits = |shadow: &Shadow| entry.offset.checked_add(shadow.length).is_some_and(|end| end <= LARGEST_FILE);
        let shadow = Shadow::checked(&payload).filter(fits).ok_or_else(|| foul(record, entry, SHADOW))?;
        let first = self.shadows.replayed(shadow.number, sequence).ok_or_else(|| {
            Error::corrupt(format!("log, byte {}", record.position), "more shadow files than there can be")
        })?;
        self.shadowed.push((entry.file, shadow.number, shadow.from + shadow.length));
        let Shadow { from, length, .. } = shadow;
        Ok(Written { offset: entry.offset, length, position: first + from, stamp: sequence })
    }

    /// What a group says of the space of a file.
    #[cold]
    fn space(&self, record: &RecordView<'_>, entry: &Entry) -> Result<Space> {
        let payload = self.payload(record, entry, SPACE)?;
        let space = Space::checked(&payload)
            .filter(|space| entry.offset.checked_add(space.length).is_some_and(|end| end <= LARGEST_FILE));
        space.ok_or_else(|| foul(record, entry, SPACE))
    }

    /// What [`File::publish_wishes`] does, and what of it is in no wish.
    fn replay_space(&mut self, file: &File, offset: u64, space: Space, sequence: u64) {
        let end = offset + space.length;
        let shape = Shape::new(space.how, offset, end);
        let mut publish = |written| self.index.publish_recovered(file, written, &mut self.numbers, &mut self.dirty);
        for edge in shape.edges() {
            let (offset, length) = (edge.start, edge.end - edge.start);
            publish(Written { offset, length, position: ZEROS, stamp: sequence });
        }
        file.index.for_each_in(shape.zeroed.clone(), &mut |block, slot| {
            if !slot.is_empty() {
                publish(hole(block, sequence));
            }
        });
        file.space.change(|wishes| shape.wish(wishes, sequence));
        if space.how.extends() {
            file.publish_size(self.index, |size| size.max(end));
        }
        file.bring_home(self.index);
    }

    /// What a group says of objects, names and attributes: it identifies objects when it commits, so behind what it did
    /// to them. Gives what it sets, in order.
    #[cold]
    fn identify_all(&mut self, sequence: u64, records: &[RecordView<'_>]) -> Result<Vec<Change>> {
        let mut identities: Vec<(u64, Identity)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut changes = Vec::new();
        for record in records {
            for entry in record.entries.iter().filter(|entry| is_of_names(entry.kind)) {
                if entry.kind == EntryKind::Clock {
                    self.clock = Some((entry.offset as i64, sequence));
                    continue;
                }
                if entry.kind == EntryKind::Applied {
                    self.applied.push((sequence, entry.offset));
                    continue;
                }
                if entry.kind == EntryKind::Provisional {
                    self.provisional.push((sequence, entry.offset));
                    continue;
                }
                let payload = self.payload(record, entry, NAME)?;
                let foul = || foul(record, entry, NAME);
                match entry.kind {
                    EntryKind::Create => {
                        let birth = Birth::checked(&payload).ok_or_else(foul)?;
                        let (kind, mtime_ns) = (Kind::of(birth.mode), birth.mtime_ns);
                        self.names.create(entry.file, birth, sequence);
                        self.add_file(entry.file, kind, true, sequence)?;
                        if let Some(found) = self.found.get(entry.file) {
                            found.file.set_mtime(mtime_ns, RECOVERED);
                        }
                    }
                    EntryKind::Name => {
                        changes.push(Change::Name(entry.file, Value::checked(&payload).ok_or_else(foul)?));
                    }
                    EntryKind::Attributes => {
                        changes.push(Change::Attributes(entry.file, Attributes::checked(&payload).ok_or_else(foul)?));
                    }
                    EntryKind::Xattr => {
                        changes.push(Change::Xattr(entry.file, Xattr::checked(&payload).ok_or_else(foul)?));
                    }
                    _ => {
                        let identity = Identity::checked(&payload).ok_or_else(foul)?;
                        // A group that was kept from committing by a checkpoint has identified its files again: the
                        // last time counts.
                        let place = *places.entry(entry.file).or_insert(identities.len());
                        match identities.get_mut(place) {
                            Some(known) => *known = (entry.file, identity),
                            None => identities.push((entry.file, identity)),
                        }
                    }
                }
            }
        }
        for (id, identity) in &identities {
            self.names.identify(*id, identity, sequence);
        }
        for (id, identity) in &identities {
            self.identify(*id, identity, sequence)?;
        }
        let commit = records.last().expect("a group has a commit record");
        for change in &changes {
            for id in change.objects() {
                if id != 0 && !self.names.knows(id) {
                    let what = format!("object {id:#x} was never identified");
                    return Err(Error::corrupt(format!("log, byte {}", commit.position), what));
                }
            }
        }
        Ok(changes)
    }

    fn identify(&mut self, id: u64, identity: &Identity, sequence: u64) -> Result<()> {
        self.add_file(id, Kind::of(identity.mode), false, sequence)?;
        // From then on until the crash no checkpoint has touched the file.
        if sequence >= self.checkpointing
            && let Some(found) = self.found.get_mut(id)
        {
            found.last = identity.baseline.or(found.last);
        }
        Ok(())
    }

    /// A regular file that groups may write to, once.
    fn add_file(&mut self, id: u64, kind: Kind, created: bool, sequence: u64) -> Result<()> {
        if kind != Kind::Regular {
            return Ok(());
        }
        if self.found.get(id).is_none() {
            let path = self.names.state.path(id).into_bytes();
            let file = self.files.add(|number| File::new(id, number, path, None))?;
            // Until home is found nothing is known of what counts of it.
            file.home_limit.store(u64::MAX, Ordering::Release);
            if let Some(object) = self.names.state.objects.get_mut(&id) {
                object.file = Arc::downgrade(&file);
            }
            self.found.insert(id, Found { file, cut: false, created, staged: false, last: None });
        }
        let found = self.found.get(id).expect("it was just inserted");
        found.file.identified.store(sequence, Ordering::Release);
        Ok(())
    }

    /// Whether the group `after` should be there and is not, `last` being the last one that was.
    #[inline]
    fn is_missing(&self, after: u64, last: u64) -> bool {
        after >= self.tail && after > last
    }

    /// Invariant 8 of the log: what a group builds on is there, or home. Takes in the names and attributes that the
    /// group sets.
    fn check_nothing_missing(&mut self, sequence: u64, records: &[RecordView<'_>], changes: &[Change]) -> Result<()> {
        let mut last = 0;
        let entries = || records.iter().flat_map(|record| record.entries).filter(|entry| entry.file != 0);
        for entry in entries() {
            last = match self.found.get(entry.file) {
                Some(found) => last.max(found.file.last_sequence.load(Ordering::Relaxed)),
                None if self.names.knows(entry.file) => last.max(self.names.last(entry.file)),
                // That it was never identified is said later.
                None => u64::MAX,
            };
        }
        for change in changes {
            if let Change::Name(dir, value) = change {
                let register = self.names.state.register(*dir, &value.name);
                last = last.max(register.map_or(0, |register| register.last()));
            }
            for id in change.objects() {
                let file = self.found.get(id).map_or(0, |found| found.file.last_sequence.load(Ordering::Relaxed));
                last = last.max(self.names.last(id)).max(file);
            }
        }
        let commit = records.last().expect("a group has a commit record");
        if self.is_missing(commit.head.after, last) {
            return Err(Error::corrupt(
                format!("log, before byte {}", commit.position),
                format!("group {sequence:#x} builds on group {:#x}, which is missing", commit.head.after),
            ));
        }
        for entry in entries() {
            self.spoken_of(entry.file, sequence);
        }
        for change in changes {
            match change {
                Change::Name(dir, value) => self.names.set(*dir, value, sequence, self.clock.map(|clock| clock.0)),
                Change::Attributes(id, attributes) => {
                    self.names.set_attributes(*id, sequence, &Set::of_attributes(attributes), attributes.mtime_ns);
                }
                Change::Xattr(id, xattr) => {
                    self.names.set_attributes(*id, sequence, &Set::of_xattr(xattr.clone()), None);
                }
            }
            for id in change.objects() {
                self.spoken_of(id, sequence);
            }
        }
        Ok(())
    }

    fn spoken_of(&mut self, id: u64, sequence: u64) {
        self.names.spoken_of(id, sequence);
        if let Some(found) = self.found.get(id) {
            found.file.last_sequence.store(sequence, Ordering::Relaxed);
        }
    }

    fn conflict(&mut self, id: u64, change: String) -> Result<()> {
        let path = OsString::from_vec(self.names.state.path_bytes(id));
        self.conflicts.insert(id, (path.into(), change));
        Ok(())
    }
}

/// What a group sets besides bytes: of a directory a name, of an object attributes.
enum Change {
    Name(u64, Value),
    Attributes(u64, Attributes),
    Xattr(u64, Xattr),
}

impl Change {
    /// The objects that it speaks of; 0 for none.
    fn objects(&self) -> [u64; 3] {
        match self {
            Change::Name(dir, value) => [*dir, value.before, value.after],
            Change::Attributes(id, _) | Change::Xattr(id, _) => [*id, 0, 0],
        }
    }
}

const NAME: &str = "a name";
const SHADOW: &str = "bytes in a shadow";
const SPACE: &str = "the space of a file";

/// What an entry says cannot be so.
#[cold]
fn foul(record: &RecordView<'_>, entry: &Entry, of: &str) -> Error {
    let place = format!("log, byte {}", record.position + u64::from(entry.line) * LINE);
    Error::corrupt(place, format!("the record of {of} does not match its checksum"))
}

/// In the place of a sequence: that of a group below every target to come.
const RECOVERED: u64 = 0;

/// Whether an entry speaks of objects, names or times rather than of bytes.
fn is_of_names(kind: EntryKind) -> bool {
    use EntryKind::{Applied, Attributes, Clock, Create, Identify, Name, Provisional, Xattr};
    matches!(kind, Applied | Provisional | Identify | Clock | Create | Name | Attributes | Xattr)
}

/// Whether there is nothing, or no file, where a file has just been found.
fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE)
}

/// Whether a file cannot be opened because of what somebody made of its name: then it is that file which fails, and not
/// the store.
pub(in crate::hostdir) fn is_in_the_way(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS
            | Errno::PERM
            | Errno::ROFS
            | Errno::ISDIR
            | Errno::NOTDIR
            | Errno::TXTBSY
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::STALE
            // Of FIFOs, sockets and devices.
            | Errno::INVAL
            | Errno::NXIO
            | Errno::NODEV
    )
}
