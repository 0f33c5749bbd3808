//! What a review tells of what is new, changed or gone, beside what is there before and after.

use super::common::run::{Rig, run, shell, succeeds};
use super::common::{Run, wholly};
use serde_json::Value;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

fn on(dir: &Path, words: &[&str]) -> Run {
    wholly(&[&words[..1], &[dir.to_str().unwrap()], &words[1..]].concat())
}

const BEFORE: &str = "echo old > changed; ln -s changed gone; mkfifo p; mkdir -p many; cd many; touch $(seq 30)";

const CHANGE: &str = "cp /bin/true setuid; chmod 4755 setuid; cp /bin/true setgid; chmod 2755 setgid
: > open; chmod 666 open; mkdir -m 777 open-d; mkdir -m 1777 sticky
ln -s /etc/shadow out; ln -s ../../etc up; ln -s setuid in; mkdir d; ln -s ../setuid d/in; ln -s \"$PWD/setuid\" d/abs
mknod block b 8 0; mknod char c 1 3; mkfifo fifo; cp /bin/true able
setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 able
: > theirs; chown 1234:1235 theirs; : > plain; chmod 644 plain
chmod 4644 changed; rm gone p; rm -r many
mkdir -p new/sub; for n in $(seq 30); do echo $n > new/$n; done; : > new/sub/x; cp /bin/true new/s; chmod 4755 new/s";

/// The marks of what has any.
const MARKS: &[(&str, &[&str])] = &[
    ("able", &["capabilities"]),
    ("block", &["device"]),
    ("changed", &["set-user-ID"]),
    ("char", &["device"]),
    ("new/s", &["set-user-ID"]),
    ("open", &["world-writable"]),
    ("open-d", &["world-writable"]),
    ("out", &["leads outside"]),
    ("setgid", &["set-group-ID"]),
    ("setuid", &["set-user-ID"]),
    ("theirs", &["another's"]),
    ("up", &["leads outside"]),
];

fn compare(dir: &Path, state: &Value, path: &str) {
    let stat = dir.join(path).symlink_metadata().unwrap();
    let kind = stat.file_type();
    let kind = match () {
        () if kind.is_file() => "file",
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "link",
        () if kind.is_fifo() => "fifo",
        () if kind.is_block_device() => "block device",
        () => "character device",
    };
    let number = |name: &str| state[name].as_u64().unwrap();
    assert_eq!(state["kind"], kind, "{path}");
    assert_eq!(number("mode"), u64::from(stat.mode() & 0o7777), "{path}");
    assert_eq!((number("uid"), number("gid")), (stat.uid().into(), stat.gid().into()), "{path}");
    if kind == "file" {
        assert_eq!(number("size"), stat.len(), "{path}");
    }
    if kind.ends_with("device") {
        let device = [stat.rdev() >> 8, stat.rdev() & 0xff];
        assert_eq!(state["device"], serde_json::json!(device), "{path}");
    }
    if kind == "link" {
        assert_eq!(state["target"].as_str(), std::fs::read_link(dir.join(path)).unwrap().to_str(), "{path}");
    }
}

