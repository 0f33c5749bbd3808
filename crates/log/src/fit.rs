//! A log that lies on another medium than it was made for: its directory was copied, or its disk has other sectors.
//!
//! Records are aligned to a *block*: to the lines of persistent memory, or the sectors of a disk. A medium with larger
//! blocks cannot write the smaller ones of the log. What is in the log is read as what it was made for all the same: a
//! [`Narrow`] region writes the larger blocks whole, with what is around. That keeps each promise of the smaller ones,
//! as a crash leaves a larger block as it was or as it was written; but each write waits for the medium. So a log in
//! which nothing is left is [made again](make_again) for its medium.

use std::sync::{Arc, Mutex};

use wholly_media::{Guarantees, Kind, PersistenceDomain, Region, Result as MediaResult, Site};

use wholly_error::{Error, Result};

use crate::layout::{LINE, SEGMENTS_START};
use crate::{ClientPart, KeptSegment, first_of, in_force, read_slots, segments_in, site, write_superblock};

/// A region of the blocks that a log was made for.
struct Narrow {
    region: Arc<dyn Region>,
    guarantees: Guarantees,
    /// Held while a block is read and written, with what other threads have in it.
    writes: Mutex<()>,
}

impl Narrow {
    fn put(&self, site: Site, offset: u64, data: &[u8]) -> MediaResult<()> {
        let block = u64::from(self.region.guarantees().block);
        let first = offset - offset % block;
        let mut bytes = vec![0; ((offset + data.len() as u64).next_multiple_of(block) - first) as usize];
        let _alone = self.writes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // What a process that died has left on its way may be accepted by now, so it stays.
        self.region.read(first, &mut bytes)?;
        bytes[(offset - first) as usize..][..data.len()].copy_from_slice(data);
        self.region.write_through(site, first, &bytes)
    }
}

impl Region for Narrow {
    fn guarantees(&self) -> &Guarantees {
        &self.guarantees
    }

    fn len(&self) -> u64 {
        self.region.len()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> MediaResult<()> {
        self.region.read(offset, buf)
    }

    fn read_uncached(&self, offset: u64, buf: &mut [u8]) -> MediaResult<()> {
        match self.guarantees.is_pmem() {
            true => self.region.read(offset, buf),
            false => self.region.read_uncached(offset, buf),
        }
    }

    fn write(&self, site: Site, offset: u64, data: &[u8]) -> MediaResult<()> {
        self.put(site, offset, data)
    }

    /// All that was written is durable.
    fn fence(&self, _site: Site) -> MediaResult<()> {
        Ok(())
    }

    fn write_through(&self, site: Site, offset: u64, data: &[u8]) -> MediaResult<()> {
        self.put(site, offset, data)
    }

    fn set_len(&self, site: Site, len: u64) -> MediaResult<()> {
        self.region.set_len(site, len)
    }
}

/// What a medium promises for which a log was made whose records are aligned to blocks of so many bytes.
pub fn made_for(block: u32, description: &str) -> Guarantees {
    let is_pmem = u64::from(block) == LINE;
    Guarantees {
        kind: if is_pmem { Kind::Pmem } else { Kind::Disk },
        atomic_unit: if is_pmem { 8 } else { 512 },
        block: if is_pmem { 1 } else { block },
        domain: if is_pmem { PersistenceDomain::MemoryController } else { PersistenceDomain::Device },
        emulated: true,
        description: description.into(),
    }
}

/// The bytes that records are aligned to in a log that is made on this medium.
fn block_of(region: &dyn Region) -> u32 {
    region.guarantees().block.max(LINE as u32)
}

/// The log's region as what the log was made for; and whether that is what it is.
///
/// # Errors
/// Of the medium. What is no log is what it is.
pub fn as_made<P: ClientPart>(region: Arc<dyn Region>) -> Result<(Arc<dyn Region>, bool)> {
    if region.len() < SEGMENTS_START {
        return Ok((region, true));
    }
    let Some(block) = in_force(&read_slots::<P>(&*region)?).map(|superblock| superblock.block) else {
        return Ok((region, true));
    };
    let of_medium = block_of(&*region);
    if block >= of_medium {
        return Ok((region, block == of_medium));
    }
    let guarantees = made_for(block, &region.guarantees().description);
    Ok((Arc::new(Narrow { region, guarantees, writes: Mutex::new(()) }), false))
}

/// Makes a log again for the medium that it lies on. Nothing may be in it, and it may not be open.
///
/// The headers of its segments are wiped before the superblock names other blocks. So no reader meets records that are
/// aligned in the old way. If a crash comes between the two, nothing is lost: the tail is above all that was in them.
/// Its incarnation goes on, since what is parked has ids of the ones before.
///
/// # Errors
/// Of the medium; [`Error::Corrupt`] if no superblock is valid.
pub fn make_again<P: ClientPart>(region: &dyn Region) -> Result<()> {
    let Some(mut next) = in_force(&read_slots::<P>(region)?).cloned() else {
        return Err(Error::corrupt("superblock", "no copy has a valid checksum"));
    };
    let (block, old) = (block_of(region), next.segment_bytes);
    for segment in 0..segments_in(region, old) {
        let start = SEGMENTS_START + u64::from(segment) * old;
        region.write_through(site::LOG_FORMAT, start, &vec![0; block as usize])?;
    }
    next.segment_bytes = old.max(u64::from(block) * 2);
    let least = SEGMENTS_START + u64::from(next.min_segments) * next.segment_bytes;
    if region.len() < least {
        region.set_len(site::LOG_FORMAT, least)?;
    }
    next.generation += 1;
    next.incarnation += 1;
    (next.tail, next.checkpointing) = (first_of(next.incarnation), first_of(next.incarnation));
    next.kept = KeptSegment::kept(&[], next.tail);
    next.block = block;
    next.segments = Some(segments_in(region, next.segment_bytes));
    write_superblock(region, site::LOG_FORMAT, &next)
}
