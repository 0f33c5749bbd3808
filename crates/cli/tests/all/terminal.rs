//! What a terminal shows of commands that take long.

use super::common::run::Rig;
use super::common::views;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

/// What a command writes to its terminal, line by line: escapes apart, and what it has written over as lines of their
/// own.
fn on_terminal(dir: &Path, words: &[&str]) -> Vec<String> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("unlock it");
    let name = ptsname(&terminal, Vec::new()).expect("its name");
    let side = openat(CWD, &*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).expect("open it");
    let mut command = views::command(env!("CARGO_BIN_EXE_wholly"));
    command.args(words).current_dir(dir).env("WHOLLY_REGISTRY", "").env("TERM", "xterm").stdin(Stdio::null());
    command.stdout(side.try_clone().expect("a copy")).stderr(side);
    let mut child = command.spawn().expect("run it");
    // The terminal ends with the last descriptor of its other side.
    drop(command);
    let mut shown = Vec::new();
    let mut terminal = std::fs::File::from(terminal);
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = terminal.read(&mut piece) {
        shown.extend(&piece[..read]);
    }
    assert!(child.wait().expect("its end").success(), "{}", String::from_utf8_lossy(&shown));
    plain(&String::from_utf8(shown).expect("UTF-8"))
}

fn plain(shown: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = shown;
    while let Some((before, escape)) = rest.split_once("\u{1b}[") {
        text += before;
        rest = escape.split_once(|char: char| char.is_ascii_alphabetic()).map_or("", |(_, rest)| rest);
    }
    text += rest;
    let lines = text.split(['\r', '\n']).map(|line| line.trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Progress is shown from the beginning on, with counts, and only then what a pipe gets too. A pipe gets no progress.
#[test]
fn what_takes_long_says_how_far_it_is() {
    let Some(rig) = Rig::new("terminal") else { return };
    let dir = rig.dir("from", "seq 1000 > a; mkdir d; echo b > d/b");
    let place = dir.parent().expect("a directory");
    let to = ["one-out", "two-out"];
    for (words, again, progress) in [
        (&["mkfs", "one-v", "--size", "16M"][..], &["mkfs", "two-v", "--size", "16M"][..], "making the volume: "),
        (&["import", "one-v", "from"], &["import", "two-v", "from"], "importing: 0 objects, 0 B"),
        (&["export", "one-v", to[0]], &["export", "two-v", to[1]], "exporting: 0 objects, 0 B"),
        (&["fsck", "-n", "one-v"], &["fsck", "-n", "two-v"], "checking  "),
        (
            &["run", "--dir", "from", "--verbose", "--", "sh", "-c", "echo c > from/c"],
            &["run", "--dir", "from", "--verbose", "--", "sh", "-c", "echo c >> from/c"],
            "committing: 0 names, 0 B written back",
        ),
        (&["init", to[0]], &["init", to[1]], ""),
        (&["recover", to[0]], &["recover", to[1]], "writing blocks back"),
    ] {
        let shown = on_terminal(place, words);
        let is_progress = |line: &&String| !progress.is_empty() && line.contains(progress);
        let piped = super::common::wholly_in(place, again);
        piped.exits(0);
        let told = [&*piped.out, &*piped.err].concat();
        assert!(!is_progress(&&told), "{words:?}: {told}");
        if !progress.is_empty() {
            assert!(shown.iter().any(|line| is_progress(&line)), "{words:?}: {shown:#?}");
        }
        let last = |lines: Vec<&str>| lines.last().map(|line| line.trim().replace("one-", "two-"));
        let (shown, told) = (shown.iter().map(|line| &**line).collect(), told.lines().collect());
        assert_eq!(last(shown), last(told), "{words:?}");
    }
}

#[test]
fn undo_says_how_far_it_is() {
    let Some(rig) = Rig::new("terminal-undo") else { return };
    let dir = rig.dir("dir", "echo a > a");
    assert!(super::common::run::run(&dir, &["--keep-undo", "1G"], "rm a").status.success());
    let shown = on_terminal(&dir, &["undo"]);
    assert!(shown.iter().any(|line| line.contains("taking it back: 0 names, 0 B written back")), "{shown:#?}");
    assert!(dir.join("a").exists());
}
