//! Mutants: each site of the code broken in turn, in every way that applies to it. Some workload must notice; who survives is either
//! equivalent, with a proof in [`EQUIVALENT`], or a hole in the workloads, or an instruction that the code does not need.

use std::collections::BTreeSet;
use std::fmt;

use wholly_media::Site;
use wholly_media::sim::{EventKind, Mutation, MutationKind};

use crate::explore::{Limits, Outcome, Violation, explore, explore_all};
use crate::setting::{Setting, word};
use crate::workload::Workload;
use crate::{Job, run};

/// What can be broken about a call that made an event of this kind.
pub(crate) fn applicable(kind: &EventKind) -> &'static [MutationKind] {
    use MutationKind::{DelayWrite, DropOrder, DropWrite};
    match kind {
        EventKind::Store { .. } | EventKind::Write { .. } => &[DropWrite, DelayWrite],
        EventKind::LogLen { old, new } if old == new => &[DropOrder],
        EventKind::Through { .. } | EventKind::LogLen { .. } => &[DropWrite, DropOrder],
        EventKind::Fence { .. } | EventKind::Sync { .. } | EventKind::SyncDir { .. } | EventKind::SyncAll => {
            &[DropOrder]
        }
        EventKind::SetLen { .. } | EventKind::Allocate { .. } | EventKind::Link { .. } => &[DropWrite, DelayWrite],
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
        "checkpoint.allocate",
        "delay-write",
        "pmem",
        "a block that was stored to and fenced is there with its bytes; one that was not is allocated again before the next store. What a \
         file system does to an allocation that a sync covered is not modelled.",
    ),
    ("recover.wipe", "drop-order", "pmem", WIPED),
    ("recover.wipe", "delay-write", "pmem", WIPED),
    (
        "lane.parts-fence",
        "drop-order",
        "disk",
        "on a disk only an aborted group comes by here, and a lane that spills never holds a commit record: nobody relies on where its \
         parts end. (It could go on disks: a sync for each aborted group that has spilled.)",
    ),
];

const WIPED: &str = "on persistent memory the fence at the end of the scan makes the wipe durable, by the same thread, before the incarnation is \
                     raised; until then the next recovery rejects the same record again";

const LONGER: &str = "a log that is longer than it was meant to be has free segments at its end, like any other: what stands in them is \
                      below the tail";

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
    /// Whether it went unnoticed and nobody has said why it may.
    pub fn is_survivor(&self) -> bool {
        self.caught.is_none() && self.proof.is_none()
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}={}: ", self.setting, self.mutation.site.0, word(self.mutation.kind))?;
        match (&self.caught, self.proof) {
            (Some(violation), _) => write!(f, "caught by {}: {}", violation.replay, violation.what),
            (None, Some(proof)) => write!(f, "equivalent: {proof}"),
            (None, None) => f.write_str("SURVIVES"),
        }
    }
}

/// Why no state can tell a mutant from the code, where somebody has said so.
pub fn proof(mutation: &Mutation, setting: &str) -> Option<&'static str> {
    EQUIVALENT
        .iter()
        .find(|(site, kind, world, _)| {
            *site == mutation.site.0 && *kind == word(mutation.kind) && setting.starts_with(world)
        })
        .map(|(.., why)| *why)
}

/// Every mutation of every site that the workloads pass in this world, inside of recoveries too.
pub fn mutations(workloads: &[Workload], setting: &Setting) -> Vec<Mutation> {
    let jobs: Vec<Job> =
        workloads.iter().map(|workload| Job { workload: workload.clone(), setting: setting.clone() }).collect();
    let mut limits = Limits::hunt();
    limits.states.exhaustive_bits = 1;
    limits.states.samples = 2;
    let Outcome { breakable, .. } = explore_all(&jobs, &limits);
    breakable.into_iter().map(|(site, kind)| Mutation::new(Site(site), kind_of(kind))).collect()
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

/// Hunts one mutant through the workloads, cheap ones first.
pub fn hunt(mutation: Mutation, workloads: &[Workload], setting: &Setting, limits: &Limits) -> Mutant {
    let broken = setting.broken(mutation);
    let mut caught = None;
    for workload in workloads {
        caught = explore(workload, &broken, limits).violations.into_iter().next();
        if caught.is_some() {
            break;
        }
    }
    Mutant { mutation, setting: setting.name.clone(), caught, proof: proof(&mutation, &setting.name) }
}

/// Orders workloads by the number of events of a run: the cheap ones first.
pub fn cheap_first(workloads: &mut [Workload], setting: &Setting) {
    workloads.sort_by_cached_key(|workload| {
        let run = run(workload, setting);
        let bytes = |kind: &EventKind| match kind {
            EventKind::Store { data, .. } => data.len(),
            _ => 0,
        };
        run.trace.events.iter().map(|event| 64 + bytes(&event.kind)).sum::<usize>()
    });
}
