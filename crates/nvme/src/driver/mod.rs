//! The driver: a controller in user space, with queues in its persistent memory region (ccNVMe, sections 4.1 to 4.5).
//!
//! # States
//!
//! | state | what can be done | who leaves it |
//! |---|---|---|
//! | *open* | the controller was reset, and its window read; reads, plain writes and flushes by a queue in memory. Nothing in the region is changed | [`Controller::start`], once the upper layer has dealt with the window, durably |
//! | *started* | transactions, on queues that are leased | [`Controller::close`] |
//! | *failed* | no transaction completes; reads go on. Its window is found by the next open | an open |
//!
//! Recovery can be interrupted anywhere and repeated: until `start` the region is as the last life left it. From
//! `start` on until it returns, the window is unknown; so the upper layer raises its incarnation before.
//!
//! | file | contents |
//! |---|---|
//! | `layout` | what stands in the region |
//! | `window` | what a life has left unfinished |
//! | `queue` | the protocol of a transaction, with its invariants |
//! | `lease` | who writes on a queue |
//! | `rings` | completion rings, and queues in memory |
//! | `pages` | pages for transfers |
//! | `link` | the transport, time limits, failure |

mod layout;
mod lease;
mod link;
mod pages;
mod queue;
mod rings;
mod window;

use std::sync::Arc;
use std::time::Duration;

use sync::{Mutex, OnceLock};
use wholly_blocks::{BLOCK, Lba};
use wholly_error::{Error, Result};

pub use layout::Life;
use layout::{LINE, Layout};
pub use lease::{Lease, Ticket};
use link::{Link, media};
pub use pages::DmaPage;
use pages::PagePool;
use queue::{Queue, State};
use rings::CompletionRing;
pub use rings::PlainQueue;
pub use window::{QueueWindow, Unfinished, Window};

use crate::site;
use crate::spec::{
    Capabilities, Command, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, PmrCapabilities, PmrStatus, admin,
    cc, csts, io, pmr, register,
};
use crate::transport::Transport;

/// The number of the queue in memory.
const PLAIN: u16 = 1;

/// Entries of the admin queue, and of the queue in memory.
const ADMIN_DEPTH: u32 = 32;
const PLAIN_DEPTH: u32 = 256;

/// The namespace.
const NAMESPACE: u32 = 1;

/// The fewest blocks that make sense: a description and a block.
const LEAST_BLOCKS: u64 = 2;

/// When [`Controller::wait`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// When the transaction is on the medium. After a crash the window may still list it: the upper layer must be able
    /// to see that it is there.
    Finished,
    /// When the window certainly does not show it any more, either. This costs a read of the region.
    HeadDurable,
}

/// Mistakes that the explorer must see. No user has one.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The flush stands between the writes and the commit, under one doorbell: the paper, literally.
    FlushInBatch,
    /// Nothing orders the stores of a commit.
    NoOrder,
    /// No read makes stores arrive: the paper's "clflush, mfence" on memory that is not cached.
    NoBarrier,
    /// The doorbell is rung before the barrier.
    RingBeforeBarrier,
    /// The head passes each command that completes, in whatever order.
    HeadByCommand,
    /// A slot is used again when its transaction is finished, whether or not the head is durable.
    SlotsOfFinished,
    /// The controller is told to reset, and used before it says that it has.
    ResetNotAwaited,
    /// An open does not flush: what an earlier life has left in the write cache is read, and lost later.
    NoFlushAtOpen,
    /// A life begins without a flush: what was written to deal with the window is in the write cache only.
    NoFlushAtStart,
}

/// How a controller is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most queues for transactions.
    pub queues: u16,
    /// The most entries of a queue, a power of two.
    pub depth: u32,
    /// How long a command may take before the controller counts as broken: since it was handed over, or since another
    /// one of its queue completed.
    pub timeout: Duration,
    /// Whether blocks of a transaction that lie next to each other are one command.
    pub merge: bool,
    /// When a wait returns.
    pub acknowledge: Acknowledge,
    /// Where there is a write cache: up to so many bytes all writes of a transaction are forced to the medium; beyond,
    /// they are flushed before the last one.
    pub most_forced: usize,
    /// The count of the first entry of each queue, a multiple of `depth`: tests let counts overflow soon.
    #[doc(hidden)]
    pub first_count: u32,
    #[doc(hidden)]
    pub mistake: Option<Mistake>,
}

