//! Staged files of groups that are parked: they become content files of the parked group, and none of their bytes is
//! written again. What that costs, what is left of it, and what a crash, a host that refuses, and others do to it.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::common::staging::{STAGE, content, count, media, open, options, read};
use crate::common::{Dir, open_on, stores_of_files};
use rustix::io::Errno;
use wholly::{Error, FindingKind, Options, ParkedId, Side, Store, site};
use wholly_host::HostOptions;
use wholly_media::Site;
use wholly_sim::{EventKind, ExploreLimits, Explorer, Mutation, MutationKind, SimConfig, World};

const PARKED: &str = ".wholly/parked";
/// Bytes of a file that is staged where not told otherwise.
const LARGE: usize = 600 << 10;

/// A world in which something fails; none of it where `broken` is none.
fn world(config: SimConfig, broken: Option<Mutation>) -> Arc<World> {
    let world = World::new(SimConfig { log_len: 0, mutations: broken.into_iter().collect(), ..config });
    Store::format_on(&*world.log(), &options(), [5; 16]).unwrap();
    world
}

/// A group that makes files of that many bytes.
fn making<'s>(store: &'s Store, files: &[(&str, usize)]) -> wholly::Group<'s> {
    let mut group = store.begin();
    for (number, (path, length)) in files.iter().enumerate() {
        let file = group.create(path, 0o640).unwrap();
        for (i, piece) in content(*length, number as u8).chunks(100_000).enumerate() {
            group.write_at(&file, i as u64 * 100_000, piece).unwrap();
        }
    }
    group
}

fn park(store: &Store, files: &[(&str, usize)]) -> ParkedId {
    making(store, files).park("a note", None).unwrap()
}

/// What a parked group leaves in a file.
fn parked_content(store: &Store, id: ParkedId, path: &str) -> wholly::Result<Vec<u8>> {
    let review = store.review(id)?;
    let change = review.changes().iter().find(|change| change.path == Path::new(path)).unwrap();
    let mut bytes = vec![0; change.after.unwrap().size as usize];
    let read = review.read(change, Side::After, 0, &mut bytes)?;
    assert_eq!(read, bytes.len());
    Ok(bytes)
}

/// The content files.
fn contents(world: &Arc<World>) -> Vec<Vec<u8>> {
    let names = world.host().read_dir(PARKED.as_bytes()).unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.contains(&b'.')).map(|name| [PARKED.as_bytes(), b"/", &name].concat()).collect()
}

/// Bytes that were written since `from`, to files and to the log, and how often something was synced.
fn cost(world: &Arc<World>, from: usize) -> (usize, usize) {
    let trace = world.trace();
    let events = trace.events[from..].iter();
    let bytes = events.clone().map(|event| match &event.kind {
        EventKind::Write { data, .. } | EventKind::Store { data, .. } | EventKind::Through { data, .. } => data.len(),
        _ => 0,
    });
    let is_sync =
        |kind: &EventKind| matches!(kind, EventKind::Sync { .. } | EventKind::SyncDir { .. } | EventKind::SyncAll);
    (bytes.sum(), events.filter(|event| is_sync(&event.kind)).count())
}

