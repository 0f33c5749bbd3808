//! Reading records: one at a place, or all of a segment.

use wholly_media::Region;
use zerocopy::FromBytes;

use super::ClientKind;
use super::checksum::{checksum, claimed_position, claimed_seed, record_seed};
use super::layout::{ENTRY, Entry, FLAG_BATCH_START, HEAD, Head, LINE, RawEntry, RawHead, RecordKind, seal};
use wholly_error::{Error, Result};

/// How many records ahead of the one that is read the processor is asked for, taking them to be as long.
const PREFETCH_RECORDS: u64 = 8;

/// A record whose checksum holds.
#[derive(Clone, Debug)]
pub struct Record<K> {
    /// Its first byte in the log.
    pub position: u64,
    /// Its head.
    pub head: Head,
    /// Its entries, checked.
    pub entries: Vec<Entry<K>>,
    /// The seed of its segment.
    pub segment_seed: u64,
}

impl<K: ClientKind> Record<K> {
    /// The byte behind it.
    #[inline]
    pub fn end(&self) -> u64 {
        self.position + u64::from(self.head.lines) * LINE
    }

    /// See [`RecordView::group`].
    #[inline]
    pub fn group(&self) -> u64 {
        self.view().group()
    }

    /// The same, borrowed.
    #[inline]
    pub fn view(&self) -> RecordView<'_, K> {
        let Record { position, head, entries, segment_seed } = self;
        RecordView { position: *position, head, entries, segment_seed: *segment_seed }
    }
}

/// A [`Record`] whose entries somebody else has.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a, K> {
    /// Its first byte in the log.
    pub position: u64,
    /// Its head.
    pub head: &'a Head,
    /// Its entries, checked.
    pub entries: &'a [Entry<K>],
    /// The seed of its segment.
    pub segment_seed: u64,
}

impl<K: ClientKind> RecordView<'_, K> {
    /// The byte behind it.
    #[inline]
    pub fn end(&self) -> u64 {
        self.position + u64::from(self.head.lines) * LINE
    }

    /// What its group is known by: the id that its parts carry, or for a group of one record its sequence.
    #[inline]
    pub fn group(&self) -> u64 {
        let parts = self.entries.iter().find(|entry| entry.kind == K::PARTS && self.head.kind == RecordKind::Commit);
        parts.map_or(self.head.sequence, |entry| entry.offset)
    }

    /// The same, with entries of its own.
    #[inline]
    pub fn to_record(self) -> Record<K> {
        let RecordView { position, head, segment_seed, entries } = self;
        Record { position, head: *head, entries: entries.to_vec(), segment_seed }
    }
}

/// Whether it is a commit record that says that all before it in its lane was durable.
pub(super) fn starts_batch(head: &Head) -> bool {
    head.kind == RecordKind::Commit && head.flags & FLAG_BATCH_START != 0
}

/// Reads one segment: in place on persistent memory, all at once and past the page cache on a disk.
pub struct SegmentReader<'a> {
    region: &'a dyn Region,
    in_place: bool,
    start: u64,
    bytes: u64,
    copy: Vec<u8>,
}

impl<'a> SegmentReader<'a> {
    /// A reader of the `bytes` bytes from `start`.
    pub fn new(region: &'a dyn Region, start: u64, bytes: u64) -> Self {
        SegmentReader { region, in_place: region.guarantees().is_pmem(), start, bytes, copy: Vec::new() }
    }

    /// Copies bytes of the segment.
    #[inline(always)]
    pub fn read(&mut self, position: u64, buf: &mut [u8]) -> Result<()> {
        debug_assert!(position >= self.start && position + buf.len() as u64 <= self.segment_end());
        if self.in_place {
            self.region.read(position, buf)?;
            return Ok(());
        }
        self.read_copy(position, buf)
    }

    fn read_copy(&mut self, position: u64, buf: &mut [u8]) -> Result<()> {
        if self.copy.is_empty() {
            self.copy.resize(self.bytes as usize, 0);
            self.region.read_uncached(self.start, &mut self.copy)?;
        }
        let at = (position - self.start) as usize;
        buf.copy_from_slice(&self.copy[at..at + buf.len()]);
        Ok(())
    }

    /// Asks the processor for the line at `position`, if that is in the segment.
    #[inline]
    fn prefetch(&self, position: u64) {
        if self.in_place && position < self.segment_end() {
            self.region.prefetch(position);
        }
    }

