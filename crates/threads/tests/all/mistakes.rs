//! A rig that cannot fail proves nothing: mistakes made on purpose are found, and an execution that found one finds it
//! again.

use wholly_threads::explore::{Chooser, Limits, explore, replay};
use wholly_threads::program;
use wholly_threads::sync::Mistake;

const CHOOSERS: [Chooser; 3] = [Chooser::Random, Chooser::Pct(2), Chooser::Pct(4)];

/// Some program finds it, in one of these worlds.
fn found(what: &str, worlds: &[&str], mistake: Option<Mistake>) {
    let limits = Limits { rows: 3, mistake, samples: 2 };
    for world in worlds {
        for program in program::all() {
            let outcome = explore(&program, world, &CHOOSERS, &limits);
            let Some(violation) = outcome.violations.first() else { continue };
            println!("{what}: found by execution {} of {} on {world}: {violation}", outcome.executions, program.name);
            let name = violation.split('\'').nth(1).expect("its name");
            let again = replay(name, mistake).expect("a name");
            // In whatever words: where two threads panic, Shuttle does not always say the same of it.
            assert!(!again.violations.is_empty(), "the same execution, a violation again");
            return;
        }
    }
    panic!("{what}: not found");
}

#[test]
fn a_slot_that_is_changed_in_two_steps() {
    found("torn slot", &["pmem"], Some(Mistake::Torn("index/src/slot.rs")));
}

#[test]
fn an_owner_that_is_changed_in_two_steps() {
    found("torn file", &["pmem"], Some(Mistake::Torn("hostdir/file.rs")));
}

#[test]
fn sequences_that_two_groups_get() {
    found("torn log", &["pmem"], Some(Mistake::Torn("log/src/lib.rs")));
}

#[test]
fn a_thread_fences_what_another_has_stored() {
    found("one token", &["pmem"], Some(Mistake::OneToken));
}

#[test]
fn a_checkpoint_does_not_wait_for_commits_in_flight() {
    found("nobody in flight", &["pmem"], Some(Mistake::NobodyInFlight));
}

#[test]
fn a_commit_without_its_fence() {
    found("no fence", &["pmem@lane.commit-fence=drop-order", "disk@batch.write=drop-order"], None);
}

#[test]
fn a_checkpoint_without_its_fences() {
    found("no fence of a checkpoint", &["pmem@checkpoint.fence=drop-order"], None);
}
