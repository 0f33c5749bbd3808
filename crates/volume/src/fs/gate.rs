//! What keeps an unmount waiting while groups run.

use crossbeam_utils::CachePadded;
use sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, thread_token};

/// A lock that many threads have for reading, each in a place of its own.
#[derive(Default)]
pub struct Gate([CachePadded<RwLock<()>>; 16]);

impl Gate {
    /// The lock for reading, unless somebody has it for writing, or waits for that. A thread may have it more than
    /// once.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.0[thread_token() as usize % self.0.len()].try_read().ok()
    }

    /// The lock for writing.
    pub fn write(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.0.iter().map(|place| place.write().unwrap()).collect()
    }
}
