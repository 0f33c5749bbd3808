//! A block's list of versions and its lock, in two halves of one word.
//!
//! ```text
//!  31     0   31        30     29..16  15..0
//!  newest     EXCLUSIVE CLAIM  unused  readers
//! ```
//!
//! Readers count themselves in and out. The claim is the right to change the list: one holder, readers come and go.
//! Exclusive is the claim without readers. Waits are short: for a copy of at most 4 KiB, or for one commit.
//!
//! Who is known to be alone changes the list without a claim, and so without a locked instruction: see
//! [`Slot::push_alone`].

use super::version::{BEFORE_THINNING, NO_VERSION, Version, VersionArena};
use sync::{AtomicU32, Backoff, Ordering};

const EXCLUSIVE: u32 = 1 << 31;
const CLAIM: u32 = 1 << 30;
const READER: u32 = 1;
const READERS: u32 = 0xffff;

/// A version is recent for [`Slot::push_recovered`] while its number is at most so much lower: then it is in the cache.
const RECENT: u32 = 1024;

/// The word of one block.
pub struct Slot {
    newest: AtomicU32,
    state: AtomicU32,
}

/// A reader of a slot: its list and what the list covers stay as they are while this lives.
pub struct ReadGuard<'a> {
    slot: &'a Slot,
    newest: u32,
}

/// The claim of a slot: the right to change its list.
pub struct Claim<'a> {
    slot: &'a Slot,
}

impl Slot {
    /// A block without versions.
    pub fn new() -> Self {
        Slot { newest: AtomicU32::new(NO_VERSION), state: AtomicU32::new(0) }
    }

    /// Whether there is no version.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Acquire) == NO_VERSION
    }

    /// Asks the processor for the slot.
    #[inline]
    pub fn prefetch(&self) {
        wholly_media::prefetch(&self.newest);
    }

    /// Asks the processor for the slot, to change it, and for the newest version of the moment.
    #[inline]
    pub fn prefetch_to_push<V: Version>(&self, arena: &VersionArena<V>) {
        wholly_media::prefetch_to_change(&self.newest);
        self.prefetch_newest(arena);
    }

    /// Asks the processor for the newest version of the moment.
    #[inline]
    pub fn prefetch_newest<V: Version>(&self, arena: &VersionArena<V>) {
        arena.prefetch(self.newest.load(Ordering::Relaxed));
    }

    /// What [`Claim::push`] does for a committed version, by a caller who knows that nobody else changes the list now:
    /// it owns the file, and no checkpoint visits it (invariant 5). Readers come and go. Where the newest version is
    /// wholly covered it is unlinked and put into `garbage`, because a reader may be looking at it. Says whether the
    /// list was empty, and whether it is to be [thinned](Claim::thin).
    #[inline]
    pub fn push_alone<V: Version>(
        &self,
        arena: &VersionArena<V>,
        number: u32,
        version: V,
        garbage: &mut Vec<Garbage>,
    ) -> Pushed {
        let newest = self.newest_alone();
        let is_long = prepare_alone(arena, newest, number, version, garbage);
        self.link_alone(number);
        Pushed { was_empty: newest == NO_VERSION, is_long }
    }

    /// The newest version, for who may [push alone](Self::push_alone).
    #[inline]
    pub fn newest_alone(&self) -> u32 {
        self.newest.load(Ordering::Relaxed)
    }

    /// The second half of [`push_alone`](Self::push_alone): everybody sees a version that was
    /// [prepared](prepare_alone).
    #[inline]
    pub fn link_alone(&self, number: u32) {
        self.newest.store(number, Ordering::Release);
    }

    /// What [`Claim::push`] does while nobody else can reach the index and versions come in the order of their stamps:
    /// at recovery. Returns whether the list was empty.
    ///
    /// An older version is not in the cache, and looking at millions of them is most of what an open would do. So one
    /// that the new version may cover is only looked at if the new one is a whole block, or the older is
    /// [recent](RECENT): bytes that are written over and over still leave one version, and the list of a block gets at
    /// most one in so many of all versions more than it needs. Lists are thinned at the same price.
    #[inline]
    pub fn push_recovered<V: Version>(
        &self,
        arena: &VersionArena<V>,
        number: u32,
        version: V,
        freed: &mut Vec<u32>,
    ) -> bool {
        debug_assert_eq!(self.state.load(Ordering::Relaxed), 0, "nobody reads or claims it");
        let newest = self.newest.load(Ordering::Relaxed);
        let looked_at = newest != NO_VERSION && (version.is_whole() || number.wrapping_sub(newest) < RECENT);
        let before_thinning =
            if looked_at { arena.get(newest).before_thinning().saturating_sub(1) } else { BEFORE_THINNING };
        let version = version.linked(newest, before_thinning);
        arena.set(number, version);
        if looked_at {
            debug_assert!(arena.get(newest).stamp() <= version.stamp(), "in the order of stamps");
            unlink_covered(arena, number, version, freed);
            if before_thinning == 0 {
                arena.thin(number, freed);
            }
        }
        // Whoever comes later got the index from the caller, and with it all that was stored.
        self.newest.store(number, Ordering::Relaxed);
        newest == NO_VERSION
    }

    /// Counts the caller in as a reader. Waits while somebody is exclusive.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_read() {
                Some(guard) => return guard,
                None => backoff.wait(),
            }
        }
    }

    /// The same, unless somebody is exclusive.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_>> {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & EXCLUSIVE == 0 && state & READERS != READERS {
            match self.state.compare_exchange_weak(state, state + READER, Ordering::Acquire, Ordering::Relaxed) {
                // Looked at only now: who excludes readers later waits for this one.
                Ok(_) => return Some(ReadGuard { slot: self, newest: self.newest.load(Ordering::Acquire) }),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Claims the list, unless another thread has claimed it.
    #[inline]
    pub fn try_claim(&self) -> Option<Claim<'_>> {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & CLAIM == 0 {
            match self.state.compare_exchange_weak(state, state | CLAIM, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(Claim { slot: self }),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Claims the list. Waits while another has the claim.
    #[inline]
    pub fn claim(&self) -> Claim<'_> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_claim() {
                Some(claim) => return claim,
                None => backoff.wait(),
            }
        }
    }
}

