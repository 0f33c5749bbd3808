//! Bytes of committed groups that are kept in memory until they are home (on disks, where reading the log back would
//! cost a device read).

use std::collections::BTreeMap;
use std::sync::Arc;

use index::BLOCK;
use sync::{AtomicU64, Ordering, RwLock};

/// Positions from here on are bytes of buffers in memory.
pub const MEMORY: u64 = 1 << 47;

/// Positions from here on are zeros of a block that home has as well, or home bytes that do not count: see
/// [`space`](super::space#invariants).
pub const HOLE: u64 = MEMORY - BLOCK;

/// Positions from here on are zeros of a block, which are nowhere else.
pub const ZEROS: u64 = HOLE - BLOCK;

/// Positions from here on are bytes of [shadows](super::shadow). All before are of the log.
pub const SHADOWS: u64 = ZEROS - (1 << 46);

/// The bytes of a write, and the sequence of its group.
struct Kept {
    sequence: u64,
    bytes: Arc<[u8]>,
}

/// Buffers by position. A buffer lives until the checkpoint that moves the tail past its group.
pub(crate) struct Memory {
    next: AtomicU64,
    buffers: RwLock<BTreeMap<u64, Kept>>,
}

impl Memory {
    pub fn new() -> Self {
        Memory { next: AtomicU64::new(MEMORY), buffers: RwLock::new(BTreeMap::new()) }
    }

    /// Keeps the bytes of the group with this sequence. Returns the position of the first.
    pub fn keep(&self, sequence: u64, bytes: Arc<[u8]>) -> u64 {
        let position = self.next.fetch_add(bytes.len().max(1) as u64, Ordering::Relaxed);
        self.buffers.write().unwrap().insert(position, Kept { sequence, bytes });
        position
    }

    /// Copies kept bytes. The reader holds a slot whose list names them, so that they are still there.
    pub fn read(&self, position: u64, buf: &mut [u8]) {
        let buffers = self.buffers.read().unwrap();
        let (start, Kept { bytes, .. }) = buffers.range(..=position).next_back().expect("a version's bytes are kept");
        let at = (position - start) as usize;
        buf.copy_from_slice(&bytes[at..at + buf.len()]);
    }

    /// Forgets the bytes of groups below `tail`: no version names them any more.
    pub fn release_below(&self, tail: u64) {
        self.buffers.write().unwrap().retain(|_, kept| kept.sequence >= tail);
    }
}
