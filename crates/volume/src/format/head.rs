//! Heads: which lines of a block of content are elsewhere, in a *pending* block. For engines that log content that way.
//!
//! The *table of heads* has one line for each block of the volume, in the order of their numbers: the head of a pending
//! block stands in the line of that block. So a head takes no allocation, and as many blocks can be pending as are
//! free. The area is a run of blocks that the superblock names: 1/64 of the volume.
//!
//! A head proves itself by its check, over its other 56 bytes, the volume and the number of its block. The check also
//! says who has *signed* the head: the commit of its group, in an incarnation; or the mount that began it, which has
//! *kept* the head of a group of an earlier one. To keep a head, its check alone is stored: one word, so that a crash
//! leaves the one signature or the other. A head that counts no more is *wiped*: its check becomes 0.

use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use wholly_media::lines::{self, LineKeys, LineSums};

use super::log::LINE;
use super::superblock::LINES_BY_XXH3;
use super::{BLOCK, Lba, Run, Seed, mix};

/// Lines of a block.
pub const LINES: usize = BLOCK / LINE;
const _: () = assert!(LINES == u64::BITS as usize && LINES == lines::LINES && LINE == lines::LINE);

/// The table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadTable(pub Run);

impl HeadTable {
    /// That of a new volume.
    pub fn for_volume(start: Lba, blocks: u64) -> HeadTable {
        HeadTable(Run { start, count: blocks.div_ceil(LINES as u64) })
    }

    /// How many blocks have a line in it.
    pub fn blocks(&self) -> u64 {
        self.0.count * LINES as u64
    }

    /// The byte of the volume at which the head of a block stands.
    pub fn at(&self, pending: Lba) -> u64 {
        debug_assert!(pending.0 < self.blocks());
        self.0.start.byte() + pending.0 * LINE as u64
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHead {
    check: U64,
    sequence: U64,
    order: U64,
    /// The inode below bit 48, then the lane.
    ino_lane: U64,
    block: U64,
    home: U64,
    lines: U64,
    generation: U32,
    sum: U32,
}
const _: () = assert!(size_of::<RawHead>() == LINE);
const _: () = assert!(std::mem::offset_of!(RawHead, sum) == LINE - 4);

const LANE_SHIFT: u32 = 48;

/// What a head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingHead {
    /// The lane of the group.
    pub lane: u32,
    /// The group, by the lane's own count.
    pub sequence: u64,
    /// The place of the group in commit order.
    pub order: u64,
    /// The file, and its life.
    pub ino: u64,
    /// Which life.
    pub generation: u32,
    /// The block of the file, when the head was made.
    pub block: u64,
    /// Where the block is at home.
    pub home: Lba,
    /// Bit `i`: the pending block has line `i`.
    pub lines: u64,
    /// The low half of the checksum of these lines ([`LineSeed`]).
    pub sum: u32,
}

/// Who has signed a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// The commit of its group, in this incarnation.
    Here,
    /// The mount that began this incarnation.
    Kept,
    /// A mount that was about to begin the next one.
    Next,
}

/// The seed of heads in one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSeed {
    volume: u64,
    incarnation: u64,
}

impl HeadSeed {
    /// That of a volume while it is mounted for the `incarnation`th time.
    pub fn of(volume: Seed, incarnation: u64) -> HeadSeed {
        HeadSeed { volume: volume.0 ^ 0x4845_4144_5f4f_465f, incarnation }
    }

    /// What the check covers, but who has signed it.
    fn body(self, pending: Lba, raw: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(mix(self.volume, pending.0), &raw[8..LINE])
    }

    fn check(self, body: u64, signed: Signed) -> u64 {
        let signature = match signed {
            Signed::Here => 2 * self.incarnation,
            Signed::Kept => 2 * self.incarnation + 1,
            Signed::Next => 2 * self.incarnation + 3,
        };
        // 0 is never valid.
        mix(body, signature).max(1)
    }
}

/// The checksums of lines of pending blocks: the same in each incarnation.
pub struct LineSeed {
    volume: u64,
    /// None in versions 1 and 2: there it is the sum of XXH3 of each line.
    keys: Option<LineKeys>,
}

