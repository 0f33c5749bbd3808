//! Calls on the group: the store by paths below, with the references that they take.

use std::collections::HashMap;

use rustix::io::Errno;
use wholly::StoreVfs;
use wholly_vfs::{Attr, Context, GroupId, Ino, Mode, Rename, SetAttr, SetTime, Vfs};

use crate::deep;
use crate::error::{Error, Result, show};
use crate::host::{Path, Stat, split};

/// Says which call failed, and on what.
pub(crate) trait OnGroup<T> {
    /// See the trait.
    fn of(self, call: &'static str, path: &[u8]) -> Result<T>;
}

impl<T> OnGroup<T> for wholly_vfs::Result<T> {
    fn of(self, call: &'static str, path: &[u8]) -> Result<T> {
        self.map_err(|errno| Error::Call { call, path: show(path), errno })
    }
}

/// A group that calls are made on.
pub(crate) struct Group<'v> {
    pub vfs: &'v StoreVfs,
    pub id: GroupId,
    /// What is referred to until the end.
    held: Vec<Ino>,
    /// Directories by the paths that they had at first. They stay themselves, whatever becomes of the paths.
    dirs: HashMap<Path, Ino>,
}

impl<'v> Group<'v> {
    pub fn new(vfs: &'v StoreVfs, id: GroupId) -> Self {
        let dirs = HashMap::from([(Path::new(), Ino::ROOT)]);
        Group { vfs, id, held: Vec::new(), dirs }
    }

    /// Calls of the superuser; what is made belongs to whom it belongs in the layer. The kernel has decided what the
    /// command may do.
    pub fn context(&self, uid: u32, gid: u32) -> Context {
        Context { umask: Mode::empty(), is_permitted: true, group: Some(self.id), ..Context::of(uid, gid) }
    }

    pub fn superuser(&self) -> Context {
        self.context(0, 0)
    }

    pub fn hold(&mut self, ino: Ino) -> Ino {
        self.held.push(ino);
        ino
    }

    /// What a name names, referred to until the end; `None` for nothing.
    pub fn find(&mut self, dir: Ino, name: &[u8], path: &[u8]) -> Result<Option<Attr>> {
        match self.vfs.lookup(&self.superuser(), dir, name) {
            Ok(attr) => {
                self.hold(attr.ino);
                Ok(Some(attr))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno).of("lookup", path),
        }
    }

    /// The same of what must be there.
    pub fn get(&mut self, dir: Ino, name: &[u8], path: &[u8]) -> Result<Ino> {
        match self.find(dir, name, path)? {
            Some(attr) => Ok(attr.ino),
            None => Err(Errno::NOENT).of("lookup", path),
        }
    }

    /// A directory by the path that it had at first. To be asked first before it gets another.
    pub fn dir(&mut self, path: &[u8]) -> Result<Option<Ino>> {
        if let Some(ino) = self.dirs.get(path) {
            return Ok(Some(*ino));
        }
        let (above, name) = split(path);
        let Some(above) = deep(|| self.dir(above))? else { return Ok(None) };
        let Some(found) = self.find(above, name, path)? else { return Ok(None) };
        self.dirs.insert(path.to_vec(), found.ino);
        Ok(Some(found.ino))
    }

    /// What has a path at first.
    pub fn at(&mut self, path: &[u8]) -> Result<Option<Ino>> {
        let (above, name) = split(path);
        match self.dir(above)? {
            _ if path.is_empty() => Ok(Some(Ino::ROOT)),
            Some(dir) => Ok(self.find(dir, name, path)?.map(|attr| attr.ino)),
            None => Ok(None),
        }
    }

    pub fn rename(&self, (from, name): (Ino, &[u8]), (to, new_name): (Ino, &[u8]), path: &[u8]) -> Result<()> {
        self.vfs.rename(&self.superuser(), from, name, to, new_name, Rename::NoReplace).of("rename", path)
    }

    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8], path: &[u8]) -> Result<()> {
        let attr = self.vfs.link(&self.superuser(), ino, dir, name).of("link", path)?;
        self.vfs.forget(attr.ino, 1);
        Ok(())
    }

    /// Takes a name away, with all that is below it.
    pub fn remove(&self, dir: Ino, name: &[u8], path: &[u8]) -> Result<()> {
        let ctx = self.superuser();
        match self.vfs.unlink(&ctx, dir, name) {
            Err(Errno::ISDIR) => {}
            Err(Errno::NOENT) => return Ok(()),
            removed => return removed.of("unlink", path),
        }
        let attr = self.vfs.lookup(&ctx, dir, name).of("lookup", path)?;
        let emptied = self.empty(attr.ino, path);
        self.vfs.forget(attr.ino, 1);
        emptied?;
        self.vfs.rmdir(&ctx, dir, name).of("rmdir", path)
    }

    fn empty(&self, dir: Ino, path: &[u8]) -> Result<()> {
        for name in self.names(dir, path)? {
            deep(|| self.remove(dir, &name, &crate::host::join(path, &name)))?;
        }
        Ok(())
    }

    /// The names in a directory.
    pub fn names(&self, dir: Ino, path: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (ctx, mut names) = (self.superuser(), Vec::new());
        let handle = self.vfs.opendir(&ctx, dir).of("opendir", path)?;
        let read = self.vfs.readdir(&ctx, &handle, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push(entry.name.to_vec());
            }
            true
        });
        self.vfs.releasedir(&ctx, handle).of("releasedir", path)?;
        read.of("readdir", path)?;
        Ok(names)
    }

    /// See [`StoreVfs::look_once`].
    pub fn look_once(&self, begins: bool) -> Result<()> {
        self.vfs.look_once(self.id, begins).map_err(|error| Error::Store { path: show(b""), error })
    }

    pub fn attributes(&self, ino: Ino, path: &[u8]) -> Result<Attr> {
        self.vfs.getattr(&self.superuser(), ino).of("getattr", path)
    }

    pub fn set(&self, ino: Ino, change: &SetAttr, path: &[u8]) -> Result<()> {
        self.vfs.setattr(&self.superuser(), ino, None, change).of("setattr", path).map(drop)
    }

    pub fn set_times(&self, ino: Ino, stat: &Stat, path: &[u8]) -> Result<()> {
        let (atime, mtime) = (SetTime::At(stat.atime), SetTime::At(stat.mtime));
        self.set(ino, &SetAttr { atime, mtime, ..SetAttr::default() }, path)
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        self.held.iter().for_each(|ino| self.vfs.forget(*ino, 1));
    }
}
