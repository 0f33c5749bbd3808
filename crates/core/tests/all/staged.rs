//! Files that a group makes and writes much to: what that costs, what is left of it when the group does not commit, and
//! what else the group may do to them meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::staging::{STAGE, content, count, media, open, options, read, world};
use rustix::io::Errno;
use wholly::{Error, Fallocate, Options, Rename, Store, site};
use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind, SimConfig, World};

/// How many files there are in the folder in which files are staged.
fn blanks(world: &Arc<World>) -> usize {
    count(world, ".wholly/blank")
}

/// The bytes are written to where they stay, and nowhere else.
#[test]
fn bytes_of_a_large_new_file_are_written_once() {
    for config in media() {
        let world = world(config);
        let store = open(&world);
        let bytes = content(4 << 20, 1);
        let before = store.stat().log_bytes_written;
        let mut group = store.begin();
        let file = group.create("large", 0o640).unwrap();
        for (i, piece) in bytes.chunks(100_000).enumerate() {
            group.write_at(&file, i as u64 * 100_000, piece).unwrap();
        }
        assert_eq!(blanks(&world), 1);
        group.commit().unwrap();
        drop(file);
        assert_eq!(read(&store, "large"), bytes);
        let store = {
            drop(store);
            open(&world)
        };
        assert_eq!(read(&store, "large"), bytes);
        store.checkpoint().unwrap();
        let stat = store.stat();
        assert_eq!((stat.home_bytes_written, blanks(&world)), (0, 0));
        assert!(stat.log_bytes_written + before < STAGE as u64, "{}", stat.log_bytes_written);
        assert_eq!(world.host().stat(b"large").unwrap().mode & 0o7777, 0o640);
        store.close().unwrap();
    }
}

/// Small writes go to the log, until they are many; what they wrote, cut and zeroed is in the staged file.
#[test]
fn what_was_in_the_log_moves() {
    for config in media() {
        let world = world(config);
        let store = open(&world);
        let mut group = store.begin();
        let file = group.create("a", 0o600).unwrap();
        let mut model = Vec::new();
        for i in 0..40usize {
            let piece = content(3000, i as u8);
            let at = i * 2500;
            model.resize(model.len().max(at + 3000), 0);
            model[at..at + 3000].copy_from_slice(&piece);
            group.write_at(&file, at as u64, &piece).unwrap();
            if i % 10 == 5 {
                model.truncate(at + 1000);
                group.set_len(&file, at as u64 + 1000).unwrap();
            }
            if i % 10 == 7 {
                model[5000..15_000].fill(0);
                group.fallocate(&file, Fallocate::Punch, 5000, 10_000).unwrap();
                model.resize(model.len().max(at + 9000), 0);
                group.fallocate(&file, Fallocate::Extend, at as u64, 9000).unwrap();
            }
            let mut seen = vec![0xee; model.len() + 1];
            let read = group.read_at(&file, 0, &mut seen).unwrap();
            assert!(seen[..read] == model[..], "after write {i}");
        }
        assert_eq!(blanks(&world), 1);
        group.commit().unwrap();
        drop((file, store));
        let store = open(&world);
        assert!(read(&store, "a") == model);
        store.close().unwrap();
        assert_eq!(world.host().stat(b"a").unwrap().size, model.len() as u64);
    }
}

#[test]
fn nothing_is_left_of_what_nobody_can_find() {
    for config in media() {
        let world = world(config);
        let store = open(&world);
        let make = |path: &str| {
            let mut group = store.begin();
            let file = group.create(path, 0o600).unwrap();
            group.write_at(&file, 0, &content(STAGE, 3)).unwrap();
            assert_eq!(blanks(&world), 1);
            (group, file)
        };
        let (group, file) = make("aborted");
        group.abort();
        assert_eq!(blanks(&world), 0, "at once");
        assert_eq!(file.len(), 0);
        drop(file);

        // Its name is gone before the group commits; who has it open goes on.
        let (mut group, file) = make("unlinked");
        group.unlink("unlinked").unwrap();
        group.commit().unwrap();
        assert_eq!((blanks(&world), file.len()), (0, STAGE as u64));
        file.write_at(10, b"more").unwrap();
        store.checkpoint().unwrap();
        let mut bytes = [0; 20];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!((&bytes[10..14], &bytes[..10]), (&b"more"[..], &content(20, 3)[..10]));
        drop(file);

        // Its name goes before it is home.
        let (group, file) = make("short-lived");
        group.commit().unwrap();
        drop(file);
        store.unlink("short-lived").unwrap();
        assert_eq!(blanks(&world), 1);
        store.checkpoint().unwrap();
        assert_eq!(blanks(&world), 0, "with the pass that finds it so");

        // The process dies.
        let (group, file) = make("lost");
        std::mem::forget((group, file));
        let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
        assert_eq!(blanks(&world), 0);
        assert!(matches!(store.open_file("lost"), Err(Error::NotFound(_))));
    }
}

