//! How long a file may become: what a group may hold, a pass must be able to take home.

use rustix::io::Errno;
use wholly_changes::records::LARGEST_FILE;

use super::StoreInner;
use super::file::File;
use crate::error::{Error, Result};
use sync::Ordering;

/// Every file system has files of this length; beyond it the host is asked.
const NO_QUESTION: u64 = 1 << 30;

impl StoreInner {
    /// Bytes of the largest file there can be, as far as one that ends at `end` has to know.
    #[inline]
    pub fn longest(&self, end: u64) -> u64 {
        if end <= NO_QUESTION { LARGEST_FILE } else { LARGEST_FILE.min(self.host.largest_file()) }
    }

    /// Refuses a file that would end at `end`, where the host has none that long.
    #[inline]
    pub fn check_length(&self, file: &File, end: u64) -> Result<()> {
        // It is that long: to ask would cost each write to a large file a system call.
        if end <= file.size.load(Ordering::Relaxed) || end <= self.longest(end) {
            return Ok(());
        }
        Err(Error::Refused(file.name(), Errno::FBIG))
    }
}