    /// The byte behind the segment.
    pub(super) fn segment_end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The head of the record at `position`, if one proves itself there; its entries are appended to `entries`.
///
/// Inlined with all that it calls, as millions of records pass here at an open: a head that goes through memory in a
/// result costs more than its checksum.
#[inline(always)]
fn read_record<K: ClientKind>(
    reader: &mut SegmentReader<'_>,
    seed: u64,
    position: u64,
    entries: &mut Vec<Entry<K>>,
) -> Result<Option<Head>> {
    if position + LINE > reader.segment_end() {
        return Ok(None);
    }
    let mut line = [0u8; LINE as usize];
    reader.read(position, &mut line)?;
    let raw = RawHead::read_from_bytes(&line[..HEAD]).expect("a head's bytes");
    let Some(head) = Head::parse(&raw, (reader.segment_end() - position) / LINE) else { return Ok(None) };
    if head.tail_lines() == 0 {
        // The common record is told apart from stale bytes without a second look.
        if checksum(record_seed(seed, position), &line[8..]) != raw.checksum.get() {
            return Ok(None);
        }
        if head.entries > 0 {
            entries.push(checked(&line[HEAD..], &head, position)?);
        }
        return Ok(Some(head));
    }
    let mut tail = vec![0u8; (head.tail_lines() * LINE) as usize];
    reader.read(position + head.tail_offset(), &mut tail)?;
    if seal(record_seed(seed, position), &line, &tail) != raw.checksum.get() {
        return Ok(None);
    }
    let all = std::iter::once(&line[HEAD..]).chain(tail.chunks(ENTRY)).take(usize::from(head.entries));
    for bytes in all {
        entries.push(checked(bytes, &head, position)?);
    }
    Ok(Some(head))
}

#[inline(always)]
fn checked<K: ClientKind>(bytes: &[u8], head: &Head, position: u64) -> Result<Entry<K>> {
    let raw = RawEntry::read_from_bytes(bytes).expect("an entry's bytes");
    Entry::checked(&raw, head)
        .ok_or_else(|| Error::corrupt(format!("log, byte {position}"), "an entry of a valid record is impossible"))
}

/// The record at `position`, if one proves itself there.
#[inline]
pub fn record_at<K: ClientKind>(reader: &mut SegmentReader<'_>, seed: u64, position: u64) -> Result<Option<Record<K>>> {
    let mut entries = Vec::new();
    let head = read_record(reader, seed, position, &mut entries)?;
    Ok(head.map(|head| Record { position, head, entries, segment_seed: seed }))
}

/// The record at `position`, if one proves itself there, whatever sequence it says that it comes after. For who
/// salvages.
pub(super) fn proven_record<K: ClientKind>(
    reader: &mut SegmentReader<'_>,
    seed: u64,
    position: u64,
) -> Result<Option<Record<K>>> {
    let mut line = [0u8; LINE as usize];
    reader.read(position, &mut line)?;
    let raw = RawHead::read_from_bytes(&line[..HEAD]).expect("a head's bytes");
    let Some(head) = Head::parse_in_any_order(&raw, (reader.segment_end() - position) / LINE) else { return Ok(None) };
    let mut tail = vec![0u8; (head.tail_lines() * LINE) as usize];
    if !tail.is_empty() {
        reader.read(position + head.tail_offset(), &mut tail)?;
    }
    if seal(record_seed(seed, position), &line, &tail) != raw.checksum.get() {
        return Ok(None);
    }
    let all = std::iter::once(&line[HEAD..]).chain(tail.chunks(ENTRY)).take(usize::from(head.entries));
    let entries = all.map(|bytes| checked(bytes, &head, position)).collect::<Result<_>>()?;
    Ok(Some(Record { position, head, entries, segment_seed: seed }))
}

/// The seed of the segment of which the bytes at `position` are a record, where its head and its first entry tell of
/// the same one.
pub(super) fn claimed_segment<K: ClientKind>(reader: &mut SegmentReader<'_>, position: u64) -> Result<Option<u64>> {
    let Some((head, line, seed)) = claimed_record(reader, position, |_| true)? else { return Ok(None) };
    let segment_seed = record_seed(seed, position);
    Ok(tells_of::<K>(reader, &head, &line, position, segment_seed)?.then_some(segment_seed))
}

/// The head at `position`, the line that it stands in, and the seed under which they and the entries behind them would
/// be a record: a checksum tells it. `None` if the head is not `wanted`.
fn claimed_record(
    reader: &mut SegmentReader<'_>,
    position: u64,
    wanted: impl Fn(&Head) -> bool,
) -> Result<Option<(Head, [u8; LINE as usize], u64)>> {
    let mut line = [0u8; LINE as usize];
    reader.read(position, &mut line)?;
    let raw = RawHead::read_from_bytes(&line[..HEAD]).expect("a head's bytes");
    let head = Head::parse(&raw, (reader.segment_end() - position) / LINE);
    let Some(head) = head.filter(wanted) else { return Ok(None) };
    let mut tail = vec![0u8; (head.tail_lines() * LINE) as usize];
    reader.read(position + head.tail_offset(), &mut tail)?;
    let sum = if tail.is_empty() { raw.checksum.get() } else { claimed_seed(raw.checksum.get(), &tail) };
    Ok(Some((head, line, claimed_seed(sum, &line[8..]))))
}

/// Where in the segment with this seed the bytes at `position` would be a record.
pub(super) fn claimed_place(reader: &mut SegmentReader<'_>, segment_seed: u64, position: u64) -> Result<Option<u64>> {
    let claimed = claimed_record(reader, position, |_| true)?;
    let place = claimed.map(|(_, _, seed)| claimed_position(segment_seed, seed));
    Ok(place.filter(|place| place.is_multiple_of(LINE) && (reader.start..reader.segment_end()).contains(place)))
}

/// Whether the bytes at `position` are a `wanted` record, of the segment with the seed `known` or of whichever: where
/// the seeds of its head and of its first entry tell of the same segment, that is no chance.
pub(super) fn is_record<K: ClientKind>(
    reader: &mut SegmentReader<'_>,
    known: Option<u64>,
    position: u64,
    wanted: impl Fn(&Head) -> bool,
) -> Result<bool> {
    let Some((head, line, seed)) = claimed_record(reader, position, wanted)? else { return Ok(false) };
    // What a position adds to a segment's seed is undone by adding it again.
    let segment_seed = record_seed(seed, position);
    if known == Some(segment_seed) {
        return Ok(true);
    }
    tells_of::<K>(reader, &head, &line, position, segment_seed)
}

/// Whether the first entry of a record is of the segment with this seed.
fn tells_of<K: ClientKind>(
    reader: &mut SegmentReader<'_>,
    head: &Head,
    line: &[u8; LINE as usize],
    position: u64,
    segment_seed: u64,
) -> Result<bool> {
    if head.entries == 0 {
        return Ok(false);
    }
    let raw = RawEntry::read_from_bytes(&line[HEAD..]).expect("an entry's bytes");
    let Some(entry) = Entry::<K>::checked(&raw, head) else { return Ok(false) };
    let begin = position + u64::from(entry.line) * LINE;
    let mut payload = vec![0; entry.length as usize];
    if entry.length > 0 {
        reader.read(begin, &mut payload)?;
    }
    let at = claimed_position(!segment_seed, claimed_seed(entry.payload_checksum, &payload));
    // An entry without payload is checksummed where one would have begun.
    Ok(match entry.length {
        0 => at.is_multiple_of(LINE) && (position + LINE..=position + head.tail_offset()).contains(&at),
        _ => at == begin,
    })
}

/// A record of [`Records`]: half a line, so that the processor fetches no more than it must.
#[derive(Clone, Copy)]
struct Place {
    head: Head,
    /// Where it stands, in bytes from the first.
    at: u32,
    /// Where its entries begin.
    entries: u32,
}
const _: () = assert!(size_of::<Place>() == 32);

/// The records of one segment, in order, in two lists: none has memory of its own.
pub struct Records<K> {
    seed: u64,
    start: u64,
    places: Vec<Place>,
    entries: Vec<Entry<K>>,
    end: u64,
}

impl<K> Default for Records<K> {
    fn default() -> Self {
        const { assert!(size_of::<Entry<K>>() == 32) };
        Records { seed: 0, start: 0, places: Vec::new(), entries: Vec::new(), end: 0 }
    }
}

impl<K: ClientKind> Records<K> {
    /// Replaces them by those from `position` up to `end`, or to the first place where none proves itself.
    pub fn read(&mut self, reader: &mut SegmentReader<'_>, seed: u64, mut position: u64, end: u64) -> Result<()> {
        self.places.clear();
        self.entries.clear();
        (self.seed, self.start) = (seed, position);
        while position < end {
            let entries = self.entries.len() as u32;
            let Some(head) = read_record(reader, seed, position, &mut self.entries)? else { break };
            let bytes = u64::from(head.lines) * LINE;
            reader.prefetch(position + PREFETCH_RECORDS * bytes);
            self.places.push(Place { head, at: (position - self.start) as u32, entries });
            position += bytes;
        }
        self.end = position;
        Ok(())
    }

