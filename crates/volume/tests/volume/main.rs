//! A volume as a whole, over persistent memory and a disk in memory.

mod borders;
mod damage;
mod groups;
mod known;
mod large;
mod mounts;
mod place;
mod resize;
mod space;
mod threads;
