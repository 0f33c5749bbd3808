//! A bit flips, in any structure: `check` names it, or nothing is different. Never a panic, whatever is done then.

use std::collections::BTreeSet;

use wholly_media::Site;
use wholly_posix::Tree;
use wholly_posix::differ::{Caller, Described, describe};
use wholly_vfs::Ino;
use wholly_volume::VolumeVfs;

use super::place::{CONTENT, Place, Random, is_long, populate};

const BYTES: usize = 2 << 20;
const BLOCK: usize = 4096;
const TEST: Site = Site("test");

/// All that a mount shows, and some calls that change things. `None` if it does not open.
fn look(place: &Place) -> Option<Described> {
    let volume = place.try_open().ok()?;
    let vfs = VolumeVfs::new(&volume);
    let seen = describe(&vfs, Caller::Alone);
    let tree = Tree::new(&vfs, Ino::ROOT);
    // Whatever comes of it.
    let _ = tree.file("new", 0o600, b"content");
    let _ = tree.remove(b"dir");
    let _ = tree.truncate("sparse", 0);
    let _ = tree.remove(b"moved");
    let _ = tree.set_xattr("file", "user.more", &[1; 5000]);
    Some(seen)
}

#[test]
fn each_flipped_bit_is_named_or_has_no_effect() {
    let place = Place::blank(BYTES as u64);
    let volume = place.open();
    populate(&VolumeVfs::new(&volume)).expect("make things");
    volume.close().expect("close it");
    let mut image = vec![0; BYTES];
    place.region.read(0, &mut image).expect("read");
    let sound = look(&place).expect("it opens");
    let restore = || place.region.write(TEST, 0, &image).expect("restore it");
    restore();
    place.expect_sound();

    // Content has no checksum; blocks of zeros are free, or as good as that.
    let is_structure = |block: usize| {
        let bytes = &image[block * BLOCK..][..BLOCK];
        let content = bytes.iter().filter(|byte| **byte == CONTENT).count();
        content < 1000 && bytes.iter().any(|byte| *byte != 0)
    };
    let structures: Vec<usize> = (0..BYTES / BLOCK).filter(|block| is_structure(*block)).collect();
    assert!(structures.len() > 30, "only {} blocks", structures.len());
    let mut random = Random(1);
    let (mut named, mut idle) = (0, 0);
    let mut places = BTreeSet::new();
    for block in structures {
        let used: Vec<usize> = (0..BLOCK).filter(|at| image[block * BLOCK + at] != 0).collect();
        for round in 0..if is_long() { 400 } else { 24 } {
            // Half of them where something is.
            let byte = if round % 2 == 0 { used[random.below(used.len())] } else { random.below(BLOCK) };
            let (at, bit) = (block * BLOCK + byte, random.below(8));
            place.region.write(TEST, at as u64, &[image[at] ^ 1 << bit]).expect("flip a bit");
            let checked = place.check();
            let findings = [checked.findings, checked.lost_copies].concat();
            let is_named = !findings.is_empty();
            places.extend(findings.iter().map(ToString::to_string).map(without_numbers));
            let seen = look(&place);
            if !is_named {
                let seen = seen.unwrap_or_else(|| panic!("byte {at} bit {bit}: sound, and it does not open"));
                seen.same_as(&sound).unwrap_or_else(|why| panic!("byte {at} bit {bit} is not named: {why}"));
            }
            *(if is_named { &mut named } else { &mut idle }) += 1;
            restore();
        }
    }
    println!("{named} flips were named, {idle} had no effect");
    assert!(named > 300 && idle > 100);
    // Each structure was hit.
    for structure in [
        "superblock in block #: a superblock has a wrong checksum",
        "inode #: line # of an inode has a wrong check",
        "inode file: corrupt",
        "content of inode #: corrupt",
        "extended attributes of inode #: corrupt",
        "extended attributes of inode #: they have a wrong checksum",
        "inode #: its target has a wrong checksum",
        "a directory entry has a wrong check",
        "a name has a wrong check",
    ] {
        assert!(places.iter().any(|place| place.contains(structure)), "{structure} is not among {places:#?}");
    }
}

/// Numbers are all alike.
fn without_numbers(text: String) -> String {
    let mut all = String::new();
    for c in text.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }) {
        if c != '#' || !all.ends_with('#') {
            all.push(c);
        }
    }
    all
}

/// Whole blocks that are not what they were: lost writes, misdirected ones, zeros.
#[test]
fn each_exchanged_block_is_named_or_has_no_effect() {
    let place = Place::blank(BYTES as u64);
    let volume = place.open();
    populate(&VolumeVfs::new(&volume)).expect("make things");
    volume.close().expect("close it");
    let mut image = vec![0; BYTES];
    place.region.read(0, &mut image).expect("read");
    let sound = look(&place).expect("it opens");
    let restore = || place.region.write(TEST, 0, &image).expect("restore it");
    restore();
    let mut random = Random(2);
    let blocks = BYTES / BLOCK;
    let is_content =
        |block: usize| image[block * BLOCK..][..BLOCK].iter().filter(|byte| **byte == CONTENT).count() > 1000;
    for block in (0..blocks).filter(|block| !is_content(*block)) {
        let bytes = |block: usize| &image[block * BLOCK..][..BLOCK];
        if bytes(block).iter().all(|byte| *byte == 0) {
            continue;
        }
        let other = bytes(random.below(100));
        place.region.write(TEST, (block * BLOCK) as u64, other).expect("write to a wrong place");
        let checked = place.check();
        let is_named = !checked.findings.is_empty() || !checked.lost_copies.is_empty();
        let seen = look(&place);
        if !is_named {
            let seen = seen.unwrap_or_else(|| panic!("block {block}: sound, and it does not open"));
            seen.same_as(&sound).unwrap_or_else(|why| panic!("block {block} is not named: {why}"));
        }
        restore();
    }
}
