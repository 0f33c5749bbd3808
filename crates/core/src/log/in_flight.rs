//! Groups between taking their sequence and being published: what a checkpoint has to wait for.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Backoff, Ordering, thread_token};

const SLOTS: usize = 64;
const IDLE: u64 = u64::MAX;

/// A bounded registry of the commits under way. Each holds a lower bound of its sequence.
pub struct InFlight {
    slots: Box<[CachePadded<AtomicU64>]>,
}

/// Proof that commits are registered; dropped when the last of them is published.
pub struct Ticket {
    in_flight: Arc<InFlight>,
    slot: usize,
}

impl InFlight {
    pub(super) fn new() -> Self {
        InFlight { slots: (0..SLOTS).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect() }
    }

    /// Registers a commit whose sequence will be `bound` or higher. Waits while all slots are taken.
    ///
    /// Sequentially consistent with [`Log::announce_tail`](super::Log::announce_tail): either the caller sees the announcement
    /// afterwards, or the announcer sees the caller.
    #[inline]
    pub fn enter(self: &Arc<Self>, bound: u64) -> Ticket {
        let mut backoff = Backoff::new();
        let start = thread_token() as usize;
        loop {
            for i in 0..SLOTS {
                let slot = (start + i) % SLOTS;
                if self.slots[slot].compare_exchange(IDLE, bound, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                    return Ticket { in_flight: self.clone(), slot };
                }
            }
            backoff.wait();
        }
    }

    /// Waits until no commit is under way that may have a sequence below `target`.
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
        self.in_flight.slots[self.slot].store(IDLE, Ordering::Release);
    }
}
