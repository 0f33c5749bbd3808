//! What stands on media, byte by byte. `docs/format.md` is this file in prose.
//!
//! Everything is little-endian, made of whole reserved bytes, and untrusted until a `checked` function has turned it
//! into a native type.

use std::ops::{Deref, DerefMut};

use wholly_error::Error;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::INCARNATION_SHIFT;
use super::checksum::{checksum, record_seed};
use super::client::{ClientKind, ClientPart};

/// Everything in the log is a whole number of lines.
pub const LINE: u64 = 64;
/// The version of the format that this code writes.
pub const FORMAT_VERSION: u32 = 4;
/// Bytes of one superblock slot; two of them open the log.
pub const SUPERBLOCK_SLOT: u64 = 4096;
/// Where the segments begin.
pub const SEGMENTS_START: u64 = 2 * SUPERBLOCK_SLOT;
/// The smallest segment.
pub const MIN_SEGMENT: u64 = 4096;
/// The largest segment: a line's number in it fits in 16 bits.
pub const MAX_SEGMENT: u64 = 2 << 20;

/// Bytes of the largest file: its blocks of 4 KiB can be told apart in 40 bits.
pub const LARGEST_FILE: u64 = ((1 << 40) - 2) * 4096;

const SUPERBLOCK_MAGIC: [u8; 8] = *b"WHOLLYSB";
const SEGMENT_MAGIC: [u8; 4] = *b"WSEG";
const SUPERBLOCK_SEED: u64 = 0x5355_5045_5242_4c4b;

/// The superblock tells how many segments the log has.
pub const FEATURE_SEGMENT_COUNT: u32 = 1;
/// Groups may be provisional.
pub const FEATURE_PROVISIONAL: u32 = 2;
/// Features that a reader must know to open the store at all.
pub const KNOWN_INCOMPATIBLE: u32 = FEATURE_SEGMENT_COUNT | FEATURE_PROVISIONAL;

/// One superblock slot as it stands on media.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawSuperblock {
    checksum: U64,
    magic: [u8; 8],
    version: U32,
    incompatible: U32,
    compatible: U32,
    block: U32,
    volume_id: [u8; 16],
    origin_ino: U64,
    origin_btime_ns: I64,
    generation: U64,
    incarnation: U64,
    tail: U64,
    checkpointing: U64,
    segment_bytes: U32,
    /// 0 without [`FEATURE_SEGMENT_COUNT`].
    segments: U32,
    min_segments: U32,
    kept_segments: U32,
    kept_checksum: U64,
    committed: U64,
}
const _: () = assert!(size_of::<RawSuperblock>() == 128);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, volume_id) == 32);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, segment_bytes) == 96);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, segments) == 100);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, kept_checksum) == 112);

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

/// An inode of the host, by number and time of birth in ns; all zero where nobody knows it. The objects that groups
/// speak of are named in the same way: where the log's own inode is another one, theirs are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The number.
    pub ino: u64,
    /// When it was born.
    pub btime_ns: i64,
}

