//! How long, how large, how many.

use wholly_vfs::{Errno, FileType, OFlags, SetAttr};

use crate::check::{Outcome, fails, holds, same};
use crate::suite::table;
use crate::tree::Tree;

table!("limits";
    names_of_255_bytes, names_of_256_bytes, paths_of_4095_bytes, symlink_targets_of_4095_bytes,
    directories_can_be_deep, offsets_beyond_2_to_40, the_largest_file, offsets_that_overflow, sizes_that_overflow,
    a_thousand_links, a_thousand_names, statfs_tells_the_longest_name, statfs_counts,
);

fn names_of_255_bytes(t: &Tree<'_>) -> Outcome {
    let names = [[b'a'; 255], [b'b'; 255], [b'c'; 255], [b'd'; 255], [0xc3; 255]];
    t.file(names[0], 0o644, b"abc")?;
    t.mkdir(names[1], 0o755)?;
    t.symlink(names[2], "x")?;
    t.link(names[0], names[3])?;
    t.rename(names[3], names[4])?;
    same(t.content(names[4])?, b"abc".to_vec())?;
    same(t.names(".")?.into_iter().map(|name| name.name.len()).collect::<Vec<_>>(), vec![255; 4])?;
    t.unlink(names[0])?;
    Ok(t.rmdir(names[1])?)
}

fn names_of_256_bytes(t: &Tree<'_>) -> Outcome {
    let long = [b'a'; 256];
    t.create("f", 0o644)?;
    // By path, and to the file system itself.
    fails(t.stat(long), Errno::NAMETOOLONG)?;
    fails(t.vfs.lookup(&t.ctx, t.at, &long), Errno::NAMETOOLONG)?;
    fails(t.create(long, 0o644), Errno::NAMETOOLONG)?;
    fails(t.mkdir(long, 0o755), Errno::NAMETOOLONG)?;
    fails(t.mknod(long, FileType::Fifo, 0o644), Errno::NAMETOOLONG)?;
    fails(t.symlink(long, "x"), Errno::NAMETOOLONG)?;
    fails(t.link("f", long), Errno::NAMETOOLONG)?;
    fails(t.rename("f", long), Errno::NAMETOOLONG)?;
    fails(t.rename(long, "g"), Errno::NAMETOOLONG)?;
    fails(t.unlink(long), Errno::NAMETOOLONG)?;
    fails(t.rmdir(long), Errno::NAMETOOLONG)?;
    same(t.names(".")?.len(), 1)
}

fn paths_of_4095_bytes(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    let path = |len: usize| ["/".repeat(len - "/case/f".len()), "/case/f".into()].concat();
    same(t.content(path(4095))?, b"abc".to_vec())?;
    fails(t.stat(path(4096)), Errno::NAMETOOLONG)?;
    fails(t.unlink(path(4096)), Errno::NAMETOOLONG)
}

fn symlink_targets_of_4095_bytes(t: &Tree<'_>) -> Outcome {
    let target = b"./".repeat(2047);
    t.symlink("l", [&target[..], b"f"].concat())?;
    same(t.stat("l")?.size, 4095)?;
    t.file("f", 0o644, b"abc")?;
    same(t.content("l")?, b"abc".to_vec())?;
    fails(t.symlink("m", [&target[..], b"ff"].concat()), Errno::NAMETOOLONG)
}

fn directories_can_be_deep(t: &Tree<'_>) -> Outcome {
    // Deeper than the longest path.
    let name = "d".repeat(100);
    let mut here = t.clone();
    let mut places = Vec::new();
    for _ in 0..60 {
        here.mkdir(&name, 0o755)?;
        let place = here.find(&name)?;
        here.at = place.ino();
        places.push(place);
    }
    here.file("f", 0o644, b"deep")?;
    same(here.content("f")?, b"deep".to_vec())?;
    same(here.stat("../".repeat(60))?.ino, t.at)
}

fn offsets_beyond_2_to_40(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    let far = (1 << 40) + 12_345;
    file.write_all(far, b"far")?;
    let stat = file.stat()?;
    same(stat.size, far + 3)?;
    holds(stat.blocks < 1 << 12, "what is not written takes no space")?;
    same(file.read(far - 2, 10)?, b"\0\0far".to_vec())?;
    same(file.read(1 << 39, 3)?, vec![0; 3])
}

