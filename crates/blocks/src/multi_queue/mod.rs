//! The multi-queue journal (MQFS, SOSP 2021, 5.1 to 5.5): [`TxBlocks`] over the [`Queues`] of a device. Each queue has
//! an area of its own. A transaction is one description and its blocks, all handed over at once: there is no commit
//! block, no thread, and no wait in between.
//!
//! # Terms
//!
//! - *area*: of a queue, a ring of blocks in the journal. *Image*: the content of a block, in an area. *Description*:
//!   the paper's JH. A block is *journaled*, or written *directly*, straight home. *Revoked*: free, so that older
//!   images of it do not count (JR).
//! - *sequence*: a place in the order of all. *Place*: in a queue, without gaps. *Complete*: on the medium, with all
//!   before it on its queue. *Settled*: complete, and all that it depends on is settled.
//! - *mark*: of a queue, up to which place it is complete. Each description and each header has the marks of all
//!   queues. *Proven*: below a mark that is itself durable.
//! - *tail*: a sequence. All up to it is home, or superseded by what is home.
//! - *going*: a block of which a version is on its way home (`chp`). All other versions are `log` in the paper.
//!
//! # The way of a transaction
//!
//! | step | what is done | the device |
//! |---|---|---|
//! | write | room for an image in the area, kept; pages in memory, but for most fresh ones of a large transaction | those go home |
//! | order | sequence, place and blocks of the areas are given out; its versions are read from now on | |
//! | send | descriptions with checksums and marks, images, direct blocks | one transaction |
//! | wait | it, what is before it on its queue, and what it depends on | |
//! | no room | what is settled goes home; the tail rises | writes, a flush, the header |
//!
//! # Invariants
//!
//! 1. A transaction depends on the last one that wrote each of its blocks, in whatever way, and on what the caller
//!    names. Recovery keeps a prefix of each queue, all of them closed under dependency (M1).
//! 2. Who orders holds the callers' locks, and takes the sequence under the lock of its queue: versions of a block have
//!    the order of their sequences (M6).
//! 3. A version is superseded only by a settled one, and only settled ones go home (M4).
//! 4. Room is given back below the tail alone, once the header that says so is durable; recovery ignores what is below
//!    (M5).
//! 5. A fresh block is journaled, not written directly, if a version of it is going, if who has freed it is not
//!    settled, or if who wrote it directly last is not proven. Before anything goes home over a block that was written
//!    directly, a header proves that (5.4 case 1, M7, M17). Otherwise it is written directly, which revokes older
//!    images (case 2).
//! 6. Recovery makes its verdict durable before it changes anything, and raises the incarnation, which all checks are
//!    seeded with, once all is home (M2). A second recovery finds the same.
//! 7. What running transactions have written has room in an area, or in blocks that they were lent: `order`, `send` and
//!    `wait` never lack space. Fresh content that is home already takes room for what describes it when the transaction
//!    is admitted, at the latest when it is ordered. A transaction with lent blocks is durable for its caller once it
//!    is home, and the tail has passed it: then these are free.
//! 8. After an error of the device everything fails.
//!
//! | file | idea |
//! |---|---|
//! | `queues.rs` | the device |
//! | `disk.rs`, `look.rs` | a disk as one, and one that is only read |
//! | `plain.rs` | a device as a region |
//! | `layout.rs` | the bytes |
//! | `running.rs`, `write.rs` | transactions that run |
//! | `queue.rs`, `order.rs` | transactions that are ordered |
//! | `tree.rs`, `read.rs` | versions of blocks, and the plain view |
//! | `send.rs` | handing over, and waiting |
//! | `checkpoint.rs` | bringing home |
//! | `recover.rs` | what a crash has left |

mod checkpoint;
mod disk;
mod layout;
mod look;
mod order;
mod plain;
mod queue;
mod queues;
mod read;
mod recover;
mod running;
mod send;
mod tree;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sync::{AtomicBool, AtomicU64, Condvar, Mutex, OnceLock, Ordering};
use wholly_error::{Error, Result};
use wholly_media::{Region, Site};

