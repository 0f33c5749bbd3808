//! What stands on media, byte by byte. What entries ask for, and how a superblock stands there, the
//! [client](super::Client) decides.
//!
//! Everything is little-endian, made of whole reserved bytes, and untrusted until a `checked` function has turned it
//! into a native type.

use std::ops::{Deref, DerefMut};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::{checksum, fold, record_seed};
use super::client::{ClientKind, ClientPart};
use super::{INCARNATION_SHIFT, MOST_INCARNATIONS};

/// Everything in the log is a whole number of lines.
pub const LINE: u64 = 64;
/// Bytes of one superblock slot; two of them open the log.
pub const SUPERBLOCK_SLOT: u64 = 4096;
/// Where the segments begin.
pub const SEGMENTS_START: u64 = 2 * SUPERBLOCK_SLOT;
/// The smallest segment.
pub const MIN_SEGMENT: u64 = 4096;
/// The largest segment: a line's number in it fits in 16 bits.
pub const MAX_SEGMENT: u64 = 2 << 20;

const SEGMENT_MAGIC: [u8; 4] = *b"WSEG";

/// What a superblock tells of the segments of earlier lives that hold groups which are not home: their number, and a
/// checksum that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// How many there are.
    pub segments: u32,
    /// Over where each is, of which life and lap, how its commits end.
    pub checksum: u64,
}

impl Kept {
    /// Adds a segment with the seed `segment_seed`: `last` is the highest sequence of a group in it, the records up to
    /// its last commit end at byte `end` of the log, 0 if there is none.
    #[inline]
    pub fn add(&mut self, segment_seed: u64, start: u64, last: u64, end: u64) {
        let words = [start, last, end].map(u64::to_le_bytes);
        self.segments += 1;
        self.checksum = self.checksum.wrapping_add(checksum(segment_seed, words.as_flattened()));
    }
}

/// A superblock that has been checked: the log's part and the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock<P> {
    /// What the log says.
    pub log: LogPart,
    /// What the client says.
    pub client: P,
}

impl<P> Deref for Superblock<P> {
    type Target = LogPart;

    fn deref(&self) -> &LogPart {
        &self.log
    }
}

impl<P> DerefMut for Superblock<P> {
    fn deref_mut(&mut self) -> &mut LogPart {
        &mut self.log
    }
}

impl<P: ClientPart> Superblock<P> {
    /// See [`ClientPart::to_raw`].
    pub fn to_raw(&self) -> P::Raw {
        P::to_raw(self)
    }

    /// See [`ClientPart::checked`].
    ///
    /// # Errors
    /// Why it is no superblock.
    pub fn checked(raw: &P::Raw) -> Result<Self, SuperblockFault> {
        P::checked(raw)
    }

    /// See [`ClientPart::unsupported`].
    pub fn unsupported(fault: SuperblockFault) -> Option<String> {
        P::unsupported(fault)
    }
}

/// The log's part of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// Names this log; part of every checksum's seed.
    pub volume_id: [u8; 16],
    /// Grows by one with each write of a superblock; the valid slot with the higher one counts.
    pub generation: u64,
    /// The life of the log: raised by each recovery before its first append.
    pub incarnation: u64,
    /// Every group with a lower commit sequence number is home.
    pub tail: u64,
    /// Home files of groups with a lower commit sequence number may have been touched by a checkpoint.
    pub checkpointing: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments that the log has: a medium with fewer was cut off. None where a program wrote it that did not count
    /// them.
    pub segments: Option<u32>,
    /// Segments that the log was made with, and keeps.
    pub min_segments: u32,
    /// Segments of earlier lives whose groups are not all home.
    pub kept: Kept,
    /// A group that had committed when the last checkpoint began, below its target: the highest that was known, 0 if
    /// there was none.
    pub committed: u64,
    /// Records begin at multiples of this: a line on persistent memory, a block on a disk.
    pub block: u32,
}

/// Why bytes are not a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuperblockFault {
    /// No magic: not ours, or never written.
    Foreign,
    /// The checksum does not fit: torn, or rotten.
    Checksum,
    /// Written by a version that this code does not know.
    Version(u32),
    /// Uses features that this code does not know.
    Features(u32),
    /// Checksummed and yet impossible.
    Geometry,
}

