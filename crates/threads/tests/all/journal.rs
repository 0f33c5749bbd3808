//! The multi-queue journal on a controller's queues, over a scheduler: four threads, two queues, and checkpoints
//! beside. Transactions share a block, whose page their callers lock as a volume does; one thread frees a block and
//! uses it again. Nothing hangs; everybody reads what is ordered; a life later there is what was waited for, and of the
//! rest a set that is closed under dependency.

use std::sync::Arc;

use scheduled_blocks::multi_queue::{MultiQueue, Options};
use scheduled_blocks::{BLOCK, Lba, Page, Placement, Run, Sequence, Tag, TxBlocks, Txid};
use scheduled_nvme::model::{Config, InMemory, Model};
use scheduled_nvme::{Controller, DeviceQueues, Options as DriverOptions};
use sync::{Mutex, thread};
use wholly_media::Site;

const S: Site = Site("test");
const VOLUME: [u8; 16] = [3; 16];
const BLOCKS: u64 = 64;
const LOG: Run = Run { start: Lba(BLOCKS), count: 2 + 2 * 10 };
const THREADS: u64 = 4;
const EACH: u64 = 2;

/// What all transactions write.
const SHARED: u64 = 0;
/// What is freed and used again.
const REUSED: u64 = 60;

fn page(value: u64) -> Page {
    let mut page = Page::zeros();
    page.put(0, &value.to_le_bytes());
    page.put(BLOCK - 8, &value.to_le_bytes());
    page
}

fn value(blocks: &MultiQueue, tx: Option<Txid>, at: u64) -> u64 {
    let mut bytes = [0; BLOCK];
    blocks.read(tx, Lba(at), &mut bytes).unwrap();
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    assert_eq!(word(0), word(BLOCK - 8), "block {at} is torn");
    word(0)
}

fn open(medium: &Arc<InMemory>) -> (MultiQueue, Arc<Model>) {
    let config = Config { queues: 3, lba_bytes: 4096, interrupts: 0, ..Config::default() };
    let model = Model::new("model", medium.clone(), config).unwrap();
    let options = DriverOptions { queues: 2, depth: 4, ..DriverOptions::default() };
    let queues = DeviceQueues::new(Controller::open(model.clone(), options).unwrap()).unwrap();
    let options = Options { in_turn: true, held_fresh: 2, ..Options::default() };
    (MultiQueue::open(Arc::new(queues), (BLOCKS, LOG), VOLUME, options).unwrap(), model)
}

fn four_threads() {
    let medium = Arc::new(InMemory::new((LOG.start.0 + LOG.count) * BLOCK as u64, 32 << 10));
    {
        let model = Model::new("model", medium.clone(), Config { lba_bytes: 4096, ..Config::default() }).unwrap();
        let queues = DeviceQueues::new(Controller::open(model, DriverOptions::default()).unwrap()).unwrap();
        MultiQueue::format(&queues, LOG, VOLUME, &Options::default()).unwrap();
    }
    let (blocks, model) = open(&medium);
    let blocks = Arc::new(blocks);
    // The lock of the shared page; the number of the newest transaction, and who was waited for last.
    let shared = Arc::new(Mutex::new(0u64));
    let waited = Arc::new(Mutex::new(0u64));
    let work = |of: u64| {
        let (blocks, shared, waited) = (blocks.clone(), shared.clone(), waited.clone());
        move || {
            for round in 0..EACH {
                let tx = blocks.begin().unwrap();
                blocks.admit(tx, 2).unwrap();
                let own = 10 * of + round + 1;
                let (number, sequence) = {
                    let newest = &mut *shared.lock().unwrap();
                    assert_eq!(value(&blocks, None, SHARED), *newest, "everybody reads what is ordered");
                    *newest += 1;
                    for at in [SHARED, own] {
                        blocks.write(S, tx, Lba(at), page(*newest), Placement::Overwrite, Tag::Data).unwrap();
                    }
                    (*newest, blocks.order(S, &[tx], &[]).unwrap())
                };
                match (of + round) % 3 {
                    0 => blocks.send(S, sequence).unwrap(),
                    1 => {
                        blocks.wait(S, sequence).unwrap();
                        let waited = &mut *waited.lock().unwrap();
                        *waited = number.max(*waited);
                    }
                    _ => {}
                }
                assert_eq!(value(&blocks, None, own), number);
            }
        }
    };
    let reuses = {
        let blocks = blocks.clone();
        move || {
            let one = |how: Option<Placement>, number: u64| -> Sequence {
                let tx = blocks.begin().unwrap();
                let run = Run { start: Lba(REUSED), count: 1 };
                match how {
                    None => blocks.discard(S, tx, run).unwrap(),
                    Some(how) => blocks.write(S, tx, run.start, page(number), how, Tag::Data).unwrap(),
                }
                let sequence = blocks.order(S, &[tx], &[]).unwrap();
                blocks.wait(S, sequence).unwrap();
                sequence
            };
            for round in 1..3 {
                one(Some(Placement::Overwrite), 10 * round);
                one(None, 0);
                one(Some(Placement::Fresh), 10 * round + 1);
                assert_eq!(value(&blocks, None, REUSED), 10 * round + 1);
            }
        }
    };
    let checkpoints = {
        let blocks = blocks.clone();
        move || (0..2).for_each(|_| blocks.bring_home().unwrap())
    };
    let mut threads: Vec<_> = (0..THREADS - 1).map(|of| thread::spawn(work(of))).collect();
    threads.push(thread::spawn(reuses));
    threads.push(thread::spawn(checkpoints));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let all = (THREADS - 1) * EACH;
    assert_eq!((value(&blocks, None, SHARED), value(&blocks, None, REUSED)), (all, 21));
    assert_eq!(model.reports(), Vec::<String>::new());
    drop(blocks);
    // All share a block: what is there is all up to some number.
    let (blocks, _) = open(&medium);
    let newest = value(&blocks, None, SHARED);
    assert!((*waited.lock().unwrap()..=all).contains(&newest), "{newest}");
    let own = (0..THREADS - 1).flat_map(|of| (0..EACH).map(move |round| 10 * of + round + 1));
    let there = own.map(|at| value(&blocks, None, at)).filter(|number| *number > 0).collect::<Vec<_>>();
    assert!(there.len() as u64 == newest && there.iter().all(|number| *number <= newest), "{newest}: {there:?}");
    assert_eq!(value(&blocks, None, REUSED), 21);
}

#[test]
fn transactions_of_four_threads() {
    shuttle::check_random(four_threads, 150);
    shuttle::check_pct(four_threads, 75, 3);
}
