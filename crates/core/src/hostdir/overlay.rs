//! What a running group wrote and has not published: a list while it is short, then [pieces](Pieces) that do not
//! overlap.

use crate::log::layout::{ENTRY, LINE};
use pieces::Pieces;

mod pieces;

/// Writes that a group keeps as a list.
const FEW: usize = 32;

/// Where the bytes of a private write are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory: number of the entry that was gathered, and a byte of its data.
    Gathered(usize, u32),
    /// Byte of the log, and which entry of its record has it, as far as that is known.
    Log(u64, u16),
    /// Byte of a shadow, as a [position](super#terms).
    Shadow(u64),
    /// Nowhere: they are zeros.
    Zeros,
}

impl Default for Place {
    fn default() -> Self {
        Place::Log(0, 0)
    }
}

impl Place {
    /// The place `bytes` further on.
    pub fn after(self, bytes: u64) -> Self {
        match self {
            Place::Gathered(entry, at) => Place::Gathered(entry, at + bytes as u32),
            Place::Log(position, entry) => Place::Log(position + bytes, entry),
            Place::Shadow(position) => Place::Shadow(position + bytes),
            Place::Zeros => Place::Zeros,
        }
    }
}

/// A run of bytes that a group wrote to one of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrivateWrite {
    /// Number of the file among the group's.
    pub file: u32,
    /// Number of bytes.
    pub length: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Where the first byte is.
    pub place: Place,
}

impl PrivateWrite {
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }

    /// What the log takes for it, with its entry.
    #[inline]
    fn logged(&self) -> u64 {
        u64::from(self.length).next_multiple_of(LINE) + ENTRY as u64
    }

    /// The part of it that lies in `from..to`, if there is any.
    fn cut(&self, from: u64, to: u64) -> Option<PrivateWrite> {
        let (start, end) = (self.offset.max(from), self.end().min(to));
        (start < end).then(|| PrivateWrite {
            file: self.file,
            length: (end - start) as u32,
            offset: start,
            place: self.place.after(start - self.offset),
        })
    }
}

/// The writes of one group. Later ones lie over earlier ones.
#[derive(Default)]
pub(crate) struct Overlay {
    /// The first `count` are in use. No vector: to push onto one puts the write together elsewhere and copies it, and
    /// that copy has to wait for the payload's stores.
    list: Box<[PrivateWrite; FEW]>,
    count: usize,
    /// See [`bytes`](Self::bytes): of the list.
    list_bytes: u64,
    /// In use once there were more than a few; the list is empty then.
    pieces: Pieces,
}

