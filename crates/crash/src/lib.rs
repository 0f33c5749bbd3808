//! The crash explorer.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod catalogue;
mod command;
pub mod coverage;
mod explore;
pub mod faults;
pub mod html;
mod life;
pub mod mutants;
mod quiet;
mod replay;
mod run;
mod setting;
mod workload;

pub use command::{HELP, command};
pub use explore::{Job, Limits, Outcome, Violation, explore, explore_all};
pub use life::{Extent, Life, live};
pub use replay::{BadName, Crash, Replay, replay};
pub use run::{Allowed, Operation, Run, run};
pub use setting::{ALL as SETTINGS, Setting};
pub use workload::{NAMES, Op, State, Step, Workload, data};
