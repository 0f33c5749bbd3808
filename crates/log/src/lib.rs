//! The log: where groups survive until their data are home.
//!
//! # Terms
//!
//! - *line*: 64 bytes; every record begins and ends at one. *Block*: what [`Region::write_through`] can write; records
//!   on disks begin at one too.
//! - *segment*: a run of lines, opened by a header, filled by one appender, freed and opened again as a whole.
//! - *lane*: the chain of segments that one appender at a time fills. On persistent memory there are several, so that
//!   threads do not meet; on a disk there is one, which committers share.
//! - *record*: a head, entries, payloads. A *commit* record makes its group survive; a *part* is an earlier piece of
//!   the group.
//! - *sequence*: the commit sequence number of a group, higher for each later commit. *Tail*: every group below it is
//!   home.
//! - *batch*: the records that one fence or one synchronous write makes durable. The first of them says so.
//! - *incarnation*: one life of the log, from an open to the next.
//! - *client*: whoever has the log, such as a store. It decides what entries ask for, what the superblock says besides,
//!   and where segments come from: [`Client`].
//!
//! # Invariants
//!
//! 1. A record is believed only if its checksum holds under the seed of volume, incarnation, segment sequence and
//!    position. Hence no byte of an earlier life, an earlier lap or another place can ever be taken for a record.
//! 2. A lane appends a batch only after everything before it in the lane is durable. Hence at a crash only the last
//!    batch of a lane can be torn, and only of lanes of the last incarnation.
//! 3. A commit record is written only when all parts of its group are durable.
//! 4. Recovery verifies the payloads of the batches that can be torn. When it has found nothing to refuse it wipes the
//!    head of what it rejects, and on persistent memory a head or segment header that lacks words, which a later write
//!    of equal words would make whole; makes durable what it accepts; then raises the incarnation; and only then is
//!    anything appended or served.
//! 5. The tail is durable before any segment is opened again that held a group below it. All groups below the tail go
//!    in one write; hence versions of a block go in commit order, and a commit record never goes before what it commits
//!    (FCFS III-E, ordering properties 1 and 2).
//! 6. A segment is free only when every group in it is below the tail, and no part in it belongs to a running group. A
//!    running group holds no segment but those that contain its parts and the one it is writing.
//! 7. A group takes its sequence when it begins, and another one when a checkpoint was announced since, when a file
//!    that it joins or a name that it claims was changed by a higher one, and when it commits and something that it
//!    builds on ([`Head::after`](layout::Head::after)) has a higher one by then: of objects, others tell the log also
//!    who have no claim on them. With its sequence taken it appears among [`InFlight`] before it looks at the
//!    announcement for the last time, and until it is published. Hence every group below [`Log::announce_tail`]'s
//!    result is published when that returns, and every group at or above it has seen the announcement.
//! 8. The segment that follows another in its lane tells where that one ended, a batch tells that all before it was
//!    durable, and a commit record names the last group that it builds on: a gap before any of them is rot, and an
//!    error. A segment names the superblock that was in force: an older one is rot too. The superblock tells what
//!    earlier lives left that is not home, and a group that had committed when the last checkpoint began: what is not
//!    there has rotted.
//! 9. A record is written only if its reader takes it, by the same rules: [`Head::is_sound`](layout::Head::is_sound)
//!    and [`Entry::is_sound`](layout::Entry::is_sound), and in each lane sequences ascend.
//! 10. The superblock counts the log's segments. It counts a new one only when that is durable, and before it is
//!     opened; it counts one fewer, durably, before the medium is cut. Hence a medium that has fewer was cut off, and
//!     no group that is not home is in a segment beyond the count.
//!
//! # States of a segment
//!
//! ```text
//!           acquire             leave                  release (tail passed, no live parts)
//!   Free ------------> Open ------------> Sealed ------------------------------> Free
//! ```
//!
//! `acquire` and `leave` are the lane's; `release` is the checkpoint's, in [`Log::release_below`].
//!
//! Sources: per-block logs and commit by one record are Libnvmmio's (section 3), the orders of freeing FCFS's (III-E).
//! Records that prove themselves by a checksum stand in the place of FCFS's valid flag (III-D), which non-temporal
//! stores would break.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod batch;
pub mod checksum;
mod client;
pub mod fit;
mod in_flight;
pub mod lane;
pub mod layout;
mod read;
mod replay;
pub mod salvage;
pub mod scan;
mod segment;
pub mod site;
pub mod verify;

