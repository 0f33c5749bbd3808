//! The checksum XXH3 (64 bits, no seed) of more than 240 bytes, by the widest vectors that the processor has.
//!
//! It is the same function as `XxHash3_64::oneshot` of the crate `twox-hash`, with fewer instructions: for each 64
//! bytes 6 by AVX-512 and 12 by AVX2, where that crate takes 17. Hence the log of a store takes the same checksums
//! wherever it is read.
//!
//! # The function
//!
//! A *stripe* is 64 bytes: eight words. A *block* is 16 stripes. There are eight accumulators. A stripe adds two things
//! to each: the product of the two halves of its word XOR a word of the secret; and the word beside its own, which is
//! not multiplied. Between blocks the accumulators are *scrambled*. The last 64 bytes are a stripe of their own, which
//! may overlap the one before it. (`doc/xxhash_spec.md` of the project xxHash.)
//!
//! The words beside are added up where they are, and exchanged once for all stripes between two scrambles: addition
//! does not care. That saves an instruction for each stripe.

use std::arch::x86_64::*;

/// Up to this length XXH3 is another function.
const SHORT: usize = 240;
const STRIPE: usize = 64;
/// Stripes of a block: the secret is moved on by a word for each.
const STRIPES: usize = (SECRET.len() - STRIPE) / 8;
const BLOCK: usize = STRIPE * STRIPES;
/// Where the words of the secret stand that belong to the scramble, to the last stripe, and to the end.
const SCRAMBLE: usize = SECRET.len() - STRIPE;
const LAST_STRIPE: usize = SECRET.len() - STRIPE - 7;
const MERGE: usize = 11;

