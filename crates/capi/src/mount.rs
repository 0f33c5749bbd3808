//! Groups on a mount, by plain descriptors.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use wholly::{Error, MountGroup, Result};
use wholly_host::mount::{ABORT, ADD, BEGIN, COMMIT, COMMIT_ATOMIC, FATOMIC, FDATAATOMIC, HOLDER, WHAT};

use crate::answer::done;
use crate::arguments::{owned, place, shared};

/// The requests of ioctl(2) on any descriptor of a mount, for programs that do not use this library. They take no
/// argument, but for the last. This one returns 1 on a mount, and 2 in a command of wholly run whose view is FUSE.
/// Elsewhere, also in an overlay of wholly run, all of them fail with ENOTTY.
pub const WHOLLY_IOC_WHAT: u32 = 0xE770;
/// Begins a group, as wholly_mount_begin does. It belongs to the open file that the descriptor stands for; its last
/// close aborts the group. The caller needs write permission to the root directory of the mount (EACCES).
pub const WHOLLY_IOC_BEGIN: u32 = 0xE771;
/// Adds this open file to the process's group, as wholly_mount_add does.
pub const WHOLLY_IOC_ADD: u32 = 0xE772;
/// Commits the group that this open file began.
pub const WHOLLY_IOC_COMMIT: u32 = 0xE773;
/// Aborts the group that this open file began.
pub const WHOLLY_IOC_ABORT: u32 = 0xE774;
/// Says which process has the mount's group, in 32 bytes: uint32_t process, user; uint64_t held_ms, idle_ms,
/// timeout_ms. All zero: no group runs.
pub const WHOLLY_IOC_HOLDER: u32 = 0x8020_E775;
/// Makes the calls on this open file atomic and ordered, as wholly_fatomic does.
pub const WHOLLY_IOC_FATOMIC: u32 = 0xE777;
/// The same as wholly_fdataatomic does.
pub const WHOLLY_IOC_FDATAATOMIC: u32 = 0xE778;
/// Commits the group that this open file began, as wholly_mount_commit_atomic does.
pub const WHOLLY_IOC_COMMIT_ATOMIC: u32 = 0xE779;

const _: () = {
    let numbers = [
        (WHOLLY_IOC_WHAT, WHAT),
        (WHOLLY_IOC_BEGIN, BEGIN),
        (WHOLLY_IOC_ADD, ADD),
        (WHOLLY_IOC_COMMIT, COMMIT),
        (WHOLLY_IOC_ABORT, ABORT),
        (WHOLLY_IOC_HOLDER, HOLDER),
        (WHOLLY_IOC_FATOMIC, FATOMIC),
        (WHOLLY_IOC_FDATAATOMIC, FDATAATOMIC),
        (WHOLLY_IOC_COMMIT_ATOMIC, COMMIT_ATOMIC),
    ];
    let mut i = 0;
    while i < numbers.len() {
        assert!(numbers[i].0 == numbers[i].1);
        i += 1;
    }
};

/// A group of plain system calls on a mount of a store (wholly mount), or in a command of wholly run. From its begin to
/// its end, everything that the process changes there belongs to the group: by any thread, descriptor and path. Changes
/// by its children do not belong to it, except what they write by descriptors that were added.
///
/// The store is open in the process that serves the mount, not here. So other programs see what the group has done so
/// far; they cannot change it before the group ends (EBUSY). If the process ends, the group is aborted. It is aborted
/// too if it makes no calls for as long as the mount's option group_timeout says; until the process commits or aborts
/// it (or closes its descriptors), its changes on the mount then fail with ECANCELED. In a command of wholly run the
/// group joins the group of the command: it is committed with that, and if it is aborted, the command changes nothing.
pub struct wholly_mount_group {
    group: MountGroup,
}

/// What a descriptor of the caller's stands for.
///
/// # Safety
/// It stays open during `'a`.
pub(crate) unsafe fn descriptor<'a>(fd: c_int) -> Result<BorrowedFd<'a>> {
    match fd {
        0.. => Ok(
            // SAFETY: the caller's promise. A number that is not open is an error of the kernel's.
            unsafe { BorrowedFd::borrow_raw(fd) },
        ),
        _ => Err(Error::Invalid(format!("{fd} is not a descriptor"))),
    }
}