use crate::plain::Plain;
use crate::{BLOCK, BlockGuarantees, Counters, Lba, Order, Page, Placement, Run, Sequence, Tag, TxBlocks, Txid};
#[doc(hidden)]
pub use checkpoint::GoingHome;
pub use disk::DiskQueues;
pub use layout::MOST_QUEUES;
use layout::{Areas, Header, LEAST_AREA, Seed, entries_of};
use look::Looked;
pub use plain::region_of;
use queue::{Ordered, Queue};
pub use queues::{Life, QueueGuarantees, Queues, Unfinished, Write};
use running::AllRunning;
use tree::{Place, Progress, Trees};

macro_rules! sites {
    ($($(#[doc = $doc:literal])* $name:ident = $site:literal,)*) => {
        $($(#[doc = $doc])* const $name: Site = Site($site);)*
        /// The persistence sites of the journal. All others are its callers'.
        pub const SITES: &[Site] = &[$($name),*];
    };
}

sites! {
    /// Versions go home.
    HOME = "mq.home",
    /// They are durable.
    HOME_FLUSH = "mq.home.flush",
    /// The header, with a new tail or new marks.
    HEADER = "mq.header",
    /// It is durable.
    HEADER_FLUSH = "mq.header.flush",
    /// Transactions that are in the way are handed over.
    ROOM = "mq.room",
    /// What recovery believes is made durable.
    RECOVER_BELIEVE = "mq.recover.believe",
    /// What recovery has decided.
    RECOVER_VERDICT = "mq.recover.verdict",
    /// It is durable.
    RECOVER_VERDICT_FLUSH = "mq.recover.verdict.flush",
    /// What counts goes home.
    RECOVER_HOME = "mq.recover.home",
    /// It is durable.
    RECOVER_HOME_FLUSH = "mq.recover.home.flush",
    /// The header of the next life.
    RAISE = "mq.recover.raise",
    /// It is durable.
    RAISE_FLUSH = "mq.recover.raise.flush",
    /// The device begins a life.
    START = "mq.start",
    /// The device ends it.
    CLOSE = "mq.close",
}

/// What is believed after a crash of the last transactions of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Those whose checksums hold: of their descriptions, images, and direct blocks.
    Checksum,
    /// Those that the device does not name as unfinished: the paper's way. Blocks have no checksums. It needs a device
    /// that acknowledges a transaction only once it is certain not to name it any more.
    Window,
}

/// The paper taken literally, or a mistake, for tests: what the explorer must see.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// M1: recovery does not ask what a transaction depends on.
    NoDependencies,
    /// M2: recovery does not raise the incarnation.
    SameIncarnation,
    /// M4: a version is superseded by one that is not settled.
    SupersededEarly,
    /// M5: the tail of one area rises while others have older images.
    OlderOutlives,
    /// M6: a transaction has its number from its begin, and not from where its pages are copied.
    NumberEarly,
    /// M7: a freed block is written directly before that is settled.
    ReusedEarly,
    /// M17: descriptions have no marks of other queues, and headers prove nothing before a block goes home.
    NoProof,
    /// `after` is ignored.
    NoAfter,
    /// A block that is going is written directly.
    DirectOverGoing,
    /// Recovery does not ask for the content of direct blocks.
    DirectUnchecked,
    /// A direct block does not revoke older images.
    NoRevocation,
    /// The verdict is not durable before what counts goes home.
    NoVerdict,
    /// M1: what a dropped transaction takes along is not asked for what it takes along.
    ClosureOnce,
}

/// What a transaction hands over to the device. For measurement: only the default serves a user.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Their blocks and descriptions. The last description is the commit.
    #[default]
    Described,
    /// And another block, which says that the transaction is complete, as other journals have it: the last write.
    CommitBlock,
    /// Their blocks alone, each straight home. After a crash nothing is promised.
    InPlace,
}

/// One block of so many of an area is for descriptions of content that is home already.
const SPARE: u64 = 16;

/// How a journal is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is believed after a crash.
    pub proof: Proof,
    /// The most pages that are admitted together. `None`: a quarter of an area.
    pub room: Option<u64>,
    /// The most blocks that a transaction writes over. `None`: what an area has room for.
    pub most_overwrites: Option<u64>,
    /// Transactions take queues in turn, and not by the thread that writes first: for tests.
    #[doc(hidden)]
    pub in_turn: bool,
    /// Fresh pages of a transaction that stay in memory: the others go home before it is ordered.
    pub held_fresh: u64,
    /// Fresh pages that were admitted are journaled, as those are that are written over (data journaling, 5.1).
    pub journals_fresh: bool,
    #[doc(hidden)]
    pub form: Form,
    #[doc(hidden)]
    pub mistake: Option<Mistake>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            proof: Proof::Checksum,
            room: None,
            most_overwrites: None,
            held_fresh: 16,
            journals_fresh: false,
            in_turn: false,
            form: Form::Described,
            mistake: None,
        }
    }
}

