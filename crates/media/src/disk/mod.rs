//! A file or block device of today's disks.
//!
//! Disks keep a sector wholly or not at all and promise nothing about the order of writes between two flushes. A
//! [`DiskRegion`] offers two ways to make bytes survive: [`write`](Region::write) any number of times and one
//! [`fence`](Region::fence), or one [`write_through`](Region::write_through), which is several times cheaper where the
//! disk takes `O_DIRECT` and `RWF_DSYNC`.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the region: opening, growing, shrinking |
//! | `path.rs` | past the page cache or through it, and why never both |
//! | `aligned.rs` | memory that a disk reads without a copy |

mod aligned;
mod path;
#[cfg(test)]
mod tests;

pub use aligned::AlignedBuf;

use crate::sys::{self, FileSystem, OrFail};
use crate::{Error, Guarantees, Kind, PersistenceDomain, Region, Result, Site};
use path::{Alignment, Direct, Way};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, FileType, IFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The smallest unit that every disk keeps wholly or not at all.
const SECTOR: u32 = 512;

/// How much is zeroed by one write when a region grows.
const ZEROS: usize = 1 << 20;

/// What a region is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Use,
    Fill,
    Read,
}

/// A file or block device.
///
/// # What survives
/// Bytes survive a power failure once [`write_through`](Region::write_through) has returned, or once a
/// [`fence`](Region::fence) has returned that was called after [`write`](Region::write) had. Sectors of 512 bytes (of a
/// device: its own) are never torn. That the *name* of a new file survives is the business of its directory.
///
/// # Lengths
/// [`set_len`](Region::set_len) takes multiples of [`Guarantees::block`] and fails with `EINVAL` on others. A file
/// whose size is no multiple is used up to the last whole block.
///
/// # Example
/// ```
/// use wholly_media::{Region, Site, disk::{AlignedBuf, DiskRegion}};
/// # use rustix::fs::{Mode, OFlags};
/// # let dir = std::env::temp_dir();
/// # let dir = dir.to_str().unwrap();
/// # let mode = Mode::RUSR | Mode::WUSR;
/// # let file = rustix::fs::openat(rustix::fs::CWD, dir, OFlags::TMPFILE | OFlags::RDWR, mode).unwrap();
/// let region = DiskRegion::open(file, "log")?;
/// region.set_len(Site("log.grow"), 1 << 20)?;
/// let mut record = AlignedBuf::zeroed(4096);
/// record[..4].copy_from_slice(b"head");
/// region.write_through(Site("log.commit"), 8192, &record)?;
/// # Ok::<(), wholly_media::Error>(())
/// ```
#[derive(Debug)]
pub struct DiskRegion {
    /// As it was opened: through the page cache.
    cached: OwnedFd,
    /// Past the page cache, where the file takes that. All writes go there then.
    direct: Option<Direct>,
    way: Way,
    len: AtomicU64,
    /// Serialises changes of the length; holds nothing.
    resize: Mutex<()>,
    /// Held during each sync: the error with which one failed. Linux tells of a failed write-back once and drops the
    /// page: a sync beside it, or after it, would succeed.
    failed: Mutex<Option<Errno>>,
    /// A device cannot be made longer or shorter.
    device_len: Option<u64>,
    name: String,
    guarantees: Guarantees,
}

impl DiskRegion {
    /// Opens `file`, which must be open for reading and writing without `O_APPEND`. `name` is what it is called in
    /// errors.
    ///
    /// To learn whether the file takes direct synchronous writes, its first block is overwritten with its own bytes (of
    /// an empty file: written and cut off again). So the caller must own the file by then. If that block cannot be
    /// read, nothing is overwritten.
    ///
    /// # Errors
    /// Those of `statx` and of the first write; `EINVAL` for what is neither a file nor a block device.
    pub fn open(file: OwnedFd, name: impl Into<String>) -> Result<DiskRegion> {
        Self::open_for(Purpose::Use, file, name.into())
    }

    /// Takes `file`, which must be new, for a region that is filled and then opened anew. **Nothing that is done to it
    /// survives a crash**, whatever the calls say, until the caller has synced the file: once, where each call would
    /// wait for the disk by itself.
    ///
    /// # Errors
    /// Those of `statx`; `EINVAL` for what is neither a file nor a block device.
    pub fn fill(file: OwnedFd, name: impl Into<String>) -> Result<DiskRegion> {
        Self::open_for(Purpose::Fill, file, name.into())
    }

