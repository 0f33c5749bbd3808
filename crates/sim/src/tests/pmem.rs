//! Persistent memory: words, fences of one thread, lines.

use super::*;
use wholly_media::PersistenceDomain;

fn x86(domain: PersistenceDomain) -> SimConfig {
    let log = Medium::Pmem { domain, mode: PmemMode::X86 };
    SimConfig { log, home: log, ..pmem() }
}

#[test]
fn unfenced_words_survive_each_by_itself_and_whole() {
    let world = world(pmem());
    world.log().write(W, 0, &[1; 16]).unwrap();
    let words = |image: &Image| {
        let log = image.read(&Place::Log).unwrap();
        (log[0..8].to_vec(), log[8..16].to_vec())
    };
    let (old, new) = (vec![0; 8], vec![1; 8]);
    let all = [(&old, &old), (&old, &new), (&new, &old), (&new, &new)].map(|(a, b)| (a.clone(), b.clone()));
    assert_eq!(seen(&world, words), set(all));
}

#[test]
fn the_threads_own_fence_drains() {
    let world = world(pmem());
    world.log().write(W, 0, &[1; 16]).unwrap();
    world.log().fence(F).unwrap();
    assert_eq!(seen(&world, |image| image.read(&Place::Log).unwrap()[..16].to_vec()), set([vec![1; 16]]));
}

#[test]
fn another_threads_fence_does_not_drain() {
    let world = world(pmem());
    on_thread(1, || world.log().write(W, 0, &[1; 8]).unwrap());
    on_thread(2, || world.log().fence(F).unwrap());
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([0, 1]));
    on_thread(1, || world.log().fence(F).unwrap());
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([1]));
}

#[test]
fn a_word_written_several_times_keeps_any_prefix() {
    let world = world(pmem());
    for value in 1..=3 {
        world.log().write(W, 0, &[value; 8]).unwrap();
    }
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([0, 1, 2, 3]));
    // Parts of a word build on what was written before them.
    world.log().write(W, 4, &[9; 4]).unwrap();
    let word = |image: &Image| image.read(&Place::Log).unwrap()[..8].to_vec();
    assert_eq!(seen(&world, word), set([vec![0; 8], vec![1; 8], vec![2; 8], vec![3; 8], vec![3, 3, 3, 3, 9, 9, 9, 9]]));
}

#[test]
fn a_fence_drains_a_words_chain_up_to_the_threads_last_write() {
    let world = world(pmem());
    on_thread(1, || world.log().write(W, 0, &[1; 8]).unwrap());
    on_thread(2, || world.log().write(W, 0, &[2; 8]).unwrap());
    on_thread(1, || world.log().fence(F).unwrap());
    assert_eq!(seen(&world, |image| log_byte(image, 0)), set([1, 2]));
}

#[test]
fn write_through_is_a_write_and_a_fence() {
    let world = world(pmem());
    world.log().write(W, 64, &[1; 8]).unwrap();
    world.log().write_through(F, 0, &[1; 8]).unwrap();
    let both = |image: &Image| (log_byte(image, 64), log_byte(image, 0));
    assert_eq!(seen_at(&world, 2, both), set([(0, 0), (0, 1), (1, 0), (1, 1)]));
    assert_eq!(seen(&world, both), set([(1, 1)]));
}

#[test]
fn x86_parts_of_words_survive_as_a_prefix_within_their_line() {
    let world = world(x86(PersistenceDomain::MemoryController));
    world.log().write(W, 0, &[1; 4]).unwrap();
    world.log().write(W, 16, &[2; 4]).unwrap();
    world.log().write(W, 64, &[3; 4]).unwrap();
    let three = |image: &Image| (log_byte(image, 0), log_byte(image, 16), log_byte(image, 64));
    assert_eq!(seen(&world, three), set([(0, 0, 0), (1, 0, 0), (1, 2, 0), (0, 0, 3), (1, 0, 3), (1, 2, 3)]));
}

#[test]
fn x86_whole_words_survive_each_by_itself() {
    let world = world(x86(PersistenceDomain::MemoryController));
    world.log().write(W, 0, &[1; 16]).unwrap();
    assert_eq!(seen(&world, |image| (log_byte(image, 0), log_byte(image, 8))).len(), 4);
    world.log().fence(F).unwrap();
    assert_eq!(seen(&world, |image| (log_byte(image, 0), log_byte(image, 8))), set([(1, 1)]));
}

#[test]
fn x86_a_whole_word_does_not_overtake_a_part_of_it() {
    let world = world(x86(PersistenceDomain::MemoryController));
    world.log().write(W, 0, &[1; 4]).unwrap();
    world.log().write(W, 0, &[2; 8]).unwrap();
    world.log().write(W, 0, &[3; 4]).unwrap();
    assert_eq!(seen(&world, |image| (log_byte(image, 0), log_byte(image, 4))), set([(0, 0), (1, 0), (2, 2), (3, 2)]));
}

