//! Stores.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use wholly::{Error, Store};

use crate::answer::{Health, done};
use crate::arguments::{owned, path, place, shared};
use crate::file::wholly_file;
use crate::group::wholly_group;
use crate::options::{self, wholly_options};
use crate::sized::{self, Sized};
use crate::writer::wholly_writer;

/// An open store. One process has it open; any number of its threads may use the handle at the same time.
pub struct wholly_store {
    pub(crate) store: Store,
    pub(crate) health: Health,
}

/// Makes the directory dir a store: creates the folder .wholly in it. The files in the directory stay as they are. When
/// this returns 0, the store survives a power failure; a crash before that leaves none. options may be NULL.
///
/// Errors: -EEXIST if the directory is a store already; -EOPNOTSUPP if the file system cannot carry a store; -ENOENT,
/// -ENOTDIR, -ENOSPC and other errors of the file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_init(dir: *const c_char, options: *const wholly_options) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a text, and options of their size or NULL.
        let (dir, (options, host)) = unsafe { (path(dir)?, options::of(options)?) };
        Store::init_with(dir, &options, host)
    })
}

/// Opens the store in the directory dir, recovers it, and keeps it for this process. When this returns 0, everything
/// that was committed before a crash is there again. options may be NULL; segment_bytes and log_min_bytes have no
/// effect, since the store keeps those that it was made with.
///
/// Errors: -ENODEV if the directory is not a store; -EBUSY if a process has it open, or if it waits for another store
/// (see wholly_options.release); -EPERM if another user can have written to its folder; -ESTALE for a copy (see
/// wholly_options.accept_copy); -EUCLEAN if it is damaged; -EOPNOTSUPP if a newer version made it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_open(
    dir: *const c_char,
    options: *const wholly_options,
    store: *mut *mut wholly_store,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, a text, and options of their size or NULL.
        let (place, dir, (options, host)) = unsafe { (place(store)?, path(dir)?, options::of(options)?) };
        let store = Store::open_with(dir, options, host)?;
        *place = Box::into_raw(Box::new(wholly_store { store, health: Health::default() }));
        Ok(())
    })
}

/// Opens the store in a directory as wholly_store_open does. If there is none, it is made first, and the directory too
/// if only that is missing. When this returns 0, both survive a crash.
///
/// Errors: those of wholly_store_open and wholly_store_init, but for -ENODEV and -EEXIST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_open_or_create(
    dir: *const c_char,
    options: *const wholly_options,
    store: *mut *mut wholly_store,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, a text, and options of their size or NULL.
        let (place, dir, (options, host)) = unsafe { (place(store)?, path(dir)?, options::of(options)?) };
        let store = Store::open_or_create_with(dir, options, host)?;
        *place = Box::into_raw(Box::new(wholly_store { store, health: Health::default() }));
        Ok(())
    })
}

/// Writes everything back and closes the store. When this returns 0, the log is empty, and other programs see all that
/// was committed. The handle is freed, also on failure. Open handles of files, groups and writers keep the store in use
/// by this process until they are closed.
///
/// Errors: those of wholly_store_checkpoint. The log then keeps what is not written back, and the next open continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_close(store: *mut wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a handle that is not used any more.
        let wholly_store { store, health } = *unsafe { owned(store, "store") }?;
        health.spend(store, Store::close)
    })
}

/// Closes the store without writing back. Pending calls outside of groups are committed, but a failure is not reported.
/// What is committed and not written back stays in the log, for the next open. The handle is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_drop(store: *mut wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a handle that is not used any more.
        let wholly_store { store, health } = *unsafe { owned(store, "store") }?;
        health.spend(store, |store| {
            drop(store);
            Ok(())
        })
    })
}

/// What a checkpoint did. Set size before a call fills it in.
#[repr(C)]
pub struct wholly_checkpoint_report {
    /// sizeof(wholly_checkpoint_report).
    pub size: usize,
    /// The number of files that it wrote to.
    pub files: u64,
    /// The number of 4 KiB blocks that it wrote back.
    pub blocks: u64,
    /// Bytes that it wrote back.
    pub bytes: u64,
    /// The number of log segments that it freed.
    pub segments_freed: u64,
}

// SAFETY: five words of eight bytes.
unsafe impl Sized for wholly_checkpoint_report {
    const FIRST: usize = 40;
    const NAME: &str = "checkpoint report";
}

/// Makes the layer: an empty directory .wholly/layer of mode 0700 in the store's directory, in place of an earlier one.
/// Any program can make files there by ordinary calls, and groups can import them (wholly_group_import). Nothing in the
/// layer is durable. What is not imported is removed when the store is closed or removed, and when it is opened again.
///
/// Errors: errors of the file system: something of an earlier layer cannot be removed, or there is no space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_make_layer(store: *const wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        health.run(|| store.make_layer())
    })
}

