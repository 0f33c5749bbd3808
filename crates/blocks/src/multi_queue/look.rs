//! A region as queues that are only read: what a crash has left can be looked at.

use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use super::queues::{Life, QueueGuarantees, Queues, Unfinished, Write};
use crate::{BLOCK, Lba, Page, Txid};

/// See the module.
pub struct Looked<'r> {
    region: &'r dyn Region,
    guarantees: QueueGuarantees,
}

impl<'r> Looked<'r> {
    pub fn new(region: &'r dyn Region) -> Looked<'r> {
        let of = region.guarantees();
        let guarantees = QueueGuarantees {
            blocks: region.len() / BLOCK as u64,
            queues: 1,
            most_writes: usize::MAX,
            most_pages: usize::MAX,
            tells_unfinished: false,
            flushes_own_writes: of.is_pmem(),
            plain_unit: of.atomic_unit,
            emulated: of.emulated,
            description: of.description.clone(),
        };
        Looked { region, guarantees }
    }
}

fn only_read<T>() -> Result<T> {
    Err(Error::unsupported("the journal is only looked at"))
}

impl Queues for Looked<'_> {
    fn guarantees(&self) -> &QueueGuarantees {
        &self.guarantees
    }
    fn unfinished(&self) -> Unfinished {
        Unfinished::Unknown("it is only looked at".into())
    }
    fn start(&self, _: Site, _: Life) -> Result<()> {
        only_read()
    }
    fn commit(&self, _: Site, _: u16, _: Txid, _: Vec<Write>) -> Result<u64> {
        only_read()
    }
    fn wait(&self, _: Site, _: u16, _: u64) -> Result<()> {
        only_read()
    }
    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        Ok(self.region.read(at.byte(), bytes)?)
    }
    fn write(&self, _: Site, _: Lba, _: &[Page]) -> Result<()> {
        only_read()
    }
    fn flush(&self, _: Site) -> Result<()> {
        only_read()
    }
    fn close(&self, _: Site) -> Result<()> {
        only_read()
    }
}
