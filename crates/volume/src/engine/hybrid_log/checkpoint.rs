//! Writing back (the paper's selective checkpointing, III-E, algorithm 1), and dropping lists of homes that nothing
//! uses any more.

use std::collections::BTreeSet;

use index::{Claim, LinesVersion, NO_VERSION, latest_lines};
use wholly::Result;
use wholly::sync::{MutexGuard, Ordering};

use super::{HOME, HOME_FENCE, HybridLog, Last, SETTLE, SWAP, SWAP_FENCE, WIPE, WIPE_FENCE};
use crate::engine::{InoGen, Maps};
use crate::format::head::{self, runs};
use crate::format::log::{LINE, SETTLED};
use crate::format::{Lba, Run};

/// Lists that are written back at a time: so many claims are held.
const AT_ONCE: usize = 1024;

/// A list that is claimed.
struct Taken<'e> {
    home: Lba,
    claim: Claim<'e>,
    /// All blocks with heads, in commit order.
    heads: Vec<(u64, Lba)>,
    /// Where the latest lines are brought together: at home, or in a version that becomes the home.
    into: Lba,
}

/// Of a list: the version that is to become the home, if it has more of the latest lines than the home and any other;
/// and how many of them are elsewhere.
///
/// Only versions are looked at of which each line is the latest: others would have to change lines of which their heads
/// have the checksum. The newest version is always such a one.
fn select(versions: impl IntoIterator<Item = LinesVersion>) -> (Option<LinesVersion>, u32) {
    let (mut best, mut covered) = (None::<LinesVersion>, 0u64);
    for version in versions {
        let is_better = best.is_none_or(|best| version.lines.count_ones() > best.lines.count_ones());
        if version.lines & covered == 0 && is_better {
            best = Some(version);
        }
        covered |= version.lines;
    }
    let at_home = 64 - covered.count_ones();
    match best.filter(|best| best.lines.count_ones() > at_home) {
        Some(best) => (Some(best), 64 - best.lines.count_ones()),
        None => (None, covered.count_ones()),
    }
}

impl HybridLog {
    /// Writes back long lists, and then the cheapest until `wanted` blocks are free. Returns the blocks.
    pub(super) fn write_back(&self, wanted: u64, maps: &dyn Maps) -> Result<Vec<Run>> {
        self.base.lanes.check()?;
        let _alone = self.writing_back.lock().unwrap();
        let mut free = Vec::new();
        let mut long = std::mem::take(&mut *self.long.lock().unwrap());
        // One may have been dropped, and have got as many again.
        long.sort_unstable();
        long.dedup();
        for lot in long.chunks(AT_ONCE) {
            self.write_back_lot(lot, maps, &mut free)?;
        }
        let homes = if (free.len() as u64) < wanted { self.by_cost() } else { Vec::new() };
        let mut rest = &homes[..];
        while !rest.is_empty() && (free.len() as u64) < wanted {
            // Each list frees at least one block.
            let missing = usize::try_from(wanted - free.len() as u64).unwrap_or(usize::MAX);
            let (lot, after) = rest.split_at(rest.len().min(missing).min(AT_ONCE));
            self.write_back_lot(lot, maps, &mut free)?;
            rest = after;
        }
        Ok(free.into_iter().map(|start| Run { start, count: 1 }).collect())
    }

    /// All homes with lists, those first of which the fewest lines are copied for each block that becomes free.
    fn by_cost(&self) -> Vec<u64> {
        let covered = self.covered.lock().unwrap();
        let mut all = Vec::new();
        self.index.for_each_from(0, &mut |home, slot| {
            let guard = slot.read();
            if guard.newest() != NO_VERSION {
                let shown = self.arena.list(guard.newest()).count();
                let blocks = (shown + covered.get(&home).map_or(0, Vec::len)) as u64;
                let (_, copied) = select(self.arena.list(guard.newest()));
                all.push((u64::from(copied) * 64 / blocks, home));
            }
        });
        all.sort_unstable();
        all.into_iter().map(|(_, home)| home).collect()
    }

