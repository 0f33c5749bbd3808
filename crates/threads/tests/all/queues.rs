//! The driver of NVMe controllers, on its model, over a scheduler: four threads write transactions on two queues, and
//! wait for each other's. Nothing hangs, each transaction is there whole once it was waited for, transactions of a
//! queue finish in order, and the driver does nothing that none may do.

use std::sync::Arc;

use scheduled_blocks::{BLOCK, Lba, Txid};
use scheduled_nvme::model::{Config, InMemory, Model};
use scheduled_nvme::{Acknowledge, Controller, DmaPage, Life, Options, Ticket, Window};
use sync::{AtomicUsize, Mutex, Ordering, thread};

const THREADS: u64 = 4;
const EACH: u64 = 2;

fn page(controller: &Controller, value: u64) -> DmaPage {
    let page = controller.page().unwrap();
    page.write(0, &value.to_le_bytes());
    page.write(BLOCK - 8, &value.to_le_bytes());
    page
}

fn value(controller: &Controller, block: u64) -> u64 {
    let page = controller.page().unwrap();
    controller.read(Lba(block), std::slice::from_ref(&page)).unwrap();
    let word = |at| {
        let mut bytes = [0; 8];
        page.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    assert_eq!(word(0), word(BLOCK - 8), "block {block} is torn");
    word(0)
}

/// Four threads, two queues of three slots: who comes has to wait for a lease, for slots, or for a head.
fn four_threads(acknowledge: Acknowledge) {
    let medium = Arc::new(InMemory::new(64 * BLOCK as u64, 16 << 10));
    let config = Config { queues: 3, lba_bytes: 4096, ..Config::default() };
    let model = Model::new("model", medium.clone(), config.clone()).unwrap();
    let options = Options { queues: 2, depth: 4, merge: false, acknowledge, ..Options::default() };
    let controller = Arc::new(Controller::open(model.clone(), options.clone()).unwrap());
    controller.start(Life { volume: [1; 16], incarnation: 1 }).unwrap();
    let numbers = Arc::new(AtomicUsize::new(1));
    let committed: Arc<Mutex<Vec<(Ticket, u64, u64)>>> = Arc::default();
    let work = |of: u64| {
        let (controller, numbers, committed) = (controller.clone(), numbers.clone(), committed.clone());
        move || {
            for round in 0..EACH {
                let block = 10 * of + 2 * round;
                let mut lease = controller.lease().unwrap();
                // Under the lease: numbers of a queue increase.
                let number = numbers.fetch_add(1, Ordering::SeqCst) as u64;
                lease.write(Lba(block), &[page(&controller, number)]).unwrap();
                let ticket = lease.commit(Txid(number), Lba(block + 1), &[page(&controller, number)]).unwrap();
                committed.lock().unwrap().push((ticket, block, number));
                drop(lease);
                // Another one's, or its own.
                let (ticket, block, number) = committed.lock().unwrap()[0];
                controller.wait(ticket).unwrap();
                assert_eq!([block, block + 1].map(|block| value(&controller, block)), [number, number]);
            }
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|of| thread::spawn(work(of))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for (ticket, block, number) in committed.lock().unwrap().drain(..) {
        controller.wait(ticket).unwrap();
        assert_eq!([block, block + 1].map(|block| value(&controller, block)), [number, number]);
    }
    assert_eq!(model.reports(), Vec::<String>::new());
    Arc::into_inner(controller).expect("all threads have ended").close().unwrap();
    let next = Controller::open(Model::new("model", medium, config).unwrap(), options).unwrap();
    assert!(matches!(next.window(), Window::Known { queues, .. } if queues.iter().all(|q| q.transactions.is_empty())));
}

#[test]
fn transactions_of_four_threads() {
    shuttle::check_random(|| four_threads(Acknowledge::Finished), 200);
    shuttle::check_pct(|| four_threads(Acknowledge::HeadDurable), 100, 3);
}
