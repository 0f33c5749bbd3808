//! Writing back (the paper's selective checkpointing, III-E, algorithm 1), and dropping lists of homes that nothing
//! uses any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use index::{Claim, LinesVersion, NO_VERSION, latest_lines};
use sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use wholly_error::Result;

use super::queue::{CHEAPEST, DUE, Lists, REFUSED, Ranked};
use super::{HOME, HOME_FENCE, HybridLog, Last, SETTLE, SWAP, SWAP_FENCE, WIPE, WIPE_FENCE, WriteBack};
use crate::engine::{InoGen, Maps, Mistake, Reclaim, corrupt};
use crate::format::head::{self, PendingHead, runs};
use crate::format::log::{LINE, SETTLED};
use crate::format::{Fault, Lba, Run};

/// Lists that a thread writes back at a time, at most: so many claims it holds.
const AT_ONCE: usize = 64;
/// Lines that it stores for them, at most, but for the last list: as long a commit of the same blocks waits.
const LINES_AT_ONCE: u64 = 256;
/// Lists without a rank that a thread ranks at a time.
const RANKED_AT_ONCE: usize = 64;
/// What happens to a list whose pointer cannot be swapped, because its file is in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InUse {
    /// It stays.
    Left,
    /// Its lines go home.
    Copied,
}

impl InUse {
    fn of(rank: u64) -> InUse {
        if rank == DUE || rank == REFUSED { InUse::Copied } else { InUse::Left }
    }
}

/// What a list costs.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    /// Heads that are wiped, those of covered versions too: as many blocks become free.
    heads: usize,
    /// Lines that are copied.
    copied: u64,
}

