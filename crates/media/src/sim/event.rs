//! What is recorded: one list of events for log and host directory, with one clock.

use super::config::{MutationKind, SimConfig};
use super::image::Image;
use super::state::ObjId;
use crate::Site;
use std::sync::Arc;

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

/// What happened in an [`Event`]. Objects are numbered: 0 is the log, others are inode numbers.
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
    /// A change of the log's length has begun; [`Done`](Self::Done) ends it.
    LogLen {
        /// The length before.
        old: u64,
        /// The length after.
        new: u64,
    },
    /// A file without a name was made.
    Create {
        /// The new file.
        obj: ObjId,
        /// Its type and permission bits.
        mode: u32,
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
    },
    /// A file got a name.
    Link {
        /// The file.
        obj: ObjId,
        /// The directory.
        dir: ObjId,
        /// The name in it.
        name: Arc<[u8]>,
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
    /// The call that began with an earlier event returns, and what it wrote is durable.
    Done {
        /// The number of that event.
        begun: u64,
    },
    /// What the caller told.
    Mark(Mark),
}

impl EventKind {
    /// The word for it in tables.
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Store { .. } => "store",
            EventKind::Through { .. } => "write through",
            EventKind::Fence { .. } => "fence",
            EventKind::LogLen { .. } => "log length",
            EventKind::Create { .. } => "create",
            EventKind::Write { .. } => "write",
            EventKind::SetLen { .. } => "set length",
            EventKind::Allocate { .. } => "allocate",
            EventKind::Link { .. } => "link",
            EventKind::Sync { .. } => "sync file",
            EventKind::SyncDir { .. } => "sync directory",
            EventKind::SyncAll => "sync all",
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
