//! The rig can see: every mutant of the code is caught by some workload, or has a proof that no state can tell it from the code.

use wholly_crash::{Limits, Setting, catalogue, explore, mutants};
use wholly_media::sim::{Mutation, MutationKind};

fn mutants_of(setting: &str) {
    let setting = Setting::named(setting);
    let mut workloads = catalogue::all();
    mutants::cheap_first(&mut workloads, &setting);
    let mut survivors = Vec::new();
    let mut caught = 0;
    for mutation in mutants::mutations(&workloads, &setting) {
        if mutants::proof(&mutation, &setting.name).is_some() && std::env::var_os("WHOLLY_LONG").is_none() {
            continue;
        }
        let mutant = mutants::hunt(mutation, &workloads, &setting, &Limits::hunt());
        caught += u32::from(mutant.caught.is_some());
        if mutant.is_survivor() {
            survivors.push(mutant.to_string());
        }
    }
    println!("{}: {caught} mutants caught", setting.name);
    assert!(survivors.is_empty(), "{}", survivors.join("\n"));
}

/// Takes more than ten minutes: only with the long bounds (`make test-long`).
#[test]
fn on_persistent_memory() {
    if std::env::var_os("WHOLLY_LONG").is_some() {
        mutants_of("pmem");
    } else {
        println!("left to make test-long");
    }
}

#[test]
fn on_a_disk() {
    mutants_of("disk");
}

/// The fence that commits a group is taken away: if this is not caught, nothing that the explorer says is worth anything.
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
