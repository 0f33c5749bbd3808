//! The crash explorer over the store: hand-written and drawn workloads, every world, no violation, every site a crash
//! point.
//!
//! `WHOLLY_LONG=1` goes through more workloads and more states. No verdict depends on time.

use crate::common::{explored, is_long};
use rustix::io::Errno;
use wholly_crash::{Limits, Outcome, Seen, Setting, Workload, catalogue, coverage, explore};
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Mutation, MutationKind};

fn random(from: u64, few: u64, many: u64) -> Vec<Workload> {
    (from..from + if is_long() { many } else { few }).map(catalogue::random).collect()
}

/// Sites of names and attributes, of parked groups, of joint commits and of staged files are covered by the workloads
/// on those.
fn of_bytes(sites: &[Site]) -> Vec<Site> {
    let others = coverage::of(&[
        "names.",
        "attributes.",
        "park.",
        "guest.",
        "joint.",
        "stage.",
        "shadow.",
        "layer.",
        "adopt.",
        "undo.",
        "kept.",
        "room.",
    ]);
    sites.iter().copied().filter(|site| !others.contains(site)).collect()
}

/// Of worlds that are much like others, in a short run: one in so many of the workloads.
const SPREAD: usize = 6;

/// One test, with two workers and one count of states.
#[test]
fn nothing_is_torn_lost_or_invented() {
    let long = is_long();
    let some = Limits::hunt();
    let few = if long { Limits::hunt() } else { Limits::glance() };
    let quick = |samples, single_units, exhaustive_bits| Limits {
        states: ExploreLimits { exhaustive_bits, samples, single_units, pair_units: 0, ..Limits::quick().states },
        ..Limits::quick()
    };
    let most = if long { Limits::quick() } else { quick(40, 40, 7) };
    // Of words there are many more than of sectors, and one is like the other.
    let words = if long {
        quick(300, 120, 11)
    } else {
        let few = quick(8, 6, 4);
        Limits { states: ExploreLimits { focus_bits: 3, ..few.states }, ..few }
    };
    let (seen, mut all) = (Seen::default(), Outcome::default());
    let hand_written = catalogue::all();
    for (number, (name, _)) in wholly_crash::SETTINGS.iter().enumerate() {
        let setting = Setting::named(name);
        let first = ["pmem", "disk"].contains(name);
        let effort = match *name {
            "pmem" => &words,
            "disk" => &most,
            "disk-ext4" => &some,
            _ => &few,
        };
        // A world that is much like one of these has a part of the workloads in a short run, and the next one another.
        let is_whole = long || first || *name == "disk-ext4";
        let spread = if is_whole { 1 } else { SPREAD };
        let mine: Vec<Workload> = hand_written.iter().skip(number % spread).step_by(spread).cloned().collect();
        let mut outcome = explored(&seen, &mine, &setting, effort);
        let drawn = match *name {
            "pmem" => [random(0, 1, 16), random(catalogue::LATER, 1, 16), random(catalogue::STAGED, 1, 8)].concat(),
            "disk" => [
                random(200, 5, 96),
                random(1000, 4, 56),
                random(catalogue::LATER, 8, 144),
                random(catalogue::STAGED, 4, 64),
            ]
            .concat(),
            "disk-ext4" => [random(200, 2, 56), random(catalogue::LATER, 2, 64)].concat(),
            "pmem-over-disk" => [random(1000, 1, 16), random(catalogue::LATER, 1, 16)].concat(),
            _ => Vec::new(),
        };
        if !drawn.is_empty() {
            // Torn groups of several blocks are rare on disks: more of these recoveries are crashed.
            let deep = if *name == "disk" { Limits { nested_one_in: 2, ..some.clone() } } else { some.clone() };
            outcome.merge(explored(&seen, &drawn, &setting, &deep));
        }
        if first {
            let sites = of_bytes(&coverage::sites(&setting));
            assert_eq!(coverage::uncovered(&sites, &outcome), [], "sites that were no crash point in the world {name}");
        }
        all.merge(outcome);
    }
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    println!("all worlds: {all}\n{}", coverage::table(&all));
    assert_eq!(coverage::uncovered(&of_bytes(wholly::site::ALL), &all), [], "sites that were no crash point");
    assert!(all.distinct > 30_000, "only {} distinct states", all.distinct);
    assert!(all.nested * 10 >= all.distinct, "only {} states inside of recoveries", all.nested);
}

/// Epochs that write over their own bytes, and give parts of the log up, in every world.
#[test]
fn epochs_that_write_over_their_own_bytes() {
    let workloads: Vec<Workload> = ["over", "shared-over", "give-up", "shared-give-up"]
        .map(|name| catalogue::find(name).expect("a workload"))
        .into();
    let seen = Seen::default();
    let mut all = Outcome::default();
    for (name, _) in wholly_crash::SETTINGS {
        let limits = if is_long() { Limits::quick() } else { Limits::glance() };
        all.merge(explored(&seen, &workloads, &Setting::named(name), &limits));
    }
    println!("epochs: {all}");
}

/// A file system that has no holes: zeros are written in their place.
#[test]
fn zeros_are_written_where_there_are_no_holes() {
    let refused = Mutation::new(wholly::site::CHECKPOINT_PUNCH, MutationKind::Fail(Errno::OPNOTSUPP));
    for workload in ["punches", "space"] {
        let workload = catalogue::find(workload).expect("a workload");
        for world in ["pmem", "disk"] {
            explore(&workload, &Setting::named(world).broken(refused), &Limits::glance()).assert_clean();
        }
    }
}
