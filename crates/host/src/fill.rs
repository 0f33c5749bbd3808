//! A directory that is filled wholly or not at all, and out of everybody's reach until then.
//!
//! What is made by its name in a directory of another user can be exchanged by him before it has its owner and its
//! permissions. So all of it is made in a folder that only the calling user can enter, and moved to its place when it
//! is whole: from then on nothing of it is touched any more.

use super::home::{FOLDER, StoreHome, UNFINISHED};
use super::names::{itself, move_name};
use super::resolve::open_beneath;
use crate::sys::{OrFail, show};
use crate::{Attributes, HostDir, HostNames, HostOptions};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::path::Path;
use std::sync::Arc;
use wholly_media::{Error, Site};
use wholly_vfs::Rename;

const FILL: Site = Site("fill");

/// The directory in the folder; its attributes become those of the directory that is filled.
const TREE: &str = "tree";

/// Access control lists, which a new directory may have from the one above it.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

impl HostDir {
    /// Gives this directory, which is empty, what `work` makes in another one, attributes included. Nobody else reaches
    /// that one, so plain paths are safe in it. After an error of `work` nothing of it is left. Nothing is synced.
    ///
    /// # Errors
    /// `ENOTEMPTY`; `ENOLCK` where the file system has no locks; `EACCES` where it does not keep other users out of a
    /// folder; `EEXIST` where somebody has made something here meanwhile: then a part is in its place.
    pub fn fill<T, E: From<Error>>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<HostDir>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        // What an interruption left is removed below.
        if self.read_dir(b"")?.iter().any(|entry| !entry.name.starts_with(UNFINISHED.as_bytes())) {
            return Err(Error::new("fill", ".", Errno::NOTEMPTY).into());
        }
        let filled = StoreHome::with_scratch(self, |home| Ok(self.fill_from(home.as_fd(), work)))?;
        let (value, attributes) = filled.ok_or(Error::new("lock", UNFINISHED, Errno::NOLCK))??;
        for list in LISTS {
            match self.remove_xattr(FILL, b"", list.as_bytes()) {
                Err(error) if !matches!(error.errno, Errno::NODATA | Errno::OPNOTSUPP) => return Err(error.into()),
                _ => {}
            }
        }
        attributes.give(FILL, &**self, b"", &mut |_, error| Err(error))?;
        Ok(value)
    }

    fn fill_from<T, E: From<Error>>(
        self: &Arc<Self>,
        folder: BorrowedFd<'_>,
        work: impl FnOnce(&Arc<HostDir>) -> std::result::Result<T, E>,
    ) -> std::result::Result<(T, Attributes), E> {
        // Whatever has this name by now: nobody else can have made, or make, anything in it.
        let stat = super::file::stat(folder).or_fail("statx", || UNFINISHED)?;
        if stat.uid != geteuid().as_raw() || stat.mode & 0o077 != 0 {
            return Err(Error::new("make a folder that only its owner can enter", UNFINISHED, Errno::ACCESS).into());
        }
        rustix::fs::mkdirat(folder, TREE, Mode::RWXU).or_fail("mkdir", || TREE)?;
        let fd = open_beneath(folder, TREE.as_bytes(), FOLDER).or_fail("open", || TREE)?;
        for list in LISTS {
            match rustix::fs::fremovexattr(&fd, list) {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                removed => removed.or_fail("removexattr", || TREE)?,
            }
        }
        rustix::fs::fchmod(&fd, Mode::RWXU).or_fail("fchmod", || TREE)?;
        let tree = Arc::new(HostDir::open(Path::new(&itself(fd.as_fd())), HostOptions::default())?);
        let moved = work(&tree).and_then(|value| {
            let attributes = tree.object(b"".as_slice().into())?.attributes()?;
            rustix::fs::fchmod(&fd, Mode::RWXU).or_fail("fchmod", || TREE)?;
            for entry in tree.read_dir(b"")? {
                move_out(fd.as_fd(), self.as_fd(), &entry.name).or_fail("rename to", || show(&entry.name))?;
            }
            Ok((value, attributes))
        });
        if moved.is_err() {
            // What cannot be removed now is when somebody fills this directory again.
            let _ = empty(fd.as_fd());
        }
        moved
    }
}

/// Moves what has a name to where nothing has it.
fn move_out(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
    let move_it = || move_name((from, name), (to, name), Rename::NoReplace);
    match move_it() {
        // A directory that its owner may not write to cannot leave the one above it.
        Err(Errno::ACCESS) => {
            let dir = open_beneath(from, name, OFlags::PATH | OFlags::DIRECTORY)?;
            let mode = Mode::from_raw_mode(super::file::stat(dir.as_fd())?.mode & 0o7777);
            let place = itself(dir.as_fd());
            rustix::fs::chmodat(CWD, &place, mode | Mode::RWXU, AtFlags::empty())?;
            move_it()?;
            rustix::fs::chmodat(CWD, &place, mode, AtFlags::empty())
        }
        moved => moved,
    }
}

