//! What world is simulated: media, host file system, threads, and what is broken on purpose.

use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use wholly_blocks::Order;
use wholly_media::{Guarantees, Kind, PersistenceDomain, Site};

/// The number that stands for the kernel where a thread is told: `write_at` on a file in persistent memory.
pub const KERNEL: u64 = u64::MAX - 1;

/// The number that stands for any thread of a process that died (see [`World::kill`](super::World::kill)).
pub const DEAD: u64 = u64::MAX;

/// The number that stands for any thread, of what one has stored and handed over.
pub const ANY: u64 = u64::MAX - 2;

/// How stores to persistent memory that are not fenced may survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmemMode {
    /// Every 8-byte word by itself, whatever the instruction. The mode in which no violation is tolerated.
    Adversarial,
    /// Whole words are non-temporal stores, independent of each other; the parts of words at the head and the tail of a
    /// write are ordinary stores, which survive as a prefix within their cache line (under eADR: as a prefix of the
    /// order of all ordinary stores).
    X86,
}

/// A medium and the rules it obeys at a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Persistent memory.
    Pmem {
        /// `MemoryController` (ADR) or `CpuCaches` (eADR).
        domain: PersistenceDomain,
        /// How unfenced stores survive.
        mode: PmemMode,
    },
    /// A disk.
    Disk {
        /// Bytes that survive wholly or not at all: 512 or 4096, or up to 8192 for the slots of a flash file. A power
        /// of two.
        sector: u32,
    },
}

impl Medium {
    /// Persistent memory behind ADR, every unfenced word by itself.
    pub const PMEM: Medium = Medium::Pmem { domain: PersistenceDomain::MemoryController, mode: PmemMode::Adversarial };

    /// A disk with sectors of 512 bytes.
    pub const DISK: Medium = Medium::Disk { sector: 512 };

    /// A disk with sectors of a whole block.
    pub const BLOCKS: Medium = Medium::Disk { sector: wholly_blocks::BLOCK as u32 };

    /// Whether it is stored to rather than written in blocks.
    pub fn is_pmem(self) -> bool {
        matches!(self, Medium::Pmem { .. })
    }
}

/// What the host file system may do at a crash to what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostModel {
    /// Any subset of pages, of files' attribute changes (a prefix for each file) and of names.
    Weak,
    /// Attribute changes and names survive as a prefix of their common order; data of blocks that a growing write
    /// allocated is there if the new size is; overwrites at any time.
    Ext4Ordered,
    /// Every call is durable when it returns. (Stores into a mapping still need their fence.)
    Synchronous,
}

/// What a [`Mutation`] does to the calls of its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationKind {
    /// The call returns without its ordering effect: a fence drains nothing, a write-through or a change of the log's
    /// length stays pending, a sync syncs nothing. A commit of blocks stays pending; an order of blocks forgets what it
    /// comes after.
    DropOrder,
    /// The call returns without having written anything.
    DropWrite,
    /// What the call wrote is not covered by the next fence or sync that should cover it, only by the one after.
    DelayWrite,
    /// The call returns without an effect, and has it later. A store into a region changes places with the next fence
    /// of its thread, a fence with the next store of its thread. A call of the host has its effect before the next
    /// fence or sync of anything, after all that comes before that.
    Late,
    /// What is one step is two. A rename that replaces a file: the name ends, and begins again. A store into a region:
    /// of each word, or sector of a disk, first one half is stored, then the other.
    Split,
    /// The call fails with this error and has no effect.
    Fail(Errno),
}

/// One thing broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// The calls it applies to.
    pub site: Site,
    /// What becomes of them.
    pub kind: MutationKind,
    /// Only the call with this number (from 0) at this site; `None`: every one.
    pub nth: Option<u64>,
}

impl Mutation {
    /// Every call of `site`.
    pub fn new(site: Site, kind: MutationKind) -> Self {
        Mutation { site, kind, nth: None }
    }
}

/// What transactions of blocks promise in a world, and their bounds: see [`World::blocks`](super::World::blocks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRules {
    /// Which ordered transactions a crash keeps.
    pub order: Order,
    /// How many blocks a transaction may write over without blocks that were lent.
    pub most_overwrites: Option<u64>,
    /// The most pages that are admitted at once.
    pub room: u64,
}

impl Default for BlockRules {
    /// A prefix, without a bound.
    fn default() -> Self {
        BlockRules { order: Order::Total, most_overwrites: None, room: 256 }
    }
}

/// A device whose blocks the log is: see [`World::device`](super::World::device).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRules {
    /// Bytes of its persistent memory region.
    pub region_len: u64,
    /// Whether stores to the region that are ordered survive as a prefix of their order. If not, each word survives by
    /// itself.
    pub in_order: bool,
    /// Whether what it has completed may be lost with the power.
    pub has_write_cache: bool,
}

