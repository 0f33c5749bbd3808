//! The engine `hybrid_log`: FCFS's hybrid fine-grained logging (section III-D) on persistent memory. Metadata is undone
//! by the byte, as in `fine_grained_wal`. Content that is written over other content goes to *pending blocks*, by the
//! cache line, and is written back later, many versions at once.
//!
//! # Terms
//!
//! - *lane*, *half*, *entry*, *settled word*, *sequence*: see `format/log.rs`. *Draft*: see `engine/draft.rs`.
//! - *home*: the block to which the map of a file points.
//! - *pending block*: a block of free space with some lines of a home. *Head*: the line in the table of heads that says
//!   which (`format/head.rs`). A head that counts no more is *wiped*.
//! - *version*: a pending block of a committed group, in memory: its lines, and where. *List*: the versions of one
//!   home, newest first. A version of which no line shows is taken off its list (*covered*); its head stays.
//! - *in doubt*: a group that is the last of its lane, and was committed without a fence between its commit entry and
//!   what went before. Only the sum in the entry tells whether all of it has survived. *Settled*: its settled word says
//!   so. A group *builds on* another of another lane if it changes the same lines of metadata. One that makes blocks
//!   free builds on the last ones of all other lanes. (Its own undo entries settle that of its lane.)
//! - *write back*: bring the latest lines of a list together, at home or in the version that has most of them (which
//!   becomes the home by a *swap* of the pointer in the map), wipe its heads, free its other blocks.
//!
//! # The commit
//!
//! | epoch | what is stored | fence at its end |
//! |---|---|---|
//! | 1 | at the calls: fresh blocks, lines of pending blocks; in the commit: heads, undo entries | |
//! |   | settled words of groups in doubt on which it builds | `hybrid.log.fence` |
//! | 2 | the draft, in place; the commit entry with a sum over all this | `hybrid.commit.fence`: the *commit point* |
//!
//! A group without changes of metadata has one epoch: its commit entry has the sum over heads and lines, and is stored
//! with them. A group whose undo entries do not fit into its lane, or that changes the superblock, has three: the
//! commit entry comes after a fence of its own (`hybrid.place.fence`), and is not in doubt. A group that makes homes
//! free (truncation, removal) and finds versions of them goes on:
//!
//! | epoch | what is stored | fence at its end |
//! |---|---|---|
//! | 3 | wiped heads of these versions | `hybrid.wipe.fence` |
//!
//! Writing back has the epochs
//!
//! | epoch | what is stored | fence at its end |
//! |---|---|---|
//! | 1 | the latest lines of each list; settled words of groups in doubt | `hybrid.home.fence` |
//! | 2 | for each home that is replaced: the settled word of a group that has changed its line | `hybrid.home.fence` |
//! |   | its pointer | `hybrid.swap.fence` |
//! |   | all heads of its list, wiped | `hybrid.wipe.fence` |
//! | 3, .. | of each other list the oldest head that is left, wiped | `hybrid.wipe.fence` |
//!
//! What a crash leaves, one instruction before each fence:
//! - commit, 1: nothing that anyone can reach has changed; heads are of no committed group. A settled word says what is
//!   true anyway: the group had returned.
//! - commit, 2: any part of the draft and of the commit entry. All undo entries are durable. If the entry is not valid,
//!   or the sum is not that of what is there, the group is undone.
//! - commit, with one epoch: if a head or a line is missing, the sum is wrong, and the group is not committed.
//! - commit, 3: the group is committed. Heads that are left are of blocks that nothing uses.
//! - write back, 1: any part of the lines. All heads are there, and what they have the checksum of: they show as
//!   before.
//! - write back, 2: the one pointer or the other. Both blocks have all: the old home with its list. If only the process
//!   has died, the pointer is there, and not durable (invariant 12).
//! - write back, 3 and more: of each list the newer heads are left, and home has all. Their lines show, and are the
//!   newest of all. Heads of a home that was replaced are of a block that nothing uses.
//!
//! A group costs, in lines: for each block of content that is written over, its lines and a head; an undo entry for
//! each 32 bytes of metadata that begin with a changed word, and each changed line; a commit entry; a settled word for
//! each group in doubt on which it builds. A group takes the lane that was given back last: so groups of one thread
//! settle each other. Fences: 1 without changes of metadata, else 2.
//!
//! # States of a block of the volume
//!
//! ```text
//! free --- taken by a group ---> tentative --- commit point ---> pending --- head wiped, fence ---> free
//!   ^                                |
//!   +---------- crash, abort --------+
//! ```
//!
//! # Invariants
//!
//! 1. A head is valid by its check alone: over its other 56 bytes, volume, block, and who has signed it (the commit of
//!    its group in an incarnation, or the mount that began it). No order of stores inside of a line is relied on,
//!    unlike with the valid flag of the paper.
//! 2. The lines of a pending block that its head names do not change after its group's commit: a version becomes the
//!    home only if each of its lines is the latest. A pending block becomes free, or the home, after its head was wiped
//!    and the wipe fenced; so a free block has no valid head. A home that was replaced is free after all heads of its
//!    list are wiped.
//! 3. A head counts if its group is committed: if its sequence is at most that of the lane's last committed group, or
//!    if it is kept. Sequences of aborted groups are used again, and such groups have stored no head.
//! 4. The last group of a lane is committed if its commit entry is valid and it is not in doubt, or is settled, or the
//!    next group of the lane has begun, or the sum in the entry is that of its heads with their lines and of its undo
//!    entries with the bytes that stand where they say. All groups before it are committed: each had returned before
//!    the next one took the lane.
//! 5. What proves a group in doubt does not change before it is settled by an earlier fence: neither its heads nor the
//!    lines that it has changed. None of these lines is in a block that it frees. Who builds on it settles it in its
//!    first epoch; writing back settles all before it wipes a head or swaps a pointer, and an unmount before it writes
//!    the superblock.
//! 6. Heads of one home are wiped in commit order, each after the fence of the one before (ordering property 1 of the
//!    paper, III-E), except of a home that nothing uses any more. Commit entries of earlier groups are not needed by
//!    later ones (property 2): the lane's last one speaks for all.
//! 7. Lists name homes by block of the volume, not by file and block: a map that moves blocks (collapse, insert) leaves
//!    them as they are. A home has a list only while a map says that it has content; the group that ends that drops the
//!    list before anybody else can take the block.
//! 8. Undo entries and heads are about different blocks: those of metadata and those of content.
//! 9. Home bytes that a version covers are read by nobody, and written only with the slot's claim, after readers of an
//!    older list have left (invariants 1 to 3 of the index). A line that is written in part is merged with its latest
//!    version; the core keeps other writers of the file away until the commit has returned (rule 8 of the trait).
//! 10. A pointer is swapped, and the heads of its list are wiped, while nobody reads or changes its file
//!     (`Maps::swap`): no commit has old bytes of it, no reader has looked it up, and the new home is nobody's before
//!     its head is gone. A list whose file is in use, or whose pointer is not one word (it is in the inode), goes home
//!     by its lines, once there is no other to be written back. Who writes back takes lists off the queue together with
//!     their claims, and waits for no claim while it has one. Who claims many lists to drop them does so in ascending
//!     order of their homes. Both wait meanwhile for nobody but readers of these lists, the fence of a settled word,
//!     and the swap of another such thread.
//! 11. Pending blocks are taken from the group's reservation: a commit never meets `ENOSPC`. Writing back takes no
//!     block.
//! 12. Recovery copies no content. In this order, it
//!     - stores and fences again all that proves a group whose writer may have died before the fence, before it makes
//!       anything because of that group: the commit entry; of a group in doubt its heads with their lines, undo entries
//!       and bytes in place, too;
//!     - undoes what is not committed, and fences;
//!     - names all blocks with heads that count. The core, which reads all maps, stores each pointer that leads to one
//!       of them once more, and fences: it may be that of a swap which nobody has fenced. Such a pointer leads to a
//!       block that has a valid head, of a settled group, since the heads of its list are wiped behind
//!       `hybrid.swap.fence`;
//!     - *keeps* the heads of each home that some map says has content: their checks become those of kept heads of the
//!       next incarnation. The others are of homes that were replaced by a swap, or that nothing uses any more;
//!     - raises the incarnation. All heads that were not kept are void at once: those of groups that are not committed,
//!       too, and those that a dead process has wiped without a fence, and that a power failure brings back.
//!
//!     It can be interrupted anywhere, and repeated: a check is one word, and a head that is kept for the next
//!     incarnation counts in this one, too, and in the sum of its group by the check that it had. Places in commit
//!     order go on from the highest of a kept head. After an unmount there are no lists, and the incarnation alone is
//!     raised.
//! 13. Threads: a store of a group is fenced by the thread that made it, or that it was handed over to. An implicit
//!     group is of one thread. So is what each thread of recovery stores.
//! 14. Lines of kept heads are compared with their checksums before they are first read or written back. A list with
//!     damaged lines stays, and those who read them get an error; an unmount says so, and leaves the volume to `fsck`.
//!
//! # Explicit groups
//!
//! States: *running*, from `begin` to the commit or the abort, with calls one at a time; *committing*, through the
//! epochs above, of which the calls have made the lines of content; then committed, or aborted.
//!
//! Each call has stored, when it ends, fresh blocks, lines of pending blocks and content of own blocks. The commit goes
//! through the epochs above. What a crash leaves before those: lines of blocks that are free then, or reserved and
//! without content; no head is there, nor an undo entry.
//!
//! A group costs what the same changes cost in one call: 1 fence without changes of metadata, else 2. Lines that are
//! written over again in the same group are in the same pending block: a head each block, however often it was written.
//!
//! 15. A call hands over what it has stored (`hybrid.call.hand_over`), since the commit may be another thread's. Lines
//!     of pending blocks are in the sum of the commit entry. All else that calls store is reached by a change of
//!     metadata only, so `hybrid.log.fence` comes before anything leads there.
//! 16. Heads are stored in the commit only, from the lines that the draft names then. A group takes a lane for the time
//!     of its commit. So an abort stores nothing, and the blocks of an aborted group have no head that recovery could
//!     take for one of the group that gets its sequence.
//! 17. *Own block*: one that the group took itself, in an earlier call. Its content is stored in place: nobody else can
//!     reach it, and it has no list. A pending block is never an own block of which a map knows.
//! 18. The core lets nobody else write to a file that a running group has changed, nor swap its pointers (`Maps::swap`
//!     says no): the homes that the draft names are those of the maps in the group's draft, until the commit has
//!     returned. Lists of such homes may go home meanwhile: the latest lines of committed groups are the same after it,
//!     and the group's own are in its pending blocks.
//! 19. The group reads its own lines over the latest committed ones. A home that it frees, or that loses its content,
//!     is in its draft no more; the pending block is free when the group has ended. The lists of such homes are dropped
//!     by its commit, like those of an implicit group; until then others read them.
//! 20. A list that nobody has claimed is in the queue: at the rank that its cost says, or at that of lists whose files
//!     were in use; or it has no rank, since it has grown, recovery has found it or its file was in use. A long list
//!     has its rank at once. Damaged ones are in no queue.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the engine |
//! | `pending.rs` | pending blocks and the index: reading and writing lines |
//! | `commit.rs` | the epochs of a commit |
//! | `checkpoint.rs` | writing back, and dropping |
//! | `queue.rs` | which lists wait for that |
//! | `recover.rs` | what a crash has left, and how it is repaired |

