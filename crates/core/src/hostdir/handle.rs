//! Open files, and calls on them outside of groups.

use std::sync::Arc;

use super::StoreInner;
use super::file::File as Inner;
use crate::error::Result;
use crate::sync::Ordering;

/// An open regular file of a store. Clones are the same open file.
///
/// Its own calls belong to implicit groups, by the store's [`Policy`](super::Policy). Inside an explicit group, use the calls of
/// [`Group`](super::Group) with it.
pub struct File {
    store: Arc<StoreInner>,
    inner: Arc<Inner>,
}

impl File {
    pub(super) fn of(store: Arc<StoreInner>, inner: Arc<Inner>) -> Self {
        inner.handles.fetch_add(1, Ordering::Relaxed);
        File { store, inner }
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Its path below the store's directory, as it was opened.
    pub fn path(&self) -> &[u8] {
        &self.inner.path
    }

    /// The size in bytes, as everybody sees it.
    pub fn len(&self) -> u64 {
        self.store.visible_len(&self.inner)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads up to `buf.len()` bytes at `offset`, as everybody sees them; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) where the bytes have rotted in the log; of the host file system.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.store.check_usable()?;
        self.store.read_visible(&self.inner, offset, buf)
    }

    /// Writes `data` at `offset`, wholly or not at all. Under the policy `per-op` it survives when this returns.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) where an explicit group has the file.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        let write = |running: &mut super::running::Running, _| running.write(&self.inner, offset, data);
        self.store.implicit(&self.inner, false, |size| end > size, write)
    }

    /// Writes `data` at the end of the file, wholly or not at all. Returns the offset at which it stands.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.store.implicit(
            &self.inner,
            false,
            |_| true,
            |running, size| {
                running.write(&self.inner, size, data)?;
                Ok(size)
            },
        )
    }

    /// Makes the file `length` bytes long.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.store.implicit(&self.inner, true, |_| true, |running, _| running.set_len(&self.inner, length))
    }

    /// Makes the calls on this file so far survive: they do when this returns. Under the policy `per-op` they did before.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) where the medium failed.
    pub fn sync(&self) -> Result<()> {
        self.store.sync_file(&self.inner)
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.inner.name()).finish_non_exhaustive()
    }
}

impl Clone for File {
    fn clone(&self) -> Self {
        File::of(self.store.clone(), self.inner.clone())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.inner.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.store.closes.fetch_add(1, Ordering::Relaxed);
            self.store.closed(&self.inner);
        }
    }
}
