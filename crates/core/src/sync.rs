//! The only door to threads, locks and atomics, so that schedulers for tests can take their place.

pub use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Condvar, Mutex, MutexGuard, RwLock};
pub use std::thread;

use std::cell::Cell;
use std::sync::atomic::AtomicU64 as StdAtomicU64;

/// A small number that names the calling thread, from 0 up, the same for its whole life.
#[inline]
pub fn thread_token() -> u64 {
    static NEXT: StdAtomicU64 = StdAtomicU64::new(0);
    thread_local!(static TOKEN: Cell<u64> = const { Cell::new(u64::MAX) });
    TOKEN.with(|token| {
        if token.get() == u64::MAX {
            token.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        token.get()
    })
}

/// Waiting for a condition that another thread is about to make true: spins, then yields, then sleeps briefly.
pub struct Backoff {
    round: u32,
}

impl Backoff {
    /// Before the first wait.
    pub fn new() -> Self {
        Backoff { round: 0 }
    }

    /// Waits a little longer than the last time.
    pub fn wait(&mut self) {
        self.round += 1;
        match self.round {
            0..=6 => (0..1 << self.round).for_each(|_| std::hint::spin_loop()),
            7..=200 => thread::yield_now(),
            _ => thread::sleep(std::time::Duration::from_micros(50)),
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}