impl Default for Options {
    /// A queue for each processor, with 256 entries.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Options {
            queues: processors as u16,
            depth: 256,
            timeout: Duration::from_secs(10),
            merge: true,
            acknowledge: Acknowledge::Finished,
            most_forced: 256 << 10,
            first_count: 0,
            mistake: None,
        }
    }
}

/// What a controller offers.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its identity.
    pub controller: IdentifyController,
    /// Version of the specification, as its register has it.
    pub version: u32,
    /// Blocks of 4 KiB.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub lba_bytes: u32,
    /// The most bytes of a command.
    pub most_transfer: u64,
    /// The most entries of a queue.
    pub most_entries: u32,
    /// Queue pairs that it grants, one of them for reads.
    pub granted: u16,
    /// Bytes of its persistent memory region; 0: it has none.
    pub region_bytes: u64,
    /// Why its region cannot be used for queues, if it cannot.
    pub no_queues: Option<String>,
}

/// A controller.
///
/// # Example
///
/// ```
/// use wholly_blocks::{Lba, Txid};
/// use wholly_nvme::model::Model;
/// use wholly_nvme::{Controller, Life, Options, Window};
///
/// let model = Model::in_memory(1 << 20, 64 << 10);
/// let controller = Controller::open(model, Options::default())?;
/// // What an earlier life has left: nothing, or nobody knows.
/// assert!(matches!(controller.window(), Window::Unknown(_)));
/// controller.start(Life { volume: [7; 16], incarnation: 1 })?;
///
/// let page = controller.page()?;
/// page.write(0, b"both or none");
/// let mut lease = controller.lease()?;
/// lease.write(Lba(3), &[page.clone()])?;
/// let ticket = lease.commit(Txid::new(1, 1), Lba(9), &[page])?; // atomic
/// controller.wait(ticket)?; // durable
/// # Ok::<(), wholly_error::Error>(())
/// ```
pub struct Controller {
    shared: Arc<Shared>,
}

struct Shared {
    /// The first to be dropped: nothing of the others is memory that the controller may write, after that.
    running: Running,
    link: Arc<Link>,
    admin: PlainQueue,
    plain: Arc<PlainQueue>,
    /// All queues in memory: `plain`, and those of callers. They stay as long as the controller runs.
    in_memory: Mutex<Vec<Arc<PlainQueue>>>,
    pool: Arc<PagePool>,
    info: Info,
    options: Options,
    region: PmrCapabilities,
    /// Pages of a command.
    most_pages: usize,
    window: Window,
    /// Numbers of queues that are in use.
    used: Mutex<u16>,
    queues: OnceLock<Vec<Arc<Queue>>>,
    /// Held while a life begins.
    starting: Mutex<()>,
    /// Held while the controller is enabled again after a failure.
    reviving: Mutex<()>,
}

/// What transactions can be.
pub(crate) struct Shape {
    pub queues: u16,
    /// Commands of a transaction.
    pub entries: usize,
    /// Pages of a command.
    pub pages: usize,
}

/// A controller that is enabled. Dropped, it is disabled: nothing that it was told lands after that.
struct Running {
    link: Arc<Link>,
    capabilities: Capabilities,
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that was closed is off; another life may have begun.
        if !self.link.is_abandoned() && !self.link.has_ended() {
            // One that does not even do that is cut off when its transport ends.
            let _ = disable(&self.link, self.capabilities);
        }
        self.link.end();
    }
}

