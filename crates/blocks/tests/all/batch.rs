//! The layer over a device: leader and followers, one image for each block, and an order that waits for nothing.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;

use wholly_blocks::batch::Batch;
use wholly_blocks::{Lba, Sequence, TxBlocks, TxDevice};

use crate::ram::{Fault, Ram};
use crate::suite::{ROOM, S, commit, get, page, put, writes};

fn device() -> Arc<Ram> {
    Arc::new(Ram::new(BTreeMap::new(), 1, u64::MAX, Fault::None))
}

/// While the device commits, eight threads order and wait. All of them share the next commit.
#[test]
fn who_waits_shares_a_commit() {
    let device = device();
    let blocks = Arc::new(Batch::new(device.clone(), ROOM));
    let (in_commit, entered) = channel::<()>();
    let (go, held) = channel::<()>();
    *device.in_commit.lock().unwrap() = Some(Box::new(move || {
        // The first one is held here; nobody listens to those after it.
        if in_commit.send(()).is_ok() {
            _ = held.recv();
        }
    }));
    let first = writes(&*blocks, &[(0, 1)]);
    let first = blocks.order(S, &[first], &[]).unwrap();
    let ordered = Barrier::new(9);
    thread::scope(|scope| {
        scope.spawn(|| blocks.wait(S, first).unwrap());
        entered.recv().unwrap();
        drop(entered);
        for at in 1..9 {
            let (blocks, ordered) = (&blocks, &ordered);
            scope.spawn(move || {
                let tx = blocks.begin().unwrap();
                blocks.admit(tx, 1).unwrap_or_else(|error| panic!("{error}"));
                put(&**blocks, tx, at, 2);
                // The device is held, and this returns.
                let sequence = blocks.order(S, &[tx], &[]).unwrap();
                assert_eq!(get(&**blocks, None, at), 2);
                ordered.wait();
                blocks.wait(S, sequence).unwrap();
            });
        }
        ordered.wait();
        assert_eq!((blocks.durable(), device.counters().commits), (Sequence(0), 0));
        go.send(()).unwrap();
    });
    assert_eq!((blocks.durable(), device.counters().commits), (Sequence(9), 2));
    assert_eq!((blocks.counters().commits, blocks.counters().committed), (2, 9));
}

/// Of a block that several ordered transactions write, the device gets one image.
#[test]
fn a_block_has_one_image() {
    let device = device();
    let blocks = Batch::new(device.clone(), ROOM);
    for fill in 1..=20 {
        let tx = blocks.begin().unwrap();
        blocks.admit(tx, 2).unwrap();
        put(&blocks, tx, 0, fill);
        put(&blocks, tx, 1, fill);
        blocks.order(S, &[tx], &[]).unwrap();
    }
    assert_eq!((device.counters().writes, get(&blocks, None, 0)), (0, 20));
    blocks.wait(S, Sequence(20)).unwrap();
    assert_eq!((device.counters().writes, device.counters().commits), (2, 1));
    assert_eq!(get(&blocks, None, 1), 20);
}

/// Room that is taken is waited for, and comes with a commit; a page that was not admitted goes to the device.
#[test]
fn room_is_made_by_commits() {
    let device = device();
    let blocks = Batch::new(device.clone(), ROOM);
    for turn in 0..10u64 {
        let tx = blocks.begin().unwrap();
        blocks.admit(tx, ROOM / 2).unwrap();
        (0..ROOM / 2).for_each(|i| put(&blocks, tx, (turn % 4) * ROOM / 2 + i, turn as u8 + 1));
        blocks.order(S, &[tx], &[]).unwrap();
    }
    assert!(blocks.durable() >= Sequence(8), "there is room for two of them");
    let tx = blocks.begin().unwrap();
    let before = device.counters().writes;
    put(&blocks, tx, 40, 1);
    assert_eq!(device.counters().writes, before + 1, "it has no room");
    // A transaction that asks again gives up what it holds.
    blocks.admit(tx, ROOM).unwrap();
    put(&blocks, tx, 41, 2);
    blocks.admit(tx, ROOM).unwrap();
    assert_eq!(device.counters().writes, before + 2 + ROOM, "and so does the open batch");
    put(&blocks, tx, 42, 3);
    assert_eq!((get(&blocks, Some(tx), 40), get(&blocks, Some(tx), 41), get(&blocks, Some(tx), 42)), (1, 2, 3));
    commit(&blocks, &[tx]);
    assert_eq!((get(&blocks, None, 40), get(&blocks, None, 41), get(&blocks, None, 42)), (1, 2, 3));
}

/// A transaction without writes takes no commit of the device.
#[test]
fn nothing_to_write_is_no_commit() {
    let device = device();
    let blocks = Batch::new(device.clone(), ROOM);
    let tx = blocks.begin().unwrap();
    commit(&blocks, &[tx]);
    assert_eq!((device.counters().commits, blocks.durable()), (0, Sequence(1)));
    assert!(device.read(Some(tx), Lba(0), &mut [0; 4096]).is_err(), "the device has ended it");
    assert_eq!(page(0), wholly_blocks::Page::zeros());
}