impl LineSeed {
    /// That of a volume, in a version of the format.
    pub fn of(volume: Seed, version: u32) -> LineSeed {
        let volume = HeadSeed::of(volume, 0).volume ^ 1;
        LineSeed { volume, keys: (version > LINES_BY_XXH3).then(|| LineKeys::of(volume)) }
    }

    /// Adds consecutive lines of a pending block, from one on.
    #[inline]
    pub fn add(&self, sums: &mut LineSums, pending: Lba, first: usize, bytes: &[u8]) {
        match &self.keys {
            Some(keys) => keys.add(sums, first, bytes),
            None => sums.0[0] = sums.0[0].wrapping_add(self.by_xxh3(pending, first, bytes)),
        }
    }

    /// Takes lines away, which are written over.
    pub fn take(&self, sums: &mut LineSums, pending: Lba, first: usize, bytes: &[u8]) {
        match &self.keys {
            Some(keys) => keys.take(sums, first, bytes),
            None => sums.0[0] = sums.0[0].wrapping_sub(self.by_xxh3(pending, first, bytes)),
        }
    }

    fn by_xxh3(&self, pending: Lba, first: usize, bytes: &[u8]) -> u64 {
        let place = pending.0 * LINES as u64 + first as u64;
        bytes.chunks_exact(LINE).zip(place..).fold(0, |sum, (line, place)| {
            sum.wrapping_add(XxHash3_64::oneshot_with_seed(mix(self.volume, place), line))
        })
    }

    /// The checksum of the lines that were added.
    #[inline]
    pub fn total(&self, sums: &LineSums, pending: Lba) -> u64 {
        self.keys.as_ref().map_or(sums.0[0], |keys| keys.total(sums, pending.0))
    }

    /// The checksum of some lines of a pending block, given all of it.
    pub fn of_block(&self, pending: Lba, lines: u64, bytes: &[u8; BLOCK]) -> u64 {
        let mut sums = LineSums::default();
        for (from, to) in runs(lines) {
            self.add(&mut sums, pending, from, &bytes[from * LINE..to * LINE]);
        }
        self.total(&sums, pending)
    }
}

/// The runs of bits that are set: from, to.
pub fn runs(mut lines: u64) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let from = (lines != 0).then(|| lines.trailing_zeros())?;
        let count = (lines >> from).trailing_ones();
        lines &= u64::MAX.checked_shl(from + count).unwrap_or(0);
        Some((from as usize, (from + count) as usize))
    })
}

/// A head as it stands on media, and its check.
pub fn encode(seed: HeadSeed, pending: Lba, head: &PendingHead) -> ([u8; LINE], u64) {
    let raw = RawHead {
        check: 0.into(),
        sequence: head.sequence.into(),
        order: head.order.into(),
        ino_lane: (head.ino | u64::from(head.lane) << LANE_SHIFT).into(),
        block: head.block.into(),
        home: head.home.0.into(),
        lines: head.lines.into(),
        generation: head.generation.into(),
        sum: head.sum.into(),
    };
    let mut line = [0; LINE];
    line.copy_from_slice(raw.as_bytes());
    let check = seed.check(seed.body(pending, &line), Signed::Here);
    line[..8].copy_from_slice(&check.to_le_bytes());
    (line, check)
}

/// A head as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// What it says.
    pub head: PendingHead,
    /// Who has signed it.
    pub signed: Signed,
    /// Its check as the commit of its group has signed it in this incarnation, if that was so.
    pub check: u64,
    /// The check that keeps it in the next one.
    pub kept: u64,
}

