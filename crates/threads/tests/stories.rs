//! Every bug that schedules have found, by the row of executions that showed it. Each of these failed once; as the core changes, a row
//! comes to mean other executions, and the story is what stays.

use wholly_threads::explore::{Chooser, explore_row};
use wholly_threads::program;

fn explored(name: &str, world: &str, chooser: Chooser, seed: u64) {
    let outcome = explore_row(&program::find(name).expect("a program"), world, chooser, seed);
    assert!(outcome.violations.is_empty(), "{outcome}");
}

/// A lane sealed its full segment to go on in the next one. Before it looked which group was the last in there, for the next one's header,
/// a checkpoint of another thread freed the segment, and a third group filled and committed in it. The header then told of a
/// segment that was missing although its groups were not home, and after a power failure the log was taken for rotten.
#[test]
fn a_segment_is_filled_again_before_its_lane_has_left_it() {
    explored("full-log-alone", "pmem", Chooser::Pct(2), 19);
    explored("full-log", "pmem", Chooser::Pct(4), 17);
}
