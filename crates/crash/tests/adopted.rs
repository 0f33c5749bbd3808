//! The crash explorer over what groups adopt: whole directories that another program has made, and that nobody has synced.
//!
//! `WHOLLY_LONG=1` goes through every world, and more of each. No verdict depends on time.

use wholly_crash::{Job, Limits, Outcome, Seen, Setting, coverage, explore_into, sequences};

#[test]
fn what_is_adopted_is_whole_or_not_there() {
    let long = std::env::var_os("WHOLLY_LONG").is_some();
    let (seen, mut all) = (Seen::default(), Outcome::default());
    for (name, _) in wholly_crash::SETTINGS {
        let limits = match (*name, long) {
            ("disk", false) => Limits::hunt(),
            ("disk-ext4" | "pmem" | "disk-sync", false) => Limits::glance(),
            (_, false) => continue,
            (_, true) => Limits::quick(),
        };
        let setting = Setting::named(name);
        let job = |workload| Job { workload, setting: setting.clone() };
        let outcome = explore_into(&seen, &sequences::adopted().into_iter().map(job).collect::<Vec<_>>(), &limits);
        println!("{name}: {outcome}\n");
        outcome.assert_clean();
        all.merge(outcome);
    }
    let is_wanted = |site: &wholly_media::Site| site.0.starts_with("adopt.") || site.0.starts_with("layer.");
    let sites: Vec<_> = wholly::site::ALL.iter().copied().filter(|site| is_wanted(site)).collect();
    assert_eq!(coverage::uncovered(&sites, &all), [], "sites that were no crash point");
    assert!(seen.distinct() > 5_000, "only {} distinct states", seen.distinct());
}
