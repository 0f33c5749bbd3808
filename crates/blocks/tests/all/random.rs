//! Random histories of several transactions, against a model: what is read at any time, and what a crash keeps.

use std::collections::{BTreeMap, BTreeSet};

use wholly_blocks::{Lba, Order, Placement, Run, Sequence, Tag, TxBlocks, Txid};
use wholly_error::Error;
use wholly_sim::{Medium, Random};

use crate::contract::Contract;
use crate::log::Logged;
use crate::ram::{Batched, Fault};
use crate::suite::{S, Subject, get, page};

/// Blocks that transactions write over. Those from 24 on are written as fresh, each once.
const SHARED: u64 = 10;
const FRESH: u64 = 24;
/// A block that is written plainly only.
const PLAIN: u64 = 20;

type Writes = BTreeMap<u64, u8>;

/// What an ordered transaction has written, and which ones it depends on.
struct Ordered {
    writes: Writes,
    needs: BTreeSet<usize>,
}

struct Model {
    kind: Order,
    running: Vec<(Txid, Writes)>,
    ordered: Vec<Ordered>,
    /// How many are durable for sure; `Dependent`: which.
    durable: BTreeSet<usize>,
    plain: u8,
    before: Vec<u8>,
}

impl Model {
    fn content(&self, kept: &BTreeSet<usize>) -> Vec<u8> {
        let mut content = self.before.clone();
        for i in kept {
            for (at, fill) in self.ordered[*i].writes.range(..SHARED) {
                content[*at as usize] = *fill;
            }
        }
        content.push(self.plain);
        content
    }

    fn latest(&self) -> Vec<u8> {
        self.content(&(0..self.ordered.len()).collect())
    }

    /// What a crash may leave.
    fn allowed(&self) -> BTreeSet<Vec<u8>> {
        let open: Vec<usize> = (0..self.ordered.len()).filter(|i| !self.durable.contains(i)).collect();
        let with = |kept: &mut dyn Iterator<Item = usize>| self.durable.iter().copied().chain(kept).collect();
        if self.kind == Order::Total {
            let prefix = |count: usize| self.content(&with(&mut open[..count].iter().copied()));
            return (0..=open.len()).map(prefix).collect();
        }
        let of = |kept: u32| with(&mut (0..open.len()).filter(|i| kept >> i & 1 == 1).map(|i| open[i]));
        let is_closed = |kept: &BTreeSet<usize>| kept.iter().all(|i| self.ordered[*i].needs.is_subset(kept));
        (0..1 << open.len()).map(of).filter(is_closed).map(|kept| self.content(&kept)).collect()
    }

    /// All that one needs, and itself.
    fn closure(&self, of: usize) -> BTreeSet<usize> {
        match self.kind {
            Order::Total => (0..=of).collect(),
            Order::Dependent => {
                let mut all = BTreeSet::from([of]);
                self.ordered[of].needs.iter().for_each(|need| all.extend(self.closure(*need)));
                all
            }
        }
    }
}

fn read(blocks: &dyn TxBlocks) -> Vec<u8> {
    (0..SHARED).chain([PLAIN]).map(|at| get(blocks, None, at)).collect()
}

fn history(subject: &dyn Subject, seed: u64) {
    let mut random = Random(seed);
    let mut opened = subject.make(None);
    let mut fill = 0u8;
    for _ in 0..3 {
        let blocks = opened.blocks();
        let content = read(&*blocks);
        let mut model = Model {
            kind: blocks.guarantees().order,
            running: Vec::new(),
            ordered: Vec::new(),
            durable: BTreeSet::new(),
            plain: content[SHARED as usize],
            before: content[..SHARED as usize].to_vec(),
        };
        let mut fresh = FRESH;
        for _ in 0..30 {
            step(&*blocks, &mut model, &mut random, (&mut fill, &mut fresh));
            assert_eq!(read(&*blocks), model.latest(), "seed {seed}");
            for (tx, writes) in &model.running {
                assert!(writes.iter().all(|(at, fill)| get(&*blocks, Some(*tx), *at) == *fill), "seed {seed}");
            }
        }
        let (mut crashes, allowed) = (opened.during(&mut |_| {}), model.allowed());
        for crash in &crashes {
            let seen = read(&*crash.blocks());
            assert!(allowed.contains(&seen), "seed {seed}: {seen:?}");
        }
        let next = random.below(crashes.len() as u64) as usize;
        opened = crashes.swap_remove(next);
    }
}

