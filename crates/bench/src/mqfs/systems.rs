//! The systems: the engine `multi_queue` with the options of the ablation, over queues in the region or over ordinary
//! ones. All are the same code above the queues.

use std::sync::Arc;

use blocks_events::multi_queue::{Form, Queues};
use nvme_events::{Disk, Options, Transport};
use volume_events::{EngineKind, Holds, Trial, Volume, VolumeOptions};
use wholly_vfs::Timestamp;

use super::ordinary::{How, Ordinary};
use crate::Result;
use crate::fcfs::counts::ticking;
use crate::fcfs::subject::failed;

const VOLUME_ID: [u8; 16] = *b"wholly-mqfs-v1..";

/// How transactions reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// By ccNVMe, on queues in the region.
    Tail,
    /// Over ordinary queues.
    By(How),
}

/// A system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct System {
    pub name: &'static str,
    /// What it is called in the paper.
    pub paper: &'static str,
    pub commit: Commit,
    /// One area and one queue for all threads.
    pub has_one_area: bool,
    /// Pages are locked until they are durable.
    pub locks_pages: bool,
    /// `fsync` is `fdataatomic`.
    pub is_atomic: bool,
}

const fn system(name: &'static str, paper: &'static str, commit: Commit) -> System {
    System { name, paper, commit, has_one_area: false, locks_pages: false, is_atomic: false }
}

/// The same with one area, and locked pages: as the paper's systems are that have one journal.
const fn as_ext4(name: &'static str, of: System) -> System {
    System { name, has_one_area: true, locks_pages: true, ..of }
}

pub(super) const MQFS: System = system("mqfs", "MQFS", Commit::Tail);
pub(super) const MQFS_ATOMIC: System = System { is_atomic: true, ..system("mqfs_atomic", "MQFS-atomic", Commit::Tail) };
pub(super) const CLASSIC: System = system("classic", "Ext4", Commit::By(How::Classic));
pub(super) const CLASSIC_THREAD: System =
    system("classic_thread", "Ext4, a journal thread", Commit::By(How::ClassicThread));
pub(super) const HORAE: System = system("horae", "HoraeFS", Commit::By(How::Horae));
pub(super) const NONE_SERIAL: System = system("none_serial", "Ext4-NJ, each block waited for", Commit::By(How::Serial));
pub(super) const NONE_PARALLEL: System =
    system("none_parallel", "Ext4-NJ, all blocks at once", Commit::By(How::Parallel));
pub(super) const CLASSIC_LOCKED: System = as_ext4("classic_locked", CLASSIC);
pub(super) const HORAE_LOCKED: System = as_ext4("horae_locked", HORAE);
/// Steps of figure 13, after `classic_locked`.
pub(super) const CCNVME: System = System { paper: "+ccNVMe", ..as_ext4("ccnvme", MQFS) };
pub(super) const AREAS: System = System { name: "areas", paper: "+MQJournal", has_one_area: false, ..CCNVME };

/// The other way round: the last two mechanisms, and one area.
pub(super) const ONE_AREA: System = System { name: "one_area", has_one_area: true, ..MQFS };

pub(super) const ALL: [System; 12] = [
    MQFS,
    MQFS_ATOMIC,
    CLASSIC,
    CLASSIC_THREAD,
    HORAE,
    NONE_SERIAL,
    NONE_PARALLEL,
    CLASSIC_LOCKED,
    HORAE_LOCKED,
    CCNVME,
    AREAS,
    ONE_AREA,
];

/// Names of systems, and the paper's.
pub(super) const NAMES: [(&str, &str); ALL.len()] = {
    let mut names = [("", ""); ALL.len()];
    let mut at = 0;
    while at < ALL.len() {
        names[at] = (ALL[at].name, ALL[at].paper);
        at += 1;
    }
    names
};

/// How a volume is made and used.
#[derive(Clone, Copy)]
pub(super) struct Use {
    /// Queues, of systems that have more than one.
    pub queues: u16,
    /// Whether neighbours are merged.
    pub merges: bool,
    pub clock: fn() -> Timestamp,
    /// Where it is noted how long pages are held.
    pub holds: Option<&'static Holds>,
}

impl Use {
    pub fn with(queues: u16) -> Use {
        Use { queues, merges: true, clock: ticking, holds: None }
    }
}

impl System {
    pub fn named(name: &str) -> Option<System> {
        ALL.into_iter().find(|system| system.name == name)
    }

    fn form(&self) -> Form {
        match self.commit {
            Commit::Tail => Form::Described,
            Commit::By(How::Parallel | How::Serial) => Form::InPlace,
            Commit::By(_) => Form::CommitBlock,
        }
    }

    /// Blocks of a transaction beside those that it changes.
    pub fn more_blocks(&self) -> u64 {
        match self.form() {
            Form::Described => 1,
            Form::CommitBlock => 2,
            Form::InPlace => 0,
        }
    }

    /// The queues of a device, as this system uses them.
    pub fn queues(&self, transport: Arc<dyn Transport>, of: &Use) -> Result<Arc<dyn Queues>> {
        let queues = if self.has_one_area { 1 } else { of.queues };
        let options = Options { queues, merge: of.merges, ..Options::default() };
        Ok(match self.commit {
            Commit::Tail => Arc::new(Disk::new(transport, options)?),
            Commit::By(how) => Arc::new(Ordinary::new(transport, how, options)?),
        })
    }

    fn options(&self, queues: u16, of: &Use) -> VolumeOptions {
        let trial = Trial { form: self.form(), locks_pages: self.locks_pages, holds: of.holds, ..Trial::default() };
        VolumeOptions {
            engine: EngineKind::named("multi_queue"),
            queues: Some(queues),
            clock: of.clock,
            trial,
            ..VolumeOptions::default()
        }
    }

    /// Makes a volume, and opens it.
    pub fn volume(&self, queues: Arc<dyn Queues>, of: &Use) -> Result<Volume> {
        let options = self.options(queues.guarantees().queues, of);
        Volume::format_queues_as(queues.clone(), &options, VOLUME_ID).map_err(failed)?;
        Volume::open_queues(queues, &options).map_err(failed)
    }

    /// Opens one that is there.
    #[cfg(test)]
    pub fn open(&self, queues: Arc<dyn Queues>, of: &Use) -> Result<Volume> {
        let options = self.options(queues.guarantees().queues, of);
        Volume::open_queues(queues, &options).map_err(failed)
    }
}
