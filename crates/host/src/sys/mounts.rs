//! The kernel's list of the mounts that a process sees.

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount, as a line of `/proc/PID/mountinfo` describes it: `ID parent device root point options [more]... - TYPE
/// source OPTIONS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Its number, as `statx` returns it.
    pub id: u64,
    /// The number of the mount that it lies on.
    pub parent: u64,
    /// The major and the minor number of its device.
    pub device: (u32, u32),
    /// The directory or file that it lies over, from the root directory of the process.
    pub at: PathBuf,
    /// Its type as `mount(8)` knows it: `ext3`, `fuse.sshfs`.
    pub kind: String,
    /// What is mounted: a device, or the name that the mount was given.
    pub source: PathBuf,
    /// The options of the file system, such as `rw,nobarrier`; not those of the mount, such as `noatime`.
    pub options: String,
}

impl Mounted {
    /// Whether the file system has an option. One with a value has to be given with it.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|given| given == option)
    }

    fn of_line(line: &[u8]) -> Option<Mounted> {
        let mut words = line.split(|&byte| byte == b' ');
        let (id, parent) = (number(words.next()?)?, number(words.next()?)?);
        let mut device = words.next()?.split(|&byte| byte == b':').map(number);
        let device = (device.next()??, device.next()??);
        let at = unescaped(words.nth(1)?);
        let mut behind = words.skip_while(|word| *word != b"-").skip(1);
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let (kind, source) = (text(behind.next()?), unescaped(behind.next()?));
        Some(Mounted { id, parent, device, at, kind, source, options: behind.next().map(text).unwrap_or_default() })
    }
}

/// The mounts in the text of a list, in its order.
pub fn parse(list: &[u8]) -> Vec<Mounted> {
    list.split(|&byte| byte == b'\n').filter_map(Mounted::of_line).collect()
}

/// The mounts that this process sees.
///
/// # Errors
/// Of the calls that read the list.
pub fn all() -> Result<Vec<Mounted>, Errno> {
    Ok(parse(&read("/proc/self/mountinfo")?))
}

/// The mount that a descriptor is open on. `None` if the kernel does not tell: the mount was detached, or lies outside
/// of the process's root.
///
/// # Errors
/// Of `statx`, and of the calls that read the list.
pub fn of(fd: BorrowedFd<'_>) -> Result<Option<Mounted>, Errno> {
    let found = statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Ok(None);
    }
    Ok(all()?.into_iter().find(|mount| mount.id == found.stx_mnt_id))
}

/// Reads a file of the kernel's, which has no size.
pub(crate) fn read(path: &str) -> Result<Vec<u8>, Errno> {
    /// More mounts than any system has; it bounds the loop.
    const MOST: usize = 16 << 20;
    let fd = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    loop {
        bytes.reserve(64 << 10);
        match rustix::io::read(&fd, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Err(Errno::INTR) => {}
            read => _ = read?,
        }
        if bytes.len() > MOST {
            return Err(Errno::FBIG);
        }
    }
}

fn number<N: std::str::FromStr>(word: &[u8]) -> Option<N> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A path as the kernel lists it: a byte that would end a word is written as a backslash and three octal digits.
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
    use rustix::fd::AsFd;
    use std::path::Path;
    use wholly_scratch::TestDir;

    #[test]
    fn paths_of_mounts_are_escaped() {
        assert_eq!(unescaped(b"/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped(b"/plain\\"), Path::new("/plain\\"));
    }

    #[test]
    fn a_line_of_the_list() {
        let line =
            b"36 35 98:1 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - fuse.it /dev/my\\040root rw,errors=continue";
        let mount = Mounted::of_line(line).unwrap();
        let Mounted { id, parent, device, at, kind, source, .. } = &mount;
        assert_eq!((*id, *parent, *device), (36, 35, (98, 1)));
        assert_eq!(
            (at.as_path(), kind.as_str(), source.as_path()),
            ("/mnt 2".as_ref(), "fuse.it", "/dev/my root".as_ref())
        );
        assert!(mount.has("rw") && mount.has("errors=continue") && !mount.has("errors") && !mount.has("noatime"));
        assert_eq!(parse(&[line.as_slice(), b"\n7 nonsense\n\n", line].concat()), [mount.clone(), mount]);
        assert_eq!(parse(b""), []);
    }

    /// What other mounts are called is not this one's concern: a path need not be text.
    #[test]
    fn a_list_is_bytes() {
        let list = b"1 0 0:1 / /\xff rw - tmpfs \xff rw\n22 1 7:0 /sub /b rw - ext3 /dev/loop0 rw,nobarrier";
        assert_eq!(parse(list).iter().map(|mount| mount.id).collect::<Vec<_>>(), [1, 22]);
    }

    #[test]
    fn the_kernel_tells_of_its_mounts() {
        let Some(dir) = TestDir::on_tmpfs() else { return };
        let fd = dir.file("a");
        assert_eq!(of(fd.as_fd()).unwrap().map(|mount| mount.kind), Some("tmpfs".to_owned()));
    }
}
