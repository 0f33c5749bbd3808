//! Groups that are parked.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use wholly::{Change, Error, LONGEST_NOTE, Parked, ParkedId, Result, Review, Side, Store, What};

use crate::answer::{Health, answer, done};
use crate::arguments::{bytes_mut, check, exclusive, owned, place, shared};
use crate::group::{end_with, wholly_group};
use crate::sized::{self, Sized};
use crate::store::wholly_store;

/// Parks the group instead of committing it. When this returns 0, the parked group survives a power failure until it is
/// applied or discarded, and all that the group had claimed is free. note is a text for people of up to 1024 bytes, or
/// NULL. If keep_seconds is not 0, the parked group is discarded after that time. What the group builds on is written
/// back first, if it is not yet. id gets the number of the parked group. The group ends and its handle is freed, also
/// on failure.
///
/// Errors: -EINVAL if the group has changed nothing; those of wholly_store_checkpoint; -ENOSPC. The group is then
/// aborted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_park(
    group: *mut wholly_group,
    note: *const c_char,
    keep_seconds: u64,
    id: *mut u64,
) -> c_int {
    done(|| {
        check(id, "the place for the id")?;
        // SAFETY: the caller's part of the contract: a text, or NULL.
        let (note, keep) = (unsafe { note_of(note) }?, keep_of(keep_seconds));
        // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
        let parked = unsafe { end_with(group, |group| group.park(note, keep)) }?;
        // SAFETY: the caller's part of the contract: a place for a number; null was refused.
        unsafe { id.write(parked.0) };
        Ok(())
    })
}

/// Commits the group, unless another program has changed something that the group builds on since the group first
/// touched it. In that case the group is parked, as by wholly_group_park, nothing is overwritten, and id gets the
/// number of the parked group; else id is 0. The group ends and its handle is freed, also on failure.
///
/// Errors: -ESTALE if the group is parked: the text lists what differs; those of wholly_group_commit and
/// wholly_group_park: the group is aborted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_commit_or_park(
    group: *mut wholly_group,
    note: *const c_char,
    keep_seconds: u64,
    id: *mut u64,
) -> c_int {
    done(|| {
        check(id, "the place for the id")?;
        // SAFETY: the caller's part of the contract: a place for a number; null was refused.
        unsafe { id.write(0) };
        // SAFETY: the caller's part of the contract: a text, or NULL.
        let (note, keep) = (unsafe { note_of(note) }?, keep_of(keep_seconds));
        // SAFETY: the caller's part of the contract: a group that runs, and whose handle is not used any more.
        let committed = unsafe { end_with(group, |group| group.commit_or_park(note, keep)) };
        if let Err(Error::ChangedMeanwhile(parked, _)) = &committed {
            // SAFETY: as above.
            unsafe { id.write(parked.0) };
        }
        committed
    })
}

/// # Safety
/// Unless it is null, `note` is of a text that lives and is not changed during `'a`.
unsafe fn note_of<'a>(note: *const c_char) -> Result<&'a str> {
    // SAFETY: the caller's promise; nothing is read of NULL.
    let note = (!note.is_null()).then(|| unsafe { CStr::from_ptr(note) }.to_str()).transpose();
    Ok(note.map_err(|_| Error::Invalid("the note is not UTF-8".into()))?.unwrap_or_default())
}

fn keep_of(seconds: u64) -> Option<Duration> {
    (seconds != 0).then(|| Duration::from_secs(seconds))
}

/// A listing of the groups that were parked when it was opened. One thread at a time uses it, not always the same.
pub struct wholly_parked_list {
    all: std::vec::IntoIter<Parked>,
}

/// A parked group. Set size before a call fills it in. Times are in nanoseconds since 1970.
#[repr(C)]
pub struct wholly_parked {
    /// sizeof(wholly_parked).
    pub size: usize,
    /// Its number. No other group of the store ever has the same one. `wholly list` prints id >> 40, a dash, and the
    /// other bits.
    pub id: u64,
    /// When it was parked.
    pub parked_ns: i64,
    /// When it will be discarded; 0 if it does not expire.
    pub expires_ns: i64,
    /// Bytes that it writes to files.
    pub bytes: u64,
    /// Bytes of disk space that it takes.
    pub space: u64,
    /// The number of files whose bytes it changes.
    pub files: u32,
    /// The number of names that it sets or removes.
    pub names: u32,
    /// 1 if it cannot be read: only id and space are valid then. Else 0.
    pub is_damaged: u64,
    /// The note with which it was parked.
    pub note: [c_char; 1032],
}

// SAFETY: words of eight bytes, two of four, and bytes, a multiple of eight of them.
unsafe impl Sized for wholly_parked {
    const FIRST: usize = 1096;
    const NAME: &str = "parked group";
}

