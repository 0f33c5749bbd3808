//! A directory that was found by its name once: what lies at the name by now may be another one, if somebody else may
//! change the directory above it.

use rustix::fs::{AtFlags, FileType, StatxFlags, fstat, statx};
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
    /// Finds the directory with this name, as [`wholly_host::find`] does.
    pub fn find(name: &Path) -> io::Result<Named> {
        let found = find(name)?;
        match FileType::from_raw_mode(fstat(&found)?.st_mode) {
            FileType::Directory => Ok(Named(found)),
            _ => Err(rustix::io::Errno::NOTDIR.into()),
        }
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

/// The path of what has this name, without symbolic links.
pub fn whole(name: &Path) -> io::Result<PathBuf> {
    std::fs::read_link(Named(find(name)?).itself())
}

fn find(name: &Path) -> io::Result<OwnedFd> {
    wholly_host::find(name).map_err(|error| match error.errno {
        rustix::io::Errno::LOOP => io::Error::other(
            "a symbolic link on the way belongs to another user, which root does not follow, or links lead in circles",
        ),
        errno => errno.into(),
    })
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
