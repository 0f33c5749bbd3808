//! The crash explorer over transactions of blocks: the contract, the log of whole blocks, and a flash disk. Every site
//! but one is a crash point, and what each implementation promises holds in each of its worlds.
//!
//! `WHOLLY_LONG=1` goes through more states. No verdict depends on time.

use wholly_crash::blocks::{Kind, OnBlocks, Program, programs_of};
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
            let limits = if is_long() { Limits::quick() } else { Limits::hunt() };
            all.merge(explore_into(&seen, &programs.map(job).collect::<Vec<_>>(), &limits));
        }
        (all.distinct, all.nested) = (seen.distinct(), seen.nested());
        let seconds = begun.elapsed().as_secs_f64();
        println!("{}: {all}; {:.0} states a second", kind.name(), all.distinct as f64 / seconds);
        all.assert_clean();
        // Collection moves pages in longer programs: the crate's own tests have them.
        let sites: Vec<_> = kind.sites().into_iter().filter(|site| site.0 != "xftl.collect.program").collect();
        assert_eq!(coverage::uncovered(&sites, &all), [], "these were no crash points of {}", kind.name());
    }
}

/// Each store and each fence of the log is needed: without it, or with it later, some program goes wrong. The flash disk
/// has its own test of that, in its crate.
#[test]
fn each_site_of_the_log_is_needed() {
    let setting = Kind::Log.setting("disk").expect("a world");
    let programs: Vec<_> = programs_of(Kind::Log).map(|program| OnBlocks { kind: Kind::Log, program }).collect();
    let mutants = Hunt::of_many(&programs, &setting).run(true, &Limits::hunt());
    let wrong: Vec<String> = mutants.iter().filter(|mutant| mutant.is_wrong()).map(ToString::to_string).collect();
    println!("{} mutants", mutants.len());
    assert!(mutants.len() >= 16 && wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A fence and a wait that order nothing are seen.
#[test]
fn what_is_not_durable_is_seen() {
    for (kind, world) in
        [(Kind::Log, "disk@log.home.fence=drop-order"), (Kind::Xftl, "flash@xftl.commit.wait.chain=drop-order")]
    {
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
