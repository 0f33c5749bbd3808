//! Parked groups that are applied over what others have changed meanwhile: what the group says wins, what it does not
//! hold is refused by name, and the undo brings back what was replaced.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use crate::common::{Dir, quiet};
use wholly::{Error, Group, KeepUndo, Options, ParkedId, Rename, Store};
use wholly_host::{HostMedium, HostOptions};

/// What there is at each path: permission bits, and content or target.
fn tree(dir: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    let (mut all, mut todo) = (BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path == dir.join(".wholly") {
                continue;
            }
            let stat = fs::symlink_metadata(&path).unwrap();
            let content = match stat.file_type() {
                kind if kind.is_dir() => b"/".to_vec(),
                kind if kind.is_symlink() => fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                kind if kind.is_fifo() => b"|".to_vec(),
                _ => fs::read(&path).unwrap(),
            };
            if stat.is_dir() {
                todo.push(path.clone());
            }
            let path = path.strip_prefix(dir).unwrap().to_str().unwrap().to_string();
            all.insert(path, (stat.mode() & 0o7777, content));
        }
    }
    all
}

fn replace(path: &Path, content: &str) {
    let other = path.with_extension("new");
    fs::write(&other, content).unwrap();
    fs::rename(other, path).unwrap();
}

/// Writes all of a file, as a shell's `>` does.
fn rewrite(group: &mut Group<'_>, path: &str, content: &[u8]) {
    let file = group.open_file(path).unwrap();
    group.set_len(&file, 0).unwrap();
    group.append(&file, content).unwrap();
}

fn new_file(group: &mut Group<'_>, path: &str, content: &[u8]) {
    let file = group.create(path, 0o644).unwrap();
    group.append(&file, content).unwrap();
}

