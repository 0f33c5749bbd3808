//! Which persistence sites of the code were crash points.

use wholly::site::{self, *};
use wholly_media::Site;

use crate::explore::Outcome;
use crate::setting::Setting;

/// Sites that only a log on persistent memory has.
const PMEM_LOG: [Site; 10] = [
    SEGMENT_HEADER,
    LANE_PAYLOAD,
    LANE_ENTRIES,
    LANE_PART,
    LANE_COMMIT,
    LANE_COMMIT_FENCE,
    LANE_PARTS_FENCE,
    RECOVER_LENGTH,
    RECOVER_REWRITE,
    RECOVER_FENCE,
];

/// Sites that only a log on a disk has.
const DISK_LOG: [Site; 7] =
    [BATCH_WRITE, SPILL_WRITE, SPILL_GIVE_UP, SPILL_SYNC, RECOVER_SETTLE, SWAP_MAKE, SWAP_WRITE];

/// Sites that only home files on persistent memory have.
const PMEM_HOME: [Site; 2] = [CHECKPOINT_ALLOCATE, CHECKPOINT_FENCE];

/// What only joint commits do, whose crashes have an [explorer of their own](crate::joint): they take two worlds.
pub(crate) fn is_joint(site: Site) -> bool {
    site.0.starts_with("joint.")
}

/// In a store's spare space is nothing, and no crash can tell what became of it: the workloads keep none.
fn is_spare(site: Site) -> bool {
    site.0.starts_with("room.")
}

/// The sites that the code passes in a world.
pub fn sites(setting: &Setting) -> Vec<Site> {
    let (log, home) = (setting.sim.log.is_pmem(), setting.sim.home.is_pmem());
    let here = |site: &&Site| {
        !is_joint(**site)
            && !is_spare(**site)
            && (log || !PMEM_LOG.contains(site))
            && (!log || !DISK_LOG.contains(site))
            && (home || !PMEM_HOME.contains(site))
    };
    site::ALL.iter().filter(here).copied().collect()
}

/// The sites whose names begin with one of these parts, such as `"park."`.
pub fn of(parts: &[&str]) -> Vec<Site> {
    let is_of = |site: &&Site| parts.iter().any(|part| site.0.starts_with(part));
    site::ALL.iter().filter(is_of).copied().collect()
}

/// Those of these sites at which no explored run or recovery has crashed.
pub fn uncovered(sites: &[Site], outcome: &Outcome) -> Vec<Site> {
    let crashed = |site: &Site| outcome.coverage.sites.get(site).is_some_and(|seen| seen.points > 0);
    sites.iter().filter(|site| !crashed(site)).copied().collect()
}

/// A line for each site: events, crash points, images.
pub fn table(outcome: &Outcome) -> String {
    let mut lines = String::from("site                    events     points     images\n");
    for site in site::ALL {
        let seen = outcome.coverage.sites.get(site).copied().unwrap_or_default();
        lines += &format!("{:<22} {:>8} {:>10} {:>10}\n", site.0, seen.events, seen.points, seen.images);
    }
    lines
}
