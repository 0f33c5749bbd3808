//! The one trait by which every interface speaks to a store or a volume.
//!
//! # Terms
//!
//! - *context*: on whose behalf a call is made, and the explicit group it belongs to, if any ([`Context`]).
//! - *name operation*: a call that changes names or attributes. *Data operation*: one that changes the bytes or the size of a regular file.
//! - *reference*: somebody's interest in an inode; see below.
//!
//! # What a call of an interface means
//!
//! What Linux does is right: results, error numbers, permissions, times and limits are those that its own file systems give, and the crate
//! `wholly-posix` says which those are, case by case. Beyond them every call may fail with
//!
//! - `EBUSY` where an explicit group has what the call would change;
//! - `EIO` where the store or volume is poisoned, `EUCLEAN` where media are corrupt, `ESTALE` at a conflict with a bystander;
//! - `ENOSPC` and `EDQUOT` where it changes something, `ENOMEM`, and `EINVAL` for a group that does not run;
//! - `EBADF` for a handle that is not open, `ESTALE` for an inode to which nobody refers.
//!
//! # What is durable on return
//!
//! Each call is wholly done or, where it returns an error, not at all; [`Vfs::write`] and its like may do less than asked, and say so.
//!
//! | | name operation | data operation |
//! |---|---|---|
//! | in an explicit group | at its commit | at its commit |
//! | policy `per-op` | on return | on return |
//! | policy `per-sync` | on return, with the pending data of the files that it names | on return of `fsync`, `fdatasync`, `sync`, the last `release` |
//! | policy `shared` | on return of the next `fsync`, `fdatasync`, `fsyncdir`, `sync`, or by the timer | likewise |
//!
//! The kernel's locks, `flock` and those of `fcntl`, are no part of the trait: a mount leaves them to the kernel, the other interfaces to
//! the files that they stand for.
//!
//! | file | idea |
//! |---|---|
//! | `types.rs` | what the calls take and give |
//! | `resolve.rs` | from a path to an inode |
//! | `paths.rs` | calls by path: what holds at their last part |

mod paths;
mod resolve;
mod types;

pub use paths::Paths;
pub use resolve::{Found, LINKS_MAX, Last, NAME_MAX, PATH_MAX, Parent};
pub use types::{Attr, Context, DirEntry, GroupId, Handle, Ino, Seek, SetAttr, SetTime, StatFs, Timestamp};

pub use rustix::fs::{Access, FallocateFlags, FileType, Mode, OFlags, RenameFlags, XattrFlags};
pub use rustix::io::Errno;

/// What a call gives: an error is the number that a program sees.
pub type Result<T> = std::result::Result<T, Errno>;

