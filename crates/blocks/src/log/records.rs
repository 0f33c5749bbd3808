//! Where records go in the ring, and which of them count.

use std::collections::{HashMap, VecDeque};

use sync::Mutex;

use super::ring::{Entry, Record, Ring, RingSeed, Tail, encode_head, encode_header};
use crate::{BLOCK, Lba, Run};

struct Live {
    sequence: u64,
    at: u64,
    blocks: u64,
}

struct State {
    seed: RingSeed,
    /// The sequence of the next record. All before it are published.
    next: u64,
    /// Where it stands, unless it begins at the first block.
    at: u64,
    /// Records that recovery would read, oldest first.
    live: VecDeque<Live>,
    /// Blocks of the ring that they have.
    used: u64,
    /// Blocks that they have images of: the last record with one.
    imaged: HashMap<u64, u64>,
    /// Which header is written next.
    turn: u64,
}

impl State {
    fn new(seed: RingSeed) -> State {
        let Tail { sequence, at } = Tail::FIRST;
        State { seed, next: sequence, at, live: VecDeque::new(), used: 0, imaged: HashMap::new(), turn: 0 }
    }
}

/// See the module.
pub struct Records {
    /// Where they stand.
    pub ring: Ring,
    state: Mutex<State>,
}

impl Records {
    /// None yet.
    pub fn new(ring: Ring, seed: RingSeed) -> Records {
        Records { ring, state: Mutex::new(State::new(seed)) }
    }

    /// Begins a new incarnation: no record counts.
    pub fn start(&self, seed: RingSeed) {
        *self.state.lock().unwrap() = State::new(seed);
    }

    /// The seed of this incarnation.
    pub fn seed(&self) -> RingSeed {
        self.state.lock().unwrap().seed
    }

    /// The sequence of the next record. All before it are published.
    pub fn next(&self) -> u64 {
        self.state.lock().unwrap().next
    }

    /// Where in the ring a record of so many blocks goes; `None` if there is no room before older ones are written
    /// back.
    pub fn place(&self, blocks: u64) -> Option<u64> {
        let state = self.state.lock().unwrap();
        let Some(first) = state.live.front() else { return (blocks <= self.ring.blocks).then_some(0) };
        // As it is not empty, it is full where both are equal.
        if state.at <= first.at {
            return (first.at - state.at >= blocks).then_some(state.at);
        }
        if self.ring.blocks - state.at >= blocks { Some(state.at) } else { (first.at >= blocks).then_some(0) }
    }

    /// A record is durable, and what it has is published.
    pub fn append(&self, at: u64, blocks: u64, imaged: impl Iterator<Item = u64>) {
        let state = &mut *self.state.lock().unwrap();
        state.live.push_back(Live { sequence: state.next, at, blocks });
        state.used += blocks;
        state.imaged.extend(imaged.map(|block| (block, state.next)));
        (state.next, state.at) = (state.next + 1, at + blocks);
    }

    /// A record is going to be appended, and durable, in which these blocks are void: no image of them counts.
    pub fn void(&self, blocks: &[u64]) {
        let state = &mut *self.state.lock().unwrap();
        blocks.iter().for_each(|block| _ = state.imaged.remove(block));
    }

    /// Of which of these blocks a record that counts has an image.
    pub fn imaged(&self, runs: &[Run], to: &mut Vec<u64>) {
        let state = self.state.lock().unwrap();
        for Run { start, count } in runs {
            let has = |block: &u64| (start.0..start.0 + count).contains(block);
            if (state.imaged.len() as u64) < *count {
                to.extend(state.imaged.keys().copied().filter(has));
            } else {
                to.extend((start.0..start.0 + count).filter(|block| state.imaged.contains_key(block)));
            }
        }
    }

    /// Blocks of the ring with records that count.
    pub fn used(&self) -> u64 {
        self.state.lock().unwrap().used
    }

    /// The header that says that records before this one do not count, and the block for it. Once it is durable, they
    /// are [`release`](Self::release)d.
    pub fn header(&self, sequence: u64) -> (Lba, [u8; BLOCK]) {
        let (tail, turn) = self.tail(sequence);
        let block = self.ring.header(turn);
        (block, encode_header(self.seed(), block, tail))
    }

    /// Fills the head of the next record. The record is to stand at a block of the ring, and has so many blocks. The
    /// head gets an entry for each image, and the blocks whose earlier images are void, in ascending order. It is as
    /// long as [`head_blocks`](super::head_blocks) says. Returns the record's sequence.
    ///
    /// # Panics
    /// If they are not.
    pub fn fill_head(&self, mut entries: Vec<Entry>, void: &[u64], (at, blocks): (u64, u64), bytes: &mut [u8]) -> u64 {
        for run in void.chunk_by(|one, next| one + 1 == *next) {
            entries.push(Entry::Void(Run { start: Lba(run[0]), count: run.len() as u64 }));
        }
        let sequence = self.next();
        encode_head(self.seed(), self.ring.block(at), &Record { sequence, blocks, entries }, bytes);
        sequence
    }

    /// What the header is to say so that records before this one do not count, and which header it is.
    fn tail(&self, sequence: u64) -> (Tail, u64) {
        let state = &mut *self.state.lock().unwrap();
        state.turn += 1;
        let first = state.live.iter().find(|record| record.sequence >= sequence);
        (Tail { sequence, at: first.map_or(state.at, |record| record.at) }, state.turn)
    }

    /// A header says so durably.
    pub fn release(&self, sequence: u64) {
        let state = &mut *self.state.lock().unwrap();
        let gone = state.live.partition_point(|record| record.sequence < sequence);
        state.used -= state.live.drain(..gone).map(|record| record.blocks).sum::<u64>();
        state.imaged.retain(|_, last| *last >= sequence);
        if state.live.is_empty() {
            state.at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records never overlap those that count, and a reader finds each behind the one before or at the first block.
    #[test]
    fn records_that_count_stay() {
        let ring = Ring::of(Run { start: Lba(2), count: 24 });
        let log = Records::new(ring, RingSeed::new(1));
        let mut random = wholly_sim::Random(3);
        let (mut live, mut end): (VecDeque<(u64, u64)>, _) = (VecDeque::new(), 0);
        let (mut full, mut wrapped) = (0, 0);
        for _ in 0..5000 {
            let blocks = 1 + random.below(9);
            match log.place(blocks) {
                None => {
                    full += 1;
                    assert!(!live.is_empty());
                    let gone = 1 + random.below(live.len() as u64);
                    let oldest = log.next() - live.len() as u64;
                    let (tail, _) = log.tail(oldest + gone);
                    let next = live.get(gone as usize).map_or(end, |(at, _)| *at);
                    assert_eq!(tail, Tail { sequence: oldest + gone, at: next });
                    log.release(oldest + gone);
                    live.drain(..gone as usize);
                }
                Some(at) => {
                    assert!(at == end || at == 0);
                    assert!(at + blocks <= ring.blocks);
                    assert!(live.iter().all(|(from, count)| at >= from + count || at + blocks <= *from));
                    wrapped += u64::from(at == 0);
                    log.append(at, blocks, at..at + blocks);
                    live.push_back((at, blocks));
                    end = at + blocks;
                    let mut imaged = Vec::new();
                    log.imaged(&[Run { start: Lba(at), count: blocks + 100 }], &mut imaged);
                    assert!(imaged.len() as u64 >= blocks);
                }
            }
            assert_eq!(log.used(), live.iter().map(|(_, blocks)| blocks).sum::<u64>());
        }
        assert!(full > 100 && wrapped > 100, "{full} {wrapped}");
    }
}
