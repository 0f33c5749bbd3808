//! Stores.

use std::ffi::{c_char, c_int};

use wholly::{Error, Store};

use crate::answer::{Health, done};
use crate::arguments::{owned, path, place, shared};
use crate::file::wholly_file;
use crate::group::wholly_group;
use crate::options::{self, wholly_options};
use crate::sized::{self, Sized};
use crate::writer::wholly_writer;

/// An open store. One process has it; its threads may share this handle and call with it at once.
pub struct wholly_store {
    pub(crate) store: Store,
    pub(crate) health: Health,
}

/// Makes the directory a store: creates .wholly in it. Files in it stay as they are. On return that survives a crash; after a
/// crash before it, there is none. options may be NULL.
///
/// Errors: -EEXIST where it is one already; -ENOENT, -ENOTDIR, -ENOSPC and others of the file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_init(dir: *const c_char, options: *const wholly_options) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a text, and options of their size or NULL.
        let (dir, (options, host)) = unsafe { (path(dir)?, options::of(options)?) };
        Store::init_with(dir, &options, host)
    })
}

/// Opens the store in a directory, recovers it and owns it. What was committed before any crash is served when this returns.
/// options may be NULL; segment_bytes and log_min_bytes are those that the store was made with.
///
/// Errors: -ENODEV where there is no store; -EBUSY where a process has it open; -EUCLEAN where it is damaged; -EOPNOTSUPP where a newer
/// version made it.
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

/// Opens the store in a directory as wholly_store_open does. Where there is none it is made first, and the directory too if only
/// that is missing: both survive a crash when this returns.
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

/// Takes everything home and gives the store up: on return the log is empty, and other programs see all that was committed. The handle is
/// freed, also on failure. Handles of files, groups and writers keep the store to this process until they are closed.
///
/// Errors: those of wholly_store_checkpoint. The log then keeps what is not home, and the next open goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_close(store: *mut wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a handle that is not used any more.
        let wholly_store { store, health } = *unsafe { owned(store, "store") }?;
        health.spend(store, Store::close)
    })
}

/// Gives the store up as it is. What is committed and not home stays in the log, for the next open. The handle is freed.
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

/// What a checkpoint did. Set its size before it is filled in.
#[repr(C)]
pub struct wholly_checkpoint_report {
    /// sizeof(wholly_checkpoint_report).
    pub size: usize,
    /// Files that were touched.
    pub files: u64,
    /// Blocks that were taken home.
    pub blocks: u64,
    /// Bytes written home.
    pub bytes: u64,
    /// Segments of the log that became free.
    pub segments_freed: u64,
}

// SAFETY: five words of eight bytes.
unsafe impl Sized for wholly_checkpoint_report {
    const FIRST: usize = 40;
    const NAME: &str = "checkpoint report";
}

/// Makes the layer: an empty directory, .wholly/layer, below the store's directory, of mode 0700, in place of any that is there. What is made in it, by
/// whatever program and calls, groups can adopt (wholly_group_adopt). Nothing in it is durable, and all that is not adopted goes when the store is closed or
/// removed, or opened again.
///
/// Errors: of the file system, where something of an earlier layer cannot be removed, or there is no space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_make_layer(store: *const wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        health.run(|| store.make_layer())
    })
}

/// Removes the layer with all that is in it, where there is one.
///
/// Errors: of the file system: then a part of it may be left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_remove_layer(store: *const wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        health.run(|| store.remove_layer())
    })
}

/// Takes everything that is committed home. On return it survives without the log, and other programs see it. report may be NULL.
///
/// Errors: -ESTALE where another program changed a file of which the log holds updates: nothing is overwritten, the log keeps the store's
/// version; of the file system. The log then keeps what is not home.
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

/// Makes all calls outside of groups so far survive: they do when this returns.
///
/// Errors: -EIO where the medium failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_sync(store: *const wholly_store) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: an open handle.
        let wholly_store { store, health } = unsafe { shared(store, "store") }?;
        health.run(|| store.sync())
    })
}

