//! Stores over real directories: making, opening, owning, paths, and what bystanders see.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use wholly::{Error, Options, Store};
use wholly_host::{HostMedium, HostOptions};

use crate::common::Dir;
use crate::ordinary_user::as_user;

/// Runs a test on emulated persistent memory and on the disk that temporary files are on.
fn on_media(name: &str, test: impl Fn(&Path, HostMedium)) {
    for (dir, medium) in Dir::on_media(name) {
        test(&dir, medium);
    }
}

fn open(dir: &Path, medium: HostMedium) -> wholly::Result<Store> {
    Store::open_with(dir, Options::default(), HostOptions { medium, ..HostOptions::default() })
}

fn init(dir: &Path, medium: HostMedium) -> wholly::Result<()> {
    Store::init_with(dir, &Options::default(), HostOptions { medium, ..HostOptions::default() })
}

#[test]
fn a_group_goes_home_when_the_store_is_closed() {
    on_media("close", |dir, medium| {
        std::fs::write(dir.join("old"), "old content").unwrap();
        std::fs::create_dir(dir.join("sub")).unwrap();
        init(dir, medium).unwrap();
        let store = open(dir, medium).unwrap();
        let mut group = store.begin();
        let old = group.open_file("old").unwrap();
        let new = group.create("sub/new", 0o640).unwrap();
        group.write_at(&old, 0, b"NEW").unwrap();
        group.append(&new, b"created").unwrap();
        assert!(!dir.join("sub/new").exists(), "nobody sees it before it commits");
        group.commit().unwrap();
        drop((old, new));
        store.close().unwrap();
        assert_eq!(std::fs::read(dir.join("old")).unwrap(), b"NEW content");
        assert_eq!(std::fs::read(dir.join("sub/new")).unwrap(), b"created");
        assert_eq!(dir.join("sub/new").metadata().unwrap().permissions().mode() & 0o7777, 0o640);
        assert_eq!(dir.join(".wholly").metadata().unwrap().permissions().mode() & 0o7777, 0o700);
    });
}

/// The group began before the directory that it makes one in was made. Replay must not put it first: the link count and
/// time of the directory are those of what was made in it.
#[test]
fn a_group_makes_a_directory_in_one_that_is_younger_than_the_group() {
    on_media("younger", |dir, medium| {
        init(dir, medium).unwrap();
        let store = open(dir, medium).unwrap();
        let mut group = store.begin();
        store.mkdir("A", 0o755).unwrap();
        group.mkdir("A/C", 0o755).unwrap();
        group.commit().unwrap();
        let looks = |store: &Store| {
            let stat = store.metadata("A").unwrap();
            (stat.nlink, stat.mtime_ns)
        };
        let before = looks(&store);
        assert_eq!(before.0, 3);
        drop(store);
        assert_eq!(looks(&open(dir, medium).unwrap()), before);
    });
}

#[test]
fn what_is_committed_survives_without_a_close() {
    on_media("reopen", |dir, medium| {
        std::fs::write(dir.join("a"), vec![0; 10_000]).unwrap();
        init(dir, medium).unwrap();
        for round in 1..=20u8 {
            let store = open(dir, medium).unwrap();
            let file = store.open_file("a").unwrap();
            let mut byte = [0];
            file.read_at(9_999, &mut byte).unwrap();
            assert_eq!(byte[0], round - 1);
            let mut group = store.begin();
            group.write_at(&file, 0, &[round; 10_000]).unwrap();
            group.commit().unwrap();
            let mut undone = store.begin();
            undone.write_at(&file, 0, &[99; 10_000]).unwrap();
            drop(undone);
        }
    });
}

#[test]
fn errors_say_what_to_do() {
    on_media("errors", |dir, medium| {
        assert!(matches!(open(dir, medium), Err(Error::NotAStore(_))));
        init(dir, medium).unwrap();
        assert!(matches!(init(dir, medium), Err(Error::AlreadyAStore(_))));
        let store = open(dir, medium).unwrap();
        let Err(Error::Busy(_, owner)) = open(dir, medium) else { panic!("two owners") };
        assert!(owner.contains(&std::process::id().to_string()), "{owner}");
        assert!(matches!(store.open_file("missing"), Err(Error::NotFound(_))));
        for path in ["", ".", "..", "a/../../b", "/etc/passwd", ".wholly/log", "./.wholly/log"] {
            assert!(matches!(store.open_file(path), Err(Error::Invalid(_))), "{path:?}");
            assert!(matches!(store.begin().create(path, 0o600), Err(Error::Invalid(_))), "{path:?}");
        }
        assert!(matches!(store.begin().create("no/such/dir", 0o600), Err(Error::NotFound(_))));
        std::fs::create_dir(dir.join("folder")).unwrap();
        assert!(store.open_file("folder").is_err());
        std::fs::write(dir.join("file"), "x").unwrap();
        assert!(matches!(store.begin().create("file", 0o600), Err(Error::Exists(_))));
    });
}

