//! The checkpoint in the background, with a log so small that groups keep running out of it: what was committed is read
//! back while passes go on, after them, and after the process died, or the power failed, in the middle.

use std::ops::ControlFlow;
use std::sync::Arc;

use wholly::{File, Options, Store};
use wholly_host::{HostFile, HostFs};
use wholly_sim::{ExploreLimits, Explorer, Random, SimConfig, World};

const FILES: usize = 3;
const FILE_BYTES: u64 = 64 << 10;

fn options() -> Options {
    Options {
        policy: wholly::Policy::PerOp,
        segment_bytes: 4096,
        log_min_bytes: 64 << 10,
        log_max_bytes: 64 << 10,
        background: true,
        gather_bytes: 6000,
        ..Options::default()
    }
}

/// Overwrites a random range of one file, and of its model.
fn update(random: &mut Random, store: &Store, files: &[File], models: &mut [Vec<u8>]) {
    let mut group = store.begin();
    for _ in 0..1 + random.below(2) {
        let n = random.below(files.len() as u64) as usize;
        let most = if random.below(4) == 0 { 9000 } else { 200 };
        let length = 1 + random.below(most);
        let offset = random.below(FILE_BYTES - length);
        let data = random.bytes(length);
        group.write_at(&files[n], offset, &data).unwrap();
        models[n][offset as usize..][..data.len()].copy_from_slice(&data);
    }
    group.commit().unwrap();
}

fn check(files: &[File], models: &[Vec<u8>]) {
    for (file, model) in files.iter().zip(models) {
        let mut now = vec![0; FILE_BYTES as usize];
        assert_eq!(file.read_at(0, &mut now).unwrap(), now.len());
        assert!(now == *model, "{}", String::from_utf8_lossy(file.path()));
    }
}

/// Several threads, each with its own files, in one store.
fn threads(config: SimConfig, seed: u64) {
    const THREADS: usize = 2;
    let mut world = World::new(SimConfig { log_len: 0, ..config.clone() });
    let name = |thread: usize, n: usize| format!("{thread}-{n}");
    for thread in 0..THREADS {
        (0..FILES).for_each(|n| world.add_file(name(thread, n), &vec![0; FILE_BYTES as usize]));
    }
    Store::format_on(&*world.log(), &options(), [7; 16]).unwrap();
    let mut models = vec![vec![vec![0u8; FILE_BYTES as usize]; FILES]; THREADS];
    for life in 0..3 {
        let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
        assert!(store.recovery().conflicts.is_empty(), "{:?}", store.recovery());
        std::thread::scope(|scope| {
            for (thread, models) in models.iter_mut().enumerate() {
                let store = &store;
                scope.spawn(move || {
                    let mut random = Random(seed ^ (life * THREADS as u64 + thread as u64) << 32);
                    let files: Vec<File> = (0..FILES).map(|n| store.open_file(name(thread, n)).unwrap()).collect();
                    check(&files, models);
                    for round in 0..400 {
                        update(&mut random, store, &files, models);
                        if round % 50 == 0 {
                            check(&files, models);
                        }
                    }
                    check(&files, models);
                });
            }
        });
        // How much of it has gone home by now is the scheduler's: groups may hold all of the log, so that it grows.
        if life == 1 {
            store.checkpoint().unwrap();
            assert_eq!(store.stat().pending_blocks, 0);
            assert!(store.stat().home_bytes_written > 0);
        }
        // The process dies, perhaps in the middle of a pass.
        world = World::from_image(&world.kill(), config.clone());
    }
    let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
    store.close().unwrap();
    let host: Arc<dyn HostFs> = world.host();
    for (thread, models) in models.iter().enumerate() {
        for (n, model) in models.iter().enumerate() {
            let mut home = vec![0; FILE_BYTES as usize];
            let file: Arc<dyn HostFile> = host.open(name(thread, n).as_bytes(), false).unwrap();
            assert_eq!(file.read_at(0, &mut home).unwrap(), home.len());
            assert!(home == *model, "{} at home", name(thread, n));
        }
    }
}

#[test]
fn pmem() {
    (0..6).for_each(|seed| threads(SimConfig::pmem(), seed));
}

