//! A block's list of versions and its lock, in one word.
//!
//! ```text
//!  63        62      61..48    47..32     31..0
//!  EXCLUSIVE CLAIM   unused    readers    newest version
//! ```
//!
//! Readers count themselves in and out. The claim is the right to change the list: one holder, readers come and go. Exclusive is the claim
//! without readers. Waits are short: for a copy of at most 4 KiB, or for one commit.

use super::version::{NO_VERSION, Version, VersionArena};
use crate::sync::{AtomicU64, Backoff, Ordering};

const EXCLUSIVE: u64 = 1 << 63;
const CLAIM: u64 = 1 << 62;
const READER: u64 = 1 << 32;
const READERS: u64 = 0xffff << 32;
const NEWEST: u64 = 0xffff_ffff;

/// The word of one block.
pub struct Slot(AtomicU64);

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
        Slot(AtomicU64::new(NO_VERSION as u64))
    }

    /// Whether there is no version.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Acquire) & NEWEST == u64::from(NO_VERSION)
    }

    /// Asks the processor for the slot.
    #[inline]
    pub fn prefetch(&self) {
        wholly_media::prefetch(&self.0);
    }

    /// Asks the processor for the newest version of the moment.
    #[inline]
    pub fn prefetch_newest(&self, arena: &VersionArena) {
        arena.prefetch((self.0.load(Ordering::Relaxed) & NEWEST) as u32);
    }

    /// What [`Claim::push`] does for a committed version, without the claim, where nobody has it, nobody else pushes to this slot, and
    /// the newest version is not wholly covered. Returns whether the list was empty; `None` where that does not hold.
    ///
    /// Nobody else pushes, so the newest version can only have been taken away when the word is compared, never replaced.
    #[inline]
    pub fn try_push(&self, arena: &VersionArena, number: u32, version: Version) -> Option<bool> {
        let word = self.0.load(Ordering::Acquire);
        let newest = (word & NEWEST) as u32;
        if word & (CLAIM | EXCLUSIVE) != 0 {
            return None;
        }
        if newest != NO_VERSION {
            let older = arena.get(newest);
            if older.stamp > version.stamp || (version.start <= older.start && older.end() <= version.end()) {
                return None;
            }
        }
        arena.set(number, Version { next: newest, ..version });
        let new = (word & !NEWEST) | u64::from(number);
        self.0.compare_exchange(word, new, Ordering::Release, Ordering::Relaxed).ok().map(|_| newest == NO_VERSION)
    }

    /// Counts the caller in as a reader. Waits while somebody is exclusive.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_> {
        let mut backoff = Backoff::new();
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & EXCLUSIVE == 0 && word & READERS != READERS {
                match self.0.compare_exchange_weak(word, word + READER, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return ReadGuard { slot: self, newest: (word & NEWEST) as u32 },
                    Err(now) => word = now,
                }
            } else {
                backoff.wait();
                word = self.0.load(Ordering::Relaxed);
            }
        }
    }

    /// Claims the list. Waits while another has the claim.
    #[inline]
    pub fn claim(&self) -> Claim<'_> {
        let mut backoff = Backoff::new();
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & CLAIM == 0 {
                match self.0.compare_exchange_weak(word, word | CLAIM, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => return Claim { slot: self },
                    Err(now) => word = now,
                }
            } else {
                backoff.wait();
                word = self.0.load(Ordering::Relaxed);
            }
        }
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadGuard<'_> {
    /// The newest version, or [`NO_VERSION`].
    pub fn newest(&self) -> u32 {
        self.newest
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.0.fetch_sub(READER, Ordering::Release);
    }
}

impl Claim<'_> {
    /// The newest version, or [`NO_VERSION`].
    #[inline]
    pub fn newest(&self) -> u32 {
        (self.slot.0.load(Ordering::Relaxed) & NEWEST) as u32
    }

    /// Publishes version `number`, whose bytes are in place: above those of lower stamps, below those of higher ones. Versions that
    /// it wholly covers are unlinked and put into `freed` if no reader is in the way; where it is not `committed` yet, only those of its
    /// own stamp, because a crash still brings back the others. Returns whether the list was empty.
    #[inline]
    pub fn push(
        &self,
        arena: &VersionArena,
        number: u32,
        version: Version,
        committed: bool,
        freed: &mut Vec<u32>,
    ) -> bool {
        let newest = self.newest();
        if newest == NO_VERSION {
            arena.set(number, Version { next: NO_VERSION, ..version });
            self.replace_newest(NO_VERSION, number);
            return true;
        }
        if arena.get(newest).stamp > version.stamp {
            self.insert(arena, number, version);
            return false;
        }
        arena.set(number, Version { next: newest, ..version });
        if self.try_exclude_readers() {
            unlink_covered(arena, number, version, committed, freed);
            self.slot.0.store(CLAIM | u64::from(number), Ordering::Release);
        } else {
            self.replace_newest(newest, number);
        }
        false
    }

    /// Puts a version where its stamp belongs, below the newest.
    #[cold]
    fn insert(&self, arena: &VersionArena, number: u32, version: Version) {
        self.change(|newest| {
            let mut above = newest;
            let mut below = arena.get(newest).next;
            while below != NO_VERSION && arena.get(below).stamp > version.stamp {
                above = below;
                below = arena.get(below).next;
            }
            arena.set(number, Version { next: below, ..version });
            arena.set(above, Version { next: number, ..arena.get(above) });
            newest
        });
    }

    #[inline]
    fn replace_newest(&self, old: u32, new: u32) {
        // Only the claim's holder changes the low half, so the difference can be added while readers come and go.
        let difference = u64::from(new).wrapping_sub(u64::from(old));
        self.slot.0.fetch_add(difference, Ordering::Release);
    }

    #[inline]
    fn try_exclude_readers(&self) -> bool {
        let word = self.slot.0.load(Ordering::Relaxed);
        word & READERS == 0
            && self.slot.0.compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn exclude_readers(&self) {
        let mut backoff = Backoff::new();
        while !self.try_exclude_readers() {
            backoff.wait();
        }
    }

    /// Waits until every reader that came before has left. Readers that come later see the list as it is now.
    pub fn drain_readers(&self) {
        self.exclude_readers();
        self.slot.0.fetch_and(!EXCLUSIVE, Ordering::Release);
    }

    /// Changes the list while no reader looks: `change` gets the newest version and returns the new one.
    pub fn change(&self, change: impl FnOnce(u32) -> u32) {
        self.exclude_readers();
        let newest = change(self.newest());
        self.slot.0.store(CLAIM | u64::from(newest), Ordering::Release);
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slot.0.fetch_and(!CLAIM, Ordering::Release);
    }
}

/// Unlinks what lies right behind `number` in its list and is wholly covered by it, up to the first version that is not: each step either
/// frees a version or is the last, so that a long list costs a push nothing.
fn unlink_covered(arena: &VersionArena, number: u32, version: Version, committed: bool, freed: &mut Vec<u32>) {
    let first = arena.get(number).next;
    let mut at = first;
    while at != NO_VERSION {
        let older = arena.get(at);
        let covered = version.start <= older.start && older.end() <= version.end();
        if !covered || !(committed || older.stamp == version.stamp) {
            break;
        }
        freed.push(at);
        at = older.next;
    }
    if at != first {
        arena.set(number, Version { next: at, ..version });
    }
}
