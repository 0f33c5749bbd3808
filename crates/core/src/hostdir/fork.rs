//! A store after `fork`: how a child goes on with it. [`Forked`](wholly_host::Forked) says which of the processes does.

use std::sync::Arc;

use wholly_host::{HostDir, Inherit, Refused, Used};

use super::{Store, StoreInner};
use crate::error::{Error, Result};

/// Keeps other processes out of a store until it is dropped.
pub trait Ownership: Inherit<Heir = Store> {
    /// The directory, with the store's folder.
    fn dir(&self) -> &Arc<HostDir>;

    /// Removes what makes the directory a store. When this returns, no process owns it, and it does not come back after
    /// a power failure.
    ///
    /// # Errors
    /// Errors of the medium: the store is then still there, or not.
    fn remove(self: Box<Self>) -> Result<()>;
}

impl StoreInner {
    /// A use of the store begins. Uses of one thread do not nest.
    #[inline]
    pub fn enter(&self) -> Result<Used, Refused> {
        self.forked.enter()
    }

    /// The use ends.
    #[inline]
    pub fn leave(&self, used: Used) {
        self.forked.leave(used);
    }

    /// The error of a process that has no other way to the store.
    pub fn refused(&self, why: Refused) -> Error {
        self.forked.refused(why)
    }

    /// In a child: the store as the child has it.
    pub fn heir(&self) -> Result<Store> {
        self.forked.heir()
    }

    /// The directory, with the store's folder; `None` where the store lies in memory.
    pub fn dir(&self) -> Option<Arc<HostDir>> {
        self.forked.with_ownership(|ownership| ownership.dir().clone())
    }
}