#[test]
fn symbolic_links_lead_nowhere_else() {
    on_media("links", |dir, medium| {
        std::fs::write(dir.join("inside"), "inside").unwrap();
        symlink("inside", dir.join("good")).unwrap();
        symlink("/etc/hostname", dir.join("absolute")).unwrap();
        symlink("../..", dir.join("up")).unwrap();
        symlink(".wholly/log", dir.join("own")).unwrap();
        init(dir, medium).unwrap();
        let store = open(dir, medium).unwrap();
        let file = store.open_file("good").unwrap();
        file.write_at(0, b"IN").unwrap();
        let other_name = store.open_file("inside").unwrap();
        let mut bytes = [0; 6];
        assert_eq!(other_name.read_at(0, &mut bytes).unwrap(), 6);
        assert_eq!(&bytes, b"INside");
        for path in ["absolute", "up/etc/hostname", "own"] {
            assert!(store.open_file(path).is_err(), "{path}");
        }
    });
}

#[test]
fn a_file_belongs_to_one_group_at_a_time() {
    on_media("claims", |dir, medium| {
        std::fs::write(dir.join("a"), "aaaa").unwrap();
        init(dir, medium).unwrap();
        let store = open(dir, medium).unwrap();
        let file = store.open_file("a").unwrap();
        let mut first = store.begin();
        first.write_at(&file, 0, b"1").unwrap();
        let mut second = store.begin();
        assert!(matches!(second.write_at(&file, 0, b"2"), Err(Error::Busy(..))));
        assert!(matches!(file.write_at(0, b"3"), Err(Error::Busy(..))));
        let mut byte = [0];
        file.read_at(0, &mut byte).unwrap();
        assert_eq!(&byte, b"a", "others read the committed version");
        first.create("name", 0o600).unwrap();
        assert!(matches!(second.create("name", 0o600), Err(Error::Busy(..))));
        first.abort();
        second.write_at(&file, 0, b"2").unwrap();
        second.create("name", 0o600).unwrap();
        second.commit().unwrap();
        file.read_at(0, &mut byte).unwrap();
        assert_eq!(&byte, b"2");
        store.checkpoint().unwrap();
        assert!(dir.join("name").exists());
    });
}

#[test]
fn a_bystanders_change_is_not_overwritten() {
    on_media("bystander", |dir, medium| {
        std::fs::write(dir.join("a"), "original").unwrap();
        init(dir, medium).unwrap();
        let store = open(dir, medium).unwrap();
        let file = store.open_file("a").unwrap();
        file.write_at(0, b"ours").unwrap();
        std::fs::write(dir.join("a"), "theirs, and longer").unwrap();
        let Err(Error::Conflict { path, .. }) = store.checkpoint() else { panic!("overwritten") };
        assert_eq!(path, "a");
        assert_eq!(std::fs::read(dir.join("a")).unwrap(), b"theirs, and longer");
        let mut bytes = [0; 4];
        file.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"ours", "the store's version is kept");
    });
}

/// What a store has refused to overwrite it refuses after it was opened again, too.
#[test]
fn a_bystanders_change_is_not_overwritten_by_who_comes_later() {
    on_media("later-bystander", |dir, medium| {
        std::fs::write(dir.join("a"), "original").unwrap();
        std::fs::write(dir.join("b"), "original").unwrap();
        init(dir, medium).unwrap();
        let store = open(dir, medium).unwrap();
        let (a, b) = (store.open_file("a").unwrap(), store.open_file("b").unwrap());
        // Once home and back: the log tells of a pass.
        a.write_at(0, b"0").unwrap();
        store.checkpoint().unwrap();
        let mut group = store.begin();
        group.write_at(&a, 0, b"ours").unwrap();
        group.write_at(&b, 0, b"ours").unwrap();
        group.commit().unwrap();
        std::fs::write(dir.join("b"), "theirs, and longer").unwrap();
        assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })));
        drop((a, b));
        assert!(matches!(store.close(), Err(Error::Conflict { .. })));
        for _ in 0..2 {
            let store = open(dir, medium).unwrap();
            assert_eq!(store.recovery().conflicts.len(), 1, "{:?}", store.recovery());
            assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })));
            assert!(matches!(store.close(), Err(Error::Conflict { .. })));
            assert_eq!(std::fs::read(dir.join("b")).unwrap(), b"theirs, and longer");
        }
    });
}

