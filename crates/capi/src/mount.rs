//! Groups on a mount, by plain descriptors.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use wholly::{Error, MountGroup, Result};
use wholly_media::mount::{ABORT, ADD, BEGIN, COMMIT, WHAT};

use crate::answer::done;
use crate::arguments::{owned, place, shared};

/// The requests of ioctl(2) on any descriptor of a mount, for programs that do without this library: they take no argument. This one returns 1
/// on a mount, and 2 in a command of wholly run whose view is FUSE; elsewhere, in its overlays too, all of them fail with ENOTTY.
pub const WHOLLY_IOC_WHAT: u32 = 0xE770;
/// Begins a group, as wholly_mount_begin does: the open file that the descriptor stands for has it, and its last close aborts it.
pub const WHOLLY_IOC_BEGIN: u32 = 0xE771;
/// Adds this open file to the process's group, as wholly_mount_add does.
pub const WHOLLY_IOC_ADD: u32 = 0xE772;
/// Commits the group that was begun by this open file.
pub const WHOLLY_IOC_COMMIT: u32 = 0xE773;
/// Aborts the group that was begun by this open file.
pub const WHOLLY_IOC_ABORT: u32 = 0xE774;

const _: () = {
    let numbers = [WHOLLY_IOC_WHAT, WHOLLY_IOC_BEGIN, WHOLLY_IOC_ADD, WHOLLY_IOC_COMMIT, WHOLLY_IOC_ABORT];
    let asked = [WHAT, BEGIN, ADD, COMMIT, ABORT];
    let mut i = 0;
    while i < numbers.len() {
        assert!(numbers[i] == asked[i]);
        i += 1;
    }
};

/// A group of plain system calls on a mount of a store (wholly mount), or in a command of wholly run. From its begin to its end all that the process
/// changes there belongs to it: by whatever thread, descriptor and path; what its children change does not, but for what they write by descriptors
/// that were added.
///
/// It needs no store that is open: the mount has that. So other programs see what the group has done so far; they cannot change that before it ends
/// (EBUSY). It ends with the process, too, and is aborted then. In a command of wholly run it joins the group that the command is: it is committed with
/// that, and where it is aborted the command changes nothing.
pub struct wholly_mount_group {
    group: MountGroup,
}

/// What a descriptor of the caller's stands for.
///
/// # Safety
/// It stays open during `'a`.
unsafe fn descriptor<'a>(fd: c_int) -> Result<BorrowedFd<'a>> {
    match fd {
        0.. => Ok(
            // SAFETY: the caller's promise. A number that is not open is an error of the kernel's.
            unsafe { BorrowedFd::borrow_raw(fd) },
        ),
        _ => Err(Error::Invalid(format!("{fd} is no descriptor"))),
    }
}

/// Begins a group on the mount that fd is of: any open file or directory there, which may be closed again.
///
/// Errors: -EBUSY where another group runs on the mount; -EOPNOTSUPP where it is no mount of a store, or one that cannot tell which process
/// calls (of another namespace of processes, or before Linux 5.3); -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_begin(fd: c_int, group: *mut *mut wholly_mount_group) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, and a descriptor that stays open.
        let (place, fd) = unsafe { (place(group)?, descriptor(fd)?) };
        *place = Box::into_raw(Box::new(wholly_mount_group { group: MountGroup::begin(fd)? }));
        Ok(())
    })
}

/// Makes an open file of the mount the group's own now rather than at its first change, and what is written by its descriptors part of the
/// group, whoever writes: children have their parent's. Of a file that is the group's own so is what is written to mapped memory.
///
/// Errors: -EBUSY where a group has the file; -EBADF where fd is not open for writing; -EXDEV where it is of another mount; -EPERM in another
/// process than the one that began the group; -EINVAL where the group has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_add(group: *const wholly_mount_group, fd: c_int) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group that runs, and a descriptor that stays open.
        let (handle, fd) = unsafe { (shared(group, "group")?, descriptor(fd)?) };
        handle.group.add(fd)
    })
}

/// Makes the group survive power loss: it does when this returns 0; in a command of wholly run, with the command. The group ends and its handle is
/// freed, also on failure. What was written to mapped memory is part of it where msync(2) was called before.
///
/// Errors: -EIO where the medium failed: nobody knows whether the group survives until the store is opened again. After any other error the
/// group is aborted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_commit(group: *mut wholly_mount_group) -> c_int {
    // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
    done(|| unsafe { owned(group, "group") }?.group.commit())
}

/// Undoes the group; in a command of wholly run, all that the command does. On return all see the mount as it was before. The group ends and its
/// handle is freed, also on failure.
///
/// Errors: -EPERM in another process than the one that began it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_mount_abort(group: *mut wholly_mount_group) -> c_int {
    // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
    done(|| unsafe { owned(group, "group") }?.group.abort())
}