mod checkpoint;
mod commit;
mod pending;
mod queue;
mod recover;

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use index::{LinesVersion, SparseIndex, VersionArena};
use sync::{AtomicU64, Mutex, OnceLock, Ordering};
use wholly_error::Result;
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use super::draft::{Draft, Drafting};
use super::kind::{Description, Opening, Tuning};
use super::lanes::Sites;
use super::logging::{Logging, ZEROS, commit_each};
use super::marks::Marks;
use super::patch;
use super::{
    CommitSequence, DataAt, Durability, Engine, Kind, Later, Load, Logged, Mapped, Maps, Mistake, Operation, Part,
    Placed, Reclaim, Replay, StorageView, View, Waiting,
};
use crate::format::head::{HeadSeed, HeadTable, LineSeed};
use crate::format::log::{LINE, LogArea};
use crate::format::{BLOCK, Lba, Seed};
use checkpoint::Stuck;
use queue::Queue;

pub use pending::Pended;
use recover::Counted;

const FRESH: Site = Site("hybrid.fresh");
const PENDING: Site = Site("hybrid.pending");
const HEAD: Site = Site("hybrid.head");
const UNDO: Site = Site("hybrid.undo");
const LINK: Site = Site("hybrid.link");
const HAND_OVER: Site = Site("hybrid.call.hand_over");
const LOG_FENCE: Site = Site("hybrid.log.fence");
const PLACE_FENCE: Site = Site("hybrid.place.fence");
const COMMIT: Site = Site("hybrid.commit");
const COMMIT_FENCE: Site = Site("hybrid.commit.fence");
const SETTLE: Site = Site("hybrid.settle");
const HOME: Site = Site("hybrid.home");
const HOME_FENCE: Site = Site("hybrid.home.fence");
const SWAP: Site = Site("hybrid.swap");
const SWAP_FENCE: Site = Site("hybrid.swap.fence");
const WIPE: Site = Site("hybrid.wipe");
const WIPE_FENCE: Site = Site("hybrid.wipe.fence");
const RECOVER_PROOF: Site = Site("hybrid.recover.proof");
const RECOVER: Site = Site("hybrid.recover");
const RECOVER_FENCE: Site = Site("hybrid.recover.fence");
const KEEP: Site = Site("hybrid.keep");
const KEEP_FENCE: Site = Site("hybrid.keep.fence");

