//! The background thread, and waiting for room in the log.

use std::sync::{Arc, Weak};
use std::time::Duration;

use wholly_host::host_error;

use super::{Checkpointer, Lot, StoreInner};
use crate::error::{Error, Result};
use sync::{Condvar, Mutex, Ordering, Spawned, spawn};

/// How often the background thread looks whether a shared group has grown old.
const TICK: Duration = Duration::from_millis(100);

/// What the background thread and the store share. The thread holds the store only while it works, so that it is not
/// what keeps it open.
#[derive(Default)]
pub(super) struct Worker {
    orders: Mutex<Orders>,
    /// Wakes the thread.
    wake: Condvar,
    /// Told after each pass, and when the thread has nothing left to do.
    freed: Condvar,
}

#[derive(Default)]
struct Orders {
    checkpoint: bool,
    stop: bool,
    thread: Option<Spawned>,
    /// How often the thread has done all there was to do.
    rounds: u64,
}

impl Worker {
    /// Whoever waits for room looks again; told under the lock, so that it either has looked later or hears this.
    pub fn tell_waiters(&self) {
        drop(self.orders.lock().unwrap());
        self.freed.notify_all();
    }
}

impl Checkpointer {
    /// Asks the background thread to look whether there is something to do.
    pub fn want(&self) {
        self.worker.orders.lock().unwrap().checkpoint = true;
        self.worker.wake.notify_one();
    }

    /// Ends the background thread.
    pub fn stop(&self) {
        let thread = {
            let mut orders = self.worker.orders.lock().unwrap();
            orders.stop = true;
            orders.thread.take()
        };
        self.worker.wake.notify_all();
        if let Some(thread) = thread
            && !thread.is_current()
        {
            thread.join();
        }
    }
}

/// Starts the background thread. It ends when the store is closed or its last handle dropped.
///
/// # Errors
/// `EAGAIN` if the system gives no other thread.
pub(in crate::hostdir) fn start_worker(store: &Arc<StoreInner>) -> Result<()> {
    let waker = Arc::downgrade(store);
    store.log.on_low_water(Box::new(move || {
        if let Some(store) = waker.upgrade() {
            store.checkpointer.want();
        }
    }));
    let worker = store.checkpointer.worker.clone();
    let weak = Arc::downgrade(store);
    let thread = spawn(move || work(&worker, &weak))
        .map_err(|errno| wholly_media::Error::new("pthread_create", "the background thread", errno))?;
    store.checkpointer.worker.orders.lock().unwrap().thread = Some(thread);
    Ok(())
}

