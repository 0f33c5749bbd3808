//! The mutants of volumes are caught by some program, or have a proof that no state can tell them from the code. That
//! takes minutes, so only `make test-long` tries it, a part of them in each of its pieces. What the tests of `volume`
//! plant in `make test` is a choice of such mistakes, for each engine.
//!
//! `WHOLLY_LONG=1` runs all of it, `WHOLLY_PIECE=3/8` with that the third of eight pieces, `WHOLLY_HUNT=undo@pmem` one
//! engine in one world.

use std::time::Instant;

use wholly_crash::Limits;
use wholly_crash::mutants::{Hunt, Mutant};
use wholly_crash::volume::{setting_for, several};
use wholly_volume::EngineKind;

/// Engines, and the worlds in which each of their sites is broken. Not `hybrid_log`: its hunt takes an hour, and two of
/// its 57 mutants survive it, both of what its recovery stores. `volume`'s planted mistakes catch these, at length.
const HUNTS: &[(EngineKind, &str)] = &[
    (EngineKind::FineGrainedWal, "pmem"),
    (EngineKind::FineGrainedWal, "pmem-x86"),
    (EngineKind::Undo, "pmem"),
    (EngineKind::ShortcutJfs, "pmem"),
    (EngineKind::Shadow, "pmem"),
    (EngineKind::PageCacheWal, "disk"),
];

/// Which piece, of how many.
fn piece() -> (usize, usize) {
    let Ok(text) = std::env::var("WHOLLY_PIECE") else { return (1, 1) };
    let numbers = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    numbers.filter(|(number, of)| (1..=*of).contains(number)).unwrap_or_else(|| panic!("{text}: a piece is K/N"))
}

/// One test, with two workers.
#[test]
fn mutants_are_caught_or_proven_equivalent() {
    if std::env::var_os("WHOLLY_LONG").is_none() {
        return println!("skipped: it takes minutes; WHOLLY_LONG=1 runs it");
    }
    let only = std::env::var("WHOLLY_HUNT").ok();
    let (mut hunts, mut wrong) = (0, Vec::new());
    for (engine, world) in HUNTS {
        if only.as_ref().is_some_and(|only| *only != format!("{}@{world}", engine.name())) {
            continue;
        }
        hunts += 1;
        let begun = Instant::now();
        let setting = setting_for(*engine, world).expect("a world");
        let programs = several(*engine, "by-hand").expect("programs");
        let mutants = Hunt::of_many(&programs, &setting).piece(piece()).run(true, &Limits::hunt());
        let count = |which: fn(&Mutant) -> bool| mutants.iter().filter(|mutant| which(mutant)).count();
        let (caught, proven) = (count(|m| m.caught.is_some()), count(|m| m.caught.is_none() && m.proof.is_some()));
        println!(
            "{} on {world}: {} mutants, {caught} caught, {proven} proven equivalent, in {} s",
            engine.name(),
            mutants.len(),
            begun.elapsed().as_secs()
        );
        wrong.extend(mutants.iter().filter(|mutant| mutant.is_wrong()).map(ToString::to_string));
    }
    assert!(hunts > 0, "{only:?}: an engine and a world, such as undo@pmem");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
