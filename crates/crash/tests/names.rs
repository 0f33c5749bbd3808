//! The crash explorer over names and attributes: every op that makes sense, pairs of them, longer workloads written by hand and drawn.
//!
//! `WHOLLY_LONG=1` goes through all pairs, and more of everything. No verdict depends on time.

use wholly_crash::{Job, Limits, Outcome, Seen, Setting, Workload, coverage, explore_into, sequences};

fn long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

fn explored(seen: &Seen, workloads: &[Workload], setting: &Setting, limits: &Limits) -> Outcome {
    let job = |workload: &Workload| Job { workload: workload.clone(), setting: setting.clone() };
    let outcome = explore_into(seen, &workloads.iter().map(job).collect::<Vec<_>>(), limits);
    println!("{}: {} workloads, {outcome}\n", setting.name, workloads.len());
    outcome.assert_clean();
    outcome
}

fn drawn(from: u64, few: u64, many: u64) -> Vec<Workload> {
    (from..from + if long() { many } else { few }).map(sequences::drawn).collect()
}

/// One test, so that its two workers are all there are.
#[test]
fn no_name_is_torn_lost_or_invented() {
    let (some, few) = if long() { (Limits::quick(), Limits::hunt()) } else { (Limits::hunt(), Limits::glance()) };
    let (seen, mut all) = (Seen::default(), Outcome::default());
    let (mut by_hand, ones) = (sequences::by_hand(), sequences::ones());
    if long() {
        by_hand.push(sequences::many_creates());
    }
    for (number, (name, _)) in (0..).zip(wholly_crash::SETTINGS) {
        let setting = Setting::named(name);
        // Names are the host's: what the log is on matters less, and takes longer. Everywhere other pairs.
        let (written, each, pairs, longer) = match *name {
            "disk" => (true, true, 300, 60),
            "disk-ext4" => (true, true, 200, 40),
            "disk-sync" => (true, false, 60, 20),
            "pmem" => (false, true, 60, 10),
            _ => (false, false, 20, 5),
        };
        let mut workloads = if long() { sequences::pairs() } else { sequences::some_pairs(number, pairs) };
        for first in [number * 1000, sequences::LOTS + number * 1000, sequences::STAGING + number * 1000] {
            workloads.extend(drawn(first, longer / 3, longer * 10));
        }
        if each || long() {
            workloads.extend(ones.clone());
        }
        all.merge(explored(&seen, &workloads, &setting, &few));
        if written || long() {
            all.merge(explored(&seen, &by_hand, &setting, if *name == "disk" { &some } else { &few }));
        }
    }
    assert!(all.busy > 0, "no two groups were in each other's way");
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    println!("all worlds: {all}\n{}", coverage::table(&all));
    let names = |site: &wholly_media::Site| site.0.starts_with("names.") || site.0.starts_with("attributes.");
    let sites: Vec<_> = wholly::site::ALL.iter().copied().filter(names).collect();
    assert_eq!(coverage::uncovered(&sites, &all), [], "sites that were no crash point");
}
