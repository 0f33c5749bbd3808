//! Volumes with bitmaps: what a mount reads, what grows, and bits that are wrong.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use wholly_error::Error;
use wholly_media::{Guarantees, Region, Site};
use wholly_posix::Tree;
use wholly_posix::differ::{Caller, describe};
use wholly_vfs::{Context, Fallocate, Ino, OFlags, Vfs};
use wholly_volume::format::bitmap::{Bitmap, BitmapAt, Bits, Layout, UNITS};
use wholly_volume::format::superblock::{Superblock, copies};
use wholly_volume::format::{Lba, Seed};
use wholly_volume::{EngineKind, Repair, Volume, VolumeOptions, VolumeVfs};

use super::place::{Place, populate};
use super::repair::repair;

const B: u64 = 4096;
const TEST: Site = Site("test");

fn superblock(place: &Place) -> Superblock {
    let copies = Volume::dump_region(&*place.region, None).expect("dump it").superblocks;
    let all = copies.into_iter().filter_map(|copy| copy.decoded.ok());
    all.max_by_key(|superblock| superblock.generation).expect("a superblock")
}

fn all_of(superblock: &Superblock) -> (Layout, Vec<BitmapAt>) {
    let layout = superblock.bitmaps.expect("it has bitmaps");
    (layout, layout.all(superblock.blocks, superblock.inodes).collect())
}

fn block(region: &dyn Region, at: Lba) -> [u8; B as usize] {
    let mut block = [0; B as usize];
    region.read(at.byte(), &mut block).expect("read");
    block
}

/// A volume that was unmounted, with all that there can be.
fn unmounted() -> Place {
    let place = Place::of_zeros(1 << 20, EngineKind::OpLog);
    let volume = place.open();
    populate(&VolumeVfs::new(&volume)).expect("make things");
    volume.close().expect("close it");
    place.expect_sound();
    place
}

/// Whatever bit of a bitmap block rots, a check and a mount name the block, and a repair that loses nothing writes it
/// anew.
#[test]
fn a_bit_that_rots_is_found_and_put_right() {
    let place = unmounted();
    let superblock = superblock(&place);
    let (layout, all) = all_of(&superblock);
    assert_eq!(all.len(), 3);
    for (at, step) in all.into_iter().flat_map(|at| (0..64).map(move |step| (at, step))) {
        // In the head, and all over the bits.
        let bit = if step < 24 { 8 * step + step % 8 } else { 512 + (step - 24) * 806 + step };
        let byte = layout.place(at).byte() + bit / 8;
        let sound = block(&*place.region, layout.place(at));
        let flipped = sound[(bit / 8) as usize] ^ 1 << (bit % 8);
        place.region.write(TEST, byte, &[flipped]).expect("flip a bit");
        let found = place.check().findings;
        assert_eq!(found.len(), 1, "{at}, bit {bit}: {found:?}");
        assert_eq!(found[0].place, at.to_string());
        match place.try_open() {
            Err(Error::Corrupt { place, .. }) => assert_eq!(place, at.to_string(), "bit {bit}"),
            opened => panic!("{at}, bit {bit}: {opened:?}"),
        }
        // Only each eighth is repaired, to save time.
        if step % 8 == 0 {
            let repaired = repair(&place.region, Repair::Safe).expect("repair it");
            assert_eq!((repaired.left.len(), repaired.done.len()), (0, 1), "{repaired:?}");
            place.expect_sound();
        } else {
            place.region.write(TEST, byte, &[flipped ^ 1 << (bit % 8)]).expect("flip it back");
        }
    }
}

