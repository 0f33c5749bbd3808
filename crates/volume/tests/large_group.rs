//! A group is bounded by free space, not by memory: one that writes half of a volume, over content and into new files,
//! takes as much memory as its options say, on persistent memory and on a disk. By `WHOLLY_LONG=1` 3 GiB in a volume of
//! 6 GiB with 64 MiB of memory.
//!
//! And files that are dirty under the policy `per-sync`: each takes a few KiB of memory, however many there are. By
//! `WHOLLY_LONG=1` 65,536 files.
//!
//! A program of its own, in which one test runs at a time: memory is that of the process.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wholly_blocks::batch::Batch;
use wholly_blocks::xftl::{Device, Flash, OverRegion, Profile};
use wholly_blocks::{TxBlocks, TxDevice};
use wholly_media::Region;
use wholly_media::disk::DiskRegion;
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_sim::CountingRegion;
use wholly_vfs::{Context, Handle, Ino, Mode, OFlags, Policy, Vfs};
use wholly_volume::{EngineKind, PolicyVfs, Volume, VolumeFile, VolumeOptions};

static ALONE: Mutex<()> = Mutex::new(());

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
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
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

#[test]
fn very_many_files_are_dirty() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // All at the same time: none takes memory that another one has given back.
    let dirty: Vec<Dirty> =
        EngineKind::ALL.iter().copied().filter(|engine| engine.promises_groups()).map(Dirty::new).collect();
    dirty.into_iter().for_each(Dirty::commit);
}

/// A volume with very many dirty files.
struct Dirty {
    volume: Volume,
    vfs: PolicyVfs,
    handles: Vec<Handle>,
}

impl Dirty {
    fn new(engine: EngineKind) -> Dirty {
        let is_long = std::env::var_os("WHOLLY_LONG").is_some();
        let (bytes, files) = if is_long { (4096 * MIB, 1 << 16) } else { (256 * MIB, 1 << 12) };
        let file = memfd_create("volume", MemfdFlags::CLOEXEC).expect("a file in memory");
        ftruncate(&file, bytes).expect("its length");
        let region = region(engine, file);
        let options = VolumeOptions { engine: Some(engine), cache_bytes: MIB as usize, ..Default::default() };
        Volume::format_region(&*region, &options).expect("make a volume");
        let volume = Volume::open_region(region.clone(), &options).expect("open it");
        let vfs = PolicyVfs::new(&volume, Policy::PerSync).expect("it has groups");
        let (ctx, mode) = (Context::superuser(), Mode::from_raw_mode(0o644));
        let handles: Vec<_> = (0..files)
            .map(|n| {
                let name = format!("file{n}");
                vfs.create(&ctx, Ino::ROOT, name.as_bytes(), OFlags::RDWR, mode).expect("make a file").1
            })
            .collect();
        let free = || vfs.statfs(&ctx, Ino::ROOT).expect("statfs").free_blocks;
        let (before, free_before) = (memory(), free());
        // Each is dirty, with one piece of content.
        handles.iter().for_each(|handle| assert_eq!(vfs.write(&ctx, handle, 0, &[1; 1000]), Ok(1000)));
        let (taken, blocks) = ((memory() - before) / files, (free_before - free()) / files);
        println!("{}: a dirty file takes {taken} bytes of memory, and {blocks} blocks", engine.name());
        assert_eq!(vfs.pending_files(), files);
        assert!(taken <= 6 << 10, "{}: a dirty file takes {taken} bytes of memory", engine.name());
        Dirty { volume, vfs, handles }
    }

    fn commit(self) {
        let (Dirty { volume, vfs, handles }, ctx) = (self, Context::superuser());
        vfs.sync(&ctx).expect("sync");
        assert_eq!(vfs.pending_files(), 0);
        handles.iter().for_each(|handle| vfs.release(&ctx, handle.clone()).expect("close"));
        drop(vfs);
        assert_eq!(volume.metadata(format!("file{}", handles.len() - 1)).expect("it has a name").size, 1000);
        volume.close().expect("close it");
    }
}

/// A group that makes very many files in new directories, with a cache of 32 MiB: what it takes of memory beside that
/// is for the inodes that it has changed. It stores little more than its content and its metadata. An abort leaves the
/// volume as it was. By `WHOLLY_LONG=1` 4 GiB and 100,000 files; a sixteenth of that without.
#[test]
fn a_group_of_very_many_files() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // In processes of their own: memory that has been given back counts as taken.
    for medium in ["disk", "flash"] {
        let mut run = Command::new(std::env::current_exe().expect("this program"));
        run.args(["very_many_files_are_made", "--exact", "--ignored", "--nocapture"]).env("MEDIUM", medium);
        assert!(run.status().expect("run it").success(), "{medium}");
    }
}