const PRIME32: [u64; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
const PRIME64: [u64; 5] =
    [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63, 0x27d4_eb2f_1656_67c5];
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

/// XXH3 of `bytes`. `None` where there are no more than 240, or the processor has no wide vectors: then another
/// implementation is as good.
#[inline(always)]
pub fn xxh3(bytes: &[u8]) -> Option<u64> {
    if bytes.len() > SHORT { by_widest(bytes) } else { None }
}

fn by_widest(bytes: &[u8]) -> Option<u64> {
    debug_assert!(bytes.len() > SHORT);
    // SAFETY: the processor has the instructions, and there are more than 240 bytes.
    unsafe {
        if is_x86_feature_detected!("avx512f") {
            Some(by_avx512(bytes))
        } else if is_x86_feature_detected!("avx2") {
            Some(by_avx2(bytes))
        } else {
            None
        }
    }
}

/// The function by vectors of one kind, `$n` of which are a stripe.
macro_rules! by_vectors {
    ($name:ident, $feature:literal, $n:literal, $load:ident, $store:ident, $set:ident, $xor:ident, $add:ident,
     $multiply:ident, $right:ident, $left:ident, $exchange:ident) => {
        /// # Safety
        /// The processor must have the instructions, and there must be more than 240 bytes.
        #[target_feature(enable = $feature)]
        unsafe fn $name(bytes: &[u8]) -> u64 {
            let (first, secret) = (bytes.as_ptr(), SECRET.as_ptr());
            // Not multiplied: of the word beside.
            let mut beside = [$set(0); $n];
            let mut sums = [$set(0); $n];
            for i in 0..$n {
                // SAFETY: 64 bytes are eight words.
                sums[i] = unsafe { $load(START.as_ptr().cast::<u8>().add(i * STRIPE / $n).cast()) };
            }
            macro_rules! add_stripe {
                ($at:expr, $key:expr) => {
                    for i in 0..$n {
                        // SAFETY: the caller of this macro says that 64 bytes follow both places.
                        let (data, key) = unsafe {
                            let part = i * STRIPE / $n;
                            ($load(first.add($at + part).cast()), $load(secret.add($key + part).cast()))
                        };
                        let mixed = $xor(data, key);
                        beside[i] = $add(beside[i], data);
                        sums[i] = $add(sums[i], $multiply(mixed, $right::<32>(mixed)));
                    }
                };
            }
            macro_rules! exchange {
                () => {
                    for i in 0..$n {
                        sums[i] = $add(sums[i], $exchange::<0b01_00_11_10>(beside[i]));
                    }
                };
            }
            // The last block is not followed by a scramble, and it is not empty.
            let blocks = (bytes.len() - 1) / BLOCK;
            for block in 0..blocks {
                for stripe in 0..STRIPES {
                    // A whole block before the last, and a secret that is as long as a block needs.
                    add_stripe!(block * BLOCK + stripe * STRIPE, stripe * 8);
                }
                exchange!();
                beside = [$set(0); $n];
                for i in 0..$n {
                    // SAFETY: the secret's last 64 bytes.
                    let key = unsafe { $load(secret.add(SCRAMBLE + i * STRIPE / $n).cast()) };
                    let mixed = $xor($xor(sums[i], $right::<47>(sums[i])), key);
                    let prime = $set(PRIME32[0] as i64);
                    let high = $left::<32>($multiply($right::<32>(mixed), prime));
                    sums[i] = $add($multiply(mixed, prime), high);
                }
            }
            let rest = blocks * BLOCK;
            let stripes = (bytes.len() - 1 - rest) / STRIPE;
            // Each begins, and so ends, before the last byte. A full block has its loop unrolled.
            if stripes == STRIPES - 1 {
                for stripe in 0..STRIPES - 1 {
                    add_stripe!(rest + stripe * STRIPE, stripe * 8);
                }
            } else {
                for stripe in 0..stripes {
                    add_stripe!(rest + stripe * STRIPE, stripe * 8);
                }
            }
            // There are more than 64 bytes.
            add_stripe!(bytes.len() - STRIPE, LAST_STRIPE);
            exchange!();
            let mut words = [0u64; 8];
            for i in 0..$n {
                // SAFETY: 64 bytes are eight words.
                unsafe { $store(words.as_mut_ptr().cast::<u8>().add(i * STRIPE / $n).cast(), sums[i]) };
            }
            merge(&words, bytes.len())
        }
    };
}

by_vectors!(
    by_avx512,
    "avx512f",
    1,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_set1_epi64,
    _mm512_xor_si512,
    _mm512_add_epi64,
    _mm512_mul_epu32,
    _mm512_srli_epi64,
    _mm512_slli_epi64,
    _mm512_shuffle_epi32
);
by_vectors!(
    by_avx2,
    "avx2",
    2,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi64x,
    _mm256_xor_si256,
    _mm256_add_epi64,
    _mm256_mul_epu32,
    _mm256_srli_epi64,
    _mm256_slli_epi64,
    _mm256_shuffle_epi32
);

/// The accumulators become the hash of `length` bytes.
#[inline(always)]
fn merge(sums: &[u64; 8], length: usize) -> u64 {
    let secret = |word: usize| {
        let at = MERGE + 8 * word;
        u64::from_le_bytes(SECRET[at..at + 8].try_into().expect("eight bytes"))
    };
    let mut hash = (length as u64).wrapping_mul(PRIME64[0]);
    for pair in 0..4 {
        let [low, high] = [2 * pair, 2 * pair + 1].map(|word| u128::from(sums[word] ^ secret(word)));
        let product = low * high;
        hash = hash.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    hash = (hash ^ hash >> 37).wrapping_mul(0x1656_6791_9e37_79f9);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    type Hash = unsafe fn(&[u8]) -> u64;

    /// Each that the processor can do, by name.
    fn all() -> Vec<(&'static str, Hash)> {
        let mut all: Vec<(&str, Hash)> = Vec::new();
        if is_x86_feature_detected!("avx2") {
            all.push(("AVX2", by_avx2));
        }
        if is_x86_feature_detected!("avx512f") {
            all.push(("AVX-512", by_avx512));
        }
        all
    }

    /// Every length up to three blocks, and the lengths around pieces of the log, at any place in memory.
    #[test]
    fn it_is_the_function_of_twox_hash() {
        let bytes: Vec<u8> = (0..20_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
        for (name, hash) in all() {
            for length in (SHORT + 1..3 * BLOCK + 2).chain(4000..4200).chain(16_300..16_400) {
                let bytes = &bytes[length % 67..][..length];
                // SAFETY: the processor has the instructions, and there are more than 240 bytes.
                let hash = unsafe { hash(bytes) };
                assert_eq!(hash, twox_hash::XxHash3_64::oneshot(bytes), "{name}, {length} bytes");
            }
        }
    }

    #[test]
    fn short_ones_are_left_to_others() {
        assert_eq!(xxh3(&[7; SHORT]), None);
        assert_eq!(xxh3(&[7; SHORT + 1]).is_some(), !all().is_empty());
    }
}
