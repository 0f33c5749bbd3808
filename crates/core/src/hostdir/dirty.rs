//! Which blocks have versions: what a checkpoint has to visit.

use crossbeam_utils::CachePadded;

use crate::sync::{Mutex, thread_token};

const SHARDS: usize = 8;
const BLOCK_BITS: u32 = 40;
/// In the place of a block: the size is to be brought home.
const SIZE: u64 = (1 << BLOCK_BITS) - 1;

/// Something to visit, in 8 bytes: the file's number above, the block's below. Sorted they are by file and block, sizes last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DirtyBlock(u64);

impl DirtyBlock {
    pub fn new(file: u32, block: u64) -> Self {
        debug_assert!(block < SIZE && file < 1 << 24);
        DirtyBlock(u64::from(file) << BLOCK_BITS | block)
    }

    /// The file's number.
    pub fn file(self) -> u32 {
        (self.0 >> BLOCK_BITS) as u32
    }

    /// The block, or `None` for the size.
    pub fn block(self) -> Option<u64> {
        let block = self.0 & SIZE;
        (block != SIZE).then_some(block)
    }
}

/// Blocks that went from no version to some, each named once until a checkpoint takes the list.
pub(crate) struct Dirty {
    shards: [CachePadded<Mutex<Vec<DirtyBlock>>>; SHARDS],
}

impl Dirty {
    pub fn new() -> Self {
        Dirty { shards: [const { CachePadded::new(Mutex::new(Vec::new())) }; SHARDS] }
    }

    pub fn append(&self, blocks: &mut Vec<DirtyBlock>) {
        if !blocks.is_empty() {
            self.shard().lock().unwrap().append(blocks);
        }
    }

    pub fn push_resize(&self, file: u32) {
        self.shard().lock().unwrap().push(DirtyBlock(u64::from(file) << BLOCK_BITS | SIZE));
    }

    fn shard(&self) -> &Mutex<Vec<DirtyBlock>> {
        &self.shards[thread_token() as usize % SHARDS]
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().unwrap().is_empty())
    }

    /// Takes all of them, in no order.
    pub fn take(&self) -> Vec<DirtyBlock> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = std::mem::take(&mut *shard.lock().unwrap());
            if all.is_empty() {
                all = shard;
            } else {
                all.append(&mut shard);
            }
        }
        all
    }
}