/// The head of a block, if it has one.
#[inline]
pub fn decode(seed: HeadSeed, pending: Lba, line: &[u8; LINE]) -> Option<Read> {
    let raw = RawHead::read_from_bytes(line).ok()?;
    let check = raw.check.get();
    if check == 0 {
        return None;
    }
    let body = seed.body(pending, line);
    let signed = [Signed::Here, Signed::Kept, Signed::Next].into_iter().find(|by| seed.check(body, *by) == check)?;
    let ino_lane = raw.ino_lane.get();
    let head = PendingHead {
        lane: (ino_lane >> LANE_SHIFT) as u32,
        sequence: raw.sequence.get(),
        order: raw.order.get(),
        ino: ino_lane & ((1 << LANE_SHIFT) - 1),
        generation: raw.generation.get(),
        block: raw.block.get(),
        home: Lba(raw.home.get()),
        lines: raw.lines.get(),
        sum: raw.sum.get(),
    };
    let of = |by| seed.check(body, by);
    (head.lines != 0).then_some(Read { head, signed, check: of(Signed::Here), kept: of(Signed::Next) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_is_detected() {
        let of = |id: u8, incarnation| HeadSeed::of(Seed::of(&[id; 16]), incarnation);
        let seed = of(3, 7);
        let head = PendingHead {
            lane: 15,
            sequence: 5,
            order: 1 << 40,
            ino: (1 << 48) - 1,
            generation: 9,
            block: 1 << 35,
            home: Lba(1 << 38),
            lines: 1 << 63 | 1,
            sum: u32::MAX,
        };
        let (line, check) = encode(seed, Lba(77), &head);
        let read = decode(seed, Lba(77), &line).expect("it is valid");
        assert_eq!((read.head, read.signed, read.check), (head, Signed::Here, check));
        let mut kept = line;
        kept[..8].copy_from_slice(&read.kept.to_le_bytes());
        for line in [line, kept] {
            for bit in 0..LINE * 8 {
                let mut changed = line;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(seed, Lba(77), &changed), None, "bit {bit}");
            }
            assert_eq!(decode(seed, Lba(78), &line), None, "another block's");
            assert_eq!(decode(of(4, 7), Lba(77), &line), None, "another volume");
        }
        // From when on, and until when.
        let signed = |line, incarnation| decode(of(3, incarnation), Lba(77), line).map(|read| (read.head, read.signed));
        assert_eq!([6, 7, 8].map(|i| signed(&line, i)), [None, Some((head, Signed::Here)), None]);
        let expected = [None, Some((head, Signed::Next)), Some((head, Signed::Kept)), None];
        assert_eq!([6, 7, 8, 9].map(|i| signed(&kept, i)), expected);
        assert_eq!(decode(seed, Lba(77), &kept).map(|read| (read.check, read.kept)), Some((check, read.kept)));
        assert_eq!(decode(seed, Lba(77), &[0; LINE]), None);
    }

    #[test]
    fn runs_have_each_bit_once() {
        for lines in [0, 1, u64::MAX, 1 << 63, 0xf0f0_0001_8000_0003] {
            let mut seen = 0;
            for (from, to) in runs(lines) {
                assert!(from < to && (from == 0 || lines >> (from - 1) & 1 == 0), "{lines:#x}: {from}..{to}");
                (from..to).for_each(|bit| seen |= 1 << bit);
            }
            assert_eq!(seen, lines);
        }
    }

    #[test]
    fn checksums_of_lines_add_up() {
        for version in [LINES_BY_XXH3, LINES_BY_XXH3 + 1] {
            let seed = LineSeed::of(Seed::of(&[3; 16]), version);
            let bytes: [u8; BLOCK] = std::array::from_fn(|i| (i / 7) as u8);
            let (one, other) = (0xf0 << 8, 1 << 63 | 3);
            let of = |lines: u64| seed.of_block(Lba(9), lines, &bytes);
            let mut sums = LineSums::default();
            for (from, to) in runs(other).chain(runs(one | 0xf0)) {
                seed.add(&mut sums, Lba(9), from, &bytes[from * LINE..to * LINE]);
            }
            seed.take(&mut sums, Lba(9), 4, &bytes[4 * LINE..8 * LINE]);
            assert_eq!(seed.total(&sums, Lba(9)), of(one | other));
            let mut changed = bytes;
            changed[63 * LINE] ^= 1;
            assert_ne!(seed.of_block(Lba(9), other, &changed), of(other));
            assert_eq!(seed.of_block(Lba(9), 3, &changed), of(3), "another line's");
            assert_ne!(seed.of_block(Lba(8), 3, &bytes), of(3), "another block");
            let mut moved = bytes;
            moved.copy_within(..LINE, LINE);
            moved[..LINE].copy_from_slice(&bytes[LINE..2 * LINE]);
            assert_ne!(seed.of_block(Lba(9), 3, &moved), of(3), "in another order");
        }
    }

    #[test]
    fn each_block_has_a_line_of_its_own() {
        let table = HeadTable::for_volume(Lba(10), 130);
        assert_eq!((table.0.count, table.blocks()), (3, 192));
        assert_eq!([0, 1, 129].map(|block| table.at(Lba(block))), [40_960, 41_024, 49_216]);
    }
}