/// Removes the layer with everything in it, if there is one.
///
/// Errors: errors of the file system. A part of the layer may then be left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_remove_layer(store: *const wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        health.run(|| store.remove_layer())
    })
}

/// Writes back everything that is committed. When this returns 0, it survives without the log, and other programs see
/// it. report may be NULL.
///
/// Errors: -ESTALE if another program changed a file that the log has updates for: nothing is overwritten, and the log
/// keeps the store's version; errors of the file system. The log then keeps what is not written back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_checkpoint(
    store: *const wholly_store,
    report: *mut wholly_checkpoint_report,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        if !report.is_null() {
            // SAFETY: the caller's part of the contract: a struct of its size. Told before any work is done.
            unsafe { sized::check(report) }?;
        }
        let did = health.run(|| store.checkpoint())?;
        if report.is_null() {
            return Ok(());
        }
        let filled = wholly_checkpoint_report {
            size: 0,
            files: did.files,
            blocks: did.blocks,
            bytes: did.bytes,
            segments_freed: did.segments_freed,
        };
        // SAFETY: as above.
        unsafe { sized::write(report, filled) }
    })
}

/// Commits all calls that were made outside of groups. When this returns 0, they survive a power failure.
///
/// Errors: -EIO if the medium failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_sync(store: *const wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        health.run(|| store.sync())
    })
}

/// Figures about an open store. Set size before a call fills it in. All are zero in a child of fork that cannot use the
/// store.
#[repr(C)]
pub struct wholly_stat {
    /// sizeof(wholly_stat).
    pub size: usize,
    /// How many times the store has been opened.
    pub incarnation: u64,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// The number of segments of the log.
    pub segments: u64,
    /// The number of segments that are free.
    pub free_segments: u64,
    /// The number of 4 KiB blocks whose latest bytes are not written back yet.
    pub pending_blocks: u64,
    /// The number of files that are open or have pending blocks.
    pub open_files: u64,
    /// Bytes of memory that the index takes.
    pub index_bytes: u64,
    /// The number of versions in the index, spare ones included.
    pub versions: u64,
    /// Bytes written to the log since the store was opened.
    pub log_bytes_written: u64,
    /// Bytes written back to ordinary files since the store was opened.
    pub home_bytes_written: u64,
    /// The number of fences since the store was opened.
    pub fences: u64,
    /// The number of synchronous writes and syncs since the store was opened.
    pub syncs: u64,
    /// 1 if the medium only emulates persistent memory: it survives the process, but not a power failure. Else 0.
    pub emulated: u64,
    /// What the log is stored on, in words.
    pub medium: [c_char; 128],
    /// The number of parked groups.
    pub parked_groups: u64,
    /// Bytes of disk space that the parked groups take.
    pub parked_bytes: u64,
}

// SAFETY: words of eight bytes, and bytes, a multiple of eight of them.
unsafe impl Sized for wholly_stat {
    const FIRST: usize = 256;
    const NAME: &str = "stat";
}

/// Fills in figures about the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_stat(store: *const wholly_store, stat: *mut wholly_stat) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        // SAFETY: the caller's part of the contract: a struct of its size.
        unsafe { sized::check(stat) }?;
        let now = health.run(|| Ok(store.stat()))?;
        let filled = wholly_stat {
            size: 0,
            incarnation: now.incarnation,
            segment_bytes: now.segment_bytes,
            segments: now.segments.into(),
            free_segments: now.free_segments.into(),
            pending_blocks: now.pending_blocks,
            open_files: now.open_files,
            index_bytes: now.index_bytes,
            versions: now.versions,
            log_bytes_written: now.log_bytes_written,
            home_bytes_written: now.home_bytes_written,
            fences: now.fences,
            syncs: now.syncs,
            emulated: now.emulated.into(),
            medium: sized::text(&now.medium),
            parked_groups: now.parked_groups,
            parked_bytes: now.parked_bytes,
        };
        // SAFETY: as above.
        unsafe { sized::write(stat, filled) }
    })
}

/// What opening the store found and did. Set size before a call fills it in.
#[repr(C)]
pub struct wholly_recovery {
    /// sizeof(wholly_recovery).
    pub size: usize,
    /// The number of log segments that were in use.
    pub segments: u64,
    /// The number of committed groups that were not written back.
    pub groups: u64,
    /// The number of records that a crash tore: groups whose commit had not returned. They are gone.
    pub rejected: u64,
    /// The number of files that the log has updates for.
    pub files: u64,
    /// The number of names that the log sets.
    pub names: u64,
    /// The number of files that another program changed while the log held updates for them: see wholly_store_conflict.
    /// If it is not 0, nothing is written back.
    pub conflicts: u64,
}

// SAFETY: words of eight bytes.
unsafe impl Sized for wholly_recovery {
    const FIRST: usize = 56;
    const NAME: &str = "recovery";
}

