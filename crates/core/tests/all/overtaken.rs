//! Groups that are committed, or parked where a program that bypasses the store has overtaken them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::common::{open_on, stores_of_files};
use rustix::fs::{Mode, XattrFlags};
use wholly::{Error, Fallocate, Group, Rename, SetXattr, StoreVfs};
use wholly_vfs::{Context, Groups, Ino, Vfs};

/// All that is in the directory, the store's own folder excepted: type and mode, owner, inode, bytes.
fn tree(dir: &Path) -> BTreeMap<String, (u32, u32, u64, Vec<u8>)> {
    let (mut all, mut todo) = (BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            let meta = fs::symlink_metadata(&path).unwrap();
            if name == ".wholly" {
                continue;
            }
            let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if meta.is_dir() {
                todo.push(path);
            }
            all.insert(name, (meta.mode(), meta.uid(), meta.ino(), bytes));
        }
    }
    all
}

/// What becomes of a parked group once what was done is undone.
enum Undone {
    /// It can be applied.
    By(fn(&Path)),
    /// It cannot be undone.
    Never,
    /// What has moved is found where it is by now: it can be applied as it is.
    Moved,
}
use Undone::{By, Moved, Never};

struct Case {
    name: &'static str,
    group: fn(&mut Group<'_>),
    bystander: fn(&Path),
    told: &'static [&'static str],
    undone: Undone,
}

fn write_a(group: &mut Group<'_>) {
    let a = group.open_file("a").unwrap();
    group.write_at(&a, 1, b"E").unwrap();
}

