//! Reserving space, holes, and copies within the file system.

use wholly_vfs::{Errno, Fallocate, OFlags, Seek};

use crate::check::{Outcome, fails, holds, same};
use crate::suite::table;
use crate::tree::{File, Tree};

table!("space";
    allocate_grows_with_zeros, allocate_keeps_what_is_there, allocate_keep_size, allocate_takes_space,
    allocate_then_truncate, allocate_of_nothing, allocate_takes_a_writable_handle, allocate_beyond_the_largest,
    punch_makes_zeros, punch_inside_a_block, punch_beyond_the_end, punch_gives_space_back,     zero_range_makes_zeros, zero_range_can_grow, zero_range_keep_size, collapse_takes_out, collapse_to_the_end,
    collapse_wants_whole_blocks, insert_makes_room, insert_beyond_the_end,     data_is_found, a_hole_is_found, the_end_is_a_hole, nothing_behind_the_end, an_empty_file_has_neither,
    a_file_that_is_one_hole, seek_sees_punched_holes, bytes_over_two_mib, a_hole_over_two_mib, a_hole_of_four_mib,
    space_over_two_mib, copy_copies, copy_ends_at_the_end, copy_within_a_file,
    copy_refuses_overlaps, copy_leaves_what_is_around, copy_grows_the_target, copy_of_nothing, copy_takes_right_handles,
    copy_refuses_to_append, copy_keeps_its_source,
);

const KIB: u64 = 1024;
const BLOCK: u64 = 64 * KIB;

/// So many blocks, the first full of 1, the next of 2.
fn blocks(count: u8) -> Vec<u8> {
    (1..=count).flat_map(|block| vec![block; BLOCK as usize]).collect()
}

fn file<'v>(t: &Tree<'v>, count: u8) -> Result<File<'v>, Errno> {
    let file = t.file("f", 0o644, &blocks(count))?;
    file.fsync()?;
    Ok(file)
}

const KEEP: Fallocate = Fallocate::Keep;
const PUNCH: Fallocate = Fallocate::Punch;
const ZERO: Fallocate = Fallocate::ZeroExtend;
const COLLAPSE: Fallocate = Fallocate::Collapse;
const INSERT: Fallocate = Fallocate::Insert;

fn allocate_grows_with_zeros(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    file.allocate(Fallocate::Extend, 10, 1000)?;
    let mut wanted = vec![0; 1010];
    wanted[..3].copy_from_slice(b"abc");
    same(file.content()?, wanted)
}

fn allocate_keeps_what_is_there(t: &Tree<'_>) -> Outcome {
    let file = file(t, 2)?;
    file.allocate(Fallocate::Extend, 100, BLOCK)?;
    holds(file.content()? == blocks(2), "nothing has changed")
}

fn allocate_keep_size(t: &Tree<'_>) -> Outcome {
    let file = t.file("f", 0o644, b"abc")?;
    file.allocate(KEEP, 0, 4 * BLOCK)?;
    let stat = file.stat()?;
    same(stat.size, 3)?;
    holds(stat.blocks * 512 >= 4 * BLOCK, "space beyond the end is reserved")?;
    same(file.content()?, b"abc".to_vec())?;
    file.truncate(BLOCK)?;
    holds(file.read(3, BLOCK as usize)?.iter().all(|&byte| byte == 0), "what was reserved reads as zeros")
}

fn allocate_takes_space(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    file.allocate(Fallocate::Extend, 0, 8 * BLOCK)?;
    holds(file.stat()?.blocks * 512 >= 8 * BLOCK, "space is reserved")
}

fn allocate_then_truncate(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    file.allocate(Fallocate::Extend, 0, 8 * BLOCK)?;
    file.truncate(0)?;
    holds(file.stat()?.blocks * 512 < BLOCK, "space is given back")
}

fn allocate_of_nothing(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    fails(file.allocate(Fallocate::Extend, 0, 0), Errno::INVAL)?;
    fails(file.allocate(PUNCH, 0, 0), Errno::INVAL)?;
    fails(file.allocate(Fallocate::Extend, 1 << 63, 1), Errno::INVAL)
}

fn allocate_takes_a_writable_handle(t: &Tree<'_>) -> Outcome {
    file(t, 1)?;
    let file = t.open("f", OFlags::RDONLY)?;
    fails(file.allocate(Fallocate::Extend, 0, 2 * BLOCK), Errno::BADF)?;
    fails(file.allocate(PUNCH, 0, 1), Errno::BADF)
}

