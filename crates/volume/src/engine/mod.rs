//! What the core and an engine say to each other. Nothing here knows `fs`.
//!
//! # Terms
//!
//! - *operation*: a logical change of metadata. The core records it in a group; the engine decides when its mutator
//!   runs, by [`Replay::redo`], and over which [`StorageView`]: `none` at the call and in place, a page engine at the
//!   commit and on copies of committed pages, a logging engine inside the commit on a view that logs old bytes.
//! - *home*: the block in which committed bytes of a file's block are.
//! - *explicit group*: one that has any number of calls, in the drafts of which nothing is shared with others: what is
//!   (names in directories, their times) the core records inside of the commit.
//! - *part*: a group, with the space that was reserved for it, and its draft.
//! - *draft*: what a running group has made of metadata, where that is not on the medium before the commit. The core
//!   reads through it whatever it reads for the group.
//!
//! # Rules
//!
//! 1. Operations are logical, never bytes at a place. Places in them are hints, which a mutator checks.
//! 2. A mutator takes blocks from the group's reservation only, so that it never meets `ENOSPC`.
//! 3. What a group released is given back only when no crash takes the group back: when [`Engine::commit`] has
//!    returned, by [`Allocate::release`]; with an engine that orders, when [`Engine::durable`] has come to it; or
//!    later, by [`Reclaim`] (rule 10).
//! 4. `commit` takes several groups; `wait` is apart from it, so that a group can be atomic now and durable later.
//! 5. Each store to the medium names its [`Site`]; an engine lists its own in `SITES`.
//! 6. Data of a block goes to its home, or elsewhere if the engine says so: then the core records the new pointer. The
//!    engine decides for as many blocks at a time as go the same way; the core goes on with the rest.
//! 7. The core tells at the begin how much a group is going to log ([`Logged`]), so that the blocks for that are
//!    reserved like all others ([`Engine::log_blocks`]). An explicit group is asked about at each call, with its draft
//!    as it is *before* the call: then it has the blocks of the call, [`Engine::blocks_for_call`] and
//!    [`Engine::blocks_for_commit`] together. After the call, `blocks_for_commit` of the draft must find enough in what
//!    the call has left; so `blocks_for_call` covers what the call adds to the draft.
//! 8. The core keeps others from what a group changes, by its locks, until [`Engine::commit`] has returned: no two
//!    running groups change the same line. With an engine that [orders](Engine::orders) that is the order: others read
//!    what is not durable, and whatever they change because of it is after it in the order.
//! 9. Calls of an explicit group may come from several threads, one at a time: each ends by [`Engine::end_call`]. What
//!    a call stores early nobody else can reach.
//! 10. Blocks that an engine keeps, for committed content or because a crash may bring back what they had, count as
//!     free: the core asks for them with `checkpoint`.
//!
//! 11. On a volume with bitmaps, the core records what a group has taken and freed, on the whole, as the last
//!     operations before [`Engine::commit`] ([`Operation::Toggle`]). Groups that run at the same time change the same
//!     bitmap blocks: so the engine makes these changes in commit order, on what is committed then. No call changes a
//!     bit, and an abort none.
//!
//! 12. Content that an explicit group has written elsewhere may stay with the engine, under a *late* number
//!     ([`Allocate::take_late`]), which its map has meanwhile. It gets blocks in the order of the file, when it takes
//!     much memory ([`Engine::is_crowded`]), and before the commit: the core takes them, tells the engine
//!     ([`Engine::place`]) and sets the pointers. What is removed before that is never written.

pub mod draft;
pub mod fine_grained_wal;
pub mod hybrid_log;
pub mod kind;
mod lanes;
mod logging;
pub mod marks;
pub mod multi_queue;
pub mod none;
pub mod op_log;
pub mod page_cache;
pub mod page_cache_wal;
pub mod page_engine;
pub mod patch;
pub mod shadow;
pub mod undo;

use sync::{AtomicU64, Ordering};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};
use wholly_vfs::GroupId;

use crate::format::bitmap::BitmapAt;
use crate::format::dir::Head;
pub use crate::format::inode::InodeMap;
use crate::format::inode::Times;
use crate::format::pointer::MAX_VOLUME_BLOCKS;
use crate::format::{BLOCK, Fault, Lba, Run};
use draft::Draft;
use marks::Marks;

/// An inode, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InoGen {
    /// Its number.
    pub ino: u64,
    /// Which life.
    pub generation: u32,
}