/// A store or a volume, by inode and handle. Calls may be made by any number of threads.
///
/// Names are single: without `/` and NUL; `.` and `..` are for [`lookup`](Self::lookup) only. Errors that hold for many calls stand in the
/// module's head and in these words: *searches* a directory is `ENOTDIR` where it is none and `EACCES` where the context may not search it;
/// *changes* a directory is that, and `EACCES` where the context may not write to it, `ENAMETOOLONG` for a name of more than 255 bytes,
/// `EROFS`.
///
/// # References
///
/// Every [`Attr`] that `lookup`, `mknod`, `mkdir`, `symlink`, `link`, `create` and `tmpfile` give is one reference to its inode, which
/// [`forget`](Self::forget) gives back. An inode without a name lives, with its content, until nobody refers to it and no handle is open on
/// it.
pub trait Vfs: Send + Sync {
    /// What `name` names in the directory `dir`; `.` is the directory, `..` the one it is in, and the root's `..` is the root. One
    /// reference.
    ///
    /// # Errors
    /// Searches `dir`; `ENOENT`; `ENAMETOOLONG`.
    fn lookup(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr>;

    /// Gives `references` to `ino` back. It has no context, because the kernel forgets on nobody's behalf.
    fn forget(&self, ino: Ino, references: u64);

    /// What is known of an inode. Needs no permission.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn getattr(&self, ctx: &Context, ino: Ino) -> Result<Attr>;

    /// Changes attributes, all that are given or none, and gives the new ones: `chmod`, `chown`, `truncate`, `utimensat`. A size is a data
    /// operation, all else a name operation. A size that a `handle` open for writing comes with needs no permission (`ftruncate`).
    ///
    /// What is set changes `ctime`, a size `mtime` too, even where it is the same. Who is not the superuser loses: set-group-id on a mode
    /// where he is not in the file's group of users; set-user-id, and set-group-id of what is executable for the group, on a change of
    /// owner (everybody does, of regular files) or size.
    ///
    /// # Errors
    /// `EPERM` for a mode or a given time where the context does not own the inode, and for an owner that it may not give; `EACCES` for a
    /// size or a time of now where it neither owns (a time) nor may write to it; `EISDIR` and `EINVAL` for the size of what is no regular
    /// file; `EFBIG`; `EINVAL` for nanoseconds of a second or more; `EBADF` and `EINVAL` for a handle that is not open for writing;
    /// `EPERM`, `EOPNOTSUPP` for the mode of a symbolic link.
    fn setattr(&self, ctx: &Context, ino: Ino, handle: Option<Handle>, change: &SetAttr) -> Result<Attr>;

    /// Whether the context may do this (`faccessat` with `AT_EACCESS`).
    ///
    /// # Errors
    /// `EACCES` where not; `EROFS`.
    fn access(&self, ctx: &Context, ino: Ino, access: Access) -> Result<()>;

    /// The target of a symbolic link. Raises its `atime`.
    ///
    /// # Errors
    /// `EINVAL` where it is none.
    fn readlink(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>>;

    /// Makes a regular file, FIFO, socket or device without opening it: a name operation, one reference. New inodes belong to the context's
    /// user, and to its group of users or, in a directory with set-group-id, to the directory's; they get `mode` without what the umask
    /// has.
    ///
    /// # Errors
    /// Changes `dir`; `EEXIST`; `ENOENT` where `dir` has been removed; `EPERM` for a directory, and for a device where the context is not
    /// the superuser.
    fn mknod(&self, ctx: &Context, dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr>;

    /// Makes a directory: a name operation, one reference. It gets set-group-id from `dir`.
    ///
    /// # Errors
    /// Those of [`mknod`](Self::mknod); `EMLINK` where `dir` has as many directories as it can.
    fn mkdir(&self, ctx: &Context, dir: Ino, name: &[u8], mode: Mode) -> Result<Attr>;

    /// Makes a symbolic link to `target`, which need not be there: a name operation, one reference.
    ///
    /// # Errors
    /// Those of [`mknod`](Self::mknod); `ENOENT` for an empty target; `ENAMETOOLONG` for one of more than 4095 bytes.
    fn symlink(&self, ctx: &Context, dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr>;

    /// Gives `ino`, which may be a symbolic link, one more name: a name operation, one reference. What `tmpfile` made gets its first so.
    ///
    /// # Errors
    /// Changes `dir`; `EEXIST`; `EPERM` for a directory; `ENOENT` where `ino` has lost its last name, or was made by `tmpfile` with
    /// `EXCL`; `EMLINK`.
    fn link(&self, ctx: &Context, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr>;

    /// Takes a name away from what is no directory: a name operation.
    ///
    /// # Errors
    /// Changes `dir`; `ENOENT`; `EISDIR` for a directory; `EPERM` in a sticky directory where the context owns neither that nor the file.
    fn unlink(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory: a name operation.
    ///
    /// # Errors
    /// Changes `dir`; `ENOENT`; `ENOTDIR`; `ENOTEMPTY`; `EPERM` as [`unlink`](Self::unlink).
    fn rmdir(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()>;

    /// Gives what `name` names in `from` the name `new_name` in `to` instead, which whatever had it loses; with `EXCHANGE` that gets the
    /// old name. A name operation: at no time is either name missing. Does nothing where both are names of one inode.
    ///
    /// # Errors
    /// Changes both directories; `ENOENT`; `EEXIST` with `NOREPLACE` where the name is taken; `EISDIR` for what is no directory onto one,
    /// `ENOTDIR` the other way round; `ENOTEMPTY`; `EINVAL` for a directory into itself or what is in it, and for `NOREPLACE` with
    /// `EXCHANGE`; `ENOTEMPTY` (with `EXCHANGE` `EINVAL`) onto what it is in; `EPERM` as [`unlink`](Self::unlink), for either name;
    /// `EACCES` for a directory that changes its parent and that the context may not write to; `EMLINK`.
    fn rename(&self, ctx: &Context, from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags)
    -> Result<()>;

    /// Opens a regular file. Of `flags` these have a meaning: the access mode, `APPEND`, `TRUNC` (a data operation), `DSYNC`, `SYNC`,
    /// `NOATIME` and `DIRECTORY`. Special files are opened by the kernel, never here.
    ///
    /// # Errors
    /// `EACCES`; `EISDIR` for a directory and writing; `ENOTDIR` with `DIRECTORY`; `ELOOP` for a symbolic link; `ENXIO` for a special file;
    /// `EPERM` for `NOATIME` where the context does not own it.
    fn open(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle>;

    /// Makes a regular file and opens it, however few permissions `mode` has; opens the one that is there, without `EXCL`. A name operation
    /// where it makes one; one reference.
    ///
    /// # Errors
    /// Those of [`mknod`](Self::mknod), `EEXIST` only with `EXCL`; where the name is taken those of [`open`](Self::open): a symbolic link
    /// is not followed.
    fn create(&self, ctx: &Context, dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)>;

    /// Makes a regular file without a name and opens it: one reference. It gets a name by [`link`](Self::link), unless `flags` has `EXCL`,
    /// and is a name operation then; without, it goes with its last handle and reference.
    ///
    /// # Errors
    /// Changes `dir`; `EINVAL` for a handle that cannot write.
    fn tmpfile(&self, ctx: &Context, dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)>;

    /// Reads up to `buf.len()` bytes at `offset`: fewer only where the file ends. Holes are zeros.
    ///
    /// # Errors
    /// `EBADF` where the handle is not open for reading; `EINVAL` where the range leaves 2^63 bytes.
    fn read(&self, ctx: &Context, handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes `data` at `offset`, or at the end of the file where the handle was opened with `APPEND`: a data operation. Gives how many
    /// bytes were written: fewer only at the largest size of a file, or where space ends. With `DSYNC` or `SYNC`, as if followed by a sync.
    ///
    /// Changes `mtime` and `ctime`; set-user-id, and set-group-id of what is executable for the group, go unless the context is the
    /// superuser. Nothing happens where `data` is empty.
    ///
    /// # Errors
    /// `EBADF` where the handle is not open for writing; `EFBIG`; `EINVAL` where the range leaves 2^63 bytes.
    fn write(&self, ctx: &Context, handle: Handle, offset: u64, data: &[u8]) -> Result<usize>;

    /// Writes `data` at the end of the file, whatever the handle was opened with: nobody else's bytes come between the end and these. Gives
    /// the offset at which they stand, and how many were written. Else as [`write`](Self::write).
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    fn append(&self, ctx: &Context, handle: Handle, data: &[u8]) -> Result<(u64, usize)>;

    /// Copies up to `len` bytes from one open file to another or itself, perhaps without moving them: a data operation. Gives how many
    /// were copied: 0 at the end of the source.
    ///
    /// # Errors
    /// `EBADF` where the first is not open for reading, the second not for writing, or that appends; `EINVAL` where they are one file and
    /// the ranges overlap; `EOVERFLOW`; `EFBIG`.
    fn copy_file_range(
        &self,
        ctx: &Context,
        from: Handle,
        from_offset: u64,
        to: Handle,
        to_offset: u64,
        len: usize,
    ) -> Result<usize>;

    /// Reserves space for a range, or with `PUNCH_HOLE`, `ZERO_RANGE`, `COLLAPSE_RANGE`, `INSERT_RANGE` makes it a hole, zeros, nothing, or
    /// moves what is behind it away: a data operation. With `KEEP_SIZE` the file does not grow.
    ///
    /// # Errors
    /// `EBADF` where the handle is not open for writing; `EINVAL` for an empty range; `EFBIG`; `EOPNOTSUPP` for a mode that is not offered,
    /// and `PUNCH_HOLE` without `KEEP_SIZE`.
    fn fallocate(&self, ctx: &Context, handle: Handle, mode: FallocateFlags, offset: u64, len: u64) -> Result<()>;

    /// Where data or a hole begins.
    ///
    /// # Errors
    /// `ENXIO` at or behind the end of the file, and for data where only a hole follows.
    fn seek(&self, ctx: &Context, handle: Handle, seek: Seek) -> Result<u64>;

    /// Makes the file's data and attributes durable, and with them all that came before them in commit order.
    ///
    /// # Errors
    /// `EIO` where they are not: then the store or volume is poisoned.
    fn fsync(&self, ctx: &Context, handle: Handle) -> Result<()>;

    /// As [`fsync`](Self::fsync), but for times: makes durable what it takes to read the data.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync).
    fn fdatasync(&self, ctx: &Context, handle: Handle) -> Result<()>;

    /// Closes a file: the handle means nothing from here on, error or not.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync), where the policy commits at the last close.
    fn release(&self, ctx: &Context, handle: Handle) -> Result<()>;

    /// Opens a directory for reading.
    ///
    /// # Errors
    /// `ENOTDIR`; `EACCES`.
    fn opendir(&self, ctx: &Context, dir: Ino) -> Result<Handle>;

    /// Calls `each` with the names of a directory, `.` and `..` among them, from `offset` on, 0 or a `next` that the handle gave, until it
    /// gives `false` (then that name was not taken: it comes again) or there are no more. A name that is there all the while comes once
    /// from the first call to the last, whatever others come and go.
    ///
    /// # Errors
    /// `ENOENT` where the directory has been removed.
    fn readdir(
        &self,
        ctx: &Context,
        handle: Handle,
        offset: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync).
    fn fsyncdir(&self, ctx: &Context, handle: Handle) -> Result<()>;

    /// Closes a directory.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn releasedir(&self, ctx: &Context, handle: Handle) -> Result<()>;

    /// Sets an extended attribute: a name operation. `user.*` take the permissions of the content, `trusted.*` the superuser, `system.*`
    /// (ACLs) and `security.*` the owner or the superuser.
    ///
    /// # Errors
    /// `EEXIST` with `CREATE`, `ENODATA` with `REPLACE`; `ERANGE` for an empty name or one of more than 255 bytes; `E2BIG` for a value of
    /// more than 65536; `EOPNOTSUPP` for another namespace; `EPERM` for `user.*` of what is neither regular file nor directory, and of a
    /// sticky directory that somebody else owns; `EACCES`.
    fn setxattr(&self, ctx: &Context, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()>;

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, also for what the context must not see; else those of [`setxattr`](Self::setxattr).
    fn getxattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// The names of the extended attributes that the context may see, each with a NUL behind it.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn listxattr(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>>;

    /// Removes an extended attribute: a name operation.
    ///
    /// # Errors
    /// `ENODATA`; else those of [`setxattr`](Self::setxattr).
    fn removexattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<()>;

    /// Space and inodes.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn statfs(&self, ctx: &Context, ino: Ino) -> Result<StatFs>;

    /// Makes all calls so far that are in no explicit group durable.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync).
    fn sync(&self, ctx: &Context) -> Result<()>;

    /// Begins an explicit group, for calls whose contexts name it.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where there are none.
    fn begin_group(&self) -> Result<GroupId> {
        Err(Errno::OPNOTSUPP)
    }

    /// Makes an open file the group's own now rather than at its first change.
    ///
    /// # Errors
    /// `EBADF` where the handle is not open for writing.
    fn add_to_group(&self, group: GroupId, handle: Handle) -> Result<()> {
        let _ = (group, handle);
        Err(Errno::OPNOTSUPP)
    }

    /// Commits a group, which is durable on return. It has ended then, also after an error.
    ///
    /// # Errors
    /// `EIO` where nobody knows whether it survives; after any other it is undone.
    fn commit_group(&self, group: GroupId) -> Result<()> {
        let _ = group;
        Err(Errno::OPNOTSUPP)
    }

    /// Undoes a group.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn abort_group(&self, group: GroupId) -> Result<()> {
        let _ = group;
        Err(Errno::OPNOTSUPP)
    }
}
