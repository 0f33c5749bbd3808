//! Reading a log after a crash: what is there, what of it can be torn, and in which order it was committed.
//!
//! Recovery runs [`open`]: it reads the headers of all segments and verifies what invariant 2 says can be torn. Then
//! each segment is read once: its records are checked for gaps, and the committed groups given in commit order to
//! whoever rebuilds the index. Only when nothing is left to be refused is anything written, so that a corrupt log stays
//! as it is and can be looked at: what was rejected is wiped, what was accepted is stored again and made durable, the
//! incarnation raised.

use std::collections::{BTreeMap, BTreeSet};

use wholly_media::Region;
use zerocopy::FromBytes;

use super::batch::BATCH_LANE;
use super::checksum::segment_seed;
use super::lane::rewrite;
use super::layout::{Kept, LINE, LogPart, RawSegmentHeader, SEGMENTS_START, SegmentHeader};
use super::read::{is_record, starts_batch};
use super::replay::{End, replay};
use super::site;
use super::verify::holds;
use super::{
    Client, ClientKind, ClientPart, Geometry, KeptSegment, Log, MOST_INCARNATIONS, SegmentSource, check_length,
    first_of, read_superblock, segments_in, volume_seed, write_superblock,
};
use wholly_error::{Error, Result};

pub use super::read::{Record, RecordView, Records, SegmentReader, record_at};
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
    /// Records from here on are not looked at: what stands here was torn by the crash.
    pub limit: u64,
    header: SegmentHeader,
    pub seed: u64,
}

impl Found {
    /// Whether its life is over and all its groups were taken home: then nothing in it counts, and it is not read.
    pub fn is_home(&self, superblock: &LogPart) -> bool {
        first_of(self.header.incarnation + 1) <= superblock.tail
    }

    /// Whether it holds what committers on a disk write together, in the last life.
    pub fn is_batches(&self, superblock: &LogPart) -> bool {
        self.header.lane == BATCH_LANE && self.header.incarnation == superblock.incarnation
    }
}

/// A segment without a valid header.
struct Headless {
    index: u32,
    start: u64,
    /// There is no header at all.
    blank: bool,
}

/// The segments of each lane, in the order in which they were filled.
type Lanes = BTreeMap<u32, Vec<Found>>;

/// The last batch of a lane, which invariant 2 says can be torn.
struct TornEnd<K> {
    /// Where its segment starts.
    segment: u64,
    /// Which one of its chain that is.
    place: usize,
    /// What is whole.
    accepted: Vec<Record<K>>,
    /// Where the first record stands that is not.
    rejected: Option<u64>,
}

struct Scanner<'a> {
    region: &'a dyn Region,
    superblock: &'a LogPart,
}

