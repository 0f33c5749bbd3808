//! The engine `hybrid_log`: content that waits in pending blocks is read, written back and counted.

use wholly::vfs::{FallocateFlags, Ino, OFlags, Result};
use wholly_media::Site;
use wholly_posix::Tree;
use wholly_sim::CountingRegion;
use wholly_volume::{VolumeVfs, WriteBack};

use crate::place::Place;

const BLOCKS: usize = 40;

/// Random writes, cuts and moves of one file, against the same on a plain vector, with little space: whatever is where,
/// it reads as it was written, and so it does after an unmount.
#[test]
fn content_is_what_was_written() -> Result<()> {
    [WriteBack::Selective, WriteBack::CommitOrder, WriteBack::AtOnce].into_iter().try_for_each(write_and_compare)
}

fn write_and_compare(how: WriteBack) -> Result<()> {
    let mut random = 7u64;
    let mut pick = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit
    };
    let place = Place::pending(1 << 20);
    let volume = place.try_open_as(how).expect("open it");
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let mut content: Vec<u8> = (0..BLOCKS * 4096).map(|i| i as u8).collect();
    let file = tree.file("file", 0o644, &content)?;
    for round in 0..3000 {
        let at = pick(content.len().max(1));
        match pick(40) {
            0 => {
                let len = pick(BLOCKS * 4096);
                tree.truncate("file", len as u64)?;
                content.resize(len, 0);
            }
            1 => {
                let len = pick(20_000).min(content.len() - at.min(content.len()));
                if len > 0 {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    file.allocate(flags, at as u64, len as u64)?;
                    content[at..at + len].fill(0);
                }
            }
            2 => {
                let (from, blocks) = (at / 4096 * 4096, 4096 * (1 + pick(3)));
                if from + blocks < content.len() {
                    file.allocate(FallocateFlags::COLLAPSE_RANGE, from as u64, blocks as u64)?;
                    content.drain(from..from + blocks);
                }
            }
            3 => {
                let from = at / 4096 * 4096;
                if from < content.len() && content.len() + 4096 <= BLOCKS * 4096 {
                    file.allocate(FallocateFlags::INSERT_RANGE, from as u64, 4096)?;
                    content.splice(from..from, std::iter::repeat_n(0, 4096));
                }
            }
            _ => {
                let most = if pick(3) == 0 { 15_000 } else { 300 };
                let len = 1 + pick(most).min(BLOCKS * 4096 - at - 1);
                file.write_all(at as u64, &vec![round as u8; len])?;
                content.resize(content.len().max(at + len), 0);
                content[at..at + len].fill(round as u8);
            }
        }
        if round % 10 == 0 {
            assert!(tree.content("file")? == content, "{how:?}, round {round}");
        }
        if round % 500 == 0 {
            place.expect_sound();
        }
    }
    drop((file, tree));
    drop(vfs);
    volume.close().expect("close it");
    assert!(place.expect_sound().is_clean);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    assert!(Tree::new(&vfs, Ino::ROOT).content("file")? == content);
    Ok(())
}

/// Space that content takes while it waits counts as free, and is: writing over a file never fails for want of space,
/// as long as the volume keeps a few blocks.
#[test]
fn writing_over_a_file_takes_no_space_in_the_end() -> Result<()> {
    let place = Place::pending(1 << 20);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("file", 0o644, &[1; 80 * 4096])?;
    let mut filler = 0;
    while tree.file(format!("filler {filler}"), 0o600, &[2; 4096]).is_ok() {
        filler += 1;
    }
    let free = volume.stat().free_blocks;
    assert!(free < 40, "{free} blocks are free");
    for round in 0..50u8 {
        file.write_all(0, &[round; 80 * 4096])?;
        assert_eq!(volume.stat().free_blocks, free, "round {round}");
    }
    assert!(tree.content("file")? == [49; 80 * 4096]);
    // In one part, and after that nothing waits any more.
    tree.open("file", OFlags::RDWR)?.write_all(100, &[50; 100])?;
    drop((file, tree));
    drop(vfs);
    volume.close().expect("close it");
    assert_eq!(place.open().stat().free_blocks, free);
    Ok(())
}

/// A block gets many versions, loses them, and gets as many again by calls that write back nothing: it is written back
/// once.
#[test]
fn a_list_that_was_dropped_may_get_long_again() -> Result<()> {
    let place = Place::pending(1 << 20);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("file", 0o644, &[1; 3 * 4096])?;
    (0..6).try_for_each(|i| file.write_all(4096 + i * 64, &[2; 64]))?;
    file.allocate(FallocateFlags::ZERO_RANGE, 4096, 4096)?;
    file.write_all(4096, &[3; 4096])?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    (0..6).try_for_each(|i| file.allocate(flags, 4096 + i * 64, 64))?;
    file.write_all(4096 + 6 * 64, &[4; 64])?;
    let mut expected = vec![1; 3 * 4096];
    expected[4096..8192].fill(3);
    expected[4096..4096 + 6 * 64].fill(0);
    expected[4096 + 6 * 64..4096 + 7 * 64].fill(4);
    assert!(tree.content("file")? == expected);
    Ok(())
}

/// A file without a name takes the last blocks, and is closed: it is freed, whatever must be written back for that.
#[test]
fn the_last_reference_goes_on_a_full_volume() -> Result<()> {
    let place = Place::pending(1 << 20);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("file", 0o644, &[1; 60 * 4096])?;
    let mut filler = 0;
    while tree.file(format!("filler {filler}"), 0o600, &[2; 4096]).is_ok() {
        filler += 1;
    }
    tree.unlink("file")?;
    for blocks in (1..=60).rev() {
        file.write(0, &vec![blocks as u8; blocks * 4096])?;
    }
    drop(file);
    tree.unlink("filler 0")?;
    drop(vfs);
    volume.close().expect("close it");
    assert!(place.expect_sound().is_clean);
    Ok(())
}

/// Blocks of two files alternate on the volume, and each is written over wholly: writing them back copies nothing, it
/// only swaps their pointers, however often it goes from the one file to the other.
#[test]
fn writing_back_whole_blocks_of_many_files_copies_nothing() -> Result<()> {
    const BLOCKS: u64 = 600;
    let place = Place::pending(16 << 20);
    let counting = CountingRegion::new(place.region);
    let place = Place { region: counting.clone() };
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let files = [tree.file("a", 0o644, b"")?, tree.file("b", 0o644, b"")?];
    for byte in [1, 2] {
        for (block, file) in (0..BLOCKS).flat_map(|block| files.iter().map(move |file| (block, file))) {
            file.write_all(block * 4096, &[byte; 4096])?;
        }
    }
    counting.take();
    drop((files, tree));
    drop(vfs);
    volume.close().expect("close it");
    let counts = counting.take();
    let lines = |site| counts.get(&Site(site)).map_or(0, |count| count.lines);
    assert_eq!((lines("hybrid.home"), lines("hybrid.swap")), (0, 2 * BLOCKS));
    place.expect_sound();
    Ok(())
}
