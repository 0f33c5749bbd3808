//! The background thread, and waiting for room in the log.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Checkpointer, StoreInner};
use crate::error::{Error, Result};
use crate::hostdir::table::host_error;
use crate::sync::{Mutex, thread};

/// The background thread, as others see it.
#[derive(Default)]
pub(super) struct Worker {
    wanted: bool,
    stop: bool,
    thread: Option<thread::JoinHandle<()>>,
    /// How often it has done all there was to do.
    rounds: u64,
}

impl Checkpointer {
    /// Asks the background thread to look whether there is something to do.
    pub fn want(&self) {
        self.worker.lock().unwrap().wanted = true;
        self.wake.notify_one();
    }

    /// Ends the background thread.
    pub fn stop(&self) {
        let thread = {
            let mut worker = self.worker.lock().unwrap();
            worker.stop = true;
            worker.thread.take()
        };
        self.wake.notify_all();
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Starts the background thread. It ends when the store is closed or dropped.
pub(in crate::hostdir) fn start_worker(store: &Arc<StoreInner>) {
    let weak = Arc::downgrade(store);
    let waker = weak.clone();
    store.log.on_low_water(Box::new(move || {
        if let Some(store) = waker.upgrade() {
            store.checkpointer.want();
        }
    }));
    let thread = thread::spawn(move || work(weak));
    store.checkpointer.worker.lock().unwrap().thread = Some(thread);
}

fn work(weak: Weak<StoreInner>) {
    loop {
        let Some(store) = weak.upgrade() else { return };
        {
            let worker = store.checkpointer.worker.lock().unwrap();
            let wait = Duration::from_millis(100);
            let mut worker = if worker.wanted || worker.stop {
                worker
            } else {
                // Woken now and then to see whether the store is still there.
                store.checkpointer.wake.wait_timeout(worker, wait).unwrap().0
            };
            if worker.stop {
                return;
            }
            if !std::mem::take(&mut worker.wanted) {
                continue;
            }
        }
        // An error shows again in the call that needs the room.
        let _ = store.keep_room();
        store.checkpointer.worker.lock().unwrap().rounds += 1;
        store.checkpointer.freed.notify_all();
    }
}

impl StoreInner {
    /// What the background thread does: passes until enough of the log is free.
    fn keep_room(&self) -> Result<()> {
        loop {
            let mut queue = self.checkpointer.queue.lock().unwrap();
            self.check_usable()?;
            let due = self.is_announcement_due(&queue);
            let (segments, free) = self.log.segments();
            let low = u64::from(free) * 8 <= u64::from(segments) * 3;
            if !low {
                if due {
                    self.announce(&mut queue);
                }
                return Ok(());
            }
            // Where all is taken home and the log is full yet, running groups hold it.
            let more = due || !queue.lots.is_empty();
            self.pass(&mut queue, false)?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Frees segments, or adds some: called by who found none free, and is in no commit.
    pub fn make_room(&self) -> Result<()> {
        loop {
            self.check_usable()?;
            if self.log.segments().1 > 0 {
                return Ok(());
            }
            if self.log.may_grow() {
                let more = (self.log.segments().0 / 2).max(1);
                return self.log.grow(more).map_err(no_space);
            }
            if self.worker_makes_room() {
                continue;
            }
            self.checkpoint()?;
            if self.log.segments().1 == 0 {
                // Running groups hold all of it. Their size is bounded by free space only.
                return self.log.grow(1).map_err(no_space);
            }
        }
    }

    /// Waits until the background thread has freed a segment. False: there is no such thread, or it has done what it can.
    fn worker_makes_room(&self) -> bool {
        const LOOK_AGAIN: Duration = Duration::from_millis(20);
        let mut worker = self.checkpointer.worker.lock().unwrap();
        // The round that is under way may have begun too early for what is needed, so it takes the one after it.
        let enough = worker.rounds + 2;
        loop {
            if worker.thread.is_none() {
                return false;
            }
            if self.log.segments().1 > 0 {
                return true;
            }
            if worker.rounds >= enough {
                return false;
            }
            worker.wanted = true;
            self.checkpointer.wake.notify_one();
            let (now, timeout) = self.checkpointer.freed.wait_timeout(worker, LOOK_AGAIN).unwrap();
            worker = now;
            if timeout.timed_out() && is_free(&self.checkpointer.queue) {
                // A child of fork has no such thread.
                return false;
            }
        }
    }
}

fn is_free<T>(mutex: &Mutex<T>) -> bool {
    mutex.try_lock().is_ok()
}

fn no_space(error: Error) -> Error {
    match error {
        Error::Media(error) => host_error(error, b"the log"),
        error => error,
    }
}