impl Scanner<'_> {
    /// The chains of segments, each in the order in which it was filled; and the segments whose header does not prove
    /// itself.
    fn lanes(&self, to: &mut impl Replay) -> Result<(Lanes, Vec<Headless>)> {
        let seed = volume_seed(&self.superblock.volume_id);
        let mut lanes = Lanes::new();
        let mut headless = Vec::new();
        for index in 0..segments_in(self.region, self.superblock.segment_bytes) {
            let start = SEGMENTS_START + u64::from(index) * self.superblock.segment_bytes;
            let mut line = [0u8; LINE as usize];
            self.region.read_uncached(start, &mut line)?;
            let raw = RawSegmentHeader::read_from_bytes(&line).expect("a header's bytes");
            let Some(header) = SegmentHeader::checked(&raw, seed, start) else {
                headless.push(Headless { index, start, blank: line == [0; LINE as usize] });
                continue;
            };
            if header.incarnation > self.superblock.incarnation {
                to.refuse(Error::corrupt(
                    format!("log, byte {start}"),
                    format!(
                        "a segment of open {} of the log, which was opened only {} times",
                        header.incarnation, self.superblock.incarnation
                    ),
                ))?;
                continue;
            }
            if header.generation > self.superblock.generation {
                to.refuse(Error::corrupt(
                    "superblock",
                    format!(
                        "generation {} is gone, which the segment at byte {start} names: {} is the latest there is",
                        header.generation, self.superblock.generation
                    ),
                ))?;
            }
            lanes.entry(header.lane).or_default().push(Found {
                index,
                start,
                records_start: start + u64::from(self.superblock.block),
                limit: start + self.superblock.segment_bytes,
                header,
                seed: segment_seed(&self.superblock.volume_id, header.incarnation, header.sequence),
            });
        }
        for chain in lanes.values_mut() {
            chain.sort_by_key(|found| (found.header.incarnation, found.header.sequence));
        }
        self.check_headless(&headless, &lanes, to)?;
        Ok((lanes, headless))
    }

    /// A segment whose header does not prove itself was never used, or its header was torn with its first batch; then
    /// no second batch follows. If one does, the header has rotted, or was never written.
    ///
    /// Each segment is read once at most. Those that are free are taken from the first on. So of those that nobody has
    /// ever come to, one is looked at behind the last that was used; and of those that an earlier life left behind, the
    /// first, and the first behind the last that is in use.
    fn check_headless(&self, headless: &[Headless], lanes: &Lanes, to: &mut impl Replay) -> Result<()> {
        let all = || lanes.values().flatten();
        let used = all().map(|found| found.index).max();
        let in_use = all().filter(|found| found.header.incarnation == self.superblock.incarnation);
        let in_use = in_use.map(|found| found.index).max();
        let mut behind = true;
        for segment in headless {
            if !segment.blank || Some(segment.index) < used || behind {
                let empty = self.check_no_batches(segment.start, to)?;
                behind &= !(empty && segment.blank && Some(segment.index) > used);
            }
        }
        let mut free: Vec<&Found> = all().filter(|found| found.is_home(self.superblock)).collect();
        free.sort_unstable_by_key(|found| found.index);
        let before = free.partition_point(|found| Some(found.index) < in_use);
        let next = [0, before].into_iter().collect::<BTreeSet<_>>();
        next.iter().filter_map(|i| free.get(*i)).try_for_each(|found| self.check_no_batches(found.start, to).map(drop))
    }

    /// Refuses a segment in which a batch stands that is not the first, of a life or lap that its header does not tell
    /// of. Returns whether there is nothing at all behind its header.
    fn check_no_batches<T: Replay>(&self, start: u64, to: &mut T) -> Result<bool> {
        let mut reader = SegmentReader::new(self.region, start, self.superblock.segment_bytes);
        let block = u64::from(self.superblock.block);
        let mut empty = true;
        for position in (start + block..reader.segment_end()).step_by(block as usize) {
            empty = empty && {
                let mut line = [0u8; LINE as usize];
                reader.read(position, &mut line)?;
                line == [0; LINE as usize]
            };
            if position > start + block && is_committed::<T::Kind>(&mut reader, self.superblock, None, position)? {
                to.refuse(Error::corrupt(
                    format!("log, byte {start}"),
                    format!("not the header of the committed groups that follow it up to byte {position}"),
                ))?;
                return Ok(false);
            }
        }
        Ok(empty)
    }

    /// The last batch of a lane, if it was written in the last incarnation.
    fn torn_end<K: ClientKind>(&self, chain: &[Found]) -> Result<Option<TornEnd<K>>> {
        let mut records = Records::default();
        for (place, found) in chain.iter().enumerate().rev() {
            if found.header.incarnation != self.superblock.incarnation {
                break;
            }
            let mut reader = SegmentReader::new(self.region, found.start, self.superblock.segment_bytes);
            records.read(&mut reader, found.seed, found.records_start, found.limit)?;
            let Some(begin) = records.heads().rposition(starts_batch) else { continue };
            let mut torn = TornEnd { segment: found.start, place, accepted: Vec::new(), rejected: None };
            let mut payload = Vec::new();
            for record in records.iter(begin) {
                for entry in record.entries {
                    if !holds(&mut reader, found.seed, record.position, entry, &mut payload)? {
                        torn.rejected = Some(record.position);
                        return Ok(Some(torn));
                    }
                }
                torn.accepted.push(record.to_record());
            }
            return Ok(Some(torn));
        }
        Ok(None)
    }

    /// What earlier lives left must be what the last open found, but for what went home since. Returns it, with what
    /// the last life added.
    fn check_kept(
        &self,
        chains: &[Vec<Found>],
        ends: &[Vec<End>],
        headless: &[Headless],
        to: &mut impl Replay,
    ) -> Result<Vec<KeptSegment>> {
        let mut all = Vec::new();
        let mut earlier = Kept::default();
        let mut suspects: Vec<u64> =
            headless.iter().filter(|segment| !segment.blank).map(|segment| segment.start).collect();
        for (found, end) in chains.iter().flatten().zip(ends.iter().flatten()) {
            let is_earlier = found.header.incarnation < self.superblock.incarnation;
            if is_earlier && !found.is_home(self.superblock) {
                suspects.push(end.end);
            }
            if end.last_sequence < self.superblock.tail {
                continue;
            }
            if self.superblock.segments.is_some_and(|segments| found.index >= segments) {
                to.refuse(Error::corrupt(
                    format!("log, byte {}", found.start),
                    format!("groups not written back, in segment {}, which the superblock does not count", found.index),
                ))?;
            }
            if is_earlier {
                earlier.add(found.seed, found.start, end.last_sequence, end.commits);
            }
            all.push(KeptSegment { seed: found.seed, start: found.start, last: end.last_sequence, end: end.commits });
        }
        if earlier == self.superblock.kept {
            return Ok(all);
        }
        suspects.sort_unstable();
        let places: Vec<String> = suspects.iter().take(8).map(u64::to_string).collect();
        let place =
            if places.is_empty() { "log".into() } else { format!("log, at one of bytes {}", places.join(", ")) };
        to.refuse(Error::corrupt(
            place,
            format!(
                "{} segments of earlier opens hold groups that are not written back; at the last open {} did, or they \
                 ended elsewhere",
                earlier.segments, self.superblock.kept.segments
            ),
        ))?;
        Ok(all)
    }

    /// Where a commit record of the last incarnation may stand that lacks words of its first line: its group was in
    /// flight, so that it is behind all others of its lane, whose last segment ends at `end`.
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

