//! Calls by path: what holds at their last part, as Linux has it (fs/namei.c): trailing slashes, `.`, `..`, the root,
//! and links there.

use super::follow::End;
use super::resolve::{Found, Last, PATH_MAX, Parent, Walk};
use super::{Attr, Context, Errno, FileType, Handle, Ino, Mode, OFlags, Rename, Result, Vfs};

/// The calls of a [`Vfs`] by path instead of by inode.
///
/// A path starts at the inode that the call takes, as in the kernel's `*at` calls, or at the root. Lengths of names and
/// paths and the number of symbolic links are limited as in Linux. References that a call takes on its way are given
/// back. The kernel's extra rules for sticky directories (`fs.protected_*`) do not apply.
///
/// # Errors
/// All calls: `ENOENT` for an empty path and a missing part, `ENOTDIR`, `EACCES`, `ENAMETOOLONG`, `ELOOP`, `EINVAL` for
/// a NUL; and those of the calls of [`Vfs`] of the same names, which also say what is durable on return. Each call
/// lists what differs.
#[derive(Debug)]
pub struct Paths<'v, V: Vfs + ?Sized>(pub &'v V);

impl<V: Vfs + ?Sized> Clone for Paths<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Vfs + ?Sized> Copy for Paths<'_, V> {}

