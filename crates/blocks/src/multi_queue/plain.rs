//! The blocks of a device with queues as a region, whether a journal runs there or not.

use std::sync::Arc;

use sync::Mutex;
use wholly_error::Result;
use wholly_media::{Region, Site};

use super::queues::{QueueGuarantees, Queues};
use crate::plain::{Plain, PlainBlocks};
use crate::{BLOCK, Lba, Page};

struct PlainQueues {
    device: Arc<dyn Queues>,
    /// Between threads that write parts of blocks.
    parts: Mutex<()>,
}

/// A region over the blocks of a device, for reads and writes outside of transactions. A journal may run on the device:
/// then only blocks that it never writes may be written here.
///
/// # Example
/// ```
/// # use std::sync::Arc;
/// # use wholly_blocks::multi_queue::{DiskQueues, region_of};
/// # use wholly_media::{Region, Site, disk::DiskRegion};
/// # let directory = wholly_scratch::TestDir::on_disk();
/// # let path = directory.path().join("disk");
/// # std::fs::write(&path, vec![0; 1 << 20]).unwrap();
/// # let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
/// # let disk: Arc<dyn Region> = Arc::new(DiskRegion::open(file.into(), "disk")?);
/// let region = region_of(Arc::new(DiskQueues::new(disk, 2)));
/// region.write(Site("example"), 4090, b"in two blocks")?;
/// region.fence(Site("example"))?; // durable
/// let mut bytes = [0; 13];
/// region.read(4090, &mut bytes)?;
/// assert_eq!(&bytes, b"in two blocks");
/// # Ok::<(), wholly_media::Error>(())
/// ```
pub fn region_of(device: Arc<dyn Queues>) -> Arc<dyn Region> {
    let QueueGuarantees { blocks, plain_unit, emulated, description, .. } = device.guarantees().clone();
    let of = Arc::new(PlainQueues { device, parts: Mutex::default() });
    Arc::new(Plain::over(of, blocks, plain_unit, (emulated, description)))
}

impl PlainBlocks for PlainQueues {
    fn read(&self, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.device.read(at, bytes)
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        self.device.read_run(at, bytes)
    }

    fn write_part(&self, site: Site, at: u64, offset: usize, bytes: &[u8]) -> Result<()> {
        if let Ok(page) = <&[u8; BLOCK]>::try_from(bytes) {
            return self.device.write(site, Lba(at), &[Page::new(page)]);
        }
        let _one = self.parts.lock().unwrap();
        let mut old = [0; BLOCK];
        self.device.read(Lba(at), &mut old)?;
        old[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.device.write(site, Lba(at), &[Page::new(&old)])
    }

    fn flush(&self, site: Site) -> Result<()> {
        self.device.flush(site)
    }
}
