//! Persistent memory: real (DAX) or emulated.
//!
//! A [`PmemRegion`] is a file mapped into memory. Reads are loads, writes are stores that go past the caches, a fence
//! is `sfence`: no system call, no lock and no allocation on any of these paths.
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | the region: opening, growing, shrinking |
//! | `mapping.rs` | address space that a file grows into without moving |
//! | `store.rs` | the plan of a copy; `x86_64.rs`, `portable.rs` its instructions |
//! | `emulate.rs` | slowing memory down to what persistent memory costs |
//!
//! # Real or emulated
//!
//! Stores reach persistent memory only if the file system maps its pages directly (DAX) and keeps its own metadata in
//! step. Linux promises both by accepting `MAP_SYNC`. Where it does not (tmpfs, hugetlbfs, ordinary files), the region
//! works in the same way and survives the death of the process, but no power failure: [`Guarantees::emulated`] is set.

mod emulate;
mod mapping;
#[cfg(any(not(target_arch = "x86_64"), test))]
#[cfg_attr(target_arch = "x86_64", expect(dead_code, reason = "compiled so that it stays correct"))]
mod portable;
mod store;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

pub use emulate::{EmulatedRegion, Emulation, Emulator};
pub use mapping::is_dax;

use crate::sys::{self, FileSystem, OrFail};
use crate::{Error, Guarantees, Kind, PersistenceDomain, Region, Result, Site};
use mapping::Mapping;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use store::Instructions;
pub(crate) use store::{prefetch, prefetch_to_write};

/// How a file is opened as a [`PmemRegion`].
#[derive(Clone, Debug)]
pub struct PmemOptions {
    /// What the file is called in errors.
    pub name: String,
    /// Bytes of address space to reserve: how long the region may become. The length of the file is enough for a region
    /// that never grows. Address space costs no memory.
    pub reserve: u64,
    /// Whether stores are allowed. Without, the descriptor may be open for reading only.
    pub writable: bool,
    /// Whether the whole region is made present in memory at once (0.4 to 5 s a GiB), so that no later access pays for
    /// a page fault. What is added by growth always is.
    pub prefault: bool,
    /// Whether the machine keeps its caches at a power failure (eADR). A process cannot find out reliably; somebody who
    /// knows the machine must say so.
    pub caches_persist: bool,
}

impl Default for PmemOptions {
    fn default() -> Self {
        PmemOptions { name: String::new(), reserve: 1 << 40, writable: true, prefault: false, caches_persist: false }
    }
}

/// A file on persistent memory, mapped.
///
/// # What survives
/// [`write`](Region::write) stores past the caches; once [`fence`](Region::fence) has returned on the same thread, the
/// bytes survive a power failure on real persistent memory. Aligned words of 8 bytes are never torn, also where a write
/// covers only a part of one. Nothing is promised about the order of words before the fence.
///
/// # Example
/// ```
/// use wholly_media::{Region, Site, pmem::{PmemOptions, PmemRegion}};
/// # use rustix::fs::{Mode, OFlags};
/// # let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR | Mode::WUSR);
/// # let file = rustix::fs::openat(rustix::fs::CWD, "/dev/shm", flags, mode).unwrap();
/// let region = PmemRegion::open(file, PmemOptions { name: "log".into(), ..PmemOptions::default() })?;
/// region.set_len(Site("log.grow"), 1 << 20)?;
/// region.write(Site("log.append"), 4096, b"whole or not at all")?;
/// region.fence(Site("log.commit"))?;
/// # Ok::<(), wholly_media::Error>(())
/// ```
#[derive(Debug)]
pub struct PmemRegion {
    /// `mapping.base()`, kept here to spare one load.
    base: NonNull<u8>,
    /// The end of the bytes that may be stored to: `len`, or 0 where the region is read-only.
    writable_len: AtomicU64,
    instructions: Instructions,
    len: AtomicU64,
    mapping: Mapping,
    /// Serialises changes of the length; holds nothing, since the file and the mapping cannot be inside.
    resize: Mutex<()>,
    /// `None` for a window, whose length is fixed and whose file somebody else looks after.
    file: Option<OwnedFd>,
    /// Lengths of mappings are multiples of this.
    page: u64,
    options: PmemOptions,
    guarantees: Guarantees,
}

