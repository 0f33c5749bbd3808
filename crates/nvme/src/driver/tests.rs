//! The driver on the model.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use wholly_blocks::Txid;
use wholly_media::Site;

use super::*;
use crate::model::{Config, Faults, InMemory, Medium, Model, Profile};
use crate::spec::Status;
use crate::transport::{Counts, Memory, PersistentRegion};

const LIFE: Life = Life { volume: *b"a volume of test", incarnation: 1 };
const BLOCKS: u64 = 512;

fn medium() -> Arc<dyn Medium> {
    Arc::new(InMemory::new(BLOCKS * BLOCK as u64, 256 << 10))
}

fn model(config: Config) -> Arc<Model> {
    Model::new("model", medium(), config).unwrap()
}

fn options(queues: u16, depth: u32) -> Options {
    Options { queues, depth, ..Options::default() }
}

fn opened(model: &Arc<Model>, options: Options) -> Controller {
    Controller::open(model.clone(), options).unwrap()
}

fn started(model: &Arc<Model>, options: Options) -> Controller {
    let controller = opened(model, options);
    controller.start(LIFE).unwrap();
    controller
}

fn page(controller: &Controller, value: u64) -> DmaPage {
    let page = controller.page().unwrap();
    let bytes: Vec<u8> = (0..BLOCK as u64 / 8).flat_map(|i| (value << 20 | i).to_le_bytes()).collect();
    page.write(0, &bytes);
    page
}

fn value(controller: &Controller, block: u64) -> u64 {
    let page = controller.page().unwrap();
    controller.read(Lba(block), std::slice::from_ref(&page)).unwrap();
    let mut bytes = [0; BLOCK];
    page.read(0, &mut bytes);
    let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * i + byte]));
    let value = word(0) >> 20;
    let is_whole = (0..BLOCK / 8).all(|i| word(i) == if value == 0 { 0 } else { value << 20 | i as u64 });
    if is_whole { value } else { u64::MAX }
}

/// Writes a value to blocks, in one transaction.
fn transaction(controller: &Controller, lease: &mut Lease, txid: u64, blocks: &[u64]) -> Result<Ticket> {
    let (last, others) = blocks.split_last().unwrap();
    for block in others {
        lease.write(Lba(*block), &[page(controller, txid)])?;
    }
    lease.commit(Txid(txid), Lba(*last), &[page(controller, txid)])
}

fn is_io(error: &Error) -> bool {
    error.errno() == rustix::io::Errno::IO.raw_os_error()
}

#[test]
fn transactions_are_written() {
    for (lba_bytes, doorbell_shift, interrupts, has_write_cache) in
        [(512, 0, 9, true), (4096, 0, 0, false), (512, 3, 1, false), (4096, 1, 9, true)]
    {
        let config = Config { lba_bytes, doorbell_shift, interrupts, has_write_cache, ..Config::default() };
        let model = model(config);
        let controller = started(&model, options(2, 64));
        let mut lease = controller.lease().unwrap();
        let ticket = transaction(&controller, &mut lease, 5, &[3, 9, 4, 5]).unwrap();
        controller.wait(ticket).unwrap();
        assert_eq!([3, 4, 5, 9, 6].map(|block| value(&controller, block)), [5, 5, 5, 5, 0]);
        assert_eq!(model.reports(), Vec::<String>::new());
    }
}

