//! Making names and taking them away.

use wholly_vfs::{Errno, FileType, OFlags};

use super::{NO_DIRECTORIES, one_of_each};
use crate::check::{Outcome, fails, holds, same};
use crate::suite::table;
use crate::tree::{Tree, bits};

table!("names";
    create_makes_an_empty_file, create_excl_refuses_what_is_there, create_opens_what_is_there, create_truncates_with_trunc,
    create_refuses_directories, create_of_mode_zero_can_be_written, create_beside_a_removed_name,
    mkdir_makes_an_empty_directory, mkdir_refuses_what_is_there, mkdir_under_a_file, mkdir_under_nothing,
    mknod_makes_each_type, mknod_refuses_what_is_there, mknod_refuses_a_directory,
    symlink_holds_its_target, symlink_refuses_what_is_there, symlink_refuses_an_empty_target,
    readlink_of_other_types, unlink_takes_each_type, unlink_refuses_directories, unlink_of_nothing,
    unlink_of_a_link_leaves_its_target, rmdir_takes_an_empty_directory, rmdir_refuses_a_full_directory,
    rmdir_refuses_other_types, rmdir_of_nothing, nothing_is_made_in_a_removed_directory, lookup_of_nothing,
    lookup_in_other_types, names_are_bytes, names_keep_case, a_name_can_come_and_go;
    users: mknod_makes_devices, mknod_refuses_devices_to_users,
);

fn create_makes_an_empty_file(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o640)?;
    let stat = file.stat()?;
    same((stat.kind, stat.mode, stat.size, stat.nlink), (FileType::RegularFile, bits(0o640), 0, 1))?;
    same(file.content()?, vec![])?;
    same(t.stat("f")?.ino, file.ino)
}

fn create_excl_refuses_what_is_there(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in NO_DIRECTORIES.into_iter().chain(["dir"]) {
        fails(t.create(name, 0o644), Errno::EXIST)?;
    }
    same(t.content("file")?, b"content".to_vec())
}

fn create_opens_what_is_there(t: &Tree<'_>) -> Outcome {
    let made = t.file("f", 0o600, b"abc")?;
    let opened = t.open_with("f", OFlags::RDWR | OFlags::CREATE, 0o777)?;
    same(opened.ino, made.ino)?;
    same(opened.stat()?.mode, bits(0o600))?;
    same(opened.content()?, b"abc".to_vec())
}

fn create_truncates_with_trunc(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o600, b"abc")?;
    let opened = t.open_with("f", OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC, 0o600)?;
    same(opened.stat()?.size, 0)
}

fn create_refuses_directories(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    fails(t.open_with("d", OFlags::RDWR | OFlags::CREATE, 0o644), Errno::ISDIR)?;
    fails(t.open_with("d", OFlags::RDONLY | OFlags::CREATE, 0o644), Errno::ISDIR)
}

fn create_of_mode_zero_can_be_written(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0)?;
    file.write_all(0, b"x")?;
    same(file.content()?, b"x".to_vec())?;
    same(file.stat()?.mode, bits(0))
}

fn create_beside_a_removed_name(t: &Tree<'_>) -> Outcome {
    let old = t.file("f", 0o600, b"old")?;
    t.unlink("f")?;
    let new = t.file("f", 0o600, b"new")?;
    holds(old.ino != new.ino, "two inodes that live have two numbers")?;
    same((old.content()?, new.content()?), (b"old".to_vec(), b"new".to_vec()))
}

fn mkdir_makes_an_empty_directory(t: &Tree<'_>) -> Outcome {
    let made = t.mkdir("d", 0o750)?;
    same((made.kind, made.mode), (FileType::Directory, bits(0o750)))?;
    same(t.stat("d")?.ino, made.ino)?;
    same(t.names("d")?, vec![])
}

fn mkdir_refuses_what_is_there(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in NO_DIRECTORIES.into_iter().chain(["dir"]) {
        fails(t.mkdir(name, 0o755), Errno::EXIST)?;
    }
    Ok(())
}

fn mkdir_under_a_file(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.mkdir("f/d", 0o755), Errno::NOTDIR)
}