/// A pass announces the newest target and takes the oldest updates home, so most of what the log holds was identified
/// before it: it is the last identification of a file that tells whether a bystander was there, not the first.
#[test]
fn a_bystanders_change_between_a_pass_and_a_crash_is_found_by_recovery() {
    on_media("crash-bystander", |dir, medium| {
        std::fs::write(dir.join("spoiled"), "original").unwrap();
        std::fs::write(dir.join("f"), "original").unwrap();
        init(dir, medium).unwrap();
        let options = Options { background: false, ..Options::default() };
        let host = HostOptions { medium, ..HostOptions::default() };
        let store = Store::open_with(dir, options.clone(), host.clone()).unwrap();
        let (spoiled, f) = (store.open_file("spoiled").unwrap(), store.open_file("f").unwrap());
        spoiled.write_at(0, b"ours").unwrap();
        f.write_at(0, b"1").unwrap();
        std::fs::write(dir.join("spoiled"), "theirs").unwrap();
        assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })), "nothing is home");
        f.write_at(1, b"2").unwrap();
        drop((spoiled, f, store));
        std::fs::write(dir.join("f"), "theirs, too").unwrap();
        let store = Store::open_with(dir, options, host).unwrap();
        let conflicts = &store.recovery().conflicts;
        assert!(conflicts.iter().any(|(path, _)| path == "f"), "{conflicts:?}");
        assert!(matches!(store.checkpoint(), Err(Error::Conflict { .. })));
        drop(store);
        assert_eq!(std::fs::read(dir.join("f")).unwrap(), b"theirs, too");
    });
}

/// Recovery opens home files to write to them. One that was created read-only refuses, although it is the store's own.
#[test]
fn a_file_created_read_only_survives_a_crash_before_it_is_home() {
    on_media("read-only", |dir, medium| {
        // By an ordinary user: no permission stops the superuser.
        as_user(dir, || {
            init(dir, medium).unwrap();
            let options = Options { background: false, ..Options::default() };
            let host = HostOptions { medium, ..HostOptions::default() };
            let open = || Store::open_with(dir, options.clone(), host.clone()).unwrap();
            let store = open();
            let mut group = store.begin();
            let files = [0o444, 0o200, 0].map(|mode| group.create(format!("mode-{mode:o}"), mode).unwrap());
            files.iter().for_each(|file| group.write_at(file, 0, b"created").unwrap());
            group.commit().unwrap();
            drop((files, store));
            // Twice, since opening such a file changes what tells a bystander.
            for round in 0..2 {
                let store = open();
                assert_eq!(store.recovery().conflicts, [], "round {round}");
                drop(store);
            }
            let store = open();
            store.open_file("mode-444").unwrap_err();
            store.close().unwrap();
        });
        for mode in [0o444, 0o200, 0] {
            let path = dir.join(format!("mode-{mode:o}"));
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, mode);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(std::fs::read(path).unwrap(), b"created");
        }
    });
}

