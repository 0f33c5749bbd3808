//! A group's calls on names.

use std::path::Path;

use wholly_vfs::{DirEntry, Rename, Stat};

use super::Group;
use crate::error::Result;
use crate::hostdir::table::{store_path, store_path_or_root};

/// Names. Paths are relative to the store's directory. Symbolic links in a path are followed while they stay inside; a
/// symbolic link at the end is not followed. Only the group sees what these calls do before it commits; others then see
/// all of it at once. A call claims what it touches until the group ends: other groups get
/// [`Error::Busy`](crate::Error::Busy). Errors of the system call of the same name are returned as
/// [`Error::Refused`](crate::Error::Refused), except those that have a kind of their own.
impl Group<'_> {
    /// Makes a directory with exactly the permission bits `mode`, whatever the umask.
    ///
    /// # Errors
    /// Those of `mkdir`.
    pub fn mkdir(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| running.mkdir(&path, mode))
    }

    /// Makes a FIFO, a socket, a device or an empty regular file, by the type bits of `mode` (none: a regular file),
    /// with exactly its permission bits, whatever the umask. `rdev` is the number of a device, as in `st_rdev`.
    ///
    /// # Errors
    /// Those of `mknod`.
    pub fn mknod(&mut self, path: impl AsRef<Path>, mode: u32, rdev: u64) -> Result<()> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| running.mknod(&path, mode, rdev))
    }

    /// Makes a symbolic link at `path` that holds `target`, which need not exist.
    ///
    /// # Errors
    /// Those of `symlink`.
    pub fn symlink(&mut self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let path = store_path(path.as_ref())?;
        let target = target.as_ref().as_os_str().as_bytes();
        self.call_by_name(|running| running.symlink(target, &path))
    }

    /// Gives the object at `from` the name `to` as well. If `from` is a symbolic link, the link itself gets the name.
    ///
    /// # Errors
    /// Those of `link`.
    pub fn link(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (store_path(from.as_ref())?, store_path(to.as_ref())?);
        self.call_by_name(|running| running.link(&from, &to))
    }

    /// Removes a name of an object that is not a directory. A file is removed with its last name; it stays usable for
    /// programs and groups that have it open.
    ///
    /// # Errors
    /// Those of `unlink`.
    pub fn unlink(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| running.unlink(path.as_slice()))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `rmdir`.
    pub fn rmdir(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| running.rmdir(path.as_slice()))
    }

    /// Removes a directory with everything in it, at the cost of a look at each object. Returns whether it did that; if
    /// not, nothing has changed, and the directory can be emptied by other calls.
    ///
    /// It is not done where the store does not write groups back at once ([`Options::at_once`](crate::Options)), and
    /// where something in the directory has another name as well, is open, was changed by the group or just now by
    /// anybody, or may not be removed by the user. A group that has done it can be neither [reviewed](Self::review) nor
    /// parked, nor committed together with others.
    ///
    /// # Errors
    /// - Those of `rmdir`, but for `ENOTEMPTY`.
    /// - [`Error::Busy`](crate::Error::Busy): another group has changed something in it.
    ///
    /// The commit fails, with nothing changed: with [`Error::Conflict`](crate::Error::Conflict) if another program
    /// changes something in the directory meanwhile, with [`Error::Busy`](crate::Error::Busy) if a file in it has been
    /// opened through the store. A program that has the directory open can still write there after the commit. What it
    /// writes then is lost, or kept with the undo, as with a file that is removed.
    ///
    /// # Example
    /// ```no_run
    /// # fn main() -> wholly::Result<()> {
    /// let options = wholly::Options { at_once: true, ..Default::default() };
    /// let store = wholly::Store::open_or_create_with("/srv/app", options, Default::default())?;
    /// let mut group = store.begin();
    /// if !group.remove_tree("releases/6")? {
    ///     eprintln!("something in releases/6 is in use");
    /// }
    /// group.commit()?; // however many files it has, it is gone; or it is as it was
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_tree(&mut self, path: impl AsRef<Path>) -> Result<bool> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| running.remove_tree(path.as_slice(), i64::MAX))
    }

    /// Renames the object at `from` to `to`. `how` says what happens to an object that has the name `to`: it is
    /// replaced, makes the call fail, or gets the name `from`.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub fn rename(&mut self, from: impl AsRef<Path>, to: impl AsRef<Path>, how: Rename) -> Result<()> {
        let (from, to) = (store_path(from.as_ref())?, store_path(to.as_ref())?);
        self.call_by_name(|running| running.rename(from.as_slice(), to.as_slice(), how))
    }

    /// Returns the attributes of the object at `path`, as the group sees it. A symbolic link at the end is not
    /// followed. `.` is the store's directory.
    ///
    /// # Errors
    /// Those of `lstat`.
    pub fn metadata(&mut self, path: impl AsRef<Path>) -> Result<Stat> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.metadata(&path))
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Those of `readlink`.
    pub fn read_link(&mut self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = store_path(path.as_ref())?;
        self.call_by_name(|running| running.read_link(&path))
    }

    /// Returns the entries of a directory, as the group sees it, in no particular order, without `.` and `..`. Here a
    /// symbolic link at the end of the path is followed. The path `.` is the store's directory.
    ///
    /// # Errors
    /// Those of `open` and `getdents`.
    pub fn read_dir(&mut self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.read_dir(&path))
    }
}
