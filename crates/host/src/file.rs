//! An open regular file of a host directory.

use super::dir::Pmem;
use super::names::{link_itself, timestamps};
use crate::HostFile;
use crate::sys::{self, OrFail, reserved_in, show};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, RenameFlags, SeekFrom, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use wholly_media::{
    Error, Region, Result, Site,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_vfs::{Fallocate, Stat};

/// Bytes of a block of most file systems that can share them. Where blocks are larger, all is copied.
pub(super) const BLOCK: u64 = 4096;

/// Bytes that are copied at a time where the kernel does not.
const PIECE: usize = 64 << 10;

/// Whether the kernel, or who stands before it, refuses the call rather than the copy.
fn is_not_for_copies(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP | Errno::XDEV)
}

/// A regular file of a [`HostDir`](super::HostDir).
#[derive(Debug)]
pub struct OrdinaryFile {
    fd: OwnedFd,
    /// What it was opened as, for errors.
    path: Vec<u8>,
    writable: bool,
    /// How the directory's files are mapped; `None` on disks.
    pmem: Option<Arc<Pmem>>,
    /// The name it bears until it is linked, where the file system has no files without names.
    unnamed: Mutex<Option<Unnamed>>,
}

/// A file that stands in for one without a name.
#[derive(Debug)]
pub(super) struct Unnamed {
    /// The folder for such files.
    pub folder: OwnedFd,
    /// Empty once it is no longer there.
    pub name: String,
    /// The process that made it.
    pub maker: rustix::process::Pid,
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        // A child that was forked meanwhile has no part in it.
        if !self.name.is_empty() && self.maker == rustix::process::getpid() {
            // Nobody waits for it; what a crash leaves in the folder is cleared by the next owner.
            let _ = rustix::fs::unlinkat(&self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

impl OrdinaryFile {
    pub(super) fn new(
        fd: OwnedFd,
        path: &[u8],
        writable: bool,
        pmem: Option<Arc<Pmem>>,
        unnamed: Option<Unnamed>,
    ) -> OrdinaryFile {
        OrdinaryFile { fd, path: path.to_vec(), writable, pmem, unnamed: Mutex::new(unnamed) }
    }

    /// The descriptor, for calls that the traits do not have. Writes through it are seen by no recorder.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn name(&self) -> String {
        show(&self.path)
    }

    /// Gives the file the name `name` in the directory `parent`.
    pub(super) fn link_into(&self, parent: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<()> {
        let mut guard = self.unnamed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(unnamed) = &mut *guard {
            let old = unnamed.name.as_str();
            match rustix::fs::renameat_with(&unnamed.folder, old, parent, name, RenameFlags::NOREPLACE) {
                // The old name is no longer there to be removed.
                Ok(()) => unnamed.name.clear(),
                // Not known there. A second name never replaces one either, and the first goes below.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    rustix::fs::linkat(&unnamed.folder, old, parent, name, AtFlags::empty())?;
                }
                Err(errno) => return Err(errno),
            }
            *guard = None;
            return Ok(());
        }
        drop(guard);
        link_itself(self.fd.as_fd(), parent, name)
    }
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Identity, size and times of an open file.
pub(super) fn stat(fd: BorrowedFd<'_>) -> rustix::io::Result<Stat> {
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, WANTED).map(|statx| stat_of(&statx))
}

/// The numbers of a device.
pub(super) type Device = (u32, u32);

/// The device that something lies on.
pub(super) fn device(fd: BorrowedFd<'_>) -> rustix::io::Result<Device> {
    rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::empty()).map(|statx| device_of(&statx))
}

fn device_of(statx: &Statx) -> Device {
    (statx.stx_dev_major, statx.stx_dev_minor)
}

/// What [`stat`] gives of what has a name in a directory on this device, a link itself; `None` where it is mounted
/// there, or on another device.
pub(super) fn stat_in(dir: BorrowedFd<'_>, device: Device, name: impl Arg) -> rustix::io::Result<Option<Stat>> {
    let statx = rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, WANTED)?;
    let is_mounted = statx.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) || device_of(&statx) != device;
    Ok((!is_mounted).then(|| stat_of(&statx)))
}

fn stat_of(statx: &Statx) -> Stat {
    let has_btime = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
    Stat {
        ino: statx.stx_ino,
        btime_ns: if has_btime { sys::nanoseconds(statx.stx_btime) } else { 0 },
        size: statx.stx_size,
        // statx counts in units of 512 bytes, whatever the file system's blocks.
        allocated: statx.stx_blocks * 512,
        atime_ns: sys::nanoseconds(statx.stx_atime),
        mtime_ns: sys::nanoseconds(statx.stx_mtime),
        ctime_ns: sys::nanoseconds(statx.stx_ctime),
        mode: u32::from(statx.stx_mode),
        nlink: statx.stx_nlink,
        uid: statx.stx_uid,
        gid: statx.stx_gid,
        rdev: rustix::fs::makedev(statx.stx_rdev_major, statx.stx_rdev_minor),
        is_immutable: statx.stx_attributes.contains(StatxAttributes::IMMUTABLE),
        is_append_only: statx.stx_attributes.contains(StatxAttributes::APPEND),
    }
}

