//! The rig can see: every mutant of the code is caught by some workload, or has a proof that no state can tell it from
//! the code.

use wholly_crash::mutants::{Hunt, Mutant};
use wholly_crash::{Limits, Setting, Workload, catalogue, explore, sequences};
use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind};

/// Whether what a site does is about names or attributes.
fn of_names(site: Site) -> bool {
    site.0.starts_with("names.") || site.0.starts_with("attributes.")
}

/// Whether what a site does is about parked groups.
fn of_parked(site: Site) -> bool {
    site.0.starts_with("park.")
}

/// Whether what a site does is about staged files or shadows.
fn of_staged(site: Site) -> bool {
    site.0.starts_with("stage.") || site.0.starts_with("shadow.")
}

/// Whether what a site does is about what groups adopt.
fn of_adopted(site: Site) -> bool {
    site.0.starts_with("adopt.") || site.0.starts_with("layer.")
}

/// Whether what a site does is about bytes in the log and at home.
fn of_bytes(site: Site) -> bool {
    !of_names(site) && !of_parked(site) && !of_staged(site) && !of_adopted(site)
}

/// The long run hunts all of them, and doubts every proof; a short one hunts a fixed third of those that it meets.
fn mutants_of(setting: &str, workloads: &[Workload], wanted: fn(Site) -> bool) {
    let setting = Setting::named(setting);
    let (hunt, doubt) = match std::env::var_os("WHOLLY_LONG") {
        Some(_) => (Hunt::new(workloads, &setting).only(wanted), true),
        None => (Hunt::of_many(workloads, &setting).only(wanted).piece((1, 3)), false),
    };
    let mutants = hunt.run(doubt, &Limits::hunt());
    let count = |which: fn(&Mutant) -> bool| mutants.iter().filter(|mutant| which(mutant)).count();
    let (caught, proven) = (count(|m| m.caught.is_some()), count(|m| m.caught.is_none() && m.proof.is_some()));
    println!("{}: {} mutants, {caught} caught, {proven} proven equivalent", setting.name, mutants.len());
    let wrong: Vec<String> = mutants.iter().filter(|mutant| mutant.is_wrong()).map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One test, with two workers.
#[test]
fn every_mutant_is_caught_or_proven_equivalent() {
    mutants_of("pmem", &catalogue::all(), of_bytes);
    mutants_of("disk", &catalogue::all(), of_bytes);
    mutants_of("disk", &sequences::by_hand(), of_names);
    mutants_of("disk", &sequences::parked(), of_parked);
    mutants_of("disk", &sequences::staged(), of_staged);
    mutants_of("disk", &sequences::adopted(), of_adopted);
}

/// The fence that commits a group is taken away: if this is not caught, nothing that the explorer says is worth
/// anything.
#[test]
fn a_planted_bug_is_caught() {
    let workload = catalogue::find("small-commit").expect("a workload");
    for (setting, site, kind) in [
        ("pmem", wholly::site::LANE_COMMIT_FENCE, MutationKind::DropOrder),
        ("disk", wholly::site::BATCH_WRITE, MutationKind::DropOrder),
        ("disk", wholly::site::CHECKPOINT_SYNC, MutationKind::DropOrder),
    ] {
        let broken = Setting::named(setting).broken(Mutation::new(site, kind));
        let outcome = explore(&workload, &broken, &Limits::hunt());
        let violation = outcome.violations.first().unwrap_or_else(|| panic!("{} was not caught", broken.name));
        let again = wholly_crash::replay(&violation.replay).expect("a violation names its state");
        assert!(again.violation.is_some(), "{violation} does not replay:\n{again}");
    }
}
