//! Open files, and calls on them outside of groups.

use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use wholly_changes::Kind;
use wholly_host::Refused;
use wholly_vfs::Fallocate;

use super::StoreInner;
use super::file::File as Inner;
use super::names::Found;
use crate::error::{Error, Result};
use sync::Ordering;
use wholly_host::{Used, keep_for_ever};

/// An open regular file of a store. A clone is the same open file. It keeps the store open.
///
/// Its own calls are outside of explicit groups: the store's [`Policy`](super::Policy) says which of them survive
/// together. In an explicit group, pass the file to the calls of [`Group`](super::Group).
pub struct File {
    store: Arc<StoreInner>,
    inner: Arc<Inner>,
    /// As it was opened.
    path: Arc<[u8]>,
    /// In a child after `fork`: the same file in the store that the child took over.
    heir: OnceLock<Box<File>>,
}

impl File {
    pub(super) fn of(store: Arc<StoreInner>, inner: Arc<Inner>, path: &[u8]) -> Self {
        inner.handles.fetch_add(1, Ordering::Relaxed);
        File { store, inner, path: path.into(), heir: OnceLock::new() }
    }

    /// The file as `store` knows it, which is the one that it was opened in, or took that over.
    #[inline]
    pub(super) fn inner(&self, store: &Arc<StoreInner>) -> Result<&Arc<Inner>> {
        if Arc::ptr_eq(&self.store, store) { Ok(&self.inner) } else { self.inner_of_heir(store) }
    }

    #[cold]
    fn inner_of_heir(&self, store: &Arc<StoreInner>) -> Result<&Arc<Inner>> {
        if !self.store.forked.is_inherited() {
            return Err(Error::invalid(format!("{} was opened in another store", self.inner.name())));
        }
        self.heir()?.inner(store)
    }

    /// In a child: the file in the child's own store.
    #[cold]
    fn heir(&self) -> Result<&File> {
        if let Some(heir) = self.heir.get() {
            return Ok(heir);
        }
        let store = self.store.heir()?;
        let file = match store.inner.names.with(|state| state.file(self.inner.id)) {
            // The log knew it at the fork, by the id that it has still.
            Some(inner) => {
                let _caller = store.inner.names.caller();
                let found = Found { id: inner.id, kind: Kind::Regular, stat: None };
                File::of(store.inner.clone(), store.inner.open_found(&self.path, &found)?, &self.path)
            }
            None => store.open_file(std::path::Path::new(std::ffi::OsStr::from_bytes(&self.path)))?,
        };
        if let (Some(then), Some(now)) = (self.inner.home(), file.inner.home()) {
            let (then, now) = (then.stat()?, now.stat()?);
            if (then.ino, then.btime_ns) != (now.ino, now.btime_ns) {
                return Err(Error::NotFound(self.inner.name()));
            }
        }
        Ok(self.heir.get_or_init(|| Box::new(file)))
    }

    /// Runs a call on the file as this process has it: a use of the store.
    #[inline]
    fn used<T>(&self, call: impl FnOnce(&File) -> Result<T>) -> Result<T> {
        match self.store.enter() {
            Ok(used) => {
                let result = call(self);
                self.store.leave(used);
                // Not `result`: to copy one without an error would wait for the stores of a write.
                match result {
                    Ok(value) => Ok(value),
                    Err(error) => Err(failed(error)),
                }
            }
            Err(Refused::Inherited) => self.heir()?.used(call),
            Err(why) => Err(self.store.refused(why)),
        }
    }

    /// Returns the path, relative to the store's directory, by which the file was opened.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the size in bytes: committed bytes and those of calls outside of explicit groups.
    pub fn len(&self) -> u64 {
        if self.store.forked.is_inherited() {
            // Without a lock, which a thread of the parent may hold.
            return self.heir().map_or_else(|_| self.inner.size.load(Ordering::Acquire), File::len);
        }
        self.store.visible_len(&self.inner)
    }