/// See the module.
pub struct MultiQueue(Arc<Shared>);

pub(crate) struct Shared {
    device: Arc<dyn Queues>,
    guarantees: BlockGuarantees,
    options: Options,
    areas: Areas,
    volume: [u8; 16],
    /// The incarnation, and what checks are seeded with, once a life has begun.
    life: OnceLock<(u64, Seed)>,
    queues: Vec<Queue>,
    trees: Trees,
    running: AllRunning,
    /// The last sequence that was given out.
    last: AtomicU64,
    /// The tail of the journal.
    tail: AtomicU64,
    turns: AtomicU64,
    /// Sequences of those that have images in lent blocks.
    away: Mutex<BTreeSet<u64>>,
    /// The newest header; none while blocks go home.
    homing: Mutex<Option<Header>>,
    /// Blocks have come home.
    homed: Condvar,
    /// How many writes in no transaction have returned, and how many of these are durable.
    written: AtomicU64,
    flushed: AtomicU64,
    /// The sequences of transactions that have written nothing: what they come after.
    empty: Mutex<BTreeMap<u64, Vec<(u16, u64)>>>,
    /// Nothing is ordered any more.
    is_ending: AtomicBool,
    poisoned: AtomicBool,
    why: Mutex<Option<String>>,
    counters: AllCounters,
}

#[derive(Default)]
struct AllCounters {
    writes: AtomicU64,
    reads: AtomicU64,
    discards: AtomicU64,
    commits: AtomicU64,
    committed: AtomicU64,
    depending: AtomicU64,
    aborts: AtomicU64,
    plain_writes: AtomicU64,
    plain_flushes: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

fn busy(at: u64) -> Error {
    Error::Busy(format!("block {at}"), "a running transaction has written it; end that one first".into())
}

impl MultiQueue {
    /// Makes an empty journal in these blocks. Nobody may use the device meanwhile. Durable on return.
    ///
    /// # Errors
    /// `NoSpace` if they are too few; the medium's.
    pub fn format(device: &dyn Queues, log: Run, volume: [u8; 16], options: &Options) -> Result<()> {
        let areas = areas(device, log, options)?;
        let mut write = |site, at, page: &Page| device.write(site, at, std::slice::from_ref(page));
        recover::format((&mut write, &|site| device.flush(site)), areas, volume, options)
    }

    /// The same on a region.
    ///
    /// # Errors
    /// The medium's.
    pub fn format_region(region: &dyn Region, log: Run, volume: [u8; 16]) -> Result<()> {
        let mut write = |site, at: Lba, page: &Page| Ok(region.write(site, at.byte(), &page[..])?);
        let areas = Areas { log, queues: 1 };
        recover::format((&mut write, &|site| Ok(region.fence(site)?)), areas, volume, &Options::default())
    }

    /// Recovers a journal that counts its lives by itself, so that all that counts is home, and begins the next.
    /// Transactions write the first `blocks` blocks of the device, but for the log.
    ///
    /// # Errors
    /// `Corrupt` for a journal that has rotted, with the place; `Unsupported`; `NoSpace`; the medium's.
    pub fn open(device: Arc<dyn Queues>, place: (u64, Run), volume: [u8; 16], options: Options) -> Result<MultiQueue> {
        let journal = Self::at_rest(device, place, volume, options)?;
        let Shared { device, areas, options, .. } = &*journal.0;
        let incarnation = recover::recover(&**device, *areas, volume, options, None)?;
        journal.start(incarnation + u64::from(options.mistake != Some(Mistake::SameIncarnation)))?;
        Ok(journal)
    }

