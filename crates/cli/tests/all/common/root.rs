//! Small systems: root directories of their own, each in a mount namespace in which it is `/` and other file systems
//! are mounted in it.

use super::run::{Rig, succeeds};
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// What is mounted in each: a file, and directories, of which one lies deeper, and one has another one mounted in it.
pub const MOUNTED: [&str; 5] = ["/bin/wholly", "/dev", "/proc", "/tmp", "/var/inner"];

/// Makes a directory (`$0`) the root directory of a new mount namespace, with all of that, and keeps it until its
/// standard input ends.
const ENTER: &str = "mount --bind \"$0\" \"$0\" && cd \"$0\" && mount -t proc proc proc && mount --rbind /dev dev && mount -t tmpfs none tmp && \
                     mkdir tmp/below && mount -t tmpfs none tmp/below && mount -t tmpfs none var/inner && mount --bind \"$1\" bin/wholly && \
                     pivot_root . . && umount -l . && mount --make-rshared / && echo ready && exec cat";

/// Programs that a small system has.
const TOOLS: [&str; 22] = [
    "cat", "chmod", "cmp", "env", "ln", "ls", "mkdir", "mount", "mv", "pwd", "readlink", "rm", "rmdir", "seq",
    "setpriv", "setsid", "sh", "sleep", "stat", "true", "umount", "unshare",
];

/// Makes a directory a small system, which it is wherever it is copied to.
pub fn furnish(root: &Path) {
    for dir in ["bin", "dev", "etc", "proc", "srv", "tmp", "usr", "var/inner"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    let tools: Vec<_> = TOOLS.iter().map(|tool| which(tool)).collect();
    let listed = succeeds(Command::new("ldd").arg(env!("CARGO_BIN_EXE_wholly")).args(&tools));
    let listed = String::from_utf8(listed).unwrap();
    let libraries: HashSet<&str> =
        listed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':')).collect();
    // Not by this process: while another test of it starts a program, that has what is open for writing here, and what
    // is so is not executed.
    succeeds(Command::new("cp").arg("-L").args(&tools).arg(root.join("bin")));
    succeeds(Command::new("cp").args(["-L", "--parents"]).args(libraries).arg(root));
    std::fs::write(root.join("bin/wholly"), "").unwrap();
    std::fs::write(root.join("etc/file"), "old\n").unwrap();
    std::os::unix::fs::symlink("/etc/file", root.join("srv/link")).unwrap();
}

fn which(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let all = std::env::split_paths(&path).map(|dir| dir.join(tool));
    all.into_iter().find(|tool| tool.exists()).unwrap_or_else(|| panic!("no {tool}"))
}

/// A directory as the root directory of a namespace, for as long as this value is there.
pub struct Root {
    dir: PathBuf,
    keeper: Child,
}

impl Root {
    /// A small system in a new directory.
    pub fn new(rig: &Rig, name: &str) -> Root {
        let dir = rig.dir(name, "");
        furnish(&dir);
        Root::of(&dir)
    }

    /// A directory that holds a system.
    pub fn of(dir: &Path) -> Root {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", ENTER]).arg(dir).arg(env!("CARGO_BIN_EXE_wholly"));
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(keeper.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Root { dir: dir.into(), keeper }
    }

    /// The directory, as it is seen from outside.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A program in it.
    pub fn command(&self, words: &[&str]) -> Command {
        let place = |what: &str| format!("/proc/{}/{what}", self.keeper.id());
        let mut command = super::views::command("nsenter");
        command.arg(format!("--mount={}", place("ns/mnt"))).arg(format!("--root={}", place("root"))).args(words);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C").env("WHOLLY_REGISTRY", "");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a script in it, and gives what that says.
    pub fn does(&self, script: &str) -> String {
        String::from_utf8(succeeds(&mut self.command(&["sh", "-c", script]))).unwrap()
    }

    /// A script in it that is one group.
    pub fn group(&self, options: &[&str], script: &str) -> Command {
        self.command(&[&["wholly", "run", "--root"], options, &["--", "sh", "-c", script]].concat())
    }

    /// Runs a script in it as one group.
    pub fn run(&self, options: &[&str], script: &str) -> Output {
        self.group(options, script).output().unwrap()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
