//! Opening a store: from what a crash left to a store that serves.
//!
//! The log is scanned and its committed groups are replayed into the index, in commit order; home files are only looked at. Files
//! that a committed group created and that did not survive at home are made again. Data go home later, as after any commit.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_media::{HostFs, Region};

use super::checkpoint::Checkpointer;
use super::dirty::DirtyBlock;
use super::file::File;
use super::fork::{Forked, Ownership};
use super::homes::Homes;
use super::identity::{Baseline, Identity};
use super::lanes::Seats;
use super::memory::Memory;
use super::published::{Numbers, Published, Written};
use super::table::{FileTable, host_error, parent};
use super::{Options, StoreInner};
use crate::error::{Error, Result};
use crate::index::BLOCK;
use crate::log::batch::BatchLane;
use crate::log::checksum::payload_checksum;
use crate::log::first_of;
use crate::log::layout::{Entry, EntryKind, LINE, Superblock};
use crate::log::scan::{self, CommittedGroup, Record, RecordView, ScanReport};
use crate::sync::{AtomicU8, AtomicU64, Mutex, Ordering};

/// What an open found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// What the log held.
    pub scan: ScanReport,
    /// Files that have updates in the log.
    pub files: u64,
    /// Files that were made again.
    pub recreated: u64,
    /// Files that a bystander changed, and how. Their updates stay in the log, and nothing goes home.
    pub conflicts: Vec<(String, String)>,
}

/// A file that the log talks about.
struct Found {
    file: Arc<File>,
    /// The inode that is open.
    inode: (u64, i64),
    /// Whether some identification in the log names that inode.
    confirmed: bool,
    /// Made by this recovery, and without a name yet.
    unnamed: bool,
    /// Created by a committed group, with this sequence.
    created: Option<u64>,
    /// Its permission bits forbid what it was opened for: its time of change tells nothing.
    forced: bool,
    /// How it lies at home, and how the last identification that tells says that it must.
    now: Baseline,
    last: Option<Baseline>,
}

/// Rebuilds the index from the groups in the log.
pub(super) struct Replay<'a> {
    region: Arc<dyn Region>,
    homes: &'a dyn Homes,
    /// Groups from here on were identified while no checkpoint was at work.
    checkpointing: u64,
    /// Groups below are home.
    tail: u64,
    files: FileTable,
    index: &'a Published,
    found: KnownFiles,
    conflicts: HashMap<u64, (Vec<u8>, String)>,
    numbers: Numbers,
    dirty: Vec<DirtyBlock>,
}

