//! Reading, writing, appending, cutting.

use wholly_vfs::{Errno, OFlags};

use super::one_of_each;
use crate::check::{Outcome, fails, holds, same};
use crate::suite::table;
use crate::tree::Tree;

table!("data";
    writes_are_read_back, reads_end_at_the_end, reads_beyond_the_end, writes_of_nothing, writes_beyond_the_end_leave_zeros,
    overwrites_change_only_what_they_cover, writes_across_blocks, a_large_write, many_small_writes,
    append_handles_write_at_the_end, append_follows_other_writers, append_tells_where, append_of_nothing,
    append_after_truncate, truncate_cuts, truncate_grows_with_zeros, truncate_does_not_bring_bytes_back,
    truncate_inside_a_block_and_back, truncate_by_handle, truncate_of_other_types, truncate_takes_a_writable_handle,
    trunc_empties, trunc_of_links_empties_their_target, read_takes_a_readable_handle, write_takes_a_writable_handle,
    directories_are_not_opened, special_files_are_not_opened, directory_flag_refuses_files, symlinks_are_not_opened,
    sparse_files_read_zeros, sparse_files_take_little_space, blocks_are_given_back, sync_handles_write,
    write_by_one_handle_after_cut_by_another, random_writes_match_a_buffer;
    users: a_handle_keeps_its_permissions,
);

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8 | 1).collect()
}

fn writes_are_read_back(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    for len in [1, 511, 512, 513, 4095, 4096, 4097, 65_536, 100_000] {
        same(file.write(0, &pattern(len))?, len)?;
        same(file.read(0, len)?, pattern(len))?;
        same(t.stat("f")?.size, len as u64)?;
    }
    Ok(())
}

fn reads_end_at_the_end(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, &pattern(5000))?;
    same(file.read(4990, 100)?, pattern(5000)[4990..].to_vec())?;
    same(file.read(4999, 1)?.len(), 1)?;
    same(file.read(0, 0)?, vec![])
}

fn reads_beyond_the_end(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    for offset in [3, 4, 4096, 1 << 40, (1 << 62) + 1] {
        same(file.read(offset, 10)?, vec![])?;
    }
    Ok(())
}

fn writes_of_nothing(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    same(file.write(100, b"")?, 0)?;
    same(file.stat()?.size, 3)
}

fn writes_beyond_the_end_leave_zeros(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    file.write_all(10_000, b"d")?;
    let mut wanted = vec![0; 10_001];
    wanted[..3].copy_from_slice(b"abc");
    wanted[10_000] = b'd';
    same(file.content()?, wanted)
}

fn overwrites_change_only_what_they_cover(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, &pattern(20_000))?;
    let mut wanted = pattern(20_000);
    for (offset, len) in [(0, 1), (1, 62), (63, 2), (4000, 200), (8192, 4096), (12_287, 3), (19_999, 1)] {
        let data = vec![b'-'; len];
        file.write_all(offset as u64, &data)?;
        wanted[offset..offset + len].copy_from_slice(&data);
        same(file.content()?, wanted.clone())?;
    }
    Ok(())
}

fn writes_across_blocks(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    for block in (0..8u64).rev() {
        file.write_all(block * 4096 + 4090, &[block as u8 + 1; 12])?;
    }
    let content = file.content()?;
    same(content.len(), 7 * 4096 + 4102)?;
    for (at, &byte) in content.iter().enumerate() {
        // The first 6 bytes of a block, but of the first, are what was written from the one before it.
        let wanted = match (at / 4096, at % 4096) {
            (0, 0..6) => 0,
            (block, 0..6) => block,
            (block, 4090..) => block + 1,
            _ => 0,
        };
        holds(usize::from(byte) == wanted, "each byte is what was written there last")?;
    }
    Ok(())
}

fn a_large_write(t: &Tree<'_>) -> Outcome {
    let data = pattern(5 << 20);
    let file = t.create("f", 0o644)?;
    same(file.write(3, &data)?, data.len())?;
    same(file.read(3, data.len())?, data)
}

fn many_small_writes(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    let data = pattern(3000);
    for (at, byte) in data.iter().enumerate() {
        file.write_all(at as u64, &[*byte])?;
    }
    same(file.content()?, data)
}

