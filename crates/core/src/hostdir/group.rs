//! Groups: what is written together survives together.

mod attributes;
mod names;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wholly_media::Fallocate;

use super::StoreInner;
use super::fork::Used;
use super::handle::File;
use super::running::{Running, Sharing};
use super::table::store_path;
use crate::error::{Error, Result};

/// An explicit group: updates of any number of files that survive a crash wholly or not at all.
///
/// Nobody else sees them before [`commit`](Self::commit) returns; calls on the group itself do. The files that it changes are its own
/// until it ends. Dropping the group aborts it.
///
/// # Example
/// ```
/// # fn main() -> wholly::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("wholly-doc-group-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir).unwrap();
/// # wholly::Store::init(&dir, &wholly::Options::default())?;
/// let store = wholly::Store::open(&dir)?;
/// let mut group = store.begin();
/// let accounts = group.create("accounts", 0o644)?;
/// let journal = group.create("journal", 0o644)?;
/// group.write_at(&accounts, 0, b"alice 70, bob 30")?;
/// group.append(&journal, b"alice gave bob 30\n")?;
/// group.commit()?;
/// # store.close()?;
/// # std::fs::remove_dir_all(&dir).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct Group<'w> {
    running: Held<'w>,
}

/// Whose a group is.
enum Held<'w> {
    Alone(Running),
    Writer(&'w mut Running),
    /// Nobody's: why the store could not be had when the group began.
    Refused(Error),
}

impl Held<'_> {
    #[inline]
    fn as_ref(&self) -> Result<&Running> {
        match self {
            Held::Alone(running) => Ok(running),
            Held::Writer(running) => Ok(running),
            Held::Refused(error) => Err(error.clone()),
        }
    }

    #[inline]
    fn as_mut(&mut self) -> Result<&mut Running> {
        match self {
            Held::Alone(running) => Ok(running),
            Held::Writer(running) => Ok(running),
            Held::Refused(error) => Err(error.clone()),
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Ok(running) = self.as_mut() {
            running.abort();
        }
    }
}

impl Group<'static> {
    pub(super) fn explicit(store: &Arc<StoreInner>) -> Self {
        Group { running: Held::Alone(Running::new(store.clone(), Sharing::Own)) }
    }

    /// Of one call on names outside of explicit groups.
    pub(super) fn single(store: &Arc<StoreInner>) -> Self {
        Group { running: Held::Alone(Running::new(store.clone(), Sharing::Own).into_single()) }
    }
}

/// The end of a use that failed.
#[cold]
fn failed(store: &StoreInner, used: Used, error: Error) -> Error {
    store.leave(used);
    error
}

impl<'w> Group<'w> {
    /// Of a writer, where it has begun.
    #[inline]
    pub(super) fn of_writer(running: &'w mut Running) -> Self {
        Group { running: Held::Writer(running) }
    }

    /// A group whose calls all fail.
    pub(super) fn refused(error: Error) -> Self {
        Group { running: Held::Refused(error) }
    }

    /// The group, to be looked at.
    pub(super) fn running_mut(&mut self) -> Result<&mut Running> {
        self.running.as_mut()
    }

    /// The group, taken out of this handle.
    pub(super) fn into_running(mut self) -> Result<Running> {
        if matches!(self.running, Held::Writer(_)) {
            return Err(Error::invalid("groups of a writer are not committed with others"));
        }
        let running = self.running.as_mut()?;
        let nothing = Running::looking(running.store.clone());
        Ok(std::mem::replace(running, nothing))
    }

    /// Runs a call on the group: a use of the store.
    #[inline]
    pub(super) fn call<T>(&mut self, call: impl FnOnce(&mut Running) -> Result<T>) -> Result<T> {
        let running = self.running.as_mut()?;
        let used = running.store.enter().map_err(|why| running.store.refused(why))?;
        // In two arms, so that a result is never copied: it was stored in part, and its copy would wait in line behind the payload's
        // stores.
        match call(running) {
            Ok(value) => {
                running.store.leave(used);
                Ok(value)
            }
            Err(error) => Err(failed(&running.store, used, error)),
        }
    }

    /// The same, of a call that looks for objects by their names.
    pub(super) fn call_by_name<T>(&mut self, call: impl FnOnce(&mut Running) -> Result<T>) -> Result<T> {
        self.call(|running| {
            let store = running.store.clone();
            let _caller = store.names.caller();
            call(running)
        })
    }

