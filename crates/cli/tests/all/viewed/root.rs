//! `wholly run --root`: the root directory is the view, and other file systems in it are not. It is that of a small
//! system in a directory, never this one's.

use super::common::blows::{BLOWS, Case, Tally, assert_ordinary, strike};
use super::common::root::{MOUNTED, Root};
use super::common::run::{Rig, has_store};
use super::common::tree::Tree;
use super::common::views::Difference;
use super::common::{self, is_long, may_run};
use std::io::Write;
use std::process::{Output, Stdio};
use wholly_sim::Random;

/// What takes a system, and the superuser; `None` where a test is skipped.
fn rig(name: &str) -> Option<Rig> {
    Rig::new(name).filter(|_| may_run(&["unshare", "nsenter", "pivot_root", "ldd"]))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn ends_with(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Changes of everything, and in everything that is mounted.
const CHANGE: &str = "cd /etc && for i in $(seq 60); do echo $i > new && mv new conf-$i || exit 1; done && rm file && \
    mkdir -p /usr/share/made/deep && ln -s /etc/conf-7 /usr/share/made/link && ln conf-3 linked && chmod 600 conf-3 && \
    seq 20000 > /var/large && mv /srv /served && seq 100 > /tmp/left && seq 100 > /var/inner/left";

#[test]
fn the_command_sees_it_as_its_root_directory() {
    let Some(rig) = rig("root-view") else { return };
    let root = Root::new(&rig, "system");
    let before = root.does("cat /proc/self/mountinfo");
    // Its names are those that it has; absolute links lead into the view, and so does what /proc has of the process.
    let script = "set -e; pwd; echo new > /etc/file; cat /srv/link; ls -A /; readlink /proc/self/root; cat /proc/self/root/etc/file; cat /bin/../../etc/file; \
                  cmp /bin/wholly /proc/$PPID/exe; test -d /tmp/below; test -c /dev/null; stat -c %m / /etc";
    let run =
        root.command(&["sh", "-c", "cd /srv && exec wholly run --root -- sh -c \"$0\"", script]).output().unwrap();
    let names = "bin\ndev\netc\nlib\nlib64\nproc\nsrv\ntmp\nusr\nvar\n";
    ends_with(&run, 0);
    assert_eq!(text(&run.stdout), format!("/srv\nnew\n{names}/\nnew\nnew\n/\n/\n"), "{run:?}");
    assert_eq!(text(&run.stderr), "");
    assert_eq!(root.does("cat /etc/file; ls -A /"), format!("new\n{names}"));
    assert_eq!(root.does("cat /proc/self/mountinfo"), before);
    assert_ordinary(root.dir());
}

/// A process may only make user namespaces where its root directory is that of its mount namespace, as sandboxes want.
#[test]
fn it_is_the_root_directory_of_the_namespace() {
    let Some(rig) = rig("root-namespace") else { return };
    let root = Root::new(&rig, "system");
    if root.command(&["unshare", "-U", "true"]).status().unwrap().success() {
        ends_with(&root.run(&[], "unshare -U true"), 0);
    }
}

#[test]
fn what_else_is_mounted_is_not_covered_and_said() {
    let Some(rig) = rig("root-others") else { return };
    let root = Root::new(&rig, "system");
    let output = root
        .run(&["--verbose"], "echo a > /tmp/a; echo b > /tmp/below/b; echo c > /var/inner/c; echo d > /var/d; exit 3");
    ends_with(&output, 3);
    let said = text(&output.stderr);
    let others = "/bin/wholly (ext4), /dev (devtmpfs), /proc (proc), /tmp (tmpfs), /var/inner (tmpfs)\n";
    let of_any_kind = |text: &str| text.split(['(', ')']).step_by(2).collect::<String>();
    let line = said
        .lines()
        .find_map(|line| line.split_once("not covered, with what is mounted in it: "))
        .unwrap_or_default()
        .1;
    assert_eq!(of_any_kind(line), of_any_kind(others.trim_end()), "{said}");
    assert_eq!(root.does("cat /tmp/a /tmp/below/b /var/inner/c; ls /var"), "a\nb\nc\ninner\n");
    // A script is told, too.
    let output = root.command(&["wholly", "--json", "run", "--root", "--", "true"]).output().unwrap();
    ends_with(&output, 0);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let others = told["dirs"][0]["not_covered"].as_array().unwrap();
    let paths: Vec<_> = others.iter().map(|other| other["path"].as_str().unwrap()).collect();
    assert_eq!((told["dirs"][0]["dir"].as_str(), paths), (Some("/"), MOUNTED.to_vec()));
    assert_eq!((others[2]["type"].as_str(), others[3]["type"].as_str()), (Some("proc"), Some("tmpfs")));
    assert_ordinary(root.dir());
}

/// Directories are moved with what is mounted in them; what is unmounted shows nothing.
#[test]
fn mount_points_stay_where_they_are() {
    let Some(rig) = rig("root-points") else { return };
    let root = Root::new(&rig, "system");
    let script = "! rmdir /tmp 2>/dev/null && ! mv /tmp /gone 2>/dev/null && mv /var /moved && echo x > /moved/inner/x && echo y > /moved/y";
    ends_with(&root.run(&[], script), 0);
    assert_eq!(root.does("cat /moved/inner/x /moved/y; ls /moved"), "x\ny\ninner\ny\n");
    if Difference::UnmountedIsSeen.is() {
        let script = "umount /moved/inner && ls -A /moved/inner && umount /proc && echo z > /moved/y";
        let output = root.run(&[], script);
        ends_with(&output, 0);
        assert_eq!(text(&output.stdout), "");
        for lost in ["echo lost > /moved/inner/lost", "rmdir /moved/inner"] {
            let output = root.run(&[], &format!("umount /moved/inner && echo lost > /moved/y && {lost}"));
            ends_with(&output, 123);
            assert!(text(&output.stderr).contains("moved/inner"), "{output:?}");
        }
        assert_eq!(root.does("cat /moved/y; ls /moved/inner"), "z\nx\n");
        assert_ordinary(root.dir());
        return;
    }
    let script = "umount /moved/inner && ! ls /moved/inner 2>/dev/null && ! sh -c 'echo lost > /moved/inner/lost' 2>/dev/null && \
                  ! rmdir /moved/inner 2>/dev/null && umount /proc && ls -A /moved && echo z > /moved/y";
    let output = root.run(&[], script);
    ends_with(&output, 0);
    assert_eq!(text(&output.stdout), "inner\ny\n");
    assert_eq!(root.does("cat /moved/y; ls /moved/inner"), "z\nx\n");
    assert_ordinary(root.dir());
}

#[test]
fn what_it_leaves_running_is_ended_and_what_it_mounts_is_gone() {
    let Some(rig) = rig("root-left") else { return };
    let root = Root::new(&rig, "system");
    let before = root.does("cat /proc/self/mountinfo");
    let script = "mkdir /mnt && mount -t tmpfs none /mnt && mount -t tmpfs none /tmp/below && mount --bind /etc /srv && \
                  { setsid sh -c 'echo $$ > /var/pid; echo started > /etc/file; sleep 1000; echo late > /etc/file' & } && \
                  while ! [ -s /var/pid ]; do sleep 0.01; done; while [ \"$(cat /etc/file)\" = old ]; do sleep 0.01; done";
    ends_with(&root.run(&[], script), 0);
    assert_eq!(
        root.does("cat /etc/file; ls -A /mnt; ls -A /srv; test -d /proc/$(cat /var/pid) || echo ended"),
        "started\nlink\nended\n"
    );
    assert_eq!(root.does("cat /proc/self/mountinfo"), before);
    assert_ordinary(root.dir());
}

/// What is mounted outside in what is passed through is seen inside, and what is unmounted is gone; nothing that the
/// command mounts is seen outside, and nothing outside is in use by its view alone.
#[test]
fn mounts_outside_come_and_go() {
    let Some(rig) = rig("root-mounts") else { return };
    let root = Root::new(&rig, "system");
    let script = "mkdir /tmp/own && mount -t tmpfs none /tmp/own && echo a > /tmp/own/a && ls /tmp/below && echo ready && read line && cat /tmp/new/b && ! umount /tmp/below 2>/dev/null";
    let mut child = root.group(&[], script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut said = [0; 6];
    std::io::Read::read_exact(&mut out, &mut said).unwrap();
    let script = "mkdir /tmp/new && mount -t tmpfs none /tmp/new && echo b > /tmp/new/b && umount /tmp/below /var/inner && ls /tmp /tmp/own";
    assert_eq!(root.does(script), "/tmp:\nbelow\nnew\nown\n\n/tmp/own:\n");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert_eq!((child.wait().unwrap().code(), rest.as_str()), (Some(0), "b\n"));
    assert_eq!(root.does("cat /tmp/new/b"), "b\n");
    assert_ordinary(root.dir());
}

#[test]
fn it_is_parked_and_applied_later() {
    let Some(rig) = rig("root-parked") else { return };
    let root = Root::new(&rig, "system");
    let old = Tree::of(root.dir()).but_for_its_time();
    ends_with(&root.run(&["--park"], CHANGE), 121);
    assert!(has_store(root.dir()));
    let wholly = |words: &[&str]| {
        let output = root.command(&[&["wholly"], words].concat()).output().unwrap();
        ends_with(&output, 0);
        String::from_utf8(output.stdout).unwrap()
    };
    let parked: serde_json::Value = serde_json::from_str(&wholly(&["--json", "list", "/"])).unwrap();
    let id = parked["groups"][0]["id"].as_str().unwrap();
    assert!(wholly(&["diff", "/", id]).contains("conf-60"), "{parked}");
    assert_eq!(root.does("cat /etc/file; ls -A /served /usr 2>/dev/null || true"), "old\n/usr:\n");
    wholly(&["apply", "/", id]);
    assert_eq!(
        root.does("cat /etc/conf-60 /usr/share/made/link; ls -A /served; cat /etc/file 2>/dev/null || true"),
        "60\n7\nlink\n"
    );
    assert!(Tree::of(root.dir()).but_for_its_time() != old);
    assert_ordinary(root.dir());
}

#[test]
fn a_person_decides() {
    let Some(rig) = rig("root-review") else { return };
    for (answer, left, code) in [("d\n", "old\n", 122), ("a\n", "new\n", 0)] {
        let root = Root::new(&rig, answer.trim());
        let mut command = root.group(&["--review"], "echo new > /etc/file; echo new > /tmp/new");
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        ends_with(&output, code);
        let said = text(&output.stderr);
        assert!(
            said.contains("changed   etc/file") && said.contains("not covered, ") && said.contains("1 change in /:"),
            "{said}"
        );
        assert_eq!(root.does("cat /etc/file /tmp/new"), format!("{left}new\n"));
        assert_ordinary(root.dir());
    }
}

/// Programs outside go on writing to the system. Only what the command builds on counts.
#[test]
fn what_others_write_meanwhile_stays() {
    let Some(rig) = rig("root-bystanders") else { return };
    let root = Root::new(&rig, "system");
    let begin = |script: &str| {
        let mut child = root
            .group(&[], script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(&said, b"ready\n");
        child
    };
    let mut child = begin("echo new > /etc/file; echo new > /var/new; echo ready; read line; true");
    root.does("echo line > /var/log; mkdir /var/other; echo other > /etc/other; ls -A /etc");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    ends_with(&child.wait_with_output().unwrap(), 0);
    assert_eq!(
        root.does("cat /etc/file /etc/other /var/log /var/new; ls -d /var/other"),
        "new\nother\nline\nnew\n/var/other\n"
    );
    let mut child = begin("echo newer > /etc/file; echo newer > /var/new; echo ready; read line; true");
    root.does("echo theirs >> /etc/file");
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    ends_with(&output, 123);
    let said = text(&output.stderr);
    assert!(said.contains("not committed, changed meanwhile: /etc/file") && said.contains("parked as "), "{said}");
    assert_eq!(root.does("cat /etc/file /var/new"), "new\ntheirs\nnew\n");
}

#[test]
fn what_is_missing_is_said() {
    let Some(rig) = rig("root-missing") else { return };
    let root = Root::new(&rig, "system");
    let names = root.does("ls -A /");
    let says = |words: &[&str], code: i32, why: &str| {
        let output = root.command(words).output().unwrap();
        ends_with(&output, code);
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
        assert_eq!(root.does("ls -A /"), names);
    };
    let as_user = ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups"];
    says(&[&as_user[..], &["wholly", "run", "--root", "--", "true"]].concat(), 125, "run in /: covering the root");
    says(&["wholly", "run", "--dir", "/", "--", "true"], 125, "use `--root` for it");
    says(&["wholly", "run", "--dir", "/etc", "--root", "--", "true"], 125, "cannot be used with");
    says(&["wholly", "run", "--root", "--", "no-such-command"], 127, "no-such-command");
    root.does("mount -o remount,bind,ro /");
    says(&["wholly", "run", "--root", "--", "true"], 125, "run in /: ");
}

#[test]
fn a_store_stays_one() {
    let Some(rig) = rig("root-store") else { return };
    let root = Root::new(&rig, "system");
    root.does("wholly init /");
    ends_with(&root.run(&[], "echo new > /etc/file; ls -d /.wholly 2>/dev/null; ls -A /var"), 0);
    assert_eq!(
        root.does("cat /etc/file; ls -d /.wholly; wholly deinit / >/dev/null; cat /etc/file"),
        "new\n/.wholly\nnew\n"
    );
    assert_ordinary(root.dir());
}

/// Killed at any moment it leaves the whole change or nothing, in `/`; what else is mounted does not count.
#[test]
fn wholly_or_not_at_all() {
    let Some(rig) = rig("root-killed") else { return };
    let source = rig.dir("source", "");
    common::root::furnish(&source);
    let old = Tree::of(&source).but_for_its_time();
    let system = |name: &str| Root::of(&rig.copy(name, &source));
    let plain = system("plain");
    plain.does(CHANGE);
    let new = Tree::of(plain.dir()).of_any_run(&[]);
    let is_new = |tree: &Tree| tree.of_any_run(&[]).difference(&new);

    let root = system("committed");
    let (status, spans) = Case::begin(&mut root.group(&[], CHANGE), root.dir()).measure();
    assert_eq!(status.code(), Some(0));
    assert_ordinary(root.dir());
    assert_eq!(is_new(&Tree::of(root.dir())), "");

    let root = system("failed");
    let status = Case::begin(&mut root.group(&[], &format!("{CHANGE}; exit 7")), root.dir()).end();
    assert_eq!(status.code(), Some(7));
    assert_ordinary(root.dir());
    assert_eq!(Tree::of(root.dir()).but_for_its_time().difference(&old), "");
    assert_eq!(root.does("ls /tmp /var/inner"), "/tmp:\nbelow\nleft\n\n/var/inner:\nleft\n");

    let (mut random, mut tally) = (Random(5), Tally::default());
    for round in 0..if is_long() { 20 } else { 2 } {
        for blow in BLOWS {
            let root = system(&format!("{blow:?}-{round}"));
            let mounted = root.does("cat /proc/self/mountinfo");
            let dir = root.dir().to_path_buf();
            strike((&mut root.group(&[], CHANGE), &dir), &old, is_new, (blow, spans), &mut random, &mut tally);
            assert_eq!(root.does("cat /proc/self/mountinfo"), mounted);
            drop(root);
            std::fs::remove_dir_all(dir).unwrap();
        }
    }
    println!("{tally:?}, of runs that took {spans:?}");
}
