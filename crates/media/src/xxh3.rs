//! XXH3 (64 bits, no seed), the checksum of a store's log, in few instructions.
//!
//! It is the function of the crate `twox-hash`, byte for byte, whatever computes it: that crate up to 240 bytes and on
//! processors without AVX2, the vectors below for the rest. Instructions for each further 64 bytes: 7 with AVX-512,
//! 15 with AVX2; 18 by the crate.
//!
//! # The function
//!
//! A *stripe* is 64 bytes: eight words. A *block* is 16 stripes. There are eight sums. A stripe adds to each sum the
//! product of the halves of its word XOR a word of the secret, and the word of its neighbour. After each block but the
//! last the sums are *scrambled*. The last 64 bytes are a stripe of their own, which may overlap the one before.
//! (`doc/xxhash_spec.md` of xxHash: `XXH3_64bits`, more than 240 bytes.)

use twox_hash::XxHash3_64;

/// XXH3 of `bytes`, without a seed.
///
/// ```
/// use wholly_media::xxh3;
///
/// assert_eq!(xxh3::of(b""), 0x2d06_8005_38d3_94c2);
/// ```
#[inline(always)]
pub fn of(bytes: &[u8]) -> u64 {
    if bytes.len() <= SHORT { XxHash3_64::oneshot(bytes) } else { of_long(bytes) }
}

/// Up to this length XXH3 is another function.
const SHORT: usize = 240;

