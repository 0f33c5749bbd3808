//! A store or a volume after `fork`: which of the processes that have it goes on, and how a child does.
//!
//! Every call is a *use* (see [`Claim`]). In a child a call finds that what it is made on was inherited and takes it
//! over: what the parent had in memory may be half-way through a call of a thread that the child does not have, so all
//! of it is left alone, and the store or volume is opened again from its media. The child's handles find their *heirs*
//! in what this makes; groups that were running are the parent's, and are not in it.
//!
//! # Invariants
//!
//! 1. In a child nothing of what was inherited is locked, dropped or written, but what this module keeps for the
//!    purpose: a thread that the child does not have may hold the locks, and the medium is the parent's.
//! 2. Whoever finds that another process has it lets go of its copy of the lock, so that it does not outlive the owner.

use crate::claim::{Claim, Refused, Use};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use wholly_error::{Error, Result};

/// What keeps other processes out of a store or a volume until it is dropped.
pub trait Inherit: Send + Sync {
    /// The store or volume, as a child opens it again.
    type Heir: Clone;

    /// For messages: `"the store"`.
    fn what(&self) -> &'static str;

    /// Decides, after `fork`, which of the processes goes on.
    fn claim(&self) -> &Arc<Claim>;

    /// Opens it again in a child of `fork`. Called by one thread at a time.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process keeps it; the text names that process. Those of opening it.
    fn take_over(&self) -> Result<Self::Heir>;
}

/// What a store or a volume knows of its owner.
pub struct Forked<O: Inherit + ?Sized> {
    /// `None` where nobody else can have it: media in memory.
    claim: Option<Arc<Claim>>,
    what: &'static str,
    /// The process in which a thread works on [`Kept`], 0 if none.
    at_work: AtomicU32,
    kept: Mutex<Kept<O>>,
    /// The threads that work in the background now, and the use that they are.
    background: Mutex<(usize, Option<Use>)>,
}

struct Kept<O: Inherit + ?Sized> {
    ownership: Option<Box<O>>,
    /// In a child that took it over: the store or volume as the child has it.
    heir: Option<O::Heir>,
    /// Why this process will never have it.
    refused: Option<Error>,
}

/// A use that has begun.
#[must_use = "a use that is not left never ends"]
pub struct Used(Use);

impl<O: Inherit + ?Sized> Forked<O> {
    /// Of what was just opened.
    pub fn new(ownership: Option<Box<O>>) -> Self {
        Forked {
            claim: ownership.as_ref().map(|ownership| ownership.claim().clone()),
            what: ownership.as_ref().map_or("", |ownership| ownership.what()),
            at_work: AtomicU32::new(0),
            kept: Mutex::new(Kept { ownership, heir: None, refused: None }),
            background: Mutex::default(),
        }
    }

