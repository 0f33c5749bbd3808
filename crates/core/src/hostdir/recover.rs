//! Opening a store: from what a crash left to a store that serves.
//!
//! The log is scanned and its committed groups are replayed into the index, in commit order; home files are only looked at. Files
//! that a committed group created and that did not survive at home are made again. Data go home later, as after any commit.

use std::collections::HashMap;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_media::{HostFs, Region};

use super::checkpoint::Checkpointer;
use super::file::File;
use super::fork::{Forked, Ownership};
use super::identity::{Baseline, Identity};
use super::lanes::Seats;
use super::memory::Memory;
use super::published::{Published, Written};
use super::table::{FileTable, host_error, parent};
use super::{Options, StoreInner};
use crate::error::{Error, Result};
use crate::log::batch::BatchLane;
use crate::log::checksum::payload_checksum;
use crate::log::layout::{EntryKind, LINE};
use crate::log::scan::{self, CommittedGroup, ScanReport};
use crate::log::{Log, first_of};
use crate::site;
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

struct Replay {
    host: Arc<dyn HostFs>,
    /// Groups from here on were identified while no checkpoint was at work.
    checkpointing: u64,
    /// Groups below are home.
    tail: u64,
    files: FileTable,
    index: Published,
    found: HashMap<u64, Found>,
    conflicts: HashMap<u64, (Vec<u8>, String)>,
    spare: Vec<u32>,
    freed: Vec<u32>,
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
    let mut replay = Replay {
        host: host.clone(),
        checkpointing: before.checkpointing,
        tail: before.tail,
        files: FileTable::default(),
        index: Published::new(),
        found: HashMap::new(),
        conflicts: HashMap::new(),
        spare: Vec::new(),
        freed: Vec::new(),
    };
    let (log, scan) = scan::open(region, options.geometry()?, |log, group| replay.group(log, group))?;
    replay.index.arena.give_back(&mut replay.spare);
    replay.index.arena.give_back(&mut replay.freed);

    let checkpointer = Checkpointer::new();
    for found in replay.found.values() {
        let name = found.file.path.clone();
        if !found.confirmed && !found.unnamed {
            replay.conflicts.entry(found.file.id).or_insert((name, "another file has taken its name".into()));
        }
        // What a group created is durable at home only once that group is: until then a crash may take its times back.
        let last = found.last.filter(|_| found.created.is_none());
        if let Some(change) = last.and_then(|last| last.difference(&found.now)) {
            replay.conflicts.entry(found.file.id).or_insert((found.file.path.clone(), change));
        }
        if let Some(sequence) = found.created {
            checkpointer.recover_created(found.file.clone(), sequence, !found.unnamed);
        }
    }
    let conflicts: Vec<(String, String)> = replay
        .conflicts
        .values()
        .map(|(path, change)| (String::from_utf8_lossy(path).into_owned(), change.clone()))
        .collect();
    if let Some((path, change)) = conflicts.first() {
        checkpointer.block(Error::Conflict { path: path.clone(), change: change.clone() });
    }
    let recovery = RecoveryReport {
        scan,
        files: replay.found.len() as u64,
        recreated: replay.found.values().filter(|found| found.unnamed).count() as u64,
        conflicts,
    };
    let next_file = first_of(log.incarnation());
    let own = [&b".wholly/log"[..], b".wholly/lock"].into_iter().filter_map(|path| host.stat(path).ok());
    let own_inodes = own.map(|stat| (stat.ino, stat.btime_ns)).collect();
    Ok(StoreInner {
        log,
        host,
        options,
        index: replay.index,
        memory: Memory::new(),
        files: replay.files,
        seats: Seats::new(),
        batch: BatchLane::new(),
        checkpointer,
        next_file: AtomicU64::new(next_file),
        shared: super::implicit::Epoch::new(None),
        handles: AtomicU64::new(1),
        recovery,
        poisoned: AtomicU8::new(0),
        poison: Mutex::new(None),
        own_inodes,
        forked: Forked::new(ownership),
    })
}