/// Rings go round many times, with more threads than queues; completions come in any order.
#[test]
fn rings_go_round() {
    for (queues, depth) in [(1, 4), (2, 4), (8, 16)] {
        let model = model(Config { queues: queues + 1, seed: depth.into(), ..Config::default() });
        let controller = &started(&model, options(queues, depth));
        assert_eq!(controller.queues(), queues);
        let work = |thread: u64| {
            let mut waiting = Vec::new();
            for round in 1..200u64 {
                let mut lease = controller.lease().unwrap();
                // Each queue has an order of its own; these numbers increase for whoever comes.
                let txid = round << 8 | thread;
                let block = thread * 20 + waiting.len() as u64 * 2;
                match transaction(controller, &mut lease, txid, &[block, block + 1]) {
                    Ok(ticket) => waiting.push((ticket, block, txid)),
                    Err(Error::Invalid(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                drop(lease);
                if waiting.len() > 3 {
                    waiting.drain(..).for_each(|(ticket, block, txid)| {
                        controller.wait(ticket).unwrap();
                        assert_eq!(value(controller, block), txid);
                    });
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|thread| _ = scope.spawn(move || work(thread))));
        assert_eq!(model.reports(), Vec::<String>::new());
    }
}

/// Transactions finish in the order of their commits, in whatever order their commands complete.
#[test]
fn transactions_finish_in_order() {
    for seed in 0..50 {
        let model = model(Config { seed, ..Config::default() });
        let controller = started(&model, options(1, 64));
        let mut lease = controller.lease().unwrap();
        for txid in 1..10 {
            transaction(&controller, &mut lease, txid, &[3 * txid, 100 + 3 * txid]).unwrap();
        }
        let mut seen = 0;
        while seen < 9 {
            let finished = lease.poll().unwrap();
            assert!(finished >= seen);
            for txid in seen + 1..=finished {
                assert_eq!([3 * txid, 100 + 3 * txid].map(|block| value(&controller, block)), [txid, txid]);
            }
            seen = finished;
        }
    }
}

/// What is handed over and not finished is in the window, whatever the device had done of it; a life later it is not.
#[test]
fn the_window_has_what_is_unfinished() {
    for is_held in [true, false] {
        let medium = medium();
        let open = || Model::new("model", medium.clone(), Config::default()).unwrap();
        {
            let model = open();
            let controller = started(&model, options(2, 16));
            let mut leases = [0, 1].map(|queue| controller.try_lease(queue).unwrap().unwrap());
            let done = transaction(&controller, &mut leases[0], 1, &[1, 4]).unwrap();
            controller.wait(done).unwrap();
            model.hold(is_held);
            transaction(&controller, &mut leases[0], 2, &[7, 10]).unwrap();
            transaction(&controller, &mut leases[1], 3, &[13]).unwrap();
            // Written and not committed: it is nowhere.
            leases[1].write(Lba(20), &[page(&controller, 9)]).unwrap();
        }
        // Looking changes nothing, however often.
        for _ in 0..2 {
            let controller = opened(&open(), options(2, 16));
            let Window::Known { life, queues } = controller.window() else { panic!("{:?}", controller.window()) };
            assert_eq!(*life, LIFE);
            let txids = |queue: usize| queues[queue].transactions.iter().map(|tx| tx.txid.0).collect::<Vec<_>>();
            assert!(txids(0) == [2] && txids(1) == [3], "{queues:?}");
            assert!(queues[0].transactions[0].is_committed);
            assert_eq!(queues[0].transactions[0].runs.iter().map(|run| run.start.0).collect::<Vec<_>>(), [7, 10]);
        }
        let next = Life { incarnation: 2, ..LIFE };
        opened(&open(), options(2, 16)).start(next).unwrap();
        let controller = opened(&open(), options(2, 16));
        let empty = vec![QueueWindow::default(); 2];
        assert_eq!(*controller.window(), Window::Known { life: next, queues: empty });
    }
}

#[test]
fn a_close_leaves_nothing_unfinished() {
    let medium = medium();
    let open = || Model::new("model", medium.clone(), Config::default()).unwrap();
    let controller = started(&open(), options(2, 8));
    let mut lease = controller.lease().unwrap();
    for txid in 1..20 {
        transaction(&controller, &mut lease, txid, &[2 * txid]).unwrap();
    }
    drop(lease);
    controller.close().unwrap();
    let controller = opened(&open(), options(2, 8));
    let empty = vec![QueueWindow::default(); 2];
    assert_eq!(*controller.window(), Window::Known { life: LIFE, queues: empty });
    assert_eq!(value(&controller, 38), 19, "a close flushes the write cache");
}

/// By formula, and not by what the driver believes: the model counts.
#[test]
fn a_transaction_is_two_stores_and_two_more() {
    for n in [1u64, 2, 4, 8, 16, 64] {
        let model = model(Config { has_write_cache: false, ..Config::default() });
        let controller = started(&model, Options { merge: false, ..options(1, 256) });
        let mut lease = controller.lease().unwrap();
        let blocks: Vec<u64> = (0..=n).map(|i| 100 + i).collect();
        let before = model.counts();
        let ticket = transaction(&controller, &mut lease, 1, &blocks).unwrap();
        let atomic = model.counts() - before;
        let expected = Counts { region_runs: 2, sq_doorbells: 1, orders: 2, barriers: 1, ..Counts::default() };
        assert_eq!(atomic, Counts { region_bytes: 64 * (n + 1) + 4, ..expected }, "until the commit returns, N = {n}");
        controller.wait(ticket).unwrap();
        let all = model.counts() - before;
        assert_eq!((all.mmio_raw(), all.mmio_raw() - all.sq_doorbells), (5, 4), "N = {n}");
        assert_eq!((all.dma_queue(), all.block_ios, all.interrupts), (n + 1, n + 1, n + 1), "N = {n}");
        assert_eq!((all.fetched_from_memory, all.barriers, all.cq_doorbells), (0, 1, 1), "N = {n}");
    }
}

#[test]
fn neighbours_are_one_command() {
    let model = model(Config::default());
    let controller = started(&model, options(1, 64));
    let mut lease = controller.lease().unwrap();
    let before = model.counts();
    let ticket = transaction(&controller, &mut lease, 1, &[20, 21, 22, 23, 24, 25, 26, 27, 28]).unwrap();
    controller.wait(ticket).unwrap();
    let all = model.counts() - before;
    assert_eq!((all.block_ios, all.blocks, all.interrupts, all.mmio_raw()), (1, 72, 1, 5));
    assert!((20..29).all(|block| value(&controller, block) == 1));
}

/// Lists of pages: none, one, one that fills its page, and lists behind each other.
#[test]
fn long_transfers() {
    let medium = Arc::new(InMemory::new(4096 * BLOCK as u64, 256 << 10));
    for (most_pages_log2, has_write_cache) in [(0, false), (0, true), (7, true), (1, true)] {
        let config = Config { most_pages_log2, has_write_cache, lba_bytes: 4096, ..Config::default() };
        let model = Model::new("model", medium.clone(), config).unwrap();
        let controller = started(&model, options(1, 2048));
        let mut lease = controller.lease().unwrap();
        for (txid, count) in (1..).zip([1, 2, 3, 512, 513, 514, 1025, 1600]) {
            let pages: Vec<DmaPage> = (0..count).map(|i| page(&controller, txid << 12 | i)).collect();
            let ticket = lease.commit(Txid(txid), Lba(7), &pages).unwrap();
            controller.wait(ticket).unwrap();
            for i in [0, 1, 2, 510, 511, 512, 513, count - 1].into_iter().filter(|i| *i < count) {
                assert_eq!(value(&controller, 7 + i), txid << 12 | i, "{count} blocks, {most_pages_log2}");
            }
            let pages: Vec<DmaPage> = (0..count).map(|_| controller.page().unwrap()).collect();
            controller.read(Lba(7), &pages).unwrap();
            let mut word = [0; 8];
            pages.last().unwrap().read(0, &mut word);
            assert_eq!(u64::from_le_bytes(word) >> 20, txid << 12 | (count - 1));
        }
        assert_eq!(model.reports(), Vec::<String>::new());
    }
}

/// Durable means on the medium, not in the device's cache.
#[test]
fn a_write_cache_is_forced_or_flushed() {
    for (n, flushes) in [(3, 0), (64, 0), (65, 1), (200, 1)] {
        let medium = medium();
        let model = Model::new("model", medium.clone(), Config::default()).unwrap();
        let controller = started(&model, Options { merge: false, ..options(1, 256) });
        let mut lease = controller.lease().unwrap();
        let blocks: Vec<u64> = (0..n).map(|i| 2 * i).collect();
        let before = model.counts();
        let ticket = transaction(&controller, &mut lease, 1, &blocks).unwrap();
        controller.wait(ticket).unwrap();
        assert_eq!((model.counts() - before).flushes, flushes, "{n} blocks");
        // Another controller on the same medium: the cache is gone.
        let controller = opened(&Model::new("model", medium, Config::default()).unwrap(), options(1, 256));
        assert!(blocks.iter().all(|block| value(&controller, *block) == 1), "{n} blocks");
    }
}

/// The flush between the parts of a transaction and its commit fails: nobody waits for what never finishes.
#[test]
fn a_flush_that_fails_stops_its_queue() {
    let model = model(Config::default());
    let controller = started(&model, Options { merge: false, ..options(2, 256) });
    let mut lease = controller.try_lease(0).unwrap().unwrap();
    model.set_faults(Faults { fail: Some((99, Status::WRITE_FAULT)), ..Faults::default() });
    let blocks: Vec<u64> = (0..100).collect();
    assert!(is_io(&transaction(&controller, &mut lease, 1, &blocks).unwrap_err()));
    model.set_faults(Faults::default());
    let before = model.now();
    assert!(is_io(&transaction(&controller, &mut lease, 2, &[200]).unwrap_err()));
    assert!(model.now() - before < Duration::from_secs(1), "it was waited for");
    drop(lease);
    // The other queue goes on, and is what is leased.
    let mut other = controller.lease().unwrap();
    assert_eq!(other.queue(), 1);
    controller.wait(transaction(&controller, &mut other, 3, &[201]).unwrap()).unwrap();
}

/// Who waits for a lease is told when there is none to come.
#[test]
fn a_wait_for_a_lease_ends_with_the_controller() {
    let model = model(Config::default());
    let controller = started(&model, options(1, 64));
    let mut lease = controller.lease().unwrap();
    model.set_faults(Faults { fatal: Some(0), ..Faults::default() });
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..2).map(|_| scope.spawn(|| is_io(&controller.lease().err().unwrap()))).collect();
        let ticket = transaction(&controller, &mut lease, 1, &[1]).unwrap();
        assert!(is_io(&controller.wait(ticket).unwrap_err()));
        // The lease is still held.
        assert!(waits.into_iter().all(|wait| wait.join().unwrap()));
    });
}

/// A loss of power in the middle of a large transaction: its parts are in the window, without a commit.
#[test]
fn parts_of_a_large_transaction_are_in_the_window() {
    let medium = medium();
    let model = Model::new("model", medium.clone(), Config::default()).unwrap();
    let controller = started(&model, Options { merge: false, timeout: Duration::from_millis(50), ..options(1, 256) });
    let mut lease = controller.lease().unwrap();
    model.set_faults(Faults { stuck: Some(30), ..Faults::default() });
    let error = transaction(&controller, &mut lease, 1, &(0..100).collect::<Vec<u64>>()).unwrap_err();
    assert!(is_io(&error), "{error}");
    let controller = opened(&Model::new("model", medium, Config::default()).unwrap(), options(1, 256));
    let Window::Known { queues, .. } = controller.window() else { panic!("{:?}", controller.window()) };
    let [tx] = &queues[0].transactions[..] else { panic!("{queues:?}") };
    assert!(!tx.is_committed && tx.runs.len() == 99 && tx.txid == Txid(1));
}

#[test]
fn numbers_increase_and_bounds_are_said() {
    let model = model(Config::default());
    let controller = started(&model, options(1, 4));
    let mut lease = controller.lease().unwrap();
    transaction(&controller, &mut lease, 7, &[1]).unwrap();
    assert!(matches!(transaction(&controller, &mut lease, 7, &[1]), Err(Error::Invalid(_))));
    assert!(matches!(lease.write(Lba(BLOCKS), &[page(&controller, 1)]), Err(Error::Invalid(_))));
    assert!(matches!(lease.write(Lba(u64::MAX), &[page(&controller, 1)]), Err(Error::Invalid(_))));
    assert!(matches!(lease.write(Lba(1), &[]), Err(Error::Invalid(_))));
    assert_eq!(lease.most_entries(), 3);
    for block in [10, 20, 30] {
        lease.write(Lba(block), &[page(&controller, 8)]).unwrap();
    }
    let error = lease.commit(Txid(8), Lba(40), &[page(&controller, 8)]).unwrap_err();
    assert!(matches!(error, Error::NoSpace(_)), "{error}");
    // It is as it was: neighbours still fit.
    let ticket = lease.commit(Txid(8), Lba(31), &[page(&controller, 8)]).unwrap();
    controller.wait(ticket).unwrap();
    assert_eq!([10, 20, 30, 31, 40].map(|block| value(&controller, block)), [8, 8, 8, 8, 0]);
}

#[test]
fn a_ticket_of_another_controller_is_refused() {
    let (one, two) = (model(Config::default()), model(Config::default()));
    let (one, two) = (started(&one, options(2, 8)), started(&two, options(1, 8)));
    assert!(matches!(one.start(LIFE), Err(Error::Invalid(_))));
    for queue in [0, 1] {
        let mut lease = one.try_lease(queue).unwrap().unwrap();
        let ticket = transaction(&one, &mut lease, 1, &[u64::from(queue)]).unwrap();
        assert!(matches!(two.wait(ticket), Err(Error::Invalid(_))), "queue {queue}");
        one.wait(ticket).unwrap();
    }
}

#[test]
fn a_lease_is_one_queue_for_one_owner() {
    let model = model(Config::default());
    let controller = started(&model, options(2, 8));
    let (one, two) = (controller.lease().unwrap(), controller.lease().unwrap());
    assert_ne!(one.queue(), two.queue());
    assert!(controller.try_lease(0).unwrap().is_none());
    assert!(matches!(controller.try_lease(2), Err(Error::Invalid(_))));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| controller.lease().unwrap().queue());
        let queue = one.queue();
        drop(one);
        assert_eq!(waits.join().unwrap(), queue);
    });
}

