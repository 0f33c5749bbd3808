//! The store whose log is scribbled on, here and in the test `fuzz_recovery`.

use std::sync::Arc;

use wholly::{Fallocate, Options, Store};
use wholly_sim::{SimConfig, World};

/// Bytes of a segment.
pub const SEGMENT: usize = 4096;
/// Bytes of the file `a`.
pub const LENGTH: usize = 6000;
/// The identity of the store.
pub const VOLUME: [u8; 16] = [3; 16];

/// How the store is opened.
pub fn options() -> Options {
    Options {
        segment_bytes: SEGMENT as u64,
        log_min_bytes: 16 << 10,
        log_max_bytes: 1 << 20,
        background: false,
        ..Options::default()
    }
}

/// A store that was killed, with a log of small groups, large ones, created files, a truncation, holes, aborted groups
/// and two incarnations.
pub fn filled(config: SimConfig) -> Arc<World> {
    let world = World::new(SimConfig { log_len: 0, ..config });
    world.add_file("a", &[0; LENGTH]);
    Store::format_on(&*world.log(), &options(), VOLUME).unwrap();
    for life in 0..2u8 {
        let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
        let file = store.open_file("a").unwrap();
        for round in 1..6u8 {
            let mut group = store.begin();
            group.write_at(&file, 0, &vec![life * 16 + round; if round % 2 == 0 { LENGTH } else { 100 }]).unwrap();
            if round == 3 {
                let created = group.create(format!("c{life}"), 0o600).unwrap();
                group.append(&created, &[round; 500]).unwrap();
                group.set_len(&created, 200).unwrap();
            }
            if round == 5 {
                let how = [Fallocate::Punch, Fallocate::ZeroExtend][usize::from(life)];
                group.fallocate(&file, how, 1000, 5000).unwrap();
                group.write_at(&file, 4000, &[round; 300]).unwrap();
            }
            if round == 4 { group.abort() } else { group.commit().unwrap() }
        }
    }
    world
}
