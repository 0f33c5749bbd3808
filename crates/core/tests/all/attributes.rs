//! Attributes: times that changes have, claims, bystanders, permissions. What calls do is compared with the host's in
//! `names.rs`.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use wholly::{Error, Options, SetXattr, Store, StoreVfs};
use wholly_host::{HostMedium, HostOptions};
use wholly_vfs::{Context, Groups, Ino, Mode, SetAttr, SetTime, Timestamp, Vfs};

use crate::common;

/// How exact times are.
const GRAIN_NS: i64 = 20_000_000;

fn options() -> (Options, impl Fn(HostMedium) -> HostOptions) {
    let options = Options { background: false, ..Options::default() };
    (options, |medium| HostOptions { medium, ..HostOptions::default() })
}

fn now_ns() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_nanos() as i64
}

fn at_home(dir: &Path, path: &str) -> i64 {
    let stat = fs::symlink_metadata(dir.join(path)).unwrap();
    stat.mtime() * 1_000_000_000 + stat.mtime_nsec()
}

/// A change has its own time, and keeps it: in the group, after it, after a crash, and at home, whenever that is.
#[test]
fn a_change_has_the_time_when_it_was_made() {
    for (dir, medium) in common::Dir::on_media("times") {
        fs::create_dir(dir.join("dir")).unwrap();
        fs::write(dir.join("dir/old"), b"old").unwrap();
        let (options, host) = options();
        Store::init_with(&*dir, &options, host(medium)).unwrap();
        let open = || Store::open_with(&*dir, options.clone(), host(medium)).unwrap();
        let store = open();
        let times = |store: &Store| {
            ["dir/old", "dir/new", "dir", "dir/link"].map(|path| store.metadata(path).unwrap().mtime_ns)
        };

        let begin = now_ns();
        let mut group = store.begin();
        let new = group.create("dir/new", 0o644).unwrap();
        group.symlink("old", "dir/link").unwrap();
        let old = group.open_file("dir/old").unwrap();
        group.write_at(&old, 0, b"new").unwrap();
        let seen = ["dir/old", "dir/new", "dir"].map(|path| group.metadata(path).unwrap().mtime_ns);
        let end = now_ns();
        for ns in seen {
            assert!(begin - GRAIN_NS <= ns && ns <= end, "{begin} {ns} {end}");
        }
        group.commit().unwrap();
        let committed = times(&store);
        for ns in committed {
            assert!(begin - GRAIN_NS <= ns && ns <= end + GRAIN_NS, "{begin} {ns} {end}");
        }

        // Another group later: only what it changes has another time.
        std::thread::sleep(std::time::Duration::from_millis(30));
        new.write_at(0, b"later").unwrap();
        let later = times(&store);
        assert_eq!((later[0], later[2], later[3]), (committed[0], committed[2], committed[3]));
        assert!(later[1] > committed[1]);

        drop((old, new, store));
        let store = open();
        assert_eq!(times(&store), later, "after a crash");
        store.checkpoint().unwrap();
        assert_eq!(times(&store), later, "with home");
        store.close().unwrap();
        assert_eq!(["dir/old", "dir/new", "dir", "dir/link"].map(|path| at_home(&dir, path)), later, "at home");
    }
}

/// Of a chosen time and a change the later one counts.
#[test]
fn a_chosen_time_lasts_until_the_next_change() {
    for (dir, medium) in common::Dir::on_media("chosen-times") {
        for name in ["chosen", "changed"] {
            fs::write(dir.join(name), name).unwrap();
        }
        let (options, host) = options();
        Store::init_with(&*dir, &options, host(medium)).unwrap();
        let open = || Store::open_with(&*dir, options.clone(), host(medium)).unwrap();
        let store = open();
        let mut group = store.begin();
        for name in ["chosen", "changed"] {
            let file = group.open_file(name).unwrap();
            group.write_at(&file, 0, b"1").unwrap();
            group.set_times(name, Some(5_000_000_001), Some(7_000_000_002)).unwrap();
            if name == "changed" {
                group.write_at(&file, 1, b"2").unwrap();
            }
        }
        group.set_times(".", None, Some(9)).unwrap();
        group.commit().unwrap();
        let check = |store: &Store, when: &str| {
            let stat = |name| store.metadata(name).unwrap();
            assert_eq!((stat("chosen").atime_ns, stat("chosen").mtime_ns), (5_000_000_001, 7_000_000_002), "{when}");
            assert_eq!(stat("changed").atime_ns, 5_000_000_001, "{when}");
            assert!(stat("changed").mtime_ns > 7_000_000_002, "{when}");
            assert_eq!(stat(".").mtime_ns, 9, "{when}");
        };
        check(&store, "committed");
        drop(store);
        let store = open();
        check(&store, "recovered");
        store.checkpoint().unwrap();
        check(&store, "with home");
        store.close().unwrap();
        assert_eq!(at_home(&dir, "chosen"), 7_000_000_002);
    }
}