impl LogPart {
    /// The slot that the generation goes to.
    pub fn slot_offset(&self) -> u64 {
        (self.generation % 2) * SUPERBLOCK_SLOT
    }

    /// Bytes that the log has at least, where nothing is cut off.
    pub fn log_bytes(&self) -> u64 {
        SEGMENTS_START + u64::from(self.segments.unwrap_or(self.min_segments)) * self.segment_bytes
    }

    /// Whether it can be the part of a log, whoever wrote it.
    pub fn is_sound(&self) -> bool {
        let LogPart { segment_bytes, segments, min_segments, checkpointing, .. } = *self;
        let block = u64::from(self.block);
        // A tail of a life to come would make its groups pass for ones that are home.
        let in_this_life = |sequence: u64| sequence >> INCARNATION_SHIFT <= self.incarnation;
        // Each open raises both by a few.
        let can_be_raised = self.generation <= u64::MAX / 2 && self.incarnation <= MOST_INCARNATIONS;
        can_be_raised
            && segment_bytes.is_power_of_two()
            && (MIN_SEGMENT..=MAX_SEGMENT).contains(&segment_bytes)
            && block.is_power_of_two()
            && (LINE..=SUPERBLOCK_SLOT).contains(&block)
            && block * 2 <= segment_bytes
            && segments.is_none_or(|segments| segments >= min_segments)
            && in_this_life(self.tail)
            && in_this_life(checkpointing)
            && self.committed <= checkpointing
    }
}

/// The first line of a segment in use.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawSegmentHeader {
    checksum: U64,
    magic: [u8; 4],
    lane: U32,
    incarnation: U64,
    sequence: U64,
    previous: U64,
    previous_last: U64,
    previous_end: U32,
    generation: U64,
    reserved: [u8; 4],
}
const _: () = assert!(size_of::<RawSegmentHeader>() == LINE as usize);
const _: () = assert!(std::mem::offset_of!(RawSegmentHeader, generation) == 52);

/// Who wrote a segment, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The chain of segments that one appender at a time filled.
    pub lane: u32,
    /// The life in which it was opened.
    pub incarnation: u64,
    /// Unique within the incarnation, and higher than that of any segment opened before.
    pub sequence: u64,
    /// The superblock that was in force, and durable, when the segment was opened.
    pub generation: u64,
    /// The segment before it in its lane.
    pub previous: Option<Previous>,
}

/// What a segment's header tells of the segment before it in its lane, as it was when the lane left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Previous {
    /// Its sequence, never 0.
    pub sequence: u64,
    /// The highest commit sequence number in it, 0 if none.
    pub last: u64,
    /// Where its records end, in bytes from its start.
    pub end: u32,
}

impl SegmentHeader {
    /// The bytes to be written at `position` of the log.
    pub fn to_raw(self, volume_seed: u64, position: u64) -> RawSegmentHeader {
        let mut raw = RawSegmentHeader {
            checksum: U64::ZERO,
            magic: SEGMENT_MAGIC,
            lane: U32::new(self.lane),
            incarnation: U64::new(self.incarnation),
            sequence: U64::new(self.sequence),
            previous: U64::new(self.previous.map_or(0, |previous| previous.sequence)),
            previous_last: U64::new(self.previous.map_or(0, |previous| previous.last)),
            previous_end: U32::new(self.previous.map_or(0, |previous| previous.end)),
            generation: U64::new(self.generation),
            reserved: [0; 4],
        };
        raw.checksum = U64::new(checksum(record_seed(volume_seed, position), &raw.as_bytes()[8..]));
        raw
    }

    /// Checks what was read from `position`; `None` for anything that no appender of this volume wrote there.
    pub fn checked(raw: &RawSegmentHeader, volume_seed: u64, position: u64) -> Option<SegmentHeader> {
        let sound = raw.magic == SEGMENT_MAGIC
            && raw.checksum.get() == checksum(record_seed(volume_seed, position), &raw.as_bytes()[8..]);
        sound.then(|| SegmentHeader {
            lane: raw.lane.get(),
            incarnation: raw.incarnation.get(),
            sequence: raw.sequence.get(),
            generation: raw.generation.get(),
            previous: (raw.previous.get() != 0).then(|| Previous {
                sequence: raw.previous.get(),
                last: raw.previous_last.get(),
                end: raw.previous_end.get(),
            }),
        })
    }
}

