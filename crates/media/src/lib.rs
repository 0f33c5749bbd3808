//! What Wholly stores bytes on, and what each medium may do to them at a crash.
//!
//! A medium is a [`Region`]: a linear range of bytes, such as the log of a store, a volume, or a home file mapped from
//! persistent memory. [`Guarantees`] tells what a medium may do at a crash. The code above reads it; the simulator
//! obeys it.
//!
//! | module | medium |
//! |---|---|
//! | [`pmem`] | persistent memory: real (DAX) or *emulated* (tmpfs, hugetlb, ordinary files) |
//! | [`disk`] | a file or block device of today's disks |
//!
//! [`lines`] and [`xxh3`] have the checksums of what a commit stores, and [`sys`] the system calls that several media
//! make. An ordinary directory is a medium, too, with calls of its own: the crate `wholly-host`.
//!
//! # Words
//!
//! *write*: bytes are on their way, any part of them may survive a crash. *fence*: what this thread wrote before
//! it survives. *hand over*: what this thread wrote before survives a fence of any thread. *write through*: a write
//! that survives when it returns. Nothing else makes bytes survive.
//!
//! # Sites
//!
//! Every call that changes or orders persistent bytes names its [`Site`]. The crash explorer uses the names to drop
//! each one in turn (a mutant), and to prove that each was a crash point of some workload.

#![warn(missing_docs)]

pub mod disk;
mod error;
mod guarantees;
pub mod lines;
pub mod pmem;
pub mod sys;
pub mod xxh3;

pub use error::{Error, Result, in_words};
pub use guarantees::{Guarantees, Kind, PersistenceDomain};
pub use sys::{FileSystem, is_locked, lock_file, lock_file_to_read, unlock};

/// The name of one place in the code that changes or orders persistent bytes, such as `lane.commit.fence`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site(pub &'static str);

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Declares the [`Site`]s of a part of the code, each a constant, and `ALL` of them.
#[macro_export]
macro_rules! sites {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: $crate::Site = $crate::Site($text);)*
        /// All of them.
        pub const ALL: &[$crate::Site] = &[$($name),*];
    };
}

/// A linear range of bytes on a medium.
///
/// Offsets and lengths are in bytes. A region is shared by threads; two threads must not write bytes of the same
/// [atomic unit](Guarantees::atomic_unit) at once. Reads of bytes that nobody writes need no lock.
pub trait Region: Send + Sync {
    /// What this region may do at a crash.
    fn guarantees(&self) -> &Guarantees;

    /// The number of bytes that can be read and written.
    fn len(&self) -> u64;

