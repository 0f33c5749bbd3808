//! Open regular files of [`Calls`].

use std::sync::{Arc, OnceLock};

use wholly_error::{Error, Result};

use super::calls::{me, named, stat_of};
use super::{AcrossForks, Calls, Context, Errno, Fallocate, Handle, Ino, Mode, OFlags, Paths, SetAttr, Stat};

/// An open regular file. A child after `fork` that takes the store or volume over opens it again by its path.
pub struct File<V: AcrossForks> {
    vfs: Arc<V>,
    /// Referred to as long as the file is open.
    ino: Ino,
    /// The same inode, for ever.
    id: (u64, u64),
    handle: Handle,
    /// As it was opened.
    path: Box<[u8]>,
    /// In a child that took the store or volume over: the same file, opened again.
    heir: OnceLock<Box<File<V>>>,
}

impl<V: AcrossForks> std::fmt::Debug for File<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("ino", &self.ino.0).finish_non_exhaustive()
    }
}

/// Calls on an open file, in a group or outside.
pub(super) struct FileCalls<'f, V: AcrossForks> {
    file: &'f File<V>,
    ctx: Context,
}

impl<V: AcrossForks> FileCalls<'_, V> {
    fn done<T>(&self, result: std::result::Result<T, Errno>) -> Result<T> {
        let file = self.file;
        result.map_err(|errno| named(&*file.vfs, format!("inode {}", file.ino.0).as_bytes(), errno))
    }

    pub fn metadata(&self) -> Result<Stat> {
        self.done(self.file.vfs.getattr(&self.ctx, self.file.ino).map(|attr| stat_of(&attr)))
    }

    pub fn add(&self) -> Result<()> {
        let group = self.ctx.group.ok_or_else(|| Error::Invalid("there is no group to add a file to".into()))?;
        self.file.vfs.add(group, &self.file.handle)
    }

    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let ctx = Context { group: self.ctx.group, ..Context::superuser() };
        self.done(self.file.vfs.read(&ctx, &self.file.handle, offset, buf))
    }

    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let written = self.done(self.file.vfs.write(&self.ctx, &self.file.handle, offset, data))?;
        self.all((), written, data)
    }

    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let (offset, written) = self.done(self.file.vfs.append(&self.ctx, &self.file.handle, data))?;
        self.all(offset, written, data)
    }

    pub fn sync(&self) -> Result<()> {
        self.done(self.file.vfs.fsync(&self.ctx, &self.file.handle))
    }

    pub fn fatomic(&self, data_only: bool) -> Result<()> {
        self.done(self.file.vfs.fatomic(&self.ctx, &self.file.handle, data_only))
    }

    fn all<T>(&self, value: T, written: usize, data: &[u8]) -> Result<T> {
        match data.len() - written {
            0 => Ok(value),
            left => Err(Error::NoSpace(format!("{left} bytes of {}", data.len()))),
        }
    }

    pub fn set_len(&self, length: u64) -> Result<()> {
        let change = SetAttr { size: Some(length), ..SetAttr::default() };
        self.done(self.file.vfs.setattr(&self.ctx, self.file.ino, Some(&self.file.handle), &change).map(drop))
    }

    pub fn fallocate(&self, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.done(self.file.vfs.fallocate(&self.ctx, &self.file.handle, how, offset, length))
    }
}

impl<V: AcrossForks> File<V> {
    /// Opens a file.
    pub(super) fn open(
        vfs: &Arc<V>,
        ctx: &Context,
        path: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> std::result::Result<Self, Errno> {
        let (found, handle) = Paths(&**vfs).open(ctx, Ino::ROOT, path, flags, mode)?;
        let id = vfs.identity(&handle).inspect_err(|_| _ = vfs.release(ctx, handle.clone()))?;
        let ino = found.into_counted().ino;
        Ok(File { vfs: vfs.clone(), ino, id, handle, path: path.into(), heir: OnceLock::new() })
    }

    /// Calls on the file in a group.
    pub(super) fn within(&self, calls: &Calls<V>) -> Result<FileCalls<'_, V>> {
        let group = calls.own_group()?;
        if !Arc::ptr_eq(&self.vfs, calls.vfs()) {
            return Err(Error::Invalid("the file is another store's or volume's".into()));
        }
        Ok(FileCalls { file: self.here()?, ctx: Context { group, ..me() } })
    }

    fn alone(&self) -> Result<FileCalls<'_, V>> {
        Ok(FileCalls { file: self.here()?, ctx: me() })
    }

    /// The file as this process has it open.
    fn here(&self) -> Result<&File<V>> {
        if self.vfs.has_given(self.handle.number()) {
            return Ok(self);
        }
        if let Some(heir) = self.heir.get() {
            return heir.here();
        }
        // Whether it may be opened was asked before the fork.
        let again = match File::open(&self.vfs, &Context::superuser(), &self.path, OFlags::RDWR, Mode::empty()) {
            Ok(again) if again.id == self.id => again,
            Ok(_) | Err(Errno::NOENT) => {
                let path = String::from_utf8_lossy(&self.path);
                return Err(Error::NotFound(format!("{path}: the file that was opened there before a fork")));
            }
            Err(errno) => return Err(named(&*self.vfs, &self.path, errno)),
        };
        self.heir.get_or_init(|| Box::new(again)).here()
    }

    /// What is known of the file.
    ///
    /// # Errors
    /// If its metadata is damaged.
    pub fn metadata(&self) -> Result<Stat> {
        self.alone()?.metadata()
    }

    /// Reads up to `buf.len()` bytes at `offset`. Returns how many; fewer only at the end of the file.
    ///
    /// # Errors
    /// Those of `pread`.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.alone()?.read_at(offset, buf)
    }

    /// Writes `data` at the byte `offset`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if not all of it could be written; those of `pwrite`.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.alone()?.write_at(offset, data)
    }

    /// Writes `data` at the end of the file. Returns the offset at which the data begins.
    ///
    /// # Errors
    /// Those of [`write_at`](Self::write_at).
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.alone()?.append(data)
    }

    /// Sets the length of the file to `length` bytes.
    ///
    /// # Errors
    /// Those of `ftruncate`.
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.alone()?.set_len(length)
    }

    /// Changes the space of a range.
    ///
    /// # Errors
    /// Those of `fallocate`.
    pub fn fallocate(&self, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.alone()?.fallocate(how, offset, length)
    }

    /// Makes the file durable.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed.
    pub fn sync(&self) -> Result<()> {
        self.alone()?.sync()
    }

    /// Makes the calls on this file so far atomic and ordered, without waiting for the medium where the engine of a
    /// volume can do so (`op_log`, `page_cache_wal`): a crash leaves all of them or none, and no later change without
    /// them. A later sync makes them durable. Elsewhere it is a [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`Error::Poisoned`] if the medium failed before. If it fails later, the next sync says so.
    pub fn fatomic(&self) -> Result<()> {
        self.alone()?.fatomic(false)
    }

    /// Like [`fatomic`](Self::fatomic), for what is needed to read the data: without times.
    ///
    /// # Errors
    /// Those of [`fatomic`](Self::fatomic).
    pub fn fdataatomic(&self) -> Result<()> {
        self.alone()?.fatomic(true)
    }
}

impl<V: AcrossForks> Drop for File<V> {
    fn drop(&mut self) {
        let _ = self.vfs.release(&me(), self.handle.clone());
        // A child does not give back what its parent has.
        if self.vfs.has_given(self.handle.number()) {
            self.vfs.forget(self.ino, 1);
        }
    }
}
