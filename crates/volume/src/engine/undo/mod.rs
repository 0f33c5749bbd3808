//! The engine `undo`: MinL2R's rollback recovery (sections 3.1 to 3.5) on persistent memory. Old bytes are logged, then
//! new bytes are stored in place, content like metadata; reads never look at a log. A block of which much changes is
//! not logged: a new block gets its content, and the old pointer is logged.
//!
//! # Terms
//!
//! - *lane*, *half*, *entry*, *sequence*: see `format/log.rs`. An entry is undo, old or old zeros (old bytes: up to 32
//!   in the line, more in the lines behind it, or none), link or commit.
//! - *draft*: the lines that a group has changed and that are not on the medium (`engine/draft.rs`): here also those of
//!   content. *Run*: changed words of the draft that stand together.
//! - *fresh*: blocks that the running group itself took, or that were reserved and have no content yet.
//! - *home*: the block to which the map of a file points. *Changed bytes* of a home: those in its runs, but for runs
//!   that had nothing but zeros.
//! - *data logging*: old bytes of a home are logged, and new ones stored in place. *Pointer logging* of a home, also:
//!   the home is *moved*: a fresh block gets all its content, as the group has it, and the old pointer is logged like
//!   all metadata. The home is free after the commit.
//!
//! # Which way a write goes
//!
//! A write over a whole block moves it. So does any other one after which half of the home's bytes or more would have
//! changed (the paper's threshold, 4.2); else it goes to the draft. So small writes of one group add up, and a
//! block is moved once: then it is fresh. A group with more than 1 MiB of lines in its draft moves whatever it writes
//! to. A write to what had only zeros, as behind the end of a file, takes one line of log, and counts as nothing.
//!
//! # The commit
//!
//! | epoch | what is stored | fence at its end |
//! |---|---|---|
//! | 1 | at the calls: fresh blocks; in the commit: old bytes of all runs | `undo.log.fence` |
//! | 2 | the draft, in place | `undo.place.fence` |
//! | 3 | the commit entry | `undo.commit.fence`: the *commit point* |
//!
//! What a crash leaves, one instruction before each fence:
//! - 1: nothing that anyone can reach has changed. Entries that survived have the bytes that are in place.
//! - 2: any part of the draft. All entries are durable, so all of it is undone. Moved blocks are free: no pointer leads
//!   there once the old ones are back.
//! - 3: all of the draft; the commit entry whole, or not valid: then all is undone.
//!
//! # Statuses of a group
//!
//! The paper stores a status, and recovery acts by it (3.5). Here the entries say as much, without a line and a fence:
//!
//! | the paper's | begins with | recovery finds | and does |
//! |---|---|---|---|
//! | BEGIN | the group | no entry of its sequence | nothing |
//! | LOGGING | the first entry | some entries, which have what is in place | stores that once more |
//! | COMMIT (log complete) | `undo.log.fence` | all entries | undoes the group |
//! | WRITING | the first byte in place | all entries | undoes the group |
//! | (not named) | `undo.commit.fence` | the commit entry | nothing |
//!
//! An abort stores nothing: nothing is in place before the commit, and a commit fails only with the volume.
//!
//! # What a group costs
//!
//! In lines of 64 bytes:
//! - each fresh block: 64;
//! - each run of n bytes: of log, 1 if n is at most 32 or all of them were zeros, else 1 + n / 64, rounded up; in
//!   place, the lines that it is in;
//! - a commit entry; a link for each run of blocks of free space in which the log goes on.
//!
//! Fences: 3, and one for each call of an explicit group that stores fresh blocks. So a write over r bytes that begin
//! with a line, in a file with a map of nodes, costs with its two new times (one run of 56 bytes: 2 of log, 1 in place)
//!
//! | r | lines of content | of metadata and commit | together | the paper's scheme, by the same count |
//! |---|---|---|---|---|
//! | 1 KiB | 17 of log, 16 in place | 4 | 37 | 36 |
//! | 2 KiB, 4 KiB | 64 | 6 | 70 | 69 |
//! | 8 KiB | 128 | 6 | 134 | 133 |
//! | 32 KiB | 512 | 7 | 519 | 518 |
//!
//! as long as the pointers are in one line. The one line more is the check of an inode's line, which the paper has not.
//!
//! # Invariants
//!
//! 1. An entry is valid by its check alone, and old bytes behind it by their checksum: no order of stores inside of a
//!    line is relied on.
//! 2. No byte that anyone else can reach changes before `undo.log.fence`. An explicit group is private until its commit
//!    for that reason: the paper stores in place at each write.
//! 3. The runs of a group do not overlap, nor do the lines of two running groups (rule 8 of the trait): the order in
//!    which entries are undone decides nothing, and no group builds on one that may be undone. A run goes on over the
//!    end of a line only if the words on both sides change: it never has a line of another group.
//! 4. In each lane, sequences grow by one, and a group is committed when the next one takes the lane. A group uses the
//!    half of its parity, so that the commit entry of a lane's last group stays whole until the next group has one.
//!    Once a commit has failed, no lane is taken until the next mount.
//! 5. So the lane's last valid commit entry decides: entries of the next sequence are of a group that is not committed,
//!    and all others are void. A commit reclaims the log of the group before it; the paper's checkpoint, at a quarter
//!    of the log or after 5 s, has nothing left to do: what it flushes is durable at the commit. Under the policy
//!    `shared` these two say when one group of all calls is committed.
//! 6. Pointers change in place only after the blocks to which they lead are durable: the blocks are stored before
//!    `undo.log.fence`, the pointers after it. A home that was moved or freed keeps its content, and is nobody else's,
//!    until the commit has returned (rule 3 of the trait): the old pointer leads there if the group is undone.
//! 7. What a group has changed in a block that it frees is dropped: the block is soon another's.
//! 8. Recovery stores what it undoes, and fences, before the incarnation rises, which makes all entries void at once.
//!    It stores bytes also where it finds them in place: whoever put them there may have died before the fence. It can
//!    be interrupted anywhere, and repeated. It makes nothing because of a commit entry, all of which is durable: bytes
//!    in place were fenced before it. So it need not make the entry durable.
//! 9. Blocks that entries take beyond a half are reserved at the begin of the group, and so are those to which homes
//!    are moved: a commit never meets `ENOSPC`. They are free again when the commit has returned. Entries that are left
//!    in them are of a lower sequence, or of another lane, and not valid there.
//! 10. Threads: each store of a group is fenced by the thread that made it. An implicit group is of one thread; a call
//!     of an explicit group hands over what it has stored (`undo.call.hand_over`), as another thread may commit. That
//!     is fresh blocks only.
//!
//! Not covered: rot in the entries of a group that was in flight at a crash. An entry that is not valid ends the group
//! like one that was never stored, so the entries behind it are not applied.
//!
//! # What is not the paper's
//!
//! - *Content is durable when the commit returns.* The paper flushes it at a checkpoint: a write that returned is then
//!   neither durable nor ordered.
//! - *Private groups.* New bytes of less than half of a block wait in memory until the commit, two lines for each. What
//!   that costs against the paper: a copy in memory, and an overlay for the group's own reads; no line or fence more.
//! - *Half of a block, not of its valid bytes.* A new block at the end of a file is stored as a whole, so that it costs
//!   as much however few of its bytes are valid.
//! - *Words.* A run has whole words of 8 bytes, the unit in which the medium stores. Words that keep their value cost
//!   nothing, unless they stand between others of the same line.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the engine |
//! | `commit.rs` | the three epochs |
//! | `recover.rs` | what a crash has left, and how it is undone |

