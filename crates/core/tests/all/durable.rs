//! What a commit promises, what a medium that fails makes of it, and what a running group leaves to others: simulated.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::small;
use rustix::io::Errno;
use wholly::{Error, Options, Policy, Store, site};
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Explorer, Mutation, MutationKind, SimConfig, World};

const BYTES: usize = 9000;

/// Each medium, and where a small group is committed there.
fn media() -> [(SimConfig, Site); 2] {
    [(SimConfig::pmem(), site::LANE_COMMIT_FENCE), (SimConfig::disk(), site::BATCH_WRITE)]
}

fn world(config: &SimConfig, mutations: Vec<Mutation>) -> Arc<World> {
    let world = World::new(SimConfig { log_len: 0, mutations, ..config.clone() });
    ["a", "b", "c"].iter().for_each(|name| world.add_file(name, &[0; BYTES]));
    Store::format_on(&*world.log(), &small(), [7; 16]).unwrap();
    world
}

fn open(world: &Arc<World>, options: Options) -> Store {
    let store = Store::open_on(world.log(), world.host(), options, None).unwrap();
    assert!(store.recovery().conflicts.is_empty(), "{:?}", store.recovery().conflicts);
    store
}

/// The byte that all of a file is.
fn byte(store: &Store, name: &str) -> u8 {
    let mut bytes = vec![0xee; BYTES + 1];
    assert_eq!(store.open_file(name).unwrap().read_at(0, &mut bytes).unwrap(), BYTES, "{name}");
    assert!(bytes[..BYTES].iter().all(|byte| *byte == bytes[0]), "{name} is torn");
    bytes[0]
}

/// The power fails now: what a recovery finds in each of some states, the poorest of which has nothing that is not
/// durable.
fn power_fails(world: &Arc<World>, config: &SimConfig, look: impl Fn(Store)) {
    let trace = world.trace();
    let mut explorer = Explorer::new(&trace);
    explorer.seek(trace.events.len() as u64);
    let (limits, mut states) = (ExploreLimits { exhaustive_bits: 3, samples: 8, ..ExploreLimits::default() }, 0);
    explorer.for_each_image(&limits, |_, image| {
        states += 1;
        look(open(&World::from_image(image, config.clone()), small()));
        ControlFlow::Continue(())
    });
    assert!(states > 0);
}

/// Writes a byte to all of both files.
fn write(store: &Store, byte: u8) -> wholly::Result<wholly::Group<'_>> {
    let mut group = store.begin();
    for name in ["a", "b"] {
        let file = group.open_file(name)?;
        group.write_at(&file, 0, &[byte; BYTES])?;
    }
    Ok(group)
}

/// On each medium of today a group that is atomic and in order is durable, too. A later commit does not lose it.
#[test]
fn commit_atomic_is_a_commit() {
    for (config, _) in media() {
        let world = world(&config, Vec::new());
        let store = open(&world, small());
        write(&store, 1).unwrap().commit_atomic().unwrap();
        power_fails(&world, &config, |store| assert_eq!([byte(&store, "a"), byte(&store, "b")], [1, 1]));
        write(&store, 2).unwrap().commit_atomic().unwrap();
        write(&store, 3).unwrap().commit().unwrap();
        power_fails(&world, &config, |store| assert_eq!([byte(&store, "a"), byte(&store, "b")], [3, 3]));
    }
}

