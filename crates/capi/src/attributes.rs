//! Attributes: what groups and stores set of them, and what they are.

use std::ffi::{OsStr, c_char, c_int, c_void};

use rustix::io::Errno;
use wholly::{Error, Result, SetXattr};

use crate::answer::{answer, done};
use crate::arguments::{bytes, bytes_mut, exclusive, named_path, shared};
use crate::group::wholly_group;
use crate::store::wholly_store;

/// As an owner or a group of users: it stays as it is.
pub const WHOLLY_KEEP_OWNER: u32 = u32::MAX;
/// As a time: it stays as it is.
pub const WHOLLY_KEEP_TIME: i64 = i64::MIN;

/// Extended attributes: the call fails with -EEXIST if the attribute exists. The number is the kernel's.
pub const WHOLLY_XATTR_CREATE: u32 = 1;
/// Extended attributes: the call fails with -ENODATA if the attribute does not exist. The number is the kernel's.
pub const WHOLLY_XATTR_REPLACE: u32 = 2;

fn how(flags: u32) -> Result<SetXattr> {
    match flags {
        0 => Ok(SetXattr::Any),
        WHOLLY_XATTR_CREATE => Ok(SetXattr::Create),
        WHOLLY_XATTR_REPLACE => Ok(SetXattr::Replace),
        _ => Err(Error::Invalid(format!("flags {flags:#x}: an attribute takes none or one of CREATE and REPLACE"))),
    }
}

fn owner(id: u32) -> Option<u32> {
    Some(id).filter(|&id| id != WHOLLY_KEEP_OWNER)
}

fn time(ns: i64) -> Option<i64> {
    Some(ns).filter(|&ns| ns != WHOLLY_KEEP_TIME)
}

/// The name of an extended attribute.
///
/// # Safety
/// Unless it is null, `name` ends in a zero and is not changed during `'a`.
unsafe fn named<'a>(name: *const c_char) -> Result<&'a OsStr> {
    // SAFETY: the caller's promise.
    unsafe { named_path(name, "the name") }.map(|name| name.as_os_str())
}

/// All of `value`, or how many bytes it has where there is no room at all.
fn fill(room: &mut [u8], value: &[u8]) -> Result<u64> {
    if room.is_empty() {
        return Ok(value.len() as u64);
    }
    match room.get_mut(..value.len()) {
        Some(room) => room.copy_from_slice(value),
        None => return Err(Error::Refused(format!("room for {} bytes", value.len()), Errno::RANGE)),
    }
    Ok(value.len() as u64)
}

fn there(value: Option<Vec<u8>>, name: &OsStr) -> Result<Vec<u8>> {
    value.ok_or_else(|| Error::Refused(name.to_string_lossy().into_owned(), Errno::NODATA))
}

/// Names, each with a zero behind it.
fn listed(names: &[Vec<u8>]) -> Vec<u8> {
    names.iter().flat_map(|name| name.iter().copied().chain([0])).collect()
}

/// Sets the permission bits, including set-user-id, set-group-id and sticky.
///
/// Errors: -ENOENT; -EPERM if the user is not the owner; -EOPNOTSUPP for a symbolic link; -EINVAL if mode has other
/// bits; -EBUSY if another group sets attributes of the object, or changes the file; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_chmod(group: *mut wholly_group, path: *const c_char, mode: u32) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and
        // buffers of their length.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.set_mode(path, mode))
    })
}

/// Sets the owner and the group of users, each unless it is WHOLLY_KEEP_OWNER. A regular file loses its set-user-id and
/// set-group-id bits and its capabilities.
///
/// Errors: -ENOENT; -EPERM if the user may not do it; -EBUSY as wholly_group_chmod; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_chown(
    group: *mut wholly_group,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and
        // buffers of their length.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.set_owner(path, owner(uid), owner(gid)))
    })
}

/// Sets the times of the last access and of the last change of content, in nanoseconds since 1970, each unless it is
/// WHOLLY_KEEP_TIME.
///
/// Errors: -ENOENT; -EPERM if the user is not the owner; -EBUSY as wholly_group_chmod; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_utimens(
    group: *mut wholly_group,
    path: *const c_char,
    atime_ns: i64,
    mtime_ns: i64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and
        // buffers of their length.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.set_times(path, time(atime_ns), time(mtime_ns)))
    })
}

/// Sets an extended attribute of the kinds user, trusted or security, or an ACL (system.posix_acl_access,
/// system.posix_acl_default), to length bytes, at most 65536. flags are 0, WHOLLY_XATTR_CREATE or WHOLLY_XATTR_REPLACE.
///
/// Errors: -ENOENT; -EEXIST, -ENODATA, depending on the flags; -EOPNOTSUPP for other kinds, and if the file system has
/// no such attributes; -EPERM, -EACCES if the user may not do it, and for user attributes of an object that is neither
/// a regular file nor a directory; -ERANGE for a name of more than 255 bytes; -E2BIG for a longer value; -EINVAL for
/// other flags; -EBUSY as wholly_group_chmod; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_setxattr(
    group: *mut wholly_group,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    length: usize,
    flags: u32,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and
        // buffers of their length.
        let (handle, path, name, value) =
            unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?, named(name)?, bytes(value, length)?) };
        let how = how(flags)?;
        handle.call(|group| group.set_xattr(path, name, value, how))
    })
}

