//! Bitmaps on the medium: which blocks and which inodes are in use, and which inodes have no name.
//!
//! # Terms
//!
//! - *section*: [`UNITS`] consecutive blocks of a volume; the last one may have fewer. At its start it has the bitmap
//!   block for its own blocks, and behind that pairs of bitmap blocks for inodes.
//! - *bitmap block*: a head of one line, and [`UNITS`] bits. The head has how many of the bits are 0, and a checksum of
//!   the block, whose seed names the volume, the kind of the bitmap and the number of the bitmap block. A total of all
//!   bitmap blocks is nowhere: each group would change it.
//!
//! # What the bits say
//!
//! | bit of `Inodes` | bit of `Orphans` | the inode |
//! |---|---|---|
//! | 0 | 0 | is free |
//! | 1 | 0 | is in use |
//! | 1 | 1 | is in use, and has no name: an *orphan*. It is freed when nobody has it open, or at the next mount |
//! | 0 | 1 | is none: the inode file has no block for it |
//!
//! A bit of `Blocks` is 1 for a block that is in use, the fixed ones among them. Those behind the end of the volume are
//! 0. That of the last block, which has a copy of the superblock, has no meaning, and is 0: so a volume grows without
//! it. Behind the last inode there is none: 0 in `Inodes`, and 1 in `Orphans`.

use super::{BLOCK, Fault, Lba, Run, Seed};
use crate::format::inode::{LINE, PER_BLOCK};

/// Bits of a bitmap block, and blocks of a section.
pub const UNITS: u64 = ((BLOCK - LINE) * 8) as u64;
/// Words of 64 bits in a bitmap block.
pub const WORDS: usize = (UNITS / 64) as usize;
/// Pairs of bitmap blocks for inodes in each section but the first.
const PAIRS: u64 = 4;
/// Blocks of a section, at least, but for the first.
const LEAST: u64 = 16;

/// What the bits of a bitmap block are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bitmap {
    /// Blocks that are in use.
    Blocks = 0,
    /// Inodes that are in use.
    Inodes = 1,
    /// Inodes without a name, and such as do not exist.
    Orphans = 2,
}

/// A bitmap block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BitmapAt {
    /// What its bits are about.
    pub of: Bitmap,
    /// The number of the bitmap block among those.
    pub index: u64,
}

impl std::fmt::Display for BitmapAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = match self.of {
            Bitmap::Blocks => "blocks",
            Bitmap::Inodes => "inodes",
            Bitmap::Orphans => "orphans",
        };
        write!(f, "bitmap block {} of {of}", self.index)
    }
}

/// Where the bitmap blocks of a volume are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pairs of bitmap blocks for inodes in the first section, which never change.
    pairs: u64,
}

fn sections(blocks: u64) -> u64 {
    blocks.div_ceil(UNITS)
}

fn start(section: u64) -> u64 {
    // The slots of the superblock are in the first two blocks.
    section * UNITS + if section == 0 { 2 } else { 0 }
}

/// The most blocks, up to so many, that a volume with bitmaps can have: a last section of a few blocks is none.
pub fn fitting(blocks: u64) -> u64 {
    let last = blocks % UNITS;
    if blocks > UNITS && last < LEAST { blocks - last } else { blocks }
}

/// The fewest blocks, of at least so many, that a volume with bitmaps can have.
pub fn holding(blocks: u64) -> u64 {
    if fitting(blocks) == blocks { blocks } else { fitting(blocks) + LEAST }
}

impl Layout {
    /// That of a new volume of so many blocks.
    pub fn of_new(blocks: u64) -> Layout {
        Layout { pairs: (blocks * PER_BLOCK).div_ceil(UNITS).clamp(1, PAIRS) }
    }

    /// Pairs of bitmap blocks for inodes in the first section.
    pub fn pairs(self) -> u64 {
        self.pairs
    }

    /// As it stands in a superblock.
    pub fn encode(self) -> u32 {
        self.pairs as u32
    }

    /// From the superblock of a volume of so many blocks.
    ///
    /// # Errors
    /// If it makes no sense.
    pub fn decode(pairs: u32, blocks: u64) -> Result<Layout, Fault> {
        let pairs = u64::from(pairs);
        match (1..=PAIRS).contains(&pairs) && start(0) + 1 + 2 * pairs < blocks && fitting(blocks) == blocks {
            true => Ok(Layout { pairs }),
            false => Err(Fault("a superblock with impossible bitmaps")),
        }
    }

