//! Recovery of logs that two threads read: of several lanes, with groups of many segments, and with bytes that were
//! written over and over.
//!
//! This is the death of a process: a store is dropped with everything still in its log.

use wholly::{Options, Store};
use wholly_host::HostOptions;
use wholly_sim::Random;

use crate::common::Dir;

const FILE_BYTES: u64 = 1 << 20;
const SEGMENT: u64 = 64 << 10;
const LOG: u64 = 64 << 20;

fn options() -> Options {
    // Nothing is taken home on the way.
    Options { segment_bytes: SEGMENT, log_min_bytes: LOG, log_max_bytes: LOG, background: false, ..Options::default() }
}

/// What one thread does to its file, as the file looks then. Returns how many groups it committed.
fn work(store: &Store, name: &str, seed: u64, rounds: u64, content: &mut [u8]) -> u64 {
    let file = store.open_file(name).unwrap();
    for round in 0..rounds {
        let random = Random(seed << 32 | round).draw();
        let (offset, length) = match round % 64 {
            // More than a segment: parts.
            0 => (random % (FILE_BYTES - 2 * SEGMENT), SEGMENT * 3 / 2),
            // Whole blocks cover what was there.
            n if n < 8 => (random % (FILE_BYTES / 4096) * 4096, 4096),
            // The same few bytes over and over.
            n if n < 16 => (4096 * (random % 2), 64),
            _ => (random % (FILE_BYTES - 300), 1 + random % 300),
        };
        let data = vec![random as u8; length as usize];
        let mut group = store.begin();
        group.add(&file).unwrap();
        group.write_at(&file, offset, &data).unwrap();
        group.commit().unwrap();
        content[offset as usize..][..data.len()].copy_from_slice(&data);
    }
    rounds
}

#[test]
fn what_several_lanes_hold_comes_back() {
    const THREADS: usize = 3;
    for ((dir, medium), rounds) in Dir::on_media("large-log").into_iter().zip([6000, 600]) {
        let host = HostOptions { medium, ..HostOptions::default() };
        let open = || Store::open_with(&*dir, options(), host.clone()).unwrap();
        for thread in 0..THREADS {
            std::fs::write(dir.join(thread.to_string()), vec![0; FILE_BYTES as usize]).unwrap();
        }
        Store::init_with(&*dir, &options(), host.clone()).unwrap();
        let mut contents = vec![vec![0; FILE_BYTES as usize]; THREADS];
        let mut groups = 0;
        // Three lives: the last recovery finds segments of two that are over.
        for life in 0..3 {
            let store = open();
            assert_eq!(store.recovery().scan.groups, groups, "life {life}");
            let committed: Vec<u64> = std::thread::scope(|scope| {
                let threads: Vec<_> = contents
                    .iter_mut()
                    .enumerate()
                    .map(|(n, content)| {
                        let store = store.clone();
                        let seed = life << 8 | n as u64;
                        scope.spawn(move || work(&store, &n.to_string(), seed, rounds / 3, content))
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            groups += committed.iter().sum::<u64>();
            assert_eq!(store.stat().home_bytes_written, 0, "nothing went home on the way");
        }
        let store = open();
        assert_eq!(store.recovery().scan.groups, groups);
        for (n, content) in contents.iter().enumerate() {
            let mut read = vec![0; FILE_BYTES as usize];
            store.open_file(n.to_string()).unwrap().read_at(0, &mut read).unwrap();
            assert!(&read == content, "file {n}, after recovery");
        }
        store.close().unwrap();
        for (n, content) in contents.iter().enumerate() {
            assert!(&std::fs::read(dir.join(n.to_string())).unwrap() == content, "file {n}, at home");
        }
    }
}
