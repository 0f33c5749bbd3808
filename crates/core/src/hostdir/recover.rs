//! Opening a store: from what a crash left to a store that serves.
//!
//! The log is scanned and its committed groups are replayed into index and names, in commit order; home is only looked
//! at. What a committed group created and home does not have is virtual again. All of it goes home later, as after any
//! commit.

mod replay;

use std::path::PathBuf;
use std::sync::Arc;

use epochs::Policies;
use rustix::io::Errno;
use wholly_changes::{Origin, ROOT, origin_of};
use wholly_host::{Forked, HostFs, host_error, is_there};
use wholly_media::Region;

use super::checkpoint::Checkpointer;
use super::clock::Clock;
use super::fork::Ownership;
use super::joint::{JointCommits, Neighbours};
use super::lanes::Seats;
use super::memory::Memory;
use super::names::{Names, OWN_FOLDER, Object};
use super::parked::{ParkedGroups, Provisional, mark_parked, undo_path};
use super::published::Published;
use super::room::Room;
use super::shadow::Shadows;
use super::swap::Swap;
use super::{Options, Store, StoreInner};
use crate::error::{Error, Result};
use crate::log::fit;
use crate::log::layout::StorePart;
use crate::log::scan::{self, ScanReport};
use crate::log::site::RECOVER_INCARNATION;
use crate::log::{BatchLane, first_of};
pub(super) use replay::{Replay, is_in_the_way};
use sync::{AtomicU8, AtomicU64, Mutex};

/// What opening a store found and did.
#[derive(Clone, Debug, Default)]
pub struct RecoveryReport {
    /// What the log contained.
    pub scan: ScanReport,
    /// The number of files that the log has updates for.
    pub files: u64,
    /// The number of names that the log sets.
    pub names: u64,
    /// Whether the store was a copy and was accepted ([`Options::accept_copy`](crate::Options::accept_copy)). If there
    /// are conflicts, it must be accepted again at the next open.
    pub adopted: bool,
    /// Files that another program changed while the log held updates for them, and how. The updates stay in the log,
    /// and nothing is written back.
    pub conflicts: Vec<(PathBuf, String)>,
}

/// Opens the store whose log is `region`.
pub(super) fn open(
    region: Arc<dyn Region>,
    host: Arc<dyn HostFs>,
    options: Options,
    ownership: Option<Box<dyn Ownership>>,
    neighbours: Option<Arc<dyn Neighbours>>,
) -> Result<StoreInner> {
    crate::log::settle(&*region)?;
    let before = crate::log::read_superblock(&*region)?;
    let index = Published::new();
    let shadows = Shadows::new();
    let mut replay = Replay::new(region.clone(), &host, (&index, &shadows), &before);
    let end = first_of(before.incarnation + 1);
    let home_below = super::undo_store::home_below(&*host, &before.volume_id, end)?;
    replay = replay.with_home_below(home_below);
    if options.accept_copy {
        replay = replay.may_adopt();
    }
    let here = Here::of(&*host)?;
    let coming = |writes| index.arena.prepare(writes);
    let take_over = |part: &mut StorePart, groups| {
        here.refuse_copy(part.origin, groups)?;
        if !part.origin.is_here(here.origin) {
            mark_parked(&*host, part.origin)?;
        }
        part.origin = here.origin;
        Ok(())
    };
    let (log, scan) = scan::open(region, options.geometry()?, take_over, &mut replay, &coming)?;
    std::mem::take(&mut replay.numbers).give_back(&index.arena);

    replay.settle()?;
    index.dirty.append(&mut replay.dirty);
    let checkpointer = Checkpointer::new();
    checkpointer.count_staged(replay.shadow_bytes);
    let mut conflicts: Vec<_> = replay.conflicts().cloned().collect();
    conflicts.sort();
    if let Some((path, change)) = conflicts.first() {
        checkpointer.block(Error::Conflict { path: path.display().to_string(), change: change.clone() });
    }
    let recovery = RecoveryReport {
        scan,
        files: replay.found.files.iter().filter(|found| !found.file.is_clean()).count() as u64,
        names: replay.names.state.registers.values().map(|names| names.len() as u64).sum(),
        adopted: replay.names.is_adopted(),
        conflicts,
    };
    let Replay { files, names, clock, mut applied, provisional, .. } = replay;
    let is_undone = |id: u64| applied.iter().any(|(_, applied)| *applied == id);
    let applied_at = |at: u64| applied.iter().filter(|(sequence, _)| *sequence == at).map(|(_, id)| *id).collect();
    let is_open = |(sequence, id): &&(u64, u64)| *sequence >= home_below && !is_undone(*id);
    let to_undo = provisional.iter().filter(is_open).map(|&(sequence, id)| Provisional {
        id,
        sequence,
        applied: applied_at(sequence),
        waits: true,
    });
    let to_undo: Vec<Provisional> = to_undo.collect();
    // What a group applied that is undone is set aside still, unless the group is final.
    let mut not_final = Vec::new();
    for &(sequence, id) in &provisional {
        if is_undone(id) || is_there(&*host, &undo_path(id))? {
            not_final.push(sequence);
        }
    }
    applied.retain(|(sequence, _)| !not_final.contains(sequence));
    let (time, told) = clock.unwrap_or((0, 0));
    files.all().iter().filter(|file| file.has_home()).for_each(|file| files.opened(file));
    let next_object = first_of(log.incarnation());
    let own = [&b".wholly/log"[..], b".wholly/lock"].into_iter().filter_map(|path| host.stat(path).ok());
    let own_inodes = own.map(|stat| (stat.ino, stat.btime_ns)).collect();
    Ok(StoreInner {
        log,
        host,
        // There is no other policy over its files.
        epochs: Policies::new(options.policy, 1, options.most_dirty),
        options,
        index,
        memory: Memory::new(),
        shadows,
        files,
        seats: Seats::new(),
        swap: Swap::default(),
        batch: BatchLane::new(),
        checkpointer,
        names: Names::recovered(names.state, next_object),
        xattr_spaces: Default::default(),
        clock: Clock::new(time, told),
        room: Room::default(),
        parked: ParkedGroups::new(applied, to_undo),
        kept: super::undo_store::KeptUndos::new(home_below),
        joint: JointCommits::new(neighbours),
        mapped_reads: super::mapped_reads::MappedReads::new(),
        handles: AtomicU64::new(1),
        closes: AtomicU64::new(0),
        recovery,
        poisoned: AtomicU8::new(0),
        poison: Mutex::new(None),
        own_inodes,
        forked: Forked::new(ownership),
        itself: std::sync::OnceLock::new(),
    })
}

