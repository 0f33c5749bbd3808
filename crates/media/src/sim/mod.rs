//! Media in memory, recorded, yielding crash images.

mod choice;
mod config;
mod coverage;
mod event;
mod explore;
mod files;
mod hash;
mod image;
mod pending;
mod point;
mod reads;
mod region;
mod state;
mod timeline;
mod world;

pub use choice::{Choice, ParseChoiceError, Pick};
pub use config::{DEAD, HostModel, KERNEL, Medium, Mutation, MutationKind, PmemMode, SimConfig, os_thread};
pub use coverage::{Coverage, SiteCoverage};
pub use event::{Event, EventKind, Fate, Mark, Trace};
pub use explore::{Exploration, ExploreLimits, Explorer, Tally};
pub use image::{Image, Place};
pub use point::Point;
pub use reads::ReadSet;
pub use timeline::{Row, RowState, Timeline};
pub use world::World;

#[cfg(test)]
mod tests;
