//! Directories by the paths that users name: found once, through links that can be trusted.
//!
//! The superuser follows symbolic links of root's alone. Whoever owns a directory on the way may put one there at any
//! time, and would have what is done in that directory done in another.

use super::names::itself;
use super::{HostDir, HostOptions};
use crate::sys::{OrFail, show};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fstat, fstatfs, mkdirat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wholly_media::Result;

/// Links that the kernel follows in one path.
const MOST_LINKS: u32 = 40;

impl HostDir {
    /// Opens the directory that a user names.
    ///
    /// # Errors
    /// `ELOOP` for the superuser, where a symbolic link of another user is on the way; else those of `openat(2)`.
    pub fn named(path: &Path, options: HostOptions) -> Result<HostDir> {
        Self::found(path, false, options)
    }

    /// The same; makes the directory where nothing has its name, for the calling user alone.
    ///
    /// # Errors
    /// Those of [`named`](Self::named) and of `mkdirat(2)`.
    pub fn named_or_made(path: &Path, options: HostOptions) -> Result<HostDir> {
        Self::found(path, true, options)
    }

    fn found(path: &Path, makes: bool, options: HostOptions) -> Result<HostDir> {
        let name = path.as_os_str().as_bytes();
        let fd = follow(name, makes).or_fail("open directory", || show(name))?;
        HostDir::open(Path::new(&itself(fd.as_fd())), options)
    }
}

/// Finds what a user names, and opens it by `O_PATH`.
///
/// # Errors
/// Those of [`HostDir::named`].
pub fn find(path: &Path) -> Result<OwnedFd> {
    let name = path.as_os_str().as_bytes();
    follow(name, false).or_fail("open", || show(name))
}

const WAY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = WAY.union(OFlags::DIRECTORY);

fn follow(path: &[u8], makes: bool) -> rustix::io::Result<OwnedFd> {
    let start = |path: &[u8]| openat(CWD, if path.starts_with(b"/") { "/" } else { "." }, DIRECTORY, Mode::empty());
    let parts = |path: &[u8]| {
        let parts = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        parts.rev().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    let (mut at, mut rest, mut links) = (start(path)?, parts(path), 0);
    while let Some(name) = rest.pop() {
        let is_last = rest.is_empty();
        // Of the last one nobody asks an automounter.
        let found = match openat(&at, &*name, if is_last { WAY } else { DIRECTORY }, Mode::empty()) {
            Err(Errno::NOENT) if makes && is_last => {
                match mkdirat(&at, &*name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                // Whatever else has come there since, no link is followed.
                return openat(&at, &*name, DIRECTORY, Mode::empty());
            }
            // A link, or no directory at all. From that no name leads on.
            Err(Errno::NOTDIR | Errno::LOOP) => openat(&at, &*name, WAY, Mode::empty())?,
            found => found?,
        };
        let stat = fstat(&found)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            at = found;
            continue;
        }
        links += 1;
        if links > MOST_LINKS || geteuid().is_root() && stat.st_uid != 0 {
            return Err(Errno::LOOP);
        }
        if fstatfs(&found)?.f_type == PROC_SUPER_MAGIC {
            // It leads elsewhere than it reads.
            at = openat(&at, &*name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            continue;
        }
        let target = readlinkat(&found, "", Vec::new())?.into_bytes();
        if target.starts_with(b"/") {
            at = start(&target)?;
        }
        rest.extend(parts(&target));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostFs, HostNames};
    use std::os::unix::fs::{lchown, symlink};
    use wholly_scratch::TestDir;

    fn inode(path: &Path, makes: bool) -> std::result::Result<(u64, i64), Errno> {
        let found = if makes { HostDir::named_or_made } else { HostDir::named };
        found(path, HostOptions::default())
            .map_err(|error| error.errno)?
            .stat(b"")
            .map(|stat| stat.inode())
            .map_err(|error| error.errno)
    }

    #[test]
    fn a_path_leads_where_the_kernel_leads_it() {
        let dir = TestDir::on_disk();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b")).expect("mkdir");
        std::fs::write(at("file"), "").expect("write");
        symlink("a/./b", at("relative")).expect("symlink");
        symlink(at("a"), at("absolute")).expect("symlink");
        symlink("loop", at("loop")).expect("symlink");
        symlink("nothing", at("dangling")).expect("symlink");
        let b = HostDir::open(&at("a/b"), HostOptions::default()).expect("open");
        let itself = itself(b.as_fd());
        let wanted = inode(&at("a/b"), false).expect("found");
        for way in ["a//b/", "relative", "absolute/b", "a/../absolute/b/.", "relative/../b"] {
            assert_eq!(inode(&at(way), false), Ok(wanted), "{way}");
        }
        assert_eq!(inode(Path::new(&itself), false), Ok(wanted));
        for (way, errno) in
            [("none", Errno::NOENT), ("file", Errno::NOTDIR), ("file/x", Errno::NOTDIR), ("loop", Errno::LOOP)]
        {
            assert_eq!(inode(&at(way), false), Err(errno), "{way}");
        }
        assert_eq!(inode(Path::new(""), true), Err(Errno::NOENT));
        assert_eq!(inode(&at("none/more"), true), Err(Errno::NOENT));
        let made = inode(&at("dangling"), true).expect("made where the link leads");
        assert_eq!(inode(&at("nothing"), true), Ok(made));
        assert_eq!(b.read_dir(b"").expect("list"), []);
    }

    #[test]
    fn the_superuser_follows_no_link_of_another_user() {
        if !geteuid().is_root() {
            return println!("skipped: it takes the superuser");
        }
        let dir = TestDir::on_disk();
        std::fs::create_dir(dir.path().join("outside")).expect("mkdir");
        for (way, target) in [("link", "outside"), ("up", ".")] {
            symlink(target, dir.path().join(way)).expect("symlink");
            lchown(dir.path().join(way), Some(7001), Some(7001)).expect("chown");
        }
        for way in ["link", "up/outside", "link/new"] {
            assert_eq!(inode(&dir.path().join(way), true), Err(Errno::LOOP), "{way}");
        }
        assert_eq!(std::fs::read_dir(dir.path().join("outside")).expect("list").count(), 0);
    }
}
