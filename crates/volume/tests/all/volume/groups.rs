//! Explicit groups: their calls as a library has them, conflicts, full volumes, and sizes.

use std::sync::atomic::{AtomicI64, Ordering};

use wholly_error::Error;
use wholly_posix::Tree;
use wholly_sim::CountingRegion;
use wholly_vfs::{Attr, Context, Errno, Fallocate, GroupId, Groups, Ino, OFlags, Rename, Result, SetTime, Timestamp};
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

use super::place::{Place, Random, is_long, populate};

/// Volumes with each engine that has groups.
const WITH_GROUPS: [fn(u64) -> Place; 6] =
    [Place::logged, Place::pending, Place::undone, Place::shadowed, Place::flash, Place::bitmapped];

/// The same tree in a group.
pub fn within<'v>(tree: &Tree<'v>, group: GroupId) -> Tree<'v> {
    Tree { ctx: Context { group: Some(group), ..tree.ctx.clone() }, ..tree.clone() }
}

#[test]
fn the_calls_of_the_library() {
    for make in WITH_GROUPS {
        let place = make(4 << 20);
        let volume = place.open();
        let old = volume.create_file("old", 0o600).expect("create");
        old.write_at(0, b"before").expect("write");

        let mut group = volume.begin();
        group.mkdir("d", 0o755).expect("mkdir");
        let file = group.create("d/file", 0o644).expect("create");
        group.write_at(&file, 0, b"new").expect("write");
        assert_eq!(group.append(&file, b"er").expect("append"), 3);
        group.write_at(&old, 0, b"after!").expect("write");
        group.rename("old", "d/moved", Rename::Replace).expect("rename");
        let mut seen = [0; 6];
        assert_eq!(group.read_at(&old, 0, &mut seen).expect("read"), 6);
        assert_eq!((&seen, group.len(&file).expect("len")), (b"after!", 5));
        assert_eq!(group.read_dir("d").expect("list").len(), 2);

        assert_eq!(old.read_at(0, &mut seen).expect("read"), 6);
        assert_eq!(&seen, b"before");
        assert!(matches!(volume.metadata("d"), Err(Error::NotFound(_))));
        assert!(matches!(old.write_at(0, b"x"), Err(Error::Busy(..))));
        let mut other = volume.begin();
        assert!(matches!(other.write_at(&old, 0, b"x"), Err(Error::Busy(..))));
        assert!(matches!(other.create("old", 0o600), Err(Error::Exists(_))));
        assert!(matches!(other.mkdir("d", 0o700), Err(Error::Busy(..))));
        other.mkdir("e", 0o700).expect("the directory is shared");
        other.abort();
        group.commit().expect("commit");

        assert_eq!(volume.metadata("d/moved").expect("stat").size, 6);
        assert!(matches!(volume.metadata("e"), Err(Error::NotFound(_))));
        let mut seen = [0; 5];
        file.read_at(0, &mut seen).expect("read");
        assert_eq!(&seen, b"newer");

        // A group that runs when the volume is closed leaves nothing.
        let mut late = volume.begin();
        late.create("late", 0o644).map(drop).expect("create");
        drop((file, old));
        volume.close().expect("close");
        assert!(matches!(late.create("later", 0o644), Err(Error::Poisoned(_) | Error::Refused(..))));
        assert!(late.commit().is_err());
        place.expect_sound();
        assert!(matches!(place.open().metadata("late"), Err(Error::NotFound(_))));
    }
}

