//! The interface of `wholly-sync` over a scheduler, which decides at each call which thread continues.
//!
//! The scheduler keeps one order of all that happens: what weaker memory orders allow is tried in `wholly-orders`. A
//! wait that would end by itself some time, does not: whoever is waited for has to say so.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod rw_lock;

pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize};
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub use std::sync::atomic::Ordering;

use std::cell::Cell;
use std::panic::Location;
use std::time::Duration;

/// Few enough for two threads to share a lot.
pub const BLOCKS_AT_A_TIME: usize = 1;

/// The scheduler's threads.
pub mod thread {
    pub use shuttle::thread::*;

    use std::num::NonZero;

    /// Two, whatever the machine: an execution is the same everywhere.
    ///
    /// # Errors
    /// None: the standard library's may fail.
    pub fn available_parallelism() -> std::io::Result<NonZero<usize>> {
        Ok(const { NonZero::new(2).unwrap() })
    }
}

/// A mistake that is made on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// What changes an atomic word in the file of this name reads it, lets others go on, and writes it.
    Torn(&'static str),
    /// All threads have the same token.
    OneToken,
    /// Commits in flight are not waited for.
    NobodyInFlight,
}

std::thread_local!(static MISTAKE: Cell<Option<Mistake>> = const { Cell::new(None) });

/// Makes a mistake, or none, from now on in executions of this thread of the operating system, where all their threads
/// run.
pub fn make(mistake: Option<Mistake>) {
    MISTAKE.set(mistake);
}

fn makes(mistake: Mistake) -> bool {
    MISTAKE.get() == Some(mistake)
}

/// Whether the caller is to see that nobody is in flight.
#[track_caller]
fn is_blind() -> bool {
    makes(Mistake::NobodyInFlight) && Location::caller().file().ends_with("log/src/in_flight.rs")
}

/// Whether a mistake is made in the file of the caller.
#[track_caller]
fn is_torn() -> bool {
    match MISTAKE.get() {
        Some(Mistake::Torn(file)) => Location::caller().file().ends_with(file),
        _ => false,
    }
}

macro_rules! atomics {
    ($($atomic:ident: $word:ty;)*) => {
        $(
            /// The scheduler's, with a place for mistakes.
            #[derive(Debug, Default)]
            pub struct $atomic(shuttle::sync::atomic::$atomic);

            #[allow(missing_docs)]
            impl $atomic {
                pub const fn new(value: $word) -> Self {
                    $atomic(shuttle::sync::atomic::$atomic::new(value))
                }

                #[track_caller]
                pub fn load(&self, order: Ordering) -> $word {
                    if is_blind() { <$word>::MAX } else { self.0.load(order) }
                }

                pub fn store(&self, value: $word, order: Ordering) {
                    self.0.store(value, order);
                }

                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    old: $word,
                    new: $word,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$word, $word> {
                    if !is_torn() {
                        return self.0.compare_exchange(old, new, done, failed);
                    }
                    let now = self.0.load(Ordering::SeqCst);
                    if now != old {
                        return Err(now);
                    }
                    self.0.store(new, Ordering::SeqCst);
                    Ok(old)
                }

                #[track_caller]
                pub fn compare_exchange_weak(
                    &self,
                    old: $word,
                    new: $word,
                    done: Ordering,
                    failed: Ordering,
                ) -> Result<$word, $word> {
                    self.compare_exchange(old, new, done, failed)
                }

                #[track_caller]
                pub fn fetch_update(
                    &self,
                    done: Ordering,
                    failed: Ordering,
                    mut change: impl FnMut($word) -> Option<$word>,
                ) -> Result<$word, $word> {
                    if !is_torn() {
                        return self.0.fetch_update(done, failed, change);
                    }
                    let old = self.0.load(Ordering::SeqCst);
                    self.0.store(change(old).ok_or(old)?, Ordering::SeqCst);
                    Ok(old)
                }

                atomics! { change $word;
                    fetch_add: |a, b| a.wrapping_add(b);
                    fetch_sub: |a, b| a.wrapping_sub(b);
                    fetch_and: |a, b| a & b;
                    fetch_or: |a, b| a | b;
                    fetch_max: |a, b| a.max(b);
                    fetch_min: |a, b| a.min(b);
                    swap: |_, new| new;
                }
            }
        )*
    };
    (change $word:ty; $($name:ident: $change:expr;)*) => {
        $(
            #[track_caller]
            pub fn $name(&self, by: $word, order: Ordering) -> $word {
                if !is_torn() {
                    return self.0.$name(by, order);
                }
                let old = self.0.load(Ordering::SeqCst);
                let change: fn($word, $word) -> $word = $change;
                self.0.store(change(old, by), Ordering::SeqCst);
                old
            }
        )*
    };
}