impl Overlay {
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.pieces.is_empty()
    }

    /// Number of writes.
    #[inline]
    pub fn len(&self) -> usize {
        self.count + self.pieces.len()
    }

    /// What the log takes for these writes, if each has an entry of its own.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.list_bytes + self.pieces.bytes()
    }

    #[inline]
    pub fn clear(&mut self) {
        (self.count, self.list_bytes) = (0, 0);
        if !self.pieces.is_empty() {
            self.pieces = Pieces::default();
        }
    }

    #[inline(always)]
    pub fn push(&mut self, write: PrivateWrite) {
        if self.pieces.is_empty()
            && let Some(place) = self.list.get_mut(self.count)
        {
            *place = write;
            self.count += 1;
            self.list_bytes += write.logged();
        } else {
            self.push_to_pieces(write);
        }
    }

    #[cold]
    fn push_to_pieces(&mut self, write: PrivateWrite) {
        self.sort();
        self.pieces.insert(write);
    }

    /// From now on the writes do not overlap, and are in order.
    pub fn sort(&mut self) {
        self.list_bytes = 0;
        for i in 0..std::mem::take(&mut self.count) {
            self.pieces.insert(self.list[i]);
        }
    }

    /// The last write that has bytes of this range; where they are in order, the one of them that begins last.
    #[inline]
    pub fn last_in(&self, file: u32, from: u64, to: u64) -> Option<PrivateWrite> {
        if self.pieces.is_empty() {
            let touches = |write: &&PrivateWrite| write.file == file && write.offset < to && from < write.end();
            return self.list[..self.count].iter().rev().find(touches).copied();
        }
        let last = self.pieces.last_before(file, to)?;
        (last.file == file && from < last.end()).then_some(*last)
    }

    /// The file is `length` bytes long from now on.
    pub fn cut(&mut self, file: u32, length: u64) {
        let mut kept = 0;
        for i in 0..self.count {
            let write = self.list[i];
            self.list_bytes -= write.logged();
            if let Some(write) = if write.file == file { write.cut(0, length) } else { Some(write) } {
                self.list_bytes += write.logged();
                self.list[kept] = write;
                kept += 1;
            }
        }
        self.count = kept;
        self.pieces.remove(file, length, u64::MAX);
    }

    /// Nothing that was written to `from..to` of a file counts from now on.
    pub fn clear_range(&mut self, file: u32, from: u64, to: u64) {
        let touched = |write: &PrivateWrite| write.file == file && write.offset < to && from < write.end();
        if self.list[..self.count].iter().any(touched) {
            self.sort();
        }
        self.pieces.remove(file, from, to);
    }

    /// Files have other numbers now, in the same order.
    pub fn renumber(&mut self, number: impl Fn(u32) -> u32) {
        self.list[..self.count].iter_mut().for_each(|write| write.file = number(write.file));
        self.pieces.change(|write| write.file = number(write.file));
    }

    /// The first byte at or behind `from` of a file that was written, and is no zero of a [hole](Place::Zeros).
    pub fn next_written(&self, file: u32, from: u64) -> Option<u64> {
        let mut written = self.in_range(file, from, u64::MAX).filter(|write| write.place != Place::Zeros);
        // Only pieces are in order.
        if self.count > 0 { written.map(|write| write.offset).min() } else { Some(written.next()?.offset) }
    }

    /// The writes to `from..to` of a file, cut to that range, in the order in which they lie over each other.
    pub fn in_range(&self, file: u32, from: u64, to: u64) -> impl Iterator<Item = PrivateWrite> {
        let all = self.list[..self.count].iter().chain(self.pieces.around(file, from, to));
        all.filter(move |write| write.file == file).filter_map(move |write| write.cut(from, to))
    }

    /// All writes, where they are few.
    #[inline]
    pub fn list(&self) -> Option<&[PrivateWrite]> {
        self.pieces.is_empty().then(|| &self.list[..self.count])
    }

    /// All writes, in the order in which they lie over each other.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &PrivateWrite> {
        self.list[..self.count].iter().chain(self.pieces.iter())
    }

    /// What was gathered is in the log now, entry by entry at these places.
    pub fn moved_to_log(&mut self, positions: &[u64]) {
        let moved = |write: &mut PrivateWrite| {
            if let Place::Gathered(entry, at) = write.place {
                write.place = Place::Log(positions[entry] + u64::from(at), 0);
            }
        };
        self.list[..self.count].iter_mut().for_each(moved);
        self.pieces.change(moved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against bytes painted one by one, few writes and many.
        #[test]
        fn as_if_painted(
            steps in proptest::collection::vec((0u32..2, 0u64..200, 0u32..60, any::<bool>()), 1..120),
            range in (0u64..260, 0u64..260),
        ) {
            let mut overlay = Overlay::default();
            let mut painted = [[None; 300]; 2];
            for (i, &(file, offset, length, cut)) in steps.iter().enumerate() {
                if cut && i % 4 == 0 {
                    overlay.cut(file, offset);
                    painted[file as usize][offset as usize..].fill(None);
                } else if length > 0 {
                    overlay.push(PrivateWrite { file, length, offset, place: Place::Log(i as u64 * 1000, 0) });
                    for byte in 0..u64::from(length) {
                        painted[file as usize][(offset + byte) as usize] = Some(i as u64 * 1000 + byte);
                    }
                }
            }
            let (from, to) = (range.0.min(range.1), range.0.max(range.1));
            for file in 0..2u32 {
                let mut seen = [None; 300];
                for write in overlay.in_range(file, from, to) {
                    let Place::Log(position, _) = write.place else { unreachable!() };
                    for byte in 0..u64::from(write.length) {
                        seen[(write.offset + byte) as usize] = Some(position + byte);
                    }
                }
                for byte in 0..300u64 {
                    let expected = if (from..to).contains(&byte) { painted[file as usize][byte as usize] } else { None };
                    prop_assert_eq!(seen[byte as usize], expected, "file {} byte {}", file, byte);
                }
            }
        }
    }
}