impl Origin {
    /// The log was this inode and is `now`, with so many groups that are not home: says so from now on, unless it was
    /// copied. Groups that are home speak of nothing any more.
    ///
    /// # Errors
    /// [`Error::Copied`]: a copy stays one until its log has told which inodes its objects are here.
    pub fn move_to(&mut self, now: Origin, groups: u64) -> wholly_error::Result<()> {
        let unknown = Origin::default();
        if groups > 0 && *self != now && *self != unknown && now != unknown {
            return Err(Error::Copied { groups });
        }
        *self = now;
        Ok(())
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
        segment_bytes.is_power_of_two()
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

impl ClientPart for Origin {
    type Raw = RawSuperblock;

    fn to_raw(superblock: &Superblock<Self>) -> RawSuperblock {
        let Superblock { log, client } = superblock;
        let mut raw = RawSuperblock {
            checksum: U64::ZERO,
            magic: SUPERBLOCK_MAGIC,
            version: U32::new(FORMAT_VERSION),
            incompatible: U32::new(log.segments.map_or(0, |_| KNOWN_INCOMPATIBLE)),
            compatible: U32::ZERO,
            block: U32::new(log.block),
            volume_id: log.volume_id,
            origin_ino: U64::new(client.ino),
            origin_btime_ns: I64::new(client.btime_ns),
            generation: U64::new(log.generation),
            incarnation: U64::new(log.incarnation),
            tail: U64::new(log.tail),
            checkpointing: U64::new(log.checkpointing),
            segment_bytes: U32::new(log.segment_bytes as u32),
            segments: U32::new(log.segments.unwrap_or(0)),
            min_segments: U32::new(log.min_segments),
            kept_segments: U32::new(log.kept.segments),
            kept_checksum: U64::new(log.kept.checksum),
            committed: U64::new(log.committed),
        };
        raw.checksum = U64::new(checksum(SUPERBLOCK_SEED, &raw.as_bytes()[8..]));
        raw
    }

    fn checked(raw: &RawSuperblock) -> Result<Superblock<Self>, SuperblockFault> {
        if raw.magic != SUPERBLOCK_MAGIC {
            return Err(SuperblockFault::Foreign);
        }
        if raw.checksum.get() != checksum(SUPERBLOCK_SEED, &raw.as_bytes()[8..]) {
            return Err(SuperblockFault::Checksum);
        }
        if raw.version.get() != FORMAT_VERSION {
            return Err(SuperblockFault::Version(raw.version.get()));
        }
        let unknown = raw.incompatible.get() & !KNOWN_INCOMPATIBLE;
        if unknown != 0 {
            return Err(SuperblockFault::Features(unknown));
        }
        let counted = raw.incompatible.get() & FEATURE_SEGMENT_COUNT != 0;
        let segments = raw.segments.get();
        let log = LogPart {
            volume_id: raw.volume_id,
            generation: raw.generation.get(),
            incarnation: raw.incarnation.get(),
            tail: raw.tail.get(),
            checkpointing: raw.checkpointing.get(),
            segment_bytes: u64::from(raw.segment_bytes.get()),
            segments: counted.then_some(segments),
            min_segments: raw.min_segments.get(),
            kept: Kept { segments: raw.kept_segments.get(), checksum: raw.kept_checksum.get() },
            committed: raw.committed.get(),
            block: raw.block.get(),
        };
        if !log.is_sound() || !counted && segments != 0 {
            return Err(SuperblockFault::Geometry);
        }
        Ok(Superblock { log, client: Origin { ino: raw.origin_ino.get(), btime_ns: raw.origin_btime_ns.get() } })
    }

    fn unsupported(fault: SuperblockFault) -> Option<String> {
        match fault {
            SuperblockFault::Version(version) if version < FORMAT_VERSION => Some(format!(
                "log format {version} is no longer supported and may hold updates that are not written back: run \
                 `wholly deinit` of the version that wrote it, then make a new store"
            )),
            SuperblockFault::Version(version) => {
                Some(format!("log format {version}; this program supports {FORMAT_VERSION}, a newer one is needed"))
            }
            SuperblockFault::Features(bits) => Some(format!("log features {bits:#x}; a newer program is needed")),
            SuperblockFault::Foreign | SuperblockFault::Checksum | SuperblockFault::Geometry => None,
        }
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
    /// Part: its number, from 0. Commit: the number of parts before it.
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

/// What an entry asks for. Numbers from 16 up are those of the namespace, whose payload holds their operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// Payload at `offset` of the file.
    Write = 1,
    /// The file is `offset` bytes long from here on.
    Truncate = 2,
    /// The payload tells which inode of the host `file` is, and its place.
    Identify = 3,
    /// In a commit record: `offset` is the id of the group, whose parts stand elsewhere.
    Parts = 4,
    /// `offset` is the time in ns since the epoch from this group's sequence on.
    Clock = 5,
    /// The payload tells what becomes of the space of a range of `file`, from `offset` on.
    Space = 6,
    /// The bytes of `file` are those that the host has, `offset` of them: all that records say of them up to here does
    /// not count.
    Staged = 7,
    /// `offset` is the id of the parked group that this group is.
    Applied = 8,
    /// The payload tells where bytes are that `file` has from `offset` on.
    Shadow = 9,
    /// `offset` is the id of this group, which is undone unless it is written back; see `running/undo.rs` of the store.
    Provisional = 10,
    /// The payload is all that `file` is made with: the group creates it.
    Create = 16,
    /// The payload tells which object a name in the directory `file` stands for from here on.
    Name = 17,
    /// The payload tells mode, owner and times of `file` from here on.
    Attributes = 18,
    /// The payload sets or removes an extended attribute of `file`.
    Xattr = 19,
}

impl ClientKind for EntryKind {
    const PARTS: Self = EntryKind::Parts;

    #[inline(always)]
    fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => EntryKind::Write,
            2 => EntryKind::Truncate,
            3 => EntryKind::Identify,
            4 => EntryKind::Parts,
            5 => EntryKind::Clock,
            6 => EntryKind::Space,
            7 => EntryKind::Staged,
            8 => EntryKind::Applied,
            9 => EntryKind::Shadow,
            10 => EntryKind::Provisional,
            16 => EntryKind::Create,
            17 => EntryKind::Name,
            18 => EntryKind::Attributes,
            19 => EntryKind::Xattr,
            _ => return None,
        })
    }

    #[inline(always)]
    fn number(self) -> u8 {
        self as u8
    }