#[test]
fn eadr_parts_of_words_survive_in_global_order_and_whole_words_need_the_fence() {
    let world = world(x86(PersistenceDomain::CpuCaches));
    world.log().write(W, 0, &[1; 4]).unwrap();
    world.log().write(W, 512, &[2; 4]).unwrap();
    world.log().write(W, 1024, &[3; 8]).unwrap();
    let three = |image: &Image| (log_byte(image, 0), log_byte(image, 512), log_byte(image, 1024));
    assert_eq!(seen(&world, three), set([(0, 0, 0), (1, 0, 0), (1, 2, 0), (0, 0, 3), (1, 0, 3), (1, 2, 3)]));
}

#[test]
fn a_mapping_is_words_of_its_thread() {
    let world = world(pmem());
    world.add_file("a", &[0; 64]);
    let map = world.host().open(b"a", true).unwrap().map(64).unwrap().unwrap();
    on_thread(1, || map.write(W, 0, &[1; 16]).unwrap());
    on_thread(2, || map.fence(F).unwrap());
    let two = |image: &Image| {
        let a = image.read(&Place::file("a")).unwrap();
        (a[0], a[8])
    };
    assert_eq!(seen(&world, two), set([(0, 0), (0, 1), (1, 0), (1, 1)]));
    on_thread(1, || map.fence(F).unwrap());
    assert_eq!(seen(&world, two), set([(1, 1)]));
}

#[test]
fn a_sync_does_not_fence_another_thread() {
    let world = world(pmem());
    world.add_file("a", &[0; 64]);
    let file = world.host().open(b"a", true).unwrap();
    let map = file.map(64).unwrap().unwrap();
    on_thread(1, || map.write(W, 0, &[1; 8]).unwrap());
    on_thread(2, || file.sync(F).unwrap());
    assert_eq!(seen(&world, |image| image.read(&Place::file("a")).unwrap()[0]), set([0, 1]));
    on_thread(1, || file.sync(F).unwrap());
    assert_eq!(seen(&world, |image| image.read(&Place::file("a")).unwrap()[0]), set([1]));
}

#[test]
fn a_fence_does_not_drain_what_the_kernel_wrote() {
    let world = world(pmem());
    world.add_file("a", &[0; 64]);
    let file = world.host().open(b"a", true).unwrap();
    file.write_at(W, 0, &[1; 8]).unwrap();
    file.map(64).unwrap().unwrap().fence(F).unwrap();
    assert_eq!(seen(&world, |image| image.read(&Place::file("a")).unwrap()[0]), set([0, 1]));
    file.sync(F).unwrap();
    assert_eq!(seen(&world, |image| image.read(&Place::file("a")).unwrap()[0]), set([1]));
}

#[test]
#[should_panic(expected = "stores into a hole")]
fn a_store_into_a_hole_is_reported() {
    let world = world(pmem());
    let file = world.host().create_unnamed(W, b"", 0o600).unwrap();
    file.set_len(W, 8192).unwrap();
    file.allocate(W, 0, 4096).unwrap();
    let map = file.map(8192).unwrap().unwrap();
    map.write(W, 0, &[1; 8]).unwrap();
    map.write(W, 4096, &[1; 8]).unwrap();
}

#[test]
#[should_panic(expected = "beyond the end of the file")]
fn a_touch_beyond_the_end_of_the_file_is_reported() {
    let world = world(pmem());
    world.add_file("a", &[0; 64]);
    let map = world.host().open(b"a", true).unwrap().map(8192).unwrap().unwrap();
    assert_eq!(map.len(), 8192);
    map.read(64, &mut [0; 8]).unwrap();
}

#[test]
fn a_crash_inside_a_change_of_the_logs_length_keeps_either_or_half() {
    let world = world(pmem());
    world.log().set_len(W, 8192).unwrap();
    let len = |image: &Image| image.len(&Place::Log).unwrap();
    assert_eq!(seen_at(&world, 1, len), set([4096, 6144, 8192]));
    assert_eq!(seen(&world, len), set([8192]));
    world.log().set_len(W, 1024).unwrap();
    assert_eq!(seen_at(&world, 3, len), set([1024, 4608, 8192]));
    assert_eq!(seen(&world, len), set([1024]));
}

#[test]
fn bytes_beyond_a_shorter_log_do_not_come_back() {
    let world = world(pmem());
    let log = world.log();
    log.write_through(W, 2048, &[1; 8]).unwrap();
    log.set_len(W, 1024).unwrap();
    log.set_len(W, 4096).unwrap();
    assert_eq!(seen(&world, |image| log_byte(image, 2048)), set([0]));
    let mut buf = [9; 8];
    log.read(2048, &mut buf).unwrap();
    assert_eq!(buf, [0; 8]);
}