/// Fills in what opening the store found and did.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_recovery(store: *const wholly_store, recovery: *mut wholly_recovery) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        // SAFETY: the caller's part of the contract: a struct of its size.
        unsafe { sized::check(recovery) }?;
        let filled = health.run(|| {
            let found = store.recovery();
            Ok(wholly_recovery {
                size: 0,
                segments: found.scan.segments.into(),
                groups: found.scan.groups,
                rejected: found.scan.rejected.into(),
                files: found.files,
                names: found.names,
                conflicts: found.conflicts.len() as u64,
            })
        })?;
        // SAFETY: as above.
        unsafe { sized::write(recovery, filled) }
    })
}

/// A file that another program changed while the log held updates for it. Set size before a call fills it in.
#[repr(C)]
pub struct wholly_conflict {
    /// sizeof(wholly_conflict).
    pub size: usize,
    /// The file, relative to the store's directory.
    pub path: [c_char; 4096],
    /// What differs, in words.
    pub change: [c_char; 256],
}

// SAFETY: a word of eight bytes, and bytes, a multiple of eight of them.
unsafe impl Sized for wholly_conflict {
    const FIRST: usize = 4360;
    const NAME: &str = "conflict";
}

const _: () = {
    assert!(size_of::<wholly_checkpoint_report>() == <wholly_checkpoint_report as Sized>::FIRST);
    assert!(size_of::<wholly_stat>() == <wholly_stat as Sized>::FIRST);
    assert!(size_of::<wholly_recovery>() == <wholly_recovery as Sized>::FIRST);
    assert!(size_of::<wholly_conflict>() == <wholly_conflict as Sized>::FIRST);
};

/// Fills in one of the conflicts that opening the store found; index counts from 0.
///
/// Errors: -EINVAL beyond the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_conflict(
    store: *const wholly_store,
    index: u64,
    conflict: *mut wholly_conflict,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        // SAFETY: the caller's part of the contract: a struct of its size.
        unsafe { sized::check(conflict) }?;
        let filled = health.run(|| {
            let found = usize::try_from(index).ok().and_then(|index| store.recovery().conflicts.get(index));
            let (path, change) = found.ok_or_else(|| Error::Invalid(format!("there is no conflict {index}")))?;
            Ok(wholly_conflict { size: 0, path: sized::text(path.as_os_str().as_bytes()), change: sized::text(change) })
        })?;
        // SAFETY: as above.
        unsafe { sized::write(conflict, filled) }
    })
}

/// Opens an existing regular file, for calls outside of groups and for use in groups. A symbolic link at the end of the
/// path is followed.
///
/// Errors: -ENOENT; -EISDIR for a directory; -EINVAL for any other object that is not a regular file; -EACCES if the
/// process may not both read and write it; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_open_file(
    store: *const wholly_store,
    path: *const c_char,
    file: *mut *mut wholly_file,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, an open handle, a text.
        let (place, store, path) = unsafe { (place(file)?, shared(store, "store")?, crate::arguments::path(path)?) };
        *place = wholly_file::new(store.health.run(|| store.store.open_file(path))?, &store.health);
        Ok(())
    })
}

/// Creates a regular file with exactly the permission bits mode, whatever the umask, in a group of its own. When this
/// returns 0, the file survives a power failure.
///
/// Errors: those of wholly_group_create and wholly_group_commit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_create_file(
    store: *const wholly_store,
    path: *const c_char,
    mode: u32,
    file: *mut *mut wholly_file,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, an open handle, a text.
        let (place, store, path) = unsafe { (place(file)?, shared(store, "store")?, crate::arguments::path(path)?) };
        *place = wholly_file::new(store.health.run(|| store.store.create_file(path, mode))?, &store.health);
        Ok(())
    })
}

/// Begins a group: updates of any number of files that survive a crash wholly or not at all. Any number of groups may
/// run at the same time, on different files; groups do not nest. End the group with wholly_group_commit,
/// wholly_group_commit_atomic, wholly_group_abort, wholly_group_park or wholly_group_commit_or_park.
///
/// In a child of fork that cannot use the store this succeeds, and each call on the group fails with -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_begin(store: *const wholly_store, group: *mut *mut wholly_group) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, and an open handle.
        let (place, store) = unsafe { (place(group)?, shared(store, "store")?) };
        *place = wholly_group::alone(store.health.run(|| Ok(store.store.begin()))?, &store.health);
        Ok(())
    })
}

/// Makes a writer, from which one thread begins one group after the other. It is faster than wholly_store_begin,
/// because it keeps what a group needs from one group to the next. For a thread that commits many small groups. A
/// writer keeps the store open, as a file does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_writer(store: *const wholly_store, writer: *mut *mut wholly_writer) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, and an open handle.
        let (place, store) = unsafe { (place(writer)?, shared(store, "store")?) };
        *place = wholly_writer::new(store.health.run(|| Ok(store.store.writer()))?, &store.health);
        Ok(())
    })
}