    /// The block of the volume that is a bitmap block.
    pub fn place(self, at: BitmapAt) -> Lba {
        let (section, pair) = match at.index.checked_sub(self.pairs) {
            _ if at.of == Bitmap::Blocks => return Lba(start(at.index)),
            None => (0, at.index),
            Some(behind) => (1 + behind / PAIRS, behind % PAIRS),
        };
        Lba(start(section) + 2 * pair + at.of as u64)
    }

    fn pairs_of(self, section: u64) -> u64 {
        if section == 0 { self.pairs } else { PAIRS }
    }

    /// The bitmap blocks of a volume of so many blocks: one run at the start of each section.
    pub fn runs(self, blocks: u64) -> impl Iterator<Item = Run> {
        let run = move |section| Run { start: Lba(start(section)), count: 1 + 2 * self.pairs_of(section) };
        (0..sections(blocks)).map(run)
    }

    /// Whether a block is a bitmap block.
    pub fn has(self, block: u64) -> bool {
        let section = block / UNITS;
        (start(section)..start(section) + 1 + 2 * self.pairs_of(section)).contains(&block)
    }

    /// The most inodes of a volume of so many blocks.
    pub fn most_inodes(self, blocks: u64) -> u64 {
        (self.pairs + PAIRS * (sections(blocks) - 1)) * UNITS
    }

    /// The bitmap blocks that say something, of a volume of so many blocks and inodes.
    pub fn all(self, blocks: u64, inodes: u64) -> impl Iterator<Item = BitmapAt> {
        let of = |of, count| (0..count).map(move |index| BitmapAt { of, index });
        let pairs = inodes.div_ceil(UNITS);
        of(Bitmap::Blocks, sections(blocks)).chain(of(Bitmap::Inodes, pairs)).chain(of(Bitmap::Orphans, pairs))
    }

    /// How many these are.
    pub fn count(self, blocks: u64, inodes: u64) -> u64 {
        sections(blocks) + 2 * inodes.div_ceil(UNITS)
    }
}

/// The bits of a bitmap block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bits(Box<[u64; WORDS]>);

impl Bits {
    /// All are `value`.
    pub fn all(value: bool) -> Bits {
        Bits(Box::new([if value { u64::MAX } else { 0 }; WORDS]))
    }

    /// The words, the lowest bit first.
    pub fn words(&self) -> &[u64; WORDS] {
        &self.0
    }

