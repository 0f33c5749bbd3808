//! What the journal has on the medium.
//!
//! ```text
//! 0, 1       header, in two slots: the one with the higher generation counts
//! 2 ..       an area for each queue, all of one length: a ring of blocks
//! ```
//!
//! Into the areas go descriptions and images, wherever there is room. Recovery looks at each block: a description is
//! known by its check, whose seed names the volume, the incarnation, and the block where it stands.

use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::{BLOCK, Lba, Run, Txid};

/// The most queues.
pub const MOST_QUEUES: u16 = 64;

/// The most entries of a description.
pub const MOST_ENTRIES: usize = 160;

/// The fewest blocks of an area.
pub const LEAST_AREA: u64 = 8;

const HEADER_MAGIC: [u8; 8] = *b"WhollyMQ";
const DESCRIPTION_MAGIC: [u8; 8] = *b"WhollyJH";
const VERSION: u32 = 1;

/// What checks of a volume in an incarnation are seeded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// Of headers: they count in each incarnation.
    pub fn of_headers(volume: [u8; 16]) -> Seed {
        Seed(XxHash3_64::oneshot(&volume))
    }

    /// Of what was written in an incarnation.
    pub fn new(volume: [u8; 16], incarnation: u64) -> Seed {
        Seed(XxHash3_64::oneshot_with_seed(incarnation, &volume))
    }

    fn sum(self, at: Lba, bytes: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.0 ^ at.0.wrapping_mul(0x9e37_79b9_7f4a_7c15), bytes)
    }

    /// The checksum of the content of a block at home.
    pub fn sum_of_block(self, home: Lba, bytes: &[u8; BLOCK]) -> u64 {
        self.sum(Lba(!home.0), bytes)
    }
}

/// What an area is, in blocks of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// All of the journal.
    pub log: Run,
    /// How many there are.
    pub queues: u16,
}

impl Areas {
    /// Blocks of each.
    pub fn len(self) -> u64 {
        self.log.count.saturating_sub(2) / u64::from(self.queues.max(1))
    }

    /// The block at a position of an area, which goes round.
    pub fn block(self, queue: u16, position: u64) -> Lba {
        Lba(self.log.start.0 + 2 + u64::from(queue) * self.len() + position % self.len())
    }

    /// The slot of a header.
    pub fn slot(self, generation: u64) -> Lba {
        Lba(self.log.start.0 + generation % 2)
    }

    /// All blocks of all areas.
    pub fn all(self) -> Run {
        Run { start: Lba(self.log.start.0 + 2), count: self.len() * u64::from(self.queues) }
    }
}

/// What the areas have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// What was begun since may or may not be there.
    Open,
    /// A recovery has decided what counts, and may not have brought all of it home.
    Decided,
    /// Nothing that is not at home.
    Empty,
}

/// How far a queue is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The first transaction that is not below the tail.
    pub first: u64,
    /// The last that is known to be on the medium; in [`State::Decided`], the last that counts.
    pub proven: u64,
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub generation: u64,
    pub incarnation: u64,
    /// The tail: all up to this sequence is at home, or superseded by what is at home.
    pub tail: u64,
    pub state: State,
    /// Whether blocks have checksums.
    pub has_checksums: bool,
    /// For each queue.
    pub marks: Vec<Mark>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawHeader {
    check: U64,
    magic: [u8; 8],
    version: U32,
    queues: U16,
    state: u8,
    has_checksums: u8,
    generation: U64,
    incarnation: U64,
    tail: U64,
    reserved: [u8; 16],
    marks: [[U64; 2]; MOST_QUEUES as usize],
    rest: [u8; BLOCK - 64 - 16 * MOST_QUEUES as usize],
}

const _: () = assert!(size_of::<RawHeader>() == BLOCK);

impl Header {
    /// As it stands in its slot.
    pub fn encode(&self, seed: Seed, at: Lba) -> [u8; BLOCK] {
        let mut marks = [[U64::new(0); 2]; MOST_QUEUES as usize];
        for (raw, mark) in marks.iter_mut().zip(&self.marks) {
            *raw = [mark.first.into(), mark.proven.into()];
        }
        let mut raw = RawHeader {
            check: 0.into(),
            magic: HEADER_MAGIC,
            version: VERSION.into(),
            queues: (self.marks.len() as u16).into(),
            state: match self.state {
                State::Open => 0,
                State::Decided => 1,
                State::Empty => 2,
            },
            has_checksums: self.has_checksums.into(),
            generation: self.generation.into(),
            incarnation: self.incarnation.into(),
            tail: self.tail.into(),
            reserved: [0; 16],
            marks,
            rest: [0; _],
        };
        raw.check = seed.sum(at, &raw.as_bytes()[8..]).into();
        zerocopy::transmute!(raw)
    }

