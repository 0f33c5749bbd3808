//! The examples in Rust of READMEs and tutorial, as they stand there: they run in a fresh directory, and once more in
//! the same one.

use std::path::{Path, PathBuf};
use std::process::Command;

/// That a page's first example in Rust is `source`, from behind its head on.
fn is_shown(page: &str, source: &str) {
    let text = page.split("```rust\n").nth(1).expect("the page has Rust").split("```").next().expect("it ends");
    let (_, source) = source.split_once("\n\n").expect("a head");
    assert_eq!(text, source, "the example is the page's");
}

/// A command that runs an example: cargo builds them beside the tests.
fn example(name: &str, dir: &Path) -> Command {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).expect("the folder of the profile").join("examples");
    let mut command = Command::new(folder.join(name));
    command.current_dir(dir);
    command
}

fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    dir
}

#[test]
fn the_readmes_example_runs_twice() {
    is_shown(include_str!("../../../../README.md"), include_str!("../../examples/accounts.rs"));
    is_shown(include_str!("../../README.md"), include_str!("../../examples/accounts.rs"));
    let dir = scratch("readme");
    for _ in 0..2 {
        assert!(example("accounts", &dir).status().unwrap().success());
        let read = |name: &str| std::fs::read_to_string(dir.join("accounts").join(name)).unwrap();
        assert_eq!([read("alice"), read("bob")], ["balance  70\n", "balance 130\n"]);
        assert_eq!(read("receipt"), "alice gave bob 30\n");
        assert!(!dir.join("accounts/receipt.new").exists());
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Also when it dies before its commit, as the tutorial has it do.
#[test]
fn the_tutorials_example_adds_to_both_files_or_to_none() {
    is_shown(include_str!("../../../../docs/tutorial.md"), include_str!("../../examples/tutorial.rs"));
    let dir = scratch("tutorial");
    for lines in 1..=3 {
        let died = example("tutorial", &dir).arg("crash").output().unwrap();
        assert!(!died.status.success(), "{died:?}");
        assert!(example("tutorial", &dir).status().unwrap().success());
        let count = |name: &str| std::fs::read_to_string(dir.join("notes").join(name)).unwrap().lines().count();
        assert_eq!([count("notes"), count("index")], [lines, lines]);
    }
    let index = std::fs::read_to_string(dir.join("notes/index")).unwrap();
    assert!(index.ends_with("note at byte 18\n"), "{index}");
    std::fs::remove_dir_all(&dir).unwrap();
}