fn allocate_beyond_the_largest(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    fails(file.allocate(Fallocate::Extend, i64::MAX as u64, 1), Errno::FBIG)?;
    fails(file.allocate(Fallocate::Extend, 1, i64::MAX as u64), Errno::FBIG)
}

fn punch_makes_zeros(t: &Tree<'_>) -> Outcome {
    let file = file(t, 3)?;
    file.allocate(PUNCH, BLOCK, BLOCK)?;
    let mut wanted = blocks(3);
    wanted[BLOCK as usize..2 * BLOCK as usize].fill(0);
    holds(file.content()? == wanted, "the middle is zeros, the rest as it was")
}

fn punch_inside_a_block(t: &Tree<'_>) -> Outcome {
    let file = file(t, 1)?;
    for (offset, len) in [(100, 10), (4000, 200), (8191, 2), (12_000, 10_000)] {
        file.allocate(PUNCH, offset, len)?;
        let around = file.read(offset - 1, len as usize + 2)?;
        holds(around[0] == 1 && around[len as usize + 1] == 1, "what is around it stays")?;
        holds(around[1..=len as usize].iter().all(|&byte| byte == 0), "it is zeros")?;
    }
    Ok(())
}

fn punch_beyond_the_end(t: &Tree<'_>) -> Outcome {
    let file = file(t, 1)?;
    file.allocate(PUNCH, BLOCK - 10, 10 * BLOCK)?;
    file.allocate(PUNCH, 5 * BLOCK, BLOCK)?;
    same(file.stat()?.size, BLOCK)?;
    same(file.read(BLOCK - 11, 20)?, [&[1][..], &[0; 10]].concat())
}

fn punch_gives_space_back(t: &Tree<'_>) -> Outcome {
    let file = file(t, 8)?;
    let before = file.stat()?.blocks;
    file.allocate(PUNCH, BLOCK, 6 * BLOCK)?;
    holds(file.stat()?.blocks * 512 + 6 * BLOCK <= before * 512, "a hole takes no space")
}

fn zero_range_makes_zeros(t: &Tree<'_>) -> Outcome {
    let file = file(t, 3)?;
    file.allocate(ZERO, BLOCK - 10, BLOCK + 20)?;
    let mut wanted = blocks(3);
    wanted[BLOCK as usize - 10..2 * BLOCK as usize + 10].fill(0);
    holds(file.content()? == wanted, "the range is zeros, the rest as it was")
}

fn zero_range_can_grow(t: &Tree<'_>) -> Outcome {
    let file = file(t, 1)?;
    file.allocate(ZERO, BLOCK - 10, 100)?;
    same(file.stat()?.size, BLOCK + 90)?;
    same(file.read(BLOCK - 11, 200)?, [&[1][..], &[0; 100]].concat())
}

fn zero_range_keep_size(t: &Tree<'_>) -> Outcome {
    let file = file(t, 1)?;
    file.allocate(Fallocate::Zero, BLOCK - 10, 100)?;
    same(file.stat()?.size, BLOCK)?;
    same(file.read(BLOCK - 11, 200)?, [&[1][..], &[0; 10]].concat())
}

fn collapse_takes_out(t: &Tree<'_>) -> Outcome {
    let file = file(t, 3)?;
    file.allocate(COLLAPSE, BLOCK, BLOCK)?;
    let whole = blocks(3);
    holds(file.content()? == [&whole[..BLOCK as usize], &whole[2 * BLOCK as usize..]].concat(), "the middle is gone")
}

fn collapse_to_the_end(t: &Tree<'_>) -> Outcome {
    let file = file(t, 2)?;
    fails(file.allocate(COLLAPSE, BLOCK, BLOCK), Errno::INVAL)?;
    fails(file.allocate(COLLAPSE, 0, 3 * BLOCK), Errno::INVAL)?;
    same(file.stat()?.size, 2 * BLOCK)
}

fn collapse_wants_whole_blocks(t: &Tree<'_>) -> Outcome {
    let file = file(t, 3)?;
    fails(file.allocate(COLLAPSE, 100, BLOCK), Errno::INVAL)?;
    fails(file.allocate(COLLAPSE, 0, 100), Errno::INVAL)?;
    holds(file.content()? == blocks(3), "nothing has changed")
}

fn insert_makes_room(t: &Tree<'_>) -> Outcome {
    let file = file(t, 2)?;
    file.allocate(INSERT, BLOCK, BLOCK)?;
    let whole = blocks(2);
    let wanted = [&whole[..BLOCK as usize], &[0; BLOCK as usize], &whole[BLOCK as usize..]].concat();
    holds(file.content()? == wanted, "there are zeros between")
}

