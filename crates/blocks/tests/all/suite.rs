//! One case for each rule of the crate's head, over any implementation. A case fails by a panic.

use std::collections::BTreeSet;
use std::sync::Arc;

use wholly_blocks::{BLOCK, Lba, Order, Page, Placement, Run, Sequence, Tag, TxBlocks, Txid};
use wholly_error::Error;
use wholly_media::Site;

/// Blocks of each medium.
pub const BLOCKS: u64 = 48;
/// Pages for which there is room.
pub const ROOM: u64 = 8;
/// The site of every call but one.
pub const S: Site = Site("test");
/// A commit that is made here fails.
pub const FAILS: Site = Site("test.fails");

/// An implementation.
pub trait Subject {
    /// A medium that was never used. A transaction may write over so many blocks, if it says so.
    fn make(&self, most_overwrites: Option<u64>) -> Box<dyn Opened>;
}

/// A medium in one life.
pub trait Opened {
    fn blocks(&self) -> Arc<dyn TxBlocks>;
    /// What a crash at any moment of some work may leave, each opened.
    fn during(&self, work: &mut dyn FnMut(&dyn TxBlocks)) -> Vec<Box<dyn Opened>>;
    /// What is durable now, opened, with a block that has rotted.
    fn rotten(&self, at: u64) -> Box<dyn Opened>;
}

/// A case, and the rule that it is for.
type Case = (&'static str, fn(&dyn Subject));

/// All of them.
pub const CASES: &[Case] = &[
    ("T1 atomic", atomic),
    ("T1 order", keeps_the_order),
    ("T2 own", own),
    ("T3 abort", abort),
    ("T4 one writer", one_writer),
    ("T4 the last counts", the_last_counts),
    ("T5 crash", crash_aborts),
    ("T5 numbers", numbers),
    ("T6 together", together),
    ("T7 no space", no_space),
    ("T8 poison", poison),
    ("T9 rot", rot),
    ("T10 size", size),
    ("T11 zeros", zeros),
    ("T12 plain", plain),
];

/// Runs all.
pub fn holds(subject: &dyn Subject) {
    for (name, case) in CASES {
        println!("{name}");
        case(subject);
    }
}

pub fn page(fill: u8) -> Page {
    Page::new(&[fill; BLOCK])
}

pub fn put(blocks: &dyn TxBlocks, tx: Txid, at: u64, fill: u8) {
    blocks.write(S, tx, Lba(at), page(fill), Placement::Overwrite, Tag::Data).expect("a write");
}

fn fresh(blocks: &dyn TxBlocks, tx: Txid, at: u64, fill: u8) {
    blocks.write(S, tx, Lba(at), page(fill), Placement::Fresh, Tag::Data).expect("a write");
}

/// What a block is filled with.
pub fn get(blocks: &dyn TxBlocks, tx: Option<Txid>, at: u64) -> u8 {
    let mut bytes = [0xee; BLOCK];
    blocks.read(tx, Lba(at), &mut bytes).expect("a read");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {at} is torn");
    bytes[0]
}

fn first(blocks: &dyn TxBlocks, count: u64) -> Vec<u8> {
    (0..count).map(|at| get(blocks, None, at)).collect()
}

/// A transaction that writes over some blocks.
pub fn writes(blocks: &dyn TxBlocks, of: &[(u64, u8)]) -> Txid {
    let tx = blocks.begin().expect("a transaction");
    of.iter().for_each(|(at, fill)| put(blocks, tx, *at, *fill));
    tx
}

fn order(blocks: &dyn TxBlocks, txs: &[Txid], after: &[Sequence]) -> Sequence {
    blocks.order(S, txs, after).expect("an order")
}

pub fn commit(blocks: &dyn TxBlocks, txs: &[Txid]) {
    let sequence = order(blocks, txs, &[]);
    blocks.wait(S, sequence).expect("a commit");
}

/// Blocks 0 to 7 have 100 to 107, durably.
fn filled(subject: &dyn Subject, most_overwrites: Option<u64>) -> Box<dyn Opened> {
    let opened = subject.make(most_overwrites);
    let blocks = opened.blocks();
    for at in 0..8 {
        commit(&*blocks, &[writes(&*blocks, &[(at, 100 + at as u8)])]);
    }
    opened
}

/// The contents of the first blocks that crashes may leave.
fn states(crashes: &[Box<dyn Opened>], count: u64) -> BTreeSet<Vec<u8>> {
    crashes.iter().map(|opened| first(&*opened.blocks(), count)).collect()
}

fn is_busy<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Busy(..)))
}

