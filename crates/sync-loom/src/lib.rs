//! The part of the interface of `wholly-sync` that the index and transactions of blocks use, over a memory model.
//!
//! Each use of an atomic with an order stronger than relaxed is a *site*, known by its place in the source. One site at
//! a time can be weakened to relaxed, to see that a model finds it.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub use loom::sync::{Condvar, Mutex, MutexGuard};
pub use std::sync::atomic::Ordering;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// A use of an atomic whose order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The file's name.
    pub file: &'static str,
    /// The line.
    pub line: u32,
    /// What is done there.
    pub operation: &'static str,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: {}", self.file, self.line, self.operation)
    }
}

std::thread_local! {
    static SITES: RefCell<BTreeSet<Site>> = const { RefCell::new(BTreeSet::new()) };
    static WEAKENED: Cell<Option<Site>> = const { Cell::new(None) };
}

/// The sites that were passed on this thread of the operating system, where all threads of its models run.
pub fn sites() -> BTreeSet<Site> {
    SITES.with_borrow(Clone::clone)
}

/// Makes one site relaxed from now on, or none.
pub fn weaken(site: Option<Site>) {
    WEAKENED.set(site);
}

/// The order that counts at the caller's site.
#[track_caller]
fn at_site(operation: &'static str, order: Ordering) -> Ordering {
    if order == Ordering::Relaxed {
        return order;
    }
    let caller = Location::caller();
    let file = caller.file().rsplit('/').next().expect("a path has a last part");
    let site = Site { file, line: caller.line(), operation };
    SITES.with_borrow_mut(|sites| sites.insert(site));
    if WEAKENED.get() == Some(site) { Ordering::Relaxed } else { order }
}

/// A fence. Weakened, it is none.
#[track_caller]
pub fn fence(order: Ordering) {
    let order = at_site("fence", order);
    if order != Ordering::Relaxed {
        loom::sync::atomic::fence(order);
    }
}

macro_rules! atomic {
    ($name:ident, $word:ty) => {
        /// The model's.
        ///
        /// One that is made by `default` enters the model at its first use: most words of an arena are never used, and
        /// the model's time goes by their number. Nobody may take a lesson from its first value, because that would
        /// count as written by who used it first: the arena's words are only read relaxed.
        #[derive(Debug, Default)]
        pub struct $name(std::sync::OnceLock<loom::sync::atomic::$name>);

        #[allow(missing_docs)]
        impl $name {
            pub fn new(value: $word) -> Self {
                let word = $name::default();
                word.0.get_or_init(|| loom::sync::atomic::$name::new(value));
                word
            }

            fn word(&self) -> &loom::sync::atomic::$name {
                self.0.get_or_init(|| loom::sync::atomic::$name::new(0))
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $word {
                self.word().load(at_site("load", order))
            }

            #[track_caller]
            pub fn store(&self, value: $word, order: Ordering) {
                self.word().store(value, at_site("store", order));
            }

            #[track_caller]
            pub fn fetch_add(&self, by: $word, order: Ordering) -> $word {
                self.word().fetch_add(by, at_site("fetch_add", order))
            }

            #[track_caller]
            pub fn fetch_sub(&self, by: $word, order: Ordering) -> $word {
                self.word().fetch_sub(by, at_site("fetch_sub", order))
            }

            #[track_caller]
            pub fn fetch_max(&self, other: $word, order: Ordering) -> $word {
                self.word().fetch_max(other, at_site("fetch_max", order))
            }

            #[track_caller]
            pub fn fetch_and(&self, by: $word, order: Ordering) -> $word {
                self.word().fetch_and(by, at_site("fetch_and", order))
            }

            #[track_caller]
            pub fn fetch_or(&self, by: $word, order: Ordering) -> $word {
                self.word().fetch_or(by, at_site("fetch_or", order))
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                old: $word,
                new: $word,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$word, $word> {
                self.word().compare_exchange(
                    old,
                    new,
                    at_site("compare_exchange", done),
                    at_site("failed exchange", failed),
                )
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
        }
    };
}

atomic!(AtomicU32, u32);
atomic!(AtomicU64, u64);

/// The model's.
#[derive(Debug)]
pub struct AtomicBool(loom::sync::atomic::AtomicBool);

#[allow(missing_docs)]
impl AtomicBool {
    pub fn new(value: bool) -> Self {
        AtomicBool(loom::sync::atomic::AtomicBool::new(value))
    }

    #[track_caller]
    pub fn load(&self, order: Ordering) -> bool {
        self.0.load(at_site("load", order))
    }

    #[track_caller]
    pub fn store(&self, value: bool, order: Ordering) {
        self.0.store(value, at_site("store", order));
    }
}

/// A small number that names the calling thread, the same in each run of a model. The model tells it as text alone.
pub fn thread_token() -> u64 {
    let text = format!("{:?}", loom::thread::current().id());
    text.bytes().filter(u8::is_ascii_digit).fold(0, |number, digit| 10 * number + u64::from(digit - b'0'))
}

/// Time does not go on.
pub fn now() -> Duration {
    Duration::ZERO
}

/// Waits no longer: the others may go on first.
pub fn wait_until<'a, T>(
    lock: &'a Mutex<T>,
    _condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    _until: Duration,
) -> MutexGuard<'a, T> {
    drop(guard);
    loom::thread::yield_now();
    lock.lock().expect("a model ends with its first panic")
}

/// A cell that is written once, as the standard library promises it: who sees that it is written sees what was written
/// before.
#[derive(Debug)]
pub struct OnceLock<T> {
    written: loom::sync::atomic::AtomicBool,
    writing: Mutex<()>,
    cell: std::sync::OnceLock<T>,
}

#[allow(missing_docs)]
impl<T> OnceLock<T> {
    pub fn new() -> Self {
        OnceLock {
            written: loom::sync::atomic::AtomicBool::new(false),
            writing: Mutex::new(()),
            cell: std::sync::OnceLock::new(),
        }
    }

    pub fn get(&self) -> Option<&T> {
        if self.written.load(Ordering::Acquire) { self.cell.get() } else { None }
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _writing = self.writing.lock().expect("a model ends with its first panic");
        if self.cell.get().is_none() {
            let _ = self.cell.set(make());
            self.written.store(true, Ordering::Release);
        }
        self.cell.get().expect("it is written")
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
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
        loom::thread::yield_now();
    }
}