/// Groups that set attributes of one object exclude each other; those that change names in a directory are in nobody's
/// way.
#[test]
fn attributes_belong_to_one_group_at_a_time() {
    let dir = common::Dir::new(&std::env::temp_dir(), "attribute-claims");
    fs::create_dir(dir.join("dir")).unwrap();
    fs::write(dir.join("file"), b"").unwrap();
    Store::init(&*dir, &Options::default()).unwrap();
    let store = Store::open(&*dir).unwrap();
    let (mut one, mut other) = (store.begin(), store.begin());
    one.set_mode("dir", 0o750).unwrap();
    other.create("dir/new", 0o644).unwrap();
    for busy in [other.set_mode("dir", 0o700), other.set_xattr("dir", "user.a", b"1", SetXattr::Any)] {
        assert!(matches!(busy, Err(Error::Busy(..))), "{busy:?}");
    }
    one.set_mode("file", 0o600).unwrap();
    assert!(matches!(other.set_times("file", None, Some(1)), Err(Error::Busy(..))));
    one.commit().unwrap();
    other.set_times("file", None, Some(1)).unwrap();
    other.set_mode("dir", 0o711).unwrap();
    other.commit().unwrap();
    let modes = ["dir", "file", "dir/new"].map(|path| store.metadata(path).unwrap().mode & 0o7777);
    assert_eq!(modes, [0o711, 0o600, 0o644]);
    store.close().unwrap();
    let home = |path: &str| fs::metadata(dir.join(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(["dir", "file", "dir/new"].map(home), modes);
}

/// What a bystander has set is not set over.
#[test]
fn a_bystanders_attributes_are_a_conflict() {
    type Meddle = fn(&Path);
    let meddle: [(&str, Meddle); 2] = [
        ("its mode", |path| fs::set_permissions(path, fs::Permissions::from_mode(0o711)).unwrap()),
        ("an extended attribute", |path| {
            rustix::fs::setxattr(path.as_os_str().as_bytes(), "user.a", b"theirs", rustix::fs::XattrFlags::empty())
                .unwrap();
        }),
    ];
    for (what, meddle) in meddle {
        let dir = common::Dir::new(&std::env::temp_dir(), "attribute-bystander");
        fs::create_dir(dir.join("dir")).unwrap();
        let options = Options { background: false, ..Options::default() };
        Store::init(&*dir, &options).unwrap();
        let store = Store::open_with(&*dir, options, HostOptions::default()).unwrap();
        store.set_mode("dir", 0o750).unwrap();
        store.set_xattr("dir", "user.a", b"ours", SetXattr::Create).unwrap();
        meddle(&dir.join("dir"));
        match store.checkpoint() {
            Err(Error::Conflict { path, change }) => {
                assert!(path == "dir" && change.contains(what), "{path}: {change}")
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(store.metadata("dir").unwrap().mode & 0o7777, 0o750, "the store keeps its own");
    }
}

/// A chown that gives no new owner takes set-id bits all the same.
#[test]
fn a_chown_to_nobody_takes_set_id_bits() {
    for (dir, medium) in common::Dir::on_media("chown-to-nobody") {
        let host_file = dir.join("host");
        for (path, mode) in [("file", 0o6751), ("host", 0o6751), ("plain", 0o640)] {
            fs::write(dir.join(path), b"").unwrap();
            fs::set_permissions(dir.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::chown(&host_file, None, None).unwrap();
        let (options, host) = options();
        Store::init_with(&*dir, &options, host(medium)).unwrap();
        let store = Store::open_with(&*dir, options, host(medium)).unwrap();
        let mut group = store.begin();
        group.set_owner("file", None, None).unwrap();
        group.set_owner("plain", None, None).unwrap();
        let modes = ["file", "plain"].map(|path| group.metadata(path).unwrap().mode);
        assert_eq!(modes, [fs::metadata(&host_file).unwrap().mode(), 0o100_640]);
        group.commit().unwrap();
        store.close().unwrap();
        assert_eq!(["file", "plain"].map(|path| fs::metadata(dir.join(path)).unwrap().mode()), modes);
    }
}

/// A new object is its directory's group's where that has the bit for it.
#[test]
fn a_set_group_id_directory_hands_its_group_on() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = common::Dir::new(&std::env::temp_dir(), "set-group-id");
    Store::init(&*dir, &Options::default()).unwrap();
    let store = Store::open(&*dir).unwrap();
    let mut group = store.begin();
    group.mkdir("shared", 0o755).unwrap();
    group.set_owner("shared", None, Some(77)).unwrap();
    group.set_mode("shared", 0o2775).unwrap();
    group.create("shared/file", 0o640).unwrap();
    group.mkdir("shared/dir", 0o700).unwrap();
    group.commit().unwrap();
    let seen = |path: &str| store.metadata(path).map(|stat| (stat.mode & 0o7777, stat.gid)).unwrap();
    let expected = [(0o2775, 77), (0o640, 77), (0o2700, 77)];
    assert_eq!(["shared", "shared/file", "shared/dir"].map(seen), expected);
    store.close().unwrap();
    let home = |path: &str| fs::metadata(dir.join(path)).map(|stat| (stat.mode() & 0o7777, stat.gid())).unwrap();
    assert_eq!(["shared", "shared/file", "shared/dir"].map(home), expected);
}

/// Set-id bits and capabilities go with the owner, and errors are those of the calls.
#[test]
fn as_the_kernel_decides() {
    let dir = common::Dir::new(&std::env::temp_dir(), "attribute-rules");
    fs::write(dir.join("program"), b"").unwrap();
    Store::init(&*dir, &Options::default()).unwrap();
    let store = Store::open(&*dir).unwrap();
    store.symlink("program", "link").unwrap();
    let errno = |result: wholly::Result<()>| result.unwrap_err().errno();
    assert_eq!(errno(store.set_mode("link", 0o600)), 95);
    assert_eq!(errno(store.set_mode("program", 0o10000)), 22);
    assert_eq!(errno(store.set_mode("nothing", 0o600)), 2);
    let set = |path, name: &str, how| store.set_xattr(path, name, b"1", how);
    assert_eq!(errno(set("program", "user.", SetXattr::Any)), 22);
    assert_eq!(errno(set("program", "other.a", SetXattr::Any)), 95);
    assert_eq!(errno(set("program", &format!("user.{}", "x".repeat(251)), SetXattr::Any)), 34);
    assert_eq!(errno(set("link", "user.a", SetXattr::Any)), 1);
    assert_eq!(errno(set("program", "user.a", SetXattr::Replace)), 61);
    set("program", "user.a", SetXattr::Create).unwrap();
    assert_eq!(errno(set("program", "user.a", SetXattr::Create)), 17);
    assert_eq!(errno(store.set_xattr("program", "user.b", &vec![0; 65537], SetXattr::Any)), 7);
    assert_eq!(errno(store.remove_xattr("program", "user.c")), 61);
    assert_eq!(store.xattr("program", "user.a").unwrap().as_deref(), Some(&b"1"[..]));
    if rustix::process::geteuid().is_root() {
        store.set_mode("program", 0o6755).unwrap();
        store.set_owner("program", Some(1234), None).unwrap();
        let stat = store.metadata("program").unwrap();
        assert_eq!((stat.mode & 0o7777, stat.uid), (0o755, 1234));
    }
    store.close().unwrap();
}

/// What is set of a file before it has a name goes home with it, whatever passes end meanwhile.
#[test]
fn attributes_of_what_has_no_name_yet() {
    use wholly::StoreVfs;
    use wholly_vfs::{Context, Ino, Mode, OFlags, SetXattr, Vfs};
    for (dir, medium) in common::Dir::on_media("nameless") {
        let store = common::made_in(&dir, medium)();
        let ctx = Context::of(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let view = StoreVfs::new(&store);
        store.create_file("before", 0o644).unwrap();
        store.announce_lot().unwrap();
        let (made, handle) = view.tmpfile(&ctx, Ino::ROOT, OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap();
        view.write(&ctx, &handle, 0, b"content").unwrap();
        view.setxattr(&ctx, made.ino, b"user.color", b"red", SetXattr::Any).unwrap();
        store.take_lot_home().unwrap();
        view.link(&ctx, made.ino, Ino::ROOT, b"named").unwrap();
        view.release(&ctx, handle).unwrap();
        view.forget(made.ino, 2);
        drop(view);
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("named")).unwrap(), b"content");
        let mut value = [0; 16];
        let length =
            rustix::fs::lgetxattr(dir.join("named").as_os_str().as_bytes(), "user.color", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"red");
    }
}

/// A file without a name that a running group is about to name is not taken away by a pass, though nobody has it open
/// any more.
#[test]
fn a_name_that_is_about_to_be_given() {
    use wholly::StoreVfs;
    use wholly_vfs::{Context, Ino, Mode, OFlags, Vfs};
    for (dir, medium) in common::Dir::on_media("about-to-be") {
        let store = common::made_in(&dir, medium)();
        let view = StoreVfs::new(&store);
        let ctx = Context::of(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let (made, handle) = view.tmpfile(&ctx, Ino::ROOT, OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap();
        view.write(&ctx, &handle, 0, b"content").unwrap();
        store.checkpoint().unwrap();
        let group = view.begin().unwrap();
        view.link(&Context { group: Some(group), ..ctx.clone() }, made.ino, Ino::ROOT, b"named").unwrap();
        view.release(&ctx, handle).unwrap();
        view.forget(made.ino, 2);
        store.create_file("other", 0o644).unwrap();
        store.checkpoint().unwrap();
        view.commit(group).unwrap();
        drop(view);
        store.close().unwrap();
        assert_eq!(fs::read(dir.join("named")).unwrap(), b"content");
    }
}

/// A file is known by the name by which somebody found it last. Where that goes, and another stays, what is set by the
/// other name is set at home.
#[test]
fn what_is_set_by_a_name_that_stays_is_set() {
    for (dir, medium) in common::stores_of_files("names-stays") {
        std::fs::hard_link(dir.join("d/b"), dir.join("b")).unwrap();
        let store = common::open_on(&dir, medium);
        let vfs = StoreVfs::new(&store);
        let group = vfs.begin().unwrap();
        let ctx = Context { group: Some(group), ..Context::superuser() };
        let b = vfs.lookup(&ctx, Ino::ROOT, b"b").unwrap().ino;
        let d = vfs.lookup(&ctx, Ino::ROOT, b"d").unwrap().ino;
        vfs.unlink(&ctx, d, b"b").unwrap();
        vfs.rmdir(&ctx, Ino::ROOT, b"d").unwrap();
        let mtime = SetTime::At(Timestamp { sec: 1_000_000_000, nsec: 5 });
        vfs.setattr(&ctx, b, None, &SetAttr { mtime, mode: Some(Mode::from_raw_mode(0o604)), ..SetAttr::default() })
            .unwrap();
        vfs.commit(group).unwrap();
        vfs.forget(b, 1);
        vfs.forget(d, 1);
        drop(vfs);
        store.close().unwrap();
        let left = std::fs::metadata(dir.join("b")).unwrap();
        assert_eq!((left.mtime(), left.mode() & 0o7777, left.nlink()), (1_000_000_000, 0o604, 1));
    }
}

/// A backup program on a mount goes by times of change: a checkpoint changes none that it sees.
#[test]
fn a_checkpoint_changes_no_time_of_change_that_programs_see() {
    use wholly_vfs::{Context, Ino, Mode, OFlags, Vfs};
    for (dir, medium) in common::stores_of_files("ctimes") {
        // The host may tell times of what was just made that are later than the tick of the clock that calls go by.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let store = common::open_on(&dir, medium);
        let vfs = StoreVfs::new(&store);
        vfs.keep_ctimes();
        let ctx = Context::superuser();
        let d = vfs.lookup(&ctx, Ino::ROOT, b"d").unwrap().ino;
        let (new, handle) = vfs.create(&ctx, Ino::ROOT, b"new", OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap();
        vfs.write(&ctx, &handle, 0, b"content").unwrap();
        vfs.release(&ctx, handle).unwrap();
        let old = vfs.lookup(&ctx, d, b"b").unwrap().ino;
        let handle = vfs.open(&ctx, old, OFlags::RDWR).unwrap();
        vfs.write(&ctx, &handle, 0, b"more").unwrap();
        vfs.release(&ctx, handle).unwrap();
        vfs.symlink(&ctx, d, b"link", b"target").unwrap();
        let link = vfs.lookup(&ctx, d, b"link").unwrap().ino;
        let all = [Ino::ROOT, d, new.ino, old, link];
        let seen = || all.map(|ino| vfs.getattr(&ctx, ino).unwrap().ctime);
        let before = seen();
        for _ in 0..2 {
            // The clock of the host is coarse.
            std::thread::sleep(std::time::Duration::from_millis(20));
            store.checkpoint().unwrap();
            assert_eq!(seen(), before);
        }
        // Of the host's own they are others.
        assert_ne!(std::fs::metadata(dir.join("new")).unwrap().ctime_nsec(), i64::from(before[2].nsec));
        // What a program changes has another one.
        std::fs::set_permissions(dir.join("new"), std::fs::Permissions::from_mode(0o640)).unwrap();
        let after = seen();
        assert!(after[2] != before[2] && after[..2] == before[..2] && after[3..] == before[3..]);
    }
}

/// What is immutable or append-only on the host is refused at the call, and not when it is written back.
#[test]
fn what_is_immutable_is_refused_at_the_call() {
    use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags};
    let (dir, medium) = common::stores_of_files("immutable").into_iter().last().expect("one on a disk");
    let set = |path: &str, flag: IFlags, on: bool| {
        let path = dir.join(path);
        let file = rustix::fs::open(path.as_os_str().as_bytes(), OFlags::RDONLY, Mode::empty()).unwrap();
        let flags = ioctl_getflags(&file).unwrap_or(IFlags::empty());
        ioctl_setflags(&file, if on { flags | flag } else { flags - flag })
    };
    fs::write(dir.join("log"), "line").unwrap();
    fs::write(dir.join("d/kept"), "").unwrap();
    if set("a", IFlags::IMMUTABLE, true).is_err() {
        println!("skipped: it takes the superuser and a file system with such flags");
        return;
    }
    set("log", IFlags::APPEND, true).unwrap();
    set("d", IFlags::APPEND, true).unwrap();
    let store = common::open_on(&dir, medium);
    let is_refused = |call: wholly::Result<()>| {
        let error = call.unwrap_err();
        assert_eq!(rustix::io::Errno::from(error.clone()), rustix::io::Errno::PERM, "{error}");
    };
    for path in ["a", "log"] {
        is_refused(store.unlink(path));
        is_refused(store.rename(path, "other", wholly::Rename::NoReplace));
        is_refused(store.rename("e", path, wholly::Rename::Exchange));
        is_refused(store.link(path, "other"));
        is_refused(store.set_mode(path, 0o600));
        is_refused(store.set_xattr(path, "user.a", b"b", SetXattr::Any));
        is_refused(store.open_file(path).map(drop));
    }
    is_refused(store.unlink("d/kept"));
    store.create_file("d/new", 0o600).map(drop).expect("an append-only directory gets names");
    store.checkpoint().expect("nothing is left to be refused");
    for (path, flag) in [("a", IFlags::IMMUTABLE), ("log", IFlags::APPEND), ("d", IFlags::APPEND)] {
        set(path, flag, false).unwrap();
    }
    store.unlink("a").expect("it is asked for again");
    store.close().unwrap();
    assert!(dir.join("d/new").exists() && !dir.join("a").exists());
}

/// More names than a file can have, and attributes for which it has no room, are refused at the call.
#[test]
fn what_the_host_has_no_room_for_is_refused_at_the_call() {
    for (dir, medium) in common::stores_of_files("no-room") {
        let store = common::open_on(&dir, medium);
        let refused = (0..200).find_map(|number| {
            store.set_xattr("a", format!("user.attribute-number-{number}"), &[7; 200], SetXattr::Any).err()
        });
        let large = store.set_xattr("d/b", "user.large", &[7; 60_000], SetXattr::Any);
        store.set_xattr("d/b", "user.small", &[7; 20], SetXattr::Any).expect("there is room for this");
        // One goes, and another one takes its room.
        store.create_file("taken", 0o600).unwrap();
        store.set_xattr("taken", "user.z", &[7; 3000], SetXattr::Any).unwrap();
        store.checkpoint().unwrap();
        store.remove_xattr("taken", "user.z").unwrap();
        store.set_xattr("taken", "user.a", &[7; 3000], SetXattr::Any).expect("there is room for one of them");
        // A file system that has room for all that takes it home.
        store.checkpoint().unwrap_or_else(|error| panic!("{error}, after {refused:?} and {large:?}"));
        store.close().unwrap();
    }
}
