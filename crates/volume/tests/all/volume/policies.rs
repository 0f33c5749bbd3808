//! Policies for calls outside of groups: what bounds an epoch, calls that fail in one, and threads.

use std::mem::forget;
use std::sync::Barrier;
use std::time::Duration;

use wholly_media::Site;
use wholly_posix::Tree;
use wholly_sim::CountingRegion;
use wholly_vfs::Policy;
use wholly_vfs::{Errno, Fallocate, Groups, Ino, Mode, OFlags, Result, Vfs};
use wholly_volume::{EngineKind, Object, PolicyVfs, Volume, VolumeOptions, VolumeVfs};

use super::place::{Place, is_long};

/// The timer never ends a group here.
const SHARED: Policy = Policy::Shared { interval: Duration::MAX };

fn engines() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.iter().copied().filter(|engine| engine.promises_groups())
}

/// Writes all of it: where space ends, a call writes as much as fits.
fn write(tree: &Tree<'_>, path: &str, at: u64, data: &[u8]) -> Result<()> {
    // A close may be a sync.
    let file = std::mem::ManuallyDrop::new(tree.open(path, OFlags::RDWR)?);
    let mut done = 0;
    while done < data.len() {
        done += file.write(at + done as u64, &data[done..])?;
    }
    Ok(())
}

/// What is there after the death of the process.
fn after_death(place: &Place, volume: Volume, vfs: PolicyVfs) -> Volume {
    forget((vfs, volume));
    place.open()
}

