//! The engine `fine_grained_wal`: undo of metadata by the byte, and a redo log of data, on persistent memory. It is the
//! baseline FG-WAL of FCFS (section VI-A; the metadata log is that of section III-D), and the first engine under which
//! a group survives a crash wholly or not at all.
//!
//! # Terms
//!
//! - *lane*, *half*, *entry*, *settled word*: see `format/log.rs`. An entry is undo (old bytes), data (new bytes),
//!   zero, link or commit.
//! - *sequence*: the number of a group in its lane, from 1 in each incarnation.
//! - *draft*: the lines of metadata that a group has changed and that are not on the medium (`engine/draft.rs`).
//! - *fresh*: blocks that the running group itself took, or that were reserved and have no content yet.
//! - *home*: where data that was logged belongs.
//!
//! # The commit
//!
//! | epoch | what is stored | fence at its end |
//! |---|---|---|
//! | 1 | at the calls: fresh blocks, data and zero entries; in the commit: undo entries | `wal.log.fence` |
//! | 2 | the draft, in place | `wal.place.fence`, if the draft is not empty |
//! | 3 | the commit entry | `wal.commit.fence`: the *commit point* |
//! | 4 | data and zeros, at home | `wal.home.fence`, if there are any |
//! | 5 | the settled word | `wal.settle.fence`, if there are any |
//!
//! What a crash leaves, one instruction before each fence:
//! - 1: nothing that anyone can reach has changed. Undo entries that survived have the bytes that are in place.
//! - 2: some of the draft. All undo entries are durable, so all of it is undone.
//! - 3: all of the draft; the commit entry whole, or not valid: then all is undone.
//! - 4: the group is committed; home has any part of the data, all of which is durable in the log: it is made again.
//! - 5: the same; the data is at home already, and is made once more.
//!
//! A group costs, in lines: an undo entry for each 32 bytes that begin with a changed word, and each changed line; of
//! data, a head and the bytes twice; a commit entry; a settled word if there is data. Fences: 3, or 5 with data, or 4
//! with data alone.
//!
//! # States of an entry
//!
//! ```text
//! void --- stored in epoch 1 ---> tentative --- fence 1 ---> prepared --- commit entry ---> committed
//!  ^                                  |                         |                             |
//!  |                                  | crash, abort            | crash: undone               | settled word,
//!  |                                  v                         v                             v or no data
//!  +--- a new incarnation, or a later committed group of the lane ------------------------ settled
//! ```
//!
//! # Invariants
//!
//! 1. An entry is valid by its check alone: over its other 56 bytes, seeded by volume, incarnation, lane and place. No
//!    order of stores inside of a line is relied on, unlike with the valid flag of the paper.
//! 2. Nothing that anyone else can reach is stored before the commit, and no in-place byte before fence 1.
//! 3. In each lane, sequences grow by one, and a group is committed, or aborted before its commit has begun, when the
//!    next one takes the lane. A group uses the half of its parity: the commit entry of a lane's last group stays whole
//!    until the next group has one. Once a commit has failed, no lane is taken and nothing is committed until the next
//!    mount.
//! 4. So the lane's last valid commit entry decides: older groups are settled, entries of the next sequence are of a
//!    group that is not committed, and all others are void.
//! 5. A group with data is settled before its commit returns: data is never made again over what a later group wrote.
//! 6. The bytes of a group's undo entries do not overlap, nor do the lines of two running groups (rule 8 of the trait):
//!    the order in which entries are undone decides nothing, and no group builds on one that may be undone.
//! 7. Entries of an aborted group are data, zero and link entries only: undo entries are stored by commits, which do
//!    not fail but with the volume. Recovery ignores the former in a group that is not committed.
//! 8. What recovery has undone and made again is durable before the incarnation rises, which makes all entries void at
//!    once; nothing else is stored or served before. So recovery can be interrupted anywhere, and repeated.
//! 9. Blocks that the entries of a group take beyond its half are reserved at the begin of the group, and are free
//!    again when its commit has returned. A group that is not committed has none that anyone else could take before
//!    the recovery has ended. A block that is taken again still has entries of the group before: those of another lane
//!    are not valid for this one (1), those of the same lane have a lower sequence (3).
//! 10. Threads: each store of a group is fenced by the thread that made it. A group is of one thread so far.
//!
//! Not covered: rot in the entries of a group that was in flight at a crash. An entry that is not valid ends the group
//! like one that was never stored, so the undo entries behind it are not applied. Rot in the entries of a committed
//! group that is not settled is detected: the commit entry has their number and sum.
//!
//! # Explicit groups, which are not here yet
//!
//! - *Log.* A group that lives on takes no lane before its commit. Its data entries go to blocks of its own, under a
//!   number of its own in the place of the sequence; the commit takes a lane, and its first entry is a link that tells
//!   this number. So the size of a group is bounded by free space only, and lanes are held for the time of a commit.
//! - *Reads* of the group's own data need an index of its data entries: nothing of them is in memory.
//! - *Files* are owned by one group: the draft of an inode's owned line and of its map can be filled at the calls, as
//!   it is now. Blocks whose pointer others see as written are never written early, even if the group itself has made
//!   them reserved: `write` has to ask the committed map.
//! - *Directories* are shared. Their operations stay logical until the commit, where the mutators run under the locks
//!   of the directories; places in them are hints, which are looked up again; times are the latest valid value. Until
//!   then lookups of the group merge the operations over the leaves, and a name has at most one group that changes it.
//!   A leaf that must be split is split by a structure change at the call, so that room is only reserved.
//! - *Abort* drops the draft, the operations, the entries and the blocks; the core reads the records of the inodes that
//!   the group owned from the medium again.
//! - *Threads*: each one fences what it stored before its call returns.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the engine |
//! | `commit.rs` | the five epochs |
//! | `recover.rs` | what a crash has left, and how it is repaired |

