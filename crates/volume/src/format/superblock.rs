//! The superblock: two slots in blocks 0 and 1, which are written in turn, and a copy in the last block, which is
//! written each time. The one with the highest generation counts, so that the loss of any one of them is no loss.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::bitmap::Layout;
use super::head::HeadTable;
use super::inode::{InodeMap, PER_BLOCK, Tree};
use super::log::LogArea;
use super::pointer::{MAX_DEPTH, MAX_VOLUME_BLOCKS};
use super::{BLOCK, Fault, Lba, Run};
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// The version of the format that new volumes have. A volume keeps its own, so that the program that made it still
/// opens it.
///
/// There is no version 3: with that, programs that look for signatures take a volume for a table of dBase.
pub const VERSION: u32 = 4;
/// The last version in which heads have the sum of XXH3 of each line.
pub const LINES_BY_XXH3: u32 = 2;
/// In version 1 the checksum stood before the magic. A volume's first bytes were any, and programs that look for
/// signatures took some for another kind of file.
const CHECKSUM_FIRST: u32 = 1;
/// The fewest blocks of a volume.
pub const MIN_BLOCKS: u64 = 16;
const MAGIC: [u8; 8] = *b"WHOLLYVL";
const BYTES: usize = 512;

/// Bitmaps of blocks and inodes are on the medium, and kept in step.
pub const FEATURE_BITMAPS: u64 = 1;
/// A repair is to be finished before anything else is read.
pub const FEATURE_REPAIR: u64 = 2;
/// The inode file has given back blocks: it may have holes, and numbers there have had generations.
pub const FEATURE_GIVEN_BACK: u64 = 4;
/// Features that a reader must know.
pub const KNOWN_INCOMPATIBLE: u64 = FEATURE_BITMAPS | FEATURE_REPAIR | FEATURE_GIVEN_BACK;
/// A feature that programs need not know: the engine `multi_queue` journals new content, too.
pub const COMPATIBLE_JOURNALED: u64 = 1;
/// Features that a writer must know.
pub const KNOWN_READ_ONLY: u64 = 0;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawSuperblock {
    magic: [u8; 8],
    checksum: U64,
    version: U32,
    block_bytes: U32,
    incompatible: U64,
    read_only: U64,
    compatible: U64,
    volume_id: [u8; 16],
    blocks: U64,
    generation: U64,
    incarnation: U64,
    engine: U32,
    state: U32,
    inode_root: U64,
    inode_blocks: U64,
    inodes: U64,
    saved: U64,
    saved_check: U64,
    inode_depth: u8,
    reserved: [u8; 7],
    label: [u8; 64],
    log_start: U64,
    log_half_blocks: U32,
    log_lanes: U32,
    repair: U64,
    repair_check: U64,
    heads_start: U64,
    heads_blocks: U64,
    generation_floor: U32,
    bitmaps: U32,
    more: [u8; BYTES - 264],
}
const _: () = assert!(size_of::<RawSuperblock>() == BYTES);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, volume_id) == 48);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, label) == 144);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, log_start) == 208);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, repair) == 224);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, generation_floor) == 256);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, bitmaps) == 260);

/// A superblock that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version of its format.
    pub version: u32,
    /// Which volume it is.
    pub volume_id: [u8; 16],
    /// Blocks of the volume.
    pub blocks: u64,
    /// Raised by each write of a superblock.
    pub generation: u64,
    /// Raised by each mount.
    pub incarnation: u64,
    /// The engine, by its number.
    pub engine: u32,
    /// Whether the last mount ended with an unmount.
    pub is_clean: bool,
    /// The map of the inode file.
    pub inode_tree: Tree,
    /// Inodes that the inode file has room for, with those of blocks that it has given back.
    pub inodes: u64,
    /// The highest generation in blocks that it has given back.
    pub generation_floor: u32,
    /// The saved allocators, with their checksum.
    pub saved: Option<(Lba, u64)>,
    /// The name of the volume.
    pub label: [u8; 64],
    /// The log, of an engine that has one.
    pub log: Option<LogArea>,
    /// The first table of a repair that is to be finished, with its checksum.
    pub repair: Option<(Lba, u64)>,
    /// The table of heads, of an engine with pending blocks.
    pub heads: Option<HeadTable>,
    /// Where its bitmaps are, if it has some.
    pub bitmaps: Option<Layout>,
    /// Whether the bitmaps may say something else than the maps: the next mount writes them anew.
    pub doubts_bitmaps: bool,
    /// What a later version has put here, and a writer need not know.
    pub later: Later,
}

