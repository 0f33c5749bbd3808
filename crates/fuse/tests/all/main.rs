//! Tests of mounted stores and volumes.

mod both;
mod cache;
mod common;
mod ending;
mod groups;
mod held;
mod holders;
mod kernel;
mod nameless;
mod suite;
mod volume_groups;
