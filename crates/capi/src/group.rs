//! Groups, those of writers too.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use wholly::{Error, Group, Result};

use crate::answer::{Health, answer, done};
use crate::arguments::{bytes, bytes_mut, exclusive, owned, place, shared};
use crate::file::wholly_file;

/// A group: updates of any number of files that survive a crash wholly or not at all. No other group, thread or program
/// sees the updates before the group is committed; calls on the group itself see them. The group claims what it changes
/// until it ends.
///
/// A call that fails has changed nothing, and the group continues. If a call fails half-way, for want of space or by an
/// error of the medium, the group can only be aborted, and wholly_group_commit says so.
///
/// One thread at a time uses a group, not always the same.
pub struct wholly_group {
    /// `None` in a writer, between two groups.
    pub(crate) group: Option<Group<'static>>,
    pub(crate) health: Health,
    /// Whether the handle is part of a writer, and freed with that.
    of_writer: bool,
}

impl wholly_group {
    pub(crate) fn alone(group: Group<'static>, health: &Health) -> *mut wholly_group {
        Box::into_raw(Box::new(wholly_group { group: Some(group), health: health.clone(), of_writer: false }))
    }

    /// Of a writer, before its first group.
    pub(crate) fn of_writer(health: &Health) -> wholly_group {
        wholly_group { group: None, health: health.clone(), of_writer: true }
    }

    /// Runs a call on the group.
    #[inline]
    pub(crate) fn call<T>(&mut self, call: impl FnOnce(&mut Group<'static>) -> Result<T>) -> Result<T> {
        let group = self.group.as_mut().ok_or_else(ended)?;
        self.health.run(|| call(group))
    }

    /// Ends the group, if one runs.
    pub(crate) fn end<T>(&mut self, how: impl FnOnce(Group<'static>) -> Result<T>) -> Result<T> {
        let group = self.group.take().ok_or_else(ended)?;
        self.health.spend(group, how)
    }
}

#[cold]
fn ended() -> Error {
    Error::Invalid("the writer's group has ended".into())
}

/// Ends a group, and its handle where that is its own.
///
/// # Safety
/// Unless it is null, `group` is of a group that has not ended, of which nobody else uses the handle.
pub(crate) unsafe fn end_with<T>(group: *mut wholly_group, how: impl FnOnce(Group<'static>) -> Result<T>) -> Result<T> {
    // SAFETY: the caller's promise.
    let handle = unsafe { exclusive(group, "group") }?;
    if handle.of_writer {
        return handle.end(how);
    }
    // SAFETY: the caller's promise. Only `alone` makes such handles, in a box, and `handle` is not used any more.
    unsafe { owned(group, "group") }?.end(how)
}

/// Returns the group's number. No other group of the store ever has the same one. 0 if group is NULL, or if the store
/// could not be used when the group began.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_id(group: *const wholly_group) -> u64 {
    // SAFETY: the caller's part of the contract: a group that runs.
    unsafe { shared(group, "group") }.ok().and_then(|handle| handle.group.as_ref()).map_or(0, Group::id)
}

/// Opens an existing regular file, as the group sees the directory. A symbolic link at the end of the path is followed.
/// Close the file with wholly_file_close, before or after the end of the group.
///
/// Errors: those of wholly_store_open_file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_open_file(
    group: *mut wholly_group,
    path: *const c_char,
    file: *mut *mut wholly_file,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, a group of which no other thread uses the
        // handle, a text.
        let (place, handle, path) =
            unsafe { (place(file)?, exclusive(group, "group")?, crate::arguments::path(path)?) };
        *place = wholly_file::new(handle.call(|group| group.open_file(path))?, &handle.health);
        Ok(())
    })
}

/// Creates a regular file with exactly the permission bits mode, whatever the umask, and opens it. The file exists for
/// others once the group is committed.
///
/// Errors: -EEXIST; -ENOENT if its directory does not exist; -EINVAL if mode has other bits; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_create(
    group: *mut wholly_group,
    path: *const c_char,
    mode: u32,
    file: *mut *mut wholly_file,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, a group of which no other thread uses the
        // handle, a text.
        let (place, handle, path) =
            unsafe { (place(file)?, exclusive(group, "group")?, crate::arguments::path(path)?) };
        *place = wholly_file::new(handle.call(|group| group.create(path, mode))?, &handle.health);
        Ok(())
    })
}

/// Opens a regular file as wholly_group_open_file does, or creates it as wholly_group_create does where there is none.
///
/// Errors: those of both, but for -EEXIST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_open_or_create(
    group: *mut wholly_group,
    path: *const c_char,
    mode: u32,
    file: *mut *mut wholly_file,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, a group of which no other thread uses the
        // handle, a text.
        let (place, handle, path) =
            unsafe { (place(file)?, exclusive(group, "group")?, crate::arguments::path(path)?) };
        *place = wholly_file::new(handle.call(|group| group.open_or_create(path, mode))?, &handle.health);
        Ok(())
    })
}

/// Lets the group's calls wait for other groups to end, up to this time, before they fail with -EBUSY. 0 (the default)
/// is not to wait. If two groups wait for each other, both wait for the whole time, and then one of them gets -EBUSY.
///
/// Errors: -EINVAL if group is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_set_busy_timeout(group: *mut wholly_group, milliseconds: u64) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a group of which no other thread uses the handle.
        let handle = unsafe { exclusive(group, "group")? };
        handle.call(|group| {
            group.set_busy_timeout(Duration::from_millis(milliseconds));
            Ok(())
        })
    })
}

