//! Groups of a program that uses a mount, on plain descriptors.

use std::os::fd::AsFd;

use rustix::io::Errno;
use wholly_media::mount::Open;

use crate::error::{Error, Result};

/// A group of plain system calls on a mount of a store: they survive a crash wholly or not at all, once it is committed.
///
/// From its begin to its end all that this process changes on the mount belongs to it, by whatever thread, descriptor and path; and what others write
/// by descriptors that were [added](Self::add). It is no group of a store that is open here: the store is the mount's, and so other programs see
/// what the group has done so far. They cannot change that before it ends (`EBUSY`). `docs/mount.md` tells all of it.
///
/// What `wholly run` runs is one group already: there a group joins that.
///
/// Dropped without a commit it is aborted, and so it is with the end of the process that began it.
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
    /// Begins a group on the mount that a descriptor is of: any file or directory there. The group keeps what the descriptor stands for open.
    ///
    /// # Errors
    /// [`Error::Busy`] where another group runs on the mount; [`Error::Unsupported`] where it is no mount of a store, or one that cannot tell
    /// processes apart.
    pub fn begin(descriptor: impl AsFd) -> Result<MountGroup> {
        let open = Open::of(descriptor.as_fd()).map_err(|errno| refused("begin a group", errno))?;
        open.begin().map_err(|errno| refused("begin a group", errno))?;
        Ok(MountGroup { open, has_ended: false })
    }

    /// Makes an open file the group's own now rather than at its first change, and what is written by that descriptor a part of the group, whoever
    /// writes it: children have descriptors of their parents. Of a file that is the group's own so is what is written to mapped memory.
    ///
    /// Only the process that began the group adds to it, and ends it.
    ///
    /// # Errors
    /// [`Error::Busy`] where a group has the file; [`Error::Refused`] for a descriptor that is not open for writing (`EBADF`) or of another mount
    /// (`EXDEV`), and for another process (`EPERM`); [`Error::Invalid`] where the group has ended.
    pub fn add(&self, descriptor: impl AsFd) -> Result<()> {
        self.open.add(descriptor.as_fd()).map_err(|errno| refused("add to the group", errno))
    }

    /// Commits the group: it survives when this returns. In a command of `wholly run` that is left to the end of the command.
    ///
    /// # Errors
    /// [`Error::Media`] with `EIO`: nobody knows whether it survives until the store is opened again. After any other error it is aborted.
    pub fn commit(mut self) -> Result<()> {
        self.has_ended = true;
        self.open.commit().map_err(|errno| refused("commit the group", errno))
    }

    /// Undoes the group. What the kernel keeps of the mount is as before when this returns. In a command of `wholly run` the whole command will have
    /// changed nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it has ended already; [`Error::Refused`] for another process (`EPERM`), as a child is.
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
        Errno::NOTTY => Error::Unsupported(format!("{what}: it is no mount of a store")),
        Errno::OPNOTSUPP => Error::Unsupported(format!("{what}: the mount cannot tell which process asks")),
        Errno::BUSY => Error::Busy("the mount".into(), format!("{what}: another group runs, or has the file")),
        Errno::INVAL => Error::Invalid(format!("{what}: it has ended")),
        Errno::BADF | Errno::XDEV | Errno::PERM => Error::Refused(what.into(), errno),
        errno => Error::Media(wholly_media::Error::new("ioctl", what, errno)),
    }
}
