//! Groups of several stores that survive together: one decision, which all of them ask for.
//!
//! # Terms
//!
//! - *joint commit*: what commits groups of several stores of one process, wholly or not at all in all of them.
//! - *participant*: a store one of whose groups is part of it. *Coordinator*: the participant that keeps the record.
//! - *record*: a file in [`FOLDER`] of the coordinator that names the participants. Its name tells its state:
//!   *undecided* or *decided*.
//! - *prepared group*: a file of a participant in the [folder of parked groups](super::parked), under a [name of its
//!   own](PREPARED), so that it is none of them: it has an entry more, which names the coordinator.
//! - *settled*: a participant whose log has the group, or that has given it up, and whose prepared group is gone.
//!
//! # Steps
//!
//! 1. *Begin*: the coordinator writes the record, undecided, and syncs it and its folder. A crash leaves a record that
//!    nobody refers to.
//! 2. *Prepare*, each: the store writes the prepared group, and syncs it and its folder. A crash leaves some prepared
//!    groups, none decided.
//! 3. *Go home*, each whose store writes back as part of a commit ([`Options::at_once`](crate::Options::at_once)):
//!    1. The store writes what undoes the group (`running/undo.rs`), and syncs it and its folder. A crash before 3.2
//!       leaves an undo without a group, which is removed.
//!    2. The group commits to the store's log, provisionally; its record says which prepared group it is. A crash from
//!       here on leaves a group that is undone, unless it was decided.
//!    3. A checkpoint writes it back, and syncs all of it. The undo stays, and so does the tail: the log goes on
//!       telling that the group is provisional.
//!
//!    The host may refuse any call up to here, in any store, and the rename of step 4. Then each part that went home is
//!    undone as a single group is: by another group, and a checkpoint. After that its prepared group is removed, which
//!    is synced; and when all are, the record.
//! 4. *Decide*: the coordinator gives the record its other name, and syncs the folder: **the commit point of all**. A
//!    crash leaves it undecided, or decided.
//! 5. *Settle*, each: a part that went home becomes final: its undo is removed, and that is synced. Any other group
//!    commits to its log; the record says which prepared group it is. After that the prepared group is removed, and
//!    that is synced. A crash leaves it decided.
//! 6. *Forget*: the coordinator removes the record. A crash leaves a record that nobody refers to.
//!
//! Where a process has died in between, each store settles when it is next opened: it asks the coordinator, and does
//! what that says. A provisional group is final if it was decided, else it is undone. A prepared group that is not in
//! the log is committed if it was decided, else removed. A store that is to open without the decision
//! ([`Options::release`](crate::Options::release)) undoes what is provisional, and parks what was prepared; what it
//! cannot undo becomes final.
//!
//! # Invariants
//!
//! 1. Nobody guesses: a prepared group whose record cannot be found stays as it is, and its store is
//!    [`Busy`](crate::Error::Busy).
//! 2. A record is decided only while all its prepared groups are durable.
//! 3. A record is there as long as the prepared group of any participant may be there after a crash.
//! 4. What is decided is durable before a store acts on it, whoever has read it: a dead process may not have made it
//!    so.
//! 5. From preparing to its own commit a group keeps its claims: nobody in the process changes what it builds on. Where
//!    it cannot commit when it is decided, its store is poisoned, and settles when it is opened again.
//! 6. A record is known by its inode, beside its store and its number: a copy of a coordinator decides nothing.
//! 7. A prepared group has an id of its own. For the group that it becomes it is what a parked one is for the group
//!    that applies it: where that is undone, it is prepared still.
//! 8. As long as the undo of a provisional group may be there after a crash, so may its prepared group, by which the
//!    store knows whom to ask.
//!
//! | file | idea |
//! |---|---|
//! | `calls.rs` | the calls of stores and views |
//! | `commit.rs` | the steps, while the process lives |
//! | `settle.rs` | the same after a crash |
//! | `record.rs` | records on media |
//! | `folder.rs` | the folder of records |
//! | `neighbours.rs` | where other stores are |
//! | `parts.rs` | groups that are parked together, and where the other parts of one are |

mod calls;
mod commit;
pub(super) mod folder;
mod neighbours;
mod parts;
mod record;
mod settle;

pub use neighbours::{ByPath, Neighbours};
pub use parts::parts_on;
pub use parts::{Part, PartState};
pub use settle::{Decided, Released};
pub(super) use settle::{JointCommits, cannot_be_undone};

/// The folder of records, below the store's directory.
pub(super) const FOLDER: &[u8] = b".wholly/joint";

/// Behind the id of a prepared group.
pub(super) const PREPARED: &[u8] = b".prepared";

/// Behind the number of a record.
const UNDECIDED: &[u8] = b".undecided";
const DECIDED: &[u8] = b".decided";
