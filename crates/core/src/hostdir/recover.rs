//! Opening a store: from what a crash left to a store that serves.
//!
//! The log is scanned and its committed groups are replayed into index and names, in commit order; home is only looked
//! at. What a committed group created and home does not have is virtual again. All of it goes home later, as after any
//! commit.

mod replay;

use std::path::PathBuf;
use std::sync::Arc;

use wholly_host::HostFs;
use wholly_media::Region;

use super::checkpoint::Checkpointer;
use super::clock::Clock;
use super::fork::{Forked, Ownership};
use super::joint::{JointCommits, Neighbours};
use super::lanes::Seats;
use super::memory::Memory;
use super::names::{Names, Object, ROOT};
use super::parked::{ParkedGroups, Provisional, undo_path};
use super::published::Published;
use super::room::Room;
use super::shadow::Shadows;
use super::table::is_there;
use super::{Options, StoreInner};
use crate::error::{Error, Result};
use crate::log::layout::Origin;
use crate::log::scan::{self, ScanReport};
use crate::log::site::RECOVER_INCARNATION;
use crate::log::{BatchLane, first_of};
use crate::sync::{AtomicU8, AtomicU64, Mutex};
pub(super) use replay::{Replay, is_in_the_way};

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
    let home_below = super::kept::home_below(&*host, &before.volume_id, end)?;
    replay = replay.with_home_below(home_below);
    if options.accept_copy {
        replay = replay.may_adopt();
    }
    let origin = origin_of(&*host);
    let coming = |writes| index.arena.prepare(writes);
    let take_over = |part: &mut Origin, groups| part.move_to(origin, groups);
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
        options,
        index,
        memory: Memory::new(),
        shadows,
        files,
        seats: Seats::new(),
        batch: BatchLane::new(),
        checkpointer,
        names: Names::recovered(names.state, next_object),
        xattr_spaces: Default::default(),
        clock: Clock::new(time, told),
        room: Room::default(),
        parked: ParkedGroups::new(applied, to_undo),
        kept: super::kept::KeptUndos::new(home_below),
        joint: JointCommits::new(neighbours),
        shared: super::implicit::Epoch::new(None),
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

/// Which inode the log of a store is.
pub(super) fn origin_of(host: &dyn HostFs) -> Origin {
    host.stat(b".wholly/log").map_or(Origin::default(), |stat| Origin { ino: stat.ino, btime_ns: stat.btime_ns })
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
        self.log.set_client(RECOVER_INCARNATION, origin_of(&*self.host))
    }
}
