//! Crashes of a volume with the engine `fine_grained_wal`, in simulated persistent memory: every word that was stored
//! and not fenced may survive or not. After each crash the volume must be sound, and be what it was before the call in
//! flight or what it was to be after it. Crashes during recovery are crashes, too. Explicit groups are there wholly
//! once they are committed, and not at all before. The explorer is that of `crash`.
//!
//! `WHOLLY_LONG=1` tries many more states.

mod costs;
mod groups;
mod planted;
mod programs;
mod scripts;

use programs::{Done, all, world};
use wholly_crash::volume::sites;
use wholly_crash::{Job, Limits, Outcome, Seen, Subject, coverage, explore_into, replay_of, run};
use wholly_sim::ExploreLimits;
use wholly_volume::EngineKind;

fn limits(long: bool) -> Limits {
    let (exhaustive_bits, samples, focus_bits) = if long { (10, 200, 8) } else { (5, 6, 3) };
    let states = ExploreLimits {
        exhaustive_bits,
        single_units: 24,
        pair_units: 0,
        samples,
        focus_bits,
        ..ExploreLimits::default()
    };
    let (nested_one_in, whole_one_in) = if long { (20, 1) } else { (200, 12) };
    Limits { states, nested_one_in, whole_one_in, go_on_one_in: 2, violations: 1, ..Limits::quick() }
}

/// Each call of each script is there wholly or not at all, on all models of persistent memory, and each place in the
/// code that stores or orders was a crash point. One test, so that its two workers are all there are.
#[test]
fn each_call_survives_wholly_or_not_at_all() {
    let long = std::env::var_os("WHOLLY_LONG").is_some();
    let (seen, mut all_worlds) = (Seen::default(), Outcome::default());
    for name in wholly_crash::volume::WORLDS {
        let setting = world(name);
        for subject in all() {
            let limits = match subject.program {
                // A commit of many calls leaves recovery much to do, and many states of that.
                Done::Story(_) => Limits { nested_one_in: 600, whole_one_in: 60, nested_points: 1, ..limits(long) },
                _ => limits(long),
            };
            let job = Job { subject, setting: setting.clone() };
            let outcome = explore_into(&seen, std::slice::from_ref(&job), &limits);
            println!("{name} {}: {outcome}\n", job.subject.name());
            if let Some(violation) = outcome.violations.first() {
                let path = violation.replay.splitn(5, ':').last().expect("a state has a path");
                let replay = replay_of(&job.subject, &violation.replay, &setting, path);
                panic!("{}\n{}", violation.what, replay.expect("a violation names its state"));
            }
            all_worlds.merge(outcome);
        }
    }
    (all_worlds.distinct, all_worlds.nested) = (seen.distinct(), seen.nested());
    println!("all worlds: {all_worlds}");
    assert_eq!(coverage::uncovered(&sites(EngineKind::FineGrainedWal), &all_worlds), [], "these were no crash points");
    assert!(all_worlds.nested * 20 >= all_worlds.distinct, "only {} states are nested", all_worlds.nested);
}

/// Nothing in a run comes from the machine or from an earlier run.
#[test]
fn runs_are_the_same_each_time() {
    for subject in all() {
        let [one, other] = [(); 2].map(|()| run(&subject, &world("pmem")).trace);
        assert_eq!(one.initial.hash(), other.initial.hash());
        assert_eq!(one.events.len(), other.events.len());
        for (one, other) in one.events.iter().zip(&other.events) {
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "{}", subject.name());
        }
    }
}
