//! System calls and ioctls that `rustix` does not name, and small helpers over those that it does.
//!
//! Everything here, as in the whole crate, goes to the kernel without passing libc: the preload library carries this
//! code, and a file call of its own must not come back to it.

mod file_system;

pub use file_system::FileSystem;

use crate::{Error, Result};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use rustix::{fs, ioctl};
use std::ops::Range;

/// Turns an `errno` into an [`Error`] that says which call failed on what. `place` is only evaluated on failure.
pub trait OrFail<T> {
    /// See the trait.
    fn or_fail<P: Into<String>>(self, operation: &'static str, place: impl FnOnce() -> P) -> Result<T>;
}

impl<T> OrFail<T> for rustix::io::Result<T> {
    #[inline]
    fn or_fail<P: Into<String>>(self, operation: &'static str, place: impl FnOnce() -> P) -> Result<T> {
        self.map_err(|errno| Error::new(operation, place(), errno))
    }
}

/// A path for messages: bytes that are not UTF-8 are replaced.
pub fn show(path: &[u8]) -> String {
    if path.is_empty() { ".".into() } else { String::from_utf8_lossy(path).into_owned() }
}

/// Whether anybody holds the lock, as `try_lock` found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The caller has it now.
    Taken,
    /// Another open file description has it.
    Busy,
}

/// `struct flock` of 64-bit Linux.
#[repr(C)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    len: i64,
    pid: i32,
}

impl Flock {
    const F_RDLCK: i16 = 0;
    const F_WRLCK: i16 = 1;
    const F_UNLCK: i16 = 2;
    /// A write lock of everything.
    const WHOLE_FILE: Flock = Flock { kind: Self::F_WRLCK, whence: 0, start: 0, len: 0, pid: 0 };
    /// A read lock of everything.
    const TO_READ: Flock = Flock { kind: Self::F_RDLCK, ..Self::WHOLE_FILE };
}

/// Tries to take the write lock of the whole file for this open file description (`F_OFD_SETLK`). It is released when
/// the last descriptor of the description is closed: not by closing some other descriptor of the file, as POSIX locks
/// are.
pub fn try_lock(fd: BorrowedFd<'_>) -> rustix::io::Result<Lock> {
    try_to_set(fd, Flock::WHOLE_FILE)
}

fn try_to_set(fd: BorrowedFd<'_>, lock: Flock) -> rustix::io::Result<Lock> {
    match set_lock(fd, lock) {
        Ok(()) => Ok(Lock::Taken),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(Lock::Busy),
        Err(errno) => Err(errno),
    }
}

/// Takes the lock of a file or device, whose only user the caller then is among those that ask; `false` if another open
/// file description has it. It is released when the last descriptor of this description is closed.
///
/// # Errors
/// Those of `fcntl`.
pub fn lock_file(fd: BorrowedFd<'_>, name: &str) -> Result<bool> {
    Ok(try_lock(fd).or_fail("lock", || name)? == Lock::Taken)
}

/// [`lock_file`] for a caller that only reads, by a descriptor that may be open for reading only: others may read
/// meanwhile.
///
/// # Errors
/// Those of `fcntl`.
pub fn lock_file_to_read(fd: BorrowedFd<'_>, name: &str) -> Result<bool> {
    Ok(try_to_set(fd, Flock::TO_READ).or_fail("lock", || name)? == Lock::Taken)
}

/// Releases the lock of this open file description, whoever else has a descriptor of it.
pub fn unlock(fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
    set_lock(fd, Flock { kind: Flock::F_UNLCK, ..Flock::WHOLE_FILE })
}