/// How often a group waits depends neither on the number of its calls nor on the threads that make them.
#[test]
fn a_group_waits_as_often_whatever_its_calls() -> Result<()> {
    let makes: [fn(u64) -> Place; 4] = [Place::logged, Place::pending, Place::undone, Place::shadowed];
    for (make, fences) in makes.into_iter().zip([5, 2, 3, 2]) {
        let place = make(4 << 20);
        let counting = CountingRegion::new(place.region.clone());
        let options = VolumeOptions { clock: ticking, ..VolumeOptions::default() };
        let volume = Volume::open_region(counting.clone(), &options).expect("open");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("a", 0o644, &[1; 40_960])?;
        tree.file("b", 0o644, &[1; 40_960])?;
        for calls in [1, 2, 7, 40] {
            let group = vfs.begin()?;
            let within = within(&tree, group);
            let files = [within.open("a", OFlags::RDWR)?, within.open("b", OFlags::RDWR)?];
            counting.take();
            for call in 0..calls {
                let (file, at) = (&files[call % 2], 4000 * (call as u64 % 9));
                let write = || file.write_all(at, &vec![call as u8; if call % 3 == 0 { 4096 } else { 100 }]);
                match call % 5 {
                    4 => std::thread::scope(|scope| scope.spawn(write).join().expect("a thread"))?,
                    _ => write()?,
                }
            }
            vfs.commit(group)?;
            let waits: u64 = counting.take().values().map(|count| count.fences).sum();
            assert_eq!(waits, fences, "{calls} calls");
        }
        drop(tree);
        drop(vfs);
        volume.close().expect("close");
        place.expect_sound();
    }
    Ok(())
}

/// Where content was that a running group has written over, nothing of others comes, however full the volume gets: the
/// group may be aborted, and a crash undoes it.
#[test]
fn nobody_takes_the_blocks_that_a_group_has_written_over() {
    for (make, commits) in WITH_GROUPS.into_iter().flat_map(|make| [(make, false), (make, true)]) {
        let place = make(2 << 20);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("a", 0o644, &[1; 40_960]).expect("make a file");
        let group = vfs.begin().expect("begin");
        let written = within(&tree, group).open("a", OFlags::RDWR).and_then(|a| a.write_all(0, &[2; 40_960]));
        written.expect("write over all of it");
        let filler = tree.file("filler", 0o600, b"").expect("make a file");
        let mut blocks = 0;
        while filler.write(blocks * 4096, &[3; 4096]).is_ok() {
            blocks += 1;
        }
        assert!(blocks > 100, "{blocks}");
        assert_eq!(tree.content("a").expect("read"), [1; 40_960], "others see what was there");
        let ended = if commits { vfs.commit(group) } else { vfs.abort(group) };
        ended.expect("end the group");
        assert_eq!(tree.content("a").expect("read"), [1 + u8::from(commits); 40_960]);
        assert!(tree.content("filler").expect("read").iter().all(|byte| *byte == 3));
        place.expect_sound();
    }
}

#[test]
fn other_engines_say_that_they_have_no_groups() {
    let place = Place::pmem(4 << 20);
    let volume = place.open();
    let group = volume.begin();
    assert!(matches!(group.mkdir("d", 0o755), Err(Error::Unsupported(_))));
    assert!(group.commit().is_err());
}

