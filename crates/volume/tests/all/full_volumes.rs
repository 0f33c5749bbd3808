//! Volumes that are full in each way, with each engine: once everything is removed, all of the space is there again, by
//! `df` and for who writes. So it is after a remount, after the death of the process and with the inode file given back
//! in part.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use wholly_media::Region;
use wholly_media::pmem::{PmemOptions, PmemRegion};
use wholly_posix::Tree;
use wholly_vfs::{Errno, Ino, OFlags, Result};
use wholly_volume::{EngineKind, Object, Repair, Volume, VolumeOptions, VolumeVfs};

/// What `df` says: free blocks, those for all users, inodes and free inodes.
type Free = [u64; 4];

struct Place {
    region: Arc<dyn Region>,
    engine: EngineKind,
}

impl Place {
    fn new(engine: EngineKind, bytes: u64) -> Place {
        let file = memfd_create("volume", MemfdFlags::CLOEXEC).expect("a file in memory");
        ftruncate(&file, bytes).expect("its length");
        let region = PmemRegion::open(file, PmemOptions::default()).expect("a region");
        let place = Place { region: Arc::new(region), engine };
        Volume::format_region(&*place.region, &place.options()).expect("make a volume");
        place
    }

    fn options(&self) -> VolumeOptions {
        VolumeOptions { engine: Some(self.engine), cache_bytes: 1 << 20, ..VolumeOptions::default() }
    }

