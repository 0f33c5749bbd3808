//! Programs on transactions of blocks that are drawn from a seed: transactions that overlap, and are ordered, aborted
//! and waited for in any order, with fresh content, discards, room that is admitted, and plain writes.
//!
//! A draw keeps the rules of callers (T4 and T12 of the crate `wholly-blocks`, and those of fresh content), and bounds
//! what a crash may leave: few transactions are ordered and not durable, and few blocks are unspecified, at a time.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::{Mutex, PoisonError};

use super::Kind;
use super::programs::{Program, Step};
use crate::workload::mix;

/// Steps of a program, about. A state of the contract is quickly looked at.
const STEPS: usize = 40;
const STEPS_OF_CONTRACT: usize = 64;
/// Blocks of a flash disk that is nearly full.
const FULL: u64 = 16;
/// Transactions that run at once, those that are ordered and not durable, plain writes that are not flushed, and blocks
/// of which it is not specified what they have: at most.
const RUNNING: usize = 3;
const PENDING: usize = 3;
const PLAIN: usize = 2;
const LOOSE: usize = 1;

/// The program of a seed, called `random-SEED`: the same in each process.
pub fn drawn(kind: Kind, seed: u64) -> &'static Program {
    static DRAWN: Mutex<BTreeMap<(&str, u64), &'static Program>> = Mutex::new(BTreeMap::new());
    let mut drawn = DRAWN.lock().unwrap_or_else(PoisonError::into_inner);
    // They live as long as those that are written by hand: each is made once.
    drawn.entry((kind.name(), seed)).or_insert_with(|| Box::leak(Box::new(Draw::program(kind, seed))))
}

/// What a transaction does to a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Over,
    Fresh,
    Zeros,
}

#[derive(Default)]
struct Own {
    blocks: BTreeMap<u64, How>,
    /// Versions that it may have, those that are admitted counted.
    pages: u64,
    admitted: bool,
    /// What is left of those.
    left: u64,
}

struct Draw {
    kind: Kind,
    random: u64,
    blocks: u64,
    /// Versions that all transactions together may have which are not durable.
    room: u64,
    steps: Vec<Step>,
    begun: u8,
    running: BTreeMap<u8, Own>,
    pending: Vec<Own>,
    plain: BTreeSet<u64>,
    loose: BTreeSet<u64>,
}