/// Of more files than a group keeps open all are whole; a failing sync is an error of the group that asked for it.
#[test]
fn many_are_staged_at_once() {
    let world = world(SimConfig::disk());
    let store = open(&world);
    let mut group = store.begin();
    let files: Vec<_> = (0..100u8).map(|i| group.create(format!("f{i}"), 0o600).unwrap()).collect();
    for half in [0, STAGE] {
        for (i, file) in files.iter().enumerate() {
            group.write_at(file, half as u64, &content(STAGE, i as u8)).unwrap();
        }
    }
    let barriers = store.stat().syncs;
    group.commit().unwrap();
    let barriers = store.stat().syncs - barriers;
    assert!(barriers < 10, "one for all files, the others for a record that fills segments: {barriers}");
    drop((files, store));
    let store = open(&world);
    for i in 0..100u8 {
        assert!(read(&store, &format!("f{i}")) == content(STAGE, i).repeat(2), "f{i}");
    }
    store.close().unwrap();
}

/// Who closes the store has other groups go on, as they may.
#[test]
fn a_close_leaves_what_others_stage() {
    for config in media() {
        let world = world(config);
        let store = open(&world);
        let mut group = store.begin();
        let file = group.create("a", 0o600).unwrap();
        group.write_at(&file, 0, &content(STAGE, 1)).unwrap();
        store.clone().close().unwrap();
        assert_eq!(blanks(&world), 1);
        group.write_at(&file, STAGE as u64, &content(STAGE, 2)).unwrap();
        group.commit().unwrap();
        drop((file, store));
        let store = open(&world);
        assert!(read(&store, "a") == [content(STAGE, 1), content(STAGE, 2)].concat());
        store.close().unwrap();
        assert_eq!(blanks(&world), 0);
    }
}

#[test]
fn who_has_it_open_keeps_it() {
    let world = world(SimConfig::disk());
    let store = open(&world);
    let mut group = store.begin();
    let files: Vec<_> = (0..70u8).map(|i| group.create(format!("f{i}"), 0o400).unwrap()).collect();
    for (i, file) in files.iter().enumerate() {
        group.write_at(file, 0, &content(STAGE, i as u8)).unwrap();
    }
    group.commit().unwrap();
    store.checkpoint().unwrap();
    (0..70u8).for_each(|i| store.unlink(format!("f{i}")).unwrap());
    store.checkpoint().unwrap();
    for (i, file) in files.iter().enumerate() {
        let mut bytes = vec![0; STAGE];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), STAGE);
        assert!(bytes == content(STAGE, i as u8), "f{i}");
    }
    assert_eq!(blanks(&world), 0);

    // Of a group that aborts nobody sees anything, whatever it had opened.
    let mut group = store.begin();
    let file = group.create("a", 0o600).unwrap();
    group.write_at(&file, 0, &content(STAGE, 1)).unwrap();
    let again = group.open_file("a").unwrap();
    group.abort();
    for file in [&file, &again] {
        assert_eq!((file.len(), file.read_at(0, &mut [0; 10]).unwrap()), (0, 0));
    }
    // A call by itself looks at the host file again, if there is any.
    let _ = again.write_at(0, b"x");
    assert!(again.len() <= 1, "{}", again.len());
}

/// Of files that are written and replaced, or written and removed, the old ones do not stay until the log is full.
#[test]
fn what_has_lost_its_name_does_not_pile_up() {
    for config in media() {
        let world = world(config);
        let store = open(&world);
        for i in 0..40u8 {
            let mut group = store.begin();
            let file = group.create("new", 0o600).unwrap();
            group.write_at(&file, 0, &content(STAGE, i)).unwrap();
            group.rename("new", "a", Rename::Replace).unwrap();
            group.commit().unwrap();
            assert!(blanks(&world) <= 6, "{} after {i}", blanks(&world));
        }
        assert!(read(&store, "a") == content(STAGE, 39));
        store.close().unwrap();
    }
}

