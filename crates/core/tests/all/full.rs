//! A host that has no space, and one that loses what is not synced, simulated. Full real file systems: `quotas.rs`.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::small;
use rustix::io::Errno;
use wholly::{Error, KeepUndo, Options, Policy, Rename, Store, site};
use wholly_host::HostFs;
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Explorer, Mutation, MutationKind, SimConfig, World};

fn media() -> [SimConfig; 2] {
    [SimConfig::pmem(), SimConfig::disk()]
}

/// A world with files in which calls at a site find no space: the one of that number, or all.
fn world(config: SimConfig, files: &[&str], site: Site, nth: Option<u64>) -> Arc<World> {
    let full = Mutation { nth, ..Mutation::new(site, MutationKind::Fail(Errno::NOSPC)) };
    let world = World::new(SimConfig { log_len: 0, mutations: vec![full], ..config });
    files.iter().for_each(|name| world.add_file(name, &[1; 9000]));
    Store::format_on(&*world.log(), &small(), [7; 16]).unwrap();
    world
}

fn open(world: &Arc<World>, options: Options) -> Store {
    let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
    assert!(store.recovery().conflicts.is_empty(), "{:?}", store.recovery().conflicts);
    store
}

/// All files of a host, but the store's own.
fn tree(host: &dyn HostFs, dir: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in host.read_dir(dir).unwrap().into_iter().filter(|entry| entry.name != b".wholly") {
        let path = [dir, &entry.name].join(&b"/"[usize::from(dir.is_empty())..]);
        let stat = host.stat(&path).unwrap();
        if !stat.is_file() {
            all.extend(tree(host, &path));
            all.push((path, Vec::new()));
            continue;
        }
        let mut bytes = vec![0; stat.size as usize];
        assert_eq!(host.open(&path, false).unwrap().read_at(0, &mut bytes).unwrap(), bytes.len());
        all.push((path, bytes));
    }
    all.sort();
    all
}

/// A write for which the host has no space is refused however often it is made, in a group and in an epoch. Once there
/// is space it is made.
#[test]
fn what_was_refused_is_refused_again() {
    for config in media() {
        for policy in [Policy::PerOp, Policy::PerSync] {
            let world = World::new(SimConfig { log_len: 0, ..config.clone() });
            world.add_file("a", &[]);
            let options = Options { policy, spare_bytes: 0, ..small() };
            Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
            world.has_free(4);
            let store = open(&world, options);
            let a = store.open_file("a").unwrap();
            let mut group = (policy == Policy::PerOp).then(|| store.begin());
            let mut write = || match &mut group {
                Some(group) => group.write_at(&a, 0, &[1; 32 << 10]),
                None => a.write_at(0, &[1; 32 << 10]),
            };
            for attempt in 0..3 {
                let refused = write();
                assert!(matches!(refused, Err(Error::NoSpace(_))), "{attempt}: {refused:?}");
            }
            world.has_free(1000);
            write().unwrap();
            group.map_or_else(|| a.sync(), |group| group.commit()).unwrap();
            store.checkpoint().unwrap();
            assert_eq!(tree(&*world.host(), b""), [(b"a".to_vec(), vec![1; 32 << 10])]);
        }
    }
}

/// What an epoch has in memory goes to the swap, but not where the host has no more space than is promised to what is
/// to come home.
#[test]
fn the_swap_takes_no_promised_space() {
    let world = World::new(SimConfig { log_len: 0, ..SimConfig::disk() });
    world.add_file("a", &[]);
    let options = Options { policy: Policy::PerSync, spare_bytes: 0, pending_bytes: 200, ..small() };
    Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
    let store = open(&world, options);
    let a = store.open_file("a").unwrap();
    let swapped = || {
        let trace = world.trace();
        trace.events.iter().filter(|event| event.site == Some(site::SWAP_WRITE)).count()
    };
    world.has_free(2);
    a.write_at(0, &[1; 4096]).unwrap();
    assert_eq!(swapped(), 0, "the last block is promised");
    assert!(store.stat().gathered_bytes > 200);
    world.has_free(1000);
    a.write_at(4096, &[2; 100]).unwrap();
    assert!(swapped() > 0);
    assert!(store.stat().gathered_bytes <= 200);
    a.sync().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(tree(&*world.host(), b""), [(b"a".to_vec(), [vec![1; 4096], vec![2; 100]].concat())]);
}

