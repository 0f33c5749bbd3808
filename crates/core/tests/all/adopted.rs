//! What groups adopt from a store's layer, on real directories. Processes die here, no power fails: that is the crash
//! explorer's.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::{self, Dir, open_on, stores_of_files};
use rustix::io::Errno;
use wholly::{Error, KeepUndo, LAYER, Mismatch, Rename, Store, StoreVfs};
use wholly_host::{HostMedium, HostOptions};
use wholly_vfs::{Context, Groups, Ino, Vfs};

/// Where something lies in the layer.
fn layer(name: &str) -> PathBuf {
    Path::new(LAYER).join(name)
}

/// Makes in the layer a directory `tree` with a file, a deep one, two names of one file, a link and modes that nothing
/// has by itself; beside it a file.
fn fill(dir: &Path, store: &Store) {
    store.make_layer().unwrap();
    let at = |name: &str| dir.join(layer(name));
    fs::create_dir_all(at("tree/deep/deeper")).unwrap();
    fs::write(at("tree/file"), "content").unwrap();
    fs::write(at("tree/deep/deeper/file"), [3; 9000]).unwrap();
    fs::hard_link(at("tree/file"), at("tree/deep/other")).unwrap();
    symlink("file", at("tree/link")).unwrap();
    fs::set_permissions(at("tree/deep"), PermissionsExt::from_mode(0o2711)).unwrap();
    fs::set_permissions(at("tree/file"), PermissionsExt::from_mode(0o604)).unwrap();
    fs::write(at("file"), "alone").unwrap();
    symlink("nowhere", at("link")).unwrap();
}

/// Inode, mode, time and bytes of all that is in a directory, by path.
fn tree(dir: &Path) -> Vec<(PathBuf, u64, u32, i64, Vec<u8>)> {
    let (mut all, mut todo) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(at) = todo.pop() {
        let meta = fs::symlink_metadata(&at).unwrap();
        let bytes = if meta.is_file() { fs::read(&at).unwrap() } else { Vec::new() };
        if meta.is_dir() {
            todo.extend(fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
        }
        let time = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        all.push((at.strip_prefix(dir).unwrap().into(), meta.ino(), meta.mode(), time, bytes));
    }
    all.sort();
    all
}

fn stores(name: &str) -> Vec<(Dir, HostMedium)> {
    stores_of_files(name)
}

fn read(store: &Store, path: &str) -> Vec<u8> {
    let file = store.open_file(path).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What was made in the layer is there as it was made: not a byte of it is written again.
#[test]
fn it_comes_as_it_is() {
    for (dir, medium) in stores("adopt") {
        let store = open_on(&dir, medium);
        fill(&dir, &store);
        let made = tree(&dir.join(layer("tree")));
        let written = store.stat().log_bytes_written;
        let mut group = store.begin();
        group.import(layer("tree"), "d/new").unwrap();
        group.import(layer("file"), "alone").unwrap();
        group.import(layer("link"), "e/link").unwrap();
        // The group sees it, and nobody else.
        let file = group.open_file("d/new/deep/other").unwrap();
        let mut bytes = [0; 7];
        assert_eq!(group.read_at(&file, 0, &mut bytes).unwrap(), 7);
        assert_eq!((&bytes, group.read_dir("d/new").unwrap().len()), (b"content", 3));
        assert!(matches!(store.open_file("alone"), Err(Error::NotFound(_))));
        drop(file);
        group.commit().unwrap();
        // Everybody does, at home it is not there yet, and another life finds it.
        for last in [false, true] {
            assert_eq!(read(&store, "d/new/file"), b"content");
            assert_eq!(
                (read(&store, "alone"), store.read_link("e/link").unwrap()),
                (b"alone".to_vec(), b"nowhere".to_vec())
            );
            assert_eq!(store.metadata("alone").unwrap().nlink, 1);
            assert!(!dir.join("alone").exists());
            if !last {
                let _ = store.metadata("d/new/deep/deeper/file").unwrap();
            }
        }
        drop(store);
        let store = open_on(&dir, medium);
        assert_eq!(read(&store, "d/new/deep/deeper/file"), [3; 9000]);
        store.checkpoint().unwrap();
        assert_eq!(tree(&dir.join("d/new")), made);
        assert!(store.stat().log_bytes_written + written < 64 << 10);
        store.close().unwrap();
        assert!(!dir.join(LAYER).exists() && fs::read_dir(dir.join(".wholly/blank")).unwrap().next().is_none());
        assert_eq!((fs::read(dir.join("alone")).unwrap(), tree(&dir.join("d/new"))), (b"alone".to_vec(), made));
        assert!(wholly::check(&*dir).unwrap().is_sound());
    }
}

/// A file that is looked at and changed again may have a time later than the kernel's last tick. In a directory that
/// was adopted as a whole it still counts as the group's own.
#[test]
fn what_was_changed_within_a_tick_can_be_taken_back() {
    let options = wholly::Options { at_once: true, ..common::quiet() };
    let keep = KeepUndo { note: "undo".into(), expires: Duration::from_secs(3600), most_bytes: u64::MAX };
    for (dir, medium) in stores("adopt-tick") {
        let store = Store::open_with(&*dir, options.clone(), HostOptions { medium, ..HostOptions::default() }).unwrap();
        for _ in 0..20 {
            fill(&dir, &store);
            for name in ["tree/file", "tree/deep", "tree/deep/deeper/file"] {
                let at = dir.join(layer(name));
                for mode in [0o700, 0o711, 0o701] {
                    fs::metadata(&at).unwrap();
                    fs::set_permissions(&at, PermissionsExt::from_mode(mode)).unwrap();
                }
            }
            let mut group = store.begin();
            group.import(layer("tree"), "new").unwrap();
            group.keep_undo(&keep).unwrap();
            group.commit().unwrap();
            let kept = store.undos().unwrap();
            let newest = kept.last().expect("it is kept").id;
            assert!(store.undo(newest, &keep, |_| true).unwrap());
            assert!(!dir.join("new").exists());
        }
        store.close().unwrap();
    }
}

/// Of what is adopted and not home yet all can be changed that can be changed of anything.
#[test]
fn it_is_changed_before_it_is_home() {
    for (dir, medium) in stores("adopt-change") {
        let store = open_on(&dir, medium);
        fill(&dir, &store);
        let mut group = store.begin();
        group.import(layer("tree"), "new").unwrap();
        let file = group.open_file("new/file").unwrap();
        group.append(&file, b" and more").unwrap();
        group.rename("new/deep", "deep", Rename::NoReplace).unwrap();
        group.commit().unwrap();
        drop(file);
        store.rename("new", "renamed", Rename::NoReplace).unwrap();
        store.unlink("renamed/link").unwrap();
        store.set_mode("renamed", 0o700).unwrap();
        drop(store);
        let store = open_on(&dir, medium);
        store.mkdir("renamed/made", 0o755).unwrap();
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("deep/other")).unwrap(), b"content and more");
        let names: Vec<_> = tree(&dir.join("renamed")).into_iter().map(|entry| entry.0).collect();
        assert_eq!(names, ["", "file", "made"].map(PathBuf::from));
        assert_eq!(fs::metadata(dir.join("renamed")).unwrap().mode() & 0o7777, 0o700);
        assert!(!dir.join("new").exists());
    }
}

