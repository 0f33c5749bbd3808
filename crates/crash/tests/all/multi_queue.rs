//! The crash explorer over the multi-queue journal: the paper taken literally, and mistakes, are seen, and each site is
//! needed.
//!
//! What holds in all of its worlds is in `blocks.rs`, with the other implementations of the contract. No verdict
//! depends on time.

use wholly_crash::blocks::{Kind, OnBlocks, PAPER, named, programs_of};
use wholly_crash::mutants::Hunt;
use wholly_crash::{Limits, Violation, explore, replay};
use wholly_media::Site;

const KIND: Kind = Kind::MultiQueue;

fn first_violation(world: &str) -> Option<Violation> {
    let setting = KIND.setting(world).unwrap_or_else(|| panic!("{world} is no world"));
    programs_of(KIND).find_map(|program| {
        let outcome = explore(&OnBlocks { kind: KIND, program }, &setting, &Limits::hunt());
        outcome.violations.into_iter().next()
    })
}

/// The paper, literally: each rule that is mended has a counterexample.
#[test]
fn the_paper_literally_is_seen() {
    for (rule, _) in PAPER {
        let world = if *rule == "M10" { "ccnvme-window@M10".to_owned() } else { format!("queues@{rule}") };
        let violation = first_violation(&world).unwrap_or_else(|| panic!("nothing is wrong with {world}"));
        println!("{world}: {violation}");
        let again = replay(&violation.replay).expect("a state");
        assert!(again.violation.is_some(), "{}", violation.replay);
    }
    // Those that the decision names.
    let note = include_str!("../../../../docs/decisions/0047-a-journal-for-each-queue.md");
    let states = note.lines().filter(|line| line.contains("wholly crash --replay"));
    let states: Vec<&str> = states.filter_map(|line| line.split('\'').nth(1)).collect();
    assert_eq!(states.len(), PAPER.len(), "{states:?}");
    for (state, (rule, _)) in states.iter().zip(PAPER) {
        assert!(state.contains(&format!("@{rule}:")), "{state}");
        let again = replay(state).unwrap_or_else(|error| panic!("{error}: name a state that there is"));
        assert!(again.violation.is_some(), "{state} is as it should be");
    }
}

/// Mistakes of an implementation.
#[test]
fn mistakes_are_seen() {
    for world in [
        "queues@DirectOverGoing",
        "queues@NoRevocation",
        "queues@NoVerdict",
        "ccnvme@ClosureOnce",
        "ccnvme@DirectUnchecked",
    ] {
        println!("{world}: {}", first_violation(world).unwrap_or_else(|| panic!("nothing is wrong with {world}")));
    }
}

/// Each write and each flush of the journal is needed. Whether the verdict is durable is seen only in few states,
/// inside of recoveries.
#[test]
fn each_site_is_needed() {
    let setting = KIND.setting("queues@mq.recover.verdict.flush=drop-order").expect("a world");
    let program = named(KIND, "proof-outlived-by-a-home-write").expect("a program");
    let limits = Limits { nested_one_in: 1, nested_points: 16, nested_samples: 8, ..Limits::hunt() };
    let outcome = explore(&OnBlocks { kind: KIND, program }, &setting, &limits);
    assert!(!outcome.violations.is_empty(), "the verdict need not be durable: {outcome}");

    let setting = KIND.setting("queues").expect("a world");
    let programs: Vec<_> = programs_of(KIND).map(|program| OnBlocks { kind: KIND, program }).collect();
    let is_own = |site: Site| site.0.starts_with("mq.") && site.0 != "mq.recover.verdict.flush";
    let mutants = Hunt::of_many(&programs, &setting).only(is_own).run(true, &Limits::hunt());
    let wrong: Vec<String> = mutants.iter().filter(|mutant| mutant.is_wrong()).map(ToString::to_string).collect();
    println!("{} mutants", mutants.len());
    assert!(mutants.len() >= 12 && wrong.is_empty(), "{}", wrong.join("\n"));
}
