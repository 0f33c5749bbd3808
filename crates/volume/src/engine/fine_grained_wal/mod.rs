//! The engine `fine_grained_wal`: undo of metadata by the byte, and a redo log of data, on persistent memory. It is the
//! baseline FG-WAL of FCFS (section VI-A; the metadata log is that of section III-D), and the first engine under which
//! a group survives a crash wholly or not at all.
//!
//! # Terms
//!
//! - *lane*, *half*, *entry*, *settled word*: see `format/log.rs`. An entry is undo (old bytes), data (new bytes),
//!   zero, link, chain or commit.
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
//!    once; nothing else is stored or served before. A commit entry is durable before recovery makes anything again
//!    because of it: its writer may have died before the fence. So recovery can be interrupted anywhere, and repeated.
//! 9. Blocks that the entries of a group take beyond its half are reserved at the begin of the group, and are free
//!    again when its commit has returned. A group that is not committed has none that anyone else could take before
//!    the recovery has ended. A block that is taken again still has entries of the group before: those of another lane
//!    are not valid for this one (1), those of the same lane have a lower sequence (3).
//! 10. Threads: each store of a group is fenced by the thread that made it. An implicit group is of one thread.
//!
//! Not covered: rot in the entries of a group that was in flight at a crash. An entry that is not valid ends the group
//! like one that was never stored, so the undo entries behind it are not applied. Rot in the entries of a committed
//! group that is not settled is detected: the commit entry has their number and sum.
//!
//! # Explicit groups
//!
//! - *Chain*: the log of an explicit group's data, in blocks of its own. Its entries have the number of the group in
//!   the place of the sequence. A group takes a lane for its commit only: the first entry there leads to the chain, and
//!   has the number and the sum of its entries. So the size of a group is bounded by free space, and any number of
//!   groups run beside a few lanes.
//! - *Own block*: one that the group took itself, in an earlier call. Its data is stored in place at once: nobody else
//!   can reach it.
//!
//! States: *running*, from `begin` to the commit or the abort, with calls one at a time; *committing*, through the five
//! epochs above, epoch 1 of which has been made by the calls but for the first entry and the undo entries; then
//! committed, or aborted.
//!
//! 11. A call of an explicit group hands over what it has stored (`wal.call.hand_over`): the commit may be another
//!     thread's.
//! 12. A chain counts only if a lane's committed group leads to it. Numbers of groups are not used twice in an
//!     incarnation, so that no entry of an aborted group is ever read for another one's.
//! 13. Data that a group writes over committed content goes to its chain, and is read from there by the group alone, by
//!     an index of places in memory (`draft.rs`): some 60 bytes for each piece that was written. At home it is made
//!     from the index, so that each byte goes home once. Recovery makes it from the entries in their order.
//! 14. The lines of a running group's draft belong to inodes that it has alone, to their maps and to blocks of its own.
//!     What is shared with others (names, times and modes of directories) the core records inside of the commit, with
//!     those locked: so line and old bytes are of one moment, in any order of ends of groups.
//! 15. An abort stores nothing. Early stores are in blocks that are free then, or reserved and without content.
//!
//! A group costs in all what the same changes cost in one call, and a fence for each call that stores early; each line
//! of metadata counts once, however often it has changed.
//!
//! # The engine `shortcut_jfs`
//!
//! Shortcut-JFS, with which MinL2R compares itself (sections 2.2 and 4), is this engine with one rule more, and the
//! same log and recovery. Its *differential logging* is the data entry: new bytes of a block go to the log, and home
//! after the commit. Its *in-place checkpoint* is the pointer: a write over half of a block or more stores the whole
//! block in a block that the group takes, where nobody reads it before the pointer leads there (2), and records the
//! pointer like all metadata. So nothing of it is logged or copied home; the former home is free when the commit has
//! returned.
//!
//! What counts is the size of the write, also where several writes of a group are to the same block. What the group had
//! logged of a block that it moves goes home all the same: nobody else has the former home before the group is settled.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the engine |
//! | `commit.rs` | the five epochs |
//! | `recover.rs` | what a crash has left, and how it is repaired |

mod commit;
mod recover;

use std::sync::Arc;

use wholly_error::Result;
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use super::draft::{Draft, Drafting};
use super::lanes::{Cursor, Entries, Lanes, Sites, lines_of_all};
use super::logging::{Logging, MOVE_FROM, ZEROS, commit_each, most_moved};
use super::patch;
use super::{
    Allocate, CommitSequence, DataAt, Durability, Engine, Kind, Later, Load, Logged, Operation, Part, Placed, Replay,
    View, Waiting, check_within,
};
use crate::format::log::{LogArea, lines_of, payload_lines};
use crate::format::{BLOCK, Lba, Seed};

use super::kind::{Description, Left, Opening};