// SAFETY: `base` points into `mapping`, which may be shared; everything else is.
unsafe impl Send for PmemRegion {}
// SAFETY: as above. That two threads do not write the same words at once is what `Region` asks of its users.
unsafe impl Sync for PmemRegion {}

impl PmemRegion {
    /// Maps the whole of `file`, whose size becomes the length of the region. Holes are allocated, so that no store
    /// fails for want of space; without `writable` they stay.
    ///
    /// # Errors
    /// Those of `fstat`, `fallocate` and `mmap`; `EFBIG` if the file is longer than the reservation; `EOPNOTSUPP` if
    /// the memory is real but this processor's persistence instructions are not known.
    pub fn open(file: OwnedFd, options: PmemOptions) -> Result<PmemRegion> {
        let stat = rustix::fs::fstat(&file).or_fail("fstat", || &options.name)?;
        let len = stat.st_size as u64;
        if len > options.reserve {
            return Err(Error::new("map", options.name, Errno::FBIG));
        }
        if options.writable && len > 0 {
            sys::allocate(&file, FallocateFlags::empty(), 0, len).or_fail("fallocate", || &options.name)?;
        }
        let file_system = FileSystem::of(&file)?;
        let page = page_size(file.as_fd(), file_system).or_fail("fstat", || &options.name)?;
        let mapping = Mapping::reserve(options.reserve, options.writable, is_dax(file.as_fd()))?;
        let len_in_pages = len.next_multiple_of(page);
        mapping.extend(file.as_fd(), 0, len_in_pages)?;
        if options.prefault {
            mapping.populate(0, len_in_pages, page)?;
        }
        Self::over(mapping, Some(file), file_system, page, len, options)
    }

