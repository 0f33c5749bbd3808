//! The crash explorer over files that are staged, and those that have shadows: their bytes are on the host before their
//! group commits.
//!
//! `WHOLLY_LONG=1` goes through every world, and more of each. No verdict depends on time.

use crate::common::{explored, is_long};
use wholly_crash::{Limits, Outcome, Seen, Setting, Workload, coverage, sequences};

/// Of the pairs one of so many is tried in a short run, in each world another one.
const SPREAD: usize = 24;

#[test]
fn a_staged_file_is_whole_or_not_there() {
    let (seen, mut all) = (Seen::default(), Outcome::default());
    let (staged, pairs) = (sequences::staged(), sequences::staged_pairs());
    for (number, (name, _)) in wholly_crash::SETTINGS.iter().enumerate() {
        let limits = match (*name, is_long()) {
            ("disk", true) => Limits::quick(),
            ("disk-ext4" | "pmem" | "disk-sync", true) => Limits::hunt(),
            ("disk", false) | (_, true) => Limits::glance(),
            (_, false) => continue,
        };
        let setting = Setting::named(name);
        all.merge(explored(&seen, &staged, &setting, &limits));
        let (from, step) = if is_long() && *name == "disk" { (0, 1) } else { (number % SPREAD, SPREAD) };
        let some: Vec<Workload> = pairs.iter().skip(from).step_by(step).cloned().collect();
        all.merge(explored(&seen, &some, &setting, &Limits::glance()));
    }
    assert_eq!(coverage::uncovered(&coverage::of(&["stage.", "shadow."]), &all), [], "sites that were no crash point");
    assert!(seen.distinct() > 2_000, "only {} distinct states", seen.distinct());
}