    /// Claims the lists of some homes that have any.
    fn take_lists(&self, homes: impl Iterator<Item = u64>) -> Vec<Taken<'_>> {
        let mut taken = Vec::new();
        for home in homes {
            let Some(slot) = self.index.get(home) else { continue };
            let claim = slot.claim();
            if claim.newest() == NO_VERSION {
                continue;
            }
            let mut heads = self.covered.lock().unwrap().remove(&home).unwrap_or_default();
            heads.extend(self.arena.list(claim.newest()).map(|version| (version.stamp, Lba(version.position))));
            heads.sort_unstable();
            taken.push(Taken { home: Lba(home), claim, heads, into: Lba(home) });
        }
        taken
    }

    fn write_back_lot(&self, homes: &[u64], maps: &dyn Maps, free: &mut Vec<Lba>) -> Result<()> {
        let region = &*self.base.region;
        let mut taken = self.take_lists(homes.iter().copied());
        for list in &mut taken {
            // Who comes now sees the list, and reads none of the lines that change.
            list.claim.drain_readers();
            if let (Some(best), _) = select(self.arena.list(list.claim.newest())) {
                list.into = Lba(best.position);
            }
            self.gather(list)?;
        }
        let settled = self.settle(None)?;
        region.fence(HOME_FENCE)?;
        settled.into_iter().for_each(Settling::end);
        let mut are_kept = false;
        for list in taken.iter_mut().filter(|list| list.into != list.home) {
            if !self.swap(list, maps)? {
                list.into = list.home;
                self.gather(list)?;
                are_kept = true;
            }
        }
        if are_kept {
            region.fence(HOME_FENCE)?;
        }
        let kept = || taken.iter().filter(|list| list.into == list.home);
        for round in 0..kept().map(|list| list.heads.len()).max().unwrap_or(0) {
            for (_, at) in kept().filter_map(|list| list.heads.get(round)) {
                region.write(WIPE, self.table.at(*at), &[0; 8])?;
            }
            region.fence(WIPE_FENCE)?;
        }
        self.forget(taken, free);
        Ok(())
    }

    /// Copies the latest lines of a list to where they are brought together.
    fn gather(&self, list: &Taken<'_>) -> Result<()> {
        let mut copied = Ok(());
        let at_home = latest_lines(self.arena.list(list.claim.newest()), u64::MAX, |version, lines| {
            let copy = self.copy_lines(Lba(version.position), list.into, lines);
            copied = std::mem::replace(&mut copied, Ok(())).and(copy);
        });
        copied?;
        self.copy_lines(list.home, list.into, at_home)
    }

    fn copy_lines(&self, from: Lba, to: Lba, lines: u64) -> Result<()> {
        for (first, end) in runs(if from == to { 0 } else { lines }) {
            let (at, len) = ((first * LINE) as u64, (end - first) * LINE);
            self.base.region.write_from(HOME, to.byte() + at, &*self.base.region, from.byte() + at, len)?;
        }
        Ok(())
    }

    /// Makes the pointer of a file point to the block in which all of a list is, and wipes the list's heads. Whether
    /// that was possible.
    fn swap(&self, list: &Taken<'_>, maps: &dyn Maps) -> Result<bool> {
        let region = &*self.base.region;
        let mut line = [0; LINE];
        region.read(self.table.at(list.into), &mut line)?;
        let Some((head, _)) = head::decode(self.head_seed(), list.into, &line) else { return Ok(false) };
        let file = InoGen { ino: head.ino, generation: head.generation };
        maps.swap((file, head.block), (list.home, list.into), &mut |at, word| {
            // A group that has changed words beside it since then.
            if let Some(settling) = self.settle(Some(&[at / LINE as u64]))? {
                region.fence(HOME_FENCE)?;
                settling.end();
            }
            region.write(SWAP, at, &word.to_le_bytes())?;
            region.fence(SWAP_FENCE)?;
            // In any order: what they say is about a block that nothing uses.
            for (_, at) in &list.heads {
                region.write(WIPE, self.table.at(*at), &[0; 8])?;
            }
            Ok(region.fence(WIPE_FENCE)?)
        })
    }

    /// Drops the lists of homes that have no content any more, of groups that are settled (invariant 5). Returns the
    /// blocks that are free then.
    pub(super) fn drop_lists(&self, homes: &BTreeSet<u64>) -> Result<Vec<Lba>> {
        let region = &*self.base.region;
        let _alone = self.writing_back.lock().unwrap();
        let (taken, mut free) = (self.take_lists(homes.iter().copied()), Vec::new());
        if taken.is_empty() {
            return Ok(free);
        }
        for (_, at) in taken.iter().flat_map(|list| &list.heads) {
            region.write(WIPE, self.table.at(*at), &[0; 8])?;
        }
        region.fence(WIPE_FENCE)?;
        self.forget(taken, &mut free);
        Ok(free)
    }

    /// Empties lists whose heads are wiped.
    fn forget(&self, taken: Vec<Taken<'_>>, free: &mut Vec<Lba>) {
        let mut numbers = Vec::new();
        for list in taken {
            // Who counts none reads at home what was stored there before.
            self.pending.fetch_sub(list.heads.len() as u64, Ordering::Release);
            let blocks = list.heads.iter().map(|(_, at)| *at);
            free.extend(blocks.map(|at| if at == list.into { list.home } else { at }));
            list.claim.change_last(|newest| self.arena.drop_tail(newest, |_| true, &mut numbers));
        }
        self.arena.give_back(&mut numbers);
    }

    /// Writes the settled words of groups in doubt: of all, or of those that have changed some of these lines of the
    /// volume (in ascending order). The caller fences.
    pub(super) fn settle(&self, of: Option<&[u64]>) -> Result<Option<Settling<'_>>> {
        let mut settling = Vec::new();
        for (lane, last) in self.lasts.iter().enumerate() {
            let last = last.lock().unwrap();
            let is_meant = |last: &Last| of.is_none_or(|lines| share(lines, &last.lines));
            if !last.is_settled && is_meant(&last) {
                let half = self.base.lanes.area.half(lane as u32, last.sequence);
                self.base.region.write(SETTLE, half.start.byte() + SETTLED, &last.check.to_le_bytes())?;
                settling.push(last);
            }
        }
        Ok((!settling.is_empty()).then_some(Settling(settling)))
    }
}