/// Features that nobody need know, and the bytes that are reserved: kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Later {
    /// Bits of features.
    pub compatible: u64,
    /// The bytes behind all fields.
    pub more: [u8; BYTES - 264],
}

impl Later {
    /// Nothing but such features.
    pub const fn with(compatible: u64) -> Later {
        Later { compatible, more: [0; BYTES - 264] }
    }
}

/// What is wrong with a superblock that is sound, but has a version or features that are not known here.
pub const LATER: Fault = Fault("a later version of Wholly wrote it");

/// The checksum, for the copy in block `slot`. It covers all but itself.
fn sum(raw: &RawSuperblock, slot: u64) -> u64 {
    let mut sum = XxHash3_64::with_seed(0x5355_5045_5256_4f4c ^ slot);
    sum.write(&raw.magic);
    sum.write(&raw.as_bytes()[16..]);
    sum.finish()
}

/// Turns version 1 into the order of fields of later ones, or back.
fn swap_checksum(bytes: &mut [u8]) {
    let (magic, checksum) = bytes[..16].split_at_mut(8);
    magic.swap_with_slice(checksum);
}

/// The blocks of the three copies.
pub fn copies(blocks: u64) -> [Lba; 3] {
    [Lba(0), Lba(1), Lba(blocks - 1)]
}

impl Superblock {
    /// The inode file.
    pub fn inode_file(&self) -> InodeMap {
        InodeMap { tree: self.inode_tree, inodes: self.inodes, generation_floor: self.generation_floor }
    }

    /// Gives it another inode file.
    pub fn set_inode_file(&mut self, InodeMap { tree, inodes, generation_floor }: InodeMap) {
        (self.inode_tree, self.inodes, self.generation_floor) = (tree, inodes, generation_floor);
    }

    /// The blocks at fixed places, besides the copies of the superblock: those that the engine has for itself, and the
    /// bitmaps.
    pub fn fixed(&self) -> impl Iterator<Item = Run> + use<> {
        let blocks = self.blocks;
        let of_engine = self.log.map(|log| log.run()).into_iter().chain(self.heads.map(|heads| heads.0));
        of_engine.chain(self.bitmaps.into_iter().flat_map(move |layout| layout.runs(blocks)))
    }

