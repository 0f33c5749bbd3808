//! Stores whose directory has a quota, or lies on a file system that is full. What would not fit is refused at the
//! call, where the file system tells how much is free. What has no room all the same, because others have taken it
//! meanwhile, stays in the log, is served from there, over new opens too, and is written back when there is space. Each
//! case is made on each file system with quotas that the kernel can mount.
//!
//! Needs root. What is tried has no CAP_SYS_RESOURCE, with which the limits of most file systems are none.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::common::mounts::{self, run, runs};
use crate::common::{Dir, small};
use rustix::io::Errno;
use wholly::{Error, Fallocate, File, FindingKind, KeepUndo, Options, Store, UndoFate};
use wholly_host::{HostMedium, HostOptions};
use wholly_vfs::SetXattr;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A file system with a quota, or what is like one.
struct Host {
    name: &'static str,
    /// Made by this, run in a directory with the sparse file `image`.
    make: &'static str,
    /// Mounted at `at` there by this.
    mount: &'static str,
    /// The directory `at/store` is made, and gets a quota, by this.
    store: &'static str,
    /// By this, with the limits BYTES and FILES.
    limit: Option<&'static str>,
    /// The directory `at/store/apart` is made by this, into which nothing can be moved.
    apart: Option<&'static str>,
    medium: HostMedium,
    /// Whether there is a limit of files.
    counts_files: bool,
    /// Whether a file that is gone does not count any more at once, and not after a while.
    forgets_files: bool,
    /// Whether bytes that have space can be overwritten at the limit.
    overwrites: bool,
    /// What the kernel says beyond a limit.
    errno: Errno,
    /// Whether the file system tells how much is free below the limit.
    tells: bool,
}

const HOST: Host = Host {
    name: "",
    make: "true",
    mount: "mount -o loop image at",
    store: "mkdir at/store",
    limit: None,
    apart: None,
    medium: HostMedium::Disk,
    counts_files: true,
    forgets_files: true,
    overwrites: true,
    errno: Errno::DQUOT,
    tells: false,
};

const TMPFS: Host = Host {
    mount: "mount -t tmpfs none at",
    limit: Some("mount -o remount,size=$BYTES,nr_inodes=$FILES at"),
    errno: Errno::NOSPC,
    tells: true,
    ..HOST
};

const HOSTS: [Host; 8] = [
    Host { name: "ext4-small", make: "truncate -s 64M image; mkfs.ext4 -q -F image", tells: true, ..HOST },
    Host {
        name: "xfs-project",
        make: "mkfs.xfs -q image",
        mount: "mount -o loop,prjquota image at",
        store: "mkdir at/store; xfs_quota -x -D /dev/null -P /dev/null -c 'project -s -p at/store 42' at >/dev/null",
        limit: Some("xfs_quota -x -D /dev/null -P /dev/null -c \"limit -p bhard=$BYTES ihard=$FILES 42\" at"),
        apart: Some(
            "mkdir at/store/apart; xfs_quota -x -D /dev/null -P /dev/null -c 'project -s -p at/store/apart 7' at >/dev/null",
        ),
        forgets_files: false,
        errno: Errno::NOSPC,
        ..HOST
    },
    Host {
        name: "ext4-project",
        make: "mkfs.ext4 -q -F -O quota,project -E quotatype=prjquota image",
        mount: "mount -o loop,prjquota image at",
        store: "mkdir at/store; chattr -p 42 at/store; chattr +P at/store",
        limit: Some("xfs_quota -x -f -D /dev/null -P /dev/null -c \"limit -p bhard=$BYTES ihard=$FILES 42\" at"),
        apart: Some("mkdir at/store/apart; chattr -p 7 at/store/apart"),
        ..HOST
    },
    Host {
        name: "ext4-user",
        make: "mkfs.ext4 -q -F -O quota -E quotatype=usrquota image",
        mount: "mount -o loop,usrquota image at",
        limit: Some("xfs_quota -x -f -c \"limit -u bhard=$BYTES ihard=$FILES root\" at"),
        ..HOST
    },
    Host {
        name: "ext4-encrypted",
        make: "mkfs.ext4 -q -F -O encrypt image",
        apart: Some("mkdir at/store/apart; echo 'a key' | e4crypt add_key -S 0x77686f6c6c79 at/store/apart >/dev/null"),
        ..HOST
    },
    Host {
        name: "btrfs",
        make: "mkfs.btrfs -q image",
        store: "btrfs quota enable at; btrfs -q subvolume create at/store",
        limit: Some("btrfs qgroup limit $BYTES at/store"),
        counts_files: false,
        overwrites: false,
        ..HOST
    },
    Host { name: "tmpfs", ..TMPFS },
    Host { name: "tmpfs-as-pmem", medium: HostMedium::Pmem, ..TMPFS },
];

