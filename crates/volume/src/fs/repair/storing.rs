//! Storing what a repair has changed: all of it or nothing, in four steps with a fence behind each.
//!
//! 1. Copies of the changed blocks, and the tables that name them, go to blocks that are free before and after the
//!    repair, or beyond the end of the volume.
//! 2. A superblock that names the first table: from here on, the repair is to be finished.
//! 3. The copies go to where they belong.
//! 4. A superblock without tables, and of a new incarnation: what the log has is void. Twice, so that both slots and
//!    the copy at the end have it.
//!
//! A crash before step 2 leaves what was there. A crash after it leaves what the next opener finishes, or the next
//! repair or check, by the steps 3 and 4 ([`finish`]). So a repair can be interrupted anywhere, and repeated.

use std::collections::HashSet;

use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use crate::engine::marks::Marks;
use crate::engine::{InodeMap, Load, Moved, corrupt};
use crate::format::log::{ForLog, LogArea};
use crate::format::repair::{Move, PER_TABLE, Table, copy_sum};
use crate::format::superblock::{Superblock, copies};
use crate::format::{BLOCK, Fault, Lba, Seed};
use crate::fs::check::examine;
use crate::fs::mount::{Plain, ensure_slot, exact, read_superblock, store_moved};
use crate::fs::overlay::{Overlay, is_lost};
use crate::fs::storage::{Storage, write_superblock};

const COPY: Site = Site("repair.copy");
const TABLE: Site = Site("repair.table");
const COPY_FENCE: Site = Site("repair.copy.fence");
const COMMIT_FENCE: Site = Site("repair.commit.fence");
const HOME: Site = Site("repair.home");
const HOME_FENCE: Site = Site("repair.home.fence");
const END_FENCE: Site = Site("repair.end.fence");
const LENGTH: Site = Site("repair.length");
/// Where a repair stores, besides superblocks and what a mount and an unmount store.
pub const SITES: &[Site] = &[COPY, TABLE, COPY_FENCE, COMMIT_FENCE, HOME, HOME_FENCE, END_FENCE, LENGTH];

/// Gives a sound volume a log, in free blocks, which `is_used` tells. Durable on return; a crash leaves it without one.
///
/// # Errors
/// `NoSpace` if not enough free blocks lie next to each other.
pub fn give_log(region: &dyn Region, area: fn(Lba, ForLog) -> LogArea, is_used: &dyn Fn(Lba) -> bool) -> Result<()> {
    let mut superblock = read_superblock(region)?;
    let wanted = ForLog { blocks: superblock.blocks, queues: None };
    let count = area(Lba(0), wanted).run().count;
    let [_, second, last] = copies(superblock.blocks);
    let (mut start, mut free) = (second.0 + 1, 0);
    while free < count {
        if start + free >= last.0 {
            let text = format!("a log: it takes {} free blocks that lie next to each other", exact(count));
            return Err(Error::NoSpace(text));
        }
        match is_used(Lba(start + free)) {
            true => (start, free) = (start + free + 1, 0),
            false => free += 1,
        }
    }
    // What stood there may look like a log.
    for block in start..start + count {
        region.write(COPY, Lba(block).byte(), &[0; BLOCK])?;
    }
    region.fence(COPY_FENCE)?;
    superblock.log = Some(area(Lba(start), wanted));
    // The next mount finds it in no map, and notes it in the bitmaps.
    (superblock.saved, superblock.is_clean, superblock.doubts_bitmaps) = (None, false, true);
    ensure_slot(region, &superblock)?;
    write_superblock(&mut Plain { region, next: 0 }, &mut superblock)?;
    Ok(region.fence(END_FENCE)?)
}

