//! Which units, blocks or inodes, are free: one bit each, in zones with a lock each. Volatile: a mount rebuilds it.
//!
//! A zone is as large as a bitmap block, and threads begin to look in different ones: so they change different blocks.

use std::ops::Range;

use crossbeam_utils::CachePadded;
use sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, OnceLock, Ordering, thread_token};

use crate::format::bitmap::{UNITS, WORDS};

/// Units of a zone.
const ZONE: u64 = UNITS;
/// Saved bits are padded to a multiple of so many.
const SAVED: u64 = 1 << 15;
/// Places from which threads begin to look.
const HINTS: usize = 64;
/// A thread has not looked yet.
const UNKNOWN: usize = usize::MAX;

struct Zone {
    /// 1 is used, or does not exist.
    bits: Box<[u64; WORDS]>,
    free: u64,
    /// Below are no free bits, mostly.
    hint: usize,
}

impl Zone {
    fn all_used() -> Zone {
        Zone { bits: Box::new([u64::MAX; WORDS]), free: 0, hint: 0 }
    }

    /// Up to `want` free bits in a row, which are used from now on. There is a free bit.
    fn take(&mut self, want: u64) -> (u64, u64) {
        let word = (self.hint..WORDS).chain(0..self.hint).find(|&word| self.bits[word] != u64::MAX);
        let word = word.expect("a zone counts its free bits");
        let first = (!self.bits[word]).trailing_zeros() as usize + word * 64;
        let mut count = 0;
        while count < want && first + (count as usize) < ZONE as usize {
            let at = first + count as usize;
            // A whole word at once, where it is free.
            if at.is_multiple_of(64) && want - count >= 64 && self.bits[at / 64] == 0 {
                self.bits[at / 64] = u64::MAX;
                count += 64;
            } else if self.bits[at / 64] >> (at % 64) & 1 == 0 {
                self.bits[at / 64] |= 1 << (at % 64);
                count += 1;
            } else {
                break;
            }
        }
        self.free -= count;
        self.hint = (first + count as usize) / 64 % WORDS;
        (first as u64, count)
    }

    fn set(&mut self, bit: usize, used: bool) -> bool {
        let (word, mask) = (&mut self.bits[bit / 64], 1 << (bit % 64));
        let was = *word & mask != 0;
        if used {
            *word |= mask
        } else {
            *word &= !mask
        }
        self.free = self.free + u64::from(was && !used) - u64::from(!was && used);
        was
    }
}

/// All zones, found without a lock. Row r has room for twice as many as the one before it.
struct Zones([OnceLock<Row>; 32]);

type Row = Box<[OnceLock<CachePadded<Mutex<Zone>>>]>;

impl Zones {
    /// The row of a zone, and its place there.
    fn place(index: usize) -> (usize, usize) {
        let row = (index + 1).ilog2();
        (row as usize, index + 1 - (1 << row))
    }

    fn get(&self, index: usize) -> &Mutex<Zone> {
        let (row, place) = Self::place(index);
        let zone = self.0[row].get().and_then(|row| row[place].get());
        zone.expect("zones are made before they are counted")
    }

    fn make(&self, index: usize) {
        let (row, place) = Self::place(index);
        let row = self.0[row].get_or_init(|| (0..1 << row).map(|_| OnceLock::new()).collect());
        row[place].get_or_init(|| CachePadded::new(Mutex::new(Zone::all_used())));
    }
}

/// See the module.
pub struct Space {
    zones: Zones,
    units: AtomicU64,
    /// Free, and not reserved.
    free: CachePadded<AtomicU64>,
    /// The zones from which threads begin to look, and how many have begun.
    hints: [CachePadded<AtomicUsize>; HINTS],
    threads: AtomicUsize,
    contradicted: AtomicBool,
}

impl Space {
    /// `units` units, all used.
    pub fn all_used(units: u64) -> Space {
        let space = Space {
            zones: Zones(std::array::from_fn(|_| OnceLock::new())),
            units: AtomicU64::new(0),
            free: CachePadded::default(),
            hints: std::array::from_fn(|_| CachePadded::new(AtomicUsize::new(UNKNOWN))),
            threads: AtomicUsize::new(0),
            contradicted: AtomicBool::new(false),
        };
        space.grow(units);
        space
    }

    /// More units, which are used.
    pub fn grow(&self, units: u64) {
        (self.zones()..units.div_ceil(ZONE) as usize).for_each(|index| self.zones.make(index));
        self.units.fetch_max(units, Ordering::Release);
    }

    fn zones(&self) -> usize {
        self.units().div_ceil(ZONE) as usize
    }

    /// The zone of a unit, and its bit there.
    fn zone_of(&self, unit: u64) -> (MutexGuard<'_, Zone>, usize) {
        (self.zones.get((unit / ZONE) as usize).lock().unwrap(), (unit % ZONE) as usize)
    }

