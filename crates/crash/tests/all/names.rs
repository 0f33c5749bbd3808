//! The crash explorer over names and attributes: every op that makes sense, pairs of them, longer workloads written by
//! hand and drawn.
//!
//! `WHOLLY_LONG=1` goes through more of everything; `wholly crash pairs` goes through all pairs. No verdict depends on
//! time.

use crate::common::{explored, is_long};
use wholly_crash::{Limits, Outcome, Seen, Setting, Workload, coverage, sequences};

fn drawn(from: u64, count: u64) -> Vec<Workload> {
    (from..from + count).map(sequences::drawn).collect()
}

/// One test, with two workers.
#[test]
fn no_name_is_torn_lost_or_invented() {
    let (some, few, times) = (Limits::hunt(), Limits::glance(), if is_long() { 16 } else { 1 });
    let (seen, mut all) = (Seen::default(), Outcome::default());
    let (mut by_hand, ones) = (sequences::by_hand(), sequences::ones());
    if is_long() {
        by_hand.push(sequences::many_creates());
    }
    for (number, (name, _)) in (0..).zip(wholly_crash::SETTINGS) {
        let setting = Setting::named(name);
        // Names are the host's: what the log is on matters less, and takes longer. Everywhere other pairs.
        let (written, each, pairs, longer) = match *name {
            "disk" => (true, true, 18, 6),
            "disk-ext4" => (is_long(), is_long(), 12, 3),
            "disk-sync" => (is_long(), false, 9, 3),
            "pmem" => (false, is_long(), 9, 3),
            _ => (false, false, 3, 3),
        };
        let mut workloads = sequences::some_pairs(number, pairs * times);
        for first in [number * 1000, sequences::LOTS + number * 1000, sequences::STAGING + number * 1000] {
            workloads.extend(drawn(first, longer * times as u64 / 3));
        }
        if each {
            workloads.extend(ones.clone());
        }
        all.merge(explored(&seen, &workloads, &setting, &few));
        if written {
            all.merge(explored(&seen, &by_hand, &setting, if *name == "disk" { &some } else { &few }));
        }
    }
    assert!(all.busy > 0, "no two groups were in each other's way");
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    println!("all worlds: {all}\n{}", coverage::table(&all));
    let sites = coverage::of(&["names.", "attributes."]);
    assert_eq!(coverage::uncovered(&sites, &all), [], "sites that were no crash point");
}