fn mkdir_under_nothing(t: &Tree<'_>) -> Outcome {
    fails(t.mkdir("x/d", 0o755), Errno::NOENT)
}

fn mknod_makes_each_type(t: &Tree<'_>) -> Outcome {
    for (name, kind) in [("f", FileType::RegularFile), ("p", FileType::Fifo), ("s", FileType::Socket)] {
        let made = t.mknod(name, kind, 0o640)?;
        same((made.kind, made.mode, made.nlink, made.size), (kind, bits(0o640), 1, 0))?;
        same(t.stat(name)?.ino, made.ino)?;
    }
    Ok(())
}

fn mknod_refuses_what_is_there(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in NO_DIRECTORIES.into_iter().chain(["dir"]) {
        fails(t.mknod(name, FileType::Fifo, 0o644), Errno::EXIST)?;
    }
    Ok(())
}

fn mknod_refuses_a_directory(t: &Tree<'_>) -> Outcome {
    fails(t.mknod("d", FileType::Directory, 0o755), Errno::PERM)?;
    holds(!t.exists("d")?, "nothing was made")
}

fn mknod_makes_devices(t: &Tree<'_>) -> Outcome {
    let null = rustix::fs::makedev(1, 3);
    for (name, kind) in [("c", FileType::CharacterDevice), ("b", FileType::BlockDevice)] {
        let made = t.paths().mknod(&t.ctx, t.at, name.as_bytes(), kind, bits(0o600), null)?;
        same((made.kind, made.rdev), (kind, null))?;
        same(t.stat(name)?.rdev, null)?;
    }
    let large = rustix::fs::makedev(0xfff, 0xf_ffff);
    t.paths().mknod(&t.ctx, t.at, b"large", FileType::CharacterDevice, bits(0o600), large)?;
    same(t.stat("large")?.rdev, large)
}

fn mknod_refuses_devices_to_users(t: &Tree<'_>) -> Outcome {
    let ann = t.user(super::ANN);
    let null = rustix::fs::makedev(1, 3);
    let made = ann.paths().mknod(&ann.ctx, t.at, b"c", FileType::CharacterDevice, bits(0o600), null);
    fails(made, Errno::PERM)?;
    ann.mknod("p", FileType::Fifo, 0o600)?;
    ann.mknod("s", FileType::Socket, 0o600)?;
    Ok(())
}

fn symlink_holds_its_target(t: &Tree<'_>) -> Outcome {
    let targets = [
        &b"a"[..],
        b"../up//and/../down",
        b"/absolute",
        b"not utf-8 \xff\x01",
        b" ",
        &[b'x'; 59],
        &[b'x'; 60],
        &[b'y'; 200],
    ];
    for (number, target) in targets.into_iter().enumerate() {
        let name = format!("l{number}");
        let made = t.symlink(&name, target)?;
        same((made.kind, made.nlink, made.size), (FileType::Symlink, 1, target.len() as u64))?;
        same(t.readlink(&name)?, target.to_vec())?;
    }
    Ok(())
}

fn symlink_refuses_what_is_there(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in NO_DIRECTORIES.into_iter().chain(["dir"]) {
        fails(t.symlink(name, "target"), Errno::EXIST)?;
    }
    Ok(())
}

fn symlink_refuses_an_empty_target(t: &Tree<'_>) -> Outcome {
    fails(t.symlink("l", ""), Errno::NOENT)
}

fn readlink_of_other_types(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in ["file", "dir", "fifo", "socket"] {
        fails(t.readlink(name), Errno::INVAL)?;
    }
    Ok(())
}

fn unlink_takes_each_type(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in NO_DIRECTORIES {
        t.unlink(name)?;
        fails(t.stat(name), Errno::NOENT)?;
    }
    same(t.names(".")?.len(), 1)
}

fn unlink_refuses_directories(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    fails(t.unlink("d"), Errno::ISDIR)?;
    same(t.stat("d")?.kind, FileType::Directory)
}

fn unlink_of_nothing(t: &Tree<'_>) -> Outcome {
    fails(t.unlink("x"), Errno::NOENT)
}

