//! What a commit promises, what a medium that fails makes of it, and what a running group leaves to others, with each
//! engine that has groups. Simulated, but for the death of a process with thousands of files in a group.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Explorer, Mutation, MutationKind, SimConfig, World};
use wholly_volume::{EngineKind, Volume, VolumeGroup, VolumeOptions};

use super::place::Place;

const BYTES: usize = 9000;
const NAMES: [&str; 2] = ["a", "b"];

/// Each engine that has groups, the media that it is for, and where it commits.
fn engines() -> impl Iterator<Item = (EngineKind, SimConfig, Site)> {
    let with_groups = EngineKind::ALL.iter().copied().filter(|engine| engine.promises_groups());
    with_groups.flat_map(|engine| {
        let config = if engine.takes_disks() { SimConfig::disk() } else { SimConfig::pmem() };
        let commits =
            engine.sites().into_iter().filter(|site| site.0.ends_with(".commit.fence") || site.0 == "pages.commit");
        let commits: Vec<Site> = commits.collect();
        assert_eq!(commits.len(), 1, "{}: {commits:?}", engine.name());
        commits.into_iter().map(move |site| (engine, SimConfig { log_len: 4 << 20, ..config.clone() }, site))
    })
}

fn options(engine: EngineKind) -> VolumeOptions {
    VolumeOptions { engine: Some(engine), cache_bytes: 1 << 20, ..VolumeOptions::default() }
}

/// A volume with both files, which is not open.
fn world(engine: EngineKind, config: &SimConfig) -> Arc<World> {
    let world = World::new(config.clone());
    Volume::format_region(&*world.log(), &options(engine)).expect("make a volume");
    let volume = open(&world, engine);
    for name in NAMES {
        volume.create_file(name, 0o644).and_then(|file| file.write_at(0, &[0; BYTES])).expect("make a file");
    }
    volume.close().expect("close it");
    World::from_image(&world.latest(), config.clone())
}

fn open(world: &Arc<World>, engine: EngineKind) -> Volume {
    Volume::open_region(world.log(), &options(engine)).expect("open it")
}

/// Writes a byte to all of both files.
fn write(volume: &Volume, byte: u8) -> wholly::Result<VolumeGroup> {
    let mut group = volume.begin();
    for name in NAMES {
        let file = volume.open_file(name)?;
        group.write_at(&file, 0, &[byte; BYTES])?;
    }
    Ok(group)
}

/// The byte that all of both files is.
fn byte(volume: &Volume) -> u8 {
    let [a, b] = NAMES.map(|name| volume.read_file(name).expect("read it"));
    assert!(a.len() == BYTES && a == b && a.iter().all(|byte| *byte == a[0]), "they are torn");
    a[0]
}

/// The power fails now: what a mount finds in each of some states, the poorest of which has nothing that is not
/// durable.
fn power_fails(world: &Arc<World>, config: &SimConfig, look: impl Fn(&Arc<World>)) {
    let trace = world.trace();
    let mut explorer = Explorer::new(&trace);
    explorer.seek(trace.events.len() as u64);
    let (limits, mut states) = (ExploreLimits { exhaustive_bits: 3, samples: 8, ..ExploreLimits::default() }, 0);
    explorer.for_each_image(&limits, |_, image| {
        states += 1;
        look(&World::from_image(image, config.clone()));
        ControlFlow::Continue(())
    });
    assert!(states > 0);
}

/// A group that is atomic and in order is durable, too, but with the engine that orders in memory: there it is whole or
/// not there. A later commit, or a sync, makes it durable.
#[test]
fn commit_atomic_is_atomic_and_a_commit_makes_it_durable() {
    for (engine, config, _) in engines() {
        let world = world(engine, &config);
        let volume = open(&world, engine);
        write(&volume, 1).and_then(VolumeGroup::commit_atomic).expect("commit");
        let orders = matches!(engine, EngineKind::PageCacheWal | EngineKind::OpLog | EngineKind::MultiQueue);
        let found = Mutex::new(BTreeSet::new());
        power_fails(&world, &config, |world| _ = found.lock().unwrap().insert(byte(&open(world, engine))));
        assert_eq!(found.into_inner().unwrap(), [u8::from(!orders)].into(), "{}", engine.name());
        volume.sync().expect("sync");
        power_fails(&world, &config, |world| assert_eq!(byte(&open(world, engine)), 1, "{}", engine.name()));
        write(&volume, 2).and_then(VolumeGroup::commit_atomic).expect("commit");
        write(&volume, 3).and_then(VolumeGroup::commit).expect("commit");
        power_fails(&world, &config, |world| assert_eq!(byte(&open(world, engine)), 3, "{}", engine.name()));
        volume.close().expect("close it");
    }
}