/// The second of five commands fails: its transaction and what is behind it never finish; what was before has; other
/// queues and reads go on.
#[test]
fn an_error_stops_its_queue() {
    let medium = medium();
    let model = Model::new("the device", medium.clone(), Config { seed: 4, ..Config::default() }).unwrap();
    let controller = started(&model, options(2, 64));
    let mut leases = [0, 1].map(|queue| controller.try_lease(queue).unwrap().unwrap());
    let before = transaction(&controller, &mut leases[0], 1, &[0]).unwrap();
    controller.wait(before).unwrap();
    model.set_faults(Faults { fail: Some((1, Status::WRITE_FAULT)), ..Faults::default() });
    let failed = transaction(&controller, &mut leases[0], 2, &[2, 4, 6, 8, 10]).unwrap();
    let behind = transaction(&controller, &mut leases[0], 3, &[12]).unwrap();
    let error = controller.wait(failed).unwrap_err();
    assert!(is_io(&error), "{error}");
    for part in ["the device", "queue 2", "transaction 0x2", "write fault"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(is_io(&controller.wait(behind).unwrap_err()));
    controller.wait(before).unwrap();
    assert!(is_io(&transaction(&controller, &mut leases[0], 4, &[14]).unwrap_err()));
    let other = transaction(&controller, &mut leases[1], 5, &[20]).unwrap();
    controller.wait(other).unwrap();
    assert_eq!([0, 20].map(|block| value(&controller, block)), [1, 5]);
    drop(leases);
    let controller = opened(&Model::new("model", medium, Config::default()).unwrap(), options(2, 64));
    let Window::Known { queues, .. } = controller.window() else { panic!("{:?}", controller.window()) };
    let txids: Vec<u64> = queues[0].transactions.iter().map(|tx| tx.txid.0).collect();
    assert!(txids == [2, 3] && queues[1].transactions.is_empty(), "{queues:?}");
}

#[test]
fn a_torn_command_fails() {
    let model = model(Config { has_write_cache: false, ..Config::default() });
    let controller = started(&model, options(1, 64));
    let mut lease = controller.lease().unwrap();
    model.set_faults(Faults { torn: Some(0), ..Faults::default() });
    let ticket = transaction(&controller, &mut lease, 1, &[3]).unwrap();
    assert!(is_io(&controller.wait(ticket).unwrap_err()));
    assert_eq!(value(&controller, 3), u64::MAX, "half of it is there");
}

/// A command that never completes, and a controller that says it is broken: both are errors, nothing hangs, and what
/// was in flight does not land later. Reads go on.
#[test]
fn a_controller_that_does_not_answer_is_given_up() {
    let stuck = Faults { stuck: Some(1), ..Faults::default() };
    let fatal = Faults { fatal: Some(1), ..Faults::default() };
    for (faults, words) in [(stuck, "no answer in 10 s"), (fatal, "fatal error")] {
        let model = model(Config::default());
        let controller = started(&model, options(2, 64));
        let mut lease = controller.lease().unwrap();
        controller.wait(transaction(&controller, &mut lease, 1, &[1]).unwrap()).unwrap();
        model.set_faults(faults);
        let ticket = transaction(&controller, &mut lease, 2, &[3, 5]).unwrap();
        let error = controller.wait(ticket).unwrap_err();
        assert!(is_io(&error) && error.to_string().contains(words), "{error}");
        model.set_faults(Faults::default());
        let (three, five) = (value(&controller, 3), value(&controller, 5));
        assert_eq!(value(&controller, 1), 1, "reads go on");
        assert!(is_io(&transaction(&controller, &mut lease, 3, &[7]).unwrap_err()));
        assert!(is_io(&controller.lease().err().unwrap()), "no queue goes on");
        assert_eq!((three, five), (value(&controller, 3), value(&controller, 5)));
    }
}

#[test]
fn an_interrupt_that_is_lost_is_not_waited_for() {
    let model = model(Config::default());
    let controller = started(&model, options(1, 64));
    let mut lease = controller.lease().unwrap();
    model.set_faults(Faults { silent: Some(0), ..Faults::default() });
    let ticket = transaction(&controller, &mut lease, 1, &[1]).unwrap();
    let before = model.now();
    controller.wait(ticket).unwrap();
    assert!(model.now() - before < Duration::from_secs(1));
}

/// A page that changes while a command transfers it.
#[test]
fn a_page_in_flight_is_not_to_be_changed() {
    let model = model(Config::default());
    let controller = started(&model, options(1, 64));
    let mut lease = controller.lease().unwrap();
    let page = page(&controller, 1);
    let ticket = lease.commit(Txid(1), Lba(1), std::slice::from_ref(&page)).unwrap();
    // The device fetches the command, and does not do it yet.
    model.hold(true);
    lease.poll().unwrap();
    model.hold(false);
    assert_eq!(model.reports(), Vec::<String>::new());
    page.write(8, b"changed!");
    controller.wait(ticket).unwrap();
    assert!(model.reports()[0].contains("changed"), "{:?}", model.reports());
}

/// What cannot be used is refused, with device and reason.
#[test]
fn unusable_devices_are_refused() {
    let refused = |config: Config, bytes: u64| {
        let medium = Arc::new(InMemory::new(bytes, 256 << 10));
        let model = Model::new("the device", medium, config).unwrap();
        let error = Controller::open(model, Options::default()).err().expect("it cannot be used");
        assert!(matches!(error, Error::Unsupported(_)) && error.to_string().contains("the device"), "{error}");
        error.to_string()
    };
    let bytes = 1 << 20;
    assert!(refused(Config { is_read_only: true, ..Config::default() }, bytes).contains("read only"));
    assert!(refused(Config { metadata: 8, ..Config::default() }, bytes).contains("8 bytes of metadata"));
    assert!(refused(Config { lba_bytes: 8192, ..Config::default() }, bytes).contains("8192"));
    assert!(refused(Config::default(), 4096).contains("no room for a transaction"));
}

/// Without a region for queues a controller can be read, and no life begins on it.
#[test]
fn a_region_that_cannot_be_used_is_refused() {
    let lost = |model: &Arc<Model>, region| model.set_faults(Faults { region, ..Faults::default() });
    let cases: [(Config, u8, &str); 6] = [
        (Config { region: None, ..Config::default() }, 0, "no persistent memory region"),
        (Config { region: Some(false), ..Config::default() }, 0, "queues cannot stand"),
        (Config { barriers: 0, ..Config::default() }, 0, "no way to make stores durable"),
        (Config::default(), 2, "read only"),
        (Config::default(), 3, "unreliable"),
        (Config { queues: 1, ..Config::default() }, 0, "one queue pair"),
    ];
    for (config, fault, words) in cases {
        let model = model(config);
        lost(&model, fault);
        let controller = opened(&model, Options::default());
        let error = controller.start(LIFE).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)) && error.to_string().contains(words), "{error}");
        controller.write(Lba(1), &[page(&controller, 3)]).unwrap();
        assert_eq!(value(&controller, 1), 3);
        assert!(matches!(controller.lease(), Err(Error::Invalid(_))));
    }
    let model = Model::in_memory(1 << 20, 4096);
    let error = opened(&model, Options::default()).start(LIFE).unwrap_err();
    assert!(error.to_string().contains("too short"), "{error}");
}

