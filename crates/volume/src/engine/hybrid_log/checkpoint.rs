//! Writing back (the paper's selective checkpointing, III-E, algorithm 1), and dropping lists of homes that nothing
//! uses any more.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use index::{Claim, LinesVersion, NO_VERSION, latest_lines};
use sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use wholly_error::Result;

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
/// Lists whose files were in use, and that a thread asks for again.
const ASKED_AT_ONCE: usize = 16;

/// The rank of a list that is long.
pub(super) const DUE: u64 = 0;
/// The rank of the others begins here: the lines that are copied for each block that becomes free, in 64ths, are added.
const CHEAPEST: u64 = 1;
/// The rank of a list whose pointer could not be swapped, because its file was in use.
const REFUSED: u64 = CHEAPEST + 64 * 64 + 1;
const RANK_SHIFT: u32 = 48;

/// The home of a list in the queue.
fn home_of(list: u64) -> u64 {
    list & ((1 << RANK_SHIFT) - 1)
}

/// The lists that nobody is writing back. Its lock is taken under the claim of a list, never waiting for one.
#[derive(Default)]
pub(super) struct Queue {
    /// Of each list its rank, and its home below that: the cheapest first.
    lists: BTreeSet<u64>,
    /// Homes with lists that have no rank: they have got a version since somebody wrote back, recovery has found them,
    /// or their files were in use. Some have no list any more.
    pub found: Vec<u64>,
    /// Covered versions, by home: their places in commit order, and their blocks.
    pub covered: BTreeMap<u64, Vec<(u64, Lba)>>,
    /// The variant [`WriteBack::CommitOrder`]: all versions, by place in commit order, and their homes.
    pub in_order: BTreeSet<(u64, u64)>,
}

impl Queue {
    pub fn enter(&mut self, rank: u64, home: u64) {
        self.lists.insert(rank << RANK_SHIFT | home);
    }

    /// Takes a list out that has this rank, or none. Returns whether it had one.
    fn leave(&mut self, rank: u64, home: u64) -> bool {
        self.lists.remove(&(rank << RANK_SHIFT | home)) || self.lists.remove(&(REFUSED << RANK_SHIFT | home))
    }

    /// Some lists whose files were in use get a rank again.
    fn ask_again(&mut self) {
        let refused: Vec<u64> = self.lists.range(REFUSED << RANK_SHIFT..).take(ASKED_AT_ONCE).copied().collect();
        for list in refused {
            self.lists.remove(&list);
            self.found.push(home_of(list));
        }
    }

    pub fn is_due(&self) -> bool {
        self.lists.first().is_some_and(|first| first >> RANK_SHIFT == DUE)
    }

    /// How many versions of a home are covered.
    fn covered(&self, home: u64) -> usize {
        self.covered.get(&home).map_or(0, Vec::len)
    }

