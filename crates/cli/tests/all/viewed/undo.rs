//! `wholly run --keep-undo`, `wholly log` and `wholly undo`: a command is taken back, and done again.

use super::common::run::{Rig, has_store, recover, run, shell, succeeds, traces};
use super::common::tree::Tree;
use super::common::{self, Run, wholly};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Something of each kind that a command can find.
const BEFORE: &str = "mkdir -p d/e keep quiet; echo one > a; echo two > b; ln b d/b2; echo deep > d/e/f; ln -s a l; mkfifo p; : > void; \
                      head -c 200000 /dev/zero > large; setfattr -n user.tag -v old a; chmod 640 b; \
                      touch -d @1000000000 a b d/e/f d keep quiet large void .";

/// Something of each kind that a command can do.
const SCRIPT: &str = "echo more >> a; setfattr -n user.tag -v new a; setfattr -n user.two -v x d; chmod 600 b; \
                      rm -r d/e; mkdir -p n/m; echo new > n/m/f; ln n/m/f n/g; mv large n/moved; \
                      echo other > t; mv t l; rm p; chmod 700 keep; printf x | dd of=n/moved bs=1 seek=5000 \
                      conv=notrunc 2> /dev/null; : > keep/empty; ln -s nowhere n/l; mkdir quiet/x; rmdir quiet/x; : > void";

fn kept(dir: &Path, script: &str) {
    kept_in(dir, &[], script);
}