    /// As it stands in the copy at `at`.
    pub fn encode(&self, at: Lba) -> [u8; BLOCK] {
        let (saved, saved_check) = self.saved.unwrap_or((Lba(0), 0));
        let (repair, repair_check) = self.repair.unwrap_or((Lba(0), 0));
        let of_repair = if self.repair.is_some() { FEATURE_REPAIR } else { 0 };
        let of_inode_file = if self.generation_floor > 0 { FEATURE_GIVEN_BACK } else { 0 };
        let of_bitmaps = if self.bitmaps.is_some() { FEATURE_BITMAPS } else { 0 };
        let mut raw = RawSuperblock {
            magic: MAGIC,
            version: self.version.into(),
            block_bytes: (BLOCK as u32).into(),
            incompatible: (of_repair | of_inode_file | of_bitmaps).into(),
            volume_id: self.volume_id,
            blocks: self.blocks.into(),
            generation: self.generation.into(),
            incarnation: self.incarnation.into(),
            engine: self.engine.into(),
            state: (u32::from(self.is_clean) | u32::from(self.doubts_bitmaps) << 1).into(),
            inode_root: self.inode_tree.root.into(),
            inode_blocks: self.inode_tree.blocks.into(),
            inode_depth: self.inode_tree.depth,
            inodes: self.inodes.into(),
            saved: saved.0.into(),
            saved_check: saved_check.into(),
            label: self.label,
            log_start: self.log.map_or(0, |log| log.start.0).into(),
            log_half_blocks: self.log.map_or(0, |log| log.half_blocks).into(),
            log_lanes: self.log.map_or(0, |log| log.lanes).into(),
            repair: repair.0.into(),
            repair_check: repair_check.into(),
            heads_start: self.heads.map_or(0, |heads| heads.0.start.0).into(),
            heads_blocks: self.heads.map_or(0, |heads| heads.0.count).into(),
            generation_floor: self.generation_floor.into(),
            bitmaps: self.bitmaps.map_or(0, Layout::encode).into(),
            compatible: self.later.compatible.into(),
            more: self.later.more,
            ..RawSuperblock::new_zeroed()
        };
        raw.checksum = sum(&raw, at.0).into();
        let mut block = [0; BLOCK];
        block[..BYTES].copy_from_slice(raw.as_bytes());
        if self.version == CHECKSUM_FIRST {
            swap_checksum(&mut block);
        }
        block
    }

    /// Gives bytes that were changed the checksum of the copy at `at`.
    #[doc(hidden)]
    pub fn seal(bytes: &mut [u8], at: Lba) {
        let Ok((raw, _)) = RawSuperblock::mut_from_prefix(bytes) else { return };
        raw.checksum = sum(raw, at.0).into();
    }

