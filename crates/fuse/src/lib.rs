//! A [`Vfs`], which is a store or a volume, as a mounted file system: FUSE, by the crate `fuser`.
//!
//! # What a program may rely on
//!
//! A mount is the whole store to the programs that use it: what one of them does, the others see when its call returns,
//! as on any file system. What survives a crash is what the store's policy for calls outside of groups says
//! ([`wholly_vfs`]), with the calls of the kernel in the place of those of programs, which are the same but for two:
//!
//! - *mapped memory*: what is written through a shared mapping reaches the store by `msync`, `munmap`, `fsync` or
//!   whenever the kernel likes, and then counts as written.
//! - *closing*: the kernel does not wait for the last close of a file. So where closing is to make a file durable, each
//!   close does ([`MountOptions::syncs_on_close`]).
//!
//! # Caching, and why it is no lie
//!
//! The kernel keeps names, attributes and pages. All changes of the store come through the kernel, which changes what
//! it keeps before the call returns, except those of
//!
//! - *bystanders*, who change home files behind the store's back. What they do shows once what the kernel keeps has
//!   expired ([`MountOptions::valid`]): its pages go when it sees another time of change or size
//!   (`FUSE_AUTO_INVAL_DATA`). A mount over the store's own directory hides it, and has none;
//! - *groups that are aborted*: the kernel is told to forget what it has of them (`groups/keeper.rs`);
//! - *passes* of the checkpoint, which change only what no program relies on: the space that a file takes, and times of
//!   change upward.
//!
//! A volume has no bystanders ([`MountOptions::owns_content`]), and the kernel keeps pages whatever the time of change
//! says. Else each write would cost all pages of its file, since the write itself changes that time.
//!
//! Writes go through: no page is dirty but by mappings, since a write that the kernel puts off (`FUSE_WRITEBACK_CACHE`)
//! would be in a group of its own choice.
//!
//! # Permissions
//!
//! The kernel decides who may do what, from modes and access lists (`default_permissions`, `FUSE_POSIX_ACL`), before it
//! asks. Only of a request to begin a group it knows nothing: who may do that is decided here (`groups/caller.rs`).
//!
//! | file | idea |
//! |---|---|
//! | `adapter.rs` | requests of the kernel as calls of the trait |
//! | `answers.rs` | what it is answered and asked for |
//! | `caller.rs` | on whose behalf a request is made |
//! | `convert.rs` | numbers, types and times |
//! | `groups/` | groups that programs begin and end by `ioctl`, and which calls belong to them |
//! | `identity.rs` | whose numbers of users and groups these are |
//! | `kernel.rs` | mounting and unmounting |
//! | `lost.rs` | writes of which no program is sure to hear that they failed |
//! | `open.rs` | open files and directories |
//! | `options.rs` | what follows `-o` |
//! | `points.rs` | names on which other file systems are mounted |
//! | `untold.rs` | access lists that a program could not be told |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod adapter;
mod answers;
mod caller;
mod convert;
mod groups;
mod identity;
mod kernel;
mod lost;
mod open;
mod options;
mod points;
mod untold;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use fuser::{Filesystem, Session};
use wholly_vfs::{Context, Groups};

use adapter::Adapter;
pub use answers::LARGEST_WRITE;
#[doc(hidden)]
pub use answers::ask;
use groups::Belonging;
pub use groups::{Asker, Doom, Joined};
pub use identity::{Identity, User};
pub use kernel::{TYPE, Unmounter, open_mount, remount};
pub use lost::Lost;
use open::OpenFiles;
pub use options::{Clock, MountOptions, OptionError, Sharing};
pub use points::Point;
use points::Points;
use untold::Untold;

/// A mounted file system, whose requests wait until it is [served](Self::serve).
pub struct Mount {
    server: Server,
    unmounter: Unmounter,
}