/// Begins a group on the mount that fd belongs to: any open file or directory there. fd may be closed afterwards.
///
/// Errors: -EBUSY if another group runs on the mount; -EACCES if the caller may not write to the mount's root
/// directory; -EROFS on a read-only mount; -ECANCELED if an earlier group of the process was aborted because it made no
/// calls, and was not ended by wholly_mount_commit or wholly_mount_abort; -EOPNOTSUPP if it is not a mount of a store,
/// or one that cannot tell which process makes a call (in another PID namespace, or before Linux 5.3); -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_begin(fd: c_int, group: *mut *mut wholly_mount_group) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, and a descriptor that stays open.
        let (place, fd) = unsafe { (place(group)?, descriptor(fd)?) };
        *place = Box::into_raw(Box::new(wholly_mount_group { group: MountGroup::begin(fd)? }));
        Ok(())
    })
}

/// Claims an open file of the mount for the group now, instead of at its first change. From now on everything that is
/// written by its descriptors belongs to the group, also by other processes: children inherit descriptors. For a file
/// of the group, so does what is written to mapped memory.
///
/// Errors: -EBUSY if another group has the file; -EBADF if fd is not open for writing; -EXDEV if it is of another
/// mount; -EPERM in another process than the one that began the group; -EINVAL if the group has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_add(group: *const wholly_mount_group, fd: c_int) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group that runs, and a descriptor that stays open.
        let (handle, fd) = unsafe { (shared(group, "group")?, descriptor(fd)?) };
        handle.group.add(fd)
    })
}

/// Commits the group. When this returns 0, it survives a power failure; in a command of wholly run, it becomes durable
/// with the command. What was written to mapped memory is in the group if msync(2) was called before. The group ends
/// and its handle is freed, also on failure.
///
/// Errors: -EIO if the medium failed: it is unknown whether the group survives until the store is opened again. After
/// any other error the group is aborted. -ECANCELED: it was aborted before, because it made no calls for as long as the
/// mount's option group_timeout says (five minutes by default). -EAGAIN: it began while another group was committed,
/// which failed, so that it may have seen changes that are gone: make it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_commit(group: *mut wholly_mount_group) -> c_int {
    // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
    done(|| unsafe { owned(group, "group") }?.group.commit())
}

/// Commits the group as wholly_mount_commit does, but returns when it is atomic and ordered: all programs see it, and a
/// crash leaves it wholly or not at all, and no later change without it. It is durable with whatever is made durable
/// next on the mount, as with wholly_fatomic. It does not wait for the medium on the mount of a volume whose engine is
/// op_log or page_cache_wal; elsewhere it is wholly_mount_commit. The group ends and its handle is freed, also on
/// failure.
///
/// Errors: those of wholly_mount_commit; -EOPNOTSUPP if an earlier version serves the mount. If the medium fails later,
/// the next fsync says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_commit_atomic(group: *mut wholly_mount_group) -> c_int {
    // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
    done(|| unsafe { owned(group, "group") }?.group.commit_atomic())
}

/// Aborts the group; in a command of wholly run, everything that the command does. When this returns 0, all programs
/// see the mount as it was before. The group ends and its handle is freed, also on failure.
///
/// Errors: -EPERM in another process than the one that began it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_abort(group: *mut wholly_mount_group) -> c_int {
    // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
    done(|| unsafe { owned(group, "group") }?.group.abort())
}

/// fatomic of MQFS, for an open regular file of a mount. When this returns 0, what fsync(2) would make durable is
/// atomic and ordered: a crash leaves all of it or nothing of it, and no later change without it. It is durable with
/// whatever is made durable next on the mount: by fsync(2), a change of names, a commit of a group, or by the mount's
/// policy. It does not wait for the medium on the mount of a volume whose engine is op_log or page_cache_wal; on
/// other mounts it is an fsync. What was written to mapped memory is not included unless msync(2) was called before.
/// What is in a group (wholly_mount_begin) stays there.
///
/// Errors: -EIO if the medium failed before (if it fails later, the next fsync says so); -EBADF for a directory, or if
/// fd is not open; -EOPNOTSUPP if it is not on a mount of Wholly's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_fatomic(fd: c_int) -> c_int {
    // SAFETY: the caller's part of the contract: a descriptor that stays open.
    done(|| wholly::fatomic(unsafe { descriptor(fd) }?))
}

/// fdataatomic of MQFS: wholly_fatomic of what is needed to read the data, without times.
///
/// Errors: those of wholly_fatomic.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_fdataatomic(fd: c_int) -> c_int {
    // SAFETY: the caller's part of the contract: a descriptor that stays open.
    done(|| wholly::fdataatomic(unsafe { descriptor(fd) }?))
}
