//! A store that is copied to another file system, or to a disk with other sectors: the table in docs/store.md.

use super::common::run::{Rig, run, shell, succeeds};
use super::common::{umount, wholly};
use std::path::{Path, PathBuf};
use wholly::{Options, Store};

/// File systems, each with what makes it in `image` and mounts it at `at`.
const TO: [(&str, &str); 5] = [
    ("ext4", "mkfs.ext4 -q image && mount -o loop image at"),
    ("ext4 of 4096", "dev=$(losetup -f --show -b 4096 image) && mkfs.ext4 -q $dev && mount $dev at && losetup -d $dev"),
    ("xfs", "mkfs.xfs -q image && mount -o loop image at"),
    ("btrfs", "mkfs.btrfs -q image && mount -o loop image at"),
    ("tmpfs", "mount -t tmpfs none at"),
];

const WAYS: [&str; 3] =
    ["cp -a $FROM $TO", "rsync -a $FROM/ $TO", "mkdir $TO; tar -C $FROM -cf - . | tar -C $TO -xf -"];

/// Verbs, each with its exit code.
type Verbs = &'static [(&'static str, i32)];

/// What is in the store, and the exit codes of verbs that find it in a copy; then those once the copy is accepted.
const HOLDS: [(&str, Verbs, Verbs); 4] = [
    ("nothing", &[("run", 0), ("check", 0), ("stat", 0), ("recover", 0), ("log", 0), ("deinit", 0)], &[("run", 0)]),
    ("groups", &[("run", 125), ("check", 4), ("stat", 0), ("recover", 8), ("log", 0), ("deinit", 8)], &[("run", 0)]),
    (
        "parked",
        &[("run", 0), ("check", 0), ("stat", 0), ("list", 0), ("recover", 0), ("apply", 8), ("deinit", 8)],
        &[("apply", 0), ("run", 0)],
    ),
    (
        "undo",
        &[("run", 0), ("check", 0), ("stat", 0), ("log", 0), ("recover", 0), ("undo", 8), ("deinit", 0)],
        &[("undo", 0), ("run", 0)],
    ),
];

/// Places on other file systems, unmounted on drop.
struct Place(PathBuf);