    /// Opens `file` to read it: the descriptor needs no right to write, and nothing of the file changes. Writes fail
    /// with `EBADF`.
    ///
    /// # Errors
    /// Those of `statx`; `EINVAL` for what is neither a file nor a block device.
    pub fn open_read_only(file: OwnedFd, name: impl Into<String>) -> Result<DiskRegion> {
        Self::open_for(Purpose::Read, file, name.into())
    }

    fn open_for(purpose: Purpose, file: OwnedFd, name: String) -> Result<DiskRegion> {
        let stat = rustix::fs::fstat(&file).or_fail("fstat", || &name)?;
        let file_system = FileSystem::of(&file)?;
        let device_len = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => None,
            FileType::BlockDevice => Some(sys::block_device_len(file.as_fd()).or_fail("BLKGETSIZE64", || &name)?),
            _ => return Err(Error::new("open region", name, Errno::INVAL)),
        };
        let file_len = device_len.unwrap_or(stat.st_size as u64);
        if purpose != Purpose::Read && file_system == FileSystem::Btrfs && device_len.is_none() && file_len == 0 {
            // Copy on write would move each overwritten block and make the extents of the log ever smaller. Only an
            // empty file can be told; where it is refused the log is slower and still right.
            let flags = rustix::fs::ioctl_getflags(&file).unwrap_or(IFlags::empty());
            let _ = rustix::fs::ioctl_setflags(&file, flags | IFlags::NOCOW);
        }
        let (alignment, takes_direct) = alignment_of(file.as_fd(), stat.st_blksize as u32, device_len.is_some());
        let block = u64::from(alignment.block);
        let (way, direct) = match purpose {
            Purpose::Read => (Way::ReadOnly, None),
            Purpose::Fill => (Way::Unsynced, None),
            Purpose::Use => {
                let direct = if takes_direct { reopen_direct(file.as_fd()) } else { None };
                let opened = direct.map(|fd| Direct::new(fd, alignment));
                probe(file.as_fd(), opened, alignment, file_len).or_fail("probe", || &name)?
            }
        };
        let (on, sector) = match device_len {
            Some(_) => ("a block device".to_string(), rustix::fs::ioctl_blksszget(&file).unwrap_or(SECTOR).max(SECTOR)),
            // What holds the file may have larger sectors; that its sectors are smaller cannot be.
            None => (file_system.to_string(), SECTOR),
        };
        let how = match way {
            Way::DirectDsync => "direct synchronous writes",
            Way::DirectThenSync => "direct writes and fdatasync",
            Way::CachedThenSync => "cached writes and fdatasync",
            Way::Unsynced => "cached writes that its maker syncs",
            Way::ReadOnly => "read only",
        };
        let emulated = file_system.is_memory() && device_len.is_none();
        let disk = if emulated { "disk, emulated on" } else { "disk on" };
        Ok(DiskRegion {
            cached: file,
            direct,
            way,
            len: AtomicU64::new(file_len - file_len % block),
            resize: Mutex::new(()),
            failed: Mutex::new(None),
            device_len,
            name,
            guarantees: Guarantees {
                kind: Kind::Disk,
                atomic_unit: sector,
                block: alignment.block,
                domain: PersistenceDomain::Device,
                emulated,
                description: format!("{disk} {on}, {how}"),
            },
        })
    }

    /// Whether [`write_through`](Region::write_through) is one synchronous write past the page cache.
    pub fn is_direct(&self) -> bool {
        self.way == Way::DirectDsync
    }

    fn check(&self, offset: u64, len: usize) {
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len());
        assert!(inside, "{len} bytes at {offset} of {}, which has {} bytes", self.name, self.len());
    }

    fn place(&self, offset: u64, len: usize) -> String {
        format!("{}, {len} bytes at {offset}", self.name)
    }

    fn sync_data(&self) -> Result<()> {
        self.sync_by(|file| rustix::fs::fdatasync(file)).or_fail("fdatasync", || &self.name)
    }

    /// Runs one sync at a time, and none after one that failed.
    fn sync_by(&self, sync: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<()>) -> rustix::io::Result<()> {
        if matches!(self.way, Way::Unsynced | Way::ReadOnly) {
            return Ok(());
        }
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(errno) = *failed {
            return Err(errno);
        }
        sync(self.cached.as_fd()).inspect_err(|errno| *failed = Some(*errno))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> rustix::io::Result<()> {
        match &self.direct {
            Some(direct) => direct.write(data, offset),
            None => sys::write_all_at(&self.cached, data, offset),
        }
    }

    /// Allocates `old..new`, writes zeros to it if that is asked for or needed, and syncs it.
    fn grow(&self, old: u64, new: u64, mut written: bool) -> Result<()> {
        let name = || format!("{} from {old} to {new} bytes", self.name);
        match self.device_len {
            Some(device_len) if new > device_len => return Err(Error::new("grow", name(), Errno::NOSPC)),
            Some(_) => written = true,
            None => {
                let flags = if written { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                if !written {
                    // Less than a block may follow.
                    rustix::fs::ftruncate(&self.cached, old).or_fail("ftruncate", name)?;
                }
                match sys::allocate(&self.cached, flags, old, new - old) {
                    // In one piece, and out of space before anything was written. Zeros follow where small writes will,
                    // since an extent that was only allocated costs them several times as much the first time.
                    Ok(()) => {}
                    Err(Errno::OPNOTSUPP | Errno::NOSYS) => written = true,
                    Err(errno) => {
                        let _ = rustix::fs::ftruncate(&self.cached, old);
                        return Err(Error::new("fallocate", name(), errno));
                    }
                }
            }
        }
        let zeroed = if written { self.write_zeros(old, new).or_fail("write", name) } else { Ok(()) };
        let grown = zeroed.and_then(|()| self.sync_by(|file| rustix::fs::fsync(file)).or_fail("fsync", name));
        if grown.is_err() && self.device_len.is_none() {
            // As before, as far as that can be had; the first error is the one to tell.
            let _ = rustix::fs::ftruncate(&self.cached, old);
        }
        grown
    }

    fn write_zeros(&self, from: u64, to: u64) -> rustix::io::Result<()> {
        let zeros = AlignedBuf::zeroed(ZEROS.min((to - from) as usize));
        (from..to).step_by(ZEROS).try_for_each(|at| self.write_at(at, &zeros[..(to - at).min(ZEROS as u64) as usize]))
    }

    fn change_len(&self, len: u64, written: bool) -> Result<()> {
        if !len.is_multiple_of(u64::from(self.guarantees.block)) {
            return Err(Error::new("set length of", format!("{} to {len} bytes", self.name), Errno::INVAL));
        }
        // A panic while it was held can only have been one of our own bounds; the length is still right.
        let _guard = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.len();
        if len > old {
            self.grow(old, len, written)?;
        }
        self.len.store(len, Ordering::Release);
        if len <= old && self.device_len.is_none() {
            let name = || format!("{} to {len} bytes", self.name);
            if len < old {
                rustix::fs::ftruncate(&self.cached, len).or_fail("ftruncate", name)?;
            }
            // Also where it is as long already: a process that died may have made it so and not have come to its sync.
            self.sync_by(|file| rustix::fs::fsync(file)).or_fail("fsync", name)?;
        }
        Ok(())
    }
}

impl Region for DiskRegion {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Through the page cache.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len());
        path::read_cached(&self.cached, buf, offset).or_fail("read", || self.place(offset, buf.len()))
    }

    /// Past the page cache where the file takes that; else synced, dropped from the cache as far as the kernel obeys,
    /// and read again.
    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len());
        let len = buf.len();
        if let Some(direct) = &self.direct {
            return direct.read(buf, offset).or_fail("read", || self.place(offset, len));
        }
        self.sync_data()?;
        let advice = rustix::fs::Advice::DontNeed;
        // Only advice: where it is not taken, the bytes in the cache are those that were just synced.
        let _ = rustix::fs::fadvise(&self.cached, offset, std::num::NonZeroU64::new(len as u64), advice);
        path::read_cached(&self.cached, buf, offset).or_fail("read", || self.place(offset, len))
    }

    /// A write without a barrier, in the same way as all others of this region (see `path.rs`).
    fn write(&self, _site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len());
        self.write_at(offset, data).or_fail("write", || self.place(offset, data.len()))
    }

    fn fence(&self, _site: Site) -> Result<()> {
        self.sync_data()
    }

    fn write_through(&self, _site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.check(offset, data.len());
        let block = u64::from(self.guarantees.block);
        assert!(
            offset.is_multiple_of(block) && (data.len() as u64).is_multiple_of(block),
            "{} bytes at {offset} of {} are no whole blocks of {block}",
            data.len(),
            self.name,
        );
        if let (Way::DirectDsync, Some(direct)) = (self.way, &self.direct) {
            return direct
                .write_blocks(data, offset, ReadWriteFlags::DSYNC)
                .or_fail("synchronous write", || self.place(offset, data.len()));
        }
        self.write_at(offset, data).or_fail("write", || self.place(offset, data.len()))?;
        self.sync_data()
    }

    fn set_len(&self, _site: Site, len: u64) -> Result<()> {
        self.change_len(len, true)
    }

    fn extend(&self, _site: Site, len: u64) -> Result<()> {
        self.change_len(len, false)
    }

    fn hand_over_holes(&self) -> Vec<Range<u64>> {
        if self.device_len.is_some() { Vec::new() } else { sys::holes(&self.cached, self.len()) }
    }

    fn allocate(&self, offset: u64, len: u64) -> bool {
        self.device_len.is_some() || sys::take_space(&self.cached, offset, len)
    }
}

