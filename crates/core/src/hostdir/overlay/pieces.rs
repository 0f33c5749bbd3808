//! Many writes that do not overlap, in order: leaves of neighbours, and the places where these begin, in one run of
//! memory each. So a look for one of a hundred thousand touches few cache lines.

use super::PrivateWrite;

/// Writes in a leaf at most.
const LEAF: usize = 64;

/// Where a write begins: the file's number, and the byte.
type Start = (u32, u64);

fn start(write: &PrivateWrite) -> Start {
    (write.file, write.offset)
}

#[derive(Default)]
pub(super) struct Pieces {
    /// None is empty.
    leaves: Vec<Vec<PrivateWrite>>,
    /// Where the first write of each leaf begins.
    firsts: Vec<Start>,
    count: usize,
    bytes: u64,
}

impl Pieces {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// What the log takes for these writes, if each has an entry of its own.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The leaf, and the place in it, of the last write that begins before `at`; of the first write where none does.
    #[inline]
    fn before(&self, at: Start) -> (usize, usize) {
        let leaf = self.firsts.partition_point(|first| *first < at).saturating_sub(1);
        (leaf, self.count_before(leaf, at).saturating_sub(1))
    }

    /// How many writes of a leaf begin before `at`. Where all are of one length the first guess finds it.
    #[inline]
    fn count_before(&self, leaf: usize, at: Start) -> usize {
        let Some(writes) = self.leaves.get(leaf) else { return 0 };
        let is_before = |write: &PrivateWrite| start(write) < at;
        let (mut from, mut to) = (0, writes.len());
        let (first, next) = (self.firsts[leaf], self.firsts.get(leaf + 1));
        if let Some(next) = next.filter(|next| next.0 == at.0 && first.0 == at.0)
            && let Some(guess) = at.1.saturating_sub(first.1).checked_mul(to as u64)
        {
            let guess = ((guess / (next.1 - first.1)) as usize).min(to - 1);
            if is_before(&writes[guess]) {
                from = guess + 1;
                to = if writes.get(from).is_some_and(is_before) { to } else { from };
            } else {
                to = guess;
                from = if to > 0 && is_before(&writes[to - 1]) { to } else { from };
            }
        }
        from + writes[from..to].partition_point(is_before)
    }

    /// The last write that begins before byte `to` of a file, or that of an earlier file.
    #[inline]
    pub fn last_before(&self, file: u32, to: u64) -> Option<&PrivateWrite> {
        let (leaf, place) = self.before((file, to));
        self.leaves.get(leaf).map(|leaf| &leaf[place]).filter(|write| start(write) < (file, to))
    }

    /// Writes that may have bytes of `from..to` of a file: all that have some, and perhaps one more.
    #[inline]
    pub fn around(&self, file: u32, from: u64, to: u64) -> impl Iterator<Item = &PrivateWrite> {
        let (leaf, place) = self.before((file, from));
        let first = self.leaves.get(leaf).map_or(&[][..], |leaf| &leaf[place..]);
        let others = self.leaves.get(leaf + 1..).unwrap_or_default();
        first.iter().chain(others.iter().flatten()).take_while(move |write| start(write) < (file, to))
    }

    pub fn iter(&self) -> impl Iterator<Item = &PrivateWrite> {
        self.leaves.iter().flatten()
    }

    /// Changes each write, but neither its length nor the order of all.
    pub fn change(&mut self, change: impl FnMut(&mut PrivateWrite)) {
        self.leaves.iter_mut().flatten().for_each(change);
        self.firsts.iter_mut().zip(&self.leaves).for_each(|(first, leaf)| *first = start(&leaf[0]));
    }

    /// Adds a write, over all others.
    pub fn insert(&mut self, write: PrivateWrite) {
        self.remove(write.file, write.offset, write.end());
        self.put(write);
    }

    /// Adds a write where no other has any of its bytes.
    fn put(&mut self, write: PrivateWrite) {
        (self.count, self.bytes) = (self.count + 1, self.bytes + write.logged());
        let at = start(&write);
        let leaf = self.firsts.partition_point(|first| *first < at).saturating_sub(1);
        let place = self.count_before(leaf, at);
        let Some(writes) = self.leaves.get_mut(leaf) else { return self.put_leaf(0, &[write]) };
        if writes.len() == LEAF {
            // What is written in order fills its leaves.
            if place == LEAF {
                return self.put_leaf(leaf + 1, &[write]);
            }
            let rest = writes.split_off(LEAF / 2);
            self.put_leaf(leaf + 1, &rest);
        }
        let (leaf, place) = if place > self.leaves[leaf].len() { (leaf + 1, place - LEAF / 2) } else { (leaf, place) };
        self.leaves[leaf].insert(place, write);
        self.firsts[leaf] = start(&self.leaves[leaf][0]);
    }

    fn put_leaf(&mut self, leaf: usize, writes: &[PrivateWrite]) {
        let mut room = Vec::with_capacity(LEAF);
        room.extend_from_slice(writes);
        self.firsts.insert(leaf, start(&writes[0]));
        self.leaves.insert(leaf, room);
    }

    /// Takes a range of a file out.
    pub fn remove(&mut self, file: u32, from: u64, to: u64) {
        while let Some((leaf, place)) = self.first_in(file, from, to) {
            let write = self.leaves[leaf][place];
            let (left, right) = (write.cut(0, from), write.cut(to, u64::MAX));
            self.take(leaf, place);
            left.into_iter().chain(right).for_each(|rest| self.put(rest));
        }
    }

    /// The first write that has bytes of `from..to` of a file.
    fn first_in(&self, file: u32, from: u64, to: u64) -> Option<(usize, usize)> {
        let (leaf, place) = self.before((file, from));
        let next = if place + 1 < self.leaves.get(leaf)?.len() { (leaf, place + 1) } else { (leaf + 1, 0) };
        [(leaf, place), next].into_iter().find(|&(leaf, place)| {
            let write = self.leaves.get(leaf).map(|leaf| &leaf[place]);
            write.is_some_and(|write| write.file == file && write.offset < to && from < write.end())
        })
    }

    fn take(&mut self, leaf: usize, place: usize) {
        let writes = &mut self.leaves[leaf];
        let write = writes.remove(place);
        (self.count, self.bytes) = (self.count - 1, self.bytes - write.logged());
        match writes.first() {
            Some(first) => self.firsts[leaf] = start(first),
            None => {
                self.leaves.remove(leaf);
                self.firsts.remove(leaf);
            }
        }
    }
}