/// Opens a listing of the parked groups, in the order in which they began. Groups that have expired are discarded
/// first. Close the listing with wholly_parked_list_close, before or after the store.
///
/// Errors: errors of the file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_open_parked_list(
    store: *const wholly_store,
    list: *mut *mut wholly_parked_list,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, an open handle.
        let (place, handle) = unsafe { (place(list)?, shared(store, "store")?) };
        let all = handle.health.run(|| handle.store.parked())?.into_iter();
        *place = Box::into_raw(Box::new(wholly_parked_list { all }));
        Ok(())
    })
}

/// Fills in the next parked group of a listing. Returns 1; or 0 at the end, and leaves the struct as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_parked_list_read(list: *mut wholly_parked_list, parked: *mut wholly_parked) -> c_int {
    let count = answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, used by no other thread.
        let list = unsafe { exclusive(list, "list") }?;
        // SAFETY: the caller's part of the contract: a struct of its size.
        unsafe { sized::check(parked) }?;
        let Some(next) = list.all.next() else { return Ok(0) };
        let filled = wholly_parked {
            size: 0,
            id: next.id.0,
            parked_ns: next.parked_ns,
            expires_ns: next.expires_ns.unwrap_or(0),
            bytes: next.bytes,
            space: next.space,
            files: next.files,
            names: next.names,
            is_damaged: next.unreadable.is_some().into(),
            note: sized::text(&next.note),
        };
        // SAFETY: as above.
        unsafe { sized::write(parked, filled) }?;
        Ok(1)
    });
    count as c_int
}

/// Closes a listing of parked groups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_parked_list_close(list: *mut wholly_parked_list) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a handle that is not used any more.
        drop(unsafe { owned(list, "list") }?);
        Ok(())
    })
}

/// Runs a call on a parked group.
unsafe fn on_parked(
    store: *const wholly_store,
    id: u64,
    call: impl FnOnce(&Store, ParkedId) -> wholly::Result<()>,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        health.run(|| call(store, ParkedId(id)))
    })
}

/// Commits a parked group, if everything that it relies on is as it was: the names that it sets, the bytes of files
/// that it changes or removes, the attributes that it sets. When this returns 0, the group survives a power failure,
/// all threads and groups see it, and it is no longer parked.
///
/// Errors: -ESTALE if something differs: the text lists it, nothing has changed, and the group stays parked; -EBUSY if
/// a running group has claimed something that it changes; -ENOENT if there is no such parked group; -EUCLEAN; those of
/// wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_apply(store: *const wholly_store, id: u64) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_parked(store, id, Store::apply) }
}

/// Removes a parked group. When this returns 0, it does not come back after a power failure.
///
/// Errors: -ENOENT if there is no such parked group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_discard(store: *const wholly_store, id: u64) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_parked(store, id, Store::discard) }
}

/// What a parked group would change. It keeps the store open, as a file does. One thread at a time uses it, not always
/// the same.
pub struct wholly_review {
    review: Review<'static>,
    changes: Vec<(CString, Option<CString>)>,
    /// How many have been told.
    told: usize,
    health: Health,
}

/// In wholly_change.what: a new object gets the name.
pub const WHOLLY_CHANGE_CREATED: u32 = 1;
/// In wholly_change.what: the name is removed.
pub const WHOLLY_CHANGE_REMOVED: u32 = 2;
/// In wholly_change.what: a new object gets the name from the object that has it.
pub const WHOLLY_CHANGE_REPLACED: u32 = 3;
/// In wholly_change.what: the object with the name from loses it and gets this one.
pub const WHOLLY_CHANGE_RENAMED: u32 = 4;
/// In wholly_change.what: the object with the name from gets this one as well.
pub const WHOLLY_CHANGE_LINKED: u32 = 5;
/// In wholly_change.what: the object keeps the name, and its bytes or attributes change.
pub const WHOLLY_CHANGE_CHANGED: u32 = 6;

/// One change of a group. Set size before a call fills it in.
#[repr(C)]
pub struct wholly_change {
    /// sizeof(wholly_change).
    pub size: usize,
    /// The new name, relative to the store's directory; for WHOLLY_CHANGE_REMOVED the removed one. The text belongs to
    /// the review, and is valid until the review is closed.
    pub path: *const c_char,
    /// The name that a renamed object had, or another name of a linked one; else NULL.
    pub from: *const c_char,
    /// Size in bytes before the change; 0 if there was no object.
    pub bytes_before: u64,
    /// Size in bytes after the change; 0 if there is no object.
    pub bytes_after: u64,
    /// WHOLLY_CHANGE_*.
    pub what: u32,
    /// 1 if the bytes of a file change, or may change; else 0.
    pub content: u32,
    /// Type and permission bits before the change, as in st_mode; 0 if there was no object.
    pub mode_before: u32,
    /// Type and permission bits after the change.
    pub mode_after: u32,
    /// The owner before the change.
    pub uid_before: u32,
    /// The group of users before the change.
    pub gid_before: u32,
    /// The owner after the change.
    pub uid_after: u32,
    /// The group of users after the change.
    pub gid_after: u32,
    /// The number of extended attributes that are set or removed.
    pub xattrs: u64,
}

