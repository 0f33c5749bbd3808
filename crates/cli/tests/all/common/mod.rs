//! Running the binary, and directories to run it on.

#![allow(dead_code, reason = "it is here once for each view, and what has none uses one of them")]

pub mod blows;
pub mod programs;
pub mod proof;
pub mod root;
pub mod run;
pub mod tree;
pub mod views;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use views::VIEW;
use wholly::{Options, Store};

/// What a run of the binary left.
pub struct Run {
    arguments: String,
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    /// Asserts the exit code.
    pub fn exits(&self, code: i32) {
        assert_eq!(self.code, Some(code), "wholly {}\n{}{}", self.arguments, self.out, self.err);
    }

    /// The one JSON object that it printed, after it succeeded.
    pub fn json(&self) -> serde_json::Value {
        self.json_of_version(7)
    }

    /// The same of a verb that counts its versions by itself.
    pub fn json_of_version(&self, version: u32) -> serde_json::Value {
        self.exits(0);
        assert_eq!(self.out.lines().count(), 1, "{}", self.out);
        let value: serde_json::Value = serde_json::from_str(&self.out).expect("JSON");
        assert_eq!(value["output_version"], version);
        value
    }
}

/// Runs the binary, with no registry of stores.
pub fn wholly(arguments: &[&str]) -> Run {
    wholly_with("", arguments)
}

/// The same in a directory.
pub fn wholly_in(dir: &Path, arguments: &[&str]) -> Run {
    let mut command = views::command(env!("CARGO_BIN_EXE_wholly"));
    ran(command.args(arguments).env("WHOLLY_REGISTRY", "").current_dir(dir), arguments)
}

/// Runs the binary with the registry in `registry`.
pub fn wholly_with(registry: &str, arguments: &[&str]) -> Run {
    let mut command = views::command(env!("CARGO_BIN_EXE_wholly"));
    ran(command.args(arguments).env("WHOLLY_REGISTRY", registry), arguments)
}

/// Runs the binary with something on its standard input.
pub fn wholly_told(input: &str, arguments: &[&str]) -> Run {
    let mut command = views::command(env!("CARGO_BIN_EXE_wholly"));
    command.args(arguments).env("WHOLLY_REGISTRY", "").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run the binary");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it reads its input");
    ended(&child.wait_with_output().expect("run the binary"), arguments)
}

fn ran(command: &mut Command, arguments: &[&str]) -> Run {
    ended(&command.output().expect("run the binary"), arguments)
}

fn ended(output: &Output, arguments: &[&str]) -> Run {
    Run {
        arguments: arguments.join(" "),
        code: output.status.code(),
        out: String::from_utf8(output.stdout.clone()).expect("UTF-8"),
        err: String::from_utf8(output.stderr.clone()).expect("UTF-8"),
    }
}

/// A name in a directory of all tests that no other test has.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("wholly-cli-{name}-{VIEW}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Says why a test is skipped, or fails under `CI=true`.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
    println!("skipped: {why}");
}

/// Whether this process may mount file systems; where not, the test is [skipped].
pub fn may_mount() -> bool {
    let may = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !may {
        skipped("it takes the superuser and /dev/fuse");
    }
    may
}

/// Whether there are such commands; where not, the test is [skipped].
pub fn may_run(commands: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |command: &&str| std::env::split_paths(&path).any(|dir| dir.join(command).exists());
    let missing: Vec<_> = commands.iter().filter(|command| !is_there(command)).collect();
    if !missing.is_empty() {
        skipped(&format!("it takes {missing:?}; `scripts/setup` installs that"));
    }
    missing.is_empty()
}

/// Whether tests are to take their time.
pub fn is_long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

