//! What groups that last have gathered in memory: together they have so much there at most, and the rest is in the
//! [swap](super::super::swap).

use std::sync::Arc;

use super::Running;
use crate::error::Result;
use crate::log::layout::{EntryKind, LINE};

impl Running {
    /// After a call that gathers bytes: what is too much for memory goes to the swap. Where that has no room, nothing
    /// is lost, and it stays in memory.
    #[inline]
    pub(super) fn keep_to_memory(&mut self) {
        if self.lasts && !self.in_lane {
            self.count_memory();
            if self.store.swap.in_memory() > self.store.options.pending_bytes {
                self.swap_out();
            }
        }
    }

    /// Tells the swap how much the group has in memory.
    pub(super) fn count_memory(&mut self) {
        let Some(seat) = &self.seat else { return };
        let now = if self.lasts { seat.gathered_bytes - seat.swapped_bytes } else { 0 };
        self.store.swap.count(std::mem::replace(&mut self.in_memory, now), now);
    }

    #[cold]
    fn swap_out(&mut self) {
        let store = self.store.clone();
        let bytes = self.seat().gathered_bytes - self.seat().swapped_bytes;
        // What the host has is promised to what is to come home. A place is up to twice as long as what is in it.
        if store.left_to_promise().is_ok_and(|left| left.bytes < 2 * bytes) {
            return;
        }
        let seat = self.seat_mut();
        // Those before were looked at when they were the last.
        for (number, entry) in seat.gathered.iter_mut().enumerate().skip(seat.looked_at) {
            if entry.kind == EntryKind::Write && entry.data.len() as u64 >= LINE {
                let Ok(swapped) = store.swap.put(&*store.host, &entry.data) else { break };
                seat.swapped.insert(number, swapped);
                seat.swapped_bytes += entry.data.len() as u64;
                entry.data = Arc::default();
            }
            seat.looked_at = number + 1;
        }
        self.count_memory();
    }

    /// Brings what the group has in the swap back to memory. After an error nothing has changed.
    #[inline]
    pub(super) fn swap_in(&mut self) -> Result<()> {
        if self.seat().swapped.is_empty() { Ok(()) } else { self.swap_all_in() }
    }

    #[cold]
    fn swap_all_in(&mut self) -> Result<()> {
        let store = self.store.clone();
        let take = |swapped| store.swap.take(&*store.host, swapped);
        let bytes: Vec<Arc<[u8]>> = self.seat().swapped.values().copied().map(take).collect::<Result<_>>()?;
        let seat = self.seat_mut();
        for ((number, swapped), bytes) in std::mem::take(&mut seat.swapped).into_iter().zip(bytes) {
            seat.gathered[number].data = bytes;
            store.swap.free(swapped);
        }
        (seat.swapped_bytes, seat.looked_at) = (0, 0);
        self.count_memory();
        Ok(())
    }

    /// The group ends.
    pub(super) fn leave_swap(&mut self) {
        self.store.swap.count(std::mem::take(&mut self.in_memory), 0);
        if let Some(seat) = &mut self.seat {
            std::mem::take(&mut seat.swapped).into_values().for_each(|swapped| self.store.swap.free(swapped));
            (seat.swapped_bytes, seat.looked_at) = (0, 0);
        }
    }
}