/// Bits that are wrong in a block whose checksum is right, as a defect of ours would leave them: a check finds each, or
/// it has no meaning.
#[test]
fn a_bit_that_says_something_else_is_found() {
    let place = unmounted();
    let superblock = superblock(&place);
    let seed = Seed::of(&superblock.volume_id);
    let (layout, all) = all_of(&superblock);
    for at in all {
        let lba = layout.place(at);
        let sound = block(&*place.region, lba);
        let bits = Bits::decode(seed, at, &sound).expect("it is sound");
        let meant = if at.of == Bitmap::Blocks { superblock.blocks - 1 } else { superblock.inodes };
        for bit in (0..meant).step_by(3).chain([meant - 1, meant, meant + 1, UNITS - 1]) {
            let mut changed = bits.clone();
            changed.set(bit, !bits.get(bit));
            place.region.write(TEST, lba.byte(), &changed.encode(seed, at)).expect("write it");
            let found: Vec<String> = place.check().findings.iter().map(|it| it.place.clone()).collect();
            let is_last_block = at.of == Bitmap::Blocks && bit == meant;
            let expected = if is_last_block { Vec::new() } else { vec![at.to_string()] };
            assert_eq!(found, expected, "{at}, bit {bit}");
        }
        let repaired = repair(&place.region, Repair::Safe).expect("repair it");
        assert_eq!(repaired.left, []);
        place.region.write(TEST, lba.byte(), &sound).expect("as it was");
    }
    place.expect_sound();
}

/// An inode that is said to have no name, and has one, is not freed: the mount is refused.
#[test]
fn what_has_a_name_is_not_freed_as_an_orphan() {
    let place = unmounted();
    let superblock = superblock(&place);
    let seed = Seed::of(&superblock.volume_id);
    let (layout, at) = (all_of(&superblock).0, BitmapAt { of: Bitmap::Orphans, index: 0 });
    let lba = layout.place(at);
    let mut bits = Bits::decode(seed, at, &block(&*place.region, lba)).expect("it is sound");
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let ino = Tree::new(&vfs, Ino::ROOT).stat("file").expect("stat").ino.0;
    drop(vfs);
    volume.close().expect("close it");
    bits.toggle(ino, 1, true).expect("it has a name");
    place.region.write(TEST, lba.byte(), &bits.encode(seed, at)).expect("write it");
    let refused = place.try_open().expect_err("it is damaged");
    assert!(matches!(&refused, Error::Corrupt { place, .. } if *place == format!("inode {ino}")), "{refused}");
    repair(&place.region, Repair::Safe).expect("repair it");
    let volume = place.open();
    Tree::new(&VolumeVfs::new(&volume), Ino::ROOT).content("file").expect("it is there");
    volume.close().expect("close it");
}

/// A repair that was killed may have changed maps alone. It has said so: the next mount writes the bitmaps anew.
#[test]
fn bitmaps_that_may_be_wrong_are_written_anew() {
    let place = unmounted();
    let own = superblock(&place);
    let seed = Seed::of(&own.volume_id);
    let (layout, all) = all_of(&own);
    for at in all {
        let mut bits = Bits::decode(seed, at, &block(&*place.region, layout.place(at))).expect("it is sound");
        // Blocks and inodes in use are free, and files with names are orphans.
        (16..40).for_each(|bit| bits.set(bit, !bits.get(bit)));
        place.region.write(TEST, layout.place(at).byte(), &bits.encode(seed, at)).expect("write it");
    }
    assert_eq!(place.check().findings.len(), 3);
    let doubted = Superblock { doubts_bitmaps: true, is_clean: false, ..own };
    for at in copies(doubted.blocks) {
        place.region.write(TEST, at.byte(), &doubted.encode(at)).expect("write it");
    }
    let volume = place.open();
    Tree::new(&VolumeVfs::new(&volume), Ino::ROOT).content("file").expect("it is there");
    volume.close().expect("close it");
    place.expect_sound();
    assert!(!superblock(&place).doubts_bitmaps);
}

/// A volume with bitmaps that names an engine without, and the other way round.
#[test]
fn an_engine_without_bitmaps_refuses_a_volume_with_them() {
    for (made, named, wrong) in [
        (EngineKind::OpLog, 5, "those that do are op_log"),
        (EngineKind::PageCacheWal, 7, "those that need none are none, fine_grained_wal"),
    ] {
        let place = Place::of_zeros(1 << 20, made);
        let own = Superblock { engine: named, ..superblock(&place) };
        for at in copies(own.blocks) {
            place.region.write(TEST, at.byte(), &own.encode(at)).expect("write it");
        }
        let refused = place.try_open().expect_err("the engine does not fit");
        assert!(matches!(refused, Error::Unsupported(_)) && refused.to_string().contains(wrong), "{refused}");
    }
}

