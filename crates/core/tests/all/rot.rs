//! Bytes of the log that rotted, one at a time and chosen: each is detected, and the error names the place.

use std::sync::Arc;

use crate::common::small;
use wholly::{Error, Store};
use wholly_media::{Region, Site};
use wholly_sim::{SimConfig, World};

const ROT: Site = Site("test.rot");

fn world(config: SimConfig) -> Arc<World> {
    let world = World::new(SimConfig { log_len: 0, ..config });
    world.add_file("a", &[0; 10_000]);
    Store::format_on(&*world.log(), &small(), [3; 16]).unwrap();
    world
}

fn open(world: &Arc<World>) -> wholly::Result<Store> {
    Store::open_on(world.log(), world.host(), small(), None)
}

fn flip(log: &dyn Region, at: u64) {
    // A disk is written in blocks.
    let block = at & !511;
    let mut bytes = [0; 512];
    log.read(block, &mut bytes).unwrap();
    bytes[(at - block) as usize] ^= 1;
    log.write(ROT, block, &bytes).unwrap();
    log.fence(ROT).unwrap();
}

/// The older slot tells an older tail: what is between the tails is partly overwritten, and the rest would be replayed
/// over newer files.
#[test]
fn a_superblock_that_rots_is_not_replaced_by_the_one_before_it() {
    for config in [SimConfig::pmem(), SimConfig::disk()] {
        let world = world(config);
        let store = open(&world).unwrap();
        let file = store.open_file("a").unwrap();
        for round in 0..6u8 {
            for _ in 0..8 {
                let mut group = store.begin();
                group.write_at(&file, 0, &[round; 6000]).unwrap();
                group.commit().unwrap();
            }
            if round < 5 {
                store.checkpoint().unwrap();
            }
        }
        let generation = store.log().superblock().generation;
        drop((file, store));
        flip(&*world.log(), generation % 2 * 4096 + 80);
        let Err(Error::Corrupt { place, fault }) = open(&world) else { panic!("an older superblock is in force") };
        // The older one may also count segments that the log gave back since.
        assert!(place.contains("superblock") || fault.contains("cut off"), "{place}: {fault}");
    }
}

/// What rotted was overwritten, and its segment is in use again: what stands there now is sound.
#[test]
fn rot_goes_with_the_segment_that_it_was_in() {
    for config in [SimConfig::pmem(), SimConfig::disk()] {
        let world = world(config);
        let fill = |store: &Store, byte: u8| {
            let file = store.open_file("a").unwrap();
            let mut group = store.begin();
            group.write_at(&file, 0, &[byte; 9000]).unwrap();
            group.commit().unwrap();
        };
        fill(&open(&world).unwrap(), 1);
        // A group that follows, so that the first is not taken for torn.
        let store = open(&world).unwrap();
        fill(&store, 2);
        drop(store);
        let mut log = vec![0; world.log().len() as usize];
        world.log().read(0, &mut log).unwrap();
        let payload = log.windows(9000).position(|bytes| bytes == [1; 9000]).unwrap();
        flip(&*world.log(), payload as u64 + 4500);

        let store = open(&world).unwrap();
        let file = store.open_file("a").unwrap();
        let mut group = store.begin();
        group.set_len(&file, 0).unwrap();
        group.commit().unwrap();
        let rotten = store.log().verify_all();
        assert_eq!(rotten.unwrap(), 1, "it was seen");
        store.checkpoint().unwrap();
        for byte in 0..40 {
            fill(&store, byte);
            let mut bytes = [0; 9000];
            assert_eq!(file.read_at(0, &mut bytes).unwrap(), 9000);
            assert!(bytes == [byte; 9000]);
            store.checkpoint().unwrap();
        }
    }
}

fn commit(store: &Store, byte: u8) {
    let file = store.open_file("a").unwrap();
    let mut group = store.begin();
    group.write_at(&file, 0, &[byte; 700]).unwrap();
    group.commit().unwrap();
}

fn bytes_of(world: &Arc<World>) -> Vec<u8> {
    let mut log = vec![0; world.log().len() as usize];
    world.log().read(0, &mut log).unwrap();
    log
}

fn payload(world: &Arc<World>, byte: u8) -> u64 {
    bytes_of(world).windows(700).position(|bytes| bytes == [byte; 700]).unwrap() as u64
}

/// Nothing stands behind the end of what a life wrote that would tell of it, once that life is over; the superblock
/// does.
#[test]
fn the_end_of_an_earlier_life_is_not_taken_for_torn() {
    for config in [SimConfig::pmem(), SimConfig::disk()] {
        let world = world(config);
        for byte in [1, 2, 3] {
            commit(&open(&world).unwrap(), byte);
        }
        let image = world.latest();
        for byte in [1, 2] {
            let broken = |at: u64| {
                let world = World::from_image(&image, world.config().clone());
                flip(&*world.log(), at);
                open(&world)
            };
            let at = payload(&world, byte);
            let segment = 8192 + (at - 8192) / (16 << 10) * (16 << 10);
            for at in [segment + 8, at - 64] {
                let Err(Error::Corrupt { place, fault }) = broken(at) else {
                    panic!("life {byte} is gone without a word")
                };
                assert!(place.starts_with("log, "), "{place}: {fault}");
            }
            // Rot in what it wrote is told when it is read, or overwritten without a word.
            assert!(broken(at).is_ok());
        }
    }
}

/// The last group looks torn, and would be wiped; another one is rotten.
#[test]
fn a_corrupt_log_is_left_as_it_is() {
    for config in [SimConfig::pmem(), SimConfig::disk()] {
        let world = world(config);
        let store = open(&world).unwrap();
        (1..4).for_each(|byte| commit(&store, byte));
        drop(store);
        flip(&*world.log(), payload(&world, 3) + 600);
        flip(&*world.log(), payload(&world, 2) - 64);
        let before = bytes_of(&world);
        assert!(matches!(open(&world), Err(Error::Corrupt { .. })));
        assert!(bytes_of(&world) == before, "it was changed before it was refused");
    }
}
