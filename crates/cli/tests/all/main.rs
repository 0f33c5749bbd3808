//! The command's tests. What needs a view has its file in `viewed/`, which is here once for each view.

#![allow(clippy::duplicate_mod, reason = "the view of a module's commands is known by where the module is")]

#[path = "viewed/mod.rs"]
mod fuse;
#[path = "viewed/mod.rs"]
mod overlay;

mod across;
mod any_bytes;
mod bench;
mod check;
mod contract;
mod deb;
mod documented;
mod flash;
mod flash_volumes;
mod full_host;
mod holder;
mod later;
mod made;
mod mount;
mod nvme;
mod nvme_volumes;
mod one_door;
mod origins;
mod parked;
mod registry;
mod reproduction;
mod salvage;
mod server_killed;
mod sources;
mod terminal;
mod tools;
mod trust;
mod unprivileged;
mod upper;
mod verbs;
mod views;
mod volume;

use fuse::common;
use std::sync::Mutex;

/// One test of `deb.rs` and `viewed/packages.rs` at a time, in whatever view: the first makes a system, and each copies
/// it.
static PACKAGES_TURN: Mutex<()> = Mutex::new(());
