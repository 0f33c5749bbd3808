//! What a repair is going to store: copies of whole blocks in free blocks, and a chain of tables that say where each
//! belongs. The superblock names the first table; until a later superblock does not, the repair is to be finished.

use super::{BLOCK, Fault, Lba, Seed};

const HEAD: usize = 32;
const MOVE: usize = 24;
/// The most blocks of one table.
pub const PER_TABLE: usize = (BLOCK - HEAD) / MOVE;

/// One block of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The block that changes.
    pub home: Lba,
    /// The block with its new bytes.
    pub copy: Lba,
    /// The checksum of these.
    pub sum: u64,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The next table, with its checksum.
    pub next: Option<(Lba, u64)>,
    /// Blocks.
    pub moves: Vec<Move>,
}

/// The checksum of a copy.
pub fn copy_sum(seed: Seed, at: Lba, block: &[u8; BLOCK]) -> u64 {
    seed.sum(at.0, 3 << 32, block)
}

impl Table {
    /// As it stands on media, and the checksum that leads to it.
    pub fn encode(&self, seed: Seed, at: Lba) -> ([u8; BLOCK], u64) {
        assert!(self.moves.len() <= PER_TABLE, "a table of {} blocks", self.moves.len());
        let mut block = [0; BLOCK];
        let mut put = |at: usize, word: u64| block[at..at + 8].copy_from_slice(&word.to_le_bytes());
        let (next, next_sum) = self.next.unwrap_or((Lba(0), 0));
        put(0, next.0);
        put(8, next_sum);
        put(16, self.moves.len() as u64);
        for (i, it) in self.moves.iter().enumerate() {
            let at = HEAD + i * MOVE;
            put(at, it.home.0);
            put(at + 8, it.copy.0);
            put(at + 16, it.sum);
        }
        let sum = seed.sum(at.0, 4 << 32, &block);
        (block, sum)
    }

    /// From the medium.
    ///
    /// # Errors
    /// If the checksum that led to it is another.
    pub fn decode(seed: Seed, at: Lba, block: &[u8; BLOCK], sum: u64) -> Result<Table, Fault> {
        if seed.sum(at.0, 4 << 32, block) != sum {
            return Err(Fault("a table of an unfinished repair has a wrong checksum"));
        }
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        let count = word(16) as usize;
        if count > PER_TABLE {
            return Err(Fault("a table of an unfinished repair makes no sense"));
        }
        let of = |i: usize| HEAD + i * MOVE;
        let moves =
            (0..count).map(|i| Move { home: Lba(word(of(i))), copy: Lba(word(of(i) + 8)), sum: word(of(i) + 16) });
        let next = (word(0) != 0).then(|| (Lba(word(0)), word(8)));
        Ok(Table { next, moves: moves.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_is_detected() {
        let seed = Seed::of(&[1; 16]);
        let moves = vec![Move { home: Lba(9), copy: Lba(70), sum: 5 }, Move { home: Lba(8), copy: Lba(71), sum: 6 }];
        let table = Table { next: Some((Lba(7), 2)), moves };
        let (block, sum) = table.encode(seed, Lba(6));
        assert_eq!(Table::decode(seed, Lba(6), &block, sum), Ok(table));
        for bit in 0..BLOCK * 8 {
            let mut changed = block;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Table::decode(seed, Lba(6), &changed, sum).is_err(), "bit {bit}");
        }
        assert!(Table::decode(seed, Lba(7), &block, sum).is_err(), "at another place");
    }
}
