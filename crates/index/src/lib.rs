//! The index: where the latest committed bytes of a file are while they are not home.
//!
//! # Terms
//!
//! - *version*: what one write put into the log of one 4 KiB block. A client chooses one of two kinds: a *run* of bytes
//!   ([`RunVersion`], for a store), or some of its cache *lines* ([`LinesVersion`], for a volume).
//! - *slot*: a block's list of versions, newest first, and its lock, in one word.
//! - *node*: 64 slots, or 64 pointers to nodes: a radix tree per file that grows at its root. The index of a volume has
//!   smaller nodes, and makes them later (`sparse.rs`).
//!
//! # Invariants
//!
//! 1. A slot's list is changed only by who holds its *claim* (but see 5); a version is unlinked only by who also waited
//!    for the readers of the slot to leave. Hence a reader sees a list that stays as it is.
//! 2. A list is in the order of stamps, the highest first, in whatever order groups publish: as they were committed.
//! 3. Home bytes that a version covers are written only by the holder of the claim, after readers that may have seen an
//!    older list have left. Hence a reader never sees home bytes while they change.
//! 4. Nodes are only added while the index lives. Hence finding a slot takes no lock.
//! 5. Who owns a file changes its lists without claims, unless a checkpoint *visits* the file. A checkpoint marks the
//!    files that it is about to visit, then waits for every commit that may not have seen the mark. What such an owner
//!    unlinks is garbage, used again after the block was visited and its readers have left.
//! 6. A list has at most as many versions that do not show as versions that do, and 64, where they come in the order of
//!    their stamps.
//! 7. While a file is [clean](Pending) its home bytes are read without a look at any slot.
//!
//! Sources: the radix tree with skipped levels is Libnvmmio's (section 3.2), the list of versions a block FCFS's
//! two-level volatile index (III-D). FCFS keeps a bitmap of the 64 cache lines of each version, and so do *lines*. A
//! *run* keeps its first byte and its length: a write is one run in a block, and bytes serve unaligned writes without
//! reading the old line (`docs/decisions/0002-versions-by-byte.md`).

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod lines;
mod pending;
mod pieces;
mod radix;
mod slot;
mod sparse;
mod version;

pub use lines::{LINE, LinesVersion, latest_lines};
pub use pending::{Clean, Pending};
pub use pieces::{Piece, logged_pieces, pieces};
pub use radix::{FileIndex, Radix};
pub use slot::{Claim, Garbage, Pushed, ReadGuard, Slot, prepare_alone};
pub use sparse::SparseIndex;
pub use version::{NO_VERSION, RunVersion, Version, VersionArena};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
