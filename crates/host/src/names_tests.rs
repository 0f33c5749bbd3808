//! Names and attributes of real directories: what the simulator cannot be compared with.

use super::*;
use crate::{At, HostFs, HostNames};
use rustix::io::Errno;
use std::os::unix::fs::symlink;
use wholly_media::{Result, Site};
use wholly_scratch::TestDir;
use wholly_vfs::{Rename, SetXattr};

const SITE: Site = Site("test");

fn open(dir: &TestDir) -> HostDir {
    HostDir::open(dir.path(), HostOptions::default()).expect("open the directory")
}

fn errno<T>(result: Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno)
}

#[test]
fn no_call_leaves_the_directory() {
    let dir = TestDir::on_disk();
    let inside = dir.path().join("inside");
    std::fs::create_dir_all(inside.join("sub")).expect("mkdir");
    std::fs::write(dir.path().join("secret"), "s").expect("write");
    std::fs::write(inside.join("file"), "f").expect("write");
    symlink("..", inside.join("out")).expect("symlink");
    let host = HostDir::open(&inside, HostOptions::default()).expect("open");
    let outside = std::fs::metadata(dir.path().join("secret")).expect("stat");
    for path in [&b"../secret"[..], b"out/secret", b"sub/../../secret", b"/secret"] {
        let calls = [
            errno(host.create(SITE, path, 0o600)),
            errno(host.mkdir(SITE, path, 0o700)),
            errno(host.mknod(SITE, path, 0o010_600, 0)),
            errno(host.symlink(SITE, b"x", path)),
            errno(host.hard_link(SITE, b"file", path)),
            errno(host.hard_link(SITE, path, b"stolen")),
            errno(host.rename(SITE, path, b"stolen", Rename::Replace)),
            errno(host.rename(SITE, b"file", path, Rename::Exchange)),
            errno(host.unlink(SITE, path)),
            errno(host.rmdir(SITE, path)),
            errno(host.read_link(path)),
            errno(host.read_dir(path)),
            errno(host.set_mode(SITE, path, 0o777)),
            errno(host.set_owner(SITE, path, None, None)),
            errno(host.set_times(SITE, path, Some(1), Some(1))),
            errno(host.get_xattr(path, b"user.x")),
            errno(host.list_xattrs(path)),
            errno(host.set_xattr(SITE, path, b"user.x", b"", SetXattr::Any)),
            errno(host.remove_xattr(SITE, path, b"user.x")),
            errno(host.handle(path)),
        ];
        let refused = if path == b"out/secret" { Errno::NOTDIR } else { Errno::XDEV };
        assert_eq!(calls, [Some(refused); 20], "{}", String::from_utf8_lossy(path));
    }
    let now = std::fs::metadata(dir.path().join("secret")).expect("stat");
    assert_eq!((now.permissions(), now.modified().ok()), (outside.permissions(), outside.modified().ok()));
    // A link at the end of a path is meant itself.
    host.set_times(SITE, b"out", None, Some(-1)).expect("set the link's times");
    assert_eq!(host.stat(b"out").expect("stat").mtime_ns, -1);
    assert_eq!(host.read_link(b"out"), Ok(b"..".to_vec()));
    assert_eq!(errno(host.read_dir(b"out")), Some(Errno::NOTDIR));
    host.unlink(SITE, b"out").expect("unlink the link");
    for path in [&b""[..], b".", b"sub/", b"sub/..", b"sub/."] {
        let calls = [
            errno(host.create(SITE, path, 0o600)),
            errno(host.mkdir(SITE, path, 0o700)),
            errno(host.rmdir(SITE, path)),
            errno(host.unlink(SITE, path)),
        ];
        assert_eq!(calls, [Some(Errno::INVAL); 4], "{}", String::from_utf8_lossy(path));
    }
}

