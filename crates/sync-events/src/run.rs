//! The scheduler.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

/// Nanoseconds that a thread waits by yielding if all others do so, too, or wait for it.
pub const YIELD_NS: u64 = 100;

thread_local!(static CURRENT: RefCell<Option<(Arc<Run>, usize)>> = const { RefCell::new(None) });

/// The run of the calling thread, and its number in it.
pub(crate) fn current() -> Option<(Arc<Run>, usize)> {
    // Nothing is known any more while a thread ends.
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// What a thread waits for, other than time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The lock or condition at this address.
    At(usize),
    /// The end of a thread.
    Over(usize),
    /// The end of all threads but the first.
    End,
}

/// A thread in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub thread: usize,
    /// Of a lock: whether it wants it for itself.
    pub alone: bool,
}

#[derive(Debug)]
struct Known {
    /// By which it is woken; `None` before it was started.
    handle: Option<Thread>,
    /// How many waits have ended: what is noted for an earlier one is void.
    waits: u64,
    is_over: bool,
}

/// A medium. Each thread that uses it gets the same part of it, at most all that one can use: a clock goes on while
/// they are served, and a use ends at a reading of that clock.
#[derive(Debug)]
struct Shared {
    /// How many threads can use it without being in each other's way.
    at_once: f64,
    /// The reading at `since`.
    served: f64,
    since: u64,
    /// Readings (as bits, which are in the same order), order, and thread.
    ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
}

impl Shared {
    fn speed(&self) -> f64 {
        (self.at_once / self.ends.len() as f64).min(1.0)
    }

    fn go_on(&mut self, now: u64) {
        if !self.ends.is_empty() {
            self.served += (now - self.since) as f64 * self.speed();
        }
        self.since = now;
    }

    /// When the next use ends.
    fn next(&self) -> Option<u64> {
        let Reverse((end, ..)) = self.ends.peek()?;
        let left = (f64::from_bits(*end) - self.served).max(0.0);
        Some(self.since + (left / self.speed()).ceil() as u64)
    }
}

#[derive(Debug, Default)]
pub(crate) struct State {
    now: u64,
    /// Number of the next cause of an event.
    order: u64,
    /// How many events there were.
    events: u64,
    threads: Vec<Known>,
    alive: usize,
    /// Time, order, thread, and the number of its wait.
    sleepers: BinaryHeap<Reverse<(u64, u64, usize, u64)>>,
    /// Threads that have yielded, and how many events there were then.
    yielded: VecDeque<(usize, u64)>,
    queues: HashMap<Key, VecDeque<Waiter>>,
    media: Vec<Shared>,
}

impl State {
    fn order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    /// The thread goes on at a time, if its wait does not end earlier.
    pub fn wake_at(&mut self, thread: usize, at: u64) {
        let (order, waits) = (self.order(), self.threads[thread].waits);
        self.sleepers.push(Reverse((at.max(self.now), order, thread, waits)));
    }

    /// The wait of a thread has ended.
    pub fn wake(&mut self, thread: usize) {
        self.threads[thread].waits += 1;
        self.wake_at(thread, self.now);
    }

    pub fn after(&self, wait: Duration) -> u64 {
        self.now.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
    }

    pub fn queue(&mut self, key: Key) -> &mut VecDeque<Waiter> {
        self.queues.entry(key).or_default()
    }

    /// Takes the first thread off a queue. Empty queues are forgotten: their address may get another meaning.
    pub fn pop(&mut self, key: Key) -> Option<Waiter> {
        let queue = self.queues.get_mut(&key)?;
        let first = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&key);
        }
        first
    }

    /// Takes a thread off a queue. Whether it was in it.
    pub fn leave(&mut self, key: Key, thread: usize) -> bool {
        let Some(queue) = self.queues.get_mut(&key) else { return false };
        let before = queue.len();
        queue.retain(|waiter| waiter.thread != thread);
        let has_left = queue.len() < before;
        if queue.is_empty() {
            self.queues.remove(&key);
        }
        has_left
    }

    fn wake_all(&mut self, key: Key) {
        while let Some(waiter) = self.pop(key) {
            self.wake(waiter.thread);
        }
    }

    /// Goes on to the next event. The thread that runs then; `None` if there is no event.
    fn next(&mut self) -> Option<usize> {
        while let Some(Reverse((_, _, thread, waits))) = self.sleepers.peek()
            && self.threads[*thread].waits != *waits
        {
            self.sleepers.pop();
        }
        let asleep = self.sleepers.peek().map(|Reverse((at, ..))| *at);
        let used = self.media.iter().enumerate().filter_map(|(i, medium)| Some((medium.next()?, i))).min();
        let next = asleep.into_iter().chain(used.map(|(at, _)| at)).min();
        let has_waited = |&(_, then): &(usize, u64)| then < self.events;
        match next {
            Some(at) if at <= self.now || !self.yielded.front().is_some_and(has_waited) => {
                (self.now, self.events) = (at.max(self.now), self.events + 1);
                let thread = match used {
                    Some((end, medium)) if end <= at => {
                        let medium = &mut self.media[medium];
                        medium.go_on(self.now);
                        let Reverse((reading, _, thread)) = medium.ends.pop().expect("it is used");
                        medium.served = medium.served.max(f64::from_bits(reading));
                        thread
                    }
                    _ => self.sleepers.pop().map(|Reverse((_, _, thread, _))| thread)?,
                };
                self.threads[thread].waits += 1;
                Some(thread)
            }
            Some(_) => self.yielded.pop_front().map(|(thread, _)| thread),
            None => {
                let (thread, then) = self.yielded.pop_front()?;
                if then == self.events {
                    (self.now, self.events) = (self.now + YIELD_NS, self.events + 1);
                }
                Some(thread)
            }
        }
    }
}

