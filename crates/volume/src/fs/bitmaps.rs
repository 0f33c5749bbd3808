//! What the bitmaps of a volume are to say, and what is free by what they say. Groups keep them in step (`group.rs`).

use wholly_error::Result;
use wholly_media::Region;

use super::mount::Plain;
use super::space::Space;
use super::storage::BITMAP;
use crate::engine::{Load, corrupt};
use crate::format::bitmap::{Bitmap, BitmapAt, Bits, UNITS};
use crate::format::inode::{PER_BLOCK, ROOT};
use crate::format::superblock::{Superblock, copies};
use crate::format::{BLOCK, Fault, Lba, Run, Seed};

/// What a check or a new volume knows of blocks and inodes.
pub struct Truth<'t> {
    /// Whether a block is in use.
    pub is_used: &'t dyn Fn(u64) -> bool,
    /// The bits of an inode: in use or not, and whether it has no name, or is none.
    pub life: &'t dyn Fn(u64) -> (bool, bool),
}

/// The bit of a bitmap block that says nothing: that of the last block of the volume.
pub fn without_meaning(superblock: &Superblock, at: BitmapAt) -> Option<u64> {
    let last = superblock.blocks - 1;
    (at.of == Bitmap::Blocks && at.index == last / UNITS).then_some(last % UNITS)
}

/// What a bitmap block is to say.
pub fn expected(superblock: &Superblock, at: BitmapAt, truth: &Truth<'_>) -> Bits {
    // Behind the end no block is in use, and there is no inode.
    let mut bits = Bits::all(at.of == Bitmap::Orphans);
    let units = if at.of == Bitmap::Blocks { superblock.blocks - 1 } else { superblock.inodes };
    for bit in 0..units.saturating_sub(at.index * UNITS).min(UNITS) {
        let unit = at.index * UNITS + bit;
        let value = match at.of {
            Bitmap::Blocks => (truth.is_used)(unit),
            Bitmap::Inodes => (truth.life)(unit).0,
            Bitmap::Orphans => (truth.life)(unit).1,
        };
        bits.set(bit, value);
    }
    bits
}

/// What is free.
pub struct Spaces<'s> {
    pub blocks: &'s Space,
    pub inodes: &'s Space,
    /// Blocks that the inode file has not.
    pub holes: &'s Space,
}

/// Sets what is free by the bitmaps, of allocators in which all is used. Returns inodes without names.
///
/// # Errors
/// The medium's; if a bitmap block is damaged.
pub fn read(region: &dyn Region, superblock: &Superblock, spaces: &Spaces<'_>) -> Result<Vec<u64>> {
    let Some(layout) = superblock.bitmaps else { return Ok(Vec::new()) };
    let view = Plain { region, next: 0 };
    let seed = Seed::of(&superblock.volume_id);
    let bits = |at: BitmapAt| {
        let mut block = [0; BLOCK];
        view.load(layout.place(at), 0, &mut block)?;
        Bits::decode(seed, at, &block).map_err(|fault| corrupt(at.to_string(), fault))
    };
    let mut orphans = Vec::new();
    for at in layout.all(superblock.blocks, superblock.inodes).filter(|at| at.of != Bitmap::Orphans) {
        let used = bits(at)?;
        if at.of == Bitmap::Blocks {
            spaces.blocks.set_zone(at.index, used.words().iter().copied());
            continue;
        }
        let nameless = bits(BitmapAt { of: Bitmap::Orphans, ..at })?;
        let both = || used.words().iter().zip(nameless.words());
        spaces.inodes.set_zone(at.index, both().map(|(used, nameless)| used | nameless));
        for ((used, nameless), first) in both().zip((at.index * UNITS..).step_by(64)) {
            let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit);
            orphans.extend(bits(used & nameless).filter(|ino| *ino < superblock.inodes));
            let is_hole = |block: &u64| (nameless & !used) >> (block % (64 / PER_BLOCK) * PER_BLOCK) & 0xffff == 0xffff;
            let of_word = first / PER_BLOCK..((first + 64) / PER_BLOCK).min(spaces.holes.units());
            of_word.filter(is_hole).for_each(|block| _ = spaces.holes.set(block, false));
        }
    }
    for at in copies(superblock.blocks) {
        spaces.blocks.set(at.0, true);
    }
    [spaces.blocks, spaces.inodes, spaces.holes].into_iter().for_each(Space::count);
    if !spaces.inodes.is_used(ROOT) {
        let at = BitmapAt { of: Bitmap::Inodes, index: 0 };
        return Err(corrupt(at.to_string(), Fault("the root directory is not in use there")));
    }
    Ok(orphans)
}

/// A bitmap block as it is to be.
pub fn encode(superblock: &Superblock, at: BitmapAt, truth: &Truth<'_>) -> [u8; BLOCK] {
    expected(superblock, at, truth).encode(Seed::of(&superblock.volume_id), at)
}

/// Writes all bitmap blocks of a volume. The caller fences.
///
/// # Errors
/// The medium's.
pub fn write_all(region: &dyn Region, superblock: &Superblock, truth: &Truth<'_>) -> Result<()> {
    let Some(layout) = superblock.bitmaps else { return Ok(()) };
    for at in layout.all(superblock.blocks, superblock.inodes) {
        region.write(BITMAP, layout.place(at).byte(), &encode(superblock, at, truth))?;
    }
    Ok(())
}

/// Whether a block is one of those at fixed places.
pub fn is_fixed(superblock: &Superblock, block: u64) -> bool {
    let is_in = |run: Run| (run.start.0..run.start.0 + run.count).contains(&block);
    copies(superblock.blocks).contains(&Lba(block))
        || superblock.log.is_some_and(|log| is_in(log.run()))
        || superblock.bitmaps.is_some_and(|layout| layout.has(block))
}