mod commit;
mod recover;

use std::sync::Arc;

use wholly::Result;
use wholly::sync::{AtomicU64, Ordering};
use wholly::vfs::GroupId;
use wholly_media::{Region, Site};

use super::draft::{Draft, Drafting};
use super::lanes::{Cursor, Lanes, Sites};
use super::{
    CommitSequence, DataAt, Durability, Engine, Kind, Load, Logged, Operation, Part, Placed, Replay, View,
    check_within, read_within,
};
use crate::format::log::{LogArea, LogSeed};
use crate::format::{BLOCK, Lba, Seed};

pub use recover::{Patch, lane_patches, patches};

const FRESH: Site = Site("wal.fresh");
const UNDO: Site = Site("wal.undo");
const HEAD: Site = Site("wal.head");
const PAYLOAD: Site = Site("wal.payload");
const LINK: Site = Site("wal.link");
const LOG_FENCE: Site = Site("wal.log.fence");
const PLACE_FENCE: Site = Site("wal.place.fence");
const COMMIT: Site = Site("wal.commit");
const COMMIT_FENCE: Site = Site("wal.commit.fence");
const HOME: Site = Site("wal.home");
const HOME_FENCE: Site = Site("wal.home.fence");
const SETTLE: Site = Site("wal.settle");
const SETTLE_FENCE: Site = Site("wal.settle.fence");
const RECOVER: Site = Site("wal.recover");
const RECOVER_FENCE: Site = Site("wal.recover.fence");

/// Where this engine stores.
pub const SITES: &[Site] = &[
    FRESH,
    UNDO,
    HEAD,
    PAYLOAD,
    LINK,
    LOG_FENCE,
    PLACE_FENCE,
    COMMIT,
    COMMIT_FENCE,
    HOME,
    HOME_FENCE,
    SETTLE,
    SETTLE_FENCE,
    RECOVER,
    RECOVER_FENCE,
];

const ENTRIES: Sites = Sites { undo: UNDO, head: HEAD, payload: PAYLOAD, link: LINK };