fn append_handles_write_at_the_end(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    let file = t.open("f", OFlags::WRONLY | OFlags::APPEND)?;
    same(file.write(0, b"def")?, 3)?;
    same(file.write(1000, b"g")?, 1)?;
    same(t.content("f")?, b"abcdefg".to_vec())
}

fn append_follows_other_writers(t: &Tree<'_>) -> Outcome {
    let other = t.file("f", 0o644, b"a")?;
    let file = t.open("f", OFlags::WRONLY | OFlags::APPEND)?;
    file.write_all(0, b"b")?;
    other.write_all(2, b"c")?;
    file.write_all(0, b"d")?;
    other.write_all(0, b"A")?;
    same(t.content("f")?, b"Abcd".to_vec())
}

fn append_tells_where(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    same(file.append(b"de")?, (3, 2))?;
    file.write_all(100, b"x")?;
    same(file.append(b"y")?, (101, 1))?;
    let appending = t.open("f", OFlags::RDWR | OFlags::APPEND)?;
    same(appending.append(b"zz")?, (102, 2))?;
    same(file.read(99, 10)?, b"\0xyzz".to_vec())
}

fn append_of_nothing(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    same(file.append(b"")?, (3, 0))?;
    same(file.stat()?.size, 3)
}

fn append_after_truncate(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abcdef")?;
    file.truncate(2)?;
    same(file.append(b"x")?, (2, 1))?;
    file.truncate(5)?;
    same(file.append(b"y")?, (5, 1))?;
    same(file.content()?, b"abx\0\0y".to_vec())
}

fn truncate_cuts(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, &pattern(20_000))?;
    for size in [19_999, 12_288, 8191, 1, 0] {
        same(t.truncate("f", size)?.size, size)?;
        same(file.content()?, pattern(20_000)[..size as usize].to_vec())?;
    }
    Ok(())
}

fn truncate_grows_with_zeros(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    t.truncate("f", 10_000)?;
    let mut wanted = vec![0; 10_000];
    wanted[..3].copy_from_slice(b"abc");
    same(file.content()?, wanted)
}

fn truncate_does_not_bring_bytes_back(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, &pattern(20_000))?;
    for cut in [15_000, 8192, 5000, 3] {
        t.truncate("f", cut)?;
        t.truncate("f", 20_000)?;
        let mut wanted = pattern(20_000);
        wanted[cut as usize..].fill(0);
        same(file.content()?, wanted)?;
    }
    Ok(())
}

fn truncate_inside_a_block_and_back(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, &[b'x'; 100])?;
    file.truncate(50)?;
    file.write_all(60, b"y")?;
    same(file.read(48, 20)?, b"xx\0\0\0\0\0\0\0\0\0\0y".to_vec())
}

fn truncate_by_handle(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    same(file.truncate(1)?.size, 1)?;
    same(file.truncate(3)?.size, 3)?;
    same(t.content("f")?, b"a\0\0".to_vec())
}

fn truncate_of_other_types(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    fails(t.truncate("dir", 0), Errno::ISDIR)?;
    fails(t.truncate("fifo", 0), Errno::INVAL)?;
    fails(t.truncate("socket", 0), Errno::INVAL)
}

fn truncate_takes_a_writable_handle(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    fails(t.open("f", OFlags::RDONLY)?.truncate(0), Errno::INVAL)?;
    same(t.stat("f")?.size, 3)
}

fn trunc_empties(t: &Tree<'_>) -> Outcome {
    let before = t.file("f", 0o644, b"abc")?;
    let file = t.open("f", OFlags::WRONLY | OFlags::TRUNC)?;
    same((file.ino, file.stat()?.size, before.stat()?.size), (before.ino, 0, 0))
}

fn trunc_of_links_empties_their_target(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    t.symlink("l", "f")?;
    t.open("l", OFlags::WRONLY | OFlags::TRUNC)?;
    same((t.stat("f")?.size, t.readlink("l")?), (0, b"f".to_vec()))
}

fn read_takes_a_readable_handle(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    fails(t.open("f", OFlags::WRONLY)?.read(0, 1), Errno::BADF)
}

fn write_takes_a_writable_handle(t: &Tree<'_>) -> Outcome {
    t.file("f", 0o644, b"abc")?;
    let file = t.open("f", OFlags::RDONLY)?;
    fails(file.write(0, b"x"), Errno::BADF)?;
    fails(file.append(b"x"), Errno::BADF)?;
    same(t.content("f")?, b"abc".to_vec())
}

