//! The log of an engine that writes one: an area with lanes, and entries of one line.
//!
//! The *area* is a run of blocks that the superblock names. It is divided into *lanes*, and each lane into two *halves*
//! that its groups use in turn. A half begins with a line for the commit entry and a line with the *settled word*; the
//! rest is for the other entries. A group that needs more goes on in blocks of free space, to which a link leads. The
//! data of an explicit group is in a *chain*: blocks of free space of its own, which the commit's first entry names.
//!
//! An entry proves itself: its check covers its other 56 bytes, and is seeded with the volume, the incarnation (so that
//! a mount makes all older entries void), the lane (whose groups alone have distinct sequences) and the byte of the
//! volume at which it stands.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::inode::{InodeMap, Tree};
use super::pointer::MAX_DEPTH;
use super::{BLOCK, Lba, Run, Seed, mix};
use twox_hash::XxHash3_64;
use wholly_blocks::log::RingSeed;
use wholly_error::Result;
use wholly_media::Region;

/// Bytes of a line.
pub const LINE: usize = 64;
/// Bytes that an undo entry holds at most.
pub const OLD_MAX: usize = 32;
/// The byte of a half at which the settled word stands.
pub const SETTLED: u64 = LINE as u64;
/// The byte of a half at which entries begin.
pub const ENTRIES: u64 = 2 * LINE as u64;

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogArea {
    /// Its first block.
    pub start: Lba,
    /// Blocks of one half of a lane.
    pub half_blocks: u32,
    /// Lanes.
    pub lanes: u32,
}

/// Writes what a new log needs, in a volume with this id.
pub type MakeLog = fn(&dyn Region, &LogArea, [u8; 16]) -> Result<()>;

/// What a log is made for.
#[derive(Clone, Copy, Debug)]
pub struct ForLog {
    /// Blocks of the volume.
    pub blocks: u64,
    /// Queues, if somebody has chosen.
    pub queues: Option<u16>,
}

impl LogArea {
    /// The area of a new volume: about 1/400 of it, and 2 to 16 lanes.
    pub fn for_volume(start: Lba, blocks: u64) -> LogArea {
        let half_blocks = if blocks < 4096 { 2 } else { 10 };
        LogArea { start, half_blocks, lanes: (blocks / 8192).clamp(2, 16) as u32 }
    }

    /// The area of an engine that has root records only: one lane.
    pub fn of_roots(start: Lba) -> LogArea {
        LogArea { start, half_blocks: 2, lanes: 1 }
    }

    /// All its blocks.
    pub fn run(&self) -> Run {
        Run { start: self.start, count: 2 * u64::from(self.half_blocks) * u64::from(self.lanes) }
    }

    /// The half that a lane uses for the group with this sequence.
    pub fn half(&self, lane: u32, sequence: u64) -> Run {
        let number = 2 * u64::from(lane) + sequence % 2;
        let count = u64::from(self.half_blocks);
        Run { start: Lba(self.start.0 + number * count), count }
    }

    /// The bytes of the volume at which the root record of a group with this sequence stands, and its numbers there.
    pub fn roots(&self, sequence: u64) -> impl Iterator<Item = (u64, u32)> + use<> {
        let half = self.half(0, sequence);
        (0..2).map(move |copy| (Lba(half.start.0 + u64::from(copy)).byte(), copy))
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    check: U64,
    sequence: U64,
    kind: u8,
    old_len: u8,
    reserved: U16,
    number: U32,
    at: U64,
    bytes: [u8; OLD_MAX],
}
const _: () = assert!(size_of::<RawEntry>() == LINE);
const _: () = assert!(std::mem::offset_of!(RawEntry, bytes) == LINE - OLD_MAX);

const UNDO: u8 = 1;
const DATA: u8 = 2;
const ZERO: u8 = 3;
const LINK: u8 = 4;
const COMMIT: u8 = 5;
const CHAIN: u8 = 6;
const OLD: u8 = 7;
const OLD_ZEROS: u8 = 8;
const ROOT: u8 = 16;

/// What an entry says. Places are bytes of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// What stood at a place before the group.
    Undo {
        /// Where.
        at: u64,
        /// How many bytes: 1 to [`OLD_MAX`].
        len: u8,
        /// They; the rest is 0.
        old: [u8; OLD_MAX],
    },
    /// The same of more bytes: the payload, in the lines behind this one.
    Old {
        /// Where.
        at: u64,
        /// Bytes of the payload.
        len: u64,
        /// Its checksum.
        sum: u64,
    },
    /// The same, where zeros stood.
    OldZeros {
        /// Where.
        at: u64,
        /// How many.
        len: u64,
    },
    /// What a committed group has at a place: the payload, in the lines behind this one.
    Data {
        /// Where.
        at: u64,
        /// Bytes of the payload.
        len: u64,
        /// Its checksum.
        sum: u64,
    },
    /// A committed group has zeros at a place.
    Zero {
        /// Where.
        at: u64,
        /// How many.
        len: u64,
    },
    /// The entries go on in these blocks.
    Link(Run),
    /// The group's data entries are in a chain of its own.
    Chain {
        /// The number of the group, which is the sequence of these entries.
        group: u64,
        /// The block that they begin in.
        start: Lba,
        /// How many they are.
        entries: u32,
        /// The sum of their checks.
        sum: u64,
    },
    /// The group is committed.
    Commit {
        /// How many other entries it has.
        entries: u32,
        /// The sum of their checks.
        sum: u64,
        /// Whether some of them are to be redone, unless the settled word says that it was done.
        redo: bool,
        /// The place of the group in commit order.
        order: u64,
    },
    /// The group is committed, and this is the map of the inode file.
    Root(InodeMap),
}

