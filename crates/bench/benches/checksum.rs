//! Which 64-bit checksum for log records? `cargo bench -p wholly-bench --bench checksum`
//!
//! Prints ns per record of each candidate as Markdown tables; `docs/decisions/0001-checksum.md` holds the reading.
//!
//! - **hot**: source in the first-level cache; each seed depends on the checksum before it, so this is latency.
//! - **store, after**: the record is stored with non-temporal stores to a random place of 64 MiB, then hashed, then its
//!   checksum is stored and fenced. `none` is the same without hashing: the bound.
//! - **store, between**: the same in pieces of 1 KiB, hashed while the write-combining buffers drain. The pieces are
//!   chained: the checksum of one is the seed of the next.
//!
//! Candidates named *fold* hash without a seed and mix the seed in afterwards by `fold`.
//!
//! Candidates run in turns (A B C A B C), the figure is the median over turns. Built for the baseline of the target:
//! what a candidate finds at run time is what it gets.

use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm_sfence, _mm_stream_si64, _mm_stream_si128, _mm512_loadu_si512,
    _mm512_stream_si512,
};
use std::hint::black_box;
use std::time::Instant;

/// Checksum of `data` under `seed`.
type Checksum = fn(u64, &[u8]) -> u64;

/// Mixes the checksum of a piece into what came before it. A bijection in each argument, and sensitive to order: one
/// wrong seed or one wrong piece always shows, and two pieces that change places do.
#[inline(always)]
fn fold(seed: u64, checksum: u64) -> u64 {
    (seed ^ checksum).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

struct Candidate {
    name: &'static str,
    checksum: Checksum,
}

const SECRETS: rapidhash::v3::RapidSecrets = rapidhash::v3::RapidSecrets::seed(0x5768_6f6c_6c79);

const CANDIDATES: &[Candidate] = &[
    Candidate { name: "none", checksum: |seed, _| seed },
    Candidate { name: "xxhash-rust xxh3", checksum: |seed, data| xxhash_rust::xxh3::xxh3_64_with_seed(data, seed) },
    Candidate { name: "xxhash-rust xxh3, fold", checksum: |seed, data| fold(seed, xxhash_rust::xxh3::xxh3_64(data)) },
    Candidate { name: "twox-hash xxh3", checksum: |seed, data| twox_hash::XxHash3_64::oneshot_with_seed(seed, data) },
    Candidate { name: "twox-hash xxh3, fold", checksum: |seed, data| fold(seed, twox_hash::XxHash3_64::oneshot(data)) },
    Candidate {
        name: "crc-fast nvme",
        checksum: |seed, data| {
            let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc64Nvme, seed);
            digest.update(data);
            digest.finalize()
        },
    },
    Candidate { name: "crc-fast nvme, fold", checksum: |seed, data| fold(seed, crc_fast::crc64_nvme(data)) },
    Candidate {
        // No seed in its interface.
        name: "crc64fast-nvme, fold",
        checksum: |seed, data| {
            let mut digest = crc64fast_nvme::Digest::new();
            digest.write(data);
            fold(seed, digest.sum64())
        },
    },
    Candidate {
        name: "rapidhash v3",
        checksum: |seed, data| {
            let secrets = rapidhash::v3::RapidSecrets { seed, secrets: SECRETS.secrets };
            rapidhash::v3::rapidhash_v3_seeded(data, &secrets)
        },
    },
];

const SIZES: [usize; 6] = [56, 64, 128, 1024, 4096, 16384];
const PIECE: usize = 1024;
const TARGET: usize = 64 << 20;
const TURNS: usize = 61;
const TURN_NS: usize = 300_000;

#[derive(Clone, Copy, PartialEq)]
enum Setting {
    Hot,
    StoreAfter { wide: bool },
    StoreBetween { wide: bool },
}

/// Lines of the target, all of them touched before the clock starts.
#[repr(C, align(64))]
#[derive(Clone)]
struct Line([u8; 64]);

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Stores whole words of `source` at `offset` of `target` past the caches. `offset` is a multiple of 64.
#[inline(always)]
fn store_past_caches(wide: bool, target: &mut [Line], offset: usize, source: &[u8]) {
    assert!(offset.is_multiple_of(64) && source.len().is_multiple_of(8));
    assert!(offset + source.len() <= target.len() * 64);
    let lines = if wide { source.len() / 64 } else { 0 };
    // SAFETY: bounds and alignment are asserted above, `target` is borrowed exclusively, and `wide` is only set where
    // the processor has AVX-512F; SSE2 is part of x86-64.
    unsafe {
        let mut to = target.as_mut_ptr().cast::<u8>().add(offset);
        let mut from = source.as_ptr();
        if lines > 0 {
            store_lines(to, from, lines);
            (to, from) = (to.add(lines * 64), from.add(lines * 64));
        }
        let rest = source.len() - lines * 64;
        for i in 0..rest / 16 {
            _mm_stream_si128(to.add(i * 16).cast::<__m128i>(), _mm_loadu_si128(from.add(i * 16).cast::<__m128i>()));
        }
        if !rest.is_multiple_of(16) {
            let at = rest - 8;
            _mm_stream_si64(to.add(at).cast::<i64>(), from.add(at).cast::<i64>().read_unaligned());
        }
    }
}

