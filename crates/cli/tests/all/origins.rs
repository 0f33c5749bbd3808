//! Stores that came from elsewhere: nothing that is written in them is executed before somebody has said so, whichever
//! verb is called.

use super::common::run::{Rig, succeeds};
use super::common::{self, may_run, wholly};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use wholly::log::checksum::checksum;
use wholly::{Options, ParkedId, Store};

/// What the store's groups would make: a set-user-id program of root's.
const TRAP: &str = "rootshell";

/// What there is in the store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Holds {
    /// A group in its log that is not written back.
    Log,
    /// A parked group.
    Parked,
}

/// How the store came where it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Copied,
    Cloned,
    Unpacked,
    /// From a backup, into the directory that it was made in.
    Restored,
    /// Its folder alone, whose owner is trusted, was moved to another directory.
    Swapped,
    /// A copy whose superblock names no origin.
    Nameless,
    ClonedNameless,
    /// A copy to which others may write.
    Writable,
}

const WAYS: [Way; 8] = [
    Way::Copied,
    Way::Cloned,
    Way::Unpacked,
    Way::Restored,
    Way::Swapped,
    Way::Nameless,
    Way::ClonedNameless,
    Way::Writable,
];

fn options() -> Options {
    Options { background: false, ..Options::default() }
}

/// Makes the store, which a process has used and left. Gives the id of what is parked.
fn make(dir: &Path, holds: Holds) -> ParkedId {
    fs::write(dir.join("file"), "of the user").unwrap();
    Store::init(dir, &options()).unwrap();
    let store = Store::open_with(dir, options(), Default::default()).unwrap();
    let mut group = store.begin();
    let file = group.create(TRAP, 0o4755).unwrap();
    group.write_at(&file, 0, b"#!").unwrap();
    drop(file);
    match holds {
        Holds::Log => {
            group.commit().unwrap();
            ParkedId(1)
        }
        Holds::Parked => {
            let id = group.park("a gift", None).unwrap();
            store.close().unwrap();
            id
        }
    }
}

/// The superblocks name no origin, as versions before left it until the first open.
fn forget_origin(dir: &Path) {
    const SEED: u64 = 0x5355_5045_5242_4c4b;
    let path = dir.join(".wholly/log");
    let mut log = fs::read(&path).unwrap();
    for slot in [0, 4096] {
        if &log[slot + 8..slot + 16] == b"WHOLLYSB" {
            log[slot + 48..slot + 64].fill(0);
            let sum = checksum(SEED, &log[slot + 8..slot + 128]);
            log[slot..slot + 8].copy_from_slice(&sum.to_le_bytes());
        }
    }
    fs::write(path, log).unwrap();
}

/// Brings the store in `dir` to another place in this way; returns its directory there.
fn bring(rig: &Rig, dir: &Path, way: Way) -> PathBuf {
    let to = rig.path(&format!("{way:?}"));
    let copy = |from: &Path, to: &Path| _ = succeeds(Command::new("cp").arg("-a").args([from, to]));
    let sh = |script: &str| {
        let mut command = common::run::shell(dir, script);
        _ = succeeds(command.env("TO", &to));
    };
    match way {
        Way::Copied => copy(dir, &to),
        Way::Unpacked => sh("tar -cf ../all.tar . && mkdir $TO && tar -xf ../all.tar -C $TO"),
        Way::Nameless => {
            copy(dir, &to);
            forget_origin(&to);
        }
        Way::Writable => {
            copy(dir, &to);
            fs::set_permissions(to.join(".wholly"), PermissionsExt::from_mode(0o770)).unwrap();
        }
        Way::Cloned | Way::ClonedNameless => {
            if way == Way::ClonedNameless {
                forget_origin(dir);
            }
            sh("git init -q . && git add -f -A && git commit -q -m all && git clone -q . $TO");
        }
        Way::Restored => {
            copy(dir, &to);
            fs::remove_dir_all(dir).unwrap();
            copy(&to, dir);
            return dir.to_path_buf();
        }
        Way::Swapped => {
            fs::create_dir(&to).unwrap();
            fs::rename(dir.join("file"), to.join("file")).unwrap();
            fs::rename(dir.join(".wholly"), to.join(".wholly")).unwrap();
        }
    }
    to
}

/// All that is in the directory but what tells who has opened it last.
fn state(dir: &Path) -> Vec<(PathBuf, u32, u32, Vec<u8>)> {
    let (mut all, mut todo) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let found = entry.symlink_metadata().unwrap();
            let is_told = !entry.ends_with(".wholly/lock");
            let bytes = if found.is_file() && is_told { fs::read(&entry).unwrap() } else { Vec::new() };
            if found.is_dir() {
                todo.push(entry.clone());
            }
            all.push((entry, found.mode(), found.uid(), bytes));
        }
    }
    all.sort();
    all
}

/// Whether a store that came so opens at all: it is as a store makes it, and nothing waits in its log.
fn opens(way: Way, holds: Holds) -> bool {
    holds == Holds::Parked && !matches!(way, Way::Cloned | Way::ClonedNameless | Way::Writable)
}

/// Verbs that do what is written in a store, or change it.
fn verbs(dir: &str, id: &str, out: &str, point: &str) -> Vec<Vec<String>> {
    let verbs: [&[&str]; 10] = [
        &["recover", dir],
        &["recover", "--release", dir],
        &["mount", dir, point],
        &["run", "--dir", dir, "--", "true"],
        &["undo", dir],
        &["apply", dir, id],
        &["apply", "--ours", dir, id],
        &["salvage", dir, out],
        &["deinit", dir],
        &["deinit", "--discard-parked", dir],
    ];
    verbs.iter().map(|verb| verb.iter().map(|word| word.to_string()).collect()).collect()
}

