//! The calls by which a store reaches its directory.

use crate::{At, HostNames};
use std::sync::Arc;
use wholly_media::{Guarantees, Region, Result, Site};
use wholly_vfs::{Fallocate, Stat};

/// The space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many are free.
    pub free_blocks: u64,
    /// How many are free for other users than the superuser.
    pub available_blocks: u64,
    /// How many the calling process can use, as far as that is known.
    pub usable_blocks: u64,
    /// How many inodes there can be; 0 where nobody counts them.
    pub inodes: u64,
    /// How many more there can be.
    pub free_inodes: u64,
}

/// The calls by which a store reaches its directory.
///
/// Paths are relative to the directory, their parts separated by `/`, without a leading `/`; the empty path is the
/// directory itself. They are resolved beneath the directory: a `..` that would leave it, or another file system
/// mounted below it, is refused with `EXDEV`; so is a file of another subvolume or snapshot. They lead through
/// directories alone: a symbolic link on the way is none (`ENOTDIR`), and to open one is `ELOOP`. Nothing can be raced
/// out of it.
///
/// Nothing survives a crash until [`HostFile::sync`], [`sync_dir`](Self::sync_dir) or [`sync_all`](Self::sync_all)
/// returned.
pub trait HostFs: HostNames {
    /// What the files of this directory may do at a crash.
    fn guarantees(&self) -> &Guarantees;

    /// The time in ns since the epoch, as the file system would give it to a change now.
    fn now_ns(&self) -> i64;

    /// Opens an existing file for reading and writing, or only for reading where `write` is not asked for.
    fn open(&self, path: &[u8], write: bool) -> Result<Arc<dyn HostFile>>;

    /// Opens an existing file of the calling user's own for reading and writing, also where its permission bits forbid
    /// that. They are the same when this returns; its time of change is not.
    ///
    /// # Errors
    /// Those of `open`; `EACCES` where it is somebody else's.
    fn open_own(&self, path: &[u8]) -> Result<Arc<dyn HostFile>>;

    /// What `path` names, a symbolic link at its end not followed.
    fn stat(&self, path: &[u8]) -> Result<Stat>;