/// What a record is to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A piece of a group; counts only if a commit record of the group does.
    Part = 1,
    /// The last piece: with it the group survives.
    Commit = 2,
}

/// The record begins a batch: everything in its lane before it was durable when it was written.
pub const FLAG_BATCH_START: u8 = 1;

/// Bytes of a record's head before its first entry.
pub const HEAD: usize = 32;
/// Bytes of an entry.
pub const ENTRY: usize = 32;

/// The head of a record as it stands on media. The first entry follows in the same line.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawHead {
    /// Over the rest of the head and all entries, under the seed of this position.
    pub checksum: U64,
    sequence: U64,
    after: U64,
    lines: U16,
    entries: U16,
    part: U16,
    kind: u8,
    flags: u8,
}
const _: () = assert!(size_of::<RawHead>() == HEAD);

/// A record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Commit record: the commit sequence number. Part: the id of its group.
    pub sequence: u64,
    /// Commit record: the highest sequence of a group that it builds on, which had changed one of its files, its names
    /// or what they name, or made the directory of a name; 0 if none. Lower than its own. Part: 0.
    pub after: u64,
    /// Length of the record in lines, padding included.
    pub lines: u16,
    /// Number of entries.
    pub entries: u16,
    /// Part: its number, higher than those of the parts before it. Commit: the number of parts.
    pub part: u16,
    /// Part or commit.
    pub kind: RecordKind,
    /// `FLAG_*`.
    pub flags: u8,
}

impl Head {
    /// The head's words, to be stored as such (see [`first_line`]), with the checksum still to be filled in.
    #[inline]
    pub fn to_words(self) -> [u64; HEAD / 8] {
        let Head { sequence, after, lines, entries, part, kind, flags } = self;
        let last = u64::from(lines)
            | u64::from(entries) << 16
            | u64::from(part) << 32
            | (kind as u64) << 48
            | u64::from(flags) << 56;
        [0, sequence.to_le(), after.to_le(), last.to_le()]
    }

    /// Reads a head whose checksum is still to be compared; `None` if a field is out of its range.
    #[inline(always)]
    pub fn parse(raw: &RawHead, lines_left: u64) -> Option<Head> {
        Self::parse_in_any_order(raw, lines_left).filter(Head::is_in_order)
    }

    /// The same, also of a group that says that it comes after a higher sequence.
    #[inline(always)]
    pub fn parse_in_any_order(raw: &RawHead, lines_left: u64) -> Option<Head> {
        let kind = match raw.kind {
            1 => RecordKind::Part,
            2 => RecordKind::Commit,
            _ => return None,
        };
        let head = Head {
            sequence: raw.sequence.get(),
            after: raw.after.get(),
            lines: raw.lines.get(),
            entries: raw.entries.get(),
            part: raw.part.get(),
            kind,
            flags: raw.flags,
        };
        head.fits(lines_left).then_some(head)
    }

    /// Whether each field is in its range, where the segment has so many lines left. A head that is not is no head to
    /// who reads the log, so none is written.
    #[inline(always)]
    pub fn is_sound(&self, lines_left: u64) -> bool {
        self.fits(lines_left) && self.is_in_order()
    }

    fn is_in_order(&self) -> bool {
        self.sequence > self.after
    }

    #[inline(always)]
    fn fits(&self, lines_left: u64) -> bool {
        self.lines > 0
            && u64::from(self.lines) <= lines_left
            && self.tail_lines() < u64::from(self.lines)
            && (self.kind == RecordKind::Commit || self.after == 0)
            && self.flags & !FLAG_BATCH_START == 0
    }

    /// Where the entries after the first stand, in bytes from the record's start: they fill its last lines.
    #[inline]
    pub fn tail_offset(&self) -> u64 {
        u64::from(self.lines) * LINE - self.tail_lines() * LINE
    }