/// New values of fields of an inode; `None` is left as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Nothing was there before: all that is `None` becomes 0.
    pub born: bool,
    /// Type and permission bits.
    pub mode: Option<u32>,
    /// The user who owns it.
    pub uid: Option<u32>,
    /// The group of users that owns it.
    pub gid: Option<u32>,
    /// Number of names.
    pub links: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// All four times: registers, of which the latest valid value holds.
    pub times: Option<Times>,
    /// The directory that a directory is in.
    pub parent: Option<u64>,
    /// The number of a device.
    pub rdev: Option<u64>,
    /// A short target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// The checksum of a long one.
    pub target_sum: Option<u32>,
}

impl Fields {
    /// Adds newer values.
    pub fn merge(&mut self, newer: &Fields) {
        fn newest<T: Clone>(old: &mut Option<T>, new: &Option<T>) {
            if new.is_some() {
                old.clone_from(new);
            }
        }
        self.born |= newer.born;
        newest(&mut self.mode, &newer.mode);
        newest(&mut self.uid, &newer.uid);
        newest(&mut self.gid, &newer.gid);
        newest(&mut self.links, &newer.links);
        newest(&mut self.size, &newer.size);
        newest(&mut self.times, &newer.times);
        newest(&mut self.parent, &newer.parent);
        newest(&mut self.rdev, &newer.rdev);
        newest(&mut self.target, &newer.target);
        newest(&mut self.target_sum, &newer.target_sum);
    }
}

/// What blocks of a map become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Holes. Their blocks are released.
    Nothing,
    /// Consecutive blocks from this one on, with content.
    Written(Lba),
    /// The same, without: they read as zeros.
    Reserved(Lba),
}

/// The place of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryAt {
    /// The number of its leaf.
    pub leaf: u64,
    /// The block of the leaf. With an engine that moves blocks, the group may have moved it since.
    pub lba: Lba,
    /// The slot in the leaf.
    pub slot: usize,
}

/// One logical change of metadata.
#[derive(Clone, Debug)]
pub enum Operation<'o> {
    /// Sets fields of an inode.
    Assign {
        /// The inode.
        on: InoGen,
        /// The fields.
        fields: &'o Fields,
    },
    /// Sets `count` entries of the map of an inode's content. Other blocks that were there are released.
    Map {
        /// The inode.
        on: InoGen,
        /// The first block of the file.
        first: u64,
        /// How many.
        count: u64,
        /// What they become.
        to: Mapped,
    },
    /// Moves all entries of the map from `from` on by `by` blocks, up or down. The blocks that they pass are holes.
    Shift {
        /// The inode.
        on: InoGen,
        /// The first block that moves.
        from: u64,
        /// How far.
        by: i64,
    },
    /// Enters a name. Its leaf has room.
    Insert {
        /// The directory.
        dir: InoGen,
        /// The entry.
        head: Head,
        /// The name.
        name: &'o [u8],
        /// Where it fits.
        at: EntryAt,
    },
    /// Removes a name.
    Remove {
        /// The directory.
        dir: InoGen,
        /// The key of the entry.
        key: u64,
        /// Where it is.
        at: EntryAt,
    },
    /// Frees an inode with all that it has.
    Free {
        /// The inode.
        what: InoGen,
    },
    /// Gives an inode other extended attributes, whose bytes are in these blocks. Those of the former are released.
    Xattrs {
        /// The inode.
        on: InoGen,
        /// Where they are.
        runs: &'o [Run],
        /// How many bytes.
        bytes: u32,
        /// Their checksum.
        sum: u32,
    },
    /// Changes bits of a bitmap block, which have the other value, and the count of its zeros with them.
    Toggle {
        /// The bitmap block.
        bitmap: BitmapAt,
        /// The block of the volume that it is.
        at: Lba,
        /// Which bits.
        bits: &'o [Toggled],
    },
    /// A structure change: in a group of its own, never undone.
    Structure(Structure),
    /// One, too: the inode file gives back blocks in which no inode is in use.
    GiveBack {
        /// Which, in ascending order: the first of each run, and how many. All are in one node of its map.
        blocks: &'o [(u64, u64)],
        /// The highest generation in blocks that it has ever given back.
        generation_floor: u32,
    },
}

/// Bits of a bitmap block, in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Toggled {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// What they become.
    pub to: bool,
}

