//! The crash explorer over transactions of blocks: the contract, the log of whole blocks, a flash disk, and the
//! multi-queue journal. Every site is a crash point, and what each implementation promises holds in each of its worlds.
//!
//! `WHOLLY_LONG=1` goes through more states. No verdict depends on time.

use wholly_crash::blocks::{Kind, OnBlocks, Program, drawn, programs_of};
use wholly_crash::mutants::Hunt;
use wholly_crash::{Job, Limits, Outcome, Seen, coverage, explore, explore_into, replay};

use crate::common::is_long;

#[test]
fn transactions_of_blocks_are_whole() {
    for kind in Kind::ALL {
        let (seen, mut all, begun) = (Seen::default(), Outcome::default(), std::time::Instant::now());
        for world in kind.worlds() {
            let setting = kind.setting(world).expect("a world");
            // Each state of a flash disk of many blocks takes long to look at.
            let is_short = |program: &&Program| kind != Kind::Xftl || program.blocks < 20;
            let programs = programs_of(kind).filter(|program| is_long() || is_short(program));
            let job = |program| Job { subject: OnBlocks { kind, program }, setting: setting.clone() };
            // A device takes long to simulate: the journal's rules show on disks, too.
            let limits = match (is_long(), world) {
                (true, _) => Limits::quick(),
                (false, world) if world.starts_with("ccnvme") => Limits::sweep(),
                (false, _) => Limits::hunt(),
            };
            all.merge(explore_into(&seen, &programs.map(job).collect::<Vec<_>>(), &limits));
        }
        (all.distinct, all.nested) = (seen.distinct(), seen.nested());
        let seconds = begun.elapsed().as_secs_f64();
        println!("{}: {all}; {:.0} states a second", kind.name(), all.distinct as f64 / seconds);
        all.assert_clean();
        assert_eq!(coverage::uncovered(&kind.sites(), &all), [], "these were no crash points of {}", kind.name());
    }
}

/// Each store and each fence of the log is needed: without it, or with it later, some program goes wrong. The flash
/// disk has its own test of that, in its crate.
#[test]
fn each_site_of_the_log_is_needed() {
    let setting = Kind::Log.setting("disk").expect("a world");
    let programs: Vec<_> = programs_of(Kind::Log).map(|program| OnBlocks { kind: Kind::Log, program }).collect();
    let mutants = Hunt::of_many(&programs, &setting).run(true, &Limits::hunt());
    let wrong: Vec<String> = mutants.iter().filter(|mutant| mutant.is_wrong()).map(ToString::to_string).collect();
    println!("{} mutants", mutants.len());
    assert!(mutants.len() >= 16 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Programs that are drawn keep the rules of callers, and what they leave is allowed. `wholly crash --effort thorough`
/// goes through many more.
#[test]
fn drawn_programs_are_whole() {
    for kind in Kind::ALL {
        let (seen, mut all) = (Seen::default(), Outcome::default());
        for world in kind.worlds() {
            let setting = kind.setting(world).expect("a world");
            let few = if world.starts_with("ccnvme") { 2 } else { 8 };
            let seeds = 0..if is_long() { 200 } else { few };
            let job = |seed| Job { subject: OnBlocks { kind, program: drawn(kind, seed) }, setting: setting.clone() };
            let limits = if is_long() { Limits::hunt() } else { Limits::sweep() };
            all.merge(explore_into(&seen, &seeds.map(job).collect::<Vec<_>>(), &limits));
        }
        (all.distinct, all.nested) = (seen.distinct(), seen.nested());
        println!("{}: {all}", kind.name());
        all.assert_clean();
        if kind == Kind::Xftl {
            assert_eq!(coverage::uncovered(&kind.sites(), &all), [], "these were no crash points");
        }
    }
}

/// A fence and a wait that order nothing are seen, and a page that collection does not move.
#[test]
fn what_is_not_durable_is_seen() {
    for (kind, world) in [
        (Kind::Log, "disk@log.home.fence=drop-order"),
        (Kind::Xftl, "flash@xftl.commit.wait.chain=drop-order"),
        (Kind::Xftl, "flash@xftl.collect.program=drop-write"),
    ] {
        let setting = kind.setting(world).expect("a world");
        let violation = programs_of(kind).filter(|program| program.blocks < 20).find_map(|program| {
            let outcome = explore(&OnBlocks { kind, program }, &setting, &Limits::hunt());
            outcome.violations.into_iter().next()
        });
        let violation = violation.unwrap_or_else(|| panic!("nothing is wrong in {world}"));
        let again = replay(&violation.replay).expect("a state");
        assert!(again.violation.is_some(), "{}", violation.replay);
    }
}
