//! Groups by `ioctl`: in a command of `wholly run` they join it, and on a mount they survive its server.

use super::common::run::{Rig, as_group, has_store, run};
use super::common::{self, may_mount, unique, wait_until_unused, wholly};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use wholly::{Error, MountGroup, Store};

/// No test, but what this program does as a command, in the directory where it is.
#[test]
fn act() {
    let Some(what) = std::env::var_os("WHOLLY_ACT") else { return };
    let here = File::open(".").unwrap();
    if what == "open" {
        let Err(Error::Unsupported(why)) = Store::open(".") else { panic!("it is a view") };
        assert!(why.contains("wholly run") && why.contains("MountGroup"), "{why}");
        return;
    }
    let group = MountGroup::begin(&here).unwrap();
    assert!(matches!(MountGroup::begin(&here), Err(Error::Busy(..))), "they do not nest");
    std::fs::write("file", "new").unwrap();
    match what.to_str().unwrap() {
        "commit" => {
            group.add(File::create("added").unwrap()).unwrap();
            group.commit().unwrap();
        }
        // What is atomic is so with the command.
        "order" => {
            let file = File::create("ordered").unwrap();
            wholly::fatomic(&file).and_then(|()| wholly::fdataatomic(&file)).unwrap();
            group.commit_atomic().unwrap();
        }
        "abort" => group.abort().unwrap(),
        "close" => drop(group),
        "die" => rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap(),
        what => panic!("{what}"),
    }
}

/// A script for a command, in which `act` followed by a word does that.
fn script(text: &str) -> String {
    let me = std::env::current_exe().unwrap();
    // Behind the name of the program.
    let act = module_path!().split_once("::").map_or("act".into(), |(_, module)| format!("{module}::act"));
    format!("act() {{ WHOLLY_ACT=$1 {} --exact {act} --nocapture >&2; }}; {text}", me.display())
}

#[test]
fn in_a_command_a_group_commits_with_it() {
    let Some(rig) = Rig::new("join") else { return };
    let dir = rig.dir("dir", "echo old > file");
    let output = run(&dir, &[], &script("act commit && act order && echo more > other"));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"new");
    assert!(["added", "ordered", "other"].iter().all(|name| dir.join(name).exists()) && !has_store(&dir));
    // What it has committed goes with the command.
    std::fs::write(dir.join("file"), "old").unwrap();
    let output = run(&dir, &[], &script("act commit && exit 3"));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"old");
}

#[test]
fn in_a_command_a_group_that_is_undone_dooms_it() {
    let Some(rig) = Rig::new("doom") else { return };
    let dir = rig.dir("dir", "echo old > file");
    let aborted = "has aborted its group";
    let left = "has not committed its group";
    for (text, why) in [
        ("act abort; echo later > other; true", aborted),
        ("act abort; exit 7", aborted),
        ("act close", aborted),
        ("act die || true", left),
        ("act commit; act die; exit 0", left),
    ] {
        let output = run(&dir, &[], &script(text));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(123), "{text}: {said}");
        let last = said.lines().last().unwrap();
        assert!(last.contains(why) && last.contains(" is unchanged"), "{text}: {said}");
        assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"old\n", "{text}");
        assert!(!dir.join("other").exists() && !has_store(&dir), "{text}");
    }
    let mut command = as_group(&dir, &[], &script("act abort"));
    let words: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
    command = common::views::command(env!("CARGO_BIN_EXE_wholly"));
    let output = command.arg("--json").args(words).current_dir(&dir).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let told: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((told["outcome"].as_str(), told["exit"].as_i64()), (Some("aborted"), Some(123)));
    assert!(told["doomed"].as_str().unwrap().contains(aborted), "{told}");
}

#[test]
fn in_a_command_no_store_is_opened() {
    let Some(rig) = Rig::new("view") else { return };
    let dir = rig.dir("dir", "");
    let output = run(&dir, &[], &script("act open"));
    assert!(output.status.success(), "{output:?}");
}

/// A store, and a mount of it, removed on drop.
struct Mounted {
    home: PathBuf,
    point: PathBuf,
}

impl Mounted {
    fn new(name: &str) -> Option<Mounted> {
        if !may_mount() {
            return None;
        }
        let dir = Path::new("/dev/shm").join(unique(name));
        let mounted = Mounted { home: dir.join("home"), point: dir.join("point") };
        std::fs::create_dir_all(&mounted.home).unwrap();
        std::fs::create_dir_all(&mounted.point).unwrap();
        wholly(&["init", mounted.home.to_str().unwrap()]).exits(0);
        mounted.mount();
        Some(mounted)
    }

    fn mount(&self) {
        wholly(&["mount", self.home.to_str().unwrap(), self.point.to_str().unwrap()]).exits(0);
    }

    fn kill_server(&self) {
        let stat = wholly(&["--json", "stat", self.home.to_str().unwrap()]).json();
        let pid = rustix::process::Pid::from_raw(stat["owner_pid"].as_i64().unwrap() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait_until_unused(&self.home);
    }

    fn umount(&self) {
        let _ = Command::new("umount").args(["-q", "-l"]).arg(&self.point).status();
        wait_until_unused(&self.home);
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.point.join(name)).ok()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-q", "-l"]).arg(&self.point).status();
        let _ = std::fs::remove_dir_all(self.home.parent().unwrap());
    }
}

/// The server is killed before the commit, and behind it: a process dies here, no power fails.
#[test]
fn what_is_committed_survives_the_server_and_nothing_else() {
    let Some(mounted) = Mounted::new("killed") else { return };
    let at = |name: &str| mounted.point.join(name);
    std::fs::write(at("file"), "before").unwrap();
    let change = |text: &str| {
        let group = MountGroup::begin(File::open(&mounted.point).unwrap()).unwrap();
        std::fs::write(at("file"), text).unwrap();
        std::fs::create_dir(at(text)).unwrap();
        std::fs::write(at(text).join("made"), text).unwrap();
        File::open(at("file")).unwrap().sync_all().unwrap();
        group
    };
    let group = change("never");
    assert_eq!(mounted.read("file").unwrap(), "never");
    mounted.kill_server();
    assert!(group.commit().is_err());
    mounted.umount();
    mounted.mount();
    assert_eq!((mounted.read("file").unwrap(), at("never").exists()), ("before".into(), false));
    change("committed").commit().unwrap();
    let group = change("after it");
    mounted.kill_server();
    drop(group);
    mounted.umount();
    mounted.mount();
    assert_eq!(
        (mounted.read("file").unwrap(), mounted.read("committed/made").unwrap()),
        ("committed".into(), "committed".into())
    );
    assert!(!at("after it").exists());
    mounted.umount();
    wholly(&["check", mounted.home.to_str().unwrap()]).exits(0);
}

/// A mount that goes while a group runs: nothing of it is committed.
#[test]
fn what_is_unmounted_aborts_its_group() {
    let Some(mounted) = Mounted::new("unmounted") else { return };
    let file = mounted.point.join("file");
    std::fs::write(&file, "before").unwrap();
    let group = MountGroup::begin(File::open(&mounted.point).unwrap()).unwrap();
    std::fs::write(&file, "never").unwrap();
    Command::new("umount").arg("-l").arg(&mounted.point).status().unwrap();
    drop(group);
    wait_until_unused(&mounted.home);
    assert_eq!(std::fs::read(mounted.home.join("file")).unwrap(), b"before");
}