    #[inline(always)]
    fn is_sound(entry: &Entry<Self>) -> bool {
        let Entry { offset, file, length, kind, .. } = *entry;
        match kind {
            EntryKind::Write | EntryKind::Truncate => {
                offset.checked_add(u64::from(length)).is_some_and(|end| end <= LARGEST_FILE)
            }
            EntryKind::Parts | EntryKind::Clock | EntryKind::Applied | EntryKind::Provisional => {
                offset <= i64::MAX as u64 && length == 0 && file == 0
            }
            EntryKind::Staged => offset <= LARGEST_FILE && length == 0 && file != 0,
            // How long the range is stands in the payload.
            EntryKind::Space | EntryKind::Shadow => offset <= LARGEST_FILE && length > 0 && file != 0,
            // What they ask for is all in the payload.
            EntryKind::Identify | EntryKind::Create | EntryKind::Name | EntryKind::Attributes | EntryKind::Xattr => {
                offset == 0 && length > 0 && file != 0
            }
        }
    }
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
pub fn seal(seed: u64, first_line: &[u8; LINE as usize], tail: &[u8]) -> u64 {
    let head = checksum(seed, &first_line[8..]);
    if tail.is_empty() { head } else { checksum(head, tail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock() -> Superblock<Origin> {
        let log = LogPart {
            volume_id: [1; 16],
            generation: 1,
            incarnation: 1,
            tail: 1 << INCARNATION_SHIFT,
            checkpointing: 1 << INCARNATION_SHIFT,
            segment_bytes: MIN_SEGMENT,
            segments: Some(4),
            min_segments: 4,
            kept: Kept::default(),
            committed: 0,
            block: LINE as u32,
        };
        Superblock { log, client: Origin { ino: 2, btime_ns: 3 } }
    }

    #[test]
    fn other_formats_are_refused_with_what_to_do() {
        let mut raw = superblock().to_raw();
        assert_eq!(Origin::checked(&raw), Ok(superblock()));
        for (version, advice) in [(2, "`wholly deinit`"), (FORMAT_VERSION + 1, "a newer one is needed")] {
            raw.version = U32::new(version);
            raw.checksum = U64::new(checksum(SUPERBLOCK_SEED, &raw.as_bytes()[8..]));
            let fault = Origin::checked(&raw).unwrap_err();
            assert_eq!(fault, SuperblockFault::Version(version));
            let what = Origin::unsupported(fault).unwrap();
            assert!(what.contains(&format!("log format {version}")) && what.contains(advice), "{what}");
        }
        assert_eq!(Origin::unsupported(SuperblockFault::Checksum), None);
    }

    /// An entry in a record of 4 lines, as it reads back.
    fn read_back(kind: EntryKind, file: u64, offset: u64, length: u32) -> Option<Entry<EntryKind>> {
        let head = Head { sequence: 2, after: 1, lines: 4, entries: 1, part: 0, kind: RecordKind::Commit, flags: 0 };
        let line = u16::from(length > 0);
        let entry = Entry { payload_checksum: 3, offset, file, length, line, kind };
        let raw = RawEntry::read_from_bytes(entry.to_words().as_bytes()).unwrap();
        let read = Entry::checked(&raw, &head);
        assert!(read.is_none_or(|read| read == entry));
        read
    }

    #[test]
    fn each_kind_has_its_operands() {
        use EntryKind::*;
        let now = 1_700_000_000_000_000_000;
        let last = i64::MAX as u64;
        // Kind, file, offset, length; whether it can be.
        let table = [
            (Write, 7, LARGEST_FILE - 64, 64, true),
            (Write, 7, LARGEST_FILE - 63, 64, false),
            (Write, 7, u64::MAX, 64, false),
            (Write, 7, 0, 192, true),
            (Write, 7, 0, 193, false),
            (Truncate, 7, LARGEST_FILE, 0, true),
            (Truncate, 7, LARGEST_FILE + 1, 0, false),
            (Parts, 0, last, 0, true),
            (Parts, 0, last + 1, 0, false),
            (Parts, 7, 1, 0, false),
            (Space, 7, LARGEST_FILE, 16, true),
            (Space, 7, LARGEST_FILE + 1, 16, false),
            (Space, 7, 0, 0, false),
            (Space, 0, 0, 16, false),
            (Clock, 0, now, 0, true),
            (Clock, 0, last + 1, 0, false),
            (Clock, 0, now, 1, false),
            (Clock, 7, now, 0, false),
            (Applied, 0, 1, 0, true),
            (Applied, 0, 1, 1, false),
            (Applied, 7, 1, 0, false),
            (Provisional, 0, 1, 0, true),
            (Provisional, 0, 1, 1, false),
            (Provisional, 7, 1, 0, false),
        ];
        for (kind, file, offset, length, fits) in table {
            assert_eq!(read_back(kind, file, offset, length).is_some(), fits, "{kind:?} {file} {offset} {length}");
        }
        for kind in [Identify, Create, Name, Attributes, Xattr] {
            assert!(read_back(kind, 7, 0, 64).is_some(), "{kind:?}");
            assert!(read_back(kind, 7, 0, 0).is_none(), "{kind:?} without a payload");
            assert!(read_back(kind, 7, 1, 64).is_none(), "{kind:?} with an offset");
            assert!(read_back(kind, 0, 0, 64).is_none(), "{kind:?} of nothing");
        }
        let head = Head { sequence: 2, after: 1, lines: 4, entries: 1, part: 0, kind: RecordKind::Commit, flags: 0 };
        for kind in (0..=u8::MAX).filter(|kind| !matches!(kind, 1..=6 | 8 | 10 | 16..=19)) {
            let raw = RawEntry { kind, ..RawEntry::default() };
            assert_eq!(Entry::<EntryKind>::checked(&raw, &head), None, "kind {kind}");
        }
    }
}
