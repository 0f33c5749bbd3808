//! What recovery stores: bytes, and where.

use wholly_error::Result;
use wholly_media::{Region, Site};

use super::logging::ZEROS;
use crate::format::BLOCK;

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
    /// Those that are there: what recovery believes, and its writer may not have fenced.
    There,
    Old(Vec<u8>),
    Logged(u64),
    Zeros,
}

impl Patch {
    /// Bytes that are there, and that recovery believes.
    pub fn there(at: u64, len: u64) -> Patch {
        Patch { at, len, what: Bytes::There }
    }

    /// Old bytes of a group that is undone.
    pub fn old(at: u64, bytes: Vec<u8>) -> Patch {
        Patch { at, len: bytes.len() as u64, what: Bytes::Old(bytes) }
    }

    /// Bytes that stand elsewhere on the medium.
    pub fn copied(at: u64, len: u64, from: u64) -> Patch {
        Patch { at, len, what: Bytes::Logged(from) }
    }

    /// Zeros.
    pub fn zeros(at: u64, len: u64) -> Patch {
        Patch { at, len, what: Bytes::Zeros }
    }

    /// Reads the bytes from the `offset`th on.
    ///
    /// # Errors
    /// The medium's.
    pub fn read(&self, region: &dyn Region, offset: u64, buf: &mut [u8]) -> wholly_media::Result<()> {
        match &self.what {
            Bytes::There => region.read(self.at + offset, buf)?,
            Bytes::Old(bytes) => buf.copy_from_slice(&bytes[offset as usize..][..buf.len()]),
            Bytes::Logged(from) => region.read(from + offset, buf)?,
            Bytes::Zeros => buf.fill(0),
        }
        Ok(())
    }
}

/// Where patches are stored.
pub struct Sites {
    /// What recovery believes.
    pub proof: Site,
    /// All else.
    pub patch: Site,
    pub fence: Site,
}

/// Stores what recovery believes once more, if there is anything: it is durable on return. Whoever stored it may have
/// died before the fence. If a crash took it away later, what was made because of it would be of a group that is not
/// committed. On a disk the fence does that, whoever has written it; a sector that is written again could tear.
///
/// # Errors
/// The medium's.
pub fn store_proof(region: &dyn Region, sites: &Sites, patches: &[Patch]) -> Result<()> {
    let (mut believes, is_pmem) = (false, region.guarantees().is_pmem());
    for patch in patches.iter().filter(|patch| patch.what == Bytes::There) {
        let mut bytes = [0; BLOCK];
        for done in (0..patch.len).step_by(BLOCK).take_while(|_| is_pmem) {
            let part = &mut bytes[..(patch.len - done).min(BLOCK as u64) as usize];
            region.read(patch.at + done, part)?;
            region.write(sites.proof, patch.at + done, part)?;
        }
        believes = true;
    }
    if believes { Ok(region.fence(sites.fence)?) } else { Ok(()) }
}

/// Stores patches. They are durable on return. The first two blocks, copies of the superblock, become durable one after
/// the other: a crash may have torn the third one, and this one tears one more at most.
///
/// # Errors
/// The medium's.
pub fn store(region: &dyn Region, sites: &Sites, patches: &[Patch]) -> Result<()> {
    if patches.is_empty() {
        return Ok(());
    }
    store_proof(region, sites, patches)?;
    for patch in patches {
        match &patch.what {
            Bytes::There => {}
            Bytes::Old(bytes) => region.write(sites.patch, patch.at, bytes)?,
            Bytes::Logged(from) => region.write_from(sites.patch, patch.at, region, *from, patch.len as usize)?,
            Bytes::Zeros => (0..patch.len).step_by(BLOCK).try_for_each(|done| {
                let len = (patch.len - done).min(BLOCK as u64) as usize;
                region.write(sites.patch, patch.at + done, &ZEROS[..len])
            })?,
        }
        if patch.at < 2 * BLOCK as u64 {
            region.fence(sites.fence)?;
        }
    }
    Ok(region.fence(sites.fence)?)
}