/// The first half of [`Slot::push_alone`]: puts version `number` on top of the list that begins with `newest`, and
/// nobody sees it. Returns whether the list is to be [thinned](Claim::thin) once it is linked.
#[inline(always)]
pub fn prepare_alone<V: Version>(
    arena: &VersionArena<V>,
    newest: u32,
    number: u32,
    version: V,
    garbage: &mut Vec<Garbage>,
) -> bool {
    let (mut next, mut before_thinning) = (newest, BEFORE_THINNING);
    if newest != NO_VERSION {
        let older = arena.get(newest);
        debug_assert!(older.stamp() <= version.stamp(), "whoever owns a file has the highest sequence");
        if version.covers(&older) {
            garbage.push(Garbage { stamp: version.stamp(), number: newest });
            (next, before_thinning) = (older.next(), older.before_thinning());
        } else {
            before_thinning = older.before_thinning().saturating_sub(1);
        }
    }
    arena.set(number, version.linked(next, before_thinning));
    before_thinning == 0
}

/// What is to be known of a list to which a version was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// It had no version.
    pub was_empty: bool,
    /// It is to be [thinned](Claim::thin).
    pub is_long: bool,
}

/// A version that was unlinked while a reader may still have been looking at it.
#[derive(Clone, Copy, Debug)]
pub struct Garbage {
    /// The stamp of the version that covers it. Once its block was [visited](super#invariants) by a checkpoint with a
    /// higher target, nobody looks at it any more.
    pub stamp: u64,
    /// The version's number.
    pub number: u32,
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadGuard<'_> {
    /// The newest version, or [`NO_VERSION`].
    #[inline]
    pub fn newest(&self) -> u32 {
        self.newest
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.state.fetch_sub(READER, Ordering::Release);
    }
}

