//! The crash explorer over volumes: programs of calls in the store's vocabulary, with its model. Scripts of other calls
//! are explored by the tests of `volume`.
//!
//! `make test` glances at every call and at one in twenty of all pairs; `wholly crash --subject` goes through all.

use wholly_crash::volume::{Calls, ENGINES, OnVolume, WORLDS, setting, several};
use wholly_crash::{Job, Limits, Outcome, Seen, explore, explore_into, replay};
use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind};

/// One test, so that its two workers are all there are.
#[test]
fn no_call_is_torn_lost_or_invented() {
    let (seen, mut all) = (Seen::default(), Outcome::default());
    for engine in ENGINES {
        for (number, name) in (0..).zip(WORLDS) {
            let setting = setting(name).expect("a world");
            let mut subjects = several(engine, "by-hand").expect("programs");
            if number == 0 {
                subjects
                    .extend(["ones", "some-pairs"].into_iter().flat_map(|name| several(engine, name).expect("some")));
            }
            for some in subjects.chunks(32) {
                let job = |subject: &OnVolume<Calls>| Job { subject: subject.clone(), setting: setting.clone() };
                all.merge(explore_into(&seen, &some.iter().map(job).collect::<Vec<_>>(), &Limits::sweep()));
            }
        }
    }
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    println!("{all}");
    all.assert_clean();
}

/// A violation names a state that can be rebuilt.
#[test]
fn a_planted_bug_is_replayed() {
    let subject = several(ENGINES[0], "bare,call.write-A/foo").expect("a script").remove(0);
    let broken = Mutation::new(Site("wal.commit.fence"), MutationKind::DropOrder);
    let outcome = explore(&subject, &setting("pmem").expect("a world").broken(broken), &Limits::hunt());
    let violation = outcome.violations.first().expect("it is seen");
    let name = "volume:fine_grained_wal:bare,call.write-A/foo:pmem@wal.commit.fence=drop-order:";
    assert!(violation.replay.starts_with(name), "{violation}");
    let again = replay(&violation.replay).expect("a violation names its state");
    assert!(again.violation.is_some(), "{violation} does not replay:\n{again}");
}
