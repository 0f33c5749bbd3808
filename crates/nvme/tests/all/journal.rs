//! The journal of a volume on the driver's queues: what a transaction costs, by count, and what errors do.

use std::sync::Arc;

use wholly_blocks::multi_queue::{Life, MultiQueue, Options, Proof, Queues};
use wholly_blocks::{BLOCK, Lba, Page, Placement, Run, Sequence, Tag, TxBlocks};
use wholly_error::{Error, Result};
use wholly_media::Site;
use wholly_nvme::model::{Config, Faults, InMemory, Model};
use wholly_nvme::spec::Status;
use wholly_nvme::{Acknowledge, Controller, Counts, DeviceQueues, Options as DriverOptions, Transport};

use super::common::{device, has_qemu, start};

const S: Site = Site("test");
const VOLUME: [u8; 16] = *b"a volume of test";
const BLOCKS: u64 = 4096;
const LOG: Run = Run { start: Lba(BLOCKS), count: 2 + 2 * 1500 };

fn queues(transport: Arc<dyn Transport>, proof: Proof) -> Result<Arc<DeviceQueues>> {
    let acknowledge = match proof {
        Proof::Checksum => Acknowledge::Finished,
        Proof::Window => Acknowledge::HeadDurable,
    };
    let options = DriverOptions { queues: 2, depth: 1024, acknowledge, ..DriverOptions::default() };
    Ok(Arc::new(DeviceQueues::new(Controller::open(transport, options)?)?))
}

fn medium() -> Arc<InMemory> {
    Arc::new(InMemory::new((LOG.start.0 + LOG.count) * BLOCK as u64, 256 << 10))
}

fn model(medium: &Arc<InMemory>, has_write_cache: bool) -> Arc<Model> {
    let config = Config { has_write_cache, lba_bytes: 4096, most_pages_log2: 0, ..Config::default() };
    Model::new("model", medium.clone(), config).unwrap()
}

fn options(proof: Proof) -> Options {
    Options { proof, in_turn: true, ..Options::default() }
}

fn made(medium: &Arc<InMemory>, proof: Proof) {
    MultiQueue::format(&*queues(model(medium, true), proof).unwrap(), LOG, VOLUME, &options(proof)).unwrap();
}

fn open(model: &Arc<Model>, proof: Proof) -> MultiQueue {
    try_open(model, proof).unwrap()
}

fn try_open(model: &Arc<Model>, proof: Proof) -> Result<MultiQueue> {
    MultiQueue::open(queues(model.clone(), proof)?, (BLOCKS, LOG), VOLUME, options(proof))
}

fn page(value: u64) -> Page {
    let mut page = Page::zeros();
    page.put(0, &value.to_le_bytes());
    page
}

