//! The crash explorer over transactions on queues in a device's persistent memory region.
//!
//! `WHOLLY_LONG=1` goes through more states. No verdict depends on time.

use wholly_crash::ccnvme::{ALL, OnQueues, Paper, WORLDS, setting, sites};
use wholly_crash::mutants::Hunt;
use wholly_crash::{Job, Limits, Outcome, Seen, Violation, coverage, explore, explore_into, replay};
use wholly_media::Site;
use wholly_nvme::Mistake;
use wholly_sim::ExploreLimits;

use crate::common::is_long;

fn all(mistake: Option<Mistake>) -> Vec<OnQueues> {
    ALL.iter().map(|program| OnQueues { program, mistake }).collect()
}

/// Everything in the first world, less in the others.
fn explored() -> Outcome {
    let (seen, mut outcome) = (Seen::default(), Outcome::default());
    let hunt = Limits { whole_one_in: 4, ..Limits::hunt() };
    let states = ExploreLimits { samples: 12, ..hunt.states.clone() };
    let fewer = Limits { states, nested_one_in: 32, whole_one_in: 8, ..Limits::hunt() };
    for (world, _) in WORLDS {
        let limits = match (is_long(), world) {
            (true, _) => &Limits::quick(),
            (false, "ccnvme") => &hunt,
            (false, _) => &fewer,
        };
        let setting = setting(world).expect("a world");
        let jobs: Vec<_> = all(None).into_iter().map(|subject| Job { subject, setting: setting.clone() }).collect();
        outcome.merge(explore_into(&seen, &jobs, limits));
    }
    (outcome.distinct, outcome.nested) = (seen.distinct(), seen.nested());
    outcome
}

#[test]
fn transactions_are_whole_or_in_the_window() {
    let begun = std::time::Instant::now();
    let outcome = explored();
    println!("{outcome}; {:.0} states a second", outcome.distinct as f64 / begun.elapsed().as_secs_f64());
    outcome.assert_clean();
    assert_eq!(coverage::uncovered(&sites(), &outcome), [], "these were no crash points");
}

fn first_violation(world: &str, mistake: Option<Mistake>) -> Option<Violation> {
    let setting = setting(world).expect("a world");
    all(mistake).iter().find_map(|subject| explore(subject, &setting, &Limits::hunt()).violations.into_iter().next())
}

/// The paper, literally: each rule that this driver mends has a counterexample.
#[test]
fn the_paper_literally_is_seen() {
    for paper in Paper::ALL {
        let world = format!("ccnvme@{}", paper.name());
        let violation = first_violation(&world, None).unwrap_or_else(|| panic!("nothing is wrong with {world}"));
        println!("{}: {violation}", paper.name());
        let again = replay(&violation.replay).expect("a state");
        assert!(again.violation.is_some(), "{}", violation.replay);
    }
    // Those that the decision names.
    let note = include_str!("../../../../docs/decisions/0046-a-transaction-is-on-the-medium-or-in-the-window.md");
    let states = note.lines().filter(|line| line.contains("wholly crash --replay"));
    let states: Vec<&str> = states.filter_map(|line| line.split('\'').nth(1)).collect();
    assert_eq!(states.len(), Paper::ALL.len(), "{states:?}");
    for (state, paper) in states.iter().zip(Paper::ALL) {
        assert!(state.contains(paper.name()), "{state}");
        let again = replay(state).unwrap_or_else(|error| panic!("{error}: name a state that there is"));
        assert!(again.violation.is_some(), "{state} is as it should be");
    }
}

/// Mistakes of a driver.
#[test]
fn mistakes_are_seen() {
    for mistake in [
        Mistake::NoOrder,
        Mistake::RingBeforeBarrier,
        Mistake::HeadByCommand,
        Mistake::SlotsOfFinished,
        Mistake::ResetNotAwaited,
        Mistake::NoFlushAtOpen,
        Mistake::NoFlushAtStart,
    ] {
        let violation = first_violation("ccnvme", Some(mistake));
        println!("{mistake:?}: {}", violation.unwrap_or_else(|| panic!("nobody sees {mistake:?}")));
    }
}

/// Each store, order and barrier is needed.
#[test]
fn each_site_is_needed() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for world in ["ccnvme", "ccnvme-ordered"] {
        let setting = setting(world).expect("a world");
        // Where each word survives by itself, everything matters; where order is kept, the orders do.
        let is_asked = |site: Site| is_long() || world == "ccnvme" || site.0.ends_with("order");
        let mutants = Hunt::of_many(&all(None), &setting).only(is_asked).run(is_long(), &Limits::hunt());
        count += mutants.len();
        wrong.extend(mutants.iter().filter(|mutant| mutant.is_wrong()).map(ToString::to_string));
    }
    println!("{count} mutants");
    assert!(count >= 20 && wrong.is_empty(), "{}", wrong.join("\n"));
}
