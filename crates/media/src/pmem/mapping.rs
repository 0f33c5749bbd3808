//! A piece of address space that a file is mapped into, and that grows without moving.

use crate::sys::OrFail;
use crate::{Error, Result};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Huge pages need the address and the file offset to agree modulo this (2 MiB on x86-64).
const HUGE_PAGE: usize = 2 << 20;

/// A reserved range of addresses, of which a prefix shows a file. The range is inaccessible where no file is mapped,
/// never moves, and is given back when dropped.
///
/// Not synchronised: the owner serialises [`extend`](Self::extend) and [`cut`](Self::cut).
#[derive(Debug)]
pub(super) struct Mapping {
    /// The whole range as mmap returned it.
    reserved: NonNull<c_void>,
    reserved_len: usize,
    /// The first byte of the file: `reserved`, moved up to a multiple of a huge page.
    base: NonNull<u8>,
    /// Addresses from `base` on.
    capacity: usize,
    writable: bool,
    /// Whether the file system promised that stores reach persistent memory (`MAP_SYNC`).
    synchronous: bool,
}

// SAFETY: the mapping is owned by this value and its address is only handed out as a raw pointer; all that is
// shared is constant after construction, and mmap, munmap and madvise may be called from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves at least `capacity` bytes of address space, without memory behind them.
    pub fn reserve(capacity: u64, writable: bool, synchronous: bool) -> Result<Mapping> {
        let place = || format!("{capacity} bytes of address space");
        let capacity = usize::try_from(capacity).map_err(|_| Errno::NOMEM).or_fail("mmap", place)?;
        let rounded = capacity.max(1).checked_next_multiple_of(HUGE_PAGE);
        let total = rounded.and_then(|len| len.checked_add(HUGE_PAGE)).ok_or(Errno::NOMEM).or_fail("mmap", place)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let address = unsafe { mmap_anonymous(std::ptr::null_mut(), total, ProtFlags::empty(), flags) };
        let reserved = NonNull::new(address.or_fail("mmap", place)?).expect("mmap returns no null address");
        let skip = reserved.as_ptr().align_offset(HUGE_PAGE);
        assert!(skip < HUGE_PAGE, "one huge page more was reserved than asked for");
        // SAFETY: `skip` is less than the huge page that was reserved beyond the capacity.
        let base = unsafe { reserved.cast::<u8>().add(skip) };
        Ok(Mapping { reserved, reserved_len: total, base, capacity: total - HUGE_PAGE, writable, synchronous })
    }

    /// Maps the first `len` bytes of `fd` and reserves nothing beyond. `len` is a multiple of the file's page size.
    pub fn window(fd: BorrowedFd<'_>, len: u64, writable: bool) -> Result<Mapping> {
        if len == 0 {
            return Self::reserve(0, writable, false);
        }
        let place = || format!("{len} bytes");
        let len = usize::try_from(len).map_err(|_| Errno::NOMEM).or_fail("mmap", place)?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let map = |flags| {
            // SAFETY: a new mapping at an address of the kernel's choice aliases nothing of this process's; other
            // mappings of the file may exist, so no reference to its bytes is ever made.
            unsafe { mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) }
        };
        let (address, synchronous) = match map(MapFlags::SHARED_VALIDATE | MapFlags::SYNC) {
            Ok(address) => (address, true),
            Err(_) => (map(MapFlags::SHARED).or_fail("mmap", place)?, false),
        };
        let reserved = NonNull::new(address).expect("mmap returns no null address");
        Ok(Mapping { reserved, reserved_len: len, base: reserved.cast(), capacity: len, writable, synchronous })
    }

    /// Whether stores reach persistent memory.
    pub fn is_synchronous(&self) -> bool {
        self.synchronous
    }

    /// The address of the file's first byte; the same for the life of the mapping.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes of a file fit.
    pub fn capacity(&self) -> u64 {
        self.capacity as u64
    }

    /// Shows the bytes `from..to` of `fd` at their place. Both are multiples of the file's page size.
    pub fn extend(&self, fd: BorrowedFd<'_>, from: u64, to: u64) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let (start, len) = self.range(from, to);
        let protection = if self.writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let sharing = if self.synchronous { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        // SAFETY: the range lies in our own reservation, where nothing but a mapping of this file at the same
        // offset can have been: replacing that by itself changes nothing for those who use it.
        unsafe { mmap(start, len, protection, sharing | MapFlags::FIXED, fd, from) }
            .or_fail("mmap", || format!("bytes {from}..{to}"))?;
        Ok(())
    }

    /// Makes the bytes `from..to` inaccessible again. Both are multiples of the file's page size. Nobody may use them
    /// any more.
    pub fn cut(&self, from: u64, to: u64) -> Result<()> {
        if from == to {
            return Ok(());
        }
        let (start, len) = self.range(from, to);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range lies in our own reservation and the caller says that nobody uses it any more.
        unsafe { mmap_anonymous(start, len, ProtFlags::empty(), flags) }
            .or_fail("mmap", || format!("bytes {from}..{to}"))?;
        Ok(())
    }

    /// Makes the pages of `from..to`, which are mapped and backed by the file, present and writable now, so that no
    /// later store pays for a page fault.
    pub fn populate(&self, from: u64, to: u64, page: u64) -> Result<()> {
        if from == to || !self.writable {
            return Ok(());
        }
        let (start, len) = self.range(from, to);
        // SAFETY: populating changes no byte; the range is ours.
        match unsafe { madvise(start, len, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            // Before Linux 5.14. Touching for reading spares at least the lookup of the page.
            Err(Errno::INVAL | Errno::NOSYS) => {
                for offset in (from..to).step_by(page as usize) {
                    // SAFETY: the byte lies inside the mapped part, and a byte may be read while others write it
                    // as long as its value is not used.
                    unsafe { self.base.as_ptr().add(offset as usize).read_volatile() };
                }
                Ok(())
            }
            Err(errno) => Err(Error::new("madvise", format!("bytes {from}..{to}"), errno)),
        }
    }

    fn range(&self, from: u64, to: u64) -> (*mut c_void, usize) {
        assert!(from < to && to <= self.capacity as u64, "inside the reservation: {from}..{to}");
        // SAFETY: `from` is less than the capacity, so the address lies in the reservation.
        let start = unsafe { self.base.as_ptr().add(from as usize) };
        (start.cast(), (to - from) as usize)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is what mmap returned and nobody has a pointer into it who outlives the owner. An error
        // could only mean that it is not our range, and would leave it mapped.
        let _ = unsafe { munmap(self.reserved.as_ptr(), self.reserved_len) };
    }
}

/// Whether stores into a shared mapping of `fd` reach persistent memory: whether `MAP_SYNC` is accepted.
pub fn is_dax(fd: BorrowedFd<'_>) -> bool {
    let len = rustix::param::page_size();
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a new mapping at an address of the kernel's choice aliases nothing, and is not accessed.
    match unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, fd, 0) } {
        Ok(address) => {
            // SAFETY: exactly the mapping made above, whose address nobody else has.
            let _ = unsafe { munmap(address, len) };
            true
        }
        Err(_) => false,
    }
}
