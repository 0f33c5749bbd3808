//! Host directories: paths that try to leave, files without names, ownership, the making and unmaking of `.wholly`.

use super::*;
use crate::HostFs;
use rustix::io::Errno;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use wholly_media::{Kind, Site};
use wholly_scratch::TestDir;

const SITE: Site = Site("test");

fn open(dir: &TestDir) -> Arc<HostDir> {
    Arc::new(HostDir::open(dir.path(), HostOptions::default()).expect("open the directory"))
}

fn everywhere() -> impl Iterator<Item = TestDir> {
    TestDir::on_tmpfs().into_iter().chain([TestDir::on_disk()])
}

fn errno<T>(result: wholly_media::Result<T>) -> Option<Errno> {
    result.err().map(|error| error.errno)
}

#[test]
fn paths_cannot_leave() {
    let dir = TestDir::on_disk();
    let inside = dir.path().join("inside");
    std::fs::create_dir_all(inside.join("sub/deep")).expect("mkdir");
    std::fs::write(dir.path().join("secret"), "s").expect("write");
    std::fs::write(inside.join("file"), "f").expect("write");
    symlink("../../file", inside.join("sub/deep/to-file")).expect("symlink");
    symlink("sub/deep", inside.join("to-deep")).expect("symlink");
    symlink("../secret", inside.join("out")).expect("symlink");
    symlink("..", inside.join("out-dir")).expect("symlink");
    symlink(dir.path().join("secret"), inside.join("absolute")).expect("symlink");
    symlink(inside.join("file"), inside.join("absolute-inside")).expect("symlink");
    symlink("/proc/self/root", inside.join("magic")).expect("symlink");
    symlink("loop", inside.join("loop")).expect("symlink");

    let host = HostDir::open(&inside, HostOptions::default()).expect("open");
    let absolute = inside.join("file").to_str().unwrap().to_owned();
    let opened = [
        ("../secret", Errno::XDEV),
        ("sub/../../secret", Errno::XDEV),
        (&absolute, Errno::XDEV),
        ("out", Errno::LOOP),
        ("absolute", Errno::LOOP),
        ("absolute-inside", Errno::LOOP),
        ("loop", Errno::LOOP),
        ("sub/deep/to-file", Errno::LOOP),
        ("out-dir/secret", Errno::NOTDIR),
        ("magic/etc/passwd", Errno::NOTDIR),
        ("to-deep/to-file", Errno::NOTDIR),
        ("fi\0le", Errno::INVAL),
    ];
    for (path, refused) in opened {
        assert_eq!(errno(host.open(path.as_bytes(), false)), Some(refused), "open {path}");
        assert_eq!(errno(host.open(path.as_bytes(), true)), Some(refused), "open {path} to write");
    }
    for (path, refused) in [("..", Errno::XDEV), ("out-dir/secret", Errno::NOTDIR), ("sub/../..", Errno::XDEV)] {
        assert_eq!(errno(host.stat(path.as_bytes())), Some(refused), "stat {path}");
    }
    let refused = [("..", Errno::XDEV), ("out-dir", Errno::NOTDIR), ("to-deep", Errno::NOTDIR), ("/", Errno::XDEV)];
    for (path, refused) in refused {
        assert_eq!(errno(host.sync_dir(SITE, path.as_bytes())), Some(refused), "sync {path}");
        assert_eq!(errno(host.create_unnamed(SITE, path.as_bytes(), 0o600)), Some(refused), "create {path}");
    }
    let file = host.create_unnamed(SITE, b"", 0o600).expect("create");
    let refused = [("../new", Errno::XDEV), ("out-dir/new", Errno::NOTDIR), ("to-deep/new", Errno::NOTDIR)];
    for (path, refused) in refused {
        assert_eq!(errno(host.link(SITE, &*file, path.as_bytes())), Some(refused), "link {path}");
    }
    for path in ["", ".", "..", "sub/", "sub/.", "sub/.."] {
        assert_eq!(errno(host.link(SITE, &*file, path.as_bytes())), Some(Errno::INVAL), "link {path}");
    }

    // What stays inside is found; what ends in a link is shown as one.
    for path in ["file", "sub/../file", "./sub//deep/./../../file"] {
        let mut byte = [0];
        let file = host.open(path.as_bytes(), true).expect(path);
        assert_eq!((file.read_at(0, &mut byte), byte), (Ok(1), *b"f"), "{path}");
    }
    assert_eq!(host.stat(b"out").expect("stat").mode & 0o170_000, 0o120_000);
    assert!(host.stat(b"").expect("stat").mode & 0o170_000 == 0o040_000);
}