/// A smallest Debian, downloaded once; where that fails the test is skipped.
pub fn has_debian() -> bool {
    if !is_long() {
        println!("skipped: it takes minutes; WHOLLY_LONG=1 runs it");
        return false;
    }
    if !may_mount() || !may_run(&["debootstrap"]) {
        return false;
    }
    let (made, making) = (
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian"),
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    );
    if made.exists() {
        return true;
    }
    let root = making.path().join("root");
    let output = Command::new("debootstrap").args(["--variant=minbase", "bookworm"]).arg(&root).output().unwrap();
    if !output.status.success() {
        skipped(&format!("debootstrap, which downloads a system, fails: {}", String::from_utf8_lossy(&output.stdout)));
        return false;
    }
    std::fs::rename(root, made).unwrap();
    true
}

/// Unmounts what nobody uses any more. Another test of this process may just be starting a program, which has all that
/// is open here until it is executed. What is in use after a minute of that, somebody else uses.
pub fn umount(point: &Path) {
    for _ in 0..12_000 {
        if Command::new("umount").arg(point).stderr(Stdio::null()).status().expect("run umount").success() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("{} is in use", point.display());
}

/// Waits until no process has the store in `dir`, or it is none any more. Who waits for ever has found a process that
/// does not end.
pub fn wait_until_unused(dir: &Path) {
    while dir.join(".wholly").exists()
        && !wholly(&["stat", dir.to_str().unwrap()]).out.contains("in use by    no process")
    {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// A directory with two files, removed on drop.
pub struct Place {
    pub dir: PathBuf,
    pub emulated: bool,
}

/// One on a disk and one on emulated persistent memory.
pub fn places() -> [Place; 2] {
    [Place::on_disk(), Place::on_memory()]
}

impl Place {
    pub fn on_disk() -> Place {
        Place::below(Path::new(env!("CARGO_TARGET_TMPDIR")), false)
    }

    pub fn on_memory() -> Place {
        Place::below(Path::new("/dev/shm"), true)
    }

    fn below(parent: &Path, emulated: bool) -> Place {
        let dir = parent.join(unique("place"));
        std::fs::create_dir(&dir).expect("mkdir");
        for name in ["a", "b"] {
            std::fs::write(dir.join(name), [0; 1000]).expect("write");
        }
        Place { dir, emulated }
    }

    /// Runs the binary with this directory as the last argument.
    pub fn run(&self, arguments: &[&str]) -> Run {
        let dir = self.dir.to_str().expect("UTF-8");
        wholly(&[arguments, &[dir]].concat())
    }

    /// Opens the store in this process.
    pub fn open(&self) -> Store {
        let options = Options { background: false, ..Options::default() };
        Store::open_with(&self.dir, options, Default::default()).expect("open")
    }

    /// Commits groups, each of 100 bytes at the start of `a` and at byte 100 of `b`, and leaves them to the next open.
    pub fn crash_after_groups(&self, groups: u8) {
        let store = self.open();
        let (a, b) = (store.open_file("a").expect("a"), store.open_file("b").expect("b"));
        for number in 1..=groups {
            let mut group = store.begin();
            group.write_at(&a, 0, &[number; 100]).expect("write");
            group.write_at(&b, 100, &[number; 100]).expect("write");
            group.commit().expect("commit");
        }
    }

    /// Changes bytes of the log behind everybody's back.
    pub fn edit_log(&self, edit: impl FnOnce(&mut Vec<u8>)) {
        let path = self.dir.join(".wholly/log");
        let mut log = std::fs::read(&path).expect("read the log");
        edit(&mut log);
        std::fs::write(&path, log).expect("write the log");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Gives a file or directory a flag of `chattr` until this is dropped.
pub struct Flag<'p>(&'static str, &'p Path);

impl<'p> Flag<'p> {
    /// None where the file system has no such thing.
    pub fn new(flag: &'static str, path: &'p Path) -> Option<Self> {
        Self::change("+", flag, path).then_some(Flag(flag, path))
    }

    /// Nobody may change it.
    pub fn immutable(path: &'p Path) -> Option<Self> {
        Self::new("i", path)
    }

    fn change(how: &str, flag: &str, path: &Path) -> bool {
        let changed = Command::new("chattr").arg(format!("{how}{flag}")).arg(path).output();
        changed.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        Self::change("-", self.0, self.1);
    }
}