/// Whether a batch begins at `position` whose groups are not home, of the segment with the seed `known` or of another
/// life or lap. What an earlier lap left is below the tail (invariant 5).
pub(super) fn is_committed<K: ClientKind>(
    reader: &mut SegmentReader<'_>,
    superblock: &LogPart,
    known: Option<u64>,
    position: u64,
) -> Result<bool> {
    is_record::<K>(reader, known, position, |head| starts_batch(head) && head.sequence >= superblock.tail)
}

/// Invariant 8: refuses a gap before what is known to have been durable.
fn check_gaps(superblock: &LogPart, chain: &[Found], ends: &[End], to: &mut impl Replay) -> Result<()> {
    // The life of the last commit met on the way back: what the headers before it in its lane tell was durable when it
    // was made.
    let mut committed = None;
    for (after, end) in chain.iter().zip(ends).rev() {
        if end.commits != 0 {
            committed = Some(after.header.incarnation);
        }
        let Some(previous) = after.header.previous.filter(|previous| previous.last >= superblock.tail) else {
            continue;
        };
        if committed != Some(after.header.incarnation) {
            continue;
        }
        let before = chain.iter().zip(ends).find(|(found, _)| {
            found.header.incarnation == after.header.incarnation && found.header.sequence == previous.sequence
        });
        let Some((before, end)) = before else {
            to.refuse(Error::corrupt(
                format!("log, before byte {}", after.start),
                format!("segment {} of its lane is missing, and its groups are not written back", previous.sequence),
            ))?;
            continue;
        };
        let told = before.start + u64::from(previous.end);
        if end.end < told {
            to.refuse(Error::corrupt(
                format!("log, byte {}", end.end),
                format!("no valid record, although records follow up to byte {told}"),
            ))?;
        }
    }
    Ok(())
}

