//! The allocators, as a clean unmount saves them in free blocks: a table of runs in one block, then the bitmaps in the
//! blocks of these runs. The next mount reads them, and then they are free again; nothing else relies on them.

use super::{BLOCK, Fault, Lba, Run, Seed};

const HEAD: usize = 32;
const RUN: usize = 16;
/// The most runs of a table.
pub const MAX_RUNS: usize = (BLOCK - HEAD) / RUN;

/// The table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Bytes in the runs.
    pub bytes: u64,
    /// The checksum of these bytes.
    pub sum: u64,
    /// Where they are.
    pub runs: Vec<Run>,
}

impl Table {
    /// As it stands on media, and the checksum that the superblock has.
    pub fn encode(&self, seed: Seed, at: Lba) -> ([u8; BLOCK], u64) {
        assert!(self.runs.len() <= MAX_RUNS, "a table of {} runs", self.runs.len());
        let mut block = [0; BLOCK];
        let mut put = |at: usize, word: u64| block[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(0, self.bytes);
        put(8, self.sum);
        put(16, self.runs.len() as u64);
        for (i, run) in self.runs.iter().enumerate() {
            put(HEAD + i * RUN, run.start.0);
            put(HEAD + i * RUN + 8, run.count);
        }
        let sum = seed.sum(at.0, 1 << 32, &block);
        (block, sum)
    }

    /// From the medium.
    ///
    /// # Errors
    /// If the superblock's checksum is another.
    pub fn decode(seed: Seed, at: Lba, block: &[u8; BLOCK], sum: u64) -> Result<Table, Fault> {
        if seed.sum(at.0, 1 << 32, block) != sum {
            return Err(Fault("the saved allocators have a wrong checksum"));
        }
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        let count = word(16) as usize;
        if count > MAX_RUNS {
            return Err(Fault("the saved allocators make no sense"));
        }
        let runs = (0..count).map(|i| Run { start: Lba(word(HEAD + i * RUN)), count: word(HEAD + i * RUN + 8) });
        Ok(Table { bytes: word(0), sum: word(8), runs: runs.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_is_detected() {
        let seed = Seed::of(&[1; 16]);
        let table = Table { bytes: 5000, sum: 9, runs: vec![Run { start: Lba(7), count: 2 }] };
        let (block, sum) = table.encode(seed, Lba(6));
        assert_eq!(Table::decode(seed, Lba(6), &block, sum), Ok(table));
        for bit in 0..BLOCK * 8 {
            let mut changed = block;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Table::decode(seed, Lba(6), &changed, sum).is_err(), "bit {bit}");
        }
    }
}