fn is_full<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::NoSpace(_)))
}

fn is_poisoned<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Poisoned(_)))
}

/// Over a crash at every moment: all of a transaction or nothing, and all once `wait` has returned.
fn atomic(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let (old, new) = (vec![100, 101, 102], vec![1, 101, 3]);
    let crashes = opened.during(&mut |blocks| {
        let tx = writes(blocks, &[(0, 1), (2, 9)]);
        put(blocks, tx, 2, 3);
        let sequence = order(blocks, &[tx], &[]);
        blocks.send(S, sequence).expect("a start");
        blocks.wait(S, sequence).expect("a commit");
        assert!(blocks.durable() >= sequence);
    });
    assert_eq!(states(&crashes, 3), BTreeSet::from([old, new.clone()]));
    let after = opened.during(&mut |_| {});
    assert_eq!(states(&after, 3), BTreeSet::from([new]));
}

/// What a crash keeps of ordered transactions is what the guarantees say.
fn keeps_the_order(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let kind = opened.blocks().guarantees().order;
    // Of each transaction what it writes, what `order` is told, and what it depends on.
    type Planned = (&'static [(u64, u8)], Option<usize>, Option<usize>);
    let all: [Planned; 5] = [
        (&[(0, 1), (1, 1)], None, None),
        (&[(1, 2), (2, 2)], None, Some(0)),
        (&[(3, 3)], None, None),
        (&[(4, 4)], Some(2), Some(2)),
        (&[(5, 5)], None, None),
    ];
    let old: Vec<u8> = (100..106).collect();
    let with = |kept: u32| {
        let mut content = old.clone();
        let writes = all.iter().enumerate().filter(|(i, _)| kept >> i & 1 == 1).flat_map(|(_, (writes, ..))| *writes);
        writes.for_each(|(at, fill)| content[*at as usize] = *fill);
        content
    };
    let is_kept = |kept: &u32| match kind {
        Order::Total => (kept + 1).is_power_of_two(),
        Order::Dependent => {
            let needs = |i: usize| all[i].2.iter().all(|need| kept >> need & 1 == 1);
            (0..all.len()).all(|i| kept >> i & 1 == 0 || needs(i))
        }
    };
    let allowed = |must: u32| (0..1 << all.len()).filter(is_kept).filter(move |kept| kept & must == must).map(with);
    let mut places = Vec::new();
    let crashes = opened.during(&mut |blocks| {
        for (of, after, _) in &all {
            let after: Vec<Sequence> = after.iter().map(|i: &usize| places[*i]).collect();
            places.push(order(blocks, &[writes(blocks, of)], &after));
        }
    });
    let (seen, may) = (states(&crashes, 6), allowed(0).collect::<BTreeSet<_>>());
    assert!(seen.is_subset(&may), "{kind:?}: {:?}", seen.difference(&may).collect::<Vec<_>>());
    assert_eq!(first(&*opened.blocks(), 6), with(31), "everybody reads what is ordered");
    // With the second one, the first.
    opened.blocks().wait(S, places[1]).expect("a commit");
    let (seen, may) = (states(&opened.during(&mut |_| {}), 6), allowed(3).collect::<BTreeSet<_>>());
    assert!(seen.is_subset(&may), "{kind:?} after a wait: {:?}", seen.difference(&may).collect::<Vec<_>>());
    opened.blocks().wait(S, places[3]).expect("a commit");
    let (seen, may) = (states(&opened.during(&mut |_| {}), 6), allowed(15).collect::<BTreeSet<_>>());
    assert!(seen.is_subset(&may), "{kind:?} after two: {:?}", seen.difference(&may).collect::<Vec<_>>());
    opened.blocks().wait(S, places[4]).expect("a commit");
    assert_eq!(opened.blocks().durable(), places[4]);
}

/// Only the transaction reads what it has written; from its order on everybody, wherever it is.
fn own(subject: &dyn Subject) {
    for admitted in [false, true] {
        let opened = filled(subject, None);
        let blocks = &*opened.blocks();
        let tx = blocks.begin().expect("a transaction");
        if admitted {
            blocks.admit(tx, 2).expect("room");
        }
        put(blocks, tx, 0, 1);
        put(blocks, tx, 1, 9);
        put(blocks, tx, 1, 2);
        let other = blocks.begin().expect("a transaction");
        assert_eq!((get(blocks, Some(tx), 0), get(blocks, Some(tx), 1), get(blocks, Some(tx), 2)), (1, 2, 102));
        assert_eq!(
            (get(blocks, Some(other), 0), get(blocks, None, 1)),
            (100, 101),
            "others read the committed version"
        );
        let sequence = order(blocks, &[tx], &[]);
        assert_eq!((get(blocks, Some(other), 0), get(blocks, None, 1)), (1, 2), "ordered");
        blocks.send(S, sequence).expect("a start");
        assert_eq!((get(blocks, Some(other), 0), get(blocks, None, 1)), (1, 2), "sent");
        // A later one that is ordered is read, and is not in the way.
        let later = writes(blocks, &[(1, 3)]);
        assert_eq!(get(blocks, None, 1), 2);
        let last = order(blocks, &[later], &[]);
        assert_eq!((get(blocks, None, 0), get(blocks, None, 1)), (1, 3));
        blocks.wait(S, sequence).expect("a commit");
        assert_eq!((get(blocks, None, 0), get(blocks, None, 1)), (1, 3));
        blocks.wait(S, last).expect("a commit");
        assert_eq!((get(blocks, Some(other), 0), get(blocks, None, 1)), (1, 3), "durable");
        assert!(blocks.read(Some(tx), Lba(0), &mut [0; BLOCK]).is_err(), "it has ended");
    }
}

/// Nothing is left of an aborted transaction, now and after a crash.
fn abort(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let crashes = opened.during(&mut |blocks| {
        let tx = blocks.begin().expect("a transaction");
        (0..3).for_each(|at| put(blocks, tx, at, 1));
        blocks.discard(S, tx, Run { start: Lba(3), count: 2 }).expect("a discard");
        blocks.abort(S, tx).expect("an abort");
        assert_eq!(first(blocks, 5), [100, 101, 102, 103, 104]);
        assert!(blocks.order(S, &[tx], &[]).is_err() && blocks.abort(S, tx).is_err(), "it has ended");
        // Its blocks are not in the way.
        commit(blocks, &[writes(blocks, &[(6, 6)])]);
        blocks.abort(S, writes(blocks, &[(0, 2)])).expect("an abort");
    });
    let seen = states(&crashes, 6);
    assert_eq!(seen, BTreeSet::from([vec![100, 101, 102, 103, 104, 105]]));
}

/// A block that a running transaction has written is another's only after that one is ordered.
fn one_writer(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let blocks = &*opened.blocks();
    let one = writes(blocks, &[(0, 1)]);
    blocks.discard(S, one, Run { start: Lba(4), count: 2 }).expect("a discard");
    let other = writes(blocks, &[(1, 2)]);
    let write = |at| blocks.write(S, other, Lba(at), page(9), Placement::Overwrite, Tag::Data);
    assert!(is_busy(write(0)), "written");
    assert!(is_busy(write(5)), "discarded");
    assert!(is_busy(blocks.discard(S, other, Run { start: Lba(0), count: 3 })));
    assert_eq!((get(blocks, Some(other), 0), get(blocks, Some(other), 1), get(blocks, Some(other), 2)), (100, 2, 102));
    order(blocks, &[one], &[]);
    write(0).expect("it does not run any more");
    commit(blocks, &[other]);
    assert_eq!(first(blocks, 4), [9, 2, 102, 103]);
    assert_eq!(states(&opened.during(&mut |_| {}), 4), BTreeSet::from([vec![9, 2, 102, 103]]));
}

/// Of versions of one block, the last ordered one counts: in memory, sent early, or both.
fn the_last_counts(subject: &dyn Subject) {
    for (early, late) in [(false, false), (false, true), (true, false), (true, true)] {
        let opened = filled(subject, None);
        let blocks = opened.blocks();
        let writer = |admitted: bool, fill| {
            let tx = blocks.begin().expect("a transaction");
            if admitted {
                blocks.admit(tx, 1).expect("room");
            }
            put(&*blocks, tx, 0, fill);
            tx
        };
        let one = order(&*blocks, &[writer(!early, 1)], &[]);
        blocks.send(S, one).expect("a start");
        let two = order(&*blocks, &[writer(!late, 2)], &[]);
        let three = writer(!early, 3);
        blocks.wait(S, two).expect("a commit");
        assert_eq!((get(&*blocks, None, 0), get(&*blocks, Some(three), 0)), (2, 3));
        assert_eq!(states(&opened.during(&mut |_| {}), 1), BTreeSet::from([vec![2]]));
        blocks.abort(S, three).expect("an abort");
        assert_eq!(get(&*blocks, None, 0), 2);
    }
}

/// A crash aborts what runs, however much of it was sent.
fn crash_aborts(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let crashes = opened.during(&mut |blocks| {
        let tx = blocks.begin().expect("a transaction");
        (0..3).for_each(|at| put(blocks, tx, at, 1));
        blocks.discard(S, tx, Run { start: Lba(3), count: 1 }).expect("a discard");
        (16..32).for_each(|at| fresh(blocks, tx, at, 2));
        // Another's commit does not take it along.
        commit(blocks, &[writes(blocks, &[(7, 7)])]);
    });
    assert_eq!(states(&crashes, 4), BTreeSet::from([vec![100, 101, 102, 103]]));
    for opened in crashes {
        let blocks = opened.blocks();
        let tx = writes(&*blocks, &[(0, 5)]);
        commit(&*blocks, &[tx]);
        assert_eq!(first(&*blocks, 4), [5, 101, 102, 103], "the next life goes on");
    }
}

/// No number is given out twice.
fn numbers(subject: &dyn Subject) {
    let (mut opened, mut seen) = (subject.make(None), BTreeSet::new());
    for _ in 0..3 {
        let blocks = opened.blocks();
        for end in 0..4 {
            let tx = writes(&*blocks, &[(0, 1)]);
            assert!(seen.insert(tx) && tx.0 != 0, "{tx:?} is used again");
            match end {
                0 => blocks.abort(S, tx).expect("an abort"),
                1 => commit(&*blocks, &[tx]),
                2 => _ = order(&*blocks, &[tx], &[]),
                _ => {}
            }
        }
        opened = opened.during(&mut |_| {}).remove(0);
    }
}

/// Transactions of one order are one.
fn together(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let crashes = opened.during(&mut |blocks| {
        let txs = [writes(blocks, &[(0, 1)]), writes(blocks, &[(1, 2)]), blocks.begin().expect("a transaction")];
        assert!(blocks.order(S, &[txs[0], txs[1], txs[0]], &[]).is_err(), "one is named twice");
        commit(blocks, &txs);
        let last = order(blocks, &[], &[]);
        blocks.wait(S, last).expect("nothing to do");
    });
    assert_eq!(states(&crashes, 3), BTreeSet::from([vec![100, 101, 102], vec![1, 2, 102]]));
}

/// A write that finds no space changes nothing; the transaction can end either way.
fn no_space(subject: &dyn Subject) {
    let opened = filled(subject, Some(4));
    let blocks = &*opened.blocks();
    assert_eq!(blocks.guarantees().most_overwrites, Some(4));
    let tx = writes(blocks, &[(0, 1), (1, 1), (2, 1), (3, 1)]);
    put(blocks, tx, 0, 2);
    assert!(is_full(blocks.write(S, tx, Lba(4), page(1), Placement::Overwrite, Tag::Data)));
    assert_eq!((get(blocks, Some(tx), 4), get(blocks, Some(tx), 0)), (104, 2), "the write has changed nothing");
    fresh(blocks, tx, 20, 1);
    commit(blocks, &[tx]);
    assert_eq!(first(blocks, 5), [2, 1, 1, 1, 104]);
    let tx = writes(blocks, &[(0, 3), (1, 3), (2, 3), (3, 3)]);
    assert!(is_full(blocks.write(S, tx, Lba(4), page(1), Placement::Overwrite, Tag::Data)));
    blocks.abort(S, tx).expect("an abort");
    // What was ordered needs its space until it is durable. A write waits for that.
    for fill in 4..8 {
        order(blocks, &[writes(blocks, &[(0, fill), (4, fill), (5, fill)])], &[]);
    }
    let last = order(blocks, &[], &[]);
    blocks.wait(S, last).expect("a commit never lacks space");
    assert_eq!(first(blocks, 6), [7, 1, 1, 1, 7, 7]);
    let tx = blocks.begin().expect("a transaction");
    assert!(is_full(blocks.admit(tx, ROOM * 100)));
}

/// After a commit that failed, nothing is served; the next life has all of it or nothing.
fn poison(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let crashes = opened.during(&mut |blocks| {
        let runs = blocks.begin().expect("a transaction");
        let sequence = order(blocks, &[writes(blocks, &[(0, 1), (1, 1)])], &[]);
        assert!(blocks.wait(FAILS, sequence).is_err(), "the medium refuses");
        assert!(is_poisoned(blocks.wait(S, sequence)), "wait");
        assert!(is_poisoned(blocks.send(S, sequence)), "send");
        assert!(is_poisoned(blocks.begin()), "begin");
        assert!(is_poisoned(blocks.admit(runs, 1)), "admit");
        assert!(is_poisoned(blocks.write(S, runs, Lba(3), page(1), Placement::Overwrite, Tag::Data)), "write");
        assert!(is_poisoned(blocks.read(None, Lba(0), &mut [0; BLOCK])), "read");
        assert!(is_poisoned(blocks.discard(S, runs, Run { start: Lba(3), count: 1 })), "discard");
        assert!(is_poisoned(blocks.order(S, &[runs], &[])), "order");
        assert!(is_poisoned(blocks.abort(S, runs)), "abort");
        assert!(blocks.plain().write(S, 4 * BLOCK as u64, &[1; BLOCK]).is_err(), "a plain write");
    });
    let seen = states(&crashes, 2);
    assert!(seen.is_subset(&BTreeSet::from([vec![100, 101], vec![1, 1]])), "{seen:?}");
}

/// A block that rots says so, by its number; others can be read.
fn rot(subject: &dyn Subject) {
    let opened = filled(subject, None);
    if !opened.blocks().guarantees().checks_blocks {
        return println!("skipped: the medium keeps no checksums of blocks");
    }
    let opened = opened.rotten(2);
    let blocks = &*opened.blocks();
    match blocks.read(None, Lba(2), &mut [0; BLOCK]) {
        Err(Error::Corrupt { place, .. }) => assert!(place.contains('2'), "{place}"),
        read => panic!("{read:?}"),
    }
    assert_eq!((get(blocks, None, 1), get(blocks, None, 3)), (101, 103));
    commit(blocks, &[writes(blocks, &[(2, 2)])]);
    assert_eq!(get(blocks, None, 2), 2, "it was written again");
}

/// A transaction is as large as the guarantees say, and with lent blocks larger.
fn size(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let crashes = opened.during(&mut |blocks| {
        let tx = blocks.begin().expect("a transaction");
        (0..40).for_each(|at| put(blocks, tx, at, 1));
        commit(blocks, &[tx]);
        assert_eq!(first(blocks, 40), [1; 40]);
    });
    let old: Vec<u8> = (100..108).chain([0; 32]).collect();
    assert_eq!(states(&crashes, 40), BTreeSet::from([old.clone(), vec![1; 40]]));
    let opened = filled(subject, Some(4));
    let crashes = opened.during(&mut |blocks| {
        let tx = writes(blocks, &[(0, 1), (1, 1), (2, 1), (3, 1)]);
        let write = |at| blocks.write(S, tx, Lba(at), page(1), Placement::Overwrite, Tag::Data);
        assert!(is_full(write(4)));
        if !blocks.guarantees().takes_lent {
            assert!(matches!(blocks.lend(tx, Run { start: Lba(40), count: 4 }), Err(Error::Unsupported(_))));
            blocks.abort(S, tx).expect("an abort");
            return commit(blocks, &[writes(blocks, &[(4, 1), (5, 1), (6, 1), (7, 1)])]);
        }
        blocks.lend(tx, Run { start: Lba(40), count: 4 }).expect("free blocks");
        (4..8).for_each(|at| write(at).expect("it was lent a block"));
        assert_eq!(get(blocks, Some(tx), 7), 1);
        commit(blocks, &[tx]);
        assert_eq!(first(blocks, 8), [1; 8]);
    });
    let new = match opened.blocks().guarantees().takes_lent {
        true => vec![1; 8],
        false => vec![100, 101, 102, 103, 1, 1, 1, 1],
    };
    assert_eq!(states(&crashes, 8), BTreeSet::from([old[..8].to_vec(), new]));
}

/// What was never written, or was discarded, reads as zeros.
fn zeros(subject: &dyn Subject) {
    let opened = filled(subject, None);
    assert_eq!(get(&*opened.blocks(), None, 30), 0, "never written");
    let crashes = opened.during(&mut |blocks| {
        let tx = writes(blocks, &[(0, 1)]);
        blocks.discard(S, tx, Run { start: Lba(0), count: 3 }).expect("a discard");
        put(blocks, tx, 1, 5);
        assert_eq!((get(blocks, Some(tx), 0), get(blocks, Some(tx), 1), get(blocks, Some(tx), 2)), (0, 5, 0));
        assert_eq!(first(blocks, 3), [100, 101, 102]);
        let sequence = order(blocks, &[tx], &[]);
        assert_eq!(first(blocks, 3), [0, 5, 0]);
        blocks.wait(S, sequence).expect("a commit");
        assert_eq!((get(blocks, None, 1), get(blocks, None, 3)), (5, 103));
        assert!(!blocks.guarantees().zeroes_discarded || first(blocks, 4) == [0, 5, 0, 103]);
    });
    let mut seen = states(&crashes, 3);
    if !opened.blocks().guarantees().zeroes_discarded {
        // Blocks that are free have anything.
        seen.remove(&vec![100, 101, 102]);
        seen = seen.into_iter().map(|state| vec![0, state[1], 0]).collect();
        seen.insert(vec![100, 101, 102]);
    }
    assert_eq!(seen, BTreeSet::from([vec![100, 101, 102], vec![0, 5, 0]]));
    let blocks = opened.blocks();
    assert!(blocks.discard(S, blocks.begin().unwrap(), Run { start: Lba(BLOCKS - 1), count: 2 }).is_err(), "the end");
    assert!(blocks.read(None, Lba(BLOCKS), &mut [0; BLOCK]).is_err(), "the end");
}

/// The plain view: of the committed content, never of what runs.
fn plain(subject: &dyn Subject) {
    let opened = filled(subject, None);
    let byte = |at: u64| at * BLOCK as u64;
    {
        let (blocks, plain) = (&*opened.blocks(), opened.blocks().plain());
        assert_eq!(plain.len(), byte(BLOCKS));
        let tx = writes(blocks, &[(0, 1)]);
        let refused = plain.write(S, byte(0), &[9; BLOCK]).expect_err("a running transaction has written it");
        assert_eq!(refused.errno, rustix::io::Errno::BUSY);
        let mut bytes = [0; 2 * BLOCK];
        plain.read(byte(0), &mut bytes).expect("a read");
        assert_eq!((bytes[0], bytes[BLOCK]), (100, 101));
        order(blocks, &[tx], &[]);
        plain.read(byte(0), &mut bytes).expect("a read");
        assert_eq!((bytes[0], bytes[BLOCK]), (1, 101), "it is the committed version");
    }
    let crashes = opened.during(&mut |blocks| {
        // Over a live version, and a part of a block.
        let plain = blocks.plain();
        plain.write(S, byte(0), &[2; BLOCK]).expect("a write");
        assert_eq!(get(blocks, None, 0), 2);
        plain.fence(S).expect("a flush");
    });
    if opened.blocks().plain().guarantees().atomic_unit as usize == BLOCK {
        let seen = states(&crashes, 2);
        assert!(seen.is_subset(&BTreeSet::from([vec![100, 101], vec![1, 101], vec![2, 101]])), "{seen:?}");
    }
    assert_eq!(states(&opened.during(&mut |_| {}), 2), BTreeSet::from([vec![2, 101]]));
    // A later commit makes it durable, too; and it does not come over what is committed later.
    let blocks = opened.blocks();
    blocks.plain().write(S, byte(1) + 8, &[3; 8]).expect("a write");
    let mut bytes = [0; BLOCK];
    blocks.read(None, Lba(1), &mut bytes).expect("a read");
    assert_eq!((bytes[7], bytes[8], bytes[15], bytes[16]), (101, 3, 3, 101));
    blocks.plain().write(S, byte(1), &[4; BLOCK]).expect("a write");
    blocks.plain().write(S, byte(2), &[4; BLOCK]).expect("a write");
    commit(&*blocks, &[writes(&*blocks, &[(2, 5)])]);
    assert_eq!(states(&opened.during(&mut |_| {}), 3), BTreeSet::from([vec![2, 4, 5]]));
}
