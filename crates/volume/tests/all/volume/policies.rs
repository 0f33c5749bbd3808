//! Policies for calls outside of groups: what bounds an epoch, calls that fail in one, and threads.

use std::cell::Cell;
use std::mem::forget;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::time::Duration;

use wholly_media::{Guarantees, Region, Site};
use wholly_posix::Tree;
use wholly_sim::{CountingRegion, Random};
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

/// The last close of a file commits its content, and no other one does: on a mount, a close of one program may be told
/// when another has opened the file already, and cut it.
#[test]
fn the_last_close_commits() {
    for engine in engines() {
        let place = Place::of_zeros(32 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        for name in ["cut", "closed"] {
            let first = tree.file(name, 0o644, b"before").expect("make a file");
            first.fsync().expect("sync");
            let last = tree.open(name, OFlags::RDWR | OFlags::TRUNC).expect("open");
            drop(first);
            last.write_all(0, b"after").expect("write");
            if name == "closed" { drop(last) } else { forget(last) }
        }
        forget(tree);
        let volume = after_death(&place, volume, vfs);
        assert_eq!(content(&volume, "cut"), b"before", "{}", engine.name());
        assert_eq!(content(&volume, "closed"), b"after", "{}", engine.name());
    }
}

/// Under `shared` an epoch is committed once it fills a quarter of the log, in lines that its commit logs, whatever the
/// size of its pieces.
#[test]
fn a_shared_epoch_fills_a_quarter_of_the_log() {
    const FILE: u64 = 8 << 20;
    const FILES: u64 = 700;
    type Next = fn(&mut Random, u64) -> (u64, u64, u64);
    // File, first byte, and length.
    let cases: [(&str, Next, &[EngineKind]); 5] = [
        ("8 B", |random, _| (0, random.below(FILE / 8) * 8, 8), &[EngineKind::Undo]),
        ("64 B", |random, _| (0, random.below(FILE / 64) * 64, 64), &[EngineKind::Undo]),
        ("500 B", |random, _| (0, random.below(FILE - 500), 500), &[EngineKind::Undo]),
        ("1500 B", |random, _| (0, random.below(FILE - 1500), 1500), &[EngineKind::Undo]),
        ("1 B of each file", |_, n| (n % FILES, 0, 1), &[EngineKind::Undo, EngineKind::FineGrainedWal]),
    ];
    for (engine, sites) in [
        (EngineKind::Undo, ["undo.entry", "undo.head", "undo.payload"]),
        (EngineKind::FineGrainedWal, ["wal.undo", "", ""]),
    ] {
        let place = Place::of_zeros(64 << 20, engine);
        let dumped = Volume::dump_region(&*place.region, None).expect("dump it");
        let log = dumped.superblocks[0].decoded.as_ref().expect("it is sound").log.expect("it has one").run();
        let quarter = log.count * 64 / 4;
        let region = CountingRegion::new(place.region.clone());
        let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it");
        let vfs = PolicyVfs::new(&volume, SHARED).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let made = |n| tree.file(format!("f{n}"), 0o644, &vec![1; if n == 0 { FILE as usize } else { 1 }]);
        let files: Vec<_> = (0..FILES).map(|n| made(n).expect("make a file")).collect();
        let mut random = Random(7);
        for (name, next, _) in cases.iter().filter(|(.., engines)| engines.contains(&engine)) {
            sync(&tree);
            region.take();
            let (mut calls, mut lines, before) = (0, Vec::new(), vfs.early_commits());
            for epoch in 1..=3 {
                while vfs.early_commits() < before + epoch {
                    calls += 1;
                    assert!(calls < 20_000, "{}: {name}: no commit", engine.name());
                    let (file, at, length) = next(&mut random, calls);
                    // No two calls in a row write the same, nor zeros.
                    let data: Vec<u8> = (0..length).map(|i| (2 + calls % 199 + i % 53) as u8).collect();
                    files[file as usize].write_all(at, &data).expect("write");
                }
                let counts = region.take();
                let of_log = sites.iter().filter_map(|site| counts.get(&Site(site)));
                lines.push(of_log.map(|count| count.lines).sum::<u64>());
            }
            println!("{}: {name}: {calls} calls, {lines:?} of {quarter} lines", engine.name());
            // More by what the last call adds, and 16 changes that are not counted one by one.
            let most = quarter + 100;
            assert!(lines.iter().all(|lines| (quarter..most).contains(lines)), "{}: {name}: {lines:?}", engine.name());
        }
    }
}

/// What is written between two syncs takes free blocks for what it writes to, not for each write. `fine_grained_wal`
/// logs each write, and is a baseline.
#[test]
fn an_epoch_takes_bounded_space() {
    const FILE: u64 = 4 << 20;
    type Next = fn(&mut Random, u64) -> (u64, u64);
    let cases: [(&str, u64, Next); 4] = [
        ("one block", 3000, |_, _| (4096, 4096)),
        ("blocks at random", 3000, |random, _| (random.below(FILE / 4096) * 4096, 4096)),
        ("128 B at random", 6000, |random, _| (random.below(FILE - 128), 128)),
        ("halves", 3 * FILE / 2048, |_, n| (n * 2048 % (FILE - 4096), 4096)),
    ];
    for (engine, (name, calls, next)) in engines().flat_map(|engine| cases.map(|case| (engine, case))) {
        let place = Place::of_zeros(64 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let file = tree.file("a", 0o644, &vec![1; FILE as usize]).expect("make a file");
        file.fsync().expect("sync");
        let free = || vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs").free_blocks * 4096;
        let (before, mut least) = (free(), u64::MAX);
        let (mut random, mut model) = (Random(7), vec![1; FILE as usize]);
        let mut touched = vec![false; (FILE / 4096) as usize];
        for n in 0..calls {
            let (offset, length) = next(&mut random, n);
            let data: Vec<u8> = (0..length).map(|i| (n + i) as u8).collect();
            file.write_all(offset, &data).expect("write");
            model[offset as usize..][..length as usize].copy_from_slice(&data);
            touched[(offset / 4096) as usize..(offset + length).div_ceil(4096) as usize].fill(true);
            let distinct = touched.iter().filter(|touched| **touched).count() as u64 * 4096;
            least = least.min(free());
            let (taken, bound) = (before.saturating_sub(least), 2 * distinct + (8 << 20) + (8 << 10));
            assert!(taken <= bound || engine == EngineKind::FineGrainedWal, "{}: {name}: {taken}", engine.name());
        }
        println!("{}: {name}: {} KiB of free blocks", engine.name(), before.saturating_sub(least) >> 10);
        file.fsync().expect("sync");
        forget((file, tree));
        let found = content(&after_death(&place, volume, vfs), "a");
        let differs = (0..model.len()).find(|&at| found.get(at) != Some(&model[at]));
        assert_eq!((found.len(), differs), (model.len(), None), "{}: {name}", engine.name());
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

/// Very many files may be dirty: nothing but a sync of a file commits what was written to it.
#[test]
fn many_files_are_dirty_at_once() {
    const FILES: usize = 1100;
    for engine in engines() {
        let place = Place::of_zeros(64 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let files: Vec<_> = (0..FILES).map(|i| tree.create(format!("f{i}"), 0o644).expect("make a file")).collect();
        files.iter().for_each(|file| file.write_all(0, b"new").expect("write"));
        assert_eq!(vfs.pending_files(), FILES as u64);
        files[7].fsync().expect("sync");
        assert_eq!(vfs.pending_files(), FILES as u64 - 1);
        forget((files, tree));
        let volume = after_death(&place, volume, vfs);
        for i in 0..FILES {
            let size = volume.metadata(format!("f{i}")).expect("it has a name").size;
            assert_eq!(size, if i == 7 { 3 } else { 0 }, "{}: file {i}", engine.name());
        }
    }
}

/// One more dirty file than there may be is refused, and keeps none of the others from anything.
#[test]
fn one_file_more_than_may_be_dirty_is_refused() {
    for engine in engines() {
        let place = Place::of_zeros(8 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::with_most_dirty(&volume, Policy::PerSync, 3).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let files = [0, 1, 2, 3].map(|i| tree.create(format!("f{i}"), 0o644).expect("make a file"));
        files[..3].iter().for_each(|file| file.write_all(0, b"new").expect("write"));
        assert_eq!(files[3].write_all(0, b"new"), Err(Errno::NOSPC));
        assert_eq!(files[3].stat().expect("stat").size, 0);
        files[0].append(b"est").expect("append");
        let committed = || [0, 1, 2, 3].map(|i| volume.metadata(format!("f{i}")).expect("it has a name").size);
        assert_eq!(committed(), [0; 4], "{}", engine.name());
        files[1].fsync().expect("sync");
        files[3].write_all(0, b"new").expect("there is room for it");
        assert_eq!(files[1].append(b"est").err(), Some(Errno::NOSPC));
        assert_eq!(committed(), [0, 3, 0, 0], "{}", engine.name());
        sync(&tree);
        assert_eq!((committed(), vfs.pending_files()), ([6, 3, 3, 3], 0), "{}", engine.name());
    }
}

/// A volume with three files of 80 KiB, of which a little more than one can be written over.
fn nearly_full(tree: &Tree<'_>) {
    for name in ["a", "b", "c"] {
        tree.file(name, 0o644, &[1; 80 << 10]).expect("make a file");
    }
    let filler = tree.file("filler", 0o644, b"").expect("make a file");
    let available = || tree.vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs").available_blocks;
    let most = available() - 60;
    filler.allocate(Fallocate::Extend, 0, most * 4096).expect("take space");
    drop(filler);
    sync(tree);
}

/// What the epoch has written over is free once it is committed: under `shared`, a call that has no space gets it then.
#[test]
fn a_call_without_space_has_the_shared_epoch_committed() {
    for engine in engines() {
        let what = engine.name();
        let place = Place::of_zeros(2 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, SHARED).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        nearly_full(&tree);
        assert_eq!(vfs.early_commits(), 0);
        // Each takes more than a third of what is left.
        for (byte, name) in (2..).zip(["a", "b", "c", "a", "b", "c"]) {
            write(&tree, name, 0, &[byte; 80 << 10]).unwrap_or_else(|errno| panic!("{what}: {name}: {errno}"));
        }
        // Until there is none: that is told, and no commit fails for it.
        drop(tree.create("d", 0o644).expect("make a file"));
        let full = (0..200).map(|i| write(&tree, "d", i << 14, &[8; 16 << 10])).find(Result::is_err);
        assert_eq!(full, Some(Err(Errno::NOSPC)), "{what}");
        assert!(vfs.early_commits() > 0, "{what}");
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

/// Under `per-sync` a call without space fails. No epoch is committed for it; what was written before stays, and can be
/// synced on a full volume.
#[test]
fn a_call_without_space_commits_no_file() {
    for engine in engines() {
        let what = engine.name();
        let place = Place::of_zeros(2 << 20, engine);
        let volume = place.open();
        let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        nearly_full(&tree);
        let files = ["a", "b", "c"].map(|name| tree.open(name, OFlags::RDWR).expect("open"));
        // Over all of them, by turns, until there is no space: each has something pending then, in pieces that all
        // engines have to move or to log.
        let mut written = [0; 3];
        let full = (0..).find_map(|turn| {
            let at = turn % 3;
            match files[at].write(written[at] as u64, &[2; 4096]) {
                Ok(count) => {
                    written[at] += count;
                    None
                }
                Err(errno) => Some(errno),
            }
        });
        assert_eq!(full, Some(Errno::NOSPC), "{what}");
        // Smaller ones may still fit: until none does.
        while files[0].append(&[3; 100]).is_ok() {}
        let appended = files[0].stat().expect("stat").size as usize - written[0].max(80 << 10);
        for (name, (file, written)) in ["a", "b", "c"].iter().zip(files.iter().zip(written)) {
            assert!(content(&volume, name) == [1; 80 << 10], "{what}: {name} was committed");
            assert!(written > 0, "{what}: {name}");
            assert!(file.read(0, written).expect("read") == vec![2; written], "{what}: what was written is gone");
        }
        // The sync of one file commits that one.
        files[0].fsync().unwrap_or_else(|errno| panic!("{what}: {errno}"));
        let head = vec![2; written[0]];
        assert!(content(&volume, "a").starts_with(&head), "{what}");
        assert_eq!(content(&volume, "a").len(), written[0].max(80 << 10) + appended, "{what}");
        assert!(content(&volume, "b") == [1; 80 << 10], "{what}: b was committed with a");
        forget((files, tree));
        let volume = after_death(&place, volume, vfs);
        assert!(content(&volume, "a").starts_with(&head), "{what}");
        for name in ["b", "c"] {
            assert!(content(&volume, name) == [1; 80 << 10], "{what}: {name} lasts without a sync");
        }
        volume.close().expect("close it");
        place.expect_sound();
    }
}

/// A medium on which a thread waits that has said so, at its next fence, until it is let go.
struct HeldRegion {
    inner: Arc<dyn Region>,
    /// Whether a thread waits, and whether it may go on.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

thread_local!(static WAITS: Cell<bool> = const { Cell::new(false) });

impl HeldRegion {
    fn new(inner: Arc<dyn Region>) -> Arc<HeldRegion> {
        Arc::new(HeldRegion { inner, state: Mutex::default(), changed: Condvar::new() })
    }

    fn pass(&self) {
        if !WAITS.get() {
            return;
        }
        let mut state = self.state.lock().expect("nobody panics with it");
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            state = self.changed.wait(state).expect("nobody panics with it");
        }
    }

    /// Waits until a thread waits.
    fn is_reached(&self) {
        let mut state = self.state.lock().expect("nobody panics with it");
        while !state.0 {
            state = self.changed.wait(state).expect("nobody panics with it");
        }
    }
}

/// Lets the thread go, also where the test fails.
struct Hold<'r>(&'r HeldRegion);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.state.lock().expect("nobody panics with it").1 = true;
        self.0.changed.notify_all();
    }
}

impl Region for HeldRegion {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.inner.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.inner.write(site, offset, data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.pass();
        self.inner.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.pass();
        self.inner.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.set_len(site, len)
    }

    fn extend(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.extend(site, len)
    }
}

/// The medium does not answer while a file is being committed. Calls on other files return: under `per-sync` on all of
/// them, under `shared` those that look at clean ones. Nothing here is a matter of time: a call that waits for the
/// commit never returns.
#[test]
fn a_commit_holds_up_no_call_on_another_file() {
    for (engine, policy) in engines().flat_map(|engine| [(engine, Policy::PerSync), (engine, SHARED)]) {
        let what = format!("{}, {policy:?}", engine.name());
        let place = Place::of_zeros(8 << 20, engine);
        let region = HeldRegion::new(place.region.clone());
        let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it");
        let vfs = PolicyVfs::new(&volume, policy).expect("it has groups");
        let tree = Tree::new(&vfs, Ino::ROOT);
        let [a, b, c] = ["a", "b", "c"].map(|name| {
            tree.file(name, 0o644, &[1; 9000]).expect("make a file").fsync().expect("sync");
            // A read that sets a time is a commit, and some engines do one after the other.
            tree.open(name, OFlags::RDWR | OFlags::NOATIME).expect("open")
        });
        a.write_all(0, &[2; 5000]).expect("write");
        if policy == Policy::PerSync {
            b.write_all(100, &[2; 5000]).expect("write");
        }
        std::thread::scope(|scope| {
            let hold = Hold(&region);
            let (vfs, ctx, handle) = (&vfs, &tree.ctx, a.handle.clone());
            let syncs = scope.spawn(move || {
                WAITS.set(true);
                vfs.fsync(ctx, &handle)
            });
            region.is_reached();
            assert!(c.content().expect("read") == [1; 9000], "{what}");
            assert_eq!(tree.stat("b").expect("stat").size, 9000, "{what}");
            if policy == Policy::PerSync {
                assert!(b.read(100, 5000).expect("read") == [2; 5000], "{what}");
                b.write_all(4000, &[3; 5000]).expect("write to a file that is dirty");
                c.write_all(4000, &[3; 5000]).expect("write to a file that is clean");
                assert!(c.read(4000, 5000).expect("read") == [3; 5000], "{what}");
                assert_eq!(b.append(&[4; 10]).expect("append"), (9000, 10), "{what}");
                // These commit one group after the other.
                if ![EngineKind::Shadow, EngineKind::PageCacheWal, EngineKind::OpLog, EngineKind::MultiQueue]
                    .contains(&engine)
                {
                    b.fsync().expect("sync");
                    assert_eq!(content(&volume, "b").len(), 9010, "{what}");
                    b.write_all(0, &[5; 10]).expect("write");
                    tree.rename("b", "d").expect("rename a file that is dirty");
                    tree.chmod("c", 0o600).expect("change a file that is dirty");
                    assert!(content(&volume, "c")[4000..] == [3; 5000], "{what}");
                }
            }
            assert!(!region.state.lock().expect("nobody panics with it").1 && !syncs.is_finished(), "{what}");
            drop(hold);
            syncs.join().expect("it does not panic").unwrap_or_else(|errno| panic!("{what}: {errno}"));
        });
        assert!(content(&volume, "a")[..5000] == [2; 5000], "{what}");
    }
}

/// Two policies over one volume: what the one has pending is nothing to the other, which is refused to change it.
#[test]
fn another_policy_leaves_pending_files_alone() {
    for engine in engines() {
        let place = Place::of_zeros(8 << 20, engine);
        let volume = place.open();
        let one = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
        let two = PolicyVfs::new(&volume, SHARED).expect("it has groups");
        let (one, two) = (Tree::new(&one, Ino::ROOT), Tree::new(&two, Ino::ROOT));
        let a = one.file("a", 0o644, &[1; 5000]).expect("make a file");
        let same = two.open("a", OFlags::RDWR).expect("open");
        assert_eq!((a.stat().expect("stat").size, same.stat().expect("stat").size), (5000, 0), "{}", engine.name());
        assert_eq!(same.write(0, b"x"), Err(Errno::BUSY));
        same.fsync().expect("sync");
        assert_eq!(volume.metadata("a").expect("stat").size, 0, "{}", engine.name());
        a.fsync().expect("sync");
        same.write_all(0, b"x").expect("write");
        assert_eq!(a.write(0, b"y"), Err(Errno::BUSY));
        assert_eq!(a.read(0, 1).expect("read"), [1]);
        same.fsync().expect("sync");
        assert_eq!(a.read(0, 1).expect("read"), b"x");
        a.write_all(0, b"y").expect("write");
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
                let added = vfs.add(group, &all.handle);
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
