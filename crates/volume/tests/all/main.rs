//! Tests of volumes. Two are programs of their own: `forked.rs`, since a child of `fork` keeps the descriptors and
//! locks of all volumes that are open in the process, and `large_group.rs`, which looks at the memory of its process.

mod any_bytes;
mod crash;
mod documented;
mod full_volumes;
mod volume;
