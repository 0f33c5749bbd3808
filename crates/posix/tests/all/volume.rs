//! The suite over a volume: what it does otherwise than the host's ext4 stands here, each with its reason.

use std::path::PathBuf;
use std::sync::Arc;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::fcntl_dupfd_cloexec;
use wholly_blocks::xftl::{self, Device, Flash, OverRegion, Profile};
use wholly_media::{
    Region,
    disk::DiskRegion,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_posix::{Exception, Through, Tree};
use wholly_vfs::Policy;
use wholly_vfs::{Context, Errno, Groups, Ino, Vfs};
use wholly_volume::{EngineKind, PolicyVfs, Volume, VolumeOptions, VolumeVfs};

const VOLUME: &[Exception] = &[];

fn file(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("volume", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::fs::ftruncate(&file, bytes).expect("its length");
    file
}

fn run(region: Arc<dyn Region>, engine: EngineKind) {
    let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
    Volume::format_region(&*region, &options).expect("make a volume");
    let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let report = wholly_posix::run(&vfs, true, VOLUME);
    println!("{} passed, {} exceptions", report.passed, VOLUME.len());
    report.expect_passed();
    assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
    drop(vfs);
    volume.close().expect("close it");
    let checked = Volume::check_region(&*region).expect("check it");
    assert_eq!(checked.findings, []);
}

#[test]
fn on_persistent_memory() {
    for engine in EngineKind::ALL {
        println!("{}", engine.name());
        run(Arc::new(PmemRegion::open(file(256 << 20), PmemOptions::default()).expect("a region")), *engine);
    }
}

#[test]
fn on_a_disk() {
    for engine in EngineKind::ALL.iter().filter(|engine| engine.takes_disks()) {
        println!("{}", engine.name());
        run(Arc::new(DiskRegion::open(file(256 << 20), "disk").expect("a region")), *engine);
    }
}

/// On a simulated flash disk in a file, named as users do.
#[test]
fn on_a_flash_disk() {
    let (geometry, config) = Profile::OpenSsd.plan(128 << 20).expect("sizes");
    let file = file(OverRegion::bytes(&geometry));
    let path = PathBuf::from(format!("flash:/proc/self/fd/{}", file.as_raw_fd()));
    let copy = fcntl_dupfd_cloexec(&file, 0).expect("dup");
    let region: Arc<dyn Region> = Arc::new(DiskRegion::open(copy, "flash").expect("a region"));
    let chip: Arc<dyn Flash> = OverRegion::create(region, geometry, [9; 16]).expect("a chip");
    Device::format(&chip, &config, [9; 16]).expect("a flash disk");
    drop(chip);
    Volume::format(&path, 0, &VolumeOptions::default()).expect("make a volume");
    let volume = Volume::open(&path, &VolumeOptions::default()).expect("open it");
    assert_eq!(volume.stat().engine, EngineKind::OpLog.name());
    let vfs = VolumeVfs::new(&volume);
    let report = wholly_posix::run(&vfs, true, VOLUME);
    println!("{} passed, {} exceptions", report.passed, VOLUME.len());
    report.expect_passed();
    drop(vfs);
    // In one group, as well.
    let vfs = VolumeVfs::new(&volume);
    let group = vfs.begin().expect("begin a group");
    let in_group = Through::new(&vfs, |ctx| Context { group: Some(group), ..ctx.clone() });
    wholly_posix::run(&in_group, true, VOLUME).expect_passed();
    vfs.commit(group).expect("commit");
    assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
    drop(vfs);
    volume.close().expect("close it");
    assert_eq!(Volume::check(&path).expect("check it").findings, []);
    let region = DiskRegion::open_read_only(file, "flash").expect("a region");
    let report = xftl::check(OverRegion::open(Arc::new(region)).expect("a chip")).expect("check the flash disk");
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert!(report.stat.programs.data > 1000, "in transactions of the device");
}

fn on_pmem(engine: EngineKind) -> Arc<dyn Region> {
    let region = PmemRegion::open(file(256 << 20), PmemOptions::default()).expect("a region");
    let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
    Volume::format_region(&region, &options).expect("make a volume");
    Arc::new(region)
}

/// Those that have groups.
fn engines() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.iter().copied().filter(|engine| engine.promises_groups())
}

fn expect_sound(region: &dyn Region) {
    let checked = Volume::check_region(region).expect("check it");
    assert_eq!((checked.findings, checked.orphans), (Vec::new(), 0));
}

/// The whole suite in one explicit group, of which nobody else sees anything before it commits. Blocks that a group
/// leaves in use are room for inodes and for names in the root directory: the next group has it.
#[test]
fn in_one_group() {
    for engine in engines() {
        let region = on_pmem(engine);
        let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        // Blocks in use, less those of inodes and of the root directory.
        let others = || {
            let stat = volume.stat();
            let of_root = tree.stat("/").expect("the root").blocks * 512 / 4096;
            stat.blocks - (stat.free_blocks - stat.idle_blocks) - stat.inodes / 16 - of_root
        };
        let (before, mut inodes) = (others(), Vec::new());
        for ends_well in [false, true, false] {
            let group = vfs.begin().expect("begin a group");
            let in_group = Through::new(&vfs, |ctx| Context { group: Some(group), ..ctx.clone() });
            let report = wholly_posix::run(&in_group, true, VOLUME);
            println!("{} passed, {} exceptions", report.passed, VOLUME.len());
            report.expect_passed();
            Tree::new(&in_group, Ino::ROOT).file("left", 0o640, b"by the group").expect("make a file");
            assert_eq!(tree.names("/").expect("list").len(), 0, "it is the group's");
            assert_eq!(vfs.held().1, 0, "handles are given back");
            if ends_well {
                vfs.commit(group).expect("commit");
                assert_eq!(tree.content("left").expect("read"), b"by the group");
                tree.unlink("left").expect("remove");
            } else {
                vfs.abort(group).expect("abort");
                assert_eq!(tree.names("/").expect("list").len(), 0, "it has not happened");
            }
            assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
            let ctx = Context { group: Some(group), ..Context::superuser() };
            assert_eq!(vfs.getattr(&ctx, Ino::ROOT).unwrap_err(), Errno::INVAL, "it has ended");
            let more = others() - before;
            assert!(more < 4, "{more} blocks are missing");
            inodes.push(volume.stat().inodes);
        }
        assert!(inodes.iter().all(|number| *number == inodes[0]), "the room for inodes is used again: {inodes:?}");
        drop(vfs);
        volume.close().expect("close it");
        expect_sound(&*region);
    }
}

/// Calls outside of explicit groups, grouped by a policy.
fn by_policy(policy: Policy) {
    for engine in engines() {
        let region = on_pmem(engine);
        let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it");
        let vfs = PolicyVfs::new(&volume, policy).expect("it has groups");
        let report = wholly_posix::run(&vfs, true, VOLUME);
        println!("{} passed, {} exceptions", report.passed, VOLUME.len());
        report.expect_passed();
        vfs.sync(&Context::superuser()).expect("sync");
        assert_eq!(vfs.held(), (0, 0), "references and handles are given back");
        drop(vfs);
        volume.close().expect("close it");
        expect_sound(&*region);
    }
}

#[test]
fn from_sync_to_sync() {
    by_policy(Policy::PerSync);
}

#[test]
fn all_calls_together() {
    by_policy(Policy::Shared { interval: std::time::Duration::from_millis(20) });
}
