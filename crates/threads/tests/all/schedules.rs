//! Threads on the real core in many schedules, with a crash at many points of each: durable linearizability, and
//! nothing hangs.
//!
//! `WHOLLY_LONG=1` goes through more. `WHOLLY_SCHEDULE='own-files:pmem:pct2-0:1:p52:none'` replays one execution and
//! one crash of it, without the last part all of its crashes. `WHOLLY_PROGRAM=own-files:pmem` goes through one program
//! in one world, in `WHOLLY_ROWS` rows (16) with each scheduler. No verdict depends on time.

use wholly_crash::Start;
use wholly_threads::explore::{Chooser, Limits, Outcome, explore, replay};
use wholly_threads::program::{self, Program};

const CHOOSERS: [Chooser; 3] = [Chooser::Random, Chooser::Pct(2), Chooser::Pct(4)];

fn explored(world: &str, programs: impl Fn(&Program) -> bool) {
    let rows = if std::env::var_os("WHOLLY_LONG").is_some() { 16 } else { 2 };
    let limits = Limits { rows, mistake: None, samples: 2 };
    let mut all = Outcome::default();
    for program in program::all().into_iter().filter(programs) {
        let outcome = explore(&program, world, &CHOOSERS, &limits);
        println!("{} on {world}: {outcome}", program.name);
        all.merge(outcome);
    }
    println!("{world}: {all}");
    assert!(all.violations.is_empty(), "{all}");
}

/// Programs on names, of which every other one: two tests of one world share the machine.
fn names(world: &str, odd: bool) {
    let all: Vec<_> = program::all().into_iter().filter(is_of_names).map(|program| program.name).collect();
    explored(world, |program| all.iter().skip(usize::from(odd)).step_by(2).any(|name| *name == program.name));
}

fn is_of_names(program: &Program) -> bool {
    program.start != Start::Files
}

#[test]
fn on_persistent_memory() {
    explored("pmem", |program| !is_of_names(program));
}

#[test]
fn on_a_disk() {
    explored("disk", |program| !is_of_names(program));
}

#[test]
fn names_on_persistent_memory() {
    names("pmem", false);
}

#[test]
fn more_names_on_persistent_memory() {
    names("pmem", true);
}

#[test]
fn names_on_a_disk() {
    names("disk", false);
}

#[test]
fn more_names_on_a_disk() {
    names("disk", true);
}

#[test]
fn one_program_in_many_schedules() {
    let Ok(name) = std::env::var("WHOLLY_PROGRAM") else { return };
    let (name, world) = name.split_once(':').expect("a program and a world");
    let rows = std::env::var("WHOLLY_ROWS").map_or(16, |rows| rows.parse().expect("a number"));
    let limits = Limits { rows, mistake: None, samples: 0 };
    let outcome = explore(&program::find(name).expect("a program"), world, &CHOOSERS, &limits);
    println!("{name} on {world}: {outcome}");
    assert!(outcome.violations.is_empty(), "{outcome}");
}

#[test]
fn replay_of_a_schedule() {
    let Ok(name) = std::env::var("WHOLLY_SCHEDULE") else { return };
    let outcome = replay(&name, None).unwrap();
    println!("{outcome}");
    assert!(outcome.violations.is_empty(), "{outcome}");
}
