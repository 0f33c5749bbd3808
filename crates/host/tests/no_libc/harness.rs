//! Runs an example program under `interposer.c`, which counts its calls of libc's file functions.
//!
//! Why so: the preload library replaces libc's file functions, and what it carries must not call them, or it would call
//! itself. The list of undefined symbols (`nm -D --undefined-only`) cannot tell: std's runtime refers to `open`,
//! `read`, `write` and more for panics and backtraces, in code that is linked and never runs. An interposer sees what
//! runs, std's functions that are found by dlsym included. It sees nothing of raw system calls, which is the point, nor
//! of libc's calls to itself, which do no harm.
//!
//! Included by `#[path]` into the tests of any crate that the preload library carries. The program is built by a cargo
//! of its own with `-p`: in a build of the whole workspace other members switch on features of shared dependencies
//! (rustix's `std` makes the dropping of a descriptor a libc call).

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds and runs the example `example` of `package` under the interposer. `scratch` is a directory to build in.
///
/// # Panics
/// If the program fails: it panics itself, by `watch.rs`, when it sees a call.
pub fn run(package: &str, example: &str, scratch: &str) {
    let scratch = Path::new(scratch).join("no-libc");
    std::fs::create_dir_all(&scratch).expect("make a directory to build in");
    let interposer = build_interposer(&scratch);
    let program = build_example(package, example, &scratch);
    let output = Command::new(&program).env("LD_PRELOAD", &interposer).output().expect("run the program");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{} under {}:\n{text}", program.display(), interposer.display());
    assert!(text.contains("watched: no file call through libc"), "the program did not look:\n{text}");
}

/// Compiles the interposer into a directory.
pub fn build_interposer(scratch: &Path) -> PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/tests/no_libc/interposer.c");
    let library = scratch.join("interposer.so");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(cc)
        .args(["-shared", "-fPIC", "-O1", "-fno-builtin", "-Wno-builtin-declaration-mismatch", "-o"])
        .arg(&library)
        .arg(source)
        .status()
        .expect("run the C compiler");
    assert!(status.success(), "the C compiler failed on {source}");
    library
}

fn build_example(package: &str, example: &str, scratch: &Path) -> PathBuf {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", package, "--example", example, "--target-dir"])
        .arg(scratch)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // Set by the cargo that runs this test, for this package and its features.
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .expect("run cargo");
    assert!(status.success(), "cargo failed on example {example} of {package}");
    scratch.join("debug/examples").join(example)
}