/// Names that end do so before the bytes for which there is no space: of files, of a directory out of which something
/// moves, of what is moved, and of what is replaced. The power may fail at any point of that.
#[test]
fn a_pass_removes_names_to_make_space() {
    let [pmem, disk] = media();
    let cases = [(pmem, site::CHECKPOINT_DATA), (disk.clone(), site::CHECKPOINT_DATA), (disk, site::NAMES_MAKE)];
    for (config, site) in cases {
        let files = ["a", "large", "moved", "old"];
        // The first object that is made is a directory, before the group.
        let nth = if site == site::NAMES_MAKE { 1 } else { 0 };
        let world = world(config.clone(), &files, site, Some(nth));
        let store = open(&world, small());
        store.mkdir("d", 0o700).unwrap();
        store.rename("moved", "d/moved", Rename::NoReplace).unwrap();
        store.checkpoint().unwrap();
        let mut group = store.begin();
        for name in ["a", "large", "d/moved"] {
            let file = group.open_file(name).unwrap();
            group.write_at(&file, 4000, &[2; 200]).unwrap();
        }
        group.unlink("large").unwrap();
        group.rename("d/moved", "moved", Rename::NoReplace).unwrap();
        group.rmdir("d").unwrap();
        let new = group.create("new", 0o600).unwrap();
        group.append(&new, &[3; 100]).unwrap();
        group.rename("new", "old", Rename::Replace).unwrap();
        group.mkdir("e", 0o700).unwrap();
        group.commit().unwrap();
        drop(new);
        let changed = [&[1; 4000][..], &[2; 200], &[1; 4800]].concat();
        let expected = [("a", changed.clone()), ("e", Vec::new()), ("moved", changed), ("old", vec![3; 100])];
        let expected = expected.map(|(path, bytes)| (path.as_bytes().to_vec(), bytes));

        let first = world.now();
        store.checkpoint().unwrap();
        assert_eq!(tree(&*world.host(), b""), expected);
        let trace = world.trace();
        let writes = trace.events[first as usize..].iter().filter(|event| event.site == Some(site::CHECKPOINT_DATA));
        assert!(writes.count() > 0, "it went on");
        let limits = ExploreLimits { exhaustive_bits: 0, samples: 1, ..ExploreLimits::default() };
        let mut explorer = Explorer::new(&trace);
        for point in first..=trace.events.len() as u64 {
            explorer.seek(point);
            explorer.for_each_image(&limits, |choice, image| {
                let world = World::from_image(image, config.clone());
                let store = open(&world, small());
                store.close().unwrap_or_else(|error| panic!("{point}, {choice}: {error}"));
                assert_eq!(tree(&*world.host(), b""), expected, "{point}, {choice}");
                ControlFlow::Continue(())
            });
        }
    }
}

/// A file was removed, and is not gone yet: it goes before a write that bypasses the log is refused. Where nothing was
/// removed, that write is refused.
#[test]
fn a_removed_file_makes_room_for_what_bypasses_the_log() {
    for (config, removes) in media().into_iter().flat_map(|config| [(config.clone(), true), (config, false)]) {
        for site in [site::STAGE_WRITE, site::SHADOW_WRITE] {
            let world = world(config.clone(), &["a", "large"], site, Some(0));
            let store = open(&world, Options { stage_bytes: 4000, ..small() });
            if removes {
                store.unlink("large").unwrap();
            }
            let mut group = store.begin();
            let path = if site == site::STAGE_WRITE { "new" } else { "a" };
            let file = group.open_or_create(path, 0o600).unwrap();
            let written = group.write_at(&file, 0, &[2; 8000]);
            if !removes {
                assert!(matches!(written, Err(Error::NoSpace(_))), "{site:?}: {written:?}");
                continue;
            }
            written.unwrap_or_else(|error| panic!("{site:?}: {error}"));
            assert!(world.host().stat(b"large").is_err(), "{site:?}: it is gone");
            group.commit().unwrap();
            drop(file);
            store.close().unwrap();
        }
    }
}

/// A log that could grow, and has no space for that, is used again like one that must not.
#[test]
fn a_log_that_cannot_grow_is_used_again() {
    for config in media() {
        let world = world(config, &["a"], site::LOG_GROW, None);
        let store = open(&world, small());
        let file = store.open_file("a").unwrap();
        let segments = store.stat().segments;
        for byte in 0..100 {
            file.write_at(0, &[byte; 8192]).unwrap();
        }
        let mut group = store.begin();
        let full = (0..100).try_for_each(|byte| group.write_at(&file, byte * 8192, &[9; 8192]));
        assert!(matches!(full, Err(Error::NoSpace(_))), "{full:?}");
        drop(group);
        let mut bytes = [0; 8192];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!((bytes, store.stat().segments), ([99; 8192], segments));
        drop(file);
        store.close().unwrap();
    }
}

