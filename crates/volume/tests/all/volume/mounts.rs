//! What a mount finds after an unmount, and after the death of the process that had the volume.
//!
//! The death of a process is not a power failure: on persistent memory all stores are there.

use std::sync::{Arc, Mutex};

use wholly_media::{Guarantees, Region, Site};
use wholly_posix::Tree;
use wholly_posix::differ::{Caller, describe};
use wholly_vfs::{Ino, OFlags};
use wholly_volume::format::log::{Entry, LogArea, LogSeed, encode};
use wholly_volume::format::{Lba, Seed};
use wholly_volume::{Volume, VolumeOptions, VolumeVfs};

use super::place::{Place, populate};

#[test]
fn everything_comes_back() {
    for place in Place::each(16 << 20).into_iter().chain([Place::disk(16 << 20), Place::flash(16 << 20)]) {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        populate(&vfs).expect("make things");
        let before = describe(&vfs, Caller::Alone);
        let free = volume.stat().free_blocks;
        drop(vfs);
        volume.close().expect("close it");
        assert!(place.expect_sound().is_clean);

        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        describe(&vfs, Caller::Alone).same_as(&before).expect("the same");
        assert_eq!(volume.stat().free_blocks, free, "the allocators were saved");
        drop(vfs);
        drop(volume);
        assert!(place.expect_sound().is_clean, "dropping unmounts, too");
    }
}

/// The allocators of a mount after a crash are rebuilt, and are what they were; what was removed while it was open
/// goes.
#[test]
fn a_dead_process_leaves_what_was_done() {
    for place in Place::each(16 << 20) {
        dies(place);
    }
}

fn dies(place: Place) {
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    populate(&vfs).expect("make things");
    let (before, free) = (describe(&vfs, Caller::Alone), volume.stat());
    let tree = Tree::new(&vfs, Ino::ROOT);
    let open = tree.file("removed", 0o600, &[1; 100_000]).expect("make a file");
    tree.unlink("removed").expect("remove it");
    let unnamed = tree.tmpfile("/", OFlags::RDWR, 0o600).expect("make a file without a name");
    unnamed.write(0, &[2; 5000]).expect("write");
    std::mem::forget((open, unnamed));
    std::mem::forget((vfs, volume));

    let checked = place.expect_sound();
    assert_eq!((checked.is_clean, checked.orphans), (false, 2));
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    describe(&vfs, Caller::Alone).same_as(&before).expect("the same");
    assert_eq!((volume.stat().free_blocks, volume.stat().free_inodes), (free.free_blocks, free.free_inodes));
    drop(vfs);
    volume.close().expect("close it");
    assert_eq!(place.expect_sound().orphans, 0);
}

/// Saved allocators that are damaged are not believed.
#[test]
fn damaged_saved_allocators_are_rebuilt() {
    let place = Place::blank(16 << 20);
    let volume = place.open();
    populate(&VolumeVfs::new(&volume)).expect("make things");
    let free = volume.stat().free_blocks;
    volume.close().expect("close it");
    // All that is free, and with it what was saved.
    let used = place.expect_sound().used_blocks;
    let mut image = vec![0; 16 << 20];
    place.region.read(0, &mut image).expect("read");
    for block in 2..image.len() / 4096 - 1 {
        let bytes = &mut image[block * 4096..][..4096];
        let mut changed = bytes.to_vec();
        changed[100] ^= 1;
        let site = wholly_media::Site("test");
        place.region.write(site, block as u64 * 4096, &changed).expect("damage it");
        // Only what nobody else uses stays damaged.
        if !place.check().findings.is_empty() || place.check().used_blocks != used {
            place.region.write(site, block as u64 * 4096, bytes).expect("mend it");
        }
        if block > 600 {
            break;
        }
    }
    let volume = place.open();
    assert_eq!(volume.stat().free_blocks, free);
}

