//! The epochs of a commit.

use index::{LinesVersion, NO_VERSION};
use sync::Ordering;
use wholly_error::Result;

use super::checkpoint::Settling;
use super::{COMMIT, COMMIT_FENCE, ENTRIES, HEAD, HybridLog, LOG_FENCE, Last, PLACE_FENCE};
use crate::engine::draft::Draft;
use crate::engine::lanes::Cursor;
use crate::engine::{Allocate, Mistake, Part};
use crate::format::head::{self, PendingHead};
use crate::format::log::{Entry, LINE, OLD_MAX};
use crate::format::{BLOCK, Lba, Run};

impl HybridLog {
    /// Commits a group. Returns its place in commit order.
    pub(super) fn commit_one(&self, part: &mut Part<'_>) -> Result<u64> {
        let draft = &*part.draft;
        if draft.pended.blocks.is_empty() && draft.changes().next().is_none() {
            let is_unreached = draft.stored && draft.group.is_none();
            assert!(!is_unreached && draft.pended.left.is_empty(), "a change reaches what was stored early");
            return Ok(0);
        }
        let mut cursor = self.base.lanes.take()?;
        let committing = self.base.lanes.commit()?;
        let order = match self.mistake {
            Some(Mistake::OrderOfBegin) => part.group.0,
            _ => self.base.next_order(),
        };
        self.epochs(&mut cursor, draft, part.space, order)?;
        self.publish(draft, order);
        if !draft.pended.left.is_empty() {
            let freed = self.drop_lists(&draft.pended.left)?;
            freed.into_iter().for_each(|at| part.space.release(Run { start: at, count: 1 }));
        }
        committing.end(&cursor);
        Ok(order)
    }

    fn epochs(&self, cursor: &mut Cursor, draft: &Draft, space: &mut dyn Allocate, order: u64) -> Result<()> {
        let region = &*self.base.region;
        let (lane, sequence) = cursor.group();
        // 1: heads and old bytes, and who built on what.
        let mut sum = self.store_heads((lane, sequence, order), draft)?;
        let mut entries = draft.pended.blocks.iter().len() as u32;
        let is_changed = cursor.entries.undo_all(region, &ENTRIES, space, draft)?;
        for (at, line) in draft.changes() {
            for run in line.runs(OLD_MAX) {
                let at = at + run.start as u64;
                sum = sum.wrapping_add(self.base.lanes.seed().in_place_sum(at, &line.new[run]));
            }
        }
        let lines: Vec<u64> = draft.changes().map(|(at, _)| at / LINE as u64).collect();
        if is_changed {
            // Blocks that it frees may have changes of a group in doubt, and are soon another's; or its heads are
            // wiped.
            let all = draft.pended.releases || !draft.pended.left.is_empty();
            let settled = self.settle(Some(&lines[..]).filter(|_| !all), Some(lane))?;
            region.fence(LOG_FENCE)?;
            settled.into_iter().for_each(Settling::end);
            // 2: new bytes, in place.
            draft.store_in_place(region)?;
        }
        let (number, checks) = cursor.total();
        (entries, sum) = (entries + number, sum.wrapping_add(checks));
        // Entries in other blocks are gone when the group has ended: nobody could tell whether it is committed.
        // A mount writes superblocks past the engine: a torn one would be a part of what proves the group.
        let is_of_superblock = draft.changes().next().is_some_and(|(at, _)| at < 2 * BLOCK as u64);
        let in_doubt = !cursor.has_links() && !is_of_superblock;
        if !in_doubt {
            region.fence(PLACE_FENCE)?;
        }
        // The commit point. Nothing is acknowledged after the failure of another commit.
        self.base.lanes.check()?;
        let (at, entry, check) = cursor.commit_line(&Entry::Commit { entries, sum, redo: in_doubt, order });
        region.write(COMMIT, at, &entry)?;
        region.fence(COMMIT_FENCE)?;
        let last = Last { sequence, check, is_settled: !in_doubt, lines };
        *self.lasts[lane as usize].lock().unwrap() = last;
        Ok(())
    }

    /// Stores the heads of a group. Returns the sum of their checks and of their lines' checksums.
    fn store_heads(&self, (lane, sequence, order): (u32, u64, u64), draft: &Draft) -> Result<u64> {
        let seed = self.head_seed();
        let mut total = 0u64;
        for (home, tentative) in draft.pended.blocks.iter() {
            let sum = self.line_seed.total(&tentative.sums, tentative.at);
            let head = PendingHead {
                lane,
                sequence,
                order,
                ino: tentative.file.ino,
                generation: tentative.file.generation,
                block: tentative.block,
                home: Lba(home),
                lines: tentative.lines,
                sum: sum as u32,
            };
            let (line, check) = head::encode(seed, tentative.at, &head);
            self.base.region.write(HEAD, self.table.at(tentative.at), &line)?;
            total = total.wrapping_add(check).wrapping_add(sum);
        }
        Ok(total)
    }

    /// Enters the versions of a committed group.
    fn publish(&self, draft: &Draft, order: u64) {
        let blocks = draft.pended.blocks.iter();
        let (mut numbers, mut freed) = (Vec::new(), Vec::new());
        self.arena.refill(&mut numbers, blocks.len());
        for ((home, tentative), number) in blocks.zip(numbers) {
            let (position, stamp) = (tentative.at.0, order);
            let version =
                LinesVersion { position, stamp, lines: tentative.lines, next: NO_VERSION, before_thinning: 0 };
            // Counted before it can be seen: whoever counts none reads past the index.
            self.pending.fetch_add(1, Ordering::Relaxed);
            let claim = self.index.get_or_make(home).claim();
            let before = (claim.newest(), self.rank_of(home, claim.newest()));
            claim.push(&self.arena, number, version, &mut freed);
            self.grown(home, before, (claim.newest(), order), &freed);
            freed.clear();
        }
    }
}
