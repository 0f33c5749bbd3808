//! Volumes on an NVMe controller, a model in memory and QEMU's: what a call costs the device, by formula, in each data
//! mode; commits on several queues while the device is held; what a failure of the device leaves.

use std::cell::Cell;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use super::ordered::until;
use rustix::io::Errno;
use wholly_nvme::model::{Config, FILES, Faults, InMemory, Model};
use wholly_nvme::qtest::{PROGRAM, Qemu, QemuOptions};
use wholly_nvme::spec::Status;
use wholly_nvme::{Counts, Disk, Options, Transport};
use wholly_posix::Tree;
use wholly_scratch::TestDir;
use wholly_vfs::{Calls, Ino, Policy, Rename, Timestamp};
use wholly_volume::{DataMode, PolicyVfs, Trial, Volume, VolumeOptions};

const BYTES: u64 = 256 << 20;
const REGION: u64 = 256 << 10;
const QUEUES: u16 = 4;

thread_local! {
    /// Each call comes a second later, but for those between which it stands still.
    static NOW: Cell<i64> = const { Cell::new(1) };
}

fn options() -> VolumeOptions {
    VolumeOptions {
        queues: Some(QUEUES),
        cache_bytes: 16 << 20,
        clock: || Timestamp { sec: NOW.get(), nsec: 0 },
        trial: Trial { queues_in_turn: true, ..Trial::default() },
        ..VolumeOptions::default()
    }
}

fn disk(device: &Arc<dyn Transport>) -> Arc<Disk> {
    // The model's time passes in waits alone, and fast.
    let options = Options { queues: QUEUES, timeout: Duration::from_secs(1 << 30), ..Options::default() };
    Arc::new(Disk::new(device.clone(), options).expect("a disk"))
}

fn model() -> Arc<Model> {
    let config = Config { lba_bytes: 4096, interrupts: 0, ..Config::default() };
    Model::new("model", Arc::new(InMemory::new(BYTES, REGION)), config).expect("a model")
}

fn made(device: &Arc<dyn Transport>, data: DataMode) -> Volume {
    let disk = disk(device);
    Volume::format_queues_as(disk.clone(), &VolumeOptions { data: Some(data), ..options() }, [7; 16]).expect("make it");
    Volume::open_queues(disk, &options()).expect("open it")
}

fn write(volume: &Volume, name: &str, content: &[u8]) -> wholly::Result<()> {
    volume.create_file(name, 0o644)?.write_at(0, content)
}

/// With the policy of a mount.
fn calls(volume: &Volume) -> Calls<PolicyVfs> {
    Calls::new(Arc::new(PolicyVfs::new(volume, Policy::PerSync).expect("a policy")))
}

/// By formula, N is how many blocks a call changes, and one describes them. It is atomic after three stores: of the
/// entries, of the tail that makes them count, and to the doorbell; and durable after two more and one wait. In the
/// journal all that is written is one command. New content that goes to its place is a second one.
fn costs(device: &Arc<dyn Transport>, data: DataMode) {
    let volume = made(device, data);
    let calls = calls(&volume);
    let counted = |call: &dyn Fn()| {
        NOW.set(NOW.get() + 1);
        let before = device.counts();
        call();
        device.counts() - before
    };
    let file = calls.create_file("a", 0o644).expect("create");
    let put = |at: u64| file.write_at(4096 * at, &[at as u8; 4096]).expect("write");
    (0..2).for_each(put);
    file.sync().expect("sync");
    calls.create_file("b", 0o644).expect("create");

    let fresh = 1 + u64::from(data == DataMode::Ordered);
    let overwrite = |now: i64| {
        NOW.set(NOW.get() - now);
        put(0);
        file.sync().expect("sync");
    };
    overwrite(0);
    let all: [(&str, u64, u64, &dyn Fn()); 6] = [
        ("append: content, map, inode, bitmap", 4, fresh, &|| {
            put(2);
            file.sync().expect("sync");
        }),
        ("overwrite: content, inode", 2, 1, &|| overwrite(0)),
        ("overwrite in the same moment: content", 1, 1, &|| overwrite(1)),
        ("create: leaf, both inodes, bitmap", 4, 1, &|| drop(calls.create_file("c", 0o644).expect("create"))),
        ("rename: leaf, both inodes", 3, 1, &|| calls.rename("b", "d", Rename::Replace).expect("rename")),
        ("unlink: leaf, both inodes, bitmap", 4, 1, &|| calls.unlink("d").expect("unlink")),
    ];
    for (what, changed, commands, call) in all {
        let counts = counted(call);
        let what = format!("{what}, {data:?}, {}: {counts:?}", device.name());
        assert_eq!((counts.blocks, counts.block_ios, counts.flushes), (changed + 1, commands, 0), "{what}");
        assert_eq!((counts.region_runs, counts.sq_doorbells, counts.cq_doorbells), (3, 1, 1), "{what}");
    }
    // The same blocks, later: with two stores less, and no wait.
    let atomic = counted(&|| {
        put(3);
        file.fatomic().expect("fatomic");
    });
    let expected = Counts { region_runs: 2, sq_doorbells: 1, orders: 2, barriers: 1, ..Counts::default() };
    let host = |counts: Counts| Counts { region_bytes: 0, ..counts };
    if !device.name().starts_with("qemu") {
        // QEMU's controller has begun by itself.
        assert_eq!(host(atomic), expected, "{data:?}");
    }
    assert_eq!(atomic.mmio_raw(), 3);
    let durable = counted(&|| file.sync().expect("sync"));
    let all = atomic + durable;
    assert_eq!((all.blocks, all.block_ios, all.mmio_raw()), (4 + 1, fresh, 5), "{data:?}");
    drop((file, calls));
    volume.close().expect("close it");
}