/// Undo entries of inodes and names that any group may have: a rename that exchanges two names of five slots has 40.
const FEW: u64 = 64;

static ZEROS: [u8; BLOCK] = [0; BLOCK];

/// See the module.
pub struct FineGrainedWal {
    region: Arc<dyn Region>,
    lanes: Lanes,
    volume: Seed,
    groups: AtomicU64,
    commits: AtomicU64,
}

impl FineGrainedWal {
    /// Over a region on persistent memory, with the log that its superblock names.
    pub fn new(region: Arc<dyn Region>, area: LogArea, volume: Seed, incarnation: u64) -> Self {
        let lanes = Lanes::new(area, LogSeed::of(volume, incarnation));
        FineGrainedWal { region, lanes, volume, groups: AtomicU64::new(1), commits: AtomicU64::new(1) }
    }

    /// Where a group logs: with its first entry it takes a lane.
    fn cursor<'d>(&self, draft: &'d mut Draft) -> Result<&'d mut Cursor> {
        if draft.cursor.is_none() {
            draft.cursor = Some(self.lanes.take()?);
        }
        Ok(draft.cursor.as_mut().expect("it was just taken"))
    }

    fn store(&self, site: Site, at: u64, bytes: &[u8]) -> Result<()> {
        check_within(&*self.region, at, bytes.len())?;
        Ok(self.region.write(site, at, bytes)?)
    }

    /// Writes to blocks that have no content yet: what `data` does not cover becomes zeros.
    fn store_fresh(&self, home: Lba, offset: usize, data: &[u8]) -> Result<()> {
        let (begin, end) = (home.byte() + offset as u64, (offset + data.len()) % BLOCK);
        if offset > 0 {
            self.store(FRESH, home.byte(), &ZEROS[..offset])?;
        }
        self.store(FRESH, begin, data)?;
        if end > 0 {
            self.store(FRESH, begin + data.len() as u64, &ZEROS[end..])?;
        }
        Ok(())
    }
}

impl Load for FineGrainedWal {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        read_within(&*self.region, at.byte() + offset as u64, buf)
    }
}