/// A region whose content was lost can be used again; what it said is unknown.
#[test]
fn a_region_that_was_lost_is_unknown() {
    let medium = medium();
    let open = || Model::new("model", medium.clone(), Config::default()).unwrap();
    started(&open(), options(1, 8));
    let model = open();
    model.set_faults(Faults { region: 1, ..Faults::default() });
    let controller = opened(&model, options(1, 8));
    assert!(matches!(controller.window(), Window::Unknown(why) if why.contains("not restored")));
    controller.start(LIFE).unwrap();
    let mut lease = controller.lease().unwrap();
    controller.wait(transaction(&controller, &mut lease, 1, &[1]).unwrap()).unwrap();
}

/// Also where the read that is the barrier does not tell.
#[test]
fn the_region_fails_in_the_middle_of_a_commit() {
    for barriers in [1, 2, 3] {
        let model = model(Config { barriers, ..Config::default() });
        let controller = started(&model, options(1, 8));
        let mut lease = controller.lease().unwrap();
        model.set_faults(Faults { region: 3, ..Faults::default() });
        let error = transaction(&controller, &mut lease, 1, &[1]).unwrap_err();
        assert!(is_io(&error) && error.to_string().contains("unreliable"), "{error}");
        model.set_faults(Faults::default());
        assert_eq!(value(&controller, 1), 0, "the device was not told of it");
        assert!(is_io(&transaction(&controller, &mut lease, 2, &[1]).unwrap_err()));
    }
}

