//! From results to what C gets: a number, and the error's text for who asks. Panics end here.
//!
//! # Invariants
//!
//! 1. No panic leaves a function of this library: each does its work inside [`answer`].
//! 2. A store in whose code there was a panic is not touched again by this process, not even to drop it: the panic may
//!    have left anything half-done, locks included. Every later call on it fails, and the next process finds what a
//!    crash would have left.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wholly::{Error, Result};

thread_local! {
    /// Of the last call of this thread that failed.
    static TEXT: RefCell<CString> = RefCell::default();
}

/// Returns in words why the last failed call of this thread failed: with files, places, and the process that has the
/// store. Empty if no call has failed. Calls that succeed leave it as it is.
///
/// The text belongs to the library. It is valid until the next call of this thread fails or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn wholly_error_text() -> *const c_char {
    TEXT.try_with(|text| text.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Does the work of a function that returns a count.
pub fn answer(work: impl FnOnce() -> Result<u64>) -> i64 {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(panic)));
    match result {
        // A store's files end far below this bound.
        Ok(count) => count.min(i64::MAX as u64) as i64,
        Err(error) => refuse(&error),
    }
}

/// Does the work of a function that returns no more than that it is done.
pub fn done(work: impl FnOnce() -> Result<()>) -> c_int {
    answer(|| work().map(|()| 0)) as c_int
}

#[cold]
fn refuse(error: &Error) -> i64 {
    let mut text = error.to_string().into_bytes();
    text.retain(|&byte| byte != 0);
    // A thread that is ending may have no place for it any more.
    let _ = TEXT.try_with(|place| place.replace(CString::new(text).unwrap_or_default()));
    -i64::from(error.errno())
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> Error {
    let said = panic.downcast_ref::<&str>().map(ToString::to_string).or_else(|| panic.downcast_ref().cloned());
    // Dropping what somebody threw may panic again.
    std::mem::forget(panic);
    broken(&said.unwrap_or_default())
}

fn broken(said: &str) -> Error {
    Error::Poisoned(format!("by another process, because of a bug in the library: {said}"))
}

/// Whether a store's code has panicked. Clones are of the same store.
#[derive(Clone, Default)]
pub struct Health(Arc<AtomicBool>);

impl Health {
    /// Runs a call on the store, unless one has panicked.
    #[inline]
    pub fn run<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check()?;
        let mark = Mark(self);
        let result = call();
        std::mem::forget(mark);
        result
    }

    /// Runs a call on several stores, unless one on any of them has panicked.
    pub fn run_all<T>(all: &[Health], call: impl FnOnce() -> Result<T>) -> Result<T> {
        all.iter().try_for_each(Health::check)?;
        let marks: Vec<_> = all.iter().map(Mark).collect();
        let result = call();
        marks.into_iter().for_each(std::mem::forget);
        result
    }

    #[inline]
    fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(broken("an earlier call found it")),
            false => Ok(()),
        }
    }

    /// Runs a call that uses a value up, which is left alone where one has panicked (invariant 2).
    pub fn spend<V, T>(&self, value: V, call: impl FnOnce(V) -> Result<T>) -> Result<T> {
        let value = ManuallyDrop::new(value);
        self.run(|| call(ManuallyDrop::into_inner(value)))
    }
}

