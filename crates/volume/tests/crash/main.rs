//! Crashes of a volume with the engines `fine_grained_wal` and `hybrid_log`, in simulated persistent memory: every word
//! that was stored and not fenced may survive or not. After each crash the volume must be sound, and be what it was
//! before the call in flight or what it was to be after it. Crashes during recovery are crashes, too. Explicit groups
//! are there wholly once they are committed, and not at all before.
//!
//! `WHOLLY_LONG=1` tries many more states.

mod costs;
mod explore;
mod groups;
mod hybrid;
mod planted;
mod programs;
mod scripts;
mod survival;
mod tree;

use explore::{Limits, Outcome, Recorded, Subject};

fn limits(long: bool) -> Limits {
    match long {
        false => Limits { exhaustive_bits: 5, samples: 6, nested_every: 200, ..Limits::default() },
        true => Limits { exhaustive_bits: 10, samples: 200, nested_every: 10, ..Limits::default() },
    }
}

/// Each call of each script is there wholly or not at all, on both models of persistent memory, and each place in the
/// code that stores or orders was a crash point.
#[test]
fn each_call_survives_wholly_or_not_at_all() {
    let long = std::env::var_os("WHOLLY_LONG").is_some();
    let mut all = Outcome::default();
    for script in scripts::SCRIPTS {
        for x86 in [false, true] {
            let recorded = Recorded::of(script, x86, &[]);
            let outcome = recorded.explore(&limits(long));
            let Outcome { states, nested, points, .. } = outcome;
            println!("{}: {states} states, {nested} of them after a crash in recovery, {points} points", script.name);
            if let Some(violation) = &outcome.violation {
                panic!("{} ({}): {violation}", script.name, if x86 { "x86" } else { "adversarial" });
            }
            all.add(outcome);
        }
    }
    // A commit of many calls leaves recovery much to do, and many states of that.
    let few = Limits { nested_every: 3 * limits(long).nested_every, nested_points: 2, ..limits(long) };
    for story in groups::stories() {
        for x86 in [false, true] {
            let recorded =
                Recorded::of_moves(Subject::FINE_GRAINED_WAL, (&story.name, story.before), &story.moves, x86, &[]);
            let outcome = recorded.explore(&few);
            let Outcome { states, nested, points, .. } = outcome;
            println!("{}: {states} states, {nested} of them after a crash in recovery, {points} points", story.name);
            if let Some(violation) = &outcome.violation {
                panic!("{} ({}): {violation}", story.name, if x86 { "x86" } else { "adversarial" });
            }
            all.add(outcome);
        }
    }
    for x86 in [false, true] {
        let outcome = Recorded::of_resizing(Subject::FINE_GRAINED_WAL, x86).explore(&limits(long));
        println!("resizing: {} states, {} points", outcome.states, outcome.points);
        assert_eq!(outcome.violation, None, "resizing ({})", if x86 { "x86" } else { "adversarial" });
        all.add(outcome);
    }
    println!("{} states, {} nested, {} points", all.states, all.nested, all.points);
    let elsewhere = |site: &str| {
        let others = ["volume.save", "volume.wipe", "wal.recover.commit"];
        site.starts_with("none.") || site.starts_with("hybrid.") || others.contains(&site)
    };
    let mut missing: Vec<&str> = wholly_volume::sites().iter().map(|site| site.0).collect();
    missing.retain(|site| !elsewhere(site) && !all.crashed_at.contains(site));
    assert_eq!(missing, [""; 0], "these were no crash points");
    assert!(all.nested * 100 >= all.states * 5, "{} of {} states are nested", all.nested, all.states);
}