/// The log's region. A log that lies on another medium than it was made for is read as what it was made for, all of it
/// is written back, and it is made again for its medium. Where that cannot be, it is used as what it was made for.
pub(super) fn fitted(region: Arc<dyn Region>, host: &Arc<dyn HostFs>, options: &Options) -> Result<Arc<dyn Region>> {
    let (as_made, fits) = fit::as_made::<StorePart>(region.clone())?;
    if fits {
        return Ok(as_made);
    }
    // Nothing is released here: this open cannot ask other stores what was decided.
    let options = Options { background: false, release: false, ..options.clone() };
    let opened = Store::open_fitted(as_made.clone(), host.clone(), options, None, None);
    // The caller opens it as it is then, and learns why.
    if opened.and_then(Store::close).is_err() {
        return Ok(as_made);
    }
    fit::make_again::<StorePart>(&*region)?;
    Ok(region)
}

/// The folder of the store that is being opened.
pub(super) struct Here {
    origin: Origin,
    /// Whether nobody but its owner can look into it.
    is_private: bool,
}

impl Here {
    pub fn of(host: &dyn HostFs) -> Result<Here> {
        let is_private = match host.stat(OWN_FOLDER) {
            Ok(stat) => stat.mode & 0o077 == 0,
            Err(error) if error.errno == Errno::NOENT => true,
            Err(error) => return Err(host_error(error, OWN_FOLDER)),
        };
        Ok(Here { origin: origin_of(host)?, is_private })
    }

    /// Refuses a log that was written elsewhere, if there is anything in it; and any such log in a folder that is not
    /// as a store makes it: programs that unpack and clone make such folders.
    ///
    /// # Errors
    /// [`Error::Copied`]: a copy stays one until its log has told which inodes its objects are here.
    pub fn refuse_copy(&self, log: Origin, groups: u64) -> Result<()> {
        if log.is_here(self.origin) || groups == 0 && self.is_private {
            return Ok(());
        }
        let holds = match groups {
            0 => "others may look into its folder, and its log was not written there".into(),
            1 => "its log holds 1 group for the original's files".into(),
            groups => format!("its log holds {groups} groups for the original's files"),
        };
        Err(Error::Copied(holds))
    }
}

impl StoreInner {
    /// Removes what of the store's own folders nobody needs any more: what passes left that a crash ended, and parked
    /// groups that were applied or have expired.
    pub(super) fn finish_recovery(&self) -> Result<()> {
        self.settle_parked()?;
        self.catch_up_with_kept()?;
        self.clean_asides()?;
        match super::is_temporary(&*self.host)? {
            true => self.keep_no_spare(),
            false => self.keep_spare(),
        }
        // Whoever wrote there is gone. What cannot be removed keeps nobody from opening the store: who wants a layer is
        // told.
        let _ = self.remove_layer();
        if self.recovery.conflicts.is_empty() {
            if self.options.accept_copy {
                self.accept_parked()?;
            }
            if self.recovery.adopted {
                self.adopt()?;
            }
            self.clean_shadows()?;
            self.clean_folders(self.recovery.scan.groups == 0)?;
        }
        self.undo_provisional()?;
        self.write_back_undone()
    }

    /// The log learns which inodes its objects are in this copy; from then on it is none.
    fn adopt(&self) -> Result<()> {
        let found = self.names.with(|state| {
            let is_found = |(id, object): &(&u64, &Object)| **id != ROOT && object.inode().is_some();
            state.objects.iter().filter(is_found).map(|(id, _)| *id).collect::<Vec<_>>()
        });
        self.know(&found)?;
        self.log.set_client(RECOVER_INCARNATION, StorePart { origin: origin_of(&*self.host)? })
    }
}
