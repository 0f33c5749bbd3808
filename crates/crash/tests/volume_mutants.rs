//! The mutants of an eighth of all sites of a volume, with each engine, are caught by some program or have a proof that
//! no state can tell them from the code. That takes an hour, so only `make test-long` tries it; the tests of `volume`
//! plant a choice of these mistakes in `make test`.

use wholly_crash::Limits;
use wholly_crash::mutants::{Hunt, Mutant};
use wholly_crash::volume::{ENGINES, setting, several};

/// One in so many sites.
const ONE_IN: usize = 8;

/// One test, so that its two workers are all there are.
#[test]
fn mutants_are_caught_or_proven_equivalent() {
    if std::env::var_os("WHOLLY_LONG").is_none() {
        return println!("skipped: it takes an hour, and WHOLLY_LONG=1");
    }
    let setting = setting("pmem").expect("a world");
    for engine in ENGINES {
        let programs = several(engine, "by-hand").expect("programs");
        let sites = wholly_crash::volume::sites(engine);
        let some: Vec<_> = sites.iter().skip(2).step_by(ONE_IN).collect();
        let mutants = Hunt::new(&programs, &setting).only(|site| some.contains(&&site)).run(true, &Limits::hunt());
        let count = |which: fn(&Mutant) -> bool| mutants.iter().filter(|mutant| which(mutant)).count();
        let (caught, proven) = (count(|m| m.caught.is_some()), count(|m| m.caught.is_none() && m.proof.is_some()));
        println!("{}: {} mutants, {caught} caught, {proven} proven equivalent", engine.name(), mutants.len());
        let wrong: Vec<String> = mutants.iter().filter(|mutant| mutant.is_wrong()).map(ToString::to_string).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
