//! The bytes of the log on media: records of whole blocks in a ring.
//!
//! The area of the log begins with two *headers*, which are written in turn; the newest valid one says where the oldest
//! record stands that counts. The rest is the *ring*. A record is a *head*, with entries, and then images: whole blocks
//! as they are to be at home. It stands in consecutive blocks: one that does not fit before the end of the ring begins
//! at its first block. The record after one stands behind it, or at the first block.
//!
//! Headers and heads prove themselves: their checks cover all their other bytes, and are seeded with the volume, the
//! incarnation and the byte at which they stand ([`RingSeed`]). Images have their checksums in the head.

use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{BLOCK, Lba, Run};

/// Blocks of headers.
const HEADERS: u64 = 2;
/// Bytes of the head before its entries.
pub(super) const HEAD: usize = 64;
/// Bytes of an entry.
const ENTRY: usize = 32;
/// The fewest and the most blocks of an area.
const LEAST: u64 = 48;
const MOST: u64 = 8192;

/// A folded multiplication: each bit of the result depends on all bits of both arguments.
#[inline]
pub fn mix(one: u64, other: u64) -> u64 {
    let wide = u128::from(one ^ 0x9e37_79b9_7f4a_7c15) * u128::from(other ^ 0xd1b5_4a32_d192_ed03);
    wide as u64 ^ (wide >> 64) as u64
}

/// The seed of all checksums of a log in one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSeed(u64);

impl RingSeed {
    /// By a number that no other medium and no other incarnation has.
    pub fn new(number: u64) -> RingSeed {
        RingSeed(number)
    }

    /// The checksum of bytes that stand, or are to stand, at a byte of the medium.
    pub fn sum(self, at: u64, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(mix(self.0, at) ^ 2, bytes)
    }
}

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    start: Lba,
    /// Blocks for records.
    pub blocks: u64,
}

impl Ring {
    /// How many blocks the area of a new medium has: 1/64 of it, 32 MiB at most.
    pub fn area_of(blocks: u64) -> u64 {
        (blocks / 64).clamp(LEAST, MOST)
    }

    /// That of an area.
    pub fn of(area: Run) -> Ring {
        Ring { start: area.start, blocks: area.count.saturating_sub(HEADERS) }
    }

    /// The block of the header that is written in this turn.
    pub fn header(&self, turn: u64) -> Lba {
        Lba(self.start.0 + turn % HEADERS)
    }

    /// A block of the ring.
    pub fn block(&self, index: u64) -> Lba {
        Lba(self.start.0 + HEADERS + index)
    }

    /// Whether a record with so many images, and with what else it may say, fits into the ring.
    pub fn fits(&self, images: u64) -> bool {
        // A block is void only if some record in the ring has an image of it.
        images.saturating_add(head_blocks(images.saturating_add(self.blocks))) <= self.blocks
    }
}

/// Blocks of a head with so many entries.
pub fn head_blocks(entries: u64) -> u64 {
    entries.saturating_mul(ENTRY as u64).saturating_add(HEAD as u64).div_ceil(BLOCK as u64)
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHeader {
    check: U64,
    sequence: U64,
    at: U64,
    reserved: [u8; 40],
}
const _: () = assert!(size_of::<RawHeader>() == HEAD);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawHead {
    check: U64,
    sequence: U64,
    entries: U32,
    blocks: U32,
    reserved: [u8; 40],
}
const _: () = assert!(size_of::<RawHead>() == HEAD);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    block: U64,
    at: U64,
    sum: U64,
    count: U64,
}
const _: () = assert!(size_of::<RawEntry>() == ENTRY);

/// Which records count: from this one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Its sequence.
    pub sequence: u64,
    /// Its first block in the ring, unless it stands at the first of all.
    pub at: u64,
}

impl Tail {
    /// That of a log in which nothing was written over.
    pub const FIRST: Tail = Tail { sequence: 1, at: 0 };
}

/// A header as it stands in a block.
pub fn encode_header(seed: RingSeed, block: Lba, tail: Tail) -> [u8; BLOCK] {
    let mut raw = RawHeader { check: 0.into(), sequence: tail.sequence.into(), at: tail.at.into(), reserved: [0; 40] };
    raw.check = seed.sum(block.byte(), &raw.as_bytes()[8..]).max(1).into();
    let mut bytes = [0; BLOCK];
    bytes[..HEAD].copy_from_slice(raw.as_bytes());
    bytes
}

/// The header in a block, if there is one.
pub fn decode_header(seed: RingSeed, block: Lba, bytes: &[u8]) -> Option<Tail> {
    let (raw, _) = RawHeader::read_from_prefix(bytes).ok()?;
    let check = seed.sum(block.byte(), &raw.as_bytes()[8..]).max(1);
    (raw.check.get() == check).then_some(Tail { sequence: raw.sequence.get(), at: raw.at.get() })
}

/// What a record says of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A block is to have these bytes.
    Image {
        /// The block.
        home: Lba,
        /// The block with the bytes: of the record, or, for a record that is too large, of free space.
        at: Lba,
        /// Their checksum.
        sum: u64,
    },
    /// Images of earlier records do not count for these blocks.
    Void(Run),
}

