//! Reading a log after a crash: what is there, what of it can be torn, and in which order it was committed.
//!
//! Recovery runs [`open`]: it reads the headers of all segments, verifies what invariant 2 says can be torn, wipes what
//! it rejects and stores again what it accepts. Then each segment is read once: its records are checked for gaps, and the committed groups given in
//! commit order to whoever rebuilds the index. Then what was accepted is made durable, and the incarnation raised.

use std::collections::BTreeMap;
use std::sync::Arc;

use wholly_media::Region;
use zerocopy::FromBytes;

use super::checksum::segment_seed;
use super::lane::rewrite;
use super::layout::{
    HEAD, Head, LINE, RawHead, RawSegmentHeader, RawSuperblock, SEGMENTS_START, SegmentHeader, Superblock,
};
use super::read::{Records, starts_batch};
use super::replay::{End, replay};
use super::verify::holds;
use super::{Geometry, Log, first_of, read_superblock, segments_in, volume_seed, write_superblock};
use crate::error::{Error, Result};
use crate::site;

pub use super::read::{Record, RecordView, SegmentReader, record_at};
pub use super::replay::{CommittedGroup, Replay};

/// What recovery found and did, for reports.
#[derive(Clone, Debug, Default)]
pub struct ScanReport {
    /// Segments with a header of this volume.
    pub segments: u32,
    /// Committed groups that are not home yet.
    pub groups: u64,
    /// Records that were torn by the crash and are gone.
    pub rejected: u32,
}

/// A segment with a header of this volume.
#[derive(Clone, Debug)]
pub(super) struct Found {
    index: u32,
    pub start: u64,
    pub records_start: u64,
    header: SegmentHeader,
    pub seed: u64,
}

impl Found {
    /// Whether its life is over and all its groups were taken home: then nothing in it counts, and it is not read.
    pub fn is_home(&self, superblock: &Superblock) -> bool {
        first_of(self.header.incarnation + 1) <= superblock.tail
    }
}

/// The segments of each lane, in the order in which they were filled.
type Lanes = BTreeMap<u32, Vec<Found>>;

/// The last batch of a lane, which invariant 2 says can be torn.
#[derive(Default)]
struct TornEnd {
    /// Where its segment starts.
    segment: u64,
    /// What is whole.
    accepted: Vec<Record>,
    /// Where the first record stands that is not.
    rejected: Option<u64>,
}

struct Scanner<'a> {
    region: &'a dyn Region,
    superblock: &'a Superblock,
}

