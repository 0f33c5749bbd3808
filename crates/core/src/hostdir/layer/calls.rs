//! The calls of stores and groups.

use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::OFlags;

use super::super::parked::Mismatch;
use super::super::running::At;
use super::super::table::store_path;
use super::super::vfs::single;
use super::super::{File, Group, Store, StoreVfs};
use super::{FOLDER, LAYER};
use crate::error::{Error, Result};
use wholly_host::host_error;
use wholly_vfs::{GroupId, Handle, Ino};

impl Store {
    /// Makes the *layer*: an empty directory of mode 0700 at [`LAYER`](crate::LAYER), in place of an earlier one. Any
    /// program can make files there by ordinary calls, and groups can [import](Group::import) them. Nothing in the
    /// layer is durable. What is not imported is removed when the store is closed or removed, and when it is opened
    /// again.
    ///
    /// # Errors
    /// Errors of the host file system: something of an earlier layer cannot be removed (a mount lies in it), or there
    /// is no space.
    ///
    /// # Example
    /// ```no_run
    /// # fn main() -> wholly::Result<()> {
    /// let dir = std::path::Path::new("/srv/app");
    /// let store = wholly::Store::open(dir)?;
    /// store.make_layer()?;
    /// let layer = std::path::Path::new(wholly::LAYER);
    /// std::process::Command::new("tar").args(["-xf", "release.tar", "-C"]).arg(dir.join(layer)).status().unwrap();
    /// let mut group = store.begin();
    /// group.import(&layer.join("release"), "releases/7")?; // however many files it has
    /// group.unlink("current")?;
    /// group.symlink("releases/7", "current")?;
    /// group.commit()?; // the release is there, and current; or neither
    /// # Ok(())
    /// # }
    /// ```
    pub fn make_layer(&self) -> Result<()> {
        self.used(|inner| inner.make_layer())
    }

    /// Opens the layer (`O_PATH`). The owner of the store's directory can exchange `.wholly` for another folder; calls
    /// on paths below this descriptor stay in the layer.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no layer; errors of the host file system.
    pub fn open_layer(&self) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let none = || Error::NotFound(LAYER.into());
        self.used(|inner| {
            let dir = inner.dir().ok_or_else(none)?;
            dir.open_fd(FOLDER, flags).map_err(|error| host_error(error, FOLDER))
        })
    }

    /// Removes the layer with everything in it, if there is one.
    ///
    /// # Errors
    /// Errors of the host file system. A part of the layer may then be left.
    pub fn remove_layer(&self) -> Result<()> {
        self.used(|inner| inner.remove_layer())
    }
}

impl Group<'_> {
    /// Imports the object at `from`, a directory with everything in it or any other object: gives it the name `to`,
    /// which must be free. `from` is a path relative to the store's directory, in its [layer](Store::make_layer). No
    /// program may write to the object from now on. It keeps its owner, mode, times and attributes.
    ///
    /// The group's commit makes the object durable with everything in it. That costs a sync of the file system if it is
    /// more than a few files. None of its bytes go through the log, and a checkpoint writes it back by one rename. If
    /// the group does not commit, the object lies at `from` again. A group that has imported something can be neither
    /// [reviewed](Group::review) nor parked.
    ///
    /// # Errors
    /// - [`Error::Invalid`]: `from` is not in the layer.
    /// - [`Error::NotFound`], [`Error::Exists`].
    /// - [`Error::Busy`]: it is a hard link of a file that the store knows.
    /// - Those of [`rename`](Group::rename).
    pub fn import(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let to = store_path(to.as_ref())?;
        let from = from.as_ref().as_os_str().as_bytes();
        self.call_by_name(|running| running.adopt(from, At::Path(&to)))
    }

    /// Gives a file that the group has made, and to which it has written nothing, the bytes of the regular file at
    /// `from`, a path in the store's [layer](Store::make_layer): none is copied, and nothing is at `from` any more. No
    /// program may write to it from now on. All else is as if the group had written the bytes: owner, mode and times
    /// are those that the group gives the file. `from` should have no flags (`chattr`), and no other extended
    /// attributes than the group gives it.
    ///
    /// Returns whether it did that. If not, nothing has changed: `from` is no regular file, has other names, or cannot
    /// be moved.
    ///
    /// # Errors
    /// [`Error::Invalid`]: `from` is not in the layer, or the file is not new and empty. [`Error::NotFound`]; errors of
    /// the host file system.
    pub fn import_content(&mut self, from: impl AsRef<Path>, file: &File) -> Result<bool> {
        use std::os::unix::ffi::OsStrExt;
        let from = from.as_ref().as_os_str().as_bytes();
        self.call_by_name(|running| running.stage_from(file.inner(&running.store)?, from))
    }
}

