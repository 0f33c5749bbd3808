//! `ENOSPC` at each allocation of twenty workloads, each in a group: with so many blocks left that each allocation in
//! turn is the one that fails. The call says so and the group goes on; the commit never fails, and an abort gives back
//! all that the group took.

use std::sync::atomic::{AtomicI64, Ordering};

use wholly_posix::Tree;
use wholly_vfs::{Context, Errno, Fallocate, Groups, Ino, OFlags, Rename, Result, SetXattr, Timestamp};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

use super::place::{Place, is_long};

/// Bytes of a volume. Engines that keep whole blocks reserve more for a group than those that log lines.
fn bytes(engine: EngineKind) -> u64 {
    if matches!(engine, EngineKind::Shadow | EngineKind::PageCacheWal | EngineKind::OpLog | EngineKind::MultiQueue) {
        8 << 20
    } else {
        1 << 20
    }
}

type Workload = (&'static str, fn(&Tree<'_>) -> Result<()>);

fn write(tree: &Tree<'_>, path: &str, at: u64, len: usize) -> Result<()> {
    tree.open(path, OFlags::RDWR)?.write(at, &vec![9; len]).and_then(|done| match done {
        done if done == len => Ok(()),
        _ => Err(Errno::NOSPC),
    })
}

fn allocate(tree: &Tree<'_>, path: &str, flags: Fallocate, at: u64, len: u64) -> Result<()> {
    tree.open(path, OFlags::RDWR)?.allocate(flags, at, len)
}

fn named(i: usize, len: usize) -> String {
    format!("dir/{i}-{}", "x".repeat(len))
}

const WORKLOADS: [Workload; 20] = [
    ("small files", |t| (0..20).try_for_each(|i| t.file(named(i, 10), 0o644, b"small").map(drop))),
    ("a large file", |t| t.file("new", 0o644, b"").and_then(|_| write(t, "new", 0, 150_000))),
    ("appends", |t| (0..6).try_for_each(|i| write(t, "old", 40_000 + i * 9000, 9000))),
    ("content over content", |t| (0..8).try_for_each(|i| write(t, "old", i * 4500, 4000))),
    ("holes filled from afar", |t| (0..5).try_for_each(|i| write(t, "sparse", 7 << (12 + 9 * (i % 3)) << i, 5000))),
    ("directories in directories", |t| {
        t.mkdir("new", 0o755)?;
        (0..8).try_for_each(|i| {
            t.mkdir(format!("new/{i}"), 0o755)?;
            t.mkdir(format!("new/{i}/below"), 0o755).map(drop)
        })
    }),
    ("long names", |t| (0..60).try_for_each(|i| t.file(named(i, 200), 0o644, b"").map(drop))),
    ("long targets", |t| (0..6).try_for_each(|i| t.symlink(named(i, 10), "y".repeat(3000)).map(drop))),
    ("names of one file", |t| (0..40).try_for_each(|i| t.link("old", named(i, 200)).map(drop))),
    ("names that become longer", |t| {
        (0..20).try_for_each(|i| t.rename(format!("dir/n{i}"), format!("dir/n{i}-{}", "z".repeat(220))))
    }),
    ("moves to another directory", |t| {
        (0..20).try_for_each(|i| t.rename(format!("dir/n{i}"), format!("other/{i}-{}", "z".repeat(100))))
    }),
    ("files that replace others", |t| {
        (0..10).try_for_each(|i| {
            t.file("fresh", 0o644, &[5; 6000])?;
            t.rename("fresh", format!("dir/n{i}"))
        })
    }),
    ("exchanges", |t| {
        t.mkdir("fresh", 0o755)?;
        (0..12).try_for_each(|i| t.file(format!("fresh/{i}-{}", "w".repeat(150)), 0o644, b"x").map(drop))?;
        t.rename_with("fresh", "dir", Rename::Exchange)
    }),
    ("attributes", |t| (0..10).try_for_each(|i| t.set_xattr(format!("dir/n{i}"), "user.x", &[1; 5000]))),
    ("attributes that change", |t| {
        t.set_xattr("old", "user.a", &[1; 9000])?;
        t.set_xattr("old", "user.b", &[2; 9000])?;
        t.remove_xattr("old", "user.a")?;
        t.set_xattr_with("old", "user.b", &[3; 20_000], SetXattr::Replace)
    }),
    ("reserved space", |t| {
        allocate(t, "sparse", Fallocate::Extend, 0, 100_000)?;
        allocate(t, "sparse", Fallocate::Keep, 1 << 30, 50_000)?;
        write(t, "sparse", 1 << 30, 20_000)
    }),
    ("ranges that move", |t| {
        allocate(t, "old", Fallocate::Insert, 4096, 4096 * 700)?;
        write(t, "old", 8192, 30_000)?;
        allocate(t, "old", Fallocate::Collapse, 0, 4096)
    }),
    ("zeros and holes", |t| {
        allocate(t, "old", Fallocate::ZeroExtend, 100, 90_000)?;
        allocate(t, "old", Fallocate::Punch, 5000, 9000)?;
        write(t, "old", 4000, 9000)
    }),
    ("a file that is written anew", |t| {
        t.truncate("old", 10)?;
        write(t, "old", 0, 60_000)?;
        t.truncate("old", 30_001)?;
        write(t, "old", 1 << 22, 9000)
    }),
    ("all of it", |t| {
        (0..20).try_for_each(|i| t.unlink(format!("dir/n{i}")))?;
        t.mkdir("dir/sub", 0o700)?;
        t.file("dir/sub/file", 0o600, &[4; 30_000])?;
        write(t, "old", 3, 20_000)?;
        t.set_xattr("dir/sub", "user.x", &[6; 4500])?;
        t.rename("dir/sub", "other/sub")?;
        t.symlink("other/link", "x".repeat(500)).map(drop)
    }),
];

