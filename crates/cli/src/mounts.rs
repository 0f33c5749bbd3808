//! The mounts that this process sees, as the kernel lists them.

use crate::output::Name;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Serialize, Serializer};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use wholly_host::mounts::{Mounted, all, parse};

/// Something that is mounted in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Other {
    /// Where.
    #[serde(serialize_with = "as_name")]
    pub path: PathBuf,
    /// What the kernel calls such a file system.
    #[serde(rename = "type")]
    pub kind: String,
    /// It lies over a directory, and not over a file.
    #[serde(skip)]
    pub is_directory: bool,
}

fn as_name<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    Name::from(path).serialize(serializer)
}

/// What is mounted in a directory, in the order of the paths; not what is mounted in that in turn, nor what something
/// else hides.
pub fn inside(dir: &Path) -> io::Result<Vec<Other>> {
    let own = statx(CWD, dir, AtFlags::NO_AUTOMOUNT, StatxFlags::MNT_ID)?.stx_mnt_id;
    let inner = all()?.into_iter().filter(|mount| mount.parent == own && mount.at != dir && mount.at.starts_with(dir));
    // Who serves it is not asked: he may be away, and answer nobody.
    let looked = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let other = |Mounted { at, kind, .. }: Mounted| {
        // What says nothing to this user is the mount of another one.
        let mode = statx(CWD, &at, looked, StatxFlags::TYPE).ok().map(|stat| stat.stx_mode.into());
        let is_directory = mode.is_none_or(|mode| FileType::from_raw_mode(mode) == FileType::Directory);
        Other { path: at, kind, is_directory }
    };
    let mut others: Vec<_> = inner.map(other).collect();
    others.sort_by(|one, other| one.path.cmp(&other.path));
    // Of two mounts on one file system of which one lies below the other, the other hides it.
    others.dedup_by(|below, above| below.path.starts_with(&above.path));
    Ok(others)
}

/// By which path a process finds what it has mounted over a directory, or below that: the root directory's own leads
/// beneath what lies over it, `..` there to the uppermost.
pub fn over(path: &Path) -> PathBuf {
    Path::new("/..").join(path.strip_prefix("/").unwrap_or(path))
}

/// The same for the root directory alone: what is mounted over any other one is found by its path.
pub fn over_root(path: &Path) -> PathBuf {
    if path == Path::new("/") { over(path) } else { path.into() }
}

/// The options of a mount's file system, by the number of the mount.
pub fn options_of(id: u64) -> io::Result<String> {
    let options = all()?.into_iter().find(|mount| mount.id == id).map(|mount| mount.options);
    options.ok_or_else(|| Errno::NOENT.into())
}

/// Whether a process sees that something of this type is mounted, under this name.
pub fn sees(pid: u32, kind: &str, source: &Path) -> io::Result<bool> {
    let mounts = read(&mut File::open(format!("/proc/{pid}/mountinfo"))?)?;
    Ok(mounts.iter().any(|mount| mount.kind == kind && mount.source == source))
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
        let known = read(&mut list)?.into_iter().map(|mount| mount.id).collect();
        Ok(Mounts { known, list })
    }

    /// Detaches what has been mounted since, the last first. In the view of the root directory all paths begin there.
    pub fn detach_newer(mut self, is_root: bool) -> io::Result<()> {
        for Mounted { id, at, .. } in read(&mut self.list)?.into_iter().rev() {
            if !self.known.contains(&id) {
                match rustix::mount::unmount(if is_root { over(&at) } else { at }, UnmountFlags::DETACH) {
                    // It went with another one.
                    Ok(()) | Err(Errno::INVAL | Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(())
    }
}

fn read(list: &mut File) -> io::Result<Vec<Mounted>> {
    let mut bytes = Vec::new();
    list.rewind()?;
    list.read_to_end(&mut bytes)?;
    Ok(parse(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_the_root_directory() {
        assert_eq!(over(Path::new("/")), Path::new("/.."));
        assert_eq!(over(Path::new("/a/b")), Path::new("/../a/b"));
    }
}