/// What is in flight when nobody has the controller any more does not land later, in memory that is others' by then.
#[test]
fn a_controller_that_is_dropped_is_disabled() {
    let model = model(Config::default());
    let controller = started(&model, options(1, 8));
    let queue = controller.plain_queue().unwrap();
    let mut lease = controller.lease().unwrap();
    model.hold(true);
    transaction(&controller, &mut lease, 1, &[1, 3]).unwrap();
    drop((lease, controller));
    assert_eq!(model.read32(register::CSTS).unwrap() & csts::RDY, 0);
    let error = queue.execute(Command::new(io::FLUSH, NAMESPACE), Vec::new(), "a flush").unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    model.hold(false);
    let before = model.counts();
    model.pause(0, Duration::from_secs(1)).unwrap();
    assert_eq!((model.reports(), model.counts()), (Vec::new(), before));
    // Neither does one that could not be used.
    let none = Model::new("model", medium(), Config { is_read_only: true, ..Config::default() }).unwrap();
    assert!(Controller::open(none.clone(), Options::default()).is_err());
    assert_eq!(none.read32(register::CSTS).unwrap() & csts::RDY, 0);
}

/// More often than a queue has entries: nothing of those that were given up is left in its way.
#[test]
fn queues_in_memory_go_on_after_a_reset() {
    let model = model(Config::default());
    let controller = started(&model, options(1, 64));
    let queue = controller.plain_queue().unwrap();
    let read = || queue.execute(Command::transfer(io::READ, NAMESPACE, 0, 8), vec![controller.page().unwrap()], "");
    for _ in 0..PLAIN_DEPTH + 4 {
        model.set_faults(Faults { stuck: Some(0), ..Faults::default() });
        let page = controller.page().unwrap();
        assert!(is_io(&controller.read(Lba(1), &[page]).unwrap_err()));
        model.set_faults(Faults::default());
        // As long as nobody has revived the controller, this queue is not there.
        assert!(is_io(&read().unwrap_err()));
        assert_eq!(value(&controller, 1), 0);
        read().unwrap();
    }
    assert_eq!(model.reports(), Vec::<String>::new());
}