fn content(volume: &Volume, path: &str) -> Vec<u8> {
    volume.read_file(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Under `shared` the epoch is committed once it has very many pieces. Under `per-sync` nothing but a sync commits.
#[test]
fn a_shared_epoch_takes_bounded_memory() {
    for (engine, policy) in engines().flat_map(|engine| [(engine, SHARED), (engine, Policy::PerSync)]) {
        let place = Place::of_zeros(32 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, policy).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let file = tree.file("a", 0o644, &[1; 64 << 10]).expect("make a file");
        file.fsync().expect("sync");
        // One more than there are pieces for.
        for i in 0..(1 << 16) + 1 {
            file.write_all(i % 8192 * 8, &(i + 2).to_le_bytes()).expect("write");
        }
        file.write_all(0, b"the last").expect("write");
        forget((file, tree));
        let volume = after_death(&place, volume, vfs);
        let found = content(&volume, "a");
        let number = |at: usize| u64::from_le_bytes(found[at..at + 8].try_into().expect("8 bytes"));
        match policy {
            Policy::PerSync => assert!(found == [1; 64 << 10], "{}: it lasts without a sync", engine.name()),
            _ => assert_eq!([number(0), number(8)], [(1 << 16) + 2, (1 << 16) - 8192 + 3], "{}", engine.name()),
        }
    }
}

/// A length is content: by a descriptor, by a path, or by an open that cuts.
#[test]
fn a_length_lasts_once_it_is_synced() {
    for engine in engines() {
        let place = Place::of_zeros(8 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let names = ["handle", "path", "opened", "created", "synced"];
        for name in names {
            tree.file(name, 0o644, &[1; 9000]).expect("make a file").fsync().expect("sync");
        }
        let handle = tree.open("handle", OFlags::RDWR).expect("open");
        handle.truncate(0).expect("cut");
        tree.truncate("path", 0).expect("cut");
        let opened = tree.open("opened", OFlags::RDWR | OFlags::TRUNC).expect("open");
        let flags = OFlags::RDWR | OFlags::TRUNC;
        let created = vfs.create(&tree.ctx, Ino::ROOT, b"created", flags, Mode::from_raw_mode(0o600)).expect("open");
        assert_eq!(created.0.size, 0);
        let synced = tree.open("synced", OFlags::RDWR | OFlags::TRUNC).expect("open");
        synced.fsync().expect("sync");
        for name in names {
            assert_eq!(tree.stat(name).expect("stat").size, 0, "{name}: it is seen at once");
        }
        forget((handle, opened, synced, tree));
        let volume = after_death(&place, volume, vfs);
        let sizes = names.map(|name| content(&volume, name).len());
        assert_eq!(sizes, [9000, 9000, 9000, 9000, 0], "{}", engine.name());
    }
}

/// Files that are dirty at the same time: if they are very many, all are committed.
#[test]
fn few_files_are_dirty_at_once() {
    let place = Place::of_zeros(64 << 20, EngineKind::FineGrainedWal);
    let volume = place.open();
    let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
    let tree = Tree::new(&vfs, Ino::ROOT);
    let files: Vec<_> = (0..1026).map(|i| tree.create(format!("f{i}"), 0o644).expect("make a file")).collect();
    files.iter().for_each(|file| file.write_all(0, b"new").expect("write"));
    forget((files, tree));
    let volume = after_death(&place, volume, vfs);
    let sizes = (0..1026).map(|i| volume.metadata(format!("f{i}")).expect("it has a name").size);
    assert_eq!(sizes.collect::<Vec<_>>(), [vec![3; 1024], vec![0; 2]].concat());
}

/// What epochs have written over is free once they are committed: a call that has no space gets it then.
#[test]
fn a_call_without_space_has_epochs_committed() {
    for (engine, policy) in engines().flat_map(|engine| [(engine, SHARED), (engine, Policy::PerSync)]) {
        let what = format!("{}, {policy:?}", engine.name());
        let place = Place::of_zeros(2 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, policy).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        for name in ["a", "b", "c"] {
            tree.file(name, 0o644, &[1; 80 << 10]).expect("make a file");
        }
        let filler = tree.file("filler", 0o644, b"").expect("make a file");
        let available = || tree.vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs").available_blocks;
        let most = available() - 60;
        filler.allocate(Fallocate::Extend, 0, most * 4096).expect("take space");
        drop(filler);
        sync(&tree);
        // Each takes more than a third of what is left.
        for (byte, name) in (2..).zip(["a", "b", "c", "a", "b", "c"]) {
            write(&tree, name, 0, &[byte; 80 << 10]).unwrap_or_else(|errno| panic!("{what}: {name}: {errno}"));
        }
        // Until there is none: that is told, and no commit fails for it.
        drop(tree.create("d", 0o644).expect("make a file"));
        let full = (0..200).map(|i| write(&tree, "d", i << 14, &[8; 16 << 10])).find(Result::is_err);
        assert_eq!(full, Some(Err(Errno::NOSPC)), "{what}");
        sync(&tree);
        drop(tree);
        drop(vfs);
        for (byte, name) in (5..).zip(["a", "b", "c"]) {
            assert!(content(&volume, name) == [byte; 80 << 10], "{what}: {name}");
        }
        volume.close().expect("close it");
        place.expect_sound();
    }
}

fn sync(tree: &Tree<'_>) {
    tree.vfs.sync(&tree.ctx).expect("sync");
}

/// A write fails because of damage, after it has taken a set-user-ID bit away: the file is dirty then, so that a call
/// that names it is not refused.
#[test]
fn a_call_that_fails_leaves_its_file_to_others() {
    for policy in [SHARED, Policy::PerSync] {
        let place = Place::of_zeros(8 << 20, EngineKind::FineGrainedWal);
        let volume = place.open();
        volume.create_file("other", 0o644).expect("make a file");
        let file = volume.create_file("file", 0o6777).expect("make a file");
        file.write_at(0, &[1; 3 << 20]).expect("write");
        drop(file);
        volume.close().expect("close it");
        let dumped = Volume::dump_region(&*place.region, Some(Object::Path(b"file"))).expect("dump it");
        let map = dumped.inode.expect("there is one").content;
        let node = map.nodes.first().expect("a node").block;
        place.region.write(Site("test"), node * 4096 + 3, &[0xff; 2000]).expect("damage it");

        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, policy).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        write(&tree, "other", 0, b"new").expect("write");
        let user = tree.user(7);
        assert_eq!(write(&user, "file", 5 << 20, b"more"), Err(Errno::UCLEAN));
        assert_eq!(tree.stat("file").expect("stat").mode.as_raw_mode(), 0o777, "{policy:?}");
        tree.chmod("file", 0o640).unwrap_or_else(|errno| panic!("{policy:?}: {errno}"));
        assert_eq!(tree.stat("file").expect("stat").mode.as_raw_mode(), 0o640);
    }
}

/// Threads write, append, sync, rename and begin groups, on files of their own and one of all. Nothing waits forever;
/// what each has written last is there, at once and afterwards.
#[test]
fn threads() {
    const THREADS: u64 = 4;
    let rounds = if is_long() { 4000 } else { 300 };
    for (engine, policy) in engines()
        .flat_map(|engine| [(engine, Policy::PerSync), (engine, Policy::Shared { interval: Duration::from_millis(1) })])
    {
        let place = Place::of_zeros(32 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, policy).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("all", 0o644, &[0; 64]).expect("make a file");
        let start = Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (vfs, start) = (&vfs, &start);
                scope.spawn(move || run(vfs, thread, rounds, start));
            }
        });
        sync(&tree);
        assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
        drop(tree);
        drop(vfs);
        let all = content(&volume, "all");
        for thread in 0..THREADS {
            let last = (rounds - 1).to_le_bytes();
            assert_eq!(all[thread as usize * 8..][..8], last, "{}, {policy:?}", engine.name());
            let own = content(&volume, &format!("{thread}-{}", (rounds - 1) / 5));
            assert_eq!(own.len() as u64, rounds * 8, "{}, {policy:?}", engine.name());
            assert!(own.chunks(8).zip(0u64..).all(|(word, n)| word == n.to_le_bytes()));
        }
        volume.close().expect("close it");
        place.expect_sound();
    }
}

