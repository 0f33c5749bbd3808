//! The driver's queues as the journal of a volume uses them.

use std::sync::OnceLock;

use sync::Mutex;
use wholly_blocks::multi_queue::{Life as JournalLife, QueueGuarantees, Queues, Unfinished, Write};
use wholly_blocks::{BLOCK, Lba, Page, Txid};
use wholly_error::{Error, Result};
use wholly_media::Site;

use crate::driver::Shape;
use crate::{Controller, DmaPage, Lease, Life, Ticket, Window};

/// A controller's queues, each leased for as long as the journal runs. Each content is copied once, into pages that the
/// device reads.
///
/// # Example
///
/// ```
/// use std::sync::Arc;
/// use wholly_blocks::multi_queue::{MultiQueue, Options as JournalOptions};
/// use wholly_blocks::{BLOCK, Lba, Page, Placement, Run, Tag, TxBlocks};
/// use wholly_media::Site;
/// use wholly_nvme::model::Model;
/// use wholly_nvme::{Controller, DeviceQueues, Options};
///
/// let (site, volume) = (Site("example"), [7; 16]);
/// let controller = Controller::open(Model::in_memory(4 << 20, 64 << 10), Options::default())?;
/// let queues = Arc::new(DeviceQueues::new(controller)?);
/// // The last blocks of the device are the journal.
/// let log = Run { start: Lba(512), count: 512 };
/// MultiQueue::format(&*queues, log, volume, &JournalOptions::default())?;
/// let blocks = MultiQueue::open(queues, (512, log), volume, JournalOptions::default())?;
///
/// let tx = blocks.begin()?;
/// for at in [3, 9] {
///     blocks.write(site, tx, Lba(at), Page::new(&[1; BLOCK]), Placement::Overwrite, Tag::Data)?;
/// }
/// let sequence = blocks.order(site, &[tx], &[])?; // everybody reads it
/// blocks.send(site, sequence)?; // atomic
/// blocks.wait(site, sequence)?; // durable
/// blocks.close()?;
/// # Ok::<(), wholly_error::Error>(())
/// ```
pub struct DeviceQueues {
    /// The first to be dropped.
    leases: OnceLock<Vec<Mutex<Lease>>>,
    controller: Controller,
    guarantees: QueueGuarantees,
}

impl From<&Window> for Unfinished {
    fn from(window: &Window) -> Unfinished {
        match window {
            Window::Unknown(why) => Unfinished::Unknown(why.clone()),
            Window::Known { life, queues } => Unfinished::Known {
                life: JournalLife { volume: life.volume, incarnation: life.incarnation },
                queues: queues.iter().map(|queue| queue.transactions.iter().map(|tx| tx.txid).collect()).collect(),
            },
        }
    }
}

impl DeviceQueues {
    /// Of a controller on which no life has begun. Journals whose proof is the window need one that waits for
    /// [`HeadDurable`](crate::Acknowledge::HeadDurable).
    ///
    /// # Errors
    /// `Unsupported` if the controller has no queues for transactions, with the reason.
    pub fn new(controller: Controller) -> Result<DeviceQueues> {
        controller.shape()?;
        Ok(Self::if_any(controller))
    }

    /// The same, or none: then no life begins.
    pub(crate) fn if_any(controller: Controller) -> DeviceQueues {
        let shape = controller.shape().unwrap_or(Shape { queues: 0, entries: 0, pages: 0 });
        let info = controller.info();
        let guarantees = QueueGuarantees {
            blocks: info.blocks,
            queues: shape.queues,
            most_writes: shape.entries,
            most_pages: shape.pages,
            tells_unfinished: true,
            flushes_own_writes: false,
            // A block may tear, whatever the device says.
            plain_unit: 8,
            emulated: true,
            description: format!("{} queues of a controller", shape.queues),
        };
        DeviceQueues { leases: OnceLock::new(), controller, guarantees }
    }

    /// The controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    fn filled(&self, pages: &[Page]) -> Result<Vec<DmaPage>> {
        let fill = |page: &Page| {
            let filled = self.controller.page()?;
            filled.write(0, &page[..]);
            Ok(filled)
        };
        pages.iter().map(fill).collect()
    }

    fn lease(&self, queue: u16) -> Result<&Mutex<Lease>> {
        let leases = self.leases.get().and_then(|leases| leases.get(usize::from(queue)));
        leases.ok_or_else(|| Error::Invalid(format!("queue {queue}: start a life with it before transactions")))
    }
}

impl Queues for DeviceQueues {
    fn guarantees(&self) -> &QueueGuarantees {
        &self.guarantees
    }

    fn unfinished(&self) -> Unfinished {
        self.controller.window().into()
    }

    fn start(&self, _: Site, life: JournalLife) -> Result<()> {
        self.controller.start(Life { volume: life.volume, incarnation: life.incarnation })?;
        let lease = |queue| match self.controller.try_lease(queue)? {
            Some(lease) => Ok(Mutex::new(lease)),
            None => Err(Error::Invalid(format!("queue {queue} is leased"))),
        };
        let leases = (0..self.controller.queues()).map(lease).collect::<Result<Vec<_>>>()?;
        assert!(self.leases.set(leases).is_ok(), "a life begins once");
        Ok(())
    }

    fn commit(&self, _: Site, queue: u16, tx: Txid, writes: Vec<Write>) -> Result<u64> {
        let lease = &mut *self.lease(queue)?.lock().unwrap();
        let (last, others) = writes.split_last().expect("a transaction has a commit");
        let ticket = (|| {
            for write in others {
                lease.write(write.at, &self.filled(&write.pages)?)?;
            }
            lease.commit(tx, last.at, &self.filled(&last.pages)?)
        })();
        Ok(ticket.inspect_err(|_| lease.cancel())?.number + 1)
    }

    fn wait(&self, _: Site, queue: u16, place: u64) -> Result<()> {
        self.controller.wait(Ticket { queue, number: place - 1 })
    }

    fn read_run(&self, at: Lba, bytes: &mut [u8]) -> Result<()> {
        let (blocks, rest) = bytes.as_chunks_mut::<BLOCK>();
        if !rest.is_empty() {
            return Err(Error::Invalid(format!("{} bytes: read whole blocks", blocks.len() * BLOCK + rest.len())));
        }
        let pages = blocks.iter().map(|_| self.controller.page()).collect::<Result<Vec<_>>>()?;
        self.controller.read(at, &pages)?;
        blocks.iter_mut().zip(&pages).for_each(|(block, page)| page.read(0, block));
        Ok(())
    }

    fn write(&self, _: Site, at: Lba, pages: &[Page]) -> Result<()> {
        self.controller.write(at, &self.filled(pages)?)
    }

    fn flush(&self, _: Site) -> Result<()> {
        self.controller.flush()
    }

    fn close(&self, _: Site) -> Result<()> {
        self.controller.close()
    }
}
