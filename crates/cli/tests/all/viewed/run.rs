//! `wholly run`: a command is one group. How it begins and ends, and what others see of it; `programs.rs` has real
//! programs.

use super::common::run::{Rig, as_group, has_store, run, succeeds};
use super::common::views::Difference;
use super::common::{self, wholly};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_exit_code_is_the_commands() {
    let Some(rig) = Rig::new("codes") else { return };
    let dir = rig.dir("dir", "echo text > file");
    assert_eq!(run(&dir, &[], "exit 0").status.code(), Some(0));
    assert_eq!(run(&dir, &[], "exit 42").status.code(), Some(42));
    assert_eq!(run(&dir, &[], "kill -KILL $$").status.code(), Some(137));
    let of = |words: &[&str]| {
        let mut command = common::views::command(env!("CARGO_BIN_EXE_wholly"));
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

/// What is mounted in the directory the command sees as everybody does, and what it writes there stays.
#[test]
fn what_is_mounted_in_it_is_not_covered() {
    let Some(rig) = Rig::new("inside") else { return };
    let dir = rig.dir("dir", "mkdir -p deep/inside; echo old > file; echo old > bound");
    // A namespace, so that the mounts are nobody else's.
    let script = "mount -t tmpfs none deep/inside && mkdir deep/inside/below && mount -t tmpfs none deep/inside/below && mount --bind /etc/passwd bound && \
                  \"$0\" run --verbose -- sh -c 'echo new > file; cmp bound /etc/passwd && echo left > deep/inside/below/file && ls deep && mv deep moved'; \
                  echo $?; cat moved/inside/below/file file; \
                  \"$0\" run -- sh -c 'echo newer > file; echo left > moved/inside/too; exit 3'; echo $?; cat moved/inside/too file";
    let mut command = common::views::command("unshare");
    command.args(["-m", "sh", "-c", script, env!("CARGO_BIN_EXE_wholly")]).current_dir(&dir);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(out, "inside\n0\nleft\nnew\n3\nleft\nnew\n", "{err}");
    let place = dir.display();
    assert!(err.contains(&format!("not covered, with what is mounted in it: {place}/bound (")), "{err}");
    assert!(err.contains(&format!("), {place}/deep/inside (tmpfs)\n")), "{err}");
    assert_eq!(std::fs::read_to_string(dir.join("bound")).unwrap(), "old\n");
    assert!(dir.join("moved/inside").read_dir().unwrap().next().is_none() && !has_store(&dir));
}

/// What runs outside can be run and replaced by the command, and what that runs can be run outside. Only to write to it
/// is refused, as it always is.
#[test]
fn programs_run_inside_and_outside() {
    let Some(rig) = Rig::new("programs") else { return };
    let dir = rig.dir("dir", "cp $(which sleep) sleep; cp sleep tool; cp sleep other");
    let mut running = Command::new(dir.join("sleep")).arg("1000").spawn().unwrap();
    let refused = match Difference::FilesAreCopied.is() {
        true => "",
        false => "sh -c 'echo > sleep' 2>&1 | grep -q 'Text file busy' && ",
    };
    let script = format!(
        "./tool 0 && ./sleep 0 && {refused}cp other new && mv new sleep && ./sleep 0 && rm other && echo ready && read line"
    );
    let mut child = as_group(&dir, &[], &script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    for program in ["tool", "sleep", "other"] {
        succeeds(Command::new(dir.join(program)).arg("0"));
    }
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\n").unwrap();
    let status = child.wait().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(status.success(), "{status}");
    succeeds(Command::new(dir.join("sleep")).arg("0"));
    assert!(!dir.join("other").exists() && !has_store(&dir));
}

/// A program that runs outside keeps its content, however late that is refused.
#[test]
fn a_program_that_runs_outside_is_not_written_to() {
    let Some(rig) = Rig::new("busy") else { return };
    let dir = rig.dir("dir", "cp $(which sleep) sleep; cp sleep same");
    let mut running = Command::new(dir.join("sleep")).arg("1000").spawn().unwrap();
    let output = run(&dir, &[], "echo new > new; echo > sleep");
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(output.status.code(), Some(if Difference::FilesAreCopied.is() { 123 } else { 2 }), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Text file busy"), "{output:?}");
    succeeds(&mut common::run::shell(&dir, "cmp sleep same"));
    assert!(!dir.join("new").exists() && !has_store(&dir));
}

/// Who has mapped a file before it is changed sees what it was in an overlay: the kernel writes to a copy. Who reads it
/// sees the change. See `docs/run.md`.
#[test]
fn what_was_opened_before_a_change_shows_the_change() {
    let Some(rig) = Rig::new("opened") else { return };
    if !common::may_run(&["python3"]) {
        return;
    }
    let dir = rig.dir("dir", "echo old > file; echo old > mine");
    let program = "import mmap\n\
        for name, how in ('file', 'rb'), ('mine', 'r+b'):\n\
        \tfile = open(name, how, 0)\n\
        \tmapped = mmap.mmap(file.fileno(), 4, mmap.MAP_SHARED, mmap.PROT_READ)\n\
        \tassert mapped[:] == b'old\\n'\n\
        \topen(name, 'r+').write('new')\n\
        \tprint(file.read(3).decode(), mapped[:3].decode())\n";
    std::fs::write(rig.path("program.py"), program).unwrap();
    let output = run(&dir, &[], &format!("python3 {}", rig.path("program.py").display()));
    let mapped = if Difference::FilesAreCopied.is() { "old" } else { "new" };
    // Who may write to it has the copy from the beginning.
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("new {mapped}\nnew new\n"), "{output:?}");
    assert!(output.status.success() && !has_store(&dir));
    assert_eq!(std::fs::read(dir.join("file")).unwrap(), b"new\n");
}

/// The command keeps nothing of the host's mounts: what is unmounted while it runs is gone.
#[test]
fn what_is_unmounted_outside_is_gone_for_the_command_too() {
    let Some(rig) = Rig::new("unmounted") else { return };
    let dir = rig.dir("dir", "");
    let other = rig.dir("other", "");
    // A namespace that hands its mounts on, as a system does, and whose mounts are nobody else's.
    let script = format!(
        "mount --make-rprivate / && mount --make-rshared / && mount -t tmpfs none {other} && mkfifo {other}.ready {other}.go && \
         {{ {wholly} run -- sh -c ': > {other}.ready; : < {other}.go; ! grep \"{other} \" /proc/self/mountinfo' & }} && \
         : < {other}.ready && umount {other} && : > {other}.go && wait $!",
        other = other.display(),
        wholly = env!("CARGO_BIN_EXE_wholly")
    );
    let output =
        common::views::command("unshare").args(["-m", "sh", "-c", &script]).current_dir(&dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn directories_that_cannot_be_covered_are_refused() {
    let Some(rig) = Rig::new("refused") else { return };
    let dir = rig.dir("dir", "");
    let of = |words: &[&str]| {
        let mut command = common::views::command(env!("CARGO_BIN_EXE_wholly"));
        command.arg("run").args(words).current_dir(&dir).output().unwrap()
    };
    let root = of(&["--dir", "/", "--", "true"]);
    assert_eq!(root.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&root.stderr).contains("root directory"), "{root:?}");
    // What somebody else has written to `.wholly` is not done with our rights.
    let foreign = rig.dir("foreign", "");
    wholly(&["init", foreign.to_str().unwrap()]).exits(0);
    std::os::unix::fs::chown(foreign.join(".wholly"), Some(12345), None).unwrap();
    let output = of(&["--dir", foreign.to_str().unwrap(), "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).contains("belongs to user 12345"), "{output:?}");
}

/// A signal that comes from anybody ends it as if the command had failed, whatever that makes of it; one that is
/// ignored is.
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
    let mut command = common::views::command("sh");
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
    assert_eq!(output.status.code(), Some(121), "{output:?}");
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
    let old = "old\n";
    for (answers, outcome, code) in [("v\na\n", "new\n", 0), ("x\nd\n", old, 122), ("p\n", old, 121), ("", old, 121)] {
        let dir = rig.dir(&format!("dir-{}", answers.trim().replace('\n', "-")), "echo old > file");
        let mut child = as_group(&dir, &["--review"], "echo new > file </dev/null")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(child.stdin.as_mut().unwrap(), answers.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.contains("changed   file")), (Some(code), true), "{said}");
        assert_eq!(said.contains("-old\n+new\n"), answers.starts_with('v'), "{said}");
        assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), outcome, "{answers:?}: {said}");
        assert_eq!(has_store(&dir), answers == "p\n" || answers.is_empty(), "where nobody answers it is parked");
    }
}

/// What is typed while the pager has the terminal is the pager's: Ctrl-C ends that, and the question comes again.
#[test]
fn ctrl_c_ends_the_pager_alone() {
    let Some(rig) = Rig::new("pager") else { return };
    if !common::may_run(&["script"]) {
        return;
    }
    let dir = rig.dir("dir", "echo old > file");
    let command = format!("{} run --review -- sh -c 'echo new > file'", env!("CARGO_BIN_EXE_wholly"));
    let mut child = common::views::command("script")
        .args(["-qec", &command, "/dev/null"])
        .env("PAGER", "cat; trap exit INT; echo is paged; while :; do sleep 0.1; done")
        .current_dir(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut said = String::new();
    let mut until = |wanted: &str| {
        let begin = said.len();
        while !said[begin..].contains(wanted) {
            let mut byte = [0];
            std::io::Read::read_exact(&mut screen, &mut byte).unwrap_or_else(|error| panic!("{error}: {said}"));
            said.push(byte[0].into());
        }
    };
    let mut type_in = |text: &str| std::io::Write::write_all(&mut keys, text.as_bytes()).unwrap();
    until("the lines? ");
    type_in("v\n");
    until("is paged");
    type_in("\x03");
    until("the lines? ");
    type_in("a\n");
    assert!(child.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), "new\n");
    assert!(!has_store(&dir));
}

/// Pages that the kernel could not write back are lost. Who wrote them may have been told, and the next who asked; what
/// is committed is to be all that there was.
#[test]
fn what_is_lost_of_a_mapping_is_not_committed() {
    let Some(rig) = Rig::new("lost") else { return };
    if !common::may_run(&["python3"]) {
        return;
    }
    let dir = rig.dir("dir", "");
    // Every other page, so that each is a write by itself, and there is no space for some of them.
    let program = "import mmap, os\n\
        file = os.open('file', os.O_RDWR)\n\
        mapped = mmap.mmap(file, 5 << 20)\n\
        for at in range(0, 5 << 20, 8192): mapped[at] = 1\n\
        try: mapped.flush()\n\
        except OSError: print('told')\n";
    std::fs::write(rig.path("program.py"), program).unwrap();
    // A file system that is full soon, and nobody else's.
    let script = format!(
        "mount -t tmpfs -o size=7700k none {dir} && cd {dir} && head -c 5M /dev/zero > file && \
         {wholly} run -- sh -c 'python3 {program} && ! sync -f . && sync -f .'; echo $?; ls -A; tr -d '\\000' < file | wc -c",
        dir = dir.display(),
        program = rig.path("program.py").display(),
        wholly = env!("CARGO_BIN_EXE_wholly")
    );
    let output = common::views::command("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if Difference::FilesAreCopied.is() {
        // There is no space for that either.
        assert_eq!(out, "1\nfile\n0\n", "{err}");
        return;
    }
    assert_eq!(out, "told\n123\nfile\n0\n", "{err}");
    assert!(err.contains("mapped memory is lost"), "{err}");
}

/// What came through the view is not all that the command may have changed then.
#[test]
fn who_takes_the_view_away_commits_nothing() {
    let Some(rig) = Rig::new("taken") else { return };
    let dir = rig.dir("dir", "echo old > file; echo old > other");
    let output = run(&dir, &[], "echo new > file; dir=$PWD; cd / && umount $dir && echo new > $dir/other");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("unmounted its view"), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!((read("file").as_str(), read("other").as_str()), ("old\n", "new\n"));
    assert!(!has_store(&dir));
}

/// Whatever ends the process that holds the command's mounts, what was no store is none.
#[test]
fn a_killed_holder_leaves_nothing() {
    let Some(rig) = Rig::new("holder") else { return };
    for n in 0..10 {
        let dir = rig.dir(&format!("dir{n}"), "echo old > file");
        let output = run(&dir, &[], "echo new > file; kill -KILL $PPID; sleep 1000");
        assert_eq!(output.status.code(), Some(137), "{output:?}");
        assert_eq!(std::fs::read_to_string(dir.join("file")).unwrap(), "old\n");
        assert_eq!(common::run::traces(&dir), [] as [&Path; 0], "{output:?}");
    }
}

/// `auto` takes FUSE if an overlay would have to copy a large file. It takes an overlay if nobody may write to that
/// file, or if the file is far from the top.
#[test]
fn a_large_file_is_not_copied() {
    let Some(rig) = Rig::new("large") else { return };
    let kind = |dir: &Path| {
        let output = succeeds(&mut as_group(dir, &["--view", "auto"], "stat -f -c %T ."));
        String::from_utf8(output).unwrap().trim().to_owned()
    };
    let small = rig.dir("small", "fallocate -l 200M file");
    let large = rig.dir("large", "mkdir -p d/e; fallocate -l 300M d/e/file");
    let fixed = rig.dir("fixed", "fallocate -l 300M file; chmod 444 file");
    let far = rig.dir("far", "mkdir d e; seq -f e/%g 1000 | xargs touch; mkdir d/d; fallocate -l 300M d/d/file");
    let shares = rig.dir("shares", "echo text > a; cp --reflink=always a b 2> /dev/null || echo not > not");
    if kind(&small) != "overlayfs" || !shares.join("not").exists() {
        eprintln!("skipped: no overlay here, or files share blocks");
        return;
    }
    assert_eq!(kind(&large), "fuseblk");
    assert_eq!((&*kind(&fixed), &*kind(&far)), ("overlayfs", "overlayfs"));
    // `--view overlay` mounts an overlay all the same.
    let asked = succeeds(&mut as_group(&large, &["--view", "overlay"], "stat -f -c %T ."));
    assert_eq!(asked, b"overlayfs\n");
}

/// A view over `/proc` would hide what our own processes need, and `wholly run` would hang.
#[test]
fn file_systems_of_the_kernel_are_refused() {
    if !common::may_mount() {
        return;
    }
    let refused = |dir: &str, why: &str| {
        // A namespace: what a failure leaves mounted goes with it.
        let mut command = common::views::command("unshare");
        command.args(["-m", "timeout", "--signal=KILL", "60", env!("CARGO_BIN_EXE_wholly"), "run", "--", "true"]);
        let output = command.current_dir(dir).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(said.contains(&format!("run in {dir}: ")) && said.contains(why), "{said}");
    };
    refused("/proc", "the kernel generates its files");
    refused("/sys", "the kernel generates its files");
}

/// An automount is refused without triggering it: its daemon may not answer, and `wholly run` would hang.
#[test]
fn an_automount_is_refused() {
    let Some(rig) = Rig::new("automount") else { return };
    if !std::fs::read_to_string("/proc/filesystems").unwrap().contains("autofs") {
        return common::skipped("the kernel has no autofs");
    }
    let dir = rig.dir("dir", "");
    // Its daemon has the pipe and never answers. Processes of the daemon's own process group do not trigger the mount,
    // so the command runs in another.
    let script = "import os, subprocess, sys
point, wholly = sys.argv[1:]
read, write = os.pipe()
options = f'fd={write},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct'
subprocess.run(['mount', '-t', 'autofs', '-o', options, 'none', point], pass_fds=[write], check=True)
run = subprocess.Popen(['timeout', '--signal=KILL', '60', wholly, 'run', '--dir', point, '--', 'true'], start_new_session=True)
sys.exit(run.wait())
";
    let mut command = common::views::command("unshare");
    let output =
        command.args(["-m", "python3", "-c", script]).arg(&dir).arg(env!("CARGO_BIN_EXE_wholly")).output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("it is an automount"), "{output:?}");
}