/// However many files it has staged and however large they are: one block for the head, and the catalogue.
#[test]
fn no_byte_of_a_staged_file_is_written_again() {
    let few: &[_] = &[("a", 4 << 20), ("b", STAGE)];
    let names: Vec<String> = (0..20).map(|number| format!("f{number}")).collect();
    let many: Vec<(&str, usize)> = names.iter().map(|name| (&**name, STAGE)).collect();
    for (config, files) in media().into_iter().flat_map(|config| [(config.clone(), few), (config, &many[..])]) {
        let world = world(config, None);
        let store = open(&world);
        // The folder of parked groups is there from then on.
        store.discard(park(&store, &[("c", 10)])).unwrap();
        let group = making(&store, files);
        let before = world.trace().events.len();
        let id = group.park("a note", None).unwrap();
        let (bytes, syncs) = cost(&world, before);
        assert!(bytes < 4096 + files.len() * 512, "{bytes} bytes");
        // Each file or the file system, their names, the file of the group, its name; and two of the folder's own.
        let of_files = if files.len() > 16 { 1 } else { files.len() + 1 };
        assert_eq!(syncs, of_files + 2);
        assert_eq!((contents(&world).len(), count(&world, ".wholly/blank")), (files.len(), 0));

        let whole: u64 = files.iter().map(|(_, length)| *length as u64).sum();
        let parked = &store.parked().unwrap()[0];
        assert_eq!((parked.bytes, parked.files as usize, parked.names as usize), (whole, files.len(), files.len()));
        assert!((whole..whole + (256 << 10)).contains(&parked.space), "{} bytes of space", parked.space);
        drop(store);
        let store = open(&world);
        for (number, (path, length)) in files.iter().enumerate() {
            assert!(parked_content(&store, id, path).unwrap() == content(*length, number as u8), "{path}");
        }
        store.apply(id).unwrap();
        assert_eq!(count(&world, PARKED), 0);
        for (number, (path, length)) in files.iter().enumerate() {
            assert!(read(&store, path) == content(*length, number as u8), "{path}");
        }
        store.close().unwrap();
        assert_eq!(world.host().stat(b"f3").map_or(1, |stat| stat.nlink), 1);
    }
}

/// What somebody else has written to the layer is moved: the group that takes it can be parked, commit, or abort.
#[test]
fn bytes_of_a_file_in_the_layer_are_moved() {
    for (config, end) in media().into_iter().flat_map(|config| [0, 1, 2].map(|end| (config.clone(), end))) {
        let world = world(config, None);
        let store = open(&world);
        store.discard(park(&store, &[("c", 10)])).unwrap();
        store.make_layer().unwrap();
        let (host, site) = (world.host(), Site("test"));
        let bytes = content(4 << 20, 7);
        for name in ["one", "linked"] {
            let path = [b".wholly/layer/", name.as_bytes()].concat();
            host.create(site, &path, 0o400).unwrap().write_at(site, 0, &bytes).unwrap();
        }
        host.hard_link(site, b".wholly/layer/linked", b".wholly/layer/other").unwrap();
        let before = world.trace().events.len();
        let mut group = store.begin();
        let file = group.create("a", 0o640).unwrap();
        assert!(!group.import_content(".wholly/layer/linked", &file).unwrap(), "it has another name");
        assert!(matches!(group.import_content("a", &file), Err(Error::Invalid(_))));
        assert!(matches!(group.import_content(".wholly/layer/none", &file), Err(Error::NotFound(_))));
        assert!(group.import_content(".wholly/layer/one", &file).unwrap());
        assert!(matches!(group.import_content(".wholly/layer/linked", &file), Err(Error::Invalid(_))));
        assert!(host.stat(b".wholly/layer/one").is_err());
        let mut some = [0; 100];
        assert_eq!((group.len(&file), group.read_at(&file, 1 << 20, &mut some).unwrap()), (4 << 20, 100));
        assert_eq!(some, bytes[1 << 20..][..100]);
        drop(file);
        match end {
            0 => {
                let id = group.park("", None).unwrap();
                assert!(cost(&world, before).0 < 8192, "{:?}", cost(&world, before));
                drop(store);
                let store = open(&world);
                assert!(parked_content(&store, id, "a").unwrap() == bytes);
                store.apply(id).unwrap();
                store.close().unwrap();
            }
            1 => {
                group.commit().unwrap();
                assert!(cost(&world, before).0 < 8192, "{:?}", cost(&world, before));
                store.close().unwrap();
            }
            _ => {
                group.abort();
                assert!(store.open_file("a").is_err() && count(&world, ".wholly/blank") == 0);
                continue;
            }
        }
        let stat = host.stat(b"a").unwrap();
        assert_eq!((stat.mode & 0o7777, stat.nlink, stat.size), (0o640, 1, 4 << 20));
        let store = open(&world);
        assert!(read(&store, "a") == bytes);
        store.close().unwrap();
    }
}