#[test]
fn other_file_systems_below_are_refused() {
    let root = HostDir::open(std::path::Path::new("/"), HostOptions { medium: HostMedium::Disk, ..Default::default() });
    let root = root.expect("open the root");
    assert_eq!(errno(root.stat(b"proc/self/status")), Some(Errno::XDEV));
}

#[test]
fn what_is_no_file_is_not_opened() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    std::fs::create_dir(dir.path().join("sub")).expect("mkdir");
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(host.as_fd(), "fifo", fifo, rustix::fs::Mode::RUSR, 0).expect("mkfifo");
    assert_eq!(errno(host.open(b"sub", false)), Some(Errno::ISDIR));
    assert_eq!(errno(host.open(b"sub", true)), Some(Errno::ISDIR));
    assert_eq!(errno(host.open(b"fifo", false)), Some(Errno::INVAL));
    assert_eq!(errno(host.open(b"none", false)), Some(Errno::NOENT));
}

#[test]
fn files_are_read_written_and_described() {
    for dir in everywhere() {
        let host = open(&dir);
        let file = host.create_unnamed(SITE, b"", 0o640).expect("create");
        file.write_at(SITE, 10, b"hello").expect("write");
        file.set_len(SITE, 100).expect("lengthen");
        file.allocate(SITE, 0, 50_000).expect("allocate");
        file.allocate(SITE, 0, 0).expect("allocate nothing");
        file.sync(SITE).expect("sync");
        let stat = file.stat().expect("stat");
        assert_eq!((stat.size, stat.nlink, stat.mode), (100, 0, 0o100_640));
        assert!(stat.allocated >= 50_000 && stat.btime_ns > 0 && stat.is_file());
        let mut buf = [9; 200];
        assert_eq!(file.read_at(0, &mut buf), Ok(100));
        assert_eq!(&buf[8..17], b"\0\0hello\0\0");

        host.link(SITE, &*file, b"name").expect("link");
        host.sync_dir(SITE, b"").expect("sync the directory");
        host.sync_all(SITE).expect("sync all");
        assert_eq!(
            errno(host.link(SITE, &*host.create_unnamed(SITE, b"", 0).expect("create"), b"name")),
            Some(Errno::EXIST)
        );
        let named = host.stat(b"name").expect("stat");
        assert_eq!((named.ino, named.btime_ns, named.nlink, named.size), (stat.ino, stat.btime_ns, 1, 100));
        let read_only = host.open(b"name", false).expect("open");
        assert_eq!(errno(read_only.write_at(SITE, 0, b"x")), Some(Errno::BADF));
    }
}

#[test]
fn modes_are_exact() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    for mode in [0o777, 0o666, 0o000, 0o4755] {
        let file = host.create_unnamed(SITE, b"", mode).expect("create");
        let name = format!("{mode:o}");
        host.link(SITE, &*file, name.as_bytes()).expect("link");
        let metadata = std::fs::metadata(dir.path().join(name)).expect("stat");
        assert_eq!(metadata.permissions().mode() & 0o7777, mode);
    }
}

#[test]
fn without_unnamed_files_they_have_names_in_a_folder() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    host.pretend_no_unnamed();
    // Without a store there is no place for them.
    assert_eq!(errno(host.create_unnamed(SITE, b"", 0o600)), Some(Errno::NOENT));
    let home = StoreHome::create(&host, |_| Ok(())).expect("create");
    let unnamed = dir.path().join(".wholly/unnamed");
    let names = || std::fs::read_dir(&unnamed).expect("read").count();

    let file = host.create_unnamed(SITE, b"", 0o644).expect("create");
    file.write_at(SITE, 0, b"x").expect("write");
    assert_eq!(names(), 1);
    std::fs::write(dir.path().join("taken"), "t").expect("write");
    assert_eq!(errno(host.link(SITE, &*file, b"taken")), Some(Errno::EXIST));
    host.link(SITE, &*file, b"name").expect("link");
    assert_eq!((names(), dir.content("name"), dir.content("taken")), (0, b"x".to_vec(), b"t".to_vec()));
    assert_eq!(file.stat().expect("stat").nlink, 1);
    drop(file);
    assert_eq!(dir.content("name"), b"x");

    let dropped = host.create_unnamed(SITE, b"", 0o644).expect("create");
    drop(dropped);
    assert_eq!(names(), 0);
    // What a crash leaves.
    std::fs::write(unnamed.join("0123"), "left").expect("write");
    home.clear_unnamed().expect("clear");
    assert_eq!(names(), 0);
}

