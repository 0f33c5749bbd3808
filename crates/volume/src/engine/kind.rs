//! Which engines there are, and what is to be known of one before a volume is open: its *description*. That is in its
//! own module; here an engine has a line.

use std::sync::Arc;

use wholly_blocks::TxBlocks;
use wholly_blocks::multi_queue::Queues;
use wholly_error::{Error, Result};
use wholly_media::{Guarantees, Region, Site};

use super::hybrid_log::WriteBack;
use super::patch::Patch;
use super::{Engine, InoGen, InodeMap, Moved, Trial, corrupt, multi_queue};
use crate::format::bitmap::Layout;
use crate::format::head::HeadTable;
use crate::format::log::{ForLog, LogArea, LogSeed, MakeLog};
use crate::format::superblock::{COMPATIBLE_JOURNALED, Superblock};
use crate::format::{Fault, Lba, Seed};

/// What is to be known of an engine.
pub struct Description {
    /// Its name.
    pub name: &'static str,
    /// What stands in superblocks. It never changes.
    pub number: u32,
    /// What it is for, in a line of help.
    pub about: &'static str,
    /// Whether each call, and each group, is there wholly or not at all after a crash.
    pub promises: bool,
    /// Whether it takes disks, too, and not persistent memory alone.
    pub takes_disks: bool,
    /// Its log on a new volume, given where it begins and what it is made for.
    pub log: Option<fn(Lba, ForLog) -> LogArea>,
    /// Whether that is zeros on a new volume. Entries prove themselves and need none; writing to space that a disk has
    /// only allocated is slow.
    pub zeroes_log: bool,
    /// What else the log of a new volume needs.
    pub make_log: Option<MakeLog>,
    /// Whether a new volume has a table of heads.
    pub has_heads: bool,
    /// Whether its volumes have bitmaps, which it keeps in step.
    pub keeps_bitmaps: bool,
    /// Where it stores.
    pub sites: &'static [&'static [Site]],
    /// The engine of a volume that is being opened. `None`: its superblock does not name what it has on the medium.
    pub open: fn(Opening) -> Option<Box<dyn Engine>>,
    /// What the log of a volume that was not unmounted has to store yet. Only reads.
    pub left: fn(&dyn Region, &Logs<'_>) -> Left,
}

/// A volume that is being opened.
pub struct Opening {
    pub region: Arc<dyn Region>,
    /// The medium's own transactions, if it has some.
    pub transactions: Option<Arc<dyn TxBlocks>>,
    /// The medium's queues, if it has some.
    pub queues: Option<Arc<dyn Queues>>,
    pub log: Option<LogArea>,
    pub heads: Option<HeadTable>,
    pub bitmaps: Option<Layout>,
    /// Blocks of the volume.
    pub blocks: u64,
    /// The version of its format.
    pub version: u32,
    pub volume_id: [u8; 16],
    pub volume: Seed,
    pub incarnation: u64,
    /// Whether new content is journaled, too.
    pub journals_content: bool,
    pub cache_bytes: usize,
    pub tuning: Tuning,
}

/// What a medium has beside a region.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Has {
    /// Transactions of its own.
    pub transactions: bool,
    /// So many queues.
    pub queues: Option<u16>,
}

impl Has {
    /// How many queues a new volume has, given the number that the user asks for, if any. `None`: as many as the engine
    /// takes by itself.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the medium has fewer.
    pub fn queues_for(self, chosen: Option<u16>) -> Result<Option<u16>> {
        match (self.queues, chosen) {
            (Some(most), Some(queues)) if queues > most => Err(Error::Invalid(format!(
                "{queues} queues: the device has {most} for transactions, so a volume has from 1 to {most}"
            ))),
            (Some(most), None) if most < multi_queue::QUEUES => Ok(Some(most)),
            _ => Ok(chosen),
        }
    }
}

/// What is varied for measurement and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tuning {
    pub write_back: WriteBack,
    pub move_from: Option<usize>,
    pub trial: Trial,
}

/// The logs of a volume that is not open.
pub struct Logs<'l> {
    pub area: &'l LogArea,
    pub heads: Option<&'l HeadTable>,
    /// The version of the volume's format.
    pub version: u32,
    pub volume_id: [u8; 16],
    pub volume: Seed,
    pub incarnation: u64,
}

impl Logs<'_> {
    /// The seed of entries.
    pub fn seed(&self) -> LogSeed {
        LogSeed::of(self.volume, self.incarnation)
    }
}

/// What a log has to store yet, but for what is damaged of it.
#[derive(Default)]
pub struct Left {
    pub patches: Vec<Patch>,
    /// Blocks of files that may have moved.
    pub moved: Vec<Moved>,
    /// The map of the inode file that counts, if it is not the superblock's.
    pub inode_map: Option<InodeMap>,
    /// Errors of parts of the log that do not depend on each other.
    pub damage: Vec<Error>,
    /// Content of single blocks of files that waits to be written back, and is damaged.
    pub content: Vec<((InoGen, u64), Error)>,
}

