//! Whatever bytes a file has, looking at it as a volume, mounting it, repairing and resizing it ends with a result or
//! an error, and never with a panic: from nothing to two blocks of anything, and volumes that are cut off or have
//! superblocks with right checksums and wrong numbers.
//!
//! `WHOLLY_ANY=1000-2000` tries the images with these seeds.

use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use wholly_media::Region;
use wholly_media::disk::DiskRegion;
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_volume::format::Lba;
use wholly_volume::format::superblock::Superblock;
use wholly_volume::{EngineKind, Object, Repair, Volume, VolumeOptions};

const BLOCK: usize = 4096;
/// The bytes of a superblock that its checksum is of.
const SUMMED: Range<usize> = 16..512;
/// Small volumes: most of their bytes count.
const BYTES: usize = 512 << 10;

/// Numbers that look random, the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

fn options() -> VolumeOptions {
    VolumeOptions { cache_bytes: 1 << 20, ..VolumeOptions::default() }
}

fn memory(image: &[u8]) -> rustix::fd::OwnedFd {
    let file = rustix::fs::memfd_create("any", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::io::pwrite(&file, image, 0).expect("write");
    file
}

/// As persistent memory, or as a disk. None where that cannot be: memory of no bytes.
fn region(image: &[u8], is_disk: bool) -> Option<Arc<dyn Region>> {
    let file = memory(image);
    match is_disk {
        true => Some(Arc::new(DiskRegion::open(file, "any").ok()?)),
        false => Some(Arc::new(PmemRegion::open(file, PmemOptions::default()).ok()?)),
    }
}

/// A volume with some things in it, which was not unmounted or was.
fn volume(engine: EngineKind, dies: bool) -> Vec<u8> {
    let region = region(&[0; BYTES], false).expect("a region");
    let made = VolumeOptions { engine: Some(engine), ..options() };
    Volume::format_region(&*region, &made).expect("make a volume");
    let volume = Volume::open_region(region.clone(), &made).expect("open it");
    for name in ["a", "b", "c"] {
        volume.create_file(name, 0o644).expect("make a file").write_at(0, &[7; 9000]).expect("write");
    }
    match dies {
        true => volume.abandon(),
        false => volume.close().expect("close it"),
    }
    let mut image = vec![0; BYTES];
    region.read(0, &mut image).expect("read");
    image
}

/// Gives the superblocks that there are right checksums.
fn summed(image: &mut [u8]) {
    let last = (image.len() / BLOCK).saturating_sub(1);
    for slot in [0, 1, last] {
        if let Some(raw) = image.get_mut(slot * BLOCK..).and_then(|rest| rest.get_mut(..512)) {
            Superblock::seal(raw, Lba(slot as u64));
        }
    }
}

/// What is in the file of a seed.
fn image(seed: u64, volumes: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let volume = &volumes[seed as usize % volumes.len()];
    let lengths = [0, 1, 7, 8, 25, 100, 511, 512, 513, 4095, 4096, 4097, 8191, 8192];
    let length = if random.below(2) == 0 { lengths[random.below(lengths.len())] } else { random.below(8193) };
    match random.below(8) {
        0 => vec![[0, 0xff, 0x55][random.below(3)]; length],
        1 => random.bytes(length),
        2 => volume[..length].to_vec(),
        kind => {
            // All of a volume, or nearly.
            let length = [BYTES, BYTES, random.below(BYTES + 1), 16 * BLOCK + random.below(4) * BLOCK][random.below(4)];
            let mut image = volume[..length].to_vec();
            let slots = [0, BLOCK, length.saturating_sub(BLOCK) / BLOCK * BLOCK];
            // The same in all copies, so that most of them say so.
            for _ in 0..1 + random.below(3) {
                let field = SUMMED.start + random.below(256);
                let bytes = match random.below(3) {
                    0 => random.bytes(1),
                    1 => vec![[0, 0xff][random.below(2)]; 8],
                    _ => (random.below(2 * BYTES / BLOCK) as u64).to_le_bytes().to_vec(),
                };
                // Fields of eight bytes lie at multiples of it.
                let field = if bytes.len() == 8 { field / 8 * 8 } else { field };
                for slot in slots.iter().filter(|slot| kind > 3 || **slot == 0) {
                    if let Some(place) = image.get_mut(slot + field..).and_then(|rest| rest.get_mut(..bytes.len())) {
                        place.copy_from_slice(&bytes);
                    }
                }
            }
            summed(&mut image);
            for _ in 0..random.below(3) {
                let at = random.below(image.len().max(1));
                image.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << random.below(8));
            }
            image
        }
    }
}

/// What every verb does with it, whatever comes of that.
fn try_all(image: &[u8], is_disk: bool, opened: &mut u64) {
    let on = |act: &dyn Fn(Arc<dyn Region>)| region(image, is_disk).into_iter().for_each(act);
    on(&|region| _ = Volume::dump_region(&*region, None));
    for object in [Object::Path(b"/"), Object::Path(b"a"), Object::Inode(1), Object::Inode(2), Object::Inode(u64::MAX)]
    {
        on(&|region| _ = Volume::dump_region(&*region, Some(object)));
    }
    on(&|region| _ = Volume::check_region(&*region));
    for how in [(Repair::Safe, false), (Repair::Safe, true), (Repair::All, true)] {
        on(&|region| _ = Volume::repair_region(&region, &options(), how, &mut |_| ControlFlow::Continue(())));
    }
    if let Some(Ok(volume)) = region(image, is_disk).map(|region| Volume::open_region(region, &options())) {
        *opened += 1;
        let _ = (volume.stat(), volume.read_dir("").map(|names| names.len()));
        let _ = volume.create_file("new", 0o600).and_then(|file| file.write_at(0, &[1; 5000]));
        let _ = volume.close();
    }
    for bytes in [0, BLOCK as u64, image.len() as u64 / 2, image.len() as u64, u64::MAX] {
        on(&|region| _ = Volume::resize_region(&*region, bytes));
    }
    on(&|region| _ = Volume::format_region(&*region, &options()));
}

fn seeds() -> Range<u64> {
    let text = std::env::var("WHOLLY_ANY").unwrap_or_default();
    let parsed = text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parsed.unwrap_or(0..if std::env::var_os("WHOLLY_LONG").is_some() { 40_000 } else { 500 })
}

#[test]
fn no_bytes_make_a_call_panic() {
    let engines =
        [EngineKind::None, EngineKind::FineGrainedWal, EngineKind::HybridLog, EngineKind::Undo, EngineKind::OpLog];
    let volumes: Vec<_> = engines.iter().flat_map(|engine| [false, true].map(|dies| volume(*engine, dies))).collect();
    let mut forged = volumes[0].clone();
    summed(&mut forged);
    assert_eq!(forged, volumes[0], "the checksums are those of superblocks");
    assert!(Superblock::decode(&forged, Lba(0)).is_ok());
    let mut opened = 0;
    for seed in seeds() {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let image = image(seed, &volumes, &mut random);
        let is_disk = seed % 8 == 0;
        let tried = catch_unwind(AssertUnwindSafe(|| try_all(&image, is_disk, &mut opened)));
        assert!(tried.is_ok(), "a panic: WHOLLY_ANY={seed}-{} with {} bytes", seed + 1, image.len());
    }
    let tried = seeds().end - seeds().start;
    assert!(tried < 100 || (tried / 50..tried).contains(&opened), "{opened} of {tried} were volumes");
}