impl Controller {
    /// Resets the controller, so that nothing of an earlier life is in flight, reads its window, and flushes its write
    /// cache: what is read from now on stays. The region is not changed.
    ///
    /// # Errors
    /// `Media` (`EIO`) if the controller does not become ready, or reports an error; `Unsupported` for a controller or
    /// a namespace that cannot be used, with the reason.
    pub fn open(transport: Arc<dyn Transport>, options: Options) -> Result<Controller> {
        let refuse = |why: String| Error::Unsupported(format!("{}: {why}", transport.name()));
        let wide = |at| Ok::<_, Error>(u64::from(transport.read32(at)?) | u64::from(transport.read32(at + 4)?) << 32);
        let capabilities = Capabilities(wide(register::CAP)?);
        if capabilities.0 == u64::MAX {
            return Err(media(&*transport, 0, "the controller", "all of its registers read as ones"));
        }
        if capabilities.smallest_page() > BLOCK as u64 {
            return Err(refuse(format!("its smallest page has {} bytes", capabilities.smallest_page())));
        }
        let stride = capabilities.doorbell_stride();
        let link = Arc::new(Link::new(transport.clone(), stride, options.timeout, options.mistake));
        let pool = Arc::new(PagePool::new(transport.clone()));
        let region = PmrCapabilities(if capabilities.has_pmr() { transport.read32(register::PMRCAP)? } else { 0 });
        disable(&link, capabilities)?;
        let no_queues = match capabilities.has_pmr() {
            true => enable_region(&link, region)?,
            false => Some("the controller has no persistent memory region".into()),
        };
        let window = match &no_queues {
            Some(why) => Window::Unknown(why.clone()),
            None if PmrStatus(transport.read32(register::PMRSTS)?).is_lost() => {
                Window::Unknown("the region was not restored after the last loss of power".into())
            }
            None => Window::read(transport.region())?,
        };
        let admin = PlainQueue::new(&link, &pool, 0, 0, ADMIN_DEPTH.min(capabilities.most_entries()))?;
        let running = Running { link: link.clone(), capabilities };
        enable(&link, capabilities, &admin)?;

        let identify = |command: Command, what| {
            let page = pool.take()?;
            admin.execute(command, vec![page.clone()], what)?;
            let mut bytes = [0; IDENTIFY_BYTES];
            page.read(0, &mut bytes);
            Ok::<_, Error>(bytes)
        };
        let controller = IdentifyController::new(&identify(IdentifyController::command(), "identify")?);
        let namespace = identify(IdentifyNamespace::command(NAMESPACE), "identify namespace 1")?;
        let namespace = IdentifyNamespace::new(&namespace).ok_or_else(|| {
            refuse("namespace 1 has no valid format: make it with logical blocks of 4096 bytes".into())
        })?;
        let (lba_bytes, metadata) = (namespace.format.bytes, namespace.format.metadata);
        if metadata > 0 {
            return Err(refuse(format!(
                "namespace 1 has {metadata} bytes of metadata for each block: format it without"
            )));
        }
        if lba_bytes > BLOCK as u32 {
            return Err(refuse(format!("namespace 1 has logical blocks of {lba_bytes} bytes: format it with 4096")));
        }
        if namespace.is_read_only {
            return Err(refuse("namespace 1 is read only".into()));
        }
        let blocks = (u128::from(namespace.size) * u128::from(lba_bytes) / BLOCK as u128) as u64;
        if blocks < LEAST_BLOCKS {
            return Err(refuse(format!("namespace 1 has {blocks} blocks of 4 KiB, no room for a transaction")));
        }
        let granted = ask_for_queues(&admin, options.queues)?;

        // The number of blocks of a command has 16 bits.
        let most_pages = (1 << 16) / (BLOCK as u64 / u64::from(lba_bytes));
        let most_transfer = controller.most_transfer.unwrap_or(u64::MAX).min(most_pages * BLOCK as u64);
        if most_transfer < BLOCK as u64 {
            return Err(refuse(format!("it transfers {most_transfer} bytes at once, less than a block")));
        }
        let depth = PLAIN_DEPTH.min(capabilities.most_entries());
        let plain = Arc::new(PlainQueue::new(&link, &pool, PLAIN, interrupt_of(&*transport, PLAIN), depth)?);
        let info = Info {
            controller,
            version: transport.read32(register::VS)?,
            blocks,
            lba_bytes,
            most_transfer,
            most_entries: capabilities.most_entries(),
            granted,
            region_bytes: if capabilities.has_pmr() { transport.region().len() } else { 0 },
            no_queues,
        };
        let shared = Shared {
            running,
            link,
            admin,
            plain: plain.clone(),
            in_memory: Mutex::new(vec![plain]),
            pool,
            info,
            options,
            region,
            most_pages: (most_transfer / BLOCK as u64) as usize,
            window,
            used: Mutex::new(PLAIN),
            queues: OnceLock::new(),
            starting: Mutex::default(),
            reviving: Mutex::default(),
        };
        shared.create_plain(&shared.plain)?;
        let controller = Controller { shared: Arc::new(shared) };
        // What an earlier life has left in the write cache is read from now on, and must not be lost after that.
        if !controller.shared.link.makes(Mistake::NoFlushAtOpen) {
            controller.flush()?;
        }
        Ok(controller)
    }