    /// The group's id, which no other group of the store ever has; 0 where the store could not be had.
    pub fn id(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.id)
    }

    /// Has the group's calls wait so long for other groups to end, where they would get [`Error::Busy`] at once. Zero, as each group begins with, is
    /// not at all. Two groups that wait for each other both do so for as long as they may, and then one of them gets `Busy`.
    ///
    /// # Example
    /// ```
    /// # fn main() -> wholly::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("wholly-doc-busy-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// # wholly::Store::init(&dir, &wholly::Options::default())?;
    /// let store = wholly::Store::open(&dir)?;
    /// let file = store.create_file("counter", 0o644)?;
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| {
    ///             let mut group = store.begin();
    ///             group.set_busy_timeout(std::time::Duration::from_secs(10));
    ///             group.append(&file, b"1")?;
    ///             group.commit()
    ///         });
    ///     }
    /// });
    /// assert_eq!(file.len(), 4);
    /// # drop(file);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_busy_timeout(&mut self, timeout: Duration) {
        // The calls of a group that could not be had say so.
        if let Ok(running) = self.running.as_mut() {
            running.busy_timeout = timeout;
        }
    }

    /// Opens an existing regular file, as this group sees the directory.
    ///
    /// # Errors
    /// Those of [`Store::open_file`].
    pub fn open_file(&mut self, path: impl AsRef<Path>) -> Result<File> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| {
            let inner = running.open_file(&path)?;
            Ok(File::of(running.store.clone(), inner, &path))
        })
    }

    /// Makes `file` the group's own now rather than at its first change (the papers' `tx_add`). Groups of several files commit faster if
    /// all are added before the first write.
    ///
    /// # Errors
    /// [`Error::Busy`] where another group changes the file.
    pub fn add(&mut self, file: &File) -> Result<()> {
        self.call(|running| running.join(file.inner(&running.store)?).map(|_| ()))
    }

    /// Creates a regular file with the permission bits `mode`, whatever the umask. It appears with the group, and vanishes with it.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Busy`] where another group has taken the name; [`Error::NotFound`] where its directory does not exist.
    pub fn create(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<File> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| {
            let inner = running.create(&path, mode)?;
            Ok(File::of(running.store.clone(), inner, &path))
        })
    }

    /// Opens a regular file as [`open_file`](Self::open_file) does, or [creates](Self::create) it where there is none.
    ///
    /// # Errors
    /// Those of both.
    pub fn open_or_create(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<File> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| {
            let inner = match running.open_file(&path) {
                Err(Error::NotFound(_)) => running.create(&path, mode)?,
                opened => opened?,
            };
            Ok(File::of(running.store.clone(), inner, &path))
        })
    }

    /// Writes `data` at `offset`. The file grows where that lies beyond its end; a gap reads as zeros.
    ///
    /// # Errors
    /// [`Error::Busy`] where another group changes the file.
    pub fn write_at(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        self.call(|running| running.write(file.inner(&running.store)?, offset, data))
    }

    /// Writes `data` at the end of the file, as the group sees it. Returns the offset at which it stands.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&mut self, file: &File, data: &[u8]) -> Result<u64> {
        self.call(|running| {
            let inner = file.inner(&running.store)?;
            let offset = running.size_of(inner)?;
            running.write(inner, offset, data)?;
            Ok(offset)
        })
    }

    /// Makes the file `length` bytes long. What lay beyond is gone; new bytes are zero.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&mut self, file: &File, length: u64) -> Result<()> {
        self.call(|running| running.set_len(file.inner(&running.store)?, length))
    }

    /// Changes what space the `length` bytes from `offset` on have, as `fallocate(2)` does: reserves it, or makes a hole or zeros of them.
    /// What reads as zeros is in the group wholly or not at all, as bytes are, and costs one small record, however long it is. Blocks are
    /// given back, or reserved, when the group is taken home; if there is no space then, the checkpoint fails until there is.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a range of no bytes, `EFBIG` for one that ends beyond 4 PiB; [`Error::NoSpace`] where what is to be reserved is
    /// more than all that is free; [`Error::Busy`] where another group changes the file.
    ///
    /// # Example
    /// ```
    /// # fn main() -> wholly::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("wholly-doc-fallocate-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir).unwrap();
    /// # wholly::Store::init(&dir, &wholly::Options::default())?;
    /// let store = wholly::Store::open(&dir)?;
    /// let mut group = store.begin();
    /// let queue = group.create("queue", 0o644)?;
    /// group.fallocate(&queue, wholly::Fallocate::Keep, 0, 1 << 20)?; // room for what is to come
    /// group.append(&queue, &[1; 10_000])?;
    /// group.commit()?;
    ///
    /// queue.fallocate(wholly::Fallocate::Punch, 0, 8192)?; // what was dealt with takes no space any more
    /// let mut bytes = [9; 8193];
    /// queue.read_at(0, &mut bytes)?;
    /// assert!(bytes[..8192].iter().all(|byte| *byte == 0) && bytes[8192] == 1);
    /// # drop(queue);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(&dir).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn fallocate(&mut self, file: &File, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.call(|running| running.fallocate(file.inner(&running.store)?, how, offset, length))
    }

    /// Reads up to `buf.len()` bytes at `offset`, as the group sees the file; fewer only at its end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes have rotted in the log; of the host file system.
    pub fn read_at(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let running = self.running.as_ref()?;
        let used = running.store.enter().map_err(|why| running.store.refused(why))?;
        let result = file.inner(&running.store).and_then(|inner| running.read(inner, offset, buf));
        running.store.leave(used);
        result
    }

    /// The size of the file in bytes, as the group sees it.
    pub fn len(&self, file: &File) -> u64 {
        let joined = self.running.as_ref().ok().and_then(|running| {
            let i = running.find(file.inner(&running.store).ok()?)?;
            Some(running.seat().files[i].size)
        });
        joined.unwrap_or_else(|| file.len())
    }

    /// Makes the group survive power loss: it does when this returns. From then on everybody sees it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where the medium failed: then nobody knows whether the group survives until the store is opened again.
    /// After any other error the group is aborted.
    pub fn commit(mut self) -> Result<()> {
        self.call(Running::commit)
    }

    /// Makes the group atomic and ordered before later groups on the same files; a later [`commit`](Self::commit) or sync makes it durable.
    /// On every medium that Wholly has today this is `commit`.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_atomic(self) -> Result<()> {
        self.commit()
    }

    /// Undoes the group, in memory and on the medium.
    pub fn abort(self) {
        drop(self);
    }
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("id", &self.id()).finish_non_exhaustive()
    }
}