pub use client::{Client, ClientKind, ClientPart, SegmentSource};
pub use in_flight::{InFlight, OWN_SLOTS};
pub use segment::{Segment, SegmentState};

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use wholly_media::Region;
use zerocopy::{FromZeros, IntoBytes};

use layout::{Kept, LINE, LogPart, SEGMENTS_START, SUPERBLOCK_SLOT, Superblock, SuperblockFault};
use segment::SegmentTable;
use sync::{AtomicU64, Backoff, Mutex, OnceLock, Ordering, heavy_fence};
use wholly_error::{Error, Result};

/// Sequences and group ids hold the incarnation above this many bits, so that neither ever repeats.
const INCARNATION_SHIFT: u32 = 40;

/// Opens of one log: sequences have bits for somewhat more.
const MOST_INCARNATIONS: u64 = 1 << 22;

/// In the place of the announced tail: one is about to be announced.
const ANNOUNCING: u64 = u64::MAX;

/// The first sequence, and the first group id, of an incarnation.
#[inline]
pub fn first_of(incarnation: u64) -> u64 {
    (incarnation << INCARNATION_SHIFT) | 1
}

/// How large a log is and may grow.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Bytes of a segment: a power of two from 4 KiB to 2 MiB.
    pub segment_bytes: u64,
    /// Number of segments that the log is made with, and keeps.
    pub min_segments: u32,
    /// Number of segments up to which it grows before groups wait for a checkpoint.
    pub max_segments: u32,
}

/// What the log, or one lane, did since it was opened.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct Counters {
    /// Bytes written to the log.
    pub bytes: AtomicU64,
    /// Fences on persistent memory.
    pub fences: AtomicU64,
    /// Synchronous writes and syncs on a disk.
    pub syncs: AtomicU64,
}

impl Counters {
    /// Counts what the only thread that uses these counters did: no locked instruction.
    #[inline]
    fn add_alone(&self, bytes: u64, fences: u64) {
        self.bytes.store(self.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        self.fences.store(self.fences.load(Ordering::Relaxed) + fences, Ordering::Relaxed);
    }
}

/// A segment of an earlier life with groups that are not home, as [`Kept::add`] wants it.
pub struct KeptSegment {
    seed: u64,
    start: u64,
    last: u64,
    end: u64,
}

impl KeptSegment {
    /// Those with groups from `tail` on.
    fn kept(segments: &[KeptSegment], tail: u64) -> Kept {
        let mut kept = Kept::default();
        for segment in segments.iter().filter(|segment| segment.last >= tail) {
            kept.add(segment.seed, segment.start, segment.last, segment.end);
        }
        kept
    }
}

/// The log of a store, or of another client. See the head of this module.
pub struct Log<C: Client> {
    source: C::Source,
    pmem: bool,
    geometry: Geometry,
    block: u64,
    volume_seed: u64,
    table: SegmentTable,
    superblock: Mutex<Superblock<C::Part>>,
    /// Segments of earlier lives that were not home when the log was opened.
    kept: Vec<KeptSegment>,
    /// Of the superblock in force, for who must not wait while the next one is written.
    generation: AtomicU64,
    volume_id: [u8; 16],
    incarnation: u64,
    /// Every group of every thread changes it: alone in its line.
    next_sequence: CachePadded<AtomicU64>,
    next_segment: AtomicU64,
    announced: AtomicU64,
    rot: verify::Rot,
    in_flight: Arc<InFlight>,
    low_water: OnceLock<Box<dyn Fn() + Send + Sync>>,
    counters: Counters,
    lane_counters: Mutex<Vec<Arc<Counters>>>,
}

impl<C: Client> Log<C> {
    /// Writes an empty log into `region`, which must be empty; it survives when this returns. `client` gives the
    /// client's part of its superblock once the segments are there.
    pub fn format(
        region: &dyn Region,
        geometry: Geometry,
        volume_id: [u8; 16],
        client: impl FnOnce() -> C::Part,
    ) -> Result<()> {
        let block = u64::from(region.guarantees().block).max(LINE);
        assert!(geometry.segment_bytes.is_power_of_two());
        if geometry.segment_bytes < block * 2 {
            return Err(Error::invalid(format!(
                "segments of {} bytes on a disk of {block}-byte blocks: a segment needs at least two blocks",
                geometry.segment_bytes
            )));
        }
        region.set_len(site::LOG_FORMAT, SEGMENTS_START + u64::from(geometry.min_segments) * geometry.segment_bytes)?;
        let log = LogPart {
            volume_id,
            generation: 1,
            incarnation: 0,
            tail: first_of(0),
            checkpointing: first_of(0),
            segment_bytes: geometry.segment_bytes,
            segments: Some(geometry.min_segments),
            min_segments: geometry.min_segments,
            kept: Kept::default(),
            committed: 0,
            block: block as u32,
        };
        write_superblock(region, site::LOG_FORMAT, &Superblock { log, client: client() })
    }

