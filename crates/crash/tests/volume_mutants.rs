//! Every mutant of the code of a volume is caught by some program, or has a proof that no state can tell it from the
//! code. `make test` tries a fixed eighth of them, `make crash` all, the proofs too.

use wholly_crash::Limits;
use wholly_crash::mutants::{Hunt, Mutant};
use wholly_crash::volume::{ENGINES, setting, several};

/// One in so many sites.
const ONE_IN: usize = 8;

/// One test, so that its two workers are all there are.
#[test]
fn every_mutant_is_caught_or_proven_equivalent() {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    let setting = setting("pmem").expect("a world");
    for engine in ENGINES {
        let programs = several(engine, "by-hand").expect("programs");
        let sites = wholly_crash::volume::sites(engine);
        let some: Vec<_> = sites.iter().skip(2).step_by(if is_long { 1 } else { ONE_IN }).collect();
        let hunt = Hunt::new(&programs, &setting).only(|site| is_long || some.contains(&&site));
        let mutants = hunt.run(is_long, &Limits::hunt());
        let count = |which: fn(&Mutant) -> bool| mutants.iter().filter(|mutant| which(mutant)).count();
        let (caught, proven) = (count(|m| m.caught.is_some()), count(|m| m.caught.is_none() && m.proof.is_some()));
        println!("{}: {} mutants, {caught} caught, {proven} proven equivalent", engine.name(), mutants.len());
        let wrong: Vec<String> = mutants.iter().filter(|mutant| mutant.is_wrong()).map(ToString::to_string).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