fn insert_beyond_the_end(t: &Tree<'_>) -> Outcome {
    let file = file(t, 1)?;
    fails(file.allocate(INSERT, BLOCK, BLOCK), Errno::INVAL)?;
    fails(file.allocate(INSERT, 100, BLOCK), Errno::INVAL)?;
    same(file.stat()?.size, BLOCK)
}

/// Data, a hole, data: a block each, the hole as large as any file system's units.
fn with_hole<'v>(t: &Tree<'v>) -> Result<File<'v>, Errno> {
    let file = t.create("f", 0o644)?;
    file.write_all(0, &[1; BLOCK as usize])?;
    file.write_all(32 * BLOCK, &[2; BLOCK as usize])?;
    Ok(file)
}

fn data_is_found(t: &Tree<'_>) -> Outcome {
    let file = with_hole(t)?;
    same(file.seek(Seek::Data(0))?, 0)?;
    same(file.seek(Seek::Data(100))?, 100)?;
    same(file.seek(Seek::Data(16 * BLOCK))?, 32 * BLOCK)?;
    same(file.seek(Seek::Data(32 * BLOCK + 5))?, 32 * BLOCK + 5)
}

fn a_hole_is_found(t: &Tree<'_>) -> Outcome {
    let file = with_hole(t)?;
    let hole = file.seek(Seek::Hole(0))?;
    holds((BLOCK..=16 * BLOCK).contains(&hole), "it begins behind the first data")?;
    same(file.seek(Seek::Hole(16 * BLOCK))?, 16 * BLOCK)
}

fn the_end_is_a_hole(t: &Tree<'_>) -> Outcome {
    let file = with_hole(t)?;
    same(file.seek(Seek::Hole(32 * BLOCK + 7))?, 33 * BLOCK)?;
    file.truncate(33 * BLOCK - 100)?;
    same(file.seek(Seek::Hole(32 * BLOCK))?, 33 * BLOCK - 100)
}

fn nothing_behind_the_end(t: &Tree<'_>) -> Outcome {
    let file = with_hole(t)?;
    for offset in [33 * BLOCK, 33 * BLOCK + 1, 1 << 40, 1 << 63, u64::MAX] {
        fails(file.seek(Seek::Data(offset)), Errno::NXIO)?;
        fails(file.seek(Seek::Hole(offset)), Errno::NXIO)?;
    }
    Ok(())
}

fn an_empty_file_has_neither(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    fails(file.seek(Seek::Data(0)), Errno::NXIO)?;
    fails(file.seek(Seek::Hole(0)), Errno::NXIO)
}

fn a_file_that_is_one_hole(t: &Tree<'_>) -> Outcome {
    let file = t.create("f", 0o644)?;
    file.truncate(8 * BLOCK)?;
    fails(file.seek(Seek::Data(0)), Errno::NXIO)?;
    same(file.seek(Seek::Hole(0))?, 0)?;
    same(file.seek(Seek::Hole(BLOCK + 3))?, BLOCK + 3)
}

fn seek_sees_punched_holes(t: &Tree<'_>) -> Outcome {
    let file = file(t, 32)?;
    same(file.seek(Seek::Hole(0))?, 32 * BLOCK)?;
    file.allocate(PUNCH, 8 * BLOCK, 16 * BLOCK)?;
    same(file.seek(Seek::Hole(0))?, 8 * BLOCK)?;
    same(file.seek(Seek::Data(8 * BLOCK))?, 24 * BLOCK)
}

/// Where a node of a map ends that has 512 blocks of 4 KiB.
const TWO_MIB: u64 = 32 * BLOCK;

/// Blocks 1 to 6, three of them below 2 MiB and three above, behind a hole.
fn over_two_mib<'v>(t: &Tree<'v>) -> Result<(File<'v>, Vec<u8>), Errno> {
    let file = t.create("f", 0o644)?;
    file.write_all(TWO_MIB - 3 * BLOCK, &blocks(6))?;
    file.fsync()?;
    Ok((file, blocks(6)))
}

/// Those bytes of [`over_two_mib`] that lie in a range of the file.
fn of_range(from: u64, len: u64) -> std::ops::Range<usize> {
    let first = from + 3 * BLOCK - TWO_MIB;
    first as usize..(first + len) as usize
}