#[test]
fn what_a_call_costs_the_device() {
    for data in DataMode::ALL {
        let model = model();
        let device: Arc<dyn Transport> = model.clone();
        costs(&device, data);
        assert_eq!(model.reports(), [] as [String; 0]);
    }
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "QEMU is missing: scripts/setup installs it");
        return;
    }
    for data in DataMode::ALL {
        let directory = TestDir::on_disk();
        for (name, bytes) in [(FILES[0], BYTES), (FILES[1], REGION)] {
            std::fs::File::create_new(directory.path().join(name)).unwrap().set_len(bytes).unwrap();
        }
        let options = QemuOptions { lba_bytes: 4096, ..QemuOptions::default() };
        let device: Arc<dyn Transport> = Qemu::start(directory.path(), &options).expect("QEMU");
        costs(&device, data);
        data_syncs(&device);
    }
}

/// A sync of data leaves out an inode of which only times have changed. They are in memory until a sync, a close, or an
/// unmount.
fn data_syncs(device: &Arc<dyn Transport>) {
    let volume = made(device, DataMode::Ordered);
    let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("a policy");
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("a", 0o644, &[1; 8192]).expect("make a file");
    file.fsync().expect("sync");
    let counted = |call: &dyn Fn() -> Result<(), Errno>| {
        NOW.set(NOW.get() + 1);
        let before = device.counts();
        call().expect("a call");
        let counts = device.counts() - before;
        (counts.blocks, counts.region_runs, counts.sq_doorbells, counts.cq_doorbells)
    };
    let put = |at: u64| file.write_all(4096 * at, &[NOW.get() as u8; 4096]);
    assert_eq!(counted(&|| put(0).and_then(|()| file.fdatasync())), (2, 3, 1, 1), "content and its description");
    assert_eq!(counted(&|| put(1).and_then(|()| file.fsync())), (3, 3, 1, 1), "the inode, too");
    assert_eq!(counted(&|| file.fsync()), (0, 0, 0, 0), "nothing is left");
    let atomic = counted(&|| put(0).and_then(|()| file.fatomic(true)));
    assert_eq!((atomic.1, atomic.2, atomic.3), (2, 1, 0));
    file.fdatasync().expect("a sync of data");
    assert_eq!(counted(&|| file.fsync()), (2, 3, 1, 1), "the inode and its description");
    assert_eq!(counted(&|| put(2).and_then(|()| file.fdatasync())).0, 4 + 1, "a length is needed to read the data");
    // Of a close, and of an unmount with an open file.
    let times = |name: &str| tree.stat(name).expect("stat").mtime;
    let other = tree.file("b", 0o644, &[1; 4096]).expect("make a file");
    for (file, name) in [(&file, "a"), (&other, "b")] {
        counted(&|| file.write_all(0, &[9; 100]).and_then(|()| file.fdatasync()));
        assert_eq!(times(name).sec, NOW.get());
    }
    let expected = ["a", "b"].map(|name| times(name).sec);
    drop(file);
    std::mem::forget(other);
    drop(vfs);
    volume.close().expect("close it");
    let volume = Volume::open_queues(disk(device), &options()).expect("open it again");
    let found = ["a", "b"].map(|name| volume.metadata(name).expect("it is there").mtime_ns);
    assert_eq!(found, expected.map(|sec| sec * 1_000_000_000));
    volume.close().expect("close it");
}