/// What direct accesses to `file` must be multiples of, and whether it takes any.
fn alignment_of(file: BorrowedFd<'_>, block_size: u32, is_device: bool) -> (Alignment, bool) {
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN)
        .ok()
        .filter(|statx| statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
        .map(|statx| Alignment { block: statx.stx_dio_offset_align, memory: statx.stx_dio_mem_align });
    let sector = if is_device { rustix::fs::ioctl_blksszget(file).unwrap_or(SECTOR) } else { SECTOR };
    // A file system that does not tell takes its own blocks at page addresses, if it takes direct accesses at all.
    let guess = Alignment { block: block_size.clamp(SECTOR, 4096), memory: 4096 };
    // Zero is told where direct accesses would go through the page cache behind our back.
    let refused = told.is_some_and(|told| told.block == 0 || told.memory == 0);
    let Alignment { block, memory } = told.unwrap_or(guess);
    let block = block.max(sector).max(SECTOR).next_power_of_two();
    let memory = memory.max(1).next_power_of_two();
    // A bounce buffer begins at a page and is no longer than some blocks; no disk asks for more.
    let takes_direct = !refused && memory <= 4096 && block <= 1 << 16;
    (Alignment { block: if takes_direct { block } else { sector.max(SECTOR) }, memory }, takes_direct)
}

