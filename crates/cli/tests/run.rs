//! `wholly run`: a command is one group. Real programs, each of which succeeds, fails, and is killed, compared with the same command in an
//! ordinary directory.

mod common;

use common::{may_mount, wait_until_unused, wholly};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// What runs in a directory after `before` has made something there.
struct Program {
    name: &'static str,
    before: &'static str,
    script: &'static str,
    /// Whether two runs of it leave the same bytes.
    is_exact: bool,
}

const PROGRAMS: &[Program] = &[
    Program {
        name: "git",
        before: "git init -q -b main there; cd there; seq 1000 > file; git add .; git commit -q -m first",
        script: "git clone -q there repo && cd repo && seq 2000 > file && git commit -q -a -m second && \
                 git checkout -q -b other HEAD~ && echo other > other && git add . && git commit -q -m third && \
                 git rebase -q main && git gc -q",
        is_exact: false,
    },
    Program {
        name: "tar",
        before: "mkdir tree; for i in $(seq 200); do seq $i > tree/$i; done; tar cf tree.tar tree; rm -r tree",
        script: "tar xf tree.tar && rm tree.tar",
        is_exact: true,
    },
    Program {
        name: "sed",
        before: "mkdir -p a/b; for i in $(seq 100); do seq 1000 > a/b/$i; done; chmod 640 a/b/7",
        script: "find a -type f | xargs sed -i s/9/nine/",
        is_exact: true,
    },
    Program {
        name: "make",
        before: "for i in 1 2 3 4 5 6; do echo \"int f$i(void) { return $i; }\" > f$i.c; done; \
                 echo 'int f1(void); int main(void) { return f1() - 1; }' > main.c; \
                 printf 'all: main\\nmain: main.o f1.o f2.o f3.o f4.o f5.o f6.o\\n\\t$(CC) -o $@ $^\\n' > Makefile",
        script: "make -s -j2 CC=gcc && ./main && rm main && make -s -j2 CC='gcc -static' && ./main",
        is_exact: true,
    },
    Program {
        name: "python",
        before: "seq 10 > plain",
        script: "python3 -c \"
import sqlite3
db = sqlite3.connect('db')
db.execute('create table t (a integer)')
db.executemany('insert into t values (?)', ((i,) for i in range(5000)))
db.commit()
db.execute('pragma journal_mode=wal')
db.execute('delete from t where a % 2')
db.commit()
db.close()
open('plain', 'a').write('more')
open('other', 'w').write('new')
\"",
        is_exact: false,
    },
    Program {
        name: "vim",
        before: "seq 100 > one; seq 100 > two",
        script: "vim.tiny -u NONE -es -c 'e one' -c '%s/1/one/g' -c 'w' -c 'e two' -c '%s/2/two/g' -c 'w' -c 'qa!'",
        is_exact: true,
    },
    Program {
        name: "shell",
        before: "seq 5000 > numbers",
        script: "(sleep 0.01; echo late > background) & sort -r numbers | tee sorted | wc -l > count; \
                 ln -s sorted link; mkfifo fifo; ln count count2; umask 077; echo secret > secret; wait; \
                 mv numbers renamed; : > numbers; truncate -s 100000 sparse",
        is_exact: true,
    },
    Program {
        name: "rsync",
        before: "mkdir from to; for i in $(seq 100); do seq $i > from/$i; seq $i > to/x$i; done; seq 50 > to/50",
        script: "rsync -a --delete from/ to/",
        is_exact: true,
    },
    Program {
        name: "cp",
        before: "mkdir -p from/dir; seq 10 > from/dir/file; ln from/dir/file from/linked; ln -s dir from/link; mkfifo from/fifo; \
                 chmod 4755 from/dir/file; chmod 2770 from/dir; touch -d 2001-02-03 from/dir/file from/dir; \
                 python3 -c \"import os; os.setxattr('from/dir/file', 'user.color', b'red')\"",
        script: "cp -a from to && rm -r from",
        is_exact: true,
    },
];

/// What a directory holds: of each path its kind and mode, its content or target, its links, and its extended attributes.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>, u64, Vec<u8>)>;