/// Removes an extended attribute.
///
/// Errors: -ENODATA if there is none of this name; those of wholly_group_setxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_removexattr(
    group: *mut wholly_group,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and
        // buffers of their length.
        let (handle, path, name) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?, named(name)?) };
        handle.call(|group| group.remove_xattr(path, name))
    })
}

/// Reads the value of an extended attribute, as the group sees it. Returns its size in bytes; if length is 0, it does
/// only that.
///
/// Errors: -ENOENT; -ENODATA if there is none of this name; -ERANGE if the value is longer than length; -EOPNOTSUPP,
/// -EACCES as wholly_group_setxattr; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_getxattr(
    group: *mut wholly_group,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and
        // buffers of their length.
        let (handle, path, name, room) = unsafe {
            (exclusive(group, "group")?, crate::arguments::path(path)?, named(name)?, bytes_mut(buffer, length)?)
        };
        fill(room, &there(handle.call(|group| group.xattr(path, name))?, name)?)
    })
}

/// Lists the names of all extended attributes that the process may see, as the group sees them, each followed by a
/// zero. Returns how many bytes the list has; if length is 0, it does only that.
///
/// Errors: -ENOENT; -ERANGE if the list is longer than length; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_listxattr(
    group: *mut wholly_group,
    path: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and
        // buffers of their length.
        let (handle, path, room) =
            unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?, bytes_mut(buffer, length)?) };
        fill(room, &listed(&handle.call(|group| group.xattrs(path))?))
    })
}

/// wholly_group_chmod in a group of its own. When this returns 0, the mode survives a power failure.
///
/// Errors: those of wholly_group_chmod and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_chmod(store: *const wholly_store, path: *const c_char, mode: u32) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts, and buffers of their length.
        let (handle, path) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?) };
        handle.health.run(|| handle.store.set_mode(path, mode))
    })
}

/// wholly_group_chown in a group of its own. When this returns 0, owner and group survive a power failure.
///
/// Errors: those of wholly_group_chown and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_chown(
    store: *const wholly_store,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts, and buffers of their length.
        let (handle, path) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?) };
        handle.health.run(|| handle.store.set_owner(path, owner(uid), owner(gid)))
    })
}

/// wholly_group_utimens in a group of its own. When this returns 0, the times survive a power failure.
///
/// Errors: those of wholly_group_utimens and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_utimens(
    store: *const wholly_store,
    path: *const c_char,
    atime_ns: i64,
    mtime_ns: i64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts, and buffers of their length.
        let (handle, path) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?) };
        handle.health.run(|| handle.store.set_times(path, time(atime_ns), time(mtime_ns)))
    })
}

/// wholly_group_setxattr in a group of its own. When this returns 0, the attribute survives a power failure.
///
/// Errors: those of wholly_group_setxattr and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_setxattr(
    store: *const wholly_store,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    length: usize,
    flags: u32,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts, and buffers of their length.
        let (handle, path, name, value) =
            unsafe { (shared(store, "store")?, crate::arguments::path(path)?, named(name)?, bytes(value, length)?) };
        let how = how(flags)?;
        handle.health.run(|| handle.store.set_xattr(path, name, value, how))
    })
}

/// wholly_group_removexattr in a group of its own. When this returns 0, the attribute does not come back after a power
/// failure.
///
/// Errors: those of wholly_group_removexattr and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_removexattr(
    store: *const wholly_store,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts, and buffers of their length.
        let (handle, path, name) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?, named(name)?) };
        handle.health.run(|| handle.store.remove_xattr(path, name))
    })
}

/// wholly_group_getxattr, of the committed state.
///
/// Errors: those of wholly_group_getxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_getxattr(
    store: *const wholly_store,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts, and buffers of their length.
        let (handle, path, name, room) = unsafe {
            (shared(store, "store")?, crate::arguments::path(path)?, named(name)?, bytes_mut(buffer, length)?)
        };
        fill(room, &there(handle.health.run(|| handle.store.xattr(path, name))?, name)?)
    })
}

/// wholly_group_listxattr, of the committed state.
///
/// Errors: those of wholly_group_listxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_listxattr(
    store: *const wholly_store,
    path: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, texts, and buffers of their length.
        let (handle, path, room) =
            unsafe { (shared(store, "store")?, crate::arguments::path(path)?, bytes_mut(buffer, length)?) };
        fill(room, &listed(&handle.health.run(|| handle.store.xattrs(path))?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::XattrFlags;

    #[test]
    fn the_flags_are_the_kernels() {
        assert_eq!(WHOLLY_XATTR_CREATE, XattrFlags::CREATE.bits());
        assert_eq!(WHOLLY_XATTR_REPLACE, XattrFlags::REPLACE.bits());
        assert!(how(3).is_err());
    }

    #[test]
    fn values_are_given_whole_or_not_at_all() {
        let mut room = [0; 3];
        assert_eq!(fill(&mut [], b"abc").unwrap(), 3);
        assert_eq!((fill(&mut room, b"ab").unwrap(), room), (2, *b"ab\0"));
        assert_eq!(fill(&mut room, b"abcd").unwrap_err().errno(), 34);
        assert_eq!(listed(&[b"user.a".to_vec(), b"user.b".to_vec()]), b"user.a\0user.b\0");
    }
}
