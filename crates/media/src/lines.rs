//! A checksum of lines of 64 bytes for the path of a commit: lines can be added and taken away in any order, and the
//! time of one is that of its store.
//!
//! It is what XXH3 does with its stripes, without an order. Each word of a line is combined with a key by exclusive or.
//! The product of the halves of that is added to a sum of the word's own, and the word itself to that of its neighbour.
//! Each line of a block has other keys, so that lines which change places are noticed. At the end the eight sums become
//! one word, as at the end of XXH3. Not against who chooses the bytes and knows the seed.
//!
//! Instructions a line, besides the call: 11 with AVX-512, 17 with AVX2, 40 with SSE2; XXH3 of one line takes 55 by its
//! library.

use std::iter::zip;

/// Bytes of a line.
pub const LINE: usize = 64;
/// Lines of a block, at most.
pub const LINES: usize = 64;
const WORDS: usize = LINE / 8;
const KEYS: usize = LINES + WORDS - 1;

/// The sums of some lines of a block. [`Default`]: of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineSums(pub [u64; WORDS]);

/// The keys of lines, from a seed.
///
/// ```
/// use wholly_media::lines::{LineKeys, LineSums};
///
/// let (keys, bytes) = (LineKeys::of(7), [1; 256]);
/// let (mut all, mut parts) = (LineSums::default(), LineSums::default());
/// keys.add(&mut all, 3, &bytes);
/// keys.add(&mut parts, 5, &bytes[128..]);
/// keys.add(&mut parts, 3, &bytes[..128]);
/// assert_eq!(keys.total(&all, 9), keys.total(&parts, 9));
/// ```
pub struct LineKeys([u64; KEYS]);

/// The odd constant of the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn splitmix(seed: u64, turn: u64) -> u64 {
    let mut word = seed.wrapping_add(turn.wrapping_add(1).wrapping_mul(GOLDEN));
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl LineKeys {
    /// Those of a seed: the first outputs of SplitMix64.
    pub fn of(seed: u64) -> LineKeys {
        LineKeys(std::array::from_fn(|turn| splitmix(seed, turn as u64)))
    }

    /// Adds consecutive lines of a block, from line `first` on.
    ///
    /// # Panics
    /// If a block has fewer lines.
    #[inline]
    pub fn add(&self, sums: &mut LineSums, first: usize, bytes: &[u8]) {
        let keys = &self.0[first..first + bytes.len() / LINE + WORDS - 1];
        add(&mut sums.0, keys, bytes);
    }

    /// Takes lines away that were added.
    ///
    /// # Panics
    /// As [`add`](Self::add).
    pub fn take(&self, sums: &mut LineSums, first: usize, bytes: &[u8]) {
        let mut taken = LineSums::default();
        self.add(&mut taken, first, bytes);
        zip(&mut sums.0, taken.0).for_each(|(sum, taken)| *sum = sum.wrapping_sub(taken));
    }

    /// The checksum of the lines that were added, of a block at this place.
    #[inline]
    pub fn total(&self, sums: &LineSums, place: u64) -> u64 {
        let fold = |[one, other]: [u64; 2]| {
            let product = u128::from(one) * u128::from(other);
            product as u64 ^ (product >> 64) as u64
        };
        let mut total = place.wrapping_mul(GOLDEN);
        for (pair, keys) in zip(sums.0.chunks_exact(2), self.0.chunks_exact(2)) {
            total = total.wrapping_add(fold([pair[0] ^ keys[0], pair[1] ^ keys[1]]));
        }
        total = (total ^ total >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
        total ^ total >> 32
    }
}

/// `keys` are as many as words of all lines together, each next line beginning one later.
fn add(sums: &mut [u64; WORDS], keys: &[u64], bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions.
            return unsafe { x86_64::add_avx512(sums, keys, bytes) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { x86_64::add_avx2(sums, keys, bytes) };
        }
    }
    add_words(sums, keys, bytes);
}