fn tree(dir: &Path) -> Tree {
    let mut all = Tree::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let stat = std::fs::symlink_metadata(&path).unwrap();
            let kind = stat.file_type();
            let content = match () {
                () if kind.is_file() => std::fs::read(&path).unwrap(),
                () if kind.is_symlink() => std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                () => Vec::new(),
            };
            let links = if kind.is_dir() { 0 } else { stat.nlink() };
            let mut xattr = vec![0; 64];
            let length = if kind.is_fifo() || kind.is_symlink() {
                0
            } else {
                rustix::fs::lgetxattr(&path, "user.color", &mut xattr[..]).unwrap_or(0)
            };
            xattr.truncate(length);
            if kind.is_dir() {
                todo.push(path.clone());
            }
            all.insert(path.strip_prefix(dir).unwrap().into(), (stat.mode(), content, links, xattr));
        }
    }
    all
}

/// Directories, removed on drop.
struct Rig(PathBuf);

impl Rig {
    /// `None` where it cannot be run, which under `CI=true` is a failure.
    fn new(name: &str) -> Option<Rig> {
        if !may_mount() {
            return None;
        }
        let dir = std::env::temp_dir().join(format!("wholly-cli-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Some(Rig(dir))
    }

    /// A new directory in which `script` has run.
    fn dir(&self, name: &str, script: &str) -> PathBuf {
        let dir = self.0.join(name);
        std::fs::create_dir(&dir).unwrap();
        let output = shell(&dir, script).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        dir
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn with_identity(command: &mut Command) -> &mut Command {
    // So that git commits, and the same at all times.
    let names = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    command.envs(names.map(|name| (name, "somebody"))).env("HOME", "/nowhere").stdin(Stdio::null())
}

fn shell(dir: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    with_identity(command.args(["-c", script]).current_dir(dir));
    command
}

/// A script as one group.
fn as_group(dir: &Path, options: &[&str], script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wholly"));
    with_identity(command.arg("run").args(options).args(["--", "sh", "-c", script]).current_dir(dir));
    command
}

fn run(dir: &Path, options: &[&str], script: &str) -> Output {
    as_group(dir, options, script).output().unwrap()
}

fn has_store(dir: &Path) -> bool {
    dir.join(".wholly").exists()
}

/// Puts right what a killed run has left, as the next run does.
fn recover(dir: &Path) {
    let output = run(dir, &[], "true");
    assert!(output.status.success(), "{output:?}");
    if has_store(dir) {
        // It was there already, with what had been committed in it.
        wholly(&["deinit", dir.to_str().unwrap()]).exits(0);
    }
}

fn compare(name: &str, is: &Tree, wanted: &Tree) {
    let differs = |path: &&PathBuf| is.get(*path) != wanted.get(*path);
    let all: Vec<_> = is.keys().chain(wanted.keys()).filter(differs).collect();
    assert!(all.is_empty(), "{name}: {all:?}");
}

#[test]
fn real_programs_happen_wholly_or_not_at_all() {
    let Some(rig) = Rig::new("programs") else { return };
    for program in PROGRAMS {
        let name = program.name;
        let plain = rig.dir(&format!("{name}-plain"), program.before);
        let output = shell(&plain, program.script).output().unwrap();
        assert!(output.status.success(), "{name} by itself: {output:?}");
        let wanted = tree(&plain);

        let dir = rig.dir(name, program.before);
        let before = tree(&dir);
        let output = run(&dir, &[], &format!("{} && exit 7", program.script));
        assert_eq!(output.status.code(), Some(7), "{name}: {output:?}");
        compare(&format!("{name}, failed"), &tree(&dir), &before);

        let output = run(&dir, &[], program.script);
        assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
        let now = tree(&dir);
        match program.is_exact {
            true => compare(name, &now, &wanted),
            false => assert_eq!(names(&now, name), names(&wanted, name), "{name}"),
        }
        if name == "git" {
            let fsck = shell(&dir.join("repo"), "git fsck --strict && git status --porcelain").output().unwrap();
            assert!(fsck.status.success() && fsck.stdout.is_empty(), "{fsck:?}");
        }
        if name == "python" {
            let sum =
                "import sqlite3; print(sqlite3.connect('db').execute('select count(*), sum(a) from t').fetchone())";
            let output = shell(&dir, &format!("python3 -c \"{sum}\"; cat plain other")).output().unwrap();
            assert!(String::from_utf8_lossy(&output.stdout).starts_with("(2500, 6247500)\n1\n2\n"), "{output:?}");
        }
    }
}

/// The names that do not differ from run to run.
fn names(tree: &Tree, program: &str) -> Vec<PathBuf> {
    let is_stable = |path: &&PathBuf| program != "git" || !path.starts_with("repo/.git/objects");
    tree.keys().filter(is_stable).cloned().collect()
}

/// The command, the process that serves it, or both die at any moment: what is left, once it is recovered, is old or new.
#[test]
fn killed_commands_leave_all_or_nothing() {
    let Some(rig) = Rig::new("killed") else { return };
    let programs: Vec<&Program> =
        PROGRAMS.iter().filter(|program| program.is_exact && program.name != "make").collect();
    let rounds = if std::env::var_os("WHOLLY_LONG").is_some() { 20 } else { 2 };
    let (mut old, mut new) = (0, 0);
    for (i, program) in programs.iter().enumerate() {
        let name = program.name;
        let plain = rig.dir(&format!("{name}-plain"), program.before);
        assert!(shell(&plain, program.script).status().unwrap().success());
        let wanted = tree(&plain);
        for round in 0..rounds {
            let dir = rig.dir(&format!("{name}-{round}"), program.before);
            let before = tree(&dir);
            let mut command = Command::new("setsid");
            let script = format!("{}; sleep 0.02", program.script);
            let (me, place) = (env!("CARGO_BIN_EXE_wholly"), dir.to_str().unwrap());
            command.args(["-w", me, "run", "--dir", place, "--", "sh", "-c", &script]).current_dir(&dir);
            let mut child = with_identity(&mut command).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(3 + 17 * ((i + round * 5) as u64 % 12)));
            let signal = if round % 2 == 0 { "-KILL" } else { "-TERM" };
            let _ = Command::new("pkill").args([signal, "-f", &format!("^{me} run --dir {place} ")]).status();
            let _ = child.wait();
            wait_until_unused(&dir);
            recover(&dir);
            let now = tree(&dir);
            if now == before {
                old += 1;
            } else {
                compare(&format!("{name}, killed in round {round}"), &now, &wanted);
                new += 1;
            }
        }
    }
    println!("{old} runs left what was before, {new} what was to be");
}

#[test]
fn the_exit_code_is_the_commands() {
    let Some(rig) = Rig::new("codes") else { return };
    let dir = rig.dir("dir", "echo text > file");
    assert_eq!(run(&dir, &[], "exit 0").status.code(), Some(0));
    assert_eq!(run(&dir, &[], "exit 42").status.code(), Some(42));
    assert_eq!(run(&dir, &[], "kill -KILL $$").status.code(), Some(137));
    let of = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wholly"));
        command.arg("run").args(words).current_dir(&dir).output().unwrap()
    };
    assert_eq!(of(&["--", "no-such-command"]).status.code(), Some(127));
    assert_eq!(of(&["--", "./file"]).status.code(), Some(126));
    assert_eq!(of(&["--dir", "/nowhere", "--", "true"]).status.code(), Some(125));
    assert_eq!(of(&[]).status.code(), Some(125));
    assert!(!has_store(&dir), "nothing is left over");
}

#[test]
fn everybody_else_sees_the_old_state_until_the_end() {
    let Some(rig) = Rig::new("others") else { return };
    let dir = rig.dir("dir", "echo old > file");
    let mut child = as_group(&dir, &[], "echo new > file; mkdir made; echo ready; read line")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"old\n");
    assert!(!dir.join("made").exists());
    // Somebody else's group has to wait.
    assert_eq!(run(&dir, &[], "true").status.code(), Some(125));
    drop(child.stdin.take());
    // A `read` that finds nothing fails, and so does the command.
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"old\n");
}