/// What makes a group durable fails once. It is not tried again, and nothing changes until the next mount, which finds
/// all of that group or nothing.
#[test]
fn a_failed_commit_ends_all_changes_until_the_next_mount() {
    for (engine, config, at) in engines() {
        let (name, sound) = (engine.name(), world(engine, &config));
        // In the second commit. The first one is two writes of a queue: fresh content goes home by itself.
        let nth = if engine == EngineKind::MultiQueue { 2 } else { 1 };
        let fails = Mutation { nth: Some(nth), ..Mutation::new(at, MutationKind::Fail(Errno::IO)) };
        let failing = SimConfig { mutations: vec![fails], ..config.clone() };
        let world = World::from_image(&sound.latest(), failing);
        let volume = open(&world, engine);
        let file = volume.open_file("a").expect("open it");
        write(&volume, 1).and_then(VolumeGroup::commit).expect("commit");
        let calls = || world.trace().events.iter().filter(|event| event.site == Some(at)).count();
        assert!(write(&volume, 2).and_then(VolumeGroup::commit).is_err(), "{name}: the medium fails");
        let before = calls();
        for round in 0..3 {
            let all = [
                write(&volume, 3).and_then(VolumeGroup::commit),
                file.write_at(0, b"x").map(drop),
                volume.mkdir("d", 0o700).map(drop),
                volume.unlink("b"),
                volume.sync(),
            ];
            for (number, refused) in all.into_iter().enumerate() {
                assert!(refused.is_err(), "{name}, round {round}: call {number}");
            }
        }
        assert_eq!(calls(), before, "{name}: it was tried again");
        drop(file);
        assert!(volume.close().is_err(), "{name}: that is told at the unmount, too");
        power_fails(&world, &config, |world| {
            let volume = open(world, engine);
            let found = byte(&volume);
            assert!([1, 2].contains(&found), "{name}: {found}");
            write(&volume, 4).and_then(VolumeGroup::commit).expect("commit");
            volume.close().expect("close it");
            assert_eq!(Volume::check_region(&*world.log()).expect("check it").findings, [], "{name}");
        });
    }
}

/// A group that runs for long keeps nobody from the log: others fill it many times over.
#[test]
fn a_running_group_does_not_hold_the_log() {
    for (engine, config, _) in engines() {
        let world = world(engine, &config);
        let volume = open(&world, engine);
        let mut running = write(&volume, 1).expect("write");
        let long = running.create("long", 0o600).expect("make a file");
        running.write_at(&long, 0, &[2; 80_000]).expect("write");
        let other = volume.create_file("c", 0o600).expect("make a file");
        let free = volume.stat().free_blocks;
        // Some 36 MiB with the old content, in a volume of 4 MiB.
        for round in 0..2000u32 {
            let mut group = volume.begin();
            group.write_at(&other, 0, &[round as u8; BYTES]).expect("write");
            group.commit().unwrap_or_else(|error| panic!("{}, round {round}: {error}", engine.name()));
        }
        let now = volume.stat().free_blocks;
        assert!(free.abs_diff(now) < 16, "{}: {free} blocks were free, {now} are", engine.name());
        assert_eq!(byte(&volume), 0, "it has not committed");
        running.commit().expect("commit");
        drop((long, other));
        volume.close().expect("close it");
        let volume = open(&world, engine);
        assert_eq!(byte(&volume), 1, "{}", engine.name());
        assert_eq!(volume.read_file("c").expect("read it"), [1999u32 as u8; BYTES]);
        assert_eq!(volume.read_file("long").expect("read it"), [2; 80_000]);
    }
}

/// A group makes thousands of files in many directories, and changes and removes as many. Its process dies before the
/// commit, or after it: nothing of it is there, or all.
#[test]
fn a_group_of_many_files_is_there_wholly_or_not_at_all() {
    const DIRS: usize = 20;
    const FILES: usize = 50;
    for engine in EngineKind::ALL.iter().copied().filter(|engine| engine.promises_groups()) {
        let place = Place::of_zeros(64 << 20, engine);
        let volume = place.open();
        for dir in 0..DIRS {
            volume.mkdir(format!("old{dir}"), 0o755).expect("make a directory");
            for file in 0..FILES {
                let file = volume.create_file(format!("old{dir}/{file}"), 0o644).expect("make a file");
                file.write_at(0, &[1; 100]).expect("write");
            }
        }
        volume.close().expect("close it");
        let change = |volume: &Volume| {
            let mut group = volume.begin();
            for dir in 0..DIRS {
                group.mkdir(format!("new{dir}"), 0o755).expect("make a directory");
                for number in 0..FILES {
                    let file = group.create(format!("new{dir}/{number}"), 0o600).expect("make a file");
                    group.write_at(&file, 0, &[2; 100]).expect("write");
                    let old = format!("old{dir}/{number}");
                    match number % 2 {
                        0 => group.unlink(&old).expect("remove it"),
                        _ => group.set_mode(&old, 0o640).map(drop).expect("change it"),
                    }
                }
            }
            group
        };
        let count = |volume: &Volume, name: &str| {
            let listed = (0..DIRS).map(|dir| volume.read_dir(format!("{name}{dir}")).map_or(0, |names| names.len()));
            listed.sum::<usize>()
        };
        let mode = |volume: &Volume| volume.metadata("old7/3").expect("it is there").mode & 0o7777;
        for commits in [false, true] {
            let volume = place.open();
            let group = change(&volume);
            match commits {
                true => group.commit().expect("commit"),
                false => std::mem::forget(group),
            }
            volume.abandon();
            place.expect_sound();
            let volume = place.open();
            let found = (count(&volume, "new"), count(&volume, "old"), mode(&volume));
            let wanted = if commits { (DIRS * FILES, DIRS * FILES / 2, 0o640) } else { (0, DIRS * FILES, 0o644) };
            assert_eq!(found, wanted, "{}", engine.name());
            volume.close().expect("close it");
        }
    }
}
