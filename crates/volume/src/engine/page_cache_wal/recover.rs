//! What a crash has left: the records that count, and the images that they have (invariants 9 and 10).

use std::collections::BTreeMap;

use wholly_error::Result;
use wholly_media::Region;

use super::RECOVERY;
use crate::engine::patch::{self, Patch};
use crate::engine::{check_within, corrupt, read_within};
use crate::format::log::{LINE, LogArea, LogSeed};
use crate::format::ring::{Entry, Record, Ring, Tail, decode_head, decode_header, head_blocks, head_len, image_sum};
use crate::format::{BLOCK, Fault};

fn damaged() -> wholly_error::Error {
    corrupt("the log", Fault("a committed record is damaged"))
}

/// All that recovery has to store, in this order. Only reads.
///
/// # Errors
/// If the log is damaged; the medium's.
pub fn patches(region: &dyn Region, area: &LogArea, seed: LogSeed) -> Result<Vec<Patch>> {
    let ring = Ring::of(area);
    let mut tail = Tail::FIRST;
    for turn in 0..2 {
        let (block, mut bytes) = (ring.header(turn), [0; BLOCK]);
        read_within(region, block.byte(), &mut bytes)?;
        let read = decode_header(seed, block, &bytes);
        tail = read.filter(|read| read.sequence > tail.sequence).unwrap_or(tail);
    }
    let (mut images, mut last) = (BTreeMap::new(), None);
    // Sequences grow, so that records cannot go round.
    while let Some((at, record)) = next(region, &ring, seed, tail)? {
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
        last = Some(Patch::there(ring.block(at).byte(), record.blocks * BLOCK as u64));
    }
    check_end(region, &ring, seed, tail.sequence)?;
    let copied =
        |(home, at): (u64, crate::format::Lba)| Patch::copied(crate::format::Lba(home).byte(), BLOCK as u64, at.byte());
    let patches: Vec<Patch> = last.into_iter().chain(images.into_iter().map(copied)).collect();
    patches.iter().try_for_each(|patch| check_within(region, patch.at, patch.len as usize))?;
    Ok(patches)
}

/// The record with this sequence: where it begins in the ring, and its head.
fn next(region: &dyn Region, ring: &Ring, seed: LogSeed, Tail { sequence, at }: Tail) -> Result<Option<(u64, Record)>> {
    for at in [at, 0] {
        let record = record_at(region, ring, seed, at)?;
        if let Some(record) = record.filter(|record| record.sequence == sequence) {
            return Ok(Some((at, record)));
        }
    }
    Ok(None)
}

/// The record whose head stands in a block of the ring.
fn record_at(region: &dyn Region, ring: &Ring, seed: LogSeed, at: u64) -> Result<Option<Record>> {
    let mut bytes = vec![0; LINE];
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
fn check_end(region: &dyn Region, ring: &Ring, seed: LogSeed, missing: u64) -> Result<()> {
    for at in 0..ring.blocks {
        if record_at(region, ring, seed, at)?.is_some_and(|record| record.sequence > missing) {
            return Err(damaged());
        }
    }
    Ok(())
}

/// Whether the images of a record that stand in some blocks are as its head says.
fn has_images(region: &dyn Region, seed: LogSeed, record: &Record, stands: &dyn Fn(u64) -> bool) -> Result<bool> {
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

/// Repairs the volume. What is stored is durable on return.
pub(super) fn recover(region: &dyn Region, area: &LogArea, seed: LogSeed) -> Result<()> {
    patch::store(region, &RECOVERY, &patches(region, area, seed)?)
}
