//! Groups: what is written together survives together.

use std::path::Path;

use super::Store;
use super::handle::File;
use super::running::{Running, Sharing};
use super::table::store_path;
use crate::error::Result;

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
}

impl std::ops::Deref for Held<'_> {
    type Target = Running;

    #[inline]
    fn deref(&self) -> &Running {
        match self {
            Held::Alone(running) => running,
            Held::Writer(running) => running,
        }
    }
}

impl std::ops::DerefMut for Held<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Running {
        match self {
            Held::Alone(running) => running,
            Held::Writer(running) => running,
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.abort();
    }
}

impl Group<'static> {
    pub(super) fn explicit(store: &Store) -> Self {
        Group { running: Held::Alone(Running::new(store.inner.clone(), Sharing::Own)) }
    }
}

impl<'w> Group<'w> {
    /// Of a writer, where it has begun.
    #[inline]
    pub(super) fn of_writer(running: &'w mut Running) -> Self {
        Group { running: Held::Writer(running) }
    }

    /// The group's id, which no other group of the store ever has.
    pub fn id(&self) -> u64 {
        self.running.id
    }

    /// Opens an existing regular file, as this group sees the directory.
    ///
    /// # Errors
    /// Those of [`Store::open_file`].
    pub fn open_file(&mut self, path: impl AsRef<Path>) -> Result<File> {
        let running = &self.running;
        running.store.check_usable()?;
        let path = store_path(path.as_ref())?;
        let created = running.seat().files.iter().find(|file| file.created && file.inner.path == path);
        let inner = match created {
            Some(file) => file.inner.clone(),
            None => running.store.open_path(&path)?,
        };
        Ok(File::of(running.store.clone(), inner))
    }

    /// Makes `file` the group's own now rather than at its first change (the papers' `tx_add`). Groups of several files commit faster if all are
    /// added before the first write.
    ///
    /// # Errors
    /// [`Error::Busy`] where another group changes the file.
    pub fn add(&mut self, file: &File) -> Result<()> {
        self.running.join(file.inner()).map(|_| ())
    }

    /// Creates a regular file with the permission bits `mode`, whatever the umask. It appears with the group, and vanishes with it.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Busy`] where another group has taken the name; [`Error::NotFound`] where its directory does not exist.
    pub fn create(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<File> {
        let path = store_path(path.as_ref())?;
        let inner = self.running.create(path, mode)?;
        Ok(File::of(self.running.store.clone(), inner))
    }

    /// Writes `data` at `offset`. The file grows where that lies beyond its end; a gap reads as zeros.
    ///
    /// # Errors
    /// [`Error::Busy`] where another group changes the file.
    pub fn write_at(&mut self, file: &File, offset: u64, data: &[u8]) -> Result<()> {
        self.running.write(file.inner(), offset, data)
    }

    /// Writes `data` at the end of the file, as the group sees it. Returns the offset at which it stands.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn append(&mut self, file: &File, data: &[u8]) -> Result<u64> {
        let i = self.running.join(file.inner())?;
        let offset = self.running.seat().files[i].size;
        self.running.write(file.inner(), offset, data)?;
        Ok(offset)
    }

    /// Makes the file `length` bytes long. What lay beyond is gone; new bytes are zero.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&mut self, file: &File, length: u64) -> Result<()> {
        self.running.set_len(file.inner(), length)
    }

    /// Reads up to `buf.len()` bytes at `offset`, as the group sees the file; fewer only at its end.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the bytes have rotted in the log; of the host file system.
    pub fn read_at(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.running.read(file.inner(), offset, buf)
    }

    /// The size of the file in bytes, as the group sees it.
    pub fn len(&self, file: &File) -> u64 {
        self.running.find(file.inner()).map_or_else(|| file.len(), |i| self.running.seat().files[i].size)
    }

    /// Makes the group survive power loss: it does when this returns. From then on everybody sees it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] where the medium failed: then nobody knows whether the group survives until the store is opened again.
    /// After any other error the group is aborted.
    pub fn commit(mut self) -> Result<()> {
        self.running.commit()
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