    /// What stands in a slot; none if that is no header.
    ///
    /// # Errors
    /// A version that this one does not know.
    pub fn decode(seed: Seed, at: Lba, bytes: &[u8; BLOCK]) -> Result<Option<Header>, u32> {
        let raw = RawHeader::ref_from_bytes(bytes).expect("a block");
        if raw.magic != HEADER_MAGIC || raw.check.get() != seed.sum(at, &bytes[8..]) {
            return Ok(None);
        }
        let state = match raw.state {
            0 => State::Open,
            1 => State::Decided,
            _ => State::Empty,
        };
        if raw.version.get() != VERSION || raw.queues.get() == 0 || raw.queues.get() > MOST_QUEUES {
            return Err(raw.version.get());
        }
        let marks = raw.marks[..usize::from(raw.queues.get())].iter();
        Ok(Some(Header {
            generation: raw.generation.get(),
            incarnation: raw.incarnation.get(),
            tail: raw.tail.get(),
            state,
            has_checksums: raw.has_checksums != 0,
            marks: marks.map(|[first, proven]| Mark { first: first.get(), proven: proven.get() }).collect(),
        }))
    }
}

/// What a transaction does with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Its content stands in this block of the journal, and belongs home.
    Journaled { image: Lba, sum: u64 },
    /// Its content was written home. Older images of it do not count.
    Direct { sum: u64 },
    /// So many blocks from it on are free. Older images of them do not count: the paper's JR (5.4).
    Revoked { count: u64 },
}

/// An entry of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub home: Lba,
    pub what: What,
}

/// A description, the paper's JH: what a transaction, or a part of one, has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The place in the order; the number of the transaction for the device, too.
    pub tx: Txid,
    pub queue: u16,
    /// Its place in the queue, from 1 on without gaps.
    pub place: u64,
    /// Which part it is, of how many.
    pub part: (u16, u16),
    /// Of each queue, up to which place it is known to be on the medium.
    pub proven: Vec<u64>,
    /// Of other queues, up to which place this one depends on them.
    pub after: Vec<(u16, u64)>,
    pub entries: Vec<Entry>,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawDescription {
    check: U64,
    magic: [u8; 8],
    tx: U64,
    place: U64,
    queue: U16,
    queues: U16,
    part: U16,
    parts: U16,
    after: U16,
    entries: U16,
    reserved: U32,
}

const HEAD: usize = size_of::<RawDescription>();
const _: () = assert!(HEAD == 48);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawEntry {
    home: U64,
    place: U64,
    sum: U64,
}

/// Where the kind stands in the word with the home.
const KIND: u32 = 56;

/// How many entries fit into a description, of a journal with so many queues.
pub fn entries_of(queues: u16) -> usize {
    MOST_ENTRIES.min((BLOCK - HEAD - 16 * usize::from(queues)) / size_of::<RawEntry>())
}

