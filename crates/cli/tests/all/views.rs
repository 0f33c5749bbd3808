//! `wholly run --view`: which view a command has, and what is said where it cannot have it.

use super::common;
use super::common::run::{Rig, has_store, succeeds};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Prints what kind of file system the directory is.
const KIND: &str = "stat -f -c %T .";

fn run(dir: &Path, options: &[&str], script: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wholly"));
    command.arg("run").args(options).args(["--", "sh", "-c", script]).current_dir(dir).env("WHOLLY_REGISTRY", "");
    command.env("WHOLLY_KEEP_UNDO", "no").output().unwrap()
}

fn kind(output: &Output) -> &str {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap().trim_end()
}

#[test]
fn the_superuser_has_overlays_where_he_asks_for_nothing_else() {
    let Some(rig) = Rig::new("auto") else { return };
    let dir = rig.dir("dir", "");
    assert_eq!(kind(&run(&dir, &[], KIND)), "overlayfs");
    assert_eq!(kind(&run(&dir, &["--view", "auto"], KIND)), "overlayfs");
    assert_eq!(kind(&run(&dir, &["--view", "overlay"], KIND)), "overlayfs");
    assert_eq!(kind(&run(&dir, &["--view", "fuse"], KIND)), "fuseblk");
    assert!(!has_store(&dir));
    let other = run(&dir, &["--view", "other"], KIND);
    assert_eq!(other.status.code(), Some(125), "{other:?}");
}

/// What lies in a directory to which another overlay writes, the kernel lets no second one write to.
#[test]
fn where_there_are_none_he_has_a_mount_of_ours() {
    let Some(rig) = Rig::new("none") else { return };
    let above = rig.dir("above", "mkdir lower work point; mkdir -p upper/dir");
    let script = format!(
        "mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work,index=on point && cd upper/dir && \
         $0 run --view overlay -- true; echo $?; ls -A; $0 run -- sh -c '{KIND}; echo new > file'; echo $?; ls -A"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_wholly")]).current_dir(&above);
    let output = command.env("WHOLLY_REGISTRY", "").env("WHOLLY_KEEP_UNDO", "no").output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, "125\nfuseblk\n0\nfile\n", "{err}");
    assert!(
        err.contains("overlayfs cannot be mounted over it: Device or resource busy") && err.contains("--view fuse"),
        "{err}"
    );
}

/// A layer that a killed run has left goes with the next one.
#[test]
fn a_layer_that_was_left_is_removed() {
    let Some(rig) = Rig::new("layer") else { return };
    let dir = rig.dir("dir", "mkdir deep; echo old > deep/file");
    // Above it is the holder, and above that who is killed.
    let script =
        "echo new > deep/file; echo new > deep/new; kill -KILL $(cut -d ' ' -f 4 /proc/$PPID/stat); exec sleep 1000";
    let output = run(&dir, &["--view", "overlay"], script);
    assert_eq!(output.status.code(), None, "{output:?}");
    common::wait_until_unused(&dir);
    assert!(dir.join(wholly::LAYER).join("upper/deep/new").exists());
    assert_eq!(kind(&run(&dir, &["--view", "overlay"], "cat deep/file")), "old");
    assert_eq!(common::run::traces(&dir), [] as [&Path; 0]);
}

/// As long as the view is mounted anywhere, somebody may write to the layer.
#[test]
fn a_view_that_is_used_outside_commits_nothing() {
    let Some(rig) = Rig::new("outside") else { return };
    if !common::may_run(&["nsenter", "unshare"]) {
        return;
    }
    let dir = rig.dir("dir", "echo old > file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_wholly"));
    command.args(["run", "--view", "overlay", "--", "sh", "-c", "echo new > file; echo $PPID; read line"]);
    command.current_dir(&dir).env("WHOLLY_REGISTRY", "").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut wholly = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut holder = String::new();
    std::io::BufReader::new(wholly.stdout.as_mut().unwrap()).read_line(&mut holder).unwrap();
    let script = "echo ready; exec sleep 1000";
    let mut command = Command::new("nsenter");
    command.args(["-m", "-t", holder.trim(), "unshare", "-m", "sh", "-c", script]);
    let mut outside = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    std::io::BufReader::new(outside.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    wholly.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let output = wholly.wait_with_output().unwrap();
    outside.kill().unwrap();
    outside.wait().unwrap();
    assert_eq!((ready.as_str(), output.status.code()), ("ready\n", Some(125)), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("a process outside of the command uses"), "{output:?}");
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"old\n");
    assert_eq!(common::run::traces(&dir), [] as [&Path; 0]);
}

/// What the view shows of the directory itself is what it is, access lists and other attributes too; and the command
/// may change that.
#[test]
fn the_directory_itself_is_seen_and_changed() {
    let Some(rig) = Rig::new("itself") else { return };
    if !common::may_run(&["python3"]) {
        return;
    }
    let python = |words: &str| format!("python3 -c \"import os; {words}\"");
    let looks = python(
        "s = os.stat('.'); print(oct(s.st_mode), s.st_uid, s.st_gid, s.st_mtime_ns, sorted((n, os.getxattr('.', n)) for n in os.listxattr('.')))",
    );
    let sets = python(
        "os.setxattr('.', 'user.a', b'1'); os.setxattr('.', 'trusted.b', b'2'); os.setxattr('.', 'system.posix_acl_default', bytes.fromhex('0200000001000700ffffffff02000400d204000004000500ffffffff10000500ffffffff20000000ffffffff'))",
    );
    let dir = rig.dir("dir", &format!("chown 1234:4321 .; chmod 2750 .; {sets}; touch -d 2001-02-03 ."));
    // A store's folder is made and removed in it, which changes its times.
    wholly_in(&dir, "init");
    let before = succeeds(&mut common::run::shell(&dir, &looks));
    let output = run(&dir, &["--view", "overlay"], &format!("{looks} && chmod 700 . && touch -d 2002-03-04 ."));
    assert_eq!(kind(&output), String::from_utf8_lossy(&before).trim_end());
    let after = String::from_utf8(succeeds(&mut common::run::shell(&dir, &looks))).unwrap();
    assert!(after.starts_with("0o42700 1234 4321 10152"), "{after}");
    wholly_in(&dir, "deinit");
}

fn wholly_in(dir: &Path, verb: &str) {
    common::wholly(&[verb, dir.to_str().unwrap()]).exits(0);
}