impl Left {
    /// Nothing: the engine has no log.
    pub fn nothing(_: &dyn Region, _: &Logs<'_>) -> Left {
        Left::default()
    }

    /// What these patches store.
    pub fn of(patches: Result<Vec<Patch>>) -> Left {
        let mut left = Left::default();
        left.add(patches);
        left
    }

    /// The same of each lane: lanes do not depend on each other.
    pub fn of_lanes(logs: &Logs<'_>, of_lane: impl Fn(LogSeed, u32) -> Result<Vec<Patch>>) -> Left {
        let mut left = Left::default();
        (0..logs.area.lanes).for_each(|lane| left.add(of_lane(logs.seed(), lane)));
        left
    }

    fn add(&mut self, patches: Result<Vec<Patch>>) {
        match patches {
            Ok(patches) => self.patches.extend(patches),
            Err(error) => self.damage.push(error),
        }
    }
}

/// What the engine `multi_queue` does with the content of files. In both modes a change is there wholly or not at all.
/// (MQFS, 5.1.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DataMode {
    /// New content goes straight to its place; content that is written over is journaled.
    #[default]
    Ordered,
    /// All content is journaled, as far as a commit has at most an eighth of what the journal has room for: what is
    /// written to many places at once is written in one piece, and again later.
    Journal,
}

impl DataMode {
    /// All of them.
    pub const ALL: [DataMode; 2] = [DataMode::Ordered, DataMode::Journal];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            DataMode::Ordered => "ordered",
            DataMode::Journal => "journal",
        }
    }

    /// The mode with this name.
    pub fn named(name: &str) -> Option<DataMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// The one of a volume.
    pub(crate) fn of(superblock: &Superblock) -> DataMode {
        match superblock.later.compatible & COMPATIBLE_JOURNALED {
            0 => DataMode::Ordered,
            _ => DataMode::Journal,
        }
    }
}

