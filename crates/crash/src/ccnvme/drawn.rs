//! Programs that are drawn from a seed. They keep the rules of callers: a block that is in flight is not written again
//! before its transaction was waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use wholly_sim::Random;

use super::programs::{BLOCKS, Program, Step};

/// Transactions that are in flight at once: what a crash may leave grows with them.
const MOST_IN_FLIGHT: usize = 4;

/// The program of a seed.
pub fn drawn(seed: u64) -> &'static Program {
    // Each is made once, and stays.
    static MADE: Mutex<BTreeMap<u64, &'static Program>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().expect("nobody panics here");
    made.entry(seed).or_insert_with(|| Box::leak(Box::new(draw(seed))))
}

fn draw(seed: u64) -> Program {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7177);
    let queues = 2 + random.below(3) as u16;
    let depth = if random.below(2) == 0 { 4 } else { 8 };
    let mut in_flight: Vec<(u16, Vec<u64>)> = Vec::new();
    let mut steps = Vec::new();
    for _ in 0..8 + random.below(6) {
        let taken: BTreeSet<u64> = in_flight.iter().flat_map(|(_, blocks)| blocks.iter().copied()).collect();
        let free: Vec<u64> = (0..BLOCKS).filter(|block| !taken.contains(block)).collect();
        let waits = in_flight.len() >= MOST_IN_FLIGHT || (!in_flight.is_empty() && random.below(4) == 0);
        if waits {
            let queue = in_flight[random.below(in_flight.len() as u64) as usize].0;
            in_flight.retain(|(of, _)| *of != queue);
            steps.push(Step::Wait(queue));
        } else if random.below(12) == 0 {
            in_flight.clear();
            steps.push(Step::Again);
        } else if !in_flight.is_empty() && random.below(4) == 0 {
            steps.push(Step::Poll(in_flight[random.below(in_flight.len() as u64) as usize].0));
        } else {
            let mut blocks = BTreeSet::new();
            for _ in 0..1 + random.below(3) {
                blocks.insert(free[random.below(free.len() as u64) as usize]);
            }
            let blocks: Vec<u64> = blocks.into_iter().collect();
            let queue = random.below(queues.into()) as u16;
            in_flight.push((queue, blocks.clone()));
            steps.push(Step::Commit(queue, blocks.leak()));
        }
    }
    Program {
        name: format!("random-{seed}").leak(),
        about: "drawn from a seed",
        queues,
        depth,
        merge: random.below(2) == 0,
        waits_for_head: random.below(3) == 0,
        most_forced: if random.below(3) == 0 { 4096 } else { 256 << 10 },
        first_count: if random.below(3) == 0 { 0u32.wrapping_sub(depth) } else { 0 },
        failing: None,
        steps: steps.leak(),
    }
}
