//! The comparison itself, on the host's own file systems: two of one kind do the same, two kinds do but for what is
//! listed, and what is wrong on purpose is found.

use crate::places;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use wholly_posix::differ::{Caller, Op, Permitted, compare, sequence};
use wholly_posix::{Mistake, Planted};
use wholly_vfs::{Fallocate, Vfs};

/// Sequences that are tried.
fn cases() -> u32 {
    if std::env::var_os("WHOLLY_LONG").is_some() { 20_000 } else { 300 }
}

/// Compares by many sequences; the shortest that differs, and how.
fn differ(one: &dyn Vfs, other: &dyn Vfs, permitted: &[Permitted]) -> Option<String> {
    run(TestRunner::new(config()), one, other, permitted)
}

fn config() -> Config {
    Config { cases: cases(), failure_persistence: None, ..Config::default() }
}

fn run(mut runner: TestRunner, one: &dyn Vfs, other: &dyn Vfs, permitted: &[Permitted]) -> Option<String> {
    let sequences = sequence(Caller::Alone);
    match runner.run(&sequences, |ops| compare(one, other, &ops, permitted).map_err(TestCaseError::fail)) {
        Ok(()) => None,
        Err(TestError::Fail(why, ops)) => Some(format!("{why}\nafter {ops:#?}")),
        Err(TestError::Abort(why)) => Some(format!("given up: {why}")),
    }
}

const EXT4_AND_TMPFS: [Permitted; 2] = [
    Permitted {
        reason: "tmpfs has no ZERO_RANGE",
        is: |ops, _, _| matches!(ops, [.., Op::Allocate { how, .. }] if *how == Fallocate::ZeroExtend),
        ends: true,
    },
    Permitted {
        reason: "space that is reserved and was read counts as data on ext4, as a hole on tmpfs",
        is: |ops, _, _| {
            let reserved = ops.iter().any(|op| matches!(op, Op::Allocate { .. }));
            reserved && matches!(ops, [.., Op::Seek { .. }])
        },
        ends: false,
    },
];

#[test]
fn two_directories_of_one_file_system_are_alike() {
    let (Some(one), Some(other)) = (places::or_skip(places::directory()), places::or_skip(places::directory())) else {
        return;
    };
    assert_eq!(differ(&one.vfs, &other.vfs, &[]), None);
    assert_eq!((one.vfs.held(), other.vfs.held()), ((0, 0), (0, 0)), "references and handles are given back");
}

#[test]
fn ext4_and_tmpfs_are_alike() {
    let (Some(ext4), Some(tmpfs)) = (places::or_skip(places::ext4()), places::or_skip(places::own_tmpfs())) else {
        return;
    };
    assert_eq!(differ(&ext4.vfs, &tmpfs.vfs, &EXT4_AND_TMPFS), None);
}

#[test]
fn mistakes_are_found() {
    let (Some(one), Some(other)) = (places::or_skip(places::directory()), places::or_skip(places::directory())) else {
        return;
    };
    for mistake in Mistake::ALL.into_iter().filter(|mistake| mistake.shows_in_sequences()) {
        let planted = Planted::new(&other.vfs, Some(mistake));
        // The same sequences each time: whether a mistake is found must not be luck.
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let runner = TestRunner::new_with_rng(Config { max_shrink_iters: 0, ..config() }, rng);
        assert!(run(runner, &one.vfs, &planted, &[]).is_some(), "{mistake:?} was not found");
    }
}
