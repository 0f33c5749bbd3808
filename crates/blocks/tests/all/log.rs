//! The log over regions: disks whose sectors are a block, or less, and persistent memory.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_blocks::batch::Batch;
use wholly_blocks::log::{LogDevice, RingSeed, SITES, recover};
use wholly_blocks::{BLOCK, Lba, Placement, Run, Tag, TxBlocks, TxDevice};
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Image, Medium, Mutation, MutationKind, Random, SimConfig, World};

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
fn open(world: &Arc<World>, most: Option<u64>) -> LogDevice {
    let (log, at) = (world.log(), Lba(BLOCKS).byte());
    let mut bytes = [0; 512];
    log.read(at, &mut bytes).unwrap();
    let incarnation = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    recover(&*log, AREA, RingSeed::new(incarnation)).expect("a log that a crash has left");
    let next = incarnation + 1;
    bytes[..8].copy_from_slice(&next.to_le_bytes());
    let len = log.guarantees().block.max(8) as usize;
    let mut sector = vec![0; len];
    let some = len.min(512);
    sector[..some].copy_from_slice(&bytes[..some]);
    log.write_through(RAISE, at, &sector).unwrap();
    LogDevice::new(log, BLOCKS, AREA, (RingSeed::new(next), next), most)
}

fn life(world: Arc<World>, most: Option<u64>) -> Box<dyn Opened> {
    let blocks = Arc::new(Batch::new(Arc::new(open(&world, most)), ROOM));
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

/// Images of each point from a time on: all if they are few, else one unit each, and samples.
fn images(world: &World, from: u64) -> Vec<Image> {
    let (trace, mut seen, mut images) = (world.trace(), BTreeSet::new(), Vec::new());
    let limits =
        ExploreLimits { exhaustive_bits: 5, single_units: 64, pair_units: 0, samples: 8, ..ExploreLimits::default() };
    for point in from..=world.now() {
        trace.point(point).for_each_image(&limits, |_, image| {
            if seen.insert(image.hash()) {
                images.push(image.clone());
            }
            ControlFlow::Continue(())
        });
    }
    images
}

impl Opened for Life {
    fn blocks(&self) -> Arc<dyn TxBlocks> {
        self.blocks.clone()
    }

    fn during(&self, work: &mut dyn FnMut(&dyn TxBlocks)) -> Vec<Box<dyn Opened>> {
        let begun = self.world.now();
        work(&*self.blocks);
        let next = |image: &Image| life(World::from_image(image, self.world.config().clone()), self.most);
        images(&self.world, begun).iter().map(next).collect()
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

/// Transactions that go round the ring several times, with fresh blocks and discards among them: a crash at any moment
/// leaves one of the states that were committed, and not one from before the last that had returned.
#[test]
fn a_crash_anywhere_round_the_ring() {
    let world = World::new(config(Medium::BLOCKS, Vec::new()));
    let blocks = Batch::new(Arc::new(open(&world, None)), ROOM);
    let mut random = Random(7);
    let content = |blocks: &dyn TxBlocks| (0..24).map(|at| get(blocks, None, at)).collect::<Vec<u8>>();
    // Each state, and when the transaction that made it had begun to commit and had returned.
    let mut states = vec![(content(&blocks), 0, world.now())];
    for turn in 1..=60u8 {
        let tx = blocks.begin().unwrap();
        for _ in 0..1 + random.below(4) {
            put(&blocks, tx, random.below(24), turn);
        }
        // Blocks that nobody else reads, some of them straight home.
        let fresh = [0, 2, 20][random.below(3) as usize];
        for at in 24..24 + fresh {
            blocks.write(S, tx, Lba(at), page(turn), Placement::Fresh, Tag::Data).unwrap();
        }
        let begun = world.now();
        commit(&blocks, &[tx]);
        assert!((24..24 + fresh).all(|at| get(&blocks, None, at) == turn));
        states.push((content(&blocks), begun, world.now()));
        let tx = blocks.begin().unwrap();
        blocks.discard(S, tx, Run { start: Lba(24), count: 24 }).unwrap();
        commit(&blocks, &[tx]);
    }
    let counts = wholly_sim::Coverage::of(&world.trace());
    for site in SITES.iter().filter(|site| !site.0.starts_with("log.recover")) {
        assert!(counts.sites.contains_key(site), "{site:?} is not reached");
    }
    let (trace, mut tried) = (world.trace(), 0);
    for point in states[0].2..=world.now() {
        let from = states.iter().rposition(|(_, _, returned)| *returned <= point).unwrap();
        let may = states[from..].iter().take_while(|(_, begun, _)| *begun <= point);
        let may: Vec<&Vec<u8>> = may.map(|(state, ..)| state).collect();
        let limits = ExploreLimits { exhaustive_bits: 3, samples: 4, pair_units: 0, ..ExploreLimits::default() };
        trace.point(point).for_each_image(&limits, |choice, image| {
            let next = World::from_image(image, world.config().clone());
            let blocks = Batch::new(Arc::new(open(&next, None)), ROOM);
            assert!(may.contains(&&content(&blocks)), "{choice}");
            // Recovery is interrupted, and made again.
            if tried % 16 == 0 {
                for image in images(&next, 0) {
                    let again = World::from_image(&image, world.config().clone());
                    assert!(
                        may.contains(&&content(&Batch::new(Arc::new(open(&again, None)), ROOM))),
                        "{choice}, again"
                    );
                }
            }
            tried += 1;
            ControlFlow::Continue(())
        });
    }
    println!("{tried} states");
    assert!(tried > 500);
}

/// A transaction of n blocks is one record of a head and n images, by one synchronous write; what it has stored costs
/// one fence more; each block goes home at most once.
#[test]
fn bytes_and_fences_are_as_counted() {
    for n in [1, 2, 3, 7, 30] {
        let world = World::new(config(Medium::BLOCKS, Vec::new()));
        let device = Arc::new(open(&world, None));
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
