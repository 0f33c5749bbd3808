//! The mounts that this process sees, as the kernel lists them.

use crate::output::Name;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use serde::{Serialize, Serializer};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

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
    let mounts = read(&mut File::open("/proc/self/mountinfo")?)?;
    let inner = mounts.into_iter().filter(|mount| mount.parent == own && mount.at != dir && mount.at.starts_with(dir));
    // Who serves it is not asked: he may be away, and answer nobody.
    let looked = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let other = |Mount { at, kind, .. }: Mount| {
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
    let mounts = read(&mut File::open("/proc/self/mountinfo")?)?;
    let options = mounts.into_iter().find(|mount| mount.id == id).map(|mount| mount.options);
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
        for Mount { id, at, .. } in read(&mut self.list)?.into_iter().rev() {
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

/// A line of the list.
struct Mount {
    id: u64,
    parent: u64,
    at: PathBuf,
    kind: String,
    source: PathBuf,
    options: String,
}

fn read(list: &mut File) -> io::Result<Vec<Mount>> {
    let mut bytes = Vec::new();
    list.rewind()?;
    list.read_to_end(&mut bytes)?;
    Ok(bytes.split(|&byte| byte == b'\n').filter_map(mount).collect())
}

fn mount(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|&byte| byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    // The device, where it begins in its file system, where it lies; options, and behind a dash the type.
    let at = unescaped(words.nth(2)?);
    let mut behind = words.skip_while(|word| *word != b"-").skip(1);
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    // The type, what is mounted, and the options of the file system.
    let (kind, source, options) = (text(behind.next()?), unescaped(behind.next()?), behind.next().map(text));
    Some(Mount { id, parent, at, kind, source, options: options.unwrap_or_default() })
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

    #[test]
    fn a_line_of_the_list() {
        let line =
            b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - fuse.it /dev/my\\040root rw,errors=continue";
        let Mount { id, parent, at, kind, source, options } = mount(line).unwrap();
        assert_eq!((id, parent, at.as_path(), kind.as_str()), (36, 35, Path::new("/mnt 2"), "fuse.it"));
        assert_eq!((source.as_path(), options.as_str()), (Path::new("/dev/my root"), "rw,errors=continue"));
        assert!(mount(b"").is_none());
    }

    #[test]
    fn over_the_root_directory() {
        assert_eq!(over(Path::new("/")), Path::new("/.."));
        assert_eq!(over(Path::new("/a/b")), Path::new("/../a/b"));
    }
}
