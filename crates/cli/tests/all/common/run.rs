//! Directories, scripts that run in them, and scripts that run as one group.

use super::{may_mount, unique, wholly};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Directories, removed on drop.
pub struct Rig(PathBuf);

impl Rig {
    /// `None` where it cannot be run, which under `CI=true` is a failure.
    pub fn new(name: &str) -> Option<Rig> {
        if !may_mount() {
            return None;
        }
        let dir = std::env::temp_dir().join(unique(name));
        std::fs::create_dir_all(&dir).unwrap();
        Some(Rig(dir))
    }

    /// Where one may be made.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new directory in which `script` has run.
    pub fn dir(&self, name: &str, script: &str) -> PathBuf {
        let dir = self.path(name);
        std::fs::create_dir(&dir).unwrap();
        succeeds(&mut shell(&dir, script));
        dir
    }

    /// A new directory with all that is in another one.
    pub fn copy(&self, name: &str, from: &Path) -> PathBuf {
        let dir = self.path(name);
        succeeds(Command::new("cp").arg("-a").args([from, &dir]));
        dir
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs it, and gives what it wrote to its standard output.
pub fn succeeds(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output.stdout
}

/// So that git commits, and the same at all times; and so that nobody writes to a home, which the superuser would make.
fn with_identity(command: &mut Command) -> &mut Command {
    let people = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    let dates = ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"];
    command.envs(people.map(|name| (name, "somebody"))).envs(dates.map(|name| (name, "2001-02-03T04:05:06Z")));
    command.env("HOME", "/proc/nowhere").env("LC_ALL", "C").stdin(Stdio::null())
}

/// A script in a directory.
pub fn shell(dir: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    with_identity(command.args(["-c", script]).current_dir(dir));
    command
}

/// A script as one group.
pub fn as_group(dir: &Path, options: &[&str], script: &str) -> Command {
    let mut command = super::views::command(env!("CARGO_BIN_EXE_wholly"));
    with_identity(command.arg("run").args(options).args(["--", "sh", "-c", script]).current_dir(dir));
    command
}

/// Runs a script as one group.
pub fn run(dir: &Path, options: &[&str], script: &str) -> Output {
    as_group(dir, options, script).output().unwrap()
}

/// Whether there is a store in a directory.
pub fn has_store(dir: &Path) -> bool {
    dir.join(".wholly").exists()
}

/// What Wholly has in a directory: a store, or what became of one that was not quite made or removed.
pub fn traces(dir: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.as_encoded_bytes().starts_with(b".wholly")).map(PathBuf::from).collect()
}

/// Puts right what a killed run has left, and leaves an ordinary directory.
pub fn recover(dir: &Path) {
    let place = dir.to_str().unwrap();
    if has_store(dir) {
        let recovered = wholly(&["recover", place]);
        assert!(matches!(recovered.code, Some(0 | 1)), "{}{}", recovered.out, recovered.err);
    }
    if has_store(dir) {
        wholly(&["deinit", place]).exits(0);
    }
    if !traces(dir).is_empty() {
        // Folders with no store in them yet, or no more: the next run clears them away.
        wholly(&["run", "--dir", place, "--", "true"]).exits(0);
    }
    assert_eq!(traces(dir), [] as [&Path; 0]);
}
