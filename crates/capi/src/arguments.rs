//! From pointers to references. What can be told of an argument is told here: that it is null, or not aligned, or too
//! long.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use wholly::{Error, Result};

/// Refuses what no pointer to a `T` can be.
pub fn check<T>(pointer: *const T, name: &str) -> Result<()> {
    let why = match (pointer.is_null(), pointer.is_aligned()) {
        (true, _) => "is NULL",
        (_, false) => "is misaligned",
        _ => return Ok(()),
    };
    Err(Error::Invalid(format!("{name} {why}")))
}

/// What a handle or a struct of the caller's is.
///
/// # Safety
/// Unless it is null, `pointer` is of a `T` that lives and is not changed during `'a`.
pub unsafe fn shared<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    check(pointer, name)?;
    // SAFETY: the caller's promise; null was refused.
    Ok(unsafe { &*pointer })
}

/// As [`shared`], for a call that changes it.
///
/// # Safety
/// Unless it is null, `pointer` is of a `T` that lives and that nobody else uses during `'a`.
pub unsafe fn exclusive<'a, T>(pointer: *mut T, name: &str) -> Result<&'a mut T> {
    check(pointer, name)?;
    // SAFETY: the caller's promise; null was refused.
    Ok(unsafe { &mut *pointer })
}

/// A handle that ends with the call.
///
/// # Safety
/// Unless it is null, `pointer` came from `Box::into_raw` and is not used any more.
pub unsafe fn owned<T>(pointer: *mut T, name: &str) -> Result<Box<T>> {
    check(pointer, name)?;
    // SAFETY: the caller's promise; null was refused.
    Ok(unsafe { Box::from_raw(pointer) })
}

/// Where a new handle goes. It holds NULL unless the call succeeds.
///
/// # Safety
/// Unless it is null, `place` may be written during `'a`, by nobody else.
pub unsafe fn place<'a, T>(place: *mut *mut T) -> Result<&'a mut *mut T> {
    check(place, "the place for the handle")?;
    // SAFETY: the caller's promise; null was refused. A pointer has no invalid values, but may be uninitialized: it is
    // written first.
    unsafe { place.write(std::ptr::null_mut()) };
    // SAFETY: as above, and now it is initialized.
    Ok(unsafe { &mut *place })
}

/// A path.
///
/// # Safety
/// Unless it is null, `text` ends in a zero and is not changed during `'a`.
pub unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    unsafe { named_path(text, "the path") }
}

/// As [`path`], where a call takes more than one.
///
/// # Safety
/// Unless it is null, `text` ends in a zero and is not changed during `'a`.
pub unsafe fn named_path<'a>(text: *const c_char, name: &str) -> Result<&'a Path> {
    check(text, name)?;
    // SAFETY: the caller's promise; null was refused.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// Bytes to write. No bytes need no pointer.
///
/// # Safety
/// Unless it is null, `data` is of `length` initialized bytes that are not changed during `'a`.
pub unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Result<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    check_buffer(data, length)?;
    // SAFETY: the caller's promise; null and what is longer than a slice may be were refused.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) })
}

/// Room for bytes that are read.
///
/// # Safety
/// Unless it is null, `room` is of `length` bytes that nobody else uses during `'a`.
pub unsafe fn bytes_mut<'a>(room: *mut c_void, length: usize) -> Result<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    check_buffer(room, length)?;
    // SAFETY: the caller's promise; null and what is longer than a slice may be were refused. What C never wrote to is
    // a byte all the same: it came over the boundary from memory of which Rust knows nothing.
    Ok(unsafe { std::slice::from_raw_parts_mut(room.cast(), length) })
}

fn check_buffer(buffer: *const c_void, length: usize) -> Result<()> {
    check(buffer.cast::<u8>(), "the buffer")?;
    if length > isize::MAX as usize || (buffer as usize).checked_add(length).is_none() {
        return Err(Error::Invalid(format!("no buffer has {length} bytes")));
    }
    Ok(())
}
