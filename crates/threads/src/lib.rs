//! Stores and volumes over a scheduler.
//!
//! The sources of `wholly` and `wholly-volume` are compiled once more as `wholly-shuttle` and `wholly-volume-shuttle`,
//! over another [`sync`]: every lock, atomic and thread of theirs is the scheduler's, which runs one thread at a time
//! and decides at each of their calls who goes on. So is every call of a medium that stores or orders. [`program`] has
//! what threads do to a store, [`perform`] runs it over the simulated media, [`volume`] has and does both for a volume;
//! [`history`] is the oracle, and [`explore`] tries schedules, and crashes after each. Recovery is that of the ordinary
//! packages.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod explore;
pub mod history;
pub mod perform;
pub mod program;
mod stage;
pub mod volume;

pub use scheduled::{Error, File, Group, Options, Policy, Result, Store, Writer};
pub use stage::Performance;
pub use sync;
