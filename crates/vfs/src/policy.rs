//! Calls outside of explicit groups.

use std::time::Duration;

/// Which calls outside of explicit groups are committed together, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Each call is a group of its own, and survives a power failure when it returns.
    #[default]
    PerOp,
    /// The calls on a file between two syncs are one group. It is committed by a sync of the
    /// file, a sync of the store or volume, the last close of the file, the end of the store, or when an explicit group
    /// takes the file. After a crash the file is as at its last commit.
    PerSync,
    /// All calls are one group. It is committed by any sync, by the end of the store, when an explicit group takes one
    /// of its files, and in the background after `interval`.
    Shared {
        /// The longest time from the group's first call to its commit, if the store has a background thread.
        interval: Duration,
    },
}