/// The fence, or the write, that makes a group durable fails once. It is not tried again, and nothing works until the
/// store is opened again, which finds all of that group or nothing.
#[test]
fn a_failed_commit_ends_everything_until_the_next_open() {
    for (config, at) in media() {
        let fails = Mutation { nth: Some(1), ..Mutation::new(at, MutationKind::Fail(Errno::IO)) };
        let world = world(&config, vec![fails]);
        let store = open(&world, small());
        let file = store.open_file("a").unwrap();
        write(&store, 1).unwrap().commit().unwrap();
        let calls = || world.trace().events.iter().filter(|event| event.site == Some(at)).count();
        let refused = write(&store, 2).unwrap().commit();
        assert!(matches!(refused, Err(Error::Poisoned(_))), "{at:?}: {refused:?}");
        let before = calls();
        for round in 0..3 {
            let all = [
                write(&store, 3).and_then(wholly::Group::commit),
                file.write_at(0, b"x").map(drop),
                file.sync(),
                store.mkdir("d", 0o700),
                store.checkpoint().map(drop),
            ];
            for refused in all {
                assert!(matches!(refused, Err(Error::Poisoned(_))), "{at:?}, round {round}: {refused:?}");
            }
        }
        assert_eq!(calls(), before, "{at:?}: it was tried again");
        drop(file);
        assert!(matches!(store.close(), Err(Error::Poisoned(_))), "{at:?}");
        power_fails(&world, &config, |store| {
            let found = [byte(&store, "a"), byte(&store, "b")];
            assert!([[1, 1], [2, 2]].contains(&found), "{at:?}: {found:?}");
            write(&store, 4).unwrap().commit().unwrap();
            store.close().unwrap();
        });
    }
}

/// Under the policies that let content wait, what waits for a file is durable before a call changes its name.
#[test]
fn names_come_after_pending_content() {
    for (config, _) in media() {
        for policy in [Policy::PerSync, Policy::Shared { interval: Duration::MAX }] {
            let world = world(&config, Vec::new());
            let store = open(&world, Options { policy, ..small() });
            let file = store.open_file("a").unwrap();
            file.write_at(0, &[5; BYTES]).unwrap();
            power_fails(&world, &config, |store| assert_eq!(byte(&store, "a"), 0, "it waits"));
            store.rename("a", "d", wholly::Rename::NoReplace).unwrap();
            power_fails(&world, &config, |store| {
                assert_eq!(byte(&store, "d"), 5, "{policy:?}");
                assert!(matches!(store.open_file("a"), Err(Error::NotFound(_))), "{policy:?}");
            });
        }
    }
}

/// Nobody asks for it: what is written under the policy `shared` is committed once its time has passed.
#[test]
fn a_timer_commits_the_shared_group() {
    for (config, _) in media() {
        let world = world(&config, Vec::new());
        let policy = Policy::Shared { interval: Duration::from_millis(1) };
        let store = open(&world, Options { policy, background: true, ..small() });
        let file = store.open_file("a").unwrap();
        file.write_at(0, &[5; BYTES]).unwrap();
        // What the process alone has is not there.
        while byte(&open(&World::from_image(&world.latest(), config.clone()), small()), "a") != 5 {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(file);
        store.close().unwrap();
    }
}

/// A group that runs for long, with much in the log, keeps nobody from the log: others fill it many times over.
#[test]
fn a_running_group_does_not_hold_the_log() {
    const MOST: u64 = 256 << 10;
    let options = Options { log_max_bytes: MOST, gather_bytes: 4096, ..small() };
    for (config, _) in media() {
        let world = world(&config, Vec::new());
        let store = open(&world, options.clone());
        let mut running = write(&store, 1).unwrap();
        let long = running.create("long", 0o600).unwrap();
        for piece in 0..20 {
            running.write_at(&long, piece * 4000, &[2; 4000]).unwrap();
        }
        for round in 0..200u8 {
            let mut group = store.begin();
            let file = group.open_file("c").unwrap();
            group.write_at(&file, 0, &[round; BYTES]).unwrap();
            group.commit().unwrap();
        }
        let bytes = u64::from(store.stat().segments) * small().segment_bytes;
        assert!(bytes <= MOST + 20 * 4096 + small().segment_bytes, "{bytes} bytes of log");
        assert_eq!(byte(&store, "a"), 0, "it has not committed");
        running.commit().unwrap();
        drop(long);
        store.close().unwrap();
        let store = open(&world, options.clone());
        assert_eq!([byte(&store, "a"), byte(&store, "b"), byte(&store, "c")], [1, 1, 199]);
        assert_eq!(store.open_file("long").unwrap().len(), 80_000);
    }
}
