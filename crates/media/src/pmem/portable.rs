//! An ordinary copy, for processors whose persistence instructions Wholly does not know: **no persistence primitive**.

use super::store::Instructions;
use std::sync::atomic::{Ordering, fence as memory_fence};

/// Orders memory between processors. Says nothing about persistence.
pub(super) fn fence() {
    memory_fence(Ordering::SeqCst);
}

/// A fence.
pub(super) fn hand_over() {
    fence();
}

/// Nothing.
pub(crate) fn prefetch(_: *const u8) {}

/// Nothing.
pub(crate) fn prefetch_to_write(_: *const u8) {}

/// Nothing.
pub(super) fn prefetch_far(_: *const u8) {}

/// An ordinary copy.
pub(super) fn copy_for_this_processor(_caches_persist: bool) -> Instructions {
    Instructions { copy, name: "ordinary stores", persistent: false }
}

/// An ordinary copy.
///
/// # Safety
/// As for [`Copy`](super::store::Copy).
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the same promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
}
