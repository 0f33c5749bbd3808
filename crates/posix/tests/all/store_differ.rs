//! Random calls on a store and on the host's ext4: whatever policy holds, whatever goes home meanwhile, and inside of
//! one group.
//!
//! `WHOLLY_LONG=1` tries many more. No verdict depends on when what goes home: the calls must say the same at any
//! moment.

mod threads;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::places::{self, Place, Stored};
use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use wholly::{Options, StoreVfs};
use wholly_host::HostMedium;
use wholly_posix::Through;
use wholly_posix::differ::{Caller, Op, Permitted, clear, compare, same_trees, sequence};
use wholly_vfs::Policy;
use wholly_vfs::{Context, Groups, OFlags, Seek, Vfs};

/// Sequences that are tried.
fn cases() -> u32 {
    if std::env::var_os("WHOLLY_LONG").is_some() { 1000 } else { 20 }
}

/// Sequences after each other.
const MOST: usize = 20;

const DISK_AND_EXT4: &[Permitted] = &[
    Permitted {
        reason: "space that is reserved and was read counts as data on ext4; in a store it is a hole until it is home",
        is: |ops, _, _| {
            let reserved = ops.iter().any(|op| matches!(op, Op::Allocate { .. }));
            reserved && matches!(ops, [.., Op::Seek { .. }])
        },
        ends: false,
    },
    Permitted {
        reason: "of a block whose only bytes are cut off, ext4 keeps the zeros before them as data; in a store nothing was ever written there",
        is: |ops, store, ext4| {
            // The data that only ext4 has, or the hole that only the store has.
            let found = [store, ext4].iter().filter_map(|said| said.as_ref().ok()?.parse::<u64>().ok()).min();
            let is_in_block_of =
                |size: u64| !size.is_multiple_of(BLOCK) && found.is_some_and(|found| found / BLOCK == size / BLOCK);
            let cut = ops.iter().any(|op| matches!(op, Op::Truncate { size, .. } if is_in_block_of(*size)));
            cut && matches!(ops, [.., Op::Seek { .. }])
        },
        ends: false,
    },
];

/// Bytes of a block of ext4.
const BLOCK: u64 = 4096;

const PMEM_AND_EXT4: &[Permitted] = &[Permitted {
    reason: "tmpfs, which stands in for persistent memory, makes data of a hole that is read through a mapping",
    is: |ops, _, _| matches!(ops, [.., Op::Seek { .. }]),
    ends: false,
}];

fn permitted(medium: HostMedium) -> &'static [Permitted] {
    if medium == HostMedium::Pmem { PMEM_AND_EXT4 } else { DISK_AND_EXT4 }
}

/// A store in which little fits into the log, and files are staged that a group writes something to.
fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        log_min_bytes: 256 << 10,
        log_max_bytes: 1 << 20,
        stage_bytes: 5000,
        background: false,
        ..Options::default()
    }
}

/// An ext4 that nobody else uses.
fn ext4() -> Option<Place> {
    places::or_skip(places::ext4())
}

/// Tries what a strategy gives, and panics with the shortest that fails.
fn run<S: Strategy>(strategy: &S, test: impl Fn(S::Value) -> Result<(), String>) {
    let mut runner = TestRunner::new(Config { cases: cases(), failure_persistence: None, ..Config::default() });
    match runner.run(strategy, |value| test(value).map_err(TestCaseError::fail)) {
        Ok(()) => {}
        Err(TestError::Fail(why, value)) => panic!("{why}\nafter {value:?}"),
        Err(TestError::Abort(why)) => panic!("given up: {why}"),
    }
}

