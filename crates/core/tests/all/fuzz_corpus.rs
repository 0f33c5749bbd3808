//! What fuzzing has found worth keeping, replayed: see `fuzz/harness.rs`. Fuzzing goes on with
//! `cargo +nightly fuzz run recovery` (or `record`) in this crate's folder.

use proptest::prelude::*;

#[path = "../../fuzz/harness.rs"]
pub mod harness;

fn replay(target: &str, run: fn(&[u8])) {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 10, "the corpus of {target} has {} files", files.len());
    for file in files {
        let input = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| run(&input)) {
            eprintln!("{}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn records() {
    replay("record", harness::record);
}

#[test]
fn recoveries() {
    replay("recovery", harness::recovery);
}

fn cases() -> u32 {
    if std::env::var_os("WHOLLY_LONG").is_some() { 50_000 } else { 2000 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    /// Without a nightly compiler: no coverage guides it, but the structure does.
    #[test]
    fn changes_that_a_checksum_covers(
        mode in 0u8..4,
        steps in proptest::collection::vec(any::<[u8; 8]>(), 1..6),
    ) {
        let mut input = vec![mode];
        input.extend(steps.concat());
        harness::recovery(&input);
    }
}
