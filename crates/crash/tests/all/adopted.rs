//! The crash explorer over what groups adopt: whole directories that another program has made, and that nobody has
//! synced.
//!
//! `WHOLLY_LONG=1` goes through every world, and more of each. No verdict depends on time.

use crate::common::{explored, is_long};
use wholly_crash::{Limits, Outcome, Seen, Setting, coverage, sequences};

#[test]
fn what_is_adopted_is_whole_or_not_there() {
    let (seen, mut all) = (Seen::default(), Outcome::default());
    for (name, _) in wholly_crash::SETTINGS {
        let limits = match (*name, is_long()) {
            ("disk", true) => Limits::quick(),
            ("disk-ext4" | "pmem" | "disk-sync", true) => Limits::hunt(),
            ("disk", false) | (_, true) => Limits::glance(),
            (_, false) => continue,
        };
        all.merge(explored(&seen, &sequences::adopted(), &Setting::named(name), &limits));
    }
    assert_eq!(coverage::uncovered(&coverage::of(&["adopt.", "layer."]), &all), [], "sites that were no crash point");
    assert!(seen.distinct() > 2_000, "only {} distinct states", seen.distinct());
}
