//! What the store puts on media in its log, byte by byte: the kinds of entries, and the superblock. `docs/format.md` is
//! this file and that of the log in prose.

use wholly_changes::Origin;
use wholly_changes::records::{self, LARGEST_FILE, kind};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes, Unaligned};

use super::checksum::checksum;
use super::{ClientKind, ClientPart};

pub use ::log::layout::*;

/// See [`::log::layout::Entry`].
pub type Entry = ::log::layout::Entry<EntryKind>;
/// See [`::log::layout::Superblock`].
pub type Superblock = ::log::layout::Superblock<StorePart>;

/// The version of the format that this code writes.
pub const FORMAT_VERSION: u32 = 4;
const _: () = assert!(records::BLOCK == index::BLOCK);

const SUPERBLOCK_MAGIC: [u8; 8] = *b"WHOLLYSB";
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
    place: RawPlace,
}
/// Bytes of a superblock that its checksum covers, itself included.
const CHECKED: usize = 128;
const _: () = assert!(size_of::<RawSuperblock>() == CHECKED + 64);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, place) == CHECKED);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, volume_id) == 32);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, segment_bytes) == 96);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, segments) == 100);
const _: () = assert!(std::mem::offset_of!(RawSuperblock, kept_checksum) == 112);

/// Which directory a superblock is of. Versions before did not tell, and write what is before it only: it holds for the
/// superblock whose checksum is its seed.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct RawPlace {
    checksum: U64,
    ino: U64,
    btime_ns: I64,
    reserved: [u8; 40],
}

impl RawPlace {
    fn of((ino, btime_ns): (u64, i64), seed: u64) -> RawPlace {
        let (ino, btime_ns) = (U64::new(ino), I64::new(btime_ns));
        let mut raw = RawPlace { checksum: U64::ZERO, ino, btime_ns, reserved: [0; 40] };
        raw.checksum = U64::new(checksum(seed, &raw.as_bytes()[8..]));
        raw
    }

    /// The directory, all zero where nothing tells.
    fn dir(&self, seed: u64) -> (u64, i64) {
        let dir = (self.ino.get(), self.btime_ns.get());
        if RawPlace::of(dir, seed).as_bytes() == self.as_bytes() { dir } else { (0, 0) }
    }
}

/// What a superblock tells of its store besides the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorePart {
    /// The folder that the log was written in.
    pub origin: Origin,
}

fn checksum_of(raw: &RawSuperblock) -> u64 {
    checksum(SUPERBLOCK_SEED, &raw.as_bytes()[8..CHECKED])
}

impl ClientPart for StorePart {
    type Raw = RawSuperblock;

    fn to_raw(superblock: &Superblock) -> RawSuperblock {
        let Superblock { log, client: StorePart { origin } } = superblock;
        let mut raw = RawSuperblock {
            checksum: U64::ZERO,
            magic: SUPERBLOCK_MAGIC,
            version: U32::new(FORMAT_VERSION),
            incompatible: U32::new(log.segments.map_or(0, |_| KNOWN_INCOMPATIBLE)),
            compatible: U32::ZERO,
            block: U32::new(log.block),
            volume_id: log.volume_id,
            origin_ino: U64::new(origin.log.0),
            origin_btime_ns: I64::new(origin.log.1),
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
            place: RawPlace::of((0, 0), 0),
        };
        let sum = checksum_of(&raw);
        raw.checksum = U64::new(sum);
        raw.place = RawPlace::of(origin.dir, sum);
        raw
    }