/// In the background as well, where the log alone, in which staged files are a few lines, asks for no pass.
#[test]
fn what_has_lost_its_name_goes_in_the_background() {
    for config in media() {
        let world = world(config);
        let options = Options { background: true, log_min_bytes: 256 << 10, ..options() };
        let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
        let stage = |i: u8| {
            let mut group = store.begin();
            let file = group.create("new", 0o600).unwrap();
            group.write_at(&file, 0, &content(STAGE, i)).unwrap();
            group.rename("new", "a", Rename::Replace).unwrap();
            group.commit().unwrap();
        };
        // As much as the log would hold; and who stages the next file asks for a pass.
        (0..5).for_each(stage);
        let since = Instant::now();
        while blanks(&world) > 1 {
            assert!(since.elapsed() < Duration::from_secs(600), "nobody takes home what is staged");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(read(&store, "a") == content(STAGE, 4));
        store.close().unwrap();
    }
}

fn fails(at: Site, errno: Errno) -> Arc<World> {
    world(SimConfig { mutations: vec![Mutation::new(at, MutationKind::Fail(errno))], ..SimConfig::disk() })
}

#[test]
fn what_fails_is_the_groups_own_matter() {
    // The group goes on where nothing was done.
    let world = fails(site::STAGE_MAKE, Errno::NOSPC);
    let store = open(&world);
    let mut group = store.begin();
    let file = group.create("a", 0o600).unwrap();
    group.write_at(&file, 0, b"small").unwrap();
    assert!(matches!(group.write_at(&file, 5, &content(STAGE, 1)), Err(Error::NoSpace(_))));
    group.commit().unwrap();
    assert_eq!((read(&store, "a"), blanks(&world)), (b"small".to_vec(), 0));

    for (at, survives) in [(site::STAGE_WRITE, true), (site::STAGE_SYNC, true), (site::STAGE_SYNC_DIR, false)] {
        let world = fails(at, Errno::IO);
        let store = open(&world);
        let mut group = store.begin();
        let file = group.create("a", 0o600).unwrap();
        let written = group.write_at(&file, 0, &content(STAGE, 1));
        written.and_then(|()| group.commit()).unwrap_err();
        drop(file);
        assert_eq!(store.create_file("b", 0o600).is_ok(), survives, "{at:?}");
        drop(store);
        let store = open(&world);
        assert!(matches!(store.open_file("a"), Err(Error::NotFound(_))), "{at:?}");
        assert_eq!(blanks(&world), 0, "{at:?}");
    }
}

/// What a bystander takes out of the store's own folder is missed.
#[test]
fn what_is_gone_is_a_conflict() {
    let world = world(SimConfig::disk());
    let store = open(&world);
    let mut group = store.begin();
    let file = group.create("a", 0o600).unwrap();
    group.write_at(&file, 0, &content(STAGE, 1)).unwrap();
    group.commit().unwrap();
    drop((file, store));
    let name = world.host().read_dir(b".wholly/blank").unwrap().remove(0).name;
    world.host().unlink(Site("test.unlink"), &[b".wholly/blank/", &name[..]].concat()).unwrap();
    let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
    let conflict = ("a".into(), "what a group has written of it is gone".to_string());
    assert_eq!(store.recovery().conflicts, [conflict]);
    assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })));
}

#[test]
fn it_is_parked_like_any_other() {
    for config in media() {
        let world = world(config);
        let store = open(&world);
        let mut group = store.begin();
        let file = group.create("a", 0o600).unwrap();
        let mut bytes = content(STAGE, 1);
        group.write_at(&file, 0, &bytes).unwrap();
        group.fallocate(&file, Fallocate::Punch, 8192, 20_000).unwrap();
        bytes[8192..28_192].fill(0);
        group.set_len(&file, 3 * STAGE as u64).unwrap();
        bytes.resize(3 * STAGE, 0);
        let review = group.review().unwrap();
        assert_eq!(review.changes().len(), 1);
        drop(file);
        let mut other = store.begin();
        let file = other.create("b", 0o600).unwrap();
        other.write_at(&file, 0, &content(STAGE, 1)).unwrap();
        other.fallocate(&file, Fallocate::Keep, 0, 4 * STAGE as u64).unwrap();
        drop(file);
        let reserved = other.park("reserved", None).unwrap();
        let id = group.park("large", Some(Duration::from_secs(1000))).unwrap();
        assert_eq!(blanks(&world), 0);
        let parked = store.parked().unwrap();
        assert!(parked[0].space < 2 * STAGE as u64, "holes take no space: {}", parked[0].space);
        store.apply(id).unwrap();
        store.apply(reserved).unwrap();
        assert!(read(&store, "a") == bytes && read(&store, "b") == content(STAGE, 1));
        store.close().unwrap();
        assert!(world.host().stat(b"b").unwrap().allocated >= 4 * STAGE as u64);
    }
}
