//! Large directories and files.

use std::collections::HashSet;

use wholly_posix::Tree;
use wholly_vfs::{Context, Errno, Fallocate, FileType, Ino, Mode, OFlags, Seek, Vfs};
use wholly_volume::VolumeVfs;

use super::place::{Place, is_long};

/// Names are made, found, listed while some are removed, and removed; the directory gives back what it took.
#[test]
fn a_directory_with_many_names() {
    let count = if is_long() { 1_000_000 } else { 60_000 };
    let place = Place::pmem(if is_long() { 1 << 30 } else { 96 << 20 });
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let ctx = Context::superuser();
    let name = |i: u64| format!("name-{i}").into_bytes();
    let dir = vfs.mkdir(&ctx, Ino::ROOT, b"dir", Mode::RWXU).expect("make it").ino;
    for i in 0..count {
        let made = vfs.mknod(&ctx, dir, &name(i), FileType::RegularFile, Mode::RUSR, 0);
        vfs.forget(made.unwrap_or_else(|errno| panic!("{i}: {errno}")).ino, 1);
    }
    for i in (0..count).step_by(7) {
        vfs.forget(vfs.lookup(&ctx, dir, &name(i)).expect("it is there").ino, 1);
    }
    assert_eq!(vfs.lookup(&ctx, dir, b"name-x").expect_err("it is not there"), Errno::NOENT);
    assert_eq!(
        vfs.mknod(&ctx, dir, &name(3), FileType::RegularFile, Mode::RUSR, 0).expect_err("it is there"),
        Errno::EXIST
    );
    place.expect_sound();

    // Each call lists some names; the even ones go meanwhile.
    let handle = vfs.opendir(&ctx, dir).expect("open it");
    let (mut seen, mut offset, mut removed) = (HashSet::new(), 0, 0);
    loop {
        let mut some = 0;
        vfs.readdir(&ctx, &handle, offset, &mut |entry| {
            if some == 1000 {
                return false;
            }
            some += 1;
            offset = entry.next;
            assert!(seen.insert(entry.name.to_vec()), "{:?} comes twice", String::from_utf8_lossy(entry.name));
            true
        })
        .expect("list");
        if some == 0 {
            break;
        }
        for _ in 0..500 {
            if removed < count {
                vfs.unlink(&ctx, dir, &name(removed)).expect("remove");
                removed += 2;
            }
        }
    }
    vfs.releasedir(&ctx, handle).expect("close it");
    assert!((1..count).step_by(2).all(|i| seen.contains(&name(i))), "each that stays is listed");

    let free = |vfs: &VolumeVfs| vfs.statfs(&ctx, Ino::ROOT).expect("statfs").free_blocks;
    let before = free(&vfs);
    (0..count).filter(|i| i % 2 == 1 || *i >= removed).for_each(|i| vfs.unlink(&ctx, dir, &name(i)).expect("remove"));
    assert!(free(&vfs) > before + count / 200, "leaves are given back");
    vfs.rmdir(&ctx, Ino::ROOT, b"dir").expect("it is empty");
    vfs.forget(dir, 1);
    assert_eq!(vfs.held(), (0, 0));
    drop(vfs);
    volume.close().expect("close it");
    place.expect_sound();
}

/// Content at all depths of a map, moved up and down.
#[test]
fn a_file_with_holes_at_all_depths() {
    let place = Place::pmem(16 << 20);
    let volume = place.open();
    let vfs = VolumeVfs::new(&volume);
    let tree = Tree::new(&vfs, Ino::ROOT);
    let file = tree.file("file", 0o644, b"begin").expect("make it");
    let places: Vec<u64> = [3, 9, 18, 27, 35].iter().map(|bits| (1u64 << bits) * 4096 + 100).collect();
    for (i, at) in places.iter().enumerate() {
        file.write_all(*at, &[i as u8 + 1; 5000]).expect("write");
        assert_eq!(file.seek(Seek::Data(at - 90_000 / (i as u64 + 4))), Ok(at - 100), "place {i}");
    }
    let check = |by: i64| {
        for (i, at) in places.iter().enumerate() {
            let at = at.wrapping_add_signed(by);
            assert_eq!(file.read(at, 5000).expect("read"), [i as u8 + 1; 5000], "place {i}");
            assert_eq!(file.read(at - 50, 50).expect("read"), [0; 50]);
            if i + 1 < places.len() {
                assert_eq!(file.read(at + 5000, 100).expect("read"), [0; 100], "behind place {i}");
            }
        }
    };
    check(0);
    file.allocate(Fallocate::Insert, 4096, 4096 * 1000).expect("insert");
    check(4096 * 1000);
    assert_eq!(file.read(0, 5).expect("read"), b"begin");
    file.allocate(Fallocate::Collapse, 4096, 4096 * 1002).expect("collapse");
    check(-2 * 4096);
    place.expect_sound();
    file.truncate(10 * 4096).expect("cut");
    file.truncate(0).expect("cut");
    assert_eq!(file.stat().expect("stat").blocks, 0);
    drop(file);
    tree.unlink("file").expect("remove");
    let again = tree.open_with("file", OFlags::RDWR | OFlags::CREATE, 0o600).expect("make it");
    assert_eq!(again.write(u64::MAX >> 1, b"").expect("nothing"), 0);
    assert_eq!(again.write(1 << 48, b"x"), Err(Errno::FBIG));
    place.expect_sound();
}
