//! The core over a scheduler.
//!
//! The sources of `wholly` are compiled once more as `wholly-shuttle`, over another [`sync`]: every lock, atomic and
//! thread of the core is the scheduler's, which runs one thread at a time and decides at each of their calls who goes
//! on. So is every call of a medium that stores or orders. [`program`] has what threads do, [`perform`] runs it over
//! the simulated media, [`history`] is the oracle, and [`explore`] tries schedules, and crashes after each. Recovery is
//! the ordinary core's.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod explore;
pub mod history;
pub mod perform;
pub mod program;

pub use scheduled::{Error, File, Group, Options, Policy, Result, Store, Writer};
pub use sync;