fn call(verb: &[String]) -> common::Run {
    wholly(&verb.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn what_came_from_elsewhere_is_not_executed() {
    if !may_run(&["git", "tar"]) {
        return;
    }
    for (way, holds) in WAYS.into_iter().flat_map(|way| [(way, Holds::Log), (way, Holds::Parked)]) {
        let Some(rig) = Rig::new(&format!("origin-{way:?}-{holds:?}")) else { return };
        let dir = rig.dir("made", "");
        let id = make(&dir, holds).to_string();
        let dir = bring(&rig, &dir, way);
        let (at, out, point) = (dir.to_str().unwrap(), rig.path("out"), rig.dir("point", ""));
        let before = state(&dir);
        for verb in ["stat", "check", "dump", "list", "log"] {
            let looked = wholly(&[verb, at]);
            assert!(matches!(looked.code, Some(0 | 4)), "{way:?} {holds:?} {verb}: {}", looked.err);
            assert!(state(&dir) == before, "{way:?} {holds:?} {verb}: looking has changed something");
        }
        for verb in verbs(at, &id, out.to_str().unwrap(), point.to_str().unwrap()) {
            let said = call(&verb);
            if verb[0] == "mount" && said.code == Some(0) {
                assert!(!point.join(TRAP).exists());
                common::umount(&point);
                common::wait_until_unused(&dir);
            }
            assert!(!dir.join(TRAP).exists() && !out.join(TRAP).exists(), "{way:?} {holds:?} {verb:?}: {}", said.err);
            if !opens(way, holds) {
                assert_ne!(said.code, Some(0), "{way:?} {holds:?} {verb:?}");
                let why = ["a copy: ", "others may write to", "nothing to take back"];
                assert!(why.iter().any(|why| said.err.contains(why)), "{way:?} {holds:?} {verb:?}: {}", said.err);
                assert!(state(&dir) == before, "{way:?} {holds:?} {verb:?}: who is refused has changed something");
            } else if verb[0] == "apply" {
                assert_eq!(said.code, Some(8), "{way:?} {verb:?}: {}", said.err);
                assert!(said.err.contains("original"), "{way:?} {verb:?}: {}", said.err);
            }
        }
        if opens(way, holds) {
            // The last verb has discarded it.
            continue;
        }
        // Somebody says so: then it is a store like any other, with what is in it.
        let accept: &[&str] = if way == Way::Writable { &["--trust-owner"] } else { &[] };
        let accepted = wholly(&[&["recover", "--accept-copy"], accept, &[at]].concat());
        assert!(matches!(accepted.code, Some(0 | 1)), "{way:?} {holds:?}: {}{}", accepted.out, accepted.err);
        if holds == Holds::Parked {
            wholly(&["apply", at, &id]).exits(0);
        }
        let made = fs::symlink_metadata(dir.join(TRAP)).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o4755, "{way:?} {holds:?}");
        assert_eq!(fs::metadata(dir.join(".wholly")).unwrap().mode() & 0o777, 0o700, "{way:?} {holds:?}");
        wholly(&["run", "--dir", at, "--", "true"]).exits(0);
    }
}

/// What is parked in a copy waits there, over any number of opens, until the copy is accepted.
#[test]
fn what_is_parked_in_a_copy_waits() {
    for way in [Way::Copied, Way::Restored, Way::Unpacked, Way::Swapped] {
        let Some(rig) = Rig::new(&format!("origin-waits-{way:?}")) else { return };
        let dir = rig.dir("made", "");
        let id = make(&dir, Holds::Parked).to_string();
        let dir = bring(&rig, &dir, way);
        let at = dir.to_str().unwrap();
        for _ in 0..3 {
            wholly(&["run", "--dir", at, "--", "true"]).exits(0);
            wholly(&["recover", at]).exits(0);
            wholly(&["apply", at, &id]).exits(8);
        }
        wholly(&["recover", "--accept-copy", at]).exits(0);
        wholly(&["apply", at, &id]).exits(0);
        assert!(dir.join(TRAP).exists(), "{way:?}");
    }
}

/// The same directory under another name is no copy.
#[test]
fn what_was_moved_or_is_mounted_elsewhere_is_the_same() {
    let Some(rig) = Rig::new("origin-same") else { return };
    let dir = rig.dir("made", "");
    make(&dir, Holds::Log);
    fs::set_permissions(dir.join(".wholly"), PermissionsExt::from_mode(0o755)).unwrap();
    let moved = rig.path("moved");
    fs::rename(&dir, &moved).unwrap();
    let point = rig.dir("point", "");
    succeeds(Command::new("mount").arg("--bind").args([&moved, &point]));
    let recovered = wholly(&["recover", point.to_str().unwrap()]);
    common::umount(&point);
    assert_eq!(recovered.code, Some(1), "{}{}", recovered.out, recovered.err);
    assert!(moved.join(TRAP).exists());
}

/// A file in the folder that belongs to another user is not read.
#[test]
fn what_somebody_else_owns_in_it_is_not_applied() {
    let Some(rig) = Rig::new("origin-inner") else { return };
    let dir = rig.dir("made", "");
    let id = make(&dir, Holds::Parked).to_string();
    let parked = fs::read_dir(dir.join(".wholly/parked")).unwrap().next().unwrap().unwrap().path();
    let at = dir.to_str().unwrap();
    chown(&parked, Some(12_345), None).unwrap();
    for verb in ["apply", "diff"] {
        let said = wholly(&[verb, at, &id]);
        said.exits(4);
        assert!(said.err.contains("another user can have written it"), "{}", said.err);
    }
    assert!(!dir.join(TRAP).exists());
    chown(&parked, Some(0), None).unwrap();
    wholly(&["apply", at, &id]).exits(0);
}
