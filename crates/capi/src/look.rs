//! What names name, as groups and stores see them.

use std::ffi::{c_char, c_int, c_void};

use wholly::{Error, Result};
use wholly_vfs::Stat;

use crate::answer::{answer, done};
use crate::arguments::{bytes_mut, exclusive, shared};
use crate::group::wholly_group;
use crate::sized::{self, Sized};
use crate::store::wholly_store;

/// The attributes of an object. Set size before a call fills it in. Times are in nanoseconds since 1970. There is no
/// device number of the file system: everything is on that of the store's directory.
#[repr(C)]
pub struct wholly_metadata {
    /// sizeof(wholly_metadata).
    pub size: usize,
    /// Inode number. An object that is not written back yet has a number of the store's, which changes when the store
    /// is opened again.
    pub ino: u64,
    /// Size in bytes; of a symbolic link, bytes of its target.
    pub bytes: u64,
    /// Bytes that the file system has allocated for it.
    pub allocated_bytes: u64,
    /// Time of birth; 0 if the file system does not keep it.
    pub btime_ns: i64,
    /// Time of the last access.
    pub atime_ns: i64,
    /// Time of the last change of content.
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes.
    pub ctime_ns: i64,
    /// The number of a device, as in st_rdev.
    pub device: u64,
    /// Type and permission bits, as in st_mode.
    pub mode: u32,
    /// The number of names.
    pub nlink: u32,
    /// The user who owns it.
    pub uid: u32,
    /// The group of users that owns it.
    pub gid: u32,
}

// SAFETY: nine words of eight bytes, and four of four.
unsafe impl Sized for wholly_metadata {
    const FIRST: usize = 88;
    const NAME: &str = "metadata";
}

const _: () = assert!(size_of::<wholly_metadata>() == <wholly_metadata as Sized>::FIRST);

impl From<Stat> for wholly_metadata {
    fn from(stat: Stat) -> Self {
        wholly_metadata {
            size: 0,
            ino: stat.ino,
            bytes: stat.size,
            allocated_bytes: stat.allocated,
            btime_ns: stat.btime_ns,
            atime_ns: stat.atime_ns,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
            device: stat.rdev,
            mode: stat.mode,
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
        }
    }
}

/// Fills in the attributes of the object at the path, as the group sees it, as lstat(2) does: a symbolic link at the
/// end of the path is not followed.
///
/// Errors: -ENOENT; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_metadata(
    group: *mut wholly_group,
    path: *const c_char,
    metadata: *mut wholly_metadata,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text.
        let (handle, path) = unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?) };
        // SAFETY: the caller's part of the contract: a struct of its size.
        unsafe { sized::check(metadata) }?;
        let stat = handle.call(|group| group.metadata(path))?;
        // SAFETY: as above.
        unsafe { sized::write(metadata, stat.into()) }
    })
}

/// wholly_group_metadata, of the committed state.
///
/// Errors: those of wholly_group_metadata.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_metadata(
    store: *const wholly_store,
    path: *const c_char,
    metadata: *mut wholly_metadata,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle, a text.
        let (handle, path) = unsafe { (shared(store, "store")?, crate::arguments::path(path)?) };
        // SAFETY: the caller's part of the contract: a struct of its size.
        unsafe { sized::check(metadata) }?;
        let stat = handle.health.run(|| handle.store.metadata(path))?;
        // SAFETY: as above.
        unsafe { sized::write(metadata, stat.into()) }
    })
}

/// As much of a target as there is room for.
fn fill(room: &mut [u8], target: &[u8]) -> Result<u64> {
    if room.is_empty() {
        return Err(Error::Invalid("there is no room for the target of a symbolic link".into()));
    }
    let count = room.len().min(target.len());
    room[..count].copy_from_slice(&target[..count]);
    Ok(count as u64)
}

/// Reads the target of a symbolic link, as the group sees it, as readlink(2) does: up to length bytes, without a zero
/// at the end. Returns how many; a longer target is cut. No target has more than 4095 bytes.
///
/// Errors: -ENOENT; -EINVAL if it is not a symbolic link, and if length is 0; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_readlink(
    group: *mut wholly_group,
    path: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text, and room
        // for `length` bytes.
        let (handle, path, room) =
            unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?, bytes_mut(buffer, length)?) };
        fill(room, &handle.call(|group| group.read_link(path))?)
    })
}

/// wholly_group_readlink, of the committed state.
///
/// Errors: those of wholly_group_readlink.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_readlink(
    store: *const wholly_store,
    path: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, a text, and room for `length` bytes.
        let (handle, path, room) =
            unsafe { (shared(store, "store")?, crate::arguments::path(path)?, bytes_mut(buffer, length)?) };
        fill(room, &handle.health.run(|| handle.store.read_link(path))?)
    })
}
