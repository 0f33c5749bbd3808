//! Full volumes: calls fail with `ENOSPC` and change nothing, and what was made can be removed.

use wholly_posix::Tree;
use wholly_vfs::{Errno, Fallocate, Ino, OFlags, Result};
use wholly_volume::VolumeVfs;

use super::place::{Place, is_long};

/// Fails with `ENOSPC`, or succeeds.
fn may_be_full<T>(result: Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(Errno::NOSPC) => true,
        Err(errno) => panic!("failed with {errno}"),
    }
}

/// Leaves so many blocks free, by one file.
fn leave(tree: &Tree<'_>, blocks: u64) {
    let file = tree.file("filler", 0o600, b"").expect("make a file");
    let free = |tree: &Tree<'_>| tree.vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs").available_blocks;
    let mut at = 0;
    while free(tree) > blocks {
        let count = (free(tree) - blocks).div_ceil(2);
        let done = file.allocate(Fallocate::Extend, at, count * 4096);
        if done.is_err() && count == 1 {
            break;
        }
        at += if done.is_ok() { count * 4096 } else { 0 };
        if done.is_err() {
            // A call may need more blocks for a while than it takes.
            if file.write(at, &[1]).is_err() {
                break;
            }
            at += 4096;
        }
    }
}

/// Calls that need space, of each kind.
fn calls(t: &Tree<'_>) -> usize {
    let mut full = 0;
    let mut tried = |is_full: bool| full += usize::from(is_full);
    tried(may_be_full(t.mkdir("d", 0o755)));
    for i in 0..40 {
        tried(may_be_full(t.file(format!("f{i}-{}", "x".repeat(150)), 0o644, b"content").map(drop)));
    }
    tried(may_be_full(t.symlink("long", "y".repeat(3000))));
    tried(may_be_full(t.set_xattr("old", "user.x", &[1; 9000])));
    tried(may_be_full(t.link("old", "a second name")));
    tried(may_be_full(t.rename("old", format!("renamed-{}", "z".repeat(200)))));
    for name in ["old", "filler"] {
        let Ok(file) = t.open(name, OFlags::RDWR) else { continue };
        tried(may_be_full(file.write(1 << 33, &[1; 20_000])));
        tried(may_be_full(file.append(&[2; 100_000])));
        tried(may_be_full(file.allocate(Fallocate::Insert, 0, 4096)));
        tried(may_be_full(file.allocate(Fallocate::ZeroExtend, 100, 50_000)));
        tried(may_be_full(file.allocate(Fallocate::Punch, 100, 10_000)));
    }
    full
}

/// Whatever number of blocks is left, each allocation in turn is the one that fails.
#[test]
fn no_allocation_that_fails_leaves_a_trace() {
    let mut full_at_first = 0;
    let lefts = 0..if is_long() { 200 } else { 45 };
    for (left, (i, place)) in
        lefts.flat_map(|left| Place::each(2 << 20).into_iter().enumerate().map(move |p| (left, p)))
    {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let before = volume.stat();
        tree.file("old", 0o644, &[3; 10_000]).expect("make a file");
        leave(&tree, left);
        let full = calls(&tree);
        if left == 0 && i == 0 {
            full_at_first = full;
        }
        assert!(full > 0 || left > 40, "with {left} blocks left nothing failed");
        place.expect_sound();

        // It can be emptied, and all that it had is free again.
        wholly_posix::differ::clear(&vfs).expect("remove everything");
        assert_eq!(vfs.held(), (0, 0));
        let after = volume.stat();
        // A directory that had names keeps one leaf and its map. The inode file needs what it had at first.
        let root = tree.stat("/").expect("stat").blocks / 8;
        assert_eq!(after.free_blocks + root, before.free_blocks, "{before:?} {after:?}");
        place.expect_sound();
    }
    assert!(full_at_first > 40, "only {full_at_first} calls failed on a full volume");
}

/// A volume that is full of one kind of thing takes no more, and can be emptied.
#[test]
fn full_in_each_way() {
    type Fill = fn(&Tree<'_>, usize) -> Result<()>;
    let fills: [(&str, Fill); 5] = [
        ("small files", |t, i| t.file(format!("{i}"), 0o644, b"x").map(drop)),
        ("empty files", |t, i| t.file(format!("{i}-{}", "n".repeat(240)), 0o644, b"").map(drop)),
        ("directories", |t, i| {
            t.mkdir(format!("{i}"), 0o755).and_then(|_| t.mkdir(format!("{i}/sub"), 0o755)).map(drop)
        }),
        ("attributes", |t, i| {
            t.file(format!("{i}"), 0o644, b"").and_then(|_| t.set_xattr(format!("{i}"), "user.a", &[0; 5000]))
        }),
        ("holes", |t, i| {
            t.file(format!("{i}"), 0o644, b"").and_then(|file| file.write(i as u64 * 7_000_000_000, b"x")).map(drop)
        }),
    ];
    for ((what, fill), place) in
        fills.into_iter().flat_map(|fill| Place::each(4 << 20).into_iter().map(move |place| (fill, place)))
    {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("two", 0o644, b"").expect("make a file");
        tree.set_xattr("two", "user.large", &[1; 9000]).expect("set an attribute");
        tree.set_xattr("two", "user.small", &[1; 3000]).expect("set an attribute");
        let count = (0..100_000).find(|i| may_be_full(fill(&tree, *i))).expect("it gets full");
        assert!(count > 50, "{what}: {count}");
        assert!(may_be_full(tree.file("one more", 0o644, &[1; 50_000]).map(drop)), "{what}");
        // To the last block that is for everybody.
        while !may_be_full(tree.open("two", OFlags::RDWR).and_then(|file| file.append(&[1; 4096]))) {}
        place.expect_sound();
        // What is left of the attributes needs a new block.
        tree.remove_xattr("two", "user.large").unwrap_or_else(|errno| panic!("{what}: an attribute stays: {errno}"));
        let names = tree.names("/").expect("list");
        for name in names {
            tree.remove(&name.name).unwrap_or_else(|errno| panic!("{what}: {errno}"));
        }
        place.expect_sound();
        tree.file("again", 0o644, &[1; 500_000]).expect("there is space again");
        drop(vfs);
        volume.close().expect("close it");
        assert!(place.expect_sound().is_clean);
    }
}
