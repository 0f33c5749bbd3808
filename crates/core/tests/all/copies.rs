//! Copies of stores, whose files are other inodes than those that the log speaks of.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::common::Dir;
use wholly::{Error, FindingKind, Group, Options, Rename, Store};
use wholly_host::{HostMedium, HostOptions};

fn open(dir: &Path, medium: HostMedium, accept_copy: bool) -> wholly::Result<Store> {
    let options = Options { background: false, accept_copy, ..Options::default() };
    Store::open_with(dir, options, HostOptions { medium, ..HostOptions::default() })
}

fn init(dir: &Path, medium: HostMedium) {
    let options = Options { segment_bytes: 16 << 10, log_min_bytes: 128 << 10, ..Options::default() };
    Store::init_with(dir, &options, HostOptions { medium, ..HostOptions::default() }).unwrap();
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

fn write(group: &mut Group<'_>, path: &str, offset: u64, bytes: &[u8]) {
    let file = group.open_file(path).unwrap();
    group.write_at(&file, offset, bytes).unwrap();
}

fn append(group: &mut Group<'_>, path: &str, bytes: &[u8]) {
    let file = group.open_file(path).unwrap();
    group.append(&file, bytes).unwrap();
}

/// What is in a directory: bytes, or the number of names, by path.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != ".wholly") {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_string();
            if meta.is_dir() {
                all.insert(name, vec![]);
                todo.push(path);
            } else {
                all.insert(
                    name,
                    [fs::read(&path).unwrap(), format!(" {:o} {}", meta.mode(), meta.nlink()).into()].concat(),
                );
            }
        }
    }
    all
}

/// A store with all sorts of updates in its log; what it looks like with all of them home.
fn with_updates(dir: &Dir, medium: HostMedium) -> BTreeMap<String, Vec<u8>> {
    for (path, content) in [("a", "of a"), ("b", "of b"), ("dir/c", "of c"), ("gone/d", "of d"), ("same", "of e")] {
        fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
        fs::write(dir.join(path), content).unwrap();
    }
    fs::hard_link(dir.join("same"), dir.join("dir/same")).unwrap();
    init(dir, medium);
    let store = open(dir, medium, false).unwrap();
    let mut group = store.begin();
    write(&mut group, "a", 3, b"A");
    group.rename("a", "b2", Rename::Replace).unwrap();
    group.rename("b", "a", Rename::Replace).unwrap();
    append(&mut group, "dir/same", b", longer");
    group.set_mode("dir/c", 0o600).unwrap();
    group.commit().unwrap();
    let mut group = store.begin();
    group.rename("dir", "moved", Rename::Replace).unwrap();
    group.unlink("gone/d").unwrap();
    group.rmdir("gone").unwrap();
    group.mkdir("gone", 0o755).unwrap();
    group.create("gone/new", 0o644).unwrap();
    write(&mut group, "gone/new", 0, b"of something new");
    group.link("moved/c", "c").unwrap();
    group.commit().unwrap();
    drop(store);
    all_home()
}

/// What that store looks like with all of its updates home.
fn all_home() -> BTreeMap<String, Vec<u8>> {
    let files = [
        ("a", "of b 100644 1"),
        ("b2", "of A 100644 1"),
        ("c", "of c 100600 2"),
        ("gone", ""),
        ("gone/new", "of something new 100644 1"),
        ("moved", ""),
        ("moved/c", "of c 100600 2"),
        ("moved/same", "of e, longer 100644 2"),
        ("same", "of e, longer 100644 2"),
    ];
    files.into_iter().map(|(path, content)| (path.into(), content.into())).collect()
}

