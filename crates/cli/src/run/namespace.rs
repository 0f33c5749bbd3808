//! The mount namespace that only the command sees.

use crate::error::Failure;
use crate::mounts::{self, Other};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, CWD, StatVfsMountFlags, StatxFlags, statvfs, statx};
use rustix::mount::{MountPropagationFlags, mount_change};
use std::io;
use std::path::{Path, PathBuf};
use wholly_fuse::{MountOptions, Point, Sharing};

/// A directory that the command sees by a view.
pub struct Covered {
    pub dir: PathBuf,
    /// What is mounted in it, which the command sees as everybody does.
    pub others: Vec<Other>,
}

impl Covered {
    /// A directory other than that of the root.
    pub fn directory(dir: PathBuf) -> Result<Covered, Failure> {
        let identity = |path: &Path| {
            let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::INO);
            stat.map(|stat| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
                .map_err(|errno| failed(&dir, errno.into()))
        };
        if identity(&dir)? == identity(Path::new("/"))? {
            return Err(failed(&dir, io::Error::other("it is the root directory")).advice("use `--root` for it"));
        }
        Covered::new(dir)
    }

    /// The root directory.
    pub fn root() -> Result<Covered, Failure> {
        Covered::new("/".into())
    }

    fn new(dir: PathBuf) -> Result<Covered, Failure> {
        let others = mounts::inside(&dir).map_err(|error| failed(&dir, error))?;
        Ok(Covered { dir, others })
    }

    /// Where the view of the directory has names that the store does not know.
    pub fn points(&self) -> Vec<Point> {
        let point = |other: &Other| {
            let path = other.path.strip_prefix(&self.dir).expect("it is mounted in the directory");
            Point { path: path.into(), is_directory: other.is_directory }
        };
        self.others.iter().map(point).collect()
    }
}

fn failed(dir: &Path, error: io::Error) -> Failure {
    Failure::new(format!("run in {}", dir.display()), error)
}

/// Goes to a mount namespace of this process's own, of which nobody else sees the mounts.
pub fn enter() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    close()
}

/// Closes the namespace of this process: what is mounted in it is not mounted anywhere else. What is unmounted
/// elsewhere is unmounted in it too, where no view lies between.
pub fn close() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?)
}

/// How a view is mounted: programs are no freer in it than in the directory.
pub fn options(dir: &Path) -> io::Result<MountOptions> {
    let flags = statvfs(dir)?.f_flag;
    Ok(MountOptions {
        source: dir.to_string_lossy().into_owned(),
        sharing: Sharing::Everybody,
        suid: !flags.contains(StatVfsMountFlags::NOSUID),
        dev: !flags.contains(StatVfsMountFlags::NODEV),
        noexec: flags.contains(StatVfsMountFlags::NOEXEC),
        ..MountOptions::default()
    })
}