    /// What it offers.
    pub fn info(&self) -> &Info {
        &self.shared.info
    }

    /// What the life before has left unfinished.
    pub fn window(&self) -> &Window {
        &self.shared.window
    }

    /// Begins a life: the window is gone, and transactions can be written. The upper layer has dealt with the window
    /// before, durably, and raised its incarnation: a crash in this call leaves the window unknown.
    ///
    /// # Errors
    /// `Unsupported` if the controller has no region for queues, with the reason; `Invalid` if a life has begun;
    /// `Media` (`EIO`).
    pub fn start(&self, life: Life) -> Result<()> {
        let shared = &self.shared;
        let _one = shared.starting.lock().unwrap();
        if shared.queues.get().is_some() {
            return Err(Error::Invalid("a life has begun on this controller".into()));
        }
        let layout = self.layout()?;
        let region = shared.link.transport.region();
        let barrier = |site| shared.link.barrier(0, shared.region, site);
        // What the upper layer has written to deal with the window stays when that is gone.
        if !shared.link.makes(Mistake::NoFlushAtStart) {
            self.flush()?;
        }
        // Three steps, so that no head line stands over words and entries of another life.
        region.store(site::START_VOID, 0, &[0; LINE as usize])?;
        region.order(site::START_VOID_ORDER);
        barrier(site::START_VOID_BARRIER)?;
        for (at, len) in layout.used() {
            region.store(site::START_CLEAR, at, &vec![0; len])?;
        }
        let first = shared.options.first_count;
        for queue in (0..layout.queues).filter(|_| first > 0) {
            for word in [layout.tail(queue), layout.head(queue)] {
                region.store(site::START_CLEAR, word, &first.to_le_bytes())?;
            }
        }
        region.order(site::START_CLEAR_ORDER);
        barrier(site::START_CLEAR_BARRIER)?;
        region.store(site::START_HEAD, 0, &layout.head_line(life))?;
        region.order(site::START_HEAD_ORDER);
        barrier(site::START_HEAD_BARRIER)?;

        let used = *shared.used.lock().unwrap();
        let mut queues: Vec<Arc<Queue>> = Vec::with_capacity(layout.queues.into());
        for index in 0..layout.queues {
            match shared.create_queue(index, layout) {
                Ok(queue) => queues.push(queue),
                Err(error) => {
                    // The life can be begun once more.
                    queues.iter().rev().try_for_each(|queue| shared.delete(queue.id))?;
                    *shared.used.lock().unwrap() = used;
                    return Err(error);
                }
            }
        }
        *shared.link.leased.lock().unwrap() = vec![false; queues.len()];
        assert!(shared.queues.set(queues).is_ok(), "lives begin under the lock");
        Ok(())
    }

