//! What names there are, as groups and stores see them.

use std::ffi::{CString, c_char, c_int};

use wholly::DirEntry;

use crate::answer::{answer, done};
use crate::arguments::{exclusive, owned, place, shared};
use crate::group::wholly_group;
use crate::sized::{self, Sized};
use crate::store::wholly_store;

/// A listing of a directory: the names that were in it when the listing was opened. It keeps neither store nor group.
/// One thread at a time uses it, not always the same.
pub struct wholly_dir {
    entries: Vec<Entry>,
    /// How many have been read.
    read: usize,
}

struct Entry {
    name: CString,
    ino: u64,
    kind: u32,
}

impl wholly_dir {
    fn new(entries: Vec<DirEntry>) -> *mut wholly_dir {
        // Names hold no zero.
        let name = |name| CString::new(name).unwrap_or_default();
        let entries =
            entries.into_iter().map(|entry| Entry { name: name(entry.name), ino: entry.ino, kind: entry.kind });
        Box::into_raw(Box::new(wholly_dir { entries: entries.collect(), read: 0 }))
    }
}

/// One name of a directory. Set size before a call fills it in.
#[repr(C)]
pub struct wholly_dir_entry {
    /// sizeof(wholly_dir_entry).
    pub size: usize,
    /// The name. The text belongs to the listing, and is valid until the listing is closed.
    pub name: *const c_char,
    /// Inode number, as in wholly_metadata.
    pub ino: u64,
    /// The type bits as in st_mode (S_IFREG, S_IFDIR, ...); 0 if the file system does not report them here.
    pub type_bits: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: a size, a pointer (which may be any, since it is never followed here), a word of eight bytes and two of four,
// without a gap.
unsafe impl Sized for wholly_dir_entry {
    const FIRST: usize = 32;
    const NAME: &str = "directory entry";
}

const _: () = assert!(size_of::<wholly_dir_entry>() == <wholly_dir_entry as Sized>::FIRST);

/// Opens a listing of a directory, as the group sees it, in no particular order, without . and .. entries. The path .
/// is the store's directory. A symbolic link at the end of the path is followed. Later changes are not in the listing.
/// Close it with wholly_dir_close, before or after the end of the group.
///
/// Errors: -ENOENT; -ENOTDIR if it is not a directory; those of all paths.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_group_open_dir(
    group: *mut wholly_group,
    path: *const c_char,
    dir: *mut *mut wholly_dir,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, a group of which no other thread uses the
        // handle, a text.
        let (place, handle, path) = unsafe { (place(dir)?, exclusive(group, "group")?, crate::arguments::path(path)?) };
        *place = wholly_dir::new(handle.call(|group| group.read_dir(path))?);
        Ok(())
    })
}

/// wholly_group_open_dir, of the committed state. Close the listing with wholly_dir_close, before or after the store.
///
/// Errors: those of wholly_group_open_dir.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_store_open_dir(
    store: *const wholly_store,
    path: *const c_char,
    dir: *mut *mut wholly_dir,
) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a place for a handle, an open handle, a text.
        let (place, handle, path) = unsafe { (place(dir)?, shared(store, "store")?, crate::arguments::path(path)?) };
        *place = wholly_dir::new(handle.health.run(|| handle.store.read_dir(path))?);
        Ok(())
    })
}

/// Fills in the next name of a listing. Returns 1; or 0 at the end, and leaves the entry as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_dir_read(dir: *mut wholly_dir, entry: *mut wholly_dir_entry) -> c_int {
    let count = answer(|| {
        // SAFETY: the caller's part of the contract: an open handle, used by no other thread.
        let dir = unsafe { exclusive(dir, "dir") }?;
        // SAFETY: the caller's part of the contract: a struct of its size.
        unsafe { sized::check(entry) }?;
        let Some(next) = dir.entries.get(dir.read) else { return Ok(0) };
        let filled =
            wholly_dir_entry { size: 0, name: next.name.as_ptr(), ino: next.ino, type_bits: next.kind, reserved: 0 };
        // SAFETY: as above.
        unsafe { sized::write(entry, filled) }?;
        dir.read += 1;
        Ok(1)
    });
    count as c_int
}

/// Closes a listing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wholly_dir_close(dir: *mut wholly_dir) -> c_int {
    done(|| {
        // SAFETY: the caller's part of the contract: a handle that is not used any more.
        drop(unsafe { owned(dir, "dir") }?);
        Ok(())
    })
}