impl Claim<'_> {
    /// The newest version, or [`NO_VERSION`].
    #[inline]
    pub fn newest(&self) -> u32 {
        self.slot.newest.load(Ordering::Relaxed)
    }

    /// Publishes version `number`, whose bytes are in place: above those of lower stamps, below those of higher ones.
    /// Versions that it wholly covers are unlinked and put into `freed` if no reader is in the way. Returns whether the
    /// list was empty.
    #[inline]
    pub fn push<V: Version>(&self, arena: &VersionArena<V>, number: u32, version: V, freed: &mut Vec<u32>) -> bool {
        let newest = self.newest();
        if newest == NO_VERSION {
            arena.set(number, version.linked(NO_VERSION, BEFORE_THINNING));
            self.slot.newest.store(number, Ordering::Release);
            return true;
        }
        let top = arena.get(newest);
        if top.stamp() > version.stamp() {
            self.insert(arena, number, version);
            return false;
        }
        let version = version.linked(newest, top.before_thinning().saturating_sub(1));
        arena.set(number, version);
        if version.before_thinning() == 0 {
            self.slot.newest.store(number, Ordering::Release);
            self.thin(arena, freed);
            return false;
        }
        if self.try_exclude_readers() {
            unlink_covered(arena, number, version, freed);
            self.slot.newest.store(number, Ordering::Relaxed);
            self.slot.state.store(CLAIM, Ordering::Release);
        } else {
            self.slot.newest.store(number, Ordering::Release);
        }
        false
    }

    /// Takes off the list what does not show, and puts it into `freed`. Waits for readers.
    #[cold]
    pub fn thin<V: Version>(&self, arena: &VersionArena<V>, freed: &mut Vec<u32>) {
        self.change(|newest| {
            arena.thin(newest, freed);
            newest
        });
    }

    /// Puts a version where its stamp belongs, below the newest.
    #[cold]
    fn insert<V: Version>(&self, arena: &VersionArena<V>, number: u32, version: V) {
        self.change(|newest| {
            let mut above = newest;
            let mut below = arena.get(newest).next();
            while below != NO_VERSION && arena.get(below).stamp() > version.stamp() {
                above = below;
                below = arena.get(below).next();
            }
            arena.set(number, version.before(below));
            arena.set(above, arena.get(above).before(number));
            newest
        });
    }

    #[inline]
    fn try_exclude_readers(&self) -> bool {
        let free = CLAIM;
        self.slot.state.load(Ordering::Relaxed) == free
            && self.slot.state.compare_exchange(free, free | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn exclude_readers(&self) {
        let mut backoff = Backoff::new();
        while !self.try_exclude_readers() {
            backoff.wait();
        }
    }

    /// Waits until every reader that came before has left. Readers that come later see the list as it is now.
    #[inline]
    pub fn drain_readers(&self) {
        self.exclude_readers();
        self.slot.state.store(CLAIM, Ordering::Release);
    }

    /// As [`change`](Self::change), and gives the claim up. Returns the new newest version.
    pub fn change_last(self, change: impl FnOnce(u32) -> u32) -> u32 {
        self.exclude_readers();
        let newest = change(self.newest());
        self.slot.newest.store(newest, Ordering::Release);
        self.slot.state.store(0, Ordering::Release);
        std::mem::forget(self);
        newest
    }

    /// Changes the list while no reader looks: `change` gets the newest version and returns the new one.
    pub fn change(&self, change: impl FnOnce(u32) -> u32) {
        self.exclude_readers();
        self.slot.newest.store(change(self.newest()), Ordering::Relaxed);
        self.slot.state.store(CLAIM, Ordering::Release);
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.state.fetch_and(!CLAIM, Ordering::Release);
    }
}

/// Unlinks what lies right behind `number` in its list and is wholly covered by it, up to the first version that is
/// not: each step either frees a version or is the last, so that a long list costs a push nothing.
#[inline]
fn unlink_covered<V: Version>(arena: &VersionArena<V>, number: u32, version: V, freed: &mut Vec<u32>) {
    let first = arena.get(number).next();
    let mut at = first;
    while at != NO_VERSION {
        let older = arena.get(at);
        if !version.covers(&older) {
            break;
        }
        freed.push(at);
        at = older.next();
    }
    if at != first {
        arena.set(number, version.before(at));
    }
}