/// Where this engine stores.
const SITES: &[Site] = &[
    FRESH,
    PENDING,
    HEAD,
    UNDO,
    LINK,
    HAND_OVER,
    LOG_FENCE,
    PLACE_FENCE,
    COMMIT,
    COMMIT_FENCE,
    SETTLE,
    HOME,
    HOME_FENCE,
    SWAP,
    SWAP_FENCE,
    WIPE,
    WIPE_FENCE,
    RECOVER_PROOF,
    RECOVER,
    RECOVER_FENCE,
    KEEP,
    KEEP_FENCE,
];

/// Where recovery stores.
const RECOVERY: patch::Sites = patch::Sites { proof: RECOVER_PROOF, patch: RECOVER, fence: RECOVER_FENCE };

const ENTRIES: Sites = Sites { undo: UNDO, head: HEAD, payload: PENDING, link: LINK };

/// Ends of a range that a group may make zeros.
const ENDS: u64 = 2;
/// How content is written back: as the engine does it, or by a variant that the paper compares it with (section VI-D),
/// for measurement only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WriteBack {
    /// Different blocks by several threads, cheapest first, each block's latest lines at once.
    #[default]
    Selective,
    /// The variant SOC: each pending block by itself, in commit order, by one thread.
    CommitOrder,
    /// The variant SYNC: as `Selective`, but a group's content by the next call that writes.
    AtOnce,
}

