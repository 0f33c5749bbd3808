//! Another user exchanges what is in his directory once a command of the superuser has ended there, while its changes
//! are written back: nothing comes of it outside of that directory.
//!
//! Needs root.

#[path = "../../../../core/tests/all/common/hostile.rs"]
#[allow(dead_code, reason = "what groups do there, the command does here")]
mod hostile;

use super::common::run::{Rig, run, shell, succeeds};
use super::common::{is_long, wholly};
use hostile::{SWAPS, exchange, furnish, look_before};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What [`hostile::change_all`] does, and then tells that it has.
const COMMAND: &str = "set -e; cd \"$1\"
    echo written > A/r/f; chmod 666 A/r/g; chown 1001:1001 A/r/g; ln A/r/k etc/k2; mv A/r/x etc/x2; mv A/r/d etc/d2
    rm A/r/y; rmdir A/r/z; mv etc/h A/r/h2; mv etc/h3 A/r/f2
    printf new > A/r/new; mkdir -m 777 A/r/newdir; echo > A/r/newdir/inner; ln -s target A/r/newlink; mkfifo -m 666 A/r/newfifo
    echo > ../ended";

/// Has the command's changes go home, with `during` run beside that from its end on.
fn go_home(rig: &Rig, name: &str, during: impl Fn(&Path, &AtomicBool) + Sync) {
    let place = rig.path(name);
    let (dir, ended) = (place.join("dir"), place.join("ended"));
    std::fs::create_dir_all(&dir).unwrap();
    furnish(&dir);
    let outside = look_before(&dir);
    let is_home = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.exists() && !is_home.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            during(&dir, &is_home);
        });
        // How it ends is another question: its changes must not have gone elsewhere.
        wholly(&["run", "--dir", dir.to_str().unwrap(), "--", "sh", "-c", COMMAND, "sh", dir.to_str().unwrap()]);
        is_home.store(true, Ordering::Relaxed);
    });
    assert!(ended.exists(), "{name}: the command has not ended");
    outside.check(&dir, name);
    std::fs::remove_dir_all(place).unwrap();
}

#[test]
fn exchanges_after_a_command_lead_nowhere() {
    let Some(rig) = Rig::new("links") else { return };
    for swap in SWAPS {
        let swaps = AtomicU64::new(0);
        for round in 0.. {
            if swaps.load(Ordering::Relaxed) >= 10_000 && round >= 5 {
                break;
            }
            go_home(&rig, &format!("{swap:?}"), |dir, is_home| {
                while !is_home.load(Ordering::Relaxed) {
                    // Until it is as it was.
                    for _ in 0..2 {
                        exchange(dir, swap);
                        swaps.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    }
}

/// And one exchange, for as long as its changes go home.
#[test]
fn one_exchange_after_a_command_leads_nowhere() {
    let Some(rig) = Rig::new("one-link") else { return };
    for swap in SWAPS {
        go_home(&rig, &format!("{swap:?}"), |dir, is_home| {
            exchange(dir, swap);
            while !is_home.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            exchange(dir, swap);
        });
    }
}

/// Without any, all of it is home.
#[test]
fn what_is_not_exchanged_goes_home() {
    let Some(rig) = Rig::new("no-link") else { return };
    let dir = rig.path("dir");
    std::fs::create_dir(&dir).unwrap();
    furnish(&dir);
    let outside = look_before(&dir);
    let command = format!("{COMMAND}; touch -d @0.000000005 A/r/g; chmod 666 A/r/new");
    let dir_name = dir.to_str().unwrap();
    wholly(&["run", "--dir", dir_name, "--", "sh", "-c", &command, "sh", dir_name]).exits(0);
    outside.check_home(&dir, "home");
}

/// What the folder that is put in the place of the store's own would make, if anybody did what is written in it.
const TRAP: &str = "rootshell";

/// A directory of another user in which there is a store of the superuser's, and beside that `evil`, a store's folder
/// of the user's: what is parked or kept there has the same number. Gives the directory, and that number.
fn furnish_with_folders(rig: &Rig, name: &str, is_undo: bool) -> (PathBuf, String) {
    let place = rig.path(name);
    let (dir, other) = (place.join("dir"), place.join("other"));
    let trap = format!("echo > {TRAP}; chmod 4755 {TRAP}");
    let script =
        format!("mkdir dir; cd dir; mkdir d; echo > d/file; echo > gone; {}", if is_undo { &trap } else { "" });
    std::fs::create_dir(&place).unwrap();
    succeeds(&mut shell(&place, &script));
    wholly(&["init", "--no-register", dir.to_str().unwrap()]).exits(0);
    succeeds(Command::new("cp").arg("-a").args([&dir, &other]));
    let (of_trap, of_file) = match is_undo {
        true => (format!("rm {TRAP}"), "rm gone"),
        false => (trap, "echo new > made"),
    };
    let options: &[&str] = if is_undo { &["--keep-undo", "1G"] } else { &["--park"] };
    run(&other, options, &of_trap);
    if is_undo {
        std::fs::remove_file(dir.join(TRAP)).unwrap();
    }
    run(&dir, options, of_file);
    let verb = if is_undo { "log" } else { "list" };
    let id = |dir: &Path| {
        let listed = wholly(&[verb, "--json", dir.to_str().unwrap()]).json();
        let list = if is_undo { &listed["undos"] } else { &listed["groups"] };
        list[0]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(id(&dir), id(&other));
    let id = id(&dir);
    std::fs::rename(other.join(".wholly"), dir.join("evil")).unwrap();
    succeeds(Command::new("chown").args(["-R", "1000:1000"]).arg(dir.join("evil")));
    chown(&dir, Some(1000), Some(1000)).unwrap();
    (dir, id)
}

/// The owner of the directory exchanges the store's folder, without end, while a verb of the superuser works in it.
#[test]
fn exchanges_of_the_folder_lead_nowhere() {
    let Some(rig) = Rig::new("folder") else { return };
    let rounds = if is_long() { 50 } else { 3 };
    let change = "echo x > d/new; chmod 4755 d/new; rm gone; mv d moved";
    for verb in ["apply", "undo", "run", "recover", "discard", "deinit"] {
        for round in 0..rounds {
            let name = format!("{verb}-{round}");
            let (dir, id) = furnish_with_folders(&rig, &name, verb == "undo");
            let (is_over, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
            let exchange = || {
                let [a, b] = [".wholly", "evil"].map(|name| dir.join(name));
                swaps.fetch_add(1, Ordering::Relaxed);
                renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE)
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        // Until it is as it was. There may be none any more.
                        let _ = exchange().and_then(|()| exchange());
                    }
                });
                let at = dir.to_str().unwrap();
                // How it ends is another question: nothing of the other folder must have been done.
                match verb {
                    "run" => wholly(&["run", "--dir", at, "--", "sh", "-c", &format!("cd {at}; {change}")]),
                    "undo" | "recover" => wholly(&[verb, at]),
                    "deinit" => wholly(&[verb, "--discard-parked", at]),
                    _ => wholly(&[verb, at, &id]),
                };
                is_over.store(true, Ordering::Relaxed);
            });
            let of_root = |path: &Path| std::fs::symlink_metadata(path).is_ok_and(|found| found.uid() == 0);
            assert!(!of_root(&dir.join(TRAP)), "{name}: {swaps:?} exchanges");
            std::fs::remove_dir_all(rig.path(&name)).unwrap();
        }
    }
}
