//! `wholly check` and `wholly deinit` as a user meets them. What the check can find is tested in the core; here it is
//! how it is told.

use super::common::{Place, places};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn a_sound_store_has_nothing_wrong() {
    for place in places() {
        place.run(&["init"]).exits(0);
        let fresh = place.run(&["check"]);
        fresh.exits(0);
        assert!(fresh.out.contains("nothing is wrong; the log is empty"), "{}", fresh.out);
        place.crash_after_groups(3);
        let full = place.run(&["check", "--json"]).json();
        assert_eq!((&full["sound"], &full["groups"]), (&true.into(), &3.into()));
        assert!(full["findings"].as_array().unwrap().is_empty());
        assert_eq!(place.run(&["stat", "--json"]).json()["pending"]["groups"], 3, "nothing was recovered");
    }
}

/// A power cut in the midst of the write of a superblock leaves one of the two so. Verbs that look find no damage, and
/// the next open writes it again.
#[test]
fn a_torn_superblock_is_no_damage() {
    let mut torn = 0;
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(3);
        for slot in 0..2 {
            let mut whole = Vec::new();
            place.edit_log(|log| {
                whole = log[slot * 4096..][..4096].to_vec();
                log[slot * 4096 + 64..][..4032].fill(0);
            });
            let check = place.run(&["check"]);
            if check.code == Some(0) {
                torn += 1;
                place.run(&["stat"]).exits(0);
                let stat = place.run(&["stat", "--json"]).json();
                assert_eq!((&stat["pending"]["groups"], &stat["readable"]), (&3.into(), &true.into()), "{stat}");
                assert!(stat["faults"].as_array().unwrap().is_empty(), "{stat}");
                place.run(&["dump"]).exits(0);
            }
            place.edit_log(|log| log[slot * 4096..][..4096].copy_from_slice(&whole));
        }
        place.run(&["recover"]).exits(1);
    }
    assert_eq!(torn, 2, "the older one of both, on each medium");
}

#[test]
fn each_finding_has_a_line_with_place_and_advice() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(3);
        place.edit_log(|log| {
            let at = log.windows(100).position(|bytes| bytes == [1u8; 100]).expect("the payload of the first group");
            log[at + 50] ^= 4;
        });
        fs::write(place.dir.join("b"), "by an editor").unwrap();
        let run = place.run(&["check"]);
        run.exits(4);
        let lines: Vec<&str> = run.out.lines().collect();
        assert_eq!(lines.len(), 3, "{}", run.out);
        assert!(lines[0].starts_with("payload: log, byte "), "{}", run.out);
        assert!(lines[1].starts_with("file: b: its size was 1000 and is 12; neither version is lost ("), "{}", run.out);
        assert!(lines[2].contains("2 things wrong; 3 committed groups of "), "{}", run.out);
        let json: Value = serde_json::from_str(&place.run(&["check", "--json"]).out).unwrap();
        assert_eq!(json["output_version"], 7);
        assert_eq!((&json["findings"][1]["kind"], &json["findings"][1]["place"]), (&"file".into(), &"b".into()));
    }
}

#[test]
fn what_is_safe_is_repaired() {
    for place in places() {
        place.run(&["init"]).exits(0);
        let home = place.dir.join(".wholly");
        let spoil = || {
            fs::set_permissions(&home, Permissions::from_mode(0o755)).unwrap();
            fs::create_dir(place.dir.join(".wholly.unfinished-0")).unwrap();
        };
        spoil();
        place.run(&["check"]).exits(4);
        let repaired = place.run(&["check", "--repair"]);
        repaired.exits(1);
        assert_eq!(repaired.out.matches("; repaired\n").count(), 2, "{}", repaired.out);
        assert_eq!(home.metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        place.run(&["check", "--repair"]).exits(0);
        spoil();
        fs::write(home.join("notes"), "mine").unwrap();
        place.run(&["check", "--repair"]).exits(5);
        place.run(&["check", "--repair"]).exits(4);
        assert!(home.join("notes").exists());
    }
}

#[test]
fn a_store_in_use_is_neither_judged_nor_removed() {
    for place in places() {
        place.run(&["init"]).exits(0);
        let store = place.open();
        let owner = format!("process {} has the store open", std::process::id());
        for verb in ["check", "deinit"] {
            let busy = place.run(&[verb]);
            busy.exits(8);
            assert!(busy.err.contains(&owner), "{}", busy.err);
        }
        store.close().unwrap();
        place.run(&["check"]).exits(0);
    }
}

#[test]
fn deinit_leaves_an_ordinary_directory() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(3);
        let removed = place.run(&["deinit", "--json"]).json();
        assert_eq!(removed["groups"], 3);
        assert_current(&place, 3);
        let mut names: Vec<_> = fs::read_dir(&place.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "b"]);
        place.run(&["deinit"]).exits(8);
        place.run(&["init"]).exits(0);
    }
}

