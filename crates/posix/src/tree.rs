//! What cases make their calls with: a directory of their own, by paths, as some user.

use wholly_vfs::{
    Access, Attr, Context, Errno, Fallocate, FileType, Found, Handle, Ino, Listed, Mode, OFlags, Paths, Rename, Result,
    Seek, SetAttr, SetTime, SetXattr, Timestamp, Vfs,
};

/// A directory of a [`Vfs`], and a user in whose name calls are made. Paths start at the directory; `/` is the root of
/// all.
#[derive(Clone)]
pub struct Tree<'v> {
    /// What is tried.
    pub vfs: &'v dyn Vfs,
    /// The directory.
    pub at: Ino,
    /// The user.
    pub ctx: Context,
}

/// Permission bits.
pub(crate) fn bits(mode: u32) -> Mode {
    Mode::from_raw_mode(mode)
}

/// A time that many seconds after 1970, and a little more.
pub(crate) fn at(sec: i64) -> SetTime {
    SetTime::At(Timestamp { sec, nsec: 123_456_789 })
}

/// One name of a directory, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub name: Vec<u8>,
    /// What it names.
    pub ino: Ino,
    /// Its type.
    pub kind: FileType,
    /// Where to go on.
    pub next: u64,
}

impl<'v> Tree<'v> {
    /// A directory of a file system, for the superuser, or, where the process is another's, for that user. Its umask is
    /// 0.
    pub fn new(vfs: &'v dyn Vfs, at: Ino) -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Tree { vfs, at, ctx: Context { umask: Mode::empty(), ..Context::of(uid, gid) } }
    }

    /// The same directory for another user, whose only group of users has the same number.
    pub fn user(&self, uid: u32) -> Self {
        self.user_in(uid, uid, &[])
    }

    /// The same directory for another user in these groups of users.
    pub fn user_in(&self, uid: u32, gid: u32, groups: &[u32]) -> Self {
        let ctx = Context { umask: Mode::empty(), groups: groups.to_vec(), ..Context::of(uid, gid) };
        Tree { ctx, ..self.clone() }
    }

    /// The same with a umask.
    pub fn umask(&self, umask: u32) -> Self {
        let mut tree = self.clone();
        tree.ctx.umask = bits(umask);
        tree
    }

    /// The calls by path.
    pub fn paths(&self) -> Paths<'v, dyn Vfs + 'v> {
        Paths(self.vfs)
    }

    /// What a path names; symbolic links at its end are not followed.
    pub fn find(&self, path: impl AsRef<[u8]>) -> Result<Found<'v, dyn Vfs + 'v>> {
        self.paths().resolve(&self.ctx, self.at, path.as_ref(), false)
    }