/// Finds the largest size that a file may have: the file system knows it, the suite does not.
fn largest(t: &Tree<'_>) -> Result<u64, Errno> {
    t.create("largest", 0o644)?;
    let (mut fits, mut beyond) = (0, 1u64 << 63);
    while beyond - fits > 1 {
        let size = fits + (beyond - fits) / 2;
        match t.truncate("largest", size) {
            Ok(_) => fits = size,
            Err(Errno::FBIG) => beyond = size,
            Err(errno) => return Err(errno),
        }
    }
    Ok(fits)
}

fn the_largest_file(t: &Tree<'_>) -> Outcome {
    let largest = largest(t)?;
    holds(largest >= 1 << 43, "files of 8 TiB are possible")?;
    t.truncate("largest", largest)?;
    same(t.stat("largest")?.size, largest)?;
    t.truncate("largest", 0)?;
    let file = t.open("largest", OFlags::RDWR)?;
    same(file.write(largest - 1, b"x")?, 1)?;
    same((file.stat()?.size, file.read(largest - 2, 2)?), (largest, b"\0x".to_vec()))?;
    same(file.read(largest - 1, 1)?, b"x".to_vec())?;
    if largest < i64::MAX as u64 {
        same(file.write(largest - 1, b"yz")?, 1)?;
        fails(file.write(largest, b"x"), Errno::FBIG)?;
        fails(file.append(b"x"), Errno::FBIG)?;
        same(file.read(largest, 1)?, vec![])?;
    }
    Ok(())
}

fn offsets_that_overflow(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    fails(file.write(i64::MAX as u64, b"xy"), Errno::INVAL)?;
    fails(file.read(i64::MAX as u64, 2), Errno::INVAL)?;
    fails(file.write(1 << 63, b"x"), Errno::INVAL)?;
    fails(file.read(1 << 63, 1), Errno::INVAL)?;
    same(file.stat()?.size, 0)
}

fn sizes_that_overflow(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    fails(file.truncate(1 << 63), Errno::INVAL)?;
    fails(file.truncate(u64::MAX), Errno::INVAL)?;
    let change = SetAttr { size: Some(1 << 63), ..SetAttr::default() };
    fails(t.vfs.setattr(&t.ctx, file.ino, None, &change), Errno::INVAL)?;
    same(file.stat()?.size, 3)
}

fn a_thousand_links(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    for number in 1..1000 {
        t.link("f", format!("{number}"))?;
    }
    same(file.stat()?.nlink, 1000)?;
    for number in 1..1000 {
        t.unlink(format!("{number}"))?;
    }
    same(file.stat()?.nlink, 1)
}

fn a_thousand_names(t: &Tree<'_>) -> Outcome {
    let name = |number: u32| format!("a rather long name, so that many blocks are full of them {number:04}");
    for number in 0..1000 {
        t.symlink(name(number), "x")?;
    }
    for number in (0..1000).step_by(2) {
        t.unlink(name(number))?;
    }
    let names: Vec<String> = t.names(".")?.into_iter().map(|name| String::from_utf8_lossy(&name.name).into()).collect();
    same(names, (0..1000).filter(|number| number % 2 == 1).map(name).collect())?;
    fails(t.stat(name(500)), Errno::NOENT)?;
    same(t.stat(name(501))?.kind, FileType::Symlink)
}

fn statfs_tells_the_longest_name(t: &Tree<'_>) -> Outcome {
    same(t.vfs.statfs(&t.ctx, t.at)?.name_max, 255)
}

fn statfs_counts(t: &Tree<'_>) -> Outcome {
    let stat = t.vfs.statfs(&t.ctx, t.at)?;
    holds(stat.block_size.is_power_of_two(), "blocks are of a power of two bytes")?;
    holds(
        stat.blocks >= stat.free_blocks && stat.free_blocks >= stat.available_blocks,
        "parts are less than the whole",
    )?;
    holds(stat.inodes >= stat.free_inodes, "what is free is less than all")
}
