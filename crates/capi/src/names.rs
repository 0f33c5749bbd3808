//! What groups and stores change of names.

use std::ffi::{c_char, c_int};

use wholly::{Error, Rename, Result};

use crate::answer::done;
use crate::arguments::{exclusive, named_path, shared};
use crate::group::wholly_group;
use crate::store::wholly_store;

/// Rename: nothing may have the new name. The number is the kernel's.
pub const WHOLLY_RENAME_NOREPLACE: u32 = 1;
/// Rename: what has the new name gets the old one. The number is the kernel's.
pub const WHOLLY_RENAME_EXCHANGE: u32 = 2;

fn how(flags: u32) -> Result<Rename> {
    match flags {
        0 => Ok(Rename::Replace),
        WHOLLY_RENAME_NOREPLACE => Ok(Rename::NoReplace),
        WHOLLY_RENAME_EXCHANGE => Ok(Rename::Exchange),
        _ => Err(Error::Invalid(format!("flags {flags:#x}: a rename takes none or one of NOREPLACE and EXCHANGE"))),
    }
}

/// Makes a directory with the permission bits mode, whatever the umask. It appears with the group, and vanishes with it.
///
/// Errors: -EEXIST where the name is taken; -ENOENT where its directory does not exist; -EINVAL where mode has other bits; those of all
/// paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_mkdir(group: *mut wholly_group, path: *const c_char, mode: u32) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.mkdir(path, mode))
    })
}

/// Makes a FIFO, a socket, a device or an empty regular file, as the type bits of mode say (S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK; S_IFREG or
/// none), with its permission bits, whatever the umask. device is its number as in st_rdev, and counts for devices only. It appears with
/// the group, and vanishes with it.
///
/// Errors: -EEXIST where the name is taken; -ENOENT where its directory does not exist; -EPERM for a device, without the right to make one;
/// -EINVAL for other types and bits; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_mknod(
    group: *mut wholly_group,
    path: *const c_char,
    mode: u32,
    device: u64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.mknod(path, mode, device))
    })
}

/// Makes a symbolic link that holds target, which need not be there. It appears with the group, and vanishes with it.
///
/// Errors: -EEXIST where the name is taken; -ENOENT where its directory does not exist, or target is empty; -ENAMETOOLONG for a target of
/// more than 4095 bytes; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_symlink(
    group: *mut wholly_group,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts.
        let (handle, target, path) =
            unsafe { (exclusive(group, "group")?, named_path(target, "target")?, crate::arguments::path(path)?) };
        handle.call(|group| group.symlink(target, path))
    })
}

/// Gives what from names the name to as well. A symbolic link is meant itself. The new name appears with the group, and vanishes with it.
///
/// Errors: -ENOENT; -EEXIST where to is taken; -EPERM for a directory; -EBUSY where another group has what from names; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_link(group: *mut wholly_group, from: *const c_char, to: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts.
        let (handle, from, to) =
            unsafe { (exclusive(group, "group")?, named_path(from, "from")?, named_path(to, "to")?) };
        handle.call(|group| group.link(from, to))
    })
}

/// Takes a name away from what is no directory. With its last name a file is gone once nobody has it open. When the group is committed the
/// name does not come back after a crash; when it is aborted it never went.
///
/// Errors: -ENOENT; -EISDIR for a directory; -EBUSY where another group has what the path names; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_unlink(group: *mut wholly_group, path: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.unlink(path))
    })
}

/// Removes an empty directory. When the group is committed it does not come back after a crash; when it is aborted it never went.
///
/// Errors: -ENOENT; -ENOTDIR for what is no directory; -ENOTEMPTY; -EBUSY where another group has names in it; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_rmdir(group: *mut wholly_group, path: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.rmdir(path))
    })
}

/// Gives what from names the name to instead. What had that name loses it; with WHOLLY_RENAME_NOREPLACE nothing may have it, and with
/// WHOLLY_RENAME_EXCHANGE the two change places. An empty directory may be replaced by a directory. Where both are names of one object
/// already, nothing happens. Both names change with the group, or neither does.
///
/// Errors: -ENOENT; -EEXIST with WHOLLY_RENAME_NOREPLACE; -EISDIR, -ENOTDIR where a directory and something else would replace each other;
/// -ENOTEMPTY; -EINVAL for a directory that would be moved into itself, and for other flags; -EBUSY where another group has what either
/// names; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_rename(
    group: *mut wholly_group,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts.
        let (handle, from, to) =
            unsafe { (exclusive(group, "group")?, named_path(from, "from")?, named_path(to, "to")?) };
        let how = how(flags)?;
        handle.call(|group| group.rename(from, to, how))
    })
}

