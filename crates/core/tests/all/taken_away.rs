//! File systems that fail, become read-only or go away while a store is open on them: what was committed is there when
//! they are back.
//!
//! Needs root. Each is mounted in a program of its own.

use std::path::{Path, PathBuf};

use crate::common::mounts::{self, run};
use crate::common::{Dir, small};
use rustix::io::Errno;
use wholly::{Error, Options, Store};
use wholly_host::{HostMedium, HostOptions};

struct Host {
    name: &'static str,
    /// Made by this, run in a directory with the sparse file `image`.
    make: &'static str,
    /// Taken away by this.
    take: &'static str,
}

const MOUNT: &str = "mount -o loop image at";
const SHUT_DOWN: &str = "xfs_io -x -c shutdown at";

const HOSTS: [Host; 3] = [
    Host { name: "ext4-aborted", make: "mkfs.ext4 -q -F image", take: "mount -o remount,abort at" },
    Host { name: "ext4-gone", make: "mkfs.ext4 -q -F image", take: SHUT_DOWN },
    Host { name: "xfs-gone", make: "mkfs.xfs -q image", take: SHUT_DOWN },
];

/// What a group does: `a` and `b` get the same bytes, by which everybody sees whether it is whole.
const FILES: [&str; 2] = ["a", "b"];
const BYTES: usize = 40_000;
const GROUPS: u8 = 5;

/// The log's segments are small, and every second group is too much for it.
fn open(at: &Path, group: u8) -> wholly::Result<Store> {
    let stage_bytes = if group.is_multiple_of(2) { 10_000 } else { u64::MAX };
    let host = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
    Store::open_with(at, Options { stage_bytes, ..small() }, host)
}

fn write(store: &Store, group: u8) -> wholly::Result<()> {
    let mut writes = store.begin();
    for path in FILES {
        let file = writes.open_file(path)?;
        writes.write_at(&file, 0, &[group; BYTES])?;
    }
    let new = writes.create(format!("new{group}"), 0o600)?;
    writes.write_at(&new, 0, &[group; BYTES])?;
    writes.commit()
}

/// Which group the store is as after.
fn group_of(store: &Store) -> u8 {
    let read = |path: &str| {
        let mut bytes = vec![0; BYTES + 1];
        assert_eq!(store.open_file(path).unwrap().read_at(0, &mut bytes).unwrap(), BYTES, "{path}");
        assert!(bytes[..BYTES].iter().all(|byte| *byte == bytes[0]), "{path} is torn");
        bytes[0]
    };
    let group = read("a");
    assert_eq!(read("b"), group, "torn");
    for made in 1..=GROUPS {
        let seen = store.open_file(format!("new{made}"));
        assert_eq!(seen.is_ok(), made <= group, "new{made} after {group}");
        assert!(made > group || read(&format!("new{made}")) == made);
    }
    group
}

/// It goes away while a store is open, when nothing or all of it is home, and with a group that is running.
fn goes_away(host: &Host, scratch: &Path, goes_home: bool) {
    let at = scratch.join("at/store");
    run(scratch, &format!("rm -f image; truncate -s 320M image; {}; {MOUNT}; mkdir at/store", host.make));
    FILES.iter().for_each(|path| std::fs::write(at.join(path), [0; BYTES]).unwrap());
    let host_options = HostOptions { medium: HostMedium::Disk, ..HostOptions::default() };
    Store::init_with(&at, &small(), host_options).unwrap();
    for group in 1..GROUPS {
        let store = open(&at, group).unwrap();
        write(&store, group).unwrap();
        if goes_home {
            store.checkpoint().unwrap();
        }
        let mut running = store.begin();
        let file = running.create("running", 0o600).unwrap();
        running.write_at(&file, 0, &[9; BYTES]).unwrap();
        run(scratch, host.take);

        let errno = |error: Error| error.errno();
        write(&store, GROUPS).map_err(errno).expect_err("nothing can be written");
        running.commit().map_err(errno).expect_err("nothing can be written");
        let refused = write(&store, GROUPS).expect_err("nothing can be written");
        println!("{}: {refused}", host.name);
        assert!(goes_home || store.checkpoint().is_err());
        drop((file, store));

        run(scratch, &format!("umount at; {MOUNT}"));
        let report = wholly::check(&at).unwrap();
        assert!(report.is_sound(), "{:#?}", report.findings);
        let store = open(&at, group).unwrap();
        let seen = group_of(&store);
        assert!(seen == group, "{}: {seen} is there, {group} was committed", host.name);
        assert!(matches!(store.open_file("running"), Err(Error::NotFound(_))));
        if group.is_multiple_of(3) {
            store.close().unwrap();
        }
    }
    run(scratch, "umount at");
}

/// Who cannot write can look, and is told.
fn is_read_only(host: &Host, scratch: &Path) {
    let at = scratch.join("at/store");
    run(scratch, &format!("rm -f image; truncate -s 320M image; {}; {MOUNT}; mkdir at/store", host.make));
    FILES.iter().for_each(|path| std::fs::write(at.join(path), [0; BYTES]).unwrap());
    Store::init_with(&at, &small(), HostOptions::default()).unwrap();
    let store = open(&at, 1).unwrap();
    write(&store, 1).unwrap();
    drop(store);
    run(scratch, "mount -o remount,ro at");
    let error = open(&at, 1).map(drop).expect_err("recovery writes");
    assert_eq!(error.errno(), Errno::ROFS.raw_os_error(), "{error}");
    assert!(wholly::check(&at).unwrap().is_sound());
    run(scratch, "mount -o remount,rw at");
    let store = open(&at, 1).unwrap();
    assert_eq!(group_of(&store), 1);
    store.close().unwrap();
    run(scratch, "umount at");
}

/// The file system that this program is to try, where it was started by itself.
const ROLE: &str = "WHOLLY_TAKEN_AWAY_ROLE";
const SCRATCH: &str = "WHOLLY_TAKEN_AWAY_SCRATCH";

#[test]
fn what_was_committed_outlives_its_file_system() {
    if let Ok(role) = std::env::var(ROLE) {
        let scratch = PathBuf::from(std::env::var_os(SCRATCH).expect("set with the role"));
        let host = HOSTS.iter().find(|host| host.name == role).expect("one of them");
        run(&scratch, "mkdir at");
        goes_away(host, &scratch, false);
        goes_away(host, &scratch, true);
        is_read_only(host, &scratch);
        return;
    }
    let mut failed = Vec::new();
    for host in &HOSTS {
        if let Some(what) = mounts::missing(&[host.make, host.take]) {
            mounts::skip(host.name, &what);
            continue;
        }
        let scratch = Dir::new(&std::env::temp_dir(), host.name);
        let program = mounts::this_program(what_was_committed_outlives_its_file_system);
        let status = mounts::in_namespaces(&program).env(ROLE, host.name).env(SCRATCH, &*scratch).status();
        if !status.expect("unshare").success() {
            failed.push(host.name);
        }
    }
    assert!(failed.is_empty(), "see above: {failed:?}");
}
