//! The measurements of Wholly: what `wholly bench SUITE --json` runs and prints.
//!
//! A suite is a list of [`Case`]s. Each case is run on each medium by each [`System`] *in turns*: A B C A B C. The
//! figure of a system is the median over its turns; what counts is the ratio of medians to a named base in the same
//! run, since machines and neighbours differ. Bounds (`raw`) and peers (crate `wholly-bench-peers`) are systems like
//! ours.
//!
//! | module | what it holds |
//! |---|---|
//! | [`workload`] | cases, and the random sequence that all systems of a case are given |
//! | [`system`]   | the trait that each measured system implements |
//! | [`harness`]  | turns, clocks and counters; from them the rows |
//! | [`instructions`] | counts of instructions, in place of clocks |
//! | [`opening`]  | the suite `open`, which has clocks of its own |
//! | [`tasks`]    | the suite `store`, too |
//! | [`commands`] | the suite `run`, too |
//! | [`mounts`]   | the suite `mount`, too |
//! | [`volume`]   | the suite `volume`, too |
//! | [`fcfs`]     | the suite `fcfs`, which counts as well |
//! | [`mqfs`]     | the suite `mqfs`, in virtual time |
//! | [`report`]   | machine and rows, as JSON and as a table |
//! | [`suites`]   | the cases of each suite |
//! | [`systems`]  | our systems and the bounds |
//! | [`place`]    | the media of a run: a tmpfs, ext4 and xfs on loop devices |
//! | [`cli`]      | arguments, for every program that carries the benchmarks |
//!
//! # What is inside the clock
//!
//! - `ns_per_group`: wall time of a turn over its groups. A turn writes at least three times what the system's log
//!   holds, and ends with [`System::settle`] inside the clock, so that checkpoints are paid for; a system that leaves
//!   them for later says [`deferred`](system::Ready::deferred), and so do its rows.
//! - `p99_ns` comes from turns of their own, in which each group is timed: reading the clock twice takes 40-60 ns, half
//!   of the smallest group, and would otherwise be inside `ns_per_group`. It is still inside `p99_ns`.
//! - `cpu_ns_per_group`: processor time of all threads of the process; kernel threads, such as those of loop devices,
//!   are not in it.
//! - The random sequence is made outside the clock; every system reads it from the same table.

#![warn(missing_docs)]

pub mod ccnvme;
pub mod cli;
pub mod commands;
pub mod fcfs;
mod figures;
pub mod harness;
pub mod instructions;
pub mod journal;
pub mod minl2r;
pub mod mounts;
pub mod mqfs;
pub mod opening;
pub mod place;
pub mod report;
pub mod stats;
pub mod suites;
pub mod system;
pub mod systems;
pub mod tasks;
pub mod volume;
pub mod workload;

pub use report::Report;
pub use system::System;
pub use workload::Case;

/// Any failure of a measurement. Nobody handles it but the person who reads it.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// What measurements return.
pub type Result<T, E = Error> = std::result::Result<T, E>;
