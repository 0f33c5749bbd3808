//! What names name, as groups and stores see them.

use std::ffi::{c_char, c_int, c_void};

use wholly::{Error, Result, Stat};

use crate::answer::{answer, done};
use crate::arguments::{bytes_mut, exclusive, shared};
use crate::group::wholly_group;
use crate::sized::{self, Sized};
use crate::store::wholly_store;

/// What is known of what a name names. Set its size before it is filled in. Times are in nanoseconds since the epoch. All is on the file system of the store's directory, so that there is no number of a device.
#[repr(C)]
pub struct wholly_metadata {
    /// sizeof(wholly_metadata).
    pub size: usize,
    /// Inode number. What is not home yet has one of the store's own, which is another when the store was opened again.
    pub ino: u64,
    /// Size in bytes; of a symbolic link, bytes of its target.
    pub bytes: u64,
    /// Bytes that the file system has allocated to it.
    pub allocated_bytes: u64,
    /// Time of its birth; 0 where the file system has none.
    pub btime_ns: i64,
    /// Time of the last access.
    pub atime_ns: i64,
    /// Time of the last change of content.
    pub mtime_ns: i64,
    /// Time of the last change of content or attributes.
    pub ctime_ns: i64,
    /// Of a device, its number as in st_rdev.
    pub device: u64,
    /// Type and permission bits as in st_mode.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
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

/// Tells what is known of what the path names, as the group sees it, as lstat(2) does: a symbolic link at the end of the path is not
/// followed.
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

/// wholly_group_metadata, as everybody sees it.
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

/// Reads the target of a symbolic link, as the group sees it, as readlink(2) does: up to length bytes of it, without a zero at their end.
/// Returns how many; a target that is longer is cut. None has more than 4095 bytes.
///
/// Errors: -ENOENT; -EINVAL for what is no symbolic link, and where length is 0; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_readlink(
    group: *mut wholly_group,
    path: *const c_char,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle, a text, and room for `length` bytes.
        let (handle, path, room) =
            unsafe { (exclusive(group, "group")?, crate::arguments::path(path)?, bytes_mut(buffer, length)?) };
        fill(room, &handle.call(|group| group.read_link(path))?)
    })
}

/// wholly_group_readlink, as everybody sees it.
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