/// Makes a log void whose patches are stored, and that names what may have moved, and where the inode file is. A crash
/// repeats that.
///
/// # Errors
/// Those of the medium.
pub fn end_log(region: &dyn Region, moved: &[Moved], map: Option<InodeMap>) -> Result<()> {
    // The newest may have been one that was undone.
    let mut superblock = read_superblock(region)?;
    ensure_slot(region, &superblock)?;
    store_moved(region, &Storage::new(superblock.clone()), moved)?;
    (superblock.saved, superblock.is_clean) = (None, false);
    // Groups that are lost have not changed both; and what is put right next changes maps alone.
    superblock.doubts_bitmaps = superblock.bitmaps.is_some();
    if let Some(map) = map {
        superblock.set_inode_file(map);
    }
    // Past the next one: a mount that was interrupted may have kept heads for that.
    superblock.incarnation += 2;
    write_superblock(&mut Plain { region, next: 0 }, &mut superblock)?;
    Ok(region.fence(COMMIT_FENCE)?)
}

/// Gives up what is left of a repair whose copies are damaged: what it would have put right is damaged still.
///
/// # Errors
/// Those of the medium.
pub fn give_up(region: &dyn Region) -> Result<()> {
    let mut superblock = read_superblock(region)?;
    ensure_slot(region, &superblock)?;
    (superblock.repair, superblock.saved, superblock.is_clean) = (None, None, false);
    superblock.doubts_bitmaps = superblock.bitmaps.is_some();
    superblock.incarnation += 1;
    write_superblock(&mut Plain { region, next: 0 }, &mut superblock)?;
    Ok(region.fence(COMMIT_FENCE)?)
}

/// Stores what a repair has changed: all of it or nothing. `before` are the blocks in use without the repair.
///
/// # Errors
/// If there is no room for copies of what has changed; those of the medium.
pub fn store(region: &dyn Region, over: &Overlay<'_>, before: &Marks) -> Result<()> {
    over.confirm()?;
    let mut after = read_superblock(over)?;
    let marks = examine(over, &after, &mut |_| std::ops::ControlFlow::Continue(()))?.marks;
    // A block that could not be read and is free now is written, so that it can be read.
    let lost: HashSet<u64> = over.unreadable().into_iter().map(|(block, _)| block).collect();
    for block in lost.iter().filter(|block| **block < after.blocks && !marks.is_marked(Lba(**block))) {
        over.put(Lba(*block).byte(), &[0; BLOCK])?;
    }
    // What was taken and given up again is free, and may have a copy.
    let superblocks = copies(after.blocks);
    let stays = |block: u64| {
        let is_used = lost.contains(&block) || block < after.blocks && marks.is_marked(Lba(block));
        is_used && !superblocks.contains(&Lba(block))
    };
    let mut count = 0;
    over.changes(|block, _| {
        count += usize::from(stays(block));
        Ok(())
    })?;
    let tables = count.div_ceil(PER_TABLE);
    let wanted = count + tables;
    let is_free = |block: &u64| {
        let is_inside = *block < after.blocks;
        let is_used = is_inside && (marks.is_marked(Lba(*block)) || before.is_marked(Lba(*block)));
        !is_used && !lost.contains(block) && !superblocks.contains(&Lba(*block))
    };
    let (len, end) = (region.len(), region.len() / BLOCK as u64);
    let mut room: Vec<Lba> = (2..end).filter(is_free).take(wanted).map(Lba).collect();
    let missing = (wanted - room.len()) as u64;
    room.extend((end..end + missing).map(Lba));
    let shorten = || if region.len() > len { region.set_len(LENGTH, len) } else { Ok(()) };
    let prepare = || {
        if missing > 0 {
            region.extend(LENGTH, (end + missing) * BLOCK as u64)?;
        }
        store_copies(region, over, &stays, room.split_at(tables))
    };
    let next = match prepare() {
        Ok(next) => next,
        Err(error) => {
            shorten()?;
            return Err(error);
        }
    };
    let current = read_superblock(region)?;
    ensure_slot(region, &current)?;
    after.generation = current.generation;
    after.incarnation = after.incarnation.max(current.incarnation);
    (after.repair, after.saved, after.is_clean) = (next, None, false);
    if next.is_none() {
        // Superblocks alone.
        return end_with(region, after);
    }
    write_superblock(&mut Plain { region, next: 0 }, &mut after)?;
    region.fence(COMMIT_FENCE)?;
    finish(region)?;
    Ok(shorten()?)
}