impl Cost {
    /// All lines that are stored: a pointer, too.
    fn lines(self) -> u64 {
        self.copied + self.heads as u64 + 1
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
    cost: Cost,
    /// Where the latest lines are brought together: at home, or in a version that becomes the home.
    into: Lba,
    /// Its pointer cannot be swapped now.
    is_refused: bool,
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
    /// What it costs to write back a list of these versions, newest first, and so many that are covered.
    fn cost(listed: impl Iterator<Item = LinesVersion>, covered: usize) -> Cost {
        let mut heads = covered;
        let (_, copied) = select(listed.inspect(|_| heads += 1));
        Cost { heads, copied: u64::from(copied) }
    }

    fn rank(&self, cost: Cost) -> u64 {
        match cost.heads > self.how.most_versions() {
            true => DUE,
            false => CHEAPEST + cost.copied * 64 / cost.heads.max(1) as u64,
        }
    }

    /// The rank of a list, if it has one. The caller has its claim.
    pub(super) fn rank_of(&self, home: u64, newest: u32) -> Option<u64> {
        let may_have = newest != NO_VERSION && self.queue.has_ranked();
        may_have.then(|| self.rank(Self::cost(self.arena.list(newest), self.queue.covered(home))))
    }

    /// A list has got a version, its newest, and others are covered now. `before`: its newest version until then, and
    /// its rank. The caller has its claim. A commit ranks no list, but for a long one: who writes back does
    /// ([`rank_found`]).
    ///
    /// [`rank_found`]: Self::rank_found
    pub(super) fn grown(
        &self,
        home: u64,
        before: (u32, Option<u64>),
        (newest, order): (u32, u64),
        now_covered: &[u32],
    ) {
        let covered = match before.0 {
            NO_VERSION => 0,
            _ => self.queue.cover(&self.arena, home, now_covered) + now_covered.len(),
        };
        if self.how == WriteBack::CommitOrder {
            self.queue.lists().in_order.insert((order, home));
            return;
        }
        let had_rank = before.1.is_some_and(|rank| self.queue.leave(&mut self.queue.lists(), rank, home));
        if self.arena.list(newest).count() + covered > self.how.most_versions() {
            self.queue.enter(&mut self.queue.lists(), Ranked::new(DUE, home));
        } else if had_rank || before.0 == NO_VERSION {
            self.found(home);
        }
    }

    /// A list has no rank.
    pub(super) fn found(&self, home: u64) {
        self.queue.found(home, |home| self.index.get(home).is_some_and(|slot| !slot.is_empty()));
    }

    /// Writes back long lists, and then the cheapest until no more blocks are wanted.
    pub(super) fn write_back(&self, space: &dyn Reclaim, maps: &dyn Maps) -> Result<()> {
        self.base.lanes.check()?;
        if self.how == WriteBack::CommitOrder {
            return self.write_back_in_order(space);
        }
        if space.wanted() == u64::MAX {
            return self.write_all_back(space, maps);
        }
        self.queue.ask_again();
        loop {
            let (lot, in_use) = self.next_lot(space);
            if lot.is_empty() {
                return Ok(());
            }
            self.write_back_lot(lot, in_use, space, maps)?;
            maps.lot_ended();
        }
    }

    /// Writes back all lists that there are now.
    fn write_all_back(&self, space: &dyn Reclaim, maps: &dyn Maps) -> Result<()> {
        let mut homes = VecDeque::from(self.queue.take_all());
        // First those that nobody has; then, one at a time, those that somebody had.
        let mut later = Vec::new();
        while !homes.is_empty() {
            let (mut lot, mut lines) = (Vec::new(), 0);
            while lot.len() < AT_ONCE
                && lines < LINES_AT_ONCE
                && let Some(home) = homes.pop_front()
            {
                match self.index.get(home).map(|slot| slot.try_claim()) {
                    Some(Some(claim)) => {
                        lot.extend(self.take(home, claim, u64::MAX).inspect(|list| lines += list.cost.lines()))
                    }
                    Some(None) => later.push(home),
                    None => {}
                }
            }
            later.extend(self.write_back_lot(lot, InUse::Left, space, maps)?);
            maps.lot_ended();
        }
        for home in later {
            let lot = self.take_lists(&BTreeSet::from([home]), u64::MAX);
            self.write_back_lot(lot, InUse::Copied, space, maps)?;
            maps.lot_ended();
        }
        Ok(())
    }

    /// The long lists, or else the cheapest: as many as blocks are wanted, since each makes one free at least. Half of
    /// them at most are for one thread.
    fn next_lot(&self, space: &dyn Reclaim) -> (Vec<Taken<'_>>, InUse) {
        let wanted = space.wanted();
        let (mut lot, mut in_use, mut lines) = (Vec::new(), InUse::Left, 0);
        let mut lists = self.queue.lists();
        if wanted > 0 {
            self.rank_found(&mut lists);
        }
        let most = AT_ONCE.min(lists.ranked().len().div_ceil(2));
        let (mut taken, mut skipped) = (Vec::new(), 0);
        for ranked in lists.ranked() {
            let (rank, home) = (ranked.rank(), ranked.home());
            let is_one_more = rank == DUE || wanted > lot.len() as u64;
            let is_full = lot.len() == most || lines >= LINES_AT_ONCE || skipped == AT_ONCE;
            if is_full || !is_one_more || (!lot.is_empty() && InUse::of(rank) != in_use) {
                break;
            }
            // Who commits to it now, or writes it back.
            let Some(claim) = self.index.get(home).and_then(|slot| slot.try_claim()) else {
                skipped += 1;
                continue;
            };
            let Some(list) = self.taken(home, claim, u64::MAX) else {
                taken.push(ranked);
                continue;
            };
            let more = list.cost.lines();
            if self.how != WriteBack::AtOnce && !space.allows(more) {
                break;
            }
            (in_use, lines) = (InUse::of(rank), lines + more);
            taken.push(ranked);
            lot.push(list);
        }
        for ranked in taken {
            self.queue.remove(&mut lists, ranked);
        }
        (lot, in_use)
    }

    /// Ranks some of the lists that have no rank.
    fn rank_found(&self, lists: &mut Lists) {
        let (mut ranked, mut shard) = (0, 0);
        while ranked < RANKED_AT_ONCE || lists.ranked().len() == 0 {
            let Some(home) = self.queue.pop_found(&mut shard) else { return };
            ranked += 1;
            let Some(slot) = self.index.get(home) else { continue };
            match slot.try_claim() {
                Some(claim) if claim.newest() != NO_VERSION => {
                    let cost = Self::cost(self.arena.list(claim.newest()), self.queue.covered(home));
                    self.queue.enter(lists, Ranked::new(self.rank(cost), home));
                }
                Some(_) => {}
                // Looked at later.
                None => return self.found(home),
            }
        }
    }

    /// That all lines of a list are what was written, as far as they are of an earlier incarnation.
    fn verify_list(&self, newest: u32) -> Result<()> {
        self.arena.list(newest).try_for_each(|version| self.verify(Lba(version.position)))
    }

    /// The same; a list that is damaged stays, and none of its blocks becomes free.
    fn is_sound(&self, list: &Taken<'_>) -> bool {
        let is_sound = self.verify_list(list.claim.newest()).is_ok();
        if !is_sound {
            self.stuck.set(list.home.0, list.heads.len() as u64);
        }
        is_sound
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
        let _alone = self.one_by_one.lock().unwrap();
        while space.wanted() > 0 && space.allows((AT_ONCE * 64) as u64) {
            let lot: Vec<(u64, u64)> = self.queue.lists().in_order.iter().take(AT_ONCE).copied().collect();
            let Some((upto, _)) = lot.last() else { break };
            let taken = self.take_lists(&lot.iter().map(|(_, home)| *home).collect(), *upto);
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

    /// A list whose claim the caller has, to take what was committed up to a place in commit order off it.
    fn taken<'e>(&self, home: u64, claim: Claim<'e>, upto: u64) -> Option<Taken<'e>> {
        if claim.newest() == NO_VERSION {
            return None;
        }
        let covered = self.queue.covered_versions(&self.arena, home);
        let cost = Self::cost(self.arena.list(claim.newest()), covered.len());
        let all = covered.into_iter().chain(self.arena.list(claim.newest()));
        let heads = all.filter(|version| version.stamp <= upto).map(|version| (version.stamp, Lba(version.position)));
        let mut heads: Vec<_> = heads.collect();
        heads.sort_unstable();
        Some(Taken { home: Lba(home), claim, upto, heads, cost, into: Lba(home), is_refused: false })
    }

    /// The same, and it leaves the queue. (With the variant in commit order it is in no queue of lists.)
    fn take<'e>(&self, home: u64, claim: Claim<'e>, upto: u64) -> Option<Taken<'e>> {
        let taken = self.taken(home, claim, upto)?;
        self.queue.leave(&mut self.queue.lists(), self.rank(taken.cost), home);
        Some(taken)
    }

    /// Claims the lists of some homes that have any.
    /// In ascending order of the homes: so threads that claim many wait for each other in one direction.
    fn take_lists(&self, homes: &BTreeSet<u64>, upto: u64) -> Vec<Taken<'_>> {
        let slots = homes.iter().filter_map(|home| Some((*home, self.index.get(*home)?)));
        slots.filter_map(|(home, slot)| self.take(home, slot.claim(), upto)).collect()
    }

    /// Writes some lists back. Returns the homes of those that stay, because their files are in use.
    fn write_back_lot(
        &self,
        mut taken: Vec<Taken<'_>>,
        in_use: InUse,
        space: &dyn Reclaim,
        maps: &dyn Maps,
    ) -> Result<Vec<u64>> {
        let region = &*self.base.region;
        // Before readers are drained: who comes later finds that it was verified, and needs no head.
        taken.retain(|list| self.is_sound(list));
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        for list in &mut taken {
            // Who comes now sees the list, and reads none of the lines that change.
            list.claim.drain_readers();
            if let (Some(best), _) = select(self.arena.list(list.claim.newest())) {
                list.into = Lba(best.position);
            }
            list.is_refused = list.into != list.home && !self.may_swap(list, maps)?;
            match (list.is_refused, in_use) {
                (true, InUse::Left) => continue,
                (true, InUse::Copied) => list.into = list.home,
                (false, _) => {}
            }
            self.gather(list)?;
        }
        let settled = self.settle(None, None)?;
        region.fence(HOME_FENCE)?;
        settled.into_iter().for_each(Settling::end);
        let (mut done, mut refused, mut are_copied) = (Vec::new(), Vec::new(), false);
        for mut list in taken {
            if list.into != list.home && (list.is_refused || !self.swap(&list, maps)?) {
                if in_use == InUse::Left {
                    // Under its claim.
                    self.queue.enter(&mut self.queue.lists(), Ranked::new(REFUSED, list.home.0));
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

    /// Whether the pointer of a list can be swapped: asked before lines are copied for that.
    fn may_swap(&self, list: &Taken<'_>, maps: &dyn Maps) -> Result<bool> {
        let head = self.head_of(list.into)?;
        Ok(head.is_some_and(|head| maps.may_swap(InoGen { ino: head.ino, generation: head.generation })))
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
        let taken = self.take_lists(homes, u64::MAX);
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
            let home = list.home.0;
            self.queue.uncover(&self.arena, home, list.upto, &mut numbers);
            if self.how == WriteBack::CommitOrder {
                let mut lists = self.queue.lists();
                for (order, _) in &list.heads {
                    lists.in_order.remove(&(*order, home));
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
