//! File handles, which `rustix` does not know.

use super::decode;
use crate::FileHandle;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

/// Bytes of the longest handle (`MAX_HANDLE_SZ`).
const MOST: usize = 128;

/// `struct file_handle`.
#[repr(C)]
struct RawHandle {
    len: u32,
    kind: i32,
    bytes: [u8; MOST],
}

/// The handle of what is open, by `O_PATH` too: `None` where the file system has none. It tells whether two objects are
/// the same one, also where one of them is known by its handle only (overlayfs keeps those of what it has copied).
///
/// # Errors
/// Those of `name_to_handle_at(2)`.
pub fn file_handle(fd: BorrowedFd<'_>) -> rustix::io::Result<Option<FileHandle>> {
    const AT_EMPTY_PATH: usize = 0x1000;
    let mut raw = RawHandle { len: MOST as u32, kind: 0, bytes: [0; MOST] };
    let mut mount = 0i32;
    // SAFETY: the empty path ends in its zero byte; the kernel writes at most `len` bytes behind a handle's head and
    // one `int`, both of which live until the call returns and are borrowed by nobody else.
    let result = unsafe {
        name_to_handle_at(
            fd.as_raw_fd(),
            c"".as_ptr() as usize,
            &raw mut raw as usize,
            &raw mut mount as usize,
            AT_EMPTY_PATH,
        )
    };
    match result {
        Ok(_) => Ok(Some(FileHandle { kind: raw.kind, bytes: raw.bytes[..(raw.len as usize).min(MOST)].to_vec() })),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::OVERFLOW) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// `name_to_handle_at(2)` itself.
///
/// # Safety
/// The addresses must be what the kernel expects: a path, a `struct file_handle` with room for the `handle_bytes` that
/// it tells, an `int`.
#[cfg(target_arch = "x86_64")]
unsafe fn name_to_handle_at(
    fd: i32,
    path: usize,
    handle: usize,
    mount: usize,
    flags: usize,
) -> rustix::io::Result<usize> {
    const SYS_NAME_TO_HANDLE_AT: isize = 303;
    let result: isize;
    // SAFETY: the Linux system call convention of x86-64: number in rax, arguments in rdi, rsi, rdx, r10, r8; rcx and
    // r11 are clobbered; what the addresses point to is the caller's duty. No `nomem`, so the pointed-to values are in
    // memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") SYS_NAME_TO_HANDLE_AT => result,
            in("rdi") fd as isize, in("rsi") path, in("rdx") handle, in("r10") mount, in("r8") flags,
            lateout("rcx") _, lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    decode(result)
}

/// `name_to_handle_at(2)` itself.
///
/// # Safety
/// The addresses must be what the kernel expects: a path, a `struct file_handle` with room for the `handle_bytes` that
/// it tells, an `int`.
#[cfg(target_arch = "aarch64")]
unsafe fn name_to_handle_at(
    fd: i32,
    path: usize,
    handle: usize,
    mount: usize,
    flags: usize,
) -> rustix::io::Result<usize> {
    const SYS_NAME_TO_HANDLE_AT: usize = 264;
    let result: isize;
    // SAFETY: the Linux system call convention of aarch64: number in x8, arguments in x0 to x4, result in x0; what the
    // addresses point to is the caller's duty. No `nomem`, so the pointed-to values are in memory.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") SYS_NAME_TO_HANDLE_AT,
            inlateout("x0") fd as isize => result,
            in("x1") path, in("x2") handle, in("x3") mount, in("x4") flags,
            options(nostack, preserves_flags),
        );
    }
    decode(result)
}
