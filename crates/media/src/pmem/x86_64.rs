//! The instructions of x86-64 processors (see [`store`](super::store) for the plan of a copy).
//!
//! Measured on DRAM (ns for a write and a fence at random aligned places; the order is the same from 8 bytes up, also
//! for lines that are in the cache): non-temporal stores beat stores and `clwb` everywhere.
//!
//! The stores are inline assembly: it needs no `target_feature`, so one generic body serves all processors, and
//! the registers `zmm16` and up spare the `vzeroupper` that `zmm0` would cost.

use super::store::{Copy, Instructions};
use std::arch::asm;
use std::arch::x86_64::{
    __cpuid, __cpuid_count, _MM_HINT_T0, _mm_clflush, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si64,
    _mm_stream_si128,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// Waits until every store and flush that this thread made before is in the persistence domain.
#[inline(always)]
pub(super) fn fence() {
    // SAFETY: sfence is part of SSE, which every x86-64 processor has; it touches no memory.
    unsafe { _mm_sfence() }
}

/// Asks the processor to fetch the line at `address`, which need not be mapped.
#[inline(always)]
pub(super) fn prefetch(address: *const u8) {
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

/// The best instructions of this processor. `caches_persist`: eADR, so ordinary stores need no flush.
pub(super) fn copy_for_this_processor(caches_persist: bool) -> Instructions {
    // Leaf 7 is only there if leaf 0 says so; std's detection knows neither clwb nor clflushopt.
    let has_leaf_7 = __cpuid(0).eax >= 7;
    let leaf_7_ebx = if has_leaf_7 { __cpuid_count(7, 0).ebx } else { 0 };
    let clflushopt = leaf_7_ebx & 1 << 23 != 0;
    let clwb = leaf_7_ebx & 1 << 24 != 0;
    // std asks the operating system too, whether it saves the registers.
    let avx512 = std::arch::is_x86_feature_detected!("avx512f");
    macro_rules! pick {
        ($line:ty, $stores:literal) => {
            if caches_persist {
                (copy::<$line, NoFlush> as Copy, concat!($stores, ", caches persistent"))
            } else if clwb {
                (copy::<$line, Clwb> as Copy, concat!($stores, ", clwb"))
            } else if clflushopt {
                (copy::<$line, ClflushOpt> as Copy, concat!($stores, ", clflushopt"))
            } else {
                (copy::<$line, Clflush> as Copy, concat!($stores, ", clflush"))
            }
        };
    }
    let (copy, name) =
        if avx512 { pick!(Avx512, "AVX-512 non-temporal stores") } else { pick!(Sse2, "SSE2 non-temporal stores") };
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
/// Two 32-byte stores.
#[cfg_attr(not(test), expect(dead_code, reason = "never faster than the others where it was measured"))]
struct Avx2;
/// Four 16-byte stores.
struct Sse2;
/// Eight 8-byte stores.
#[cfg_attr(not(test), expect(dead_code, reason = "never faster than the others where it was measured"))]
struct Movnti;

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

impl Line for Avx2 {
    #[inline(always)]
    unsafe fn store(to: *mut u8, from: *const u8) {
        // SAFETY: 64 bytes readable at `from`, an aligned line writable at `to`, AVX there: the caller's promise.
        // vzeroupper clears the upper halves of all registers, so all are declared as clobbered.
        unsafe {
            asm!(
                "vmovdqu ymm0, [{from}]",
                "vmovdqu ymm1, [{from} + 32]",
                "vmovntdq [{to}], ymm0",
                "vmovntdq [{to} + 32], ymm1",
                "vzeroupper",
                from = in(reg) from, to = in(reg) to,
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
                out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
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

impl Line for Movnti {
    #[inline(always)]
    unsafe fn store(to: *mut u8, from: *const u8) {
        for eighth in 0..8 {
            // SAFETY: eighth 0..8 of the line that the caller promised.
            unsafe { word(to.add(8 * eighth), from.add(8 * eighth)) }
        }
    }
}

/// Stores 8 bytes past the caches.
///
/// # Safety
/// 8 bytes must be readable at `from`, mapped and writable at `to`, `to` a multiple of 8.
#[inline(always)]
unsafe fn word(to: *mut u8, from: *const u8) {
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

/// Stores 32 bytes past the caches.
///
/// # Safety
/// 32 bytes must be readable at `from`, mapped and writable at `to`, `to` a multiple of 32.
#[inline(always)]
unsafe fn half_line(to: *mut u8, from: *const u8) {
    // SAFETY: the two halves of what the caller promised.
    unsafe {
        quarter_line(to, from);
        quarter_line(to.add(16), from.add(16));
    }
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

/// Puts `len` bytes, which lie inside one aligned 8-byte word, into that word by one atomic store and flushes its line.
///
/// # Safety
/// As for [`Copy`]; the bytes must not cross a multiple of 8.
#[inline]
unsafe fn merge<F: Flush>(to: *mut u8, from: *const u8, len: usize) {
    let at = to as usize & 7;
    debug_assert!(len > 0 && at + len <= 8, "a part of one word");
    let mut bytes = [0u8; 8];
    // SAFETY: `len` bytes are readable at `from`, and `at + len <= 8` of them fit the array.
    unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr().add(at), len) };
    let new = u64::from_ne_bytes(bytes);
    let mask = (u64::MAX >> (64 - 8 * len)) << (8 * at);
    // SAFETY: the word is aligned, since `at` is taken off, and mapped for the whole call by the caller's promise.
    // Others that write parts of the same word come through here too; whole words of it belong to nobody else.
    let word = unsafe { AtomicU64::from_ptr(to.sub(at).cast()) };
    let mut old = word.load(Ordering::Relaxed);
    // Repeated only when a neighbour in the same word was faster, which is its progress.
    while let Err(seen) = word.compare_exchange_weak(old, old & !mask | new, Ordering::Release, Ordering::Relaxed) {
        old = seen;
    }
    // SAFETY: the address was just stored to, so it is mapped; that the processor has the instruction was asked.
    unsafe { F::flush(to) };
}

/// The copy, see [`store`](super::store).
///
/// # Safety
/// As for [`Copy`].
unsafe fn copy<L: Line, F: Flush>(mut to: *mut u8, mut from: *const u8, mut len: usize) {
    // Moves on by `n` bytes that were stored.
    macro_rules! stored {
        ($n:expr) => {{
            // SAFETY: `n <= len` bytes lie before the new places, in the ranges that the caller promised.
            (to, from) = unsafe { (to.add($n), from.add($n)) };
            len -= $n;
        }};
    }
    if (to as usize | len) & 63 != 0 {
        let at = to as usize & 7;
        if at != 0 {
            let n = len.min(8 - at);
            if n == 0 {
                return;
            }
            // SAFETY: `n` of the caller's bytes, which end with their word.
            unsafe { merge::<F>(to, from, n) };
            stored!(n);
        }
        // Each step makes the place a multiple of its double, or leaves fewer bytes than itself, which the tail takes.
        if to as usize & 8 != 0 && len >= 8 {
            // SAFETY: 8 of the caller's bytes, the place a multiple of 8.
            unsafe { word(to, from) };
            stored!(8);
        }
        if to as usize & 16 != 0 && len >= 16 {
            // SAFETY: 16 of the caller's bytes, the place a multiple of 16.
            unsafe { quarter_line(to, from) };
            stored!(16);
        }
        if to as usize & 32 != 0 && len >= 32 {
            // SAFETY: 32 of the caller's bytes, the place a multiple of 32.
            unsafe { half_line(to, from) };
            stored!(32);
        }
    }
    while len >= 256 {
        // SAFETY: 256 of the caller's bytes, the place a multiple of 64: fewer than 64 would be left otherwise.
        unsafe { L::store_four(to, from) };
        stored!(256);
    }
    while len >= 64 {
        // SAFETY: 64 of the caller's bytes, the place a multiple of 64.
        unsafe { L::store(to, from) };
        stored!(64);
    }
    if len == 0 {
        return;
    }
    if len & 32 != 0 {
        // SAFETY: 32 of the caller's bytes; the place is a multiple of 32, else the head had left fewer.
        unsafe { half_line(to, from) };
        stored!(32);
    }
    if len & 16 != 0 {
        // SAFETY: 16 of the caller's bytes; the place is a multiple of 16.
        unsafe { quarter_line(to, from) };
        stored!(16);
    }
    if len & 8 != 0 {
        // SAFETY: 8 of the caller's bytes; the place is a multiple of 8.
        unsafe { word(to, from) };
        stored!(8);
    }
    if len > 0 {
        // SAFETY: the last 1..8 of the caller's bytes; they begin with their word.
        unsafe { merge::<F>(to, from, len) };
    }
}