impl Description {
    /// As it stands in a block.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn encode(&self, seed: Seed, at: Lba) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        let raw = RawDescription {
            check: 0.into(),
            magic: DESCRIPTION_MAGIC,
            tx: self.tx.0.into(),
            place: self.place.into(),
            queue: self.queue.into(),
            queues: (self.proven.len() as u16).into(),
            part: self.part.0.into(),
            parts: self.part.1.into(),
            after: (self.after.len() as u16).into(),
            entries: (self.entries.len() as u16).into(),
            reserved: 0.into(),
        };
        bytes[..HEAD].copy_from_slice(raw.as_bytes());
        let after = self.after.iter().map(|(queue, place)| u64::from(*queue) << 48 | place);
        let words = self.proven.iter().copied().chain(after);
        let mut at_byte = HEAD;
        let mut put = |word: u64| {
            bytes[at_byte..at_byte + 8].copy_from_slice(&word.to_le_bytes());
            at_byte += 8;
        };
        words.for_each(&mut put);
        for Entry { home, what } in &self.entries {
            let (kind, place, sum) = match what {
                What::Journaled { image, sum } => (0u64, image.0, *sum),
                What::Direct { sum } => (1, 0, *sum),
                What::Revoked { count } => (2, *count, 0),
            };
            [kind << KIND | home.0, place, sum].into_iter().for_each(&mut put);
        }
        let check = seed.sum(at, &bytes[8..]);
        bytes[..8].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// What stands in a block, if it is a description.
    pub fn decode(seed: Seed, at: Lba, bytes: &[u8; BLOCK]) -> Option<Description> {
        let (raw, rest) = RawDescription::ref_from_prefix(bytes).expect("a block");
        if raw.magic != DESCRIPTION_MAGIC || raw.check.get() != seed.sum(at, &bytes[8..]) {
            return None;
        }
        let (queues, after, entries) = (raw.queues.get().into(), raw.after.get().into(), raw.entries.get().into());
        let (words, rest) = <[U64]>::ref_from_prefix_with_elems(rest, queues).ok()?;
        let (afters, rest) = <[U64]>::ref_from_prefix_with_elems(rest, after).ok()?;
        let (entries, _) = <[RawEntry]>::ref_from_prefix_with_elems(rest, entries).ok()?;
        let entry = |raw: &RawEntry| {
            let home = Lba(raw.home.get() & ((1 << KIND) - 1));
            let what = match raw.home.get() >> KIND {
                0 => What::Journaled { image: Lba(raw.place.get()), sum: raw.sum.get() },
                1 => What::Direct { sum: raw.sum.get() },
                2 => What::Revoked { count: raw.place.get() },
                _ => return None,
            };
            Some(Entry { home, what })
        };
        Some(Description {
            tx: Txid(raw.tx.get()),
            queue: raw.queue.get(),
            place: raw.place.get(),
            part: (raw.part.get(), raw.parts.get()),
            proven: words.iter().map(|word| word.get()).collect(),
            after: afters.iter().map(|word| ((word.get() >> 48) as u16, word.get() & ((1 << 48) - 1))).collect(),
            entries: entries.iter().map(entry).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: [u8; 16] = *b"sixteen bytes ..";

    #[test]
    fn a_description_is_read_again_where_it_stands_only() {
        let description = Description {
            tx: Txid::new(3, 9),
            queue: 1,
            place: 4,
            part: (0, 2),
            proven: vec![3, 2, 1],
            after: vec![(0, 7), (2, 1 << 40)],
            entries: vec![
                Entry { home: Lba(5), what: What::Journaled { image: Lba(77), sum: 9 } },
                Entry { home: Lba(1 << 38), what: What::Direct { sum: 8 } },
                Entry { home: Lba(9), what: What::Revoked { count: 1 << 30 } },
            ],
        };
        let (seed, at) = (Seed::new(VOLUME, 3), Lba(70));
        let bytes = description.encode(seed, at);
        assert_eq!(Description::decode(seed, at, &bytes), Some(description));
        assert_eq!(Description::decode(seed, Lba(71), &bytes), None);
        assert_eq!(Description::decode(Seed::new(VOLUME, 4), at, &bytes), None);
        for bit in [0, 100, 400, 4000, 8 * BLOCK - 1] {
            let mut rotten = bytes;
            rotten[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Description::decode(seed, at, &rotten), None, "bit {bit}");
        }
    }

    #[test]
    fn a_header_is_read_again() {
        let marks = (0..3).map(|i| Mark { first: i, proven: 2 * i }).collect();
        let header =
            Header { generation: 5, incarnation: 3, tail: 9, state: State::Decided, has_checksums: true, marks };
        let seed = Seed::of_headers(VOLUME);
        let bytes = header.encode(seed, Lba(4));
        assert_eq!(Header::decode(seed, Lba(4), &bytes), Ok(Some(header)));
        assert_eq!(Header::decode(seed, Lba(5), &bytes), Ok(None));
    }

    #[test]
    fn full_descriptions_fit() {
        for queues in [1, 8, MOST_QUEUES] {
            let entries = vec![Entry { home: Lba(1), what: What::Direct { sum: 1 } }; entries_of(queues)];
            let (proven, after) = (vec![1; queues.into()], (0..queues).map(|queue| (queue, 1)).collect());
            let description = Description { tx: Txid(1), queue: 0, place: 1, part: (0, 1), proven, after, entries };
            let bytes = description.encode(Seed(1), Lba(1));
            assert_eq!(Description::decode(Seed(1), Lba(1), &bytes), Some(description));
        }
        assert_eq!((entries_of(8), entries_of(MOST_QUEUES)), (160, 126));
    }
}
