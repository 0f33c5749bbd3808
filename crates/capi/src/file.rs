//! Open files, and calls on them outside of groups.

use std::ffi::{CString, c_char, c_int, c_void};

use rustix::io::Errno;
use wholly::{Error, Fallocate, File, Result};

use crate::answer::{Health, answer, done};
use crate::arguments::{bytes, bytes_mut, owned, shared};

/// An open regular file of a store. Any number of threads may use the handle at the same time. The calls wholly_file_*
/// are outside of groups: the store's policy says which of them survive together. In a group, pass the file to
/// wholly_group_*.
pub struct wholly_file {
    pub(crate) file: File,
    health: Health,
    path: CString,
}

/// Mode of wholly_group_fallocate and wholly_file_fallocate: the file does not grow.
pub const WHOLLY_FALLOCATE_KEEP_SIZE: u32 = 1;
/// Mode: the range becomes a hole. Only together with WHOLLY_FALLOCATE_KEEP_SIZE.
pub const WHOLLY_FALLOCATE_PUNCH_HOLE: u32 = 2;
/// Mode: the range becomes zeros, with space reserved for them.
pub const WHOLLY_FALLOCATE_ZERO_RANGE: u32 = 16;

const PUNCH: u32 = WHOLLY_FALLOCATE_PUNCH_HOLE | WHOLLY_FALLOCATE_KEEP_SIZE;
const _: () = assert!(Fallocate::Punch.flags() == PUNCH);
const _: () = assert!(Fallocate::ZeroExtend.flags() == WHOLLY_FALLOCATE_ZERO_RANGE);

pub(crate) fn fallocate(mode: u32) -> Result<Fallocate> {
    let refused = |errno| Error::Refused(format!("mode {mode:#x} of fallocate"), errno);
    match Fallocate::from_flags(mode).map_err(refused)? {
        how if how.moves() => Err(refused(Errno::OPNOTSUPP)),
        how => Ok(how),
    }
}

impl wholly_file {
    pub(crate) fn new(file: File, health: &Health) -> *mut wholly_file {
        // A store's paths hold no zero.
        let path = CString::new(file.path()).unwrap_or_default();
        Box::into_raw(Box::new(wholly_file { file, health: health.clone(), path }))
    }
}

/// Closes a file. Groups that use the file continue to use it. The last close of a file commits its calls under
/// WHOLLY_POLICY_PER_SYNC; to learn whether that succeeds, call wholly_file_sync before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_close(file: *mut wholly_file) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a handle that is not used any more.
        let wholly_file { file, health, .. } = *unsafe { owned(file, "file") }?;
        health.spend(file, |file| {
            drop(file);
            Ok(())
        })
    })
}

/// Reads up to length bytes at offset. Returns how many; fewer only at the end of the file. Nothing of groups that
/// still run is seen.
///
/// Errors: -EUCLEAN if the log is damaged where it holds these bytes; errors of the file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_read(
    file: *const wholly_file,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, and room for `length` bytes.
        let (handle, room) = unsafe { (shared(file, "file")?, bytes_mut(buffer, length)?) };
        handle.health.run(|| Ok(handle.file.read_at(offset, room)? as u64))
    })
}

/// Writes length bytes at offset, all or nothing. The file grows if the range ends beyond its end; a gap reads as
/// zeros. Under WHOLLY_POLICY_PER_OP the write survives a power failure when this returns 0; else at the next commit by
/// the policy.
///
/// Errors: -EBUSY if a group has the file; -ENOSPC; -EIO if the medium failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_write(
    file: *const wholly_file,
    offset: u64,
    data: *const c_void,
    length: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, and `length` bytes.
        let (handle, data) = unsafe { (shared(file, "file")?, bytes(data, length)?) };
        handle.health.run(|| handle.file.write_at(offset, data))
    })
}