/// One thing that a group does, and what others do meanwhile.
struct Case {
    name: &'static str,
    group: fn(&mut Group<'_>),
    others: fn(&Path),
    /// What there is then: of each path that the case is about its content; `-` for nothing, `/` for a directory.
    then: &'static [(&'static str, &'static str)],
    /// What is refused instead, each in full.
    refused: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        name: "a file that is rewritten was changed",
        group: |group| rewrite(group, "a", b"theirs"),
        others: |dir| fs::write(dir.join("a"), "changed and longer").unwrap(),
        then: &[("a", "theirs")],
        refused: &[],
    },
    Case {
        name: "a file that is rewritten was replaced",
        group: |group| rewrite(group, "a", b"theirs"),
        others: |dir| replace(&dir.join("a"), "another one"),
        then: &[("a", "theirs")],
        refused: &[],
    },
    Case {
        name: "a file that is rewritten is gone",
        group: |group| rewrite(group, "d/b", b"theirs"),
        others: |dir| fs::remove_file(dir.join("d/b")).unwrap(),
        then: &[],
        refused: &["d/b: it is gone"],
    },
    Case {
        name: "a file that is rewritten is a link by now",
        group: |group| rewrite(group, "a", b"theirs"),
        others: |dir| {
            fs::remove_file(dir.join("a")).unwrap();
            symlink("d/b", dir.join("a")).unwrap();
        },
        then: &[],
        refused: &["a: it is gone"],
    },
    Case {
        name: "a file that is replaced was changed, or replaced",
        group: |group| {
            for path in ["a", "d/b"] {
                new_file(group, "new", path.as_bytes());
                group.rename("new", path, Rename::Replace).unwrap();
            }
        },
        others: |dir| {
            fs::write(dir.join("a"), "changed").unwrap();
            replace(&dir.join("d/b"), "another one");
        },
        then: &[("a", "a"), ("d/b", "d/b"), ("new", "-")],
        refused: &[],
    },
    Case {
        name: "a file that is replaced is gone",
        group: |group| {
            new_file(group, "new", b"theirs");
            group.rename("new", "f", Rename::Replace).unwrap();
        },
        others: |dir| fs::remove_file(dir.join("f")).unwrap(),
        then: &[],
        refused: &["f: it is gone"],
    },
    Case {
        name: "a file that is removed was changed, replaced, or is gone",
        group: |group| ["a", "d/b", "f"].into_iter().for_each(|path| group.unlink(path).unwrap()),
        others: |dir| {
            fs::write(dir.join("a"), "changed").unwrap();
            replace(&dir.join("d/b"), "another one");
            fs::remove_file(dir.join("f")).unwrap();
        },
        then: &[("a", "-"), ("d/b", "-"), ("f", "-")],
        refused: &[],
    },
    Case {
        name: "something has the name of what is made",
        group: |group| {
            new_file(group, "x", b"theirs");
            new_file(group, "y", b"theirs");
            group.symlink("x", "z").unwrap();
        },
        others: |dir| {
            fs::write(dir.join("x"), "mine").unwrap();
            fs::create_dir(dir.join("y")).unwrap();
            symlink("a", dir.join("z")).unwrap();
        },
        then: &[("x", "theirs"), ("y", "theirs"), ("z", "x")],
        refused: &[],
    },
    Case {
        name: "a directory that is made is there already",
        group: |group| {
            group.mkdir("n", 0o755).unwrap();
            group.mkdir("n/m", 0o755).unwrap();
            new_file(group, "n/m/x", b"theirs");
            new_file(group, "n/y", b"theirs");
        },
        others: |dir| {
            fs::create_dir_all(dir.join("n/m")).unwrap();
            fs::write(dir.join("n/m/x"), "mine").unwrap();
            fs::write(dir.join("n/m/other"), "mine").unwrap();
        },
        then: &[("n/m/x", "theirs"), ("n/y", "theirs"), ("n/m/other", "mine")],
        refused: &[],
    },
    Case {
        name: "a directory in which something is made is another one",
        group: |group| new_file(group, "d/x", b"theirs"),
        others: |dir| {
            fs::remove_dir_all(dir.join("d")).unwrap();
            fs::create_dir(dir.join("d")).unwrap();
            fs::write(dir.join("d/x"), "mine").unwrap();
            fs::write(dir.join("d/other"), "mine").unwrap();
        },
        then: &[("d/x", "theirs"), ("d/other", "mine")],
        refused: &[],
    },
    Case {
        name: "a directory that is removed is gone with all that was in it",
        group: |group| {
            group.unlink("d/b").unwrap();
            group.rmdir("d").unwrap();
        },
        others: |dir| fs::remove_dir_all(dir.join("d")).unwrap(),
        then: &[("d", "-")],
        refused: &[],
    },
    Case {
        name: "attributes were set",
        group: |group| group.set_mode("d/b", 0o600).unwrap(),
        others: |dir| fs::set_permissions(dir.join("d/b"), fs::Permissions::from_mode(0o640)).unwrap(),
        then: &[("d/b", "inner text")],
        refused: &[],
    },
    Case {
        name: "a part of a file is changed whose length is as it was",
        group: |group| {
            let file = group.open_file("d/b").unwrap();
            group.write_at(&file, 0, b"IN").unwrap();
        },
        others: |dir| fs::write(dir.join("d/b"), "outer TEXT").unwrap(),
        then: &[("d/b", "INter TEXT")],
        refused: &[],
    },
    Case {
        name: "both have appended",
        group: |group| {
            let file = group.open_file("d/b").unwrap();
            group.append(&file, b" of theirs").unwrap();
        },
        others: |dir| fs::write(dir.join("d/b"), "inner text of mine, longer").unwrap(),
        then: &[("d/b", "inner text of theirs")],
        refused: &[],
    },
    Case {
        name: "others have done the same",
        group: |group| {
            group.rename("a", "moved", Rename::NoReplace).unwrap();
            group.unlink("f").unwrap();
        },
        others: |dir| {
            fs::rename(dir.join("a"), dir.join("moved")).unwrap();
            fs::remove_file(dir.join("f")).unwrap();
        },
        then: &[("a", "-"), ("moved", "hello"), ("f", "-")],
        refused: &[],
    },
    Case {
        name: "what is moved was replaced",
        group: |group| group.rename("a", "moved", Rename::NoReplace).unwrap(),
        others: |dir| replace(&dir.join("a"), "mine"),
        then: &[("a", "-"), ("moved", "mine")],
        refused: &[],
    },
    Case {
        name: "a part of a file is changed whose length is another one",
        group: |group| {
            let file = group.open_file("d/b").unwrap();
            group.write_at(&file, 0, b"IN").unwrap();
            new_file(group, "x", b"theirs");
        },
        others: |dir| {
            fs::write(dir.join("d/b"), "short").unwrap();
            fs::write(dir.join("x"), "mine").unwrap();
        },
        then: &[],
        refused: &[
            "d/b: its content has been changed: it had 10 bytes and has 5, and the group holds a part of it only",
        ],
    },
    Case {
        name: "a part of a file is changed that is gone, and so is a directory",
        group: |group| {
            let file = group.open_file("a").unwrap();
            group.append(&file, b"more").unwrap();
            new_file(group, "d/x", b"theirs");
            group.set_mode("f", 0o600).unwrap();
        },
        others: |dir| {
            fs::remove_file(dir.join("a")).unwrap();
            fs::remove_dir_all(dir.join("d")).unwrap();
            fs::remove_file(dir.join("f")).unwrap();
        },
        then: &[],
        refused: &["a: it is gone", "d/x: its directory is gone", "f: it is gone"],
    },
    Case {
        name: "directories with something in them are in the way",
        group: |group| {
            new_file(group, "x", b"theirs");
            rewrite(group, "a", b"theirs");
            group.unlink("d/b").unwrap();
            group.rmdir("d").unwrap();
        },
        others: |dir| {
            fs::create_dir(dir.join("x")).unwrap();
            fs::write(dir.join("x/mine"), "mine").unwrap();
            fs::remove_file(dir.join("a")).unwrap();
            fs::create_dir(dir.join("a")).unwrap();
            fs::write(dir.join("a/mine"), "mine").unwrap();
        },
        then: &[],
        refused: &["a: it is gone", "x: a directory that is not empty has its name"],
    },
    Case {
        name: "something was put into a directory that is removed",
        group: |group| {
            group.unlink("d/b").unwrap();
            group.rmdir("d").unwrap();
        },
        others: |dir| fs::write(dir.join("d/mine"), "mine").unwrap(),
        then: &[],
        refused: &["d/mine: it has been put into a directory that the group removes"],
    },
    Case {
        name: "what is moved was moved elsewhere",
        group: |group| group.rename("a", "e/a", Rename::NoReplace).unwrap(),
        others: |dir| fs::rename(dir.join("a"), dir.join("other")).unwrap(),
        then: &[],
        refused: &["a: it has been moved, and the group moves it elsewhere"],
    },
    Case {
        name: "what is changed was moved to where something is made",
        group: |group| {
            rewrite(group, "a", b"theirs");
            new_file(group, "x", b"theirs");
        },
        others: |dir| fs::rename(dir.join("a"), dir.join("x")).unwrap(),
        then: &[],
        refused: &["x: something has been moved there that the group changes, too"],
    },
];

