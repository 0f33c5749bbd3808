//! The multi-queue journal over disks, as regions: the contract, and its own rules.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::io::Errno;
use wholly_blocks::multi_queue::{DiskQueues, MultiQueue, Options};
use wholly_blocks::{BLOCK, Lba, Run, TxBlocks};
use wholly_error::Result;
use wholly_sim::{ExploreLimits, Image, Medium, Mutation, MutationKind, SimConfig, World};

use crate::suite::{BLOCKS, FAILS, Opened, ROOM, Subject, holds};

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
    let queues = Arc::new(DiskQueues::new(world.log(), QUEUES)?);
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
        let queues = DiskQueues::new(world.log(), QUEUES).expect("a disk");
        MultiQueue::format(&queues, LOG, VOLUME, &options).expect("a journal");
        life(world, &options)
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
        let next = |image: &Image| life(World::from_image(image, self.world.config().clone()), &self.options);
        images(&self.world, begun).iter().map(next).collect()
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
fn persistent_memory_is_refused() {
    let world = World::new(SimConfig { log: Medium::PMEM, ..SimConfig::disk() });
    assert!(matches!(DiskQueues::new(world.log(), QUEUES), Err(wholly_error::Error::Unsupported(_))));
}
