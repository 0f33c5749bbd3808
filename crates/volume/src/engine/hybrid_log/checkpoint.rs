//! Writing back (the paper's selective checkpointing, III-E, algorithm 1), and dropping lists of homes that nothing
//! uses any more.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use index::{Claim, LinesVersion, NO_VERSION, latest_lines};
use sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use wholly_error::Result;

use super::{HOME, HOME_FENCE, HybridLog, Last, SETTLE, SWAP, SWAP_FENCE, WIPE, WIPE_FENCE, WriteBack};
use crate::engine::{InoGen, Maps, Mistake, Reclaim, corrupt};
use crate::format::head::{self, PendingHead, runs};
use crate::format::log::{LINE, SETTLED};
use crate::format::{Fault, Lba, Run};

/// Lists that a thread writes back at a time: so many claims it holds.
const AT_ONCE: usize = 64;

/// What threads share that write back at the same time.
#[derive(Default)]
pub(super) struct Round {
    /// How many they are.
    workers: usize,
    /// Homes that nobody has taken yet, the cheapest last. `None`: nobody has looked since the round began.
    homes: Option<Vec<u64>>,
    /// Homes whose pointers could not be swapped, because their files were in use: to be taken when no others are left.
    refused: Vec<u64>,
}

/// What happens to a list whose pointer cannot be swapped, because its file is in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InUse {
    /// It stays.
    Left,
    /// Its lines go home.
    Copied,
}

/// A thread that takes part in a round.
struct Worker<'e>(&'e Mutex<Round>);

impl<'e> Worker<'e> {
    fn join(round: &'e Mutex<Round>) -> Worker<'e> {
        round.lock().unwrap().workers += 1;
        Worker(round)
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        let mut round = self.0.lock().unwrap();
        round.workers -= 1;
        if round.workers == 0 {
            *round = Round::default();
        }
    }
}

/// A list that is claimed.
struct Taken<'e> {
    home: Lba,
    claim: Claim<'e>,
    /// The place in commit order up to which versions go: all, but of a variant.
    upto: u64,
    /// Their blocks, and those that are covered, in commit order.
    heads: Vec<(u64, Lba)>,
    /// Where the latest lines are brought together: at home, or in a version that becomes the home.
    into: Lba,
}

/// Lists that are damaged: their blocks do not become free.
#[derive(Default)]
pub(super) struct Stuck {
    by_home: Mutex<BTreeMap<u64, u64>>,
    /// How many blocks they have.
    pub blocks: AtomicU64,
}

impl Stuck {
    /// So many blocks of a home are stuck.
    fn set(&self, home: u64, blocks: u64) {
        if blocks == 0 && self.blocks.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut by_home = self.by_home.lock().unwrap();
        match blocks {
            0 => by_home.remove(&home),
            _ => by_home.insert(home, blocks),
        };
        self.blocks.store(by_home.values().sum(), Ordering::Relaxed);
    }
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
    /// Writes back long lists, and then the cheapest until no more blocks are wanted.
    pub(super) fn write_back(&self, space: &dyn Reclaim, maps: &dyn Maps) -> Result<()> {
        self.base.lanes.check()?;
        if self.how == WriteBack::CommitOrder {
            return self.write_back_in_order(space);
        }
        loop {
            let lot = {
                let mut long = self.long.lock().unwrap();
                let from = long.len().saturating_sub(AT_ONCE);
                // One may have been dropped, and have got long again.
                BTreeSet::from_iter(long.drain(from..))
            };
            if lot.is_empty() {
                break;
            }
            self.write_back_lot(lot, InUse::Copied, space, maps)?;
            maps.lot_ended();
        }
        if space.wanted() == 0 {
            return Ok(());
        }
        let worker = Worker::join(&self.round);
        loop {
            let (lot, in_use) = self.next_lot(&worker, space.wanted());
            if lot.is_empty() {
                return Ok(());
            }
            let refused = self.write_back_lot(lot, in_use, space, maps)?;
            maps.lot_ended();
            self.round.lock().unwrap().refused.extend(refused);
        }
    }

    /// The cheapest homes of a round: at most so many as blocks are wanted, since each list makes one free at least.
    /// Half of them at most are for one thread.
    fn next_lot(&self, worker: &Worker<'_>, wanted: u64) -> (BTreeSet<u64>, InUse) {
        let mut round = worker.0.lock().unwrap();
        let Round { homes, refused, .. } = &mut *round;
        let homes = homes.get_or_insert_with(|| self.by_cost());
        let (homes, in_use) = if homes.is_empty() { (refused, InUse::Copied) } else { (homes, InUse::Left) };
        let most = AT_ONCE.min(homes.len().div_ceil(2));
        let most = usize::try_from(wanted).map_or(most, |wanted| most.min(wanted));
        let from = homes.len() - most;
        (homes.drain(from..).collect(), in_use)
    }