/// A directory with a quota, to make a store in.
struct Rig<'a> {
    host: &'a Host,
    scratch: &'a Path,
    options: Options,
    /// Whether the last check found too little space to write the log back.
    lacks_space: bool,
}

impl Rig<'_> {
    fn at(&self, name: &str) -> PathBuf {
        self.scratch.join("at/store").join(name)
    }

    fn limit(&self, bytes: u64, files: u64) {
        let limit = self.host.limit.expect("the case is about limits");
        run(self.scratch, &format!("BYTES={bytes}; FILES={files}; {limit}"));
    }

    /// There is enough of all.
    fn raise(&self) {
        self.limit(100 * MIB, 10_000);
    }

    /// A store whose log has so many bytes.
    fn init(&mut self, log_bytes: u64) -> Store {
        self.options = Options {
            segment_bytes: 64 * KIB,
            log_min_bytes: log_bytes,
            log_max_bytes: log_bytes,
            stage_bytes: u64::MAX,
            spare_bytes: 0,
            ..small()
        };
        Store::init_with(self.at(""), &self.options, self.host()).expect("a store is made");
        self.open()
    }

    fn open(&self) -> Store {
        let store = Store::open_with(self.at(""), self.options.clone(), self.host()).expect("the store opens");
        assert!(store.recovery().conflicts.is_empty(), "{:?}", store.recovery().conflicts);
        store
    }

    fn host(&self) -> HostOptions {
        HostOptions { medium: self.host.medium, reserve: 1 << 30, ..HostOptions::default() }
    }

    /// The process dies, and another one opens the store.
    fn reopen(&mut self, store: Store) -> Store {
        drop(store);
        let report = wholly::check(self.at("")).expect("it can be checked");
        let (space, others): (Vec<_>, Vec<_>) =
            report.findings.iter().partition(|finding| finding.kind == FindingKind::Space);
        assert!(others.is_empty(), "{others:#?}");
        self.lacks_space = !space.is_empty();
        self.open()
    }

    /// What lies in a folder of the store's own.
    fn own(&self, folder: &str) -> usize {
        std::fs::read_dir(self.at(".wholly").join(folder)).map_or(0, Iterator::count)
    }

    /// Nothing is left to do.
    fn close(&self, store: Store) {
        store.close().expect("all goes home");
        assert_eq!(["anchor", "blank", "parked"].map(|folder| self.own(folder)), [0; 3]);
    }
}

fn piece(number: u64) -> Vec<u8> {
    (0..PIECE / 8).flat_map(|at| (number << 32 | at).to_le_bytes()).collect()
}

const PIECE: u64 = 16 * KIB;

/// A group that writes a piece behind the others.
fn append(store: &Store, file: &File, model: &mut Vec<u8>) -> wholly::Result<()> {
    let bytes = piece(model.len() as u64 / PIECE);
    let mut group = store.begin();
    group.write_at(file, model.len() as u64, &bytes)?;
    group.commit()?;
    model.extend(bytes);
    Ok(())
}