    /// One bit.
    pub fn get(&self, bit: u64) -> bool {
        self.0[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Sets one bit.
    pub fn set(&mut self, bit: u64, value: bool) {
        let (word, mask) = (&mut self.0[(bit / 64) as usize], 1 << (bit % 64));
        if value { *word |= mask } else { *word &= !mask }
    }

    /// Makes bits `to` that are not.
    ///
    /// # Errors
    /// If one of them is already: nothing has changed then.
    pub fn toggle(&mut self, first: u64, count: u64, to: bool) -> Result<(), Fault> {
        if first.checked_add(count).is_none_or(|end| end > UNITS) || (first..first + count).any(|i| self.get(i) == to) {
            return Err(Fault("a bit has not the value that is to be changed"));
        }
        (first..first + count).for_each(|bit| self.set(bit, to));
        Ok(())
    }

    /// How many are 0.
    pub fn zeros(&self) -> u32 {
        self.0.iter().map(|word| word.count_zeros()).sum()
    }

    /// The block, as it stands on media.
    pub fn encode(&self, seed: Seed, at: BitmapAt) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[8..12].copy_from_slice(&self.zeros().to_le_bytes());
        block[12..16].copy_from_slice(&(at.of as u32).to_le_bytes());
        block[16..24].copy_from_slice(&at.index.to_le_bytes());
        for (bytes, word) in block[LINE..].chunks_exact_mut(8).zip(self.0.iter()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let sum = sum(seed, at, &block);
        block[..8].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// From the medium.
    ///
    /// # Errors
    /// If it is not this bitmap block, or damaged.
    pub fn decode(seed: Seed, at: BitmapAt, block: &[u8; BLOCK]) -> Result<Bits, Fault> {
        if block[..8] != sum(seed, at, block).to_le_bytes() {
            return Err(Fault("a bitmap block has a wrong checksum"));
        }
        let mut bits = Bits::all(false);
        for (word, bytes) in bits.0.iter_mut().zip(block[LINE..].chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        match block[8..12] == bits.zeros().to_le_bytes() {
            true => Ok(bits),
            false => Err(Fault("a bitmap block has a wrong count")),
        }
    }
}

/// The checksum covers all but itself.
fn sum(seed: Seed, at: BitmapAt, block: &[u8; BLOCK]) -> u64 {
    seed.sum(at.index, (8 + at.of as u64) << 32, &block[8..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const AT: BitmapAt = BitmapAt { of: Bitmap::Inodes, index: 3 };

    #[test]
    fn each_flipped_bit_is_detected() {
        let seed = Seed::of(&[1; 16]);
        let mut bits = Bits::all(false);
        bits.toggle(60, 9, true).expect("they are 0");
        let block = bits.encode(seed, AT);
        assert!(Bits::decode(seed, AT, &block) == Ok(bits.clone()));
        assert!(Bits::decode(seed, BitmapAt { index: 4, ..AT }, &block).is_err());
        assert!(Bits::decode(seed, BitmapAt { of: Bitmap::Orphans, ..AT }, &block).is_err());
        assert!(Bits::decode(Seed::of(&[2; 16]), AT, &block).is_err());
        for bit in 0..BLOCK * 8 {
            let mut changed = block;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Bits::decode(seed, AT, &changed).is_err(), "bit {bit}");
        }
        // A count that is wrong is found even if the checksum fits.
        let mut changed = block;
        changed[8] ^= 1;
        let sum = sum(seed, AT, &changed);
        changed[..8].copy_from_slice(&sum.to_le_bytes());
        assert!(Bits::decode(seed, AT, &changed) == Err(Fault("a bitmap block has a wrong count")));
    }

    #[test]
    fn only_bits_that_differ_are_toggled() {
        let mut bits = Bits::all(true);
        bits.toggle(100, 3, false).expect("they are 1");
        assert_eq!(bits.zeros(), 3);
        for (first, count, to) in [(102, 2, false), (99, 2, true), (UNITS - 1, 2, false), (u64::MAX, 2, false)] {
            let before = bits.clone();
            assert!(bits.toggle(first, count, to).is_err(), "{first}");
            assert!(bits == before);
        }
    }

    /// Each bitmap block is in a block of its own, in the runs of its volume, and stays where it is when that grows.
    #[test]
    fn bitmap_blocks_have_places_of_their_own() {
        for (blocks, grown) in [(64, 200), (2017, 3 * UNITS + 16), (UNITS, UNITS + 16), (5 * UNITS, 5 * UNITS)] {
            let layout = Layout::of_new(blocks);
            assert_eq!(Layout::decode(layout.encode(), blocks), Ok(layout));
            for blocks in [blocks, grown] {
                let all: Vec<_> = layout.all(blocks, layout.most_inodes(blocks)).collect();
                let places: BTreeSet<u64> = all.iter().map(|at| layout.place(*at).0).collect();
                let fixed: BTreeSet<u64> =
                    layout.runs(blocks).flat_map(|run| run.start.0..run.start.0 + run.count).collect();
                assert_eq!((places.len(), &places), (all.len(), &fixed));
                assert_eq!(all.len() as u64, layout.count(blocks, layout.most_inodes(blocks)));
                assert!(fixed.iter().all(|block| (2..blocks - 1).contains(block)));
                assert!((0..blocks).all(|block| layout.has(block) == fixed.contains(&block)));
            }
        }
        assert_eq!((fitting(UNITS + 15), fitting(UNITS + 16), fitting(20)), (UNITS, UNITS + 16, 20));
        assert_eq!((holding(UNITS), holding(UNITS + 1), holding(UNITS + 17)), (UNITS, UNITS + 16, UNITS + 17));
        assert!(Layout::decode(0, 100).is_err() && Layout::decode(5, 100).is_err());
        assert!(Layout::decode(1, UNITS + 3).is_err());
    }
}
