//! The crash explorer over volumes: programs of calls in the store's vocabulary, with its model. Scripts of other calls
//! are explored by the tests of `volume`.
//!
//! `make test` glances at them in the first world of each engine: with the first engine at every call and one in eighty
//! of all pairs, with others at one call in three and one pair in 400. `WHOLLY_LONG=1` glances at four times as many
//! pairs, in all worlds. `wholly crash --subject` goes through all.

use wholly_crash::volume::{Calls, OnVolume, engines, setting, several, worlds};
use wholly_crash::{Job, Limits, Outcome, Seen, Subject, coverage, explore, explore_into, replay};
use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind};
use wholly_volume::EngineKind;

/// One test, with two workers.
#[test]
fn no_call_is_torn_lost_or_invented() {
    let (seen, mut all) = (Seen::default(), Outcome::default());
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    for engine in engines() {
        for (number, name) in (0..).zip(worlds(engine)).take(if is_long { usize::MAX } else { 1 }) {
            let setting = setting(name).expect("a world");
            // What an open does is seen with those written by hand, and what the first of two calls does with each by
            // itself.
            let of_first = [("ones", 1), ("some-pairs", 2)];
            let more = if number == 0 { &of_first[..] } else { &[] };
            for &(name, skipped) in [("by-hand", 0)].iter().chain(more) {
                let mut subjects = several(engine, name).expect("programs");
                // Those that give inodes back take longer than all others: `given_back` has them.
                subjects.retain(|subject| is_long || !subject.name().contains("given-back"));
                // In a short run one in three of those that the first engine has.
                let is_first = engine == EngineKind::FineGrainedWal;
                let step = match (name, is_first, is_long) {
                    ("some-pairs", true, false) => 4,
                    ("some-pairs", false, false) => 20,
                    ("some-pairs", false, true) => 5,
                    (_, false, false) => 3,
                    _ => 1,
                };
                subjects = subjects.into_iter().step_by(step).collect();
                let job = |subject: &OnVolume<Calls>| Job { subject: subject.clone(), setting: setting.clone() };
                let limits = Limits { skipped, ..Limits::sweep() };
                for some in subjects.chunks(32) {
                    all.merge(explore_into(&seen, &some.iter().map(job).collect::<Vec<_>>(), &limits));
                }
            }
        }
    }
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    println!("{all}");
    all.assert_clean();
    // All other sites are covered by the tests of `volume`.
    assert_eq!(
        coverage::uncovered(&[Site("volume.wipe"), Site("volume.save")], &all),
        [],
        "these were no crash points"
    );
}

/// A violation names a state that can be rebuilt.
#[test]
fn a_planted_bug_is_replayed() {
    let subject = several(EngineKind::FineGrainedWal, "bare,call.write-A/foo").expect("a script").remove(0);
    let broken = Mutation::new(Site("wal.commit.fence"), MutationKind::DropOrder);
    let outcome = explore(&subject, &setting("pmem").expect("a world").broken(broken), &Limits::hunt());
    let violation = outcome.violations.first().expect("it is seen");
    let name = "volume:fine_grained_wal:bare,call.write-A/foo:pmem@wal.commit.fence=drop-order:";
    assert!(violation.replay.starts_with(name), "{violation}");
    let again = replay(&violation.replay).expect("a violation names its state");
    assert!(again.violation.is_some(), "{violation} does not replay:\n{again}");
}
