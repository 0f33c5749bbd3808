//! Groups between taking their sequence and being published: what a checkpoint has to wait for.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use sync::{AtomicU64, Backoff, Ordering, heavy_fence, light_fence, thread_token};

/// Slots that belong to a seat each.
pub const OWN_SLOTS: usize = 8;
const SLOTS: usize = 64;
const IDLE: u64 = u64::MAX;

/// A bounded registry of the commits under way. Each holds a lower bound of its sequence.
pub struct InFlight {
    slots: Box<[CachePadded<AtomicU64>]>,
}

/// Proof that a batch of commits is registered; dropped when the last of them is published.
pub struct Ticket {
    in_flight: Arc<InFlight>,
    slot: usize,
}

impl InFlight {
    pub(super) fn new() -> Self {
        InFlight { slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect() }
    }

    /// Registers a commit in a slot that only the caller uses. No locked instruction; otherwise like
    /// [`enter`](Self::enter).
    #[inline]
    pub fn enter_own(&self, slot: usize, bound: u64) {
        debug_assert!(slot < OWN_SLOTS);
        self.slots[slot].store(bound, Ordering::Release);
        light_fence();
    }

    /// Registers a commit whose sequence will be `bound` or higher, and returns its slot, to be [left](Self::leave)
    /// when it is published. Waits while all slots are taken.
    ///
    /// Sequentially consistent with [`Log::announce_tail`](super::Log::announce_tail): either the caller sees the
    /// announcement afterwards, or the announcer sees the caller.
    #[inline]
    pub fn enter(&self, bound: u64) -> usize {
        let mut backoff = Backoff::new();
        let start = thread_token() as usize;
        loop {
            for i in 0..SLOTS - OWN_SLOTS {
                let slot = OWN_SLOTS + (start + i) % (SLOTS - OWN_SLOTS);
                if self.slots[slot].compare_exchange(IDLE, bound, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    return slot;
                }
            }
            backoff.wait();
        }
    }

    /// The commit in this slot is published, or was not made.
    #[inline]
    pub fn leave(&self, slot: usize) {
        self.slots[slot].store(IDLE, Ordering::Release);
    }

    /// [Enters](Self::enter) for as long as the ticket lives.
    #[inline]
    pub fn ticket(self: &Arc<Self>, bound: u64) -> Ticket {
        Ticket { in_flight: self.clone(), slot: self.enter(bound) }
    }

    /// Waits until every commit that is under way has ended. Those that begin later see what the caller stored before.
    pub fn wait_for_current(&self) {
        heavy_fence();
        for slot in &self.slots {
            let current = slot.load(Ordering::SeqCst);
            let mut backoff = Backoff::new();
            while current != IDLE && slot.load(Ordering::SeqCst) == current {
                backoff.wait();
            }
        }
    }

    /// Waits until no commit is under way that may have a sequence below `target`. The caller has stored what makes
    /// later ones be higher.
    pub(super) fn wait_below(&self, target: u64) {
        for slot in &self.slots {
            let mut backoff = Backoff::new();
            while slot.load(Ordering::SeqCst) < target {
                backoff.wait();
            }
        }
    }
}

impl Drop for Ticket {
    #[inline]
    fn drop(&mut self) {
        self.in_flight.leave(self.slot);
    }
}
