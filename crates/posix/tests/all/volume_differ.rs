//! Random calls on a volume and on the host's ext4, by one thread and by several. `WHOLLY_LONG=1` tries many more.
//!
//! The seeds are fixed: each run makes the same calls.

use std::sync::{Arc, Barrier};

use crate::places::{self, Place};
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rustix::fs::MemfdFlags;
use wholly_media::{
    Region,
    disk::DiskRegion,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_posix::differ::{
    CALLERS, Caller, Op, Permitted, agree, call, clear, compare, describe, make_shared, same_trees, sequence,
};
use wholly_volume::{Volume, VolumeOptions, VolumeVfs};

/// Sequences of up to 60 calls that one test makes.
fn sequences() -> usize {
    if std::env::var_os("WHOLLY_LONG").is_some() { 3500 } else { 120 }
}

/// Sequences after which the volume is opened again.
const UNMOUNT_AFTER: usize = 20;

const PERMITTED: &[Permitted] = &[Permitted {
    reason: "space that is reserved and was read counts as data on ext4; on a volume it is a hole until it is written",
    is: |ops, _, _| {
        let reserved = ops.iter().any(|op| matches!(op, Op::Allocate { .. }));
        reserved && matches!(ops, [.., Op::Seek { .. }])
    },
    ends: false,
}];

fn regions() -> [Arc<dyn Region>; 2] {
    let file = || {
        let file = rustix::fs::memfd_create("volume", MemfdFlags::CLOEXEC).expect("a file in memory");
        rustix::fs::ftruncate(&file, 64 << 20).expect("its length");
        file
    };
    [
        Arc::new(PmemRegion::open(file(), PmemOptions::default()).expect("a region")),
        Arc::new(DiskRegion::open(file(), "disk").expect("a region")),
    ]
}

/// A volume with the smallest caches.
fn open(region: &Arc<dyn Region>) -> Volume {
    let options = VolumeOptions { cache_bytes: 1 << 20, ..VolumeOptions::default() };
    Volume::open_region(region.clone(), &options).expect("open it")
}

fn close(volume: Volume, vfs: VolumeVfs, region: &Arc<dyn Region>) {
    assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
    drop(vfs);
    volume.close().expect("close it");
    assert_eq!(Volume::check_region(&**region).expect("check it").findings, []);
}

/// What strategies draw from: the same each time.
fn runner(seed: u8) -> TestRunner {
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]))
}

fn ext4() -> Option<Place> {
    places::or_skip(places::ext4())
}

#[test]
fn one_thread() {
    let Some(ext4) = ext4() else { return };
    for (region, seed) in regions().iter().zip(1..) {
        Volume::format_region(&**region, &VolumeOptions::default()).expect("make a volume");
        let mut runner = runner(seed);
        for _ in 0..sequences() / UNMOUNT_AFTER / 2 {
            let volume = open(region);
            let vfs = VolumeVfs::new(&volume);
            for round in 0..UNMOUNT_AFTER {
                let ops = sequence(Caller::Alone).new_tree(&mut runner).expect("a sequence").current();
                compare(&vfs, &ext4.vfs, &ops, PERMITTED)
                    .unwrap_or_else(|why| panic!("sequence {round}: {why}\nafter {ops:?}"));
            }
            close(volume, vfs, region);
            let volume = open(region);
            same_trees(&VolumeVfs::new(&volume), &ext4.vfs).expect("opened again");
        }
    }
}

#[test]
fn several_threads() {
    let Some(ext4) = ext4() else { return };
    for (region, seed) in regions().iter().zip(10..) {
        Volume::format_region(&**region, &VolumeOptions::default()).expect("make a volume");
        let mut runner = runner(seed);
        let volume = open(region);
        let vfs = VolumeVfs::new(&volume);
        for _ in 0..sequences() / UNMOUNT_AFTER / 2 {
            for place in [&vfs as &dyn wholly_vfs::Vfs, &ext4.vfs] {
                clear(place).and_then(|()| make_shared(place)).expect("what is shared");
            }
            let caller = |number| Caller::Beside { number, parts: true };
            let rounds = UNMOUNT_AFTER / CALLERS;
            let all: Vec<Vec<Vec<Op>>> = (0..CALLERS)
                .map(|number| vec(sequence(caller(number)), rounds).new_tree(&mut runner).expect("sequences").current())
                .collect();
            let start = Barrier::new(CALLERS);
            std::thread::scope(|scope| {
                for (number, rounds) in all.iter().enumerate() {
                    let (vfs, ext4, start) = (&vfs, &ext4.vfs, &start);
                    scope.spawn(move || {
                        start.wait();
                        let mut made = Vec::new();
                        for ops in rounds {
                            made.extend_from_slice(ops);
                            let said = call(vfs, caller(number), ops).expect("calls");
                            let expected = call(ext4, caller(number), ops).expect("calls");
                            agree(&made, (&said, &expected), PERMITTED)
                                .and_then(|_| describe(vfs, caller(number)).same_as(&describe(ext4, caller(number))))
                                .unwrap_or_else(|why| panic!("thread {number}: {why}\nafter {made:?}"));
                        }
                    });
                }
            });
            same_trees(&vfs, &ext4.vfs).expect("the same trees");
        }
        close(volume, vfs, region);
    }
}
