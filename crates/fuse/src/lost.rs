//! Writes of which no program is sure to hear that they failed.
//!
//! What is written to mapped memory the kernel hands on when it likes: perhaps when the file is closed, and who wrote
//! it has ended. Where that fails the kernel forgets what was written, and tells the next one who asks, once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use wholly_vfs::Errno;

/// Whether any such write has failed. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Lost(Arc<AtomicI32>);

impl Lost {
    /// One has. The first counts.
    pub(crate) fn note(&self, errno: Errno) {
        let _ = self.0.compare_exchange(0, errno.raw_os_error(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Why the first of them failed. All are known once the server has returned.
    pub fn why(&self) -> Option<io::Error> {
        let errno = self.0.load(Ordering::Relaxed);
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    }
}
