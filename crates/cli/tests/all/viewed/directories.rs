//! `wholly run` over several directories: what a command changes in all of them happens together, or in none.

use super::common::{self, may_mount, unique, wholly};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Directories beside each other, with the file `a`, on two file systems; removed on drop.
struct Dirs(Vec<PathBuf>);

impl Dirs {
    fn new(count: usize) -> Dirs {
        let name = unique("dirs");
        let parents = [Path::new(env!("CARGO_TARGET_TMPDIR")), Path::new("/dev/shm")];
        let one = |i: usize| {
            let dir = parents[i % 2].join(format!("{name}-{i}"));
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("a"), "old\n").unwrap();
            dir
        };
        Dirs((0..count).map(one).collect())
    }

    fn arguments(&self) -> Vec<&str> {
        self.0.iter().flat_map(|dir| ["--dir", dir.to_str().unwrap()]).collect()
    }

    /// Runs a shell script over all of them, which are its arguments.
    fn run(&self, options: &[&str], script: &str) -> common::Run {
        let dirs: Vec<&str> = self.0.iter().map(|dir| dir.to_str().unwrap()).collect();
        wholly(&[options, &self.arguments(), &["--", "sh", "-c", script, "sh"], &dirs].concat())
    }

    /// Whether each of them is new, and nothing but what it should have is in it.
    fn are_new(&self) -> Vec<bool> {
        self.0.iter().map(|dir| is_new(dir)).collect()
    }
}

impl Dirs {
    /// The same, where the stores are there still.
    fn are_new_but_stores(&self) -> Vec<bool> {
        self.0.iter().map(|dir| std::fs::read_to_string(dir.join("a")).unwrap() == "new\n").collect()
    }
}

impl Drop for Dirs {
    fn drop(&mut self) {
        self.0.iter().for_each(|dir| _ = std::fs::remove_dir_all(dir));
    }
}

/// What a command does in each directory.
const CHANGE: &str = "for dir; do cd $dir; echo new > a; mkdir d; seq 20000 > d/b; done";

/// As how many changes that is told.
const CHANGES: usize = 3;

fn is_new(dir: &Path) -> bool {
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let a = std::fs::read_to_string(dir.join("a")).unwrap();
    match (a.as_str(), names.len()) {
        ("old\n", 1) => false,
        ("new\n", 2) => {
            let b: Vec<u64> =
                std::fs::read_to_string(dir.join("d/b")).unwrap().lines().map(|n| n.parse().unwrap()).collect();
            assert!(b.into_iter().eq(1..=20_000), "{}", dir.display());
            true
        }
        other => panic!("{}: {other:?}, {names:?}", dir.display()),
    }
}

#[test]
fn all_of_them_change_or_none() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(3);
    dirs.run(&["run"], &format!("({CHANGE}); exit 3")).exits(3);
    assert_eq!(dirs.are_new(), [false; 3]);
    let run = dirs.run(&["run", "--verbose"], CHANGE);
    run.exits(0);
    assert!(run.err.contains(&format!("{} changes in ", 3 * CHANGES)), "{}", run.err);
    assert_eq!(dirs.are_new(), [true; 3]);
}

#[test]
fn one_that_changes_alone_commits_alone() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(2);
    dirs.run(&["run"], &format!("shift; {CHANGE}")).exits(0);
    assert_eq!(dirs.are_new(), [false, true]);
    let told = dirs.run(&["--json", "run"], "cd $1; echo new > a; mkdir d; seq 20000 > d/b").json();
    assert_eq!((told["outcome"].as_str(), told["status"].as_u64()), (Some("committed"), Some(0)));
    let changes: Vec<usize> =
        told["dirs"].as_array().unwrap().iter().map(|dir| dir["changes"].as_array().unwrap().len()).collect();
    assert_eq!(changes, [CHANGES, 0]);
    assert_eq!(dirs.are_new(), [true, true]);
}

#[test]
fn each_is_parked_in_its_own_place() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(2);
    let run = dirs.run(&["run", "--park"], CHANGE);
    run.exits(121);
    assert_eq!(run.err.matches("parked as").count(), 2, "{}", run.err);
    for dir in &dirs.0 {
        let place = dir.to_str().unwrap();
        let id = wholly(&["--json", "list", place]).json()["groups"][0]["id"].as_str().unwrap().to_string();
        wholly(&["apply", "--only", place, &id]).exits(0);
    }
    assert_eq!(dirs.are_new(), [true; 2]);
}