fn kept_in(dir: &Path, options: &[&str], script: &str) {
    let output = run(dir, &[options, &["--keep-undo", "1G"]].concat(), script);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

fn on(dir: &Path, words: &[&str]) -> Run {
    wholly(&[words, &[dir.to_str().unwrap()]].concat())
}

/// All but the store's folder, and what it keeps.
fn tree(dir: &Path) -> Tree {
    Tree::of(dir).but_for_kept_names()
}

fn assert_same(is: &Tree, wanted: &Tree, what: &str) {
    assert_eq!(is.difference(wanted), "", "{what}");
}

#[test]
fn a_command_is_taken_back_and_done_again() {
    let Some(rig) = Rig::new("undo") else { return };
    let dir = rig.dir("dir", BEFORE);
    let inode = |name: &str| std::os::unix::fs::MetadataExt::ino(&std::fs::symlink_metadata(dir.join(name)).unwrap());
    let before = tree(&dir);
    let removed = inode("d/e/f");
    kept(&dir, SCRIPT);
    let after = tree(&dir);
    assert_ne!(before, after);
    let log = on(&dir, &["log"]);
    assert!(log.out.lines().count() == 1 && log.out.contains("sh -c echo more"), "{}", log.out);
    assert_same(&tree(&dir), &after, "looking changes nothing");
    let dry = on(&dir, &["undo", "--dry-run"]);
    dry.exits(0);
    assert!(dry.out.contains("would take back"), "{}", dry.out);
    assert_same(&tree(&dir), &after, "nor does a dry run");

    on(&dir, &["undo"]).exits(0);
    assert_same(&tree(&dir), &before, "taken back");
    assert_eq!(inode("d/e/f"), removed, "it is the file itself");
    let log = on(&dir, &["log"]);
    assert!(log.out.lines().count() == 1 && log.out.contains("undo of: sh -c echo more"), "{}", log.out);
    on(&dir, &["undo"]).exits(0);
    assert_same(&tree(&dir), &after, "done again");
    on(&dir, &["undo"]).exits(0);
    assert_same(&tree(&dir), &before, "taken back again");
    on(&dir, &["check"]).exits(0);

    let undos = on(&dir, &["log", "--json"]).json();
    let id = undos["undos"][0]["id"].as_str().unwrap().to_owned();
    wholly(&["discard", dir.to_str().unwrap(), &id]).exits(0);
    on(&dir, &["undo"]).exits(8);
    assert_same(&tree(&dir), &before, "without an undo");
    recover(&dir);
}

/// In an overlay it is one change of a name, which the undo keeps and gives back.
#[test]
fn a_directory_that_is_removed_comes_back_with_everything_in_it() {
    let Some(rig) = Rig::new("undo-whole") else { return };
    let dir = rig.dir("dir", BEFORE);
    kept(&dir, "mkdir new; echo x > new/x");
    std::thread::sleep(Duration::from_millis(20));
    let before = tree(&dir);
    kept(&dir, "rm -r d n* keep; mkdir d; echo y > d/y");
    let after = tree(&dir);
    assert!(!dir.join("new").exists() && dir.join("d/y").exists());
    let dry = on(&dir, &["undo", "--dry-run"]);
    let is_overlay = common::views::VIEW == "overlay";
    assert_eq!(dry.out.contains("new  (directory, with everything in it)"), is_overlay, "{}", dry.out);
    for (state, what) in [(&before, "taken back"), (&after, "done again"), (&before, "taken back again")] {
        on(&dir, &["undo"]).exits(0);
        assert_same(&tree(&dir), state, what);
    }
    on(&dir, &["check"]).exits(0);
    recover(&dir);
}

#[test]
fn several_commands_are_taken_back_one_after_the_other() {
    let Some(rig) = Rig::new("undo-several") else { return };
    let dir = rig.dir("dir", BEFORE);
    let scripts =
        ["echo 1 >> a; mkdir n; echo x > n/f; echo y > n/g", "echo 2 >> a; echo z >> n/f; rm n/g", "rm -r n a"];
    let mut states = vec![tree(&dir)];
    for script in scripts {
        kept(&dir, script);
        states.push(tree(&dir));
    }
    let json = on(&dir, &["log", "--json"]).json();
    let ids: Vec<String> =
        json["undos"].as_array().unwrap().iter().map(|undo| undo["id"].as_str().unwrap().into()).collect();
    assert_eq!(ids.len(), 3);
    // An older one alone is in the way of the younger ones.
    let place = dir.to_str().unwrap();
    let refused = wholly(&["undo", place, &ids[2]]);
    refused.exits(123);
    assert!(refused.out.contains("  a: it is gone"), "{}", refused.out);
    assert_same(&tree(&dir), &states[3], "refused");
    for (id, state) in ids.iter().zip(states.iter().rev().skip(1)) {
        wholly(&["undo", place, id]).exits(0);
        assert_same(&tree(&dir), state, "taken back");
    }
    recover(&dir);
}

#[test]
fn what_others_have_changed_since_is_never_overwritten() {
    let Some(rig) = Rig::new("undo-others") else { return };
    let made = rig.dir("model", BEFORE);
    let touches = [
        ("echo mine >> a", "a"),
        ("sleep 0.02; printf moor > a.new; touch -r a a.new; cat a.new > a; touch -r a.new a; rm a.new", "a"),
        ("rm a", "a"),
        ("mv a elsewhere", "a"),
        ("rm a; echo mine > a", "a"),
        ("echo mine > n/m/f", "n/m/f"),
        ("touch n/m/mine", "n/m/mine"),
        ("rm n/g", "n"),
        ("echo mine > p", "p"),
        ("mkdir d/e", "d/e"),
        ("chmod 711 b", "b"),
        ("chmod 711 keep", "keep"),
        ("setfattr -n user.two -v mine d", "d"),
    ];
    for (i, (touch, path)) in touches.into_iter().enumerate() {
        let dir = rig.copy(&format!("dir{i}"), &made);
        kept(&dir, SCRIPT);
        // Whatever is done in the same tick of the clock as the command is seen as its own.
        succeeds(&mut shell(&dir, &format!("sleep 0.02; {touch}")));
        let mine = tree(&dir);
        let refused = on(&dir, &["undo"]);
        assert_eq!(refused.code, Some(123), "{touch}: {}{}", refused.out, refused.err);
        assert!(refused.out.lines().any(|line| line.trim().starts_with(path)), "{touch}: {}", refused.out);
        assert_same(&tree(&dir), &mine, touch);
        assert_eq!(on(&dir, &["log", "--json"]).json()["undos"].as_array().unwrap().len(), 1, "it is kept still");
        recover(&dir);
    }
    let dir = rig.copy("beside", &made);
    let before = tree(&dir);
    kept(&dir, SCRIPT);
    succeeds(&mut shell(&dir, "sleep 0.02; mkdir own; echo mine > own/file; echo mine > keep/beside"));
    on(&dir, &["undo"]).exits(0);
    assert_eq!(std::fs::read(dir.join("own/file")).unwrap(), b"mine\n");
    assert_eq!(std::fs::read(dir.join("keep/beside")).unwrap(), b"mine\n");
    succeeds(&mut shell(&dir, "rm -r own keep/beside; touch -d @1000000000 keep ."));
    assert_same(&tree(&dir), &before, "but for that");
    recover(&dir);
}

#[test]
fn what_would_take_more_is_not_kept() {
    let Some(rig) = Rig::new("undo-bound") else { return };
    let dir = rig.dir("dir", "head -c 1000000 /dev/urandom > a; mkdir d; echo x > d/f");
    let output = run(&dir, &["--keep-undo", "100K"], "rm -r a d; mkdir n; echo y > n/f");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("but its undo is not kept: it would take "), "{said}");
    assert_eq!(traces(&dir), [] as [&Path; 0]);
    assert!(!dir.join("a").exists() && dir.join("n/f").exists());
    assert!(on(&dir, &["log"]).out.contains("nothing can be taken back"));
    // Nor is anything where that is not wanted.
    assert!(run(&dir, &["--keep-undo", "no"], "rm -r n").status.success());
    assert_eq!(traces(&dir), [] as [&Path; 0]);
}