#[test]
fn a_copy_is_refused_until_it_is_adopted() {
    for (dir, medium) in Dir::on_media("copies") {
        let adopted = with_updates(&dir, medium);
        let before = tree(&dir);
        let copies = Dir::new(dir.parent().unwrap(), "copies-of");
        let at = copies.join("one");
        copy(&dir, &at);

        let Err(error) = open(&at, medium, false) else { panic!("a copy was opened") };
        assert!(matches!(&error, Error::Copied(holds) if holds.contains("2 groups")), "{error}");
        let report = wholly::check(&at).unwrap();
        let kinds: Vec<_> = report.findings.iter().filter(|f| f.is_fault()).map(|finding| finding.kind).collect();
        assert_eq!(kinds, [FindingKind::Copy], "{:?}", report.findings);
        assert_eq!(tree(&at), before, "who is refused has changed nothing");

        // More is committed to it, and the process dies: it is no copy any more.
        let store = open(&at, medium, true).unwrap();
        assert!(store.recovery().adopted);
        assert_eq!(store.recovery().conflicts, []);
        append(&mut store.begin(), "gone/new", b", and more, which is aborted");
        let mut group = store.begin();
        append(&mut group, "moved/c", b", adopted");
        group.rename("a", "moved/a", Rename::Replace).unwrap();
        group.commit().unwrap();
        drop(store);
        let store = open(&at, medium, false).unwrap();
        assert!(!store.recovery().adopted);
        assert_eq!(store.recovery().conflicts, []);
        store.close().unwrap();

        let mut wanted = adopted.clone();
        let moved = wanted.remove("a").unwrap();
        wanted.insert("moved/a".into(), moved);
        for path in ["moved/c", "c"] {
            wanted.insert(path.into(), b"of c, adopted 100600 2".to_vec());
        }
        assert_eq!(tree(&at), wanted);
        // A copy of what has an empty log is no question.
        open(&at, medium, false).unwrap().close().unwrap();
        let again = copies.join("again");
        copy(&at, &again);
        let store = open(&again, medium, false).unwrap();
        store.begin().commit().unwrap();
        store.create_file("fresh", 0o644).unwrap().write_at(0, b"bytes").unwrap();
        drop(store);
        open(&again, medium, false).unwrap().close().unwrap();

        // What was copied is as it was, also at another place.
        let elsewhere = copies.join("elsewhere");
        fs::rename(&*dir, &elsewhere).unwrap();
        open(&elsewhere, medium, false).unwrap().close().unwrap();
        assert_eq!(tree(&elsewhere), adopted);
        fs::rename(&elsewhere, &*dir).unwrap();
    }
}

#[test]
fn what_was_changed_in_a_copy_is_a_conflict() {
    for (dir, medium) in Dir::on_media("copies-changed") {
        with_updates(&dir, medium);
        let copies = Dir::new(dir.parent().unwrap(), "copies-changed-of");
        let at = copies.join("one");
        copy(&dir, &at);
        fs::write(at.join("same"), "longer than it was when it was copied").unwrap();
        let store = open(&at, medium, true).unwrap();
        let conflicts = &store.recovery().conflicts;
        assert_eq!(conflicts.len(), 1, "{conflicts:?}");
        assert!(conflicts[0].1.contains("its size was 4"), "{conflicts:?}");
        assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })));
        drop(store);

        copy(&dir, &at);
        fs::remove_file(at.join("a")).unwrap();
        let store = open(&at, medium, true).unwrap();
        assert!(!store.recovery().conflicts.is_empty());
        assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })));
    }
}

/// A store whose log of format 4 holds two groups, on each medium. Such an archive is made once, of what `with_updates`
/// leaves, and never again: it shows that bytes on media mean what they meant.
#[test]
fn a_store_that_another_version_made_is_recovered() {
    let archives = [
        include_bytes!("../fixtures/store-4-pmem.tar.gz").as_slice(),
        include_bytes!("../fixtures/store-4-disk.tar.gz").as_slice(),
    ];
    for ((dir, medium), archive) in Dir::on_media("copies-old").into_iter().zip(archives) {
        let file = dir.join("archive");
        fs::write(&file, archive).unwrap();
        let unpack = |to: &str| {
            let to = dir.join(to);
            fs::create_dir(&to).unwrap();
            let mut tar = Command::new("tar");
            tar.args(["--no-same-owner", "-xpzf"]).arg(&file).arg("-C").arg(&to);
            assert!(tar.status().unwrap().success());
            to
        };
        let whole = unpack("whole");
        let store = open(&whole, medium, true).unwrap();
        assert_eq!((store.recovery().scan.groups, &store.recovery().conflicts), (2, &vec![]));
        store.close().unwrap();
        assert_eq!(tree(&whole), all_home());

        let damaged = unpack("damaged");
        let log = damaged.join(".wholly/log");
        let mut bytes = fs::read(&log).unwrap();
        (bytes[40], bytes[4096 + 40]) = (!bytes[40], !bytes[4096 + 40]);
        fs::write(&log, bytes).unwrap();
        let before = tree(&damaged);
        let refused = open(&damaged, medium, true).unwrap_err();
        assert!(matches!(&refused, Error::Corrupt { place, .. } if place == "superblock"), "{refused}");
        assert_eq!(tree(&damaged), before);
    }
}
