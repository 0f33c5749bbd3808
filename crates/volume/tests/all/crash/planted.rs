//! Mistakes that are planted, one at a time: a fence that orders nothing, a store that the fence after it does not
//! cover. Each must be seen by some program.
//!
//! Not among them: what recovery stores behind a commit entry that it believes, and the fence after that. The mount
//! fences once more, before it says in the superblock that it has recovered; until then the next mount does the same
//! again.

use wholly_crash::mutants::Hunt;
use wholly_crash::volume::OnVolume;
use wholly_crash::{Limits, Setting};
use wholly_media::Site;
use wholly_sim::MutationKind::{DelayWrite, DropOrder};
use wholly_sim::{ExploreLimits, Mutation, MutationKind};

use super::programs::{Done, calls, groups, world};
use super::survival::is_long;

/// Fences of a commit, and of a mount. Stores that the next fence must cover: to the log, in place, and home; what
/// settles a group; the superblock. Not fresh blocks: any fence before the
/// commit entry will do for them.
const MISTAKES: &[(&str, MutationKind)] = &[
    ("wal.log.fence", DropOrder),
    ("wal.place.fence", DropOrder),
    ("wal.commit.fence", DropOrder),
    ("wal.home.fence", DropOrder),
    ("wal.settle.fence", DropOrder),
    ("volume.fence", DropOrder),
    ("wal.undo", DelayWrite),
    ("wal.head", DelayWrite),
    ("wal.payload", DelayWrite),
    ("wal.link", DelayWrite),
    ("volume.inode.line", DelayWrite),
    ("volume.entry.live", DelayWrite),
    ("volume.map.pointer", DelayWrite),
    ("wal.commit", DelayWrite),
    ("wal.home", DelayWrite),
    ("wal.settle", DelayWrite),
    ("volume.superblock", DelayWrite),
];

/// The same of recovery: a commit entry that it believes.
const IN_RECOVERY: &[(&str, MutationKind)] = &[("wal.recover.commit", DelayWrite)];

/// The same of explicit groups: at the end of a call; in their logs, and what leads there.
const OF_GROUPS: &[(&str, MutationKind)] = &[
    ("wal.call.hand_over", DropOrder),
    ("wal.head", DelayWrite),
    ("wal.payload", DelayWrite),
    ("wal.link", DelayWrite),
];

/// Crashes of the program, and none in the recovery after one.
pub fn once() -> Limits {
    let states = ExploreLimits {
        exhaustive_bits: 4,
        single_units: 24,
        pair_units: 0,
        samples: 8,
        focus_bits: 0,
        seed: 7,
        ..ExploreLimits::default()
    };
    Limits { states, nested_one_in: 0, whole_one_in: 0, from_break: true, ..Limits::quick() }
}

/// Crashes in recovery, too.
pub fn twice() -> Limits {
    Limits { nested_one_in: 5, nested_points: 20, ..once() }
}

/// Fails unless each mistake is seen by one of these programs.
pub fn expect_seen(
    programs: &[OnVolume<Done>],
    setting: &Setting,
    mistakes: &[(&'static str, MutationKind)],
    limits: &Limits,
) {
    let mistakes = mistakes.iter().map(|(site, kind)| Mutation::new(Site(site), *kind)).collect();
    let mutants = Hunt::of(programs, setting, mistakes).run(true, limits);
    for mutant in &mutants {
        println!("{mutant}");
    }
    let unseen: Vec<_> = mutants.iter().filter(|mutant| mutant.caught.is_none()).map(|m| m.mutation).collect();
    assert_eq!(unseen, []);
}

#[test]
fn mistakes_in_calls_are_seen() {
    expect_seen(&calls(), &world("pmem"), MISTAKES, &once());
    // Takes minutes: only a crash in few recoveries shows it.
    if is_long() {
        expect_seen(&calls(), &world("pmem"), IN_RECOVERY, &twice());
    }
}

#[test]
fn mistakes_in_explicit_groups_are_seen() {
    expect_seen(&groups(), &world("pmem"), OF_GROUPS, &once());
}