    /// How many lines the entries after the first fill.
    #[inline]
    pub fn tail_lines(&self) -> u64 {
        tail_lines(usize::from(self.entries))
    }
}

/// How many lines the entries after the first fill, of `entries` in all.
#[inline]
pub fn tail_lines(entries: usize) -> u64 {
    (entries.saturating_sub(1) * ENTRY).div_ceil(LINE as usize) as u64
}

/// An entry as it stands on media.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Default)]
#[repr(C)]
pub struct RawEntry {
    payload_checksum: U64,
    offset: U64,
    file: U64,
    length: U32,
    line: U16,
    kind: u8,
    reserved: u8,
}
const _: () = assert!(size_of::<RawEntry>() == ENTRY);
const _: () = assert!(HEAD + ENTRY == LINE as usize);

/// One operation of a group on one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<K> {
    /// Over the payload, under the seed of the segment and the payload's place.
    pub payload_checksum: u64,
    /// Offset in the file in bytes, or what the kind says.
    pub offset: u64,
    /// The object that the client means by this number; 0 where the kind speaks of none.
    pub file: u64,
    /// Bytes of payload.
    pub length: u32,
    /// The line of the record at which the payload begins.
    pub line: u16,
    /// What is asked for.
    pub kind: K,
}

impl<K: ClientKind> Entry<K> {
    /// The words to be written.
    #[inline]
    pub fn to_words(self) -> [u64; ENTRY / 8] {
        let Entry { payload_checksum, offset, file, length, line, kind } = self;
        let last = u64::from(length) | u64::from(line) << 32 | u64::from(kind.number()) << 48;
        [payload_checksum.to_le(), offset.to_le(), file.to_le(), last.to_le()]
    }

    /// Checks an entry of a record whose checksum has been compared. `None` if it is impossible all the same.
    #[inline(always)]
    pub fn checked(raw: &RawEntry, head: &Head) -> Option<Self> {
        let kind = K::of(raw.kind)?;
        let entry = Entry {
            payload_checksum: raw.payload_checksum.get(),
            offset: raw.offset.get(),
            file: raw.file.get(),
            length: raw.length.get(),
            line: raw.line.get(),
            kind,
        };
        (raw.reserved == 0 && entry.is_sound(head)).then_some(entry)
    }

    /// Whether the record with this head, which is [sound](Head::is_sound), can have this entry. Who reads one that
    /// cannot be takes the log for corrupt, so none is written.
    #[inline(always)]
    pub fn is_sound(&self, head: &Head) -> bool {
        let Entry { payload_checksum: _, offset, file, length, line, kind } = *self;
        let end_line = u64::from(line) + u64::from(length).div_ceil(LINE);
        let payload_fits = match length {
            0 => line == 0,
            _ => line >= 1 && end_line <= u64::from(head.lines) - head.tail_lines(),
        };
        let is_parts = kind == K::PARTS;
        payload_fits && if is_parts { offset <= i64::MAX as u64 && length == 0 && file == 0 } else { K::is_sound(self) }
    }
}

/// Puts the first line of a record together: its head, sealed, and its first entry. From whole words and in place,
/// because it is hashed and stored word by word right after: bytes that a load finds in narrower stores, or in several,
/// have to reach the cache first, behind the payload that is on its way to memory.
#[inline(always)]
pub fn first_line<K: ClientKind>(
    line: &mut [u64; LINE as usize / 8],
    seed: u64,
    head: Head,
    first: Option<&Entry<K>>,
    tail: &[u8],
) {
    let (head_words, entry_words) = line.split_at_mut(HEAD / 8);
    head_words.copy_from_slice(&head.to_words());
    if let Some(first) = first {
        entry_words.copy_from_slice(&first.to_words());
    }
    line[0] = seal(seed, line.as_bytes().try_into().expect("a line"), tail).to_le();
}

/// The checksum of a record: its head after the checksum, its first entry, then the entries at its end.
#[inline(always)]
pub fn seal(seed: u64, first_line: &[u8; LINE as usize], tail: &[u8]) -> u64 {
    // Of a known length: there is a short way for it.
    let head = fold(seed, &first_line[8..]);
    if tail.is_empty() { head } else { checksum(head, tail) }
}