fn set_lock(fd: BorrowedFd<'_>, flock: Flock) -> rustix::io::Result<()> {
    const F_OFD_SETLK: usize = 37;
    loop {
        // SAFETY: fcntl(F_OFD_SETLK) reads one `struct flock` at the address, which lives until the call returns, and
        // writes no memory of ours.
        match unsafe { fcntl(fd.as_raw_fd(), F_OFD_SETLK, &raw const flock as usize) } {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether another open file description has a lock that would keep the caller from taking it (`F_OFD_GETLK`). Takes
/// none.
pub fn is_locked(fd: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    const F_OFD_GETLK: usize = 36;
    let mut flock = Flock::WHOLE_FILE;
    // SAFETY: fcntl(F_OFD_GETLK) reads and writes one `struct flock` at the address, which lives until the call returns
    // and is borrowed by nobody else; all bit patterns are valid.
    unsafe { fcntl(fd.as_raw_fd(), F_OFD_GETLK, &raw mut flock as usize) }?;
    Ok(flock.kind != Flock::F_UNLCK)
}

/// `fcntl(2)` itself, since rustix knows only POSIX locks.
///
/// # Safety
/// `argument` must be what the kernel expects for `command`.
#[cfg(target_arch = "x86_64")]
unsafe fn fcntl(fd: i32, command: usize, argument: usize) -> rustix::io::Result<usize> {
    const SYS_FCNTL: isize = 72;
    let result: isize;
    // SAFETY: the Linux system call convention of x86-64: number in rax, arguments in rdi, rsi, rdx; rcx and r11 are
    // clobbered; what `argument` points to is the caller's duty. No `nomem`, so the pointed-to values are in memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") SYS_FCNTL => result,
            in("rdi") fd as isize, in("rsi") command, in("rdx") argument,
            lateout("rcx") _, lateout("r11") _,
            options(nostack, preserves_flags),
        );
    }
    decode(result)
}

/// `fcntl(2)` itself, since rustix knows only POSIX locks.
///
/// # Safety
/// `argument` must be what the kernel expects for `command`.
#[cfg(target_arch = "aarch64")]
unsafe fn fcntl(fd: i32, command: usize, argument: usize) -> rustix::io::Result<usize> {
    const SYS_FCNTL: usize = 25;
    let result: isize;
    // SAFETY: the Linux system call convention of aarch64: number in x8, arguments in x0, x1, x2, result in x0; what
    // `argument` points to is the caller's duty. No `nomem`, so the pointed-to values are in memory.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") SYS_FCNTL,
            inlateout("x0") fd as isize => result, in("x1") command, in("x2") argument,
            options(nostack, preserves_flags),
        );
    }
    decode(result)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("wholly-media makes raw system calls and knows those of x86_64 and aarch64 only");

/// What a system call returned: values of -4095..0 are errors.
pub fn decode(result: isize) -> rustix::io::Result<usize> {
    match usize::try_from(result) {
        Ok(value) => Ok(value),
        Err(_) => Err(Errno::from_raw_os_error(-result as i32)),
    }
}

/// The size of a block device in bytes (`BLKGETSIZE64`).
pub(crate) fn block_device_len(fd: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    const BLKGETSIZE64: ioctl::Opcode = ioctl::opcode::read::<usize>(0x12, 114);
    // SAFETY: the opcode writes one u64 (its number says size_t, which on 64-bit Linux is as long).
    unsafe { ioctl::ioctl(fd, ioctl::Getter::<BLKGETSIZE64, u64>::new()) }
}

/// Writes all of `data` at `offset` through the page cache or past it, as the descriptor was opened.
pub fn write_all_at(fd: impl AsFd, data: &[u8], offset: u64) -> rustix::io::Result<()> {
    write_all_by(data, offset, |data, offset| rustix::io::pwrite(&fd, data, offset))
}

/// Writes all of `data` at `offset` by a call that may write less than it is given.
pub(crate) fn write_all_by(
    mut data: &[u8],
    mut offset: u64,
    write: impl Fn(&[u8], u64) -> rustix::io::Result<usize>,
) -> rustix::io::Result<()> {
    while !data.is_empty() {
        match write(data, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => {
                data = &data[n..];
                offset += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Reads until `buf` is full or the file ends, and returns how much it was.
pub fn read_full_at(fd: impl AsFd, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(&fd, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// The holes of a file of `len` bytes. Space that was set aside and not written to looks like one; where there is space
/// for all of it, there is none. Empty where the file system does not tell.
pub fn holes(fd: impl AsFd, len: u64) -> Vec<Range<u64>> {
    const SECTOR: u64 = 512;
    if fs::fstat(&fd).is_ok_and(|stat| stat.st_blocks as u64 * SECTOR >= len) {
        return Vec::new();
    }
    let mut holes = Vec::new();
    let mut at = 0;
    while at < len {
        let Ok(hole) = fs::seek(&fd, SeekFrom::Hole(at)) else { return Vec::new() };
        if hole >= len {
            break;
        }
        // No data behind it is an error, too.
        at = fs::seek(&fd, SeekFrom::Data(hole)).unwrap_or(len).min(len);
        holes.push(hole..at);
    }
    holes
}

/// Takes space for a part of a file. Returns whether it is taken, as far as the file system can do that ahead.
pub fn take_space(fd: impl AsFd, offset: u64, len: u64) -> bool {
    let taken = allocate(fd, fs::FallocateFlags::KEEP_SIZE, offset, len);
    matches!(taken, Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS))
}

/// `fallocate`, repeated when a signal interrupts it.
pub fn allocate(fd: impl AsFd, mode: fs::FallocateFlags, offset: u64, len: u64) -> rustix::io::Result<()> {
    // A signal that comes again before any progress could interrupt for ever; nobody is helped by an endless loop.
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        match fs::fallocate(&fd, mode, offset, len) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
    Err(Errno::INTR)
}