/// A volume of one section gets more of them, and fewer again.
#[test]
fn bitmaps_grow_and_shrink_with_their_volume() {
    let whole = 2 * UNITS + 1000;
    let place = Place::of_zeros(whole * B, EngineKind::OpLog);
    let volume = place.open();
    populate(&VolumeVfs::new(&volume)).expect("make things");
    volume.close().expect("close it");
    let described = || {
        let volume = place.open();
        let described = describe(&VolumeVfs::new(&volume), Caller::Alone);
        volume.close().expect("close it");
        described
    };
    let before = described();
    let resize = |blocks: u64| Volume::resize_region(&*place.region, blocks * B);
    // A last section of a few blocks is none.
    for (asked, got) in [(2000, 2000), (UNITS, UNITS), (UNITS + 5, UNITS), (UNITS + 16, UNITS + 16), (whole, whole)] {
        resize(asked).expect("give it another size");
        assert_eq!(place.expect_sound().blocks, got);
        described().same_as(&before).expect("all of it is there");
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let file = tree.file("filler", 0o600, b"").expect("make a file");
        let mut at = 0;
        while file.write(at, &vec![7; 1 << 20]).is_ok_and(|done| done == 1 << 20) {
            at += 1 << 20;
        }
        // All of the volume was used, but for what is kept.
        assert!(volume.stat().free_blocks < 600 + got / 50, "{:?}", volume.stat());
        drop(file);
        drop(vfs);
        // As if the process died.
        std::mem::forget(volume);
        let used = place.check();
        assert_eq!(used.findings, []);
        assert!(got < 3000 || used.last_used_block + 2500 > got, "{used:?}");
        if got > 3000 {
            let refused = resize(2000).expect_err("it was not unmounted");
            assert!(matches!(refused, Error::Busy(..)), "{refused}");
        }
        let volume = place.open();
        Tree::new(&VolumeVfs::new(&volume), Ino::ROOT).unlink("filler").expect("remove it");
        volume.close().expect("close it");
        assert!(place.expect_sound().is_clean);
        described().same_as(&before).expect("all of it is there");
    }
    resize(2000).expect("make it small");
    described().same_as(&before).expect("all of it is there");
}

/// Notes which blocks are read.
struct Watched {
    inner: Arc<dyn Region>,
    read: Mutex<BTreeSet<u64>>,
    is_on: AtomicBool,
}

