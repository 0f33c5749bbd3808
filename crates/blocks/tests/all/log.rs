//! The log over regions: disks whose sectors are a block, or less, and persistent memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use rustix::io::Errno;
use wholly_blocks::batch::Batch;
use wholly_blocks::log::{LogDevice, LogFault, LogOptions, RingSeed, SITES, left, recover};
use wholly_blocks::{BLOCK, Lba, Placement, Run, Tag, TxBlocks, TxDevice};
use wholly_error::{Error, Result};
use wholly_media::{Guarantees, Region, Site};
use wholly_sim::{EventKind, ExploreLimits, Image, Medium, Mutation, MutationKind, Random, SimConfig, World};

use crate::images::images;
use crate::suite::{BLOCKS, FAILS, Opened, ROOM, S, Subject, commit, get, holds, page, put, writes};

/// The block behind all others has the incarnation; behind it is the log.
const AREA: Run = Run { start: Lba(BLOCKS + 1), count: 64 };
const RAISE: Site = Site("test.raise");

/// The log on a medium.
pub struct Logged(pub Medium);

struct Life {
    world: Arc<World>,
    blocks: Arc<dyn TxBlocks>,
    most: Option<u64>,
}

/// Recovers the log, raises the incarnation, and opens it.
fn open(world: &Arc<World>, options: &LogOptions) -> LogDevice {
    try_open(world, options).expect("a log that a crash has left")
}

fn try_open(world: &Arc<World>, options: &LogOptions) -> Result<LogDevice> {
    let (log, at) = (world.log(), Lba(BLOCKS).byte());
    let mut bytes = [0; 512];
    log.read(at, &mut bytes).unwrap();
    let incarnation = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let (left, seed) = (left(&*log, AREA, RingSeed::new(incarnation))?, RingSeed::new(incarnation));
    recover(&*log, AREA, seed)?;
    // What was left is at home.
    for (home, at) in left.images {
        let (mut one, mut other) = ([0; BLOCK], [0; BLOCK]);
        log.read(home.byte(), &mut one)?;
        log.read(at.byte(), &mut other)?;
        assert!(one == other, "block {}", home.0);
    }
    let next = incarnation + 1;
    bytes[..8].copy_from_slice(&next.to_le_bytes());
    let len = log.guarantees().block.max(8) as usize;
    let mut sector = vec![0; len];
    let some = len.min(512);
    sector[..some].copy_from_slice(&bytes[..some]);
    log.write_through(RAISE, at, &sector).unwrap();
    Ok(LogDevice::new(log, BLOCKS, AREA, (RingSeed::new(next), next), options.clone()))
}

fn life(world: Arc<World>, most: Option<u64>) -> Box<dyn Opened> {
    let options = LogOptions { overwrites: most, ..LogOptions::default() };
    let blocks = Arc::new(Batch::new(Arc::new(open(&world, &options)), ROOM));
    Box::new(Life { world, blocks, most })
}

fn config(medium: Medium, mutations: Vec<Mutation>) -> SimConfig {
    let log_len = (AREA.start.0 + AREA.count) * BLOCK as u64;
    SimConfig { log_len, log: medium, mutations, ..SimConfig::disk() }
}

impl Subject for Logged {
    fn make(&self, most_overwrites: Option<u64>) -> Box<dyn Opened> {
        let mutations = vec![Mutation::new(FAILS, MutationKind::Fail(Errno::IO))];
        life(World::new(config(self.0, mutations)), most_overwrites)
    }
}

impl Opened for Life {
    fn blocks(&self) -> Arc<dyn TxBlocks> {
        self.blocks.clone()
    }

    fn during(&self, work: &mut dyn FnMut(&dyn TxBlocks)) -> Vec<Box<dyn Opened>> {
        let begun = self.world.now();
        work(&*self.blocks);
        let next = |image: &Image| life(World::from_image(image, self.world.config().clone()), self.most);
        images(&self.world, begun, 5).iter().map(next).collect()
    }