    fn checked(raw: &RawSuperblock) -> Result<Superblock, SuperblockFault> {
        if raw.magic != SUPERBLOCK_MAGIC {
            return Err(SuperblockFault::Foreign);
        }
        if raw.checksum.get() != checksum_of(raw) {
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
        let inode = (raw.origin_ino.get(), raw.origin_btime_ns.get());
        let origin = Origin { log: inode, dir: raw.place.dir(raw.checksum.get()) };
        Ok(Superblock { log, client: StorePart { origin } })
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

/// What an entry asks for. Numbers from 16 up are those of the namespace, whose payload holds their operands.
#[derive(TryFromBytes, Immutable, KnownLayout, Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EntryKind {
    /// Payload at `offset` of the file.
    Write = kind::WRITE,
    /// The file is `offset` bytes long from here on.
    Truncate = kind::TRUNCATE,
    /// The payload tells which inode of the host `file` is, and its place.
    Identify = kind::IDENTIFY,
    /// In a commit record: `offset` is the id of the group, whose parts stand elsewhere.
    Parts = 4,
    /// `offset` is the time in ns since the epoch from this group's sequence on.
    Clock = 5,
    /// The payload tells what becomes of the space of a range of `file`, from `offset` on.
    Space = kind::SPACE,
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
    Create = kind::CREATE,
    /// The payload tells which object a name in the directory `file` stands for from here on.
    Name = kind::NAME,
    /// The payload tells mode, owner and times of `file` from here on.
    Attributes = kind::ATTRIBUTES,
    /// The payload sets or removes an extended attribute of `file`.
    Xattr = kind::XATTR,
}

impl ClientKind for EntryKind {
    const PARTS: Self = EntryKind::Parts;

    #[inline(always)]
    fn of(number: u8) -> Option<Self> {
        EntryKind::try_read_from_bytes(&[number]).ok()
    }

    #[inline(always)]
    fn number(self) -> u8 {
        self as u8
    }

    #[inline(always)]
    fn is_sound(entry: &Entry) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::first_of;

    fn superblock() -> Superblock {
        let log = LogPart {
            volume_id: [1; 16],
            generation: 1,
            incarnation: 1,
            tail: first_of(1) - 1,
            checkpointing: first_of(1) - 1,
            segment_bytes: MIN_SEGMENT,
            segments: Some(4),
            min_segments: 4,
            kept: Kept::default(),
            committed: 0,
            block: LINE as u32,
        };
        Superblock { log, client: StorePart { origin: Origin { log: (2, 3), dir: (4, 5) } } }
    }

    #[test]
    fn other_formats_are_refused_with_what_to_do() {
        let mut raw = superblock().to_raw();
        assert_eq!(StorePart::checked(&raw), Ok(superblock()));
        for (version, advice) in [(2, "`wholly deinit`"), (FORMAT_VERSION + 1, "a newer one is needed")] {
            raw.version = U32::new(version);
            raw.checksum = U64::new(checksum_of(&raw));
            let fault = StorePart::checked(&raw).unwrap_err();
            assert_eq!(fault, SuperblockFault::Version(version));
            let what = StorePart::unsupported(fault).unwrap();
            assert!(what.contains(&format!("log format {version}")) && what.contains(advice), "{what}");
        }
        assert_eq!(StorePart::unsupported(SuperblockFault::Checksum), None);
    }

    /// What a version before has written over a slot, and what a crash has torn, tells of no directory.
    #[test]
    fn a_superblock_tells_its_directory() {
        let new = superblock().to_raw();
        let origin = Origin { dir: (6, 7), ..superblock().client.origin };
        let other = Superblock { client: StorePart { origin }, ..superblock() }.to_raw();
        assert_eq!(other.as_bytes()[..CHECKED], new.as_bytes()[..CHECKED], "what is checked is as it was");
        let mut next = superblock();
        next.log.generation += 1;
        let torn = RawSuperblock { place: new.place, ..next.to_raw() };
        let old = RawSuperblock { place: RawPlace::read_from_bytes(&[0; 64]).unwrap(), ..new };
        for (raw, dir) in [(new, (4, 5)), (other, (6, 7)), (torn, (0, 0)), (old, (0, 0))] {
            assert_eq!(StorePart::checked(&raw).unwrap().client.origin, Origin { log: (2, 3), dir });
        }
        let at = |log, dir| Origin { log, dir };
        let here = at((2, 3), (4, 5));
        let table =
            [(here, true), (at((2, 3), (0, 0)), true), (at((2, 3), (6, 7)), false), (at((2, 4), (4, 5)), false)];
        for (origin, is_here) in table.into_iter().chain([(Origin::default(), false)]) {
            assert_eq!(origin.is_here(here), is_here, "{origin:?}");
        }
    }

    /// An entry in a record of 4 lines, as it reads back.
    fn read_back(kind: EntryKind, file: u64, offset: u64, length: u32) -> Option<Entry> {
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
            let mut raw = [0; ENTRY];
            raw[30] = kind;
            let raw = RawEntry::read_from_bytes(&raw).unwrap();
            assert_eq!(Entry::checked(&raw, &head), None, "kind {kind}");
        }
    }
}
