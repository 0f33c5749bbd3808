//! A group's calls on attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wholly_vfs::SetXattr;

use super::Group;
use crate::error::Result;
use crate::hostdir::table::store_path_or_root;

/// Attributes. A symbolic link at the end of a path is not followed; `.` is the store's directory. Only the group sees
/// what it sets before it commits. If it sets an attribute of an object, it claims all attributes of the object until
/// it ends; of a regular file also the content; of a directory not the names in it.
///
/// What a group changes gets the time of its last change as the time of the last change of content, to 10 ms. For a
/// directory that is the last change of its names.
impl Group<'_> {
    /// Sets the permission bits, including set-user-id, set-group-id and sticky.
    ///
    /// # Errors
    /// Those of `chmod`; `EOPNOTSUPP` for a symbolic link.
    pub fn set_mode(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.set_mode(&path, mode))
    }

    /// Sets the owner and the group of users, each if it is given. A regular file loses its set-user-id and
    /// set-group-id bits and its capabilities.
    ///
    /// # Errors
    /// Those of `lchown`.
    pub fn set_owner(&mut self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.set_owner(&path, uid, gid))
    }

    /// Sets the times of the last access and of the last change of content, each if it is given, in nanoseconds since
    /// 1970.
    ///
    /// # Errors
    /// Those of `utimensat`.
    pub fn set_times(&mut self, path: impl AsRef<Path>, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.set_times(&path, atime_ns, mtime_ns))
    }

    /// Sets an extended attribute of the kinds `user`, `trusted` or `security`, or an ACL (`system.posix_acl_access`
    /// and `system.posix_acl_default`). `how` says whether the attribute may exist already. A value has at most 65,536
    /// bytes.
    ///
    /// # Errors
    /// Those of `lsetxattr`: `EEXIST` and `ENODATA`, depending on `how`; `EOPNOTSUPP` for other kinds, and if the file
    /// system has no such attributes.
    pub fn set_xattr(
        &mut self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.set_xattr(path.as_slice().into(), name.as_ref().as_bytes(), value, how))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of `lremovexattr`: `ENODATA` if there is none of this name.
    pub fn remove_xattr(&mut self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.remove_xattr(path.as_slice().into(), name.as_ref().as_bytes()))
    }

    /// Returns the value of an extended attribute, as the group sees it; `None` if there is none of this name.
    ///
    /// # Errors
    /// Those of `lgetxattr`.
    pub fn xattr(&mut self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.xattr(path.as_slice().into(), name.as_ref().as_bytes()))
    }

    /// Returns the names of all extended attributes that the process may see, sorted, as the group sees them.
    ///
    /// # Errors
    /// Those of `llistxattr`.
    pub fn xattrs(&mut self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let path = store_path_or_root(path.as_ref())?;
        self.call_by_name(|running| running.xattrs(path.as_slice().into()))
    }
}
