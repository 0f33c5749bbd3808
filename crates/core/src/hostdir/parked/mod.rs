//! Groups that are set aside: what they would change survives by itself, and somebody may look at it and apply it, or
//! not.
//!
//! # Terms
//!
//! Those of the crate [`wholly_changes`], which has the file of a parked group, its summary, its list and its parts. A
//! *content file* is the group's staged file under a second name, so that parking copies nothing.
//!
//! # Invariants
//!
//! 1. A parked group holds no segment of the log, no claim and no object: nothing waits for it.
//! 2. A file whose name is an id is whole: it was synced before it got that name, and so were its content files, with
//!    their names.
//! 3. While the file of a group that was applied may be there after a crash, the log says that it was applied: the tail
//!    passes that entry only after the file's removal is durable.
//! 4. A content file is removed only once its group is gone durably, or what is left of that does not name it, durably.
//!    Until then nothing writes to it. An open removes a content file that no group names.
//!
//! | file | idea |
//! |---|---|
//! | `review.rs` | what people see of a group: changes, and the bytes of either side |
//! | `part.rs` | a part of a parked group is applied |
//! | `find.rs` | where the objects of a parked group are by now |
//! | `folder.rs` | what is parked, what expires, what is removed |
//! | `calls.rs` | the calls of stores and groups |
//!
//! Groups that a joint commit has prepared lie in the same folder (see [`joint`](super::joint)); they are not parked.
//!
//! A running group is parked in `running/park.rs`, where `running/overtaken.rs` says so too, and a parked one applied
//! in `running/apply.rs`.

mod calls;
mod find;
pub(super) mod folder;
mod part;
mod review;

pub(super) use find::Finder;
pub(super) use folder::{mark_parked, path_of_kind, undo_path};
pub use review::Review;
pub use wholly_error::{Mismatch, ParkedId};

use sync::{AtomicU8, AtomicU64, Mutex};

/// What an open store knows of its parked groups.
pub(crate) struct ParkedGroups {
    /// Groups that were applied and whose files may come back after a crash: sequence, and id.
    applied: Mutex<Vec<(u64, u64)>>,
    /// Groups that are committed and not final; see `running/undo.rs`.
    pub(super) provisional: Mutex<Vec<Provisional>>,
    /// Those that somebody applies or discards.
    at_work: Mutex<Vec<u64>>,
    /// When the next one expires, in ns since the epoch.
    next_expiry: AtomicU64,
    /// 1 once the folder is durable.
    has_folder: AtomicU8,
}

/// A committed group that may be undone.
#[derive(Clone)]
pub(crate) struct Provisional {
    pub id: u64,
    pub sequence: u64,
    /// The groups that it is, of those that are set aside: where it is undone, they are as they were.
    pub applied: Vec<u64>,
    /// Whether it waits: for the decision of a joint commit, or to be undone.
    pub waits: bool,
}

/// In the place of a time: never.
const NEVER: u64 = i64::MAX as u64;

impl ParkedGroups {
    /// Of a store whose log says that these were applied, and that these are provisional.
    pub fn new(applied: Vec<(u64, u64)>, provisional: Vec<Provisional>) -> Self {
        ParkedGroups {
            applied: Mutex::new(applied),
            provisional: Mutex::new(provisional),
            at_work: Mutex::default(),
            next_expiry: AtomicU64::new(NEVER),
            has_folder: AtomicU8::new(0),
        }
    }

    /// The groups that were applied and whose files may come back after a crash.
    pub fn applied_ids(&self) -> Vec<u64> {
        self.applied.lock().unwrap().iter().map(|(_, id)| *id).collect()
    }

    /// Whether somebody applies or discards a group.
    pub fn is_at_work(&self, id: u64) -> bool {
        self.at_work.lock().unwrap().contains(&id)
    }

    /// A group that may be undone was committed.
    pub fn is_provisional(&self, group: Provisional) {
        self.provisional.lock().unwrap().push(group);
    }

    /// Whether a group below `target` waits for the decision of a joint commit, or to be undone.
    pub fn waits_below(&self, target: u64) -> bool {
        self.provisional.lock().unwrap().iter().any(|group| group.waits && group.sequence < target)
    }

    /// Whether a group is provisional.
    pub fn may_be_undone(&self, id: u64) -> bool {
        self.provisional.lock().unwrap().iter().any(|group| group.id == id)
    }

    /// The provisional group is to be undone: until it is, no pass makes it final.
    pub fn is_to_be_undone(&self, id: u64) {
        let mut provisional = self.provisional.lock().unwrap();
        provisional.iter_mut().filter(|group| group.id == id).for_each(|group| group.waits = true);
    }

    /// The provisional group is undone: what it applied is set aside still.
    pub fn is_not_applied(&self, id: u64) {
        let mut provisional = self.provisional.lock().unwrap();
        let undone: Vec<u64> =
            provisional.iter().filter(|group| group.id == id).flat_map(|group| group.applied.clone()).collect();
        provisional.retain(|group| group.id != id);
        self.applied.lock().unwrap().retain(|(_, id)| !undone.contains(id));
    }

    /// A committed group at `sequence` is the parked group `id`.
    pub fn has_applied(&self, sequence: u64, id: u64) {
        self.applied.lock().unwrap().push((sequence, id));
    }
}
