//! Explicit groups of [`Calls`], as a `Store` has them.

use std::path::Path;

#[cfg(doc)]
use wholly_error::Error;
use wholly_error::Result;

use super::{AcrossForks, Calls, Committed, Fallocate, File, GroupId, OFlags};

/// An explicit group: changes of any number of files and directories that survive a crash wholly or not at all.
///
/// Nobody else sees them before [`commit`](Self::commit) returns; calls on the group itself do. It has the calls by
/// path of [`Calls`], and those below for open files, and claims what it changes until it ends: others then get
/// [`Error::Busy`]. Dropping the group aborts it.
#[derive(Debug)]
pub struct Group<V: AcrossForks> {
    calls: Calls<V>,
    has_ended: bool,
}

impl<V: AcrossForks> std::ops::Deref for Group<V> {
    type Target = Calls<V>;

    fn deref(&self) -> &Calls<V> {
        &self.calls
    }
}

impl<V: AcrossForks> Group<V> {
    pub(super) fn new(calls: Calls<V>) -> Group<V> {
        Group { calls, has_ended: false }
    }

    /// Its id: in a [`Context`](crate::Context) it makes calls on a [`Vfs`](crate::Vfs) the group's.
    ///
    /// # Errors
    /// Why there is no group, if none could begin.
    pub fn id(&self) -> Result<GroupId> {
        self.calls.group().map(|group| group.expect("one was asked for"))
    }

    /// Claims `file` for the group now, instead of at its first change.
    ///
    /// # Errors
    /// [`Error::Busy`] if another group has the file.
    pub fn add(&mut self, file: &File<V>) -> Result<()> {
        file.within(&self.calls)?.add()
    }

    /// Creates a regular file with the permission bits `mode`, whatever the umask. Others find it once the group is
    /// committed.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::Busy`] if another group has claimed the name; those of `open`.
    pub fn create(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<File<V>> {
        self.calls.create_file(path, mode)
    }

    /// Opens a regular file, or [creates](Self::create) it where there is none.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open_or_create(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<File<V>> {
        self.calls.opened(path.as_ref(), OFlags::RDWR | OFlags::CREATE, mode)
    }

    /// Writes `data` at the byte `offset`.
    ///
    /// # Errors
    /// [`Error::Busy`] if another group has the file; [`Error::NoSpace`]; [`Error::Invalid`] for a file of another
    /// store or volume.
    pub fn write_at(&mut self, file: &File<V>, offset: u64, data: &[u8]) -> Result<()> {
        file.within(&self.calls)?.write_at(offset, data)
    }

    /// Writes `data` at the end of the file, as the group sees it. Returns the offset at which the data begins.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn append(&mut self, file: &File<V>, data: &[u8]) -> Result<u64> {
        file.within(&self.calls)?.append(data)
    }

    /// Sets the length of the file to `length` bytes.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn set_len(&mut self, file: &File<V>, length: u64) -> Result<()> {
        file.within(&self.calls)?.set_len(length)
    }

    /// Changes the space of a range.
    ///
    /// # Errors
    /// Those of `fallocate`; [`Error::Busy`] if another group has the file.
    pub fn fallocate(&mut self, file: &File<V>, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        file.within(&self.calls)?.fallocate(how, offset, length)
    }

    /// Reads up to `buf.len()` bytes at `offset`, as the group sees the file. Returns how many; fewer only at the end
    /// of the file.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_at(&self, file: &File<V>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        file.within(&self.calls)?.read_at(offset, buf)
    }

    /// Returns the size of the file in bytes, as the group sees it.
    ///
    /// # Errors
    /// If its metadata is damaged.
    pub fn len(&self, file: &File<V>) -> Result<u64> {
        Ok(file.within(&self.calls)?.metadata()?.size)
    }

    /// Commits the group. When this returns, it survives a power failure, and everybody sees it.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed: whether the group survives is unknown until the store or
    /// volume is opened again.
    pub fn commit(mut self) -> Result<()> {
        self.has_ended = true;
        let Some(group) = self.calls.own_group()? else { return Ok(()) };
        self.calls.vfs().commit(group)
    }

    /// Commits the group. When this returns, everybody sees it, a crash leaves it wholly or not at all, and it is
    /// ordered before later groups that change the same. Where the medium is not waited for, it is durable later: by a
    /// sync, a later commit, or an unmount.
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit).
    pub fn commit_atomic(mut self) -> Result<()> {
        self.has_ended = true;
        let Some(group) = self.calls.own_group()? else { return Ok(()) };
        self.calls.vfs().commit_all(&[group], Committed::Ordered).map(|_durable_later| ())
    }

    /// Aborts the group: nothing of it is left, in memory or on the medium.
    pub fn abort(self) {
        drop(self);
    }
}

impl<V: AcrossForks> Drop for Group<V> {
    fn drop(&mut self) {
        if let (false, Ok(Some(group))) = (self.has_ended, self.calls.group()) {
            // It has ended already if the volume was closed.
            let _ = self.calls.vfs().abort(group);
        }
    }
}
