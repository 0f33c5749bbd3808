//! Transactions of blocks: many blocks of 4 KiB are written wholly or not at all.
//!
//! There are two contracts. [`TxDevice`] is what a device offers: the commands of X-FTL ("CFS", USENIX ATC 2015,
//! section 2.3), and no more. [`TxBlocks`] is what engines use: besides, transactions get their order in memory, under
//! the caller's locks, and become durable later, without these locks.
//!
//! # Terms
//!
//! - *block*: 4096 bytes of the medium, named by an [`Lba`]. *Page*: the content of a block in memory, counted and
//!   immutable ([`Page`]).
//! - *transaction*: writes and discards of blocks under one [`Txid`]. It is *running* from `begin` until it is ordered
//!   or aborted; on a device, until it is committed or aborted.
//! - *ordered*: it has its place among the others, a [`Sequence`], and everybody reads what it has written. *Durable*:
//!   it survives a crash. *Committed version*: of a block, what the last ordered transaction has written, or a plain
//!   write after that.
//! - *fresh*: no committed version of the block is read by anybody; the writer says so ([`Placement`]).
//! - *lent*: free blocks that the caller gives to a transaction, for versions which the implementation cannot keep
//!   elsewhere.
//! - *plain*: a command that belongs to no transaction.
//! - *site*: the place in the code that makes a call ([`Site`](wholly_media::Site)).
//!
//! # Rules of both contracts
//!
//! Tests cite them by number. Where the contracts differ, *blocks* is [`TxBlocks`] and *device* is [`TxDevice`].
//!
//! - **T1**, *atomic*: a crash keeps all that a transaction has written and discarded, or nothing. Device: it is
//!   durable when `commit` has returned; before, either may survive. Blocks: it is durable when `wait` has returned; of
//!   ordered transactions that are not durable, a crash keeps what [`Order`] says: a prefix (`Total`), or a set that is
//!   closed under dependency (`Dependent`).
//! - **T2**, *own*: only the transaction itself reads what it has written while it is running. Others read the
//!   committed version. Blocks: from `order` on, everybody reads it, wherever the bytes are by then.
//! - **T3**, *abort*: nothing is left of the transaction. An abort fails only if the medium has failed (T8).
//! - **T4**, *one writer*: two running transactions never write or discard the same block: blocks answers the second
//!   one [`Busy`](wholly_error::Error::Busy), and the call changes nothing. An ordered transaction does not run: a
//!   later one may write its blocks. So a device has versions of one block by several of its transactions, if pages are
//!   sent to it early; it refuses none, and in one commit the transaction named last counts.
//! - **T5**, *crash*: a crash aborts all running transactions. A [`Txid`] is never given out twice, over all lives of
//!   the medium.
//! - **T6**, *together*: several transactions that are ordered, or committed on a device, by one call are one: a crash
//!   keeps all of them or none.
//! - **T7**, *no space*: a write that finds no space says [`NoSpace`](wholly_error::Error::NoSpace), and changes
//!   nothing. The transaction can still be aborted, ordered or committed. Neither `order`, `wait` nor `commit` fails
//!   for want of space.
//! - **T8**, *poison*: after a commit that failed, nothing is known of its transactions. Each later call fails with
//!   [`Poisoned`](wholly_error::Error::Poisoned), until the medium is opened again.
//! - **T9**, *rot*: a block that reads otherwise than it was written is [`Corrupt`](wholly_error::Error::Corrupt), by
//!   its number; its bytes are never served. Other blocks can be read. (Media that keep no checksums of blocks at home
//!   say so: [`BlockGuarantees::checks_blocks`].)
//! - **T10**, *size*: a transaction has no bound but free space, unless the guarantees tell one. Beyond the bound,
//!   blocks that were lent take what is written over, where they can be lent; without any left, the write says
//!   `NoSpace` (T7).
//! - **T11**, *zeros*: a block that was never written, or was discarded, reads as zeros. (Not: a block that was
//!   discarded, where the guarantees say so; a block that was lent, or was written by a transaction that is gone;
//!   blocks that a medium has not been given as its own.)
//! - **T12**, *plain*: a plain write or trim changes the committed version. It is durable after a plain flush, or after
//!   a later commit, and each block of it by itself, or each unit that the guarantees tell. It is refused as `Busy` if
//!   a running transaction has written the block. Blocks: a transaction that has written nothing makes no commit. If
//!   the block has an ordered version that is not home, that is brought home first.
//!
//! | module | contents |
//! |---|---|
//! | `block` | numbers of blocks, pages |
//! | `guarantees` | what an implementation promises at a crash, and its bounds |
//! | `counters` | what was done, by command and by tag |
//! | `device` | the contract of a device |
//! | `ordered` | the contract for engines |
//! | [`batch`] | the contract for engines, made of a device |
//! | [`log`] | a log of whole blocks, for any medium |
//! | [`multi_queue`] | the contract for engines, made of a device with queues: a journal for each |
//! | `plain` | the plain view of each of these |
//! | `runs` | maps from blocks to values |
//! | [`xftl`] | a simulated flash disk: the paper's device, as a model |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod batch;
mod block;
mod counters;
mod device;
mod guarantees;
pub mod log;
pub mod multi_queue;
mod ordered;
mod plain;
mod runs;
pub mod xftl;

pub use block::{BLOCK, Lba, Page, Run};
pub use counters::{Counters, Tag};
pub use device::{Placement, TxDevice, Txid};
pub use guarantees::{BlockGuarantees, DeviceGuarantees, Order};
pub use ordered::{Sequence, TxBlocks};
pub use runs::Runs;