#[test]
#[ignore = "the test above runs it, in a process of its own"]
fn very_many_files_are_made() {
    let on_flash = std::env::var_os("MEDIUM").is_some_and(|medium| medium == "flash");
    const MOST: u64 = 96 * MIB;
    let is_long = std::env::var_os("WHOLLY_LONG").is_some();
    let (dirs, bytes) = if is_long { (100, 6144 * MIB) } else { (100 / 16, 448 * MIB) };
    let (files, content) = (1000, 42 << 10);
    let file = |bytes| {
        let file = memfd_create("volume", MemfdFlags::CLOEXEC).expect("a file in memory");
        ftruncate(&file, bytes).expect("its length");
        CountingRegion::new(Arc::new(DiskRegion::open(file, "disk").expect("a region")))
    };
    let cache_bytes = 32 * MIB as usize;
    let options = VolumeOptions { engine: Some(EngineKind::OpLog), cache_bytes, ..VolumeOptions::default() };
    // On a flash disk, the pages that the host has written count.
    let (region, device) = match on_flash {
        false => (file(bytes), None),
        true => {
            let (geometry, config) = Profile::Commercial.plan(bytes).expect("sizes");
            let region = file(OverRegion::bytes(&geometry));
            let chip: Arc<dyn Flash> = OverRegion::create(region.clone(), geometry, [9; 16]).expect("a chip");
            Device::format(&chip, &config, [9; 16]).expect("a flash disk");
            (region, Some(Arc::new(Device::open(chip).expect("open it"))))
        }
    };
    let blocks: Option<Arc<dyn TxBlocks>> =
        device.clone().map(|device| Batch::new(device, 512)).map(|it| Arc::new(it) as _);
    let volume = match &blocks {
        None => {
            Volume::format_region(&*region, &options).expect("make a volume");
            Volume::open_region(region.clone(), &options).expect("open it")
        }
        Some(blocks) => {
            Volume::format_blocks_as(&**blocks, &options, [7; 16]).expect("make a volume");
            Volume::open_blocks(blocks.clone(), &options).expect("open it")
        }
    };
    let stored = || match &device {
        None => region.take().values().map(|count| count.bytes).sum(),
        Some(device) => device.counters().writes * 4096,
    };
    let mut free = volume.stat().free_blocks;
    let before = memory();
    let mut peak = before;
    let mut piece = vec![0; content];
    for round in 0..3 {
        let stored_before = stored();
        let mut group = volume.begin();
        for dir in 0..dirs {
            group.mkdir(format!("d{dir}"), 0o755).expect("make a directory");
            for n in 0..files {
                let file = group.create(format!("d{dir}/{n}"), 0o644).expect("make a file");
                fill(&mut piece, dir * files + n, 4);
                group.write_at(&file, 0, &piece).expect("write");
                if n % 64 == 0 {
                    peak = peak.max(memory());
                }
            }
        }
        if round == 2 {
            group.commit().expect("commit");
            peak = peak.max(memory());
            let stored = stored() - if on_flash { stored_before } else { 0 };
            let needed = (free - volume.stat().free_blocks) * 4096;
            println!("{} MiB stored for {} MiB of content and metadata", stored / MIB, needed / MIB);
            assert!(stored * 10 <= needed * 11, "{stored} bytes stored for {needed}");
        } else {
            group.abort();
            // The inode file has grown, by structure changes, which stay.
            assert!(round == 0 || volume.stat().free_blocks == free);
            free = volume.stat().free_blocks;
        }
    }
    let grown = (peak - before) / 1024;
    println!("{} files, {} MiB: {grown} KiB of memory", dirs * files, dirs * files * content as u64 / MIB);
    // And what `docs/volume.md` says: 1 KiB for each inode that changes, and 160 bytes for each line, here three.
    let for_inodes = (dirs * files + dirs) * (1024 + 3 * 160);
    // The model of the disk has an entry for each page of a transaction.
    let for_disk = if on_flash { dirs * files * (content as u64 / 4096 + 2) * 64 } else { 0 };
    assert!(peak - before <= MOST + for_inodes + for_disk, "it took {grown} KiB of memory");
    for (dir, n) in [(0, 0), (dirs - 1, files - 1)] {
        let mut wanted = vec![0; content];
        fill(&mut wanted, dir * files + n, 4);
        assert!(volume.read_file(format!("d{dir}/{n}")).expect("read") == wanted);
    }
    volume.close().expect("close it");
    let checked = match &blocks {
        None => Volume::check_region(&*region),
        Some(blocks) => Volume::check_region(&*blocks.plain()),
    };
    assert_eq!(checked.expect("check").findings, []);
}