/// What changes of the shape of all directories together; no inode has this number.
pub const TREE: u64 = 0;
/// What changes of the shape of the inode file; no inode has this number.
pub const INODE_FILE: u64 = u64::MAX;

impl Operation<'_> {
    /// The inodes that it changes, [`TREE`] and [`INODE_FILE`] among them.
    pub fn changes(&self) -> [Option<u64>; 2] {
        match self {
            // What moves to another parent has read of the tree above, which it does not write.
            Operation::Assign { on, fields } => {
                [Some(on.ino), (!fields.born && fields.parent.is_some()).then_some(TREE)]
            }
            Operation::Insert { dir, head, .. } => [Some(dir.ino), Some(head.ino)],
            Operation::Map { on, .. } | Operation::Shift { on, .. } | Operation::Xattrs { on, .. } => {
                [Some(on.ino), None]
            }
            Operation::Remove { dir, .. } => [Some(dir.ino), None],
            Operation::Free { what } => [Some(what.ino), None],
            // What is in a bitmap block follows from the rest of the group.
            Operation::Toggle { .. } => [None, None],
            Operation::Structure(Structure::GrowInodes { .. }) | Operation::GiveBack { .. } => [Some(INODE_FILE), None],
            Operation::Structure(
                Structure::FirstLeaf { dir } | Structure::Split { dir, .. } | Structure::Merge { dir, .. },
            ) => [Some(dir.ino), None],
        }
    }
}

/// A change of structure.
#[derive(Clone, Copy, Debug)]
pub enum Structure {
    /// Gives an empty directory its first leaf.
    FirstLeaf {
        /// The directory.
        dir: InoGen,
    },
    /// Replaces a leaf by two.
    Split {
        /// The directory.
        dir: InoGen,
        /// The number of the leaf.
        leaf: u64,
    },
    /// Replaces a leaf without entries, and its sibling without entries, by their parent.
    Merge {
        /// The directory.
        dir: InoGen,
        /// The number of one of them.
        leaf: u64,
    },
    /// Gives the inode file blocks that it has not: where it has given some back, or at its end.
    GrowInodes {
        /// The first one.
        first: u64,
        /// How many.
        blocks: u64,
    },
}

/// What tests change of engines. No other value than the default serves a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The most pages of `page_cache_wal`, instead of what `cache_bytes` says.
    pub pages: Option<usize>,
    /// Blocks of its ring that are used, if it has more.
    pub ring: Option<u64>,
    /// Whether groups on `hybrid_log` take lanes of the log in turn: those of one thread are then in several lanes.
    pub lanes_in_turn: bool,
    /// `page_cache_wal`: a commit waits for the medium with its locks held, as Valor's do. For measurement alone.
    pub is_locked: bool,
    /// `op_log:replay`: what a group has recorded is kept, and done once more at its commit, as in CFS's paper; it must
    /// come to the same bytes. For comparison alone.
    pub replays: bool,
    /// `multi_queue`: its journal believes the window of a device's queues, and no checksums, as in the paper.
    pub believes_window: bool,
    /// `multi_queue`: new content is journaled, whatever the volume says.
    pub journals_content: bool,
    /// `multi_queue`: transactions take queues in turn, and not by the thread.
    pub queues_in_turn: bool,
    /// `multi_queue`: what a transaction hands over. For measurement alone.
    pub form: wholly_blocks::multi_queue::Form,
    /// `multi_queue`: a page of metadata that a group changes is locked until the group is durable. For measurement
    /// alone.
    pub locks_pages: bool,
    /// `multi_queue`: where it is noted how long pages are held.
    pub holds: Option<&'static Holds>,
    /// A mistake of its journal.
    pub journal: Option<wholly_blocks::multi_queue::Mistake>,
    /// A mistake.
    pub mistake: Option<Mistake>,
}

/// For how long commits keep others from changing pages.
#[derive(Debug, Default)]
pub struct Holds {
    /// Commits.
    pub count: AtomicU64,
    /// Sum of their times.
    pub ns: AtomicU64,
}