/// Without an option the undo is kept. The others here say what they want.
#[test]
fn by_default_a_command_can_be_taken_back() {
    let Some(rig) = Rig::new("undo-default") else { return };
    let dir = rig.dir("dir", "echo one > a; echo two > b; ln b c");
    let before = tree(&dir);
    let mut command = common::run::as_group(&dir, &[], "echo more >> a; rm b; mkdir d");
    assert!(command.env_remove("WHOLLY_KEEP_UNDO").status().unwrap().success());
    // The other name of what was removed shows that it is kept.
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&dir.join("c").metadata().unwrap()), 2);
    common::wholly_in(&dir, &["undo"]).exits(0);
    assert_same(&tree(&dir), &before, "taken back");
    assert!(std::fs::read(dir.join("b")).unwrap() == b"two\n");
    recover(&dir);
}

#[test]
fn a_command_over_several_directories_is_taken_back_in_all_of_them() {
    let Some(rig) = Rig::new("undo-together") else { return };
    let dirs = ["one", "two"].map(|name| rig.dir(name, BEFORE));
    let places = [0, 1].map(|i| dirs[i].to_str().unwrap());
    let trees = || [0, 1].map(|i| tree(&dirs[i]));
    let assert_are = |wanted: &[Tree; 2], what: &str| {
        (0..2).for_each(|i| assert_same(&tree(&dirs[i]), &wanted[i], what));
    };
    let before = trees();
    let script = format!("for dir in {} {}; do cd $dir; {SCRIPT}; done", places[0], places[1]);
    kept_in(&dirs[0], &["--dir", places[0], "--dir", places[1]], &script);
    let after = trees();
    let undone = wholly(&["undo", places[0]]);
    undone.exits(0);
    assert!(undone.out.contains(&format!("{}:\n", places[1])), "{}", undone.out);
    assert_are(&before, "taken back");
    wholly(&["undo", places[1]]).exits(0);
    assert_are(&after, "done again");
    // What is in the way in one of them is in the way in both.
    succeeds(&mut shell(&dirs[1], "sleep 0.02; echo mine >> a"));
    let mine = trees();
    let refused = wholly(&["undo", places[0]]);
    refused.exits(123);
    assert!(refused.out.contains(&format!("{}/a: ", places[1])), "{}", refused.out);
    assert_are(&mine, "refused");
    wholly(&["undo", "--only", places[0]]).exits(0);
    assert_are(&[before[0].clone(), mine[1].clone()], "one alone");
    let refused = wholly(&["undo", places[1]]);
    refused.exits(8);
    assert!(refused.err.contains("wholly undo --only"), "{}", refused.err);
    dirs.iter().for_each(|dir| recover(dir));
}

/// This is the death of a process, no power failure.
#[test]
fn killed_while_it_takes_back_in_several_directories_it_has_done_all_or_nothing() {
    let Some(rig) = Rig::new("undo-together-killed") else { return };
    let dirs = ["one", "two"].map(|name| rig.dir(name, BEFORE));
    let places = [0, 1].map(|i| dirs[i].to_str().unwrap());
    let trees = || [0, 1].map(|i| tree(&dirs[i]));
    let mut states = vec![trees()];
    let script = format!("for dir in {} {}; do cd $dir; {SCRIPT}; done", places[0], places[1]);
    kept_in(&dirs[0], &["--dir", places[0], "--dir", places[1]], &script);
    states.push(trees());
    let mut random = Random(1);
    for n in 0..if common::is_long() { 100 } else { 10 } {
        killed(common::views::command(env!("CARGO_BIN_EXE_wholly")).args(["undo", places[n % 2]]), &mut random);
        // A directory in which a crash has left no undo keeps no store.
        for place in places.iter().filter(|place| has_store(Path::new(place))) {
            let recovered = wholly(&["recover", place]);
            assert!(matches!(recovered.code, Some(0 | 1)), "{}{}", recovered.out, recovered.err);
        }
        let now = trees();
        assert!(states.contains(&now), "{n}: {}{}", now[0].difference(&states[0][0]), now[1].difference(&states[0][1]));
    }
    dirs.iter().for_each(|dir| recover(dir));
}

