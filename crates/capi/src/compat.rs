//! The calls of FCFS (section III-B of the paper) over groups on a mount: transactions by number. `wholly/compat.h`
//! gives them the paper's names, and errors by `errno`.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use wholly::{Error, MountGroup, Result};

use crate::answer::{answer, done};
use crate::arguments::check;
use crate::mount::descriptor;

/// Transactions that run, by number.
struct Running {
    /// The last number that was given. None is given twice, so that one that has ended is known.
    last: u64,
    /// `None` until the first descriptor says on which mount it is.
    groups: BTreeMap<u64, Option<MountGroup>>,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { last: 0, groups: BTreeMap::new() });

fn running() -> MutexGuard<'static, Running> {
    // Each change of the map is a single one: a panic leaves nothing half-done.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unknown(id: u64) -> Error {
    Error::Invalid(format!("no transaction {id} runs"))
}

/// Adds a descriptor to a group, which begins with the first one.
///
/// # Safety
/// The descriptor stays open during the call.
unsafe fn add(group: &mut Option<MountGroup>, fd: c_int) -> Result<()> {
    // SAFETY: the caller's promise.
    let fd = unsafe { descriptor(fd) }?;
    match group {
        Some(group) => group.add(fd),
        None => {
            // Dropped, and so aborted, if the descriptor cannot be added.
            let begun = MountGroup::begin(fd)?;
            begun.add(fd)?;
            *group = Some(begun);
            Ok(())
        }
    }
}

/// Takes a transaction that is to end off the list.
fn take(id: u64) -> Result<Option<MountGroup>> {
    running().groups.remove(&id).ok_or_else(|| unknown(id))
}

/// Begins a transaction with these descriptors: tx_begin of wholly/compat.h, which says more. Returns its number, which
/// is greater than 0.
///
/// Errors: those of wholly_mount_begin and wholly_mount_add; -EINVAL if fds is NULL and count is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_tx_begin(fds: *const c_int, count: usize) -> i64 {
    answer(|| {
        let mut group = None;
        if count > 0 {
            check(fds, "the list of descriptors")?;
        }
        for i in 0..count {
            // SAFETY: the caller's part of the contract: so many descriptors, which stay open.
            unsafe { add(&mut group, *fds.add(i)) }?;
        }
        let mut running = running();
        running.last += 1;
        let id = running.last;
        running.groups.insert(id, group);
        Ok(id)
    })
}

/// Adds a descriptor to a transaction: tx_add of wholly/compat.h.
///
/// Errors: -EINVAL if no such transaction runs; those of wholly_mount_add, and of wholly_mount_begin if it is the first
/// one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_tx_add(id: u64, fd: c_int) -> c_int {
    done(|| {
        let mut running = running();
        let group = running.groups.get_mut(&id).ok_or_else(|| unknown(id))?;
        // SAFETY: the caller's part of the contract: a descriptor that stays open.
        unsafe { add(group, fd) }
    })
}

/// Commits a transaction: tx_commit of wholly/compat.h. It ends, also on failure.
///
/// Errors: -EINVAL if no such transaction runs; those of wholly_mount_commit.
#[unsafe(no_mangle)]
pub extern "C" fn wholly_tx_commit(id: u64) -> c_int {
    done(|| take(id)?.map_or(Ok(()), MountGroup::commit))
}

/// Aborts a transaction: tx_abort of wholly/compat.h. It ends, also on failure.
///
/// Errors: -EINVAL if no such transaction runs; those of wholly_mount_abort.
#[unsafe(no_mangle)]
pub extern "C" fn wholly_tx_abort(id: u64) -> c_int {
    done(|| take(id)?.map_or(Ok(()), MountGroup::abort))
}
