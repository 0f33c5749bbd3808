//! The same programs under the explorer of `crash`, which is the one of stores: nested crashes of everything that a
//! recovery stores, deaths of the process before them, unmounts, and more calls after a recovery.
//!
//! It is to take the place of `explore.rs` and `tree.rs`.

use wholly_crash::volume::sites;
use wholly_crash::{Job, Limits, Outcome, Seen, Subject, coverage, explore, explore_into, replay_of, run};
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Mutation, MutationKind};
use wholly_volume::EngineKind;

use crate::programs::{Done, all, world};

/// Sites that only explicit groups pass. That of making a volume is passed by programs of `crash`.
const OF_GROUPS: [&str; 1] = ["wal.call.fence"];

fn is_long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

fn limits(long: bool) -> Limits {
    let (exhaustive_bits, samples, focus_bits) = if long { (10, 200, 8) } else { (4, 4, 0) };
    let states = ExploreLimits {
        exhaustive_bits,
        single_units: 24,
        pair_units: 0,
        samples,
        focus_bits,
        ..ExploreLimits::default()
    };
    let (nested_one_in, whole_one_in) = if long { (20, 1) } else { (200, 24) };
    Limits { states, nested_one_in, whole_one_in, go_on_one_in: 4, workers: 1, violations: 1, ..Limits::quick() }
}

/// Explores programs, each in each of these worlds.
fn explored(worlds: &[&str], wanted: impl Fn(&Done) -> bool, limits: &Limits) -> Outcome {
    let (seen, mut together) = (Seen::default(), Outcome::default());
    for name in worlds {
        let setting = world(name);
        for subject in all().into_iter().filter(|subject| wanted(&subject.program)) {
            let job = Job { subject, setting: setting.clone() };
            let outcome = explore_into(&seen, std::slice::from_ref(&job), limits);
            println!("{name} {}: {outcome}\n", job.subject.name());
            if let Some(violation) = outcome.violations.first() {
                let path = violation.replay.splitn(5, ':').last().expect("a state has a path");
                let replay = replay_of(&job.subject, &violation.replay, &setting, path);
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

/// Each call of each script is there wholly or not at all, on both models of persistent memory.
#[test]
fn calls_survive_a_crash_inside_of_recovery() {
    let is_group = |program: &Done| matches!(program, Done::Story(_));
    let outcome = explored(&["pmem", "pmem-x86"], |program| !is_group(program), &limits(is_long()));
    // What only groups store, they are asked for.
    let mut sites = sites(EngineKind::FineGrainedWal);
    sites.retain(|site| !OF_GROUPS.contains(&site.0) && site.0 != "volume.wipe");
    assert_eq!(coverage::uncovered(&sites, &outcome), [], "these were no crash points");
}

/// Explicit groups are there wholly once they are committed, and not at all before.
#[test]
fn groups_survive_a_crash_inside_of_recovery() {
    // A commit of many calls leaves recovery much to do, and many states of that.
    let limits = Limits { nested_one_in: 600, whole_one_in: 60, nested_points: 1, ..limits(is_long()) };
    let worlds = if is_long() { &["pmem", "pmem-x86"][..] } else { &["pmem"] };
    let outcome = explored(worlds, |program| matches!(program, Done::Story(_)), &limits);
    let of_groups: Vec<Site> = OF_GROUPS.iter().map(|site| Site(site)).collect();
    assert_eq!(coverage::uncovered(&of_groups, &outcome), [], "these were no crash points");
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

fn is_seen(site: &'static str, kind: MutationKind) -> bool {
    let states = ExploreLimits {
        exhaustive_bits: 4,
        single_units: 24,
        pair_units: 0,
        samples: 8,
        focus_bits: 3,
        seed: 7,
        ..ExploreLimits::default()
    };
    let in_recovery = site.starts_with("wal.recover");
    let nested_one_in = if in_recovery { 5 } else { 0 };
    let limits =
        Limits { states, nested_one_in, whole_one_in: 0, every_rare: in_recovery, violations: 1, ..Limits::quick() };
    let setting = world("pmem").broken(Mutation::new(Site(site), kind));
    let mut subjects = all();
    subjects.retain(|subject| !matches!(subject.program, Done::Story(_)));
    subjects.iter().any(|subject| !explore(subject, &setting, &limits).violations.is_empty())
}

/// Mistakes in what a mount and a settled group store. Operations are made by two threads in turn, and the first not by
/// the one that mounts.
#[test]
fn a_mistake_beside_the_commit_is_seen() {
    let mistakes = [
        ("volume.fence", MutationKind::DropOrder),
        ("volume.superblock", MutationKind::DelayWrite),
        ("wal.settle", MutationKind::DelayWrite),
    ];
    let unseen: Vec<_> = mistakes.iter().filter(|(site, kind)| !is_seen(site, *kind)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}