fn add_words(sums: &mut [u64; WORDS], keys: &[u64], bytes: &[u8]) {
    for (line, keys) in zip(bytes.chunks_exact(LINE), keys.windows(WORDS)) {
        for (at, (word, key)) in zip(line.as_chunks().0, keys).enumerate() {
            let word = u64::from_le_bytes(*word);
            let mixed = word ^ key;
            sums[at] = sums[at].wrapping_add((mixed & 0xffff_ffff) * (mixed >> 32));
            sums[at ^ 1] = sums[at ^ 1].wrapping_add(word);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{LINE, WORDS};
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_shuffle_epi32, _mm256_srli_epi64,
        _mm256_storeu_si256, _mm256_xor_si256, _mm512_add_epi64, _mm512_loadu_si512, _mm512_mul_epu32,
        _mm512_shuffle_epi32, _mm512_srli_epi64, _mm512_storeu_si512, _mm512_xor_si512,
    };
    use std::iter::zip;

    /// Each word changes places with its neighbour.
    const NEIGHBOUR: i32 = 0b01_00_11_10;

    #[target_feature(enable = "avx2")]
    pub fn add_avx2(sums: &mut [u64; WORDS], keys: &[u64], bytes: &[u8]) {
        let at: *mut __m256i = sums.as_mut_ptr().cast();
        // SAFETY: each access is to half of the sums, to half of a line, or to half of a window of keys.
        unsafe {
            let (mut low, mut high) = (_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1)));
            for (line, keys) in zip(bytes.chunks_exact(LINE), keys.windows(WORDS)) {
                let (line, keys): (*const __m256i, *const __m256i) = (line.as_ptr().cast(), keys.as_ptr().cast());
                let add = |sums, half| {
                    let words = _mm256_loadu_si256(line.add(half));
                    let mixed = _mm256_xor_si256(words, _mm256_loadu_si256(keys.add(half)));
                    let product = _mm256_mul_epu32(mixed, _mm256_srli_epi64::<32>(mixed));
                    _mm256_add_epi64(_mm256_add_epi64(sums, product), _mm256_shuffle_epi32::<NEIGHBOUR>(words))
                };
                (low, high) = (add(low, 0), add(high, 1));
            }
            _mm256_storeu_si256(at, low);
            _mm256_storeu_si256(at.add(1), high);
        }
    }

    #[target_feature(enable = "avx512f")]
    pub fn add_avx512(sums: &mut [u64; WORDS], keys: &[u64], bytes: &[u8]) {
        let at = sums.as_mut_ptr();
        // SAFETY: each access is to the sums, to a line, or to a window of keys.
        unsafe {
            let mut all = _mm512_loadu_si512(at.cast());
            for (line, keys) in zip(bytes.chunks_exact(LINE), keys.windows(WORDS)) {
                let words = _mm512_loadu_si512(line.as_ptr().cast());
                let mixed = _mm512_xor_si512(words, _mm512_loadu_si512(keys.as_ptr().cast()));
                let product = _mm512_mul_epu32(mixed, _mm512_srli_epi64::<32>(mixed));
                all = _mm512_add_epi64(_mm512_add_epi64(all, product), _mm512_shuffle_epi32::<NEIGHBOUR>(words));
            }
            _mm512_storeu_si512(at.cast(), all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = LINE * LINES;

    fn block() -> [u8; BLOCK] {
        std::array::from_fn(|at| (splitmix(1, at as u64 / 3) >> 8) as u8)
    }

    fn of(keys: &LineKeys, first: usize, bytes: &[u8]) -> u64 {
        let mut sums = LineSums::default();
        keys.add(&mut sums, first, bytes);
        keys.total(&sums, 5)
    }

    /// What each processor computes is the same.
    #[test]
    fn processors_agree() {
        let (keys, bytes) = (LineKeys::of(3), block());
        type Add = fn(&mut [u64; WORDS], &[u64], &[u8]);
        #[allow(unused_mut)]
        let mut others: Vec<(&str, Add)> = vec![("the processor's", add)];
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has the instructions.
                others.push(("AVX2", |sums, keys, bytes| unsafe { x86_64::add_avx2(sums, keys, bytes) }));
            }
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has the instructions.
                others.push(("AVX-512", |sums, keys, bytes| unsafe { x86_64::add_avx512(sums, keys, bytes) }));
            }
        }
        for count in 0..=LINES {
            let (keys, bytes) = (&keys.0[..count + WORDS - 1], &bytes[..count * LINE]);
            let mut expected = [7; WORDS];
            add_words(&mut expected, keys, bytes);
            for (name, add) in &others {
                let mut sums = [7; WORDS];
                add(&mut sums, keys, bytes);
                assert_eq!(sums, expected, "{name}: {count} lines");
            }
        }
    }

    /// A value that another implementation comes to, and that never changes.
    #[test]
    fn the_checksum_is_the_documented_one() {
        let bytes: [u8; 2 * LINE] = std::array::from_fn(|at| at as u8);
        assert_eq!(LineKeys::of(0).0[..2], [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4], "SplitMix64 as published");
        assert_eq!(of(&LineKeys::of(0), 1, &bytes), 0x3fbe_a20d_0d33_b9af);
    }

    #[test]
    fn each_change_is_noticed() {
        let (keys, bytes) = (LineKeys::of(3), block());
        let right = of(&keys, 0, &bytes);
        let mut changed = bytes;
        for bit in 0..BLOCK * 8 {
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&keys, 0, &changed), right, "bit {bit}");
            changed[bit / 8] ^= 1 << (bit % 8);
        }
        for (one, other) in [(0, 1), (3, 60)] {
            let mut moved = bytes;
            moved.copy_within(one * LINE..(one + 1) * LINE, other * LINE);
            moved[one * LINE..][..LINE].copy_from_slice(&bytes[other * LINE..][..LINE]);
            assert_ne!(of(&keys, 0, &moved), right, "lines {one} and {other} change places");
        }
        let mut shifted = bytes;
        shifted.rotate_left(8);
        assert_ne!(of(&keys, 0, &shifted), right, "a word earlier");
        assert_ne!(of(&keys, 1, &bytes[..BLOCK - LINE]), of(&keys, 0, &bytes[..BLOCK - LINE]), "other lines");
        assert_ne!(of(&LineKeys::of(4), 0, &bytes), right, "another seed");
        assert_ne!(of(&keys, 0, &[0; LINE]), of(&keys, 0, &[]), "a line of zeros is not none");
        let total = |place| keys.total(&LineSums::default(), place);
        assert_ne!(total(1), total(2), "another place");
    }

    #[test]
    fn lines_are_added_and_taken_in_any_order() {
        let (keys, bytes) = (LineKeys::of(3), block());
        let mut sums = LineSums::default();
        keys.add(&mut sums, 40, &bytes[40 * LINE..]);
        keys.add(&mut sums, 0, &bytes[..41 * LINE]);
        keys.take(&mut sums, 40, &bytes[40 * LINE..41 * LINE]);
        assert_eq!(keys.total(&sums, 5), of(&keys, 0, &bytes));
        keys.take(&mut sums, 0, &bytes);
        assert_eq!(sums, LineSums::default());
    }
}
