//! Volumes in memory.

use std::sync::Arc;

use wholly_blocks::batch::Batch;
use wholly_blocks::xftl::{Device, Flash, OverRegion, Profile};
use wholly_blocks::{TxBlocks, TxDevice};
use wholly_media::{
    Region,
    disk::DiskRegion,
    pmem::{PmemOptions, PmemRegion},
};
use wholly_posix::Tree;
use wholly_vfs::{Ino, OFlags, Rename, SetXattr};
use wholly_volume::{Checked, EngineKind, Volume, VolumeOptions, VolumeVfs, WriteBack};

/// The bytes of files whose content is not to be compared.
pub const CONTENT: u8 = 0xd5;

pub struct Place {
    pub region: Arc<dyn Region>,
}

/// What runs beyond the usual.
pub fn is_long() -> bool {
    std::env::var_os("WHOLLY_LONG").is_some()
}

/// Numbers that look random, the same each time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

fn file(bytes: u64) -> rustix::fd::OwnedFd {
    let file = rustix::fs::memfd_create("volume", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    rustix::fs::ftruncate(&file, bytes).expect("its length");
    file
}

/// A flash disk of so many bytes, as a path names it ([`wholly_volume::Location`]).
fn flash(bytes: u64) -> Arc<dyn Region> {
    let (geometry, config) = Profile::OpenSsd.plan(bytes).expect("sizes");
    let region: Arc<dyn Region> =
        Arc::new(DiskRegion::open(file(OverRegion::bytes(&geometry)), "flash").expect("a region"));
    let chip: Arc<dyn Flash> = OverRegion::create(region, geometry, [9; 16]).expect("a chip");
    Device::format(&chip, &config, [9; 16]).expect("a flash disk");
    let device: Arc<dyn TxDevice> = Arc::new(Device::open(chip).expect("open it"));
    Batch::new(device, 1).plain()
}

impl Place {
    /// On persistent memory that had other content before.
    pub fn pmem(bytes: u64) -> Place {
        Place::with_garbage(bytes, EngineKind::None)
    }

    /// The same, with the engine that logs.
    pub fn logged(bytes: u64) -> Place {
        Place::with_garbage(bytes, EngineKind::FineGrainedWal)
    }

    /// The same, with the engine whose content waits in pending blocks.
    pub fn pending(bytes: u64) -> Place {
        Place::with_garbage(bytes, EngineKind::HybridLog)
    }

    /// The same, with the engine that undoes content, too.
    pub fn undone(bytes: u64) -> Place {
        Place::with_garbage(bytes, EngineKind::Undo)
    }

    /// The same, with the engine that copies what changes, up to the root.
    pub fn shadowed(bytes: u64) -> Place {
        Place::with_garbage(bytes, EngineKind::Shadow)
    }

    /// The same, with the engine that keeps bitmaps.
    pub fn bitmapped(bytes: u64) -> Place {
        Place::with_garbage(bytes, EngineKind::OpLog)
    }

    /// The same, with each engine.
    pub fn each(bytes: u64) -> Vec<Place> {
        EngineKind::ALL.iter().map(|engine| Place::with_garbage(bytes, *engine)).collect()
    }

    fn with_garbage(bytes: u64, engine: EngineKind) -> Place {
        let place = Place::blank(bytes);
        let garbage = vec![0xa5; 1 << 20];
        for at in (0..bytes).step_by(garbage.len()) {
            place.region.write(wholly_media::Site("test"), at, &garbage).expect("write");
        }
        Place::of(place.region, engine)
    }

    /// On persistent memory that was zeros before.
    pub fn blank(bytes: u64) -> Place {
        Place::of_zeros(bytes, EngineKind::None)
    }

    pub fn of_zeros(bytes: u64, engine: EngineKind) -> Place {
        // There are many of them at once, and address space has an end.
        let options = PmemOptions { reserve: bytes + (64 << 30), ..PmemOptions::default() };
        let region = PmemRegion::open(file(bytes), options).expect("a region");
        Place::of(Arc::new(region), engine)
    }

    pub fn disk(bytes: u64) -> Place {
        Place::of(Arc::new(DiskRegion::open(file(bytes), "disk").expect("a region")), EngineKind::None)
    }

    /// On a simulated flash disk in a file, with the engine for disks.
    pub fn flash(bytes: u64) -> Place {
        Place::of(flash(bytes), EngineKind::PageCacheWal)
    }

    fn of(region: Arc<dyn Region>, engine: EngineKind) -> Place {
        let options = VolumeOptions { engine: Some(engine), ..VolumeOptions::default() };
        Volume::format_region_as(&*region, &options, [7; 16]).expect("make a volume");
        Place { region }
    }

    pub fn open(&self) -> Volume {
        self.try_open().expect("open it")
    }

    pub fn try_open(&self) -> wholly::Result<Volume> {
        self.try_open_as(WriteBack::default())
    }

    pub fn try_open_as(&self, write_back: WriteBack) -> wholly::Result<Volume> {
        // The smallest cache, so that things come and go.
        let options = VolumeOptions { cache_bytes: 1 << 20, write_back, ..VolumeOptions::default() };
        Volume::open_region(self.region.clone(), &options)
    }

    pub fn check(&self) -> Checked {
        Volume::check_region(&*self.region).expect("check it")
    }

    pub fn expect_sound(&self) -> Checked {
        let checked = self.check();
        assert_eq!((&checked.findings[..], &checked.lost_copies[..]), (&[][..], &[][..]));
        checked
    }
}

/// Makes one of everything that a volume can have.
pub fn populate(vfs: &VolumeVfs) -> wholly_vfs::Result<()> {
    let t = Tree::new(vfs, Ino::ROOT);
    t.mkdir("dir", 0o755)?;
    t.mkdir("dir/sub", 0o700)?;
    t.mkdir("dir/gone", 0o700)?;
    for i in 0..150 {
        t.file(format!("dir/{i}-{}", "n".repeat(i % 97)), 0o644, b"")?;
    }
    t.rmdir("dir/gone")?;
    t.file("file", 0o640, &[CONTENT; 40_000])?;
    let sparse = t.file("sparse", 0o644, &[CONTENT; 4096])?;
    sparse.write(600 * 4096, &[CONTENT; 4096])?;
    sparse.allocate(wholly_vfs::Fallocate::Keep, 700 * 4096, 20_000)?;
    sparse.truncate(1 << 22)?;
    t.symlink("short", "dir/sub")?;
    t.symlink("long", "x/".repeat(500))?;
    t.mknod("fifo", wholly_vfs::FileType::Fifo, 0o600)?;
    t.link("file", "dir/sub/other")?;
    t.set_xattr_with("file", "user.small", b"value", SetXattr::Create)?;
    t.set_xattr_with("dir", "user.large", &[7; 20_000], SetXattr::Create)?;
    t.rename_with("short", "fifo", Rename::Exchange)?;
    t.rename("dir/sub", "moved")?;
    t.open("file", OFlags::RDWR).map(drop)
}
