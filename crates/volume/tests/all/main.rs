//! Tests of volumes. One is a program of its own: `large_group.rs` looks at the memory of its process.

mod any_bytes;
mod crash;
mod full_volumes;
mod volume;
