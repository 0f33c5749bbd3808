//! Stores on each file system that can be mounted here: what `Store::init` says of it, and that it holds. A program
//! that commits groups is killed there, the file system is unmounted and mounted again where that leaves something of
//! it, and the store recovers: inode numbers and times of birth are the same, or the files would not be known again.
//! Killing is not a power failure: those are `real_fs.rs`'s of the crash explorer.
//!
//! Needs root.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::common::Dir;
use crate::common::mounts::{self, run};
use wholly::{Error, Fallocate, Options, Store};
use wholly_host::{HostDir, HostFs, HostNames, HostOptions, Level, Support};
use wholly_media::Site;
use wholly_vfs::Rename;

/// A file system, and what is said of it.
struct Host {
    name: &'static str,
    /// Made by this, run in a directory with the sparse file `image`.
    make: &'static str,
    /// Mounted at `at` there by this.
    mount: &'static str,
    /// The directory that the first files are put into; where it is not `at`, before that is mounted.
    files: &'static str,
    /// Whether it is there after it was unmounted.
    lasts: bool,
    level: Level,
    /// What is said beside that.
    says: &'static [&'static str],
}

const HOST: Host = Host {
    name: "",
    make: "true",
    mount: "mount -o loop image at",
    files: "at",
    lasts: true,
    level: Level::Degraded,
    says: &[],
};

const HOSTS: [Host; 12] = [
    Host { name: "ext4", make: "mkfs.ext4 -q -F image", level: Level::Supported, ..HOST },
    Host { name: "ext4-without-journal", make: "mkfs.ext4 -q -F -O ^has_journal image", says: &["no journal"], ..HOST },
    Host { name: "ext2", make: "mkfs.ext2 -q -F -b 1024 image", says: &["no journal"], ..HOST },
    Host {
        name: "ext3-with-small-inodes",
        make: "mkfs.ext3 -q -F -I 128 image",
        says: &["no time of birth", "whole seconds"],
        ..HOST
    },
    Host {
        name: "ext4-without-barriers",
        make: "mkfs.ext4 -q -F image",
        mount: "mount -o loop,nobarrier image at",
        says: &["without barriers"],
        ..HOST
    },
    Host { name: "xfs", make: "mkfs.xfs -q image", level: Level::Supported, ..HOST },
    Host { name: "btrfs", make: "mkfs.btrfs -q image", level: Level::Supported, ..HOST },
    Host { name: "tmpfs", mount: "mount -t tmpfs none at", lasts: false, says: &["survives a reboot"], ..HOST },
    Host {
        name: "overlay",
        make: "mkdir lower upper work",
        mount: "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none at",
        files: "lower",
        says: &["lower layer"],
        ..HOST
    },
    Host {
        name: "overlay-volatile",
        make: "mkdir lower upper work",
        mount: "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work,volatile none at",
        files: "lower",
        // The kernel does not mount it again before somebody says that all is well.
        lasts: false,
        says: &["lower layer", "volatile"],
        ..HOST
    },
    Host {
        name: "fuse",
        make: "mkdir below",
        mount: "bindfs below at",
        says: &["a program serves it", "time of birth", "refuse to replace"],
        ..HOST
    },
    Host {
        name: "hugetlbfs",
        mount: "mount -t hugetlbfs none at",
        files: "below",
        level: Level::Refused,
        says: &["cannot be written", "make the store on a local file system"],
        ..HOST
    },
];

/// What this program is to do, where it was started by itself.
const ROLE: &str = "WHOLLY_HOSTS_ROLE";
const SCRATCH: &str = "WHOLLY_HOSTS_SCRATCH";

const FILES: [&str; 2] = ["a", "dir/b"];
/// A file of which only attributes change.
const STILL: &str = "c";
const BYTES: usize = 20_000;
const KILLS: u64 = 3;

/// Where the program that commits finds how many bytes are too many for the log.
const STAGE: &str = "WHOLLY_HOSTS_STAGE";

fn options() -> Options {
    let stage_bytes = std::env::var(STAGE).map_or(u64::MAX, |bytes| bytes.parse().expect("a number"));
    Options {
        segment_bytes: 32 << 10,
        log_min_bytes: 128 << 10,
        log_max_bytes: 256 << 10,
        stage_bytes,
        ..Options::default()
    }
}

fn open(dir: &Path) -> Store {
    Store::open_with(dir, options(), HostOptions::default()).expect("the store opens")
}

/// Bytes that tell their round.
fn content(round: u64) -> Vec<u8> {
    round.to_le_bytes().repeat(BYTES / 8)
}

/// The same with holes: where there are none, zeros.
fn with_holes(round: u64) -> Vec<u8> {
    let mut bytes = content(round);
    bytes[4000..12_300].fill(0);
    bytes[13_000..18_000].fill(0);
    bytes
}

