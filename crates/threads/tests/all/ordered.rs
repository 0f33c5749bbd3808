//! A device fails while four threads wait for what they have ordered: each of them is told, and none waits for ever.

use std::sync::Arc;

use rustix::io::Errno;
use scheduled::vfs::Timestamp;
use scheduled_volume::{Volume, VolumeOptions};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};
use sync::thread;
use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind, SimConfig, World};
use wholly_volume::EngineKind;

fn clock() -> Timestamp {
    Timestamp { sec: 2_000, nsec: 0 }
}

fn made() -> Arc<World> {
    let world = World::new(SimConfig { log_len: 128 * 4096, ..SimConfig::disk() });
    let options = wholly_volume::VolumeOptions {
        engine: Some(EngineKind::PageCacheWal),
        ..wholly_volume::VolumeOptions::default()
    };
    wholly_volume::Volume::format_region_as(&*world.log(), &options, *b"the device fails").expect("make a volume");
    world
}

fn run() {
    let fails = Mutation { site: Site("pages.commit"), kind: MutationKind::Fail(Errno::IO), nth: Some(1) };
    let world = World::from_image(&made().latest(), SimConfig { mutations: vec![fails], ..SimConfig::disk() });
    let options = VolumeOptions { cache_bytes: 1 << 20, clock, ..VolumeOptions::default() };
    let volume = Volume::open_region(world.log(), &options).expect("open it");
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let volume = volume.clone();
            thread::spawn(move || (0..2).map(|j| volume.mkdir(format!("{i}{j}"), 0o700).is_ok()).collect::<Vec<_>>())
        })
        .collect();
    let done: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("it ends")).collect();
    assert!(done.iter().any(|done| !done[1]), "the device has failed");
    assert!(!done.iter().any(|done| !done[0] && done[1]), "nothing succeeds after an error");
    assert!(volume.sync().is_err() && volume.mkdir("late", 0o700).is_err());
    volume.abandon();
}

#[test]
fn an_error_is_told_to_all_who_wait() {
    let count = if std::env::var_os("WHOLLY_LONG").is_some() { 5_000 } else { 200 };
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new(count), config.clone()).run(run);
    Runner::new(PctScheduler::new(3, count), config).run(run);
}
