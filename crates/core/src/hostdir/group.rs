//! Groups: what is written together survives together.

mod attributes;
mod names;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::StoreInner;
use super::handle::File;
use super::names::TRIES;
use super::running::{Running, Sharing};
use super::table::store_path;
use crate::error::{Error, Result};
use wholly_host::Used;
use wholly_vfs::Fallocate;

/// An explicit group: updates of any number of files that survive a crash wholly or not at all.
///
/// No other group, thread or program sees the updates before [`commit`](Self::commit) returns; calls on the group
/// itself see them. The group claims what it changes until it ends. Dropping the group aborts it.
///
/// Paths are relative to the store's directory. Symbolic links in a path are followed while they stay inside, except at
/// the end, where a call names the link itself unless its description says otherwise. These are refused: an empty or
/// absolute path, `..`, `.wholly`, and a path that leads out of the directory.
///
/// A call that returns an error has changed nothing, and the group continues. If a call fails half-way, for want of
/// space or by an error of the medium, the group can only be aborted, and `commit` says so.
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
#[expect(clippy::large_enum_variant, reason = "most groups are alone, and a box costs each of them an allocation")]
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

    #[inline(always)]
    fn as_mut(&mut self) -> Result<&mut Running> {
        // First: a writer is there to be fast.
        if let Held::Writer(running) = self {
            return Ok(running);
        }
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
        // In two arms, so that a result is never copied: it was stored in part, and its copy would wait in line behind
        // the payload's stores.
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

    /// Returns the group's id. No other group of the store ever has the same one. 0 if the store could not be used when
    /// the group began.
    pub fn id(&self) -> u64 {
        self.running.as_ref().map_or(0, |running| running.id)
    }

    /// Sets how long the group's calls wait for other groups to end before they return [`Error::Busy`]. A group begins
    /// with zero: its calls return `Busy` at once. If two groups wait for each other, both wait until the time of one
    /// is over; that one gets `Busy`.
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

    /// Opens an existing regular file, as the group sees the directory. A symbolic link at the end of the path is
    /// followed.
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

    /// Claims `file` for the group now, instead of at its first change (the papers' `tx_add`). A group of several files
    /// commits faster if all are added before the first write.
    ///
    /// # Errors
    /// [`Error::Busy`] if another group has the file.
    pub fn add(&mut self, file: &File) -> Result<()> {
        self.call(|running| running.join(file.inner(&running.store)?).map(|_| ()))
    }

    /// Creates a regular file with exactly the permission bits `mode`, whatever the umask. Returns it open. The file
    /// exists for others once the group is committed.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Busy`] if another group has claimed the name; [`Error::NotFound`] if its directory
    /// does not exist; [`Error::Invalid`] if `mode` has other bits.
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
            let mut tries = TRIES;
            loop {
                let inner = match running.open_file(&path) {
                    Err(Error::NotFound(_)) => match running.create(&path, mode) {
                        // Another group has committed the name since, perhaps while this one waited for it.
                        Err(Error::Exists(_)) if tries > 0 => {
                            tries -= 1;
                            continue;
                        }
                        created => created?,
                    },
                    opened => opened?,
                };
                return Ok(File::of(running.store.clone(), inner, &path));
            }
        })
    }

    /// Writes `data` at `offset`. The file grows where that lies beyond its end; a gap reads as zeros.
    ///
    /// # Errors
    /// [`Error::Busy`] if another group has the file; [`Error::NoSpace`]; [`Error::Invalid`] for a file of another
    /// store.
    pub fn write_at(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        self.call(|running| running.write(file.inner(&running.store)?, offset, data))
    }

    /// Writes `data` at the end of the file, as the group sees it. Returns the offset at which the data begins.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn append(&mut self, file: &File, data: &[u8]) -> Result<u64> {
        self.call(|running| {
            let inner = file.inner(&running.store)?;
            let offset = running.size_of(inner)?;
            running.write(inner, offset, data)?;
            Ok(offset)
        })
    }

    /// Sets the length of the file to `length` bytes. Bytes beyond are dropped; new bytes are zero.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn set_len(&mut self, file: &File, length: u64) -> Result<()> {
        self.call(|running| running.set_len(file.inner(&running.store)?, length))
    }

    /// Changes the space of the `length` bytes from `offset` on, as `fallocate(2)` does: reserves space, or makes a
    /// hole or zeros.
    ///
    /// Zeros are atomic and durable as bytes are, and cost one small record, whatever their length. The checkpoint that
    /// writes the group back frees or reserves the file's blocks. If there is no space then, the checkpoint fails until
    /// there is.
    ///
    /// # Errors
    /// - [`Error::Invalid`] for an empty range.
    /// - [`Error::Refused`] with `EFBIG` for a range that ends beyond 4 PiB.
    /// - [`Error::NoSpace`] if more is to be reserved than all that is free.
    /// - [`Error::Busy`] if another group has the file.
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

    /// Reads up to `buf.len()` bytes at `offset`, as the group sees the file. Returns how many; fewer only at the end
    /// of the file.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the log is damaged where it holds these bytes; errors of the host file system.
    pub fn read_at(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let running = self.running.as_ref()?;
        let used = running.store.enter().map_err(|why| running.store.refused(why))?;
        let result = file.inner(&running.store).and_then(|inner| running.read(inner, offset, buf));
        running.store.leave(used);
        result
    }

    /// Returns the size of the file in bytes, as the group sees it.
    pub fn len(&self, file: &File) -> u64 {
        let joined = self.running.as_ref().ok().and_then(|running| {
            let i = running.find(file.inner(&running.store).ok()?)?;
            Some(running.seat().files[i].size)
        });
        joined.unwrap_or_else(|| file.len())
    }

    /// Commits the group. When this returns, it survives a power failure, and all groups and threads of the process see
    /// it. Other programs see it after the next checkpoint.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed: whether the group survives is unknown until the store is opened again.
    /// After any other error the group is aborted.
    pub fn commit(mut self) -> Result<()> {
        self.call(Running::commit)?;
        if let Held::Writer(running) = &self.running {
            debug_assert!(running.has_ended());
            // Nothing is left to be aborted.
            std::mem::forget(self);
        }
        Ok(())
    }

    /// Makes the group atomic, and ordered before later groups on the same files. A later [`commit`](Self::commit) or
    /// sync makes it durable. On every medium of today this is the same as `commit`.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_atomic(self) -> Result<()> {
        self.commit()
    }

    /// Aborts the group: nothing of it is left, in memory or on the medium.
    pub fn abort(self) {
        drop(self);
    }
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("id", &self.id()).finish_non_exhaustive()
    }
}
