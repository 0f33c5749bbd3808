//! Tests whose commands have a view: FUSE in the module `fuse`, an overlay in the module `overlay`. What differs is in
//! `common/views.rs`.

#[path = "../common/mod.rs"]
pub mod common;

mod bystander;
mod directories;
mod groups;
mod guests;
mod kept;
mod links;
mod matrix;
mod outcomes;
mod packages;
mod programs;
mod reviewed;
mod root;
mod run;
mod since;
mod undo;
