//! The mounts that only the command sees.

use crate::error::Failure;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{AtFlags, CWD, StatVfsMountFlags, StatxFlags, statvfs, statx};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use wholly_fuse::{MountOptions, Sharing};

/// That a mount can take the place of a directory, for all that the command does in it.
pub fn check(dir: &Path) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(format!("run in {}", dir.display()), why);
    let identity = |path: &Path| {
        let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::MNT_ID);
        stat.map(|stat| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
            .map_err(|errno| failed(errno.to_string()))
    };
    if identity(dir)? == identity(Path::new("/"))? {
        return Err(failed("it is the root directory".into()).advice("name a directory below it with --dir"));
    }
    let mounts = Mounts::now().map_err(|error| failed(error.to_string()))?;
    match mounts
        .points()
        .map_err(|error| failed(error.to_string()))?
        .into_iter()
        .find(|at| at != dir && at.starts_with(dir))
    {
        Some(point) => Err(failed(format!("another file system is mounted in it, on {}", point.display()))
            .advice("name a directory without such with --dir, or unmount it")),
        None => Ok(()),
    }
}

/// Goes to a mount namespace of this process's own, of which nobody else sees the mounts.
pub fn enter() -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    close()
}

/// Closes the namespace of this process: what is mounted in it is not mounted anywhere else.
pub fn close() -> io::Result<()> {
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
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

/// The mounts of this namespace at some moment.
pub struct Mounts {
    known: HashSet<u64>,
    /// Open, so that it can be read whatever is mounted over `/proc` meanwhile.
    list: File,
}

impl Mounts {
    pub fn now() -> io::Result<Mounts> {
        let mut list = File::open("/proc/self/mountinfo")?;
        let known = read(&mut list)?.into_iter().map(|(id, _)| id).collect();
        Ok(Mounts { known, list })
    }

    fn points(mut self) -> io::Result<Vec<PathBuf>> {
        Ok(read(&mut self.list)?.into_iter().map(|(_, point)| point).collect())
    }

    /// Detaches what has been mounted since, the last first.
    pub fn detach_newer(mut self) -> io::Result<()> {
        for (id, point) in read(&mut self.list)?.into_iter().rev() {
            if self.known.contains(&id) {
                continue;
            }
            match rustix::mount::unmount(&point, UnmountFlags::DETACH) {
                // It went with another one.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// The numbers of all mounts, and where they are.
fn read(list: &mut File) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut bytes = Vec::new();
    list.rewind()?;
    list.read_to_end(&mut bytes)?;
    let one = |line: &[u8]| {
        let mut words = line.split(|&byte| byte == b' ');
        let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        Some((id, unescaped(words.nth(3)?)))
    };
    Ok(bytes.split(|&byte| byte == b'\n').filter_map(one).collect())
}

/// A path as the kernel lists it: what would end a word stands as a backslash and three octal digits.
fn unescaped(word: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), word);
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &behind[3..];
            }
            None => {
                path.push(first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(path).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_mounts_are_escaped() {
        assert_eq!(unescaped(b"/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped(b"/plain\\"), Path::new("/plain\\"));
    }
}