    /// Takes over the log that `scan` found, in the incarnation that is already durable in `superblock`.
    fn new(source: C::Source, geometry: Geometry, superblock: Superblock<C::Part>, kept: Vec<KeptSegment>) -> Self {
        sync::prepare_fences();
        let segments = segments_in(source.region(), superblock.segment_bytes);
        let incarnation = superblock.incarnation;
        Log {
            geometry: Geometry {
                segment_bytes: superblock.segment_bytes,
                min_segments: superblock.min_segments,
                max_segments: geometry.max_segments.max(superblock.min_segments),
            },
            block: u64::from(superblock.block),
            volume_seed: volume_seed(&superblock.volume_id),
            table: SegmentTable::new(segments),
            volume_id: superblock.volume_id,
            incarnation,
            next_sequence: CachePadded::new(AtomicU64::new(first_of(incarnation))),
            next_segment: AtomicU64::new(1),
            announced: AtomicU64::new(superblock.tail),
            generation: AtomicU64::new(superblock.generation),
            superblock: Mutex::new(superblock),
            kept,
            rot: verify::Rot::default(),
            in_flight: Arc::new(InFlight::new()),
            low_water: OnceLock::new(),
            counters: Counters::default(),
            lane_counters: Mutex::default(),
            pmem: source.region().guarantees().is_pmem(),
            source,
        }
    }

    /// Whether commits are stores and fences rather than synchronous writes.
    #[inline]
    pub fn is_pmem(&self) -> bool {
        self.pmem
    }

    /// The medium.
    #[inline]
    pub fn region(&self) -> &dyn Region {
        self.source.region()
    }

    /// What tells the store from all others.
    #[inline]
    pub fn volume_id(&self) -> &[u8; 16] {
        &self.volume_id
    }

    /// The groups between taking their sequence and being published.
    #[inline]
    pub fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// A number that no group ever had, higher than all before: an id, or a sequence.
    #[inline]
    pub fn take_sequence(&self) -> u64 {
        self.next_sequence.fetch_add(1, Ordering::SeqCst)
    }

    /// The lowest sequence that a group which enters now can get.
    #[inline]
    pub fn sequence_bound(&self) -> u64 {
        self.next_sequence.load(Ordering::SeqCst)
    }