/// The round that all files hold, each wholly.
fn round_of(read: impl Fn(&str) -> Vec<u8>) -> u64 {
    let round = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let rounds = FILES.map(|name| {
        let bytes = read(name);
        assert!(bytes == content(round(&bytes)), "{name} is torn");
        round(&bytes)
    });
    assert_eq!(rounds[0], rounds[1], "a group is torn");
    rounds[0]
}

fn round_in(store: &Store) -> u64 {
    let round = round_of(|name| {
        let mut bytes = vec![0; BYTES];
        assert_eq!(store.open_file(name).expect("open").read_at(0, &mut bytes).expect("read"), BYTES);
        bytes
    });
    if round > 0 {
        let stat = |name| store.metadata(name).expect("metadata");
        assert_eq!((stat(STILL).mtime_ns, stat(STILL).mode & 0o7777), (seconds(round), mode(round)), "torn");
        assert_eq!(stat("dir").mode & 0o7777, mode(round), "a group is torn");
    }
    round
}

/// What a round sets.
fn seconds(round: u64) -> i64 {
    round as i64 * 1_000_000_000
}

fn mode(round: u64) -> u32 {
    0o700 | (round % 8) as u32
}

/// Commits groups, each of which writes both files and makes a third, until it is killed.
fn commit(dir: &Path) {
    let store = open(dir);
    let files = FILES.map(|name| store.open_file(name).expect("open"));
    for round in round_in(&store) + 1.. {
        let mut group = store.begin();
        for file in &files {
            group.write_at(file, 0, &content(round)).expect("write");
        }
        let new = group.create(format!("dir/{round}"), 0o640).expect("create");
        group.append(&new, &content(round)).expect("append");
        group.fallocate(&new, Fallocate::Punch, 4000, 8300).expect("punch");
        group.fallocate(&new, Fallocate::Zero, 13_000, 5000).expect("zero");
        group.fallocate(&new, Fallocate::Keep, 0, 30_000).expect("reserve");
        group.set_times(STILL, None, Some(seconds(round))).expect("utimensat");
        for path in [STILL, "dir"] {
            group.set_mode(path, mode(round)).expect("chmod");
        }
        group.commit().expect("commit");
        println!("\ncommitted {round}");
        std::io::stdout().flush().expect("somebody listens");
    }
}

/// Runs a program of ours until it has said so often that it committed, kills it, and returns the last round that it
/// told of. Every file of it is too much for the log, or none.
fn kill_after(groups: usize, staging: bool) -> u64 {
    let stage = if staging { BYTES as u64 } else { u64::MAX };
    let mut command = this_program();
    command.env(ROLE, "commit").env(STAGE, stage.to_string()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("text"));
    let rounds = lines.filter_map(|line| line.strip_prefix("committed ").map(|round| round.parse().expect("a number")));
    let last = rounds.take(groups).last().expect("it commits");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    last
}

/// A file that has moved has one name, also where a host without `RENAME_NOREPLACE` links it first.
fn counts_names_of_what_moves(at: &Path) {
    const SITE: Site = Site("test");
    let dir = HostDir::open(at, HostOptions::default()).expect("open");
    dir.create(SITE, b"moves", 0o600).expect("create");
    for (from, to) in [(b"moves", b"moved"), (b"moved", b"moves")] {
        dir.rename(SITE, from, to, Rename::NoReplace).expect("rename");
        assert_eq!(dir.stat(to).expect("stat").nlink, 1);
    }
    dir.unlink(SITE, b"moves").expect("unlink");
}

/// What `Store::init` says of the directory.
fn init(host: &Host, at: &Path) {
    let dir = Arc::new(HostDir::open(at, HostOptions::default()).expect("open"));
    let names = || std::fs::read_dir(at).expect("list").count();
    let before = names();
    let support = Support::probe(&dir).expect("probe");
    assert_eq!(names(), before, "what was tried is gone");
    assert_eq!(support.level, host.level, "{support}");
    let mut said = support.to_string();
    match (Store::init(at, &options()), host.level) {
        (Err(Error::Unsupported(why)), Level::Refused) => {
            assert_eq!(names(), before);
            said = why;
        }
        (made, _) => made.expect("a store is made"),
    }
    for words in host.says {
        assert!(said.contains(words), "{said}");
    }
    println!("{}: {}: {said}", host.name, support.file_system);
}

