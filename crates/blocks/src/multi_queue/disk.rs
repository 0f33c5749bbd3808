//! A file or a block device as queues: what a transaction writes to consecutive blocks is one synchronous write, by a
//! thread that waits. Transactions that wait on one queue share writes.
//!
//! There are no late writes: a thread that is killed ends after the write that it makes.

use std::sync::Arc;

use sync::Mutex;
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use super::queues::{Life, QueueGuarantees, Queues, Unfinished, Write};
use crate::{BLOCK, Lba, Page, Txid};

/// See the module.
pub struct DiskQueues {
    region: Arc<dyn Region>,
    guarantees: QueueGuarantees,
    queues: Vec<OnDisk>,
}

/// A queue.
#[derive(Default)]
struct OnDisk {
    waiting: Mutex<Waiting>,
    /// Held by the thread that writes.
    writing: Mutex<Written>,
}

/// What was handed over and is not written.
#[derive(Default)]
struct Waiting {
    writes: Vec<Write>,
    /// Transactions that were handed over.
    given: u64,
}

/// What is on the medium.
#[derive(Default)]
struct Written {
    /// Transactions.
    done: u64,
    failed: Option<Error>,
}

impl DiskQueues {
    /// Over a disk, with so many queues.
    ///
    /// # Errors
    /// `Unsupported` for persistent memory: what a process that died has stored there is read, and may be lost yet.
    pub fn new(region: Arc<dyn Region>, queues: u16) -> Result<DiskQueues> {
        if region.guarantees().is_pmem() {
            let why = "a journal for each queue on persistent memory: take an engine that stores bytes there";
            return Err(Error::unsupported(why));
        }
        let of = region.guarantees();
        let guarantees = QueueGuarantees {
            blocks: region.len() / BLOCK as u64,
            queues,
            most_writes: usize::MAX,
            most_pages: usize::MAX,
            tells_unfinished: false,
            plain_unit: of.atomic_unit,
            emulated: of.emulated,
            description: of.description.clone(),
        };
        Ok(DiskQueues { region, guarantees, queues: (0..queues).map(|_| OnDisk::default()).collect() })
    }

    /// One synchronous write for each run of blocks.
    fn write_through(&self, site: Site, mut writes: Vec<Write>) -> Result<()> {
        writes.sort_by_key(|write| write.at);
        let mut bytes: Vec<u8> = Vec::new();
        for run in writes.chunk_by(|one, next| one.at.0 + one.pages.len() as u64 == next.at.0) {
            bytes.clear();
            run.iter().flat_map(|write| &write.pages).for_each(|page| bytes.extend_from_slice(&page[..]));
            self.region.write_through(site, run[0].at.byte(), &bytes)?;
        }
        Ok(())
    }
}

impl Queues for DiskQueues {
    fn guarantees(&self) -> &QueueGuarantees {
        &self.guarantees
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished::Unknown("a disk does not tell".into())
    }

    fn start(&self, _: Site, _: Life) -> Result<()> {
        Ok(())
    }

    fn commit(&self, _: Site, queue: u16, _: Txid, writes: Vec<Write>) -> Result<u64> {
        let waiting = &mut *self.queues[usize::from(queue)].waiting.lock().unwrap();
        waiting.writes.extend(writes);
        waiting.given += 1;
        Ok(waiting.given)
    }

    fn wait(&self, site: Site, queue: u16, place: u64) -> Result<()> {
        let queue = &self.queues[usize::from(queue)];
        let written = &mut *queue.writing.lock().unwrap();
        if let Some(error) = &written.failed {
            return Err(error.clone());
        }
        if written.done >= place {
            return Ok(());
        }
        let (writes, upto) = {
            let waiting = &mut *queue.waiting.lock().unwrap();
            (std::mem::take(&mut waiting.writes), waiting.given)
        };
        if let Err(error) = self.write_through(site, writes) {
            written.failed = Some(error.clone());
            return Err(error);
        }
        written.done = upto;
        Ok(())
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        Ok(self.region.read(at.byte(), bytes)?)
    }

    fn write(&self, site: Site, at: Lba, pages: &[Page]) -> Result<()> {
        let bytes: Vec<u8> = pages.iter().flat_map(|page| &page[..]).copied().collect();
        Ok(self.region.write(site, at.byte(), &bytes)?)
    }

    fn flush(&self, site: Site) -> Result<()> {
        Ok(self.region.fence(site)?)
    }

    fn close(&self, _: Site) -> Result<()> {
        Ok(())
    }
}
