//! How bytes go to and come from the disk: past the page cache or through it, and with which barrier.
//!
//! # One way for all writes
//!
//! Direct and cached writes of one file must not be mixed. A cached write keeps a whole page, 4 KiB, and writes all of
//! it back later: with it the old content of a sector that a direct write of another thread has replaced meanwhile.
//! Linux tries to drop the page, and cannot while it is dirty. A committed record would be gone without a trace.
//!
//! So **all writes of one region go the same way**, chosen when it is opened:
//!
//! - *direct* (`O_DIRECT`), where the file takes it. Blocks that a write covers in part are read, merged and written
//!   under a lock. Cached **reads** remain: Linux drops the pages of a range when a direct write to it completes, and
//!   pages that are never dirty can always be dropped; whoever reads after a write has returned sees it.
//! - *cached*, else (some network and layered file systems). Then the page cache is the only truth.

use super::AlignedBuf;
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};
use std::sync::{Mutex, PoisonError};

/// How a region writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Past the page cache; write-through is one write with `RWF_DSYNC`.
    DirectDsync,
    /// Past the page cache; write-through is a write and `fdatasync`.
    DirectThenSync,
    /// Through the page cache; write-through is a write and `fdatasync`.
    CachedThenSync,
    /// Through the page cache, and nothing is synced.
    Unsynced,
    /// Not at all.
    ReadOnly,
}

/// What direct accesses must be multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Offsets and lengths in the file, in bytes.
    pub block: u32,
    /// Addresses in memory.
    pub memory: u32,
}

/// A file opened past the page cache.
#[derive(Debug)]
pub(super) struct Direct {
    fd: OwnedFd,
    alignment: Alignment,
    /// Held while a block that is written in part is read, merged and written: two such writes may share a block.
    partial: Mutex<()>,
}

/// The most that one bounce buffer holds.
const BOUNCE: usize = 1 << 20;

impl Direct {
    pub fn new(fd: OwnedFd, alignment: Alignment) -> Direct {
        Direct { fd, alignment, partial: Mutex::new(()) }
    }

    /// Whether a buffer can be handed to the disk as it is.
    fn fits(&self, address: *const u8, len: usize, offset: u64) -> bool {
        (address as usize).is_multiple_of(self.alignment.memory as usize) && self.covers_blocks(offset, len)
    }

    fn covers_blocks(&self, offset: u64, len: usize) -> bool {
        let block = u64::from(self.alignment.block);
        offset.is_multiple_of(block) && (len as u64).is_multiple_of(block)
    }

    /// Fills `buf` from the disk. What lies past the end of the file comes out as zeros.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> rustix::io::Result<()> {
        if self.fits(buf.as_ptr(), buf.len(), offset) {
            let done = self.read_blocks(buf, offset)?;
            buf[done..].fill(0);
            return Ok(());
        }
        let block = u64::from(self.alignment.block);
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let skip = (at % block) as usize;
            let len = (skip + buf.len() - done).next_multiple_of(block as usize).min(BOUNCE);
            let mut bounce = AlignedBuf::zeroed(len);
            self.read_blocks(&mut bounce, at - skip as u64)?;
            let n = (len - skip).min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&bounce[skip..skip + n]);
            done += n;
        }
        Ok(())
    }

    /// Reads whole blocks; fewer bytes only at the end of the file.
    fn read_blocks(&self, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&self.fd, &mut buf[done..], offset + done as u64) {
                Ok(n) => {
                    done += n;
                    // A length that is no multiple of the block is the end of the file; going on from there would be
                    // refused as unaligned.
                    if n == 0 || !n.is_multiple_of(self.alignment.block as usize) {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }

    /// Writes any range, without a barrier.
    pub fn write(&self, data: &[u8], offset: u64) -> rustix::io::Result<()> {
        if self.covers_blocks(offset, data.len()) {
            return self.write_blocks(data, offset, ReadWriteFlags::empty());
        }
        let block = self.alignment.block as usize;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let skip = (at % block as u64) as usize;
            let left = data.len() - done;
            if skip == 0 && left >= block {
                let n = left - left % block;
                self.write_blocks(&data[done..done + n], at, ReadWriteFlags::empty())?;
                done += n;
                continue;
            }
            let n = (block - skip).min(left);
            let mut bounce = AlignedBuf::zeroed(block);
            // Nothing that is kept could be half changed by a panic.
            let _guard = self.partial.lock().unwrap_or_else(PoisonError::into_inner);
            self.read_blocks(&mut bounce, at - skip as u64)?;
            bounce[skip..skip + n].copy_from_slice(&data[done..done + n]);
            self.write_blocks(&bounce, at - skip as u64, ReadWriteFlags::empty())?;
            done += n;
        }
        Ok(())
    }

    /// Writes whole blocks; with `RWF_DSYNC` they survive when it returns.
    pub fn write_blocks(&self, data: &[u8], offset: u64, flags: ReadWriteFlags) -> rustix::io::Result<()> {
        if self.fits(data.as_ptr(), data.len(), offset) {
            return self.write_aligned(data, offset, flags);
        }
        let mut bounce = AlignedBuf::zeroed(data.len().min(BOUNCE));
        for (index, part) in data.chunks(BOUNCE).enumerate() {
            bounce[..part.len()].copy_from_slice(part);
            // Each part is synchronous by itself: a barrier covers only the bytes of its own call.
            self.write_aligned(&bounce[..part.len()], offset + (index * BOUNCE) as u64, flags)?;
        }
        Ok(())
    }

    fn write_aligned(&self, data: &[u8], offset: u64, flags: ReadWriteFlags) -> rustix::io::Result<()> {
        // A short direct write ends at a block: what follows is aligned again.
        sys::write_all_by(data, offset, |data, offset| {
            rustix::io::pwritev2(&self.fd, &[IoSlice::new(data)], offset, flags)
        })
    }
}

/// Fills `buf` through the page cache. What lies past the end of the file comes out as zeros.
pub(super) fn read_cached(fd: impl AsFd, buf: &mut [u8], offset: u64) -> rustix::io::Result<()> {
    let done = sys::read_full_at(fd, buf, offset)?;
    buf[done..].fill(0);
    Ok(())
}