fn keep() -> KeepUndo {
    KeepUndo { note: "apply".into(), expires: Duration::from_secs(3600), most_bytes: u64::MAX }
}

/// A store of each kind, with `a`, `d/b`, `e/` and `f`.
fn stores(name: &str) -> Vec<(Dir, HostMedium)> {
    let all = Dir::on_media(name);
    for (dir, medium) in &all {
        ["d", "e"].into_iter().for_each(|path| fs::create_dir(dir.join(path)).unwrap());
        for (path, content) in [("a", "hello"), ("d/b", "inner text"), ("f", "more")] {
            fs::write(dir.join(path), content).unwrap();
            fs::set_permissions(dir.join(path), fs::Permissions::from_mode(0o644)).unwrap();
        }
        Store::init_with(&**dir, &quiet(), HostOptions { medium: *medium, ..HostOptions::default() }).unwrap();
    }
    all.into()
}

fn open(dir: &Path, medium: HostMedium, at_once: bool) -> Store {
    let options = Options { at_once, keep_undo_of_applied: Some(keep()), ..quiet() };
    Store::open_with(dir, options, HostOptions { medium, ..HostOptions::default() }).unwrap()
}

fn told(error: &Error) -> Vec<String> {
    match error {
        Error::ChangedMeanwhile(_, what) => what.iter().map(ToString::to_string).collect(),
        error => panic!("{error}"),
    }
}

