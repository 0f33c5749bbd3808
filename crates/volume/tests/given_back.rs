//! Crashes while the inode file gives back blocks, and while numbers that were there come back, with each engine that
//! promises something. The programs are the explorer's (`wholly crash --subject volume:ENGINE --workload given-back`).
//!
//! `WHOLLY_LONG=1` tries many more states.

use wholly_crash::volume::{engines, setting, several, worlds};
use wholly_crash::{Limits, Outcome, explore};
use wholly_sim::ExploreLimits;

fn limits() -> Limits {
    if std::env::var_os("WHOLLY_LONG").is_some() {
        return Limits { whole_one_in: 8, nested_one_in: 64, ..Limits::hunt() };
    }
    let states = ExploreLimits { exhaustive_bits: 2, single_units: 8, samples: 3, ..Limits::sweep().states };
    Limits { states, nested_one_in: 100, whole_one_in: 24, ..Limits::sweep() }
}

#[test]
fn what_is_given_back_is_whole_or_gone() {
    let mut all = Outcome::default();
    for engine in engines() {
        for world in worlds(engine) {
            for name in ["given-back", "given-back-when-full"] {
                for subject in several(engine, name).expect("a program") {
                    let outcome = explore(&subject, &setting(world).expect("a world"), &limits());
                    println!("{} {name} in {world}: {outcome}", engine.name());
                    outcome.assert_clean();
                    all.merge(outcome);
                }
            }
        }
    }
    assert!(all.recoveries > 1000, "{all}");
}
