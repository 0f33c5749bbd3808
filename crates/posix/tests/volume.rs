//! The suite over a volume: what it does otherwise than the host's ext4 stands here, each with its reason.

use std::sync::Arc;

use rustix::fd::OwnedFd;
use wholly_media::{
    Region,
    disk::DiskRegion,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_posix::Exception;
use wholly_volume::{EngineKind, Volume, VolumeOptions, VolumeVfs};

const VOLUME: &[Exception] = &[];

fn file(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("volume", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::fs::ftruncate(&file, bytes).expect("its length");
    file
}

fn run(region: Arc<dyn Region>, engine: EngineKind) {
    let options = VolumeOptions { engine, ..VolumeOptions::default() };
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
    run(Arc::new(PmemRegion::open(file(256 << 20), PmemOptions::default()).expect("a region")), EngineKind::None);
}

#[test]
fn with_a_log() {
    let region = PmemRegion::open(file(256 << 20), PmemOptions::default()).expect("a region");
    run(Arc::new(region), EngineKind::FineGrainedWal);
}

#[test]
fn with_pending_blocks() {
    let region = PmemRegion::open(file(256 << 20), PmemOptions::default()).expect("a region");
    run(Arc::new(region), EngineKind::HybridLog);
}

#[test]
fn with_undo() {
    let region = PmemRegion::open(file(256 << 20), PmemOptions::default()).expect("a region");
    run(Arc::new(region), EngineKind::Undo);
}

#[test]
fn with_shadows() {
    let region = PmemRegion::open(file(256 << 20), PmemOptions::default()).expect("a region");
    run(Arc::new(region), EngineKind::Shadow);
}

#[test]
fn on_a_disk() {
    run(Arc::new(DiskRegion::open(file(256 << 20), "disk").expect("a region")), EngineKind::None);
}
