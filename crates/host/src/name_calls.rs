//! The calls on a host directory's names and attributes.

use crate::HostFile;
use std::sync::Arc;
use wholly_media::{Result, Site};
use wholly_vfs::{DirEntry, Inode, Rename, SetXattr, Stat};

/// A path, and what must be there for a call to be made: whoever owns a directory may exchange what is in it at any
/// time. What is not told is not compared.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// See [`HostFs`](crate::HostFs).
    pub path: &'a [u8],
    /// The directory in which the last part of the path is a name. Nothing else is it, nor is nothing.
    pub dir: Option<Inode>,
    /// What has the name, for calls on attributes and links. Of what is moved, replaced or removed it is not compared:
    /// no call of the host could.
    pub inode: Option<Inode>,
}

impl<'a> From<&'a [u8]> for At<'a> {
    fn from(path: &'a [u8]) -> Self {
        At { path, dir: None, inode: None }
    }
}

/// What a file system itself names an object by (`name_to_handle_at`): inode and generation, mostly. It holds over
/// reboots.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileHandle {
    /// How the file system reads the bytes.
    pub kind: i32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The calls on names and attributes. Paths are those of [`HostFs`](crate::HostFs).
///
/// Those that change something take an [`At`], and fail with `ESTALE`, with nothing changed, where something else is
/// there than it says. Of each there is one that takes a plain path, for places that nobody else can change.
///
/// A symbolic link at the end of a path is meant itself, never what it leads to. Each call changes one name, or two at
/// once (renames); what a crash keeps of that before [`sync_dir`](crate::HostFs::sync_dir) or
/// [`sync_all`](crate::HostFs::sync_all) is the host's to choose (`docs/crash-model.md`). Attributes of a file also
/// survive by its own [`sync`](HostFile::sync).
///
/// New objects have exactly the permission bits that are asked for: neither the umask nor a default ACL takes any. They
/// are made with some of them and get the others by a second change, which a crash may lose.
pub trait HostNames: Send + Sync {
    /// Makes an empty regular file, opened for reading and writing.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken.
    fn create_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<Arc<dyn HostFile>>;

    /// Makes a directory.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken.
    fn mkdir_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<()>;