impl OrdinaryFile {
    /// Nobody looks at where the descriptor stands.
    fn seek(&self, call: &'static str, to: SeekFrom) -> Result<Option<u64>> {
        match rustix::fs::seek(&self.fd, to) {
            Err(Errno::NXIO) => Ok(None),
            found => found.map(Some).or_fail(call, || self.name()),
        }
    }
}

impl HostFile for OrdinaryFile {
    fn stat(&self) -> Result<Stat> {
        stat(self.fd.as_fd()).or_fail("statx", || self.name())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let len = buf.len();
        sys::read_full_at(&self.fd, buf, offset).or_fail("read", || format!("{}, {len} bytes at {offset}", self.name()))
    }

    fn write_at(&self, _site: Site, offset: u64, data: &[u8]) -> Result<()> {
        sys::write_all_at(&self.fd, data, offset)
            .or_fail("write", || format!("{}, {} bytes at {offset}", self.name(), data.len()))
    }

    /// `copy_file_range` shares what it can. Where a range does not begin or end with a block, the kernel would copy
    /// all of it.
    fn write_from(&self, _site: Site, offset: u64, source: &dyn HostFile, from: u64, len: u64) -> Result<()> {
        let failed = |errno| Error::new("copy", format!("{}, {len} bytes to {offset}", self.name()), errno);
        let source = source.as_any().downcast_ref::<OrdinaryFile>().ok_or_else(|| failed(Errno::XDEV))?;
        let mut done = 0;
        while done < len {
            let (mut at, mut to, left) = (from + done, offset + done, len - done);
            let part = match (to.next_multiple_of(BLOCK) - to, left / BLOCK * BLOCK) {
                (0, 0) => left,
                (0, whole) => whole,
                (head, _) => head.min(left),
            };
            match rustix::fs::copy_file_range(&source.fd, Some(&mut at), &self.fd, Some(&mut to), part as usize) {
                Ok(0) => return Err(failed(Errno::IO)),
                Ok(copied) => done += copied as u64,
                Err(Errno::INTR) => {}
                Err(errno) if is_not_for_copies(errno) => {
                    let part = left.min(PIECE as u64) as usize;
                    let mut buffer = vec![0; part];
                    if source.read_at(from + done, &mut buffer)? < part {
                        return Err(failed(Errno::IO));
                    }
                    sys::write_all_at(&self.fd, &buffer, to).map_err(failed)?;
                    done += part as u64;
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(())
    }

    fn set_len(&self, _site: Site, len: u64) -> Result<()> {
        rustix::fs::ftruncate(&self.fd, len).or_fail("ftruncate", || format!("{} to {len} bytes", self.name()))
    }

    fn fallocate(&self, _site: Site, how: Fallocate, offset: u64, len: u64) -> Result<()> {
        sys::allocate(&self.fd, FallocateFlags::from_bits_retain(how.flags()), offset, len)
            .or_fail("fallocate", || format!("{}, {len} bytes at {offset}", self.name()))
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek("lseek for data", SeekFrom::Data(offset))
    }

    fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek("lseek for a hole", SeekFrom::Hole(offset))
    }

    fn reserved(&self) -> Result<Vec<(u64, u64)>> {
        match reserved_in(self.fd.as_fd()) {
            Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
            extents => extents.or_fail("ioctl", || self.name()),
        }
    }

    fn set_times(&self, _site: Site, atime_ns: Option<i64>, mtime_ns: Option<i64>) -> Result<()> {
        timestamps(self.fd.as_fd(), atime_ns, mtime_ns)
            .and_then(|times| rustix::fs::futimens(&self.fd, &times))
            .or_fail("futimens", || self.name())
    }

    fn sync(&self, _site: Site) -> Result<()> {
        rustix::fs::fsync(&self.fd).or_fail("fsync", || self.name())
    }

    fn map(&self, len: u64) -> Result<Option<Arc<dyn Region>>> {
        let Some(pmem) = &self.pmem else { return Ok(None) };
        let options = PmemOptions { name: self.name(), writable: self.writable, ..pmem.options.clone() };
        match PmemRegion::window(self.fd.as_fd(), len, options) {
            Ok(region) => Ok(Some(pmem.slow_down(region))),
            // Files may be longer than the address space is.
            Err(error) if error.errno == Errno::NOMEM => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// An error for what should have been a regular file.
pub(super) fn not_a_file(path: &[u8], mode: u32) -> Error {
    let is_directory = mode & 0o170_000 == 0o040_000;
    Error::new("open", show(path), if is_directory { Errno::ISDIR } else { Errno::INVAL })
}
