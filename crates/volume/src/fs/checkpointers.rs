//! Threads that write back in the background what the engine keeps elsewhere than at home (FCFS, III-E), so that no
//! call waits for that.
//!
//! # States of such a thread
//!
//! ```text
//!   asleep --- something is pending ---> watching --- idle for a while, or space is short ---> working
//!     ^                                  |     ^                                                |
//!     '------- nothing is pending -------'     `---- a call commits, or there is space again ---'
//! ```
//!
//! - *idle*: no group has been committed for [`IDLE`].
//! - *short*: less than 10 % of the blocks are free; enough are free from 15 % on.
//!
//! # Invariants
//!
//! 1. A thread works a little at a time ([`Core::checkpoint_a_little`]). Between two times it holds nothing, and sees
//!    whether it is to stop, whether there is work for others, and whether the volume is another process's.
//! 2. While a thread is asleep nothing is pending, but what a call has committed that has not come by
//!    [`Checkpointers::tell`] yet: who sleeps says so, and then looks; who commits does it the other way round.
//! 3. After [`Checkpointers::stop`] no such thread is there: it is called before an unmount, and before the volume is
//!    given up. After an error of the medium they end by themselves, and in a child of `fork` they are not.

use std::time::Duration;

use sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, Spawned};
use wholly_error::Result;

use super::Core;

/// The volume is idle when no group has been committed for so long.
pub const IDLE: Duration = Duration::from_millis(100);

/// Why a thread writes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No other work is there.
    IsIdle,
    /// Space is short.
    IsLow,
}

/// See the module.
pub struct Checkpointers {
    threads: AtomicUsize,
    sleepers: AtomicUsize,
    /// Somebody has found space short, and nobody has finished with that yet.
    hurried: AtomicBool,
    orders: Mutex<Orders>,
    wake: Condvar,
    /// The time since some moment, by which idleness is measured.
    clock: fn() -> Duration,
}

#[derive(Default)]
struct Orders {
    stop: bool,
    /// They are to be joined.
    joined: Vec<Spawned>,
}

impl Checkpointers {
    pub fn new(clock: fn() -> Duration) -> Checkpointers {
        Checkpointers {
            threads: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            hurried: AtomicBool::new(false),
            orders: Mutex::default(),
            wake: Condvar::new(),
            clock,
        }
    }

    /// Threads that do `work`. Where the system gives no more, there are fewer, and calls do it themselves.
    pub fn start(&self, threads: usize, work: impl Fn() + Clone + Send + 'static) {
        sync::prepare_fences();
        let mut orders = self.orders.lock().unwrap();
        for _ in 0..threads {
            let Ok(thread) = sync::spawn(work.clone()) else { break };
            orders.joined.push(thread);
            self.threads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends all of them, and waits for that (invariant 3).
    pub fn stop(&self) {
        let threads = {
            let mut orders = self.orders.lock().unwrap();
            orders.stop = true;
            std::mem::take(&mut orders.joined)
        };
        self.wake.notify_all();
        threads.into_iter().for_each(Spawned::join);
    }

    #[inline]
    pub fn are_there(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 0
    }

    /// A call has ended (invariant 2).
    #[inline]
    pub fn tell(&self, core: &Core) {
        if !self.are_there() {
            return;
        }
        sync::light_fence();
        if self.sleepers.load(Ordering::Relaxed) > 0 && core.engine.pending_blocks() > 0 {
            self.wake_all();
        }
    }

    /// Space is short.
    pub fn hurry(&self) {
        if !self.hurried.swap(true, Ordering::Relaxed) {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        // Under the lock: who is about to wait has looked later, or hears it.
        drop(self.orders.lock().unwrap());
        self.wake.notify_all();
    }

    /// Waits for something to do, or a while. False: it is to stop.
    fn wait(&self, core: &Core) -> bool {
        let mut orders = self.orders.lock().unwrap();
        if orders.stop || self.hurried.load(Ordering::Relaxed) {
            return !orders.stop;
        }
        if core.engine.pending_blocks() > 0 {
            orders = sync::wait_until(&self.orders, &self.wake, orders, sync::now() + IDLE);
            return !orders.stop;
        }
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        sync::heavy_fence();
        if core.engine.pending_blocks() == 0 {
            orders = self.wake.wait(orders).unwrap();
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        !orders.stop
    }

    fn is_stopped(&self) -> bool {
        self.orders.lock().unwrap().stop
    }
}

impl Core {
    /// The life of one thread. `a_little`: [`checkpoint_a_little`](Self::checkpoint_a_little), or an error if another
    /// process has the volume.
    pub fn checkpoint_in_background(&self, a_little: &dyn Fn(Why) -> Result<bool>) {
        let these = &self.checkpointers;
        let (mut committed, mut since) = (self.engine.committed(), (these.clock)());
        while these.wait(self) {
            let now = self.engine.committed();
            if now != committed {
                (committed, since) = (now, (these.clock)());
            }
            let why = match (self.is_low(), (these.clock)().saturating_sub(since) >= IDLE) {
                (true, _) => Why::IsLow,
                (false, true) => Why::IsIdle,
                (false, false) => {
                    these.hurried.store(false, Ordering::Relaxed);
                    continue;
                }
            };
            loop {
                // An error of the medium shows again in each call.
                let Ok(is_more) = a_little(why) else { return };
                if these.is_stopped() {
                    return;
                }
                if !is_more || (why == Why::IsIdle && self.engine.committed() != committed) {
                    break;
                }
            }
            these.hurried.store(false, Ordering::Relaxed);
        }
    }
}
