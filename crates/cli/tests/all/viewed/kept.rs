//! What `wholly undo` takes when it is given no id; what lets kept undo go, and what does not; runs inside of runs.

use super::common::run::{Rig, recover, run, shell, succeeds, traces};
use super::common::views::VIEW;
use super::common::{Run, umount, wholly, wholly_in};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn kept(dir: &Path, script: &str) {
    let output = run(dir, &["--keep-undo", "1G"], script);
    assert!(output.status.success() && output.stderr.is_empty(), "{script}: {output:?}");
}

fn on(dir: &Path, words: &[&str]) -> Run {
    wholly(&[words, &[dir.to_str().unwrap()]].concat())
}

fn logged(dir: &Path) -> Vec<(String, Option<String>)> {
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let json = on(dir, &["log", "--json"]).json();
    let all = json["undos"].as_array().unwrap().iter();
    all.map(|undo| (text(&undo["id"]).unwrap(), text(&undo["gone"]))).collect()
}

fn is_there(dir: &Path, name: &str) -> bool {
    dir.join(name).symlink_metadata().is_ok()
}

#[test]
fn the_last_command_is_taken_back_and_no_other() {
    let Some(rig) = Rig::new("last") else { return };
    for (options, script, why) in [
        (&["--keep-undo", "no"][..], "touch b", "none was to be kept"),
        (&["--keep-undo", "8K"], "rm large; touch b", "it would take"),
    ] {
        let dir = rig.dir("dir", "head -c 100000 /dev/urandom > large");
        kept(&dir, "touch a");
        assert!(run(&dir, options, script).status.success());
        let log = logged(&dir);
        assert!(log.len() == 2 && log[0].1.as_ref().is_some_and(|gone| gone.contains(why)), "{script}: {log:?}");
        assert!(on(&dir, &["log"]).out.lines().next().unwrap().contains("cannot be undone: "), "{script}");
        let refused = on(&dir, &["undo"]);
        refused.exits(123);
        assert!(refused.err.contains(why) && refused.err.contains(&log[1].0), "{script}: {}", refused.err);
        assert!(refused.err.contains("touch a"), "{}", refused.err);
        assert!(is_there(&dir, "a") && is_there(&dir, "b"), "{script}: nothing was changed");
        // It names the next one, which is there still.
        wholly(&["undo", dir.to_str().unwrap(), &log[1].0]).exits(0);
        assert!(!is_there(&dir, "a") && is_there(&dir, "b"), "{script}");
        on(&dir, &["check"]).exits(0);
        recover(&dir);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    // A line alone keeps no folder.
    let dir = rig.dir("dir", "");
    assert!(run(&dir, &["--keep-undo", "no"], "touch b").status.success());
    assert_eq!(traces(&dir), [] as [PathBuf; 0]);
}

/// Below the directory a verb finds the store, unless that is another user's; above it `undo` says where it is.
#[test]
fn verbs_find_the_nearest_store() {
    let Some(rig) = Rig::new("nearest") else { return };
    let dir = rig.dir("dir", "mkdir -p sub/deeper");
    kept(&dir, "touch a");
    let below = dir.join("sub/deeper");
    let place = dir.canonicalize().unwrap();
    let place = place.to_str().unwrap();
    let owned = |owner: u32| std::os::unix::fs::chown(dir.join(".wholly"), Some(owner), None).unwrap();
    owned(12345);
    let log = wholly_in(&below, &["log"]);
    assert!(log.out.contains("nothing can be taken back") && log.err.is_empty(), "{}{}", log.out, log.err);
    owned(0);
    let log = wholly_in(&below, &["log"]);
    assert!(log.out.contains("touch a") && log.err.contains(&format!("log: in {place}\n")), "{}{}", log.out, log.err);
    let above = wholly_in(rig.path("").as_path(), &["undo"]);
    above.exits(8);
    assert!(above.err.contains("a command ran in ./dir: `wholly undo ./dir`"), "{}", above.err);
    wholly_in(&below, &["undo"]).exits(0);
    assert!(!is_there(&dir, "a"));
    recover(&dir);
}

/// However it is applied, what was parked can be taken back as what was committed at once.
#[test]
fn what_was_parked_is_taken_back_once_it_is_applied() {
    let Some(rig) = Rig::new("apply-undo") else { return };
    for (how, is_changed) in [
        (&["apply"][..], false),
        (&["apply", "--theirs"], true),
        (&["apply", "--ours"], true),
        (&["apply", ".", "ID", "--", "a"], false),
        (&["apply", "--theirs", ".", "ID", "--", "a"], true),
    ] {
        let dir = rig.dir("dir", "echo a > a; echo b > b");
        kept(&dir, "touch before");
        assert_eq!(run(&dir, &["--park"], "echo c > a; echo n > n; rm b").status.code(), Some(121), "parked");
        if is_changed {
            succeeds(&mut shell(&dir, "echo other > a"));
        }
        let before = contents(&dir);
        let list = on(&dir, &["list", "--json"]).json();
        let id = list["groups"][0]["id"].as_str().unwrap();
        let words: Vec<&str> = how.iter().map(|word| if *word == "ID" { id } else { word }).collect();
        let mut command = super::common::views::command(env!("CARGO_BIN_EXE_wholly"));
        let applied = command.args(&words).env_remove("WHOLLY_KEEP_UNDO").current_dir(&dir).output().unwrap();
        assert!(applied.status.success(), "{how:?}: {applied:?}");
        assert_ne!(contents(&dir), before, "{how:?}");
        wholly_in(&dir, &["undo"]).exits(0);
        assert_eq!(contents(&dir), before, "{how:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = all.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}

/// What is kept for an undo, byte by byte.
fn kept_bytes(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let below = |name: &str| std::fs::read_dir(dir.join(".wholly").join(name)).into_iter().flatten();
    let all = ["parked", "anchor", "undo"].into_iter().flat_map(below).map(|entry| entry.unwrap().path());
    all.filter(|path| path.is_file()).map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// A small ext4 of its own.
struct Host {
    at: PathBuf,
    _rig: Rig,
}

impl Host {
    fn new(name: &str, mib: u32) -> Option<Host> {
        let rig = Rig::new(name)?;
        let script = format!("truncate -s {mib}M image; mkfs.ext4 -q -m 0 image; mkdir at; mount -o loop image at");
        let at = rig.dir("host", &script).join("at");
        Some(Host { at, _rig: rig })
    }

    fn dir(&self, script: &str) -> PathBuf {
        let dir = self.at.join("dir");
        std::fs::create_dir(&dir).unwrap();
        succeeds(&mut shell(&dir, script));
        dir
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        umount(&self.at);
    }
}

/// Fills a file system but for so many bytes.
fn fill(at: &Path, but: u64) {
    let script = format!(
        "rm -f filler; sync; free=$(($(stat -f -c '%a*%S' .))); fallocate -l $((free - {but})) filler; \
         [ {but} != 0 ] || {{ head -c 4M /dev/zero >> filler; sync; true; }} 2> /dev/null"
    );
    succeeds(&mut shell(at, &script));
}

#[test]
fn looking_drops_nothing_and_the_undo_needs_no_space() {
    for (mib, large, but) in [(64, 8, 4 << 20), (32, 4, 1 << 20), (16, 2, 0), (64, 8, 0)] {
        let Some(host) = Host::new("undo-full", mib) else { return };
        let dir = host.dir(&format!("head -c {large}M /dev/urandom > thesis; cp thesis ../../thesis; touch beside"));
        kept(&dir, "rm thesis beside");
        fill(&host.at, but);
        let before = kept_bytes(&dir);
        assert!(before.values().any(|bytes| bytes.len() == large << 20), "it is kept");
        for words in [&["log"][..], &["list"], &["stat"], &["check"], &["undo", "--dry-run"], &["recover"]] {
            let looked = on(&dir, words);
            assert!(looked.code.is_some_and(|code| code <= 1), "{but} {words:?}: {}{}", looked.out, looked.err);
            assert!(kept_bytes(&dir) == before, "{but} {words:?}");
        }
        // A part, and the rest.
        let id = logged(&dir).pop().unwrap().0;
        wholly(&["undo", dir.to_str().unwrap(), &id, "--", "thesis"]).exits(0);
        succeeds(&mut shell(&dir, "cmp thesis ../../thesis; test ! -e beside"));
        wholly(&["undo", dir.to_str().unwrap(), &id]).exits(0);
        succeeds(&mut shell(&dir, "test -e beside"));
    }
}

/// What is held is there for an apply and for a mount, too, before they see that there is no space.
#[test]
fn kept_undo_gives_way_to_an_apply_and_to_a_mount() {
    for but in [6 << 20, 3 << 20] {
        let Some(host) = Host::new("undo-apply", 64) else { return };
        let dir = host.dir("head -c 16M /dev/urandom > thesis");
        kept(&dir, "rm thesis");
        let parked = run(&dir, &["--park"], "head -c 8M /dev/zero | tr '\\0' x > new");
        assert_eq!(parked.status.code(), Some(121), "{parked:?}");
        fill(&host.at, but);
        let applied = on(&dir, &["apply"]);
        applied.exits(0);
        assert!(applied.err.contains("`sh -c rm thesis` cannot be taken back any more"), "{but}: {}", applied.err);
        assert_eq!(dir.join("new").metadata().unwrap().len(), 8 << 20);
    }
    let Some(host) = Host::new("undo-mount", 64) else { return };
    let dir = host.dir("head -c 16M /dev/urandom > thesis; mkdir ../point");
    on(&dir, &["init"]).exits(0);
    kept(&dir, "rm thesis");
    fill(&host.at, 3 << 20);
    let (point, place) = (host.at.join("point"), dir.to_str().unwrap());
    wholly(&["mount", place, point.to_str().unwrap()]).exits(0);
    let written = shell(&point, "head -c 4M /dev/zero > new && sync new").output().unwrap();
    umount(&point);
    assert!(written.status.success(), "{written:?}");
    super::common::wait_until_unused(&dir);
    assert!(logged(&dir)[0].1.as_ref().is_some_and(|gone| gone.contains("space")), "{:?}", logged(&dir));
    assert_eq!(dir.join("new").metadata().unwrap().len(), 4 << 20);
}

/// A command that needs the space gets it: the oldest undo is dropped, and the run says so.
#[test]
fn kept_undo_gives_way() {
    let Some(host) = Host::new("undo-way", 100) else { return };
    let dir = host.dir("for i in 1 2; do head -c 20M /dev/zero | tr '\\0' $i > f$i; done");
    kept(&dir, "rm f1");
    kept(&dir, "rm f2");
    // Forty are held, and some forty are free: eighty are written. In an overlay the program gives the run time to see
    // that little is free.
    let waits = "n=0; while [ $(stat -f -c %a .) -lt 1024 ] && [ $n -lt 2000 ]; do sleep 0.01; n=$((n + 1)); done;";
    let waits = if VIEW == "overlay" { waits } else { "" };
    let script = format!("for i in $(seq 80); do {waits} head -c 1M /dev/zero >> big || exit 1; done");
    let output = run(&dir, &["--keep-undo", "1G"], &script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("`sh -c rm f1` cannot be taken back any more"), "{said}");
    let log = logged(&dir);
    assert!(log.last().is_some_and(|(_, gone)| gone.as_ref().is_some_and(|gone| gone.contains("space"))), "{log:?}");
    assert_eq!(dir.join("big").metadata().unwrap().len(), 80 << 20);
    wholly_in(&dir, &["check"]).exits(0);
}

/// So it does for a run that has no space to begin with.
#[test]
fn kept_undo_gives_way_to_a_run_that_begins() {
    for (but, is_made) in [(0, false), (200 << 10, false), (0, true), (200 << 10, true)] {
        let Some(host) = Host::new("undo-begin", 64) else { return };
        let dir = host.dir("head -c 8M /dev/urandom > thesis; head -c 8M /dev/urandom > big");
        if is_made {
            on(&dir, &["init"]).exits(0);
        }
        kept(&dir, "rm thesis");
        fill(&host.at, but);
        let output = run(&dir, &["--keep-undo", "1G"], "rm big");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !is_there(&dir, "big"), "{but} {is_made}: {said}");
        assert!(said.contains("`sh -c rm thesis` cannot be taken back any more"), "{but} {is_made}: {said}");
        wholly_in(&dir, &["undo"]).exits(0);
        assert!(is_there(&dir, "big"));
    }
}

/// One call for more than is free gets it in a FUSE view; in an overlay it is the kernel that refuses it.
#[test]
fn what_one_call_lacks_is_said() {
    let Some(host) = Host::new("undo-one", 100) else { return };
    let dir = host.dir("head -c 50M /dev/zero > f");
    kept(&dir, "rm f");
    let output = run(&dir, &[], "fallocate -l 60M big");
    let said = String::from_utf8_lossy(&output.stderr);
    match VIEW {
        // Before it is refused it may have taken what is free, and then undo has given way.
        "overlay" => {
            let is_kept = said.contains("if the command lacked space: `wholly undo` keeps 50.0 MiB");
            assert!(!output.status.success(), "{said}");
            assert!(is_kept || said.contains("cannot be taken back any more"), "{said}");
            assert_eq!(wholly_in(&dir, &["undo"]).code == Some(0), is_kept, "{said}");
        }
        _ => assert!(output.status.success() && said.contains("cannot be taken back any more"), "{said}"),
    }
}

/// A run inside of a run is part of that: it keeps nothing by itself, and takes nothing from it.
#[test]
fn a_run_inside_of_a_run_is_part_of_it() {
    let Some(rig) = Rig::new("nested") else { return };
    // As its user would run it: an overlay cannot be another one's layer.
    let inner = concat!("env -u WHOLLY_VIEW ", env!("CARGO_BIN_EXE_wholly"));
    for keep in ["1G", "no"] {
        let dir = rig.dir("dir", "echo 0 > a; mkdir sub");
        let script = format!(
            "echo hours > work; echo 1 >> a; {inner} run --keep-undo {keep} -- sh -c 'echo 2 > b; echo 2 >> a'; \
             echo $? > inner; ls -A; {inner} run --park -- touch c; echo $? > parked"
        );
        let output = run(&dir, &["--keep-undo", "1G"], &script);
        assert!(output.status.success(), "{output:?}");
        let is_overlay = VIEW == "overlay";
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();
        assert_eq!(read("work"), "hours\n");
        assert_eq!(read("a"), if is_overlay { "0\n1\n2\n" } else { "0\n1\n" }, "{keep}");
        // In a FUSE view each run is refused.
        assert_eq!((&*read("inner"), &*read("parked")), if is_overlay { ("0\n", "125\n") } else { ("125\n", "125\n") });
        assert_eq!(is_there(&dir, "b"), is_overlay);
        assert!(!String::from_utf8_lossy(&output.stdout).contains(".wholly"), "it leaves no folder: {output:?}");
        wholly_in(&dir, &["undo"]).exits(0);
        assert_eq!(contents(&dir), BTreeMap::from([("a".into(), b"0\n".to_vec())]), "{keep}");
        recover(&dir);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// The inner run is killed at some moment: the outer one commits all of it or nothing.
#[test]
fn a_run_that_is_killed_inside_of_a_run_leaves_all_or_nothing() {
    if VIEW != "overlay" {
        return;
    }
    let Some(rig) = Rig::new("nested-killed") else { return };
    // As its user would run it: an overlay cannot be another one's layer.
    let inner = concat!("env -u WHOLLY_VIEW ", env!("CARGO_BIN_EXE_wholly"));
    let mut ended = [0, 0];
    for i in 0..30 {
        let dir = rig.dir("dir", "mkdir d; for i in $(seq 200); do echo old > d/$i; done");
        let delay = 0.01 + 0.004 * f64::from(i);
        let script = format!(
            "{inner} run -- sh -c 'for i in $(seq 200); do echo new > d/$i; done' & sleep {delay}; kill -9 $! ; wait $! ; \
             echo outer > work"
        );
        let output = run(&dir, &[], &script);
        assert!(output.status.success(), "{output:?}");
        let files: Vec<_> = (1..=200).map(|n| std::fs::read_to_string(dir.join(format!("d/{n}"))).unwrap()).collect();
        let new = files.iter().filter(|file| *file == "new\n").count();
        assert!(new == 0 || new == 200, "{delay}: {new} of 200 are new");
        ended[usize::from(new > 0)] += 1;
        assert_eq!(std::fs::read_to_string(dir.join("work")).unwrap(), "outer\n");
        assert_eq!(traces(&dir), [] as [PathBuf; 0]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    println!("{} had nothing, {} all", ended[0], ended[1]);
}

/// The superuser's run in a directory of another user leaves no folder there that is root's, unless it is told to.
#[test]
fn the_superuser_is_in_no_owners_way() {
    let Some(rig) = Rig::new("owner") else { return };
    let dir = rig.dir("dir", "echo 1 > a");
    std::os::unix::fs::chown(&dir, Some(1234), Some(1235)).unwrap();
    let run = |options: &[&str]| {
        let mut command = super::common::views::command(env!("CARGO_BIN_EXE_wholly"));
        command.env_remove("WHOLLY_KEEP_UNDO").arg("run").args(options).args(["--", "sh", "-c", "echo 2 > a"]);
        command.current_dir(&dir).output().unwrap()
    };
    let output = run(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("another user's") && said.contains("--keep-undo"), "{output:?}");
    assert_eq!(traces(&dir), [] as [PathBuf; 0]);
    let output = run(&["--keep-undo", "1G"]);
    assert!(output.status.success(), "{output:?}");
    assert!(is_there(&dir, ".wholly/undo"));
    on(&dir, &["deinit"]).exits(0);
}

/// A backup that leaves out what caches say of themselves has no undo, and all else of the store.
#[test]
fn a_backup_can_leave_undo_out() {
    let Some(rig) = Rig::new("tagged") else { return };
    let dir =
        rig.dir("dir", "head -c 100000 /dev/urandom > removed; mkdir -p gone/deep; touch gone/deep/er; echo 1 > a");
    kept(&dir, "rm removed; rm -r gone; echo 2 > a; echo new > new");
    assert_eq!(run(&dir, &["--park"], "echo parked > p").status.code(), Some(121));
    let backup = rig.dir("backup", "");
    let copy = format!("tar -C {} --exclude-caches -cf - . | tar -xf -", dir.display());
    succeeds(&mut shell(&backup, &copy));
    let all = std::fs::read_dir(backup.join(".wholly/undo")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(all.collect::<Vec<_>>(), ["CACHEDIR.TAG"]);
    let held = std::fs::read_dir(dir.join(".wholly/anchor")).unwrap().count();
    assert_eq!(held, 0, "all that is held lies with the undo");
    let tags = shell(&backup, "find . -name CACHEDIR.TAG | wc -l").output().unwrap().stdout;
    assert_eq!(tags, b"1\n", "log and parked work have none");
    on(&backup, &["check"]).exits(0);
    assert_eq!(logged(&backup), []);
    assert_eq!(on(&backup, &["stat", "--json"]).json()["parked"].as_array().unwrap().len(), 1);
    kept(&backup, "echo 3 > a");
    on(&backup, &["undo"]).exits(0);
    assert_eq!(std::fs::read(backup.join("a")).unwrap(), b"2\n");
    on(&dir, &["undo"]).exits(0);
    assert!(is_there(&dir, "gone/deep/er") && is_there(&dir, "removed") && !is_there(&dir, "new"));
    on(&dir, &["check"]).exits(0);
}

/// A tree that somebody restores has the folder of a store that it was copied from.
#[test]
fn a_restored_folder_is_nobodys() {
    let Some(rig) = Rig::new("restored") else { return };
    let dir = rig.dir("dir", "echo 1 > a");
    kept(&dir, "echo 2 > a");
    let backup = rig.copy("backup", &dir);
    let new = rig.dir("new", "");
    let script = format!("cp -a {0}/. .; mkdir below; cp -a {0}/. below", backup.display());
    let output = run(&new, &[], &script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains(".wholly is left out"), "{output:?}");
    assert_eq!(traces(&new), [] as [PathBuf; 0]);
    assert_eq!(std::fs::read(new.join("a")).unwrap(), b"2\n");
    assert!(new.join("below/.wholly/log").exists(), "below it is data like any other");
    // What moves things there is refused: they would be lost.
    let output = run(&new, &[], "mkdir .wholly; mv a .wholly");
    assert_eq!(output.status.code(), Some(123), "{output:?}");
    assert_eq!(std::fs::read(new.join("a")).unwrap(), b"2\n");
    // In the view it is data like any other.
    let script =
        "mkdir .wholly; echo 3 > .wholly/x; ls -A | grep -x .wholly; cat .wholly/x; mv .wholly/x b; rmdir .wholly";
    let output = run(&new, &["--keep-undo", "no"], script);
    assert!(output.status.success() && output.stdout == b".wholly\n3\n", "{output:?}");
    assert_eq!(std::fs::read(new.join("b")).unwrap(), b"3\n");
    recover(&dir);
}
