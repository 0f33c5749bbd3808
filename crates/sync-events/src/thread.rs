//! Threads of a run; outside of one, the standard library's.

use std::io;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::run::{Run, current};

/// See the standard library.
pub fn sleep(time: Duration) {
    match current() {
        Some((run, me)) => run.sleep(me, time),
        None => std::thread::sleep(time),
    }
}

/// Lets other threads run until the next event of one of them.
pub fn yield_now() {
    match current() {
        Some((run, me)) => run.yield_now(me),
        None => std::thread::yield_now(),
    }
}

/// Twelve, as the machine of the paper (FCFS, section VI-A): a run is the same everywhere.
///
/// # Errors
/// None: the standard library's may fail.
pub fn available_parallelism() -> io::Result<NonZero<usize>> {
    Ok(const { NonZero::new(12).unwrap() })
}

/// What is joined: a thread of a run, if it is one.
type InRun = Option<(Arc<Run>, usize)>;

fn joined(thread: &InRun) {
    if let (Some((run, thread)), Some((_, me))) = (thread, current()) {
        run.join(me, *thread);
    }
}

/// A scope of threads.
pub struct Scope<'scope, 'env: 'scope> {
    inner: &'scope std::thread::Scope<'scope, 'env>,
    started: Mutex<Vec<InRun>>,
}

/// A thread of a scope.
pub struct ScopedJoinHandle<'scope, T> {
    inner: std::thread::ScopedJoinHandle<'scope, T>,
    in_run: InRun,
}

/// See the standard library.
pub fn scope<'env, F, T>(work: F) -> T
where
    F: for<'a, 'scope> FnOnce(&'a Scope<'scope, 'env>) -> T,
{
    /// The standard library's scope waits for threads that could not run any more.
    struct Ended<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);
    impl Drop for Ended<'_, '_, '_> {
        fn drop(&mut self) {
            self.0.started.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(joined);
        }
    }
    std::thread::scope(|inner| {
        let scope = Scope { inner, started: Mutex::default() };
        let _ended = Ended(&scope);
        work(&scope)
    })
}

#[allow(missing_docs)]
impl<'scope> Scope<'scope, '_> {
    pub fn spawn<T: Send + 'scope>(&self, work: impl FnOnce() -> T + Send + 'scope) -> ScopedJoinHandle<'scope, T> {
        let Some((run, _)) = current() else {
            return ScopedJoinHandle { inner: self.inner.spawn(work), in_run: None };
        };
        let (thread, of_thread) = (run.admit(), run.clone());
        let inner = self.inner.spawn(move || of_thread.live(thread, work));
        run.started(thread, inner.thread().clone());
        let in_run = Some((run, thread));
        self.started.lock().unwrap_or_else(PoisonError::into_inner).push(in_run.clone());
        ScopedJoinHandle { inner, in_run }
    }
}

#[allow(missing_docs)]
impl<T> ScopedJoinHandle<'_, T> {
    pub fn join(self) -> std::thread::Result<T> {
        joined(&self.in_run);
        self.inner.join()
    }
}

/// A thread. It goes on when this is dropped.
#[derive(Debug)]
pub struct Spawned(Kind);

#[derive(Debug)]
enum Kind {
    Outside(sync::Spawned),
    InRun { handle: std::thread::JoinHandle<()>, run: Arc<Run>, thread: usize },
}

#[allow(missing_docs)]
impl Spawned {
    pub fn join(self) {
        match self.0 {
            Kind::Outside(thread) => thread.join(),
            Kind::InRun { handle, run, thread } => {
                joined(&Some((run, thread)));
                // Its panic was printed.
                let _ = handle.join();
            }
        }
    }

    pub fn is_current(&self) -> bool {
        match &self.0 {
            Kind::Outside(thread) => thread.is_current(),
            Kind::InRun { handle, .. } => handle.thread().id() == std::thread::current().id(),
        }
    }
}

/// Starts a thread, of the calling thread's run if it has one.
///
/// # Errors
/// `EAGAIN` if the system gives no other thread.
pub fn spawn(work: impl FnOnce() + Send + 'static) -> rustix::io::Result<Spawned> {
    let Some((run, _)) = current() else { return Ok(Spawned(Kind::Outside(sync::spawn(work)?))) };
    let (thread, of_thread) = (run.admit(), run.clone());
    match std::thread::Builder::new().spawn(move || of_thread.live(thread, work)) {
        Ok(handle) => {
            run.started(thread, handle.thread().clone());
            Ok(Spawned(Kind::InRun { handle, run, thread }))
        }
        Err(_) => {
            run.never_started(thread);
            Err(rustix::io::Errno::AGAIN)
        }
    }
}

/// Does `work` while another thread does `help`. Returns when both are done.
pub fn beside<T>(help: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    if current().is_none() {
        return sync::beside(help, work);
    }
    scope(|scope| {
        let helper = scope.spawn(help);
        let result = work();
        if let Err(panic) = helper.join() {
            std::panic::resume_unwind(panic);
        }
        result
    })
}
