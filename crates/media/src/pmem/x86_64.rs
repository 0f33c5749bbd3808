//! The instructions of x86-64 processors (see [`store`](super::store) for the plan of a copy).
//!
//! What was measured, in ns for a write and a fence at random aligned places of a mapped file in DRAM (Intel: Sapphire
//! Rapids, AMD: EPYC 7003, both virtual machines; an empty field was not measured):
//!
//! | bytes | 8 | 64 | 100 | 256 | 1 KiB | 4 KiB | 16 KiB |
//! |---|---|---|---|---|---|---|---|
//! | Intel, non-temporal only | 300-330 | 180-190 | 300-330 | 195-205 | 220-235 | 340-380 | 830-970 |
//! | Intel, edges stored and `clwb` | 200-220 | | 220-235 | | | | |
//! | Intel, both in one line | | | 750-830 | | | | |
//! | AMD, non-temporal only | | 112 | | 122 | 162 | 346 | 870 |
//! | AMD, all stored and `clwb` | | 180 | | 199 | 343 | 784 | 2444 |
//!
//! - Whole lines: non-temporal. On Intel stores of 64, 32, 16 and 8 bytes differ by less than the noise, and
//!   `movdir64b` is no faster. One 64-byte store is taken where the processor has it, since a line then never leaves
//!   half filled; else four of 16 bytes.
//! - Lines that are covered in part: a write-combining buffer that leaves half filled costs Intel half as much again as
//!   `clwb`; on AMD non-temporal stores won from 8 bytes on.
//! - Never both in one line.
//! - A part of a word is loaded, merged and stored. A locked instruction in its place would wait for all non-temporal
//!   stores before it, of earlier writes too: two unaligned writes of 1 to 16 KiB and a fence took 1,440 ns with
//!   compare-and-exchange and take 1,190; 1,100 with the edges left out. Two writes of 100 bytes took 507 and take 325.
//! - The first and the last line are asked for before the whole lines between them are stored, and stored to after
//!   those: by then they are there.
//!
//! - A single line is stored by words. It has often just been put together, by stores of words: a load of 64 bytes
//!   would have to wait until those are in the cache, and they wait there for the non-temporal stores before them;
//!   loads of words take them from the processor's queue of stores.
//!
//! The stores of lines are inline assembly: it needs no `target_feature`, so one generic body serves all processors,
//! and the registers `zmm16` and up spare the `vzeroupper` that `zmm0` would cost.

use super::store::{Copy, Instructions};
use std::arch::asm;
use std::arch::x86_64::{
    __cpuid, __cpuid_count, _MM_HINT_T0, _MM_HINT_T1, _mm_clflush, _mm_loadu_si128, _mm_prefetch, _mm_sfence,
    _mm_stream_si64, _mm_stream_si128,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Waits until every store and flush that this thread made before is in the persistence domain.
#[inline(always)]
pub(super) fn fence() {
    // SAFETY: sfence is part of SSE, which every x86-64 processor has; it touches no memory.
    unsafe { _mm_sfence() }
}

/// Nothing: the thread releases a lock afterwards, by a locked instruction, which waits for every store and flush
/// before it, as a fence does.
#[inline(always)]
pub(super) fn hand_over() {}

/// Asks the processor to fetch the line at `address`, which need not be mapped.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// Asks the processor to fetch the line at `address`, which need not be mapped, into its second-level cache: the first
/// has few places for lines on their way, and non-temporal stores need them too.
#[inline(always)]
pub(super) fn prefetch_far(address: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(address.cast()) }
}

