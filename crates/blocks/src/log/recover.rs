//! What a crash has left in the ring: the records that count, and the images that they have.

use std::collections::BTreeMap;

use wholly_error::{Error, Result};
use wholly_media::Region;

use super::ring::{
    Entry, HEAD, Record, Ring, RingSeed, Tail, decode_head, decode_header, head_blocks, head_len, image_sum,
};
use crate::{BLOCK, Lba, Run};

fn damaged() -> Error {
    Error::corrupt("the log", "a committed record is damaged")
}

/// What the records say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The last record. It is to be made durable before anything relies on it: its writer may have died before the
    /// write was. On a disk a fence does that; a sector that is written again may tear.
    pub proof: Option<Run>,
    /// The last image of each block that is not void: the block, and where the image stands.
    pub images: Vec<(Lba, Lba)>,
}

/// That bytes are inside of the medium.
fn check_within(region: &dyn Region, at: u64, len: usize) -> Result<()> {
    match at.checked_add(len as u64).is_some_and(|end| end <= region.len()) {
        true => Ok(()),
        false => Err(Error::corrupt(format!("block {}", at / BLOCK as u64), "it is beyond the end of the medium")),
    }
}

fn read_within(region: &dyn Region, at: u64, bytes: &mut [u8]) -> Result<()> {
    check_within(region, at, bytes.len())?;
    Ok(region.read(at, bytes)?)
}

/// Reads the records from the newest header on. Only reads: recovery stores the images at home, and fences; then the
/// incarnation is raised, which makes all records void. It can be interrupted anywhere, and repeated.
///
/// # Errors
/// If the log is damaged; the medium's.
pub fn read(region: &dyn Region, ring: &Ring, seed: RingSeed) -> Result<Recovered> {
    let mut tail = Tail::FIRST;
    for turn in 0..2 {
        let (block, mut bytes) = (ring.header(turn), [0; BLOCK]);
        read_within(region, block.byte(), &mut bytes)?;
        let read = decode_header(seed, block, &bytes);
        tail = read.filter(|read| read.sequence > tail.sequence).unwrap_or(tail);
    }
    let (mut images, mut last) = (BTreeMap::new(), None);
    // Sequences grow, so that records cannot go round.
    while let Some((at, record)) = next(region, ring, seed, tail)? {
        let end = at + record.blocks;
        tail = Tail { sequence: record.sequence + 1, at: end };
        let is_own = |block: u64| (ring.block(at).0..ring.block(end).0).contains(&block);
        if !has_images(region, seed, &record, &is_own)? {
            // The last one may be torn.
            tail.sequence = record.sequence;
            break;
        }
        if !has_images(region, seed, &record, &|block| !is_own(block))? {
            return Err(damaged());
        }
        // A block that is void may have an image in the same record.
        for entry in &record.entries {
            let Entry::Void(run) = entry else { continue };
            let blocks = images.range(run.start.0..run.start.0.saturating_add(run.count));
            let void: Vec<u64> = blocks.map(|(block, _)| *block).collect();
            void.iter().for_each(|block| _ = images.remove(block));
        }
        for entry in record.entries {
            if let Entry::Image { home, at, .. } = entry {
                images.insert(home.0, at);
            }
        }
        last = Some(Run { start: ring.block(at), count: record.blocks });
    }
    check_end(region, ring, seed, tail.sequence)?;
    let images: Vec<(Lba, Lba)> = images.into_iter().map(|(home, at)| (Lba(home), at)).collect();
    images.iter().try_for_each(|(home, _)| check_within(region, home.byte(), BLOCK))?;
    Ok(Recovered { proof: last, images })
}

/// The record with this sequence: where it begins in the ring, and its head.
fn next(
    region: &dyn Region,
    ring: &Ring,
    seed: RingSeed,
    Tail { sequence, at }: Tail,
) -> Result<Option<(u64, Record)>> {
    for at in [at, 0] {
        let record = record_at(region, ring, seed, at)?;
        if let Some(record) = record.filter(|record| record.sequence == sequence) {
            return Ok(Some((at, record)));
        }
    }
    Ok(None)
}

/// The record whose head stands in a block of the ring.
fn record_at(region: &dyn Region, ring: &Ring, seed: RingSeed, at: u64) -> Result<Option<Record>> {
    let mut bytes = vec![0; HEAD];
    if at >= ring.blocks {
        return Ok(None);
    }
    read_within(region, ring.block(at).byte(), &mut bytes)?;
    let Some(len) = head_len(ring, &bytes).filter(|len| at + len <= ring.blocks) else { return Ok(None) };
    bytes.resize(len as usize * BLOCK, 0);
    read_within(region, ring.block(at).byte(), &mut bytes)?;
    let is_whole = |record: &Record| {
        record.blocks >= head_blocks(record.entries.len() as u64)
            && at.checked_add(record.blocks).is_some_and(|end| end <= ring.blocks)
    };
    Ok(decode_head(seed, ring.block(at), &bytes).filter(is_whole))
}

/// That no record comes after the one that is not there, or is torn: it would prove that this one was there, and whole.
/// It may stand anywhere: only the head of this one knew where.
///
/// # Errors
/// If the log is damaged; the medium's.
fn check_end(region: &dyn Region, ring: &Ring, seed: RingSeed, missing: u64) -> Result<()> {
    for at in 0..ring.blocks {
        if record_at(region, ring, seed, at)?.is_some_and(|record| record.sequence > missing) {
            return Err(damaged());
        }
    }
    Ok(())
}

/// Whether the images of a record that stand in some blocks are as its head says.
fn has_images(region: &dyn Region, seed: RingSeed, record: &Record, stands: &dyn Fn(u64) -> bool) -> Result<bool> {
    for entry in &record.entries {
        let Entry::Image { home, at, sum } = *entry else { continue };
        if !stands(at.0) {
            continue;
        }
        let mut bytes = [0; BLOCK];
        read_within(region, at.byte(), &mut bytes)?;
        if image_sum(seed, home, &bytes) != sum {
            return Ok(false);
        }
    }
    Ok(true)
}