fn value(blocks: &dyn TxBlocks, at: u64) -> u64 {
    let mut bytes = [0; BLOCK];
    blocks.read(None, Lba(at), &mut bytes).unwrap();
    u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

/// A transaction that is ordered.
fn ordered(blocks: &dyn TxBlocks, writes: &[(u64, u64)], how: Placement) -> Sequence {
    let tx = blocks.begin().unwrap();
    for (at, value) in writes {
        blocks.write(S, tx, Lba(*at), page(*value), how, Tag::Data).unwrap();
    }
    blocks.order(S, &[tx], &[]).unwrap()
}

/// By formula: of N blocks that are written over, N + 1 blocks, and one more for each 160 entries; two stores until it
/// is ordered and handed over, and two more; one wait. What is adjacent is one command.
#[test]
fn a_transaction_of_n_blocks() {
    for (proof, barriers) in [(Proof::Checksum, 1), (Proof::Window, 2)] {
        for n in [1u64, 2, 8, 64, 160, 161, 1000] {
            let medium = medium();
            made(&medium, proof);
            let model = model(&medium, false);
            let blocks = open(&model, proof);
            let writes: Vec<(u64, u64)> = (0..n).map(|i| (2 * i, i + 1)).collect();
            let before = model.counts();
            let sequence = ordered(&blocks, &writes, Placement::Overwrite);
            assert_eq!(model.counts(), before, "an order works in memory");
            blocks.send(S, sequence).unwrap();
            let sent = model.counts() - before;
            let expected = Counts { region_runs: 2, sq_doorbells: 1, orders: 2, barriers: 1, ..Counts::default() };
            assert_eq!(Counts { region_bytes: 0, ..sent }, expected, "{proof:?}, N = {n}");
            blocks.wait(S, sequence).unwrap();
            let all = model.counts() - before;
            let descriptions = n.div_ceil(160);
            assert_eq!((all.block_ios, all.blocks), (1, n + descriptions), "{proof:?}, N = {n}");
            assert_eq!((all.mmio_raw(), all.barriers, all.flushes), (5, barriers, 0), "{proof:?}, N = {n}");
            // Home once, and once more for what is written once more.
            for round in 0..3 {
                ordered(&blocks, &[(0, 100 + round)], Placement::Overwrite);
            }
            let before = model.counts();
            blocks.bring_home().unwrap();
            let home = model.counts() - before;
            // Two blocks for each of the three, what goes home, and a header.
            assert_eq!(home.blocks, 3 * 2 + n + 1, "{proof:?}, N = {n}");
            assert_eq!(value(&blocks, 0), 102);
        }
    }
}

/// Of fresh blocks nothing is written twice.
#[test]
fn fresh_blocks_go_straight_home() {
    let medium = medium();
    made(&medium, Proof::Checksum);
    let model = model(&medium, true);
    let blocks = open(&model, Proof::Checksum);
    let before = model.counts();
    let sequence = ordered(&blocks, &(0..300).map(|i| (i, i + 1)).collect::<Vec<_>>(), Placement::Fresh);
    blocks.wait(S, sequence).unwrap();
    blocks.bring_home().unwrap();
    // With one description, since all that is home already is one run of it, and a header.
    assert_eq!((model.counts() - before).blocks, 300 + 1 + 1);
    assert!((0..300).all(|at| value(&blocks, at) == at + 1));
}

/// The second of five commands fails: its transaction, what is behind it on its queue and what depends on it fail; what
/// was durable is there, and nothing else after that.
#[test]
fn an_error_in_the_middle() {
    let medium = medium();
    made(&medium, Proof::Checksum);
    let one = model(&medium, true);
    let blocks = open(&one, Proof::Checksum);
    // Queue 0, and queue 1.
    let before = ordered(&blocks, &[(0, 1), (100, 1)], Placement::Overwrite);
    let other = ordered(&blocks, &[(10, 1)], Placement::Overwrite);
    blocks.wait(S, before).unwrap();
    blocks.wait(S, other).unwrap();
    one.set_faults(Faults { fail: Some((1, Status::WRITE_FAULT)), ..Faults::default() });
    let fresh: Vec<(u64, u64)> = [20, 22, 24, 26].map(|at| (at, 2)).to_vec();
    let failed = ordered(&blocks, &fresh, Placement::Fresh);
    let depends = ordered(&blocks, &[(20, 3), (0, 3)], Placement::Overwrite);
    let behind = ordered(&blocks, &[(40, 4)], Placement::Overwrite);
    let error = blocks.wait(S, depends).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::IO.raw_os_error(), "{error}");
    for sequence in [failed, behind, depends] {
        assert!(matches!(blocks.wait(S, sequence), Err(Error::Poisoned(_))));
    }
    assert!(matches!(blocks.begin(), Err(Error::Poisoned(_))));
    drop(blocks);
    let blocks = open(&model(&medium, true), Proof::Checksum);
    assert_eq!([0, 10, 100, 40].map(|at| value(&blocks, at)), [1, 1, 1, 0]);
}

