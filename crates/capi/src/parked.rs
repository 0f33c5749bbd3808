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

/// Parks the group instead of committing it: on return it survives a crash by itself, as long as nobody applies or discards it, and has given
/// up all that it had claimed. note is for people, of up to 1024 bytes, or NULL. With keep_seconds other than 0 it is discarded when so much
/// time has passed. What it builds on and is not home yet is taken home first. The group ends and its handle is freed, also on failure.
///
/// Errors: -EINVAL where it has changed nothing; those of wholly_store_checkpoint; -ENOSPC. Then the group is aborted.
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

/// Commits the group, unless a program that bypasses the store has changed something that it builds on, since the group first touched it: then
/// the group is parked, as by wholly_group_park, nothing is overwritten, and id is the parked group's; else id is 0. The group ends and its
/// handle is freed, also on failure.
///
/// Errors: -ESTALE where it is parked: the text lists what is otherwise; those of wholly_group_commit and wholly_group_park: then the group is
/// aborted.
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
        if let Err(Error::Overtaken(parked, _)) = &committed {
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
    Ok(note.map_err(|_| Error::Invalid("the note is no UTF-8".into()))?.unwrap_or_default())
}

fn keep_of(seconds: u64) -> Option<Duration> {
    (seconds != 0).then(|| Duration::from_secs(seconds))
}

/// A listing of what was parked when it was opened. One thread at a time calls with it; which thread that is may change.
pub struct wholly_parked_list {
    all: std::vec::IntoIter<Parked>,
}

/// A parked group. Set its size before it is filled in. Times are in nanoseconds since the epoch.
#[repr(C)]
pub struct wholly_parked {
    /// sizeof(wholly_parked).
    pub size: usize,
    /// Its number, which no other group of the store ever has. `wholly list` shows it as id >> 40, a dash, and the rest.
    pub id: u64,
    /// When it was parked.
    pub parked_ns: i64,
    /// When it is discarded; 0: never by itself.
    pub expires_ns: i64,
    /// Bytes that it writes to files.
    pub bytes: u64,
    /// Bytes that it takes.
    pub space: u64,
    /// Files whose bytes it changes.
    pub files: u32,
    /// Names that it sets or takes away.
    pub names: u32,
    /// 1 where it cannot be read: then only id and space mean anything. Else 0.
    pub is_damaged: u64,
    /// What was noted.
    pub note: [c_char; 1032],
}

// SAFETY: words of eight bytes, two of four, and bytes, a multiple of eight of them.
unsafe impl Sized for wholly_parked {
    const FIRST: usize = 1096;
    const NAME: &str = "parked group";
}

/// Opens a listing of what is parked, in the order in which the groups began. What has expired is discarded first. Close it by
/// wholly_parked_list_close, before or after the store.
///
/// Errors: of the file system.
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

/// Tells the next parked group of a listing. Returns 1, and 0 where there is none: then the struct is left as it is.
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
            is_damaged: next.damage.is_some().into(),
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

/// Commits a parked group, if all that it relies on is as it was: the names that it sets, the bytes of files that it changes or removes, the
/// attributes that it sets. When this returns 0 it survives, everybody sees it, and it is parked no more.
///
/// Errors: -ESTALE where something is otherwise: the text lists all of that, nothing has changed, and the group stays parked; -EBUSY where a
/// running group has something that it changes; -ENOENT where no such group is parked; -EUCLEAN; those of wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_apply(store: *const wholly_store, id: u64) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_parked(store, id, Store::apply) }
}

/// Removes a parked group. It does not come back after a crash when this has returned.
///
/// Errors: -ENOENT where no such group is parked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_discard(store: *const wholly_store, id: u64) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_parked(store, id, Store::discard) }
}

/// What a parked group would change. It keeps the store open, as a file does. One thread at a time calls with it; which thread that is may
/// change.
pub struct wholly_review {
    review: Review<'static>,
    changes: Vec<(CString, Option<CString>)>,
    /// How many have been told.
    told: usize,
    health: Health,
}

/// In wholly_change.what: something new gets the name.
pub const WHOLLY_CHANGE_CREATED: u32 = 1;
/// In wholly_change.what: the name goes.
pub const WHOLLY_CHANGE_REMOVED: u32 = 2;
/// In wholly_change.what: something new gets the name, in the place of what had it.
pub const WHOLLY_CHANGE_REPLACED: u32 = 3;
/// In wholly_change.what: what had the name from gets this one instead.
pub const WHOLLY_CHANGE_RENAMED: u32 = 4;
/// In wholly_change.what: what has the name from gets this one, too.
pub const WHOLLY_CHANGE_LINKED: u32 = 5;
/// In wholly_change.what: what has the name is otherwise: its bytes, or its attributes.
pub const WHOLLY_CHANGE_CHANGED: u32 = 6;

/// One change of a group. Set its size before it is filled in.
#[repr(C)]
pub struct wholly_change {
    /// sizeof(wholly_change).
    pub size: usize,
    /// The name, as it is to be; of what is removed, as it was. The text is the review's, and stays until that is closed.
    pub path: *const c_char,
    /// The name that what is renamed had, or another one of what is linked; NULL for all else.
    pub from: *const c_char,
    /// Size in bytes before; 0 where there was nothing.
    pub bytes_before: u64,
    /// Size in bytes after; 0 where there is to be nothing.
    pub bytes_after: u64,
    /// WHOLLY_CHANGE_CREATED and so on.
    pub what: u32,
    /// 1 where the bytes of a file are otherwise, or may be; else 0.
    pub content: u32,
    /// Type and permission bits as in st_mode before; 0 where there was nothing.
    pub mode_before: u32,
    /// The same after.
    pub mode_after: u32,
    /// Owner and group before.
    pub uid_before: u32,
    /// See above.
    pub gid_before: u32,
    /// Owner and group after.
    pub uid_after: u32,
    /// See above.
    pub gid_after: u32,
    /// How many extended attributes are set or removed.
    pub xattrs: u64,
}

// SAFETY: a size, two pointers (which may be any, since they are never followed here), words of eight bytes, and eight of four.
unsafe impl Sized for wholly_change {
    const FIRST: usize = 80;
    const NAME: &str = "change";
}

const _: () = {
    assert!(LONGEST_NOTE < 1032);
    assert!(size_of::<wholly_parked>() == <wholly_parked as Sized>::FIRST);
    assert!(size_of::<wholly_change>() == <wholly_change as Sized>::FIRST);
};

/// Looks at what a parked group would change. Close it by wholly_review_close.
///
/// Errors: -ENOENT where no such group is parked; -EUCLEAN where it is damaged.
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

/// Tells the next change, in the order of paths. Returns 1, and 0 where there is none: then the struct is left as it is.
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

/// Reads up to length bytes of the file, or of the target of the symbolic link, that the change told last is about: as it was where after is
/// 0, else as it is to be. Returns how many: fewer only at its end.
///
/// Errors: -ENOENT where there is nothing on that side, or not any more; -EINVAL for what holds no bytes, and before the first change was
/// told; -EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_review_read(
    review: *mut wholly_review,
    after: c_int,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, used by no other thread, and room for `length` bytes.
        let (handle, room) = unsafe { (exclusive(review, "review")?, bytes_mut(buffer, length)?) };
        let told = handle.told.checked_sub(1).and_then(|told| handle.review.changes().get(told));
        let change = told.ok_or_else(|| Error::Invalid("no change has been told".into()))?;
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
