//! Programs and model time of transactions, by formula.

use super::*;
use wholly_blocks::xftl::{CHAIN_ENTRIES, Programs};

fn idle(channels: u32) -> (Arc<dyn Flash>, Device) {
    let (geometry, config) = sizes(channels, 128, 4096, 40 + channels);
    device(geometry, config)
}

fn since(now: Programs, before: Programs) -> Programs {
    Programs {
        data: now.data - before.data,
        plain: now.plain - before.plain,
        map: now.map - before.map,
        chain: now.chain - before.chain,
        collection: now.collection - before.collection,
        erases: now.erases - before.erases,
    }
}

/// n pages are n programs and those of a chain, one commit, no plain flush; time goes by in rounds of all channels.
#[test]
fn a_transaction_programs_its_pages_and_a_chain() {
    for channels in [1, 2, 16] {
        let (_, device) = idle(channels);
        for n in [1, 2, 3, 7, 168, 169, 1000] {
            let (before, counters, time) = (device.programs(), device.counters(), device.model_ns());
            let tx = device.begin().unwrap();
            (0..n).for_each(|lpn| write(&device, tx, lpn, 1 + u64::from(n)).unwrap());
            device.commit(SITE, &[tx]).unwrap();
            let chain = u64::from(n).div_ceil(CHAIN_ENTRIES as u64);
            let done = since(device.programs(), before);
            assert_eq!(done, Programs { data: n.into(), chain, ..Programs::default() }, "{n} on {channels}");
            let rounds = u64::from(n).div_ceil(channels.into()) + chain.div_ceil(channels.into());
            let time = device.model_ns() - time;
            assert_eq!(time, rounds * u64::from(TIMES.program_ns), "model time of {n} on {channels}");
            let now = device.counters();
            assert_eq!((now.commits - counters.commits, now.plain_flushes), (1, 0));
            assert_eq!((now.writes - counters.writes, now.committed - counters.committed), (n.into(), 1));
        }
    }
}

/// X6: what an aborted transaction has programmed is what its writes did; what was in the buffer never is.
#[test]
fn an_abort_programs_nothing() {
    let (_, device) = idle(2);
    for n in [1, 64, 65, 300] {
        let tx = device.begin().unwrap();
        let before = device.programs();
        (0..n).for_each(|lpn| write(&device, tx, lpn, 5).unwrap());
        let written = device.programs();
        let time = device.model_ns();
        device.abort(SITE, tx).unwrap();
        assert_eq!(device.programs(), written);
        assert_eq!(since(written, before), Programs { data: u64::from(n).saturating_sub(64), ..Programs::default() });
        assert_eq!(device.model_ns(), time);
        assert_eq!(value(&device, None, 0).unwrap(), 0);
    }
    assert_eq!(device.counters().aborts, 4);
}

/// T6: transactions in one commit share a chain. A run that is discarded is one entry of it.
#[test]
fn transactions_share_a_chain_and_runs_are_one_entry() {
    let (_, device) = idle(2);
    let txs: Vec<Txid> = (0..10).map(|_| device.begin().unwrap()).collect();
    for (i, tx) in (0..).zip(&txs) {
        (0..10).for_each(|lpn| write(&device, *tx, i * 10 + lpn, 7).unwrap());
        device.discard(SITE, *tx, run(2000 + i * 100, 90)).unwrap();
    }
    let before = device.programs();
    device.commit(SITE, &txs).unwrap();
    assert_eq!(since(device.programs(), before).chain, 1, "110 entries");
    assert_eq!((device.counters().commits, device.counters().committed, device.counters().discards), (1, 10, 900));
}

/// Plain writes are their own programs, a flush programs nothing; a trim is one page of a chain for a flush.
#[test]
fn plain_writes_and_flushes() {
    let (_, device) = idle(2);
    let before = device.programs();
    (0..9).for_each(|lpn| plain(&device, lpn, 3).unwrap());
    device.flush(SITE).unwrap();
    assert_eq!(since(device.programs(), before), Programs { plain: 9, ..Programs::default() });
    let before = device.programs();
    device.trim(SITE, run(0, 5)).unwrap();
    device.flush(SITE).unwrap();
    assert_eq!(since(device.programs(), before), Programs { chain: 1, ..Programs::default() });
    assert_eq!((value(&device, None, 4).unwrap(), value(&device, None, 5).unwrap()), (0, 3));
    // What is written again in the buffer is programmed once.
    let before = device.programs();
    (0..50).for_each(|v| plain(&device, 8, v).unwrap());
    device.flush(SITE).unwrap();
    assert_eq!(since(device.programs(), before).all(), 1);
}

/// A read waits for its channel only; channels work at the same time.
#[test]
fn the_clock_counts_what_the_host_waits_for() {
    let (_, device) = idle(2);
    (0..4).for_each(|lpn| plain(&device, lpn, 3).unwrap());
    device.flush(SITE).unwrap();
    let time = device.model_ns();
    (0..4).for_each(|lpn| assert_eq!(value(&device, None, lpn).unwrap(), 3));
    assert_eq!(device.model_ns() - time, 4 * u64::from(TIMES.read_ns));
    // A buffer that is full of pages which are being programmed makes the host wait.
    let time = device.model_ns();
    (0..65 + 64 + 3).for_each(|lpn| plain(&device, lpn, 4).unwrap());
    assert_eq!(device.model_ns() - time, 2 * u64::from(TIMES.program_ns));
}