fn read(store: &Store, name: &str) -> Vec<u8> {
    let file = store.open_file(name).expect("open");
    let mut bytes = vec![0; file.len() as usize + 1];
    let read = file.read_at(0, &mut bytes).expect("read");
    bytes.truncate(read);
    bytes
}

fn is_full<T>(result: wholly::Result<T>) {
    match result {
        Err(Error::NoSpace(_)) => {}
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("there is space"),
    }
}

/// Bytes that have no room at home stay in the log, until that is full and new groups are refused.
fn bytes_wait_for_space(rig: &mut Rig<'_>) {
    let store = rig.init(8 * MIB);
    let file = store.create_file("a", 0o600).unwrap();
    store.checkpoint().unwrap();
    let mut model = Vec::new();
    while (model.len() as u64) < 3 * MIB {
        append(&store, &file, &mut model).unwrap();
    }
    rig.limit(10 * MIB, 1000);
    let beyond = std::fs::write(rig.at("b"), vec![1; 3 << 20]).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(rig.host.errno.raw_os_error()));
    std::fs::remove_file(rig.at("b")).unwrap();
    is_full(store.checkpoint());
    assert!(read(&store, "a") == model);
    let appended = append(&store, &file, &mut model);
    match rig.host.tells {
        true => is_full(appended),
        false => appended.expect("the log has room"),
    }
    store.rename("a", "b", wholly::Rename::NoReplace).expect("the log has room");
    is_full(store.checkpoint());
    store.rename("b", "a", wholly::Rename::NoReplace).expect("the log has room");
    drop(file);

    let store = rig.reopen(store);
    assert_eq!(rig.lacks_space, rig.host.tells, "a check says why nothing is written back");
    assert!(read(&store, "a") == model);
    is_full(store.checkpoint());
    let file = store.open_file("a").unwrap();
    is_full((0..8 * MIB / PIECE).try_for_each(|_| append(&store, &file, &mut model)));
    assert!(read(&store, "a") == model);
    is_full(store.clone().close());
    drop(file);

    let store = rig.reopen(store);
    assert!(read(&store, "a") == model);
    rig.raise();
    append(&store, &store.open_file("a").unwrap(), &mut model).expect("a pass makes room");
    rig.close(store);
    assert!(std::fs::read(rig.at("a")).unwrap() == model);
}

fn new_files_wait_for_space(rig: &mut Rig<'_>) {
    const FILES: u64 = 40;
    let store = rig.init(MIB);
    store.mkdir("d", 0o700).unwrap();
    store.checkpoint().unwrap();
    rig.raise();
    let mut group = store.begin();
    for number in 0..FILES {
        let file = group.create(format!("d/{number}"), 0o600).unwrap();
        group.append(&file, &piece(number)[..100]).unwrap();
    }
    group.commit().unwrap();
    rig.limit(100 * MIB, 24);
    let all_there =
        |store: &Store| (0..FILES).all(|number| read(store, &format!("d/{number}")) == piece(number)[..100]);
    for _ in 0..2 {
        is_full(store.checkpoint());
        assert!(all_there(&store));
    }
    let store = rig.reopen(store);
    assert!(all_there(&store));
    is_full(store.checkpoint());
    store.rename("d/0", "d/first", wholly::Rename::NoReplace).expect("the log has room");
    is_full(store.checkpoint());
    rig.raise();
    store.rename("d/first", "d/0", wholly::Rename::NoReplace).unwrap();
    rig.close(store);
    for number in 0..FILES {
        assert!(std::fs::read(rig.at("d").join(number.to_string())).unwrap() == piece(number)[..100]);
    }
}