/// Each command has its time: a queue of many that take long is no controller that does not answer.
#[test]
fn a_slow_device_is_waited_for() {
    let profile = Profile { writes_per_s: 10, ..Profile::named("p5800x").unwrap() };
    let model = model(Config { profile: Some(profile), has_write_cache: false, ..Config::default() });
    let controller = started(&model, Options { merge: false, ..options(1, 256) });
    let mut lease = controller.lease().unwrap();
    let before = model.now();
    let ticket = transaction(&controller, &mut lease, 1, &(0..200).collect::<Vec<u64>>()).unwrap();
    controller.wait(ticket).unwrap();
    let took = model.now() - before;
    assert!(took >= Duration::from_secs(20), "{took:?}");
}

/// A transport that has no more memory, after so many times.
struct Short {
    model: Arc<Model>,
    left: AtomicUsize,
}

impl Transport for Short {
    fn name(&self) -> &str {
        "short"
    }
    fn read32(&self, register: u32) -> Result<u32> {
        self.model.read32(register)
    }
    fn write32(&self, site: Site, register: u32, value: u32) -> Result<()> {
        self.model.write32(site, register, value)
    }
    fn region(&self) -> &dyn PersistentRegion {
        self.model.region()
    }
    fn memory(&self, pages: usize) -> Result<Arc<dyn Memory>> {
        let left = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| Error::NoSpace("memory for transfers".into()))?;
        self.model.memory(pages)
    }
    fn interrupts(&self) -> u16 {
        self.model.interrupts()
    }
    fn pause(&self, interrupt: u16, until: Duration) -> Result<()> {
        self.model.pause(interrupt, until)
    }
    fn now(&self) -> Duration {
        self.model.now()
    }
    fn counts(&self) -> Counts {
        self.model.counts()
    }
}