impl Mount {
    /// Mounts `vfs` on the directory `point`: programs see it when this returns, and wait until it is served.
    ///
    /// It takes the superuser, or `fusermount3` (Debian: the package `fuse3`) and a `/dev/fuse` that the user may open.
    ///
    /// # Errors
    /// `ENOENT` and `ENOTDIR` for `point`, `EACCES` and `EPERM` where the user may not mount there; those of finding
    /// its points; what `fusermount3` says otherwise.
    pub fn new(vfs: Arc<dyn Groups>, point: &Path, options: &MountOptions) -> io::Result<Mount> {
        let adapter = adapter(vfs, options)?;
        let (groups, lost) = (adapter.groups.clone(), adapter.lost.clone());
        let (session, unmounter) = mount(adapter, point, options)?;
        let (its, otherwise) = (unmounter.clone(), options.read_only);
        groups.mounted(session.notifier(), Box::new(move || its.is_read_only().unwrap_or(otherwise)));
        Ok(Mount { server: Server { session, doom: groups.doom(), lost }, unmounter })
    }

    /// Answers the kernel until the file system is unmounted, by whomever. On return everything that programs did
    /// outside of groups is durable.
    ///
    /// # Errors
    /// Of the kernel's device.
    pub fn serve(self) -> io::Result<()> {
        self.server.serve()
    }

    /// By which it can be unmounted while it is served.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }
}

/// Mounts any file system of the crate `fuser` as [`Mount::new`] does: so what ours is measured beside has the same
/// options.
///
/// # Errors
/// Those of [`Mount::new`].
#[doc(hidden)]
pub fn mount<F: Filesystem>(served: F, point: &Path, options: &MountOptions) -> io::Result<(Session<F>, Unmounter)> {
    if !rustix::process::geteuid().is_root() {
        // Another process mounts it.
        let mut session = Session::new(served, point.canonicalize()?, &options.config())?;
        let unmounter = Unmounter::of_helper(session.unmount_callable());
        return Ok((session, unmounter));
    }
    let (device, unmounter) = open_mount(point, options)?;
    match Session::from_fd(served, device, options.access(), options.config()) {
        Ok(session) => Ok((session, unmounter)),
        Err(error) => {
            let _ = unmounter.unmount();
            Err(error)
        }
    }
}

impl std::fmt::Debug for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mount").finish_non_exhaustive()
    }
}

/// What answers for a file system that [`open_mount`] has mounted, here or in another process.
pub struct Server {
    session: Session<Adapter>,
    doom: Doom,
    lost: Lost,
}

impl Server {
    /// The server of the mount that `device` is of, with the options with which that was mounted. On return the kernel
    /// and it know each other.
    ///
    /// # Errors
    /// Of the kernel's device, and of finding the points.
    pub fn new(vfs: Arc<dyn Groups>, device: OwnedFd, options: &MountOptions) -> io::Result<Server> {
        let adapter = adapter(vfs, options)?;
        let (groups, lost) = (adapter.groups.clone(), adapter.lost.clone());
        let session = Session::from_fd(adapter, device, options.access(), options.config())?;
        let is_read_only = options.read_only;
        groups.mounted(session.notifier(), Box::new(move || is_read_only));
        Ok(Server { session, doom: groups.doom(), lost })
    }

    /// Why the group that all calls belong to is not to be committed, if anything of it is undone. Of other mounts
    /// nothing ever is told.
    pub fn doom(&self) -> Doom {
        self.doom.clone()
    }

    /// Whether writes have failed of which no program is sure to hear.
    pub fn lost(&self) -> Lost {
        self.lost.clone()
    }

    /// As [`Mount::serve`].
    ///
    /// # Errors
    /// Of the kernel's device.
    pub fn serve(self) -> io::Result<()> {
        match self.session.run() {
            // So some kernels say that it was unmounted while a thread took a request.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CONNABORTED.raw_os_error()) => Ok(()),
            served => served,
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

fn adapter(vfs: Arc<dyn Groups>, options: &MountOptions) -> io::Result<Adapter> {
    let MountOptions { valid, syncs_on_close, group, whole_writes, owns_content, threads, .. } = *options;
    let ctx = Context { is_permitted: true, group, ..Context::superuser() };
    let points = Points::new(&*vfs, &ctx, &options.points)?;
    let groups = Arc::new(Belonging::new(&vfs, options));
    let (identity, lost) = (options.identity.clone(), Lost::default());
    Ok(Adapter {
        vfs,
        valid,
        syncs_on_close,
        groups,
        whole_writes,
        owns_content,
        threads,
        identity,
        points,
        lost,
        untold: Untold::default(),
        open: OpenFiles::default(),
    })
}