#[test]
fn disk() {
    (0..6).for_each(|seed| threads(SimConfig::disk(), seed));
}

/// A log of which idle lanes hold the last segments stays full whatever goes home. The background thread has to see
/// that there is nothing left to do: it made one empty pass after the other, and whoever closed the store waited for it
/// for ever.
#[test]
fn a_log_that_stays_full_ends_the_work() {
    let small = Options { segment_bytes: 256 << 10, log_min_bytes: 512 << 10, log_max_bytes: 768 << 10, ..options() };
    for round in 0..40 {
        let world = World::new(SimConfig { log_len: 0, ..SimConfig::pmem() });
        ["0", "1"].into_iter().for_each(|name| world.add_file(name, &[0; 4096]));
        Store::format_on(&*world.log(), &small, [7; 16]).unwrap();
        let store = Store::open_on(world.log(), world.host(), small.clone(), None).unwrap();
        std::thread::scope(|scope| {
            for name in ["0", "1"] {
                let file = store.open_file(name).unwrap();
                scope.spawn(move || (0..1000 + round * 20).for_each(|i| file.write_at(i % 9, &[1; 900]).unwrap()));
            }
        });
        let (done, closed) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            drop(store);
            let _ = done.send(());
        });
        let closed = closed.recv_timeout(std::time::Duration::from_secs(20));
        assert!(closed.is_ok(), "round {round}: the background thread does not end");
    }
}

/// One thread commits, the other takes home; the power fails at points all over that. What recovery serves is what the
/// groups that had returned made, or that and the group in flight.
fn power_failures(config: SimConfig, seed: u64) {
    const GROUPS: usize = 250;
    const POINTS: u64 = 120;
    let world = World::new(SimConfig { log_len: 0, ..config.clone() });
    (0..FILES).for_each(|n| world.add_file(n.to_string(), &vec![0; FILE_BYTES as usize]));
    Store::format_on(&*world.log(), &options(), [7; 16]).unwrap();
    let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
    let files: Vec<File> = (0..FILES).map(|n| store.open_file(n.to_string()).unwrap()).collect();
    let mut random = Random(seed);
    let mut models = vec![vec![0u8; FILE_BYTES as usize]; FILES];
    // When each group had returned, and what it made.
    let mut history = vec![(world.now(), models.clone())];
    for _ in 0..GROUPS {
        update(&mut random, &store, &files, &mut models);
        history.push((world.now(), models.clone()));
    }
    assert!(store.stat().home_bytes_written > 0, "passes were among it");
    let trace = world.trace();
    let (first, last) = (history[0].0, trace.events.len() as u64);
    let limits = ExploreLimits { exhaustive_bits: 4, samples: 6, ..ExploreLimits::default() };
    let mut explorer = Explorer::new(&trace);
    for point in 0..POINTS {
        explorer.seek(first + (last - first) * point / POINTS);
        let returned = history.partition_point(|(at, _)| *at <= explorer.index()) - 1;
        let mut left = 40;
        explorer.for_each_image(&limits, |choice, image| {
            let world = World::from_image(image, config.clone());
            let options = Options { background: false, ..options() };
            let store = Store::open_on(world.log(), world.host(), options, None)
                .unwrap_or_else(|error| panic!("seed {seed}, {choice}: {error}"));
            assert!(store.recovery().conflicts.is_empty(), "seed {seed}, {choice}: {:?}", store.recovery());
            let now: Vec<Vec<u8>> = (0..FILES)
                .map(|n| {
                    let mut bytes = vec![0; FILE_BYTES as usize];
                    store.open_file(n.to_string()).unwrap().read_at(0, &mut bytes).unwrap();
                    bytes
                })
                .collect();
            let possible = &history[returned..(returned + 2).min(history.len())];
            assert!(possible.iter().any(|(_, then)| *then == now), "seed {seed}, {choice}: after {returned} groups");
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
}

#[test]
fn pmem_power() {
    (0..3).for_each(|seed| power_failures(SimConfig::pmem(), seed));
}

#[test]
fn disk_power() {
    (0..3).for_each(|seed| power_failures(SimConfig::disk(), seed));
}
