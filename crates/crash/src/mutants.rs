//! Mutants: each site of the code broken in turn, in every way that applies to it. Some workload must notice; who
//! survives is either equivalent, with a proof in [`EQUIVALENT`], or a hole in the workloads, or an instruction that
//! the code does not need.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use wholly::site;
use wholly_media::Site;
use wholly_sim::{
    EventKind, Mutation, MutationKind,
    MutationKind::{DropWrite, Late, Split},
};
use wholly_volume::EngineKind;

use crate::catalogue;
use crate::explore::{Limits, Outcome, RARE, Violation, explore, is_in_recovery};
use crate::run::{Run, run};
use crate::setting::{Setting, word};
use crate::subject::Subject;
use crate::volume;
use crate::workload::Workload;

/// What can be broken about a call that made an event of this kind.
pub(crate) fn applicable(kind: &EventKind) -> &'static [MutationKind] {
    use MutationKind::{DelayWrite, DropOrder};
    match kind {
        EventKind::Store { .. } | EventKind::Write { .. } => &[DropWrite, DelayWrite],
        EventKind::LogLen { old, new } if old == new => &[DropOrder],
        EventKind::Through { .. } | EventKind::LogLen { .. } => &[DropWrite, DropOrder],
        EventKind::Fence { .. }
        | EventKind::HandOver { .. }
        | EventKind::Sync { .. }
        | EventKind::SyncDir { .. }
        | EventKind::SyncAll => &[DropOrder],
        EventKind::SetLen { .. }
        | EventKind::Allocate { .. }
        | EventKind::Punch { .. }
        | EventKind::Names { .. }
        | EventKind::Attribute { .. } => &[DropWrite, DelayWrite],
        EventKind::BlockWrite { .. } | EventKind::BlockDiscard { .. } | EventKind::BlockAbort { .. } => &[DropWrite],
        EventKind::BlockOrder { .. } | EventKind::BlockCommit { .. } => &[DropOrder],
        EventKind::BlockCommitted { .. } | EventKind::Ring { .. } | EventKind::Landed { .. } => &[],
        EventKind::Flush | EventKind::Reset { .. } => &[],
        EventKind::Create { .. } | EventKind::Done { .. } | EventKind::Mark(_) => &[],
    }
}

/// A site, what is broken about it, and where: the name of a world, or a part of it.
type Equivalent = (&'static str, &'static str, &'static str, &'static str);

/// Mutants that no state can tell from the code: site, what is broken, worlds whose name begins so, and why.
pub const EQUIVALENT: &[Equivalent] = &[
    ("log.shrink", "drop-order", "", LONGER),
    ("log.shrink", "drop-write", "", LONGER),
    (
        "checkpoint.size",
        "delay-write",
        "pmem",
        "the next that orders anything is the fence of the stores into mappings; a file whose length was told to change is synced behind that.",
    ),
    (
        "checkpoint.cut",
        "delay-write",
        "pmem",
        "the same: the next that orders anything is the fence of the stores into mappings.",
    ),
    (
        "checkpoint.cut",
        "delay-write",
        "disk",
        "the checkpoint changes the file once more after the cut: it writes the tail of the last block, raises the length again, or sets the times \
         as of its target. Changes of one inode's attributes survive in order, so the sync that makes that durable makes the cut durable.",
    ),
    ("swap.write", "drop-write", "", SWAPPED),
    ("swap.write", "delay-write", "", SWAPPED),
    ("checkpoint.reserve", "drop-write", "", RESERVED),
    ("checkpoint.reserve", "delay-write", "", RESERVED),
    (
        "park.make",
        "delay-write",
        "",
        "who asks for the file's first name is the folder's sync, behind the rename that gives it the other one; the file's own sync, before \
         that, asks for its bytes.",
    ),
    (
        "park.content-remove",
        "delay-write",
        "",
        "nothing waits for the removal, and no parked group names the file: what a crash leaves of it the next open removes.",
    ),
    ("adopt.return", "delay-write", "", NOBODYS),
    ("layer.make", "delay-write", "", NOBODYS),
    ("layer.remove", "delay-write", "", NOBODYS),
    ("stage.remove", "drop-write", "", LEFT),
    ("stage.remove", "delay-write", "", LEFT),
    (
        "shadow.folder",
        "drop-write",
        "",
        "without the folder no shadow can be made, and all goes to the log: no state is another's, only slower.",
    ),
    ("shadow.remove", "delay-write", "", UNSPOKEN),
    ("names.unlink", "delay-write", "", ASIDE),
    ("names.rmdir", "delay-write", "", ASIDE),
    (
        "names.clean",
        "delay-write",
        "",
        "what it removes is nobody's: whoever finds it after a crash removes it again. What is made at the same name comes behind the removal in \
         any case, because the changes of one name survive in order.",
    ),
];