/// The checksum of an image.
pub fn image_sum(seed: RingSeed, home: Lba, image: &[u8]) -> u64 {
    seed.sum(home.byte(), image)
}

/// What a head says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which record it is, from 1 in each incarnation.
    pub sequence: u64,
    /// Blocks of the ring that it has.
    pub blocks: u64,
    /// What it says.
    pub entries: Vec<Entry>,
}

/// Stores the head of a record that stands from a block on.
pub fn encode_head(seed: RingSeed, block: Lba, record: &Record, bytes: &mut [u8]) {
    let bytes = &mut bytes[..head_blocks(record.entries.len() as u64) as usize * BLOCK];
    bytes.fill(0);
    let raw = RawHead {
        check: 0.into(),
        sequence: record.sequence.into(),
        entries: (record.entries.len() as u32).into(),
        blocks: (record.blocks as u32).into(),
        reserved: [0; 40],
    };
    bytes[..HEAD].copy_from_slice(raw.as_bytes());
    for (entry, bytes) in record.entries.iter().zip(bytes[HEAD..].chunks_exact_mut(ENTRY)) {
        let (block, at, sum, count) = match *entry {
            Entry::Image { home, at, sum } => (home.0, at.0, sum, 1),
            Entry::Void(run) => (run.start.0, 0, 0, run.count),
        };
        let raw = RawEntry { block: block.into(), at: at.into(), sum: sum.into(), count: count.into() };
        bytes.copy_from_slice(raw.as_bytes());
    }
    let check = seed.sum(block.byte(), &bytes[8..]).max(1);
    bytes[..8].copy_from_slice(&check.to_le_bytes());
}

/// How many blocks the head has that begins like this, if one does.
pub fn head_len(ring: &Ring, bytes: &[u8]) -> Option<u64> {
    let (raw, _) = RawHead::read_from_prefix(bytes).ok()?;
    let len = head_blocks(raw.entries.get().into());
    (raw.sequence.get() != 0 && len <= ring.blocks).then_some(len)
}

/// The head that stands from a block on, given all of it.
pub fn decode_head(seed: RingSeed, block: Lba, bytes: &[u8]) -> Option<Record> {
    let (raw, rest) = RawHead::read_from_prefix(bytes).ok()?;
    if raw.check.get() != seed.sum(block.byte(), &bytes[8..]).max(1) {
        return None;
    }
    let of = |bytes: &[u8]| {
        let raw = RawEntry::read_from_bytes(bytes).ok()?;
        let block = Lba(raw.block.get());
        Some(match raw.at.get() {
            0 => Entry::Void(Run { start: block, count: raw.count.get() }),
            at => Entry::Image { home: block, at: Lba(at), sum: raw.sum.get() },
        })
    };
    let entries = rest.chunks_exact(ENTRY).take(raw.entries.get() as usize).map(of).collect::<Option<Vec<_>>>()?;
    Some(Record { sequence: raw.sequence.get(), blocks: raw.blocks.get().into(), entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flipped_bit_is_detected() {
        let of = RingSeed::new;
        let seed = of(7);
        let entries = vec![
            Entry::Image { home: Lba(900), at: Lba(30), sum: u64::MAX },
            Entry::Void(Run { start: Lba(1 << 37), count: 9 }),
        ];
        let record = Record { sequence: 5, blocks: 2, entries };
        let mut head = [0xff; BLOCK];
        encode_head(seed, Lba(29), &record, &mut head);
        assert_eq!(decode_head(seed, Lba(29), &head), Some(record));
        let header = encode_header(seed, Lba(2), Tail { sequence: 5, at: 27 });
        assert_eq!(decode_header(seed, Lba(2), &header), Some(Tail { sequence: 5, at: 27 }));
        assert_eq!((decode_head(seed, Lba(30), &head), decode_header(seed, Lba(3), &header)), (None, None), "place");
        assert_eq!((decode_head(of(8), Lba(29), &head), decode_header(of(8), Lba(2), &header)), (None, None));
        for bit in (0..160 * 8).chain((160 * 8..BLOCK * 8).step_by(97)) {
            let changed = |mut bytes: [u8; BLOCK]| {
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            };
            assert_eq!(decode_head(seed, Lba(29), &changed(head)), None, "bit {bit}");
            assert!(bit >= HEAD * 8 || decode_header(seed, Lba(2), &changed(header)).is_none(), "bit {bit}");
        }
        assert_eq!((decode_head(seed, Lba(29), &[0; BLOCK]), decode_header(seed, Lba(2), &[0; BLOCK])), (None, None));
    }

    #[test]
    fn rings_are_inside_of_their_areas() {
        for blocks in [128, 4096, 1 << 20, 1 << 30] {
            let run = Run { start: Lba(2), count: Ring::area_of(blocks) };
            let ring = Ring::of(run);
            assert!((LEAST..=MOST).contains(&run.count), "{blocks}");
            assert_eq!((ring.header(0), ring.header(1), ring.header(2)), (Lba(2), Lba(3), Lba(2)));
            assert_eq!(ring.block(ring.blocks).0, run.start.0 + run.count);
            assert!(ring.fits(ring.blocks * 3 / 4) && !ring.fits(ring.blocks));
        }
    }
}