    /// Whether the region has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the latest bytes from `offset` on into `buf`, whether or not they would survive a crash.
    ///
    /// # Errors
    /// The medium's read error. The contents of `buf` are then unspecified.
    ///
    /// # Panics
    /// If the range is not inside the region: bounds are our own arithmetic, checked before the call.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Copies the bytes that a crash at this moment would be certain to keep, past any cache that might show bytes
    /// which are not there yet (`O_DIRECT` on disks). On persistent memory the same as [`read`](Self::read).
    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(offset, buf)
    }

    /// Starts to write. Until [`fence`](Self::fence) returns on the same thread, any subset of the atomic units of
    /// `data` may be what a crash keeps, in any order with other writes.
    ///
    /// On persistent memory: non-temporal stores for whole words, store and `clwb` for the rest. On a disk: a write
    /// without a barrier (past the page cache where the region's synchronous writes go past it, else into it).
    fn write(&self, site: Site, offset: u64, data: &[u8]) -> Result<()>;

    /// Copies `len` bytes of `source` from `from` on to `offset`: a [`write`](Self::write) in all respects. Where both
    /// are memory the bytes go straight from one to the other.
    ///
    /// # Errors
    /// As [`write`](Self::write), and the read errors of `source`.
    fn write_from(&self, site: Site, offset: u64, source: &dyn Region, from: u64, len: usize) -> Result<()> {
        let mut buffer = [0u8; 4096];
        for done in (0..len).step_by(buffer.len()) {
            let part = (len - done).min(buffer.len());
            source.read(from + done as u64, &mut buffer[..part])?;
            self.write(site, offset + done as u64, &buffer[..part])?;
        }
        Ok(())
    }

    /// Where `len` bytes from `offset` on are, for media that copy from one region to another; `None` where they are
    /// not in memory. The address holds while the region lives and is not made shorter; it is only read through.
    ///
    /// # Panics
    /// If the range is not inside the region.
    fn address(&self, offset: u64, len: usize) -> Option<std::ptr::NonNull<u8>> {
        let _ = (offset, len);
        None
    }

    /// Makes every write that this thread made before survive a crash.
    ///
    /// On persistent memory `sfence`; another thread's writes are not covered. On a disk `fdatasync`, which covers all
    /// threads' writes that had returned.
    ///
    /// # Errors
    /// After a failed fence nothing is known of the writes before it: the caller must treat the region as failed.
    fn fence(&self, site: Site) -> Result<()>;

    /// Hands over what this thread has written: the next [`fence`](Self::fence) of any thread makes it survive.
    ///
    /// Nothing is durable yet when this returns. The caller must release a lock afterwards, and the thread that fences
    /// must have taken it. On persistent memory of x86-64 nothing else is done: the locked instructions of the lock
    /// wait for non-temporal stores and flushes, as `sfence` does (Raad et al., POPL 2020 and 2022). Everywhere else
    /// this is a [`fence`](Self::fence).
    ///
    /// # Errors
    /// As [`fence`](Self::fence).
    fn hand_over(&self, site: Site) -> Result<()> {
        self.fence(site)
    }

    /// Writes bytes that survive when the call returns, without making other writes survive.
    ///
    /// On persistent memory this is a write and a fence. On a disk one synchronous write past the page cache where
    /// that works; `offset` and the length must be multiples of [`Guarantees::block`].
    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> Result<()>;

    /// Makes the region `len` bytes long. New bytes are zero, allocated and durable when the call returns: writing them
    /// later can fail neither for want of space nor for an unwritten extent. Bytes beyond a smaller `len` are given
    /// back. Where the region is as long already, that becomes durable: whoever made it so may have died on the way.
    fn set_len(&self, site: Site, len: u64) -> Result<()>;

    /// [`set_len`](Self::set_len) for a caller who is about to write all that is new, in large pieces: what is new may
    /// be allocated only, so that the first write to it takes longer. It reads as zeros, and writing it cannot fail for
    /// want of space, unless the region is [sparse](pmem::PmemOptions::sparse).
    fn extend(&self, site: Site, len: u64) -> Result<()> {
        self.set_len(site, len)
    }

    /// The parts of a file that are holes, or look like them: nothing was written there. In the order of their offsets.
    /// From now on the caller answers for them: it takes space for a part with [`allocate`](Self::allocate) before it
    /// reads or writes there. Empty where the file system does not tell, on devices, and on persistent memory that has
    /// space for all of it.
    fn hand_over_holes(&self) -> Vec<std::ops::Range<u64>> {
        Vec::new()
    }

    /// Takes space for `len` bytes from `offset` on, so that writing them cannot fail for want of it; what they hold
    /// stays. Returns whether it is taken: not if the host has too little. What cannot be taken ahead counts as taken.
    fn allocate(&self, offset: u64, len: u64) -> bool {
        let _ = (offset, len);
        true
    }

    /// Asks the processor to fetch the line at `offset`, where that means anything.
    fn prefetch(&self, offset: u64) {
        let _ = offset;
    }

    /// Asks the processor to fetch the first `len` bytes of what [`write_from`](Self::write_from) is going to copy from
    /// here next, where that means anything.
    fn prefetch_range(&self, offset: u64, len: usize) {
        let _ = (offset, len);
    }
}

/// Asks the processor to fetch what `target` refers to into its caches, without waiting for it.
#[inline(always)]
pub fn prefetch<T>(target: &T) {
    pmem::prefetch(std::ptr::from_ref(target).cast());
}

/// As [`prefetch`], for who is going to change it: another core that has it gives it up.
#[inline(always)]
pub fn prefetch_to_change<T>(target: &T) {
    pmem::prefetch_to_write(std::ptr::from_ref(target).cast());
}