// SAFETY: a size, two pointers (which may be any, since they are never followed here), words of eight bytes, and eight
// of four.
unsafe impl Sized for wholly_change {
    const FIRST: usize = 80;
    const NAME: &str = "change";
}

const _: () = {
    assert!(LONGEST_NOTE < 1032);
    assert!(size_of::<wholly_parked>() == <wholly_parked as Sized>::FIRST);
    assert!(size_of::<wholly_change>() == <wholly_change as Sized>::FIRST);
};

/// Opens a review of what a parked group would change. Close it with wholly_review_close.
///
/// Errors: -ENOENT if there is no such parked group; -EUCLEAN if it is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_review(
    store: *const wholly_store,
    id: u64,
    review: *mut *mut wholly_review,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, an open handle.
        let (place, handle) = unsafe { (place(review)?, shared(store, "store")?) };
        let review = handle.health.run(|| handle.store.review(ParkedId(id)))?;
        // Names hold no zero.
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let changes = review.changes().iter().map(|change| (text(&change.path), change.from.as_deref().map(text)));
        let changes = changes.collect();
        *place = Box::into_raw(Box::new(wholly_review { review, changes, told: 0, health: handle.health.clone() }));
        Ok(())
    })
}

/// Fills in the next change, in the order of paths. Returns 1; or 0 at the end, and leaves the struct as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_review_next(review: *mut wholly_review, change: *mut wholly_change) -> c_int {
    let count = answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, used by no other thread.
        let review = unsafe { exclusive(review, "review") }?;
        // SAFETY: the caller's part of the contract: a struct of its size.
        unsafe { sized::check(change) }?;
        let (Some(next), Some((path, from))) =
            (review.review.changes().get(review.told), review.changes.get(review.told))
        else {
            return Ok(0);
        };
        let (before, after) = (next.before.unwrap_or_default(), next.after.unwrap_or_default());
        let filled = wholly_change {
            size: 0,
            path: path.as_ptr(),
            from: from.as_ref().map_or(std::ptr::null(), |from| from.as_ptr()),
            bytes_before: before.size,
            bytes_after: after.size,
            what: what(next),
            content: next.content.into(),
            mode_before: before.mode,
            mode_after: after.mode,
            uid_before: before.uid,
            gid_before: before.gid,
            uid_after: after.uid,
            gid_after: after.gid,
            xattrs: next.xattrs.len() as u64,
        };
        // SAFETY: as above.
        unsafe { sized::write(change, filled) }?;
        review.told += 1;
        Ok(1)
    });
    count as c_int
}

fn what(change: &Change) -> u32 {
    match change.what {
        What::Created => WHOLLY_CHANGE_CREATED,
        What::Removed => WHOLLY_CHANGE_REMOVED,
        What::Replaced => WHOLLY_CHANGE_REPLACED,
        What::Renamed => WHOLLY_CHANGE_RENAMED,
        What::Linked => WHOLLY_CHANGE_LINKED,
        What::Changed => WHOLLY_CHANGE_CHANGED,
    }
}

/// Reads up to length bytes of the file, or of the target of the symbolic link, of the last change that
/// wholly_review_next filled in: the state before the change if after is 0, else the state after it. Returns how many;
/// fewer only at the end.
///
/// Errors: -ENOENT if there is no object on that side, or no longer; -EINVAL for an object without bytes, and before
/// the first change; -EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_review_read(
    review: *mut wholly_review,
    after: c_int,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, used by no other thread, and room for `length`
        // bytes.
        let (handle, room) = unsafe { (exclusive(review, "review")?, bytes_mut(buffer, length)?) };
        let told = handle.told.checked_sub(1).and_then(|told| handle.review.changes().get(told));
        let change = told.ok_or_else(|| Error::Invalid("no change has been read".into()))?;
        let side = if after == 0 { Side::Before } else { Side::After };
        handle.health.run(|| Ok(handle.review.read(change, side, offset, room)? as u64))
    })
}

/// Closes a review.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_review_close(review: *mut wholly_review) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a handle that is not used any more.
        let wholly_review { review, health, .. } = *unsafe { owned(review, "review") }?;
        health.spend(review, |review| {
            drop(review);
            Ok(())
        })
    })
}
