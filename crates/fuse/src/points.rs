//! Names on which other file systems are mounted, for programs as for the host.
//!
//! The host has another file system on such a name, so that a store knows nothing of what it is there, and refuses it
//! (`EXDEV`). To mount the same again over the name in the kernel's view, the kernel has to find something there: an
//! empty directory or file that is nobody's, and no object of the store. What a program wants of it once it has
//! unmounted what lies over it is refused (`ESTALE`): the store has no such number.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use wholly_vfs::{Attr, Context, Errno, FileType, Ino, Mode, Result, Timestamp, Vfs};

use crate::adapter::Adapter;

/// A name on which another file system is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Where, from the root of the file system on. Nothing on the way is a symbolic link.
    pub path: PathBuf,
    /// Whether it is a directory; anything else is a file.
    pub is_directory: bool,
}

/// Those of one file system.
#[derive(Debug, Default)]
pub(crate) struct Points {
    by_parent: HashMap<Ino, HashMap<Vec<u8>, Attr>>,
    by_number: HashMap<Ino, Attr>,
}

impl Points {
    /// Finds the directories in which they are. Those are referred to from then on, so that their numbers stay theirs.
    pub fn new(vfs: &dyn Vfs, ctx: &Context, points: &[Point]) -> io::Result<Points> {
        let mut all = Points::default();
        // No store has so many objects that their numbers come to these.
        for (number, point) in (0..u64::MAX).rev().zip(points) {
            let failed = |why: Errno| {
                let why = io::Error::from(why);
                io::Error::new(why.kind(), format!("{}, where something is mounted: {why}", point.path.display()))
            };
            let (mut parent, mut name): (Ino, Option<&OsStr>) = (Ino::ROOT, None);
            for next in names(&point.path) {
                if let Some(name) = name {
                    parent = vfs.lookup(ctx, parent, name.as_bytes()).map_err(failed)?.ino;
                }
                name = Some(next);
            }
            let name = name.ok_or(Errno::INVAL).map_err(failed)?;
            let shown = nobodys(Ino(number), point.is_directory);
            all.by_parent.entry(parent).or_default().insert(name.as_bytes().to_vec(), shown);
            all.by_number.insert(shown.ino, shown);
        }
        Ok(all)
    }

    fn find(&self, parent: Ino, name: &[u8]) -> Option<Attr> {
        self.by_parent.get(&parent)?.get(name).copied()
    }

    fn attr(&self, ino: Ino) -> Option<Attr> {
        self.by_number.get(&ino).copied()
    }
}

fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}

fn nobodys(ino: Ino, is_directory: bool) -> Attr {
    let never = Timestamp::default();
    Attr {
        ino,
        kind: if is_directory { FileType::Directory } else { FileType::RegularFile },
        mode: Mode::empty(),
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        blocks: 0,
        blksize: 4096,
        atime: never,
        mtime: never,
        ctime: never,
    }
}

impl Adapter {
    /// [`Vfs::lookup`], of what another file system covers too.
    pub fn find(&self, ctx: &Context, parent: Ino, name: &OsStr) -> Result<Attr> {
        match self.points.find(parent, name.as_bytes()) {
            Some(covered) => Ok(covered),
            None => self.vfs.lookup(ctx, parent, name.as_bytes()),
        }
    }

    /// [`Vfs::getattr`], of what another file system covers too.
    pub fn attr_of(&self, ctx: &Context, ino: Ino) -> Result<Attr> {
        match self.points.attr(ino) {
            Some(covered) => Ok(covered),
            None => self.vfs.getattr(ctx, ino),
        }
    }
}
