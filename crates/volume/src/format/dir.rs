//! Directories: leaves of 64 slots, found by the hash of a name.
//!
//! The leaves of a directory are a binary trie over the hash of names: leaf number `1` covers all hashes; one that gets
//! full is replaced by `2n` and `2n + 1`, which cover one half each. The number of a leaf is its block in the
//! directory's map, so the map is the index; inner numbers of the trie are holes. A directory without leaves is empty.
//!
//! An entry is 24 bytes and a name, in 1 to 5 slots of 64 bytes. Its *live word* is written last and cleared first: it
//! alone decides whether the entry is there. The first word of all other slots is 0, so a leaf is read slot by slot.
//!
//! The *key* of an entry is unique in its directory: 55 bits of hash, and 7 bits that tell names of one hash apart.
//! Listings are in the order of keys, so an offset in a listing means the same whatever is made or removed.

use super::{BLOCK, Fault, Seed};
use twox_hash::XxHash3_64;

/// Bytes of a slot.
pub const SLOT: usize = 64;
/// Slots of a leaf.
pub const SLOTS: usize = BLOCK / SLOT;
/// Bits of the hash of a name.
pub const HASH_BITS: u32 = 55;
/// Bits that tell names of one hash apart.
pub const TWIN_BITS: u32 = 7;
/// The longest name.
pub const NAME_MAX: usize = 255;
/// The deepest leaf: its number is a block of the deepest map.
pub const MAX_TRIE_DEPTH: u32 = 35;

const HEAD: usize = 24;
/// Bytes of the name in the first slot, and in each other one (whose first word stays 0).
const IN_FIRST: usize = SLOT - HEAD;
const IN_OTHERS: usize = SLOT - 8;
/// Bytes of the longest entry.
pub const LARGEST: usize = 5 * SLOT;
const _: () = assert!(IN_FIRST + 4 * IN_OTHERS >= NAME_MAX && IN_FIRST + 3 * IN_OTHERS < NAME_MAX);

const INO_BITS: u32 = 48;

/// The hash of a name, in [`HASH_BITS`].
pub fn hash(seed: Seed, name: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed.0, name) >> (64 - HASH_BITS)
}

/// The number of the leaf of `depth` that covers a hash.
pub fn leaf_number(depth: u32, hash: u64) -> u64 {
    1 << depth | hash >> (HASH_BITS - depth)
}

/// The depth of the leaf with this number.
pub fn leaf_depth(number: u64) -> u32 {
    number.ilog2()
}

/// The keys that a leaf covers: from the first, below the second.
pub fn leaf_keys(number: u64) -> (u64, u64) {
    let depth = leaf_depth(number);
    let prefix = number ^ 1 << depth;
    let shift = HASH_BITS - depth + TWIN_BITS;
    (prefix << shift, (prefix + 1) << shift)
}

/// Slots that an entry with a name of this length takes.
pub fn slots_for(name_len: usize) -> usize {
    1 + name_len.saturating_sub(IN_FIRST).div_ceil(IN_OTHERS)
}

/// An entry, but for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The inode.
    pub ino: u64,
    /// Its type: the bits 12 to 15 of a mode.
    pub kind: u8,
    /// Bytes of the name.
    pub name_len: u8,
    /// The key.
    pub key: u64,
}