#[test]
fn what_it_leaves_running_is_ended() {
    let Some(rig) = Rig::new("left") else { return };
    let dir = rig.dir("dir", "");
    let script = "setsid sh -c 'echo $$ > pid; echo started > file; sleep 1000; echo late > file' & \
                  while ! [ -s file ]; do sleep 0.01; done";
    assert!(run(&dir, &[], script).status.success());
    let pid = std::fs::read_to_string(dir.join("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "it has been ended");
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"started\n");
}

/// What the command mounts in its namespace goes with it, and its work stays.
#[test]
fn what_it_mounts_is_gone() {
    let Some(rig) = Rig::new("mounts") else { return };
    let dir = rig.dir("dir", "mkdir inside outside; echo old > file");
    let outside = rig.dir("outside", "");
    let script = format!(
        "echo new > file && mount -t tmpfs none inside && echo lost > inside/file && mount --bind . {}",
        outside.display()
    );
    let output = run(&dir, &[], &script);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"new\n");
    assert!(!dir.join("inside/file").exists() && !outside.join("file").exists() && !has_store(&dir));
}

#[test]
fn directories_that_cannot_be_covered_are_refused() {
    let Some(rig) = Rig::new("refused") else { return };
    let dir = rig.dir("dir", "mkdir inside");
    let of = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wholly"));
        command.arg("run").args(words).current_dir(&dir).output().unwrap()
    };
    let root = of(&["--dir", "/", "--", "true"]);
    assert_eq!(root.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&root.stderr).contains("root directory"), "{root:?}");
    // A namespace, so that the mount is nobody else's.
    let script = format!("mount -t tmpfs none inside && exec {} run -- true", env!("CARGO_BIN_EXE_wholly"));
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).current_dir(&dir).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is mounted in it"), "{output:?}");
    // What somebody else has written to `.wholly` is not done with our rights.
    let foreign = rig.dir("foreign", "");
    wholly(&["init", foreign.to_str().unwrap()]).exits(0);
    std::os::unix::fs::chown(foreign.join(".wholly"), Some(12345), None).unwrap();
    let output = of(&["--dir", foreign.to_str().unwrap(), "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("belongs to user 12345"), "{output:?}");
}

/// A signal that comes from anybody ends it as if the command had failed, whatever that makes of it; one that is ignored is.
#[test]
fn signals() {
    let Some(rig) = Rig::new("signals") else { return };
    // The command is told when its group is lost already, and claims success.
    let told = "trap 'exit 0' HUP; echo new > file; kill -HUP $PPID; while :; do sleep 0.01; done";
    let dir = rig.dir("told", "echo old > file");
    assert_eq!(run(&dir, &[], told).status.code(), Some(129));
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"old\n");
    assert!(!has_store(&dir));

    let dir = rig.dir("ignored", "echo old > file");
    let script = "trap '' HUP; exec \"$0\" run -- sh -c 'echo new > file; kill -HUP $PPID'";
    let mut command = Command::new("sh");
    let output = command.args(["-c", script, env!("CARGO_BIN_EXE_wholly")]).current_dir(&dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"new\n");
}