    /// Whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads up to `buf.len()` bytes at `offset`. Returns how many; fewer only at the end of the file. Nothing of
    /// explicit groups that still run is seen.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the log is damaged where it holds these bytes; errors of the host
    /// file system.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let store = &*self.store;
        let Ok(used) = store.enter() else { return self.used(|file| file.read_visible(offset, buf)) };
        // First what most reads are, without a result in memory.
        if let Some(length) = store.read_at_once(&self.inner, offset, buf) {
            store.leave(used);
            return Ok(length);
        }
        self.read_then_leave(used, offset, buf)
    }

    #[cold]
    fn read_then_leave(&self, used: Used, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let result = self.read_visible(offset, buf);
        self.store.leave(used);
        result
    }

    fn read_visible(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.store.check_usable()?;
        self.store.read_visible(&self.inner, offset, buf)
    }

    /// Writes `data` at the byte `offset`, all or nothing. The file grows if the range ends beyond its end; a gap reads
    /// as zeros. Under the policy `per-op` the write survives a power failure when this returns; else at the next
    /// commit by the policy.
    ///
    /// # Errors
    /// [`Error::Busy`](crate::Error::Busy) if an explicit group has the file;
    /// [`Error::NoSpace`](crate::Error::NoSpace); [`Error::Poisoned`](crate::Error::Poisoned).
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.saturating_add(data.len() as u64);
        self.used(|file| {
            let write = |running: &mut super::running::Running, _| running.write(&file.inner, offset, data);
            file.store.implicit(&file.inner, false, |size| end > size, write)
        })
    }

    /// Writes `data` at the end of the file, all or nothing. Returns the offset at which the data begins. Durable as
    /// [`write_at`](Self::write_at).
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.used(|file| {
            file.store.implicit(
                &file.inner,
                false,
                |_| true,
                |running, size| {
                    running.write(&file.inner, size, data)?;
                    Ok(size)
                },
            )
        })
    }

    /// Sets the length of the file to `length` bytes. Bytes beyond are dropped; new bytes are zero. Durable as
    /// [`write_at`](Self::write_at).
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.used(|file| {
            file.store.implicit(&file.inner, true, |_| true, |running, _| running.set_len(&file.inner, length))
        })
    }

    /// Changes the space of the `length` bytes from `offset` on: reserves space, or makes a hole or zeros; see
    /// [`Group::fallocate`](super::Group::fallocate). Durable as [`write_at`](Self::write_at).
    ///
    /// # Errors
    /// Those of [`Group::fallocate`](super::Group::fallocate).
    pub fn fallocate(&self, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.used(|file| {
            let call = |running: &mut super::running::Running, _| running.fallocate(&file.inner, how, offset, length);
            file.store.implicit(&file.inner, true, |_| true, call)
        })
    }

    /// Commits the calls on this file so far. When this returns, they survive a power failure. Under the policy
    /// `per-op` they did before.
    ///
    /// # Errors
    /// [`Error::Poisoned`](crate::Error::Poisoned) if the medium failed.
    pub fn sync(&self) -> Result<()> {
        self.used(|file| file.store.sync_file(&file.inner))
    }

    /// Makes the calls on this file so far atomic and ordered: a crash leaves all of them or none, and no later change
    /// without them. In a store this is a [`sync`](Self::sync).
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    pub fn fatomic(&self) -> Result<()> {
        self.sync()
    }

    /// Like [`fatomic`](Self::fatomic), for what is needed to read the data: without times.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    pub fn fdataatomic(&self) -> Result<()> {
        self.sync()
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.inner.name()).finish_non_exhaustive()
    }
}

impl Clone for File {
    fn clone(&self) -> Self {
        self.inner.handles.fetch_add(1, Ordering::Relaxed);
        File { store: self.store.clone(), inner: self.inner.clone(), path: self.path.clone(), heir: self.heir.clone() }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.store.forked.is_inherited() {
            keep_for_ever(&self.store);
            keep_for_ever(&self.inner);
        } else if self.inner.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.store.closes.fetch_add(1, Ordering::Relaxed);
            self.store.closed(&self.inner);
        }
    }
}

/// An error as it is, off the path of calls without one.
#[cold]
#[inline(never)]
fn failed(error: Error) -> Error {
    error
}