/// A directory, and what is in it, are exchanged for others of the same name: a call that was made for what was there
/// changes nothing of what is.
#[test]
fn a_call_changes_only_what_it_was_made_for() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    for name in ["d", "e"] {
        std::fs::create_dir(dir.path().join(name)).expect("mkdir");
        std::fs::write(dir.path().join(name).join("f"), name).expect("write");
    }
    let inode = |path: &str| host.stat(path.as_bytes()).expect("stat").inode();
    let (d, f) = (inode("d"), inode("d/f"));
    let at = |path: &'static str| At { path: path.as_bytes(), dir: Some(d), inode: Some(f) };
    let calls = || {
        [
            errno(host.create_at(SITE, at("d/new"), 0o600)),
            errno(host.mkdir_at(SITE, at("d/new"), 0o700)),
            errno(host.mknod_at(SITE, at("d/new"), 0o010_600, 0)),
            errno(host.symlink_at(SITE, b"x", at("d/new"))),
            errno(host.hard_link_at(SITE, b"f"[..].into(), at("d/new"))),
            errno(host.hard_link_at(SITE, at("d/f"), b"new"[..].into())),
            errno(host.rename_at(SITE, at("d/f"), b"new"[..].into(), Rename::NoReplace)),
            errno(host.rename_at(SITE, b"f"[..].into(), at("d/f"), Rename::Replace)),
            errno(host.unlink_at(SITE, at("d/f"))),
            errno(host.rmdir_at(SITE, at("d/f"))),
            errno(host.stat_at(at("d/f"))),
            errno(host.set_mode_at(SITE, at("d/f"), 0o777)),
            errno(host.set_owner_at(SITE, at("d/f"), None, None)),
            errno(host.set_times_at(SITE, at("d/f"), Some(1), Some(1))),
            errno(host.set_xattr_at(SITE, at("d/f"), b"user.x", b"", SetXattr::Any)),
            errno(host.remove_xattr_at(SITE, at("d/f"), b"user.x")),
        ]
    };
    std::fs::write(dir.path().join("f"), "f").expect("write");
    host.rename(SITE, b"d", b"e", Rename::Exchange).expect("exchange");
    let before = (host.stat(b"d").expect("stat"), host.stat(b"d/f").expect("stat"), host.stat(b"e/f").expect("stat"));
    assert_eq!(calls(), [Some(Errno::STALE); 16]);
    // The same, where a link to the directory that is meant has taken its place.
    host.rename(SITE, b"d", b"g", Rename::NoReplace).expect("rename");
    symlink("e", dir.path().join("d")).expect("symlink");
    assert_eq!(calls(), [Some(Errno::STALE); 16]);
    host.unlink(SITE, b"d").expect("unlink");
    assert_eq!(calls(), [Some(Errno::STALE); 16]);
    let after = (host.stat(b"g").expect("stat"), host.stat(b"g/f").expect("stat"), host.stat(b"e/f").expect("stat"));
    assert_eq!((after.1, after.2), (before.1, before.2));
    assert_eq!((after.0.mtime_ns, after.0.mode), (before.0.mtime_ns, before.0.mode));
    assert_eq!(host.read_dir(b"").expect("list").len(), 3);
    // And where it is as it should be, all of it is done.
    host.rename(SITE, b"e", b"d", Rename::NoReplace).expect("rename");
    host.hard_link_at(SITE, at("d/f"), at("d/linked")).expect("link");
    assert_eq!(inode("d/linked"), f);
    host.set_mode_at(SITE, at("d/f"), 0o640).expect("chmod");
    assert_eq!(host.stat_at(at("d/f")).expect("stat").mode, 0o100_640);
    host.unlink_at(SITE, at("d/f")).expect("unlink");
}

/// A further name is given to what was looked at: also to a symbolic link, which is not followed.
#[test]
fn a_link_is_linked_itself() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    std::fs::write(dir.path().join("f"), "f").expect("write");
    symlink("f", dir.path().join("to-f")).expect("symlink");
    let inode = host.stat(b"to-f").expect("stat").inode();
    let at = At { path: b"to-f", dir: None, inode: Some(inode) };
    host.hard_link_at(SITE, at, b"also"[..].into()).expect("link");
    assert_eq!(host.stat(b"also").expect("stat").inode(), inode);
}

