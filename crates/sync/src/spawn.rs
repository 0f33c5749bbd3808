//! Threads that a child of `fork` can start.
//!
//! The standard library holds a lock of its own while a thread starts and while one ends. A child that another thread
//! forks at that moment never sees this lock released, and a thread that it starts waits for it for ever. So these
//! threads are the C library's, which takes care of its own locks in `fork`.

use std::ffi::{c_int, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::{Errno, Result};

/// The C library's name of a thread: of this type in glibc and musl.
type Pthread = c_ulong;

unsafe extern "C" {
    fn pthread_create(
        thread: *mut Pthread,
        attributes: *const c_void,
        main: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void,
    ) -> c_int;
    fn pthread_join(thread: Pthread, result: *mut *mut c_void) -> c_int;
    fn pthread_detach(thread: Pthread) -> c_int;
    fn pthread_self() -> Pthread;
}

/// What a thread does.
type Work<'a> = Box<dyn FnOnce() + Send + 'a>;

/// A thread. It goes on when this is dropped.
#[derive(Debug)]
pub struct Spawned(Pthread);

impl Spawned {
    /// # Safety
    /// What `work` refers to lives until the thread has ended.
    unsafe fn new(work: Work<'_>) -> Result<Spawned> {
        // A box of the box: a pointer to a `dyn` does not fit into one argument.
        let argument = Box::into_raw(Box::new(work));
        let mut thread = 0;
        // SAFETY: `thread` is written before the call returns; no attributes are the default ones; `main` takes such a
        // box, and it is the only one that does.
        let failed = unsafe { pthread_create(&raw mut thread, std::ptr::null(), main, argument.cast()) };
        if failed != 0 {
            // SAFETY: no thread has it.
            drop(unsafe { Box::from_raw(argument) });
            return Err(Errno::from_raw_os_error(failed));
        }
        Ok(Spawned(thread))
    }

    /// Returns when the thread has ended.
    pub fn join(self) {
        let thread = std::mem::ManuallyDrop::new(self);
        // SAFETY: it is neither joined nor detached elsewhere: both take the value.
        let failed = unsafe { pthread_join(thread.0, std::ptr::null_mut()) };
        debug_assert_eq!(failed, 0, "a thread that does not join itself");
    }

    /// Whether it is the calling thread.
    pub fn is_current(&self) -> bool {
        // SAFETY: it only asks.
        self.0 == unsafe { pthread_self() }
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // SAFETY: as in `join`.
        let _ = unsafe { pthread_detach(self.0) };
    }
}

/// Starts a thread. A panic ends it, with the usual message.
///
/// # Errors
/// `EAGAIN` if the system gives no other thread.
pub fn spawn(work: impl FnOnce() + Send + 'static) -> Result<Spawned> {
    // SAFETY: it refers to nothing that ends.
    unsafe { Spawned::new(Box::new(work)) }
}

/// Does `work` while another thread does `help`; alone where the system gives no other thread. Returns when both are
/// done.
pub fn beside<T>(help: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    /// Waits for the thread even if `work` panics.
    struct Joined(Option<Spawned>);
    impl Drop for Joined {
        fn drop(&mut self) {
            if let Some(thread) = self.0.take() {
                thread.join();
            }
        }
    }
    let mut helped = Ok(());
    let result = {
        let helped = &mut helped;
        let help: Work<'_> = Box::new(move || *helped = catch_unwind(AssertUnwindSafe(help)));
        // SAFETY: the thread has ended before this block does, and `helped` and what `help` refers to live longer.
        let helper = Joined(unsafe { Spawned::new(help) }.ok());
        let result = work();
        drop(helper);
        result
    };
    if let Err(panic) = helped {
        std::panic::resume_unwind(panic);
    }
    result
}

extern "C" fn main(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `Spawned::new` made it of such a box, for this one call.
    let work = *unsafe { Box::from_raw(argument.cast::<Work<'static>>()) };
    // The panic was printed, and nobody waits for more.
    let _ = catch_unwind(AssertUnwindSafe(work));
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn work_is_done_once() {
        static DONE: AtomicU32 = AtomicU32::new(0);
        let thread = spawn(|| DONE.store(1, Ordering::Relaxed)).unwrap();
        assert!(!thread.is_current());
        thread.join();
        assert_eq!(DONE.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn both_are_done_beside_each_other() {
        let (mut helped, mut worked) = (false, false);
        let result = beside(
            || helped = true,
            || {
                worked = true;
                7
            },
        );
        assert_eq!((helped, worked, result), (true, true, 7));
    }

    #[test]
    fn a_panic_of_either_goes_on() {
        assert!(catch_unwind(|| beside(|| panic!("the helper's"), || ())).is_err());
        assert!(catch_unwind(|| beside(|| (), || panic!("the worker's"))).is_err());
    }

    /// Other threads start and end all the time while children are forked that start one, too.
    #[test]
    fn a_child_starts_one_whatever_others_do_at_the_fork() {
        unsafe extern "C" {
            fn fork() -> c_int;
            fn _exit(code: c_int) -> !;
            fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
        }
        let stop = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    std::thread::spawn(|| ()).join().unwrap();
                }
            });
            for _ in 0..300 {
                // SAFETY: the child starts a thread, which is what is tried here, and ends.
                let pid = unsafe { fork() };
                if pid == 0 {
                    spawn(|| ()).unwrap().join();
                    // SAFETY: it does not return.
                    unsafe { _exit(0) }
                }
                let mut status = 0;
                // SAFETY: the status lives until the call returns.
                assert_eq!(unsafe { waitpid(pid, &raw mut status, 0) }, pid);
                assert_eq!(status, 0);
            }
            stop.store(1, Ordering::Relaxed);
        });
    }
}
