//! The crash explorer.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod anatomy;
pub mod catalogue;
pub mod coverage;
mod explore;
pub mod faults;
mod life;
pub mod mutants;
mod quiet;
mod replay;
mod run;
mod seen;
mod setting;
mod workload;

pub use explore::{Job, Limits, Outcome, Violation, explore, explore_all, explore_into};
pub use life::{Extent, Life, live};
pub use replay::{BadName, Crash, Replay, replay};
pub use run::{Allowed, Operation, Run, run};
pub use seen::Seen;
pub use setting::{ALL as SETTINGS, Setting};
pub use workload::{NAMES, Op, Promise, State, Step, Workload, data};