/// Kills it after a while, if it has not ended by then.
fn killed(command: &mut Command, random: &mut Random) {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_micros(random.below(100_000)));
    let _ = child.kill();
    child.wait().unwrap();
}

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// Commands, some of which fail.
    fn script(&mut self, steps: u64) -> String {
        let mut script = String::from("exec 2> /dev/null; ");
        for _ in 0..steps {
            let mut name = || {
                let depth = self.below(3);
                let part = |n: u64| ["x", "y", "z", "w"][n as usize];
                let parts: Vec<_> = (0..=depth).map(|_| part(self.below(4))).collect();
                parts.join("/")
            };
            let (a, b) = (name(), name());
            let n = self.below(100_000);
            script += &match self.below(16) {
                0 | 1 => format!("mkdir -p {a}"),
                2 | 3 => format!("echo {n} > {a}"),
                4 => format!("echo {n} >> {a}"),
                5 => format!("head -c {n} /dev/zero | tr '\\0' {} > {a}", n % 10),
                6 => format!("printf {n} | dd of={a} bs=1 seek={} conv=notrunc", n % 9000),
                7 => format!("rm -rf {a}"),
                8 | 9 => format!("mv -T {a} {b}"),
                10 => format!("cp {a} {b}"),
                11 if n.is_multiple_of(2) => format!("ln -s {b} {a}"),
                11 => format!("ln {b} {a}"),
                12 => format!("chmod {:o} {a}", 0o700 | (n % 0o100)),
                13 => format!("setfattr -n user.{} -v {n} {a}", n % 3),
                14 => format!("touch -d @{n} {a}"),
                _ => format!("truncate -s {} {a}", n % 20_000),
            };
            script += "; ";
        }
        script + "true"
    }
}

#[test]
fn random_commands_are_taken_back_and_done_again() {
    let Some(rig) = Rig::new("undo-random") else { return };
    for seed in 0..if common::is_long() { 200 } else { 8 } {
        let mut random = Random(seed);
        let dir = rig.dir(&format!("dir{seed}"), &random.script(40));
        let mut states = vec![tree(&dir)];
        let at = |what: &str| format!("seed {seed} in {}: {what}", dir.display());
        for _ in 0..2 {
            let output = run(&dir, &["--keep-undo", "1G"], &random.script(12));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{}", at(&said));
            states.push(tree(&dir));
        }
        let json = on(&dir, &["log", "--json"]).json();
        let ids: Vec<String> =
            json["undos"].as_array().unwrap().iter().map(|undo| undo["id"].as_str().unwrap().into()).collect();
        if states[1] != states[2] {
            for state in [1, 2, 1] {
                let undone = on(&dir, &["undo"]);
                assert_eq!(undone.code, Some(0), "{}", at(&format!("{}{}", undone.out, undone.err)));
                assert_same(&tree(&dir), &states[state], &at("the second"));
            }
        }
        if states[0] != states[1] {
            let undone = wholly(&["undo", dir.to_str().unwrap(), ids.last().unwrap()]);
            assert_eq!(undone.code, Some(0), "{}", at(&format!("{}{}", undone.out, undone.err)));
            assert_same(&tree(&dir), &states[0], &at("the first"));
        }
        // Killed at any moment: a command that is there can be taken back.
        let before = tree(&dir);
        killed(&mut common::run::as_group(&dir, &["--keep-undo", "1G"], &random.script(12)), &mut random);
        common::wait_until_unused(&dir);
        if traces(&dir).is_empty() {
            assert_same(&tree(&dir), &before, &at("killed before it was a store"));
            continue;
        }
        let recovered = on(&dir, &["recover"]);
        assert!(matches!(recovered.code, Some(0 | 1)), "{}", at(&format!("{}{}", recovered.out, recovered.err)));
        let after = tree(&dir);
        if after != before {
            killed(common::views::command(env!("CARGO_BIN_EXE_wholly")).arg("undo").arg(&dir), &mut random);
            let recovered = on(&dir, &["recover"]);
            assert!(matches!(recovered.code, Some(0 | 1)), "{}", at(&format!("{}{}", recovered.out, recovered.err)));
            let now = tree(&dir);
            assert!(now == before || now == after, "{}", at(&now.difference(&before)));
            if now == after {
                on(&dir, &["undo"]).exits(0);
                assert_same(&tree(&dir), &before, &at("the killed one"));
            }
        }
        recover(&dir);
        succeeds(shell(&dir, "rm -rf ./*").current_dir(&dir));
    }
}