/// A group that does not commit gives it back, and the next may have it.
#[test]
fn a_group_that_does_not_commit_gives_it_back() {
    for (dir, medium) in stores("adopt-abort") {
        let store = open_on(&dir, medium);
        fill(&dir, &store);
        let made = tree(&dir.join(LAYER));
        let mut group = store.begin();
        group.import(layer("tree/deep"), "deep").unwrap();
        group.import(layer("tree"), "new").unwrap();
        group.import(layer("file"), "file").unwrap();
        group.rename("file", "new/file2", Rename::NoReplace).unwrap();
        group.abort();
        let now = tree(&dir.join(LAYER));
        // Directories have noted that something came and went.
        let but_for_times = |all: &[(PathBuf, u64, u32, i64, Vec<u8>)]| {
            all.iter().map(|entry| (entry.0.clone(), entry.1, entry.2, entry.4.clone())).collect::<Vec<_>>()
        };
        assert_eq!(but_for_times(&now), but_for_times(&made));
        let mut group = store.begin();
        group.import(layer("tree"), "new").unwrap();
        group.commit().unwrap();
        store.close().unwrap();
        assert!(dir.join("new/deep/deeper/file").exists() && !dir.join("file").exists());
    }
}

/// A process that dies leaves nothing of it, also not what it had adopted and not committed.
#[test]
fn what_a_dead_process_leaves_is_removed() {
    for (dir, medium) in stores("adopt-die") {
        let store = open_on(&dir, medium);
        fill(&dir, &store);
        let mut group = store.begin();
        group.import(layer("tree"), "new").unwrap();
        group.import(layer("file"), "file").unwrap();
        // As a process does that is killed.
        std::mem::forget((group, store.clone()));
        let folder = dir.join(".wholly");
        assert!(fs::read_dir(folder.join("blank")).unwrap().count() == 2);
        drop(store);
        let copy = Dir::new(dir.parent().unwrap(), "adopt-died");
        assert!(std::process::Command::new("cp").arg("-a").arg(dir.join(".")).arg(&*copy).status().unwrap().success());
        let store = open_on(&copy, medium);
        let folder = copy.join(".wholly");
        assert!(fs::read_dir(folder.join("blank")).unwrap().next().is_none() && !folder.join("layer").exists());
        store.close().unwrap();
        assert!(!copy.join("new").exists() && copy.join("d/b").exists());
    }
}