impl WriteBack {
    /// A home with more heads than this is written back by the next call that writes (the paper's threshold, III-D).
    fn most_versions(self) -> usize {
        match self {
            WriteBack::Selective => 5,
            WriteBack::CommitOrder => usize::MAX,
            WriteBack::AtOnce => 0,
        }
    }
}

/// What is to be known of the engine.
pub const DESCRIPTION: Description = Description {
    name: "hybrid_log",
    number: 2,
    about: "The same promise; content that is written over other content is stored once, and copied home later",
    promises: true,
    takes_disks: false,
    log: Some(|start, wanted| LogArea::for_volume(start, wanted.blocks)),
    zeroes_log: false,
    make_log: None,
    has_heads: true,
    keeps_bitmaps: false,
    sites: &[SITES],
    open: |Opening { region, log, heads, version, volume, incarnation, tuning, .. }| {
        Some(Box::new(HybridLog::new(region, (log?, heads?), (version, volume, incarnation), tuning)))
    },
    left: recover::left,
};

/// The last group that was committed in a lane.
#[derive(Clone, Debug)]
struct Last {
    sequence: u64,
    /// The check of its commit entry.
    check: u64,
    is_settled: bool,
    /// Lines of the volume that it has changed in place, in ascending order.
    lines: Vec<u64>,
}

