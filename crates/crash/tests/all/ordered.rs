//! Groups that return at the order: a crash may lose any of the last ones, nothing that a later call has waited for,
//! and never one that another one builds on. On a disk, and on all that transactions of blocks promise.

use wholly_crash::volume::{BLOCKS, BY_HAND, Calls, OnVolume, setting};
use wholly_crash::{Job, Limits, Outcome, Seen, explore, explore_into};
use wholly_volume::{EngineKind, Mistake};

fn program(name: &str) -> OnVolume<Calls> {
    let program = Calls::named(name).unwrap_or_else(|| panic!("{name} is no program"));
    OnVolume { engine: EngineKind::OpLog, program }
}

#[test]
fn a_crash_loses_the_last_ones_alone() {
    let (seen, mut all) = (Seen::default(), Outcome::default());
    let limits = if std::env::var_os("WHOLLY_LONG").is_some() { Limits::hunt() } else { Limits::sweep() };
    for world in ["disk"].iter().chain(&BLOCKS) {
        let setting = setting(world).expect("a world");
        let names = BY_HAND.iter().map(|(name, ..)| *name).filter(|name| name.starts_with("ordered"));
        let jobs: Vec<_> = names.map(|name| Job { subject: program(name), setting: setting.clone() }).collect();
        assert!(jobs.len() > 7, "they have other names");
        all.merge(explore_into(&seen, &jobs, &limits));
    }
    (all.distinct, all.nested) = (seen.distinct(), seen.nested());
    println!("{all}");
    all.assert_clean();
}

/// Each is seen by a program, which the engine without it passes above.
#[test]
fn mistakes_with_the_order_are_seen() {
    for (name, world, mistake) in [
        ("ordered-moves", "blocks-dependent", Mistake::AfterNothing),
        ("ordered-file", "disk", Mistake::HomeBeforeLog),
        ("ordered-reuse", "disk", Mistake::FreeAtOrder),
    ] {
        let mut subject = program(name);
        subject.program = subject.program.with(mistake);
        let outcome = explore(&subject, &setting(world).expect("a world"), &Limits::hunt());
        let violation =
            outcome.violations.first().unwrap_or_else(|| panic!("{name} in {world}: {mistake:?} is not seen"));
        println!("{name} in {world}: {mistake:?}: {}", violation.what);
    }
}
