//! Structs that may grow: each begins with its size as the program knows it, so that programs and libraries of
//! different versions understand each other, as with `openat2(2)`.

use std::mem::{MaybeUninit, size_of};

use wholly::{Error, Result};

/// Larger ones there will never be: a size that the program forgot to set is mostly found.
const LARGEST: usize = 64 << 10;

/// A struct that may grow.
///
/// # Safety
/// It is `repr(C)`, begins with a `usize`, has no padding, and any bytes are a valid value of it.
pub unsafe trait Sized: std::marker::Sized {
    /// Bytes of its first version.
    const FIRST: usize;
    /// What it is called.
    const NAME: &str;
}

/// The size that the program knows, which is checked to be a possible one.
///
/// # Safety
/// `pointer` is not null, is aligned, and its first field may be read.
unsafe fn size<T: Sized>(pointer: *const T) -> Result<usize> {
    // SAFETY: the caller's promise, and the trait's: the first field is a `usize`.
    let size = unsafe { pointer.cast::<usize>().read() };
    if (T::FIRST..=LARGEST).contains(&size) {
        return Ok(size);
    }
    Err(Error::Invalid(format!("{}: its size is set to {size}, and it has {} bytes", T::NAME, size_of::<T>())))
}

/// What can be told of a struct that is to be filled in, told before any work is done.
///
/// # Safety
/// Unless it is null, the first field of `pointer` may be read.
pub unsafe fn check<T: Sized>(pointer: *const T) -> Result<()> {
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Error::Invalid(format!("{}: NULL or misaligned", T::NAME)));
    }
    // SAFETY: the caller's promise; null was refused.
    unsafe { size(pointer) }.map(|_| ())
}

/// A struct that the program filled in. What an older program does not know is zero.
///
/// # Errors
/// [`Error::Unsupported`] where a newer program asks for what this library does not know.
///
/// # Safety
/// `pointer` is not null, is aligned, and as many bytes as its size says may be read.
pub unsafe fn read<T: Sized>(pointer: *const T) -> Result<T> {
    // SAFETY: the caller's promise.
    let size = unsafe { size(pointer) }?;
    let known = size.min(size_of::<T>());
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes are in both, and the value is the function's own.
    unsafe { std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), value.as_mut_ptr().cast(), known) };
    // SAFETY: the caller's promise: `size` bytes may be read, and these are the ones from `known` on.
    let unknown = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(known), size - known) };
    if unknown.iter().any(|&byte| byte != 0) {
        return Err(Error::Unsupported(format!("{}: it is newer than the library", T::NAME)));
    }
    // SAFETY: all bytes are initialized, and by the trait they are a valid value.
    Ok(unsafe { value.assume_init() })
}

/// Fills in a struct of the program's. Its size stays; what this library does not know is zero.
///
/// # Safety
/// `pointer` is not null, is aligned, and as many bytes as its size says may be written.
pub unsafe fn write<T: Sized>(pointer: *mut T, value: T) -> Result<()> {
    // SAFETY: the caller's promise.
    let size = unsafe { size(pointer) }?;
    let known = size.min(size_of::<T>());
    let (from, to) = ((&raw const value).cast::<u8>(), pointer.cast::<u8>());
    let head = size_of::<usize>();
    // SAFETY: `size` bytes may be written, and `known` of them are in both.
    unsafe {
        std::ptr::copy_nonoverlapping(from.add(head), to.add(head), known - head);
        to.add(known).write_bytes(0, size - known);
    }
    Ok(())
}

/// A text for a struct: ends in a zero, and is cut where it is too long.
pub fn text<const N: usize>(text: impl AsRef<[u8]>) -> [std::ffi::c_char; N] {
    let mut room = [0; N];
    let bytes = text.as_ref().iter().copied().filter(|&byte| byte != 0);
    room.iter_mut().take(N - 1).zip(bytes).for_each(|(place, byte)| *place = byte as std::ffi::c_char);
    room
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Grown {
        size: usize,
        old: u64,
        new: u64,
    }

    // SAFETY: three fields of eight bytes each.
    unsafe impl Sized for Grown {
        const FIRST: usize = 16;
        const NAME: &str = "grown";
    }

    #[test]
    fn older_and_newer_programs_are_understood() {
        let mut room = [16, 1, 2, 3usize];
        let pointer = room.as_mut_ptr().cast::<Grown>();
        // SAFETY: there are four words, and no size says more than that is read or written.
        unsafe {
            assert_eq!(read(pointer).unwrap(), Grown { size: 16, old: 1, new: 0 });
            write(pointer, Grown { size: 0, old: 7, new: 8 }).unwrap();
            assert_eq!(pointer.cast::<[usize; 4]>().read(), [16, 7, 2, 3]);
            pointer.cast::<usize>().write(32);
            assert!(matches!(read(pointer), Err(Error::Unsupported(_))));
            write(pointer, Grown { size: 0, old: 7, new: 8 }).unwrap();
            assert_eq!(pointer.cast::<[usize; 4]>().read(), [32, 7, 8, 0]);
            assert_eq!(read(pointer).unwrap(), Grown { size: 32, old: 7, new: 8 });
            for size in [0, 15, LARGEST + 1, usize::MAX] {
                pointer.cast::<usize>().write(size);
                assert!(matches!(read(pointer), Err(Error::Invalid(_))), "{size}");
                assert!(matches!(write(pointer, Grown { size: 0, old: 0, new: 0 }), Err(Error::Invalid(_))));
            }
        }
        assert_eq!(text::<4>("ab\0cd"), [b'a', b'b', b'c', 0].map(|byte| byte as std::ffi::c_char));
    }
}
