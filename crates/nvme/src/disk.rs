//! A device that something is stored on: its blocks, and its queues in one life after the other.

use std::sync::Arc;

use sync::Mutex;
use wholly_blocks::multi_queue::{Life, QueueGuarantees, Queues, Unfinished, Write};
use wholly_blocks::{Lba, Page, Txid};
use wholly_error::Result;
use wholly_media::Site;

use crate::{Controller, DeviceQueues, Options, Transport};

/// A device whose life can end and begin again: each [`close`](Queues::close) shuts the controller down, and the next
/// call enables it once more. It needs no queues: without, it has blocks alone.
///
/// # Example
///
/// ```
/// use wholly_blocks::multi_queue::{Life, Queues};
/// use wholly_blocks::{Lba, Page, Txid};
/// use wholly_media::Site;
/// use wholly_nvme::model::Model;
/// use wholly_nvme::{Disk, Options};
///
/// let (site, volume) = (Site("example"), [7; 16]);
/// let disk = Disk::new(Model::in_memory(1 << 20, 64 << 10), Options::default())?;
/// for incarnation in 1..=2 {
///     disk.start(site, Life { volume, incarnation })?;
///     disk.close(site)?;
/// }
/// disk.write(site, Lba(3), &[Page::zeros()])?;
/// disk.flush(site)?; // durable
/// # Ok::<(), wholly_error::Error>(())
/// ```
pub struct Disk {
    transport: Arc<dyn Transport>,
    options: Options,
    guarantees: QueueGuarantees,
    now: Mutex<Arc<DeviceQueues>>,
}

impl Disk {
    /// Opens the controller.
    ///
    /// # Errors
    /// Those of [`Controller::open`].
    pub fn new(transport: Arc<dyn Transport>, options: Options) -> Result<Disk> {
        let queues = open(&transport, &options)?;
        let of = queues.guarantees().clone();
        let (name, count) = (transport.name(), of.queues);
        let description = match queues.controller().shape() {
            Ok(_) => format!("{name}, {count} queues in its persistent memory region"),
            Err(_) => format!("{name}, no queues in a persistent memory region"),
        };
        let guarantees = QueueGuarantees { description, ..of };
        Ok(Disk { transport, options, guarantees, now: Mutex::new(Arc::new(queues)) })
    }

    fn now(&self) -> Result<Arc<DeviceQueues>> {
        self.now_without(|controller| controller.has_ended())
    }

    /// The controller, or if it is such a one, the next: that resets it first.
    fn now_without(&self, is_over: impl Fn(&Controller) -> bool) -> Result<Arc<DeviceQueues>> {
        let now = &mut *self.now.lock().unwrap();
        if is_over(now.controller()) {
            now.controller().end();
            *now = Arc::new(open(&self.transport, &self.options)?);
        }
        Ok(now.clone())
    }
}

fn open(transport: &Arc<dyn Transport>, options: &Options) -> Result<DeviceQueues> {
    Ok(DeviceQueues::if_any(Controller::open(transport.clone(), options.clone())?))
}

impl Queues for Disk {
    fn guarantees(&self) -> &QueueGuarantees {
        &self.guarantees
    }

    fn unfinished(&self) -> Unfinished {
        self.now().map_or_else(|error| Unfinished::Unknown(error.to_string()), |now| now.unfinished())
    }

    fn start(&self, site: Site, life: Life) -> Result<()> {
        // If the last life was not closed, opening the controller again ends it, as after a crash.
        self.now_without(|controller| controller.has_ended() || controller.queues() > 0)?.start(site, life)
    }

    fn commit(&self, site: Site, queue: u16, tx: Txid, writes: Vec<Write>) -> Result<u64> {
        self.now()?.commit(site, queue, tx, writes)
    }

    fn wait(&self, site: Site, queue: u16, place: u64) -> Result<()> {
        self.now()?.wait(site, queue, place)
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        self.now()?.read_run(at, bytes)
    }

    fn write(&self, site: Site, at: Lba, pages: &[Page]) -> Result<()> {
        self.now()?.write(site, at, pages)
    }

    fn flush(&self, site: Site) -> Result<()> {
        self.now()?.flush(site)
    }

    fn close(&self, site: Site) -> Result<()> {
        self.now()?.close(site)
    }
}
