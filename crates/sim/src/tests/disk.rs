//! Disks: sectors, syncs that cover all threads, synchronous writes.

use super::*;

#[test]
fn unsynced_sectors_survive_each_by_itself_and_whole() {
    let world = world(disk());
    world.log().write(W, 500, &[1; 24]).unwrap();
    let parts = |image: &Image| {
        let log = image.read(&Place::Log).unwrap();
        (log[500..512].to_vec(), log[512..524].to_vec())
    };
    let (old, new) = (vec![0; 12], vec![1; 12]);
    let all = [(&old, &old), (&old, &new), (&new, &old), (&new, &new)].map(|(a, b)| (a.clone(), b.clone()));
    assert_eq!(seen(&world, parts), set(all));
}

#[test]
fn a_sync_covers_every_threads_writes() {
    let world = world(disk());
    on_thread(1, || world.log().write(W, 0, &[1; 8]).unwrap());
    on_thread(2, || world.log().fence(F).unwrap());
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([1]));
}

#[test]
fn write_through_is_torn_at_sectors_inside_and_durable_after() {
    let world = world(disk());
    world.log().write(W, 4096, &[5; 512]).unwrap();
    world.log().write_through(F, 0, &[1; 1024]).unwrap();
    let three = |image: &Image| (log_byte(image, 0), log_byte(image, 512), log_byte(image, 4096));
    // Inside: any subset of its sectors, and of what was pending before.
    assert_eq!(seen_at(&world, 2, three).len(), 8);
    // After: it is durable, and the other write is not because of it.
    assert_eq!(seen(&world, three), set([(1, 1, 0), (1, 1, 5)]));
}

#[test]
#[should_panic(expected = "not in blocks")]
fn write_through_asks_for_whole_sectors() {
    let world = world(disk());
    let _ = world.log().write_through(F, 0, &[1; 100]);
}

#[test]
fn a_read_past_the_cache_sees_what_is_durable() {
    let world = world(disk());
    let log = world.log();
    log.write(W, 0, &[1; 8]).unwrap();
    let (mut cached, mut durable) = ([9; 8], [9; 8]);
    log.read(0, &mut cached).unwrap();
    log.read_uncached(0, &mut durable).unwrap();
    assert_eq!((cached, durable), ([1; 8], [0; 8]));
    log.fence(F).unwrap();
    log.read_uncached(0, &mut durable).unwrap();
    assert_eq!(durable, [1; 8]);
}

#[test]
fn a_sector_tears_only_where_asked_for() {
    let run = |tearing| {
        let world = world(SimConfig { tearing, ..disk() });
        world.log().write(W, 0, &[1; 512]).unwrap();
        world.log().fence(F).unwrap();
        world.log().write(W, 0, &[2; 512]).unwrap();
        seen(&world, |image| image.read(&Place::Log).unwrap()[..512].to_vec())
    };
    assert_eq!(run(false), set([vec![1; 512], vec![2; 512]]));
    let torn = run(true);
    assert_eq!(torn.len(), 5, "old, new; torn with an old, a zero, a random tail");
    let tail = |byte: u8| torn.iter().any(|s| s[0] == 2 && s[511] == byte && s.contains(&2) && s != &vec![2; 512]);
    assert!(tail(1) && tail(0));
}

/// The slot of a flash file: a page with its spare bytes is programmed wholly, torn or not at all.
#[test]
fn a_sector_of_8_kib_is_one_unit() {
    const SLOT: usize = 8192;
    let run = |tearing| {
        let world =
            world(SimConfig { tearing, log_len: 2 * SLOT as u64, log: Medium::Disk { sector: 8192 }, ..disk() });
        world.log().write(W, 0, &[1; SLOT]).unwrap();
        world.log().fence(F).unwrap();
        world.log().write(W, 0, &[2; SLOT]).unwrap();
        seen(&world, |image| image.read(&Place::Log).unwrap()[..SLOT].to_vec())
    };
    assert_eq!(run(false), set([vec![1; SLOT], vec![2; SLOT]]));
    let torn = run(true);
    assert_eq!(torn.len(), 5, "old, new; torn with an old, a zero, a random tail");
    assert!(torn.iter().all(|slot| slot[0] != 0));
}

#[test]
fn the_log_and_the_files_are_synced_apart() {
    let world = world(disk());
    world.add_file("a", &[0; 8]);
    let file = world.host().open(b"a", true).unwrap();
    file.write_at(W, 0, &[1; 8]).unwrap();
    world.log().write(W, 0, &[1; 8]).unwrap();
    let both = |image: &Image| (image.read(&Place::file("a")).unwrap()[0], log_byte(image, 0));
    world.log().fence(F).unwrap();
    assert_eq!(seen(&world, both), set([(0, 1), (1, 1)]));
    world.log().write(W, 0, &[2; 8]).unwrap();
    file.sync(F).unwrap();
    assert_eq!(seen(&world, both), set([(1, 1), (1, 2)]));
}

#[test]
fn files_on_disks_cannot_be_mapped() {
    let world = world(disk());
    world.add_file("a", &[0; 8]);
    assert!(world.host().open(b"a", true).unwrap().map(8).unwrap().is_none());
}
