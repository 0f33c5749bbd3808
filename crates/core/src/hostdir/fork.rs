//! A store after `fork`: which of the processes that have it goes on, and how a child does.
//!
//! Every call is a *use* of the store (see [`Claim`]). In a child a call finds that its store was inherited and takes
//! it over: what the parent had in memory may be half-way through a call of a thread that the child does not have, so
//! all of it is left alone, and the store is opened again from its media. The child's handles find their *heirs* in the
//! store that this makes; groups that were running are the parent's, and are not in it.
//!
//! # Invariants
//!
//! 1. In a child nothing of an inherited store is locked, dropped or written, but what this module keeps for the
//!    purpose: a thread that the child does not have may hold the locks, and the medium is the parent's.
//! 2. Whoever finds that another has the store lets go of its copy of the lock, so that it does not outlive the owner.

use std::sync::Arc;

use wholly_host::{Claim, HostDir, Refused, Use};

use super::{Store, StoreInner};
use crate::error::{Error, Result};
use crate::sync::{AtomicU32, Backoff, Mutex, Ordering};

/// Keeps other processes out of a store until it is dropped.
pub trait Ownership: Send + Sync {
    /// Decides, after `fork`, which of the processes keeps the store.
    fn claim(&self) -> &Arc<Claim>;

    /// The directory, with the store's folder.
    fn dir(&self) -> &Arc<HostDir>;

    /// Opens the store again in a child of `fork`. Called by one thread at a time.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process keeps the store; the text names it. Those of opening a store.
    fn take_over(&self) -> Result<Store>;

    /// Removes what makes the directory a store. When this returns, no process owns it, and it does not come back after
    /// a power failure.
    ///
    /// # Errors
    /// Errors of the medium: the store is then still there, or not.
    fn remove(self: Box<Self>) -> Result<()>;
}

/// What a store knows of its owner.
pub(crate) struct Forked {
    /// `None` where nobody else can have the store: media in memory.
    claim: Option<Arc<Claim>>,
    /// The process in which a thread works on [`Kept`], 0 if none.
    at_work: AtomicU32,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    ownership: Option<Box<dyn Ownership>>,
    /// In a child that took it over: the store as the child has it.
    heir: Option<Store>,
    /// Why this process will never have it.
    refused: Option<Error>,
}

/// A use of the store that has begun.
#[must_use = "a use that is not left never ends"]
pub(crate) struct Used(Option<Use>);

impl Forked {
    pub fn new(ownership: Option<Box<dyn Ownership>>) -> Self {
        Forked {
            claim: ownership.as_ref().map(|ownership| ownership.claim().clone()),
            at_work: AtomicU32::new(0),
            kept: Mutex::new(Kept { ownership, ..Kept::default() }),
        }
    }

    /// Whether this process has the store by `fork`.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.is_inherited())
    }

    /// Whether this process opened the store, and no child is known to have it.
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| claim.is_mine())
    }

    /// Runs `work` with what is kept, which no thread of this process has then. `None` where a thread that is not in
    /// this process had it.
    fn with_kept<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        let me = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let mut backoff = Backoff::new();
        loop {
            match self.at_work.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(process) if process == me => backoff.wait(),
                // It was forked in the middle of it.
                Err(_) => return None,
            }
        }
        let result = work(&mut self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.at_work.store(0, Ordering::Release);
        Some(result)
    }
}

fn busy(owner: u32) -> Error {
    let owner = if owner == 0 { "another process has it".into() } else { format!("process {owner} has it") };
    Error::Busy("the store".into(), format!("{owner} since a fork"))
}

impl StoreInner {
    /// A use of the store begins. Uses of one thread do not nest.
    #[inline]
    pub fn enter(&self) -> Result<Used, Refused> {
        match &self.forked.claim {
            None => Ok(Used(None)),
            Some(claim) => claim.enter().map(|began| Used(Some(began))),
        }
    }

    /// Work of the background thread begins.
    pub fn enter_background(&self) -> Result<Used, Refused> {
        let began = self.forked.claim.as_ref().map(|claim| claim.enter_background()).transpose()?;
        Ok(Used(began))
    }

    /// The use ends.
    #[inline]
    pub fn leave(&self, used: Used) {
        if let (Some(claim), Some(began)) = (&self.forked.claim, used.0) {
            claim.leave(began);
        }
    }

    /// The error of a process that has no other way to the store.
    #[cold]
    pub fn refused(&self, why: Refused) -> Error {
        let error = match why {
            Refused::Seized(owner) => busy(owner),
            Refused::Inherited => Error::Busy("the group".into(), "the process that was forked has begun it".into()),
        };
        if matches!(why, Refused::Seized(_)) {
            // Invariant 2.
            drop(self.forked.with_kept(|kept| kept.ownership.take()));
        }
        error
    }

    /// In a child: the store as the child has it, which it takes over where it has not yet.
    #[cold]
    pub fn heir(&self) -> Result<Store> {
        let taken = self.forked.with_kept(|kept| {
            if let Some(heir) = &kept.heir {
                return Ok(heir.clone());
            }
            if let Some(error) = &kept.refused {
                return Err(error.clone());
            }
            let Some(ownership) = &kept.ownership else { return Err(busy(0)) };
            let taken = ownership.take_over();
            match &taken {
                Ok(heir) => (kept.heir, kept.ownership) = (Some(heir.clone()), None),
                Err(error @ Error::Busy(..)) => (kept.refused, kept.ownership) = (Some(error.clone()), None),
                Err(_) => {}
            }
            taken
        });
        taken.unwrap_or_else(|| Err(busy(0)))
    }

    /// The directory, with the store's folder; `None` where the store lies in memory.
    pub fn dir(&self) -> Option<Arc<HostDir>> {
        self.forked.with_kept(|kept| kept.ownership.as_ref().map(|ownership| ownership.dir().clone())).flatten()
    }

    /// Takes what keeps other processes out; the store is of no use then.
    pub fn take_ownership(&self) -> Option<Box<dyn Ownership>> {
        self.forked.with_kept(|kept| kept.ownership.take()).flatten()
    }

    /// In a child: the last handle of the store is gone, and with it the child's part of it.
    pub fn let_go(&self) {
        drop(self.forked.with_kept(std::mem::take));
    }
}

/// Keeps what an inherited value refers to from being dropped (invariant 1).
pub(crate) fn keep_for_ever<T>(value: &Arc<T>) {
    std::mem::forget(value.clone());
}