    /// Behind the last record.
    #[inline]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many entries they have in all.
    #[inline]
    pub fn operations(&self) -> usize {
        self.entries.len()
    }

    /// The heads.
    #[inline]
    pub fn heads(&self) -> impl DoubleEndedIterator<Item = &Head> + ExactSizeIterator {
        self.places.iter().map(|place| &place.head)
    }

    /// Record `i`.
    #[inline]
    pub fn get(&self, i: usize) -> Option<RecordView<'_, K>> {
        let Place { head, at, entries } = self.places.get(i)?;
        let entries = &self.entries[*entries as usize..][..usize::from(head.entries)];
        Some(RecordView { position: self.start + u64::from(*at), head, entries, segment_seed: self.seed })
    }

    /// Asks the processor for the record that comes `ahead` records after record `i`, taking those between to have one
    /// entry each.
    #[inline]
    pub fn prefetch(&self, i: usize, ahead: usize) {
        if let Some(later) = self.places.get(i + ahead) {
            wholly_media::prefetch(later);
            if let Some(entry) = self.entries.get(self.places[i].entries as usize + ahead) {
                wholly_media::prefetch(entry);
            }
        }
    }

    /// Those from record `first` on.
    #[inline]
    pub fn iter(&self, first: usize) -> impl Iterator<Item = RecordView<'_, K>> {
        (first..self.len()).map_while(|i| self.get(i))
    }
}
