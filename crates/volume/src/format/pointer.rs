//! Block pointers that prove themselves, and the arithmetic of maps.
//!
//! A pointer is one word: bits 0 to 38 the block, bit 39 *reserved* (allocated, but reads as zeros), bits 40 to 63 a
//! check over the volume, the inode with its generation, the stream, the level and the index of the pointer, the block
//! and bit 39. A hole is 0. So a pointer changes by one atomic store, and rot, misdirected writes and stale nodes are
//! detected.
//!
//! A map is a tree of nodes of 512 pointers. At depth 0 the root is the pointer of block 0; at depth `n` it is that of
//! a node, and the map reaches 512^n blocks. *Level* 0 is that of pointers to content.

use super::{BLOCK, Fault, Lba, mix};

/// Pointers in a node.
pub const FANOUT: u64 = 512;
/// Bits of an index that one level resolves.
pub const FANOUT_BITS: u32 = 9;
/// The deepest map.
pub const MAX_DEPTH: u8 = 4;
/// Blocks that the deepest map reaches.
pub const MAX_BLOCKS: u64 = 1 << (FANOUT_BITS * MAX_DEPTH as u32);

const BLOCK_BITS: u32 = 39;
const RESERVED: u64 = 1 << BLOCK_BITS;
/// The most blocks that a volume can have. Pointers can have numbers from there on, which stand for no block.
pub const MAX_VOLUME_BLOCKS: u64 = 1 << (BLOCK_BITS - 1);

/// One node as it stands on media.
pub type RawNode = [u8; BLOCK];
const _: () = assert!(BLOCK as u64 == 8 * FANOUT);

/// Where a pointer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The block.
    pub block: Lba,
    /// Whether it was never written: it reads as zeros. Only at level 0.
    pub reserved: bool,
}

impl Pointer {
    /// A pointer to a block with content.
    pub fn to(block: Lba) -> Pointer {
        Pointer { block, reserved: false }
    }

    fn word(self) -> u64 {
        self.block.0 | if self.reserved { RESERVED } else { 0 }
    }
}

#[inline]
fn check(seed: u64, level: u8, index: u64, word: u64) -> u64 {
    // Never 0, so that no pointer differs from a hole by one bit.
    (mix(mix(seed, index << 3 | u64::from(level)), word) >> BLOCK_BITS >> 1).max(1)
}

/// A pointer as it stands on media: the one at `index` of `level`. `seed` is that of the [stream](super::Seed::stream).
#[inline]
pub fn encode(seed: u64, level: u8, index: u64, pointer: Pointer) -> u64 {
    let word = pointer.word();
    word | check(seed, level, index, word) << (BLOCK_BITS + 1)
}

/// The pointer at `index` of `level`; `None` for a hole.
///
/// # Errors
/// If it does not belong there.
#[inline]
pub fn decode(seed: u64, level: u8, index: u64, raw: u64) -> Result<Option<Pointer>, Fault> {
    if raw == 0 {
        return Ok(None);
    }
    let word = raw & (RESERVED * 2 - 1);
    if raw >> (BLOCK_BITS + 1) != check(seed, level, index, word) {
        return Err(Fault("a pointer has a wrong check"));
    }
    let pointer = Pointer { block: Lba(word & (RESERVED - 1)), reserved: word & RESERVED != 0 };
    if pointer.block.0 < 2 || pointer.reserved && level > 0 {
        return Err(Fault("a pointer to no block of content"));
    }
    Ok(Some(pointer))
}

/// The number of blocks that a map of this depth reaches.
pub fn reach(depth: u8) -> u64 {
    1 << (FANOUT_BITS * u32::from(depth))
}

/// The depth of the smallest map that reaches `block`.
pub fn depth_for(block: u64) -> u8 {
    (0..MAX_DEPTH).find(|&depth| block < reach(depth)).unwrap_or(MAX_DEPTH)
}

/// The most nodes that a map of this depth needs for the blocks `first..=last`, and to get that deep from `from`.
pub fn nodes_for(from: u8, depth: u8, first: u64, last: u64) -> u64 {
    let spine = u64::from(depth.saturating_sub(from));
    spine
        + (1..=u32::from(depth))
            .map(|level| (last >> (FANOUT_BITS * level)) - (first >> (FANOUT_BITS * level)) + 1)
            .sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_is_detected() {
        let seed = 0x1234_5678;
        for pointer in [Pointer::to(Lba(2)), Pointer { block: Lba(1 << 38), reserved: true }] {
            let raw = encode(seed, 0, 77, pointer);
            assert_eq!(decode(seed, 0, 77, raw), Ok(Some(pointer)));
            for bit in 0..64 {
                assert!(decode(seed, 0, 77, raw ^ 1 << bit).is_err(), "bit {bit}");
                assert!(decode(seed, 0, 77, 1 << bit).is_err(), "bit {bit} of a hole");
            }
            assert!(
                decode(seed, 0, 78, raw).is_err()
                    && decode(seed, 1, 77, raw).is_err()
                    && decode(9, 0, 77, raw).is_err()
            );
        }
        assert_eq!(decode(seed, 3, 1, 0), Ok(None));
    }

    #[test]
    fn the_arithmetic_of_maps() {
        assert_eq!([0, 1, 511, 512, 262_143, 262_144].map(depth_for), [0, 1, 1, 2, 2, 3]);
        assert_eq!(depth_for(MAX_BLOCKS - 1), MAX_DEPTH);
        assert_eq!(nodes_for(0, 0, 0, 0), 0);
        assert_eq!(nodes_for(1, 1, 0, 511), 1);
        assert_eq!(nodes_for(2, 2, 511, 512), 3);
        assert_eq!(nodes_for(0, 2, 512, 512), 4);
    }
}