    /// A journal of something that counts its lives: nothing of it is recovered, and no life has begun. Blocks can be
    /// read, as they are at home.
    ///
    /// # Errors
    /// `Unsupported`; `NoSpace`.
    pub fn at_rest(
        device: Arc<dyn Queues>,
        (blocks, log): (u64, Run),
        volume: [u8; 16],
        options: Options,
    ) -> Result<MultiQueue> {
        let areas = areas(&*device, log, &options)?;
        let area = areas.len();
        let room = options.room.unwrap_or(area / 4);
        let options = Options { held_fresh: options.held_fresh.min(area / 4), ..options };
        // With all its descriptions, and the fresh pages that stay in memory.
        let described = area / entries_of(areas.queues) as u64 + 1 + area / SPARE;
        let most = area - described - options.held_fresh - u64::from(options.form == Form::CommitBlock);
        let of = device.guarantees();
        let guarantees = BlockGuarantees {
            blocks,
            order: Order::Dependent,
            steals_overwrites: false,
            most_overwrites: Some(options.most_overwrites.unwrap_or(u64::MAX).min(most)),
            room: room.min(most),
            takes_lent: true,
            lent_by_overwrite: entries_of(areas.queues) as u64,
            zeroes_discarded: false,
            checks_blocks: false,
            emulated: of.emulated,
            description: format!("{}, a journal for each of {} queues", of.description, areas.queues),
        };
        Ok(MultiQueue(Arc::new(Shared {
            guarantees,
            areas,
            volume,
            life: OnceLock::new(),
            queues: (0..areas.queues).map(|_| Queue::new()).collect(),
            trees: Trees::new(areas.queues),
            running: AllRunning::new(),
            last: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            away: Mutex::default(),
            homing: Mutex::new(None),
            homed: Condvar::new(),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            empty: Mutex::default(),
            is_ending: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            why: Mutex::new(None),
            counters: AllCounters::default(),
            options,
            device,
        })))
    }

    /// Brings home what counts of a life that a crash has ended, durably. What another life has left does not count.
    /// The same can be done again, until another life begins.
    ///
    /// # Errors
    /// `Corrupt` for a journal that has rotted, with the place; the medium's.
    pub fn recover(&self, incarnation: u64) -> Result<()> {
        let Shared { device, areas, volume, options, .. } = &*self.0;
        recover::recover(&**device, *areas, *volume, options, Some(incarnation)).map(|_| ())
    }

    /// What [`recover`](Self::recover) would store in a region, in this order: homes, and the blocks where their images
    /// are. Only reads.
    ///
    /// # Errors
    /// As `recover`.
    pub fn left(region: &dyn Region, log: Run, volume: [u8; 16], incarnation: u64) -> Result<Vec<(Lba, Lba)>> {
        recover::left(&Looked::new(region), log, volume, incarnation)
    }

    /// Begins a life: all that was in the journal is void. Durable on return. Transactions can begin.
    ///
    /// # Errors
    /// The medium's.
    pub fn start(&self, incarnation: u64) -> Result<()> {
        let Shared { device, areas, volume, options, .. } = &*self.0;
        let header = recover::start(&**device, *areas, *volume, options, incarnation)?;
        device.start(START, Life { volume: *volume, incarnation })?;
        self.0.life.get_or_init(|| (incarnation, Seed::new(*volume, incarnation)));
        *self.0.homing.lock().unwrap() = Some(header);
        Ok(())
    }

    /// Brings home all that is ordered, durably.
    ///
    /// # Errors
    /// `Poisoned`; the medium's.
    pub fn bring_home(&self) -> Result<()> {
        self.0.check()?;
        self.0.checkpoint(true)
    }

    /// The first half of [`bring_home`](Self::bring_home), for tests: what others do meanwhile.
    #[doc(hidden)]
    pub fn begin_to_bring_home(&self) -> Result<GoingHome> {
        self.0.begin_checkpoint(self.0.take_header()?, false)
    }

    /// The second half.
    #[doc(hidden)]
    pub fn end_to_bring_home(&self, begun: GoingHome) -> Result<()> {
        self.0.end_checkpoint(begun)
    }