#[test]
fn a_sync_of_data_leaves_times_out() {
    data_syncs(&(model() as Arc<dyn Transport>));
}

/// With the device held, commits of four threads on four queues are all handed over, though they share a leaf of the
/// directory, a block of inodes, and a bitmap. Looks go on. No clock decides.
#[test]
fn commits_on_a_device_do_not_wait_for_each_other() {
    let model = model();
    let device: Arc<dyn Transport> = model.clone();
    let volume = made(&device, DataMode::Ordered);
    write(&volume, "known", b"content").expect("write");
    let held = Barrier::new(usize::from(QUEUES) + 1);
    std::thread::scope(|scope| {
        let (volume, held) = (&volume, &held);
        let make = move |number: u16| {
            // From here on each has in memory what it changes.
            volume.create_file(format!("old {number}"), 0o644)?;
            held.wait();
            held.wait();
            volume.create_file(format!("{number}"), 0o644).map(drop)
        };
        let threads: Vec<_> = (0..QUEUES).map(|number| scope.spawn(move || make(number))).collect();
        held.wait();
        let before = model.counts().sq_doorbells;
        model.hold(true);
        held.wait();
        until("four commits are on their way", || model.counts().sq_doorbells >= before + u64::from(QUEUES));
        assert_eq!(volume.metadata("known").expect("a look").size, 7);
        let is_there = |number| volume.metadata(format!("{number}")).is_ok();
        assert!((0..QUEUES).all(is_there), "others see what is ordered");
        assert!(threads.iter().all(|thread| !thread.is_finished()), "a call returned before it was durable");
        model.hold(false);
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic").expect("it is durable"));
    });
    volume.close().expect("close it");
}

/// A command fails: whoever waits, and whoever comes later, is told. What had returned is there when the volume is
/// opened again, and it goes on.
#[test]
fn an_error_of_the_device_is_told_to_all() {
    let model = model();
    let device: Arc<dyn Transport> = model.clone();
    let volume = made(&device, DataMode::Ordered);
    write(&volume, "kept", &[7; 9000]).expect("write");
    model.set_faults(Faults { fail: Some((0, Status::WRITE_FAULT)), ..Faults::default() });
    let failed = write(&volume, "lost", b"content").expect_err("the device has failed");
    assert_eq!(failed.errno(), Errno::IO.raw_os_error(), "{failed}");
    let later = volume.create_file("later", 0o644).map(drop).expect_err("it has failed before");
    assert_eq!(later.errno(), Errno::IO.raw_os_error(), "{later}");
    assert_eq!(volume.read_file("kept").expect("reads go on"), [7; 9000]);
    assert_eq!(volume.metadata("kept").expect("looks go on").size, 9000);
    let names: Vec<_> = volume.read_dir("").expect("lists go on").into_iter().map(|entry| entry.name).collect();
    assert!(names.iter().any(|name| name == b"kept"), "{names:?}");
    assert!(volume.close().is_err());
    model.set_faults(Faults::default());
    let volume = Volume::open_queues(disk(&device), &options()).expect("open it again");
    assert_eq!(volume.read_file("kept").expect("it had returned"), [7; 9000]);
    write(&volume, "again", b"content").expect("it goes on");
    volume.close().expect("close it");
}

/// A volume keeps the mode that it was made with. Another one that is asked for is refused.
#[test]
fn the_data_mode_is_the_volumes() {
    let device: Arc<dyn Transport> = model();
    made(&device, DataMode::Journal).close().expect("close it");
    let open = |data| Volume::open_queues(disk(&device), &VolumeOptions { data, ..options() });
    let refused = open(Some(DataMode::Ordered)).expect_err("it has another mode").to_string();
    assert!(refused.contains("made with journal") && refused.contains("--data ordered"), "{refused}");
    for same in [Some(DataMode::Journal), None] {
        open(same).expect("open it").close().expect("close it");
    }
}