/// The third of four queues cannot be made: the life has not begun, and can be begun later.
#[test]
fn a_life_that_does_not_begin_can_begin_later() {
    let model = model(Config::default());
    let short = Arc::new(Short { model: model.clone(), left: AtomicUsize::new(usize::MAX) });
    let controller = Controller::open(short.clone(), options(4, 16)).unwrap();
    short.left.store(2, Relaxed);
    assert!(matches!(controller.start(LIFE), Err(Error::NoSpace(_))));
    assert!(matches!(controller.lease(), Err(Error::Invalid(_))));
    short.left.store(usize::MAX, Relaxed);
    controller.start(LIFE).unwrap();
    for queue in 0..4 {
        let mut lease = controller.try_lease(queue).unwrap().unwrap();
        let block = u64::from(queue);
        controller.wait(transaction(&controller, &mut lease, 1 + block, &[block]).unwrap()).unwrap();
    }
    assert_eq!(model.reports(), Vec::<String>::new());
    controller.close().unwrap();
}

/// Counts that begin again at 0, and numbers of commands with them.
#[test]
fn counts_overflow() {
    let medium = medium();
    let open = || Model::new("model", medium.clone(), Config::default()).unwrap();
    let first_count = 0u32.wrapping_sub(16);
    let model = open();
    let controller = started(&model, Options { first_count, ..options(2, 16) });
    for txid in 1..100 {
        let mut lease = controller.try_lease((txid % 2) as u16).unwrap().unwrap();
        controller.wait(transaction(&controller, &mut lease, txid, &[2 * txid, 2 * txid + 1]).unwrap()).unwrap();
    }
    let mut lease = controller.try_lease(0).unwrap().unwrap();
    model.hold(true);
    (100..105).for_each(|txid| _ = transaction(&controller, &mut lease, txid, &[2 * txid, 2 * txid + 2]).unwrap());
    drop((lease, controller));
    let controller = opened(&open(), options(2, 16));
    let Window::Known { queues, .. } = controller.window() else { panic!("{:?}", controller.window()) };
    let txids: Vec<u64> = queues[0].transactions.iter().map(|tx| tx.txid.0).collect();
    assert_eq!(txids, [100, 101, 102, 103, 104]);
}

