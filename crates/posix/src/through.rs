//! A [`Vfs`] whose calls are made with another context, and something done before each of them.

use wholly_vfs::{
    Access, Attr, Context, DirEntry, FallocateFlags, FileType, Handle, Ino, Mode, OFlags, RenameFlags, Result, Seek,
    SetAttr, StatFs, Vfs, XattrFlags,
};

/// Calls go through to another implementation, with the context that `before` makes of theirs.
pub struct Through<'v, F> {
    inner: &'v dyn Vfs,
    before: F,
}

impl<'v, F: Fn(&Context) -> Context + Send + Sync> Through<'v, F> {
    /// Calls `before` before each call but `forget`.
    pub fn new(inner: &'v dyn Vfs, before: F) -> Self {
        Through { inner, before }
    }
}

impl<F> std::fmt::Debug for Through<'_, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Through").finish_non_exhaustive()
    }
}

/// Each call as it is.
macro_rules! pass {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, ctx: &Context, $($arg: $type),*) -> $result {
            self.inner.$name(&(self.before)(ctx), $($arg),*)
        })*
    };
}

impl<F: Fn(&Context) -> Context + Send + Sync> Vfs for Through<'_, F> {
    fn forget(&self, ino: Ino, references: u64) {
        self.inner.forget(ino, references);
    }

    pass! {
        lookup(dir: Ino, name: &[u8]) -> Result<Attr>;
        getattr(ino: Ino) -> Result<Attr>;
        setattr(ino: Ino, handle: Option<Handle>, change: &SetAttr) -> Result<Attr>;
        access(ino: Ino, access: Access) -> Result<()>;
        readlink(ino: Ino) -> Result<Vec<u8>>;
        mknod(dir: Ino, name: &[u8], kind: FileType, mode: Mode, rdev: u64) -> Result<Attr>;
        mkdir(dir: Ino, name: &[u8], mode: Mode) -> Result<Attr>;
        symlink(dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr>;
        link(ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr>;
        unlink(dir: Ino, name: &[u8]) -> Result<()>;
        rmdir(dir: Ino, name: &[u8]) -> Result<()>;
        rename(from: Ino, name: &[u8], to: Ino, new_name: &[u8], flags: RenameFlags) -> Result<()>;
        open(ino: Ino, flags: OFlags) -> Result<Handle>;
        create(dir: Ino, name: &[u8], flags: OFlags, mode: Mode) -> Result<(Attr, Handle)>;
        tmpfile(dir: Ino, flags: OFlags, mode: Mode) -> Result<(Attr, Handle)>;
        read(handle: Handle, offset: u64, buf: &mut [u8]) -> Result<usize>;
        write(handle: Handle, offset: u64, data: &[u8]) -> Result<usize>;
        append(handle: Handle, data: &[u8]) -> Result<(u64, usize)>;
        copy_file_range(from: Handle, from_offset: u64, to: Handle, to_offset: u64, len: usize) -> Result<usize>;
        fallocate(handle: Handle, mode: FallocateFlags, offset: u64, len: u64) -> Result<()>;
        seek(handle: Handle, seek: Seek) -> Result<u64>;
        fsync(handle: Handle) -> Result<()>;
        fdatasync(handle: Handle) -> Result<()>;
        release(handle: Handle) -> Result<()>;
        opendir(dir: Ino) -> Result<Handle>;
        readdir(handle: Handle, offset: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()>;
        fsyncdir(handle: Handle) -> Result<()>;
        releasedir(handle: Handle) -> Result<()>;
        setxattr(ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<()>;
        getxattr(ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
        listxattr(ino: Ino) -> Result<Vec<u8>>;
        removexattr(ino: Ino, name: &[u8]) -> Result<()>;
        statfs(ino: Ino) -> Result<StatFs>;
    }

    fn sync(&self, ctx: &Context) -> Result<()> {
        self.inner.sync(&(self.before)(ctx))
    }
}
