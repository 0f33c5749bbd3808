//! The instructions by which bytes reach persistent memory.
//!
//! A write is cut at the 64-byte lines and 8-byte words of its *destination*; the source is loaded unaligned, which
//! costs next to nothing:
//!
//! ```text
//!     first line             whole lines            last line
//!   ┌─┬───┬───┬───┬──────────────────────────────┬───┬───┬─┐
//!   │p│ 8 │ 8 │ 8 │  64    64    64   ...    64  │ 8 │ 8 │p│
//!   └─┴───┴───┴───┴──────────────────────────────┴───┴───┴─┘
//!   └─ stored, then ┘└── non-temporal stores ───┘└─ stored, then
//!      line flushed                                 line flushed
//! ```
//!
//! A **whole line** goes past the caches by non-temporal stores.
//!
//! A line that is **covered in part** is stored to the ordinary way and then written back by the best instruction that
//! the processor has; where half filled lines are cheap and no part of a word is among them, its words go past the
//! caches too.
//!
//! A **part of a word** (`p`) is put into its word by one store of the word, or of just the part where there is such a
//! store, so that the word, the atomic unit of persistent memory, is never torn. Hence two threads may write to one
//! line, not to one word.
//!
//! Nothing here survives a crash before [`fence`]. Non-temporal stores leave through write-combining buffers in no
//! order; the program that made them sees them at once, other processors after the fence.
//!
//! On other architectures than x86-64 [`copy_for_this_processor`] yields an ordinary copy and [`fence`] a memory fence.
//! **That is no persistence primitive**: it serves emulated persistent memory, where only the death of a process is
//! survived; a real DAX mapping is refused there (see [`PmemRegion::open`](super::PmemRegion::open)).

/// Copies `len` bytes to persistent memory, to survive once [`fence`] was called by the same thread.
///
/// # Safety
/// `len` bytes must be readable at the source, and every 8-byte word that the range at the destination touches must be
/// mapped and writable for the whole call; source and destination must not overlap; no other thread may write to the
/// same words during the call; the processor must have the instructions (see [`copy_for_this_processor`]).
pub(super) type Copy = unsafe fn(destination: *mut u8, source: *const u8, len: usize);

/// Which instructions a region uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instructions {
    /// The copy.
    pub copy: Copy,
    /// For people: `"AVX-512 non-temporal stores, clwb"`.
    pub name: &'static str,
    /// Whether these make bytes survive on real persistent memory.
    pub persistent: bool,
}

#[cfg(target_arch = "x86_64")]
pub(super) use super::x86_64::{copy_for_this_processor, fence, hand_over, prefetch_far};
#[cfg(target_arch = "x86_64")]
pub(crate) use super::x86_64::{prefetch, prefetch_to_write};

#[cfg(not(target_arch = "x86_64"))]
pub(super) use super::portable::{copy_for_this_processor, fence, hand_over, prefetch_far};
#[cfg(not(target_arch = "x86_64"))]
pub(crate) use super::portable::{prefetch, prefetch_to_write};
