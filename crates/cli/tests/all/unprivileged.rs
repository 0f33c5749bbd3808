//! `wholly run` for ordinary users. Where the tests run as the superuser, they become one: user and group 1000, and two
//! groups more.

mod calls;

use super::common::unique;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};

/// The user as which they run, where they may choose.
const USER: u32 = 1000;

/// A tmpfs of which only the process knows has a device that everybody may open, or nobody (`$1`, a mode); then the
/// rest of the words runs as the user.
const BECOME: &str = "mount -t tmpfs none \"$0\" && mknod -m $1 \"$0/fuse\" c 10 229 && chmod $1 \"$0/fuse\" && \
                      mount --bind \"$0/fuse\" /dev/fuse && umount -l \"$0\" && shift && \
                      exec setpriv --reuid 1000 --regid 1000 --groups 1000,27,4 \"$@\"";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Directories and a copy of the binary that an ordinary user reaches, removed on drop.
struct Rig(PathBuf);

impl Rig {
    /// `None` where it cannot be run, which under `CI=true` is a failure.
    fn new(name: &str) -> Option<Rig> {
        let dir = std::env::temp_dir().join(unique(name));
        std::fs::create_dir_all(dir.join("mnt")).unwrap();
        let rig = Rig(dir);
        std::fs::set_permissions(&rig.0, PermissionsExt::from_mode(0o755)).unwrap();
        let binary = env!("CARGO_BIN_EXE_wholly");
        if std::fs::hard_link(binary, rig.binary()).is_err() {
            // Not by this process: see `furnish` of `common/root.rs`.
            assert!(Command::new("cp").arg(binary).arg(rig.binary()).status().unwrap().success());
        }
        let dir = rig.dir("trial", "");
        let trial = rig.run(&dir, &[], "true");
        if !trial.status.success() {
            let why = String::from_utf8_lossy(&trial.stderr).into_owned();
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{why}");
            println!("skipped: {why}");
            return None;
        }
        Some(rig)
    }

    fn binary(&self) -> PathBuf {
        self.0.join("wholly")
    }

