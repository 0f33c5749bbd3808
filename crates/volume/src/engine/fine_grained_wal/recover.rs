//! What a crash has left, and how it is repaired: lane by lane, committed data is made again, and what is not committed
//! is undone (invariants 4 to 8).

use wholly::Result;
use wholly_media::Region;

use super::{RECOVER, RECOVER_COMMIT, RECOVER_FENCE, ZEROS};
use crate::engine::check_within;
use crate::engine::lanes::{self, Found, Redo};
use crate::format::log::{LINE, LogArea, LogSeed};

/// Bytes that a place is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The byte of the volume.
    pub at: u64,
    /// How many.
    pub len: u64,
    what: Bytes,
}

/// Where they are. Data stays in the log: a group may have any amount of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Bytes {
    /// Those that are there: a commit entry that recovery believes.
    Believed(Vec<u8>),
    Old(Vec<u8>),
    Logged(u64),
    Zeros,
}

impl Patch {
    /// Old bytes of a group that is undone.
    pub fn old(at: u64, bytes: Vec<u8>) -> Patch {
        Patch { at, len: bytes.len() as u64, what: Bytes::Old(bytes) }
    }

    /// Bytes that stand elsewhere on the medium.
    pub fn copied(at: u64, len: u64, from: u64) -> Patch {
        Patch { at, len, what: Bytes::Logged(from) }
    }

    /// Reads the bytes from the `offset`th on.
    ///
    /// # Errors
    /// The medium's.
    pub fn read(&self, region: &dyn Region, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        match &self.what {
            Bytes::Believed(bytes) | Bytes::Old(bytes) => {
                buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]);
            }
            Bytes::Logged(from) => region.read(from + offset, buf)?,
            Bytes::Zeros => buf.fill(0),
        }
        Ok(())
    }
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
    let Found { redo, commit, undo } = lanes::read_lane(region, area, seed, lane)?;
    let commit = commit.map(|(at, line)| Patch { at, len: LINE as u64, what: Bytes::Believed(line.to_vec()) });
    let redo = redo.into_iter().map(|Redo { from, at, len }| {
        let what = from.map_or(Bytes::Zeros, Bytes::Logged);
        Patch { at, len, what }
    });
    let old = |(at, bytes)| Patch::old(at, bytes);
    // A group that is not committed may have been built on the last one of its lane, never the other way round.
    let patches: Vec<Patch> = commit.into_iter().chain(redo).chain(undo.into_iter().rev().map(old)).collect();
    patches.iter().try_for_each(|patch| check_within(region, patch.at, patch.len as usize))?;
    Ok(patches)
}

/// Repairs the volume. What is stored is durable on return.
pub(super) fn recover(region: &dyn Region, area: &LogArea, seed: LogSeed) -> Result<()> {
    store(region, &patches(region, area, seed)?)
}

/// Stores patches. They are durable on return.
///
/// # Errors
/// The medium's.
pub fn store(region: &dyn Region, patches: &[Patch]) -> Result<()> {
    if patches.is_empty() {
        return Ok(());
    }
    // Whoever stored these may have died before the fence. If a crash took them away, what is made again from here on
    // would be of a group that is not committed.
    let mut believes = false;
    for patch in patches {
        if let Bytes::Believed(bytes) = &patch.what {
            region.write(RECOVER_COMMIT, patch.at, bytes)?;
            believes = true;
        }
    }
    if believes {
        region.fence(RECOVER_FENCE)?;
    }
    for patch in patches {
        match &patch.what {
            Bytes::Believed(_) => {}
            Bytes::Old(bytes) => region.write(RECOVER, patch.at, bytes)?,
            Bytes::Logged(from) => region.write_from(RECOVER, patch.at, region, *from, patch.len as usize)?,
            Bytes::Zeros => region.write(RECOVER, patch.at, &ZEROS[..patch.len as usize])?,
        }
    }
    Ok(region.fence(RECOVER_FENCE)?)
}