#[test]
fn what_the_group_says_wins_or_is_refused_by_name() {
    for case in CASES {
        for at_once in [false, true] {
            for (dir, medium) in stores("over") {
                check(case, &dir, medium, at_once);
            }
        }
    }
}

fn check(case: &Case, dir: &Path, medium: HostMedium, at_once: bool) {
    let store = open(dir, medium, at_once);
    let mut group = store.begin();
    (case.group)(&mut group);
    let id = group.park("", None).unwrap();
    store.close().unwrap();
    (case.others)(dir);
    let before = tree(dir);
    let store = open(dir, medium, at_once);
    let refused = store.apply(id).unwrap_err();
    assert!(!told(&refused).is_empty(), "{}", case.name);
    let paths: [&str; 0] = [];
    let applied = store.apply_over(id, &paths, &paths);
    if case.refused.is_empty() {
        let (is_left, replaced) = applied.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        assert!(!is_left && replaced.iter().map(ToString::to_string).eq(told(&refused)), "{}", case.name);
        store.checkpoint().unwrap();
        let now = tree(dir);
        for (path, then) in case.then {
            let there = now.get(*path).map_or("-", |(_, content)| std::str::from_utf8(content).unwrap());
            assert_eq!(there, *then, "{}: {path}", case.name);
        }
        assert!(store.parked().unwrap().is_empty(), "{}", case.name);
        if at_once {
            let kept = store.undos().unwrap();
            // Where others have done the same there is nothing to take back.
            assert_eq!(kept.is_empty(), now == before, "{}: {:?}", case.name, store.undo_fate());
            for one in kept {
                assert!(store.undo(one.id, &keep(), |_| true).unwrap());
            }
            assert_eq!(tree(dir), before, "{}: taken back", case.name);
        }
    } else {
        assert_eq!(told(&applied.unwrap_err()), case.refused, "{}", case.name);
        assert_eq!(store.parked().unwrap().len(), 1, "{}: it stays parked", case.name);
        store.checkpoint().unwrap();
        assert_eq!(tree(dir), before, "{}", case.name);
    }
    store.close().unwrap();
}

/// A parked group that rewrites two files; others have changed one of them.
fn two_rewritten(dir: &Path, medium: HostMedium) -> (Store, ParkedId) {
    let store = open(dir, medium, true);
    let mut group = store.begin();
    rewrite(&mut group, "a", b"theirs");
    rewrite(&mut group, "f", b"theirs");
    let id = group.park("", None).unwrap();
    fs::write(dir.join("a"), "mine, changed").unwrap();
    (store, id)
}

/// With paths what was parked wins there; the rest waits for its own decision.
#[test]
fn a_part_is_applied_over_what_is_there() {
    for (dir, medium) in stores("over-part") {
        let (store, id) = two_rewritten(&dir, medium);
        fs::write(dir.join("f"), "mine, changed").unwrap();
        let (is_left, replaced) = store.apply_over(id, &["a"], &[]).unwrap();
        assert!(is_left && replaced.len() == 1 && replaced[0].path == Path::new("a"), "{replaced:?}");
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"theirs");
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"mine, changed");
        assert_eq!(told(&store.apply(id).unwrap_err()).len(), 1);
        store.apply_over(id, &["f"], &[]).unwrap();
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"theirs");
        assert_eq!(store.undos().unwrap().len(), 2, "each part can be taken back");
    }
}

/// The other way round: what others have changed stays, and the rest of the group is applied.
#[test]
fn what_is_free_is_applied_and_what_others_have_stays() {
    for (dir, medium) in stores("over-free") {
        let (store, id) = two_rewritten(&dir, medium);
        let left_out = store.apply_free(id).unwrap();
        assert!(left_out.len() == 1 && left_out[0].path == Path::new("a"), "{left_out:?}");
        assert_eq!(fs::read(dir.join("a")).unwrap(), b"mine, changed");
        assert_eq!(fs::read(dir.join("f")).unwrap(), b"theirs");
        assert!(store.parked().unwrap().is_empty());
    }
}