impl Replay {
    fn group(&mut self, log: &Log, group: CommittedGroup) -> Result<()> {
        // A group identifies its files when it commits, so behind what it did to them.
        let mut identities: Vec<(u64, Identity, bool)> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        for record in &group.records {
            for entry in record.entries.iter().filter(|e| matches!(e.kind, EntryKind::Identify | EntryKind::Create)) {
                let position = record.position + u64::from(entry.line) * LINE;
                let mut payload = vec![0; entry.length as usize];
                log.region().read(position, &mut payload)?;
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
            self.identify(file, identity, created, group.sequence)?;
        }
        self.check_nothing_missing(&group)?;
        let mut dirty = Vec::new();
        for record in &group.records {
            for entry in &record.entries {
                if !matches!(entry.kind, EntryKind::Write | EntryKind::Truncate) {
                    continue;
                }
                let Some(found) = self.found.get(&entry.file) else {
                    if self.conflicts.contains_key(&entry.file) {
                        continue;
                    }
                    return Err(Error::corrupt(
                        format!("log, byte {}", record.position),
                        format!("file {} was never identified", entry.file),
                    ));
                };
                let file = &found.file;
                if entry.kind == EntryKind::Truncate {
                    if entry.offset < file.size.load(Ordering::Acquire) {
                        file.publish_truncate(&self.index, entry.offset, &mut self.freed);
                    }
                    file.publish_size(&self.index, |_| entry.offset);
                    continue;
                }
                let written = Written {
                    offset: entry.offset,
                    length: u64::from(entry.length),
                    position: record.position + u64::from(entry.line) * LINE,
                    stamp: group.sequence,
                };
                self.index.publish(file, written, true, &mut self.spare, &mut self.freed, &mut dirty);
                file.publish_size(&self.index, |size| size.max(entry.offset + u64::from(entry.length)));
            }
        }
        self.index.dirty.append(&mut dirty);
        Ok(())
    }

    /// Invariant 8 of the log: what a group builds on is there, or home.
    fn check_nothing_missing(&self, group: &CommittedGroup) -> Result<()> {
        let entries = || group.records.iter().flat_map(|record| &record.entries).filter(|e| e.kind != EntryKind::Parts);
        let mut last = 0;
        for entry in entries() {
            let Some(found) = self.found.get(&entry.file) else {
                // A bystander's file: what the group builds on may be its.
                last = u64::MAX;
                continue;
            };
            last = last.max(found.file.last_sequence.load(Ordering::Relaxed));
        }
        let commit = group.records.last().expect("a group has a commit record");
        if commit.head.after >= self.tail && commit.head.after > last {
            return Err(Error::corrupt(
                format!("log, before byte {}", commit.position),
                format!("group {:#x} builds on group {:#x}, which is missing", group.sequence, commit.head.after),
            ));
        }
        for found in entries().filter_map(|entry| self.found.get(&entry.file)) {
            found.file.last_sequence.store(group.sequence, Ordering::Relaxed);
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
        if let Some(found) = self.found.get_mut(&id) {
            found.confirmed |= found.inode == inode;
            found.last = baseline.or(found.last);
            if let Some(last) = found.last.filter(|_| found.forced) {
                found.now.ctime_ns = last.ctime_ns;
            }
            found.file.identified.store(sequence, Ordering::Release);
            return Ok(());
        }
        let path = identity.path.clone();
        let mut opened = self.host.open(&path, true);
        // The store's own file may forbid it: a group may create one that nobody may write to, and goes on writing to it.
        let mut forced = false;
        if opened.as_ref().is_err_and(|error| error.errno == Errno::ACCESS)
            && let Ok(home) = self.host.open_own(&path)
        {
            (opened, forced) = (Ok(home), true);
        }
        let (home, unnamed) = match opened {
            Ok(home) => (home, false),
            Err(error) if error.errno == Errno::NOENT && created => {
                match self.host.create_unnamed(site::RECOVER_CREATE, parent(&path), identity.mode) {
                    Ok(home) => (home, true),
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
        file.bring_home(&self.index);
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