#[test]
fn the_medium_is_recognised() {
    let disk = TestDir::on_disk();
    let host = open(&disk);
    if !host.file_system().is_memory() {
        assert_eq!(host.guarantees().kind, Kind::Disk);
        assert!(!host.guarantees().emulated);
        let file = host.create_unnamed(SITE, b"", 0o600).expect("create");
        assert!(file.map(4096).expect("map").is_none());
    }
    let told = HostOptions { medium: HostMedium::Pmem, ..HostOptions::default() };
    let told = HostDir::open(disk.path(), told).expect("open");
    assert!(told.guarantees().is_pmem() && told.guarantees().emulated);

    let Some(tmpfs) = TestDir::on_tmpfs() else { return };
    let host = open(&tmpfs);
    assert_eq!(host.guarantees().description, "directory in persistent memory, emulated on tmpfs");
    let file = host.create_unnamed(SITE, b"", 0o600).expect("create");
    file.set_len(SITE, 4096).expect("lengthen");
    file.allocate(SITE, 0, 4096).expect("allocate");
    let map = file.map(1 << 20).expect("map").expect("mapped");
    map.write_through(SITE, 4000, b"mapped").expect("write");
    let mut buf = [0; 6];
    assert_eq!(file.read_at(4000, &mut buf), Ok(6));
    assert_eq!(&buf, b"mapped");
    assert_eq!(errno(map.set_len(SITE, 1)), Some(Errno::OPNOTSUPP));
    host.link(SITE, &*file, b"f").expect("link");
    let read_only = host.open(b"f", false).expect("open").map(4096).expect("map").expect("mapped");
    assert_eq!(errno(read_only.write(SITE, 0, b"x")), Some(Errno::BADF));

    let as_disk = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
    let as_disk = HostDir::open(tmpfs.path(), as_disk).expect("open");
    assert_eq!(as_disk.guarantees().kind, Kind::Disk);
    assert!(as_disk.guarantees().emulated);
}

#[test]
fn a_slowed_directory_says_so() {
    let Some(dir) = TestDir::on_tmpfs() else { return };
    let emulator = wholly_media::pmem::Emulator::new(wholly_media::pmem::Emulation::Bandwidth { bytes_per_s: 4e9 });
    let options = HostOptions { emulator: Some(emulator), ..HostOptions::default() };
    let host = Arc::new(HostDir::open(dir.path(), options).expect("open"));
    assert!(host.guarantees().description.ends_with("slowed to 4 GB/s shared by all threads"));
    let home = StoreHome::create(&host, |home| home.create_region("log").map(drop)).expect("create");
    let log = home.open_region("log").expect("log");
    assert!(log.guarantees().description.contains("slowed"));
}

#[test]
fn a_home_is_made_whole_opened_and_removed() {
    for dir in everywhere() {
        let host = open(&dir);
        let path = dir.path().join(HOME);
        assert!(!StoreHome::exists(&host).expect("ask"));
        assert!(
            matches!(StoreHome::open(&host, Trust::Own), Err(HomeError::Media(error)) if error.errno == Errno::NOENT)
        );
        let home = StoreHome::create(&host, |home| {
            assert!(!path.exists(), "not before it is finished");
            let log = home.create_region("log")?;
            log.set_len(SITE, 8192)?;
            log.write_through(SITE, 4096, &[5; 4096])
        });
        let home = home.expect("create");
        assert!(StoreHome::exists(&host).expect("ask"));
        assert_eq!(std::fs::metadata(&path).expect("stat").permissions().mode() & 0o7777, 0o700);
        let log = std::fs::metadata(path.join("log")).expect("stat");
        assert_eq!((log.permissions().mode() & 0o777, log.size()), (0o600, 8192));
        let again = StoreHome::create(&host, |_| Ok(()));
        assert!(matches!(again, Err(HomeError::Media(error)) if error.errno == Errno::EXIST));
        assert_eq!(errno(home.create_region("log")), Some(Errno::EXIST));
        assert_eq!(errno(home.open_region("none")), Some(Errno::NOENT));
        drop(home);

        let home = StoreHome::open(&host, Trust::Own).expect("open");
        let log = home.open_region("log").expect("open the log");
        assert_eq!(log.guarantees().kind, host.guarantees().kind);
        let mut buf = [0; 4097];
        log.read(4095, &mut buf).expect("read");
        assert!(buf[0] == 0 && buf[1..].iter().all(|&byte| byte == 5));

        std::fs::create_dir_all(path.join("parked/group")).expect("mkdir");
        std::fs::write(path.join("parked/group/file"), "f").expect("write");
        symlink("..", path.join("parked/up")).expect("symlink");
        std::fs::write(dir.path().join("mine"), "m").expect("write");
        home.remove().expect("remove");
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).expect("read").map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["mine"]);
    }
}

