//! Mistakes that the explorer's programs do not see, because their files are small and few groups run beside each
//! other. Each was planted in the code once, and one of these tests failed.

use wholly_media::Site;
use wholly_posix::Tree;
use wholly_sim::CountingRegion;
use wholly_vfs::{Context, Errno, Fallocate, GroupId, Groups, Ino, OFlags, Result, Vfs};
use wholly_volume::{Repair, Volume, VolumeOptions, VolumeVfs};

use super::place::Place;

/// Volumes with each engine that has groups.
const WITH_GROUPS: [fn(u64) -> Place; 4] = [Place::logged, Place::pending, Place::undone, Place::shadowed];

const PUNCH: Fallocate = Fallocate::Punch;

/// The same tree in a group.
fn within<'v>(tree: &Tree<'v>, group: GroupId) -> Tree<'v> {
    Tree { ctx: Context { group: Some(group), ..tree.ctx.clone() }, ..tree.clone() }
}

/// A block has so many versions that the next call that writes brings it home, by a swap of its pointer. A group has
/// claimed the file before: what it has written is about the old home, so that stays.
#[test]
fn the_home_of_a_block_stays_while_a_group_has_the_file() -> Result<()> {
    for commits in [true, false] {
        let place = Place::pending(1 << 20);
        let counting = CountingRegion::new(place.region.clone());
        let place = Place { region: counting.clone() };
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let swaps = || counting.take().get(&Site("hybrid.swap")).map_or(0, |count| count.lines);
        let versions = |name: &str| {
            let file = tree.open(name, OFlags::RDWR)?;
            (2..8).try_for_each(|byte| file.write_all(4096, &[byte; 4096]))
        };
        tree.file("a", 0o644, &[1; 3 * 4096])?;
        tree.file("free", 0o644, &[1; 3 * 4096])?;
        versions("a")?;
        let group = vfs.begin()?;
        within(&tree, group).open("a", OFlags::RDWR)?.allocate(PUNCH, 4096 + 100, 200)?;
        let other = tree.file("other", 0o644, &[9; 100])?;
        assert_eq!(swaps(), 0, "the file is the group's");
        versions("free")?;
        other.write_all(0, b"brings it home")?;
        assert_eq!(swaps(), 1, "this one is nobody's");
        // Whoever takes the old home writes to it.
        tree.file("taker", 0o644, &[8; 40 * 4096])?;
        match commits {
            true => vfs.commit(group)?,
            false => vfs.abort(group)?,
        }
        let mut wanted = [[1; 4096], [7; 4096], [1; 4096]].concat();
        if commits {
            wanted[4096 + 100..][..200].fill(0);
        }
        assert!(tree.content("a")? == wanted, "committed: {commits}");
        assert!(tree.content("taker")? == [8; 40 * 4096]);
        drop((other, tree));
        drop(vfs);
        volume.abandon();
        place.expect_sound();
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        assert!(Tree::new(&vfs, Ino::ROOT).content("a")? == wanted, "after a death, committed: {commits}");
    }
    Ok(())
}

/// Where the blocks of a file are, memory keeps once they were looked for often enough. A swap changes that.
#[test]
fn a_block_is_read_where_its_pointer_leads_after_a_swap() -> Result<()> {
    const BLOCKS: u64 = 64;
    let place = Place::pending(2 << 20);
    let counting = CountingRegion::new(place.region.clone());
    let place = Place { region: counting.clone() };
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("a", 0o644, &[1; BLOCKS as usize * 4096])?;
    let other = tree.file("other", 0o644, &[9; 100])?;
    // A write over content changes no map: what is known of it stays.
    for round in 0..3u8 {
        for _ in 0..3 {
            for block in 0..BLOCKS {
                file.read(block * 4096, 4096)?;
            }
        }
        counting.take();
        (10..16).try_for_each(|byte| file.write_all(5 * 4096, &[byte + round; 4096]))?;
        other.write_all(0, b"brings it home")?;
        assert_eq!(counting.take().get(&Site("hybrid.swap")).map_or(0, |count| count.lines), 1, "round {round}");
        assert!(file.read(5 * 4096, 4096)? == [15 + round; 4096], "round {round}");
        assert!(file.read(4 * 4096, 4096)? == [1; 4096] && file.read(6 * 4096, 4096)? == [1; 4096]);
    }
    Ok(())
}

/// More blocks in a row than a node of a map has pointers are moved up and down, and stay where they are on the volume.
#[test]
fn a_run_longer_than_a_node_moves_whole() -> Result<()> {
    const COUNT: u64 = 530;
    for place in Place::each(8 << 20) {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let content: Vec<u8> = (0..COUNT).flat_map(|block| [(block % 251) as u8 + 1; 4096]).collect();
        let file = tree.file("a", 0o644, b"")?;
        // Taken at once, so that they are in a row on the volume too.
        file.allocate(Fallocate::Extend, 0, COUNT * 4096)?;
        file.write_all(0, &content)?;
        file.allocate(Fallocate::Insert, 0, 4096)?;
        assert!(file.content()? == [&[0; 4096][..], &content].concat());
        file.allocate(Fallocate::Collapse, 0, 3 * 4096)?;
        assert!(file.content()? == content[2 * 4096..]);
        drop((file, tree));
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
    }
    Ok(())
}

