//! Sets of blocks of a volume, as whole walks over it make them.

use sync::{AtomicU64, Ordering};

use crate::format::{Lba, Run};

/// One bit a block, set by several threads.
pub struct Marks(Vec<AtomicU64>);

impl Marks {
    /// None, of so many blocks.
    pub fn new(blocks: u64) -> Marks {
        Marks((0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Marks a block. Returns whether it was marked, or does not exist.
    pub fn mark(&self, block: Lba) -> bool {
        let (word, bit) = ((block.0 / 64) as usize, 1 << (block.0 % 64));
        self.0.get(word).is_none_or(|word| word.fetch_or(bit, Ordering::Relaxed) & bit != 0)
    }

    /// Marks the blocks of a run, which are inside of the volume.
    pub fn mark_run(&self, run: Run) {
        for block in run.start.0..run.start.0 + run.count {
            self.mark(Lba(block));
        }
    }

    /// Whether a block is marked.
    pub fn is_marked(&self, block: Lba) -> bool {
        self.word(block.0 / 64) >> (block.0 % 64) & 1 != 0
    }

    /// Takes a mark back.
    pub fn unmark(&self, block: Lba) {
        self.0[(block.0 / 64) as usize].fetch_and(!(1 << (block.0 % 64)), Ordering::Relaxed);
    }

    /// The marks of 64 blocks, from the `number`th times 64 on.
    pub fn word(&self, number: u64) -> u64 {
        self.0.get(number as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Marks in `all` what is marked here, and in `twice` what was there already. Returns whether anything was.
    pub fn add_to(&self, all: &Marks, twice: &Marks) -> bool {
        let mut any = false;
        for ((word, all), twice) in self.0.iter().zip(&all.0).zip(&twice.0) {
            let word = word.load(Ordering::Relaxed);
            let common = all.fetch_or(word, Ordering::Relaxed) & word;
            twice.fetch_or(common, Ordering::Relaxed);
            any |= common != 0;
        }
        any
    }
}