/// It copies, as it does what is in the log.
#[test]
fn a_host_without_hard_links_has_copies() {
    for config in media() {
        let world = world(config, Some(Mutation::new(site::PARK_LINK, MutationKind::Fail(Errno::PERM))));
        let store = open(&world);
        let id = park(&store, &[("a", 2 * STAGE), ("b", STAGE)]);
        assert_eq!((contents(&world), count(&world, ".wholly/blank")), (vec![], 0));
        assert!(parked_content(&store, id, "b").unwrap() == content(STAGE, 1));
        store.apply(id).unwrap();
        assert!(read(&store, "a") == content(2 * STAGE, 0));
        store.close().unwrap();
    }
}

/// Where it cannot be parked, nothing of that is left, and the group that is aborted leaves nothing either.
#[test]
fn nothing_is_left_where_parking_fails() {
    let fails =
        |site: Site, errno, nth| Some(Mutation { nth: Some(nth), ..Mutation::new(site, MutationKind::Fail(errno)) });
    for config in media() {
        for broken in [
            fails(site::PARK_LINK, Errno::DQUOT, 2),
            fails(site::PARK_CONTENT_SYNC, Errno::IO, 1),
            fails(site::PARK_WRITE, Errno::NOSPC, 2),
            fails(site::PARK_SYNC, Errno::NOSPC, 1),
            fails(site::PARK_RENAME, Errno::NOSPC, 1),
        ] {
            let world = world(config.clone(), broken);
            let store = open(&world);
            // This one makes the calls before: one of each kind, two writes.
            let kept = park(&store, &[("kept", STAGE)]);
            let failed = making(&store, &[("a", STAGE), ("b", STAGE)]).park("", None);
            assert!(failed.is_err(), "{broken:?}");
            assert_eq!((count(&world, PARKED), count(&world, ".wholly/blank")), (2, 0), "{broken:?}");
            assert!(parked_content(&store, kept, "kept").unwrap() == content(STAGE, 0));
            store.close().unwrap();
        }
    }
}

