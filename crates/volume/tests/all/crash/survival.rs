//! After a crash, each call and each explicit group is there wholly or not at all. So it is after crashes inside of
//! recovery, deaths of the process, unmounts, and more calls.

use wholly_crash::volume::{OnVolume, sites};
use wholly_crash::{Job, Limits, Outcome, Seen, Setting, Subject, coverage, explore_into, replay_of, run};
use wholly_media::Site;
use wholly_sim::ExploreLimits;
use wholly_volume::EngineKind;

use super::programs::{Done, calls, groups, world};
use super::{hybrid, policies, shadow, undo};

/// Sites that only explicit groups pass. That of making a volume is passed by programs of `crash`.
const OF_GROUPS: [&str; 1] = ["wal.call.hand_over"];

pub fn is_long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

/// The models of persistent memory. What x86 allows, `pmem` allows too.
pub fn models() -> Vec<Setting> {
    let names = if is_long() { &["pmem", "pmem-x86"][..] } else { &["pmem"] };
    names.iter().map(|name| world(name)).collect()
}

/// Of programs a short run has every second one.
pub fn some<T>(programs: Vec<T>) -> Vec<T> {
    programs.into_iter().step_by(if is_long() { 1 } else { 2 }).collect()
}

pub fn limits() -> Limits {
    let (exhaustive_bits, samples, focus_bits) = if is_long() { (10, 200, 8) } else { (4, 2, 0) };
    let states = ExploreLimits {
        exhaustive_bits,
        single_units: 24,
        pair_units: 0,
        samples,
        focus_bits,
        ..ExploreLimits::default()
    };
    let (nested_one_in, whole_one_in) = if is_long() { (20, 1) } else { (200, 24) };
    Limits { states, nested_one_in, whole_one_in, go_on_one_in: 4, workers: 1, violations: 1, ..Limits::quick() }
}

/// A commit of many calls leaves recovery much to do, and many states of that.
pub fn limits_of_groups() -> Limits {
    Limits { nested_one_in: 600, whole_one_in: 60, nested_points: 1, ..limits() }
}

/// Explores programs, each in each of these worlds.
pub fn explored(settings: &[Setting], programs: &[OnVolume<Done>], limits: &Limits) -> Outcome {
    let (seen, mut together) = (Seen::default(), Outcome::default());
    for setting in settings {
        for subject in programs {
            let job = Job { subject: subject.clone(), setting: setting.clone() };
            let outcome = explore_into(&seen, std::slice::from_ref(&job), limits);
            println!("{} {}: {outcome}\n", setting.name, subject.name());
            if let Some(violation) = outcome.violations.first() {
                let path = violation.replay.splitn(5, ':').last().expect("a state has a path");
                let replay = replay_of(subject, &violation.replay, setting, path);
                panic!("{}\n{}", violation.what, replay.expect("a violation names its state"));
            }
            together.merge(outcome);
        }
    }
    (together.distinct, together.nested) = (seen.distinct(), seen.nested());
    println!("all of it: {together}");
    assert!(together.nested * 10 >= together.distinct, "only {} states are nested", together.nested);
    together
}

/// Each call of each script is there wholly or not at all, on each model of persistent memory.
#[test]
fn calls_are_there_wholly_or_not_at_all() {
    let outcome = explored(&models(), &calls(), &limits());
    // What only groups store, they are asked for.
    let mut sites = sites(EngineKind::FineGrainedWal);
    sites.retain(|site| !OF_GROUPS.contains(&site.0) && site.0 != "volume.wipe");
    assert_eq!(coverage::uncovered(&sites, &outcome), [], "these were no crash points");
}

/// Explicit groups are there wholly once they are committed, and not at all before.
#[test]
fn groups_are_there_wholly_or_not_at_all() {
    let outcome = explored(&models(), &groups(), &limits_of_groups());
    let of_groups: Vec<Site> = OF_GROUPS.iter().map(|site| Site(site)).collect();
    assert_eq!(coverage::uncovered(&of_groups, &outcome), [], "these were no crash points");
}

/// Nothing in a run comes from the machine or from an earlier run.
#[test]
fn runs_are_the_same_each_time() {
    let of_each = [hybrid::calls(), hybrid::groups(), undo::calls(), undo::groups(), policies::all()].concat();
    let of_shadow = [shadow::calls(), shadow::groups()].concat();
    for subject in [calls(), groups(), of_each, of_shadow].concat() {
        let [one, other] = [(); 2].map(|()| run(&subject, &world("pmem")).trace);
        assert_eq!(one.initial.hash(), other.initial.hash());
        assert_eq!(one.events.len(), other.events.len());
        for (one, other) in one.events.iter().zip(&other.events) {
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "{}", subject.name());
        }
    }
}
