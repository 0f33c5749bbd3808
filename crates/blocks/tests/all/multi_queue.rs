//! The multi-queue journal over disks, as regions: the contract, and its own rules.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use rustix::io::Errno;
use wholly_blocks::multi_queue::{
    DiskQueues, Life as QueueLife, MultiQueue, Options, Proof, QueueGuarantees, Queues, Unfinished, Write,
};
use wholly_blocks::{BLOCK, Lba, Page, Placement, Run, Sequence, Tag, TxBlocks, Txid};
use wholly_error::{Error, Result};
use wholly_media::Site;
use wholly_sim::{Image, Medium, Mutation, MutationKind, SimConfig, World};

use crate::images::images;
use crate::suite::{BLOCKS, FAILS, Opened, ROOM, Subject, commit, get, holds, page, writes};

const QUEUES: u16 = 2;
const LOG: Run = Run { start: Lba(BLOCKS), count: 2 + 64 * QUEUES as u64 };
const VOLUME: [u8; 16] = *b"a volume of test";

/// The journal on a medium.
pub struct Journaled(pub Medium);

struct Life {
    world: Arc<World>,
    blocks: Arc<dyn TxBlocks>,
    options: Options,
}

fn open(world: &Arc<World>, options: &Options) -> Result<MultiQueue> {
    let queues = Arc::new(DiskQueues::new(world.log(), QUEUES));
    MultiQueue::open(queues, (BLOCKS, LOG), VOLUME, options.clone())
}

fn life(world: Arc<World>, options: &Options) -> Box<dyn Opened> {
    let blocks = Arc::new(open(&world, options).expect("a journal that a crash has left"));
    Box::new(Life { world, blocks, options: options.clone() })
}

impl Subject for Journaled {
    fn make(&self, most_overwrites: Option<u64>) -> Box<dyn Opened> {
        let mutations = vec![Mutation::new(FAILS, MutationKind::Fail(Errno::IO))];
        let log_len = (LOG.start.0 + LOG.count) * BLOCK as u64;
        let world = World::new(SimConfig { log_len, log: self.0, mutations, ..SimConfig::disk() });
        let options = Options { most_overwrites, room: Some(ROOM), held_fresh: 4, in_turn: true, ..Options::default() };
        let queues = DiskQueues::new(world.log(), QUEUES);
        MultiQueue::format(&queues, LOG, VOLUME, &options).expect("a journal");
        life(world, &options)
    }
}

impl Opened for Life {
    fn blocks(&self) -> Arc<dyn TxBlocks> {
        self.blocks.clone()
    }

    fn during(&self, work: &mut dyn FnMut(&dyn TxBlocks)) -> Vec<Box<dyn Opened>> {
        let begun = self.world.now();
        work(&*self.blocks);
        let next = |image: &Image| life(World::from_image(image, self.world.config().clone()), &self.options);
        images(&self.world, begun, 5).iter().map(next).collect()
    }

    fn rotten(&self, _: u64) -> Box<dyn Opened> {
        unreachable!("blocks at home have no checksums")
    }
}

#[test]
fn on_a_disk() {
    holds(&Journaled(Medium::BLOCKS));
}

#[test]
fn on_a_disk_of_sectors() {
    holds(&Journaled(Medium::DISK));
}

#[test]
fn in_persistent_memory() {
    holds(&Journaled(Medium::PMEM));
}

/// A log that is large enough for all that a test does.
const ROOMY: Run = Run { start: Lba(BLOCKS), count: 2 + 3000 * QUEUES as u64 };

fn roomy_world() -> Arc<World> {
    let log_len = (ROOMY.start.0 + ROOMY.count) * BLOCK as u64;
    World::new(SimConfig { log_len, log: Medium::BLOCKS, ..SimConfig::disk() })
}

fn roomy(queues: Arc<dyn Queues>) -> MultiQueue {
    let options = Options { in_turn: true, ..Options::default() };
    MultiQueue::format(&*queues, ROOMY, VOLUME, &options).expect("a journal");
    MultiQueue::open(queues, (BLOCKS, ROOMY), VOLUME, options).expect("an empty journal")
}