    fn each_zone(&self, mut each: impl FnMut(MutexGuard<'_, Zone>)) {
        (0..self.zones()).for_each(|index| each(self.zones.get(index).lock().unwrap()));
    }

    /// How many units there are.
    pub fn units(&self) -> u64 {
        self.units.load(Ordering::Acquire)
    }

    /// How many are free and not reserved.
    pub fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Sets units aside, if `keep` others stay free.
    pub fn reserve(&self, count: u64, keep: u64) -> bool {
        // A locked instruction waits for stores that are on their way to persistent memory.
        if count == 0 {
            return true;
        }
        let enough = |free: u64| free.checked_sub(count).filter(|left| *left >= keep);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).is_ok()
    }

    /// Gives a part of a reservation back.
    pub fn unreserve(&self, count: u64) {
        if count > 0 {
            self.free.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Up to `want` units in a row, of those that the caller has reserved.
    ///
    /// # Panics
    /// If none is free: the caller has not reserved it.
    pub fn take(&self, want: u64) -> (u64, u64) {
        let hint = &self.hints[thread_token() as usize % HINTS];
        let begin = match hint.load(Ordering::Relaxed) {
            UNKNOWN => self.threads.fetch_add(1, Ordering::Relaxed) % self.zones(),
            begin => begin,
        };
        let (first, count) = self.take_from(begin as u64, want);
        let zone = (first / ZONE) as usize;
        if zone != hint.load(Ordering::Relaxed) {
            hint.store(zone, Ordering::Relaxed);
        }
        (first, count)
    }

    /// The same, from a zone on.
    pub fn take_from(&self, begin: u64, want: u64) -> (u64, u64) {
        let zones = self.zones();
        // Another thread may give a unit back in a zone that was passed, and take one in a zone that was not: once
        // more.
        for round in 0..1000 * zones {
            let index = (begin as usize + round) % zones;
            let mut zone = self.zones.get(index).lock().unwrap();
            if zone.free > 0 {
                let (first, count) = zone.take(want);
                return (index as u64 * ZONE + first, count);
            }
        }
        panic!("a unit was reserved, and none is free");
    }

    /// How many units of a zone are free, reserved ones among them.
    pub fn free_in(&self, zone: u64) -> u64 {
        if zone < self.zones() as u64 { self.zones.get(zone as usize).lock().unwrap().free } else { 0 }
    }

    /// Takes the first free units in a row of a range, `want` at most. The caller has reserved as many.
    pub fn take_within(&self, range: Range<u64>, want: u64) -> Option<(u64, u64)> {
        let end = range.end.min(self.units());
        let first = (range.start..end).find(|unit| !self.is_used(*unit))?;
        let count = (first..end.min(first + want)).take_while(|unit| !self.set(*unit, true)).count();
        Some((first, count as u64))
    }

    /// Takes these units, of those that the caller has reserved, if all of them are free. They are in one zone.
    pub fn take_all(&self, first: u64, count: u64) -> bool {
        let (mut zone, bit) = self.zone_of(first);
        let bits = bit..bit + count as usize;
        let is_free = bits.clone().all(|bit| zone.bits[bit / 64] >> (bit % 64) & 1 == 0);
        if is_free {
            bits.for_each(|bit| _ = zone.set(bit, true));
        }
        is_free
    }

    /// Whether a unit is used.
    pub fn is_used(&self, unit: u64) -> bool {
        let (zone, bit) = self.zone_of(unit);
        zone.bits[bit / 64] >> (bit % 64) & 1 != 0
    }

    /// Calls `each` with the bits of 64 units at a time, in order, and the number of the word.
    pub fn each_word(&self, mut each: impl FnMut(u64, u64)) {
        for index in 0..self.zones() {
            let bits = self.zones.get(index).lock().unwrap().bits.clone();
            bits.iter().zip((index * WORDS) as u64..).for_each(|(word, number)| each(number, *word));
        }
    }

    /// Takes the free units from `first` to before `end`, which nobody has reserved, and tells `each` which runs these
    /// are.
    pub fn withhold(&self, first: u64, end: u64, each: &mut dyn FnMut(u64, u64)) {
        let mut run = (first, 0);
        let mut unit = first;
        while unit < end {
            let (mut zone, _) = self.zone_of(unit);
            let end = end.min((unit / ZONE + 1) * ZONE);
            while unit < end {
                let bit = (unit % ZONE) as usize;
                // A whole word at once, where it is used or free.
                let step = match zone.bits[bit / 64] {
                    word @ (0 | u64::MAX) if bit.is_multiple_of(64) && end - unit >= 64 => (64, word == 0),
                    word => (1, word >> (bit % 64) & 1 == 0),
                };
                match step {
                    (64, true) => {
                        zone.bits[bit / 64] = u64::MAX;
                        zone.free -= 64;
                    }
                    (_, true) => _ = zone.set(bit, true),
                    _ => {}
                }
                if step.1 {
                    run.1 += step.0;
                } else {
                    if run.1 > 0 {
                        each(run.0, run.1);
                    }
                    run = (unit + step.0, 0);
                }
                unit += step.0;
            }
        }
        if run.1 > 0 {
            each(run.0, run.1);
        }
        self.count();
    }

    /// Makes units free. One that is free, or does not exist, is a contradiction: on a damaged medium two things may
    /// have it.
    pub fn give(&self, first: u64, count: u64) {
        let mut given = 0;
        for unit in first..first.saturating_add(count) {
            if unit >= self.units() || !self.set(unit, false) {
                self.contradicted.store(true, Ordering::Relaxed);
                break;
            }
            given += 1;
        }
        self.free.fetch_add(given, Ordering::Relaxed);
    }

    /// Whether a unit was given up twice.
    #[inline]
    pub fn is_contradicted(&self) -> bool {
        self.contradicted.load(Ordering::Relaxed)
    }

    /// Marks a unit as used or free. Returns whether it was used. The count of free units is left alone.
    pub fn set(&self, unit: u64, used: bool) -> bool {
        let (mut zone, bit) = self.zone_of(unit);
        zone.set(bit, used)
    }

    /// Counts the free units anew.
    pub fn count(&self) {
        let mut free = 0;
        self.each_zone(|zone| free += zone.free);
        self.free.store(free, Ordering::Relaxed);
    }

    /// All bits, for [`restore`](Self::restore).
    pub fn save(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.each_zone(|zone| zone.bits.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes())));
        bytes.resize(Self::saved_bytes(self.units()), u8::MAX);
        bytes
    }

