//! The crash explorer at work: stores and volumes. Each test that explores has two workers. `hunt.rs` is a program of
//! its own: `make check` runs it and builds no other test program.

mod adopted;
mod archive;
mod blocks;
mod bystanders;
mod ccnvme;
mod common;
mod copies;
mod explore;
mod faults;
mod given_back;
mod joint;
mod journal_contract;
mod multi_queue;
mod mutants;
mod names;
mod ordered;
mod parked;
mod reader;
mod real_fs;
mod refused;
mod semantic;
mod staged;
mod stories;
mod taken_back;
mod volume;
mod volume_mutants;
