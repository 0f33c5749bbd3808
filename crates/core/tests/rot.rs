//! Bytes of the log that rotted, one at a time and chosen: each is detected, and the error names the place.

use std::sync::Arc;

use wholly::{Error, Options, Store};
use wholly_media::sim::{SimConfig, World};
use wholly_media::{Region, Site};

const ROT: Site = Site("test.rot");

fn options() -> Options {
    Options {
        segment_bytes: 16 << 10,
        log_min_bytes: 64 << 10,
        log_max_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

fn world(config: SimConfig) -> Arc<World> {
    let world = World::new(SimConfig { log_len: 0, ..config });
    world.add_file("a", &[0; 10_000]);
    Store::format_on(&*world.log(), &*world.host(), &options(), [3; 16]).unwrap();
    world
}

fn open(world: &Arc<World>) -> wholly::Result<Store> {
    Store::open_on(world.log(), world.host(), options(), None)
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

/// The older slot tells an older tail: what is between the tails is partly overwritten, and the rest would be replayed over newer files.
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
        assert!(place.contains("superblock"), "{place}: {fault}");
    }
}
