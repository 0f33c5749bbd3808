//! Versions by cache line: a bitmap of the lines of its block that a version has.

use super::BLOCK;
use super::version::{POSITION_BITS, Version};
use sync::{AtomicU64, Ordering};

/// Bytes of a line.
pub const LINE: u64 = 64;
const _: () = assert!(BLOCK / LINE == u64::BITS as u64);

const BEFORE_THINNING_SHIFT: u32 = 32;

/// Some lines of one block. Line `i` of the block is line `i` of the version's bytes, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinesVersion {
    /// Where its bytes are, as the volume understands it.
    pub position: u64,
    /// The place of the group that wrote it in commit order.
    pub stamp: u64,
    /// Bit `i`: it has line `i`.
    pub lines: u64,
    /// The version before it in the block's list, or [`NO_VERSION`](super::NO_VERSION).
    pub next: u32,
    /// How many more may come onto the list before it is [thinned](super::VersionArena::thin).
    pub before_thinning: u16,
}

/// LinesVersion as they are kept.
#[derive(Default)]
pub struct LinesCell {
    position: AtomicU64,
    stamp: AtomicU64,
    lines: AtomicU64,
    /// Next below bit 32, then what may come before the list is thinned.
    link: AtomicU64,
}

impl Version for LinesVersion {
    type Cell = LinesCell;
    type Open = u64;

    #[inline]
    fn get(cell: &LinesCell) -> LinesVersion {
        let link = cell.link.load(Ordering::Relaxed);
        LinesVersion {
            position: cell.position.load(Ordering::Relaxed),
            stamp: cell.stamp.load(Ordering::Relaxed),
            lines: cell.lines.load(Ordering::Relaxed),
            next: link as u32,
            before_thinning: (link >> BEFORE_THINNING_SHIFT) as u16,
        }
    }

    #[inline]
    fn set(&self, cell: &LinesCell) {
        debug_assert!(self.position < 1 << POSITION_BITS && self.lines != 0);
        cell.position.store(self.position, Ordering::Relaxed);
        cell.stamp.store(self.stamp, Ordering::Relaxed);
        cell.lines.store(self.lines, Ordering::Relaxed);
        let link = u64::from(self.next) | u64::from(self.before_thinning) << BEFORE_THINNING_SHIFT;
        cell.link.store(link, Ordering::Relaxed);
    }

    #[inline]
    fn prefetch(cell: &LinesCell) {
        // It never lies across two lines but where the allocator does not align it.
        wholly_media::prefetch(&cell.position);
    }

    #[inline]
    fn stamp(&self) -> u64 {
        self.stamp
    }

    #[inline]
    fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    fn before_thinning(&self) -> u16 {
        self.before_thinning
    }

    #[inline]
    fn linked(self, next: u32, before_thinning: u16) -> LinesVersion {
        LinesVersion { next, before_thinning, ..self }
    }

    #[inline]
    fn covers(&self, older: &LinesVersion) -> bool {
        older.lines & !self.lines == 0
    }

    #[inline]
    fn is_whole(&self) -> bool {
        self.lines == u64::MAX
    }

    #[inline]
    fn open() -> u64 {
        u64::MAX
    }

    #[inline]
    fn cover(&self, open: &mut u64) -> bool {
        let shows = *open & self.lines != 0;
        *open &= !self.lines;
        shows
    }
}

/// Tells which of the `wanted` lines of a block are the latest in which version, given its versions from newest to
/// oldest. Returns those that are at home.
#[inline]
pub fn latest_lines(
    versions: impl IntoIterator<Item = LinesVersion>,
    wanted: u64,
    mut found: impl FnMut(&LinesVersion, u64),
) -> u64 {
    let mut open = wanted;
    for version in versions {
        if open == 0 {
            break;
        }
        let shown = version.lines & open;
        if shown != 0 {
            found(&version, shown);
            open &= !shown;
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NO_VERSION, Slot, VersionArena};
    use proptest::prelude::*;

    fn version(stamp: u64, lines: u64) -> LinesVersion {
        LinesVersion { position: stamp << 12, stamp, lines, next: NO_VERSION, before_thinning: 0 }
    }

    /// Which version has each line, by the stamp; 0 for home.
    fn shown(arena: &VersionArena<LinesVersion>, slot: &Slot, wanted: u64) -> [Option<u64>; 64] {
        let mut shown = [None; 64];
        let guard = slot.read();
        let home = latest_lines(arena.list(guard.newest()), wanted, |version, lines| {
            assert_eq!(version.position, version.stamp << 12);
            for line in (0..64).filter(|line| lines >> line & 1 != 0) {
                assert_eq!(shown[line].replace(version.stamp), None, "a line is told twice");
            }
        });
        (0..64).filter(|line| home >> line & 1 != 0).for_each(|line| assert_eq!(shown[line].replace(0), None));
        shown
    }

    proptest! {
        /// Against a block whose lines are painted, whatever the order in which groups publish: each line is that of
        /// the latest version that has it, before and after what is old goes home.
        #[test]
        fn as_if_painted(
            versions in proptest::collection::vec((1u64..200, any::<u64>(), any::<u64>()), 0..150),
            wanted in any::<u64>(),
            home in 0u64..220,
        ) {
            let (arena, slot) = (VersionArena::<LinesVersion>::new(), Slot::new());
            let (mut painted, mut numbers, mut freed, mut stamps) = ([0; 64], Vec::new(), Vec::new(), Vec::new());
            arena.refill(&mut numbers, versions.len());
            for (stamp, one, other) in versions {
                let lines = one & other;
                if lines == 0 || stamps.contains(&stamp) {
                    continue;
                }
                stamps.push(stamp);
                slot.claim().push(&arena, numbers.pop().expect("one each"), version(stamp, lines), &mut freed);
                let later = |line: &usize| lines >> line & 1 != 0 && painted[*line] < stamp;
                let lines: Vec<usize> = (0..64).filter(later).collect();
                lines.into_iter().for_each(|line| painted[line] = stamp);
            }
            let expected = |line: usize| (wanted >> line & 1 != 0).then_some(painted[line]);
            prop_assert_eq!(shown(&arena, &slot, wanted), std::array::from_fn(expected));
            let listed: Vec<u64> = arena.list(slot.read().newest()).map(|version| version.stamp).collect();
            prop_assert!(listed.is_sorted_by(|newer, older| newer > older));
            freed.sort_unstable();
            freed.dedup();
            prop_assert_eq!(listed.len() + freed.len(), stamps.len(), "each is in the list, or freed once");

            let claim = slot.claim();
            claim.change(|newest| arena.drop_tail(newest, |version| version.stamp < home, &mut freed));
            drop(claim);
            for stamp in &mut painted {
                *stamp = if *stamp < home { 0 } else { *stamp };
            }
            let expected = |line: usize| (wanted >> line & 1 != 0).then_some(painted[line]);
            prop_assert_eq!(shown(&arena, &slot, wanted), std::array::from_fn(expected));
        }
    }

    #[test]
    fn what_is_set_is_read() {
        let arena = VersionArena::<LinesVersion>::new();
        let mut numbers = Vec::new();
        arena.refill(&mut numbers, 1);
        let version = LinesVersion {
            position: (1 << 48) - 1,
            stamp: u64::MAX,
            lines: 1 << 63,
            next: u32::MAX,
            before_thinning: u16::MAX,
        };
        arena.set(numbers[0], version);
        assert_eq!(arena.get(numbers[0]), version);
        assert_eq!(size_of::<LinesCell>(), 32);
    }
}