impl Holds {
    fn note(&self, since: std::time::Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.ns.fetch_add((sync::now() - since).as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Each is its own.
impl PartialEq for Holds {
    fn eq(&self, other: &Holds) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Holds {}

impl Trial {
    /// Nothing is changed.
    pub const NONE: Trial = Trial {
        pages: None,
        ring: None,
        lanes_in_turn: false,
        is_locked: false,
        replays: false,
        believes_window: false,
        journals_content: false,
        queues_in_turn: false,
        form: wholly_blocks::multi_queue::Form::Described,
        locks_pages: false,
        holds: None,
        journal: None,
        mistake: None,
    };
}

impl Default for Trial {
    fn default() -> Self {
        Trial::NONE
    }
}

/// Mistakes that the explorer must see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The page engine: at the end of a call, pages get the lines of the running group, as if metadata could be
    /// stolen.
    MetadataStolen,
    /// The page engine: a commit writes the lines of another group that runs, where they are in the same blocks.
    OthersLines,
    /// The page engine: pages go home before their record is durable.
    HomeBeforeLog,
    /// `page_cache_wal`: a record does not say which blocks are void.
    NoVoid,
    /// `page_cache_wal`: all that is ordered counts as durable, so that what a group has freed is given out at the
    /// order.
    FreeAtOrder,
    /// `page_cache_wal`: no group names those that it comes after.
    AfterNothing,
    /// `page_cache_wal`: a wait covers its own group, and what that depends on.
    WaitsForOwn,
    /// The page engine: what is written over is written in place, in no journal (M16).
    ContentInPlace,
    /// The page engine: an inode with a new size is left out.
    SizeForgotten,
    /// `op_log`: content that gets its place late does not come there.
    PlacedNowhere,
    /// `op_log:replay`: the list of operations forgets names that go.
    RemoveForgotten,
    /// `op_log`: no bit of a block is changed.
    BitsKept,
    /// `op_log`: the bit of an inode stays when that is freed.
    InodeKept,
    /// `op_log`: a group's changes are made on the pages as they were at its calls.
    RedoOutOfOrder,
    /// `op_log`: the bit of an orphan stays when that is freed.
    OrphanKept,
    /// `op_log`: an inode that loses its last name is no orphan.
    OrphanForgotten,
    /// `hybrid_log`: groups are ordered by their begin.
    OrderOfBegin,
    /// `hybrid_log`: the heads of a list are wiped newest first.
    NewestFirst,
    /// `hybrid_log`: no group in doubt is settled.
    NeverSettled,
}

/// Reads metadata: the storage version.
pub trait Load {
    /// Reads bytes of a block.
    ///
    /// # Errors
    /// The medium's.
    fn load(&self, at: Lba, offset: usize, buf: &mut [u8]) -> Result<()>;
}

/// What mutators write through.
pub trait StorageView: Load {
    /// Changes bytes of a block.
    ///
    /// # Errors
    /// The medium's.
    fn update(&mut self, site: Site, at: Lba, offset: usize, bytes: &[u8]) -> Result<()>;

    /// A block for metadata, from the group's reservation. Its content is undefined.
    fn fresh(&mut self) -> Lba;

    /// Gives a block up, at the end of the group.
    fn release(&mut self, at: Lba);

    /// Prepares a block for changes. Returns the block to change: itself, or a copy that only the group can reach. Then
    /// the caller stores a pointer to the copy, and releases the block.
    ///
    /// # Errors
    /// The medium's.
    fn shadow(&mut self, at: Lba) -> Result<Lba> {
        Ok(at)
    }

    /// Whether [`shadow`](Self::shadow) may return another block.
    fn moves_blocks(&self) -> bool {
        false
    }
}

/// The space of a group. Implemented by the core.
pub trait Allocate {
    /// Takes up to `count` consecutive blocks of the reservation.
    fn take(&mut self, count: u64) -> Run;

    /// The same, but takes numbers alone, which no block has ([`is_late`]). The blocks stay reserved.
    fn take_late(&mut self, count: u64) -> Run;

    /// Gives blocks up, at the end of the group.
    fn release(&mut self, run: Run);
}

/// A group, as the core hands it to an engine.
pub struct Part<'p> {
    /// Which.
    pub group: GroupId,
    /// Its space.
    pub space: &'p mut dyn Allocate,
    /// Its draft.
    pub draft: &'p mut Draft,
}

/// How much a group logs at most, besides the few entries of inodes and names that each may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Logged {
    /// Pointers of maps that change, as far as the core knows: where it expects content to stay in its blocks, those of
    /// an engine that moves it are not among them. Such an engine adds a pointer for each block of `bytes`.
    pub pointers: u64,
    /// Bytes of data that are written over others.
    pub bytes: u64,
    /// Parts of blocks that become zeros.
    pub zeros: u64,
    /// Blocks that it frees, besides those to which these pointers have led.
    pub freed: u64,
    /// Bitmap blocks that change.
    pub bitmaps: u64,
}

/// The mutators. Implemented by the core.
pub trait Replay: Send + Sync {
    /// Makes the change of an operation in the storage version.
    ///
    /// # Errors
    /// The medium's, and corrupt metadata. Never for want of space.
    fn redo(&self, operation: &Operation<'_>, view: &mut dyn StorageView) -> Result<()>;

    /// The inode file, for an engine that moves blocks.
    fn inode_file(&self) -> Option<&dyn InodeFile> {
        None
    }
}

/// The inode file, for an engine that moves its blocks inside of a commit. Implemented by the core.
pub trait InodeFile {
    /// The committed map.
    fn map(&self) -> InodeMap;