/// A region on which something happens just before the first store of an unmount.
struct Interrupted {
    region: Arc<dyn Region>,
    what: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Region for Interrupted {
    fn guarantees(&self) -> &Guarantees {
        self.region.guarantees()
    }

    fn len(&self) -> u64 {
        self.region.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.region.read(offset, buf)
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        let what = if site.0 == "volume.save" { self.what.lock().unwrap().take() } else { None };
        if let Some(what) = what {
            what();
        }
        self.region.write(site, offset, data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.region.fence(site)
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> wholly_media::Result<()> {
        self.region.write_through(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.region.set_len(site, len)
    }
}

/// A call that comes while the allocators are saved: what it took would be free at the next mount.
#[test]
fn nothing_is_changed_during_an_unmount() {
    let place = Place::logged(8 << 20);
    let region = Arc::new(Interrupted { region: place.region.clone(), what: Mutex::default() });
    let volume = Volume::open_region(region.clone(), &VolumeOptions::default()).expect("open it");
    let vfs = Arc::new(VolumeVfs::new(&volume));
    let before = describe(&*vfs, Caller::Alone);
    let (of_call, (made, is_made)) = (vfs.clone(), std::sync::mpsc::channel());
    *region.what.lock().unwrap() = Some(Box::new(move || {
        let call = Tree::new(&*of_call, Ino::ROOT).file("late", 0o600, &[2; 50_000]);
        made.send(call.is_ok()).expect("somebody wants to know");
    }));
    volume.close().expect("close it");
    assert!(!is_made.recv().expect("the unmount saves allocators"), "it was made during the unmount");
    drop(vfs);
    assert!(place.expect_sound().is_clean);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    describe(&vfs, Caller::Alone).same_as(&before).expect("the same");
}

/// A committed group whose data is not at home, and whose entries are not what the commit entry says: the mount refuses
/// the volume, and a check says why.
#[test]
fn a_damaged_log_is_named() {
    let place = Place::logged(8 << 20);
    let volume = place.open();
    let (id, incarnation) = (volume.stat().volume_id, volume.stat().incarnation);
    std::mem::forget(volume);
    place.expect_sound();
    let at = LogArea::for_volume(Lba(2), 2048).half(0, 1).start.byte();
    let entry = Entry::Commit { entries: 3, sum: 5, redo: true, order: 1 };
    let (line, _) = encode(LogSeed::of(Seed::of(&id), incarnation).lane(0), at, (1, 0), &entry);
    place.region.write(Site("test"), at, &line).expect("damage the log");
    let findings = place.check().findings;
    assert!(matches!(&findings[..], [only] if only.place == "the log"), "{findings:?}");
    assert!(matches!(place.try_open(), Err(wholly::Error::Corrupt { .. })), "it is not believed");
}

/// A copy of the superblock is lost while the process dies: the others are as new. An older one would bring back
/// allocators of before the mount, an inode file that was shorter, and an incarnation that was used.
#[test]
fn the_loss_of_any_superblock_is_no_step_back() {
    for (grows, lost) in [false, true].into_iter().flat_map(|grows| [0, 1, 2047].map(|lost| (grows, lost))) {
        let place = Place::logged(8 << 20);
        place.open().close().expect("close it");
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.file("file", 0o600, &[2; 100_000]).expect("make a file");
        for i in 0..if grows { 200 } else { 0 } {
            tree.create(format!("{i}"), 0o600).expect("make a file");
        }
        let (before, incarnation) = (describe(&vfs, Caller::Alone), volume.stat().incarnation);
        std::mem::forget((vfs, volume));

        place.region.write(wholly_media::Site("test"), lost * 4096, &[0xff; 4096]).expect("damage it");
        let volume = place.open();
        assert!(volume.stat().incarnation > incarnation, "block {lost}: incarnation {incarnation} once more");
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        describe(&vfs, Caller::Alone).same_as(&before).expect("the same");
        tree.file("more", 0o600, &[3; 100_000]).expect("make a file");
        assert_eq!(tree.content("file").expect("read"), [2; 100_000], "block {lost}: its blocks were given out again");
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
    }
}

#[test]
fn both_superblock_slots_may_be_lost() {
    let place = Place::pmem(4 << 20);
    drop(place.open());
    for (lost, is_volume) in [(&[0][..], true), (&[0, 1], true), (&[0, 1, 1023], false)] {
        for block in lost {
            place.region.write(wholly_media::Site("test"), block * 4096, &[0xff; 4096]).expect("damage it");
        }
        match is_volume {
            true => {
                let checked = place.check();
                assert_eq!((&checked.findings[..], checked.lost_copies.len()), (&[][..], lost.len()), "it is named");
                let volume = place.open();
                assert!(volume.stat().incarnation > 1);
                std::mem::forget(volume);
            }
            false => drop(place.try_open().expect_err("nothing is left")),
        }
    }
}
