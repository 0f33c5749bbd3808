//! Directories that groups remove with everything in them, on real directories.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::common::{Dir, small};
use wholly::{Error, Group, KeepUndo, Options, Rename, Store, UndoFate};
use wholly_host::HostOptions;
use wholly_media::Site;
use wholly_sim::{Explorer, SimConfig, World};

/// A directory `d` with a file, a link, an empty directory and a deep one, last changed some ticks of the clock ago.
fn dir(name: &str) -> Dir {
    let dir = Dir::new(Path::new("/tmp"), &format!("whole-{name}"));
    fs::create_dir_all(dir.join("d/deep/deeper")).unwrap();
    fs::create_dir(dir.join("d/empty")).unwrap();
    fs::write(dir.join("d/file"), "content").unwrap();
    fs::write(dir.join("d/deep/deeper/file"), [3; 9000]).unwrap();
    symlink("file", dir.join("d/link")).unwrap();
    fs::write(dir.join("other"), "other").unwrap();
    sleep(Duration::from_millis(20));
    dir
}

fn open(dir: &Path) -> Store {
    Store::open_or_create_with(dir, Options { at_once: true, ..small() }, HostOptions::default()).unwrap()
}

fn keep(most_bytes: u64) -> KeepUndo {
    KeepUndo { note: "rm -r d".into(), expires: Duration::from_secs(1000), most_bytes }
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

#[test]
fn it_goes_with_everything_in_it() {
    let dir = dir("goes");
    let store = open(&dir);
    let mut group = store.begin();
    assert!(group.remove_tree("d").unwrap());
    assert!(matches!(group.metadata("d/file"), Err(Error::NotFound(_))));
    assert!(store.metadata("d/file").is_ok() && dir.join("d/file").exists());
    group.mkdir("d", 0o700).unwrap();
    group.commit().unwrap();
    assert!(is_empty(&dir.join("d")) && is_empty(&dir.join(".wholly/anchor")));
    store.close().unwrap();
    assert!(wholly::check(&*dir).unwrap().is_sound());
}

#[test]
fn a_group_that_aborts_leaves_it() {
    let dir = dir("aborts");
    let store = open(&dir);
    let mut group = store.begin();
    assert!(group.remove_tree("d").unwrap());
    assert!(matches!(group.review(), Err(Error::Invalid(_))));
    assert!(matches!(group.park("no", None), Err(Error::Invalid(_))));
    assert_eq!(fs::read(dir.join("d/file")).unwrap(), b"content");
    // What another program puts there later is not lost with a group that removes it name by name.
    removes_by_names_what_is_not_its_own(&dir, &store, "d");
}

fn remove_by_names(group: &mut Group<'_>, root: &str) {
    for name in ["file", "link", "deep/deeper/file"] {
        group.unlink(format!("{root}/{name}")).unwrap();
    }
    for name in ["deep/deeper", "deep", "empty", ""] {
        group.rmdir(format!("{root}/{name}")).unwrap();
    }
}

/// Not: what another program puts into a directory, while a group removes it name by name, is in the way.
fn removes_by_names_what_is_not_its_own(dir: &Path, store: &Store, root: &str) {
    let mut group = store.begin();
    remove_by_names(&mut group, root);
    let mine = dir.join(root).join("mine");
    fs::write(&mine, "mine").unwrap();
    assert!(matches!(group.commit(), Err(Error::Conflict { .. })));
    assert_eq!(fs::read(&mine).unwrap(), b"mine");
}

#[test]
fn it_is_taken_back_as_it_was() {
    let dir = dir("back");
    let store = open(&dir);
    let ino = |path: &str| fs::symlink_metadata(dir.join(path)).unwrap().ino();
    let (file, deep) = (ino("d/file"), ino("d/deep/deeper/file"));
    let mut group = store.begin();
    assert!(group.remove_tree("d").unwrap());
    group.keep_undo(&keep(1 << 20)).unwrap();
    group.commit().unwrap();
    let mut last = None;
    for round in 0..3 {
        assert_eq!(dir.join("d").exists(), round == 1);
        let Some(UndoFate::Kept(id)) = store.undo_fate() else { panic!("{:?}", store.undo_fate()) };
        assert_ne!(Some(id), last.replace(id));
        assert!(store.undo(id, &keep(1 << 20), |_| true).unwrap());
    }
    assert_eq!((ino("d/file"), ino("d/deep/deeper/file")), (file, deep));
    assert_eq!(fs::read(dir.join("d/deep/deeper/file")).unwrap(), [3; 9000]);
    store.close().unwrap();
    assert!(wholly::check(&*dir).unwrap().is_sound());
}

/// The undo counts all that is in it.
#[test]
fn what_takes_too_much_is_not_kept() {
    let dir = dir("much");
    let store = open(&dir);
    let mut group = store.begin();
    assert!(group.remove_tree("d").unwrap());
    group.keep_undo(&keep(12 << 10)).unwrap();
    group.commit().unwrap();
    assert!(matches!(store.undo_fate(), Some(UndoFate::NotKept(why)) if why.contains("bytes")));
    assert!(!dir.join("d").exists() && is_empty(&dir.join(".wholly/anchor")));
}

#[test]
fn what_others_change_meanwhile_is_a_conflict() {
    type Case = (&'static str, fn(&Path));
    let changes: [Case; 5] = [
        ("d/mine", |at| fs::write(at, "mine").unwrap()),
        ("d/deep/deeper/mine", |at| fs::create_dir(at).unwrap()),
        ("d/file", |at| fs::write(at, "mine").unwrap()),
        ("d/deep/deeper/file", |at| {
            fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap()
        }),
        ("d/empty", |at| fs::remove_dir(at).unwrap()),
    ];
    for (i, (path, change)) in changes.into_iter().enumerate() {
        let dir = dir(&format!("others-{i}"));
        let store = open(&dir);
        let mut group = store.begin();
        group.create("new", 0o600).unwrap();
        assert!(group.remove_tree("d").unwrap());
        change(&dir.join(path));
        let refused = group.commit();
        if path == "d/empty" {
            refused.expect("he has lost nothing");
            continue;
        }
        assert!(
            matches!(&refused, Err(Error::Conflict { path: at, .. }) if at.starts_with("d/")),
            "{path}: {refused:?}"
        );
        assert!(dir.join(path).exists() && dir.join("d/deep/deeper/file").exists() && !dir.join("new").exists());
        let mut group = store.begin();
        group.create("new", 0o600).unwrap();
        group.commit().unwrap();
        store.close().unwrap();
        assert!(wholly::check(&*dir).unwrap().is_sound());
    }
}

#[test]
fn what_is_opened_meanwhile_keeps_it() {
    let dir = dir("opened");
    let store = open(&dir);
    let mut group = store.begin();
    assert!(group.remove_tree("d").unwrap());
    let file = store.open_file("d/deep/deeper/file").unwrap();
    assert!(matches!(group.commit(), Err(Error::Busy(path, _)) if path == "d/deep/deeper/file"));
    assert_eq!(file.len(), 9000);
    drop(file);
    let mut group = store.begin();
    assert!(group.remove_tree("d").is_ok());
}

/// Taken back and done again: what the store remembers of a directory that went whole does not outlive that.
#[test]
fn it_can_be_moved_and_emptied_once_it_is_back() {
    let dir = dir("again");
    let store = open(&dir);
    let mut group = store.begin();
    assert!(group.remove_tree("d").unwrap());
    group.keep_undo(&keep(1 << 20)).unwrap();
    group.commit().unwrap();
    for _ in 0..3 {
        let Some(UndoFate::Kept(id)) = store.undo_fate() else { panic!("{:?}", store.undo_fate()) };
        assert!(store.undo(id, &keep(1 << 20), |_| true).unwrap());
    }
    fs::write(dir.join("d/file"), "changed").unwrap();
    let mut group = store.begin();
    group.mkdir("new", 0o700).unwrap();
    group.rename("d", "new/d", Rename::Replace).unwrap();
    group.commit().unwrap();
    assert_eq!(fs::read(dir.join("new/d/file")).unwrap(), b"changed");
    removes_by_names_what_is_not_its_own(&dir, &store, "new/d");
    fs::remove_file(dir.join("new/d/mine")).unwrap();
    let mut group = store.begin();
    remove_by_names(&mut group, "new/d");
    group.commit().unwrap();
}

/// A process dies in the commit, and another program then removes a file that the group has changed, so that the group
/// cannot be undone, and writes to the directory that it removes. Simulated.
#[test]
fn what_can_be_neither_undone_nor_finished_stays() {
    const BY: Site = Site("test.bystander");
    for config in [SimConfig::pmem(), SimConfig::disk()] {
        let world = World::new(SimConfig { log_len: 0, ..config.clone() });
        let host = world.host();
        world.add_file("a", &[1; 9000]);
        host.mkdir(BY, b"d", 0o700).unwrap();
        host.create(BY, b"d/file", 0o600).unwrap().write_at(BY, 0, b"content").unwrap();
        // The simulated clock goes on with each change.
        host.create(BY, b"later", 0o600).unwrap();
        host.sync_all(BY).unwrap();
        Store::format_on(&*world.log(), &small(), [7; 16]).unwrap();
        let options = || Options { at_once: true, ..small() };
        let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
        let mut group = store.begin();
        let file = group.open_file("a").unwrap();
        group.write_at(&file, 100, &[2; 200]).unwrap();
        assert!(group.remove_tree("d").unwrap());
        let from = world.now() + 1;
        group.commit().unwrap();
        let (trace, end) = (world.trace(), world.now());
        drop((file, store));
        let (mut explorer, mut stayed, mut moved) = (Explorer::new(&trace), 0, 0);
        for point in from..=end.min(trace.events.len() as u64) {
            explorer.seek(point);
            let world = World::from_image(&explorer.kill_image(), config.clone());
            let host = world.host();
            host.unlink(BY, b"a").unwrap();
            if host.stat(b".wholly/parked/10000000001.undo").is_err() {
                continue;
            }
            let anchors = host.read_dir(b".wholly/anchor").unwrap_or_default();
            let anchors = anchors.iter().map(|entry| [b".wholly/anchor/", &entry.name[..]].concat());
            let is_it = |at: &Vec<u8>| host.stat(&[at, &b"/file"[..]].concat()).is_ok();
            let lies = anchors.chain([b"d".to_vec()]).find(is_it).expect("it is somewhere");
            host.create(BY, &[&lies[..], b"/mine"].concat(), 0o600).unwrap();
            moved += u32::from(lies != b"d");
            for _ in 0..2 {
                let store = Store::open_on(world.log(), world.host(), options(), None).unwrap();
                drop(store);
                assert!(host.stat(b"d/mine").is_ok() && host.stat(b"d/file").is_ok(), "point {point}");
            }
            stayed += 1;
        }
        assert!(moved > 3 && stayed > moved, "it stayed {stayed} times, and had moved before {moved} times");
    }
}

#[test]
fn what_is_in_use_or_has_other_names_keeps_it() {
    type Case = (&'static str, fn(&Dir, &Store));
    let keeps: [Case; 3] = [
        ("another name", |dir, _| fs::hard_link(dir.join("d/deep/deeper/file"), dir.join("linked")).unwrap()),
        ("just changed", |dir, _| fs::write(dir.join("d/file"), "new").unwrap()),
        ("nothing", |_, _| {}),
    ];
    for (what, prepare) in keeps {
        let dir = dir(&what.replace(' ', "-"));
        let store = open(&dir);
        prepare(&dir, &store);
        let mut group = store.begin();
        assert_eq!(group.remove_tree("d").unwrap(), what == "nothing", "{what}");
        drop(group);
        let open_file = store.open_file("d/file").unwrap();
        sleep(Duration::from_millis(20));
        let mut group = store.begin();
        assert!(!group.remove_tree("d").unwrap(), "it is open");
        drop((group, open_file));
    }
    let dir = dir("changed");
    let store = open(&dir);
    let (mut group, mut other) = (store.begin(), store.begin());
    group.unlink("d/file").unwrap();
    assert!(!group.remove_tree("d").unwrap(), "a name of it was changed");
    other.set_mode("d/deep/deeper/file", 0o600).unwrap();
    drop(group);
    let mut group = store.begin();
    assert!(!matches!(group.remove_tree("d"), Ok(true)), "another group has changed a file in it");
    drop((group, other));
    let mut group = store.begin();
    assert!(matches!(group.remove_tree("other"), Err(Error::Refused(..))));
    assert!(matches!(group.remove_tree("nowhere"), Err(Error::NotFound(_))));
    drop(group);
    store.close().unwrap();
    let store = Store::open(&*dir).unwrap();
    assert!(!store.begin().remove_tree("d").unwrap(), "groups are not written back at once");
}