#[test]
fn everything_that_is_new_is_told_as_it_is() {
    let Some(rig) = Rig::new("reviewed") else { return };
    let dir = rig.dir("dir", BEFORE);
    assert_eq!(run(&dir, &["--park"], CHANGE).status.code(), Some(121));
    let json = on(&dir, &["diff", "--json"]).json();
    let changes = json["changes"].as_array().unwrap();
    let marks = |change: &Value| {
        change["marks"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let marked: Vec<(String, Vec<String>)> = changes
        .iter()
        .map(|change| (change["path"].as_str().unwrap().to_owned(), marks(change)))
        .filter(|(_, marks)| !marks.is_empty())
        .collect();
    let expected: Vec<(String, Vec<String>)> = MARKS
        .iter()
        .map(|(path, marks)| ((*path).to_owned(), marks.iter().map(|mark| (*mark).to_owned()).collect()))
        .collect();
    assert_eq!(marked, expected);
    for change in changes.iter().filter(|change| !change["before"].is_null()) {
        compare(&dir, &change["before"], change["path"].as_str().unwrap());
    }
    let text = on(&dir, &["diff", "--names-only"]).out;
    for line in [
        "mode 4755, set-user-ID)",
        "created   out -> /etc/shadow  (link, leads outside)\n",
        "created   block  (block device 8:0)\n",
        "created   theirs  (0 B, owner 1234:1235)\n",
        "created   plain  (0 B)\n",
        "removed   gone -> changed  (link)\n",
        "(directory; in it 31 files of 81 B, 1 directory; --all shows them)\n",
        "created   new/s  (",
        "set-user-ID)\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(!text.contains("new/17"), "{text}");
    let all = on(&dir, &["diff", "--names-only", "--all"]).out;
    assert!(all.contains("created   new/17  (3 B)\n") && all.contains("removed   many/30  (0 B)\n"), "{all}");
    // What was told is what comes.
    wholly(&["apply", dir.to_str().unwrap(), "--keep-undo", "1G"]).exits(0);
    for change in changes.iter().filter(|change| !change["after"].is_null()) {
        compare(&dir, &change["after"], change["path"].as_str().unwrap());
    }
    // So is what an undo would do.
    let json = on(&dir, &["undo", "-n", "--json"]).json();
    let changes = json["dirs"][0]["changes"].as_array().unwrap();
    for change in changes.iter().filter(|change| !change["before"].is_null()) {
        compare(&dir, &change["before"], change["path"].as_str().unwrap());
    }
    let undo = on(&dir, &["undo", "-n"]).out;
    assert!(undo.contains("created   gone -> changed  (link)\n") && undo.contains("in it 30 files"), "{undo}");
}

/// Paths and exceptions, for a look and for an apply.
#[test]
fn a_part_can_be_looked_at_and_applied() {
    let Some(rig) = Rig::new("parts") else { return };
    let dir = rig.dir("dir", "");
    let change =
        "mkdir a b; echo 1 > a/x; echo 2 > a/y; echo 3 > b/z; mkdir -p g/.git; echo 4 > g/.git/config; echo 5 > g/f";
    assert_eq!(run(&dir, &["--park"], change).status.code(), Some(121));
    let names = |words: &[&str]| {
        let out = on(&dir, &[&["diff", "--names-only"], words].concat()).out;
        out.lines().filter_map(|line| line.split_whitespace().nth(1).map(str::to_owned)).collect::<Vec<_>>()
    };
    let id = on(&dir, &["stat", "--json"]).json()["parked"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(names(&[&id, "--", "a"]), ["a", "a/x", "a/y"]);
    assert_eq!(names(&[&id, "--exclude", "g", "--exclude", "a/y"]), ["a", "a/x", "b", "b/z"]);
    // A patch is one that git takes.
    let patch = on(&dir, &["diff", "--patch"]);
    assert!(patch.err.contains("g/.git/config") && !patch.out.contains(".git/"), "{}{}", patch.out, patch.err);
    let copy = rig.dir("copy", "git init -q .");
    std::fs::write(copy.join("../patch"), &patch.out).unwrap();
    succeeds(&mut shell(&copy, "git apply ../patch && test -e g/f"));
    wholly(&["apply", dir.to_str().unwrap(), &id, "--exclude", "a/y", "--exclude", "g", "--exclude", "b"]).exits(0);
    assert!(
        dir.join("a/x").exists() && !dir.join("a/y").exists() && !dir.join("b").exists() && !dir.join("g").exists()
    );
    assert_eq!(names(&[&id]), ["a/y", "b", "b/z", "g", "g/.git", "g/.git/config", "g/f"]);
    wholly(&["apply", dir.to_str().unwrap(), &id]).exits(0);
    assert!(dir.join("a/y").exists() && dir.join("b/z").exists() && dir.join("g/f").exists());
}

#[test]
fn what_is_not_covered_is_said() {
    let Some(rig) = Rig::new("uncovered") else { return };
    let dir =
        rig.dir("dir", "git init -q main; cd main; git commit -q --allow-empty -m one; git worktree add -q ../tree");
    let run = |at: &Path, options: &[&str]| {
        let mut command = super::common::views::command(env!("CARGO_BIN_EXE_wholly"));
        command.arg("run").args(options).args(["--", "true"]).env("WHOLLY_KEEP_UNDO", "no").current_dir(at);
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    assert_eq!(run(&dir, &[]), "");
    assert!(run(&dir.join("tree"), &[]).contains("is a working tree of"));
    assert!(run(&dir, &["--dir", "main"]).contains("what it changes there is not covered"));
    assert_eq!(run(&dir.join("main"), &[]), "");
}