    /// `lstat`.
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        let found = self.find(path)?;
        self.vfs.getattr(&self.ctx, found.ino())
    }

    /// `stat`.
    pub fn stat_followed(&self, path: impl AsRef<[u8]>) -> Result<Attr> {
        Ok(self.paths().resolve(&self.ctx, self.at, path.as_ref(), true)?.attr)
    }

    /// Whether there is something by that name.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        match self.stat(path) {
            Err(Errno::NOENT) => Ok(false),
            stat => stat.map(|_| true),
        }
    }

    /// `open`.
    pub fn open_with(&self, path: impl AsRef<[u8]>, flags: OFlags, mode: u32) -> Result<File<'v>> {
        let (found, handle) = self.paths().open(&self.ctx, self.at, path.as_ref(), flags, bits(mode))?;
        Ok(File { tree: self.clone(), ino: found.ino(), found, handle })
    }

    /// Opens what is there.
    pub fn open(&self, path: impl AsRef<[u8]>, flags: OFlags) -> Result<File<'v>> {
        self.open_with(path, flags, 0)
    }

    /// Makes an empty file, and opens it for reading and writing.
    pub fn create(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<File<'v>> {
        self.open_with(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// Makes a file with this content.
    pub fn file(&self, path: impl AsRef<[u8]>, mode: u32, content: &[u8]) -> Result<File<'v>> {
        let file = self.create(path, mode)?;
        file.write_all(0, content)?;
        Ok(file)
    }

    /// A file without a name.
    pub fn tmpfile(&self, dir: impl AsRef<[u8]>, flags: OFlags, mode: u32) -> Result<File<'v>> {
        let dir = self.find(dir)?;
        let (attr, handle) = self.vfs.tmpfile(&self.ctx, dir.ino(), flags, bits(mode))?;
        // Looking up would find nothing: the reference is held by hand.
        Ok(File { tree: self.clone(), ino: attr.ino, found: Found::counted(self.vfs, attr), handle })
    }

    /// The content of a file.
    pub fn content(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.open(path, OFlags::RDONLY)?.content()
    }

    /// `mkdir`.
    pub fn mkdir(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<Attr> {
        self.paths().mkdir(&self.ctx, self.at, path.as_ref(), bits(mode))
    }

    /// `mknod` of what is no device.
    pub fn mknod(&self, path: impl AsRef<[u8]>, kind: FileType, mode: u32) -> Result<Attr> {
        self.paths().mknod(&self.ctx, self.at, path.as_ref(), kind, bits(mode), 0)
    }

    /// `symlink`, the new name first.
    pub fn symlink(&self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Result<Attr> {
        self.paths().symlink(&self.ctx, self.at, path.as_ref(), target.as_ref())
    }

    /// `link`.
    pub fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<Attr> {
        self.paths().link(&self.ctx, self.at, old.as_ref(), new.as_ref(), false)
    }

    /// `readlink`.
    pub fn readlink(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.vfs.readlink(&self.ctx, self.find(path)?.ino())
    }

    /// `unlink`.
    pub fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        self.paths().unlink(&self.ctx, self.at, path.as_ref())
    }

    /// `rmdir`.
    pub fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        self.paths().rmdir(&self.ctx, self.at, path.as_ref())
    }

    /// `rename`.
    pub fn rename(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        self.rename_with(old, new, Rename::Replace)
    }

    /// `renameat2`.
    pub fn rename_with(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>, how: Rename) -> Result<()> {
        self.paths().rename(&self.ctx, self.at, old.as_ref(), new.as_ref(), how)
    }

    /// Changes attributes, of a symbolic link its own.
    pub fn setattr(&self, path: impl AsRef<[u8]>, change: SetAttr) -> Result<Attr> {
        self.vfs.setattr(&self.ctx, self.find(path)?.ino(), None, &change)
    }

    /// `chmod`.
    pub fn chmod(&self, path: impl AsRef<[u8]>, mode: u32) -> Result<Attr> {
        self.setattr(path, SetAttr { mode: Some(bits(mode)), ..SetAttr::default() })
    }

    /// `lchown`.
    pub fn chown(&self, path: impl AsRef<[u8]>, uid: Option<u32>, gid: Option<u32>) -> Result<Attr> {
        self.setattr(path, SetAttr { uid, gid, ..SetAttr::default() })
    }

    /// `truncate`.
    pub fn truncate(&self, path: impl AsRef<[u8]>, size: u64) -> Result<Attr> {
        self.setattr(path, SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// `utimensat`.
    pub fn utimes(&self, path: impl AsRef<[u8]>, atime: SetTime, mtime: SetTime) -> Result<Attr> {
        self.setattr(path, SetAttr { atime, mtime, ..SetAttr::default() })
    }

    /// `faccessat`.
    pub fn access(&self, path: impl AsRef<[u8]>, access: Access) -> Result<()> {
        self.vfs.access(&self.ctx, self.find(path)?.ino(), access)
    }

    /// `lsetxattr`.
    pub fn set_xattr(&self, path: impl AsRef<[u8]>, name: &str, value: &[u8]) -> Result<()> {
        self.set_xattr_with(path, name, value, SetXattr::Any)
    }

    /// `lsetxattr` with flags.
    pub fn set_xattr_with(&self, path: impl AsRef<[u8]>, name: &str, value: &[u8], how: SetXattr) -> Result<()> {
        self.vfs.setxattr(&self.ctx, self.find(path)?.ino(), name.as_bytes(), value, how)
    }

    /// `lgetxattr`.
    pub fn xattr(&self, path: impl AsRef<[u8]>, name: &str) -> Result<Vec<u8>> {
        self.vfs.getxattr(&self.ctx, self.find(path)?.ino(), name.as_bytes())
    }

    /// `llistxattr`, sorted, but for those that a security module of the host gives to every file.
    pub fn xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<String>> {
        let list = self.vfs.listxattr(&self.ctx, self.find(path)?.ino())?;
        let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        let mut names: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        names.retain(|name| !["security.selinux", "security.SMACK64"].contains(&name.as_str()));
        names.sort();
        Ok(names)
    }

    /// `lremovexattr`.
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: &str) -> Result<()> {
        self.vfs.removexattr(&self.ctx, self.find(path)?.ino(), name.as_bytes())
    }

    /// Reads from an open directory, at most so many names.
    pub fn read_open_dir(&self, dir: &Handle, mut offset: u64, most: usize) -> Result<Vec<Name>> {
        let mut names: Vec<Name> = Vec::new();
        loop {
            let before = names.len();
            self.vfs.readdir(&self.ctx, dir, offset, &mut |entry: Listed<'_>| {
                if names.len() == most {
                    return false;
                }
                let Listed { ino, next, kind, name } = entry;
                names.push(Name { name: name.to_vec(), ino, kind, next });
                true
            })?;
            if names.len() == before || names.len() == most {
                return Ok(names);
            }
            offset = names[names.len() - 1].next;
        }
    }

    /// All names of a directory, sorted, without `.` and `..`.
    pub fn names(&self, path: impl AsRef<[u8]>) -> Result<Vec<Name>> {
        let mut names = self.with_dir(path, |dir| self.read_open_dir(dir, 0, usize::MAX))?;
        names.retain(|name| name.name != b"." && name.name != b"..");
        names.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(names)
    }

    /// Does something with a directory that is open.
    pub fn with_dir<T>(&self, path: impl AsRef<[u8]>, work: impl FnOnce(&Handle) -> Result<T>) -> Result<T> {
        let dir = self.find(path)?;
        let handle = self.vfs.opendir(&self.ctx, dir.ino())?;
        let done = work(&handle);
        self.vfs.releasedir(&self.ctx, handle)?;
        done
    }

    /// Removes something with all that is in it.
    pub fn remove(&self, path: &[u8]) -> Result<()> {
        if self.stat(path)?.kind != FileType::Directory {
            return self.unlink(path);
        }
        for name in self.names(path)? {
            // By the directory's number: the path of what lies deep is longer than a path may be.
            let dir = self.find(path)?;
            Tree { at: dir.ino(), ..self.clone() }.remove(&name.name)?;
        }
        self.rmdir(path)
    }
}

