//! Groups of several stores that survive together.

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use wholly::{Error, Group, ParkedId, Result, Store};

use crate::answer::{Health, done};
use crate::arguments::{check, exclusive, shared};
use crate::group::{end_with, wholly_group};
use crate::store::wholly_store;

/// What an array of pointers holds.
///
/// # Safety
/// Unless it is null, `array` is of `count` pointers.
unsafe fn pointers<T: Copy>(array: *const T, count: usize, name: &str) -> Result<Vec<T>> {
    check(array, name)?;
    // SAFETY: the caller's promise; null was refused.
    Ok(unsafe { std::slice::from_raw_parts(array, count) }.to_vec())
}

/// Commits groups of several stores together. After a crash all of them are there, or none. When this returns 0, all of
/// them survive a power failure. The groups end and their handles are freed, also on failure.
///
/// The store of the first group that changes anything is the coordinator. If the process dies half-way, each other
/// store asks it for the decision when it is next opened; that open fails with -EBUSY if the coordinator cannot be
/// found (see wholly_options.release). What the groups write is written once more than by separate commits.
///
/// Errors: -EINVAL if a group is NULL, is there twice or is a writer's, or if two are of one store; those of
/// wholly_group_park and wholly_group_commit. All groups are then aborted. After -EIO it is unknown whether they
/// survive until the stores are opened again; if only some of the stores return -EIO, the groups of the others are
/// committed. If a group is NULL or there twice, none has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_groups_commit_together(groups: *const *mut wholly_group, count: usize) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an array of handles of running groups, not used by anybody else.
        let handles = unsafe { pointers(groups, count, "the array of groups") }?;
        for (i, handle) in handles.iter().enumerate() {
            check(*handle, "group")?;
            if handles[..i].contains(handle) {
                return Err(Error::Invalid("a group is there twice".into()));
            }
        }
        // SAFETY: as above; they are all different.
        let health = |handle: &*mut wholly_group| Ok(unsafe { exclusive(*handle, "group") }?.health.clone());
        let all: Vec<Health> = handles.iter().map(health).collect::<Result<_>>()?;
        let mut ended = Vec::new();
        for handle in handles {
            // SAFETY: as above; the handle is not used any more. Nothing of the groups is dropped but where panics are
            // caught.
            ended.push(unsafe { end_with(handle, |group| Ok(ManuallyDrop::new(group))) });
        }
        Health::run_all(&all, || {
            let groups: Vec<Result<Group<'static>>> =
                ended.into_iter().map(|group| group.map(ManuallyDrop::into_inner)).collect();
            Store::commit_together(groups.into_iter().collect::<Result<Vec<_>>>()?)
        })
    })
}

/// Applies parked groups of several stores together, one group of each store. After a crash all of them are committed,
/// or all are still parked. stores and ids have count elements each.
///
/// Errors: -ESTALE if something differs for one of them: the text lists it, nothing has changed, and all stay parked;
/// -EINVAL if two are of one store; those of wholly_store_apply and wholly_groups_commit_together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_stores_apply_together(
    stores: *const *const wholly_store,
    ids: *const u64,
    count: usize,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: arrays of so many elements.
        let (handles, ids) =
            unsafe { (pointers(stores, count, "the array of stores")?, pointers(ids, count, "the array of ids")?) };
        let mut all = Vec::new();
        for handle in handles {
            // SAFETY: the caller's part of the contract: open handles.
            all.push(unsafe { shared(handle, "store") }?);
        }
        let healths: Vec<Health> = all.iter().map(|handle| handle.health.clone()).collect();
        let parked = all.iter().map(|handle| &handle.store).zip(ids.into_iter().map(ParkedId));
        Health::run_all(&healths, || Store::apply_together(parked))
    })
}
