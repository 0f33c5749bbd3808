//! From a path to an inode, beneath the root: `..` and absolute symbolic links never leave it.

use super::follow::{End, Steps, follow, target};
use super::{Attr, Context, Errno, FileType, Ino, Result, Vfs};

/// The most bytes of a name, of a file (`ENAMETOOLONG`) as of an extended attribute (`ERANGE`).
pub const NAME_MAX: usize = 255;

/// The size of the kernel's buffer for a path, including the final NUL: a path has at most one byte less
/// (`ENAMETOOLONG`).
pub const PATH_MAX: usize = 4096;

/// An inode that a path leads to. Holds a reference to it until it is dropped.
pub struct Found<'v, V: Vfs + ?Sized> {
    vfs: &'v V,
    /// The attributes, as of when the inode was found.
    pub attr: Attr,
    /// The walk's start is its caller's to refer to.
    counted: bool,
}

impl<'v, V: Vfs + ?Sized> Found<'v, V> {
    /// Takes over the reference that came with `attr`.
    pub fn counted(vfs: &'v V, attr: Attr) -> Self {
        Found { vfs, attr, counted: true }
    }

    /// The attributes. The reference that came with them is the caller's to give back.
    pub fn into_counted(mut self) -> Attr {
        self.counted = false;
        self.attr
    }

    /// The number of the inode.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }
}

impl<V: Vfs + ?Sized> Drop for Found<'_, V> {
    fn drop(&mut self) {
        if self.counted {
            self.vfs.forget(self.attr.ino, 1);
        }
    }
}

impl<V: Vfs + ?Sized> std::fmt::Debug for Found<'_, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").field("attr", &self.attr).finish_non_exhaustive()
    }
}

/// The last part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name {
        /// The name.
        name: Vec<u8>,
        /// Whether slashes follow the name: then it can only be a directory's.
        slash: bool,
    },
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// Nothing: the path is all slashes.
    Root,
}

/// The directory that the last part of a path is in, and that part. The part need not exist, and is not followed.
#[derive(Debug)]
pub struct Parent<'v, V: Vfs + ?Sized> {
    /// The directory. Whether it is a directory is only checked when it is used.
    pub dir: Found<'v, V>,
    /// The last part, to be found or made in the directory.
    pub last: Last,
}

/// One walk: it counts the links that it follows.
pub(super) struct Walk<'v, 'c, V: Vfs + ?Sized> {
    steps: InVfs<'v, 'c, V>,
    links: u32,
}

/// Steps from inode to inode.
struct InVfs<'v, 'c, V: Vfs + ?Sized> {
    vfs: &'v V,
    ctx: &'c Context,
}

impl<'v, V: Vfs + ?Sized> Steps for InVfs<'v, '_, V> {
    type Object = Found<'v, V>;
    type Error = Errno;

    fn kind(&self, object: &Found<'v, V>) -> FileType {
        object.attr.kind
    }

    fn step(&self, dir: &Found<'v, V>, name: &[u8]) -> Result<Found<'v, V>> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(Found::counted(self.vfs, self.vfs.lookup(self.ctx, dir.ino(), name)?))
    }

    fn target(&self, link: &Found<'v, V>) -> Result<Option<Vec<u8>>> {
        self.vfs.readlink(self.ctx, link.ino()).map(Some)
    }

    fn root(&self) -> Result<Found<'v, V>> {
        self.start(Ino::ROOT)
    }

    fn refused(&self, errno: Errno) -> Errno {
        errno
    }
}

impl<'v, V: Vfs + ?Sized> InVfs<'v, '_, V> {
    /// The start of a walk.
    fn start(&self, at: Ino) -> Result<Found<'v, V>> {
        Ok(Found { vfs: self.vfs, attr: self.vfs.getattr(self.ctx, at)?, counted: false })
    }

    fn begin(&self, at: Ino, path: &[u8]) -> Result<Found<'v, V>> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if path.contains(&0) {
            return Err(Errno::INVAL);
        }
        self.start(if path[0] == b'/' { Ino::ROOT } else { at })
    }
}

impl<'v, 'c, V: Vfs + ?Sized> Walk<'v, 'c, V> {
    pub fn new(vfs: &'v V, ctx: &'c Context) -> Self {
        Walk { steps: InVfs { vfs, ctx }, links: 0 }
    }

    /// What `path` names, from `at` or from the root.
    pub fn find(&mut self, at: Ino, path: &[u8], end: End) -> Result<Found<'v, V>> {
        let start = self.steps.begin(at, path)?;
        follow(&self.steps, &mut self.links, start, path, end)
    }

    /// The directory of the last part of `path`, and that part.
    pub fn parent(&mut self, at: Ino, path: &[u8]) -> Result<Parent<'v, V>> {
        let start = self.steps.begin(at, path)?;
        let end = path.len() - path.iter().rev().take_while(|&&byte| byte == b'/').count();
        let from = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let last = match &path[from..end] {
            b"" => Last::Root,
            b"." => Last::Dot,
            b".." => Last::DotDot,
            name => Last::Name { name: name.to_vec(), slash: end < path.len() },
        };
        let dir = follow(&self.steps, &mut self.links, start, &path[..from], End::Followed)?;
        if dir.attr.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok(Parent { dir, last })
    }

    /// The target of a symbolic link that is followed.
    pub fn target(&mut self, link: &Found<'v, V>) -> Result<Vec<u8>> {
        target(&self.steps, &mut self.links, link)?.ok_or(Errno::NOENT)
    }

    /// One step down, or up, or nowhere.
    pub fn step(&self, here: &Found<'v, V>, name: &[u8]) -> Result<Found<'v, V>> {
        if here.attr.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        self.steps.step(here, name)
    }
}