    /// Maps the first `len` bytes of a file that somebody else looks after: nothing is allocated, the file may be
    /// shorter (then only bytes inside it may be touched), and [`set_len`](Region::set_len) fails with `EOPNOTSUPP`.
    /// `options.reserve` and `options.prefault` are not used.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn window(file: BorrowedFd<'_>, len: u64, options: PmemOptions) -> Result<PmemRegion> {
        let file_system = FileSystem::of(file)?;
        let page = page_size(file, file_system).or_fail("fstat", || &options.name)?;
        let mapping = Mapping::window(file, len.next_multiple_of(page), options.writable)?;
        Self::over(mapping, None, file_system, page, len, options)
    }

    fn over(
        mapping: Mapping,
        file: Option<OwnedFd>,
        file_system: FileSystem,
        page: u64,
        len: u64,
        options: PmemOptions,
    ) -> Result<PmemRegion> {
        let real = mapping.is_synchronous();
        let instructions = store::copy_for_this_processor(options.caches_persist);
        if real && !instructions.persistent {
            return Err(Error::new("open persistent memory", options.name, Errno::OPNOTSUPP));
        }
        let how = if real { " (DAX)" } else { ", emulated" };
        let guarantees = Guarantees {
            kind: Kind::Pmem,
            atomic_unit: 8,
            block: 1,
            domain: if options.caches_persist {
                PersistenceDomain::CpuCaches
            } else {
                PersistenceDomain::MemoryController
            },
            emulated: !real,
            description: format!("persistent memory{how} on {file_system}"),
        };
        Ok(PmemRegion {
            base: mapping.base(),
            writable_len: AtomicU64::new(if options.writable { len } else { 0 }),
            instructions,
            len: AtomicU64::new(len),
            mapping,
            resize: Mutex::new(()),
            file,
            page,
            options,
            guarantees,
        })
    }

    /// The instructions that are used, for reports: `"AVX-512 non-temporal stores, clwb"`.
    pub fn instructions(&self) -> &'static str {
        self.instructions.name
    }

    /// How long the region may become.
    pub fn reserved(&self) -> u64 {
        self.mapping.capacity()
    }

    /// The address of the first byte, for interfaces that hand out pointers into the mapping (a library's `nvmmap`). It
    /// stays the same while the region lives.
    ///
    /// Bytes behind it may change at any time: by writes of others to this region, and by whoever else maps the file.
    /// Never make a reference to them. A store through the pointer is outside of everything that a medium promises.
    pub fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// The place of `offset..offset + len`.
    ///
    /// # Panics
    /// If the range is not inside the region.
    #[inline(always)]
    fn place(&self, offset: u64, len: usize, end_of_region: &AtomicU64) -> Option<*mut u8> {
        // Acquire: whoever sees a length also has its mapping, which was made before.
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= end_of_region.load(Ordering::Acquire));
        if !inside {
            return None;
        }
        // SAFETY: `offset` is at most the length, which is at most the mapping's capacity.
        Some(unsafe { self.base.as_ptr().add(offset as usize) })
    }

    /// What a write outside of the writable bytes is: an error where the region is read-only, else a bug of ours.
    #[cold]
    fn refuse_write(&self, offset: u64, len: usize) -> Result<()> {
        if self.options.writable {
            self.out_of_bounds(offset, len);
        }
        Err(Error::new("write", format!("{} at {offset}", self.options.name), Errno::BADF))
    }

    #[cold]
    fn out_of_bounds(&self, offset: u64, len: usize) -> ! {
        panic!("{len} bytes at {offset} of {}, which has {} bytes", self.options.name, self.len())
    }

    fn grow(&self, file: &OwnedFd, old: u64, new: u64) -> Result<()> {
        let name = || format!("{} from {old} to {new} bytes", self.options.name);
        let (old_end, new_end) = (old.next_multiple_of(self.page), new.next_multiple_of(self.page));
        if new_end > self.mapping.capacity() {
            return Err(Error::new("grow", name(), Errno::FBIG));
        }
        // Allocates and, as the last step, lengthens the file; fresh pages are zero.
        let allocated = sys::allocate(file, FallocateFlags::empty(), old, new - old).or_fail("fallocate", name);
        let grown = allocated
            .and_then(|()| self.mapping.extend(file.as_fd(), old_end, new_end))
            .and_then(|()| self.mapping.populate(old_end, new_end, self.page))
            // The size and the extents are the file system's metadata, which stores and fences do not cover.
            .and_then(|()| rustix::fs::fsync(file).or_fail("fsync", name));
        if grown.is_err() {
            // As before, as far as that can be had; the first error is the one to tell.
            let _ = self.mapping.cut(old_end, new_end);
            let _ = rustix::fs::ftruncate(file, old);
        }
        grown
    }

    fn shrink(&self, file: &OwnedFd, old: u64, new: u64) -> Result<()> {
        let name = || format!("{} from {old} to {new} bytes", self.options.name);
        let (old_end, new_end) = (old.next_multiple_of(self.page), new.next_multiple_of(self.page));
        // The mapping goes first: a stray access shall meet a reserved address, not a page that the file no longer has.
        self.mapping.cut(new_end, old_end)?;
        // ftruncate also zeroes the rest of the last page, which growth relies on.
        rustix::fs::ftruncate(file, new).or_fail("ftruncate", name)?;
        rustix::fs::fsync(file).or_fail("fsync", name)
    }
}