/// The threads of a run.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// The thread that runs.
    running: AtomicUsize,
    /// Whether there is no event any more.
    is_stuck: AtomicBool,
    state: Mutex<State>,
}

impl Run {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.state().now)
    }

    /// Lets the thread of the next event run; returns when it is `me`.
    pub fn switch(&self, mut state: MutexGuard<'_, State>, me: usize) {
        self.pass_on(&mut state, Some(me));
        drop(state);
        self.await_turn(me);
    }

    fn pass_on(&self, state: &mut State, me: Option<usize>) {
        match state.next() {
            Some(next) => {
                self.running.store(next, Ordering::Release);
                if let Some(handle) = state.threads[next].handle.as_ref().filter(|_| Some(next) != me) {
                    handle.unpark();
                }
            }
            None => {
                self.is_stuck.store(true, Ordering::Release);
                state.threads.iter().filter_map(|known| known.handle.as_ref()).for_each(Thread::unpark);
            }
        }
    }

    fn await_turn(&self, me: usize) {
        while self.running.load(Ordering::Acquire) != me || self.is_stuck.load(Ordering::Acquire) {
            assert!(!self.is_stuck.load(Ordering::Acquire), "every thread of the run waits for another");
            std::thread::park();
        }
    }

    /// Waits in a queue until it is woken.
    pub fn wait(&self, key: Key, me: usize) {
        let mut state = self.state();
        state.queue(key).push_back(Waiter { thread: me, alone: false });
        self.switch(state, me);
    }

    pub fn sleep(&self, me: usize, time: Duration) {
        let mut state = self.state();
        let at = state.after(time);
        state.wake_at(me, at);
        self.switch(state, me);
    }

    pub fn yield_now(&self, me: usize) {
        let mut state = self.state();
        let events = state.events;
        state.yielded.push_back((me, events));
        self.switch(state, me);
    }

    /// A new thread, which goes on at once. It is not started yet.
    pub fn admit(&self) -> usize {
        let mut state = self.state();
        let thread = state.threads.len();
        state.threads.push(Known { handle: None, waits: 0, is_over: false });
        state.alive += 1;
        state.wake(thread);
        thread
    }

    /// How a thread is woken. Before the caller waits for the first time.
    pub fn started(&self, thread: usize, handle: Thread) {
        self.state().threads[thread].handle = Some(handle);
    }

    /// What the new thread `me` does, from its start to its end.
    pub fn live<T>(self: Arc<Run>, me: usize, work: impl FnOnce() -> T) -> T {
        struct Over(Arc<Run>, usize);
        impl Drop for Over {
            fn drop(&mut self) {
                let mut state = self.0.state();
                state.end(self.1);
                self.0.pass_on(&mut state, None);
                drop(state);
                CURRENT.set(None);
            }
        }
        CURRENT.set(Some((self.clone(), me)));
        let over = Over(self, me);
        over.0.await_turn(me);
        work()
    }

    /// A thread that could not be started.
    pub fn never_started(&self, thread: usize) {
        let mut state = self.state();
        state.threads[thread].waits += 1;
        state.end(thread);
    }

    /// Returns when a thread is over.
    pub fn join(&self, me: usize, thread: usize) {
        if !self.state().threads[thread].is_over {
            self.wait(Key::Over(thread), me);
        }
    }
}

impl State {
    fn end(&mut self, thread: usize) {
        self.threads[thread].is_over = true;
        self.alive -= 1;
        self.wake_all(Key::Over(thread));
        if self.alive == 1 {
            self.wake_all(Key::End);
        }
    }
}

/// Runs `main` as the first thread of a new run. Returns when all its threads are over.
///
/// # Panics
/// As `main` does; inside of a run; if threads that `main` leaves wait for ever.
pub fn run<T>(main: impl FnOnce() -> T) -> T {
    assert!(current().is_none(), "a run inside of a run");
    let run = Arc::new(Run::default());
    run.admit();
    run.started(0, std::thread::current());
    let first = run.state().next();
    debug_assert_eq!(first, Some(0));
    CURRENT.set(Some((run.clone(), 0)));
    let result = catch_unwind(AssertUnwindSafe(main));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        if run.state().alive > 1 {
            run.wait(Key::End, 0);
        }
    }));
    CURRENT.set(None);
    match (result, ended) {
        (Ok(result), Ok(())) => result,
        (Err(panic), _) | (Ok(_), Err(panic)) => resume_unwind(panic),
    }
}

/// A medium with a limited bandwidth, which threads of a run share.
#[derive(Clone, Debug)]
pub struct Medium {
    run: Arc<Run>,
    number: usize,
}

impl Medium {
    /// A medium of the calling thread's run that so many threads can use without being in each other's way.
    ///
    /// # Panics
    /// Outside of a run.
    pub fn new(at_once: f64) -> Medium {
        let (run, _) = current().expect("a medium is part of a run");
        let mut state = run.state();
        let (number, since) = (state.media.len(), state.now);
        state.media.push(Shared { at_once, served: 0.0, since, ends: BinaryHeap::new() });
        drop(state);
        Medium { run, number }
    }

    /// Uses it for so many nanoseconds, or longer where more threads use it than it is made for.
    ///
    /// # Panics
    /// In another run than its own.
    pub fn spend(&self, ns: u64) {
        let (_, me) = current().filter(|(run, _)| Arc::ptr_eq(run, &self.run)).expect("a medium is part of a run");
        let mut state = self.run.state();
        let (now, order) = (state.now, state.order());
        let medium = &mut state.media[self.number];
        medium.go_on(now);
        let end = medium.served + ns as f64;
        medium.ends.push(Reverse((end.to_bits(), order, me)));
        self.run.switch(state, me);
    }
}