fn directories_are_not_opened(t: &Tree<'_>) -> Outcome {
    t.mkdir("d", 0o755)?;
    fails(t.open("d", OFlags::WRONLY), Errno::ISDIR)?;
    fails(t.open("d", OFlags::RDWR), Errno::ISDIR)?;
    fails(t.open("d", OFlags::RDONLY), Errno::ISDIR)
}

fn special_files_are_not_opened(t: &Tree<'_>) -> Outcome {
    one_of_each(t)?;
    for name in ["fifo", "socket"] {
        fails(t.open(name, OFlags::RDWR), Errno::NXIO)?;
    }
    Ok(())
}

fn directory_flag_refuses_files(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    fails(t.open("f", OFlags::RDONLY | OFlags::DIRECTORY), Errno::NOTDIR)
}

fn symlinks_are_not_opened(t: &Tree<'_>) -> Outcome {
    t.create("f", 0o644)?;
    t.symlink("l", "f")?;
    let link = t.find("l")?;
    fails(t.vfs.open(&t.ctx, link.ino(), OFlags::RDONLY), Errno::LOOP)
}

fn sparse_files_read_zeros(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    for offset in [3 << 20, 1 << 20, 100] {
        file.write_all(offset, b"x")?;
    }
    let content = file.content()?;
    let written: Vec<usize> = (0..content.len()).filter(|&at| content[at] != 0).collect();
    same((content.len(), written), ((3 << 20) + 1, vec![100, 1 << 20, 3 << 20]))
}

fn sparse_files_take_little_space(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    file.truncate(100 << 20)?;
    holds(file.stat()?.blocks * 512 < 1 << 20, "a hole takes no space")?;
    file.write_all(50 << 20, b"x")?;
    file.fsync()?;
    let taken = file.stat()?.blocks * 512;
    holds(taken > 0 && taken < 1 << 20, "what is written takes space, the rest does not")
}

fn blocks_are_given_back(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, &pattern(1 << 20))?;
    file.fsync()?;
    holds(file.stat()?.blocks >= 2048, "a mebibyte takes a mebibyte")?;
    file.truncate(0)?;
    holds(file.stat()?.blocks < 64, "nothing takes nothing")
}

fn sync_handles_write(t: &Tree<'_>) -> Outcome {
    for (name, flag) in [("a", OFlags::SYNC), ("b", OFlags::DSYNC)] {
        let file = t.open_with(name, OFlags::RDWR | OFlags::CREATE | flag, 0o644)?;
        file.write_all(0, b"abc")?;
        same(file.content()?, b"abc".to_vec())?;
    }
    Ok(())
}

fn write_by_one_handle_after_cut_by_another(t: &Tree<'_>) -> Outcome {
    let one = t.file("f", 0o644, &pattern(9000))?;
    let two = t.open("f", OFlags::RDWR | OFlags::TRUNC)?;
    one.write_all(8000, b"x")?;
    let mut wanted = vec![0; 8001];
    wanted[8000] = b'x';
    same(two.content()?, wanted)
}

fn random_writes_match_a_buffer(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    let (mut model, mut state) = (Vec::<u8>::new(), 12_345u64);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..300u64 {
        let offset = random(60_000) as usize;
        if random(8) == 0 {
            file.truncate(offset as u64)?;
            model.resize(offset, 0);
            continue;
        }
        let data = vec![round as u8 | 1; random(9000) as usize + 1];
        file.write_all(offset as u64, &data)?;
        model.resize(model.len().max(offset + data.len()), 0);
        model[offset..offset + data.len()].copy_from_slice(&data);
    }
    holds(file.content()? == model, "the file is what the buffer is")
}

fn a_handle_keeps_its_permissions(t: &Tree<'_>) -> Outcome {
    let ann = t.user(super::ANN);
    let file = ann.file("f", 0o600, b"abc")?;
    ann.chmod("f", 0)?;
    fails(ann.open("f", OFlags::RDONLY), Errno::ACCESS)?;
    file.write_all(3, b"d")?;
    same(file.content()?, b"abcd".to_vec())?;
    same(file.truncate(1)?.size, 1)?;
    fails(ann.truncate("f", 0), Errno::ACCESS)
}