/// A large file of a group hits the limit while it is written: what was written before is whole, and the group may go
/// on, or not.
fn a_staged_file_hits_the_limit(rig: &mut Rig<'_>) {
    rig.init(MIB).close().unwrap();
    rig.options.stage_bytes = 64 * KIB;
    let store = rig.open();
    rig.limit(4 * MIB, 1000);
    for commits in [false, true] {
        let mut group = store.begin();
        let file = group.create("a", 0o600).unwrap();
        let mut model = Vec::new();
        let full = (0..64).try_for_each(|_| {
            let bytes: Vec<u8> = (0..8).flat_map(|more| piece(model.len() as u64 / PIECE + more)).collect();
            group.write_at(&file, model.len() as u64, &bytes)?;
            model.extend(bytes);
            Ok(())
        });
        is_full(full);
        assert!(model.len() as u64 >= MIB, "what was given up before takes no space");
        if !commits {
            drop(file);
            group.abort();
            assert_eq!(rig.own("blank"), 0);
            assert!(matches!(store.open_file("a"), Err(Error::NotFound(_))));
            store.create_file("small", 0o600).expect("the store goes on");
            continue;
        }
        group.commit().unwrap();
        drop(file);
        assert!(read(&store, "a") == model);
        let store = rig.reopen(store);
        assert!(read(&store, "a") == model);
        // To place a file may take a block of the directory's.
        rig.raise();
        rig.close(store);
        assert!(std::fs::read(rig.at("a")).unwrap() == model);
        return;
    }
}

/// Files that were staged and have lost their names since take space, until there is too little.
fn what_has_lost_its_name_makes_room(rig: &mut Rig<'_>) {
    rig.init(512 * KIB).close().unwrap();
    rig.options = Options { stage_bytes: 64 * KIB, log_max_bytes: 64 * MIB, ..rig.options.clone() };
    let store = rig.open();
    let stage_and_unlink = |rounds: u64, length: u64| {
        let mut most = 0;
        for _ in 0..rounds {
            let mut group = store.begin();
            let file = group.create("a", 0o600).unwrap();
            (0..length / PIECE).for_each(|number| _ = group.append(&file, &piece(number)).unwrap());
            group.commit().unwrap();
            most = most.max(rig.own("blank"));
            drop(file);
            store.unlink("a").unwrap();
        }
        assert!(most > 1, "nothing but want of space removes them");
    };
    rig.limit(4 * MIB, 1000);
    stage_and_unlink(12, MIB);
    if rig.host.counts_files && rig.host.forgets_files {
        rig.limit(100 * MIB, 24);
        stage_and_unlink(40, 64 * KIB);
    }
    rig.close(store);
}

/// Where the log may grow and cannot, a pass frees what it has.
fn the_log_cannot_grow(rig: &mut Rig<'_>) {
    rig.init(512 * KIB).close().unwrap();
    rig.options.log_max_bytes = 64 * MIB;
    let store = rig.open();
    let file = store.create_file("a", 0o600).unwrap();
    file.write_at(0, &[1; 1 << 18]).unwrap();
    store.checkpoint().unwrap();
    rig.limit(4 * MIB, 1000);
    let write = |number: u64| {
        let mut group = store.begin();
        group.write_at(&file, number % 16 * PIECE, &piece(number))?;
        group.commit()
    };
    const GROUPS: u64 = 640;
    for number in 0..GROUPS {
        write(number).unwrap();
    }
    let model: Vec<u8> = (GROUPS - 16..GROUPS).flat_map(piece).collect();
    assert!(read(&store, "a") == model);

    // A group that is larger than all that is free.
    let mut group = store.begin();
    is_full((0..GROUPS).try_for_each(|number| group.write_at(&file, number * PIECE, &piece(number))));
    group.abort();
    assert!(read(&store, "a") == model);
    write(0).expect("the store goes on");
    write(GROUPS - 16).unwrap();
    drop(file);
    let store = rig.reopen(store);
    assert!(read(&store, "a") == model);
    rig.close(store);
    assert!(std::fs::read(rig.at("a")).unwrap() == model);
}

