//! From a path to an inode, as Linux walks (path_resolution(7)), but beneath the root: `..` and absolute symbolic links
//! never leave it.

use super::{Attr, Context, Errno, FileType, Ino, Result, Vfs};

/// The most bytes of a name (`ENAMETOOLONG`).
pub const NAME_MAX: usize = 255;

/// The size of the kernel's buffer for a path, including the final NUL: a path has at most one byte less
/// (`ENAMETOOLONG`).
pub const PATH_MAX: usize = 4096;

/// The most symbolic links that one walk follows (`ELOOP`).
pub const LINKS_MAX: u32 = 40;

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
    vfs: &'v V,
    ctx: &'c Context,
    links: u32,
}

/// Where a walk ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// At what the path names, or what that links to.
    Followed,
    /// At what the path names. Slashes at the end follow it all the same.
    Itself,
}

impl<'v, 'c, V: Vfs + ?Sized> Walk<'v, 'c, V> {
    pub fn new(vfs: &'v V, ctx: &'c Context) -> Self {
        Walk { vfs, ctx, links: 0 }
    }

    /// The start of a walk.
    fn start(&self, at: Ino) -> Result<Found<'v, V>> {
        Ok(Found { vfs: self.vfs, attr: self.vfs.getattr(self.ctx, at)?, counted: false })
    }

    /// What `path` names, from `at` or from the root.
    pub fn find(&mut self, at: Ino, path: &[u8], end: End) -> Result<Found<'v, V>> {
        let (mut here, mut rest) = self.begin(at, path)?;
        while let Some((name, after)) = split(&rest) {
            let next = self.step(&here, name)?;
            let follows = end == End::Followed || !after.is_empty();
            if next.attr.kind == FileType::Symlink && follows {
                let target = self.target(next.ino())?;
                rest = [&target, after].concat();
                if target.starts_with(b"/") {
                    here = self.start(Ino::ROOT)?;
                }
                continue;
            }
            if next.attr.kind != FileType::Directory && !after.is_empty() {
                return Err(Errno::NOTDIR);
            }
            rest = after.to_vec();
            here = next;
        }
        Ok(here)
    }

    /// The directory of the last part of `path`, and that part.
    pub fn parent(&mut self, at: Ino, path: &[u8]) -> Result<Parent<'v, V>> {
        let (start, rest) = self.begin(at, path)?;
        let end = rest.len() - rest.iter().rev().take_while(|&&byte| byte == b'/').count();
        let from = rest[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let last = match &rest[from..end] {
            b"" => Last::Root,
            b"." => Last::Dot,
            b".." => Last::DotDot,
            name => Last::Name { name: name.to_vec(), slash: end < rest.len() },
        };
        let dir = if split(&rest[..from]).is_some() { self.find(at, &rest[..from], End::Followed)? } else { start };
        if dir.attr.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok(Parent { dir, last })
    }

    /// The target of a symbolic link that is followed.
    pub fn target(&mut self, link: Ino) -> Result<Vec<u8>> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        match self.vfs.readlink(self.ctx, link)? {
            target if target.is_empty() => Err(Errno::NOENT),
            target => Ok(target),
        }
    }

    /// One step down, or up, or nowhere.
    pub fn step(&self, here: &Found<'v, V>, name: &[u8]) -> Result<Found<'v, V>> {
        if here.attr.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(Found::counted(self.vfs, self.vfs.lookup(self.ctx, here.ino(), name)?))
    }

    fn begin(&self, at: Ino, path: &[u8]) -> Result<(Found<'v, V>, Vec<u8>)> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if path.contains(&0) {
            return Err(Errno::INVAL);
        }
        let start = self.start(if path[0] == b'/' { Ino::ROOT } else { at })?;
        Ok((start, path.to_vec()))
    }
}

/// The first name of a path, and what follows it: nothing, or a slash and more.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = &path[path.iter().position(|&byte| byte != b'/')?..];
    Some(path.split_at(path.iter().position(|&byte| byte == b'/').unwrap_or(path.len())))
}