impl Draw {
    fn program(kind: Kind, seed: u64) -> Program {
        // Half of the flash disks are nearly full, so that they collect.
        let is_full = kind == Kind::Xftl && seed.is_multiple_of(2);
        let blocks = if is_full { FULL } else { 7 };
        let (room, name) = (if is_full { 3 } else { 8 }, format!("random-{seed}"));
        let random = mix(seed ^ 0xb10c << 32);
        let mut draw = Draw {
            kind,
            random,
            blocks,
            room,
            steps: Vec::new(),
            begun: 0,
            running: BTreeMap::new(),
            pending: Vec::new(),
            plain: BTreeSet::new(),
            loose: BTreeSet::new(),
        };
        if is_full {
            // It is full after the first four.
            draw.steps.extend([Step::Begin(b'a'), Step::Fill(b'a'), Step::Commit(b"a")]);
            for from in [4, 8, 12] {
                draw.steps.extend([Step::Begin(b'a'), Step::Writes(b'a', from, 4), Step::Commit(b"a")]);
            }
        }
        let steps = draw.steps.len() + if kind == Kind::Contract { STEPS_OF_CONTRACT } else { STEPS };
        while draw.steps.len() < steps {
            draw.step();
        }
        draw.wait();
        Program {
            name: Box::leak(name.into_boxed_str()),
            about: "drawn",
            on: match kind {
                Kind::Contract => &[Kind::Contract],
                Kind::Log => &[Kind::Log],
                Kind::Xftl => &[Kind::Xftl],
                Kind::MultiQueue => &[Kind::MultiQueue],
            },
            blocks,
            behind: u64::MAX,
            queues: 2 + (seed % 2) as u16,
            steps: Box::leak(draw.steps.into_boxed_slice()),
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random = mix(self.random);
        ((u128::from(self.random) * u128::from(n)) >> 64) as u64
    }

    /// A transaction that runs.
    fn any(&mut self) -> Option<u8> {
        let which = self.below(self.running.len().max(1) as u64) as usize;
        self.running.keys().nth(which).copied()
    }

    fn used(&self) -> u64 {
        self.running.values().chain(&self.pending).map(|own| own.pages).sum()
    }

    /// Whether a transaction may write or discard a block: no other one that runs has it (T4). What was written plainly
    /// is flushed before.
    fn is_free(&self, tx: u8, block: u64) -> bool {
        let others = self.running.iter().filter(|(other, _)| **other != tx);
        !self.plain.contains(&block) && others.into_iter().all(|(_, own)| !own.blocks.contains_key(&block))
    }

    fn is_pending(&self, block: u64) -> bool {
        self.pending.iter().any(|own| own.blocks.contains_key(&block))
    }

    fn step(&mut self) {
        // Of a full disk some blocks are written again and again, so that others stay in the erase blocks with them.
        let is_full = self.blocks == FULL;
        let of = if is_full && self.below(4) > 0 { 4 } else { self.blocks };
        let block = self.below(of);
        let chosen = self.below(100);
        let Some(tx) = self.any().filter(|_| chosen >= 14 || self.running.len() == RUNNING) else {
            return self.begin();
        };
        match chosen {
            0..48 => self.write(tx, block),
            48..54 => self.fresh(tx, block),
            54..60 => self.discard(tx, block),
            60..63 => self.admit(tx),
            63..69 => {
                let own = self.running.remove(&tx).expect("it runs");
                let fresh = own.blocks.iter().filter(|(_, how)| **how == How::Fresh).map(|(block, _)| *block);
                self.loose.extend(fresh);
                self.steps.push(Step::Abort(tx));
            }
            69..82 => self.order(tx),
            82..87 => self.steps.extend((!self.pending.is_empty()).then_some(Step::Send)),
            87..91 => self.wait(),
            91..97 if !self.kind.is_bare() => self.write_plainly(block),
            91..97 => self.write(tx, block),
            _ => {
                self.plain.clear();
                self.steps.push(Step::Flush);
            }
        }
    }

    fn begin(&mut self) {
        let tx = b'a' + self.begun % 26;
        self.begun += 1;
        if let Entry::Vacant(free) = self.running.entry(tx) {
            free.insert(Own::default());
            self.steps.push(Step::Begin(tx));
        }
    }

    fn write(&mut self, tx: u8, block: u64) {
        if !self.is_free(tx, block) {
            return;
        }
        let has_room = self.used() < self.room;
        let own = self.running.get_mut(&tx).expect("it runs");
        // What was discarded has no version.
        if own.blocks.get(&block).is_none_or(|how| *how == How::Zeros) {
            match (own.left, has_room) {
                (0, false) => return,
                (0, true) => own.pages += 1,
                _ => own.left -= 1,
            }
        }
        // What is fresh stays unspecified until the transaction is durable.
        let how = own.blocks.entry(block).or_insert(How::Over);
        *how = if *how == How::Fresh { How::Fresh } else { How::Over };
        self.steps.push(Step::Write(tx, block));
    }

    /// Nobody reads its committed version, which is durable.
    fn fresh(&mut self, tx: u8, block: u64) {
        let is_held = self.running.values().any(|own| own.blocks.contains_key(&block)) || self.is_pending(block);
        let is_bounded = self.loose.contains(&block) || self.loose.len() < LOOSE;
        if !is_held && is_bounded && !self.plain.contains(&block) && self.used() < self.room {
            self.loose.insert(block);
            let own = self.running.get_mut(&tx).expect("it runs");
            own.blocks.insert(block, How::Fresh);
            own.pages += 1;
            self.steps.push(Step::Fresh(tx, block));
        }
    }

    fn discard(&mut self, tx: u8, from: u64) {
        let count = 1 + self.below(2).min(self.blocks - from - 1);
        let is_free = (from..from + count).all(|block| self.is_free(tx, block) && !self.loose.contains(&block));
        // What is discarded may be unspecified.
        let is_bounded = !self.kind.is_bare() || self.loose.len() + count as usize <= LOOSE;
        if is_free && is_bounded {
            let own = self.running.get_mut(&tx).expect("it runs");
            own.blocks.extend((from..from + count).map(|block| (block, How::Zeros)));
            if self.kind.is_bare() {
                self.loose.extend(from..from + count);
            }
            self.steps.push(Step::Discard(tx, from, count));
        }
    }

    /// One transaction at a time has room that is admitted, or they would wait for each other.
    fn admit(&mut self, tx: u8) {
        let pages = 1 + self.below(3);
        if self.running.values().all(|own| !own.admitted) && self.used() + pages <= self.room {
            let own = self.running.get_mut(&tx).expect("it runs");
            own.pages += pages;
            own.left += pages;
            own.admitted = true;
            self.steps.push(Step::Admit(tx, pages));
        }
    }

    /// Orders a transaction, or all that run, and sometimes waits.
    fn order(&mut self, tx: u8) {
        if self.pending.len() == PENDING {
            return self.wait();
        }
        let (all, waits) = (self.below(4) == 0, self.below(3) > 0);
        let mut txs: Vec<u8> = if all { self.running.keys().copied().collect() } else { vec![tx] };
        // One that has written nothing makes nothing durable.
        txs.retain(|tx| !self.running[tx].blocks.is_empty());
        if txs.is_empty() {
            return;
        }
        if self.below(2) == 0 {
            txs.reverse();
        }
        let mut together = Own::default();
        for own in txs.iter().filter_map(|tx| self.running.remove(tx)) {
            together.blocks.extend(own.blocks);
            together.pages += own.pages;
        }
        self.pending.push(together);
        self.steps.push(Step::Order(txs.leak()));
        if waits {
            self.wait();
        }
    }

    /// What is ordered becomes durable. Where a set survives that is closed under dependency, a wait is for the last
    /// one and what it depends on: so that is made to depend on all.
    fn wait(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if self.kind.is_dependent() && self.pending.len() > 1 {
            let all: Vec<u64> = self.pending.iter().filter_map(|own| own.blocks.keys().next().copied()).collect();
            let holds = |own: &Own| all.iter().any(|block| own.blocks.contains_key(block));
            let holders: Vec<u8> = self.running.iter().filter(|(_, own)| holds(own)).map(|(tx, _)| *tx).collect();
            let gather: Vec<u8> = holders.into_iter().chain([b'A']).collect();
            self.steps.push(Step::Begin(b'A'));
            let mut together = Own::default();
            for block in all {
                let mut holders = self.running.iter().filter(|(_, own)| own.blocks.contains_key(&block));
                if holders.next().is_none() && !together.blocks.contains_key(&block) {
                    self.steps.push(Step::Write(b'A', block));
                    together.blocks.insert(block, How::Over);
                }
            }
            for own in gather.iter().filter_map(|tx| self.running.remove(tx)) {
                together.blocks.extend(own.blocks);
            }
            self.pending.push(together);
            self.steps.push(Step::Order(gather.leak()));
        }
        self.steps.push(Step::Wait);
        self.plain.clear();
        for own in std::mem::take(&mut self.pending) {
            for (block, how) in own.blocks {
                match how {
                    How::Zeros if self.kind.is_bare() => _ = self.loose.insert(block),
                    _ if self.running.values().any(|own| own.blocks.get(&block) == Some(&How::Fresh)) => {}
                    _ => _ = self.loose.remove(&block),
                }
            }
        }
    }

    /// With nothing that is ordered and not durable: a commit that somebody else needs might come before it, and the
    /// wait would find nothing to do.
    fn write_plainly(&mut self, block: u64) {
        let is_held = self.running.values().any(|own| own.blocks.contains_key(&block)) || self.loose.contains(&block);
        if !is_held && self.pending.is_empty() && (self.plain.contains(&block) || self.plain.len() < PLAIN) {
            self.plain.insert(block);
            self.steps.push(Step::Plain(block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_program_and_others_differ() {
        for kind in Kind::ALL {
            let text = |program: &Program| format!("{:?}", program.steps);
            let all: BTreeSet<String> = (0..200).map(|seed| text(drawn(kind, seed))).collect();
            assert_eq!(all.len(), 200);
            assert!((0..200).all(|seed| text(&Draw::program(kind, seed)) == text(drawn(kind, seed))));
            let has = |step: &str| all.iter().filter(|steps| steps.contains(step)).count();
            for step in ["Fresh(", "Discard(", "Admit(", "Abort(", "Order(", "Send", "Wait", "Flush"] {
                assert!(has(step) > 40, "{step}: {}", has(step));
            }
            assert_eq!(has("Plain(") > 40, !kind.is_bare());
        }
    }
}