/// Where recovery stores.
pub const RECOVERY: patch::Sites = patch::Sites { proof: RECOVER_COMMIT, patch: RECOVER, fence: RECOVER_FENCE };

const FRESH: Site = Site("wal.fresh");
const UNDO: Site = Site("wal.undo");
const HEAD: Site = Site("wal.head");
const PAYLOAD: Site = Site("wal.payload");
const LINK: Site = Site("wal.link");
const HAND_OVER: Site = Site("wal.call.hand_over");
const LOG_FENCE: Site = Site("wal.log.fence");
const PLACE_FENCE: Site = Site("wal.place.fence");
const COMMIT: Site = Site("wal.commit");
const COMMIT_FENCE: Site = Site("wal.commit.fence");
const HOME: Site = Site("wal.home");
const HOME_FENCE: Site = Site("wal.home.fence");
const SETTLE: Site = Site("wal.settle");
const SETTLE_FENCE: Site = Site("wal.settle.fence");
const RECOVER_COMMIT: Site = Site("wal.recover.commit");
const RECOVER: Site = Site("wal.recover");
const RECOVER_FENCE: Site = Site("wal.recover.fence");

/// Where this engine stores.
const SITES: &[Site] = &[
    FRESH,
    UNDO,
    HEAD,
    PAYLOAD,
    LINK,
    HAND_OVER,
    LOG_FENCE,
    PLACE_FENCE,
    COMMIT,
    COMMIT_FENCE,
    HOME,
    HOME_FENCE,
    SETTLE,
    SETTLE_FENCE,
    RECOVER_COMMIT,
    RECOVER,
    RECOVER_FENCE,
];

const ENTRIES: Sites = Sites { undo: UNDO, head: HEAD, payload: PAYLOAD, link: LINK };

/// Where `shortcut_jfs` stores besides.
const MOVED: Site = Site("shortcut.moved");
/// All of that.
const SHORTCUT_SITES: &[Site] = &[MOVED];

/// What is to be known of the engine.
pub const DESCRIPTION: Description = Description {
    name: "fine_grained_wal",
    number: 1,
    about: "A log on persistent memory: each call survives a crash wholly or not at all",
    promises: true,
    takes_disks: false,
    log: Some(|start, wanted| LogArea::for_volume(start, wanted.blocks)),
    zeroes_log: false,
    make_log: None,
    has_heads: false,
    keeps_bitmaps: false,
    sites: &[SITES],
    open: |Opening { region, log, volume, incarnation, .. }| {
        Some(Box::new(FineGrainedWal::new(region, log?, volume, incarnation)))
    },
    left: |region, logs| Left::of_lanes(logs, |seed, lane| recover::lane_patches(region, logs.area, seed, lane)),
};

/// The same of `shortcut_jfs`.
pub const SHORTCUT_DESCRIPTION: Description = Description {
    name: "shortcut_jfs",
    number: 6,
    about: "`fine_grained_wal` that moves a block if half of it is written over: for comparison with `undo`",
    sites: &[SITES, SHORTCUT_SITES],
    open: |Opening { region, log, volume, incarnation, tuning, .. }| {
        let wal = FineGrainedWal::new(region, log?, volume, incarnation);
        Some(Box::new(wal.with_shortcuts(tuning.move_from)))
    },
    ..DESCRIPTION
};

/// See the module.
pub struct FineGrainedWal {
    base: Logging,
    /// With `shortcut_jfs`: a write over so many bytes of a block moves it.
    move_from: Option<usize>,
}

impl FineGrainedWal {
    /// Over a region on persistent memory, with the log that its superblock names.
    pub fn new(region: Arc<dyn Region>, area: LogArea, volume: Seed, incarnation: u64) -> Self {
        FineGrainedWal { base: Logging::new(region, area, (volume, incarnation), FRESH), move_from: None }
    }

    /// The engine `shortcut_jfs`.
    pub fn with_shortcuts(self, move_from: Option<usize>) -> Self {
        FineGrainedWal { move_from: Some(move_from.unwrap_or(MOVE_FROM)), ..self }
    }

    /// Blocks, at most, to which so many bytes are moved.
    fn most_moved(&self, bytes: u64) -> u64 {
        self.move_from.map_or(0, |_| most_moved(bytes))
    }

    /// Adds entries of data to the log of a group. An implicit one takes a lane with its first entry. `lines`: how many
    /// there are to come.
    fn log(
        &self,
        part: &mut Part<'_>,
        lines: u64,
        add: impl FnOnce(&mut Entries, &mut dyn Allocate) -> Result<()>,
    ) -> Result<()> {
        let Some(group) = part.draft.group else {
            if part.draft.cursor.is_none() {
                part.draft.cursor = Some(self.base.lanes.take()?);
            }
            let cursor: &mut Cursor = part.draft.cursor.as_mut().expect("it was just taken");
            return add(&mut cursor.entries, part.space);
        };
        if part.draft.chain.is_none() {
            let run = part.space.take(lines.div_ceil(lines_of(1)));
            // Free again when the group has ended.
            part.space.release(run);
            part.draft.chain = Some(self.base.lanes.chain(group, run));
        }
        part.draft.stored = true;
        let entries = &mut part.draft.chain.as_mut().expect("it was just made").entries;
        add(entries, part.space)?;
        part.draft.note_logged();
        Ok(())
    }
}

