//! Files that exist and to which a group writes much: what that costs, what is left of it when the group does not
//! commit, and what lies above what.

use std::sync::Arc;
use std::time::Duration;

use crate::common::staging::{STAGE, content, count, media, open, options, read, world_with};
use rustix::io::Errno;
use wholly::{Error, Fallocate, Options, Policy, Store, site};
use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind, SimConfig, World};

fn shadows(world: &Arc<World>) -> usize {
    count(world, ".wholly/shadow")
}

/// With a store and a file `a` of so many bytes.
fn world_of(config: SimConfig, length: usize) -> Arc<World> {
    world_with(config, &[("a", &content(length, 0))])
}

/// Of bytes that are adjacent only the first go to the log, and nothing is copied home that the host can share.
#[test]
fn a_rewritten_file_is_written_once() {
    for config in media() {
        let world = world_of(config, 4 << 20);
        let store = open(&world);
        let bytes = content(4 << 20, 1);
        let mut group = store.begin();
        let file = group.open_file("a").unwrap();
        for (i, piece) in bytes.chunks(20_000).enumerate() {
            group.write_at(&file, i as u64 * 20_000, piece).unwrap();
        }
        assert_eq!(shadows(&world), 1);
        let mut seen = vec![0; bytes.len()];
        assert_eq!(group.read_at(&file, 0, &mut seen).unwrap(), bytes.len());
        assert!(seen == bytes && read(&store, "a") == content(4 << 20, 0));
        group.commit().unwrap();
        drop(file);
        assert!(read(&store, "a") == bytes);
        drop(store);
        let store = open(&world);
        assert!(read(&store, "a") == bytes);
        let logged = store.checkpoint().unwrap().bytes;
        assert!(logged < STAGE as u64, "{logged} bytes were copied home");
        assert_eq!(shadows(&world), 0);
        store.close().unwrap();
        let mut home = vec![0; bytes.len() + 1];
        assert_eq!(world.host().open(b"a", false).unwrap().read_at(0, &mut home).unwrap(), bytes.len());
        assert!(home[..bytes.len()] == bytes);
    }
}

/// Writes by large calls and small ones, cuts and holes, in any order, in several groups, against a plain vector.
#[test]
fn what_is_written_last_lies_on_top() {
    for config in media() {
        let world = world_of(config, 200_000);
        let mut store = open(&world);
        let mut model = content(200_000, 0);
        let mut had_shadow = false;
        for round in 0..12u8 {
            let mut group = store.begin();
            let file = group.open_file("a").unwrap();
            for step in 0..6usize {
                let draw = usize::from(round) * 31 + step * 17;
                let (at, length) = (draw * 7919 % 150_000, [STAGE + 5000, 3000, STAGE, 70, 2 * STAGE][draw % 5]);
                let piece = content(length, round ^ (step as u8) << 4);
                model.resize(model.len().max(at + length), 0);
                model[at..at + length].copy_from_slice(&piece);
                group.write_at(&file, at as u64, &piece).unwrap();
                if draw % 7 == 3 {
                    model.truncate(at + length / 2);
                    group.set_len(&file, (at + length / 2) as u64).unwrap();
                }
                if draw % 7 == 5 {
                    let end = (at + 9000).min(model.len());
                    model[at + 100..end].fill(0);
                    group.fallocate(&file, Fallocate::Punch, at as u64 + 100, (end - at - 100) as u64).unwrap();
                }
                let mut seen = vec![0xee; model.len() + 1];
                let length = group.read_at(&file, 0, &mut seen).unwrap();
                assert!(seen[..length] == model[..], "round {round}, step {step}");
            }
            group.commit().unwrap();
            had_shadow |= shadows(&world) > 0;
            match round % 4 {
                0 => drop(store.checkpoint().unwrap()),
                2 => {
                    drop((file, store));
                    store = open(&world);
                }
                _ => {}
            }
            assert!(read(&store, "a") == model, "after round {round}");
        }
        assert!(had_shadow);
        store.close().unwrap();
        assert!(read(&open(&world), "a") == model);
    }
}

#[test]
fn nothing_is_left_of_a_group_that_does_not_commit() {
    for config in media() {
        let world = world_of(config, 300_000);
        let store = open(&world);
        let write = || {
            let mut group = store.begin();
            let file = group.open_file("a").unwrap();
            group.write_at(&file, 1000, &content(STAGE, 1)).unwrap();
            assert_eq!(shadows(&world), 1);
            (group, file)
        };
        let (group, _file) = write();
        group.abort();
        assert_eq!(shadows(&world), 0, "at once");
        assert!(read(&store, "a") == content(300_000, 0));

        // Others close the store meanwhile.
        let (group, _file) = write();
        store.clone().close().unwrap();
        assert_eq!(shadows(&world), 1);
        group.commit().unwrap();
        let changed = read(&store, "a");
        assert!(changed[1000..1000 + STAGE] == content(STAGE, 1));
        store.checkpoint().unwrap();

        // The process dies.
        let (group, file) = write();
        std::mem::forget((group, file));
        let store = open(&world);
        assert_eq!(shadows(&world), 0);
        assert!(read(&store, "a") == changed);
    }
}

