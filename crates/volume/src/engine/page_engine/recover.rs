//! What a crash has left: what the log's records say (invariants 9 and 10), as patches.

use wholly_blocks::log::{self, RingSeed};
use wholly_error::Result;
use wholly_media::Region;

use super::{RECOVERY, ring_of};
use crate::engine::patch::{self, Patch};
use crate::format::BLOCK;
use crate::format::log::LogArea;

/// All that recovery has to store, in this order. Only reads.
///
/// # Errors
/// If the log is damaged; the medium's.
pub fn patches(region: &dyn Region, area: &LogArea, seed: RingSeed) -> Result<Vec<Patch>> {
    let found = log::read(region, &ring_of(area), seed)?;
    let proof = found.proof.map(|run| Patch::there(run.start.byte(), run.count * BLOCK as u64));
    let copied = found.images.iter().map(|(home, at)| Patch::copied(home.byte(), BLOCK as u64, at.byte()));
    Ok(proof.into_iter().chain(copied).collect())
}

/// Repairs the volume. What is stored is durable on return.
pub(super) fn recover(region: &dyn Region, area: &LogArea, seed: RingSeed) -> Result<()> {
    patch::store(region, &RECOVERY, &patches(region, area, seed)?)
}