    /// The bytes that [`save`](Self::save) makes for so many units.
    pub fn saved_bytes(units: u64) -> usize {
        (units.div_ceil(SAVED) * SAVED / 8) as usize
    }

    /// Sets all bits as they were saved.
    pub fn restore(&self, bytes: &[u8]) {
        for (index, bytes) in (0..self.zones()).zip(bytes.chunks(WORDS * 8)) {
            let mut zone = self.zones.get(index).lock().unwrap();
            for (word, bytes) in zone.bits.iter_mut().zip(bytes.chunks(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            }
            zone.free = zone.bits.iter().map(|word| u64::from(word.count_zeros())).sum();
        }
        self.count();
    }

    /// Sets the bits of a zone, as far as there are such units. [`count`](Self::count) comes when all zones are set.
    pub fn set_zone(&self, index: u64, words: impl Iterator<Item = u64>) {
        let mut zone = self.zones.get(index as usize).lock().unwrap();
        zone.bits.iter_mut().zip(words).for_each(|(word, bits)| *word = bits);
        let units = self.units() - index * ZONE;
        for (word, first) in zone.bits.iter_mut().zip((0..).step_by(64)).filter(|(_, first)| first + 64 > units) {
            *word |= if first >= units { u64::MAX } else { u64::MAX << (units - first) };
        }
        zone.free = zone.bits.iter().map(|word| u64::from(word.count_zeros())).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_taken_once() {
        let space = Space::all_used(100_000);
        (10..100_000).for_each(|unit| assert!(space.set(unit, false)));
        space.count();
        assert_eq!(space.free(), 99_990);
        assert!(space.reserve(99_990, 0) && !space.reserve(1, 0) && space.reserve(0, 5));
        let (mut left, mut taken) = (99_990, std::collections::BTreeSet::new());
        while left > 0 {
            let (first, count) = space.take(left.min(1000));
            assert!((first..first + count).all(|unit| unit >= 10 && taken.insert(unit)));
            left -= count;
        }
        let saved = space.save();
        assert_eq!(saved.len(), Space::saved_bytes(100_000));
        space.give(500, 200);
        assert_eq!((space.free(), space.reserve(100, 101), space.reserve(100, 100)), (200, false, true));
        space.restore(&saved);
        assert_eq!(space.free(), 0);
    }

    #[test]
    fn what_is_withheld_is_given_later() {
        let space = Space::all_used(100_000);
        let used = |unit: u64| unit < 10 || unit == 5000 || (40_000..40_200).contains(&unit);
        (0..100_000).filter(|unit| !used(*unit)).for_each(|unit| assert!(space.set(unit, false)));
        space.count();
        let (before, saved) = (space.free(), space.save());
        let mut runs = Vec::new();
        space.withhold(3, 70_000, &mut |first, count| runs.push((first, count)));
        assert_eq!(runs, [(10, 4990), (5001, 34_999), (40_200, 29_800)]);
        assert_eq!(space.free(), 30_000);
        assert!(space.reserve(30_000, 0) && !space.reserve(1, 0));
        space.unreserve(30_000);
        runs.into_iter().for_each(|(first, count)| space.give(first, count));
        assert!(!space.is_contradicted() && space.free() == before && space.save() == saved);
    }

    #[test]
    fn giving_up_twice_is_noticed() {
        for (first, count) in [(5, 1), (4, 3), (99, 5), (1 << 40, 1)] {
            let space = Space::all_used(100);
            space.give(5, 1);
            assert!(!space.is_contradicted());
            space.give(first, count);
            assert!(space.is_contradicted(), "{first}");
            assert!(space.free() <= 3);
        }
    }
}
