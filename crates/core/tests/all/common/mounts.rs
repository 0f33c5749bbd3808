//! File systems that a test mounts. That needs root. The test runs once more in a program of its own, in namespaces:
//! all mounts, and the programs that serve them, go with these.

use std::path::Path;
use std::process::{Command, Stdio};

/// This program, to run one test only: `test` is its function.
pub fn this_program<T: Fn()>(_test: T) -> Command {
    // Behind the name of the program.
    let (_, name) = std::any::type_name::<T>().split_once("::").expect("a path");
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", name, "--nocapture"]);
    command
}

/// `program` in namespaces of its own.
pub fn in_namespaces(program: &Command) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.arg(program.get_program()).args(program.get_args());
    command
}

/// Runs a line of the shell.
pub fn run(dir: &Path, command: &str) {
    assert!(runs(dir, command), "{command}");
}

/// The same. Whether it succeeded.
pub fn runs(dir: &Path, command: &str) -> bool {
    let done = Command::new("sh").args(["-ec", command]).current_dir(dir).stdin(Stdio::null()).status();
    done.expect("a shell").success()
}

/// What is missing of what commands need.
pub fn missing(commands: &[&str]) -> Option<String> {
    let there = |program: &str| Command::new("which").arg(program).output().is_ok_and(|found| found.status.success());
    if !Command::new("unshare").args(["--mount", "true"]).output().is_ok_and(|done| done.status.success()) {
        return Some("mounting needs root".into());
    }
    let mut programs = commands.iter().map(|command| command.split(' ').next().expect("a word"));
    programs.find(|program| !there(program)).map(|program| format!("{program} is not there"))
}

/// A test, or a part of one, is not made, which only a developer's machine may do.
pub fn skip(what: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{what}: {why}");
    println!("skipped: {what}: {why}");
}