    /// The queues that a life will have.
    fn layout(&self) -> Result<Layout> {
        let shared = &self.shared;
        let refuse = |why: &str| Error::Unsupported(format!("{}: {why}", shared.link.transport.name()));
        if let Some(why) = &shared.info.no_queues {
            return Err(refuse(why));
        }
        let free = shared.info.granted - *shared.used.lock().unwrap();
        if free == 0 {
            return Err(refuse("it grants one queue pair: transactions need one beside that for reads"));
        }
        let len = shared.link.transport.region().len();
        let depth = shared.options.depth.min(shared.info.most_entries);
        let layout = Layout::fitting(len, shared.options.queues.clamp(1, free), depth, shared.info.lba_bytes);
        layout.ok_or_else(|| refuse(&format!("its persistent memory region of {len} bytes is too short for a queue")))
    }

    /// How many queues there are for transactions; 0 before [`start`](Self::start).
    pub fn queues(&self) -> u16 {
        self.shared.queues.get().map_or(0, |queues| queues.len() as u16)
    }

    /// Leases a queue that nobody has and that has not failed; waits for one.
    ///
    /// # Errors
    /// `Invalid` before [`start`](Self::start); `Media` (`EIO`) if the controller has failed, or all queues have.
    pub fn lease(&self) -> Result<Lease> {
        let queues = self.started()?;
        let link = &self.shared.link;
        let mut leased = link.leased.lock().unwrap();
        loop {
            link.check()?;
            // A queue that has failed is nobody's.
            let goes_on = |index: &usize| queues[*index].check().is_ok();
            if let Some(index) = (0..queues.len()).filter(|index| !leased[*index]).find(goes_on) {
                leased[index] = true;
                return Ok(self.leased(&queues[index]));
            }
            if !(0..queues.len()).any(|index| goes_on(&index)) {
                queues[0].check()?;
            }
            leased = link.returned.wait(leased).unwrap();
        }
    }

    /// Leases this queue, if nobody has it.
    ///
    /// # Errors
    /// `Invalid` before [`start`](Self::start), or if there is no such queue.
    pub fn try_lease(&self, queue: u16) -> Result<Option<Lease>> {
        let queues = self.started()?;
        let Some(found) = queues.get(usize::from(queue)) else {
            return Err(Error::Invalid(format!("queue {queue}: there are {}", queues.len())));
        };
        let is_leased = std::mem::replace(&mut self.shared.link.leased.lock().unwrap()[usize::from(queue)], true);
        Ok((!is_leased).then(|| self.leased(found)))
    }

    fn leased(&self, queue: &Arc<Queue>) -> Lease {
        Lease { shared: self.shared.clone(), queue: queue.clone(), writes: Vec::new() }
    }

    fn started(&self) -> Result<&[Arc<Queue>]> {
        let queues = self.shared.queues.get();
        queues.map(|queues| &queues[..]).ok_or_else(|| Error::Invalid("start a life before transactions".into()))
    }

