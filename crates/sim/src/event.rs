//! What is recorded: one list of events for log and host directory, with one clock.

use super::config::{MutationKind, SimConfig};
use super::image::Image;
use super::state::ObjId;
use std::sync::Arc;
use wholly_blocks::Page;
use wholly_media::Site;
use wholly_nvme::model::Rung;

/// What the program under test did, for the oracle: told by the caller, not by the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// An operation begins; events of this thread belong to it until it returns.
    Begin {
        /// The caller's number for it.
        op: u64,
        /// What it is, for people.
        label: String,
    },
    /// An operation has returned.
    Return {
        /// The number given at its begin.
        op: u64,
    },
    /// Anything else worth a line in the table.
    Note {
        /// The line.
        label: String,
    },
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It did what it should.
    Normal,
    /// A mutation changed it.
    Mutated(MutationKind),
}

/// One step of a world's history. The number of an event in its [`Trace`] is its time.
#[derive(Clone, Debug)]
pub struct Event {
    /// The calling thread.
    pub thread: u64,
    /// The place in the code; none for marks.
    pub site: Option<Site>,
    /// The operation it belongs to.
    pub op: Option<u64>,
    /// Whether a mutation changed it.
    pub fate: Fate,
    /// What happened.
    pub kind: EventKind,
}

/// What happened in an [`Event`]. Objects are numbered: 0 is the log.
#[derive(Clone, Debug)]
pub enum EventKind {
    /// Bytes were written to the log or through a mapping.
    Store {
        /// Where.
        obj: ObjId,
        /// Where in it.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A write-through on a disk has begun; [`Done`](Self::Done) ends it.
    Through {
        /// Where in the log.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A fence on the log or on a mapping.
    Fence {
        /// Of which region.
        obj: ObjId,
    },
    /// What the thread has stored there is covered by the fences of all threads from now on.
    HandOver {
        /// In which region.
        obj: ObjId,
    },
    /// A change of the log's length has begun; [`Done`](Self::Done) ends it.
    LogLen {
        /// The length before.
        old: u64,
        /// The length after.
        new: u64,
    },
    /// An object without a name was made.
    Create {
        /// The new object.
        obj: ObjId,
        /// Its type and permission bits.
        mode: u32,
        /// Of a device, its number.
        rdev: u64,
        /// What a symbolic link holds.
        target: Arc<[u8]>,
        /// The inode number that it has from an object that is gone.
        inode: Option<ObjId>,
        /// The clock.
        time_ns: i64,
    },
    /// A file was written by a system call.
    Write {
        /// The file.
        obj: ObjId,
        /// Where in it.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
        /// Its new length, where the write made it longer.
        grown: Option<u64>,
        /// Blocks that it allocated beyond the old length.
        fresh: Vec<u64>,
        /// The clock.
        time_ns: i64,
    },
    /// A file's length was set.
    SetLen {
        /// The file.
        obj: ObjId,
        /// The length before.
        old: u64,
        /// The length after.
        new: u64,
        /// The clock.
        time_ns: i64,
    },
    /// Blocks of a file were allocated.
    Allocate {
        /// The file.
        obj: ObjId,
        /// From where.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The clock.
        time_ns: i64,
    },
    /// Whole blocks of a file were given back.
    Punch {
        /// The file.
        obj: ObjId,
        /// From where, a multiple of the block.
        offset: u64,
        /// How many bytes, whole blocks.
        len: u64,
        /// The clock.
        time_ns: i64,
    },
    /// A name was given, taken or moved.
    Names {
        /// The call: `link`, `unlink`, `rename` and so on.
        call: &'static str,
        /// All that it changed, at once.
        changes: Arc<[NameChange]>,
        /// The clock.
        time_ns: i64,
    },
    /// An attribute of an object was set.
    Attribute {
        /// The object.
        obj: ObjId,
        /// Which, to what.
        attribute: Attribute,
        /// The clock.
        time_ns: i64,
    },
    /// `fsync` of a file.
    Sync {
        /// The file.
        obj: ObjId,
    },
    /// `fsync` of a directory.
    SyncDir {
        /// The directory.
        dir: ObjId,
    },
    /// `syncfs`.
    SyncAll,
    /// A block was written in a transaction.
    BlockWrite {
        /// The transaction.
        tx: u64,
        /// The block.
        at: u64,
        /// What.
        page: Page,
        /// Whether nobody else reads what stood there: it is gone at once.
        fresh: bool,
    },
    /// Blocks were discarded in a transaction.
    BlockDiscard {
        /// The transaction.
        tx: u64,
        /// The first block.
        at: u64,
        /// How many.
        count: u64,
    },
    /// Transactions got their place in the order: from now on a crash may keep them.
    BlockOrder {
        /// The place.
        sequence: u64,
        /// The blocks that they have written, with their pages; none: zeros.
        images: Arc<[(u64, Option<Page>)]>,
        /// Places that are there if this one is, of those that are not durable.
        needs: Arc<[u64]>,
    },
    /// A commit of ordered transactions has begun; [`BlockCommitted`](Self::BlockCommitted) ends it.
    BlockCommit {
        /// Their places.
        sequences: Arc<[u64]>,
    },
    /// A commit returns: its transactions are durable, and all that was stored plainly.
    BlockCommitted {
        /// Their places.
        sequences: Arc<[u64]>,
    },
    /// A transaction was dropped.
    BlockAbort {
        /// The transaction.
        tx: u64,
    },
    /// A doorbell has told a device of writes: any part of them may be on the medium from now on.
    Ring {
        /// Them.
        commands: Arc<[Rung]>,
    },
    /// A device has written what it was told of: it is durable.
    Landed {
        /// The command.
        command: u64,
        /// Where in the log.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A device has flushed its write cache. What is written back of this process has events of its own; this is for
    /// what an earlier one has left.
    Flush,
    /// A device was reset, and the host has seen it.
    Reset {
        /// The commands whose writes its cache still has.
        cached: Arc<[u64]>,
    },
    /// The call that began with an earlier event returns, and what it wrote is durable.
    Done {
        /// The number of that event.
        begun: u64,
    },
    /// What the caller told.
    Mark(Mark),
}

/// A change of one name in one directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameChange {
    /// The directory.
    pub dir: ObjId,
    /// The name.
    pub name: Arc<[u8]>,
    /// What had it.
    pub was: Option<ObjId>,
    /// What has it now.
    pub is: Option<ObjId>,
}

/// An attribute of an object, and what it is set to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// Permission bits.
    Mode(u32),
    /// Owner and group.
    Owner(u32, u32),
    /// Times of the last access and the last change of content, in ns.
    Times(i64, i64),
    /// An extended attribute by its name; no value: it is removed.
    Xattr(Arc<[u8]>, Option<Arc<[u8]>>),
}

impl Attribute {
    fn name(&self) -> &'static str {
        match self {
            Attribute::Mode(_) => "set mode",
            Attribute::Owner(..) => "set owner",
            Attribute::Times(..) => "set times",
            Attribute::Xattr(..) => "set xattr",
        }
    }
}

