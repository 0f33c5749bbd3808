//! The crash explorer over groups that are parked, applied and discarded, and over guests.
//!
//! `WHOLLY_LONG=1` goes through every world, and more of each. No verdict depends on time.

use wholly_crash::{Job, Limits, Outcome, Seen, Setting, coverage, explore_into, sequences};

#[test]
fn a_parked_group_is_there_or_applied_or_neither() {
    let long = std::env::var_os("WHOLLY_LONG").is_some();
    let (seen, mut all) = (Seen::default(), Outcome::default());
    for (name, _) in wholly_crash::SETTINGS {
        let limits = match (*name, long) {
            ("disk", false) => Limits::hunt(),
            ("disk-ext4" | "pmem", false) => Limits::glance(),
            (_, false) => continue,
            (_, true) => Limits::quick(),
        };
        let setting = Setting::named(name);
        let job = |workload| Job { workload, setting: setting.clone() };
        let outcome = explore_into(&seen, &sequences::parked().into_iter().map(job).collect::<Vec<_>>(), &limits);
        println!("{name}: {outcome}\n");
        outcome.assert_clean();
        all.merge(outcome);
    }
    let sites: Vec<_> = wholly::site::ALL
        .iter()
        .copied()
        .filter(|site| ["park.", "guest."].iter().any(|part| site.0.starts_with(part)))
        .collect();
    assert_eq!(coverage::uncovered(&sites, &all), [], "sites that were no crash point");
    assert!(seen.distinct() > 10_000, "only {} distinct states", seen.distinct());
}
