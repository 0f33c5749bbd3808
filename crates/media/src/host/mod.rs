//! A directory of an ordinary file system.
//!
//! | file | idea |
//! |---|---|
//! | `dir.rs` | [`HostDir`]: the directory and what kind of medium it lies on |
//! | `file.rs` | [`OrdinaryFile`]: an open file of it |
//! | `names.rs` | its names and attributes |
//! | `owner_bits.rs` | [`OwnerBits`]: the same where its owner has taken permissions from himself |
//! | `resolve.rs` | paths that cannot leave it |
//! | `home.rs` | [`StoreHome`]: the folder `.wholly`, its regions and its making and unmaking |
//! | `unfinished.rs` | that folder while it has another name |
//! | `owner.rs` | [`OwnerLock`]: one process owns a store |
//! | `claim.rs` | [`Claim`]: which one goes on with it after `fork` |
//! | `support/` | [`Support`]: whether the file system can carry a store |

mod claim;
mod dir;
mod file;
mod home;
mod names;
#[cfg(test)]
mod names_tests;
mod owner;
mod owner_bits;
#[cfg(test)]
mod owner_bits_tests;
mod resolve;
mod support;
#[cfg(test)]
mod tests;
mod unfinished;

pub use crate::sys::{Extent, file_handle, mounts, reserved_extents, shared, shared_extents};
pub use claim::{Claim, Refused, Use};
pub use dir::{HostDir, HostMedium, HostOptions};
pub use file::OrdinaryFile;
pub use home::{HOME, HomeError, IGNORED, StoreHome, Trust, UNFINISHED, UNNAMED};
pub use owner::{Busy, OwnerLock};
pub use owner_bits::{OwnerBits, SLIP};
pub use support::{Level, Support};