/// A doorbell of no queue, and a value beyond the ring.
#[test]
fn a_wrong_doorbell_is_reported() {
    let model = model(Config::default());
    let _controller = opened(&model, options(1, 8));
    for (doorbell, value) in [(0x1000 + 8 * 7, 1), (0x1000 + 8 * 7 + 4, 1), (0x1008, PLAIN_DEPTH)] {
        let before = model.reports().len();
        model.write32(site::SETUP, doorbell, value).unwrap();
        assert_eq!(model.reports().len(), before + 1, "{doorbell:#x}");
    }
}

/// Acknowledged only when the window certainly does not have it.
#[test]
fn a_durable_head_costs_a_barrier() {
    for (acknowledge, barriers) in [(Acknowledge::Finished, 1), (Acknowledge::HeadDurable, 2)] {
        let model = model(Config::default());
        let controller = started(&model, Options { acknowledge, ..options(1, 8) });
        let mut lease = controller.lease().unwrap();
        let before = model.counts();
        controller.wait(transaction(&controller, &mut lease, 1, &[1, 3]).unwrap()).unwrap();
        assert_eq!((model.counts() - before).barriers, barriers);
    }
}

/// As many queues as the controller grants, its region has room for, and the caller asks for.
#[test]
fn as_many_queues_as_all_allow() {
    let queues = |granted: u16, region: u64, wanted: u16, depth: u32, most_entries: u32| {
        let medium = Arc::new(InMemory::new(1 << 20, region));
        let config = Config { queues: granted, most_entries, ..Config::default() };
        let model = Model::new("model", medium, config).unwrap();
        let controller = started(&model, options(wanted, depth));
        let lease = controller.lease().unwrap();
        (controller.queues(), lease.most_entries() + 1)
    };
    assert_eq!(queues(8, 2 << 20, 4, 256, 2048), (4, 256));
    assert_eq!(queues(3, 2 << 20, 4, 256, 2048), (2, 256));
    assert_eq!(queues(8, 64 << 10, 4, 256, 2048), (3, 256));
    assert_eq!(queues(8, 2 << 20, 4, 256, 64), (4, 64));
    assert_eq!(queues(8, 8 << 10, 4, 256, 2048), (1, 64));
}