/// The same bytes, but what is above 2 MiB was there first: what lies side by side in the file does so nowhere else.
fn in_two_runs<'v>(t: &Tree<'v>) -> Result<(File<'v>, Vec<u8>), Errno> {
    let (file, all) = (t.create("g", 0o644)?, blocks(6));
    let (below, above) = all.split_at(3 * BLOCK as usize);
    file.write_all(TWO_MIB, above)?;
    file.fsync()?;
    file.write_all(0, below)?;
    file.write_all(TWO_MIB - 3 * BLOCK, below)?;
    file.fsync()?;
    Ok((file, all))
}

fn bytes_over_two_mib(t: &Tree<'_>) -> Outcome {
    for (file, mut wanted) in [over_two_mib(t)?, in_two_runs(t)?] {
        let writes = [(7, TWO_MIB - 100, 200), (8, TWO_MIB - BLOCK - 10, 2 * BLOCK + 20), (9, TWO_MIB - 1, 2)];
        for (byte, from, len) in writes {
            // From each of the last units of 4 KiB on.
            for from in (1..4).map(|unit| TWO_MIB - unit * 4 * KIB) {
                let len = TWO_MIB + BLOCK - from;
                holds(file.read(from, len as usize)? == wanted[of_range(from, len)], "it is the same by parts")?;
            }
            file.write_all(from, &vec![byte; len as usize])?;
            wanted[of_range(from, len)].fill(byte);
            holds(file.read(TWO_MIB - 3 * BLOCK, 6 * BLOCK as usize)? == wanted, "what was written last is there")?;
        }
        let before = file.read(TWO_MIB - 4 * BLOCK, BLOCK as usize)?;
        holds(before.iter().all(|&byte| byte == 0), "the hole is one still")?;
        file.truncate(TWO_MIB + 10)?;
        file.truncate(TWO_MIB + 3 * BLOCK)?;
        wanted[of_range(TWO_MIB, 3 * BLOCK)][10..].fill(0);
        holds(file.read(TWO_MIB - 3 * BLOCK, 6 * BLOCK as usize)? == wanted, "what was cut off is gone")?;
    }
    Ok(())
}

fn a_hole_over_two_mib(t: &Tree<'_>) -> Outcome {
    let (file, mut wanted) = over_two_mib(t)?;
    file.allocate(PUNCH, TWO_MIB - 2 * BLOCK, 4 * BLOCK)?;
    wanted[of_range(TWO_MIB - 2 * BLOCK, 4 * BLOCK)].fill(0);
    holds(file.read(TWO_MIB - 3 * BLOCK, 6 * BLOCK as usize)? == wanted, "it is zeros, what is around it stays")?;
    file.allocate(PUNCH, TWO_MIB - 2 * BLOCK - 10, 4 * BLOCK + 30)?;
    wanted[of_range(TWO_MIB - 2 * BLOCK - 10, 4 * BLOCK + 30)].fill(0);
    holds(file.read(TWO_MIB - 3 * BLOCK, 6 * BLOCK as usize)? == wanted, "so are parts of blocks at its ends")
}

fn a_hole_of_four_mib(t: &Tree<'_>) -> Outcome {
    let file = file(t, 1)?;
    file.write_all(2 * TWO_MIB + BLOCK, &[2; BLOCK as usize])?;
    same(file.seek(Seek::Data(16 * BLOCK))?, 2 * TWO_MIB + BLOCK)?;
    let (zeros, data) = (vec![0; 3 * BLOCK as usize], vec![2; BLOCK as usize]);
    holds(file.read(2 * TWO_MIB - 2 * BLOCK, 4 * BLOCK as usize)? == [&zeros[..], &data].concat(), "data ends it")?;
    holds(file.read(TWO_MIB - BLOCK, 3 * BLOCK as usize)? == zeros, "it is zeros")?;
    file.write_all(TWO_MIB - BLOCK, &[3; 2 * BLOCK as usize])?;
    let wanted = [&zeros[..BLOCK as usize], &[3; 2 * BLOCK as usize], &zeros[..BLOCK as usize]].concat();
    holds(file.read(TWO_MIB - 2 * BLOCK, 4 * BLOCK as usize)? == wanted, "data in its middle is where it belongs")
}

