//! Media in memory, recorded, yielding crash images.

mod config;
mod event;
mod files;
mod hash;
mod image;
mod pending;
mod reads;
mod region;
mod state;
mod world;

pub use config::{DEAD, HostModel, KERNEL, Medium, Mutation, MutationKind, PmemMode, SimConfig, os_thread};
pub use event::{Event, EventKind, Fate, Mark, Trace};
pub use image::{Image, Place};
pub use reads::ReadSet;
pub use world::World;