impl<'v, V: Vfs + ?Sized> Paths<'v, V> {
    /// Returns the object at `path`. With `follow`, or if the path ends in a slash, a symbolic link at its end is
    /// followed. A path that ends in a slash must lead to a directory.
    pub fn resolve(&self, ctx: &Context, at: Ino, path: &[u8], follow: bool) -> Result<Found<'v, V>> {
        Walk::new(self.0, ctx).find(at, path, if follow { End::Followed } else { End::Itself })
    }

    /// Returns the directory that the last part of `path` is in, and that part.
    pub fn parent(&self, ctx: &Context, at: Ino, path: &[u8]) -> Result<Parent<'v, V>> {
        Walk::new(self.0, ctx).parent(at, path)
    }

    /// Opens a regular file. With `CREATE` it makes the file if there is none. With `NOFOLLOW` or `EXCL` a symbolic
    /// link at the end is not followed.
    ///
    /// # Errors
    /// With `CREATE`: `EISDIR` for a directory and for a path that ends in a slash, `EINVAL` with `DIRECTORY`.
    pub fn open(
        &self,
        ctx: &Context,
        at: Ino,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> Result<(Found<'v, V>, Handle)> {
        if !flags.contains(OFlags::CREATE) {
            let found = self.resolve(ctx, at, path, !flags.contains(OFlags::NOFOLLOW))?;
            let handle = self.0.open(ctx, found.ino(), flags)?;
            return Ok((found, handle));
        }
        if flags.contains(OFlags::DIRECTORY) {
            return Err(Errno::INVAL);
        }
        let keep_link = flags.intersects(OFlags::EXCL | OFlags::NOFOLLOW);
        let mut walk = Walk::new(self.0, ctx);
        let mut place = walk.parent(at, path)?;
        // A link is walked from the directory it is in, which somebody must go on referring to.
        let mut passed = Vec::new();
        loop {
            let Last::Name { name, slash: false } = &place.last else {
                let exists = flags.contains(OFlags::EXCL) && !matches!(place.last, Last::Name { .. });
                return Err(if exists { Errno::EXIST } else { Errno::ISDIR });
            };
            match self.0.create(ctx, place.dir.ino(), name, flags, mode) {
                Ok((attr, handle)) => return Ok((Found::counted(self.0, attr), handle)),
                Err(Errno::LOOP) if !keep_link => {}
                Err(errno) => return Err(errno),
            }
            let link = walk.step(&place.dir, name)?;
            let target = match walk.target(&link) {
                // It has become something else since.
                Err(Errno::INVAL) => continue,
                target => target?,
            };
            let next = walk.parent(place.dir.ino(), &target)?;
            passed.push(std::mem::replace(&mut place, next));
        }
    }

    /// Makes a directory. The path may end in slashes.
    ///
    /// # Errors
    /// `EEXIST` also for `.`, `..` and `/`.
    pub fn mkdir(&self, ctx: &Context, at: Ino, path: &[u8], mode: Mode) -> Result<Attr> {
        let (dir, name) = self.new_name(ctx, at, path, true)?;
        self.made(self.0.mkdir(ctx, dir.ino(), &name, mode))
    }

    /// Makes a regular file or special file.
    ///
    /// # Errors
    /// Those of [`mkdir`](Self::mkdir); `ENOENT` for a path that ends in a slash if the name does not exist.
    pub fn mknod(&self, ctx: &Context, at: Ino, path: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr> {
        let (dir, name) = self.new_name(ctx, at, path, false)?;
        self.made(self.0.mknod(ctx, dir.ino(), &name, kind, mode, rdev))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Those of [`mknod`](Self::mknod).
    pub fn symlink(&self, ctx: &Context, at: Ino, path: &[u8], target: &[u8]) -> Result<Attr> {
        // Said before the path is looked at.
        if target.is_empty() {
            return Err(Errno::NOENT);
        }
        if target.len() >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let (dir, name) = self.new_name(ctx, at, path, false)?;
        self.made(self.0.symlink(ctx, dir.ino(), &name, target))
    }

    /// Gives the object at `old` the name `new` as well. With `follow` a symbolic link at the end of `old` is followed.
    ///
    /// # Errors
    /// Those of [`mknod`](Self::mknod).
    pub fn link(&self, ctx: &Context, at: Ino, old: &[u8], new: &[u8], follow: bool) -> Result<Attr> {
        let old = self.resolve(ctx, at, old, follow)?;
        let (dir, name) = self.new_name(ctx, at, new, false)?;
        self.made(self.0.link(ctx, old.ino(), dir.ino(), &name))
    }

    /// Removes a name of an object that is not a directory.
    ///
    /// # Errors
    /// `EISDIR` also for `.`, `..` and `/`; `ENOTDIR` for a path that ends in a slash.
    pub fn unlink(&self, ctx: &Context, at: Ino, path: &[u8]) -> Result<()> {
        let place = self.parent(ctx, at, path)?;
        let Last::Name { name, slash } = &place.last else { return Err(Errno::ISDIR) };
        if *slash {
            let named = Walk::new(self.0, ctx).step(&place.dir, name)?;
            return Err(if is_dir(&named) { Errno::ISDIR } else { Errno::NOTDIR });
        }
        self.0.unlink(ctx, place.dir.ino(), name)
    }

    /// Removes an empty directory. The path may end in slashes.
    ///
    /// # Errors
    /// `EINVAL` for `.`, `ENOTEMPTY` for `..`, `EBUSY` for `/`.
    pub fn rmdir(&self, ctx: &Context, at: Ino, path: &[u8]) -> Result<()> {
        let place = self.parent(ctx, at, path)?;
        match &place.last {
            Last::Name { name, .. } => self.0.rmdir(ctx, place.dir.ino(), name),
            Last::Dot => Err(Errno::INVAL),
            Last::DotDot => Err(Errno::NOTEMPTY),
            Last::Root => Err(Errno::BUSY),
        }
    }

    /// Renames the object at `old` to `new`. A path may end in slashes if it is that of a directory, which is moved or
    /// exchanged.
    ///
    /// # Errors
    /// `EBUSY` for `.`, `..` and `/`; with [`Rename::NoReplace`] `EEXIST` if `new` ends so. `ENOTDIR` for slashes after
    /// another object.
    pub fn rename(&self, ctx: &Context, at: Ino, old: &[u8], new: &[u8], how: Rename) -> Result<()> {
        let (plain, _) = how.parts();
        let exchange = plain == Rename::Exchange;
        let (from, to) = (self.parent(ctx, at, old)?, self.parent(ctx, at, new)?);
        let Last::Name { name, slash } = &from.last else { return Err(Errno::BUSY) };
        let Last::Name { name: new_name, slash: new_slash } = &to.last else {
            return Err(if plain == Rename::NoReplace { Errno::EXIST } else { Errno::BUSY });
        };
        if *slash || *new_slash {
            let walk = Walk::new(self.0, ctx);
            let moved = walk.step(&from.dir, name)?;
            let there = match walk.step(&to.dir, new_name) {
                Err(Errno::NOENT) => None,
                there => Some(there?),
            };
            if plain == Rename::NoReplace && there.is_some() {
                return Err(Errno::EXIST);
            }
            if exchange && there.is_none() {
                return Err(Errno::NOENT);
            }
            if exchange && *new_slash && !there.as_ref().is_some_and(is_dir) {
                return Err(Errno::NOTDIR);
            }
            if !is_dir(&moved) && (*slash || *new_slash && !exchange) {
                return Err(Errno::NOTDIR);
            }
        }
        self.0.rename(ctx, from.dir.ino(), name, to.dir.ino(), new_name, how)
    }

    /// Where something is to be made: only a directory may have slashes behind its name.
    fn new_name(&self, ctx: &Context, at: Ino, path: &[u8], directory: bool) -> Result<(Found<'v, V>, Vec<u8>)> {
        let place = self.parent(ctx, at, path)?;
        let Last::Name { name, slash } = place.last else { return Err(Errno::EXIST) };
        if slash && !directory {
            // Either what is there is in the way, or its absence is.
            Walk::new(self.0, ctx).step(&place.dir, &name)?;
            return Err(Errno::EXIST);
        }
        Ok((place.dir, name))
    }

    /// What was made, without the reference that came with it.
    fn made(&self, attr: Result<Attr>) -> Result<Attr> {
        attr.inspect(|attr| self.0.forget(attr.ino, 1))
    }
}

fn is_dir<V: Vfs + ?Sized>(found: &Found<'_, V>) -> bool {
    found.attr.kind == FileType::Directory
}