    /// Makes a FIFO, a socket, a device or an empty regular file: `mode` has type and permission bits, `rdev` the
    /// device's number as in `st_rdev`.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken; `EPERM` for devices, without the capability.
    fn mknod_at(&self, site: Site, at: At<'_>, mode: u32, rdev: u64) -> Result<()>;

    /// Makes a symbolic link that holds `target`.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken; `ENOENT` for an empty target.
    fn symlink_at(&self, site: Site, target: &[u8], at: At<'_>) -> Result<()>;

    /// Gives what has the name `from` the name `to` as well: the inode that `from` tells, or nothing.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken; `EPERM` for a directory.
    fn hard_link_at(&self, site: Site, from: At<'_>, to: At<'_>) -> Result<()>;

    /// Moves a name. Where both are names of one object already, nothing happens.
    ///
    /// # Errors
    /// Those of `renameat2(2)`.
    fn rename_at(&self, site: Site, from: At<'_>, to: At<'_>, how: Rename) -> Result<()>;

    /// Takes a name from what is no directory. Without a name and a descriptor it is gone.
    ///
    /// # Errors
    /// `EISDIR` for a directory.
    fn unlink_at(&self, site: Site, at: At<'_>) -> Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY`.
    fn rmdir_at(&self, site: Site, at: At<'_>) -> Result<()>;

    /// [`HostFs::stat`](crate::HostFs::stat) of what has a name in this directory.
    fn stat_at(&self, at: At<'_>) -> Result<Stat>;

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// `EINVAL` for anything else.
    fn read_link(&self, path: &[u8]) -> Result<Vec<u8>>;

    /// The names in a directory without `.` and `..`, in the host's order.
    fn read_dir(&self, path: &[u8]) -> Result<Vec<DirEntry>>;

    /// Calls `look` with the name and the attributes of everything in a directory, as long as it returns `true`.
    fn stat_all(&self, path: &[u8], look: &mut dyn FnMut(&[u8], &Stat) -> bool) -> Result<()>;

    /// Sets the permission bits, set-id bits included.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a symbolic link.
    fn set_mode_at(&self, site: Site, at: At<'_>, mode: u32) -> Result<()>;

    /// Sets owner and group, as far as they are given. The host clears set-id bits of files as it does for a user.
    fn set_owner_at(&self, site: Site, at: At<'_>, uid: Option<u32>, gid: Option<u32>) -> Result<()>;

    /// Sets the times of the last access and the last change of content, in ns since the epoch, as far as they are
    /// given.
    fn set_times_at(&self, site: Site, at: At<'_>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()>;

    /// The value of an extended attribute, `None` where there is no such attribute.
    fn get_xattr(&self, path: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The names of all extended attributes that the calling user may see, in no order.
    fn list_xattrs(&self, path: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Sets an extended attribute; ACLs are some too (`system.posix_acl_access`).
    ///
    /// # Errors
    /// `EEXIST`, `ENODATA` by `how`; `EOPNOTSUPP` where the file system has none of the kind, `EPERM` where such an
    /// object has none.
    fn set_xattr_at(&self, site: Site, at: At<'_>, name: &[u8], value: &[u8], how: SetXattr) -> Result<()>;

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` where it is not there.
    fn remove_xattr_at(&self, site: Site, at: At<'_>, name: &[u8]) -> Result<()>;

    /// The file handle, `None` where the file system has none.
    fn handle(&self, path: &[u8]) -> Result<Option<FileHandle>>;

    /// [`create_at`](Self::create_at) a plain path.
    fn create(&self, site: Site, path: &[u8], mode: u32) -> Result<Arc<dyn HostFile>> {
        self.create_at(site, path.into(), mode)
    }

    /// [`mkdir_at`](Self::mkdir_at) a plain path.
    fn mkdir(&self, site: Site, path: &[u8], mode: u32) -> Result<()> {
        self.mkdir_at(site, path.into(), mode)
    }

    /// [`mknod_at`](Self::mknod_at) a plain path.
    fn mknod(&self, site: Site, path: &[u8], mode: u32, rdev: u64) -> Result<()> {
        self.mknod_at(site, path.into(), mode, rdev)
    }

    /// [`symlink_at`](Self::symlink_at) a plain path.
    fn symlink(&self, site: Site, target: &[u8], path: &[u8]) -> Result<()> {
        self.symlink_at(site, target, path.into())
    }

    /// [`hard_link_at`](Self::hard_link_at) a plain path.
    fn hard_link(&self, site: Site, from: &[u8], to: &[u8]) -> Result<()> {
        self.hard_link_at(site, from.into(), to.into())
    }

    /// [`rename_at`](Self::rename_at) a plain path.
    fn rename(&self, site: Site, from: &[u8], to: &[u8], how: Rename) -> Result<()> {
        self.rename_at(site, from.into(), to.into(), how)
    }

    /// [`unlink_at`](Self::unlink_at) a plain path.
    fn unlink(&self, site: Site, path: &[u8]) -> Result<()> {
        self.unlink_at(site, path.into())
    }

    /// [`rmdir_at`](Self::rmdir_at) a plain path.
    fn rmdir(&self, site: Site, path: &[u8]) -> Result<()> {
        self.rmdir_at(site, path.into())
    }

    /// [`set_mode_at`](Self::set_mode_at) a plain path.
    fn set_mode(&self, site: Site, path: &[u8], mode: u32) -> Result<()> {
        self.set_mode_at(site, path.into(), mode)
    }

    /// [`set_owner_at`](Self::set_owner_at) a plain path.
    fn set_owner(&self, site: Site, path: &[u8], uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set_owner_at(site, path.into(), uid, gid)
    }

    /// [`set_times_at`](Self::set_times_at) a plain path.
    fn set_times(&self, site: Site, path: &[u8], atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        self.set_times_at(site, path.into(), atime_ns, mtime_ns)
    }

    /// [`set_xattr_at`](Self::set_xattr_at) a plain path.
    fn set_xattr(&self, site: Site, path: &[u8], name: &[u8], value: &[u8], how: SetXattr) -> Result<()> {
        self.set_xattr_at(site, path.into(), name, value, how)
    }

    /// [`remove_xattr_at`](Self::remove_xattr_at) a plain path.
    fn remove_xattr(&self, site: Site, path: &[u8], name: &[u8]) -> Result<()> {
        self.remove_xattr_at(site, path.into(), name)
    }
}