mod commit;
mod recover;

use std::sync::Arc;

use wholly_error::Result;
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use super::draft::{Draft, Drafting, cut};
use super::lanes::{Sites, is_zeros, lines_of_runs};
use super::logging::{Logging, MOVE_FROM, ZEROS, commit_each, most_moved};
use super::patch;
use super::{
    CommitSequence, DataAt, Durability, Engine, Kind, Later, Load, Logged, Operation, Part, Placed, Replay, View,
    Waiting, check_within, read_within,
};
use crate::format::log::{self, LINE, LogArea};
use crate::format::{BLOCK, Lba, Seed};

use super::kind::{Description, Left, Opening};
pub use recover::lane_patches;

const FRESH: Site = Site("undo.fresh");
const MOVED: Site = Site("undo.moved");
const DATA: Site = Site("undo.data");
const ENTRY: Site = Site("undo.entry");
const HEAD: Site = Site("undo.head");
const PAYLOAD: Site = Site("undo.payload");
const LINK: Site = Site("undo.link");
const HAND_OVER: Site = Site("undo.call.hand_over");
const LOG_FENCE: Site = Site("undo.log.fence");
const PLACE_FENCE: Site = Site("undo.place.fence");
const COMMIT: Site = Site("undo.commit");
const COMMIT_FENCE: Site = Site("undo.commit.fence");
const RECOVER: Site = Site("undo.recover");
const RECOVER_FENCE: Site = Site("undo.recover.fence");

/// Where this engine stores.
const SITES: &[Site] = &[
    FRESH,
    MOVED,
    DATA,
    ENTRY,
    HEAD,
    PAYLOAD,
    LINK,
    HAND_OVER,
    LOG_FENCE,
    PLACE_FENCE,
    COMMIT,
    COMMIT_FENCE,
    RECOVER,
    RECOVER_FENCE,
];

