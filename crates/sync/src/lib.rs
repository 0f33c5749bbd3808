//! Access to threads, locks, atomics and asymmetric fences. No other crate takes them from elsewhere, so that tests can
//! replace them.
//!
//! Three packages have this interface: this one is the standard library's, `wholly-sync-shuttle` a scheduler's, and
//! `wholly-sync-loom` has as much of it as the index needs, in a memory model. Constants may use only `new` of these
//! types, and none in the index: the model's cannot be made at compile time.

#![warn(missing_docs)]

mod spawn;

pub use crossbeam_utils::atomic::AtomicCell;
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::thread;

pub use spawn::{Spawned, beside, spawn};

use std::cell::Cell;
use std::sync::atomic::AtomicU64 as StdAtomicU64;
use std::time::{Duration, Instant};

/// Blocks that a thread of a checkpoint takes, and visits, at a time. Here because a scheduler tries lots of a few
/// blocks only.
pub const BLOCKS_AT_A_TIME: usize = 1024;

/// A small number that names the calling thread, from 0 up, the same for its whole life.
#[inline(always)]
pub fn thread_token() -> u64 {
    let token = TOKEN.with(Cell::get);
    if token == u64::MAX { new_token() } else { token }
}

thread_local!(static TOKEN: Cell<u64> = const { Cell::new(u64::MAX) });

/// [`thread_token`] if the thread has asked for it before, else `u64::MAX`.
#[inline(always)]
pub fn known_thread_token() -> u64 {
    TOKEN.with(Cell::get)
}

#[cold]
fn new_token() -> u64 {
    static NEXT: StdAtomicU64 = StdAtomicU64::new(0);
    let token = NEXT.fetch_add(1, Ordering::Relaxed);
    TOKEN.with(|own| own.set(token));
    token
}

/// The time since some moment: it never goes back.
pub fn now() -> Duration {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    BEGINNING.get_or_init(Instant::now).elapsed()
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
            _ => thread::sleep(Duration::from_micros(50)),
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the kernel makes fences for us: 0 not asked yet, 1 yes, 2 no.
static EXPEDITED: AtomicU8 = AtomicU8::new(0);

/// Asks the kernel, once for a process, to make [`heavy_fence`] stand for the fence of all its threads.
pub fn prepare_fences() {
    use rustix::thread::{MembarrierCommand, membarrier};
    if EXPEDITED.load(Ordering::Relaxed) == 0 {
        let registered = membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        EXPEDITED.store(if registered { 1 } else { 2 }, Ordering::Relaxed);
    }
}

/// One half of an asymmetric pair with [`heavy_fence`]: whoever stored `a`, came by here and loads `b`, and whoever
/// stored `b`, came by there and loads `a`: one of them sees the other's store. This half costs nothing. (An ordinary
/// fence, or any locked instruction, would wait for non-temporal stores to reach memory, in the middle of a commit.)
#[inline]
pub fn light_fence() {
    if EXPEDITED.load(Ordering::Relaxed) == 1 {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// Whether [`light_fence`] costs nothing: then it is [`lightest_fence`], for good.
pub fn fences_are_light() -> bool {
    EXPEDITED.load(Ordering::Relaxed) == 1
}

/// [`light_fence`] for who knows that [`fences_are_light`].
#[inline]
pub fn lightest_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// The other half of [`light_fence`]: interrupts every core on which a thread of this process runs.
pub fn heavy_fence() {
    use rustix::thread::{MembarrierCommand, membarrier};
    std::sync::atomic::fence(Ordering::SeqCst);
    if EXPEDITED.load(Ordering::Relaxed) == 1 {
        membarrier(MembarrierCommand::PrivateExpedited)
            .expect("registered by prepare_fences, and inherited by children");
    }
}
