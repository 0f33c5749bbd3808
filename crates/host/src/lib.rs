//! The calls by which a store reaches an ordinary directory, and what programs ask of a mount of ours.
//!
//! The traits [`HostFs`], [`HostNames`] and [`HostFile`] are all that a store knows of its directory. [`HostDir`] has
//! them over a real file system; the simulator has them in memory.
//!
//! | file | idea |
//! |---|---|
//! | `calls.rs`, `name_calls.rs` | the traits |
//! | `dir.rs` | [`HostDir`]: the directory and what kind of medium it lies on |
//! | `named.rs` | the same by a path that a user names |
//! | `object.rs` | [`Object`]: what has a name, found once; [`Attributes`] |
//! | `fill.rs` | [`HostDir::fill`]: a directory that is filled out of reach |
//! | `file.rs` | [`OrdinaryFile`]: an open file of it |
//! | `names.rs` | its names and attributes |
//! | `owner_bits.rs` | [`OwnerBits`]: the same where its owner has taken permissions from himself |
//! | `resolve.rs` | paths that cannot leave it |
//! | `home.rs` | [`StoreHome`]: the folder `.wholly`, its regions and its making and unmaking |
//! | `own.rs` | [`open_own`], [`is_there`], [`host_error`]: files of the store's own, and what errors mean |
//! | `unfinished.rs` | that folder while it has another name |
//! | `owner.rs` | [`OwnerLock`]: one process owns a store |
//! | `claim.rs` | [`Claim`]: which one goes on with it after `fork` |
//! | `pass_on.rs` | [`pass_on`]: host directories over others |
//! | `forked.rs` | [`Forked`]: how a child goes on |
//! | `support/` | [`Support`]: whether the file system can carry a store |
//! | `mount/` | [`mount`]: what programs ask of a mount of ours, on plain descriptors |
//! | `sys/` | system calls; [`mounts`]: the kernel's list of mounts |

#![warn(missing_docs)]

mod calls;
mod claim;
mod dir;
mod file;
mod fill;
mod forked;
mod home;
pub mod mount;
mod name_calls;
mod named;
mod names;
#[cfg(test)]
mod names_tests;
mod object;
mod own;
mod owner;
mod owner_bits;
#[cfg(test)]
mod owner_bits_tests;
mod pass_on;
mod resolve;
mod support;
mod sys;
#[cfg(test)]
mod tests;
mod unfinished;

pub use calls::{HostFile, HostFs, Space};
pub use claim::{Claim, Refused, Use};
pub use dir::{HostDir, HostMedium, HostOptions, coarse_clock};
pub use file::OrdinaryFile;
pub use forked::{Forked, Inherit, Used, keep_for_ever};
pub use home::{HOME, HomeError, IGNORED, StoreHome, Trust, UNFINISHED, UNNAMED};
pub use name_calls::{At, FileHandle, HostNames};
pub use named::find;
pub use object::{Attributes, Object};
pub use own::{host_error, is_there, open_own};
pub use owner::{Busy, OwnerLock};
pub use owner_bits::{OwnerBits, SLIP};
pub use support::{Level, Support};
pub use sys::{Extent, file_handle, mounts, reserved_extents, shared, shared_extents};

/// What [`pass_on`] speaks of.
#[doc(hidden)]
pub mod __types {
    pub use crate::{At, FileHandle, HostFile, Space};
    pub use std::sync::Arc;
    pub use wholly_media::{Guarantees, Result, Site};
    pub use wholly_vfs::{DirEntry, Rename, SetXattr, Stat};
}