/// An open file, closed when it is dropped.
pub struct File<'v> {
    tree: Tree<'v>,
    /// Its number.
    pub ino: Ino,
    /// Its handle.
    pub handle: Handle,
    #[expect(dead_code, reason = "it refers to the inode")]
    found: Found<'v, dyn Vfs + 'v>,
}

impl<'v> File<'v> {
    /// The same open file for another user.
    pub fn by<T>(&self, tree: &Tree<'v>, call: impl FnOnce(&dyn Vfs, &Context, &Handle) -> T) -> T {
        call(self.tree.vfs, &tree.ctx, &self.handle)
    }

    /// `fstat`.
    pub fn stat(&self) -> Result<Attr> {
        self.tree.vfs.getattr(&self.tree.ctx, self.ino)
    }

    /// `pread`: as much as there is of it.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut buf = vec![0xee; len];
        let read = self.tree.vfs.read(&self.tree.ctx, &self.handle, offset, &mut buf)?;
        buf.truncate(read);
        Ok(buf)
    }

    /// Everything in it.
    pub fn content(&self) -> Result<Vec<u8>> {
        self.read(0, self.stat()?.size as usize + 1)
    }

    /// `pwrite`.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.tree.vfs.write(&self.tree.ctx, &self.handle, offset, data)
    }

    /// `pwrite`, to the end.
    pub fn write_all(&self, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.write(offset, data)?;
        if written == data.len() { Ok(()) } else { Err(Errno::NOSPC) }
    }

    /// Writes at the end.
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        self.tree.vfs.append(&self.tree.ctx, &self.handle, data)
    }

    /// `ftruncate`.
    pub fn truncate(&self, size: u64) -> Result<Attr> {
        let change = SetAttr { size: Some(size), ..SetAttr::default() };
        self.tree.vfs.setattr(&self.tree.ctx, self.ino, Some(&self.handle), &change)
    }

    /// `futimens`.
    pub fn utimes(&self, atime: SetTime, mtime: SetTime) -> Result<Attr> {
        let change = SetAttr { atime, mtime, ..SetAttr::default() };
        self.tree.vfs.setattr(&self.tree.ctx, self.ino, None, &change)
    }

    /// `fallocate`.
    pub fn allocate(&self, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.tree.vfs.fallocate(&self.tree.ctx, &self.handle, how, offset, len)
    }

    /// `lseek` for data or holes.
    pub fn seek(&self, seek: Seek) -> Result<u64> {
        self.tree.vfs.seek(&self.tree.ctx, &self.handle, seek)
    }

    /// `copy_file_range`, from this one.
    pub fn copy_to(&self, offset: u64, to: &File<'_>, to_offset: u64, len: usize) -> Result<usize> {
        self.tree.vfs.copy_file_range(&self.tree.ctx, &self.handle, offset, &to.handle, to_offset, len)
    }

    /// `fsync`.
    pub fn fsync(&self) -> Result<()> {
        self.tree.vfs.fsync(&self.tree.ctx, &self.handle)
    }

    /// `fdatasync`.
    pub fn fdatasync(&self) -> Result<()> {
        self.tree.vfs.fdatasync(&self.tree.ctx, &self.handle)
    }

    /// `fatomic`, or `fdataatomic`.
    pub fn fatomic(&self, data_only: bool) -> Result<()> {
        self.tree.vfs.fatomic(&self.tree.ctx, &self.handle, data_only)
    }

    /// Gives it a name.
    pub fn link_as(&self, name: &str) -> Result<Attr> {
        let attr = self.tree.vfs.link(&self.tree.ctx, self.ino, self.tree.at, name.as_bytes())?;
        self.tree.vfs.forget(attr.ino, 1);
        Ok(attr)
    }
}

impl Drop for File<'_> {
    fn drop(&mut self) {
        // Who wants to know what a close says closes by hand.
        let _ = self.tree.vfs.release(&self.tree.ctx, self.handle.clone());
    }
}
