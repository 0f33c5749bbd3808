//! Mistakes that are planted, one at a time: a fence that orders nothing, a store that the fence after it does not
//! cover. Each must be seen by some script.

use wholly_media::Site;
use wholly_sim::{Mutation, MutationKind};

use crate::explore::{Limits, Recorded, Subject};
use crate::groups::stories;
use crate::scripts::SCRIPTS;

/// The fences of a commit. What recovery stores a mount fences once more, before it says that it has recovered.
const FENCES: &[&str] =
    &["wal.call.fence", "wal.log.fence", "wal.place.fence", "wal.commit.fence", "wal.home.fence", "wal.settle.fence"];

/// Stores that the next fence must cover: to the log, in place, and home. Not fresh blocks: any fence before the commit
/// entry will do for them.
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
];

fn is_seen(site: &'static str, kind: MutationKind, is_group: bool) -> bool {
    let limits = Limits { exhaustive_bits: 4, samples: 8, nested_every: u64::MAX, seed: 7, ..Limits::default() };
    let mutations = [Mutation::new(Site(site), kind)];
    if site == "wal.call.fence" || is_group {
        return stories().iter().any(|story| {
            let recorded = Recorded::of_moves(
                Subject::FINE_GRAINED_WAL,
                (&story.name, story.before),
                &story.moves,
                false,
                &mutations,
            );
            recorded.explore(&limits).violation.is_some()
        });
    }
    SCRIPTS.iter().any(|script| {
        // A mistake may be missed at once, without a crash.
        let recorded = std::panic::catch_unwind(|| Recorded::of(script, false, &mutations));
        recorded.map_or(true, |recorded| recorded.explore(&limits).violation.is_some())
    })
}

#[test]
fn a_fence_that_orders_nothing_is_seen() {
    let unseen: Vec<_> = FENCES.iter().filter(|site| !is_seen(site, MutationKind::DropOrder, false)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

#[test]
fn a_store_that_comes_late_is_seen() {
    let unseen: Vec<_> = STORES.iter().filter(|site| !is_seen(site, MutationKind::DelayWrite, false)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}

/// The same of the log of an explicit group, and of what leads to it.
#[test]
fn a_store_of_a_chain_that_comes_late_is_seen() {
    let sites = ["wal.head", "wal.payload", "wal.link"];
    let unseen: Vec<_> = sites.iter().filter(|site| !is_seen(site, MutationKind::DelayWrite, true)).collect();
    assert!(unseen.is_empty(), "{unseen:?}");
}