    /// Brings all home, and ends the life: what a device told of transactions is not needed any more.
    ///
    /// # Errors
    /// `Poisoned`; the medium's.
    pub fn close(&self) -> Result<()> {
        self.0.check()?;
        self.0.is_ending.store(true, Ordering::Release);
        // After this, each order has its place, or is refused.
        self.0.queues.iter().for_each(|queue| drop(queue.state.lock().unwrap()));
        self.0.checkpoint(true)?;
        self.0.write_empty()?;
        self.0.failing(self.0.device.close(CLOSE))?;
        self.0.poison("the journal was closed");
        Ok(())
    }
}

/// The areas of a device's queues in a log.
fn areas(device: &dyn Queues, log: Run, options: &Options) -> Result<Areas> {
    if options.proof == Proof::Window && !device.guarantees().tells_unfinished {
        let why = "a journal that believes the device's window: the device tells of none; take checksums for a proof";
        return Err(Error::unsupported(why));
    }
    let areas = |queues| Areas { log, queues };
    let wanted = device.guarantees().queues.clamp(1, MOST_QUEUES);
    // Rather fewer queues than small areas.
    let queues = (1..=wanted).rev().find(|queues| areas(*queues).len() >= LEAST_AREA);
    let least = 2 + LEAST_AREA;
    queues.map(areas).ok_or_else(|| Error::NoSpace(format!("a journal of {} blocks: it takes {least}", log.count)))
}

impl Progress for Shared {
    fn is_settled(&self, place: Place) -> bool {
        place.place <= self.queues[usize::from(place.queue)].settled.load(Ordering::Acquire)
    }

    fn is_proven(&self, place: Place) -> bool {
        place.place <= self.queues[usize::from(place.queue)].proven.load(Ordering::Acquire)
    }
}

impl Shared {
    /// Of this life.
    fn incarnation(&self) -> u64 {
        self.life.get().expect("a life has begun").0
    }

    fn seed(&self) -> Seed {
        self.life.get().expect("a life has begun").1
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.options.mistake == Some(mistake)
    }

    fn queue(&self, number: u16) -> &Queue {
        &self.queues[usize::from(number)]
    }

    fn check(&self) -> Result<()> {
        match self.poisoned.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(Error::Poisoned(self.why.lock().unwrap().clone().unwrap_or_default())),
        }
    }

    /// Whatever was accepted is in doubt after this error.
    fn failing<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.poison(&error.to_string()))
    }

    fn poison(&self, why: &str) {
        self.why.lock().unwrap().get_or_insert_with(|| why.to_owned());
        self.poisoned.store(true, Ordering::Release);
        self.homed.notify_all();
        for queue in &self.queues {
            drop(queue.state.lock().unwrap());
            queue.changed.notify_all();
        }
    }

    /// That the blocks exist.
    fn check_run(&self, run: Run) -> Result<()> {
        match run.start.0.checked_add(run.count) {
            Some(end) if end <= self.guarantees.blocks => Ok(()),
            _ => {
                let text = format!("blocks {}+{} of a medium of {}", run.start.0, run.count, self.guarantees.blocks);
                Err(Error::Invalid(text))
            }
        }
    }

    /// That a sequence was given out.
    fn check_given(&self, sequence: Sequence) -> Result<()> {
        match sequence.0 <= self.last.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(Error::Invalid(format!("nothing was ordered as {}", sequence.0))),
        }
    }

    /// All up to it is settled.
    fn durable(&self) -> Sequence {
        let last = self.last.load(Ordering::Acquire);
        let unsettled = |queue: &Queue| {
            let state = queue.state.lock().unwrap();
            (state.settled < state.last()).then(|| state.get(state.first.max(state.settled + 1)).place.sequence - 1)
        };
        let settled = self.queues.iter().filter_map(unsettled).min().unwrap_or(last).min(last);
        let away = self.away.lock().unwrap().first().map_or(u64::MAX, |sequence| sequence - 1);
        Sequence(settled.min(away))
    }
}

impl TxBlocks for MultiQueue {
    fn guarantees(&self) -> &BlockGuarantees {
        &self.0.guarantees
    }