/// A second descriptor of the same file that goes past the page cache.
fn reopen_direct(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty()).ok()
}

/// Finds the best way that works, by overwriting the first block with itself.
fn probe(
    file: BorrowedFd<'_>,
    direct: Option<Direct>,
    alignment: Alignment,
    len: u64,
) -> rustix::io::Result<(Way, Option<Direct>)> {
    let Some(direct) = direct else {
        return Ok((Way::CachedThenSync, None));
    };
    let mut block = AlignedBuf::zeroed(alignment.block as usize);
    let was_empty = len < u64::from(alignment.block);
    let read = match was_empty {
        false => direct.read(&mut block, 0),
        // Less than a block is of no use to a region and was never written by one.
        true if len > 0 => Err(Errno::INVAL),
        true => Ok(()),
    };
    let way = way_of(read, |flags| direct.write_blocks(&block, 0, flags));
    if was_empty && len == 0 {
        rustix::fs::ftruncate(file, 0)?;
    }
    Ok(match way? {
        Way::CachedThenSync => (Way::CachedThenSync, None),
        way => (way, Some(direct)),
    })
}

/// The way that a direct read of a block, and direct writes of it, allow.
fn way_of(
    read: rustix::io::Result<()>,
    write: impl Fn(ReadWriteFlags) -> rustix::io::Result<()>,
) -> rustix::io::Result<Way> {
    let is_refused = |errno| matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL);
    match read {
        Ok(()) => {}
        Err(errno) if is_refused(errno) => return Ok(Way::CachedThenSync),
        // The block is lost, and the disk takes direct accesses. Nothing is written there, so this way needs no proof.
        Err(_) => return Ok(Way::DirectThenSync),
    }
    match write(ReadWriteFlags::DSYNC) {
        Ok(()) => return Ok(Way::DirectDsync),
        Err(errno) if is_refused(errno) => {}
        Err(errno) => return Err(errno),
    }
    match write(ReadWriteFlags::empty()) {
        Ok(()) => Ok(Way::DirectThenSync),
        Err(errno) if is_refused(errno) => Ok(Way::CachedThenSync),
        Err(errno) => Err(errno),
    }
}