impl Region for Watched {
    fn guarantees(&self) -> &Guarantees {
        self.inner.guarantees()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        if self.is_on.load(Ordering::Relaxed) {
            self.read.lock().unwrap().extend(offset / B..(offset + buf.len() as u64).div_ceil(B));
        }
        self.inner.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.inner.write(site, offset, data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.inner.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.inner.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.inner.set_len(site, len)
    }
}

/// A mount after a crash reads, besides the superblocks and the log: the bitmap blocks, the block with the root, that
/// with each orphan, and the way to these in the map of the inode file. However many files there are.
#[test]
fn a_mount_after_a_crash_reads_no_maps() {
    for files in [100, 3000] {
        let place = Place::of_zeros((UNITS + 5000) * B, EngineKind::OpLog);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let kept: Vec<_> = (0..files)
            .map(|i| tree.file(format!("{i}"), 0o644, &[1; 9000]).expect("make a file"))
            .step_by(files / 2)
            .collect();
        [0, files / 2].iter().for_each(|i| tree.unlink(format!("{i}")).expect("remove a file that is open"));
        let orphans: BTreeSet<u64> = kept.iter().map(|file| file.stat().expect("stat").ino.0 / 16).collect();
        vfs.sync(&tree.ctx).expect("sync");
        std::mem::forget(kept);
        drop(vfs);
        std::mem::forget(volume);

        let own = superblock(&place);
        let log = own.log.expect("it has a log").run();
        let watched =
            Arc::new(Watched { inner: place.region.clone(), read: Mutex::default(), is_on: AtomicBool::new(true) });
        let volume = Volume::open_region(watched.clone(), &VolumeOptions::default()).expect("open it");
        let read = std::mem::take(&mut *watched.read.lock().unwrap());
        let outside: BTreeSet<u64> = read
            .into_iter()
            .filter(|block| !(log.start.0..log.start.0 + log.count).contains(block))
            .filter(|block| !copies(own.blocks).contains(&Lba(*block)))
            .collect();
        let (layout, all) = all_of(&own);
        let bitmaps: BTreeSet<u64> = all.iter().map(|at| layout.place(*at).0).collect();
        assert_eq!(bitmaps.len() as u64, layout.count(own.blocks, own.inodes));
        assert!(bitmaps.is_subset(&outside), "{files}: {bitmaps:?}, {outside:?}");
        // To free an orphan of three blocks, its node is read, and on the way nodes of the inode file.
        let inodes: BTreeSet<u64> = orphans.iter().copied().chain([0]).collect();
        let nodes: BTreeSet<u64> = inodes.iter().map(|block| block / 512).collect();
        let most = inodes.len() + nodes.len() + 1 + orphans.len();
        println!("{files} files: {} blocks besides {} bitmap blocks", outside.len() - bitmaps.len(), bitmaps.len());
        assert!(outside.len() - bitmaps.len() <= most, "{files}: {outside:?}, at most {most}");
        volume.close().expect("close it");
        assert_eq!(place.expect_sound().orphans, 0);
        drop(watched);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        assert_eq!(tree.names("/").expect("list").len(), files - 2);
        assert_eq!(tree.open("1", OFlags::RDONLY).and_then(|file| file.content()).expect("read"), [1; 9000]);
    }
}

/// What a group keeps for bitmaps is what it may change of them, and not all that there are: a volume that was made
/// small and became large is used as before.
#[test]
fn a_group_keeps_space_for_few_bitmaps() {
    let region = Place::disk(80 << 30).region;
    let options = VolumeOptions { engine: Some(EngineKind::OpLog), ..VolumeOptions::default() };
    let small = Place::of_zeros(8 << 20, EngineKind::OpLog);
    let mut piece = vec![0; 1 << 20];
    for at in (0..8 << 20).step_by(1 << 20) {
        small.region.read(at, &mut piece).expect("read");
        region.write(TEST, at, &piece).expect("copy it");
    }
    Volume::resize_region(&*region, 80 << 30).expect("make it larger");
    let volume = Volume::open_region(region.clone(), &options).expect("open it");
    let free = volume.stat().free_blocks;
    volume.create_file("file", 0o644).and_then(|file| file.write_at(0, &[1; 9000])).expect("write");
    let group = volume.begin();
    group.mkdir("dir", 0o755).expect("make a directory");
    assert!(free - volume.stat().free_blocks < 200, "{free}, {:?}", volume.stat());
    for i in 0..3000 {
        group.create_file(format!("dir/{i}"), 0o644).expect("create");
    }
    group.commit().expect("commit");
    volume.unlink("file").expect("remove it");
    // What a file has may be in all sections, as far as its size tells.
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.file("large", 0o644, &vec![1; 40 << 20]).expect("write");
    tree.chmod("large", 0o600).expect("chmod");
    tree.set_xattr("large", "user.a", &[1; 100]).expect("set an attribute");
    let open = tree.open("large", OFlags::RDWR).expect("open");
    open.allocate(Fallocate::Punch, 1 << 20, 20 << 20).expect("punch");
    drop(open);
    tree.truncate("large", 35 << 20).expect("cut");
    tree.unlink("large").expect("remove it");
    drop(vfs);
    volume.close().expect("close it");
    assert_eq!(Volume::check_region(&*region).expect("check it").findings, []);
}

/// As many inodes are told as the bitmaps have bits for, however much space there is.
#[test]
fn no_more_inodes_are_told_than_there_can_be() {
    let volume = Place::of_zeros(100 << 20, EngineKind::OpLog).open();
    let vfs = VolumeVfs::new(&volume);
    let stat = vfs.statfs(&Context::superuser(), Ino::ROOT).expect("statfs");
    assert_eq!(stat.inodes, 4 * UNITS);
    assert!((4 * UNITS - 32..4 * UNITS).contains(&stat.free_inodes), "{}", stat.free_inodes);
}