    /// Sets the pointer of one block. The former block is released.
    ///
    /// # Errors
    /// The medium's, and corrupt metadata.
    fn place(&self, view: &mut dyn StorageView, map: &mut InodeMap, block: u64, at: Lba) -> Result<()>;

    /// Adds `blocks` empty blocks from `first` on. Returns where they are.
    ///
    /// # Errors
    /// As `place`.
    fn grow(&self, view: &mut dyn StorageView, map: &mut InodeMap, first: u64, blocks: u64) -> Result<Vec<Lba>>;

    /// Gives back runs of blocks.
    ///
    /// # Errors
    /// As `place`.
    fn give_back(
        &self,
        view: &mut dyn StorageView,
        map: &mut InodeMap,
        blocks: &[(u64, u64)],
        generation_floor: u32,
    ) -> Result<()>;

    /// This map is committed.
    fn publish(&self, map: InodeMap);
}

/// Whether a number stands for content that has no block yet (rule 12).
#[inline]
pub fn is_late(at: Lba) -> bool {
    at.0 >= MAX_VOLUME_BLOCKS
}

/// The first of the numbers that stand for blocks of the inode file ([`inode_block`]).
const INODE_BLOCKS: u64 = 1 << 40;

/// What stands for a block of the inode file with an engine that moves those: the engine knows where it is. No block of
/// a volume has such a number.
pub fn inode_block(index: u64) -> Lba {
    Lba(INODE_BLOCKS + index)
}

/// The index in the inode file of what [`inode_block`] returns.
pub fn inode_index(at: Lba) -> Option<u64> {
    at.0.checked_sub(INODE_BLOCKS)
}

/// What is going to change at the commit of an explicit group, besides its draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Later {
    /// Names of directories that were there before.
    pub names: u64,
    /// Such directories whose fields change.
    pub dirs: u64,
    /// Other inodes.
    pub inodes: u64,
    /// Pointers of maps.
    pub pointers: u64,
    /// Bitmap blocks.
    pub bitmaps: u64,
}

impl Later {
    /// Undo entries, at most, with those of a draft: five slots and their live word for a name; two for the fields of
    /// each line and for each pointer, which may be in a line of its own.
    pub fn most_undo(&self, draft: &Draft) -> u64 {
        let of_inodes = 12 * self.names + 8 * (self.dirs + self.inodes);
        (draft.most_undo() + of_inodes).saturating_add(self.pointers.saturating_mul(2))
    }
}

/// The maps of files, for a checkpoint. Implemented by the core.
pub trait Maps {
    /// Lets a block of a file be in another block of the volume: if it is in the first of two and its pointer can be
    /// changed by one store, `store` is called with the byte of the volume and the word that leads to the second.
    /// Nobody reads, changes or frees the file meanwhile, and no running group has changed it. Returns whether it was
    /// called; it waits for nobody but another swap.
    ///
    /// # Errors
    /// The medium's, and those of `store`.
    fn swap(
        &self,
        block: (InoGen, u64),
        places: (Lba, Lba),
        store: &mut dyn FnMut(u64, u64) -> Result<()>,
    ) -> Result<bool>;

    /// Whether a block of this file can have another place now, as far as can be said before.
    fn may_swap(&self, file: InoGen) -> bool;

    /// The files of the blocks so far can be let go: the engine has claimed nothing any more.
    fn lot_ended(&self);
}

/// The space that a checkpoint makes. Implemented by the core.
pub trait Reclaim {
    /// How many blocks are to become free yet; [`u64::MAX`]: as many as can. Other threads take blocks meanwhile, and
    /// make blocks free.
    fn wanted(&self) -> u64;