fn work(worker: &Worker, store: &Weak<StoreInner>) {
    loop {
        let checkpoint = {
            let mut orders = worker.orders.lock().unwrap();
            if !orders.checkpoint && !orders.stop {
                orders = worker.wake.wait_timeout(orders, TICK).unwrap().0;
            }
            if orders.stop {
                return;
            }
            std::mem::take(&mut orders.checkpoint)
        };
        let Some(store) = store.upgrade() else { return };
        // Where a child has the store, nothing of it is ours to change.
        let worked = store.forked.in_background(|| {
            store.epochs.commit_old(&store);
            // An error shows again in the call that looks at what is parked.
            let _ = store.discard_expired();
            if checkpoint {
                // An error shows again in the call that needs the room.
                let _ = store.keep_room();
                worker.orders.lock().unwrap().rounds += 1;
                worker.freed.notify_all();
            }
        });
        if worked.is_err() {
            return;
        }
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
            if self.has_many_staged() && !self.is_all_home(&queue) {
                self.checkpointer.staged.store(0, Ordering::Relaxed);
                self.pass(&mut queue, true)?;
                continue;
            }
            if !low {
                if due {
                    self.announce(&mut queue);
                }
                return Ok(());
            }
            // Where all is taken home and the log is full yet, running groups hold it.
            if self.is_all_home(&queue) {
                return Ok(());
            }
            let more = due || !queue.lots.is_empty();
            let done = self.pass(&mut queue, false)?;
            // Each pass leaves the lot that it has announced. Where that and all others are empty, passes could go on
            // for ever: the log stays full as long as idle lanes hold it.
            let idle = !due && done.segments_freed == 0 && queue.lots.iter().all(Lot::is_empty);
            if !more || idle {
                return Ok(());
            }
        }
    }

    /// Whether groups have staged as much as the log would hold. A file that was staged and has lost its name since
    /// takes its space until a pass comes by, which the log, in which it is a few lines, does not ask for.
    fn has_many_staged(&self) -> bool {
        self.checkpointer.staged.load(Ordering::Relaxed) >= self.options.log_max_bytes
    }

    /// Sees to it that what is staged does not become more and more; called by who is in no commit.
    pub fn bound_staged(&self) {
        if self.has_many_staged() {
            if self.options.background {
                self.checkpointer.want();
            } else {
                // An error shows again in the call that needs the space.
                let _ = self.checkpoint();
            }
        }
    }

    /// Frees segments, or adds some: called by who found none free, and is in no commit.
    pub fn make_room(&self) -> Result<()> {
        loop {
            self.check_usable()?;
            let (segments, free) = self.log.usable_segments();
            if free > 0 {
                return Ok(());
            }
            let is_held = self.checkpointer.is_held();
            if self.log.may_grow() || is_held {
                let grow =
                    |more: u32| match is_held || self.has_room_for_log(u64::from(more) * self.log.segment_bytes()) {
                        true => self.log.grow(segments, more).map_err(|error| self.not_resized(error)),
                        false => Err(Error::NoSpace("the log".into())),
                    };
                let mut grown = grow((segments / 2).max(1));
                if is_held && matches!(grown, Err(Error::NoSpace(_))) {
                    grown = grow(1);
                }
                match grown {
                    Err(Error::NoSpace(_)) if is_held && self.release_spare() => continue,
                    // A pass makes room in the log as it is; unless it is a pass that asks.
                    Err(Error::NoSpace(_)) if !is_held => {}
                    grown => return grown,
                }
            }
            if self.log.may_free_any() {
                if self.worker_makes_room() {
                    continue;
                }
                match self.checkpoint() {
                    // What removes something is to get into the log: then it gets its space back.
                    Err(Error::NoSpace(_)) if self.release_spare() => {}
                    done => drop(done?),
                }
            }
            if let (segments, 0) = self.log.usable_segments() {
                // Running groups hold all of it. Their size is bounded by free space only.
                return self.grow_for_groups(segments, 1);
            }
        }
    }

    /// Adds at least so many segments to a log of `seen` that running groups have filled: in proportion, since each
    /// time costs a sync, and a large group comes by for every one of its segments.
    fn grow_for_groups(&self, seen: u32, least: u32) -> Result<()> {
        let extend = |more: u32| match self.has_room_for_log(u64::from(more) * self.log.segment_bytes()) {
            true => self.log.extend(seen, more).map_err(|error| self.not_resized(error)),
            false => Err(Error::NoSpace("the log".into())),
        };
        match extend((seen / 8).max(least)) {
            Err(error) if !matches!(error, Error::Poisoned(_)) => extend(least),
            extended => extended,
        }
    }

    /// Why the log cannot grow or shrink.
    pub fn not_resized(&self, error: Error) -> Error {
        match error {
            Error::Media(error) => host_error(error, b"the log"),
            error => self.poison(&error),
        }
    }

    /// Makes sure that so many segments are free, as far as other groups leave them.
    pub fn make_room_for(&self, segments: u64) -> Result<()> {
        loop {
            let (count, free) = self.log.usable_segments();
            let free = u64::from(free);
            if free >= segments {
                return Ok(());
            }
            if free > 0 {
                // What a single group needs beyond the log's size, it gets.
                return self.grow_for_groups(count, (segments - free) as u32);
            }
            self.make_room()?;
        }
    }

    /// Waits until the background thread has freed a segment. False: there is no such thread, or it has done what it
    /// can.
    fn worker_makes_room(&self) -> bool {
        const LOOK_AGAIN: Duration = Duration::from_millis(20);
        let worker = &*self.checkpointer.worker;
        let mut orders = worker.orders.lock().unwrap();
        // The round that is under way may have begun too early for what is needed, so it takes the one after it.
        let enough = orders.rounds + 2;
        loop {
            if orders.thread.is_none() {
                return false;
            }
            if self.log.usable_segments().1 > 0 {
                return true;
            }
            if orders.rounds >= enough {
                return false;
            }
            orders.checkpoint = true;
            worker.wake.notify_one();
            let (now, timeout) = worker.freed.wait_timeout(orders, LOOK_AGAIN).unwrap();
            orders = now;
            if timeout.timed_out() && is_free(&self.checkpointer.queue) {
                // It may wait for a lock of an epoch that the caller holds.
                return false;
            }
        }
    }
}

fn is_free<T>(mutex: &Mutex<T>) -> bool {
    mutex.try_lock().is_ok()
}