fn no_space_to_park(rig: &mut Rig<'_>) {
    let store = rig.init(8 * MIB);
    let file = store.create_file("a", 0o600).unwrap();
    store.checkpoint().unwrap();
    rig.raise();
    let model: Vec<u8> = (0..3 * MIB / PIECE).flat_map(piece).collect();
    let written = || {
        let mut group = store.begin();
        for (at, bytes) in (0..).step_by(PIECE as usize).zip(model.chunks(PIECE as usize)) {
            group.write_at(&file, at, bytes).unwrap();
        }
        group
    };
    let group = written();
    rig.limit(10 * MIB, 1000);
    is_full(group.park("large", None));
    assert_eq!((rig.own("parked"), store.parked().unwrap().len()), (0, 0));
    assert!(read(&store, "a").is_empty());
    rig.raise();
    let id = written().park("large", None).unwrap();
    store.apply(id).unwrap();
    assert!(read(&store, "a") == model);
    drop(file);
    rig.close(store);
    assert!(std::fs::read(rig.at("a")).unwrap() == model);
}

/// Who removes files by the store makes room for what waits.
fn a_removed_file_makes_room(rig: &mut Rig<'_>) {
    let store = rig.init(4 * MIB);
    std::fs::write(rig.at("large"), vec![1; 3 << 20]).unwrap();
    let file = store.create_file("a", 0o600).unwrap();
    store.checkpoint().unwrap();
    let mut model = Vec::new();
    while (model.len() as u64) < 2 * MIB {
        append(&store, &file, &mut model).unwrap();
    }
    rig.limit(8 * MIB, 1000);
    is_full(store.checkpoint());
    store.unlink("large").unwrap();
    drop(file);
    rig.close(store);
    assert!(std::fs::read(rig.at("a")).unwrap() == model);
}

/// All that was accepted is written back, on a file system that is full; who removes a file has its space back.
fn nothing_is_accepted_that_has_no_room(rig: &mut Rig<'_>) {
    rig.init(512 * KIB).close().unwrap();
    (rig.options.log_max_bytes, rig.options.spare_bytes) = (64 * MIB, MIB);
    let store = rig.open();
    if rig.host.limit.is_some() {
        rig.limit(16 * MIB, 1000);
    }
    for _ in 0..2 {
        let file = store.create_file("large", 0o600).unwrap();
        let mut model = Vec::new();
        is_full((0..16384).try_for_each(|_| append(&store, &file, &mut model)));
        assert!(model.len() as u64 > 4 * MIB, "{}", model.len());
        let small: Vec<String> = (0..2000).map(|number| format!("small{number}")).collect();
        let made = small.iter().take_while(|name| {
            let file = store.create_file(name, 0o600);
            file.and_then(|file| file.write_at(0, &piece(7)[..4000])).is_ok()
        });
        let made = made.count();
        assert!(made < small.len(), "it is full");
        store.checkpoint().expect("what was accepted has room");
        assert!(read(&store, "large") == model);
        drop(file);
        store.unlink("large").expect("a file can be removed");
        store.checkpoint().unwrap();
        append(&store, &store.create_file("after", 0o600).unwrap(), &mut Vec::new()).expect("its space is back");
        store.checkpoint().unwrap();
        let all = std::fs::read_dir(rig.at("")).unwrap().map(|entry| entry.unwrap().file_name());
        for name in all.filter(|name| *name != ".wholly") {
            store.unlink(name).unwrap();
        }
        store.checkpoint().unwrap();
    }
    rig.close(store);
}

/// Space that is reserved behind the end of a file has room, whatever the file has elsewhere, and before it is written
/// back.
fn what_is_reserved_has_room(rig: &mut Rig<'_>) {
    rig.init(512 * KIB).close().unwrap();
    let store = rig.open();
    if rig.host.limit.is_some() {
        rig.limit(16 * MIB, 1000);
    }
    let file = store.create_file("a", 0o600).unwrap();
    let mut model = Vec::new();
    while (model.len() as u64) < 2 * MIB {
        append(&store, &file, &mut model).unwrap();
    }
    store.checkpoint().unwrap();
    let mut reserve = |number: u64| {
        let mut group = store.begin();
        group.fallocate(&file, Fallocate::Keep, (4 + 2 * number) * MIB, MIB)?;
        group.commit()
    };
    is_full((0..100).try_for_each(&mut reserve));
    store.checkpoint().expect("what was accepted has room");
    drop(file);
    rig.close(store);
    assert!(std::fs::read(rig.at("a")).unwrap() == model);
}

