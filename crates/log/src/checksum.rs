//! The 64-bit checksum by which bytes on media prove themselves, and the seeds that bind it to one place and one life.

use wholly_media::xxh3;

/// A piece: what is hashed at once, in bytes. The processor hashes one while it stores the one before it.
pub const PIECE: usize = 4096;

/// The checksum of `bytes` under `seed`: XXH3 of each piece, folded into a state that starts as the seed.
///
/// The fold is a bijection in each argument, so that right bytes under a wrong seed never pass
/// (`docs/decisions/0001-checksum.md`).
#[inline]
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    if bytes.len() <= PIECE {
        return fold(seed, bytes);
    }
    bytes.chunks(PIECE).fold(seed, fold)
}

/// Odd, so that multiplying by it can be undone.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
const UNMIX: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(MIX.wrapping_mul(UNMIX) == 1);

/// One step of [`checksum`]: of the state so far, and the next piece.
#[inline(always)]
pub fn fold(state: u64, piece: &[u8]) -> u64 {
    (state ^ xxh3::of(piece)).wrapping_mul(MIX).rotate_left(29)
}

/// The only seed under which `bytes` have this checksum: where bytes that were damaged around them, or went astray, say
/// that they belong.
pub fn claimed_seed(sum: u64, bytes: &[u8]) -> u64 {
    let unfold = |state: u64, piece: &[u8]| state.rotate_right(29).wrapping_mul(UNMIX) ^ xxh3::of(piece);
    if bytes.len() <= PIECE {
        return unfold(sum, bytes);
    }
    bytes.chunks(PIECE).rev().fold(sum, unfold)
}

/// The seed of everything in one life of one segment: no record of another volume, incarnation or lap proves itself
/// under it.
#[inline]
pub fn segment_seed(volume_id: &[u8; 16], incarnation: u64, sequence: u64) -> u64 {
    let mut bytes = [0u8; 32];
    bytes[..16].copy_from_slice(volume_id);
    bytes[16..24].copy_from_slice(&incarnation.to_le_bytes());
    bytes[24..].copy_from_slice(&sequence.to_le_bytes());
    checksum(0x5345_474d_454e_5421, &bytes)
}

/// The seed of the record at byte `position` of the log in the life that `segment_seed` stands for.
#[inline]
pub fn record_seed(segment_seed: u64, position: u64) -> u64 {
    segment_seed ^ position.wrapping_mul(MIX)
}

/// The position of the record whose seed is `record_seed`, in the life that `segment_seed` stands for.
pub fn claimed_position(segment_seed: u64, record_seed: u64) -> u64 {
    (segment_seed ^ record_seed).wrapping_mul(UNMIX)
}

/// The checksum of an entry's payload at byte `position` of the log, in the life of the segment that `segment_seed`
/// stands for.
#[inline]
pub fn payload_checksum(segment_seed: u64, position: u64, payload: &[u8]) -> u64 {
    checksum(payload_seed(segment_seed, position), payload)
}

/// What the checksum of a payload starts as.
#[inline]
pub fn payload_seed(segment_seed: u64, position: u64) -> u64 {
    record_seed(!segment_seed, position)
}

#[cfg(test)]
mod tests {
    use super::{checksum, claimed_position, claimed_seed, payload_seed, record_seed, segment_seed};

    /// Without the segment's sequence a record of an earlier lap proves itself where the next lap has not been yet, and
    /// the log is taken for a corrupt one.
    #[test]
    fn a_seed_tells_volume_life_and_lap_apart() {
        let (line, mine) = ([7; 64], segment_seed(&[1; 16], 5, 9));
        let others = [segment_seed(&[2; 16], 5, 9), segment_seed(&[1; 16], 6, 9), segment_seed(&[1; 16], 5, 10)];
        for other in others {
            let (mine, other) = (record_seed(mine, 4096), record_seed(other, 4096));
            assert_ne!(checksum(mine, &line), checksum(other, &line));
        }
        assert_ne!(record_seed(mine, 4096), record_seed(mine, 4160));
        assert_ne!(record_seed(mine, 4096), payload_seed(mine, 4096));
    }

    #[test]
    fn a_checksum_tells_its_seed() {
        for length in [0, 1, 56, 4096, 4097, 10_000] {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7 % 251) as u8).collect();
            let seed = record_seed(12345, 67890);
            assert_eq!(claimed_seed(checksum(seed, &bytes), &bytes), seed);
            assert_eq!(claimed_position(12345, seed), 67890);
        }
    }
}