#[test]
fn it_is_parked_and_applied_later() {
    let Some(rig) = Rig::new("parked") else { return };
    let dir = rig.dir("dir", "echo old > file; echo gone > other");
    let place = dir.to_str().unwrap();
    let output = run(&dir, &["--park"], "echo new > file; rm other; mkdir made");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"old\n");
    assert!(has_store(&dir));
    let parked = wholly(&["--json", "list", place]).json();
    let id = parked["groups"][0]["id"].as_str().unwrap().to_owned();
    assert!(wholly(&["diff", place, &id]).out.contains("-old\n+new\n"));
    wholly(&["apply", place, &id]).exits(0);
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"new\n");
    assert!(dir.join("made").is_dir() && !dir.join("other").exists());
}

#[test]
fn a_person_decides() {
    let Some(rig) = Rig::new("review") else { return };
    for (answers, outcome) in [("v\na\n", "new\n"), ("x\nd\n", "old\n"), ("p\n", "old\n"), ("", "old\n")] {
        let dir = rig.dir(&format!("dir-{}", answers.trim().replace('\n', "-")), "echo old > file");
        let mut child = as_group(&dir, &["--review"], "echo new > file </dev/null")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), answers.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.contains("changed   file"), "{said}");
        assert_eq!(said.contains("-old\n+new\n"), answers.starts_with('v'), "{said}");
        assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), outcome, "{answers:?}: {said}");
        assert_eq!(has_store(&dir), answers == "p\n" || answers.is_empty(), "where nobody answers it is parked");
    }
}