/// A block of a file that the second node of its map leads to.
const FAR: u64 = 512 + 88;

/// Content of a file beyond 2 MiB waits in pending blocks: it goes home by a swap of the right pointer, before and
/// after a death, and damage of it is that block's.
#[test]
fn content_beyond_two_mib_waits_for_its_own_block() -> Result<()> {
    let place = Place::pending(4 << 20);
    let counting = CountingRegion::new(place.region.clone());
    let place = Place { region: counting.clone() };
    let write = |tree: &Tree<'_>, byte: u8| {
        let file = tree.open("a", OFlags::RDWR)?;
        (0..3).try_for_each(|block| file.write_all((FAR + block) * 4096, &[byte + block as u8; 4096]))
    };
    let expect = |tree: &Tree<'_>, near: u8, far: u8| {
        let file = tree.open("a", OFlags::RDONLY)?;
        for block in 0..3 {
            assert!(file.read((FAR - 512 + block) * 4096, 4096)? == [near + block as u8; 4096], "{block}");
            assert!(file.read((FAR + block) * 4096, 4096)? == [far + block as u8; 4096], "{block}");
        }
        Ok::<_, Errno>(())
    };
    let swaps = || counting.take().get(&Site("hybrid.swap")).map_or(0, |count| count.lines);
    let volume = place.open();
    {
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let file = tree.file("a", 0o644, b"")?;
        (0..3).try_for_each(|block| file.write_all((FAR - 512 + block) * 4096, &[10 + block as u8; 4096]))?;
        write(&tree, 20)?;
        write(&tree, 30)?;
        expect(&tree, 10, 30)?;
    }
    volume.close().expect("close it");
    assert_eq!(swaps(), 3, "each block of it has become its own home");

    let volume = place.open();
    {
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        expect(&tree, 10, 30)?;
        write(&tree, 40)?;
        (0..8).try_for_each(|i| tree.file(format!("{i}"), 0o644, b"").map(drop))?;
    }
    volume.abandon();
    // One bit of what waits.
    let mut block = [0; 4096];
    let is_it = |at: &u64| {
        place.region.read(*at, &mut block).expect("read");
        block == [41; 4096]
    };
    let at = (0..place.region.len()).step_by(4096).find(is_it).expect("it waits somewhere");
    place.region.write(Site("test"), at + 77, &[40]).expect("flip a bit");
    let findings = place.check().findings;
    let named: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(named.len() == 1 && named[0].starts_with(&format!("block {} of inode ", FAR + 1)), "{named:?}");
    let options = VolumeOptions { cache_bytes: 1 << 20, ..VolumeOptions::default() };
    let watch = &mut |_| std::ops::ControlFlow::Continue(());
    let repaired = Volume::repair_region(&place.region, &options, (Repair::All, false), watch).expect("repair it");
    assert_eq!(repaired.left, []);
    place.expect_sound();
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let file = Tree::new(&vfs, Ino::ROOT).open("a", OFlags::RDWR)?;
    let byte = |block: u64| file.read((FAR + block) * 4096, 4096).map(|read| read[0]);
    assert_eq!((byte(0)?, byte(1)?, byte(2)?), (40, 31, 42), "the damaged one has older content, the others their own");
    Ok(())
}

/// Names of one slot that a leaf has room for.
const IN_LEAF: usize = 64;

/// Makes so many files in the directory `d`, whose names take a slot each.
fn names(tree: &Tree<'_>, what: &str, count: usize) -> Result<()> {
    (0..count).try_for_each(|i| tree.create(format!("d/{what}{i}"), 0o644).map(drop))
}