/// Stores whole lines, one store each.
///
/// # Safety
/// `lines` lines can be read at `from` and written at `to`, which is aligned to a line; the processor has AVX-512F.
#[target_feature(enable = "avx512f")]
unsafe fn store_lines(to: *mut u8, from: *const u8, lines: usize) {
    for i in 0..lines {
        // SAFETY: `i` is below `lines`; the caller vouches for the rest.
        unsafe {
            _mm512_stream_si512(
                to.add(i * 64).cast::<__m512i>(),
                _mm512_loadu_si512(from.add(i * 64).cast::<__m512i>()),
            )
        };
    }
}

/// Stores the checksum and fences.
#[inline(always)]
fn store_checksum(target: &mut [Line], offset: usize, checksum: u64) {
    assert!(offset.is_multiple_of(8) && offset + 8 <= target.len() * 64);
    // SAFETY: bounds and alignment are asserted above, and `target` is borrowed exclusively; SSE2 is part of x86-64.
    unsafe {
        _mm_stream_si64(target.as_mut_ptr().cast::<u8>().add(offset).cast::<i64>(), checksum as i64);
        _mm_sfence();
    }
}

/// One turn of `iterations` records; ns per record.
fn turn(setting: Setting, candidate: &Candidate, source: &[u8], size: usize, target: &mut [Line], n: usize) -> f64 {
    let checksum = black_box(candidate.checksum);
    let starts = (source.len() - size) / 64 + 1;
    let lines = size.div_ceil(64) + 1;
    let mut seed = 1u64;
    let mut places = 7u64;
    let start = Instant::now();
    for i in 0..n {
        let data = black_box(&source[i % starts * 64..][..size]);
        let place = if setting == Setting::Hot {
            0
        } else {
            (splitmix(&mut places) % ((TARGET / 64) / lines) as u64) as usize * lines * 64
        };
        match setting {
            Setting::Hot => seed = checksum(seed, data),
            Setting::StoreAfter { wide } => {
                store_past_caches(wide, target, place, data);
                seed = checksum(seed, data);
                store_checksum(target, place + size, seed);
            }
            Setting::StoreBetween { wide } => {
                for (at, piece) in data.chunks(PIECE).enumerate() {
                    store_past_caches(wide, target, place + at * PIECE, piece);
                    seed = checksum(seed, piece);
                }
                store_checksum(target, place + size, seed);
            }
        }
    }
    black_box(seed);
    start.elapsed().as_nanos() as f64 / n as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // `cargo test` runs benches with `--test`: one short turn each, to see that they work.
    let tiny = !std::env::args().any(|a| a == "--bench");
    let (turns, turn_ns) = if tiny { (1, 1_000) } else { (TURNS, TURN_NS) };
    let mut state = 1;
    let source: Vec<u8> = (0..24 << 10).map(|_| splitmix(&mut state) as u8).collect();
    let mut target = vec![Line([1; 64]); TARGET / 64 + 1];
    println!("crc-fast uses: {}", crc_fast::get_calculator_target(crc_fast::CrcAlgorithm::Crc64Nvme));
    let mut settings = vec![
        (Setting::Hot, "hot"),
        (Setting::StoreAfter { wide: false }, "store, after; 16 B stores"),
        (Setting::StoreBetween { wide: false }, "store, between; 16 B stores"),
    ];
    if is_x86_feature_detected!("avx512f") {
        settings.push((Setting::StoreAfter { wide: true }, "store, after; 64 B stores"));
        settings.push((Setting::StoreBetween { wide: true }, "store, between; 64 B stores"));
    }
    for (setting, title) in settings {
        println!("\n| {title} (ns) | {} |", SIZES.map(|s| format!("{s} B")).join(" | "));
        println!("|---|{}", "---|".repeat(SIZES.len()));
        let mut rows: Vec<Vec<f64>> = vec![Vec::new(); CANDIDATES.len()];
        for size in SIZES {
            let mut samples: Vec<Vec<f64>> = vec![Vec::new(); CANDIDATES.len()];
            let n: Vec<usize> = CANDIDATES
                .iter()
                .map(|c| (turn_ns as f64 / turn(setting, c, &source, size, &mut target, 200)).max(10.0) as usize)
                .collect();
            for _ in 0..turns {
                for (i, candidate) in CANDIDATES.iter().enumerate() {
                    samples[i].push(turn(setting, candidate, &source, size, &mut target, n[i]));
                }
            }
            for (row, samples) in rows.iter_mut().zip(&mut samples) {
                row.push(median(samples));
            }
        }
        for (candidate, row) in CANDIDATES.iter().zip(&rows) {
            let cells: Vec<String> = row.iter().map(|ns| format!("{ns:.1}")).collect();
            println!("| {} | {} |", candidate.name, cells.join(" | "));
        }
    }
}
