//! The cases of T1 to T12, over the device on a region of the simulator, whose slots tear.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;
use wholly_blocks::batch::Batch;
use wholly_blocks::xftl::{OverRegion, Ppn, Read, SLOT, SPARE};
use wholly_blocks::{BLOCK, Counters, DeviceGuarantees, TxBlocks};
use wholly_sim::{ExploreLimits, Image, Medium, Place, SimConfig, World};

use super::*;
use crate::suite::{BLOCKS, FAILS, Opened, ROOM, Subject, holds};

/// A chip that refuses to wait once it was told so.
struct Refusing {
    flash: Arc<dyn Flash>,
    refuses: Arc<AtomicBool>,
}

impl Flash for Refusing {
    fn geometry(&self) -> Geometry {
        self.flash.geometry()
    }

    fn read(&self, at: Ppn) -> Result<Read<Page>> {
        self.flash.read(at)
    }

    fn look(&self, at: Ppn) -> Result<Read<()>> {
        self.flash.look(at)
    }

    fn program(&self, site: Site, at: Ppn, page: &Page, spare: &[u8; SPARE]) -> Result<()> {
        self.flash.program(site, at, page, spare)
    }

    fn erase(&self, site: Site, block: u32) -> Result<()> {
        self.flash.erase(site, block)
    }

    fn wait(&self, site: Site) -> Result<()> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(wholly_media::Error::new("wait", "flash", Errno::IO).into());
        }
        self.flash.wait(site)
    }

    fn description(&self) -> String {
        self.flash.description()
    }
}

/// A device of which a commit fails that is made at [`FAILS`].
struct Failing {
    device: Device,
    refuses: Arc<AtomicBool>,
}

impl TxDevice for Failing {
    fn guarantees(&self) -> &DeviceGuarantees {
        self.device.guarantees()
    }

    fn begin(&self) -> Result<Txid> {
        self.device.begin()
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: &Page, how: Placement, tag: Tag) -> Result<()> {
        self.device.write(site, tx, at, page, how, tag)
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.device.read(tx, at, bytes)
    }

    fn discard(&self, site: Site, tx: Txid, run: Run) -> Result<()> {
        self.device.discard(site, tx, run)
    }

    fn abort(&self, site: Site, tx: Txid) -> Result<()> {
        self.device.abort(site, tx)
    }

    fn commit(&self, site: Site, txs: &[Txid]) -> Result<()> {
        self.refuses.fetch_or(site == FAILS, Ordering::SeqCst);
        self.device.commit(site, txs)
    }

    fn plain_write(&self, site: Site, at: Lba, page: &Page) -> Result<()> {
        self.device.plain_write(site, at, page)
    }

    fn flush(&self, site: Site) -> Result<()> {
        self.device.flush(site)
    }

    fn trim(&self, site: Site, run: Run) -> Result<()> {
        self.device.trim(site, run)
    }

    fn counters(&self) -> Counters {
        self.device.counters()
    }
}

struct OnFlash;

struct Life {
    world: Arc<World>,
    blocks: Arc<dyn TxBlocks>,
}

fn life(world: Arc<World>) -> Box<dyn Opened> {
    let refuses = Arc::new(AtomicBool::new(false));
    let flash: Arc<dyn Flash> = Rules::new(OverRegion::open(world.log()).unwrap()).unwrap();
    let device = Device::open(Arc::new(Refusing { flash, refuses: refuses.clone() })).unwrap();
    let blocks = Arc::new(Batch::new(Arc::new(Failing { device, refuses }), ROOM));
    Box::new(Life { world, blocks })
}

impl Subject for OnFlash {
    fn make(&self, most_overwrites: Option<u64>) -> Box<dyn Opened> {
        // Beside all blocks there is room for so many versions.
        let data_blocks = match most_overwrites {
            Some(4) => 16,
            Some(other) => panic!("no size for {other} versions"),
            None => 60,
        };
        let (geometry, config) = sizes(1, 4, BLOCKS as u32, data_blocks);
        let log = Medium::Disk { sector: SLOT as u32 };
        let world =
            World::new(SimConfig { log, log_len: OverRegion::bytes(&geometry), tearing: true, ..SimConfig::disk() });
        let flash: Arc<dyn Flash> = OverRegion::create(world.log(), geometry, ID).unwrap();
        Device::format(&flash, &Config { buffer: 3, ..config }, ID).unwrap();
        life(world)
    }
}

impl Opened for Life {
    fn blocks(&self) -> Arc<dyn TxBlocks> {
        self.blocks.clone()
    }

    fn during(&self, work: &mut dyn FnMut(&dyn TxBlocks)) -> Vec<Box<dyn Opened>> {
        let begun = self.world.now();
        work(&*self.blocks);
        let (trace, mut seen, mut lives) = (self.world.trace(), BTreeSet::new(), Vec::new());
        let limits = ExploreLimits {
            exhaustive_bits: 5,
            single_units: 8,
            pair_units: 0,
            samples: 6,
            ..ExploreLimits::default()
        };
        for point in begun..=self.world.now() {
            trace.point(point).for_each_image(&limits, |_, image: &Image| {
                if seen.insert(image.hash()) {
                    lives.push(life(World::from_image(image, self.world.config().clone())));
                }
                ControlFlow::Continue(())
            });
        }
        lives
    }

    fn rotten(&self, at: u64) -> Box<dyn Opened> {
        let flash = OverRegion::open(self.world.log()).unwrap();
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        // Spare bytes of content have the sequence at byte 8 and the logical page at 24.
        let version = |ppn: u32| match flash.look(Ppn(ppn)).unwrap() {
            Read::Programmed(spare, ()) if spare[0] >= 5 && number(&spare[24..32]) as u32 == at as u32 => {
                Some((number(&spare[8..16]), ppn))
            }
            _ => None,
        };
        let (_, ppn) = (0..flash.geometry().all() as u32).filter_map(version).max().expect("it was written");
        let mut image = self.world.latest();
        image.flip_bit(&Place::Log, OverRegion::offset(Ppn(ppn)) + 5000, 3);
        life(World::from_image(&image, self.world.config().clone()))
    }
}

#[test]
fn all_rules_hold_on_flash() {
    holds(&OnFlash);
}