    /// The tail that the running or last checkpoint aims at: a file identified below it is identified again by its next
    /// group.
    #[inline]
    pub fn announced_tail(&self) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let announced = self.announced.load(Ordering::SeqCst);
            if announced != ANNOUNCING {
                return announced;
            }
            backoff.wait();
        }
    }

    /// Waits until every group below an announced tail is published. The caller is in no commit.
    pub fn wait_for_groups_below(&self, announced: u64) {
        self.in_flight.wait_below(announced);
    }

    /// Announces that a checkpoint is about to take every group home that has committed by now, and returns the
    /// sequence below which all groups are published (invariant 7). Groups that commit later see the announcement.
    pub fn announce_tail(&self) -> u64 {
        // Whoever has looked before this took its sequence before that, so it is below the target; whoever looks now
        // waits for the target.
        self.announced.store(ANNOUNCING, Ordering::SeqCst);
        heavy_fence();
        // A number of its own, so that no two targets are the same: what was identified for one is identified again for
        // the next.
        let target = self.take_sequence();
        self.announced.store(target, Ordering::SeqCst);
        self.in_flight.wait_below(target);
        target
    }

    /// Every group below this is home.
    pub fn tail(&self) -> u64 {
        self.superblock.lock().unwrap().tail
    }

    /// The highest sequence of a group that has bytes in the log, 0 if there is none.
    pub fn highest_sequence(&self) -> u64 {
        (0..self.segment_count())
            .map(|index| self.segment(index))
            .filter(|s| s.state() != SegmentState::Free)
            .map(|s| s.last_sequence())
            .max()
            .unwrap_or(0)
    }

    /// A copy of the superblock in force.
    pub fn superblock(&self) -> Superblock<C::Part> {
        self.superblock.lock().unwrap().clone()
    }

    /// Of the superblock in force: that one is durable.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes it durable that home files of groups below `target` are about to be touched.
    pub fn begin_checkpoint(&self, target: u64) -> Result<()> {
        // A group whose sequence a segment knows, and below the target, was durable before that was announced.
        let last =
            |index| Some(self.segment(index)).filter(|s| s.state() != SegmentState::Free).map(Segment::last_sequence);
        let committed = (0..self.segment_count()).filter_map(last).filter(|last| *last < target).max().unwrap_or(0);
        self.update_superblock(site::CHECKPOINT_BEGIN, |superblock| {
            superblock.checkpointing = target;
            superblock.committed = committed;
        })
    }

    /// Makes the client's part of the superblock durable.
    pub fn set_client(&self, at: wholly_media::Site, part: C::Part) -> Result<()> {
        self.update_superblock(at, |superblock| superblock.client = part)
    }

    /// Makes it durable that every group below `tail` is home, and frees the segments that nobody needs any more
    /// (invariants 5 and 6). Their homes must be durable. Returns the number of segments freed.
    pub fn release_below(&self, tail: u64) -> Result<usize> {
        self.update_superblock(site::CHECKPOINT_TAIL, |superblock| {
            assert!(tail >= superblock.tail, "the tail never moves back");
            superblock.tail = tail;
            superblock.kept = KeptSegment::kept(&self.kept, tail);
        })?;
        Ok(self.table.release_below(tail))
    }

    /// Frees segments that only groups below the durable tail, or aborted ones, had.
    pub fn release_unused(&self) -> usize {
        self.table.release_below(self.tail())
    }

    fn update_superblock(&self, at: wholly_media::Site, change: impl FnOnce(&mut Superblock<C::Part>)) -> Result<()> {
        let mut superblock = self.superblock.lock().unwrap();
        let mut next = superblock.clone();
        next.generation += 1;
        change(&mut next);
        write_superblock(self.region(), at, &next)?;
        self.count_barrier();
        self.generation.store(next.generation, Ordering::Release);
        *superblock = next;
        Ok(())
    }

    /// A free segment, opened for `lane`; `None` when none is free. See [`grow`](Self::grow).
    pub fn acquire_segment(&self) -> Option<u32> {
        let index = self.table.acquire();
        index.inspect(|&index| self.forget_rot(index));
        if let Some(wake) = self.low_water.get() {
            let (segments, free) = self.table.count();
            if free < segments / 2 {
                wake();
            }
        }
        index
    }

    /// `wake` is called whenever a segment is taken and fewer than half are left. Set once.
    pub fn on_low_water(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.low_water.set(wake);
    }

    /// Number of segments, and how many of them are free.
    pub fn segments(&self) -> (u32, u32) {
        self.table.count()
    }

    /// Number of segments, and how many free ones groups may take now.
    pub fn usable_segments(&self) -> (u32, u32) {
        self.table.usable()
    }

    /// Whether one free segment is kept for who must not wait for room, as it is from the start: a checkpoint tells the
    /// log what it has made, and frees the others only then.
    pub fn keep_one(&self, keep: bool) {
        self.table.keep_one(keep);
    }

    /// Whether the log may still grow before groups wait.
    pub fn may_grow(&self) -> bool {
        self.segments().0 < self.geometry.max_segments
    }

    /// Whether a checkpoint may free a segment: not, where running groups and open lanes hold all that are taken.
    pub fn may_free_any(&self) -> bool {
        self.table.may_free_any()
    }

    /// Adds `segments` segments to a log of `seen`. They are durable when this returns. Where it is larger by now,
    /// others have seen the same lack, and nothing is added.
    ///
    /// # Errors
    /// `ENOSPC` of the host file system.
    pub fn grow(&self, seen: u32, segments: u32) -> Result<()> {
        self.grow_by(seen, segments, |len| self.region().set_len(site::LOG_GROW, len))
    }

    /// The same, for a group that is about to fill them.
    ///
    /// # Errors
    /// `ENOSPC` of the host file system.
    pub fn extend(&self, seen: u32, segments: u32) -> Result<()> {
        self.grow_by(seen, segments, |len| self.region().extend(site::LOG_GROW, len))
    }

    fn grow_by(&self, seen: u32, segments: u32, lengthen: impl FnOnce(u64) -> wholly_media::Result<()>) -> Result<()> {
        self.table.grow(seen, segments, |count| {
            lengthen(self.segment_start(count))?;
            self.count_segments(site::LOG_GROW_COUNT, count)
        })
    }

    /// Gives back the free segments at the end, down to the size that the log was made with.
    ///
    /// # Errors
    /// Of the medium, [`Error::Poisoned`] where nobody knows whether the superblock tells the new count.
    pub fn shrink(&self) -> Result<()> {
        self.table.shrink(
            self.geometry.min_segments,
            |count| self.count_segments(site::LOG_SHRINK_COUNT, count),
            |count| Ok(self.region().set_len(site::LOG_SHRINK, self.segment_start(count))?),
        )
    }

    /// Makes it durable how many segments there are (invariant 10). The superblock is not written once more after a
    /// failure.
    fn count_segments(&self, at: wholly_media::Site, count: u32) -> Result<()> {
        let tell = |superblock: &mut Superblock<C::Part>| {
            superblock.segments = Some(count);
            self.source.locate(count, &mut superblock.client);
        };
        self.update_superblock(at, tell).map_err(|error| Error::Poisoned(error.to_string()))
    }

    /// The segment that holds byte `position`.
    #[inline]
    pub fn segment_of(&self, position: u64) -> u32 {
        ((position - SEGMENTS_START) / self.geometry.segment_bytes) as u32
    }

    /// What is known of segment `index`.
    #[inline]
    pub fn segment(&self, index: u32) -> &Segment {
        self.table.get(index)
    }

    /// Number of segments in use or free.
    #[inline]
    pub fn segment_count(&self) -> u32 {
        self.table.count().0
    }

    /// First byte of a segment.
    #[inline]
    pub fn segment_start(&self, index: u32) -> u64 {
        SEGMENTS_START + u64::from(index) * self.geometry.segment_bytes
    }

    /// First byte of the segment that holds byte `position`.
    #[inline]
    pub fn start_around(&self, position: u64) -> u64 {
        position - (position - SEGMENTS_START) % self.geometry.segment_bytes
    }

    /// Where the first record of a segment stands.
    #[inline]
    pub fn records_start(&self, index: u32) -> u64 {
        self.segment_start(index) + self.block
    }

    /// Bytes of a segment.
    #[inline]
    pub fn segment_bytes(&self) -> u64 {
        self.geometry.segment_bytes
    }

    /// The most payload bytes that one record can hold in one entry, beside the entry of a group that has parts.
    #[inline]
    pub fn record_capacity(&self) -> u64 {
        self.geometry.segment_bytes - self.block - 2 * LINE
    }

    /// Bytes of a block: the unit of a write through.
    #[inline]
    pub fn block(&self) -> u64 {
        self.block
    }

    /// The seed of what no segment holds; see [`volume_seed`].
    pub fn volume_seed(&self) -> u64 {
        self.volume_seed
    }

    /// A number that no segment of this incarnation had.
    pub fn new_segment_sequence(&self) -> u64 {
        self.next_segment.fetch_add(1, Ordering::Relaxed)
    }

    /// A lane leaves a segment whose records end at `end`. Returns what the header of its next segment tells of it.
    fn seal_segment(&self, index: u32, sequence: u64, end: u64) -> layout::Previous {
        let segment = self.segment(index);
        // Looked at first: once it is sealed a checkpoint may free it, and another lane fill it.
        let last = segment.last_sequence();
        segment.seal(end);
        layout::Previous { sequence, last, end: (end - self.segment_start(index)) as u32 }
    }

    /// The seed of the segment with this number in the current incarnation.
    pub fn segment_seed(&self, sequence: u64) -> u64 {
        checksum::segment_seed(&self.volume_id, self.incarnation, sequence)
    }

    /// The life of this log.
    #[inline]
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Counters for a new lane.
    fn new_lane_counters(&self) -> Arc<Counters> {
        let mut lanes = self.lane_counters.lock().unwrap();
        if lanes.len() == lanes.capacity() {
            // Lanes that are gone leave what they counted to the log, so that the list is as long as there are lanes.
            lanes.retain(|lane| {
                let gone = Arc::strong_count(lane) == 1;
                if gone {
                    self.counters.bytes.fetch_add(lane.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
                    self.counters.fences.fetch_add(lane.fences.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                !gone
            });
        }
        let counters = Arc::<Counters>::default();
        lanes.push(counters.clone());
        counters
    }

    /// Bytes written, fences and syncs since the open.
    pub fn totals(&self) -> (u64, u64, u64) {
        let lanes = self.lane_counters.lock().unwrap();
        let all = || std::iter::once(&self.counters).chain(lanes.iter().map(|counters| &**counters));
        let sum =
            |field: fn(&Counters) -> &AtomicU64| all().map(|counters| field(counters).load(Ordering::Relaxed)).sum();
        (sum(|c| &c.bytes), sum(|c| &c.fences), sum(|c| &c.syncs))
    }

    /// Counts bytes that were written outside of lanes.
    #[inline]
    pub fn count_bytes(&self, bytes: u64) {
        self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a fence on persistent memory, or a sync on a disk, outside of lanes.
    #[inline]
    pub fn count_barrier(&self) {
        let counter = if self.is_pmem() { &self.counters.fences } else { &self.counters.syncs };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The seed of what belongs to the volume as a whole.
pub fn volume_seed(volume_id: &[u8; 16]) -> u64 {
    checksum::checksum(0x564f_4c55_4d45_2121, volume_id)
}

/// Refuses a medium that has less than the superblock says.
pub fn check_length(region_len: u64, superblock: &LogPart) -> Result<()> {
    let told = superblock.log_bytes();
    if region_len >= told {
        return Ok(());
    }
    let what = format!("the log was cut off: it has {region_len} bytes and must have {told}");
    Err(Error::corrupt(format!("log, byte {region_len}"), what))
}

/// Number of whole segments in a region.
pub fn segments_in(region: &dyn Region, segment_bytes: u64) -> u32 {
    (region.len().saturating_sub(SEGMENTS_START) / segment_bytes) as u32
}

/// Makes durable what a process that died, while the power stayed on, may have left on its way: the log's length, and
/// on a disk its bytes too. Otherwise recovery would build on a segment that a power failure takes away, or overlook a
/// record that is there at the next recovery. (On persistent memory recovery reads what a power failure may still lose,
/// and stores again what it accepts.)
pub fn settle(region: &dyn Region) -> Result<()> {
    if region.guarantees().is_pmem() {
        region.set_len(site::RECOVER_LENGTH, region.len())?;
    } else {
        region.fence(site::RECOVER_SETTLE)?;
    }
    Ok(())
}

/// Writes a superblock into the slot of its generation; it survives when this returns.
fn write_superblock<P: ClientPart>(
    region: &dyn Region,
    at: wholly_media::Site,
    superblock: &Superblock<P>,
) -> Result<()> {
    const { assert!(size_of::<P::Raw>() as u64 <= SUPERBLOCK_SLOT && (size_of::<P::Raw>() as u64).is_multiple_of(LINE)) };
    let mut bytes = superblock.to_raw().as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(superblock.block as usize), 0);
    region.write_through(at, superblock.slot_offset(), &bytes)?;
    Ok(())
}

/// What a superblock slot holds.
pub type Slot<P> = Result<Superblock<P>, SuperblockFault>;

/// What stands in a superblock slot, 0 or 1.
///
/// # Errors
/// Of the medium.
pub fn read_slot<P: ClientPart>(region: &dyn Region, slot: u64) -> Result<Slot<P>> {
    let mut raw = P::Raw::new_zeroed();
    region.read_uncached(slot * SUPERBLOCK_SLOT, raw.as_mut_bytes())?;
    // One that stands in the other's slot was misdirected.
    Ok(match Superblock::checked(&raw) {
        Ok(superblock) if superblock.generation % 2 != slot => Err(SuperblockFault::Geometry),
        checked => checked,
    })
}

/// What stands in the two superblock slots.
///
/// # Errors
/// Of the medium.
pub fn read_slots<P: ClientPart>(region: &dyn Region) -> Result<[Slot<P>; 2]> {
    Ok([read_slot(region, 0)?, read_slot(region, 1)?])
}

/// Which of two slots counts.
pub fn in_force<P>(slots: &[Slot<P>; 2]) -> Option<&Superblock<P>> {
    slots.iter().flatten().max_by_key(|superblock| superblock.generation)
}

/// Refuses a log whose superblocks another version wrote.
///
/// # Errors
/// [`Error::Unsupported`], if none of the slots counts.
pub fn refuse_unsupported<P: ClientPart>(slots: &[Slot<P>; 2]) -> Result<()> {
    let mut faults = slots.iter().filter_map(|slot| slot.as_ref().err());
    match faults.find_map(|fault| P::unsupported(*fault)).filter(|_| in_force(slots).is_none()) {
        Some(why) => Err(Error::unsupported(why)),
        None => Ok(()),
    }
}

/// Reads the superblock in force: the valid slot with the higher generation.
///
/// # Errors
/// [`Error::Unsupported`] for another format, [`Error::Corrupt`] where neither slot holds.
pub fn read_superblock<P: ClientPart>(region: &dyn Region) -> Result<Superblock<P>> {
    if region.len() < SEGMENTS_START {
        return Err(Error::corrupt("superblock", format!("the log is only {} bytes long", region.len())));
    }
    let slots = read_slots::<P>(region)?;
    let faults: Vec<_> = slots.iter().filter_map(|slot| slot.as_ref().err().copied()).collect();
    if let Some(superblock) = in_force(&slots).cloned() {
        if superblock.block < region.guarantees().block {
            return Err(Error::unsupported(format!(
                "the log was made for persistent memory, and this is {}: open it as persistent memory",
                region.guarantees().description
            )));
        }
        return Ok(superblock);
    }
    refuse_unsupported(&slots)?;
    if faults.iter().all(|fault| *fault == SuperblockFault::Foreign) {
        return Err(Error::corrupt("superblock", "both copies are gone"));
    }
    Err(Error::corrupt("superblock", "no copy has a valid checksum"))
}
