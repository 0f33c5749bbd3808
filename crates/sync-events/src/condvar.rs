//! Conditions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{self, LockResult, PoisonError};
use std::time::Duration;

use crate::lock::MutexGuard;
use crate::run::{Key, Waiter, current};

/// A condition that threads wait for.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Threads of a run.
    waiting: AtomicU32,
    /// All others.
    outside: sync::Condvar,
}

/// Whether the time of a wait was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

#[allow(missing_docs)]
impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

#[allow(missing_docs)]
impl Condvar {
    pub const fn new() -> Self {
        Condvar { waiting: AtomicU32::new(0), outside: sync::Condvar::new() }
    }

    pub fn wait<'l, T>(&self, guard: MutexGuard<'l, T>) -> LockResult<MutexGuard<'l, T>> {
        let inside = || _ = self.wait_in_run(None);
        guard.unlocked(inside, |guard| (self.outside.wait(guard), ())).0
    }

    pub fn wait_while<'l, T>(
        &self,
        mut guard: MutexGuard<'l, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'l, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    pub fn wait_timeout<'l, T>(
        &self,
        guard: MutexGuard<'l, T>,
        time: Duration,
    ) -> LockResult<(MutexGuard<'l, T>, WaitTimeoutResult)> {
        let inside = || self.wait_in_run(Some(time));
        let outside = |guard| match self.outside.wait_timeout(guard, time) {
            Ok((guard, result)) => (Ok(guard), result.timed_out()),
            Err(error) => {
                let (guard, result) = error.into_inner();
                (Err(PoisonError::new(guard)), result.timed_out())
            }
        };
        match guard.unlocked(inside, outside) {
            (Ok(guard), is_over) => Ok((guard, WaitTimeoutResult(is_over))),
            (Err(error), is_over) => Err(PoisonError::new((error.into_inner(), WaitTimeoutResult(is_over)))),
        }
    }

    pub fn notify_one(&self) {
        self.outside.notify_one();
        self.notify(1);
    }

    pub fn notify_all(&self) {
        self.outside.notify_all();
        self.notify(u32::MAX);
    }

    /// Returns whether the wait ended by its timeout. The caller has just unlocked the mutex, and no other thread has
    /// run since then.
    fn wait_in_run(&self, time: Option<Duration>) -> bool {
        let (run, me) = current().expect("the mutex was locked in a run");
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut state = run.state();
        state.queue(self.key()).push_back(Waiter { thread: me, alone: false });
        if let Some(time) = time {
            let at = state.after(time);
            state.wake_at(me, at);
        }
        run.switch(state, me);
        let is_over = time.is_some() && run.state().leave(self.key(), me);
        if is_over {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        is_over
    }

    fn notify(&self, most: u32) {
        let threads = self.waiting.load(Ordering::Relaxed).min(most);
        let Some((run, _)) = current().filter(|_| threads > 0) else { return };
        self.waiting.fetch_sub(threads, Ordering::Relaxed);
        let mut state = run.state();
        for _ in 0..threads {
            let waiter = state.pop(self.key()).expect("as many as are counted");
            state.wake(waiter.thread);
        }
    }

    fn key(&self) -> Key {
        Key::At(std::ptr::from_ref(self).addr())
    }
}