impl Engine for FineGrainedWal {
    fn name(&self) -> &'static str {
        "fine_grained_wal"
    }

    fn is_durable_per_call(&self) -> bool {
        true
    }

    fn recover(&self) -> Result<()> {
        recover::recover(&*self.region, &self.lanes.area, self.lanes.seed())
    }

    fn start(&self, incarnation: u64) {
        self.lanes.start(LogSeed::of(self.volume, incarnation));
    }

    fn log_blocks(&self, logged: Logged) -> u64 {
        // Four pointers in an entry; at the ends of each of a few runs, fewer.
        self.lanes.blocks_for(FEW + logged.pointers.div_ceil(4), logged.bytes)
    }

    fn begin(&self, _kind: Kind) -> GroupId {
        GroupId(self.groups.fetch_add(1, Ordering::Relaxed))
    }

    fn abort(&self, part: &mut Part<'_>) {
        if let Some(cursor) = part.draft.cursor.take() {
            self.lanes.abort(&cursor);
        }
    }

    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> Result<()> {
        replay.redo(operation, &mut Drafting { region: &*self.region, draft: part.draft, space: part.space })
    }

    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        let Some(home) = at.home else {
            let run = part.space.take((offset + data.len()).div_ceil(BLOCK) as u64);
            let data = &data[..data.len().min(run.count as usize * BLOCK - offset)];
            part.draft.stored = true;
            self.store_fresh(run.start, offset, data)?;
            return Ok(Placed::Elsewhere(run));
        };
        if !at.valid {
            // The pointer says so still: whatever is there reads as zeros.
            part.draft.stored = true;
            self.store_fresh(home, offset, data)?;
            return Ok(Placed::Home);
        }
        let to = home.byte() + offset as u64;
        check_within(&*self.region, to, data.len())?;
        let cursor = self.cursor(part.draft)?;
        cursor.data(&*self.region, &ENTRIES, part.space, (to, data))?;
        Ok(Placed::Home)
    }

    fn zero(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> Result<()> {
        let home = at.home.expect("only what has a home is zeroed");
        let to = home.byte() + offset as u64;
        check_within(&*self.region, to, len)?;
        let cursor = self.cursor(part.draft)?;
        cursor.zero(&*self.region, &ENTRIES, part.space, (to, len as u64))
    }

    fn read(&self, _view: View, at: &DataAt, offset: usize, buf: &mut [u8]) -> Result<()> {
        let home = at.home.expect("only what has a home is read");
        read_within(&*self.region, home.byte() + offset as u64, buf)
    }

    fn commit(&self, parts: &mut [Part<'_>], _how: Durability, _replay: &dyn Replay) -> Result<CommitSequence> {
        let mut last = 0;
        for part in parts {
            last = self.commit_one(part)?;
        }
        Ok(CommitSequence(last))
    }

    fn wait(&self, _upto: CommitSequence) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        // Each commit is durable.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use wholly::Error;
    use wholly_sim::{Mutation, MutationKind, SimConfig, World};

    use super::*;
    use crate::engine::{Allocate, InoGen, StorageView};
    use crate::format::Run;

    struct Nothing;

    impl Allocate for Nothing {
        fn take(&mut self, _count: u64) -> Run {
            unreachable!("a group fits into its lane")
        }

        fn release(&mut self, _run: Run) {
            unreachable!("a group has taken nothing")
        }
    }

    impl Replay for Nothing {
        fn redo(&self, _operation: &Operation<'_>, _view: &mut dyn StorageView) -> Result<()> {
            unreachable!("no operation is recorded")
        }
    }

    fn write(engine: &FineGrainedWal, draft: &mut Draft, block: u64) -> Result<Placed> {
        let at = DataAt { file: InoGen { ino: 16, generation: 1 }, block, home: Some(Lba(40 + block)), valid: true };
        engine.write(&mut Part { group: GroupId(block), space: &mut Nothing, draft }, &at, 0, &[7; 100])
    }

    fn commit(engine: &FineGrainedWal, draft: &mut Draft) -> Result<CommitSequence> {
        let part = Part { group: GroupId(0), space: &mut Nothing, draft };
        engine.commit(&mut [part], Durability::Durable, &Nothing)
    }

    /// Wherever the medium fails in a commit: who waits for the lane does not get it, and who has another one does not
    /// commit. They would write over entries that the recovery needs, or acknowledge what it may undo.
    #[test]
    fn after_a_failed_commit_there_is_no_other() {
        for site in [LOG_FENCE, COMMIT, COMMIT_FENCE, HOME, HOME_FENCE, SETTLE, SETTLE_FENCE] {
            let mutation = Mutation { site, kind: MutationKind::Fail(Errno::IO), nth: Some(0) };
            let config = SimConfig { log_len: 64 * 4096, mutations: vec![mutation], ..SimConfig::pmem() };
            let world = World::new(Arc::new(config));
            let area = LogArea { start: Lba(2), half_blocks: 2, lanes: 2 };
            let engine = FineGrainedWal::new(world.log(), area, Seed::of(&[1; 16]), 1);
            let (mut one, mut other) = (Draft::default(), Draft::default());
            write(&engine, &mut one, 0).expect("it has a lane");
            write(&engine, &mut other, 1).expect("it has the other one");
            std::thread::scope(|scope| {
                let third = scope.spawn(|| write(&engine, &mut Draft::default(), 2));
                let failed = commit(&engine, &mut one).expect_err("the medium fails");
                assert!(matches!(failed, Error::Media(_)), "{site:?}: {failed}");
                for refused in [third.join().expect("a thread").map(drop), commit(&engine, &mut other).map(drop)] {
                    assert!(matches!(refused, Err(Error::Poisoned(_))), "{site:?}: {refused:?}");
                }
            });
        }
    }
}