/// Gives what lies at from, a path relative to the store's directory, in its layer (wholly_store_make_layer), the name to, which nothing may have: a
/// directory with all that is in it, or anything else. Nobody may write to it from now on. It has the owner, mode, times and attributes that it was made with.
/// The group's commit makes all of it durable, and a checkpoint takes it home by one rename. Where the group does not commit, it lies at from again. Such a group
/// is not parked.
///
/// Errors: -EINVAL where from is not in the layer; -ENOENT; -EEXIST; -EBUSY for another hard link of a file that the store knows, and where another group has
/// the name; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_adopt(group: *mut wholly_group, from: *const c_char, to: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts.
        let (handle, from, to) =
            unsafe { (exclusive(group, "group")?, named_path(from, "from")?, named_path(to, "to")?) };
        handle.call(|group| group.adopt(from, to))
    })
}

/// wholly_group_mkdir in a group of its own: the directory survives when this returns.
///
/// Errors: those of wholly_group_mkdir and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_mkdir(store: *const wholly_store, path: *const c_char, mode: u32) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, a text.
        let (handle, path) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?) };
        handle.health.run(|| handle.store.mkdir(path, mode))
    })
}

/// wholly_group_mknod in a group of its own: what it makes survives when this returns.
///
/// Errors: those of wholly_group_mknod and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_mknod(
    store: *const wholly_store,
    path: *const c_char,
    mode: u32,
    device: u64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, a text.
        let (handle, path) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?) };
        handle.health.run(|| handle.store.mknod(path, mode, device))
    })
}

/// wholly_group_symlink in a group of its own: the link survives when this returns.
///
/// Errors: those of wholly_group_symlink and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_symlink(
    store: *const wholly_store,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts.
        let (handle, target, path) =
            unsafe { (shared(store, "store")?, named_path(target, "target")?, crate::arguments::path(path)?) };
        handle.health.run(|| handle.store.symlink(target, path))
    })
}

/// wholly_group_link in a group of its own: the new name survives when this returns.
///
/// Errors: those of wholly_group_link and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_link(
    store: *const wholly_store,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts.
        let (handle, from, to) = unsafe { (shared(store, "store")?, named_path(from, "from")?, named_path(to, "to")?) };
        handle.health.run(|| handle.store.link(from, to))
    })
}

/// wholly_group_unlink in a group of its own: the name does not come back after a crash when this has returned.
///
/// Errors: those of wholly_group_unlink and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_unlink(store: *const wholly_store, path: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, a text.
        let (handle, path) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?) };
        handle.health.run(|| handle.store.unlink(path))
    })
}

/// wholly_group_rmdir in a group of its own: the directory does not come back after a crash when this has returned.
///
/// Errors: those of wholly_group_rmdir and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_rmdir(store: *const wholly_store, path: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, a text.
        let (handle, path) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?) };
        handle.health.run(|| handle.store.rmdir(path))
    })
}

/// wholly_group_rename in a group of its own: all of it survives when this returns.
///
/// Errors: those of wholly_group_rename and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_rename(
    store: *const wholly_store,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts.
        let (handle, from, to) = unsafe { (shared(store, "store")?, named_path(from, "from")?, named_path(to, "to")?) };
        let how = how(flags)?;
        handle.health.run(|| handle.store.rename(from, to, how))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_the_kernels() {
        use rustix::fs::RenameFlags;
        assert_eq!(WHOLLY_RENAME_NOREPLACE, RenameFlags::NOREPLACE.bits());
        assert_eq!(WHOLLY_RENAME_EXCHANGE, RenameFlags::EXCHANGE.bits());
        let kinds = [Some(Rename::Replace), Some(Rename::NoReplace), Some(Rename::Exchange), None, None];
        assert_eq!([0, 1, 2, 3, 4].map(|flags| how(flags).ok()), kinds);
    }
}
