//! How much memory a group with very many names takes, in bytes of the heap for each name, from its first call until
//! its names are written back.
//!
//! One test: the allocator that counts is the whole program's. `WHOLLY_NAMES` sets another number of names; a million
//! of them have to do with 512 MiB.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, setrlimit};
use wholly::{Options, Store};
use wholly_host::HostOptions;

mod common;

use common::Dir;

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

/// Most bytes above `before` since this was last asked.
fn most_above(before: usize) -> usize {
    PEAK.swap(NOW.load(Ordering::Relaxed), Ordering::Relaxed).saturating_sub(before)
}

fn name(n: usize) -> String {
    format!("file-{n:07}")
}

/// The most bytes that a group takes that makes so many names, and then one that removes them.
fn of_one_group(names: usize) -> [usize; 2] {
    let dir = Dir::new(&std::env::temp_dir(), &format!("memory-{names}"));
    let options = Options { background: false, ..Options::default() };
    Store::init(&*dir, &options).unwrap();
    let store = Store::open_with(Path::new(&*dir), options, HostOptions::default()).unwrap();
    let most = ["creates", "removals"].map(|what| {
        let before = NOW.load(Ordering::Relaxed);
        most_above(before);
        let mut group = store.begin();
        for n in 0..names {
            match what {
                "creates" => drop(group.create(name(n), 0o644).unwrap()),
                _ => group.unlink(name(n)).unwrap(),
            }
        }
        let running = most_above(before);
        group.commit().unwrap();
        let committed = most_above(before);
        store.checkpoint().unwrap();
        let home = most_above(before);
        let after = NOW.load(Ordering::Relaxed).saturating_sub(before);
        let each = [running, committed, home, after].map(|bytes| bytes / names);
        println!("{names} {what}: bytes a name, running, at commit, at the checkpoint, after it: {each:?}");
        running.max(committed).max(home)
    });
    store.close().unwrap();
    most
}

/// What does not depend on the number of names is not counted: the difference of two numbers is. (Both leave as much of
/// a table free that doubles.)
#[test]
fn a_name_in_a_group_takes_few_bytes() {
    const MILLION: usize = 1_000_000;
    let names = std::env::var("WHOLLY_NAMES").ok().map_or(20_000, |names| names.parse().unwrap());
    // Of a few names tables and buffers take more of their own than names do.
    let bounds = if names < MILLION { [430, 340] } else { [400; 2] };
    if names == MILLION {
        let most = Some(512 << 20);
        setrlimit(Resource::Data, Rlimit { current: most, maximum: most }).unwrap();
    }
    let [few, many] = [names / 4, names].map(of_one_group);
    for ((few, many), bound) in few.into_iter().zip(many).zip(bounds) {
        let each = (many - few) / (names - names / 4);
        assert!(each <= bound, "{each} bytes a name");
    }
}