/// Shadows of groups that have committed take space until a pass, which the log does not ask for.
#[test]
fn shadows_do_not_pile_up() {
    for config in media() {
        let world = world_of(config, 300_000);
        let store = open(&world);
        for i in 0..40u8 {
            let mut group = store.begin();
            let file = group.open_file("a").unwrap();
            group.write_at(&file, 0, &content(STAGE, i)).unwrap();
            group.commit().unwrap();
            assert!(shadows(&world) <= 6, "{} after {i}", shadows(&world));
        }
        assert!(read(&store, "a")[..STAGE] == content(STAGE, 39));
        store.close().unwrap();
        assert_eq!(shadows(&world), 0);
    }
}

#[test]
fn what_fails_is_the_groups_own_matter() {
    // Whether the write fails, whether the group commits all the same, and whether the store goes on.
    for (at, errno, fails, goes_on, survives) in [
        (site::SHADOW_MAKE, Errno::NOSPC, false, true, true),
        (site::SHADOW_WRITE, Errno::DQUOT, true, true, true),
        (site::SHADOW_SYNC, Errno::IO, false, false, true),
        (site::SHADOW_SYNC_DIR, Errno::IO, false, false, false),
    ] {
        let mutations = vec![Mutation::new(at, MutationKind::Fail(errno))];
        let world = world_of(SimConfig { mutations, ..SimConfig::disk() }, 300_000);
        let store = open(&world);
        let mut group = store.begin();
        let file = group.open_file("a").unwrap();
        group.write_at(&file, 5, b"small").unwrap();
        let written = group.write_at(&file, 100, &content(STAGE, 1));
        assert_eq!(written.is_err(), fails, "{at:?}");
        assert_eq!(group.commit().is_ok(), goes_on, "{at:?}");
        assert_eq!(store.create_file("b", 0o600).is_ok(), survives, "{at:?}");
        drop((file, store));
        let store = open(&world);
        let mut expected = content(300_000, 0);
        if goes_on {
            expected[5..10].copy_from_slice(b"small");
        }
        if goes_on && !fails {
            expected[100..100 + STAGE].copy_from_slice(&content(STAGE, 1));
        }
        assert!(read(&store, "a") == expected, "{at:?}");
        assert_eq!(shadows(&world), 0, "{at:?}");
    }
}

/// Each call would be a run of its own.
#[test]
fn files_that_are_written_in_turns_go_to_the_log() {
    let world = world_with(SimConfig::disk(), &[("a", &content(600_000, 0)), ("b", &content(600_000, 0))]);
    let store = open(&world);
    let before = store.stat().log_bytes_written;
    let mut group = store.begin();
    let files = ["a", "b"].map(|path| group.open_file(path).unwrap());
    for (i, piece) in content(600_000, 1).chunks(5000).enumerate() {
        files.iter().for_each(|file| group.write_at(file, i as u64 * 5000, piece).unwrap());
    }
    group.commit().unwrap();
    let logged = store.stat().log_bytes_written - before;
    assert!(logged > 1_000_000, "{logged}");
    drop((files, store));
    let store = open(&world);
    assert!(["a", "b"].iter().all(|path| read(&store, path) == content(600_000, 1)));
    store.close().unwrap();
}

/// Calls outside of groups, by every policy, and writers.
#[test]
fn whoever_writes_has_shadows() {
    let policies = [Policy::PerOp, Policy::PerSync, Policy::Shared { interval: Duration::from_secs(3600) }];
    for (config, policy) in media().into_iter().flat_map(|config| policies.map(|policy| (config.clone(), policy))) {
        let world = world_of(config, 300_000);
        let options = Options { policy, ..options() };
        let store = Store::open_on(world.log(), world.host(), options.clone(), None).unwrap();
        let file = store.open_file("a").unwrap();
        file.write_at(777, &content(2 * STAGE, 1)).unwrap();
        file.write_at(777 + 2 * STAGE as u64, &content(STAGE, 2)).unwrap();
        file.sync().unwrap();
        assert!(shadows(&world) > 0, "{policy:?}");
        let expected = read(&store, "a");
        drop((file, store));
        let store = open(&world);
        assert!(read(&store, "a") == expected && expected[777..777 + 2 * STAGE] == content(2 * STAGE, 1), "{policy:?}");
        store.checkpoint().unwrap();
        assert_eq!(shadows(&world), 0, "{policy:?}");

        let mut writer = store.writer();
        let file = store.open_file("a").unwrap();
        for i in 0..3u8 {
            let mut group = writer.begin();
            group.write_at(&file, 0, &content(STAGE, i)).unwrap();
            group.commit().unwrap();
        }
        store.checkpoint().unwrap();
        assert_eq!(shadows(&world), 0);
        assert!(read(&store, "a")[..STAGE] == content(STAGE, 2));
    }
}

/// What a bystander takes out of the store's own folder is missed.
#[test]
fn what_is_gone_is_a_conflict() {
    for (cut, change) in
        [(false, "what a group has written of it is gone"), (true, "what a group has written of it was cut off")]
    {
        let world = world_of(SimConfig::disk(), 300_000);
        let store = open(&world);
        let mut group = store.begin();
        let file = group.open_file("a").unwrap();
        group.write_at(&file, 0, &content(STAGE, 1)).unwrap();
        group.commit().unwrap();
        drop((file, store));
        let name = world.host().read_dir(b".wholly/shadow").unwrap().remove(0).name;
        let path = [b".wholly/shadow/", &name[..]].concat();
        match cut {
            true => world.host().open(&path, true).unwrap().set_len(Site("test.cut"), 10).unwrap(),
            false => world.host().unlink(Site("test.unlink"), &path).unwrap(),
        }
        let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
        assert_eq!(store.recovery().conflicts, [("a".into(), change.to_string())]);
        assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })));
    }
}
