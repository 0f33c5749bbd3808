//! Mistakes that are planted, one at a time: a fence that orders nothing, a store that the fence after it does not
//! cover. Each must be seen by some script.

use wholly_crash::{Limits, explore};
use wholly_media::Site;
use wholly_sim::{ExploreLimits, Mutation, MutationKind};

use crate::programs::{Done, all, world};

/// The fences of a commit, of recovery, and of a mount.
const FENCES: &[&str] = &[
    "wal.call.fence",
    "wal.log.fence",
    "wal.place.fence",
    "wal.commit.fence",
    "wal.home.fence",
    "wal.settle.fence",
    "wal.recover.fence",
    "volume.fence",
];

/// Stores that the next fence must cover: to the log, in place, home, and of the superblock. Not fresh blocks: any
/// fence before the commit entry will do for them.
const STORES: &[&str] = &[
    "wal.undo",
    "wal.head",
    "wal.payload",
    "wal.link",
    "volume.inode.line",
    "volume.entry.live",
    "volume.map.pointer",
    "wal.commit",
    "wal.home",
    "wal.settle",
    "wal.recover.commit",
    "wal.recover",
    "volume.superblock",
];

fn is_seen(site: &'static str, kind: MutationKind) -> bool {
    let in_recovery = site.starts_with("wal.recover");
    let states = ExploreLimits {
        exhaustive_bits: 4,
        single_units: 24,
        pair_units: 0,
        samples: 8,
        focus_bits: 3,
        seed: 7,
        ..ExploreLimits::default()
    };
    let limits = Limits {
        states,
        nested_one_in: if in_recovery { 5 } else { 0 },
        whole_one_in: 0,
        nested_points: 20,
        every_rare: in_recovery,
        violations: 1,
        ..Limits::quick()
    };
    let setting = world("pmem").broken(Mutation::new(Site(site), kind));
    // Most are seen by scripts, which are small; only groups fence what their calls store.
    let mut subjects = all();
    subjects.retain(|subject| matches!(subject.program, Done::Story(_)) == (site == "wal.call.fence"));
    subjects.iter().any(|subject| !explore(subject, &setting, &limits).violations.is_empty())
}

#[test]
fn a_fence_that_orders_nothing_is_seen() {
    let unseen: Vec<_> = FENCES.iter().filter(|site| !is_seen(site, MutationKind::DropOrder)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn a_store_that_comes_late_is_seen() {
    let unseen: Vec<_> = STORES.iter().filter(|site| !is_seen(site, MutationKind::DelayWrite)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}
