//! A lock for several readers or one writer.
//!
//! The scheduler has one, but it refuses a thread that tries to read what it reads already. Here, as in the standard
//! library, such a thread is let in where it does not wait: nobody else can be writing.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

/// Permits of a writer; a reader has one.
const ALL: usize = (u32::MAX >> 3) as usize;

/// See the module.
pub struct RwLock<T> {
    permits: BatchSemaphore,
    /// The threads that read, each as often as it does. Never locked where others may go on.
    readers: sync::Mutex<Vec<usize>>,
    value: sync::RwLock<T>,
}

/// The right to read.
#[must_use]
pub struct RwLockReadGuard<'l, T> {
    value: sync::RwLockReadGuard<'l, T>,
    lock: &'l RwLock<T>,
    thread: usize,
}

/// The right to write.
#[must_use]
pub struct RwLockWriteGuard<'l, T> {
    value: sync::RwLockWriteGuard<'l, T>,
    lock: &'l RwLock<T>,
}

#[allow(missing_docs)]
impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        RwLock {
            permits: BatchSemaphore::const_new(ALL, Fairness::Unfair),
            readers: sync::Mutex::new(Vec::new()),
            value: sync::RwLock::new(value),
        }
    }

    fn readers(&self) -> sync::MutexGuard<'_, Vec<usize>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let is_reading = self.readers().contains(&me());
        assert!(!is_reading, "a thread that reads waits to read: a writer between the two would stop it for ever");
        // An error says that the execution has ended: then whoever unwinds takes what it wants.
        let _ = self.permits.acquire_blocking(1);
        self.reading().map_err(|error| match error {
            TryLockError::Poisoned(poisoned) => poisoned,
            TryLockError::WouldBlock => panic!("a writer has a lock that was given to a reader"),
        })
    }

    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        match self.permits.try_acquire(1) {
            Ok(()) => self.reading(),
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }

    fn reading(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let thread = me();
        self.readers().push(thread);
        let guard = |value| RwLockReadGuard { value, lock: self, thread };
        match self.value.try_read() {
            Ok(value) => Ok(guard(value)),
            Err(TryLockError::Poisoned(error)) => Err(PoisonError::new(guard(error.into_inner())).into()),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        // As for readers.
        let _ = self.permits.acquire_blocking(ALL);
        self.writing().map_err(|error| match error {
            TryLockError::Poisoned(poisoned) => poisoned,
            TryLockError::WouldBlock => panic!("others have a lock that was given to a writer"),
        })
    }

    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        match self.permits.try_acquire(ALL) {
            Ok(()) => self.writing(),
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }

    fn writing(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let guard = |value| RwLockWriteGuard { value, lock: self };
        match self.value.try_write() {
            Ok(value) => Ok(guard(value)),
            Err(TryLockError::Poisoned(error)) => Err(PoisonError::new(guard(error.into_inner())).into()),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }

    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.value.get_mut()
    }

    pub fn into_inner(self) -> LockResult<T> {
        self.value.into_inner()
    }
}

fn me() -> usize {
    usize::from(shuttle::current::me())
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

// Others may go on before the permits are given back, and not between that and the end of the value's own guard, which
// comes after it.

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        let mut readers = self.lock.readers();
        let at = readers.iter().position(|thread| *thread == self.thread).expect("it reads");
        readers.swap_remove(at);
        drop(readers);
        self.lock.permits.release(1);
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.permits.release(ALL);
    }
}
