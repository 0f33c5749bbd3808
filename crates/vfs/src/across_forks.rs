//! Stores and volumes in processes that are forked.

use wholly_error::Error;

use super::{Errno, Groups, Handle};

/// A store or volume as the processes have it that are forked while it is open: whichever uses it first goes on. What
/// [`Calls`](super::Calls) ask, beside its calls.
pub trait AcrossForks: Groups {
    /// Whether the number of a handle or a group is of the store or volume as this process has it. A child that took
    /// it over has others than its parent had.
    fn has_given(&self, number: u64) -> bool {
        let _ = number;
        true
    }

    /// The inode of an open file, which no other one is after it: its number and its generation.
    ///
    /// # Errors
    /// `EBADF` for a handle that is not open.
    fn identity(&self, handle: &Handle) -> Result<(u64, u64), Errno>;

    /// Why this process does not have the store or volume, as far as it has found out.
    fn lost(&self) -> Option<Error> {
        None
    }
}

/// Why a child does not get at a group that its parent has begun.
pub fn begun_before_fork() -> Error {
    Error::Busy("the group".into(), "the process that was forked has begun it".into())
}