/// A group keeps room for each name that it is going to enter. When it is aborted, or the call has failed, the leaf has
/// that room for others, however many groups still have names in the directory: it is split when it is full, and not
/// before.
#[test]
fn room_for_names_that_do_not_come_is_room_for_others() -> Result<()> {
    for make in WITH_GROUPS {
        let place = make(4 << 20);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.mkdir("d", 0o755)?;
        names(&tree, "before", 40)?;
        let (stays, goes) = (vfs.begin()?, vfs.begin()?);
        names(&within(&tree, stays), "stays", 1)?;
        names(&within(&tree, goes), "goes", 10)?;
        let size = tree.stat("d")?.size;
        let filler = tree.file("filler", 0o600, b"")?;
        let mut blocks = 0;
        while filler.write(blocks * 4096, &[1; 4096]).is_ok() {
            blocks += 1;
        }
        // The last blocks are its own.
        let symlink = |i: usize| within(&tree, stays).symlink(format!("d/stays too {i}"), "x".repeat(300)).err();
        let made = (0..20).find(|i| symlink(*i).is_some()).expect("the volume is full");
        assert!((made..made + 5).all(|i| symlink(i) == Some(Errno::NOSPC)));
        drop(filler);
        tree.unlink("filler")?;
        vfs.abort(goes)?;
        names(&tree, "after", IN_LEAF - 41 - made)?;
        assert_eq!(tree.stat("d")?.size, size, "the leaf has room for all of them");
        names(&tree, "more", 1)?;
        assert!(tree.stat("d")?.size > size, "it was full");
        vfs.commit(stays)?;
        assert_eq!(tree.names("d")?.len(), IN_LEAF + 1);
        drop(tree);
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
        let volume = place.open();
        assert_eq!(volume.read_dir("d").expect("list").len(), IN_LEAF + 1);
    }
    Ok(())
}

/// Others split the leaf in which groups keep room, and leave its halves empty: the rooms move with the halves, which
/// are not brought together again meanwhile, and each name gets its own.
#[test]
fn room_for_names_moves_with_the_halves_of_a_leaf() -> Result<()> {
    for (make, commits) in WITH_GROUPS.into_iter().flat_map(|make| [(make, true), (make, false)]) {
        let place = make(4 << 20);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.mkdir("d", 0o755)?;
        let [one, other, last] = [vfs.begin()?, vfs.begin()?, vfs.begin()?];
        // The first slots are theirs; entries are in the first slots of each half.
        names(&within(&tree, one), "one", 12)?;
        names(&within(&tree, other), "other", 12)?;
        names(&within(&tree, last), "last", 12)?;
        names(&tree, "beside", 100)?;
        vfs.commit(one)?;
        match commits {
            true => vfs.commit(other)?,
            false => vfs.abort(other)?,
        }
        let others = if commits { 12 } else { 0 };
        let expect = |tree: &Tree<'_>, all: &[(&str, usize)]| {
            assert_eq!(tree.names("d")?.len(), all.iter().map(|(_, count)| count).sum::<usize>());
            all.iter()
                .try_for_each(|(what, count)| (0..*count).try_for_each(|i| tree.stat(format!("d/{what}{i}")).map(drop)))
        };
        expect(&tree, &[("one", 12), ("other", others), ("beside", 100)])?;
        for (what, count) in [("one", 12), ("other", others), ("beside", 100)] {
            (0..count).try_for_each(|i| tree.unlink(format!("d/{what}{i}")))?;
        }
        vfs.commit(last)?;
        names(&tree, "end", 30)?;
        expect(&tree, &[("last", 12), ("end", 30)])?;
        drop(tree);
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        expect(&Tree::new(&vfs, Ino::ROOT), &[("last", 12), ("end", 30)])?;
    }
    Ok(())
}

/// A file without a name gets its first one by one group alone, by none that is aborted, and no other once that is
/// lost.
#[test]
fn a_file_without_a_name_is_linked_by_one_group() -> Result<()> {
    for make in WITH_GROUPS {
        let place = make(4 << 20);
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        let file = tree.tmpfile("/", OFlags::RDWR, 0o600)?;
        let link = |tree: &Tree<'_>, name: &str| {
            let attr = vfs.link(&tree.ctx, file.ino, Ino::ROOT, name.as_bytes())?;
            vfs.forget(attr.ino, 1);
            Ok::<_, Errno>(attr.nlink)
        };
        let (one, other) = (vfs.begin()?, vfs.begin()?);
        assert_eq!(link(&within(&tree, one), "one"), Ok(1));
        assert_eq!(link(&within(&tree, one), "two"), Ok(2));
        assert_eq!(link(&within(&tree, other), "other"), Err(Errno::BUSY));
        assert_eq!(link(&tree, "out"), Err(Errno::BUSY));
        assert_eq!(file.stat()?.nlink, 0, "it has no name yet");
        vfs.abort(one)?;
        assert_eq!(link(&within(&tree, other), "other"), Ok(1));
        vfs.commit(other)?;
        assert_eq!(file.stat()?.nlink, 1);
        let group = vfs.begin()?;
        within(&tree, group).unlink("other")?;
        assert_eq!(link(&within(&tree, group), "again"), Err(Errno::NOENT), "it has lost its last name");
        vfs.commit(group)?;
        assert_eq!(link(&tree, "again"), Err(Errno::NOENT), "it has lost its last name");
        assert_eq!(file.stat()?.nlink, 0);
        drop(file);
        assert_eq!(tree.names("/")?.len(), 0);
        drop(tree);
        drop(vfs);
        volume.close().expect("close it");
        assert_eq!(place.expect_sound().orphans, 0);
    }
    Ok(())
}