    /// Whether so many more lines of content may be stored for that. Once it is asked and says yes, they are.
    fn allows(&self, lines: u64) -> bool;

    /// Takes blocks that are free: no crash brings them back.
    fn reclaim(&self, freed: Run);
}

/// A block of a file that may have got another place by [`Maps::swap`]: the process may have died between the store of
/// the pointer and its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The block.
    pub block: (InoGen, u64),
    /// The block of the volume to which the pointer leads then.
    pub to: Lba,
}

/// Committed content that recovery has found, and that is not at home. If a pointer leads to one of the blocks, it may
/// not be durable ([`Moved`]).
pub struct Waiting {
    /// The blocks that have it.
    pub blocks: Marks,
    /// The blocks to which it belongs.
    pub homes: Marks,
}

/// Which version a reader gets.
#[derive(Clone, Copy, Debug)]
pub enum View<'v> {
    /// What is committed.
    Committed,
    /// What the explicit group with this draft sees.
    Group(&'v Draft),
}

/// Blocks of a file, for a read or a write.
#[derive(Clone, Copy, Debug)]
pub struct DataAt {
    /// The file.
    pub file: InoGen,
    /// The first block of the file.
    pub block: u64,
    /// The block of the volume in which it is; consecutive ones follow. `None`: nowhere yet.
    pub home: Option<Lba>,
    /// Whether the home has bytes of the file. Without, what a write leaves out becomes zeros.
    pub valid: bool,
    /// Whether the explicit group that runs took the home itself, in an earlier call: nobody else can reach it.
    pub own: bool,
    /// Whether content that goes elsewhere may have its place late (rule 12).
    pub late: bool,
}

/// Where a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// To its home: so many bytes. They may be fewer than were to be written.
    Home(usize),
    /// To other blocks: the core has to record them. They may be fewer than were to be written.
    Elsewhere(Run),
}

/// What a commit promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The group survives once the call has returned, with all that was committed before it: an explicit group.
    Durable,
    /// It survives wholly or not at all, and in order: a group of one call. [`Engine::durable_at`] says when it is
    /// durable; `wait` makes it so.
    Atomic,
}

/// When a call outside of explicit groups is durable. Before that a crash leaves it wholly or not at all, and only with
/// all calls that had returned when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableAt {
    /// When it returns.
    Return,
    /// When its *series* of at most so many groups ends, as the last of them returns, or at a sync. A crash leaves a
    /// series wholly or not at all.
    Series(u64),
    /// At the next sync.
    Sync,
}

/// How far an engine with series has come since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Groups that were committed, structure changes among them.
    pub committed: u64,
    /// As many of them, the first ones, were in a series that has ended.
    pub durable: u64,
}

/// A place in commit order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitSequence(pub u64);

/// How a group came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One call.
    Implicit,
    /// A structure change.
    Structure,
    /// What belongs to it is told by each call.
    Explicit,
}

