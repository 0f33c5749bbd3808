//! The contract of transactions, rule by rule, over the multi-queue journal on a controller's queues. (On disks:
//! `crates/blocks/tests/all/multi_queue.rs`.)

use std::sync::Arc;

use wholly_blocks::multi_queue::{Life as QueueLife, MultiQueue, Options, QueueGuarantees, Queues, Unfinished, Write};
use wholly_blocks::{Lba, Page, Run, TxBlocks, Txid};
use wholly_error::{Error, Result};
use wholly_media::Site;
use wholly_nvme::model::{Config, Model};
use wholly_nvme::{Controller, DeviceQueues, Options as DriverOptions};
use wholly_sim::{DeviceRules, Image, SimConfig, World};

#[path = "../../../blocks/tests/all/images.rs"]
mod images;
#[path = "../../../blocks/tests/all/suite.rs"]
mod suite;

use images::images;
use suite::{BLOCKS, FAILS, Opened, ROOM, Subject, holds};

const QUEUES: u16 = 2;
const LOG: Run = Run { start: Lba(BLOCKS), count: 2 + 64 * QUEUES as u64 };
const VOLUME: [u8; 16] = *b"a volume of test";

/// Queues of which a commit or a wait at one site fails.
struct Failing(DeviceQueues);

fn check(site: Site) -> Result<()> {
    match site == FAILS {
        true => Err(Error::Poisoned("the device refuses".into())),
        false => Ok(()),
    }
}

impl Queues for Failing {
    fn guarantees(&self) -> &QueueGuarantees {
        self.0.guarantees()
    }
    fn unfinished(&self) -> Unfinished {
        self.0.unfinished()
    }
    fn start(&self, site: Site, life: QueueLife) -> Result<()> {
        self.0.start(site, life)
    }
    fn commit(&self, site: Site, queue: u16, tx: Txid, writes: Vec<Write>) -> Result<u64> {
        check(site)?;
        self.0.commit(site, queue, tx, writes)
    }
    fn wait(&self, site: Site, queue: u16, place: u64) -> Result<()> {
        check(site)?;
        self.0.wait(site, queue, place)
    }
    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        self.0.read_run(at, bytes)
    }
    fn write(&self, site: Site, at: Lba, pages: &[Page]) -> Result<()> {
        self.0.write(site, at, pages)
    }
    fn flush(&self, site: Site) -> Result<()> {
        self.0.flush(site)
    }
    fn close(&self, site: Site) -> Result<()> {
        self.0.close(site)
    }
}

/// A device, with a volatile write cache or without.
struct OnDevice {
    has_write_cache: bool,
}

struct Life {
    world: Arc<World>,
    blocks: Arc<dyn TxBlocks>,
    options: Options,
}

fn queues(world: &Arc<World>) -> Arc<dyn Queues> {
    let has_write_cache = world.config().device.is_some_and(|device| device.has_write_cache);
    let config = Config { lba_bytes: 4096, has_write_cache, queues: QUEUES + 1, interrupts: 0, ..Config::default() };
    let model = Model::new("device", world.device(), config).expect("a model");
    let options = DriverOptions { queues: QUEUES, depth: 64, ..DriverOptions::default() };
    let controller = Controller::open(model, options).expect("a controller");
    controller.abandon();
    Arc::new(Failing(DeviceQueues::new(controller).expect("queues")))
}

fn life(world: Arc<World>, options: &Options) -> Box<dyn Opened> {
    let blocks = MultiQueue::open(queues(&world), (BLOCKS, LOG), VOLUME, options.clone());
    let blocks = Arc::new(blocks.expect("a journal that a crash has left"));
    Box::new(Life { world, blocks, options: options.clone() })
}

impl Subject for OnDevice {
    fn make(&self, most_overwrites: Option<u64>) -> Box<dyn Opened> {
        let rules = DeviceRules { region_len: 32 << 10, in_order: false, has_write_cache: self.has_write_cache };
        let world = World::new(Arc::new(SimConfig::device(LOG.start.0 + LOG.count, rules)));
        let options = Options { most_overwrites, room: Some(ROOM), held_fresh: 4, in_turn: true, ..Options::default() };
        MultiQueue::format(&*queues(&world), LOG, VOLUME, &options).expect("a journal");
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
        images(&self.world, begun, 3).iter().map(next).collect()
    }

    fn rotten(&self, _: u64) -> Box<dyn Opened> {
        unreachable!("blocks at home have no checksums")
    }
}

#[test]
fn on_a_device_with_a_write_cache() {
    holds(&OnDevice { has_write_cache: true });
}

#[test]
fn on_a_device_without_one() {
    holds(&OnDevice { has_write_cache: false });
}
