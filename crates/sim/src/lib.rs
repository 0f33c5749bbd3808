//! Media in memory, recorded, yielding crash images.
//!
//! A [`World`] is one store: a log [`Region`](wholly_media::Region) and a host directory
//! ([`HostFs`](wholly_host::HostFs)) with its files. It keeps what a running process sees and records what it does: one
//! [`Trace`] with one clock. An [`Explorer`] walks over the trace; at each [`Point`] it yields every [`Image`] that a
//! power failure there may leave, or a stated sample of them. A new world is made from an image, and recovery runs in
//! it, recorded again. What a crash may do is said in prose in `docs/crash-model.md`.
//!
//! # Terms
//!
//! - *event*: one entry of a trace. The number of an event is its time. *Point* `n` lies after `n` events.
//! - *unit*: the smallest thing of which a crash keeps one version: a word, a line (X86), a sector, a page; the length
//!   of the log; the attributes of an object (length, times, allocation, mode, owner, extended ones); a name; the
//!   journal (ext4); ordered transactions of blocks: all of them (`Total`), or each (`Dependent`).
//! - *step*: one version of a unit. A unit's pending steps are its *chain*, oldest first.
//! - *drain*: to move a prefix of a chain into the durable state.
//! - *choice*: for each unit of a point, how much of its chain a crash keeps. Printed, it replays the state.
//! - *site*: the place in the code that made an event; *mutation*: what is broken on purpose about a site's calls.
//!
//! # Invariants of the model
//!
//! 1. What a process reads is the latest content, whatever is durable. Only
//!    [`read_uncached`](wholly_media::Region::read_uncached) on a disk reads the durable content.
//! 2. A crash keeps a prefix of each chain. Chains are independent of each other but for 8, 9, 13 and 14.
//! 3. A word of persistent memory is drained by a fence of the thread that stored it, by no other thread's. A fence
//!    covers all of the thread's stores, in the log and in every mapping, and those that any thread has handed over.
//!    What drains a step drains the older steps of its chain.
//! 4. What `write_at` stores to a file in persistent memory is drained by a sync of the file, by no fence. A sync
//!    covers, besides, what the calling thread stored into a mapping of that file, and what dead processes did.
//! 5. A sector of the log on a disk is drained by any thread's fence on the log. A synchronous write is pending only
//!    between its two events, and makes nothing else durable.
//! 6. A sync of a file is for its bytes and attributes, a sync of a directory for its names and its own attributes.
//!    Neither is for the other, but under ext4 both commit the journal up to the last change of their object. No sync
//!    of the host covers the log region.
//! 7. What no surviving name reaches is gone, a directory with all in it. It has no units as long as nothing can name
//!    it.
//! 8. Bytes beyond the surviving length are gone. Bytes that are drained take with them, into the durable state, any
//!    older cut of their file; a cut that is drained takes away older bytes beyond it.
//! 9. Under ext4, a surviving length that a write has grown is accompanied by what that write put into new blocks.
//! 10. The death of a process keeps everything it wrote and leaves pending what was pending, now by [`DEAD`].
//! 11. The hash of a state is the sum of a term for each word, attribute and name: equal states have equal hashes,
//!     whatever led to them.
//! 12. The same world, calls, threads and choice give the same image: there is no clock, no address and no randomness
//!     but from a seed.
//! 13. A call that changes two names (`rename`) survives on both or on neither; what makes one side durable makes the
//!     other. Times and link counts of what a change of a name touches go with the name.
//! 14. Blocks that are given back survive as that only with their bytes as zeros.
//! 15. A new object gets the lowest inode number whose object is gone, never the time of its birth. No state has two
//!     objects of one number: where names
//!     survive in any order (weak), a number is free only for the process after the one that removed the object.
//! 16. Transactions of blocks ([`World::blocks`], rules T1 to T12 of the crate `wholly-blocks`): the log is their home.
//!     What a transaction has written is a step of a unit from its order to its commit; before, a crash keeps nothing
//!     of it, and after, all of it. A block that is written as fresh has lost what stood there from that moment on, and
//!     lent blocks have lost it from the moment they are lent: so whoever reads such a block reads wrong.
//!
//! # Assumptions
//!
//! - Two threads do not write the same word at once. If one overwrites what another has not fenced, versions survive in
//!   the order of the stores.
//! - A call is atomic towards other threads; they take their turns between calls. Crash points lie inside of calls too.
//! - Times change by system calls, not by stores into a mapping. Reading changes none. No time lies in the future of
//!   the clock.
//! - Nobody lacks a permission; no call runs out of space or of links.
//! - No lock of a world is held while anything outside of this module runs: logical threads may share one OS thread.

mod blocks;
mod choice;
mod config;
mod count;
mod count_host;
mod coverage;
mod device;
mod event;
mod explore;
mod files;
mod hash;
mod image;
mod machine;
mod names;
mod obj;
mod pending;
mod point;
mod reads;
mod region;
mod state;
mod timeline;
mod tracker;
mod tree;
mod watch;
mod world;

pub use choice::{Choice, ParseChoiceError, Pick};
pub use config::{
    ANY, BlockRules, DEAD, DeviceRules, HostModel, KERNEL, Medium, Mutation, MutationKind, PmemMode, SimConfig,
    os_thread,
};
pub use count::{Count, CountingRegion, Counts};
pub use count_host::CountingHost;
pub use coverage::{Coverage, SiteCoverage};
pub use event::{Attribute, Event, EventKind, Fate, Mark, NameChange, Trace};
pub use explore::{Exploration, ExploreLimits, Explorer, Tally};
pub use hash::{Hashed, Random};
pub use image::{Image, Named, Place};
pub use machine::{History, Machine};
pub use point::Point;
pub use reads::ReadSet;
pub use timeline::{Row, RowState, Timeline};
pub use world::World;

#[cfg(test)]
mod tests;
