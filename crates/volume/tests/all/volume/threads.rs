//! Threads that meet in directories and files. No verdict depends on who comes first.

use std::sync::Barrier;

use wholly_posix::Tree;
use wholly_vfs::{Errno, Ino, OFlags, Rename};
use wholly_volume::VolumeVfs;

use super::place::{Place, is_long};

const THREADS: usize = 4;

/// Directories move about while names in them are made and removed: nothing waits forever, and all agrees afterwards.
#[test]
fn directories_move_while_they_are_used() {
    let rounds = if is_long() { 20_000 } else { 1500 };
    for place in Place::each(32 << 20).into_iter().chain([Place::disk(32 << 20), Place::flash(32 << 20)]) {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (vfs, start) = (&vfs, &start);
                scope.spawn(move || {
                    let tree = Tree::new(vfs, Ino::ROOT);
                    let mut random = thread as u64 + 1;
                    let mut pick = |limit: u64| {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (random >> 33) % limit
                    };
                    start.wait();
                    for _ in 0..rounds {
                        let name = |n: u64| ["a", "b", "c", "a/a", "a/b", "b/a", "b/b/a", "c/c", "a/b/c"][n as usize];
                        let (one, other) = (name(pick(9)), name(pick(9)));
                        // Whatever comes of it, it is an answer.
                        let done = match pick(7) {
                            0 | 1 => tree.mkdir(one, 0o755).map(drop),
                            2 => tree.rename(one, other),
                            3 => tree.rename_with(one, other, Rename::Exchange),
                            4 => tree.rmdir(one),
                            5 => tree.file(format!("{one}/f{thread}"), 0o644, b"content").map(drop),
                            _ => tree.remove(one.as_bytes()),
                        };
                        let answers = [
                            Errno::NOENT,
                            Errno::EXIST,
                            Errno::NOTEMPTY,
                            Errno::INVAL,
                            Errno::NOTDIR,
                            Errno::ISDIR,
                            Errno::STALE,
                        ];
                        assert!(done.is_ok() || answers.contains(&done.unwrap_err()), "{one} {other}: {done:?}");
                    }
                });
            }
        });
        assert_eq!(vfs.held(), (0, 0));
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
    }
}

/// Each thread writes its own blocks of one file, and makes and removes files in one directory.
#[test]
fn what_each_writes_is_there() {
    let rounds = if is_long() { 5000 } else { 400 };
    for place in Place::each(64 << 20).into_iter().chain([Place::disk(64 << 20)]) {
        let volume = place.open();
        let vfs = VolumeVfs::new(&volume);
        let tree = Tree::new(&vfs, Ino::ROOT);
        tree.mkdir("dir", 0o755).expect("make a directory");
        tree.file("file", 0o644, b"").expect("make a file");
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let vfs = &vfs;
                scope.spawn(move || {
                    let tree = Tree::new(vfs, Ino::ROOT);
                    let file = tree.open("file", OFlags::RDWR).expect("open it");
                    for i in 0..rounds {
                        let at = ((i * THREADS + thread) * 3000) as u64;
                        file.write_all(at, &[thread as u8 + 1; 3000]).expect("write");
                        let name = format!("dir/{thread}-{i}");
                        tree.file(&name, 0o644, &[thread as u8; 100]).expect("make a file");
                        if i % 3 != 0 {
                            tree.unlink(&name).expect("remove it");
                        }
                    }
                });
            }
        });
        let content = tree.content("file").expect("read");
        for (i, part) in content.chunks(3000).enumerate() {
            assert!(part.iter().all(|byte| *byte == (i % THREADS) as u8 + 1), "part {i}");
        }
        assert_eq!(content.len(), rounds * THREADS * 3000);
        assert_eq!(tree.names("dir").expect("list").len(), THREADS * rounds.div_ceil(3));
        drop(vfs);
        volume.close().expect("close it");
        place.expect_sound();
    }
}

/// Directories that were removed while somebody refers to them have nothing in them, and nothing above: their parents
/// may be gone, too.
#[test]
fn a_removed_directory_leads_nowhere() {
    let place = Place::pmem(4 << 20);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    tree.mkdir("a", 0o755).expect("make it");
    tree.mkdir("a/b", 0o755).expect("make it");
    tree.file("file", 0o644, b"").expect("make it");
    let found = tree.find("a/b").expect("find it");
    tree.rmdir("a/b").expect("remove it");
    tree.rmdir("a").expect("remove it");
    let below = Tree { at: found.ino(), ..tree.clone() };
    assert_eq!(below.rename("file", "/other").expect_err("nothing is there"), Errno::NOENT);
    assert_eq!(below.rename("/file", "other").expect_err("nothing can be made there"), Errno::NOENT);
    assert_eq!(below.find("..").expect_err("nothing is above"), Errno::NOENT);
    assert_eq!(below.mkdir("c", 0o755).expect_err("nothing can be made there"), Errno::NOENT);
    drop((below, found));
    tree.stat("file").expect("it is still there");
    place.expect_sound();
}
