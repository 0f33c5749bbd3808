//! Files of which the kernel was told to drop pages, while a write may have been under way.
//!
//! The kernel copies what a `write` brings to the file's pages before it sends the request. If those pages are dropped
//! in between, and a read brings them back before the write is made, they lack what was written, and nothing else tells
//! the kernel: a volume's mount drops no pages for another time of change. So when the write has been made, its pages
//! are dropped once more. The kernel makes one write of a file at a time: the first one after the drop is the only one
//! that can have been under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// By their inodes, whether content was read since. A file is here until it is written, or the kernel forgets it.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    read_since: Mutex<HashMap<u64, bool>>,
    /// Whether there are any: most mounts never have one.
    any: AtomicBool,
}

impl Dropped {
    fn files(&self) -> Option<MutexGuard<'_, HashMap<u64, bool>>> {
        let any = self.any.load(Ordering::Acquire);
        any.then(|| self.read_since.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// To be called before the kernel is told.
    pub fn note(&self, node: u64) {
        self.any.store(true, Ordering::Release);
        self.read_since.lock().unwrap_or_else(PoisonError::into_inner).insert(node, false);
    }

    /// To be called before a read is made.
    pub fn note_read(&self, node: u64) {
        if let Some(read_since) = self.files().as_mut().and_then(|files| files.get_mut(&node)) {
            *read_since = true;
        }
    }

    /// To be called after a write was made: whether its pages may lack it.
    pub fn lacks_write(&self, node: u64) -> bool {
        self.files().is_some_and(|mut files| files.remove(&node).unwrap_or(false))
    }

    /// The kernel has nothing of the file any more.
    pub fn forget(&self, node: u64) {
        if let Some(mut files) = self.files() {
            files.remove(&node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_write_after_a_read_after_a_drop_may_be_lacking() {
        let dropped = Dropped::default();
        dropped.note_read(7);
        assert!(!dropped.lacks_write(7), "nothing was dropped");
        dropped.note(7);
        dropped.note_read(8);
        assert!(!dropped.lacks_write(7), "no page came back");
        dropped.note_read(7);
        assert!(!dropped.lacks_write(7), "another write was under way");
        dropped.note(7);
        dropped.note_read(7);
        assert!(!dropped.lacks_write(8) && dropped.lacks_write(7) && !dropped.lacks_write(7));
        dropped.note(7);
        dropped.note_read(7);
        dropped.forget(7);
        assert!(!dropped.lacks_write(7));
    }
}