fn remove_d(group: &mut Group<'_>) {
    group.unlink("d/b").unwrap();
    group.rmdir("d").unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn append(path: &Path) {
    use std::io::Write;
    fs::File::options().append(true).open(path).unwrap().write_all(b"!!!").unwrap();
}

fn tag(path: &Path, value: &[u8]) {
    let path = path.as_os_str().as_encoded_bytes();
    rustix::fs::setxattr(path, "user.tag", value, XattrFlags::empty()).unwrap();
}

const CASES: &[Case] = &[
    Case {
        name: "content changed",
        group: write_a,
        bystander: |dir| {
            fs::write(dir.join("a"), "HALLO").unwrap();
            let later = SystemTime::now() + Duration::from_secs(10);
            fs::File::options().write(true).open(dir.join("a")).unwrap().set_modified(later).unwrap();
        },
        told: &["a: its content has been changed"],
        undone: Never,
    },
    Case {
        name: "appended",
        group: write_a,
        bystander: |dir| append(&dir.join("a")),
        told: &["a: its content has been changed: it had 5 bytes and has 8"],
        undone: Never,
    },
    Case {
        name: "truncated",
        group: |group| {
            let b = group.open_file("d/b").unwrap();
            group.fallocate(&b, Fallocate::Punch, 0, 4096).unwrap();
        },
        bystander: |dir| fs::File::options().write(true).open(dir.join("d/b")).unwrap().set_len(100).unwrap(),
        told: &["d/b: its content has been changed: it had 12000 bytes and has 100"],
        undone: Never,
    },
    Case {
        name: "removed",
        group: write_a,
        bystander: |dir| fs::remove_file(dir.join("a")).unwrap(),
        told: &["a: it is gone"],
        undone: Never,
    },
    Case {
        name: "moved away",
        group: write_a,
        bystander: |dir| fs::rename(dir.join("a"), dir.join("away")).unwrap(),
        told: &["a: it is gone"],
        undone: Moved,
    },
    Case {
        name: "moved away and back",
        group: |group| group.rename("d", "e/d", Rename::NoReplace).unwrap(),
        bystander: |dir| fs::rename(dir.join("d"), dir.join("away")).unwrap(),
        told: &["d: it is gone"],
        undone: By(|dir| fs::rename(dir.join("away"), dir.join("d")).unwrap()),
    },
    Case {
        name: "replaced",
        group: write_a,
        bystander: |dir| {
            fs::hard_link(dir.join("a"), dir.join("old")).unwrap();
            fs::write(dir.join("new"), "better").unwrap();
            fs::rename(dir.join("new"), dir.join("a")).unwrap();
        },
        told: &["a: something else has its name"],
        undone: Moved,
    },
    Case {
        name: "replaced by a directory",
        group: |group| group.rename("a", "e/a", Rename::Replace).unwrap(),
        bystander: |dir| {
            fs::rename(dir.join("a"), dir.join("old")).unwrap();
            fs::create_dir(dir.join("a")).unwrap();
        },
        told: &["a: something else has its name"],
        undone: By(|dir| {
            fs::remove_dir(dir.join("a")).unwrap();
            fs::rename(dir.join("old"), dir.join("a")).unwrap();
        }),
    },
    Case {
        name: "made",
        group: |group| {
            let n = group.create("n", 0o600).unwrap();
            group.append(&n, b"ours").unwrap();
        },
        bystander: |dir| fs::write(dir.join("n"), "theirs").unwrap(),
        told: &["n: something has been made there"],
        undone: By(|dir| fs::remove_file(dir.join("n")).unwrap()),
    },
    Case {
        name: "mode",
        group: |group| group.set_mode("a", 0o600).unwrap(),
        bystander: |dir| set_mode(&dir.join("a"), 0o640),
        told: &["a: its mode has been changed"],
        undone: By(|dir| set_mode(&dir.join("a"), 0o644)),
    },
    Case {
        name: "mode of a directory",
        group: |group| group.set_mode("e", 0o700).unwrap(),
        bystander: |dir| set_mode(&dir.join("e"), 0o750),
        told: &["e: its mode has been changed"],
        undone: Never,
    },
    Case {
        name: "attribute",
        group: |group| group.set_xattr("a", "user.tag", b"ours", SetXattr::Any).unwrap(),
        bystander: |dir| tag(&dir.join("a"), b"theirs"),
        told: &["a: its attribute user.tag has been changed"],
        undone: By(|dir| {
            let path = dir.join("a");
            rustix::fs::removexattr(path.as_os_str().as_encoded_bytes(), "user.tag").unwrap();
        }),
    },
    Case {
        name: "put into a directory that goes",
        group: remove_d,
        bystander: |dir| fs::write(dir.join("d/late"), "late").unwrap(),
        told: &["d/late: it has been put into a directory that the group removes"],
        undone: By(|dir| fs::remove_file(dir.join("d/late")).unwrap()),
    },
    Case {
        name: "a directory is moved away",
        group: |group| drop(group.create("e/c", 0o600).unwrap()),
        bystander: |dir| fs::rename(dir.join("e"), dir.join("f")).unwrap(),
        told: &["e: it is gone"],
        undone: Moved,
    },
    Case {
        name: "a directory is another one",
        group: |group| {
            group.mkdir("e/new", 0o700).unwrap();
            drop(group.create("e/new/c", 0o600).unwrap());
        },
        bystander: |dir| {
            fs::rename(dir.join("e"), dir.join("f")).unwrap();
            fs::create_dir(dir.join("e")).unwrap();
        },
        told: &["e: something else has its name"],
        undone: Moved,
    },
    Case {
        name: "changed and removed",
        group: |group| group.unlink("a").unwrap(),
        bystander: |dir| append(&dir.join("a")),
        told: &["a: its content has been changed: it had 5 bytes and has 8"],
        undone: Never,
    },
    Case {
        name: "removed twice",
        group: remove_d,
        bystander: |dir| fs::remove_dir_all(dir.join("d")).unwrap(),
        told: &["d: it is gone", "d/b: it is gone"],
        undone: Never,
    },
];

/// With what other groups, and passes, do meanwhile, and without.
#[test]
fn what_a_bystander_has_overtaken_is_parked() {
    for case in CASES {
        for busy in [false, true] {
            for (dir, medium) in stores_of_files("overtaken") {
                let name = format!("{}, busy: {busy}, {medium:?}", case.name);
                let store = open_on(&dir, medium);
                let others = |file: &str| {
                    if busy {
                        store.create_file(file, 0o600).unwrap().append(b"of others").unwrap();
                        store.checkpoint().unwrap();
                    }
                };
                let mut group = store.begin();
                (case.group)(&mut group);
                others("before");
                (case.bystander)(&dir);
                others("behind");
                let left = tree(&dir);
                let done = group.commit_or_park("late", None);
                let Err(Error::ChangedMeanwhile(id, what)) = done else { panic!("{name}: {done:?}") };
                assert_eq!(what.iter().map(ToString::to_string).collect::<Vec<_>>(), case.told, "{name}");
                store.checkpoint().unwrap();
                assert_eq!(tree(&dir), left, "{name}");
                drop(store);
                let store = open_on(&dir, medium);
                assert_eq!(store.parked().unwrap()[0].note, "late", "{name}");
                drop(store.review(id).unwrap());
                let again = store.apply(id);
                assert_eq!(again.is_ok(), matches!(case.undone, Moved), "{name}: {again:?}");
                if let By(undo) = case.undone {
                    undo(&dir);
                    store.apply(id).unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                store.close().unwrap();
                assert!(wholly::check(&*dir).unwrap().is_sound(), "{name}");
            }
        }
    }
}

#[test]
fn another_owner_is_found() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "owners take the superuser");
        return println!("skipped: owners take the superuser");
    }
    for (dir, medium) in stores_of_files("overtaken-owner") {
        let store = open_on(&dir, medium);
        let mut group = store.begin();
        group.set_owner("a", Some(1), None).unwrap();
        chown(dir.join("a"), Some(2), None).unwrap();
        let done = group.commit_or_park("", None);
        let Err(Error::ChangedMeanwhile(id, what)) = done else { panic!("{done:?}") };
        assert_eq!(what[0].to_string(), "a: its owner has been changed");
        chown(dir.join("a"), Some(0), None).unwrap();
        store.apply(id).unwrap();
        store.close().unwrap();
        assert_eq!(fs::metadata(dir.join("a")).unwrap().uid(), 1);
    }
}

