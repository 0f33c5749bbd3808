//! The calls of stores and groups.

use std::path::Path;

use super::super::parked::Mismatch;
use super::super::running::At;
use super::super::table::store_path;
use super::super::vfs::single;
use super::super::{Group, Store, StoreVfs};
use crate::error::{Error, Result};
use crate::vfs::{GroupId, Ino};

impl Store {
    /// Makes the *layer*: an empty directory at [`LAYER`](crate::LAYER) below the store's directory, of mode 0700, in place of any that is there. What is made
    /// in it, by whatever program and calls, groups can [adopt](Group::adopt). Nothing in it is durable, and all that is not adopted goes when the store is
    /// closed or removed, or opened again.
    ///
    /// # Errors
    /// Of the host file system: where something of an earlier layer cannot be removed (a mount lies in it), or there is no space.
    ///
    /// # Example
    /// ```no_run
    /// # fn main() -> wholly::Result<()> {
    /// let dir = std::path::Path::new("/srv/app");
    /// let store = wholly::Store::open(dir)?;
    /// store.make_layer()?;
    /// let made = std::path::Path::new(wholly::LAYER).join("release");
    /// std::process::Command::new("tar").args(["-xf", "release.tar", "-C"]).arg(dir.join(wholly::LAYER)).status().unwrap();
    /// let mut group = store.begin();
    /// group.adopt(&made, "releases/7")?; // however many files it has
    /// group.unlink("current")?;
    /// group.symlink("releases/7", "current")?;
    /// group.commit()?; // the release is there, and current; or neither
    /// # Ok(())
    /// # }
    /// ```
    pub fn make_layer(&self) -> Result<()> {
        self.used(|inner| inner.make_layer())
    }

    /// Removes the layer with all that is in it, where there is one.
    ///
    /// # Errors
    /// Of the host file system: then a part of it may be left.
    pub fn remove_layer(&self) -> Result<()> {
        self.used(|inner| inner.remove_layer())
    }
}

impl Group<'_> {
    /// Gives what lies at `from` the name `to`, which nothing may have: a directory with all that is in it, or anything else. `from` is a path relative to
    /// the store's directory, in its [layer](Store::make_layer), and nobody may write to what is there from now on. It has the owner, mode, times and
    /// attributes that it was made with.
    ///
    /// The group's commit makes it durable with all that is in it, and costs a sync of the file system where it is more than a few files; no byte of it
    /// goes through the log, and a checkpoint takes it home by one rename. Where the group does not commit, it lies at `from` again. Such a group can be neither
    /// looked at ([`review`](Group::review)) nor parked.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `from` is not in the layer; [`Error::NotFound`], [`Error::Exists`]; [`Error::Busy`] where it is a hard link of a file that the
    /// store knows; those of [`rename`](Group::rename).
    pub fn adopt(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let to = store_path(to.as_ref())?;
        let from = from.as_ref().as_os_str().as_bytes();
        self.call_by_name(|running| running.adopt(from, At::Path(&to)))
    }
}

/// The same for groups whose calls go through a view of the store.
impl StoreVfs {
    /// Gives what lies at the path `from`, in the store's layer, the name `name` in a directory: see [`Group::adopt`].
    ///
    /// # Errors
    /// Those of [`Group::adopt`]; [`Error::Invalid`] where no such group runs.
    pub fn adopt(&self, group: GroupId, dir: Ino, name: &[u8], from: &[u8]) -> Result<()> {
        let dir = self.object_of(dir)?;
        single(dir, name).map_err(|errno| Error::Refused(String::from_utf8_lossy(name).into(), errno))?;
        self.change_group(group, |running| running.adopt(from, At::In(dir, name)))
    }

    /// Tells when the last of the group's changes of names in a directory was made, in ns since 1970, where that was before the group's calls: the
    /// directory's time of change, as if the calls had been made then. Nothing where the group has changed no names in it.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no such group runs.
    pub fn names_changed_at(&self, group: GroupId, dir: Ino, ns: i64) -> Result<()> {
        let id = self.object_of(dir)?;
        self.change_group(group, |running| running.names_changed_at(id, ns))
    }

    /// Notes that a program which bypasses the store has changed something since whoever made the group's changes has seen it, as only he can know: `ino`, or
    /// something in it. From then on the group is [overtaken](Self::overtaken), and where it is parked, it is never applied.
    ///
    /// # Errors
    /// [`Error::Invalid`] where no such group runs.
    pub fn note_overtaken(&self, group: GroupId, ino: Ino, mismatch: Mismatch) -> Result<()> {
        let id = self.object_of(ino)?;
        self.change_group(group, |running| running.note_overtaken(id, mismatch))
    }
}
