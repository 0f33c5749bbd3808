//! What groups and stores change of names.

use std::ffi::{c_char, c_int};

use wholly::{Error, Result};
use wholly_vfs::Rename;

use crate::answer::done;
use crate::arguments::{exclusive, named_path, shared};
use crate::group::wholly_group;
use crate::store::wholly_store;

/// Rename: the call fails with -EEXIST if the new name exists. The number is the kernel's.
pub const WHOLLY_RENAME_NOREPLACE: u32 = 1;
/// Rename: the object with the new name gets the old one. The number is the kernel's.
pub const WHOLLY_RENAME_EXCHANGE: u32 = 2;

fn how(flags: u32) -> Result<Rename> {
    match flags {
        0 => Ok(Rename::Replace),
        WHOLLY_RENAME_NOREPLACE => Ok(Rename::NoReplace),
        WHOLLY_RENAME_EXCHANGE => Ok(Rename::Exchange),
        _ => Err(Error::Invalid(format!("flags {flags:#x}: a rename takes none or one of NOREPLACE and EXCHANGE"))),
    }
}

/// Makes a directory with exactly the permission bits mode, whatever the umask. It exists for others once the group is
/// committed.
///
/// Errors: -EEXIST; -ENOENT if its parent does not exist; -EINVAL if mode has other bits; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_mkdir(group: *mut wholly_group, path: *const c_char, mode: u32) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.mkdir(path, mode))
    })
}

/// Makes a FIFO, a socket, a device or an empty regular file, by the type bits of mode (S_IFIFO, S_IFSOCK, S_IFCHR,
/// S_IFBLK; S_IFREG or none), with exactly its permission bits, whatever the umask. device is the number of a device,
/// as in st_rdev; it has no effect for other types. The object exists for others once the group is committed.
///
/// Errors: -EEXIST; -ENOENT if its directory does not exist; -EPERM for a directory, and for a device without the right
/// to make one; -EINVAL for other types and bits; those of all paths.
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

/// Makes a symbolic link at path that holds target, which need not exist. The link exists for others once the group is
/// committed.
///
/// Errors: -EEXIST; -ENOENT if its directory does not exist, or target is empty; -ENAMETOOLONG for a target of more
/// than 4095 bytes; those of all paths.
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

/// Gives the object at from the name to as well. If from is a symbolic link, the link itself gets the name. The new
/// name exists for others once the group is committed.
///
/// Errors: -ENOENT; -EEXIST; -EPERM for a directory; -EBUSY if another group has claimed the object; those of all
/// paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_link(group: *mut wholly_group, from: *const c_char, to: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts.
        let (handle, from, to) =
            unsafe { (exclusive(group, "group")?, named_path(from, "from")?, named_path(to, "to")?) };
        handle.call(|group| group.link(from, to))
    })
}

/// Removes a name of an object that is not a directory. A file is removed with its last name; it stays usable for
/// programs and groups that have it open. Once the group is committed, the name does not come back after a crash; if
/// the group is aborted, the name stays.
///
/// Errors: -ENOENT; -EISDIR for a directory; -EBUSY if another group has claimed the object; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_unlink(group: *mut wholly_group, path: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.unlink(path))
    })
}

/// Removes an empty directory. Once the group is committed, it does not come back after a crash; if the group is
/// aborted, it stays.
///
/// Errors: -ENOENT; -ENOTDIR if it is not a directory; -ENOTEMPTY; -EBUSY if another group has claimed names in it;
/// those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_rmdir(group: *mut wholly_group, path: *const c_char) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.rmdir(path))
    })
}

/// Renames the object at from to to. An object that had the name to loses it; with WHOLLY_RENAME_NOREPLACE there must
/// be none, and with WHOLLY_RENAME_EXCHANGE it gets the name from. A directory may replace an empty directory. If both
/// are names of one object, nothing happens. Both names change with the group, or neither does.
///
/// Errors: -ENOENT; -EEXIST with WHOLLY_RENAME_NOREPLACE; -EISDIR, -ENOTDIR if a directory and another object would
/// replace each other; -ENOTEMPTY; -EINVAL for a directory that would be moved into itself, and for other flags; -EBUSY
/// if another group has claimed one of the objects; those of all paths.
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

/// Imports the object at from, a directory with everything in it or any other object: gives it the name to, which must
/// be free. from is a path relative to the store's directory, in its layer (wholly_store_make_layer). No program may
/// write to the object from now on. It keeps its owner, mode, times and attributes. The group's commit makes the object
/// durable with everything in it, and a checkpoint writes it back by one rename. If the group does not commit, the
/// object lies at from again. A group that has imported something cannot be parked.
///
/// Errors: -EINVAL if from is not in the layer; -ENOENT; -EEXIST; -EBUSY for another hard link of a file that the store
/// knows, and if another group has claimed the name; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_import(
    group: *mut wholly_group,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts.
        let (handle, from, to) =
            unsafe { (exclusive(group, "group")?, named_path(from, "from")?, named_path(to, "to")?) };
        handle.call(|group| group.import(from, to))
    })
}

/// wholly_group_mkdir in a group of its own. When this returns 0, the directory survives a power failure.
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

/// wholly_group_mknod in a group of its own. When this returns 0, the object survives a power failure.
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

/// wholly_group_symlink in a group of its own. When this returns 0, the link survives a power failure.
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

/// wholly_group_link in a group of its own. When this returns 0, the new name survives a power failure.
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

/// wholly_group_unlink in a group of its own. When this returns 0, the name does not come back after a power failure.
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

/// wholly_group_rmdir in a group of its own. When this returns 0, the directory does not come back after a power
/// failure.
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

/// wholly_group_rename in a group of its own. When this returns 0, all of it survives a power failure.
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