/// What is kept to be taken back gives way to what groups need: the oldest first, before anybody meets the limit.
fn undo_makes_room(rig: &mut Rig<'_>) {
    const GROUPS: u64 = 8;
    rig.init(MIB).close().unwrap();
    (rig.options.stage_bytes, rig.options.at_once) = (64 * KIB, true);
    let store = rig.open();
    rig.limit(12 * MIB, 1000);
    let keep = KeepUndo { note: "rm".into(), expires: Duration::from_secs(1000), most_bytes: 1 << 30 };
    for number in 0..GROUPS {
        let mut group = store.begin();
        let file = group.create("large", 0o600).unwrap();
        (0..2 * MIB / PIECE).for_each(|number| _ = group.append(&file, &piece(number)).unwrap());
        drop(file);
        group.commit().unwrap();
        let mut group = store.begin();
        group.unlink("large").unwrap();
        group.keep_undo(&keep).unwrap();
        group.commit().unwrap();
        assert!(matches!(store.undo_fate(), Some(UndoFate::Kept(_))), "{number}: {:?}", store.undo_fate());
    }
    let all = store.undos().unwrap();
    let kept: Vec<_> = all.iter().filter(|undo| undo.gone.is_none()).collect();
    assert!((1..GROUPS as usize).contains(&kept.len()), "{} are kept", kept.len());
    assert!(all.iter().rev().skip(kept.len()).all(|undo| undo.gone.is_some()), "the newest are kept: {all:?}");
    assert!(store.undo(kept.last().unwrap().id, &keep, |_| true).unwrap());
    assert!(read(&store, "large").chunks(PIECE as usize).zip(0..).all(|(bytes, number)| bytes == piece(number)));
    // Of what is discarded a line stays, which goes in the same way.
    for undo in store.undos().unwrap().into_iter().chain(store.undos().unwrap()) {
        let _ = store.discard(undo.id);
    }
    assert!(store.undos().unwrap().is_empty());
    rig.close(store);
}

/// Extended attributes that do not fit into inodes have room, too: each file takes a block for them.
fn attributes_have_room(rig: &mut Rig<'_>) {
    rig.init(512 * KIB).close().unwrap();
    rig.options.log_max_bytes = 8 * MIB;
    let store = rig.open();
    let files: Vec<String> = (0..4000).map(|number| format!("{number}")).collect();
    let mut group = store.begin();
    files.iter().for_each(|name| drop(group.create(name, 0o600).unwrap()));
    group.commit().unwrap();
    let large = store.create_file("large", 0o600).unwrap();
    is_full((0..).try_for_each(|number| large.fallocate(Fallocate::Extend, number * MIB, MIB)));
    store.checkpoint().unwrap();
    is_full(files.chunks(100).try_for_each(|names| {
        let mut group = store.begin();
        // ext4 has blocks that are the same once.
        let value = |name: &str| format!("{name:300}").into_bytes();
        names.iter().try_for_each(|name| group.set_xattr(name, "user.a", &value(name), SetXattr::Any))?;
        group.commit()
    }));
    store.checkpoint().expect("what was accepted has room");
    drop(large);
    rig.close(store);
}

