//! The mounts that only the command sees: they are made and taken away together.

use super::channel::Mounted;
use super::namespace;
use super::overlay::Overlay;
use super::user;
use crate::args::HoldArgs;
use crate::error::{Exit, Failure};
use crate::mounts::{Mounts, over};
use crate::named::Named;
use crate::opening;
use crate::output::shown;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use wholly::{Error, Options, Store};
use wholly_fuse::{Unmounter, open_mount};
use wholly_host::{HostDir, HostOptions, StoreHome};

/// See the head of this module.
pub struct Views {
    views: Vec<(PathBuf, View)>,
    /// What else is mounted in the directories, until the views have it too.
    others: Vec<(PathBuf, OwnedFd)>,
    /// Whether the one view is that of the root directory.
    is_root: bool,
    /// All mounts of the namespace, when these were there, and nothing in them.
    before: Mounts,
}

/// A mount over a directory.
enum View {
    Fuse(Unmounter),
    Overlay(Overlay),
}

impl View {
    fn unmounter(&self) -> &Unmounter {
        match self {
            View::Fuse(unmounter) => unmounter,
            View::Overlay(overlay) => &overlay.unmounter,
        }
    }

    /// Takes it away. What has just ended may take some moments until nothing of it is in use.
    fn unmount(&self) -> io::Result<()> {
        const TRIES: u32 = 100;
        let attempt = || -> io::Result<()> {
            self.unmounter().unmount()?;
            match self {
                View::Overlay(overlay) => overlay.released(),
                View::Fuse(_) => Ok(()),
            }
        };
        for n in 0..TRIES {
            match attempt() {
                Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) && n + 1 < TRIES => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                done => return done,
            }
        }
        Ok(())
    }
}

impl Views {
    /// Mounts them over the directories: overlays, or what will be answered for by the devices that are given.
    pub fn mount(args: &HoldArgs) -> Result<(Views, Vec<Mounted>, Vec<OwnedFd>), Failure> {
        let HoldArgs { dir: dirs, other: others, overlay: overlays, .. } = args;
        let is_root = dirs.iter().any(|dir| dir == Path::new("/"));
        // Before the views hide them.
        let other = |at: &PathBuf| {
            let opened = openat(CWD, at, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            let opened = opened.map_err(|errno| failed(at, errno.into()))?;
            Ok((at.clone(), opened))
        };
        let others = others.iter().map(other).collect::<Result<Vec<_>, Failure>>()?;
        let (mut views, mut mounted, mut devices) = (Vec::new(), Vec::new(), Vec::new());
        for (n, dir) in dirs.iter().enumerate() {
            if let Some(source) = overlays.get(n) {
                let (overlay, over) = Overlay::mount(dir, source)?;
                views.push((dir.clone(), View::Overlay(overlay)));
                mounted.push(over);
                continue;
            }
            let failed = |error: io::Error| failed(dir, error);
            let found = Named::find(dir).map_err(failed)?;
            let options = namespace::options(dir).map_err(failed)?;
            let (device, unmounter) =
                open_mount(&found.itself(), &options).map_err(|error| user::no_mount(dir, error))?;
            mounted.push(Mounted { over: found.identity().map_err(failed)?, upper: None });
            views.push((dir.clone(), View::Fuse(unmounter)));
            devices.push(device);
        }
        let before = Mounts::now().map_err(|error| failed(&dirs[0], error))?;
        Ok((Views { views, others, is_root, before }, mounted, devices))
    }

    /// Mounts in the views, which are served, what else is mounted in the directories, with all that is mounted in it.
    pub fn pass_through(&mut self) -> Result<(), Failure> {
        // What stays open nobody could unmount outside.
        for (at, other) in std::mem::take(&mut self.others) {
            let other = format!("/proc/self/fd/{}", other.as_raw_fd());
            let mounted = rustix::mount::mount_bind_recursive(other, place(&at, self.is_root));
            mounted.map_err(|errno| {
                failed(&at, errno.into()).advice("the command must see what is mounted there; or unmount it")
            })?;
        }
        Ok(())
    }

    /// A run in one of the overlays may have been killed inside of its commit: its group is taken back, or all of it is
    /// there. A folder that came from elsewhere is no store's, and nothing is done by what it says.
    pub fn settle_inner(&self) -> Result<(), Failure> {
        for (dir, view) in &self.views {
            let View::Overlay(_) = view else { continue };
            // Where the command has taken it away, the store there is the outer run's, and `sync` says so.
            if !view.unmounter().is_there().map_err(|error| failed(dir, error))? {
                continue;
            }
            let at = place(dir, self.is_root);
            let is_store = HostDir::open(&at, HostOptions::default()).and_then(|host| StoreHome::exists(&host));
            if !is_store.unwrap_or(false) {
                continue;
            }
            let options = Options { at_once: true, ..Options::default() };
            let settled = Store::open_with(&at, options, HostOptions::default()).and_then(opening::close);
            // Any other error says that it is no store that a run has left.
            if let Err(
                error @ (Error::Busy(..)
                | Error::Media(_)
                | Error::NoSpace(_)
                | Error::Poisoned(_)
                | Error::Refused(..)),
            ) = settled
            {
                let what = format!("recover the run in the view of {}", shown(dir));
                return Err(Failure::new(what, error).advice("nothing has changed").exit(Exit::REFUSED));
            }
        }
        Ok(())
    }

    /// Hands what is dirty in the kernel to the server, of which that may have answered only a part when this returns:
    /// it has all once no file is open. An overlay only says whether something could not be written. Nobody changes
    /// anything in them any more.
    pub fn sync(&self) -> Result<(), Failure> {
        self.views.iter().try_for_each(|(dir, view)| {
            if !view.unmounter().is_there().map_err(|error| failed(dir, error))? {
                let why = "the command has unmounted its view, and may have changed the directory itself since";
                return Err(
                    failed(dir, io::Error::other(why)).advice("nothing that it changed through the view is committed")
                );
            }
            let synced = File::open(place(dir, self.is_root)).and_then(|root| Ok(rustix::fs::syncfs(root)?));
            synced.map_err(|error| failed(dir, error))
        })
    }

    /// Takes them away, with what is mounted in them, by the command too.
    pub fn take_away(self) -> Result<(), Failure> {
        let Views { views, is_root, before, .. } = self;
        let detached = before.detach_newer(is_root).map_err(|error| failed(&views[0].0, error));
        // The last one first: it may lie in another's directory.
        let unmounted = views.iter().rev().map(|(dir, view)| {
            view.unmount().map_err(|error| {
                // Whoever outside uses it sees the end of the group.
                let _ = view.unmounter().detach();
                failed(dir, error).advice("a process outside of the command uses the command's view")
            })
        });
        unmounted.fold(detached, |all, one| all.and(one))
    }
}

/// By which path this process finds what a view has on a path.
fn place(path: &Path, is_root: bool) -> PathBuf {
    if is_root { over(path) } else { path.into() }
}

fn failed(dir: &Path, error: io::Error) -> Failure {
    Failure::new(format!("run in {}", dir.display()), error)
}