fn space_over_two_mib(t: &Tree<'_>) -> Outcome {
    let file = file(t, 1)?;
    file.allocate(Fallocate::Extend, TWO_MIB - 2 * BLOCK, 4 * BLOCK)?;
    let stat = file.stat()?;
    same(stat.size, TWO_MIB + 2 * BLOCK)?;
    holds(stat.blocks * 512 >= 5 * BLOCK, "space is reserved")?;
    holds(file.read(TWO_MIB - 3 * BLOCK, 5 * BLOCK as usize)? == [0; 5 * BLOCK as usize], "it reads as zeros")?;
    file.write_all(TWO_MIB - 10, &[1; 20])?;
    let wanted = [&[0; 10][..], &[1; 20], &[0; 10]].concat();
    same(file.read(TWO_MIB - 20, 40)?, wanted)
}

fn copy_copies(t: &Tree<'_>) -> Outcome {
    let (from, to) = (file(t, 3)?, t.create("g", 0o644)?);
    same(from.copy_to(100, &to, 0, BLOCK as usize)?, BLOCK as usize)?;
    holds(to.content()? == blocks(3)[100..100 + BLOCK as usize], "it is what was copied")
}

fn copy_ends_at_the_end(t: &Tree<'_>) -> Outcome {
    let (from, to) = (file(t, 1)?, t.create("g", 0o644)?);
    same(from.copy_to(BLOCK - 10, &to, 0, 1000)?, 10)?;
    same(from.copy_to(BLOCK, &to, 0, 1000)?, 0)?;
    same(from.copy_to(2 * BLOCK, &to, 0, 1000)?, 0)?;
    same(to.content()?, vec![1; 10])
}

fn copy_within_a_file(t: &Tree<'_>) -> Outcome {
    let file = file(t, 3)?;
    same(file.copy_to(2 * BLOCK, &file, 0, BLOCK as usize)?, BLOCK as usize)?;
    let mut wanted = blocks(3);
    wanted[..BLOCK as usize].fill(3);
    holds(file.content()? == wanted, "the last is the first now")
}

fn copy_refuses_overlaps(t: &Tree<'_>) -> Outcome {
    let one = file(t, 2)?;
    let other = t.open("f", OFlags::RDWR)?;
    fails(one.copy_to(0, &one, 100, 1000), Errno::INVAL)?;
    fails(one.copy_to(100, &other, 0, 1000), Errno::INVAL)?;
    fails(one.copy_to(100, &other, 100, 1), Errno::INVAL)?;
    holds(one.content()? == blocks(2), "nothing has changed")
}

fn copy_leaves_what_is_around(t: &Tree<'_>) -> Outcome {
    let (from, to) = (file(t, 1)?, t.file("g", 0o644, &[9; 1000])?);
    same(from.copy_to(0, &to, 100, 500)?, 500)?;
    same(to.content()?, [vec![9; 100], vec![1; 500], vec![9; 400]].concat())
}

fn copy_grows_the_target(t: &Tree<'_>) -> Outcome {
    let (from, to) = (file(t, 1)?, t.file("g", 0o644, b"x")?);
    same(from.copy_to(0, &to, 5000, 10)?, 10)?;
    same(to.stat()?.size, 5010)?;
    same(to.read(4998, 20)?, [vec![0; 2], vec![1; 10]].concat())
}

fn copy_of_nothing(t: &Tree<'_>) -> Outcome {
    let (from, to) = (file(t, 1)?, t.create("g", 0o644)?);
    same(from.copy_to(0, &to, 100, 0)?, 0)?;
    same(to.stat()?.size, 0)
}

fn copy_takes_right_handles(t: &Tree<'_>) -> Outcome {
    file(t, 1)?;
    t.create("g", 0o644)?;
    let (read, write) = (t.open("f", OFlags::RDONLY)?, t.open("g", OFlags::WRONLY)?);
    same(read.copy_to(0, &write, 0, 10)?, 10)?;
    fails(write.copy_to(0, &write, 100, 10), Errno::BADF)?;
    fails(read.copy_to(0, &read, 100, 10), Errno::BADF)
}

fn copy_refuses_to_append(t: &Tree<'_>) -> Outcome {
    let from = file(t, 1)?;
    t.create("g", 0o644)?;
    fails(from.copy_to(0, &t.open("g", OFlags::WRONLY | OFlags::APPEND)?, 0, 10), Errno::BADF)
}

fn copy_keeps_its_source(t: &Tree<'_>) -> Outcome {
    let (from, to) = (file(t, 1)?, t.create("g", 0o644)?);
    from.copy_to(0, &to, 0, BLOCK as usize)?;
    // Blocks may be shared by now.
    to.write_all(10, b"changed")?;
    holds(from.content()? == blocks(1), "the source stays as it was")?;
    from.write_all(0, b"changed")?;
    same(to.read(0, 10)?, vec![1; 10])
}
