//! Files mapped into memory that another process reads and writes.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A file in memory, shared with whoever has it mapped, too.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping stays where it is until it is dropped, and is accessed by atomic loads and stores only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps so many bytes of a file that has them.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub fn new(file: BorrowedFd<'_>, len: usize) -> rustix::io::Result<Mapping> {
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start =
            unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0) }?;
        Ok(Mapping { start: NonNull::new(start.cast()).expect("a mapping is not at 0"), len })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "{offset}+{len} lies beyond the mapping");
    }

    /// The word at an offset, which is aligned and inside.
    fn word(&self, offset: usize) -> &AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset + 4 <= self.len);
        // SAFETY: inside of the mapping, which lives as long as `self`; aligned; all accesses are atomic.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        debug_assert!(offset < self.len);
        // SAFETY: as above; bytes need no alignment.
        unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(offset)) }
    }

    /// # Panics
    /// If the bytes lie beyond the mapping.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        if offset.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            for (i, word) in bytes.chunks_exact_mut(4).enumerate() {
                word.copy_from_slice(&self.word(offset + 4 * i).load(Ordering::Acquire).to_ne_bytes());
            }
        } else {
            (offset..).zip(bytes).for_each(|(at, byte)| *byte = self.byte(at).load(Ordering::Acquire));
        }
    }

    /// # Panics
    /// If the bytes lie beyond the mapping.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        if offset.is_multiple_of(4) && bytes.len().is_multiple_of(4) {
            for (i, word) in bytes.chunks_exact(4).enumerate() {
                let word = u32::from_ne_bytes(std::array::from_fn(|byte| word[byte]));
                self.word(offset + 4 * i).store(word, Ordering::Release);
            }
        } else {
            (offset..).zip(bytes).for_each(|(at, byte)| self.byte(at).store(*byte, Ordering::Release));
        }
    }

    /// The word there, which is 0 afterwards.
    pub fn take(&self, offset: usize) -> u32 {
        self.check(offset, 4);
        self.word(offset).swap(0, Ordering::AcqRel)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: as it was mapped; nobody has a reference into it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
