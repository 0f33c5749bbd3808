//! How much memory a group with very many names takes, in bytes of the heap for each name, from its first call until
//! its names are written back.
//!
//! One test: the allocator that counts is the whole program's. `WHOLLY_NAMES` sets another number of names; a million
//! of them have to do with 512 MiB.

use std::path::Path;

use rustix::process::{Resource, Rlimit, setrlimit};
use wholly::{Options, Store, StoreVfs};
use wholly_host::HostOptions;
use wholly_vfs::{Context, Groups, Ino, Mode, OFlags, Vfs};

mod counted;
#[path = "all/common/dir.rs"]
#[allow(dead_code, reason = "this test needs no medium")]
mod dir;

use counted::{Phases, check_undo, for_each_name, keep_undo, most_above, now};
use dir::Dir;

fn name(n: usize) -> String {
    format!("file-{n:07}")
}

fn open(dir: &Dir, at_once: bool) -> Store {
    let options = Options { background: false, at_once, ..Options::default() };
    Store::open_with(Path::new(&**dir), options, HostOptions::default()).unwrap()
}

/// The most bytes that a group takes that makes so many names, and then one that removes them, in each phase.
fn of_one_group(names: usize) -> [Phases; 2] {
    let dir = Dir::new(&std::env::temp_dir(), &format!("memory-{names}"));
    Store::init(&*dir, &Options::default()).unwrap();
    let store = open(&dir, false);
    let most = ["creates", "removals"].map(|what| {
        let before = now();
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
        let after = now().saturating_sub(before);
        let each = [running, committed, home, after].map(|bytes| bytes / names);
        println!("{names} {what}: bytes a name, running, at commit, at the checkpoint, after it: {each:?}");
        [running, committed, home]
    });
    store.close().unwrap();
    most
}

/// The same of a group whose calls are those of a view that is served to the kernel, which goes on referring to what is
/// made, and looks up what `rm` finds in a listing. The group is written back as part of its commit, and its undo is
/// kept.
fn of_one_view(names: usize) -> [Phases; 2] {
    // In memory no bytes of the group are gathered, which would count as those of names.
    let dir = Dir::new(Path::new("/dev/shm"), &format!("memory-view-{names}"));
    Store::init(&*dir, &Options::default()).unwrap();
    ["creates", "removals"].map(|what| {
        let store = open(&dir, true);
        let before = now();
        most_above(before);
        let view = StoreVfs::new(&store);
        let group = view.begin().unwrap();
        let ctx = Context { is_permitted: true, group: Some(group), ..Context::superuser() };
        match what {
            "creates" => (0..names).for_each(|n| {
                let (flags, mode) = (OFlags::WRONLY, Mode::from_raw_mode(0o644));
                let (_, handle) = view.create(&ctx, Ino::ROOT, name(n).as_bytes(), flags, mode).unwrap();
                view.release(&ctx, handle).unwrap();
            }),
            _ => assert_eq!(remove_all(&view, &ctx), names),
        }
        let running = most_above(before);
        view.forget_all();
        keep_undo(&view, group);
        view.commit_or_park(group, "", None).unwrap();
        drop(view);
        let committed = most_above(before);
        check_undo(&store, names);
        store.checkpoint().unwrap();
        let later = most_above(before);
        let after = now().saturating_sub(before);
        let each = [running, committed, later, after].map(|bytes| bytes / names);
        println!(
            "{names} {what} in a view: bytes a name, running, at commit, at the next checkpoint, after it: {each:?}"
        );
        store.close().unwrap();
        [running, committed, later]
    })
}

/// Removes all files, as `rm` does that lists them. Returns how many.
fn remove_all(view: &StoreVfs, ctx: &Context) -> usize {
    let (mut count, mut offset) = (0, 0);
    let handle = view.opendir(ctx, Ino::ROOT).unwrap();
    loop {
        let mut some = Vec::new();
        view.readdir(ctx, &handle, offset, &mut |entry| {
            offset = entry.next;
            some.push(entry.name.to_vec());
            some.len() < 100
        })
        .unwrap();
        if some.is_empty() {
            break;
        }
        for name in some.iter().filter(|name| name.starts_with(b"file-")) {
            let found = view.lookup(ctx, Ino::ROOT, name).unwrap();
            view.unlink(ctx, Ino::ROOT, name).unwrap();
            view.forget(found.ino, 1);
            count += 1;
        }
    }
    view.releasedir(ctx, handle).unwrap();
    count
}

#[test]
fn a_name_in_a_group_takes_few_bytes() {
    const MILLION: usize = 1_000_000;
    let names = std::env::var("WHOLLY_NAMES").ok().map_or(20_000, |names| names.parse().unwrap());
    // Of a few names tables and buffers take more of their own than names do.
    let bounds = if names < MILLION { [430, 430, 400, 400] } else { [400; 4] };
    if names == MILLION {
        let most = Some(512 << 20);
        setrlimit(Resource::Data, Rlimit { current: most, maximum: most }).unwrap();
    }
    let each = for_each_name(names, |names| [of_one_group(names), of_one_view(names)].concat());
    let is_few = |(each, bound): (&usize, usize)| *each <= bound;
    assert!(each.iter().zip(bounds).all(is_few), "{each:?} bytes a name");
}