    /// Opens the volume for some calls, and ends the mount in one way or the other.
    fn mounted<T>(&self, end: End, calls: impl FnOnce(&Tree<'_>) -> T) -> T {
        let volume = Volume::open_region(self.region.clone(), &self.options()).expect("open it");
        let vfs = VolumeVfs::new(&volume);
        let done = calls(&Tree::new(&vfs, Ino::ROOT));
        drop(vfs);
        match end {
            End::Unmount => volume.close().expect("close it"),
            End::Death => volume.abandon(),
        }
        self.expect_sound();
        done
    }

    fn free(&self, end: End) -> Free {
        self.mounted(end, free)
    }

    fn expect_sound(&self) {
        let checked = Volume::check_region(&*self.region).expect("check it");
        assert_eq!((checked.findings, checked.lost_copies), (vec![], vec![]), "{}", self.engine.name());
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Unmount,
    Death,
}

fn free(tree: &Tree<'_>) -> Free {
    let stat = tree.vfs.statfs(&tree.ctx, Ino::ROOT).expect("statfs");
    [stat.free_blocks, stat.available_blocks, stat.inodes, stat.free_inodes]
}

/// Fails with `ENOSPC`, or succeeds.
fn may_be_full<T>(result: Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(Errno::NOSPC) => true,
        Err(errno) => panic!("failed with {errno}"),
    }
}

/// Writes to a file by blocks until there is no space. Returns how many there were.
fn blocks_until_full(tree: &Tree<'_>) -> u64 {
    let file = tree.create("content", 0o600).expect("make a file");
    let blocks = (0..).find(|i| may_be_full(file.write_all(i * 4096, &[7; 4096]))).expect("it gets full");
    drop(file);
    tree.unlink("content").expect("remove it");
    blocks
}

type Fill = fn(&Tree<'_>, usize) -> Result<()>;

const WAYS: [(&str, Fill); 8] = [
    ("content", |t, i| {
        let file = t.open_with("d/file", OFlags::RDWR | OFlags::CREATE, 0o644)?;
        file.write_all(i as u64 * 4096, &[1; 4096])
    }),
    ("inodes", |t, i| t.create(format!("d/{i}"), 0o644).map(drop)),
    ("names", |t, i| match i {
        0 => t.create("d/file", 0o644).map(drop),
        _ => t.link("d/file", format!("d/{i}-{}", "n".repeat(230))).map(drop),
    }),
    ("directories", |t, i| {
        t.mkdir(format!("d/{i}"), 0o755)?;
        t.create(format!("d/{i}/file"), 0o644).map(drop)
    }),
    ("attributes", |t, i| {
        t.create(format!("d/{i}"), 0o644)?;
        t.set_xattr(format!("d/{i}"), "user.a", &[3; 5000])
    }),
    ("map nodes", |t, i| {
        let file = t.open_with("d/file", OFlags::RDWR | OFlags::CREATE, 0o644)?;
        file.write_all(i as u64 * 512 * 4096, &[1; 10])
    }),
    ("long links", |t, i| t.symlink(format!("d/{i}"), "x".repeat(2000)).map(drop)),
    ("small files", |t, i| t.file(format!("d/{i}"), 0o644, b"content").map(drop)),
];

/// Makes a directory, and fills the volume in it.
fn fill(tree: &Tree<'_>, fill: Fill) -> usize {
    tree.mkdir("d", 0o755).expect("make a directory");
    (0..1_000_000).find(|i| may_be_full(fill(tree, *i))).expect("it gets full")
}

#[test]
fn what_full_volumes_had_is_there_again() {
    for engine in EngineKind::ALL.iter().copied() {
        let place = Place::new(engine, 1 << 20);
        let name = engine.name();
        // The root keeps one leaf for its names.
        let (before, blocks) = place.mounted(End::Unmount, |tree| {
            tree.create("file", 0o644).and_then(|_| tree.unlink("file")).expect("a name");
            let blocks = blocks_until_full(tree);
            (free(tree), blocks)
        });
        assert_eq!(place.free(End::Death), before, "{name}");
        // What is removed is removed by two mounts, one of which ends by the death of its process.
        let ends = [(End::Unmount, End::Death), (End::Death, End::Unmount)];
        for ((what, way), (first, second)) in WAYS.iter().flat_map(|way| ends.map(|ends| (way, ends))) {
            let what = format!("{name}, {what}, {first:?}, {second:?}");
            let made = place.mounted(first, |tree| {
                let made = fill(tree, *way);
                // A call may need more than what it takes.
                assert!(free(tree)[1] < 64, "{what}: {made} of them take all");
                for entry in tree.names("d").expect("list").iter().step_by(2) {
                    tree.remove(&[b"d/", &entry.name[..]].concat()).expect("remove it");
                }
                made
            });
            assert!(made > 40, "{what}: {made}");
            place.mounted(second, |tree| {
                tree.remove(b"d").expect("remove the rest");
                assert_eq!(free(tree), before, "{what}: {made} of them");
            });
            assert_eq!(place.free(second), before, "{what}: {made} of them, after it");
            let again = place.mounted(first, |tree| (blocks_until_full(tree), free(tree)));
            assert_eq!(again, (blocks, before), "{what}: {made} of them, and content");
        }
        let checked = Volume::check_region(&*place.region).expect("check it");
        assert_eq!(checked.idle_inode_blocks, 0, "{name}");
    }
}

/// One file in the middle of the numbers stays, and all around it is given back. The space is others' while it is
/// there, in one mount.
#[test]
fn no_file_that_stays_holds_the_space_of_others() {
    for engine in EngineKind::ALL.iter().copied() {
        let (place, name) = (Place::new(engine, 2 << 20), engine.name());
        place.mounted(End::Unmount, |tree| {
            tree.create("file", 0o644).and_then(|_| tree.unlink("file")).expect("a name");
            let (before, blocks) = (free(tree), blocks_until_full(tree));
            let made = fill(tree, |t, i| t.create(format!("d/{i}"), 0o644).map(drop));
            assert!(made > 1000, "{name}: {made}");
            let kept = format!("d/{}", made / 2);
            let ino = tree.stat(&kept).expect("it is there").ino;
            tree.rename(&kept, "kept").expect("rename");
            tree.remove(b"d").expect("remove all others");
            // Its block, and perhaps nodes on the way to it.
            let [now, ..] = free(tree);
            assert!((1..4).contains(&(before[0] - now)), "{name}: {now} of {before:?}");
            let again = blocks_until_full(tree);
            assert!((1..4).contains(&(blocks - again)), "{name}: {again} of {blocks}");
            assert_eq!((free(tree)[0], tree.stat("kept").expect("it is there").ino), (now, ino), "{name}");
            // Its neighbours come back.
            let made_again = fill(tree, |t, i| t.create(format!("d/{i}"), 0o644).map(drop));
            assert!(made_again.abs_diff(made) < 100, "{name}: {made_again} of {made}");
            tree.remove(b"d").and_then(|()| tree.unlink("kept")).expect("remove all");
            assert_eq!(free(tree), before, "{name}");
        });
    }
}

/// The generation of an inode.
fn generation(place: &Place, ino: u64) -> u32 {
    let dumped = Volume::dump_region(&*place.region, Some(Object::Inode(ino))).expect("dump it");
    dumped.inode.and_then(|inode| inode.owned).expect("it is there").generation
}

/// No inode has the number and the generation of an earlier one, whoever gave its block back, and however the mount
/// ended.
#[test]
fn a_number_that_comes_back_has_another_generation() {
    for engine in EngineKind::ALL.iter().copied() {
        let (place, name) = (Place::new(engine, 1 << 20), engine.name());
        let (mut seen, mut lives) = (HashSet::new(), BTreeMap::<u64, u32>::new());
        for round in 0..8 {
            let end = if round % 2 == 0 { End::Unmount } else { End::Death };
            let all: Vec<u64> = place.mounted(end, |tree| {
                tree.mkdir("d", 0o755).expect("make a directory");
                let made = (0..400).map(|i| tree.create(format!("d/{i}"), 0o644).expect("make a file").stat());
                made.map(|attr| attr.expect("its attributes").ino.0).collect()
            });
            for ino in all.into_iter().filter(|ino| ino % 7 == 0) {
                let generation = generation(&place, ino);
                assert!(seen.insert((ino, generation)), "{name}, round {round}: inode {ino}, generation {generation}");
                *lives.entry(ino).or_default() += 1;
            }
            place.mounted(end, |tree| {
                tree.remove(b"d").expect("remove all");
                if round % 4 > 1 {
                    blocks_until_full(tree);
                }
            });
        }
        assert!(lives.values().any(|lives| *lives == 8), "{name}: the same numbers come back");
    }
}

/// A volume that an earlier version has unmounted has blocks of the inode file that nobody needs: what the process
/// leaves that dies. `fsck` gives them back, too.
#[test]
fn a_repair_gives_back_what_was_kept() {
    for engine in EngineKind::ALL.iter().copied() {
        let (place, name) = (Place::new(engine, 1 << 20), engine.name());
        let before = place.free(End::Unmount);
        place.mounted(End::Death, |tree| {
            fill(tree, |t, i| t.create(format!("d/{i}"), 0o644).map(drop));
            tree.remove(b"d").expect("remove all");
        });
        let checked = Volume::check_region(&*place.region).expect("check it");
        assert!(checked.idle_inode_blocks > 50, "{name}: {}", checked.idle_inode_blocks);
        let how = (Repair::All, false);
        let repaired = Volume::repair_region(&place.region, &place.options(), how, &mut |_| ControlFlow::Continue(()));
        let repaired = repaired.expect("repair it");
        assert_eq!((repaired.left, repaired.checked.idle_inode_blocks), (vec![], 0), "{name}");
        let given = repaired.done.iter().filter(|mended| mended.done == "given back").count();
        assert_eq!(given, 1, "{name}: {:?}", repaired.done);
        let root = 2;
        let after = place.free(End::Unmount);
        assert_eq!(after[0] + root, before[0], "{name}: but for the leaf of the root, and the node above it");
        let again = Volume::repair_region(&place.region, &place.options(), how, &mut |_| ControlFlow::Continue(()));
        assert!(again.expect("repair it").done.is_empty(), "{name}: nothing is left to do");
    }
}
