//! Pages that `fork` treats otherwise than the rest of memory.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// A value of which zeros are a value, that fits into a page, and that threads and processes may share.
///
/// # Safety
/// All bytes zero are a valid value; it is made of atomics only, holds no pointer and needs no drop.
pub(crate) unsafe trait PageContent: Sync {}

// SAFETY: one atomic integer.
#[cfg(test)]
unsafe impl PageContent for std::sync::atomic::AtomicU64 {}

/// Zeros in pages of their own.
struct Pages<T> {
    address: NonNull<T>,
    _content: PhantomData<T>,
}

// SAFETY: the pages are owned by this value, and what is in them may be shared (`PageContent`).
unsafe impl<T: PageContent> Send for Pages<T> {}
// SAFETY: as above.
unsafe impl<T: PageContent> Sync for Pages<T> {}

impl<T> Pages<T> {
    fn new(sharing: MapFlags) -> rustix::io::Result<Self> {
        const { assert!(align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>()) };
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let address = unsafe {
            mmap_anonymous(std::ptr::null_mut(), size_of::<T>(), ProtFlags::READ | ProtFlags::WRITE, sharing)
        }?;
        let address = NonNull::new(address.cast()).expect("mmap returns no null address");
        Ok(Pages { address, _content: PhantomData })
    }
}

impl<T: PageContent> Deref for Pages<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the mapping is as long as a `T`, aligned to a page, lives as long as `self`, and is zero, or has been
        // changed through atomics.
        unsafe { self.address.as_ref() }
    }
}

impl<T> Drop for Pages<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made by `new`; no reference into it outlives `self`.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), size_of::<T>()) };
    }
}

/// Memory that a process has in common with the children that it forks.
pub(crate) struct SharedPage<T>(Pages<T>);

impl<T: PageContent> SharedPage<T> {
    pub fn new() -> rustix::io::Result<Self> {
        Pages::new(MapFlags::SHARED).map(SharedPage)
    }
}

impl<T: PageContent> Deref for SharedPage<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Memory that is zero in a child after `fork`, whatever it was in its parent (`MADV_WIPEONFORK`).
pub(crate) struct WipedPage<T>(Pages<T>);

impl<T: PageContent> WipedPage<T> {
    pub fn new() -> rustix::io::Result<Self> {
        let pages = Pages::<T>::new(MapFlags::PRIVATE)?;
        // SAFETY: the range is ours; zeros are a value of `T`.
        unsafe { madvise(pages.address.as_ptr().cast(), size_of::<T>(), Advice::LinuxWipeOnFork) }?;
        Ok(WipedPage(pages))
    }
}

impl<T: PageContent> Deref for WipedPage<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