/// What a store is doing. Set its size before it is filled in. All is zero in a child of fork that cannot have the store.
#[repr(C)]
pub struct wholly_stat {
    /// sizeof(wholly_stat).
    pub size: usize,
    /// How often the store was opened.
    pub incarnation: u64,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Segments of the log.
    pub segments: u64,
    /// How many of them are free.
    pub free_segments: u64,
    /// Blocks of 4 KiB whose latest bytes are not home.
    pub pending_blocks: u64,
    /// Files that are open or have pending blocks.
    pub open_files: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Versions in the index, spare ones included.
    pub versions: u64,
    /// Bytes written to the log since the open.
    pub log_bytes_written: u64,
    /// Bytes written to the files since the open.
    pub home_bytes_written: u64,
    /// Fences since the open.
    pub fences: u64,
    /// Synchronous writes and syncs since the open.
    pub syncs: u64,
    /// 1 where the medium only stands in for persistent memory: what survives the process does not survive a power failure. Else 0.
    pub emulated: u64,
    /// What the log is on, in words.
    pub medium: [c_char; 128],
    /// Groups that are parked.
    pub parked_groups: u64,
    /// Bytes that they take.
    pub parked_bytes: u64,
}

// SAFETY: words of eight bytes, and bytes, a multiple of eight of them.
unsafe impl Sized for wholly_stat {
    const FIRST: usize = 256;
    const NAME: &str = "stat";
}

/// Tells what the store is doing.
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

/// What opening the store found and did. Set its size before it is filled in.
#[repr(C)]
pub struct wholly_recovery {
    /// sizeof(wholly_recovery).
    pub size: usize,
    /// Segments of the log that were in use.
    pub segments: u64,
    /// Committed groups that were not home.
    pub groups: u64,
    /// Records that were torn by the crash: groups whose commit had not returned. They are gone.
    pub rejected: u64,
    /// Files that have updates in the log.
    pub files: u64,
    /// Names that the log sets.
    pub names: u64,
    /// Files that another program changed while the log held updates of them: see wholly_store_conflict. Nothing goes home.
    pub conflicts: u64,
}

// SAFETY: words of eight bytes.
unsafe impl Sized for wholly_recovery {
    const FIRST: usize = 56;
    const NAME: &str = "recovery";
}

/// Tells what opening the store found and did.
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

/// A file that another program changed. Set its size before it is filled in.
#[repr(C)]
pub struct wholly_conflict {
    /// sizeof(wholly_conflict).
    pub size: usize,
    /// The file, below the store's directory.
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

/// Tells about one of the conflicts that opening the store found; index counts from 0.
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
            Ok(wholly_conflict { size: 0, path: sized::text(path), change: sized::text(change) })
        })?;
        // SAFETY: as above.
        unsafe { sized::write(conflict, filled) }
    })
}

/// Opens an existing regular file, for calls outside of groups and for groups to use. A symbolic link at the end of the path is followed.
///
/// Errors: -ENOENT; -EISDIR for a directory; -EINVAL for what else is no regular file; -EACCES where it may not be read and written; those
/// of all paths.
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

/// Creates a regular file with the permission bits mode, whatever the umask, in a group of its own: it survives when this returns.
///
/// Errors: those of wholly_group_create.
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

/// Begins a group: updates of any number of files that survive a crash wholly or not at all. Groups do not nest; any number of them may
/// run at once, on different files. End it by wholly_group_commit, wholly_group_commit_atomic or wholly_group_abort.
///
/// In a child of fork that cannot have the store this succeeds, and each call on the group fails with -EBUSY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_begin(store: *const wholly_store, group: *mut *mut wholly_group) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, and an open handle.
        let (place, store) = unsafe { (place(group)?, shared(store, "store")?) };
        *place = wholly_group::alone(store.health.run(|| Ok(store.store.begin()))?, &store.health);
        Ok(())
    })
}

/// Makes a writer: a place for one thread to begin one group after the other from, faster than by wholly_store_begin, since what a group
/// works with stays with the writer. For a thread that commits many small groups. A writer keeps the store open, as a file does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_writer(store: *const wholly_store, writer: *mut *mut wholly_writer) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, and an open handle.
        let (place, store) = unsafe { (place(writer)?, shared(store, "store")?) };
        *place = wholly_writer::new(store.health.run(|| Ok(store.store.writer()))?, &store.health);
        Ok(())
    })
}