fn of_long(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions.
            return unsafe { x86_64::by_avx512(bytes) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { x86_64::by_avx2(bytes) };
        }
    }
    XxHash3_64::oneshot(bytes)
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::SHORT;
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_shuffle_epi32, _mm256_slli_epi64, _mm256_srli_epi64, _mm256_storeu_si256,
        _mm256_xor_si256, _mm512_add_epi64, _mm512_loadu_si512, _mm512_mul_epu32, _mm512_set1_epi64,
        _mm512_setzero_si512, _mm512_shuffle_epi32, _mm512_slli_epi64, _mm512_srli_epi64, _mm512_storeu_si512,
        _mm512_xor_si512,
    };
    use std::array::from_fn;

    const STRIPE: usize = 64;
    /// Stripes of a block: for each the secret begins a word later.
    const STRIPES: usize = (SECRET.len() - STRIPE) / 8;
    const BLOCK: usize = STRIPE * STRIPES;
    /// Where in the secret the words begin for a scramble, for the last stripe, and for the end.
    const SCRAMBLE: usize = SECRET.len() - STRIPE;
    const LAST_STRIPE: usize = SECRET.len() - STRIPE - 7;
    const MERGE: usize = 11;

    const PRIME32: [u64; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
    const PRIME64: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    const START: [u64; 8] =
        [PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4], PRIME32[0]];

    #[rustfmt::skip]
    static SECRET: [u8; 192] = [
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
        0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
        0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
        0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
        0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
        0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
        0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
        0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
        0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
        0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
        0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
        0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    ];

    /// Each word changes places with its neighbour.
    const NEIGHBOUR: i32 = 0b01_00_11_10;

    /// The eight sums. Words that belong to a neighbour are added up where they are, and change places once for all
    /// stripes between two scrambles: that saves an instruction a stripe.
    ///
    /// # Safety
    /// The processor has the instructions; a pointer is to 64 bytes that can be read.
    trait Sums: Sized {
        unsafe fn start() -> Self;
        unsafe fn add(&mut self, stripe: *const u8, secret: *const u8);

        /// Stripes of one block, from its first one on.
        #[inline(always)]
        unsafe fn add_first(&mut self, count: usize, block: *const u8) {
            let (mut stripe, mut secret) = (block, SECRET.as_ptr());
            // By four: the loop has fewer instructions of its own. No closures: they would not be inlined.
            // SAFETY: there are so many stripes, and each has its words of the secret.
            unsafe {
                for _ in 0..count / 4 {
                    for at in 0..4 {
                        self.add(stripe.add(at * STRIPE), secret.add(at * 8));
                    }
                    (stripe, secret) = (stripe.add(4 * STRIPE), secret.add(4 * 8));
                }
                for at in 0..count % 4 {
                    self.add(stripe.add(at * STRIPE), secret.add(at * 8));
                }
            }
        }

        /// Adds the words that belong to neighbours.
        unsafe fn settle(&mut self);
        /// After [`settle`](Sums::settle).
        unsafe fn scramble(&mut self, secret: *const u8);
        unsafe fn words(self) -> [u64; 8];
    }

    struct Avx512 {
        sums: __m512i,
        beside: __m512i,
    }

    impl Sums for Avx512 {
        #[inline(always)]
        unsafe fn start() -> Self {
            // SAFETY: see the trait.
            unsafe { Avx512 { sums: _mm512_loadu_si512(START.as_ptr().cast()), beside: _mm512_setzero_si512() } }
        }

        #[inline(always)]
        unsafe fn add(&mut self, stripe: *const u8, secret: *const u8) {
            // SAFETY: see the trait.
            unsafe {
                let words = _mm512_loadu_si512(stripe.cast());
                let mixed = _mm512_xor_si512(words, _mm512_loadu_si512(secret.cast()));
                self.beside = _mm512_add_epi64(self.beside, words);
                let product = _mm512_mul_epu32(mixed, _mm512_srli_epi64::<32>(mixed));
                self.sums = _mm512_add_epi64(self.sums, product);
            }
        }

        #[inline(always)]
        unsafe fn settle(&mut self) {
            // SAFETY: see the trait.
            unsafe {
                self.sums = _mm512_add_epi64(self.sums, _mm512_shuffle_epi32::<NEIGHBOUR>(self.beside));
                self.beside = _mm512_setzero_si512();
            }
        }

        #[inline(always)]
        unsafe fn scramble(&mut self, secret: *const u8) {
            // SAFETY: see the trait.
            unsafe {
                let mixed = _mm512_xor_si512(self.sums, _mm512_srli_epi64::<47>(self.sums));
                let mixed = _mm512_xor_si512(mixed, _mm512_loadu_si512(secret.cast()));
                let prime = _mm512_set1_epi64(PRIME32[0] as i64);
                let high = _mm512_mul_epu32(_mm512_srli_epi64::<32>(mixed), prime);
                self.sums = _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64::<32>(high));
            }
        }

        #[inline(always)]
        unsafe fn words(self) -> [u64; 8] {
            let mut words = [0; 8];
            // SAFETY: see the trait.
            unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), self.sums) };
            words
        }
    }

    /// In two halves.
    struct Avx2 {
        sums: [__m256i; 2],
        beside: [__m256i; 2],
    }

    impl Sums for Avx2 {
        #[inline(always)]
        unsafe fn start() -> Self {
            // SAFETY: see the trait.
            unsafe {
                let start: *const __m256i = START.as_ptr().cast();
                Avx2 {
                    sums: [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))],
                    beside: [_mm256_setzero_si256(); 2],
                }
            }
        }

        #[inline(always)]
        unsafe fn add(&mut self, stripe: *const u8, secret: *const u8) {
            let (stripe, secret): (*const __m256i, *const __m256i) = (stripe.cast(), secret.cast());
            for half in 0..2 {
                // SAFETY: see the trait.
                unsafe {
                    let words = _mm256_loadu_si256(stripe.add(half));
                    let mixed = _mm256_xor_si256(words, _mm256_loadu_si256(secret.add(half)));
                    self.beside[half] = _mm256_add_epi64(self.beside[half], words);
                    let product = _mm256_mul_epu32(mixed, _mm256_srli_epi64::<32>(mixed));
                    self.sums[half] = _mm256_add_epi64(self.sums[half], product);
                }
            }
        }

        #[inline(always)]
        unsafe fn settle(&mut self) {
            for half in 0..2 {
                // SAFETY: see the trait.
                unsafe {
                    let beside = _mm256_shuffle_epi32::<NEIGHBOUR>(self.beside[half]);
                    self.sums[half] = _mm256_add_epi64(self.sums[half], beside);
                    self.beside[half] = _mm256_setzero_si256();
                }
            }
        }

        #[inline(always)]
        unsafe fn scramble(&mut self, secret: *const u8) {
            let secret: *const __m256i = secret.cast();
            for half in 0..2 {
                // SAFETY: see the trait.
                unsafe {
                    let sums = self.sums[half];
                    let mixed = _mm256_xor_si256(sums, _mm256_srli_epi64::<47>(sums));
                    let mixed = _mm256_xor_si256(mixed, _mm256_loadu_si256(secret.add(half)));
                    let prime = _mm256_set1_epi64x(PRIME32[0] as i64);
                    let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(mixed), prime);
                    self.sums[half] = _mm256_add_epi64(_mm256_mul_epu32(mixed, prime), _mm256_slli_epi64::<32>(high));
                }
            }
        }

        #[inline(always)]
        unsafe fn words(self) -> [u64; 8] {
            let mut words = [0; 8];
            let to: *mut __m256i = words.as_mut_ptr().cast();
            // SAFETY: see the trait.
            unsafe {
                _mm256_storeu_si256(to, self.sums[0]);
                _mm256_storeu_si256(to.add(1), self.sums[1]);
            }
            words
        }
    }

    /// # Panics
    /// With 240 bytes or less.
    #[target_feature(enable = "avx512f")]
    pub fn by_avx512(bytes: &[u8]) -> u64 {
        // SAFETY: the processor has the instructions.
        unsafe { by::<Avx512>(bytes) }
    }

    /// # Panics
    /// With 240 bytes or less.
    #[target_feature(enable = "avx2")]
    pub fn by_avx2(bytes: &[u8]) -> u64 {
        // SAFETY: as above.
        unsafe { by::<Avx2>(bytes) }
    }

    /// # Safety
    /// As of [`Sums`].
    #[inline(always)]
    unsafe fn by<S: Sums>(bytes: &[u8]) -> u64 {
        assert!(bytes.len() > SHORT);
        // Neither the last block nor the last stripe begins at the end.
        let (blocks, stripes) = ((bytes.len() - 1) / BLOCK, (bytes.len() - 1) % BLOCK / STRIPE);
        let (mut at, secret) = (bytes.as_ptr(), SECRET.as_ptr());
        // SAFETY: whole blocks, then whole stripes, then the last 64 bytes are read, all of them inside of `bytes`. The
        // places in the secret have 64 bytes after them.
        unsafe {
            let mut sums = S::start();
            for _ in 0..blocks {
                sums.add_first(STRIPES, at);
                sums.settle();
                sums.scramble(secret.add(SCRAMBLE));
                at = at.add(BLOCK);
            }
            sums.add_first(stripes, at);
            sums.add(bytes.as_ptr().add(bytes.len() - STRIPE), secret.add(LAST_STRIPE));
            sums.settle();
            merge(sums.words(), bytes.len())
        }
    }

    /// The sums become the hash of `length` bytes.
    #[inline(always)]
    fn merge(sums: [u64; 8], length: usize) -> u64 {
        let keys: [u64; 8] = from_fn(|word| {
            let at = MERGE + 8 * word;
            u64::from_le_bytes(SECRET[at..at + 8].try_into().expect("eight bytes"))
        });
        let mut hash = (length as u64).wrapping_mul(PRIME64[0]);
        for pair in [0, 2, 4, 6] {
            let product = u128::from(sums[pair] ^ keys[pair]) * u128::from(sums[pair + 1] ^ keys[pair + 1]);
            hash = hash.wrapping_add(product as u64 ^ (product >> 64) as u64);
        }
        hash = (hash ^ hash >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
        hash ^ hash >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Hash = fn(&[u8]) -> u64;

    /// Each way that this processor has, but for the library's.
    fn ways() -> Vec<(&'static str, Hash)> {
        let mut ways: Vec<(&str, Hash)> = vec![("the processor's", of)];
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has the instructions.
                ways.push(("AVX2", |bytes| unsafe { x86_64::by_avx2(bytes) }));
            }
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has the instructions.
                ways.push(("AVX-512", |bytes| unsafe { x86_64::by_avx512(bytes) }));
            }
        }
        ways
    }

    fn check(bytes: &[u8]) {
        let expected = XxHash3_64::oneshot(bytes);
        for (name, hash) in ways() {
            if bytes.len() > SHORT || name == "the processor's" {
                assert_eq!(hash(bytes), expected, "{name}: {} bytes", bytes.len());
            }
        }
    }

    /// Else a store would count as damaged on another processor.
    #[test]
    fn it_is_the_function_of_the_library() {
        let mut word = 1u64;
        let mut draw = || {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            word >> 33
        };
        let bytes: Vec<u8> = (0..100 << 10).map(|_| draw() as u8).collect();
        // With each place in memory; around whole blocks and pieces of the log.
        for length in (0..=2_100).chain(4_000..=4_200).chain(16_300..=16_450) {
            check(&bytes[length % 67..][..length]);
        }
        for _ in 0..300 {
            let start = draw() as usize % bytes.len();
            check(&bytes[start..][..draw() as usize % (bytes.len() - start)]);
        }
        check(&vec![0xff; 100 << 10]);
    }

    /// A value of the reference implementation.
    #[test]
    fn it_is_the_documented_function() {
        let bytes: [u8; 4096] = std::array::from_fn(|at| at as u8);
        assert_eq!(of(&bytes), 0xeb4b_7c37_0787_9151);
    }
}
