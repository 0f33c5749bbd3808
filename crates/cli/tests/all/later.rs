//! What a later version of Wholly has written is refused in words, called no damage, and left as it is.

use super::common::run::{Rig, run};
use super::common::{self, Place, wholly};
use std::fs;
use std::path::{Path, PathBuf};
use wholly::log::checksum::checksum;

/// The files in a folder of `.wholly`, however deep.
fn files(dir: &Path, folder: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut dirs = vec![dir.join(".wholly").join(folder)];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.expect("an entry").path();
            if path.is_dir() { dirs.push(path) } else { all.push(path) }
        }
    }
    all
}

/// Gives all heads of parked groups in a folder the version 99.
fn make_later(dir: &Path, folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut made = Vec::new();
    for path in files(dir, folder) {
        let mut bytes = fs::read(&path).expect("read");
        if bytes.get(8..16) != Some(b"WHOLLYPG") {
            continue;
        }
        bytes[16..20].copy_from_slice(&99u32.to_le_bytes());
        let sum = checksum(0, &bytes[8..4096]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        fs::write(&path, &bytes).expect("write");
        made.push((path, bytes));
    }
    assert!(!made.is_empty());
    made
}

fn expect_kept(made: &[(PathBuf, Vec<u8>)]) {
    made.iter().for_each(|(path, bytes)| assert!(fs::read(path).expect("it is there") == *bytes, "{}", path.display()));
}

const LATER: &str = "written by a later version of Wholly, which can read it";

#[test]
fn a_parked_group_of_a_later_version() {
    let Some(rig) = Rig::new("later-parked") else { return };
    let dir = rig.dir("dir", "echo one > a");
    assert_eq!(run(&dir, &["--park"], "echo two > a").status.code(), Some(121));
    let made = make_later(&dir, "parked");
    let here = |words: &[&str]| common::wholly_in(&dir, words);
    let list = here(&["list"]);
    list.exits(0);
    assert!(list.out.contains(LATER) && !list.out.contains("damage"), "{}", list.out);
    let id = here(&["--json", "list"]).json()["groups"][0]["id"].as_str().expect("an id").to_owned();
    for verb in ["diff", "apply", "discard"] {
        let newest = here(&[verb]);
        newest.exits(8);
        assert!(newest.err.contains(&format!("group {id} is {LATER}")), "{}", newest.err);
    }
    for verb in ["diff", "apply"] {
        let named = here(&[verb, ".", &id]);
        named.exits(8);
        assert!(named.err.contains("a later version of Wholly wrote it"), "{}", named.err);
    }
    here(&["check"]).exits(0);
    here(&["recover"]).exits(0);
    // Other groups live beside it.
    assert_eq!(run(&dir, &["--park"], "echo three > a").status.code(), Some(121));
    here(&["apply"]).exits(0);
    assert_eq!(fs::read(dir.join("a")).expect("read"), b"three\n");
    expect_kept(&made);
    // `discard` with its id removes it.
    here(&["discard", ".", &id]).exits(0);
}

#[test]
fn an_undo_of_a_later_version() {
    let Some(rig) = Rig::new("later-undo") else { return };
    let dir = rig.dir("dir", "echo one > a; echo b > b");
    assert_eq!(run(&dir, &["--keep-undo", "1G"], "rm b; echo two > a").status.code(), Some(0));
    let made = make_later(&dir, "undo");
    let here = |words: &[&str]| common::wholly_in(&dir, words);
    let log = here(&["log"]);
    log.exits(0);
    assert!(log.out.contains(LATER) && !log.out.contains("damage"), "{}", log.out);
    let undo = here(&["undo"]);
    undo.exits(8);
    assert!(undo.err.contains("later version of Wholly"), "{}", undo.err);
    here(&["check"]).exits(0);
    assert_eq!(run(&dir, &["--keep-undo", "1G"], "echo three > a").status.code(), Some(0));
    here(&["undo"]).exits(0);
    assert_eq!(fs::read(dir.join("a")).expect("read"), b"two\n");
    expect_kept(&made);
}

#[test]
fn a_store_of_a_later_version() {
    for place in [Place::on_memory(), Place::on_disk()] {
        place.run(&["init"]).exits(0);
        place.open().close().expect("close it");
        place.edit_log(|log| {
            const SEED: u64 = 0x5355_5045_5242_4c4b;
            for slot in [0, 4096] {
                log[slot + 16] += 1;
                let sum = checksum(SEED, &log[slot + 8..slot + 128]);
                log[slot..slot + 8].copy_from_slice(&sum.to_le_bytes());
            }
        });
        let before = fs::read(place.dir.join(".wholly/log")).expect("read");
        let out = place.dir.with_extension("out").display().to_string();
        let dir = place.dir.to_str().expect("UTF-8");
        for verb in [&["stat"][..], &["dump"], &["check"], &["recover"], &["deinit"], &["salvage"]] {
            let more = if verb == ["salvage"] { vec![dir, &out] } else { vec![dir] };
            let refused = wholly(&[verb, &more].concat());
            refused.exits(8);
            assert!(refused.err.contains("this program supports 4, a newer one is needed"), "{}", refused.err);
        }
        assert!(fs::read(place.dir.join(".wholly/log")).expect("read") == before);
    }
}
