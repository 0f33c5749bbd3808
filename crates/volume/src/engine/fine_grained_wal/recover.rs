//! What a crash has left, and how it is repaired: lane by lane, committed data is made again, and what is not committed
//! is undone (invariants 4 to 8).

use wholly_error::Result;
use wholly_media::Region;

use super::RECOVERY;
use crate::engine::check_within;
use crate::engine::lanes::{self, Found, Redo};
use crate::engine::patch::{self, Patch};
use crate::format::log::{LINE, LogArea, LogSeed};

/// All that recovery has to store, in this order. Only reads.
///
/// # Errors
/// If the log is damaged; the medium's.
pub fn patches(region: &dyn Region, area: &LogArea, seed: LogSeed) -> Result<Vec<Patch>> {
    let mut patches = Vec::new();
    for lane in 0..area.lanes {
        patches.extend(lane_patches(region, area, seed, lane)?);
    }
    Ok(patches)
}

/// The same of one lane. Lanes do not depend on each other.
///
/// # Errors
/// If the lane is damaged; the medium's.
pub fn lane_patches(region: &dyn Region, area: &LogArea, seed: LogSeed, lane: u32) -> Result<Vec<Patch>> {
    let Found { redo, commit, undo } = lanes::read_lane(region, area, seed, lane)?;
    let commit = commit.map(|at| Patch::there(at, LINE as u64));
    let redo = redo.into_iter().map(|Redo { from, at, len }| match from {
        Some(from) => Patch::copied(at, len, from),
        None => Patch::zeros(at, len),
    });
    let old = |(at, bytes)| Patch::old(at, bytes);
    // A group that is not committed may have been built on the last one of its lane, never the other way round.
    let patches: Vec<Patch> = commit.into_iter().chain(redo).chain(undo.into_iter().rev().map(old)).collect();
    patches.iter().try_for_each(|patch| check_within(region, patch.at, patch.len as usize))?;
    Ok(patches)
}

/// Repairs the volume. What is stored is durable on return.
pub(super) fn recover(region: &dyn Region, area: &LogArea, seed: LogSeed) -> Result<()> {
    patch::store(region, &RECOVERY, &patches(region, area, seed)?)
}
