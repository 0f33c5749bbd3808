//! Transactions of blocks that cost two stores over PCIe: a driver for NVMe controllers that keeps its submission
//! queues and their doorbells in the controller's persistent memory region. (ccNVMe: "Crash Consistent Non-Volatile
//! Memory Express", SOSP 2021, sections 4 and 6.)
//!
//! The driver runs in user space, on a model of a controller in this process ([`model`]), or on a real controller,
//! QEMU's ([`qtest`]). Nothing above [`Transport`] knows which.
//!
//! # Terms
//!
//! - *region*: the persistent memory region of a controller (PMR): memory that the processor stores to and a loss of
//!   power keeps.
//! - *transaction*: writes of blocks under one [`Txid`](wholly_blocks::Txid), on one queue. It is *atomic* when its
//!   commit has returned, *finished* when all of its commands and all transactions before it on its queue are complete.
//! - *window*: of a queue, the transactions that the region names as not finished. They may be on the medium wholly, in
//!   part, or not at all; what is not in the window is there wholly, or not at all. *Unknown*: the region does not
//!   tell.
//! - *life*: from a start of the queues to their close, or a crash. It belongs to one incarnation of one volume.
//! - *lease*: the right to write transactions on a queue.
//! - *barrier*: a read over PCIe that makes stores before it arrive in the region.
//!
//! | module | contents |
//! |---|---|
//! | [`spec`] | what NVM Express prescribes |
//! | [`transport`] | the border between driver and controller |
//! | `driver` | [`Controller`]: open, recovery, transactions; its rules are in the heads of `driver` and `driver/queue` |
//! | `queues`, `disk` | [`DeviceQueues`]: what the journal of a volume is written against; [`Disk`]: one for several lives |
//! | [`model`] | a controller in memory or files, that counts, and crashes |
//! | [`qtest`] | QEMU's controller |
//! | [`site`](mod@site) | the places that store, order and ring |

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod disk;
mod driver;
pub mod model;
pub mod qtest;
mod queues;
pub mod site;
pub mod spec;
pub mod transport;

pub use disk::Disk;
#[doc(hidden)]
pub use driver::Mistake;
pub use driver::{
    Acknowledge, Controller, DmaPage, Info, Lease, Life, Options, PlainQueue, QueueWindow, Ticket, Unfinished, Window,
};
pub use queues::DeviceQueues;
pub use transport::{Counts, Memory, PersistentRegion, Transport};