    /// A new directory of the user's in which `script` has run, as him.
    fn dir(&self, name: &str, script: &str) -> PathBuf {
        let dir = self.0.join(name);
        std::fs::create_dir(&dir).unwrap();
        if is_root() {
            chown(&dir, Some(USER), Some(USER)).unwrap();
        }
        let output = self.as_user(&dir, &["sh", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        dir
    }

    /// A program that the user runs. It is the process itself that is started, whatever that has been before.
    fn as_user(&self, dir: &Path, words: &[&str]) -> Command {
        self.with_device("0666", dir, words)
    }

    fn with_device(&self, mode: &str, dir: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(if is_root() { "unshare" } else { words[0] });
        match is_root() {
            true => command.args(["-m", "sh", "-c", BECOME]).arg(self.0.join("mnt")).arg(mode).args(words),
            false => command.args(&words[1..]),
        };
        // What only the superuser finds is not in his way.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        command.current_dir(dir).env("HOME", "/nowhere").env("WHOLLY_REGISTRY", "").stdin(Stdio::null());
        command.env("WHOLLY_KEEP_UNDO", "no");
        command
    }

    fn wholly(&self, dir: &Path, words: &[&str]) -> Output {
        let binary = self.binary();
        self.as_user(dir, &[&[binary.to_str().unwrap()], words].concat()).output().unwrap()
    }

    fn group(&self, dir: &Path, options: &[&str], script: &str) -> Command {
        let binary = self.binary();
        let words = [&[binary.to_str().unwrap(), "run"], options, &["--", "sh", "-c", script]].concat();
        self.as_user(dir, &words)
    }

    fn run(&self, dir: &Path, options: &[&str], script: &str) -> Output {
        self.group(dir, options, script).output().unwrap()
    }

    /// Puts right what a killed run has left, as the next run does.
    fn recover(&self, dir: &Path) {
        wait_for(|| !self.is_used(dir));
        let output = self.run(dir, &[], "true");
        assert!(output.status.success(), "{output:?}");
        if dir.join(".wholly").exists() {
            let output = self.wholly(dir, &["deinit", "."]);
            assert!(output.status.success(), "{output:?}");
        }
    }

    fn is_used(&self, dir: &Path) -> bool {
        dir.join(".wholly").exists()
            && !String::from_utf8_lossy(&self.wholly(dir, &["stat", "."]).stdout).contains("in use by    no process")
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until something holds. Who waits for ever has found what does not end.
fn wait_for(holds: impl Fn() -> bool) {
    while !holds() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// A command that has said who it is and who holds it, and waits for a line before it goes on.
struct Waiting {
    wholly: Child,
    stdin: ChildStdin,
    command: i32,
    holder: i32,
}

impl Waiting {
    fn start(rig: &Rig, dir: &Path, before: &str, after: &str) -> Waiting {
        let script = format!("{before}; echo $$ $PPID; read line; {after}");
        let mut command = rig.group(dir, &[], &script);
        let mut wholly = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(wholly.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pids: Vec<i32> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let stdin = wholly.stdin.take().unwrap();
        Waiting { wholly, stdin, command: pids[0], holder: pids[1] }
    }

    fn go_on(&mut self) {
        // It may be dead by now.
        let _ = self.stdin.write_all(b"go\n");
    }

    fn kill(pid: i32, signal: rustix::process::Signal) {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
    }

    /// Waits until all three processes are gone.
    fn end(mut self) -> Option<i32> {
        let status = self.wholly.wait().unwrap();
        for pid in [self.command, self.holder] {
            wait_for(|| !Path::new("/proc").join(pid.to_string()).exists());
        }
        status.code()
    }
}

const KILL: rustix::process::Signal = rustix::process::Signal::KILL;

#[test]
fn a_command_is_one_group_and_has_no_rights_but_its_users() {
    let Some(rig) = Rig::new("group") else { return };
    let dir = rig.dir("dir", "echo old > file; echo gone > other");
    let script = "echo new > file; rm other; mkdir -p made/deep; ln file made/link; grep -E '^(Cap|NoNewPrivs)' /proc/self/status; id -u; id -g";
    let failed = rig.run(&dir, &[], &format!("{script}; exit 7"));
    assert_eq!(failed.status.code(), Some(7), "{failed:?}");
    assert_eq!((read(dir.join("file")), read(dir.join("other"))), ("old\n".into(), "gone\n".into()));
    assert!(!dir.join("made").exists() && !dir.join(".wholly").exists());

    let output = rig.run(&dir, &[], script);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!((read(dir.join("file")), read(dir.join("made/link"))), ("new\n".into(), "new\n".into()));
    assert!(!dir.join("other").exists() && !dir.join(".wholly").exists());
    let said = text(&output);
    for sets in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(said.contains(&format!("{sets}:\t0000000000000000\n")), "{said}");
    }
    assert!(said.contains("NoNewPrivs:\t1\n"), "{said}");
    let owner = std::fs::metadata(dir.join("made/deep")).unwrap();
    assert!(said.ends_with(&format!("{}\n{}\n", owner.uid(), owner.gid())), "{said}");
}

/// Whichever of the three processes dies, the others end, and nothing has changed.
#[test]
fn who_is_killed_leaves_what_was_before() {
    let Some(rig) = Rig::new("killed") else { return };
    for victim in ["command", "holder", "wholly", "all"] {
        let dir = rig.dir(&format!("dir-{victim}"), "echo old > file");
        let waiting = Waiting::start(&rig, &dir, "echo new > file; mkdir made; (sleep 1000 &)", "true");
        let wholly = waiting.wholly.id() as i32;
        let victims = match victim {
            "command" => vec![waiting.command],
            "holder" => vec![waiting.holder],
            "wholly" => vec![wholly],
            _ => vec![waiting.command, wholly, waiting.holder],
        };
        victims.into_iter().for_each(|pid| Waiting::kill(pid, KILL));
        let code = waiting.end();
        let wanted = if ["command", "holder"].contains(&victim) { Some(137) } else { None };
        assert_eq!(code, wanted, "{victim}");
        rig.recover(&dir);
        assert_eq!(read(dir.join("file")), "old\n", "{victim}");
        assert!(!dir.join("made").exists() && !dir.join(".wholly").exists(), "{victim}");
    }
}

/// Killed at any moment of the end, it leaves the old or the new.
#[test]
fn who_is_killed_while_it_commits_leaves_all_or_nothing() {
    let Some(rig) = Rig::new("commit") else { return };
    let (mut old, mut new) = (0, 0);
    for round in 0..12 {
        let dir = rig.dir(&format!("{round}"), "echo old > file; echo gone > other");
        let before = "echo new > file; rm other; for i in 1 2 3 4 5 6 7 8 9; do echo $i > $i; done";
        let mut waiting = Waiting::start(&rig, &dir, before, "exit 0");
        waiting.go_on();
        let command = waiting.command;
        // What comes first, and how long it takes, differs: the verdict does not hang on it.
        wait_for(|| round % 3 == 0 || !Path::new("/proc").join(command.to_string()).exists());
        std::thread::sleep(std::time::Duration::from_micros(1500 * round));
        Waiting::kill(waiting.wholly.id() as i32, KILL);
        waiting.end();
        rig.recover(&dir);
        assert!(!dir.join(".wholly").exists());
        if read(dir.join("file")) == "old\n" {
            old += 1;
            assert!(dir.join("other").exists() && !dir.join("9").exists());
        } else {
            new += 1;
            assert!(!dir.join("other").exists());
            (1..=9).for_each(|i| assert_eq!(read(dir.join(i.to_string())), format!("{i}\n")));
        }
    }
    println!("{old} runs left what was before, {new} what was to be");
}

/// Who takes the mount away waits for the server, which does not answer, and then never will.
#[test]
fn who_is_killed_while_the_mount_is_taken_away_ends() {
    let Some(rig) = Rig::new("away") else { return };
    let dir = rig.dir("dir", "echo old > file");
    let mut waiting = Waiting::start(&rig, &dir, "echo new > file", "exit 0");
    let wholly = waiting.wholly.id() as i32;
    Waiting::kill(wholly, rustix::process::Signal::STOP);
    // Until the last of its threads has stopped, that one may answer.
    wait_for(|| {
        let threads = std::fs::read_dir(format!("/proc/{wholly}/task")).unwrap();
        let mut states = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap());
        states.all(|stat| stat.rsplit_once(')').is_some_and(|(_, state)| state.starts_with(" T")))
    });
    waiting.go_on();
    let (command, holder) = (waiting.command.to_string(), waiting.holder.to_string());
    wait_for(|| !Path::new("/proc").join(&command).exists());
    wait_for(|| {
        let waits = std::fs::read_to_string(Path::new("/proc").join(&holder).join("wchan")).unwrap_or_default();
        waits.contains("fuse") || waits.contains("request_wait")
    });
    Waiting::kill(wholly, KILL);
    waiting.end();
    rig.recover(&dir);
    assert_eq!(read(dir.join("file")), "old\n");
}

/// A signal to all processes at once is one, which the command may make of what it likes; at the second it is killed.
#[test]
fn a_signal_to_a_whole_group_is_one() {
    let Some(rig) = Rig::new("signals") else { return };
    let dir = rig.dir("dir", "echo old > file");
    let script = "trap 'echo told; again=1' TERM; echo new > file; kill -TERM 0; while [ -z \"$again\" ]; do sleep 0.01; done; echo on";
    let output = rig.group(&dir, &[], script).process_group(0).output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let said = text(&output);
    assert!(said.starts_with("told\n") && said.contains("on\n"), "{said}");
    assert_eq!(read(dir.join("file")), "old\n");

    let mut waiting = Waiting::start(&rig, &dir, "trap '' TERM; echo new > file", "while :; do sleep 1; done");
    waiting.go_on();
    let wholly = waiting.wholly.id() as i32;
    Waiting::kill(wholly, rustix::process::Signal::TERM);
    // A signal that comes while another is not heard yet is one with it.
    while waiting.wholly.try_wait().unwrap().is_none() {
        Waiting::kill(wholly, rustix::process::Signal::TERM);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(waiting.end(), Some(137));
    assert_eq!(read(dir.join("file")), "old\n");
}

#[test]
fn it_is_reviewed_parked_and_applied_by_the_same_user() {
    let Some(rig) = Rig::new("parked") else { return };
    let dir = rig.dir("dir", "echo old > file");
    let mut child = rig
        .group(&dir, &["--review"], "echo new > file </dev/null")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"v\nd\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output).contains("-old\n+new\n")), (Some(122), true), "{output:?}");
    assert_eq!(read(dir.join("file")), "old\n");

    let output = rig.run(&dir, &["--park"], "echo new > file; mkdir made");
    assert_eq!(output.status.code(), Some(121), "{output:?}");
    assert_eq!(read(dir.join("file")), "old\n");
    let listed = rig.wholly(&dir, &["--json", "list", "."]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let id = listed["groups"][0]["id"].as_str().unwrap();
    let applied = rig.wholly(&dir, &["apply", ".", id]);
    assert!(applied.status.success(), "{applied:?}");
    assert!(read(dir.join("file")) == "new\n" && dir.join("made").is_dir());
}

/// What is mounted in the directory the command sees as everybody does, with what is mounted in that.
#[test]
fn what_is_mounted_in_it_is_not_covered() {
    let Some(rig) = Rig::new("inside") else { return };
    if !is_root() {
        println!("skipped: it takes the superuser to mount something for others");
        return;
    }
    let dir = rig.dir("dir", "mkdir inside; echo old > file");
    let binary = rig.binary();
    let script = "\"$0\" run --verbose -- sh -c 'echo new > file && echo left > inside/below/file && ! umount inside 2>/dev/null' && cat inside/below/file";
    let user = rig.as_user(&dir, &["sh", "-c", script, binary.to_str().unwrap()]);
    let mounts = "mount -t tmpfs -o mode=777 none inside && mkdir inside/below && mount -t tmpfs -o mode=777 none inside/below && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", mounts, "sh"]).arg(user.get_program()).args(user.get_args()).current_dir(&dir);
    command.envs(user.get_envs().filter_map(|(name, value)| Some((name, value?)))).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output).contains(&format!("{}/inside (tmpfs)\n", dir.display())), "{output:?}");
    assert_eq!(output.stdout, b"left\n");
    assert!(read(dir.join("file")) == "new\n" && dir.join("inside").read_dir().unwrap().next().is_none());
}

/// What would run as its owner runs as the user.
#[test]
fn set_user_id_programs_have_no_effect() {
    let Some(rig) = Rig::new("suid") else { return };
    let dir = rig.dir("dir", "");
    let program = rig.0.join("id");
    std::fs::copy("/usr/bin/id", &program).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).unwrap();
    let output = rig.run(&dir, &[], &format!("{} -u", program.display()));
    let me = std::fs::metadata(&dir).unwrap().uid();
    assert_eq!(text(&output), format!("{me}\n"));
}

#[test]
fn what_is_missing_is_said_and_nothing_is_made() {
    let Some(rig) = Rig::new("refused") else { return };
    if !is_root() {
        println!("skipped: it takes the superuser to refuse things to others");
        return;
    }
    let binary = rig.binary();
    let words = [binary.to_str().unwrap(), "run", "--", "true"];
    let dir = rig.dir("dir", "");
    let closed = rig.with_device("0600", &dir, &words).output().unwrap();
    assert_eq!(closed.status.code(), Some(125));
    assert!(text(&closed).contains("/dev/fuse: Permission denied"), "{closed:?}");
    assert!(!dir.join(".wholly").exists());

    let others = rig.0.join("others");
    std::fs::create_dir(&others).unwrap();
    let output = rig.as_user(&others, &words).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output).contains("belongs to user 0"), "{output:?}");

    // The limit is that of a user namespace of the test's own, in which somebody has no rights.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
                  exec setpriv --bounding-set -all --inh-caps -all \"$0\" run -- true";
    let mut command = Command::new("unshare");
    let output = command.args(["-Ur", "sh", "-c", script]).arg(&binary).current_dir(&others).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(text(&output).contains("user.max_user_namespaces"), "{output:?}");
    assert!(!others.join(".wholly").exists());
}

/// What is committed and cannot be taken home to the end, or leaves its folder, is told as what it is: in JSON, and by
/// the exit code.
#[test]
fn what_is_committed_is_told_though_something_stays() {
    let Some(rig) = Rig::new("stays") else { return };
    let dir = rig.dir("dir", "echo old > file");
    let output = rig.run(&dir, &["--json"], "echo new > file; chmod 555 .");
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&told["outcome"], &told["status"]), (&"committed".into(), &0.into()));
    assert_eq!(read(dir.join("file")), "new\n");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&dir, all).unwrap();
    rig.recover(&dir);
    // Who cannot be told of it learns by the exit code.
    let output = rig
        .group(&dir, &["--json"], "echo newer > file")
        .stdout(std::fs::File::create("/dev/full").unwrap())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output).contains("stdout"), "{output:?}");
    assert_eq!(read(dir.join("file")), "newer\n");
}