/// Writes length bytes at the end of the file, all or nothing. Returns the offset at which they begin. Durable as
/// wholly_file_write.
///
/// Errors: those of wholly_file_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_append(file: *const wholly_file, data: *const c_void, length: usize) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, and `length` bytes.
        let (handle, data) = unsafe { (shared(file, "file")?, bytes(data, length)?) };
        handle.health.run(|| handle.file.append(data))
    })
}

/// Sets the length of the file to length bytes. Bytes beyond are dropped; new bytes are zero. Durable as
/// wholly_file_write.
///
/// Errors: those of wholly_file_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_set_len(file: *const wholly_file, length: u64) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let handle = unsafe { shared(file, "file") }?;
        handle.health.run(|| handle.file.set_len(length))
    })
}

/// Changes the space of the length bytes from offset on: see wholly_group_fallocate. Durable as wholly_file_write.
///
/// Errors: those of wholly_group_fallocate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_fallocate(file: *const wholly_file, mode: u32, offset: u64, length: u64) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let handle = unsafe { shared(file, "file") }?;
        let how = fallocate(mode)?;
        handle.health.run(|| handle.file.fallocate(how, offset, length))
    })
}

/// Returns the size of the file in bytes: committed bytes and those of calls outside of groups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_len(file: *const wholly_file) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let handle = unsafe { shared(file, "file") }?;
        handle.health.run(|| Ok(handle.file.len()))
    })
}

/// Commits the calls on this file so far. When this returns 0, they survive a power failure. Under WHOLLY_POLICY_PER_OP
/// they did before.
///
/// Errors: -EIO if the medium failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_sync(file: *const wholly_file) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let handle = unsafe { shared(file, "file") }?;
        handle.health.run(|| handle.file.sync())
    })
}

/// Makes the calls on this file so far atomic and ordered: a crash leaves all of them or none, and no later change
/// without them. In a store this is wholly_file_sync. For a file of a mount there is wholly_fatomic.
///
/// Errors: those of wholly_file_sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_fatomic(file: *const wholly_file) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let handle = unsafe { shared(file, "file") }?;
        handle.health.run(|| handle.file.fatomic())
    })
}

/// Like wholly_file_fatomic, for what is needed to read the data: without times.
///
/// Errors: those of wholly_file_sync.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_fdataatomic(file: *const wholly_file) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let handle = unsafe { shared(file, "file") }?;
        handle.health.run(|| handle.file.fdataatomic())
    })
}

/// Returns the path, relative to the store's directory, by which the file was opened. The text belongs to the handle,
/// and is valid until the handle is closed. NULL if file is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_file_path(file: *const wholly_file) -> *const c_char {
    // SAFETY: the caller's part of the contract: an open handle.
    unsafe { shared(file, "file") }.map_or(std::ptr::null(), |handle| handle.path.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FallocateFlags;

    #[test]
    fn modes_are_those_of_the_system() {
        let bits = [
            (WHOLLY_FALLOCATE_KEEP_SIZE, FallocateFlags::KEEP_SIZE),
            (WHOLLY_FALLOCATE_PUNCH_HOLE, FallocateFlags::PUNCH_HOLE),
            (WHOLLY_FALLOCATE_ZERO_RANGE, FallocateFlags::ZERO_RANGE),
        ];
        for (ours, theirs) in bits {
            assert_eq!(ours, theirs.bits());
        }
        for (mode, how) in [
            (0, Some(Fallocate::Extend)),
            (1, Some(Fallocate::Keep)),
            (2, None),
            (3, Some(Fallocate::Punch)),
            (16, Some(Fallocate::ZeroExtend)),
            (17, Some(Fallocate::Zero)),
            // Others of the system's: collapse, insert, unshare.
            (8, None),
            (32, None),
            (64, None),
            (1 << 31, None),
        ] {
            assert_eq!(fallocate(mode).ok(), how, "{mode:#x}");
        }
        assert_eq!(fallocate(2).unwrap_err().errno(), Errno::OPNOTSUPP.raw_os_error());
    }
}