#[test]
fn deinit_refuses_what_cannot_go_home() {
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(3);
        fs::write(place.dir.join("b"), "by an editor").unwrap();
        let conflict = place.run(&["deinit"]);
        conflict.exits(4);
        assert!(conflict.err.contains("b was changed by another program"), "{}", conflict.err);
        assert_eq!(place.run(&["stat", "--json"]).json()["pending"]["groups"], 3);
    }
    for place in places() {
        place.run(&["init"]).exits(0);
        place.crash_after_groups(1);
        // The life that follows takes the bytes for durable.
        drop(place.open());
        place.edit_log(|log| {
            let at = log.windows(100).position(|bytes| bytes == [1u8; 100]).expect("the payload");
            log[at + 50] ^= 4;
        });
        let rot = place.run(&["deinit"]);
        rot.exits(4);
        assert!(rot.err.contains("the store is damaged at log, byte"), "{}", rot.err);
        assert!(place.dir.join(".wholly/log").exists());
    }
}

/// The command is killed at each call that changes something: what is left is a store that opens, or none, and files
/// that are whole. (A kill, not a power failure: what a power failure may leave of the checkpoint the crash explorer
/// tries, and the rest is one rename.)
#[test]
fn deinit_can_be_killed_at_any_call() {
    if Command::new("strace").arg("-V").output().is_err() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "there is no strace");
        eprintln!("skipped: there is no strace");
        return;
    }
    let (mut kept, mut gone) = (0, 0);
    for call in ["renameat2", "unlinkat", "fsync", "fdatasync", "pwritev2", "pwrite64"] {
        for which in 1..30 {
            let mut killed = false;
            for place in places() {
                place.run(&["init"]).exits(0);
                place.crash_after_groups(2);
                let inject = format!("inject={call}:signal=KILL:when={which}");
                let status = Command::new("strace")
                    .args(["-f", "-o", "/dev/null", "-e", &inject, env!("CARGO_BIN_EXE_wholly"), "deinit"])
                    .arg(&place.dir)
                    .stdout(std::process::Stdio::null())
                    .status()
                    .unwrap();
                killed |= !status.success();
                if place.dir.join(".wholly").exists() {
                    kept += 1;
                    let run = place.run(&["recover"]);
                    assert!([Some(0), Some(1)].contains(&run.code), "{call} {which}: {}{}", run.out, run.err);
                    place.run(&["deinit"]).exits(0);
                } else {
                    gone += 1;
                }
                assert_current(&place, 2);
                // What is left of the folder is nobody's.
                place.run(&["init"]).exits(0);
                let left = fs::read_dir(&place.dir).unwrap().count();
                assert_eq!(left, 3, "{call} {which}: a leftover stayed");
            }
            if !killed {
                break;
            }
        }
    }
    assert!(kept > 3 && gone > 3, "kills on both sides of the rename: {kept}, {gone}");
}

fn assert_current(place: &Place, byte: u8) {
    assert_eq!(fs::read(place.dir.join("a")).unwrap()[..100], [byte; 100]);
    assert_eq!(fs::read(place.dir.join("b")).unwrap()[100..200], [byte; 100]);
}
