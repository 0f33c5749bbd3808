//! Open files, and calls on them outside of groups.

use std::sync::Arc;

use super::file::File as Inner;
use super::group::{Running, Sharing};
use super::{Store, StoreInner};
use crate::error::Result;
use crate::sync::Ordering;

/// An open regular file of a store. Clones are the same file.
///
/// Its own calls are implicit groups: each is durable and atomic when it returns (policy `per-op`, FCFS III-G). Inside a group,
/// use the calls of [`Group`](super::Group) with it.
#[derive(Clone)]
pub struct File {
    store: Arc<StoreInner>,
    inner: Arc<Inner>,
}

impl File {
    pub(super) fn new(store: &Store, inner: Arc<Inner>) -> Self {
        File { store: store.inner.clone(), inner }
    }

    pub(super) fn of(store: Arc<StoreInner>, inner: Arc<Inner>) -> Self {
        File { store, inner }
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Its path below the store's directory, as it was opened.
    pub fn path(&self) -> &[u8] {
        &self.inner.path
    }

    /// The committed size in bytes.
    pub fn len(&self) -> u64 {
        self.inner.size.load(Ordering::Acquire)
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads up to `buf.len()` committed bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) where the bytes have rotted in the log; of the host file system.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.store.check_usable()?;
        self.inner.read(&self.store, offset, buf)
    }

    /// Writes `data` at `offset`, wholly or not at all; it survives when this returns.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) where an explicit group has the file.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let grows = offset.saturating_add(data.len() as u64) > self.len();
        // Whoever makes the file grow keeps others from doing so until it is published, so that no gap can survive without
        // what fills it.
        let _append = grows.then(|| self.inner.append.lock().unwrap());
        let mut group = Running::new(self.store.clone(), Sharing::Share);
        group.write(&self.inner, offset, data)?;
        group.commit()
    }

    /// Writes `data` at the end of the file, wholly or not at all; it survives when this returns. Returns the offset at which it stands.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let _append = self.inner.append.lock().unwrap();
        let offset = self.len();
        let mut group = Running::new(self.store.clone(), Sharing::Share);
        group.write(&self.inner, offset, data)?;
        group.commit()?;
        Ok(offset)
    }

    /// Makes the file `length` bytes long; it survives when this returns.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&self, length: u64) -> Result<()> {
        let _append = self.inner.append.lock().unwrap();
        let mut group = Running::new(self.store.clone(), Sharing::Own);
        group.set_len(&self.inner, length)?;
        group.commit()
    }
}