/// Queues whose writes and flushes at one site wait until they may go on.
struct Held {
    inner: DiskQueues,
    site: Site,
    /// Flushes that have ended.
    flushed: AtomicU64,
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Held {
    fn new(site: Site) -> Arc<Held> {
        let inner = DiskQueues::new(roomy_world().log(), QUEUES);
        let (state, changed) = (Mutex::default(), Condvar::new());
        Arc::new(Held { inner, site, flushed: AtomicU64::new(0), state, changed })
    }

    fn comes(&self, site: Site) {
        if site == self.site {
            let mut state = self.state.lock().unwrap();
            state.0 = true;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |(_, may_go_on)| !*may_go_on).unwrap());
        }
    }

    /// Waits until one has come.
    fn has_come(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |(has_come, _)| !*has_come).unwrap());
    }

    fn go_on(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

impl Queues for Held {
    fn guarantees(&self) -> &QueueGuarantees {
        self.inner.guarantees()
    }
    fn unfinished(&self) -> Unfinished {
        self.inner.unfinished()
    }
    fn start(&self, site: Site, life: QueueLife) -> Result<()> {
        self.inner.start(site, life)
    }
    fn commit(&self, site: Site, queue: u16, tx: Txid, writes: Vec<Write>) -> Result<u64> {
        self.inner.commit(site, queue, tx, writes)
    }
    fn wait(&self, site: Site, queue: u16, place: u64) -> Result<()> {
        self.inner.wait(site, queue, place)
    }
    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        self.inner.read_run(at, bytes)
    }
    fn write(&self, site: Site, at: Lba, pages: &[Page]) -> Result<()> {
        self.comes(site);
        self.inner.write(site, at, pages)
    }
    fn flush(&self, site: Site) -> Result<()> {
        self.comes(site);
        self.inner.flush(site)?;
        self.flushed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn close(&self, site: Site) -> Result<()> {
        self.inner.close(site)
    }
}

/// While a checkpoint is held inside of its home write, others commit: other blocks, and the very block that goes home.
/// No clock: what does not return hangs.
#[test]
fn nobody_waits_for_a_checkpoint() {
    let held = Held::new(Site("mq.home"));
    let blocks = roomy(held.clone());
    commit(&blocks, &[writes(&blocks, &[(0, 1), (1, 1)])]);
    std::thread::scope(|scope| {
        let home = scope.spawn(|| blocks.bring_home());
        held.has_come();
        for round in 0..1000 {
            commit(&blocks, &[writes(&blocks, &[(2 + round % 40, round as u8)])]);
        }
        for round in 0..100 {
            commit(&blocks, &[writes(&blocks, &[(0, round)])]);
            assert_eq!((get(&blocks, None, 0), get(&blocks, None, 1)), (round, 1));
        }
        held.go_on();
        home.join().unwrap().expect("all is home");
    });
    assert_eq!((get(&blocks, None, 0), get(&blocks, None, 41)), (99, 999u64 as u8));
    blocks.bring_home().expect("all is home");
    assert_eq!((get(&blocks, None, 0), get(&blocks, None, 41)), (99, 999u64 as u8));
}

/// Content that was stored before its transaction is ordered is flushed before that is acknowledged, also while the
/// flush of another transaction is under way.
#[test]
fn a_flush_of_another_is_not_enough() {
    let slow = Site("test.slow");
    let held = Held::new(slow);
    let blocks = roomy(held.clone());
    let fresh = |from: u64| {
        let tx = blocks.begin().expect("a transaction");
        for at in from..from + 20 {
            blocks.write(Site("test"), tx, Lba(at), page(1), Placement::Fresh, Tag::Data).expect("a write");
        }
        blocks.order(Site("test"), &[tx], &[]).expect("an order")
    };
    let (one, other) = (fresh(0), fresh(20));
    let before = held.flushed.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| blocks.wait(slow, one));
        held.has_come();
        let waited = blocks.wait(Site("test"), other);
        let is_flushed = held.flushed.load(Ordering::SeqCst) > before;
        held.go_on();
        waits.join().unwrap().and(waited).expect("commits");
        assert!(is_flushed, "what it has stored is durable");
    });
}