    /// Whether this process has it by `fork`.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.is_inherited())
    }

    /// Whether this process opened it, and has lost it for ever: a child has it.
    #[inline]
    pub fn is_seized(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.is_seized())
    }

    /// Whether this process opened it, and no child is known to have it.
    #[inline]
    pub fn is_mine(&self) -> bool {
        self.claim.as_ref().is_none_or(|claim| claim.is_mine())
    }

    /// A use begins. Uses of one thread do not nest.
    ///
    /// # Errors
    /// See [`Refused`].
    #[inline]
    pub fn enter(&self) -> Result<Used, Refused> {
        match &self.claim {
            None => Ok(Used(Use::NONE)),
            Some(claim) => claim.enter().map(Used),
        }
    }

    /// Runs what a thread does in the background. All that such threads do at the same time is one use; while an heir
    /// waits for its end, no other thread joins.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn in_background<T>(&self, work: impl FnOnce() -> T) -> Result<T, Refused> {
        let Some(claim) = &self.claim else { return Ok(work()) };
        if claim.is_inherited() {
            return Err(Refused::Inherited);
        }
        let lock = || self.background.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = lock();
        while now.0 > 0 && !claim.is_mine() {
            drop(now);
            std::thread::sleep(Duration::from_millis(1));
            now = lock();
        }
        if now.0 == 0 {
            now.1 = Some(claim.enter_background()?);
        }
        now.0 += 1;
        drop(now);
        let _left = Left(|| {
            let mut now = lock();
            now.0 -= 1;
            if now.0 == 0
                && let Some(used) = now.1.take()
            {
                claim.leave(used);
            }
        });
        Ok(work())
    }

    /// The use ends.
    #[inline]
    pub fn leave(&self, used: Used) {
        if let Some(claim) = &self.claim {
            claim.leave(used.0);
        }
    }

    fn busy(&self, owner: u32) -> Error {
        let owner = if owner == 0 { "another process has it".into() } else { format!("process {owner} has it") };
        Error::Busy(self.what.into(), format!("{owner} since a fork"))
    }

    /// The error of a process that has no other way to it.
    #[cold]
    pub fn refused(&self, why: Refused) -> Error {
        let error = match why {
            Refused::Seized(owner) => self.busy(owner),
            Refused::Inherited => Error::Busy("the group".into(), "the process that was forked has begun it".into()),
        };
        if matches!(why, Refused::Seized(_)) {
            // Invariant 2.
            drop(self.take_ownership());
        }
        error
    }

    /// In a child: the store or volume as the child has it, which it takes over if it has not yet.
    ///
    /// # Errors
    /// Those of [`Inherit::take_over`].
    #[cold]
    pub fn heir(&self) -> Result<O::Heir> {
        let taken = self.with_kept(|kept| {
            if let Some(heir) = &kept.heir {
                return Ok(heir.clone());
            }
            if let Some(error) = &kept.refused {
                return Err(error.clone());
            }
            let Some(ownership) = &kept.ownership else { return Err(self.busy(0)) };
            let taken = ownership.take_over();
            match &taken {
                Ok(heir) => (kept.heir, kept.ownership) = (Some(heir.clone()), None),
                Err(error @ Error::Busy(..)) => (kept.refused, kept.ownership) = (Some(error.clone()), None),
                Err(_) => {}
            }
            taken
        });
        taken.unwrap_or_else(|| Err(self.busy(0)))
    }

    /// In a child: what it has taken over, or why it never will; `None` if it has not tried.
    pub fn settled(&self) -> Option<Result<O::Heir>> {
        self.with_kept(|kept| match (&kept.heir, &kept.refused) {
            (Some(heir), _) => Some(Ok(heir.clone())),
            (None, refused) => refused.clone().map(Err),
        })?
    }

    /// Runs `work` with what keeps other processes out; `None` if this process has that no more.
    pub fn with_ownership<T>(&self, work: impl FnOnce(&O) -> T) -> Option<T> {
        self.with_kept(|kept| kept.ownership.as_deref().map(work)).flatten()
    }

    /// Takes what keeps other processes out; the store or volume is of no use then.
    pub fn take_ownership(&self) -> Option<Box<O>> {
        self.with_kept(|kept| kept.ownership.take()).flatten()
    }

    /// In a child: the last handle is gone, and with it the child's part.
    pub fn let_go(&self) {
        let nothing = Kept { ownership: None, heir: None, refused: None };
        drop(self.with_kept(|kept| std::mem::replace(kept, nothing)));
    }

    /// Runs `work` with what is kept, which no thread of this process has then. `None` where a thread that is not in
    /// this process had it.
    fn with_kept<T>(&self, work: impl FnOnce(&mut Kept<O>) -> T) -> Option<T> {
        let me = rustix::process::getpid().as_raw_nonzero().get() as u32;
        loop {
            match self.at_work.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(process) if process == me => std::thread::yield_now(),
                // It was forked in the middle of it.
                Err(_) => return None,
            }
        }
        let result = work(&mut self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        self.at_work.store(0, Ordering::Release);
        Some(result)
    }
}

/// Does something when it is dropped, after a panic, too.
struct Left<F: FnMut()>(F);

impl<F: FnMut()> Drop for Left<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Keeps what an inherited value refers to from being dropped (invariant 1).
pub fn keep_for_ever<T>(value: &Arc<T>) {
    std::mem::forget(value.clone());
}