    /// Bytes of memory, about: a set is three quarters full.
    pub fn memory_bytes(&self) -> u64 {
        (self.lists.len() as u64 * 4 / 3 + self.found.capacity() as u64) * size_of::<u64>() as u64
    }
}

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
    /// What it costs to write back a list that the caller has claimed.
    pub(super) fn cost(&self, newest: u32, covered: usize) -> Cost {
        let mut heads = covered;
        let (_, copied) = select(self.arena.list(newest).inspect(|_| heads += 1));
        Cost { heads, copied: u64::from(copied) }
    }

    pub(super) fn rank(&self, cost: Cost) -> u64 {
        match cost.heads > self.how.most_versions() {
            true => DUE,
            false => CHEAPEST + cost.copied * 64 / cost.heads.max(1) as u64,
        }
    }

    /// A list has got a version, its newest, and others are covered now. `before`: its newest version until then. The
    /// caller has its claim. A commit ranks no list, but for a long one: who writes back does ([`rank_found`]).
    ///
    /// [`rank_found`]: Self::rank_found
    pub(super) fn grown(
        &self,
        home: u64,
        before: u32,
        (newest, order): (u32, u64),
        now_covered: impl ExactSizeIterator<Item = LinesVersion>,
    ) {
        let mut queue = self.queue.lock().unwrap();
        let covered = queue.covered(home);
        if now_covered.len() > 0 {
            let old = now_covered.map(|old| (old.stamp, Lba(old.position)));
            queue.covered.entry(home).or_default().extend(old);
        }
        if self.how == WriteBack::CommitOrder {
            queue.in_order.insert((order, home));
            return;
        }
        let had_rank =
            before != NO_VERSION && !queue.lists.is_empty() && queue.leave(self.rank(self.cost(before, covered)), home);
        let heads = self.arena.list(newest).count() + queue.covered(home);
        if heads > self.how.most_versions() {
            queue.enter(DUE, home);
        } else if had_rank || before == NO_VERSION {
            if queue.found.len() == queue.found.capacity() {
                // Some may have no list any more, or be there twice.
                let has_list = |home: &u64| self.index.get(*home).is_some_and(|slot| !slot.is_empty());
                queue.found.sort_unstable();
                queue.found.dedup();
                queue.found.retain(has_list);
            }
            queue.found.push(home);
        }
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
        self.queue.lock().unwrap().ask_again();
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
        let mut homes: VecDeque<u64> = {
            let mut queue = self.queue.lock().unwrap();
            let Queue { lists, found, .. } = &mut *queue;
            lists.iter().map(|list| home_of(*list)).chain(found.drain(..)).collect()
        };
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
        let mut queue = self.queue.lock().unwrap();
        if wanted > 0 {
            self.rank_found(&mut queue);
        }
        let most = AT_ONCE.min(queue.lists.len().div_ceil(2));
        let (mut keys, mut skipped) = (Vec::new(), 0);
        for key in &queue.lists {
            let (rank, home) = (key >> RANK_SHIFT, home_of(*key));
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
            let Some(list) = self.taken(&queue, home, claim, u64::MAX) else {
                keys.push(*key);
                continue;
            };
            let more = list.cost.lines();
            if self.how != WriteBack::AtOnce && !space.allows(more) {
                break;
            }
            (in_use, lines) = (InUse::of(rank), lines + more);
            keys.push(*key);
            lot.push(list);
        }
        for key in &keys {
            queue.lists.remove(key);
        }
        (lot, in_use)
    }

    /// Ranks some of the lists that have no rank.
    fn rank_found(&self, queue: &mut Queue) {
        let enough = queue.found.len().saturating_sub(RANKED_AT_ONCE);
        while queue.found.len() > enough || queue.lists.is_empty() {
            let Some(home) = queue.found.pop() else { return };
            let Some(slot) = self.index.get(home) else { continue };
            match slot.try_claim() {
                Some(claim) if claim.newest() != NO_VERSION => {
                    let rank = self.rank(self.cost(claim.newest(), queue.covered(home)));
                    queue.enter(rank, home);
                }
                Some(_) => {}
                // Looked at later.
                None => {
                    queue.found.push(home);
                    return;
                }
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
            let lot: Vec<(u64, u64)> = self.queue.lock().unwrap().in_order.iter().take(AT_ONCE).copied().collect();
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
    fn taken<'e>(&self, queue: &Queue, home: u64, claim: Claim<'e>, upto: u64) -> Option<Taken<'e>> {
        if claim.newest() == NO_VERSION {
            return None;
        }
        let covered = queue.covered.get(&home).into_iter().flatten().copied();
        let mut heads: Vec<_> = covered.filter(|(order, _)| *order <= upto).collect();
        let listed = self.arena.list(claim.newest()).filter(|version| version.stamp <= upto);
        heads.extend(listed.map(|version| (version.stamp, Lba(version.position))));
        heads.sort_unstable();
        let cost = self.cost(claim.newest(), queue.covered(home));
        Some(Taken { home: Lba(home), claim, upto, heads, cost, into: Lba(home), is_refused: false })
    }

    /// The same, and it leaves the queue. (With the variant in commit order it is in no queue of lists.)
    fn take<'e>(&self, home: u64, claim: Claim<'e>, upto: u64) -> Option<Taken<'e>> {
        let mut queue = self.queue.lock().unwrap();
        let taken = self.taken(&queue, home, claim, upto)?;
        queue.leave(self.rank(taken.cost), home);
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
                    self.queue.lock().unwrap().enter(REFUSED, list.home.0);
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
            let mut queue = self.queue.lock().unwrap();
            if let Entry::Occupied(mut covered) = queue.covered.entry(home) {
                covered.get_mut().retain(|(order, _)| *order > list.upto);
                if covered.get().is_empty() {
                    covered.remove();
                }
            }
            if self.how == WriteBack::CommitOrder {
                for (order, _) in &list.heads {
                    queue.in_order.remove(&(*order, home));
                }
            }
            drop(queue);
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