impl Head {
    fn live(self) -> u64 {
        self.ino | u64::from(self.kind) << INO_BITS | u64::from(self.name_len) << (INO_BITS + 4)
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn head_sum(seed: u64, live: u64, key: u64) -> u32 {
    (super::mix(super::mix(seed, live), key) >> 32) as u32
}

fn name_sum(seed: u64, key: u64, name: &[u8]) -> u32 {
    XxHash3_64::oneshot_with_seed(seed ^ key, name) as u32
}

/// An entry as it stands on media: its live word, and its slots with a live word of 0. `seed` is that of the
/// directory's [stream](super::Seed::stream).
pub fn encode(seed: u64, head: Head, name: &[u8]) -> (u64, [u8; LARGEST]) {
    let mut raw = [0; LARGEST];
    let live = head.live();
    raw[8..16].copy_from_slice(&head.key.to_le_bytes());
    raw[16..20].copy_from_slice(&head_sum(seed, live, head.key).to_le_bytes());
    raw[20..24].copy_from_slice(&name_sum(seed, head.key, name).to_le_bytes());
    let (first, rest) = name.split_at(name.len().min(IN_FIRST));
    raw[HEAD..HEAD + first.len()].copy_from_slice(first);
    for (i, part) in rest.chunks(IN_OTHERS).enumerate() {
        let at = (i + 1) * SLOT + 8;
        raw[at..at + part.len()].copy_from_slice(part);
    }
    (live, raw)
}

/// One entry of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// It.
    pub head: Head,
    /// Its first slot.
    pub slot: usize,
}

/// A leaf in memory.
pub struct Leaf<'b> {
    bytes: &'b [u8],
    seed: u64,
    /// The slot that the bytes begin with.
    first: usize,
}

impl<'b> Leaf<'b> {
    /// A leaf of the directory whose stream has this seed. Nothing is proven yet.
    pub fn new(seed: u64, bytes: &'b [u8; BLOCK]) -> Self {
        Leaf { bytes, seed, first: 0 }
    }

    /// The slots from `first` on, as many as there are bytes for.
    pub fn part(seed: u64, bytes: &'b [u8], first: usize) -> Self {
        Leaf { bytes, seed, first }
    }

    /// The entry at a slot; `None` where there is none.
    ///
    /// # Errors
    /// If it does not belong there.
    #[inline]
    pub fn at(&self, slot: usize) -> Result<Option<Found>, Fault> {
        let at = (slot - self.first) * SLOT;
        let live = word(self.bytes, at);
        if live == 0 {
            return Ok(None);
        }
        let head = Head {
            ino: live & ((1 << INO_BITS) - 1),
            kind: (live >> INO_BITS & 15) as u8,
            name_len: (live >> (INO_BITS + 4)) as u8,
            key: word(self.bytes, at + 8),
        };
        let sum = word(self.bytes, at + 16) as u32;
        if head_sum(self.seed, live, head.key) != sum {
            return Err(Fault("a directory entry has a wrong check"));
        }
        if live != head.live() || head.name_len == 0 || slot + slots_for(head.name_len.into()) > SLOTS {
            return Err(Fault("a directory entry makes no sense"));
        }
        Ok(Some(Found { head, slot }))
    }

    /// Calls `each` with all entries, by slot, until it returns `false`.
    ///
    /// # Errors
    /// If one does not belong there.
    #[inline]
    pub fn scan(&self, mut each: impl FnMut(Found) -> bool) -> Result<(), Fault> {
        let mut slot = 0;
        while slot < SLOTS {
            match self.at(slot)? {
                None => slot += 1,
                Some(found) => {
                    if !each(found) {
                        break;
                    }
                    slot += slots_for(found.head.name_len.into());
                }
            }
        }
        Ok(())
    }

