//! The interface of `wholly-sync` in virtual time: a simulation of events whose processes are threads.
//!
//! A [`run`] has a clock of its own. Of its threads one runs at a time, until it waits: for a lock, a condition, some
//! time, the end of a thread, or a [`Medium`]. Then the clock goes on to the next event, and that event's thread runs.
//! What a thread does between two waits takes no time. So a run takes the same virtual time on each machine, as long as
//! what its threads do depends on no other clock and no randomness.
//!
//! # Rules
//!
//! 1. Events of one time come in the order in which they were caused.
//! 2. A lock is handed over in the order of those who wait for it: the first of them has it as soon as it is released.
//! 3. `yield_now` waits for the next event of a thread that has not yielded. Where all have, it takes [`YIELD_NS`].
//! 4. Where every thread waits for another, each of them panics.
//!
//! Threads outside of a run have the standard library's locks and clock: setup needs no run. They must not share a
//! condition with threads of a run.

mod condvar;
mod lock;
mod run;
pub mod thread;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use lock::{Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use run::{Medium, YIELD_NS, run};
pub use sync::{
    AtomicBool, AtomicCell, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, BLOCKS_AT_A_TIME, Ordering, fence,
    fences_are_light, heavy_fence, light_fence, lightest_fence, prepare_fences,
};
pub use thread::{Spawned, beside, spawn};

use std::time::Duration;

/// Time since some moment: in a run, its virtual time.
pub fn now() -> Duration {
    run::current().map_or_else(sync::now, |(run, _)| run.now())
}

/// Tokens of threads outside of a run begin here.
const OUTSIDE: u64 = 1 << 32;

/// A small number that names the calling thread of a run, the same for its whole life.
pub fn thread_token() -> u64 {
    run::current().map_or_else(|| OUTSIDE + sync::thread_token(), |(_, me)| me as u64)
}

/// See [`thread_token`].
pub fn known_thread_token() -> u64 {
    thread_token()
}

/// Waits to be notified, until it is so late ([`now`]).
pub fn wait_until<'a, T>(
    _lock: &'a Mutex<T>,
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    until: Duration,
) -> MutexGuard<'a, T> {
    match until.saturating_sub(now()) {
        Duration::ZERO => guard,
        left => condvar.wait_timeout(guard, left).unwrap().0,
    }
}

/// Waiting for a condition that another thread is about to make true: the others go on.
#[derive(Default)]
pub struct Backoff(sync::Backoff);

#[allow(missing_docs)]
impl Backoff {
    pub fn new() -> Self {
        Backoff::default()
    }

    pub fn wait(&mut self) {
        if run::current().is_some() { thread::yield_now() } else { self.0.wait() }
    }
}

#[cfg(test)]
mod tests;
