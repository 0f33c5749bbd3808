//! A directory that was found by its name once: what lies at the name by now may be another one, if somebody else may
//! change the directory above it.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// See the head of this module.
pub struct Named(OwnedFd);

/// By which a directory is known to another process, as long as somebody has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    device: (u32, u32),
    inode: u64,
}

impl Named {
    /// Finds the directory with this name. Symbolic links in it are followed.
    pub fn find(name: &Path) -> io::Result<Named> {
        Ok(Named(openat(CWD, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// The directory that is open, which may be so for its path alone.
    pub fn of(dir: OwnedFd) -> Named {
        Named(dir)
    }

    /// A path by which this process comes to it, and to no other.
    pub fn itself(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }

    /// By which it is known elsewhere.
    pub fn identity(&self) -> io::Result<Identity> {
        let stat = statx(&self.0, "", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
        Ok(Identity { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino })
    }
}

impl AsFd for Named {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_the_same_whatever_comes_to_its_name() {
        let above = std::env::temp_dir().join(format!("wholly-cli-named-{}", std::process::id()));
        std::fs::create_dir_all(above.join("dir")).unwrap();
        std::os::unix::fs::symlink("dir", above.join("link")).unwrap();
        let (found, linked) = (Named::find(&above.join("dir")).unwrap(), Named::find(&above.join("link")).unwrap());
        assert_eq!(found.identity().unwrap(), linked.identity().unwrap());

        std::fs::rename(above.join("dir"), above.join("moved")).unwrap();
        std::fs::create_dir(above.join("dir")).unwrap();
        std::fs::write(found.itself().join("file"), "").unwrap();
        let other = Named::find(&above.join("dir")).unwrap();
        assert!(above.join("moved/file").exists());
        assert_ne!(found.identity().unwrap(), other.identity().unwrap());
        std::fs::remove_dir_all(&above).unwrap();
    }
}
