//! A volume as a whole, over persistent memory and a disk in memory.

mod borders;
mod damage;
mod large;
mod mounts;
mod place;
mod space;
mod threads;