/// A second later with each look: a time that has not changed is not stored, and takes no space.
fn ticking() -> Timestamp {
    static NOW: AtomicI64 = AtomicI64::new(0);
    Timestamp { sec: NOW.fetch_add(1, Ordering::Relaxed), nsec: 0 }
}

/// What is there before.
fn prepare(tree: &Tree<'_>) -> Result<()> {
    tree.file("old", 0o644, &[3; 40_000])?;
    tree.file("sparse", 0o644, &[4; 100])?.write(300 * 4096, &[4; 100])?;
    tree.mkdir("dir", 0o755)?;
    tree.mkdir("other", 0o755)?;
    (0..20).try_for_each(|i| tree.file(format!("dir/n{i}"), 0o644, b"content").map(drop))
}

/// Takes all but some blocks, by files that others have.
fn leave(volume: &Volume, tree: &Tree<'_>, blocks: u64) {
    let filler = tree.file("filler", 0o600, b"").expect("make a file");
    let available = || tree.vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs").available_blocks;
    let (mut at, mut most) = (0, u64::MAX);
    while available() > blocks {
        let count = (available() - blocks).div_ceil(2).min(most);
        match filler.allocate(Fallocate::Extend, at, count * 4096) {
            Ok(()) => at += count * 4096,
            // A call may need more than what it takes.
            Err(_) if count > 1 => most = count / 2,
            Err(_) => break,
        }
    }
    drop(filler);
    volume.sync().expect("sync");
}

/// Runs a workload in a group that ends in one way. Returns whether a call had no space.
fn run((what, calls): Workload, engine: EngineKind, left: u64, commits: bool) -> bool {
    let place = Place::of_zeros(bytes(engine), engine);
    let what = format!("{what} with {left} blocks left, {}, committed: {commits}", engine.name());
    let options = VolumeOptions { clock: ticking, cache_bytes: 1 << 20, ..VolumeOptions::default() };
    let volume = Volume::open_region(place.region.clone(), &options).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    prepare(&tree).expect("prepare");
    tree.file("eater", 0o600, b"").expect("make a file");
    leave(&volume, &tree, left);
    let group = vfs.begin().expect("begin");
    let inside = Tree { ctx: Context { group: Some(group), ..tree.ctx.clone() }, ..tree.clone() };
    let is_full = match calls(&inside) {
        Ok(()) => false,
        Err(Errno::NOSPC) => true,
        Err(errno) => panic!("{what}: {errno}"),
    };
    drop(inside);
    if commits {
        // Others take what is left, and cannot take what the commit needs.
        while tree.open("eater", OFlags::RDWR).and_then(|file| file.append(&[1; 4096])).is_ok() {}
        vfs.commit(group).unwrap_or_else(|errno| panic!("{what}: the commit failed: {errno}"));
    } else {
        vfs.abort(group).unwrap_or_else(|errno| panic!("{what}: {errno}"));
        assert_eq!(tree.content("old").expect("read"), [3; 40_000], "{what}");
        assert_eq!(tree.names("dir").expect("list").len(), 20, "{what}");
    }
    // What the group has left of the structure of directories is on the medium then.
    volume.sync().expect("sync");
    let (stat, checked) = (volume.stat(), place.expect_sound());
    let free = stat.blocks - checked.used_blocks + stat.idle_blocks;
    assert_eq!(stat.free_blocks, free, "{what}: what nothing uses is free");
    is_full
}

#[test]
fn no_commit_fails_for_want_of_space() {
    let every = if is_long() { 1 } else { 5 };
    let mut full = 0;
    for (number, workload) in WORKLOADS.into_iter().enumerate() {
        for engine in EngineKind::ALL.iter().copied().filter(|engine| engine.promises_groups()) {
            let mut most = 0;
            for left in (number as u64 % every..).step_by(every as usize) {
                let both = [true, false].map(|commits| run(workload, engine, left, commits));
                if both == [false, false] {
                    break;
                }
                (most, full) = (left, full + 1);
                assert!(left < bytes(engine) / 4096, "{} is never done with {}", workload.0, engine.name());
            }
            assert!(most > 0, "{} takes no space with {}", workload.0, engine.name());
        }
    }
    println!("{full} times there was no space");
}