/// Where the host needs space to overwrite, the log fails at the limit, and the store with it. What was committed is
/// there when there is space.
fn what_was_committed_is_kept(rig: &mut Rig<'_>) {
    let store = rig.init(4 * MIB);
    let file = store.create_file("a", 0o600).unwrap();
    store.checkpoint().unwrap();
    rig.limit(6 * MIB, 1000);
    let mut model = Vec::new();
    let mut write = || -> wholly::Result<()> {
        (0..16).try_for_each(|_| append(&store, &file, &mut model))?;
        store.checkpoint().map(drop)
    };
    let refused = (0..64).find_map(|_| write().err()).expect("there is a limit");
    assert!(matches!(refused, Error::NoSpace(_) | Error::Poisoned(_)), "{refused}");
    // Who does not heed that finds out what else is refused.
    let _ = write();
    drop((file, store));
    if let Err(error) = Store::open_with(rig.at(""), rig.options.clone(), rig.host()) {
        assert!([Errno::NOSPC, Errno::DQUOT].contains(&error.clone().into()), "{error}");
    }
    rig.raise();
    let store = rig.open();
    let now = read(&store, "a");
    // Of a group that failed as the store did nobody knows.
    let one_more = [&model[..], &piece(model.len() as u64 / PIECE)].concat();
    assert!(now == model || now == one_more, "{} and {}", now.len(), model.len());
    rig.close(store);
    assert!(std::fs::read(rig.at("a")).unwrap() == now);
}

/// Of a directory into which the host does not rename: what a pass cannot place there waits, and goes home when it is
/// to be elsewhere.
fn what_cannot_be_placed_waits(rig: &mut Rig<'_>) {
    rig.init(MIB).close().unwrap();
    rig.options.stage_bytes = 64 * KIB;
    run(rig.scratch, rig.host.apart.expect("the case is about it"));
    let store = rig.open();
    let make = |path: &str, length: usize| {
        let mut group = store.begin();
        let file = group.create(path, 0o600).unwrap();
        group.append(&file, &piece(1).repeat(8)[..length]).unwrap();
        group
    };
    let is_refused = |store: &Store| {
        let refused = store.checkpoint().unwrap_err();
        assert_eq!(Errno::from(refused.clone()), Errno::XDEV, "{refused}");
    };
    // What is made there, and renamed within it.
    store.mkdir("apart/d", 0o700).unwrap();
    make("apart/d/small", 100).commit().unwrap();
    store.checkpoint().unwrap();
    store.rename("apart/d", "apart/e", wholly::Rename::NoReplace).unwrap();
    store.rename("apart/e/small", "apart/small", wholly::Rename::NoReplace).unwrap();
    store.mkdir("out", 0o700).unwrap();
    store.checkpoint().unwrap();

    // What replaces a file, what was staged, and what was elsewhere.
    make("b", 300).commit().unwrap();
    store.checkpoint().unwrap();
    for (way, length) in [200, 100_000, 300].into_iter().enumerate() {
        let name = ["apart/small", "apart/large", "apart/b"][way];
        match way {
            0 => {
                let mut group = make("apart/new", length);
                group.rename("apart/new", name, wholly::Rename::Replace).unwrap();
                group.commit().unwrap();
            }
            1 => make(name, length).commit().unwrap(),
            _ => store.rename("b", name, wholly::Rename::NoReplace).unwrap(),
        }
        is_refused(&store);
        make(&format!("other{way}"), 100).commit().expect("the log has room");
        is_refused(&store);
        assert_eq!((read(&store, name).len(), read(&store, &format!("other{way}")).len()), (length, 100));
        let again = store.clone();
        again.rename(name, format!("out/{way}"), wholly::Rename::NoReplace).unwrap();
        again.checkpoint().expect("nothing is to be placed there");
        assert_eq!(std::fs::read(rig.at("out").join(way.to_string())).unwrap().len(), length);
    }
    make("apart/large", 100_000).commit().unwrap();
    is_refused(&store);
    let store = rig.reopen(store);
    is_refused(&store);
    assert_eq!(read(&store, "apart/large").len(), 100_000);
    store.unlink("apart/large").unwrap();
    rig.close(store);
}

