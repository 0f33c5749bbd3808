//! The core's sources over a scheduler.
//!
//! The modules of `wholly` are compiled here once more, with another [`sync`] in the place of the module of that name: every
//! lock, atomic and thread of the core is the scheduler's, which runs one thread at a time and decides at each of their
//! calls who goes on. So is every call of a medium that stores or orders. [`program`] has what threads do, [`perform`]
//! runs it over the simulated media, [`history`] is the oracle, and [`explore`] tries schedules, and crashes after
//! each. Recovery is the ordinary core's.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[path = "../../core/src/error.rs"]
mod error;
pub mod explore;
pub mod history;
#[path = "../../core/src/hostdir/mod.rs"]
pub mod hostdir;
#[path = "../../core/src/log/mod.rs"]
pub mod log;
#[path = "../../core/src/open.rs"]
mod open;
pub mod perform;
pub mod program;
#[path = "../../core/src/rules/mod.rs"]
mod rules;
#[path = "../../core/src/site.rs"]
pub mod site;
#[path = "../../core/src/vfs/mod.rs"]
pub mod vfs;

pub use error::{Error, Result};
pub use hostdir::{File, Group, Options, Policy, Store, Writer};
pub use {index, sync};