impl Scanner<'_> {
    /// The chains of segments, each in the order in which it was filled; and where a header stands that does not prove itself and is not
    /// empty.
    fn lanes(&self) -> Result<(Lanes, Vec<u64>)> {
        let seed = volume_seed(&self.superblock.volume_id);
        let mut lanes = Lanes::new();
        let (mut headless, mut torn) = (Vec::new(), Vec::new());
        for index in 0..segments_in(self.region, self.superblock.segment_bytes) {
            let start = SEGMENTS_START + u64::from(index) * self.superblock.segment_bytes;
            let mut line = [0u8; LINE as usize];
            self.region.read_uncached(start, &mut line)?;
            let raw = RawSegmentHeader::read_from_bytes(&line).expect("a header's bytes");
            let Some(header) = SegmentHeader::checked(&raw, seed, start) else {
                headless.push(start);
                if line != [0; LINE as usize] {
                    torn.push(start);
                }
                continue;
            };
            if header.incarnation > self.superblock.incarnation {
                return Err(Error::corrupt(
                    format!("log, byte {start}"),
                    format!(
                        "a segment of incarnation {} in incarnation {}",
                        header.incarnation, self.superblock.incarnation
                    ),
                ));
            }
            if header.generation > self.superblock.generation {
                return Err(Error::corrupt(
                    "superblock",
                    format!(
                        "generation {} is gone, which the segment at byte {start} names: {} is the latest there is",
                        header.generation, self.superblock.generation
                    ),
                ));
            }
            lanes.entry(header.lane).or_default().push(Found {
                index,
                start,
                records_start: start + u64::from(self.superblock.block),
                header,
                seed: segment_seed(&self.superblock.volume_id, header.incarnation, header.sequence),
            });
        }
        for chain in lanes.values_mut() {
            chain.sort_by_key(|found| (found.header.incarnation, found.header.sequence));
        }
        self.check_headless(&headless, &lanes)?;
        Ok((lanes, torn))
    }

    /// A segment whose header does not prove itself was never used, or its header was torn with its first batch; then no second batch
    /// follows. If one does, the header has rotted. Which header it was is guessed from those that are there.
    fn check_headless(&self, starts: &[u64], lanes: &Lanes) -> Result<()> {
        /// Segments that may have been opened after the last one whose header is there.
        const BEYOND: u64 = 64;
        let mut lives = BTreeMap::from([(self.superblock.incarnation, 0)]);
        for found in lanes.values().flatten() {
            let highest = lives.entry(found.header.incarnation).or_insert(0);
            *highest = (*highest).max(found.header.sequence);
        }
        let mut records = Records::default();
        for &start in starts {
            let mut reader = SegmentReader::new(self.region, start, self.superblock.segment_bytes);
            let position = start + u64::from(self.superblock.block);
            let mut raw = [0u8; HEAD];
            reader.read(position, &mut raw)?;
            let raw = RawHead::read_from_bytes(&raw).expect("a head's bytes");
            if Head::parse(&raw, (reader.segment_end() - position) / LINE).is_none() {
                continue;
            }
            for (&incarnation, &highest) in &lives {
                for sequence in 1..=highest + BEYOND {
                    let seed = segment_seed(&self.superblock.volume_id, incarnation, sequence);
                    let end = reader.segment_end();
                    records.read(&mut reader, seed, position, end)?;
                    let counts = |head: &&Head| starts_batch(head) && head.sequence >= self.superblock.tail;
                    if records.heads().filter(counts).count() > 1 {
                        return Err(Error::corrupt(
                            format!("log, byte {start}"),
                            "the header of a segment that holds committed groups is not valid",
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// The last batch of a lane, if it was written in the last incarnation.
    fn torn_end(&self, chain: &[Found]) -> Result<TornEnd> {
        let mut records = Records::default();
        for found in chain.iter().rev().take_while(|found| found.header.incarnation == self.superblock.incarnation) {
            let mut reader = SegmentReader::new(self.region, found.start, self.superblock.segment_bytes);
            let end = reader.segment_end();
            records.read(&mut reader, found.seed, found.records_start, end)?;
            let Some(begin) = records.heads().rposition(starts_batch) else { continue };
            let mut torn = TornEnd { segment: found.start, ..TornEnd::default() };
            let mut payload = Vec::new();
            for record in records.iter(begin) {
                for entry in record.entries {
                    if !holds(&mut reader, found.seed, record.position, entry, &mut payload)? {
                        torn.rejected = Some(record.position);
                        return Ok(torn);
                    }
                }
                torn.accepted.push(record.to_record());
            }
            return Ok(torn);
        }
        Ok(TornEnd::default())
    }

    /// Where a commit record of the last incarnation may stand that lacks words of its first line: its group was in flight, so that it is
    /// behind all others of its lane, whose last segment ends at `end`.
    fn torn_head(&self, last: &Found, end: u64) -> Result<Option<u64>> {
        if last.header.incarnation != self.superblock.incarnation
            || end + LINE > last.start + self.superblock.segment_bytes
        {
            return Ok(None);
        }
        let mut line = [0; LINE as usize];
        self.region.read_uncached(end, &mut line)?;
        Ok((line != [0; LINE as usize]).then_some(end))
    }
}

/// Invariant 8: refuses a gap before what is known to have been durable.
fn check_gaps(superblock: &Superblock, chain: &[Found], ends: &[End]) -> Result<()> {
    for (after, _) in chain.iter().zip(ends).filter(|(_, end)| end.commits) {
        let Some(previous) = after.header.previous.filter(|previous| previous.last >= superblock.tail) else {
            continue;
        };
        let before = chain.iter().zip(ends).find(|(found, _)| {
            found.header.incarnation == after.header.incarnation && found.header.sequence == previous.sequence
        });
        let Some((before, end)) = before else {
            return Err(Error::corrupt(
                format!("log, before byte {}", after.start),
                format!("segment {} of its lane is missing, and its groups are not home", previous.sequence),
            ));
        };
        let told = before.start + u64::from(previous.end);
        if end.end < told {
            return Err(Error::corrupt(
                format!("log, byte {}", end.end),
                format!("no valid record, although records follow up to byte {told}"),
            ));
        }
    }
    Ok(())
}

/// Opens the log in `region`: see the head of this module. `to` gets the committed groups that are not home yet, in commit order. When it does,
/// what was accepted may not be durable yet: it may build nothing from them but what is volatile, or vanishes with the process. Where another thread helps, `coming` is called in it with the number of
/// operations that were read and not yet given.
///
/// # Errors
/// [`Error::NotAStore`], [`Error::Unsupported`], [`Error::Corrupt`] naming the place; or what `to` returns.
pub fn open(
    region: Arc<dyn Region>,
    geometry: Geometry,
    to: &mut impl Replay,
    coming: &(dyn Fn(usize) + Sync),
) -> Result<(Log, ScanReport)> {
    let superblock = read_superblock(&*region)?;
    let mut report = ScanReport::default();
    let scanner = Scanner { region: &*region, superblock: &superblock };
    let (lanes, mut torn) = scanner.lanes()?;
    let chains: Vec<Vec<Found>> = lanes.into_values().collect();
    for chain in &chains {
        let end = scanner.torn_end(chain)?;
        if let Some(position) = end.rejected {
            report.rejected += 1;
            wipe(&*region, superblock.block, position)?;
        }
        if region.guarantees().is_pmem() && !end.accepted.is_empty() {
            rewrite(&*region, site::RECOVER_REWRITE, end.segment, end.segment + LINE)?;
            for record in &end.accepted {
                rewrite(&*region, site::RECOVER_REWRITE, record.position, record.end())?;
            }
        }
        report.segments += chain.len() as u32;
    }
    let replayed = replay(&*region, &superblock, &chains, to, coming)?;
    report.groups = replayed.groups;
    for (chain, ends) in chains.iter().zip(&replayed.ends) {
        check_gaps(&superblock, chain, ends)?;
    }
    if region.guarantees().is_pmem() {
        for (chain, ends) in chains.iter().zip(&replayed.ends) {
            if let (Some(last), Some(end)) = (chain.last(), ends.last()) {
                torn.extend(scanner.torn_head(last, end.end)?);
            }
        }
        // A later header or record at the same place has words in common with what stands there, and must not make it whole: nobody
        // would verify it, since it would be of an earlier incarnation. (On a disk, what a write puts there begins with its own checksum.)
        for position in torn {
            wipe(&*region, superblock.block, position)?;
        }
        // The other slot is about to be overwritten, so this one must not depend on a fence that its writer never reached.
        let slot = superblock.slot_offset();
        rewrite(&*region, site::RECOVER_REWRITE, slot, slot + size_of::<RawSuperblock>() as u64)?;
        region.fence(site::RECOVER_FENCE)?;
    }

    let mut next = superblock.clone();
    next.generation += 1;
    next.incarnation += 1;
    if replayed.ends.iter().flatten().all(|end| end.last_sequence < superblock.tail) {
        next.tail = first_of(next.incarnation);
        next.checkpointing = next.tail;
    }
    if next.incarnation >= 1 << 23 {
        return Err(Error::unsupported("a log opened eight million times; take its files home and make a new one"));
    }
    write_superblock(&*region, site::RECOVER_INCARNATION, &next)?;

    let log = Log::new(region.clone(), geometry, next);
    for (found, end) in chains.iter().flatten().zip(replayed.ends.iter().flatten()) {
        if end.last_sequence >= superblock.tail {
            log.segment(found.index).adopt(found.seed, end.end, end.last_sequence);
        }
    }
    Ok((log, report))
}

/// Makes sure that no record and no header is ever found at `position`: on persistent memory once the scan's last fence was passed.
fn wipe(region: &dyn Region, block: u32, position: u64) -> Result<()> {
    if region.guarantees().is_pmem() {
        region.write(site::RECOVER_WIPE, position, &[0; LINE as usize])?;
    } else {
        region.write_through(site::RECOVER_WIPE, position, &vec![0; block as usize])?;
    }
    Ok(())
}