/// What only looks like it: reading, the store's own passes, other groups in the same directories, what others have
/// committed that is not home.
#[test]
fn nothing_else_counts_as_a_bystander() {
    for passes in 0..16u32 {
        for (dir, medium) in stores_of_files("overtaken-not") {
            let store = open_on(&dir, medium);
            let pass = |n: u32| {
                if passes & 1 << n != 0 {
                    store.checkpoint().unwrap();
                }
            };
            let mut first = store.begin();
            write_a(&mut first);
            first.set_mode("a", 0o640).unwrap();
            first.mkdir("n", 0o700).unwrap();
            let made = first.create("n/made", 0o600).unwrap();
            first.append(&made, b"made").unwrap();
            first.rename("d/b", "n/b", Rename::NoReplace).unwrap();
            first.set_xattr("e", "user.tag", b"1", SetXattr::Any).unwrap();
            first.commit().unwrap();
            pass(0);
            let mut group = store.begin();
            let a = group.open_file("a").unwrap();
            group.append(&a, b" world").unwrap();
            group.set_mode("a", 0o600).unwrap();
            group.append(&made, b" twice").unwrap();
            group.link("n/b", "e/b").unwrap();
            pass(1);
            group.unlink("n/b").unwrap();
            group.rename("n/made", "e/made", Rename::NoReplace).unwrap();
            group.rmdir("n").unwrap();
            group.set_xattr("e", "user.tag", b"2", SetXattr::Replace).unwrap();
            let large = group.create("e/large", 0o600).unwrap();
            group.append(&large, &vec![1; 1 << 20]).unwrap();
            // Others, in the same directories, and somebody who only reads.
            store.create_file("other", 0o600).unwrap().append(b"x").unwrap();
            store.create_file("e/other", 0o600).unwrap();
            store.unlink("other").unwrap();
            fs::read(dir.join("a")).unwrap();
            pass(2);
            store.mkdir("d/more", 0o700).unwrap();
            fs::read_dir(dir.join("e")).unwrap().count();
            pass(3);
            group.commit_or_park("", None).unwrap_or_else(|error| panic!("{passes:b}, {medium:?}: {error}"));
            drop((made, a, large));
            store.close().unwrap();
            assert_eq!(fs::read(dir.join("a")).unwrap(), b"hEllo world");
            assert_eq!(fs::read(dir.join("e/made")).unwrap(), b"made twice");
            assert_eq!(fs::read(dir.join("e/b")).unwrap().len(), 12_000);
            assert!(!dir.join("n").exists() && dir.join("d/more").exists());
        }
    }
}

/// A pass changes files before it tells the table.
#[test]
fn a_pass_in_the_middle_counts_as_none() {
    for (dir, medium) in stores_of_files("overtaken-pass") {
        let store = open_on(&dir, medium);
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("d/b").unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    store.checkpoint().unwrap();
                }
            });
            let groups = || {
                for i in 0..300u32 {
                    let mut group = store.begin();
                    group.append(&a, b"a")?;
                    group.write_at(&b, u64::from(i) * 100, &[8; 100])?;
                    group.set_mode("d/b", 0o600 | i & 1)?;
                    group.create(format!("e/{i}"), 0o600)?;
                    if i >= 2 {
                        group.rename(format!("e/{}", i - 1), format!("e/x{i}"), Rename::NoReplace)?;
                        group.unlink(format!("e/{}", i - 2)).or_else(|_| group.unlink(format!("e/x{}", i - 1)))?;
                    }
                    group.commit_or_park("", None)?;
                }
                Ok::<_, Error>(())
            };
            let result = groups();
            done.store(true, Ordering::Release);
            result.unwrap_or_else(|error| panic!("{medium:?}: {error}"));
        });
        drop((a, b));
        store.close().unwrap();
        assert_eq!(fs::metadata(dir.join("a")).unwrap().len(), 305);
    }
}

