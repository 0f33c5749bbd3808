//! Every bug that schedules have found, by the row of executions that showed it. Each of these failed once; as the core
//! changes, a row comes to mean other executions, and the story is what stays.

use wholly_threads::explore::{Chooser, explore_row};
use wholly_threads::program;

fn explored(name: &str, world: &str, chooser: Chooser, seed: u64) {
    let outcome = explore_row(&program::find(name).expect("a program"), world, chooser, seed);
    assert!(outcome.violations.is_empty(), "{outcome}");
}

/// A lane sealed its full segment to go on in the next one. Before it looked which group was the last in there, for the
/// next one's header, a checkpoint of another thread freed the segment, and a third group filled and committed in it.
/// The header then told of a segment that was missing although its groups were not home, and after a power failure the
/// log was taken for rotten.
#[test]
fn a_segment_is_filled_again_before_its_lane_has_left_it() {
    explored("full-log-alone", "pmem", Chooser::Pct(2), 19);
    explored("full-log", "pmem", Chooser::Pct(4), 17);
}

/// A group took its place in commit order when it claimed what it changes, and other groups moved ahead of it on an
/// object that they needed no claim for. Its record then said that it came after a group with a higher sequence. No
/// reader takes such a record, so after a crash the group was gone if it was the last of its lane, and otherwise the
/// store did not open.
///
/// The pass tells the log which inode it has made for a file, while a call that has claimed the file gives it another
/// name.
#[test]
fn a_pass_identifies_what_a_call_has_claimed() {
    explored("links-beside-a-pass", "pmem", Chooser::Pct(4), 1);
}

/// The same by names in a directory whose mode another group sets: neither excludes the other.
#[test]
fn names_change_in_a_directory_whose_mode_is_set() {
    explored("modes-beside-names", "pmem", Chooser::Pct(2), 0);
}

/// The same by a name far below a directory that moves: its group identifies all directories above.
#[test]
fn a_directory_moves_while_a_name_changes_below_it() {
    explored("moves-beside-names-below", "pmem", Chooser::Pct(2), 0);
}