/// A byte of the journal has rotted: an open says where, or it is as if the last transactions had not come.
#[test]
fn any_byte() {
    let world = roomy_world();
    let queues = || Arc::new(DiskQueues::new(world.log(), QUEUES));
    let blocks = roomy(queues());
    // Each depends on the one before.
    for round in 1..=8u8 {
        commit(&blocks, &[writes(&blocks, &[(0, round), (round.into(), round)])]);
    }
    drop(blocks);
    let image = world.latest();
    let (mut refused, mut fewer, mut all) = (0, 0, 0);
    for block in 0..ROOMY.count.min(2 + 3000 + 20) {
        // Both areas from their begin.
        if (20..3002).contains(&block) {
            continue;
        }
        for byte in [0, 9, 30, 49, 70, 200, 4090] {
            let rotten = World::from_image(&image, world.config().clone());
            let at = (ROOMY.start.0 + block) * BLOCK as u64 + byte;
            let mut bytes = [0];
            rotten.log().read(at, &mut bytes).unwrap();
            rotten.log().write(Site("test.rot"), at, &[bytes[0] ^ 0x10]).unwrap();
            rotten.log().fence(Site("test.rot")).unwrap();
            let queues = Arc::new(DiskQueues::new(rotten.log(), QUEUES));
            let options = Options { in_turn: true, ..Options::default() };
            match MultiQueue::open(queues, (BLOCKS, ROOMY), VOLUME, options) {
                Ok(blocks) => {
                    let newest = get(&blocks, None, 0);
                    assert!(newest > 0, "block {block}, byte {byte}: all is lost, and nothing says so");
                    let own = |round: u8| get(&blocks, None, round.into());
                    assert!((1..=8).all(|round| own(round) == if round <= newest { round } else { 0 }));
                    if newest == 8 { all += 1 } else { fewer += 1 }
                }
                Err(Error::Corrupt { place, fault }) => {
                    assert!(place.contains("journal") || place.contains("block"), "{place}: {fault}");
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    println!("{refused} are refused, {fewer} have fewer transactions, {all} have all");
    assert!(refused > 20 && all > 20 && fewer > 0);
}

/// Rooms of several transactions that one call orders, in areas of several queues.
#[test]
fn one_order_of_many_queues() {
    let world = roomy_world();
    let blocks = roomy(Arc::new(DiskQueues::new(world.log(), QUEUES)));
    let txs: Vec<Txid> = (0..6).map(|i| writes(&blocks, &[(2 * i, 7), (2 * i + 1, 7)])).collect();
    commit(&blocks, &txs);
    let next = World::from_image(&world.latest(), world.config().clone());
    let queues = Arc::new(DiskQueues::new(next.log(), QUEUES));
    let blocks = MultiQueue::open(queues, (BLOCKS, ROOMY), VOLUME, Options::default()).expect("a journal");
    assert!((0..12).all(|at| get(&blocks, None, at) == 7));
}

fn roomy_journal() -> (Arc<World>, MultiQueue) {
    let world = roomy_world();
    let queues = DiskQueues::new(world.log(), QUEUES);
    let blocks = roomy(Arc::new(queues));
    (world, blocks)
}

/// Entries of runs beside pages that were admitted, at the border of a description: each has its place.
#[test]
fn each_entry_has_a_place() {
    let wide = World::new(SimConfig { log_len: 2600 * BLOCK as u64, log: Medium::BLOCKS, ..SimConfig::disk() });
    let (queues, log) = (|| DiskQueues::new(wide.log(), 1), Run { start: Lba(1000), count: 1500 });
    MultiQueue::format(&queues(), log, VOLUME, &Options::default()).expect("a journal");
    let blocks = MultiQueue::open(Arc::new(queues()), (1000, log), VOLUME, Options::default()).expect("a journal");
    for pages in 155..165 {
        let tx = blocks.begin().expect("a transaction");
        let put =
            |at| blocks.write(Site("test"), tx, Lba(at), page(1), Placement::Overwrite, Tag::Data).expect("a write");
        (0..pages).for_each(|at| put(2 * at));
        blocks.discard(Site("test"), tx, Run { start: Lba(500), count: 9 }).expect("a discard");
        blocks.admit(tx, 3).expect("room");
        blocks.discard(Site("test"), tx, Run { start: Lba(600), count: 9 }).expect("a discard");
        [900, 503, 605].into_iter().for_each(put);
        commit(&blocks, &[tx]);
    }
}

/// Content in more places than descriptions have room for, over blocks that have older images in the journal. After the
/// owner has died it is there, and no older image comes home.
#[test]
fn content_in_very_many_places() {
    let config = SimConfig { log_len: 2200 * BLOCK as u64, log: Medium::BLOCKS, ..SimConfig::disk() };
    let (wide, log) = (World::new(config.clone()), Run { start: Lba(2100), count: 66 });
    let options = Options { held_fresh: 0, ..Options::default() };
    MultiQueue::format(&DiskQueues::new(wide.log(), 1), log, VOLUME, &options).expect("a journal");
    let open = |world: &Arc<World>| {
        let queues = Arc::new(DiskQueues::new(world.log(), 1));
        MultiQueue::open(queues, (2100, log), VOLUME, options.clone()).expect("a journal")
    };
    let blocks = open(&wide);
    let put =
        |tx, at, value, how| blocks.write(Site("test"), tx, Lba(at), page(value), how, Tag::Data).expect("a write");
    let tx = blocks.begin().expect("a transaction");
    (0..20).for_each(|i| put(tx, 2 * i, 1, Placement::Overwrite));
    commit(&blocks, &[tx]);
    let tx = blocks.begin().expect("a transaction");
    blocks.discard(Site("test"), tx, Run { start: Lba(0), count: 40 }).expect("a discard");
    commit(&blocks, &[tx]);
    let tx = blocks.begin().expect("a transaction");
    (0..1000).for_each(|i| put(tx, 2 * i, 2, Placement::Fresh));
    put(tx, 2001, 2, Placement::Overwrite);
    commit(&blocks, &[tx]);
    let next = World::from_image(&wide.latest(), config);
    let blocks = open(&next);
    let mut bytes = [0; BLOCK];
    for at in (0..1000).map(|i| 2 * i).chain([2001]) {
        blocks.read(None, Lba(at), &mut bytes).expect("a read");
        assert!(bytes == *page(2), "block {at}");
    }
}

/// What has written nothing is as durable as all that it comes after.
#[test]
fn nothing_comes_after_others() {
    let (world, blocks) = roomy_journal();
    let order = |txs: &[Txid], after: &[Sequence]| blocks.order(Site("test"), txs, after).expect("an order");
    let after = [(0, 1), (1, 2), (2, 3)].map(|written| order(&[writes(&blocks, &[written])], &[]));
    let nothing = order(&[blocks.begin().expect("a transaction")], &after[..2]);
    // And what comes after that.
    let last = order(&[writes(&blocks, &[(9, 9)])], &[nothing]);
    blocks.wait(Site("test"), nothing).expect("a commit");
    assert!(blocks.durable() >= after[1]);
    blocks.wait(Site("test"), last).expect("a commit");
    drop(blocks);
    let next = World::from_image(&world.latest(), world.config().clone());
    let queues = Arc::new(DiskQueues::new(next.log(), QUEUES));
    let blocks = MultiQueue::open(queues, (BLOCKS, ROOMY), VOLUME, Options::default()).expect("a journal");
    assert_eq!([0, 1, 9].map(|at| get(&blocks, None, at)), [1, 2, 9]);
}

/// Blocks that were lent for nothing are free again.
#[test]
fn lent_for_nothing() {
    let (_, blocks) = roomy_journal();
    let run = Run { start: Lba(20), count: 4 };
    for end in 0..2 {
        let tx = blocks.begin().expect("a transaction");
        blocks.lend(tx, run).expect("free blocks");
        assert!(matches!(blocks.lend(blocks.begin().expect("another"), run), Err(Error::Busy(..))));
        match end {
            0 => blocks.abort(Site("test"), tx).expect("an abort"),
            _ => commit(&blocks, &[tx]),
        }
        commit(&blocks, &[writes(&blocks, &[(21, end)])]);
        assert_eq!(get(&blocks, None, 21), end);
    }
}

/// A disk tells of nothing unfinished, and a journal that is being closed takes no more.
#[test]
fn what_cannot_be_is_refused() {
    let (world, blocks) = roomy_journal();
    let queues = DiskQueues::new(world.log(), QUEUES);
    let options = Options { proof: Proof::Window, ..Options::default() };
    assert!(matches!(MultiQueue::format(&queues, ROOMY, VOLUME, &options), Err(Error::Unsupported(_))));
    let tx = writes(&blocks, &[(0, 1)]);
    blocks.close().expect("a close");
    assert!(matches!(blocks.order(Site("test"), &[tx], &[]), Err(Error::Poisoned(_))));
}