/// The region of another volume, of another life, or with nothing; and more queues or fewer.
#[test]
fn the_region_is_not_needed() {
    let medium = medium();
    made(&medium, Proof::Checksum);
    for (life, count) in [(1u64, 1u16), (2, 2), (3, 4), (4, 2)] {
        let model = model(&medium, true);
        model.lose_region();
        if life == 3 {
            // Another volume has used the region.
            let queues = queues(model.clone(), Proof::Checksum).unwrap();
            queues.start(S, Life { volume: [1; 16], incarnation: 9 }).unwrap();
        }
        let options = DriverOptions { queues: count, ..DriverOptions::default() };
        let queues = DeviceQueues::new(Controller::open(model, options).unwrap()).unwrap();
        let options = Options { in_turn: true, ..Options::default() };
        let blocks = MultiQueue::open(Arc::new(queues), (BLOCKS, LOG), VOLUME, options).unwrap();
        assert!((1..life).all(|at| value(&blocks, at) == at), "life {life}");
        let sequence = ordered(&blocks, &[(life, life), (50, life)], Placement::Overwrite);
        blocks.wait(S, sequence).unwrap();
    }
}

/// After a close nothing is recovered, and no region is needed for that, whatever the proof.
#[test]
fn a_close_brings_all_home() {
    for proof in [Proof::Checksum, Proof::Window] {
        let medium = medium();
        made(&medium, proof);
        let blocks = open(&model(&medium, true), proof);
        for round in 0..10 {
            ordered(&blocks, &[(round, round + 1), (50, round)], Placement::Overwrite);
        }
        blocks.close().unwrap();
        let error = blocks.begin().unwrap_err();
        assert!(error.to_string().contains("closed"), "{error}");
        drop(blocks);
        let model = model(&medium, true);
        model.lose_region();
        let blocks = open(&model, proof);
        assert!((0..10).all(|at| value(&blocks, at) == at + 1));
        // Without one a journal that believes the window says what it needs.
        let sequence = ordered(&blocks, &[(7, 7)], Placement::Overwrite);
        blocks.wait(S, sequence).unwrap();
        drop(blocks);
        model.lose_region();
        let opened = try_open(&model, proof);
        match proof {
            Proof::Checksum => assert_eq!(value(&opened.unwrap(), 7), 7),
            Proof::Window => {
                let error = opened.err().expect("it needs the window");
                assert!(error.to_string().contains("what is unfinished"), "{error}");
            }
        }
    }
}

/// QEMU is killed with transactions in flight, 20 times, after another number of them each time: what was waited for is
/// there, and each transaction wholly or not at all.
#[test]
fn kills_of_qemu() {
    if !has_qemu() {
        return;
    }
    let directory = device((LOG.start.0 + LOG.count) * BLOCK as u64, 256 << 10);
    let proof = Proof::Checksum;
    MultiQueue::format(&*queues(start(directory.path()), proof).unwrap(), LOG, VOLUME, &options(proof)).unwrap();
    // Of each round: what was waited for last, and what was ordered last.
    let (mut waited, mut last) = (0, 0);
    for round in 0..21 {
        let qemu = start(directory.path());
        let blocks =
            MultiQueue::open(queues(qemu.clone(), proof).unwrap(), (BLOCKS, LOG), VOLUME, options(proof)).unwrap();
        // All write block 0, so that each depends on the one before.
        let newest = value(&blocks, 0);
        assert!((waited..=last).contains(&newest), "round {round}: {newest} of {waited} to {last}");
        for number in 1..=last {
            let is_there = number <= newest;
            let found = [2 * number, 2 * number + 1].map(|at| value(&blocks, at));
            assert_eq!(found, if is_there { [number; 2] } else { [0; 2] }, "round {round}: transaction {number}");
        }
        (waited, last) = (newest, newest);
        for i in 0..4 + round {
            last += 1;
            let sequence = ordered(&blocks, &[(0, last), (2 * last, last), (2 * last + 1, last)], Placement::Overwrite);
            blocks.send(S, sequence).unwrap();
            if i == round / 3 {
                blocks.wait(S, sequence).unwrap();
                waited = last;
            }
        }
        let pid = rustix::process::Pid::from_raw(qemu.process_id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}
