//! The bytes of a test program's heap, and groups whose undo is kept.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use wholly::{KeepUndo, Store, StoreVfs, UndoFate};
use wholly_vfs::GroupId;

/// The system's allocator, counted.
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

impl Counted {
    fn add(bytes: usize) {
        let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(now, Ordering::Relaxed);
    }
}

// SAFETY: every call is the system allocator's, with the caller's own arguments.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counted::add(layout.size());
        // SAFETY: the caller keeps the rules of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of this call, and `place` is from the same allocator.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new are there at the same time, unless the system's allocator finds room behind: counted as the
        // worst.
        Counted::add(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of this call, and `place` is from the same allocator.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// The bytes that are in use.
pub fn now() -> usize {
    NOW.load(Ordering::Relaxed)
}

/// Most bytes above `before` since this was last asked.
pub fn most_above(before: usize) -> usize {
    PEAK.swap(NOW.load(Ordering::Relaxed), Ordering::Relaxed).saturating_sub(before)
}

/// Asks for the undo of a group to be kept, as `wholly run` does.
pub fn keep_undo(view: &StoreVfs, group: GroupId) {
    let keep = KeepUndo { note: "test".into(), expires: Duration::from_secs(3600), most_bytes: u64::MAX };
    view.keep_undo(group, &keep).unwrap();
}

/// The undo of a group of so many names is kept, if that is not too many.
pub fn check_undo(store: &Store, names: usize) {
    let is_kept = matches!(store.undo_fate(), Some(UndoFate::Kept(_)));
    assert_eq!(is_kept, names <= 1 << 17, "{:?}", store.undo_fate());
}

/// The most bytes of a group: while it runs, at its commit, and when it is written back.
pub type Phases = [usize; 3];

/// The bytes of each name in the phase that takes most, of several groups. What does not depend on the number of names
/// is not counted: in each phase the difference of two numbers is. (Both leave as much of a table free that doubles.)
pub fn for_each_name(names: usize, of_groups: impl Fn(usize) -> Vec<Phases>) -> Vec<usize> {
    let [few, many] = [names / 4, names].map(of_groups);
    let each = |(few, many): (&Phases, &Phases)| {
        let more = few.iter().zip(many).map(|(few, many)| many.saturating_sub(*few));
        more.max().unwrap_or(0) / (names - names / 4)
    };
    let each = few.iter().zip(&many).map(each).collect();
    println!("bytes a name in the phase that takes most: {each:?}");
    each
}
