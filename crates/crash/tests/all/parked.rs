//! The crash explorer over groups that are parked, applied and discarded, and over guests.
//!
//! `WHOLLY_LONG=1` goes through every world, and more of each. No verdict depends on time.

use crate::common::{explored, is_long};
use wholly_crash::{Limits, Outcome, Seen, Setting, coverage, sequences};

#[test]
fn a_parked_group_is_there_or_applied_or_neither() {
    let (seen, mut all) = (Seen::default(), Outcome::default());
    for (name, _) in wholly_crash::SETTINGS {
        let limits = match (*name, is_long()) {
            ("disk", true) => Limits::quick(),
            ("disk-ext4" | "pmem", true) => Limits::hunt(),
            ("disk", false) | (_, true) => Limits::glance(),
            (_, false) => continue,
        };
        all.merge(explored(&seen, &sequences::parked(), &Setting::named(name), &limits));
    }
    assert_eq!(coverage::uncovered(&coverage::of(&["park.", "guest."]), &all), [], "sites that were no crash point");
    assert!(seen.distinct() > 2_000, "only {} distinct states", seen.distinct());
}
