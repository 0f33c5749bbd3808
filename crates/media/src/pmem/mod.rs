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
//!
//! # Holes
//!
//! On tmpfs a load or store in a hole takes memory, and is a `SIGBUS` if there is none. So a region has space for all
//! of its file, or knows its holes ([`PmemOptions::sparse`]) and reads and writes them by system calls, which can fail,
//! until [`Region::hand_over_holes`].

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
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockWriteGuard};
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
    /// Whether holes of a file on tmpfs stay, and [`Region::extend`] adds one, until [`Region::allocate`] or a write
    /// takes space for a part of it. On other file systems all space is taken when the region is opened or grows.
    pub sparse: bool,
    /// Whether the machine keeps its caches at a power failure (eADR). A process cannot find out reliably; somebody who
    /// knows the machine must say so.
    pub caches_persist: bool,
}

impl Default for PmemOptions {
    fn default() -> Self {
        PmemOptions {
            name: String::new(),
            reserve: 1 << 40,
            writable: true,
            prefault: false,
            sparse: false,
            caches_persist: false,
        }
    }
}

/// The holes of a file, in their order. `None`: it has none, or the caller answers for them.
type Holes = Option<Vec<Range<u64>>>;

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
    /// The end of the bytes that may be stored to without a look at the holes: 0 where the region is read-only.
    writable_len: AtomicU64,
    instructions: Instructions,
    /// The end of the bytes that may be loaded so: `len`, or 0 while there are holes.
    readable_len: AtomicU64,
    len: AtomicU64,
    holes: RwLock<Holes>,
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
    /// fails for want of space; without `writable` they stay, and if they are asked for (`sparse`).
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
        let file_system = FileSystem::of(&file)?;
        let is_sparse = options.sparse && options.writable && file_system == FileSystem::Tmpfs;
        if options.writable && !is_sparse && len > 0 {
            sys::allocate(&file, FallocateFlags::empty(), 0, len).or_fail("fallocate", || &options.name)?;
        }
        let holes = is_sparse.then(|| sys::holes(&file, len));
        let page = page_size(file.as_fd(), file_system).or_fail("fstat", || &options.name)?;
        let mapping = Mapping::reserve(options.reserve, options.writable, is_dax(file.as_fd()))?;
        let len_in_pages = len.next_multiple_of(page);
        mapping.extend(file.as_fd(), 0, len_in_pages)?;
        if options.prefault {
            mapping.populate(0, len_in_pages, page)?;
        }
        Self::over(mapping, (Some(file), holes), file_system, page, len, options)
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
        Self::over(mapping, (None, None), file_system, page, len, options)
    }

    fn over(
        mapping: Mapping,
        (file, holes): (Option<OwnedFd>, Holes),
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
        let region = PmemRegion {
            base: mapping.base(),
            writable_len: AtomicU64::new(0),
            instructions,
            readable_len: AtomicU64::new(0),
            len: AtomicU64::new(0),
            holes: RwLock::new(holes),
            mapping,
            resize: Mutex::new(()),
            file,
            page,
            options,
            guarantees,
        };
        region.admit(len);
        Ok(region)
    }

    fn holes_mut(&self) -> RwLockWriteGuard<'_, Holes> {
        // A panic while it was held can only have been one of our own bounds.
        self.holes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets accesses in up to a length: without a look at the holes, if there are none.
    fn admit(&self, len: u64) {
        let has_holes = self.holes_mut().as_ref().is_some_and(|holes| !holes.is_empty());
        let unseen = if has_holes { 0 } else { len };
        self.writable_len.store(if self.options.writable { unseen } else { 0 }, Ordering::Release);
        self.readable_len.store(unseen, Ordering::Release);
        self.len.store(len, Ordering::Release);
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

    /// The place of `offset..offset + len`, if no byte of it is in a hole.
    ///
    /// # Panics
    /// If the range is not inside the region.
    #[cold]
    fn place_beside_holes(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let Some(place) = self.place(offset, len, &self.len) else { self.out_of_bounds(offset, len) };
        let holes = self.holes.read().unwrap_or_else(PoisonError::into_inner);
        let holes = holes.as_deref().unwrap_or_default();
        let next = holes.partition_point(|hole| hole.end <= offset);
        holes.get(next).is_none_or(|hole| offset + len as u64 <= hole.start).then_some(place)
    }

    /// Reads bytes of which some are in a hole, by a system call: a load would take memory for the hole.
    #[cold]
    fn read_hole(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let place = || format!("{} at {offset}", self.options.name);
        let file = self.file.as_ref().expect("a region with holes has its file");
        let read = sys::read_full_at(file, buf, offset).or_fail("read", place)?;
        // Others may have made the file shorter.
        if read == buf.len() { Ok(()) } else { Err(Error::new("read", place(), Errno::IO)) }
    }

    /// A write that may touch holes, or must not be. It is memory that a power failure clears: no cache is in its way.
    #[cold]
    fn write_carefully(&self, offset: u64, data: &[u8]) -> Result<()> {
        let name = || format!("{} at {offset}", self.options.name);
        if !self.options.writable {
            return Err(Error::new("write", name(), Errno::BADF));
        }
        match (self.place_beside_holes(offset, data.len()), &self.file) {
            // SAFETY: as in `write`.
            (Some(place), _) => unsafe { (self.instructions.copy)(place, data.as_ptr(), data.len()) },
            (None, Some(file)) => sys::write_all_at(file, data, offset).or_fail("write", name)?,
            (None, None) => unreachable!("a region with holes has its file"),
        }
        Ok(())
    }

    #[cold]
    fn out_of_bounds(&self, offset: u64, len: usize) -> ! {
        panic!("{len} bytes at {offset} of {}, which has {} bytes", self.options.name, self.len())
    }

    /// By a hole, if that is asked for and the holes are known.
    fn grow(&self, file: &OwnedFd, old: u64, new: u64, by_hole: bool) -> Result<()> {
        let name = || format!("{} from {old} to {new} bytes", self.options.name);
        let (old_end, new_end) = (old.next_multiple_of(self.page), new.next_multiple_of(self.page));
        if new_end > self.mapping.capacity() {
            return Err(Error::new("grow", name(), Errno::FBIG));
        }
        let mut holes = self.holes_mut();
        let hole = holes.as_mut().filter(|_| by_hole);
        let lengthened = match &hole {
            Some(_) => rustix::fs::ftruncate(file, new).or_fail("ftruncate", name),
            // Allocates and, as the last step, lengthens the file; fresh pages are zero.
            None => sys::allocate(file, FallocateFlags::empty(), old, new - old).or_fail("fallocate", name),
        };
        let populate = || if hole.is_some() { Ok(()) } else { self.mapping.populate(old_end, new_end, self.page) };
        let grown = lengthened
            .and_then(|()| self.mapping.extend(file.as_fd(), old_end, new_end))
            .and_then(|()| populate())
            // The size and the extents are the file system's metadata, which stores and fences do not cover.
            .and_then(|()| rustix::fs::fsync(file).or_fail("fsync", name));
        if grown.is_err() {
            // As before, as far as that can be had; the first error is the one to tell.
            let _ = self.mapping.cut(old_end, new_end);
            let _ = rustix::fs::ftruncate(file, old);
        } else if let Some(holes) = hole {
            holes.push(old..new);
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

    fn change_len(&self, len: u64, by_hole: bool) -> Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.options.writable) else {
            return Err(Error::new("set length of", &self.options.name, Errno::OPNOTSUPP));
        };
        // A panic while it was held can only have been one of our own bounds; the length is still right.
        let _guard = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.len();
        if len > old {
            self.grow(file, old, len, by_hole)?;
        }
        if len < old {
            if let Some(holes) = &mut *self.holes_mut() {
                holes.iter_mut().for_each(|hole| hole.end = hole.end.min(len));
                holes.retain(|hole| !hole.is_empty());
            }
            // Before the mapping goes: no access may begin from here on.
            self.admit(len);
            return self.shrink(file, old, len);
        }
        if len == old {
            // A process that died may have made it so and not have come to its sync.
            let name = || format!("{} to {len} bytes", self.options.name);
            rustix::fs::fsync(file).or_fail("fsync", name)?;
        }
        self.admit(len);
        Ok(())
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
        let place = self.place(offset, buf.len(), &self.readable_len);
        let Some(place) = place.or_else(|| self.place_beside_holes(offset, buf.len())) else {
            return self.read_hole(offset, buf);
        };
        // SAFETY: the range lies inside the mapping, which lives as long as `self`; `buf` is memory of the caller, so
        // the two do not overlap. No reference to the mapping is made. Bytes that somebody writes meanwhile come out as
        // old or new.
        unsafe { std::ptr::copy_nonoverlapping(place, buf.as_mut_ptr(), buf.len()) };
        Ok(())
    }

    #[inline]
    fn write(&self, _site: Site, offset: u64, data: &[u8]) -> Result<()> {
        let Some(place) = self.place(offset, data.len(), &self.writable_len) else {
            return self.write_carefully(offset, data);
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
        let (Some(bytes), Some(place)) = (source.address(from, len), self.place(offset, len, &self.writable_len))
        else {
            let mut buffer = vec![0; len];
            source.read(from, &mut buffer)?;
            return self.write(site, offset, &buffer);
        };
        // SAFETY: as in `write`; `bytes` are `len` readable bytes while `source` is borrowed. Two regions do not show
        // the same bytes of a file, and nobody copies a region over itself: `Region` asks that nobody writes bytes
        // while another reads them.
        unsafe { (self.instructions.copy)(place, bytes.as_ptr(), len) };
        Ok(())
    }

    #[inline]
    fn address(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let place = self.place(offset, len, &self.readable_len);
        place.or_else(|| self.place_beside_holes(offset, len)).and_then(NonNull::new)
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
        self.change_len(len, false)
    }

    fn extend(&self, _site: Site, len: u64) -> Result<()> {
        self.change_len(len, true)
    }

    fn hand_over_holes(&self) -> Vec<Range<u64>> {
        let _guard = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        let holes = self.holes_mut().take();
        self.admit(self.len());
        holes.unwrap_or_default()
    }

    fn allocate(&self, offset: u64, len: u64) -> bool {
        let Some(file) = &self.file else { return true };
        let is_taken = sys::take_space(file, offset, len);
        if is_taken {
            // So that no store pays for a page fault. Without, each does.
            let (from, to) = (offset / self.page * self.page, (offset + len).next_multiple_of(self.page));
            let _ = self.mapping.populate(from, to, self.page);
        }
        is_taken
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