impl Load for FineGrainedWal {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.base.load(at, offset, buf)
    }
}

impl Engine for FineGrainedWal {
    fn name(&self) -> &'static str {
        if self.move_from.is_some() { "shortcut_jfs" } else { "fine_grained_wal" }
    }

    fn recover(&self) -> Result<Option<Waiting>> {
        recover::recover(&*self.base.region, &self.base.lanes.area, self.base.lanes.seed())?;
        Ok(None)
    }

    fn start(&self, incarnation: u64) -> Result<()> {
        self.base.start(incarnation);
        Ok(())
    }

    fn log_blocks(&self, logged: Logged) -> u64 {
        let moved = self.most_moved(logged.bytes);
        self.base.lanes.blocks_for(Logging::most_undo(logged.pointers.saturating_add(moved)), logged.bytes) + moved
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn blocks_for_call(&self, logged: Logged) -> u64 {
        Lanes::blocks_in_chain(logged.bytes, logged.zeros) + self.most_moved(logged.bytes)
    }

    fn blocks_for_commit(&self, draft: &Draft, later: Later) -> u64 {
        // One more: that which leads to the chain.
        self.base.lanes.blocks_for(later.most_undo(draft) + 1, 0)
    }

    fn fills_log(&self, draft: &mut Draft, parts: u64) -> bool {
        // The chain is in free blocks, not in the log.
        draft.logs(self.base.lines_of_part(parts), lines_of_all)
    }

    fn end_call(&self, part: &mut Part<'_>) -> Result<()> {
        self.base.end_call(part, HAND_OVER)
    }

    fn begin(&self, _kind: Kind) -> GroupId {
        self.base.begin()
    }

    fn abort(&self, part: &mut Part<'_>) {
        if let Some(cursor) = part.draft.cursor.take() {
            self.base.lanes.abort(&cursor);
        }
    }

    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> Result<()> {
        replay.redo(operation, &mut Drafting { region: &*self.base.region, draft: part.draft, space: part.space })
    }

    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        if let Some(placed) = self.base.write_unseen(part, at, offset, data)? {
            return Ok(placed);
        }
        let home = at.home.expect("else nobody sees it");
        let to = home.byte() + offset as u64;
        check_within(&*self.base.region, to, data.len())?;
        let mut data = data;
        if let Some(move_from) = self.move_from {
            let first = data.len().min(BLOCK - offset);
            if first >= move_from {
                return self.base.write_moved(part, MOVED, (home, offset), data);
            }
            // Of the other blocks it is asked again.
            data = &data[..first];
        }
        self.log(part, 2 + payload_lines(data.len() as u64), |entries, space| {
            entries.data(&*self.base.region, &ENTRIES, space, (to, data))
        })?;
        Ok(Placed::Home(data.len()))
    }

    fn zero(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> Result<Placed> {
        if let Some(placed) = self.base.write_unseen(part, at, offset, &ZEROS[..len])? {
            return Ok(placed);
        }
        let to = at.home.expect("only what has a home is zeroed").byte() + offset as u64;
        check_within(&*self.base.region, to, len)?;
        self.log(part, 2, |entries, space| entries.zero(&*self.base.region, &ENTRIES, space, (to, len as u64)))?;
        Ok(Placed::Home(len))
    }

    fn read(&self, view: View<'_>, at: &DataAt, offset: usize, buf: &mut [u8]) -> Result<()> {
        let home = at.home.expect("only what has a home is read");
        self.base.load(home, offset, buf)?;
        match view {
            View::Committed => Ok(()),
            View::Group(draft) => draft.overlay_data(&*self.base.region, home.byte() + offset as u64, buf),
        }
    }

    fn commit(&self, parts: &mut [Part<'_>], _how: Durability, _replay: &dyn Replay) -> Result<CommitSequence> {
        commit_each(parts, |part| self.commit_one(part))
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
    use wholly_error::Error;
    use wholly_sim::{Mutation, MutationKind, SimConfig, World};

    use super::*;
    use crate::engine::{Allocate, InoGen, StorageView};
    use crate::format::Run;

    struct Nothing;

    impl Allocate for Nothing {
        fn take_late(&mut self, _count: u64) -> Run {
            unreachable!("nothing is placed late")
        }

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
        let at = DataAt {
            file: InoGen { ino: 16, generation: 1 },
            block,
            home: Some(Lba(40 + block)),
            valid: true,
            own: false,
            late: false,
        };
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
