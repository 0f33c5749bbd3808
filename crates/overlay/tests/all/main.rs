//! Tests of changes in overlays as groups. One is a program of its own: `memory.rs` counts and limits the memory of its
//! process.

mod bystanders;
mod common;
mod layers;
mod random;
mod scripts;
mod shared;
