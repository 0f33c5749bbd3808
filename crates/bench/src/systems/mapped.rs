//! A file as a [`Region`] of persistent memory.

use crate::Result;
use rustix::mm::{MapFlags, ProtFlags};
use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _mm512_loadu_si512, _mm512_stream_si512,
};
use std::fs::File;
use std::sync::Arc;
use wholly_media::{Guarantees, Kind, PersistenceDomain, Region, Site};

/// Maps the first `len` bytes of `file`.
pub fn open(file: &File, len: u64) -> Result<Arc<dyn Region>> {
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let base = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), len as usize, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)?
    };
    let guarantees = Guarantees {
        kind: Kind::Pmem,
        atomic_unit: 8,
        block: 1,
        domain: PersistenceDomain::MemoryController,
        emulated: true,
        description: "a mapped file".into(),
    };
    let wide = is_x86_feature_detected!("avx512f");
    Ok(Arc::new(Mapped { base: base.cast(), len, wide, guarantees }))
}

struct Mapped {
    base: *mut u8,
    len: u64,
    wide: bool,
    guarantees: Guarantees,
}

// SAFETY: the mapping belongs to the process, not to a thread; `Region` forbids two threads to write the same bytes at once.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `open` made, and nobody holds a reference into it.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len as usize) };
    }
}

impl Region for Mapped {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        assert!(offset.checked_add(buf.len() as u64).is_some_and(|end| end <= self.len));
        // SAFETY: the range is inside the mapping, and `buf` is not.
        unsafe { std::ptr::copy_nonoverlapping(self.base.add(offset as usize), buf.as_mut_ptr(), buf.len()) };
        Ok(())
    }

    fn write(&self, _: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        assert!(offset.checked_add(data.len() as u64).is_some_and(|end| end <= self.len));
        // SAFETY: the range is inside the mapping, and `data` is not; `wide` says that the processor has AVX-512F.
        unsafe { copy(self.wide, self.base.add(offset as usize), data) };
        Ok(())
    }

    fn fence(&self, _: Site) -> wholly_media::Result<()> {
        // SAFETY: part of x86-64.
        unsafe { _mm_sfence() };
        Ok(())
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.write(site, offset, data)?;
        self.fence(site)
    }

    fn set_len(&self, _: Site, _: u64) -> wholly_media::Result<()> {
        Err(wholly_media::Error::new("set_len", "a mapped file", rustix::io::Errno::NOTSUP))
    }
}

/// Stores whole lines past the caches; what lies before and after them the ordinary way, its lines written back.
///
/// # Safety
/// `to` is valid for `data.len()` bytes; `wide` only where the processor has AVX-512F.
unsafe fn copy(wide: bool, to: *mut u8, data: &[u8]) {
    let head = to.align_offset(64).min(data.len());
    let lines = (data.len() - head) / 64;
    let tail = head + lines * 64;
    // SAFETY: all three parts are inside both ranges by the arithmetic above.
    unsafe {
        copy_and_flush(to, &data[..head]);
        let (to_lines, from) = (to.add(head), data.as_ptr().add(head));
        if wide {
            store_lines_wide(to_lines, from, lines);
        } else {
            for i in 0..lines * 4 {
                _mm_stream_si128(
                    to_lines.add(i * 16).cast::<__m128i>(),
                    _mm_loadu_si128(from.add(i * 16).cast::<__m128i>()),
                );
            }
        }
        copy_and_flush(to.add(tail), &data[tail..]);
    }
}

/// Copies bytes that lie in one line and starts to write it back.
///
/// # Safety
/// `to` is valid for `data.len()` bytes.
unsafe fn copy_and_flush(to: *mut u8, data: &[u8]) {
    if !data.is_empty() {
        // SAFETY: by the caller; a flush of a mapped line does not change it.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
            std::arch::asm!("clwb [{}]", in(reg) to, options(nostack, preserves_flags));
        }
    }
}

/// # Safety
/// Both ranges are valid for `lines` lines, `to` is aligned to a line, the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
unsafe fn store_lines_wide(to: *mut u8, from: *const u8, lines: usize) {
    for i in 0..lines {
        // SAFETY: `i` is below `lines`; the caller vouches for the rest.
        unsafe {
            _mm512_stream_si512(to.add(i * 64).cast::<__m512i>(), _mm512_loadu_si512(from.add(i * 64).cast()));
        }
    }
}