type Call = fn(&Tree<'_>) -> Result<()>;

/// What one group has done, and what others cannot do then.
#[test]
fn conflicts() {
    for make in WITH_GROUPS {
        let cases: &[(&str, Call, &[Call])] = &[
            (
                "content",
                |t| t.open("file", OFlags::RDWR)?.write(0, b"x").map(drop),
                &[
                    |t| t.open("file", OFlags::RDWR)?.write(9, b"x").map(drop),
                    |t| t.open("file", OFlags::RDWR | OFlags::TRUNC).map(drop),
                    |t| t.truncate("file", 5).map(drop),
                    |t| t.open("file", OFlags::RDWR)?.allocate(Fallocate::Extend, 0, 9),
                    |t| t.chmod("file", 0o600).map(drop),
                    |t| t.set_xattr("file", "user.x", b"y"),
                    |t| t.remove_xattr("file", "user.small"),
                    |t| t.link("file", "another").map(drop),
                    |t| t.unlink("file"),
                    |t| t.rename("file", "another"),
                ],
            ),
            (
                "a new name",
                |t| t.create("dir/new", 0o644).map(drop),
                &[
                    |t| t.create("dir/new", 0o600).map(drop),
                    |t| t.mkdir("dir/new", 0o700).map(drop),
                    |t| t.link("file", "dir/new").map(drop),
                    |t| t.rename("file", "dir/new"),
                    |t| t.rename("dir", "elsewhere"),
                    |t| t.rename_with("dir", "file", Rename::Exchange),
                ],
            ),
            ("a removed name", |t| t.unlink("fifo"), &[|t| t.unlink("fifo"), |t| t.rename("file", "fifo")]),
            (
                "a removed directory",
                |t| t.rmdir("empty"),
                &[
                    |t| t.rmdir("empty"),
                    |t| t.create("empty/x", 0o600).map(drop),
                    |t| t.chmod("empty", 0o700).map(drop),
                ],
            ),
            (
                "a moved directory",
                |t| t.rename("moved", "dir/moved"),
                &[
                    |t| t.create("moved/x", 0o600).map(drop),
                    |t| t.rename("dir", "moved/dir"),
                    |t| t.rename("file", "moved/file"),
                    |t| t.rmdir("moved"),
                ],
            ),
            (
                "attributes of a directory",
                |t| t.chmod("dir", 0o700).map(drop),
                &[
                    |t| t.chmod("dir", 0o711).map(drop),
                    |t| t.set_xattr("dir", "user.x", b"y"),
                    |t| t.rename("dir", "elsewhere"),
                ],
            ),
        ];
        for (what, call, refused) in cases {
            let place = make(8 << 20);
            let volume = place.open();
            let vfs = VolumeVfs::new(&volume);
            populate(&vfs).expect("populate");
            let tree = Tree::new(&vfs, Ino::ROOT);
            tree.mkdir("empty", 0o755).expect("mkdir");
            let group = vfs.begin().expect("begin");
            call(&within(&tree, group)).unwrap_or_else(|errno| panic!("{what}: {errno}"));
            let other = vfs.begin().expect("begin");
            for (number, refused) in refused.iter().enumerate() {
                assert_eq!(refused(&tree), Err(Errno::BUSY), "{what}: call {number} outside of groups");
                assert_eq!(refused(&within(&tree, other)), Err(Errno::BUSY), "{what}: call {number} of another group");
            }
            // What it did not get is free still.
            tree.create("dir/free", 0o644).map(drop).unwrap_or_else(|errno| panic!("{what}: {errno}"));
            vfs.abort(group).expect("abort");
            vfs.abort(other).expect("abort");
            for (number, refused) in refused.iter().enumerate() {
                let now = refused(&tree);
                assert_ne!(now, Err(Errno::BUSY), "{what}: call {number} after the end of both");
            }
            assert_eq!(vfs.held().1, 0);
            place.expect_sound();
        }
    }
}

/// Each call has the space that it needs also as the first of its group.
#[test]
fn each_call_alone_in_a_group() {
    for make in WITH_GROUPS {
        let calls: &[(&str, Call)] = &[
            ("cut", |t| t.truncate("file", 10_001).map(drop)),
            // Without a map there are few pointers, and little is reserved for those.
            ("cut one block", |t| t.truncate("small", 10).map(drop)),
            ("punch one block", |t| {
                let flags = Fallocate::Punch;
                t.open("small", OFlags::RDWR)?.allocate(flags, 10, 20)
            }),
            ("cut all", |t| t.truncate("file", 0).map(drop)),
            ("lengthen", |t| t.truncate("file", 1 << 40).map(drop)),
            ("punch", |t| {
                let flags = Fallocate::Punch;
                t.open("file", OFlags::RDWR)?.allocate(flags, 100, 30_000)
            }),
            ("punch a part", |t| {
                let flags = Fallocate::Punch;
                t.open("sparse", OFlags::RDWR)?.allocate(flags, 100, 100)
            }),
            ("zero", |t| t.open("file", OFlags::RDWR)?.allocate(Fallocate::ZeroExtend, 100, 30_000)),
            ("insert", |t| t.open("sparse", OFlags::RDWR)?.allocate(Fallocate::Insert, 0, 8192)),
            ("collapse", |t| t.open("sparse", OFlags::RDWR)?.allocate(Fallocate::Collapse, 0, 4096)),
            ("reserve", |t| t.open("sparse", OFlags::RDWR)?.allocate(Fallocate::Extend, 0, 100_000)),
            ("write over", |t| t.open("file", OFlags::RDWR)?.write(5, &[1; 30_000]).map(drop)),
            ("write into a hole", |t| t.open("sparse", OFlags::RDWR)?.write(300 * 4096, &[1; 30_000]).map(drop)),
            ("append", |t| t.open("file", OFlags::RDWR)?.append(&[1; 30_000]).map(drop)),
            ("create", |t| t.create("new", 0o644).map(drop)),
            ("mkdir", |t| t.mkdir("dir/new", 0o755).map(drop)),
            ("symlink", |t| t.symlink("new", "x".repeat(300)).map(drop)),
            ("link", |t| t.link("file", "new").map(drop)),
            ("unlink", |t| t.unlink("file")),
            ("unlink the last", |t| t.unlink("sparse")),
            ("rmdir", |t| t.rmdir("empty")),
            ("rename", |t| t.rename("dir", "moved/dir")),
            ("replace", |t| t.rename("file", "sparse")),
            ("exchange", |t| t.rename_with("file", "dir", Rename::Exchange)),
            ("chmod", |t| t.chmod("dir", 0o700).map(drop)),
            ("chown", |t| t.chown("file", Some(1), Some(2)).map(drop)),
            ("set", |t| t.set_xattr("dir", "user.x", &[3; 3000])),
            ("remove", |t| t.remove_xattr("dir", "user.large")),
        ];
        for (what, call) in calls {
            let place = make(8 << 20);
            let volume = place.open();
            let vfs = VolumeVfs::new(&volume);
            populate(&vfs).expect("populate");
            let tree = Tree::new(&vfs, Ino::ROOT);
            tree.mkdir("empty", 0o755).expect("mkdir");
            tree.file("small", 0o644, &[1; 100]).expect("make a file");
            let group = vfs.begin().expect("begin");
            call(&within(&tree, group)).unwrap_or_else(|errno| panic!("{what}: {errno}"));
            vfs.commit(group).unwrap_or_else(|errno| panic!("{what}: {errno}"));
            place.expect_sound();
            drop(vfs);
            volume.close().expect("close");
            assert_eq!(place.expect_sound().orphans, 0, "{what}");
        }
    }
}

/// A call that fails, or has nothing to do, has claimed nothing.
#[test]
fn what_changes_nothing_claims_nothing() {
    for make in WITH_GROUPS {
        let place = make(8 << 20);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        populate(&vfs).expect("populate");
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.chmod("dir", 0o777).expect("chmod");
        let held = vfs.held();
        let group = vfs.begin().expect("begin");
        let (inside, user) = (within(&tree, group), within(&tree.user(1000), group));
        assert_eq!(user.chmod("file", 0o666), Err(Errno::PERM));
        assert_eq!(user.unlink("file"), Err(Errno::ACCESS));
        assert_eq!(user.set_xattr("file", "user.x", b"y"), Err(Errno::ACCESS));
        assert_eq!(inside.mkdir("dir", 0o755), Err(Errno::EXIST));
        assert_eq!(inside.rmdir("dir"), Err(Errno::NOTEMPTY));
        assert_eq!(inside.rename("dir", "dir/sub"), Err(Errno::INVAL));
        assert_eq!(inside.rename("file", "moved"), Err(Errno::ISDIR));
        assert_eq!(inside.link("dir", "another"), Err(Errno::PERM));
        assert_eq!(inside.open("file", OFlags::RDWR).expect("open").write(0, b""), Ok(0));
        let long = vec![0; 70_000];
        assert_eq!(inside.set_xattr("dir", "user.long", &long), Err(Errno::TOOBIG));
        assert_eq!(vfs.held(), held, "it has no inode");
        tree.chmod("file", 0o600).map(drop).expect("chmod");
        tree.chmod("dir", 0o700).map(drop).expect("chmod");
        tree.rename("file", "another").expect("rename");
        tree.rename("dir", "elsewhere").expect("rename");
        // But a file that was added.
        let file = tree.open("another", OFlags::RDWR).expect("open");
        vfs.add(group, &file.handle).expect("add");
        assert_eq!(tree.unlink("another"), Err(Errno::BUSY));
        vfs.abort(group).expect("abort");
        tree.unlink("another").expect("unlink");
        place.expect_sound();
    }
}

/// Leaves so many blocks free, by one file.
fn leave(tree: &Tree<'_>, blocks: u64) {
    let file = tree.file("filler", 0o600, b"").expect("make a file");
    let free = |tree: &Tree<'_>| tree.vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs").available_blocks;
    let mut at = 0;
    let mut most = u64::MAX;
    while free(tree) > blocks {
        let count = (free(tree) - blocks).div_ceil(2).min(most);
        match file.allocate(Fallocate::Extend, at, count * 4096) {
            Ok(()) => at += count * 4096,
            Err(_) if count == 1 => break,
            // A call may need more than what it takes.
            Err(_) => most = count / 2,
        }
    }
}

/// Calls of one group that need space, of each kind. Returns how many were refused for want of it.
fn calls(t: &Tree<'_>) -> usize {
    let mut full = 0;
    let mut tried = |result: Result<()>| match result {
        Ok(()) => {}
        Err(Errno::NOSPC) => full += 1,
        Err(errno) => panic!("failed with {errno}"),
    };
    tried(t.open("old", OFlags::RDWR).and_then(|file| file.write(10, &[8; 9000])).map(drop));
    tried(t.mkdir("d", 0o755).map(drop));
    for i in 0..20 {
        tried(t.file(format!("f{i}-{}", "x".repeat(150)), 0o644, b"content").map(drop));
    }
    tried(t.symlink("long", "y".repeat(3000)).map(drop));
    tried(t.set_xattr("old", "user.x", &[1; 9000]));
    tried(t.link("old", "a second name").map(drop));
    tried(t.rename("old", format!("renamed-{}", "z".repeat(200))));
    for name in ["filler", "a second name"] {
        let Ok(file) = t.open(name, OFlags::RDWR) else { continue };
        tried(file.write(1 << 33, &[1; 20_000]).map(drop));
        tried(file.append(&[2; 100_000]).map(drop));
        tried(file.write(0, &[3; 9000]).map(drop));
        tried(file.allocate(Fallocate::Insert, 0, 4096));
        tried(file.allocate(Fallocate::ZeroExtend, 100, 50_000));
        tried(file.allocate(Fallocate::Punch, 100, 10_000));
    }
    full
}

/// Whatever number of blocks is left, each allocation of a group's calls in turn is the one that fails: the commit
/// never does, and an abort gives all back.
#[test]
fn no_space_is_told_at_the_call() {
    for make in WITH_GROUPS {
        no_space_is_told_with(make);
    }
}

fn no_space_is_told_with(make: fn(u64) -> Place) {
    let mut full_at_all = 0;
    let lefts = if is_long() { 0..200 } else { 0..60 };
    for (left, commits) in lefts.step_by(if is_long() { 1 } else { 3 }).flat_map(|left| [(left, false), (left, true)]) {
        let place = make(2 << 20);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("old", 0o644, &[3; 10_000]).expect("make a file");
        tree.file("eater", 0o600, b"").expect("make a file");
        leave(&tree, left);
        let before = volume.stat().free_inodes;
        let group = vfs.begin().expect("begin");
        full_at_all += calls(&within(&tree, group));
        if commits {
            // Others take what is left.
            while tree.open("eater", OFlags::RDWR).and_then(|file| file.append(&[1; 4096])).is_ok() {}
            vfs.commit(group).unwrap_or_else(|errno| panic!("{left} blocks: the commit failed: {errno}"));
        } else {
            vfs.abort(group).expect("abort");
            // Leaves and inodes that were made by structure changes stay. What nothing uses is free.
            let (after, used) = (volume.stat(), place.check().used_blocks);
            assert_eq!(after.free_blocks, after.blocks - used, "{left} blocks");
            assert!(after.free_inodes >= before, "{left} blocks: {before} {after:?}");
            assert_eq!(tree.content("old").expect("read"), [3; 10_000]);
        }
        place.expect_sound();
        wholly_posix::differ::clear(&vfs).expect("remove everything");
        assert_eq!(vfs.held(), (0, 0));
        place.expect_sound();
    }
    assert!(full_at_all > 40, "only {full_at_all} calls failed");
}

/// Seconds that pass with each look at the clock.
fn ticking() -> Timestamp {
    static NOW: AtomicI64 = AtomicI64::new(1_000_000);
    Timestamp { sec: NOW.fetch_add(1, Ordering::Relaxed), nsec: 0 }
}

/// Each time of a directory is that of the latest change, by the group or by others, whoever commits first.
#[test]
fn times_of_a_directory_are_those_of_the_latest_change() {
    let at = |sec| SetTime::At(Timestamp { sec, nsec: 0 });
    for make in WITH_GROUPS {
        let place = make(4 << 20);
        let options = VolumeOptions { clock: ticking, ..VolumeOptions::default() };
        let volume = Volume::open_region(place.region.clone(), &options).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let begin = || vfs.begin().expect("begin");
        let commit = |group| vfs.commit(group).expect("commit");
        let make = |tree: &Tree<'_>, path: &str| tree.create(path, 0o644).map(drop).expect("create");
        let set = |tree: &Tree<'_>, path: &str| tree.utimes(path, at(5), at(6)).map(drop).expect("set its times");
        let times = |path: &str| {
            let Attr { atime, mtime, ctime, .. } = tree.stat(path).expect("stat");
            [atime, mtime, ctime].map(|time| time.sec)
        };
        for dir in ["set", "made", "seen", "to come", "two", "mixed"] {
            tree.mkdir(dir, 0o755).expect("mkdir");
        }
        // Set by the group, then changed by others; and the other way round.
        let group = begin();
        set(&within(&tree, group), "set");
        make(&tree, "made/name");
        set(&within(&tree, group), "made");
        let now = ticking().sec;
        make(&tree, "set/name");
        commit(group);
        let [[atime, mtime, ctime], made] = ["set", "made"].map(times);
        assert!(atime == 5 && mtime > now && ctime > now, "{atime} {mtime} {ctime}");
        assert_eq!(made[..2], [5, 6]);
        // The group changes the mode, others read.
        let group = begin();
        within(&tree, group).chmod("seen", 0o700).expect("chmod");
        let now = ticking().sec;
        tree.names("seen").expect("list");
        commit(group);
        assert!(times("seen")[0] > now);
        // What it had was later than now.
        tree.utimes("to come", at(5), at(1 << 40)).expect("set its times");
        let group = begin();
        make(&within(&tree, group), "to come/name");
        commit(group);
        assert!(times("to come")[1] < 1 << 40);
        // Two groups, and the first one to change it commits last.
        let (first, second) = (begin(), begin());
        make(&within(&tree, first), "two/first");
        make(&within(&tree, second), "mixed/name");
        let now = ticking().sec;
        make(&within(&tree, second), "two/second");
        set(&within(&tree, first), "mixed");
        commit(second);
        commit(first);
        assert!(times("two")[1] > now);
        assert_eq!(times("mixed")[..2], [5, 6]);
        drop(vfs);
        volume.close().expect("close");
        place.expect_sound();
    }
}

/// A group that writes four times as much as there is memory for caches, over content and into new blocks.
#[test]
fn a_group_larger_than_its_memory() {
    for make in WITH_GROUPS {
        let place = make(96 << 20);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let (many, piece) = (24 << 20, 100_000);
        let old = tree.file("old", 0o644, b"").expect("make a file");
        for at in (0..many).step_by(1 << 20) {
            old.write_all(at, &[1; 1 << 20]).expect("write");
        }
        let group = vfs.begin().expect("begin");
        let inside = within(&tree, group);
        let (old, new) =
            (inside.open("old", OFlags::RDWR).expect("open"), inside.create("new", 0o644).expect("create"));
        let fill = |at: u64| vec![(at / piece) as u8 | 1; piece as usize];
        for at in (0..many).step_by(piece as usize) {
            old.write_all(at, &fill(at)).expect("write over");
            new.write_all(at, &fill(at)).expect("write");
        }
        let read = |tree: &Tree<'_>, name: &str, at: u64| {
            tree.open(name, OFlags::RDONLY).and_then(|file| file.read(at, piece as usize)).expect("read")
        };
        for at in (0..many).step_by(piece as usize).filter(|at| at + piece <= many) {
            assert!(read(&inside, "old", at) == fill(at) && read(&inside, "new", at) == fill(at));
            assert!(read(&tree, "old", at).iter().all(|byte| *byte == 1), "others see nothing of it");
        }
        drop((old, new));
        vfs.commit(group).expect("commit");
        for at in (0..many).step_by(piece as usize).filter(|at| at + piece <= many) {
            assert!(read(&tree, "old", at) == fill(at) && read(&tree, "new", at) == fill(at));
        }
        place.expect_sound();
    }
}