    /// Waits until a transaction, and all before it on its queue, are durable, as [`Options::acknowledge`] says. Any
    /// thread may wait.
    ///
    /// # Errors
    /// `Media` (`EIO`) if the transaction has failed, or one before it on its queue, or the controller has; `Invalid`
    /// for a ticket of another controller.
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        let queue = self.started()?.get(usize::from(ticket.queue));
        queue
            .ok_or_else(|| Error::Invalid(format!("no queue {} has given this ticket", ticket.queue)))?
            .wait(ticket.number)
    }

    /// A page for transfers.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn page(&self) -> Result<DmaPage> {
        self.shared.pool.take()
    }

    /// Reads consecutive blocks. Goes on after a failure of transactions.
    ///
    /// # Errors
    /// `Invalid` for blocks beyond the end; `Media` (`EIO`).
    pub fn read(&self, at: Lba, pages: &[DmaPage]) -> Result<()> {
        self.transfer(io::READ, "a read", at, pages)
    }

    /// Writes consecutive blocks, in no transaction. Not durable before a [`flush`](Self::flush), where the device has
    /// a volatile write cache.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write(&self, at: Lba, pages: &[DmaPage]) -> Result<()> {
        self.transfer(io::WRITE, "a write", at, pages)
    }

    fn transfer(&self, opcode: u8, what: &str, at: Lba, pages: &[DmaPage]) -> Result<()> {
        let count = pages.len() as u64;
        if at.0.checked_add(count).is_none_or(|end| end > self.shared.info.blocks) {
            let text = format!("blocks {}+{count}: the device has {}", at.0, self.shared.info.blocks);
            return Err(Error::Invalid(text));
        }
        self.shared.revive()?;
        let ratio = BLOCK as u64 / u64::from(self.shared.info.lba_bytes);
        let mut at = at.0;
        for part in pages.chunks(self.shared.most_pages) {
            let command = Command::transfer(opcode, NAMESPACE, at * ratio, part.len() as u32 * ratio as u32);
            let what = format!("{what} of blocks {at}+{}", part.len());
            self.shared.plain.execute(command, part.to_vec(), &what)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes what has been written durable, of all queues. Does nothing where the device has no volatile write cache.
    ///
    /// # Errors
    /// `Media` (`EIO`).
    pub fn flush(&self) -> Result<()> {
        if !self.shared.info.controller.has_write_cache {
            return Ok(());
        }
        self.shared.revive()?;
        self.shared.plain.execute(Command::new(io::FLUSH, NAMESPACE), Vec::new(), "a flush").map(|_| ())
    }

    /// A queue in memory for the caller alone, with commands of its own: what ordinary drivers use.
    ///
    /// # Errors
    /// `Unsupported` if the controller grants no more; `Media` (`EIO`).
    pub fn plain_queue(&self) -> Result<Arc<PlainQueue>> {
        let shared = &self.shared;
        shared.with_next_queue(|id| {
            let interrupt = interrupt_of(&*shared.link.transport, id);
            let depth = PLAIN_DEPTH.min(shared.info.most_entries);
            let queue = Arc::new(PlainQueue::new(&shared.link, &shared.pool, id, interrupt, depth)?);
            shared.create_plain(&queue)?;
            shared.in_memory.lock().unwrap().push(queue.clone());
            Ok(queue)
        })
    }

    /// From now on each call on it fails, as after a close. The device is not shut down.
    pub(crate) fn end(&self) {
        self.shared.link.end();
    }

    /// Whether it was closed, or has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.link.has_ended()
    }

    /// From now on the controller goes on when this is dropped, as it does when the process dies.
    #[doc(hidden)]
    pub fn abandon(&self) {
        self.shared.link.abandon();
    }

    /// Waits for all transactions, flushes, and shuts the controller down. After that the windows of all queues are
    /// empty, and every call fails.
    ///
    /// # Errors
    /// `Media` (`EIO`): the next open finds what is unfinished.
    pub fn close(&self) -> Result<()> {
        let shared = &self.shared;
        let queues = shared.queues.get().map_or(&[][..], |queues| &queues[..]);
        queues.iter().try_for_each(|queue| queue.drain())?;
        self.flush()?;
        let used = *shared.used.lock().unwrap();
        (PLAIN..=used).rev().try_for_each(|id| shared.delete(id))?;
        let transport = &*shared.link.transport;
        transport.write32(site::SETUP, register::CC, cc::EN | cc::ENTRIES | cc::SHN_NORMAL)?;
        let capabilities = shared.running.capabilities;
        shared.link.wait_register(register::CSTS, csts::SHST, csts::SHST_COMPLETE, capabilities.timeout())?;
        disable(&shared.link, capabilities)?;
        shared.link.end();
        Ok(())
    }

    /// The queues that a life will have.
    ///
    /// # Errors
    /// `Unsupported` if it can have none, with the reason.
    pub(crate) fn shape(&self) -> Result<Shape> {
        let layout = self.layout()?;
        let pages = if self.shared.options.merge { self.shared.most_pages } else { 1 };
        Ok(Shape { queues: layout.queues, entries: layout.depth as usize - 1, pages })
    }
}