    /// Calls `each` with all homes that have lists, the newest version of each, and what it covers.
    fn for_each_list(&self, mut each: impl FnMut(u64, u32, &[(u64, Lba)])) {
        let covered = self.covered.lock().unwrap();
        self.index.for_each_from(0, &mut |home, slot| {
            let guard = slot.read();
            if guard.newest() != NO_VERSION {
                each(home, guard.newest(), covered.get(&home).map_or(&[], |covered| covered));
            }
        });
    }

    /// All homes with lists, those last of which the fewest lines are copied for each block that becomes free.
    fn by_cost(&self) -> Vec<u64> {
        let mut all = Vec::new();
        self.for_each_list(|home, newest, covered| {
            let blocks = (self.arena.list(newest).count() + covered.len()) as u64;
            let (_, copied) = select(self.arena.list(newest));
            all.push((u64::from(copied) * 64 / blocks, home));
        });
        all.sort_unstable_by(|one, other| other.cmp(one));
        all.into_iter().map(|(_, home)| home).collect()
    }

    /// That all lines of a list are what was written, as far as they are of an earlier incarnation.
    fn verify_list(&self, newest: u32) -> Result<()> {
        self.arena.list(newest).try_for_each(|version| self.verify(Lba(version.position)))
    }

    /// The same; a list that is damaged stays, and none of its blocks becomes free.
    fn is_sound(&self, home: u64, newest: u32) -> bool {
        if self.verify_list(newest).is_ok() {
            return true;
        }
        let covered = self.covered.lock().unwrap().get(&home).map_or(0, Vec::len);
        let blocks = (self.arena.list(newest).count() + covered) as u64;
        self.stuck.set(home, blocks);
        false
    }

    /// That nothing is left because it is damaged.
    pub(super) fn check_left(&self) -> Result<()> {
        let mut checked = Ok(());
        self.index.for_each_from(0, &mut |_, slot| {
            if checked.is_ok() {
                checked = self.verify_list(slot.read().newest());
            }
        });
        checked
    }

    /// The variant [`WriteBack::CommitOrder`]: all lines of each pending block go home, covered or not.
    fn write_back_in_order(&self, space: &dyn Reclaim) -> Result<()> {
        let region = &*self.base.region;
        let _alone = self.round.lock().unwrap();
        let mut blocks = Vec::new();
        if space.wanted() > 0 {
            self.for_each_list(|home, newest, covered| {
                blocks.extend(covered.iter().map(|(order, _)| (*order, home)));
                blocks.extend(self.arena.list(newest).map(|version| (version.stamp, home)));
            });
        }
        blocks.sort_unstable();
        for lot in blocks.chunks(AT_ONCE) {
            if space.wanted() == 0 {
                break;
            }
            let (upto, homes) = (lot[lot.len() - 1].0, lot.iter().map(|(_, home)| *home));
            let taken = self.take_lists(homes.collect(), upto, |_, _| true);
            for list in &taken {
                list.claim.drain_readers();
                for (_, at) in &list.heads {
                    let fault = || corrupt(format!("pending block {}", at.0), Fault("its head is damaged"));
                    self.copy_lines(*at, list.home, self.head_of(*at)?.ok_or_else(fault)?.lines)?;
                }
            }
            let settled = self.settle(None, None)?;
            region.fence(HOME_FENCE)?;
            settled.into_iter().for_each(Settling::end);
            self.wipe_in_order(taken.iter())?;
            self.forget(taken).into_iter().for_each(|start| space.reclaim(Run { start, count: 1 }));
        }
        Ok(())
    }