/// Stores the copies, and the tables that name them. Returns the first table.
fn store_copies(
    region: &dyn Region,
    over: &Overlay<'_>,
    stays: &dyn Fn(u64) -> bool,
    (of_tables, of_copies): (&[Lba], &[Lba]),
) -> Result<Option<(Lba, u64)>> {
    let seed = Seed::of(&read_superblock(over)?.volume_id);
    let (mut moves, mut room) = (Vec::new(), of_copies.iter());
    over.changes(|block, bytes| {
        if stays(block) {
            let copy = *room.next().expect("they were counted");
            region.write(COPY, copy.byte(), bytes)?;
            moves.push(Move { home: Lba(block), copy, sum: copy_sum(seed, copy, bytes) });
        }
        Ok(())
    })?;
    let mut next = None;
    for (at, moves) in of_tables.iter().zip(moves.chunks(PER_TABLE)).rev() {
        let (block, sum) = Table { next, moves: moves.to_vec() }.encode(seed, *at);
        region.write(TABLE, at.byte(), &block)?;
        next = Some((*at, sum));
    }
    region.fence(COPY_FENCE)?;
    Ok(next)
}

/// What an unfinished repair has to store yet: blocks, and where their bytes are.
///
/// # Errors
/// [`Error::Corrupt`] if it is damaged; those of the medium.
pub fn unfinished(region: &dyn Region, superblock: &Superblock) -> Result<Vec<(Lba, Lba)>> {
    let (view, seed) = (Plain { region, next: 0 }, Seed::of(&superblock.volume_id));
    let damaged = |fault| corrupt("an unfinished repair", fault);
    let load = |at: Lba| {
        let mut block = [0; BLOCK];
        match view.load(at, 0, &mut block) {
            Err(Error::Media(error)) if is_lost(&error) => Err(damaged(Fault("a block of it cannot be read"))),
            loaded => loaded.map(|()| block),
        }
    };
    // Each block is named once: so there is an end.
    let named = Marks::new(region.len() / BLOCK as u64);
    copies(superblock.blocks).into_iter().for_each(|at| _ = named.mark(at));
    let once = |at: Lba| match named.mark(at) {
        false => Ok(()),
        true => Err(damaged(Fault("it names a block twice"))),
    };
    let mut all = Vec::new();
    let mut next = superblock.repair;
    while let Some((at, sum)) = next {
        once(at)?;
        let table = Table::decode(seed, at, &load(at)?, sum).map_err(damaged)?;
        for Move { home, copy, sum } in table.moves {
            once(home)?;
            once(copy)?;
            if home.0 >= superblock.blocks || copy_sum(seed, copy, &load(copy)?) != sum {
                return Err(damaged(Fault("the copy of a block has a wrong checksum")));
            }
            all.push((home, copy));
        }
        next = table.next;
    }
    Ok(all)
}

/// Finishes a repair that was interrupted. Returns whether there was one.
///
/// # Errors
/// As [`unfinished`].
pub fn finish(region: &dyn Region) -> Result<bool> {
    let superblock = read_superblock(region)?;
    if superblock.repair.is_none() {
        return Ok(false);
    }
    let all = unfinished(region, &superblock)?;
    ensure_slot(region, &superblock)?;
    for (home, copy) in all {
        let mut bytes = [0; BLOCK];
        region.read(copy.byte(), &mut bytes)?;
        region.write(HOME, home.byte(), &bytes)?;
    }
    region.fence(HOME_FENCE)?;
    end_with(region, superblock)?;
    Ok(true)
}

/// A superblock without tables, in both slots and at the end. The next mount finds out what is free.
fn end_with(region: &dyn Region, mut superblock: Superblock) -> Result<()> {
    (superblock.repair, superblock.saved, superblock.is_clean) = (None, None, false);
    superblock.incarnation += 1;
    for _ in 0..2 {
        write_superblock(&mut Plain { region, next: 0 }, &mut superblock)?;
        region.fence(END_FENCE)?;
    }
    Ok(())
}
