//! Writers: a writer and the handle of its group are one allocation, so that a group takes none.

use std::ffi::c_int;

use wholly::{Error, Writer};

use crate::answer::{Health, done};
use crate::arguments::{check, owned, place};
use crate::group::wholly_group;

/// Begins one group after the other, for one thread (wholly_store_writer). One thread at a time uses a writer and its
/// group, not always the same.
pub struct wholly_writer {
    group: wholly_group,
    /// From a box, because the running group borrows it, and a handle that holds both cannot be borrowed meanwhile.
    writer: *mut Writer,
}

impl wholly_writer {
    pub(crate) fn new(writer: Writer, health: &Health) -> *mut wholly_writer {
        let writer = Box::into_raw(Box::new(writer));
        Box::into_raw(Box::new(wholly_writer { group: wholly_group::of_writer(health), writer }))
    }
}

/// Begins a group of the writer, as wholly_store_begin does. The group's handle belongs to the writer; do not use it
/// after the end of the group.
///
/// Errors: -EBUSY if the writer's last group has not ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_writer_begin(writer: *mut wholly_writer, group: *mut *mut wholly_group) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle.
        let place = unsafe { place(group) }?;
        check(writer, "writer")?;
        // No reference to all of the writer: one would end the right of a group's handle, which is a part of it, to be
        // used. SAFETY: the caller's part of the contract: an open handle, used by no other thread.
        let (handle, from) = unsafe { (&raw mut (*writer).group, (*writer).writer) };
        // SAFETY: as above. Nobody else refers to the group: its calls have returned.
        let group = unsafe { &mut *handle };
        if group.group.is_some() {
            return Err(Error::Busy("the writer".into(), "its last group has not ended".into()));
        }
        // SAFETY: the box lives until `wholly_writer_close`, which ends the group first; and no group borrows it now.
        let from: &'static mut Writer = unsafe { &mut *from };
        group.group = Some(group.health.run(|| Ok(from.begin()))?);
        *place = handle;
        Ok(())
    })
}

/// Closes a writer. If its group has not ended, it is aborted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_writer_close(writer: *mut wholly_writer) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a handle that is not used any more, nor that of its group.
        let wholly_writer { mut group, writer } = *unsafe { owned(writer, "writer") }?;
        if group.group.is_some() {
            group.end(|running| {
                running.abort();
                Ok(())
            })?;
        }
        group.health.run(|| {
            // SAFETY: `new` made it from a box, and the group that borrowed it has ended.
            drop(unsafe { Box::from_raw(writer) });
            Ok(())
        })
    })
}