#[test]
fn new_objects_have_exactly_the_bits_asked_for() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    for mode in [0o000, 0o777, 0o666, 0o1755, 0o4711] {
        let name = |what: &str| format!("{what}{mode:o}").into_bytes();
        host.create(SITE, &name("file"), mode).expect("create");
        host.mkdir(SITE, &name("dir"), mode).expect("mkdir");
        host.mknod(SITE, &name("fifo"), 0o010_000 | mode, 0).expect("mknod");
        for (what, kind) in [("file", 0o100_000), ("dir", 0o040_000), ("fifo", 0o010_000)] {
            let stat = host.stat(&name(what)).expect("stat");
            assert_eq!(stat.mode, kind | mode, "{what} {mode:o}");
        }
    }
}

#[test]
fn attributes_are_read_back() {
    for dir in TestDir::on_tmpfs().into_iter().chain([TestDir::on_disk()]) {
        let host = open(&dir);
        host.create(SITE, b"file", 0o600).expect("create");
        host.set_times(SITE, b"file", Some(1_500_000_000), Some(-1_500_000_000)).expect("set times");
        let stat = host.stat(b"file").expect("stat");
        assert_eq!((stat.atime_ns, stat.mtime_ns), (1_500_000_000, -1_500_000_000));
        host.set_times(SITE, b"file", None, Some(7)).expect("set one time");
        let stat = host.stat(b"file").expect("stat");
        assert_eq!((stat.atime_ns, stat.mtime_ns), (1_500_000_000, 7));
        let own = (stat.uid, stat.gid);
        host.set_owner(SITE, b"file", Some(own.0), Some(own.1)).expect("give to itself");
        assert_eq!((host.stat(b"file").expect("stat").uid, own.0), (own.0, rustix::process::geteuid().as_raw()));

        assert_eq!(host.get_xattr(b"file", b"user.none"), Ok(None));
        let large = vec![b'l'; 3000];
        match host.set_xattr(SITE, b"file", b"user.large", &large, SetXattr::Create) {
            Err(error) if error.errno == Errno::OPNOTSUPP => continue,
            set => set.expect("set an attribute"),
        }
        host.set_xattr(SITE, b"file", b"user.empty", b"", SetXattr::Any).expect("set an empty attribute");
        assert_eq!(host.get_xattr(b"file", b"user.large"), Ok(Some(large)));
        assert_eq!(host.get_xattr(b"file", b"user.empty"), Ok(Some(Vec::new())));
        let mut names = host.list_xattrs(b"file").expect("list");
        names.retain(|name| name.starts_with(b"user."));
        names.sort();
        assert_eq!(names, [b"user.empty".to_vec(), b"user.large".to_vec()]);
    }
}

#[test]
fn handles_tell_objects_apart_also_when_inodes_are_used_again() {
    for dir in TestDir::on_tmpfs().into_iter().chain([TestDir::on_disk()]) {
        let host = open(&dir);
        let mut handles = std::collections::HashSet::new();
        for _ in 0..50 {
            host.create(SITE, b"file", 0o600).expect("create");
            host.hard_link(SITE, b"file", b"link").expect("link");
            let Some(handle) = host.handle(b"file").expect("ask") else { return };
            assert_eq!(host.handle(b"link"), Ok(Some(handle.clone())));
            host.unlink(SITE, b"link").expect("unlink");
            host.rename(SITE, b"file", b"moved", Rename::NoReplace).expect("rename");
            assert_eq!(host.handle(b"moved"), Ok(Some(handle.clone())));
            host.unlink(SITE, b"moved").expect("unlink");
            assert!(handles.insert(handle), "a handle came twice");
        }
    }
}

#[test]
fn a_large_directory_is_read_wholly() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    for n in 0..3000 {
        std::fs::write(dir.path().join(format!("a-name-of-some-length-{n}")), "").expect("write");
    }
    let mut entries = host.read_dir(b"").expect("read");
    entries.sort();
    entries.dedup();
    assert_eq!(entries.len(), 3000);
    assert!(entries.iter().all(|entry| entry.kind == 0o100_000));
}