impl Place {
    fn new(rig: &Rig, name: &str, script: &str) -> Option<Place> {
        let dir = rig.dir(&format!("on-{}", name.replace(' ', "-")), "truncate -s 400M image; mkdir at");
        let made = shell(&dir, script).output().unwrap();
        if !made.status.success() {
            println!("no {name} here: {}", String::from_utf8_lossy(&made.stderr));
            return None;
        }
        Some(Place(dir.join("at")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        umount(&self.0);
    }
}

fn make(dir: &Path, holds: &str) {
    std::fs::create_dir(dir).unwrap();
    succeeds(&mut shell(dir, "echo 1 > f; echo removed > g"));
    let options = Options { background: false, ..Options::default() };
    match holds {
        "undo" => {
            let done = run(dir, &["--keep-undo", "1G"], "echo 2 > f; rm g; echo new > n");
            assert!(done.status.success(), "{done:?}");
        }
        "parked" => assert_eq!(run(dir, &["--park"], "echo new > n; rm -f gone").status.code(), Some(121)),
        _ => {
            Store::init(dir, &options).unwrap();
            let store = Store::open_with(dir, options, Default::default()).unwrap();
            let mut group = store.begin();
            let f = group.open_file("f").unwrap();
            group.write_at(&f, 0, b"2\n").unwrap();
            drop(f);
            group.commit().unwrap();
            match holds {
                "nothing" => store.close().unwrap(),
                // As a process that dies leaves it.
                _ => drop(store),
            }
        }
    }
}

/// What a clone has of a store: nothing, for `.wholly` keeps itself out of git. So it is a directory like any other.
#[test]
fn a_clone_has_no_store() {
    let Some(rig) = Rig::new("cloned") else { return };
    let plain = rig.dir("plain", "echo 1 > f; echo removed > g");
    for (holds, first, _) in HOLDS {
        let original = rig.path(holds);
        make(&original, holds);
        let git = "git init -q && git add -A && git -c user.name=a -c user.email=a@b.c commit -qm a";
        succeeds(&mut shell(&original, git));
        for (verb, _) in first.iter().chain(&[("apply", 0), ("undo", 0), ("init", 0)]) {
            let [clone, other] = ["clone", "other"].map(|name| rig.path(name));
            succeeds(
                shell(&plain, "git clone -q $FROM $TO; cp -a . $OTHER")
                    .env("FROM", &original)
                    .env("TO", &clone)
                    .env("OTHER", &other),
            );
            assert!(!clone.join(".wholly").exists());
            let said = |dir: &Path| {
                let (code, text) = call(dir, verb);
                (code, text.replace(dir.to_str().unwrap(), "DIR"))
            };
            let (is, wanted) = (said(&clone), said(&other));
            assert_eq!(is.0, wanted.0, "{holds}: {verb}: {}", is.1);
            assert_eq!(clone.join(".wholly").exists(), other.join(".wholly").exists(), "{holds}: {verb}");
            [clone, other].iter().for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
        }
    }
}

fn call(dir: &Path, verb: &str) -> (Option<i32>, String) {
    let at = dir.to_str().unwrap();
    let done = match verb {
        "run" => wholly(&["run", "--dir", at, "--keep-undo", "no", "--", "touch", &format!("{at}/touched")]),
        verb => wholly(&[verb, at]),
    };
    (done.code, format!("{}{}", done.out, done.err))
}

#[test]
fn a_copy_strands_nobody() {
    let Some(rig) = Rig::new("across") else { return };
    let places: Vec<_> =
        TO.iter().filter_map(|(name, script)| Some((*name, Place::new(&rig, name, script)?))).collect();
    let mut cells = 0;
    for (i, (from_name, from)) in places.iter().enumerate() {
        for (holds, first, accepted) in HOLDS {
            let original = from.0.join(format!("{holds}-original"));
            make(&original, holds);
            for (j, &(to_name, ref to)) in places.iter().enumerate() {
                // Each way to each place, from one place or another.
                let way = WAYS[(i + j) % WAYS.len()];
                let copy = || {
                    let copy = to.0.join("copy");
                    _ = std::fs::remove_dir_all(&copy);
                    succeeds(shell(&to.0, way).env("FROM", &original).env("TO", &copy));
                    copy
                };
                for (verb, code) in first {
                    let (said, text) = call(&copy(), verb);
                    assert_eq!(said, Some(*code), "{holds} from {from_name} to {to_name} by {way}: {verb}: {text}");
                    let is_pmem = text.contains("persistent memory") && to_name != "tmpfs";
                    assert!(!is_pmem, "{text}");
                    cells += 1;
                }
                let copy = copy();
                let accepted_with = wholly(&["recover", "--accept-copy", copy.to_str().unwrap()]);
                assert!(
                    matches!(accepted_with.code, Some(0 | 1)),
                    "{holds} from {from_name} to {to_name}: {}",
                    accepted_with.err
                );
                for (verb, code) in accepted {
                    let (said, text) = call(&copy, verb);
                    assert_eq!(
                        said,
                        Some(*code),
                        "{holds} from {from_name} to {to_name} by {way}, accepted: {verb}: {text}"
                    );
                    cells += 1;
                }
                let f = std::fs::read_to_string(copy.join("f")).unwrap();
                let is_old = matches!(holds, "undo" | "parked");
                assert_eq!(
                    (&*f, copy.join("g").exists()),
                    (if is_old { "1\n" } else { "2\n" }, true),
                    "{holds} to {to_name}"
                );
                std::fs::remove_dir_all(&copy).unwrap();
            }
            std::fs::remove_dir_all(&original).unwrap();
        }
    }
    println!("{cells} cells");
}
