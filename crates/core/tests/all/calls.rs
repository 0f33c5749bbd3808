//! Calls by path on a store, and on the same store through its `Vfs`: one result, one error number, one tree.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::common::{Dir, made_in};
use wholly::{Error, Fallocate, Rename, SetXattr, StoreVfs};
use wholly_host::HostMedium;
use wholly_vfs::{AcrossForks, Calls, Committed, Groups, Seen};

/// What a call has given, or its error number.
fn said<T: std::fmt::Debug>(result: wholly::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error {}", error.errno()),
    }
}

/// Makes the same calls, whatever the names of the types.
macro_rules! perform {
    ($calls:expr, $create:ident) => {{
        let calls = $calls;
        let mut all = Vec::new();
        let kinds = |entries: Vec<wholly::DirEntry>| {
            let mut names: Vec<_> = entries.into_iter().map(|entry| (entry.name, entry.kind)).collect();
            names.sort();
            names
        };
        for path in ["d", "d", "d/e", "none/e", "d/./f//", "f/g"] {
            all.push(said(calls.mkdir(path, 0o750)));
        }
        for path in ["f", "f", "d/f/f", "none/f", "d/e"] {
            all.push(said(calls.$create(path, 0o640).map(drop)));
        }
        for (target, path) in [("d/e", "l"), ("f", "l"), ("", "empty"), ("../f", "d/up"), ("/f", "away"), ("x", "x")] {
            all.push(said(calls.symlink(target, path)));
        }
        all.push(said(calls.mknod("fifo", 0o010_600, 0)));
        for (from, to) in [("f", "g"), ("f", "g"), ("d", "h"), ("none", "h"), ("l", "l2"), ("f", "l/f")] {
            all.push(said(calls.link(from, to)));
        }
        let renames = [
            ("g", "d/g", Rename::NoReplace),
            ("d/g", "f", Rename::NoReplace),
            ("d", "d/e/d", Rename::Replace),
            ("d/e", "l2", Rename::Exchange),
            ("none", "k", Rename::Replace),
            ("d/f", "f", Rename::Replace),
            ("fifo", "d", Rename::Replace),
            ("fifo", "pipe", Rename::Whiteout),
        ];
        for (from, to, how) in renames {
            all.push(said(calls.rename(from, to, how)));
        }
        for (path, name, how) in [
            ("f", "user.a", SetXattr::Replace),
            ("f", "user.a", SetXattr::Create),
            ("f", "user.a", SetXattr::Create),
            ("none", "user.a", SetXattr::Any),
            ("l", "user.a", SetXattr::Any),
        ] {
            all.push(said(calls.set_xattr(path, name, b"value", how)));
        }
        all.push(said(calls.xattr("f", "user.a")));
        all.push(said(calls.xattr("f", "user.b")));
        all.push(said(calls.xattrs("f")));
        all.push(said(calls.remove_xattr("f", "user.b")));
        all.push(said(calls.set_mode("f", 0o604)));
        all.push(said(calls.set_mode("none", 0o604)));
        all.push(said(calls.set_times("f", Some(1), Some(-1))));
        all.push(said(calls.read_link("l")));
        all.push(said(calls.read_link("f")));
        for path in ["f", "l", "pipe", "fifo", "d", "none", "l/none", "away", "d/up"] {
            all.push(said(calls.metadata(path).map(|stat| (stat.mode, stat.uid, stat.gid, stat.rdev))));
        }
        for path in [".", "d", "f", "none", "l"] {
            all.push(said(calls.read_dir(path).map(kinds)));
        }
        for path in ["d", "none", "fifo/f", "l/f"] {
            all.push(said(calls.unlink(path)));
            all.push(said(calls.rmdir(path)));
        }
        for path in ["l", "none", "d", "d/up"] {
            all.push(said(calls.open_file(path).map(drop)));
        }
        all
    }};
}

#[test]
fn by_path_and_through_the_vfs_they_are_the_same() {
    let dirs = ["in-store", "in-group", "by-calls", "in-calls-group"].map(|name| Dir::new(Path::new("/dev/shm"), name));
    let stores = dirs.each_ref().map(|dir| made_in(dir, HostMedium::Disk)());
    let [store, other, by_calls, in_group] = &stores;
    let outside = perform!(store, create_file);
    let mut group = other.begin();
    let inside = perform!(&mut group, create);
    group.commit().unwrap();
    let vfs = |store| Arc::new(StoreVfs::new(store));
    let calls = perform!(&Calls::new(vfs(by_calls)), create_file);
    let mut own = Calls::new(vfs(in_group)).begin();
    let grouped = perform!(&mut own, create);
    own.commit().unwrap();
    for (name, all) in [("a group", &inside), ("calls", &calls), ("a group of calls", &grouped)] {
        for (i, (one, other)) in outside.iter().zip(all).enumerate() {
            assert_eq!(one, other, "{name}, call {i}");
        }
    }
    stores.into_iter().for_each(|store| store.close().unwrap());
    let tree = |dir: &Dir| {
        let mut all = Vec::new();
        for entry in ["f", "l", "l2", "d", "pipe", "fifo", "d/up", "l2/f", "l/f", "away"] {
            let stat = std::fs::symlink_metadata(dir.join(entry)).ok();
            all.push((entry, stat.map(|stat| (stat.mode(), stat.nlink(), stat.size(), stat.rdev()))));
        }
        all
    };
    let [first, rest @ ..] = dirs.each_ref().map(tree);
    rest.iter().for_each(|other| assert_eq!(first, *other));
}

#[test]
fn files_of_calls_are_those_of_the_store() {
    let dir = Dir::new(Path::new("/dev/shm"), "files-of-calls");
    let store = made_in(&dir, HostMedium::Disk)();
    let vfs = Arc::new(StoreVfs::new(&store));
    let calls = Calls::new(vfs.clone());
    let file = calls.create_file("f", 0o644).unwrap();
    file.write_at(0, b"old").unwrap();
    let mut group = calls.begin();
    group.add(&file).unwrap();
    group.write_at(&file, 0, b"new").unwrap();
    assert_eq!((group.append(&file, b"er").unwrap(), group.len(&file).unwrap()), (3, 5));
    assert_eq!(calls.read_file("f").unwrap(), b"old");
    assert!(matches!(file.write_at(0, b"x"), Err(Error::Busy(..))));
    group.commit_atomic().unwrap();
    assert_eq!(store.open_file("f").unwrap().len(), 5);
    assert_eq!(calls.read_file("f").unwrap(), b"newer");
    assert!(matches!(file.fallocate(Fallocate::Collapse, 0, 4096), Err(Error::Refused(..))));
    // Groups that a store has not are errors, and end.
    assert!(matches!(vfs.begin_as(Seen::Visible), Err(Error::Unsupported(_))));
    let pair = [vfs.begin().unwrap(), vfs.begin().unwrap()];
    assert!(matches!(vfs.commit_all(&pair, Committed::Durable), Err(Error::Unsupported(_))));
    pair.iter().for_each(|group| vfs.abort(*group).unwrap());
    let one = vfs.begin().unwrap();
    let ticket = vfs.commit_all(&[one], Committed::Ordered).unwrap();
    vfs.wait(ticket).unwrap();
    assert!(matches!(vfs.abort(one), Err(Error::Invalid(_))));
    assert!(vfs.has_given(one.0) && vfs.lost().is_none());
    drop((file, calls, vfs));
    store.close().unwrap();
}
