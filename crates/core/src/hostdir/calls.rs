//! Calls on names and attributes outside of explicit groups: each is a group of its own, under every policy, and survives when it returns. What is pending
//! of files that it names is committed before it.

use std::ffi::OsStr;
use std::path::Path;

use wholly_media::{DirEntry, Rename, SetXattr, Stat};

use super::{Group, Store};
use crate::error::Result;

/// Names and attributes, each call a group of its own: see [`Group`] for what they do.
impl Store {
    /// Runs a call in a group of its own.
    fn alone<T>(&self, call: impl FnOnce(&mut Group<'_>) -> Result<T>) -> Result<T> {
        let mut group = self.begin_single();
        let value = call(&mut group)?;
        group.commit()?;
        Ok(value)
    }

    /// See [`Group::mkdir`]. The directory survives when this returns.
    ///
    /// # Errors
    /// Those of [`Group::mkdir`] and [`Group::commit`].
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.alone(|group| group.mkdir(path, mode))
    }

    /// See [`Group::mknod`]. The new name survives when this returns.
    ///
    /// # Errors
    /// Those of [`Group::mknod`] and [`Group::commit`].
    pub fn mknod(&self, path: impl AsRef<Path>, mode: u32, rdev: u64) -> Result<()> {
        self.alone(|group| group.mknod(path, mode, rdev))
    }

    /// See [`Group::symlink`]. The link survives when this returns.
    ///
    /// # Errors
    /// Those of [`Group::symlink`] and [`Group::commit`].
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        self.alone(|group| group.symlink(target, path))
    }

    /// See [`Group::link`]. The new name survives when this returns.
    ///
    /// # Errors
    /// Those of [`Group::link`] and [`Group::commit`].
    pub fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.alone(|group| group.link(from, to))
    }

    /// See [`Group::unlink`]. The name does not come back after a crash when this has returned.
    ///
    /// # Errors
    /// Those of [`Group::unlink`] and [`Group::commit`].
    pub fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        self.alone(|group| group.unlink(path))
    }

    /// See [`Group::rmdir`]. The name does not come back after a crash when this has returned.
    ///
    /// # Errors
    /// Those of [`Group::rmdir`] and [`Group::commit`].
    pub fn rmdir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.alone(|group| group.rmdir(path))
    }

    /// See [`Group::rename`]. All of it survives when this returns.
    ///
    /// # Errors
    /// Those of [`Group::rename`] and [`Group::commit`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>, how: Rename) -> Result<()> {
        self.alone(|group| group.rename(from, to, how))
    }

    /// See [`Group::set_mode`]. The mode survives when this returns.
    ///
    /// # Errors
    /// Those of [`Group::set_mode`] and [`Group::commit`].
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.alone(|group| group.set_mode(path, mode))
    }

    /// See [`Group::set_owner`]. Owner and group survive when this returns.
    ///
    /// # Errors
    /// Those of [`Group::set_owner`] and [`Group::commit`].
    pub fn set_owner(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.alone(|group| group.set_owner(path, uid, gid))
    }

    /// See [`Group::set_times`]. The times survive when this returns.
    ///
    /// # Errors
    /// Those of [`Group::set_times`] and [`Group::commit`].
    pub fn set_times(&self, path: impl AsRef<Path>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        self.alone(|group| group.set_times(path, atime_ns, mtime_ns))
    }

    /// See [`Group::set_xattr`]. The attribute survives when this returns.
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

    /// See [`Group::remove_xattr`]. The attribute does not come back after a crash when this has returned.
    ///
    /// # Errors
    /// Those of [`Group::remove_xattr`] and [`Group::commit`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.alone(|group| group.remove_xattr(path, name))
    }

    /// See [`Group::xattr`].
    ///
    /// # Errors
    /// Those of [`Group::xattr`].
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        self.begin().xattr(path, name)
    }

    /// See [`Group::xattrs`].
    ///
    /// # Errors
    /// Those of [`Group::xattrs`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        self.begin().xattrs(path)
    }

    /// See [`Group::metadata`].
    ///
    /// # Errors
    /// Those of [`Group::metadata`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.begin().metadata(path)
    }

    /// See [`Group::read_link`].
    ///
    /// # Errors
    /// Those of [`Group::read_link`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.begin().read_link(path)
    }

    /// See [`Group::read_dir`].
    ///
    /// # Errors
    /// Those of [`Group::read_dir`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        self.begin().read_dir(path)
    }
}