/// Blocks, at most, that so many bytes of content take that are written over others.
fn most_pending(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { bytes.div_ceil(BLOCK as u64) + 1 }
}

/// See the module.
pub struct HybridLog {
    base: Logging,
    how: WriteBack,
    mistake: Option<Mistake>,
    table: HeadTable,
    /// How often the volume was mounted.
    incarnation: AtomicU64,
    line_seed: LineSeed,
    /// By lane. Held over the fence of a settled word.
    lasts: Vec<Mutex<Last>>,
    /// From a home to its list.
    index: SparseIndex,
    arena: VersionArena<LinesVersion>,
    /// Lists that nobody is writing back.
    queue: Queue,
    /// How many blocks are pending.
    pending: CachePadded<AtomicU64>,
    /// Held by who writes back in commit order: one thread at a time.
    one_by_one: Mutex<()>,
    /// Heads that recovery has found, until they are kept and entered.
    recovered: Mutex<Vec<Vec<Counted>>>,
    /// Blocks of kept heads whose lines nobody has looked at yet.
    unverified: OnceLock<Marks>,
    stuck: Stuck,
}

impl HybridLog {
    /// Over a region on persistent memory, with the log and the table that its superblock names.
    pub fn new(
        region: Arc<dyn Region>,
        (area, table): (LogArea, HeadTable),
        (version, volume, incarnation): (u32, Seed, u64),
        Tuning { write_back: how, trial, .. }: Tuning,
    ) -> Self {
        let last = || Mutex::new(Last { sequence: 0, check: 0, is_settled: true, lines: Vec::new() });
        HybridLog {
            base: Logging::with(region, (area, trial.lanes_in_turn), (volume, incarnation), FRESH),
            how,
            mistake: trial.mistake,
            table,
            incarnation: AtomicU64::new(incarnation),
            line_seed: LineSeed::of(volume, version),
            lasts: (0..area.lanes).map(|_| last()).collect(),
            index: SparseIndex::default(),
            arena: VersionArena::new(),
            queue: Queue::default(),
            pending: CachePadded::default(),
            one_by_one: Mutex::default(),
            recovered: Mutex::default(),
            unverified: OnceLock::new(),
            stuck: Stuck::default(),
        }
    }

    #[inline]
    fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    fn head_seed(&self) -> HeadSeed {
        HeadSeed::of(self.base.volume, self.incarnation.load(Ordering::Acquire))
    }
}

impl Load for HybridLog {
    #[inline]
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.base.load(at, offset, buf)
    }
}

/// The view of mutators: it notes the homes with versions that become free.
struct Noting<'d> {
    engine: &'d HybridLog,
    drafting: Drafting<'d>,
}

impl Load for Noting<'_> {
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()> {
        self.drafting.load(at, offset, buf)
    }
}

impl StorageView for Noting<'_> {
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()> {
        self.drafting.update(site, at, offset, bytes)
    }

    fn fresh(&mut self) -> Lba {
        self.drafting.fresh()
    }

    fn release(&mut self, at: Lba) {
        let Drafting { draft, space, .. } = &mut self.drafting;
        draft.pended.releases = true;
        self.engine.leave(&mut draft.pended, *space, at);
        // With what is changed there: it would be a part of what proves the group.
        self.drafting.release(at);
    }
}