/// A part of a parked group is applied: what is left keeps its content files where they are. The power may fail at any
/// point of that: then the whole group is parked, or what is left of it, with its bytes, and no content file is left of
/// what was applied.
#[test]
fn what_is_left_keeps_its_content_files() {
    for config in media() {
        let world = world(config.clone(), None);
        let store = open(&world);
        let id = park(&store, &[("a", STAGE), ("b", STAGE + 1), ("small", 10)]);
        let first = world.trace().events.len();
        assert!(store.apply_part(id, &["a"], &[]).unwrap());
        assert_eq!((contents(&world).len(), store.review(id).unwrap().changes().len()), (1, 2));
        assert!(parked_content(&store, id, "b").unwrap() == content(STAGE + 1, 1));
        let trace = world.trace();
        store.close().unwrap();
        let limits = ExploreLimits { exhaustive_bits: 2, samples: 4, ..ExploreLimits::default() };
        let mut explorer = Explorer::new(&trace);
        let mut seen = [0, 0];
        // What comes before is as of any apply.
        let is_made = |event: &wholly_sim::Event| event.site == Some(site::PARK_MAKE);
        let first = first + trace.events[first..].iter().position(is_made).expect("the rest is parked");
        for point in first..=trace.events.len() {
            explorer.seek(point as u64);
            explorer.for_each_image(&limits, |choice, image| {
                let world = World::from_image(image, config.clone());
                let store = open(&world);
                let whole = store.review(id).unwrap().changes().len() == 3;
                seen[usize::from(whole)] += 1;
                assert_eq!(contents(&world).len(), 1 + usize::from(whole), "{point}, {choice}");
                assert!(parked_content(&store, id, "b").unwrap() == content(STAGE + 1, 1), "{point}, {choice}");
                assert_eq!(parked_content(&store, id, "small").unwrap(), content(10, 2), "{point}, {choice}");
                ControlFlow::Continue(())
            });
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}

/// A group that is discarded is gone with its content files, or is there with them: whenever the power fails.
#[test]
fn a_discarded_group_goes_before_its_content_files() {
    for config in media() {
        let world = world(config.clone(), None);
        let store = open(&world);
        let id = park(&store, &[("a", STAGE), ("b", STAGE)]);
        let first = world.trace().events.len() as u64;
        store.discard(id).unwrap();
        assert_eq!(count(&world, PARKED), 0);
        let trace = world.trace();
        let limits = ExploreLimits { exhaustive_bits: 3, samples: 8, ..ExploreLimits::default() };
        let mut explorer = Explorer::new(&trace);
        let mut seen = [0, 0];
        for point in first..=trace.events.len() as u64 {
            explorer.seek(point);
            explorer.for_each_image(&limits, |choice, image| {
                let world = World::from_image(image, config.clone());
                let store = open(&world);
                let is_there = !store.parked().unwrap().is_empty();
                seen[usize::from(is_there)] += 1;
                assert_eq!(count(&world, PARKED), if is_there { 3 } else { 0 }, "{point}, {choice}");
                if is_there {
                    assert!(parked_content(&store, id, "b").unwrap() == content(STAGE, 1), "{point}, {choice}");
                }
                ControlFlow::Continue(())
            });
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    }
}

/// Somebody has changed a content file, cut it, replaced or removed it: a checker says so, it is neither shown nor
/// applied, and the group can be discarded. One that belongs to no group a checker names, and the next open removes.
#[test]
fn damage_of_a_content_file_is_found() {
    let damages: [fn(&Path); 5] = [
        |path| fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"others", 5).unwrap(),
        |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap(),
        |path| fs::remove_file(path).unwrap(),
        |path| {
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink("../../a", path).unwrap();
        },
        |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        },
    ];
    for (dir, medium) in stores_of_files("parked-staged-damage") {
        for (number, damage) in damages.iter().enumerate() {
            let store = open_on(&dir, medium);
            let id = park(&store, &[("new", LARGE)]);
            let path = dir.join(format!("{PARKED}/{:x}", id.0));
            let name = fs::read_dir(dir.join(PARKED)).unwrap().map(|entry| entry.unwrap().path());
            let content = name.into_iter().find(|name| *name != path).unwrap();
            damage(&content);
            let look = |store: &Store| parked_content(store, id, "new").unwrap_err();
            for error in [look(&store), store.apply(id).unwrap_err()] {
                assert!(matches!(error, Error::Corrupt { .. }), "damage {number}: {error}");
            }
            assert!(!dir.join("new").exists() && store.open_file("new").is_err());
            drop(store);
            let kinds =
                || -> Vec<_> { wholly::check(&*dir).unwrap().findings.iter().map(|finding| finding.kind).collect() };
            assert_eq!(kinds(), [FindingKind::Parked], "damage {number}");
            let store = open_on(&dir, medium);
            store.discard(id).unwrap();
            drop(store);
            if content.is_dir() {
                // The store removes no directory that it has not made.
                fs::remove_dir(&content).unwrap();
            }
            fs::write(dir.join(PARKED).join("1000000000a.7"), "left").unwrap();
            assert_eq!(kinds(), [FindingKind::Torn]);
            drop(open_on(&dir, medium));
            assert_eq!(fs::read_dir(dir.join(PARKED)).unwrap().count(), 0, "damage {number}");
        }
    }
}

/// What is parked goes with a copy of the store, as it does in a backup, which may have whole seconds only.
#[test]
fn a_copy_has_the_content_files() {
    for (dir, medium) in stores_of_files("parked-staged-copy") {
        let store = open_on(&dir, medium);
        let id = park(&store, &[("new", LARGE)]);
        store.close().unwrap();
        let copy = Dir::new(dir.parent().unwrap(), "parked-staged-copied");
        let (from, to) = (dir.join("."), &*copy);
        assert!(Command::new("cp").arg("-a").args([from.as_path(), to]).status().unwrap().success());
        let parked = fs::read_dir(copy.join(PARKED)).unwrap().map(|entry| entry.unwrap().path());
        for path in parked {
            let file = fs::File::open(&path).unwrap();
            let time = file.metadata().unwrap().modified().unwrap();
            let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
            file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        }
        let options = Options { accept_copy: true, background: false, ..Options::default() };
        let host = HostOptions { medium, ..HostOptions::default() };
        let store = Store::open_with(&*copy, options, host).unwrap();
        store.apply(id).unwrap();
        store.close().unwrap();
        assert!(fs::read(copy.join("new")).unwrap() == content(LARGE, 0));
    }
}