impl EventKind {
    /// The word for it in tables.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Store { .. } => "store",
            EventKind::Through { .. } => "write through",
            EventKind::Fence { .. } => "fence",
            EventKind::HandOver { .. } => "hand over",
            EventKind::LogLen { .. } => "log length",
            EventKind::Create { .. } => "create",
            EventKind::Write { .. } => "write",
            EventKind::SetLen { .. } => "set length",
            EventKind::Allocate { .. } => "allocate",
            EventKind::Punch { .. } => "punch",
            EventKind::Names { call, .. } => call,
            EventKind::Attribute { attribute, .. } => attribute.name(),
            EventKind::Sync { .. } => "sync file",
            EventKind::SyncDir { .. } => "sync directory",
            EventKind::SyncAll => "sync all",
            EventKind::BlockWrite { .. } => "write block",
            EventKind::BlockDiscard { .. } => "discard",
            EventKind::BlockOrder { .. } => "order",
            EventKind::BlockCommit { .. } => "commit",
            EventKind::BlockCommitted { .. } => "committed",
            EventKind::BlockAbort { .. } => "abort",
            EventKind::Ring { .. } => "ring",
            EventKind::Landed { .. } => "landed",
            EventKind::Flush => "flush device",
            EventKind::Reset { .. } => "reset",
            EventKind::Done { .. } => "returns",
            EventKind::Mark(Mark::Begin { .. }) => "begin",
            EventKind::Mark(Mark::Return { .. }) => "return",
            EventKind::Mark(Mark::Note { .. }) => "note",
        }
    }
}

/// The history of a world: where it began and what happened.
#[derive(Clone)]
pub struct Trace {
    /// The rules of the world.
    pub config: Arc<SimConfig>,
    /// What it began with.
    pub initial: Image,
    /// What happened, in order.
    pub events: Vec<Event>,
}