const SWAPPED: &str =
    "nobody reads it after a crash: it is bytes of groups that have not committed, in a file without a name.";
const RESERVED: &str = "a file has the same bytes without the space that was reserved for it; whether it has that space, the tests of the core ask";

const LEFT: &str = "nobody knows of what is left of a group that did not commit but the next open, or the close, which removes it; that it goes at \
                    once, the tests of the core ask";

const NOBODYS: &str =
    "what a crash leaves of the layer, or of what a group has adopted that did not commit, the next open removes.";

const UNSPOKEN: &str = "no group of the log speaks of a shadow that is removed, and no other gets its number; what is left takes space until the next \
                        close or open; that it goes at once, the tests of the core ask";

const ASIDE: &str = "the object moves aside, and what it moved to is removed by the next call: the changes of one name survive in order, so the \
                     barrier that makes the removal durable makes the move durable.";

const LONGER: &str = "a log that is longer than it was meant to be has free segments at its end, like any other: what stands in them is \
                      below the tail";

/// The engines, or none for all engines; the site; what is broken there; the worlds; and why no state shows it.
type EquivalentOfVolume = (&'static [EngineKind], &'static str, &'static str, &'static str, &'static str);

/// The same of volumes.
pub const EQUIVALENT_OF_VOLUMES: &[EquivalentOfVolume] = &[
    (&[], "volume.save", "drop-write", "", SAVED),
    (&[], "volume.save", "delay-write", "", SAVED),
    (&[EngineKind::PageCacheWal, EngineKind::OpLog], "volume.inode.block", "delay-write", "disk", MAKING),
    (&[EngineKind::PageCacheWal, EngineKind::OpLog], "volume.inode.born", "delay-write", "disk", MAKING),
    (&[EngineKind::PageCacheWal, EngineKind::OpLog], "volume.map.node", "delay-write", "disk", MAKING),
    (
        &[EngineKind::FineGrainedWal, EngineKind::ShortcutJfs, EngineKind::Undo],
        "volume.leaf",
        "delay-write",
        "",
        STRUCTURE,
    ),
    (&[], "wal.recover", "delay-write", "", RECOVERED),
    (&[], "undo.recover", "delay-write", "", RECOVERED),
    (&[], "pages.recover", "delay-write", "", RECOVERED),
    (&[], "undo.recover.fence", "drop-order", "", RECOVERED),
    (&[], "hybrid.recover.proof", "delay-write", "", BELIEVED),
];

const SAVED: &str = "the superblock has the checksum of the saved allocators; where they are not as it says, the next mount finds out from the maps \
                     what is free, as after a crash.";

const MAKING: &str = "calls store to the page cache, so only the making of a volume passes here. Until two fences later the volume is being made, and \
                      has no saved allocators: its first mount reads all inodes, and refuses blocks that have others. If the maker \
                      dies, the first fence of that mount makes durable what it has written: on a disk a fence covers all.";

const STRUCTURE: &str = "a change of structure is a group of its own, by one thread, which has two fences before its commit entry. In a directory that \
                         an explicit group has made, the name for which there was no room comes in the same call, and that has a fence of its own.";

const RECOVERED: &str = "the mount writes the superblock to its slot once more and fences, before anything else is stored or the incarnation rises; \
                         until then the next mount does the same again.";

const BELIEVED: &str = "the mount writes the superblock to its slot once more and fences, before it keeps a head because of a group that recovery \
                        believes; until then it only undoes groups that did not commit, as the next mount does again.";

/// Mutants that leave out no write and no order: a step comes later than it should, one becomes two, what a comparison
/// needs is kept back. Site, what is broken, in which world, and the workload that notices.
pub const SEMANTIC: &[(Site, MutationKind, &str, &str)] = &[
    (site::NAMES_PLACE, Split, "disk", "replace-ten-times"),
    (site::NAMES_PLACE, Split, "pmem", "circle-of-files"),
    (site::NAMES_PLACE, Split, "disk-ext4", "staged-on-the-move"),
    (site::NAMES_PLACE, Late, "disk", "circle-of-files"),
    (site::NAMES_UNLINK, Late, "disk", "emptied"),
    (site::NAMES_ANCHOR, Late, "disk", "exchanges"),
    (site::NAMES_MAKE, Late, "disk", "replace-ten-times"),
    (site::ATTRIBUTES_MODE, Late, "disk", "staged-on-the-move"),
    (site::ATTRIBUTES_XATTR, Late, "disk", "replaced-with-attributes"),
    (site::ATTRIBUTES_OWNER, Late, "disk", "bare,create-foo+append-foo+chown-foo+rename-foo-A/foo,home"),
    (site::CHECKPOINT_DATA, Late, "disk", "replace-ten-times"),
    (site::CHECKPOINT_CUT, DropWrite, "disk", "cut-and-regrown"),
    (site::CHECKPOINT_CUT, DropWrite, "pmem", "cut-and-regrown"),
];

/// A semantic mutant of a volume: the engine, the site, what is broken, in which world, and the program that notices.
pub type OfVolume = (EngineKind, Site, MutationKind, &'static str, &'static str);

/// The same of volumes. A fence that comes late orders what was stored before it only together with the next store; a
/// store that comes late is the first of the next epoch.
pub const SEMANTIC_OF_VOLUMES: &[OfVolume] = &[
    // Bytes in place are stored before the old ones are durable in the log.
    (EngineKind::FineGrainedWal, Site("wal.log.fence"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("wal.undo"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("wal.head"), Late, "pmem", "orphan"),
    // The commit entry promises data that comes after it.
    (EngineKind::FineGrainedWal, Site("wal.payload"), Late, "pmem", "partial-line"),
    (EngineKind::FineGrainedWal, Site("wal.link"), Late, "pmem", "undo-thrice"),
    (EngineKind::FineGrainedWal, Site("wal.call.hand_over"), Late, "pmem", "undo-thrice"),
    (EngineKind::FineGrainedWal, Site("wal.fresh"), Late, "pmem", "swap-and-cut"),
    // The commit entry is stored before what it commits is durable.
    (EngineKind::FineGrainedWal, Site("wal.place.fence"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("volume.inode.line"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("volume.entry.live"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("volume.entry.clear"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("wal.commit"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("wal.commit.fence"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("wal.home"), Late, "pmem", "orphan"),
    // The group is settled before its data is home.
    (EngineKind::FineGrainedWal, Site("wal.home.fence"), Late, "pmem", "orphan"),
    (EngineKind::FineGrainedWal, Site("wal.settle"), Late, "pmem", "partial-line"),
    (EngineKind::FineGrainedWal, Site("wal.settle.fence"), Late, "pmem", "partial-line"),
    (EngineKind::FineGrainedWal, Site("volume.wipe"), Late, "pmem", "made-again"),
    (EngineKind::FineGrainedWal, Site("volume.fence"), Late, "pmem", "made"),
    (EngineKind::FineGrainedWal, Site("volume.superblock"), Late, "pmem", "made"),
    (EngineKind::HybridLog, Site("hybrid.log.fence"), Late, "pmem", "partial-line"),
    (EngineKind::HybridLog, Site("hybrid.pending"), Late, "pmem", "partial-line"),
    (EngineKind::HybridLog, Site("hybrid.head"), Late, "pmem", "partial-line"),
    (EngineKind::HybridLog, Site("hybrid.undo"), Late, "pmem", "partial-line"),
    // A group builds on one in doubt, and says too late that this one is committed.
    (EngineKind::HybridLog, Site("hybrid.settle"), Late, "pmem", "partial-line"),
    (EngineKind::HybridLog, Site("hybrid.commit.fence"), Late, "pmem", "partial-line"),
    (EngineKind::HybridLog, Site("hybrid.home"), Late, "pmem", "clean-unmount"),
    // Heads are wiped, or the home is replaced, before the latest lines are durable.
    (EngineKind::HybridLog, Site("hybrid.home.fence"), Late, "pmem", "clean-unmount"),
    (EngineKind::HybridLog, Site("hybrid.swap"), Late, "pmem", "six-versions"),
    (EngineKind::HybridLog, Site("hybrid.swap"), Split, "pmem", "six-versions"),
    (EngineKind::HybridLog, Site("hybrid.swap.fence"), Late, "pmem", "six-versions"),
    (EngineKind::HybridLog, Site("hybrid.wipe"), Late, "pmem", "orphan-closed"),
    (EngineKind::HybridLog, Site("hybrid.wipe.fence"), Late, "pmem", "hole-origin"),
    (EngineKind::HybridLog, Site("hybrid.keep"), Late, "pmem", "cut-and-grown"),
    (EngineKind::HybridLog, Site("hybrid.keep"), Split, "pmem", "cut-and-grown"),
    (EngineKind::HybridLog, Site("hybrid.keep.fence"), Late, "pmem", "cut-and-grown"),
    // The old bytes are durable only after the new ones may be.
    (EngineKind::Undo, Site("undo.log.fence"), Late, "pmem", "undo-thrice"),
    (EngineKind::Undo, Site("undo.entry"), Late, "pmem", "renamed-over"),
    (EngineKind::Undo, Site("undo.payload"), Late, "pmem", "undo-thrice"),
    (EngineKind::Undo, Site("undo.data"), Late, "pmem", "undo-thrice"),
    (EngineKind::Undo, Site("undo.moved"), Late, "pmem", "select-pending"),
    (EngineKind::Undo, Site("undo.place.fence"), Late, "pmem", "undo-thrice"),
    (EngineKind::Undo, Site("undo.commit.fence"), Late, "pmem", "undo-thrice"),
    (EngineKind::Shadow, Site("paging.fresh"), Late, "pmem", "abort-then-other"),
    (EngineKind::Shadow, Site("paging.copy"), Late, "pmem", "orphan"),
    (EngineKind::Shadow, Site("paging.inodes"), Late, "pmem", "orphan"),
    (EngineKind::Shadow, Site("paging.node"), Late, "pmem", "orphan"),
    // The root leads to what is not durable.
    (EngineKind::Shadow, Site("paging.shadow.fence"), Late, "pmem", "orphan"),
    (EngineKind::Shadow, Site("paging.commit.fence"), Late, "pmem", "orphan"),
    (EngineKind::Shadow, Site("paging.call.hand_over"), Late, "pmem", "clean-unmount"),
    (EngineKind::PageCacheWal, Site("pages.fresh"), Late, "disk", "spill"),
    (EngineKind::PageCacheWal, Site("pages.fresh.fence"), Late, "disk", "spill"),
    (EngineKind::PageCacheWal, Site("pages.home"), Late, "disk", "orphan-closed"),
    // The tail moves before the homes are durable.
    (EngineKind::PageCacheWal, Site("pages.home.fence"), Late, "disk", "orphan-closed"),
    (EngineKind::PageCacheWal, Site("volume.wipe"), Late, "disk", "made-again"),
];

/// Whether something notices one of them, in words.
pub fn semantic_of_volume((engine, site, kind, world, program): OfVolume) -> (String, Option<Violation>) {
    let setting = volume::setting_for(engine, world).unwrap_or_else(|| panic!("{} is in no {world}", engine.name()));
    let broken = setting.broken(Mutation::new(site, kind));
    let programs = volume::several(engine, program).unwrap_or_else(|| panic!("no program is called {program:?}"));
    let limits = Limits { violations: 1, ..Limits::glance() };
    let found = programs.iter().find_map(|program| explore(program, &broken, &limits).violations.into_iter().next());
    (format!("{} with {} on {program}", broken.name, engine.name()), found)
}

/// Whether something notices a [semantic](SEMANTIC) mutant, in words: what it is, and what that is.
pub fn semantic((site, kind, world, workload): (Site, MutationKind, &str, &str)) -> (String, Option<Violation>) {
    let broken = Setting::named(world).broken(Mutation::new(site, kind));
    let workload = catalogue::find(workload).unwrap_or_else(|| panic!("no workload is called {workload:?}"));
    let limits = Limits { violations: 1, ..Limits::glance() };
    let found = explore(&workload, &broken, &limits).violations.into_iter().next();
    (format!("{} on {}", broken.name, workload.name), found)
}

/// What became of one mutant.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// What is broken.
    pub mutation: Mutation,
    /// The world in which it is.
    pub setting: String,
    /// What noticed it; none for a survivor.
    pub caught: Option<Violation>,
    /// Why no state can tell it from the code.
    pub proof: Option<&'static str>,
}

impl Mutant {
    /// Whether it went unnoticed and nobody has said why it may; or it was noticed, and somebody has said that nobody
    /// can.
    pub fn is_wrong(&self) -> bool {
        self.caught.is_none() == self.proof.is_none()
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}={}: ", self.setting, self.mutation.site.0, word(self.mutation.kind))?;
        match (&self.caught, self.proof) {
            (Some(violation), Some(proof)) => write!(f, "PROOF IS WRONG: {proof}: caught by {}", violation.replay),
            (Some(violation), None) => write!(f, "caught by {}: {}", violation.replay, violation.what),
            (None, Some(proof)) => write!(f, "equivalent: {proof}"),
            (None, None) => f.write_str("SURVIVES"),
        }
    }
}

const WORDS: &str =
    "where each word survives by itself, only the barrier counts; the order behind the tail covers the entries";
const PREFIX: &str = "what survives is a prefix of the order, and the head line is the last of it";

/// The same of queues in a region: site, what is broken, whether the region keeps the order, and why.
const EQUIVALENT_OF_QUEUES: &[(&str, &str, bool, &str)] = &[
    ("nvme.commit.entries.order", "drop-order", false, WORDS),
    ("nvme.commit.entries", "delay-write", false, WORDS),
    ("nvme.start.void.barrier", "drop-order", true, PREFIX),
    ("nvme.start.clear.barrier", "drop-order", true, PREFIX),
];

/// Why no state can tell a mutant from the code, where somebody has said so. The subject is known by the name of a run.
pub fn proof(subject: &str, mutation: &Mutation, setting: &str) -> Option<&'static str> {
    let is_it = |site: &str, kind: &str, world: &str| {
        site == mutation.site.0 && kind == word(mutation.kind) && setting.starts_with(world)
    };
    if subject.starts_with("ccnvme:") {
        let is_ordered = setting == "ccnvme-ordered";
        let found = EQUIVALENT_OF_QUEUES
            .iter()
            .find(|(site, kind, ordered, _)| is_it(site, kind, "") && *ordered == is_ordered);
        return found.map(|(.., why)| *why);
    }
    let Some(of_volume) = subject.strip_prefix("volume:") else {
        return EQUIVALENT.iter().find(|(site, kind, world, _)| is_it(site, kind, world)).map(|(.., why)| *why);
    };
    let is_one = |engine: &EngineKind| of_volume.split(':').next() == Some(engine.name());
    EQUIVALENT_OF_VOLUMES
        .iter()
        .find(|(engines, site, kind, world, _)| {
            (engines.is_empty() || engines.iter().any(is_one)) && is_it(site, kind, world)
        })
        .map(|(.., why)| *why)
}

/// What can be broken, by site and number of the kind.
pub(crate) type Breakable = BTreeSet<(&'static str, u8)>;

pub(crate) fn breakable(site: Option<Site>, kind: &EventKind, into: &mut Breakable) {
    if let Some(site) = site {
        into.extend(applicable(kind).iter().map(|kind| (site.0, number_of(*kind))));
    }
}

fn number_of(kind: MutationKind) -> u8 {
    match kind {
        MutationKind::DropOrder => 0,
        MutationKind::DropWrite => 1,
        _ => 2,
    }
}

fn kind_of(number: u8) -> MutationKind {
    [MutationKind::DropOrder, MutationKind::DropWrite, MutationKind::DelayWrite][usize::from(number)]
}

/// A hunt for mutants of one world.
///
/// A program that does not pass a site cannot notice what is broken there. Of those that do, the ones that caught most
/// so far come first, then the cheap ones; all of them are glanced through before the first is gone through at length,
/// unless the mutations are few.
pub struct Hunt<'s, S = Workload> {
    setting: &'s Setting,
    prey: Vec<Mutation>,
    packs: Vec<Pack<S>>,
    /// What is tried before the limits that are asked for.
    first: Vec<Limits>,
    next: AtomicUsize,
}

/// A program, what it can notice, and how often it did.
struct Pack<S> {
    subject: S,
    passes: Breakable,
    catches: AtomicUsize,
}

impl<'s, S: Subject + Clone> Hunt<'s, S> {
    /// Every mutation of every site that the programs pass in this world, inside of recoveries too.
    pub fn new(subjects: &[S], setting: &'s Setting) -> Hunt<'s, S> {
        Hunt::looked(subjects, setting, &Limits::glance(), vec![Limits::glance()])
    }

    /// The same where a glance takes long: the sites are those that the programs pass in a sweep, and before the glance
    /// nothing is crashed inside of recoveries.
    pub fn of_many(subjects: &[S], setting: &'s Setting) -> Hunt<'s, S> {
        let once = Limits { nested_one_in: 0, whole_one_in: 0, ..Limits::glance() };
        Hunt::looked(subjects, setting, &Limits::sweep(), vec![once, Limits::glance()])
    }

    fn looked(subjects: &[S], setting: &'s Setting, limits: &Limits, first: Vec<Limits>) -> Hunt<'s, S> {
        let limits = Limits { workers: 2, ..limits.clone() };
        let pack = |subject: &S| {
            let Outcome { breakable, .. } = explore(subject, setting, &limits);
            Pack { subject: subject.clone(), passes: breakable, catches: AtomicUsize::new(0) }
        };
        let mut packs: Vec<Pack<S>> = subjects.iter().map(pack).collect();
        packs.sort_by_cached_key(|pack| cost(&run(&pack.subject, setting)));
        let all: Breakable = packs.iter().flat_map(|pack| pack.passes.iter().copied()).collect();
        let prey = all.into_iter().map(|(site, kind)| Mutation::new(Site(site), kind_of(kind))).collect();
        Hunt { setting, prey, packs, first, next: AtomicUsize::new(0) }
    }

    /// These mutations, by the limits that are asked for alone. What only recoveries pass, all programs are taken to
    /// pass.
    pub fn of(subjects: &[S], setting: &'s Setting, prey: Vec<Mutation>) -> Hunt<'s, S> {
        let pack = |subject: &S| {
            let run = run(subject, setting);
            let mut passes = Breakable::default();
            run.trace.events.iter().for_each(|event| breakable(event.site, &event.kind, &mut passes));
            (cost(&run), Pack { subject: subject.clone(), passes, catches: AtomicUsize::new(0) })
        };
        let mut packs: Vec<(usize, Pack<S>)> = subjects.iter().map(pack).collect();
        packs.sort_by_key(|(cost, _)| *cost);
        let packs = packs.into_iter().map(|(_, pack)| pack).collect();
        Hunt { setting, prey, packs, first: Vec::new(), next: AtomicUsize::new(0) }
    }

    /// Only the sites that `wanted` wants.
    pub fn only(mut self, wanted: impl Fn(Site) -> bool) -> Hunt<'s, S> {
        self.prey.retain(|mutation| wanted(mutation.site));
        self
    }

    /// One of several pieces, from 1 on: they are dealt out one by one.
    pub fn piece(mut self, (number, of): (usize, usize)) -> Hunt<'s, S> {
        let mut next = 0;
        self.prey.retain(|_| {
            next += 1;
            (next - 1) % of == number - 1
        });
        self
    }

    /// Hunts all of them on two threads, at a glance and then by `limits`. Those that have a proof are hunted only if
    /// somebody doubts it, and at a glance.
    pub fn run(&self, doubt: bool, limits: &Limits) -> Vec<Mutant> {
        let work = || {
            let mut found = Vec::new();
            while let Some(mutation) = self.prey.get(self.next.fetch_add(1, Ordering::Relaxed)) {
                found.push(self.one(*mutation, doubt, limits));
            }
            found
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
        })
    }

    fn one(&self, mutation: Mutation, doubt: bool, limits: &Limits) -> Mutant {
        let subject = self.packs.first().map_or_else(String::new, |pack| pack.subject.name());
        let proof = proof(&subject, &mutation, &self.setting.name);
        let mut mutant = Mutant { mutation, setting: self.setting.name.clone(), caught: None, proof };
        if proof.is_some() && !doubt {
            return mutant;
        }
        let broken = self.setting.broken(mutation);
        let site = (mutation.site.0, number_of(mutation.kind));
        let mut packs: Vec<&Pack<S>> = self.packs.iter().filter(|pack| pack.passes.contains(&site)).collect();
        if packs.is_empty() {
            packs.extend(&self.packs);
        }
        packs.sort_by_cached_key(|pack| std::cmp::Reverse(pack.catches.load(Ordering::Relaxed)));
        for limits in self.first.iter().chain(proof.is_none().then_some(limits)) {
            let is_rare = |rare: &Site| mutation.site.0.starts_with(rare.0);
            let is_rare = RARE.iter().any(is_rare) || is_in_recovery(mutation.site);
            let every_rare = is_rare && proof.is_none();
            let limits = Limits { workers: 1, violations: 1, every_rare, ..limits.clone() };
            for pack in &packs {
                mutant.caught = explore(&pack.subject, &broken, &limits).violations.into_iter().next();
                if mutant.caught.is_some() {
                    pack.catches.fetch_add(1, Ordering::Relaxed);
                    return mutant;
                }
            }
        }
        mutant
    }
}

/// About how long a program takes to explore: by the events of a run and the bytes it stores.
fn cost(run: &Run) -> usize {
    let bytes = |kind: &EventKind| match kind {
        EventKind::Store { data, .. } => data.len(),
        _ => 0,
    };
    run.trace.events.iter().map(|event| 64 + bytes(&event.kind)).sum()
}
