//! The mounts that only the command sees: they are made and taken away together.

use super::namespace::{self, Mounts};
use super::user;
use crate::error::Failure;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wholly_fuse::{Unmounter, open_mount};

/// See the head of this module.
pub struct Views {
    views: Vec<(PathBuf, Unmounter)>,
    /// All mounts of the namespace, when these were there and the command was not.
    before: Mounts,
}

impl Views {
    /// Mounts over each of the directories what will be answered for by the devices that are given.
    pub fn mount(dirs: &[PathBuf]) -> Result<(Views, Vec<OwnedFd>), Failure> {
        let (mut views, mut devices) = (Vec::new(), Vec::new());
        for dir in dirs {
            let failed = |error: io::Error| failed(dir, error);
            let options = namespace::options(dir).map_err(failed)?;
            let (device, unmounter) = open_mount(dir, &options).map_err(|error| user::no_mount(dir, error))?;
            views.push((dir.clone(), unmounter));
            devices.push(device);
        }
        let before = Mounts::now().map_err(|error| failed(&dirs[0], error))?;
        Ok((Views { views, before }, devices))
    }

    /// Hands what is dirty in the kernel to the server, of which that may have answered only a part when this returns: it has all once no file
    /// is open. Nobody changes anything in them any more.
    pub fn sync(&self) -> Result<(), Failure> {
        self.views.iter().try_for_each(|(dir, unmounter)| {
            if !unmounter.is_there().map_err(|error| failed(dir, error))? {
                let why =
                    "the command has taken away its own view of it, and may have changed the directory itself since";
                return Err(
                    failed(dir, io::Error::other(why)).advice("nothing of what came through the view is committed")
                );
            }
            let synced = File::open(dir).and_then(|root| Ok(rustix::fs::syncfs(root)?));
            synced.map_err(|error| failed(dir, error))
        })
    }

    /// Takes them away, with what the command has mounted.
    pub fn take_away(self) -> Result<(), Failure> {
        let Views { views, before } = self;
        let detached = before.detach_newer().map_err(|error| failed(&views[0].0, error));
        // The last one first: it may lie in another's directory.
        let unmounted = views.iter().rev().map(|(dir, unmounter)| {
            unmount(unmounter).map_err(|error| {
                // Whoever outside uses it sees the end of the group.
                let _ = unmounter.detach();
                failed(dir, error).advice("somebody outside of the command uses the directory as the command saw it")
            })
        });
        unmounted.fold(detached, |all, one| all.and(one))
    }
}

fn failed(dir: &Path, error: io::Error) -> Failure {
    Failure::new(format!("run in {}", dir.display()), error)
}

/// Takes one of them away. What has just ended may take some moments until nothing of it is in use.
fn unmount(unmounter: &Unmounter) -> io::Result<()> {
    const TRIES: u32 = 100;
    for n in 0..TRIES {
        match unmounter.unmount() {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) && n + 1 < TRIES => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
    Ok(())
}
