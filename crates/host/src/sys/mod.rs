//! System calls on host files that `rustix` does not name, and small helpers over those that it does; beside those that
//! several media make. None passes libc, as in `wholly-media`.

mod extents;
mod handle;
pub mod mounts;
mod page;

pub(crate) use extents::reserved_in;
pub use extents::{Extent, reserved_extents, shared, shared_extents};
pub use handle::file_handle;
pub(crate) use page::{PageContent, SharedPage, WipedPage};
pub(crate) use wholly_media::sys::{
    FileSystem, Lock, OrFail, allocate, decode, is_locked, read_full_at, show, try_lock, unlock, write_all_at,
};

use rustix::fd::BorrowedFd;
use rustix::fs;
use wholly_media::Result;

/// Sixteen random hexadecimal digits.
pub(crate) fn random_name(prefix: &str) -> Result<String> {
    let mut bytes = [0u8; 8];
    let got =
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).or_fail("getrandom", || "")?;
    // Up to 256 bytes come in one piece (getrandom(2)).
    assert_eq!(got, bytes.len());
    Ok(format!("{prefix}{:016x}", u64::from_ne_bytes(bytes)))
}

/// A descriptor of the standard library's, as `rustix` has it without that.
pub(crate) fn of_std<'fd>(descriptor: &std::os::fd::BorrowedFd<'fd>) -> BorrowedFd<'fd> {
    // SAFETY: it is open for as long as the one that it is made of.
    unsafe { BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(descriptor)) }
}

/// Nanoseconds since the epoch of a time stamp.
pub(crate) fn nanoseconds(time: fs::StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec))
}