#[test]
fn what_is_parked_in_several_is_applied_together() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(2);
    let run = dirs.run(&["run", "--park"], CHANGE);
    let told =
        run.err.lines().find_map(|line| line.split_once("`wholly apply ")?.1.split_once('`')).expect("it is told").0;
    let [one, two] = [0, 1].map(|i| dirs.0[i].to_str().unwrap());
    let [id, other] = [one, two].map(|dir| wholly(&["--json", "list", dir]).json()["groups"][0]["id"].to_string());
    let groups = [one, id.trim_matches('"'), two, other.trim_matches('"')];
    assert_eq!(told, groups[..2].join(" "));
    let apply = |groups: &[&str]| wholly(&[&["apply"], groups].concat());
    // What is in the way in one of them is in the way of both.
    std::fs::write(dirs.0[1].join("a"), "mine\n").unwrap();
    let refused = apply(&groups);
    refused.exits(123);
    assert!(refused.out.contains(&format!("\n  {}/a: its content has been changed", groups[2])), "{}", refused.out);
    assert_eq!(std::fs::read_to_string(dirs.0[0].join("a")).unwrap(), "old\n");
    let json = wholly(&[&["--json", "apply"], &groups[..]].concat());
    json.exits(123);
    let told = format!(r#""applied":false,"groups":[{{"dir":"{}","id":"{}"}}"#, groups[0], groups[1]);
    assert!(
        json.out.contains(&told) && json.out.contains(&format!(r#"[{{"dir":"{}","path":"a""#, groups[2])),
        "{}",
        json.out
    );
    for (wrong, why) in [(&groups[..3], "no group is named"), (&[groups[0], groups[1], groups[2], "x"], "parked group")]
    {
        let refused = apply(wrong);
        refused.exits(8);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    std::fs::write(dirs.0[1].join("a"), "old\n").unwrap();
    apply(&groups).exits(0);
    assert_eq!(dirs.are_new(), [true; 2]);
}

#[test]
fn a_person_decides_for_all_of_them() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(2);
    for (answer, are_new, code) in [("d\n", false, 122), ("v\na\n", true, 0)] {
        let mut child = common::views::command(env!("CARGO_BIN_EXE_wholly"))
            .args(["run", "--review"])
            .args(dirs.arguments())
            .args(["--", "sh", "-c", CHANGE, "sh"])
            .args(&dirs.0)
            .env("WHOLLY_REGISTRY", "")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{err}");
        assert!(err.contains(&format!("{} changes in ", 2 * CHANGES)), "{err}");
        assert!(dirs.0.iter().all(|dir| err.contains(&format!("{}:\n", dir.display()))), "{err}");
        assert_eq!(dirs.are_new(), [are_new; 2], "{answer}: {err}");
    }
}

#[test]
fn what_cannot_be_had_leaves_all_as_they_were() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(2);
    let (first, inner) = (dirs.0[0].to_str().unwrap(), dirs.0[0].join("inner"));
    std::fs::create_dir(&inner).unwrap();
    let inner = inner.to_str().unwrap();
    for wrong in [inner, first, "/dev/shm/there-is-no-such-directory"] {
        let run = wholly(&["run", "--dir", first, "--dir", wrong, "--", "true"]);
        run.exits(125);
        assert!(run.err.contains(wrong), "{}", run.err);
    }
    std::fs::remove_dir(inner).unwrap();
    // The second one is somebody's.
    wholly(&["init", dirs.0[1].to_str().unwrap()]).exits(0);
    let open = wholly::Store::open(&dirs.0[1]).unwrap();
    let run = dirs.run(&["run"], CHANGE);
    run.exits(125);
    assert!(run.err.contains("has the store open"), "{}", run.err);
    drop(open);
    wholly(&["deinit", dirs.0[1].to_str().unwrap()]).exits(0);
    assert_eq!(dirs.are_new(), [false; 2]);
}

/// `wholly` is killed while the command runs, or while it commits: as it comes. Whoever opens the directories next, in
/// whatever order, finds all of them new or none.
#[test]
fn killed_at_any_moment_it_leaves_all_or_nothing() {
    if !may_mount() {
        return;
    }
    let (mut old, mut new) = (0, 0);
    for n in 0..14 {
        let dirs = Dirs::new(3);
        let mut child = common::views::command(env!("CARGO_BIN_EXE_wholly"))
            .arg("run")
            .args(dirs.arguments())
            .args(["--", "sh", "-c", &format!("{CHANGE}; echo done"), "sh"])
            .args(&dirs.0)
            .env("WHOLLY_REGISTRY", "")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        if n % 4 != 0 {
            // The command is through; the commit is to come, or at work.
            let mut said = String::new();
            let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
            std::io::BufRead::read_line(&mut out, &mut said).unwrap();
            assert_eq!(said, "done\n");
            let dots = |folder: &str| dirs.0.iter().any(|dir| has_any(&dir.join(".wholly").join(folder)));
            // A later moment each time; it may have passed.
            let is_there = || match n {
                1 => true,
                2 | 3 => dots("parked"),
                5 | 6 => dots("joint"),
                7 => dirs.0[0].join("d").exists(),
                9 => dirs.0[2].join("d").exists(),
                _ => dirs.0.iter().any(|dir| is_decided(dir)),
            };
            while !is_there() && child.try_wait().unwrap().is_none() {
                std::hint::spin_loop();
            }
        }
        let _ = child.kill();
        child.wait().unwrap();
        let mut order = dirs.0.clone();
        order.rotate_left(n % 3);
        for _ in 0..2 {
            // The first time each settles; the second time the coordinator forgets.
            for dir in order.iter().filter(|dir| dir.join(".wholly").exists()) {
                common::wait_until_unused(dir);
                let run = wholly(&["recover", dir.to_str().unwrap()]);
                assert!(matches!(run.code, Some(0 | 1)), "{}{}", run.out, run.err);
            }
        }
        for dir in order.iter().filter(|dir| dir.join(".wholly").exists()) {
            wholly(&["deinit", dir.to_str().unwrap()]).exits(0);
        }
        // Killed while it took the store away again, it leaves that under another name, which the next command takes
        // away.
        for dir in &dirs.0 {
            wholly(&["run", "--dir", dir.to_str().unwrap(), "--", "true"]).exits(0);
        }
        let are_new = dirs.are_new();
        assert!(are_new.iter().all(|is_new| *is_new == are_new[0]), "kill {n}: {are_new:?}");
        if are_new[0] { new += 1 } else { old += 1 }
    }
    println!("{old} as before, {new} new");
}

/// Another program makes a directory immutable once the command has made a file in it: the file system refuses that
/// file only when everything is written back.
#[test]
fn what_is_refused_in_one_of_them_changes_nothing_in_any() {
    if !may_mount() {
        return;
    }
    for (which, is_permanent) in [(0, false), (1, false), (0, true), (1, true)] {
        let dirs = Dirs::new(2);
        if is_permanent {
            dirs.0.iter().for_each(|dir| wholly(&["init", dir.to_str().unwrap()]).exits(0));
        }
        let kept = dirs.0[which].join("kept");
        std::fs::create_dir(&kept).unwrap();
        let mut child = common::views::command(env!("CARGO_BIN_EXE_wholly"))
            .arg("run")
            .args(dirs.arguments())
            .args(["--", "sh", "-c", &format!("touch {}/new; {CHANGE}; echo done; read line", kept.display()), "sh"])
            .args(&dirs.0)
            .env("WHOLLY_REGISTRY", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        std::io::BufRead::read_line(&mut out, &mut said).unwrap();
        let immutable = common::Flag::immutable(&kept);
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\n").unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        let Some(immutable) = immutable else {
            return common::skipped("chattr +i, which needs root and a file system that has it");
        };
        assert_eq!(output.status.code(), Some(123), "{which}: {err}");
        assert!(err.contains(dirs.0[which].to_str().unwrap()) && err.contains("not permitted"), "{which}: {err}");
        assert_eq!(dirs.are_new_but_stores(), [false; 2], "{which}: {err}");
        assert!(dirs.0.iter().all(|dir| !dir.join("d").exists()), "{which}: {err}");
        assert!(!has_any(&kept), "{which}: {err}");
        drop(immutable);
        for dir in &dirs.0 {
            assert_eq!(dir.join(".wholly").exists(), is_permanent, "{which}: {err}");
            if is_permanent {
                wholly(&["check", dir.to_str().unwrap()]).exits(0);
            }
        }
        dirs.run(&["run"], &format!("touch {}/new; {CHANGE}", kept.display())).exits(0);
        assert_eq!((dirs.are_new_but_stores(), has_any(&kept)), (vec![true; 2], true), "{which}");
    }
}

/// Whether the store in a directory has decided what is committed in all of them.
fn is_decided(dir: &Path) -> bool {
    let mut records = std::fs::read_dir(dir.join(".wholly/joint")).into_iter().flatten().flatten();
    records.any(|entry| entry.file_name().as_encoded_bytes().ends_with(b".decided"))
}

fn has_any(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// Parks changes to two directories, and gives their names.
fn parked(dirs: &Dirs) -> [(&str, String); 2] {
    let run = dirs.run(&["run", "--park", "--json"], CHANGE);
    run.exits(121);
    let told: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let id = |i: usize| told["dirs"][i]["id"].as_str().unwrap().to_owned();
    [0, 1].map(|i| (dirs.0[i].to_str().unwrap(), id(i)))
}

/// The parts of what a run has parked know each other: whichever is named, all are applied or discarded.
#[test]
fn a_part_goes_with_the_others() {
    if !may_mount() {
        return;
    }
    for (verb, first) in [("apply", 0), ("apply", 1), ("discard", 1)] {
        let dirs = Dirs::new(2);
        let [one, two] = parked(&dirs);
        for ((dir, id), (other, other_id)) in [(&one, &two), (&two, &one)] {
            let list = wholly(&["list", dir]);
            assert!(list.out.contains(&format!("together with {other_id} in {other}\n")), "{}", list.out);
            let json = wholly(&["list", "--json", dir]).json();
            let told = &json["groups"][0]["others"][0];
            assert_eq!((told["dir"].as_str(), told["state"].as_str()), (Some(*other), Some("parked")));
            let diff = wholly(&["diff", dir, id]);
            assert!(diff.out.starts_with(&format!("together with {other_id} in {other}\n")), "{}", diff.out);
            assert_eq!(wholly(&["diff", "--json", dir, id]).json()["others"][0]["id"], other_id.as_str());
        }
        let (dir, id) = [&one, &two][first];
        wholly(&[verb, dir, id]).exits(0);
        // The stores were made by the run, and nothing is parked in them any more.
        assert_eq!(dirs.are_new(), [verb == "apply"; 2]);
    }
}

/// A part that is wanted alone is taken alone; the others then say what has become of it, and what can be done.
#[test]
fn a_part_is_taken_alone_only_where_that_is_asked_for() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(2);
    let [one, two] = parked(&dirs);
    let alone = wholly(&["apply", "--only", one.0, &one.1]);
    alone.exits(0);
    assert!(alone.err.contains(&format!("it belongs together with {} in {}", two.1, two.0)), "{}", alone.err);
    assert_eq!(dirs.are_new_but_stores(), [true, false]);
    assert!(wholly(&["list", two.0]).out.contains("which is no longer parked"));
    let refused = wholly(&["apply", two.0, &two.1]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("that one was taken alone") && refused.err.contains("--only"), "{}", refused.err);
    assert_eq!(dirs.are_new_but_stores(), [true, false]);
    wholly(&["apply", "--only", two.0, &two.1]).exits(0);
    assert_eq!(dirs.are_new_but_stores(), [true, true]);
}

/// A part whose store is elsewhere: nothing is applied by halves. It is found again where both were moved together.
#[test]
fn a_part_that_cannot_be_found_is_told() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(3);
    // On one file system, in a directory that can be moved.
    let above = &dirs.0[0];
    let (a, b) = (above.join("x"), above.join("y"));
    for dir in [&a, &b] {
        std::fs::create_dir(dir).unwrap();
    }
    let (one, two) = (a.to_str().unwrap(), b.to_str().unwrap());
    wholly(&[
        "run",
        "--park",
        "--dir",
        one,
        "--dir",
        two,
        "--",
        "sh",
        "-c",
        "for dir; do echo new >$dir/n; done",
        "sh",
        one,
        two,
    ])
    .exits(121);
    let away = above.join("z");
    std::fs::rename(&b, &away).unwrap();
    assert!(wholly(&["list", one]).out.contains("which cannot be found"));
    for verb in ["apply", "discard"] {
        let refused = wholly(&[verb, one, "1-1"]);
        assert_ne!(refused.code, Some(0));
        assert!(refused.err.contains("its store cannot be found") && refused.err.contains("--only"), "{}", refused.err);
    }
    std::fs::rename(&away, &b).unwrap();
    let moved = dirs.0[2].join("moved");
    std::fs::rename(above, &moved).unwrap();
    std::fs::create_dir(above).unwrap();
    wholly(&["apply", moved.join("x").to_str().unwrap(), "1-1"]).exits(0);
    assert!(["x/n", "y/n"].iter().all(|name| moved.join(name).exists()));
}

/// What others have changed in several directories is replaced in all of them, and comes back by the redo.
#[test]
fn what_others_have_changed_is_replaced_in_all() {
    if !may_mount() {
        return;
    }
    let dirs = Dirs::new(2);
    dirs.run(&["run", "--keep-undo", "1G"], CHANGE).exits(0);
    dirs.0.iter().for_each(|dir| std::fs::write(dir.join("a"), "mine\n").unwrap());
    let undo = |options: &[&str]| wholly(&[&["undo", dirs.0[0].to_str().unwrap()], options].concat());
    undo(&[]).exits(123);
    undo(&["--over-changes"]).exits(0);
    let reads = |text: &str| dirs.0.iter().all(|dir| std::fs::read_to_string(dir.join("a")).unwrap() == text);
    assert!(reads("old\n") && dirs.0.iter().all(|dir| !dir.join("d").exists()));
    undo(&[]).exits(0);
    assert!(reads("mine\n") && dirs.0.iter().all(|dir| dir.join("d/b").exists()));
}
