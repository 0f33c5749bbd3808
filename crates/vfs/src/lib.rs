//! The traits through which every interface uses a store or a volume, and what both share.
//!
//! # Terms
//!
//! - *context*: the user for whom a call is made, and the explicit group that it belongs to, if any ([`Context`]).
//! - *name operation*: a call that changes names or attributes. *Data operation*: one that changes the bytes or the
//!   size of a regular file.
//! - *reference*: a count that keeps an inode usable; see [`Vfs`](Vfs#references).
//!
//! # Results and errors
//!
//! Calls do what Linux does: results, error numbers, permissions, times and limits are those of its own file systems.
//! The crate `wholly-posix` lists them case by case. In addition, every call may fail with
//!
//! - `EBUSY`: an explicit group has claimed what the call would change.
//! - `EIO`: the store or volume is poisoned. `EUCLEAN`: media are corrupt. `ESTALE`: another program changed what the
//!   log has updates for.
//! - `ENOSPC` and `EDQUOT` for calls that change something; `ENOMEM`; `EINVAL` for a group that does not run.
//! - `EBADF` for a handle that is not open; `ESTALE` for an inode without references.
//!
//! # What is durable on return
//!
//! Each call is done completely; if it returns an error, it has done nothing. [`Vfs::write`] and similar calls may do
//! less than asked, and return how much.
//!
//! | | name operation | data operation |
//! |---|---|---|
//! | in an explicit group | at its commit | at its commit |
//! | policy `per-op` | on return | on return |
//! | policy `per-sync` | on return, with the pending data of the files that it names | on return of `fsync`, `fdatasync`, `sync`, the last `release` |
//! | policy `shared` | on return of the next `fsync`, `fdatasync`, `fsyncdir`, `sync`, or by the timer | likewise |
//!
//! The kernel's locks, `flock` and those of `fcntl`, are not part of the trait: a mount leaves them to the kernel,
//! other interfaces to the ordinary files.
//!
//! | file | idea |
//! |---|---|
//! | `types.rs` | arguments and results of the calls |
//! | `how.rs` | their flags, in words |
//! | `groups.rs` | explicit groups |
//! | `calls.rs`, `file.rs`, `group.rs` | calls by path for programs, on open files and in groups |
//! | `across_forks.rs` | what these ask of a store or volume after `fork` |
//! | `follow.rs` | from a path to an object, through symbolic links |
//! | `resolve.rs` | the same, from inode to inode |
//! | `pass_on.rs` | the trait over another implementation |
//! | `paths.rs` | calls by path: the rules for the last part of a path |
//! | `policy.rs` | which calls outside of explicit groups are committed together |
//! | `rules/` | rules of Linux that a store and a volume share |
//! | `stat.rs` | objects of an ordinary directory |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod across_forks;
mod calls;
mod file;
pub mod follow;
mod group;
pub mod groups;
mod handles;
mod how;
mod pass_on;
mod paths;
mod policy;
mod resolve;
pub mod rules;
mod stat;
mod types;

pub use across_forks::{AcrossForks, begun_before_fork};
pub use calls::Calls;
pub use file::File;
pub use group::Group;
pub use groups::{Committed, Groups, Seen, Ticket};
pub use handles::{Handle, Handles};
pub use how::{Fallocate, Rename, SetXattr};
pub use paths::Paths;
pub use policy::Policy;
pub use resolve::{Found, Last, NAME_MAX, PATH_MAX, Parent};
pub use stat::{DirEntry, Inode, Stat};
pub use types::{Attr, Context, GroupId, Ino, Listed, Pending, Seek, SetAttr, SetTime, StatFs, Timestamp};

pub use rustix::fs::{Access, FileType, Mode, OFlags};
pub use rustix::io::Errno;

/// The result of a call; an error is the number that a program gets.
pub type Result<T> = std::result::Result<T, Errno>;

