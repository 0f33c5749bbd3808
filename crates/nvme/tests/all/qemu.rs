//! The driver on QEMU's controller.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use wholly_blocks::{BLOCK, Lba, Txid};
use wholly_nvme::qtest::{Disk, Qemu, QemuOptions};
use wholly_nvme::{Controller, Counts, DmaPage, Lease, Life, Options, Ticket, Transport, Window};

use super::common::{device, has_qemu, start};

const LIFE: Life = Life { volume: [5; 16], incarnation: 1 };
const IMAGE: u64 = 4 << 20;
const REGION: u64 = 256 << 10;

fn options() -> Options {
    Options { queues: 2, merge: false, ..Options::default() }
}

fn page(controller: &Controller, byte: u8) -> DmaPage {
    let page = controller.page().unwrap();
    page.write(0, &[byte; BLOCK]);
    page
}

fn byte(controller: &Controller, block: u64) -> u8 {
    bytes(controller, block, 1)[0]
}

/// What blocks have, from one on, each alike in all its bytes.
fn bytes(controller: &Controller, from: u64, count: u64) -> Vec<u8> {
    let pages: Vec<DmaPage> = (0..count).map(|_| controller.page().unwrap()).collect();
    controller.read(Lba(from), &pages).unwrap();
    let byte = |(block, page): (u64, &DmaPage)| {
        let mut bytes = [0; BLOCK];
        page.read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "block {block} is torn");
        bytes[0]
    };
    (from..).zip(&pages).map(byte).collect()
}

/// A transaction of some blocks from one on, each with this byte.
fn transaction(controller: &Controller, lease: &mut Lease, txid: u64, from: u64, count: u64) -> Ticket {
    let page = page(controller, txid as u8);
    for block in from..from + count - 1 {
        lease.write(Lba(block), std::slice::from_ref(&page)).unwrap();
    }
    lease.commit(Txid(txid), Lba(from + count - 1), &[page]).unwrap()
}

fn unfinished(window: &Window) -> Vec<(u64, usize)> {
    let Window::Known { queues, .. } = window else { panic!("{window:?}") };
    let all = queues.iter().flat_map(|queue| &queue.transactions);
    all.map(|tx| (tx.txid.0, tx.runs.len())).collect()
}

/// What the device itself has counted, beside the driver's stores.
#[test]
fn table_1_by_qemus_trace() {
    if !has_qemu() {
        return;
    }
    let directory = device(IMAGE, REGION);
    let qemu = start(directory.path());
    let controller = Controller::open(qemu.clone(), options()).unwrap();
    controller.start(LIFE).unwrap();
    let mut lease = controller.lease().unwrap();
    for (txid, n) in (1..).zip([1u64, 2, 4, 8, 16, 63]) {
        let before = qemu.counts();
        let ticket = transaction(&controller, &mut lease, txid, 100, n + 1);
        controller.wait(ticket).unwrap();
        let Counts { interrupts, blocks, region_bytes, .. } = qemu.counts() - before;
        let expected = Counts {
            sq_doorbells: 1,
            cq_doorbells: 1,
            region_runs: 3,
            orders: 3,
            barriers: 1,
            fetched_from_region: n + 1,
            completions: n + 1,
            block_ios: n + 1,
            interrupts,
            blocks,
            region_bytes,
            ..Counts::default()
        };
        assert_eq!(qemu.counts() - before, expected, "N = {n}");
        assert!((1..=n + 1).contains(&interrupts), "N = {n}: {interrupts} interrupts");
    }
    assert_eq!(byte(&controller, 150), 6);
}

/// Commands complete in another order than they were handed over, and transactions finish in theirs.
#[test]
fn completions_come_out_of_order() {
    if !has_qemu() {
        return;
    }
    let directory = device(IMAGE, REGION);
    let qemu = start(directory.path());
    let controller = Controller::open(qemu.clone(), options()).unwrap();
    controller.start(LIFE).unwrap();
    let mut lease = controller.lease().unwrap();
    let mut rounds = 0;
    let is_in_order = || {
        let trace = qemu.trace();
        let completions = trace.lines().filter(|line| line.contains("enqueue_req_completion"));
        let ids = completions.filter_map(|line| line.split("cid ").nth(1)?.split(' ').next()?.parse::<u64>().ok());
        let ids: Vec<u64> = ids.collect();
        // The ring is not passed: ids of its commands increase.
        ids.windows(2).filter(|pair| pair[1] + 1 == pair[0]).count() == 0
    };
    while is_in_order() {
        assert!(rounds < 50, "50 transactions of 32 commands completed in order");
        let ticket = transaction(&controller, &mut lease, rounds + 1, 0, 32);
        controller.wait(ticket).unwrap();
        rounds += 1;
    }
}

