//! The crash explorer.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod anatomy;
mod apart;
pub mod archive;
pub mod between;
pub mod blocks;
mod by_hand;
pub mod bystanders;
pub mod catalogue;
pub mod ccnvme;
pub mod copies;
pub mod coverage;
mod explore;
pub mod faults;
pub mod joint;
mod life;
mod look;
pub mod mutants;
mod quiet;
mod reader;
pub mod refused;
mod replay;
mod run;
pub mod script;
mod seen;
pub mod sequences;
mod setting;
mod store;
mod subject;
pub mod taken_back;
mod tree;
mod view;
pub mod volume;
mod workload;

pub use explore::{Job, Limits, Outcome, Violation, explore, explore_all, explore_into};
pub use life::{Extent, Life, live};
pub use look::{Names, Trouble, tree as served_tree};
pub use reader::read_beside;
pub use replay::{BadName, Crash, Read, Recovery, Replay, replay, replay_of, subject_of};
pub use run::{Allowed, Operation, Recorder, Run, run};
pub use seen::Seen;
pub use setting::{ALL as SETTINGS, Setting};
pub use subject::{Beginning, NotOpened, Subject};
pub use tree::{DIR_MODE, FILE_MODE, Kind, Number, Object, State, Time};
pub use view::{Version, View};
pub use workload::{EXISTING, FRESH, NAMES, Op, Promise, Start, Step, Workload, data};