/// The files that the log talks about, by the number that it gives them.
#[derive(Default)]
struct KnownFiles {
    files: Vec<Found>,
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

/// Opens the store whose log is `region`.
pub(super) fn open(
    region: Arc<dyn Region>,
    host: Arc<dyn HostFs>,
    options: Options,
    ownership: Option<Box<dyn Ownership>>,
) -> Result<StoreInner> {
    crate::log::settle(&*region)?;
    let before = crate::log::read_superblock(&*region)?;
    let index = Published::new();
    let mut replay = Replay::new(region.clone(), &host, &index, &before);
    let (log, scan) = scan::open(region, options.geometry()?, &mut replay, &|writes| index.arena.prepare(writes))?;
    index.dirty.append(&mut replay.dirty);
    std::mem::take(&mut replay.numbers).give_back(&index.arena);

    let checkpointer = Checkpointer::new();
    for found in &replay.found.files {
        if let Some(sequence) = found.created {
            checkpointer.recover_created(found.file.clone(), sequence, !found.unnamed);
        }
    }
    let conflicts = replay.conflicts();
    if let Some((path, change)) = conflicts.first() {
        checkpointer.block(Error::Conflict { path: path.clone(), change: change.clone() });
    }
    let recovery = RecoveryReport {
        scan,
        files: replay.found.files.len() as u64,
        recreated: replay.found.files.iter().filter(|found| found.unnamed).count() as u64,
        conflicts,
    };
    let files = replay.files;
    let next_file = first_of(log.incarnation());
    let own = [&b".wholly/log"[..], b".wholly/lock"].into_iter().filter_map(|path| host.stat(path).ok());
    let own_inodes = own.map(|stat| (stat.ino, stat.btime_ns)).collect();
    Ok(StoreInner {
        log,
        host,
        options,
        index,
        memory: Memory::new(),
        files,
        seats: Seats::new(),
        batch: BatchLane::new(),
        checkpointer,
        next_file: AtomicU64::new(next_file),
        shared: super::implicit::Epoch::new(None),
        handles: AtomicU64::new(1),
        closes: AtomicU64::new(0),
        recovery,
        poisoned: AtomicU8::new(0),
        poison: Mutex::new(None),
        own_inodes,
        forked: Forked::new(ownership),
    })
}

impl scan::Replay for Replay<'_> {
    #[inline]
    fn group(&mut self, group: &CommittedGroup<'_>) -> Result<()> {
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
                return Ok(());
            }
            return self.records(group.sequence, std::slice::from_ref(&group.commit));
        }
        let records: Vec<_> = group.parts.iter().map(Record::view).chain([group.commit]).collect();
        self.records(group.sequence, &records)
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
    pub fn new(region: Arc<dyn Region>, homes: &'a dyn Homes, index: &'a Published, superblock: &Superblock) -> Self {
        Replay {
            region,
            homes,
            checkpointing: superblock.checkpointing,
            tail: superblock.tail,
            files: FileTable::default(),
            index,
            found: KnownFiles::default(),
            conflicts: HashMap::new(),
            numbers: Numbers::default(),
            dirty: Vec::new(),
        }
    }

    /// Which files bystanders have changed, and how, once all groups were given.
    pub fn conflicts(&mut self) -> Vec<(String, String)> {
        for found in &self.found.files {
            if !found.confirmed && !found.unnamed {
                let change = || (found.file.path.clone(), "another file has taken its name".into());
                self.conflicts.entry(found.file.id).or_insert_with(change);
            }
            // What a group created is durable at home only once that group is: until then a crash may take its times back.
            let last = found.last.filter(|_| found.created.is_none());
            if let Some(change) = last.and_then(|last| last.difference(&found.now)) {
                self.conflicts.entry(found.file.id).or_insert((found.file.path.clone(), change));
            }
        }
        let named = |(path, change): &(Vec<u8>, String)| (String::from_utf8_lossy(path).into_owned(), change.clone());
        self.conflicts.values().map(named).collect()
    }

    /// The path of the file that has this number in the log, if some group has told.
    pub fn path(&self, id: u64) -> Option<String> {
        let conflict = || self.conflicts.get(&id).map(|(path, _)| String::from_utf8_lossy(path).into_owned());
        self.found.get(id).map(|found| found.file.name()).or_else(conflict)
    }

    /// Asks the processor for the slot of the first block of a write, or for its newest version. Where there are more blocks, the others
    /// are a small part of what the write took.
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
        let names = |entry: &Entry| matches!(entry.kind, EntryKind::Identify | EntryKind::Create);
        if records.iter().any(|record| record.entries.iter().any(names)) {
            self.identify_all(sequence, records)?;
        }
        self.check_nothing_missing(sequence, records)?;
        for record in records {
            for entry in record.entries.iter().filter(|e| matches!(e.kind, EntryKind::Write | EntryKind::Truncate)) {
                let Some(found) = self.found.get(entry.file) else {
                    if self.conflicts.contains_key(&entry.file) {
                        continue;
                    }
                    return Err(Error::corrupt(
                        format!("log, byte {}", record.position),
                        format!("file {} was never identified", entry.file),
                    ));
                };
                let file = &*found.file;
                if entry.kind == EntryKind::Truncate {
                    if entry.offset < file.size.load(Ordering::Acquire) {
                        file.publish_truncate(self.index, entry.offset, &mut self.numbers.freed);
                    }
                    file.publish_size(self.index, |_| entry.offset);
                    continue;
                }
                let written = written(record, entry, sequence);
                self.index.publish_recovered(file, written, &mut self.numbers, &mut self.dirty);
                file.publish_size(self.index, |size| size.max(entry.offset + u64::from(entry.length)));
            }
        }
        Ok(())
    }

    /// A group identifies its files when it commits, so behind what it did to them.
    #[cold]
    fn identify_all(&mut self, sequence: u64, records: &[RecordView<'_>]) -> Result<()> {
        let mut identities: Vec<(u64, Identity, bool)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        for record in records {
            for entry in record.entries.iter().filter(|e| matches!(e.kind, EntryKind::Identify | EntryKind::Create)) {
                let position = record.position + u64::from(entry.line) * LINE;
                let mut payload = vec![0; entry.length as usize];
                self.region.read(position, &mut payload)?;
                let matches = entry.payload_checksum == payload_checksum(record.segment_seed, position, &payload);
                let identity = Identity::checked(&payload).filter(|_| matches).ok_or_else(|| {
                    Error::corrupt(format!("log, byte {position}"), "the name of a file does not match its checksum")
                })?;
                let created = entry.kind == EntryKind::Create;
                // A group that was kept from committing by a checkpoint has identified its files again: the last time counts.
                let place = *places.entry(entry.file).or_insert(identities.len());
                match identities.get_mut(place) {
                    Some(known) => *known = (entry.file, identity, known.2 || created),
                    None => identities.push((entry.file, identity, created)),
                }
            }
        }
        for (file, identity, created) in identities {
            self.identify(file, identity, created, sequence)?;
        }
        Ok(())
    }

    /// Whether the group `after` should be there and is not, `last` being the last one that was.
    #[inline]
    fn is_missing(&self, after: u64, last: u64) -> bool {
        after >= self.tail && after > last
    }

    /// Invariant 8 of the log: what a group builds on is there, or home.
    fn check_nothing_missing(&self, sequence: u64, records: &[RecordView<'_>]) -> Result<()> {
        let mut last = 0;
        for record in records {
            for entry in record.entries.iter().filter(|e| e.kind != EntryKind::Parts) {
                last = match self.found.get(entry.file) {
                    Some(found) => last.max(found.file.last_sequence.load(Ordering::Relaxed)),
                    // A bystander's file: what the group builds on may be its.
                    None => u64::MAX,
                };
            }
        }
        let commit = records.last().expect("a group has a commit record");
        if self.is_missing(commit.head.after, last) {
            return Err(Error::corrupt(
                format!("log, before byte {}", commit.position),
                format!("group {sequence:#x} builds on group {:#x}, which is missing", commit.head.after),
            ));
        }
        for record in records {
            for entry in record.entries.iter().filter(|e| e.kind != EntryKind::Parts) {
                if let Some(found) = self.found.get(entry.file) {
                    found.file.last_sequence.store(sequence, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    fn identify(&mut self, id: u64, identity: Identity, created: bool, sequence: u64) -> Result<()> {
        if self.conflicts.contains_key(&id) {
            return Ok(());
        }
        let inode = (identity.ino, identity.btime_ns);
        // From then on until the crash no checkpoint has touched the file.
        let baseline = identity.baseline.filter(|_| sequence >= self.checkpointing);
        if let Some(found) = self.found.get_mut(id) {
            found.confirmed |= found.inode == inode;
            found.last = baseline.or(found.last);
            if let Some(last) = found.last.filter(|_| found.forced) {
                found.now.ctime_ns = last.ctime_ns;
            }
            found.file.identified.store(sequence, Ordering::Release);
            return Ok(());
        }
        let path = identity.path.clone();
        let (home, forced, unnamed) = match self.homes.open(&path) {
            Ok((home, forced)) => (home, forced, false),
            Err(error) if error.errno == Errno::NOENT && created => {
                match self.homes.make_again(parent(&path), identity.mode) {
                    Ok(home) => (home, false, true),
                    Err(error) => return self.conflict(id, path, format!("it cannot be made again: {error}")),
                }
            }
            Err(error) if error.errno == Errno::NOENT => {
                return self.conflict(id, path, "it is gone".into());
            }
            Err(error) if is_in_the_way(error.errno) => {
                return self.conflict(id, path, format!("it cannot be opened for writing: {}", error.errno));
            }
            Err(error) => return Err(host_error(error, &path)),
        };
        let stat = home.stat()?;
        if !stat.is_file() {
            return self.conflict(id, path, "it is no regular file any more".into());
        }
        if !created && (stat.ino, stat.btime_ns) != inode {
            return self.conflict(id, path, "another file has taken its name".into());
        }
        let mut now = Baseline::of(&stat);
        if forced {
            // It has changed by being opened.
            now.ctime_ns = baseline.map_or(now.ctime_ns, |baseline| baseline.ctime_ns);
        }
        if let Some(change) = baseline.and_then(|baseline| baseline.difference(&now)) {
            return self.conflict(id, path, change);
        }
        let key = (stat.ino, stat.btime_ns);
        let file = self.files.find_or_add(key, |number| File::new(id, number, path, home))?;
        file.identified.store(sequence, Ordering::Release);
        // Even where home looks as it should: a process that died in a checkpoint may have made it so and not have synced it.
        file.bring_home(self.index);
        let confirmed = key == inode && !unnamed;
        let created = created.then_some(sequence);
        self.found.insert(id, Found { file, inode: key, confirmed, unnamed, created, forced, now, last: None });
        Ok(())
    }

    fn conflict(&mut self, id: u64, path: Vec<u8>, change: String) -> Result<()> {
        self.conflicts.insert(id, (path, change));
        Ok(())
    }
}

/// Whether a file cannot be opened because of what somebody made of its name: then it is that file which fails, and not the store.
fn is_in_the_way(errno: Errno) -> bool {
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

impl StoreInner {
    /// Gives the files that were made again their names: first the log learns which inodes they are, so that a crash after that finds
    /// them to be the store's own.
    pub(super) fn finish_recovery(self: &Arc<Self>) -> Result<()> {
        if self.recovery.recreated == 0 {
            return Ok(());
        }
        let files = self.checkpointer.unlinked();
        // A checkpoint would give them names that the log does not know yet.
        self.checkpointer.hold(true);
        let mut group = super::running::Running::new(self.clone(), super::running::Sharing::Own);
        for file in &files {
            group.identify_again(file)?;
        }
        group.commit()?;
        self.checkpointer.link_all(&*self.host)?;
        self.checkpointer.hold(false);
        Ok(())
    }
}