/// Claims the file for the group now, instead of at its first change. A group of several files commits faster if all
/// are added before the first write.
///
/// Errors: -EBUSY if another group has the file; -EINVAL for a file of another store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_add(group: *mut wholly_group, file: *const wholly_file) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: open handles, the group's used by no other thread.
        let (handle, file) = unsafe { (exclusive(group, "group")?, shared(file, "file")?) };
        handle.call(|group| group.add(&file.file))
    })
}

/// Writes length bytes at offset. The file grows if the range ends beyond its end; a gap reads as zeros. Nothing
/// survives a crash before the group is committed.
///
/// Errors: -EBUSY if another group has the file; -EINVAL for a file of another store; -ENOSPC, after which the group
/// can still be aborted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_write(
    group: *mut wholly_group,
    file: *const wholly_file,
    offset: u64,
    data: *const c_void,
    length: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: open handles, the group's used by no other thread, and `length`
        // bytes.
        let (handle, file, data) = unsafe { (exclusive(group, "group")?, shared(file, "file")?, bytes(data, length)?) };
        handle.call(|group| group.write_at(&file.file, offset, data))
    })
}

/// Writes length bytes at the end of the file, as the group sees it. Returns the offset at which they begin.
///
/// Errors: those of wholly_group_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_append(
    group: *mut wholly_group,
    file: *const wholly_file,
    data: *const c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: open handles, the group's used by no other thread, and `length`
        // bytes.
        let (handle, file, data) = unsafe { (exclusive(group, "group")?, shared(file, "file")?, bytes(data, length)?) };
        handle.call(|group| group.append(&file.file, data))
    })
}

/// Sets the length of the file to length bytes. Bytes beyond are dropped; new bytes are zero.
///
/// Errors: those of wholly_group_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_set_len(
    group: *mut wholly_group,
    file: *const wholly_file,
    length: u64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: open handles, the group's used by no other thread.
        let (handle, file) = unsafe { (exclusive(group, "group")?, shared(file, "file")?) };
        handle.call(|group| group.set_len(&file.file, length))
    })
}

/// Changes the space of the length bytes from offset on, as fallocate(2) does, by mode:
///
///   0                                                        reserves space; the file grows to the end of the range
///   WHOLLY_FALLOCATE_KEEP_SIZE                               reserves space
///   WHOLLY_FALLOCATE_PUNCH_HOLE | WHOLLY_FALLOCATE_KEEP_SIZE makes a hole: zeros, and whole blocks are freed
///   WHOLLY_FALLOCATE_ZERO_RANGE                              makes zeros with reserved space; the file grows as with 0
///   WHOLLY_FALLOCATE_ZERO_RANGE | WHOLLY_FALLOCATE_KEEP_SIZE makes zeros with reserved space
///
/// Zeros are atomic and durable as bytes are, and cost one small record, whatever their length. The checkpoint that
/// writes the group back frees or reserves the file's blocks. If there is no space then, the checkpoint fails until
/// there is.
///
/// Errors: -EOPNOTSUPP for other modes; -EINVAL for an empty range; -EFBIG for a range that ends beyond 4 PiB; -ENOSPC
/// if more is to be reserved than all that is free; those of wholly_group_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_fallocate(
    group: *mut wholly_group,
    file: *const wholly_file,
    mode: u32,
    offset: u64,
    length: u64,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: open handles, the group's used by no other thread.
        let (handle, file) = unsafe { (exclusive(group, "group")?, shared(file, "file")?) };
        let how = crate::file::fallocate(mode)?;
        handle.call(|group| group.fallocate(&file.file, how, offset, length))
    })
}

/// Reads up to length bytes at offset, as the group sees the file. Returns how many; fewer only at the end of the file.
///
/// Errors: -EUCLEAN if the log is damaged where it holds these bytes; -EINVAL for a file of another store; errors of
/// the file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_read(
    group: *mut wholly_group,
    file: *const wholly_file,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: open handles, the group's used by no other thread, and room for
        // `length` bytes.
        let (handle, file, room) =
            unsafe { (exclusive(group, "group")?, shared(file, "file")?, bytes_mut(buffer, length)?) };
        handle.call(|group| Ok(group.read_at(&file.file, offset, room)? as u64))
    })
}

/// Returns the size of the file in bytes, as the group sees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_len(group: *mut wholly_group, file: *const wholly_file) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: open handles, the group's used by no other thread.
        let (handle, file) = unsafe { (exclusive(group, "group")?, shared(file, "file")?) };
        handle.call(|group| Ok(group.len(&file.file)))
    })
}

/// Commits the group. When this returns 0, it survives a power failure, and all groups and threads of the process see
/// it. Other programs see it after the next checkpoint. The group ends and its handle is freed, also on failure.
///
/// Errors: -EIO if the medium failed: it is unknown whether the group survives until the store is opened again. After
/// any other error the group is aborted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_commit(group: *mut wholly_group) -> c_int {
    // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
    done(|| unsafe { end_with(group, Group::commit) })
}

/// Makes the group atomic, and ordered before later groups on the same files. A later wholly_group_commit or sync makes
/// it durable. On every medium of today this is the same as wholly_group_commit. The group ends and its handle is
/// freed, also on failure.
///
/// Errors: those of wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_commit_atomic(group: *mut wholly_group) -> c_int {
    // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
    done(|| unsafe { end_with(group, Group::commit_atomic) })
}

/// Aborts the group: nothing of it is left, in memory or on the medium. The group ends and its handle is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_abort(group: *mut wholly_group) -> c_int {
    let abort = |group: Group<'static>| {
        group.abort();
        Ok(())
    };
    // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
    done(|| unsafe { end_with(group, abort) })
}