#[test]
fn a_bad_sector_stops_its_queue() {
    if !has_qemu() {
        return;
    }
    let directory = device(IMAGE, REGION);
    let bad = QemuOptions { disk: Disk::BadSector(8 * 100), ..QemuOptions::default() };
    let qemu = Qemu::start(directory.path(), &bad).unwrap();
    let controller = Controller::open(qemu.clone(), options()).unwrap();
    controller.start(LIFE).unwrap();
    let mut leases = [0, 1].map(|queue| controller.try_lease(queue).unwrap().unwrap());
    let good = transaction(&controller, &mut leases[0], 1, 90, 4);
    controller.wait(good).unwrap();
    let failed = transaction(&controller, &mut leases[0], 2, 99, 5);
    let error = controller.wait(failed).unwrap_err();
    assert!(error.to_string().contains("0x280"), "{error}");
    let other = transaction(&controller, &mut leases[1], 3, 110, 3);
    controller.wait(other).unwrap();
    assert_eq!((byte(&controller, 90), byte(&controller, 110)), (1, 3));
    drop((leases, controller, qemu));
    let controller = Controller::open(start(directory.path()), options()).unwrap();
    assert_eq!(unfinished(controller.window()), [(2, 5)]);
}

/// The controller is reset with commands in flight, 200 times: each time the window has what was, nothing hangs, and
/// nothing of it lands later.
#[test]
fn resets_with_commands_in_flight() {
    if !has_qemu() {
        return;
    }
    let directory = device(IMAGE, REGION);
    let qemu = start(directory.path());
    let mut before = vec![0; 66];
    for incarnation in 1..=200 {
        let controller = Controller::open(qemu.clone(), options()).unwrap();
        if incarnation > 1 {
            let last = incarnation - 1;
            assert_eq!(unfinished(controller.window()), [(last, 16)]);
            let found = bytes(&controller, 0, 66);
            let written = last % 50..last % 50 + 16;
            for (block, (found, before)) in (0..).zip(found.iter().zip(&before)) {
                let can_be = found == before || (written.contains(&block) && *found == last as u8);
                assert!(can_be, "block {block} has {found} after {before}, in life {last}");
            }
            controller.flush().unwrap();
            before = bytes(&controller, 0, 66);
            assert_eq!(found, before, "something has landed later");
        }
        controller.start(Life { incarnation, ..LIFE }).unwrap();
        let mut lease = controller.lease().unwrap();
        transaction(&controller, &mut lease, incarnation, incarnation % 50, 16);
    }
}

/// QEMU is killed: the machine dies, and the region keeps its stores.
#[test]
fn a_kill_with_commands_in_flight() {
    if !has_qemu() {
        return;
    }
    let directory = device(IMAGE, REGION);
    {
        let slow = QemuOptions { disk: Disk::Slow(100), ..QemuOptions::default() };
        let qemu = Qemu::start(directory.path(), &slow).unwrap();
        let controller = Controller::open(qemu.clone(), options()).unwrap();
        controller.start(LIFE).unwrap();
        let mut leases = [0, 1].map(|queue| controller.try_lease(queue).unwrap().unwrap());
        transaction(&controller, &mut leases[0], 1, 0, 32);
        transaction(&controller, &mut leases[1], 2, 100, 3);
        let pid = rustix::process::Pid::from_raw(qemu.process_id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        // Whoever waits is told.
        let begun = std::time::Instant::now();
        let error = controller.read(Lba(0), &[controller.page().unwrap()]).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
    }
    let controller = Controller::open(start(directory.path()), options()).unwrap();
    assert_eq!(unfinished(controller.window()), [(1, 32), (2, 3)]);
    assert!(bytes(&controller, 0, 32).iter().all(|byte| [0, 1].contains(byte)));
    assert!(bytes(&controller, 100, 3).iter().all(|byte| [0, 2].contains(byte)));
}

/// A loss of power: the files of the device go back to what they were at a moment.
#[test]
fn power_is_lost() {
    if !has_qemu() {
        return;
    }
    let directory = device(IMAGE, REGION);
    let copy = |to: &str| {
        for name in ["image", "pmr"] {
            std::fs::copy(directory.path().join(name), directory.path().join(format!("{name}{to}"))).unwrap();
        }
    };
    let rewind = |name: &str, from: &str| {
        std::fs::copy(directory.path().join(format!("{name}{from}")), directory.path().join(name)).unwrap();
    };
    let opened = |path: &Path| -> (Arc<Qemu>, Controller) {
        let qemu = start(path);
        (qemu.clone(), Controller::open(qemu, options()).unwrap())
    };
    {
        let (_qemu, controller) = opened(directory.path());
        controller.start(LIFE).unwrap();
        let mut lease = controller.lease().unwrap();
        controller.wait(transaction(&controller, &mut lease, 1, 0, 4)).unwrap();
        copy(".one");
        let ticket = transaction(&controller, &mut lease, 2, 2, 4);
        copy(".handed-over");
        controller.wait(ticket).unwrap();
        copy(".two");
    }
    // The region was written, and nothing of the second transaction.
    rewind("image", ".one");
    rewind("pmr", ".handed-over");
    {
        let (_qemu, controller) = opened(directory.path());
        assert_eq!(unfinished(controller.window()), [(2, 4)]);
        assert_eq!([0, 2, 5].map(|block| byte(&controller, block)), [1, 1, 0]);
    }
    // Neither was.
    rewind("pmr", ".one");
    {
        let (_qemu, controller) = opened(directory.path());
        assert_eq!(unfinished(controller.window()), []);
    }
    // Both were.
    rewind("image", ".two");
    rewind("pmr", ".two");
    {
        let (_qemu, controller) = opened(directory.path());
        assert_eq!(unfinished(controller.window()), []);
        assert_eq!([0, 2, 5].map(|block| byte(&controller, block)), [1, 2, 2]);
    }
}