/// Removes all that is in a directory that nobody else can reach. However deep it is: directories in directories are
/// moved up first.
fn empty(dir: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let mut moved = 0u64;
    let names = |fd: BorrowedFd<'_>| {
        let mut names = Vec::new();
        super::home::each_entry(fd, |name, kind| names.push((name.to_vec(), kind))).map(|()| names)
    };
    loop {
        let entries = names(dir)?;
        if entries.is_empty() {
            return Ok(());
        }
        for (name, _) in entries {
            match rustix::fs::unlinkat(dir, &*name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => {}
                removed => {
                    removed?;
                    continue;
                }
            }
            let inner = open_beneath(dir, &name, OFlags::PATH | OFlags::DIRECTORY)?;
            rustix::fs::chmodat(CWD, itself(inner.as_fd()), Mode::RWXU, AtFlags::empty())?;
            let inner = open_beneath(dir, &name, FOLDER)?;
            for (below, kind) in names(inner.as_fd())? {
                if kind != FileType::Directory
                    && let Ok(()) = rustix::fs::unlinkat(&inner, &*below, AtFlags::empty())
                {
                    continue;
                }
                let below_it = open_beneath(inner.as_fd(), &below, OFlags::PATH | OFlags::DIRECTORY)?;
                rustix::fs::chmodat(CWD, itself(below_it.as_fd()), Mode::RWXU, AtFlags::empty())?;
                moved += 1;
                let aside = format!("{UNFINISHED}{moved}");
                move_name((inner.as_fd(), &below), (dir, aside.as_bytes()), Rename::NoReplace)?;
            }
            rustix::fs::unlinkat(dir, &*name, AtFlags::REMOVEDIR)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostFs;
    use wholly_media::Result;
    use wholly_scratch::TestDir;
    use wholly_vfs::SetXattr;

    fn open(dir: &TestDir) -> Arc<HostDir> {
        Arc::new(HostDir::open(dir.path(), HostOptions::default()).expect("open"))
    }

    fn names(dir: &HostDir) -> Vec<Vec<u8>> {
        let mut names: Vec<_> = dir.read_dir(b"").expect("list").into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_directory_is_filled_with_all_or_nothing() {
        let dir = TestDir::on_disk();
        let host = open(&dir);
        let failed = host.fill(|tree| -> Result<()> {
            let mut path = b"d".to_vec();
            for _ in 0..300 {
                tree.mkdir(FILL, &path, 0o700)?;
                tree.create(FILL, &[&path[..], b"/file"].concat(), 0o600)?;
                path.extend(b"/d");
            }
            tree.set_mode(FILL, b"d/d", 0o500)?;
            Err(Error::new("test", "", Errno::IO))
        });
        assert_eq!(failed, Err(Error::new("test", "", Errno::IO)));
        assert_eq!(names(&host), [b""; 0]);

        let filled = host.fill(|tree| -> Result<_> {
            tree.mkdir(FILL, b"sub", 0o555)?;
            tree.create(FILL, b"file", 0o604)?;
            tree.symlink(FILL, b"file", b"link")?;
            tree.set_mode(FILL, b"", 0o751)?;
            tree.set_times(FILL, b"", Some(1), Some(2))?;
            Ok(names(&host))
        });
        assert_eq!(filled, Ok(vec![b".wholly.unfinished-1".to_vec()]), "it is empty until then");
        assert_eq!(names(&host), [&b"file"[..], b"link", b"sub"]);
        let stat = host.stat(b"").expect("stat");
        assert_eq!((stat.mode & 0o7777, stat.mtime_ns), (0o751, 2));
        let mode = |path| host.stat(path).expect("stat").mode & 0o7777;
        assert_eq!((mode(b"sub"), mode(b"file")), (0o555, 0o604));

        let again = host.fill(|_| -> Result<()> { panic!("it is not empty") });
        assert_eq!(again.map_err(|error| error.errno), Err(Errno::NOTEMPTY));
    }

    /// Whoever owns the directory above has no say in what may be done with the new ones.
    #[test]
    fn access_control_lists_above_do_not_count() {
        let dir = TestDir::on_disk();
        let host = open(&dir);
        // Version 2; the owner, user 7001, the group, the mask and the others.
        let entries = [(1u16, 7u16, !0u32), (2, 7, 7001), (4, 5, !0), (0x10, 7, !0), (0x20, 5, !0)];
        let mut list = 2u32.to_le_bytes().to_vec();
        for (tag, may, id) in entries {
            list.extend([&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat());
        }
        for name in LISTS {
            match host.set_xattr(FILL, b"", name.as_bytes(), &list, SetXattr::Any) {
                Err(error) if error.errno == Errno::OPNOTSUPP => return println!("skipped: there are no such lists"),
                set => set.expect("set"),
            }
        }
        host.fill(|tree| -> Result<()> {
            tree.mkdir(FILL, b"sub", 0o770)?;
            tree.create(FILL, b"sub/file", 0o660).map(drop)
        })
        .expect("filled");
        for path in [&b""[..], b"sub", b"sub/file"] {
            for name in LISTS {
                assert_eq!(host.get_xattr(path, name.as_bytes()), Ok(None), "{name} of {}", show(path));
            }
        }
    }

    #[test]
    fn nothing_is_made_where_others_can_go() {
        let dir = TestDir::on_disk();
        let host = open(&dir);
        rustix::fs::fchmod(host.as_fd(), Mode::from_raw_mode(0o710)).expect("chmod");
        let refused = host.fill_from(host.as_fd(), |_| -> Result<()> { panic!("others can go there") });
        assert_eq!(refused.map(drop).map_err(|error| error.errno), Err(Errno::ACCESS));
    }
}