/// The seed of the log in one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSeed(pub u64);

impl LogSeed {
    /// That of a volume while it is mounted for the `incarnation`th time.
    pub fn of(volume: Seed, incarnation: u64) -> LogSeed {
        LogSeed(mix(volume.0 ^ 0x4c4f_475f_4c41_4e45, incarnation))
    }

    /// The checksum of bytes that are stored in place.
    pub fn in_place_sum(self, at: u64, bytes: &[u8]) -> u64 {
        self.ring().sum(at, bytes)
    }

    /// That of the log of whole blocks.
    pub fn ring(self) -> RingSeed {
        RingSeed::new(self.0)
    }

    /// That of a lane. Groups of two lanes have equal sequences, and the block in which the one goes on may be in the
    /// place of a block of the other: without the lane, recovery would read on into the entries of the other.
    pub fn lane(self, lane: u32) -> LaneSeed {
        LaneSeed(mix(self.0, lane.into()))
    }

    /// That of all chains. No two groups of an incarnation have the same number.
    pub fn chains(self) -> LaneSeed {
        self.lane(u32::MAX)
    }
}

/// The seed of the entries of one lane in one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSeed(u64);

impl LaneSeed {
    /// The checksum of a payload whose head stands at a byte of the volume.
    pub fn payload_sum(self, head: u64, payload: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(mix(self.0, head) ^ 1, payload)
    }

    fn check(self, stands: u64, raw: &[u8]) -> u64 {
        // 0 is never valid.
        XxHash3_64::oneshot_with_seed(mix(self.0, stands), &raw[8..LINE]).max(1)
    }
}

/// An entry as it was read, with its group and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// What it says.
    pub entry: Entry,
    /// The group, by the lane's own count.
    pub sequence: u64,
    /// Which entry of the group it is.
    pub number: u32,
    /// Its check.
    pub check: u64,
}

/// An entry as it stands on media at the byte `stands`, and its check.
pub fn encode(seed: LaneSeed, stands: u64, (sequence, number): (u64, u32), entry: &Entry) -> ([u8; LINE], u64) {
    let mut bytes = [0; OLD_MAX];
    let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    let (kind, at, old_len) = match *entry {
        Entry::Undo { at, len, old } => {
            bytes = old;
            (UNDO, at, len)
        }
        Entry::Data { at, len, sum } | Entry::Old { at, len, sum } => {
            put(0, len);
            put(8, sum);
            (if matches!(entry, Entry::Old { .. }) { OLD } else { DATA }, at, 0)
        }
        Entry::Zero { at, len } | Entry::OldZeros { at, len } => {
            put(0, len);
            (if matches!(entry, Entry::OldZeros { .. }) { OLD_ZEROS } else { ZERO }, at, 0)
        }
        Entry::Link(run) => {
            put(0, run.count);
            (LINK, run.start.0, 0)
        }
        Entry::Chain { group, start, entries, sum } => {
            put(0, sum);
            put(8, u64::from(entries));
            put(16, group);
            (CHAIN, start.0, 0)
        }
        Entry::Commit { entries, sum, redo, order } => {
            put(0, sum);
            put(8, u64::from(entries));
            put(16, u64::from(redo));
            (COMMIT, order, 0)
        }
        Entry::Root(InodeMap { tree, inodes, generation_floor }) => {
            put(0, tree.blocks);
            put(8, u64::from(tree.depth));
            put(16, inodes);
            put(24, u64::from(generation_floor));
            (ROOT, tree.root, 0)
        }
    };
    let raw = RawEntry {
        check: 0.into(),
        sequence: sequence.into(),
        kind,
        old_len,
        reserved: 0.into(),
        number: number.into(),
        at: at.into(),
        bytes,
    };
    let mut line = [0; LINE];
    line.copy_from_slice(raw.as_bytes());
    let check = seed.check(stands, &line);
    line[..8].copy_from_slice(&check.to_le_bytes());
    (line, check)
}

