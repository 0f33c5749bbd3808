//! Groups of a program that uses a mount, on plain descriptors.

use std::os::fd::AsFd;

use rustix::io::Errno;
pub use wholly_host::mount::Holder;
use wholly_host::mount::{self, Open};

use crate::error::{Error, Result};

/// `fatomic` of MQFS (5.1), for an open regular file of a mount: when it returns, what `fsync` would make durable is
/// atomic and ordered. A crash leaves all of it or nothing of it, and no later change without it. It is durable with
/// whatever is made durable next on the mount: by `fsync`, a change of names, a commit of a group, or by the mount's
/// policy.
///
/// On the mount of a volume whose engine orders in memory (`op_log`, `page_cache_wal`) it does not wait for the medium.
/// On other mounts it is an `fsync`. What was written to mapped memory is not included unless `msync` was called
/// before. In a group of the mount's it is for what is in no group, as `fsync` is.
///
/// # Example
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::io::Write;
/// let mut file = std::fs::File::create("/mnt/new")?;
/// file.write_all(b"first")?;
/// file.write_all(b"second")?;
/// wholly::fatomic(&file)?; // a crash leaves both or none
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Unsupported`] if it is not on a mount of ours; [`Error::Refused`] with `EBADF` for a directory;
/// [`Error::Media`] if the medium failed before. If it fails later, the next `fsync` says so.
pub fn fatomic(file: impl AsFd) -> Result<()> {
    mount::fatomic(file.as_fd(), false).map_err(|errno| refused("fatomic", errno))
}

/// `fdataatomic` of MQFS: [`fatomic`] of what is needed to read the data, without times.
///
/// # Errors
/// Those of [`fatomic`].
pub fn fdataatomic(file: impl AsFd) -> Result<()> {
    mount::fatomic(file.as_fd(), true).map_err(|errno| refused("fdataatomic", errno))
}

/// A group of plain system calls on a mount of a store. Once it is committed, its changes survive a crash wholly or not
/// at all.
///
/// From its begin to its end, everything that this process changes on the mount belongs to the group: by any thread,
/// descriptor and path. So does what other processes write by descriptors that were [added](Self::add). The store is
/// open in the process that serves the mount, not here. So other programs see what the group has done so far; they
/// cannot change it before the group ends (`EBUSY`). `docs/mount.md` describes all of it.
///
/// A command of `wholly run` is one group already. There, this group joins that one.
///
/// If the group is dropped without a commit, or the process that began it ends, it is aborted. So it is if it makes no
/// calls for as long as the mount says (`group_timeout`, five minutes by default), so that nobody can keep all others
/// waiting. The process can then change nothing on the mount (`ECANCELED`) until it drops, aborts or tries to commit
/// the group.
///
/// # Example
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dir = std::fs::File::open("/mnt")?;
/// let group = wholly::MountGroup::begin(&dir)?;
/// std::fs::write("/mnt/a", "new")?;
/// std::fs::rename("/mnt/b", "/mnt/c")?;
/// group.commit()?; // both survive from here on; a crash before it leaves both as they were
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MountGroup {
    open: Open,
    has_ended: bool,
}

impl MountGroup {
    /// Begins a group on the mount that the descriptor belongs to: any file or directory there. The group keeps the
    /// open file that the descriptor stands for open.
    ///
    /// # Errors
    /// - [`Error::Busy`]: another group runs on the mount; the text says which process has it.
    /// - [`Error::Refused`]: with `EACCES` if the user may not write to the mount's root directory, `EROFS` if the
    ///   mount is read-only, `ECANCELED` if an earlier group of this process was aborted for want of calls and not
    ///   ended here.
    /// - [`Error::Unsupported`]: it is not a mount of a store, or one that cannot tell which process makes a call.
    pub fn begin(descriptor: impl AsFd) -> Result<MountGroup> {
        let open = Open::of(descriptor.as_fd()).map_err(|errno| refused("begin a group", errno))?;
        match open.begin() {
            Ok(()) => Ok(MountGroup { open, has_ended: false }),
            Err(Errno::BUSY) => Err(match mount::holder(descriptor.as_fd()) {
                Ok(Some(Holder { process, user, .. })) => {
                    Error::Busy("the mount".into(), format!("process {process} of user {user} has a group there"))
                }
                _ => refused("begin a group", Errno::BUSY),
            }),
            Err(errno) => Err(refused("begin a group", errno)),
        }
    }

    /// Which process has the group of the mount that the descriptor belongs to. `None`: no group runs. The answer is of
    /// the moment of the call.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is not a mount of a store.
    pub fn holder(descriptor: impl AsFd) -> Result<Option<Holder>> {
        mount::holder(descriptor.as_fd()).map_err(|errno| refused("find the holder of the group", errno))
    }

    /// Claims an open file for the group now, instead of at its first change. From now on everything that is written by
    /// this descriptor belongs to the group, also by other processes: children inherit descriptors. For a file of the
    /// group, so does what is written to mapped memory.
    ///
    /// Only the process that began the group can add files to it, and end it.
    ///
    /// # Errors
    /// - [`Error::Busy`]: another group has the file.
    /// - [`Error::Refused`]: with `EBADF` for a descriptor that is not open for writing, `EXDEV` for one of another
    ///   mount, `EPERM` in another process.
    /// - [`Error::Invalid`]: the group has ended.
    pub fn add(&self, descriptor: impl AsFd) -> Result<()> {
        self.open.add(descriptor.as_fd()).map_err(|errno| refused("add to the group", errno))
    }

    /// Commits the group. When this returns, it survives a power failure. In a command of `wholly run` it becomes
    /// durable with the command instead.
    ///
    /// # Errors
    /// [`Error::Media`] with `EIO`: it is unknown whether the group survives until the store is opened again. After any
    /// other error the group is aborted. [`Error::Refused`] with `ECANCELED`: it was aborted before, because it made no
    /// calls; with `EAGAIN`: it began while another group was committed, which failed: make it again.
    pub fn commit(mut self) -> Result<()> {
        self.has_ended = true;
        self.open.commit().map_err(|errno| refused("commit the group", errno))
    }

    /// Commits the group. When this returns, all programs see it, and a crash leaves it wholly or not at all, and no
    /// later change without it. It is durable with whatever is made durable next on the mount, as with [`fatomic`]. It
    /// does not wait for the medium on the mount of a volume whose engine orders in memory (`op_log`,
    /// `page_cache_wal`); elsewhere it is a [`commit`](Self::commit).
    ///
    /// # Errors
    /// Those of [`commit`](Self::commit); [`Error::Unsupported`] if the mount is served by an earlier version. If the
    /// medium fails later, the next `fsync` says so.
    pub fn commit_atomic(mut self) -> Result<()> {
        self.has_ended = true;
        self.open.commit_atomic().map_err(|errno| refused("commit the group", errno))
    }

    /// Aborts the group. When this returns, all programs see the mount as it was before. In a command of `wholly run`
    /// the whole command changes nothing then.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the group has ended already; [`Error::Refused`] with `EPERM` in another process, such as a
    /// child.
    pub fn abort(mut self) -> Result<()> {
        self.has_ended = true;
        self.open.abort().map_err(|errno| refused("abort the group", errno))
    }
}

impl Drop for MountGroup {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.open.abort();
        }
    }
}

fn refused(what: &str, errno: Errno) -> Error {
    match errno {
        Errno::NOTTY => Error::Unsupported(format!("{what}: not on a mount of a store")),
        Errno::OPNOTSUPP => Error::Unsupported(format!("{what}: the mount cannot identify the calling process")),
        Errno::BUSY => Error::Busy("the mount".into(), format!("{what}: another group runs, or has the file")),
        Errno::INVAL => Error::Invalid(format!("{what}: the group has ended")),
        Errno::CANCELED => {
            Error::Refused(format!("{what}: the group made no calls for too long and was aborted"), errno)
        }
        Errno::AGAIN => Error::Refused(format!("{what}: a group whose changes it may have seen has failed"), errno),
        Errno::ACCESS => Error::Refused(format!("{what}: needs write permission to the mount's root directory"), errno),
        Errno::BADF | Errno::XDEV | Errno::PERM | Errno::ROFS => Error::Refused(what.into(), errno),
        errno => Error::Media(wholly_media::Error::new("ioctl", what, errno)),
    }
}
