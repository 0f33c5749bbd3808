//! The simulated flash disk. Tests cite the invariants X1 to X8 of its head, and the rules T1 to T12 of the crate's.

mod amplification;
mod counts;
mod crash;
mod files;
mod fixtures;
mod histories;
mod limits;
mod rot;
mod suite;
mod traps;

use std::sync::Arc;

use wholly_blocks::xftl::{Config, Device, Flash, Geometry, Ram, Rules, Times};
use wholly_blocks::{Lba, Page, Placement, Run, Tag, TxDevice, Txid};
use wholly_error::Result;
use wholly_media::Site;

pub const SITE: Site = Site("test");
pub const ID: [u8; 16] = *b"a flash disk, id";

/// Times of which sums tell what they are made of.
pub const TIMES: Times = Times { program_ns: 1_000_000, read_ns: 1_000, erase_ns: 1 };

/// A device of so many logical pages, with so many data blocks.
pub fn sizes(channels: u32, pages: u32, logical: u32, data_blocks: u32) -> (Geometry, Config) {
    let config = Config {
        logical,
        data_blocks,
        reserve: 1,
        chain_blocks: 1,
        buffer: 64,
        interval: u32::MAX,
        most_pages: None,
        times: TIMES,
        name: *b"test\0\0\0\0\0\0\0\0\0\0\0\0",
    };
    (Geometry { channels, blocks: config.blocks(channels, pages), pages }, config)
}

/// An empty device in memory, every rule of flash watched.
pub fn device(geometry: Geometry, config: Config) -> (Arc<dyn Flash>, Device) {
    let flash: Arc<dyn Flash> = Rules::new(Ram::new(geometry)).unwrap();
    Device::format(&flash, &config, ID).unwrap();
    let device = Device::open(flash.clone()).unwrap();
    (flash, device)
}

/// A page that says what it is.
pub fn page(value: u64) -> Page {
    let mut page = Page::zeros();
    page.put(0, &value.to_le_bytes());
    page.put(4088, &value.rotate_left(17).to_le_bytes());
    page
}

/// What a page says that it is; 0 is zeros.
pub fn value(device: &Device, tx: Option<Txid>, lpn: u32) -> Result<u64> {
    let mut bytes = [9; 4096];
    device.read(tx, Lba(lpn.into()), &mut bytes)?;
    let value = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes[..] == page(value)[..], "logical page {lpn} is no page that was written");
    Ok(value)
}

pub fn write(device: &Device, tx: Txid, lpn: u32, value: u64) -> Result<()> {
    device.write(SITE, tx, Lba(lpn.into()), &page(value), Placement::Overwrite, Tag::Data)
}

pub fn plain(device: &Device, lpn: u32, value: u64) -> Result<()> {
    device.plain_write(SITE, Lba(lpn.into()), &page(value))
}

pub fn run(from: u32, count: u32) -> Run {
    Run { start: Lba(from.into()), count: count.into() }
}

/// Numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 29)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }
}
