//! What recovery looked at: a bit for each word, and a hash of what it saw.

use super::hash::{Hashed, Place, bytes, term};
use super::state::{Obj, ObjId};
use std::collections::HashSet;
use std::ops::Range;

/// The words and names that were read, each once, and a hash of what was seen there first.
///
/// Two images from which a deterministic recovery reads the same set with the same contents are one state to it.
#[derive(Clone, Default, Debug)]
pub struct ReadSet {
    /// By object.
    words: Vec<Vec<u64>>,
    other: HashSet<u64, Hashed>,
    hash: u64,
}

impl ReadSet {
    /// The hash of every place that was read and what was first seen there.
    pub fn fingerprint(&self) -> u64 {
        self.hash
    }

    /// The number of 8-byte words that were read.
    pub fn words(&self) -> u64 {
        self.words.iter().flatten().map(|bits| u64::from(bits.count_ones())).sum()
    }

    /// Whether any word of a range was read.
    pub(super) fn contains(&self, id: ObjId, offset: u64, len: u64) -> bool {
        let Some(bits) = self.words.get(id as usize) else { return false };
        len > 0
            && (offset / 8..=(offset + len - 1) / 8)
                .any(|w| bits.get(w as usize / 64).is_some_and(|b| b >> (w % 64) & 1 == 1))
    }

    /// Ranges of whole words that were read, by object.
    pub(super) fn ranges(&self) -> Vec<(ObjId, Range<u64>)> {
        let mut ranges: Vec<(ObjId, Range<u64>)> = Vec::new();
        for (id, bits) in (0..).zip(&self.words) {
            let words = (0..)
                .zip(bits)
                .flat_map(|(i, bits)| (0..64).filter(move |n| bits >> n & 1 == 1).map(move |n| i * 64 + n));
            for word in words {
                match ranges.last_mut() {
                    Some((last, range)) if *last == id && range.end == word * 8 => range.end += 8,
                    _ => ranges.push((id, word * 8..word * 8 + 8)),
                }
            }
        }
        ranges
    }

    pub(super) fn range(&mut self, id: ObjId, obj: &Obj, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (first, last) = (offset / 8, (offset + len - 1) / 8);
        if self.words.len() <= id as usize {
            self.words.resize(id as usize + 1, Vec::new());
        }
        let bits = &mut self.words[id as usize];
        if bits.len() <= last as usize / 64 {
            bits.resize(last as usize / 64 + 1, 0);
        }
        for group in first / 64..=last / 64 {
            let low = first.saturating_sub(group * 64).min(63);
            let high = (last - group * 64).min(63);
            let wanted = (!0u64 << low) & (!0u64 >> (63 - high));
            let mut new = wanted & !bits[group as usize];
            bits[group as usize] |= wanted;
            while new != 0 {
                let word = group * 64 + u64::from(new.trailing_zeros());
                self.hash = self.hash.wrapping_add(term(Place::word(id, word), obj.word(word)));
                new &= new - 1;
            }
        }
    }

    /// Something else was asked and answered: a name, a length, a stat.
    pub(super) fn answer(&mut self, question: u64, answer: u64) {
        if self.other.insert(question) {
            // A question with the answer zero must count too.
            self.hash = self.hash.wrapping_add(term(Place(question), answer | 1 << 63));
        }
    }
}

/// A question about `path`, told apart by `kind`.
pub(super) fn question(kind: u64, path: &[u8]) -> u64 {
    bytes(path).wrapping_mul(8).wrapping_add(kind)
}