impl Shared {
    /// Makes a queue with the next number.
    fn with_next_queue<T>(&self, make: impl FnOnce(u16) -> Result<T>) -> Result<T> {
        // Held, so that numbers are in use without gaps.
        let used = &mut *self.used.lock().unwrap();
        if *used >= self.info.granted {
            let text = format!("{}: it grants {} queue pairs", self.link.transport.name(), self.info.granted);
            return Err(Error::Unsupported(text));
        }
        let made = make(*used + 1)?;
        *used += 1;
        Ok(made)
    }

    /// Deletes the queue with this number, which nothing is in flight on.
    fn delete(&self, id: u16) -> Result<()> {
        // The submission queue before the completion queue that it uses.
        for opcode in [admin::DELETE_SQ, admin::DELETE_CQ] {
            let command = Command { dword10: u32::from(id).into(), ..Command::new(opcode, 0) };
            self.admin.execute(command, Vec::new(), "delete queue")?;
        }
        Ok(())
    }

    fn create(&self, id: u16, completions: (u64, u32), interrupt: u16, ring: (u64, u32)) -> Result<()> {
        let command = |opcode, address: u64, depth: u32, flags: u32| Command {
            prp1: address.into(),
            dword10: (u32::from(id) | (depth - 1) << 16).into(),
            dword11: flags.into(),
            ..Command::new(opcode, 0)
        };
        let has_interrupts = self.link.transport.interrupts() > 0;
        let flags = u32::from(interrupt) << 16 | u32::from(has_interrupts) << 1 | 1;
        let create = command(admin::CREATE_CQ, completions.0, completions.1, flags);
        self.admin.execute(create, Vec::new(), "create completion queue")?;
        let create = command(admin::CREATE_SQ, ring.0, ring.1, u32::from(id) << 16 | 1);
        self.admin.execute(create, Vec::new(), "create submission queue").map(|_| ()).inspect_err(|_| {
            let delete = Command { dword10: u32::from(id).into(), ..Command::new(admin::DELETE_CQ, 0) };
            let _ = self.admin.execute(delete, Vec::new(), "delete queue");
        })
    }

    fn create_plain(&self, queue: &PlainQueue) -> Result<()> {
        let (ring, completions) = queue.addresses();
        let interrupt = interrupt_of(&*self.link.transport, queue.id());
        self.create(queue.id(), (completions, queue.depth()), interrupt, (ring, queue.depth()))?;
        queue.is_created();
        Ok(())
    }

    fn create_queue(&self, index: u16, layout: Layout) -> Result<Arc<Queue>> {
        self.with_next_queue(|id| self.create_numbered(id, index, layout))
    }

    fn create_numbered(&self, id: u16, index: u16, layout: Layout) -> Result<Arc<Queue>> {
        let transport = &*self.link.transport;
        let interrupt = interrupt_of(transport, id);
        let completions = CompletionRing::new(transport, layout.depth)?;
        let ring = transport.region().address() + layout.ring(index);
        self.create(id, (completions.address(), layout.depth), interrupt, (ring, layout.depth))?;
        Ok(Arc::new(Queue {
            index,
            id,
            interrupt,
            link: self.link.clone(),
            pool: self.pool.clone(),
            plain: self.plain.clone(),
            layout,
            region: self.region,
            namespace: NAMESPACE,
            has_write_cache: self.info.controller.has_write_cache,
            acknowledge: self.options.acknowledge,
            most_forced: self.options.most_forced,
            state: Mutex::new(State::new(completions, layout.depth, self.options.first_count)),
        }))
    }

    /// Enables the controller again, with the queues in memory alone, if it was disabled because it did not answer.
    fn revive(&self) -> Result<()> {
        // Other threads wait until the queues are there again.
        let _one = self.reviving.lock().unwrap();
        if self.link.has_ended() {
            return self.link.check();
        }
        let in_memory = self.in_memory.lock().unwrap();
        if self.link.is_off() || !in_memory.iter().all(|queue| queue.is_there()) {
            let capabilities = self.running.capabilities;
            disable(&self.link, capabilities)?;
            self.admin.reset();
            in_memory.iter().for_each(|queue| queue.reset());
            enable(&self.link, capabilities, &self.admin)?;
            self.link.is_on_again();
            ask_for_queues(&self.admin, self.options.queues)?;
            in_memory.iter().try_for_each(|queue| self.create_plain(queue))?;
        }
        Ok(())
    }
}

