//! Memory that a disk can read and write without a copy.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Where the buffers begin: no disk asks for more than a page.
const ALIGNMENT: usize = 4096;

/// Bytes on the heap that begin at a multiple of 4096 and are zero at first. Their number is fixed.
///
/// Synchronous writes from such a buffer, whose offset and length are multiples of
/// [`Guarantees::block`](crate::Guarantees::block), go to the disk without a copy.
///
/// # Example
/// ```
/// let mut buf = wholly_media::disk::AlignedBuf::zeroed(8192);
/// buf[..4].copy_from_slice(b"head");
/// assert_eq!(buf.len(), 8192);
/// ```
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its bytes as a `Box<[u8]>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A buffer of `len` zeros.
    ///
    /// # Panics
    /// If `len` is near the size of the address space. Aborts where memory is out, as `Vec` does.
    pub fn zeroed(len: usize) -> AlignedBuf {
        if len == 0 {
            return AlignedBuf { start: NonNull::dangling(), len };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        AlignedBuf { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), len }
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGNMENT).expect("a buffer is smaller than the address space")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: allocated in `zeroed` with this very layout, and not given away.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that this value owns; the borrow of `self` keeps writers out.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zero_and_writable() {
        for len in [0, 1, 4096, 5000] {
            let mut buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert!(buf.iter().all(|&byte| byte == 0));
            buf.fill(7);
            assert!(buf.iter().all(|&byte| byte == 7));
            assert!(len == 0 || (buf.as_ptr() as usize).is_multiple_of(ALIGNMENT));
        }
    }
}