/// Compares by many sequences, some after each other on one new store. `around` makes the calls of one, after which the
/// store can be emptied.
fn differ(
    ext4: &Place,
    (medium, policy): (HostMedium, Policy),
    around: impl Fn(&Stored, &StoreVfs, &dyn Fn(&dyn Vfs) -> Result<(), String>) -> Result<(), String>,
) {
    let permitted = permitted(medium);
    run(&vec(sequence(Caller::Alone), 1..MOST), |sequences| {
        let stored = Stored::on(medium, Options { policy, ..options() })?;
        let vfs = stored.vfs();
        for ops in sequences {
            around(&stored, &vfs, &|store| compare(store, &ext4.vfs, &ops, permitted))?;
            clear(&vfs)?;
        }
        stored.store().checkpoint().map_err(|error| error.to_string())?;
        assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
        Ok(())
    });
}

/// Does something while another thread takes home what there is, all the time.
fn beside_passes(stored: &Stored, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    // Gone when the work is done, and when it panics: then the other thread ends too.
    let working = Arc::new(());
    let watched = Arc::downgrade(&working);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while watched.strong_count() > 0 {
                stored.store().checkpoint().expect("all goes home");
            }
        });
        let _working = working;
        work()
    })
}

/// Every fourth call or so comes after all has gone home.
fn by_policy(policy: Policy) {
    let Some(ext4) = ext4() else { return };
    differ(&ext4, (HostMedium::Disk, policy), |stored, vfs, compare| {
        let calls = AtomicU64::new(0);
        let now_and_then = Through::new(vfs, |ctx| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0 {
                stored.store().checkpoint().expect("all goes home");
            }
            ctx.clone()
        });
        compare(&now_and_then)
    });
}

#[test]
fn each_call_by_itself() {
    by_policy(Policy::PerOp);
}

#[test]
fn from_sync_to_sync() {
    by_policy(Policy::PerSync);
}

#[test]
fn all_calls_together() {
    by_policy(Policy::Shared { interval: Duration::from_secs(3600) });
}

/// The one difference that is known by its calls.
#[test]
fn a_block_whose_only_bytes_are_cut_off() {
    let Some(ext4) = ext4() else { return };
    let stored = Stored::on(HostMedium::Disk, options()).expect("a store");
    let vfs = stored.vfs();
    for seek in [Seek::Data(0), Seek::Hole(8192)] {
        let ops = [
            Op::Open { slot: 0, path: "b".into(), flags: OFlags::CREATE | OFlags::WRONLY },
            Op::Write { slot: 0, offset: 8437, byte: 1, len: 1 },
            Op::Truncate { path: "b".into(), size: 8193 },
            Op::Write { slot: 0, offset: 12_288, byte: 1, len: 1 },
            Op::Seek { slot: 0, seek },
        ];
        compare(&vfs, &ext4.vfs, &ops, &DISK_AND_EXT4[..1]).expect_err("they differ");
        clear(&vfs).and_then(|()| clear(&ext4.vfs)).expect("empty again");
        compare(&vfs, &ext4.vfs, &ops, DISK_AND_EXT4).expect("it is permitted");
    }
}

/// Another thread takes home what there is, all the time.
#[test]
fn while_passes_run() {
    let Some(ext4) = ext4() else { return };
    differ(&ext4, (HostMedium::Pmem, Policy::PerOp), |stored, vfs, compare| beside_passes(stored, || compare(vfs)));
}

/// All calls in one group, which ends one way or the other; what it stages is at home before it does.
#[test]
fn in_one_group() {
    let Some(ext4) = ext4() else { return };
    for ends_well in [true, false] {
        differ(&ext4, (HostMedium::Disk, Policy::PerOp), |_, vfs, compare| {
            let group = vfs.begin().expect("begin a group");
            let in_group = Through::new(vfs, |ctx| Context { group: Some(group), ..ctx.clone() });
            let compared = compare(&in_group);
            let ended = if ends_well { vfs.commit(group) } else { vfs.abort(group) };
            compared.and(ended.map_err(|errno| format!("the group does not end: {errno}")))?;
            if ends_well { same_trees(vfs, &ext4.vfs) } else { Ok(()) }
        });
    }
}
