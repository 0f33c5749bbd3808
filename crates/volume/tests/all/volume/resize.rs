//! Volumes that become larger and smaller.

use wholly_error::Error;
use wholly_media::Site;
use wholly_posix::Tree;
use wholly_posix::differ::{Caller, Described, describe};
use wholly_vfs::Ino;
use wholly_volume::{Volume, VolumeVfs};

use super::place::{Place, populate};

const B: u64 = 4096;

fn described(place: &Place) -> Described {
    let volume = place.open();
    let described = describe(&VolumeVfs::new(&volume), Caller::Alone);
    volume.close().expect("close it");
    described
}

#[test]
fn a_volume_grows_and_shrinks() {
    for place in [Place::pmem(64 << 20), Place::disk(64 << 20)] {
        // All of the medium is the volume's, at first.
        let volume = place.open();
        populate(&VolumeVfs::new(&volume)).expect("make things");
        volume.close().expect("close it");
        let before = described(&place);
        let last = place.expect_sound().last_used_block;
        assert!(last < 1000, "the last block in use is {last}");

        let too_small = Volume::resize_region(&*place.region, (last + 1) * B).expect_err("a block would be lost");
        assert!(matches!(too_small, Error::NoSpace(_)), "{too_small}");
        let too_large = Volume::resize_region(&*place.region, 65 << 20).expect_err("the medium ends before");
        assert!(matches!(too_large, Error::NoSpace(_)), "{too_large}");
        described(&place).same_as(&before).expect("nothing has changed");

        for blocks in [last + 2, 1000, 16 << 10, 4000] {
            Volume::resize_region(&*place.region, blocks * B).expect("give it another size");
            assert_eq!(place.expect_sound().blocks, blocks);
            // The last block of all is used where it is free.
            let volume = place.open();
            assert_eq!(volume.stat().blocks, blocks);
            let vfs = VolumeVfs::new(&volume);
            let tree = Tree::new(&vfs, Ino::ROOT);
            let file = tree.file("filler", 0o600, b"").expect("make a file");
            let mut at = 0;
            while file.write(at, &[7; 4096]).is_ok() {
                at += B;
            }
            tree.unlink("filler").expect("remove it");
            drop(file);
            drop(vfs);
            volume.close().expect("close it");
            assert!(place.expect_sound().is_clean);
            described(&place).same_as(&before).expect("all of it is there");
        }

        // Both slots may be lost where the medium ends with the volume.
        Volume::resize_region(&*place.region, 64 << 20).expect("give it all");
        for block in [0, 1] {
            place.region.write(Site("test"), block * B, &[0xff; 4096]).expect("damage it");
        }
        described(&place).same_as(&before).expect("the copy at the end counts");
    }
}

#[test]
fn a_label_changes_alone() {
    for place in [Place::pmem(8 << 20), Place::disk(8 << 20)] {
        let volume = place.open();
        populate(&VolumeVfs::new(&volume)).expect("make things");
        volume.close().expect("close it");
        let before = described(&place);
        let label = "l".repeat(64);
        Volume::set_label_of_region(&*place.region, &label).expect("give it a label");
        for wrong in [&*"l".repeat(65), "a\0b"] {
            let refused = Volume::set_label_of_region(&*place.region, wrong).expect_err("it is none");
            assert!(matches!(refused, Error::Invalid(_)), "{refused}");
        }
        place.region.write(Site("test"), 0, &[0xff; 4096]).expect("damage a slot");
        let volume = place.open();
        assert_eq!(volume.stat().label, label);
        volume.close().expect("close it");
        described(&place).same_as(&before).expect("all of it is there");
    }
}

/// The death of a process is no power failure. Its volume must be mounted and unmounted first.
#[test]
fn a_volume_that_was_not_unmounted_keeps_its_size() {
    let place = Place::pmem(8 << 20);
    let volume = place.open();
    std::mem::forget(volume);
    let refused = Volume::resize_region(&*place.region, 4 << 20).expect_err("it was not unmounted");
    assert!(matches!(refused, Error::Busy(..)), "{refused}");
    assert_eq!(place.expect_sound().blocks, 2048);
}