macro_rules! engines {
    ($($(#[$about:meta])* $kind:ident => $description:path,)*) => {
        /// What makes changes of a volume permanent.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum EngineKind {
            $($(#[$about])* $kind,)*
        }

        impl EngineKind {
            /// All of them.
            pub const ALL: &'static [EngineKind] = &[$(EngineKind::$kind),*];

            pub(crate) fn description(self) -> &'static Description {
                match self {
                    $(EngineKind::$kind => const { &$description },)*
                }
            }
        }
    };
}

engines! {
    /// In place, at the call: nothing is promised after a crash.
    None => super::none::DESCRIPTION,
    /// Undo of metadata by the byte, and a redo log of data, on persistent memory: after a crash, each group of changes
    /// is there wholly or not at all, and was durable when its call returned.
    FineGrainedWal => super::fine_grained_wal::DESCRIPTION,
    /// Undo of metadata by the byte; content goes to other blocks by the cache line, and home later. On persistent
    /// memory, with the same promise.
    HybridLog => super::hybrid_log::DESCRIPTION,
    /// Undo of metadata and content by the word, in place. A block is moved if half of it changes. On persistent
    /// memory, with the same promise.
    Undo => super::undo::DESCRIPTION,
    /// A copy of each block that changes and of all nodes above it, up to one root; one group commits at a time. On
    /// persistent memory, with the same promise.
    Shadow => super::shadow::DESCRIPTION,
    /// A page cache of bounded size, and a log of whole blocks. On any medium, with the same promise.
    PageCacheWal => super::page_cache_wal::DESCRIPTION,
    /// Bitmaps on the medium, and one transaction for each group. On any medium, with the same promise; a mount after a
    /// crash reads no maps.
    OpLog => super::op_log::DESCRIPTION,
    /// Like `OpLog`, with a journal for each of several queues: groups of several threads are transactions on queues of
    /// their own. On any medium but a flash disk, with the same promise.
    MultiQueue => super::multi_queue::DESCRIPTION,
    /// Like `FineGrainedWal`, but a block is moved if half of it is written over. For comparison, on persistent memory,
    /// with the same promise.
    ShortcutJfs => super::fine_grained_wal::SHORTCUT_DESCRIPTION,
}

impl EngineKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.description().name
    }

    /// What it is for, in a line.
    pub fn about(self) -> &'static str {
        self.description().about
    }

    /// Whether each call, and each group, is there wholly or not at all after a crash.
    pub fn promises_groups(self) -> bool {
        self.description().promises
    }

    /// Whether it takes disks, too, and not persistent memory alone.
    pub fn takes_disks(self) -> bool {
        self.description().takes_disks
    }

    /// Whether its volumes have bitmaps of blocks and inodes, so that a mount after a crash reads no maps.
    pub fn keeps_bitmaps(self) -> bool {
        self.description().keeps_bitmaps
    }

    /// The places of it that change or order bytes on the medium.
    pub fn sites(self) -> Vec<Site> {
        self.description().sites.concat()
    }

    /// The engine with this name.
    pub fn named(name: &str) -> Option<EngineKind> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The one that a new volume on such a medium gets, unless somebody chooses. On a controller that has queues for
    /// transactions it is `MultiQueue`.
    pub fn for_medium(medium: &Guarantees) -> EngineKind {
        Self::chosen(medium, Has::default())
    }

    pub(crate) fn chosen(medium: &Guarantees, has: Has) -> EngineKind {
        match medium.is_pmem() {
            true => EngineKind::HybridLog,
            false if has.queues.is_some() => EngineKind::MultiQueue,
            false => EngineKind::OpLog,
        }
    }

    pub(crate) fn of(superblock: &Superblock) -> Result<EngineKind> {
        let kind = Self::ALL.iter().copied().find(|kind| kind.description().number == superblock.engine);
        let kind = kind.ok_or_else(|| {
            let why = format!("this version of Wholly does not know the volume's engine, number {}", superblock.engine);
            Error::Unsupported(why + ": open it with the version that made it")
        })?;
        let keeps = kind.description().keeps_bitmaps;
        if keeps == superblock.bitmaps.is_some() {
            return Ok(kind);
        }
        let others = Self::ALL.iter().filter(|kind| kind.description().keeps_bitmaps != keeps);
        let others: Vec<&str> = others.map(|kind| kind.name()).collect();
        let (name, others) = (kind.name(), others.join(", "));
        Err(Error::Unsupported(match keeps {
            true => {
                format!("the volume has no bitmaps, which its engine {name} needs: those that need none are {others}")
            }
            false => {
                format!("the volume has bitmaps, which its engine {name} does not keep: those that do are {others}")
            }
        }))
    }

    /// Its log on a new volume, on a medium with transactions of its own or without.
    pub(crate) fn log_on(self, has_transactions: bool) -> Option<fn(Lba, ForLog) -> LogArea> {
        let Description { log, keeps_bitmaps, .. } = *self.description();
        log.filter(|_| !(keeps_bitmaps && has_transactions && !self.needs_queues()))
    }

    /// Whether the superblock names what the engine has on the medium.
    pub(crate) fn check_log(self, superblock: &Superblock) -> Result<()> {
        let Description { log, has_heads, keeps_bitmaps, .. } = self.description();
        // A volume with bitmaps has no log where its medium has transactions.
        let is_there =
            (log.is_none() || *keeps_bitmaps || superblock.log.is_some()) && (!has_heads || superblock.heads.is_some());
        if is_there { Ok(()) } else { Err(Self::no_log()) }
    }

    /// Whether it takes no transactions of the medium, and makes its own on queues.
    fn needs_queues(self) -> bool {
        self == EngineKind::MultiQueue
    }

    /// That a new volume can have such a mode.
    pub(crate) fn check_data(self, data: Option<DataMode>) -> Result<()> {
        match data {
            Some(DataMode::Journal) if self != EngineKind::MultiQueue => Err(Error::Unsupported(format!(
                "the data mode journal with the engine {}: only multi_queue has one; leave it out, or choose that engine",
                self.name()
            ))),
            _ => Ok(()),
        }
    }

    /// That it can be on a medium with transactions of its own, or without.
    pub(crate) fn check_transactions(self, has_transactions: bool) -> Result<()> {
        match has_transactions && self.needs_queues() {
            false => Ok(()),
            true => {
                let why = "a flash disk makes transactions by itself: take op_log there";
                Err(Error::Unsupported(format!("the engine {} on a flash disk: {why}", self.name())))
            }
        }
    }

    fn no_log() -> Error {
        corrupt("superblock", Fault("the engine has no log"))
    }

    pub(crate) fn check_medium(self, region: &dyn Region) -> Result<()> {
        if self.takes_disks() || region.guarantees().is_pmem() {
            return Ok(());
        }
        let why = "it needs persistent memory, or the medium `pmem`, which uses a disk as if it were that";
        Err(Error::Unsupported(format!("the engine {} on a disk: {why}", self.name())))
    }

    pub(crate) fn open(self, opening: Opening) -> Result<Box<dyn Engine>> {
        let is_on_transactions = opening.bitmaps.is_some() && opening.log.is_none();
        (self.description().open)(opening).ok_or_else(|| match is_on_transactions {
            true => Error::Unsupported(
                "the volume has no log: it was made on a flash disk, whose transactions it needs: name it flash:FILE, or \
                 give it a log by fsck -p"
                    .into(),
            ),
            false => Self::no_log(),
        })
    }
}
