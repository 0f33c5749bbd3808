//! Committing threads queue, and one of them writes the record of all that wait.

use std::collections::VecDeque;

use sync::{AtomicBool, Condvar, Mutex, Ordering};
use wholly_error::{Error, Result};

/// What waits.
struct Queue<T> {
    waiting: VecDeque<T>,
    /// How many have ever waited, and how many of them are committed.
    pushed: u64,
    done: u64,
    /// Whether a thread writes records.
    is_led: bool,
}

/// Threads that commit, each with a change.
pub struct Committers<T> {
    queue: Mutex<Queue<T>>,
    /// A leader has finished.
    turn: Condvar,
    failed: AtomicBool,
}

/// The right to write records.
pub struct Leading<'c, T> {
    of: &'c Committers<T>,
    /// How many changes it has committed. `None`: it has failed.
    count: Option<u64>,
}

impl<T> Leading<'_, T> {
    /// So many changes of the queue are committed.
    pub fn end(mut self, count: u64) {
        self.count = Some(count);
    }
}

impl<T> Drop for Leading<'_, T> {
    fn drop(&mut self) {
        if self.count.is_none() {
            self.of.fail();
        }
        let mut queue = self.of.queue.lock().unwrap();
        queue.is_led = false;
        queue.done += self.count.unwrap_or(0);
        drop(queue);
        self.of.turn.notify_all();
    }
}

impl<T> Default for Committers<T> {
    fn default() -> Self {
        let queue = Queue { waiting: VecDeque::new(), pushed: 0, done: 0, is_led: false };
        Committers { queue: Mutex::new(queue), turn: Condvar::new(), failed: AtomicBool::new(false) }
    }
}

impl<T> Committers<T> {
    /// That nothing has failed.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn check(&self) -> Result<()> {
        match self.failed.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Error::Poisoned("an earlier write of the volume failed".into())),
        }
    }

    /// Nothing is committed from now on.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Commits a change with others that wait. As the leader this calls `lead` with the first change of the queue, and
    /// with those after it whose size together still fits.
    ///
    /// # Errors
    /// That of `lead`, after which nothing is committed; `Poisoned`.
    pub fn commit(
        &self,
        change: T,
        size: impl Fn(&T) -> u64,
        fits: impl Fn(u64) -> bool,
        mut lead: impl FnMut(Vec<T>) -> Result<()>,
    ) -> Result<()> {
        let mut queue = self.queue.lock().unwrap();
        let ticket = queue.pushed;
        queue.pushed += 1;
        queue.waiting.push_back(change);
        loop {
            if queue.done > ticket {
                return Ok(());
            }
            self.check()?;
            if queue.is_led {
                queue = self.turn.wait(queue).unwrap();
                continue;
            }
            queue.is_led = true;
            let (mut batch, mut total) = (Vec::new(), 0);
            while let Some(next) = queue.waiting.front() {
                total += size(next);
                if !batch.is_empty() && !fits(total) {
                    break;
                }
                batch.extend(queue.waiting.pop_front());
            }
            drop(queue);
            let leading = Leading { of: self, count: None };
            let count = batch.len() as u64;
            lead(batch)?;
            leading.end(count);
            queue = self.queue.lock().unwrap();
        }
    }

    /// Waits until nobody writes records.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn lead_alone(&self) -> Result<Leading<'_, T>> {
        let mut queue = self.queue.lock().unwrap();
        while queue.is_led {
            queue = self.turn.wait(queue).unwrap();
        }
        self.check()?;
        queue.is_led = true;
        Ok(Leading { of: self, count: None })
    }

    /// How many changes wait, or are being committed.
    #[doc(hidden)]
    pub fn uncommitted(&self) -> u64 {
        let queue = self.queue.lock().unwrap();
        queue.pushed - queue.done
    }
}