    /// Where a first change gives an object another inode, as overlays do with what lies in a lower layer: makes it
    /// have that one. Tells how it lies then; `None` where inodes last.
    ///
    /// # Errors
    /// `ESTALE` where another object is there.
    fn settle(&self, at: At<'_>) -> Result<Option<Stat>>;

    /// Whether to move what is there means to copy it, as on overlays what lies in a lower layer.
    fn copies_up(&self) -> bool;

    /// Where a directory takes in only what belongs to its own project, for quotas: lets this one take in anything, if
    /// that can be had. What is made in it then belongs to none.
    fn admit_all_projects(&self, site: Site, path: &[u8]);

    /// Bytes of the largest file that the calling process may have there.
    fn largest_file(&self) -> u64;

    /// How many names a file may have, where that is known.
    fn most_links(&self) -> u32;

    /// Whether a symbolic link may have a target of so many bytes, as far as that is known.
    fn takes_target(&self, length: usize) -> bool;

    /// Whether the host has room for extended attributes of one object that are set, or removed where there is no
    /// value, in this order. It is tried on a file without a name, if the host has such files; else nothing is known to
    /// be too much.
    ///
    /// # Errors
    /// That with which the host refuses them.
    fn try_xattrs(&self, steps: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<()>;

    /// How much space there is, and how much of it is free.
    fn space(&self) -> Result<Space>;

    /// Whether files can share blocks, so that [`HostFile::write_from`] need not write the bytes again.
    fn shares_blocks(&self) -> bool;

    /// Makes a regular file without a name in the directory `parent`, to be given one by [`link`](Self::link) or to
    /// vanish when closed. `mode` are permission bits; the process's umask is not applied.
    fn create_unnamed(&self, site: Site, parent: &[u8], mode: u32) -> Result<Arc<dyn HostFile>>;

    /// Gives a file made by [`create_unnamed`](Self::create_unnamed) its name.
    ///
    /// # Errors
    /// `EEXIST` where the name is taken.
    fn link(&self, site: Site, file: &dyn HostFile, path: &[u8]) -> Result<()>;

    /// Makes the names in the directory `path`, and its attributes, survive a crash (`fsync` of a directory).
    fn sync_dir(&self, site: Site, path: &[u8]) -> Result<()>;

    /// Makes everything on this file system survive a crash (`syncfs`). Returns an error if any write-back has failed
    /// since the directory was opened.
    fn sync_all(&self, site: Site) -> Result<()>;
}

/// An open regular file of a host directory.
pub trait HostFile: Send + Sync {
    /// Identity, size and times.
    fn stat(&self) -> Result<Stat>;

    /// Reads up to `buf.len()` bytes from `offset`; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes all of `data` at `offset`, growing the file where needed.
    fn write_at(&self, site: Site, offset: u64, data: &[u8]) -> Result<()>;

    /// Writes `len` bytes of `source`, another file of this directory, from `from` on at `offset`. Where the host can,
    /// whole blocks that lie alike in theirs are shared until one of the files changes, rather than copied. `source` is
    /// not changed meanwhile.
    ///
    /// # Errors
    /// Those of reading and writing; `EXDEV` where the file is none of this directory's, `EIO` where `source` ends
    /// before.
    fn write_from(&self, site: Site, offset: u64, source: &dyn HostFile, from: u64, len: u64) -> Result<()>;

    /// Makes the file `len` bytes long; new bytes are zero.
    fn set_len(&self, site: Site, len: u64) -> Result<()>;

    /// Changes what blocks a range of bytes has.
    ///
    /// # Errors
    /// `EINVAL` for an empty range; `EOPNOTSUPP` where the file system cannot.
    fn fallocate(&self, site: Site, how: Fallocate, offset: u64, len: u64) -> Result<()>;

    /// Allocates the blocks of a range, which may be empty, without changing size or content, so that stores into a
    /// mapping of it cannot fail.
    fn allocate(&self, site: Site, offset: u64, len: u64) -> Result<()> {
        if len == 0 { Ok(()) } else { self.fallocate(site, Fallocate::Keep, offset, len) }
    }

    /// The first byte at or behind `offset` that is in no hole; none where there is only a hole before the end. What is
    /// allocated and was not written may count as a hole or not.
    fn next_data(&self, offset: u64) -> Result<Option<u64>>;

    /// The first byte at or behind `offset` that is in a hole, as which the end of the file counts; none at the end and
    /// behind it.
    fn next_hole(&self, offset: u64) -> Result<Option<u64>>;

    /// The ranges of bytes, in order, that have space and no data, which `fallocate` has reserved; none where the file
    /// system does not tell.
    fn reserved(&self) -> Result<Vec<(u64, u64)>> {
        Ok(Vec::new())
    }

    /// Sets the times of the last access and the last change of content, in ns since the epoch, as far as they are
    /// given.
    fn set_times(&self, site: Site, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()>;

    /// Makes content, size and attributes survive a crash (`fsync`).
    ///
    /// # Errors
    /// After an error nothing is known of what was written since the last sync that succeeded; it must not be retried.
    fn sync(&self, site: Site) -> Result<()>;

    /// The first `len` bytes of the file as a region of persistent memory, `None` where the medium is not
    /// byte-addressable, or there is no address space for so many. `len` may lie beyond the end of the file; only bytes
    /// inside the file may be touched. The region's [`set_len`](Region::set_len) is not supported.
    fn map(&self, len: u64) -> Result<Option<Arc<dyn Region>>>;

    /// Whether it was opened for writing.
    fn is_writable(&self) -> bool {
        true
    }

    /// For a medium to recognise its own files.
    fn as_any(&self) -> &dyn std::any::Any;
}
