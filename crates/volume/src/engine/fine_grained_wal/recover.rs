//! What a crash has left, and how it is repaired: lane by lane, committed data is made again, and what is not committed
//! is undone (invariants 4 to 8).

use wholly::Result;
use wholly_media::Region;

use super::{RECOVER, RECOVER_FENCE};
use crate::engine::check_within;
use crate::engine::lanes::{self, Found};
use crate::format::log::{LogArea, LogSeed};

/// Bytes that a place is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The byte of the volume.
    pub at: u64,
    /// They.
    pub bytes: Vec<u8>,
}

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
    let mut patches = Vec::new();
    let Found { redo, undo } = lanes::read_lane(region, area, seed, lane)?;
    // A group that is not committed may have been built on the last one of its lane, never the other way round.
    for (at, bytes) in redo.into_iter().chain(undo.into_iter().rev()) {
        check_within(region, at, bytes.len())?;
        patches.push(Patch { at, bytes });
    }
    Ok(patches)
}

/// Repairs the volume. What is stored is durable on return.
pub(super) fn recover(region: &dyn Region, area: &LogArea, seed: LogSeed) -> Result<()> {
    let patches = patches(region, area, seed)?;
    if patches.is_empty() {
        return Ok(());
    }
    for patch in patches {
        region.write(RECOVER, patch.at, &patch.bytes)?;
    }
    Ok(region.fence(RECOVER_FENCE)?)
}