struct Case {
    name: &'static str,
    /// Where it is made.
    on: fn(&Host) -> bool,
    run: fn(&mut Rig<'_>),
}

const CASES: [Case; 13] = {
    fn is_limited(host: &Host) -> bool {
        host.limit.is_some()
    }
    fn overwrites(host: &Host) -> bool {
        is_limited(host) && host.overwrites
    }
    [
        Case { name: "kept", on: is_limited, run: what_was_committed_is_kept },
        Case { name: "park", on: is_limited, run: no_space_to_park },
        Case { name: "bytes", on: overwrites, run: bytes_wait_for_space },
        Case { name: "files", on: |host| overwrites(host) && host.counts_files, run: new_files_wait_for_space },
        Case { name: "staged", on: overwrites, run: a_staged_file_hits_the_limit },
        Case { name: "unlinked", on: overwrites, run: what_has_lost_its_name_makes_room },
        Case { name: "log", on: overwrites, run: the_log_cannot_grow },
        Case { name: "removed", on: overwrites, run: a_removed_file_makes_room },
        Case { name: "full", on: |host| host.tells, run: nothing_is_accepted_that_has_no_room },
        Case { name: "reserved", on: |host| host.tells, run: what_is_reserved_has_room },
        Case { name: "attributes", on: |host| host.tells && !is_limited(host), run: attributes_have_room },
        Case { name: "undo", on: |host| overwrites(host) && host.forgets_files, run: undo_makes_room },
        Case { name: "apart", on: |host| host.apart.is_some(), run: what_cannot_be_placed_waits },
    ]
};

/// The file system that this program is to try, where it was started by itself.
const ROLE: &str = "WHOLLY_QUOTAS_ROLE";
const SCRATCH: &str = "WHOLLY_QUOTAS_SCRATCH";

/// In namespaces of its own.
fn on(host: &Host, scratch: &Path) {
    run(scratch, "mkdir at");
    let mount = format!("rm -f image; truncate -s 320M image; {}; {}; {}", host.make, host.mount, host.store);
    let mut can_be_made = mount.clone();
    if let Some(apart) = host.apart {
        can_be_made += &format!("; {apart}; touch at/file; if ln at/file at/store/apart; then exit 1; fi");
    }
    if let Some(limit) = host.limit {
        can_be_made += &format!("; BYTES=1000000; FILES=100; {limit}");
    }
    if !runs(scratch, &format!("({can_be_made}) 2>/dev/null")) {
        println!("skipped: {}: this kernel has no such thing", host.name);
        return;
    }
    run(scratch, "umount at");
    for case in CASES.iter().filter(|case| (case.on)(host)) {
        println!("{}: {}", host.name, case.name);
        run(scratch, &mount);
        (case.run)(&mut Rig { host, scratch, options: small(), lacks_space: false });
        run(scratch, "umount at");
    }
}

#[test]
fn what_has_no_space_waits_for_it() {
    if let Ok(role) = std::env::var(ROLE) {
        let scratch = PathBuf::from(std::env::var_os(SCRATCH).expect("set with the role"));
        return on(HOSTS.iter().find(|host| host.name == role).expect("one of them"), &scratch);
    }
    let mut failed = Vec::new();
    for host in &HOSTS {
        let limit = host.limit.unwrap_or("true");
        if let Some(what) = mounts::missing(&[host.make, host.mount, host.store, limit, "setpriv"]) {
            mounts::skip(host.name, &what);
            continue;
        }
        let scratch = Dir::new(&std::env::temp_dir(), &format!("quota-{}", host.name));
        let program = mounts::this_program(what_has_no_space_waits_for_it);
        let mut limited = Command::new("setpriv");
        limited.arg("--bounding-set=-sys_resource").arg(program.get_program()).args(program.get_args());
        let status = mounts::in_namespaces(&limited).env(ROLE, host.name).env(SCRATCH, &*scratch).status();
        if !status.expect("unshare").success() {
            failed.push(host.name);
        }
    }
    assert!(failed.is_empty(), "see above: {failed:?}");
}
