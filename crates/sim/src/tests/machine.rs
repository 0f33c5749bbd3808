//! Several worlds under one clock.

use super::*;

/// Two devices and a directory: a crash hits all of them between the same two events.
#[test]
fn a_crash_hits_all_at_one_tick() {
    let worlds = [pmem(), disk(), SimConfig { host: HostModel::Synchronous, ..disk() }].map(world);
    let machine = Machine::of(worlds.to_vec());
    let (first, second, host) = (machine[0].log(), machine[1].log(), machine[2].host());
    let mut ends = vec![(machine.now(), 0)];
    for round in 1..=3u8 {
        first.write_through(W, 0, &[round; 8]).unwrap();
        ends.push((machine.now(), 0));
        second.write_through(W, 0, &[round; 512]).unwrap();
        ends.push((machine.now(), 1));
        host.create(W, &[b'a' + round], 0o644).unwrap();
        ends.push((machine.now(), 2));
    }
    let history = machine.history();
    assert_eq!(history.last(), machine.now());
    for tick in 0..=history.last() {
        assert_eq!(history.points(tick).iter().sum::<u64>(), tick, "each tick is an event of one world");
        let images = history.killed(tick);
        let bytes = |which: usize| u64::from(images[which].read(&Place::Log).unwrap()[0]);
        let is = [bytes(0), bytes(1), images[2].paths().len() as u64];
        // A call has one event or several.
        let done = ends.iter().filter(|(end, _)| *end <= tick).count() as u64 - 1;
        let begun = ends.iter().filter(|(end, _)| *end < tick).count() as u64;
        let after = |calls: u64| [0, 1, 2].map(|which: u64| (calls + 2 - which) / 3);
        for (which, is) in is.into_iter().enumerate() {
            let (least, most) = (after(done)[which], after(begun.max(done))[which]);
            assert!((least..=most).contains(&is), "world {which} at {tick}: {is}, of {least} to {most}");
        }
    }
    for ((before, _), (end, which)) in ends.iter().zip(&ends[1..]) {
        assert!((before + 1..=*end).all(|tick| history.moved(tick) == *which), "events of world {which}");
    }
}