    fn begin(&self) -> Result<Txid> {
        self.0.check()?;
        if self.0.life.get().is_none() {
            return Err(Error::Invalid("the journal is not open: begin a life first".into()));
        }
        let tx = self.0.running.begin(self.0.incarnation());
        if self.0.makes(Mistake::NumberEarly) {
            let early = self.0.last.fetch_add(1, Ordering::AcqRel) + 1;
            self.0.running.get(tx)?.lock().unwrap().early = Some(early);
        }
        Ok(tx)
    }

    fn admit(&self, tx: Txid, pages: u64) -> Result<()> {
        let shared = &*self.0;
        shared.check()?;
        if pages > shared.guarantees.room {
            let room = shared.guarantees.room;
            return Err(Error::NoSpace(format!(
                "{pages} pages at once: there is room for {room}; write in more steps"
            )));
        }
        let running = shared.running.get(tx)?;
        let running = &mut *running.lock().unwrap();
        shared.secure(running, (pages, pages), true)?;
        running.admitted += pages;
        Ok(())
    }

    fn make_room(&self, _: Site) -> Result<()> {
        let shared = &*self.0;
        shared.check()?;
        let is_half_full = |queue: &Queue| {
            let state = queue.state.lock().unwrap();
            2 * (state.head - state.tail) > shared.areas.len()
        };
        while shared.queues.iter().any(is_half_full) {
            shared.checkpoint(false)?;
        }
        Ok(())
    }

    fn write(&self, site: Site, tx: Txid, at: Lba, page: Page, how: Placement, _: Tag) -> Result<()> {
        self.0.check()?;
        self.0.check_run(Run { start: at, count: 1 })?;
        self.0.write(site, tx, at, page, how)?;
        count(&self.0.counters.writes, 1);
        Ok(())
    }