    fn rotten(&self, _: u64) -> Box<dyn Opened> {
        unreachable!("blocks at home have no checksums")
    }
}

#[test]
fn on_a_disk() {
    holds(&Logged(Medium::BLOCKS));
}

#[test]
fn on_a_disk_of_sectors() {
    holds(&Logged(Medium::DISK));
}

#[test]
fn on_persistent_memory() {
    holds(&Logged(Medium::PMEM));
}

/// Transactions that go round the ring several times, with fresh blocks, discards and lent blocks among them: a crash
/// at any moment leaves one of the states that were committed, and not one from before the last that had returned.
/// Returns how many moments were tried, and what was wrong with one.
fn round_the_ring(options: &LogOptions, turns: u8) -> (u64, Option<String>) {
    let world = World::new(config(Medium::BLOCKS, Vec::new()));
    let blocks = Batch::new(Arc::new(open(&world, options)), ROOM);
    let mut random = Random(7);
    let content = |blocks: &dyn TxBlocks| {
        let one = |at: u64| {
            let mut bytes = [0; BLOCK];
            if blocks.read(None, Lba(at), &mut bytes).is_err() {
                return Some(0xff);
            }
            // What is torn is not what anybody has written.
            Some(bytes[0]).filter(|byte| bytes.iter().all(|other| other == byte))
        };
        (0..30).map(one).collect::<Vec<_>>()
    };
    // Each state, and when the transaction that made it had begun to commit and had returned. `None`: anything.
    let mut states: Vec<(Vec<Option<u8>>, u64, u64)> = vec![(content(&blocks), 0, world.now())];
    for turn in 1..=turns {
        let tx = blocks.begin().unwrap();
        let lent = [0, 0, 14][random.below(3) as usize];
        if lent > 0 && options.overwrites.is_some() {
            blocks.lend(tx, Run { start: Lba(30), count: lent }).unwrap();
            (0..12).for_each(|at| put(&blocks, tx, at, turn));
            // One that was spilled is written again.
            put(&blocks, tx, 0, turn);
        }
        for _ in 0..1 + random.below(4) {
            put(&blocks, tx, random.below(24), turn);
        }
        // Blocks that nobody else reads, some of them straight home.
        let fresh = [0, 2, if lent > 0 { 6 } else { 20 }][random.below(3) as usize];
        for at in 24..24 + fresh {
            states.last_mut().unwrap().0.iter_mut().skip(at as usize).take(1).for_each(|block| *block = None);
            blocks.write(S, tx, Lba(at), page(turn), Placement::Fresh, Tag::Data).unwrap();
        }
        let begun = world.now();
        commit(&blocks, &[tx]);
        assert!((24..24 + fresh).all(|at| get(&blocks, None, at) == turn));
        states.push((content(&blocks), begun, world.now()));
        // Blocks that were lent are another's now.
        let tx = blocks.begin().unwrap();
        blocks.discard(S, tx, Run { start: Lba(24), count: 24 }).unwrap();
        let begun = world.now();
        commit(&blocks, &[tx]);
        let free = content(&blocks)[..24].iter().copied().chain([None; 6]).collect();
        states.push((free, begun, world.now()));
        let tx = blocks.begin().unwrap();
        for at in 24..48 {
            blocks.write(S, tx, Lba(at), page(0xee), Placement::Fresh, Tag::Data).unwrap();
        }
        let begun = world.now();
        commit(&blocks, &[tx]);
        states.push((content(&blocks), begun, world.now()));
    }
    let counts = wholly_sim::Coverage::of(&world.trace());
    let is_reached = |site: &Site| {
        let only = ["log.recover", "log.own"].iter().any(|other| site.0.starts_with(other));
        only || site.0.starts_with("log.spill") && options.overwrites.is_none() || counts.sites.contains_key(site)
    };
    SITES.iter().for_each(|site| assert!(is_reached(site), "{site:?} is not reached"));
    let (trace, mut tried, mut wrong) = (world.trace(), 0, None);
    for point in states[0].2..=world.now() {
        let from = states.iter().rposition(|(_, _, returned)| *returned <= point).unwrap();
        let may = states[from..].iter().take_while(|(_, begun, _)| *begun <= point);
        let may: Vec<&Vec<Option<u8>>> = may.map(|(state, ..)| state).collect();
        let limits = ExploreLimits { exhaustive_bits: 3, samples: 4, pair_units: 0, ..ExploreLimits::default() };
        trace.point(point).for_each_image(&limits, |choice, image| {
            let mut check = |image: &Image, again: &str| {
                let next = World::from_image(image, world.config().clone());
                let found = try_open(&next, &LogOptions::default());
                let found = found.map(|device| content(&Batch::new(Arc::new(device), ROOM)));
                let is = |found: &Vec<Option<u8>>, may: &Vec<Option<u8>>| {
                    found.iter().zip(may).all(|(found, may)| may.is_none() || found == may)
                };
                if !matches!(&found, Ok(found) if may.iter().any(|may| is(found, may))) {
                    wrong.get_or_insert_with(|| format!("{choice}{again}: {found:?}"));
                }
                next
            };
            let next = check(image, "");
            // Recovery is interrupted, and made again.
            if tried % 16 == 0 {
                images(&next, 0, 5).iter().for_each(|image| _ = check(image, ", again"));
            }
            tried += 1;
            if wrong.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if wrong.is_some() {
            break;
        }
    }
    println!("{tried} states, {wrong:?}");
    (tried, wrong)
}

/// So few pages are held that transactions spill to lent blocks.
fn short() -> LogOptions {
    LogOptions { overwrites: Some(6), ..LogOptions::default() }
}

#[test]
fn a_crash_anywhere_round_the_ring() {
    for options in [LogOptions::default(), short()] {
        let (tried, wrong) = round_the_ring(&options, 40);
        assert!(tried > 500 && wrong.is_none(), "{tried}, {wrong:?}");
    }
}

#[test]
fn mistakes_of_the_log_are_seen() {
    for fault in [LogFault::HomeBeforeLog, LogFault::NoVoid] {
        let (_, wrong) = round_the_ring(&LogOptions { fault: Some(fault), ..short() }, 40);
        assert!(wrong.is_some(), "{fault:?} is not seen");
    }
    assert_eq!(lent_and_reused(&short()), 0);
    assert!(lent_and_reused(&LogOptions { fault: Some(LogFault::LentTooEarly), ..short() }) > 0);
}

/// A transaction spills, and its lent blocks get another owner. Returns how many crashes lose it.
fn lent_and_reused(options: &LogOptions) -> usize {
    let world = World::new(config(Medium::BLOCKS, Vec::new()));
    let blocks = Batch::new(Arc::new(open(&world, options)), ROOM);
    let tx = blocks.begin().unwrap();
    blocks.lend(tx, Run { start: Lba(24), count: 20 }).unwrap();
    (0..20).for_each(|at| put(&blocks, tx, at, 1));
    commit(&blocks, &[tx]);
    let committed = world.now();
    let tx = blocks.begin().unwrap();
    (24..44).for_each(|at| blocks.write(S, tx, Lba(at), page(2), Placement::Fresh, Tag::Data).unwrap());
    commit(&blocks, &[tx]);
    let is_lost = |image: &Image| {
        let next = World::from_image(image, world.config().clone());
        let Ok(device) = try_open(&next, &LogOptions::default()) else { return true };
        let blocks = Batch::new(Arc::new(device), ROOM);
        (0..20).any(|at| get(&blocks, None, at) != 1)
    };
    images(&world, committed, 5).iter().filter(|image| is_lost(image)).count()
}

/// A transaction of n blocks is one record of a head and n images, by one synchronous write; what it has stored costs
/// one fence more; each block goes home at most once.
#[test]
fn bytes_and_fences_are_as_counted() {
    for n in [1, 2, 3, 7, 30] {
        let world = World::new(config(Medium::BLOCKS, Vec::new()));
        let device = Arc::new(open(&world, &LogOptions::default()));
        let blocks = Batch::new(device.clone(), ROOM);
        let before = world.now();
        let tx = writes(&blocks, &(0..n).map(|at| (at, 1)).collect::<Vec<_>>());
        commit(&blocks, &[tx]);
        let trace = world.trace();
        let written: Vec<_> = trace.events[before as usize..].iter().filter(|event| event.site == Some(S)).collect();
        let [wholly_sim::EventKind::Through { data, .. }, wholly_sim::EventKind::Done { .. }] =
            [&written[0].kind, &written[1].kind]
        else {
            panic!("{written:?}")
        };
        assert_eq!((data.len() as u64, written.len(), world.now() - before), ((1 + n) * BLOCK as u64, 2, 2), "{n}");
        assert_eq!(device.counters().commits, 1);
    }
}

/// A region that does something before each synchronous write at a site.
struct Before<F>(Arc<dyn Region>, Site, F);

impl<F: Fn() + Send + Sync> Region for Before<F> {
    fn guarantees(&self) -> &Guarantees {
        self.0.guarantees()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        self.0.read(at, buf)
    }

    fn write(&self, site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
        if site == self.1 {
            self.2();
        }
        self.0.write(site, at, data)
    }

    fn fence(&self, site: Site) -> wholly_media::Result<()> {
        self.0.fence(site)
    }

    fn write_through(&self, site: Site, at: u64, data: &[u8]) -> wholly_media::Result<()> {
        if site == self.1 {
            self.2();
        }
        self.0.write_through(site, at, data)
    }

    fn set_len(&self, site: Site, len: u64) -> wholly_media::Result<()> {
        self.0.set_len(site, len)
    }
}

/// A layer over a log, which does something before a store at a site.
fn before(site: Site, work: impl Fn(&Batch) + Send + Sync + 'static) -> (Arc<World>, Arc<LogDevice>, Arc<Batch>) {
    let world = World::new(config(Medium::BLOCKS, Vec::new()));
    let layer: Arc<OnceLock<Weak<Batch>>> = Arc::default();
    let known = layer.clone();
    let region = Before(world.log(), site, move || {
        if let Some(batch) = known.get().and_then(Weak::upgrade) {
            work(&batch);
        }
    });
    let device = LogDevice::new(Arc::new(region), BLOCKS, AREA, (RingSeed::new(1), 1), LogOptions::default());
    let device = Arc::new(device);
    let batch = Arc::new(Batch::new(device.clone(), ROOM));
    assert!(layer.set(Arc::downgrade(&batch)).is_ok());
    (world, device, batch)
}

/// While the record is being written, everybody reads what is ordered: pages that are held, and those that the device
/// has, which nobody else has any more.
#[test]
fn what_is_ordered_is_read_while_it_is_committed() {
    let (_, device, blocks) = before(S, |blocks| {
        assert_eq!((get(blocks, None, 0), get(blocks, None, 1), get(blocks, None, 30)), (5, 6, 7));
        let mut bytes = [0; 2 * BLOCK];
        blocks.read_run(None, Lba(0), &mut bytes).unwrap();
        assert_eq!((bytes[0], bytes[BLOCK]), (5, 6));
    });
    let tx = blocks.begin().unwrap();
    put(&*blocks, tx, 0, 5);
    blocks.write(S, tx, Lba(30), page(7), Placement::Fresh, Tag::Data).unwrap();
    blocks.admit(tx, 1).unwrap();
    put(&*blocks, tx, 1, 6);
    commit(&*blocks, &[tx]);
    assert_eq!((device.counters().commits, device.dirty()), (1, 3));
}

/// While a block goes home, a commit puts its next version beside it without waiting, and everybody reads that.
#[test]
fn a_commit_passes_a_write_home() {
    let turn = AtomicU8::new(0);
    let (world, device, blocks) = before(Site("log.home"), move |blocks| {
        if turn.fetch_add(1, Ordering::Relaxed) == 0 {
            commit(blocks, &[writes(blocks, &[(0, 2), (3, 3)])]);
        }
    });
    commit(&*blocks, &[writes(&*blocks, &[(0, 1)])]);
    let home = |at: u64| {
        let mut byte = [0];
        world.log().read(Lba(at).byte(), &mut byte).unwrap();
        byte[0]
    };
    device.write_back().unwrap();
    assert_eq!((home(0), get(&*blocks, None, 0), home(3), get(&*blocks, None, 3), device.dirty()), (1, 2, 0, 3, 2));
    device.write_back().unwrap();
    assert_eq!((home(0), home(3), device.dirty(), device.used()), (2, 3, 0, 0));
}

/// A block that one transaction was lent, and that another's page was spilled to: when its owner writes it, the page
/// goes elsewhere.
#[test]
fn what_is_spilled_to_anothers_block_goes_elsewhere() {
    let world = World::new(config(Medium::BLOCKS, Vec::new()));
    let device = open(&world, &LogOptions { overwrites: Some(2), ..LogOptions::default() });
    let write = |tx, at: u64, fill, how| device.write(S, tx, Lba(at), &page(fill), how, Tag::Data);
    let (one, other) = (device.begin().unwrap(), device.begin().unwrap());
    // Lent to the one, which ends.
    device.trim(S, Run { start: Lba(30), count: 4 }).unwrap();
    device.abort(S, one).unwrap();
    device.trim(S, Run { start: Lba(40), count: 4 }).unwrap();
    (0..6).for_each(|at| write(other, at, 1, Placement::Overwrite).unwrap());
    let owner = device.begin().unwrap();
    (30..34).for_each(|at| write(owner, at, 9, Placement::Fresh).unwrap());
    let read = |tx, at: u64| {
        let mut bytes = [0; BLOCK];
        device.read(tx, Lba(at), &mut bytes).unwrap();
        bytes[0]
    };
    assert!((0..6).all(|at| read(Some(other), at) == 1) && (30..34).all(|at| read(Some(owner), at) == 9));
    // All free blocks are used.
    assert!(matches!(write(other, 6, 1, Placement::Overwrite), Err(Error::NoSpace(_))));
    device.commit(S, &[owner]).unwrap();
    device.commit(S, &[other]).unwrap();
    assert!((0..6).all(|at| read(None, at) == 1) && (30..34).all(|at| read(None, at) == 9) && read(None, 6) == 0);
}

/// A transaction that spills: each page once to a lent block and once home, and a record with nothing but the head.
#[test]
fn bytes_of_a_large_transaction_are_as_counted() {
    let world = World::new(config(Medium::BLOCKS, Vec::new()));
    let blocks = Batch::new(Arc::new(open(&world, &short())), ROOM);
    let tx = blocks.begin().unwrap();
    blocks.lend(tx, Run { start: Lba(24), count: 20 }).unwrap();
    let before = world.now();
    (0..20).for_each(|at| put(&blocks, tx, at, 1));
    commit(&blocks, &[tx]);
    let (mut bytes, mut through, mut fences) = (BTreeMap::new(), 0, 0);
    for event in &world.trace().events[before as usize..] {
        let site = event.site.map_or("", |site| site.0);
        match &event.kind {
            EventKind::Store { data, .. } => *bytes.entry(site).or_insert(0) += data.len() / BLOCK,
            EventKind::Through { data, .. } => {
                *bytes.entry(site).or_insert(0) += data.len() / BLOCK;
                through += 1;
            }
            EventKind::Fence { .. } => fences += 1,
            _ => {}
        }
    }
    let wanted = [("log.home", 20), ("log.spill", 20), ("log.tail", 1), (S.0, 1)];
    assert_eq!((bytes, through, fences), (BTreeMap::from(wanted), 2, 2));
}

/// While a record is being written, all others queue: 16 committers need two records for each round of theirs.
#[test]
fn committers_share_synchronous_writes() {
    const COMMITTERS: u64 = 16;
    const ROUNDS: u64 = 8;
    let (ordered, left) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(COMMITTERS)));
    let (all, more) = (ordered.clone(), left.clone());
    let (_, device, blocks) = before(S, move |blocks| {
        // Until every thread that has more to commit has ordered it.
        while all.load(Ordering::SeqCst) - blocks.durable().0 < more.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    });
    std::thread::scope(|scope| {
        for at in 0..COMMITTERS {
            let (blocks, ordered, left) = (&blocks, &ordered, &left);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let tx = writes(&**blocks, &[(at, round as u8)]);
                    let sequence = blocks.order(S, &[tx], &[]).unwrap();
                    ordered.fetch_add(1, Ordering::SeqCst);
                    blocks.wait(S, sequence).unwrap();
                }
                left.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let (commits, all) = (device.counters().commits, COMMITTERS * ROUNDS);
    println!("{commits} records for {all} transactions");
    assert!(commits * 100 <= all * 15, "{commits}");
}

/// A transaction of many pages, with little memory: what it holds stays below a part of that, with blocks that were
/// lent and with fresh ones.
#[test]
fn memory_does_not_bound_a_transaction() {
    let world = World::new(config(Medium::BLOCKS, Vec::new()));
    let device = Arc::new(open(&world, &LogOptions { memory: 32, ..LogOptions::default() }));
    let blocks = Batch::new(device.clone(), ROOM);
    let tx = blocks.begin().unwrap();
    blocks.lend(tx, Run { start: Lba(24), count: 24 }).unwrap();
    for at in 0..24 {
        put(&blocks, tx, at, 1);
        assert!(device.held() <= 8, "{}", device.held());
    }
    commit(&blocks, &[tx]);
    let tx = blocks.begin().unwrap();
    for at in 24..48 {
        blocks.write(S, tx, Lba(at), page(2), Placement::Fresh, Tag::Data).unwrap();
        assert!(device.held() <= 8, "{}", device.held());
    }
    commit(&blocks, &[tx]);
    assert!((0..24).all(|at| get(&blocks, None, at) == 1) && (24..48).all(|at| get(&blocks, None, at) == 2));
    assert_eq!((device.held(), device.dirty()), (0, 0));
}

/// T9, where a log can keep it: a page that was spilled and rots is refused, by its number; others can be read.
#[test]
fn a_spilled_page_that_rots_is_refused() {
    let world = World::new(config(Medium::BLOCKS, Vec::new()));
    let blocks = Batch::new(Arc::new(open(&world, &short())), ROOM);
    let tx = blocks.begin().unwrap();
    blocks.lend(tx, Run { start: Lba(24), count: 20 }).unwrap();
    (0..7).for_each(|at| put(&blocks, tx, at, 1));
    // Seven pages do not fit: all were spilled.
    world.log().write(S, Lba(26).byte() + 77, &[9]).unwrap();
    match blocks.read(Some(tx), Lba(2), &mut [0; BLOCK]) {
        Err(Error::Corrupt { place, .. }) => assert_eq!(place, "block 2"),
        read => panic!("{read:?}"),
    }
    assert_eq!((get(&blocks, Some(tx), 1), get(&blocks, Some(tx), 3)), (1, 1));
    // It is written again.
    put(&blocks, tx, 2, 2);
    commit(&blocks, &[tx]);
    assert_eq!((get(&blocks, None, 1), get(&blocks, None, 2)), (1, 2));
}