/// Makes groups permanent.
pub trait Engine: Load + Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// When a call is durable. Until then a sync makes it so.
    fn durable_at(&self) -> DurableAt {
        DurableAt::Return
    }

    /// How far it has come, with [`DurableAt::Series`]: the explorer asks between two calls.
    fn reached(&self) -> Reached {
        Reached::default()
    }

    /// Makes metadata consistent before anything else is read from the medium but the superblock, whose fields for the
    /// log and the incarnation are those with which the engine was made. It can be interrupted and repeated. Returns
    /// what of the content is not at home, if there is any.
    ///
    /// # Errors
    /// The medium's; if the log is damaged.
    fn recover(&self) -> Result<Option<Waiting>> {
        Ok(None)
    }

    /// Whether it moves the blocks of metadata that a group changes: then the core refers to a block of the inode file
    /// by [`inode_block`], and looks up the place of any other after each change.
    fn moves_blocks(&self) -> bool {
        false
    }

    /// Of an engine that moves blocks, on a volume that was not unmounted: the map of the inode file that counts, if
    /// the superblock has an older one.
    ///
    /// # Errors
    /// The medium's.
    fn inode_map(&self) -> Result<Option<InodeMap>> {
        Ok(None)
    }

    /// The same engine learns where the blocks of the inode file are, before the first group begins. `None` was given
    /// back.
    fn set_inode_file(&self, map: InodeMap, blocks: Vec<Option<Lba>>) {
        let _ = (map, blocks);
    }

    /// Makes that content outlast the incarnation, as far as it belongs to a home in `live`: some map says that it has
    /// content. Marks the blocks with it in `used`, and leaves out those that are marked already. The core has stored
    /// pointers that lead to such blocks once more. Durable on return; until a new incarnation is, the next recovery
    /// comes to the same.
    ///
    /// # Errors
    /// The medium's.
    fn keep(&self, live: &Marks, used: &Marks) -> Result<()> {
        let _ = (live, used);
        Ok(())
    }

    /// A new incarnation is durable: what was logged before and not kept is void.
    ///
    /// # Errors
    /// The medium's.
    fn start(&self, incarnation: u64) -> Result<()> {
        let _ = incarnation;
        Ok(())
    }

    /// The volume is unmounted, durably: nothing of a log is needed any more.
    ///
    /// # Errors
    /// The medium's.
    fn close(&self) -> Result<()> {
        Ok(())
    }

    /// Blocks that a group needs for what it logs.
    fn log_blocks(&self, logged: Logged) -> u64 {
        let _ = logged;
        0
    }

    /// Whether it keeps the bitmaps of a volume in step (rule 11). What else than such an engine changes a volume with
    /// bitmaps has to write them anew.
    fn keeps_bitmaps(&self) -> bool {
        false
    }

    /// Whether groups can have more than one call.
    fn has_groups(&self) -> bool {
        false
    }

    /// Blocks that a call of an explicit group needs for the data that it logs.
    fn blocks_for_call(&self, logged: Logged) -> u64 {
        let _ = logged;
        0
    }

    /// Blocks that the commit of an explicit group needs, with such a draft, and with what changes besides.
    fn blocks_for_commit(&self, draft: &Draft, later: Later) -> u64 {
        let _ = (draft, later);
        0
    }

    /// Whether the commit of an explicit group with such a draft would fill one of so many parts of the log. The policy
    /// `shared` asks after each call, so the answer must be cheap.
    fn fills_log(&self, draft: &mut Draft, parts: u64) -> bool {
        let _ = (draft, parts);
        false
    }

    /// A call of an explicit group ends: the calling thread hands over what it has stored, since another one may make
    /// the next call, or the commit. The core takes and releases a lock between the two.
    ///
    /// # Errors
    /// As `record`.
    fn end_call(&self, part: &mut Part<'_>) -> Result<()> {
        let _ = part;
        Ok(())
    }

    /// Begins a group.
    fn begin(&self, kind: Kind) -> GroupId;

    /// Ends a group that is not to be committed. Nothing of it was seen by others.
    fn abort(&self, part: &mut Part<'_>) {
        let _ = part;
    }

    /// Adds an operation to a group.
    ///
    /// # Errors
    /// The medium's: the volume is then poisoned.
    fn record(&self, part: &mut Part<'_>, operation: &Operation<'_>, replay: &dyn Replay) -> Result<()>;

    /// Writes data, from byte `offset` of the block on.
    ///
    /// # Errors
    /// As `record`.
    fn write(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, data: &[u8]) -> Result<Placed>;

    /// Whether the content of a group that has no place yet is to get it now.
    fn is_crowded(&self, draft: &Draft) -> bool {
        let _ = draft;
        false
    }

    /// Content of a group that has late numbers from `late` on is in these blocks from here on. The core then sets the
    /// pointers, and that gives the numbers up.
    ///
    /// # Errors
    /// As `record`.
    fn place(&self, part: &mut Part<'_>, late: Lba, at: Run) -> Result<()> {
        let _ = (part, late, at);
        unreachable!("only an engine that takes late numbers is asked")
    }

    /// Makes `len` bytes zeros, inside of one block that has a home.
    ///
    /// # Errors
    /// As `record`.
    fn zero(&self, part: &mut Part<'_>, at: &DataAt, offset: usize, len: usize) -> Result<Placed>;

    /// Reads data that has a home, from byte `offset` of the block on.
    ///
    /// # Errors
    /// The medium's.
    fn read(&self, view: View<'_>, at: &DataAt, offset: usize, buf: &mut [u8]) -> Result<()>;

    /// Whether a commit returns at the order: it works in memory alone, others read what it has changed, and
    /// [`wait`](Self::wait) makes it durable, with all that was ordered before.
    fn orders(&self) -> bool {
        false
    }

    /// What was asked of the transactions of blocks below it, if there are some.
    fn counters(&self) -> Option<wholly_blocks::Counters> {
        None
    }

    /// Everything up to this place is durable, with an engine that orders.
    fn durable(&self) -> CommitSequence {
        CommitSequence(u64::MAX)
    }

    /// Before the core takes the locks for the commit of an explicit group: what nobody else can reach goes to the
    /// medium, if it is much.
    ///
    /// # Errors
    /// As `record`.
    fn prepare(&self, part: &mut Part<'_>) -> Result<()> {
        let _ = part;
        Ok(())
    }

    /// Commits groups. An engine that [orders](Self::orders) gives them their places; others make them survive, as
    /// `how` says.
    ///
    /// # Errors
    /// As `record`.
    fn commit(&self, parts: &mut [Part<'_>], how: Durability, replay: &dyn Replay) -> Result<CommitSequence>;

    /// Returns when the groups up to this one are durable.
    ///
    /// # Errors
    /// As `record`.
    fn wait(&self, upto: CommitSequence) -> Result<()>;

    /// Returns when this group is durable, and what it depends on.
    ///
    /// # Errors
    /// As `record`.
    fn wait_for(&self, at: CommitSequence) -> Result<()> {
        self.wait(at)
    }

    /// A place that is durable when all of these are, with what they depend on.
    ///
    /// # Errors
    /// As `record`.
    fn join(&self, all: &[CommitSequence]) -> Result<CommitSequence> {
        Ok(all.iter().copied().max().unwrap_or(CommitSequence(0)))
    }

    /// Whether the order of groups is one for all: of what is ordered a prefix survives. Else each group survives with
    /// what it depends on.
    fn is_total(&self) -> bool {
        true
    }

    /// Hands a group over that nobody waits for, and returns when there is room for the orders of other threads. The
    /// core calls it with no lock held.
    ///
    /// # Errors
    /// As `record`.
    fn send(&self, at: CommitSequence) -> Result<()> {
        let _ = at;
        Ok(())
    }

    /// Makes everything durable that was committed.
    ///
    /// # Errors
    /// As `record`.
    fn sync(&self) -> Result<()>;

    /// Blocks that it holds (rule 10): a [`checkpoint`](Self::checkpoint) makes all of them free.
    fn pending_blocks(&self) -> u64 {
        0
    }

    /// Whether it has content to write back while there is no other work.
    fn writes_back(&self) -> bool {
        false
    }

    /// What grows with each commit, of an engine that [writes back](Self::writes_back).
    fn committed(&self) -> u64 {
        0
    }

    /// Bytes of memory that the index over these blocks takes.
    fn index_bytes(&self) -> u64 {
        0
    }

    /// Whether something is to be written back, or given back, even if there is space.
    fn is_due(&self) -> bool {
        false
    }

    /// Writes content back: what is due, and then what is cheapest, until no more space is wanted, no more lines are
    /// allowed, or nothing is left but what other threads are writing back. Any thread may call it, in a running group,
    /// too; threads that call it at the same time share the work. If [`u64::MAX`] blocks are wanted, all that is
    /// committed by now is written back, but what other threads are writing back: once they have ended, the volume may
    /// be changed past the engine, if no group is running.
    ///
    /// # Errors
    /// As `record`.
    fn checkpoint(&self, space: &dyn Reclaim, maps: &dyn Maps) -> Result<()> {
        let _ = (space, maps);
        Ok(())
    }
}

/// Reads bytes of a medium. Places come from the medium: one beyond its end is damage, not a defect of ours.
///
/// # Errors
/// The medium's; if the range is not inside of it.
#[inline]
pub fn read_within(region: &dyn Region, at: u64, buf: &mut [u8]) -> Result<()> {
    check_within(region, at, buf.len())?;
    Ok(region.read(at, buf)?)
}

/// That a range is inside of a medium.
///
/// # Errors
/// If it is not.
#[inline]
pub fn check_within(region: &dyn Region, at: u64, len: usize) -> Result<()> {
    match at.checked_add(len as u64).is_some_and(|end| end <= region.len()) {
        true => Ok(()),
        false => Err(corrupt(format!("block {}", at / BLOCK as u64), Fault("it is beyond the end of the medium"))),
    }
}

/// An error that names a corrupt place.
pub fn corrupt(place: impl Into<String>, fault: Fault) -> Error {
    Error::Corrupt { place: place.into(), fault: fault.0.into() }
}