/// In namespaces of its own.
fn on(host: &Host, scratch: &Path) {
    let at = scratch.join("at");
    let first_files = || {
        for name in FILES.into_iter().chain([STILL]) {
            let path = scratch.join(host.files).join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("mkdir");
            std::fs::write(path, content(0)).expect("write");
        }
    };
    run(scratch, &format!("mkdir at; truncate -s 320M image; {}", host.make));
    if host.files != "at" {
        first_files();
    }
    run(scratch, host.mount);
    if host.files == "at" {
        first_files();
    }
    init(host, &at);
    if host.level == Level::Refused {
        return;
    }
    counts_names_of_what_moves(&at);
    let mut last = 0;
    for kill in 0..KILLS {
        let told = kill_after(20 + 7 * kill as usize, kill % 3 != 1);
        if host.lasts {
            run(scratch, &format!("umount at; {}", host.mount));
        }
        let report = wholly::check(&at).expect("it can be checked");
        assert!(report.is_sound(), "{}: {:#?}", host.name, report.findings);
        let store = open(&at);
        let round = round_in(&store);
        assert!(round >= told && told > last, "{}: {round} is there, {told} was committed", host.name);
        if kill % 2 == 0 {
            store.close().expect("all goes home");
            let home = |name: &str| std::fs::read(at.join(name)).expect("read");
            assert_eq!(round_of(home), round);
            for made in last + 1..=round {
                assert!(home(&format!("dir/{made}")) == with_holes(made), "{}: {made}", host.name);
            }
            for path in [STILL, "dir"] {
                let stat = std::fs::metadata(at.join(path)).expect("stat");
                assert_eq!(stat.mode() & 0o7777, mode(round), "{}: {path}", host.name);
            }
            assert_eq!(std::fs::metadata(at.join(STILL)).expect("stat").mtime(), round as i64, "{}", host.name);
        }
        last = round;
    }
    let has_shadows = at.join(".wholly/shadow").exists();
    assert_eq!(has_shadows, matches!(host.name, "xfs" | "btrfs"), "{}: whether its files share blocks", host.name);
    if host.name == "btrfs" {
        refuses_other_volumes(scratch, &at);
    }
    refuses_long_targets(host, &at);
    open(&at).remove().expect("it becomes an ordinary directory");
    assert!(!at.join(".wholly").exists());
}

/// A symbolic link whose target is longer than the host takes is refused at the call: after the commit nobody could be
/// told.
fn refuses_long_targets(host: &Host, at: &Path) {
    let store = open(at);
    let mut made = Vec::new();
    for length in [255, 1023, 1024, 3900, 4000, 4095] {
        let (target, plain, name) = ("t".repeat(length), at.join("plain"), format!("link-{length}"));
        let taken = std::os::unix::fs::symlink(&target, &plain).and_then(|()| std::fs::remove_file(&plain));
        let refused = taken.err().map(|error| error.raw_os_error().expect("an error of the host"));
        assert_eq!(store.symlink(&target, &name).err().map(|error| error.errno()), refused, "{}: {length}", host.name);
        made.extend(refused.is_none().then_some((name, target)));
    }
    assert!(made.len() < 6 || !matches!(host.name, "ext2" | "xfs"), "{}: it has no limit", host.name);
    store.close().expect("all goes home");
    for (name, target) in made {
        assert_eq!(std::fs::read_link(at.join(&name)).expect("read"), Path::new(&target));
        std::fs::remove_file(at.join(name)).expect("remove");
    }
}

/// A file in a snapshot has the inode number and the time of birth of the one that it was taken of: a store must not
/// take it for that.
fn refuses_other_volumes(scratch: &Path, at: &Path) {
    run(scratch, "btrfs -q subvolume snapshot at at/snapshot");
    let store = open(at);
    let a = store.open_file("a").expect("open");
    let exdev = |error: Error| assert_eq!(error.errno(), 18, "{error}");
    exdev(store.open_file("snapshot/a").map(drop).expect_err("another volume's"));
    let mut group = store.begin();
    group.write_at(&a, 0, &[1]).expect("write");
    exdev(group.create("snapshot/new", 0o600).map(drop).expect_err("another volume's"));
    group.abort();
    store.close().expect("close");
}

fn this_program() -> Command {
    mounts::this_program(stores_hold_on_each_file_system)
}

#[test]
fn stores_hold_on_each_file_system() {
    if let Ok(role) = std::env::var(ROLE) {
        let scratch = PathBuf::from(std::env::var_os(SCRATCH).expect("set with the role"));
        return match HOSTS.iter().find(|host| host.name == role) {
            Some(host) => on(host, &scratch),
            None => commit(&scratch.join("at")),
        };
    }
    let mut failed = Vec::new();
    for host in &HOSTS {
        if let Some(what) = mounts::missing(&[host.make, host.mount]) {
            mounts::skip(host.name, &what);
            continue;
        }
        let scratch = Dir::new(&std::env::temp_dir(), host.name);
        let status = mounts::in_namespaces(&this_program()).env(ROLE, host.name).env(SCRATCH, &*scratch).status();
        if !status.expect("unshare").success() {
            failed.push(host.name);
        }
    }
    assert!(failed.is_empty(), "see above: {failed:?}");
}