/// Import of files, and removal of directories, for groups whose calls go through a [`StoreVfs`].
impl StoreVfs {
    /// Imports the object at the path `from`, in the store's layer, as `name` in the directory `dir`: see
    /// [`Group::import`].
    ///
    /// # Errors
    /// Those of [`Group::import`]; [`Error::Invalid`] if there is no such running group.
    pub fn import(&self, group: GroupId, dir: Ino, name: &[u8], from: &[u8]) -> Result<()> {
        let dir = self.object_of(dir)?;
        single(dir, name).map_err(|errno| Error::Refused(String::from_utf8_lossy(name).into(), errno))?;
        self.change_group(group, |running| running.adopt(from, At::In(dir, name)))
    }

    /// Removes the directory `name` in `dir` with everything in it, unless something in it has been changed after
    /// `since_ns`, in nanoseconds since 1970: see [`Group::remove_tree`].
    ///
    /// # Errors
    /// Those of [`Group::remove_tree`]; [`Error::Invalid`] if there is no such running group.
    pub fn remove_tree(&self, group: GroupId, dir: Ino, name: &[u8], since_ns: i64) -> Result<bool> {
        let dir = self.object_of(dir)?;
        single(dir, name).map_err(|errno| Error::Refused(String::from_utf8_lossy(name).into(), errno))?;
        self.change_group(group, |running| running.remove_tree(At::In(dir, name), since_ns))
    }

    /// Gives a new file the bytes of one in the store's layer: see [`Group::import_content`].
    ///
    /// # Errors
    /// Those of [`Group::import_content`]; [`Error::Invalid`] if there is no such running group.
    pub fn import_content(&self, group: GroupId, file: &Handle, from: &[u8]) -> Result<bool> {
        let file = self.file_of(file)?;
        self.change_group(group, |running| running.stage_from(&file, from))
    }

    /// The calls from here on belong to one piece of work, on a few objects, if it `begins`: the group looks once at
    /// what the host has of each, until this is called again. What others change meanwhile counts as changed later.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such running group.
    pub fn look_once(&self, group: GroupId, begins: bool) -> Result<()> {
        self.change_group(group, |running| {
            running.glance(begins);
            Ok(())
        })
    }

    /// Sets the time of change of the directory `dir` to `ns`, in nanoseconds since 1970, if the group has changed
    /// names in it; else does nothing. For calls that repeat earlier changes of another program: the directory gets the
    /// time of the last of these.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such running group.
    pub fn names_changed_at(&self, group: GroupId, dir: Ino, ns: i64) -> Result<()> {
        let id = self.object_of(dir)?;
        self.change_group(group, |running| running.names_changed_at(id, ns))
    }

    /// Records for a group that another program has changed `ino`, or something in it. For changes that the store
    /// cannot see, because the caller saw the object earlier than the group did.
    /// [`changed_meanwhile`](Self::changed_meanwhile) lists `mismatch` from now on; if the group is parked, it can
    /// never be applied.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such running group.
    pub fn note_overtaken(&self, group: GroupId, ino: Ino, mismatch: Mismatch) -> Result<()> {
        let id = self.object_of(ino)?;
        self.change_group(group, |running| running.note_overtaken(id, mismatch))
    }
}
