//! A device's blocks and its region: words, orders, barriers, doorbells, the death of the process, resets.

use super::*;
use wholly_nvme::model::Rung;

fn device(in_order: bool, has_write_cache: bool) -> SimConfig {
    let rules = DeviceRules { region_len: 4096, in_order, has_write_cache };
    SimConfig { thread: logical, times: false, ..SimConfig::device(4, rules) }
}

/// The first words of the region, each by its first byte.
fn words(image: &Image) -> [u8; 2] {
    let below = World::from_image(image, device(false, true)).device();
    let mut bytes = [0; 16];
    below.region_read(0, &mut bytes).unwrap();
    [bytes[0], bytes[8]]
}

fn block(image: &Image) -> u8 {
    let log = image.read(&Place::Log).unwrap();
    let first = log[0];
    // Torn: old bytes, zeros, or anything behind the tear.
    if log[..4096].iter().all(|byte| *byte == first) { first } else { u8::MAX }
}

fn write(command: u64, value: u8) -> Rung {
    Rung { command, offset: 0, bytes: [value; 4096].into() }
}

#[test]
fn words_of_a_region_survive_each_by_itself_until_a_barrier() {
    let world = world(device(false, true));
    let below = world.device();
    below.region_store(W, 0, &[1; 16]).unwrap();
    let each = set([[0, 0], [0, 1], [1, 0], [1, 1]]);
    assert_eq!(seen(&world, words), each);
    below.region_order(F);
    assert_eq!(seen(&world, words), each, "an order makes nothing durable");
    below.region_barrier(F);
    assert_eq!(seen(&world, words), set([[1, 1]]));
}

#[test]
fn a_barrier_is_for_what_was_ordered() {
    let world = world(device(false, true));
    let below = world.device();
    on_thread(1, || below.region_store(W, 0, &[1; 8]).unwrap());
    on_thread(2, || {
        below.region_store(W, 8, &[1; 8]).unwrap();
        // It orders its own stores, and not those of others.
        below.region_order(F);
        below.region_barrier(F);
    });
    assert_eq!(seen(&world, words), set([[0, 1], [1, 1]]));
    on_thread(1, || below.region_order(F));
    on_thread(2, || below.region_barrier(F));
    assert_eq!(seen(&world, words), set([[1, 1]]));
}

#[test]
fn ordered_stores_survive_as_a_prefix() {
    let world = world(device(true, true));
    let below = world.device();
    below.region_store(W, 0, &[1; 8]).unwrap();
    below.region_order(F);
    below.region_store(W, 8, &[1; 8]).unwrap();
    assert_eq!(seen(&world, words), set([[0, 0], [1, 0], [1, 1]]), "none comes before what was ordered before it");
    below.region_order(F);
    assert_eq!(seen(&world, words), set([[0, 0], [1, 0], [1, 1]]));
    below.region_barrier(F);
    assert_eq!(seen(&world, words), set([[1, 1]]));
}

#[test]
fn stores_without_an_order_keep_none() {
    let world = world(device(true, true));
    let below = world.device();
    below.region_store(W, 0, &[1; 8]).unwrap();
    below.region_store(W, 8, &[1; 8]).unwrap();
    assert_eq!(seen(&world, words), set([[0, 0], [0, 1], [1, 0], [1, 1]]));
}

#[test]
fn a_write_may_be_there_from_its_doorbell_on() {
    let world = world(device(false, true));
    let below = world.device();
    below.rung(F, &[write(1, 7)]);
    assert_eq!(seen(&world, block), set([0, 7, u8::MAX]), "nothing, all, or torn");
    below.write(1, 0, &[7; 4096]).unwrap();
    assert_eq!(seen(&world, block), set([7]), "the device has landed it");
}

#[test]
fn the_device_goes_on_when_the_process_dies() {
    let world = world(device(false, true));
    let below = world.device();
    below.region_store(W, 0, &[1; 8]).unwrap();
    below.rung(F, &[write(1, 7)]);
    let killed = world.kill();
    assert_eq!(words(&killed), [1, 0], "stores to the region arrive");
    let next = World::from_image(&killed, device(false, true));
    let below = next.device();
    let mut bytes = [0; 1];
    below.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7], "what was rung is there");
    below.reset(F, &Default::default());
    assert_eq!(seen(&next, block), set([0, 7, u8::MAX]), "and may be lost with the power");
    below.flushed();
    assert_eq!(seen(&next, block), set([7]));
}

#[test]
fn without_a_write_cache_it_is_durable_then() {
    let world = world(device(false, false));
    world.device().rung(F, &[write(1, 7)]);
    let next = World::from_image(&world.kill(), device(false, false));
    assert_eq!(seen(&next, block), set([7]));
}

/// Writes of the dead land later if nobody waits for the reset.
#[test]
fn a_reset_ends_what_is_in_flight() {
    for waits in [true, false] {
        let world = world(device(false, true));
        world.device().rung(F, &[write(1, 7)]);
        let next = World::from_image(&world.kill(), device(false, true));
        let below = next.device();
        if waits {
            below.reset(F, &Default::default());
        }
        // The first doorbell, and the second.
        for command in [2, 3] {
            below.rung(F, &[Rung { command, offset: 4096, bytes: [9; 4096].into() }]);
        }
        let log = next.trace();
        let landed =
            log.events.iter().filter(|event| matches!(event.kind, EventKind::Landed { command: 1, .. })).count();
        assert_eq!(landed > 0, !waits, "the write of the dead comes only without the reset");
    }
}

#[test]
fn a_reset_drops_what_the_process_had_told_the_device() {
    let world = world(device(false, true));
    let below = world.device();
    below.rung(F, &[write(1, 7)]);
    below.reset(F, &Default::default());
    assert_eq!(seen(&world, block), set([0]));
}
