//! The demo runs, says what it should, and leaves nothing behind, also when it is interrupted.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The folder of the profile. Cargo builds examples and commands beside the tests.
fn profile() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    program.parent().and_then(Path::parent).expect("the folder of the profile").into()
}

fn demo() -> Command {
    Command::new(profile().join("examples/demo"))
}

/// The command `wholly`, which is there where the whole workspace was built; and whether it can run others as groups.
fn wholly() -> (PathBuf, bool) {
    let wholly = profile().join("wholly");
    let missing = [wholly.as_path(), Path::new("/dev/fuse")].into_iter().find(|path| !path.exists());
    if let Some(missing) = missing {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "there is no {}", missing.display());
        println!("a command as one group is left out: there is no {}", missing.display());
    }
    let can_run = missing.is_none() && rustix::process::geteuid().is_root();
    (wholly, can_run)
}

/// A directory for the copy on a disk, so that tests do not see each other's.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("demo-{name}-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("mkdir");
    dir
}

fn assert_empty(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).expect("read").map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?} was left in {}", dir.display());
    std::fs::remove_dir(dir).expect("rmdir");
}

#[test]
fn it_runs_and_leaves_nothing() {
    let disk = scratch("runs");
    let (wholly, can_run) = wholly();
    let mut demo = demo();
    demo.args(["--seconds", "3", "--disk"]).arg(&disk);
    if wholly.exists() {
        demo.arg("--wholly").arg(wholly);
    }
    let output = demo.output().expect("run the demo");
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));
    for words in ["no difference", "killed (SIGKILL)", "power failures", "emulated", "simulated", "write, fsync"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let act = if can_run { "killed in the middle" } else { "a command as one group" };
    assert!(out.contains(act), "{act}: {out}");
    assert_empty(&disk);
}

#[test]
fn interrupted_it_leaves_nothing() {
    let disk = scratch("interrupted");
    for wait_ms in [300, 1200] {
        let mut demo = demo();
        demo.args(["--seconds", "60", "--disk"]).arg(&disk).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = demo.spawn().expect("run the demo");
        std::thread::sleep(Duration::from_millis(wait_ms));
        let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("interrupt it");
        let output = child.wait_with_output().expect("its end");
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    }
    assert_empty(&disk);
}
