//! Open files and directories, by the numbers that the kernel has for them.

use std::array;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use fuser::FileHandle;
use wholly_vfs::{Errno, Handle, Result};

const SHARDS: usize = 16;

/// See the module.
pub(crate) struct OpenFiles([RwLock<HashMap<u64, Handle>>; SHARDS]);

impl Default for OpenFiles {
    fn default() -> Self {
        OpenFiles(array::from_fn(|_| RwLock::default()))
    }
}

impl OpenFiles {
    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Handle>> {
        &self.0[number as usize % SHARDS]
    }

    /// The number of what was opened.
    pub fn add(&self, handle: Handle) -> FileHandle {
        let number = handle.number();
        self.shard(number).write().unwrap_or_else(PoisonError::into_inner).insert(number, handle);
        FileHandle(number)
    }

    /// What has a number.
    pub fn get(&self, number: FileHandle) -> Result<Handle> {
        let shard = self.shard(number.0).read().unwrap_or_else(PoisonError::into_inner);
        shard.get(&number.0).cloned().ok_or(Errno::BADF)
    }

    /// The same, and nothing has the number any more.
    pub fn take(&self, number: FileHandle) -> Result<Handle> {
        let mut shard = self.shard(number.0).write().unwrap_or_else(PoisonError::into_inner);
        shard.remove(&number.0).ok_or(Errno::BADF)
    }
}