    fn read(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8; BLOCK]) -> Result<()> {
        self.0.check()?;
        self.0.check_run(Run { start: at, count: 1 })?;
        count(&self.0.counters.reads, 1);
        if let Some(tx) = tx {
            let running = self.0.running.get(tx)?;
            let running = running.lock().unwrap();
            if let Some((page, _)) = running.pages.get(&at.0) {
                bytes.copy_from_slice(&page[..]);
                return Ok(());
            }
            if running.stored.get(at.0).is_some() {
                return self.0.device.read(at, bytes);
            }
            if let Some((image, _)) = running.spilled.get(&at.0) {
                return self.0.device.read(*image, bytes);
            }
            if running.discarded.get(at.0).is_some() {
                bytes.fill(0);
                return Ok(());
            }
        }
        self.0.read_committed(at, bytes)
    }

    fn read_run(&self, tx: Option<Txid>, at: Lba, bytes: &mut [u8]) -> Result<()> {
        let shared = &*self.0;
        let run = Run { start: at, count: (bytes.len() / BLOCK) as u64 };
        shared.check()?;
        shared.check_run(run)?;
        let is_own = match tx {
            None => false,
            Some(tx) => !shared.running.get(tx)?.lock().unwrap().is_empty(),
        };
        if !is_own && bytes.len().is_multiple_of(BLOCK) && shared.read_home(at, bytes)? {
            count(&shared.counters.reads, run.count);
            return Ok(());
        }
        crate::device::each_block(at, bytes, |at, block| self.read(tx, at, block))
    }

    fn discard(&self, _: Site, tx: Txid, run: Run) -> Result<()> {
        let shared = &*self.0;
        shared.check()?;
        shared.check_run(run)?;
        let blocks = run.start.0..run.start.0 + run.count;
        let running = shared.running.get(tx)?;
        let running = &mut *running.lock().unwrap();
        // A run that is stored may become two.
        shared.secure(running, (2, 0), false)?;
        shared.trees.claim(tx, blocks.clone()).map_err(busy)?;
        let pages: Vec<u64> = running.pages.range(blocks.clone()).map(|(block, _)| *block).collect();
        for (_, how) in pages.iter().filter_map(|block| running.pages.remove(block)) {
            let count = if how == Placement::Overwrite { &mut running.overwrites } else { &mut running.fresh };
            *count = count.saturating_sub(1);
        }
        running.stored.clear(blocks.clone());
        running.revoked.clear(blocks.clone());
        running.spilled.retain(|block, _| !blocks.contains(block));
        running.discarded.set(blocks, ());
        count(&shared.counters.discards, run.count);
        Ok(())
    }

    fn lend(&self, tx: Txid, run: Run) -> Result<()> {
        let shared = &*self.0;
        shared.check()?;
        shared.check_run(run)?;
        let blocks = run.start.0..run.start.0 + run.count;
        let running = shared.running.get(tx)?;
        let running = &mut *running.lock().unwrap();
        shared.secure(running, (1, 0), false)?;
        for (part, tree) in shared.trees.parts(blocks.clone()) {
            if let Some((taken, _)) = tree.running.within(part).next() {
                return Err(busy(taken.start));
            }
        }
        shared.trees.claim(tx, blocks.clone()).map_err(busy)?;
        // A checkpoint proves whoever has written one of them directly, and brings their versions home: nothing is
        // written to them later.
        let mut parts = shared.trees.parts(blocks.clone());
        let is_known = parts.any(|(part, mut tree)| {
            tree.known(part.clone()).into_iter().for_each(|block| tree.prune(block, shared));
            !tree.known(part.clone()).is_empty() || tree.zeros.within(part).next().is_some()
        });
        drop(parts);
        if is_known {
            shared.checkpoint(true).inspect_err(|_| shared.trees.unclaim(blocks.clone()))?;
        }
        running.unused.extend(blocks.clone().rev());
        running.lent.set(blocks, ());
        Ok(())
    }

    fn abort(&self, _: Site, tx: Txid) -> Result<()> {
        let shared = &*self.0;
        shared.check()?;
        let running = std::mem::take(&mut *shared.running.get(tx)?.lock().unwrap());
        running.blocks().for_each(|block| shared.trees.unclaim(block..block + 1));
        running.discarded.iter().chain(running.lent.iter()).for_each(|(run, ())| shared.trees.unclaim(run));
        shared.running.end(tx);
        shared.give_back(&running);
        count(&shared.counters.aborts, 1);
        Ok(())
    }

    fn order(&self, site: Site, txs: &[Txid], after: &[Sequence]) -> Result<Sequence> {
        let shared = &*self.0;
        shared.check()?;
        for (i, tx) in txs.iter().enumerate() {
            if txs[..i].contains(tx) {
                return Err(Error::Invalid(format!("transaction {:#x} is named twice", tx.0)));
            }
        }
        let all = txs.iter().map(|tx| Ok((*tx, shared.running.get(*tx)?))).collect::<Result<Vec<_>>>()?;
        let last = shared.last.load(Ordering::Acquire);
        if after.iter().any(|after| after.0 > last) {
            return Err(Error::Invalid("a sequence that was not given out".into()));
        }
        if txs.is_empty() {
            return Ok(Sequence(last));
        }
        shared.order(site, &all, after)
    }

    fn send(&self, site: Site, upto: Sequence) -> Result<()> {
        self.0.check()?;
        self.0.check_given(upto)?;
        self.0.find(upto.0).into_iter().try_for_each(|(queue, place)| self.0.send_queue(site, queue, place))
    }

    fn wait(&self, site: Site, upto: Sequence) -> Result<()> {
        self.0.check()?;
        self.0.check_given(upto)?;
        self.0.find(upto.0).into_iter().try_for_each(|found| self.0.settle(site, found))?;
        while self.0.away.lock().unwrap().contains(&upto.0) {
            self.0.checkpoint(true)?;
        }
        Ok(())
    }

    fn durable(&self) -> Sequence {
        self.0.durable()
    }

    fn plain(&self) -> Arc<dyn Region> {
        let unit = self.0.device.guarantees().plain_unit;
        Arc::new(Plain::new(self.0.clone(), &self.0.guarantees, unit))
    }

    fn counters(&self) -> Counters {
        let of = &self.0.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            writes: get(&of.writes),
            reads: get(&of.reads),
            discards: get(&of.discards),
            commits: get(&of.commits),
            committed: get(&of.committed),
            depending: get(&of.depending),
            aborts: get(&of.aborts),
            plain_writes: get(&of.plain_writes),
            plain_flushes: get(&of.plain_flushes),
            ..Counters::default()
        }
    }
}
