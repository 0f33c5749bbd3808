//! How much of a file is not home, in a word that also says whether home bytes stayed as they were during a read.
//!
//! ```text
//!  63    33  32   0
//!  rounds    count
//! ```
//!
//! *Count* is what waits to be written back: blocks with versions, and one for a size. The file is *clean* while it is
//! 0. A *round* begins each time that a clean file gets something: rounds only grow.
//!
//! # Invariants
//!
//! 1. The count is raised before a version of a block that had none is visible. It is lowered for a block once its list
//!    is empty, and its bytes are home or do not count (a cut has lowered the file's limit before). Hence no version
//!    shows while the file is clean, and home has all committed bytes that count.
//! 2. Versions are written home only between a raise and a lowering. Hence a reader who found the file clean before and
//!    finds the word as it was, has read home bytes that no version changed meanwhile. Another look at the count alone
//!    would not tell: a version may have come, changed home bytes and gone again.
//!
//! So such a reader has read what was committed at each moment between its two looks: the last block of a write that it
//! does not see was not visible at the second one. What decides how many home bytes count, and which are wished to be
//! zeros, is no part of the word: a file has a limit and a state of its wishes for that, and the count for a size says
//! only that a pass is to look at them.
//!
//! A reader could mistake a word for the one that it saw if it were held up for exactly 2^31 rounds, each of which is a
//! commit and a checkpoint.
//!
//! # Memory orders
//!
//! - [`raise`](Pending::raise) is relaxed: who links the version after it does so by a release, and who sees the
//!   version, or changes home bytes for it, has found it by an acquire. So the raise happens before what it sees or
//!   does.
//! - [`before_home_changes`](Pending::before_home_changes) is a release fence, and [`is_still`](Pending::is_still) an
//!   acquire fence: a reader who has read a byte that was changed sees the raise that came before.
//! - [`lower`](Pending::lower) is a release, and [`clean`](Pending::clean) an acquire: who finds the file clean sees
//!   the home bytes that made it so. Raises by others in between do not break this chain: those that change the word at
//!   once are part of it; one that is [alone](Pending::push_alone) comes after a visit that it has seen the end of, and
//!   before one that finds its version.
//!
//! Home bytes are read while they may change, as everywhere where no slot can be waited for: what was read is given
//! to nobody unless the word is as it was.

use super::slot::{Claim, Garbage, Pushed, Slot};
use super::version::{NO_VERSION, Version, VersionArena};
use sync::{AtomicU64, Ordering, fence};

/// Versions have numbers of 32 bits, and each block that counts has at least one; a size counts as one more.
const ROUND: u64 = 1 << 33;
const COUNT: u64 = ROUND - 1;

/// See the head of this module.
#[derive(Debug)]
pub struct Pending(AtomicU64);

/// Proof that a file was clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clean(u64);

impl Pending {
    /// Of a file with nothing but its home bytes.
    pub fn new() -> Self {
        Pending(AtomicU64::new(0))
    }

    /// How much is not home.
    #[inline]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire) & COUNT
    }

    /// Counts more, before any of it is visible. (Of blocks that get versions, [`push`](Self::push) and its like do.)
    #[inline]
    pub fn raise(&self, more: u64) {
        let mut word = self.0.load(Ordering::Relaxed);
        while let Err(now) =
            self.0.compare_exchange_weak(word, raised(word, more), Ordering::Relaxed, Ordering::Relaxed)
        {
            word = now;
        }
    }

    /// The same, for who knows that nobody else changes the word now (invariant 5 of the index).
    #[inline]
    fn raise_alone(&self) {
        self.0.store(raised(self.0.load(Ordering::Relaxed), 1), Ordering::Relaxed);
    }

    /// What [`Claim::push`] does, and counts the block if it had no version.
    #[inline]
    pub fn push<V: Version>(
        &self,
        claim: &Claim<'_>,
        arena: &VersionArena<V>,
        number: u32,
        version: V,
        freed: &mut Vec<u32>,
    ) -> bool {
        if claim.newest() == NO_VERSION {
            self.raise(1);
        }
        claim.push(arena, number, version, freed)
    }

    /// What [`Slot::push_alone`] does, and counts the block if it had no version.
    #[inline]
    pub fn push_alone<V: Version>(
        &self,
        slot: &Slot,
        arena: &VersionArena<V>,
        number: u32,
        version: V,
        garbage: &mut Vec<Garbage>,
    ) -> Pushed {
        if slot.newest_alone() == NO_VERSION {
            self.raise_alone();
        }
        slot.push_alone(arena, number, version, garbage)
    }

    /// What [`Slot::link_alone`] does, and counts the block if it had no version.
    #[inline]
    pub fn link_alone(&self, slot: &Slot, number: u32, was_empty: bool) {
        if was_empty {
            self.raise_alone();
        }
        slot.link_alone(number);
    }

    /// Counts less: what is home, and of which no version shows any more.
    #[inline]
    pub fn lower(&self, less: u64) {
        let before = self.0.fetch_sub(less, Ordering::Release);
        debug_assert!(before & COUNT >= less, "nothing is home that was not counted");
    }

    /// For who has found versions, and is about to change home bytes for them.
    #[inline]
    pub fn before_home_changes(&self) {
        fence(Ordering::Release);
    }

    /// A read of home bytes begins: `None` unless all committed bytes are there.
    #[inline]
    pub fn clean(&self) -> Option<Clean> {
        let word = self.0.load(Ordering::Acquire);
        (word & COUNT == 0).then_some(Clean(word))
    }

    /// Whether home bytes that were read since [`clean`](Self::clean) have not changed meanwhile.
    #[inline]
    pub fn is_still(&self, clean: Clean) -> bool {
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) == clean.0
    }
}

impl Default for Pending {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn raised(word: u64, more: u64) -> u64 {
    let round = if word & COUNT == 0 { ROUND } else { 0 };
    word.wrapping_add(round).wrapping_add(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_clean_again_is_not_as_it_was() {
        let pending = Pending::new();
        let mut before = pending.clean().unwrap();
        assert!(pending.is_still(before));
        for alone in [true, false] {
            if alone {
                pending.raise_alone()
            } else {
                pending.raise(1)
            }
            assert_eq!((pending.count(), pending.clean(), pending.is_still(before)), (1, None, false));
            pending.raise(2);
            pending.lower(3);
            let after = pending.clean().unwrap();
            assert!(pending.is_still(after) && !pending.is_still(before));
            before = after;
        }
    }

    #[test]
    fn rounds_begin_again_and_leave_the_count_alone() {
        let pending = Pending(AtomicU64::new(!COUNT));
        pending.raise(5);
        assert_eq!((pending.count(), pending.0.load(Ordering::Relaxed)), (5, 5));
        pending.raise(u64::from(u32::MAX));
        assert_eq!(pending.count(), 5 + u64::from(u32::MAX));
    }
}