/// A simulated world.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Length of the log region in bytes when the world is made.
    pub log_len: u64,
    /// What the log is on.
    pub log: Medium,
    /// What the files of the host directory are on.
    pub home: Medium,
    /// The host file system.
    pub host: HostModel,
    /// What survives wholly or not at all of a file's unsynced data on a disk, in bytes: the page of the page cache
    /// (4096), or the sector of the disk below it. A power of two, at most 4096. The directory's
    /// `Guarantees::atomic_unit`.
    pub home_page: u32,
    /// Whether changes of mtime and ctime are part of what a crash may lose.
    pub times: bool,
    /// A fault: the newest version of a sector may also survive torn, with its old bytes, zeros or random bytes from
    /// the tear on. Pages of files on disks tear between sectors, with their old ones behind the tear.
    pub tearing: bool,
    /// Added to the numbers of all inodes: in a copy of a directory they are others.
    pub inodes_from: u64,
    /// Whether the host tells when an object was born. Where it does not, an inode number that is used again means
    /// another object.
    pub births: bool,
    /// What transactions of the log's blocks promise.
    pub blocks: BlockRules,
    /// The device whose blocks the log is; none: it is no device's.
    pub device: Option<DeviceRules>,
    /// What is broken on purpose.
    pub mutations: Vec<Mutation>,
    /// The identity of the calling thread. Must not be [`KERNEL`], [`DEAD`] or [`ANY`]. Called without any lock held.
    pub thread: fn() -> u64,
}

impl Default for SimConfig {
    /// 64 KiB of log and the home files on adversarial persistent memory, over a weak host file system.
    fn default() -> Self {
        SimConfig {
            log_len: 64 << 10,
            log: Medium::PMEM,
            home: Medium::PMEM,
            host: HostModel::Weak,
            home_page: 4096,
            times: true,
            tearing: false,
            inodes_from: 0,
            births: true,
            blocks: BlockRules::default(),
            device: None,
            mutations: Vec::new(),
            thread: os_thread,
        }
    }
}

impl SimConfig {
    /// Log and home files on persistent memory (adversarial), over a weak host file system.
    pub fn pmem() -> Self {
        Self::default()
    }

    /// Log and home files on a disk of 512-byte sectors, over a weak host file system.
    pub fn disk() -> Self {
        SimConfig { log: Medium::DISK, home: Medium::DISK, ..Self::default() }
    }

    /// The log is a disk with transactions of blocks.
    pub fn blocks(blocks: u64, rules: BlockRules) -> Self {
        let log_len = blocks * wholly_blocks::BLOCK as u64;
        SimConfig { log_len, log: Medium::BLOCKS, blocks: rules, ..Self::disk() }
    }

    /// The log is the blocks of a device that has a persistent memory region. Blocks tear.
    pub fn device(blocks: u64, device: DeviceRules) -> Self {
        let log_len = blocks * wholly_blocks::BLOCK as u64;
        SimConfig { log_len, log: Medium::BLOCKS, device: Some(device), tearing: true, ..Self::disk() }
    }

    /// Whether a process can read what is durable rather than what it sees: around the page cache of a disk.
    pub fn shows_what_is_durable(&self) -> bool {
        !(self.log.is_pmem() && self.home.is_pmem())
    }

    pub(super) fn log_guarantees(&self) -> Guarantees {
        guarantees(self.log, "log", None)
    }

    pub(super) fn host_guarantees(&self) -> Guarantees {
        guarantees(self.home, "home", Some(self.home_page))
    }

    pub(super) fn check(&self) {
        assert!(self.home_page.is_power_of_two() && (8..=4096).contains(&self.home_page), "home_page");
        for medium in [self.log, self.home] {
            if let Medium::Disk { sector } = medium {
                assert!(sector.is_power_of_two() && (8..=8192).contains(&sector), "sector");
            }
        }
    }
}

fn guarantees(medium: Medium, what: &str, page: Option<u32>) -> Guarantees {
    match medium {
        Medium::Pmem { domain, mode } => Guarantees {
            kind: Kind::Pmem,
            atomic_unit: 8,
            block: 8,
            domain,
            emulated: true,
            description: format!("{what}: persistent memory, simulated ({mode:?})"),
        },
        Medium::Disk { sector } => Guarantees {
            kind: Kind::Disk,
            atomic_unit: page.unwrap_or(sector),
            block: sector,
            domain: PersistenceDomain::Device,
            emulated: true,
            description: format!("{what}: disk, simulated (sectors of {sector} bytes)"),
        },
    }
}

/// A small number for each thread of the operating system, in the order in which they first ask.
pub fn os_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.with(|n| *n)
}