/// Asks for so many queues, and one in memory. Returns how many there are.
fn ask_for_queues(admin: &PlainQueue, queues: u16) -> Result<u16> {
    let wanted = u32::from(queues.max(1));
    let command = Command {
        dword10: admin::FEATURE_QUEUES.into(),
        dword11: (wanted | wanted << 16).into(),
        ..Command::new(admin::SET_FEATURES, 0)
    };
    let granted = admin.execute(command, Vec::new(), "set number of queues")?.result.get();
    Ok((granted as u16).min((granted >> 16) as u16).saturating_add(1))
}

/// The interrupt of a queue. The admin queue has number 0.
fn interrupt_of(transport: &dyn Transport, queue: u16) -> u16 {
    match transport.interrupts() {
        0 => 0,
        interrupts => queue % interrupts,
    }
}

fn disable(link: &Link, capabilities: Capabilities) -> Result<()> {
    let configuration = link.transport.read32(register::CC)?;
    if configuration & cc::EN != 0 {
        // One that is being enabled may be disabled only when it is ready, or has failed to.
        let _ = link.wait_register(register::CSTS, csts::RDY, csts::RDY, capabilities.timeout());
    }
    link.transport.write32(site::RESET, register::CC, configuration & !cc::EN)?;
    if link.makes(Mistake::ResetNotAwaited) {
        return Ok(());
    }
    link.wait_register(register::CSTS, csts::RDY, 0, capabilities.timeout())
}

fn enable(link: &Link, capabilities: Capabilities, admin: &PlainQueue) -> Result<()> {
    let write = |register, value| link.transport.write32(site::SETUP, register, value);
    let (ring, completions) = admin.addresses();
    let last = admin.depth() - 1;
    write(register::AQA, last | last << 16)?;
    for (register, address) in [(register::ASQ, ring), (register::ACQ, completions)] {
        write(register, address as u32)?;
        write(register + 4, (address >> 32) as u32)?;
    }
    write(register::CC, cc::EN | cc::ENTRIES)?;
    link.wait_register(register::CSTS, csts::RDY, csts::RDY, capabilities.timeout())?;
    admin.is_created();
    Ok(())
}

/// Enables the region. Its content stays. Returns why it cannot be used for queues, if it cannot.
fn enable_region(link: &Link, region: PmrCapabilities) -> Result<Option<String>> {
    let write = |register, value| link.transport.write32(site::SETUP, register, value);
    write(register::PMRCTL, pmr::EN)?;
    let busy = 1 << 8;
    link.wait_register(register::PMRSTS, busy, 0, region.timeout())?;
    if let Some(fault) = PmrStatus(link.transport.read32(register::PMRSTS)?).fault() {
        return Ok(Some(format!("its persistent memory region cannot be relied on: {fault}")));
    }
    if region.barrier().is_none() {
        return Ok(Some("its persistent memory region has no way to make stores durable (PMRWBM is 0)".into()));
    }
    if !region.holds_queues() {
        return Ok(Some("queues cannot stand in its persistent memory region (CMSS is 0)".into()));
    }
    let address = link.transport.region().address();
    write(register::PMRMSCU, (address >> 32) as u32)?;
    write(register::PMRMSCL, address as u32 | pmr::CMSE)?;
    let status = PmrStatus(link.transport.read32(register::PMRSTS)?);
    let refused = || format!("the controller does not take the address {address:#x} for its region (PMRSTS.CBAI)");
    Ok(status.refuses_address().then(refused))
}

const _: () = assert!(IDENTIFY_BYTES == BLOCK);

#[cfg(test)]
mod tests;
