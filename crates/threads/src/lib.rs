//! The core's sources over a scheduler.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[path = "../../core/src/error.rs"]
mod error;
pub mod explore;
pub mod history;
#[path = "../../core/src/hostdir/mod.rs"]
pub mod hostdir;
#[path = "../../core/src/index/mod.rs"]
pub mod index;
#[path = "../../core/src/log/mod.rs"]
pub mod log;
#[path = "../../core/src/open.rs"]
mod open;
pub mod perform;
pub mod program;
#[path = "../../core/src/site.rs"]
pub mod site;
pub mod sync;

pub use error::{Error, Result};
pub use hostdir::{File, Group, Options, Policy, Store};
