//! The five epochs of a commit.

use wholly::Result;
use wholly::sync::Ordering;

use super::{
    COMMIT, COMMIT_FENCE, ENTRIES, FineGrainedWal, HOME, HOME_FENCE, LOG_FENCE, PLACE_FENCE, SETTLE, SETTLE_FENCE,
    ZEROS,
};
use crate::engine::draft::Draft;
use crate::engine::lanes::{Cursor, Redo};
use crate::engine::{Allocate, Part};
use crate::format::log::{OLD_MAX, SETTLED};

impl FineGrainedWal {
    /// Commits a group. Returns its place in commit order.
    pub(super) fn commit_one(&self, part: &mut Part<'_>) -> Result<u64> {
        let cursor = part.draft.cursor.take();
        if cursor.is_none() && part.draft.chain.is_none() && part.draft.changes().next().is_none() {
            let is_unreached = part.draft.stored && part.draft.group.is_none();
            assert!(!is_unreached, "what a group has stored early, one of its changes reaches");
            return Ok(0);
        }
        let mut cursor = cursor.map_or_else(|| self.lanes.take(), Ok)?;
        let committing = self.lanes.commit()?;
        let order = self.commits.fetch_add(1, Ordering::Relaxed);
        self.epochs(&mut cursor, part.draft, part.space, order)?;
        committing.end(&cursor);
        Ok(order)
    }

    fn epochs(&self, cursor: &mut Cursor, draft: &Draft, space: &mut dyn Allocate, order: u64) -> Result<()> {
        let region = &*self.region;
        // The data of an implicit group is in its lane, that of an explicit one in its chain.
        let in_lane = std::mem::take(&mut cursor.entries.redo);
        let redo = || in_lane.iter().chain(draft.data());
        let has_data = redo().next().is_some();
        let entries = &mut cursor.entries;
        // 1: where the data is, and old bytes.
        if let Some(chain) = &draft.chain {
            entries.chain(region, &ENTRIES, chain)?;
        }
        let mut left = draft.changes().map(|(_, line)| line.runs(OLD_MAX).count() as u64).sum::<u64>();
        let is_changed = left > 0;
        for (at, line) in draft.changes() {
            for run in line.runs(OLD_MAX) {
                left -= 1;
                entries.undo(region, &ENTRIES, space, (at + run.start as u64, &line.old[run]), left)?;
            }
        }
        region.fence(LOG_FENCE)?;
        // 2: new bytes, in place.
        for (at, line) in draft.changes() {
            for run in line.runs(line.new.len()) {
                region.write(line.site, at + run.start as u64, &line.new[run])?;
            }
        }
        if is_changed {
            region.fence(PLACE_FENCE)?;
        }
        // 3: the commit point. Nothing is acknowledged after the failure of another commit.
        self.lanes.check()?;
        let (half, entry, check) = cursor.commit_entry(order, has_data);
        region.write(COMMIT, half, &entry)?;
        region.fence(COMMIT_FENCE)?;
        if !has_data {
            return Ok(());
        }
        // 4: data, at home.
        for Redo { from, at, len } in redo() {
            match from {
                Some(from) => region.write_from(HOME, *at, region, *from, *len as usize)?,
                None => region.write(HOME, *at, &ZEROS[..*len as usize])?,
            }
        }
        region.fence(HOME_FENCE)?;
        // 5: before anybody can write over it.
        region.write(SETTLE, half + SETTLED, &check.to_le_bytes())?;
        Ok(region.fence(SETTLE_FENCE)?)
    }
}
