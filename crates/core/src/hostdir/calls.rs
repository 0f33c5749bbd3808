//! Calls on names and attributes outside of explicit groups: each is a group of its own, under every policy, and
//! survives when it returns. What is pending of files that it names is committed before it.

use std::ffi::OsStr;
use std::path::Path;

use wholly_vfs::{DirEntry, Rename, SetXattr, Stat};

use super::{Group, Store};
use crate::error::Result;

/// Names and attributes outside of explicit groups: each call is a group of its own, under every policy. Pending calls
/// on files that it names are committed before it.
impl Store {
    /// Runs a call in a group of its own.
    fn alone<T>(&self, call: impl FnOnce(&mut Group<'_>) -> Result<T>) -> Result<T> {
        let mut group = self.begin_single();
        let value = call(&mut group)?;
        group.commit()?;
        Ok(value)
    }

    /// Like [`Group::mkdir`], in a group of its own. When this returns, the directory survives a power failure.
    ///
    /// # Errors
    /// Those of [`Group::mkdir`] and [`Group::commit`].
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.alone(|group| group.mkdir(path, mode))
    }

    /// Like [`Group::mknod`], in a group of its own. When this returns, the new name survives a power failure.
    ///
    /// # Errors
    /// Those of [`Group::mknod`] and [`Group::commit`].
    pub fn mknod(&self, path: impl AsRef<Path>, mode: u32, rdev: u64) -> Result<()> {
        self.alone(|group| group.mknod(path, mode, rdev))
    }

    /// Like [`Group::symlink`], in a group of its own. When this returns, the link survives a power failure.
    ///
    /// # Errors
    /// Those of [`Group::symlink`] and [`Group::commit`].
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        self.alone(|group| group.symlink(target, path))
    }

    /// Like [`Group::link`], in a group of its own. When this returns, the new name survives a power failure.
    ///
    /// # Errors
    /// Those of [`Group::link`] and [`Group::commit`].
    pub fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.alone(|group| group.link(from, to))
    }

    /// Like [`Group::unlink`], in a group of its own. When this returns, the name does not come back after a power
    /// failure.
    ///
    /// # Errors
    /// Those of [`Group::unlink`] and [`Group::commit`].
    pub fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        self.alone(|group| group.unlink(path))
    }

    /// Like [`Group::rmdir`], in a group of its own. When this returns, the name does not come back after a power
    /// failure.
    ///
    /// # Errors
    /// Those of [`Group::rmdir`] and [`Group::commit`].
    pub fn rmdir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.alone(|group| group.rmdir(path))
    }

    /// Like [`Group::rename`], in a group of its own. When this returns, all of it survives a power failure.
    ///
    /// # Errors
    /// Those of [`Group::rename`] and [`Group::commit`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, how: Rename) -> Result<()> {
        self.alone(|group| group.rename(from, to, how))
    }

    /// Like [`Group::set_mode`], in a group of its own. When this returns, the mode survives a power failure.
    ///
    /// # Errors
    /// Those of [`Group::set_mode`] and [`Group::commit`].
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.alone(|group| group.set_mode(path, mode))
    }

    /// Like [`Group::set_owner`], in a group of its own. When this returns, owner and group survive a power failure.
    ///
    /// # Errors
    /// Those of [`Group::set_owner`] and [`Group::commit`].
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.alone(|group| group.set_owner(path, uid, gid))
    }

    /// Like [`Group::set_times`], in a group of its own. When this returns, the times survive a power failure.
    ///
    /// # Errors
    /// Those of [`Group::set_times`] and [`Group::commit`].
    pub fn set_times(&self, path: impl AsRef<Path>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        self.alone(|group| group.set_times(path, atime_ns, mtime_ns))
    }

    /// Like [`Group::set_xattr`], in a group of its own. When this returns, the attribute survives a power failure.
    ///
    /// # Errors
    /// Those of [`Group::set_xattr`] and [`Group::commit`].
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        self.alone(|group| group.set_xattr(path, name, value, how))
    }

    /// Like [`Group::remove_xattr`], in a group of its own. When this returns, the attribute does not come back after a
    /// power failure.
    ///
    /// # Errors
    /// Those of [`Group::remove_xattr`] and [`Group::commit`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.alone(|group| group.remove_xattr(path, name))
    }

    /// Like [`Group::xattr`], of the committed state.
    ///
    /// # Errors
    /// Those of [`Group::xattr`].
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        self.begin().xattr(path, name)
    }

    /// Like [`Group::xattrs`], of the committed state.
    ///
    /// # Errors
    /// Those of [`Group::xattrs`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        self.begin().xattrs(path)
    }

    /// Like [`Group::metadata`], of the committed state.
    ///
    /// # Errors
    /// Those of [`Group::metadata`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.begin().metadata(path)
    }

    /// Like [`Group::read_link`], of the committed state.
    ///
    /// # Errors
    /// Those of [`Group::read_link`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.begin().read_link(path)
    }

    /// Like [`Group::read_dir`], of the committed state.
    ///
    /// # Errors
    /// Those of [`Group::read_dir`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        self.begin().read_dir(path)
    }
}