/// Under the policy `shared`, a sync of a directory commits everything, as a sync of any file does.
#[test]
fn a_sync_of_a_directory_commits_the_shared_group() {
    use wholly_vfs::{Context, Ino, Mode, OFlags, Vfs};
    for config in media() {
        let world = World::new(SimConfig { log_len: 0, ..config.clone() });
        let policy = wholly::Policy::Shared { interval: std::time::Duration::MAX };
        let options = Options { policy, ..small() };
        Store::format_on(&*world.log(), &options, [7; 16]).unwrap();
        let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
        let (vfs, ctx) = (wholly::StoreVfs::new(&store), Context::superuser());
        let (_, handle) = vfs.create(&ctx, Ino::ROOT, b"file", OFlags::RDWR, Mode::RUSR).unwrap();
        vfs.write(&ctx, &handle, 0, b"content").unwrap();
        let dir = vfs.opendir(&ctx, Ino::ROOT).unwrap();
        vfs.fsyncdir(&ctx, &dir).unwrap();
        // The power fails: what is not synced is lost.
        let trace = world.trace();
        let mut explorer = Explorer::new(&trace);
        explorer.seek(trace.events.len() as u64);
        let limits = ExploreLimits { exhaustive_bits: 0, samples: 1, ..ExploreLimits::default() };
        explorer.for_each_image(&limits, |choice, image| {
            let world = World::from_image(image, config.clone());
            let store = open(&world, small());
            let (file, mut content) = (store.open_file("file").unwrap(), [0; 8]);
            assert_eq!((file.read_at(0, &mut content).unwrap(), &content[..7]), (7, &b"content"[..]), "{choice}");
            ControlFlow::Continue(())
        });
    }
}

/// A quota shows only when the host refuses something. Undo that is kept goes before a call or a commit is refused.
#[test]
fn undo_is_dropped_before_a_quota_refuses_anything() {
    for config in media() {
        for site in [site::STAGE_WRITE, site::SHADOW_WRITE, site::PARK_WRITE] {
            check_undo_goes(&config, site, 1);
            // One for each undo that can be dropped, and one more; and those of its line, which is tried twice.
            check_undo_goes(&config, site, if site == site::PARK_WRITE { 7 } else { 3 });
        }
        check_undo_goes(&config, site::CHECKPOINT_DATA, 1);
    }
}

/// The host refuses the first calls at a site, to a store that keeps two undos.
fn check_undo_goes(config: &SimConfig, site: Site, refused: u64) {
    let keep = KeepUndo { note: String::new(), expires: Duration::from_secs(1 << 30), most_bytes: u64::MAX };
    let options = || Options { at_once: true, stage_bytes: 4000, ..small() };
    let world = World::new(SimConfig { log_len: 0, ..config.clone() });
    ["a", "b", "c"].iter().for_each(|name| world.add_file(name, &[1; 9000]));
    Store::format_on(&*world.log(), &small(), [7; 16]).unwrap();
    let store = open(&world, options());
    for name in ["b", "c"] {
        let mut group = store.begin();
        group.unlink(name).unwrap();
        group.keep_undo(&keep).unwrap();
        group.commit().unwrap();
    }
    let kept = store.undos().unwrap();
    assert_eq!(kept.len(), 2, "{site:?}");
    store.close().unwrap();
    let refuse = |nth| Mutation { nth: Some(nth), ..Mutation::new(site, MutationKind::Fail(Errno::DQUOT)) };
    let mutations = (0..refused).map(refuse).collect();
    let world = World::from_image(&world.latest(), SimConfig { mutations, ..config.clone() });
    let store = open(&world, options());
    let before = tree(&*world.host(), b"");
    let write = || {
        let mut group = store.begin();
        let a = group.open_file("a")?;
        match site {
            site::STAGE_WRITE => {
                let new = group.create("new", 0o600)?;
                group.append(&new, &[2; 5000])?;
            }
            site::SHADOW_WRITE => group.write_at(&a, 0, &[2; 8000])?,
            _ => group.write_at(&a, 100, &[2; 200])?,
        }
        group.commit()
    };
    let done = write();
    let left: Vec<_> = store.undos().unwrap().into_iter().filter(|undo| undo.gone.is_none()).collect();
    if refused == 1 {
        done.unwrap_or_else(|error| panic!("{site:?}: {error}"));
        assert_eq!(left, kept[1..], "{site:?}: the oldest goes first");
        assert_ne!(tree(&*world.host(), b""), before, "{site:?}");
    } else {
        assert!(matches!(done, Err(Error::NoSpace(_))), "{site:?}: {done:?}");
        assert!(left.is_empty(), "{site:?}: {left:?}");
        assert_eq!(tree(&*world.host(), b""), before, "{site:?}");
    }
}
