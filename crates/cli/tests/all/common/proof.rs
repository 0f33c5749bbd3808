//! That a program as one group leaves what it leaves by itself, or what was there before.

use super::blows::{BLOWS, Case, Tally, assert_ordinary, strike};
use super::may_run;
use super::programs::Program;
use super::run::{Rig, as_group, shell, succeeds};
use super::tree::Tree;
use std::path::{Path, PathBuf};
use std::process::Command;
use wholly_sim::Random;

/// Where a program finds its tools, and what outlives the test: builds need not begin from nothing.
fn with_tools<'c>(command: &'c mut Command, tools: &Path) -> &'c mut Command {
    command.env("TOOLS", tools).env("CACHE", env!("CARGO_TARGET_TMPDIR"))
}

/// A program, and what it is to leave.
struct Bench {
    program: &'static Program,
    rig: Rig,
    old: Tree,
    new: Tree,
    said: Vec<u8>,
}

impl Bench {
    /// Runs the program by itself. `None` where it cannot be run.
    fn new(program: &'static Program) -> Option<Bench> {
        let rig = Rig::new(program.name)?;
        if !may_run(program.needs) {
            return None;
        }
        let tools = rig.path("tools");
        std::fs::create_dir(&tools).unwrap();
        succeeds(with_tools(&mut shell(&tools, program.tools), &tools));
        let plain = rig.dir("plain", "");
        succeeds(with_tools(&mut shell(&plain, program.before), &tools));
        rig.copy("before", &plain);
        succeeds(with_tools(&mut shell(&plain, program.script), &tools));
        let old = Tree::of(&rig.path("before")).but_for_its_time();
        let new = Tree::of(&plain).of_any_run(program.varies);
        let said = succeeds(&mut shell(&plain, program.asks));
        Some(Bench { program, rig, old, new, said })
    }

    /// A new directory as it is before.
    fn dir(&self, name: &str) -> PathBuf {
        self.rig.copy(name, &self.rig.path("before"))
    }

    fn command(&self, dir: &Path, script: &str) -> Command {
        let mut command = as_group(dir, &[], script);
        with_tools(&mut command, &self.rig.path("tools"));
        command
    }

    /// What is otherwise in `dir`, which holds `tree`, than after the program by itself.
    fn is_new(&self, dir: &Path, tree: &Tree) -> String {
        let mut told = tree.of_any_run(self.program.varies).difference(&self.new);
        let answer = if told.is_empty() { succeeds(&mut shell(dir, self.program.asks)) } else { self.said.clone() };
        if answer != self.said {
            told += &format!("it says\n{}", String::from_utf8_lossy(&answer));
        }
        told
    }
}

/// Runs a program as one group to its end, lets it fail at its end, and strikes it as often as that by each blow.
pub fn wholly_or_not_at_all(program: &'static Program, rounds: u32) {
    let Some(bench) = Bench::new(program) else { return };
    let dir = bench.dir("committed");
    let (status, spans) = Case::begin(&mut bench.command(&dir, program.script), &dir).measure();
    assert_eq!(status.code(), Some(0));
    assert_ordinary(&dir);
    let told = bench.is_new(&dir, &Tree::of(&dir));
    assert!(told.is_empty(), "{}, committed:\n{told}", program.name);

    let dir = bench.dir("failed");
    let script = format!("({}\n) && exit 7", program.script);
    assert_eq!(Case::begin(&mut bench.command(&dir, &script), &dir).end().code(), Some(7));
    assert_ordinary(&dir);
    let told = Tree::of(&dir).but_for_its_time().difference(&bench.old);
    assert!(told.is_empty(), "{}, failed:\n{told}", program.name);

    let (mut random, mut tally) = (Random(program.name.len() as u64), Tally::default());
    for round in 0..rounds {
        for blow in BLOWS {
            let dir = bench.dir(&format!("{blow:?}-{round}"));
            let mut command = bench.command(&dir, program.script);
            let is_new = |tree: &Tree| bench.is_new(&dir, tree);
            strike((&mut command, &dir), &bench.old, is_new, (blow, spans), &mut random, &mut tally);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    println!("{}: {tally:?}, of runs that took {spans:?}", program.name);
}