impl Engine for HybridLog {
    fn name(&self) -> &'static str {
        "hybrid_log"
    }

    fn recover(&self) -> Result<Option<Waiting>> {
        self.undo_and_find()
    }

    fn keep(&self, live: &Marks, used: &Marks) -> Result<()> {
        self.sign(live, used)
    }

    fn start(&self, incarnation: u64) -> Result<()> {
        self.base.start(incarnation);
        self.incarnation.store(incarnation, Ordering::Release);
        self.enter();
        Ok(())
    }

    fn log_blocks(&self, logged: Logged) -> u64 {
        let undo = self.base.lanes.blocks_for(Logging::most_undo(logged.pointers), 0);
        undo + if logged.bytes > 0 { most_pending(logged.bytes) } else { ENDS }
    }

    fn has_groups(&self) -> bool {
        true
    }

    fn blocks_for_call(&self, logged: Logged) -> u64 {
        most_pending(logged.bytes) + logged.zeros
    }

    fn blocks_for_commit(&self, draft: &Draft, later: Later) -> u64 {
        self.base.lanes.blocks_for(later.most_undo(draft), 0)
    }

    fn end_call(&self, part: &mut Part<'_>) -> Result<()> {
        self.base.end_call(part, HAND_OVER)
    }

    fn begin(&self, _kind: Kind) -> GroupId {
        self.base.begin()
    }

    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> Result<()> {
        if let Operation::Map { count, to: Mapped::Reserved(start), .. } = *operation
            && (self.has_pending() || !part.draft.pended.blocks.is_empty())
        {
            // They may have had content until now.
            (0..count).for_each(|i| self.leave(&mut part.draft.pended, part.space, Lba(start.0 + i)));
        }
        let drafting = Drafting { region: &*self.base.region, draft: part.draft, space: part.space };
        replay.redo(operation, &mut Noting { engine: self, drafting })
    }

    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed> {
        if let Some(placed) = self.base.write_unseen(part, at, offset, data)? {
            return Ok(placed);
        }
        let home = at.home.expect("else nobody sees it");
        // What is left of the lines at the ends is soon needed.
        for end in [offset, offset + data.len()].into_iter().filter(|end| end % LINE != 0) {
            self.base.region.prefetch(home.byte() + (end / LINE * LINE) as u64);
        }
        let mut spare = part.draft.pended.spare(home, offset, data.len());
        for (i, offset, inside) in pending::blocks(offset, data.len()) {
            let at = DataAt { block: at.block + i, home: Some(Lba(home.0 + i)), ..*at };
            self.pend(part, &mut spare, &at, offset, &data[inside])?;
        }
        Ok(Placed::Home(data.len()))
    }

    fn zero(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> Result<Placed> {
        self.write(part, at, offset, &ZEROS[..len])
    }

    fn read(&self, view: View<'_>, at: &DataAt, offset: usize, buf: &mut [u8]) -> Result<()> {
        let home = at.home.expect("only what has a home is read");
        let own = match view {
            View::Group(draft) if !draft.pended.blocks.is_empty() => Some(&draft.pended),
            _ => None,
        };
        if !self.has_pending() && own.is_none() {
            return self.base.load(home, offset, buf);
        }
        pending::blocks(offset, buf.len()).try_for_each(|(i, offset, inside)| {
            let (home, buf) = (Lba(home.0 + i), &mut buf[inside]);
            self.read_block(home, offset, buf)?;
            own.map_or(Ok(()), |own| own.overlay(&*self.base.region, home, offset, buf))
        })
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

    #[inline]
    fn pending_blocks(&self) -> u64 {
        self.pending.load(Ordering::Acquire).saturating_sub(self.stuck.blocks.load(Ordering::Relaxed))
    }

    fn index_bytes(&self) -> u64 {
        self.index.memory_bytes() + self.arena.memory_bytes() + self.queue.memory_bytes()
    }

    fn writes_back(&self) -> bool {
        true
    }

    fn committed(&self) -> u64 {
        self.base.committed()
    }

    fn is_due(&self) -> bool {
        self.has_pending() && self.queue.is_due()
    }

    fn checkpoint(&self, space: &dyn Reclaim, maps: &dyn Maps) -> Result<()> {
        if space.wanted() == u64::MAX
            && let Some(settling) = self.settle(None, None)?
        {
            self.base.region.fence(HOME_FENCE)?;
            settling.end();
        }
        let is_last = space.wanted() == u64::MAX;
        self.write_back(space, maps)?;
        if is_last { self.check_left() } else { Ok(()) }
    }
}
