//! Growing, shrinking and renaming a volume that is not mounted. Nothing moves but the superblock's copy at the end.
//! Bitmap blocks of new sections are written first: nothing reads them before the volume has its new size.
//!
//! The new copy is durable first, in a block that was free or beyond the end. It commits if it is at the end of the
//! medium, where it is looked for; else the next superblock slot does, which has the same generation. Then comes the
//! other slot, so that one that rots does not bring the old size back.

use std::ops::ControlFlow;

use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use super::bitmaps::{self, Truth};
use super::check::check;
use super::map;
use super::mount::{Plain, encode_label, exact, read_superblock};
use super::storage::{BITMAP, slot_of};
use crate::format::bitmap::{self, Bitmap, BitmapAt, UNITS};
use crate::format::inode::{INODE_FILE, PER_BLOCK};
use crate::format::pointer::MAX_VOLUME_BLOCKS;
use crate::format::superblock::{MIN_BLOCKS, Superblock, copies};
use crate::format::{BLOCK, Lba, Seed, Stream};

const COPY: Site = Site("volume.resize");
const FENCE: Site = Site("volume.resize.fence");
pub const SITES: &[Site] = &[COPY, FENCE];

/// Behind the last block of the inode file.
fn inode_file_end(region: &dyn Region, superblock: &Superblock) -> Result<u64> {
    let seed = Seed::of(&superblock.volume_id).stream(INODE_FILE, 0, Stream::Data);
    let (mut end, mut failed) = (0, Ok(()));
    let mut each = |level, index, _| {
        if level == 0 {
            end = index + 1;
        }
        true
    };
    let view = Plain { region, next: 0 };
    map::walk(&view, seed, &superblock.inode_tree, &mut each, &mut |_, _, error| failed = Err(error))?;
    failed.map(|()| end)
}

/// Gives a volume so many blocks. The region is long enough for both sizes.
///
/// # Errors
/// [`Error::Corrupt`] if anything is wrong with the volume; [`Error::Busy`] if it was not unmounted;
/// [`Error::NoSpace`] if a block that is in use would be beyond the end, the medium is too short, or the engine's table
/// of heads.
pub fn resize(region: &dyn Region, blocks: u64) -> Result<()> {
    let checked = check(region, &mut |_| ControlFlow::Continue(()))?;
    if let Some(finding) = checked.findings.into_iter().chain(checked.lost_copies).next() {
        return Err(Error::Corrupt { place: finding.place, fault: finding.fault });
    }
    if !checked.is_clean {
        return Err(Error::Busy("the volume".into(), "it was not unmounted".into()));
    }
    let mut superblock = read_superblock(region)?;
    // Without holes at its end, and no longer than the volume.
    let end = inode_file_end(region, &superblock)?;
    let least = (checked.last_used_block + 2).max(MIN_BLOCKS).max(end);
    let (least, blocks) = match superblock.bitmaps {
        Some(_) => (bitmap::holding(least), bitmap::fitting(blocks)),
        None => (least, blocks),
    };
    if blocks < least {
        return Err(Error::NoSpace(format!("its content: the smallest size is {}", exact(least))));
    }
    let most_inodes = superblock.bitmaps.map_or(u64::MAX, |layout| layout.most_inodes(blocks));
    if end * PER_BLOCK > most_inodes {
        return Err(Error::NoSpace(format!("its inodes: a volume of this size has room for {most_inodes}")));
    }
    if blocks > region.len() / BLOCK as u64 || blocks >= MAX_VOLUME_BLOCKS {
        let most = exact((region.len() / BLOCK as u64).min(MAX_VOLUME_BLOCKS - 1));
        return Err(Error::NoSpace(format!("a larger volume: the largest size is {most}")));
    }
    if let Some(heads) = superblock.heads.filter(|heads| heads.blocks() < blocks) {
        let most = exact(heads.blocks());
        return Err(Error::NoSpace(format!("a larger volume: its table of heads was made for at most {most}")));
    }
    let before = superblock.blocks;
    if blocks == before {
        return Ok(());
    }
    // The saved allocators are of another length; the next mount rebuilds them.
    (superblock.blocks, superblock.saved, superblock.inodes) = (blocks, None, end * PER_BLOCK);
    bear_sections(region, &superblock, before)?;
    store(region, superblock)?;
    if blocks < before {
        // A copy of before, at the end of the medium, must not be found later.
        region.write(COPY, Lba(before - 1).byte(), &[0; BLOCK])?;
        region.fence(FENCE)?;
    }
    Ok(())
}

/// Writes the bitmap blocks of the sections that a volume has now, and had not when it had `before` blocks.
fn bear_sections(region: &dyn Region, superblock: &Superblock, before: u64) -> Result<()> {
    let Some(layout) = superblock.bitmaps else { return Ok(()) };
    let is_used = |block| bitmaps::is_fixed(superblock, block);
    let truth = Truth { is_used: &is_used, life: &|_| (false, true) };
    for index in before.div_ceil(UNITS)..superblock.blocks.div_ceil(UNITS) {
        let at = BitmapAt { of: Bitmap::Blocks, index };
        region.write(BITMAP, layout.place(at).byte(), &bitmaps::encode(superblock, at, &truth))?;
    }
    Ok(region.fence(FENCE)?)
}

/// Gives a volume another label.
///
/// # Errors
/// [`Error::Busy`] if it was not unmounted; [`Error::Invalid`] for a label that is too long.
pub fn set_label(region: &dyn Region, label: &str) -> Result<()> {
    let mut superblock = read_superblock(region)?;
    if !superblock.is_clean {
        return Err(Error::Busy("the volume".into(), "it was not unmounted".into()));
    }
    superblock.label = encode_label(label)?;
    store(region, superblock)
}

/// Writes a superblock to all its places. A crash leaves it, or the one before.
fn store(region: &dyn Region, mut superblock: Superblock) -> Result<()> {
    superblock.generation += 1;
    let [first, second, last] = copies(superblock.blocks);
    let next = slot_of(&superblock);
    let other = if next == first { second } else { first };
    for at in [last, next, other] {
        if at == other {
            superblock.generation += 1;
        }
        region.write(COPY, at.byte(), &superblock.encode(at))?;
        region.fence(FENCE)?;
    }
    Ok(())
}
