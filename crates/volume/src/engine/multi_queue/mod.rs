//! The engine `multi_queue`: MQFS. A group is one transaction on the queue of the thread that commits it: its blocks
//! and one that describes them. There is no leader, no commit block, and no wait before the last one. (Liao and others,
//! ccNVMe and MQFS, sections 5.1 to 5.5.)
//!
//! # Terms
//!
//! - *page engine*: what the engine shares with `op_log` ([`super::page_engine`]): pages, drafts, bitmaps, the commit.
//! - *queue*, *area*, *description*, *dependency*, *proof*: of the journal ([`wholly_blocks::multi_queue`]), which has
//!   the rules of the transactions.
//! - *atomic*: a group that is ordered and handed over: after a crash it is there wholly or not at all. `fatomic`
//!   returns then. *Durable*: it and what it depends on are on the medium. `fsync` returns then.
//!
//! # Where the paper's mechanisms are
//!
//! | mechanism | here |
//! |---|---|
//! | an area for each queue (5.1) | the log that the superblock names, divided by queues |
//! | `fsync`, `fatomic` (5.1) | the core orders a group under its locks, and then waits for it, or hands it over ([`Engine::wait_for`](super::Engine::wait_for), [`Engine::send`](super::Engine::send)) |
//! | versions of blocks, `chp`, checkpoint (5.2) | the journal's |
//! | shadow pages (5.3) | lines of the group over the newest page, and bits changed there, in memory, under the lock that orders |
//! | path of a new file (5.3) | names are committed by their own calls; a group is ordered after those that changed the same inodes |
//! | ordered mode, data journaling (5.1) | content of fresh blocks goes straight home, or is journaled; what is written over is always journaled ([`DataMode`](crate::DataMode)) |
//! | reuse (5.4), recovery (5.5) | the journal's |
//!
//! # Invariants
//!
//! Those of `op_log`, and:
//!
//! 1. The order of groups is that of dependencies. A group depends on the last ones that wrote its blocks, and on those
//!    that changed the same inodes ([`super::Part`], `after`): so of each file, name and directory a prefix of the
//!    changes survives. Groups that share nothing survive each by itself.
//! 2. What a group frees is free when it is durable, with all that is ordered before it: the watermark is the least of
//!    the queues'. A queue on which nothing is pending does not hold it back.
//! 3. The lives of the journal are the incarnations of the superblock. What a life has left counts for as long as the
//!    superblock has that incarnation: a repair raises it, and the journal is void.
//! 4. Superblocks are in no transaction. They are written plainly, and durable before the life begins in which they
//!    count.
//!
//! Recovery is the journal's: what counts goes home. It can be interrupted and repeated until the next incarnation is
//! durable.

use std::sync::Arc;

use sync::{AtomicU64, Ordering};
use wholly_blocks::TxBlocks;
use wholly_blocks::multi_queue::{self, DiskQueues, MultiQueue, Options, Proof};
use wholly_error::Result;
use wholly_media::Region;

use super::Engine;
use super::kind::{Description, Left, Logs, Opening};
use super::op_log;
use super::page_engine::{self, Below, Of, PageEngine};
use super::patch::Patch;
use crate::format::log::{ForLog, LogArea};
use crate::format::superblock::Superblock;
use crate::format::{BLOCK, Lba};

/// Queues of a new volume, unless somebody chooses.
pub const QUEUES: u16 = 4;
/// The fewest blocks of a queue's area.
const LEAST: u64 = 48;
/// The most blocks of all areas: 64 MiB.
const MOST: u64 = 16384;

/// What is to be known of the engine.
pub const DESCRIPTION: Description = Description {
    name: "multi_queue",
    number: 8,
    about: "The same promise: bitmaps, and a journal for each of several queues",
    log: Some(area),
    make_log: Some(|region, log, volume| MultiQueue::format_region(region, log.run(), volume)),
    sites: &[page_engine::OWN_SITES, multi_queue::SITES],
    open,
    left,
    ..op_log::DESCRIPTION
};

fn open(opening: Opening) -> Option<Box<dyn Engine>> {
    let Opening { region, transactions, queues, log, bitmaps, volume_id, journals_content, tuning, .. } = opening;
    bitmaps?;
    let log = log.filter(|_| transactions.is_none())?;
    let queues = queues.unwrap_or_else(|| Arc::new(DiskQueues::new(region.clone(), queues_in(&log))));
    let trial = tuning.trial;
    let journals_content = journals_content || trial.journals_content;
    let options = Options {
        proof: if trial.believes_window { Proof::Window } else { Proof::Checksum },
        in_turn: trial.queues_in_turn,
        form: trial.form,
        mistake: trial.journal,
        // What is written before the commit is content that makes room in memory: it goes home at once.
        held_fresh: 0,
        journals_fresh: journals_content,
        ..Options::default()
    };
    let blocks = region.len() / BLOCK as u64;
    let journal = Arc::new(MultiQueue::at_rest(queues, (blocks, log.run()), volume_id, options).ok()?);
    let below = Box::new(OnQueues { journal: journal.clone(), incarnation: AtomicU64::new(opening.incarnation) });
    let pages = trial.pages.unwrap_or(opening.cache_bytes / BLOCK);
    let of = Of { name: "multi_queue", keeps_bitmaps: true, places_late: true, journals_content };
    Some(Box::new(PageEngine::new(region, journal, below, (pages, trial), of)))
}

/// The areas of a new volume: 1/64 of it, and more if somebody asks for many queues.
fn area(start: Lba, ForLog { blocks, queues }: ForLog) -> LogArea {
    let all = (blocks / 64).clamp(LEAST, MOST);
    let lanes = queues.map_or((all / (2 * LEAST)).clamp(1, QUEUES.into()), |queues| u64::from(queues.max(1)));
    LogArea { start, half_blocks: all.div_ceil(lanes).max(LEAST).div_ceil(2) as u32, lanes: lanes as u32 }
}

fn queues_in(log: &LogArea) -> u16 {
    log.lanes.clamp(1, u32::from(multi_queue::MOST_QUEUES)) as u16
}

/// Queues of a volume with this engine. On a device that has fewer it uses these.
pub fn queues_of(superblock: &Superblock) -> Option<u16> {
    let log = superblock.log.filter(|_| superblock.engine == DESCRIPTION.number)?;
    Some(queues_in(&log))
}

fn left(region: &dyn Region, logs: &Logs<'_>) -> Left {
    let found = MultiQueue::left(region, logs.area.run(), logs.volume_id, logs.incarnation);
    let patch = |(home, image): (Lba, Lba)| Patch::copied(home.byte(), BLOCK as u64, image.byte());
    Left::of(found.map(|found| found.into_iter().map(patch).collect()))
}

/// On a journal for each queue.
struct OnQueues {
    journal: Arc<MultiQueue>,
    incarnation: AtomicU64,
}

impl Below for OnQueues {
    fn recover(&self) -> Result<()> {
        self.journal.recover(self.incarnation.load(Ordering::Acquire))
    }

    fn start(&self, incarnation: u64) -> Result<()> {
        self.incarnation.store(incarnation, Ordering::Release);
        self.journal.start(incarnation)
    }

    fn close(&self) -> Result<()> {
        self.journal.close()
    }

    fn write_back(&self) -> Result<()> {
        self.journal.bring_home()
    }

    fn images(&self) -> Option<u64> {
        self.journal.guarantees().most_overwrites
    }
}
