//! A group is bounded by free space, not by memory: one that writes half of a volume, over content and into new files,
//! takes as much memory as its options say, on persistent memory and on a disk. By `WHOLLY_LONG=1` 3 GiB in a volume of
//! 6 GiB with 64 MiB of memory.
//!
//! The only test of its program: memory is that of the process.

use std::sync::Arc;

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wholly_media::Region;
use wholly_media::disk::DiskRegion;
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_volume::{EngineKind, Volume, VolumeFile, VolumeOptions};

const MIB: u64 = 1 << 20;
/// Bytes of a call.
const PIECE: u64 = 64 << 10;

/// Anonymous memory of the process: without the volume, which is a mapped file.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the state of the process");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// The bytes of a piece, in each of which is where it belongs.
fn fill(piece: &mut [u8], at: u64, seed: u8) {
    piece.chunks_exact_mut(8).zip(0..).for_each(|(word, n)| word.copy_from_slice(&(at + n * 8).to_le_bytes()));
    piece.iter_mut().for_each(|byte| *byte ^= seed);
}

fn expect(file: &VolumeFile, size: u64, seed: u8, what: &str) {
    let (mut wanted, mut found) = (vec![0; PIECE as usize], vec![0; PIECE as usize]);
    for at in (0..size).step_by(PIECE as usize) {
        fill(&mut wanted, at, seed);
        assert_eq!(file.read_at(at, &mut found).expect("read"), PIECE as usize, "{what} at {at}");
        assert!(wanted == found, "{what} at {at}");
    }
}

#[test]
fn a_group_is_bounded_by_free_space_only() {
    for engine in [EngineKind::FineGrainedWal, EngineKind::HybridLog, EngineKind::Undo, EngineKind::PageCacheWal] {
        write_much(engine);
    }
}

/// On a medium of the engine's, in memory.
fn region(engine: EngineKind, file: OwnedFd) -> Arc<dyn Region> {
    match engine {
        EngineKind::PageCacheWal => Arc::new(DiskRegion::open(file, "disk").expect("a region")),
        _ => Arc::new(PmemRegion::open(file, PmemOptions::default()).expect("a region")),
    }
}

fn write_much(engine: EngineKind) {
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    // Of the volume, of what is written over, of what is new, and of memory.
    let (bytes, over, new, most) =
        if is_long { (6144 * MIB, 1280 * MIB, 1792 * MIB, 64 * MIB) } else { (96 * MIB, 20 * MIB, 28 * MIB, 4 * MIB) };
    let file = memfd_create("volume", MemfdFlags::CLOEXEC).expect("a file in memory");
    ftruncate(&file, bytes).expect("its length");
    let region = region(engine, file);
    // The disk's pages are in memory, too.
    let cache = if is_long && engine == EngineKind::PageCacheWal { 32 * MIB } else { MIB };
    let options = VolumeOptions { engine: Some(engine), cache_bytes: cache as usize, ..Default::default() };
    Volume::format_region(&*region, &options).expect("make a volume");
    let volume = Volume::open_region(region.clone(), &options).expect("open it");
    let mut piece = vec![0; PIECE as usize];
    let old = volume.create_file("old", 0o644).expect("make a file");
    for at in (0..over).step_by(PIECE as usize) {
        fill(&mut piece, at, 1);
        old.write_at(at, &piece).expect("write");
    }

    let before = memory();
    let (mut peak, mut seen) = (before, 0);
    let mut grown = || {
        seen += 1;
        if seen % 16 == 0 {
            peak = peak.max(memory());
        }
    };
    for ends_well in [false, true] {
        let mut group = volume.begin();
        for at in (0..over).step_by(PIECE as usize) {
            fill(&mut piece, at, 2);
            group.write_at(&old, at, &piece).expect("write over");
            grown();
        }
        let files = [0, 1].map(|n| group.create(format!("new{n}"), 0o644).expect("make a file"));
        for at in (0..new / 2).step_by(PIECE as usize) {
            fill(&mut piece, at, 3);
            files.iter().for_each(|file| group.write_at(file, at, &piece).expect("write"));
            grown();
        }
        if ends_well {
            group.commit().expect("commit");
        } else {
            drop(files);
            group.abort();
        }
        expect(&old, over, if ends_well { 2 } else { 1 }, "what was there");
    }
    peak = peak.max(memory());
    println!("{}: {} MiB in a group took {} KiB", engine.name(), (over + new) / MIB, (peak - before) >> 10);
    assert!(peak - before <= most, "it took {} KiB of memory", (peak - before) >> 10);
    for name in ["new0", "new1"] {
        expect(&volume.open_file(name).expect("open"), new / 2, 3, name);
    }
    drop(old);
    volume.close().expect("close it");
    assert_eq!(Volume::check_region(&*region).expect("check it").findings, []);
}
