//! Threads on a volume in many schedules, with a crash at many points of each: durable linearizability, and nothing
//! hangs. Mistakes made on purpose are found, and found again by the name of their execution.
//!
//! `WHOLLY_LONG=1` goes through more. The test `replay_of_a_schedule` of `schedules` replays one. No verdict depends on
//! time.

use wholly_threads::explore::{Chooser, Limits, Outcome, explore, replay};
use wholly_threads::sync::Mistake;
use wholly_threads::volume;

const CHOOSERS: [Chooser; 3] = [Chooser::Random, Chooser::Pct(2), Chooser::Pct(4)];

#[test]
fn two_threads_on_a_volume() {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    let (rows, choosers) = if is_long { (16, &CHOOSERS[..]) } else { (1, &CHOOSERS[..2]) };
    let limits = Limits { rows, mistake: None, samples: 2 };
    let mut all = Outcome::default();
    for program in volume::all() {
        let outcome = explore(&program, program.world(), choosers, &limits);
        println!("{}: {outcome}", program.name);
        all.merge(outcome);
    }
    println!("{all}");
    assert!(all.violations.is_empty(), "{all}");
}

fn found(program: &str, world: &str, mistake: Option<Mistake>) {
    let limits = Limits { rows: 3, mistake, samples: 2 };
    let outcome = explore(&volume::find(program).expect("a program"), world, &CHOOSERS, &limits);
    let Some(violation) = outcome.violations.first() else { panic!("{program} on {world}: {mistake:?} is not found") };
    println!("{program} on {world}: found by execution {}: {violation}", outcome.executions);
    let name = violation.split('\'').nth(1).expect("its name");
    let again = replay(name, mistake).expect("a name");
    assert_eq!(again.violations.first(), Some(violation), "the same execution, the same violation");
}

#[test]
fn a_commit_entry_that_is_not_fenced() {
    found("volume-own-files", "pmem@wal.commit.fence=drop-order", None);
}

#[test]
fn a_sync_whose_commit_entry_is_not_fenced() {
    found("policy-own-files", "pmem@wal.commit.fence=drop-order", None);
}

#[test]
fn a_commit_entry_before_what_it_commits_is_durable() {
    found("volume-own-files", "pmem@wal.log.fence=drop-order", None);
}

#[test]
fn what_is_in_place_before_the_old_content_is_logged() {
    found("undo-own-files", "pmem@undo.log.fence=drop-order", None);
}

#[test]
fn a_record_that_is_not_durable_when_its_wait_returns() {
    found("ordered-names", "disk@pages.commit=drop-order", None);
}

#[test]
fn a_group_whose_record_is_not_durable() {
    found("bitmaps-names", "disk@pages.commit=drop-order", None);
}

#[test]
fn two_groups_get_one_number() {
    found("volume-two-groups", "pmem", Some(Mistake::Torn("fs/explicit.rs")));
}

/// Threads that write the same blocks back, and others that write to them.
#[test]
fn lines_are_not_home_when_their_heads_are_wiped() {
    found("pending-two-checkpoints", "pmem@hybrid.home.fence=drop-order", None);
}

#[test]
fn two_threads_have_one_claim() {
    found("pending-two-checkpoints", "pmem", Some(Mistake::Torn("index/src/slot.rs")));
}
