//! Every order that the memory model allows, of small programs over the index; and each memory order of the index
//! weakened in turn.
//!
//! `WHOLLY_LONG=1` allows one more preemption where that comes to an end.

use wholly_orders::models::Mistake;
use wholly_orders::{models, sync};

/// Runs all models until one fails.
fn run() -> Result<(), String> {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    let failed = |model: &models::Model| {
        model.check(is_long).err().map(|error| format!("{} of {}: {error}", model.name, model.kind))
    };
    models::all().find_map(|model| failed(&model)).map_or(Ok(()), Err)
}

#[test]
fn nothing_goes_wrong_in_any_order() {
    run().unwrap();
}

/// Mistakes with the count of a file are found.
#[test]
fn counts_that_are_wrong_for_a_moment() {
    for mistake in [
        Mistake::RaisedAfter,
        Mistake::LoweredBefore,
        Mistake::LoweredBetween,
        Mistake::OneLook,
        Mistake::NoRounds,
        Mistake::ReadBefore,
    ] {
        models::make(Some(mistake));
        let found = run();
        models::make(None);
        let Err(found) = found else { panic!("no model finds {mistake:?}") };
        println!("{mistake:?}: {}", found.lines().next().unwrap_or_default());
    }
}

/// Orders that no model needs: the line, and why it may stay all the same.
const NOT_NEEDED: &[(&str, &str)] = &[];

/// A rig that cannot fail proves nothing: with any one order weakened to relaxed, some model fails.
#[test]
fn every_order_is_needed() {
    run().unwrap();
    let sites = sync::sites();
    let mut survivors = Vec::new();
    for site in &sites {
        sync::weaken(Some(*site));
        match run() {
            Err(found) => println!("{site}: {}", found.lines().next().unwrap_or_default()),
            Ok(()) => {
                println!("{site}: no model fails");
                survivors.push(source(site));
            }
        }
        sync::weaken(None);
    }
    assert!(sites.len() > 10, "only {} orders", sites.len());
    let expected: Vec<&str> = NOT_NEEDED.iter().map(|(line, _)| *line).collect();
    assert_eq!(survivors, expected);
}

/// The text of a site's line.
fn source(site: &sync::Site) -> &'static str {
    let text = match site.file {
        "slot.rs" => include_str!("../../../index/src/slot.rs"),
        "version.rs" => include_str!("../../../index/src/version.rs"),
        "lines.rs" => include_str!("../../../index/src/lines.rs"),
        "pending.rs" => include_str!("../../../index/src/pending.rs"),
        "radix.rs" => include_str!("../../../index/src/radix.rs"),
        "sparse.rs" => include_str!("../../../index/src/sparse.rs"),
        _ => "",
    };
    text.lines().nth(site.line as usize - 1).unwrap_or_default().trim()
}