    /// From the copy at `at`.
    ///
    /// # Errors
    /// If it is no superblock of ours, or damaged; [`LATER`].
    pub fn decode(bytes: &[u8], at: Lba) -> Result<Superblock, Fault> {
        let (mut raw, _) = RawSuperblock::read_from_prefix(bytes).map_err(|_| Fault("too short for a superblock"))?;
        let is_swapped = raw.magic != MAGIC;
        if is_swapped {
            swap_checksum(raw.as_mut_bytes());
        }
        if raw.magic != MAGIC {
            return Err(Fault("not a superblock"));
        }
        if raw.checksum.get() != sum(&raw, at.0) {
            return Err(Fault("a superblock has a wrong checksum"));
        }
        let version = raw.version.get();
        let has_unknown =
            raw.incompatible.get() & !KNOWN_INCOMPATIBLE != 0 || raw.read_only.get() & !KNOWN_READ_ONLY != 0;
        if version > VERSION || has_unknown || raw.block_bytes.get() as usize != BLOCK {
            return Err(LATER);
        }
        if is_swapped != (version == CHECKSUM_FIRST) {
            return Err(Fault("a superblock of an impossible version"));
        }
        let blocks = raw.blocks.get();
        if !(MIN_BLOCKS..MAX_VOLUME_BLOCKS).contains(&blocks) {
            return Err(Fault("a superblock with an impossible size"));
        }
        // Each mount raises them by a few.
        if raw.generation.get().max(raw.incarnation.get()) > u64::MAX / 2 {
            return Err(Fault("a superblock with an impossible generation"));
        }
        let generation_floor = raw.generation_floor.get();
        if (generation_floor > 0) != (raw.incompatible.get() & FEATURE_GIVEN_BACK != 0) {
            return Err(Fault("a superblock that contradicts its features"));
        }
        let inodes = raw.inodes.get();
        let of_inodes = raw.inode_blocks.get().max(inodes / PER_BLOCK);
        if inodes % PER_BLOCK != 0 || of_inodes > blocks || raw.inode_depth > MAX_DEPTH {
            return Err(Fault("a superblock with an impossible inode file"));
        }
        let (start, half_blocks, lanes) = (raw.log_start.get(), raw.log_half_blocks.get(), raw.log_lanes.get());
        let log = (start != 0).then_some(LogArea { start: Lba(start), half_blocks, lanes });
        let fits = |log: LogArea| {
            log.half_blocks > 0
                && log.lanes > 0
                && u64::from(log.half_blocks) * u64::from(log.lanes) < blocks
                && log.start.0.checked_add(log.run().count).is_some_and(|end| end < blocks)
        };
        if !log.is_none_or(fits) {
            return Err(Fault("a superblock with an impossible log"));
        }
        let (start, count) = (raw.heads_start.get(), raw.heads_blocks.get());
        let heads = (start != 0).then_some(HeadTable(Run { start: Lba(start), count }));
        if heads.is_some() && (count >= blocks || start.checked_add(count).is_none_or(|end| end >= blocks)) {
            return Err(Fault("a superblock with an impossible table of heads"));
        }
        if heads.is_some_and(|heads| heads.blocks() < blocks) {
            return Err(Fault("a superblock with a table of heads that is too short"));
        }
        let bitmaps = match raw.incompatible.get() & FEATURE_BITMAPS != 0 {
            true => Some(Layout::decode(raw.bitmaps.get(), blocks)?),
            false if raw.bitmaps.get() != 0 => return Err(Fault("a superblock that contradicts its features")),
            false => None,
        };
        if bitmaps.is_some_and(|layout| inodes == 0 || inodes > layout.most_inodes(blocks)) {
            return Err(Fault("a superblock with an impossible inode file"));
        }
        Ok(Superblock {
            version,
            volume_id: raw.volume_id,
            blocks,
            generation: raw.generation.get(),
            incarnation: raw.incarnation.get(),
            engine: raw.engine.get(),
            is_clean: raw.state.get() == 1,
            doubts_bitmaps: bitmaps.is_some() && raw.state.get() & 2 != 0,
            inode_tree: Tree { root: raw.inode_root.get(), depth: raw.inode_depth, blocks: raw.inode_blocks.get() },
            inodes,
            generation_floor,
            saved: (raw.saved.get() != 0).then_some((Lba(raw.saved.get()), raw.saved_check.get())),
            label: raw.label,
            log,
            repair: (raw.incompatible.get() & FEATURE_REPAIR != 0)
                .then_some((Lba(raw.repair.get()), raw.repair_check.get())),
            heads,
            bitmaps,
            later: Later { compatible: raw.compatible.get(), more: raw.more },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_is_detected_or_has_no_effect() {
        [CHECKSUM_FIRST, VERSION].into_iter().for_each(flip_each_bit);
    }

    fn flip_each_bit(version: u32) {
        let superblock = Superblock {
            version,
            volume_id: [5; 16],
            blocks: 1000,
            generation: 7,
            incarnation: 2,
            engine: 0,
            is_clean: true,
            inode_tree: Tree { root: 3, depth: 1, blocks: 2 },
            inodes: 64,
            generation_floor: 3,
            saved: Some((Lba(77), 5)),
            label: [b'v'; 64],
            log: Some(LogArea { start: Lba(2), half_blocks: 2, lanes: 3 }),
            repair: Some((Lba(78), 6)),
            heads: Some(HeadTable::for_volume(Lba(20), 1000)),
            bitmaps: Some(Layout::of_new(1000)),
            doubts_bitmaps: false,
            later: Later { compatible: 9, more: [8; BYTES - 264] },
        };
        let block = superblock.encode(Lba(1));
        assert_eq!(Superblock::decode(&block, Lba(1)), Ok(superblock.clone()));
        assert!(Superblock::decode(&block, Lba(0)).is_err(), "it belongs elsewhere");
        for bit in 0..BLOCK * 8 {
            let mut changed = block;
            changed[bit / 8] ^= 1 << (bit % 8);
            let decoded = Superblock::decode(&changed, Lba(1));
            assert!(if bit < BYTES * 8 { decoded.is_err() } else { decoded.as_ref() == Ok(&superblock) }, "bit {bit}");
        }
    }
}
