//! Crashes while the inode file gives back blocks, and while numbers that were there come back, with each engine that
//! promises something. The programs are the explorer's (`wholly crash --subject volume:ENGINE --workload given-back`).
//!
//! `WHOLLY_LONG=1` tries many more states, in more worlds.

use wholly_crash::volume::{engines, setting, several, worlds};
use wholly_crash::{Limits, explore};
use wholly_sim::ExploreLimits;

/// Explores both programs with the engines whose names begin so.
fn explored(first: &str) {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    let states = ExploreLimits { samples: 2, ..Limits::sweep().states };
    let short = Limits { states, nested_one_in: 300, whole_one_in: 150, ..Limits::sweep() };
    let limits = if is_long { Limits { whole_one_in: 8, nested_one_in: 64, ..Limits::hunt() } } else { short };
    let mut count = 0;
    for engine in engines().filter(|engine| engine.name().starts_with(first)) {
        for world in worlds(engine).into_iter().take(if is_long { 3 } else { 1 }) {
            for name in ["given-back", "given-back-when-full"] {
                for subject in several(engine, name).expect("a program") {
                    let outcome = explore(&subject, &setting(world).expect("a world"), &limits);
                    println!("{} {name} in {world}: {outcome}", engine.name());
                    outcome.assert_clean();
                    // Which images live on, and so recover again, their bytes choose.
                    assert!(outcome.recoveries > 150, "{outcome}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 0, "no engine is called {first}");
}

#[test]
fn with_engines_that_log_what_is_new() {
    explored("fine_grained_wal");
}

#[test]
fn with_the_engine_of_pending_blocks() {
    explored("hybrid_log");
}

#[test]
fn with_the_engine_that_undoes() {
    explored("undo");
}

#[test]
fn with_the_engine_that_copies() {
    explored("shadow");
}

#[test]
fn with_the_engine_of_pages() {
    explored("page_cache_wal");
}

#[test]
fn with_the_engine_that_moves_blocks() {
    explored("shortcut_jfs");
}