    /// Copies a name, and returns its bytes.
    pub fn name<'n>(&self, found: Found, buf: &'n mut [u8; NAME_MAX]) -> &'n [u8] {
        let len = usize::from(found.head.name_len);
        let slot = found.slot - self.first;
        let at = slot * SLOT + HEAD;
        let first = len.min(IN_FIRST);
        buf[..first].copy_from_slice(&self.bytes[at..at + first]);
        let mut done = first;
        for i in 1..slots_for(len) {
            let (at, part) = ((slot + i) * SLOT + 8, (len - done).min(IN_OTHERS));
            buf[done..done + part].copy_from_slice(&self.bytes[at..at + part]);
            done += part;
        }
        &buf[..len]
    }

    /// Checks a name that was copied.
    ///
    /// # Errors
    /// If its bytes are not those that were written.
    pub fn check_name(&self, found: Found, name: &[u8]) -> Result<(), Fault> {
        let sum = (word(self.bytes, (found.slot - self.first) * SLOT + 16) >> 32) as u32;
        if sum == name_sum(self.seed, found.head.key, name) { Ok(()) } else { Err(Fault("a name has a wrong check")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u64 = 0xabcd;

    impl Leaf<'_> {
        /// The first of `count` free slots in a row.
        fn room(&self, count: usize) -> Result<Option<usize>, Fault> {
            let (mut slot, mut free) = (0, 0);
            while slot < SLOTS {
                match self.at(slot)? {
                    None => {
                        (slot, free) = (slot + 1, free + 1);
                        if free == count {
                            return Ok(Some(slot - count));
                        }
                    }
                    Some(found) => (slot, free) = (slot + slots_for(found.head.name_len.into()), 0),
                }
            }
            Ok(None)
        }
    }

    fn put(leaf: &mut [u8; BLOCK], head: Head, name: &[u8]) -> usize {
        let slots = slots_for(name.len());
        let slot = Leaf::new(DIR, leaf).room(slots).unwrap().expect("room");
        let (live, mut raw) = encode(DIR, head, name);
        raw[..8].copy_from_slice(&live.to_le_bytes());
        leaf[slot * SLOT..(slot + slots) * SLOT].copy_from_slice(&raw[..slots * SLOT]);
        slot
    }

    fn head(ino: u64, name: &[u8]) -> Head {
        Head { ino, kind: 8, name_len: name.len() as u8, key: hash(Seed::of(&[1; 16]), name) << TWIN_BITS }
    }

    #[test]
    fn entries_of_all_lengths() {
        for len in [1, 39, 40, 41, 96, 97, 152, 208, 255] {
            let mut leaf = [0; BLOCK];
            let name = vec![b'n'; len];
            for ino in 20..20 + (SLOTS / slots_for(len)) as u64 {
                put(&mut leaf, head(ino, &name), &name);
            }
            let read = Leaf::new(DIR, &leaf);
            assert_eq!(read.room(slots_for(len)), Ok(None));
            let mut count = 0;
            read.scan(|found| {
                let mut buf = [0; NAME_MAX];
                assert_eq!(read.name(found, &mut buf), name);
                read.check_name(found, &name).expect("it is what was written");
                count += 1;
                true
            })
            .expect("sound");
            assert_eq!(count, SLOTS / slots_for(len));
        }
    }

    /// Each bit of a leaf with two entries: it is detected, or nothing changes.
    #[test]
    fn each_flipped_bit_is_detected_or_has_no_effect() {
        let mut leaf = [0; BLOCK];
        let (short, long) = (b"short".to_vec(), vec![b'x'; 100]);
        put(&mut leaf, head(20, &short), &short);
        put(&mut leaf, head(21, &long), &long);
        let all = |leaf: &[u8; BLOCK]| {
            let read = Leaf::new(DIR, leaf);
            let mut all = Vec::new();
            let mut fault = Ok(());
            read.scan(|found| {
                let mut buf = [0; NAME_MAX];
                let name = read.name(found, &mut buf).to_vec();
                fault = fault.and(read.check_name(found, &name));
                all.push((found.head, name));
                true
            })?;
            fault.map(|()| all)
        };
        let before = all(&leaf).expect("sound");
        for bit in 0..BLOCK * 8 {
            let mut changed = leaf;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(all(&changed).is_err() || all(&changed).as_ref() == Ok(&before), "bit {bit}");
        }
        assert!(all(&leaf).is_ok() && Leaf::new(DIR + 1, &leaf).at(0).is_err(), "another directory's");
    }

    #[test]
    fn leaves_cover_all_keys() {
        assert_eq!(leaf_keys(1), (0, 1 << (HASH_BITS + TWIN_BITS)));
        assert_eq!(leaf_keys(2).1, leaf_keys(3).0);
        let hash = (1 << HASH_BITS) - 1;
        assert_eq!((leaf_number(0, hash), leaf_number(3, hash), leaf_depth(15)), (1, 15, 3));
    }
}
