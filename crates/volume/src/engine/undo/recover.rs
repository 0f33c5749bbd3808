//! What a crash has left, and how it is undone: of each lane the group that was not committed (invariants 1 to 5, 8).

use wholly_error::Result;
use wholly_media::Region;

use super::RECOVERY;
use crate::engine::patch::{self, Patch};
use crate::engine::{check_within, lanes, read_within};
use crate::format::log::{Entry, LINE, LogArea, LogSeed};

/// All that recovery has to store of a lane, in this order. Lanes do not depend on each other. Only reads.
///
/// # Errors
/// If the lane is damaged; the medium's.
pub fn lane_patches(region: &dyn Region, area: &LogArea, seed: LogSeed, lane: u32) -> Result<Vec<Patch>> {
    let committed = lanes::last_commit(region, area, seed, lane)?.map_or(0, |(read, _)| read.sequence);
    let (seed, mut patches) = (seed.lane(lane), Vec::new());
    lanes::walk(region, lanes::running(area, seed, lane, committed), &mut |stands, read| {
        match read.entry {
            Entry::Undo { at, len, old } => patches.push(Patch::old(at, old[..usize::from(len)].to_vec())),
            Entry::Old { at, len, sum } => {
                // Behind an entry that is whole there may be bytes that are not, until the fence.
                let from = stands + LINE as u64;
                check_within(region, from, len as usize)?;
                let mut bytes = vec![0; len as usize];
                read_within(region, from, &mut bytes)?;
                if seed.payload_sum(stands, &bytes) != sum {
                    return Ok(false);
                }
                patches.push(Patch::copied(at, len, from));
            }
            Entry::OldZeros { at, len } => patches.push(Patch::zeros(at, len)),
            _ => {}
        }
        Ok(true)
    })?;
    patches.iter().try_for_each(|patch| check_within(region, patch.at, patch.len as usize))?;
    patches.reverse();
    Ok(patches)
}

/// Repairs the volume. What is stored is durable on return.
pub(super) fn recover(region: &dyn Region, area: &LogArea, seed: LogSeed) -> Result<()> {
    let mut patches = Vec::new();
    for lane in 0..area.lanes {
        patches.extend(lane_patches(region, area, seed, lane)?);
    }
    patch::store(region, &RECOVERY, &patches)
}