/// What is to be known of the engine.
pub const DESCRIPTION: Description = Description {
    name: "undo",
    number: 3,
    about: "The same promise; old content is logged, and a block that changes by half or more gets a new place",
    promises: true,
    takes_disks: false,
    log: Some(|start, wanted| LogArea::for_volume(start, wanted.blocks)),
    zeroes_log: false,
    make_log: None,
    has_heads: false,
    keeps_bitmaps: false,
    sites: &[SITES],
    open: |Opening { region, log, volume, incarnation, tuning, .. }| {
        Some(Box::new(UndoLog::new(region, log?, (volume, incarnation), tuning.move_from)))
    },
    left: |region, logs| Left::of_lanes(logs, |seed, lane| lane_patches(region, logs.area, seed, lane)),
};

/// Where recovery stores. It relies on nothing that may not be durable (invariant 8).
const RECOVERY: patch::Sites = patch::Sites { proof: RECOVER, patch: RECOVER, fence: RECOVER_FENCE };

const ENTRIES: Sites = Sites { undo: ENTRY, head: HEAD, payload: PAYLOAD, link: LINK };

/// A group with more lines in its draft moves whatever it writes to: 1 MiB.
const MOST_LINES: usize = (1 << 20) / LINE;
/// Blocks of a range that a write does not cover, and that a group may make zeros of a part of.
const ENDS: u64 = 2;
/// Lines that are read at a time, to be compared.
const LINES_READ: usize = 8;
/// Lines of log, at most, for the old bytes of one home.
const LINES_OF_HOME: u64 = 2 * (BLOCK / LINE) as u64;

/// Changed bytes of a home.
fn changed(draft: &Draft, home: Lba) -> Result<usize> {
    let mut changed = 0;
    draft.each_old_run_of(home, |_, old| {
        changed += if is_zeros(old) { 0 } else { old.len() };
        Ok(())
    })?;
    Ok(changed)
}

/// What is logged of old bytes when new ones are put over them, line by line: as [`changed`] counts.
#[derive(Default)]
struct WouldChange {
    /// Bytes of runs that have ended.
    logged: usize,
    /// Lines that change.
    lines: usize,
    /// Where the last run ends, how long it is, and whether its old bytes are other than zeros.
    end: u64,
    run: usize,
    is_logged: bool,
}

impl WouldChange {
    /// `at`: where the line is. Lines come in ascending order.
    fn line(&mut self, at: u64, old: &[u8; LINE], new: &[u8; LINE]) {
        let mut words = old.as_chunks::<8>().0.iter().zip(new.as_chunks::<8>().0);
        let differ = |(old, new): (&[u8; 8], &[u8; 8])| old != new;
        let Some(first) = words.clone().position(differ) else { return };
        let last = words.rposition(differ).expect("the first one does");
        let run = first * 8..(last + 1) * 8;
        if self.end != at + run.start as u64 {
            self.logged = self.logged();
            (self.run, self.is_logged) = (0, false);
        }
        (self.end, self.run, self.lines) = (at + run.end as u64, self.run + run.len(), self.lines + 1);
        self.is_logged = self.is_logged || !is_zeros(&old[run]);
    }

    /// Bytes that are logged.
    fn logged(&self) -> usize {
        self.logged + if self.is_logged { self.run } else { 0 }
    }
}

/// See the module.
pub struct UndoLog {
    base: Logging,
    /// A block is moved if at least so many of its bytes change.
    move_from: usize,
}

impl UndoLog {
    /// Over a region on persistent memory, with the log that its superblock names.
    pub fn new(
        region: Arc<dyn Region>,
        area: LogArea,
        (volume, incarnation): (Seed, u64),
        move_from: Option<usize>,
    ) -> Self {
        let base = Logging::new(region, area, (volume, incarnation), FRESH);
        UndoLog { base, move_from: move_from.unwrap_or(MOVE_FROM) }
    }

    /// Puts bytes over those of a home if they are to be stored there: else the home is moved.
    fn stays(&self, part: &mut Part<'_>, home: Lba, offset: usize, bytes: &[u8]) -> Result<bool> {
        if bytes.len() == BLOCK {
            return Ok(false);
        }
        let (region, draft) = (&*self.base.region, &mut *part.draft);
        let at = home.byte() + offset as u64;
        if draft.has_lines(home) {
            draft.put(region, DATA, at, bytes)?;
            return Ok(draft.len() <= MOST_LINES && changed(draft, home)? < self.move_from);
        }
        // Nothing is put where it does not stay.
        let mut count = WouldChange::default();
        let [mut read, mut put] = [[0; LINES_READ * LINE]; 2];
        for (from, part) in cut(LINES_READ * LINE, at, bytes) {
            let first = from / LINE as u64 * LINE as u64;
            let inside = (from - first) as usize;
            let old = &mut read[..(inside + part.len()).next_multiple_of(LINE)];
            read_within(region, first, old)?;
            let new = &mut put[..old.len()];
            new.copy_from_slice(old);
            new[inside..inside + part.len()].copy_from_slice(part);
            for (at, (old, new)) in (first..).step_by(LINE).zip(old.as_chunks().0.iter().zip(new.as_chunks().0)) {
                count.line(at, old, new);
            }
            if count.logged() >= self.move_from || draft.len() + count.lines > MOST_LINES {
                return Ok(false);
            }
        }
        draft.put(region, DATA, at, bytes)?;
        Ok(true)
    }
}