/// Asks the processor to fetch the line at `address`, which need not be mapped, for a store.
#[inline(always)]
pub(crate) fn prefetch_to_write(address: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address; processors without the instruction take it for a no-op.
    unsafe { asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
}

/// Bits of cpuid leaf 7, register ebx. std's detection knows neither.
const CLFLUSHOPT: u32 = 1 << 23;
const CLWB: u32 = 1 << 24;

/// The best instructions of this processor. `caches_persist`: eADR, so ordinary stores need no flush.
pub(super) fn copy_for_this_processor(caches_persist: bool) -> Instructions {
    let leaf_0 = __cpuid(0);
    let leaf_7_ebx = if leaf_0.eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    let amd = [leaf_0.ebx, leaf_0.edx, leaf_0.ecx].map(u32::to_le_bytes).concat() == b"AuthenticAMD";
    // std asks the operating system too, whether it saves the registers.
    let avx512 = std::arch::is_x86_feature_detected!("avx512f");
    macro_rules! with_flush {
        ($line:ty, $nt_words:literal, $stores:literal) => {
            if caches_persist {
                (copy::<$line, NoFlush, false> as Copy, concat!($stores, " non-temporal stores, caches persistent"))
            } else if leaf_7_ebx & CLWB != 0 {
                (copy::<$line, Clwb, $nt_words> as Copy, concat!($stores, " non-temporal stores, clwb"))
            } else if leaf_7_ebx & CLFLUSHOPT != 0 {
                (copy::<$line, ClflushOpt, $nt_words> as Copy, concat!($stores, " non-temporal stores, clflushopt"))
            } else {
                // clflush waits for the one before it, so half filled lines cost less.
                (copy::<$line, Clflush, true> as Copy, concat!($stores, " non-temporal stores, clflush"))
            }
        };
    }
    let (copy, name) = match (avx512, amd) {
        (true, true) => with_flush!(Avx512, true, "AVX-512"),
        (true, false) => with_flush!(Avx512, false, "AVX-512"),
        (false, true) => with_flush!(Sse2, true, "SSE2"),
        (false, false) => with_flush!(Sse2, false, "SSE2"),
    };
    Instructions { copy, name, persistent: true }
}

/// How a whole line goes past the caches.
trait Line {
    /// Stores 64 bytes.
    ///
    /// # Safety
    /// 64 bytes must be readable at `from`, mapped and writable at `to`, `to` a multiple of 64; the processor must have
    /// the instructions.
    unsafe fn store(to: *mut u8, from: *const u8);

    /// Stores 64 bytes that may just have been put together: word by word.
    ///
    /// # Safety
    /// As for [`store`](Self::store).
    #[inline(always)]
    unsafe fn store_fresh(to: *mut u8, from: *const u8) {
        // SAFETY: the caller's promise; a line is eight aligned words.
        unsafe { store_words::<true>(to, from, 64) }
    }

    /// Stores 256 bytes; as four times [`store`](Self::store), all loads first.
    ///
    /// # Safety
    /// As for [`store`](Self::store), for 256 bytes.
    #[inline(always)]
    unsafe fn store_four(to: *mut u8, from: *const u8) {
        for line in 0..4 {
            // SAFETY: line 0..4 of the 256 bytes that the caller promised.
            unsafe { Self::store(to.add(64 * line), from.add(64 * line)) }
        }
    }
}

/// One 64-byte store.
struct Avx512;
/// Four 16-byte stores.
struct Sse2;
impl Line for Avx512 {
    #[inline(always)]
    unsafe fn store(to: *mut u8, from: *const u8) {
        // SAFETY: 64 bytes readable at `from`, an aligned line writable at `to`, AVX-512F there: the caller's promise.
        unsafe {
            asm!(
                "vmovdqu64 zmm16, [{from}]",
                "vmovntdq [{to}], zmm16",
                from = in(reg) from, to = in(reg) to, out("zmm16") _,
                options(nostack, preserves_flags),
            );
        }
    }

    #[inline(always)]
    unsafe fn store_four(to: *mut u8, from: *const u8) {
        // SAFETY: as `store`, for 256 bytes.
        unsafe {
            asm!(
                "vmovdqu64 zmm16, [{from}]",
                "vmovdqu64 zmm17, [{from} + 64]",
                "vmovdqu64 zmm18, [{from} + 128]",
                "vmovdqu64 zmm19, [{from} + 192]",
                "vmovntdq [{to}], zmm16",
                "vmovntdq [{to} + 64], zmm17",
                "vmovntdq [{to} + 128], zmm18",
                "vmovntdq [{to} + 192], zmm19",
                from = in(reg) from, to = in(reg) to,
                out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

impl Line for Sse2 {
    #[inline(always)]
    unsafe fn store(to: *mut u8, from: *const u8) {
        for quarter in 0..4 {
            // SAFETY: quarter 0..4 of the line that the caller promised.
            unsafe { quarter_line(to.add(16 * quarter), from.add(16 * quarter)) }
        }
    }
}

/// Stores 8 bytes past the caches.
///
/// # Safety
/// 8 bytes must be readable at `from`, mapped and writable at `to`, `to` a multiple of 8.
#[inline(always)]
unsafe fn store_word(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise; the load is unaligned.
    unsafe { _mm_stream_si64(to.cast(), from.cast::<i64>().read_unaligned()) }
}

/// Stores 16 bytes past the caches.
///
/// # Safety
/// 16 bytes must be readable at `from`, mapped and writable at `to`, `to` a multiple of 16.
#[inline(always)]
unsafe fn quarter_line(to: *mut u8, from: *const u8) {
    // SAFETY: the caller's promise; the load is unaligned.
    unsafe { _mm_stream_si128(to.cast(), _mm_loadu_si128(from.cast())) }
}

/// How a line that was stored to the ordinary way reaches the persistence domain.
trait Flush {
    /// Begins to write back the line at `address`; the next fence waits for it.
    ///
    /// # Safety
    /// `address` must be mapped, and the processor must have the instruction.
    unsafe fn flush(address: *mut u8);
}

/// `clwb`: writes the line back and may keep it.
struct Clwb;
/// `clflushopt`: writes the line back and drops it.
struct ClflushOpt;
/// `clflush`: as `clflushopt`, but one after the other.
struct Clflush;
/// Nothing: under eADR the caches are inside the persistence domain.
struct NoFlush;

impl Flush for Clwb {
    #[inline(always)]
    unsafe fn flush(address: *mut u8) {
        // SAFETY: mapped and supported by the caller's promise; a write-back changes no value.
        unsafe { asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags)) }
    }
}

impl Flush for ClflushOpt {
    #[inline(always)]
    unsafe fn flush(address: *mut u8) {
        // SAFETY: mapped and supported by the caller's promise; a write-back changes no value.
        unsafe { asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags)) }
    }
}

impl Flush for Clflush {
    #[inline(always)]
    unsafe fn flush(address: *mut u8) {
        // SAFETY: mapped by the caller's promise; clflush is part of SSE2.
        unsafe { _mm_clflush(address) }
    }
}

impl Flush for NoFlush {
    #[inline(always)]
    unsafe fn flush(_: *mut u8) {}
}

/// Stores `len` bytes, which lie inside one aligned 8-byte word, so that the word is never seen or kept half changed.
///
/// # Safety
/// As for [`Copy`]; `len` is not 0, and the bytes do not cross a multiple of 8.
#[inline]
unsafe fn store_part(to: *mut u8, from: *const u8, len: usize) {
    let at = to as usize & 7;
    debug_assert!(len > 0 && at + len <= 8, "a part of one word");
    // SAFETY: `len` bytes readable at `from` and writable at `to`, aligned as the arms ask; each arm is one store.
    unsafe {
        match len {
            1 => return to.write_volatile(from.read()),
            2 if at.is_multiple_of(2) => return to.cast::<u16>().write_volatile(from.cast::<u16>().read_unaligned()),
            4 if at.is_multiple_of(4) => return to.cast::<u32>().write_volatile(from.cast::<u32>().read_unaligned()),
            _ => {}
        }
    }
    let mut bytes = [0u8; 8];
    // SAFETY: `len` bytes are readable at `from`, and `at + len <= 8` of them fit the array.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr().add(at), len) };
    let new = u64::from_ne_bytes(bytes);
    let mask = (u64::MAX >> (64 - 8 * len)) << (8 * at);
    // SAFETY: the word is aligned, since `at` is taken off, and mapped for the whole call by the caller's promise,
    // which also says that nobody else writes it meanwhile; others may read it, and see it as it was or as it becomes.
    let word = unsafe { AtomicU64::from_ptr(to.sub(at).cast()) };
    word.store(word.load(Ordering::Relaxed) & !mask | new, Ordering::Relaxed);
}

/// Stores whole words into one line, each by one store.
///
/// # Safety
/// As for [`Copy`]; `to` and `len` are multiples of 8.
#[inline(always)]
unsafe fn store_words<const PAST_CACHES: bool>(to: *mut u8, from: *const u8, len: usize) {
    let mut offset = 0;
    while offset < len {
        // SAFETY: `offset + 8 <= len`, and `to + offset` is a multiple of 8.
        unsafe {
            let (to, from) = (to.add(offset), from.add(offset));
            if PAST_CACHES {
                store_word(to, from);
            } else {
                to.cast::<u64>().write_volatile(from.cast::<u64>().read_unaligned());
            }
        }
        offset += 8;
    }
}

/// Stores whole lines past the caches.
///
/// # Safety
/// As for [`Copy`]; `to` and `len` are multiples of 64.
#[inline(always)]
unsafe fn store_lines<L: Line>(mut to: *mut u8, mut from: *const u8, mut len: usize) {
    while len >= 256 {
        // SAFETY: 256 of the caller's bytes; the pointers stay inside of them or at their end.
        unsafe {
            L::store_four(to, from);
            (to, from) = (to.add(256), from.add(256));
        }
        len -= 256;
    }
    while len >= 64 {
        // SAFETY: 64 of the caller's bytes; the pointers stay inside of them or at their end.
        unsafe {
            L::store(to, from);
            (to, from) = (to.add(64), from.add(64));
        }
        len -= 64;
    }
}

/// The copy, see [`store`](super::store). `NT_WORDS`: lines that are covered in part, but by whole words, go past the
/// caches too.
///
/// # Safety
/// As for [`Copy`].
unsafe fn copy<L: Line, F: Flush, const NT_WORDS: bool>(to: *mut u8, from: *const u8, len: usize) {
    if to as usize & 63 == 0 && len == 64 {
        // SAFETY: the caller's promise, and one whole line.
        unsafe { L::store_fresh(to, from) }
    } else if (to as usize | len) & 63 == 0 {
        // SAFETY: the caller's promise, and whole lines.
        unsafe { store_lines::<L>(to, from, len) }
    } else if len > 0 {
        // SAFETY: the caller's promise.
        unsafe { copy_with_edges::<L, F, NT_WORDS>(to, from, len) }
    }
}

/// The copy where its first or last line is covered in part.
///
/// # Safety
/// As for [`Copy`]; `len` is not 0.
#[inline(always)]
unsafe fn copy_with_edges<L: Line, F: Flush, const NT_WORDS: bool>(to: *mut u8, from: *const u8, len: usize) {
    // Offsets from `to`: words begin | lines begin | lines end | words end.
    let words = (to as usize).wrapping_neg() & 7;
    let words = words.min(len);
    let words_end = len - ((len - words) & 7);
    let lines = (words + ((to as usize + words).wrapping_neg() & 63)).min(words_end);
    let lines_end = lines + ((words_end - lines) & !63);
    debug_assert!(words <= lines && lines <= lines_end && lines_end <= words_end && words_end <= len);

    // SAFETY: all offsets are at most `len`, so all places are inside the ranges that the caller promised, or in words
    // that these touch. Parts lie inside one word, words are aligned, lines too; the processor has the instructions.
    unsafe {
        if NT_WORDS && words == 0 && words_end == len {
            store_words::<true>(to, from, lines);
            store_words::<true>(to.add(lines_end), from.add(lines_end), len - lines_end);
            return store_lines::<L>(to.add(lines), from.add(lines), lines_end - lines);
        }
        // Both edges are on their way while the whole lines between them are stored.
        let last = to.add(len - 1);
        prefetch_to_write(to);
        prefetch_to_write(last);
        store_lines::<L>(to.add(lines), from.add(lines), lines_end - lines);
        if words > 0 {
            store_part(to, from, words);
        }
        if words_end < len {
            store_part(to.add(words_end), from.add(words_end), len - words_end);
        }
        store_words::<false>(to.add(words), from.add(words), lines - words);
        store_words::<false>(to.add(lines_end), from.add(lines_end), words_end - lines_end);
        // Only edges were stored to the ordinary way: the first line if it does not begin here, the last if it does not
        // end here.
        let (begins, ends) = (to as usize & 63 == 0, (to as usize + len) & 63 == 0);
        let one_line = (to as usize ^ last as usize) & !63 == 0;
        if !begins || one_line {
            F::flush(to);
        }
        if !ends && !one_line {
            F::flush(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// Every copy that this processor can do, by name.
    fn copies() -> Vec<(&'static str, Copy)> {
        let ebx = __cpuid_count(7, 0).ebx;
        let mut all = vec![
            ("sse2 clflush", copy::<Sse2, Clflush, false> as Copy),
            ("sse2 clflush nt", copy::<Sse2, Clflush, true>),
            ("sse2 eadr", copy::<Sse2, NoFlush, false>),
        ];
        if ebx & CLFLUSHOPT != 0 {
            all.push(("sse2 clflushopt", copy::<Sse2, ClflushOpt, false>));
        }
        if ebx & CLWB != 0 {
            all.push(("sse2 clwb", copy::<Sse2, Clwb, false>));
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            all.push(("avx512 clflush", copy::<Avx512, Clflush, false>));
            all.push(("avx512 clflush nt", copy::<Avx512, Clflush, true>));
        }
        all
    }

    /// Bytes that begin at a multiple of 64.
    #[repr(align(64))]
    struct Lines([u8; 4096]);

    fn check(at: usize, data: &[u8]) {
        for (name, copy) in copies() {
            let mut lines = Box::new(Lines([0xee; 4096]));
            let mut expected = [0xee; 4096];
            expected[at..at + data.len()].copy_from_slice(data);
            // SAFETY: the range and the words that it touches lie inside the array, which nobody else knows.
            unsafe { copy(lines.0.as_mut_ptr().add(at), data.as_ptr(), data.len()) };
            fence();
            assert!(lines.0 == expected, "{name}: {} bytes at {at}", data.len());
        }
    }

    #[test]
    fn every_short_range_is_copied_and_nothing_else() {
        let data: Vec<u8> = (0..200).map(|byte| byte as u8).collect();
        for at in 64..136 {
            for len in 0..200 {
                check(at, &data[..len]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_range_is_copied_and_nothing_else(
            at in 0usize..1024,
            skip in 0usize..64,
            data in proptest::collection::vec(any::<u8>(), 64..3000),
        ) {
            check(at, &data[skip..]);
        }
    }

    thread_local! {
        /// What was flushed, with the line's content at that moment, and which lines went past the caches.
        static FLUSHED: RefCell<Vec<(usize, [u8; 64])>> = const { RefCell::new(Vec::new()) };
        static PASSED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    struct Recorder;

    impl Flush for Recorder {
        unsafe fn flush(address: *mut u8) {
            let line = address as usize & !63;
            // SAFETY: the line lies inside the test's array, whose address was exposed for this.
            FLUSHED.with_borrow_mut(|flushed| flushed.push((line, unsafe { *(line as *const [u8; 64]) })));
        }
    }

    impl Line for Recorder {
        unsafe fn store(to: *mut u8, from: *const u8) {
            PASSED.with_borrow_mut(|passed| passed.push(to as usize));
            // SAFETY: as promised to `store`.
            unsafe { std::ptr::copy_nonoverlapping(from, to, 64) }
        }

        unsafe fn store_fresh(to: *mut u8, from: *const u8) {
            // SAFETY: as promised to `store_fresh`.
            unsafe { Self::store(to, from) }
        }
    }

    /// No test of contents sees a flush that is missing, or too early: memory shows the bytes either way.
    #[test]
    fn each_line_is_flushed_once_after_its_last_store_or_goes_past_the_caches() {
        let data: Vec<u8> = (0..700).map(|byte| byte as u8 | 1).collect();
        for at in 64..136 {
            for len in (0..200).chain([256, 300, 512, 640]) {
                FLUSHED.take();
                PASSED.take();
                let mut lines = Box::new(Lines([0; 4096]));
                let base = (&raw mut *lines).expose_provenance();
                // SAFETY: the range and the words that it touches lie inside the array, which nobody else knows.
                unsafe { copy::<Recorder, Recorder, false>((base + at) as *mut u8, data.as_ptr(), len) };
                let flushed = FLUSHED.take();
                let mut reached: Vec<usize> = flushed.iter().map(|&(line, _)| line).chain(PASSED.take()).collect();
                reached.sort_unstable();
                let touched: Vec<usize> = (at / 64..(at + len).div_ceil(64)).map(|line| base + line * 64).collect();
                assert_eq!(reached, if len == 0 { vec![] } else { touched }, "{len} bytes at {at}");
                for (line, then) in flushed {
                    assert_eq!(then, lines.0[line - base..line - base + 64], "{len} bytes at {at}");
                }
            }
        }
    }

    #[test]
    fn threads_may_share_a_line() {
        let mut lines = Box::new(Lines([0; 4096]));
        let place = lines.0.as_mut_ptr() as usize;
        for (_, copy) in copies() {
            std::thread::scope(|scope| {
                // The first three and the last three bytes of the two halves of the same lines, over and over.
                for (first, last) in [(0, 32), (32, 64)] {
                    scope.spawn(move || {
                        for round in 0..20_000usize {
                            let data = [round as u8 ^ first as u8; 3];
                            let line = place + round % 8 * 64;
                            for at in [first, last - 3] {
                                // SAFETY: inside the array; the other thread writes other words.
                                unsafe { copy((line + at) as *mut u8, data.as_ptr(), data.len()) };
                            }
                        }
                    });
                }
            });
            fence();
            for line in 0..8 {
                let last = (19_992 + line) as u8;
                for (at, byte) in [(0, last), (29, last), (32, last ^ 32), (61, last ^ 32)] {
                    assert_eq!(lines.0[line * 64 + at..line * 64 + at + 3], [byte; 3], "line {line}, byte {at}");
                }
            }
        }
    }
}
