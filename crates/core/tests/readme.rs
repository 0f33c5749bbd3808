//! The README's example in Rust, as it stands there: it runs in a fresh directory, and once more in the same one.

use std::path::Path;
use std::process::Command;

#[test]
fn the_readmes_example_runs_twice() {
    let readme = include_str!("../../../README.md");
    let text = readme.split("```rust\n").nth(1).expect("README has Rust").split("```").next().expect("it ends");
    let (_, source) = include_str!("../examples/accounts.rs").split_once("\n\n").expect("a head");
    assert_eq!(text, source, "crates/core/examples/accounts.rs is the README's example");

    // Cargo builds examples beside the tests.
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).expect("the folder of the profile").join("examples/accounts");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("readme-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    for _ in 0..2 {
        assert!(Command::new(&example).current_dir(&dir).status().unwrap().success());
        let read = |name: &str| std::fs::read_to_string(dir.join("accounts").join(name)).unwrap();
        assert_eq!([read("alice"), read("bob")], ["balance  70\n", "balance 130\n"]);
        assert_eq!(read("receipt"), "alice gave bob 30\n");
        assert!(!dir.join("accounts/receipt.new").exists());
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