impl Load for UndoLog {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.base.load(at, offset, buf)
    }
}

impl Engine for UndoLog {
    fn name(&self) -> &'static str {
        "undo"
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
        let moved = if logged.bytes > 0 { most_moved(logged.bytes) } else { ENDS };
        let metadata = Logging::most_undo(logged.pointers.saturating_add(moved));
        self.base.lanes.blocks_for(metadata + ENDS * LINES_OF_HOME, 0) + moved
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn blocks_for_call(&self, logged: Logged) -> u64 {
        let homes = logged.zeros + if logged.bytes > 0 { ENDS } else { 0 };
        // Whatever the log has already, it takes so many blocks more.
        let log = (homes * LINES_OF_HOME).div_ceil(log::lines_of(1) - 3);
        most_moved(logged.bytes) + logged.zeros + log
    }

    fn blocks_for_commit(&self, draft: &Draft, later: Later) -> u64 {
        self.base.lanes.blocks_for(later.most_undo(draft), 0)
    }

    fn fills_log(&self, draft: &mut Draft, parts: u64) -> bool {
        draft.logs(self.base.lines_of_part(parts), lines_of_runs)
    }

    fn end_call(&self, part: &mut Part<'_>) -> Result<()> {
        self.base.end_call(part, HAND_OVER)
    }

    fn begin(&self, _kind: Kind) -> GroupId {
        self.base.begin()
    }

    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> Result<()> {
        replay.redo(operation, &mut Drafting { region: &*self.base.region, draft: part.draft, space: part.space })
    }

    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        if let Some(placed) = self.base.write_unseen(part, at, offset, data)? {
            return Ok(placed);
        }
        let home = at.home.expect("else nobody sees it");
        let blocks = (offset + data.len()).div_ceil(BLOCK);
        check_within(&*self.base.region, home.byte(), blocks * BLOCK)?;
        let first = &data[..data.len().min(BLOCK - offset)];
        if self.stays(part, home, offset, first)? {
            return Ok(Placed::Home(first.len()));
        }
        self.base.write_moved(part, MOVED, (home, offset), data)
    }

    fn zero(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> Result<Placed> {
        self.write(part, at, offset, &ZEROS[..len])
    }

    fn read(&self, view: View<'_>, at: &DataAt, offset: usize, buf: &mut [u8]) -> Result<()> {
        let home = at.home.expect("only what has a home is read");
        self.base.load(home, offset, buf)?;
        if let View::Group(draft) = view {
            draft.overlay(home.byte() + offset as u64, buf);
        }
        Ok(())
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
    use wholly_sim::{Random, SimConfig, World};

    use super::*;

    /// What is counted before lines are put is what is logged when they are.
    #[test]
    fn what_would_change_is_what_changes() {
        let mut random = Random(7);
        for round in 0..500 {
            let region = World::new(Arc::new(SimConfig { log_len: BLOCK as u64, ..SimConfig::pmem() })).log();
            // Few bytes, so that many words stay, and many are zeros.
            let mut content = || -> Vec<u8> { (0..BLOCK).map(|_| u8::from(random.below(40) == 0)).collect() };
            let (old, mut new) = (content(), content());
            region.write(FRESH, 0, &old).expect("write");
            let from = random.below(BLOCK as u64) as usize;
            let to = from + random.below((BLOCK - from) as u64 + 1) as usize;
            new[..from].copy_from_slice(&old[..from]);
            new[to..].copy_from_slice(&old[to..]);
            let mut draft = Draft::default();
            draft.put(&*region, DATA, from as u64, &new[from..to]).expect("put");
            let mut count = WouldChange::default();
            for at in (0..BLOCK).step_by(LINE) {
                let line = |of: &[u8]| *of[at..].first_chunk().expect("a line");
                count.line(at as u64, &line(&old), &line(&new));
            }
            let counted = (changed(&draft, Lba(0)).expect("count"), draft.len());
            assert_eq!((count.logged(), count.lines), counted, "round {round}");
        }
    }
}
