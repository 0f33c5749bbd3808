//! A volume as a whole, over persistent memory and a disk in memory.

mod borders;
mod checkpointers;
mod damage;
mod durable;
mod fixtures;
mod flash;
mod fuzz;
mod groups;
mod hard_repair;
mod known;
mod large;
mod mounts;
mod no_space;
mod only_read;
mod ordered;
mod overlooked;
mod pending;
mod place;
mod policies;
mod reader;
mod repair;
mod resize;
mod selection;
mod space;
mod takeover;
mod threads;
