//! Locks. A thread of a run first gets the right to a lock from the run, and then finds the lock itself free.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use crate::run::{Key, Waiter, current};

/// The word of a lock that one thread has for itself; else, how many read.
const ALONE: u32 = u32::MAX;

/// The right to a lock.
#[derive(Debug)]
struct Right {
    word: AtomicU32,
    waiting: AtomicU32,
}

impl Right {
    const fn new() -> Right {
        Right { word: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    fn take(&self, alone: bool) -> bool {
        match self.word.load(Ordering::Relaxed) {
            0 if alone => self.word.store(ALONE, Ordering::Relaxed),
            readers if !alone && readers != ALONE => self.word.store(readers + 1, Ordering::Relaxed),
            _ => return false,
        }
        true
    }

    /// Waits for it, if the calling thread is one of a run. Whether it is.
    fn acquire(&self, alone: bool) -> bool {
        let Some((run, me)) = current() else { return false };
        if self.waiting.load(Ordering::Relaxed) > 0 || !self.take(alone) {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let mut state = run.state();
            state.queue(self.key()).push_back(Waiter { thread: me, alone });
            run.switch(state, me);
        }
        true
    }

    /// Takes the lock if it is free, and returns whether it was. `None` outside of a run.
    fn try_acquire(&self, alone: bool) -> Option<bool> {
        current().map(|_| self.take(alone))
    }

    /// Gives it back, and to the first of those who wait.
    fn release(&self, alone: bool) {
        match alone {
            true => self.word.store(0, Ordering::Relaxed),
            false => _ = self.word.fetch_sub(1, Ordering::Relaxed),
        }
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some((run, _)) = current() else { return };
        let mut state = run.state();
        while let Some(first) = state.queue(self.key()).front().copied()
            && self.take(first.alone)
        {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            state.pop(self.key());
            state.wake(first.thread);
        }
        if self.waiting.load(Ordering::Relaxed) == 0 {
            // The empty queue that was just looked at.
            state.pop(self.key());
        }
    }

    fn key(&self) -> Key {
        Key::At(std::ptr::from_ref(self).addr())
    }
}

/// The right to a lock that has no value, until this is dropped.
struct Given<'l>(&'l Right);

impl<'l> Given<'l> {
    fn new(right: &'l Right) -> Option<Given<'l>> {
        right.acquire(true).then_some(Given(right))
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.0.release(true);
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident of $lock:ident, alone: $alone:literal) => {
        $(#[$doc])*
        #[must_use]
        pub struct $name<'l, T> {
            /// Dropped before the right is given back.
            value: ManuallyDrop<sync::$name<'l, T>>,
            lock: &'l $lock<T>,
            /// Whether there is a right to be given back.
            in_run: bool,
        }

        impl<'l, T> $name<'l, T> {
            fn new(lock: &'l $lock<T>, locked: LockResult<sync::$name<'l, T>>, in_run: bool) -> LockResult<Self> {
                let guard = |value| $name { value: ManuallyDrop::new(value), lock, in_run };
                match locked {
                    Ok(value) => Ok(guard(value)),
                    Err(error) => Err(PoisonError::new(guard(error.into_inner()))),
                }
            }

            fn tried(
                lock: &'l $lock<T>,
                locked: TryLockResult<sync::$name<'l, T>>,
                in_run: bool,
            ) -> TryLockResult<Self> {
                match locked {
                    Ok(value) => Ok(Self::new(lock, Ok(value), in_run)?),
                    Err(TryLockError::Poisoned(error)) => Ok(Self::new(lock, Err(error), in_run)?),
                    Err(TryLockError::WouldBlock) => {
                        // A thread outside of the run has it.
                        if in_run {
                            lock.right.release($alone);
                        }
                        Err(TryLockError::WouldBlock)
                    }
                }
            }
        }

        impl<T> Drop for $name<'_, T> {
            fn drop(&mut self) {
                // SAFETY: it is dropped once, and not used after that.
                unsafe { ManuallyDrop::drop(&mut self.value) };
                if self.in_run {
                    self.lock.right.release($alone);
                }
            }
        }

        impl<T> Deref for $name<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.value
            }
        }

