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
//! | step | what survives when it is done | a crash in it leaves |
//! |---|---|---|
//! | begin | the record, undecided | a record that nobody refers to |
//! | prepare, each | the prepared group | some prepared groups, none decided |
//! | decide | the record's new name: **the commit point of all** | undecided, or decided |
//! | settle, each | the group's own commit record, which says which prepared group it is; then the absence of that | decided |
//! | forget | the absence of the record | a record that nobody refers to |
//!
//! Where a process has died in between, each store settles when it is next opened: it asks the coordinator, and does
//! what that says.
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
//!
//! | file | idea |
//! |---|---|
//! | `calls.rs` | the calls of stores and views |
//! | `commit.rs` | the steps, while the process lives |
//! | `settle.rs` | the same after a crash |
//! | `record.rs` | records, and how stores name each other, on media |
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
pub(super) use settle::JointCommits;
pub use settle::{Decided, Released};

pub(super) use record::Neighbour;

/// The folder of records, below the store's directory.
pub(super) const FOLDER: &[u8] = b".wholly/joint";

/// Behind the id of a prepared group.
pub(super) const PREPARED: &[u8] = b".prepared";

/// Behind the number of a record.
const UNDECIDED: &[u8] = b".undecided";
const DECIDED: &[u8] = b".decided";
