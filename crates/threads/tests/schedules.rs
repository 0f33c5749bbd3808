use wholly_threads::explore::{Chooser, Limits, Outcome, explore, replay};
use wholly_threads::program;

const CHOOSERS: [Chooser; 3] = [Chooser::Random, Chooser::Pct(2), Chooser::Pct(4)];

fn tried(setting: &str) {
    let rows = std::env::var("ROWS").map_or(1, |rows| rows.parse().unwrap());
    let limits = Limits { rows, mistake: None, samples: 2 };
    let mut all = Outcome::default();
    for program in program::all() {
        let start = std::time::Instant::now();
        let outcome = explore(&program, setting, &CHOOSERS, &limits);
        println!("{} on {setting}: {outcome} {:?}", program.name, start.elapsed());
        all.merge(outcome);
    }
    println!("{setting}: {all}");
    assert!(all.violations.is_empty());
}

#[test]
fn on_persistent_memory() {
    tried("pmem");
}

#[test]
fn on_a_disk() {
    tried("disk");
}

#[test]
fn replay_one() {
    let Ok(name) = std::env::var("WHOLLY_SCHEDULE") else { return };
    let outcome = replay(&name, None).unwrap();
    println!("{outcome}");
    assert!(outcome.violations.is_empty());
}
