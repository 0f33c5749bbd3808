//! Attributes: what groups and stores set of them, and what they are.

use std::ffi::{OsStr, c_char, c_int, c_void};

use rustix::io::Errno;
use wholly::{Error, Result, SetXattr};

use crate::answer::{answer, done};
use crate::arguments::{bytes, bytes_mut, exclusive, named_path, shared};
use crate::group::wholly_group;
use crate::store::wholly_store;

/// In the place of an owner or a group: it stays as it is.
pub const WHOLLY_KEEP_OWNER: u32 = u32::MAX;
/// In the place of a time: it stays as it is.
pub const WHOLLY_KEEP_TIME: i64 = i64::MIN;

/// Extended attributes: it must not be there yet. The number is the kernel's.
pub const WHOLLY_XATTR_CREATE: u32 = 1;
/// Extended attributes: it must be there already. The number is the kernel's.
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

/// Sets the permission bits, set-id bits included.
///
/// Errors: -ENOENT; -EPERM for who is not the owner; -EOPNOTSUPP for a symbolic link; -EINVAL where mode has other bits; -EBUSY where another
/// group sets attributes of it, or changes the file; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_chmod(group: *mut wholly_group, path: *const c_char, mode: u32) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and buffers of their length.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.set_mode(path, mode))
    })
}

/// Sets owner and group, each unless it is WHOLLY_KEEP_OWNER. A file loses its set-id bits by that, and its capabilities.
///
/// Errors: -ENOENT; -EPERM for who may not; -EBUSY as wholly_group_chmod; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_chown(
    group: *mut wholly_group,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and buffers of their length.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.set_owner(path, owner(uid), owner(gid)))
    })
}

/// Sets the times of the last access and of the last change of content, in nanoseconds since the epoch, each unless it is WHOLLY_KEEP_TIME.
///
/// Errors: -ENOENT; -EPERM for who is not the owner; -EBUSY as wholly_group_chmod; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_utimens(
    group: *mut wholly_group,
    path: *const c_char,
    atime_ns: i64,
    mtime_ns: i64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and buffers of their length.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        handle.call(|group| group.set_times(path, time(atime_ns), time(mtime_ns)))
    })
}

/// Sets an extended attribute of the kinds user, trusted or security, to length bytes, at most 65536. With WHOLLY_XATTR_CREATE it must not be
/// there yet, with WHOLLY_XATTR_REPLACE it must.
///
/// Errors: -ENOENT; -EEXIST, -ENODATA as the flags ask; -EOPNOTSUPP for other kinds, and where the file system has none; -EPERM, -EACCES for who
/// may not, and for user attributes of what is no file or directory; -ERANGE for a name of more than 255 bytes, -E2BIG for a longer value;
/// -EINVAL for other flags; -EBUSY as wholly_group_chmod; those of all paths.
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
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and buffers of their length.
        let (handle, path, name, value) =
            unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?, named(name)?, bytes(value, length)?) };
        let how = how(flags)?;
        handle.call(|group| group.set_xattr(path, name, value, how))
    })
}

/// Removes an extended attribute.
///
/// Errors: -ENODATA where there is none; those of wholly_group_setxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_removexattr(
    group: *mut wholly_group,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and buffers of their length.
        let (handle, path, name) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?, named(name)?) };
        handle.call(|group| group.remove_xattr(path, name))
    })
}

/// Reads the value of an extended attribute, as the group sees it. Returns how many bytes it has; where length is 0 it only does that.
///
/// Errors: -ENOENT; -ENODATA where there is none; -ERANGE where it is longer than length; -EOPNOTSUPP, -EACCES as wholly_group_setxattr; those of
/// all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_getxattr(
    group: *mut wholly_group,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and buffers of their length.
        let (handle, path, name, room) = unsafe {
            (exclusive(group, "group")?, crate::arguments::path(path)?, named(name)?, bytes_mut(buffer, length)?)
        };
        fill(room, &there(handle.call(|group| group.xattr(path, name))?, name)?)
    })
}

/// Lists the names of all extended attributes that the process may see, as the group sees them, each with a zero behind it. Returns how many
/// bytes they are; where length is 0 it only does that.
///
/// Errors: -ENOENT; -ERANGE where they are more than length; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_listxattr(
    group: *mut wholly_group,
    path: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, texts, and buffers of their length.
        let (handle, path, room) =
            unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?, bytes_mut(buffer, length)?) };
        fill(room, &listed(&handle.call(|group| group.xattrs(path))?))
    })
}

/// wholly_group_chmod in a group of its own: the mode survives when this returns.
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

/// wholly_group_chown in a group of its own: owner and group survive when this returns.
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

/// wholly_group_utimens in a group of its own: the times survive when this returns.
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

/// wholly_group_setxattr in a group of its own: the attribute survives when this returns.
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

/// wholly_group_removexattr in a group of its own: the attribute does not come back after a crash when this has returned.
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

/// wholly_group_getxattr, as everybody sees it.
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

/// wholly_group_listxattr, as everybody sees them.
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