/// What one thread does.
fn run(vfs: &PolicyVfs, thread: u64, rounds: u64, start: &Barrier) {
    let tree = &Tree::new(vfs, Ino::ROOT);
    let own = |round: u64| format!("{thread}-{}", round / 5);
    let file = tree.create(own(0), 0o644).expect("make a file");
    start.wait();
    for round in 0..rounds {
        let word = round.to_le_bytes();
        if round % 5 == 0 && round > 0 {
            tree.rename(own(round - 1), own(round)).expect("rename");
        }
        file.append(&word).expect("append");
        assert_eq!(file.stat().expect("stat").size, (round + 1) * 8);
        write_busy(tree, thread * 8, &word);
        match round % 7 {
            0 => file.fsync().expect("sync"),
            1 => sync(tree),
            // A group takes the file that all write to: they wait for it.
            2 => {
                let group = vfs.begin().expect("begin");
                let all = tree.open("all", OFlags::RDWR).expect("open");
                let added = vfs.add(group, all.handle);
                assert!(matches!(added, Ok(()) | Err(wholly_error::Error::Busy(..))), "{added:?}");
                let end = if round % 2 == 0 { vfs.commit(group) } else { vfs.abort(group) };
                end.expect("it ends");
            }
            3 => assert_eq!(tree.content("all").expect("read")[thread as usize * 8..][..8], word),
            _ => {}
        }
    }
}

/// Writes to the file that all write to, as soon as no group has it.
fn write_busy(tree: &Tree<'_>, at: u64, data: &[u8]) {
    loop {
        match tree.open("all", OFlags::RDWR).and_then(|file| file.write_all(at, data)) {
            Err(Errno::BUSY) => std::thread::yield_now(),
            done => return done.expect("write"),
        }
    }
}

/// Calls on the volume itself see what is committed, and do not change what an epoch has.
#[test]
fn calls_beside_a_policy_see_what_is_committed() {
    let place = Place::of_zeros(2 << 20, EngineKind::HybridLog);
    let volume = place.open();
    let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("a", 0o644, &[1; 5000]).expect("make a file");
    assert_eq!(volume.metadata("a").expect("its name lasts").size, 0);
    let beside = VolumeVfs::new(&volume);
    assert_eq!(write(&Tree::new(&beside, Ino::ROOT), "a", 0, b"x"), Err(Errno::BUSY));
    file.fsync().expect("sync");
    assert!(content(&volume, "a") == [1; 5000]);
}

/// Nobody asks for it: what is written under the policy `shared` is committed once its time has passed.
#[test]
fn a_timer_commits_the_shared_epoch() {
    for engine in engines() {
        let place = Place::of_zeros(8 << 20, engine);
        let volume = place.open();
        let policy = Policy::Shared { interval: Duration::from_millis(1) };
        let vfs = PolicyVfs::new(&volume, policy).expect("it has groups");
        let file = Tree::new(&vfs, Ino::ROOT).file("a", 0o644, &[1; 5000]).expect("make a file");
        // Calls on the volume itself see what is committed.
        while content(&volume, "a") != [1; 5000] {
            std::thread::sleep(Duration::from_millis(2));
        }
        forget(file);
        let volume = after_death(&place, volume, vfs);
        assert!(content(&volume, "a") == [1; 5000], "{}", engine.name());
    }
}

/// Without a policy, a write of up to 1 MiB is one group, wherever it begins.
#[test]
fn a_write_is_one_group() {
    for (engine, site) in [EngineKind::FineGrainedWal, EngineKind::HybridLog, EngineKind::Undo]
        .into_iter()
        .zip(["wal.commit.fence", "hybrid.commit.fence", "undo.commit.fence"].map(Site))
    {
        let place = Place::of_zeros(16 << 20, engine);
        let region = CountingRegion::new(place.region.clone());
        let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it");
        let file = volume.create_file("a", 0o644).expect("make a file");
        for (at, len) in [(0, 1 << 20), ((1 << 20) - 100, 1 << 20), ((2 << 20) - 5000, 9000)] {
            region.take();
            file.write_at(at, &vec![7; len]).expect("write");
            let fences = region.take().get(&site).map(|count| count.fences);
            assert_eq!(fences, Some(1), "{}: {len} bytes at {at}", engine.name());
        }
    }
}