/// A bystander is a conflict, whatever it put there, and keeps nobody from the rest of the store.
#[test]
fn what_stands_in_a_files_place_is_a_conflict() {
    on_media("in-place", |dir, medium| {
        let names = ["fifo", "socket", "folder", "loop", "other"];
        for name in names.iter().chain(&["rest"]) {
            std::fs::write(dir.join(name), "original").unwrap();
        }
        init(dir, medium).unwrap();
        let options = Options { background: false, ..Options::default() };
        let host = HostOptions { medium, ..HostOptions::default() };
        let store = Store::open_with(dir, options.clone(), host.clone()).unwrap();
        for name in names.iter().chain(&["rest"]) {
            store.open_file(name).unwrap().write_at(0, b"ours").unwrap();
        }
        drop(store);
        names.iter().for_each(|name| std::fs::remove_file(dir.join(name)).unwrap());
        assert!(std::process::Command::new("mkfifo").arg(dir.join("fifo")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
        std::fs::create_dir(dir.join("folder")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        std::fs::write(dir.join("other"), "original").unwrap();
        let store = Store::open_with(dir, options, host).unwrap();
        let mut conflicts: Vec<&str> =
            store.recovery().conflicts.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        conflicts.sort_unstable();
        assert_eq!(conflicts, ["fifo", "folder", "loop", "other", "socket"]);
        let mut bytes = [0; 8];
        store.open_file("rest").unwrap().read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"oursinal");
    });
}

/// What a log holds is read as it was made; an empty one is made again for the medium that it lies on.
#[test]
fn a_log_lies_on_another_medium_than_it_was_made_for() {
    for (made, opened) in [(HostMedium::Pmem, HostMedium::Disk), (HostMedium::Disk, HostMedium::Pmem)] {
        let dir = Dir::new(&std::env::temp_dir(), "another-medium");
        init(&dir, made).unwrap();
        let write = |medium, name: &str, closes: bool| {
            let store = open(&dir, medium).unwrap();
            let mut group = store.begin();
            let file = group.create(name, 0o644).unwrap();
            group.write_at(&file, 0, name.as_bytes()).unwrap();
            drop(file);
            group.commit().unwrap();
            if closes { store.close().unwrap() } else { drop(store) }
        };
        write(made, "in the log", false);
        write(opened, "read as it was made", false);
        write(opened, "closed", true);
        write(opened, "made again", false);
        write(made, "and back", true);
        for name in ["in the log", "read as it was made", "closed", "made again", "and back"] {
            assert_eq!(std::fs::read(dir.join(name)).unwrap(), name.as_bytes());
        }
        assert!(wholly::check(&*dir).unwrap().is_sound());
    }
}

#[test]
fn a_file_larger_than_the_log_goes_through_one_group() {
    on_media("large", |dir, medium| {
        init(dir, medium).unwrap();
        let options = Options { log_max_bytes: 4 << 20, ..Options::default() };
        let host = HostOptions { medium, ..HostOptions::default() };
        let store = Store::open_with(dir, options, host).unwrap();
        let data: Vec<u8> = (0..20u32 << 20).map(|i| (i * 7 / 3) as u8).collect();
        let mut group = store.begin();
        let file = group.create("large", 0o600).unwrap();
        for (i, piece) in data.chunks(777_777).enumerate() {
            group.write_at(&file, i as u64 * 777_777, piece).unwrap();
        }
        let mut read = vec![0; data.len()];
        assert_eq!(group.read_at(&file, 0, &mut read).unwrap(), data.len());
        assert!(read == data, "in the group");
        group.commit().unwrap();
        drop(file);
        store.close().unwrap();
        assert!(std::fs::read(dir.join("large")).unwrap() == data, "at home");
        assert!(dir.join(".wholly/log").metadata().unwrap().len() < 4 << 20, "the log is small again");
    });
}

#[test]
fn no_file_becomes_longer_than_the_host_allows() {
    const EFBIG: i32 = 27;
    on_media("lengths", |dir, medium| {
        let probe = std::fs::File::create(dir.join("probe")).unwrap();
        init(dir, medium).unwrap();
        let store = open(dir, medium).unwrap();
        let file = store.create_file("long", 0o644).unwrap();
        let mut refused = 0;
        for length in [1 << 30, (16 << 40) - 4096, 16 << 40, 1 << 51, (1 << 52) - 8192, 1 << 52, 1 << 62] {
            let fits = probe.set_len(length).is_ok() && length <= (1 << 52) - 8192;
            let mut group = store.begin();
            match group.set_len(&file, length) {
                Ok(()) => {
                    assert!(fits, "{length}");
                    group.write_at(&file, length - 1, b"x").unwrap();
                }
                Err(error) => {
                    assert!(!fits && error.errno() == EFBIG, "{length}: {error}");
                    assert!(group.write_at(&file, length - 1, b"x").is_err_and(|error| error.errno() == EFBIG));
                    refused += 1;
                }
            }
            // What was refused has changed nothing, and the group goes on.
            group.write_at(&file, 0, b"begins").unwrap();
            group.commit().unwrap();
            store.checkpoint().unwrap_or_else(|error| panic!("a file of {length} bytes: {error}"));
            assert_eq!(std::fs::metadata(dir.join("long")).unwrap().len(), file.len());
        }
        assert!(refused >= 2);
    });
}