atomics! {
    AtomicU32: u32;
    AtomicU64: u64;
}

/// A cell that is taken from and put into at once.
#[derive(Debug, Default)]
pub struct AtomicCell<T>(Mutex<T>);

#[allow(missing_docs)]
impl<T> AtomicCell<T> {
    pub const fn new(value: T) -> Self {
        AtomicCell(Mutex::new(value))
    }

    pub fn take(&self) -> T
    where
        T: Default,
    {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    pub fn store(&self, value: T) {
        *self.0.lock().unwrap() = value;
    }
}

/// A cell that is written once. Who finds it being written waits in the scheduler: the standard library's would stop
/// all threads.
#[derive(Debug)]
pub struct OnceLock<T> {
    /// Made when it is needed, because the scheduler's is large and many cells are never written.
    writing: std::sync::OnceLock<Box<Mutex<()>>>,
    cell: std::sync::OnceLock<T>,
}

#[allow(missing_docs)]
impl<T> OnceLock<T> {
    pub const fn new() -> Self {
        OnceLock { writing: std::sync::OnceLock::new(), cell: std::sync::OnceLock::new() }
    }

    fn writing(&self) -> &Mutex<()> {
        self.writing.get_or_init(Box::default)
    }

    pub fn get(&self) -> Option<&T> {
        self.cell.get()
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        let _writing = self.writing().lock().unwrap();
        self.cell.set(value)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.cell.get().is_none() {
            let _writing = self.writing().lock().unwrap();
            if self.cell.get().is_none() {
                let value = make();
                let _ = self.cell.set(value);
            }
        }
        self.cell.get().expect("it was just written")
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A small number that names the calling thread: the scheduler's.
pub fn thread_token() -> u64 {
    if makes(Mistake::OneToken) { 0 } else { usize::from(shuttle::current::me()) as u64 }
}

/// See [`thread_token`].
pub fn known_thread_token() -> u64 {
    thread_token()
}

/// A place where others may go on, between two calls of a medium.
pub fn switch() {
    std::thread_local!(static NOTHING: shuttle::sync::atomic::AtomicBool = const { shuttle::sync::atomic::AtomicBool::new(false) });
    NOTHING.with(|nothing| nothing.load(Ordering::SeqCst));
}

/// A thread. It goes on when this is dropped.
#[derive(Debug)]
pub struct Spawned(thread::JoinHandle<()>);

#[allow(missing_docs)]
impl Spawned {
    pub fn join(self) {
        let _ = self.0.join();
    }

    pub fn is_current(&self) -> bool {
        self.0.thread().id() == thread::current().id()
    }
}

/// Starts a thread.
///
/// # Errors
/// None: the standard interface's may fail.
pub fn spawn(work: impl FnOnce() + Send + 'static) -> rustix::io::Result<Spawned> {
    Ok(Spawned(thread::spawn(work)))
}

/// Does `work` while another thread does `help`. Returns when both are done.
pub fn beside<T>(help: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let helper = scope.spawn(help);
        let result = work();
        drop(helper);
        result
    })
}

/// A second passes from one look at the clock to the next: whoever waits for time to pass has waited long enough.
pub fn now() -> Duration {
    std::thread_local!(static SECONDS: Cell<u64> = const { Cell::new(0) });
    Duration::from_secs(SECONDS.replace(SECONDS.get() + 1))
}

/// A wait whose time is over when the scheduler says so: it does not need to be notified.
pub fn wait_until<'a, T>(
    lock: &'a Mutex<T>,
    _condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    _until: Duration,
) -> MutexGuard<'a, T> {
    drop(guard);
    thread::yield_now();
    lock.lock().unwrap()
}

/// Waiting for a condition that another thread is about to make true: the others go on.
#[derive(Debug, Default)]
pub struct Backoff;

#[allow(missing_docs)]
impl Backoff {
    pub fn new() -> Self {
        Backoff
    }

    pub fn wait(&mut self) {
        thread::yield_now();
    }
}

/// Nothing to prepare: there is one order of everything.
pub fn prepare_fences() {}

/// See [`prepare_fences`].
pub fn fence(_order: Ordering) {}

/// See [`prepare_fences`].
pub fn light_fence() {}

/// They cost nothing here.
pub fn fences_are_light() -> bool {
    true
}

/// See [`prepare_fences`].
pub fn lightest_fence() {}

/// See [`prepare_fences`].
pub fn heavy_fence() {}
