//! The engine `hybrid_log`: content that waits in pending blocks is read, written back and counted.

use std::ops::ControlFlow;

use wholly_media::Site;
use wholly_posix::Tree;
use wholly_sim::CountingRegion;
use wholly_vfs::{Context, Errno, Fallocate, Groups, Ino, OFlags, Result};
use wholly_volume::{Repair, Repaired, Volume, VolumeOptions, VolumeVfs, WriteBack};

use super::place::{Place, Random};

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
                    let flags = Fallocate::Punch;
                    file.allocate(flags, at as u64, len as u64)?;
                    content[at..at + len].fill(0);
                }
            }
            2 => {
                let (from, blocks) = (at / 4096 * 4096, 4096 * (1 + pick(3)));
                if from + blocks < content.len() {
                    file.allocate(Fallocate::Collapse, from as u64, blocks as u64)?;
                    content.drain(from..from + blocks);
                }
            }
            3 => {
                let from = at / 4096 * 4096;
                if from < content.len() && content.len() + 4096 <= BLOCKS * 4096 {
                    file.allocate(Fallocate::Insert, from as u64, 4096)?;
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

/// The index is small beside the content that waits: 1.5 % of it at most where blocks are neighbours (below 1 % in the
/// paper, III-D), and 4 % wherever they are. Nodes of the tree and memory that is kept for more versions count.
#[test]
fn the_index_is_small() -> Result<()> {
    // How far from each other the blocks are, and how many of the file are written over or passed.
    for (by, blocks, most) in [(1, 24 << 8, 15), (64, 96 << 8, 40), (100, 96 << 8, 40)] {
        let place = Place::pending(128 << 20);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let (megabyte, block) = (vec![1; 1 << 20], [2; 4096]);
        let file = tree.file("file", 0o644, b"")?;
        (0..blocks >> 8).try_for_each(|at| file.write_all(at << 20, &megabyte))?;
        assert_eq!(volume.stat().pending_blocks, 0, "new content is at home");
        (0..blocks).step_by(by).try_for_each(|at| file.write_all(at * 4096, &block))?;
        let stat = volume.stat();
        assert_eq!(stat.pending_blocks, blocks.div_ceil(by as u64));
        let per_mille = stat.index_bytes * 1000 / (stat.pending_blocks * stat.block_bytes);
        println!("{by} blocks apart: {} bytes for each", stat.index_bytes / stat.pending_blocks);
        assert!((1..=most).contains(&per_mille), "{by} blocks apart: {per_mille} per mille");
    }
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
    file.allocate(Fallocate::ZeroExtend, 4096, 4096)?;
    file.write_all(4096, &[3; 4096])?;
    let flags = Fallocate::Punch;
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

/// Two files of 1s and 2s, each written over by groups of their own, and a process that has died then. Other groups
/// came later, so that none of these is the last one of its lane.
fn left_behind() -> Result<Place> {
    let place = Place::pending(1 << 20);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.file("a", 0o644, &[1; 3 * 4096])?;
    tree.file("b", 0o644, &[2; 3 * 4096])?;
    tree.file("c", 0o644, &[0; 4096])?;
    tree.open("a", OFlags::RDWR)?.write_all(4096, &[3; 2 * 4096])?;
    tree.open("b", OFlags::RDWR)?.write_all(0, &[4; 4096])?;
    tree.open("b", OFlags::RDWR)?.write_all(100, &[5; 100])?;
    (0..8).try_for_each(|i| tree.open("c", OFlags::RDWR)?.write_all(i * 64, &[6; 64]))?;
    drop(vfs);
    volume.abandon();
    Ok(place)
}

/// Flips a bit of the block that is full of these bytes.
fn rot(place: &Place, byte: u8) {
    let mut block = [0; 4096];
    let is_it = |at: &u64| {
        place.region.read(*at, &mut block).expect("read");
        block == [byte; 4096]
    };
    let at = (0..place.region.len()).step_by(4096).find(is_it).expect("a block full of it");
    place.region.write(Site("test"), at + 77, &[byte ^ 1]).expect("flip a bit");
}

fn repaired(place: &Place, how: Repair) -> Repaired {
    let options = VolumeOptions { cache_bytes: 1 << 20, ..VolumeOptions::default() };
    let watch = &mut |_| ControlFlow::Continue(());
    Volume::repair_region(&place.region, &options, (how, false), watch).expect("repair it")
}

/// Content rots while it waits to be written back: a check names the block, and a repair loses nothing else.
#[test]
fn rot_of_content_that_waits_costs_that_block_alone() -> Result<()> {
    let place = left_behind()?;
    rot(&place, 4);
    let findings = place.check().findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    let named = findings[0].to_string();
    assert!(named.starts_with("block 0 of inode ") && named.contains("wrong checksum"), "{named}");

    assert_eq!(repaired(&place, Repair::Safe).left, findings, "what loses something is not safe");
    let Repaired { done, left, .. } = repaired(&place, Repair::All);
    assert_eq!(left, []);
    assert_eq!(done.iter().map(|mended| mended.finding.clone()).collect::<Vec<_>>(), findings);
    assert!(done[0].done.contains("older content"), "{}", done[0].done);

    place.expect_sound();
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    assert!(tree.content("a")? == [vec![1; 4096], vec![3; 8192]].concat());
    // The line of the later group was merged before.
    let b = [vec![2; 64], vec![4; 36], vec![5; 100], vec![4; 56], vec![2; 3 * 4096 - 256]].concat();
    assert!(tree.content("b")? == b);
    assert!(tree.content("c")? == [vec![6; 512], vec![0; 4096 - 512]].concat());
    Ok(())
}

/// A mount does not look at content that waits: reads of the damaged block fail, and nothing else does. An unmount says
/// so, and leaves the volume as after a crash.
#[test]
fn a_mount_serves_all_but_rotten_content() -> Result<()> {
    let place = left_behind()?;
    rot(&place, 4);
    let named = place.check().findings;
    for life in 0..3u8 {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        assert_eq!(tree.content("b"), Err(Errno::UCLEAN), "life {life}");
        let file = tree.open("b", OFlags::RDWR)?;
        assert!(file.read(4096, 8192)? == [2; 8192]);
        assert!(tree.content("a")? == [vec![1; 4096], vec![3; 8192]].concat());
        tree.open("c", OFlags::RDWR)?.write_all(512, &[life; 512])?;
        drop((file, tree));
        drop(vfs);
        match life {
            0 => volume.abandon(),
            _ => assert!(volume.close().expect_err("it is damaged").to_string().contains("wrong checksum")),
        }
        assert_eq!(place.check().findings, named, "life {life}");
    }
    assert_eq!(repaired(&place, Repair::All).left, []);
    place.expect_sound();
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    assert!(tree.content("b")?[4096..] == [2; 8192]);
    assert!(tree.content("c")?[512..1024] == [2; 512]);
    drop(tree);
    drop(vfs);
    volume.close().expect("nothing is left");
    Ok(())
}

/// Random writes and cuts, and deaths of the process between them, some of them right after a mount: content is what it
/// was, and what becomes free is.
#[test]
fn content_outlives_many_deaths() -> Result<()> {
    let mut random = Random(3);
    let place = Place::pending(1 << 20);
    let mut content: Vec<u8> = (0..BLOCKS * 4096).map(|i| i as u8).collect();
    let mut volume = place.open();
    Tree::new(&VolumeVfs::new(&volume), Ino::ROOT).file("file", 0o644, &content)?;
    let free = volume.stat().free_blocks;
    for round in 0..150u8 {
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        for _ in 0..random.below(12) {
            let file = tree.open("file", OFlags::RDWR)?;
            let at = random.below(content.len());
            if random.below(20) == 0 {
                tree.truncate("file", at as u64)?;
                content[at..].fill(0);
                tree.truncate("file", content.len() as u64)?;
            } else {
                let len = (1 + random.below(9000)).min(content.len() - at);
                file.write_all(at as u64, &vec![round; len])?;
                content[at..at + len].fill(round);
            }
        }
        drop(tree);
        drop(vfs);
        volume.abandon();
        place.expect_sound();
        volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        if round % 3 > 0 {
            assert!(Tree::new(&vfs, Ino::ROOT).content("file")? == content, "round {round}");
        }
        if round % 16 == 15 {
            drop(vfs);
            volume.close().expect("close it");
            assert!(place.expect_sound().is_clean);
            volume = place.open();
        }
    }
    // All of it is there again, so that as many blocks are.
    Tree::new(&VolumeVfs::new(&volume), Ino::ROOT).open("file", OFlags::RDWR)?.write_all(0, &content)?;
    assert_eq!(volume.stat().free_blocks, free);
    Ok(())
}

/// What a group has written rots before its commit, which may be hours later: nobody signs it as right.
#[test]
fn rot_before_the_commit_is_found_after_it() -> Result<()> {
    let place = Place::pending(1 << 20);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.file("a", 0o644, &[1; 3 * 4096])?;
    let group = vfs.begin()?;
    let ours = Tree { ctx: Context { group: Some(group), ..tree.ctx.clone() }, ..tree.clone() };
    // The last lines twice, and in part.
    ours.open("a", OFlags::RDWR)?.write_all(0, &[2; 4096])?;
    ours.open("a", OFlags::RDWR)?.write_all(4000, &[3; 50])?;
    ours.open("a", OFlags::RDWR)?.write_all(4096, &[4; 4096])?;
    rot(&place, 4);
    vfs.commit(group)?;
    (0..8).try_for_each(|i| tree.file(format!("{i}"), 0o644, b"").map(drop))?;
    drop((ours, tree));
    drop(vfs);
    volume.abandon();
    let findings = place.check().findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].to_string().starts_with("block 1 of inode "), "{}", findings[0]);
    Ok(())
}

/// How many lines an unmount copies home, and how many pointers it swaps.
fn copies_and_swaps(volume: Volume, counting: &CountingRegion) -> (u64, u64) {
    counting.take();
    volume.close().expect("close it");
    let counts = counting.take();
    let lines = |site| counts.get(&Site(site)).map_or(0, |count| count.lines);
    (lines("hybrid.home"), lines("hybrid.swap"))
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
    drop((files, tree));
    drop(vfs);
    assert_eq!(copies_and_swaps(volume, &counting), (0, 2 * BLOCKS));
    place.expect_sound();
    Ok(())
}

/// The process has died, so no file is open whose content waits. Writing back swaps their pointers, and copies nothing.
/// One file is removed before that, and one is cut: their content does not come back.
#[test]
fn writing_back_files_that_nobody_has_open_copies_nothing() -> Result<()> {
    const FILES: u64 = 200;
    let place = Place::pending(8 << 20);
    let counting = CountingRegion::new(place.region);
    let place = Place { region: counting.clone() };
    let volume = place.open();
    {
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        for i in 0..FILES {
            tree.file(format!("{i}"), 0o644, &[1; 2 * 4096])?.write_all(0, &[2; 2 * 4096])?;
        }
    }
    volume.abandon();
    let volume = place.open();
    {
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.unlink("0")?;
        tree.truncate("1", 0)?;
    }
    assert_eq!(copies_and_swaps(volume, &counting), (0, 2 * (FILES - 2)));
    assert!(place.expect_sound().is_clean);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    (2..FILES).try_for_each(|i| {
        assert!(tree.content(format!("{i}"))? == [2; 2 * 4096], "{i}");
        Ok(())
    })
}