/// What is committed and cannot go home keeps a group that builds on it from being parked. In the log both are safe.
#[test]
fn what_cannot_be_parked_is_committed_behind_a_conflict() {
    for (dir, medium) in stores_of_files("overtaken-conflict") {
        let store = open_on(&dir, medium);
        let made = store.create_file("made", 0o600).unwrap();
        let mut group = store.begin();
        group.append(&made, b"more").unwrap();
        write_a(&mut group);
        fs::write(dir.join("made"), "theirs").unwrap();
        append(&dir.join("a"));
        let left = tree(&dir);
        group.commit_or_park("", None).unwrap();
        assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })));
        assert_eq!(tree(&dir), left);
        let mut bytes = [0; 4];
        assert_eq!((made.read_at(0, &mut bytes).unwrap(), &bytes), (4, b"more"));
        // Once the one is settled, the other stands.
        fs::remove_file(dir.join("made")).unwrap();
        let error = store.checkpoint().unwrap_err();
        assert!(matches!(&error, Error::Conflict { path, .. } if path == "a"), "{error}");
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"hello!!!");
    }
}

#[test]
fn a_group_of_a_view_is_looked_at_and_parked_too() {
    for (dir, medium) in stores_of_files("overtaken-view") {
        let store = open_on(&dir, medium);
        let view = StoreVfs::new(&store);
        let in_group = |group| Context {
            group: Some(group),
            ..Context::of(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        let make = |group| {
            let made = view.mkdir(&in_group(group), Ino::ROOT, b"new", Mode::RWXU).unwrap();
            view.forget(made.ino, 1);
        };
        let group = view.begin().unwrap();
        make(group);
        assert_eq!(view.changed_meanwhile(group).unwrap(), []);
        fs::write(dir.join("new"), "theirs").unwrap();
        let what = view.changed_meanwhile(group).unwrap();
        assert_eq!(what.iter().map(ToString::to_string).collect::<Vec<_>>(), ["new: something has been made there"]);
        let done = view.commit_or_park(group, "of a view", Some(Duration::from_secs(1000)));
        let Err(Error::ChangedMeanwhile(id, told)) = done else { panic!("{done:?}") };
        assert_eq!(told[..], what);
        assert!(view.changed_meanwhile(group).is_err(), "it has ended");
        assert!(store.parked().unwrap()[0].expires_ns.is_some());
        fs::remove_file(dir.join("new")).unwrap();
        store.apply(id).unwrap();
        store.rmdir("new").unwrap();

        let group = view.begin().unwrap();
        make(group);
        view.commit_or_park(group, "", None).unwrap();
        assert!(store.metadata("new").is_ok());
        drop(view);
        store.close().unwrap();
        assert!(dir.join("new").is_dir());
    }
}

/// A file that nobody has open is removed by a group, and a pass takes an earlier rename of it home meanwhile: what is
/// in it is still what the group has claimed.
#[test]
fn a_pass_does_not_forget_how_a_claimed_file_lay() {
    for (dir, medium) in stores_of_files("overtaken-renamed") {
        let store = open_on(&dir, medium);
        store.rename("a", "moved", Rename::NoReplace).unwrap();
        let mut group = store.begin();
        group.unlink("moved").unwrap();
        store.checkpoint().unwrap();
        fs::write(dir.join("moved"), "by an editor").unwrap();
        let Err(Error::ChangedMeanwhile(id, what)) = group.commit_or_park("", None) else {
            panic!("it has been overtaken")
        };
        assert!(
            what.len() == 1 && what[0].path.as_os_str() == "moved" && what[0].what.contains("5 bytes and has 12"),
            "{what:?}"
        );
        store.discard(id).unwrap();
        // Without a bystander the rename is no change by others.
        let mut group = store.begin();
        group.unlink("moved").unwrap();
        store.rename("d/b", "d/c", Rename::NoReplace).unwrap();
        store.checkpoint().unwrap();
        group.commit_or_park("", None).unwrap();
        store.rename("d/c", "c", Rename::NoReplace).unwrap();
        let mut group = store.begin();
        group.unlink("c").unwrap();
        store.checkpoint().unwrap();
        group.commit_or_park("", None).unwrap();
        store.close().unwrap();
        assert!(!dir.join("moved").exists() && !dir.join("c").exists());
    }
}