fn unlink_of_a_link_leaves_its_target(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    t.symlink("l", "f")?;
    t.unlink("l")?;
    same(t.content("f")?, b"abc".to_vec())
}

fn rmdir_takes_an_empty_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.rmdir("d")?;
    fails(t.stat("d"), Errno::NOENT)
}

fn rmdir_refuses_a_full_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.symlink("d/x", "y")?;
    fails(t.rmdir("d"), Errno::NOTEMPTY)?;
    t.unlink("d/x")?;
    t.mkdir("d/e", 0o755)?;
    fails(t.rmdir("d"), Errno::NOTEMPTY)?;
    t.rmdir("d/e")?;
    Ok(t.rmdir("d")?)
}

fn rmdir_refuses_other_types(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    t.symlink("to-dir", "dir")?;
    for name in NO_DIRECTORIES.into_iter().chain(["to-dir"]) {
        fails(t.rmdir(name), Errno::NOTDIR)?;
    }
    Ok(())
}

fn rmdir_of_nothing(t: &Tree<'_>) -> Outcome {
    fails(t.rmdir("x"), Errno::NOENT)
}

fn nothing_is_made_in_a_removed_directory(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    t.file("f", 0o644, b"")?;
    let place = t.find("d")?;
    t.rmdir("d")?;
    let gone = Tree { at: place.ino(), ..t.clone() };
    fails(gone.create("f", 0o644), Errno::NOENT)?;
    fails(gone.mkdir("d", 0o755), Errno::NOENT)?;
    fails(gone.mknod("p", FileType::Fifo, 0o644), Errno::NOENT)?;
    fails(gone.symlink("l", "x"), Errno::NOENT)?;
    fails(gone.stat("x"), Errno::NOENT)?;
    let file = t.find("f")?;
    fails(t.vfs.link(&t.ctx, file.ino(), place.ino(), b"f"), Errno::NOENT)?;
    same(gone.stat(".")?.ino, place.ino())
}

fn lookup_of_nothing(t: &Tree<'_>) -> Outcome {
    fails(t.stat("x"), Errno::NOENT)?;
    fails(t.stat("x/y"), Errno::NOENT)
}

fn lookup_in_other_types(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in ["file", "fifo", "socket"] {
        let found = t.find(name)?;
        fails(t.vfs.lookup(&t.ctx, found.ino(), b"x"), Errno::NOTDIR)?;
        fails(t.stat(format!("{name}/x")), Errno::NOTDIR)?;
    }
    Ok(())
}

fn names_are_bytes(t: &Tree<'_>) -> Outcome {
    // Every byte but NUL and the slash, alone and among others.
    for byte in (1u8..=255).filter(|&byte| byte != b'/') {
        for name in [vec![byte, byte, byte], vec![b'a', byte]] {
            t.symlink(&name, [byte])?;
            same(t.readlink(&name)?, vec![byte])?;
        }
    }
    let mut wanted: Vec<Vec<u8>> =
        (1u8..=255).filter(|&byte| byte != b'/').flat_map(|byte| [vec![byte; 3], vec![b'a', byte]]).collect();
    wanted.sort();
    let names: Vec<Vec<u8>> = t.names(".")?.into_iter().map(|name| name.name).collect();
    same(names, wanted)
}

fn names_keep_case(t: &Tree<'_>) -> Outcome {
    t.file("a", 0o644, b"small")?;
    t.file("A", 0o644, b"large")?;
    // One letter in two ways of Unicode.
    t.file("\u{e9}", 0o644, b"composed")?;
    t.file("e\u{301}", 0o644, b"decomposed")?;
    same(t.content("a")?, b"small".to_vec())?;
    same(t.names(".")?.len(), 4)
}

fn a_name_can_come_and_go(t: &Tree<'_>) -> Outcome {
    for round in 0..100u8 {
        t.file("x", 0o644, &[round])?;
        same(t.content("x")?, vec![round])?;
        t.unlink("x")?;
        t.mkdir("x", 0o755)?;
        t.rmdir("x")?;
        fails(t.stat("x"), Errno::NOENT)?;
    }
    Ok(())
}