#[test]
fn a_making_that_fails_leaves_nothing() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    let made = StoreHome::create(&host, |home| {
        home.create_region("log")?;
        Err(wholly_media::Error::new("fill", "", Errno::IO))
    });
    assert!(matches!(made, Err(HomeError::Media(error)) if error.errno == Errno::IO));
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0);
}

#[test]
fn unfinished_homes_go_unless_somebody_works_on_them() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    // Left by a crash: with a lock that nobody holds, and from before there was one.
    for name in ["1", "2"] {
        std::fs::create_dir(dir.path().join(format!(".wholly.unfinished-{name}"))).expect("mkdir");
    }
    std::fs::write(dir.path().join(".wholly.unfinished-1/lock"), "1").expect("write");
    std::fs::write(dir.path().join(".wholly.unfinished-1/log"), "l").expect("write");
    let home = StoreHome::create(&host, |_| {
        let names = || std::fs::read_dir(dir.path()).expect("read").count();
        assert_eq!(names(), 1);
        // Another maker comes by.
        StoreHome::create(&host, |_| Ok(())).expect("the faster one");
        assert_eq!(names(), 2);
        Ok(())
    });
    assert!(matches!(home, Err(HomeError::Media(error)) if error.errno == Errno::EXIST));
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("read").map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".wholly"]);
}

/// A store's folder says to git that it is none of its business: from its first moment on, as long as anything is in
/// it, and of older stores from the next open on.
#[test]
fn git_is_told_to_leave_the_folder_alone() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    let file = dir.path().join(".wholly/.gitignore");
    let home = StoreHome::create(&host, |_| {
        let unfinished = std::fs::read(dir.path().join(".wholly.unfinished-1/.gitignore"));
        assert_eq!(unfinished.expect("before the log"), b"*\n");
        Ok(())
    });
    drop(home.expect("create"));
    assert_eq!(std::fs::read(&file).expect("it is there"), b"*\n");
    for older in [None, Some("")] {
        std::fs::remove_file(&file).expect("remove");
        // What a crash leaves of one that was just made.
        if let Some(text) = older {
            std::fs::write(&file, text).expect("write");
        }
        drop(StoreHome::open(&host, Trust::Own).expect("open"));
        assert_eq!(std::fs::read(&file).expect("it is there again"), b"*\n");
    }
    std::fs::write(&file, "/log\n").expect("write");
    let home = StoreHome::open(&host, Trust::Own).expect("open");
    assert_eq!(std::fs::read(&file).expect("it is there"), b"/log\n", "somebody wants it so");
    home.remove().expect("remove");
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0);
}

/// A directory may hold very many names: who makes a store there does not read them. Who tidies one does.
#[test]
fn a_making_looks_at_the_names_only_that_makings_have() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    let (stranger, own) = (dir.path().join(".wholly.unfinished-stranger"), dir.path().join(".wholly.unfinished-16"));
    for folder in [&stranger, &own] {
        std::fs::create_dir(folder).expect("mkdir");
        std::fs::write(folder.join("lock"), "1").expect("write");
    }
    let home = StoreHome::create(&host, |_| Ok(())).expect("create");
    assert!(stranger.exists() && !own.exists());
    home.tidy().expect("tidy");
    assert!(!stranger.exists());
}

/// Where all known names are taken, by whomever, another one is found.
#[test]
fn more_can_be_at_work_than_there_are_known_names() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    for name in 1..=16 {
        std::fs::write(dir.path().join(format!(".wholly.unfinished-{name}")), "").expect("write");
    }
    let home = StoreHome::create(&host, |_| Ok(())).expect("create");
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 17);
    home.remove().expect("remove");
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 16);
}

#[test]
fn a_second_opener_is_told_the_owner() {
    let dir = TestDir::on_disk();
    let host = open(&dir);
    let home = StoreHome::create(&host, |_| Ok(())).expect("create");
    let error = StoreHome::open(&open(&dir), Trust::Own).expect_err("owned");
    assert_eq!(error, HomeError::Busy(Busy { pid: Some(std::process::id()) }));
    assert_eq!(error.to_string(), format!("the store is owned by process {}", std::process::id()));
    assert_eq!(StoreHome::holder(&host), Ok(Some(Busy { pid: Some(std::process::id()) })));
    drop(home);
    assert_eq!(StoreHome::holder(&host), Ok(None), "the number in the file is that of a former owner");
    let home = StoreHome::open(&host, Trust::Own).expect("free again");
    assert!(StoreHome::open(&host, Trust::Own).is_err());
    home.remove().expect("remove");
}