/// Whether two ascending lists share something.
fn share(some: &[u64], others: &[u64]) -> bool {
    let (few, many) = if some.len() < others.len() { (some, others) } else { (others, some) };
    few.iter().any(|line| many.binary_search(line).is_ok())
}

/// Lanes whose last groups are being settled.
pub(super) struct Settling<'e>(Vec<MutexGuard<'e, Last>>);

impl Settling<'_> {
    /// The words are durable.
    pub(super) fn end(mut self) {
        self.0.iter_mut().for_each(|last| last.is_settled = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(newest_first: &[u64]) -> Vec<LinesVersion> {
        let version = |(i, lines): (usize, &u64)| LinesVersion {
            position: i as u64 + 1,
            stamp: 100 - i as u64,
            lines: *lines,
            next: NO_VERSION,
            before_thinning: 0,
        };
        newest_first.iter().enumerate().map(version).collect()
    }

    /// Figure 5 of the paper, with 64 lines: one of the latest is in each of two older versions and at home, the others
    /// are in the newest.
    #[test]
    fn the_block_with_the_most_of_the_latest_lines_is_selected() {
        let select = |lines: &[u64]| {
            let (best, copied) = super::select(versions(lines));
            (best.map(|best| best.position), copied)
        };
        assert_eq!(select(&[u64::MAX << 3, 1 << 1 | 1 << 8, 1 << 2 | 1 << 9]), (Some(1), 3));
        assert_eq!(select(&[1, u64::MAX << 1]), (Some(2), 1), "an older one may have more");
        assert_eq!(select(&[1, u64::MAX]), (Some(1), 63), "one with older lines is not changed");
        assert_eq!(select(&[u64::MAX]), (Some(1), 0), "nothing is copied");
        assert_eq!(select(&[u64::MAX >> 32]), (None, 32), "a tie is the home's");
        assert_eq!(select(&[3, 4]), (None, 3));
        assert_eq!(select(&[]), (None, 0));
    }
}