        impl<T: fmt::Debug> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

guard!(
    /// A locked mutex.
    MutexGuard of Mutex, alone: true
);
guard!(
    /// The right to read.
    RwLockReadGuard of RwLock, alone: false
);
guard!(
    /// The right to write.
    RwLockWriteGuard of RwLock, alone: true
);

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// A lock for one thread.
#[derive(Debug)]
pub struct Mutex<T> {
    right: Right,
    value: sync::Mutex<T>,
}

#[allow(missing_docs)]
impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Mutex { right: Right::new(), value: sync::Mutex::new(value) }
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let in_run = self.right.acquire(true);
        MutexGuard::new(self, self.value.lock(), in_run)
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.right.try_acquire(true) {
            Some(false) => Err(TryLockError::WouldBlock),
            taken => MutexGuard::tried(self, self.value.try_lock(), taken.is_some()),
        }
    }

    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.value.get_mut()
    }

    pub fn into_inner(self) -> LockResult<T> {
        self.value.into_inner()
    }
}

impl<'l, T> MutexGuard<'l, T> {
    /// Unlocks it, waits `inside` of a run or `outside` of one, and locks it again.
    pub(crate) fn unlocked<R>(
        self,
        inside: impl FnOnce() -> R,
        outside: impl FnOnce(sync::MutexGuard<'l, T>) -> (LockResult<sync::MutexGuard<'l, T>>, R),
    ) -> (LockResult<MutexGuard<'l, T>>, R) {
        let lock = self.lock;
        if self.in_run {
            drop(self);
            let result = inside();
            return (lock.lock(), result);
        }
        let mut guard = ManuallyDrop::new(self);
        // SAFETY: the guard is not dropped; there is no right to be given back.
        let value = unsafe { ManuallyDrop::take(&mut guard.value) };
        let (value, result) = outside(value);
        (MutexGuard::new(lock, value, false), result)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A lock for several readers or one writer.
#[derive(Debug)]
pub struct RwLock<T> {
    right: Right,
    value: sync::RwLock<T>,
}

#[allow(missing_docs)]
impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        RwLock { right: Right::new(), value: sync::RwLock::new(value) }
    }

    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let in_run = self.right.acquire(false);
        RwLockReadGuard::new(self, self.value.read(), in_run)
    }

    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        match self.right.try_acquire(false) {
            Some(false) => Err(TryLockError::WouldBlock),
            taken => RwLockReadGuard::tried(self, self.value.try_read(), taken.is_some()),
        }
    }

    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let in_run = self.right.acquire(true);
        RwLockWriteGuard::new(self, self.value.write(), in_run)
    }

    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        match self.right.try_acquire(true) {
            Some(false) => Err(TryLockError::WouldBlock),
            taken => RwLockWriteGuard::tried(self, self.value.try_write(), taken.is_some()),
        }
    }

    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.value.get_mut()
    }

    pub fn into_inner(self) -> LockResult<T> {
        self.value.into_inner()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A cell that is written once.
#[derive(Debug)]
pub struct OnceLock<T> {
    writing: Right,
    cell: sync::OnceLock<T>,
}

#[allow(missing_docs)]
impl<T> OnceLock<T> {
    pub const fn new() -> Self {
        OnceLock { writing: Right::new(), cell: sync::OnceLock::new() }
    }

    pub fn get(&self) -> Option<&T> {
        self.cell.get()
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        let _writing = Given::new(&self.writing);
        self.cell.set(value)
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.cell.get() {
            return value;
        }
        let _writing = Given::new(&self.writing);
        self.cell.get_or_init(make)
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}
