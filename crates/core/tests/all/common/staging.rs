//! Stores in simulated worlds in which not much is too much for the log.

use std::sync::Arc;

use rustix::io::Errno;
use wholly::{Options, Store};
use wholly_sim::{SimConfig, World};

use super::small;

/// From so many bytes on they go to the host rather than to the log.
pub const STAGE: usize = 64 << 10;

pub fn options() -> Options {
    Options { log_max_bytes: 256 << 10, stage_bytes: STAGE as u64, ..small() }
}

pub fn media() -> [SimConfig; 2] {
    [SimConfig::pmem(), SimConfig::disk()]
}

pub fn world(config: SimConfig) -> Arc<World> {
    world_with(config, &[])
}

/// With files that are there before the store.
pub fn world_with(config: SimConfig, files: &[(&str, &[u8])]) -> Arc<World> {
    let world = World::new(SimConfig { log_len: 0, ..config });
    files.iter().for_each(|(path, bytes)| world.add_file(path, bytes));
    Store::format_on(&*world.log(), &options(), [5; 16]).unwrap();
    world
}

pub fn open(world: &Arc<World>) -> Store {
    let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
    assert!(store.recovery().conflicts.is_empty(), "{:?}", store.recovery().conflicts);
    store
}

/// How many files there are in one of the store's own folders.
pub fn count(world: &Arc<World>, folder: &str) -> usize {
    match world.host().read_dir(folder.as_bytes()) {
        Ok(entries) => entries.len(),
        Err(error) if error.errno == Errno::NOENT => 0,
        Err(error) => panic!("{error}"),
    }
}

pub fn content(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|i| (i / 7) as u8 ^ seed).collect()
}

pub fn read(store: &Store, path: &str) -> Vec<u8> {
    let file = store.open_file(path).unwrap();
    let mut bytes = vec![0xee; file.len() as usize + 1];
    let read = file.read_at(0, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}