fn step(blocks: &dyn TxBlocks, model: &mut Model, random: &mut Random, (fill, fresh): (&mut u8, &mut u64)) {
    let running = random.below(3) as usize;
    while model.running.len() <= running {
        let tx = blocks.begin().unwrap();
        if random.below(2) == 0 {
            // Three transactions run at most, and there is room for all of them.
            blocks.admit(tx, 1 + random.below(2)).unwrap();
        }
        model.running.push((tx, Writes::new()));
    }
    let tx = model.running[running].0;
    match random.below(10) {
        0..=4 => {
            *fill = fill.wrapping_add(1).max(1);
            let at = random.below(SHARED);
            let is_anothers = model.running.iter().any(|(of, writes)| *of != tx && writes.contains_key(&at));
            let written = blocks.write(S, tx, Lba(at), page(*fill), Placement::Overwrite, Tag::Data);
            match is_anothers {
                true => assert!(matches!(written, Err(Error::Busy(..))), "{written:?}"),
                false => _ = (written.unwrap(), model.running[running].1.insert(at, *fill)),
            }
        }
        5 if *fresh < 46 => {
            blocks.write(S, tx, Lba(*fresh), page(*fill), Placement::Fresh, Tag::Map).unwrap();
            model.running[running].1.insert(*fresh, *fill);
            *fresh += 1;
        }
        6 => {
            blocks.abort(S, tx).unwrap();
            model.running.remove(running);
        }
        7 => {
            let last = blocks.order(S, &[], &[]).unwrap();
            match last {
                Sequence(0) => {}
                Sequence(last) => {
                    let upto = 1 + random.below(last);
                    match random.below(2) {
                        0 => blocks.send(S, Sequence(upto)).unwrap(),
                        _ => {
                            blocks.wait(S, Sequence(upto)).unwrap();
                            let more = model.closure(upto as usize - 1);
                            model.durable.extend(more);
                        }
                    }
                }
            }
        }
        8 if random.below(3) == 0 => {
            let plain = blocks.plain();
            plain.write(S, Lba(PLAIN).byte(), &page(*fill)[..]).unwrap();
            plain.fence(S).unwrap();
            model.plain = *fill;
        }
        _ => {
            let (_, writes) = model.running.remove(running);
            let after = match model.ordered.len() as u64 {
                0 => None,
                count => (random.below(3) == 0).then(|| random.below(count)),
            };
            let places: Vec<Sequence> = after.map(|i| Sequence(i + 1)).into_iter().collect();
            let place = blocks.order(S, &[tx], &places).unwrap();
            assert_eq!(place, Sequence(model.ordered.len() as u64 + 1));
            let is_before = |of: &Ordered| of.writes.keys().any(|at| writes.contains_key(at));
            let mut needs: BTreeSet<usize> =
                model.ordered.iter().enumerate().filter(|(_, of)| is_before(of)).map(|(i, _)| i).collect();
            needs.extend(after.map(|i| i as usize));
            for (at, fill) in &writes {
                assert_eq!(get(blocks, None, *at), *fill);
            }
            model.ordered.push(Ordered { writes, needs });
        }
    }
    let durable = blocks.durable().0 as usize;
    model.durable.extend(0..durable);
}

fn histories(subject: &dyn Subject, count: u64) {
    (0..count).for_each(|seed| history(subject, seed));
}

#[test]
fn over_the_contract() {
    histories(&Contract(Order::Total), 60);
    histories(&Contract(Order::Dependent), 60);
}

#[test]
fn over_a_device() {
    histories(&Batched(Fault::None), 400);
}

#[test]
fn over_a_log() {
    histories(&Logged(Medium::BLOCKS), 60);
    histories(&Logged(Medium::PMEM), 10);
}

/// A device of which the first version in a commit counts is found by these histories, too.
#[test]
fn a_wrong_device_is_found() {
    let found = std::panic::catch_unwind(|| histories(&Batched(Fault::FirstCounts), 400));
    assert!(found.is_err());
}

/// Discards over random runs are as in an array.
#[test]
fn discarded_runs() {
    let opened = Batched(Fault::None).make(None);
    let (blocks, mut random, mut model) = (opened.blocks(), Random(9), [0u8; 48]);
    for turn in 1..200u8 {
        let tx = blocks.begin().unwrap();
        let mut own = model;
        for _ in 0..4 {
            let at = random.below(48);
            match random.below(2) {
                0 => {
                    let count = random.below(49 - at);
                    blocks.discard(S, tx, Run { start: Lba(at), count }).unwrap();
                    own[at as usize..(at + count) as usize].fill(0);
                }
                _ => {
                    blocks.write(S, tx, Lba(at), page(turn), Placement::Overwrite, Tag::Data).unwrap();
                    own[at as usize] = turn;
                }
            }
            assert!((0..48).all(|at| get(&*blocks, Some(tx), at) == own[at as usize]));
            assert!((0..48).all(|at| get(&*blocks, None, at) == model[at as usize]));
        }
        let place = blocks.order(S, &[tx], &[]).unwrap();
        model = own;
        assert!((0..48).all(|at| get(&*blocks, None, at) == model[at as usize]));
        if turn % 3 == 0 {
            blocks.wait(S, place).unwrap();
        }
    }
}