/// Opens the log in the region of `source`: see the head of this module. `to` gets the committed groups that are not
/// home yet, in commit order. When it does, what was accepted may not be durable yet: it may build nothing
/// from them but what is volatile, or vanishes with the process. Where another thread helps, `coming` is called in it
/// with the number of operations that were read and not yet given. `take_over` is told how many groups are not home,
/// and changes the client's part of the superblock for this life; where it refuses, that is told to `to`.
///
/// # Errors
/// [`Error::Unsupported`], [`Error::Corrupt`] naming the place; or what `to` returns.
pub fn open<C: Client>(
    source: C::Source,
    geometry: Geometry,
    take_over: impl FnOnce(&mut C::Part, u64) -> Result<()>,
    to: &mut impl Replay<Kind = C::Kind>,
    coming: &(dyn Fn(usize) + Sync),
) -> Result<(Log<C>, ScanReport)> {
    let region = source.region();
    let superblock = read_superblock::<C::Part>(region)?;
    if superblock.incarnation + 1 >= MOST_INCARNATIONS {
        return Err(Error::unsupported(
            "a log that was opened four million times; run `wholly deinit`, then make a new \
            store",
        ));
    }
    if let Err(error) = check_length(region.len(), &superblock) {
        to.refuse(error)?;
    }
    let mut report = ScanReport::default();
    let scanner = Scanner { region, superblock: &superblock };
    let (lanes, headless) = scanner.lanes(to)?;
    let mut chains: Vec<Vec<Found>> = lanes.into_values().collect();
    let mut torn_ends = Vec::with_capacity(chains.len());
    let mut torn = BTreeSet::new();
    for chain in &mut chains {
        report.segments += chain.len() as u32;
        let Some(end) = scanner.torn_end::<C::Kind>(chain)? else { continue };
        if let Some(position) = end.rejected {
            report.rejected += 1;
            chain[end.place].limit = position;
            torn.insert(position);
        }
        torn_ends.push(end);
    }
    let replayed = replay(region, &superblock, &chains, to, coming)?;
    report.groups = replayed.groups;
    for (chain, ends) in chains.iter().zip(&replayed.ends) {
        check_gaps(&superblock, chain, ends, to)?;
    }
    let kept = scanner.check_kept(&chains, &replayed.ends, &headless, to)?;
    if superblock.committed >= superblock.tail && !replayed.named {
        to.refuse(Error::corrupt(
            "log",
            format!("group {:#x} had committed before a checkpoint began, and is missing", superblock.committed),
        ))?;
    }
    let mut next = superblock.clone();
    if let Err(error) = take_over(&mut next.client, replayed.groups) {
        to.refuse(error)?;
    }

    // From here on there is nothing to refuse any more.
    if region.guarantees().is_pmem() {
        torn.extend(headless.iter().filter(|segment| !segment.blank).map(|segment| segment.start));
        for (chain, ends) in chains.iter().zip(&replayed.ends) {
            if let (Some(last), Some(end)) = (chain.last(), ends.last()) {
                torn.extend(scanner.torn_head(last, end.end)?);
            }
        }
    }
    // A later header or record at the same place has words in common with what stands there, and must not make it
    // whole: nobody would verify it, since it would be of an earlier incarnation. (On a disk, what a write puts there
    // begins with its own checksum.)
    for position in torn {
        wipe(region, superblock.block, position)?;
    }
    if region.guarantees().is_pmem() {
        for end in torn_ends.iter().filter(|end| !end.accepted.is_empty()) {
            rewrite(region, site::RECOVER_REWRITE, end.segment, end.segment + LINE)?;
            for record in &end.accepted {
                rewrite(region, site::RECOVER_REWRITE, record.position, record.end())?;
            }
        }
        // The other slot is about to be overwritten, so this one must not depend on a fence that its writer never
        // reached.
        let slot = superblock.slot_offset();
        rewrite(region, site::RECOVER_REWRITE, slot, slot + size_of::<<C::Part as ClientPart>::Raw>() as u64)?;
        region.fence(site::RECOVER_FENCE)?;
    }

    next.generation += 1;
    next.incarnation += 1;
    if replayed.ends.iter().flatten().all(|end| end.last_sequence < superblock.tail) {
        next.tail = first_of(next.incarnation);
        next.checkpointing = next.tail;
    }
    next.kept = KeptSegment::kept(&kept, next.tail);
    // Also what a crash has left between the medium's growth and the count's, or between the count's shrinking and the
    // medium's.
    let segments = segments_in(region, superblock.segment_bytes);
    next.segments = Some(segments);
    source.locate(segments, &mut next.client);
    write_superblock(region, site::RECOVER_INCARNATION, &next)?;

    let log = Log::new(source, geometry, next, kept);
    for (found, end) in chains.iter().flatten().zip(replayed.ends.iter().flatten()) {
        if end.last_sequence >= superblock.tail {
            log.segment(found.index).adopt(found.seed, end.end, end.last_sequence);
        }
    }
    Ok((log, report))
}

/// Makes sure that no record and no header is ever found at `position`: on persistent memory once the scan's last fence
/// was passed.
fn wipe(region: &dyn Region, block: u32, position: u64) -> Result<()> {
    if region.guarantees().is_pmem() {
        region.write(site::RECOVER_WIPE, position, &[0; LINE as usize])?;
    } else {
        region.write_through(site::RECOVER_WIPE, position, &vec![0; block as usize])?;
    }
    Ok(())
}