impl Region for PmemRegion {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    #[inline]
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    #[inline]
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(place) = self.place(offset, buf.len(), &self.len) else { self.out_of_bounds(offset, buf.len()) };
        // SAFETY: the range lies inside the mapping, which lives as long as `self`; `buf` is memory of the caller, so
        // the two do not overlap. No reference to the mapping is made. Bytes that somebody writes meanwhile come out as
        // old or new.
        unsafe { std::ptr::copy_nonoverlapping(place, buf.as_mut_ptr(), buf.len()) };
        Ok(())
    }

    #[inline]
    fn write(&self, _site: Site, offset: u64, data: &[u8]) -> Result<()> {
        let Some(place) = self.place(offset, data.len(), &self.writable_len) else {
            return self.refuse_write(offset, data.len());
        };
        // SAFETY: the range lies inside the mapping, which is writable and lives as long as `self`; mappings are whole
        // pages, so the words that the range touches lie inside too. `data` is memory of the caller, so the two do not
        // overlap. That no other thread writes the words or reads the bytes is what `Region` asks. The instructions
        // were chosen for this processor.
        unsafe { (self.instructions.copy)(place, data.as_ptr(), data.len()) };
        Ok(())
    }

    #[inline]
    fn write_from(&self, site: Site, offset: u64, source: &dyn Region, from: u64, len: usize) -> Result<()> {
        let Some(bytes) = source.address(from, len) else {
            let mut buffer = vec![0; len];
            source.read(from, &mut buffer)?;
            return self.write(site, offset, &buffer);
        };
        let Some(place) = self.place(offset, len, &self.writable_len) else { return self.refuse_write(offset, len) };
        // SAFETY: as in `write`; `bytes` are `len` readable bytes while `source` is borrowed. Two regions do not show
        // the same bytes of a file, and nobody copies a region over itself: `Region` asks that nobody writes bytes
        // while another reads them.
        unsafe { (self.instructions.copy)(place, bytes.as_ptr(), len) };
        Ok(())
    }

    #[inline]
    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let Some(place) = self.place(offset, len, &self.len) else { self.out_of_bounds(offset, len) };
        NonNull::new(place)
    }

    #[inline]
    fn fence(&self, _site: Site) -> Result<()> {
        store::fence();
        Ok(())
    }

    #[inline]
    fn hand_over(&self, _site: Site) -> Result<()> {
        store::hand_over();
        Ok(())
    }

    #[inline]
    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> Result<()> {
        self.write(site, offset, data)?;
        self.fence(site)
    }

    fn set_len(&self, _site: Site, len: u64) -> Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.options.writable) else {
            return Err(Error::new("set length of", &self.options.name, Errno::OPNOTSUPP));
        };
        // A panic while it was held can only have been one of our own bounds; the length is still right.
        let _guard = self.resize.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let old = self.len();
        if len > old {
            self.grow(file, old, len)?;
        }
        if len < old {
            // Before the mapping goes, so that nobody is let in any more.
            self.writable_len.store(len, Ordering::Release);
            self.len.store(len, Ordering::Release);
            return self.shrink(file, old, len);
        }
        if len == old {
            // A process that died may have made it so and not have come to its sync.
            let name = || format!("{} to {len} bytes", self.options.name);
            rustix::fs::fsync(file).or_fail("fsync", name)?;
        }
        self.len.store(len, Ordering::Release);
        self.writable_len.store(len, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn prefetch(&self, offset: u64) {
        store::prefetch(self.base.as_ptr().wrapping_add(offset as usize));
    }

    #[inline]
    fn prefetch_range(&self, offset: u64, len: usize) {
        for line in (0..len).step_by(64) {
            store::prefetch_far(self.base.as_ptr().wrapping_add(offset as usize + line));
        }
    }
}

/// The size of the pages of a mapping of `file`.
fn page_size(file: BorrowedFd<'_>, file_system: FileSystem) -> rustix::io::Result<u64> {
    let page = rustix::param::page_size() as u64;
    if file_system == FileSystem::Hugetlbfs {
        // hugetlbfs tells the size of its pages as the block size.
        return Ok(page.max(rustix::fs::fstat(file)?.st_blksize as u64));
    }
    Ok(page)
}