/// A store or a volume, by inode and handle. Any number of threads may make calls at the same time.
///
/// A name is one part of a path, without `/` and NUL; `.` and `..` are allowed in [`lookup`](Self::lookup) only. The
/// module's head lists errors that every call may return. Two words below stand for more of them:
///
/// - *searches* a directory: `ENOTDIR` if it is not a directory, `EACCES` if the context may not search it.
/// - *changes* a directory: the same, and `EACCES` if the context may not write to it, `ENAMETOOLONG` for a name of
///   more than 255 bytes, `EROFS`.
///
/// # References
///
/// Every [`Attr`] that `lookup`, `mknod`, `mkdir`, `symlink`, `link`, `create` and `tmpfile` return is one reference to
/// its inode. [`forget`](Self::forget) gives it back. An inode without a name stays usable, with its content, until it
/// has no references and no open handles.
pub trait Vfs: Send + Sync {
    /// Returns the object with the name `name` in the directory `dir`. `.` is the directory itself, `..` its parent;
    /// the parent of the root is the root. One reference.
    ///
    /// # Errors
    /// Searches `dir`; `ENOENT`; `ENAMETOOLONG`.
    fn lookup(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<Attr>;

    /// Gives back `references` references to `ino`. It has no context, because the kernel forgets for no user in
    /// particular.
    fn forget(&self, ino: Ino, references: u64);

    /// Returns the attributes of an inode. Needs no permission.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn getattr(&self, ctx: &Context, ino: Ino) -> Result<Attr>;

    /// Changes attributes, all that are given or none, and returns the new ones: `chmod`, `chown`, `truncate`,
    /// `utimensat`. A size is a data operation, everything else a name operation. With a `handle` that is open for
    /// writing, a size needs no permission (`ftruncate`).
    ///
    /// A change sets `ctime`; a size sets `mtime` too, even if it is the same. A mode loses set-group-id if the user is
    /// not in the file's group of users. A new owner or size clears set-user-id, and set-group-id of files that are
    /// executable for the group. If the superuser makes the change, a mode keeps set-group-id, and only a new owner of
    /// a regular file clears bits.
    ///
    /// # Errors
    /// - `EPERM` for a mode or a given time if the context does not own the inode; for an owner that it may not give;
    ///   for the mode of a symbolic link (or `EOPNOTSUPP`).
    /// - `EACCES` for a size if the context may not write to the file; for a time of now if it neither owns it nor may
    ///   write.
    /// - `EISDIR` and `EINVAL` for the size of an object that is not a regular file; `EFBIG`.
    /// - `EINVAL` for nanoseconds of a second or more.
    /// - `EBADF` and `EINVAL` for a handle that is not open for writing.
    fn setattr(&self, ctx: &Context, ino: Ino, handle: Option<&Handle>, change: &SetAttr) -> Result<Attr>;

    /// Checks whether the context has these permissions (`faccessat` with `AT_EACCESS`).
    ///
    /// # Errors
    /// `EACCES` if it does not; `EROFS`.
    fn access(&self, ctx: &Context, ino: Ino, access: Access) -> Result<()>;

    /// Returns the target of a symbolic link. Updates its `atime`.
    ///
    /// # Errors
    /// `EINVAL` for another object.
    fn readlink(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>>;

    /// Makes a regular file, FIFO, socket or device without opening it: a name operation, one reference.
    ///
    /// A new inode belongs to the context's user and group of users; in a directory with set-group-id, to the
    /// directory's group of users. Its permission bits are `mode` without those of the umask.
    ///
    /// # Errors
    /// Changes `dir`; `EEXIST`; `ENOENT` if `dir` has been removed; `EPERM` for a directory, and for a device if the
    /// context is not the superuser.
    fn mknod(&self, ctx: &Context, dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr>;

    /// Makes a directory: a name operation, one reference. It inherits set-group-id from `dir`.
    ///
    /// # Errors
    /// Those of [`mknod`](Self::mknod); `EMLINK` if `dir` has as many directories as it can have.
    fn mkdir(&self, ctx: &Context, dir: Ino, name: &[u8], mode: Mode) -> Result<Attr>;

    /// Makes a symbolic link to `target`, which need not exist: a name operation, one reference.
    ///
    /// # Errors
    /// Those of [`mknod`](Self::mknod); `ENOENT` for an empty target; `ENAMETOOLONG` for one of more than 4095 bytes.
    fn symlink(&self, ctx: &Context, dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr>;

    /// Gives `ino`, which may be a symbolic link, one more name: a name operation, one reference. A file of `tmpfile`
    /// gets its first name in this way.
    ///
    /// # Errors
    /// Changes `dir`; `EEXIST`; `EPERM` for a directory; `ENOENT` if `ino` has lost its last name, or was made by
    /// `tmpfile` with `EXCL`; `EMLINK`.
    fn link(&self, ctx: &Context, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr>;

    /// Removes a name of an object that is not a directory: a name operation.
    ///
    /// # Errors
    /// Changes `dir`; `ENOENT`; `EISDIR` for a directory; `EPERM` in a sticky directory if the context owns neither the
    /// directory nor the file.
    fn unlink(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory: a name operation.
    ///
    /// # Errors
    /// Changes `dir`; `ENOENT`; `ENOTDIR`; `ENOTEMPTY`; `EPERM` as [`unlink`](Self::unlink).
    fn rmdir(&self, ctx: &Context, dir: Ino, name: &[u8]) -> Result<()>;

    /// Renames `name` in `from` to `new_name` in `to`. An object that had the new name loses it, or gets the old one. A
    /// name operation: at no time is either name missing. Does nothing if both are names of one inode.
    ///
    /// # Errors
    /// - Changes both directories; `ENOENT`; `ENOTEMPTY`; `EMLINK`.
    /// - `EEXIST` with [`NoReplace`](Rename::NoReplace) if the new name exists.
    /// - `EISDIR` if another object would replace a directory, `ENOTDIR` if a directory would replace another object.
    /// - `EINVAL` for a directory into itself or below itself.
    /// - `ENOTEMPTY` (with [`Exchange`](Rename::Exchange) `EINVAL`) if the new name is a directory that the object lies
    ///   in.
    /// - `EPERM` as [`unlink`](Self::unlink), for either name.
    /// - `EACCES` for a directory that gets another parent, if the context may not write to it.
    fn rename(&self, ctx: &Context, from: Ino, name: &[u8], to: Ino, new_name: &[u8], how: Rename) -> Result<()>;

    /// Opens a regular file. Of `flags` these have a meaning: the access mode, `APPEND`, `TRUNC` (a data operation),
    /// `DSYNC`, `SYNC`, `NOATIME` and `DIRECTORY`. Special files are opened by the kernel, not here.
    ///
    /// # Errors
    /// `EACCES`; `EISDIR` for a directory and writing; `ENOTDIR` with `DIRECTORY`; `ELOOP` for a symbolic link; `ENXIO`
    /// for a special file; `EPERM` for `NOATIME` if the context does not own the file.
    fn open(&self, ctx: &Context, ino: Ino, flags: OFlags) -> Result<Handle>;

    /// Makes a regular file and opens it, even if `mode` has no permissions; without `EXCL` it opens an existing file.
    /// A name operation if it makes one; one reference.
    ///
    /// # Errors
    /// Those of [`mknod`](Self::mknod), `EEXIST` only with `EXCL`. If the name exists, those of [`open`](Self::open): a
    /// symbolic link is not followed.
    fn create(&self, ctx: &Context, dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)>;

    /// Makes a regular file without a name and opens it: one reference. [`link`](Self::link) gives it a name, unless
    /// `flags` has `EXCL`; that is a name operation. Without a name, the file is removed with its last handle and
    /// reference.
    ///
    /// # Errors
    /// Changes `dir`; `EINVAL` for a handle that cannot write.
    fn tmpfile(&self, ctx: &Context, dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)>;

    /// Reads up to `buf.len()` bytes at `offset`. Returns how many; fewer only at the end of the file. Holes are zeros.
    ///
    /// # Errors
    /// `EBADF` if the handle is not open for reading; `EINVAL` if the range ends beyond 2^63 bytes.
    fn read(&self, ctx: &Context, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes `data` at `offset`, or at the end of the file if the handle was opened with `APPEND`: a data operation.
    /// Returns how many bytes were written: fewer only at the largest size of a file, or if space ends. With `DSYNC` or
    /// `SYNC` a sync follows.
    ///
    /// Sets `mtime` and `ctime`. Clears set-user-id, and set-group-id of files that are executable for the group,
    /// unless the context is the superuser. Does nothing if `data` is empty.
    ///
    /// # Errors
    /// `EBADF` if the handle is not open for writing; `EFBIG`; `EINVAL` if the range ends beyond 2^63 bytes.
    fn write(&self, ctx: &Context, handle: &Handle, offset: u64, data: &[u8]) -> Result<usize>;

    /// Writes `data` at the end of the file, however the handle was opened. No other bytes come between the end and
    /// these. Returns the offset at which they begin, and how many were written. Otherwise like [`write`](Self::write).
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    fn append(&self, ctx: &Context, handle: &Handle, data: &[u8]) -> Result<(u64, usize)>;

    /// Copies up to `len` bytes from one open file to another one or within one file, possibly without moving them: a
    /// data operation. Returns how many bytes were copied: 0 at the end of the source.
    ///
    /// # Errors
    /// `EBADF` if `from` is not open for reading, or `to` not for writing or with `APPEND`; `EINVAL` if both are one
    /// file and the ranges overlap; `EOVERFLOW`; `EFBIG`.
    fn copy_file_range(
        &self,
        ctx: &Context,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        len: usize,
    ) -> Result<usize>;

    /// Changes the space of a range: a data operation.
    ///
    /// # Errors
    /// `EBADF` if the handle is not open for writing; `EINVAL` for an empty range; `EFBIG`; `EOPNOTSUPP` for
    /// what is not supported.
    fn fallocate(&self, ctx: &Context, handle: &Handle, how: Fallocate, offset: u64, len: u64) -> Result<()>;

    /// Returns the offset at which data or a hole begins.
    ///
    /// # Errors
    /// `ENXIO` at or beyond the end of the file, and for data if only a hole follows.
    fn seek(&self, ctx: &Context, handle: &Handle, seek: Seek) -> Result<u64>;

    /// Makes the data and attributes of the file durable, and with them everything before in commit order.
    ///
    /// # Errors
    /// `EIO` if they are not durable: the store or volume is then poisoned.
    fn fsync(&self, ctx: &Context, handle: &Handle) -> Result<()>;

    /// Like [`fsync`](Self::fsync), but without times: makes durable what is needed to read the data.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync).
    fn fdatasync(&self, ctx: &Context, handle: &Handle) -> Result<()>;

    /// `fatomic` and `fdataatomic` of MQFS (5.1): what [`fsync`](Self::fsync), or with `data_only`
    /// [`fdatasync`](Self::fdatasync), would make durable is atomic and ordered on return. A crash leaves all of it or
    /// nothing of it, and nothing that is ordered later without it. It is durable after the next `fsync`, `fdatasync`
    /// or `sync`, after a commit of the timer under `shared`, and after the end of the store or volume.
    ///
    /// On a medium whose order is not total, the last part holds of later changes of the same files and names, and a
    /// sync of another file need not make it durable.
    ///
    /// A volume whose engine orders in memory does not wait for its medium. Every store, and every other volume, does
    /// what `fsync` does.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync). An error of the medium that comes later is returned by the next call that waits
    /// for it.
    fn fatomic(&self, ctx: &Context, handle: &Handle, data_only: bool) -> Result<()> {
        if data_only { self.fdatasync(ctx, handle) } else { self.fsync(ctx, handle) }
    }

    /// Closes a file. The handle is not valid afterwards, even if this returns an error.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync), if the policy commits at the last close.
    fn release(&self, ctx: &Context, handle: Handle) -> Result<()>;

    /// Opens a directory for reading.
    ///
    /// # Errors
    /// `ENOTDIR`; `EACCES`.
    fn opendir(&self, ctx: &Context, dir: Ino) -> Result<Handle>;

    /// Calls `each` with the names of a directory, including `.` and `..`, until it returns `false` or there are no
    /// more. It begins at `offset`: 0, or a `next` that this handle has returned. A name for which `each` returns
    /// `false` was not accepted, and comes again. A name that exists from the first call to the last comes once,
    /// whatever happens to others.
    ///
    /// # Errors
    /// `ENOENT` if the directory has been removed.
    fn readdir(
        &self,
        ctx: &Context,
        handle: &Handle,
        offset: u64,
        each: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync).
    fn fsyncdir(&self, ctx: &Context, handle: &Handle) -> Result<()>;

    /// Closes a directory. The handle is not valid afterwards.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn releasedir(&self, ctx: &Context, handle: Handle) -> Result<()>;

    /// Sets an extended attribute: a name operation. `user.*` needs the permissions of the content, `trusted.*` the
    /// superuser, `system.*` (ACLs) and `security.*` the owner or the superuser.
    ///
    /// # Errors
    /// - `EEXIST` with [`Create`](SetXattr::Create), `ENODATA` with [`Replace`](SetXattr::Replace).
    /// - `ERANGE` for an empty name or one of more than 255 bytes; `E2BIG` for a value of more than 65,536 bytes.
    /// - `EOPNOTSUPP` for another namespace.
    /// - `EPERM` for `user.*` of an object that is neither regular file nor directory, and of a sticky directory that
    ///   another user owns; `EACCES`.
    fn setxattr(&self, ctx: &Context, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> Result<()>;

    /// Returns the value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`, also for attributes that the context may not see; else those of [`setxattr`](Self::setxattr).
    fn getxattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Returns the names of the extended attributes that the context may see, each followed by a NUL.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn listxattr(&self, ctx: &Context, ino: Ino) -> Result<Vec<u8>>;

    /// Removes an extended attribute: a name operation.
    ///
    /// # Errors
    /// `ENODATA`; else those of [`setxattr`](Self::setxattr).
    fn removexattr(&self, ctx: &Context, ino: Ino, name: &[u8]) -> Result<()>;

    /// Returns how much space and how many inodes there are, and how many are free.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn statfs(&self, ctx: &Context, ino: Ino) -> Result<StatFs>;

    /// Returns which calls outside of explicit groups are not committed yet. None, where each is a group of its own.
    ///
    /// # Errors
    /// None beyond those of all calls.
    fn pending(&self) -> Result<Pending> {
        Ok(Pending::default())
    }

    /// Makes all calls so far durable, except those in explicit groups.
    ///
    /// # Errors
    /// Those of [`fsync`](Self::fsync).
    fn sync(&self, ctx: &Context) -> Result<()>;
}