/// The entry that stands at a byte, if one does.
pub fn decode(seed: LaneSeed, stands: u64, line: &[u8; LINE]) -> Option<Read> {
    let raw = RawEntry::read_from_bytes(line).ok()?;
    if raw.check.get() != seed.check(stands, line) {
        return None;
    }
    let word = |at: usize| u64::from_le_bytes(raw.bytes[at..at + 8].try_into().expect("eight bytes"));
    let at = raw.at.get();
    let entry = match raw.kind {
        UNDO if (1..=OLD_MAX).contains(&raw.old_len.into()) => Entry::Undo { at, len: raw.old_len, old: raw.bytes },
        DATA => Entry::Data { at, len: word(0), sum: word(8) },
        ZERO => Entry::Zero { at, len: word(0) },
        OLD => Entry::Old { at, len: word(0), sum: word(8) },
        OLD_ZEROS => Entry::OldZeros { at, len: word(0) },
        LINK => Entry::Link(Run { start: Lba(at), count: word(0) }),
        CHAIN => Entry::Chain { group: word(16), start: Lba(at), entries: word(8) as u32, sum: word(0) },
        COMMIT => Entry::Commit { entries: word(8) as u32, sum: word(0), redo: word(16) != 0, order: at },
        ROOT if word(8) <= u64::from(MAX_DEPTH) => {
            let tree = Tree { root: at, depth: word(8) as u8, blocks: word(0) };
            Entry::Root(InodeMap { tree, inodes: word(16), generation_floor: word(24) as u32 })
        }
        _ => return None,
    };
    Some(Read { entry, sequence: raw.sequence.get(), number: raw.number.get(), check: raw.check.get() })
}

/// Lines of a payload.
pub fn payload_lines(len: u64) -> u64 {
    len.div_ceil(LINE as u64)
}

/// Lines of so many blocks.
pub fn lines_of(blocks: u64) -> u64 {
    blocks * (BLOCK / LINE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_of_each_kind_is_detected() {
        let of = |id: u8, incarnation| LogSeed::of(Seed::of(&[id; 16]), incarnation);
        let seed = of(3, 7).lane(1);
        for entry in [
            Entry::Undo { at: 8200, len: 32, old: [9; OLD_MAX] },
            Entry::Data { at: 8200, len: 4000, sum: 77 },
            Entry::Zero { at: 1 << 50, len: 1 },
            Entry::Old { at: 8192, len: 100, sum: 78 },
            Entry::OldZeros { at: 1 << 49, len: 4096 },
            Entry::Link(Run { start: Lba(1 << 38), count: 9 }),
            Entry::Chain { group: 1 << 60, start: Lba(7), entries: 8, sum: 9 },
            Entry::Commit { entries: 6, sum: u64::MAX, redo: true, order: 5 },
            Entry::Root(InodeMap {
                tree: Tree { root: u64::MAX - 1, depth: 2, blocks: 77 },
                inodes: 160,
                generation_floor: 4,
            }),
        ] {
            let (line, check) = encode(seed, 4096, (5, 3), &entry);
            assert_eq!(decode(seed, 4096, &line), Some(Read { entry, sequence: 5, number: 3, check }));
            for bit in 0..LINE * 8 {
                let mut changed = line;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(seed, 4096, &changed), None, "{entry:?} bit {bit}");
            }
            assert_eq!(decode(seed, 4160, &line), None, "another place");
            assert_eq!(decode(of(3, 7).lane(0), 4096, &line), None, "another lane");
            assert_eq!(decode(of(3, 8).lane(1), 4096, &line), None, "another incarnation");
            assert_eq!(decode(of(4, 7).lane(1), 4096, &line), None, "another volume");
        }
        assert_eq!(decode(seed, 4096, &[0; LINE]), None);
    }

    #[test]
    fn halves_are_apart_and_inside_of_the_area() {
        let area = LogArea::for_volume(Lba(2), 1 << 18);
        let all = area.run();
        let mut next = all.start.0;
        for lane in 0..area.lanes {
            for sequence in [2, 1] {
                let half = area.half(lane, sequence);
                assert_eq!((half.start.0, half.count), (next, 10));
                next += half.count;
            }
        }
        assert_eq!((next, area.lanes), (all.start.0 + all.count, 16));
        assert_eq!(LogArea::for_volume(Lba(2), 128).run().count, 8);
    }
}