#[test]
fn what_cannot_be_adopted_is_refused() {
    for (dir, medium) in stores("adopt-refuse") {
        let store = open_on(&dir, medium);
        fill(&dir, &store);
        let mut group = store.begin();
        for from in ["a", ".wholly/log", ".wholly/layer/../log", ".wholly/layer", ".wholly/layer/"] {
            let refused = group.import(from, "new");
            assert!(matches!(refused, Err(Error::Invalid(_))), "{from}: {refused:?}");
        }
        assert!(matches!(group.import(layer("nothing"), "new"), Err(Error::NotFound(_))));
        assert!(matches!(group.import(layer("file"), "a"), Err(Error::Exists(_))));
        assert!(matches!(group.import(layer("file"), "nowhere/a"), Err(Error::NotFound(_))));
        fs::hard_link(dir.join(layer("file")), dir.join(layer("again"))).unwrap();
        group.import(layer("file"), "file").unwrap();
        assert!(matches!(group.import(layer("again"), "again"), Err(Error::Busy(..))));
        // It cannot be shown, and what cannot be shown is not parked.
        assert!(matches!(group.review().map(drop), Err(Error::Invalid(_))));
        assert!(matches!(group.park("", None), Err(Error::Invalid(_))));
        let mut group = store.begin();
        group.import(layer("file"), "file").unwrap();
        group.link("file", "again").unwrap();
        group.commit().unwrap();
        store.close().unwrap();
        assert_eq!(fs::metadata(dir.join("again")).unwrap().nlink(), 2);
    }
}

/// Whoever makes the changes of a group may know that others have been there, where the store cannot.
#[test]
fn a_group_that_is_told_to_be_overtaken_is_never_applied() {
    for (dir, medium) in stores("adopt-told") {
        let store = open_on(&dir, medium);
        let vfs = StoreVfs::new(&store);
        let group = vfs.begin().unwrap();
        let ctx = Context { group: Some(group), ..Context::superuser() };
        let attr = vfs.mkdir(&ctx, Ino::ROOT, b"made", 0o755.into()).unwrap();
        let told = |path: &str, what: &str| Mismatch { path: path.into(), what: what.into() };
        // Of what the group has made, its directory counts.
        vfs.note_overtaken(group, attr.ino, told("made", "something has been made there")).unwrap();
        let d = vfs.lookup(&ctx, Ino::ROOT, b"d").unwrap();
        vfs.note_overtaken(group, d.ino, told("d/b", "its content has been changed")).unwrap();
        assert_eq!(vfs.changed_meanwhile(group).unwrap().len(), 2);
        let Err(Error::ChangedMeanwhile(id, what)) = vfs.commit_or_park(group, "late", None) else {
            panic!("it is overtaken")
        };
        assert_eq!(what[1].to_string(), "made: something has been made there");
        for ino in [attr.ino, d.ino] {
            vfs.forget(ino, 1);
        }
        drop(vfs);
        drop(store);
        let store = open_on(&dir, medium);
        assert_eq!(store.review(id).unwrap().changes().len(), 1);
        let Err(Error::ChangedMeanwhile(_, what)) = store.apply(id) else { panic!("it is applied") };
        assert_eq!(what.iter().map(|what| what.path.to_str().unwrap()).collect::<Vec<_>>(), [".", "d"]);
        store.discard(id).unwrap();
        store.close().unwrap();
        assert!(!dir.join("made").exists());
    }
}

/// There is one layer, empty when it is made.
#[test]
fn a_layer_is_made_anew() {
    for (dir, medium) in stores("adopt-layer") {
        let store = open_on(&dir, medium);
        fill(&dir, &store);
        store.make_layer().unwrap();
        let meta = fs::metadata(dir.join(LAYER)).unwrap();
        assert_eq!((fs::read_dir(dir.join(LAYER)).unwrap().count(), meta.mode() & 0o7777), (0, 0o700));
        // Deeper than any path may be long.
        for _ in 0..60 {
            fs::create_dir(dir.join(layer("next"))).unwrap();
            if dir.join(layer("abyss")).exists() {
                fs::rename(dir.join(layer("abyss")), dir.join(layer("next")).join("x".repeat(200))).unwrap();
            }
            fs::write(dir.join(layer("next/file")), "").unwrap();
            fs::rename(dir.join(layer("next")), dir.join(layer("abyss"))).unwrap();
        }
        store.remove_layer().unwrap();
        store.remove_layer().unwrap();
        assert!(!dir.join(LAYER).exists());
        fill(&dir, &store);
        store.remove().unwrap();
        assert!(!dir.join(".wholly").exists());
        let gone = fs::metadata(dir.join(LAYER)).unwrap_err().raw_os_error();
        assert_eq!(gone, Some(Errno::NOENT.raw_os_error()));
    }
}
