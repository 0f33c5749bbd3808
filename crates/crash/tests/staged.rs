//! The crash explorer over files that are staged, and those that have shadows: their bytes are on the host before their group commits.
//!
//! `WHOLLY_LONG=1` goes through every world, all pairs, and more of each. No verdict depends on time.

use wholly_crash::{Job, Limits, Outcome, Seen, Setting, coverage, explore_into, sequences};

/// Of the pairs one of so many is tried in a short run, in each world another one.
const SPREAD: usize = 5;

#[test]
fn a_staged_file_is_whole_or_not_there() {
    let long = std::env::var_os("WHOLLY_LONG").is_some();
    let (seen, mut all) = (Seen::default(), Outcome::default());
    let (staged, pairs) = (sequences::staged(), sequences::staged_pairs());
    for (number, (name, _)) in wholly_crash::SETTINGS.iter().enumerate() {
        let limits = match (*name, long) {
            ("disk", false) => Limits::hunt(),
            ("disk-ext4" | "pmem" | "disk-sync", false) => Limits::glance(),
            (_, false) => continue,
            (_, true) => Limits::quick(),
        };
        let setting = Setting::named(name);
        let job = |workload: &_| Job { workload: wholly_crash::Workload::clone(workload), setting: setting.clone() };
        let step = if long { 1 } else { SPREAD };
        let some = pairs.iter().skip(if long { 0 } else { number % SPREAD }).step_by(step);
        let outcome = explore_into(&seen, &staged.iter().map(job).collect::<Vec<_>>(), &limits);
        println!("{name}: {outcome}\n");
        outcome.assert_clean();
        all.merge(outcome);
        let few = if long { Limits::hunt() } else { Limits::glance() };
        let outcome = explore_into(&seen, &some.map(job).collect::<Vec<_>>(), &few);
        println!("{name}, pairs: {outcome}\n");
        outcome.assert_clean();
        all.merge(outcome);
    }
    let is_wanted = |site: &wholly_media::Site| site.0.starts_with("stage.") || site.0.starts_with("shadow.");
    let sites: Vec<_> = wholly::site::ALL.iter().copied().filter(|site| is_wanted(site)).collect();
    assert_eq!(coverage::uncovered(&sites, &all), [], "sites that were no crash point");
    assert!(seen.distinct() > 10_000, "only {} distinct states", seen.distinct());
}