/// Dropped by a panic only.
struct Mark<'a>(&'a Health);

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use rustix::io::Errno;

    use super::*;

    fn text() -> String {
        // SAFETY: the text lives until the next failure.
        unsafe { CStr::from_ptr(wholly_error_text()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn every_error_has_its_number_and_its_text() {
        let s = || "x".to_string();
        let refused = |errno| Error::Refused(s(), errno);
        let media = |errno| Error::Media(wholly_media::Error::new("pwrite", "a", errno));
        let table = [
            (Error::Busy(s(), s()), Errno::BUSY, "BUSY"),
            (Error::NotAStore(s()), Errno::NODEV, "NODEV"),
            (Error::AlreadyAStore(s()), Errno::EXIST, "EXIST"),
            (Error::NotFound(s()), Errno::NOENT, "NOENT"),
            (Error::Exists(s()), Errno::EXIST, "EXIST"),
            (Error::Invalid(s()), Errno::INVAL, "INVAL"),
            (Error::NoSpace(s()), Errno::NOSPC, "NOSPC"),
            (Error::Unsupported(s()), Errno::OPNOTSUPP, "OPNOTSUPP"),
            (Error::Corrupt { place: s(), fault: s() }, Errno::UCLEAN, "UCLEAN"),
            (Error::Conflict { path: s(), change: s() }, Errno::STALE, "STALE"),
            (Error::Copied(s()), Errno::STALE, "STALE"),
            (Error::Untrusted { dir: s(), why: s() }, Errno::PERM, "PERM"),
            (Error::ChangedMeanwhile(wholly::ParkedId(1), [].into()), Errno::STALE, "STALE"),
            (Error::Poisoned(s()), Errno::IO, "IO"),
            (refused(Errno::ACCESS), Errno::ACCESS, "ACCES"),
            (refused(Errno::PERM), Errno::PERM, "PERM"),
            (refused(Errno::ISDIR), Errno::ISDIR, "ISDIR"),
            (refused(Errno::NOTDIR), Errno::NOTDIR, "NOTDIR"),
            (refused(Errno::NOTEMPTY), Errno::NOTEMPTY, "NOTEMPTY"),
            (refused(Errno::NOENT), Errno::NOENT, "NOENT"),
            (refused(Errno::INVAL), Errno::INVAL, "INVAL"),
            (refused(Errno::NAMETOOLONG), Errno::NAMETOOLONG, "NAMETOOLONG"),
            (refused(Errno::LOOP), Errno::LOOP, "LOOP"),
            (refused(Errno::XDEV), Errno::XDEV, "XDEV"),
            (media(Errno::ACCESS), Errno::ACCESS, "ACCES"),
            (media(Errno::ROFS), Errno::ROFS, "ROFS"),
        ];
        let header = include_str!("../include/wholly.h");
        for (error, errno, name) in table {
            let (said, kind) = (error.to_string(), format!("{error:?}"));
            assert_eq!(done(|| Err(error)), -errno.raw_os_error(), "{kind}");
            assert_eq!(text(), said);
            assert!(header.contains(&format!("-E{name}")), "{kind}: the header's table lacks {name}");
        }
    }

    #[test]
    fn a_count_is_a_count_and_success_leaves_the_text() {
        assert_eq!(done(|| Err(Error::Invalid("so".into()))), -Errno::INVAL.raw_os_error());
        assert_eq!((answer(|| Ok(7)), done(|| Ok(()))), (7, 0));
        assert_eq!(text(), "invalid call: so");
        // In the middle of a text, a zero would end it.
        done(|| Err(Error::NotFound("a\0b".into())));
        assert_eq!(text(), "no such file: ab");
        assert_eq!(std::thread::spawn(text).join().unwrap(), "", "it is each thread's own");
    }

    #[test]
    fn a_panic_is_an_error_and_the_store_is_left_alone() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        let (health, other) = (Health::default(), Health::default());
        let io = -Errno::IO.raw_os_error();
        assert_eq!(done(|| health.run(|| panic!("on {}", "purpose"))), io);
        assert!(text().ends_with("a bug in the library: on purpose"), "{}", text());
        assert_eq!(done(|| health.run(|| Ok(()))), io);
        assert_eq!(done(|| health.clone().spend(Bomb, |_| Ok(()))), io);
        assert!(text().ends_with("an earlier call found it"), "{}", text());
        assert_eq!(done(|| other.run(|| Ok(()))), 0);
        assert_eq!(done(|| other.spend(Bomb, |_| Ok(()))), io);
        assert_eq!(done(|| std::panic::panic_any(Bomb)), io);
        let all = [Health::default(), Health::default()];
        assert_eq!(done(|| Health::run_all(&[all[0].clone(), other], || Ok(()))), io);
        assert_eq!(done(|| Health::run_all(&all, || Ok(()))), 0, "what was not called on is as it was");
        assert_eq!(done(|| Health::run_all(&all, || panic!("both"))), io);
        assert_eq!(all.map(|health| done(|| health.run(|| Ok(())))), [io; 2]);
    }
}