/// Threads with a group each, in one directory, and calls outside of groups: what is committed is there, and nothing
/// else.
#[test]
fn threads() {
    for make in WITH_GROUPS {
        let place = make(16 << 20);
        let volume = place.open();
        volume.mkdir("d", 0o755).expect("mkdir");
        let rounds = if is_long() { 400 } else { 60 };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let volume = &volume;
                scope.spawn(move || {
                    for round in 0..rounds {
                        let name = format!("d/{thread}-{round}-{}", "n".repeat(round % 200));
                        if thread == 3 {
                            volume.create_file(&name, 0o644).map(drop).expect("create");
                            continue;
                        }
                        let mut group = volume.begin();
                        let file = group.create(&name, 0o644).expect("create");
                        group.write_at(&file, 0, name.as_bytes()).expect("write");
                        group.mkdir(format!("{name}."), 0o755).expect("mkdir");
                        if round >= 2 {
                            let before = round - 2;
                            let old = format!("d/{thread}-{before}-{}", "n".repeat(before % 200));
                            if before % 3 != 2 {
                                group.unlink(&old).expect("unlink");
                            }
                        }
                        if round % 3 == 2 { group.abort() } else { group.commit().expect("commit") }
                    }
                });
            }
        });
        let names: Vec<String> = volume
            .read_dir("d")
            .expect("list")
            .into_iter()
            .map(|name| String::from_utf8(name.name).expect("text"))
            .collect();
        for thread in 0..4 {
            for round in 0..rounds {
                let name = format!("{thread}-{round}-{}", "n".repeat(round % 200));
                let is_committed = thread == 3 || round % 3 != 2;
                // Removed by the group after the next one, if that was committed.
                let is_removed = thread != 3 && round + 2 < rounds && (round + 2) % 3 != 2;
                assert_eq!(names.contains(&name), is_committed && !is_removed, "{name}");
                assert_eq!(names.contains(&format!("{name}.")), thread != 3 && is_committed, "{name}.");
            }
        }
        volume.close().expect("close");
        place.expect_sound();
    }
}

/// A write of most of a block goes to another block; what it leaves of the old one comes along.
#[test]
fn what_a_write_leaves_of_a_block_is_there() {
    const LEN: usize = 12_000;
    for engine in [EngineKind::Undo, EngineKind::ShortcutJfs] {
        let place = Place::of_zeros(4 << 20, engine);
        let (mut random, mut model) = (Random(7), vec![1u8; LEN]);
        for round in 0..20u8 {
            let volume = place.open();
            if round == 0 {
                volume.create_file("file", 0o644).and_then(|file| file.write_at(0, &model)).expect("make a file");
            }
            let file = volume.open_file("file").expect("open the file");
            for turn in 0..10u8 {
                let len = 2049 + random.below(2047);
                let at = random.below(LEN - len);
                let bytes = vec![round * 10 + turn + 2; len];
                file.write_at(at as u64, &bytes).expect("write");
                model[at..at + len].copy_from_slice(&bytes);
                assert!(volume.read_file("file").expect("read") == model, "{engine:?}: {len} bytes at {at}");
            }
            drop(file);
            volume.close().expect("close it");
        }
        place.expect_sound();
    }
}