    /// Claims the lists of some homes that have any, and one that is `wanted`, to take what was committed up to a place
    /// in commit order off them.
    /// In ascending order of the homes: so threads that claim many wait for each other in one direction.
    fn take_lists(&self, homes: BTreeSet<u64>, upto: u64, wanted: impl Fn(u64, u32) -> bool) -> Vec<Taken<'_>> {
        let mut taken = Vec::new();
        for home in homes {
            let Some(slot) = self.index.get(home) else { continue };
            let claim = slot.claim();
            // Before readers are drained: who comes later finds that it was verified, and needs no head.
            if claim.newest() == NO_VERSION || !wanted(home, claim.newest()) {
                continue;
            }
            let covered = self.covered.lock().unwrap().get(&home).cloned().unwrap_or_default();
            let mut heads: Vec<_> = covered.into_iter().filter(|(order, _)| *order <= upto).collect();
            let listed = self.arena.list(claim.newest()).filter(|version| version.stamp <= upto);
            heads.extend(listed.map(|version| (version.stamp, Lba(version.position))));
            heads.sort_unstable();
            taken.push(Taken { home: Lba(home), claim, upto, heads, into: Lba(home) });
        }
        taken
    }

    /// Writes some lists back. Returns the homes of those that stay.
    fn write_back_lot(
        &self,
        homes: BTreeSet<u64>,
        in_use: InUse,
        space: &dyn Reclaim,
        maps: &dyn Maps,
    ) -> Result<Vec<u64>> {
        let region = &*self.base.region;
        let mut taken = self.take_lists(homes, u64::MAX, |home, newest| self.is_sound(home, newest));
        for list in &mut taken {
            // Who comes now sees the list, and reads none of the lines that change.
            list.claim.drain_readers();
            if let (Some(best), _) = select(self.arena.list(list.claim.newest())) {
                list.into = Lba(best.position);
            }
            self.gather(list)?;
        }
        let settled = self.settle(None, None)?;
        region.fence(HOME_FENCE)?;
        settled.into_iter().for_each(Settling::end);
        let (mut done, mut refused, mut are_copied) = (Vec::new(), Vec::new(), false);
        for mut list in taken {
            if list.into != list.home && !self.swap(&list, maps)? {
                if in_use == InUse::Left {
                    refused.push(list.home.0);
                    continue;
                }
                list.into = list.home;
                self.gather(&list)?;
                are_copied = true;
            }
            done.push(list);
        }
        if are_copied {
            region.fence(HOME_FENCE)?;
        }
        self.wipe_in_order(done.iter().filter(|list| list.into == list.home))?;
        self.forget(done).into_iter().for_each(|start| space.reclaim(Run { start, count: 1 }));
        Ok(refused)
    }

    /// Wipes the heads of lists, those of each in commit order (invariant 6).
    fn wipe_in_order<'t>(&self, lists: impl Iterator<Item = &'t Taken<'t>> + Clone) -> Result<()> {
        let region = &*self.base.region;
        for round in 0..lists.clone().map(|list| list.heads.len()).max().unwrap_or(0) {
            let head = |list: &'t Taken<'t>| match self.mistake {
                Some(Mistake::NewestFirst) => list.heads.iter().nth_back(round),
                _ => list.heads.get(round),
            };
            for (_, at) in lists.clone().filter_map(head) {
                region.write(WIPE, self.table.at(*at), &[0; 8])?;
            }
            region.fence(WIPE_FENCE)?;
        }
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

    /// The head of a pending block.
    fn head_of(&self, at: Lba) -> Result<Option<PendingHead>> {
        let mut line = [0; LINE];
        self.base.region.read(self.table.at(at), &mut line)?;
        Ok(head::decode(self.head_seed(), at, &line).map(|read| read.head))
    }

    /// Makes the pointer of a file point to the block in which all of a list is, and wipes the list's heads. Whether
    /// that was possible.
    fn swap(&self, list: &Taken<'_>, maps: &dyn Maps) -> Result<bool> {
        let region = &*self.base.region;
        let Some(head) = self.head_of(list.into)? else { return Ok(false) };
        let file = InoGen { ino: head.ino, generation: head.generation };
        maps.swap((file, head.block), (list.home, list.into), &mut |at, word| {
            // A group that has changed words beside it since then.
            if let Some(settling) = self.settle(Some(&[at / LINE as u64]), None)? {
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
        let taken = self.take_lists(homes.clone(), u64::MAX, |_, _| true);
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        for (_, at) in taken.iter().flat_map(|list| &list.heads) {
            region.write(WIPE, self.table.at(*at), &[0; 8])?;
        }
        region.fence(WIPE_FENCE)?;
        Ok(self.forget(taken))
    }

    /// Takes versions off their lists whose heads are wiped. Returns the blocks that are free then.
    fn forget(&self, taken: Vec<Taken<'_>>) -> Vec<Lba> {
        let (mut numbers, mut free) = (Vec::new(), Vec::new());
        for list in taken {
            // Who counts none reads at home what was stored there before.
            self.pending.fetch_sub(list.heads.len() as u64, Ordering::Release);
            self.stuck.set(list.home.0, 0);
            let blocks = list.heads.iter().map(|(_, at)| *at);
            free.extend(blocks.map(|at| if at == list.into { list.home } else { at }));
            if let Entry::Occupied(mut covered) = self.covered.lock().unwrap().entry(list.home.0) {
                covered.get_mut().retain(|(order, _)| *order > list.upto);
                if covered.get().is_empty() {
                    covered.remove();
                }
            }
            let goes = |version: &LinesVersion| version.stamp <= list.upto;
            list.claim.change_last(|newest| self.arena.drop_tail(newest, goes, &mut numbers));
        }
        self.arena.give_back(&mut numbers);
        free
    }

    /// Writes the settled words of groups in doubt: of all, or of those that have changed some of these lines of the
    /// volume (in ascending order). The caller fences. `own`: the lane of a group that has undo entries: the first of
    /// them settles the group before it.
    pub(super) fn settle(&self, of: Option<&[u64]>, own: Option<u32>) -> Result<Option<Settling<'_>>> {
        let mut settling = Vec::new();
        for lane in (0..self.base.lanes.used()).filter(|lane| Some(*lane) != own) {
            let last = self.lasts[lane as usize].lock().unwrap();
            let is_meant = |last: &Last| of.is_none_or(|lines| share(lines, &last.lines));
            if !last.is_settled && is_meant(&last) && self.mistake != Some(Mistake::NeverSettled) {
                let half = self.base.lanes.area.half(lane, last.sequence);
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
