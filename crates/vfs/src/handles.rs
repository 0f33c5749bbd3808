//! Open files and directories, as values.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::{Errno, Result};

/// An open file or directory, from `open`, `create`, `tmpfile` or `opendir` to its release. It has what its file system
/// knows of it, so a call on it looks nothing up.
#[derive(Clone)]
pub struct Handle(Arc<Shared<dyn Any + Send + Sync>>);

struct Shared<T: ?Sized> {
    number: u64,
    /// The [`Handles`] that gave it out.
    given_by: u64,
    is_open: AtomicBool,
    open: T,
}

impl Handle {
    /// Names it among all that its file system has given out.
    pub fn number(&self) -> u64 {
        self.0.number
    }
}

/// The same opening, not the same file.
impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.0.number).finish()
    }
}

/// For file systems: gives out [`Handle`]s, and knows them again.
///
/// ```
/// use wholly_vfs::{Errno, Handles};
///
/// let handles = Handles::from(1);
/// let handle = handles.open("what is known of it");
/// assert_eq!(handles.get(&handle), Ok(&"what is known of it"));
/// assert_eq!(handles.count(), 1);
/// handles.close::<&str>(&handle).unwrap();
/// assert_eq!(handles.get::<&str>(&handle), Err(Errno::BADF));
/// ```
#[derive(Debug)]
pub struct Handles {
    /// Names it in the process.
    name: u64,
    next: AtomicU64,
    open: AtomicUsize,
}

impl From<u64> for Handles {
    /// The first handle has this number.
    fn from(first: u64) -> Handles {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let name = NAMES.fetch_add(1, Ordering::Relaxed);
        Handles { name, next: AtomicU64::new(first), open: AtomicUsize::new(0) }
    }
}

impl Handles {
    /// A handle, with what is known of it.
    pub fn open<T: Any + Send + Sync>(&self, open: T) -> Handle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::AcqRel);
        Handle(Arc::new(Shared { number, given_by: self.name, is_open: AtomicBool::new(true), open }))
    }

    /// What is known of a handle.
    ///
    /// # Errors
    /// `EBADF` if it was closed, is of another kind, or was given out by others.
    #[inline]
    pub fn get<'h, T: Any>(&self, handle: &'h Handle) -> Result<&'h T> {
        let shared = &*handle.0;
        if shared.given_by != self.name || !shared.is_open.load(Ordering::Acquire) {
            return Err(Errno::BADF);
        }
        shared.open.downcast_ref().ok_or(Errno::BADF)
    }

    /// The same, and the handle is open no more.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn close<'h, T: Any>(&self, handle: &'h Handle) -> Result<&'h T> {
        let open = self.get(handle)?;
        if !handle.0.is_open.swap(false, Ordering::AcqRel) {
            return Err(Errno::BADF);
        }
        self.open.fetch_sub(1, Ordering::AcqRel);
        Ok(open)
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }
}
